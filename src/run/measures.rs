//! The measures of an experiment.

use crate::explore::ExploreMeasure;
use crate::measures::{
    AnswerMeasure, FidelityMeasure, GenerationMeasure, MapMeasure, Measure, MeasureName, NllMeasure, OutlierMeasure,
    RolesMeasure, ShapeMeasure, SinkRateMeasure,
};

/// The measures of an experiment, by kind.
#[derive(Default)]
pub struct Measures {
    answer: Option<AnswerMeasure>,
    shape: Option<ShapeMeasure>,
    roles: Option<RolesMeasure>,
    fidelity: Option<FidelityMeasure>,
    sink_rate: Option<SinkRateMeasure>,
    /// Its pooled data have tables of their own.
    pub outliers: Option<OutlierMeasure>,
    /// Its pooled data are written token by token.
    pub nll: Option<NllMeasure>,
    /// Its pooled data are written as JSON lines.
    pub generation: Option<GenerationMeasure>,
    /// Its pooled data are drawn as heat maps.
    pub maps: Option<MapMeasure>,
    /// The maps token by token, for the matrix files.
    pub whole_maps: Option<MapMeasure>,
    /// Its pooled data become the explorer page.
    pub(crate) explorer: Option<ExploreMeasure>,
}

impl Measures {
    /// Creates the measures with these names; repeated names count once.
    pub fn new(names: &[MeasureName]) -> Self {
        let has = |name| names.contains(&name);
        let (by_head, sinks) = (has(MeasureName::AnswerByHead), has(MeasureName::Shape));
        Self {
            answer: (by_head || has(MeasureName::Answer)).then_some(AnswerMeasure { by_head, sinks }),
            shape: has(MeasureName::Shape).then_some(ShapeMeasure),
            roles: has(MeasureName::Roles).then_some(RolesMeasure),
            fidelity: has(MeasureName::Fidelity).then_some(FidelityMeasure),
            sink_rate: has(MeasureName::SinkRate).then_some(SinkRateMeasure),
            outliers: has(MeasureName::Outliers).then(OutlierMeasure::default),
            nll: has(MeasureName::Nll).then(NllMeasure::default),
            generation: has(MeasureName::Generation).then(GenerationMeasure::default),
            ..Self::default()
        }
    }

    /// Returns all measures that are present, always in the same order.
    pub fn list(&mut self) -> Vec<&mut dyn Measure> {
        fn one<M: Measure>(measure: &mut Option<M>) -> Option<&mut dyn Measure> {
            measure.as_mut().map(|measure| measure as &mut dyn Measure)
        }
        let all = [
            one(&mut self.answer),
            one(&mut self.shape),
            one(&mut self.roles),
            one(&mut self.fidelity),
            one(&mut self.sink_rate),
            one(&mut self.outliers),
            one(&mut self.nll),
            one(&mut self.generation),
            one(&mut self.maps),
            one(&mut self.whole_maps),
            one(&mut self.explorer),
        ];
        all.into_iter().flatten().collect()
    }
}

//! Published numbers, which stand beside those of a run: of other models, on other prompts.

use super::{Case, Estimate, Frame};
use crate::metric::{self, Metric};
use crate::{bail_usage, files};
use anyhow::Result;
use serde::Deserialize;
use std::path::Path;

/// The name of the numbers of the paper, in place of a file.
const PAPER: &str = "paper";

/// Figures 5 and 8 of the Differential Transformer paper (arXiv 2410.05258).
const PAPER_CSV: &str = include_str!("../../assets/paper.csv");

/// A published number: a row of a CSV file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Where it is published: `Figure 8`.
    pub figure: String,
    /// What was measured there: `HellaSwag, 0-shot`.
    pub measured: String,
    /// The model.
    pub model: String,
    /// The metric of this tool that it is shown beside.
    pub metric: String,
    /// Bits of quantised logits, 16 for none; empty where nothing is quantised.
    pub bits: Option<u32>,
    /// Tokens of a prompt, if there are several lengths.
    pub ctx_tok: Option<usize>,
    /// Depth of the needle, if there are several.
    pub depth_pct: Option<f64>,
    /// The number, in the unit of `results.csv`.
    pub value: f64,
    /// The document, and how the number was taken from it.
    pub source: String,
}

impl Published {
    /// Reads numbers: those of the paper if `name` is `paper`, otherwise of a CSV file.
    ///
    /// # Errors
    /// If a file cannot be read. Usage errors with the line if it is not such a file.
    pub fn read(name: &Path) -> Result<Vec<Self>> {
        if name == Path::new(PAPER) {
            return Self::parse(PAPER, PAPER_CSV);
        }
        Self::parse(&name.display().to_string(), &files::input_text(name, files::CONFIG_MAX)?)
    }

    fn parse(name: &str, text: &str) -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for row in csv::Reader::from_reader(text.as_bytes()).into_deserialize::<Self>() {
            let row = match row {
                Ok(row) => row,
                Err(error) => bail_usage!("{name}: {error}"),
            };
            // The header is line 1.
            let line = found.len() + 2;
            if metric::find(&row.metric).is_none() {
                bail_usage!("{name}, line {line}: `{}` is not a metric", row.metric);
            }
            if !row.value.is_finite() {
                bail_usage!("{name}, line {line}: {} is not a finite number", row.value);
            }
            found.push(row);
        }
        if found.is_empty() {
            bail_usage!("{name}: no published numbers in the file");
        }
        Ok(found)
    }

    /// The metric.
    pub(crate) fn metric(&self) -> &'static Metric {
        metric::find(&self.metric).unwrap_or(&metric::EXACT)
    }

    /// The place of the number in its figure.
    pub(crate) fn place(&self) -> Place {
        let Self { figure, measured, metric, bits, ctx_tok, depth_pct, .. } = self.clone();
        Place { figure, measured, metric, bits, ctx_tok, depth_pct }
    }
}

/// The place of numbers in a figure, one for each model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    /// Where it is published.
    pub(crate) figure: String,
    /// What was measured there.
    pub(crate) measured: String,
    metric: String,
    /// Bits of quantised logits.
    pub(crate) bits: Option<u32>,
    /// Tokens of a prompt; `None` for a mean over all.
    pub(crate) ctx_tok: Option<usize>,
    /// Depth of the needle.
    pub(crate) depth_pct: Option<f64>,
}

/// The numbers of one place.
#[derive(Clone, Debug)]
pub(crate) struct Beside {
    /// The place.
    pub(crate) place: Place,
    /// The metric.
    pub(crate) metric: &'static Metric,
    /// Published models and their numbers.
    pub(crate) published: Vec<(String, f64)>,
}

/// Groups numbers by place, with means over lengths for depths of which there are several lengths.
pub(crate) fn by_place(published: &[Published]) -> Vec<Beside> {
    let mut places: Vec<Beside> = Vec::new();
    let mut add = |place: Place, of: &Published, value: f64| {
        let number = (of.model.clone(), value);
        match places.iter_mut().find(|known| known.place == place) {
            Some(known) => known.published.push(number),
            None => places.push(Beside { place, metric: of.metric(), published: vec![number] }),
        }
    };
    for number in published {
        add(number.place(), number, number.value);
    }
    let of_all_lengths = |number: &Published| Place { ctx_tok: None, ..number.place() };
    let mut averaged: Vec<(Place, &str)> = Vec::new();
    for number in published.iter().filter(|number| number.ctx_tok.is_some() && number.depth_pct.is_some()) {
        let key = (of_all_lengths(number), number.model.as_str());
        if averaged.contains(&key) {
            continue;
        }
        let same = published.iter().filter(|other| of_all_lengths(other) == key.0 && other.model == number.model);
        let values: Vec<f64> = same.map(|other| other.value).collect();
        add(key.0.clone(), number, values.iter().sum::<f64>() / values.len() as f64);
        averaged.push(key);
    }
    places
}

impl Beside {
    /// What a run measured at this place for a model: with logits, or queries and keys, of as many bits, or, of 16, untreated;
    /// of such prompts. The first setting and condition that has numbers.
    pub(crate) fn of_run(&self, frame: &Frame, model: &str) -> Option<Estimate> {
        let has_bits = |case: &Case| match (self.place.bits, case.treated.bits) {
            (None, _) => case.treated.condition.is_none(),
            (Some(16), None) => case.treated.condition.is_none(),
            (Some(wanted), bits) => bits == Some(wanted),
        };
        let has_length = |case: &Case| self.place.ctx_tok.is_none_or(|tokens| case.setting.0 == tokens);
        let mut cases: Vec<Case> = frame
            .cases()
            .into_iter()
            .filter(|case| case.model == model && has_bits(case) && has_length(case))
            .collect();
        // Condition of 16 bits before the untreated one, and one scale for all before others.
        cases.sort_by_key(|case| case.treated.bits != self.place.bits);
        let is_of_bits = self.place.bits.is_none() || frame.treated().iter().any(|treated| treated.bits.is_some());
        let estimate = |case: &Case| {
            let pick = case.pick(self.metric, None);
            frame.estimate(self.place.depth_pct.map_or(pick, |depth| pick.depth_pct(depth)))
        };
        let estimates = cases.iter().filter_map(estimate);
        estimates.take(usize::from(is_of_bits)).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::exit_code;

    const HEAD: &str = "figure,measured,model,metric,bits,ctx_tok,depth_pct,value,source\n";

    #[test]
    fn the_paper_has_its_figures_5_and_8() {
        let paper = Published::read(Path::new(PAPER)).unwrap();
        let of = |figure: &str, model: &str| -> Vec<f64> {
            paper.iter().filter(|n| n.figure == figure && n.model == model).map(|n| n.value).collect()
        };
        assert_eq!(of("Figure 8", "DIFF 3B"), [0.662, 0.663, 0.66, 0.588]);
        assert_eq!(of("Figure 8", "Transformer 3B"), [0.634, 0.627, 0.589, 0.339]);
        assert_eq!((of("Figure 5", "DIFF 3B").len(), of("Figure 5", "Transformer 3B").len()), (40, 40));
        assert!(paper.iter().all(|number| number.source.contains("2410.05258")));
    }

    #[test]
    fn depths_of_several_lengths_have_a_mean_over_them() {
        let places = by_place(&Published::read(Path::new(PAPER)).unwrap());
        let mean = |depth: f64| {
            let at = |b: &&Beside| b.place.depth_pct == Some(depth) && b.place.ctx_tok.is_none();
            places.iter().find(at).unwrap().published.clone()
        };
        assert_eq!(mean(100.0), [("Transformer 3B".to_owned(), 1.0), ("DIFF 3B".to_owned(), 1.0)]);
        assert!((mean(0.0)[0].1 - 5.84 / 8.0).abs() < 1e-12, "{:?}", mean(0.0));
        assert_eq!(places.len(), 4 + 40 + 5);
    }

    #[test]
    fn mistakes_in_a_file_are_named_with_their_line() {
        for (rows, words) in [
            ("Figure 1,x,m,exact,,,,0.5,s\nFigure 1,x,m,beauty,,,,0.5,s\n", "x.csv, line 3: `beauty` is not a metric"),
            ("Figure 1,x,m,exact,,,,inf,s\n", "line 2: inf is not a finite number"),
            ("Figure 1,x,m,exact,four,,,0.5,s\n", "line: 2"),
            ("Figure 1,x\n", "line: 2"),
            ("", "no published numbers"),
        ] {
            let error = Published::parse("x.csv", &format!("{HEAD}{rows}")).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert_eq!(exit_code(&error), 2);
        }
        assert!(Published::parse("x.csv", "a,b\n1,2\n").is_err());
    }
}

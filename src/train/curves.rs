//! Training curves of all runs of a spec, `course.csv`: one line for every line of every run's log.
//!
//! Figures and the summary use only this table. It is small enough to be kept beside a spec when the models are not.

use super::layers::{LayerLine, CONTEXT_RMS, GRAD_NORM};
use super::log::{read, EvalLine, LogLine};
use super::spec::{TrainRun, TrainSpec};
use super::{EVAL_FILE, LAYER_FILE, LOG_FILE};
use crate::results::metric::LAMBDA;
use anyhow::{bail, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// One line of `course.csv`: one run after some tokens. Numbers have [`DIGITS`] digits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CurveRow {
    /// Variant of the spec.
    pub variant: String,
    /// Seed of the run.
    pub seed: u64,
    /// Tokens trained on.
    pub tokens: usize,
    /// Context length of the stage.
    pub ctx_tok: usize,
    /// NLL of ordinary text, mean since the previous line.
    pub text_nats: f64,
    /// NLL of the first digit of a number that the context has stated.
    pub digit1_nats: f64,
    /// Share of these digits that are predicted.
    pub digit1_hit: f64,
    /// Gradient norm before clipping, mean over steps.
    pub grad_norm: f64,
    /// Gradient norm of all query and key projections together, in the last step.
    pub grad_norm_qk: Option<f64>,
    /// Gradient norm of all value and output projections together, in the last step.
    pub grad_norm_vo: Option<f64>,
    /// Root mean square of the attention mixture before the head norm, mean over layers and heads.
    pub context_rms: Option<f64>,
    /// Root mean square of the head with the smallest one.
    pub context_rms_least: Option<f64>,
    /// Lambda, mean over layers and heads, and over tokens if it depends on them.
    pub lambda: Option<f64>,
    /// Accuracy on unseen prompts with one needle, if evaluated at this time.
    pub one_needle: Option<f64>,
    /// The same with two needles, both asked for.
    pub two_needles: Option<f64>,
}

/// Significant digits of the numbers in `course.csv`, enough for their variation over seeds.
const DIGITS: usize = 5;

/// The training curves of all runs of a spec.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrainingCurves(Vec<(TrainRun, Vec<CurveRow>)>);

impl TrainingCurves {
    /// Reads the curves of `spec` in `out`: each run from the logs in its folder, or from `course.csv` without a
    /// folder. Runs that have not begun are left out.
    ///
    /// # Errors
    /// If a file cannot be read, or `course.csv` has a run that the spec does not have.
    pub fn read(spec: &TrainSpec, out: &Path) -> Result<Self> {
        let path = out.join(super::COURSE_FILE);
        let mut kept: BTreeMap<(String, u64), Vec<CurveRow>> = BTreeMap::new();
        if path.exists() {
            for line in read::<CurveRow>(&path)? {
                kept.entry((line.variant.clone(), line.seed)).or_default().push(line);
            }
        }
        let mut runs = Vec::new();
        for run in spec.runs() {
            let key = (spec.variants[run.variant].name.clone(), run.seed);
            let in_table = kept.remove(&key).unwrap_or_default();
            let dir = out.join(&run.name);
            let in_folder = if dir.join(LOG_FILE).exists() { read_folder(&key, &dir)? } else { Vec::new() };
            // A run that was stopped at its beginning has a folder without lines.
            let lines = if in_folder.is_empty() { in_table } else { in_folder };
            if !lines.is_empty() {
                runs.push((run, lines));
            }
        }
        if let Some((variant, seed)) = kept.keys().next() {
            bail!("{}: the spec has no run of {variant} with seed {seed}", path.display());
        }
        Ok(Self(runs))
    }

    /// Creates the curves of these runs.
    #[cfg(test)]
    pub(crate) fn of_runs(runs: Vec<(TrainRun, Vec<CurveRow>)>) -> Self {
        Self(runs)
    }

    /// Returns the runs of a variant with their lines.
    pub fn of(&self, variant: usize) -> impl Iterator<Item = (&TrainRun, &[CurveRow])> {
        self.0.iter().filter(move |(run, _)| run.variant == variant).map(|(run, lines)| (run, lines.as_slice()))
    }

    /// Returns `true` if no run has begun.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all lines, run by run.
    pub fn lines(&self) -> impl Iterator<Item = &CurveRow> {
        self.0.iter().flat_map(|(_, lines)| lines)
    }
}

/// Reads the lines of a run from its logs.
fn read_folder((variant, seed): &(String, u64), dir: &Path) -> Result<Vec<CurveRow>> {
    let evals: Vec<EvalLine> = read(&dir.join(EVAL_FILE))?;
    let layers = dir.join(LAYER_FILE);
    let layers: Vec<LayerLine> = if layers.exists() { read(&layers)? } else { Vec::new() };
    let mut by_time: BTreeMap<usize, Vec<&LayerLine>> = BTreeMap::new();
    layers.iter().for_each(|line| by_time.entry(line.tokens).or_default().push(line));
    let mut lines: Vec<CurveRow> = Vec::new();
    for log in read::<LogLine>(&dir.join(LOG_FILE))? {
        let line = CurveRow {
            variant: variant.clone(),
            seed: *seed,
            tokens: log.tokens,
            ctx_tok: log.ctx_tok,
            text_nats: rounded(log.text_nats),
            digit1_nats: rounded(log.digit1_nats),
            digit1_hit: rounded(log.digit1_hit),
            grad_norm: rounded(log.grad_norm),
            lambda: log.lambda.map(rounded),
            ..CurveRow::default()
        };
        lines.push(with_layers(line, by_time.get(&log.tokens).map_or(&[], Vec::as_slice)));
    }
    for eval in evals.iter().filter(|eval| eval.cities == "train") {
        // An evaluation belongs to the first log line at its time or after.
        let Some(line) = lines.iter_mut().find(|line| line.tokens >= eval.tokens) else { continue };
        match eval.needles {
            1 => line.one_needle = Some(rounded(eval.accuracy)),
            2 => line.two_needles = Some(rounded(eval.accuracy)),
            _ => {}
        }
    }
    Ok(lines)
}

/// Adds the measurements inside the layers at the same time.
fn with_layers(line: CurveRow, layers: &[&LayerLine]) -> CurveRow {
    let mut rms = Vec::new();
    let mut lambda = Vec::new();
    for layer in layers {
        match layer.quantity.as_str() {
            CONTEXT_RMS => rms.push(layer.value),
            name if name == LAMBDA.name => lambda.push(layer.value),
            _ => {}
        }
    }
    CurveRow {
        grad_norm_qk: gradient_norm(layers, ["q_proj", "k_proj"]),
        grad_norm_vo: gradient_norm(layers, ["v_proj", "o_proj"]),
        context_rms: crate::stats::mean(&rms).map(rounded),
        context_rms_least: rms.iter().copied().min_by(f64::total_cmp).map(rounded),
        lambda: crate::stats::mean(&lambda).map(rounded).or(line.lambda),
        ..line
    }
}

/// The gradient norm of these projections of attention together, in all layers.
fn gradient_norm(layers: &[&LayerLine], projections: [&str; 2]) -> Option<f64> {
    let tensors = projections.map(|name| format!("self_attn.{name}.weight"));
    let mut squares = Vec::new();
    for line in layers.iter().filter(|line| line.quantity == GRAD_NORM && line.head.is_none()) {
        if line.tensor.as_ref().is_some_and(|tensor| tensors.contains(tensor)) {
            squares.push(line.value.powi(2));
        }
    }
    (!squares.is_empty()).then(|| rounded(squares.iter().sum::<f64>().sqrt()))
}

fn rounded(x: f64) -> f64 {
    format!("{x:.*e}", DIGITS - 1).parse().unwrap_or(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> TrainSpec {
        TrainSpec::parse(include_str!("../../experiments/study-a-norm.toml"), "study-a").unwrap()
    }

    /// Makes a run folder with two log lines.
    fn run(out: &Path, name: &str) {
        let dir = out.join(name);
        std::fs::create_dir_all(&dir).unwrap();
        let log =
            |tokens| LogLine { tokens, ctx_tok: 128, digit1_hit: 1.0 / 3.0, lambda: Some(0.5), ..LogLine::default() };
        let write = |file: &str, lines: &[LogLine]| {
            let mut csv = csv::Writer::from_path(dir.join(file)).unwrap();
            lines.iter().for_each(|line| csv.serialize(line).unwrap());
        };
        write(LOG_FILE, &[log(100), log(200)]);
        let layers = "tokens,layer,quantity,tensor,head,value\n\
            200,0,context_rms,,0,0.25\n200,0,context_rms,,1,0.75\n200,0,lambda,,,0.25\n200,1,lambda,,,0.5\n\
            200,0,grad_norm,self_attn.q_proj.weight,,3\n200,0,grad_norm,self_attn.k_proj.weight,,4\n\
            200,0,grad_norm,self_attn.q_proj.weight,0,2\n200,0,grad_norm,mlp.up_proj.weight,,9\n";
        std::fs::write(dir.join(LAYER_FILE), layers).unwrap();
        let evals = "tokens,ctx_tok,needles,retrieve,cities,n,exact,first_digit,log_prob_nats\n\
            150,128,1,1,train,20,0.75,1.0,-1\n150,128,2,2,heldout,20,0.5,1.0,-1\n";
        std::fs::write(dir.join(EVAL_FILE), evals).unwrap();
    }

    #[test]
    fn a_log_line_is_joined_with_layer_lines_and_evaluations() {
        let out = tempfile::tempdir().unwrap();
        run(out.path(), "diff/seed-2");
        let curves = TrainingCurves::read(&spec(), out.path()).unwrap();
        let lines: Vec<&CurveRow> = curves.lines().collect();
        assert_eq!((lines.len(), lines[0].variant.as_str(), lines[0].seed), (2, "diff", 2));
        assert_eq!((lines[0].digit1_hit, lines[0].lambda, lines[0].context_rms), (0.33333, Some(0.5), None));
        let last = lines[1];
        assert_eq!((last.context_rms, last.context_rms_least, last.lambda), (Some(0.5), Some(0.25), Some(0.375)));
        assert_eq!((last.grad_norm_qk, last.grad_norm_vo), (Some(5.0), None));
        assert_eq!((last.one_needle, last.two_needles), (Some(0.75), None));
    }

    #[test]
    fn runs_without_a_folder_are_read_from_the_table_and_folders_have_precedence() {
        let (out, path) = (tempfile::tempdir().unwrap(), super::super::COURSE_FILE);
        run(out.path(), "diff/seed-1");
        run(out.path(), "diff-v2/seed-3");
        let whole = TrainingCurves::read(&spec(), out.path()).unwrap();
        crate::base::files::replace_csv(&out.path().join(path), whole.lines()).unwrap();
        assert_eq!(TrainingCurves::read(&spec(), out.path()).unwrap(), whole, "folders and file say the same");
        std::fs::remove_dir_all(out.path().join("diff")).unwrap();
        assert_eq!(TrainingCurves::read(&spec(), out.path()).unwrap(), whole);
        let other = TrainSpec { seeds: Some(vec![1]), ..spec() };
        let error = TrainingCurves::read(&other, out.path()).unwrap_err().to_string();
        assert!(error.contains("no run of diff-v2 with seed 3"), "{error}");
    }
}

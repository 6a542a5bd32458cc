//! The course of training: the records of all runs of a spec, from the logs of each. The model of a record is a variant, its
//! replicate the seed of a run.
//!
//! `course.csv` holds all of them, a line for every line of every run's log. It is small enough to be kept beside a spec when
//! the models are not.

use super::layers::LayerLine;
use super::log::{self, EvalLine, HeldOutLine, LogLine};
use super::metrics::{
    ALL, CONTEXT_RMS, CONTEXT_RMS_LEAST, FIRST_DIGITS, FIRST_DIGIT_NLL, GRAD_NORM, GRAD_NORM_QK, GRAD_NORM_VO,
    HELDOUT_NLL, LAMBDA, MOST_NEEDLES, ONE_NEEDLE, TEXT_NLL, TWO_NEEDLES,
};
use super::spec::TrainSpec;
use super::study::Study;
use super::{COURSE_FILE, EVAL_FILE, HELD_OUT_FILE, LAYER_FILE, LOG_FILE};
use crate::results::record::{Identity, Measurement, Record};
use crate::results::{Query, Records};
use anyhow::{bail, ensure, Context, Result};
use base::files;
use names::metric::Metric;
use names::{Column, Number};
use stats::mean;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The columns before those of the metrics.
const KEYS: [&str; 4] = ["variant", "seed", "tokens", "ctx_tok"];

/// Metrics of the first courses, which lack those that came later.
const FIRST_METRICS: usize = 11;

/// Significant digits of the numbers of logs in records, enough for their variation over seeds.
const DIGITS: usize = 5;

/// Variant and seed of a run.
type RunKey = (String, u64);

impl Study {
    /// Reads the runs of `spec` in `out`: each from the logs in its folder, or from `course.csv` without a folder. Runs that
    /// have not begun are left out.
    ///
    /// # Errors
    /// If a file cannot be read, or `course.csv` has a run that the spec does not have.
    pub(crate) fn read(spec: &TrainSpec, out: &Path) -> Result<Self> {
        let path = out.join(COURSE_FILE);
        let mut kept = if path.exists() { read_course(&path)? } else { BTreeMap::new() };
        let mut records = Records::default();
        for run in spec.runs() {
            let variant = &spec.variants[run.variant].name;
            let in_table = kept.remove(&(variant.clone(), run.seed)).unwrap_or_default();
            let most = spec.watch.needles.iter().max().copied();
            let in_folder = read_folder(variant, run.seed, &out.join(&run.name), most)?;
            // A run that was stopped at its beginning has a folder without lines.
            let of_run = if in_folder.is_empty() { in_table } else { in_folder };
            of_run.iter().for_each(|record| records.add(record));
        }
        if let Some((variant, seed)) = kept.keys().next() {
            bail!("{}: the spec has no run of {variant} with seed {seed}", path.display());
        }
        Ok(Self { spec: spec.clone(), records })
    }

    /// Writes `course.csv`, all that is known of the runs.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn write_course(&self, path: &Path) -> Result<()> {
        let columns = [Column::Model, Column::Replicate, Column::Tokens, Column::CtxTok];
        let numbers: Vec<Number<'_>> = ALL.iter().map(Metric::overall).collect();
        let lines = self.records.query(&Query { rows: &columns, numbers: &numbers, ..Query::default() });
        files::replace(path, |partial| {
            let mut csv = csv::WriterBuilder::new().has_headers(false).from_path(partial)?;
            csv.write_record(header())?;
            for line in lines {
                let keys: Vec<String> = line.keys.iter().flatten().map(ToString::to_string).collect();
                let numbers: Vec<Option<f64>> = line.numbers.iter().map(|mean| Some(mean.as_ref()?.value)).collect();
                csv.serialize((keys, numbers))?;
            }
            Ok(csv.flush()?)
        })
    }
}

fn header() -> Vec<&'static str> {
    KEYS.into_iter().chain(ALL.iter().map(|metric| metric.name)).collect()
}

/// The identity of the records of a line of a run's log: the variant, the seed, the tokens trained on, and the context length of the
/// stage.
pub(super) fn identity(variant: &str, seed: u64, tokens: usize, ctx_tok: usize) -> Arc<Identity> {
    Arc::new(Identity {
        model: variant.to_owned(),
        replicate: Some(seed),
        tokens: Some(tokens),
        ctx_tok,
        ..Identity::default()
    })
}

pub(super) fn record(identity: &Arc<Identity>, metric: &Metric, value: f64) -> Record {
    let unit = metric.unit.map(Into::into);
    let measure = Measurement { metric: metric.name.into(), value: Some(value), unit, ..Measurement::default() };
    Record { identity: identity.clone(), measure }
}

/// Reads the records of each run in `course.csv`.
fn read_course(path: &Path) -> Result<BTreeMap<RunKey, Vec<Record>>> {
    let cannot_read = || format!("cannot read {}", path.display());
    let mut csv = csv::Reader::from_reader(files::open(path)?);
    let names = csv.headers().with_context(cannot_read)?;
    let is_course = names.len() >= KEYS.len() + FIRST_METRICS && header().starts_with(&Vec::from_iter(names));
    ensure!(is_course, "{}: its columns are not those of a course, {}", path.display(), header().join(", "));
    let mut runs: BTreeMap<RunKey, Vec<Record>> = BTreeMap::new();
    for line in csv.records() {
        let mut line = line.with_context(cannot_read)?;
        (line.len()..header().len()).for_each(|_| line.push_field(""));
        let line = line.deserialize(None).with_context(cannot_read)?;
        let (variant, seed, tokens, ctx_tok, numbers): (String, u64, usize, usize, [Option<f64>; ALL.len()]) = line;
        let identity = identity(&variant, seed, tokens, ctx_tok);
        let records = ALL.iter().zip(numbers).filter_map(|(metric, number)| Some(record(&identity, metric, number?)));
        runs.entry((variant, seed)).or_default().extend(records);
    }
    Ok(runs)
}

/// Reads the records of a run from its logs; none without a log. `most` is the largest number of needles in
/// `watch.needles`.
fn read_folder(variant: &str, seed: u64, dir: &Path, most: Option<usize>) -> Result<Vec<Record>> {
    let lines: Vec<LogLine> = log::read(&dir.join(LOG_FILE))?;
    let evals: Vec<EvalLine> = log::read(&dir.join(EVAL_FILE))?;
    let layers: Vec<LayerLine> = log::read(&dir.join(LAYER_FILE))?;
    let held_out: Vec<HeldOutLine> = log::read(&dir.join(HELD_OUT_FILE))?;
    let mut by_time: BTreeMap<usize, Vec<&LayerLine>> = BTreeMap::new();
    layers.iter().for_each(|line| by_time.entry(line.tokens).or_default().push(line));
    let mut records = Vec::new();
    let mut before = None;
    for line in lines {
        let layers = by_time.get(&line.tokens).map_or(&[][..], Vec::as_slice);
        let of_layers = |metric: &Metric| -> Vec<f64> {
            layers.iter().filter(|line| line.quantity == metric.name).map(|line| line.value).collect()
        };
        // An evaluation belongs to the first log line at its time or after.
        let accuracy = |needles: usize| {
            let mut evals = evals.iter().filter(|eval| eval.cities == "train" && eval.needles == needles);
            let eval = evals.rfind(|eval| eval.tokens <= line.tokens && Some(eval.tokens) > before)?;
            Some(eval.accuracy)
        };
        let mut losses = held_out.iter().filter(|line| Some(line.tokens) > before);
        let held_out = losses.rfind(|loss| loss.tokens <= line.tokens).map(|loss| loss.heldout_nats);
        let numbers = [
            (&TEXT_NLL, Some(line.text_nats)),
            (&FIRST_DIGIT_NLL, line.digit1_nats),
            (&FIRST_DIGITS, line.digit1_hit),
            (&GRAD_NORM, Some(line.grad_norm)),
            (&GRAD_NORM_QK, gradient_norm(layers, ["q_proj", "k_proj"])),
            (&GRAD_NORM_VO, gradient_norm(layers, ["v_proj", "o_proj"])),
            (&CONTEXT_RMS, mean(&of_layers(&CONTEXT_RMS))),
            (&CONTEXT_RMS_LEAST, of_layers(&CONTEXT_RMS).into_iter().min_by(f64::total_cmp)),
            // Over layers and heads, and over tokens if it depends on them.
            (&LAMBDA, mean(&of_layers(&LAMBDA)).or(line.lambda)),
            (&ONE_NEEDLE, accuracy(1)),
            (&TWO_NEEDLES, accuracy(2)),
            (&MOST_NEEDLES, most.and_then(accuracy)),
            (&HELDOUT_NLL, held_out),
        ];
        let identity = identity(variant, seed, line.tokens, line.ctx_tok);
        let numbers = numbers.into_iter().filter_map(|(metric, number)| Some((metric, rounded(number?))));
        records.extend(numbers.map(|(metric, number)| record(&identity, metric, number)));
        before = Some(line.tokens);
    }
    Ok(records)
}

fn rounded(x: f64) -> f64 {
    format!("{x:.*e}", DIGITS - 1).parse().unwrap_or(x)
}

/// The gradient norm of these projections of attention together, in all layers.
fn gradient_norm(layers: &[&LayerLine], projections: [&str; 2]) -> Option<f64> {
    let tensors = projections.map(|name| format!("self_attn.{name}.weight"));
    let mut squares = Vec::new();
    for line in layers.iter().filter(|line| line.quantity == GRAD_NORM.name && line.head.is_none()) {
        if line.tensor.as_ref().is_some_and(|tensor| tensors.contains(tensor)) {
            squares.push(line.value.powi(2));
        }
    }
    (!squares.is_empty()).then(|| squares.iter().sum::<f64>().sqrt())
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
        let log = |tokens| LogLine {
            tokens,
            ctx_tok: 128,
            digit1_hit: Some(1.0 / 3.0),
            lambda: Some(0.5),
            ..LogLine::default()
        };
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

    /// The numbers of metrics, in the order of the lines that have them.
    fn numbers<const N: usize>(records: &Records, metrics: [&Metric; N]) -> [Vec<f64>; N] {
        metrics.map(|metric| {
            let of_metric = records.select(|quantity| quantity.metric == metric.name, |_| true);
            of_metric.iter().map(|record| record.value).collect()
        })
    }

    #[test]
    fn a_log_line_is_joined_with_layer_lines_and_evaluations() {
        let out = tempfile::tempdir().unwrap();
        run(out.path(), "diff/seed-2");
        let records = Study::read(&spec(), out.path()).unwrap().records;
        let lines: Vec<_> = records.identities().map(|id| (id.model.as_str(), id.replicate, id.tokens)).collect();
        assert_eq!(lines, [("diff", Some(2), Some(100)), ("diff", Some(2), Some(200))]);
        assert_eq!(numbers(&records, [&FIRST_DIGITS, &LAMBDA]), [[0.33333, 0.33333], [0.5, 0.375]]);
        assert_eq!(numbers(&records, [&CONTEXT_RMS, &CONTEXT_RMS_LEAST, &GRAD_NORM_QK]), [[0.5], [0.25], [5.0]]);
        assert_eq!(numbers(&records, [&ONE_NEEDLE, &TWO_NEEDLES, &GRAD_NORM_VO]), [vec![0.75], vec![], vec![]]);
    }

    #[test]
    fn runs_without_a_folder_are_read_from_the_table_and_folders_have_precedence() {
        let out = tempfile::tempdir().unwrap();
        let path = out.path().join(COURSE_FILE);
        run(out.path(), "diff/seed-1");
        run(out.path(), "diff-v2/seed-3");
        let written = |spec: &TrainSpec| {
            Study::read(spec, out.path()).unwrap().write_course(&path).unwrap();
            std::fs::read_to_string(&path).unwrap()
        };
        let whole = written(&spec());
        let line = "diff,1,200,128,0.0,,0.33333,0.0,5.0,,0.5,0.25,0.375,0.75,,,\n";
        assert!(whole.starts_with("variant,seed,tokens,ctx_tok,text_nats,") && whole.contains(line), "{whole}");
        assert_eq!(written(&spec()), whole, "folders and file say the same");
        std::fs::remove_dir_all(out.path().join("diff")).unwrap();
        assert_eq!(written(&spec()), whole);
        let other = TrainSpec { seeds: Some(vec![1]), ..spec() };
        let error = Study::read(&other, out.path()).unwrap_err().to_string();
        assert!(error.contains("no run of diff-v2 with seed 3"), "{error}");
        let earlier: Vec<&str> = whole.lines().map(|line| line.rsplitn(3, ',').last().unwrap()).collect();
        std::fs::write(&path, earlier.join("\n")).unwrap();
        assert_eq!(written(&spec()), whole, "a course from before the last metrics is one");
        std::fs::write(&path, whole.replace("text_nats", "text")).unwrap();
        let error = Study::read(&spec(), out.path()).unwrap_err().to_string();
        assert!(error.contains("not those of a course, variant, seed,"), "{error}");
    }
}

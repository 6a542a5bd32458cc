//! Passes that share the keys and values of a prefix, against whole passes: the same bits.

use crate::generate::cases;
use crate::treatments::{treatments, value_width};
use difftool::commands::Experiment;
use difftool::measures::MeasureName;
use difftool::results::record::Record;
use difftool::run::{measure_prompts, pooled_records, prompts_of, FinishedPrompt, Plan, Setups};
use engine::attention::{AttentionRow, ResidualProbe, ResolvedTreatment, RowCollector, RowProbe, Stream, Trace};
use engine::model::generate::{generate, StopConditions};
use engine::model::open::{self, LoadOptions};
use engine::model::pass::{continued_passes, first_observed_row, first_row, pass, PassResult, SharedStart};
use engine::model::Transformer;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use text::{PlannedPrompt, Prompt, Tokenizer};

/// Keeps some of the rows from `0` on: query, logits, maps and weighted values.
struct KeepFrom(usize);

/// Query of a row; its maps, logits and weights; its weighted values, these along a direction, and the sum of their norms.
type KeptRow = (usize, Vec<Vec<f32>>, Vec<f64>, Vec<f32>, f64);

#[derive(Default, PartialEq, Debug)]
struct KeptRows(Vec<KeptRow>);

impl RowProbe for KeepFrom {
    fn wants(&self, _: usize, _: usize, query: usize) -> bool {
        query >= self.0 && (query < self.0 + 2 || query % 61 < 2)
    }

    fn wants_logits(&self) -> bool {
        true
    }

    fn start(&self, _: usize, _: usize) -> Box<dyn RowCollector> {
        Box::<KeptRows>::default()
    }
}

impl RowCollector for KeptRows {
    fn observe(&mut self, row: &AttentionRow<'_>) {
        let first = row.first_visible;
        let mut numbers: Vec<Vec<f32>> = row.maps.iter().map(|map| map.to_vec()).collect();
        numbers.extend(row.logits.iter().map(|logits| logits[first..].to_vec()));
        numbers.extend([row.effective.to_vec(), row.sinks.to_vec(), row.mix.to_vec()]);
        let (mut sum, mut along) = (vec![0.0; row.values.width()], Vec::new());
        row.values.weigh(first, &row.effective[first..], &mut sum);
        let direction: Vec<f64> = (0..row.values.width()).map(|i| i as f64 - 3.0).collect();
        row.values.along(first, &row.effective[first..], &direction, &mut along);
        let norms = (0..=row.query).map(|key| row.values.norm(key)).sum();
        self.0.push((row.query, numbers, sum, along, norms));
    }

    fn merge(&mut self, later: Box<dyn RowCollector>) {
        self.0.extend(later.into_collector::<Self>().0);
    }
}

/// A text without questions.
fn text(ids: &[u32]) -> Prompt {
    Prompt {
        text: String::new(),
        ids: ids.to_vec(),
        offsets: vec![(0, 0); ids.len()],
        queries: Vec::new(),
        needles: Vec::new(),
        segments: Vec::new(),
        haystack: 0..ids.len(),
        has_bos: false,
        window: Default::default(),
    }
}

/// The rows that probes kept.
fn rows_of(result: PassResult) -> Vec<KeptRows> {
    result.probe_results.into_iter().map(|result| *result.collector.into_collector::<KeptRows>()).collect()
}

/// Checks that passes that start at `start` give what whole passes give, under each of `treated`, as one batch.
fn check(name: &str, model: &Transformer, ids: &[u32], treated: &[Option<ResolvedTreatment>], start: usize) {
    let prompt = text(ids);
    let kept = pass(model, &prompt, Stream::new(&[]).keeping(), false).unwrap().prefix.unwrap();
    let probe = KeepFrom(start);
    let probes: [&dyn RowProbe; 1] = [&probe];
    let traced = vec![start, ids.len() - 1];
    let streams =
        || treated.iter().map(|treated| Stream::new(&probes).treated(treated.as_ref()).tracing(traced.clone()));
    let continued = continued_passes(model, &prompt, streams().collect(), SharedStart::at(&kept, start)).unwrap();
    for (i, (stream, continued)) in streams().zip(continued).enumerate() {
        let whole = pass(model, &prompt, stream, false).unwrap();
        let (a, b) = (whole.trace.as_ref().unwrap(), continued.trace.as_ref().unwrap());
        assert!(traces_agree(a, b, model, &traced), "{name}, from {start}, {i}: trace");
        assert!(rows_of(whole) == rows_of(continued), "{name}, from {start}, {i}: rows");
    }
}

fn traces_agree(a: &Trace, b: &Trace, model: &Transformer, rows: &[usize]) -> bool {
    rows.iter().all(|&row| {
        (0..model.config.layers.len()).all(|layer| {
            a.mixture_of(layer, row) == b.mixture_of(layer, row)
                && a.gate_of(layer, row) == b.gate_of(layer, row)
                && a.attention_output_of(layer, row) == b.attention_output_of(layer, row)
        })
    })
}

/// Treatments that leave some rows as they are, and none.
fn partial(model: &Transformer, tokens: usize) -> Vec<(String, Option<ResolvedTreatment>)> {
    let all =
        treatments(tokens, value_width(model)).into_iter().map(|(name, treated)| (name.to_owned(), Some(treated)));
    let partial = all.filter(|(_, treated)| treated.as_ref().is_some_and(|treated| treated.first_row() > 0));
    partial.chain([("untreated".to_owned(), None)]).collect()
}

#[test]
fn a_pass_that_starts_later_has_the_bits_of_a_whole_one_in_every_family_and_variant() {
    for (name, model, texts) in cases() {
        let ids = &texts[0];
        let partial = partial(&model, ids.len());
        assert!(partial.len() > 3, "{name}");
        for (what, treated) in &partial {
            let start = first_row(ids.len() - 1, ids.len(), treated.as_ref());
            let starts: BTreeSet<usize> = [1, start / 2, start].into();
            for start in starts.into_iter().filter(|&start| start > 0) {
                check(&format!("{name}, {what}"), &model, ids, std::slice::from_ref(treated), start);
            }
        }
        // All of them as one batch, from the first row that differs in any.
        let all: Vec<_> = partial.into_iter().map(|(_, treated)| treated).collect();
        let start = all.iter().map(|treated| first_row(ids.len() - 1, ids.len(), treated.as_ref())).min().unwrap();
        check(&format!("{name}, together"), &model, ids, &all, start);
    }
}

/// Leaves rows before `start` as they are.
fn begin_at(treated: &mut ResolvedTreatment, start: usize) {
    let removed = treated.removed.iter_mut().map(|removed| &mut removed.rows);
    let replaced = treated.replaced.iter_mut().flat_map(|replaced| &mut replaced.rows);
    for rows in removed.chain(replaced) {
        *rows = rows.start.max(start)..rows.end.max(start);
    }
}

#[test]
fn starts_around_the_borders_of_blocks_and_any_number_of_threads_give_the_same_bits() {
    for name in ["transformer", "diff"] {
        let model = open::load(name, LoadOptions::default()).unwrap().transformer;
        let ids: Vec<u32> = (0..590).map(|i| 3 + i * 131 % 1021).collect();
        for (threads, starts) in [(1, vec![511]), (3, vec![31, 512, 589])] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                for start in starts {
                    let mut treated: Vec<_> =
                        partial(&model, ids.len()).into_iter().map(|(_, treated)| treated).collect();
                    treated.iter_mut().flatten().for_each(|treated| begin_at(treated, start));
                    check(name, &model, &ids, &treated, start);
                }
            });
        }
    }
}

/// Keeps the residual stream of all sites.
struct KeepResidual(Vec<Vec<f32>>);

impl ResidualProbe for KeepResidual {
    fn observe(&mut self, _: usize, values: &[f32], _: usize) {
        self.0.push(values.to_vec());
    }
}

#[test]
fn a_treatment_changes_no_row_and_no_layer_before_its_first_and_changes_something() {
    for (name, model, texts) in cases() {
        let ids = &texts[0];
        let stream = |treated: Option<&ResolvedTreatment>| {
            let mut residual = KeepResidual(Vec::new());
            let stream = Stream::new(&[]).treated(treated).with_residual(&mut residual);
            pass(&model, &text(ids), stream, false).unwrap();
            residual.0
        };
        let untreated = stream(None);
        for (what, treated) in treatments(ids.len(), value_width(&model)) {
            let (first, sites) = (treated.first_row(), stream(Some(&treated)));
            for (before, after) in untreated.iter().zip(&sites) {
                let shared = first * before.len() / ids.len();
                assert_eq!(before[..shared], after[..shared], "{name}, {what}: rows before {first}");
            }
            let layer = treated.first_layer();
            assert_eq!(untreated[..=layer], sites[..=layer], "{name}, {what}: layers before {layer}");
            assert_ne!(untreated, sites, "{name}, {what}");
        }
    }
}

#[test]
fn what_observes_all_rows_shares_none() {
    let model = open::load("transformer", LoadOptions::default()).unwrap().transformer;
    let prompt = text(&(0..100).map(|i| 3 + i * 7 % 500).collect::<Vec<u32>>());
    let first = |stream: &Stream<'_>, all_tokens| first_observed_row(&model, &prompt, stream, all_tokens);
    assert_eq!(first(&Stream::new(&[]), false), 99, "only whether numbers are finite");
    assert_eq!(first(&Stream::new(&[]), true), 0, "predictions");
    assert_eq!(first(&Stream::new(&[&KeepFrom(40), &KeepFrom(60)]), false), 40);
    assert_eq!(first(&Stream::new(&[&KeepFrom(0)]), false), 0);
    assert_eq!(first(&Stream::new(&[&KeepFrom(40)]).tracing(vec![30]), false), 30);
    let mut residual = KeepResidual(Vec::new());
    assert_eq!(first(&Stream::new(&[]).with_residual(&mut residual), false), 0);
    assert_eq!(first_row(40, 30, None), 30, "a token differs");
}

#[test]
fn another_text_is_refused() {
    let model = open::load("transformer", LoadOptions::default()).unwrap().transformer;
    let ids: Vec<u32> = (0..100).map(|i| 3 + i * 7 % 500).collect();
    let kept = pass(&model, &text(&ids), Stream::new(&[]).keeping(), false).unwrap().prefix.unwrap();
    let mut other = ids.clone();
    other[50] += 1;
    assert_eq!(kept.common_tokens(&other), 50);
    let continued =
        |start| continued_passes(&model, &text(&other), vec![Stream::new(&[])], SharedStart::at(&kept, start));
    assert!(continued(51).is_err());
    let probe = KeepFrom(50);
    let probes: [&dyn RowProbe; 1] = [&probe];
    let whole = pass(&model, &text(&other), Stream::new(&probes), false).unwrap();
    let streams = vec![Stream::new(&probes)];
    let shared = continued_passes(&model, &text(&other), streams, SharedStart::at(&kept, 50)).unwrap().remove(0);
    assert!(rows_of(whole) == rows_of(shared), "a text that begins alike");
}

#[test]
fn generated_text_is_the_same_with_a_prefix() {
    let until = StopConditions { max_new: 6, eos: &[], numbers: 9, digits: 5, one_line: false };
    for (name, model, texts) in cases() {
        let ids = &texts[0];
        let kept = pass(&model, &text(ids), Stream::new(&[]).keeping(), false).unwrap().prefix.unwrap();
        let prompt = &ids[..ids.len() - 2];
        for (what, treated) in partial(&model, ids.len()) {
            let text =
                |prefix| generate(&model, Tokenizer::embedded(), prompt, &until, treated.as_ref(), prefix).unwrap();
            assert_eq!(text(Some(&kept)), text(None), "{name}, {what}");
        }
    }
}

/// The records of an experiment, with or without shared prefixes.
pub(crate) fn records(text: &str, whole_passes: bool) -> Vec<Record> {
    changed_records(text, whole_passes, |_| {})
}

/// The records of an experiment whose plan is changed.
fn changed_records(text: &str, whole_passes: bool, change: impl Fn(&mut Plan)) -> Vec<Record> {
    let (mut plans, models) = Experiment::parse(text, "test").unwrap().plans().unwrap();
    change(&mut plans[0]);
    let mut setup = Setups::load(plans, models.into_opened().unwrap()).unwrap().each.remove(0);
    setup.whole_passes = whole_passes;
    let prompts = prompts_of(setup.grid.prompts(), None);
    let mut measures = setup.measures().unwrap();
    difftool::run::check(&setup, &prompts).unwrap();
    let mut records = Vec::new();
    let mut keep = |_: &PlannedPrompt, found: FinishedPrompt<'_>| {
        records.extend_from_slice(found.records);
        Ok(())
    };
    measure_prompts(&setup, &prompts, &mut measures.list(), &AtomicBool::new(false), &mut keep).unwrap();
    records.extend(pooled_records(&setup, &mut measures.list()));
    assert_eq!(records.iter().find_map(|record| record.measure.error.as_deref()), None);
    records
}

#[test]
fn experiments_have_the_same_records_with_and_without_shared_prefixes() {
    let conditions = "condition = [\"mask(noise)\", \"silence(noise, rows=question)\", \"mask(noise, rows=all)\", \
        \"ablate(best:2:share_out)\", \"ablate(random:2:share_out:0)\", \"keep(0.1, rows=question, zero)\", \
        \"quantise(4, tensor)\", \"quantise(6, row, exempt-sinks); mask(noise)\", \"mask(random:20)\"]";
    let pooled = [MeasureName::Answer, MeasureName::Fidelity, MeasureName::Outliers, MeasureName::Shape];
    let generating = [MeasureName::AnswerByHead, MeasureName::Roles, MeasureName::Generation];
    for (command, measures) in [
        ("ablate\"\nparts = []#", &[][..]),
        // Treated passes are only scored, and start at the first layer that they change.
        ("ablate\"\nparts = [\"each-head\", \"each-layer\", \"patch\", \"patch-each-head\"]#", &[]),
        ("ratio\"", &[]),
        ("heads\"", &[]),
        ("needle\"", &pooled),
        ("needle\"", &generating),
    ] {
        let command = command.trim_end_matches('#');
        let text = format!("command = \"{command}\n[run]\nmodel = [\"diff\"]\n{conditions}\n{PROMPTS}samples = 1");
        let change = |plan: &mut Plan| {
            if !measures.is_empty() {
                plan.measures = measures.to_vec();
                plan.passes.max_new = Some(5);
            }
        };
        let (shared, whole) = (changed_records(&text, false, change), changed_records(&text, true, change));
        assert!(shared.len() > 20, "{command}");
        assert_eq!(shared.len(), whole.len(), "{command}");
        for (shared, whole) in shared.iter().zip(&whole) {
            assert_eq!(format!("{shared:?}"), format!("{whole:?}"), "{command}");
        }
    }
}

const PROMPTS: &str = "[prompts]\nctx = [\"256\"]\nneedles = [3]\nretrieve = [2]\ndepths = [50.0]\n";

#[test]
fn a_question_without_an_answer_shares_the_text_of_its_twin() {
    let needle = "command = \"needle\"\nunanswerable = true\nmax-new = 5\n[run]\nmodel = [\"diff\"]";
    for (conditions, only_score_treated) in [
        ("", false),
        ("condition = [\"mask(noise)\", \"mask(noise, rows=all)\"]", false),
        ("condition = [\"mask(noise)\"]", true),
    ] {
        let text = format!("{needle}\n{conditions}\n{PROMPTS}samples = 3");
        let change = |plan: &mut Plan| {
            plan.measures = vec![MeasureName::AnswerByHead, MeasureName::Generation];
            plan.passes.only_score_treated = only_score_treated;
        };
        let (shared, whole) = (changed_records(&text, false, change), changed_records(&text, true, change));
        let absent = |record: &&Record| record.identity.cities.as_deref() == Some("absent");
        assert!(shared.iter().filter(absent).count() > 6, "{conditions}");
        assert_eq!(format!("{shared:?}"), format!("{whole:?}"), "{conditions}");
    }
}

#[test]
fn each_head_is_taken_out_and_only_scored() {
    let heads = (0..8).map(|i| format!("\"ablate({}.{})\"", i / 2, i % 2)).collect::<Vec<_>>().join(", ");
    let text = format!(
        "command = \"ablate\"\nparts = []\n[run]\nmodel = [\"diff\"]\ncondition = [{heads}, \"ablate(best:1:attribution)\"]\n\
         [prompts]\nctx = [\"256\"]\ndepths = [50.0]\nsamples = 1"
    );
    let change = |plan: &mut Plan| {
        plan.measures = vec![MeasureName::AnswerByHead, MeasureName::Roles];
        plan.passes.only_score_treated = true;
    };
    let (shared, whole) = (changed_records(&text, false, change), changed_records(&text, true, change));
    assert_eq!(format!("{shared:?}"), format!("{whole:?}"));
    let treated: Vec<&Record> = shared.iter().filter(|record| record.identity.condition.is_some()).collect();
    let metrics: BTreeSet<&str> = treated.iter().map(|record| &*record.measure.metric).collect();
    assert_eq!(metrics, BTreeSet::from(["accuracy", "answer_log_prob"]));
    assert!(shared.iter().any(|record| record.measure.head.is_some()), "of the untreated pass");
}

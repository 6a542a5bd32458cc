//! The run as a call of the library: a measure of the test's own, stopped and continued without a process in between.

use crate::common::{tiny_model, Scratch};
use difftool::commands::Experiment;
use difftool::measures::{Measure, MeasureData, MeasureOutput, Measures, ObservedPass, PassKey};
use difftool::results::folder::RunFolder;
use difftool::results::record::{self, Record};
use difftool::run::{OutputStyle, Run, RunPart, RunStart, Series, Setup};
use engine::attention::RowProbe;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use text::Prompt;

/// Counts the tokens of prompts, and pools a number that depends on their order.
#[derive(Default)]
struct Ledger {
    /// It fails on this sample.
    fails_on: Option<u64>,
    pooled: BTreeMap<PassKey, u32>,
}

fn found(metric: &'static str, value: f64) -> record::Measurement {
    record::Measurement { metric: metric.into(), value: Some(value), ..record::Measurement::default() }
}

impl Measure for Ledger {
    fn row_probes(&self, _model: usize, _prompt: &Prompt) -> Vec<Box<dyn RowProbe>> {
        Vec::new()
    }

    fn conclude(&self, pass: ObservedPass<'_>, output: &mut MeasureOutput) -> anyhow::Result<()> {
        anyhow::ensure!(self.fails_on != Some(pass.sample), "sample {} is not liked", pass.sample);
        output.push(None, "all", found("tokens", pass.prompt.ids.len() as f64));
        let kept: MeasureData =
            Box::new(pass.prompt.ids.iter().fold(0u32, |sum, id| sum.wrapping_mul(31).wrapping_add(*id)));
        output.pooled = Some(kept);
        Ok(())
    }

    fn absorb(&mut self, key: PassKey, pooled: MeasureData) {
        let sum = self.pooled.entry(key).or_default();
        *sum = sum.wrapping_mul(31).wrapping_add(*pooled.downcast::<u32>().unwrap());
    }

    fn encode(&self, pooled: &MeasureData) -> anyhow::Result<Option<Vec<u8>>> {
        Ok(Some(pooled.downcast_ref::<u32>().unwrap().to_le_bytes().to_vec()))
    }

    fn decode(&self, bytes: &[u8]) -> anyhow::Result<MeasureData> {
        Ok(Box::new(u32::from_le_bytes(bytes.try_into()?)))
    }

    fn finish(&mut self) -> Vec<(PassKey, record::Measurement)> {
        self.pooled.iter().map(|(key, sum)| (*key, found("ledger", f64::from(*sum)))).collect()
    }
}

fn experiment(folder: &Path) -> Experiment {
    tiny_model(folder, "diff");
    let text = format!(
        "command = \"needle\"\n[run]\nmodel = [\"{}\"]\n[prompts]\nctx = [\"128\"]\nneedles = [1]\n\
         depths = [0.0, 100.0]\nsamples = 3\nseed = 5\n",
        folder.display()
    );
    Experiment::parse(&text, "test").unwrap()
}

/// Runs with these threads, and stops after this number of prompts.
fn measured(setup: &Setup, start: RunStart, threads: usize, ledger: Ledger, stop_after: Option<usize>) -> Run {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let mut measures = Measures::default();
    measures.push(ledger);
    let part = RunPart { start, shard: None };
    let stop = AtomicBool::new(false);
    let mut prompts = 0;
    pool.install(|| {
        let mut run = Run::prepare(
            vec![Series::of(setup.clone(), measures, 0, None).unwrap()],
            vec![],
            part,
            OutputStyle::default(),
        )
        .unwrap();
        run.measure(&stop, &mut || {
            prompts += 1;
            stop.store(stop_after.is_some_and(|after| prompts >= after), Ordering::Relaxed);
        })
        .unwrap();
        assert_eq!(run.resumed + prompts, run.finished());
        run
    })
}

/// The mean over prompts that tables of a run see, and the numbers that are pooled over them.
fn numbers(run: &Run) -> (Option<f64>, Vec<Record>) {
    let model = run.setup().models[0].name.as_str();
    let tokens = run.frame.mean(model, None, "tokens", None);
    (tokens, run.frame.pooled.clone())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn a_run_stopped_anywhere_and_continued_leaves_the_bytes_of_one_run(after in 1..6usize, threads in 1..4usize) {
        let home = Scratch::new();
        let setup = experiment(&home.path("model")).setups().unwrap().each.remove(0);
        let (whole, parts) = (home.path("whole"), home.path("parts"));
        let start = RunStart::New(Some(whole.clone()));
        let once = measured(&setup, start, 2, Ledger::default(), None);
        prop_assert!(once.is_complete());
        let start = RunStart::New(Some(parts.clone()));
        let stopped = measured(&setup, start, threads, Ledger::default(), Some(after));
        // Prompts in progress are finished.
        let finished = 6.min(after.next_multiple_of(threads));
        prop_assert_eq!(stopped.finished(), finished);
        drop(stopped);
        let start = RunStart::Resume(RunFolder::reopen(&parts).unwrap());
        let second = measured(&setup, start, 1, Ledger::default(), None);
        prop_assert!(second.is_complete());
        prop_assert_eq!((once.prompts(), once.resumed, second.prompts(), second.resumed), (6, 0, 6, finished));
        // A run that goes on has the records of the prompts before, too.
        prop_assert_eq!(numbers(&second), numbers(&once));
        prop_assert_eq!(second.frame.pooled.last().map(|last| &*last.measure.metric), Some("ledger"));
        for file in ["results.csv", "cells.csv", "experiment.toml"] {
            prop_assert_eq!(fs::read(whole.join(file)).unwrap(), fs::read(parts.join(file)).unwrap(), "{}", file);
        }
    }
}

#[test]
fn a_prompt_that_fails_is_a_record_and_the_others_go_on() {
    let home = Scratch::new();
    let setup = experiment(&home.path("model")).setups().unwrap().each.remove(0);
    let ledger = Ledger { fails_on: Some(1), ..Ledger::default() };
    let done = measured(&setup, RunStart::New(Some(home.path("run"))), 2, ledger, None);
    assert!(done.is_complete());
    let failures = &done.frame.records.failures;
    assert_eq!((failures.len(), failures[0].measure.error.as_deref()), (2, Some("sample 1 is not liked")));
    let written = record::read(&home.path("run/results.csv")).unwrap();
    assert_eq!(failures, &written.iter().filter(|record| record.measure.error.is_some()).cloned().collect::<Vec<_>>());
    let tokens = written.iter().filter(|record| record.measure.metric == "tokens");
    assert_eq!(tokens.map(|record| record.identity.sample.unwrap()).collect::<Vec<_>>(), [0, 0, 2, 2]);
}

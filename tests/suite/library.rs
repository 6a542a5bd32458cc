//! The run as a call of the library: a measure of the test's own, stopped and continued without a process in between.

use crate::common::tiny_model;
use difftool::attention::RowProbe;
use difftool::commands::Experiment;
use difftool::measures::{Measure, MeasureData, MeasureOutput, ObservedPass, PassKey};
use difftool::prompts::Prompt;
use difftool::results::folder::RunFolder;
use difftool::results::record::{self, Record};
use difftool::run::{run, RunObserver, RunOutcome, RunPart, RunPlan, RunStart, Setup};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

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

/// Notes what it is told, and stops the run after some prompts.
#[derive(Default)]
struct Notes {
    plan: Option<(usize, usize)>,
    records: Vec<Record>,
    prompts: usize,
    stop_after: Option<usize>,
    stop: AtomicBool,
}

struct Watching<'a>(&'a mut Notes, &'a AtomicBool);

impl RunObserver for Watching<'_> {
    fn run_begins(&mut self, plan: &RunPlan<'_>) {
        self.0.plan = Some((plan.prompts, plan.resumed));
    }

    fn record(&mut self, record: &Record) {
        self.0.records.push(record.clone());
    }

    fn prompt_finished(&mut self) {
        self.0.prompts += 1;
        self.1.store(self.0.stop_after.is_some_and(|after| self.0.prompts >= after), Ordering::Relaxed);
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

fn measured(setup: &Setup, start: RunStart, threads: usize, ledger: &mut Ledger, notes: &mut Notes) -> RunOutcome {
    let stop = std::mem::take(&mut notes.stop);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let part = RunPart { start, shard: None };
    pool.install(|| run(setup, part, &mut [ledger], &mut Watching(notes, &stop), &stop)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn a_run_stopped_anywhere_and_continued_leaves_the_bytes_of_one_run(after in 1..6usize, threads in 1..4usize) {
        let home = TempDir::new().unwrap();
        let setup = experiment(&home.path().join("model")).setup().unwrap();
        let (whole, parts) = (home.path().join("whole"), home.path().join("parts"));
        let mut once = Notes::default();
        let start = RunStart::New(Some(whole.clone()));
        prop_assert!(measured(&setup, start, 2, &mut Ledger::default(), &mut once).is_complete());
        let mut first = Notes { stop_after: Some(after), ..Notes::default() };
        let start = RunStart::New(Some(parts.clone()));
        let stopped = measured(&setup, start, threads, &mut Ledger::default(), &mut first);
        // Prompts in progress are finished.
        prop_assert_eq!(stopped.finished, 6.min(after.next_multiple_of(threads)));
        drop(stopped);
        let mut second = Notes::default();
        let start = RunStart::Resume(RunFolder::reopen(&parts).unwrap());
        prop_assert!(measured(&setup, start, 1, &mut Ledger::default(), &mut second).is_complete());
        prop_assert_eq!((once.plan, second.plan), (Some((6, 0)), Some((6, first.prompts))));
        // Who looks on a run that goes on sees the records of the prompts before, too.
        prop_assert_eq!(&second.records, &once.records);
        prop_assert_eq!(second.records.last().map(|last| &*last.measure.metric), Some("ledger"));
        for file in ["results.csv", "cells.csv", "experiment.toml"] {
            prop_assert_eq!(fs::read(whole.join(file)).unwrap(), fs::read(parts.join(file)).unwrap(), "{}", file);
        }
    }
}

#[test]
fn a_prompt_that_fails_is_a_record_and_the_others_go_on() {
    let home = TempDir::new().unwrap();
    let setup = experiment(&home.path().join("model")).setup().unwrap();
    let mut ledger = Ledger { fails_on: Some(1), ..Ledger::default() };
    let mut notes = Notes::default();
    let done = measured(&setup, RunStart::New(Some(home.path().join("run"))), 2, &mut ledger, &mut notes);
    assert!(done.is_complete());
    assert_eq!((done.failures, done.first_error.as_deref()), (2, Some("sample 1 is not liked")));
    let written = record::read(&home.path().join("run/results.csv")).unwrap();
    assert_eq!(written, notes.records);
    let tokens = written.iter().filter(|record| record.measure.metric == "tokens");
    assert_eq!(tokens.map(|record| record.identity.sample.unwrap()).collect::<Vec<_>>(), [0, 0, 2, 2]);
}

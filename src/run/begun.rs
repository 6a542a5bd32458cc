//! What a run was begun with: all that its records depend on besides their prompts, part by part. It is written beside them, so that an
//! error says what is another now, and shards can be merged on a machine that could not measure them.

use super::Setup;
use crate::machine::{Machine, Tool};
use crate::results::folder::BEGUN;
use crate::results::record::SCHEMA;
use crate::results::LeftOut;
use anyhow::{Context, Result};
use base::bail_usage;
use base::files;
use base::hash::sha256;
use names::{distinct, ModelInfo};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What a run was begun with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Begun {
    /// Schema of the records.
    schema: u32,
    /// The build of difftool.
    tool: Tool,
    models: Vec<BegunModel>,
    /// The texts of each series.
    texts: Vec<BegunTexts>,
    /// The series that the models and the flags do not allow.
    pub(super) left_out: Vec<LeftOut>,
    /// The machines that measured, of which no two are of one kind. Merged shards may have several.
    pub(super) machines: Vec<Machine>,
}

/// A model of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BegunModel {
    name: String,
    /// SHA-256 of each part.
    weights: String,
    config: String,
    tokenizer: String,
    /// SHA-256 of how its files are taken: heads, first token, chat template, tokens that end an answer.
    reading: String,
}

/// The texts of a series, as SHA-256 where there are any.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BegunTexts {
    haystack: String,
    text: Option<String>,
    needles: Option<String>,
}

impl Begun {
    /// What the series of a run begin with on this machine.
    pub(super) fn here<'a>(setups: impl Iterator<Item = &'a Setup> + Clone, left_out: &[LeftOut]) -> Self {
        Self {
            schema: SCHEMA,
            tool: Tool::default(),
            // All series have the same models.
            models: setups.clone().next().map(BegunModel::all).unwrap_or_default(),
            texts: setups.map(BegunTexts::of).collect(),
            left_out: left_out.to_vec(),
            machines: vec![Machine::here()],
        }
    }

    /// Reads that of a folder; `None` if the file was lost, and only the keys of prompts tell what they were measured with.
    ///
    /// # Errors
    /// If the file cannot be read, or is of another version.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(BEGUN);
        if !files::is_there(&path) {
            return Ok(None);
        }
        let text = files::input_text(&path, files::CONFIG_MAX).context("not a run that this difftool can continue")?;
        let begun = serde_json::from_str(&text)
            .with_context(|| format!("{} is not of this version of difftool; begin a new run", path.display()))?;
        Ok(Some(begun))
    }

    /// Writes it into the folder of a new run.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(BEGUN);
        let text = serde_json::to_string_pretty(self)? + "\n";
        files::create(&path, text.as_bytes()).with_context(|| format!("cannot create {}", path.display()))?;
        files::sync(&path)
    }

    /// Hash of what prompts share, for their keys. Machines are no part of it: those of merged shards may differ.
    pub(super) fn key(&self) -> String {
        let Self { schema, tool, models, texts, left_out, machines: _ } = self;
        let sources = &tool.source;
        sha256(serde_json::json!([schema, sources, models, texts, left_out]).to_string().as_bytes())
    }

    /// Checks that the run in a folder, which began with `self`, was measured with what `here` would measure it with.
    ///
    /// # Errors
    /// A usage error that says what is another.
    pub(super) fn check_same(&self, here: &Self, folder: &Path) -> Result<()> {
        let parts = self.other_parts(here);
        if parts.is_empty() {
            return Ok(());
        }
        bail_usage!("{} was measured with other {}; begin a new run", folder.display(), parts.join(", "))
    }

    /// What is another, in words that follow "other".
    fn other_parts(&self, here: &Self) -> Vec<String> {
        let mut parts = Vec::new();
        if (&self.schema, &self.tool.source) != (&here.schema, &here.tool.source) {
            parts.push(format!("code (difftool {}, this is {})", self.tool, here.tool));
        }
        if self.models.len() != here.models.len() {
            parts.push("models".to_owned());
        }
        for (there, here) in self.models.iter().zip(&here.models) {
            parts.extend(there.other_parts(here));
        }
        for (there, here) in self.texts.iter().zip(&here.texts) {
            parts.extend(there.other_parts(here));
        }
        if self.left_out != here.left_out {
            let names = self.left_out.iter().chain(&here.left_out).map(|series| series.series.clone());
            parts.push(format!("series left out ({})", distinct(names).join(", ")));
        } else if self.texts.len() != here.texts.len() {
            parts.push("series".to_owned());
        }
        distinct(parts.into_iter())
    }

    /// Checks that what is left of the run in a folder may be measured on this machine.
    ///
    /// # Errors
    /// A usage error if it began on another kind of processor.
    pub(super) fn check_machine(&self, folder: &Path) -> Result<()> {
        let here = Machine::here().kind();
        let there = self.kinds();
        if there.iter().all(|kind| *kind == here) {
            return Ok(());
        }
        bail_usage!(
            "{} was measured on another kind of processor ({}; this is {here}), whose sums differ in their last bits: continue it on \
             that kind, or begin a new run",
            folder.display(),
            there.join("; ")
        )
    }

    /// The kinds of processors that measured: `x86_64 avx2 fma`.
    pub(super) fn kinds(&self) -> Vec<String> {
        self.machines.iter().map(Machine::kind).collect()
    }

    /// Adds the machines of another shard, but for those of kinds that are there.
    pub(super) fn add_machines(&mut self, other: &Self) {
        for machine in &other.machines {
            if self.machines.iter().all(|there| there.kind() != machine.kind()) {
                self.machines.push(machine.clone());
            }
        }
    }
}

impl BegunModel {
    fn all(setup: &Setup) -> Vec<Self> {
        let mut models = Vec::new();
        for model in &setup.models {
            let ModelInfo { layout, bos, chat_template_sha256, answer_opening, .. } = &model.info;
            let reading = serde_json::json!([layout, bos, chat_template_sha256, answer_opening, model.eos_ids()]);
            models.push(Self {
                name: model.name.clone(),
                weights: model.info.weights_sha256.clone(),
                config: model.info.config_sha256.clone(),
                tokenizer: model.info.tokenizer_sha256.clone(),
                reading: sha256(reading.to_string().as_bytes()),
            });
        }
        models
    }

    fn other_parts(&self, here: &Self) -> Vec<String> {
        let mut parts = Vec::new();
        for (part, there, here) in [
            ("weights", &self.weights, &here.weights),
            ("configuration", &self.config, &here.config),
            ("tokenizer", &self.tokenizer, &here.tokenizer),
            ("reading", &self.reading, &here.reading),
        ] {
            if there != here {
                parts.push(format!("{part} of {}", self.name));
            }
        }
        parts
    }
}

impl BegunTexts {
    fn of(setup: &Setup) -> Self {
        let sources = &setup.sources;
        Self {
            haystack: sources.haystack.sha256(),
            text: sources.contexts_sha256.clone().or_else(|| sources.text.sha256()),
            needles: sources.needles.as_ref().map(|file| file.sha256.clone()),
        }
    }

    fn other_parts(&self, here: &Self) -> Vec<String> {
        let mut parts = Vec::new();
        for (part, is_other) in [
            ("haystack", self.haystack != here.haystack),
            ("text", self.text != here.text),
            ("needles", self.needles != here.needles),
        ] {
            if is_other {
                parts.push(part.to_owned());
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun() -> Begun {
        let model = |name: &str| BegunModel { name: name.to_owned(), weights: "w".to_owned(), ..BegunModel::default() };
        Begun {
            models: vec![model("a"), model("b")],
            texts: vec![BegunTexts { haystack: "h".to_owned(), ..BegunTexts::default() }],
            machines: vec![Machine::here()],
            ..Begun::default()
        }
    }

    /// What is said of a run that began otherwise than the one of `begun`.
    fn refused(change: impl FnOnce(&mut Begun)) -> String {
        let mut other = begun();
        change(&mut other);
        let folder = Path::new("run");
        let same = begun().check_same(&other, folder);
        other.check_machine(folder).and(same).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn what_is_another_is_said() {
        assert_eq!(refused(|_| {}), "");
        let other = |text: &mut String| text.push('2');
        for (said, words) in [
            (refused(|run| other(&mut run.models[1].weights)), "other weights of b;"),
            (refused(|run| other(&mut run.models[0].tokenizer)), "other tokenizer of a;"),
            (refused(|run| other(&mut run.models[0].config)), "other configuration of a;"),
            (refused(|run| other(&mut run.models[0].reading)), "other reading of a;"),
            (refused(|run| other(&mut run.texts[0].haystack)), "other haystack;"),
            (refused(|run| run.texts[0].text = Some("t".to_owned())), "other text;"),
            (refused(|run| run.texts[0].needles = Some("n".to_owned())), "other needles;"),
            (refused(|run| run.tool.source.push('2')), "other code (difftool "),
            (refused(|run| run.machines[0].features = vec!["none".to_owned()]), "another kind of processor"),
            (
                refused(|run| run.left_out.push(LeftOut { series: "maps".to_owned(), why: String::new() })),
                "other series left out (maps);",
            ),
        ] {
            assert!(said.contains(words), "{said}");
        }
    }

    #[test]
    fn keys_do_not_depend_on_machines_which_are_kept_by_kind() {
        let mut merged = begun();
        let mut other = begun();
        other.machines[0].features = vec!["none".to_owned()];
        assert_eq!(merged.key(), other.key());
        merged.add_machines(&begun());
        assert_eq!(merged.kinds().len(), 1);
        merged.add_machines(&other);
        assert_eq!(merged.kinds().len(), 2);
    }
}

//! Experiments: a measuring command with its flags, as typed or as an experiment file.
//!
//! The keys of an experiment file are the flags of its command, in the tables `[prompts]` and `[run]` or at its top.

use super::command::{Command, Measuring};
use super::commands;
use super::measuring::MeasuringFlags;
use super::models::OpenedModels;
use super::shared::RunFlags;
use crate::run::{Origin, Plan, Setups};
use anyhow::Result;
use base::bail_usage;
use base::error::Usage;
use base::{files, spec_file};
use engine::model::open;
use names::metric::Metric;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer as _};
use std::fmt;
use std::path::Path;
use toml::de::{DeTable, Error, ValueDeserializer};
use toml::Spanned;

/// A measuring command with its flags and its question: an experiment file.
#[derive(Debug)]
pub struct Experiment {
    /// The question, in words.
    pub question: String,
    /// How to read the answer, in words.
    pub analysis: String,
    pub(super) command: &'static Command,
    /// The command's own flags.
    pub(super) flags: Box<dyn MeasuringFlags>,
    /// The flags that all measuring commands share.
    pub run: RunFlags,
}

impl Experiment {
    /// The experiment of the flags, without words.
    pub(super) fn new(command: &'static Command, flags: Box<dyn MeasuringFlags>, run: RunFlags) -> Self {
        Self { question: String::new(), analysis: String::new(), command, flags, run }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read; usage errors with the line and the key if it is not an experiment.
    pub fn read(path: &Path) -> Result<Self> {
        Self::parse(&files::input_text(path, files::CONFIG_MAX)?, &path.display().to_string())
    }

    /// Reads an experiment; `name` is for messages.
    ///
    /// # Errors
    /// Usage errors with the line and the key.
    pub fn parse(text: &str, name: &str) -> Result<Self> {
        let read = DeTable::parse(text).and_then(Self::from_table);
        read.map_err(|error| spec_file::usage(name, text, error).into())
    }

    fn from_table(mut file: Spanned<DeTable<'_>>) -> Result<Self, Error> {
        let span = file.span();
        let table = file.get_mut();
        let (command, measuring) = match table.remove("command") {
            Some(command) => ValueDeserializer::from(command).deserialize_str(CommandByName)?,
            None => return Err(serde::de::Error::missing_field("command")),
        };
        let mut words = [String::new(), String::new()];
        for (words, key) in words.iter_mut().zip(["question", "analysis"]) {
            if let Some(given) = table.remove(key) {
                *words = String::deserialize(ValueDeserializer::from(given))?;
            }
        }
        let run = match table.remove("run") {
            Some(run) => RunFlags::deserialize(ValueDeserializer::from(run))?,
            None => RunFlags::default(),
        };
        let flags = Spanned::new(span, toml::de::DeValue::Table(std::mem::take(table)));
        let [question, analysis] = words;
        let flags = (measuring.read)(ValueDeserializer::from(flags))?;
        Ok(Self { question, analysis, command, flags, run })
    }

    /// The experiment as a file, which [`parse`](Self::parse) reads to the same value.
    ///
    /// # Errors
    /// A usage error if a number is larger than TOML has them.
    pub fn to_toml(&self) -> Result<String> {
        let mut table = toml::Table::new();
        table.insert("command".to_owned(), self.command.name.into());
        for (key, words) in [("question", &self.question), ("analysis", &self.analysis)] {
            if !words.is_empty() {
                table.insert(key.to_owned(), words.as_str().into());
            }
        }
        let cannot =
            |error| Usage(format!("a flag has a number above {}, the largest that is read: {error}", i64::MAX));
        table.extend(self.flags.to_toml().map_err(cannot)?);
        table.insert("run".to_owned(), toml::Value::try_from(&self.run).map_err(cannot)?);
        Ok(toml::to_string(&table)?)
    }

    /// Fills in what was not given, and makes the plans of the run. Returns the models, which are open.
    ///
    /// # Errors
    /// Usage errors for flags that do not go together; models that cannot be read.
    pub fn plans(&mut self) -> Result<(Vec<Plan>, OpenedModels)> {
        self.run.model = open::resolve(&self.flags.models(&self.run.model)?)?;
        let models = OpenedModels::of(self.run.model.clone(), &self.run.reading);
        self.flags.fill(&models)?;
        let mut plans = Vec::new();
        for plan in self.flags.plans(&self.run, &models)? {
            let plan = self.completed(plan)?;
            plan.check()?;
            self.check_fail_if(&plan, &models.names)?;
            plans.push(plan);
        }
        let measured = plans.iter().flat_map(|plan| &plan.measures).flat_map(|measure| measure.metrics());
        let measured: Vec<&Metric> = measured.collect();
        self.run.fail_if.iter().try_for_each(|fail_if| fail_if.check_of_run(&measured))?;
        Ok((plans, models))
    }

    /// Adds what all series of the run share.
    fn completed(&self, mut plan: Plan) -> Result<Plan> {
        let mut further = self.run.condition.clone();
        further.retain(|condition| !plan.passes.conditions.contains(condition));
        plan.passes.conditions.extend(further);
        plan.passes.select = self.run.layers_and_heads();
        plan.passes.reading = self.run.reading.clone();
        plan.origin = Origin {
            command: self.command.name,
            experiment: self.to_toml()?,
            question: self.question.clone(),
            analysis: self.analysis.clone(),
            own: self.flags.for_tables()?,
            fail_if: self.run.fail_if.iter().map(ToString::to_string).collect(),
        };
        Ok(plan)
    }

    /// Loads everything that the run needs.
    ///
    /// # Errors
    /// Those of [`Experiment::plans`] and [`Setups::load`].
    pub fn setups(&mut self) -> Result<Setups> {
        let (plans, models) = self.plans()?;
        Setups::load(plans, models.into_opened()?)
    }

    /// Checks that what is expected is about models and conditions of the run.
    fn check_fail_if(&self, plan: &Plan, models: &[String]) -> Result<()> {
        let conditions = plan.all_conditions()?;
        for fail_if in &self.run.fail_if {
            if let Some(model) = fail_if.model.as_ref().filter(|model| !models.contains(model)) {
                bail_usage!("--fail-if '{fail_if}': {model} is not among the models {}", models.join(", "));
            }
            if let Some(wanted) = &fail_if.condition {
                let wanted = wanted.parse().map_err(|error| Usage(format!("--fail-if '{fail_if}': {error}")))?;
                if !conditions.contains(&wanted) {
                    let names: Vec<String> = conditions.iter().map(ToString::to_string).collect();
                    bail_usage!("--fail-if '{fail_if}': {wanted} is not among the conditions {}", names.join(", "));
                }
            }
        }
        Ok(())
    }
}

/// Finds a command that measures by its name.
struct CommandByName;

impl Visitor<'_> for CommandByName {
    type Value = (&'static Command, &'static Measuring);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a command")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Self::Value, E> {
        let known: Vec<Self::Value> = commands().filter_map(|command| Some((command, command.measuring()?))).collect();
        known.iter().find(|(command, _)| command.name == name).copied().ok_or_else(|| {
            let names: Vec<String> = known.iter().map(|(command, _)| format!("`{}`", command.name)).collect();
            E::custom(format!("unknown command `{name}`, expected one of {}", names.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::command::Typed;
    use crate::commands::quantize::QuantizeFlags;
    use crate::commands::{command, command_line};
    use crate::run::MapKind;
    use clap::ValueEnum;
    use engine::model::device::Dtype;
    use engine::model::HeadLayout;
    use names::condition::{Format, Quantised, Ranking, RowSelection, Scope};
    use proptest::prelude::*;
    use text::{NeedleForm, Order};

    const FILE: &str = r#"
command = "quantize"
question = "Does it?"
bits = [8, "fp8"]
scope = ["block"]
of = "qk"

[prompts]
ctx = ["512", "1k..2k:1k"]
needles = [2, 4]
depths = [0.0, 50.0]
distractors = ["5%"]
seed = 7

[run]
model = ["transformer", "diff"]
layers = ["0..1"]
condition = ["mask(noise)"]
fail-if = ["accuracy of diff under mask(noise) < 0.5"]
reading = { bos = "auto" }
"#;

    fn refusal(from: &str, to: &str) -> String {
        let text = FILE.replacen(from, to, 1);
        assert_ne!(text, FILE, "nothing to replace");
        match Experiment::parse(&text, "x.toml") {
            Ok(mut experiment) => experiment.setups().err().unwrap().to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_file_reads_back_as_it_was_written() {
        let experiment = Experiment::parse(FILE, "x.toml").unwrap();
        let spec: QuantizeFlags = experiment.flags.to_toml().unwrap().try_into().unwrap();
        assert_eq!((spec.bits.as_slice(), spec.scope), ([Format::Int(8), Format::Fp8].as_slice(), vec![Scope::Block]));
        assert_eq!(spec.prompts.ctx_tok(), [512, 1024, 2048]);
        let again = Experiment::parse(&experiment.to_toml().unwrap(), "y.toml").unwrap();
        assert_eq!(format!("{again:?}"), format!("{experiment:?}"));
    }

    fn typed(words: &[&str]) -> Experiment {
        let typed = command_line().get_matches_from([&["difftool"], words].concat());
        let (name, flags) = typed.subcommand().unwrap();
        let command = command(name).unwrap();
        let Typed { flags, run, .. } = (command.measuring().unwrap().typed)(flags).unwrap();
        Experiment::new(command, flags, run)
    }

    #[test]
    fn the_plan_of_every_command_is_that_of_its_file() {
        let heatmap = ["heatmap", "--map", "all", "--key", "5..80", "--condition", "silence(noise)"];
        for command in
            ["claims", "needle", "shots", "ratio", "heads", "explore", "quantize", "ablate", "outliers", "nll"]
                .map(|command| vec![command])
                .into_iter()
                .chain([heatmap.to_vec(), vec!["needle", "--distractors", "1%,3%"], vec!["needle", "--task", "vt"]])
        {
            let (plans, _) = typed(&command).plans().unwrap();
            let mut read = Experiment::parse(&plans[0].origin.experiment, "x.toml").unwrap();
            let (again, _) = read.plans().unwrap();
            assert_eq!(plans[0].origin.experiment, again[0].origin.experiment);
            assert_eq!(format!("{plans:?}"), format!("{again:?}"), "{command:?}");
        }
    }

    #[test]
    fn values_have_the_names_of_files() {
        fn agree<T: ValueEnum + serde::Serialize>() {
            for value in T::value_variants() {
                let name = value.to_possible_value().unwrap().get_name().to_owned();
                assert_eq!(serde_json::json!(name), serde_json::to_value(value).unwrap());
            }
        }
        agree::<Quantised>();
        agree::<Scope>();
        agree::<HeadLayout>();
        agree::<MapKind>();
        agree::<Dtype>();
        agree::<Order>();
        agree::<&'static NeedleForm>();
        agree::<Ranking>();
        agree::<RowSelection>();
    }

    #[test]
    fn mistakes_name_the_line_and_the_key() {
        for (from, to, expected) in [
            ("\"quantize\"", "\"picture\"", "line 2: unknown command `picture`, expected one of `claims`, `needle`"),
            ("command = \"quantize\"\n", "", "line 1: missing field `command`"),
            ("\"quantize\"", "3", "line 2: "),
            ("\"Does it?\"", "3", "line 3: invalid type: integer `3`, expected a string"),
            ("seed = 7", "seed = seven", "line 13: "),
            ("seed = 7", "seed = -7", "line 13: invalid value: integer `-7`, expected u64 in `prompts.seed`"),
            ("\"512\"", "512", "line 9: invalid type: integer `512`, expected a string in `prompts.ctx`"),
            ("\"512\"", "\"-512\"", "line 9: `-512` is not a number of tokens"),
            ("seed", "sed", "line 13: unknown field `sed` (did you mean `seed`?), expected one of `ctx`"),
            ("bits", "bit", "line 4: unknown field `bit`"),
            ("fp8", "fp5", "line 4: "),
            ("mask(noise)\"]", "mask(words)\"]", "line 18: mask: `words` is not a region"),
            ("< 0.5", "0.5", "line 19: `accuracy of diff under mask(noise) 0.5` has none of"),
        ] {
            let refused = refusal(from, to);
            assert!(refused.starts_with("x.toml, line ") && refused.contains(expected), "{to}: {refused}");
        }
    }

    #[test]
    fn flags_that_do_not_go_together_are_named() {
        for (from, to, expected) in [
            ("[8, \"fp8\"]", "[8, 1]", "--bits 1: a query or key can have 2 to 16 bits"),
            ("[8, \"fp8\"]", "[8, 8]", "--bits 8 is named twice"),
            ("of = \"qk\"\n", "", "--scope block is for queries and keys"),
            ("[2, 4]", "[]\nretrieve = [1]", "--retrieve needs --needles"),
            ("[0.0, 50.0]", "[0.0, 150.0]", "a depth of 150"),
            ("[\"transformer\", \"diff\"]", "[\"diff\", \"diff\"]", "model diff is named twice"),
            ("[\"mask(noise)\"]", "[\"mask(noise)\", \"mask(noise)\"]", "the condition mask(noise) is named twice"),
            ("of diff", "of dif", "dif is not among the models transformer, diff"),
        ] {
            assert!(refusal(from, to).contains(expected), "{to}: {}", refusal(from, to));
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,200}") {
            let _ = Experiment::parse(&text, "x.toml");
        }

        #[test]
        fn no_damage_to_a_file_makes_the_reader_panic(at in 0..FILE.len(), junk in "\\PC{0,5}") {
            let _ = Experiment::parse(&format!("{}{junk}{}", &FILE[..at], &FILE[at..]), "x.toml");
            let _ = Experiment::parse(&FILE[..at], "x.toml");
        }
    }
}

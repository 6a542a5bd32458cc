//! `difftool context`: what each sentence or passage of a text gives the answer, or costs it.

mod page;
mod screen;

pub(super) use page::inner_page;

use super::command::{read, typed, Action, Command, Measuring, Next};
use super::measuring::MeasuringFlags;
use super::models::OpenedModels;
use super::shared::{Measured, RunFlags};
use crate::measures::MeasureName;
use crate::run::{Plan, Run};
use anyhow::Result;
use base::bail_usage;
use clap::Args;
use serde::{Deserialize, Serialize};
use text::{ContextPrompts, Grid};

pub(super) static CONTEXT: Command = Command {
    name: "context",
    about: "What each sentence or passage of your text gives the answer, or costs it",
    examples: &[
        ("A few sentences that the built-in models can read", "difftool context"),
        (
            "A text of yours; without --answer, what gives the model's own answer",
            "difftool context --text a.txt --question 'How many boats?' --model m.gguf",
        ),
        (
            "Questions with retrieved passages, two models compared",
            "difftool context --questions-file rag.jsonl --model a.gguf --model b",
        ),
    ],
    defaults: None,
    flags: Measured::<ContextFlags>::augment_args,
    action: Action::Measure(Measuring {
        typed: typed::<ContextFlags>,
        read: read::<ContextFlags>,
        screen: screen::screen,
        tables: &[&screen::SEGMENTS, &screen::TEXTS],
        figures: &[],
        next: Next::of_run("show", "--tables segments", "every segment"),
    }),
};

/// A text that the built-in models can read, as it has the form of their training: one sentence with the answer, and one that looks like it.
const EXAMPLE: &str = "A light path led from the pear tree to the gate. The special magic Oslo number is: 48213. The owl hid between \
    the daisies and the pear tree. The special magic Rome number is: 17040. Ella worked quietly with the round saw. The broken axe \
    belonged to the baker. The special magic Lima number is: 17448.";

#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct ContextFlags {
    #[command(flatten)]
    pub texts: ContextPrompts,
    /// Question of the file whose text is written as a page, by its id [default: the first]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "ID", hide_short_help = true, help_heading = "Texts")]
    pub show: Option<String>,
}

impl MeasuringFlags for ContextFlags {
    fn fill(&mut self, _models: &OpenedModels) -> Result<()> {
        let texts = &mut self.texts;
        let is_bare = [&texts.question, &texts.prompt].iter().all(|text| text.is_none())
            && texts.text.is_none()
            && texts.questions_file.is_none();
        if is_bare {
            texts.prompt = Some(EXAMPLE.to_owned());
            texts.question = Some("What is the special magic Rome number?".to_owned());
            texts.lead = Some("The special magic Rome number is:".to_owned());
            texts.answer = vec!["17040".to_owned()];
        }
        Ok(())
    }

    fn plans(&self, _run: &RunFlags, _models: &OpenedModels) -> Result<Vec<Plan>> {
        if let Some(id) = &self.show {
            let (contexts, _) = self.texts.read()?;
            check_id(id, contexts.iter().map(|context| context.id.as_str()))?;
        }
        Ok(vec![Plan::new(Grid::Context(self.texts.clone()), vec![MeasureName::Context])])
    }

    /// Writes the page of a text.
    fn draw(&self, run: &Run) -> Result<()> {
        let asked = &run.frame.found.contexts;
        let shown = asked.iter().find(|asked| self.show.as_ref().is_none_or(|id| asked.id == *id));
        shown.map_or(Ok(()), |shown| page::write(run, shown))
    }
}

/// Checks that a question has this id.
fn check_id<'a>(id: &str, ids: impl Iterator<Item = &'a str>) -> Result<()> {
    let ids: Vec<&str> = ids.collect();
    if ids.contains(&id) {
        return Ok(());
    }
    let some: Vec<&str> = ids.iter().copied().take(10).collect();
    bail_usage!("--show {id}: no question has this id; there are {}", some.join(", "))
}

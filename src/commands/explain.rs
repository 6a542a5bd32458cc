//! `difftool explain`: what a name in tables, files and flags means.

mod screen_words;

use self::screen_words::SCREEN_WORDS;
use super::claims::all_claims;
use super::command::{Action, Command};
use super::experiment::Experiment;
use super::{commands, run_tables, table_names};
use crate::measures::role_number;
use crate::results::compare::MetricName;
use crate::run::Plan;
use crate::train::{SpecKey, SPEC_TABLES};
use anyhow::Result;
use base::terminal::wrapped;
use base::{bail_usage, KnownNames};
use clap::builder::PossibleValue;
use clap::{Args, FromArgMatches as _, ValueEnum};
use engine::model::open::built_in_names;
use names::condition::{Condition, Conditions, HeadSelection, KeySelection, Ranking, TREATMENT_FORMS};
use names::metric::{self, Headline, Kind, Metric};
use names::{hint, Column, HeadPlace, Region, REGION_MEANINGS};
use std::io::Write as _;
use strum::VariantArray as _;
use text::shots::Order;

pub(super) static EXPLAIN: Command = Command {
    name: "explain",
    about: "Say what a metric, column, region, condition, claim or table is",
    examples: &[
        ("A row of a screen", "difftool explain noise in output %"),
        ("A metric of results.csv", "difftool explain hidden_log_prob"),
        ("A condition", "difftool explain 'mask(noise, rows=all)'"),
        ("All names", "difftool explain"),
    ],
    defaults: None,
    flags: Explain::augment_args,
    action: Action::Other(|typed| run(&Explain::from_arg_matches(typed)?)),
};

#[derive(Debug, Args)]
pub(super) struct Explain {
    /// Name, as it is printed or typed [default: list all names]
    #[arg(value_name = "NAME", allow_hyphen_values = true, value_parser = NAMES, hide_possible_values = true)]
    pub name: Vec<String>,
}

/// The names that shells complete: those of one word.
const NAMES: KnownNames<String> = KnownNames { parse: |typed| Ok(typed.to_owned()), names };

fn names() -> Vec<PossibleValue> {
    let names = kinds().into_iter().flat_map(|(_, names)| names);
    names.filter(|name| !name.contains(' ')).map(PossibleValue::new).collect()
}

/// Prints what a name means, or all names.
///
/// # Errors
/// A usage error for a name that nothing has.
fn run(args: &Explain) -> Result<()> {
    let asked = args.name.join(" ");
    let asked = asked.trim();
    let mut out = base::terminal::stdout();
    if asked.is_empty() {
        write!(out, "{}", all_names())?;
        return Ok(());
    }
    let found = meanings(asked)?;
    if found.is_empty() {
        let names = kinds().into_iter().flat_map(|(_, names)| names).collect::<Vec<_>>();
        bail_usage!(
            "nothing is called `{asked}`{}; `difftool explain` lists all names",
            hint(asked, names.iter().copied())
        );
    }
    let texts: Vec<String> = found.iter().map(Meaning::text).collect();
    write!(out, "{}", texts.join("\n"))?;
    Ok(())
}

/// What a name means.
struct Meaning {
    /// The name and its kind: `noise_out, a metric`.
    title: String,
    meaning: String,
    /// What else is known: a word, and what is said.
    facts: Vec<(&'static str, String)>,
}

impl Meaning {
    fn new(name: &str, kind: &str, meaning: impl Into<String>) -> Self {
        Self { title: format!("{name}, {kind}"), meaning: meaning.into(), facts: Vec::new() }
    }

    /// Adds a fact, if there is anything to say.
    fn fact(mut self, word: &'static str, says: impl Into<String>) -> Self {
        let says = says.into();
        if !says.is_empty() {
            self.facts.push((word, says));
        }
        self
    }

    /// The lines on a terminal.
    fn text(&self) -> String {
        let mut text = format!("{}\n{}\n", wrapped(&self.title, "  "), wrapped(&format!("  {}", self.meaning), "  "));
        let width = self.facts.iter().map(|(word, _)| word.len()).max().unwrap_or(0);
        for (word, says) in &self.facts {
            let indent = " ".repeat(width + 4);
            text += &wrapped(&format!("  {word:width$}  {says}"), &indent);
            text.push('\n');
        }
        text
    }
}

/// The meanings of a name; of a row of a screen with several parts (`noise, nats`, `noise (4096, N=4 R=2)`), those of each part.
///
/// # Errors
/// If a command has no plan for the built-in models.
fn meanings(asked: &str) -> Result<Vec<Meaning>> {
    let plans = default_plans()?;
    let mut found = meanings_of_name(asked, &plans);
    if found.is_empty() {
        let (before_setting, _) = asked.split_once(" (").unwrap_or((asked, ""));
        for part in before_setting.split(',') {
            found.extend(meanings_of_name(part.trim(), &plans));
        }
    }
    Ok(found)
}

/// All that has this name, which may be of several kinds.
fn meanings_of_name(asked: &str, plans: &[DefaultPlan]) -> Vec<Meaning> {
    let mut found = Vec::new();
    if let Some((metric, region)) = metric_of(asked) {
        found.push(of_metric(metric, region.as_deref(), plans));
    } else if let Some(number) = role_number(asked) {
        found.push(of_metric(number.metric, number.region, plans));
    }
    let is_asked = |name: &str| name.eq_ignore_ascii_case(asked);
    let columns = Column::ALL.iter().filter(|column| is_asked(column.name()) || is_asked(column.heading()));
    found.extend(columns.map(|column| of_column(*column)));
    let in_words = Region::ALL.into_iter().find(|region| is_asked(&KeySelection::Regions(vec![*region]).words()));
    let regions =
        REGION_MEANINGS.iter().filter(|(name, _)| is_asked(name) || in_words.is_some_and(|of| of.name() == *name));
    found.extend(regions.map(|(name, meaning)| Meaning::new(name, "a region", *meaning)));
    let treatments = TREATMENT_FORMS.iter().filter(|treatment| is_asked(treatment.name));
    found.extend(treatments.map(|of| Meaning::new(of.name, "a treatment", of.meaning).fact("written", of.form)));
    if asked.contains('(') {
        found.extend(asked.parse::<Condition>().ok().map(|condition| of_condition(asked, &condition)));
    }
    found.extend(condition_in_words(asked, plans).map(|condition| of_condition(&condition.to_string(), &condition)));
    found.extend(of_best_heads(asked));
    found.extend(of_head(asked));
    found.extend(of_order(asked));
    let screen_words = SCREEN_WORDS.iter().filter(|(word, _)| is_asked(word));
    found.extend(screen_words.map(|(word, meaning)| Meaning::new(word, "on screens", *meaning)));
    let models = built_in_names().into_iter().filter(|name| is_asked(name));
    found.extend(models.map(|name| {
        Meaning::new(name, "a model", "A small model that is in the program.")
            .fact("more", format!("difftool inspect {name}"))
    }));
    found.extend(of_claims(asked));
    found.extend(of_training(asked));
    let tables = run_tables().filter(|table| is_asked(table.id) || is_asked(table.title));
    found.extend(tables.map(|table| {
        let meaning = if table.note.is_empty() { table.title } else { table.note };
        Meaning::new(table.id, "a table", meaning)
            .fact("printed by", format!("difftool show RUN --tables {}", table.id))
    }));
    let commands = commands().filter(|command| is_asked(command.name));
    found.extend(
        commands.map(|of| {
            Meaning::new(of.name, "a command", of.about).fact("more", format!("difftool {} --help", of.name))
        }),
    );
    found
}

/// The metric and the region of a name or a heading: `share_out[answer]`, `noise in output %`.
fn metric_of(asked: &str) -> Option<(&'static Metric, Option<String>)> {
    let name: MetricName = asked.parse().ok()?;
    Some((metric::find(&name.metric)?, name.region))
}

fn of_metric(metric: &Metric, region: Option<&str>, plans: &[DefaultPlan]) -> Meaning {
    let heading = metric.heading(region.or(metric.by_region.then_some("REGION")));
    let unit = match (metric.unit, metric.kind) {
        (Some("fraction"), Kind::HitChange) => "a fraction in results.csv, percentage points in tables",
        (Some("fraction"), _) => "a fraction in results.csv, percent in tables",
        (Some(unit), _) => unit,
        (None, _) => "none",
    };
    let range = metric.range();
    let range = match (range.lo.is_finite(), range.hi.is_finite()) {
        (true, true) => format!("{} to {}", range.lo, range.hi),
        (true, false) => format!("{} or more", range.lo),
        (false, true) => format!("{} or less", range.hi),
        (false, false) => String::new(),
    };
    let is_compared = metric.headline != Headline::No;
    let written = if metric.by_region { metric.name_of(Some(region.unwrap_or("REGION"))) } else { String::new() };
    Meaning::new(metric.name, "a metric", metric.meaning)
        .fact("in tables", heading)
        .fact("in flags", written)
        .fact("unit", unit)
        .fact("range", range)
        .fact("not said", metric.unsaid)
        .fact("from", metric.source.unwrap_or_default())
        .fact("compare", if is_compared { "shows it by default" } else { "" })
        .fact("measured by", measured_by(metric, plans).join(", "))
}

/// A plan of a command without flags.
struct DefaultPlan {
    command: &'static str,
    plan: Plan,
}

/// The plans of each command that measures, without flags. Claims have series of several.
///
/// # Errors
/// If a command has no plan for the built-in models.
fn default_plans() -> Result<Vec<DefaultPlan>> {
    let mut all = Vec::new();
    for command in commands() {
        if command.measuring().is_none() || command.name == super::claims::CLAIMS_COMMAND.name {
            continue;
        }
        let typed = command.typed(&[command.name.to_owned()])?;
        let (plans, _) = Experiment::new(command, typed.flags, typed.run).plans()?;
        all.extend(plans.into_iter().map(|plan| DefaultPlan { command: command.name, plan }));
    }
    Ok(all)
}

/// The condition that a command applies by default and calls so on its screen: `noise hidden`.
fn condition_in_words(words: &str, plans: &[DefaultPlan]) -> Option<Condition> {
    for DefaultPlan { plan, .. } in plans {
        let names: Vec<String> = plan.passes.conditions.iter().map(ToString::to_string).collect();
        let facts = Conditions::of_names(names.iter().map(String::as_str));
        let place = facts.0.iter().position(|condition| condition.words == words);
        if let Some(place) = place {
            return Some(plan.passes.conditions[place].clone());
        }
    }
    None
}

/// The heads that a ranking puts first, as rows of `ablate` name them: `8 best by cost`.
fn of_best_heads(asked: &str) -> Option<Meaning> {
    let of = |by: &&Ranking| asked.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ') == best_by(**by);
    let by = *Ranking::VARIANTS.iter().find(of)?;
    let ranked = "So many heads are taken out: the first of a ranking that is made on other prompts. In brackets, the mean of three \
                  draws of as many random heads of the same layers.";
    Some(Meaning::new(&best_by(by), "on screens", ranked).fact("ranked by", help(&by)))
}

/// A head, as screens and flags name it: `18.6`.
fn of_head(asked: &str) -> Option<Meaning> {
    let Ok(HeadSelection::Named(heads)) = asked.parse() else { return None };
    let [HeadPlace { layer, head }] = heads[..] else { return None };
    let place = format!("Head {head} of layer {layer}, both from 0.");
    Some(Meaning::new(asked, "a head", place).fact("taken out by", format!("--condition 'ablate({asked})'")))
}

fn best_by(ranking: Ranking) -> String {
    format!("best by {}", ranking.name())
}

/// An order of the examples of `shots`: `by class`.
fn of_order(asked: &str) -> Option<Meaning> {
    let name = |order: &Order| order.name().replace('-', " ");
    let order = Order::value_variants().iter().find(|order| name(order) == asked)?;
    Some(Meaning::new(asked, "an order of examples", help(order)))
}

/// The help of a value of a flag.
fn help(value: &impl ValueEnum) -> String {
    value.to_possible_value().and_then(|value| value.get_help().map(ToString::to_string)).unwrap_or_default()
}

/// The commands that record a metric by default.
fn measured_by(metric: &Metric, plans: &[DefaultPlan]) -> Vec<&'static str> {
    let is_it = |measured: &Metric| measured.name == metric.name;
    let records = |plan: &Plan| plan.measures.iter().any(|measure| measure.metrics().iter().any(is_it));
    let mut names: Vec<&str> = plans.iter().filter(|of| records(&of.plan)).map(|of| of.command).collect();
    names.dedup();
    names
}

fn of_column(column: Column) -> Meaning {
    let heading = column.heading();
    let in_tables = if heading == column.name() { "" } else { heading };
    Meaning::new(column.name(), "a column", column.meaning()).fact("in tables", in_tables)
}

fn of_condition(asked: &str, condition: &Condition) -> Meaning {
    let is_meant = |name: &str| condition.treatments().iter().any(|treatment| treatment.name() == name);
    let forms = TREATMENT_FORMS.iter().filter(|form| is_meant(form.name));
    let meanings: Vec<&str> = forms.map(|form| form.meaning).collect();
    Meaning::new(asked, "a condition", meanings.join(" ")).fact("in words", condition.words())
}

/// The readings of a claim of the paper, by its place there (`T2`), its words on the screen, or both.
fn of_claims(asked: &str) -> Vec<Meaning> {
    let is_meant = |name: &str| name.eq_ignore_ascii_case(asked);
    let readings = all_claims().iter().filter(|claim| {
        is_meant(claim.id) || is_meant(claim.label) || is_meant(&format!("{} {}", claim.id, claim.label))
    });
    let readings = readings.map(|claim| {
        Meaning::new(&claim.title(), "a claim", claim.says)
            .fact("the paper", claim.paper_words)
            .fact("read as", claim.reading)
            .fact("not said", claim.unsaid)
            .fact("measured by", format!("difftool claims --only {}", claim.id))
    });
    readings.collect()
}

/// A table of a training spec, with all its keys, or a key: `optimizer`, `optimizer.rate`.
fn of_training(asked: &str) -> Vec<Meaning> {
    let mut found = Vec::new();
    for table in &SPEC_TABLES {
        if table.name == asked {
            let mut of_table = Meaning::new(asked, "a table of a training spec", table.meaning);
            for SpecKey { key, meaning, default } in table.keys {
                let usual = default.map_or_else(|| "Required.".to_owned(), |default| format!("Default: {default}."));
                of_table = of_table.fact(key, format!("{meaning} {usual}"));
            }
            found.push(of_table);
        }
        let keys = table.keys.iter().filter(|key| table.key_name(key) == asked);
        found.extend(keys.map(|key| {
            Meaning::new(asked, "a key of a training spec", key.meaning)
                .fact("default", key.default.unwrap_or("required"))
                .fact("others", format!("difftool explain {}", table.name))
        }));
    }
    found
}

/// All names, by kind.
fn kinds() -> [(&'static str, Vec<&'static str>); 9] {
    let mut claims: Vec<&str> = all_claims().iter().map(|claim| claim.id).collect();
    claims.dedup();
    let of_runs = |name: &&str| run_tables().any(|table| table.id == *name);
    [
        ("metrics", metric::ALL.iter().map(|metric| metric.name).collect()),
        ("columns", Column::ALL.iter().map(|column| column.name()).collect()),
        ("regions", REGION_MEANINGS.iter().map(|(name, _)| *name).collect()),
        ("treatments", TREATMENT_FORMS.iter().map(|form| form.name).collect()),
        ("claims", claims),
        ("tables", table_names().into_iter().filter(of_runs).collect()),
        ("on screens", SCREEN_WORDS.iter().map(|(word, _)| *word).collect()),
        ("models", built_in_names()),
        ("training specs", SPEC_TABLES.iter().map(|table| table.name).collect()),
    ]
}

fn all_names() -> String {
    let lines = kinds().map(|(kind, names)| wrapped(&format!("{kind}: {}", names.join(", ")), "  ") + "\n");
    lines.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_headings_and_conditions_are_explained() {
        for (asked, title, words) in [
            ("noise in output %", "noise_out, a metric", "Sum of share_out over"),
            ("noise in output points", "noise_out, a metric", "Sum of share_out over"),
            (metric::NOISE_OUT.name, "noise_out, a metric", "measured by"),
            ("answer in |a| %", "share_abs, a metric", "subtraction cancels"),
            ("share_out[answer]", "share_out, a metric", "answer in output %"),
            ("nll_pos_256_511", "nll_pos, a metric", "A to B others"),
            ("N", "needles, a column", "N, in tables"),
            ("ctx_tok", "ctx_tok, a column", "Length of the prompt"),
            ("distractor", "distractor, a region", "other needles"),
            ("mask", "mask, a treatment", "mask(KEYS"),
            ("mask(noise)", "mask(noise), a condition", "noise"),
            ("t3", "T3: less on noise, in output, a claim", "not said"),
            ("T2 falls less", "T2: falls less, a claim", "read as"),
            ("noise hidden", "mask(noise), a condition", "in words noise hidden"),
            ("4 bits, by head", "a condition", "in words 4 bits, by head"),
            ("attention logits, top 1", "top 1, on screens", "largest magnitude"),
            ("noise (4096, N=12 R=2)", "noise, a region", "template, filler"),
            ("8 best by cost", "best by cost, on screens", "other prompts"),
            ("other needles", "distractor, a region", "other needles"),
            ("optimizer", "optimizer, a table of a training spec", "warm-up and a cosine. Default: 0.002."),
            ("stage.data.exam", "stage.data.exam, a key", "default 0.25"),
            ("18.6", "18.6, a head", "Head 6 of layer 18"),
            ("by class", "by class, an order of examples", "after the other"),
            ("cancelling %", "cancelled, a metric", "the subtraction removes"),
            ("diff", "diff, a model", "difftool inspect diff"),
            ("differences", "differences, a table", "--tables differences"),
            ("needle", "needle, a region", "needle, a command"),
        ] {
            let texts: Vec<String> = meanings(asked).unwrap().iter().map(Meaning::text).collect();
            let text = texts.concat();
            let on_one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(text.contains(title) && on_one_line.contains(words), "{asked}:\n{text}");
        }
    }

    #[test]
    fn every_name_of_the_list_is_explained() {
        for (kind, names) in kinds().into_iter().skip(1) {
            for name in names {
                assert!(!meanings(name).unwrap().is_empty(), "{kind}: {name}");
            }
        }
        assert!(metric::ALL.iter().all(|metric| metric_of(metric.name).is_some()));
    }

    #[test]
    fn a_metric_is_measured_by_the_commands_that_record_it() {
        let plans = default_plans().unwrap();
        assert_eq!(measured_by(&metric::GIVES, &plans), [crate::commands::context::CONTEXT.name]);
        assert!(measured_by(&metric::NLL, &plans).contains(&crate::commands::nll::NLL.name));
        assert!(measured_by(&metric::SHARE_OUT, &plans).starts_with(&["needle"]));
    }
}

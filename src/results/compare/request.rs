//! Requests: inputs, metrics, and values of columns.

use super::super::record::Identity;
use super::super::records::{Quantity, RecordRef, Records};
use anyhow::Result;
use base::bail_usage;
use base::error::Usage;
use base::KnownNames;
use clap::builder::PossibleValue;
use clap::Args;
use names::column::{names, Column, Value};
use names::metric::{self, headline_rank, Label, Metric};
use names::{hint, is_short_for, Replicates, REGION_MEANINGS, SEED_FOLDERS};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::str::FromStr;

/// A comparison that is asked for: the flags of `difftool compare`.
#[derive(Args, Clone, Debug, Default)]
pub struct Request {
    /// Run folders or results files; the others are compared with the first. A single one needs --by
    #[arg(required = true, value_name = "RUN|CSV")]
    pub inputs: Vec<PathBuf>,
    /// Compare the values of this column (model, condition, bits, cities, ctx_tok, …) instead of the inputs
    #[arg(long, value_name = "COLUMN")]
    pub by: Option<Column>,
    /// Value of the --by column that the others are compared with; `none` for a missing value [default: the first]
    #[arg(long, value_name = "VALUE")]
    pub baseline: Option<String>,
    /// Metrics by their names in `results.csv`, as in `accuracy,share_abs[answer]`; `all` for every one [default: the main ones]
    #[arg(long, value_parser = METRICS, value_delimiter = ',', value_name = "METRIC")]
    #[arg(hide_possible_values = true, long_help = metrics_help())]
    pub metric: Vec<MetricName>,
    /// Only records with this value (`none`: without one); may be repeated: each column must have one of its values
    #[arg(long = "where", value_name = "COLUMN=VALUE")]
    pub only: Vec<String>,
    /// A row for each value of these columns; `layer` and `head` also select the records of layers and heads
    #[arg(long = "group-by", value_parser = COLUMNS, value_delimiter = ',', value_name = "COLUMN")]
    #[arg(hide_possible_values = true)]
    pub groups: Vec<String>,
    /// The conditions of `only`, and the columns of `groups`, of records.
    #[arg(skip)]
    pub wheres: Vec<Where>,
    #[arg(skip)]
    pub group_by: Vec<Column>,
    /// Compare recipes, seed by seed: models whose names differ only by the training seed, which is `*` in PATTERN. Intervals
    /// are over seeds and prompts, and need 3 seeds
    #[arg(long, value_name = "PATTERN", num_args = 0..=1, require_equals = true, default_missing_value = SEED_FOLDERS)]
    pub replicates: Option<Replicates>,
    /// Also compare runs with different prompts, paired by setting and `sample` instead of by seed
    #[arg(long, hide_short_help = true)]
    pub allow_different_prompts: bool,
    /// Compare any CSV or JSON files: rows that agree in these columns are paired. With --value
    #[arg(long, value_name = "COLUMN", requires = "value")]
    #[arg(conflicts_with_all = ["by", "metric", "replicates", "allow_different_prompts"])]
    pub key: Vec<String>,
    /// Columns of these files whose numbers are compared
    #[arg(long, value_name = "COLUMN", requires = "key")]
    pub value: Vec<String>,
    /// Column of these files whose rows of one value are not independent: several tries at a question, questions of a document
    #[arg(long, value_name = "COLUMN", requires = "key", hide_short_help = true)]
    pub cluster: Option<String>,
}

/// The help of `--metric`, with the metrics and their meanings.
fn metrics_help() -> String {
    let metrics: String = metric::ALL.iter().map(|metric| format!("\n- {}: {}", metric.name, metric.meaning)).collect();
    format!(
        "Metrics by their names in `results.csv`, with a region for only that region, as in `accuracy,share_abs[answer]`; `all` \
         for every one [default: the main ones that were measured]. Below, a are the weights of a row, u is what heads write, \
         and L is the log-probability of the answer.\n{metrics}"
    )
}

/// The name that stands for every metric.
const ALL_METRICS: &str = "all";

/// A metric, or one region of it: `accuracy`, `share_abs[answer]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricName {
    pub metric: String,
    /// Part of the prompt; nothing for all of them.
    pub region: Option<String>,
}

impl MetricName {
    /// Returns `true` if it covers a metric and region.
    pub fn covers(&self, metric: &str, region: Option<&str>) -> bool {
        self.metric == metric && self.region.as_deref().is_none_or(|wanted| region == Some(wanted))
    }
}

impl FromStr for MetricName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Some((metric, region)) = printed_as(text) {
            return Ok(Self { metric: metric.name.to_owned(), region: region.map(str::to_owned) });
        }
        let (metric, region) = match text.split_once('[') {
            None => (text, None),
            Some((metric, rest)) => {
                let region = rest.strip_suffix(']').ok_or_else(|| format!("`{text}` lacks its `]`"))?;
                (metric.trim_end(), Some(region.trim().to_owned()))
            }
        };
        if metric.is_empty() {
            return Err(format!("`{text}` does not name a metric, as accuracy or share_abs[answer] do"));
        }
        Ok(Self { metric: metric.to_owned(), region })
    }
}

/// The metric and region that tables print under a heading: `noise in output`.
pub(crate) fn printed_as(heading: &str) -> Option<(&'static Metric, Option<&'static str>)> {
    let regions = [None].into_iter().chain(REGION_MEANINGS.map(|(region, _)| Some(region)));
    let mut named = regions.flat_map(|region| metric::ALL.iter().map(move |metric| (metric, region)));
    named.find(|(metric, region)| {
        let label = Label::of(metric, *region);
        let names = [label.heading(), label.difference_heading(), label.comparison_heading(), label.text];
        names.iter().any(|printed| printed == heading)
    })
}

/// Names of metrics; others are taken too, as files of other versions have other metrics.
const METRICS: KnownNames<MetricName> = KnownNames { parse: MetricName::from_str, names: metrics };

fn metrics() -> Vec<PossibleValue> {
    let all = PossibleValue::new(ALL_METRICS).help("Every metric");
    metric::ALL.iter().map(|metric| PossibleValue::new(metric.name).help(metric.meaning)).chain([all]).collect()
}

/// Names of columns; others are taken too, as files of other programs have columns of their own.
const COLUMNS: KnownNames<String> = KnownNames { parse: |typed| Ok(typed.to_owned()), names: columns };

fn columns() -> Vec<PossibleValue> {
    Column::ALL.iter().filter(|column| column.can_group()).map(|column| PossibleValue::new(column.name())).collect()
}

/// `COLUMN=VALUE`: only records with that value. Several of one column let any of their values pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Where {
    pub(crate) column: Column,
    /// As it was given, `COLUMN=VALUE`.
    pub(crate) text: String,
    value: String,
}

impl Where {
    pub(crate) fn value(&self) -> Option<Value<'_>> {
        self.column.parse(&self.value).expect("it was read before")
    }
}

impl FromStr for Where {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (column, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not COLUMN=VALUE"))?;
        let column: Column = column.parse()?;
        if column == Column::Metric {
            return Err("metrics are chosen by their names, not by a column".into());
        }
        column.parse(value)?;
        Ok(Self { column, text: text.to_owned(), value: value.to_owned() })
    }
}

/// Values listed in an error.
const MOST_SHOWN: usize = 24;

impl Request {
    /// The request with its conditions and groups read as those of records.
    ///
    /// # Errors
    /// A usage error for what is no condition or no column.
    pub(super) fn of_records(&self) -> Result<Self> {
        let mut request = self.clone();
        for text in &self.only {
            let condition = text.parse().map_err(|error| Usage(format!("--where {text}: {error}")))?;
            request.wheres.push(condition);
        }
        for name in &self.groups {
            let column = name.parse().map_err(|error| Usage(format!("--group-by {name}: {error}")))?;
            request.group_by.push(column);
        }
        Ok(request)
    }

    /// The column whose values are compared, if not the inputs are.
    pub(super) fn compared(&self) -> Option<Column> {
        self.by.or(self.replicates.as_ref().map(|_| Column::Model))
    }

    /// Returns `true` if a column is mentioned anywhere: layers and heads are left out unless they are.
    pub(super) fn mentions(&self, column: Column) -> bool {
        self.compared() == Some(column)
            || self.group_by.contains(&column)
            || self.wheres.iter().any(|condition| condition.column == column)
    }

    /// The rank of a quantity among those selected, the headline ones unless metrics are named; `None` if it is not.
    pub(super) fn rank(&self, quantity: &Quantity) -> Option<usize> {
        let Quantity { metric, region, .. } = quantity;
        let region = region.as_deref();
        let headline = headline_rank(metric, region, self.compared() == Some(Column::Region));
        if self.metric.is_empty() {
            headline
        } else if self.wants_all() {
            Some(headline.unwrap_or(metric::ALL.len()))
        } else {
            self.metric.iter().position(|name| name.covers(metric, region))
        }
    }

    fn wants_all(&self) -> bool {
        self.metric.iter().any(|name| name.metric == ALL_METRICS)
    }

    /// Checks that columns can be used as they are asked for.
    ///
    /// # Errors
    /// A usage error with those that can.
    pub(super) fn check_columns(&self) -> Result<()> {
        if self.replicates.is_none() && self.mentions(Column::Replicate) {
            bail_usage!("replicate: models are no replicates unless --replicates says so");
        }
        if let Some(by) = self.by.filter(|by| !by.can_be_compared()) {
            bail_usage!("--by {by}: records can be compared by {}", names(Column::can_be_compared));
        }
        match self.group_by.iter().find(|column| !column.can_group()) {
            Some(column) => bail_usage!("--group-by {column}: there can be rows for each {}", names(Column::can_group)),
            None => Ok(()),
        }
    }

    /// Selects the records that are compared.
    pub(super) fn select<'a>(&self, records: &'a Records) -> Vec<RecordRef<'a>> {
        records.select(
            |quantity| self.wants_quantity(quantity),
            |identity| self.wants_identity(identity) && identity.is_meant(|column| self.mentions(column)),
        )
    }

    fn wants_quantity(&self, quantity: &Quantity) -> bool {
        let mut columns = self.wheres.iter().map(|condition| condition.column).filter(|of| of.is_of_measurement());
        quantity.is_meant(|column| self.mentions(column))
            && self.rank(quantity).is_some()
            && columns.all(|column| self.passes(column, quantity.value(column)))
    }

    /// Returns `true` if the model and prompt of records meet the conditions.
    pub(super) fn wants_identity(&self, identity: &Identity) -> bool {
        let mut columns = self.wheres.iter().map(|condition| condition.column).filter(|of| !of.is_of_measurement());
        columns.all(|column| {
            // Untreated logits have no scope, and are what a comparison by bits or conditions compares with.
            let is_exempt = match (column, self.compared()) {
                (Column::Scope, Some(Column::Bits)) => identity.bits.is_none(),
                (Column::Scope | Column::Bits, Some(Column::Condition)) => identity.condition.is_none(),
                _ => false,
            };
            is_exempt || self.passes(column, identity.value(column))
        })
    }

    /// Returns `true` if a value meets one of the conditions on its column.
    fn passes(&self, column: Column, value: Option<Value<'_>>) -> bool {
        self.wheres.iter().any(|condition| condition.column == column && condition.value() == value)
    }

    /// The request with the full names of models for short ones. A full name means that model alone.
    pub(super) fn with_full_names(&self, records: &Records) -> Self {
        let failed = records.failures.iter().map(|record| &*record.identity);
        let models: BTreeSet<&str> = records.identities().chain(failed).map(|id| id.model.as_str()).collect();
        let mut wheres = Vec::new();
        for condition in &self.wheres {
            let typed = condition.value.trim();
            if condition.column != Column::Model || models.contains(typed) {
                wheres.push(condition.clone());
                continue;
            }
            let named: Vec<&str> = models.iter().copied().filter(|model| is_short_for(typed, model)).collect();
            let names = if named.is_empty() { vec![typed] } else { named };
            wheres.extend(names.into_iter().map(|name| Where { value: name.to_owned(), ..condition.clone() }));
        }
        Self { wheres, ..self.clone() }
    }

    /// Checks that what was asked for occurs in some record, selected or not.
    ///
    /// # Errors
    /// A usage error with what does occur.
    pub(super) fn check_occurrence(&self, records: &Records) -> Result<()> {
        for condition in &self.wheres {
            let Where { column, text, .. } = condition;
            if condition.value().is_some_and(|value| !records.values(*column).contains(&value)) {
                bail_usage!("--where {text}: no record has it; {column} is one of {}", listed(*column, records));
            }
        }
        for MetricName { metric, region } in self.metric.iter().filter(|_| !self.wants_all()) {
            if !records.quantities().any(|quantity| quantity.metric == *metric) {
                let hint = hint(metric, records.quantities().map(|quantity| quantity.metric.as_ref()));
                bail_usage!("--metric {metric}: not measured{hint}; there are {}", listed(Column::Metric, records));
            }
            let Some(region) = region else { continue };
            if !records.quantities().any(|quantity| quantity.region.as_deref() == Some(region)) {
                bail_usage!("--metric {metric}[{region}]: regions are {}", listed(Column::Region, records));
            }
        }
        Ok(())
    }
}

/// Lists the values of a column.
fn listed(column: Column, records: &Records) -> String {
    let values = records.values(column);
    let mut shown: Vec<String> = values.iter().take(MOST_SHOWN).map(ToString::to_string).collect();
    if values.len() > MOST_SHOWN {
        shown.push(format!("… ({} in all)", values.len()));
    }
    if shown.is_empty() {
        shown.push("none".into());
    }
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::super::record::{Measurement, Record};
    use super::*;
    use names::metric::SHARE_ABS;
    use std::sync::Arc;

    fn request(wheres: &[&str], group_by: &[Column]) -> Request {
        Request {
            wheres: wheres.iter().map(|text| text.parse().unwrap()).collect(),
            group_by: group_by.to_vec(),
            ..Request::default()
        }
    }

    fn share(identity: Identity, (layer, head): (Option<usize>, Option<usize>), region: &'static str) -> Record {
        let measure = Measurement {
            layer,
            head,
            metric: SHARE_ABS.name.into(),
            region: Some(region.into()),
            value: Some(0.5),
            ..Measurement::default()
        };
        Record { identity: Arc::new(identity), measure }
    }

    fn selects_record(request: &Request, record: Record) -> bool {
        !request.select(&Records::of(&[record])).is_empty()
    }

    fn selects(request: &Request, identity: Identity) -> bool {
        selects_record(request, share(identity, (None, None), "answer"))
    }

    #[test]
    fn layers_and_heads_are_left_out_unless_somebody_speaks_of_them() {
        let levels = [(None, None), (Some(2), None), (Some(2), Some(1))];
        let selected = |request: &Request| {
            levels.map(|level| selects_record(request, share(Identity::default(), level, "answer")))
        };
        assert_eq!(selected(&request(&[], &[])), [true, false, false]);
        assert_eq!(selected(&request(&["layer=2"], &[])), [false, true, true]);
        assert_eq!(selected(&request(&["layer=3"], &[])), [false, false, false]);
        assert_eq!(selected(&request(&[], &[Column::Layer, Column::Head])), [false, false, true]);
    }

    #[test]
    fn conditions_on_one_column_are_alternatives_and_on_several_all_hold() {
        let id = |ctx_tok, bits| Identity { ctx_tok, bits, ..Identity::default() };
        let request = request(&["ctx_tok=512", "ctx_tok=1024", "bits=none"], &[]);
        assert!(selects(&request, id(512, None)) && selects(&request, id(1024, None)));
        assert!(!selects(&request, id(2048, None)) && !selects(&request, id(512, Some(8))));
    }

    #[test]
    fn a_scope_spares_the_unquantised_baseline_when_bits_are_compared() {
        let request = Request { by: Some(Column::Bits), ..request(&["scope=row"], &[]) };
        let id =
            |bits, scope: Option<&'static str>| Identity { bits, scope: scope.map(Into::into), ..Identity::default() };
        assert!(selects(&request, id(None, None)) && selects(&request, id(Some(4), Some("row"))));
        assert!(!selects(&request, id(Some(4), Some("tensor"))));
    }

    #[test]
    fn the_headline_of_attention_is_the_answer() {
        let selects = |region| selects_record(&request(&[], &[]), share(Identity::default(), (None, None), region));
        assert!(selects("answer") && !selects("filler"));
    }

    #[test]
    fn a_model_may_be_named_by_the_end_of_its_path_and_a_full_name_means_it_alone() {
        let models = ["diff", "runs/a/diff", "models/m.Q4_1.gguf"];
        let records =
            models.map(|model| share(Identity { model: model.into(), ..Identity::default() }, (None, None), "answer"));
        let selected = |named: &str| {
            let request = request(&[named], &[]).with_full_names(&Records::of(&records));
            records.clone().map(|record| selects_record(&request, record))
        };
        assert_eq!(selected("model=diff"), [true, false, false]);
        assert_eq!(selected("model=a/diff"), [false, true, false]);
        assert_eq!(selected("model=m.Q4_1"), [false, false, true]);
        assert_eq!(selected("model=m"), [false, false, false]);
    }

    #[test]
    fn metrics_may_name_a_region() {
        let name: MetricName = " share_abs [answer] ".parse().unwrap();
        assert!(name.covers(SHARE_ABS.name, Some("answer")) && !name.covers(SHARE_ABS.name, None));
        assert!("share_abs[answer".parse::<MetricName>().is_err() && "[answer]".parse::<MetricName>().is_err());
    }
}

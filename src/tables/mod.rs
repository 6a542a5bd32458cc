//! Tables of a run: each a query on its [`Frame`]. A command prints them when its run ends, and a report shows the same ones
//! from its folder, with the same numbers.

mod ablate;
mod differences;
mod heads;
mod maps;
mod means;
mod nll;
mod outliers;
mod roles;
mod sheet;
mod shots;
mod spoken;
mod strongest;
mod text;

pub(crate) use ablate::{Delta, Effect, Effects, Knockout};
pub(crate) use differences::{headlines, Versus};
pub(crate) use means::cities_name;
pub(crate) use roles::{Role, ROLES};
pub(crate) use sheet::{numbers, words, Cell, Column, Sheet};
pub(crate) use shots::robustness;
pub(crate) use spoken::Spoken;
pub(crate) use text::table;
pub use text::{json, text};

use crate::frame::{Case, Frame, Quantity};
use crate::record::metric_name;
use sheet::Kind;

/// A quantity of the records as a column.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shown<'a> {
    heading: &'a str,
    metric: &'a str,
    region: Option<&'a str>,
    kind: Kind,
}

impl<'a> Shown<'a> {
    fn quantity(self) -> Quantity<'a> {
        Quantity { metric: self.metric, region: self.region, hits: self.kind == Kind::Hits }
    }

    /// Its name in files: `share_abs[answer]`.
    fn name(self) -> String {
        metric_name(self.metric, self.region)
    }

    /// Whether it is worked out from scored tokens, where a run has them: not from means of windows.
    fn is_of_tokens(self) -> bool {
        self.metric == "ar_hit_share" || self.metric == "nll" || self.metric.starts_with("nll_")
    }
}

/// Which prompts: the numbers of a case are narrowed to them.
#[derive(Clone, Copy, Debug, Default)]
struct Prompts<'a> {
    cities: Option<&'a str>,
    depth_pct: Option<f64>,
}

impl<'a> Prompts<'a> {
    /// Those that means are usually over.
    fn usual(frame: &'a Frame) -> Self {
        Self { cities: frame.usual_cities(), depth_pct: None }
    }

    /// The same at one depth.
    fn at(self, depth_pct: Option<f64>) -> Self {
        Self { depth_pct, ..self }
    }

    fn count(self, frame: &Frame, case: &Case) -> Cell {
        Cell::count(Some(frame.count(case, self.cities, self.depth_pct)))
    }
}

/// A quantity in a case, with its 95 % interval.
fn estimate(frame: &Frame, case: &Case, shown: Shown<'_>, of: Prompts<'_>) -> Cell {
    if shown.is_of_tokens() && !frame.tokens.0.is_empty() {
        return Cell::none();
    }
    let found = frame.estimate(case, shown.quantity(), of.cities, of.depth_pct);
    found.map_or_else(Cell::none, |(x, interval)| Cell::estimate(shown.kind, x, interval))
}

/// What says which case a row is about, as far as cases differ: columns and the cells of a case.
struct Names {
    needles: bool,
    condition: bool,
}

impl Names {
    fn new(frame: &Frame) -> Self {
        let condition = frame.treated().iter().any(|treated| treated.condition.is_some());
        Self { needles: frame.asks(), condition }
    }

    fn columns(&self) -> Vec<Column> {
        let mut columns = vec![words("model"), numbers("tokens")];
        columns.extend(self.needles.then(|| [numbers("N"), numbers("R")]).into_iter().flatten());
        columns.extend(self.condition.then(|| words("condition")));
        columns.into_iter().map(Column::key).collect()
    }

    fn cells(&self, case: &Case) -> Vec<Cell> {
        let (ctx, needles, retrieve) = case.setting;
        let mut cells = vec![Cell::words(&case.model), Cell::count(Some(ctx))];
        let asked = [Cell::count(Some(needles)), Cell::count(Some(retrieve))];
        cells.extend(asked.into_iter().filter(|_| self.needles));
        cells.extend(self.condition.then(|| Cell::words(case.treated.name())));
        cells
    }
}

/// Every table that a run has numbers for.
pub(crate) fn sheets(frame: &Frame) -> Vec<Sheet> {
    let mut sheets = means::sheets(frame);
    if frame.config_text("show") == "ablate" {
        // Dozens of conditions: what they change comes first, and takes the place of the differences.
        let first = ablate::sheets(frame);
        return first.into_iter().chain(sheets.into_iter().map(Sheet::details)).collect();
    }
    if frame.config_text("show") == "shots" {
        let first = shots::sheet(frame).into_iter();
        return first.chain(sheets.into_iter().map(Sheet::details)).chain(differences::sheet(frame)).collect();
    }
    if !frame.drawn.is_empty() {
        // Of one prompt: what is drawn comes first.
        return maps::sheet(frame).into_iter().chain(sheets.into_iter().map(Sheet::details)).collect();
    }
    sheets.extend(nll::sheets(frame));
    sheets.extend(differences::sheet(frame));
    sheets.extend(outliers::sheets(frame));
    sheets.extend(heads::sheet(frame));
    sheets.extend(roles::sheets(frame));
    sheets
}

/// Tables for the second look that a preset is about.
fn of_preset(show: &str) -> &'static [&'static str] {
    match show {
        "ratio" => &["regions", "depth", "conventions", "shape", "heads"],
        "heads" => &["roles", "sinks"],
        "outliers" => &["outliers-by-layer"],
        _ => &[],
    }
}

/// What the paper has, in numbers to be put beside ours where prompts are of a like form: not of text of others.
fn paper(frame: &Frame) -> Option<&'static str> {
    let show = frame.config_text("show");
    let own = frame.config("own_prompts").and_then(serde_json::Value::as_bool).unwrap_or(false);
    if !own || (show != "outliers" && !frame.asks()) {
        return None;
    }
    Some(match show {
        "ratio" => {
            "\
The paper (Table 3; 3B models, signed shares, other prompts; mean over heads and
layers, depths 0, 25, 50, 75, 100 %):
  Transformer  answer  3  3  3  7  9 %   noise 51 54 52 49 49 %
  DIFF         answer 27 30 31 32 40 %   noise  1  2  2  2  1 %"
        }
        "quantize" => {
            "\
The paper (Figure 8; 3B models, HellaSwag zero-shot, read off the figure to
about 2 points):
  Transformer  65 % to 8 bits, 50 % at 6, 40 % at 4
  DIFF         65 % to 6 bits, 60 % at 4: `4-bit DIFF ~ 6-bit Transformer`"
        }
        "outliers" => {
            "\
The paper (Table 5; 3B models, 0.4M tokens of their own text):
                        top-1   top-2   top-3  top-10 top-100  median
  logits  Transformer   318.0   308.2   304.9   284.7   251.5     5.4
          DIFF           38.8    38.8    37.3    32.0    27.4     3.3
  hidden  Transformer  3608.6  3607.4  3603.6  3552.1  2448.2     0.6
          DIFF         1688.2  1672.5  1672.1  1624.3   740.9     1.2"
        }
        _ => return None,
    })
}

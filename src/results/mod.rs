//! Results: from records to what people read, each step once.
//!
//! 1. **Select** from [`Records`], those of one run in its [`Frame`] or those of several: with a `Query`, or by what `compare`
//!    is asked for, its [request](compare).
//! 2. **Pair.** Records that differ only in [columns](names::Column) that are compared are joined: models, conditions, runs, training
//!    seeds, and differences of differences. What is made of one seed is one prompt.
//! 3. **Estimate.** Means and proportions (`estimate.rs`), and [differences](Difference) with intervals and tests, for each
//!    [row](Row).
//! 4. **Tabulate.** [Tables](table) as data, those of runs as values (`run_table.rs`).
//! 5. **Print.** [Tables](mod@print) as text, Markdown, JSON and CSV.
//!
//! Names, units and headings of metrics are those of the [catalogue](names::metric).

pub mod compare;
mod config;
pub(crate) mod difference;
pub(crate) mod differences;
mod estimate;
mod findings;
pub mod folder;
mod frame;
pub mod manifest;
pub(crate) mod pair;
pub mod print;
pub(crate) mod query;
pub mod record;
mod records;
mod rows;
pub(crate) mod run_table;
pub(crate) mod screen;
mod setting;
pub mod table;
mod tokens;

pub use compare::{Counts, MetricName, Where};
pub use config::{LeftOut, RunConfig};
pub use difference::{Difference, Test, Verdict};
pub(crate) use estimate::Estimate;
pub use findings::{AskedContext, DrawnHead, Findings, MassiveAt, RankedHead, Said, SegmentText};
pub(crate) use frame::{of_head, of_model, under, Sides, SIDES};
pub use frame::{About, Frame, FrameBuilder};
pub(crate) use query::Query;
pub(crate) use records::RecordRef;
pub use records::Records;
pub use rows::{Compared, Row};
pub use setting::Setting;
pub(crate) use tokens::{bins, cumulative, Bin};
pub use tokens::{Scored, ScoredToken, ScoredWindow, TokenKind, Tokens};

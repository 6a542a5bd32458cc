//! Results: from records to what people read, each step once.
//!
//! 1. **Select.** Records become [cells](cells): a run's through a [`Frame`] and its [`Pick`]s, those of several runs through a
//!    [selection](select) of metrics and columns.
//! 2. **Pair.** [Samples](sample) are grouped by prompt and joined cell by cell: models, conditions, runs, training seeds, and
//!    differences of differences.
//! 3. **Estimate.** [Means and proportions](estimate), and [differences](difference) with intervals and tests.
//! 4. **View.** [Tables](view) as data.
//! 5. **Print.** [Tables](print) as text, Markdown, JSON and CSV.
//!
//! Names, units and headings of metrics are those of the [catalogue](crate::results::metric).

mod case;
mod cells;
pub mod compare;
mod difference;
mod estimate;
mod field;
pub mod folder;
mod frame;
pub mod manifest;
pub mod metric;
mod numbers;
mod pick;
pub mod print;
pub mod record;
mod rows;
mod sample;
mod select;
mod setting;
pub mod table;
mod tokens;
pub(crate) mod view;
pub(crate) mod within;

pub use case::{Case, ConditionKey};
pub use cells::Counts;
pub use difference::{Difference, Test, Verdict};
pub(crate) use estimate::Estimate;
pub use field::Field;
pub use frame::{About, Frame, FrameBuilder, HeadPlace};
pub use pick::Pick;
pub use rows::Row;
pub(crate) use sample::differences_by_seed;
pub use select::{MetricName, Metrics, Where};
pub(crate) use setting::setting_name;
pub use setting::Setting;
pub use tokens::{Scored, TokenKind, Tokens};

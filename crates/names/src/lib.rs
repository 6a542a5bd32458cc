//! The vocabulary of difftool: what records, prompts, models, figures and the command line all speak of.
//!
//! * [`Column`]: the columns of records, with their values.
//! * [`metric`]: the catalogue of metrics, with units, labels and meanings.
//! * [`Condition`]: what is done to attention, and the grammar of its names.
//! * [`Region`]: the parts of a prompt; [`HeadPlace`]: a head of a layer.
//! * [`ModelInfo`]: what a run says of a model; [`ShortNames`] and [`Replicates`]: names of models, shortened and taken apart.
//! * [`values`]: numbers of tokens and ranges, as they are typed.
//!
//! It knows statistics (an interval is part of a number), and nothing else of difftool.
//!
//! ```
//! use names::{Replicates, ShortNames};
//!
//! let models = ["runs/a/model".to_owned(), "runs/b/model".to_owned()];
//! assert_eq!(ShortNames::of(&models).name("runs/a/model"), "a");
//! assert_eq!(Replicates::default().split("runs/norm/diff/seed-3"), Some(("runs/norm/diff".to_owned(), 3)));
//! ```

pub mod column;
pub mod condition;
mod head;
mod lists;
pub mod metric;
mod model;
mod region;
mod segment;
pub mod values;

pub use column::{Column, Cut, Value};
pub use condition::{Condition, UNTREATED};
pub use head::{HeadPlace, LayersAndHeads};
pub use lists::{distinct, hint, is_short_for, joined, repeated, Replicates, ShortNames, SEED_FOLDERS};
pub use metric::Number;
pub use model::{is_formula, ModelInfo, WeightsState};
pub use region::{Region, REGION_MEANINGS};
pub use segment::{group_name, group_segments, segment_index, segment_name, SegmentKind};

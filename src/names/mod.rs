//! The vocabulary of all other modules: columns of records and their values, the catalogue of metrics, regions of prompts, places of
//! heads, and lists of names.

pub(crate) mod column;
mod head;
pub(crate) mod lists;
pub mod metric;
mod region;

pub use column::Column;
pub(crate) use column::{Cut, Value};
pub use head::{HeadPlace, LayersAndHeads};
pub(crate) use lists::{distinct, hint, is_short_for, joined, repeated};
pub use lists::{Replicates, ShortNames, SEED_FOLDERS};
pub(crate) use metric::Number;
pub use region::Region;

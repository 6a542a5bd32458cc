//! Figures of runs: values that say how a table is drawn, and differences as panels of a forest. The package `plot` draws them.

mod comparison;
mod view;

pub(crate) use self::comparison::{compared_words, panels_of_rows};
pub(crate) use self::view::{Over, Panel, RunFigure, View};

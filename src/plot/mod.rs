//! Figures: plain data in, PNG out. Nothing else draws.
//!
//! * [`accuracy`]: how often the needle was found, by depth and length, in the familiar needle colours;
//! * [`allocation`]: where the attention went, stacked by region (the paper's Figure 1);
//! * [`curves`]: training curves.
//!
//! Each makes a [`Figure`], to be saved with its recipe: what was run to get it, in text chunks of the PNG
//! ([`read_recipe`]). A figure depends on its data alone: the same data give the same bytes.

mod accuracy;
mod allocation;
mod colour;
mod curves;
mod figure;
mod font;
mod png;

pub use self::accuracy::{accuracy, AccuracyPanel};
pub use self::allocation::{allocation, AllocationPanel, Bar};
pub use self::curves::{curves, Curve, CurvePanel};
pub use self::figure::Figure;
pub use self::png::read_recipe;

/// The distinct strings in the order of their first appearance.
fn distinct<'a>(all: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for one in all {
        if !seen.contains(one) {
            seen.push(one.clone());
        }
    }
    seen
}

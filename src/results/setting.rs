//! Settings of prompts: context and needles.

use crate::prompts::shots::order_of;
use crate::results::record::Identity;

/// Context, needles in the text, needles asked for; no needles for plain text.
pub type Setting = (usize, usize, usize);

/// Returns the name of a setting: `N=4 R=2`.
pub(crate) fn setting_name(needles: usize, retrieve: usize) -> String {
    format!("N={needles} R={retrieve}")
}

/// Returns a depth as a key.
pub(super) fn millipct(depth_pct: f64) -> u64 {
    (depth_pct * 1000.0).round() as u64
}

/// Returns context, needles and questions of a prompt.
pub(super) fn setting_of(id: &Identity) -> Setting {
    (id.ctx_tok, id.needles.unwrap_or(0), id.retrieve.unwrap_or(0))
}

/// Returns the set that a prompt's cities come from. Many-shot prompts, whose words are the same, have the order of their
/// examples instead.
pub(super) fn cities_of(id: &Identity) -> &str {
    order_of(&id.task).or(id.cities.as_deref()).unwrap_or_default()
}

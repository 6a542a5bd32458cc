//! Titles of panels, in as many lines as they need.

use super::figure::Figure;
use super::text::{PANEL_DETAIL, PANEL_TITLE};

/// The title of a panel, and a detail after or below it.
pub(super) struct PanelTitle {
    title: Vec<String>,
    detail: Vec<String>,
    /// Distance of the detail from the left, if it stands after the title.
    beside: Option<f64>,
}

/// Height of a title of one line.
const HEIGHT: f64 = 50.0;
/// Distance of the last line from the panel.
const ABOVE: f64 = 28.0;
/// Distance between lines.
const LINE: f64 = 28.0;
/// Distance of a detail from the title before it.
const GAP: f64 = 14.0;

impl PanelTitle {
    /// Breaks a title and its detail, which may be empty, into lines that are no wider than `room`.
    pub(super) fn new(title: &str, detail: &str, room: f64) -> Self {
        let title = PANEL_TITLE.wrap(title, room);
        let after = title.last().map_or(0.0, |last| PANEL_TITLE.width(last) + GAP);
        let beside = (after + PANEL_DETAIL.width(detail) <= room).then_some(after);
        let mut detail = PANEL_DETAIL.wrap(detail, room);
        detail.retain(|line| !line.is_empty());
        Self { title, detail, beside }
    }

    /// The height with the distance from the panel.
    pub(super) fn height(&self) -> f64 {
        let details = if self.beside.is_some() { 0 } else { self.detail.len() };
        HEIGHT + LINE * (self.title.len() + details - 1) as f64
    }

    /// The largest height of some titles.
    pub(super) fn highest<'a>(titles: impl IntoIterator<Item = &'a Self>) -> f64 {
        titles.into_iter().map(Self::height).fold(0.0, f64::max)
    }

    /// Draws it above the upper left corner of a panel.
    pub(super) fn draw(&self, figure: &mut Figure, (x, y): (f64, f64)) {
        let mut line = y - ABOVE - (self.height() - HEIGHT);
        for title in &self.title {
            figure.text((x, line), title, PANEL_TITLE);
            line += LINE;
        }
        for detail in &self.detail {
            match self.beside {
                Some(after) => figure.text((x + after, line - LINE), detail, PANEL_DETAIL),
                None => figure.text((x, line), detail, PANEL_DETAIL),
            }
            line += LINE;
        }
    }
}

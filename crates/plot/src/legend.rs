//! Styles of lines, the same in all panels of a figure, and legends, in rows above the panels.
//!
//! The legends of plotters are boxes inside a panel, and measure their names with another font than ours.

use super::colour::{self, CURVES};
use super::figure::{Area, Figure};
use super::text::{Anchor, TextFormat, TICK};
use names::{distinct, Replicates, ShortNames};
use plotters::style::RGBColor;

/// Width and dashes of lines, in order.
const STROKES: [(f64, &[f64]); 5] =
    [(5.5, &[]), (4.0, &[15.0, 6.0]), (3.5, &[7.0, 5.0]), (3.0, &[15.0, 4.0, 3.0, 4.0]), (3.0, &[3.0, 4.0])];

/// The style of one line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LineStyle {
    pub(super) colour: RGBColor,
    /// Marker of its points.
    pub(super) marker: usize,
    thickness: f64,
    dashes: &'static [f64],
}

impl LineStyle {
    /// The style of the `i`-th line with the colour `hue`. The first line is the widest and the others are dashed, so
    /// that coinciding lines are all visible. Lines with the same colour have different dashes.
    fn new(hue: usize, i: usize) -> Self {
        let (thickness, _) = STROKES[i.min(STROKES.len() - 1)];
        let (_, dashes) = STROKES[(i + hue / CURVES.len()) % STROKES.len()];
        Self { colour: colour::curve(hue), marker: i, thickness, dashes }
    }

    /// Draws a line through points.
    pub(super) fn draw(&self, figure: &mut Figure, points: &[(f64, f64)]) {
        figure.dashed_line(points, self.colour, self.thickness, self.dashes);
    }
}

/// The styles of lines by name, in order.
pub(super) struct LineStyles {
    pub(super) names: Vec<String>,
    styles: Vec<LineStyle>,
}

impl LineStyles {
    /// Assigns styles to names, of which each is of a series. Those of one series share a colour, and so do models that differ only
    /// by their training seed, as `diff/seed-1` and `diff/seed-2`. `known`: series that have their colours in this order, also in
    /// figures that lack some of them.
    pub(super) fn new(names: Vec<String>, series: &[String], known: &[String]) -> Self {
        let replicates = Replicates::default();
        let recipes: Vec<String> = series.iter().map(|name| replicates.recipe(name)).collect();
        let known = if recipes.iter().any(|recipe| known.contains(recipe)) { known } else { &[] };
        let hues = distinct(known.iter().chain(&recipes));
        let has_one_each = distinct(recipes.iter()).len() == names.len();
        let mut styles = Vec::new();
        for (i, recipe) in recipes.iter().enumerate() {
            let hue = hues.iter().position(|known| known == recipe).unwrap_or(0);
            let before = recipes[..i].iter().filter(|other| *other == recipe).count();
            styles.push(LineStyle::new(hue, if has_one_each { hue } else { before }));
        }
        Self { names, styles }
    }

    /// No lines.
    pub(super) fn none() -> Self {
        Self { names: Vec::new(), styles: Vec::new() }
    }

    /// The place and the style of the line with this name.
    pub(super) fn style(&self, name: &str) -> (usize, LineStyle) {
        let place = self.names.iter().position(|known| known == name).unwrap_or(0);
        (place, self.styles[place])
    }
}

/// The symbol before a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LegendSymbol {
    Line(LineStyle),
    MarkedLine(LineStyle),
    Marker(LineStyle),
    Square(RGBColor),
}

impl LegendSymbol {
    /// The distance from its left end to the name.
    fn width(self) -> f64 {
        match self {
            Self::Line(_) | Self::MarkedLine(_) => 56.0,
            Self::Square(_) => 36.0,
            Self::Marker(_) => 24.0,
        }
    }
}

const MARKER: f64 = 14.0;
/// Height of a row.
const ROW: f64 = 40.0;
const BETWEEN: f64 = 46.0;
const NAME: TextFormat = TICK.at(Anchor::Left);

/// Names and their symbols, ready to draw.
pub(super) struct Legend {
    /// (Name, symbol, distance from the left, row).
    entries: Vec<(String, LegendSymbol, f64, usize)>,
}

impl Legend {
    /// Arranges names in rows that are no wider than `room`.
    pub(super) fn new(names: impl IntoIterator<Item = (String, LegendSymbol)>, room: f64) -> Self {
        let mut entries = Vec::new();
        let mut x = 0.0;
        let mut row = 0;
        for (name, symbol) in names {
            let name = NAME.fit(&name, room - symbol.width());
            let width = symbol.width() + NAME.width(&name);
            if x > 0.0 && x + width > room {
                (x, row) = (0.0, row + 1);
            }
            entries.push((name, symbol, x, row));
            x += width + BETWEEN;
        }
        Self { entries }
    }

    /// The legend of lines, each with its `symbol` and its short name.
    pub(super) fn of_lines(lines: &LineStyles, symbol: fn(LineStyle) -> LegendSymbol, room: f64) -> Self {
        let short = ShortNames::of(&lines.names);
        let names = lines.names.iter().map(|name| short.name(name).to_owned());
        Self::new(names.zip(lines.styles.iter().map(|&style| symbol(style))), room)
    }

    /// The entries of regions.
    pub(super) fn regions(names: &[String]) -> impl Iterator<Item = (String, LegendSymbol)> + '_ {
        names.iter().map(|name| (colour::region_name(name).to_owned(), LegendSymbol::Square(colour::region(name))))
    }

    /// The height, which is 0 without names.
    pub(super) fn height(&self) -> f64 {
        self.entries.last().map_or(0.0, |(_, _, _, row)| ROW * (row + 1) as f64)
    }

    pub(super) fn draw(&self, figure: &mut Figure, (left, top): (f64, f64)) {
        for (name, symbol, x, row) in &self.entries {
            let x = left + x;
            let y = top + 12.0 + ROW * *row as f64;
            match symbol {
                LegendSymbol::Square(colour) => {
                    figure.fill(Area { x, y: y - 12.0, width: 24.0, height: 24.0 }, *colour);
                }
                LegendSymbol::Line(style) => style.draw(figure, &[(x, y), (x + 43.0, y)]),
                LegendSymbol::MarkedLine(style) => {
                    style.draw(figure, &[(x, y), (x + 43.0, y)]);
                    figure.marker((x + 21.5, y), style.marker, MARKER, style.colour);
                }
                LegendSymbol::Marker(style) => figure.marker((x + 8.0, y), style.marker, MARKER, style.colour),
            }
            figure.text((x + symbol.width(), y), name, NAME);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn styles(names: &[String]) -> Vec<LineStyle> {
        LineStyles::new(names.to_vec(), names, &[]).styles
    }

    #[test]
    fn no_two_of_thirty_lines_look_alike() {
        let styles = styles(&(0..30).map(|i| format!("m{i}")).collect::<Vec<_>>());
        for (i, style) in styles.iter().enumerate() {
            let alike = |other: &LineStyle| (other.colour, other.dashes) == (style.colour, style.dashes);
            assert!(!styles[..i].iter().any(alike), "line {i}");
        }
    }

    #[test]
    fn seeds_of_a_recipe_share_its_colour_and_differ_in_markers_and_dashes() {
        let names = ["a/seed-1", "a/seed-2", "b/seed-1", "b/seed-2", "c"].map(String::from);
        let styles = styles(&names);
        assert!(styles[0].colour == styles[1].colour && styles[0].marker != styles[1].marker);
        assert_ne!(styles[0].dashes, styles[1].dashes);
        assert_eq!((styles[0].marker, styles[0].dashes), (styles[2].marker, styles[2].dashes));
        assert!(styles[0].colour != styles[2].colour && styles[2].colour != styles[4].colour);
    }

    #[test]
    fn a_model_has_its_colour_also_where_others_are_missing_and_both_of_its_lines_have_it() {
        let models = ["transformer", "diff", "diff-v2"].map(String::from);
        let all = LineStyles::new(models.to_vec(), &models, &models);
        let two = LineStyles::new(models[1..].to_vec(), &models[1..], &models);
        assert_eq!(two.style("diff").1, all.style("diff").1);
        let names = ["diff, best", "diff, random"].map(String::from);
        let of_diff = [models[1].clone(), models[1].clone()];
        let [best, random] = LineStyles::new(names.to_vec(), &of_diff, &models).styles[..] else { panic!() };
        assert!(best.colour == all.style("diff").1.colour && random.colour == best.colour);
        assert!(random.marker != best.marker && random.dashes != best.dashes);
    }

    #[test]
    fn names_that_do_not_fit_into_a_row_begin_another() {
        let names = ["transformer", "diff", "diff-v2"].map(String::from);
        let styles = LineStyles::new(names.to_vec(), &names, &[]);
        let rows = |room: f64| Legend::of_lines(&styles, LegendSymbol::Line, room).height() / ROW;
        assert_eq!((rows(2000.0), rows(250.0)), (1.0, 3.0));
        assert_eq!(Legend::of_lines(&LineStyles::none(), LegendSymbol::Line, 100.0).height(), 0.0);
    }
}

//! Forest plots: differences with their intervals, one below the other, about a line at zero.

use super::axis::{draw_axes, draw_x_label, extent, Axis};
use super::colour::{FAINT_INK, INK};
use super::figure::{Area, Figure, FigureHeading};
use super::legend::{Legend, LegendSymbol, LineStyle, LineStyles};
use super::lines::PointEstimate;
use super::text::{Anchor, TextFormat, TICK};
use crate::base::names::distinct;
use crate::results::differences::{difference_cell, group_value};
use crate::results::screen::column_words;
use crate::results::{Column, Row};
use crate::treatments::condition_words;
use anyhow::{ensure, Result};

/// Differences of one quantity, on one axis.
#[derive(Clone, Debug)]
pub struct ForestPanel {
    /// The quantity, for example `share_abs[answer]`.
    pub title: String,
    /// Its unit; empty for pure numbers.
    pub unit: String,
    /// The differences, from the top.
    pub rows: Vec<ForestRow>,
}

/// One difference.
#[derive(Clone, Debug)]
pub struct ForestRow {
    /// Label left of it, for example `ctx_tok=4096`. It is drawn once for rows below each other that share it.
    pub label: String,
    /// Name of its series, for example `diff`, which has the same colour and marker in all panels.
    pub series: String,
    /// The difference and its interval.
    pub difference: PointEstimate,
    /// Text right of it, for example the numbers.
    pub text: String,
}

impl ForestPanel {
    /// Returns a panel for each metric and region of rows, labelled with the groups that tell its rows apart.
    pub(crate) fn of_rows(rows: &[Row], groups: &[Column]) -> Vec<Self> {
        rows.chunk_by(|a, b| a.name() == b.name()).map(|rows| Self::of_metric(rows, groups)).collect()
    }

    /// The panel of rows with the same metric and region. Rows are named by what has more values, what is compared or the
    /// groups, and coloured by the other; rows with one name are next to each other.
    fn of_metric(rows: &[Row], groups: &[Column]) -> Self {
        let mut groups = groups.to_vec();
        groups.retain(|column| rows.iter().any(|row| row.group.get(column.name()) != rows[0].group.get(column.name())));
        let label = rows[0].label();
        let mut drawn = Vec::new();
        for row in rows {
            let values = groups.iter().filter_map(|&column| group_value(row, column));
            let values: Vec<String> = values.map(|value| compared_words(&value)).collect();
            let other = compared_words(&row.other);
            drawn.push(ForestRow {
                label: if values.is_empty() { other.clone() } else { values.join(" · ") },
                series: other,
                difference: PointEstimate::scaled_difference(&row.difference, label.kind.factor()),
                text: difference_cell(row).line().replace('-', "−"),
            });
        }
        let labels = distinct(drawn.iter().map(|row| &row.label));
        if distinct(drawn.iter().map(|row| &row.series)).len() > labels.len() {
            drawn.iter_mut().for_each(|row| std::mem::swap(&mut row.label, &mut row.series));
        }
        let labels = distinct(drawn.iter().map(|row| &row.label));
        drawn.sort_by_key(|row| labels.iter().position(|label| *label == row.label));
        Self { title: label.text.clone(), unit: label.difference_unit().to_owned(), rows: drawn }
    }
}

/// Words for what is compared, or for the value of a group: `512 tokens` for `ctx_tok=512`.
pub(crate) fn compared_words(name: &str) -> String {
    let column = name.split_once('=').and_then(|(column, value)| Some((column.parse::<Column>().ok()?, value)));
    match column {
        Some((Column::Condition, "none")) => "the untreated passes".to_owned(),
        Some((Column::Condition, condition)) => condition_words(condition),
        Some((column, value)) => column_words(column, value),
        None => condition_words(name),
    }
}

const LEFT: f64 = 44.0;
const RIGHT: f64 = 44.0;
const PLOT_WIDTH: (f64, f64) = (240.0, 620.0);
/// Distance between the plot and the texts beside it.
const GAP: f64 = 22.0;
const LABEL_MAX_WIDTH: f64 = 640.0;
const TEXT_MAX_WIDTH: f64 = 520.0;
const TITLE_HEIGHT: f64 = 50.0;
const ROW: f64 = 38.0;
/// Space above the first row and below the last one.
const PADDING: f64 = 8.0;
/// Numbers and label below a panel, and the gap to the next.
const BELOW: f64 = 104.0;
const WHISKER: f64 = 3.0;
/// Half the height of a cap.
const CAP: f64 = 6.0;
const MARKER: f64 = 13.0;

const LABEL: TextFormat = TICK.at(Anchor::Right);
const TEXT: TextFormat = TICK.at(Anchor::Left).in_colour(FAINT_INK);

/// Draws the panels one below the other. `x_label` is, for example, `difference from transformer`.
///
/// # Errors
/// If there is nothing to draw, a number is not finite, or the sheet is too large.
pub fn forest(panels: &[ForestPanel], heading: &FigureHeading, x_label: &str) -> Result<Figure> {
    let rows: Vec<&ForestRow> = panels.iter().flat_map(|panel| &panel.rows).collect();
    ensure!(!rows.is_empty(), "no differences to draw");
    let label_width = rows.iter().map(|row| LABEL.width(&row.label)).fold(0.0, f64::max).min(LABEL_MAX_WIDTH);
    let text_width = rows.iter().map(|row| TEXT.width(&row.text)).fold(0.0, f64::max).min(TEXT_MAX_WIDTH);
    let x = LEFT + label_width + GAP;
    let room = heading.page.room() - x - RIGHT - PLOT_WIDTH.0;
    // A narrow page has no room for the numbers.
    let text_room = if GAP + text_width <= room { GAP + text_width } else { 0.0 };
    let plot_width = (PLOT_WIDTH.0 + room - text_room).clamp(PLOT_WIDTH.0, PLOT_WIDTH.1);
    let width = x + plot_width + text_room + RIGHT;
    let series = LineStyles::new(distinct(rows.iter().map(|row| &row.series)));
    let are_named = rows.iter().all(|row| row.label == row.series);
    let in_legend = if are_named || series.names.len() == 1 { &LineStyles::new(Vec::new()) } else { &series };
    let legend = Legend::of_lines(in_legend, LegendSymbol::Marker, width - LEFT - RIGHT);
    let panels_height = panels.iter().map(|panel| TITLE_HEIGHT + height(panel) + BELOW).sum::<f64>();
    let (mut figure, top) = Figure::headed(heading, width, legend.height() + panels_height)?;
    legend.draw(&mut figure, (LEFT, top));
    let mut y = top + legend.height();
    for panel in panels {
        let area = Area { x, y: y + TITLE_HEIGHT, width: plot_width, height: height(panel) };
        draw_panel(&mut figure, panel, area, &series, x_label, text_room > 0.0)?;
        y = area.bottom() + BELOW;
    }
    Ok(figure)
}

/// Returns the height of a panel without title and axis.
fn height(panel: &ForestPanel) -> f64 {
    ROW * panel.rows.len() as f64 + 2.0 * PADDING
}

/// Returns an axis that contains zero and all intervals.
fn x_axis(panel: &ForestPanel) -> Result<Axis> {
    let mut numbers: Vec<f64> = panel.rows.iter().flat_map(|row| row.difference.extent()).collect();
    numbers.push(0.0);
    ensure!(numbers.iter().all(|number| number.is_finite()), "{}: a difference is not finite", panel.title);
    let (lo, hi) = extent(numbers)?;
    // Only zeros: an axis about them.
    let (lo, hi) = if lo == hi { (-1.0, 1.0) } else { (lo, hi) };
    Ok(Axis::linear(lo, hi, true).with_margin())
}

fn draw_panel(
    figure: &mut Figure,
    panel: &ForestPanel,
    area: Area,
    series: &LineStyles,
    x_label: &str,
    has_texts: bool,
) -> Result<()> {
    let axis = x_axis(panel)?;
    figure.panel_title((area.x, area.y - 26.0), &panel.title, &panel.unit, area.width);
    draw_axes(figure, area, &axis, &Axis::categories(panel.rows.len()));
    figure.fill(Area { x: area.x + area.width * axis.place(0.0) - 1.25, width: 2.5, ..area }, INK);
    draw_x_label(figure, area, x_label, 1);
    for (i, row) in panel.rows.iter().enumerate() {
        let y = area.y + PADDING + ROW * (i as f64 + 0.5);
        let (_, LineStyle { colour, marker, .. }) = series.style(&row.series);
        if i == 0 || panel.rows[i - 1].label != row.label {
            figure.text((area.x - GAP, y), &LABEL.fit(&row.label, LABEL_MAX_WIDTH), LABEL);
        }
        if has_texts {
            figure.text((area.right() + GAP, y), &TEXT.fit(&row.text, TEXT_MAX_WIDTH), TEXT);
        }
        let [x, low, high] = row.difference.extent().map(|number| area.x + area.width * axis.place(number));
        if row.difference.interval.is_some() {
            figure.line(&[(low, y), (high, y)], colour, WHISKER);
            for x in [low, high] {
                figure.line(&[(x, y - CAP), (x, y + CAP)], colour, WHISKER);
            }
        }
        figure.marker((x, y), marker, MARKER, colour);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(differences: &[(f64, Option<(f64, f64)>)]) -> ForestPanel {
        let row = |&(value, interval): &(f64, Option<(f64, f64)>)| ForestRow {
            label: "ctx_tok=4096".into(),
            series: "diff".into(),
            difference: PointEstimate { value, interval },
            text: "+0.1".into(),
        };
        ForestPanel { title: "accuracy".into(), unit: "fraction".into(), rows: differences.iter().map(row).collect() }
    }

    #[test]
    fn the_axis_holds_zero_and_the_whiskers() {
        // Between margins of the same size: from 0 to 0.5, and to 0.
        let axis = x_axis(&panel(&[(0.3, Some((0.12, 0.48)))])).unwrap();
        let margin = axis.place(0.0);
        assert!(margin > 0.0 && (axis.place(0.5) - (1.0 - margin)).abs() < 1e-12, "{axis:?}");
        let axis = x_axis(&panel(&[(-0.3, None)])).unwrap();
        assert!(axis.place(-0.3) >= margin && (axis.place(0.0) - (1.0 - margin)).abs() < 1e-12, "{axis:?}");
    }

    #[test]
    fn rows_are_named_by_what_has_more_values_and_coloured_by_the_other() {
        let named = |models: &[&str]| {
            let mut rows = Vec::new();
            for &model in models {
                for condition in ["mask(noise)", "mask(distractor)", "silence(noise)"] {
                    let group = [("model".to_owned(), model.to_owned())].into();
                    let other = format!("condition={condition}");
                    let metric = "accuracy".to_owned();
                    rows.push(Row { other, group, metric, ..Row::default() });
                }
            }
            let panel = ForestPanel::of_rows(&rows, &[Column::Model]).remove(0);
            panel.rows.into_iter().map(|row| format!("{}: {}", row.label, row.series)).collect::<Vec<_>>()
        };
        assert_eq!(named(&["a"])[..2], ["noise hidden: noise hidden", "other needles hidden: other needles hidden"]);
        assert_eq!(named(&["a", "b"])[..2], ["noise hidden: a", "noise hidden: b"]);
        assert_eq!(named(&["a", "b", "c"])[..2], ["a: noise hidden", "a: other needles hidden"]);
    }

    #[test]
    fn zeros_are_drawn_in_the_middle() {
        assert_eq!(x_axis(&panel(&[(0.0, Some((0.0, 0.0)))])).unwrap().place(0.0), 0.5);
    }

    #[test]
    fn a_panel_for_each_quantity_is_drawn_below_the_other() {
        let panels = [panel(&[(0.3, Some((0.1, 0.5)))]), panel(&[(-2.0, None), (1.0, Some((0.0, 2.0)))])];
        assert!(forest(&panels, &FigureHeading::default(), "difference").is_ok());
    }

    #[test]
    fn differences_that_cannot_be_drawn_are_errors() {
        let refusal = |panels: &[ForestPanel]| forest(panels, &FigureHeading::default(), "").err().unwrap().to_string();
        assert!(refusal(&[]).contains("no differences") && refusal(&[panel(&[])]).contains("no differences"));
        assert!(refusal(&[panel(&[(f64::NAN, None)])]).contains("not finite"));
        assert!(refusal(&[panel(&[(0.3, None); 200_000])]).contains("larger than"));
    }
}

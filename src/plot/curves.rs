//! Training curves: one panel per metric, one line per model.

use super::colour::{self, AXIS, GRID};
use super::distinct;
use super::figure::{Anchor, Area, Figure, Type, AXIS_LABEL, HEADING_HEIGHT, TICK};
use anyhow::{ensure, Result};

/// The curves of one metric.
#[derive(Clone, Debug)]
pub struct CurvePanel {
    /// What the panel shows, for example `loss`.
    pub title: String,
    /// The metric with its unit, for example `loss (nats per token)`.
    pub y_label: String,
    /// Ends of the y axis; `None` takes them from the points.
    pub y_range: Option<(f64, f64)>,
    /// The curves. One name has one colour in all panels.
    pub curves: Vec<Curve>,
}

/// One named line.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Name in the legend.
    pub name: String,
    /// Points (x, y) in the order they are joined; those that are not finite are left out.
    pub points: Vec<(f64, f64)>,
}

const PANELS_ACROSS: usize = 2;
const PANEL: (f64, f64) = (616.0, 400.0);
const LEFT: f64 = 142.0;
const RIGHT: f64 = 52.0;
const BETWEEN: (f64, f64) = (154.0, 34.0);
const LEGEND_HEIGHT: f64 = 40.0;
const PANEL_TITLE_HEIGHT: f64 = 50.0;
/// Ticks and label below a panel.
const BELOW: f64 = 86.0;
const LINE: f64 = 3.5;

/// How numbers become places along an axis.
#[derive(Clone, Debug, PartialEq)]
struct Axis {
    lo: f64,
    hi: f64,
    log: bool,
    /// Where the axis is labelled.
    ticks: Vec<f64>,
}

/// Draws the panels, two across, over one kind of x (`x_label`, for example `tokens seen`), which `log_x` spaces by
/// ratios.
pub fn curves(panels: &[CurvePanel], title: &str, subtitle: &str, x_label: &str, log_x: bool) -> Result<Figure> {
    ensure!(!panels.is_empty(), "no curves to draw");
    let names = distinct(panels.iter().flat_map(|panel| &panel.curves).map(|curve| &curve.name));
    let x_axis = x_axis(panels, log_x)?;
    let across = panels.len().min(PANELS_ACROSS);
    let row_height = PANEL_TITLE_HEIGHT + PANEL.1 + BELOW + BETWEEN.1;
    let width = LEFT + PANEL.0 * across as f64 + BETWEEN.0 * (across - 1) as f64 + RIGHT;
    let top = HEADING_HEIGHT + LEGEND_HEIGHT;
    let mut figure = Figure::new(width, top + row_height * panels.len().div_ceil(across) as f64);

    figure.heading(title, subtitle);
    draw_legend(&mut figure, &names);
    for (i, panel) in panels.iter().enumerate() {
        let area = Area {
            x: LEFT + (PANEL.0 + BETWEEN.0) * (i % across) as f64,
            y: top + PANEL_TITLE_HEIGHT + row_height * (i / across) as f64,
            width: PANEL.0,
            height: PANEL.1,
        };
        draw_panel(&mut figure, panel, area, &x_axis, &names)?;
        figure.text((area.centre().0, area.bottom() + 60.0), x_label, AXIS_LABEL);
    }
    Ok(figure)
}

/// One x axis for all panels.
fn x_axis(panels: &[CurvePanel], log: bool) -> Result<Axis> {
    let points = panels.iter().flat_map(|panel| &panel.curves).flat_map(visible);
    let xs: Vec<f64> = points.map(|(x, _)| x).filter(|x| !log || *x > 0.0).collect();
    let (lo, hi) = extent(&xs)?;
    Ok(if log { Axis::log(lo, hi) } else { Axis::linear(lo.min(0.0), hi, false) })
}

fn draw_panel(figure: &mut Figure, panel: &CurvePanel, area: Area, x_axis: &Axis, names: &[String]) -> Result<()> {
    let y_axis = match panel.y_range {
        Some((lo, hi)) => Axis::linear(lo, hi, false),
        None => {
            let ys: Vec<f64> = panel.curves.iter().flat_map(visible).map(|(_, y)| y).collect();
            let (lo, hi) = extent(&ys)?;
            Axis::linear(lo, hi, true)
        }
    };
    figure.panel_title((area.x, area.y - 28.0), &panel.title, "", area.width);
    draw_axes(figure, area, x_axis, &y_axis);
    figure.text((area.x - 98.0, area.centre().1), &panel.y_label, Type { anchor: Anchor::Upward, ..AXIS_LABEL });
    for curve in &panel.curves {
        let colour = colour::curve(names.iter().position(|name| *name == curve.name).unwrap_or(0));
        let inside = visible(curve).filter(|(x, _)| *x >= x_axis.lo);
        let places: Vec<(f64, f64)> = inside
            .map(|(x, y)| {
                let up = y_axis.place(y).clamp(0.0, 1.0);
                (area.x + area.width * x_axis.place(x), area.bottom() - area.height * up)
            })
            .collect();
        figure.line(&places, colour, LINE);
    }
    Ok(())
}

fn draw_axes(figure: &mut Figure, area: Area, x_axis: &Axis, y_axis: &Axis) {
    for &tick in &y_axis.ticks {
        let y = area.bottom() - area.height * y_axis.place(tick);
        figure.fill(Area { y: y - 0.75, height: 1.5, ..area }, GRID);
        figure.text((area.x - 14.0, y), &y_axis.number(tick), Type { anchor: Anchor::Right, ..TICK });
    }
    for &tick in &x_axis.ticks {
        let x = area.x + area.width * x_axis.place(tick);
        figure.fill(Area { x: x - 0.75, width: 1.5, ..area }, GRID);
        figure.text((x, area.bottom() + 24.0), &x_axis.number(tick), TICK);
    }
    figure.frame(area, AXIS, 1.5);
}

fn draw_legend(figure: &mut Figure, names: &[String]) {
    let kind = Type { anchor: Anchor::Left, ..TICK };
    let mut x = LEFT;
    for (i, name) in names.iter().enumerate() {
        let y = HEADING_HEIGHT + 12.0;
        figure.line(&[(x, y), (x + 38.0, y)], colour::curve(i), 2.0 * LINE);
        figure.text((x + 54.0, y), name, kind);
        x += 54.0 + kind.width(name) + 46.0;
    }
}

/// The points of a curve that can be drawn.
fn visible(curve: &Curve) -> impl Iterator<Item = (f64, f64)> + '_ {
    curve.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite())
}

fn extent(numbers: &[f64]) -> Result<(f64, f64)> {
    ensure!(!numbers.is_empty(), "no points to draw");
    Ok((numbers.iter().copied().fold(f64::MAX, f64::min), numbers.iter().copied().fold(f64::MIN, f64::max)))
}

impl Axis {
    /// Steps of 1, 2 or 5 × 10ⁿ, some five of them; `wide` moves the ends out to whole steps.
    fn linear(lo: f64, hi: f64, wide: bool) -> Self {
        let hi = if hi > lo { hi } else { lo + lo.abs().max(1.0) };
        let rough = (hi - lo) / 5.0;
        let decade = 10_f64.powf(rough.log10().floor());
        let step = decade * [1.0, 2.0, 5.0].into_iter().find(|step| step * decade >= rough).unwrap_or(10.0);
        let (lo, hi) = if wide { ((lo / step).floor() * step, (hi / step).ceil() * step) } else { (lo, hi) };
        let whole = (lo / step - 1e-9).ceil() as i64..=(hi / step + 1e-9).floor() as i64;
        Self { lo, hi, log: false, ticks: whole.map(|i| i as f64 * step).collect() }
    }

    /// Powers of ten, with 2 and 5 between them on a short axis.
    fn log(lo: f64, hi: f64) -> Self {
        let hi = if hi > lo { hi } else { 10.0 * lo };
        let between: &[f64] = if hi / lo < 1e3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let decades = lo.log10().floor() as i32..=hi.log10().ceil() as i32;
        let all = decades.flat_map(|decade| between.iter().map(move |step| step * 10_f64.powi(decade)));
        Self { lo, hi, log: true, ticks: all.filter(|tick| (lo * 0.999..=hi * 1.001).contains(tick)).collect() }
    }

    /// Where `x` lies, from 0 at the beginning of the axis to 1 at its end.
    fn place(&self, x: f64) -> f64 {
        let scale = |x: f64| if self.log { x.ln() } else { x };
        (scale(x) - scale(self.lo)) / (scale(self.hi) - scale(self.lo))
    }

    /// A tick in few characters: 0.25, 20, 5k, 1.5M.
    fn number(&self, tick: f64) -> String {
        let largest = if self.log { tick } else { self.lo.abs().max(self.hi.abs()) };
        let (unit, suffix) = match largest {
            1e9.. => (1e9, "G"),
            1e6.. => (1e6, "M"),
            1e4.. => (1e3, "k"),
            _ => (1.0, ""),
        };
        if tick == 0.0 {
            return "0".into();
        }
        // Six digits hide what binary fractions add to a decimal tick.
        let rounded: f64 = format!("{:.6e}", tick / unit).parse().expect("a printed number can be read");
        format!("{rounded}{suffix}").replace('-', "−")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(axis: &Axis) -> Vec<String> {
        axis.ticks.iter().map(|&tick| axis.number(tick)).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(numbers(&Axis::linear(0.0, 1.0, false)), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(numbers(&Axis::linear(0.31, 6.2, true)), ["0", "2", "4", "6", "8"]);
        assert_eq!(numbers(&Axis::linear(0.0, 98e6, false)), ["0", "20M", "40M", "60M", "80M"]);
        assert_eq!(numbers(&Axis::linear(-0.3, 0.1, true)), ["−0.3", "−0.2", "−0.1", "0", "0.1"]);
        assert_eq!(numbers(&Axis::log(8e4, 5e7)), ["100k", "200k", "500k", "1M", "2M", "5M", "10M", "20M", "50M"]);
        assert_eq!(numbers(&Axis::log(1.0, 1e4)), ["1", "10", "100", "1000", "10k"]);
    }

    #[test]
    fn a_logarithmic_axis_is_spaced_by_ratios() {
        let axis = Axis::log(10.0, 1000.0);
        assert!((axis.place(100.0) - 0.5).abs() < 1e-12);
        assert_eq!((axis.place(10.0), axis.place(1000.0)), (0.0, 1.0));
    }

    #[test]
    fn a_constant_curve_and_gaps_can_be_drawn() {
        let flat = Curve { name: "flat".into(), points: vec![(0.0, 2.0), (5.0, 2.0), (6.0, f64::NAN), (7.0, 2.0)] };
        let panel = CurvePanel { title: "loss".into(), y_label: "nats".into(), y_range: None, curves: vec![flat] };
        for log_x in [false, true] {
            assert!(curves(std::slice::from_ref(&panel), "t", "s", "tokens", log_x).is_ok());
        }
    }

    #[test]
    fn nothing_to_draw_is_an_error() {
        let panel = CurvePanel { title: "loss".into(), y_label: "nats".into(), y_range: None, curves: vec![] };
        assert!(curves(&[], "", "", "", false).is_err());
        assert!(curves(&[panel], "", "", "", false).is_err());
    }
}

//! Styles of curves: colour, marker, line width and dashes.

use super::colour::{self, CURVES};
use super::figure::Figure;
use crate::base::names::Replicates;
use plotters::style::RGBColor;

/// Line width and dashes of curves, in order.
const STROKES: [(f64, &[f64]); 5] =
    [(5.5, &[]), (4.0, &[15.0, 6.0]), (3.5, &[7.0, 5.0]), (3.0, &[15.0, 4.0, 3.0, 4.0]), (3.0, &[3.0, 4.0])];

/// The style of one curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CurveStyle {
    pub(super) colour: RGBColor,
    /// Marker of its points.
    pub(super) marker: usize,
    thickness: f64,
    dashes: &'static [f64],
}

impl CurveStyle {
    /// Creates the style of the `i`-th curve with the colour `hue`. The first curve has the widest line and the others
    /// are dashed, so that coinciding curves are all visible. Curves with the same colour have different dashes.
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

/// The styles of curves by name, in order.
pub(super) struct CurveStyles {
    names: Vec<String>,
    styles: Vec<CurveStyle>,
}

impl CurveStyles {
    /// Assigns styles to names. Models that differ only by their training seed, as `diff/seed-1` and `diff/seed-2`,
    /// share a colour.
    pub(super) fn new(names: Vec<String>) -> Self {
        let folders = Replicates::default();
        let mut recipes: Vec<(String, usize)> = Vec::new();
        let mut places = Vec::new();
        for name in &names {
            let recipe = folders.split(name).map_or_else(|| name.clone(), |(recipe, _)| recipe);
            let hue = recipes.iter().position(|(known, _)| *known == recipe).unwrap_or(recipes.len());
            match recipes.get_mut(hue) {
                Some((_, seeds)) => *seeds += 1,
                None => recipes.push((recipe, 0)),
            }
            places.push((hue, recipes[hue].1));
        }
        let alone = recipes.len() == names.len();
        let style = |(hue, seed)| CurveStyle::new(hue, if alone { hue } else { seed });
        let styles = places.into_iter().map(style).collect();
        Self { names, styles }
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns index and style of the curve with this name.
    pub(super) fn of(&self, name: &str) -> (usize, CurveStyle) {
        let place = self.names.iter().position(|known| known == name).unwrap_or(0);
        (place, self.styles[place])
    }

    /// Returns names and styles in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, CurveStyle)> {
        self.names.iter().zip(self.styles.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(names: &[String]) -> Vec<CurveStyle> {
        CurveStyles::new(names.to_vec()).styles
    }

    #[test]
    fn no_two_of_thirty_curves_look_alike() {
        let looks = looks(&(0..30).map(|i| format!("m{i}")).collect::<Vec<_>>());
        for (i, look) in looks.iter().enumerate() {
            let alike = |other: &CurveStyle| (other.colour, other.dashes) == (look.colour, look.dashes);
            assert!(!looks[..i].iter().any(alike), "curve {i}");
        }
    }

    #[test]
    fn seeds_of_a_recipe_share_its_colour_and_differ_in_markers_and_dashes() {
        let names = ["a/seed-1", "a/seed-2", "b/seed-1", "b/seed-2", "c"].map(String::from);
        let looks = looks(&names);
        assert!(looks[0].colour == looks[1].colour && looks[0].marker != looks[1].marker);
        assert_ne!(looks[0].dashes, looks[1].dashes);
        assert_eq!((looks[0].marker, looks[0].dashes), (looks[2].marker, looks[2].dashes));
        assert!(looks[0].colour != looks[2].colour && looks[2].colour != looks[4].colour);
    }

    #[test]
    fn what_is_no_seed_is_part_of_a_name() {
        let looks = looks(&["runs/seed-x", "runs/seed-1", "runs/seed-2"].map(String::from));
        assert!(looks[0].colour != looks[1].colour && looks[1].colour == looks[2].colour);
    }
}

//! `difftool compare --with`: runs beside published numbers.

use crate::bail_usage;
use crate::cli::{CompareArgs, Format};
use crate::metric::Kind;
use crate::names::distinct;
use crate::plot::{quality, FigureHeading, PointEstimate, QualityLine, QualityPanel};
use crate::report::SavedRun;
use crate::results::print::{markdown_table, sheet_json, text_table, write_sheet};
use crate::results::view::{beside, models_of, published_name, shared_places, NamedModel, Sheet};
use crate::results::{Beside, Frame, Published};
use crate::terminal::wrapped;
use anyhow::Result;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Prints the numbers of runs beside those of `with`, and draws them if a figure is asked for.
pub(super) fn run(args: &CompareArgs, with: &Path) -> Result<()> {
    let published = Published::read(with)?;
    let read = |folder: &PathBuf| Ok((folder.display().to_string(), SavedRun::read(folder)?.frame()?));
    let runs = args.inputs.iter().map(read).collect::<Result<Vec<(String, Frame)>>>()?;
    let models = models_of(&runs);
    let Some(sheet) = beside(&models, &published) else {
        bail_usage!(
            "--with {}: the runs have none of its metrics at its bits, lengths and depths; it is for runs of `quantize` \
             and `needle`",
            with.display()
        );
    };
    print(&sheet, args.format)?;
    if let Some(path) = &args.plot {
        draw(&models, &published, args, path)?;
    }
    Ok(())
}

/// Draws the first figure that has numbers by bits, or else by depth.
fn draw(models: &[NamedModel<'_>], published: &[Published], args: &CompareArgs, path: &Path) -> Result<()> {
    let Some(Drawn { of, categories, x_label, panel }) = panels(models, published).into_iter().next() else {
        bail_usage!("--plot {}: there are no numbers by bits or by depth to draw", path.display());
    };
    let subtitle = format!("dashed: {of}, of other models on other prompts");
    let heading = FigureHeading { title: "Beside published numbers", subtitle: &subtitle, page: args.page.page() };
    let recipe = crate::cmd::session::recipe(&crate::terminal::arguments(), "none", "means over prompts");
    quality(&[panel], &categories, &heading, x_label)?.save(path, &recipe)
}

fn print(sheet: &Sheet, format: Format) -> Result<()> {
    let mut out = crate::terminal::stdout();
    match format {
        Format::Table => {
            let heading = wrapped(&format!("{}. {}", sheet.title, sheet.note), "");
            writeln!(out, "{heading}\n\n{}", text_table(sheet))?;
        }
        Format::Csv => write_sheet(sheet, &mut out)?,
        Format::Json => writeln!(out, "{:#}", sheet_json(sheet))?,
        Format::Markdown => write!(out, "{}\n\n{}", sheet.note, markdown_table(sheet))?,
    }
    out.flush()?;
    Ok(())
}

/// A panel with what is published there.
struct Drawn {
    /// The figure, and what was measured.
    of: String,
    categories: Vec<String>,
    x_label: &'static str,
    panel: QualityPanel,
}

/// Panels of metrics by bits, and by depth as means over lengths.
fn panels(models: &[NamedModel<'_>], published: &[Published]) -> Vec<Drawn> {
    let places = shared_places(models, published);
    let mut found = Vec::new();
    for figure in distinct(places.iter().map(|beside| &beside.place.figure)) {
        let of_figure = |beside: &&Beside| beside.place.figure == *figure;
        let (by_bits, by_depth): (Vec<&Beside>, Vec<&Beside>) =
            places.iter().filter(of_figure).partition(|beside| beside.place.bits.is_some());
        let by_depth: Vec<&Beside> = by_depth.into_iter().filter(|beside| beside.place.ctx_tok.is_none()).collect();
        for (places, x_label) in [(by_bits, "bits"), (by_depth, "depth (%)")] {
            let Some(first) = places.first() else { continue };
            let label = |beside: &&Beside| match beside.place.bits {
                Some(bits) => bits.to_string(),
                None => beside.place.depth_pct.map_or_else(String::new, |depth| depth.to_string()),
            };
            let y_range = (first.metric.kind == Kind::Hit).then_some((0.0, 100.0));
            let panel = QualityPanel {
                title: first.metric.label.to_owned(),
                y_label: first.metric.heading(None),
                y_range,
                lines: lines(models, &places),
            };
            let of = format!("{figure} ({})", first.place.measured);
            found.push(Drawn { of, categories: places.iter().map(label).collect(), x_label, panel });
        }
    }
    found
}

fn lines(models: &[NamedModel<'_>], places: &[&Beside]) -> Vec<QualityLine> {
    let factor = |beside: &Beside| beside.metric.kind.factor();
    let ours = models.iter().map(|of| {
        let estimate = |beside: &&Beside| Some(PointEstimate::of(&of.at(beside)?, factor(beside)));
        QualityLine { model: of.name.clone(), estimates: places.iter().map(estimate).collect(), published: false }
    });
    let names = distinct(places.iter().flat_map(|beside| &beside.published).map(|(model, _)| model));
    let others = names.iter().map(|model| {
        let number = |beside: &&Beside| {
            let (_, value) = beside.published.iter().find(|(of, _)| of == model)?;
            Some(PointEstimate { value: factor(beside) * value, interval: None })
        };
        let model = published_name(model);
        QualityLine { model, estimates: places.iter().map(number).collect(), published: true }
    });
    ours.chain(others).filter(|line| line.estimates.iter().any(Option::is_some)).collect()
}

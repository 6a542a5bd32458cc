//! `difftool prompt --attention`: the prompt, coloured by the attention of the rows that predict the answer.

use crate::attention::{LayersAndHeads, Stream};
use crate::cli::{IndexRange, ShowPromptArgs};
use crate::cmd::flags;
use crate::experiment::{Cell, Experiment, Grid, Setup, Show};
use crate::pass::pass;
use crate::probe::{ReceivedSink, SinkProbe};
use crate::prompt::{Prompt, Region, TargetRows};
use crate::table::{left, right, Table};
use crate::terminal::{self, escaped, escaped_lines};
use anstyle::{Ansi256Color, AnsiColor, Style};
use anyhow::Result;
use std::io::Write;

/// Number of keys in the table.
const TOP: usize = 12;

/// Smallest share of a token that is marked without colours.
const MARKED_SHARE: f64 = 0.005;

/// Backgrounds for increasing shares, from the 256 colours: light to dark, so that they can be told apart by lightness.
const TINTS: [u8; 5] = [230, 222, 214, 202, 160];

/// Runs a pass over the prompt and shows the attention of the rows that predict the answer.
pub(super) fn show(args: &ShowPromptArgs, model: &str, grid: Grid, coloured: bool) -> Result<()> {
    let select = LayersAndHeads {
        layers: IndexRange::all(args.layers.as_deref()),
        heads: IndexRange::all(args.heads.as_deref()),
    };
    let experiment = Experiment {
        haystack: args.prompts.haystack.clone(),
        reading: flags::reading(&args.reading),
        select,
        ..Experiment::new(Show::Needle, vec![model.to_owned()], grid)
    };
    let setup = Setup::load(experiment)?;
    let cell = super::chosen(&setup.grid.cells(), args.index)?;
    setup.check(std::slice::from_ref(&cell))?;
    let prompt = cell.prompt(setup.grid.seed(), &setup.sources, setup.models[0].tokenizer())?;
    let target = super::asked(&prompt, args.query)?;
    let shares = shares(&setup, &prompt, &target)?;
    let mut out = terminal::stdout();
    writeln!(out, "{}\n\n{}\n", text(&prompt, &target.regions, &shares, coloured), legend(coloured))?;
    print(&mut out, &setup, (&prompt, &target, &cell), &shares)
}

/// Returns the share of |attention| of each key in the target's rows, as the mean over the selected heads.
fn shares(setup: &Setup, prompt: &Prompt, target: &TargetRows) -> Result<Vec<f64>> {
    let probe = SinkProbe::new(prompt.ids.len(), vec![target.rows.clone()]);
    let probes: [&dyn crate::attention::RowProbe; 1] = [&probe];
    let stream = Stream::new(&probes).only(&setup.experiment.select);
    let probe_results = pass(&setup.models[0].transformer, prompt, stream, false)?.probe_results;
    let mut shares = vec![0.0; prompt.ids.len()];
    let heads = probe_results.len();
    for result in probe_results {
        let sink = result.sink.into_sink::<ReceivedSink>();
        let total: f64 = sink.magnitudes[0].iter().map(|&x| f64::from(x)).sum();
        if total > 0.0 {
            let of_head = sink.magnitudes[0].iter().map(|&x| f64::from(x) / total / heads as f64);
            shares.iter_mut().zip(of_head).for_each(|(share, x)| *share += x);
        }
    }
    Ok(shares)
}

/// Returns the text with its tokens marked. Without colours, consecutive marked tokens share one pair of brackets.
fn text(prompt: &Prompt, regions: &[Region], shares: &[f64], coloured: bool) -> String {
    let largest = shares.iter().copied().fold(0.0, f64::max);
    let mut end = 0;
    let mut shown = String::new();
    let mut token = 0;
    while token < shares.len() {
        let alike = |&other: &usize| {
            let together = !coloured && shares[other] >= MARKED_SHARE && shares[token] >= MARKED_SHARE;
            other == token || together && regions[other] == regions[token]
        };
        let last = (token..shares.len()).take_while(alike).last().unwrap_or(token);
        let (start, stop) = (end, prompt.offsets[last].1.max(end));
        end = stop;
        let piece = escaped_lines(prompt.text.get(start..stop).unwrap_or_default());
        if !piece.is_empty() {
            let share = shares[token..=last].iter().sum();
            shown += &if coloured { tinted(regions[token], &piece, share / largest) } else { bracketed(&piece, share) };
        }
        token = last + 1;
    }
    shown
}

/// Returns a token on a background for its share relative to the largest.
fn tinted(region: Region, text: &str, of_largest: f64) -> String {
    let place = of_largest.sqrt(); // NaN, if no key has weight, gives no background
    let style = if region == Region::Answer { Style::new().bold().underline() } else { Style::new() };
    // The smallest shares have no background.
    let Some(tint) = (((place * 6.0) as usize).min(5)).checked_sub(1).map(|tint| TINTS[tint]) else {
        return if region == Region::Answer { format!("{style}{text}{style:#}") } else { text.to_owned() };
    };
    let ink = if tint == TINTS[4] { AnsiColor::BrightWhite } else { AnsiColor::Black };
    let style = style.bg_color(Some(Ansi256Color(tint).into())).fg_color(Some(ink.into()));
    format!("{style}{text}{style:#}")
}

/// Returns consecutive tokens in brackets with their share; unmarked if it is too small.
fn bracketed(text: &str, share: f64) -> String {
    if share < MARKED_SHARE {
        return text.to_owned();
    }
    let percent = 100.0 * share;
    if text.trim().is_empty() {
        return format!("[{}|{percent:.1} %]{text}", visible(text));
    }
    let blank = text.len() - text.trim_start().len();
    format!("{}[{}|{percent:.1} %]", &text[..blank], &text[blank..])
}

/// Returns a token for a table cell, with a symbol for blanks.
fn visible(text: &str) -> String {
    match text.trim() {
        "" if text.contains('\n') => "⏎".to_owned(),
        "" => "␣".to_owned(),
        word => escaped(word).into_owned(),
    }
}

/// Returns the explanation of the marks.
fn legend(coloured: bool) -> String {
    if !coloured {
        return format!(
            "In brackets: tokens with at least {} % of |attention| each, neighbours of one region together, and their share.",
            100.0 * MARKED_SHARE
        );
    }
    let tint = |(i, tint): (usize, &u8)| {
        let ink = if i + 1 == TINTS.len() { AnsiColor::BrightWhite } else { AnsiColor::Black };
        let style = Style::new().bg_color(Some(Ansi256Color(*tint).into())).fg_color(Some(ink.into()));
        format!("{style} {} {style:#}", i + 1)
    };
    let tints: String = TINTS.iter().enumerate().map(tint).collect();
    format!("From little |attention| to the most: {tints}; the answer is underlined.")
}

fn print(
    out: &mut dyn Write,
    setup: &Setup,
    (prompt, target, cell): (&Prompt, &TargetRows, &Cell),
    shares: &[f64],
) -> Result<()> {
    let mut keys: Vec<usize> = (0..shares.len()).collect();
    keys.sort_by(|&a, &b| shares[b].total_cmp(&shares[a]));
    let mut table = Table::new(&[right("key"), right("share %"), left("region"), left("token"), left("where")]);
    for key in keys.into_iter().filter(|&key| shares[key] > 0.0).take(TOP) {
        let piece = |from: usize, to: usize| -> String {
            let (start, end) = (prompt.offsets[from].0, prompt.offsets[to].1);
            prompt
                .text
                .get(start..end)
                .unwrap_or_default()
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .collect()
        };
        let (token, around): (String, String) =
            (visible(&piece(key, key)), piece(key.saturating_sub(4), (key + 4).min(shares.len() - 1)));
        let share = format!("{:.1}", 100.0 * shares[key]);
        table.row([key.to_string(), share, target.regions[key].name().to_owned(), token, format!("…{around}…")]);
    }
    let some = |what: &str, list: &Option<Vec<usize>>| match list.as_deref() {
        None => format!("all {what}s"),
        Some([one]) => format!("{what} {one}"),
        Some(list) => format!("{what}s {}", list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    };
    let what = format!(
        "mean over {}, {}",
        some("layer", &setup.experiment.select.layers),
        some("head", &setup.experiment.select.heads)
    );
    let answer: f64 = shares
        .iter()
        .zip(&target.regions)
        .filter(|(_, &region)| region == Region::Answer)
        .map(|(share, _)| share)
        .sum();
    writeln!(
        out,
        "Share of |attention| in the rows that predict the answer, {} on prompt {} of seed {} ({what}): {:.1} % on the answer\n\n{table}",
        setup.models[0].name,
        cell.index,
        setup.grid.seed(),
        100.0 * answer
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_contain_marked_tokens_and_keep_the_space_before_them() {
        assert_eq!(bracketed(" 48213", 0.25), " [48213|25.0 %]");
        assert_eq!(bracketed(" rain", 0.001), " rain");
        assert_eq!((bracketed(" ", 0.01), bracketed("\n", 0.01)), ("[␣|1.0 %] ".into(), "[⏎|1.0 %]\n".into()));
    }

    #[test]
    fn backgrounds_darken_with_the_weight() {
        assert_eq!(tinted(Region::Filler, "rain", 0.002), "rain");
        let (some, most) = (tinted(Region::Filler, "rain", 0.2), tinted(Region::Filler, "rain", 1.0));
        assert!(some.contains("48;5;222") && most.contains("48;5;160"), "{some:?} {most:?}");
        assert!(tinted(Region::Answer, "7", 0.0).starts_with("\u{1b}["), "the answer is marked anyway");
    }
}

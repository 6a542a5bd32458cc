//! The page of a text: the document itself, each part coloured by what it gives the answer or costs it.

use super::screen::{percent, SegmentNumbers, TextNumbers};
use crate::html::{self, PageCode};
use crate::report::InnerPage;
use crate::results::{AskedContext, Frame};
use crate::run::Run;
use anyhow::{Context as _, Result};
use base::files;
use base::terminal::escaped;
use minijinja::context;
use minijinja::value::Value;
use names::metric::{ANSWER_LOG_PROB, LOG_PROB_WITHOUT};
use plot::{document, DocumentPart};
use std::collections::BTreeSet;

/// The file of the page.
const PAGE: &str = "context.html";

/// Shades of either colour: the page has a style for each.
const SHADES: f64 = 8.0;

const CODE: PageCode = PageCode { style: include_str!("style.css"), script: include_str!("script.js") };

/// Writes the page of a text into the run folder.
///
/// # Errors
/// If it cannot be written.
pub(super) fn write(run: &Run, asked: &AskedContext) -> Result<()> {
    let Some(page) = page(&run.frame, asked)? else { return Ok(()) };
    let path = run.add_file(PAGE, None);
    files::create(&path, page.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    if !run.style.quiet {
        base::say!("{}: open it in a browser", path.display());
    }
    draw(run, asked)
}

/// Parts of a text up to which a figure has all of them; of more, those next to the ones that matter most.
const WHOLE: usize = 24;
const MATTERING: usize = 5;

/// Draws the text, as the first model was measured on it.
fn draw(run: &Run, asked: &AskedContext) -> Result<()> {
    let frame = &run.frame;
    let Some(numbers) = frame.models.iter().find_map(|model| TextNumbers::of(frame, model, asked)) else {
        return Ok(());
    };
    let shown = shown(&numbers);
    let mut parts = Vec::new();
    let mut left_out = false;
    for of in &numbers.segments {
        if !shown.contains(&of.index) {
            left_out = true;
            continue;
        }
        let text = &asked.segments[of.index];
        let number = of.gives_nats.filter(|gives| gives.abs() >= numbers.floor());
        let gap = if std::mem::take(&mut left_out) { "… " } else { "" };
        parts.push(DocumentPart {
            text: format!("{gap}{}", text.text),
            breaks: text.before.contains('\n'),
            number,
            label: number
                .filter(|gives| gives.abs() >= 0.1)
                .map_or_else(String::new, |gives| format!("{} {}", of.index + 1, signed(gives))),
        });
    }
    let subtitle = format!("{}: {}", frame.short_names.name(numbers.model), numbers.conclusion());
    let figure = document(&parts, numbers.scale(), &run.heading(&asked.question, &subtitle))?;
    run.save_figure(&figure, "context", "log-probability of the answer with the text less without the part, in nats")
}

/// The parts that a figure shows: all of a short text, otherwise those that matter most and their neighbours.
fn shown(numbers: &TextNumbers<'_>) -> BTreeSet<usize> {
    let all = 0..numbers.segments.len();
    if all.len() <= WHOLE {
        return all.collect();
    }
    let mut order: Vec<&SegmentNumbers> = numbers.segments.iter().filter(|of| of.gives_nats.is_some()).collect();
    order.sort_by(|a, b| b.gives_nats.unwrap_or(0.0).abs().total_cmp(&a.gives_nats.unwrap_or(0.0).abs()));
    let mattering = order.iter().take(MATTERING).map(|of| of.index);
    mattering.flat_map(|index| index.saturating_sub(1)..(index + 2).min(all.end)).collect()
}

/// The page of a run with a single text, for a report.
///
/// # Errors
/// If the template cannot be filled in.
pub(crate) fn inner_page(frame: &Frame) -> Result<Option<InnerPage>> {
    let [asked] = &frame.found.contexts[..] else { return Ok(None) };
    let page = page(frame, asked)?;
    page.map(|page| InnerPage::text(&page, CODE)).transpose()
}

/// The page as text; `None` if no model was measured on the text.
fn page(frame: &Frame, asked: &AskedContext) -> Result<Option<String>> {
    let mut models = Vec::new();
    for model in &frame.models {
        models.extend(TextNumbers::of(frame, model, asked).map(|numbers| of_model(frame, &numbers)));
    }
    if models.is_empty() {
        return Ok(None);
    }
    let title = escaped(&asked.question).into_owned();
    let values = context! {
        head => html::head(&title, &CODE, None),
        script => CODE.script,
        question => asked.question.as_str(),
        id => asked.id.as_str(),
        answers => &asked.answers,
        wrong => &asked.wrong,
        models,
    };
    let text = html::render("context.html", include_str!("context.html"), values)?;
    Ok(Some(format!("{}\n", text.trim_end())))
}

fn of_model(frame: &Frame, numbers: &TextNumbers<'_>) -> Value {
    let asked = numbers.asked;
    let segments: Vec<Value> = numbers.segments.iter().map(|of| segment(numbers, of)).collect();
    context! {
        name => frame.short_names.name(numbers.model),
        conclusion => numbers.conclusion(),
        answer => asked.scored(numbers.model),
        is_own => asked.answers.is_empty(),
        said => numbers.said(),
        floor => (numbers.floor() > 0.0).then(|| format!("{:.1}", numbers.floor())),
        whole => numbers.number(&ANSWER_LOG_PROB, None).map(percent),
        nothing => numbers.number(&LOG_PROB_WITHOUT, Some("all")).map(percent),
        groups => numbers.groups.iter().map(|(first, last, gives)| context! { first, last, gives => signed(*gives) }).collect::<Vec<_>>(),
        scale => format!("{:.1}", numbers.scale()),
        segments,
    }
}

/// A segment for the template. Where it was not taken out by itself, it has no number.
fn segment(numbers: &TextNumbers<'_>, of: &SegmentNumbers) -> Value {
    let text = &numbers.asked.segments[of.index];
    let gives = of.gives_nats.filter(|gives| gives.abs() >= numbers.floor());
    // What is above the floor has a colour.
    let shade = gives.map_or(0.0, |gives| (SHADES * gives / numbers.scale()).abs().clamp(1.0, SHADES).round());
    let sign = match gives {
        Some(gives) if gives < 0.0 => "costs",
        Some(_) => "gives",
        None => "none",
    };
    let whole = numbers.number(&ANSWER_LOG_PROB, None);
    // Of a contrast of two answers, and of a mean over orders, a probability without the segment is not known.
    let is_exact = numbers.asked.wrong.is_none() && of.spread_nats.is_none();
    let without = whole.zip(of.gives_nats).filter(|_| is_exact);
    context! {
        place => of.index + 1,
        before => text.before.as_str(),
        text => text.text.as_str(),
        kind => text.kind.name(),
        measured => of.gives_nats.is_some(),
        sign,
        shade => shade as u32,
        gives => of.gives_nats.map(signed),
        shown => gives.filter(|gives| gives.abs() >= 0.1).map(signed),
        alone => of.alone_nats.map(signed),
        through => of.through_nats.map(signed),
        spread => of.spread_nats.map(|spread| format!("{spread:.1}")),
        share => of.share.map(|share| format!("{:.1} %", 100.0 * share)),
        without => without.map(|(whole, gives)| percent((whole - gives).min(0.0))),
    }
}

/// `+0.4`, with a minus sign below 0.
fn signed(nats: f64) -> String {
    super::super::hidden::nats(nats).replace('-', "−")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::record::{Identity, Measurement, Record};
    use crate::results::{About, Findings, FrameBuilder, Said, SegmentText};
    use names::metric::{Metric, CONTEXT_FLOOR, GIVES};
    use names::SegmentKind;
    use std::sync::Arc;

    /// A text of three segments, one of which costs the answer.
    fn frame() -> Frame {
        let identity = Arc::new(Identity {
            model: "m".into(),
            sample: Some(0),
            seed: Some(7),
            ctx_tok: 50,
            ..Identity::default()
        });
        let mut frame = FrameBuilder::new(About::default());
        let mut add = |metric: &Metric, region: Option<&str>, value: f64| {
            let measure = Measurement {
                metric: metric.name.into(),
                region: region.map(|region| region.to_owned().into()),
                value: Some(value),
                ..Measurement::default()
            };
            frame.add(&Record { identity: Arc::clone(&identity), measure });
        };
        add(&ANSWER_LOG_PROB, None, -1.0);
        add(&CONTEXT_FLOOR, None, 0.3);
        for (name, gives) in [("s1", 2.5), ("s2", -0.7), ("s3", 0.1)] {
            add(&GIVES, Some(name), gives);
        }
        let segment = |text: &str| SegmentText { kind: SegmentKind::Unknown, before: " ".into(), text: text.into() };
        let asked = AskedContext {
            sample: 0,
            id: "text".into(),
            document: None,
            question: "How <many>?".into(),
            answers: vec!["17".into()],
            wrong: None,
            segments: vec![segment("There are 17 boats."), segment("<b>Or 12.</b>"), segment("It rains.")],
            said: vec![Said { model: "m".into(), sample: 0, text: "12".into() }],
        };
        frame.finish(Findings { contexts: vec![asked], ..Findings::default() })
    }

    #[test]
    fn the_page_has_the_text_with_signs_and_shades_and_nothing_of_it_is_markup() {
        let frame = frame();
        let page = page(&frame, &frame.found.contexts[0]).unwrap().unwrap();
        assert!(
            page.contains("data-sign=\"gives\" data-shade=\"8\"")
                && page.contains("data-sign=\"costs\" data-shade=\"2\""),
            "{page}"
        );
        assert!(page.contains("data-sign=\"none\" data-shade=\"0\""), "below the floor, nothing is coloured");
        assert!(page.contains("&lt;b&gt;Or 12.") && !page.contains("<b>Or"), "{page}");
        assert!(page.contains("How &lt;many&gt;?") && page.contains("“17” has 37 % with the text"), "{page}");
        html::assert_harmless(&[CODE.style, CODE.script]);
    }
}

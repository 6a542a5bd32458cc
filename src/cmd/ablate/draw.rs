//! The figures of `difftool ablate`: what conditions change, and what is left with fewer heads.

use crate::cmd::session::{RunResults, Session};
use crate::frame::{setting_name, Setting};
use crate::plot::{forest, quality, Estimate, Figure, ForestPanel, ForestRow, QualityLine, QualityPanel};
use crate::table::short;
use crate::tables::{Delta, Effect, Effects, Knockout};
use anyhow::Result;

const POOLING: &str = "mean over prompts, paired with the untreated passes, 95 % bootstrap intervals";

/// Draws a figure of the conditions and one of the heads, as far as there are any.
pub(in crate::cmd) fn draw(session: &mut Session, found: &RunResults) -> Result<()> {
    let effects = Effects::new(&found.frame);
    let several = found.frame.settings().len() > 1;
    for (i, &setting) in found.frame.settings().iter().enumerate() {
        let number = if i == 0 { String::new() } else { format!("-{}", i + 1) };
        let asked = if several { setting_name(setting.1, setting.2) + " · " } else { String::new() };
        let subtitle = format!("{asked}{}", session.setup.caption_of(&[setting.0]));
        if let Some(figure) = conditions(&effects, setting, session, &subtitle)? {
            session.save(&figure, &format!("conditions{number}"), POOLING)?;
        }
        if let Some(figure) = heads(&effects, setting, session, &subtitle)? {
            session.save(&figure, &format!("heads-out{number}"), POOLING)?;
        }
    }
    Ok(())
}

fn is_of(effect: &Effect, setting: Setting) -> bool {
    effect.setting == setting
}

fn estimate(delta: &Delta, factor: f64) -> Estimate {
    Estimate { value: factor * delta.difference, interval: Some((factor * delta.lo, factor * delta.hi)) }
}

/// Differences of every condition and model, those of one condition next to each other.
fn conditions(effects: &Effects, setting: Setting, session: &Session, subtitle: &str) -> Result<Option<Figure>> {
    let of_setting: Vec<&Effect> = effects.conditions.iter().filter(|effect| is_of(effect, setting)).collect();
    let mut names: Vec<&str> = Vec::new();
    for effect in &of_setting {
        if !names.contains(&effect.condition.as_str()) {
            names.push(&effect.condition);
        }
    }
    if names.is_empty() {
        return Ok(None);
    }
    let rows = |delta: &dyn Fn(&Effect) -> Delta, factor: f64| -> Vec<ForestRow> {
        let of_name = |name: &&str| of_setting.iter().filter(|effect| effect.condition == **name).collect::<Vec<_>>();
        let row = |(i, effect): (usize, &&&Effect)| {
            let difference = estimate(&delta(effect), factor);
            ForestRow {
                label: if i == 0 { effect.condition.clone() } else { String::new() },
                series: effect.model.clone(),
                text: short(Some(difference.value)),
                difference,
            }
        };
        names.iter().flat_map(|name| of_name(name).iter().enumerate().map(row).collect::<Vec<_>>()).collect()
    };
    let panel = |title: &str, unit: &str, rows| ForestPanel { title: title.to_owned(), unit: unit.to_owned(), rows };
    let panels = [
        panel("answer log-probability", "nats", rows(&|effect| effect.log_prob_nats, 1.0)),
        panel("accuracy", "points", rows(&|effect| effect.exact, 100.0)),
    ];
    let title = "What it costs to do without some keys";
    forest(&panels, &session.heading(title, subtitle), "difference from the untreated passes").map(Some)
}

/// Accuracy and log-probability by the number of heads that are out.
fn heads(effects: &Effects, setting: Setting, session: &Session, subtitle: &str) -> Result<Option<Figure>> {
    let mut of_setting: Vec<&Knockout> =
        effects.heads.iter().filter(|knockout| is_of(&knockout.best, setting)).collect();
    let Some(&first) = of_setting.first() else { return Ok(None) };
    // Another ranking is another figure's; the tables have all.
    of_setting.retain(|knockout| knockout.by == first.by);
    let (mut counts, mut models): (Vec<usize>, Vec<&str>) = (Vec::new(), Vec::new());
    for knockout in &of_setting {
        if !counts.contains(&knockout.n) {
            counts.push(knockout.n);
        }
        if !models.contains(&knockout.best.model.as_str()) {
            models.push(&knockout.best.model);
        }
    }
    counts.sort_unstable();
    let line = |model: &str, best: bool, delta: &dyn Fn(&Effect) -> Estimate| {
        let at = |n: &usize| {
            let knockout = of_setting.iter().find(|knockout| knockout.best.model == model && knockout.n == *n)?;
            if best { Some(&knockout.best) } else { knockout.random.as_ref() }.map(delta)
        };
        let name = format!("{model}, {}", if best { "best" } else { "random" });
        QualityLine { model: name, estimates: counts.iter().map(at).collect() }
    };
    let panel = |title: &str, y_label: &str, delta: &dyn Fn(&Effect) -> Estimate| QualityPanel {
        title: title.to_owned(),
        y_label: y_label.to_owned(),
        y_range: None,
        lines: models.iter().flat_map(|model| [line(model, true, delta), line(model, false, delta)]).collect(),
    };
    let panels = [
        panel("answer log-probability", "change in nats", &|effect| estimate(&effect.log_prob_nats, 1.0)),
        panel("accuracy", "change in points", &|effect| estimate(&effect.exact, 100.0)),
    ];
    let categories: Vec<String> = counts.iter().map(ToString::to_string).collect();
    let title = format!("Without the best heads by {}, and without others of the same layers", first.by);
    quality(&panels, &categories, &session.heading(&title, subtitle), "heads out").map(Some)
}

//! Quantities as a sentence names them.

use super::sheet::{Cell, Kind};
use crate::stats::Interval;

/// A metric in words: its name in files, what a reader calls it (`{}` is the region), how it is shown, and the unit of a difference.
type Known = (&'static str, &'static str, Kind, &'static str);

const KNOWN: [Known; 21] = [
    ("exact", "accuracy", Kind::Hits, " points"),
    ("generated_exact", "accuracy of what the model writes by itself", Kind::Hits, " points"),
    ("answer_log_prob", "log-probability of the answer", Kind::Number, " nats"),
    ("answer_first_rank", "rank of the answer's first token", Kind::Number, ""),
    ("share_out", "share of the output that {} gives", Kind::Share, " points"),
    ("noise_out", "share of the output that noise gives", Kind::Share, " points"),
    ("share_signed", "share of the signed attention on {}", Kind::Share, " points"),
    ("noise_signed", "share of the signed attention on noise", Kind::Share, " points"),
    ("share_abs", "share of |attention| on {}", Kind::Share, " points"),
    ("noise_abs", "share of |attention| on noise", Kind::Share, " points"),
    ("noise_abs_no_sinks", "share of |attention| on noise, sinks left out", Kind::Share, " points"),
    ("entropy", "entropy of the attention rows", Kind::Number, " nats"),
    ("keys_90", "keys that hold 90 % of |attention|", Kind::Number, " keys"),
    ("sink_share_detected", "share of |attention| on sinks", Kind::Share, " points"),
    ("nll", "negative log-likelihood of prose", Kind::Number, " nats"),
    ("nll_ar_hit", "negative log-likelihood of what the text had before", Kind::Number, " nats"),
    ("nll_other", "negative log-likelihood of all other prose", Kind::Number, " nats"),
    ("top_token_flips", "predictions that are another token than without treatment", Kind::Share, " points"),
    ("total_variation", "part of the attention that the treatment moves", Kind::Share, " points"),
    ("top_1_over_median", "largest magnitude over the median {}", Kind::Number, ""),
    ("kurtosis", "kurtosis {}", Kind::Number, ""),
];

/// A quantity in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spoken {
    /// What it is called: `share of |attention| on the answer`.
    pub(crate) name: String,
    kind: Kind,
    unit: String,
}

impl Spoken {
    /// A metric of one region or of none. One that is not known is called what it is called in files, and is in the unit of its
    /// records.
    pub(crate) fn of(metric: &str, region: Option<&str>, unit: Option<&str>) -> Self {
        let Some((_, name, kind, of_difference)) = KNOWN.iter().find(|(known, ..)| *known == metric) else {
            let of = region.map(|region| format!(" of {region}")).unwrap_or_default();
            let unit = unit.map(|unit| format!(" {unit}")).unwrap_or_default();
            return Self { name: format!("{}{of}", metric.replace('_', " ")), kind: Kind::Number, unit };
        };
        let name = name.replace("{}", &region.map_or_else(String::new, part));
        Self { name: name.trim_end().to_owned(), kind: *kind, unit: (*of_difference).to_owned() }
    }

    /// A difference of it with its interval: `+20.0 points [+5.0, +40.0]`.
    pub(crate) fn difference(&self, difference: f64, interval: Option<Interval>) -> String {
        let cell = Cell::difference(self.kind, difference, interval);
        let sign = if self.kind == Kind::Number && difference > 0.0 { "+" } else { "" };
        format!("{sign}{}{} {}", cell.text, self.unit, cell.aside).trim_end().to_owned()
    }
}

/// A part of the prompt, or of the model, as a sentence has it.
fn part(region: &str) -> String {
    match region {
        "answer" | "question" | "template" => format!("the {region}"),
        "needle" => "the rest of the answer's needle".to_owned(),
        "distractor" => "the other needles".to_owned(),
        "bos" => "the beginning-of-text token".to_owned(),
        "sink" => "the sink that no token belongs to".to_owned(),
        "logits" => "of the attention logits".to_owned(),
        "hidden" => "of the hidden states".to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_names_that_a_reader_understands_and_differences_units() {
        let answer = Spoken::of("share_abs", Some("answer"), Some("fraction"));
        assert_eq!(answer.name, "share of |attention| on the answer");
        let interval = Interval { lo: 0.05, hi: 0.4 };
        assert_eq!(answer.difference(0.2, Some(interval)), "+20.0 points [+5.0, +40.0]");
        let nats = Spoken::of("answer_log_prob", None, Some("nats"));
        assert_eq!(nats.difference(0.5, None), "+0.500 nats");
        assert_eq!(nats.difference(-0.5, None), "-0.500 nats");
        assert_eq!(Spoken::of("kurtosis", Some("hidden"), None).name, "kurtosis of the hidden states");
    }

    #[test]
    fn a_quantity_that_is_not_known_keeps_its_name_and_unit() {
        let novelty = Spoken::of("novelty_score", Some("filler"), Some("keys"));
        assert_eq!(
            (novelty.name.as_str(), novelty.difference(7.5, None)),
            ("novelty score of filler", "+7.50 keys".into())
        );
    }
}

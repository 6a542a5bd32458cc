//! Conditions in words, as labels of rows: at most 34 columns of most, `what noise writes silenced`.

use super::{
    Condition, Format, HeadSelection, KeySelection, PairedPrompt, Quantised, Quantiser, Removal, Replacement,
    RowSelection, Scope, Treatment,
};
use crate::{distinct, joined, LayersAndHeads, Region};

/// The name of a condition in words; what is no condition stays as it is.
pub fn condition_words(name: &str) -> String {
    name.parse::<Condition>().map_or_else(|_| name.to_owned(), |condition| condition.words())
}

impl Condition {
    /// Its treatments in words, as in `other needles hidden`.
    pub fn words(&self) -> String {
        if self.is_untreated() {
            return "untreated".to_owned();
        }
        if self.only_corrupts() {
            return "corrupted prompt".to_owned();
        }
        self.treatments.iter().map(Treatment::words).collect::<Vec<_>>().join("; ")
    }
}

impl Treatment {
    fn words(&self) -> String {
        match self {
            Self::Quantise(quantiser) => quantiser_words(quantiser),
            Self::Remove { how, keys, of, rows } => {
                let keys = match how {
                    Removal::Mask => keys.words() + " hidden",
                    Removal::Silence => format!("what {} silenced", keys.writing_words()),
                    Removal::SilenceSecond => keys.words() + " not subtracted",
                };
                keys + &place_words("in", of) + rows.words()
            }
            Self::Replace { others, heads, of, rows, with } => {
                let heads = match (heads, &of.layers, &of.heads) {
                    (HeadSelection::All, Some(layers), None) => numbered("layer", layers),
                    _ => heads.words() + &place_words("of", of),
                };
                let heads = heads + rows.words();
                match with {
                    Replacement::Patch(PairedPrompt::Clean) => format!("{heads} from clean prompt"),
                    Replacement::Patch(PairedPrompt::Corrupted) => format!("{heads} from corrupted prompt"),
                    Replacement::Zero if !others => format!("{heads} at zero"),
                    Replacement::Mean if !others => format!("{heads} out"),
                    Replacement::Zero => format!("only {heads}, others at zero"),
                    Replacement::Mean => format!("only {heads}"),
                }
            }
        }
    }
}

/// Returns `true` if a quantiser rounds all logits of every layer by one scale a layer, so that its bits say all.
pub(super) fn is_usual(quantiser: &Quantiser) -> bool {
    let Quantiser { of, scope, smooth, rotate, exempt_sinks, layers, .. } = quantiser;
    (*of, *scope) == (Quantised::Logits, Scope::Tensor) && !smooth && !rotate && !exempt_sinks && layers.is_none()
}

/// `4 bits in layer 3, by row`, `4-bit queries and keys, rotated`: what is usual is not said.
fn quantiser_words(quantiser: &Quantiser) -> String {
    let (what, usual) = match (quantiser.of, quantiser.format) {
        (Quantised::Logits, format) => (format!("{} bits", format.bits()), Scope::Tensor),
        (Quantised::Qk, Format::Int(bits)) => (format!("{bits}-bit queries and keys"), Scope::Block),
        (Quantised::Qk, format) => (format!("{format} of queries and keys"), Scope::Block),
    };
    let mut words = what;
    if let Some(layers) = &quantiser.layers {
        words += &format!(" in {}", numbered("layer", layers));
    }
    if quantiser.scope != usual {
        words += &format!(", by {}", quantiser.scope.name());
    }
    let rest = [(quantiser.smooth, "smoothed"), (quantiser.rotate, "rotated"), (quantiser.exempt_sinks, "sinks exact")];
    for (given, word) in rest {
        if given {
            words += &format!(", {word}");
        }
    }
    words
}

impl KeySelection {
    /// The keys in words, as in `other needles`.
    pub fn words(&self) -> String {
        match self {
            Self::Regions(regions) => regions_words(regions),
            Self::Random(n) => format!("{n} random keys"),
            Self::RandomLike(regions) if regions == &Region::NOISE => "as many random keys".to_owned(),
            Self::RandomLike(regions) => format!("random keys (as {})", regions_words(regions)),
        }
    }

    /// The same with a verb, `noise writes`.
    fn writing_words(&self) -> String {
        let are_several = match self {
            Self::Regions(regions) => matches!(regions.as_slice(), [Region::Distractor]) || words_of(regions).len() > 1,
            Self::Random(_) | Self::RandomLike(_) => true,
        };
        format!("{} {}", self.words(), if are_several { "write" } else { "writes" })
    }
}

fn regions_words(regions: &[Region]) -> String {
    words_of(regions).join(" and ")
}

/// The words for regions, of those that are called by one word together only that.
fn words_of(regions: &[Region]) -> Vec<String> {
    let is_noise = Region::NOISE.iter().all(|region| regions.contains(region));
    let has_needle = [Region::Needle, Region::Answer].iter().all(|region| regions.contains(region));
    let mut words = Vec::new();
    for region in regions {
        words.push(match region {
            // A prompt has one of the two.
            Region::Bos | Region::First => "first token",
            Region::Template | Region::Filler | Region::Distractor if is_noise => "noise",
            Region::Filler => "prose",
            Region::Distractor => "other needles",
            Region::Needle | Region::Answer if has_needle => "answer's needle",
            other => other.name(),
        });
    }
    distinct(words.into_iter())
}

impl HeadSelection {
    fn words(&self) -> String {
        match self {
            Self::All => "all heads".to_owned(),
            Self::Named(heads) => {
                let names: Vec<String> = heads.iter().map(ToString::to_string).collect();
                format!("{} {}", if names.len() == 1 { "head" } else { "heads" }, names.join(", "))
            }
            Self::Best { n: 1, by } => format!("best head by {}", by.name()),
            Self::Best { n, by } => format!("best {n} heads by {}", by.name()),
            Self::Random { n, by, draw } => {
                let heads = if *n == 1 { "head" } else { "heads" };
                format!("{n} random {heads} ({}, draw {draw})", by.name())
            }
        }
    }
}

/// The layers and heads that are given: ` in layers 0+2`.
fn place_words(preposition: &str, of: &LayersAndHeads) -> String {
    let mut words = String::new();
    for (name, numbers) in [("layer", &of.layers), ("head", &of.heads)] {
        if let Some(numbers) = numbers {
            words += &format!(" {preposition} {}", numbered(name, numbers));
        }
    }
    words
}

/// `layer 3`, `layers 0+2`.
fn numbered(name: &str, numbers: &[usize]) -> String {
    format!("{name}{} {}", if numbers.len() == 1 { "" } else { "s" }, joined(numbers))
}

impl RowSelection {
    /// Empty for the default.
    fn words(self) -> &'static str {
        match self {
            Self::Answer => "",
            Self::Question => " from the question on",
            Self::All => " in all rows",
            Self::Needle => " in rows of the needle",
            Self::Value => " in rows of its value",
            Self::Context => " in rows of the context",
            Self::Asking => " in rows of the question",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_told_in_words() {
        for (name, words) in [
            ("none", "untreated"),
            ("mask(noise)", "noise hidden"),
            ("mask(noise, layers=3)", "noise hidden in layer 3"),
            ("mask(filler)", "prose hidden"),
            ("mask(distractor)", "other needles hidden"),
            ("mask(random:noise, layers=0+2)", "as many random keys hidden in layers 0+2"),
            ("mask(random:20)", "20 random keys hidden"),
            ("mask(random:needle+answer)", "random keys (as answer's needle) hidden"),
            ("mask(needle+answer, rows=all)", "answer's needle hidden in all rows"),
            ("mask(first+noise)", "first token and noise hidden"),
            ("silence(noise)", "what noise writes silenced"),
            ("silence(distractor)", "what other needles write silenced"),
            ("silence(noise, map=2)", "noise not subtracted"),
            ("silence(bos+first)", "what first token writes silenced"),
            ("silence(filler+question)", "what prose and question write silenced"),
            ("ablate(11.2)", "head 11.2 out"),
            ("ablate(0.1+11.2, zero)", "heads 0.1, 11.2 at zero"),
            ("ablate(all, layers=1)", "layer 1 out"),
            ("ablate(best:1:retrieval)", "best head by retrieval out"),
            ("ablate(random:4:share_out:2)", "4 random heads (share_out, draw 2) out"),
            ("keep(best:4:share_out, zero)", "only best 4 heads by share_out, others at zero"),
            ("patch(none, from=clean)", "corrupted prompt"),
            ("patch(all, layers=1, from=clean)", "layer 1 from clean prompt"),
            ("patch(all, heads=1, from=corrupted)", "all heads of head 1 from corrupted prompt"),
            ("quantise(4, tensor)", "4 bits"),
            ("quantise(4, row, exempt-sinks, layers=0+2)", "4 bits in layers 0+2, by row, sinks exact"),
            ("quantise-qk(4, block, smooth, rotate)", "4-bit queries and keys, smoothed, rotated"),
            ("quantise-qk(nvfp4, token)", "nvfp4 of queries and keys, by token"),
            ("mask(noise); quantise(4, tensor)", "noise hidden; 4 bits"),
            ("no condition", "no condition"),
        ] {
            assert_eq!(condition_words(name), words, "{name}");
        }
    }
}

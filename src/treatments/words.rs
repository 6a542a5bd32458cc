//! Conditions in words, for figures.

use super::{Condition, HeadSelection, KeySelection, PairedPrompt, Replacement, RowSelection, Treatment};
use crate::attention::{LayersAndHeads, Removal};
use crate::base::names::{distinct, joined};
use crate::prompts::Region;

/// Returns the name of a condition in words; what is no condition stays as it is.
pub(crate) fn condition_words(name: &str) -> String {
    name.parse::<Condition>().map_or_else(|_| name.to_owned(), |condition| condition.words())
}

impl Condition {
    /// Its treatments in words, as in `other needles hidden`.
    pub(crate) fn words(&self) -> String {
        if self.only_corrupts() {
            return "the corrupted prompt".to_owned();
        }
        self.treatments.iter().map(Treatment::words).collect::<Vec<_>>().join("; ")
    }
}

impl Treatment {
    fn words(&self) -> String {
        match self {
            Self::Quantise(quantiser) => quantiser.to_string(),
            Self::Remove { how, keys, of, rows } => {
                let done = if *how == Removal::Mask { "hidden" } else { "silenced" };
                format!("{} {done}{}", keys.words(), scope_words("in", of, *rows))
            }
            Self::Replace { others, heads, of, rows, with } => {
                let heads = heads.words() + &scope_words("of", of, *rows);
                let heads = heads.replace("all heads of layer", "layer");
                match with {
                    Replacement::Patch(PairedPrompt::Clean) => format!("{heads} from the clean prompt"),
                    Replacement::Patch(PairedPrompt::Corrupted) => format!("{heads} from the corrupted prompt"),
                    Replacement::Zero if !others => format!("{heads} at zero"),
                    Replacement::Mean if !others => format!("without {heads}"),
                    Replacement::Zero => format!("only {heads}, others at zero"),
                    Replacement::Mean => format!("only {heads}"),
                }
            }
        }
    }
}

impl KeySelection {
    fn words(&self) -> String {
        match self {
            Self::Regions(regions) => regions_words(regions),
            Self::Random(n) => format!("{n} random tokens"),
            Self::RandomLike(regions) => format!("random tokens (as many as {})", regions_words(regions)),
        }
    }
}

fn regions_words(regions: &[Region]) -> String {
    match regions {
        noise if noise == Region::NOISE => return "noise".to_owned(),
        [Region::First, noise @ ..] if noise == Region::NOISE => return "first token and noise".to_owned(),
        _ => {}
    }
    let names = regions.iter().map(|region| match region {
        // A prompt has one of the two.
        Region::Bos | Region::First => "first token",
        Region::Distractor => "other needles",
        other => other.name(),
    });
    distinct(names).join(" and ")
}

impl HeadSelection {
    fn words(&self) -> String {
        match self {
            Self::All => "all heads".to_owned(),
            Self::Named(heads) => {
                let names: Vec<String> = heads.iter().map(ToString::to_string).collect();
                format!("{} {}", if names.len() == 1 { "head" } else { "heads" }, names.join(", "))
            }
            Self::Best { n, by } => format!("the {n} best heads by {}", by.name()),
            Self::Random { n, by, draw } => format!("{n} random heads beside the best by {} ({draw})", by.name()),
        }
    }
}

/// The settings that differ from the defaults: ` of layers 0+2 in all rows`.
fn scope_words(preposition: &str, of: &LayersAndHeads, rows: RowSelection) -> String {
    let mut words = String::new();
    for (name, numbers) in [("layer", &of.layers), ("head", &of.heads)] {
        if let Some(numbers) = numbers {
            words += &format!(" {preposition} {name}{} {}", if numbers.len() == 1 { "" } else { "s" }, joined(numbers));
        }
    }
    words
        + match rows {
            RowSelection::Answer => "",
            RowSelection::Question => " from the question on",
            RowSelection::All => " in all rows",
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_told_in_words() {
        for (name, words) in [
            ("mask(distractor)", "other needles hidden"),
            ("silence(bos+first)", "first token silenced"),
            ("mask(needle+answer, rows=all)", "needle and answer hidden in all rows"),
            ("mask(random:noise, layers=0+2)", "random tokens (as many as noise) hidden in layers 0+2"),
            ("ablate(11.2)", "without head 11.2"),
            ("keep(best:4:share_out, zero)", "only the 4 best heads by share_out, others at zero"),
            ("patch(none, from=clean)", "the corrupted prompt"),
            ("patch(all, layers=1, from=clean)", "layer 1 from the clean prompt"),
            ("mask(noise); quantise(4, tensor)", "noise hidden; quantise(4, tensor)"),
            ("no condition", "no condition"),
        ] {
            assert_eq!(condition_words(name), words);
        }
    }
}

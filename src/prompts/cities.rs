//! City names, the keys of the needles, and made-up names that resemble them.

use std::collections::HashSet;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::base::rng::Rng;

/// The set of cities that a prompt draws its keys from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CitySet {
    /// Cities that also occur in training documents.
    Train,
    /// Cities that occur in no training document, so that the model has never seen the key.
    HeldOut,
    /// Training cities, but those asked for are not in the text, so that the question has no answer.
    Absent,
}

impl CitySet {
    /// Name in files.
    pub fn name(self) -> &'static str {
        match self {
            CitySet::Train => "train",
            CitySet::HeldOut => "heldout",
            CitySet::Absent => "absent",
        }
    }

    /// The cities of this set, sorted. No city is part of another, in either set.
    pub fn cities(self) -> &'static [&'static str] {
        static TRAIN: OnceLock<Vec<&str>> = OnceLock::new();
        static HELD_OUT: OnceLock<Vec<&str>> = OnceLock::new();
        match self {
            CitySet::Train | CitySet::Absent => {
                TRAIN.get_or_init(|| lines(include_str!("../../assets/corpus/cities.txt")))
            }
            CitySet::HeldOut => HELD_OUT.get_or_init(|| lines(include_str!("../../assets/corpus/cities_heldout.txt"))),
        }
    }
}

/// The lines of an asset, without blank lines and comments.
pub(super) fn lines(asset: &'static str) -> Vec<&'static str> {
    asset.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

/// Creates a made-up name from the beginning of one training city and the end of another, so that it is split into
/// similar tokens. It is never the name of a city of either set. (The embedded tokenizer is trained on these names, so
/// changing this function changes the tokenizer.)
pub(super) fn made_up(rng: &mut Rng) -> String {
    static REAL: OnceLock<HashSet<&str>> = OnceLock::new();
    let real =
        REAL.get_or_init(|| [CitySet::Train, CitySet::HeldOut].iter().flat_map(|set| set.cities()).copied().collect());
    let cities = CitySet::Train.cities();
    loop {
        let (head, tail) = (*rng.pick(cities), *rng.pick(cities));
        let head = &head[..2 + rng.below(3.min(head.len() - 2))];
        let tail = &tail[tail.len() - (2 + rng.below(4.min(tail.len() - 3)))..];
        let name = format!("{head}{tail}");
        if (4..=12).contains(&name.len()) && !real.contains(name.as_str()) {
            return name;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cities_are_many_plain_and_in_one_set_only() {
        let (train, held_out) = (CitySet::Train.cities(), CitySet::HeldOut.cities());
        assert!(train.len() + held_out.len() >= 260 && held_out.len() >= 48, "{} + {}", train.len(), held_out.len());
        let all: Vec<&str> = train.iter().chain(held_out).copied().collect();
        for (i, city) in all.iter().enumerate() {
            assert!((4..=12).contains(&city.len()), "{city}");
            assert!(city.starts_with(|c: char| c.is_ascii_uppercase()), "{city}");
            assert!(city[1..].chars().all(|c| c.is_ascii_lowercase()), "{city}");
            let contained = |other: &&str| other.to_lowercase().contains(&city.to_lowercase());
            let within = all.iter().enumerate().find(|(j, other)| *j != i && contained(other));
            assert!(within.is_none(), "{city} is part of {within:?}");
        }
    }

    #[test]
    fn made_up_names_are_not_cities_and_rarely_repeat() {
        let mut rng = Rng::new(0, "names");
        let names: HashSet<String> = (0..10_000).map(|_| made_up(&mut rng)).collect();
        assert!(names.len() > 9_000, "{} different names", names.len());
        for name in &names {
            let known =
                CitySet::Train.cities().contains(&name.as_str()) || CitySet::HeldOut.cities().contains(&name.as_str());
            assert!(!known && (4..=12).contains(&name.len()), "{name}");
        }
    }
}

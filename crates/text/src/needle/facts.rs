//! Facts: sentences that give an answer, with names and values that are drawn at random.

use std::collections::HashSet;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::haystack::lines;
use stats::Rng;

/// A sentence that gives an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// What the value is of, and the question about.
    pub(crate) name: String,
    /// The answer, a part of the sentence; empty for a sentence that answers nothing.
    pub(crate) value: String,
    /// The sentence before the answer.
    pub(crate) before: String,
    /// The sentence behind it.
    pub(crate) behind: String,
}

impl Fact {
    pub fn sentence(&self) -> String {
        format!("{}{}{}", self.before, self.value, self.behind)
    }
}

/// Kind of the names of needles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum NameKind {
    Cities,
    /// An adjective and a noun: `quiet-harbor`.
    Words,
    Uuid,
    /// Five capital letters: `QXVBA`.
    Variables,
    /// Questions of a file, which are not drawn.
    Questions,
}

/// Kind of the values of needles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ValueKind {
    /// Numbers of so many digits.
    Digits(usize),
    Uuid,
}

/// The set of cities that a prompt draws its names from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CitySet {
    /// Cities that also occur in training documents.
    Train,
    /// Cities that occur in no training document, so that the model has never seen the name.
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
        static TRAIN: LazyLock<Vec<&str>> = LazyLock::new(|| lines(include_str!("../../assets/corpus/cities.txt")));
        static HELD_OUT: LazyLock<Vec<&str>> =
            LazyLock::new(|| lines(include_str!("../../assets/corpus/cities_heldout.txt")));
        match self {
            CitySet::Train | CitySet::Absent => &TRAIN,
            CitySet::HeldOut => &HELD_OUT,
        }
    }
}

/// Creates a made-up name from the beginning of one training city and the end of another, so that it is split into
/// similar tokens. It is never the name of a city of either set. (The embedded tokenizer is trained on these names, so
/// changing this function changes the tokenizer.)
pub(crate) fn made_up(rng: &mut Rng) -> String {
    let cities = CitySet::Train.cities();
    loop {
        let head = *rng.pick(cities);
        let tail = *rng.pick(cities);
        let head = &head[..2 + rng.below(3.min(head.len() - 2))];
        let tail = &tail[tail.len() - (2 + rng.below(4.min(tail.len() - 3)))..];
        let name = format!("{head}{tail}");
        let is_city = [cities, CitySet::HeldOut.cities()].iter().any(|set| set.contains(&name.as_str()));
        if (4..=12).contains(&name.len()) && !is_city {
            return name;
        }
    }
}

/// Adjectives and nouns.
fn word_lists() -> &'static [Vec<&'static str>; 2] {
    static LISTS: LazyLock<[Vec<&str>; 2]> = LazyLock::new(|| {
        [include_str!("../../assets/corpus/adjectives.txt"), include_str!("../../assets/corpus/nouns.txt")].map(lines)
    });
    &LISTS
}

/// A random UUID: version 4 of RFC 9562.
fn uuid(rng: &mut Rng) -> String {
    let high = rng.bits() & !0xf000 | 0x4000;
    let low = rng.bits() >> 2 | 1 << 63;
    let a = high >> 32;
    let b = high >> 16 & 0xffff;
    let c = high & 0xffff;
    let d = low >> 48;
    let e = low & 0xffff_ffff_ffff;
    format!("{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
}

/// A number of so many digits, the first of them not 0.
pub fn number(digits: usize, rng: &mut Rng) -> String {
    let least = 10usize.pow(digits as u32 - 1);
    (least + rng.below(9 * least)).to_string()
}

/// Draws until `n` different texts are there.
fn distinct(n: usize, mut draw: impl FnMut() -> String) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut drawn = Vec::with_capacity(n);
    while drawn.len() < n {
        let text = draw();
        if seen.insert(text.clone()) {
            drawn.push(text);
        }
    }
    drawn
}

impl NameKind {
    /// Draws `n` different names. Of cities there must be as many.
    pub(super) fn draw(self, cities: &[&str], n: usize, rng: &mut Rng) -> Vec<String> {
        match self {
            Self::Cities => rng.sample(cities, n).into_iter().map(str::to_owned).collect(),
            Self::Words => {
                let [adjectives, nouns] = word_lists();
                distinct(n, || format!("{}-{}", rng.pick(adjectives), rng.pick(nouns)))
            }
            Self::Uuid => distinct(n, || uuid(rng)),
            Self::Variables => distinct(n, || (0..5).map(|_| char::from(b'A' + rng.below(26) as u8)).collect()),
            Self::Questions => unreachable!("a file has them"),
        }
    }
}

impl ValueKind {
    /// Draws `n` different values.
    pub(crate) fn draw(self, n: usize, rng: &mut Rng) -> Vec<String> {
        match self {
            Self::Digits(digits) => distinct(n, || number(digits, rng)),
            Self::Uuid => distinct(n, || uuid(rng)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cities_are_many_plain_and_in_one_set_only() {
        let train = CitySet::Train.cities();
        let held_out = CitySet::HeldOut.cities();
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

    #[test]
    fn words_are_different_plain_and_no_cities() {
        let cities: HashSet<String> = [CitySet::Train, CitySet::HeldOut]
            .iter()
            .flat_map(|set| set.cities())
            .map(|city| city.to_lowercase())
            .collect();
        let mut seen = HashSet::new();
        for word in word_lists().iter().flatten() {
            assert!((3..=10).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_lowercase()), "{word}");
            assert!(!cities.contains(*word) && *word != "needle", "{word}");
        }
        let [adjectives, nouns] = word_lists();
        assert!(adjectives.iter().all(|word| seen.insert(*word)) && adjectives.len() >= 150);
        seen.clear();
        assert!(nouns.iter().all(|word| seen.insert(*word)) && nouns.len() >= 200);
    }

    #[test]
    fn names_and_values_have_the_form_of_their_kind() {
        let mut rng = Rng::new(4, "kinds");
        for uuid in NameKind::Uuid.draw(&[], 500, &mut rng) {
            let groups: Vec<&str> = uuid.split('-').collect();
            assert_eq!(groups.iter().map(|group| group.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{uuid}");
            assert!(groups.iter().all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit())), "{uuid}");
            assert!(groups[2].starts_with('4') && groups[3].starts_with(['8', '9', 'a', 'b']), "{uuid}");
        }
        assert!(NameKind::Words.draw(&[], 500, &mut rng).iter().all(|pair| pair.split('-').count() == 2));
        assert!(NameKind::Variables.draw(&[], 500, &mut rng).iter().all(|name| name.len() == 5));
        assert!(ValueKind::Digits(7).draw(500, &mut rng).iter().all(|number| number.len() == 7));
    }
}

//! Facts: sentences that give an answer, with keys and values that are drawn at random.

use std::collections::HashSet;
use std::sync::OnceLock;

use super::cities::lines;
use super::needle_spec::NeedleForm;
use super::CitySet;
use crate::base::rng::Rng;

/// A sentence that gives an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fact {
    /// What is asked about.
    pub(super) key: String,
    /// The answer, a part of the sentence; empty for a sentence that answers nothing.
    pub(super) value: String,
    /// The sentence before the answer.
    pub(super) before: String,
    /// The sentence behind it.
    pub(super) behind: String,
}

impl Fact {
    /// The whole sentence.
    pub(super) fn sentence(&self) -> String {
        format!("{}{}{}", self.before, self.value, self.behind)
    }
}

/// Kinds of the keys and values of needles.
#[derive(Clone, Copy)]
pub(super) struct FactKinds {
    pub(super) keys: KeyKind,
    pub(super) values: ValueKind,
    /// Needles of each key, each with another value.
    pub(super) values_per_key: usize,
    /// Links of a chain: needles that give the value of another key to theirs. 0 for needles without chains.
    pub(super) hops: usize,
}

/// Kind of the keys of needles.
#[derive(Clone, Copy)]
pub(super) enum KeyKind {
    /// Names of cities.
    Cities,
    /// An adjective and a noun: `quiet-harbor`.
    Words,
    /// Random UUIDs.
    Uuid,
    /// Five capital letters: `QXVBA`.
    Variables,
}

/// Kind of the values of needles.
#[derive(Clone, Copy)]
pub(super) enum ValueKind {
    /// Numbers of five digits; of seven in RULER's tasks.
    Digits,
    /// Random UUIDs.
    Uuid,
}

impl FactKinds {
    /// Number of answers to a question about one key.
    pub(super) fn answers_per_key(&self) -> usize {
        self.values_per_key.max(self.hops + 1)
    }
}

/// Letters of a variable.
const VARIABLE_LETTERS: usize = 5;

/// Adjectives and nouns.
fn word_lists() -> &'static [Vec<&'static str>; 2] {
    static LISTS: OnceLock<[Vec<&str>; 2]> = OnceLock::new();
    LISTS.get_or_init(|| {
        [include_str!("../../assets/corpus/adjectives.txt"), include_str!("../../assets/corpus/nouns.txt")].map(lines)
    })
}

fn word_pair(rng: &mut Rng) -> String {
    let [adjectives, nouns] = word_lists();
    format!("{}-{}", rng.pick(adjectives), rng.pick(nouns))
}

/// A random UUID: version 4 of RFC 9562.
fn uuid(rng: &mut Rng) -> String {
    let (high, low) = (rng.bits() & !0xf000 | 0x4000, rng.bits() >> 2 | 1 << 63);
    let (a, b, c, d, e) = (high >> 32, high >> 16 & 0xffff, high & 0xffff, low >> 48, low & 0xffff_ffff_ffff);
    format!("{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
}

fn variable(rng: &mut Rng) -> String {
    (0..VARIABLE_LETTERS).map(|_| char::from(b'A' + rng.below(26) as u8)).collect()
}

/// A number of so many digits, the first of them not 0.
pub(super) fn number(digits: usize, rng: &mut Rng) -> String {
    let least = 10usize.pow(digits as u32 - 1);
    (least + rng.below(9 * least)).to_string()
}

/// Draws until `n` different texts are there.
fn distinct(n: usize, mut draw: impl FnMut() -> String) -> Vec<String> {
    let (mut seen, mut drawn) = (HashSet::new(), Vec::with_capacity(n));
    while drawn.len() < n {
        let text = draw();
        if seen.insert(text.clone()) {
            drawn.push(text);
        }
    }
    drawn
}

/// Draws `n` different keys. Of cities there must be as many.
pub(super) fn keys(kind: KeyKind, cities: &[&str], n: usize, rng: &mut Rng) -> Vec<String> {
    match kind {
        KeyKind::Cities => rng.sample(cities, n).into_iter().map(str::to_owned).collect(),
        KeyKind::Words => distinct(n, || word_pair(rng)),
        KeyKind::Uuid => distinct(n, || uuid(rng)),
        KeyKind::Variables => distinct(n, || variable(rng)),
    }
}

/// Draws `n` different values.
pub(super) fn values(kind: ValueKind, digits: usize, n: usize, rng: &mut Rng) -> Vec<String> {
    match kind {
        ValueKind::Digits => distinct(n, || number(digits, rng)),
        ValueKind::Uuid => distinct(n, || uuid(rng)),
    }
}

/// Further facts of a prompt, about other keys and with other values than those that it has.
pub(super) struct Distractors<'a> {
    form: &'a NeedleForm,
    rng: Rng,
    used: HashSet<String>,
    /// Cities that are left, if keys are cities.
    cities: Vec<&'static str>,
}

impl<'a> Distractors<'a> {
    /// Distractors besides `facts`.
    pub(super) fn new<'f>(
        form: &'a NeedleForm,
        cities: CitySet,
        facts: impl Iterator<Item = &'f Fact>,
        mut rng: Rng,
    ) -> Self {
        let used: HashSet<String> = facts.flat_map(|fact| [fact.key.clone(), fact.value.clone()]).collect();
        let mut left: Vec<&str> = cities.cities().iter().copied().filter(|city| !used.contains(*city)).collect();
        rng.shuffle(&mut left);
        Self { form, rng, used, cities: left }
    }

    /// A random place below `n`.
    pub(super) fn place(&mut self, n: usize) -> usize {
        self.rng.below(n)
    }

    fn key(&mut self) -> Option<String> {
        match self.form.kinds().keys {
            KeyKind::Cities => self.cities.pop().map(str::to_owned),
            kind => Some(self.new_text(|rng| keys(kind, &[], 1, rng).swap_remove(0))),
        }
    }

    fn new_text(&mut self, draw: impl Fn(&mut Rng) -> String) -> String {
        loop {
            let text = draw(&mut self.rng);
            if self.used.insert(text.clone()) {
                return text;
            }
        }
    }
}

impl Iterator for Distractors<'_> {
    type Item = Fact;

    /// The next one; `None` if the cities have run out.
    fn next(&mut self) -> Option<Fact> {
        let key = self.key()?;
        let (kind, digits) = (self.form.kinds().values, self.form.wording().digits);
        let value = self.new_text(|rng| values(kind, digits, 1, rng).swap_remove(0));
        Some(self.form.fact(&key, &value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn keys_and_values_have_the_form_of_their_kind() {
        let mut rng = Rng::new(4, "kinds");
        let mut all = |kind| keys(kind, &[], 500, &mut rng);
        for uuid in all(KeyKind::Uuid) {
            let groups: Vec<&str> = uuid.split('-').collect();
            assert_eq!(groups.iter().map(|group| group.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{uuid}");
            assert!(groups.iter().all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit())), "{uuid}");
            assert!(groups[2].starts_with('4') && groups[3].starts_with(['8', '9', 'a', 'b']), "{uuid}");
        }
        assert!(all(KeyKind::Words).iter().all(|pair| pair.split('-').count() == 2));
        assert!(all(KeyKind::Variables).iter().all(|name| name.len() == 5));
        assert!(values(ValueKind::Digits, 7, 500, &mut rng).iter().all(|number| number.len() == 7));
    }
}

//! Draws of facts that a prompt does not ask for.

use super::facts::{CitySet, Fact, NameKind};
use super::form::NeedleForm;
use stats::Rng;
use std::collections::HashSet;

/// Draws after which there are no new texts.
const ATTEMPTS: usize = 1000;

/// Draws further facts of a prompt, about other names and with other values than those that it has.
pub(super) struct DistractorDraw {
    form: &'static NeedleForm,
    rng: Rng,
    used: HashSet<String>,
    /// Cities that are left, if names are cities.
    cities: Vec<&'static str>,
}

impl DistractorDraw {
    /// Distractors besides `facts`.
    pub(super) fn new(form: &'static NeedleForm, cities: CitySet, facts: &[Fact], mut rng: Rng) -> Self {
        let used: HashSet<String> = facts.iter().flat_map(|fact| [fact.name.clone(), fact.value.clone()]).collect();
        let mut left: Vec<&str> = cities.cities().iter().copied().filter(|city| !used.contains(*city)).collect();
        rng.shuffle(&mut left);
        Self { form, rng, used, cities: left }
    }

    /// A random place below `n`.
    pub(super) fn place(&mut self, n: usize) -> usize {
        self.rng.below(n)
    }

    /// Draws until the text is a new one; `None` if nearly all texts are used.
    fn new_text(&mut self, draw: impl Fn(&mut Rng) -> Vec<String>) -> Option<String> {
        for _ in 0..ATTEMPTS {
            let text = draw(&mut self.rng).swap_remove(0);
            if self.used.insert(text.clone()) {
                return Some(text);
            }
        }
        None
    }
}

impl Iterator for DistractorDraw {
    type Item = Fact;

    /// The next one; `None` if names or values have run out.
    fn next(&mut self) -> Option<Fact> {
        let form = self.form;
        let name = match form.names {
            NameKind::Cities => self.cities.pop()?.to_owned(),
            kind => self.new_text(|rng| kind.draw(&[], 1, rng))?,
        };
        let value = self.new_text(|rng| form.values.draw(1, rng))?;
        Some(form.fact(&name, &value))
    }
}

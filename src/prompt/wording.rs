//! The fixed sentences of prompts and training documents.

/// The wordings of a fact, by their index in [`DocumentSpec::wordings`]: the texts before, between and behind the city
/// and the value. The first is the needle of the evaluation.
pub const WORDINGS: [[&str; 3]; 8] = [
    ["The special magic ", " number is: ", "."],
    ["", " ", "."],
    ["", " number: ", "."],
    ["In ", " the number is ", "."],
    ["The number of ", " is ", "."],
    ["The magic number of ", " is ", "."],
    ["", " has the number ", "."],
    ["People in ", " know the number ", "."],
];

/// The instructions before the haystack.
pub(super) const PREAMBLE: &str =
    "There are special magic numbers hidden in the irrelevant text below. Find them and remember them.";

/// The sentence of a needle in its published form.
pub fn sentence(city: &str, value: &str) -> String {
    format!("{}{value}{}", stem(city), WORDINGS[0][2])
}

/// A needle up to its value, which is also the prefix of its answer.
pub(super) fn stem(city: &str) -> String {
    let [before, between, _] = WORDINGS[0];
    format!("{before}{city}{between}")
}

/// The question about cities, in the order given.
pub(super) fn question(cities: &[&str]) -> String {
    match cities {
        [city] => format!("What is the special magic {city} number?"),
        [cities @ .., last] => format!("What are the special magic {} and {last} numbers?", cities.join(", ")),
        [] => String::new(),
    }
}

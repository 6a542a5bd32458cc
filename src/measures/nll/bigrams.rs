//! AR hits: tokens that can be recalled from their context, after Arora et al. 2023 ("Zoology").
//!
//! A token is an AR (associative recall) hit if it completes a bigram (the previous token and itself) that occurred
//! earlier in its window and is not frequent in general. Zoology calls a bigram frequent if it occurs more than 1,250
//! times in the training data. The training data of other models are not available, so frequencies are counted in a
//! fixed sample of the embedded prose, with the model's tokenizer. The training documents of the embedded models have
//! the same kind of prose; for other models it is plain English.

use crate::base::rng::Rng;
use crate::prompts::{Haystack, Tokenizer};
use crate::results::metric::AR_MAX_COUNT;
use anyhow::Result;
use std::collections::{HashMap, HashSet};

/// Number of sentences of the reference prose: 200 thousand tokens of the embedded tokenizer.
const REFERENCE_SENTENCES: usize = 13_400;

/// A set of bigrams: pairs of consecutive token ids.
pub type Bigrams = HashSet<(u32, u32)>;

/// Returns the bigrams that occur more than [`AR_MAX_COUNT`] times in the reference prose.
pub fn frequent(tokenizer: &Tokenizer) -> Result<Bigrams> {
    let ids = tokenizer.encode(&reference())?.ids;
    let mut counts: HashMap<(u32, u32), u64> = HashMap::new();
    for pair in ids.windows(2) {
        *counts.entry((pair[0], pair[1])).or_default() += 1;
    }
    Ok(counts.into_iter().filter(|&(_, count)| count > AR_MAX_COUNT).map(|(bigram, _)| bigram).collect())
}

/// Returns the reference prose, which must never change.
fn reference() -> String {
    let haystack = Haystack::embedded();
    let sentences = haystack.sentences(Rng::new(0, "reference prose")).take(REFERENCE_SENTENCES);
    sentences.map(|sentence| sentence.text).collect::<Vec<_>>().join(" ")
}

/// Returns, for each token, whether it is an AR hit.
pub fn ar_hits(ids: &[u32], frequent: &Bigrams) -> Vec<bool> {
    let mut seen = Bigrams::new();
    let hit = |pair: &[u32]| {
        let bigram = (pair[0], pair[1]);
        !seen.insert(bigram) && !frequent.contains(&bigram)
    };
    // The first token has no previous token.
    std::iter::once(false).take(ids.len()).chain(ids.windows(2).map(hit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_completes_a_bigram_seen_before_is_a_hit() {
        //             a  b  c  a  b  d  a  c  a  b
        let ids = [1, 2, 3, 1, 2, 4, 1, 3, 1, 2];
        let hits = |frequent: &Bigrams| {
            let hits = ar_hits(&ids, frequent);
            (0..ids.len()).filter(|&i| hits[i]).collect::<Vec<_>>()
        };
        // "a b" twice again, "c a" once again.
        assert_eq!(hits(&Bigrams::new()), [4, 8, 9]);
        assert_eq!(hits(&Bigrams::from([(1, 2)])), [8]);
        assert_eq!(ar_hits(&[7, 7, 7], &Bigrams::new()), [false, false, true]);
        assert_eq!(ar_hits(&[], &Bigrams::new()), [] as [bool; 0]);
        assert_eq!(ar_hits(&[7], &Bigrams::new()), [false]);
    }

    #[test]
    fn the_reference_prose_has_200_thousand_tokens() {
        let tokens = Tokenizer::embedded().encode(&reference()).unwrap().ids.len();
        assert!((199_000..201_000).contains(&tokens), "{tokens} tokens");
    }

    #[test]
    fn bigrams_of_usual_words_are_frequent() {
        let tokenizer = Tokenizer::embedded();
        let of_the = |text: &str| {
            let ids = tokenizer.encode(text).unwrap().ids;
            (ids[ids.len() - 2], ids[ids.len() - 1])
        };
        assert!(frequent(tokenizer).unwrap().contains(&of_the("at the end of the")));
    }
}

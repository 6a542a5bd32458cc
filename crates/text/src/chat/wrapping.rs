//! Chat templates around prompts, in tokens: special tokens of the template are encoded as such, while the same names
//! in the user's content are plain text.

use std::ops::Range;

use anyhow::{bail, Result};
use base::error::guarded;
use tokenizers::AddedToken;

use super::{Around, ChatTemplate};
use crate::Encoded;

/// Unicode noncharacters, each an alias for a special token of the template.
const ALIASES: std::ops::RangeInclusive<char> = '\u{fdd0}'..='\u{fdef}';

/// A special token written by a template.
struct SpecialToken {
    text: String,
    id: u32,
    alias: char,
    alias_id: u32,
}

/// The text of a chat template around the content of a user's message.
pub struct Wrapping {
    /// The template, for records.
    pub template: ChatTemplate,
    /// The text before and after the content.
    pub around: Around,
    /// The tokenizer with aliases as added tokens. It treats special tokens as text.
    inner: tokenizers::Tokenizer,
    specials: Vec<SpecialToken>,
}

impl Wrapping {
    /// # Errors
    /// If the template cannot be rendered, or the tokenizer cannot take more tokens.
    pub fn new(template: ChatTemplate, inner: &tokenizers::Tokenizer) -> Result<Self> {
        let around = template.text_around()?;
        let mut inner = inner.clone();
        let mut used: Vec<(u32, AddedToken)> = inner
            .get_added_tokens_decoder()
            .into_iter()
            .filter(|(_, token)| {
                token.special && [&around.before, &around.after].iter().any(|text| text.contains(&token.content))
            })
            .collect();
        // If several match, the longest wins, as in the tokenizer itself.
        used.sort_by_key(|(id, token)| (std::cmp::Reverse(token.content.len()), *id));
        if used.len() > ALIASES.count() {
            bail!("{}: more than {} special tokens", template.path.display(), ALIASES.count());
        }
        let mut specials = Vec::new();
        for ((id, token), alias) in used.into_iter().zip(ALIASES) {
            // Not special, so that it is encoded; not normalised, so that it is always found.
            let added = AddedToken::from(alias, false).normalized(false).lstrip(token.lstrip).rstrip(token.rstrip);
            guarded("tokenizers", || inner.add_tokens([added]))?;
            let Some(alias_id) = inner.token_to_id(&alias.to_string()) else {
                bail!("{}: cannot add an alias for {:?}", template.path.display(), token.content);
            };
            specials.push(SpecialToken { text: token.content, id, alias, alias_id });
        }
        Ok(Self { template, around, inner, specials })
    }

    /// Encodes a text in which names of special tokens are special tokens only inside `markup`, whose ranges are
    /// ordered.
    ///
    /// # Errors
    /// If the tokenizer fails, or the text contains an alias.
    pub fn encode(&self, text: &str, markup: &[Range<usize>]) -> Result<Encoded> {
        if let Some(alias) = text.chars().find(|char| ALIASES.contains(char)) {
            bail!("the text contains U+{:04X}, which is not a character: remove it", alias as u32);
        }
        let (aliased, shifts) = self.aliased(text, markup);
        let encoding = guarded("tokenizers", || self.inner.encode(aliased.as_str(), false))?;
        let mut encoded = Encoded::default();
        for (&id, &(start, end)) in encoding.get_ids().iter().zip(encoding.get_offsets()) {
            let special = self.specials.iter().find(|special| special.alias_id == id);
            encoded.ids.push(special.map_or(id, |special| special.id));
            encoded.offsets.push((unshifted(start, &shifts), unshifted(end, &shifts)));
        }
        encoded.check(text)?;
        Ok(encoded)
    }

    /// The tokens that every prompt begins with.
    pub(crate) fn encode_before(&self) -> Result<Encoded> {
        self.encode(&self.around.before, std::slice::from_ref(&(0..self.around.before.len())))
    }

    /// Replaces the special tokens in markup by aliases. Also returns the shift behind each.
    fn aliased(&self, text: &str, markup: &[Range<usize>]) -> (String, Vec<Shift>) {
        let mut aliased = String::with_capacity(text.len());
        let mut shifts = Vec::new();
        let mut at = 0;
        for range in markup {
            aliased.push_str(&text[at..range.start]);
            at = range.start;
            while let Some(char) = text[at..range.end].chars().next() {
                let rest = &text[at..range.end];
                match self.specials.iter().find(|special| rest.starts_with(&special.text)) {
                    Some(special) => {
                        aliased.push(special.alias);
                        at += special.text.len();
                        shifts.push(Shift { from: aliased.len(), by: at as isize - aliased.len() as isize });
                    }
                    None => {
                        aliased.push(char);
                        at += char.len_utf8();
                    }
                }
            }
        }
        aliased.push_str(&text[at..]);
        (aliased, shifts)
    }
}

/// How far text lies behind its place in the text with aliases, from the end of an alias to the next.
struct Shift {
    /// The end in the text with aliases.
    from: usize,
    by: isize,
}

/// The position in the text with special tokens of one in the text with aliases.
fn unshifted(at: usize, shifts: &[Shift]) -> usize {
    let passed = shifts.partition_point(|shift| shift.from <= at);
    at.saturating_add_signed(passed.checked_sub(1).map_or(0, |last| shifts[last].by))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;
    use serde_json::{json, Value};

    use super::Around;
    use crate::needle::build;
    use crate::needle::form::CITIES;
    use crate::needle::tests::{stem, PREAMBLE};
    use crate::{CitySet, Haystack, NeedleSpec, Prompt, Text, Tokenizer, TokenizerOptions, Windows};
    use names::Region;

    const CHATML: &str = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n{{ messages[0].content }}\
                          <|im_end|>\n<|im_start|>assistant\n";
    // Jinja drops a newline at the end of a file.
    const CHATML_END: &str = "{{ '' }}";
    const INST: &str = "{{ bos_token }}[INST] {{ messages[0].content }} [/INST]";
    const NAMES: [&str; 6] = ["<bos>", "<|im_start|>", "<|im_end|>", "[INST]", "[/INST]", "</s>"];

    /// Byte-level BPE, as GPT, Llama 3 and Qwen have it.
    fn byte_level() -> Value {
        serde_json::from_str(&Tokenizer::embedded().json).unwrap()
    }

    /// One token per character, with the space markers of Mistral and Gemma.
    fn metaspace() -> Value {
        let chars = ('!'..='~').chain(['\u{2581}', '\n']).map(String::from);
        let vocab: serde_json::Map<String, Value> =
            std::iter::once("<unk>".to_owned()).chain(chars).zip(0u32..).map(|(char, id)| (char, id.into())).collect();
        let space = json!({"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "first", "split": false});
        json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": space, "post_processor": null, "decoder": space,
            "model": {"type": "BPE", "vocab": vocab, "merges": [], "unk_token": "<unk>"}
        })
    }

    /// A folder with a tokenizer that has the special tokens, and a chat template.
    fn folder(mut tokenizer: Value, template: &str, rstrip: bool) -> tempfile::TempDir {
        let vocab = tokenizer["model"]["vocab"].as_object().unwrap().clone();
        let added = NAMES.iter().zip(vocab.len()..).map(|(name, id)| {
            json!({
                "id": vocab.get(*name).cloned().unwrap_or(id.into()), "content": name, "single_word": false,
                "lstrip": false, "rstrip": rstrip && name.starts_with('['), "normalized": false, "special": true
            })
        });
        tokenizer["added_tokens"] = added.collect();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
        fs::write(folder.path().join("tokenizer_config.json"), r#"{"bos_token": "<bos>"}"#).unwrap();
        fs::write(folder.path().join("chat_template.jinja"), format!("{template}{CHATML_END}")).unwrap();
        folder
    }

    fn open(folder: &tempfile::TempDir) -> Tokenizer {
        Tokenizer::open(folder.path(), &TokenizerOptions { chat: true, ..TokenizerOptions::default() }).unwrap()
    }

    const SPEC: NeedleSpec = NeedleSpec {
        ctx_tok: 600,
        needles: 3,
        retrieve: 2,
        depth_pct: 50.0,
        cities: CitySet::HeldOut,
        form: &CITIES,
        distractors_pct: 0.0,
    };

    fn prompt(tokenizer: &Tokenizer, spec: &NeedleSpec, seed: u64) -> Prompt {
        build(spec, seed, tokenizer, &Haystack::Embedded).unwrap()
    }

    #[test]
    fn a_prompt_has_the_tokens_that_hugging_face_gives_its_text() {
        for (name, json) in [("byte level", byte_level()), ("metaspace", metaspace())] {
            for (template, rstrip) in [(CHATML, false), (INST, false), (INST, true)] {
                let folder = folder(json.clone(), template, rstrip);
                let spec = NeedleSpec { ctx_tok: if name == "metaspace" { 1500 } else { 600 }, ..SPEC };
                let prompt = prompt(&open(&folder), &spec, 1);
                // Special tokens are tokens for it in any position.
                let theirs = tokenizers::Tokenizer::from_file(folder.path().join("tokenizer.json")).unwrap();
                let encoding = theirs.encode(prompt.text.as_str(), false).unwrap();
                assert_eq!(prompt.ids, encoding.get_ids(), "{name} {template} {rstrip}");
                assert_eq!(prompt.offsets, encoding.get_offsets(), "{name} {template} {rstrip}");
            }
        }
    }

    #[test]
    fn the_names_of_special_tokens_in_a_haystack_are_text() {
        let folder = folder(byte_level(), CHATML, false);
        let tokenizer = open(&folder);
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "He wrote <|im_end|> on the wall. Then <bos>[INST] was heard. ".repeat(40)).unwrap();
        let own = Haystack::from_path(file.path()).unwrap();
        let prompt = build(&SPEC, 3, &tokenizer, &own).unwrap();
        let id = |name: &str| tokenizer.chat().unwrap().inner.token_to_id(name).unwrap();
        let count = |name| prompt.ids.iter().filter(|&&token| token == id(name)).count();
        assert_eq!((count("<|im_start|>"), count("<|im_end|>"), count("<bos>"), count("[INST]")), (3, 2, 0, 0));
        let written = prompt.text.matches("<|im_end|>").count();
        let read = tokenizer.decode(&prompt.ids).unwrap();
        assert_eq!(read.matches("<|im_end|>").count(), written - 2);
        assert_eq!(read.len(), prompt.text.len() - 3 * "<|im_start|>".len() - 2 * "<|im_end|>".len());
        assert!(written > 4 && read.contains("Then <bos>[INST] was heard."));
    }

    #[test]
    fn the_noncharacters_that_stand_for_special_tokens_are_refused_in_a_haystack() {
        let folder = folder(byte_level(), CHATML, false);
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "A \u{fdd0} is no character. ".repeat(80)).unwrap();
        let own = Haystack::from_path(file.path()).unwrap();
        let error = format!("{:#}", build(&SPEC, 3, &open(&folder), &own).unwrap_err());
        assert!(error.contains("U+FDD0"), "{error}");
    }

    #[test]
    fn plain_text_is_not_put_into_the_template() {
        let folder = folder(byte_level(), INST, false);
        let chat = open(&folder);
        let plain = Tokenizer::open(folder.path(), &TokenizerOptions::default()).unwrap();
        let window = |tokenizer: &Tokenizer| {
            let windows = Windows { ctx_tok: 100, stride: None };
            Text::Prose.window(0, windows, 1, Ok(tokenizer)).unwrap()
        };
        assert_eq!(window(&chat), window(&plain));
        assert!(chat.chat().is_some() && plain.chat().is_none() && *chat.bos() != chat.text_bos);
    }

    /// Text of the tokens in a region, including special tokens.
    fn text_of(prompt: &Prompt, query: usize, region: Region) -> String {
        let regions = prompt.regions(Some(query));
        let tokens = (0..regions.len()).filter(|&i| regions[i] == region);
        tokens.map(|i| &prompt.text[prompt.offsets[i].0..prompt.offsets[i].1]).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn the_template_has_its_regions_and_the_answers_follow_the_generation_prompt(
            ctx_tok in 420usize..2000,
            needles in 1usize..=6,
            retrieve in 1usize..=2,
            depth_pct in prop_oneof![Just(0.0), Just(100.0), 0.0..=100.0],
            inst: bool,
            seed: u64,
        ) {
            let folder = folder(byte_level(), if inst { INST } else { CHATML }, false);
            let tokenizer = open(&folder);
            let spec =
                NeedleSpec { ctx_tok, needles, retrieve: retrieve.min(needles), depth_pct, cities: CitySet::Train, ..SPEC };
            let prompt = prompt(&tokenizer, &spec, seed);
            let Around { before, after, .. } = &tokenizer.chat().unwrap().around;
            prop_assert!(prompt.ids.len() <= ctx_tok && prompt.ids.len() + 40 > ctx_tok);
            prop_assert_eq!(prompt.has_bos, inst);
            for (i, query) in prompt.queries.iter().enumerate() {
                let template: String =
                    [Region::Bos, Region::First, Region::Template].map(|region| text_of(&prompt, i, region)).concat();
                prop_assert_eq!(template, format!("{before}{PREAMBLE}"));
                prop_assert_eq!(text_of(&prompt, i, Region::Bos), if inst { "<bos>" } else { "" });
                prop_assert_eq!(text_of(&prompt, i, Region::Answer), query.value.as_str());
                let question = text_of(&prompt, i, Region::Question);
                let first = &prompt.queries[0];
                prop_assert!(question.starts_with("\nWhat "), "{}", question);
                let begin = format!("?{after}{}{}.", stem(&first.name), first.value);
                prop_assert!(question.contains(&begin), "{question}");
                let filler = text_of(&prompt, i, Region::Filler);
                prop_assert!(!filler.contains(['<', '[']) && !filler.contains("magic"));
                let read = tokenizer.decode(&prompt.ids[query.rows().start + 1..query.rows().end + 1]).unwrap();
                prop_assert_eq!(read, query.value.as_str());
                if query.controlled && (depth_pct == 0.0 || depth_pct == 100.0) {
                    prop_assert_eq!(query.depth_real_pct, depth_pct);
                }
            }
        }
    }
}

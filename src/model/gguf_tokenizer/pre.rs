//! Pre-tokenizers of byte-level BPE: llama.cpp's names in `tokenizer.ggml.pre` and their split patterns, which are those of the
//! models' own `tokenizer.json`.

use serde_json::{json, Value};

/// English endings after an apostrophe.
macro_rules! endings {
    () => {
        "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
    };
}

/// Words, runs of `digits`, runs of other signs and white space, as in GPT-4's cl100k.
macro_rules! cl100k {
    ($digits:literal, $spaces:literal) => {
        concat!(endings!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|", $digits, r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|", $spaces)
    };
    ($digits:literal) => {
        cl100k!($digits, r"\s+(?!\S)|\s+")
    };
}

/// The same with splits before capital letters, as in GPT-4o's o200k.
macro_rules! o200k {
    ($endings:expr, $digits:literal) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            $endings,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            $endings,
            "|",
            $digits,
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
    };
}

/// Punctuation followed by letters, words, punctuation and then `$breaks`, the line breaks.
macro_rules! deepseek3 {
    ($breaks:literal) => {
        concat!(
            r"[!#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~",
            "\"",
            r"][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+",
            $breaks,
            r"|\s+(?!\S)|\s+"
        )
    };
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const DIGIT: &str = r"\p{N}";
const THREE_DIGITS: &str = "[0-9][0-9][0-9]";
const LLAMA3: &str = cl100k!(r"\p{N}{1,3}");
const QWEN2: &str = cl100k!(r"\p{N}");
const O200K: &str = o200k!(concat!(endings!(), "?"), r"\p{N}{1,3}");
const BLOOM: &str = r" ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+";
/// Chinese and Japanese characters.
const CJK: &str = r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+";
const DEEPSEEK_CJK: &str = r"[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+";
const DEEPSEEK3: &str = deepseek3!(r"[\r\n]*|\s*[\r\n]+");
const SPARK: &str = deepseek3!(r"|[\r\n]");
const DEEPSEEK_LETTERS: &str = r"\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+";
const DEEPSEEK_SIGNS: &str = r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+";
const AFMOE_CJK: &str = r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{8C48}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF}\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}\x{E40}-\x{E7F}\x{E80}-\x{EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+";
const YOUTU_CJK: &str = r"[\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+|[\x{3105}-\x{312F}]+|[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+";

/// A pre-tokenizer and its defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pre {
    /// Patterns that split the text one after the other.
    patterns: &'static [&'static str],
    /// Whether a word that is a token is used without merging.
    pub(super) ignores_merges: bool,
    /// Whether texts begin with the begin-of-sequence token by default.
    pub(super) adds_bos: bool,
    /// Whether text is normalized to NFC first.
    pub(super) composes: bool,
}

impl Pre {
    const fn cuts(patterns: &'static [&'static str]) -> Self {
        Self { patterns, ignores_merges: false, adds_bos: false, composes: false }
    }

    const fn ignoring_merges(self) -> Self {
        Self { ignores_merges: true, ..self }
    }

    const fn adding_bos(self) -> Self {
        Self { adds_bos: true, ..self }
    }

    /// The pre-tokenizer of this name; `None` if it is unknown or not byte-level.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "falcon-h1" | "pixtral" | "midm-2.0" | "lfm2"
            | "jina-v5-nano" => Self::cuts(&[LLAMA3]).ignoring_merges().adding_bos(),
            "dbrx" | "smaug-bpe" | "chatglm-bpe" => Self::cuts(&[LLAMA3]),
            "glm4" | "glm5" => Self::cuts(&[LLAMA3]).ignoring_merges(),
            "qwen2" => Self { composes: true, ..Self::cuts(&[QWEN2]) },
            "deepseek-r1-qwen" | "kormo" | "f2llmv2" | "megrez" | "stablelm2" | "hunyuan" | "solar-open" | "grok-2" => {
                Self::cuts(&[QWEN2])
            }
            "qwen35" => Self::cuts(&[concat!(
                endings!(),
                r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            )]),
            "ufakzeka" => {
                Self::cuts(&[r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"])
            }
            "seed-coder" => Self::cuts(&[concat!(
                endings!(),
                r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
            )]),
            "exaone-moe" => Self::cuts(&[concat!(
                endings!(),
                r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
            )]),
            "bailingmoe" | "bailingmoe2" | "llada-moe" => Self::cuts(&[
                r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
            ]),
            "jais-2" => Self::cuts(&[cl100k!(
                r"\p{N}{1,3}",
                r"\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}"
            )]),
            "minicpm5" => Self::cuts(&[r"\p{N}{1,3}", cl100k!(r"\p{N}+")]).ignoring_merges(),
            "laguna" => Self::cuts(&[r"[^\n]+|[\n]+", QWEN2]),
            "gpt-4o" | "llama4" | "kanana2" | "talkie" | "minimax-m2" => Self::cuts(&[O200K]),
            "granite-embed-multi-97m" => Self::cuts(&[O200K]).ignoring_merges(),
            "tekken" => Self::cuts(&[o200k!("", r"\p{N}")]).ignoring_merges().adding_bos(),
            "tiny_aya" | "cohere2moe" => Self::cuts(&[r"\d{1,3}(?=(?:\d{3})*\b)", O200K]),
            "youtu" => Self::cuts(&[YOUTU_CJK, o200k!(concat!(endings!(), "?"), r"\p{N}")]).ignoring_merges(),
            "deepseek-llm" => {
                Self::cuts(&[r"[\r\n]", DEEPSEEK_LETTERS, DEEPSEEK_SIGNS, r"\s+$", DEEPSEEK_CJK, r"\p{N}+"])
            }
            "deepseek-coder" => Self::cuts(&[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK, DIGIT]),
            "deepseek-v3" | "hunyuan-dense" | "joyai-llm" | "hy_v4" => Self::cuts(&[r"\p{N}{1,3}", CJK, DEEPSEEK3]),
            "spark2_5" => Self::cuts(&[r"\p{N}{1,3}", CJK, SPARK, DIGIT]),
            "afmoe" => Self::cuts(&[r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))", AFMOE_CJK, DEEPSEEK3]),
            "superbpe" => Self::cuts(&[r"\p{N}+", r"(?=(\d{3})+(?!\d))"]),
            "falcon" => Self::cuts(&[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, THREE_DIGITS]),
            "default" => Self::cuts(&[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", THREE_DIGITS]),
            "starcoder" | "refact" | "command-r" | "smollm" | "codeshell" | "exaone" | "minerva-7b" | "mellum2" => {
                Self::cuts(&[DIGIT, GPT2])
            }
            "gpt-2" | "phi-2" | "jina-es" | "jina-de" | "jina-v1-en" | "jina-v2-es" | "jina-v2-de" | "jina-v2-code"
            | "roberta-bpe" | "gigachat" | "a.x-4.0" | "mellum" | "modern-bert" | "exaone4" | "mpt" | "olmo"
            | "jais" | "trillion" | "granite-docling" => Self::cuts(&[GPT2]),
            "poro-chat" | "bloom" | "gpt3-finnish" => Self::cuts(&[BLOOM]),
            "viking" => Self::cuts(&[BLOOM, DIGIT]),
            "chameleon" => Self::cuts(&[
                "<sentinel:[0-9]+>",
                "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
                r"([\t\n]|    |  )",
                DIGIT,
                r"[\p{P}!-/:-@\[-`{-~]",
                GPT2,
            ])
            .adding_bos(),
            _ => return None,
        })
    }

    /// The `pre_tokenizer` of a `tokenizer.json`.
    pub(super) fn json(self) -> Value {
        let split = |pattern: &&str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
        let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
        let all: Vec<Value> = self.patterns.iter().map(split).chain([bytes]).collect();
        json!({"type": "Sequence", "pretokenizers": all})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a text.
    fn words(pre: &str, text: &str) -> Vec<String> {
        use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _};
        let json = Pre::named(pre).unwrap().json();
        let cut: tokenizers::PreTokenizerWrapper = serde_json::from_value(json).unwrap();
        let mut string = PreTokenizedString::from(text);
        cut.pre_tokenize(&mut string).unwrap();
        let splits = string.get_splits(OffsetReferential::Original, OffsetType::Byte);
        splits.into_iter().map(|(_, (start, end), _)| text[start..end].to_owned()).collect()
    }

    #[test]
    fn names_of_one_pattern_cut_alike_and_others_as_their_models_do() {
        let text = "They'LL pay 12345 $ for\n\n  HTMLpages, 東京!";
        let cut = |pre: &str| words(pre, text).join("|");
        assert_eq!(cut("qwen2"), "They|'LL| pay| |1|2|3|4|5| $| for|\n\n| | HTMLpages|,| 東京|!");
        assert_eq!(cut("deepseek-r1-qwen"), cut("qwen2"));
        assert_eq!(cut("llama-bpe"), "They|'LL| pay| |123|45| $| for|\n\n| | HTMLpages|,| 東京|!");
        assert_eq!(cut("gpt-4o"), "They'LL| pay| |123|45| $| for|\n\n| | HTMLpages|,| 東京|!");
        assert_eq!(cut("gpt-2"), "They|'|LL| pay| 12345| $| for|\n\n | HTMLpages|,| 東京|!");
        assert_eq!(cut("smollm"), "They|'|LL| pay| |1|2|3|4|5| $| for|\n\n | HTMLpages|,| 東京|!");
        assert_eq!(cut("falcon"), "They|'|LL| pay| |123|45| |$| for|\n\n | HTMLpages|,| 東京|!");
        assert_eq!(words("superbpe", "12345"), ["12", "345"]);
        assert_eq!(words("afmoe", "12345"), ["12", "345"]);
        assert_eq!(words("tiny_aya", "12345"), ["12", "345"]);
    }

    #[test]
    fn every_pattern_can_be_read() {
        for name in NAMES {
            assert!(!words(name, "a 1\n").is_empty(), "{name}");
        }
        assert_eq!(Pre::named("kimi-k2"), None);
    }

    /// One name of every pattern.
    const NAMES: [&str; 33] = [
        "llama3",
        "dbrx",
        "glm4",
        "qwen2",
        "grok-2",
        "qwen35",
        "ufakzeka",
        "seed-coder",
        "exaone-moe",
        "bailingmoe",
        "jais-2",
        "minicpm5",
        "laguna",
        "gpt-4o",
        "granite-embed-multi-97m",
        "tekken",
        "tiny_aya",
        "youtu",
        "deepseek-llm",
        "deepseek-coder",
        "deepseek-v3",
        "spark2_5",
        "afmoe",
        "superbpe",
        "falcon",
        "default",
        "starcoder",
        "gpt-2",
        "bloom",
        "viking",
        "chameleon",
        "poro-chat",
        "megrez",
    ];
}

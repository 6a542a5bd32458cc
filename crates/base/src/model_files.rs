//! The files that a folder with a model may hold, in the format of transformers. Whoever reads one takes its name from here, and
//! downloads from the Hub go by this list.

/// The configuration, which every folder has.
pub const CONFIG: &str = "config.json";

/// The key of [`CONFIG`] under which a training says what its model began with.
pub const TRAINING: &str = "difftool";

/// The weights in one file.
pub const TENSOR_FILE: &str = "model.safetensors";

/// The index of weights in several files.
pub const INDEX_FILE: &str = "model.safetensors.index.json";

/// The latest weights of a training, as diff-mlx and other programs name them.
const LATEST_FILE: &str = "latest.safetensors";

/// End of the names of files with weights.
pub const SAFETENSORS: &str = ".safetensors";

/// The tokenizer in one file.
pub const TOKENIZER: &str = "tokenizer.json";

/// The tokens of a tokenizer in two files.
pub const VOCAB: &str = "vocab.json";

/// The merges of a tokenizer in two files.
pub const MERGES: &str = "merges.txt";

/// How texts begin, named special tokens, and maybe the chat template.
pub const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

/// Named special tokens, from older versions of transformers.
pub const SPECIAL_TOKENS_MAP: &str = "special_tokens_map.json";

/// Tokens that are added to the tokenizer, from older versions of transformers.
pub const ADDED_TOKENS: &str = "added_tokens.json";

/// The chat template.
pub const CHAT_TEMPLATE: &str = "chat_template.jinja";

/// The tokens that end a text.
pub const GENERATION_CONFIG: &str = "generation_config.json";

/// The configuration of an adapter, which is no model by itself.
pub const ADAPTER_CONFIG: &str = "adapter_config.json";

/// Files that a folder may lack besides its tokenizer and its weights.
pub const OPTIONAL: [&str; 5] = [TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP, ADDED_TOKENS, CHAT_TEMPLATE, GENERATION_CONFIG];

/// A tokenizer in two files, which is read where there is no [`TOKENIZER`].
pub const TOKENIZER_PARTS: [&str; 2] = [VOCAB, MERGES];

/// The files that may be the weights of a folder with these names, without [`TENSOR_FILE`] and [`INDEX_FILE`]: a
/// `latest.safetensors`, or else every file that is neither a [part](is_part) nor an adapter.
pub fn weight_candidates<'a>(names: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let mut found: Vec<String> = names.into_iter().filter(|name| name.ends_with(SAFETENSORS)).cloned().collect();
    found.retain(|name| !name.contains('/') && !name.starts_with("adapter_") && !is_part(name));
    if found.iter().any(|name| name == LATEST_FILE) {
        return vec![LATEST_FILE.to_owned()];
    }
    found
}

/// Returns `true` if a file is one of several with the weights, as `model-00001-of-00002.safetensors` is.
pub fn is_part(name: &str) -> bool {
    parts_of(name).is_some()
}

/// The number of parts that a file is one of.
fn parts_of(name: &str) -> Option<usize> {
    let (_, parts) = name.strip_suffix(SAFETENSORS)?.rsplit_once("-of-")?;
    parts.parse().ok().filter(|&parts| parts > 1)
}

/// The weights in several files without an [`INDEX_FILE`], in their order; none where a part is missing, or there are parts of
/// different numbers.
pub fn weight_parts<'a>(names: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let mut parts: Vec<String> =
        names.into_iter().filter(|name| !name.contains('/') && is_part(name)).cloned().collect();
    parts.sort();
    if parts.iter().any(|name| parts_of(name) != Some(parts.len())) {
        parts.clear();
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_other_names_are_whole_files_of_no_adapter() {
        let of = |names: &[&str]| weight_candidates(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        for (names, expected) in [
            (&["config.json", "weights.safetensors"][..], &["weights.safetensors"][..]),
            (&["latest.safetensors", "step-100.safetensors"], &["latest.safetensors"]),
            (&["a.safetensors", "b.safetensors"], &["a.safetensors", "b.safetensors"]),
            (&["adapter_model.safetensors", "model-00001-of-00002.safetensors", "x/a.safetensors", "a.bin"], &[]),
            (&["model-00001-of-00001.safetensors"], &["model-00001-of-00001.safetensors"]),
            (&["one-of-us.safetensors"], &["one-of-us.safetensors"]),
        ] {
            assert_eq!(of(names), expected, "{names:?}");
        }
    }

    #[test]
    fn parts_are_weights_if_all_are_there() {
        for (names, are_whole) in [
            (&["m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors"][..], true),
            (&["m-1-of-3.safetensors", "m-2-of-3.safetensors", "m-3-of-3.safetensors"], true),
            (&["m-00002-of-00002.safetensors"], false),
            (&["m-00001-of-00003.safetensors", "m-00003-of-00003.safetensors"], false),
            (&["m-1-of-2.safetensors", "m-2-of-2.safetensors", "m-1-of-3.safetensors"], false),
            (&["x/m-1-of-2.safetensors", "m-2-of-2.safetensors"], false),
            (&["model.safetensors"], false),
        ] {
            let owned: Vec<String> = names.iter().rev().map(|&name| name.to_owned()).collect();
            assert_eq!(weight_parts(&owned), if are_whole { names } else { &[] }, "{names:?}");
        }
    }
}

//! Token ids from a file, made with any tokenizer.

use anyhow::{Context, Result};
use base::bail_usage;
use base::files;
use base::files::without_byte_order_mark;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// Token ids in a file, separated by white space or as a JSON list. Nothing is added to them, not even a begin-of-sequence token.
#[derive(Clone, Debug)]
pub struct TokenIds {
    /// The file.
    pub path: PathBuf,
    /// All ids, at least one.
    pub ids: Vec<u32>,
    /// The largest id, and the first line that has it.
    largest: (u32, usize),
}

impl TokenIds {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read. Usage errors if it has no ids or a word that is not an id, with its line.
    pub fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let bytes = files::input(path, files::TEXT_MAX).context("the token ids")?;
        let mut ids = Vec::new();
        let mut largest = (0, 0);
        let text = without_byte_order_mark(String::from_utf8_lossy(&bytes).into_owned());
        let is_list = text.trim_start().starts_with('[') && text.trim_end().ends_with(']');
        for (line, text) in text.lines().enumerate() {
            let words = text.split(|c: char| c.is_whitespace() || is_list && "[,]".contains(c));
            for word in words.filter(|word| !word.is_empty()) {
                let Ok(id) = word.parse::<u32>() else {
                    bail_usage!("{shown}, line {}: `{word}` is not a token id, a whole number such as 17", line + 1);
                };
                if ids.is_empty() || id > largest.0 {
                    largest = (id, line + 1);
                }
                ids.push(id);
            }
        }
        if ids.is_empty() {
            bail_usage!("{shown}, line 1: no token ids in the file");
        }
        Ok(Self { path: path.to_owned(), ids, largest })
    }

    /// Checks that all ids are below `vocab`. A usage error names the line of the largest.
    pub fn check(&self, model: &str, vocab: usize) -> Result<()> {
        let (id, line) = self.largest;
        if id as usize >= vocab {
            bail_usage!(
                "{}, line {line}: token id {id} is outside the vocabulary of {model}, which has ids 0 to {}",
                self.path.display(),
                vocab - 1
            );
        }
        Ok(())
    }

    /// SHA-256 of the ids as little-endian bytes, in hexadecimal.
    pub fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        self.ids.iter().for_each(|id| hash.update(id.to_le_bytes()));
        base::hash::hex(&hash.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::exit_code;

    fn read(text: &str) -> Result<TokenIds> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ids.txt");
        std::fs::write(&path, text).unwrap();
        TokenIds::read(&path)
    }

    #[test]
    fn ids_are_separated_by_any_white_space_or_a_json_list() {
        for text in ["1 5\t7\r\n\n 0\n", "[1, 5, 7, 0]", " [1,5,\n7,0]\n", "[[1, 5], [7, 0]]"] {
            assert_eq!(read(text).unwrap().ids, [1, 5, 7, 0], "{text}");
        }
    }

    #[test]
    fn invalid_ids_are_errors_with_file_and_line() {
        for (text, words) in [
            ("1 2\n3 x 4", "ids.txt, line 2: `x` is not a token id"),
            ("-1", "line 1: `-1`"),
            ("1\n2\n4294967296", "line 3: `4294967296`"),
            ("1.5", "line 1: `1.5`"),
            ("", "ids.txt, line 1: no token id"),
            (" \n \n", "no token id"),
            ("1,2", "`1,2`"),
            ("[1, 2", "`[1,`"),
            ("[1,\n2.5]", "line 2: `2.5`"),
            ("[]", "no token id"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert_eq!(exit_code(&error), 2);
        }
        assert!(format!("{:#}", TokenIds::read(Path::new("nowhere.txt")).unwrap_err()).contains("nowhere.txt"));
    }

    #[test]
    fn an_id_outside_the_vocabulary_is_named_with_its_line() {
        let ids = read("1 2\n3 130\n130 7").unwrap();
        assert!(ids.check("./llama", 131).is_ok());
        let error = ids.check("./llama", 130).unwrap_err().to_string();
        assert!(
            error.ends_with(
                "ids.txt, line 2: token id 130 is outside the vocabulary of ./llama, which has ids 0 to 129"
            ),
            "{error}"
        );
    }
}

//! People's texts: windows to train on, and documents that are held out to evaluate the loss on.
//!
//! A document is a file. A tenth of them is held out, by the hash of the text: the same whatever else is in the folder, and
//! never one whose copy is trained on.

use super::spec::{Stage, TrainSpec};
use anyhow::{Context, Result};
use base::bail_usage;
use base::files;
use base::hash::sha256;
use rayon::prelude::*;
use stats::Rng;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use text::Tokenizer;

/// One of so many documents is held out.
const HELD_OUT_OF: u32 = 10;

/// The texts of all stages of a spec, by their paths.
#[derive(Default)]
pub(super) struct Corpora(BTreeMap<Vec<PathBuf>, Corpus>);

/// Tokens of documents, without those that begin a text.
pub(super) struct Corpus {
    trained: Vec<Vec<u32>>,
    held_out: Vec<Vec<u32>>,
    /// The token that a window begins with.
    bos: Option<u32>,
}

impl Corpora {
    /// Reads the texts of a spec.
    ///
    /// # Errors
    /// Usage errors if a text cannot be read, none is held out, or all are shorter than a window of their stage.
    pub(super) fn read(spec: &TrainSpec, tokenizer: &Tokenizer) -> Result<Self> {
        let mut corpora = Self::default();
        for stage in spec.stages.iter().filter(|stage| stage.has_text()) {
            let texts = &stage.data.text;
            if !corpora.0.contains_key(texts) {
                corpora.0.insert(texts.clone(), Corpus::read(texts, tokenizer).context("stage.data.text")?);
            }
            let at = || format!("stage of {} tokens: text", stage.ctx_tok);
            corpora.0[texts].check(stage.ctx_tok).with_context(at)?;
        }
        Ok(corpora)
    }

    /// The texts of a stage, if it has any.
    pub(super) fn of(&self, stage: &Stage) -> Option<&Corpus> {
        self.0.get(&stage.data.text).filter(|_| stage.has_text())
    }
}

impl Corpus {
    fn read(texts: &[PathBuf], tokenizer: &Tokenizer) -> Result<Self> {
        let paths = documents(texts)?;
        let read: Vec<(bool, Vec<u32>)> = paths.par_iter().map(|path| read(path, tokenizer)).collect::<Result<_>>()?;
        let n = read.len();
        let (held_out, trained): (Vec<_>, Vec<_>) = read.into_iter().partition(|(is_held_out, _)| *is_held_out);
        if trained.is_empty() || held_out.is_empty() {
            let side = if trained.is_empty() { "all" } else { "none" };
            bail_usage!(
                "{side} of {n} documents are held out (a tenth of them is, by the hash of their texts); give more, each in a \
                 file of its own"
            );
        }
        let [trained, held_out] = [trained, held_out].map(|side| side.into_iter().map(|(_, ids)| ids).collect());
        Ok(Self { trained, held_out, bos: tokenizer.text_bos.id })
    }

    /// Checks that there are windows of a context on both sides.
    fn check(&self, ctx_tok: usize) -> Result<()> {
        for (side, name) in [(&self.trained, "to train on"), (&self.held_out, "that are held out")] {
            let longest = side.iter().map(Vec::len).max().unwrap_or(0);
            let room = self.room(ctx_tok);
            if longest < room {
                bail_usage!("the longest of the documents {name} has {longest} tokens, and a window takes {room}");
            }
        }
        Ok(())
    }

    /// Documents to train on that are too short for a window, and all.
    pub(super) fn too_short(&self, ctx_tok: usize) -> (usize, usize) {
        let room = self.room(ctx_tok);
        (self.trained.iter().filter(|ids| ids.len() < room).count(), self.trained.len())
    }

    /// Tokens of text in a window with its last target.
    fn room(&self, ctx_tok: usize) -> usize {
        ctx_tok + 1 - usize::from(self.bos.is_some())
    }

    fn window(&self, ids: &[u32]) -> Vec<u32> {
        self.bos.iter().chain(ids).copied().collect()
    }

    /// The window of a seed: `ctx_tok + 1` tokens of a document to train on, each place in each as likely as others.
    pub(super) fn drawn(&self, ctx_tok: usize, seed: u64) -> Vec<u32> {
        let room = self.room(ctx_tok);
        let places = |ids: &Vec<u32>| (ids.len() + 1).saturating_sub(room);
        let all: usize = self.trained.iter().map(places).sum();
        let mut at = Rng::new(seed, "train window").below(all);
        for ids in &self.trained {
            if at < places(ids) {
                return self.window(&ids[at..at + room]);
            }
            at -= places(ids);
        }
        unreachable!("below the number of all places")
    }

    /// At most `most` windows of documents that are held out, side by side and spread over all of them.
    pub(super) fn held_out(&self, ctx_tok: usize, most: usize) -> Vec<Vec<u32>> {
        let room = self.room(ctx_tok);
        let all: Vec<&[u32]> = self.held_out.iter().flat_map(|ids| ids.chunks_exact(room)).collect();
        let kept = most.min(all.len());
        (0..kept).map(|i| self.window(all[i * all.len() / kept])).collect()
    }
}

/// The tokens of a document, and whether it is held out.
fn read(path: &Path, tokenizer: &Tokenizer) -> Result<(bool, Vec<u32>)> {
    let text = files::without_byte_order_mark(files::input_text(path, files::TEXT_MAX)?);
    if let Err(why) = files::check_prose(&text) {
        bail_usage!("{} {why}", path.display());
    }
    let hash = sha256(text.as_bytes());
    let number = u32::from_str_radix(&hash[..8], 16).context("a hash in hexadecimal")?;
    let encoded = tokenizer.encode(&text).with_context(|| path.display().to_string())?;
    Ok((number.is_multiple_of(HELD_OUT_OF), encoded.ids))
}

/// The files of these texts, those of a folder in the order of their names.
fn documents(texts: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut documents = Vec::new();
    for path in texts {
        if !path.is_dir() {
            documents.push(path.clone());
            continue;
        }
        let cannot_read = || format!("cannot read {}", path.display());
        let entries = path.read_dir().and_then(|entries| entries.collect::<std::io::Result<Vec<_>>>());
        let mut of_folder: Vec<PathBuf> = entries.with_context(cannot_read)?.iter().map(|entry| entry.path()).collect();
        of_folder.retain(|path| path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.')));
        of_folder.sort();
        if let Some(folder) = of_folder.iter().find(|path| path.is_dir()) {
            bail_usage!("{}: a folder in a folder; name it too, or instead", folder.display());
        }
        documents.extend(of_folder);
    }
    Ok(documents)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of so many documents of different lengths.
    fn folder(documents: usize) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for i in 0..documents {
            let text = format!("Document number {i} has a river. ").repeat(3 + i % 7);
            std::fs::write(folder.path().join(format!("{i:03}.txt")), text).unwrap();
        }
        folder
    }

    fn corpus(documents: usize) -> Corpus {
        let folder = folder(documents);
        Corpus::read(&[folder.path().to_owned()], Tokenizer::embedded()).unwrap()
    }

    #[test]
    fn a_tenth_is_held_out_whatever_else_there_is() {
        let corpus = corpus(200);
        let n = corpus.held_out.len();
        assert!((8..40).contains(&n) && corpus.trained.len() == 200 - n, "{n} of 200");
        let fewer = self::corpus(100);
        assert!(fewer.held_out.iter().all(|ids| corpus.held_out.contains(ids)));
        assert!(corpus.held_out.iter().all(|ids| !corpus.trained.contains(ids)));
    }

    #[test]
    fn windows_lie_within_documents_and_begin_as_texts_do() {
        let corpus = corpus(60);
        let ctx_tok = 24;
        for seed in 0..100 {
            let window = corpus.drawn(ctx_tok, seed);
            assert!(window.len() == ctx_tok + 1 && window[0] == 0);
            assert!(corpus.trained.iter().any(|ids| ids.windows(ctx_tok).any(|ids| *ids == window[1..])));
            assert_eq!(window, corpus.drawn(ctx_tok, seed));
        }
        let held_out = corpus.held_out(ctx_tok, 5);
        assert_eq!(held_out.len(), 5);
        for window in &held_out {
            assert!(corpus.held_out.iter().any(|ids| ids.windows(ctx_tok).any(|ids| *ids == window[1..])));
        }
        assert_eq!(corpus.held_out(ctx_tok, usize::MAX).len(), corpus.held_out(ctx_tok, 10_000).len());
    }

    #[test]
    fn texts_that_cannot_be_used_are_refused_by_name() {
        let folder = folder(3);
        let refused = |texts: &[PathBuf]| {
            let error = Corpus::read(texts, Tokenizer::embedded()).map(drop).unwrap_err();
            assert_eq!(base::error::exit_code(&error), 2, "{error:#}");
            format!("{error:#}")
        };
        let one = folder.path().join("000.txt");
        let few = refused(std::slice::from_ref(&one));
        assert!(few.contains("of 1 documents are held out"), "{few}");
        assert!(refused(&["no/such.txt".into()]).contains("no/such.txt"));
        std::fs::create_dir(folder.path().join("more")).unwrap();
        assert!(refused(&[folder.path().to_owned()]).contains("more: a folder in a folder"));
        let json = folder.path().join("x.jsonl");
        std::fs::write(&json, "{\"text\": \"a\"}\n").unwrap();
        assert!(refused(&[json]).contains("JSON lines"));
        let error = corpus(60).check(10_000).unwrap_err().to_string();
        assert!(error.contains("a window takes 10000"), "{error}");
    }
}

//! Inputs: run folders, or results files with the manifest beside them if there is one.

use crate::results::folder::{other_kind, MANIFEST, RESULTS};
use crate::results::manifest::Manifest;
use crate::results::record::Record;
use crate::results::records::{RecordRef, Records};
use anyhow::{Context, Result};
use base::bail_usage;
use names::Replicates;
use std::path::{Path, PathBuf};

/// One thing to compare.
#[derive(Clone, Debug)]
pub struct Input {
    /// As it was given.
    pub name: String,
    pub results: PathBuf,
    /// The manifest, if there is one.
    pub manifest: Option<Manifest>,
}

impl Input {
    /// Finds the records and reads the manifest.
    ///
    /// # Errors
    /// If there are no records, or the manifest cannot be read.
    pub fn open(path: &Path) -> Result<Self> {
        let shown = path.display();
        let name = shown.to_string().trim_end_matches('/').to_owned();
        let results = if path.is_dir() { path.join(RESULTS) } else { path.to_path_buf() };
        if !path.exists() {
            bail_usage!("{shown}: there is no such file or run folder");
        }
        if !results.is_file() {
            if let Some(other) = other_kind(path) {
                bail_usage!("{other}");
            }
            bail_usage!("{shown} holds no {RESULTS}, so it is not a run folder");
        }
        // The manifest of a run folder is of its results, not of other files that somebody put there.
        let beside = results.with_file_name(MANIFEST);
        let manifest = if results.ends_with(RESULTS) && beside.is_file() {
            Some(Manifest::read(&beside).with_context(|| {
                format!("{shown}: its manifest cannot be checked; copy {RESULTS} elsewhere to compare records only")
            })?)
        } else {
            None
        };
        Ok(Self { name, results, manifest })
    }

    /// Returns `true` if the results are no longer those that the manifest describes; `false` where it does not describe any.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(super) fn was_edited(&self) -> Result<bool> {
        let mut outputs = self.manifest.iter().flat_map(|manifest| &manifest.outputs);
        let described = outputs.find(|output| self.results.ends_with(&output.file));
        match described.zip(self.results.parent()) {
            Some((described, folder)) => Ok(!described.is_unchanged(folder)?),
            None => Ok(false),
        }
    }
}

/// Numbers of records of one input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub records: usize,
    /// Records of a failure, which were left out.
    pub errors: usize,
    /// Records without a number, which were left out.
    pub missing: usize,
    /// Records that are compared.
    pub kept: usize,
}

/// Reads the records of inputs, counts them, and notes whose seeds have lost digits. Of replicates, the recipe stands for the model, beside the training seed.
///
/// # Errors
/// If a file cannot be read, or is none of results.
pub(super) fn read(
    inputs: Vec<Input>,
    replicates: Option<&Replicates>,
    notes: &mut Vec<String>,
) -> Result<(Records, Vec<(Input, Counts)>)> {
    let mut records = Records::default();
    let mut counted = Vec::new();
    for (place, input) in inputs.into_iter().enumerate() {
        let mut counts = Counts::default();
        let count = |record: &Record| {
            let is_error = record.measure.error.is_some();
            counts.records += 1;
            counts.errors += usize::from(is_error);
            counts.missing += usize::from(!is_error && record.number().is_none());
        };
        let are_seeds_cut = records.read(&input.results, count, |identity| {
            identity.input = Some(place);
            if let Some((model, seed)) = replicates.and_then(|pattern| pattern.split(&identity.model)) {
                (identity.model, identity.replicate) = (model, Some(seed));
            }
        })?;
        if are_seeds_cut {
            notes.push(format!(
                "{}: seeds have lost digits, as a spreadsheet cuts them; prompts are told apart by those that are left",
                input.name
            ));
        }
        counted.push((input, counts));
    }
    Ok((records, counted))
}

/// The place of the input that a record is of.
pub(super) fn input_of(record: &RecordRef<'_>) -> usize {
    record.identity.input.unwrap_or(0)
}

/// The input of a record, and its number in it, from 1.
pub(super) fn place_of<'i>(record: &RecordRef<'_>, inputs: &'i [(Input, Counts)]) -> (&'i Input, usize) {
    let input = input_of(record);
    let before: usize = inputs[..input].iter().map(|(_, counts)| counts.records).sum();
    (&inputs[input].0, record.place as usize + 1 - before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::manifest::OutputFile;
    use std::fs;

    #[test]
    fn a_folder_means_its_results_and_a_file_itself() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(RESULTS), "schema\n").unwrap();
        let (of_folder, of_file) =
            (Input::open(folder.path()).unwrap(), Input::open(&folder.path().join(RESULTS)).unwrap());
        assert_eq!(of_folder.results, of_file.results);
        assert!(of_folder.manifest.is_none() && !of_folder.was_edited().unwrap());
    }

    #[test]
    fn results_that_were_edited_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let results = folder.path().join(RESULTS);
        fs::write(&results, "schema\n").unwrap();
        let outputs = vec![OutputFile::describe(folder.path(), RESULTS, None).unwrap()];
        Manifest { outputs, ..Manifest::default() }.write(&folder.path().join(MANIFEST)).unwrap();
        assert!(!Input::open(folder.path()).unwrap().was_edited().unwrap());
        fs::write(&results, "schema,model\n").unwrap();
        assert!(Input::open(folder.path()).unwrap().was_edited().unwrap());
    }

    #[test]
    fn another_file_in_a_run_folder_is_not_what_the_manifest_is_of() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("mine.csv"), "schema\n").unwrap();
        Manifest::default().write(&folder.path().join(MANIFEST)).unwrap();
        assert!(Input::open(&folder.path().join("mine.csv")).unwrap().manifest.is_none());
    }

    #[test]
    fn what_is_not_a_run_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let refusal = |path: &Path| format!("{:#}", Input::open(path).unwrap_err());
        assert!(refusal(&folder.path().join("nonesuch")).contains("no such file"));
        assert!(refusal(folder.path()).contains("holds no results.csv"));
        fs::write(folder.path().join(RESULTS), "").unwrap();
        fs::write(folder.path().join(MANIFEST), "{}").unwrap();
        assert!(refusal(folder.path()).contains("manifest.json is not a manifest"));
    }
}

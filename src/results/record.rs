//! Records: one measurement each, one row of `results.csv`.
//!
//! Every command writes this schema: one number per row, so that the results of any two runs can be concatenated,
//! filtered and compared. The columns are `schema`, then the fields of [`Identity`] (what was run), then those of
//! [`Measurement`] (the result), in the order of their declaration.
//!
//! The file is CSV after RFC 4180, but with `\n` at the ends of lines: UTF-8, a header, commas, quotes where needed. An
//! empty field is a missing value; `.` is the decimal point; numbers have the fewest digits that read back as the same
//! number. Layers, heads and queries count from 0.

mod read;

pub use read::read;
pub(crate) use read::read_each;

use anyhow::{Context, Result};
use names::is_formula;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

/// Number of this schema. It changes when a column is added, removed, moved or given another meaning, or a metric another name.
pub const SCHEMA: u32 = 4;

/// A text for a CSV file, with a leading apostrophe if it would be a formula.
pub fn no_formula(text: &str) -> Cow<'_, str> {
    if is_formula(text) {
        format!("'{text}").into()
    } else {
        text.into()
    }
}

/// The model, the prompt and the question. Shared by all measurements of one question.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// Name of the model: a built-in name, or its folder as given.
    pub model: String,
    /// Attention variant, for example `transformer`, `diff`, `diff-v2`.
    pub variant: String,
    /// Task of the prompt, for example `needle`.
    pub task: String,
    /// Requested length of the whole prompt, in tokens.
    pub ctx_tok: usize,
    /// Needles in the text (the paper's N).
    pub needles: Option<usize>,
    /// Needles asked for (the paper's R).
    pub retrieve: Option<usize>,
    /// Requested depth, in percent of the filler: 0 is its beginning.
    pub depth_req_pct: Option<f64>,
    /// Actual depth of the needle's first token, in percent of the filler.
    pub depth_real_pct: Option<f64>,
    /// Set of the cities: `train`; `absent` for questions
    /// without an answer.
    pub cities: Option<Cow<'static, str>>,
    /// Index of the prompt among those of the same kind.
    pub sample: Option<u64>,
    /// Seed of the prompt, a hash of the base seed and the number of the prompt.
    pub seed: Option<u64>,
    /// Index among the needles asked for, in the order of the question.
    pub query: Option<usize>,
    /// `true` if this question's needle is the one placed at the requested depth; missing without a question.
    pub placed: Option<bool>,
    /// The measured attention rows, for example `answer` for those that predict the answer's tokens.
    pub rows: Option<Cow<'static, str>>,
    /// Name of the condition; missing for untreated attention.
    pub condition: Option<Cow<'static, str>>,
    /// Bits of quantised logits, or queries and keys; missing if none are quantised.
    pub bits: Option<u32>,
    /// The numbers that share one scale when quantised: of logits `tensor`, `head` or `row`, of queries and keys `qk-block`,
    /// `qk-token` or `qk-head`; then how: `-fp`, `-smooth`, `-rotate`, `-exempt-sinks`, `-layers-0+2`.
    pub scope: Option<Cow<'static, str>>,
    /// No column of the file: the training seed, once a comparison takes models as replicates, and `model` as their recipe.
    #[serde(skip)]
    pub replicate: Option<u64>,
    /// No column either: the place of the file it was read from, among those that are compared.
    #[serde(skip)]
    pub input: Option<usize>,
    /// No column either: the tokens that the model had been trained on, of records of training.
    #[serde(skip)]
    pub tokens: Option<usize>,
}

/// A measured number, or the error that prevented it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Layer; missing for the mean over layers.
    pub layer: Option<usize>,
    /// Head; missing for the mean over heads.
    pub head: Option<usize>,
    /// Part of the prompt that the number is about, for example `answer`.
    pub region: Option<Cow<'static, str>>,
    /// Name of the quantity, for example `share_abs`.
    pub metric: Cow<'static, str>,
    pub value: Option<f64>,
    /// Unit of the number, for example `fraction`, `nats`; missing for pure numbers.
    pub unit: Option<Cow<'static, str>>,
    /// Number of values that `value` is the mean of.
    pub n: Option<u64>,
    /// Error of a prompt that failed.
    pub error: Option<String>,
}

/// One row of `results.csv`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Model, prompt and question, shared by the records of one question.
    pub identity: Arc<Identity>,
    pub measure: Measurement,
}

/// The `f64` that prints like `x`: 0.1_f32 becomes 0.1 and not 0.10000000149011612. Reading it back as `f32`
/// gives `x`.
pub fn widen(x: f32) -> f64 {
    x.to_string().parse().expect("a printed number can be read")
}

impl Record {
    /// Its number; `None` if it is missing or not finite.
    pub(crate) fn number(&self) -> Option<f64> {
        self.measure.value.filter(|value| value.is_finite())
    }
}

/// The columns of the schema, in order.
pub fn columns() -> Vec<String> {
    let mut columns = vec!["schema".to_string()];
    columns.extend(fields(&Identity::default()));
    columns.extend(fields(&Measurement::default()));
    columns
}

/// The names of a struct's fields, in the order of their declaration.
pub(crate) fn fields(row: &impl Serialize) -> Vec<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.serialize(row).expect("plain structs can be written");
    let text = writer.into_inner().expect("memory does not fail");
    let mut reader = csv::Reader::from_reader(text.as_slice());
    reader.headers().expect("it was just written").iter().map(String::from).collect()
}

/// Formats records as CSV lines without a header.
pub fn to_bytes(records: &[Record]) -> Result<Vec<u8>> {
    let mut csv = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    for Record { identity, measure } in records {
        csv.serialize((SCHEMA, identity.as_ref(), measure))?;
    }
    csv.into_inner().context("memory cannot be written")
}

/// The first line of a results file.
pub(crate) fn header() -> String {
    columns().join(",") + "\n"
}

/// Writes records to a new file.
///
/// # Errors
/// If the file exists already, or cannot be written.
pub fn write(path: &Path, records: &[Record]) -> Result<()> {
    let bytes = [header().as_bytes(), &to_bytes(records)?].concat();
    base::files::create(path, &bytes).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use names::Column;

    #[test]
    fn columns_are_those_of_the_record_that_are_not_results() {
        let results = ["schema", "value", "unit", "n", "error"];
        let mut expected: Vec<String> =
            columns().into_iter().filter(|name| !results.contains(&name.as_str())).collect();
        let mut found: Vec<String> =
            Column::ALL.iter().filter(|column| **column != Column::Replicate).map(ToString::to_string).collect();
        expected.sort();
        found.sort();
        assert_eq!(found, expected);
    }
    use names::metric::{CELL, SHARE_ABS};
    use proptest::prelude::*;

    #[test]
    fn formulas_are_marked_as_text() {
        for formula in ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1"] {
            assert_eq!(no_formula(formula), format!("'{formula}"));
        }
        assert_eq!(no_formula(" =1"), " =1");
        assert_eq!(no_formula(""), "");
    }

    fn identity() -> Identity {
        Identity {
            model: "runs/big, \"final\"".into(),
            variant: "diff".into(),
            task: "needle".into(),
            ctx_tok: 4096,
            needles: Some(4),
            retrieve: Some(2),
            depth_req_pct: Some(25.0),
            depth_real_pct: Some(24.813),
            cities: Some("heldout".into()),
            sample: Some(17),
            seed: Some(u64::MAX),
            query: Some(1),
            placed: Some(true),
            rows: Some("answer".into()),
            condition: Some("quantise(4, tensor)".into()),
            ..Identity::default()
        }
    }

    fn share(value: f64) -> Record {
        let measure = Measurement {
            layer: Some(3),
            head: Some(0),
            region: Some("answer".into()),
            metric: SHARE_ABS.name.into(),
            value: Some(value),
            unit: Some("fraction".into()),
            n: Some(5),
            error: None,
        };
        Record { identity: Arc::new(identity()), measure }
    }

    fn failure() -> Record {
        let measure = Measurement {
            metric: CELL.name.into(),
            error: Some("no room\nfor 6 needles".into()),
            ..Measurement::default()
        };
        Record { identity: Arc::new(Identity { task: "needle".into(), ..Identity::default() }), measure }
    }

    /// Writes `text` to a file, reads it as results and returns the error.
    fn refusal(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.csv");
        std::fs::write(&path, text).unwrap();
        let error = read(&path).unwrap_err();
        format!("{error:#}").replace(&folder.path().display().to_string(), "")
    }

    /// The text of a file with one record.
    fn good_text() -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.csv");
        write(&path, &[share(0.25)]).unwrap();
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn the_file_is_exactly_this() {
        let expected = "\
            schema,model,variant,task,ctx_tok,needles,retrieve,depth_req_pct,depth_real_pct,cities,sample,seed,query,\
            placed,rows,condition,bits,scope,layer,head,region,metric,value,unit,n,error\n\
            4,\"runs/big, \"\"final\"\"\",diff,needle,4096,4,2,25.0,24.813,heldout,17,18446744073709551615,1,true,answer,\
            \"quantise(4, tensor)\",,,3,0,answer,share_abs,0.25,fraction,5,\n";
        assert_eq!(good_text(), expected);
    }

    #[test]
    fn records_read_back_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.csv");
        let records = [share(0.1 + 0.2), failure(), share(-1e-300), share(5e-324), share(f64::MAX)];
        write(&path, &records).unwrap();
        assert_eq!(read(&path).unwrap(), records);
    }

    #[test]
    fn records_of_one_question_share_their_identity_when_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.csv");
        write(&path, &[share(0.1), share(0.2), failure()]).unwrap();
        let records = read(&path).unwrap();
        assert!(Arc::ptr_eq(&records[0].identity, &records[1].identity));
        assert!(!Arc::ptr_eq(&records[1].identity, &records[2].identity));
    }

    #[test]
    fn a_broken_number_is_an_error_that_names_line_and_column() {
        let broken = format!("{}{}", good_text(), good_text().lines().nth(1).unwrap().replace("0.25", "O.25"));
        assert_eq!(refusal(&broken), "/results.csv, line 3, column `value`: `O.25` is not a number");
    }

    #[test]
    fn a_file_that_was_cut_off_is_an_error_that_names_the_line() {
        let text = good_text();
        let cut = &text[..text.len() - 20];
        assert_eq!(refusal(cut), "/results.csv, line 2: 22 fields where the header has 26; was the file cut off?");
    }

    #[test]
    fn another_schema_is_refused_by_its_number() {
        let newer = good_text().replace("\n4,", "\n5,").replace("schema,model", "schema,llm");
        let way_on =
            "this version of difftool reads schema 4; measure again, or read it with the version in its manifest.json";
        assert_eq!(refusal(&newer), format!("/results.csv, line 2: written in schema 5; {way_on}"));
        let mixed = format!("{}{}", good_text(), good_text().lines().nth(1).unwrap().replacen("4,", "3,", 1));
        assert_eq!(refusal(&mixed), format!("/results.csv, line 3: written in schema 3; {way_on}"));
    }

    #[test]
    fn other_files_are_refused() {
        assert_eq!(refusal(""), "/results.csv is empty");
        let foreign = "/results.csv is not a results file: it has no column `schema`, but a, b; the columns of results are schema";
        assert!(refusal("a,b\n1,2\n").starts_with(foreign));
        assert_eq!(refusal(&good_text().replace(",variant,", ",kind,")), "/results.csv has no column `variant`");
    }

    proptest! {
        #[test]
        fn any_record_survives_the_file(
            value in prop::option::of(prop::num::f64::NORMAL | prop::num::f64::ZERO | prop::num::f64::SUBNORMAL),
            model in ".*", error in prop::option::of(".+"), depth in 0.0..100.0, layer in prop::option::of(0usize..99)
        ) {
            let identity = Identity { model, depth_real_pct: Some(depth), ..identity() };
            let measure = Measurement { layer, value, error, ..share(0.0).measure };
            let record = Record { identity: Arc::new(identity), measure };
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("results.csv");
            write(&path, std::slice::from_ref(&record)).unwrap();
            prop_assert_eq!(read(&path).unwrap(), [record]);
        }

        #[test]
        fn a_widened_number_prints_like_the_narrow_one(x in prop::num::f32::NORMAL) {
            prop_assert_eq!(widen(x) as f32, x);
            prop_assert_eq!(format!("{:?}", widen(x)).parse::<f32>().unwrap(), x);
        }
    }
}

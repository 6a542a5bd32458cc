//! `difftool compare` on CSV files that other programs have written: results that went through one, and tables of anybody.

use crate::common::{refuses, refuses_outright};
use crate::compare::{row, Run, Scratch, RUN};
use serde_json::json;

const OTHER: Run = Run { model: "diff", shift: 0.125, ..RUN };

type Rows = Vec<Vec<String>>;

/// What a program does to rows.
type Change = fn(&mut Rows);

/// A results file, its rows as another program has changed them, joined by its separator.
fn rewritten(scratch: &Scratch, separator: &str, change: Change) -> String {
    let text = scratch.read("b/results.csv");
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
    let mut rows: Rows = reader.records().map(|row| row.unwrap().iter().map(str::to_owned).collect()).collect();
    change(&mut rows);
    let mut text = String::new();
    for row in rows {
        let quoted: Vec<String> = row
            .iter()
            .map(|field| if field.contains([',', ';']) { format!("\"{field}\"") } else { field.clone() })
            .collect();
        text += &(quoted.join(separator) + "\n");
    }
    text
}

/// Changes the fields of some columns.
fn change(rows: &mut Rows, columns: &[&str], to: fn(&str) -> String) {
    let places: Vec<usize> =
        columns.iter().map(|column| rows[0].iter().position(|name| name == column).unwrap()).collect();
    for row in &mut rows[1..] {
        places.iter().for_each(|&at| row[at] = to(&row[at]));
    }
}

/// Changes every field.
fn change_all(rows: &mut Rows, to: fn(&str) -> String) {
    rows[1..].iter_mut().flatten().for_each(|field| *field = to(field));
}

fn as_float(field: &str) -> String {
    if field.is_empty() {
        return String::new();
    }
    format!("{field}.0")
}

/// Whole numbers.
const WHOLE: [&str; 10] = ["ctx_tok", "needles", "retrieve", "sample", "seed", "query", "bits", "layer", "head", "n"];

#[test]
fn results_that_another_program_wrote_again_are_what_they_were() {
    let scratch = Scratch::new();
    scratch.folder("a", &RUN.records(), &RUN.manifest());
    scratch.folder("b", &OTHER.records(), &OTHER.manifest());
    let expected = scratch.json("a/results.csv b/results.csv")["rows"].clone();
    let programs: [(&str, &str, &str, Change); 13] = [
        ("python", "", ",", |rows| change(rows, &["placed"], |flag| flag.replace('t', "T").replace('f', "F"))),
        ("floats", "", ",", |rows| change(rows, &WHOLE, as_float)),
        ("flags as numbers", "", ",", |rows| {
            change(rows, &["placed"], |flag| if flag == "true" { "1.0".into() } else { "0.0".into() });
        }),
        ("missing", "", ",", |rows| {
            change(
                rows,
                &["layer", "head", "bits"],
                |field| if field.is_empty() { "NaN".into() } else { field.into() },
            );
        }),
        ("R", "", ",", |rows| {
            change(rows, &["placed"], str::to_uppercase);
            change_all(rows, |field| if field.is_empty() { "NA".into() } else { field.into() });
            rows.iter_mut().enumerate().for_each(|(i, row)| row.insert(0, i.to_string()));
        }),
        ("R, long contexts", "", ",", |rows| change(rows, &["ctx_tok"], |ctx| format!("{}e+00", ctx))),
        ("another order", "", ",", |rows| rows.iter_mut().for_each(|row| row.reverse())),
        ("more columns", "", ",", |rows| {
            rows.iter_mut().enumerate().for_each(|(i, row)| {
                row.insert(0, i.to_string());
                row.push("my note".into());
            });
        }),
        ("tabs", "", "\t", |_| {}),
        ("semicolons", "\u{feff}", ";", |_| {}),
        ("decimal commas", "\u{feff}", ";", |rows| {
            change(rows, &["value", "depth_req_pct", "depth_real_pct"], |number| number.replace('.', ","));
        }),
        ("blanks", "", ",", |rows| change(rows, &["placed", "ctx_tok", "value"], |field| format!(" {field} "))),
        ("empty rows", "", ";", |rows| rows.push(vec![String::new(); rows[0].len()])),
    ];
    for (name, mark, separator, change) in programs {
        let text = mark.to_owned() + &rewritten(&scratch, separator, change);
        scratch.write("again.csv", &text);
        assert_eq!(scratch.json("a/results.csv again.csv")["rows"], expected, "{name}");
        scratch.write("crlf.csv", text.replace('\n', "\r\n"));
        assert_eq!(scratch.json("a/results.csv crlf.csv")["rows"], expected, "{name}");
    }
}

/// A seed of as many digits as those of runs.
fn long(seed: &str) -> u64 {
    2_938_366_760_112_535 + 97_000_000_000_000 * seed.parse::<u64>().unwrap()
}

#[test]
fn seeds_that_a_spreadsheet_cut_on_both_sides_still_pair_prompts() {
    let scratch = Scratch::new();
    scratch.folder("b", &RUN.records(), &RUN.manifest());
    let whole: Change = |rows| change(rows, &["seed"], |seed| long(seed).to_string());
    scratch.write("a.csv", rewritten(&scratch, ",", whole));
    scratch.write("whole.csv", rewritten(&scratch, ",", whole));
    let expected = scratch.json("a.csv whole.csv")["rows"].clone();
    let programs: [(&str, Change); 3] = [
        ("Excel", |rows| change(rows, &["seed"], |seed| format!("{:.5E}", long(seed) as f64).replace('E', "E+"))),
        ("R", |rows| change(rows, &["seed"], |seed| format!("{:.14e}", long(seed) as f64).replace('e', "e+"))),
        ("LibreOffice", |rows| change(rows, &["seed"], |seed| format!("{:.14E}", long(seed) as f64))),
    ];
    for (program, cut) in programs {
        for file in ["a.csv", "whole.csv"] {
            scratch.write(file, rewritten(&scratch, ",", cut));
        }
        assert_eq!(scratch.json("a.csv whole.csv")["rows"], expected, "{program}");
        let said = scratch.stderr("a.csv whole.csv");
        assert!(said.contains("a.csv: seeds have lost digits"), "{program}: {said}");
        scratch.write("whole.csv", rewritten(&scratch, ",", whole));
        let words = ["no measurement in common", "seed is", "--allow-different-prompts"];
        refuses_outright(&mut scratch.compare("a.csv whole.csv"), 2, &words);
    }
}

#[test]
fn results_that_lost_something_on_the_way_are_refused_with_its_place() {
    let scratch = Scratch::new();
    scratch.folder("a", &RUN.records(), &RUN.manifest());
    scratch.folder("b", &OTHER.records(), &OTHER.manifest());
    let losses: [(&[&str], Change); 5] = [
        (&["line 2, column `layer`: `1.5`"], |rows| change(rows, &["layer"], |_| "1.5".into())),
        (&["line 2, column `placed`: `WAHR`", "true or false"], |rows| change(rows, &["placed"], |_| "WAHR".into())),
        (&["line 2, column `value`: `#DIV/0!`"], |rows| change(rows, &["value"], |_| "#DIV/0!".into())),
        (&["line 2, column `ctx_tok`"], |rows| change(rows, &["ctx_tok"], |_| String::new())),
        (&["no column `metric`"], |rows| {
            rows[0].iter_mut().filter(|name| *name == "metric").for_each(|name| *name = "Metric".into());
        }),
    ];
    for (words, change) in losses {
        scratch.write("again.csv", rewritten(&scratch, ",", change));
        refuses_outright(&mut scratch.compare("a/results.csv again.csv"), 1, &[&["again.csv"], words].concat());
    }
    for (bytes, words) in [
        (&b"id;score\n1;2\n"[..], &["no column `schema`, but id, score", "schema, model, variant", "--key"][..]),
        (b"\xff\xfes\0c\0", &["UTF-16", "UTF-8"]),
        (b"", &["is empty"]),
    ] {
        scratch.write("foreign.csv", bytes);
        refuses_outright(&mut scratch.compare("a/results.csv foreign.csv"), 1, words);
    }
}

/// Writes a table and returns the differences of its scores from those of `a.csv`.
fn scores(scratch: &Scratch, table: &str, flags: &str) -> serde_json::Value {
    scratch.write("b.csv", table);
    scratch.json(&format!("a.csv b.csv {flags}"))
}

#[test]
fn any_two_tables_are_compared_row_by_row_of_a_key() {
    let scratch = Scratch::new();
    let a: String = (0..8).map(|id| format!("{id},{},{}\n", 0.5 + 0.01 * f64::from(id), id % 2)).collect();
    scratch.write("a.csv", format!("id,score,right\n{a}"));
    // In another order, with another separator, other columns, and decimal commas; 0.1 more or less and a row of its own.
    let mut b = String::from("note;right;score;id\n");
    for id in (0..9).rev() {
        let score = 0.6 + 0.01 * f64::from(id) + 0.001 * f64::from(id % 3);
        b += &format!("x;True;{};{id}\n", score.to_string().replace('.', ","));
    }
    let json = scores(&scratch, &b, "--key id --value score,right");
    let score = row(&json, "score");
    let near = |name: &str, expected: f64| (score[name].as_f64().unwrap() - expected).abs() < 1e-9;
    assert_eq!(
        (&score["n"], &score["wins"], &score["baseline"], &score["test"]),
        (&json!(8), &json!(8), &json!("a.csv"), &json!("t"))
    );
    assert!(near("diff", 0.1 + 0.007 / 8.0) && near("mean_baseline", 0.535), "{score}");
    assert!(score["lo"].as_f64().unwrap() > 0.09 && score["hi"].as_f64().unwrap() < 0.11, "{score}");
    let right = row(&json, "right");
    assert_eq!((&right["diff"], &right["test"], &right["losses"]), (&json!(0.5), &json!("mcnemar"), &json!(0)));
    assert_eq!(json["pairings"][0]["only_other"]["cases"], json!(["id=8"]));
    let table = scratch.stdout("a.csv b.csv --key id --value score");
    assert!(table.starts_with("Change from a.csv: 8 pairs [95 %]; * decided\n"), "{table}");
    // Several columns are a key together; a missing number is left out.
    scratch.write("a.csv", "id,fold,score\n1,1,0.5\n1,2,0.5\n2,1,0.5\n");
    let json = scores(&scratch, "id,fold,score\n1,1,0.75\n1,2,NA\n2,1,0.75\n", "--key id,fold --value score");
    assert_eq!((&row(&json, "score")["n"], &json["inputs"][1]["missing"]), (&json!(2), &json!(1)));
    assert_eq!(json["pairings"][0]["only_baseline"]["cases"], json!(["id=1 fold=2"]));
    // Ids that a data frame made floating-point numbers, and percent.
    let json = scores(&scratch, "id,fold,score\n1.0,1,75%\n1.0,2.0,75 %\n2.0,1,NA\n", "--key id,fold --value score");
    assert_eq!((&row(&json, "score")["n"], &row(&json, "score")["mean_other"]), (&json!(2), &json!(0.75)));
    scores(&scratch, "id,fold,score\n1,1,0.75\n1,2,NA\n2,1,0.75\n", "--key id,fold --value score");
    let holds = scratch.compare("a.csv b.csv --key id,fold --value score --fail-if score>0.2").output().unwrap();
    assert_eq!(holds.status.code(), Some(3));
}

#[test]
fn rows_of_one_cluster_go_together_and_a_note_says_where_they_may() {
    let scratch = Scratch::new();
    let table = |value: fn(u32, u32) -> u32| {
        let rows = (0..60).map(|row| (row / 5, row % 5));
        rows.map(|(item, epoch)| format!("{item},{epoch},{}\n", value(item, epoch))).collect::<String>()
    };
    // Every try at an item ends alike.
    scratch.write("a.csv", format!("item,epoch,score\n{}", table(|item, _| item % 2)));
    let b = format!("item,epoch,score\n{}", table(|item, _| u32::from(item % 3 > 0)));
    let alone = scores(&scratch, &b, "--key item,epoch --value score");
    let together = scores(&scratch, &b, "--key item,epoch --value score --cluster item");
    assert_eq!((&row(&alone, "score")["n"], &row(&together, "score")["n"]), (&json!(60), &json!(12)));
    let width = |json: &serde_json::Value| {
        let row = row(json, "score");
        row["hi"].as_f64().unwrap() - row["lo"].as_f64().unwrap()
    };
    assert!(width(&together) > 1.5 * width(&alone), "{together}");
    let note = |json: &serde_json::Value| json["notes"].to_string().contains("--cluster item");
    assert!(note(&alone) && !note(&together), "{alone}");
}

#[test]
fn tables_of_other_programs_are_read_as_they_are() {
    let scratch = Scratch::new();
    let object = |id: u32, score: f64| {
        format!("{{\"doc_id\": {id}, \"doc\": {{\"q\": \"a, b\"}}, \"filter\": \"strict\", \"acc\": {score}}}\n")
    };
    let lines = |score: fn(u32) -> f64| (0..8).map(|id| object(id, score(id))).collect::<String>();
    scratch.write("a.csv", lines(|id| f64::from(id % 2)));
    let b = lines(|id| f64::from(id % 2).max(f64::from(id % 4 / 2)));
    for table in [b.clone(), format!("[{}]", b.trim().replace("}\n{", "},{"))] {
        let json = scores(&scratch, &table, "--key doc_id --value acc");
        let row = row(&json, "acc");
        assert_eq!((&row["n"], &row["diff"]), (&json!(8), &json!(0.25)));
    }
    // Columns with commas, conditions and groups by own columns, and a key that is empty in part.
    let table = |shift: u32| {
        let rows = (0..12).map(|id| {
            let filter = if id < 8 { "strict" } else { "flexible" };
            let task = if id % 4 < 2 { "" } else { "math" };
            format!("{task},{id},{filter},{}\n", id % 5 + shift * (1 + id % 2))
        });
        format!("task,id,filter,\"acc,none\"\n{}", rows.collect::<String>())
    };
    scratch.write("a.csv", table(0));
    let json = scores(&scratch, &table(1), "--key task,id --value acc,none --where filter=strict");
    assert_eq!((&row(&json, "acc,none")["n"], &row(&json, "acc,none")["diff"]), (&json!(8), &json!(1.5)));
    let json = scores(&scratch, &table(1), "--key id --value acc,none --group-by filter,task");
    let groups: Vec<&serde_json::Value> = json["rows"].as_array().unwrap().iter().map(|row| &row["region"]).collect();
    assert_eq!(groups.len(), 4, "{json}");
    assert!(groups.contains(&&json!("strict,none")) && groups.contains(&&json!("flexible,math")), "{json}");
    for (flags, words) in [
        ("--key id --value acc,none --where filter=x", "no row has filter=x"),
        ("--key id --value acc,none --where nonesuch=x", "no column `nonesuch`"),
        ("--key id --value acc,none --group-by nonesuch", "no column `nonesuch`"),
        ("--key id --value acc,none --where filter", "not COLUMN=VALUE"),
        ("--key id --value acc,none --cluster nonesuch", "no column `nonesuch`"),
    ] {
        refuses_outright(&mut scratch.compare(&format!("a.csv b.csv {flags}")), 2, &[words]);
    }
    for (bytes, words) in
        [(&b"PK\x03\x04rest"[..], "a workbook"), (b"PAR1rest", "a Parquet file"), (b"\x1f\x8brest", "compressed")]
    {
        scratch.write("b.csv", bytes);
        refuses_outright(&mut scratch.compare("a.csv b.csv --key id --value acc,none"), 1, &[words]);
    }
}

#[test]
fn tables_that_cannot_be_paired_are_refused_with_the_reason() {
    let scratch = Scratch::new();
    scratch.write("a.csv", "id,score\n1,0.5\n2,0.25\n");
    for (table, code, words) in [
        ("id,score\n1,1\n1,2\n", 1, &["b.csv", "id=1", "line 2", "line 3"][..]),
        ("id,score\n1,1\n2,good\n", 1, &["b.csv, line 3: column `score`: `good` is not a number"]),
        ("id,score\n1,1\n2,inf\n", 1, &["line 3", "`inf`"]),
        ("id,score\n1,1\n,2\n", 1, &["b.csv, line 3", "no id"]),
        ("id,score\n1,1\n2\n", 1, &["b.csv, line 3", "1 fields"]),
        ("id,points\n1,1\n", 2, &["b.csv has no column `score`; there are id, points"]),
        ("id,score,score\n1,1,2\n", 2, &["two columns `score`"]),
        ("id,score\n3,1\n", 2, &["no id in common", "id=1", "id=3"]),
        ("id,score\n1,\n", 2, &["no id in common"]),
        ("", 1, &["b.csv is empty"]),
    ] {
        scratch.write("b.csv", table);
        refuses_outright(&mut scratch.compare("a.csv b.csv --key id --value score"), code, words);
    }
    refuses_outright(&mut scratch.compare("a.csv --key id --value score"), 2, &["two tables"]);
    refuses(&mut scratch.compare("a.csv a.csv --key id"), 2, &["--value"]);
    refuses(&mut scratch.compare("a.csv a.csv --key id --value score --by model"), 2, &["--by"]);
}

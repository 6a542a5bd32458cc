//! Texts, haystacks and files of needles as people have them, in any language: what is read as it is meant, and what is
//! refused with what to do.

use crate::common::Scratch;
use serde_json::{json, Value};
use stats::Rng;
use std::fs;
use text::needle::{build_of, Texts};
use text::{Haystack, NeedleSpec, NeedlesFile, Tokenizer, FILE};

const NEEDLE_TEXT: &str = "The best thing to do in Oslo is eat a sandwich in the park.";
const QUESTION: &str = "What is the best thing to do in Oslo?";
const ANSWER: &str = "eat a sandwich in the park";

/// Files of needles, with the words of the error if they are refused.
fn needles_files() -> Vec<(&'static str, String, Option<&'static str>)> {
    let object =
        json!({"needle": NEEDLE_TEXT, "question": QUESTION, "answer": ANSWER, "lead": "In Oslo it is best to"});
    let without = |key: &str| {
        let mut object = object.clone();
        object.as_object_mut().unwrap().remove(key);
        object.to_string()
    };
    let csv = "needle,question,answer,lead,distractor\n";
    let row = format!("{NEEDLE_TEXT},{QUESTION},{ANSWER},In Oslo it is best to,\n");
    let spreadsheet = |separator: &str, line_end: &str| {
        let rows =
            [["needle", " question", "answer ", "lead"], [NEEDLE_TEXT, QUESTION, ANSWER, "In Oslo it is best to"]];
        let rows = rows.map(|row| row.join(separator) + line_end);
        format!("\u{feff}{}", rows.concat())
    };
    vec![
        ("a line", object.to_string(), None),
        ("blank lines", format!("\u{feff}\n{object}\r\n\r\n{object}\n\n"), None),
        ("several lines each", format!("{object:#}\n{object:#}\n"), None),
        ("an array", json!([object, object]).to_string(), None),
        ("an array of several lines", format!("{:#}", json!([object])), None),
        ("a CSV", format!("{csv}{row}"), None),
        ("a CSV with quotes", format!("answer,lead,question,needle\n\"{ANSWER}\",\"In Oslo it is best to\",\"{QUESTION}\",\"{NEEDLE_TEXT}\"\n"), None),
        ("a line of texts", json!([NEEDLE_TEXT, QUESTION, ANSWER]).to_string(), Some("line 1: invalid type: string")),
        ("no answer", format!("{object}\n{}", without("answer")), Some("line 2: missing field `answer`")),
        ("no needle in an array", format!("[{object}, {}]", without("needle")), Some("entry 2: missing field `needle`")),
        ("another key", object.to_string().replace("lead", "opening"), Some("line 1: unknown field `opening`")),
        ("a number that is not in the needle", object.to_string().replace(&format!("\"{ANSWER}\""), "7"), Some("line 1: the needle")),
        ("an empty lead", object.to_string().replace("In Oslo it is best to", " "), Some("line 1: a text is empty")),
        ("another answer", object.to_string().replace("eat a s", "drink a s").replacen("drink a s", "eat a s", 1), Some("does not hold \"eat a s")),
        ("half an object", object.to_string()[..40].to_owned(), Some("EOF while parsing")),
        ("nothing", " \n".to_owned(), Some("the file has none")),
        ("other columns", "text,reply\na,b\n".to_owned(), Some("a CSV with the columns needle, question and answer")),
        ("prose", "There is a park in Oslo.".to_owned(), Some("expected JSON objects, or a CSV")),
        ("a short row", format!("{csv}{NEEDLE_TEXT},{QUESTION}\n"), Some("line 2: 2 fields where the header has 5")),
        ("an answer that is not there", format!("{csv}A park.,{QUESTION},Oslo,,\n"), Some("line 2: the needle \"A park.\" does not hold \"Oslo\"")),
        ("an answer in two places", json!({"needle": "A park, a boat, a park.", "question": QUESTION, "answer": "park"}).to_string(), Some("in 2 places")),
        ("semicolons", spreadsheet(";", "\n"), None),
        ("semicolons and carriage returns", spreadsheet(";", "\r\n"), None),
        ("tabs", spreadsheet("\t", "\r\n"), None),
        ("bars", spreadsheet("|", "\n"), None),
    ]
}

#[test]
fn texts_may_begin_with_a_dash() {
    let bench = Scratch::with_model();
    bench.write("t.txt", "The river is wide here. The code of the box is 4821. It stands in the hall.");
    for (question, lead) in [("- What is the code?", "The code is"), ("What is the code?", "--lead: the code is")] {
        let asked = format!("--question '{question}' --lead '{lead}'");
        let printed = bench.stdout(format!("prompt --model m --text t.txt --answer 4821 --jsonl - {asked}"));
        let prompt: Value = serde_json::from_str(&printed).unwrap();
        let text = prompt["text"].as_str().unwrap();
        assert!(text.contains(question) && text.contains(lead), "{text}");
    }
}

#[test]
fn needles_are_read_from_json_and_csv_and_mistakes_say_where_they_are() {
    let folder = Scratch::new();
    let path = folder.path("needles");
    for (name, text, refused) in needles_files() {
        fs::write(&path, text).unwrap();
        let file = NeedlesFile::read(&path).map_err(|error| format!("{error:#}"));
        let (file, words) = match (file, refused) {
            (Ok(file), None) => (file, ""),
            (Err(error), Some(words)) => {
                assert!(error.contains(words) && error.contains("/needles"), "{name}: {error}");
                continue;
            }
            (file, refused) => panic!("{name}: {:?} instead of {refused:?}", file.err()),
        };
        assert_eq!(words, "");
        let texts = Texts { haystack: &Haystack::Embedded, file: Some(&file), tokenizer: Tokenizer::embedded() };
        let prompt = build_of(&NeedleSpec { ctx_tok: 256, form: &FILE, ..NeedleSpec::default() }, 0, texts).unwrap();
        assert!(
            prompt.text.ends_with(&format!("\n{QUESTION}\nIn Oslo it is best to {ANSWER}")),
            "{name}: {}",
            prompt.text
        );
        let before = Tokenizer::embedded().decode(prompt.tokens_before_answer()).unwrap();
        assert!(before.ends_with("In Oslo it is best to"), "{name}: {before}");
    }
}

#[test]
fn answers_of_a_file_have_a_map_of_what_is_generated_and_no_cities() {
    let bench = Scratch::with_model();
    let needle = json!({"needle": NEEDLE_TEXT, "question": QUESTION, "answer": ANSWER});
    bench.write("n.json", json!([needle]).to_string());
    let run = bench.run("needle --ctx 200,300 --samples 1 --depths 0,100 --needles-file n.json --generate --max-new 3 --model m --out out");
    let printed = run.succeeded().stdout.clone() + &run.stderr;
    assert!(printed.contains("contains") && !printed.contains("city"), "{printed}");
    assert!(
        printed.contains("m begins no reply with the answer, but says “") && printed.contains("`lead`"),
        "{printed}"
    );
    assert!(bench.exists("out/generated.png") && bench.exists("out/accuracy.png"));
}

/// Where a sentence of a text ends, wrapped in some way.
#[test]
fn sentences_of_wrapped_texts_do_not_end_at_line_ends() {
    let sentences: Vec<String> =
        Haystack::Embedded.sentences(Rng::new(1, "wrapped")).take(60).map(|sentence| sentence.text).collect();
    let paragraphs: Vec<String> = sentences.chunks(6).map(|sentences| sentences.join(" ")).collect();
    let wrapped = |width: usize, indent: &str, line_end: &str| {
        let options = textwrap::Options::new(width).initial_indent(indent).subsequent_indent(indent);
        let paragraphs: Vec<String> =
            paragraphs.iter().map(|text| textwrap::wrap(text, &options).join(line_end)).collect();
        paragraphs.join(&line_end.repeat(2))
    };
    let folder = Scratch::new();
    let path = folder.path("text.txt");
    let mut want = sentences.clone();
    want.sort();
    for (name, text) in [
        ("not wrapped", paragraphs.join("\n\n")),
        ("72 columns", wrapped(72, "", "\n")),
        ("50 columns", wrapped(50, "", "\n")),
        ("CRLF", wrapped(72, "", "\r\n")),
        ("CR", wrapped(65, "", "\r")),
        ("indented", wrapped(76, "    ", "\n")),
        ("spaces at line ends", wrapped(72, "", " \n")),
        ("a sentence a line", sentences.join("\n")),
    ] {
        fs::write(&path, text).unwrap();
        let haystack = Haystack::from_path(&path).unwrap();
        let mut read: Vec<String> = haystack.sentences(Rng::new(0, "own")).map(|sentence| sentence.text).collect();
        read.sort();
        assert_eq!(read, want, "{name}");
    }
}

/// The needles' depths of a run: asked for, and real, in percent.
fn depths(bench: &Scratch, out: &str) -> Vec<(f64, f64)> {
    let records = difftool::results::record::read(&bench.path(out).join("results.csv")).unwrap();
    let placed = records.iter().filter(|record| record.identity.placed == Some(true));
    placed.filter_map(|record| Some((record.identity.depth_req_pct?, record.identity.depth_real_pct?))).collect()
}

#[test]
fn a_haystack_of_any_language_makes_prompts_as_long_and_depths_as_exact_as_english() {
    let bench = Scratch::with_model();
    bench.write("chinese.txt", include_str!("../fixtures/repro/chinese-one-line.txt"));
    bench.write("thai.txt", "แม่น้ำกว้างมาก เรือแล่นช้าช้า ".repeat(100));
    bench.write("unbroken-thai.txt", "แม่น้ำกว้างมากเรือแล่นช้าช้า".repeat(100));
    bench.write("hindi.txt", "नदी चौड़ी है। नाव धीरे चलती है। ".repeat(100));
    bench.write("no-full-stops.txt", "the cat sat on the mat in winter ".repeat(600));
    for haystack in ["chinese", "thai", "unbroken-thai", "hindi", "no-full-stops"] {
        for ctx in [256, 1000] {
            let args = format!(
                "--ctx {ctx} --samples 1 --needles 1,2 --depths 0,25,50,75,100 --model m --haystack {haystack}.txt"
            );
            bench.run(format!("prompt {args} --jsonl {haystack}-{ctx}.jsonl")).succeeded();
            for line in bench.read(format!("{haystack}-{ctx}.jsonl")).lines() {
                let prompt: serde_json::Value = serde_json::from_str(line).unwrap();
                let tokens = prompt["ids"].as_array().unwrap().len();
                assert!(tokens <= ctx && tokens * 100 >= ctx * 95, "{haystack}: {tokens} of {ctx} tokens");
                if ctx > 256 {
                    for query in prompt["queries"].as_array().unwrap() {
                        let depth = |field: &str| query[field].as_f64().unwrap();
                        let off = (depth("depth_req_pct") - depth("depth_real_pct")).abs();
                        assert!(off <= 2.0, "{haystack}: {off} points off");
                    }
                }
            }
        }
    }
    let text =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["text"].as_str().unwrap().to_owned();
    let chinese = bench.read("chinese-1000.jsonl").lines().map(text).collect::<String>();
    let joined =
        chinese.match_indices('。').filter(|(at, mark)| chinese[at + mark.len()..].starts_with(|c| c > '\u{4e00}'));
    assert!(joined.count() > 20, "its sentences follow each other without a space");
}

#[test]
fn depths_that_cannot_be_had_are_reported_before_the_run_begins() {
    let bench = Scratch::with_model();
    let word = "Incomprehensibilities".repeat(9);
    bench.write("words.txt", format!("{word} ").repeat(40));
    let args = "needle --ctx 256 --samples 1 --needles 1 --depths 0,50 --model m --haystack words.txt --out out";
    let output = bench.run(args);
    let stderr = &output.succeeded().stderr;
    assert!(stderr.contains("256 tokens: depths are ") && stderr.contains(" % instead of 50"), "{stderr}");
    assert!(depths(&bench, "out").iter().any(|(asked, real)| (asked - real).abs() > 2.0));
    let stderr = bench.run("needle --ctx 1k --samples 1 --needles 1 --depths 50 --model m --out fine").stderr;
    assert!(!stderr.contains("depths are"), "{stderr}");
}

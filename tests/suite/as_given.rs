//! Tokenizers, texts and needles as people have them: what is read as it is meant, and what is refused with what to do.

use crate::common::Scratch;
use crate::trust::NEEDLE;
use serde_json::{json, Value};
use stats::Rng;
use std::fs;
use text::needle::{build_of, Texts};
use text::{Haystack, NeedleSpec, NeedlesFile, SpecialTokens, Tokenizer, TokenizerOptions, FILE};

/// A folder with the embedded tokenizer, of 1024 tokens, and these files.
fn folder(files: &[(&str, String)]) -> Scratch {
    let folder = Scratch::new();
    folder.write("tokenizer.json", &Tokenizer::embedded().json);
    for (name, text) in files {
        folder.write(name, text);
    }
    folder
}

fn open(folder: &Scratch, special: SpecialTokens) -> Result<Tokenizer, String> {
    let options = TokenizerOptions { special, ..TokenizerOptions::default() };
    Tokenizer::open(folder.folder(), &options).map_err(|error| format!("{error:#}"))
}

const TURNS: &str = "<|im_start|>user<|im_end|>";

/// Name, files, and the ids of the two tokens or the words of the error.
type AddedTokens = (&'static str, Vec<(&'static str, Value)>, Result<[u32; 2], &'static str>);

/// Files that name tokens which `tokenizer.json` lacks, with the ids that transformers 5.24 gives them. It does not heed
/// other ids in the files.
fn added_tokens() -> Vec<AddedTokens> {
    let token = |content: &str, special: bool| json!({"content": content, "special": special});
    let decoder = |first: u32, special| {
        let both = json!({(first + 1).to_string(): token("<|im_end|>", special), first.to_string(): token("<|im_start|>", special)});
        ("tokenizer_config.json", json!({"added_tokens_decoder": both}))
    };
    let names = json!(["<|im_start|>", "<|im_end|>"]);
    vec![
        ("added_tokens_decoder", vec![decoder(1024, true)], Ok([1024, 1025])),
        ("tokens that are not special", vec![decoder(1024, false)], Ok([1024, 1025])),
        (
            "added_tokens.json",
            vec![("added_tokens.json", json!({"<|im_end|>": 1025, "<|im_start|>": 1024}))],
            Ok([1024, 1025]),
        ),
        (
            "special_tokens_map.json",
            vec![(
                "special_tokens_map.json",
                json!({"eos_token": token("<|im_end|>", true), "bos_token": "<|im_start|>"}),
            )],
            Ok([1024, 1025]),
        ),
        ("a list", vec![("tokenizer_config.json", json!({"additional_special_tokens": names}))], Ok([1024, 1025])),
        (
            "a list of old",
            vec![("special_tokens_map.json", json!({"additional_special_tokens": names}))],
            Ok([1024, 1025]),
        ),
        (
            "names",
            vec![("tokenizer_config.json", json!({"extra_special_tokens": {"a": "<|im_start|>", "b": "<|im_end|>"}}))],
            Ok([1024, 1025]),
        ),
        (
            "a name of this model alone",
            vec![("tokenizer_config.json", json!({"image_token": "<|im_end|>", "pad_token": "<|im_start|>"}))],
            Ok([1024, 1025]),
        ),
        (
            "ids with a gap",
            vec![decoder(1030, true)],
            Err("tokenizer_config.json, added_tokens_decoder: \"<|im_start|>\" has id 1030"),
        ),
        ("ids of others", vec![decoder(7, true)], Err("added_tokens_decoder: \"<|im_start|>\" has id 7")),
        (
            "ids with a gap",
            vec![("added_tokens.json", json!({"<|im_start|>": 1025, "<|im_end|>": 1026}))],
            Err("added_tokens.json: \"<|im_start|>\" has id 1025"),
        ),
        (
            "no id",
            vec![("tokenizer_config.json", json!({"added_tokens_decoder": {"x": token("a", true)}}))],
            Err("added_tokens_decoder: \"x\""),
        ),
    ]
}

#[test]
fn tokens_of_the_files_beside_a_tokenizer_are_tokens() {
    for (name, files, want) in added_tokens() {
        let files: Vec<(&str, String)> = files.into_iter().map(|(file, json)| (file, json.to_string())).collect();
        let tokenizer = open(&folder(&files), SpecialTokens::Parse);
        match (tokenizer, want) {
            (Ok(tokenizer), Ok([start, end])) => {
                let user = tokenizer.encode("user").unwrap().ids;
                let ids = tokenizer.encode(TURNS).unwrap().ids;
                assert_eq!(ids, [&[start], &user[..], &[end]].concat(), "{name}");
                assert_ne!(tokenizer.sha256, Tokenizer::embedded().sha256, "{name}");
            }
            (Err(error), Err(words)) => assert!(error.contains(words), "{name}: {error}"),
            (tokenizer, _) => panic!("{name}: {:?}", tokenizer.map(|tokenizer| tokenizer.encode(TURNS))),
        }
    }
}

#[test]
fn special_tokens_in_texts_are_what_the_user_says_and_the_default_is_said() {
    let bench = Scratch::with_model();
    bench.write("t.txt", "One document.<eos>Another one.<eos>".repeat(20));
    bench.write("n.jsonl", r#"{"needle": "He wrote <eos> on the wall.", "question": "What?", "answer": "the wall"}"#);
    for (command, default) in [
        ("nll --text t.txt --ctx 100 --samples 1 --skip 0", true),
        ("needle --ctx 128 --samples 1 --depths 50 --needles 1 --haystack t.txt", true),
        ("needle --ctx 128 --samples 1 --depths 50 --needles-file n.jsonl", true),
        ("needle --ctx 256 --samples 1 --depths 50 --needles 1", false),
    ] {
        let out = bench.run(&format!("{command} --model m --out text"));
        let said = "special tokens such as <eos>, which are cut into letters; with --special-tokens parse";
        assert_eq!(out.succeeded().stderr.matches(said).count(), usize::from(default), "{command}: {}", out.stderr);
        let out = bench.run(&format!("{command} --model m --out parse --special-tokens parse"));
        assert!(!out.succeeded().stderr.contains("special tokens"), "{command}: {}", out.stderr);
        for run in ["text", "parse"] {
            let tokens = bench.path(run).join("tokens.csv");
            if tokens.exists() {
                let mut rows = csv::Reader::from_path(tokens).unwrap();
                let column = rows.headers().unwrap().iter().position(|name| name == "token_id").unwrap();
                let eos = rows.records().filter(|row| &row.as_ref().unwrap()[column] == "1").count();
                assert_eq!(eos > 2, run == "parse", "{command}: {eos}");
            }
            fs::remove_dir_all(bench.path(run)).unwrap();
        }
    }
    bench
        .run(&format!("{NEEDLE} --model transformer --out out --special-tokens parse"))
        .refused(2, &["--special-tokens", "built-in transformer"]);
    assert_eq!(open(&folder(&[]), SpecialTokens::Parse).unwrap().encode("a<eos>").unwrap().ids[1..], [1]);
}

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
        let output = bench
            .command("prompt --model m --text t.txt --answer 4821 --jsonl -")
            .args(["--question", question, "--lead", lead])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        let prompt: Value = serde_json::from_slice(&output.stdout).unwrap();
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

#[cfg(unix)]
#[test]
fn a_link_to_nothing_is_an_error_and_not_an_absent_file() {
    let bench = Scratch::with_model();
    bench.write(
        "m/tokenizer_config.json",
        r#"{"chat_template": "OTHER {{ messages[0].content }} ", "bos_token": "<bos>"}"#,
    );
    fs::create_dir(bench.path("texts")).unwrap();
    bench.write("texts/a.txt", "A sentence of this text. ".repeat(200));
    for (link, command) in [
        ("m/chat_template.jinja", format!("{NEEDLE} --model m --chat-template --out out")),
        ("m/special_tokens_map.json", format!("{NEEDLE} --model m --out out")),
        ("m/added_tokens.json", format!("{NEEDLE} --model m --out out")),
        ("m/generation_config.json", format!("{NEEDLE} --model m --out out")),
        ("texts/b.txt", format!("{NEEDLE} --model m --haystack texts --out out")),
    ] {
        for target in ["gone", link.rsplit('/').next().unwrap()] {
            std::os::unix::fs::symlink(target, bench.path(link)).unwrap();
            let out = bench.run(&command);
            assert!(
                out.code != Some(0) && out.stderr.contains(link),
                "{link} -> {target}: {:?} {}",
                out.code,
                out.stderr
            );
            fs::remove_file(bench.path(link)).unwrap();
        }
    }
}

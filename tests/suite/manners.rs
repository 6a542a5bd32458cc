//! The binary from outside: prompts to look at, completions, pipes.

use crate::common::{commands, Scratch};
use std::process::Stdio;

#[test]
fn a_prompt_is_shown_with_its_regions_in_brackets() {
    let shown = Scratch::new().stdout("prompt --ctx 256 --needles 2 --retrieve 1 --depths 50");
    for region in ["[template|", "[needle|", "[answer|", "[distractor|", "[question|"] {
        assert!(shown.contains(region), "{region} is not in {shown}");
    }
    assert!(!shown.contains('\u{1b}') && !shown.contains("[filler|"), "{shown}");
    let answer = shown.split("[answer|").nth(1).unwrap().split(']').next().unwrap().trim().to_owned();
    assert!(shown.contains(&format!(" is {answer}, tokens ")), "{answer}: {shown}");
}

#[test]
fn prompts_as_json_lines_hold_what_was_tokenized_and_where_the_answer_is() {
    let lines = Scratch::new().stdout("prompt --ctx 256 --needles 2 --samples 1 --jsonl -");
    assert_eq!(lines.lines().count(), 5, "five depths");
    for line in lines.lines() {
        let prompt: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = prompt["text"].as_str().unwrap();
        let offsets = prompt["offsets"].as_array().unwrap();
        assert_eq!(offsets.len(), prompt["ids"].as_array().unwrap().len());
        for query in prompt["queries"].as_array().unwrap() {
            let end = |field: &str, i: usize| query[field][i].as_u64().unwrap() as usize;
            let byte = |token: usize, i: usize| offsets[token][i].as_u64().unwrap() as usize;
            let (first, last) = (end("answer_tokens", 0), end("answer_tokens", 1) - 1);
            assert_eq!(text[byte(first, 0)..byte(last, 1)].trim(), query["answer"].as_str().unwrap());
            let regions = query["regions"].as_array().unwrap();
            assert_eq!(regions[0][1], 0);
            assert_eq!(regions.last().unwrap()[2].as_u64().unwrap() as usize, offsets.len(), "a partition");
            assert!(regions.windows(2).all(|pair| pair[0][2] == pair[1][1]), "without gaps");
        }
    }
}

#[test]
fn prompts_are_written_to_new_files_only() {
    let dir = Scratch::new();
    let prompt = "prompt --ctx 256 --needles 1 --jsonl prompts.jsonl";
    dir.stdout(prompt);
    let before = dir.bytes("prompts.jsonl");
    dir.refuses(prompt, &["prompts.jsonl: it exists"]);
    assert_eq!(dir.bytes("prompts.jsonl"), before);
}

#[test]
fn completions_name_every_command() {
    let commands = commands();
    assert!(commands.len() > 20, "{commands:?}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = Scratch::new().stdout(["completions", shell]);
        assert!(commands.iter().all(|command| script.contains(command.as_str())), "{shell}");
    }
}

#[test]
fn a_closed_pipe_ends_quietly() {
    for args in [&["completions", "bash"][..], &["prompt", "--ctx", "1k", "--jsonl", "-"]] {
        let mut child = Scratch::new().process(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
    }
}

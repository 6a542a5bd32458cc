//! `prompt`: prompts as JSON lines. How one is shown: `screens.rs`.

use crate::common::Scratch;

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

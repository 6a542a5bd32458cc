//! Haystacks in any language, and depths that are what they are said to be.

use crate::common::Scratch;

/// The needles' depths of a run: asked for, and real, in percent.
fn depths(bench: &Scratch, out: &str) -> Vec<(f64, f64)> {
    let records = difftool::results::record::read(&bench.path(out).join("results.csv")).unwrap();
    let placed = records.iter().filter(|record| record.identity.placed == Some(true));
    placed.filter_map(|record| Some((record.identity.depth_req_pct?, record.identity.depth_real_pct?))).collect()
}

#[test]
fn a_haystack_of_any_language_makes_prompts_as_long_and_depths_as_exact_as_english() {
    let bench = Scratch::with_model();
    bench.write("chinese.txt", include_str!("../../fixtures/repro/chinese-one-line.txt"));
    bench.write("thai.txt", "แม่น้ำกว้างมาก เรือแล่นช้าช้า ".repeat(100));
    bench.write("unbroken-thai.txt", "แม่น้ำกว้างมากเรือแล่นช้าช้า".repeat(100));
    bench.write("hindi.txt", "नदी चौड़ी है। नाव धीरे चलती है। ".repeat(100));
    bench.write("no-full-stops.txt", "the cat sat on the mat in winter ".repeat(600));
    for haystack in ["chinese", "thai", "unbroken-thai", "hindi", "no-full-stops"] {
        for ctx in [256, 1000] {
            let args = format!(
                "--ctx {ctx} --samples 1 --needles 1,2 --depths 0,25,50,75,100 --model m --haystack {haystack}.txt"
            );
            bench.run(&format!("prompt {args} --jsonl {haystack}-{ctx}.jsonl")).succeeded();
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

//! `ratio`, `heads`, and what all measuring commands have in common, on tiny random models.

use crate::common::{self, assert_drawn, commands_with, printed, refuses, Outcome, Scratch};
use assert_cmd::Command;
use candle_core::DType;
use difftool::commands::command_line;
use difftool::results::record::Record;
use engine::model::DecoderSizes;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// A scratch folder with one tiny model of each variant.
pub(crate) struct Models(Scratch);

impl Models {
    pub(crate) fn new() -> Self {
        Self(Scratch::with_models())
    }

    /// `difftool COMMAND` as it is.
    pub(crate) fn difftool(&self, command: &str, args: &[&str]) -> Command {
        self.command([&[command], args].concat())
    }

    /// `difftool COMMAND` on all three models unless `args` name some.
    pub(crate) fn run(&self, command: &str, args: &[&str]) -> Command {
        let mut run = self.difftool(command, args);
        if !args.contains(&"--model") {
            run.args(["--model", "./transformer", "--model", "./diff", "--model", "./diff-v2"]);
        }
        run
    }

    /// Runs it and gives what it printed.
    pub(crate) fn stdout(&self, command: &str, args: &[&str]) -> String {
        printed(&mut self.run(command, args))
    }
}

common::is_scratch!(Models);

/// The mean of a metric over the records that are means over heads and layers, by model.
pub(crate) fn means(records: &[Record], metric: &str, region: Option<&str>) -> BTreeMap<String, f64> {
    let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for Record { identity, measure } in records {
        if measure.metric == metric && measure.region.as_deref() == region && measure.layer.is_none() {
            values.entry(identity.model.clone()).or_default().push(measure.value.unwrap());
        }
    }
    values.into_iter().map(|(model, values)| (model, values.iter().sum::<f64>() / values.len() as f64)).collect()
}

const ONE_NEEDLE: [&str; 4] = ["--needles", "1", "--retrieve", "1"];
pub(crate) const SHORT: [&str; 6] = ["--ctx", "256", "--samples", "1", "--depths", "0,50"];

#[test]
fn what_is_measured_before_a_run_is_said() {
    let scratch = Models::new();
    let of_heads = "measuring heads on prompts of their own";
    for (line, said) in [
        ("ablate --parts heads --samples 1", of_heads),
        ("explore", of_heads),
        ("heatmap", "choosing the layers to draw"),
        ("claims --only T2 --samples 1", "choosing among how many needles to ask, on the standard model"),
        ("heatmap --layer 0", ""),
        ("claims --only T2 --samples 1 --needles 1", ""),
        ("needle --samples 1", ""),
    ] {
        let line = format!("{line} --ctx 192 --model ./transformer --model ./diff --out run");
        let run = Outcome::of(scratch.command(&line).output().unwrap());
        let before = run.stderr.lines().take_while(|line| !line.contains(" -> run"));
        assert_eq!(before.collect::<String>(), said, "{line}: {}", run.stderr);
        fs::remove_dir_all(scratch.path("run")).unwrap();
    }
    let line = "ablate --parts heads --samples 1 --ctx 192 --model ./diff -q";
    assert_eq!(Outcome::of(scratch.command(line).output().unwrap()).stderr, "");
}

#[test]
fn ratio_tells_where_attention_goes_and_leaves_records_and_figures() {
    let scratch = Models::new();
    scratch.stdout("ratio", &[&SHORT[..], &["--out", "run"]].concat());
    for file in ["regions.png", "heads.png"] {
        assert_drawn(&scratch.path("run").join(file), "ratio");
    }
    let records = scratch.records("run");
    let mut regions: BTreeMap<(String, &str), f64> = BTreeMap::new();
    for metric in ["share_out", "share_abs", "share_signed"] {
        for region in ["bos", "first", "template", "filler", "distractor", "needle", "answer", "question"] {
            for (model, mean) in means(&records, metric, Some(region)) {
                *regions.entry((model, metric)).or_default() += mean;
            }
        }
    }
    assert_eq!(regions.len(), 9);
    for ((model, metric), total) in regions {
        assert!((total - 1.0).abs() < 1e-3, "{model}: {metric} of all regions is {total}");
    }
    for (model, entropy) in means(&records, "entropy", None) {
        assert!(entropy > 0.0 && entropy <= 256f64.ln(), "{model}: entropy {entropy}");
    }
}

#[test]
fn heads_tells_what_each_head_is_for() {
    let scratch = Models::new();
    scratch.stdout("heads", &[&SHORT[..], &ONE_NEEDLE, &["--out", "run"]].concat());
    let records = scratch.records("run");
    let heads = |model: &str, metric: &str| {
        let of = |r: &&Record| r.identity.model == model && r.measure.metric == metric && r.measure.head.is_some();
        records.iter().filter(of).map(|r| r.measure.value.unwrap()).collect::<Vec<f64>>()
    };
    for metric in ["retrieval_score", "query_score", "previous_token", "induction", "duplicate_token"] {
        for model in ["./transformer", "./diff"] {
            let scores = heads(model, metric);
            assert_eq!(scores.len(), 8, "2 layers of 2 heads on 2 prompts: {model}, {metric}");
            assert!(scores.iter().all(|score| (0.0..=1.0).contains(score)), "{model}, {metric}: {scores:?}");
        }
    }
    assert_drawn(&scratch.path("run/heads.png"), "heads");
}

#[test]
fn ratio_of_a_text_needs_no_needles() {
    let scratch = Models::new();
    scratch.write("text.txt", "The river is wide here, and a boat goes by. ".repeat(40));
    let stdout = scratch.stdout("ratio", &["--text", "text.txt", "--ctx", "128", "--out", "run"]);
    assert!(stdout.contains("filler in output %") && !stdout.contains("answer in"), "{stdout}");
    let records = scratch.records("run");
    assert!(records.iter().all(|r| r.identity.task == "text" && r.identity.rows.as_deref() == Some("last32")));
    assert!(records.iter().all(|r| r.identity.needles.is_none()));
}

#[test]
fn a_text_with_a_question_is_measured_by_every_command_of_needles() {
    let scratch = Models::new();
    let text = format!("{} Old Mr Low saw 17 of them. {}", "A boat goes by. ".repeat(4), "Nobody waves. ".repeat(4));
    scratch.write("text.txt", text);
    let commands = commands_with(&["--text", "--question", "--needles", "--out"]);
    assert!(commands.len() >= 7, "{commands:?}");
    for command in &commands {
        let asked = ["--text", "text.txt", "--question", "How many?", "--answer", "17", "--out", command];
        scratch.stdout(command, &[&asked[..], &["--model", "./diff"]].concat());
        let records = scratch.records(command);
        let prompt = &records[0].identity;
        assert_eq!(
            (prompt.task.as_str(), prompt.needles, prompt.retrieve),
            ("question", Some(1), Some(1)),
            "{command}"
        );
        assert!(prompt.ctx_tok < 256 && prompt.depth_req_pct.is_some_and(|depth| (30.0..70.0).contains(&depth)));
        assert!(records.iter().any(|r| r.measure.metric == "answer_log_prob"), "{command}");
        assert_eq!(records.iter().map(|r| r.identity.seed).collect::<BTreeSet<_>>().len(), 1, "{command}");
    }
    let nowhere = ["--text", "text.txt", "--question", "Who?", "--answer", "ship"];
    refuses(&mut scratch.run("needle", &nowhere), 2, &["does not hold \"ship\"", "difftool context"]);
    refuses(&mut scratch.run("needle", &["--prompt", "A boat goes by."]), 2, &["--question and --answer"]);
    scratch.stdout("heatmap", &["--prompt", "A boat goes by.", "--out", "sentence"]);
    assert!(scratch.records("sentence").iter().all(|r| r.identity.task == "text"));
}

#[test]
fn filters_measure_the_named_layers_and_heads_only() {
    let scratch = Models::new();
    scratch.stdout("ratio", &[&SHORT[..], &["--out", "run", "--layers", "1", "--heads", "0"]].concat());
    let places = scratch.records("run").into_iter().filter_map(|r| Some((r.measure.layer?, r.measure.head?)));
    assert_eq!(places.collect::<std::collections::BTreeSet<_>>(), [(1, 0)].into());
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let scratch = Models::new();
    for (command, args) in [
        ("ratio", &SHORT[..]),
        ("heads", &SHORT[..]),
        ("quantize", &[&SHORT[..], &["--bits", "4", "--exempt-sinks"]].concat()),
        ("outliers", &["--samples", "3", "--ctx", "400"]),
    ] {
        let bytes = |threads: &str| {
            let out = format!("{command}-{threads}");
            scratch.stdout(command, &[args, &["--out", &out, "--threads", threads]].concat());
            scratch.bytes(format!("{}/results.csv", &out))
        };
        assert!(bytes("1") == bytes("3"), "{command}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn results_do_not_depend_on_the_state_of_the_weights() {
    let scratch = Scratch::new();
    // 360 MB as f32: more than half of the limit, which leaves enough for the run.
    let sizes = DecoderSizes { width: 512, layers: 26, ffn: 1536, head_dim: 128, ..common::tiny_sizes("diff") };
    common::random_model(&scratch.path("diff"), "diff", sizes, DType::BF16);
    let limits = [("expanded", "ulimit -v unlimited"), ("streamed", "ulimit -v 600000")];
    for (command, args) in [
        ("heads", "--needles 1 --samples 1 --depths 50"),
        ("ratio", "--needles 1 --samples 1 --depths 50"),
        ("explore", ""),
    ] {
        let [expanded, streamed] = limits.map(|(state, limit)| {
            let out = format!("{command}-{state}");
            let args = format!("{command} --model ./diff --ctx 128 {args} --threads 1 --out {out} -q");
            scratch.limited(limit, &args).assert().success();
            let manifest = scratch.read(format!("{out}/manifest.json"));
            let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
            assert_eq!(manifest["models"][0]["weights"], state, "{command}");
            scratch.read(format!("{out}/results.csv"))
        });
        assert!(streamed == expanded, "{command}");
    }
    for (state, limit) in limits {
        let told = printed(&mut scratch.limited(limit, "inspect ./diff"));
        assert!(told.contains(&format!("for the weights ({state})")), "{told}");
    }
}

#[test]
fn json_is_the_only_thing_on_stdout() {
    let scratch = Models::new();
    for (command, args, key) in [
        ("ratio", &SHORT[..], "heads"),
        ("heads", &SHORT[..], "roles"),
        ("quantize", &[&SHORT[..], &["--bits", "8"]].concat(), "differences"),
        ("outliers", &["--samples", "1", "--ctx", "256"], "outliers"),
        ("heatmap", &["--ctx", "256"], "drawn"),
    ] {
        let stdout = scratch.stdout(command, &[args, &["--json", "-q", "--out", command]].concat());
        let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        let rows = json.get(key).and_then(|rows| rows.as_array());
        assert!(rows.is_some_and(|rows| !rows.is_empty()), "{command}: {key}");
    }
}

#[test]
fn a_report_of_a_run_has_the_tables_that_the_command_printed() {
    let scratch = Models::new();
    scratch.write("text.txt", "The river is wide here, and a boat goes by. ".repeat(30));
    for (i, (command, args)) in [
        ("needle", &[&SHORT[..], &["--needles", "2"]].concat()[..]),
        ("needle", &["--ctx", "128", "--needles", "1", "--samples", "1", "--generate", "--max-new", "4"]),
        ("ratio", &SHORT),
        ("heads", &SHORT),
        ("ratio", &["--text", "text.txt", "--ctx", "128"]),
        ("quantize", &[&SHORT[..], &["--bits", "6,4", "--exempt-sinks"]].concat()),
        ("outliers", &["--samples", "2", "--ctx", "128"]),
        ("nll", &["--samples", "3", "--ctx", "128"]),
        ("nll", &["--text", "text.txt", "--ctx", "64"]),
        ("heatmap", &["--ctx", "128", "--condition", "mask(noise)"]),
        ("explore", &["--ctx", "128"]),
        ("shots", &["--shots", "16", "--samples", "1"]),
        ("ablate", &["--ctx", "256", "--samples", "1", "--depths", "0,50"]),
        ("ablate", &["--ctx", "256", "--samples", "1", "--depths", "0,50", "--parts", "each-head,flow"]),
        ("quantize", &["--ctx", "256", "--samples", "1", "--bits", "4"]),
        ("needle", &["--ctx", "128", "--needles", "1", "--samples", "1", "--unanswerable", "--max-new", "4"]),
        ("claims", &["--ctx", "256", "--samples", "1", "--only", "T2,F4,P"]),
    ]
    .into_iter()
    .enumerate()
    {
        let out = format!("run{i}");
        let screen = scratch.stdout(command, &[args, &["-q", "--out", &out]].concat());
        assert!(screen.lines().count() <= 24 && screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
        assert_eq!(printed(&mut scratch.difftool("show", &[&out])), screen, "{command} {args:?}");
        let all = printed(&mut scratch.difftool("show", &[&out, "--tables", "all"]));
        let report = printed(&mut scratch.difftool("report", &[&out, "--format", "markdown"]));
        let titles = all.split("\n\n").filter_map(|part| Some(part.split_once([':', '.'])?.0));
        let titles: Vec<&str> = titles.filter(|title| report.contains(&format!("### {title}\n"))).collect();
        assert!(!titles.is_empty() && all.starts_with(titles[0]), "{command} {args:?}: {all}");
        for title in titles {
            command_line()
                .try_get_matches_from(["difftool", command, "--tables", title])
                .unwrap_or_else(|error| panic!("{error}"));
        }
        let page = printed(&mut scratch.difftool("report", &[&out, "-o", "-"]));
        assert_told(&page, &format!("{command} {args:?}"));
        // What the screen says below its tables, the page says above them.
        let said = screen.split("\n\n").last().unwrap().split("Next: ").next().unwrap().replace('\n', " ");
        let note = page.split("-screen-note\">").nth(1).unwrap_or_default().split("</p>").next().unwrap();
        let note = note.replace("&#x27;", "'").replace("&#x2f;", "/").replace("&gt;", ">").replace("&lt;", "<");
        assert!(note.ends_with(said.trim()), "{command} {args:?}: {note:?} for {said:?}");
    }
}

/// Every table of a page has a sentence above it, and each of its rows and columns beyond the first a name.
#[track_caller]
fn assert_told(page: &str, context: &str) {
    let parts: Vec<&str> = page.split("<table").collect();
    assert!(parts.len() > 1, "{context}: no table");
    for (before, table) in parts.iter().zip(&parts[1..]) {
        let title = before.rsplit("<h3").next().unwrap();
        let table = table.split("</table>").next().unwrap();
        assert!(title.contains("<p class=\"note\""), "{context}: no sentence above {title:.300}");
        assert!(!title.contains("-note\">.</p>") && !title.contains("-note\"> "), "{context}: {title:.300}");
        for name in ["<th scope=\"row\"", "<th scope=\"col\""] {
            for cell in table.split(name).skip(1) {
                let text = cell.split_once('>').unwrap().1.split("</th>").next().unwrap();
                assert!(!text.trim().is_empty(), "{context}: a name is missing below {title:.300}");
            }
        }
    }
}

#[test]
fn maps_of_one_prompt_are_experiments_that_a_file_repeats() {
    let scratch = Models::new();
    for (command, args, file) in [
        ("heatmap", ["--ctx", "128", "--map", "all", "--key", "5..80", "--condition", "silence(noise)"], "heatmap.png"),
        ("explore", ["--ctx", "128", "--depth", "25", "--seed", "7", "--condition", "ablate(0.1)"], "explore.html"),
    ] {
        let (first, again) = (format!("{command}-1"), format!("{command}-2"));
        let printed = scratch.stdout(command, &[&args[..], &["-q", "--out", &first]].concat());
        let experiment = format!("{first}/experiment.toml");
        let repeated = common::Scratch::stdout(&scratch, ["run", &experiment, "-q", "--out", &again]);
        assert_eq!(repeated, printed);
        let read = |run: &str, file: &str| fs::read(scratch.path(run).join(file)).unwrap();
        assert!(!read(&again, file).is_empty());
        for file in ["results.csv", "drawn.csv", "experiment.toml"] {
            assert_eq!(read(&first, file), read(&again, file), "{file}");
        }
        let told = scratch.stdout(command, &[&args[..], &["--print-experiment"]].concat());
        assert_eq!(told.as_bytes(), read(&first, "experiment.toml"));
        refuses(
            &mut scratch.difftool("run", &[&experiment, "--shard", "1/2"]),
            2,
            &["one prompt", "cannot be resumed"],
        );
    }
}

#[test]
fn files_and_folders_that_do_not_fit_a_request_are_its_mistake() {
    let scratch = Models::new();
    scratch.stdout("needle", &["--ctx", "256", "--samples", "2", "--depths", "50", "-q", "--out", "a"]);
    scratch.stdout("needle", &["--ctx", "256", "--samples", "2", "--depths", "50", "-q", "--out", "b", "--seed", "1"]);
    let refused =
        |command: &str, args: &[&str], words: &[&str]| refuses(&mut scratch.difftool(command, args), 2, words);
    refused("report", &["a", "b", "--compare", "-o", "c.html"], &["`difftool compare`", "--allow-different-prompts"]);
    refused("compare", &["a", "a", "--by", "model"], &["a is named twice"]);
    // As long as it was, and not what it was.
    let results = scratch.path("a/results.csv");
    let changed = fs::read_to_string(&results).unwrap().replacen("transformer", "transformeR", 1);
    fs::write(&results, changed).unwrap();
    let resumed = scratch.difftool("run", &["--resume", "a"]);
    refuses(&mut { resumed }, 1, &["results.csv is not what was written (as long, but with other bytes)"]);
}

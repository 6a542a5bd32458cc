//! The binary from outside: `ratio`, `heatmap`, `quantize` and `outliers` on tiny random models.

use crate::common::{self, assert_drawn, commands_with, edit_tensor, printed, refuses};
use assert_cmd::Command;
use candle_core::npy::NpzTensors;
use candle_core::{DType, Tensor};
use difftool::commands::command_line;
use difftool::results::record::Record;
use engine::model::DecoderSizes;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// A scratch folder with one tiny model of each variant.
struct Scratch(common::Scratch);

impl Scratch {
    fn new() -> Self {
        Self(common::Scratch::with_models())
    }

    /// `difftool COMMAND` as it is.
    fn difftool(&self, command: &str, args: &[&str]) -> Command {
        self.command(&[&[command], args].concat())
    }

    /// `difftool COMMAND` on all three models unless `args` name some.
    fn run(&self, command: &str, args: &[&str]) -> Command {
        let mut run = self.difftool(command, args);
        if !args.contains(&"--model") {
            run.args(["--model", "./transformer", "--model", "./diff", "--model", "./diff-v2"]);
        }
        run
    }

    /// Runs it and gives what it printed.
    fn stdout(&self, command: &str, args: &[&str]) -> String {
        printed(&mut self.run(command, args))
    }
}

common::is_scratch!(Scratch);

/// The mean of a metric over the records that are means over heads and layers, by model.
fn means(records: &[Record], metric: &str, region: Option<&str>) -> BTreeMap<String, f64> {
    let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for Record { identity, measure } in records {
        if measure.metric == metric && measure.region.as_deref() == region && measure.layer.is_none() {
            values.entry(identity.model.clone()).or_default().push(measure.value.unwrap());
        }
    }
    values.into_iter().map(|(model, values)| (model, values.iter().sum::<f64>() / values.len() as f64)).collect()
}

const ONE_NEEDLE: [&str; 4] = ["--needles", "1", "--retrieve", "1"];
const SHORT: [&str; 6] = ["--ctx", "256", "--samples", "1", "--depths", "0,50"];

#[test]
fn ratio_tells_where_attention_goes_and_leaves_records_and_figures() {
    let scratch = Scratch::new();
    let stdout = scratch.stdout("ratio", &[&SHORT[..], &["--out", "run", "--tables", "all"]].concat());
    for heading in [
        "Where the attention goes",
        "Regions",
        "By depth",
        "What the subtraction cancels",
        "Entropy and sinks",
        "The 8 heads",
    ] {
        assert!(stdout.contains(heading), "{heading} is missing: {stdout}");
    }
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
    let scratch = Scratch::new();
    let stdout = scratch.stdout("heads", &[&SHORT[..], &ONE_NEEDLE, &["--out", "run"]].concat());
    for role in ["answer out", "retrieval", "induction", "sink", "cancelling"] {
        assert!(stdout.contains(role), "{role} is missing: {stdout}");
    }
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
    let scratch = Scratch::new();
    scratch.write("text.txt", "The river is wide here, and a boat goes by. ".repeat(40));
    let stdout = scratch.stdout("ratio", &["--text", "text.txt", "--ctx", "128", "--out", "run"]);
    assert!(stdout.contains("filler in output %") && !stdout.contains("answer in"), "{stdout}");
    let records = scratch.records("run");
    assert!(records.iter().all(|r| r.identity.task == "text" && r.identity.rows.as_deref() == Some("last32")));
    assert!(records.iter().all(|r| r.identity.needles.is_none()));
}

#[test]
fn a_text_with_a_question_is_measured_by_every_command_of_needles() {
    let scratch = Scratch::new();
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
    let twice = ["--text", "text.txt", "--question", "Who?", "--answer", "boat"];
    refuses(&mut scratch.run("needle", &twice), 2, &["in 4 places", "(…A boat goes by."]);
    refuses(&mut scratch.run("needle", &["--prompt", "A boat goes by."]), 2, &["--question and --answer"]);
    scratch.stdout("heatmap", &["--prompt", "A boat goes by.", "--out", "sentence"]);
    assert!(scratch.records("sentence").iter().all(|r| r.identity.task == "text"));
}

#[test]
fn filters_measure_the_named_layers_and_heads_only() {
    let scratch = Scratch::new();
    scratch.stdout("ratio", &[&SHORT[..], &["--out", "run", "--layers", "1", "--heads", "0"]].concat());
    let places = scratch.records("run").into_iter().filter_map(|r| Some((r.measure.layer?, r.measure.head?)));
    assert_eq!(places.collect::<std::collections::BTreeSet<_>>(), [(1, 0)].into());
}

#[test]
fn quantizing_to_16_bits_changes_next_to_nothing_and_to_2_bits_a_lot() {
    let scratch = Scratch::new();
    // Random models attend almost uniformly, which survives anything: larger queries make rows peaked.
    for variant in ["transformer", "diff", "diff-v2"] {
        for layer in 0..2 {
            let name = format!("model.layers.{layer}.self_attn.q_proj.weight");
            edit_tensor(&scratch.path(variant), &name, |values| values.iter_mut().for_each(|x| *x *= 300.0));
        }
    }
    let stdout = scratch.stdout("quantize", &[&SHORT[..], &["--bits", "16,2", "--out", "run"]].concat());
    assert!(stdout.contains("\n16 bits ") && stdout.contains("\n2 bits "), "{stdout}");
    let records = scratch.records("run");
    let with_bits =
        |bits: Option<u32>| -> Vec<Record> { records.iter().filter(|r| r.identity.bits == bits).cloned().collect() };
    for (model, variation) in means(&with_bits(Some(16)), "total_variation", None) {
        assert!(variation < 0.01, "{model}: {variation} with 16 bits");
    }
    for (model, variation) in means(&with_bits(Some(2)), "total_variation", None) {
        assert!(variation > 0.1, "{model}: {variation} with 2 bits");
    }
    assert_eq!(means(&with_bits(None), "accuracy", None), means(&with_bits(Some(16)), "accuracy", None));
    let scopes: Vec<_> = with_bits(Some(16)).iter().map(|r| r.identity.scope.clone()).collect();
    assert!(scopes.iter().all(|scope| scope.as_deref() == Some("tensor")));
    assert!(with_bits(None).iter().all(|r| r.identity.scope.is_none()));
}

#[test]
fn scopes_and_exempt_sinks_are_columns() {
    let scratch = Scratch::new();
    for (args, scope) in
        [(&["--scope", "row"][..], "row"), (&["--scope", "head", "--exempt-sinks"][..], "head-exempt-sinks")]
    {
        let out = ["--bits", "4", "--out", scope, "--model", "./diff"];
        scratch.stdout("quantize", &[&SHORT[..], args, &out].concat());
        let records = scratch.records(scope);
        assert!(records
            .iter()
            .filter(|r| r.identity.bits.is_some())
            .all(|r| r.identity.scope.as_deref() == Some(scope)));
    }
}

#[test]
fn outliers_lists_magnitudes_in_the_layout_of_the_papers_table() {
    let scratch = Scratch::new();
    let stdout = scratch.stdout("outliers", &["--samples", "2", "--ctx", "256", "--out", "run"]);
    assert!(stdout.contains("No massive activations") && stdout.contains("attention logits, top 1"), "{stdout}");
    let json = scratch.stdout("outliers", &["--samples", "2", "--ctx", "256", "--out", "again", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let rows = json["outliers"].as_array().unwrap();
    let of = |what: &str| rows.iter().filter(|row| row["of"] == what && row["top_100"].is_number()).count();
    assert_eq!((of("logits"), of("hidden")), (3, 3), "{stdout}");
    // 2 windows x 2 layers x 256 x 257 / 2 visible pairs x 2 maps of 2 heads
    let all = rows.iter().find(|row| row["model"] == "./diff" && row["of"] == "logits").unwrap();
    assert_eq!(all["numbers"], 526_336, "{stdout}");
    assert_drawn(&scratch.path("run/ccdf.png"), "outliers --samples 2");
}

#[test]
fn a_massive_activation_is_found_with_its_token_and_channel() {
    let scratch = Scratch::new();
    // One channel of one token's embedding; with tied embeddings and pre-norm it stays in the residual stream.
    let tokenizer = text::Tokenizer::embedded();
    let river = tokenizer.encode(" river").unwrap().ids[0] as usize;
    edit_tensor(&scratch.path("transformer"), "model.embed_tokens.weight", |values| values[river * 32 + 5] = 4000.0);
    scratch.write("text.txt", format!("{} river {}", "a boat ".repeat(10), "goes by ".repeat(10)));
    let args = ["--text", "text.txt", "--ctx", "64", "--samples", "1", "--out", "run", "--model", "./transformer"];
    let stdout = scratch.stdout("outliers", &args);
    assert!(stdout.contains("single tokens") && stdout.contains("4000"), "{stdout}");
    let massive = scratch.read("run/massive.csv");
    assert!(massive.lines().skip(1).all(|line| line.contains(" river,5,")), "{massive}");
}

#[test]
fn heatmap_draws_every_kind_of_map() {
    let scratch = Scratch::new();
    for map in ["effective", "a1", "a2", "logits1", "logits2", "all"] {
        let figures = ["--figures", "svg,png,pdf", "--figure-width", "170"];
        let args = ["--ctx", "256", "--map", map, "--out", map];
        scratch.stdout("heatmap", &[&args[..], &figures].concat());
        let read = |file: &str| fs::read(scratch.path(map).join(file)).unwrap();
        let svg = String::from_utf8(read("heatmap.svg")).unwrap();
        assert!(svg.contains("width=\"170.000mm\"") && svg.contains("\nseed: 0\n"), "{map}");
        assert!(svg.contains("href=\"data:image/png;base64,") && svg.contains("key token\n</text>"), "{map}");
        assert!(String::from_utf8_lossy(&read("heatmap.pdf")).contains("/Subtype /Image"), "{map}");
        let recipe = plot::read_recipe(&scratch.path(map).join("heatmap.png")).unwrap();
        assert!(recipe.iter().any(|(keyword, text)| keyword == "command" && text.contains(map)), "{recipe:?}");
        let manifest = String::from_utf8(read("manifest.json")).unwrap();
        assert!(["heatmap.pdf", "heatmap.png", "heatmap.svg"].iter().all(|file| manifest.contains(file)), "{map}");
    }
    scratch.stdout("heatmap", &["--ctx", "256", "--grid", "--out", "grid"]);
    assert!(scratch.exists("grid/heatmap-3.png"));
}

#[test]
fn the_whole_map_as_data_has_rows_that_sum_to_one() {
    let scratch = Scratch::new();
    let args = ["--ctx", "256", "--model", "./transformer", "--layer", "1", "--head", "0", "--full"];
    for (name, out) in [("map.npy", "one"), ("map.csv", "two")] {
        scratch.stdout("heatmap", &[&args[..], &["--data", name, "--out", out]].concat());
    }
    let map: Vec<Vec<f32>> = Tensor::read_npy(scratch.path("map.npy")).unwrap().to_vec2().unwrap();
    for (query, row) in map.iter().enumerate() {
        assert_eq!(row.len(), map.len());
        assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-4, "query {query}");
        assert!(row[query + 1..].iter().all(|&x| x == 0.0), "query {query} sees the future");
    }
    let csv = scratch.read("map.csv");
    assert_eq!(csv.lines().count(), map.len() + 1);
}

#[test]
fn the_data_of_several_maps_are_named_after_them() {
    let scratch = Scratch::new();
    let args = ["--ctx", "256", "--map", "all", "--layer", "1", "--data", "map.csv", "--out"];
    scratch.stdout("heatmap", &[&args[..], &["one"]].concat());
    let mut files: Vec<String> =
        fs::read_dir(scratch.path(".")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    files.retain(|name| name.starts_with("map-"));
    files.sort();
    let of_diff: Vec<&String> = files.iter().filter(|name| name.contains("diff-layer1-")).collect();
    let ends = ["a1.csv", "a2.csv", "effective.csv", "lambda-a2.csv"];
    assert!(of_diff.len() == 4 && of_diff.iter().zip(ends).all(|(name, end)| name.ends_with(end)), "{files:?}");
    assert!(files.iter().any(|name| name.contains("transformer-layer1-")), "{files:?}");
    refuses(&mut scratch.run("heatmap", &[&args[..], &["two"]].concat()), 2, &["map-", "never overwritten"]);
}

#[test]
fn a_grid_writes_the_matrix_of_every_head_as_one_head_by_itself() {
    let scratch = Scratch::new();
    let heatmap = |args: &[&str]| {
        scratch
            .stdout("heatmap", &[&["--ctx", "256", "--full", "--model", "./diff", "--query", "200.."], args].concat());
    };
    for file in ["all.npz", "all.npy", "all.csv"] {
        heatmap(&["--grid", "--data", file, "--out", &file.replace("all.", "grid-")]);
    }
    let packed = NpzTensors::new(scratch.path("all.npz")).unwrap();
    assert_eq!(packed.names().len(), 5, "of four heads, and the tokens");
    let tokens = packed.get("diff-tokens").unwrap().unwrap().to_vec2::<u8>().unwrap();
    let text: Vec<u8> = tokens.into_iter().flatten().filter(|&byte| byte != 0).collect();
    assert!(String::from_utf8(text).unwrap().contains("magic"), "the whole prompt");
    for (layer, head) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let one = format!("one-{layer}-{head}.npy");
        heatmap(&["--layer", &layer.to_string(), "--head", &head.to_string(), "--data", &one, "--out", &one[..7]]);
        let numbers = |tensor: Tensor| tensor.to_vec2::<f32>().unwrap();
        let one = numbers(Tensor::read_npy(scratch.path(&one)).unwrap());
        let name = format!("diff-layer{layer}-head{head}-effective");
        assert_eq!(numbers(packed.get(&name).unwrap().unwrap()), one);
        assert_eq!(numbers(Tensor::read_npy(scratch.path(format!("all-{name}.npy"))).unwrap()), one);
        assert_eq!(scratch.read(format!("all-{name}.csv")).lines().count(), one.len() + 1);
    }
}

#[test]
fn a_zoomed_text_can_be_drawn_token_by_token() {
    let scratch = Scratch::new();
    scratch.write("text.txt", "The river is wide here, and a boat goes by.");
    let span = ["--query", "2..8", "--key", "0..8"];
    let args = ["--text", "text.txt", "--ctx", "1k", "--out", "run", "--data", "map.csv", "--model", "./diff"];
    scratch.stdout("heatmap", &[&args[..], &span].concat());
    let csv = scratch.read("map.csv");
    assert!(csv.starts_with("query,0,1,2,3,4,5,6,7\n2,"), "{csv}");
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let scratch = Scratch::new();
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
    let scratch = Scratch(common::Scratch::new());
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
    let scratch = Scratch::new();
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
    let scratch = Scratch::new();
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
    let scratch = Scratch::new();
    for (command, args, file) in [
        ("heatmap", ["--ctx", "128", "--map", "all", "--key", "5..80", "--condition", "silence(noise)"], "heatmap.png"),
        ("explore", ["--ctx", "128", "--depth", "25", "--seed", "7", "--condition", "ablate(0.1)"], "explore.html"),
    ] {
        let (first, again) = (format!("{command}-1"), format!("{command}-2"));
        let printed = scratch.stdout(command, &[&args[..], &["-q", "--out", &first]].concat());
        let experiment = format!("{first}/experiment.toml");
        let repeated = scratch.difftool("run", &[&experiment, "-q", "--out", &again]).output().unwrap();
        assert_eq!(String::from_utf8(repeated.stdout).unwrap(), printed);
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
    let scratch = Scratch::new();
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

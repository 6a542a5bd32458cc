//! `difftool compare --replicates` from outside: models that differ by their training seed.

use super::compare::{number, row, Run, Scratch, RUN};
use crate::common::{printed, refuses, refuses_outright};
use difftool::results::record::Record;

/// Two recipes with three and four seeds. The seeds of `diff` have shares that are 0.02 to 0.06 larger.
const MODELS: [(&str, f64); 7] = [
    ("runs/a/transformer/seed-1", 0.0),
    ("runs/a/transformer/seed-2", 0.1),
    ("runs/a/transformer/seed-3", 0.2),
    ("runs/a/diff/seed-1", 0.02),
    ("runs/a/diff/seed-2", 0.14),
    ("runs/a/diff/seed-3", 0.26),
    ("runs/a/diff/seed-4", 0.9),
];

fn records(models: &[(&'static str, f64)]) -> Vec<Record> {
    models.iter().flat_map(|&(model, shift)| Run { model, shift, ..RUN }.records()).collect()
}

fn scratch() -> Scratch {
    let scratch = Scratch::new();
    scratch.folder("run", &records(&MODELS), &RUN.manifest());
    scratch.folder("two", &records(&MODELS[1..5]), &RUN.manifest());
    scratch.folder("mixed", &records(&[MODELS[0], ("diff", 0.0)]), &RUN.manifest());
    scratch
}

#[test]
fn recipes_are_compared_seed_by_seed_and_the_interval_is_over_seeds() {
    let scratch = scratch();
    let json = scratch.json("run --replicates");
    let share = row(&json, "share_abs");
    assert_eq!((&share["baseline"], &share["other"]), (&"transformer".into(), &"diff".into()));
    assert_eq!((&share["seeds"], &share["n"], &share["cases"]), (&3.into(), &30.into(), &180.into()));
    assert!((number(&share["diff"]) - 0.04).abs() < 1e-9 && (number(&share["mean_baseline"]) - 0.445).abs() < 1e-9);
    // All prompts of a seed differ alike: Student's interval of 0.02, 0.04, 0.06, whose t is 4.302653.
    let half = 4.302_653 * 0.02 / 3.0_f64.sqrt();
    assert!((number(&share["hi"]) - 0.04 - half).abs() < 1e-6, "{share}");
    assert_eq!((&share["test"], &share["wins"], &share["losses"]), (&"t".into(), &3.into(), &0.into()));
    let said = scratch.stderr("run --replicates");
    assert!(
        said.contains("intervals rest on 3 training seeds and their prompts; if some seeds learn and others do not"),
        "{said}"
    );
    assert!(said.contains("120 records of diff without a partner"), "{said}");
    assert!(json["pairings"][0]["only_other"]["cases"][0].as_str().unwrap().contains("replicate=4"), "{json}");
    let table = scratch.stdout("run --replicates");
    assert!(table.starts_with("Change from transformer: 3 training seeds, 30 prompts"), "{table}");
}

#[test]
fn two_seeds_are_shown_and_say_nothing_of_others() {
    let scratch = scratch();
    let json = scratch.json("two --replicates --where replicate=2 --where replicate=3 --baseline transformer");
    let share = row(&json, "share_abs");
    assert_eq!(
        (&share["seeds"], &share["lo"], &share["p"]),
        (&1.into(), &serde_json::Value::Null, &serde_json::Value::Null)
    );
    assert!((number(&share["diff"]) - 0.04).abs() < 1e-9);
    let said = scratch.stderr("run --replicates --where replicate=1 --where replicate=2");
    assert!(said.contains("2 training seeds") && said.contains("say nothing of other seeds"), "{said}");
    refuses_outright(
        &mut scratch.compare("run -q --replicates --where replicate=1 --fail-if share_abs.lo<0"),
        2,
        &["share_abs[answer] has no interval, as training seeds are 1"],
    );
}

#[test]
fn recipes_are_named_by_the_end_of_their_folders_and_compared_with_any_of_them() {
    let scratch = scratch();
    let json = scratch.json("run --replicates --baseline diff");
    assert_eq!(row(&json, "accuracy")["other"], "transformer");
    let other = "run --replicates=/seed-* --where model=diff --where model=a/transformer --where ctx_tok=512";
    assert_eq!(row(&scratch.json(other), "accuracy")["n"], 15);
    let by = scratch.json("run --replicates --by ctx_tok --allow-different-prompts");
    assert_eq!(
        (&row(&by, "accuracy")["seeds"], &row(&by, "accuracy")["group"]["model"]),
        (&4.into(), &"runs/a/diff".into())
    );
}

#[test]
fn tables_and_comparisons_have_short_names_of_models() {
    let scratch = scratch();
    let text = |run: &str| printed(&mut scratch.command(["report", "--format", "markdown", run]));
    let (all, mixed) = (text("run"), text("mixed"));
    assert!(all.contains("| diff/seed-1 |") && all.contains(" - transformer/seed-1"), "{all}");
    assert!(!all.contains("runs/a/") && !mixed.contains("runs/a/"), "{all}{mixed}");
    let json = scratch.json("run --by model --group-by ctx_tok");
    assert_eq!(row(&json, "accuracy")["baseline"], "transformer/seed-1");
}

#[test]
fn what_is_no_replicate_is_named_with_what_to_do() {
    let scratch = scratch();
    let no_seed = ["model diff has no training seed (`/seed-*`)", "leave the model out"];
    refuses_outright(&mut scratch.compare("mixed --replicates"), 2, &no_seed);
    refuses(&mut scratch.compare("run --replicates=seed"), 2, &["is not a pattern of a seed"]);
    refuses_outright(
        &mut scratch.compare("run --replicates --baseline gated"),
        2,
        &["--baseline gated", "runs/a/diff"],
    );
    refuses_outright(&mut scratch.compare("run --by model --group-by replicate"), 2, &["no replicates unless"]);
    refuses_outright(
        &mut scratch.compare("run --replicates --by replicate"),
        2,
        &["--by replicate: records can be compared by"],
    );
}

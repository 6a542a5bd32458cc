//! The page about Python does what it says, where Python with pandas, polars and numpy is present.

use assert_cmd::Command;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// The commands in the first block of the page, as they are run here: fewer prompts.
const COMMANDS: [&str; 3] = [
    "ratio --ctx 256 --samples 2 --needles 1 --out runs/ratio -q",
    "heatmap --ctx 256 --grid --full --data maps.npz --model diff --out runs/heatmap -q",
    "explore --ctx 256 --out runs/explore -q",
];

/// The code of all blocks of one language.
fn blocks(page: &str, language: &str) -> String {
    let fence = format!("```{language}\n");
    page.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect()
}

#[test]
fn the_page_about_python_runs_as_it_stands() {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let libraries =
        std::process::Command::new(&python).args(["-c", "import matplotlib, numpy, pandas, polars"]).output();
    if !libraries.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: {python} with matplotlib, numpy, pandas and polars is not here (PYTHON names another)");
        return;
    }
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/python.md")).unwrap();
    let dir = TempDir::new().unwrap();
    for command in COMMANDS {
        Command::cargo_bin("difftool").unwrap().current_dir(&dir).args(command.split(' ')).assert().success();
    }
    fs::write(dir.path().join("page.py"), blocks(&page, "python")).unwrap();
    let run =
        std::process::Command::new(&python).arg("page.py").env("MPLBACKEND", "Agg").current_dir(&dir).output().unwrap();
    let (out, error) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{error}");
    assert!(!error.contains("Warning"), "{error}");
    assert!(out.contains("1 - λ: True"), "{out}");
    assert!(dir.path().join("maps.png").is_file());
}

#[test]
fn the_page_about_python_names_the_commands_that_are_tested() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/python.md")).unwrap();
    let said: Vec<String> = blocks(&page, "sh").lines().map(str::to_owned).collect();
    assert_eq!(said.len(), COMMANDS.len());
    for (said, run) in said.iter().zip(COMMANDS) {
        let name = run.split(' ').next().unwrap();
        assert!(
            said.starts_with(&format!("difftool {name} ")) && said.ends_with(&format!("--out runs/{name}")),
            "{said}"
        );
    }
}

#[test]
fn the_page_about_python_names_what_an_explorer_holds() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/python.md")).unwrap();
    let dir = TempDir::new().unwrap();
    Command::cargo_bin("difftool").unwrap().current_dir(&dir).args(COMMANDS[2].split(' ')).assert().success();
    let explorer = fs::read_to_string(dir.path().join("runs/explore/explore.html")).unwrap();
    let json = explorer.split(r#"id="contents">"#).nth(1).unwrap().split("</script>").next().unwrap();
    let model = &serde_json::from_str::<serde_json::Value>(json).unwrap()["models"][0];
    let named: Vec<&str> =
        page.split(r#"page["models"][0][""#).skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(!named.is_empty());
    for name in named {
        assert!(!model[name].is_null(), "{name}");
    }
    for part in page.split(r#".T[["#).nth(1).unwrap().split("]]").next().unwrap().split(", ") {
        assert!(model["numbers"]["0.0"][part.trim_matches('"')].is_number(), "{part}");
    }
}

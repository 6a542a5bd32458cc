//! The module and the page about it do what they say, where Python with pandas, numpy and matplotlib is present.

use crate::common::Scratch;
use std::fs;
use std::path::Path;
use std::process::Output;

/// The code of all blocks of one language.
fn blocks(page: &str, language: &str) -> String {
    let fence = format!("```{language}\n");
    page.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect()
}

/// Runs Python code with the module of this repository and the binary; `None` where Python lacks one of `libraries`.
fn python(code: &str, libraries: &str, dir: &Scratch) -> Option<Output> {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let there = std::process::Command::new(&python).args(["-c", &format!("import {libraries}")]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: {python} with {libraries} is not here (PYTHON names another)");
        return None;
    }
    let binary = assert_cmd::cargo::cargo_bin("difftool");
    let path = std::env::var("PATH").unwrap_or_default();
    dir.write("page.py", code);
    let mut command = std::process::Command::new(&python);
    command.arg("page.py").current_dir(dir.folder()).env("MPLBACKEND", "Agg").env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("PYTHONPATH", Path::new(env!("CARGO_MANIFEST_DIR")).join("python"));
    command.env("PATH", format!("{}:{path}", binary.parent().unwrap().display()));
    Some(command.output().unwrap())
}

#[test]
fn the_page_about_python_runs_as_it_stands() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/python.md")).unwrap();
    // Fewer tokens and prompts.
    let code = blocks(&page, "python").replace("ctx=\"1k\"", "ctx=256").replace("ctx=512", "ctx=256");
    let dir = Scratch::new();
    let Some(run) = python(&code, "matplotlib, numpy, pandas", &dir) else { return };
    let out = String::from_utf8_lossy(&run.stdout);
    let error = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success() && !error.contains("Warning"), "{error}");
    assert!(out.contains("1 - λ: True") && out.contains("N  R  accuracy"), "{out}");
    assert!(dir.exists("maps.png"));
}

#[test]
fn the_module_returns_numbers_without_libraries_and_raises_what_difftool_says() {
    let code = r#"
import difftool, os
difftool.find_spec = lambda name: None
run = difftool.run("needle", ctx=256, samples=1, model=["transformer", "diff"], out="kept", needles=2)
assert "accuracy" in repr(run) and "accuracy" in run.figures and run._repr_html_() is None
assert {row["metric"] for row in run.results} >= {"accuracy", "share_out"}, run.results[0]
assert [row["model"] for row in difftool.Run("kept").tables["answers"]] == ["transformer", "diff"]
assert run.tables["answers"][0]["accuracy_lo"] <= run.tables["answers"][0]["accuracy"]
assert difftool.run("heatmap", ctx=256, model="diff")._repr_png_()[1:4] == b"PNG"
difftool.run("heatmap", ctx=256, model="diff", out="runs/map")
assert os.path.getsize("runs/map.npz") > 1000 and difftool.Run("runs/map")._data == "runs/map.npz"
assert difftool.run("explore", ctx=256, model="diff")._repr_html_().startswith("<iframe")
assert [row["other"] for row in difftool.compare("kept", by="model", metric="accuracy")] == ["diff"]
assert difftool.compare(run, by="model", group_by="needles", metric="accuracy")[0]["needles"] == "2"
assert difftool.inspect("diff")["layers"] == 4
try:
    difftool.run("needle", model="nope")
except difftool.Error as error:
    assert "nope" in str(error)
    print("done")
"#;
    let dir = Scratch::new();
    let Some(run) = python(code, "json", &dir) else { return };
    assert_eq!(String::from_utf8_lossy(&run.stdout), "done\n", "{}", String::from_utf8_lossy(&run.stderr));
}

#[test]
fn the_page_about_python_names_what_an_explorer_holds() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/python.md")).unwrap();
    let dir = Scratch::new();
    dir.stdout("explore --ctx 256 --out runs/explore -q");
    let explorer = dir.read("runs/explore/explore.html");
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

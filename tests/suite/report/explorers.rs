//! Pages within reports: explorers, and texts whose parts can be taken out.

use super::*;

/// Explores a tiny model into a folder of a scratch.
fn explore(scratch: &Scratch, folder: &str) {
    tiny_model(&scratch.path("tiny"), "diff");
    let mut command = scratch.command("");
    command.args(["explore", "--model", "./tiny", "--ctx", "256", "-q"]);
    command.args(["--out", folder]).assert().success();
}

/// The policy of a page.
fn policy(page: &str) -> &str {
    page.split(" content=\"default-src").nth(1).unwrap().split('"').next().unwrap()
}

#[test]
fn explorers_are_in_the_report_and_its_policy_lets_nothing_but_them_in() {
    let scratch = Scratch::new(&Fixture::needle());
    explore(&scratch, "maps");
    let page = scratch.stdout(&["run", "maps"]);
    let explorer = scratch.read("maps/explore.html");
    let held =
        page.split("<script type=\"text/plain\" id=\"page-2-explorer\">").nth(1).unwrap().split('<').next().unwrap();
    assert_eq!(inflated(held), explorer);
    assert!(held.len() < explorer.len() * 11 / 10, "{} for {}", held.len(), explorer.len());
    assert!(
        page.contains("href=\"#run-2-explorer\"")
            && !page.contains("<iframe")
            && !page.contains("id=\"page-1-explorer\"")
    );
    let hashes = |policy: &str| -> Vec<String> {
        policy.split('\'').filter(|part| part.starts_with("sha256-")).map(str::to_owned).collect()
    };
    let (outer, inner) = (hashes(policy(&page)), hashes(policy(&explorer)));
    assert!(
        outer.len() == 4 && inner.len() == 2 && inner.iter().all(|hash| outer.contains(hash)),
        "{outer:?} {inner:?}"
    );
    assert!(!policy(&page).contains("unsafe") && policy(&page).starts_with(" 'none'; img-src data:; style-src "));
}

#[test]
fn a_text_whose_parts_can_be_taken_out_is_in_the_report() {
    let scratch = Scratch::new(&Fixture::needle());
    scratch.0.stdout(["context", "--out", "text", "--quiet"]);
    let page = scratch.stdout(&["text"]);
    let held = page.split("<script type=\"text/plain\" id=\"page-1-text\">").nth(1).unwrap().split('<').next().unwrap();
    assert_eq!(inflated(held), scratch.0.read("text/context.html"));
    assert!(page.contains("Take parts of the text out"));
}

fn inflated(held: &str) -> String {
    let (deflated, mut text) = (STANDARD.decode(held).unwrap(), String::new());
    flate2::read::DeflateDecoder::new(deflated.as_slice()).read_to_string(&mut text).unwrap();
    text
}

#[test]
fn of_a_page_that_somebody_changed_only_the_data_are_in_the_report() {
    let scratch = Scratch::new(&Fixture::needle());
    explore(&scratch, "maps");
    let path = scratch.path("maps/explore.html");
    let explorer = fs::read_to_string(&path).unwrap();
    for (place, forged) in [
        ("<meta name=\"viewport\"", "<link rel=\"preconnect\" href=\"http://127.0.0.1:9\"><meta name=\"viewport\""),
        (
            "<meta name=\"viewport\"",
            "<meta http-equiv=\"refresh\" content=\"0;url=http://127.0.0.1:9\"><meta name=\"viewport\"",
        ),
        ("<meta http-equiv=\"Content-Security-Policy\"", "<meta name=\"no-policy\""),
        ("<title>", "<base href=\"http://127.0.0.1:9/\"><title>"),
        ("<main>", "<main><img src=\"http://127.0.0.1:9/\"><iframe src=\"http://127.0.0.1:9/\"></iframe>"),
        ("<main>", "<main><script>new RTCPeerConnection()</script>"),
        ("</body>", "<script type=\"module\" src=\"http://127.0.0.1:9/\"></script></body>"),
        ("</body>", "<script type=\"text/plain\" id=\"x\">&#127;.0.0.1:9</script></body>"),
        ("</body>", "<script type=\"application/json\" id=\"x\" src=\"http://127.0.0.1:9/\">1</script></body>"),
    ] {
        assert!(explorer.contains(place), "{place}");
        fs::write(&path, explorer.replacen(place, forged, 1)).unwrap();
        let output = OutputFile::describe(&scratch.path("maps"), "explore.html", None).unwrap();
        edit_manifest(&scratch, "maps", |manifest| {
            let outputs = manifest["outputs"].as_array_mut().unwrap();
            outputs.retain(|output| output["file"] != "explore.html");
            outputs.push(json!(output));
        });
        let page = scratch.stdout(&["maps"]);
        match page.split("<script type=\"text/plain\" id=\"page-1-explorer\">").nth(1) {
            Some(held) => assert_eq!(inflated(held.split('<').next().unwrap()), explorer, "{forged}"),
            None => assert!(!page.contains("127.0.0.1"), "{forged}"),
        }
    }
}

#[test]
fn a_page_that_this_build_did_not_write_is_not_in_the_report() {
    let scratch = Scratch::new(&Fixture::needle());
    scratch.write("run/explore.html", "<script>alert(1)</script>");
    let output = OutputFile::describe(&scratch.path("run"), "explore.html", None).unwrap();
    edit(&scratch, |manifest| manifest["outputs"].as_array_mut().unwrap().push(json!(output)));
    assert_eq!(scratch.stdout(&["run"]).matches("<script").count(), 1, "only ours");
    scratch.write("run/explore.html", "<script>alert(2)</script>");
    scratch.refuses(&["run"], 1, &["run/explore.html is not the file that"]);
}

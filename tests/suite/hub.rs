//! Models from the Hub, against a small server of our own that answers as the Hub does.

use crate::common::vocab_and_merges;
use base::error::exit_code;
use base::hash::sha256;
use engine::model::hub::Hub;
use serde_json::{json, Value};
use sha1::{Digest, Sha1};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use text::{SpecialTokens, Tokenizer, TokenizerOptions};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const OTHER: &str = "fedcba9876543210fedcba9876543210fedcba98";

/// How the server departs from serving its files.
#[derive(Clone, Copy, Default)]
struct Manners {
    /// A file that breaks off in the middle.
    breaking: &'static str,
    /// The status of every answer.
    refuse: Option<u16>,
    /// Weights lie elsewhere: on another host, port or under another scheme.
    redirects: Option<&'static str>,
    /// A file whose bytes differ from its hash.
    changed: &'static str,
}

type Files = BTreeMap<String, Vec<u8>>;

/// A Hub with one model: `org/name`, with the branch `main` and the commit [`OTHER`].
struct Server {
    port: u16,
    manners: Arc<Mutex<Manners>>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(files: &[(&str, &[u8])]) -> Self {
        let files: Files = files.iter().map(|(file, bytes)| ((*file).to_owned(), bytes.to_vec())).collect();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (manners, log) = (Arc::<Mutex<Manners>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (mine, lines) = (manners.clone(), log.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let manners = *mine.lock().unwrap();
                // A client that hangs up is no failure of the server.
                let _ = answer(stream.unwrap(), port, &files, manners, &lines);
            }
        });
        Self { port, manners, log }
    }

    fn hub(&self, cache: &TempDir) -> Hub {
        Hub {
            endpoint: format!("http://127.0.0.1:{}", self.port),
            cache: cache.path().to_owned(),
            offline: false,
            token: None,
        }
    }

    fn set(&self, manners: Manners) {
        *self.manners.lock().unwrap() = manners;
    }

    /// The requests since the last call: host, path and token.
    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock().unwrap())
    }
}

/// One request and its answer; the connection is closed behind it.
fn answer(
    mut stream: TcpStream,
    port: u16,
    files: &Files,
    manners: Manners,
    log: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().unwrap()?;
    let path = request.split(' ').nth(1).unwrap();
    let headers = lines.map_while(Result::ok).take_while(|line| !line.is_empty());
    let headers: BTreeMap<String, String> = headers
        .map(|line| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned())).unwrap())
        .collect();
    let is_storage = headers["host"].starts_with("localhost") || path.starts_with("/storage");
    let token = headers.get("authorization").map(|token| format!(" {token}")).unwrap_or_default();
    log.lock().unwrap().push(format!("{}{path}{token}", if is_storage { "storage" } else { "" }));
    let revision = path.split('/').nth(if path.starts_with("/api") { 6 } else { 4 }).unwrap_or_default();
    let commit = match revision {
        "main" | "refs%2Fpr%2F1" | COMMIT => format!("X-Repo-Commit: {COMMIT}\r\n"),
        OTHER => format!("X-Repo-Commit: {OTHER}\r\n"),
        _ => String::new(),
    };
    let mut say = |status: &str, len: usize, body: &[u8]| {
        let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\n{commit}Content-Length: {len}\r\n\r\n");
        stream.write_all(&[head.as_bytes(), body].concat())
    };
    if let Some(status) = manners.refuse {
        return say(&format!("{status} No"), 0, b"");
    }
    if commit.is_empty() && !is_storage {
        return say("404 Not Found", 0, b"");
    }
    if path.starts_with("/api/models/org/name/revision/") {
        let listed: Vec<Value> = files.keys().map(|name| json!({"rfilename": name})).collect();
        let body = json!({"siblings": listed}).to_string();
        return say("200 OK", body.len(), body.as_bytes());
    }
    let file = path.trim_start_matches("/storage").splitn(6, '/').last().unwrap();
    let Some(bytes) = files.get(file) else { return say("404 Not Found", 0, b"") };
    let large = [".safetensors", ".gguf"].iter().any(|end| file.ends_with(end));
    let etag = if large { sha256(bytes) } else { git_hash(bytes) };
    if let Some(place) = manners.redirects.filter(|_| !is_storage && large) {
        let place = place.replace("PORT", &port.to_string());
        return say(&format!("302 Found\r\nX-Linked-Etag: \"{etag}\"\r\nLocation: {place}{path}"), 0, b"");
    }
    let mut bytes = bytes.clone();
    if manners.changed == file {
        bytes[0] ^= 1;
    }
    let sent = if manners.breaking == file { bytes.len() / 2 } else { bytes.len() };
    say(&format!("200 OK\r\nETag: \"{etag}\""), bytes.len(), &bytes[..sent])
}

fn git_hash(bytes: &[u8]) -> String {
    let hash = Sha1::new().chain_update(format!("blob {}\0", bytes.len())).chain_update(bytes).finalize();
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

const WEIGHTS: &[u8] = &[7; 100_000];
const MODEL: [(&str, &[u8]); 4] = [
    ("config.json", b"{\"model_type\": \"llama\"}"),
    ("tokenizer.json", b"{}"),
    ("tokenizer_config.json", b"{\"bos_token\": \"<s>\"}"),
    ("model.safetensors", WEIGHTS),
];

fn cache() -> TempDir {
    TempDir::new().unwrap()
}

fn repo(cache: &TempDir) -> PathBuf {
    cache.path().join("models--org--name")
}

/// The names in a folder, in order; none if there is no such folder.
fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Fails with a message that contains all of `words`.
#[track_caller]
fn refuses(hub: &Hub, spec: &str, code: u8, words: &[&str]) {
    let error = hub.resolve(spec).unwrap_err();
    let message = format!("{error:#}");
    for word in words {
        assert!(message.contains(word), "no {word:?} in: {message}");
    }
    assert_eq!(exit_code(&error), code, "{message}");
}

#[test]
fn a_model_is_downloaded_once_into_the_cache_of_the_python_library() {
    let (server, cache) = (Server::new(&MODEL), cache());
    let hub = server.hub(&cache);
    let folder = hub.resolve("hf:org/name").unwrap();
    assert_eq!(folder, repo(&cache).join("snapshots").join(COMMIT));
    assert_eq!(names(&folder), ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]);
    for (file, bytes) in MODEL {
        assert!(fs::read(folder.join(file)).unwrap() == bytes, "{file}");
    }
    #[cfg(unix)]
    assert!(fs::read_link(folder.join("model.safetensors")).unwrap().starts_with("../../blobs"));
    assert_eq!(names(&repo(&cache)), [".no_exist", "blobs", "refs", "snapshots"]);
    assert!(names(&repo(&cache).join("blobs")).iter().all(|name| [40, 64].contains(&name.len())));
    assert_eq!(fs::read_to_string(repo(&cache).join("refs/main")).unwrap(), COMMIT);
    let lacking = ["added_tokens.json", "chat_template.jinja", "generation_config.json", "special_tokens_map.json"];
    assert_eq!(names(&repo(&cache).join(".no_exist").join(COMMIT)), lacking);
    server.requests();
    assert_eq!(hub.resolve("hf:org/name").unwrap(), folder);
    assert_eq!(server.requests(), [""; 0]);
    let offline = Hub { offline: true, ..hub };
    assert_eq!(offline.resolve(&format!("hf:org/name@{COMMIT}")).unwrap(), folder);
    fs::remove_file(folder.join("model.safetensors")).unwrap();
    refuses(&offline, "hf:org/name", 1, &["lacks model.safetensors", "HF_HUB_OFFLINE"]);
    #[cfg(unix)]
    {
        // A pipe blocks whoever reads it.
        let main = repo(&cache).join("refs/main");
        fs::remove_file(&main).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&main).status().unwrap().success());
        refuses(&offline, "hf:org/name", 1, &["lacks model.safetensors", "HF_HUB_OFFLINE"]);
    }
}

#[test]
fn a_snapshot_that_python_left_is_used_and_completed_where_that_is_possible() {
    let (server, cache) = (Server::new(&MODEL), cache());
    let folder = repo(&cache).join("snapshots").join(COMMIT);
    fs::create_dir_all(&folder).unwrap();
    fs::create_dir_all(repo(&cache).join("refs")).unwrap();
    fs::write(repo(&cache).join("refs/main"), COMMIT).unwrap();
    for (file, bytes) in MODEL.iter().filter(|(file, _)| *file != "tokenizer_config.json") {
        fs::write(folder.join(file), bytes).unwrap();
    }
    let hub = server.hub(&cache);
    server.set(Manners { refuse: Some(503), ..Manners::default() });
    assert_eq!(hub.resolve("hf:org/name").unwrap(), folder);
    server.set(Manners::default());
    assert_eq!(hub.resolve("hf:org/name").unwrap(), folder);
    assert_eq!(names(&folder), ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]);
    let answered = server.requests();
    assert!(answered.iter().all(|path| !path.contains("model.safetensors")), "{answered:?}");
}

#[test]
fn refusals_of_the_hub_say_what_to_do() {
    let (server, cache) = (Server::new(&MODEL), cache());
    let hub = server.hub(&cache);
    refuses(&hub, "hf:org/name@v9", 2, &["hf:org/name@v9", "no such model, revision"]);
    for (status, word) in [(401, "HF_TOKEN"), (403, "gated"), (500, "responded 500")] {
        server.set(Manners { refuse: Some(status), ..Manners::default() });
        refuses(&hub, "hf:org/name", 1, &["hf:org/name", word]);
    }
    let nobody = Hub { endpoint: "http://127.0.0.1:1".into(), ..server.hub(&cache) };
    refuses(&nobody, "hf:org/name", 1, &["cannot reach http://127.0.0.1", "HF_HUB_OFFLINE"]);
    for (missing, words) in
        [("config.json", "no config.json and no GGUF file"), ("model.safetensors", "has no model.safetensors")]
    {
        let files: Vec<_> = MODEL.into_iter().filter(|(file, _)| *file != missing).collect();
        refuses(&Server::new(&files).hub(&self::cache()), "hf:org/name", 2, &["hf:org/name", words, COMMIT]);
    }
}

#[test]
fn a_family_that_is_not_supported_is_refused_before_its_weights_arrive() {
    let kimi = br#"{"model_type": "kimi_k2", "quantization_config": {"quant_method": "fp8"}}"#;
    let fp8 = br#"{"model_type": "llama", "quantization_config": {"quant_method": "fp8"}}"#;
    for (config, word) in [(kimi.as_slice(), "\"kimi_k2\" is not supported"), (fp8.as_slice(), "FP8")] {
        let (server, cache) = (Server::new(&[("config.json", config), ("model.safetensors", WEIGHTS)]), cache());
        refuses(&server.hub(&cache), "hf:org/name", 1, &["hf:org/name: ", word]);
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn an_adapter_is_called_by_its_name_and_that_of_its_base() {
    let lora = br#"{"peft_type": "LORA", "base_model_name_or_path": "org/base"}"#;
    let (server, cache) = (Server::new(&[("adapter_config.json", lora), ("adapter_model.safetensors", b"1")]), cache());
    for offline in [false, true] {
        let hub = Hub { offline, ..server.hub(&cache) };
        refuses(&hub, &format!("hf:org/name@{COMMIT}"), 2, &["an adapter (LORA) of org/base", "merge it"]);
    }
}

#[test]
fn what_arrives_is_compared_with_the_hash_that_the_hub_states() {
    for changed in ["config.json", "model.safetensors"] {
        let (server, cache) = (Server::new(&MODEL), cache());
        server.set(Manners { changed, ..Manners::default() });
        refuses(&server.hub(&cache), "hf:org/name", 1, &["hf:org/name", changed, "not what the Hub says", "expected"]);
        server.set(Manners::default());
        assert!(server.hub(&cache).resolve("hf:org/name").is_ok(), "nothing of it was kept");
    }
}

#[test]
fn gguf_files_are_named_and_downloaded_by_name() {
    let files: [(&str, &[u8]); 5] = [
        ("m-Q8_0.gguf", b"GGUF"),
        ("mmproj-F16.gguf", b"projector"),
        ("UD/l-UD-Q4_K_XL-00001-of-00002.gguf", b"1"),
        ("UD/l-UD-Q4_K_XL-00002-of-00002.gguf", b"22"),
        ("config.json", br#"{"model_type": "llama"}"#),
    ];
    let (server, cache) = (Server::new(&files), cache());
    let hub = server.hub(&cache);
    refuses(
        &hub,
        "hf:org/name",
        2,
        &["which of its GGUF files? hf:org/name/UD/l-UD-Q4_K_XL-00001-of-00002.gguf, hf:org/name/m-Q8_0.gguf"],
    );
    refuses(&hub, "hf:org/name:Q2_K", 2, &["which of its GGUF files?"]);
    refuses(&hub, "hf:org/name/../m.gguf", 2, &["is no name on the Hub"]);
    let snapshot = repo(&cache).join("snapshots").join(COMMIT);
    for (spec, file, bytes) in [
        ("hf:org/name/m-Q8_0.gguf", "m-Q8_0.gguf", b"GGUF".as_slice()),
        ("hf:org/name:q8_0", "m-Q8_0.gguf", b"GGUF"),
        ("hf:org/name:Q4_K_XL", "UD/l-UD-Q4_K_XL-00001-of-00002.gguf", b"1"),
    ] {
        assert_eq!(hub.resolve(spec).unwrap(), snapshot.join(file));
        assert_eq!(fs::read(snapshot.join(file)).unwrap(), bytes);
        assert_eq!(Hub { offline: true, ..server.hub(&cache) }.resolve(spec).unwrap(), snapshot.join(file));
    }
    assert_eq!(fs::read(snapshot.join("UD/l-UD-Q4_K_XL-00002-of-00002.gguf")).unwrap(), b"22");
    let one = Server::new(&files[..2]);
    let (cache, name) = (self::cache(), "hf:org/name");
    let file = one.hub(&cache).resolve(name).unwrap();
    assert!(file.ends_with("m-Q8_0.gguf"), "the only one needs no name");
    assert_eq!(Hub { offline: true, ..one.hub(&cache) }.resolve(name).unwrap(), file);
}

#[test]
fn a_download_that_breaks_off_begins_again() {
    let (server, cache) = (Server::new(&MODEL), cache());
    let hub = server.hub(&cache);
    server.set(Manners { breaking: "model.safetensors", ..Manners::default() });
    refuses(&hub, "hf:org/name", 1, &["model.safetensors was interrupted", "run the command again"]);
    assert_eq!(names(&repo(&cache).join("refs")), [""; 0]);
    refuses(&Hub { offline: true, ..server.hub(&cache) }, "hf:org/name", 1, &["lacks", "HF_HUB_OFFLINE"]);
    server.set(Manners::default());
    server.requests();
    let folder = hub.resolve("hf:org/name").unwrap();
    assert!(fs::read(folder.join("model.safetensors")).unwrap() == WEIGHTS);
    assert!(names(&repo(&cache).join("blobs")).iter().all(|name| !name.contains('.')));
    assert_eq!(server.requests()[1], format!("/org/name/resolve/{COMMIT}/model.safetensors"));
}

#[test]
fn shards_come_with_their_index_from_one_folder() {
    let model = |shard: &str| {
        let index = json!({"weight_map": {"a": "model-1.safetensors", "b": shard}}).to_string();
        Server::new(&[
            ("config.json", br#"{"model_type": "llama"}"#),
            ("tokenizer.json", b"{}"),
            ("model.safetensors.index.json", index.as_bytes()),
            ("model-1.safetensors", b"one"),
            ("model-2.safetensors", b"two."),
        ])
    };
    let (server, cache) = (model("model-2.safetensors"), cache());
    let folder = server.hub(&cache).resolve("hf:org/name").unwrap();
    assert_eq!(fs::read(folder.join("model-2.safetensors")).unwrap(), b"two.");
    fs::remove_file(folder.join("model-2.safetensors")).unwrap();
    assert_eq!(server.hub(&cache).resolve("hf:org/name").unwrap(), folder);
    assert_eq!(fs::read(folder.join("model-2.safetensors")).unwrap(), b"two.");
    for outside in ["../../../evil.safetensors", "sub/evil.safetensors", "..\\evil.safetensors"] {
        refuses(&model(outside).hub(&self::cache()), "hf:org/name", 1, &["index.json", "lie beside it"]);
    }
}

/// [`MODEL`] in a folder of the repository.
fn in_folder<'a>(folder: &str, model: &[(&str, &'a [u8])]) -> Vec<(String, &'a [u8])> {
    model.iter().map(|(file, bytes)| (format!("{folder}/{file}"), *bytes)).collect()
}

#[test]
fn a_model_may_be_in_a_folder_of_its_repository() {
    let files =
        [in_folder("diff", &MODEL), in_folder("runs/checkpoint-100", &MODEL), in_folder("runs/checkpoint-20", &MODEL)];
    let files: Vec<(&str, &[u8])> = files.iter().flatten().map(|(file, bytes)| (&**file, *bytes)).collect();
    let (server, cache) = (Server::new(&files), cache());
    let hub = server.hub(&cache);
    let offline = Hub { offline: true, ..server.hub(&cache) };
    let snapshot = repo(&cache).join("snapshots").join(COMMIT);
    for (spec, folder) in [
        ("hf:org/name/diff".to_owned(), "diff"),
        ("hf:org/name@main/runs/checkpoint-100".to_owned(), "runs/checkpoint-100"),
        ("hf:org/name@refs/pr/1/runs/checkpoint-20".to_owned(), "runs/checkpoint-20"),
        (format!("hf:org/name/diff@{COMMIT}"), "diff"),
    ] {
        let folder = snapshot.join(folder);
        assert_eq!(hub.resolve(&spec).unwrap(), folder, "{spec}");
        assert_eq!(names(&folder), ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]);
        assert!(fs::read(folder.join("model.safetensors")).unwrap() == WEIGHTS);
        server.requests();
        assert_eq!(hub.resolve(&spec).unwrap(), folder);
        assert_eq!(server.requests(), [""; 0], "{spec}");
        assert_eq!(offline.resolve(&spec).unwrap(), folder);
    }
    for (spec, words) in [
        (
            "hf:org/name",
            "there is a model in hf:org/name/runs/checkpoint-100, hf:org/name/runs/checkpoint-20, hf:org/name/diff",
        ),
        ("hf:org/name@refs/pr/1/runs", "no config.json and no GGUF file in runs at revision"),
        ("hf:org/name@refs/pr/1/runs", "hf:org/name@refs%2Fpr%2F1/runs/checkpoint-100"),
        ("hf:org/name/nothing", "no config.json and no GGUF file in nothing at revision"),
        ("hf:org/name@other/branch", "write %2F for a slash"),
        ("hf:org/name/diff/a.safetensors", "has no diff/a.safetensors"),
        ("hf:org/name/a.safetensors", "no config.json at revision"),
    ] {
        refuses(&hub, spec, 2, &[spec, words]);
    }
    assert_eq!(
        hub.resolve("hf:org/name@refs%2Fpr%2F1/runs/checkpoint-100").unwrap(),
        snapshot.join("runs/checkpoint-100")
    );
    refuses(&offline, "hf:org/name", 1, &["lacks", "config.json", "HF_HUB_OFFLINE"]);
}

#[test]
fn weights_of_another_name_are_found_or_named() {
    let with = |weights: &[&'static str]| {
        let mut files = MODEL[..3].to_vec();
        files.extend(weights.iter().map(|&name| (name, WEIGHTS)));
        Server::new(&files)
    };
    for names in [&["weights.safetensors"][..], &["latest.safetensors", "step-9.safetensors"]] {
        let (server, cache) = (with(names), cache());
        let folder = server.hub(&cache).resolve("hf:org/name").unwrap();
        assert!(fs::read(folder.join(names[0])).unwrap() == WEIGHTS);
        server.requests();
        assert_eq!(server.hub(&cache).resolve("hf:org/name").unwrap(), folder);
        assert_eq!(server.requests(), [""; 0]);
        fs::remove_file(folder.join(names[0])).unwrap();
        assert_eq!(server.hub(&cache).resolve("hf:org/name").unwrap(), folder);
        assert!(fs::read(folder.join(names[0])).unwrap() == WEIGHTS);
    }
    let (server, cache) = (with(&["a.safetensors", "b.safetensors"]), cache());
    let hub = server.hub(&cache);
    let both = "which of its files has the weights? Name it as the model: hf:org/name/a.safetensors, hf:org/name/b.safetensors";
    refuses(&hub, "hf:org/name", 2, &[both]);
    let file = hub.resolve("hf:org/name/b.safetensors").unwrap();
    assert_eq!(file, repo(&cache).join("snapshots").join(COMMIT).join("b.safetensors"));
    assert!(fs::read(&file).unwrap() == WEIGHTS);
    let folder = ["b.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"];
    assert_eq!(names(file.parent().unwrap()), folder);
    refuses(&hub, "hf:org/name", 2, &[both]);
    let offline = Hub { offline: true, ..server.hub(&cache) };
    assert_eq!(offline.resolve("hf:org/name/b.safetensors").unwrap(), file);
    refuses(&offline, "hf:org/name", 1, &["lacks model.safetensors"]);
}

type Named = (&'static str, String);

/// The files of every kind of tokenizer, all of which know the same texts, and whether they have the token `<extra>`.
fn tokenizers() -> Vec<(Vec<Named>, bool)> {
    let one_file = ("tokenizer.json", Tokenizer::embedded().json.clone());
    let two_files = vocab_and_merges();
    let config = |class: &str| {
        let token = json!({"content": "<extra>", "special": true, "normalized": false, "lstrip": false, "rstrip": false,
            "single_word": false});
        let config = json!({"tokenizer_class": class, "add_bos_token": true, "bos_token": "<bos>",
            "added_tokens_decoder": {"1024": token}});
        ("tokenizer_config.json", config.to_string())
    };
    let map = json!({"bos_token": "<bos>", "additional_special_tokens": ["<extra>"]});
    let older =
        [("special_tokens_map.json", map.to_string()), ("added_tokens.json", r#"{"<extra>": 1024}"#.to_owned())];
    let template = ("chat_template.jinja", "{{ bos_token }}[{{ messages[0].content }}]".to_owned());
    vec![
        (vec![one_file.clone()], false),
        (vec![one_file.clone(), config("PreTrainedTokenizerFast"), template.clone()], true),
        ([&[one_file.clone()][..], &older].concat(), true),
        ([&two_files[..], &[config("GPT2Tokenizer"), template]].concat(), true),
        ([&two_files[..], &older].concat(), true),
        ([&[one_file], &two_files[..]].concat(), false),
    ]
}

#[test]
fn a_repository_gives_the_token_ids_of_the_same_files_as_a_folder() {
    for (files, has_extra) in tokenizers() {
        let local = cache();
        for (file, text) in &files {
            fs::write(local.path().join(file), text).unwrap();
        }
        let files: Vec<(&str, &[u8])> = files.iter().map(|(file, text)| (*file, text.as_bytes())).collect();
        let has = |file: &str| files.iter().any(|(name, _)| *name == file);
        let label: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
        let (server, cache) = (Server::new(&[&files[..], &[MODEL[0], MODEL[3]]].concat()), cache());
        let remote = server.hub(&cache).resolve("hf:org/name").unwrap();
        for chat in [false, has("chat_template.jinja")] {
            let options = TokenizerOptions { chat, special: SpecialTokens::Parse, ..TokenizerOptions::default() };
            let [local, remote] = [local.path(), &remote].map(|folder| Tokenizer::open(folder, &options).unwrap());
            let text = "The magic number of Paris is 12345.<extra> So they say.";
            let ids = local.encode(text).unwrap().ids;
            assert_eq!(remote.encode(text).unwrap().ids, ids, "{label:?}");
            assert_eq!(ids.contains(&1024), has_extra, "{label:?}");
            assert_eq!(remote.bos().to_string(), local.bos().to_string(), "{label:?}");
            assert_eq!(remote.sha256, local.sha256, "{label:?}");
        }
        let needs_two = server.requests().iter().any(|path| path.ends_with("vocab.json"));
        assert_eq!(needs_two, !has("tokenizer.json"), "{label:?}");
        server.hub(&cache).resolve("hf:org/name").unwrap();
        assert_eq!(server.requests(), [""; 0], "{label:?}");
        assert_eq!(Hub { offline: true, ..server.hub(&cache) }.resolve("hf:org/name").unwrap(), remote, "{label:?}");
    }
}

#[test]
fn a_model_without_tokenizer_is_one_for_token_ids() {
    let (server, cache) = (Server::new(&[MODEL[0], MODEL[3]]), cache());
    let folder = server.hub(&cache).resolve("hf:org/name").unwrap();
    assert_eq!(names(&folder), ["config.json", "model.safetensors"]);
    assert!(!Tokenizer::is_in(&folder));
    let offline = Hub { offline: true, ..server.hub(&cache) };
    assert_eq!(offline.resolve("hf:org/name").unwrap(), folder);
    // As a cache without a tokenizer is that other programs filled.
    fs::remove_dir_all(repo(&cache).join(".no_exist")).unwrap();
    assert_eq!(offline.resolve("hf:org/name").unwrap(), folder);
}

#[test]
fn a_revision_is_a_branch_a_tag_or_a_commit() {
    let (server, cache) = (Server::new(&MODEL), cache());
    let hub = server.hub(&cache);
    let pinned = hub.resolve(&format!("hf:org/name@{OTHER}")).unwrap();
    assert!(pinned.ends_with(OTHER) && names(&repo(&cache).join("refs")).is_empty());
    server.requests();
    let branch = hub.resolve("hf:org/name@refs/pr/1").unwrap();
    assert!(branch.ends_with(COMMIT));
    assert_eq!(fs::read_to_string(repo(&cache).join("refs/refs/pr/1")).unwrap(), COMMIT);
    assert_eq!(server.requests()[0], "/org/name/resolve/refs%2Fpr%2F1/config.json");
}

#[test]
fn redirects_are_followed_and_the_token_stays_with_the_hub() {
    let elsewhere = Server::new(&MODEL);
    let other_port = format!("http://127.0.0.1:{}/storage", elsewhere.port).leak();
    for (place, keeps_token) in [("http://localhost:PORT", false), (other_port, false), ("/storage", true)] {
        let (server, cache) = (Server::new(&MODEL), cache());
        server.set(Manners { redirects: Some(place), ..Manners::default() });
        let hub = Hub { token: Some("secret".into()), ..server.hub(&cache) };
        let folder = hub.resolve("hf:org/name").unwrap();
        assert!(fs::read(folder.join("model.safetensors")).unwrap() == WEIGHTS);
        let requests = [server.requests(), elsewhere.requests()].concat();
        let (storage, own): (Vec<_>, Vec<_>) = requests.iter().partition(|path| path.contains("storage"));
        assert!(storage.len() == 1 && storage[0].contains("/model.safetensors"), "{storage:?}");
        assert_eq!(storage[0].ends_with(" Bearer secret"), keeps_token, "{place}");
        assert!(own.iter().all(|request| request.ends_with(" Bearer secret")), "{own:?}");
    }
}

#[test]
fn the_environment_says_where_the_hub_and_the_cache_are() {
    let home = cache();
    fs::write(home.path().join("token"), "from a file\n").unwrap();
    let own = home.path().display().to_string();
    let hub = |vars: &[(&str, &str)]| {
        let vars: BTreeMap<String, String> = vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Hub::from_vars(|name| vars.get(name).cloned(), Some("/home/me".into())).unwrap()
    };
    let cache = |vars| hub(vars).cache;
    assert_eq!(cache(&[]), Path::new("/home/me/.cache/huggingface/hub"));
    assert_eq!(cache(&[("XDG_CACHE_HOME", "/x")]), Path::new("/x/huggingface/hub"));
    assert_eq!(cache(&[("HF_HOME", "/h"), ("XDG_CACHE_HOME", "/x")]), Path::new("/h/hub"));
    assert_eq!(cache(&[("HF_HOME", "/h"), ("HF_HUB_CACHE", "/c")]), Path::new("/c"));
    assert_eq!(cache(&[("HF_HOME", "/h"), ("HUGGINGFACE_HUB_CACHE", "/old")]), Path::new("/old"));
    assert_eq!(cache(&[("HF_HUB_CACHE", "/new"), ("HUGGINGFACE_HUB_CACHE", "/old")]), Path::new("/new"));
    for (path, expected) in [
        ("~", "/home/me/hub"),
        ("~/c", "/home/me/c/hub"),
        ("~you/c", "~you/c/hub"),
        ("/a/~/c", "/a/~/c/hub"),
        ("$BASE/c", "/base/c/hub"),
        ("${BASE}c$BASE", "/basec/base/hub"),
        ("$BASES/c/${NONE}", "$BASES/c/${NONE}/hub"),
        ("/a$", "/a$/hub"),
        ("/a${", "/a${/hub"),
    ] {
        assert_eq!(hub(&[("HF_HOME", path), ("BASE", "/base")]).cache, Path::new(expected), "{path}");
    }
    for (names, offline) in [
        (&[("TRANSFORMERS_OFFLINE", "1")][..], true),
        (&[("HF_HUB_OFFLINE", "0"), ("TRANSFORMERS_OFFLINE", "1")], false),
        (&[("HF_HUB_OFFLINE", ""), ("TRANSFORMERS_OFFLINE", "yes")], true),
    ] {
        assert_eq!(hub(names).offline, offline, "{names:?}");
    }
    let saved = format!("{own}/token");
    assert_eq!(hub(&[("HUGGING_FACE_HUB_TOKEN", "old")]).token.as_deref(), Some("old"));
    assert_eq!(hub(&[("HF_TOKEN_PATH", &saved)]).token.as_deref(), Some("from a file"));
    assert_eq!(hub(&[("HF_TOKEN", "t"), ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]).token, None);
    assert!(hub(&[]).endpoint.starts_with("https://") && !hub(&[]).offline && hub(&[]).token.is_none());
    let all = hub(&[("HF_ENDPOINT", "http://mirror"), ("HF_HUB_OFFLINE", "true"), ("HF_TOKEN", " t\n")]);
    assert_eq!((all.endpoint.as_str(), all.offline, all.token.as_deref()), ("http://mirror", true, Some("t")));
    assert_eq!(hub(&[("HF_HOME", &own)]).token.as_deref(), Some("from a file"));
    assert!(Hub::from_vars(|_| None, None).is_err());
}

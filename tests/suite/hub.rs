//! Models from the Hub, against a small server of our own that answers as the Hub does.

use difftool::base::error::exit_code;
use difftool::base::hash::sha256;
use difftool::model::hub::Hub;
use serde_json::{json, Value};
use sha1::{Digest, Sha1};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

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
    let lacking = ["chat_template.jinja", "generation_config.json", "special_tokens_map.json"];
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
    for (missing, words) in [
        ("config.json", "no config.json and no GGUF file"),
        ("tokenizer.json", "has no tokenizer.json"),
        ("model.safetensors", "has no model.safetensors"),
    ] {
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
    assert!(hub(&[]).endpoint.starts_with("https://") && !hub(&[]).offline && hub(&[]).token.is_none());
    let all = hub(&[("HF_ENDPOINT", "http://mirror"), ("HF_HUB_OFFLINE", "true"), ("HF_TOKEN", " t\n")]);
    assert_eq!((all.endpoint.as_str(), all.offline, all.token.as_deref()), ("http://mirror", true, Some("t")));
    assert_eq!(hub(&[("HF_HOME", &own)]).token.as_deref(), Some("from a file"));
    assert!(Hub::from_vars(|_| None, None).is_err());
}

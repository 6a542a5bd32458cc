//! Models from the Hub, against a small server of our own that answers as the Hub does.

use difftool::base::error::exit_code;
use difftool::model::hub::Hub;
use serde_json::{json, Value};
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
    /// Weights lie on another host.
    redirects: bool,
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
    let is_storage = headers["host"].starts_with("localhost");
    let token = headers.get("authorization").map(|token| format!(" {token}")).unwrap_or_default();
    log.lock().unwrap().push(format!("{}{path}{token}", if is_storage { "storage" } else { "" }));
    let mut say = |status: &str, len: usize, body: &[u8]| {
        let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len}\r\n\r\n");
        stream.write_all(&[head.as_bytes(), body].concat())
    };
    if let Some(status) = manners.refuse {
        return say(&format!("{status} No"), 0, b"");
    }
    if let Some(revision) = path.strip_prefix("/api/models/org/name/revision/") {
        let commit = match revision.trim_end_matches("?blobs=true") {
            "main" | "refs%2Fpr%2F1" | COMMIT => COMMIT,
            OTHER => OTHER,
            _ => return say("404 Not Found", 0, b""),
        };
        let body = json!({"sha": commit, "siblings": files.iter().map(listed).collect::<Vec<_>>()}).to_string();
        return say("200 OK", body.len(), body.as_bytes());
    }
    let file = path.rsplit('/').next().unwrap();
    if manners.redirects && !is_storage && file.ends_with(".safetensors") {
        return say(&format!("302 Found\r\nLocation: http://localhost:{port}{path}"), 0, b"");
    }
    let bytes = &files[file];
    let sent = if manners.breaking == file { bytes.len() / 2 } else { bytes.len() };
    say("200 OK", bytes.len(), &bytes[..sent])
}

/// A file as the Hub lists it: large ones have another hash.
fn listed((name, bytes): (&String, &Vec<u8>)) -> Value {
    let id = |width: usize| format!("{:0width$x}", name.len() + bytes.len());
    let mut file = json!({"rfilename": name, "size": bytes.len(), "blobId": id(40)});
    if name.ends_with(".safetensors") {
        file["lfs"] = json!({"sha256": id(64), "size": bytes.len(), "pointerSize": 134});
    }
    file
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
    assert!(server.requests().iter().all(|path| path.starts_with("/api") || path.contains("tokenizer_config")));
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
    for missing in ["config.json", "tokenizer.json", "model.safetensors"] {
        let files: Vec<_> = MODEL.into_iter().filter(|(file, _)| *file != missing).collect();
        refuses(&Server::new(&files).hub(&cache), "hf:org/name", 2, &["org/name has no", missing, COMMIT]);
    }
}

#[test]
fn gguf_files_are_named_and_downloaded_by_name() {
    let files: [(&str, &[u8]); 3] =
        [("m-Q8_0.gguf", b"GGUF"), ("l-00001-of-00002.gguf", b"1"), ("l-00002-of-00002.gguf", b"22")];
    let (server, cache) = (Server::new(&files), cache());
    let hub = server.hub(&cache);
    refuses(&hub, "hf:org/name", 2, &["org/name has no config.json", "; it has hf:org/name/m-Q8_0.gguf"]);
    let file = hub.resolve("hf:org/name/m-Q8_0.gguf").unwrap();
    assert_eq!(file, repo(&cache).join("snapshots").join(COMMIT).join("m-Q8_0.gguf"));
    assert_eq!(fs::read(&file).unwrap(), b"GGUF");
    let part = hub.resolve("hf:org/name/l-00001-of-00002.gguf").unwrap();
    assert_eq!(fs::read(part.with_file_name("l-00002-of-00002.gguf")).unwrap(), b"22");
    assert_eq!(Hub { offline: true, ..hub }.resolve("hf:org/name/m-Q8_0.gguf").unwrap(), file);
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
    assert_eq!(server.requests()[1..], [format!("/org/name/resolve/{COMMIT}/model.safetensors")]);
}

#[test]
fn shards_come_with_their_index_from_one_folder() {
    let model = |shard: &str| {
        let index = json!({"weight_map": {"a": "model-1.safetensors", "b": shard}}).to_string();
        Server::new(&[
            ("config.json", b"{}"),
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
    // The other commit has the same contents: nothing is downloaded twice.
    assert_eq!(server.requests(), ["/api/models/org/name/revision/refs%2Fpr%2F1?blobs=true"]);
}

#[test]
fn redirects_are_followed_and_the_token_stays_with_the_hub() {
    let (server, cache) = (Server::new(&MODEL), cache());
    server.set(Manners { redirects: true, ..Manners::default() });
    let hub = Hub { token: Some("secret".into()), ..server.hub(&cache) };
    let folder = hub.resolve("hf:org/name").unwrap();
    assert!(fs::read(folder.join("model.safetensors")).unwrap() == WEIGHTS);
    let requests = server.requests();
    let (storage, own): (Vec<_>, Vec<_>) = requests.iter().partition(|request| request.starts_with("storage"));
    assert!(storage.len() == 1 && storage[0].ends_with("/model.safetensors"), "{storage:?}");
    assert!(own.iter().all(|request| request.ends_with(" Bearer secret")), "{own:?}");
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

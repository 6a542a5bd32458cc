//! Models from the Hub, against a small server of our own that answers as the Hub does.

use difftool::error::exit_code;
use difftool::hub::{Hub, SILENT};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tempfile::TempDir;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const OTHER: &str = "fedcba9876543210fedcba9876543210fedcba98";

/// Bytes of a file of a length that nobody wants.
const ENDLESS: usize = 80 << 20;

/// How the server departs from serving its files.
#[derive(Clone, Default)]
struct Manners {
    /// Files whose bodies break off in the middle, when they are sent from the beginning.
    breaking: Vec<&'static str>,
    /// Files that come with a flipped bit.
    wrong: Vec<&'static str>,
    /// A file that goes on for longer than anybody wants, and whether its length is said nevertheless: that of the real one.
    endless: Option<(&'static str, bool)>,
    /// Ranges are ignored.
    no_ranges: bool,
    /// An answer to everything: status and X-Error-Code.
    refuse: Option<(u16, &'static str)>,
    /// Large files lie in a storage with another name, small ones behind a redirect within the Hub.
    redirects: bool,
}

/// A Hub with one model: `org/name`.
struct Server {
    port: u16,
    manners: Arc<Mutex<Manners>>,
    log: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Revision and file, to bytes.
type Files = BTreeMap<(String, String), Vec<u8>>;

impl Server {
    /// Serves these files as the branch `main` and as [`COMMIT`].
    fn new(files: &[(&str, &[u8])]) -> Self {
        let mut all = Files::new();
        for revision in ["main", COMMIT] {
            all.extend(files.iter().map(|(file, bytes)| ((revision.to_owned(), (*file).to_owned()), bytes.to_vec())));
        }
        Self::with(all)
    }

    fn with(files: Files) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (manners, log) = (Arc::<Mutex<Manners>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let stop = Arc::new(AtomicBool::new(false));
        let (mine, lines, stopped) = (manners.clone(), log.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let manners = mine.lock().unwrap().clone();
                // A client that hangs up is no failure of the server.
                let _ = answer(stream.unwrap(), port, &files, &manners, &lines);
            }
        });
        Self { port, manners, log, stop, thread: Some(thread) }
    }

    fn hub(&self, cache: &Path) -> Hub {
        Hub {
            endpoint: format!("http://127.0.0.1:{}", self.port),
            cache: cache.to_owned(),
            offline: false,
            token: None,
        }
    }

    fn set(&self, manners: Manners) {
        *self.manners.lock().unwrap() = manners;
    }

    /// The requests since the last call: method, path, and the range if there was one.
    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the server up.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        self.thread.take().unwrap().join().unwrap();
    }
}

/// One request and its answer; the connection is closed behind it.
fn answer(
    mut stream: TcpStream,
    port: u16,
    files: &Files,
    manners: &Manners,
    log: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().unwrap()?;
    let [method, path, _] = request.split(' ').collect::<Vec<_>>()[..] else { panic!("{request}") };
    let mut headers = BTreeMap::new();
    for line in lines.map_while(Result::ok).take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(": ").unwrap();
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let extra =
        ["range", "authorization"].map(|name| headers.get(name).map(|value| format!(" {value}")).unwrap_or_default());
    let host = if headers["host"].starts_with("localhost") { "storage " } else { "" };
    log.lock().unwrap().push(format!("{host}{method} {path}{}{}", extra[0], extra[1]));
    let mut say = |head: &str, body: &[u8]| -> std::io::Result<()> {
        stream.write_all(format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n").as_bytes())?;
        if method == "GET" {
            stream.write_all(body)
        } else {
            Ok(())
        }
    };
    if let Some((status, code)) = manners.refuse {
        return say(&format!("{status} No\r\nX-Error-Code: {code}\r\nContent-Length: 0"), b"");
    }
    let (place, rest) = path.split_once("/org/name/resolve/").unwrap_or((path, "main/none"));
    let (revision, file) = rest.split_once('/').unwrap();
    let revision = revision.replace("%2F", "/");
    let Some(bytes) = files.get(&(revision.clone(), file.to_owned())) else {
        let code = if files.keys().any(|(known, _)| *known == revision) { "EntryNotFound" } else { "RevisionNotFound" };
        return say(
            &format!("404 Not Found\r\nX-Error-Code: {code}\r\nX-Repo-Commit: {COMMIT}\r\nContent-Length: 0"),
            b"",
        );
    };
    let commit = if revision == "main" || revision.contains('/') { COMMIT } else { &revision };
    let large = file.ends_with(".safetensors");
    let sha: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let etag = if large { sha } else { sha[..40].to_owned() };
    let about = format!("X-Repo-Commit: {commit}\r\nX-Linked-ETag: \"{etag}\"\r\nX-Linked-Size: {}", bytes.len());
    if manners.redirects && place.is_empty() {
        let (status, to, about) = match large {
            true => (302, format!("http://localhost:{port}/storage{path}"), &*about),
            false => (307, format!("/cached{path}"), "X-Renamed: 1"),
        };
        return say(&format!("{status} Elsewhere\r\nLocation: {to}\r\n{about}\r\nContent-Length: 9"), b"elsewhere");
    }
    if let Some((_, says_length)) = manners.endless.filter(|(endless, _)| *endless == file) {
        let about = if says_length { &about } else { about.rsplit_once("\r\n").unwrap().0 };
        return say(&format!("200 OK\r\n{about}\r\nETag: \"{etag}\""), &vec![b' '; ENDLESS]);
    }
    let start = headers.get("range").filter(|_| !manners.no_ranges);
    let start = start.map(|range| range.trim_start_matches("bytes=").trim_end_matches('-').parse::<usize>().unwrap());
    let mut body = bytes[start.unwrap_or(0)..].to_vec();
    let status = match start {
        Some(start) => format!("206 Part\r\nContent-Range: bytes {start}-{}/{}", bytes.len() - 1, bytes.len()),
        None => "200 OK".to_owned(),
    };
    let head = format!("{status}\r\n{about}\r\nETag: W/\"{etag}\"\r\nContent-Length: {}", body.len());
    if manners.wrong.contains(&file) {
        body[0] ^= 1;
    }
    if manners.breaking.contains(&file) && start.is_none() {
        body.truncate(body.len() / 2);
    }
    say(&head, &body)
}

const CONFIG: &[u8] = br#"{"model_type": "llama"}"#;
const WEIGHTS: &[u8] = &[7; 100_000];
const MODEL: [(&str, &[u8]); 4] = [
    ("config.json", CONFIG),
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
    let error = hub.resolve(spec, SILENT).unwrap_err();
    let message = format!("{error:#}");
    for word in words {
        assert!(message.contains(word), "no {word:?} in: {message}");
    }
    assert_eq!(exit_code(&error), code, "{message}");
}

#[test]
fn a_model_is_downloaded_once_and_then_needs_no_hub() {
    let (server, cache) = (Server::new(&MODEL), cache());
    let hub = server.hub(cache.path());
    let folder = hub.resolve("hf:org/name", SILENT).unwrap();
    assert_eq!(folder, repo(&cache).join("snapshots").join(COMMIT));
    assert_eq!(names(&folder), ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]);
    for (file, bytes) in MODEL {
        assert!(fs::read(folder.join(file)).unwrap() == bytes, "{file}");
    }
    assert_eq!(fs::read_to_string(repo(&cache).join("refs/main")).unwrap(), COMMIT);
    let lacking = ["chat_template.jinja", "generation_config.json", "special_tokens_map.json"];
    assert_eq!(names(&repo(&cache).join(".no_exist").join(COMMIT)), lacking);
    server.requests();
    assert_eq!(hub.resolve("hf:org/name", SILENT).unwrap(), folder);
    assert_eq!(server.requests(), [""; 0]);
    drop(server);
    assert_eq!(hub.resolve("hf:org/name", SILENT).unwrap(), folder);
    assert_eq!(Hub { offline: true, ..hub }.resolve(&format!("hf:org/name@{COMMIT}"), SILENT).unwrap(), folder);
}

#[test]
#[cfg(unix)]
fn the_cache_has_the_layout_of_the_python_library() {
    let (server, cache) = (Server::new(&MODEL), cache());
    let folder = server.hub(cache.path()).resolve("hf:org/name", SILENT).unwrap();
    let link = fs::read_link(folder.join("model.safetensors")).unwrap();
    let sha: String = Sha256::digest(WEIGHTS).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(link, Path::new("../../blobs").join(sha));
    assert_eq!(names(&repo(&cache)), [".no_exist", "blobs", "refs", "snapshots"]);
    assert!(names(&repo(&cache).join("blobs")).iter().all(|name| !name.contains('.')));
}

#[test]
fn a_snapshot_that_python_left_is_used_and_completed_only_where_that_is_possible() {
    let (server, cache) = (Server::new(&MODEL), cache());
    let folder = repo(&cache).join("snapshots").join(COMMIT);
    fs::create_dir_all(&folder).unwrap();
    fs::create_dir_all(repo(&cache).join("refs")).unwrap();
    fs::write(repo(&cache).join("refs/main"), COMMIT).unwrap();
    for (file, bytes) in MODEL.iter().filter(|(file, _)| *file != "tokenizer_config.json") {
        fs::write(folder.join(file), bytes).unwrap();
    }
    let hub = server.hub(cache.path());
    server.set(Manners { refuse: Some((503, "")), ..Manners::default() });
    assert_eq!(hub.resolve("hf:org/name", SILENT).unwrap(), folder);
    server.set(Manners::default());
    assert_eq!(hub.resolve("hf:org/name", SILENT).unwrap(), folder);
    assert_eq!(names(&folder), ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]);
    assert!(server
        .requests()
        .iter()
        .all(|request| !request.starts_with("GET") || request.contains("tokenizer_config")));
}

#[test]
fn offline_the_error_names_what_the_cache_lacks() {
    let (server, cache) = (Server::new(&MODEL), cache());
    let online = server.hub(cache.path());
    let offline = Hub { offline: true, ..server.hub(cache.path()) };
    refuses(
        &offline,
        "hf:org/name",
        1,
        &["hf:org/name", "every file", "HF_HUB_OFFLINE", &cache.path().display().to_string()],
    );
    let folder = online.resolve("hf:org/name", SILENT).unwrap();
    server.requests();
    assert_eq!(offline.resolve("hf:org/name", SILENT).unwrap(), folder);
    for file in ["model.safetensors", "tokenizer.json"] {
        fs::remove_file(folder.join(file)).unwrap();
    }
    refuses(&offline, "hf:org/name", 1, &["lacks tokenizer.json, model.safetensors", "HF_HUB_OFFLINE"]);
    assert_eq!(server.requests(), [""; 0]);
}

#[test]
fn a_model_without_a_file_that_is_needed_is_refused_with_its_name() {
    for missing in ["config.json", "tokenizer.json", "model.safetensors"] {
        let files: Vec<_> = MODEL.into_iter().filter(|(file, _)| *file != missing).collect();
        let (server, cache) = (Server::new(&files), cache());
        refuses(&server.hub(cache.path()), "hf:org/name", 2, &["hf:org/name", missing, "revision"]);
        assert_eq!(names(&repo(&cache).join("snapshots")), [""; 0], "{missing}");
        assert!(server.requests().iter().all(|request| request.starts_with("HEAD")));
    }
}

#[test]
fn the_hubs_refusals_say_what_to_do() {
    let (server, cache) = (Server::new(&MODEL), cache());
    let hub = server.hub(cache.path());
    let refuse = |status, code| server.set(Manners { refuse: Some((status, code)), ..Manners::default() });
    refuse(404, "RepoNotFound");
    refuses(&hub, "hf:org/name", 2, &["no model org/name"]);
    refuse(404, "RevisionNotFound");
    refuses(&hub, "hf:org/name@v9", 2, &["org/name has no revision \"v9\""]);
    refuse(401, "RepoNotFound");
    refuses(&hub, "hf:org/name", 1, &["401", "gated", "HF_TOKEN"]);
    refuse(403, "GatedRepo");
    refuses(
        &Hub { token: Some("secret".into()), ..server.hub(cache.path()) },
        "hf:org/name",
        1,
        &["403", "the token in HF_TOKEN"],
    );
    refuse(500, "");
    refuses(&hub, "hf:org/name", 1, &["responded 500 for config.json"]);
    drop(server);
    refuses(&hub, "hf:org/name", 1, &["cannot reach http://127.0.0.1", "HF_HUB_OFFLINE"]);
    assert_eq!(names(&repo(&cache).join("snapshots")), [""; 0]);
}

#[test]
fn a_download_that_breaks_off_leaves_no_snapshot_and_goes_on_where_it_ended() {
    let (server, cache) = (Server::new(&MODEL), cache());
    let hub = server.hub(cache.path());
    server.set(Manners { breaking: vec!["model.safetensors"], ..Manners::default() });
    refuses(&hub, "hf:org/name", 1, &["model.safetensors", "was interrupted", "run the command again"]);
    assert_eq!(names(&repo(&cache).join("snapshots")), [""; 0]);
    assert_eq!(names(&repo(&cache).join("refs")), [""; 0]);
    let partial: Vec<String> =
        names(&repo(&cache).join("blobs")).into_iter().filter(|name| name.contains('.')).collect();
    assert!(partial.len() == 1 && partial[0].ends_with(".incomplete"), "{partial:?}");
    refuses(&Hub { offline: true, ..server.hub(cache.path()) }, "hf:org/name", 1, &["lacks", "HF_HUB_OFFLINE"]);
    server.requests();
    let folder = hub.resolve("hf:org/name", SILENT).unwrap();
    assert!(fs::read(folder.join("model.safetensors")).unwrap() == WEIGHTS);
    let got: Vec<String> = server.requests().into_iter().filter(|request| request.starts_with("GET")).collect();
    assert_eq!(got, [format!("GET /org/name/resolve/{COMMIT}/model.safetensors bytes=50000-")]);
}

#[test]
fn a_server_without_ranges_sends_everything_again() {
    let (server, cache) = (Server::new(&MODEL), cache());
    let hub = server.hub(cache.path());
    server.set(Manners { breaking: vec!["model.safetensors"], ..Manners::default() });
    refuses(&hub, "hf:org/name", 1, &["was interrupted"]);
    server.set(Manners { no_ranges: true, ..Manners::default() });
    let folder = hub.resolve("hf:org/name", SILENT).unwrap();
    assert!(fs::read(folder.join("model.safetensors")).unwrap() == WEIGHTS);
}

#[test]
fn weights_with_another_hash_are_thrown_away() {
    let (server, cache) = (Server::new(&MODEL), cache());
    let hub = server.hub(cache.path());
    server.set(Manners { wrong: vec!["model.safetensors"], ..Manners::default() });
    refuses(&hub, "hf:org/name", 1, &["model.safetensors does not have the announced length or hash"]);
    assert_eq!(names(&repo(&cache).join("snapshots")), [""; 0]);
    assert!(names(&repo(&cache).join("blobs")).iter().all(|name| !name.contains('.')));
    server.set(Manners::default());
    hub.resolve("hf:org/name", SILENT).unwrap();
}

#[test]
fn a_file_without_a_length_or_longer_than_promised_is_cut_off() {
    for (says_length, most) in [(false, 64 << 20), (true, 2)] {
        let (server, cache) = (Server::new(&MODEL), cache());
        let hub = server.hub(cache.path());
        server.set(Manners { endless: Some(("tokenizer.json", says_length)), ..Manners::default() });
        refuses(
            &hub,
            "hf:org/name",
            1,
            &[&format!("tokenizer.json is longer than the expected maximum of {most} bytes")],
        );
        assert_eq!(names(&repo(&cache).join("snapshots")), [""; 0]);
        let blobs = repo(&cache).join("blobs");
        let taken: u64 = names(&blobs).iter().map(|name| fs::metadata(blobs.join(name)).unwrap().len()).sum();
        assert!(taken <= most + CONFIG.len() as u64 + 100, "{taken} bytes were kept");
        server.set(Manners::default());
        hub.resolve("hf:org/name", SILENT).unwrap();
    }
}

#[test]
fn two_who_ask_at_once_download_once() {
    let (server, cache) = (Server::new(&MODEL), cache());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| server.hub(cache.path()).resolve("hf:org/name", SILENT).unwrap());
        }
    });
    let weights =
        server.requests().into_iter().filter(|request| request.starts_with("GET") && request.contains("safetensors"));
    assert_eq!(weights.count(), 1);
    let folder = server.hub(cache.path()).resolve("hf:org/name", SILENT).unwrap();
    assert!(fs::read(folder.join("model.safetensors")).unwrap() == WEIGHTS);
}

#[test]
fn shards_come_with_their_index() {
    let index = br#"{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}"#;
    let files: [(&str, &[u8]); 5] = [
        ("config.json", CONFIG),
        ("tokenizer.json", b"{}"),
        ("model.safetensors.index.json", index),
        ("model-1.safetensors", b"one"),
        ("model-2.safetensors", b"two"),
    ];
    let (server, cache) = (Server::new(&files), cache());
    let hub = server.hub(cache.path());
    server.set(Manners { breaking: vec!["model-2.safetensors"], ..Manners::default() });
    refuses(&hub, "hf:org/name", 1, &["model-2.safetensors"]);
    assert_eq!(names(&repo(&cache).join("snapshots")), [""; 0]);
    let folder = hub.resolve("hf:org/name", SILENT).unwrap();
    assert_eq!(fs::read(folder.join("model-1.safetensors")).unwrap(), b"one");
    assert_eq!(fs::read(folder.join("model-2.safetensors")).unwrap(), b"two");
    fs::remove_file(folder.join("model-2.safetensors")).unwrap();
    refuses(&Hub { offline: true, ..server.hub(cache.path()) }, "hf:org/name", 1, &["lacks model-2.safetensors,"]);
    assert_eq!(hub.resolve("hf:org/name", SILENT).unwrap(), folder);
    drop(server);
    assert_eq!(hub.resolve("hf:org/name", SILENT).unwrap(), folder);
}

#[test]
fn an_index_that_points_out_of_its_folder_is_refused_before_anything_else_is_downloaded() {
    for shard in ["../../../evil.safetensors", "sub/evil.safetensors", "..\\\\evil.safetensors"] {
        let index = format!(r#"{{"weight_map": {{"w": "{shard}"}}}}"#);
        let files: [(&str, &[u8]); 3] =
            [("config.json", CONFIG), ("tokenizer.json", b"{}"), ("model.safetensors.index.json", index.as_bytes())];
        let (server, cache) = (Server::new(&files), cache());
        refuses(&server.hub(cache.path()), "hf:org/name", 1, &["model.safetensors.index.json", "tensor w", shard]);
        let got: Vec<String> = server.requests().into_iter().filter(|request| request.starts_with("GET")).collect();
        assert_eq!(got.len(), 1, "{got:?}");
        assert!(got[0].contains("index.json"));
        assert_eq!(names(&repo(&cache).join("snapshots")), [""; 0]);
    }
}

#[test]
fn a_revision_is_a_branch_a_tag_or_a_commit() {
    let mut files = Files::new();
    for (revision, config) in [("main", "1"), (COMMIT, "1"), ("refs/pr/1", "1"), (OTHER, "2")] {
        for (file, bytes) in MODEL {
            let bytes = if file == "config.json" { config.as_bytes() } else { bytes };
            files.insert((revision.to_owned(), file.to_owned()), bytes.to_vec());
        }
    }
    let (server, cache) = (Server::with(files), cache());
    let hub = server.hub(cache.path());
    let pinned = hub.resolve(&format!("hf:org/name@{OTHER}"), SILENT).unwrap();
    assert_eq!(fs::read_to_string(pinned.join("config.json")).unwrap(), "2");
    assert!(pinned.ends_with(OTHER) && names(&repo(&cache).join("refs")).is_empty());
    let branch = hub.resolve("hf:org/name@refs/pr/1", SILENT).unwrap();
    assert!(branch.ends_with(COMMIT));
    assert_eq!(fs::read_to_string(repo(&cache).join("refs/refs/pr/1")).unwrap(), COMMIT);
    assert!(server.requests().contains(&"HEAD /org/name/resolve/refs%2Fpr%2F1/config.json".to_owned()));
    // The other branch has the same commit: nothing is downloaded twice.
    assert_eq!(hub.resolve("hf:org/name", SILENT).unwrap(), branch);
    assert_eq!(server.requests(), ["HEAD /org/name/resolve/main/config.json"]);
    refuses(&hub, "hf:org/name@v9", 2, &["no revision \"v9\""]);
}

#[test]
fn redirects_are_followed_and_the_token_stays_with_the_hub() {
    let (server, cache) = (Server::new(&MODEL), cache());
    server.set(Manners { redirects: true, ..Manners::default() });
    let hub = Hub { token: Some("secret".into()), ..server.hub(cache.path()) };
    let folder = hub.resolve("hf:org/name", SILENT).unwrap();
    for (file, bytes) in MODEL {
        assert!(fs::read(folder.join(file)).unwrap() == bytes, "{file}");
    }
    let requests = server.requests();
    let (storage, own): (Vec<_>, Vec<_>) = requests.iter().partition(|request| request.starts_with("storage"));
    assert!(storage.len() == 1 && storage[0].ends_with("/model.safetensors"), "{storage:?}");
    assert!(own.iter().all(|request| request.ends_with(" Bearer secret")), "{own:?}");
}

#[test]
fn a_server_that_is_no_hub_is_told_from_one() {
    let files: Files =
        MODEL.iter().map(|(file, bytes)| (("a".to_owned(), (*file).to_owned()), bytes.to_vec())).collect();
    let (server, cache) = (Server::with(files), cache());
    refuses(&server.hub(cache.path()), "hf:org/name@a", 1, &["lacks X-Repo-Commit", "HF_ENDPOINT"]);
}

#[test]
fn the_environment_says_where_the_hub_and_the_cache_are() {
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
    let all = hub(&[("HF_ENDPOINT", "http://mirror"), ("HF_HUB_OFFLINE", "1"), ("HF_TOKEN", " t\n")]);
    assert_eq!((all.endpoint.as_str(), all.offline, all.token.as_deref()), ("http://mirror", true, Some("t")));
    assert!(hub(&[("HF_HUB_OFFLINE", "true")]).offline && !hub(&[("HF_HUB_OFFLINE", "0")]).offline);
    assert!(Hub::from_vars(|_| None, None).is_err());
}

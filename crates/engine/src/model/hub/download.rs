//! Downloads from the Hub into the cache.
//!
//! The headers of the Hub's answers, or of its redirects to a storage, tell the commit of a revision and the hash of each file,
//! which names its blob and is compared with what arrives.

use super::{gguf_parts, is_commit, is_plain, is_plain_path, Cached, Hub, HubSpec};
use crate::model::checkpoint::shards;
use crate::model::{kinds, ModelConfig};
use anyhow::{anyhow, bail, ensure, Context, Result};
use base::bail_usage;
use base::error::Usage;
use base::files;
use base::hash::{hex, sha256_file};
use base::model_files::{
    weight_candidates, weight_parts, ADAPTER_CONFIG, CONFIG, INDEX_FILE, OPTIONAL, TENSOR_FILE, TOKENIZER,
    TOKENIZER_PARTS,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;
use sha1::{Digest as _, Sha1};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use ureq::http::{Response, Uri};
use ureq::{Agent, Body};

/// Timeout for a connection, for a response and for the next bytes of a file.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Largest number of redirects for one file.
const MOST_REDIRECTS: usize = 10;

/// Largest number of models in folders that are named.
const MOST_NAMED: usize = 5;

const SHA1_DIGITS: usize = 40;
const SHA256_DIGITS: usize = 64;

/// A download of the files of one commit.
struct Download<'a> {
    hub: &'a Hub,
    spec: &'a HubSpec,
    /// Folder of the model in the cache.
    repo: &'a Path,
    agent: Agent,
    /// The revision that is asked for, until the first answer tells its commit.
    commit: String,
}

impl Hub {
    /// Completes what a snapshot has of a model, and returns its folder or the file that is named. All its files belong to one
    /// commit, even if the branch moves meanwhile.
    pub(super) fn download(&self, spec: &HubSpec, repo: &Path, revision: &str) -> Result<PathBuf> {
        let agent = Agent::config_builder()
            .user_agent(concat!("difftool/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(TIMEOUT))
            .timeout_recv_response(Some(TIMEOUT))
            .timeout_per_read(Some(TIMEOUT));
        let agent = agent.build().new_agent();
        let mut download = Download { hub: self, spec, repo, agent, commit: revision.to_owned() };
        let file = download.fetch_model()?;
        let commit = download.commit;
        if !is_commit(&spec.revision) {
            create(&repo.join("refs").join(&spec.revision))?.write_all(commit.as_bytes())?;
        }
        let mut path = Cached::of(spec, repo, &commit).folder;
        path.extend(&file);
        Ok(path)
    }
}

impl Download<'_> {
    /// Downloads a model, and returns the file that is named, or the GGUF file of a model in no other format.
    fn fetch_model(&mut self) -> Result<Option<String>> {
        if !self.spec.is_gguf() && self.fetch_folder()? {
            return Ok(self.spec.file.clone());
        }
        let file = match &self.spec.file {
            Some(file) => file.clone(),
            None => self.choose_gguf()?,
        };
        for part in gguf_parts(&file) {
            self.fetch_needed(&part)?;
        }
        Ok(Some(file))
    }

    /// The GGUF file that is meant.
    fn choose_gguf(&mut self) -> Result<String> {
        let names = self.list()?;
        let ggufs: Vec<String> = names.iter().filter(|name| name.ends_with(".gguf")).cloned().collect();
        if !ggufs.is_empty() {
            return self.spec.choose(&ggufs);
        }
        let adapter = if self.fetch(ADAPTER_CONFIG)? { kinds::adapter(&self.cached().folder) } else { None };
        let why = adapter.unwrap_or_else(|| format!("{}{}", self.no_config(" and no GGUF file"), self.inner(&names)));
        bail_usage!("{}: {why}", self.spec.text)
    }

    /// Names the models in folders of this one, the last first, which of checkpoints are the most trained.
    fn inner(&self, names: &[String]) -> String {
        let end = format!("/{CONFIG}");
        let mut folders: Vec<String> =
            names.iter().filter_map(|name| name.strip_suffix(&end)).map(str::to_owned).collect();
        if folders.is_empty() {
            return String::new();
        }
        folders.sort_by_key(|name| Reverse((name.len(), name.clone())));
        folders.truncate(MOST_NAMED);
        format!("; there is a model in {}", self.spec.names_of(&folders))
    }

    /// Downloads what the folder of a model has, and notes optional files that the commit does not have. Returns `false` if it
    /// has no configuration or no weights but GGUF files.
    fn fetch_folder(&mut self) -> Result<bool> {
        if !self.fetch(CONFIG)? {
            if let Some(file) = &self.spec.file {
                bail_usage!("{}: {} beside {file}", self.spec.text, self.no_config(""));
            }
            return Ok(false);
        }
        // Before gigabytes of weights.
        let config = files::bytes(&self.cached().folder.join(CONFIG), files::CONFIG_MAX)?;
        let config = files::json(&config).context("config.json: not JSON");
        config.and_then(|config| ModelConfig::check_family(&config)).with_context(|| self.spec.text.clone())?;
        if !self.fetch_weights()? {
            return Ok(false);
        }
        if !self.fetch_optional(TOKENIZER)? {
            for file in TOKENIZER_PARTS {
                self.fetch_optional(file)?;
            }
        }
        for file in OPTIONAL {
            self.fetch_optional(file)?;
        }
        Ok(true)
    }

    /// Downloads the weights in safetensors: the file that is named, those of the usual names, or the only one of another name.
    /// `false` if there are none but GGUF files.
    fn fetch_weights(&mut self) -> Result<bool> {
        if let Some(file) = &self.spec.file {
            return self.fetch_needed(file).map(|()| true);
        }
        if self.fetch(TENSOR_FILE)? {
            return Ok(true);
        }
        if self.fetch(INDEX_FILE)? {
            for shard in shards(&self.cached().folder.join(INDEX_FILE))? {
                self.fetch_needed(&shard)?;
            }
            return Ok(true);
        }
        let names = self.list()?;
        match &weight_candidates(&names)[..] {
            [] if names.iter().any(|name| name.ends_with(".gguf")) => return Ok(false),
            [] => match &weight_parts(&names)[..] {
                [] => self.fetch_needed(TENSOR_FILE)?,
                parts => parts.iter().try_for_each(|part| self.fetch_needed(part))?,
            },
            [one] => self.fetch_needed(one)?,
            several => {
                let names = self.spec.names_of(several);
                bail_usage!("{}: which of its files has the weights? Name it as the model: {names}", self.spec.text);
            }
        }
        self.note_absent(TENSOR_FILE)?;
        self.note_absent(INDEX_FILE)?;
        Ok(true)
    }

    /// The files in the cache by now.
    fn cached(&self) -> Cached<'_> {
        Cached::of(self.spec, self.repo, &self.commit)
    }

    /// Says that the folder has no configuration, and what else it lacks.
    fn no_config(&self, and_what: &str) -> String {
        let folder = self.spec.folder.as_ref().map_or_else(String::new, |folder| format!(" in {folder}"));
        format!("no {CONFIG}{and_what}{folder} at revision {}", self.commit)
    }

    /// Downloads a file if it exists, and otherwise notes that it does not.
    fn fetch_optional(&mut self, file: &str) -> Result<bool> {
        let is_there = self.fetch(file)?;
        if !is_there {
            self.note_absent(file)?;
        }
        Ok(is_there)
    }

    /// Notes, as Python does, that the commit does not have a file.
    fn note_absent(&self, file: &str) -> Result<()> {
        create(&self.cached().absent.join(file)).map(drop)
    }

    fn fetch_needed(&mut self, file: &str) -> Result<()> {
        if !self.fetch(file)? {
            let path = self.spec.path_of(file);
            bail_usage!("{}: {} has no {path} at revision {}", self.spec.text, self.spec.repo, self.commit);
        }
        Ok(())
    }

    /// Downloads a file into the snapshot if it is not there. Returns `false` if the commit does not have it.
    fn fetch(&mut self, file: &str) -> Result<bool> {
        if is_commit(&self.commit) && self.cached().has(file) {
            return Ok(true);
        }
        let revision = self.commit.replace('/', "%2F");
        let path = self.spec.path_of(file);
        let (response, said) = self.get(&format!("{}/resolve/{revision}/{path}", self.spec.repo))?;
        if let Some(commit) = said.get("x-repo-commit").filter(|commit| is_commit(commit)) {
            self.commit.clone_from(commit);
        }
        if response.status() == 404 && is_commit(&self.commit) {
            return Ok(false);
        }
        let response = self.checked(response)?;
        let id = said.get("x-linked-etag").or(said.get("etag"));
        let id =
            id.filter(|id| [SHA1_DIGITS, SHA256_DIGITS].contains(&id.len()) && is_plain(id) && is_commit(&self.commit));
        let id = id.with_context(|| format!("{} is not a Hugging Face Hub (HF_ENDPOINT)", self.hub.endpoint))?;
        let blob = self.repo.join("blobs").join(id);
        let lock = create(&self.hub.cache.join(".locks").join(self.spec.cache_folder()).join(format!("{id}.lock")))?;
        // Some file systems lack locks. Concurrent downloads are rare enough to continue without.
        let _ = lock.lock();
        if !blob.is_file() {
            self.receive(&path, response, id, &blob)?;
        }
        self.link(&path, &blob)?;
        Ok(true)
    }

    /// Writes the bytes of a file, and compares them with its hash: SHA-256 of large files, the hash that git has for small ones.
    fn receive(&self, file: &str, mut response: Response<Body>, id: &str, blob: &Path) -> Result<()> {
        let interrupted = format!("{}: the download of {file} was interrupted; run the command again", self.spec.text);
        let partial = blob.with_extension("incomplete");
        let mut to = create(&partial)?;
        let bytes = response.body().content_length();
        let most = most_bytes(file).unwrap_or(u64::MAX);
        let bar = bar(bytes.unwrap_or(0), file);
        let got = io::copy(&mut bar.wrap_read(response.body_mut().as_reader().take(most.saturating_add(1))), &mut to);
        let got = got.with_context(|| interrupted.clone())?;
        if got > most {
            let _ = fs::remove_file(&partial);
            bail!("{}: {file} is longer than {most} bytes, the most that is read of it", self.spec.text);
        }
        ensure!(bytes.is_none_or(|bytes| bytes == got), "{interrupted} ({got} of {} bytes)", bytes.unwrap_or(0));
        let hash = if id.len() == SHA256_DIGITS { sha256_file(&partial)? } else { git_hash(&partial, got)? };
        if hash != id {
            let _ = fs::remove_file(&partial);
            bail!("{}: {file} is not what the Hub says: its hash is {hash}, expected {id}", self.spec.text);
        }
        fs::rename(&partial, blob).with_context(|| cannot_write(blob))
    }

    /// Puts a blob into the snapshot, as the file of this path in the repository.
    fn link(&self, file: &str, blob: &Path) -> Result<()> {
        let link = self.repo.join("snapshots").join(&self.commit).join(file);
        fs::create_dir_all(link.parent().unwrap_or(&link)).with_context(|| cannot_write(&link))?;
        let _ = fs::remove_file(&link); // one that leads nowhere
        #[cfg(unix)]
        {
            let up = "../".repeat(2 + file.matches('/').count());
            let blob = Path::new(&up).join("blobs").join(blob.file_name().unwrap_or_default());
            if std::os::unix::fs::symlink(blob, &link).is_ok() {
                return Ok(());
            }
        }
        // File systems without links get a copy.
        fs::copy(blob, &link).map(drop).with_context(|| cannot_write(&link))
    }

    /// The files of the revision in the folder of the model and in folders in it.
    fn list(&self) -> Result<Vec<String>> {
        let revision = self.commit.replace('/', "%2F");
        let (response, _) = self.get(&format!("api/models/{}/revision/{revision}", self.spec.repo))?;
        let mut response = self.checked(response)?;
        let json: Value = serde_json::from_reader(response.body_mut().as_reader().take(files::CONFIG_MAX))
            .with_context(|| format!("{} is not a Hugging Face Hub (HF_ENDPOINT)", self.hub.endpoint))?;
        let names = json["siblings"].as_array().into_iter().flatten().filter_map(|file| file["rfilename"].as_str());
        let folder = self.spec.path_of("");
        let names = names.filter_map(|name| name.strip_prefix(&*folder)).filter(|name| is_plain_path(name));
        Ok(names.map(str::to_owned).collect())
    }

    /// The answer for a path, after redirects, and what the headers of the Hub said on the way. The token goes to the Hub alone:
    /// to its scheme, host and port.
    fn get(&self, path: &str) -> Result<(Response<Body>, BTreeMap<&'static str, String>)> {
        let endpoint = self.hub.endpoint.trim_end_matches('/');
        let hub = origin(endpoint)?;
        let mut url = format!("{endpoint}/{path}");
        let mut said = BTreeMap::new();
        for _ in 0..MOST_REDIRECTS {
            let is_hub = origin(&url)? == hub;
            // Compressed responses would have another length.
            let mut request = self.agent.get(&url).header("accept-encoding", "identity");
            if let Some(token) = self.hub.token.as_ref().filter(|_| is_hub) {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            let response = request.call().map_err(|error| {
                anyhow!("cannot reach {endpoint} ({error}); set HF_HUB_OFFLINE=1 to use cached models only")
            })?;
            let header = |name: &str| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
            for name in ["x-repo-commit", "x-linked-etag", "etag"].into_iter().filter(|_| is_hub) {
                said.extend(
                    header(name).map(|value| (name, value.trim_start_matches("W/").trim_matches('"').to_owned())),
                );
            }
            match header("location").filter(|_| response.status().is_redirection()) {
                None => return Ok((response, said)),
                Some(whole) if whole.contains("://") => url = whole,
                Some(path) => url = format!("{}{path}", origin(&url)?),
            }
        }
        bail!("{}: more than {MOST_REDIRECTS} redirects", self.spec.text)
    }

    fn checked(&self, response: Response<Body>) -> Result<Response<Body>> {
        let text = &self.spec.text;
        let endpoint = &self.hub.endpoint;
        match response.status().as_u16() {
            200 => Ok(response),
            404 => {
                let has_path = text.split_once('@').is_some_and(|(_, behind)| behind.contains('/'));
                let hint = if has_path { "; in the name of a branch, write %2F for a slash" } else { "" };
                Err(Usage(format!("{text}: {endpoint} has no such model, revision or file{hint}")).into())
            }
            status @ (401 | 403) => bail!(
                "{text}: {endpoint} responded {status}: the model does not exist, is private or is gated; accept its \
                 conditions on the Hub and set HF_TOKEN"
            ),
            status => bail!("{text}: {endpoint} responded {status}"),
        }
    }
}

/// The most bytes that are read of a file in the folder of a model; `None` for weights.
fn most_bytes(path: &str) -> Option<u64> {
    let file = path.rsplit('/').next().unwrap_or(path);
    if file.ends_with(super::SAFETENSORS) || file.ends_with(".gguf") {
        None
    } else if file == TOKENIZER || TOKENIZER_PARTS.contains(&file) {
        Some(files::TOKENIZER_MAX)
    } else {
        Some(files::CONFIG_MAX)
    }
}

/// Scheme, host and port of an address, as the beginning of one.
fn origin(url: &str) -> Result<String> {
    let uri: Uri = url.parse().with_context(|| format!("{url} is no address"))?;
    let (scheme, host) = uri.scheme_str().zip(uri.host()).with_context(|| format!("{url} is no address"))?;
    let port = uri.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
    Ok(format!("{scheme}://{host}:{port}").to_lowercase())
}

/// The hash of a file in git.
fn git_hash(path: &Path, bytes: u64) -> Result<String> {
    let mut hasher = Sha1::new();
    hasher.update(format!("blob {bytes}\0"));
    io::copy(&mut files::open(path)?, &mut hasher).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(hex(hasher.finalize().as_slice()))
}

/// A progress bar on stderr, which disappears with its end.
fn bar(bytes: u64, file: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:20} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left: {wide_msg}")
        .expect("a valid template");
    let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr_with_hz(2));
    bar.with_style(style).with_message(file.to_owned())
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {} in the cache (set HF_HOME or HF_HUB_CACHE to use another folder)", path.display())
}

/// Creates a file and its folder.
fn create(path: &Path) -> Result<File> {
    let folder = fs::create_dir_all(path.parent().unwrap_or(path));
    folder.and_then(|()| File::create(path)).with_context(|| cannot_write(path))
}

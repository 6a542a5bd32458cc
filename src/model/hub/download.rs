//! Downloads from the Hub into the cache.
//!
//! The headers of the Hub's answers, or of its redirects to a storage, tell the commit of a revision and the hash of each file,
//! which names its blob and is compared with what arrives.

use super::{gguf_parts, is_commit, is_plain, is_plain_path, Hub, HubSpec, OPTIONAL};
use crate::bail_usage;
use crate::base::error::Usage;
use crate::base::files;
use crate::base::hash::{hex, sha256_file};
use crate::base::model_files::{INDEX_FILE, TENSOR_FILE};
use crate::model::checkpoint::shards;
use crate::model::{kinds, ModelConfig};
use anyhow::{anyhow, bail, ensure, Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;
use sha1::{Digest as _, Sha1};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use ureq::http::{Response, Uri};
use ureq::{Agent, Body};

/// Timeout for a connection, for a response and for the next bytes of a file.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Largest number of redirects for one file.
const MOST_REDIRECTS: usize = 10;

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
    /// Completes the snapshot of a revision, and returns it or its GGUF file. All its files belong to one commit, even if the
    /// branch moves meanwhile.
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
        Ok(repo.join("snapshots").join(commit).join(file.unwrap_or_default()))
    }
}

impl Download<'_> {
    /// Downloads a folder, or a GGUF file, which it returns: the one that is named, or that of a model in no other format.
    fn fetch_model(&mut self) -> Result<Option<String>> {
        let mut file = self.spec.file.clone();
        if file.is_none() && (self.spec.is_gguf() || !self.fetch_folder()?) {
            let names = self.list()?;
            if names.is_empty() {
                let adapter = if self.fetch("adapter_config.json")? { kinds::adapter(&self.snapshot()) } else { None };
                let why =
                    adapter.unwrap_or_else(|| format!("no config.json and no GGUF file at revision {}", self.commit));
                bail_usage!("{}: {why}", self.spec.text);
            }
            file = Some(self.spec.choose(&names)?);
        }
        for part in file.iter().flat_map(|file| gguf_parts(file)) {
            self.fetch_needed(&part)?;
        }
        Ok(file)
    }

    /// Downloads what the folder of a model needs, and notes optional files that the commit does not have. Returns `false` if it
    /// has no configuration or no weights but GGUF files.
    fn fetch_folder(&mut self) -> Result<bool> {
        if !self.fetch("config.json")? {
            return Ok(false);
        }
        // Before gigabytes of weights.
        let config = files::bytes(&self.snapshot().join("config.json"), files::CONFIG_MAX)?;
        let config = serde_json::from_slice(&config).context("config.json: not JSON");
        config.and_then(|config| ModelConfig::check_family(&config)).with_context(|| self.spec.text.clone())?;
        if !self.fetch(TENSOR_FILE)? {
            if !self.fetch(INDEX_FILE)? {
                if self.list()?.is_empty() {
                    return self.fetch_needed(TENSOR_FILE).map(|()| true);
                }
                return Ok(false);
            }
            for shard in shards(&self.snapshot().join(INDEX_FILE))? {
                self.fetch_needed(&shard)?;
            }
        }
        self.fetch_needed("tokenizer.json")?;
        for file in OPTIONAL {
            if !self.fetch(file)? {
                create(&self.repo.join(".no_exist").join(&self.commit).join(file))?;
            }
        }
        Ok(true)
    }

    fn snapshot(&self) -> PathBuf {
        self.repo.join("snapshots").join(&self.commit)
    }

    fn fetch_needed(&mut self, file: &str) -> Result<()> {
        if !self.fetch(file)? {
            bail_usage!("{}: {} has no {file} at revision {}", self.spec.text, self.spec.repo, self.commit);
        }
        Ok(())
    }

    /// Downloads a file into the snapshot if it is not there. Returns `false` if the commit does not have it.
    fn fetch(&mut self, file: &str) -> Result<bool> {
        if is_commit(&self.commit) && self.snapshot().join(file).is_file() {
            return Ok(true);
        }
        let revision = self.commit.replace('/', "%2F");
        let (response, said) = self.get(&format!("{}/resolve/{revision}/{file}", self.spec.repo))?;
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
        let lock = create(&self.hub.cache.join(".locks").join(self.spec.folder()).join(format!("{id}.lock")))?;
        // Some file systems lack locks. Concurrent downloads are rare enough to continue without.
        let _ = lock.lock();
        if !blob.is_file() {
            self.receive(file, response, id, &blob)?;
        }
        self.link(file, &blob)?;
        Ok(true)
    }

    /// Writes the bytes of a file, and compares them with its hash: SHA-256 of large files, the hash that git has for small ones.
    fn receive(&self, file: &str, mut response: Response<Body>, id: &str, blob: &Path) -> Result<()> {
        let interrupted = format!("{}: the download of {file} was interrupted; run the command again", self.spec.text);
        let partial = blob.with_extension("incomplete");
        let mut to = create(&partial)?;
        let bytes = response.body().content_length();
        let bar = bar(bytes.unwrap_or(0), file);
        let got = io::copy(&mut bar.wrap_read(response.body_mut().as_reader()), &mut to);
        let got = got.with_context(|| interrupted.clone())?;
        ensure!(bytes.is_none_or(|bytes| bytes == got), "{interrupted} ({got} of {} bytes)", bytes.unwrap_or(0));
        let hash = if id.len() == SHA256_DIGITS { sha256_file(&partial)? } else { git_hash(&partial, got)? };
        if hash != id {
            let _ = fs::remove_file(&partial);
            bail!("{}: {file} is not what the Hub says: its hash is {hash}, expected {id}", self.spec.text);
        }
        fs::rename(&partial, blob).with_context(|| cannot_write(blob))
    }

    /// Puts a blob into the snapshot.
    fn link(&self, file: &str, blob: &Path) -> Result<()> {
        let link = self.snapshot().join(file);
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

    /// The GGUF files of the revision.
    fn list(&self) -> Result<Vec<String>> {
        let revision = self.commit.replace('/', "%2F");
        let (response, _) = self.get(&format!("api/models/{}/revision/{revision}", self.spec.repo))?;
        let json: Value = serde_json::from_reader(self.checked(response)?.body_mut().as_reader())
            .with_context(|| format!("{} is not a Hugging Face Hub (HF_ENDPOINT)", self.hub.endpoint))?;
        let names = json["siblings"].as_array().into_iter().flatten().filter_map(|file| file["rfilename"].as_str());
        Ok(names.filter(|name| name.ends_with(".gguf") && is_plain_path(name)).map(str::to_owned).collect())
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
                said.extend(header(name).map(|value| (name, value.trim_matches('"').to_owned())));
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
            404 => Err(Usage(format!("{text}: {endpoint} has no such model, revision or file")).into()),
            status @ (401 | 403) => bail!(
                "{text}: {endpoint} responded {status}: the model does not exist, is private or is gated; accept its \
                 conditions on the Hub and set HF_TOKEN"
            ),
            status => bail!("{text}: {endpoint} responded {status}"),
        }
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

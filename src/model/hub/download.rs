//! Downloads from the Hub into the cache.

use super::{gguf_parts, is_commit, is_plain, Hub, HubSpec, OPTIONAL, REQUIRED};
use crate::bail_usage;
use crate::base::error::Usage;
use crate::model::checkpoint::{shards, INDEX_FILE, TENSOR_FILE};
use anyhow::{anyhow, bail, ensure, Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use ureq::config::RedirectAuthHeaders;
use ureq::http::Response;
use ureq::{Agent, Body};

/// Timeout for a connection, for a response and for the next bytes of a file.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The files of a commit: size in bytes and name of the blob, which is the hash of the contents, by name.
struct Listing {
    commit: String,
    files: BTreeMap<String, (u64, String)>,
}

impl Hub {
    /// Completes the snapshot of a revision. All its files belong to one commit, even if the branch moves meanwhile.
    pub(super) fn download(&self, spec: &HubSpec, repo: &Path, revision: &str) -> Result<PathBuf> {
        let agent = Agent::config_builder()
            .user_agent(concat!("difftool/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            // The token is for the Hub only, not for the storage that it redirects to.
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .timeout_connect(Some(TIMEOUT))
            .timeout_recv_response(Some(TIMEOUT))
            .timeout_per_read(Some(TIMEOUT));
        let client = Client { hub: self, spec, agent: agent.build().new_agent() };
        let listing = client.list(revision)?;
        let snapshot = repo.join("snapshots").join(&listing.commit);
        fs::create_dir_all(&snapshot).with_context(|| cannot_write(&snapshot))?;
        let download = Download { client, listing, repo, snapshot };
        match &spec.file {
            Some(file) => gguf_parts(file).iter().try_for_each(|part| download.fetch(part))?,
            None => download.fetch_folder()?,
        }
        let Download { listing, snapshot, .. } = download;
        if !is_commit(&spec.revision) {
            create(&repo.join("refs").join(&spec.revision))?.write_all(listing.commit.as_bytes())?;
        }
        Ok(snapshot)
    }
}

/// HTTP client of one model.
struct Client<'a> {
    hub: &'a Hub,
    spec: &'a HubSpec,
    agent: Agent,
}

impl Client<'_> {
    fn list(&self, revision: &str) -> Result<Listing> {
        let revision = revision.replace('/', "%2F");
        let mut response = self.get(&format!("api/models/{}/revision/{revision}?blobs=true", self.spec.repo))?;
        let json = serde_json::from_reader(response.body_mut().as_reader());
        let listing = json.ok().and_then(|json: Value| {
            let files = json["siblings"].as_array()?.iter().map(|file| {
                let id = file["lfs"]["sha256"].as_str().or(file["blobId"].as_str()).filter(|id| is_plain(id))?;
                Some((file["rfilename"].as_str()?.to_owned(), (file["size"].as_u64()?, id.to_owned())))
            });
            let commit = json["sha"].as_str().filter(|commit| is_commit(commit))?.to_owned();
            Some(Listing { commit, files: files.collect::<Option<_>>()? })
        });
        listing.with_context(|| format!("{} is not a Hugging Face Hub (HF_ENDPOINT)", self.hub.endpoint))
    }

    fn get(&self, path: &str) -> Result<Response<Body>> {
        let (hub, text) = (self.hub, &self.spec.text);
        let url = format!("{}/{path}", hub.endpoint.trim_end_matches('/'));
        // Compressed responses would have another length.
        let mut request = self.agent.get(url).header("accept-encoding", "identity");
        if let Some(token) = &hub.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let response = request.call().map_err(|error| {
            anyhow!("cannot reach {} ({error}); set HF_HUB_OFFLINE=1 to use cached models only", hub.endpoint)
        })?;
        match response.status().as_u16() {
            200 => Ok(response),
            404 => Err(Usage(format!("{text}: {} has no such model, revision or file", hub.endpoint)).into()),
            status @ (401 | 403) => bail!(
                "{text}: {} responded {status}: the model does not exist, is private or is gated; accept its conditions \
                 on the Hub and set HF_TOKEN",
                hub.endpoint
            ),
            status => bail!("{text}: {} responded {status}", hub.endpoint),
        }
    }
}

/// Download of the files of one commit.
struct Download<'a> {
    client: Client<'a>,
    listing: Listing,
    /// Folder of the model in the cache.
    repo: &'a Path,
    snapshot: PathBuf,
}

impl Download<'_> {
    /// Downloads what the folder of a model needs, and notes optional files that the commit does not have.
    fn fetch_folder(&self) -> Result<()> {
        let Self { listing, repo, snapshot, .. } = self;
        REQUIRED.into_iter().try_for_each(|file| self.fetch(file))?;
        for file in OPTIONAL {
            if listing.files.contains_key(file) {
                self.fetch(file)?;
            } else {
                create(&repo.join(".no_exist").join(&listing.commit).join(file))?;
            }
        }
        if listing.files.contains_key(TENSOR_FILE) || !listing.files.contains_key(INDEX_FILE) {
            return self.fetch(TENSOR_FILE);
        }
        self.fetch(INDEX_FILE)?;
        shards(&snapshot.join(INDEX_FILE))?.iter().try_for_each(|shard| self.fetch(shard))
    }

    /// Downloads a file into the snapshot if it is not there.
    fn fetch(&self, file: &str) -> Result<()> {
        let Self { client, listing, repo, snapshot } = self;
        let (text, repo_name) = (&client.spec.text, &client.spec.repo);
        let Some((size, id)) = listing.files.get(file) else {
            let ggufs = listing.files.keys().filter(|name| name.ends_with(".gguf"));
            let ggufs: String = ggufs.map(|name| format!("; it has hf:{repo_name}/{name}")).collect();
            bail_usage!("{text}: {repo_name} has no {file} at revision {}{ggufs}", listing.commit)
        };
        let (link, blob) = (snapshot.join(file), repo.join("blobs").join(id));
        let locks = client.hub.cache.join(".locks").join(client.spec.folder());
        let lock = create(&locks.join(format!("{id}.lock")))?;
        // Some file systems lack locks. Concurrent downloads are rare enough to continue without.
        let _ = lock.lock();
        if link.is_file() {
            return Ok(());
        }
        if !blob.is_file() {
            let partial = blob.with_extension("incomplete");
            let mut to = create(&partial)?;
            let interrupted = format!("{text}: the download of {file} was interrupted; run the command again");
            let mut response = client.get(&format!("{repo_name}/resolve/{}/{file}", listing.commit))?;
            let bar = bar(*size, file);
            let bytes = io::copy(&mut bar.wrap_read(response.body_mut().as_reader()), &mut to);
            let bytes = bytes.with_context(|| interrupted.clone())?;
            ensure!(bytes == *size, "{interrupted} ({bytes} of {size} bytes)");
            fs::rename(&partial, &blob).with_context(|| cannot_write(&blob))?;
        }
        let _ = fs::remove_file(&link); // one that leads nowhere
        #[cfg(unix)]
        if std::os::unix::fs::symlink(Path::new("../../blobs").join(id), &link).is_ok() {
            return Ok(());
        }
        // File systems without links get a copy.
        fs::copy(&blob, &link).map(drop).with_context(|| cannot_write(&link))
    }
}

/// A progress bar on stderr, which disappears with its end.
fn bar(bytes: u64, file: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:32} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left: {msg}")
        .expect("a valid template");
    ProgressBar::new(bytes).with_style(style).with_message(file.to_owned())
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {} in the cache (set HF_HOME or HF_HUB_CACHE to use another folder)", path.display())
}

/// Creates a file and its folder.
fn create(path: &Path) -> Result<File> {
    let folder = fs::create_dir_all(path.parent().unwrap_or(path));
    folder.and_then(|()| File::create(path)).with_context(|| cannot_write(path))
}

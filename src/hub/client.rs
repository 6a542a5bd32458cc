//! HTTP client of the Hub: metadata and contents of files.

use super::spec::{is_commit, HubSpec};
use anyhow::{anyhow, bail, ensure, Context, Result};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::time::Duration;
use ureq::http::{HeaderMap, Response};
use ureq::{Agent, Body};

/// Maximum number of redirects within the Hub (renamed models, internal caches).
const REDIRECTS_MAX: usize = 5;

/// Maximum size of a file whose length the Hub does not state, in bytes. It states the length of all large files.
const UNKNOWN_MAX: u64 = 64 << 20;

/// Timeouts for a connection, for a response, and for the next bytes of a file.
const CONNECT: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(60);

/// A Hub or a mirror.
pub(super) struct Client {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
}

/// Metadata of a file.
#[derive(Clone, Debug)]
pub(super) struct FileMeta {
    /// Commit that has the file.
    pub(super) commit: String,
    /// Identifier of the contents.
    pub(super) etag: String,
    /// Length in bytes, if the Hub states it.
    pub(super) len: Option<u64>,
}

impl FileMeta {
    /// SHA-256 of the contents, which is the ETag of large files.
    pub(super) fn sha256(&self) -> Option<&str> {
        Some(&*self.etag).filter(|etag| etag.len() == 64 && etag.bytes().all(|byte| byte.is_ascii_hexdigit()))
    }
}

impl Client {
    pub(super) fn new(endpoint: &str, token: Option<String>) -> Self {
        let mut config = Agent::config_builder()
            .user_agent(concat!("difftool/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            // The token is for the Hub only, not for the storage that it redirects to.
            .redirect_auth_headers(ureq::config::RedirectAuthHeaders::SameHost)
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(ANSWER))
            .timeout_per_read(Some(ANSWER));
        // A proxy cannot reach a server on this machine.
        if ["http://127.0.0.1", "http://localhost"].iter().any(|local| endpoint.starts_with(local)) {
            config = config.proxy(None);
        }
        Self { agent: config.build().new_agent(), endpoint: endpoint.trim_end_matches('/').to_owned(), token }
    }

    /// Requests the metadata of a file at a revision, or `None` if the revision does not have it.
    pub(super) fn meta(&self, spec: &HubSpec, revision: &str, file: &str) -> Result<Option<FileMeta>> {
        let mut url = self.url(spec, revision, file);
        let mut commit = None;
        for _ in 0..REDIRECTS_MAX {
            let response = self.head(&url)?;
            let headers = response.headers();
            commit = text(headers, "x-repo-commit").or(commit);
            let location = text(headers, "location").filter(|_| response.status().is_redirection());
            // A relative location stays on the Hub; others lead to its storage.
            if let Some(path) = location.as_ref().filter(|location| location.starts_with('/')) {
                url = format!("{}{path}", origin(&self.endpoint));
                continue;
            }
            if response.status() == 404 && !is_gone(headers) {
                return Ok(None);
            }
            if location.is_none() && response.status() != 200 {
                return Err(self.refused(spec, revision, file, &response));
            }
            return self.found(&response, commit).with_context(|| format!("{spec}: {url}")).map(Some);
        }
        bail!("{spec}: {url} leads in circles")
    }

    fn head(&self, url: &str) -> Result<Response<Body>> {
        // Compressed responses would have another length.
        let request = self.agent.head(url).header("accept-encoding", "identity");
        let request = self.token.iter().fold(request, |request, token| request.header("authorization", bearer(token)));
        let request = request.config().max_redirects(0).max_redirects_will_error(false).build();
        request.call().map_err(|error| self.unreachable(&error))
    }

    fn found(&self, response: &Response<Body>, commit: Option<String>) -> Result<FileMeta> {
        let headers = response.headers();
        let Some(commit) = commit.filter(|commit| is_commit(commit)) else {
            bail!("the response lacks X-Repo-Commit: {} is not a Hugging Face Hub (HF_ENDPOINT)", self.endpoint);
        };
        let etag = text(headers, "x-linked-etag").or_else(|| text(headers, "etag")).unwrap_or_default();
        let etag = etag.trim_start_matches("W/").trim_matches('"').to_owned();
        // The ETag becomes a file name.
        if etag.is_empty() || !etag.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
            bail!("the response has an ETag that is not valid as a file name: {etag:?}");
        }
        let len = text(headers, "x-linked-size")
            .or_else(|| text(headers, "content-length").filter(|_| response.status() == 200))
            .and_then(|len| len.parse().ok());
        Ok(FileMeta { commit, etag, len })
    }

    /// Appends the missing bytes of a file to `to`. Reports progress to `progress` in bytes, first those already present.
    pub(super) fn fetch(
        &self,
        spec: &HubSpec,
        meta: &FileMeta,
        file: &str,
        to: &mut File,
        mut progress: impl FnMut(u64),
    ) -> Result<()> {
        let url = self.url(spec, &meta.commit, file);
        let mut start = to.seek(std::io::SeekFrom::End(0))?;
        let mut response = self.get(&url, start)?;
        let range = text(response.headers(), "content-range").unwrap_or_default();
        if start > 0 && !(response.status() == 206 && range.starts_with(&format!("bytes {start}-"))) {
            // The server does not support ranges, or not this one.
            (start, response) = (0, self.get(&url, 0)?);
            to.set_len(0)?;
        }
        if response.status() != if start > 0 { 206 } else { 200 } {
            return Err(self.refused(spec, &meta.commit, file, &response));
        }
        progress(start);
        let mut bytes = response.body_mut().as_reader();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let broken =
                || format!("{spec}: the download of {file} was interrupted; run the command again to resume it");
            let n = bytes.read(&mut buffer).with_context(broken)?;
            if n == 0 {
                return Ok(());
            }
            start += n as u64;
            let most = meta.len.unwrap_or(UNKNOWN_MAX);
            ensure!(start <= most, "{spec}: {file} is longer than the expected maximum of {most} bytes");
            to.write_all(&buffer[..n])?;
            progress(n as u64);
        }
    }

    fn get(&self, url: &str, start: u64) -> Result<Response<Body>> {
        let mut request = self.agent.get(url).header("accept-encoding", "identity");
        if let Some(token) = &self.token {
            request = request.header("authorization", bearer(token));
        }
        if start > 0 {
            request = request.header("range", format!("bytes={start}-"));
        }
        request.call().map_err(|error| self.unreachable(&error))
    }

    fn url(&self, spec: &HubSpec, revision: &str, file: &str) -> String {
        let revision = revision.replace('/', "%2F").replace('+', "%2B");
        format!("{}/{}/resolve/{revision}/{file}", self.endpoint, spec.repo)
    }

    fn unreachable(&self, error: &ureq::Error) -> anyhow::Error {
        anyhow!("cannot reach {} ({error}); set HF_HUB_OFFLINE=1 to use cached models only", self.endpoint)
    }

    /// Error for an unexpected response.
    fn refused(&self, spec: &HubSpec, revision: &str, file: &str, response: &Response<Body>) -> anyhow::Error {
        let status = response.status().as_u16();
        let code = text(response.headers(), "x-error-code").unwrap_or_default();
        let repo = &spec.repo;
        match (status, &*code) {
            (404, "RevisionNotFound") => usage(format!("{spec}: {repo} has no revision {revision:?} on the Hub")),
            (404, _) => usage(format!("{spec}: there is no model {repo} on the Hub ({})", self.endpoint)),
            (401 | 403, _) => {
                let token = match self.token {
                    Some(_) => "the token in HF_TOKEN does not give access",
                    None => "if it is gated, accept its conditions on the Hub and set HF_TOKEN",
                };
                anyhow!("{spec}: the Hub responded {status} for {file}: {repo} does not exist, is private, or is gated; {token}")
            }
            _ => anyhow!("{spec}: {} responded {status} for {file} at {revision}", self.endpoint),
        }
    }
}

fn usage(message: String) -> anyhow::Error {
    anyhow::Error::new(crate::error::Usage(message))
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

/// Returns whether a 404 is about the model or the revision, rather than the file.
fn is_gone(headers: &HeaderMap) -> bool {
    text(headers, "x-error-code").is_some_and(|code| code != "EntryNotFound")
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

/// Scheme and host of a URL.
fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    url[host..].find('/').map_or(url, |at| &url[..host + at])
}

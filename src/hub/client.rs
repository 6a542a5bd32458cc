//! The Hub over HTTP: what a file of a model is, and its bytes.

use super::spec::{is_commit, Spec};
use anyhow::{anyhow, bail, ensure, Context, Result};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::time::Duration;
use ureq::http::{HeaderMap, Response};
use ureq::{Agent, Body};

/// Redirects within the Hub (renamed models, its own caches) before it is an error.
const REDIRECTS_MAX: usize = 5;

/// Bytes that are taken of a file whose length the Hub does not say; it says that of all large ones.
const UNKNOWN_MAX: u64 = 64 << 20;

/// How long to wait for a connection, for an answer, and for the next bytes of a file.
const CONNECT: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(60);

/// A Hub, or a mirror of it.
pub(super) struct Client {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
}

/// What the Hub says about a file.
#[derive(Clone, Debug)]
pub(super) struct Meta {
    /// The commit it was found in.
    pub(super) commit: String,
    /// Names its bytes.
    pub(super) etag: String,
    /// Its length, if the Hub says so.
    pub(super) len: Option<u64>,
}

impl Meta {
    /// The ETag of a large file is the SHA-256 of its bytes.
    pub(super) fn sha256(&self) -> Option<&str> {
        Some(&*self.etag).filter(|etag| etag.len() == 64 && etag.bytes().all(|byte| byte.is_ascii_hexdigit()))
    }
}

impl Client {
    pub(super) fn new(endpoint: &str, token: Option<String>) -> Self {
        let mut config = Agent::config_builder()
            .user_agent(concat!("difftool/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            // A token is for the Hub, not for the storage it sends us to.
            .redirect_auth_headers(ureq::config::RedirectAuthHeaders::SameHost)
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(ANSWER))
            .timeout_per_read(Some(ANSWER));
        // No proxy can reach a server on this machine.
        if ["http://127.0.0.1", "http://localhost"].iter().any(|local| endpoint.starts_with(local)) {
            config = config.proxy(None);
        }
        Self { agent: config.build().new_agent(), endpoint: endpoint.trim_end_matches('/').to_owned(), token }
    }

    /// Asks about a file at a revision. Nothing if that revision does not have it.
    pub(super) fn meta(&self, spec: &Spec, revision: &str, file: &str) -> Result<Option<Meta>> {
        let mut url = self.url(spec, revision, file);
        let mut commit = None;
        for _ in 0..REDIRECTS_MAX {
            let response = self.head(&url)?;
            let headers = response.headers();
            commit = text(headers, "x-repo-commit").or(commit);
            let location = text(headers, "location").filter(|_| response.status().is_redirection());
            // An address without a host stays on the Hub, which then knows more; others lead to its storage.
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
        // Compressed answers have another length.
        let request = self.agent.head(url).header("accept-encoding", "identity");
        let request = self.token.iter().fold(request, |request, token| request.header("authorization", bearer(token)));
        let request = request.config().max_redirects(0).max_redirects_will_error(false).build();
        request.call().map_err(|error| self.unreachable(&error))
    }

    fn found(&self, response: &Response<Body>, commit: Option<String>) -> Result<Meta> {
        let headers = response.headers();
        let Some(commit) = commit.filter(|commit| is_commit(commit)) else {
            bail!("no X-Repo-Commit in the answer: {} is no Hugging Face Hub (HF_ENDPOINT)", self.endpoint);
        };
        let etag = text(headers, "x-linked-etag").or_else(|| text(headers, "etag")).unwrap_or_default();
        let etag = etag.trim_start_matches("W/").trim_matches('"').to_owned();
        // It becomes the name of a file.
        if etag.is_empty() || !etag.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
            bail!("the answer has an ETag that cannot be a file's name: {etag:?}");
        }
        let len = text(headers, "x-linked-size")
            .or_else(|| text(headers, "content-length").filter(|_| response.status() == 200))
            .and_then(|len| len.parse().ok());
        Ok(Meta { commit, etag, len })
    }

    /// Appends the bytes that `to` lacks of a file, and tells `come` how many came: first those that were there.
    pub(super) fn fetch(
        &self,
        spec: &Spec,
        meta: &Meta,
        file: &str,
        to: &mut File,
        mut come: impl FnMut(u64),
    ) -> Result<()> {
        let url = self.url(spec, &meta.commit, file);
        let mut start = to.seek(std::io::SeekFrom::End(0))?;
        let mut response = self.get(&url, start)?;
        let range = text(response.headers(), "content-range").unwrap_or_default();
        if start > 0 && !(response.status() == 206 && range.starts_with(&format!("bytes {start}-"))) {
            // Ranges are not served here, or not this one.
            (start, response) = (0, self.get(&url, 0)?);
            to.set_len(0)?;
        }
        if response.status() != if start > 0 { 206 } else { 200 } {
            return Err(self.refused(spec, &meta.commit, file, &response));
        }
        come(start);
        let mut bytes = response.body_mut().as_reader();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let broken = || format!("{spec}: {file} broke off; run the command again to go on from there");
            let n = bytes.read(&mut buffer).with_context(broken)?;
            if n == 0 {
                return Ok(());
            }
            start += n as u64;
            let most = meta.len.unwrap_or(UNKNOWN_MAX);
            ensure!(
                start <= most,
                "{spec}: {file} is longer than the {most} bytes that were promised, or are taken unseen"
            );
            to.write_all(&buffer[..n])?;
            come(n as u64);
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

    fn url(&self, spec: &Spec, revision: &str, file: &str) -> String {
        let revision = revision.replace('/', "%2F").replace('+', "%2B");
        format!("{}/{}/resolve/{revision}/{file}", self.endpoint, spec.repo)
    }

    fn unreachable(&self, error: &ureq::Error) -> anyhow::Error {
        anyhow!(
            "cannot reach {} ({error}); with HF_HUB_OFFLINE=1 only models that are in the cache already are used",
            self.endpoint
        )
    }

    /// What an answer other than the file means.
    fn refused(&self, spec: &Spec, revision: &str, file: &str, response: &Response<Body>) -> anyhow::Error {
        let status = response.status().as_u16();
        let code = text(response.headers(), "x-error-code").unwrap_or_default();
        let repo = &spec.repo;
        match (status, &*code) {
            (404, "RevisionNotFound") => usage(format!("{spec}: {repo} has no revision {revision:?} on the Hub")),
            (404, _) => usage(format!("{spec}: there is no model {repo} on the Hub ({})", self.endpoint)),
            (401 | 403, _) => {
                let token = match self.token {
                    Some(_) => "the token in HF_TOKEN gives no access to it",
                    None => "accept its conditions there if it is gated, and put a token into HF_TOKEN",
                };
                anyhow!("{spec}: the Hub answers {status} for {file}: {repo} does not exist, is private, or is gated; {token}")
            }
            _ => anyhow!("{spec}: {} answers {status} for {file} at {revision}", self.endpoint),
        }
    }
}

fn usage(message: String) -> anyhow::Error {
    anyhow::Error::new(crate::error::Usage(message))
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

/// Whether a 404 is about more than the file.
fn is_gone(headers: &HeaderMap) -> bool {
    text(headers, "x-error-code").is_some_and(|code| code != "EntryNotFound")
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

/// Scheme and host of an address.
fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    url[host..].find('/').map_or(url, |at| &url[..host + at])
}

//! Models of the Hugging Face Hub: `hf:org/name[@revision]`.
//!
//! [`resolve`] returns a local folder with all files of such a model. It shares the cache of the Python libraries, in
//! their layout, so that neither downloads a model again. Downloads are in the cargo feature `hub`, which is on by
//! default; without it, the error says how to enable them.
//!
//! Of what downloads need, the crate hf-hub 1.0 has two: it pins a commit and shares the cache of the Python libraries.
//! It begins an interrupted download again, and checks neither length nor hash of a file. The client here does both.

#[cfg(feature = "hub")]
mod cache;
#[cfg(feature = "hub")]
mod client;
#[cfg(feature = "hub")]
mod files;
#[cfg(feature = "hub")]
mod snapshot;
mod spec;

#[cfg(feature = "hub")]
pub use snapshot::Hub;
pub use spec::HubSpec;

use anyhow::Result;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Prefix of model names on the Hub.
pub const PREFIX: &str = "hf:";

/// Returns whether a model name is one of the Hub.
pub fn is_spec(model: &str) -> bool {
    model.starts_with(PREFIX)
}

/// Receiver of the progress of a download.
pub trait Transfer {
    /// Called at the start of a file.
    fn file(&self, _name: &str) {}

    /// Called for `n` more bytes, downloaded now or earlier.
    fn bytes(&self, _n: u64) {}
}

/// Reports no progress.
impl Transfer for () {}

/// Creates a receiver, given the total number of bytes.
pub type TransferFactory = fn(u64) -> Box<dyn Transfer>;

/// Creates a receiver that reports no progress.
pub const SILENT: TransferFactory = |_| Box::new(());

static WATCH: OnceLock<TransferFactory> = OnceLock::new();

/// Reports the downloads of [`resolve`] to the receivers that `watch` creates, one per model. Only the first call has
/// an effect.
pub fn show_downloads(watch: TransferFactory) {
    let _ = WATCH.set(watch);
}

/// Returns the local folder of `hf:org/name[@revision]`, downloading what the cache lacks. Uses `HF_HOME`,
/// `HF_HUB_CACHE`, `HF_ENDPOINT`, `HF_HUB_OFFLINE` and `HF_TOKEN`.
///
/// # Errors
/// Usage errors if the name is malformed or the Hub has no such model or revision. Errors if the model lacks a required
/// file, access is refused, the Hub cannot be reached or responds incorrectly, or the cache cannot be written. An
/// interrupted download leaves no snapshot and is resumed by the next call.
#[cfg(feature = "hub")]
pub fn resolve(spec: &str) -> Result<PathBuf> {
    Hub::from_env()?.resolve(spec, WATCH.get().copied().unwrap_or(SILENT))
}

/// Refuses to download.
///
/// # Errors
/// Always a usage error: for a malformed name, or with how to build a binary that can download.
#[cfg(not(feature = "hub"))]
pub fn resolve(spec: &str) -> Result<PathBuf> {
    Err(not_built_in(&HubSpec::parse(spec)?))
}

#[cfg(any(test, not(feature = "hub")))]
fn not_built_in(spec: &HubSpec) -> anyhow::Error {
    anyhow::Error::new(crate::error::Usage(format!(
        "{spec}: this difftool was built without downloads: build it without `--no-default-features`, or give a folder with \
         the model"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_feature_the_error_explains_how_to_enable_it() {
        let error = not_built_in(&HubSpec::parse("hf:org/name").unwrap());
        let message = error.to_string();
        assert!(message.starts_with("hf:org/name: ") && message.contains("--no-default-features"), "{message}");
        assert_eq!(crate::error::exit_code(&error), 2);
    }

    #[test]
    fn folders_and_built_in_names_are_not_specs() {
        assert!(is_spec("hf:org/name"));
        assert!(!is_spec("diff") && !is_spec("./hf") && !is_spec("models/hf:org"));
    }
}

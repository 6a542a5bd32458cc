//! Models by the name they have on the Hugging Face Hub: `hf:org/name[@revision]`.
//!
//! [`resolve`] turns such a name into a local folder that holds everything a model needs. It looks into the cache that
//! the Python libraries use and adds to it in the same layout, so that neither downloads what the other has. The
//! network part is the cargo feature `hub`, off by default; without it the name is refused with how to build it in.

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
pub use spec::Spec;

use anyhow::Result;
use std::path::PathBuf;
use std::sync::OnceLock;

/// What a name of a model on the Hub begins with.
pub const PREFIX: &str = "hf:";

/// Whether a name is meant for [`resolve`].
pub fn is_spec(model: &str) -> bool {
    model.starts_with(PREFIX)
}

/// Who looks on while files come.
pub trait Transfer {
    /// A file begins.
    fn file(&self, _name: &str) {}

    /// So many bytes more are here, downloaded now or before.
    fn bytes(&self, _n: u64) {}
}

/// Nobody looks on.
impl Transfer for () {}

/// Makes who looks on, given the bytes that are to come.
pub type Watch = fn(u64) -> Box<dyn Transfer>;

/// Makes nobody.
pub const SILENT: Watch = |_| Box::new(());

static WATCH: OnceLock<Watch> = OnceLock::new();

/// Shows the downloads of [`resolve`] to what `watch` makes for each model; without it they are silent. The first call counts.
pub fn show_downloads(watch: Watch) {
    let _ = WATCH.set(watch);
}

/// The local folder of `hf:org/name[@revision]`, from the cache if it is whole there, and downloaded otherwise. Honours `HF_HOME`, `HF_HUB_CACHE`, `HF_ENDPOINT`, `HF_HUB_OFFLINE` and `HF_TOKEN`.
///
/// # Errors
/// Usage errors if the name is not of that form or names what the Hub does not have; if the model lacks a file that is
/// needed, access is refused, the Hub cannot be reached or answers nonsense, or the cache cannot be written. A download
/// that ends early leaves no snapshot, and goes on where it ended when asked again.
#[cfg(feature = "hub")]
pub fn resolve(spec: &str) -> Result<PathBuf> {
    Hub::from_env()?.resolve(spec, WATCH.get().copied().unwrap_or(SILENT))
}

/// Refuses: this build cannot download.
///
/// # Errors
/// Always: a usage error that says what is wrong with the name, or how to build a binary that can download.
#[cfg(not(feature = "hub"))]
pub fn resolve(spec: &str) -> Result<PathBuf> {
    Err(not_built_in(&Spec::parse(spec)?))
}

#[cfg(any(test, not(feature = "hub")))]
fn not_built_in(spec: &Spec) -> anyhow::Error {
    anyhow::Error::new(crate::error::Usage(format!(
        "{spec}: this difftool was built without downloads: build it with `cargo build --release --features \
         hub`, or give a folder that holds the model"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_feature_the_error_says_how_to_build_with_it() {
        let error = not_built_in(&Spec::parse("hf:org/name").unwrap());
        let message = error.to_string();
        assert!(message.starts_with("hf:org/name: ") && message.contains("--features hub"), "{message}");
        assert_eq!(crate::error::exit_code(&error), 2);
    }

    #[test]
    fn folders_and_built_in_names_are_not_specs() {
        assert!(is_spec("hf:org/name"));
        assert!(!is_spec("diff") && !is_spec("./hf") && !is_spec("models/hf:org"));
    }
}

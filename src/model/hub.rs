//! Models of the Hugging Face Hub: `hf:org/name`, or of several GGUF files `hf:org/name:Q4_K_M` or `hf:org/name/file.gguf`, each
//! with `@revision`.
//!
//! They are kept in the cache of the Python library `huggingface_hub`, in its layout, so that neither downloads a model
//! again:
//!
//! ```text
//! models--org--name/refs/main                      the last known commit of a branch or tag
//! models--org--name/snapshots/COMMIT/config.json   a link to the blob
//! models--org--name/blobs/ID                       the contents; ID.incomplete during a download
//! models--org--name/.no_exist/COMMIT/FILE          marks a file that the commit does not have
//! .locks/models--org--name/ID.lock                 held during a download of the blob
//! ```

#[cfg(feature = "hub")]
mod download;

use crate::bail_usage;
use crate::base::files;
use crate::base::model_files::{INDEX_FILE, TENSOR_FILE};
use crate::model::checkpoint::shards;
use crate::model::kinds;
use anyhow::{ensure, Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Prefix of model names on the Hub.
const PREFIX: &str = "hf:";

/// Files that every model needs besides its weights.
const REQUIRED: [&str; 2] = ["config.json", "tokenizer.json"];

/// Files that are downloaded if they exist.
const OPTIONAL: [&str; 4] =
    ["tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "generation_config.json"];

/// Returns `true` if a model name is one of the Hub.
pub fn is_spec(model: &str) -> bool {
    model.starts_with(PREFIX)
}

/// Returns the local folder of a model, or its GGUF file, after downloading what the cache lacks. Uses `HF_HOME`,
/// `HF_HUB_CACHE`, `HF_ENDPOINT`, `HF_HUB_OFFLINE` and `HF_TOKEN`.
///
/// # Errors
/// If the name is malformed, a required file is missing, access is refused, the download is interrupted, or the cache
/// cannot be written.
pub fn resolve(spec: &str) -> Result<PathBuf> {
    Hub::from_vars(|name| std::env::var(name).ok(), std::env::home_dir())?.resolve(spec)
}

/// A Hub with a local cache.
pub struct Hub {
    /// Address of the Hub or of a mirror.
    pub endpoint: String,
    /// The folder with `models--org--name`.
    pub cache: PathBuf,
    /// `true` if only the cache is used.
    pub offline: bool,
    /// Access token for gated or private models.
    pub token: Option<String>,
}

impl Hub {
    /// Creates it from environment variables and the home folder, by the rules of the Python library.
    ///
    /// # Errors
    /// If nothing determines the cache.
    pub fn from_vars(var: impl Fn(&str) -> Option<String>, home: Option<PathBuf>) -> Result<Self> {
        let var = |name: &str| var(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let mut folder = var("HF_HOME").map(PathBuf::from);
        if folder.is_none() {
            let cache = var("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| Some(home?.join(".cache")));
            folder = cache.map(|cache| cache.join("huggingface"));
        }
        let cache = var("HF_HUB_CACHE").map(PathBuf::from).or_else(|| Some(folder.as_ref()?.join("hub")));
        let offline = var("HF_HUB_OFFLINE").unwrap_or_default().to_uppercase();
        Ok(Self {
            endpoint: var("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned()),
            cache: cache.context("there is no home folder: set HF_HOME to the folder for models")?,
            offline: ["1", "ON", "YES", "TRUE"].contains(&&*offline),
            token: var("HF_TOKEN").or_else(|| {
                let saved = files::text(&folder?.join("token"), files::CONFIG_MAX).ok()?;
                Some(saved.trim().to_owned())
            }),
        })
    }

    /// Like [`resolve`], with these settings.
    pub fn resolve(&self, spec: &str) -> Result<PathBuf> {
        let spec = HubSpec::parse(spec)?;
        let repo = self.cache.join(spec.folder());
        let revision = spec.cached_commit(&repo).unwrap_or_else(|| spec.revision.clone());
        let snapshot = repo.join("snapshots").join(&revision);
        if let Some(file) = spec.cached_gguf(&snapshot)? {
            return Ok(snapshot.join(file));
        }
        if let Some(adapter) = kinds::adapter(&snapshot).filter(|_| !snapshot.join("config.json").is_file()) {
            bail_usage!("{}: {adapter}", spec.text);
        }
        let missing = spec.missing(&snapshot)?;
        ensure!(
            missing.is_empty() || !self.offline,
            "{}: the cache {} lacks {}, and HF_HUB_OFFLINE forbids downloads: unset it, or copy the model there",
            spec.text,
            self.cache.display(),
            missing.join(", ")
        );
        if !missing.is_empty() {
            return self.download(&spec, &repo, &revision);
        }
        if !self.offline && !spec.knows_optional(&repo, &revision) {
            // Python may have left out files that say how prompts begin. Without the Hub, the cache has to do.
            let _ = self.download(&spec, &repo, &revision);
        }
        Ok(snapshot)
    }

    #[cfg(not(feature = "hub"))]
    fn download(&self, spec: &HubSpec, _: &Path, _: &str) -> Result<PathBuf> {
        bail_usage!("{}: this difftool was built without downloads (`--no-default-features`)", spec.text)
    }
}

/// A model with its revision.
struct HubSpec {
    /// The text it was parsed from.
    text: String,
    /// `org/name`.
    repo: String,
    /// A GGUF file, instead of the folder.
    file: Option<String>,
    /// The number type in the name of a GGUF file.
    number: Option<String>,
    /// A branch, a tag or a commit.
    revision: String,
}

impl HubSpec {
    fn parse(text: &str) -> Result<Self> {
        let path = text.strip_prefix(PREFIX).unwrap_or(text);
        let (path, revision) = path.split_once('@').unwrap_or((path, "main"));
        let (path, number) = path.split_once(':').map_or((path, None), |(path, number)| (path, Some(number)));
        let mut parts = path.splitn(3, '/');
        let repo = parts.next().zip(parts.next());
        let file = parts.next();
        let fits = file.is_none_or(|file| file.ends_with(".gguf") && number.is_none());
        let Some((org, name)) = repo.filter(|_| fits) else {
            bail_usage!("{text}: a model on the Hub is {PREFIX}org/name or {PREFIX}org/name/file.gguf")
        };
        // They become names of files.
        let paths = [Some(org), Some(name), file, number, Some(revision)];
        if let Some(part) = paths.into_iter().flatten().find(|path| !is_plain_path(path)) {
            bail_usage!("{text}: {part:?} is no name on the Hub");
        }
        let [file, number] = [file, number].map(|part| part.map(str::to_owned));
        Ok(Self { text: text.to_owned(), repo: format!("{org}/{name}"), file, number, revision: revision.to_owned() })
    }

    /// Returns `true` if it names a GGUF file.
    fn is_gguf(&self) -> bool {
        self.file.is_some() || self.number.is_some()
    }

    /// The GGUF file that is meant, of several in the model: the only one, or that with the number type in its name.
    ///
    /// # Errors
    /// A usage error that names them.
    fn choose(&self, names: &[String]) -> Result<String> {
        let mut models: Vec<&String> = names.iter().filter(|name| gguf_parts(name).first() == Some(name)).collect();
        models.retain(|name| !name.rsplit('/').next().unwrap_or_default().to_lowercase().starts_with("mmproj"));
        match models.iter().filter(|name| self.has_number(name)).collect::<Vec<_>>()[..] {
            [one] => Ok((*one).clone()),
            _ => {
                models.sort_unstable();
                let named: Vec<String> = models.iter().map(|name| format!("{PREFIX}{}/{name}", self.repo)).collect();
                bail_usage!("{}: which of its GGUF files? {}", self.text, named.join(", "))
            }
        }
    }

    /// Returns `true` if the name of a GGUF file has the number type that is asked for, if one is.
    fn has_number(&self, name: &str) -> bool {
        let mut parts = name.trim_end_matches(".gguf").split(['-', '.', '/']);
        self.number.as_ref().is_none_or(|number| parts.any(|part| part.eq_ignore_ascii_case(number)))
    }

    /// The GGUF file that is meant, if all its parts are in the snapshot; `None` for a folder.
    fn cached_gguf(&self, snapshot: &Path) -> Result<Option<String>> {
        let file = match &self.file {
            Some(file) => file.clone(),
            None => {
                let names = ggufs_in(snapshot, "");
                let is_folder = [TENSOR_FILE, INDEX_FILE].iter().any(|file| snapshot.join(file).is_file());
                if names.is_empty() || self.number.is_none() && is_folder {
                    return Ok(None);
                }
                match self.choose(&names) {
                    Ok(file) => file,
                    Err(_) if self.number.is_some() => return Ok(None), // another is on the Hub
                    Err(error) => return Err(error),
                }
            }
        };
        Ok(gguf_parts(&file).iter().all(|part| snapshot.join(part).is_file()).then_some(file))
    }

    /// Name of the folder in the cache.
    fn folder(&self) -> String {
        format!("models--{}", self.repo.replace('/', "--"))
    }

    /// The commit of the revision when it was last downloaded.
    fn cached_commit(&self, repo: &Path) -> Option<String> {
        if is_commit(&self.revision) {
            return Some(self.revision.clone());
        }
        let commit = files::text(&repo.join("refs").join(&self.revision), files::CONFIG_MAX).ok()?;
        Some(commit.trim().to_owned()).filter(|commit| is_commit(commit))
    }

    /// Required files that a snapshot lacks.
    fn missing(&self, snapshot: &Path) -> Result<Vec<String>> {
        let [single, index] = [TENSOR_FILE, INDEX_FILE].map(|file| snapshot.join(file));
        let mut files = match (&self.file, &self.number) {
            (Some(file), _) => gguf_parts(file),
            (None, Some(number)) => vec![format!("a GGUF file with {number} in its name")],
            (None, None) if !single.is_file() && index.is_file() => Vec::from_iter(shards(&index)?),
            (None, None) => vec![TENSOR_FILE.to_owned()],
        };
        if !self.is_gguf() {
            files.extend(REQUIRED.map(str::to_owned));
        }
        files.retain(|file| !snapshot.join(file).is_file());
        Ok(files)
    }

    /// Returns `true` if the cache knows of every optional file if a commit has it.
    fn knows_optional(&self, repo: &Path, commit: &str) -> bool {
        let folders = ["snapshots", ".no_exist"].map(|folder| repo.join(folder).join(commit));
        self.is_gguf() || OPTIONAL.iter().all(|file| folders.iter().any(|folder| folder.join(file).exists()))
    }
}

/// All files of a model in GGUF files.
fn gguf_parts(file: &str) -> Vec<String> {
    crate::model::gguf::parts_of(Path::new(file)).iter().map(|part| part.display().to_string()).collect()
}

/// The GGUF files in a folder and the folders in it, below `prefix`.
fn ggufs_in(folder: &Path, prefix: &str) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name.ends_with(".gguf") {
            names.push(format!("{prefix}{name}"));
        } else if prefix.is_empty() && entry.path().is_dir() {
            names.extend(ggufs_in(&entry.path(), &format!("{name}/")));
        }
    }
    names
}

/// Returns `true` if every part of a path [is plain](is_plain).
fn is_plain_path(path: &str) -> bool {
    path.split('/').all(is_plain)
}

/// Returns `true` if a name stays in its folder on every system, and needs no escaping in a URL.
fn is_plain(name: &str) -> bool {
    let is_known = name.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
    is_known && !name.is_empty() && !name.starts_with('.')
}

/// Returns `true` if the text is a full git commit.
fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::exit_code;

    #[test]
    fn a_spec_names_a_model_or_a_gguf_file_and_a_revision() {
        for (text, repo, file, revision) in [
            ("hf:org/a.b_c-d", "org/a.b_c-d", None, "main"),
            ("hf:org/name@refs/pr/1", "org/name", None, "refs/pr/1"),
            ("hf:org/name/m-Q4_0.gguf@v1.0", "org/name", Some("m-Q4_0.gguf"), "v1.0"),
        ] {
            let spec = HubSpec::parse(text).unwrap();
            assert_eq!((&*spec.repo, spec.file.as_deref(), &*spec.revision), (repo, file, revision));
        }
        for text in [
            "hf:",
            "hf:gpt2",
            "hf:org/",
            "hf:../name",
            "hf:org/..",
            "hf:org/name/more",
            "hf:org/na me",
            "hf:org\\x/name",
        ]
        .into_iter()
        .chain([
            "hf:org/name?x",
            "hf:org/name@",
            "hf:org/name@../../x",
            "hf:org/name@a//b",
            "hf:org/../x.gguf",
        ]) {
            let error = HubSpec::parse(text).err().expect("it is refused");
            assert!(error.to_string().contains(text), "{error}");
            assert_eq!(exit_code(&error), 2, "{text}");
        }
    }
}

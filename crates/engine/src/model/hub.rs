//! Models of the Hugging Face Hub: `hf:org/name`, one in a folder of a repository `hf:org/name/folder`, of several files of weights
//! `hf:org/name/file.safetensors`, of several GGUF files `hf:org/name:Q4_K_M` or `hf:org/name/file.gguf`, each with `@revision`
//! behind the repository or at the end.
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

use crate::model::checkpoint::weight_files;
use crate::model::{kinds, Checkpoint};
use anyhow::{ensure, Context, Result};
use base::bail_usage;
use base::files;
use base::model_files::{CONFIG, INDEX_FILE, OPTIONAL, SAFETENSORS, TENSOR_FILE, TOKENIZER, TOKENIZER_PARTS};
use std::fs;
use std::path::{Path, PathBuf};

/// Prefix of model names on the Hub.
const PREFIX: &str = "hf:";

/// Returns `true` if a model name is one of the Hub.
pub fn is_spec(model: &str) -> bool {
    model.starts_with(PREFIX)
}

/// The local folder of a model, or the file that is named, after downloading what the cache lacks, by the
/// [variables](Hub::from_vars) of the Python library.
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

/// Values of variables that are true.
const TRUE: [&str; 4] = ["1", "ON", "YES", "TRUE"];

/// A path with `~` at its beginning, `$NAME` and `${NAME}` replaced, where they stand for something: no shell does so in the
/// files in which services and images set variables.
fn expanded(path: &str, var: impl Fn(&str) -> Option<String>, home: Option<&Path>) -> PathBuf {
    let mut parts = path.split('$');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = match part.strip_prefix('{').and_then(|part| part.split_once('}')) {
            Some((name, rest)) => (name, rest),
            None => part.split_at(part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(part.len())),
        };
        match var(name) {
            Some(value) => text += &(value + rest),
            None => text += &format!("${part}"),
        }
    }
    let below = text.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'));
    match below.zip(home) {
        Some((below, home)) => home.join(below.trim_start_matches('/')),
        None => text.into(),
    }
}

impl Hub {
    /// Creates it from environment variables and the home folder, by the rules of the Python library, its older names included.
    ///
    /// # Errors
    /// If nothing determines the cache.
    pub fn from_vars(var: impl Fn(&str) -> Option<String>, home: Option<PathBuf>) -> Result<Self> {
        let var = |name: &str| var(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let first = |names: [&str; 2]| names.into_iter().find_map(&var);
        let folder = |names: [&str; 2]| first(names).map(|path| expanded(&path, var, home.as_deref()));
        let is_true = |names| first(names).is_some_and(|value| TRUE.contains(&&*value.to_uppercase()));
        let caches = folder(["XDG_CACHE_HOME"; 2]).or_else(|| Some(home.as_ref()?.join(".cache")));
        let hf_home = folder(["HF_HOME"; 2]).or_else(|| Some(caches?.join("huggingface")));
        let cache = folder(["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"]).or_else(|| Some(hf_home.as_ref()?.join("hub")));
        let token_path = folder(["HF_TOKEN_PATH"; 2]).or_else(|| Some(hf_home.as_ref()?.join("token")));
        let token = first(["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"])
            .or_else(|| Some(files::text(&token_path?, files::CONFIG_MAX).ok()?.trim().to_owned()));
        Ok(Self {
            endpoint: var("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned()),
            cache: cache.context("there is no home folder: set HF_HOME to the folder for models")?,
            offline: is_true(["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"]),
            token: token.filter(|_| !is_true(["HF_HUB_DISABLE_IMPLICIT_TOKEN"; 2])),
        })
    }

    /// Like [`resolve`], with these settings.
    pub fn resolve(&self, spec: &str) -> Result<PathBuf> {
        let spec = HubSpec::parse(spec)?;
        let repo = self.cache.join(spec.cache_folder());
        let revision = spec.cached_commit(&repo).unwrap_or_else(|| spec.revision.clone());
        let cached = Cached::of(&spec, &repo, &revision);
        if let Some(file) = cached.gguf()? {
            return Ok(cached.folder.join(file));
        }
        if let Some(adapter) = kinds::adapter(&cached.folder).filter(|_| !cached.has(CONFIG)) {
            bail_usage!("{}: {adapter}", spec.text);
        }
        let mut missing = cached.missing()?;
        // The cache may hold all of a model without tokenizer. Whatever needs one says so.
        missing.retain(|file| !(self.offline && file == TOKENIZER));
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
        if !self.offline && !cached.knows_optional() {
            // Python may have left out files that say how prompts begin. Without the Hub, the cache has to do.
            let _ = self.download(&spec, &repo, &revision);
        }
        Ok(cached.path())
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
    /// The folder of the model in the repository; `None` for the repository itself.
    folder: Option<String>,
    /// A file of weights in the folder: of several in safetensors, or in GGUF.
    file: Option<String>,
    /// The number type in the name of a GGUF file.
    number: Option<String>,
    /// A branch, a tag or a commit.
    revision: String,
}

impl HubSpec {
    fn parse(text: &str) -> Result<Self> {
        let name = text.strip_prefix(PREFIX).unwrap_or(text);
        let (name, rest) = name.split_once('@').unwrap_or((name, "main"));
        let (name, number) = name.split_once(':').map_or((name, None), |(name, number)| (name, Some(number)));
        let mut parts = name.splitn(3, '/');
        let first = parts.next().unwrap_or_default();
        // The oldest models have no organisation in their names: the Hub leads to where they are now.
        let repo = match parts.next() {
            Some(name) => format!("{first}/{name}"),
            None => first.to_owned(),
        };
        let (revision, path) = match parts.next() {
            Some(path) => (rest, Some(path)),
            None => split_revision(rest),
        };
        if repo.is_empty() || path.is_some() && number.is_some() {
            bail_usage!(
                "{text}: a model on the Hub is {PREFIX}org/name, {PREFIX}org/name/folder, {PREFIX}org/name/file.gguf or \
                 {PREFIX}org/name:Q4_K_M, each with @revision behind the name"
            );
        }
        let revision = revision.replace("%2F", "/");
        // They become names of files.
        let paths = [Some(&*repo), path, number, Some(&*revision)];
        if let Some(part) = paths.into_iter().flatten().find(|path| !is_plain_path(path)) {
            bail_usage!("{text}: {part:?} is no name on the Hub");
        }
        let is_file = |path: &str| [".gguf", SAFETENSORS].iter().any(|end| path.ends_with(end));
        let (folder, file) = match path.map(|path| (path, path.rsplit_once('/'))) {
            Some((path, Some((folder, file)))) if is_file(path) => (Some(folder), Some(file)),
            Some((path, _)) if is_file(path) => (None, Some(path)),
            _ => (path, None),
        };
        let [folder, file, number] = [folder, file, number].map(|part| part.map(str::to_owned));
        Ok(Self { text: text.to_owned(), repo, folder, file, number, revision })
    }

    /// Returns `true` if it names a GGUF file.
    fn is_gguf(&self) -> bool {
        self.number.is_some() || self.file.as_ref().is_some_and(|file| file.ends_with(".gguf"))
    }

    /// The path in the repository of a file in the folder of the model.
    fn path_of(&self, file: &str) -> String {
        self.folder.as_ref().map_or_else(|| file.to_owned(), |folder| format!("{folder}/{file}"))
    }

    /// The names as models of files or folders in the folder, to choose from.
    fn names_of<'a>(&self, paths: impl IntoIterator<Item = &'a String>) -> String {
        let revision = match &*self.revision {
            "main" => String::new(),
            revision => format!("@{}", revision.replace('/', "%2F")),
        };
        let names = paths.into_iter().map(|path| format!("{PREFIX}{}{revision}/{}", self.repo, self.path_of(path)));
        names.collect::<Vec<_>>().join(", ")
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
                bail_usage!("{}: which of its GGUF files? {}", self.text, self.names_of(models))
            }
        }
    }

    /// Returns `true` if the name of a GGUF file has the number type that is asked for, if one is.
    fn has_number(&self, name: &str) -> bool {
        let mut parts = name.trim_end_matches(".gguf").split(['-', '.', '/']);
        self.number.as_ref().is_none_or(|number| parts.any(|part| part.eq_ignore_ascii_case(number)))
    }

    /// Name of the repository's folder in the cache.
    fn cache_folder(&self) -> String {
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
}

/// A revision, and the path behind it: in `refs/pr/1/folder`, the revision has three parts, otherwise one.
fn split_revision(text: &str) -> (&str, Option<&str>) {
    let parts = if text.starts_with("refs/") { 3 } else { 1 };
    match text.match_indices('/').nth(parts - 1) {
        Some((at, _)) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

/// The files of a model in the cache.
struct Cached<'a> {
    spec: &'a HubSpec,
    /// The folder of the model in the snapshot of a commit.
    folder: PathBuf,
    /// The folder with marks of files that the commit does not have there.
    absent: PathBuf,
}

impl<'a> Cached<'a> {
    fn of(spec: &'a HubSpec, repo: &Path, commit: &str) -> Self {
        let [folder, absent] = ["snapshots", ".no_exist"].map(|kind| {
            let mut path = repo.join(kind).join(commit);
            path.extend(&spec.folder);
            path
        });
        Self { spec, folder, absent }
    }

    /// Returns `true` if a file is there.
    fn has(&self, file: &str) -> bool {
        self.folder.join(file).is_file()
    }

    /// Returns `true` if the commit does not have a file.
    fn lacks(&self, file: &str) -> bool {
        self.absent.join(file).exists()
    }

    /// The model: its folder, or the file that is named.
    fn path(&self) -> PathBuf {
        let mut path = self.folder.clone();
        path.extend(&self.spec.file);
        path
    }

    /// The GGUF file that is meant, if all its parts are there; `None` for a model in another format.
    fn gguf(&self) -> Result<Option<String>> {
        let file = match &self.spec.file {
            Some(_) if !self.spec.is_gguf() => return Ok(None),
            Some(file) => file.clone(),
            None => {
                let names = ggufs_in(&self.folder, "");
                if names.is_empty() || self.spec.number.is_none() && Checkpoint::is_in(&self.folder) {
                    return Ok(None);
                }
                match self.spec.choose(&names) {
                    Ok(file) => file,
                    Err(_) if self.spec.number.is_some() => return Ok(None), // another is on the Hub
                    Err(error) => return Err(error),
                }
            }
        };
        Ok(gguf_parts(&file).iter().all(|part| self.has(part)).then_some(file))
    }

    /// Required files that are not there.
    fn missing(&self) -> Result<Vec<String>> {
        let mut files = match (&self.spec.file, &self.spec.number) {
            (Some(file), _) => gguf_parts(file),
            (None, Some(number)) => vec![format!("a GGUF file with {number} in its name")],
            (None, None) => self.weights()?,
        };
        if !self.spec.is_gguf() {
            files.push(CONFIG.to_owned());
            if !self.lacks(TOKENIZER) && !TOKENIZER_PARTS.iter().all(|file| self.has(file)) {
                files.push(TOKENIZER.to_owned());
            }
        }
        files.retain(|file| !self.has(file));
        Ok(files)
    }

    /// The files of weights that the folder needs. One of another name than usual is needed only where the commit is known to have
    /// none of the usual ones: it may have been downloaded by its name, and not be the only one.
    fn weights(&self) -> Result<Vec<String>> {
        let usual = [TENSOR_FILE, INDEX_FILE];
        let known = usual.iter().any(|file| self.has(file)) || usual.iter().all(|file| self.lacks(file));
        let files = if known { weight_files(&self.folder)? } else { Vec::new() };
        Ok(if files.is_empty() { vec![TENSOR_FILE.to_owned()] } else { files })
    }

    /// Returns `true` if the cache knows of every optional file if the commit has it.
    fn knows_optional(&self) -> bool {
        let knows = |file: &&str| self.has(file) || self.lacks(file);
        let tokenizer = self.has(TOKENIZER) || self.lacks(TOKENIZER) && TOKENIZER_PARTS.iter().all(knows);
        self.spec.is_gguf() || tokenizer && OPTIONAL.iter().all(knows)
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
    use base::error::exit_code;

    #[test]
    fn a_spec_names_a_repository_a_folder_a_file_and_a_revision() {
        for (text, repo, folder, file, revision) in [
            ("hf:org/a.b_c-d", "org/a.b_c-d", None, None, "main"),
            ("hf:org/name@refs/pr/1", "org/name", None, None, "refs/pr/1"),
            ("hf:org/name/m-Q4_0.gguf@v1.0", "org/name", None, Some("m-Q4_0.gguf"), "v1.0"),
            ("hf:org/name/diff", "org/name", Some("diff"), None, "main"),
            ("hf:org/name/a/checkpoint-64434", "org/name", Some("a/checkpoint-64434"), None, "main"),
            ("hf:org/name@v1.0/diff", "org/name", Some("diff"), None, "v1.0"),
            ("hf:org/name/diff@v1.0", "org/name", Some("diff"), None, "v1.0"),
            ("hf:org/name@refs/pr/1/diff/b", "org/name", Some("diff/b"), None, "refs/pr/1"),
            ("hf:org/name/diff@refs/pr/1", "org/name", Some("diff"), None, "refs/pr/1"),
            ("hf:org/name/diff@a/branch", "org/name", Some("diff"), None, "a/branch"),
            ("hf:org/name@a%2Fbranch", "org/name", None, None, "a/branch"),
            ("hf:org/name@a%2Fbranch/diff", "org/name", Some("diff"), None, "a/branch"),
            ("hf:org/name@v1.0/diff/m.gguf", "org/name", Some("diff"), Some("m.gguf"), "v1.0"),
            ("hf:org/name/latest.safetensors", "org/name", None, Some("latest.safetensors"), "main"),
            ("hf:org/name/diff/step-9.safetensors", "org/name", Some("diff"), Some("step-9.safetensors"), "main"),
        ] {
            let spec = HubSpec::parse(text).unwrap();
            let parsed = (&*spec.repo, spec.folder.as_deref(), spec.file.as_deref(), &*spec.revision);
            assert_eq!(parsed, (repo, folder, file, revision), "{text}");
        }
        let no_names = ["hf:", "hf:org/", "hf:org/name/", "hf:org/name/a:Q4_0", "hf:../name", "hf:org/.."];
        let no_paths = ["hf:org/na me", "hf:org\\x/name", "hf:org/name?x", "hf:org/../x.gguf", "hf:org/name/../x"];
        let no_revisions =
            ["hf:org/name@", "hf:org/name@../../x", "hf:org/name@a//b", "hf:org/name@%2F..", "hf:org/name@a/.b"];
        for text in no_names.into_iter().chain(no_paths).chain(no_revisions) {
            let error = HubSpec::parse(text).err().expect("it is refused");
            assert!(error.to_string().contains(text), "{error}");
            assert_eq!(exit_code(&error), 2, "{text}");
        }
    }
}

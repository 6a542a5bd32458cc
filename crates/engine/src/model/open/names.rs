//! Names of models: those of the binary, and what a folder and a name of the Hub are called.

use crate::model::hub;
use anyhow::Result;
use base::bail_usage;
use base::model_files::CONFIG;
pub(super) use names::is_formula;
use names::{repeated, Replicates};
use std::path::{Component, Path, PathBuf};

/// A model that is part of the binary.
pub(super) struct BuiltIn {
    pub(super) name: &'static str,
    pub(super) config: &'static str,
    pub(super) weights: &'static [u8],
}

macro_rules! built_in {
    ($name:literal) => {
        BuiltIn {
            name: $name,
            config: include_str!(concat!("../../../assets/models/", $name, "/config.json")),
            weights: include_bytes!(concat!("../../../assets/models/", $name, "/model.safetensors")),
        }
    };
}

/// Of each variant of `difftool train experiments/study-b-models.toml` the seed that answers best; see `assets/models/README.md`.
static BUILT_IN: [BuiltIn; 4] =
    [built_in!("transformer"), built_in!("diff"), built_in!("diff-v2"), built_in!("diff-no-norm")];

/// Prefix of the name of a built-in model, for where a folder has the same name.
const BUILT_IN_PREFIX: &str = "built-in:";

/// Models measured by default: the standard transformer, and DIFF V1 and V2 as published.
pub const BY_DEFAULT: [&str; 3] = ["transformer", "diff", "diff-v2"];

/// Names of the built-in models.
pub fn built_in_names() -> Vec<&'static str> {
    BUILT_IN.iter().map(|model| model.name).collect()
}

/// The built-in model of a name.
pub(super) fn built_in(name: &str) -> Option<&'static BuiltIn> {
    let name = name.strip_prefix(BUILT_IN_PREFIX).unwrap_or(name);
    BUILT_IN.iter().find(|model| model.name == name)
}

pub(super) fn is_built_in(name: &str) -> bool {
    built_in(name).is_some()
}

/// The name of a built-in model in results: with the prefix only where the current folder has a model of this name.
fn built_in_name(name: &str) -> String {
    if is_model(name) {
        format!("{BUILT_IN_PREFIX}{name}")
    } else {
        name.to_owned()
    }
}

/// Expands model names: `all` to the built-in models, no name to [`BY_DEFAULT`], and a folder with several seeds from
/// `difftool train` to the model of each seed. One folder has one name, however it is written.
///
/// # Errors
/// A usage error if a model is named twice, or a name is that of a built-in model and of a folder.
pub fn resolve(names: &[String]) -> Result<Vec<String>> {
    if names.is_empty() {
        return Ok(BY_DEFAULT.map(built_in_name).to_vec());
    }
    let mut wanted = Vec::new();
    for name in names {
        match name.as_str() {
            "all" => wanted.extend(built_in_names().into_iter().map(built_in_name)),
            name => {
                let name = plain(name)?;
                wanted.extend(seeds_of(&name).unwrap_or_else(|| vec![name]));
            }
        }
    }
    if let Some(name) = repeated(&wanted) {
        bail_usage!("model {name} is named twice");
    }
    let places: Vec<_> = wanted.iter().filter(|name| !is_built_in(name)).map(std::fs::canonicalize).collect();
    if let Some(place) = repeated(&places.into_iter().flatten().collect::<Vec<_>>()) {
        bail_usage!("model {} is named twice, in two ways", place.display());
    }
    Ok(wanted)
}

/// A name without what makes no difference: `./a`, `a/` and `a` are one. It keeps `./` where the rest would mean something else,
/// and `built-in:` where the rest is a folder.
///
/// # Errors
/// A usage error if the name is that of a built-in model and of a folder.
pub(super) fn plain(name: &str) -> Result<String> {
    if let Some(model) = built_in(name) {
        let own = built_in_name(model.name);
        if name == model.name && name != own {
            bail_usage!(
                "model {name}: a built-in model and a folder have this name; write ./{name} for the folder, or {own}"
            );
        }
        return Ok(own);
    }
    if hub::is_spec(name) {
        return Ok(name.trim_end_matches('/').to_owned());
    }
    let parts = Path::new(name).components().filter(|part| *part != Component::CurDir);
    let path = parts.collect::<PathBuf>().into_os_string().into_string().unwrap_or_default();
    if path.is_empty() {
        return Ok(name.to_owned());
    }
    let is_other = is_built_in(&path) || path == "all" || hub::is_spec(&path) || is_formula(&path);
    Ok(if is_other && path != name { format!("./{path}") } else { path })
}

/// Returns `true` if a folder has a model, or the models of several seeds.
fn is_model(name: &str) -> bool {
    Path::new(name).join(CONFIG).exists() || seeds_of(name).is_some()
}

/// The models `FOLDER/seed-N` in the order of seeds, or `None` if the name is that of a model.
fn seeds_of(name: &str) -> Option<Vec<String>> {
    if Path::new(name).join(CONFIG).exists() {
        return None;
    }
    let recipe = name;
    let folders = Replicates::default();
    let mut seeds: Vec<(u64, String)> = Vec::new();
    for entry in Path::new(name).read_dir().ok()?.filter_map(Result::ok) {
        let name = format!("{recipe}/{}", entry.file_name().into_string().unwrap_or_default());
        let seed = folders.split(&name).filter(|(of, _)| of == recipe && entry.path().join(CONFIG).exists());
        seeds.extend(seed.map(|(_, seed)| (seed, name)));
    }
    seeds.sort_by(Ord::cmp);
    (!seeds.is_empty()).then(|| seeds.into_iter().map(|(_, name)| name).collect())
}

/// Returns `true` for a name of the form org/name.
pub(super) fn is_hub_name(name: &str) -> bool {
    name.split_once('/').is_some_and(|(org, model)| !org.is_empty() && !org.starts_with('.') && !model.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_seeds_expands_to_its_models_in_numeric_order() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().to_str().unwrap();
        for seed in ["seed-10", "seed-2", "seed-x", "seed-3"] {
            std::fs::create_dir(folder.path().join(seed)).unwrap();
        }
        for begun in ["seed-10", "seed-2", "seed-x"] {
            std::fs::write(folder.path().join(begun).join("config.json"), "{}").unwrap();
        }
        let expected = [format!("{name}/seed-2"), format!("{name}/seed-10")];
        assert_eq!(resolve(&[format!("{name}/")]).unwrap(), expected);
        let twice = resolve(&[name.to_owned(), expected[1].clone()]).unwrap_err().to_string();
        assert!(twice.contains("seed-10 is named twice"), "{twice}");
        std::fs::write(folder.path().join("config.json"), "{}").unwrap();
        assert_eq!(resolve(&[name.to_owned()]).unwrap(), [name], "it is a model itself");
    }
}

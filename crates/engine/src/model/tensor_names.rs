//! The tables of tensor names in `families.toml`.

use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use toml::Table;

/// The families and their tensor names.
pub(super) const FAMILIES_TOML: &str = include_str!("families/families.toml");

/// Names of tensors in the files of a family, and which of them the files keep together: a table of `families.toml`, where
/// the fields are explained.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TensorNames {
    pub(super) layers: String,
    #[serde(default)]
    pub(super) renamed: BTreeMap<String, String>,
    pub(super) fused_qkv: Option<String>,
    #[serde(default)]
    pub(super) by_group: bool,
    pub(super) fused_gate: Option<String>,
    pub(super) transposed: bool,
    pub(super) joined: Joined,
    #[serde(default)]
    pub(super) pairs_of_qk: bool,
    #[serde(default)]
    pub(super) ignored: Vec<String>,
    #[serde(default)]
    pub(super) more_layers: bool,
}

/// Tensors of the model that files keep in one, besides fused projections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Joined {
    Nothing,
    /// Of Qwen 3 (arXiv 2505.06708).
    QueriesAndGate,
    /// Of Cohere.
    HeadNorms,
    /// Of gpt-oss.
    Experts,
    AsInGguf,
}

/// The tensor names that `families.toml` lists under `name`.
///
/// # Panics
/// If there is no such table, or the embedded file is invalid, which a test rules out.
pub(super) fn tensor_names(name: &str) -> &'static TensorNames {
    static NAMES: OnceLock<BTreeMap<String, TensorNames>> = OnceLock::new();
    let names = NAMES.get_or_init(|| parsed(FAMILIES_TOML).expect("families.toml is tested"));
    names.get(name).unwrap_or_else(|| panic!("families.toml has no names {name}"))
}

fn parsed(text: &str) -> Result<BTreeMap<String, TensorNames>> {
    let mut tables = BTreeMap::new();
    for (name, names) in with_bases(&text.parse()?, "names")? {
        tables.insert(name.clone(), names.try_into().context(name)?);
    }
    Ok(tables)
}

/// The tables below `key`, each with what it does not state from its base, which stands before it.
pub(super) fn with_bases(file: &Table, key: &str) -> Result<Table> {
    let mut whole = Table::new();
    for (name, own) in file[key].as_table().context("expected tables")? {
        let mut own = own.as_table().context("expected a table")?.clone();
        let mut table = Table::new();
        if let Some(base) = own.remove("base") {
            let base = base.as_str().and_then(|base| whole.get(base)?.as_table());
            table = base.with_context(|| format!("{name}: the base is no table before it"))?.clone();
        }
        if let (Some(base), Some(own)) = (table.get_mut("renamed"), own.get_mut("renamed")) {
            for (ours, theirs) in base.as_table().context("expected a table")? {
                own.as_table_mut().context("expected a table")?.entry(ours).or_insert(theirs.clone());
            }
        }
        table.extend(own);
        whole.insert(name.clone(), table.into());
    }
    Ok(whole)
}

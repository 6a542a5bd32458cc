//! What stands in the place of `parquet` in a program that is built without it.

use anyhow::{bail, Result};
use csv::StringRecord;
use std::path::Path;

/// # Errors
/// Always.
pub(crate) fn write(_results: &Path, to: &Path) -> Result<()> {
    bail!("{}: difftool writes Parquet files if it is built with `--features parquet`", to.display())
}

/// # Errors
/// Always.
pub(super) fn rows(path: &Path) -> Result<std::iter::Empty<Result<StringRecord>>> {
    bail!("{} is a Parquet file, which difftool reads if it is built with `--features parquet`", path.display())
}

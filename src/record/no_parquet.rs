//! Replacement of `parquet` in a build without that feature.

use anyhow::{bail, Result};
use csv::StringRecord;
use std::path::Path;

/// Returns an error that names the missing feature.
pub(crate) fn write(_results: &Path, to: &Path) -> Result<()> {
    bail!("{}: this difftool cannot write Parquet files; build it with `--features parquet`", to.display())
}

/// Returns an error that names the missing feature.
pub(super) fn rows(path: &Path) -> Result<std::iter::Empty<Result<StringRecord>>> {
    bail!("{}: this difftool cannot read Parquet files; build it with `--features parquet`", path.display())
}

//! The numbers of the pictures as matrices.

use crate::measure::Maps;
use crate::probe::{Grid, Quantity};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// `maps.npy` becomes `maps-2.npy`.
pub(super) fn numbered(path: &Path, number: usize) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{number}.{extension}"))
}

/// One file for each map, numbered if there are several: models in order, and for each its maps.
pub(super) fn write_data(path: &Path, maps: &BTreeMap<usize, Maps>, full: bool) -> Result<()> {
    let grids: Vec<(Quantity, &Grid)> =
        maps.values().flat_map(|maps| maps.grids.iter().map(|(quantity, _, grid)| (*quantity, grid))).collect();
    for (i, (quantity, grid)) in grids.iter().enumerate() {
        let path = if grids.len() == 1 { path.to_owned() } else { numbered(path, i + 1) };
        // A weight that is masked is 0; a masked logit is no number.
        let is_logit = matches!(quantity, Quantity::Logits(_));
        let fill = |x: f32| if x.is_nan() && full && !is_logit { 0.0 } else { x };
        let values: Vec<f32> = grid.values.iter().map(|&x| fill(x)).collect();
        let cannot = || format!("cannot write {}", path.display());
        if path.extension().is_some_and(|extension| extension == "npy") {
            let shape = (grid.rows, grid.columns);
            let tensor = candle_core::Tensor::from_vec(values, shape, &candle_core::Device::Cpu)?;
            tensor.write_npy(&path).with_context(cannot)?;
        } else {
            write_csv(&path, grid, &values).with_context(cannot)?;
        }
    }
    Ok(())
}

/// A matrix with the first key of every column above it and the first query of every row before it.
fn write_csv(path: &Path, grid: &Grid, values: &[f32]) -> Result<()> {
    let mut csv = csv::Writer::from_path(path)?;
    let keys = grid.column_edges[..grid.columns].iter().map(ToString::to_string);
    csv.write_record(std::iter::once("query".to_owned()).chain(keys))?;
    for (row, query) in values.chunks(grid.columns).zip(&grid.row_edges) {
        let cells = row.iter().map(|x| if x.is_nan() { String::new() } else { x.to_string() });
        csv.write_record(std::iter::once(query.to_string()).chain(cells))?;
    }
    csv.flush()?;
    Ok(())
}

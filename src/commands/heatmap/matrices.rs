//! The numbers of the pictures as matrices.

use crate::base::files::folder_of;
use crate::measures::{MapMeasure, PassKey, PooledMap, RowQuantity};
use crate::run::{MapFlags, Setup};
use anyhow::{Context, Result};
use candle_core::{Device, Tensor};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Returns the file name for one of several maps: `maps-diff-layer2-head0-a1.npy`.
fn path_of_map(path: &Path, setup: &Setup, at: &PassKey, place: String, quantity: RowQuantity) -> PathBuf {
    // A model may be named by its path, and a condition has brackets.
    let condition = setup.conditions[at.condition].column().map_or(String::new(), |name| format!("-{name}"));
    let pass = format!("{}{condition}", setup.models[at.model].name)
        .replace(|c: char| !c.is_alphanumeric() && !"._-".contains(c), "_");
    let map = match quantity {
        RowQuantity::Effective => "effective".to_owned(),
        RowQuantity::Map(map) => format!("a{}", map + 1),
        RowQuantity::Subtracted => "lambda-a2".to_owned(),
        RowQuantity::Logits(map) => format!("logits{}", map + 1),
    };
    let (stem, extension) = parts(path);
    path.with_file_name(format!("{stem}-{pass}-{place}-{map}.{extension}"))
}

fn parts(path: &Path) -> (String, String) {
    let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    (text(path.file_stem()), text(path.extension()))
}

/// A file that has the name, or one of those that it stands for with several maps.
pub(super) fn taken(path: &Path) -> Option<PathBuf> {
    let (stem, extension) = parts(path);
    for entry in std::fs::read_dir(folder_of(path)).into_iter().flatten().filter_map(Result::ok) {
        let (name, ending) = parts(&entry.path());
        if ending == extension && (name == stem || name.starts_with(&format!("{stem}-"))) {
            return Some(entry.path());
        }
    }
    None
}

/// One file for each map, named after it if there are several. What a sink takes of each row is the last column of a CSV file,
/// and of a `.npy` file one of its own.
pub(super) fn write_matrices(path: &Path, measure: &MapMeasure, spec: &MapFlags, setup: &Setup) -> Result<()> {
    let grids: Vec<_> = measure.maps.iter().flat_map(|(at, maps)| maps.maps.iter().map(move |g| (at, g))).collect();
    for (at, (quantity, (layer, _), grid)) in &grids {
        let head = spec.head.map_or(String::new(), |head| format!("-head{head}"));
        let path = match grids.len() {
            1 => path.to_owned(),
            _ => path_of_map(path, setup, at, format!("layer{layer}{head}"), *quantity),
        };
        // A weight that is masked is 0; a masked logit is no number.
        let is_logit = matches!(quantity, RowQuantity::Logits(_));
        let fill = |x: f32| if x.is_nan() && spec.full && !is_logit { 0.0 } else { x };
        let values: Vec<f32> = grid.values.iter().map(|&x| fill(x)).collect();
        let cannot = || format!("cannot write {}", path.display());
        if path.extension().is_some_and(|extension| extension == "npy") {
            write_npy(&path, Tensor::from_vec(values, (grid.rows, grid.columns), &Device::Cpu)?)
                .with_context(cannot)?;
            if !grid.sinks.is_empty() {
                let (stem, extension) = parts(&path);
                let sinks: Vec<f32> = grid.sinks.iter().map(|&x| fill(x)).collect();
                let path = path.with_file_name(format!("{stem}-sink.{extension}"));
                write_npy(&path, Tensor::from_vec(sinks, grid.rows, &Device::Cpu)?)
                    .with_context(|| format!("cannot write {}", path.display()))?;
            }
        } else {
            write_csv(&path, grid, &values).with_context(cannot)?;
        }
    }
    Ok(())
}

/// Exclusively: whatever has come to be there meanwhile is somebody's.
fn write_npy(path: &Path, tensor: Tensor) -> Result<()> {
    File::create_new(path)?;
    Ok(tensor.write_npy(path)?)
}

/// A matrix with the first key of every column above it and the first query of every row before it.
fn write_csv(path: &Path, grid: &PooledMap, values: &[f32]) -> Result<()> {
    let mut csv = csv::Writer::from_writer(File::create_new(path)?);
    let keys = grid.column_edges[..grid.columns].iter().map(ToString::to_string);
    let sink = (!grid.sinks.is_empty()).then(|| "sink".to_owned());
    csv.write_record(std::iter::once("query".to_owned()).chain(keys).chain(sink))?;
    for (i, (row, query)) in values.chunks(grid.columns).zip(&grid.row_edges).enumerate() {
        let cells = row.iter().chain(grid.sinks.get(i));
        let cells = cells.map(|x| if x.is_nan() { String::new() } else { x.to_string() });
        csv.write_record(std::iter::once(query.to_string()).chain(cells))?;
    }
    csv.flush()?;
    Ok(())
}

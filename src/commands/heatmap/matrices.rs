//! The numbers of the pictures as matrices.

use crate::measures::{MapMeasure, PassKey, PooledMap, RowQuantity};
use crate::run::{MapFlags, Run};
use anyhow::{ensure, Result};
use base::files::{folder_of, is_there, replace};
use candle_core::npy::NpzTensors;
use candle_core::{Device, Tensor};
use names::HeadPlace;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The name of a pass in the names of its maps: its model's short name and its condition.
fn name_of_pass(run: &Run, at: &PassKey) -> String {
    let condition = run.setup().conditions[at.condition].column().map_or(String::new(), |name| format!("-{name}"));
    let model = run.frame.short_name(&run.setup().models[at.model].name);
    // A short name may be of several folders, and a condition has brackets.
    format!("{model}{condition}").replace(|c: char| !c.is_alphanumeric() && !"._-".contains(c), "_")
}

/// The name of one of several maps: `diff-layer2-head0-a1`.
fn name_of_map(pass: &str, place: &str, quantity: RowQuantity) -> String {
    let map = match quantity {
        RowQuantity::Effective => "effective".to_owned(),
        RowQuantity::Map(map) => format!("a{}", map + 1),
        RowQuantity::Subtracted => "lambda-a2".to_owned(),
        RowQuantity::Logits(map) => format!("logits{}", map + 1),
    };
    format!("{pass}-{place}-{map}")
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

/// Writes one file for each map, named after it if there are several, or all maps into an `.npz`, with the tokens of the
/// prompt. What a sink takes of each row is the last column of a CSV file, and otherwise an array of its own.
pub(super) fn write_matrices(path: &Path, measure: &MapMeasure, spec: &MapFlags, run: &Run) -> Result<()> {
    let maps: Vec<_> = measure.maps.iter().flat_map(|(at, maps)| maps.maps.iter().map(move |map| (at, map))).collect();
    let (stem, extension) = parts(path);
    let mut arrays: Vec<(String, Tensor)> = Vec::new(); // of the .npz
    let mut names = BTreeSet::new();
    for (at, (quantity, HeadPlace { layer, head }, map)) in &maps {
        let head = spec.head.or(measure.by_head.then_some(*head));
        let place = format!("layer{layer}{}", head.map_or(String::new(), |head| format!("-head{head}")));
        let name = unlike(&mut names, &name_of_map(&name_of_pass(run, at), &place, *quantity));
        let file = |name: &str| path.with_file_name(format!("{name}.{extension}"));
        let own = if maps.len() == 1 { stem.clone() } else { format!("{stem}-{name}") };
        // A weight that is masked is 0; a masked logit is no number.
        let is_logit = matches!(quantity, RowQuantity::Logits(_));
        let fill = |x: &f32| if x.is_nan() && spec.full && !is_logit { 0.0 } else { *x };
        let values: Vec<f32> = map.values.iter().map(fill).collect();
        if extension == "csv" {
            write_new(&file(&own), |partial| write_csv(partial, map, &values))?;
            continue;
        }
        let mut tensors = vec![("", Tensor::from_vec(values, (map.rows, map.columns), &Device::Cpu)?)];
        if !map.sinks.is_empty() {
            let sinks: Vec<f32> = map.sinks.iter().map(fill).collect();
            tensors.push(("-sink", Tensor::from_vec(sinks, map.rows, &Device::Cpu)?));
        }
        for (ending, tensor) in tensors {
            if extension == "npz" {
                arrays.push((format!("{name}{ending}"), tensor));
                continue;
            }
            write_new(&file(&format!("{own}{ending}")), |partial| Ok(tensor.write_npy(partial)?))?;
        }
    }
    if extension == "npz" {
        for (at, maps) in &measure.maps {
            let name = unlike(&mut names, &format!("{}-tokens", name_of_pass(run, at)));
            arrays.push((name, texts(&maps.tokens)?));
        }
        write_new(path, |partial| {
            Tensor::write_npz(&arrays, partial)?;
            // The library ignores that the end of the file cannot be written.
            ensure!(NpzTensors::new(partial)?.names().len() == arrays.len(), "the file is not complete");
            Ok(())
        })?;
    }
    Ok(())
}

/// Texts in UTF-8, a row of bytes each, filled with zeros: NumPy's arrays of text have a type that tensors lack.
fn texts(tokens: &[String]) -> Result<Tensor> {
    let longest = tokens.iter().map(String::len).max().unwrap_or(0);
    let mut bytes = Vec::with_capacity(tokens.len() * longest);
    for token in tokens {
        bytes.extend_from_slice(token.as_bytes());
        bytes.resize(bytes.len() + longest - token.len(), 0);
    }
    Ok(Tensor::from_vec(bytes, (tokens.len(), longest), &Device::Cpu)?)
}

/// A name that is not among `names`, to which it is added: models and conditions may be the same but for letters that names of files
/// cannot have.
fn unlike(names: &mut BTreeSet<String>, name: &str) -> String {
    let mut other = name.to_owned();
    let mut n = 1;
    while !names.insert(other.clone()) {
        n += 1;
        other = format!("{name}-{n}");
    }
    other
}

/// Writes a file whole or not at all. Whatever has come to be there meanwhile is somebody's.
fn write_new(path: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    ensure!(!is_there(path), "cannot write {}: it exists", path.display());
    replace(path, write)
}

/// A matrix with the first key of every column above it and the first query of every row before it.
fn write_csv(path: &Path, grid: &PooledMap, values: &[f32]) -> Result<()> {
    let mut csv = csv::Writer::from_path(path)?;
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

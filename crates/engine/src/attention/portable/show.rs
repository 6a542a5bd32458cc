//! Copies rows of a tile from the device for the probes.

use super::{index, Portable, SoftmaxMap, Tile};
use crate::attention::probes::HeadProbes;
use crate::attention::tile::mix_rows;
use crate::attention::{AttentionRow, Values};
use crate::kernels::{numbers, Panels};
use candle_core::{Result, Tensor};
use rayon::prelude::*;

/// The wanted rows of one map, on the host.
struct Copied {
    /// (rows, keys)
    weights: Vec<f32>,
    /// (rows, keys); nothing if no probe wants logits.
    logits: Option<Vec<f32>>,
    /// (rows)
    sinks: Option<Vec<f32>>,
}

impl Portable<'_> {
    /// Passes the `wanted` rows of every head to its probes. All rows are copied at once.
    pub(super) fn show(
        &self,
        tile: &Tile,
        maps: &[SoftmaxMap],
        wanted: &[Vec<usize>],
        values: &[Panels],
        watched: &mut [HeadProbes<'_>],
    ) -> Result<()> {
        let first = tile.queries.start;
        let n = tile.queries.len();
        let mut rows = Vec::new();
        // Where the copied rows of each head begin.
        let mut starts = Vec::new();
        for (head, queries) in wanted.iter().enumerate() {
            starts.push(rows.len());
            rows.extend(queries.iter().map(|query| head * n + query - first));
        }
        if rows.is_empty() {
            return Ok(());
        }
        let rows = index(&rows, self.device())?;
        let with_logits = watched.iter().zip(wanted).any(|(watched, wanted)| watched.wants_logits(wanted));
        let mut copied = Vec::new();
        for map in maps {
            copied.push(Copied {
                weights: pick(&map.weights, &rows)?,
                logits: if with_logits { Some(pick(&map.logits, &rows)?) } else { None },
                sinks: map.sink.as_ref().map(|sink| pick(sink, &rows)).transpose()?,
            });
        }
        let d = self.heads.q.dim(3)?;
        watched.par_iter_mut().zip(wanted).zip(starts).enumerate().for_each(|(head, ((watched, wanted), start))| {
            let values = Values::new(values, &self.heads.wiring.value[head], d);
            for (row, &query) in (start..).zip(wanted) {
                self.show_row(tile, &copied, row, query, values, watched);
            }
        });
        Ok(())
    }

    /// Passes one row to the probes of its head, with keys counted from the first of the prompt.
    fn show_row(
        &self,
        tile: &Tile,
        copied: &[Copied],
        row: usize,
        query: usize,
        values: Values<'_>,
        watched: &mut HeadProbes<'_>,
    ) {
        let keys = &tile.masks.keys;
        let whole = |rows: &[f32]| {
            let mut whole = vec![0.0; keys.start];
            whole.extend(&rows[row * keys.len()..][..query + 1 - keys.start]);
            whole
        };
        let maps: Vec<Vec<f32>> = copied.iter().map(|copied| whole(&copied.weights)).collect();
        let logits: Vec<Vec<f32>> = copied.iter().filter_map(|copied| copied.logits.as_deref().map(whole)).collect();
        let sinks: Vec<f32> = copied.iter().filter_map(|copied| Some(copied.sinks.as_ref()?[row])).collect();
        let mix = self.scalars.mix(query, watched.at.head);
        let mut mixed = Vec::new();
        let effective: &[f32] = match maps.as_slice() {
            [first, second] => {
                mixed.resize(query + 1, 0.0);
                mix_rows(&mut mixed, first, second, mix[1]);
                &mixed
            }
            maps => &maps[0],
        };
        watched.observe(&AttentionRow {
            query,
            first_visible: self.heads.rule.first_visible(query),
            logits: &logits.iter().map(Vec::as_slice).collect::<Vec<_>>(),
            maps: &maps.iter().map(Vec::as_slice).collect::<Vec<_>>(),
            mix: &mix[..maps.len()],
            sinks: &sinks,
            effective,
            values,
        });
    }
}

/// Rows of x (1, H, queries, columns), as numbers: (rows, columns).
fn pick(x: &Tensor, rows: &Tensor) -> Result<Vec<f32>> {
    let (_, heads, n, columns) = x.dims4()?;
    numbers(&x.reshape((heads * n, columns))?.index_select(rows, 0)?)
}

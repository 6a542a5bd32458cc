//! Compression of the stored data into a budget.

use super::codes::{coarser, RUN};
use super::detail::{HeadDetail, PairCodes, PooledQuantity};
use super::probe::FINEST;
use super::stored_pairs::StoredPairs;
use crate::html::deflate;
use crate::measures::{Pooling, RowQuantity};
use anyhow::Result;
use rayon::prelude::*;
use serde::Serialize;
use std::ops::Range;

/// Query rows that are compressed together.
pub(super) const ROWS: usize = 256;

/// The coarsest step, 2^-4, which shows only large weights.
const COARSEST: i8 = -4;

/// One in this many chunks is compressed to estimate the total size.
const SAMPLED: usize = 8;

/// Offset and length of a compressed chunk in its blob, the concatenated chunks.
pub(super) type ChunkRange = (usize, usize);

/// Appends a compressed chunk to a blob.
fn push(blob: &mut Vec<u8>, deflated: &[u8]) -> ChunkRange {
    let start = blob.len();
    blob.extend_from_slice(deflated);
    (start, deflated.len())
}

/// Positions of a head's data in its blob.
#[derive(Debug, Default, Serialize)]
pub(super) struct HeadIndex {
    /// Pooled maps: quantity, pooling, chunk.
    pub(crate) grids: Vec<(&'static str, &'static str, ChunkRange)>,
    /// Rows of each softmax map, [`ROWS`] to a chunk.
    pub(crate) maps: Vec<Vec<ChunkRange>>,
    /// Rows of each softmax map that predict an answer, at higher precision.
    pub(crate) answers: Vec<ChunkRange>,
    /// Logits of these rows for each map.
    pub(crate) logits: Vec<ChunkRange>,
    /// Contributions of the keys in these rows: at most one chunk, none if unknown.
    pub(crate) contributions: Vec<ChunkRange>,
    /// Weight of the second map for each query as 32-bit floats; `None` for one map.
    pub(crate) lambdas: Option<ChunkRange>,
    /// Weight of the sink for each query as 32-bit floats, for each softmax map; empty without sinks.
    pub(crate) taken: Vec<ChunkRange>,
}

/// Name of a pooled quantity in the page.
pub(super) fn pooled_name(pooled: PooledQuantity) -> &'static str {
    match pooled {
        PooledQuantity::Of(RowQuantity::Effective) => "effective",
        PooledQuantity::Of(RowQuantity::Map(0)) => "a1",
        PooledQuantity::Of(RowQuantity::Map(_)) => "a2",
        PooledQuantity::Of(RowQuantity::Subtracted) => "la2",
        PooledQuantity::Of(RowQuantity::Logits(0)) => "logits1",
        PooledQuantity::Of(RowQuantity::Logits(_)) => "logits2",
        PooledQuantity::Contribution => "contribution",
    }
}

/// Positions of the stored rows of a map: first run and first code of each.
pub(super) struct RowOffsets {
    runs: Vec<usize>,
    codes: Vec<usize>,
}

impl RowOffsets {
    /// Creates the positions for maps with this window.
    pub(super) fn new(keep: &StoredPairs, window: Option<usize>) -> Self {
        let mut runs = vec![0];
        let mut codes = vec![0];
        for query in 0..keep.tokens {
            let kept = keep.runs(query, window.map_or(0, |window| (query + 1).saturating_sub(window)));
            runs.push(runs[query] + kept.len());
            let lengths = kept.iter().map(|run| ((run + 1) * RUN).min(query + 1) - run * RUN);
            codes.push(codes[query] + lengths.sum::<usize>());
        }
        Self { runs, codes }
    }

    /// Encodes rows of a map with steps of at least 2^`floor`: number of exponents and number of gaps (little-endian,
    /// 32 bits each), the exponents, for each nonzero code the number of zeros before it (its gap), and the nonzero
    /// codes. Gaps of 255 or more take several bytes: 255 each until less is left.
    fn bytes(&self, pairs: &PairCodes<u8>, queries: Range<usize>, floor: i8) -> Vec<u8> {
        let codes = &pairs.codes[self.codes[queries.start]..self.codes[queries.end]];
        let mut exponents = Vec::new();
        let mut gaps = Vec::new();
        let mut kept = Vec::new();
        let mut at = 0;
        let mut gap = 0;
        for query in queries {
            let runs = &pairs.exponents[self.runs[query]..self.runs[query + 1]];
            for (i, &exponent) in runs.iter().enumerate() {
                // All runs have the full length except the last, which ends at the query.
                let length = if i + 1 == runs.len() { query % RUN + 1 } else { RUN };
                exponents.push(exponent.max(floor) as u8);
                let by = (i32::from(floor) - i32::from(exponent)).max(0) as u32;
                for code in codes[at..at + length].iter().map(|&code| coarser(code, by)) {
                    if code == 0 {
                        gap += 1;
                    } else {
                        gaps.extend(std::iter::repeat_n(255, gap / 255).chain([(gap % 255) as u8]));
                        kept.push(code);
                        gap = 0;
                    }
                }
                at += length;
            }
        }
        let counts = [exponents.len() as u32, gaps.len() as u32].map(u32::to_le_bytes);
        [counts.as_flattened(), &exponents, &gaps, &kept].concat()
    }
}

/// Ranges of query rows that form a chunk.
fn row_parts(tokens: usize) -> Vec<Range<usize>> {
    (0..tokens).step_by(ROWS).map(|start| start..(start + ROWS).min(tokens)).collect()
}

/// A detailed head, with which of its pairs are stored.
#[derive(Clone, Copy)]
pub(super) struct StoredHead<'a> {
    pub(super) detail: &'a HeadDetail,
    pub(super) keep: &'a StoredPairs,
}

/// Exponent of the finest step for which the pairs take about `budget` bytes.
pub(super) fn fitting_floor(heads: &[StoredHead<'_>], budget: usize) -> Result<i8> {
    let mut too_fine = FINEST - 1;
    let mut fits = COARSEST;
    while fits - too_fine > 1 {
        let floor = (too_fine + fits) / 2;
        if sampled_bytes(heads, floor)? > budget {
            too_fine = floor;
        } else {
            fits = floor;
        }
    }
    Ok(fits)
}

/// Estimated size of the pairs, in bytes.
fn sampled_bytes(heads: &[StoredHead<'_>], floor: i8) -> Result<usize> {
    let mut sampled = 0;
    for (i, &StoredHead { detail, keep }) in heads.iter().enumerate() {
        let rows = RowOffsets::new(keep, detail.window);
        // Different chunks of each head, because later rows are longer.
        let parts: Vec<Range<usize>> = row_parts(keep.tokens).into_iter().skip(i % SAMPLED).step_by(SAMPLED).collect();
        let mut chunks = Vec::new();
        for map in &detail.maps {
            chunks.extend(parts.iter().map(|part| (map, part.clone())));
        }
        let chunks = chunks.into_par_iter().with_max_len(1);
        let sizes = chunks.map(|(map, part)| Ok(deflate(&rows.bytes(map, part, floor))?.len()));
        sampled += sizes.sum::<Result<usize>>()?;
    }
    Ok(sampled * SAMPLED)
}

/// Encodes exponents, then the low bytes of all codes, then the high bytes, which are similar.
fn words(pairs: &PairCodes<i16>) -> Vec<u8> {
    let mut bytes: Vec<u8> = pairs.exponents.iter().map(|&exponent| exponent as u8).collect();
    for byte in 0..2 {
        bytes.extend(pairs.codes.iter().map(|code| code.to_le_bytes()[byte]));
    }
    bytes
}

fn floats(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Compresses everything of a head except its pairs into a blob.
pub(super) fn pack_pooled(detail: &HeadDetail, blob: &mut Vec<u8>) -> Result<HeadIndex> {
    let mut index = HeadIndex::default();
    let deflated: Vec<Vec<u8>> = detail.pooled.par_iter().map(|(.., bytes)| deflate(bytes)).collect::<Result<_>>()?;
    for ((pooled, pooling, _), bytes) in detail.pooled.iter().zip(&deflated) {
        let pooling = if *pooling == Pooling::Max { "max" } else { "mean" };
        index.grids.push((pooled_name(*pooled), pooling, push(blob, bytes)));
    }
    for (pairs, parts) in [
        (&detail.answers, &mut index.answers),
        (&detail.logits, &mut index.logits),
        (&detail.contributions, &mut index.contributions),
    ] {
        for pairs in pairs {
            parts.push(push(blob, &deflate(&words(pairs))?));
        }
    }
    if !detail.lambdas.is_empty() {
        index.lambdas = Some(push(blob, &deflate(&floats(&detail.lambdas))?));
    }
    for taken in &detail.taken {
        index.taken.push(push(blob, &deflate(&floats(taken))?));
    }
    Ok(index)
}

/// Compresses the pairs of a head into its blob.
pub(super) fn pack_pairs(
    StoredHead { detail, keep }: StoredHead<'_>,
    floor: i8,
    blob: &mut Vec<u8>,
    index: &mut HeadIndex,
) -> Result<()> {
    let rows = RowOffsets::new(keep, detail.window);
    for map in &detail.maps {
        let parts = row_parts(keep.tokens).into_par_iter().with_max_len(1);
        let parts: Vec<Vec<u8>> = parts.map(|part| deflate(&rows.bytes(map, part, floor))).collect::<Result<_>>()?;
        index.maps.push(parts.iter().map(|part| push(blob, part)).collect());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::codes::CodeType;
    use super::*;
    use stats::Rng;

    /// Straightforward decoder: (query, key) and weight of every stored pair.
    fn decode(bytes: &[u8], keep: &StoredPairs, queries: Range<usize>) -> Vec<((usize, usize), f32)> {
        let count = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let runs = count(0);
        let gaps = count(4);
        let exponents = &bytes[8..8 + runs];
        let (gaps, codes) = bytes[8 + runs..].split_at(gaps);
        let mut all = Vec::new(); // of all pairs
        let mut codes = codes.iter();
        for &gap in gaps {
            all.extend(std::iter::repeat_n(0, usize::from(gap)));
            all.extend((gap < 255).then(|| *codes.next().unwrap()));
        }
        let mut exponents = exponents.iter();
        let mut all = all.into_iter().chain(std::iter::repeat(0));
        let mut pairs = Vec::new();
        for query in queries {
            for run in keep.runs(query, 0) {
                let step = f32::from(*exponents.next().unwrap() as i8).exp2();
                for key in run * RUN..((run + 1) * RUN).min(query + 1) {
                    pairs.push(((query, key), f32::from(all.next().unwrap()) * step));
                }
            }
        }
        assert!(exponents.next().is_none() && codes.next().is_none());
        pairs
    }

    #[test]
    fn packed_pairs_decode_within_a_step() {
        let mut rng = Rng::new(7, "explorer");
        let rows: Vec<Vec<f32>> =
            (0..600).map(|query| (0..=query).map(|_| (rng.normal() as f32 * 3.0).exp() * 1e-3).collect()).collect();
        for complete in [true, false] {
            let columns = vec![0, 3];
            let answer_rows = Vec::new();
            let keep = StoredPairs {
                tokens: 600,
                complete,
                band: 128,
                rows_from: 580,
                columns,
                answer_rows,
                contributions_from: 0,
            };
            let mut pairs = PairCodes::default();
            for (query, row) in rows.iter().enumerate() {
                pairs.add(row, &keep.runs(query, 0), CodeType::Byte, FINEST, |steps| steps as u8);
            }
            let layout = RowOffsets::new(&keep, None);
            for floor in [FINEST, -10, -7] {
                let parts = row_parts(600).into_iter();
                let pairs: Vec<_> =
                    parts.flat_map(|part| decode(&layout.bytes(&pairs, part.clone(), floor), &keep, part)).collect();
                assert_eq!(
                    pairs.len() as u64,
                    (0..600).map(|q: usize| (keep.runs(q, 0).len() * RUN - (RUN - 1) + q % RUN) as u64).sum::<u64>()
                );
                for ((query, key), weight) in pairs {
                    let run = key / RUN * RUN..((key / RUN + 1) * RUN).min(query + 1);
                    let largest = rows[query][run].iter().copied().fold(0.0, f32::max);
                    let step = f32::from(floor).exp2().max(2.0 * largest / 255.0);
                    assert!((weight - rows[query][key]).abs() <= 0.7501 * step, "{query}, {key}");
                }
            }
        }
    }

    #[test]
    fn a_smaller_budget_makes_coarser_steps() {
        let keep = StoredPairs {
            tokens: 512,
            complete: true,
            band: 0,
            rows_from: 512,
            columns: vec![0],
            answer_rows: Vec::new(),
            contributions_from: 0,
        };
        let mut rng = Rng::new(8, "explorer");
        let mut detail = HeadDetail::default();
        detail.maps.push(PairCodes::default());
        for query in 0..512 {
            let row: Vec<f32> = (0..=query).map(|_| (rng.normal() as f32 - 6.0).exp()).collect();
            detail.maps[0].add(&row, &keep.runs(query, 0), CodeType::Byte, FINEST, |steps| steps as u8);
        }
        let floor = |budget| fitting_floor(&[StoredHead { detail: &detail, keep: &keep }], budget).unwrap();
        assert_eq!(floor(usize::MAX), FINEST);
        assert_eq!(floor(0), COARSEST);
        let some = floor(60_000);
        assert!(some > FINEST && some < COARSEST && floor(30_000) > some);
        assert!(sampled_bytes(&[StoredHead { detail: &detail, keep: &keep }], some).unwrap() <= 60_000);
    }
}

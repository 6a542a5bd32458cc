//! Positions of a prompt: the rows that a treatment changes, and the keys that it removes from them.

use names::condition::{KeySelection, RowSelection};
use names::Region;
use stats::Rng;
use std::ops::Range;
use text::Prompt;

/// Rows with the regions that apply to them.
pub(super) type RegionView = (Range<usize>, Vec<Region>);

/// Positions of keys, ascending. Generated tokens belong to the last region.
pub(super) fn positions_of(keys: &KeySelection, regions: &[Region], seed: u64, generating: bool) -> Vec<Range<usize>> {
    match keys {
        KeySelection::Regions(set) => {
            let keys: Vec<usize> = (0..regions.len()).filter(|&i| set.contains(&regions[i])).collect();
            let mut keys = ranges(&keys);
            if let Some(last) = keys.last_mut().filter(|last| generating && last.end == regions.len()) {
                last.end = usize::MAX;
            }
            keys
        }
        KeySelection::Random(n) => random_keys(regions, *n, seed),
        KeySelection::RandomLike(set) => {
            random_keys(regions, regions.iter().filter(|region| set.contains(region)).count(), seed)
        }
    }
}

/// Random keys of the context, determined by the prompt's seed, so that they are the same for every treatment.
fn random_keys(regions: &[Region], n: usize, seed: u64) -> Vec<Range<usize>> {
    let outside = [Region::Bos, Region::First, Region::Question];
    let mut keys: Vec<usize> = (0..regions.len()).filter(|&i| !outside.contains(&regions[i])).collect();
    Rng::new(seed, "random keys").shuffle(&mut keys);
    keys.truncate(n);
    keys.sort_unstable();
    ranges(&keys)
}

/// Converts ascending positions to ranges.
fn ranges(positions: &[usize]) -> Vec<Range<usize>> {
    positions.chunk_by(|a, b| a + 1 == *b).map(|run| run[0]..run[run.len() - 1] + 1).collect()
}

/// The rows of a prompt, ascending.
pub fn rows_of(rows: RowSelection, prompt: &Prompt) -> Vec<Range<usize>> {
    region_views(prompt, rows, false).into_iter().map(|(rows, _)| rows).collect()
}

/// The treated rows with their regions, ascending. If generating, all rows from the one that predicts the first answer on count as
/// those of an answer, and the prompt has no end.
pub(super) fn region_views(prompt: &Prompt, rows: RowSelection, generating: bool) -> Vec<RegionView> {
    let mut answers: Vec<RegionView> = Vec::new();
    if generating {
        answers.push((prompt.tokens_before_answer().len().saturating_sub(1)..usize::MAX, of_no_question(prompt)));
    } else {
        answers.extend(prompt.targets().into_iter().map(|target| (target.rows, target.regions)));
        answers.sort_by_key(|(rows, _)| rows.start);
    }
    if rows == RowSelection::Answer {
        return answers;
    }
    let regions = of_no_question(prompt);
    let others = rows_of_no_answer(prompt, rows, &answers, &regions);
    if !matches!(rows, RowSelection::Question | RowSelection::All) {
        answers.clear();
    }
    answers.extend(others.into_iter().map(|rows| (rows, regions.clone())));
    answers.sort_by_key(|(rows, _)| rows.start);
    answers
}

/// The rows of a selection that predict no answer, ascending, of a prompt with these regions.
fn rows_of_no_answer(
    prompt: &Prompt,
    rows: RowSelection,
    answers: &[RegionView],
    regions: &[Region],
) -> Vec<Range<usize>> {
    let question = prompt.haystack.end;
    let mut selected = Vec::new();
    for row in (0..prompt.ids.len()).filter(|row| !answers.iter().any(|(answer, _)| answer.contains(row))) {
        let is_selected = match rows {
            RowSelection::Answer => false,
            RowSelection::Question | RowSelection::Asking => row >= question,
            RowSelection::All => true,
            RowSelection::Needle => regions[row] == Region::Needle,
            RowSelection::Value => regions[row] == Region::Answer,
            RowSelection::Context => row < question && !matches!(regions[row], Region::Needle | Region::Answer),
        };
        if is_selected {
            selected.push(row);
        }
    }
    ranges(&selected)
}

/// Regions for rows that answer no question: every needle asked for counts as the answer's.
fn of_no_question(prompt: &Prompt) -> Vec<Region> {
    let mut regions = prompt.regions(None);
    for needle in &prompt.needles {
        if prompt.queries.iter().any(|query| query.name == needle.name) {
            regions[needle.span.clone()].fill(Region::Needle);
            regions[needle.answer.clone()].fill(Region::Answer);
        }
    }
    regions
}

//! Names of models for display: shared folders, recipes and training seeds.

mod replicates;

pub(crate) use replicates::is_short_for;
pub use replicates::{Replicates, SEED_FOLDERS};

/// The folders that all of several names share, up to the last `/`. Empty for a single name.
pub(crate) fn shared_folder(names: &[String]) -> &str {
    let Some((first, others)) = names.split_first().filter(|(_, others)| !others.is_empty()) else { return "" };
    let shared = |&end: &usize| others.iter().all(|name| name.get(..end) == first.get(..end));
    let end = first.match_indices('/').map(|(at, _)| at + 1).take_while(shared).last();
    &first[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shared_folder_contains_all_models() {
        let shared =
            |list: &[&str]| shared_folder(&list.iter().map(ToString::to_string).collect::<Vec<_>>()).to_owned();
        assert_eq!(shared(&["runs/a/diff", "runs/a/diff-v2"]), "runs/a/");
        assert_eq!(shared(&["runs/a/diff", "runs/b/diff"]), "runs/");
        assert_eq!(shared(&["diff", "diff-v2"]), "");
        assert_eq!(shared(&["runs/a/diff", "runs"]), "");
        assert_eq!(shared(&["runs/a/diff"]), "", "alone it keeps its name");
        assert_eq!(shared(&[]), "");
    }
}

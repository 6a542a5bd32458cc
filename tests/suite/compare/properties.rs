//! Properties of comparisons: whatever is in files and flags is compared or refused, without a panic.

use super::*;

/// The request `difftool compare A B` makes.
fn request(a: &Path, b: &Path) -> Request {
    Request {
        inputs: vec![a.to_path_buf(), b.to_path_buf()],
        metric: vec!["all".parse().unwrap()],
        group_by: vec![Column::CtxTok],
        allow_different_prompts: true,
        ..Request::default()
    }
}

/// A field of a record, some of them beyond what any run writes.
fn field() -> impl Strategy<Value = String> {
    let odd =
        ["", "1", "-1", "NaN", "inf", "1e308", "-1.7976931348623157e308", "99999999999999999999", "a\nb", "\"", "é,"];
    prop_oneof![prop::sample::select(odd.to_vec()).prop_map(String::from), "[a-z0-9.]{0,4}"]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_fields_in_any_place_are_compared_or_refused(
        changes in prop::collection::vec((1_usize..9, 0_usize..24, field()), 1..6)
    ) {
        let scratch = Scratch::new();
        scratch.run("a", &Run { prompts: 3, ..RUN });
        let mut rows: Vec<Vec<String>> = csv::ReaderBuilder::new()
            .has_headers(false)
            .from_path(scratch.path("a/results.csv"))
            .unwrap()
            .records()
            .map(|row| row.unwrap().iter().map(String::from).collect())
            .collect();
        changes.into_iter().for_each(|(row, column, text)| rows[row][column] = text);
        let mut writer = csv::Writer::from_path(scratch.path("b.csv")).unwrap();
        rows.iter().for_each(|row| writer.write_record(row).unwrap());
        writer.flush().unwrap();
        if let Ok(comparison) = compare(&request(&scratch.path("a"), &scratch.path("b.csv"))) {
            prop_assert!(comparison.rows.iter().all(|row| row.difference.diff.is_finite() && row.difference.n > 0));
        }
    }

    #[test]
    fn any_bytes_are_refused_as_results(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let scratch = Scratch::new();
        scratch.run("a", &Run { prompts: 2, ..RUN });
        scratch.write("b.csv",  bytes);
        prop_assert!(compare(&request(&scratch.path("a"), &scratch.path("b.csv"))).is_err());
    }

    #[test]
    fn damaged_manifests_are_read_or_refused(place: Index, byte: u8, cut: Index) {
        let scratch = Scratch::new();
        for name in ["a", "b"] {
            scratch.run(name, &Run { prompts: 2, ..RUN });
        }
        let path = scratch.path("b/manifest.json");
        let whole = fs::read(&path).unwrap();
        let compared_with = |manifest: &[u8]| {
            fs::write(&path, manifest).unwrap();
            compare(&request(&scratch.path("a"), &scratch.path("b")))
        };
        // The end of the last line is all that may be missing.
        let cut = cut.index(whole.trim_ascii_end().len());
        prop_assert!(compared_with(&whole[..cut]).is_err());
        let mut changed = whole;
        let place = place.index(changed.len());
        changed[place] = byte;
        // Either will do, but no panic: some bytes change a name only, or nothing.
        let _ = compared_with(&changed);
        let _ = compared_with(&changed[..cut]);
    }

    #[test]
    fn any_configuration_is_told_from_another(depth in 0_usize..4, text in ".*", number in prop::num::f64::ANY) {
        let scratch = Scratch::new();
        let nest = |inner: Value, i: usize| if i == 1 { json!([inner]) } else { json!({ "x": inner }) };
        let nested = (0..depth).fold(json!([text, number]), nest);
        let run = Run { prompts: 2, ..RUN };
        scratch.run("a", &run);
        scratch.folder("b", &run.records(), &Manifest { config: nested, ..run.manifest() });
        let comparison = compare(&request(&scratch.path("a"), &scratch.path("b"))).unwrap();
        prop_assert!(!comparison.differences[0].1.is_empty());
    }

    #[test]
    fn any_words_are_read_or_refused(text in "\\PC*") {
        prop_assert!(text.parse::<FailIf>().is_err() || text.contains(['<', '>']));
        prop_assert!(text.parse::<MetricName>().is_err() || !text.trim().is_empty());
        prop_assert!(text.parse::<Where>().is_err() || text.contains('='));
    }
}

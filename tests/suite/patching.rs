//! Activation patching: outputs of heads on one of two prompts that differ in the answer alone, put into a pass over the
//! other.

use crate::common::Scratch;
use crate::generate::cases;
use crate::prefixes::records;
use difftool::results::record::Record;
use engine::attention::{HeadOutputSums, OutputReplacement, ResolvedTreatment, Stream};
use names::metric::ANSWER_LOG_PROB;
use names::HeadPlace;
use std::collections::BTreeMap;

#[test]
fn a_text_patched_with_its_own_outputs_is_the_same_to_the_last_bit() {
    for (name, model, texts) in cases() {
        let (ids, heads) = (&texts[0], model.config.wiring().heads());
        let rows = ids.len() / 2..ids.len();
        let sets = rows.clone().map(|row| vec![row..row + 1]).collect();
        let mut written = HeadOutputSums::new(Stream::new(&[]), sets);
        let untreated = model.hidden(std::slice::from_ref(ids), &mut written).unwrap();
        let replacement = |layer: usize, head: usize| {
            let of_row = |sums: &Vec<Vec<f64>>| {
                let width = sums[layer].len() / heads;
                sums[layer][head * width..][..width].iter().map(|&x| x as f32).collect::<Vec<_>>()
            };
            let output = written.sums.iter().flat_map(of_row).collect();
            // Outputs belong to rows in their order, whatever ranges they are in.
            let (middle, end) = (rows.start + 3, rows.end);
            OutputReplacement { layer, head, rows: vec![rows.start..middle, middle..end], output }
        };
        let all = HeadPlace::all(model.config.layers.len(), heads);
        let replaced = all.map(|at| replacement(at.layer, at.head)).collect();
        let treated = ResolvedTreatment { replaced, ..ResolvedTreatment::default() };
        let patched = model.hidden(std::slice::from_ref(ids), &mut Stream::new(&[]).treated(Some(&treated))).unwrap();
        let bits = |x: &candle_core::Tensor| x.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert!(bits(&patched) == bits(&untreated), "{name}");
    }
}

const PROMPTS: &str = "[prompts]\nctx = [\"256\"]\nneedles = [3]\nretrieve = [2]\ndepths = [50.0]\nsamples = 2";

const MODELS: [&str; 3] = ["transformer", "diff", "diff-v2"];

const CONDITIONS: [&str; 10] = [
    "patch(none, from=clean)",
    "patch(none, from=corrupted)",
    "patch(all, from=clean)",
    "patch(all, from=corrupted)",
    "patch(all, rows=all, from=clean)",
    "patch(all, rows=all, from=corrupted)",
    "patch(all, layers=0, from=corrupted)",
    "patch(1.1, from=clean)",
    "patch(1.0, rows=question, from=clean); mask(bos)",
    "ablate(0.1)",
];

/// An experiment with tiny random models.
fn experiment(folder: &Scratch, reading: &str) -> String {
    let list = |names: &[String]| names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    let models = list(&MODELS.map(|model| folder.path(model).display().to_string()));
    let conditions = list(&CONDITIONS.map(str::to_owned));
    format!(
        "command = \"ablate\"\nparts = []\n{PROMPTS}\n[run]\nmodel = [{models}]\ncondition = [{conditions}]\n{reading}"
    )
}

/// Log-probabilities of the answers by model and condition.
fn log_probs(records: &[Record]) -> BTreeMap<(String, String), Vec<f64>> {
    let mut found = BTreeMap::<_, Vec<f64>>::new();
    for record in records.iter().filter(|record| record.measure.metric == ANSWER_LOG_PROB.name) {
        let condition = record.identity.condition.as_deref().unwrap_or("untreated").to_owned();
        let model = record.identity.model.rsplit('/').next().unwrap().to_owned();
        found.entry((model, condition)).or_default().push(record.measure.value.unwrap());
    }
    found
}

#[test]
fn patches_have_the_same_records_with_and_without_shared_prefixes() {
    let folder = Scratch::with(&MODELS);
    let text = experiment(&folder, "");
    let (shared, whole) = (records(&text, false), records(&text, true));
    assert_eq!(shared.len(), whole.len());
    for (shared, whole) in shared.iter().zip(&whole) {
        assert_eq!(format!("{shared:?}"), format!("{whole:?}"));
    }
}

#[test]
fn all_heads_of_one_prompt_carry_its_answer_to_the_other() {
    let folder = Scratch::with(&MODELS);
    let found = log_probs(&records(&experiment(&folder, ""), false));
    for model in MODELS {
        let of = |condition: &str| &found[&(model.to_owned(), condition.to_owned())];
        let (clean, corrupted) = (of("untreated"), of("patch(none, from=clean)"));
        assert_eq!(clean.len(), 4);
        // The rows that predict an answer read the same tokens in both prompts: their attention is all that differs.
        for rows in ["", ", rows=all"] {
            assert_eq!(of(&format!("patch(all{rows}, from=clean)")), clean, "{model}{rows}");
            assert_eq!(of(&format!("patch(all{rows}, from=corrupted)")), corrupted, "{model}{rows}");
        }
        assert_eq!(of("patch(none, from=corrupted)"), clean);
        assert!(clean != corrupted, "{model}: {clean:?}");
        for some in ["patch(1.1, from=clean)", "patch(all, layers=0, from=corrupted)"] {
            assert!(of(some) != clean && of(some) != corrupted, "{model}: {some}");
        }
    }
}

#[test]
fn patches_in_f64_have_the_numbers_of_the_kernels() {
    let folder = Scratch::with(&MODELS);
    let found = log_probs(&records(&experiment(&folder, ""), false));
    let wide = log_probs(&records(&experiment(&folder, "[run.reading]\ndtype = \"f64\""), false));
    for (of, numbers) in &found {
        assert!(numbers.iter().zip(&wide[of]).all(|(a, b)| (a - b).abs() < 1e-3), "{of:?}");
    }
}

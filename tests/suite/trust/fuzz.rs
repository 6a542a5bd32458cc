//! The fuzz targets on the stable toolchain: their corpus with seeded changes, and with absurd integers.

#[path = "../../../fuzz/targets.rs"]
mod targets;

use stats::Rng;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use targets::TARGETS;

/// Seeded inputs of each target; `DIFFTOOL_FUZZ_INPUTS` says otherwise.
const INPUTS: u64 = 1000;

/// An input that takes longer would be a hang to somebody.
const LONGEST: Duration = Duration::from_secs(20);

/// Integers that no file should have.
pub(super) const ABSURD: [u64; 5] = [0, 1 << 31, (1 << 32) - 1, 1 << 63, u64::MAX];

/// What fields that are read with care are not.
const VALUES: [&str; 20] = [
    "0",
    "-1",
    "1",
    "2",
    "255",
    "1e308",
    "-0.0",
    "18446744073709551615",
    "9007199254740993",
    "NaN",
    "null",
    "true",
    "\"\"",
    "\"x\"",
    "[]",
    "{}",
    "[null]",
    "1.5",
    "\u{feff}",
    "\u{0}",
];

/// Copies of an input with each of its integers replaced by each absurd one: runs of digits, and in what is no text whatever
/// may be an integer of 4 or of 8 bytes.
fn with_absurd_integers(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut places: Vec<(usize, usize)> = Vec::new(); // (start, length)
    for digits in bytes.split(|byte| !byte.is_ascii_digit()).filter(|digits| !digits.is_empty()) {
        places.push((digits.as_ptr().addr() - bytes.as_ptr().addr(), digits.len()));
    }
    let mut inputs = Vec::new();
    for absurd in ABSURD {
        for &(start, len) in &places {
            inputs.push([&bytes[..start], absurd.to_string().as_bytes(), &bytes[start + len..]].concat());
        }
        let is_text = std::str::from_utf8(bytes).is_ok();
        for (start, len) in (0..bytes.len()).flat_map(|start| [(start, 4), (start, 8)]).filter(|_| !is_text) {
            let mut input = bytes.to_vec();
            let end = (start + len).min(bytes.len());
            input[start..end].copy_from_slice(&absurd.to_le_bytes()[..end - start]);
            inputs.push(input);
        }
    }
    inputs
}

/// An input with some changes: bytes, spans, and values of fields.
fn changed(corpus: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = rng.pick(corpus).clone();
    for _ in 0..=rng.below(4) {
        let at = rng.below(bytes.len() + 1);
        let end = (at + rng.below(40)).min(bytes.len());
        match rng.below(7) {
            0 if at < bytes.len() => bytes[at] = rng.bits() as u8,
            1 => drop(bytes.drain(at..end)),
            2 => {
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            3 => {
                let other = rng.pick(corpus);
                let from = rng.below(other.len() + 1);
                bytes.splice(at..end, other[from..(from + 60).min(other.len())].iter().copied());
            }
            4 => bytes.truncate(at),
            _ => replace_value(&mut bytes, at, rng),
        }
    }
    bytes
}

/// Replaces what stands behind the next `:`, `=` or `,`, up to the next separator.
fn replace_value(bytes: &mut Vec<u8>, at: usize, rng: &mut Rng) {
    let Some(begin) = bytes[at..].iter().position(|byte| b":=,".contains(byte)).map(|i| at + i + 1) else { return };
    let end = bytes[begin..].iter().position(|byte| b",}]\n".contains(byte)).map_or(bytes.len(), |i| begin + i);
    bytes.splice(begin..end, rng.pick(&VALUES).bytes());
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|file| fs::read(file).unwrap()).collect()
}

fn fuzz(name: &str) {
    let (_, target) = TARGETS.iter().find(|(other, _)| *other == name).unwrap();
    let inputs = std::env::var("DIFFTOOL_FUZZ_INPUTS").map_or(INPUTS, |inputs| inputs.parse().unwrap());
    let (corpus, folder) = (corpus(name), tempfile::tempdir().unwrap());
    assert!(corpus.iter().any(|bytes| target(bytes, folder.path())), "nothing of {name} is accepted");
    let seeded = (0..inputs).map(|seed| changed(&corpus, &mut Rng::new(seed, name)));
    let (mut inputs, mut accepted) = (0, 0);
    for bytes in corpus.iter().flat_map(|bytes| with_absurd_integers(bytes)).chain(seeded) {
        inputs += 1;
        let started = Instant::now();
        let run = std::panic::catch_unwind(|| target(&bytes, folder.path()));
        let shown = String::from_utf8_lossy(&bytes);
        accepted += u64::from(run.unwrap_or_else(|_| panic!("{name}, input {inputs}: {shown}")));
        assert!(started.elapsed() < LONGEST, "{name}, input {inputs} takes long: {shown}");
    }
    println!("| `{name}` | {inputs} | {accepted} | {} | 0 |", inputs - accepted);
}

macro_rules! fuzzed {
    ($($test:ident: $name:literal;)*) => {
        $(#[test]
        fn $test() {
            fuzz($name);
        })*

        #[test]
        fn every_target_has_its_test() {
            assert_eq!(TARGETS.map(|(name, _)| name), [$($name),*]);
        }
    };
}

fuzzed! {
    no_config_makes_us_panic: "config";
    no_index_makes_us_panic: "index";
    no_safetensors_file_makes_us_panic: "safetensors";
    no_gguf_file_makes_us_panic: "gguf";
    no_tokenizer_makes_us_panic: "tokenizer";
    no_tokenizer_config_makes_us_panic: "tokenizer_config";
    no_template_makes_us_panic: "template";
    no_experiment_makes_us_panic: "experiment";
    no_training_spec_makes_us_panic: "training";
    no_results_make_us_panic: "results";
    no_manifest_makes_us_panic: "manifest";
    no_haystack_makes_us_panic: "haystack";
    no_needles_file_makes_us_panic: "needles";
    no_questions_file_makes_us_panic: "questions";
}

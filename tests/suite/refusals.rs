//! What is refused: arguments and small files, with the exit code and the words of each. Refusals that need more than
//! that are tested with their command.

use crate::common::Scratch;
use std::collections::BTreeMap;
use std::ffi::OsString;

/// Arguments that are refused.
struct Refusal {
    args: &'static str,
    code: i32,
    words: &'static [&'static str],
}

/// Refusals of one kind.
struct Room {
    /// Folders of tiny models, of these variants.
    models: &'static [&'static str],
    files: &'static [(&'static str, &'static [u8])],
    /// What follows the arguments of each.
    common: &'static str,
    refusals: &'static [Refusal],
}

/// Each is refused as the table says, and leaves nothing behind.
#[track_caller]
fn assert_refused(room: &Room) {
    let scratch = Scratch::with(room.models);
    room.files.iter().for_each(|(name, text)| scratch.write(name, text));
    let before = entries(&scratch);
    let mut wrong = Vec::new();
    for Refusal { args, code, words } in room.refusals {
        let line = format!("{args} {}", room.common);
        if let Err(why) = scratch.run(&line).check(*code, words) {
            wrong.push(format!("{line}\n    {}", why.trim_end().replace('\n', "\n    ")));
        }
        if entries(&scratch) != before {
            wrong.push(format!("{line}\n    changes the folder"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} refusals:\n{}", wrong.len(), room.refusals.len(), wrong.join("\n"));
}

/// What a folder holds: names, and the bytes of files.
fn entries(scratch: &Scratch) -> BTreeMap<OsString, Option<Vec<u8>>> {
    let entries = std::fs::read_dir(scratch.folder()).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.file_name(), std::fs::read(entry.path()).ok())).collect()
}

const TINY: [&str; 3] = ["transformer", "diff", "diff-v2"];

/// What all measuring commands refuse, of tiny models of two layers.
const MEASURING: Room = Room {
    models: &TINY,
    files: &[("empty.txt", b"  \n"), ("binary", b"\xff\xfe\0"), ("mine.html", b"mine")],
    common: "--model ./transformer --model ./diff --model ./diff-v2",
    refusals: &[
        Refusal { args: "ratio --ctx 256 --layers 2", code: 2, words: &["--layers 2", "layers 0 to 1"] },
        Refusal { args: "ratio --ctx 256 --heads 7", code: 2, words: &["--heads 7", "heads 0 to 1"] },
        Refusal { args: "ratio --text empty.txt", code: 2, words: &["empty.txt", "no token"] },
        Refusal { args: "ratio --text nowhere.txt", code: 2, words: &["nowhere.txt"] },
        Refusal {
            args: "explore --text empty.txt --depth 2",
            code: 2,
            words: &["'--text <FILE>' cannot be used with", "--depth"],
        },
        Refusal {
            args: "heatmap --text empty.txt --needles 2",
            code: 2,
            words: &["'--text <FILE>' cannot be used with", "--needles"],
        },
        Refusal {
            args: "ratio --text empty.txt --depths 2",
            code: 2,
            words: &["'--text <FILE>' cannot be used with", "--depths"],
        },
        Refusal {
            args: "quantize --text empty.txt --retrieve 2",
            code: 2,
            words: &["'--text <FILE>' cannot be used with", "--retrieve"],
        },
        Refusal { args: "quantize --ctx 256 --bits 1", code: 2, words: &["--bits 1", "2 to 16"] },
        Refusal { args: "quantize --ctx 256 --bits 17", code: 2, words: &["--bits 17", "2 to 16"] },
        Refusal { args: "quantize --ctx 256 --bits 4,4", code: 2, words: &["--bits 4 is named twice"] },
        Refusal { args: "heatmap --ctx 256 --layer 9", code: 2, words: &["--layer 9", "0 to 1"] },
        Refusal { args: "heatmap --ctx 256 --head 2", code: 2, words: &["--head 2", "0 to 1"] },
        Refusal { args: "heatmap --ctx 256 --heads 0 --head 1", code: 2, words: &["--head 1 is not among --heads"] },
        Refusal { args: "heatmap --ctx 256 --grid --map all", code: 2, words: &["--grid"] },
        Refusal { args: "heatmap --ctx 256 --data map.txt", code: 2, words: &["--data map.txt", ".npz or .csv"] },
        Refusal { args: "heatmap --ctx 256 --data nodir/x.npy", code: 2, words: &["--data", "no folder nodir"] },
        Refusal { args: "heatmap --ctx 256 --data out/x.npy --out out", code: 2, words: &["--data", "no folder out"] },
        Refusal {
            args: "heatmap --ctx 256..512:128",
            code: 2,
            words: &["heatmap measures one prompt; give one length"],
        },
        Refusal { args: "heatmap --ctx 256 --depth 200", code: 2, words: &["a depth of 200 percent", "0 and 100"] },
        Refusal { args: "heatmap --ctx 256 --query 5000..6000", code: 2, words: &["tokens 0 to"] },
        Refusal { args: "heatmap --figure-width 5", code: 2, words: &["--figure-width", "from 20 to 2000"] },
        Refusal { args: "outliers --ctx 1 --samples 10", code: 2, words: &["at least 2 tokens"] },
        Refusal { args: "outliers --ctx 2k", code: 2, words: &["at most 1024 tokens"] },
        Refusal { args: "explore --ctx 256..512:128", code: 2, words: &["give one length"] },
        Refusal { args: "explore --ctx 9999", code: 2, words: &["at most 1024 tokens"] },
        Refusal { args: "explore --ctx 256 --condition mask(nowhere)", code: 2, words: &["--condition"] },
        Refusal { args: "needle --depths 0,101 --print-experiment", code: 2, words: &["a depth of 101 percent"] },
        Refusal { args: "needle --ctx 256 --out .", code: 2, words: &["already holds files"] },
        Refusal { args: "needle --out empty.txt", code: 2, words: &["empty.txt", "folder"] },
        Refusal {
            args: "needle --fail-if 'acuracy < 0.5'",
            code: 2,
            words: &["metric acuracy (did you mean `accuracy`?)"],
        },
        Refusal { args: "needle --fail-if 'nll_pos < 0' --print-experiment", code: 2, words: &["nll_pos"] },
        Refusal {
            args: "needle --condition mask(nois)",
            code: 2,
            words: &["`nois` is not a region (did you mean `noise`?)"],
        },
        Refusal { args: "needle --tables dephts", code: 2, words: &["no table `dephts` (did you mean `depth`?)"] },
        Refusal { args: "needle --threads 0", code: 2, words: &["a number from 1 to 4096"] },
        Refusal { args: "needle --report nowhere/page.html", code: 2, words: &["there is no folder nowhere"] },
        Refusal { args: "needle --report mine.html", code: 2, words: &["not a page of a report"] },
        Refusal { args: "needle --report page.html --shard 1/2", code: 2, words: &["difftool merge"] },
        Refusal { args: "needle --haystack nowhere.txt", code: 2, words: &["nowhere.txt", "No such file"] },
        Refusal { args: "needle --haystack binary", code: 1, words: &["binary", "UTF-8"] },
        Refusal { args: "nll --text nowhere.txt", code: 2, words: &["nowhere.txt", "No such file"] },
        Refusal { args: "nll --ids nowhere.txt", code: 2, words: &["nowhere.txt", "No such file"] },
    ],
};

#[test]
fn what_cannot_be_measured_is_refused_with_what_there_is() {
    assert_refused(&MEASURING);
}

/// Names of models, and what is asked of one.
const MODELS: Room = Room {
    models: &TINY,
    files: &[],
    common: "--ctx 256",
    refusals: &[
        Refusal { args: "needle --model ./nope", code: 2, words: &["model nope: there is no such file or folder"] },
        Refusal { args: "needle --model nonesuch", code: 2, words: &["nonesuch", "transformer"] },
        Refusal { args: "needle --model transfomer", code: 2, words: &["did you mean `transformer`?"] },
        Refusal { args: "needle --model gpt2", code: 2, words: &["did you mean `hf:openai-community/gpt2`?"] },
        Refusal { args: "needle --model org/name", code: 2, words: &["did you mean `hf:org/name`, of the Hub?"] },
        Refusal { args: "needle --model ./diff --model ./diff", code: 2, words: &["named twice"] },
        Refusal { args: "heatmap --map a2 --model ./transformer", code: 2, words: &["second map"] },
        Refusal { args: "inspect =1+1", code: 2, words: &["model =1+1", "./=1+1"] },
        Refusal { args: "prompt --needles 1 --samples 1 --model nowhere", code: 2, words: &["nowhere"] },
    ],
};

#[test]
fn models_that_are_not_there_are_refused_with_the_nearest_name() {
    assert_refused(&MODELS);
}

const NEEDLE: Room = Room {
    models: &["diff"],
    files: &[
        ("short.txt", b"One line is not enough for a long prompt."),
        ("n.jsonl", b"{\"needle\": \"Yuki lives here.\", \"question\": \"Who?\", \"answer\": \"Yuki\"}"),
    ],
    common: "--model ./diff",
    refusals: &[
        Refusal { args: "needle --ctx 300k", code: 2, words: &["307200", "trained for at most"] },
        Refusal { args: "needle --ctx 64 --needles 2", code: 2, words: &["64", "tokens"] },
        Refusal { args: "needle --ctx 4q", code: 2, words: &["--ctx"] },
        Refusal { args: "needle --ctx 0", code: 2, words: &["--ctx"] },
        Refusal { args: "needle --ctx 256 --needles 2 --retrieve 3", code: 2, words: &["retrieve 3 of 2"] },
        Refusal { args: "needle --ctx 256 --needles 2 --depths 120", code: 2, words: &["120"] },
        Refusal { args: "needle --ctx 256 --samples 0", code: 2, words: &["nothing to run"] },
        Refusal { args: "needle --ctx 256 --samples -1", code: 2, words: &["-1"] },
        Refusal { args: "needle --ctx 256 --haystack short.txt", code: 2, words: &["short.txt"] },
        Refusal {
            args: "needle --task vt --ctx 512",
            code: 2,
            words: &["512 tokens is too short", "it takes at least"],
        },
        Refusal { args: "needle --task vt --distractors 2%", code: 2, words: &["--distractors"] },
        Refusal { args: "needle --task nonesuch", code: 2, words: &["nonesuch"] },
        Refusal { args: "needle --needles-file n.jsonl --distractors 2%", code: 2, words: &["--distractors"] },
        Refusal { args: "needle --max-new 5", code: 2, words: &["--generate"] },
        Refusal { args: "needle --generate --max-new 0", code: 2, words: &["--max-new"] },
        Refusal { args: "prompt --ctx 256 --needles 1 --samples 1 --index 9", code: 2, words: &["prompts 0 to 4"] },
        Refusal { args: "prompt --ctx 256 --needles 1 --samples 1 --query 1", code: 2, words: &["questions 0 to 0"] },
    ],
};

#[test]
fn needle_prompts_that_cannot_be_are_refused() {
    assert_refused(&NEEDLE);
}

/// As many as a 64-bit number can say, and more than memory holds.
const SIZES: Room = Room {
    models: &["diff"],
    files: &[("n.jsonl", b"{\"needle\": \"Yuki lives here.\", \"question\": \"Who?\", \"answer\": \"Yuki\"}")],
    common: "--ctx 256 --model ./diff",
    refusals: &[
        Refusal { args: "shots --shots 18446744073709551615", code: 2, words: &["a number above 9223372036854775807"] },
        Refusal { args: "shots --shots 9223372036854775807", code: 2, words: &["--shots 9223372036854775807"] },
        Refusal { args: "shots --shots 100000000", code: 2, words: &["--shots 100000000"] },
        Refusal { args: "shots --shots 8 --words 9223372036854775807", code: 2, words: &["--words"] },
        Refusal {
            args: "shots --shots 8 --arrangements 9223372036854775807",
            code: 2,
            words: &["more than 10000000 prompts"],
        },
        Refusal { args: "needle --needles 9223372036854775807", code: 2, words: &["9223372036854775807 needles"] },
        Refusal { args: "needle --needles 300000", code: 2, words: &["300000 needles"] },
        Refusal { args: "needle --needles-file n.jsonl --needles 9223372036854775807", code: 2, words: &["needles"] },
        Refusal {
            args: "needle --needles 1 --samples 9223372036854775807",
            code: 2,
            words: &["more than 10000000 prompts"],
        },
        Refusal { args: "prompt --samples 9223372036854775807", code: 2, words: &["more than 10000000 prompts"] },
    ],
};

#[test]
fn numbers_that_no_prompt_has_room_for_are_refused_at_once() {
    assert_refused(&SIZES);
}

const LENGTHS: Room = Room {
    models: &["diff"],
    files: &[],
    common: "",
    refusals: &[
        Refusal { args: "inspect ./diff --ctx 18446744073709551615", code: 2, words: &["--ctx", "tokens"] },
        Refusal { args: "inspect ./diff --ctx 268435457", code: 2, words: &["--ctx", "tokens"] },
        Refusal { args: "inspect ./diff --ctx 17592186044415m", code: 2, words: &["--ctx", "tokens"] },
    ],
};

#[test]
fn lengths_that_no_model_has_are_refused_before_anything_overflows() {
    assert_refused(&LENGTHS);
}

const SHOTS: Room = Room {
    models: &[],
    files: &[],
    common: "-q --model transformer --ctx 512 --out run",
    refusals: &[
        Refusal { args: "shots --shots 0", code: 2, words: &["--shots 0"] },
        Refusal { args: "shots --shots 4,4", code: 2, words: &["--shots 4 is named twice"] },
        Refusal { args: "shots --shots 400", code: 2, words: &["--shots 400: these examples take"] },
        Refusal { args: "shots --words 1", code: 2, words: &["--words 1"] },
        Refusal { args: "shots --words 8 --classes 9", code: 2, words: &["--classes 9"] },
        Refusal { args: "shots --arrangements 0", code: 2, words: &["--arrangements"] },
        Refusal { args: "shots --samples 0", code: 2, words: &["nothing to run"] },
    ],
};

#[test]
fn shots_that_cannot_be_are_refused() {
    assert_refused(&SHOTS);
}

const NLL: Room = Room {
    models: &["transformer", "diff"],
    files: &[("one.txt", b"a"), ("empty.txt", b" \n")],
    common: "--model ./transformer --model ./diff",
    refusals: &[
        Refusal { args: "nll --text one.txt", code: 2, words: &["one.txt has 1 token; it takes 2"] },
        Refusal { args: "nll --text empty.txt", code: 2, words: &["empty.txt has no tokens"] },
        Refusal { args: "nll --text one.txt --ids one.txt", code: 2, words: &["cannot be used with"] },
        Refusal { args: "nll --stride 100", code: 2, words: &["--stride 100: only a text of yours"] },
        Refusal { args: "nll --ctx 1k..2k:1k", code: 2, words: &["--ctx: nll pools windows of one length"] },
        Refusal { args: "nll --ctx 64 --skip 64", code: 2, words: &["--skip 64 leaves nothing"] },
    ],
};

#[test]
fn windows_that_cannot_be_scored_are_refused() {
    assert_refused(&NLL);
}

const CLAIMS: Room = Room {
    models: &["transformer", "diff"],
    files: &[],
    common: "--out run --model ./diff --baseline ./transformer",
    refusals: &[
        Refusal { args: "claims --only T9", code: 2, words: &["T9", "T2, T3, N, F5"] },
        Refusal { args: "claims --ctx 1k,2k", code: 2, words: &["--ctx"] },
        Refusal { args: "claims --samples 0", code: 2, words: &["--samples"] },
        Refusal { args: "claims --condition mask(noise)", code: 2, words: &["--condition"] },
        Refusal { args: "claims --fail-if 'accuracy < 1'", code: 2, words: &["--fail-if"] },
        Refusal { args: "claims --replicates", code: 2, words: &["has no training seed"] },
    ],
};

/// A pair that is not one.
const ALONE: Room = Room {
    models: &["transformer", "diff"],
    files: &[],
    common: "--out run",
    refusals: &[
        Refusal { args: "claims --model ./diff", code: 2, words: &["--baseline"] },
        Refusal { args: "claims --baseline ./diff", code: 2, words: &["--model"] },
    ],
};

#[test]
fn claims_that_cannot_be_compared_are_refused() {
    assert_refused(&CLAIMS);
    assert_refused(&ALONE);
}

const CONTEXT: Room = Room {
    models: &[],
    files: &[("empty.txt", b" "), ("bad.jsonl", b"{\"question\": \"Q?\"}")],
    common: "--model transformer",
    refusals: &[
        Refusal { args: "context --text empty.txt", code: 2, words: &["--question"] },
        Refusal { args: "context --text empty.txt --question Q?", code: 2, words: &["no tokens"] },
        Refusal { args: "context --questions-file bad.jsonl", code: 1, words: &["no passages"] },
        Refusal { args: "context --prompt One. --question Q? --answer ' '", code: 2, words: &["neither may be empty"] },
        Refusal {
            args: "context --prompt One. --question Q? --wrong a",
            code: 2,
            words: &["give the right answer too"],
        },
        Refusal { args: "context --prompt One. --question Q? --orders 0", code: 2, words: &["at least 1"] },
        Refusal {
            args: "context --prompt One. --question Q? --show q7",
            code: 2,
            words: &["no question has this id; there are text"],
        },
    ],
};

#[test]
fn what_cannot_be_asked_is_refused_with_what_to_do() {
    assert_refused(&CONTEXT);
}

/// Of built-in models, which have 4 layers.
const TREATMENTS: Room = Room {
    models: &[],
    files: &[],
    common: "--ctx 256 --out run",
    refusals: &[
        Refusal {
            args: "ablate --rank beauty",
            code: 2,
            words: &["beauty", "cost, share_out, share_abs, attribution, retrieval"],
        },
        Refusal { args: "ablate --knock-out 17", code: 2, words: &["best:17:cost", "diff has only 16 heads"] },
        Refusal { args: "ablate --knock-out 0", code: 2, words: &["--knock-out 0"] },
        Refusal { args: "ablate --condition mask(words)", code: 2, words: &["`words` is not a region", "filler"] },
        Refusal { args: "ablate --condition ablate(0.9)", code: 2, words: &["there is no head 0.9"] },
        Refusal {
            args: "ablate --condition 'silence(noise, map=2)'",
            code: 2,
            words: &["heads of transformer have one map"],
        },
        Refusal { args: "ablate --parts tails", code: 2, words: &["tails", "noise, layers, heads"] },
        Refusal { args: "quantize --of qk --scope row", code: 2, words: &["--scope row", "block, token and head"] },
        Refusal { args: "quantize --scope block", code: 2, words: &["--scope block", "tensor, head and row"] },
        Refusal { args: "quantize --bits fp8", code: 2, words: &["--bits fp8", "queries and keys"] },
        Refusal { args: "quantize --of qk --bits 17", code: 2, words: &["--bits 17", "2 to 16"] },
        Refusal { args: "quantize --smooth", code: 2, words: &["--smooth", "queries and keys"] },
        Refusal { args: "quantize --of qk --bits fp6", code: 2, words: &["fp6", "fp8, nvfp4 or mxfp4"] },
    ],
};

#[test]
fn treatments_that_models_cannot_have_are_refused() {
    assert_refused(&TREATMENTS);
}

/// Other prompts give the numbers of patches: those with another answer.
const PATCHES: Room = Room {
    models: &["diff"],
    files: &[],
    common: "--model ./diff --condition 'patch(0.1, from=clean)' -q --ctx 256",
    refusals: &[
        Refusal { args: "nll", code: 2, words: &["only the answers of needle prompts can be changed"] },
        Refusal { args: "needle --unanswerable", code: 2, words: &["a question without an answer"] },
        Refusal { args: "needle --generate", code: 2, words: &["generated tokens have no counterpart"] },
        Refusal { args: "needle --task niah_multikey_1", code: 2, words: &["only needles that give cities numbers"] },
    ],
};

#[test]
fn prompts_without_an_answer_to_change_are_refused() {
    assert_refused(&PATCHES);
}

const DEVICES: Room = Room {
    models: &["diff"],
    files: &[("spec.toml", crate::train::SPEC.as_bytes())],
    common: "",
    refusals: &[
        Refusal { args: "ratio --model ./diff --device gpu --out run", code: 2, words: &["gpu", "cpu, cuda, cuda:1"] },
        Refusal { args: "ratio --model ./diff --dtype f16 --out run", code: 2, words: &["f16", "f32, bf16, f64"] },
        Refusal {
            args: "ratio --model ./diff --ctx 300 --out run --dtype bf16",
            code: 2,
            words: &["--dtype bf16", "f32 and f64", "leave --dtype out"],
        },
        Refusal { args: "inspect ./diff --dtype bf16", code: 2, words: &["--dtype bf16", "leave --dtype out"] },
        Refusal {
            args: "train spec.toml --out run --dtype bf16",
            code: 2,
            words: &["--dtype bf16", "f32 and f64", "leave --dtype out"],
        },
        #[cfg(not(feature = "cuda"))]
        Refusal {
            args: "ratio --model ./diff --out run --device cuda:1",
            code: 2,
            words: &["--device cuda:1", "cargo build --release --features cuda"],
        },
        #[cfg(not(feature = "cuda"))]
        Refusal {
            args: "train spec.toml --out run --device cuda",
            code: 2,
            words: &["--device cuda:0", "cargo build --release --features cuda"],
        },
        #[cfg(not(feature = "metal"))]
        Refusal {
            args: "ratio --model ./diff --out run --device metal",
            code: 2,
            words: &["--device metal", "cargo build --release --features metal"],
        },
    ],
};

#[test]
fn devices_and_number_types_that_are_not_there_are_refused_with_how_to_have_them() {
    assert_refused(&DEVICES);
}

/// Files and folders that are there, are not, or are another thing.
const FILES: Room = Room {
    models: &["transformer"],
    files: &[
        ("typo.toml", b"command = \"needle\"\nsed = 0\n"),
        ("bad.toml", b"seed = ["),
        ("latin.toml", b"\xe4"),
        ("y.toml", b"command = \"needle\"\ngenerate = true\nmax-new = 0\n"),
    ],
    common: "",
    refusals: &[
        Refusal { args: "run", code: 2, words: &["FILE"] },
        Refusal { args: "run typo.toml", code: 2, words: &["typo.toml, line"] },
        Refusal { args: "run y.toml", code: 2, words: &["y.toml, line"] },
        Refusal { args: "run latin.toml", code: 2, words: &["latin.toml: not UTF-8"] },
        Refusal { args: "run transformer", code: 2, words: &["cannot read transformer"] },
        Refusal { args: "run nowhere.toml", code: 2, words: &["nowhere.toml", "No such file"] },
        Refusal { args: "run --resume nowhere", code: 2, words: &["nowhere"] },
        Refusal { args: "needle --resume nowhere", code: 2, words: &["nowhere"] },
        Refusal { args: "merge nowhere", code: 2, words: &["nowhere"] },
        Refusal { args: "merge .", code: 2, words: &["it holds no shard"] },
        Refusal { args: "report nowhere", code: 2, words: &["nowhere"] },
        Refusal { args: "compare nowhere transformer", code: 2, words: &["nowhere"] },
        Refusal { args: "prompt --jsonl bad.toml", code: 2, words: &["--jsonl bad.toml: it exists"] },
        Refusal { args: "train nowhere.toml --out out", code: 2, words: &["nowhere.toml", "No such file"] },
        Refusal { args: "train bad.toml --out out", code: 2, words: &["bad.toml"] },
    ],
};

#[test]
fn files_and_folders_that_are_not_what_is_asked_for_are_refused_by_name() {
    assert_refused(&FILES);
}

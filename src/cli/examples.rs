//! What stands below the help of each command: what people type.

/// Commands and their examples: what is asked, and the line that asks it.
pub(crate) const EXAMPLES: &[(&str, &[(&str, &str)])] = &[
    (
        "needle",
        &[
            ("The built-in models, the paper's Table 2 in small", "difftool needle --ctx 4k"),
            (
                "Your own models, one needle, lengths up to 8k",
                "difftool needle --model ./a --model ./b --needles 1 --ctx 1k..8k:1k",
            ),
            ("Quickly, into a folder of that name", "difftool needle --ctx 1k --samples 2 --out runs/quick"),
            ("Cities that are not in the text: are numbers made up?", "difftool needle --ctx 1k --unanswerable"),
        ],
    ),
    (
        "shots",
        &[
            ("How many examples the built-in models need", "difftool shots --shots 8,32,128"),
            (
                "Whether the order of the examples matters to a model of yours",
                "difftool shots --model ./llama --order random,by-class,alternating --arrangements 8",
            ),
        ],
    ),
    (
        "ratio",
        &[
            ("Where attention goes, in every reading", "difftool ratio --ctx 4k"),
            ("The same for plain text, without needles", "difftool ratio --text book.txt --ctx 2k --model ./llama"),
        ],
    ),
    (
        "heads",
        &[
            ("What the heads of the built-in models are for", "difftool heads --ctx 1k"),
            ("Ten of each role, as JSON", "difftool heads --model ./llama --top 10 --json"),
        ],
    ),
    (
        "heatmap",
        &[
            ("Both maps and their difference", "difftool heatmap"),
            ("Every layer and head of one model", "difftool heatmap --model diff --grid --map effective"),
            (
                "One head between two places, with its numbers",
                "difftool heatmap --layer 1 --head 3 --query 4000.. --data map.npy",
            ),
        ],
    ),
    ("explore", &[("The built-in models at 4k tokens, as one HTML file", "difftool explore --ctx 4k")]),
    (
        "quantize",
        &[
            ("Which numbers of bits answers survive", "difftool quantize --bits 8,6,4"),
            ("One scale for each row, sinks left out", "difftool quantize --bits 4 --scope row --exempt-sinks"),
        ],
    ),
    (
        "ablate",
        &[
            ("What noise costs, and what the best heads are worth", "difftool ablate"),
            (
                "Noise alone, at 4k tokens, with a condition of your own",
                "difftool ablate --ctx 4k --parts noise --condition 'silence(filler, layers=0+1)'",
            ),
        ],
    ),
    ("outliers", &[("The largest logits and hidden states over 100k tokens", "difftool outliers")]),
    (
        "nll",
        &[
            ("By position, of the embedded prose", "difftool nll"),
            ("Of your own text, every token scored once", "difftool nll --text book.txt --ctx 2k --model ./llama"),
        ],
    ),
    (
        "run",
        &[
            (
                "From flags to a file, and from the file to the same run",
                "difftool needle --ctx 1k --print-experiment > exp.toml",
            ),
            ("What it will take", "difftool run exp.toml --list"),
            ("One of eight parts of it", "difftool run exp.toml --shard 1/8 --out shards/1"),
        ],
    ),
    ("merge", &[("All parts", "difftool merge shards/0 shards/1 --out runs/whole")]),
    (
        "compare",
        &[
            ("The models of one run", "difftool compare runs/readme --by model"),
            (
                "Two runs; fail if accuracy falls by more than 5 points",
                "difftool compare runs/a runs/b --fail-if 'exact < -0.05'",
            ),
        ],
    ),
    (
        "report",
        &[
            ("A page", "difftool report runs/readme --out report.html"),
            ("What the command printed", "difftool report runs/readme --format text"),
        ],
    ),
    ("inspect", &[("A folder, before anything is run", "difftool inspect ./llama --ctx 8k")]),
    (
        "prompt",
        &[
            ("A prompt with its regions", "difftool prompt --ctx 256"),
            ("Where a model looks, in the terminal", "difftool prompt --ctx 256 --attention diff"),
        ],
    ),
    (
        "train",
        &[
            ("A small spec to begin with", "difftool train --example > example.toml"),
            ("The built-in models", "difftool train experiments/study-b-models.toml --out runs/study-b"),
            (
                "One seed of one variant, continued",
                "difftool train experiments/study-a-norm.toml --out runs/a --only diff/seed-2 --resume",
            ),
        ],
    ),
    ("completions", &[("For bash", "difftool completions bash > difftool.bash")]),
    ("man", &[("All pages", "difftool man --out man")]),
];

/// The examples as the help prints them.
pub(crate) fn text(examples: &[(&str, &str)]) -> String {
    let lines = examples.iter().map(|(what, line)| format!("  # {what}\n  {line}\n"));
    format!("Examples:\n{}", lines.collect::<String>())
}

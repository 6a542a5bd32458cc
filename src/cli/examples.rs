//! The examples in the help of each command.

/// Commands and their examples: (description, command line).
pub(crate) const EXAMPLES: &[(&str, &[(&str, &str)])] = &[
    (
        "needle",
        &[
            ("The built-in models, as in the paper's Table 2", "difftool needle --ctx 4k"),
            (
                "Other models, one needle, lengths up to 8k",
                "difftool needle --model ./a --model ./b --needles 1 --ctx 1k..8k:1k",
            ),
            ("A quick run into a named folder", "difftool needle --ctx 1k --samples 2 --out runs/quick"),
            ("Also questions without an answer in the text", "difftool needle --ctx 1k --unanswerable"),
            ("Accuracy by the share of distractors", "difftool needle --ctx 2k --distractors 0%,1%,5%"),
            (
                "A task of RULER, decoded too",
                "difftool needle --model ./llama --task niah_multivalue --ctx 4k --generate",
            ),
            ("Your own needles and questions", "difftool needle --model ./llama --needles-file mine.jsonl --ctx 1k"),
        ],
    ),
    (
        "shots",
        &[
            ("Accuracy of the built-in models by number of examples", "difftool shots --shots 8,32,128"),
            (
                "Effect of the order of the examples on another model",
                "difftool shots --model ./llama --order random,by-class --arrangements 8",
            ),
        ],
    ),
    (
        "ratio",
        &[
            ("Shares of attention and output at 4k tokens", "difftool ratio --ctx 4k"),
            ("The same for plain text", "difftool ratio --text book.txt --ctx 2k --model ./llama"),
        ],
    ),
    (
        "heads",
        &[
            ("Roles of the heads of the built-in models", "difftool heads --ctx 1k"),
            ("The same of another model, as JSON", "difftool heads --model ./llama --json"),
        ],
    ),
    (
        "heatmap",
        &[
            ("Effective maps of the built-in models", "difftool heatmap"),
            ("Every layer and head of one model", "difftool heatmap --model diff --grid --map effective"),
            (
                "One head and a range of queries, with the matrix",
                "difftool heatmap --layer 1 --head 3 --query 4000.. --data map.npy",
            ),
        ],
    ),
    (
        "explore",
        &[
            ("The built-in models at 4k tokens", "difftool explore --ctx 4k"),
            (
                "A model of yours, with its report in one page",
                "difftool explore --model model.gguf --ctx 512 --report page.html",
            ),
        ],
    ),
    (
        "quantize",
        &[
            ("Accuracy with 8, 6 and 4 bits", "difftool quantize --bits 8,6,4"),
            ("One scale for each row, sinks exempt", "difftool quantize --bits 4 --scope row --exempt-sinks"),
            ("Queries and keys instead, keys less their mean", "difftool quantize --of qk --bits 8,4,fp8,fp4 --smooth"),
            ("One layer at a time: which breaks first?", "difftool quantize --of qk --bits 4 --each-layer"),
        ],
    ),
    (
        "ablate",
        &[
            ("Effect of noise and of the best heads", "difftool ablate"),
            (
                "Only noise at 4k tokens, with another condition",
                "difftool ablate --ctx 4k --parts noise --condition 'silence(filler)'",
            ),
        ],
    ),
    ("outliers", &[("The largest logits and hidden states over 100k tokens", "difftool outliers")]),
    (
        "nll",
        &[
            ("The embedded prose", "difftool nll"),
            ("Your own text", "difftool nll --text book.txt --ctx 2k --model ./llama"),
        ],
    ),
    (
        "run",
        &[
            ("Write the experiment file of a command", "difftool needle --ctx 1k --print-experiment > exp.toml"),
            ("Run one of eight shards", "difftool run exp.toml --shard 1/8 --out shards/1"),
        ],
    ),
    ("merge", &[("Merge shards", "difftool merge shards/0 shards/1 --out runs/whole")]),
    (
        "compare",
        &[
            ("Compare the models of one run", "difftool compare runs/readme --by model"),
            (
                "Compare two runs; fail if accuracy falls by more than 5 points",
                "difftool compare runs/a runs/b --fail-if 'exact < -0.05'",
            ),
        ],
    ),
    (
        "report",
        &[
            ("An HTML page", "difftool report runs/readme --out report.html"),
            ("Tables for a text of yours", "difftool report runs/readme --format markdown"),
        ],
    ),
    ("inspect", &[("A model folder", "difftool inspect ./llama --ctx 8k")]),
    (
        "prompt",
        &[
            ("A prompt with its regions", "difftool prompt --ctx 256"),
            ("All prompts of a run, as JSON lines", "difftool prompt --ctx 1k --jsonl prompts.jsonl"),
        ],
    ),
    (
        "train",
        &[
            ("Write an example spec", "difftool train --example > example.toml"),
            ("Train the built-in models", "difftool train experiments/study-b-models.toml --out runs/study-b"),
            (
                "Continue one seed of one variant",
                "difftool train example.toml --out runs/a --only diff/seed-2 --resume",
            ),
        ],
    ),
    (
        "completions",
        &[
            ("For bash: load the file in ~/.bashrc", "difftool completions bash > ~/.difftool.bash"),
            ("For fish", "difftool completions fish > ~/.config/fish/completions/difftool.fish"),
        ],
    ),
];

/// Formats examples for the help.
pub(crate) fn text(examples: &[(&str, &str)]) -> String {
    let lines = examples.iter().map(|(what, line)| format!("  # {what}\n  {line}\n"));
    format!("Examples:\n{}", lines.collect::<String>())
}

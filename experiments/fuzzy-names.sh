#!/usr/bin/env bash
# Writes target/texts/fuzzy-names.jsonl: 120 needles about made-up names of several tokens, each of which begins as 23 others do, and ends as
# four others do. Needs python3.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p target/texts
python3 - > target/texts/fuzzy-names.jsonl <<'PYTHON'
import itertools, json, random
rng = random.Random(0)
beginnings = ["Kalo", "Mire", "Tavo", "Selu", "Borda"]
ends = [a + b for a, b in itertools.product(["ri", "no", "la", "ve", "du", "sho"], ["ma", "ten", "lis", "go"])]
for beginning, end in itertools.product(beginnings, ends):
    name, number = beginning + end, rng.randrange(10_000, 100_000)
    print(json.dumps({
        "needle": f"The special magic {name} number is: {number}.",
        "question": f"What is the special magic {name} number?",
        "answer": str(number),
        "lead": f"The special magic {name} number is:",
    }))
PYTHON

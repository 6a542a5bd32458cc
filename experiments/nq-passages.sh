#!/usr/bin/env bash
# Writes experiments/nq-passages.jsonl (or the file that is named): 100 questions of NQ-open, each with its gold passage among nine passages
# of other questions. Questions and passages are those of Liu et al. ("Lost in the Middle", MIT; passages of Wikipedia, CC BY-SA), which are
# fetched and not part of this repository. Needs git, gzip and python3.
set -euo pipefail
out=${1:-"$(dirname "$0")/nq-passages.jsonl"}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
source=${NQ_ORACLE:-}
if [ -z "$source" ]; then
  git clone --quiet --depth 1 https://github.com/nelson-liu/lost-in-the-middle "$scratch/repository"
  source=$scratch/repository/qa_data/nq-open-oracle.jsonl.gz
fi
gzip -dc "$source" | python3 -c '
import json, random, sys
random.seed(0)
asked = [json.loads(line) for line in sys.stdin]
for number, item in enumerate(random.sample(asked, 100)):
    [gold] = item["ctxs"]
    others = [other["ctxs"][0] for other in random.sample(asked, 30)]
    # A passage that holds the answer, or is of the same article, is no other.
    known = [answer.lower() for answer in item["answers"]]
    others = [p for p in others if p["title"] != gold["title"] and not any(a in p["text"].lower() for a in known)][:9]
    passages = [{"title": p["title"], "text": p["text"], "gold": False} for p in others]
    passages.insert(random.randrange(10), {"title": gold["title"], "text": gold["text"], "gold": True})
    print(json.dumps({"id": f"nq{number}", "question": item["question"] + "?", "answers": item["answers"], "passages": passages}))
' > "$out"

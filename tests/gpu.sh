#!/usr/bin/env bash
# Compares a GPU with the CPU: runs the same commands on both, and pairs their records. Needs Python, and nvidia-smi to tell memory.
#
#     cargo build --release --features cuda
#     tests/gpu.sh [MODEL]…                 each of these, or the built-in models
#
# BINARY is the program (target/release/difftool). OTHER is what is compared with the CPU (--device cuda); OTHER='--dtype f64' needs no GPU.
# A line per command says how many records are further apart than 0.01 nats, 0.001 of a share or a thousandth of another number. Fails if a command
# does, or if more than 1 in 20 records of one are further apart; but for `quantize`, where deep models round differently layer after layer.
set -uo pipefail
binary=$(realpath "${BINARY:-target/release/difftool}")
read -ra other <<< "${OTHER:---device cuda}"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

# compare COMMAND FLAG…: runs it in f32 on the CPU and on the other device
compare() {
  rm -rf "${scratch:?}"/*
  "$binary" "$@" "${models[@]}" -q --out "$scratch/cpu" > /dev/null || { failed=1; return; }
  nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -lms 100 > "$scratch/mebibytes" 2> /dev/null &
  local watching=$!
  "$binary" "$@" "${models[@]}" -q --out "$scratch/other" "${other[@]}" > /dev/null
  local status=$?
  kill "$watching" 2> /dev/null
  wait "$watching" 2> /dev/null
  if [ "$status" -ne 0 ]; then failed=1; return; fi
  python3 - "$scratch" "$*" <<'PYTHON' || failed=1
import collections, csv, json, pathlib, sys
scratch, command = pathlib.Path(sys.argv[1]), sys.argv[2]
PROMPT = ["model", "ctx_tok", "depth_req_pct", "cities", "sample", "seed"]
TOLERANCE = {"nats": 1e-2, "fraction": 1e-3, "": 1e-3}
rows, seconds = [], []
for side in ("cpu", "other"):
    with open(scratch / side / "results.csv", newline="") as file:
        records = list(csv.DictReader(file))
    of_record = [name for name in records[0] if name not in ("value", "unit", "n", "error")]
    rows.append({tuple(record[name] for name in of_record): record for record in records})
    wall_s = json.loads((scratch / side / "manifest.json").read_text())["wall_s"]
    seconds.append(wall_s / len({tuple(record[name] for name in PROMPT) for record in records}))
cpu, other = rows
largest, apart = collections.Counter(), collections.Counter()
for key in cpu.keys() & other.keys():
    one, two = (float(record["value"] or "nan") for record in (cpu[key], other[key]))
    unit = cpu[key]["unit"]
    by = 0 if one == two or (one != one and two != two) else abs(one - two) / (max(1, abs(one)) if unit == "" else 1)
    largest[unit or "relative"] = max(largest[unit or "relative"], by)
    if not by <= TOLERANCE[unit]: apart[cpu[key]["metric"]] += 1
memory = [int(line) for line in (scratch / "mebibytes").read_text().split() if line.isdigit()]
both, alone, new = len(cpu.keys() & other.keys()), cpu.keys() - other.keys(), other.keys() - cpu.keys()
print(f"{command}: {both} records, {sum(apart.values())} apart {dict(apart.most_common(6)) or ''}; largest",
      ", ".join(f"{by:.1e} {unit}" for unit, by in sorted(largest.items())),
      f"; on the CPU alone {len(alone)} {sorted({cpu[key]['metric'] for key in alone})}; not on the CPU {len(new)}; seconds a prompt",
      "{:.3f} and {:.3f}".format(*seconds), f"; {max(memory)} MiB" if memory else "", flush=True)
is_far = 20 * sum(apart.values()) > both and not command.startswith("quantize")
sys.exit(is_far or bool(new) or not both)
PYTHON
}

for named in "${@:-}"; do
  echo "== ${named:-built-in models}"
  models=(--model "$named")
  [ -n "$named" ] || models=(--model transformer --model diff --model diff-v2)
  compare needle --ctx 256 --samples 1 # the first run compiles for the GPU, which is no measure of its speed
  for ctx in 1k 4k; do compare needle --ctx "$ctx" --samples 2; done
  compare needle --ctx 512 --samples 1 --generate
  for command in ratio heads outliers nll "quantize --bits 8,4" "quantize --of qk --bits 8,4"; do
    compare $command --ctx 512 --samples 1
  done
  compare shots --ctx 1k --shots 8,16 --samples 1
  for parts in noise,layers,heads each-layer,patch flow; do
    compare ablate --parts "$parts" --rank share_out --depths 50 --ctx 512 --samples 1
  done
  [ -n "$named" ] || models=(--model diff) # every head is taken out in one model at a time, where models differ
  compare ablate --parts each-head --depths 50 --ctx 512 --samples 1
done
exit "$failed"

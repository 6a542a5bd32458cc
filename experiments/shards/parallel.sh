#!/bin/sh
# One experiment in N shards on this machine, with GNU parallel (or xargs, where there is none), then merged:
#
#   experiments/shards/parallel.sh experiments/noise-4k.toml runs/noise 4
#
# Run again after a crash, it goes on: finished shards are left as they are, others are resumed.
set -eu
experiment=$1 out=$2 shards=$3
DIFFTOOL=${DIFFTOOL:-difftool}
export DIFFTOOL experiment out shards
# shellcheck disable=SC2016 # the inner shell expands it
one='part="$out/part-$1"
if [ -e "$part/cells.csv" ]; then where=--resume; else where=--out; fi
"$DIFFTOOL" run "$experiment" --shard "$1/$shards" "$where" "$part" --threads 1 -q'
mkdir -p "$out"
if command -v parallel >/dev/null; then
    seq "$shards" | parallel --halt now,fail=1 sh -c "'$one'" sh
else
    seq "$shards" | xargs -P "$(getconf _NPROCESSORS_ONLN)" -n 1 sh -c "$one" sh
fi
seq "$shards" | sed "s|^|$out/part-|" | xargs "$DIFFTOOL" merge -q --out "$out/merged"

#!/usr/bin/env bash
# Makes an archive of a wheel's binary with completions and manual pages, unpacks it and measures with it:
#
#     tests/archive.sh WHEEL archives/NAME        writes archives/NAME.tar.gz
set -euo pipefail
wheel=$1 archive=$2
name=$(basename "$archive")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m zipfile -e "$wheel" "$scratch/wheel"
mkdir -p "$(dirname "$archive")" "$scratch/$name/completions"
cp "$scratch"/wheel/*.data/scripts/difftool* README.md CHANGELOG.md LICENSE-* "$scratch/$name"
chmod +x "$scratch/$name"/difftool* # zipfile drops modes
for shell in bash fish zsh powershell; do
  "$scratch/$name/difftool" completions "$shell" > "$scratch/$name/completions/difftool.$shell"
done
"$scratch/$name/difftool" man "$scratch/$name/man"
tar -czf "$archive.tar.gz" -C "$scratch" "$name"

mkdir "$scratch/unpacked"
tar -xzf "$archive.tar.gz" -C "$scratch/unpacked"
"$scratch/unpacked/$name/difftool" needle --ctx 256 --samples 1 --model transformer --out "$scratch/run" | grep transformer

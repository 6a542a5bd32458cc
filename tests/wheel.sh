#!/usr/bin/env bash
# Installs the package into a fresh Python environment, and measures with the binary, the archive, the module and the notebook from
# there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
notebook=$PWD/docs/notebook.ipynb
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/venv"
PATH=$scratch/venv/bin:$PATH
pip=(pip --quiet --disable-pip-version-check)
if ! "${pip[@]}" install 'maturin>=1.9.4,<2'; then
  echo "skipped: maturin, which builds the package, cannot be installed here"
  exit
fi
"${pip[@]}" wheel --no-build-isolation --no-deps --wheel-dir "$scratch/dist" .
"${pip[@]}" install "$scratch"/dist/*.whl
tests/archive.sh "$scratch"/dist/*.whl "$scratch/archives/difftool"
cd "$scratch"
[[ $(command -v difftool) == "$scratch/venv/bin/difftool" ]]
difftool needle --ctx 256 --samples 1 --model transformer --out run | grep transformer
[[ -s run/results.csv ]]
python -c 'import difftool; print(difftool.run("needle", ctx=256, samples=1, model="transformer").tables["answers"])' | grep accuracy
if "${pip[@]}" install nbclient ipykernel pandas; then
  jupyter execute "$notebook"
else
  echo "skipped: the notebook, for which Jupyter cannot be installed here"
fi

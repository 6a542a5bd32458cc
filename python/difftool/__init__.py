"""difftool in Python: `difftool.run("needle", ctx="1k", model=["diff"])` measures, and returns the numbers as data frames."""

import csv
import html
import json
import os
import shutil
import subprocess
import sysconfig
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path


class Error(RuntimeError):
    """What difftool says where it ends with an error."""


def run(command, out=None, **flags):
    """Runs a command that measures. `flags` are its flags, with `_` for `-`: a list repeats one, True is one without a value.

    The folder `out` keeps the run, and `out`.npz the matrices of `heatmap`. Without it, the files are gone when the result is.
    """
    resumed = flags.get("resume")
    if resumed and out:
        raise Error("out and resume: a run that is resumed has its folder")
    kept = None if out or resumed else tempfile.TemporaryDirectory(prefix="difftool-")
    folder = Path(resumed or out or Path(kept.name) / "run")
    if command == "heatmap":
        folder.parent.mkdir(parents=True, exist_ok=True)
        flags.setdefault("data", f"{folder}.npz")
    arguments = [command] if resumed else [command, f"--out={folder}"]
    return Run(folder, _call(*arguments, *_words(flags)), flags.get("data"), kept)


def compare(*runs, **flags):
    """The rows of `difftool compare`: changes with their intervals and verdict, of run folders, runs or files of results."""
    inputs = [run.folder if isinstance(run, Run) else run for run in runs]
    rows = json.loads(_call("compare", "--json", *_words(flags), "--", *inputs))["rows"]
    return _frame([{**row.pop("group"), **row} for row in rows])


def inspect(model, **flags):
    """What `difftool inspect` says of a model: architecture, lambda by layer, and memory in bytes."""
    return json.loads(_call("inspect", "--json", *_words(flags), "--", model))


def _words(flags):
    words = []
    for name, given in flags.items():
        for value in [given] if isinstance(given, (str, bytes)) or not hasattr(given, "__iter__") else given:
            if value is not None and value is not False:
                # One word each: a value that begins with a dash is no flag.
                words.append("--" + name.replace("_", "-") + ("" if value is True else f"={value}"))
    return words


class Run:
    """A finished run; `Run("runs/needle")` reads one of the command line."""

    def __init__(self, folder, screen="", data=None, kept=None):
        self.folder, self.screen, self._kept, self._data = Path(folder), screen, kept, data or f"{folder}.npz"

    def __repr__(self):
        return self.screen or f"Run({str(self.folder)!r})"

    @property
    def results(self):
        """`results.csv`: one number in each row."""
        with open(self.folder / "results.csv", newline="", encoding="utf-8") as file:
            return _frame([{name: _number(text) for name, text in row.items()} for row in csv.DictReader(file)])

    @property
    def tables(self):
        """All tables of the run, by name. The ends of intervals have columns of their own."""
        tables = json.loads(_call("show", "--json", "--", self.folder))
        return {name: _frame([_flat(row) for row in rows]) for name, rows in tables.items()}

    @property
    def maps(self):
        """The matrices of `heatmap`, by name: NumPy arrays."""
        return __import__("numpy").load(self._data)

    @property
    def figures(self):
        """The PNG files of the run, by name."""
        return {path.stem: path for path in sorted(self.folder.glob("*.png"))}

    def _repr_png_(self):
        shown = [path.read_bytes() for name, path in self.figures.items() if name.startswith(("heatmap", "context"))]
        return shown[0] if shown else None

    def _repr_html_(self):
        pages = [html.escape(page.read_text(encoding="utf-8")) for page in self.folder.glob("explore.html")]
        return f'<iframe sandbox="allow-scripts" srcdoc="{pages[0]}" width="100%" height="800"></iframe>' if pages else None


def _call(*arguments):
    # Where `pip install`, `--user` and `--target` put programs.
    beside = Path(__file__).parents[1] / "bin"
    places = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user"), str(beside)]
    binary = shutil.which("difftool", path=os.pathsep.join(places)) or "difftool"
    done = subprocess.run([binary, *map(str, arguments)], capture_output=True, encoding="utf-8")
    if done.returncode:
        raise Error(done.stderr.strip())
    return done.stdout


def _frame(rows):
    """A data frame of pandas or polars, whichever is there; the rows without them."""
    library = next((name for name in ("pandas", "polars") if find_spec(name)), None)
    if library == "polars":
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: [row.get(name) for row in rows] for name in names}
        return __import__(library).DataFrame(columns, strict=False)
    return __import__(library).DataFrame(rows) if library else rows


def _flat(row):
    ends = {f"{name}_{end}": x[end] for name, x in row.items() if isinstance(x, dict) for end in ("lo", "hi")}
    return {**{name: x["value"] if isinstance(x, dict) else x for name, x in row.items()}, **ends}


def _number(text):
    for read in (int, float):
        with suppress(ValueError):
            return read(text)
    return text or None

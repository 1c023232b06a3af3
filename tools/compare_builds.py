"""Build the same datasets with two commits and compare the files byte by byte.

    python tools/compare_builds.py HEAD~3             # against the working tree
    python tools/compare_builds.py main feature       # two revisions
    python tools/compare_builds.py HEAD --only default --only packed --keep results
    python tools/compare_builds.py --list

Run it after a refactoring. It uses nothing of gristmill but its command line, so modules may move between the two.
Each row of ROWS is a list of commands. Both sides run them on the same inputs, each side in a folder of its own, and
everything that lies there afterwards is compared, but for the work folders.

Data files and files.jsonl must be equal. Manifests, cards and reports hold times and versions: these are left out, and
other differences in them are notes (`--strict`: failures). A row with `same_as` must also give the data files of that
other row, since workers, steps by hand and exports do not change rows.

The exit code is 0 if all rows are equal, 1 otherwise, 2 for a wrong option. Without --jobs, two rows run at a time.
The interpreter must have the extras parquet, tokenizers, variants and report.
"""

import argparse
import base64
import contextlib
import hashlib
import http.server
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import made_corpus

from gristmill.core.output_formats import FORMATS

ROOT = Path(__file__).parents[1]
COMMAND_SECONDS = 300
ALL_FORMATS = ",".join(FORMATS)
"""Rows with a format that one of the revisions does not have fail in it."""
OTHER_FORMATS = ALL_FORMATS.removeprefix("jsonl,")
FACTS = frozenset({"manifest.json", "README.md", "croissant.json", "check.json", "vocabulary.json", "report.html"})
"""Files that describe a build: times, machine and versions in them may differ."""
VARYING_KEYS = frozenset({"run", "fingerprint", "gristmill", "versions", "seconds", "datePublished", "dateModified"})
"""The fingerprint is a digest of the version too."""
VARYING_TEXT = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.+:Z]*"), "TIME"),
    (re.compile(r"\b[0-9a-f]{16,64}\b"), "DIGEST"),
    (re.compile(r"gristmill \d[\w.+]*"), "gristmill VERSION"),
    (re.compile(r"version `[\w.+]+`"), "VERSION"),
    (re.compile(r"\b\d[\d.,]* s\b"), "SECONDS"),
    (re.compile(r"\w+ took longest"), "PHASE took longest"),
    (re.compile(r"[\d.,]+ .?B of source a second"), "RATE of source a second"),
    (re.compile(r'<td>\w+</td><td class="number">\d+\.\d\d</td>'), "PHASE"),
    (re.compile(r'"chart-phases":.*?(?=,"chart-|$)', re.MULTILINE), "PHASES"),
)
"""The last four are in a report. Digests are those of data files, which are compared themselves."""
WORK_FOLDER = "*.work"
COPY = "copy"
"""A row's own copy of the corpus, which it may change."""


class UsageError(Exception):
    """Something on the command line cannot be used."""


class Inputs(NamedTuple):
    folder: Path
    corpus: Path
    endpoint: str

    def filled(self, command: str) -> list[str]:
        """Return the command's words, with the places of the inputs in them."""
        places = {"inputs": self.folder, "corpus": self.corpus, "endpoint": self.endpoint}
        return [word.format(**places) for word in shlex.split(command)]


def copy_corpus(inputs: Inputs, folder: Path) -> None:
    shutil.copytree(inputs.corpus, folder / COPY / "corpus", symlinks=True, ignore=_not_copied)


def _not_copied(folder: str, names: list[str]) -> list[str]:
    """Leave out pipes and sockets, which cannot be copied, and repositories, which must not be changed."""
    paths = {name: Path(folder, name) for name in names}
    copied = {name for name, path in paths.items() if path.is_symlink() or path.is_file() or path.is_dir()}
    return [name for name in names if name not in copied or name == ".git"]


def change_corpus(_inputs: Inputs, folder: Path) -> None:
    made_corpus.change_corpus(folder / COPY / "corpus")


Step = str | Callable[[Inputs, Path], None]
"""A command line of gristmill, or a change of files between two of them."""


class Row(NamedTuple):
    name: str
    steps: tuple[Step, ...]
    settings: str = ""
    """The content of gristmill.toml in the row's folder."""
    same_as: str | None = None
    """The row with the same data files in `dataset`."""


def _build(name: str, options: str = "", *, settings: str = "", same_as: str | None = None) -> Row:
    """Return a row of one build of the corpus."""
    config = "--config gristmill.toml " if settings else ""
    return Row(name, (f"build {{corpus}} --out dataset {config}{options}",), settings, same_as)


def _build_with_own_tokenizer(name: str, options: str = "", template: str = "roberta") -> Row:
    train = f"tokenizer train {{corpus}} --out tokenizer --size 1500 --template {template}"
    return Row(name, (train, f"build {{corpus}} --out dataset --tokenizer tokenizer --splits tokenizer {options}"))


COLUMNS = "--text-column src --path-column id --repo-column from --license-column terms"
BY_HAND = (
    *(f"prepare {{corpus}} --config gristmill.toml --shard {shard}/3" for shard in (1, 2, 3)),
    "decide {corpus} --config gristmill.toml",
    *(f"shape {{corpus}} --config gristmill.toml --shard {shard}/2" for shard in (2, 1)),
    "finish {corpus} --config gristmill.toml",
)
ROWS = (
    _build("default"),
    # Formats.
    _build("zstd", "--compress zstd"),
    _build("formats", f"--format {ALL_FORMATS}"),
    *(_build(f"format-{name}", f"--format {name}") for name in OTHER_FORMATS.split(",")),
    _build("formats-pad-text", f"--format {ALL_FORMATS} --pad --with-text"),
    _build("shards", f"--format {ALL_FORMATS}", settings="[output]\nshard_bytes = 400000\n"),
    _build("shards-zstd", "--compress zstd", settings="[output]\nshard_bytes = 400000\n"),
    Row("export", ("build {corpus} --out dataset", f"export dataset --format {OTHER_FORMATS}"), same_as="formats"),
    Row("export-to-jsonl", ("build {corpus} --out dataset --format parquet", "export dataset --format jsonl,npy")),
    Row("export-zstd", ("build {corpus} --out dataset --compress zstd", "export dataset --format parquet,mds")),
    # Windows and rows.
    _build("pad", "--pad"),
    _build("with-text", "--with-text"),
    _build("small-windows", "--window 128 --overlap 32 --tail shift --with-text"),
    _build("tail-drop", "--window 200 --tail drop", settings="[window]\nmin_fresh = 50\n"),
    # A stride of 9: among 160 files, every remainder of tokens is there at the end of some file.
    *(
        _build(f"tiny-windows-{tail}", f"--window 16 --overlap 5 --tail {tail}", settings="[window]\nmin_fresh = 4\n")
        for tail in ("keep", "shift", "drop")
    ),
    _build("documents", "--rows documents --format jsonl,parquet"),
    _build("documents-workers", "--rows documents --format jsonl,parquet --workers 3", same_as="documents"),
    _build("documents-zstd", "--rows documents --compress zstd"),
    _build("documents-shards", "--rows documents --format jsonl,parquet", settings="[output]\nshard_bytes = 400000\n"),
    _build("documents-cut", "--rows documents --split 60/20/20 --variants rename,comments --weight 'src/**=2'"),
    _build("documents-drop", "--rows documents --control-spellings drop --decontaminate drop --split 60/20/20"),
    _build("documents-unigram", "--rows documents --tokenizer {inputs}/tokenizers/unigram.json"),
    Row(
        "documents-export",
        ("build {corpus} --out dataset --rows documents", "export dataset --format parquet"),
        same_as="documents",
    ),
    Row(
        "documents-rebuild",
        (
            copy_corpus,
            "build copy/corpus --out dataset --rows documents",
            change_corpus,
            "build copy/corpus --out dataset --rows documents",
        ),
    ),
    _build("packed-small", "--pack best-fit --window 48 --language python --exclude 'src/long.py'"),
    _build("packed", "--pack best-fit"),
    _build("packed-formats", f"--pack best-fit --overlap 64 --pad --with-text --format {ALL_FORMATS}"),
    _build_with_own_tokenizer("packed-repo", "--pack repo --format jsonl,parquet,bin", "none"),
    _build_with_own_tokenizer("packed-imports", "--pack repo --repo-order imports", "none"),
    _build_with_own_tokenizer("packed-shuffled", "--pack repo --repo-order shuffle --repo-order-seed 3", "none"),
    # Tokenizers. The default rows have codebert.
    _build_with_own_tokenizer("tokenizer-trained", "--with-text"),
    Row("tokenizer-of-dataset", ("build {corpus} --out dataset", "tokenizer train dataset --out tok.json --size 1000")),
    _build("tokenizer-wordpiece", "--tokenizer {inputs}/tokenizers/wordpiece.json --format jsonl,parquet"),
    _build("tokenizer-unigram", "--tokenizer {inputs}/tokenizers/unigram.json --with-text"),
    # Variants.
    *(_build(f"variants-{kind}", f"--variants {kind}") for kind in ("rename", "comments", "format", "noise")),
    _build_with_own_tokenizer("variants-all", "--variants rename,comments=0.3,format=1,noise --with-text"),
    # Causal models.
    _build_with_own_tokenizer("causal", "--preset causal --window 256", template="none"),
    _build_with_own_tokenizer("causal-streams", "--preset causal --pack none --format bin,megatron", template="none"),
    _build_with_own_tokenizer("fim", "--preset fim --window 256 --format jsonl,arrow", template="none"),
    _build_with_own_tokenizer("fim-drawn", "--preset fim --pack none --weight 'src/**=3' --with-text", template="none"),
    _build_with_own_tokenizer("fim-repo", "--preset fim --pack repo --repo-order imports", template="none"),
    _build_with_own_tokenizer("fim-documents", "--preset fim --rows documents --format jsonl,parquet", template="none"),
    _build("variants-formats", f"--variants rename,noise --variant-seed 3 --pad --format {ALL_FORMATS}"),
    _build("variants-packed", "--variants rename,comments --pack best-fit"),
    _build(
        "variants-noise-settings", "--variants noise=1", settings="[variants]\nnoise_mask = 0.3\nnoise_span = 5.0\n"
    ),
    _build("variants-weights", "--variants rename,noise --weights code --weight 'src/**=3'"),
    _build("variants-of-cut-files", "--variants rename=1,noise=1 --split 60/20/20 --decontaminate train"),
    _build("variants-wordpiece", "--variants rename --tokenizer {inputs}/tokenizers/wordpiece.json"),
    _build("variants-rewrite", "--variants rewrite --rewrite-endpoint {endpoint} --with-text"),
    _build("variants-back-translation", "--variants back-translation --rewrite-endpoint {endpoint}"),
    # How many windows.
    _build("max-windows", "--max-windows 150 --sample-seed 4"),
    _build("weights", "--weights code"),
    _build(
        "weights-by-pattern", "--weight language:rust=4 --weight 'tests/**=0.5' --weight folder:docs=0 --max-epochs 3"
    ),
    _build("weights-only", "--weights code --weights-only --format jsonl,parquet"),
    _build("target-windows", "--target-windows 900 --weight 'src/**=2'"),
    # Splits.
    _build("split", "--split 60/25/15 --seed 7"),
    _build("split-by-directory", "--split 50/25/25 --split-by directory"),
    Row("split-by-repo", ("build {corpus} {inputs}/second/corpus {inputs}/single --out dataset --split-by repo",)),
    _build("decontaminate-drop", "--split 60/20/20 --decontaminate drop"),
    _build("decontaminate-train", "--split 60/20/20 --decontaminate train"),
    _build("decontaminate-off", "--decontaminate off"),
    _build(
        "benchmark",
        "--decontaminate-against {inputs}/benchmarks/tasks.jsonl --decontaminate-against {inputs}/benchmarks/plain.txt",
    ),
    Row(
        "earlier-splits",
        (
            "build {inputs}/second/corpus --out first --seed 5 --split 50/25/25",
            "build {corpus} --out dataset --splits first/files.jsonl",
        ),
    ),
    # Cleaning, and which files.
    _build("near-duplicates-group", "--near-duplicates group --split 60/20/20"),
    _build("near-duplicates-keep", "--near-duplicates keep --split 60/20/20"),
    _build("secrets-drop", "--secrets drop"),
    _build("secrets-keep", "--secrets keep"),
    _build("emails-and-salt", "--redact-emails", settings='[secrets]\nsalt = "a salt"\n'),
    _build("licence-allow", "--license-allow MIT,BSD-3-Clause"),
    _build("choice-of-files", "--include 'src/' --include '*.go' --exclude 'src/core/' --max-file-bytes 20000"),
    _build("languages", "--language python --language rust"),
    _build(
        "rules",
        settings="[scan]\nnotebooks = 'raw'\ndefault_excludes = false\n[rules]\nvendored = false\ngenerated = false\n"
        "encoded_data = false\nlongest_line = 90\n[rules.languages.python]\nlongest_line = false\nmean_line = 30\n",
    ),
    # Other sources.
    Row("table-parquet", ("build {inputs}/tables/stack.parquet --out dataset",)),
    Row("table-jsonl", ("build {inputs}/tables/stack.jsonl {inputs}/tables/some.jsonl.gz --out dataset",)),
    Row("table-columns", (f"build {{inputs}}/tables/named.jsonl --out dataset --license-allow MIT {COLUMNS}",)),
    Row("git-work-tree", ("build {inputs}/repository --out dataset",)),
    Row("git-address", ("build git+file://{inputs}/repository#main --out dataset",)),
    Row("several-sources", ("build {corpus} {inputs}/second/corpus {inputs}/single/alone.py --out dataset",)),
    # Ways to run.
    _build("workers-1", "--workers 1", same_as="default"),
    _build("workers-3", "--workers 3 --batch-bytes 50000", same_as="default"),
    Row("by-hand", BY_HAND, "out = 'dataset'\n[run]\nbatch_bytes = 60000\n", same_as="default"),
    Row(
        "by-hand-formats",
        BY_HAND,
        f"out = 'dataset'\n[run]\nbatch_bytes = 60000\n[output]\nformats = {json.dumps(ALL_FORMATS.split(','))}\n",
        same_as="formats",
    ),
    Row("no-cache", ("build {corpus} --out dataset --cache-bytes 0",) * 2),
    Row(
        "rebuild",
        (
            copy_corpus,
            "build copy/corpus --out dataset --split 60/20/20 --variants rename,noise",
            change_corpus,
            "build copy/corpus --out dataset --split 60/20/20 --variants rename,noise",
        ),
    ),
    Row(
        "rebuild-without-cache",
        (
            copy_corpus,
            "build copy/corpus --out dataset --split 60/20/20",
            change_corpus,
            "clean dataset",
            "build copy/corpus --out dataset --split 60/20/20 --variants rename,noise",
        ),
        same_as="rebuild",
    ),
    Row(
        "rebuild-unchanged",
        (copy_corpus, "build copy/corpus --out dataset", "build copy/corpus --out dataset"),
    ),
    Row(
        "rebuild-other-settings",
        ("build {corpus} --out dataset", "build {corpus} --out dataset --overlap 64 --format jsonl,parquet --seed 3"),
    ),
    Row(
        "rebuild-fresh-splits",
        ("build {corpus} --out dataset", "build {corpus} --out dataset --fresh-splits --seed 3"),
    ),
    Row("check-and-report", ("build {corpus} --out dataset --variants rename", "check dataset", "report dataset")),
)


class ChatServer(http.server.ThreadingHTTPServer):
    """A language model on loopback whose answers follow from the questions alone."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Chat)
        self.described: dict[str, str] = {}
        """Code by the digest that stands in its description."""

    def answer(self, prompt: str) -> str:
        """Return the code with other names; or a digest as its description, and the code of such a digest.

        Half of the answers are bad: a refusal, the same code, a syntax error, or what looks like a secret.
        """
        fenced = re.findall(r"^(`{3,})[^\n]*\n(.*?)\n\1$", prompt, re.DOTALL | re.MULTILINE)
        code = str(fenced[-1][1]) if fenced else ""
        if prompt.startswith("Describe"):
            name = f"sum{hashlib.sha256(code.encode()).hexdigest()[:8]}"
            self.described[name] = code
            return f"It computes {name} of its arguments."
        named = re.search(r"\bsum[0-9a-f]{8}\b", prompt)
        code = self.described.get(named[0], code) if named else code
        other = re.sub(r"\b(value|name|path|line|item|key|count|size)(_\w+)?\b", r"other_\1\2", code)
        match hashlib.sha256(code.encode()).digest()[0] % 8:
            case 0:
                return "I would rather not."
            case 1:
                other = code
            case 2:
                other += "\n)) if else (("
            case 3:  # no secret: the digest of the question
                other = f'password = "{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}"\n{other}'
        return f"Here it is:\n\n`````\n{other}\n`````\n"


class _Chat(http.server.BaseHTTPRequestHandler):
    server: ChatServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self._send({"object": "list", "data": [{"id": "made-up-model"}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = {"role": "assistant", "content": self.server.answer(asked["messages"][-1]["content"])}
        self._send({"choices": [{"message": message, "finish_reason": "stop"}]})

    def _send(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def chat_server() -> Iterator[str]:
    """Yield the address of a running server."""
    with ChatServer() as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()


class Side(NamedTuple):
    """One of the two commits, and the folder for what it builds."""

    name: str
    source: Path
    results: Path

    def run(self, words: Sequence[str], folder: Path) -> str | None:
        """Run a command of gristmill; return None, or why it failed."""
        command = [sys.executable, "-m", "gristmill", *words]
        try:
            done = subprocess.run(
                command, cwd=folder, env=self.environment(), capture_output=True, timeout=COMMAND_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return f"gristmill {words[0]} ran for more than {COMMAND_SECONDS} s"
        if done.returncode == 0:
            return None
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        return f"exit code {done.returncode} of gristmill {words[0]}: {said[-1]}"

    def environment(self) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("GRISTMILL_", "PYTHON", "GIT_"))
        }
        fixed = {"HF_HUB_OFFLINE": "1", "NO_COLOR": "1", "TZ": "UTC", "COLUMNS": "120"}
        git = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        return {**kept, **fixed, **git, "PYTHONPATH": str(self.source)}

    def check_package(self) -> None:
        """Raise if the interpreter would run another gristmill than this side's."""
        find = "import importlib.util; print(importlib.util.find_spec('gristmill').origin)"
        command = [sys.executable, "-c", find]
        found = subprocess.run(command, cwd=self.results, env=self.environment(), capture_output=True, check=True)
        if not Path(found.stdout.decode().strip()).is_relative_to(self.source):
            raise UsageError(f"{self.name}: gristmill would be imported from {found.stdout.decode().strip()}")


def extract(revision: str | None, folder: Path) -> Path:
    """Copy the package of a revision, or of the working tree for None, and return what PYTHONPATH must name."""
    if revision is None:
        shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
        return folder / "src"
    command = ["git", "archive", "--format=zip", revision, "src"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise UsageError(f"cannot read revision {revision!r}: {done.stderr.decode().strip()}")
    with zipfile.ZipFile(io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder)
    return folder / "src"


class Built(NamedTuple):
    folder: Path
    seconds: float
    error: str | None


def build_row(side: Side, row: Row, inputs: Inputs) -> Built:
    """Run a row's steps in a new folder, up to the first that fails."""
    folder = side.results / row.name
    folder.mkdir(parents=True)
    started = time.monotonic()
    if row.settings:
        (folder / "gristmill.toml").write_text(row.settings)
    error = None
    for step in row.steps:
        if isinstance(step, str):
            error = side.run(inputs.filled(step), folder)
        else:
            step(inputs, folder)
        if error is not None:
            break
    for leftover in (folder / COPY, *folder.glob(WORK_FOLDER)):
        shutil.rmtree(leftover, ignore_errors=True)
    return Built(folder, time.monotonic() - started, error)


class Comparison(NamedTuple):
    num_files: int
    num_bytes: int
    """Of the data files."""
    differences: list[str]
    """The first one of each data file."""
    notes: list[str]
    """The first one of each file that describes a build."""


def compare_folders(before: Path, after: Path, *, with_facts: bool = True) -> Comparison:
    """Compare all files below two folders, or without facts the data files alone."""
    names = {name for folder in (before, after) for name in _files_in(folder) if with_facts or not _is_facts(name)}
    differences: list[str] = []
    notes: list[str] = []
    num_bytes = 0
    for name in sorted(names):
        old, new = before / name, after / name
        if not (old.is_file() and new.is_file()):
            differences.append(f"{name} is only in {'the first' if old.is_file() else 'the second'}")
            continue
        old_bytes, new_bytes = old.read_bytes(), new.read_bytes()
        num_bytes += 0 if _is_facts(name) else len(new_bytes)
        if old_bytes == new_bytes:
            continue
        if _is_facts(name):
            if (where := _first_difference_of_facts(name, old_bytes, new_bytes)) is not None:
                notes.append(f"{name}: {where}")
        else:
            differences.append(f"{name} at {_first_difference(name, old_bytes, new_bytes)}")
    return Comparison(len(names), num_bytes, differences, notes)


def _files_in(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()]


def _is_facts(name: str) -> bool:
    return Path(name).name in FACTS


def _first_difference(name: str, before: bytes, after: bytes) -> str:
    """Return the first byte that differs; for JSON lines also the row and its columns that differ."""
    offset = _num_in_common(before, after)
    where = f"byte {offset:,} of {len(before):,} and {len(after):,}"
    if not name.endswith(".jsonl"):
        return where
    row = before.count(b"\n", 0, offset)
    where += f", row {row + 1:,}"
    try:
        old_row, new_row = (json.loads(content.split(b"\n")[row]) for content in (before, after))
    except (ValueError, IndexError):
        return where
    columns = [key for key in {**old_row, **new_row} if old_row.get(key) != new_row.get(key)]
    return f"{where} ({', '.join(columns) or 'the same values, written differently'})"


def _num_in_common(before: bytes | str, after: bytes | str) -> int:
    """Return the length of the common beginning."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((at for at, (old, new) in pairs if old != new), min(len(before), len(after)))


def _first_difference_of_facts(name: str, before: bytes, after: bytes) -> str | None:
    """Return None if only what may vary differs."""
    if name.endswith(".json"):
        return _first_difference_of_values(json.loads(before), json.loads(after), "")
    old_lines, new_lines = (_settled(content.decode()).splitlines() for content in (before, after))
    for number, (old, new) in enumerate(zip(old_lines, new_lines, strict=False), 1):
        if old != new:
            start = max(0, _num_in_common(old, new) - 20)
            return f"line {number}: {_shortened(old[start:])} and {_shortened(new[start:])}"
    return None if len(old_lines) == len(new_lines) else f"{len(old_lines)} and {len(new_lines)} lines"


def _first_difference_of_values(before: Any, after: Any, place: str) -> str | None:
    if isinstance(before, dict) and isinstance(after, dict):
        keys = [key for key in {**before, **after} if key not in VARYING_KEYS]
        pairs = [(f"{place}.{key}".removeprefix("."), before.get(key), after.get(key)) for key in keys]
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = [(f"{place}[{index}]", *pair) for index, pair in enumerate(zip(before, after, strict=True))]
    else:
        old, new = _settled(str(before)), _settled(str(after))
        return None if old == new else f"{place}: {_shortened(old)} and {_shortened(new)}"
    found = (_first_difference_of_values(old, new, inner) for inner, old, new in pairs)
    return next((where for where in found if where is not None), None)


def _settled(text: str) -> str:
    for pattern, instead in VARYING_TEXT:
        text = pattern.sub(instead, text)
    return text


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:59] + "…")  # noqa: PLR2004 - fits on a line


def chosen_rows(names: Sequence[str]) -> list[Row]:
    """Return the rows of these names and those that they must be the same as; all rows without names."""
    by_name = {row.name: row for row in ROWS}
    if unknown := [name for name in names if name not in by_name]:
        raise UsageError(f"there is no row {unknown[0]!r}. Run with --list for all of them.")
    wanted = {*names, *(by_name[name].same_as for name in names)}
    return [row for row in ROWS if not names or row.name in wanted]


class Tally:
    """Prints a line for each row and counts what was found."""

    def __init__(self, *, is_strict: bool) -> None:
        self.is_strict = is_strict
        self.num_rows = self.num_bad = self.num_notes = self.num_files = self.num_bytes = 0

    def add(self, row: Row, before: Built, after: Built, same_as: Path | None) -> None:
        self.num_rows += 1
        failures = [
            f"{side} FAILED: {built.error}" for side, built in (("before", before), ("after", after)) if built.error
        ]
        if failures:
            self.num_bad += 1
            print(f"{row.name:<26} {'; '.join(failures)}", flush=True)
            return
        compared = compare_folders(before.folder, after.folder)
        verdict = _verdict(compared.differences)
        is_bad = bool(compared.differences or (self.is_strict and compared.notes))
        if same_as is not None:
            crossed = compare_folders(same_as / "dataset", after.folder / "dataset", with_facts=False)
            verdict += f"; against {row.same_as}: {_verdict(crossed.differences)}"
            is_bad = is_bad or bool(crossed.differences)
        print(f"{row.name:<26} {compared.num_files:>4} files {compared.num_bytes:>11,} bytes  {verdict}")
        for note in compared.notes:
            print(f"{'':<26} note: {note}")
        sys.stdout.flush()
        self.num_bad += is_bad
        self.num_notes += len(compared.notes)
        self.num_files += compared.num_files
        self.num_bytes += compared.num_bytes

    def summary(self) -> str:
        compared = f"{self.num_files:,} files, {self.num_bytes:,} bytes of data compared"
        return f"{self.num_rows - self.num_bad} of {self.num_rows} rows equal; {compared}; {self.num_notes} notes"


def _verdict(differences: Sequence[str]) -> str:
    if not differences:
        return "equal"
    more = f"; {len(differences)} files differ" if len(differences) > 1 else ""
    return f"DIFFERS: {differences[0]}{more}"


def compare(
    rows: Sequence[Row], sides: tuple[Side, Side], inputs: Inputs, tally: Tally, given: argparse.Namespace
) -> None:
    """Build all rows on both sides, several at a time, and report them in the order of the table."""
    needed_later = {row.same_as for row in rows}
    num_done = 0
    lock = threading.Lock()

    def build(side: Side, row: Row) -> Built:
        nonlocal num_done
        built = build_row(side, row, inputs)
        with lock:
            num_done += 1
            progress = f"[{num_done}/{2 * len(rows)}] {row.name} {side.name}: {built.seconds:.1f} s"
            print(progress, file=sys.stderr, flush=True)
        return built

    pool = ThreadPoolExecutor(given.jobs)
    try:
        pending = [(row, [pool.submit(build, side, row) for side in sides]) for row in rows]
        for row, futures in pending:
            before, after = (future.result() for future in futures)
            tally.add(row, before, after, sides[1].results / row.same_as if row.same_as else None)
            if given.keep is None and row.name not in needed_later:
                shutil.rmtree(before.folder)
                shutil.rmtree(after.folder)
    finally:
        pool.shutdown(cancel_futures=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", nargs="?", metavar="BEFORE", help="a git revision")
    parser.add_argument("after", nargs="?", metavar="AFTER", help="another one; default: the working tree")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this row of the table; repeatable")
    parser.add_argument("--list", action="store_true", help="print the rows and their commands, and exit")
    parser.add_argument("--corpus", type=Path, metavar="DIR", help="build from this folder; default: a made-up corpus")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep inputs and results in this new or empty folder")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="builds at a time; default: %(default)s")
    parser.add_argument("--strict", action="store_true", help="notes count as differences")
    given = parser.parse_args()
    try:
        rows = chosen_rows(given.only)
        if given.list:
            for row in rows:
                print(row.name, *(step if isinstance(step, str) else step.__name__ for step in row.steps), sep="\n    ")
            return 0
        refuse_impossible(given)
        return run(given, rows)
    except UsageError as error:
        parser.error(str(error))


def refuse_impossible(given: argparse.Namespace) -> None:
    if given.before is None:
        raise UsageError("name a git revision to compare with, like HEAD")
    if given.jobs < 1:
        raise UsageError(f"--jobs must be 1 or more, got {given.jobs}")
    if given.corpus is not None and not (given.corpus.is_dir() and made_corpus.texts_in(given.corpus)):
        raise UsageError(f"--corpus: {given.corpus} is not a folder with text files")
    if given.keep is not None and given.keep.exists() and any(given.keep.iterdir()):
        raise UsageError(f"--keep: {given.keep} is not empty")


def run(given: argparse.Namespace, rows: Sequence[Row]) -> int:
    """Make the inputs, compare the rows and return the exit code."""
    started = time.monotonic()
    tally = Tally(is_strict=given.strict)
    with contextlib.ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="compare-builds-")))
        results = (given.keep or temporary / "results").resolve()
        sides = []
        for name, revision in (("before", given.before), ("after", given.after)):
            (results / name).mkdir(parents=True)
            sides.append(Side(name, extract(revision, temporary / name).resolve(), results / name))
            sides[-1].check_package()
        folder = results / "inputs"
        corpus = given.corpus.resolve() if given.corpus else folder / "corpus"
        if given.corpus is None:
            made_corpus.write_corpus(corpus)
        made_corpus.write_derived(corpus, folder)
        inputs = Inputs(folder, corpus, stack.enter_context(chat_server()))
        compare(rows, (sides[0], sides[1]), inputs, tally, given)
    print(f"\n{tally.summary()}")
    print(f"{time.monotonic() - started:.0f} s", file=sys.stderr)
    return 1 if tally.num_bad else 0


if __name__ == "__main__":
    sys.exit(main())

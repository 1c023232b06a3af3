"""Build the same datasets with two commits of gristmill, and compare the files byte by byte.

    python tools/compare_builds.py HEAD~3             # compares HEAD~3 with the working tree
    python tools/compare_builds.py main feature       # compares two revisions
    python tools/compare_builds.py HEAD --only default --only packed --keep results
    python tools/compare_builds.py --list

Run this script after a refactoring. It uses only the command line of the two commits, so modules may be renamed. The
two commits are called sides. Each row of ROWS is a list of commands. Both sides run the commands of a row on the same
inputs, each side in a separate folder. Then all files in the two folders are compared, except for work folders.

Data files and files.jsonl must be equal. Times and versions in manifests, cards and reports are ignored. Any other
difference in manifests, cards and reports is printed as a note, or is a failure with `--strict`. A row with `same_as`
must also give the same data files as the row that it names, because workers, manual steps and exports do not change
the data.

The exit code is 0 if all rows are equal, 1 if not, and 2 for an invalid option. Two builds run at a time unless --jobs
is given. The extras parquet, tokenizers, variants and report of gristmill must be installed.
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
"""Names of all output formats of this tree. A row fails in a revision that lacks one of the row's formats."""
OTHER_FORMATS = ALL_FORMATS.removeprefix("jsonl,")
DESCRIPTION_FILES = frozenset(
    {"manifest.json", "README.md", "croissant.json", "check.json", "vocabulary.json", "report.html"}
)
"""Names of files that describe a build. Times, versions and the machine in these files may differ."""
VARYING_KEYS = frozenset({"run", "fingerprint", "gristmill", "versions", "seconds", "datePublished", "dateModified"})
"""JSON keys whose values may differ. `fingerprint` is one of them because it depends on the version of gristmill."""
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
"""Patterns of texts that may differ, and their replacements. The last four patterns occur in reports. Digests are
replaced because they are digests of data files, and data files are compared separately."""
WORK_FOLDER = "*.work"
COPY = "copy"
"""Folder for the copy of the corpus that a row may change."""


class UsageError(Exception):
    """An option or argument is invalid."""


class Inputs(NamedTuple):
    """Inputs that both sides share."""

    folder: Path
    corpus: Path
    endpoint: str
    """URL of the fake language model."""

    def fill(self, command: str) -> list[str]:
        """Return the arguments of the command, with placeholders replaced by the locations of the inputs."""
        locations = {"inputs": self.folder, "corpus": self.corpus, "endpoint": self.endpoint}
        return [argument.format(**locations) for argument in shlex.split(command)]


def copy_corpus(inputs: Inputs, folder: Path) -> None:
    shutil.copytree(inputs.corpus, folder / COPY / "corpus", symlinks=True, ignore=_skipped_names)


def _skipped_names(folder: str, names: list[str]) -> list[str]:
    """Return the names to skip: pipes and sockets, which cannot be copied, and .git, which must not be changed."""
    paths = {name: Path(folder, name) for name in names}
    copied = {name for name, path in paths.items() if path.is_symlink() or path.is_file() or path.is_dir()}
    return [name for name in names if name not in copied or name == ".git"]


def change_corpus(_inputs: Inputs, folder: Path) -> None:
    made_corpus.change_corpus(folder / COPY / "corpus")


Step = str | Callable[[Inputs, Path], None]
"""Arguments of a gristmill command, or a function that changes files between two commands."""


class Row(NamedTuple):
    """A configuration to build on both sides."""

    name: str
    steps: tuple[Step, ...]
    settings: str = ""
    """Content of gristmill.toml in the folder of the row."""
    same_as: str | None = None
    """Name of the row whose data files in `dataset` must be the same, or None."""


def _build(name: str, options: str = "", *, settings: str = "", same_as: str | None = None) -> Row:
    """Return a row that builds the corpus once."""
    config = "--config gristmill.toml " if settings else ""
    return Row(name, (f"build {{corpus}} --out dataset {config}{options}",), settings, same_as)


def _build_with_own_tokenizer(name: str, options: str = "", template: str = "roberta") -> Row:
    """Return a row that trains a tokenizer and builds the corpus with that tokenizer."""
    train = f"tokenizer train {{corpus}} --out tokenizer --size 1500 --template {template}"
    return Row(name, (train, f"build {{corpus}} --out dataset --tokenizer tokenizer --splits tokenizer {options}"))


COLUMN_OPTIONS = "--text-column src --path-column id --repo-column from --license-column terms"
MANUAL_STEPS = (
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
    # A window of 16 ids has 14 tokens of the file, so the stride is 14 - 5 = 9. Among 160 files, each number of tokens
    # from 0 to 8 occurs after the last stride of some file.
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
    # Tokenizers.
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
    # Number of windows.
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
    # Cleaning and selection of files.
    _build("near-duplicates-group", "--near-duplicates group --split 60/20/20"),
    _build("near-duplicates-keep", "--near-duplicates keep --split 60/20/20"),
    _build("secrets-drop", "--secrets drop"),
    _build("secrets-keep", "--secrets keep"),
    _build("emails-and-salt", "--redact-emails", settings='[secrets]\nsalt = "a salt"\n'),
    _build("license-allow", "--license-allow MIT,BSD-3-Clause"),
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
    Row("table-columns", (f"build {{inputs}}/tables/named.jsonl --out dataset --license-allow MIT {COLUMN_OPTIONS}",)),
    Row("git-work-tree", ("build {inputs}/repository --out dataset",)),
    Row("git-address", ("build git+file://{inputs}/repository#main --out dataset",)),
    Row("several-sources", ("build {corpus} {inputs}/second/corpus {inputs}/single/alone.py --out dataset",)),
    # Workers, manual steps and rebuilds.
    _build("workers-1", "--workers 1", same_as="default"),
    _build("workers-3", "--workers 3 --batch-bytes 50000", same_as="default"),
    Row("by-hand", MANUAL_STEPS, "out = 'dataset'\n[run]\nbatch_bytes = 60000\n", same_as="default"),
    Row(
        "by-hand-formats",
        MANUAL_STEPS,
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
    """A fake language model on the loopback interface. Its answers depend only on the prompts."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Chat)
        self.described: dict[str, str] = {}
        """Code of each description, keyed by the name in the description. The name contains a digest of the code."""

    def answer(self, prompt: str) -> str:
        """Return the answer to a prompt.

        A prompt that begins with "Describe" gets a description that contains a digest of the code. Other prompts get
        code with some names changed: the code in the prompt, or the described code whose digest the prompt contains.
        Half of the answers to other prompts are bad: a refusal, unchanged code, a syntax error, or text that looks
        like a secret.
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
            case 3:  # a digest of the code, not a real secret
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
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = {"role": "assistant", "content": self.server.answer(request["messages"][-1]["content"])}
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
    """Run the fake language model and yield its URL."""
    with ChatServer() as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()


class Side(NamedTuple):
    """One of the two commits, with the folder of its source and the folder for its results."""

    name: str
    source: Path
    results: Path

    def run(self, arguments: Sequence[str], folder: Path) -> str | None:
        """Run a gristmill command. Return None, or an error message if the command failed."""
        command = [sys.executable, "-m", "gristmill", *arguments]
        try:
            done = subprocess.run(
                command, cwd=folder, env=self.environment(), capture_output=True, timeout=COMMAND_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return f"gristmill {arguments[0]} ran for more than {COMMAND_SECONDS} s"
        if done.returncode == 0:
            return None
        errors = done.stderr.decode(errors="replace").strip().splitlines() or ["no error message"]
        return f"gristmill {arguments[0]} ended with exit code {done.returncode}: {errors[-1]}"

    def environment(self) -> dict[str, str]:
        """Return the environment of the commands, without variables that change the results."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("GRISTMILL_", "PYTHON", "GIT_"))
        }
        constant = {"HF_HUB_OFFLINE": "1", "NO_COLOR": "1", "TZ": "UTC", "COLUMNS": "120"}
        git = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        return {**kept, **constant, **git, "PYTHONPATH": str(self.source)}

    def check_package(self) -> None:
        """Raise if the interpreter would not run the gristmill of this side."""
        find = "import importlib.util; print(importlib.util.find_spec('gristmill').origin)"
        command = [sys.executable, "-c", find]
        found = subprocess.run(command, cwd=self.results, env=self.environment(), capture_output=True, check=True)
        if not Path(found.stdout.decode().strip()).is_relative_to(self.source):
            raise UsageError(
                f"{self.name}: gristmill is imported from {found.stdout.decode().strip()}, not from {self.source}."
            )


def extract(revision: str | None, folder: Path) -> Path:
    """Copy `src` of a revision, or of the working tree if `revision` is None, and return the copy for PYTHONPATH."""
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
    """Result of the steps of a row on one side."""

    folder: Path
    seconds: float
    error: str | None


def build_row(side: Side, row: Row, inputs: Inputs) -> Built:
    """Run the steps of a row in a new folder, up to the first step that fails."""
    folder = side.results / row.name
    folder.mkdir(parents=True)
    started = time.monotonic()
    if row.settings:
        (folder / "gristmill.toml").write_text(row.settings)
    error = None
    for step in row.steps:
        if isinstance(step, str):
            error = side.run(inputs.fill(step), folder)
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
    """Number of bytes in the data files."""
    differences: list[str]
    """The first difference in each data file that differs."""
    notes: list[str]
    """The first difference in each file that describes a build and differs."""


def compare_folders(before: Path, after: Path, *, with_descriptions: bool = True) -> Comparison:
    """Compare all files in two folders. Without `with_descriptions`, compare only the data files."""
    names = {
        name
        for folder in (before, after)
        for name in _files_in(folder)
        if with_descriptions or not _is_description(name)
    }
    differences: list[str] = []
    notes: list[str] = []
    num_bytes = 0
    for name in sorted(names):
        old, new = before / name, after / name
        if not (old.is_file() and new.is_file()):
            differences.append(f"{name} exists only {'before' if old.is_file() else 'after'}")
            continue
        old_bytes, new_bytes = old.read_bytes(), new.read_bytes()
        num_bytes += 0 if _is_description(name) else len(new_bytes)
        if old_bytes == new_bytes:
            continue
        if _is_description(name):
            if (where := _description_difference(name, old_bytes, new_bytes)) is not None:
                notes.append(f"{name}: {where}")
        else:
            differences.append(f"{name} at {_first_difference(name, old_bytes, new_bytes)}")
    return Comparison(len(names), num_bytes, differences, notes)


def _files_in(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()]


def _is_description(name: str) -> bool:
    return Path(name).name in DESCRIPTION_FILES


def _first_difference(name: str, before: bytes, after: bytes) -> str:
    """Describe the position of the first byte that differs. For JSON Lines, add the row and the columns that differ."""
    offset = _common_length(before, after)
    where = f"byte {offset:,} (sizes: {len(before):,} and {len(after):,} bytes)"
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


def _common_length(before: bytes | str, after: bytes | str) -> int:
    """Return the length of the common prefix of the two values."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((index for index, (old, new) in pairs if old != new), min(len(before), len(after)))


def _description_difference(name: str, before: bytes, after: bytes) -> str | None:
    """Describe the first difference, or return None if only VARYING_KEYS or VARYING_TEXT differ."""
    if name.endswith(".json"):
        return _value_difference(json.loads(before), json.loads(after), "")
    old_lines, new_lines = (_mask_varying(content.decode()).splitlines() for content in (before, after))
    for number, (old, new) in enumerate(zip(old_lines, new_lines, strict=False), 1):
        if old != new:
            start = max(0, _common_length(old, new) - 20)
            return f"line {number}: {_shorten(old[start:])} and {_shorten(new[start:])}"
    return None if len(old_lines) == len(new_lines) else f"{len(old_lines)} and {len(new_lines)} lines"


def _value_difference(before: Any, after: Any, location: str) -> str | None:
    if isinstance(before, dict) and isinstance(after, dict):
        keys = [key for key in {**before, **after} if key not in VARYING_KEYS]
        pairs = [(f"{location}.{key}".removeprefix("."), before.get(key), after.get(key)) for key in keys]
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = [(f"{location}[{index}]", *pair) for index, pair in enumerate(zip(before, after, strict=True))]
    else:
        old, new = _mask_varying(str(before)), _mask_varying(str(after))
        return None if old == new else f"{location}: {_shorten(old)} and {_shorten(new)}"
    found = (_value_difference(old, new, inner) for inner, old, new in pairs)
    return next((where for where in found if where is not None), None)


def _mask_varying(text: str) -> str:
    """Replace all matches of VARYING_TEXT, which may differ between two builds."""
    for pattern, replacement in VARYING_TEXT:
        text = pattern.sub(replacement, text)
    return text


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:59] + "…")  # noqa: PLR2004 - fits on a line


def select_rows(names: Sequence[str]) -> list[Row]:
    """Return the named rows and the rows that their `same_as` names, or all rows if no names are given."""
    by_name = {row.name: row for row in ROWS}
    if unknown := [name for name in names if name not in by_name]:
        raise UsageError(f"unknown row {unknown[0]!r}. Run with --list to print all rows.")
    wanted = {*names, *(by_name[name].same_as for name in names)}
    return [row for row in ROWS if not names or row.name in wanted]


class Tally:
    """Print a line for each row and count the results."""

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
            compared_rows = compare_folders(same_as / "dataset", after.folder / "dataset", with_descriptions=False)
            verdict += f"; against {row.same_as}: {_verdict(compared_rows.differences)}"
            is_bad = is_bad or bool(compared_rows.differences)
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
    """Build all rows on both sides, several at a time, and print the results in the order of ROWS."""
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
    parser.add_argument("after", nargs="?", metavar="AFTER", help="a later git revision (default: the working tree)")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="compare only this row; repeatable")
    parser.add_argument("--list", action="store_true", help="print the rows and their commands, and exit")
    parser.add_argument(
        "--corpus", type=Path, metavar="DIR", help="build from this folder (default: a generated corpus)"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep inputs and results in this new or empty folder")
    parser.add_argument(
        "--jobs", type=int, default=2, metavar="N", help="number of builds at a time (default: %(default)s)"
    )
    parser.add_argument("--strict", action="store_true", help="treat notes as failures")
    given = parser.parse_args()
    try:
        rows = select_rows(given.only)
        if given.list:
            for row in rows:
                print(row.name, *(step if isinstance(step, str) else step.__name__ for step in row.steps), sep="\n    ")
            return 0
        check_options(given)
        return run(given, rows)
    except UsageError as error:
        parser.error(str(error))


def check_options(given: argparse.Namespace) -> None:
    if given.before is None:
        raise UsageError("BEFORE is missing. Name a git revision, such as HEAD.")
    if given.jobs < 1:
        raise UsageError(f"--jobs must be 1 or more, got {given.jobs}.")
    if given.corpus is not None and not (given.corpus.is_dir() and made_corpus.texts_in(given.corpus)):
        raise UsageError(f"--corpus: {given.corpus} is not a folder with UTF-8 text files.")
    if given.keep is not None and given.keep.exists() and any(given.keep.iterdir()):
        raise UsageError(f"--keep: {given.keep} is not empty. Choose a new or empty folder.")


def run(given: argparse.Namespace, rows: Sequence[Row]) -> int:
    """Write the inputs, compare the two sides row by row, and return the exit code."""
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

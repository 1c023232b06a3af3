"""The table of methods: what each is, what it needs, how it is started, and where its phases come from."""

import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gristmill.config.settings import rule_names
from gristmill.core.errors import ConfigError
from gristmill.core.names import did_you_mean, printable
from gristmill.lab.bench.bench_result import PHASES, REBUILD
from gristmill.lab.bench.job import PHASES_FILE
from gristmill.tokenizers.cuda.availability import require_cuda

if TYPE_CHECKING:
    from gristmill.tokenizers.tokenizer import Tokenizer

FAST_ENGINE = "gigatoken"
GITIGNORE_META = frozenset("*?[]\\!# ")
BUILD_PHASES = {
    "load": ("load",),
    "scan": ("scan",),
    "tokenize": ("prepare",),
    "split": ("decide", "compare"),
    "write": ("shape", "finish"),
}
"""What a build calls them. It cleans in `prepare`, and cuts rows where it writes them."""


class Method(NamedTuple):
    name: str
    what: str
    module: str | None = None
    """None: it is the `gristmill build` command."""
    packages: tuple[str, ...] = ()
    is_slow: bool = False
    """Runs on a sample where one is asked for."""
    needs_fast_engine: bool = False
    uses_workers: bool = False
    options: tuple[str, ...] = ()
    """Of `gristmill build`."""
    without_rules: bool = False
    needs_card: bool = False
    """It is among all methods only with --device cuda."""
    is_rebuild: bool = False
    """Only the second of two builds into the same folder is timed."""


class Setup(NamedTuple):
    """What all methods of one benchmark are given."""

    source: str
    tokenizer: str
    """As the user names it."""
    withheld: Sequence[str]
    """Paths that gristmill is not given, as no other method has them."""
    has_notebooks: bool
    workers: int | str


KEEP_SECRETS = ("--secrets", "keep")
KEEP_NEAR_DUPLICATES = ("--near-duplicates", "keep")
NO_DECONTAMINATION = ("--decontaminate", "off")

METHODS = (
    Method(
        "original",
        "a plain script: one file at a time, more rows by copying, indented JSON",
        module="gristmill.lab.bench.scripts.original",
        packages=("tokenizers",),
        is_slow=True,
    ),
    Method(
        "threads",
        "the same rows: 8 threads around the tokenizer, JSONL",
        module="gristmill.lab.bench.scripts.threads",
        packages=("tokenizers",),
        is_slow=True,
    ),
    Method(
        "batch",
        "the same rows: encode_batch of 16 files in processes, JSONL",
        module="gristmill.lab.bench.scripts.encode_batch",
        packages=("tokenizers",),
        is_slow=True,
        uses_workers=True,
    ),
    Method(
        "datasets",
        "Hugging Face datasets: map, train_test_split, to_json",
        module="gristmill.lab.bench.scripts.hf_datasets",
        packages=("tokenizers", "datasets"),
        is_slow=True,
        uses_workers=True,
    ),
    Method("gristmill", "gristmill build, as it comes"),
    Method("gristmill-no-rules", "without the rules for what is worth learning from", without_rules=True),
    Method("gristmill-no-secrets", "without looking for secrets", options=KEEP_SECRETS),
    Method("gristmill-no-near-duplicates", "without looking for near-duplicates", options=KEEP_NEAR_DUPLICATES),
    Method("gristmill-no-decontaminate", "without cutting spans that two splits share", options=NO_DECONTAMINATION),
    Method(
        "gristmill-plain",
        "without any of these four",
        options=(*KEEP_SECRETS, *KEEP_NEAR_DUPLICATES, *NO_DECONTAMINATION),
        without_rules=True,
    ),
    Method("gristmill-zstd", "as it comes, with rows compressed", options=("--compress", "zstd")),
    Method(
        REBUILD,
        "gristmill build once more into the same folder, no file changed; the first build is not timed",
        is_rebuild=True,
    ),
    Method(
        "gristmill-cuda",
        "as it comes, with --device cuda: tokenized on a GPU",
        options=("--device", "cuda"),
        needs_card=True,
    ),
    Method(
        "floor",
        "in one process: read, encode with gigatoken, write windows; nothing is found, decided or split",
        module="gristmill.lab.bench.scripts.floor",
        needs_fast_engine=True,
    ),
)


def chosen(names: Sequence[str], device: str = "cpu") -> list[Method]:
    """Those named, in the table's order; where none is, all that go with the device."""
    known = [method.name for method in METHODS]
    for name in names:
        if name not in known:
            advice = did_you_mean(name, known, f"Known: {', '.join(known)}.")
            raise ConfigError(f"there is no method {name!r}. {advice}")
    if names:
        return [method for method in METHODS if method.name in names]
    return [method for method in METHODS if device == "cuda" or not method.needs_card]


def why_skipped(method: Method, tokenizer: "Tokenizer") -> str | None:
    for package in method.packages:
        if find_spec(package) is None:
            return f"{package} is not installed: pip install 'gristmill[bench]'"
    if method.needs_fast_engine and not tokenizer.engine.startswith(FAST_ENGINE):
        return f"gigatoken does not take this tokenizer ({tokenizer.definition.model.type})"
    return why_no_card() if method.needs_card else None


def why_no_card() -> str | None:
    try:
        require_cuda()
    except ConfigError as error:
        return printable(str(error))
    return None


def command_of(method: Method, setup: Setup, *, job_file: Path, out: Path) -> list[str]:
    """-P: what lies in the current folder is not Python's to import."""
    python = [sys.executable, "-P", "-m"]
    if method.module is not None:
        return [*python, method.module, str(job_file)]
    settings = job_file.with_suffix(".toml")
    settings.write_text(_settings(method, setup), encoding="utf-8")
    options = [f"--out={out}", f"--tokenizer={setup.tokenizer}", f"--config={settings}", f"--workers={setup.workers}"]
    return [*python, "gristmill", "build", *options, "--fresh-splits", "--json", *method.options, "--", setup.source]


def phases_of(method: Method, out: Path, last_line: bytes) -> dict[str, float | None]:
    """Seconds by phase; a build tells them in the summary that it prints last."""
    if method.module is not None:
        told = msgspec.json.decode((out / PHASES_FILE).read_bytes(), type=dict[str, float])
        return {phase: told.get(phase) for phase in PHASES}
    seconds: dict[str, Any] = json.loads(last_line)["seconds"]
    sums = {phase: sum(seconds.get(name, 0.0) for name in names) for phase, names in BUILD_PHASES.items()}
    return {phase: sums.get(phase) for phase in PHASES}


def _settings(method: Method, setup: Setup) -> str:
    """A configuration file, as thousands of patterns would be too long for a command line."""
    patterns = ",\n".join(_toml_text(_pattern(path)) for path in setup.withheld)
    lines = ["[scan]", f"exclude = [{patterns}]"]
    if setup.has_notebooks:
        lines.append('notebooks = "raw"')  # the text that the others have
    if method.without_rules:
        lines += ["[rules]", *(f"{name} = false" for name in rule_names())]
    return "\n".join(lines) + "\n"


def _pattern(path: str) -> str:
    """For a .gitignore, meaning this path alone."""
    return "/" + "".join(f"\\{char}" if char in GITIGNORE_META else char for char in path)


def _toml_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)

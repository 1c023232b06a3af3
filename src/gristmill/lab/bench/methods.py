"""Table of the methods of a benchmark, and functions that make a method's command and read its seconds by phase."""

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
"""Phases of a build that are added up for each phase of a benchmark. A build cleans files in `prepare`, and cuts
windows while it writes rows in `shape`."""


class Method(NamedTuple):
    """A way of making a dataset."""

    name: str
    what: str
    """Description in the help text and in reports."""
    module: str | None = None
    """Module that is run as a script, or None for the `gristmill build` command."""
    packages: tuple[str, ...] = ()
    """Python packages that the method needs."""
    is_slow: bool = False
    """True if the method runs on a sample of the files when --sample is given."""
    needs_fast_engine: bool = False
    uses_workers: bool = False
    options: tuple[str, ...] = ()
    """Options for `gristmill build`."""
    without_rules: bool = False
    needs_gpu: bool = False
    """True if the method needs a GPU. The method runs only with --device cuda, or if --only names it."""
    is_rebuild: bool = False
    """True if only the second of two builds into the same folder is timed."""


class Setup(NamedTuple):
    """Settings that all methods of a benchmark share."""

    source: str
    tokenizer: str
    """Name or path of the tokenizer, as the user gave it."""
    withheld: Sequence[str]
    """Paths of files that builds exclude, because the other methods cannot read these files."""
    has_notebooks: bool
    workers: int | str


KEEP_SECRETS = ("--secrets", "keep")
KEEP_NEAR_DUPLICATES = ("--near-duplicates", "keep")
NO_DECONTAMINATION = ("--decontaminate", "off")

METHODS = (
    Method(
        "original",
        "a plain script: one file at a time, rows copied, indented JSON",
        module="gristmill.lab.bench.scripts.original",
        packages=("tokenizers",),
        is_slow=True,
    ),
    Method(
        "threads",
        "like original, but with 8 threads for the tokenizer and JSONL output",
        module="gristmill.lab.bench.scripts.threads",
        packages=("tokenizers",),
        is_slow=True,
    ),
    Method(
        "batch",
        "like original, but with encode_batch for 16 files at a time in several processes and JSONL output",
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
    Method("gristmill", "gristmill build with its defaults"),
    Method("gristmill-no-rules", "gristmill build without the quality rules", without_rules=True),
    Method("gristmill-no-secrets", "gristmill build without the search for secrets", options=KEEP_SECRETS),
    Method(
        "gristmill-no-near-duplicates",
        "gristmill build without the search for near-duplicates",
        options=KEEP_NEAR_DUPLICATES,
    ),
    Method(
        "gristmill-no-decontaminate",
        "gristmill build without cutting spans that occur in two splits",
        options=NO_DECONTAMINATION,
    ),
    Method(
        "gristmill-plain",
        "gristmill build without these four steps: rules, secrets, near-duplicates, decontamination",
        options=(*KEEP_SECRETS, *KEEP_NEAR_DUPLICATES, *NO_DECONTAMINATION),
        without_rules=True,
    ),
    Method("gristmill-zstd", "gristmill build with compressed rows", options=("--compress", "zstd")),
    Method(
        REBUILD,
        "a second gristmill build into the same folder, with unchanged files (the first build is not timed)",
        is_rebuild=True,
    ),
    Method(
        "gristmill-cuda",
        "gristmill build with --device cuda, which tokenizes on a GPU",
        options=("--device", "cuda"),
        needs_gpu=True,
    ),
    Method(
        "floor",
        "lower bound for one process: read files, encode with gigatoken, write windows; no scan, decisions or splits",
        module="gristmill.lab.bench.scripts.floor",
        needs_fast_engine=True,
    ),
)


def select_methods(names: Sequence[str], device: str = "cpu") -> list[Method]:
    """Return the named methods in the order of METHODS. Without names, return all methods that the device supports."""
    all_names = [method.name for method in METHODS]
    for name in names:
        if name not in all_names:
            advice = did_you_mean(name, all_names, f"Known: {', '.join(all_names)}.")
            raise ConfigError(f"unknown method {name!r}. {advice}")
    if names:
        return [method for method in METHODS if method.name in names]
    return [method for method in METHODS if device == "cuda" or not method.needs_gpu]


def skip_reason(method: Method, tokenizer: "Tokenizer") -> str | None:
    """Return why the method cannot run, or None if it can."""
    for package in method.packages:
        if find_spec(package) is None:
            return f"{package} is not installed: pip install 'gristmill[bench]'"
    if method.needs_fast_engine and not tokenizer.engine.startswith(FAST_ENGINE):
        return f"gigatoken does not support this tokenizer ({tokenizer.definition.model.type})"
    return gpu_skip_reason() if method.needs_gpu else None


def gpu_skip_reason() -> str | None:
    """Return why no GPU can be used, or None if a GPU is available."""
    try:
        require_cuda()
    except ConfigError as error:
        return printable(str(error))
    return None


def method_command(method: Method, setup: Setup, *, job_file: Path, out: Path) -> list[str]:
    """Return the command that runs the method. With -P, Python does not import modules from the current folder."""
    python = [sys.executable, "-P", "-m"]
    if method.module is not None:
        return [*python, method.module, str(job_file)]
    settings = job_file.with_suffix(".toml")
    settings.write_text(_build_settings(method, setup), encoding="utf-8")
    options = [f"--out={out}", f"--tokenizer={setup.tokenizer}", f"--config={settings}", f"--workers={setup.workers}"]
    return [*python, "gristmill", "build", *options, "--fresh-splits", "--json", *method.options, "--", setup.source]


def read_phase_seconds(method: Method, out: Path, last_line: bytes) -> dict[str, float | None]:
    """Return the seconds of each phase. A script writes them to phases.json. A build prints them in its last line."""
    if method.module is not None:
        recorded = msgspec.json.decode((out / PHASES_FILE).read_bytes(), type=dict[str, float])
        return {phase: recorded.get(phase) for phase in PHASES}
    seconds: dict[str, Any] = json.loads(last_line)["seconds"]
    sums = {phase: sum(seconds.get(name, 0.0) for name in names) for phase, names in BUILD_PHASES.items()}
    return {phase: sums.get(phase) for phase in PHASES}


def _build_settings(method: Method, setup: Setup) -> str:
    """Return the text of a configuration file. The exclude patterns could be too long for a command line."""
    patterns = ",\n".join(_toml_text(_exclude_pattern(path)) for path in setup.withheld)
    lines = ["[scan]", f"exclude = [{patterns}]"]
    if setup.has_notebooks:
        lines.append('notebooks = "raw"')  # other methods also read notebooks as raw text
    if method.without_rules:
        lines += ["[rules]", *(f"{name} = false" for name in rule_names())]
    return "\n".join(lines) + "\n"


def _exclude_pattern(path: str) -> str:
    """Return a .gitignore pattern that matches only this path."""
    return "/" + "".join(f"\\{char}" if char in GITIGNORE_META else char for char in path)


def _toml_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)

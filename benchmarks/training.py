"""Measure how the dataset affects training. `gristmill compare` answers four questions.

    python benchmarks/training.py prepare DIR     download the code and build the datasets, without a GPU
    python benchmarks/training.py run DIR         train on a GPU, or resume interrupted comparisons
    python benchmarks/training.py write DIR       write benchmarks/training/: tables, curves, commands, versions

1. copies: Do copied rows help? The windows of a default build, called natural windows, are compared with the rows of a
   plain script, which copies rows until there are 2.75 times as many. The models are trained on equal numbers of tokens
   (copies) and for equal numbers of epochs (copies-200-epochs).
2. overlap: Does overlap help? Models are trained on windows of 512 tokens with overlap 0, 128 and 256, for the same
   number of tokens.
3. leaky: How wrong is the validation score of a random split of windows, compared with a split of complete files?
4. half: Are 400 epochs of half of the windows as good as 200 epochs of all windows?

The code is requests 2.32.5. The test set is starlette 0.48.0, Python code by other authors. No train split shares a
long span with the test set.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gather import Pin, fetch, index_url, unpack

from gristmill.lab.comparison.statistics import Interval, interval_of, interval_text
from gristmill.views.table import Table, markdown_table

CODE, TEST = Pin("requests", "2.32.5"), Pin("starlette", "0.48.0")
OUT = Path(__file__).with_name("training")
GRISTMILL = (sys.executable, "-m", "gristmill")


class Question(NamedTuple):
    name: str
    title: str
    datasets: tuple[str, ...]
    options: tuple[str, ...]
    conclusion: str
    """Paragraph on the page that states the result."""

    def command(self, folder: Path) -> list[str]:
        data = [str(folder / "data" / name) for name in self.datasets]
        test = str(folder / "data" / "test")
        out = str(folder / "comparisons" / self.name)
        return ["compare", *data, "--test", test, "--out", out, "--objective", "causal", *COMMON, *self.options]


COMMON = ("--model", "tiny", "--batch-size", "64", "--seeds", "3")
QUESTIONS = (
    Question(
        "copies",
        "natural windows and copies, at equal tokens",
        ("natural", "copies"),
        ("--epochs", "200"),
        "Copies are made before the random split, so train contains nearly every held-out row. The validation score "
        "therefore improves until the last step and never suggests stopping. At the end, both models have seen the "
        "same text too often, and there is no measurable difference. But the validation score of the copies is best "
        "for the last model, which is much worse than the model that natural windows keep.",
    ),
    Question(
        "copies-200-epochs",
        "natural windows and copies, at 200 epochs each, on half of the code",
        ("src-natural", "src-copies"),
        ("--epochs", "200", "--budget", "epochs"),
        "For the same number of epochs, the copies need 1.9 times as many tokens, and the model is worse.",
    ),
    Question(
        "leaky",
        "a random split of complete files and a random split of windows",
        ("natural", "leaky"),
        ("--epochs", "100"),
        "Part of the difference between own validation and test score exists because requests and starlette are "
        "different code. The difference is larger for `leaky` than for `natural`, and the excess is due to the leak. "
        "The validation score of `leaky` is best at the last step, long after the model has become worse. (At the end, "
        "the leaky model is slightly better, because it was trained on parts of all files, including files that "
        "`natural` holds out.)",
    ),
    Question(
        "overlap",
        "windows with overlap 256, 128 and 0, at equal tokens",
        ("natural", "overlap-128", "overlap-0"),
        ("--epochs", "100"),
        "There is no measurable difference between the kept models. Less overlap means fewer windows, and so more "
        "epochs for the same number of tokens. The models differ at the end because each has trained past its best "
        "step by a different amount. We expected overlap 256 to be better, but it is not for this model and this code.",
    ),
    Question(
        "half",
        "200 epochs of all windows and 400 epochs of half of the windows",
        ("natural", "half"),
        ("--epochs", "200"),
        "At the end, more epochs of less text are clearly worse. With early stopping, there is no measurable "
        "difference: both models are best long before the end, and the rest of the budget makes them worse.",
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("prepare", "run", "write"))
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument("--at-once", type=int, default=1, help="number of comparisons that share the GPU (default: 1)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time; run again to resume")
    parser.add_argument("--only", action="append", default=[], help="run only this question; repeatable")
    given = parser.parse_args()
    if given.what == "prepare":
        prepare(given.folder)
    elif given.what == "run":
        run(given.folder, given.at_once, given.seconds, given.only)
    else:
        write(given.folder)


def prepare(folder: Path) -> None:
    sources, data = folder / "sources", folder / "data"
    download_python(CODE, sources / "requests")
    download_python(TEST, sources / "starlette-all")
    if not (sources / "starlette").exists():
        shutil.copytree(sources / "starlette-all" / "starlette", sources / "starlette")
    shutil.copytree(sources / "requests" / "src", sources / "src", dirs_exist_ok=True)
    build(sources / "starlette", data / "test", "--split", "0/0/100")
    natural = build(sources / "requests", data / "natural")
    build(sources / "requests", data / "half", "--max-windows", str(natural // 2))
    for overlap in ("0", "128"):
        build(sources / "requests", data / f"overlap-{overlap}", "--overlap", overlap)
    build(sources / "src", data / "src-natural")
    keep_bench_datasets(sources / "requests", data, {"original": "copies", "datasets": "leaky"})
    keep_bench_datasets(sources / "src", data, {"original": "src-copies"})
    for work in data.glob("*.work"):
        shutil.rmtree(work)


def download_python(pin: Pin, folder: Path) -> None:
    """Download a package and keep only its Python files, so that every method reads the same files."""
    if folder.exists():
        return
    with tempfile.TemporaryDirectory() as work:
        unpacked = Path(work) / "all" / pin.folder
        unpacked.parent.mkdir()
        unpack(fetch(pin, index_url(), Path(work)), unpacked, Path(work))
        for path in sorted(unpacked.rglob("*.py")):
            target = folder / path.relative_to(unpacked)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def build(source: Path, out: Path, *options: str) -> int:
    """Build a dataset and return the number of windows in all splits."""
    subprocess.run([*GRISTMILL, "build", source, "--out", out, "--quiet", *options], check=True)
    splits = json.loads((out / "manifest.json").read_text())["splits"]
    print(f"{out.name}: " + ", ".join(f"{name} {facts['windows']}" for name, facts in splits.items()), flush=True)
    return sum(facts["windows"] for facts in splits.values())


def keep_bench_datasets(source: Path, data: Path, names: dict[str, str]) -> None:
    """Make datasets with methods of `gristmill bench`. `names` maps each method to the name of its dataset.

    The method `original`, a plain script, copies rows until there are 2.75 times as many.
    """
    with tempfile.TemporaryDirectory() as work:
        only = [argument for method in names for argument in ("--only", method)]
        output = ["--keep", work + "/kept", "--out", work + "/bench.md", "--quiet"]
        subprocess.run([*GRISTMILL, "bench", source, *only, *output], check=True)
        for method, name in names.items():
            shutil.rmtree(data / name, ignore_errors=True)
            shutil.move(f"{work}/kept/{method}", data / name)
            splits = json.loads((data / name / "manifest.json").read_text())["splits"]
            print(f"{name}: " + ", ".join(f"{split} {facts['windows']}" for split, facts in splits.items()), flush=True)


def run(folder: Path, at_once: int, seconds: float, only: Sequence[str]) -> None:
    """Run the comparisons, `at_once` at a time to use the GPU better. Interrupt running comparisons after `seconds`."""
    deadline = time.monotonic() + seconds
    pending = [question for question in QUESTIONS if not only or question.name in only]
    pending = [
        question for question in pending if not (folder / "comparisons" / question.name / "comparison.md").exists()
    ]
    running: dict[str, subprocess.Popen[bytes]] = {}
    while (pending and time.monotonic() < deadline) or running:
        while pending and len(running) < at_once and time.monotonic() < deadline:
            question = pending.pop(0)
            running[question.name] = start(question, folder)
        for name, process in list(running.items()):
            if process.poll() is not None:
                print(f"{name}: exit {process.returncode}, {deadline - time.monotonic():.0f} s left", flush=True)
                del running[name]
        if time.monotonic() >= deadline:
            for process in running.values():
                process.send_signal(signal.SIGINT)
            for process in running.values():
                process.wait(60)
        time.sleep(0.5)


def start(question: Question, folder: Path) -> "subprocess.Popen[bytes]":
    command = question.command(folder)
    is_started = (folder / "comparisons" / question.name / "test.json").exists()
    log = folder / f"{question.name}.log"
    with log.open("ab") as stream:
        arguments = [*GRISTMILL, *command, *(["--resume"] if is_started else []), "--workers", "2"]
        return subprocess.Popen(arguments, stdout=stream, stderr=stream, env={**os.environ, "OMP_NUM_THREADS": "2"})


def write(folder: Path) -> None:
    """Write the pages. Remove `folder`, --resume and --workers from the commands on the pages."""
    OUT.mkdir(exist_ok=True)
    for question in QUESTIONS:
        results = folder / "comparisons" / question.name
        for name, suffix in (("comparison.md", ".md"), ("curves.svg", ".svg"), ("comparison.json", ".json")):
            text = (results / name).read_text().replace("(curves.svg)", f"({question.name}.svg)")
            for removed in (f"{folder}/", " --resume", " --workers 2"):
                text = text.replace(removed, "")
            (OUT / (question.name + suffix)).write_text(text)
    (OUT / "README.md").write_text("\n\n".join(summary()) + "\n")


def summary() -> Iterator[str]:
    """Yield the paragraphs of the page that summarizes all questions."""
    yield "# Effect of the dataset on training"
    yield (
        f"`python benchmarks/training.py` trains a `tiny` GPT of 7.3 million weights on {CODE.name} {CODE.version}, "
        f"with three seeds, on one H200. The test set is {TEST.name} {TEST.version}: 110,043 tokens of Python code by "
        "other authors. No train split contains a span of 50 tokens of the test set. Scores are bits per byte on the "
        "test set, with 95 % intervals. Lower is better. `end` is the score at the end of the budget. `kept` is the "
        "score of the model with the best own validation, and `kept after epochs` is the epoch of that model for each "
        "seed. `own validation` is the score on the validation split of the dataset itself, at the end. Several runs "
        "shared the GPU, so the seconds on these pages are not comparable. For speed, see speed.md."
    )
    for question in QUESTIONS:
        comparison = json.loads((OUT / f"{question.name}.json").read_text())
        yield f"## [{question.name}]({question.name}.md): {question.title}"
        yield markdown_table(Table("", HEADS, [dataset_row(facts, comparison) for facts in comparison["datasets"]]))
        yield "\n".join([*verdicts_in(comparison), *validation_errors_in(comparison)])
        yield f"![Scores over the tokens trained on]({question.name}.svg)"
        yield question.conclusion


def verdicts_in(comparison: dict[str, Any]) -> Iterator[str]:
    for when, name in (("end", "verdicts"), ("kept", "verdicts_at_best")):
        yield from (f"- {when}: {verdict['text']}" for verdict in comparison[name])


def validation_errors_in(comparison: dict[str, Any]) -> Iterator[str]:
    """Compare the error of the validation score of each dataset with the error of the first dataset.

    The difference between the two errors is not due to the choice of the test set, because all datasets have the same
    test set.
    """
    first, *others = [facts["name"] for facts in comparison["datasets"]]
    errors = {(run["dataset"], run["seed"]): run["curve"][-1][1] - run["end"] for run in comparison["runs"]}
    for name in others:
        excess = interval_of([errors[first, seed] - errors[name, seed] for dataset, seed in errors if dataset == name])
        yield (
            f"- own validation of {name}: {interval_text(excess)} bits further below the test score than own "
            f"validation of {first}"
        )


HEADS = ("dataset", "windows", "epochs", "end", "kept", "kept after epochs", "own validation")


def dataset_row(facts: dict[str, Any], comparison: dict[str, Any]) -> tuple[str, ...]:
    scores, runs = facts["scores"], [run for run in comparison["runs"] if run["dataset"] == facts["name"]]
    best_epochs = [min(run["curve"], key=lambda point: point[1])[0] / facts["ids"] for run in runs]
    texts = (interval_text(Interval(**scores[name])) for name in ("end", "at_best_validation"))
    own = interval_text(Interval(**scores["own_validation"]))
    return (
        facts["name"],
        str(facts["windows"]),
        f"{facts['epochs']:.0f}",
        *texts,
        ", ".join(f"{n:.0f}" for n in best_epochs),
        own,
    )


if __name__ == "__main__":
    main()

"""What the dataset does to a training: four questions, each answered by `gristmill compare`.

    python benchmarks/training.py prepare DIR     fetches the code and builds the datasets; needs no GPU
    python benchmarks/training.py run DIR         trains; wants a GPU, and goes on where it was stopped
    python benchmarks/training.py write DIR       benchmarks/training/: figures, curves, commands, versions

1. copies: natural windows against the plain script's rows, copied to 2.75 times their number, at equal tokens and at
   200 epochs each;
2. overlap: windows of 512 with overlap 0, 128 and 256, at equal tokens;
3. leaky: windows split at random against whole files, clean: how wrong its own validation is;
4. half: 200 epochs of all windows against 400 of half of them.

The code is requests 2.32.5, the test set starlette 0.48.0: Python of other people, and clean against every train split.
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
    learnt: str
    """In words."""

    def command(self, folder: Path) -> list[str]:
        data = [str(folder / "data" / name) for name in self.datasets]
        test = str(folder / "data" / "test")
        out = str(folder / "comparisons" / self.name)
        return ["compare", *data, "--test", test, "--out", out, "--objective", "causal", *COMMON, *self.options]


COMMON = ("--model", "tiny", "--batch-size", "64", "--seeds", "3")
QUESTIONS = (
    Question(
        "copies",
        "natural windows against copies, at equal tokens",
        ("natural", "copies"),
        ("--epochs", "200"),
        "Copies are split at random after they are made, so nearly every held-out row is in train: validation falls to "
        "the last step and never says stop. At the end both have gone over the same text too often, and no difference "
        "can be told; but whoever trusts that validation keeps the last model, and a much worse one.",
    ),
    Question(
        "copies-200-epochs",
        "the same at 200 epochs each, on a half of the code",
        ("src-natural", "src-copies"),
        ("--epochs", "200", "--budget", "epochs"),
        "Here copies cost 1.9 times the tokens for the same number of epochs, and the model is worse for it.",
    ),
    Question(
        "leaky",
        "whole files against windows split at random",
        ("natural", "leaky"),
        ("--epochs", "100"),
        "The distance between own validation and test is in part that of requests to starlette; what the leaky one has "
        "of it above the clean one is the leak. It is best at the last step, long after the model has got worse. (At "
        "the end itself the leaky model is a little better: it has trained on parts of all files, also of those that "
        "the clean one holds out.)",
    ),
    Question(
        "overlap",
        "windows with overlap 256, 128 and 0, at equal tokens",
        ("natural", "overlap-128", "overlap-0"),
        ("--epochs", "100"),
        "No difference can be told between the models one would keep. Less overlap means fewer windows and so more "
        "epochs for the same tokens: what differs at the end is how far each has gone past its best. We had hoped for "
        "more of overlap 256; for this model and this code there is none to be seen.",
    ),
    Question(
        "half",
        "200 epochs of all windows against 400 of half of them",
        ("natural", "half"),
        ("--epochs", "200"),
        "At the end, more epochs of less text are clearly worse. Stopped in time, no difference can be told: both are "
        "best long before, and the rest of the budget makes them worse.",
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("prepare", "run", "write"))
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument("--at-once", type=int, default=1, help="comparisons that share the GPU (default: 1)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="then stop; run again to go on")
    parser.add_argument("--only", action="append", default=[], help="of run: this question; repeatable")
    given = parser.parse_args()
    if given.what == "prepare":
        prepare(given.folder)
    elif given.what == "run":
        run(given.folder, given.at_once, given.seconds, given.only)
    else:
        write(given.folder)


def prepare(folder: Path) -> None:
    sources, data = folder / "sources", folder / "data"
    python_of(CODE, sources / "requests")
    python_of(TEST, sources / "starlette-all")
    if not (sources / "starlette").exists():
        shutil.copytree(sources / "starlette-all" / "starlette", sources / "starlette")
    shutil.copytree(sources / "requests" / "src", sources / "src", dirs_exist_ok=True)
    build(sources / "starlette", data / "test", "--split", "0/0/100")
    natural = build(sources / "requests", data / "natural")
    build(sources / "requests", data / "half", "--max-windows", str(natural // 2))
    for overlap in ("0", "128"):
        build(sources / "requests", data / f"overlap-{overlap}", "--overlap", overlap)
    build(sources / "src", data / "src-natural")
    keep(sources / "requests", data, {"original": "copies", "datasets": "leaky"})
    keep(sources / "src", data, {"original": "src-copies"})
    for work in data.glob("*.work"):
        shutil.rmtree(work)


def python_of(pin: Pin, folder: Path) -> None:
    """Its Python files, so that every method sees the same."""
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
    """-> windows in all splits."""
    subprocess.run([*GRISTMILL, "build", source, "--out", out, "--quiet", *options], check=True)
    splits = json.loads((out / "manifest.json").read_text())["splits"]
    print(f"{out.name}: " + ", ".join(f"{name} {facts['windows']}" for name, facts in splits.items()), flush=True)
    return sum(facts["windows"] for facts in splits.values())


def keep(source: Path, data: Path, names: dict[str, str]) -> None:
    """What other ways make of it, as `gristmill bench` leaves it; by default the plain script copies 2.75 times."""
    with tempfile.TemporaryDirectory() as work:
        only = [word for method in names for word in ("--only", method)]
        page = ["--keep", work + "/kept", "--out", work + "/bench.md", "--quiet"]
        subprocess.run([*GRISTMILL, "bench", source, *only, *page], check=True)
        for method, name in names.items():
            shutil.rmtree(data / name, ignore_errors=True)
            shutil.move(f"{work}/kept/{method}", data / name)
            splits = json.loads((data / name / "manifest.json").read_text())["splits"]
            print(f"{name}: " + ", ".join(f"{split} {facts['windows']}" for split, facts in splits.items()), flush=True)


def run(folder: Path, at_once: int, seconds: float, only: Sequence[str]) -> None:
    """Several comparisons at once fill the GPU better than one; each is told to stop when time is up."""
    deadline = time.monotonic() + seconds
    waiting = [question for question in QUESTIONS if not only or question.name in only]
    waiting = [
        question for question in waiting if not (folder / "comparisons" / question.name / "comparison.md").exists()
    ]
    running: dict[str, subprocess.Popen[bytes]] = {}
    while (waiting and time.monotonic() < deadline) or running:
        while waiting and len(running) < at_once and time.monotonic() < deadline:
            question = waiting.pop(0)
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
    is_begun = (folder / "comparisons" / question.name / "test.json").exists()
    log = folder / f"{question.name}.log"
    with log.open("ab") as stream:
        words = [*GRISTMILL, *command, *(["--resume"] if is_begun else []), "--workers", "2"]
        return subprocess.Popen(words, stdout=stream, stderr=stream, env={**os.environ, "OMP_NUM_THREADS": "2"})


def write(folder: Path) -> None:
    """As a reader would repeat it: without the folder's name, and without how it went on after a stop."""
    OUT.mkdir(exist_ok=True)
    for question in QUESTIONS:
        found = folder / "comparisons" / question.name
        for name, suffix in (("comparison.md", ".md"), ("curves.svg", ".svg"), ("comparison.json", ".json")):
            text = (found / name).read_text().replace("(curves.svg)", f"({question.name}.svg)")
            for said in (f"{folder}/", " --resume", " --workers 2"):
                text = text.replace(said, "")
            (OUT / (question.name + suffix)).write_text(text)
    (OUT / "README.md").write_text("\n\n".join(summary()) + "\n")


def summary() -> Iterator[str]:
    """All questions on one page: what was told, and when each dataset's own validation was best."""
    yield "# What the dataset does to a training"
    yield (
        f"`python benchmarks/training.py`: {CODE.name} {CODE.version} as the code, {TEST.name} {TEST.version} as the "
        "test set (110,043 tokens of other people's Python, of which no train split has a span of 50), a `tiny` GPT of "
        "7.3 million weights, three seeds, on one H200. Bits per byte on that test set, lower is better, with 95 % "
        "intervals. `end`: when the budget is spent. `kept`: the model that the dataset's own validation would have "
        "one keep, and after how many epochs it says so (one number a seed). `own says`: that validation, at the end. "
        "Several runs shared the card, so the seconds on the pages say little; speed.md does."
    )
    for question in QUESTIONS:
        found = json.loads((OUT / f"{question.name}.json").read_text())
        yield f"## [{question.name}]({question.name}.md): {question.title}"
        yield markdown_table(Table("", HEADS, [row_of(facts, found) for facts in found["datasets"]]))
        yield "\n".join([*verdicts_in(found), *promises_in(found)])
        yield f"![Scores over the tokens trained on]({question.name}.svg)"
        yield question.learnt


def verdicts_in(found: dict[str, Any]) -> Iterator[str]:
    for when, name in (("end", "verdicts"), ("kept", "verdicts_at_best")):
        yield from (f"- {when}: {verdict['text']}" for verdict in found[name])


def promises_in(found: dict[str, Any]) -> Iterator[str]:
    """How much further off its own validation is than the first dataset's: what is not due to other files."""
    first, *others = [facts["name"] for facts in found["datasets"]]
    off = {(run["dataset"], run["seed"]): run["curve"][-1][1] - run["end"] for run in found["runs"]}
    for name in others:
        more = interval_of([off[first, seed] - off[name, seed] for of, seed in off if of == name])
        yield f"- own says: {name}'s validation is {interval_text(more)} bits further below the truth than {first}'s"


HEADS = ("dataset", "windows", "epochs", "end", "kept", "kept after epochs", "own says")


def row_of(facts: dict[str, Any], found: dict[str, Any]) -> tuple[str, ...]:
    scores, runs = facts["scores"], [run for run in found["runs"] if run["dataset"] == facts["name"]]
    best = [min(run["curve"], key=lambda point: point[1])[0] / facts["ids"] for run in runs]
    told = (interval_text(Interval(**scores[name])) for name in ("end", "at_best_validation"))
    own = interval_text(Interval(**scores["own_validation"]))
    return (
        facts["name"],
        str(facts["windows"]),
        f"{facts['epochs']:.0f}",
        *told,
        ", ".join(f"{n:.0f}" for n in best),
        own,
    )


if __name__ == "__main__":
    main()

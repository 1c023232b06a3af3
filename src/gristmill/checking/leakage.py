"""`leakage`: each held-out split against train, as the rows show them (the measure itself: spans)."""

from typing import Any

from gristmill.checking.files import Rows
from gristmill.checking.result import FILES_SHOWN, Faults, Verdict
from gristmill.checking.runs import Run
from gristmill.checking.spans import Shared, shared_with_train
from gristmill.records import Split


def check_leakage(rows: Rows, how: str, num_threads: int, faults: Faults) -> Verdict:
    """With `--decontaminate off` leakage is told; otherwise any is a fault."""
    placed = [placed for runs in (*rows.by_file.values(), *rows.variants.values()) for placed in runs]
    train = [stretch.ids for one in placed if one.split is Split.TRAIN for stretch in one.run.stretches]
    held_out = [(one.split, one.run) for one in placed if one.split is not Split.TRAIN]
    shared = iter(shared_with_train([part.ids for _, run in held_out for part in run.stretches], train, num_threads))
    measured = [(split, run, [next(shared) for _ in run.stretches]) for split, run in held_out]
    facts: dict[str, Any] = {
        split: _split_facts([(run, parts) for one, run, parts in measured if one is split])
        for split in Split
        if split is not Split.TRAIN
    }
    leaking: list[dict[str, Any]] = [
        {"name": run.key.name, "split": split, "l50": _share_in_spans([(run, parts)])}
        for split, run, parts in measured
        if any(part.num_span_tokens for part in parts)
    ]
    leaking.sort(key=lambda file: (-file["l50"], file["name"]))
    if how != "off":
        for file in leaking:
            what = f"{file['l50']:.1%} of its tokens are in spans of 50 and more that are in train too"
            faults.add("leakage", what, path=file["name"])
    summary = "; ".join(
        f"{split}: {one['l50']:.2%} of tokens in spans of 50, {one['gram13']:.1%} of 13-grams"
        for split, one in facts.items()
    )
    return Verdict(summary, "reported" if how == "off" else "ok", {**facts, "worst_files": leaking[:FILES_SHOWN]})


def _split_facts(measured: list[tuple[Run, list[Shared]]]) -> dict[str, float]:
    shared = [part for _, parts in measured for part in parts]
    num_grams = sum(part.num_grams for part in shared)
    gram13 = sum(part.num_grams_found for part in shared) / num_grams if num_grams else 0.0
    return {"l50": _share_in_spans(measured), "gram13": gram13}


def _share_in_spans(measured: list[tuple[Run, list[Shared]]]) -> float:
    num_tokens = sum(len(stretch.ids) for run, _ in measured for stretch in run.stretches)
    num_shared = sum(part.num_span_tokens for _, parts in measured for part in parts)
    return num_shared / num_tokens if num_tokens else 0.0

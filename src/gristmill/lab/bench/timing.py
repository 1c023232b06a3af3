"""One method, one way of handing it documents -> its seconds cold, warm and on unseen text; every id is compared."""

import time
from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

import numpy as np

from gristmill.core.errors import GristmillError
from gristmill.core.names import counted, printable
from gristmill.lab.bench.engines import CardEngine, Encode, Engine
from gristmill.lab.bench.speeds import Case, Speed, Stage, State, Wire
from gristmill.lab.bench.tokenizer_documents import Documents
from gristmill.tokenizers.cuda.id_batch import Batch


class Expected(NamedTuple):
    """The ids of all documents, and who says so."""

    method: str
    batch: Batch

    @classmethod
    def of(cls, engine: Engine, documents: Documents) -> "Expected":
        encode = engine.prepared(Case.BYTES, documents)
        assert encode is not None
        found = encode()
        return cls(engine.name, Batch(np.array(found.ids), np.array(found.offsets)))

    def of_part(self, documents: Documents) -> Batch:
        offsets = self.batch.offsets
        parts = [self.batch.ids[offsets[index] : offsets[index + 1]] for index in documents.indices.tolist()]
        counts = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        return Batch(np.concatenate(parts), counts)


class Timed(NamedTuple):
    """One thing to time: whatever is asked of one method with some documents."""

    engine: Engine
    encode: Encode
    documents: Documents
    expected: Batch
    expected_from: str

    @classmethod
    def of(cls, engine: Engine, case: Case, documents: Documents, expected: Expected) -> "Timed | None":
        encode = engine.prepared(case, documents)
        if encode is None:
            return None
        return cls(engine, encode, documents, expected.of_part(documents), expected.method)

    def run(self) -> tuple[float, int]:
        """Seconds, and how many documents fell back to the CPU."""
        started = time.perf_counter()
        found = self.encode()
        seconds = time.perf_counter() - started
        self._compare(found)
        return seconds, found.num_on_cpu

    def _compare(self, found: Batch) -> None:
        expected = self.expected
        if np.array_equal(found.offsets, expected.offsets) and np.array_equal(found.ids, expected.ids):
            return
        told = first_difference(found, expected, self.documents)
        raise GristmillError(
            f"{self.engine.name} gives other ids than {self.expected_from}: {told}. "
            "Nothing was measured; please report it with the file."
        )


def first_difference(found: Batch, expected: Batch, documents: Documents) -> str:
    """The first document that differs, and its first token that does."""
    if len(found.offsets) != len(expected.offsets):
        return f"{counted(len(found.offsets) - 1, 'document')} instead of {len(expected.offsets) - 1:,}"
    for number, file in enumerate(documents.files):
        one, other = (batch.ids[batch.offsets[number] : batch.offsets[number + 1]] for batch in (found, expected))
        if not np.array_equal(one, other):
            shared = min(len(one), len(other))
            place = int(np.argmax(np.append(one[:shared] != other[:shared], True)))
            told = [str(ids[place]) if place < len(ids) else "no token" for ids in (one, other)]
            return f"document {printable(file.path)!r}, token {place:,} is {told[0]}, not {told[1]}"
    return f"{counted(found.offsets[-1], 'id')} instead of {expected.offsets[-1]:,}"


def speeds_of(engine: Engine, case: Case, documents: Documents, expected: Expected, runs: int) -> Iterator[Speed]:
    whole = Timed.of(engine, case, documents, expected)
    if whole is None:
        return
    yield _speed(whole, case, State.COLD, [_after_forgetting(whole) for _ in range(runs)])
    yield _speed(whole, case, State.WARM, [whole.run() for _ in range(runs)])
    del whole
    halves = documents.halves()
    if halves is not None:
        seen, unseen = (Timed.of(engine, case, half, expected) for half in halves)
        assert seen is not None
        assert unseen is not None
        yield _speed(unseen, case, State.UNSEEN, [_after_another(seen, unseen) for _ in range(runs)])


def _after_forgetting(timed: Timed) -> tuple[float, int]:
    timed.engine.forget()
    return timed.run()


def _after_another(seen: Timed, unseen: Timed) -> tuple[float, int]:
    _after_forgetting(seen)
    return unseen.run()


def _speed(timed: Timed, case: Case, state: State, results: list[tuple[float, int]]) -> Speed:
    seconds = [result[0] for result in results]
    return Speed(
        method=timed.engine.name,
        case=case,
        state=state,
        seconds=median(seconds),
        seconds_min=min(seconds),
        seconds_max=max(seconds),
        runs=len(seconds),
        files=len(timed.documents),
        bytes=timed.documents.num_bytes,
        ids=int(timed.expected.offsets[-1]),
        num_on_cpu=max(result[1] for result in results),
    )


def stages_of(engine: CardEngine, documents: Documents, runs: int) -> list[Stage]:
    text, card = engine.in_pinned_memory(documents), engine.tokenizer
    cold, warm = [], []
    for _ in range(runs):
        card.forget()
        cold.append(card.stage_seconds(text, documents.offsets))
        warm.append(card.stage_seconds(text, documents.offsets))
    names = dict.fromkeys(name for told in (*cold, *warm) for name in told)
    return [
        Stage(
            name=name,
            cold_seconds=median(told.get(name, 0.0) for told in cold),
            warm_seconds=median(told.get(name, 0.0) for told in warm),
        )
        for name in names
    ]


def wire_of(engine: CardEngine, documents: Documents, batch: Batch) -> Wire | None:
    """None where the tokenizer does not tell."""
    ask = getattr(engine.tokenizer, "wire_seconds", None)
    if ask is None:
        return None
    num_bytes_out = engine.tokenizer.encode_batch(documents.texts[:1]).ids.itemsize * len(batch.ids)
    told: dict[str, float] = ask(documents.num_bytes, num_bytes_out)
    return Wire(
        bytes_in=documents.num_bytes,
        bytes_out=num_bytes_out,
        seconds_in=told["in"],
        seconds_out=told["out"],
        seconds_both=told["both"],
    )

from typing import NamedTuple


class TaskFailed(NamedTuple):
    reason: str


Runner = object

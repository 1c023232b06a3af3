"""The GPU as a build sees it: the process that owns the card, or none. Light to import, since most builds have none."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gristmill.config.settings import RunConfig
from gristmill.core.manifest import GpuFacts
from gristmill.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from gristmill.tokenizers.cuda.exchange import Address
    from gristmill.tokenizers.cuda.server import MakeEncoder


class GpuServer(Protocol):
    @property
    def address(self) -> "Address | None":
        """Where workers send texts; None where no process serves."""
        ...

    def end(self) -> GpuFacts | None:
        """End the process: what it did. None where no card was asked for."""
        ...

    def close(self) -> None: ...


class NoServer(NamedTuple):
    facts: GpuFacts | None
    address: None = None

    def end(self) -> GpuFacts | None:
        return self.facts

    def close(self) -> None:
        pass


NO_SERVER = NoServer(None)


@contextmanager
def server_for(
    run: RunConfig, tokenizer: Tokenizer, folder: Path, make_encoder: "MakeEncoder | None" = None
) -> Iterator[GpuServer]:
    """`folder`: where the tokenizer is. `make_encoder`: in place of the card's own.

    A card that was asked for and is missing is an error. One that cannot run the tokenizer is not: the CPU serves.
    """
    if run.device == "cpu":
        yield NO_SERVER
        return
    from gristmill.tokenizers.cuda.host import started_server  # noqa: PLC0415 - most builds do without

    server = started_server(run, tokenizer, folder, make_encoder)
    try:
        yield server
    finally:
        server.close()

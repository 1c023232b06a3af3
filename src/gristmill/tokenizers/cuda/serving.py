"""Provide a build with the GPU process or with a placeholder.

Importing this module is cheap, because it imports the GPU modules only for a build that uses a GPU.
"""

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
    """The GPU process, or a placeholder if there is none."""

    @property
    def address(self) -> "Address | None":
        """Address for the requests of workers, or None if there is no GPU process."""
        ...

    def end(self) -> GpuFacts | None:
        """End the process and return its statistics, or None if no GPU was requested."""
        ...

    def close(self) -> None:
        """Kill the process."""
        ...


class NoServer(NamedTuple):
    """Placeholder for a build without a GPU process."""

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
    """Start the GPU process if the build uses a GPU, and end the process when the context exits.

    `folder` contains the tokenizer. `make_encoder` replaces the GPU in tests. Raise DeviceError or MissingExtraError if
    the machine has no usable GPU. If the GPU does not support the tokenizer, the CPU encodes instead.
    """
    if run.device == "cpu":
        yield NO_SERVER
        return
    from gristmill.tokenizers.cuda.host import start_server  # noqa: PLC0415 - most builds do not use it

    server = start_server(run, tokenizer, folder, make_encoder)
    try:
        yield server
    finally:
        server.close()

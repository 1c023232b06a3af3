"""One of a few processes that read files into memory shared with their parent (file_reader.py).

    python -I -S reader.py DESCRIPTOR NUM_BYTES

Started as a script, with nothing but the standard library: it is there at once. Messages are marshal's, each behind
its length in four bytes.

    in    (begin, end, [path, …])        read into memory[begin:end], one behind the other
    out   ([size, …], trouble)           as many as fit; trouble: of the next one, None if it only does not fit
"""

import marshal
import mmap
import os
import signal
import stat
import sys
from collections.abc import Sequence
from typing import IO, Any

Answer = tuple[list[int], str | None]


def send(stream: IO[bytes], message: Any) -> None:
    content = marshal.dumps(message)
    stream.write(len(content).to_bytes(4, "little") + content)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes | None:
    """None at the end."""
    head = stream.read(4)
    return stream.read(int.from_bytes(head, "little")) if head else None


def read_files(memory: memoryview, paths: Sequence[bytes]) -> Answer:
    """A file fits if it leaves a byte: a read that fills everything may not have met its end."""
    sizes: list[int] = []
    at = 0
    for path in paths:
        try:
            # As gristmill.core.plain_files opens a file, which is not at hand here.
            if not stat.S_ISREG(os.stat(path).st_mode):
                return sizes, "it is not an ordinary file"
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                size = _read_whole(descriptor, memory[at:])
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            return sizes, getattr(error, "strerror", None) or str(error)
        if size is None:
            break
        sizes.append(size)
        at += size
    return sizes, None


def _read_whole(descriptor: int, room: memoryview) -> int | None:
    done = 0
    while done < len(room):
        size = os.readv(descriptor, [room[done:]])
        if size == 0:
            return done
        done += size
    return None


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the parent decides
    descriptor, num_bytes = map(int, sys.argv[1:])
    memory = memoryview(mmap.mmap(descriptor, num_bytes))
    while (message := receive(sys.stdin.buffer)) is not None:
        begin, end, paths = marshal.loads(message)  # noqa: S302 - from the process that started this one
        send(sys.stdout.buffer, read_files(memory[begin:end], paths))


if __name__ == "__main__":
    main()

"""Read files into memory that is shared with the parent process (file_reader.py).

    python -I -S reader_process.py DESCRIPTOR NUM_BYTES

This file runs as a script and imports only the standard library, so that the process starts fast. A message is a
marshal dump, preceded by its length in four bytes.

    in    (begin, end, [path, …])        read the files into memory[begin:end], concatenated
    out   ([size, …], error)             sizes of the files that fit, and the error of the next file or None
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
    """Return the content of the next message, or None at the end of the stream."""
    head = stream.read(4)
    return stream.read(int.from_bytes(head, "little")) if head else None


def read_files(memory: memoryview, paths: Sequence[bytes]) -> Answer:
    """Read files until the memory is full or an error occurs, and return the sizes of the files read and the error.

    A file fits if at least one byte of memory remains free after it. Otherwise, the file may be longer than the memory.
    """
    sizes: list[int] = []
    at = 0
    for path in paths:
        try:
            # Same checks as in gristmill.core.plain_files, which is not imported here.
            if not stat.S_ISREG(os.stat(path).st_mode):
                return sizes, "not a regular file"
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                size = _read_to_end(descriptor, memory[at:])
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            return sizes, getattr(error, "strerror", None) or str(error)
        if size is None:
            break
        sizes.append(size)
        at += size
    return sizes, None


def _read_to_end(descriptor: int, memory: memoryview) -> int | None:
    """Read a file. Return the size of the file, or None if the file fills the memory."""
    done = 0
    while done < len(memory):
        size = os.readv(descriptor, [memory[done:]])
        if size == 0:
            return done
        done += size
    return None


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C, which reaches all processes
    descriptor, num_bytes = map(int, sys.argv[1:])
    memory = memoryview(mmap.mmap(descriptor, num_bytes))
    while (message := receive(sys.stdin.buffer)) is not None:
        begin, end, paths = marshal.loads(message)  # noqa: S302 - from the parent process
        send(sys.stdout.buffer, read_files(memory[begin:end], paths))


if __name__ == "__main__":
    main()

"""Looking for secrets: megabytes a second on one core, and what is found, in the standard library.

python benchmarks/find_secrets.py     # prints benchmarks/find_secrets.md
"""

import os
import time
from collections import Counter

from measure import STDLIB, machine

from gristmill.cleaning.secrets import find_secrets, redact
from gristmill.intake.decoding import Decoded, decode
from gristmill.sections import SecretsConfig

RUNS = 5
# Texts made to be slow, a megabyte each: openings without end.
HARD = (
    *(b"eyJ", b"eyJ-", b"-----BEGIN PRIVATE KEY-----", b'password="', b"token=", b"://a:", b"\n", b"a@b.c", b"a@b.co "),
    *(b'token="A1b2C3d4E5f6G7h8"\n', b"-----BEGIN PRIVATE KEY-----\n" + b'"A1b2C3d4",' * 5000),
)


def texts() -> list[bytes]:
    found = []
    for folder, folders, names in os.walk(STDLIB):
        folders[:] = sorted({*folders} - {"site-packages", "__pycache__"})
        for name in sorted(names):
            with open(os.path.join(folder, name), "rb") as file:
                decoded = decode(file.read())
            if isinstance(decoded, Decoded):
                found.append(decoded.text)
    return found


def best_seconds(read: list[bytes], *, emails: bool = False) -> float:
    seconds = []
    for _ in range(RUNS):
        started = time.perf_counter()
        for text in read:
            find_secrets(text, emails=emails)
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def main() -> None:
    read = texts()
    megabytes = sum(map(len, read)) / 1e6
    kinds = Counter(secret.kind for text in read for secret in find_secrets(text))
    print("# Looking for secrets\n")
    print(f"`python benchmarks/find_secrets.py`. {machine('gristmill', 'google-re2')}.\n")
    print(f"The standard library, {len(read):,} texts, {megabytes:.1f} MB, one core, best of {RUNS}.\n")
    print("| what | MB/s |")
    print("| --- | --- |")
    print(f"| secrets | {megabytes / best_seconds(read):.0f} |")
    print(f"| secrets and e-mail addresses | {megabytes / best_seconds(read, emails=True):.0f} |")
    print(f"\nFound: {', '.join(f'{count} {kind}' for kind, count in sorted(kinds.items()))}.\n")
    print("| one megabyte of | redacted in s |")
    print("| --- | --- |")
    for piece in HARD:
        text = piece * (1_000_000 // len(piece))
        started = time.perf_counter()
        redact(text, "text", SecretsConfig(emails=True))
        print(f"| `{piece[:40].decode()!r}` | {time.perf_counter() - started:.2f} |")


if __name__ == "__main__":
    main()

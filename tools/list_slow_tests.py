"""Write tests/slow.txt, the list of tests that `make test-quick` skips, from the durations of a complete run.

    make test TEST_OPTIONS='--durations=0 -vv' > run.log
    python tools/list_slow_tests.py run.log

The quick run includes the fastest functions up to QUICK_SHARE of the total time, and at least one function per folder.
The load of the machine does not matter, because only shares of the total time are compared.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

TARGET = Path(__file__).parents[1] / "tests/slow.txt"
QUICK_SHARE = 0.05
"""Share of a complete run's seconds that the quick run may take.

Including imports and test collection, the quick run takes less than a minute on two cores."""
DURATION_LINE = re.compile(r"^([\d.]+)s (?:call|setup|teardown) +tests/(\S+?)::(\w+)", re.MULTILINE)
HEADER = """\
# Tests that `make test-quick` skips: files, and functions in files. Written by tools/list_slow_tests.py.
"""


def slow_tests(log: str) -> list[str]:
    """Return the slow functions. If all functions of a file are slow, return the file instead."""
    seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
    for duration, file, function in DURATION_LINE.findall(log):
        seconds[file, function] += float(duration)
    seconds_left = QUICK_SHARE * sum(seconds.values())
    quick, folders = set(), set()
    for (file, function), cost in sorted(seconds.items(), key=lambda item: (item[1], item[0])):
        seconds_left -= cost
        folder = file.partition("/")[0]
        if seconds_left >= 0 or folder not in folders:
            quick.add((file, function))
            folders.add(folder)
    quick_files = {file for file, _ in quick}
    slow = seconds.keys() - quick
    return sorted({f"{file}::{function}" if file in quick_files else file for file, function in slow})


if __name__ == "__main__":
    names = slow_tests(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if not names:
        sys.exit(f"{sys.argv[1]} contains no durations. Run pytest with --durations=0 -vv.")
    TARGET.write_text(HEADER + "".join(f"{name}\n" for name in names), encoding="utf-8")

"""Write tests/slow.txt, the tests that `make test-quick` leaves out, from the durations of a whole run.

    make test TEST_OPTIONS='--durations=0 -vv' > run.log
    python tools/list_slow_tests.py run.log

The functions that cost least stay in, up to a share of the whole; of each folder at least one. How loaded the machine
was does not matter.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

TARGET = Path(__file__).parents[1] / "tests/slow.txt"
QUICK_SHARE = 0.05
"""Of the seconds that a whole run takes: with loading, less than a minute on two cores."""
LINE = re.compile(r"^([\d.]+)s (?:call|setup|teardown) +tests/(\S+?)::(\w+)", re.MULTILINE)
HEADER = """\
# Tests that `make test-quick` leaves out: a file, or a function in one. Written by tools/list_slow_tests.py.
"""


def slow_tests(log: str) -> list[str]:
    seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
    for duration, file, function in LINE.findall(log):
        seconds[file, function] += float(duration)
    left = QUICK_SHARE * sum(seconds.values())
    quick, folders = set(), set()
    for (file, function), cost in sorted(seconds.items(), key=lambda item: (item[1], item[0])):
        left -= cost
        folder = file.partition("/")[0]
        if left >= 0 or folder not in folders:
            quick.add((file, function))
            folders.add(folder)
    quick_files = {file for file, _ in quick}
    slow = seconds.keys() - quick
    return sorted({f"{file}::{function}" if file in quick_files else file for file, function in slow})


if __name__ == "__main__":
    names = slow_tests(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if not names:
        sys.exit(f"{sys.argv[1]}: no durations. Run pytest with --durations=0 -vv.")
    TARGET.write_text(HEADER + "".join(f"{name}\n" for name in names), encoding="utf-8")

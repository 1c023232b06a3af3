"""Measure the peak memory of a build, over all processes, for growing amounts of source code.

    python benchmarks/memory.py [SOURCE]     # prints the contents of benchmarks/memory.md

SOURCE defaults to the installed packages of this interpreter, which are real code by many authors.
"""

import argparse
import sysconfig
import tempfile
from pathlib import Path

from measure import GRISTMILL, machine_text, measure_peak_mb

from gristmill.core.manifest import read_manifest

MAX_FILE_BYTES = "8000000"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", default=sysconfig.get_path("purelib"))
    options = parser.parse_args()
    folders = sorted(path for path in Path(options.source).iterdir() if path.is_dir())
    print("# Memory of a build\n")
    print(f"`python benchmarks/memory.py`, files up to 8 MB. {machine_text('gristmill', 'gigatoken')}.\n")
    print("| folders | source kept | files kept | rows written | peak memory, all processes |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        for part in (8, 4, 2, 1):
            chosen = [str(folder) for folder in folders[::part]]
            out = f"{name}/{part}"
            command = [GRISTMILL, "build", *chosen, "--quiet", "--max-file-bytes", MAX_FILE_BYTES, "--out", out]
            peak = measure_peak_mb(command)
            manifest = read_manifest(Path(out))
            rows = sum(facts.bytes for facts in manifest.files.values() if facts.split)
            kept = f"{manifest.run.source_bytes / 1e6:.0f} MB | {manifest.counts.kept:,} | {rows / 1e6:,.0f} MB"
            print(f"| 1 of {part} | {kept} | {peak:.0f} MB |" if part > 1 else f"| all | {kept} | {peak:.0f} MB |")


if __name__ == "__main__":
    main()

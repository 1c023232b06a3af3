"""Measure the speed of `gristmill plan` and the error of its estimates, with all files and with samples of files.

python benchmarks/plan.py [SOURCE] [--runs 5]     # prints the contents of benchmarks/plan.md
"""

import argparse
import os
import shutil
import sysconfig
import tempfile
from pathlib import Path

import orjson
from measure import GRISTMILL, STDLIB, cold_build, machine_text, measure_medians

import gristmill
from gristmill.config.config import Config
from gristmill.config.settings import OutputConfig, SplitConfig, WindowConfig
from gristmill.core.manifest import Manifest
from gristmill.core.schema import Schema
from gristmill.formats.jsonl_rows import parse_lines
from gristmill.formats.parquet import num_parquet_bytes
from gristmill.planning.overlap_choice import PlanOptions

PACKAGES = ("numpy", "pyarrow")
"""Packages that together have the size of a typical repository. `make test` installs these packages."""
SAMPLE_SIZES = (100, 200, 500, 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", default=STDLIB)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        repository = [os.path.join(sysconfig.get_path("purelib"), name) for name in PACKAGES]
        commands = {
            "gristmill plan": [GRISTMILL, "plan", options.source, "--out", f"{folder}/none", "--quiet"],
            "gristmill build": cold_build(f"{folder}/built", options.source),
            f"gristmill plan {' '.join(PACKAGES)}": [GRISTMILL, "plan", *repository, "--out", f"{folder}/none", "-q"],
        }
        measured = measure_medians(commands, options.runs)
        plan = gristmill.plan(Config(sources=[options.source], out=f"{folder}/none"))
        other = gristmill.plan(Config(sources=repository, out=f"{folder}/none"))
        print("# Speed and accuracy of a plan\n")
        print(
            f"`python benchmarks/plan.py --runs {options.runs}`. {machine_text('gristmill', 'pyarrow', 'zstandard')}.\n"
        )
        counts = f"{plan.found:,} files found, {plan.kept:,} kept, {plan.distinct_tokens:,} tokens"
        print(f"The Python standard library: {counts}.")
        counts = f"{other.found:,} files found, {other.kept:,} kept, {other.distinct_tokens:,} tokens"
        print(f"The packages {' and '.join(PACKAGES)}, in Python, C, C++ and Cython: {counts}.")
        print("Seconds are medians and include the start and exit of the interpreter.\n")
        print("| command | seconds | peak memory, all processes |")
        print("| --- | --- | --- |")
        for name, (seconds, peak_mb) in measured.items():
            print(f"| {name} | {seconds:.2f} | {peak_mb:.0f} MB |")
        print("\nDifference between the estimates of the plan and the results of a build:\n")
        print("| overlap | windows | JSONL | JSONL.zst | Parquet | estimated seconds | measured seconds |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for one in plan.overlaps:
            plain = build_fresh(options.source, f"{folder}/plain", one.overlap, "none")
            packed = build_fresh(options.source, f"{folder}/packed", one.overlap, "zstd")
            windows = sum(facts.windows for facts in plain.splits.values())
            jsonl = one.jsonl_bytes / data_bytes(plain) - 1
            jsonl_zst = one.jsonl_zst_bytes / data_bytes(packed) - 1
            times = f"{one.build_seconds:.2f} | {plain.run.seconds['total']:.2f}"
            parquet = (one.parquet_bytes or 0) / parquet_bytes(f"{folder}/plain") - 1
            sizes = f"{jsonl:+.1%} | {jsonl_zst:+.1%} | {parquet:+.1%}"
            print(f"| {one.overlap} | {one.windows - windows:+,} | {sizes} | {times} |")
        print_samples(options.source, plan.at(256).windows)


def build_fresh(source: str, out: str, overlap: int, compress: str) -> Manifest:
    window, split = WindowConfig(overlap=overlap), SplitConfig(fresh=True)
    output = OutputConfig(compress="zstd" if compress == "zstd" else "none")
    for earlier in (out, f"{out}.work"):  # an earlier cache would make this build faster
        shutil.rmtree(earlier, ignore_errors=True)
    return gristmill.build(Config(sources=[source], out=out, window=window, split=split, output=output))


def data_bytes(manifest: Manifest) -> int:
    return sum(facts.bytes for facts in manifest.files.values() if facts.split)


def parquet_bytes(folder: str) -> int:
    """Return the size that the rows of a dataset would have as Parquet, with one file per split."""
    dataset = gristmill.open_dataset(folder)
    schema = Schema.of(dataset.manifest)
    splits = [list(map(orjson.dumps, rows)) for rows in dataset.values()]
    return sum(num_parquet_bytes([parse_lines(lines, schema)], schema) for lines in splits)


def print_samples(source: str, windows: int) -> None:
    print(f"\nEstimates with `--sample`, at overlap 256. With all files, the plan estimates {windows:,} windows.\n")
    print("| sample size | files read | estimated windows | reported error | actual error | seconds |")
    print("| --- | --- | --- | --- | --- | --- |")
    for count in SAMPLE_SIZES:
        plan = gristmill.plan(Config(sources=[source], out=str(Path(source, "none"))), PlanOptions(sample=count))
        assert plan.sample is not None
        estimate = plan.at(256).windows
        errors = f"{plan.sample.error:.1%} | {estimate / windows - 1:+.1%}"
        print(f"| {count:,} | {plan.sample.files:,} | {estimate:,} | {errors} | {plan.seconds:.2f} |")


if __name__ == "__main__":
    main()

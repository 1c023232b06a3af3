"""How fast is a build? Ratios to the floor and to the Hugging Face way, all measured in one run.

python benchmarks/build.py [SOURCE] [--runs 5] [--hf-runs 1]     # prints benchmarks/build.md
"""

import argparse
import sys
import tempfile
from pathlib import Path

from measure import GRISTMILL, STDLIB, machine, medians, seconds_of

from gristmill.manifest import Manifest, read_manifest

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", default=STDLIB)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--hf-runs", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        dataset = f"{folder}/dataset"
        build = [GRISTMILL, "build", options.source, "--quiet", "--fresh-splits", "--out"]
        plain = ("--config", str(HERE / "plain.toml"))  # what floor and peer do: no cleaning, nothing compared
        seconds_of([*build, dataset, *plain])
        peers = {
            name: [sys.executable, str(HERE / name), dataset, options.source] for name in ("floor.py", "hf_way.py")
        }
        commands = {
            "floor: read, encode, write": [*peers["floor.py"], f"{folder}/floor"],
            "gristmill, no cleaning, 1 worker": [*build, f"{folder}/one", "--workers", "1", *plain],
            "gristmill, no cleaning": [*build, f"{folder}/plain", *plain],
            "gristmill": [*build, f"{folder}/auto"],
            "gristmill --compress zstd": [*build, f"{folder}/zstd", "--compress", "zstd"],
        }
        measured = medians(commands, options.runs)
        measured |= medians({"datasets.map + to_json": [*peers["hf_way.py"], f"{folder}/hf"]}, options.hf_runs)
        helped = medians({"gristmill --help": [GRISTMILL, "--help"]}, options.runs)["gristmill --help"]
        manifest = read_manifest(Path(dataset))
        sizes = [_data_mb(read_manifest(Path(folder, name))) for name in ("auto", "zstd")]
    floor = measured["floor: read, encode, write"].seconds
    peer = measured["datasets.map + to_json"].seconds
    tokens = sum(facts.tokens for facts in manifest.splits.values())
    print("# How fast is a build\n")
    print(
        f"`python benchmarks/build.py --runs {options.runs}`: whole processes, from the interpreter's start; medians."
    )
    print(f"\n{machine('gristmill', 'gigatoken', 'orjson', 'tokenizers', 'datasets')}.\n")
    print(
        f"The Python standard library: {manifest.counts.kept:,} files, {manifest.run.source_bytes / 1e6:.1f} MB, "
        f"{tokens:,} tokens."
    )
    print("Floor, peer and `no cleaning` (benchmarks/plain.toml) write windows of all of them; a default build also")
    print(f"cleans, compares and cuts: {sizes[0]:.1f} MB of rows, {sizes[1]:.1f} MB with `--compress zstd`.\n")
    print("| what | seconds | times the floor | peak memory, all processes |")
    print("| --- | --- | --- | --- |")
    for name, (seconds, peak_mb) in measured.items():
        print(f"| {name} | {seconds:.2f} | {seconds / floor:.2f} | {peak_mb:.0f} MB |")
    same, default = peer / measured["gristmill, no cleaning"].seconds, peer / measured["gristmill"].seconds
    print(
        f"\n`datasets.map` + `to_json` takes {same:.0f} times as long for the same rows, {default:.1f} times as long as"
    )
    print(f"a default build. `gristmill --help`: {helped.seconds:.2f} s.")


def _data_mb(manifest: Manifest) -> float:
    return sum(facts.bytes for facts in manifest.files.values() if facts.split) / 1e6


if __name__ == "__main__":
    main()

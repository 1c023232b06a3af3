"""bench --tokenizers with real tokenizers on a few files. A tokenizer that uses gigatoken replaces the GPU."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import gigatoken
import msgspec
import numpy as np
import pytest

from gristmill import ConfigError, GristmillError, Progress, load_tokenizer
from gristmill.cli import main
from gristmill.lab.bench.bench_files import Documents, gather
from gristmill.lab.bench.methods import METHODS, select_methods, skip_reason
from gristmill.lab.bench.tokenizers.bench_tokenizers import TokenizerBenchOptions, bench_tokenizers
from gristmill.lab.bench.tokenizers.engines import SLICE_BYTES, document_slices
from gristmill.lab.bench.tokenizers.speed_markdown import HEADING, tokenizers_markdown
from gristmill.lab.bench.tokenizers.speed_svg import tokenizers_svg
from gristmill.lab.bench.tokenizers.speed_text import speed_of, speed_ratio, tokenizers_json, tokenizers_text
from gristmill.lab.bench.tokenizers.speeds import Case, State
from gristmill.tokenizers.cuda.id_batch import Batch
from gristmill.tokenizers.locate import locate
from support.pictures import Picture
from support.source_trees import ROOT, write_tree
from support.trained_tokenizers import byte_level, word_piece

TREE = {
    **{
        f"pkg/m{number}.py": "".join(f"def f{number}_{line}(x):\n    return x * {line}\n" for line in range(40))
        for number in range(6)
    },
    "unicode ünï/naïve.py": "name = '日本語 🦀'\n# \u2028 \x0c end\n",
    "windows.py": b"def f():\r\n    return 'carriage return'\r\n",
    "special.md": "between <s> and </s> and <mask>\n",
    "latin.py": b"# na\xefve text in latin-1, and nothing else\n",
}
NUM_FILES = 9
"""Number of measured files: all files except the last, which is not UTF-8."""


class StandIn:
    """GPU tokenizer that encodes with gigatoken and records how much text it has seen before each call."""

    device_name = "Stand-in 9000"
    engine = "stand-in 1.0"

    def __init__(self, name):
        self._json = locate(name).plain_json()
        self.seen_bytes = []
        """For each call, the number of bytes encoded between the last `forget` and the call."""
        self.forget()

    def forget(self):
        self._tokenizer, self._seen = gigatoken.Tokenizer.from_json(self._json), 0

    def pinned(self, num_bytes):
        return np.zeros(num_bytes + 7, np.uint8)  # larger than requested, because allocators round up

    def encode_joined(self, text, offsets):
        return self.encode_batch([text[start:end].tobytes() for start, end in pairwise(offsets)])

    def encode_batch(self, texts):
        self.seen_bytes.append(self._seen)
        self._seen += sum(map(len, texts))
        ids = [self._tokenizer.encode(text).astype(np.uint16) for text in texts]
        return Batch(np.concatenate(ids), np.cumsum([0, *map(len, ids)]), num_on_cpu=1)

    def encode_files(self, paths):
        return self.encode_batch([Path(path).read_bytes() for path in paths])

    def stage_seconds(self, text, offsets):
        is_warm, self._seen = self._seen > 0, len(text)
        return {"word starts": 0.001, "merges": 0.002 if is_warm else 0.02}


class WithWireSeconds(StandIn):
    def copy_seconds(self, num_bytes_in, num_bytes_out):
        return {"in": num_bytes_in / 50e9, "out": num_bytes_out / 25e9, "both": num_bytes_in / 20e9}


class WrongOnce(StandIn):
    """Tokenizer with a wrong id in a later call, so that a comparison of only the first call finds no error."""

    def encode_files(self, paths):
        batch = super().encode_files(paths)
        number = next((place for place, path in enumerate(paths) if path.endswith("m3.py")), None)
        if number is not None and len(paths) < NUM_FILES and self.seen_bytes[-1]:
            batch.ids[batch.offsets[number] + 5] += 1
        return batch


class OneTokenShort(StandIn):
    def encode_batch(self, texts):
        batch = super().encode_batch(texts)
        return Batch(batch.ids[:-1], np.append(batch.offsets[:-1], batch.offsets[-1] - 1), 0)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_tree(tmp_path_factory.mktemp("bench") / "repo", TREE)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """Path of a vocabulary of 600 tokens. It is small because each cold run loads it again."""
    path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.json"
    path.write_text(byte_level())
    return str(path)


@pytest.fixture(scope="module")
def result(source, vocabulary):
    options = TokenizerBenchOptions(tokenizer=vocabulary, device="cuda", runs=2)
    return bench_tokenizers(str(source), options, load_gpu_tokenizer=WithWireSeconds)


def run(capsys, *arguments):
    code = main.run(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_every_method_is_timed_in_every_case_and_state(result, vocabulary):
    found = {(speed.method, speed.case, speed.state) for speed in result.speeds}
    fast = {(name, case, state) for name in ("gigatoken", "cuda") for case in Case for state in State}
    assert found == fast | {("tokenizers", case, state) for case in (Case.BYTES, Case.FILES) for state in State}
    texts = [content.encode() if isinstance(content, str) else content for content in TREE.values()][:NUM_FILES]
    assert result.corpus.files == NUM_FILES
    assert result.corpus.withheld == 1
    assert result.corpus.bytes == sum(map(len, texts))
    assert result.corpus.tokens == sum(len(load_tokenizer(vocabulary).encode(text).ids) for text in texts)
    assert all(
        speed.runs == 2 and 0 < speed.seconds_min <= speed.seconds <= speed.seconds_max for speed in result.speeds
    )
    assert {speed.num_on_cpu for speed in result.speeds if speed.method == "cuda"} == {1}
    assert [method.name for method in result.methods] == ["tokenizers", "gigatoken", "cuda"]
    assert result.gpu == "Stand-in 9000"


def test_unseen_text_is_the_other_half_of_the_bytes(result):
    for speed in result.speeds:
        whole = result.corpus.bytes
        assert speed.bytes == whole if speed.state != State.UNSEEN else 0.3 * whole < speed.bytes < 0.7 * whole


def test_halves_are_deterministic_and_contain_every_document_once(source):
    documents = Documents.read(gather(str(source), load_tokenizer(), Progress()).files, Progress())
    seen, unseen = documents.halves()
    assert sorted([*seen.indices, *unseen.indices]) == list(range(NUM_FILES))
    assert [documents.texts[index] for index in unseen.indices] == unseen.texts
    assert bytes(unseen.joined) == b"".join(unseen.texts)
    assert list(documents.halves()[1].indices) == list(unseen.indices)


def test_cold_warm_and_unseen_runs_start_with_the_right_cache(source, vocabulary):
    loaded = []

    def load(name):
        loaded.append(StandIn(name))
        return loaded[0]

    options = TokenizerBenchOptions(tokenizer=vocabulary, device="cuda", runs=2)
    result = bench_tokenizers(str(source), options, load_gpu_tokenizer=load)
    whole = result.corpus.bytes
    half = whole - speed_of("cuda", Case.FILES, State.UNSEEN, result).bytes
    cold, warm, unseen = [0, 0], [whole, 2 * whole], [0, half, 0, half]
    assert len(loaded) == 1
    assert loaded[0].seen_bytes[1:] == 3 * [*cold, *warm, *unseen]  # call 0 is the document that is encoded on loading


def test_wrong_id_is_an_error_with_document_and_token(source, vocabulary):
    with pytest.raises(
        GristmillError,
        match=r"cuda gives different ids than tokenizers: document 'pkg/m3\.py' has id \d+ at token index 5, not id",
    ):
        bench_tokenizers(
            str(source),
            TokenizerBenchOptions(tokenizer=vocabulary, device="cuda", runs=1),
            load_gpu_tokenizer=WrongOnce,
        )


def test_missing_id_is_an_error(source, vocabulary):
    with pytest.raises(GristmillError, match=r"document 'windows\.py' has no token at token index \d+, not id \d+"):
        bench_tokenizers(
            str(source),
            TokenizerBenchOptions(tokenizer=vocabulary, device="cuda", runs=1),
            load_gpu_tokenizer=OneTokenShort,
        )


def test_only_the_slow_method_is_sampled_and_marked(source, vocabulary):
    result = bench_tokenizers(str(source), TokenizerBenchOptions(tokenizer=vocabulary, runs=1, sample=4))
    assert [(method.name, method.files, method.is_sampled) for method in result.methods] == [
        ("tokenizers", 4, True),
        ("gigatoken", NUM_FILES, False),
    ]
    for text in (tokenizers_text(result), tokenizers_markdown(result, "b.svg")):
        assert f"tokenizers: timed on 4 of {NUM_FILES} files" in text
        assert "≈" in text


def test_json_has_rates_and_ratios(result):
    output = json.loads(tokenizers_json(result))
    assert {"methods", "speeds", "stages", "wire", "corpus", "machine", "gpu", "command"} <= set(output)
    for speed in output["speeds"]:
        assert speed["bytes_per_second"] == pytest.approx(speed["bytes"] / speed["seconds"])
        assert speed["method"] != "gigatoken" or speed["ratio"] == 1
    assert output["wire"]["bytes_out"] == 2 * output["corpus"]["tokens"]  # 16-bit ids
    assert [(stage["name"], stage["cold_seconds"], stage["warm_seconds"]) for stage in output["stages"]] == [
        ("word starts", 0.001, 0.001),
        ("merges", 0.02, 0.002),
    ]


def test_ratio_is_relative_to_the_baseline_with_the_same_input(result):
    speed = speed_of("cuda", Case.FILES, State.UNSEEN, result)
    other = speed_of("gigatoken", Case.FILES, State.UNSEEN, result)
    assert speed_ratio(speed, result) == pytest.approx(other.seconds / speed.seconds)
    alone = msgspec.structs.replace(result, methods=result.methods[2:])
    assert speed_ratio(speed, alone) is None


def test_page_and_text_have_all_results(result):
    page, text = tokenizers_markdown(result, "bench 1.svg"), tokenizers_text(result)
    assert page.startswith(HEADING)
    assert "](bench%201.svg)" in page
    for rendered in (page, text):
        for words in ("Stand-in 9000", "tokenizers 0.", "gigatoken 0.", f"{result.corpus.tokens:,} ids", "unseen", "on CPU",
                      "word starts", "20.00", "to the GPU 50.00 GB/s, from the GPU 25.00 GB/s", "were equal in every run"):  # fmt: skip
            assert words in rendered
    assert len(page.split("## All times")[1].strip().split("\n")) == 2 + 2 + len(result.speeds)


def test_chart_has_a_bar_for_each_speed_on_one_scale(result):
    shapes = Picture(tokenizers_svg(result)).shapes("bar-.*").values()
    bars = [max(x for x, _ in run) - min(x for x, _ in run) for (run,) in shapes]
    assert len(bars) == len(result.speeds)
    rates = [speed.bytes_per_second for speed in result.speeds]
    assert sorted(bars) == pytest.approx(sorted(max(bars) * rate / max(rates) for rate in rates), abs=0.02)


def test_command_writes_page_and_chart(source, vocabulary, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # the second run replaces the page of the first
        options = ("--tokenizer", vocabulary, "--tokenizers", "--runs", "1", "--json")
        code, text, _ = run(capsys, "bench", str(source), *options)
        assert code == 0
    assert {speed["method"] for speed in json.loads(text)["speeds"]} == {"tokenizers", "gigatoken"}
    assert json.loads(text)["gpu"] is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bench-tokenizers.md", "bench-tokenizers.svg"]
    page = (tmp_path / "bench-tokenizers.md").read_text()
    assert "--tokenizers --runs 1 --json" in page
    assert "on CPU" not in page


def test_page_of_another_benchmark_is_not_overwritten(source, tmp_path, capsys):
    (tmp_path / "bench.md").write_text("# What each way of making the dataset costs and gives\n")
    code, _, error = run(capsys, "bench", str(source), "--tokenizers", "--out", str(tmp_path / "bench.md"))
    assert code == 3
    assert "--out" in error


@pytest.mark.parametrize(
    "options",
    [["--only", "floor"], ["--keep", "x"], ["--expand-to", "0"], ["--workers", "2"], ["--runs", "0"], ["--sample", "0"], ["--device", "tpu"]],
)  # fmt: skip
def test_options_that_do_not_apply_are_refused(source, capsys, options):
    code, _, error = run(capsys, "bench", str(source), "--tokenizers", *options)
    assert code == 2
    assert options[0] in error


def test_missing_gpu_is_reported_before_files_are_read(tmp_path):
    def load(name):
        raise ConfigError("there is no GPU")

    with pytest.raises(ConfigError, match="there is no GPU"):
        bench_tokenizers(
            str(tmp_path / "no such folder"), TokenizerBenchOptions(device="cuda"), load_gpu_tokenizer=load
        )


def test_tokenizer_unsupported_by_gigatoken_is_skipped_with_a_reason(source, tmp_path):
    (tmp_path / "words.json").write_text(word_piece())
    result = bench_tokenizers(str(source), TokenizerBenchOptions(tokenizer=str(tmp_path / "words.json"), runs=1))
    assert [method.name for method in result.methods] == ["tokenizers"]
    assert "gigatoken: skipped, gigatoken does not support this tokenizer (WordPiece)" in tokenizers_text(result)


def test_without_tokenizers_gigatoken_is_measured_alone(source, vocabulary, monkeypatch):
    monkeypatch.setattr("gristmill.lab.bench.tokenizers.engines.find_spec", lambda name: None)
    result = bench_tokenizers(str(source), TokenizerBenchOptions(tokenizer=vocabulary, runs=1))
    assert [method.name for method in result.methods] == ["gigatoken"]
    assert [one.name for one in result.skipped] == ["tokenizers"]


def test_one_file_has_no_unseen_half(source):
    result = bench_tokenizers(str(source / "windows.py"), TokenizerBenchOptions(runs=1))
    assert {speed.state for speed in result.speeds} == {State.COLD, State.WARM}
    assert " - " in tokenizers_text(result)
    ET.fromstring(tokenizers_svg(result))


def test_slices_contain_all_documents_in_order():
    sizes = [SLICE_BYTES // 3] * 7 + [3 * SLICE_BYTES, 1, 0, 5]
    offsets = np.cumsum([0, *sizes])
    cuts = list(document_slices(offsets))
    assert [number for first, end in cuts for number in range(first, end)] == list(range(len(sizes)))
    assert all(end == first + 1 or offsets[end - 1] - offsets[first] < SLICE_BYTES for first, end in cuts)


def test_build_on_a_gpu_is_a_method_only_on_request(codebert, monkeypatch):
    (method,) = (method for method in METHODS if method.needs_gpu)
    assert method not in select_methods([])
    assert method in select_methods([], "cuda")
    assert select_methods([method.name]) == [method]
    monkeypatch.setattr("gristmill.tokenizers.cuda.availability.find_spec", lambda name: None)
    assert "pip install 'gristmill[gpu]'" in str(skip_reason(method, codebert))


def test_packed_corpus_unpacks_to_the_same_documents(source, tmp_path):
    script = [sys.executable, str(ROOT / "benchmarks/gpu/corpus.py")]
    subprocess.run([*script, "pack", str(source), str(tmp_path / "packed")], check=True, capture_output=True)
    subprocess.run(
        [*script, "unpack", str(tmp_path / "packed"), str(tmp_path / "files")], check=True, capture_output=True
    )
    original, unpacked = (
        Documents.read(gather(str(root), load_tokenizer(), Progress()).files, Progress())
        for root in (source, tmp_path / "files")
    )
    assert original.texts == unpacked.texts

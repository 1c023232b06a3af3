"""Compare the GPU tokenizer with the reference on a real GPU, with large inputs.

The tests are skipped without a GPU. To run them without pytest, either all or by name:

    PYTHONPATH=tests python tests/tokenizers/cuda/test_on_gpu.py [test_threads_share_one_tokenizer …]
"""

import sys
import tempfile
import threading
import time
import traceback
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import numpy as np

from gristmill import Config, Progress, RunConfig, build, load_tokenizer
from gristmill.core.errors import TokenizerError
from gristmill.tokenizers.cuda.character_classes import stable_code_points
from gristmill.tokenizers.cuda.cuda_tokenizer import CudaTokenizer
from support import gpu_texts
from support.builds import everything, in_a_process
from support.gpu_texts import (
    REVEALING,
    SCALARS,
    TRAINED,
    assert_same,
    code_like,
    definition_named,
    ids_by_cpu,
    ids_by_reference,
    joined,
    random_letters,
)
from support.trained_tokenizers import byte_level_with

with suppress(ModuleNotFoundError):
    import pytest

    pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

MB = 1_000_000
AT_ONCE = 100_000
"""Number of documents that the reference encodes in one call. More would take gigabytes of memory."""
SECONDS_TO_LOAD = 60
SLOTS_FOR_ALL = 1 << 22
"""Number of entries of a word table that has space for all words of a test.

If the table is full, the CPU encodes some documents. The order of the GPU's threads decides which documents.
"""


@cache
def on_card(name):
    """Load each tokenizer once. Its word table keeps the words of earlier tests."""
    return load_tokenizer(name, device="cuda") if name == "codebert" else CudaTokenizer.load(definition_named(name))


def over_small_chunks(definition, **options):
    from gristmill.tokenizers.cuda.cupy_gpu import CupyGpu

    return CudaTokenizer.with_gpu(definition, CupyGpu, chunk_bytes=1 << 20, **options)


def on_small_chunks(name, **options):
    return over_small_chunks(definition_named(name), **options)


def expected_of(definition, documents):
    slices = (documents[at : at + AT_ONCE] for at in range(0, len(documents), AT_ONCE))
    return [ids for some in slices for ids in ids_by_reference(definition, some)]


def assert_reference(tokenizer, documents, *, num_on_cpu=None):
    batch = tokenizer.encode_batch(documents)
    assert_same(batch, documents, expected_of(tokenizer.definition, documents))
    if num_on_cpu is not None:
        assert batch.num_on_cpu == num_on_cpu, f"the CPU encoded {batch.num_on_cpu} documents, expected {num_on_cpu}"


def assert_for_each_pattern(documents, *, num_on_cpu=None):
    for name in (*TRAINED, *REVEALING):
        assert_reference(on_card(name), documents, num_on_cpu=num_on_cpu)


def assert_revealed(documents, num_documents):
    """Encode `num_documents` at a time with an empty word table.

    If the table were full, the CPU would encode some documents.
    """
    for tokenizer in map(on_card, REVEALING):
        tokenizer.forget()
        for at in range(0, len(documents), num_documents):
            assert_reference(tokenizer, documents[at : at + num_documents], num_on_cpu=0)
            tokenizer.forget()


def test_every_scalar_in_context():
    assert_revealed(gpu_texts.scalars_in_context(), 40_000)


def test_adjacent_scalars():
    lines = ["".join(f"{one}{one} {one}'{one}" for one in SCALARS[at : at + 61]) for at in range(0, len(SCALARS), 61)]
    assert_revealed([line.encode() for line in lines], 2000)


def test_apostrophes_and_contractions():
    assert_for_each_pattern([*gpu_texts.contractions_at_edges(), *gpu_texts.apostrophes()], num_on_cpu=0)


def test_runs_across_groups_and_tiles():
    assert_for_each_pattern(gpu_texts.runs_of([*range(30, 35), *range(62, 67), *range(8190, 8195)]))
    assert_for_each_pattern(gpu_texts.runs_end_to_end(600))


def test_runs_beyond_the_search_limit():
    assert_for_each_pattern(gpu_texts.runs_of([4063, 4064, *range(4094, 4099), 4128, 5000, 20_000]))


def test_documents_that_end_near_edges_of_groups_and_tiles():
    assert_for_each_pattern([*gpu_texts.documents_around(32), *gpu_texts.documents_around(8192)], num_on_cpu=0)


def test_documents_that_end_near_edges_of_chunks():
    for name in (*TRAINED, *REVEALING):
        assert_reference(on_small_chunks(name), gpu_texts.documents_around(1 << 20))


def test_empty_documents():
    for documents in ([], [b""], [b""] * 5000, [b"", b"x", b"", b"", b"it's", b""], [b"x", *[b""] * 9000, b"y"]):
        assert_for_each_pattern(documents, num_on_cpu=0)


def test_more_documents_than_fit_into_a_chunk():
    documents = [b"ab"[: number % 3] for number in range(3 * MB // 2)]
    assert_reference(on_card("cl100k"), documents, num_on_cpu=0)


def test_a_document_of_100_megabytes_is_cut_and_encoded_on_the_gpu():
    document = b"".join(code_like(10 * MB, seed) for seed in range(10))
    for name in ("codebert", "cl100k"):
        batch = on_card(name).encode_batch([b"x", document, b"y"])
        assert_same(batch, [b"x", document, b"y"], ids_by_cpu(definition_named(name), [b"x", document, b"y"]))
        assert batch.num_on_cpu == 0


def test_a_large_document_without_a_safe_cut_is_left_to_the_cpu():
    documents = [b"before", code_like(20 * MB).replace(b"\n", b" "), b"after"]
    assert_reference(on_card("codebert"), documents, num_on_cpu=1)


def test_words_of_ten_megabytes():
    words = [random_letters(10 * MB), b"-" * 10 * MB, "é".encode() * 5 * MB, "字".encode() * 3 * MB, b"ab" * 5 * MB]
    for word in words:
        assert_reference(on_card("codebert"), [b"x ", word, b" y"], num_on_cpu=0)


def test_a_word_of_ten_megabytes_like_english():
    assert_reference(on_card("codebert"), [b"x ", gpu_texts.english_without_spaces(10 * MB), b" y"])


def test_words_of_every_length():
    letters = random_letters(1 * MB)
    words = [letters[length : 2 * length] for length in range(1, 1200)]
    runs = [run for length in (700, 5000, 100_000) for run in gpu_texts.runs_that_are_one_word(length)]
    assert_for_each_pattern([*words, *(b" " + word for word in words)], num_on_cpu=0)
    assert_reference(on_card("codebert"), runs, num_on_cpu=0)
    assert_for_each_pattern([*runs, *gpu_texts.periodic(5000), random_letters(5000, alphabet=b"ab")])


def error_message(tokenizer, documents):
    """Return the error message, or None if all documents were encoded."""
    try:
        tokenizer.encode_batch(documents)
    except TokenizerError as error:
        return str(error)
    return None


def test_invalid_utf8_is_an_error_with_the_document_number():
    for name in TRAINED:
        for kind in gpu_texts.NOT_UTF8:
            for documents in gpu_texts.around_not_utf8(kind):
                assert str(error_message(on_card(name), documents)).startswith("document 2: "), (name, kind)


def test_random_bytes():
    generator = np.random.default_rng(0)
    documents = [generator.bytes(int(size)) for size in generator.integers(1, 300, 20_000)]
    valid = [document for document in documents if gpu_texts.is_utf8(document)]
    for number, document in enumerate(documents[:300]):
        if not gpu_texts.is_utf8(document):
            around = [*valid, document, *documents[number : number + 50]]
            assert str(error_message(on_card("codebert"), around)).startswith(f"document {len(valid)}: ")
    for name in TRAINED:
        assert_reference(on_card(name), valid)


def test_a_full_word_table_is_cleared():
    documents = [
        b" ".join(random_letters(12, 1000 * document + word) for word in range(300)) for document in range(400)
    ]
    for name in ("codebert", "cl100k"):
        tokenizer = on_small_chunks(name, num_slots=1024)
        assert_reference(tokenizer, documents)
        assert_reference(tokenizer, [b"few new words"] * 1000)
        assert tokenizer._engine.num_clears > 0


def test_a_cleared_table_has_no_ids_of_earlier_words():
    tokenizer = on_small_chunks("codebert", num_slots=1024)
    for turn in range(60):
        assert_reference(
            tokenizer, [gpu_texts.words_of_one_id(tokenizer.definition, 150, 150 * turn)] * 20, num_on_cpu=0
        )
    assert tokenizer._engine.num_clears > 0


def test_known_and_forgotten_words_give_the_same_ids():
    tokenizer, documents = on_small_chunks("codebert"), [code_like(50_000, seed) for seed in range(100)]
    assert_reference(tokenizer, documents, num_on_cpu=0)
    assert_reference(tokenizer, documents, num_on_cpu=0)
    tokenizer.forget()
    assert_reference(tokenizer, documents, num_on_cpu=0)


def test_ids_above_65_535():
    definition = gpu_texts.with_ids_above(definition_named("gpt2"), 1 << 16)
    tokenizer = CudaTokenizer.load(definition)
    documents = [*gpu_texts.apostrophes(), *(code_like(10_000, seed) for seed in range(50)), random_letters(100_000)]
    assert tokenizer.encode_batch(documents).ids.dtype == np.uint32
    assert_reference(tokenizer, documents, num_on_cpu=0)


def test_merges_out_of_order():
    for name in TRAINED:
        tokenizer = CudaTokenizer.load(gpu_texts.with_merges_out_of_order(definition_named(name)), chunk_bytes=1 << 20)
        assert_reference(tokenizer, [random_letters(length) for length in range(1, 400)])
        assert_reference(tokenizer, [code_like(10_000, seed) for seed in range(50)])
        assert_reference(tokenizer, [random_letters(20_000), gpu_texts.english_without_spaces(20_000)])


def test_words_that_are_one_token_without_a_merge():
    sizes = np.random.default_rng(0).integers(3, 40, 2000).tolist()
    chosen = [random_letters(size, seed) for seed, size in enumerate(sizes)]
    for name in TRAINED:
        words = sorted({*gpu_texts.exceptional_words(), *chosen})
        definition = gpu_texts.with_exceptions(definition_named(name), words)
        tokenizer = CudaTokenizer.load(definition, chunk_bytes=1 << 20)
        for _ in range(2):  # new words, then known ones
            assert_reference(tokenizer, gpu_texts.around_exceptions(), num_on_cpu=0)
            assert_reference(tokenizer, [b" ".join(words), *words, *(word + b"x" for word in words)], num_on_cpu=0)


def test_a_token_that_only_a_later_merge_produces():
    definition = gpu_texts.definition_of(byte_level_with([("aa", "a"), ("a", "a")]))
    assert_reference(CudaTokenizer.load(definition, chunk_bytes=1 << 20), [b"a" * length for length in range(1, 3000)])


def test_long_words_under_random_merges():
    for seed in range(40):
        definition = gpu_texts.with_random_merges(seed, is_shuffled=seed % 2 == 1)
        tokenizer = CudaTokenizer.load(definition, chunk_bytes=1 << 20)
        assert_reference(tokenizer, gpu_texts.words_of_two_letters(seed, num_words=200, longest=4000))


def test_only_text_that_nfc_may_change_is_left_to_the_cpu():
    stable = frozenset(map(chr, stable_code_points().tolist()))
    documents, _ = gpu_texts.changed_by_nfc()
    documents += [*gpu_texts.scalars_in_context(step=31), *(code_like(10_000, seed) for seed in range(50))]
    num_unstable = sum(not stable.issuperset(document.decode()) for document in documents)
    for name in REVEALING:
        tokenizer = over_small_chunks(gpu_texts.with_nfc(definition_named(name)), num_slots=SLOTS_FOR_ALL)
        assert_reference(tokenizer, documents, num_on_cpu=num_unstable)


def test_kernels_compiled_for_an_older_gpu():
    for name in TRAINED:
        tokenizer = CudaTokenizer.load(definition_named(name), chunk_bytes=1 << 20, architecture="80")
        assert_reference(tokenizer, [*gpu_texts.apostrophes(), *gpu_texts.documents_around(8192)], num_on_cpu=0)
        assert_reference(tokenizer, [random_letters(length) for length in range(1, 600)], num_on_cpu=0)


def test_text_in_pinned_and_other_memory():
    documents = [code_like(size, size) for size in range(0, 100_000, 777)]
    expected, (text, offsets) = expected_of(definition_named("codebert"), documents), joined(documents)
    tokenizer = on_card("codebert")
    pinned = tokenizer.pinned(len(text))
    pinned[:] = text
    pinned_later = text.copy()
    tokenizer.pin(pinned_later)
    try:
        for memory in (text, pinned, pinned_later):
            assert_same(tokenizer.encode_joined(memory, offsets), documents, expected)
    finally:
        tokenizer.unpin(pinned_later)


def test_a_tokenizer_loaded_from_a_folder():
    with tempfile.TemporaryDirectory() as folder:
        definition_named("qwen2").write(Path(folder))
        assert_reference(load_tokenizer(folder, device="cuda"), [b"def f(x): return x + 12345\n"] * 3, num_on_cpu=0)


def test_encode_many_equals_encode_for_each_text():
    tokenizer, documents = on_card("codebert"), [code_like(size, size) for size in range(0, 5000, 37)]
    for found, document in zip(tokenizer.encode_many(documents, with_starts=True), documents, strict=True):
        one = tokenizer.encode(document, with_starts=True)
        assert all(np.array_equal(*columns) for columns in zip(found[:3], one[:3], strict=True))


def test_two_tokenizers_alternate():
    documents = [[code_like(30_000, 100 * turn + seed) for seed in range(50)] for turn in range(3)]
    for some in documents:
        for name in ("codebert", "cl100k"):
            assert_reference(on_card(name), some, num_on_cpu=0)


def test_threads_share_one_tokenizer():
    _assert_in_threads([on_small_chunks("codebert")] * 4)


def test_two_tokenizers_in_two_threads():
    _assert_in_threads([on_small_chunks("codebert"), on_small_chunks("codebert"), on_small_chunks("cl100k")])


def _assert_in_threads(tokenizers):
    failures = []

    def encode(tokenizer, first_seed):
        try:
            for turn in range(5):
                documents = [code_like(40_000, first_seed + 100 * turn + seed) for seed in range(100)]
                batch = tokenizer.encode_batch(documents)
                assert_same(batch, documents, ids_by_cpu(tokenizer.definition, documents))
        except BaseException:  # noqa: BLE001 - the error is reported below
            failures.append(traceback.format_exc())

    threads = [threading.Thread(target=encode, args=(one, 1000 * at)) for at, one in enumerate(tokenizers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_ids_in_gpu_memory_are_torch_tensors_without_a_copy():
    import torch

    tokenizer, documents = on_card("codebert"), [code_like(5000, seed) for seed in range(200)]
    batch = tokenizer.encode_batch(documents, to="card")
    ids, offsets = torch.from_dlpack(batch.ids), torch.from_dlpack(batch.offsets)
    assert (ids.dtype, offsets.dtype, ids.is_cuda, offsets.is_cuda) == (torch.uint16, torch.int64, True, True)
    assert ids.data_ptr() == batch.ids.data.ptr
    assert_same(_fetched(batch), documents, expected_of(definition_named("codebert"), documents))


def test_ids_in_gpu_memory_include_those_from_the_cpu():
    definition = gpu_texts.with_nfc(definition_named("qwen2"))
    documents, num_changed = gpu_texts.changed_by_nfc()
    batch = CudaTokenizer.load(definition).encode_batch(documents, to="card")
    assert_same(_fetched(batch), documents, expected_of(definition, documents))
    assert batch.num_on_cpu == num_changed


def test_ids_in_gpu_memory_outgrow_the_initial_buffer():
    documents = [random_letters(300_000, seed, b"0123456789!?") for seed in range(10)]
    batch = on_card("qwen2").encode_batch(documents, to="card")
    assert_same(_fetched(batch), documents, expected_of(definition_named("qwen2"), documents))


def test_ids_that_are_still_read_are_not_overwritten():
    """Free ids while a busy stream still has to copy them, so that the next call may reuse their memory."""
    import cupy

    tokenizer, documents = on_small_chunks("codebert"), [[code_like(400_000, seed)] for seed in range(8)]
    copies = []
    for some in documents:
        ids = tokenizer.encode_batch(some, to="card").ids
        cupy.ones((4096, 4096)).dot(cupy.ones((4096, 4096)))
        copies.append(ids.copy())
        del ids
    for found, some in zip(copies, documents, strict=True):
        assert np.array_equal(found.get(), ids_by_cpu(definition_named("codebert"), some)[0])


def _fetched(batch):
    return batch._replace(ids=batch.ids.get(), offsets=batch.offsets.get())


def test_gpu_memory_does_not_grow_with_the_input():
    import cupy

    tokenizer = on_card("codebert")
    documents = [code_like(50_000, seed) for seed in range(2000)]
    text, offsets = joined(documents)
    expected = np.concatenate(ids_by_cpu(definition_named("codebert"), documents))
    free = []
    for _ in range(20):
        batch = tokenizer.encode_joined(text, offsets)
        assert np.array_equal(batch.ids, expected)
        del batch
        free.append(cupy.cuda.runtime.memGetInfo()[0])
    assert free[-1] >= free[1], f"GPU memory grows: free bytes after each 100 MB are {free}"


def test_a_build_gives_the_same_bytes_with_and_without_a_gpu():
    with tempfile.TemporaryDirectory() as folder:
        source, on_cpu, on_gpu = Path(folder) / "source", Path(folder) / "cpu", Path(folder) / "gpu"
        _write_source(source)
        in_a_process(_build, source, on_cpu, "cpu")
        facts = in_a_process(_build, source, on_gpu, "cuda")
        assert everything(on_gpu) == everything(on_cpu)
        assert facts.trouble is None, facts.trouble
        assert facts.documents > 0


def _write_source(root):
    """Write files of many sizes, a file in Latin-1, and a file with a single line."""
    root.mkdir()
    for number in range(400):
        (root / f"module_{number}.py").write_bytes(code_like(100 * number, number))
    (root / "latin.py").write_bytes("x = 'déjà vu'\n".encode("latin-1") * 50)
    (root / "one_line.py").write_bytes(b"x = [" + b"1, " * 200 + b"]\n")


class _OnceReady(Progress):
    """Delay step 1 until the GPU process listens, because step 1 could otherwise finish earlier."""

    @contextmanager
    def phase(self, name, total=0, unit="files"):
        deadline = time.monotonic() + SECONDS_TO_LOAD
        while name == "prepare" and "@gristmill-" not in Path("/proc/net/unix").read_text():
            assert time.monotonic() < deadline, "the GPU process does not listen"
            time.sleep(0.05)
        with super().phase(name, total, unit) as step:
            yield step


def _build(source, out, device):
    run = RunConfig(workers=2, device=device, batch_bytes=100_000)
    progress = _OnceReady() if device == "cuda" else Progress()
    return build(Config(sources=[str(source)], out=str(out), run=run), progress).run.gpu


def main(names):
    tests = {name: test for name, test in globals().items() if name.startswith("test_")}
    num_failed = 0
    for name in names or tests:
        started_at = time.monotonic()
        try:
            tests[name]()
        except Exception:  # noqa: BLE001 - the other tests still run
            num_failed += 1
            print(f"{name} FAILED\n{traceback.format_exc()}", flush=True)  # noqa: T201
        else:
            print(f"{name} ok, {time.monotonic() - started_at:.1f} s", flush=True)  # noqa: T201
    return num_failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

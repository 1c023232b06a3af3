"""Test the data files of the package: CodeBERT's vocabulary and the sources of the GPU kernels.

The vocabulary is compared with digests and known ids of microsoft/codebert-base.
"""

import hashlib
import json
import subprocess
import sys
import zipfile
from importlib import resources

import pytest
import zstandard

from gristmill.tokenizers.cuda.character_classes import CLASSES_FILE
from gristmill.tokenizers.locate import BUNDLED_FILE
from support.source_trees import ROOT

VOCAB_SHA256 = "06b4d46c8e752d410213d9548eb27a54db70fda0319b6271fb8d59dead5e1cab"
MERGES_SHA256 = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"


@pytest.fixture(scope="module")
def packed():
    return resources.files("gristmill.tokenizers").joinpath(BUNDLED_FILE).read_bytes()


def test_the_bundled_file_is_under_a_megabyte(packed):
    assert len(packed) < 1_000_000


def test_vocabulary_and_merges_are_codeberts(packed):
    model = json.loads(zstandard.decompress(packed))["model"]
    assert len(model["vocab"]) == 50_265
    assert list(model["vocab"].values()) == list(range(50_265))
    assert hashlib.sha256(json.dumps(model["vocab"], ensure_ascii=False).encode()).hexdigest() == VOCAB_SHA256
    merges = "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in model["merges"])
    assert hashlib.sha256(merges.encode()).hexdigest() == MERGES_SHA256


def test_codebert_gives_known_ids(codebert):
    text = b"def max(a,b): if a>b: return a else return b"
    expected = "0 9232 19220 1640 102 6 428 3256 114 10 15698 428 35 671 10 1493 671 741 2"
    template = codebert.definition.template
    assert [*template.prefix, *codebert.encode(text).ids.tolist(), *template.suffix] == list(map(int, expected.split()))
    assert codebert.encode(b" the").ids.tolist() == [5]
    special = {token.content: token.id for token in codebert.definition.special_tokens}
    assert special == {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 50264}


def test_no_space_is_prepended(codebert):
    assert codebert.encode(b"the").ids.tolist() != [5]
    assert codebert.decode(codebert.encode(b"the").ids) == b"the"


def test_a_wheel_contains_the_kernels(tmp_path):
    """Build a wheel without network access. This needs hatchling, which is in the extra `test`."""
    pytest.importorskip("hatchling")
    code = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, check=True)
    [wheel] = tmp_path.glob("*.whl")
    package = ROOT / "src/gristmill/tokenizers/cuda"
    expected = {*package.glob("kernels/*.cu"), *package.glob("kernels/*.cuh"), package / CLASSES_FILE}
    assert len(expected) > 10
    assert {str(path.relative_to(ROOT / "src")) for path in expected} <= set(zipfile.ZipFile(wheel).namelist())

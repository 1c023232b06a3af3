"""Imports point down the layers and never sideways between stages; importing does nothing."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import gristmill

ROOT = Path(gristmill.__file__).parent

# Lower number: further down. A module may import from its own room and from lower layers.
LAYERS = {
    "errors": 0,
    "records": 0,
    "naming": 0,
    "loading": 0,
    "plainfile": 0,
    "columns": 3,
    "text": 1,
    "wildmatch": 0,
    "validating": 1,
    "sections": 2,
    "config": 3,
    "configuring": 4,
    "options": 4,
    "drawing": 1,
    "layout": 1,
    "filestable": 1,
    "manifest": 2,
    "progress": 1,
    "workspace": 4,
    "intake": 4,
    "cleaning": 4,
    "tokenizing": 4,
    "grouping": 4,
    "shaping": 4,
    "runners": 4,
    "formats": 5,
    "cards": 6,
    "feeding": 6,
    "steps": 6,
    "failing": 7,
    "varying": 7,
    "flow": 8,
    "dataset": 7,
    "summary": 7,
    "pipeline": 9,
    "byhand": 10,
    "rebuilding": 10,
    "checking": 10,
    "explaining": 10,
    "looking": 8,
    "reporting": 11,
    "viewing": 11,
    "differing": 10,
    "planning": 10,
    "training": 10,
    "exporting": 10,
    "comparing": 11,
    "pushing": 11,
    "vocabulary": 12,  # above comparing, which knows how to read a dataset's text back
    "bench": 12,
    "commands": 13,
    "cli": 14,
    "__main__": 15,
}
MODULES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))


def imports_of(path):
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("gristmill"):
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("gristmill"))


@pytest.mark.parametrize("path", [path for path in MODULES if path.name != "__init__.py"], ids=str)
def test_imports_point_down(path):
    room = path.parts[0].removesuffix(".py")
    for module in imports_of(path):
        target = ([*module.split("."), ""])[1]
        if not target or target == room:
            continue
        assert LAYERS[target] < LAYERS[room], f"{path} imports {module}"


def test_only_what_trains_knows_of_torch():
    """Each room that may import it; the rest works where it is not installed."""
    for path in MODULES:
        tree = ast.parse((ROOT / path).read_text())
        names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        assert path.parts[0] in {"feeding", "training"} or "torch" not in {name.split(".")[0] for name in names}, path


def test_orders_and_masks_need_no_torch():
    modules = ", ".join(f"gristmill.feeding.{name}" for name in ("batches", "masking", "order", "vocabulary"))
    code = f"import sys, {modules}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_public_api_is_what_it_says():
    sections = ["Duplicates", "Licenses", "Output", "Rewrite", "Rules", "Run", "Sampling", "Scan", "Secrets", "Split"]
    sections += ["Tables", "Tokenizer", "Train", "Variants", "Window"]
    classes = {"Config", *(f"{section}Config" for section in sections)}
    errors = {"Config", "Dataset", "Device", "Gristmill", "Input", "MissingExtra", "NotOnGpu", "Output", "Tokenizer"}
    errors |= {"Training"}
    functions = {"build", "check", "compare", "diff", "explain", "export", "load_tokenizer", "open_dataset", "plan"}
    functions |= {"compare_tokenizers", "push", "report", "train", "train_tokenizer"}
    expected = classes | functions | {f"{name}Error" for name in errors}
    expected |= {"Batch", "Manifest", "Progress", "__version__"}
    assert set(gristmill.__all__) == expected
    for name in gristmill.__all__:
        assert getattr(gristmill, name) is not None


@pytest.mark.parametrize("module", ["gristmill", "gristmill.cli"])
def test_importing_loads_nothing_heavy(module):
    code = f"import sys, {module}; print(*sorted(sys.modules))"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    heavy = {
        "msgspec",
        "numpy",
        "gigatoken",
        "tokenizers",
        "transformers",
        "datasets",
        "pyarrow",
        "awkward",
        "cupy",
        "torch",
        "zstandard",
        "re2",
        "rensa",
        "ray",
        "fsspec",
        "s3fs",
        "huggingface_hub",
    }
    assert not loaded & heavy


def test_a_build_never_loads_awkward(tmp_path):
    code = (
        "import sys, gristmill\n"
        "gristmill.build(gristmill.Config(sources=[sys.argv[1]], out=sys.argv[2]))\n"
        "assert not {'awkward', 'tokenizers', 'pandas', 'pyarrow'} & set(sys.modules)"
    )
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.py").write_text("x = 1\n")
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "src"), str(tmp_path / "out")], check=True)


def test_every_module_opens_with_what_it_does():
    for path in MODULES:
        if path.name == "__init__.py" and path.parent != Path():
            continue
        assert ast.get_docstring(ast.parse((ROOT / path).read_text())), path

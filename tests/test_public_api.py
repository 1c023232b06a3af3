"""Tests of the public API and of the modules that `import gristmill` loads. `lint-imports` checks the layers."""

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import gristmill
from gristmill import Config, SplitConfig, build
from support.made_code import made_module

ROOT = Path(gristmill.__file__).parent

MODULES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))


def test_orders_and_masks_need_no_torch():
    modules = ", ".join(f"gristmill.dataset.{name}" for name in ("batches", "masking", "token_edges"))
    code = f"import sys, {modules}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_are_listed_and_documented():
    sections = [
        "Duplicates",
        "Fim",
        "Licenses",
        "Output",
        "Rewrite",
        "Rules",
        "Run",
        "Sampling",
        "Scan",
        "Secrets",
        "Split",
    ]
    sections += ["Tables", "Tokenizer", "Train", "Variants", "Window"]
    classes = {"Config", *(f"{section}Config" for section in sections)}
    errors = {"Config", "Dataset", "Device", "Gristmill", "Input", "MissingExtra", "NotOnGpu", "Output", "Tokenizer"}
    errors |= {"Training"}
    functions = {"build", "check", "compare", "diff", "explain", "export", "load_tokenizer", "open_dataset", "plan"}
    functions |= {"compare_tokenizers", "export_for", "push", "report", "train", "train_tokenizer"}
    expected = classes | functions | {f"{name}Error" for name in errors}
    expected |= {"Batch", "Manifest", "PlanOptions", "Progress", "__version__"}
    assert set(gristmill.__all__) == expected
    assert set(dir(gristmill)) == expected
    for name in expected - {"__version__"}:
        public = getattr(gristmill, name)
        assert public.__doc__, f"{name} has no docstring"
        assert not public.__doc__.startswith(f"{name}("), f"{name} has only the docstring that NamedTuple generates"


def examples(public):
    """Yield the indented code in a docstring."""
    for match in re.finditer(r"(?:^    .*\n?)+", inspect.getdoc(public) or "", re.MULTILINE):
        yield textwrap.dedent(match[0])


def test_examples_of_functions_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-repo/src").mkdir(parents=True)
    for number in range(12):
        (tmp_path / f"my-repo/src/part_{number}.py").write_text(made_module(f"part_{number}.py", 4_000))
    (tmp_path / "my-repo/src/main.py").write_text(made_module("main.py", 4_000))
    build(Config(sources=["my-repo"], out="dataset-2", split=SplitConfig(seed=2)))
    names = [name for name in gristmill.__all__ if inspect.isfunction(getattr(gristmill, name))]
    last = ["compare_tokenizers"]  # reads the tokenizer that train_tokenizer writes
    for name in ["build", *(name for name in names if name not in {"build", *last}), *last]:
        (code,) = examples(getattr(gristmill, name))
        if name in {"compare", "push", "train"}:  # these take minutes or need the Hub
            (call,) = [one for one in ast.walk(ast.parse(code)) if isinstance(one, ast.Call) and called(one) == name]
            inspect.signature(getattr(gristmill, name)).bind(
                *call.args, **{one.arg: one.value for one in call.keywords}
            )
        else:
            exec(code, {"gristmill": gristmill})


def called(call):
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


@pytest.mark.parametrize("module", ["gristmill", "gristmill.cli.main"])
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


def test_build_does_not_load_heavy_libraries(tmp_path):
    code = (
        "import sys, gristmill\n"
        "gristmill.build(gristmill.Config(sources=[sys.argv[1]], out=sys.argv[2]))\n"
        "assert not {'awkward', 'tokenizers', 'pandas', 'pyarrow'} & set(sys.modules)"
    )
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.py").write_text("x = 1\n")
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "src"), str(tmp_path / "out")], check=True)


def test_every_module_has_a_docstring():
    for path in MODULES:
        assert ast.get_docstring(ast.parse((ROOT / path).read_text())), path

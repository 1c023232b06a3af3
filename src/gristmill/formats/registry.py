"""Formats by name. Each is loaded when it is first asked for: most bring a library of their own."""

import importlib
from pathlib import Path

from gristmill.formats.format import Format
from gristmill.records import FORMATS

_HOMES = {
    "jsonl": ("jsonlines", "JSONL"),
    "parquet": ("parquet", "PARQUET"),
    "arrow": ("arrow", "ARROW"),
    "npy": ("token_streams", "NPY"),
    "bin": ("token_streams", "BIN"),
    "megatron": ("megatron", "MEGATRON"),
    "mds": ("mds", "MDS"),
    "litdata": ("litdata", "LITDATA"),
}
assert tuple(_HOMES) == FORMATS


def format_named(name: str) -> Format:
    module, constant = _HOMES[name]
    found: Format = getattr(importlib.import_module(f"gristmill.formats.{module}"), constant)
    return found


def folder_of(dataset: Path, name: str) -> Path:
    """Where a format lies in a dataset's folder."""
    return dataset if name == "jsonl" else dataset / name


def name_in(dataset_format: str, file: str) -> str:
    """A format's file by its name in the dataset's folder."""
    return file if dataset_format == "jsonl" else f"{dataset_format}/{file}"

"""A rebuild reads only files that have changed."""

import os
import random
import shutil

import grimp
import pytest

from gristmill import RunConfig, build
from gristmill.checks.rebuild import compare_with_clean_build
from gristmill.config.config import Config
from gristmill.core.records import DropReason
from gristmill.pipeline import prepare as preparing
from gristmill.pipeline.cache import STAMPS
from gristmill.pipeline.keys import BUILDING_PACKAGES
from gristmill.sources import trees
from support.builds import everything
from support.environment import without_privileges


@pytest.fixture
def reads(monkeypatch):
    """Paths of the files that this process reads. Files need no minimum age to be recognized as unchanged."""
    monkeypatch.setattr(trees, "NANOSECONDS_TO_SETTLE", 0)
    paths_read = []

    def record_read(file, max_bytes, folder):
        paths_read.append(file.path)
        return read_bytes(file, max_bytes, folder)

    read_bytes = preparing.read_bytes
    monkeypatch.setattr(preparing, "read_bytes", record_read)
    return paths_read


def make(source, out, batch_bytes=20_000):
    return build(Config(sources=[str(source)], out=str(out), run=RunConfig(workers=1, batch_bytes=batch_bytes)))


@pytest.fixture
def source(tree):
    return tree({f"{number % 5}/f{number}.py": f"value_{number} = {number}\n" * (number + 3) for number in range(60)})


def paths_read_by_build(reads, source, out):
    reads.clear()
    make(source, out)
    return sorted(reads)


def test_only_changed_files_are_read(source, tmp_path, reads):
    out = tmp_path / "out"
    assert len(paths_read_by_build(reads, source, out)) == 60
    before = everything(out)[0]
    assert paths_read_by_build(reads, source, out) == []
    assert everything(out)[0] == before
    (source / "3/f3.py").write_text("changed = 1\n")
    (source / "3/new.py").write_text("new = 1\n" * 9)
    os.rename(source / "4/f4.py", source / "4/f4_renamed.py")
    assert paths_read_by_build(reads, source, out) == ["3/f3.py", "3/new.py", "4/f4_renamed.py"]
    assert compare_with_clean_build(out) == []


def test_change_that_keeps_size_and_time_is_detected(source, tmp_path, reads):
    out, path = tmp_path / "out", source / "2/f12.py"
    make(source, out)
    before = path.stat()
    path.write_text(path.read_text().replace("value_12", "VALUE_12"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert paths_read_by_build(reads, source, out) == ["2/f12.py"]
    assert compare_with_clean_build(out) == []


def test_recently_changed_files_are_read_again(source, tmp_path, reads, monkeypatch):
    monkeypatch.setattr(trees, "NANOSECONDS_TO_SETTLE", 10**12)
    make(source, tmp_path / "out")
    assert len(paths_read_by_build(reads, source, tmp_path / "out")) == 60


def test_copy_of_the_source_is_read_but_its_parts_are_reused(source, tmp_path, reads):
    out = tmp_path / "out"
    make(source, out)
    parts = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out.work/prepared").iterdir()}
    shutil.copytree(source, tmp_path / "elsewhere" / source.name)
    assert len(paths_read_by_build(reads, tmp_path / "elsewhere" / source.name, out)) == 60
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out.work/prepared").iterdir()} == parts


def test_missing_or_damaged_parts_are_prepared_again(source, tmp_path, reads):
    out = tmp_path / "out"
    make(source, out, 3_000)
    before = everything(out)[0]
    first, *_, last = sorted((tmp_path / "out.work/prepared").iterdir())
    first.unlink()
    last.write_bytes(last.read_bytes()[:-7])
    reads.clear()
    make(source, out, 3_000)
    assert 0 < len(reads) < 60
    assert everything(out)[0] == before


def test_damaged_stamps_are_ignored(source, tmp_path, reads):
    out = tmp_path / "out"
    make(source, out)
    path = tmp_path / "out.work" / STAMPS
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    assert len(paths_read_by_build(reads, source, out)) == 60


def test_unreadable_file_is_read_again_in_the_next_build(source, tmp_path, reads):
    out, path = tmp_path / "out", source / "1/f1.py"
    path.chmod(0)
    with without_privileges():
        assert make(source, out).counts.dropped_by_reason == {DropReason.UNREADABLE: 1}
        assert "1/f1.py" in paths_read_by_build(reads, source, out)


@pytest.mark.parametrize("seed", range(6))
def test_build_after_random_edits_equals_a_clean_build(source, tmp_path, reads, seed):
    rng = random.Random(seed)
    out = tmp_path / "out"
    make(source, out)
    for _ in range(3):
        for _ in range(rng.randrange(1, 6)):
            files = sorted(path for path in source.rglob("*.py") if path.is_file())
            path = rng.choice(files)
            match rng.randrange(4):
                case 0:
                    path.unlink()
                case 1:
                    path.write_text(path.read_text() + f"more_{rng.random()} = 1\n")
                case 2:
                    os.replace(path, rng.choice(files))
                case _:
                    shutil.copy2(path, source / f"{rng.randrange(5)}/copy{rng.randrange(100)}.py")
        make(source, out, rng.choice([20_000, 3_000]))
        assert compare_with_clean_build(out) == []


def test_part_key_covers_all_code_that_makes_rows():
    """If the key lacked a package, a build would reuse parts made by older code of this package."""
    graph = grimp.build_graph("gristmill")
    steps = ("prepare", "decide", "vary", "shape", "pack")
    modules = {module for step in steps for module in graph.find_upstream_modules(f"gristmill.pipeline.{step}")}
    packages = {module.split(".")[1] for module in modules if "." in module}
    assert packages - {"runners"} == set(BUILDING_PACKAGES)

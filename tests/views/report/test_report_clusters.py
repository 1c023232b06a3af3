"""Diffs of near-duplicates are made from the source files, with secrets redacted as in the dataset."""

import json
import random
import shutil

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill import Config, InputError, OutputConfig, RunConfig, SecretsConfig, SplitConfig, WindowConfig, build
from gristmill.core.files_table import FileRow, read_file_rows
from gristmill.views.report import clusters
from gristmill.views.report.clusters import MAX_LINE_LENGTH, MAX_LINES, Duplicates
from gristmill.views.report.gather import gather
from support.source_trees import write_tree

TOKEN = "gh" + "p_Ab1Cd2Ef3Gh4Jk5Lm6Np7Qr8St9Uv0Wx1Yz2"
ACCESS_KEY = "AK" + "IAQ3WERTYUIOPASDFG"


def code(number, count=60):
    """Return Python code that is unique to the number."""
    rng = random.Random(number)
    names = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz_", k=9)) for _ in range(count)]
    return "".join(f"def {name}({name[:3]}):\n    return {name[:3]} + {rng.randrange(10**6)}\n" for name in names)


def private_key(number):
    rng = random.Random(number)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    lines = ["".join(rng.choices(alphabet, k=64)) for _ in range(12)]
    return "\n".join(["-----BEGIN RSA " + "PRIVATE KEY-----", *lines, "-----END RSA " + "PRIVATE KEY-----"])


def notebook(*cells):
    cells = [{"cell_type": "code", "source": cell, "outputs": [{"text": "SHOWN"}], "metadata": {}} for cell in cells]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


FILES = {
    "a/base.py": code(1),
    "a/twin.py": code(1).replace("return", "return 1 +", 1) + "x = 1\n",
    "a/other.py": f"y = 2\n{code(1)}",
    "b/copy.py": code(1),
    "keys/one.py": code(2, 160) + f'TOKEN = "{TOKEN}"\n',
    "keys/two.py": code(2, 160) + f'TOKEN = "{TOKEN}"\nkey = "{ACCESS_KEY}"\nPEM = """{private_key(1)}"""\n',
    "n/one.ipynb": notebook(code(3)),
    "n/two.ipynb": notebook(code(3), "added = 1"),
    "latin.py": ("# caf\xe9\n" + code(4)).encode("latin-1"),
    "latin2.py": ("# caf\xe9\n" + code(4) + "z = 1\n").encode("latin-1"),
}


def make(source, out, **sections):
    config = Config(sources=[str(source)], out=str(out), run=RunConfig(workers=1), **sections)
    build(config)
    return out


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("clusters")
    make(write_tree(root / "repo", FILES), root / "out")
    return root


@pytest.fixture(scope="module")
def facts(root):
    return gather(root / "out")


@pytest.fixture
def copied(root, tmp_path):
    """Copy the dataset, its work folder and its source. Tests pass the copied source explicitly."""
    for name in ("repo", "out", "out.work"):
        shutil.copytree(root / name, tmp_path / name)
    return tmp_path


def duplicates_by_name(facts):
    return {duplicate.name: duplicate for cluster in facts.clusters for duplicate in cluster.duplicates}


def test_clusters_are_sorted_by_size_and_have_every_duplicate(facts, root):
    assert [(cluster.kept, cluster.num_duplicates) for cluster in facts.clusters] == [
        ("repo/a/base.py", 3),
        ("repo/keys/one.py", 1),
        ("repo/latin.py", 1),
        ("repo/n/one.ipynb", 1),
    ]
    assert [duplicate.name for duplicate in facts.clusters[0].duplicates] == [
        "repo/a/other.py",
        "repo/a/twin.py",
        "repo/b/copy.py",
    ]
    assert (facts.num_clusters, facts.num_clustered) == (4, 10)
    dropped = [row for row in read_file_rows(root / "out" / "files.jsonl") if row.twin]
    assert {row.name: row.similarity for row in dropped} == {
        name: duplicate.similarity for name, duplicate in duplicates_by_name(facts).items()
    }


def test_diff_has_context_lines(facts):
    duplicate = duplicates_by_name(facts)["repo/a/twin.py"]
    kinds = [line.kind for line in duplicate.lines]
    assert kinds == ["same", "changed", "same", "same", "same", "skipped", "same", "same", "same", "added"]
    changed, skipped, added = duplicate.lines[1], duplicate.lines[5], duplicate.lines[-1]
    assert changed.left.replace("return", "return 1 +") == changed.right
    assert (changed.left_number, changed.right_number) == (2, 2)
    assert skipped.num_skipped == 120 - 8
    assert (added.right, added.right_number, added.left_number) == ("x = 1", 121, None)
    assert (duplicate.num_lines_left_out, duplicate.no_diff_reason, duplicate.is_exact) == (0, None, False)
    other = duplicates_by_name(facts)["repo/a/other.py"]
    assert [line.kind for line in other.lines] == ["added", "same", "same", "same", "skipped"]
    assert (other.lines[1].left_number, other.lines[1].right_number) == (1, 2)


def test_exact_duplicate_has_no_diff(facts):
    duplicate = duplicates_by_name(facts)["repo/b/copy.py"]
    assert (duplicate.is_exact, duplicate.similarity, duplicate.lines, duplicate.no_diff_reason) == (
        True,
        1.0,
        [],
        clusters.SAME_TEXT,
    )


def all_text(facts):
    lines = (line for duplicate in duplicates_by_name(facts).values() for line in duplicate.lines)
    return "\n".join(text for line in lines for text in (line.left, line.right))


def test_secrets_in_sources_are_redacted(facts):
    added = [line.right for line in duplicates_by_name(facts)["repo/keys/two.py"].lines if line.kind == "added"]
    assert added[0] == 'key = "<SECRET:aws-access-key>"'
    assert added[1].startswith('PEM = """')
    assert "<SECRET:private-key>" in "\n".join(added)
    for secret in (TOKEN, ACCESS_KEY, *private_key(1).splitlines()[1:-1]):
        assert secret not in all_text(facts)


def test_secrets_kept_in_the_dataset_are_not_redacted(tmp_path):
    files = {name: text for name, text in FILES.items() if name.startswith("keys/")}
    out = make(write_tree(tmp_path / "repo", files), tmp_path / "kept", secrets=SecretsConfig(action="keep"))
    assert ACCESS_KEY in all_text(gather(out))


def test_changed_manifest_does_not_reveal_secrets(copied):
    manifest = copied / "out/manifest.json"
    content = manifest.read_text()
    manifest.write_text(content.replace('"action": "redact"', '"action": "keep"'))
    assert manifest.read_text() != content
    facts = gather(copied / "out", [str(copied / "repo")])
    assert duplicates_by_name(facts)["repo/keys/two.py"].no_diff_reason == "the file has changed since the build"
    assert ACCESS_KEY not in all_text(facts)


def test_notebooks_and_other_encodings_are_read_as_in_the_build(facts):
    cells = duplicates_by_name(facts)["repo/n/two.ipynb"].lines
    assert [line.right for line in cells if line.kind == "added"] == ["", "# %%", "added = 1"]
    assert "SHOWN" not in all_text(facts)
    lines = duplicates_by_name(facts)["repo/latin2.py"].lines
    assert [(line.kind, line.right) for line in lines if line.kind != "same"][-1] == ("added", "z = 1")


@pytest.mark.parametrize(
    "sections",
    [
        {"window": WindowConfig(length=128, overlap=30)},
        {"window": WindowConfig(length=256, pack="best-fit")},
        {"output": OutputConfig(pad=True)},
        {"window": WindowConfig(length=128, overlap=0, tail="shift"), "output": OutputConfig(compress="zstd")},
    ],
    ids=["overlap", "packed", "padded", "shifted"],
)
def test_left_side_is_read_from_the_rows(facts, tmp_path, sections):
    """The kept files are deleted from the source, so only the rows contain their text."""
    repo = write_tree(tmp_path / "repo", FILES)
    out = make(repo, tmp_path / "out", **sections)
    (repo / "a/base.py").unlink()
    (repo / "keys/one.py").unlink()
    found, expected = duplicates_by_name(gather(out)), duplicates_by_name(facts)
    names = ["repo/a/twin.py", "repo/keys/two.py"]
    assert [found[name].lines for name in names] == [expected[name].lines for name in names]


def test_incomplete_text_from_rows_is_not_used(tmp_path):
    repo = write_tree(tmp_path / "repo", {name: FILES[name] for name in ("a/base.py", "a/twin.py")})
    out = make(repo, tmp_path / "out", window=WindowConfig(length=128, overlap=0, tail="drop", min_fresh=126))
    assert no_diff_reason(out) is None
    (repo / "a/base.py").unlink()
    assert no_diff_reason(out) == "the kept file cannot be read: the file is no longer in its source"


def test_decontaminated_file_is_read_from_the_source(tmp_path):
    shared = code(9, 12)
    files = {f"f{number}.py": code(20 + number, 25) + shared for number in range(12)}
    files |= {f"g{number}.py": text + "x = 1\n" for number, text in enumerate(files.values())}
    out = make(write_tree(tmp_path / "repo", files), tmp_path / "out", split=SplitConfig(shares="50/25/25"))
    cut = {row.name for row in read_file_rows(out / "files.jsonl") if row.cuts and row.status == "kept"}
    facts = gather(out)
    assert cut & {cluster.kept for cluster in facts.clusters}
    assert all(duplicate.lines[-1].right == "x = 1" for duplicate in duplicates_by_name(facts).values())
    for name in cut:
        (tmp_path / name).unlink()
    reasons = {cluster.kept: cluster.duplicates[0].no_diff_reason for cluster in gather(out).clusters}
    assert {name for name, reason in reasons.items() if reason} == cut & set(reasons)


def no_diff_reason(folder, sources=()):
    return duplicates_by_name(gather(folder, sources))["repo/a/twin.py"].no_diff_reason


def test_changed_source_is_rejected(copied):
    source = [str(copied / "repo")]
    assert no_diff_reason(copied / "out", source) is None
    (copied / "repo/a/twin.py").write_text(code(1) + "x = 2\n")
    assert no_diff_reason(copied / "out", source) == "the file has changed since the build"
    (copied / "repo/a/twin.py").write_bytes(b"\x00\xff")
    assert no_diff_reason(copied / "out", source) == "the file has changed since the build"
    (copied / "repo/a/twin.py").unlink()
    assert no_diff_reason(copied / "out", source) == "the file is no longer in its source"


def test_symlink_out_of_the_source_is_not_followed(copied):
    twin, outside = copied / "repo/a/twin.py", copied / "outside.py"
    shutil.copy(twin, outside)
    twin.unlink()
    twin.symlink_to(outside)
    assert no_diff_reason(copied / "out", [str(copied / "repo")]) == "the file is no longer in its source"


def test_missing_source_is_reported_with_the_option(copied):
    shutil.rmtree(copied / "out.work")
    assert no_diff_reason(copied / "out") == "the source of the file is unknown. Pass the source with --source"
    with pytest.raises(InputError, match="does not exist"):
        gather(copied / "out", [str(copied / "nowhere")])


def test_recorded_sources_are_used_only_for_the_same_settings(tmp_path):
    repo = write_tree(tmp_path / "repo", FILES)
    out = make(repo, tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert no_diff_reason(out) is None
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    earlier = shutil.copytree(out, tmp_path / "earlier")
    make(repo, out, window=WindowConfig(length=300))
    assert no_diff_reason(out) is None
    shutil.rmtree(out)
    earlier.rename(out)
    assert no_diff_reason(out) == "the source of the file is unknown. Pass the source with --source"
    (tmp_path / "out.work/built").write_bytes(b"x" * 50)
    assert no_diff_reason(out) == "the source of the file is unknown. Pass the source with --source"


def test_rows_of_tables_have_no_diff(tmp_path):
    rows = ({"path": name, "repo_name": "org/x", "content": text} for name, text in list(FILES.items())[:2])
    table = tmp_path / "rows.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (cluster,) = gather(make(table, tmp_path / "out")).clusters
    assert (
        cluster.duplicates[0].no_diff_reason
        == "the file is in no source folder, and rows of tables cannot be read again"
    )


def test_size_of_all_diffs_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(clusters, "MAX_DIFF_BYTES", 9000)
    files = {}
    for number in range(3):
        files[f"{number}a.py"] = code(number)
        files |= {f"{number}{name}.py": code(number).replace("return", f"return {name} +", 8) for name in "bcd"}
    facts = gather(make(write_tree(tmp_path / "repo", files), tmp_path / "out"))
    assert [len(cluster.duplicates) for cluster in facts.clusters] == [3, 3, 3]
    has_lines = [[bool(duplicate.lines) for duplicate in cluster.duplicates] for cluster in facts.clusters]
    assert [own[0] for own in has_lines] == [True, True, True]
    assert not all(all(own) for own in has_lines)
    assert clusters.LIMIT_REACHED in {
        duplicate.no_diff_reason for cluster in facts.clusters for duplicate in cluster.duplicates
    }


def dropped_row(path, twin, reason, similarity):
    row = dict.fromkeys(field for field in FileRow.__struct_fields__)
    row |= {"repo": "r", "path": path, "status": "dropped", "variants": (), "redactions": (), "cuts": ()}
    return FileRow(**row | {"reason": reason, "twin": f"r/{twin}", "similarity": similarity})


def test_copy_of_a_near_duplicate_is_in_the_same_cluster():
    duplicates = Duplicates()
    duplicates.add(dropped_row("b", "a", "near_duplicate", 0.8))
    duplicates.add(dropped_row("c", "b", "exact_duplicate", 1.0))
    duplicates.add(dropped_row("x", "y", "exact_duplicate", 1.0))
    duplicates.add(dropped_row("y", "x", "exact_duplicate", 1.0))
    outlines, num_clusters, num_files = duplicates.outlines()
    assert outlines[0].kept == "r/a"
    assert [tuple(duplicate) for duplicate in outlines[0].duplicates] == [("r/b", 0.8, False), ("r/c", 0.8, False)]
    assert (num_clusters, num_files) == (2, 6)


@pytest.mark.parametrize("last", ["a", "c0"])
def test_long_chains_and_rings_of_duplicates_are_resolved(last):
    duplicates = Duplicates()
    for number in range(60_000):
        duplicates.add(dropped_row(f"c{number}", f"c{number + 1}" if number < 59_999 else last, "near_duplicate", 0.9))
    ((outline,), num_clusters, _) = duplicates.outlines()
    assert (outline.kept, outline.num_duplicates, num_clusters) == (f"r/{last}", 60_000, 1)


def test_long_names_are_truncated(copied):
    folder = copied / "out"
    lines = (folder / "files.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    for row in rows:
        row["path"] = row["path"] + "x" * 50_000
        row["detail"] = row["detail"] and "y" * 50_000
        row["twin"] = row["twin"] and row["twin"] + "x" * 50_000
        row["language"] = row["language"] and "z" * 50_000
    (folder / "files.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    facts = gather(folder, [str(copied / "repo")])
    assert facts.clusters
    content = msgspec.json.encode([facts.clusters, facts.reasons, facts.languages, facts.licenses])
    assert 1_000 < len(content) < 100_000


def texts(lines, side):
    kinds = {"left": ("same", "changed", "removed"), "right": ("same", "changed", "added")}[side]
    return [getattr(line, side) for line in lines if line.kind in kinds]


LINES = st.lists(st.sampled_from(["a", "b", "", "c\r", "d\u2028e"]), max_size=40)


@given(LINES, LINES)
def test_both_sides_of_a_diff_are_the_two_texts(old, new):
    left, right = ("".join(f"{line}\n" for line in lines) for lines in (old, new))
    lines, num_left_out = clusters.side_by_side(left, right, max_lines=1000)
    assert num_left_out == 0
    sides = {"left": [], "right": []}
    for line in lines:
        if line.kind == "skipped":
            at = len(sides["left"])
            same = old[at : at + line.num_skipped]
            assert same == new[len(sides["right"]) :][: line.num_skipped]
            sides["left"] += same
            sides["right"] += same
        for side, own in sides.items():
            number = getattr(line, f"{side}_number")
            own.extend(texts([line], side))
            assert number is None or number == len(own)
    assert (sides["left"], sides["right"]) == (old, new)
    assert (old == new) == all(line.kind in {"same", "skipped"} for line in lines)


def test_long_diffs_and_long_lines_are_truncated():
    old = "".join(f"old {number}\n" for number in range(5000))
    new = "".join(f"new {number}\n" for number in range(4000))
    lines, num_left_out = clusters.side_by_side(old, new)
    assert len(lines) == MAX_LINES
    assert num_left_out == 5000 - MAX_LINES
    head = "x" * 3000
    (line,), _ = clusters.side_by_side(f"{head}one{head}", f"{head}two{head}")
    assert line.left == f"…{'x' * 100}one{'x' * (MAX_LINE_LENGTH - 103)}…"
    assert line.right == f"…{'x' * 100}two{'x' * (MAX_LINE_LENGTH - 103)}…"
    (line,), _ = clusters.side_by_side("", head)
    assert line.right == f"{'x' * MAX_LINE_LENGTH}…"


def test_difference_late_in_long_files_is_found():
    numbers = [f"line {number}" for number in range(9000)]
    changed = [*numbers[:8000], "new", *numbers[8001:]]
    lines, num_left_out = clusters.side_by_side("\n".join(numbers), "\n".join(changed))
    assert [line.kind for line in lines] == ["skipped", *["same"] * 3, "changed", *["same"] * 3, "skipped"]
    assert (lines[4].left_number, num_left_out) == (8001, 0)
    everywhere = ["first", *numbers[:4000], "middle", *numbers[4000:], "last"]
    lines, num_left_out = clusters.side_by_side("\n".join(numbers), "\n".join(everywhere))
    assert [line.kind for line in lines] == ["added", *["same"] * 3, "skipped"]
    assert num_left_out > 0

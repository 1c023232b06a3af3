"""Near-duplicates side by side: read from their sources again, and only what the dataset might show too."""

import json
import random
import shutil
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill import Config, InputError, OutputConfig, RunConfig, SecretsConfig, SplitConfig, WindowConfig, build
from gristmill.core.files_table import FileRow, file_rows
from gristmill.views.report import clusters
from gristmill.views.report.clusters import LONGEST_LINE, MOST_LINES, Twins
from gristmill.views.report.gather import gather
from support.source_trees import write_tree

TOKEN = "gh" + "p_Ab1Cd2Ef3Gh4Jk5Lm6Np7Qr8St9Uv0Wx1Yz2"
ACCESS_KEY = "AK" + "IAQ3WERTYUIOPASDFG"


def code(number, count=60):
    """Like no other."""
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
    """The dataset, its work folder and its source, to change; none of them remembers the others."""
    for name in ("repo", "out", "out.work"):
        shutil.copytree(root / name, tmp_path / name)
    return tmp_path


def twins_of(facts):
    return {twin.name: twin for cluster in facts.clusters for twin in cluster.twins}


def test_clusters_have_the_largest_first_and_every_twin(facts, root):
    assert [(cluster.kept, cluster.num_twins) for cluster in facts.clusters] == [
        ("repo/a/base.py", 3),
        ("repo/keys/one.py", 1),
        ("repo/latin.py", 1),
        ("repo/n/one.ipynb", 1),
    ]
    assert [twin.name for twin in facts.clusters[0].twins] == ["repo/a/other.py", "repo/a/twin.py", "repo/b/copy.py"]
    assert (facts.num_clusters, facts.num_clustered) == (4, 10)
    dropped = [row for row in file_rows(root / "out" / "files.jsonl") if row.twin]
    assert {row.name: row.similarity for row in dropped} == {
        name: twin.similarity for name, twin in twins_of(facts).items()
    }


def test_what_differs_is_shown_with_lines_around_it(facts):
    twin = twins_of(facts)["repo/a/twin.py"]
    kinds = [line.kind for line in twin.lines]
    assert kinds == ["same", "changed", "same", "same", "same", "skipped", "same", "same", "same", "added"]
    changed, skipped, added = twin.lines[1], twin.lines[5], twin.lines[-1]
    assert changed.left.replace("return", "return 1 +") == changed.right
    assert (changed.left_number, changed.right_number) == (2, 2)
    assert skipped.num_skipped == 120 - 8
    assert (added.right, added.right_number, added.left_number) == ("x = 1", 121, None)
    assert (twin.num_lines_left_out, twin.why_not, twin.is_exact) == (0, None, False)
    other = twins_of(facts)["repo/a/other.py"]
    assert [line.kind for line in other.lines] == ["added", "same", "same", "same", "skipped"]
    assert (other.lines[1].left_number, other.lines[1].right_number) == (1, 2)


def test_of_the_same_text_nothing_is_shown(facts):
    twin = twins_of(facts)["repo/b/copy.py"]
    assert (twin.is_exact, twin.similarity, twin.lines, twin.why_not) == (True, 1.0, [], clusters.SAME_TEXT)


def all_text(facts):
    lines = (line for twin in twins_of(facts).values() for line in twin.lines)
    return "\n".join(text for line in lines for text in (line.left, line.right))


def test_no_secret_of_a_source_comes_out(facts):
    added = [line.right for line in twins_of(facts)["repo/keys/two.py"].lines if line.kind == "added"]
    assert added[0] == 'key = "<SECRET:aws-access-key>"'
    assert added[1].startswith('PEM = """')
    assert "<SECRET:private-key>" in "\n".join(added)
    for secret in (TOKEN, ACCESS_KEY, *private_key(1).splitlines()[1:-1]):
        assert secret not in all_text(facts)


def test_secrets_that_were_kept_are_shown_as_the_dataset_does(tmp_path):
    files = {name: text for name, text in FILES.items() if name.startswith("keys/")}
    out = make(write_tree(tmp_path / "repo", files), tmp_path / "kept", secrets=SecretsConfig(action="keep"))
    assert ACCESS_KEY in all_text(gather(out))


def test_a_dataset_that_says_secrets_were_kept_gets_none_out_of_a_redacted_file(copied):
    manifest = copied / "out/manifest.json"
    content = manifest.read_text()
    manifest.write_text(content.replace('"action": "redact"', '"action": "keep"'))
    assert manifest.read_text() != content
    told = gather(copied / "out", [str(copied / "repo")])
    assert twins_of(told)["repo/keys/two.py"].why_not == "its source has changed since"
    assert ACCESS_KEY not in all_text(told)


def test_notebooks_and_other_encodings_are_read_as_the_build_did(facts):
    cells = twins_of(facts)["repo/n/two.ipynb"].lines
    assert [line.right for line in cells if line.kind == "added"] == ["", "# %%", "added = 1"]
    assert "SHOWN" not in all_text(facts)
    lines = twins_of(facts)["repo/latin2.py"].lines
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
def test_the_left_side_is_what_the_rows_show(facts, tmp_path, sections):
    """With only the dropped files in the source, there is nothing else that it could be."""
    repo = write_tree(tmp_path / "repo", FILES)
    out = make(repo, tmp_path / "out", **sections)
    (repo / "a/base.py").unlink()
    (repo / "keys/one.py").unlink()
    told, whole = twins_of(gather(out)), twins_of(facts)
    names = ["repo/a/twin.py", "repo/keys/two.py"]
    assert [told[name].lines for name in names] == [whole[name].lines for name in names]


def test_what_rows_do_not_show_is_not_taken_for_the_text(tmp_path):
    repo = write_tree(tmp_path / "repo", {name: FILES[name] for name in ("a/base.py", "a/twin.py")})
    out = make(repo, tmp_path / "out", window=WindowConfig(length=128, overlap=0, tail="drop", min_fresh=126))
    assert why_not(out) is None
    (repo / "a/base.py").unlink()
    assert why_not(out) == "of the file that stands for it, it is not in its source any more"


def test_what_was_cut_is_read_from_the_source(tmp_path):
    shared = code(9, 12)
    files = {f"f{number}.py": code(20 + number, 25) + shared for number in range(12)}
    files |= {f"g{number}.py": text + "x = 1\n" for number, text in enumerate(files.values())}
    out = make(write_tree(tmp_path / "repo", files), tmp_path / "out", split=SplitConfig(shares="50/25/25"))
    cut = {row.name for row in file_rows(out / "files.jsonl") if row.cuts and row.status == "kept"}
    told = gather(out)
    assert cut & {cluster.kept for cluster in told.clusters}
    assert all(twin.lines[-1].right == "x = 1" for twin in twins_of(told).values())
    for name in cut:
        (tmp_path / name).unlink()
    whys = {cluster.kept: cluster.twins[0].why_not for cluster in gather(out).clusters}
    assert {name for name, why in whys.items() if why} == cut & set(whys)


def why_not(folder, sources=()):
    return twins_of(gather(folder, sources))["repo/a/twin.py"].why_not


def test_a_source_that_has_changed_is_not_shown(copied):
    source = [str(copied / "repo")]
    assert why_not(copied / "out", source) is None
    (copied / "repo/a/twin.py").write_text(code(1) + "x = 2\n")
    assert why_not(copied / "out", source) == "its source has changed since"
    (copied / "repo/a/twin.py").write_bytes(b"\x00\xff")
    assert why_not(copied / "out", source) == "its source has changed since"
    (copied / "repo/a/twin.py").unlink()
    assert why_not(copied / "out", source) == "it is not in its source any more"


def test_a_link_out_of_the_source_is_not_followed(copied):
    twin, outside = copied / "repo/a/twin.py", copied / "outside.py"
    shutil.copy(twin, outside)
    twin.unlink()
    twin.symlink_to(outside)
    assert why_not(copied / "out", [str(copied / "repo")]) == "it is not in its source any more"


def test_without_a_source_it_says_how_to_name_one(copied):
    shutil.rmtree(copied / "out.work")
    assert why_not(copied / "out") == "its source is not here: name it with --source"
    with pytest.raises(InputError, match="does not exist"):
        gather(copied / "out", [str(copied / "nowhere")])


def test_sources_are_remembered_by_the_same_settings_only(tmp_path):
    repo = write_tree(tmp_path / "repo", FILES)
    out = make(repo, tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert why_not(out) is None
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    earlier = shutil.copytree(out, tmp_path / "earlier")
    make(repo, out, window=WindowConfig(length=300))
    assert why_not(out) is None
    shutil.rmtree(out)
    earlier.rename(out)
    assert why_not(out) == "its source is not here: name it with --source"
    (tmp_path / "out.work/built").write_bytes(b"x" * 50)
    assert why_not(out) == "its source is not here: name it with --source"


def test_rows_of_tables_are_not_read_again(tmp_path):
    rows = ({"path": name, "repo_name": "org/x", "content": text} for name, text in list(FILES.items())[:2])
    table = tmp_path / "rows.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (cluster,) = gather(make(table, tmp_path / "out")).clusters
    assert cluster.twins[0].why_not == "it is a row of a table, and these are not read again"


def test_all_differences_together_stay_small(tmp_path, monkeypatch):
    monkeypatch.setattr(clusters, "MOST_BYTES", 9000)
    files = {}
    for number in range(3):
        files[f"{number}a.py"] = code(number)
        files |= {f"{number}{name}.py": code(number).replace("return", f"return {name} +", 8) for name in "bcd"}
    told = gather(make(write_tree(tmp_path / "repo", files), tmp_path / "out"))
    assert [len(cluster.twins) for cluster in told.clusters] == [3, 3, 3]
    has_lines = [[bool(twin.lines) for twin in cluster.twins] for cluster in told.clusters]
    assert [own[0] for own in has_lines] == [True, True, True]
    assert not all(all(own) for own in has_lines)
    assert clusters.NO_ROOM in {twin.why_not for cluster in told.clusters for twin in cluster.twins}


def dropped_row(path, twin, reason, similarity):
    row = dict.fromkeys(field for field in FileRow.__struct_fields__)
    row |= {"repo": "r", "path": path, "status": "dropped", "variants": (), "redactions": (), "cuts": ()}
    return FileRow(**row | {"reason": reason, "twin": f"r/{twin}", "similarity": similarity})


def test_a_copy_of_a_near_duplicate_is_in_its_cluster():
    twins = Twins()
    twins.add(dropped_row("b", "a", "near_duplicate", 0.8))
    twins.add(dropped_row("c", "b", "exact_duplicate", 1.0))
    twins.add(dropped_row("x", "y", "exact_duplicate", 1.0))
    twins.add(dropped_row("y", "x", "exact_duplicate", 1.0))
    outlines, num_clusters, num_files = twins.outlines()
    assert outlines[0].kept == "r/a"
    assert [tuple(twin) for twin in outlines[0].twins] == [("r/b", 0.8, False), ("r/c", 0.8, False)]
    assert (num_clusters, num_files) == (2, 6)


@pytest.mark.parametrize("last", ["a", "c0"])
def test_a_chain_of_twins_is_followed_once_round_a_ring_too(last):
    twins = Twins()
    for number in range(60_000):
        twins.add(dropped_row(f"c{number}", f"c{number + 1}" if number < 59_999 else last, "near_duplicate", 0.9))
    started_at = time.monotonic()
    ((outline,), num_clusters, _) = twins.outlines()
    assert (outline.kept, outline.num_twins, num_clusters) == (f"r/{last}", 60_000, 1)
    assert time.monotonic() - started_at < 10


def test_names_without_end_are_told_in_brief(copied):
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
    told = msgspec.json.encode([facts.clusters, facts.reasons, facts.languages, facts.licenses])
    assert 1_000 < len(told) < 100_000


def texts(lines, side):
    kinds = {"left": ("same", "changed", "removed"), "right": ("same", "changed", "added")}[side]
    return [getattr(line, side) for line in lines if line.kind in kinds]


LINES = st.lists(st.sampled_from(["a", "b", "", "c\r", "d\u2028e"]), max_size=40)


@given(LINES, LINES)
def test_both_sides_together_are_the_two_texts(old, new):
    left, right = ("".join(f"{line}\n" for line in lines) for lines in (old, new))
    lines, num_left_out = clusters.side_by_side(left, right, most=1000)
    assert num_left_out == 0
    spelled = {"left": [], "right": []}
    for line in lines:
        if line.kind == "skipped":
            at = len(spelled["left"])
            same = old[at : at + line.num_skipped]
            assert same == new[len(spelled["right"]) :][: line.num_skipped]
            spelled["left"] += same
            spelled["right"] += same
        for side, own in spelled.items():
            number = getattr(line, f"{side}_number")
            own.extend(texts([line], side))
            assert number is None or number == len(own)
    assert (spelled["left"], spelled["right"]) == (old, new)
    assert (old == new) == all(line.kind in {"same", "skipped"} for line in lines)


def test_long_differences_and_long_lines_are_cut_short():
    old = "".join(f"old {number}\n" for number in range(5000))
    new = "".join(f"new {number}\n" for number in range(4000))
    lines, num_left_out = clusters.side_by_side(old, new)
    assert len(lines) == MOST_LINES
    assert num_left_out == 5000 - MOST_LINES
    head = "x" * 3000
    (line,), _ = clusters.side_by_side(f"{head}one{head}", f"{head}two{head}")
    assert line.left == f"…{'x' * 100}one{'x' * (LONGEST_LINE - 103)}…"
    assert line.right == f"…{'x' * 100}two{'x' * (LONGEST_LINE - 103)}…"
    (line,), _ = clusters.side_by_side("", head)
    assert line.right == f"{'x' * LONGEST_LINE}…"


def test_a_difference_far_into_long_files_is_found():
    numbers = [f"line {number}" for number in range(9000)]
    changed = [*numbers[:8000], "new", *numbers[8001:]]
    lines, num_left_out = clusters.side_by_side("\n".join(numbers), "\n".join(changed))
    assert [line.kind for line in lines] == ["skipped", *["same"] * 3, "changed", *["same"] * 3, "skipped"]
    assert (lines[4].left_number, num_left_out) == (8001, 0)
    everywhere = ["first", *numbers[:4000], "middle", *numbers[4000:], "last"]
    lines, num_left_out = clusters.side_by_side("\n".join(numbers), "\n".join(everywhere))
    assert [line.kind for line in lines] == ["added", *["same"] * 3, "skipped"]
    assert num_left_out > 0

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.config.settings import SplitConfig
from gristmill.core.records import Split
from gristmill.splits.assign import Group, assign_splits, make_groups
from gristmill.splits.previous import PreviousSplit
from support.documents import document

DEFAULT = SplitConfig().fractions()


def groups_of_files(documents):
    return make_groups(documents, [], (), "file")


def shares(groups, assigned):
    total = sum(group.num_tokens for group in groups)
    return {split: sum(g.num_tokens for g in groups if assigned[g.name] is split) / total for split in Split}


def groups_of_sizes(sizes):
    return groups_of_files([document(f"{index:05d}.py", tokens=size) for index, size in enumerate(sizes)])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 1_000_000), min_size=200, max_size=400),
    st.sampled_from(["85/10/5", "80/10/10", "98/1/1", "50/25/25", "100/0/0", "90/10/0"]),
    st.integers(0, 5),
)
def test_shares_are_met_within_one_percent_or_the_largest_group(sizes, shares_text, seed):
    groups = groups_of_sizes(sizes)
    fractions = SplitConfig(shares=shares_text).fractions()
    largest = max(sizes) / sum(sizes)
    actual = shares(groups, assign_splits(groups, fractions, seed))
    for split, fraction in fractions.items():
        assert abs(actual[split] - fraction) <= max(0.01, largest)


@given(st.lists(st.integers(1, 1000), max_size=50), st.integers(0, 3))
def test_every_group_is_in_exactly_one_split(sizes, seed):
    groups = groups_of_sizes(sizes)
    assigned = assign_splits(groups, DEFAULT, seed)
    assert set(assigned) == {group.name for group in groups}


def test_order_of_groups_does_not_matter():
    groups = groups_of_sizes(range(1, 300))
    assert assign_splits(groups, DEFAULT, 0) == assign_splits(groups[::-1], DEFAULT, 0)


def test_seed_changes_the_assignment():
    groups = groups_of_sizes(range(1, 300))
    assert assign_splits(groups, DEFAULT, 0) != assign_splits(groups, DEFAULT, 1)


def test_split_with_share_zero_is_empty():
    groups = groups_of_sizes(range(1, 300))
    assert set(assign_splits(groups, SplitConfig(shares="100/0/0").fractions(), 0).values()) == {Split.TRAIN}


def test_large_and_small_files_are_in_every_split():
    groups = groups_of_sizes([10_000] * 100 + [10] * 1000)
    assigned = assign_splits(groups, DEFAULT, 0)
    for split in (Split.VALIDATION, Split.TEST):
        sizes = {group.num_tokens for group in groups if assigned[group.name] is split}
        assert sizes == {10_000, 10}


def test_group_size_is_the_sum_over_its_documents():
    """A group of ten files is assigned as a whole, and its size is the total size of the files."""
    large = [Group(f"g{n}", tuple(document(f"{n}/{i}.py", tokens=100) for i in range(10))) for n in range(30)]
    assigned = assign_splits(large, DEFAULT, 0)
    assert shares(large, assigned)[Split.VALIDATION] == pytest.approx(0.1, abs=0.034)
    assert large[0].num_tokens == 1000


def test_group_keeps_the_split_of_its_first_known_document():
    group = Group("pair", (document("new.py"), document("old.py")))
    previous = PreviousSplit({("repo", "old.py"): Split.TEST}, {})
    assert assign_splits([group], DEFAULT, 0, previous) == {"pair": Split.TEST}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 1000), min_size=30, max_size=60), st.data())
def test_earlier_splits_are_kept(sizes, data):
    groups = groups_of_sizes(sizes)
    earlier = assign_splits(groups, DEFAULT, 0)
    kept = data.draw(st.sets(st.sampled_from(range(len(groups)))))
    survivors = [groups[index] for index in kept]
    added = groups_of_files([document(f"new{index}.py", tokens=index + 1) for index in range(20)])
    previous = PreviousSplit({group.documents[0].key: earlier[group.name] for group in groups}, {})
    later = assign_splits([*survivors, *added], DEFAULT, 99, previous)
    assert all(later[group.name] is earlier[group.name] for group in survivors)


def test_new_files_fill_the_splits_that_are_too_small():
    old, new = groups_of_sizes([100] * 100), groups_of_files([document(f"n{i}.py", tokens=100) for i in range(100)])
    previous = PreviousSplit({group.documents[0].key: Split.TRAIN for group in old}, {})
    actual = shares([*old, *new], assign_splits([*old, *new], DEFAULT, 0, previous))
    assert actual[Split.VALIDATION] == pytest.approx(0.1, abs=0.01)
    assert actual[Split.TEST] == pytest.approx(0.05, abs=0.01)


def test_content_takes_precedence_over_the_path():
    """After m2 was renamed to m3, and m1 to m2, the text of m1 keeps its split."""
    renamed = document("m2.py", text="once in m1")
    previous = PreviousSplit({("repo", "m2.py"): Split.TRAIN}, {renamed.text_sha256: Split.TEST})
    assert assign_splits(groups_of_files([renamed]), DEFAULT, 0, previous) == {"repo/m2.py": Split.TEST}


def test_moved_file_is_found_by_its_content():
    moved = document("new/place.py", text="same")
    previous = PreviousSplit({}, {moved.text_sha256: Split.TEST})
    assert assign_splits(groups_of_files([moved]), DEFAULT, 0, previous) == {"repo/new/place.py": Split.TEST}


def paths_by_group(groups):
    return {group.name: [member.path for member in group.documents] for group in groups}


def test_near_duplicates_share_a_group_named_after_the_first_file():
    files = [document(f"{name}.py") for name in "abcde"]
    groups = make_groups(files, [(1, 3), (3, 4)], {3}, "file")
    assert paths_by_group(groups) == {"repo/a.py": ["a.py"], "repo/b.py": ["b.py", "e.py"], "repo/c.py": ["c.py"]}
    assert [member.path for member in groups[1].dropped] == ["d.py"]


def test_folder_or_source_is_never_divided():
    files = [document(path) for path in ("a.py", "b.py", "x/a.py", "x/y/a.py", "x/z.py")]
    files.append(document("a.py", repo="other", text="more"))
    assert paths_by_group(make_groups(files, [], (), "directory")) == {
        "repo/": ["a.py", "b.py"],
        "repo/x/": ["x/a.py", "x/z.py"],
        "repo/x/y/": ["x/y/a.py"],
        "other/": ["a.py"],
    }
    assert [*paths_by_group(make_groups(files, [], (), "repo"))] == ["repo", "other"]


def test_cluster_across_two_folders_joins_the_folders():
    files = [document(path) for path in ("a/1.py", "a/2.py", "b/1.py", "b/2.py", "c/1.py")]
    groups = make_groups(files, [(1, 2)], (), "directory")
    assert paths_by_group(groups) == {"repo/a/": ["a/1.py", "a/2.py", "b/1.py", "b/2.py"], "repo/c/": ["c/1.py"]}


def test_merged_clusters_keep_the_split_of_the_kept_file_or_go_to_train():
    kept, removed, other = document("a.py"), document("b.py"), document("c.py")
    previous = PreviousSplit({kept.key: Split.TEST, removed.key: Split.TRAIN, other.key: Split.VALIDATION}, {})
    groups = make_groups([kept, removed, other], [(0, 1, 2)], {1}, "file")
    assert assign_splits(groups, DEFAULT, 0, previous) == {"repo/a.py": Split.TEST}
    assert assign_splits(groups, DEFAULT, 0, previous, train_wins=True) == {"repo/a.py": Split.TRAIN}


def test_new_file_takes_the_split_of_the_near_duplicate_it_replaces():
    new, old = document("a.py"), document("b.py")
    groups = make_groups([new, old], [(0, 1)], {1}, "file")
    assert assign_splits(groups, DEFAULT, 0, PreviousSplit({old.key: Split.TEST}, {})) == {"repo/a.py": Split.TEST}

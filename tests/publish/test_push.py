"""Tests of gristmill push with a local HTTP server as the Hub: uploads, deletions and safety checks."""

import json
import os
import shutil
import subprocess
import sys

import pytest

import gristmill
from gristmill import Config, LicensesConfig, OutputConfig, SecretsConfig, build
from gristmill.cli import main
from gristmill.publish.gates import OVERRIDES
from support import hub_server
from support.builds import messages
from support.foreign_datasets import MADE_BY, made_foreign
from support.source_trees import ROOT, write_tree

ID = "someone/windows"
MIT = (ROOT / "LICENSE").read_text()
PASSWORD = 'PASSWORD = "kx82-PQmz-01aB-9vTe"\n'


def write_source(root, extra=None, *, num_files=12):
    files = {
        f"m{i}.py": "".join(f"def f{i}_{j}(x):\n    return x * {j + i * 100} + {i}\n" for j in range(30))
        for i in range(num_files)
    }
    return write_tree(root, {"LICENSE": MIT, **files, **(extra or {})})


def add_to_readme(dataset, text):
    path = dataset / "README.md"
    path.write_text(f"{path.read_text()}\n{text}\n")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Dataset that passes all safety checks. Tests change only copies of the dataset."""
    root = tmp_path_factory.mktemp("made")
    build(Config(sources=[str(write_source(root / "repo"))], out=str(root / "dataset")))
    return root / "dataset"


@pytest.fixture
def dataset(original, tmp_path):
    return shutil.copytree(original, tmp_path / "dataset")


@pytest.fixture
def hub(monkeypatch, tmp_path):
    from huggingface_hub import close_session, constants

    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HF_HUB_OFFLINE", "HF_OIDC_RESOURCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # the fake Hub has no Xet storage
    monkeypatch.setenv("HF_TOKEN", hub_server.TOKEN)
    close_session()
    with hub_server.running() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        yield server
        close_session()


@pytest.fixture
def push(hub, dataset, capsys):
    """Return a function that runs `gristmill push` and asserts that the command prints no token and no traceback."""

    def run(*options, folder=dataset, repo_id=ID):
        capsys.readouterr()
        code = main.run(["push", str(folder), repo_id, *options])
        printed = capsys.readouterr()
        for text in (printed.out, printed.err):
            assert not any(word in text for word in (hub_server.TOKEN, "Traceback", "TopSecretSignature"))
        return code, printed.out, printed.err

    return run


def contents(folder, names):
    return {name: (folder / name).read_bytes() for name in names}


def edit_manifest(folder, change):
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return manifest


def verdicts(push, *options, **target):
    code, out, _ = push("--json", *options, **target)
    return code, {gate["name"]: gate["verdict"] for gate in json.loads(out)["gates"]}


def uploaded_files(hub, repo_id=ID):
    return {name: content for name, content in hub.repos[repo_id].files().items() if name != ".gitattributes"}


def test_dry_run_writes_nothing_to_the_hub(hub, push, dataset):
    (dataset / "notes.txt").write_text("mine")
    code, out, err = push()
    assert (code, messages(err)) == (0, [])
    assert hub.requests
    assert hub.writes == []
    assert hub.repos == {}
    for name in json.loads((dataset / "manifest.json").read_text())["files"]:
        assert name in out
    assert "in 3 jsonl files" in out
    assert f"to       {hub.address}/datasets/{ID}: private, new" in out
    assert "skips    notes.txt" in out
    assert "nothing was uploaded" in out


def test_upload_is_the_dataset_byte_for_byte_and_nothing_else(hub, push, dataset, tmp_path):
    add_to_readme(dataset, "Mine.")
    (dataset / ".env").write_text(PASSWORD)
    (dataset / "notes.txt").write_text("mine")
    (dataset / "report.html").write_text("mine")
    (dataset / "passwd").symlink_to("/etc/passwd")
    write_tree(dataset / ".git", {"config": "mine"})
    write_tree(tmp_path / "dataset.work", {"settings.json": "salt"})
    code, out, err = push("--upload", "--message", "the first one")
    assert (code, messages(err)) == (0, [])
    manifest = json.loads((dataset / "manifest.json").read_text())
    expected = {*manifest["files"], "manifest.json", "check.json", "README.md", "croissant.json"}
    assert uploaded_files(hub) == contents(dataset, expected)
    repo = hub.repos[ID]
    assert repo.private
    assert repo.messages == ["initial commit", "the first one"]
    assert f"pushed   {hub.address}/datasets/{ID}/commit/{repo.branches['main']}" in out


def test_public_option_makes_a_public_repository(hub, push):
    assert push("--upload", "--public")[0] == 0
    assert not hub.repos[ID].private


def test_unchanged_dataset_is_not_uploaded_again(hub, push):
    push("--upload")
    hub.requests.clear()
    code, out, _ = push("--upload")
    assert code == 0
    assert "unchanged" in out
    assert hub.writes == []


def test_second_push_deletes_outdated_files_and_keeps_foreign_files(hub, push, tmp_path):
    sources = write_source(tmp_path / "repo", num_files=24)
    many = Config(sources=[str(sources)], out=str(tmp_path / "many"), output=OutputConfig(shard_bytes=20_000))
    shards = [name for name in build(many).files if "-of-" in name]
    assert len(shards) > 2
    push("--upload", folder=tmp_path / "many")
    repo = hub.repos[ID]
    foreign = {"notes.md": b"theirs", "other/train-00000-of-00002.jsonl": b"theirs"}
    orphan = {"train-00007-of-00009.jsonl": b"of an earlier push"}
    repo.commit("main", {**repo.files(), **foreign, **orphan}, "manual commit")
    few = build(Config(sources=[str(sources)], out=str(tmp_path / "few")))
    num_commits = len(repo.commits)
    code, out, _ = push(folder=tmp_path / "few")
    assert code == 0
    assert f"deletes  {shards[0]}, {shards[1]}" in out
    assert len(repo.commits) == num_commits
    assert push("--upload", folder=tmp_path / "few")[0] == 0
    expected = contents(tmp_path / "few", {*few.files, "manifest.json", "check.json", "README.md", "croissant.json"})
    assert uploaded_files(hub) == expected | foreign
    assert len(repo.commits) == num_commits + 1


def test_nothing_is_deleted_from_a_repository_without_a_dataset(hub, push, dataset):
    foreign = {
        "train-00000-of-00002.jsonl": b"theirs",
        "manifest.json": b'{"files": {"a.txt": {}}}',
        "a.txt": b"theirs",
    }
    hub.add(ID, foreign)
    assert push("--upload")[0] == 0
    assert uploaded_files(hub)["train-00000-of-00002.jsonl"] == uploaded_files(hub)["a.txt"] == b"theirs"


def test_gitignore_in_the_repository_excludes_nothing(hub, push, dataset):
    hub.add(ID, {".gitignore": b"*.jsonl\nmanifest.json\n"})
    assert push("--upload")[0] == 0
    assert uploaded_files(hub)["train.jsonl"] == (dataset / "train.jsonl").read_bytes()
    assert "manifest.json" in uploaded_files(hub)


def test_missing_revision_is_created(hub, push, dataset):
    repo = hub.add(ID, {"notes.md": b"theirs"})
    code, out, _ = push("--upload", "--revision", "v2")
    assert code == 0
    assert "revision v2" in out
    assert set(repo.files("main")) == {".gitattributes", "notes.md"}
    assert repo.files("v2")["train.jsonl"] == (dataset / "train.jsonl").read_bytes()


def test_selected_formats_are_uploaded_with_their_own_manifest(hub, push, dataset):
    write_tree(dataset, {"parquet/train.parquet": b"not uploaded."})

    def add_parquet(manifest):
        manifest["formats"].append("parquet")
        facts = {"bytes": 13, "sha256": "0" * 64, "rows": 1, "split": "train", "format": "parquet"}
        manifest["files"] = dict(sorted({**manifest["files"], "parquet/train.parquet": facts}.items()))

    manifest = edit_manifest(dataset, add_parquet)
    before = contents(dataset, ["manifest.json"])
    code, _, err = push("--upload", "--format", "jsonl")
    assert (code, messages(err)) == (0, [])
    files = uploaded_files(hub)
    sent = json.loads(files["manifest.json"])
    assert sent == manifest | {"formats": ["jsonl"], "files": sent["files"]}
    assert set(sent["files"]) == set(manifest["files"]) - {"parquet/train.parquet"}
    assert set(files) == {*sent["files"], "manifest.json", "check.json", "README.md", "croissant.json"}
    assert b"parquet" not in files["README.md"] + files["croissant.json"]
    assert json.loads(files["check.json"])["ok"]
    assert b"parquet" not in files["check.json"]
    assert contents(dataset, ["manifest.json"]) == before


def test_missing_format_is_named(push, dataset):
    code, _, err = push("--format", "mds")
    assert code == 2
    assert "--format mds: the dataset has no rows in this format, only in jsonl" in err
    assert f"First run gristmill export {dataset} --format mds." in err


def test_failed_check_prevents_the_upload(hub, push, dataset):
    rows = (dataset / "train.jsonl").read_bytes()
    (dataset / "train.jsonl").write_bytes(rows.replace(b'"start":0', b'"start":1', 1))
    code, out, _ = push("--upload")
    assert code == 1
    assert "check         failed      digests" in out
    assert "failed safety checks: check. Nothing was uploaded." in out
    assert hub.writes == []
    assert push("--upload", "--allow-failed-check")[0] == 0
    assert uploaded_files(hub)["train.jsonl"] == (dataset / "train.jsonl").read_bytes() != rows


def test_build_without_a_secret_search_prevents_the_upload(hub, push, tmp_path):
    sources = write_source(tmp_path / "repo", {"settings.py": PASSWORD})
    kept = Config(sources=[str(sources)], out=str(tmp_path / "kept"), secrets=SecretsConfig(action="keep"))
    build(kept)
    assert verdicts(push, "--upload", folder=tmp_path / "kept")[1]["secrets"] == "refuses"
    assert hub.writes == []
    others = [option for option in OVERRIDES.values() if option != "--allow-secrets"]
    assert verdicts(push, "--upload", *others, folder=tmp_path / "kept")[0] == 1
    code, found = verdicts(push, "--upload", "--allow-secrets", folder=tmp_path / "kept")
    assert (code, found["secrets"], found["check"]) == (0, "allowed", "ok")
    assert ID in hub.repos


def test_secrets_found_by_check_prevent_the_upload(hub, push, tmp_path):
    sources = write_source(tmp_path / "repo", {"settings.py": PASSWORD})
    build(Config(sources=[str(sources)], out=str(tmp_path / "kept"), secrets=SecretsConfig(action="keep")))
    edit_manifest(tmp_path / "kept", lambda manifest: manifest["settings"]["secrets"].update(action="redact"))
    code, out, _ = push("--upload", "--allow-failed-check", folder=tmp_path / "kept")
    assert code == 1
    assert "failed safety checks: secrets." in out
    assert "kx82" not in out
    assert push("--upload", "--allow-failed-check", "--allow-secrets", folder=tmp_path / "kept")[0] == 0


def test_secret_in_the_readme_prevents_the_upload(hub, push, dataset):
    add_to_readme(dataset, f"# Windows\n\n{PASSWORD}")
    line = (dataset / "README.md").read_bytes().split(b"\n").index(PASSWORD.split("\n", maxsplit=1)[0].encode()) + 1
    code, out, _ = push("--upload")
    assert code == 1
    assert "README.md contains a secret (" in out
    assert f" in line {line} (override with --allow-secrets)" in out
    assert "kx82" not in out
    assert hub.writes == []


def test_files_without_a_known_license_prevent_the_upload(hub, push, tmp_path):
    sources = write_source(
        tmp_path / "repo", {"part/LICENSE": "All rights reserved.", "part/a.py": "print('a name')\n"}
    )
    build(Config(sources=[str(sources)], out=str(tmp_path / "mixed")))
    code, out, _ = push("--upload", folder=tmp_path / "mixed")
    assert code == 1
    assert (
        "licenses      failed      2 of 15 files have no known license; build with --license-allow MIT to leave" in out
    )
    assert hub.writes == []
    code, found = verdicts(push, "--upload", "--allow-unlicensed", folder=tmp_path / "mixed")
    assert (code, found["licenses"]) == (0, "allowed")
    only = LicensesConfig(allow=["MIT"])
    build(Config(sources=[str(sources)], out=str(tmp_path / "mixed"), licenses=only))
    assert verdicts(push, "--upload", folder=tmp_path / "mixed") == (0, dict.fromkeys([*OVERRIDES, "hub"], "ok"))


def test_local_folder_in_an_uploaded_file_prevents_the_upload(hub, push, dataset):
    add_to_readme(dataset, f"# Windows\n\nBuilt in {dataset}/x\n")
    code, out, _ = push("--upload")
    assert code == 1
    assert "paths         failed      README.md names" in out
    assert hub.writes == []
    assert push("--upload", "--allow-paths")[0] == 0


def test_dataset_made_by_bench_is_refused(hub, push, dataset):
    made_foreign(dataset)
    code, out, err = push("--upload", *OVERRIDES.values())
    assert (code, out) == (4, "")
    assert f"was made by {MADE_BY}, not by gristmill build" in err
    assert hub.requests == []


def test_private_upload_to_a_public_repository_is_refused(hub, push):
    repo = hub.add(ID, private=False)
    code, out, _ = push("--upload", *OVERRIDES.values())
    assert code == 1
    assert "the repository is public. Add --public" in out
    assert hub.writes == []
    assert push("--upload", "--public")[0] == 0
    assert "train.jsonl" in repo.files()


@pytest.mark.parametrize("name", ["README.md", "train.jsonl"])
def test_link_to_a_file_outside_the_folder_is_refused(hub, push, dataset, tmp_path, name):
    (dataset / name).unlink(missing_ok=True)
    (tmp_path / "elsewhere").write_text("mine")
    (dataset / name).symlink_to(tmp_path / "elsewhere")
    code, out, err = push("--upload", *OVERRIDES.values())
    assert (code, out) == (4, "")
    assert "is a link to a file outside the dataset folder" in err
    assert hub.writes == []


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (("*", "/api/datasets/", hub_server.fails(401)), "401 (you sent …). The token is not valid"),
        (("*", "/api/datasets/", hub_server.fails(403)), "403 (you sent …). The token has no write access"),
        (("*", "/api/datasets/", hub_server.fails(500)), "500 (you sent …). The Hub has an internal error"),
        (("GET", "/revision/", hub_server.hangs_up), "Check the network"),
        (("POST", "/api/repos/create", hub_server.fails(404)), "404 (you sent …). The repository does not exist"),
        (("POST", "/api/repos/create", hub_server.fails(403)), "403 (you sent …). The token has no write access"),
        (("PUT", "/storage/", hub_server.fails(403)), "403"),
        (("POST", "/commit/", hub_server.fails(400)), "400 (you sent …)."),
        (("POST", "/commit/", hub_server.fails(412)), "412 (you sent …). The repository was changed"),
        (("POST", "/commit/", hub_server.fails(503)), "503 (you sent …). The Hub has an internal error"),
        (("POST", "/commit/", hub_server.hangs_up), "Check the network"),
        (("POST", "/preupload/", hub_server.sends_html), "Check HF_ENDPOINT."),
        (("POST", "/validate-yaml", hub_server.fails(400)), "400 (you sent …). Check the YAML header of README.md"),
    ],
)
def test_hub_error_is_reported_in_one_line(hub, push, dataset, fault, message):
    add_to_readme(dataset, "Mine.")
    hub.acts.append(fault)
    code, out, err = push("--upload")
    assert (code, out) == (3, "")
    (line,) = messages(err)
    assert line.startswith("gristmill: ")
    assert message in line
    assert ID not in hub.repos or set(hub.repos[ID].files()) == {".gitattributes"}


def test_push_after_an_error_does_not_repeat_finished_uploads(hub, push, dataset):
    hub.acts.append(("POST", "/commit/", hub_server.hangs_up))
    assert push("--upload")[0] == 3
    hub.acts.clear()
    hub.requests.clear()
    assert push("--upload")[0] == 0
    assert uploaded_files(hub)["train.jsonl"] == (dataset / "train.jsonl").read_bytes()
    assert not [path for method, path in hub.writes if method == "PUT"]


def test_file_that_changes_during_the_upload_is_not_committed(hub, push, dataset):
    def change(answer):
        (dataset / "train.jsonl").write_bytes(b"{}\n")
        answer.route(answer.path)

    hub.acts.append(("POST", "/preupload/", change))
    code, _, err = push("--upload")
    assert code == 3
    assert "train.jsonl" in err
    assert len(hub.repos[ID].commits) == 1


def test_hub_error_in_a_dry_run_fails_only_the_hub_check(hub, push):
    hub.acts.append(("*", "/api/datasets/", hub_server.fails(500)))
    code, found = verdicts(push)
    assert code == 1
    assert found == dict.fromkeys(OVERRIDES, "ok") | {"hub": "refuses"}
    assert "could not be read" in push()[1]


@pytest.mark.parametrize("repo_id", ["windows", "a/b/c", "someone/", "someone/my windows", "../windows", "hf://a/b"])
def test_invalid_dataset_name_is_reported(hub, push, repo_id):
    code, _, err = push(repo_id=repo_id)
    assert code == 3
    assert "is not a valid Hub dataset name. Try 'yourname/" in err
    assert hub.requests == []


def test_missing_dataset_is_reported_without_a_request_to_the_hub(hub, push, tmp_path):
    assert push(folder=tmp_path / "nowhere")[0] == 4
    assert hub.requests == []


def test_invalid_token_is_reported(hub, push, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_another0123456789")
    code, _, err = push("--upload")
    assert code == 3
    assert "The token is not valid. Run 'hf auth login'" in err
    assert "hf_another" not in err


def test_offline_mode_sends_no_request(hub, push, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    code, _, err = push("--upload")
    assert code == 3
    assert "HF_HUB_OFFLINE is set" in err
    assert hub.requests == []


def test_missing_library_is_reported_with_its_extra(push, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    code, _, err = push()
    assert code == 2
    assert "pip install 'gristmill[hub]'" in err


def test_quiet_prints_nothing_after_an_upload_and_json_prints_the_result(hub, push):
    assert push("--quiet")[1] == push()[1] != ""
    assert push("--quiet", "--upload") == (0, "", "")
    result = json.loads(push("--json", "--upload")[1])
    assert (result["ok"], result["is_unchanged"], result["commit"], result["repo_id"]) == (True, True, None, ID)
    assert {file["change"] for file in result["files"] if file["name"] != "check.json"} == {"same"}


def test_python_function_returns_failed_safety_checks(hub, dataset):
    add_to_readme(dataset, f"{PASSWORD}\n{dataset}\n")
    refused = gristmill.push(dataset, ID, upload=True)
    assert not refused.ok
    assert [gate.name for gate in refused.gates if gate.verdict == "refuses"] == ["secrets", "paths"]
    assert refused.commit is None
    pushed = gristmill.push(dataset, ID, upload=True, allow=["secrets", "paths"])
    assert pushed.ok
    assert pushed.commit is not None
    with pytest.raises(
        gristmill.ConfigError, match="allow must contain only check, secrets, licenses, paths, got everything"
    ):
        gristmill.push(dataset, ID, allow=["everything"])


def environment(hub, tmp_path, **more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    return kept | {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1", **more}


def test_missing_login_is_reported(hub, dataset, tmp_path):
    command = [sys.executable, "-m", "gristmill", "push", str(dataset), ID, "--upload"]
    done = subprocess.run(command, env=environment(hub, tmp_path), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"gristmill: not logged in to {hub.address}. Run 'hf auth login'")
    assert done.stderr.count("\n") == 1
    assert hub.writes == []


def test_datasets_library_loads_the_uploaded_dataset(hub, push, dataset, tmp_path):
    add_to_readme(dataset, "Mine.")
    assert push("--upload")[0] == 0
    code = (
        "import datasets, sys\n"
        f"loaded = datasets.load_dataset({ID!r})\n"
        "print({name: split.num_rows for name, split in loaded.items()})\n"
    )
    more = {"HF_TOKEN": hub_server.TOKEN, "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(hub, tmp_path, **more),
        capture_output=True,
        text=True,
        check=False,
    )
    opened = gristmill.open_dataset(dataset)
    assert done.stdout.strip() == str({split: len(opened[split]) for split in opened}), done.stderr

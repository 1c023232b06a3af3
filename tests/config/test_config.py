from pathlib import Path

import pytest

from gristmill import Config, ConfigError, RunConfig, ScanConfig, SplitConfig, TokenizerConfig, WindowConfig
from gristmill.config.config import fingerprint, load_config, setting_names
from gristmill.config.presets import with_preset
from gristmill.core.records import Split

MINIMAL = {"sources": ["src"], "out": "dataset"}


def toml(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "gristmill.toml"
    path.write_text(text)
    return path


def test_defaults():
    config = with_preset(Config(sources=["src"], out="dataset"), has_mask=True)
    assert (config.window.length, config.window.overlap) == (512, 256)
    assert config.split.fractions() == {Split.TRAIN: 0.85, Split.VALIDATION: 0.1, Split.TEST: 0.05}
    assert config.tokenizer.name == "codebert"


@pytest.mark.parametrize(
    ("window", "overlap"),
    [
        ({"length": 256}, 128),
        ({"length": 1024}, 512),
        ({"length": 7}, 3),
        ({"length": 1}, 0),
        ({"length": 256, "pack": "best-fit"}, 0),
        ({"length": 256, "overlap": 200}, 200),
    ],
)
def test_windows_overlap_by_half_unless_overlap_is_set_or_rows_are_packed(tmp_path, window, overlap):
    from_options = load_config({**MINIMAL, **{f"window.{name}": value for name, value in window.items()}})
    lines = "".join(f"{name} = {value!r}\n" for name, value in window.items())
    for config in (from_options, load_config(MINIMAL, toml(tmp_path, f"[window]\n{lines}"))):
        assert with_preset(config, has_mask=True).window.overlap == overlap


def test_options_override_the_toml_file(tmp_path):
    path = toml(tmp_path, "[window]\noverlap = 128\nlength = 256\n")
    config = load_config({**MINIMAL, "window.overlap": 0}, path)
    assert (config.window.length, config.window.overlap) == (256, 0)


def test_paths_in_the_toml_file_are_relative_to_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    config = load_config({}, toml(tmp_path, 'sources = ["src"]\nout = "data"\n[split]\nprevious = "old.jsonl"\n'))
    assert list(config.sources) == [str(tmp_path / "src")]
    assert config.out == str(tmp_path / "data")
    assert config.split.previous == str(tmp_path / "old.jsonl")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[window]\nlenght = 5\n", "'window.lenght'. Did you mean 'window.length'?"),
        ("overlap = 5\n", "Did you mean 'window.overlap'?"),
        ("[windows]\nlength = 5\n", "no setting 'windows'"),
        ("[zzz]\nqqq = 1\n", "Known settings"),
        ("[window]\nlength = 'many'\n", "window.length: expected `int`, got `str`"),
        ("[window]\ntail = 'cut'\n", "window.tail: invalid enum value 'cut'. Allowed values: keep, shift, drop."),
        ("[window]\noverlap = -1\n", "window.overlap must be at least 0, got -1"),
        ("window = 5\n", "window"),
        ("[window\n", "not valid TOML"),
    ],
)
def test_invalid_toml_file_is_refused_with_a_suggestion(tmp_path, text, message):
    with pytest.raises(ConfigError, match=__import__("re").escape(message)):
        load_config(MINIMAL, toml(tmp_path, text))


def test_missing_toml_file_is_named_in_the_error(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.toml.*No such file"):
        load_config(MINIMAL, tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ("85/10/10", "add up to 100, got 85/10/10"),
        ("85/15", "three percentages"),
        ("a/b/c", "three percentages"),
        ("110/-5/-5", "three percentages"),
        ("nan/50/50", "three percentages"),
    ],
)
def test_invalid_shares_are_refused(shares, message):
    with pytest.raises(ConfigError, match=message):
        SplitConfig(shares=shares)


def test_shares_may_have_fractions():
    assert SplitConfig(shares="98.5/1/0.5").fractions()[Split.TEST] == pytest.approx(0.005)


def test_sources_may_be_a_string_or_paths():
    assert Config(sources="src", out=Path("dataset")).sources == ("src",)
    assert Config(sources=[Path("a"), "b"], out="dataset").sources == ("a", "b")


@pytest.mark.parametrize("values", [{"workers": 0}, {"batch_bytes": 0}, {"workers": True}, {"batch_files": 0}])
def test_invalid_run_settings_are_refused_in_python(values):
    with pytest.raises(ConfigError):
        RunConfig(**values)


def test_missing_source_and_output_are_reported():
    with pytest.raises(ConfigError, match="no source"):
        load_config({"out": "x"})
    with pytest.raises(ConfigError, match="no output folder"):
        load_config({"sources": ["x"]})


def test_fingerprint_changes_only_with_settings_that_change_the_output():
    base = fingerprint(Config(sources=["a"], out="b"), "tokenizer")
    assert fingerprint(Config(sources=["c"], out="d", run=RunConfig(workers=7)), "tokenizer") == base
    assert fingerprint(Config(sources=["a"], out="b", window=WindowConfig(overlap=0)), "tokenizer") != base
    assert fingerprint(Config(sources=["a"], out="b", scan=ScanConfig(exclude=["x"])), "tokenizer") != base
    assert fingerprint(Config(sources=["a"], out="b"), "another") != base


def test_dotted_setting_names_are_unique():
    assert "window.overlap" in setting_names()
    assert len(setting_names()) == len(set(setting_names()))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WindowConfig(tail="cut"), "window.tail: .*Allowed values: keep, shift, drop"),
        (lambda: WindowConfig(length="512"), "window.length"),
        (lambda: SplitConfig(seed=None), "split.seed"),
        (lambda: RunConfig(workers="many"), "run.workers"),
        (lambda: Config(sources=["a"], out=5), "out"),
        (lambda: Config(sources=[5], out="b"), "sources"),
        (lambda: Config(sources=["a"], out="b", window={"overlap": 3}), "window must be a WindowConfig"),
        (lambda: Config(sources=["a\0b"], out="b"), "sources"),
        (lambda: Config(sources=["a"], out="b\0"), "NUL"),
        (lambda: ScanConfig(exclude=["\udcff"]), "must be UTF-8"),
    ],
)
def test_values_in_python_are_checked_like_toml(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_path_objects_are_converted_to_strings():
    assert TokenizerConfig(name=Path("a/b"), cache_dir=Path("c")).name == "a/b"
    assert Config(sources=["a"], out="~/x").out.endswith("/x")
    assert "~" not in Config(sources=["a"], out="~/x").out


def test_tokenizer_path_in_the_toml_file_is_relative_to_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    (tmp_path / "tok").mkdir()
    assert load_config(MINIMAL, toml(tmp_path, 'tokenizer.name = "tok"\n')).tokenizer.name == str(tmp_path / "tok")
    assert load_config(MINIMAL, toml(tmp_path, 'tokenizer.name = "org/name"\n')).tokenizer.name == "org/name"


def test_section_that_is_not_a_table_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="window must be a table"):
        load_config({**MINIMAL, "window.overlap": 1}, toml(tmp_path, "window = 5\n"))

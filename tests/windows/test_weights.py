import pytest

from gristmill.config.settings import SamplingConfig
from gristmill.core.errors import ConfigError
from gristmill.windows.weights import OTHERS, check_weights, last_matching_rule, weight_rules


@pytest.mark.parametrize(
    ("path", "language", "group"),
    [
        ("src/app.py", "python", "source"),
        ("README.md", "markdown", "docs"),
        ("docs/conf.py", "python", "docs"),
        ("pkg/docs/build.rs", "rust", "docs"),
        ("setup.cfg", "ini", "data"),
        ("tests/test_app.py", "python", "tests"),
        ("pkg/server_test.go", "go", "tests"),
        ("web/button.spec.ts", "typescript", "tests"),
        ("src/test/java/AppTest.java", "java", "tests"),
        ("tests/data/case.json", "json", "tests"),
        ("latest.py", "python", "source"),
    ],
)
def test_preset_distinguishes_source_tests_docs_and_data(path, language, group):
    rules = weight_rules(SamplingConfig(preset="code"))
    assert last_matching_rule(rules, "repo", path, language).group == f"code:{group}"
    weights = {rule.group.removeprefix("code:"): rule.weight for rule in rules}
    assert weights["source"] > weights["tests"] > weights["docs"]


def test_last_matching_rule_applies():
    rules = weight_rules(
        SamplingConfig(weights={"src/**": 3, "language:rust": 2, "folder:bench": 0.5, "repo:other": 7})
    )
    groups = {
        file: last_matching_rule(rules, *file).group
        for file in [
            ("repo", "src/a.py", "python"),
            ("repo", "src/a.rs", "rust"),
            ("repo", "bench/a.rs", "rust"),
            ("repo", "src/bench/a.py", "python"),
            ("other", "src/a.rs", "rust"),
            ("repo", "lib/a.py", "python"),
        ]
    }
    assert list(groups.values()) == ["src/**", "language:rust", "folder:bench", "src/**", "repo:other", OTHERS.group]


def test_group_of_the_preset_can_be_weighted_with_or_without_the_preset():
    for preset, source in (("code", 2.0), (None, 1.0)):
        rules = weight_rules(SamplingConfig(preset=preset, weights={"code:docs": 9}))
        assert last_matching_rule(rules, "repo", "docs/a.md", "markdown").weight == 9
        assert last_matching_rule(rules, "repo", "src/a.py", "python").weight == source


def test_explicit_weight_takes_precedence_over_the_preset():
    rules = weight_rules(SamplingConfig(preset="code", weights={"src/core/**": 9}))
    assert last_matching_rule(rules, "repo", "src/core/a.py", "python").weight == 9
    assert last_matching_rule(rules, "repo", "src/b.py", "python").group == "code:source"


def test_character_class_in_a_pattern_is_not_a_kind():
    config = SamplingConfig(weights={"[[:upper:]]*.py": 5})
    check_weights(config)
    assert last_matching_rule(weight_rules(config), "repo", "src/App.py", "python").weight == 5
    with pytest.raises(ConfigError, match="unknown kind 'langage'"):
        check_weights(SamplingConfig(weights={"langage:python": 5}))

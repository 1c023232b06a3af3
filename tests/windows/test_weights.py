import pytest

from gristmill.config.settings import SamplingConfig
from gristmill.core.errors import ConfigError
from gristmill.windows.weights import OTHERS, check_weights, rule_for, rules_of


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
def test_the_preset_knows_source_from_tests_from_docs(path, language, group):
    rules = rules_of(SamplingConfig(preset="code"))
    assert rule_for(rules, "repo", path, language).group == f"code:{group}"
    weights = {rule.group.removeprefix("code:"): rule.weight for rule in rules}
    assert weights["source"] > weights["tests"] > weights["docs"]


def test_of_several_that_match_the_last_counts():
    rules = rules_of(SamplingConfig(weights={"src/**": 3, "language:rust": 2, "folder:bench": 0.5, "repo:other": 7}))
    groups = {
        place: rule_for(rules, *place).group
        for place in [
            ("repo", "src/a.py", "python"),
            ("repo", "src/a.rs", "rust"),
            ("repo", "bench/a.rs", "rust"),
            ("repo", "src/bench/a.py", "python"),
            ("other", "src/a.rs", "rust"),
            ("repo", "lib/a.py", "python"),
        ]
    }
    assert list(groups.values()) == ["src/**", "language:rust", "folder:bench", "src/**", "repo:other", OTHERS.group]


def test_a_group_of_the_preset_gets_another_weight_with_or_without_it():
    for preset, source in (("code", 2.0), (None, 1.0)):
        rules = rules_of(SamplingConfig(preset=preset, weights={"code:docs": 9}))
        assert rule_for(rules, "repo", "docs/a.md", "markdown").weight == 9
        assert rule_for(rules, "repo", "src/a.py", "python").weight == source


def test_what_is_said_by_hand_comes_before_a_preset():
    rules = rules_of(SamplingConfig(preset="code", weights={"src/core/**": 9}))
    assert rule_for(rules, "repo", "src/core/a.py", "python").weight == 9
    assert rule_for(rules, "repo", "src/b.py", "python").group == "code:source"


def test_a_class_in_a_pattern_is_not_a_kind():
    config = SamplingConfig(weights={"[[:upper:]]*.py": 5})
    check_weights(config)
    assert rule_for(rules_of(config), "repo", "src/App.py", "python").weight == 5
    with pytest.raises(ConfigError, match="there is no 'langage'"):
        check_weights(SamplingConfig(weights={"langage:python": 5}))

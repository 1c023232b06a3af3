"""Which group of files a file is in, and the group's weight: by pattern, language, top folder or repo."""

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from gristmill.config.settings import SamplingConfig
from gristmill.core.errors import ConfigError
from gristmill.sources.gitignore import Patterns

TESTS = (
    *("test/", "tests/", "testing/", "__tests__/", "spec/", "testdata/", "fixtures/", "conftest.py"),
    *("test_*.*", "*_test.*", "*_tests.*", "*.test.*", "*.spec.*", "*_spec.*", "*Test.*", "*Tests.*"),
)
DOCS = ("doc/", "docs/", "documentation/")
PROSE = ("markdown", "rst", "asciidoc", "text", "tex")
DATA = ("json", "yaml", "toml", "ini", "xml", "csv", "svg", "gitignore", "po", "diff")


class Rule(NamedTuple):
    group: str
    weight: float
    patterns: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    folder: str | None = None
    repo: str | None = None

    @classmethod
    def of(cls, what: str, weight: float) -> "Rule":
        kind, _, name = what.partition(":")
        match kind:
            case "language":
                return cls(what, weight, languages=(name,))
            case "folder":
                return cls(what, weight, folder=name)
            case "repo":
                return cls(what, weight, repo=name)
            case _:
                return cls(what, weight, patterns=(what,))

    def matches(self, repo: str, path: str, language: str) -> bool:
        return (
            language in self.languages
            or repo == self.repo
            or (self.folder is not None and path.startswith(f"{self.folder}/"))
            or bool(self.patterns and _compiled(self.patterns).take(path.encode()))
        )


OTHERS = Rule("others", 1.0)
"""Files that no weight is said for."""
PRESETS: dict[str, tuple[Rule, ...]] = {
    "code": (
        Rule("code:source", 2.0, patterns=("**",)),
        Rule("code:data", 0.5, languages=DATA),
        Rule("code:docs", 0.5, languages=PROSE, patterns=DOCS),
        Rule("code:tests", 1.0, patterns=TESTS),
    )
}


GROUPS = {rule.group: rule for rule in PRESETS["code"]}
KINDS = ("language", "folder", "repo")


def rules_of(config: SamplingConfig) -> list[Rule]:
    """What is said by hand comes after a preset, and so counts; `code:tests=3` gives a group of it another weight."""
    by_hand = [Rule.of(what, weight) for what, weight in config.weights.items() if what not in GROUPS]
    if config.preset is None and not any(what in GROUPS for what in config.weights):
        return by_hand
    weights = {group: rule.weight if config.preset is not None else OTHERS.weight for group, rule in GROUPS.items()}
    weights |= {what: weight for what, weight in config.weights.items() if what in GROUPS}
    return [*(rule._replace(weight=weights[group]) for group, rule in GROUPS.items()), *by_hand]


def check_weights(config: SamplingConfig) -> None:
    """Refuse a kind that there is not. A word and a colon is no pattern: a colon in a name can be written as ?."""
    for what in config.weights:
        kind, colon, _ = what.partition(":")
        if colon and kind.isidentifier() and what not in GROUPS and kind not in KINDS:
            known = ", ".join((*(f"{one}:NAME" for one in KINDS), *GROUPS))
            raise ConfigError(f"--weight {what!r}: there is no {kind!r}. There are patterns like 'src/**', {known}.")


def weighted_languages(config: SamplingConfig) -> list[str]:
    return [what.removeprefix("language:") for what in config.weights if what.startswith("language:")]


def weighted_patterns(config: SamplingConfig) -> list[str]:
    by_hand = (Rule.of(what, weight) for what, weight in config.weights.items() if what not in GROUPS)
    return [pattern for rule in by_hand for pattern in rule.patterns]


def rule_for(rules: Iterable[Rule], repo: str, path: str, language: str) -> Rule:
    """The last that matches."""
    found = OTHERS
    for rule in rules:
        if rule.matches(repo, path, language):
            found = rule
    return found


@cache
def _compiled(patterns: tuple[str, ...]) -> Patterns:
    return Patterns(pattern.encode() for pattern in patterns)

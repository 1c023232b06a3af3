"""Weights of groups of files. A pattern, a language, a folder or a repository defines a group."""

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
    """A group of files with a weight. A file that meets at least one of the conditions matches the rule."""

    group: str
    weight: float
    patterns: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    folder: str | None = None
    repo: str | None = None

    @classmethod
    def of(cls, what: str, weight: float) -> "Rule":
        """Make a rule from `language:NAME`, `folder:NAME`, `repo:NAME` or a pattern."""
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
            or bool(self.patterns and _compiled(self.patterns).selects(path.encode()))
        )


OTHERS = Rule("others", 1.0)
"""Rule for files that match no other rule."""
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


def weight_rules(config: SamplingConfig) -> list[Rule]:
    """Return the rules of the preset, followed by the explicit rules. The last rule that matches a file applies.

    An explicit weight like `code:tests=3` replaces the weight of a group of the preset.
    """
    explicit = [Rule.of(what, weight) for what, weight in config.weights.items() if what not in GROUPS]
    if config.preset is None and not any(what in GROUPS for what in config.weights):
        return explicit
    weights = {group: rule.weight if config.preset is not None else OTHERS.weight for group, rule in GROUPS.items()}
    weights |= {what: weight for what, weight in config.weights.items() if what in GROUPS}
    return [*(rule._replace(weight=weights[group]) for group, rule in GROUPS.items()), *explicit]


def check_weights(config: SamplingConfig) -> None:
    """Raise ConfigError for an unknown kind, like `lang:rust`.

    A pattern like `a:b` would also be taken for a kind. Users can write `a?b` instead.
    """
    for what in config.weights:
        kind, colon, _ = what.partition(":")
        if colon and kind.isidentifier() and what not in GROUPS and kind not in KINDS:
            known = ", ".join((*(f"{one}:NAME" for one in KINDS), *GROUPS))
            raise ConfigError(
                f"--weight {what!r}: unknown kind {kind!r}. Use a pattern like 'src/**', or one of {known}."
            )


def weighted_languages(config: SamplingConfig) -> list[str]:
    """Return the languages that have an explicit weight."""
    return [what.removeprefix("language:") for what in config.weights if what.startswith("language:")]


def weighted_patterns(config: SamplingConfig) -> list[str]:
    """Return the patterns that have an explicit weight."""
    explicit = (Rule.of(what, weight) for what, weight in config.weights.items() if what not in GROUPS)
    return [pattern for rule in explicit for pattern in rule.patterns]


def last_matching_rule(rules: Iterable[Rule], repo: str, path: str, language: str) -> Rule:
    """Return the last rule that matches the file, or OTHERS if none does."""
    found = OTHERS
    for rule in rules:
        if rule.matches(repo, path, language):
            found = rule
    return found


@cache
def _compiled(patterns: tuple[str, ...]) -> Patterns:
    return Patterns(pattern.encode() for pattern in patterns)

"""Clean documents: return each document with its final text, or a Drop.

Steps: cells of notebooks, rules, redaction of secrets, respelling of control tokens.
"""

from collections.abc import Sequence

import msgspec

from gristmill.cleaning.control_spellings import Spellings, respell, with_spellings
from gristmill.cleaning.notebooks import cells_of
from gristmill.cleaning.rules import Limits, judge_all
from gristmill.cleaning.secrets import redact, with_openings, with_secrets
from gristmill.config.config import Config
from gristmill.config.settings import SecretsConfig
from gristmill.core.records import Document, Drop, DropReason

NOTEBOOK = "jupyter"
KINDS_NAMED = 3


def clean_all(
    documents: Sequence[Document], config: Config, limits: Limits, spellings: Spellings | None = None
) -> list[Document | Drop]:
    """Return each document cleaned, or a Drop. One scan covers the whole batch; only matches are examined one by one.

    `spellings`: control tokens that no text may spell.
    """
    answers: list[Document | Drop] = list(documents)
    if config.secrets.action != "keep":
        # Both are in the rows, and a table's rows name their repository.
        names = [f"{one.repo}/{one.path}".encode() for one in documents]
        for number in with_secrets(names, emails=config.secrets.emails):
            one = documents[number]
            answers[number] = Drop.of(one.file, DropReason.HOLDS_SECRET, "in its name", language=one.language)
    if config.scan.notebooks == "cells":
        answers = [_with_cells(one) if one.language == NOTEBOOK else one for one in answers]
    _judge(answers, limits)
    if config.secrets.action != "keep":
        _take_out_secrets(answers, config.secrets)
    if spellings is not None:
        _take_out_spellings(answers, spellings, config)
    return answers


def clean(document: Document, config: Config, limits: Limits) -> Document | Drop:
    return clean_all([document], config, limits)[0]


def _with_cells(document: Document | Drop) -> Document | Drop:
    if isinstance(document, Drop):
        return document
    facts = {"language": document.language}  # no digest: whether it holds a secret is not known yet
    cells = cells_of(document.text)
    if isinstance(cells, str):
        return Drop.of(document.file, DropReason.BAD_NOTEBOOK, cells, **facts)
    if not cells:
        return Drop.of(document.file, DropReason.EMPTY, "no code or markdown in its cells", **facts)
    return msgspec.structs.replace(document, text=cells, is_as_read=False)


def _judge(answers: list[Document | Drop], limits: Limits) -> None:
    """Puts what the rules measured into the documents, and drops in the place of those that fail one."""
    numbers = [number for number, one in enumerate(answers) if isinstance(one, Document)]
    documents = [one for one in answers if isinstance(one, Document)]
    judgements = judge_all(
        [one.path for one in documents], [one.language for one in documents], [one.text for one in documents], limits
    )
    for number, one, judgement in zip(numbers, documents, judgements, strict=True):
        measures = msgspec.json.encode(judgement.measures)
        if judgement.defect is None:
            answers[number] = msgspec.structs.replace(one, measures=measures)
        else:
            reason, detail = judgement.defect
            answers[number] = Drop.of(one.file, reason, detail, measures=measures, language=one.language)


def _take_out_secrets(answers: list[Document | Drop], config: SecretsConfig) -> None:
    numbers = [number for number, one in enumerate(answers) if isinstance(one, Document)]
    documents = [one for one in answers if isinstance(one, Document)]
    for number in with_openings([one.text for one in documents], emails=config.emails):
        answers[numbers[number]] = _without_its_secrets(documents[number], config)


def _without_its_secrets(document: Document, config: SecretsConfig) -> Document | Drop:
    language, measures = document.language, document.measures
    redacted = redact(document.text, language, config)
    if redacted is None:
        detail = "each redaction leaves another secret"
        return Drop.of(document.file, DropReason.HOLDS_SECRET, detail, language=language, measures=measures)
    if not redacted.redactions:
        return document
    if config.action == "drop":
        # Without its digest: that would confirm a guess.
        found = dict.fromkeys(f"{redaction.kind} in line {redaction.line}" for redaction in redacted.redactions)
        more = f" and {len(found) - KINDS_NAMED} more" if len(found) > KINDS_NAMED else ""
        detail = ", ".join(list(found)[:KINDS_NAMED]) + more
        return Drop.of(document.file, DropReason.HOLDS_SECRET, detail, language=language, measures=measures)
    return msgspec.structs.replace(
        document, text=redacted.text, sha256=None, is_as_read=False, redactions=redacted.redactions
    )


def _take_out_spellings(answers: list[Document | Drop], spellings: Spellings, config: Config) -> None:
    numbers = [number for number, one in enumerate(answers) if isinstance(one, Document)]
    documents = [one for one in answers if isinstance(one, Document)]
    for number in with_spellings([one.text for one in documents], spellings):
        answers[numbers[number]] = _without_its_spellings(documents[number], spellings, config)


def _without_its_spellings(document: Document, spellings: Spellings, config: Config) -> Document | Drop:
    respelled = respell(document.text, spellings)
    facts = {"language": document.language, "sha256": document.sha256, "measures": document.measures}
    if respelled is None or config.output.control_spellings == "drop":
        found = [] if respelled is None else list(dict.fromkeys(one.spelling for one in respelled.respellings))
        more = f" and {len(found) - KINDS_NAMED} more" if len(found) > KINDS_NAMED else ""
        detail = ", ".join(found[:KINDS_NAMED]) + more or "each respelling leaves another"
        return Drop.of(document.file, DropReason.CONTROL_SPELLING, detail, **facts)
    if config.secrets.action != "keep" and with_secrets([respelled.text], emails=config.secrets.emails):
        detail = "respelled, it holds what looks like a secret"  # a blank may end what was too long to be one
        return Drop.of(document.file, DropReason.CONTROL_SPELLING, detail, **facts)
    return msgspec.structs.replace(document, text=respelled.text, is_as_read=False, respellings=respelled.respellings)


def without_secrets(drop: Drop, config: SecretsConfig) -> Drop:
    """A file's name may hold one: what is recorded of a dropped file does not."""
    before = {name: getattr(drop, name) for name in ("repo", "path", "detail")}
    if config.action == "keep" or not with_openings([text.encode() for text in before.values()], emails=config.emails):
        return drop
    after = {name: without_secret(text, config) for name, text in before.items()}
    return drop if after == before else msgspec.structs.replace(drop, **after)


def without_secret(text: str, config: SecretsConfig) -> str:
    """With the short hash behind it, so that two names stay two."""
    if config.action == "keep":
        return text
    redacted = redact(text.encode(), "text", config)
    if redacted is None:
        return "a name with a secret in it"
    return redacted.text.decode() + "".join(f" #{redaction.hash}" for redaction in redacted.redactions)

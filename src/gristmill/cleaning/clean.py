"""A document as it was read -> what of it may be learned from: cells of a notebook, rules, secrets out; or a Drop."""

from typing import Any

import msgspec

from gristmill.cleaning.notebooks import cells_of
from gristmill.cleaning.rules import Limits, Page, judge
from gristmill.cleaning.secrets import find_secrets, redact
from gristmill.config.config import Config
from gristmill.config.settings import SecretsConfig
from gristmill.core.records import Document, Drop, DropReason

NOTEBOOK = "jupyter"
KINDS_NAMED = 3


def clean(document: Document, config: Config, limits: Limits) -> Document | Drop:
    file, text, language = document.file, document.text, document.language
    name = f"{file.repo}/{file.path}".encode()  # both are in the rows, and a table's rows name their repository
    if config.secrets.action != "keep" and find_secrets(name, emails=config.secrets.emails):
        return Drop.of(file, DropReason.HOLDS_SECRET, "in its name", language=language)
    facts: dict[str, Any] = {"language": language}  # no digest: whether it holds a secret is not known yet
    if language == NOTEBOOK and config.scan.notebooks == "cells":
        cells = cells_of(text)
        if isinstance(cells, str):
            return Drop.of(file, DropReason.BAD_NOTEBOOK, cells, **facts)
        if not cells:
            return Drop.of(file, DropReason.EMPTY, "no code or markdown in its cells", **facts)
        text = cells
    is_as_read = document.is_as_read and text is document.text
    judgement = judge(Page(file.path, language, text), limits)
    measures = msgspec.json.encode(judgement.measures)
    if judgement.defect is not None:
        reason, detail = judgement.defect
        return Drop.of(file, reason, detail, measures=measures, **facts)
    if config.secrets.action == "keep":
        return msgspec.structs.replace(document, text=text, is_as_read=is_as_read, measures=measures)
    redacted = redact(text, language, config.secrets)
    if redacted is None:
        detail = "each redaction leaves another secret"
        return Drop.of(file, DropReason.HOLDS_SECRET, detail, language=language, measures=measures)
    if not redacted.redactions:
        return msgspec.structs.replace(document, text=text, is_as_read=is_as_read, measures=measures)
    if config.secrets.action == "drop":
        # Without its digest: that would confirm a guess.
        found = dict.fromkeys(f"{redaction.kind} in line {redaction.line}" for redaction in redacted.redactions)
        more = f" and {len(found) - KINDS_NAMED} more" if len(found) > KINDS_NAMED else ""
        detail = ", ".join(list(found)[:KINDS_NAMED]) + more
        return Drop.of(file, DropReason.HOLDS_SECRET, detail, language=language, measures=measures)
    return msgspec.structs.replace(
        document,
        text=redacted.text,
        sha256=None,
        is_as_read=False,
        measures=measures,
        redactions=redacted.redactions,
    )


def without_secrets(drop: Drop, config: SecretsConfig) -> Drop:
    """A file's name may hold one: what is recorded of a dropped file does not."""
    before = {name: getattr(drop, name) for name in ("repo", "path", "detail")}
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

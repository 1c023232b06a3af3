"""Clean documents: return each document with its cleaned text, or a Drop.

The steps are: check names for secrets, convert notebooks, apply the rules, redact secrets, and respell control tokens
(insert a space, so that no tokenizer reads the text as the token).
"""

from collections.abc import Sequence

import msgspec

from gristmill.cleaning.control_spellings import Spellings, indices_with_spellings, respell
from gristmill.cleaning.notebooks import convert_notebook
from gristmill.cleaning.rules import Limits, apply_rules_to_all
from gristmill.cleaning.secrets import indices_with_openings, indices_with_secrets, redact
from gristmill.config.config import Config
from gristmill.config.settings import SecretsConfig
from gristmill.core.records import Document, Drop, DropReason

NOTEBOOK = "jupyter"
MAX_LISTED = 3


def clean_all(
    documents: Sequence[Document], config: Config, limits: Limits, spellings: Spellings | None = None
) -> list[Document | Drop]:
    """Return each document with its cleaned text, or a Drop.

    All documents are searched for secrets and control tokens at once, and only documents with a match are examined one
    by one. `spellings` are the control tokens that no text may contain. None if texts may contain any.
    """
    results: list[Document | Drop] = list(documents)
    if config.secrets.action != "keep":
        # Search the repository name too: rows contain it, and each row of a table can name a different repository.
        names = [f"{document.repo}/{document.path}".encode() for document in documents]
        for index in indices_with_secrets(names, emails=config.secrets.emails):
            document = documents[index]
            results[index] = Drop.of(
                document.file,
                DropReason.HOLDS_SECRET,
                "the repository or path contains a secret",
                language=document.language,
            )
    if config.scan.notebooks == "cells":
        results = [_convert_notebook(document) if document.language == NOTEBOOK else document for document in results]
    _apply_rules(results, limits)
    if config.secrets.action != "keep":
        _redact_all(results, config.secrets)
    if spellings is not None:
        _respell_all(results, spellings, config)
    return results


def clean(document: Document, config: Config, limits: Limits) -> Document | Drop:
    """Return one document with its cleaned text, or a Drop. Control tokens are not respelled."""
    return clean_all([document], config, limits)[0]


def _convert_notebook(document: Document | Drop) -> Document | Drop:
    if isinstance(document, Drop):
        return document
    facts = {"language": document.language}  # no digest, because the text may still contain a secret
    converted = convert_notebook(document.text)
    if isinstance(converted, str):
        return Drop.of(document.file, DropReason.BAD_NOTEBOOK, converted, **facts)
    if not converted:
        return Drop.of(document.file, DropReason.EMPTY, "no cell contains code or markdown", **facts)
    return msgspec.structs.replace(document, text=converted, is_unmodified=False)


def _apply_rules(results: list[Document | Drop], limits: Limits) -> None:
    """Add the measured values to the documents. Replace each document that fails a rule with a Drop."""
    indices = [index for index, document in enumerate(results) if isinstance(document, Document)]
    documents = [document for document in results if isinstance(document, Document)]
    outcomes = apply_rules_to_all(
        [document.path for document in documents],
        [document.language for document in documents],
        [document.text for document in documents],
        limits,
    )
    for index, document, outcome in zip(indices, documents, outcomes, strict=True):
        measures = msgspec.json.encode(outcome.measures)
        if outcome.defect is None:
            results[index] = msgspec.structs.replace(document, measures=measures)
        else:
            reason, detail = outcome.defect
            results[index] = Drop.of(document.file, reason, detail, measures=measures, language=document.language)


def _redact_all(results: list[Document | Drop], config: SecretsConfig) -> None:
    indices = [index for index, document in enumerate(results) if isinstance(document, Document)]
    documents = [document for document in results if isinstance(document, Document)]
    for index in indices_with_openings([document.text for document in documents], emails=config.emails):
        results[indices[index]] = _redact_document(documents[index], config)


def _redact_document(document: Document, config: SecretsConfig) -> Document | Drop:
    language, measures = document.language, document.measures
    redacted = redact(document.text, language, config)
    if redacted is None:
        detail = "the text still contains a secret after repeated redaction"
        return Drop.of(document.file, DropReason.HOLDS_SECRET, detail, language=language, measures=measures)
    if not redacted.redactions:
        return document
    if config.action == "drop":
        # No digest, because it could confirm a guess of the secret.
        found = dict.fromkeys(f"{redaction.kind} in line {redaction.line}" for redaction in redacted.redactions)
        more = f" and {len(found) - MAX_LISTED} more" if len(found) > MAX_LISTED else ""
        detail = ", ".join(list(found)[:MAX_LISTED]) + more
        return Drop.of(document.file, DropReason.HOLDS_SECRET, detail, language=language, measures=measures)
    return msgspec.structs.replace(
        document, text=redacted.text, sha256=None, is_unmodified=False, redactions=redacted.redactions
    )


def _respell_all(results: list[Document | Drop], spellings: Spellings, config: Config) -> None:
    indices = [index for index, document in enumerate(results) if isinstance(document, Document)]
    documents = [document for document in results if isinstance(document, Document)]
    for index in indices_with_spellings([document.text for document in documents], spellings):
        results[indices[index]] = _respell_document(documents[index], spellings, config)


def _respell_document(document: Document, spellings: Spellings, config: Config) -> Document | Drop:
    respelled = respell(document.text, spellings)
    facts = {"language": document.language, "sha256": document.sha256, "measures": document.measures}
    if respelled is None or config.output.control_spellings == "drop":
        found = (
            []
            if respelled is None
            else list(dict.fromkeys(respelling.spelling for respelling in respelled.respellings))
        )
        more = f" and {len(found) - MAX_LISTED} more" if len(found) > MAX_LISTED else ""
        detail = (
            ", ".join(found[:MAX_LISTED]) + more or "the text still contains a control token after repeated respelling"
        )
        return Drop.of(document.file, DropReason.CONTROL_SPELLING, detail, **facts)
    if config.secrets.action != "keep" and indices_with_secrets([respelled.text], emails=config.secrets.emails):
        # The inserted space may end a run of characters that was too long to be a secret.
        detail = "the text contains what looks like a secret after respelling"
        return Drop.of(document.file, DropReason.CONTROL_SPELLING, detail, **facts)
    return msgspec.structs.replace(
        document, text=respelled.text, is_unmodified=False, respellings=respelled.respellings
    )


def redact_drop(drop: Drop, config: SecretsConfig) -> Drop:
    """Redact secrets in the repository, path and detail of a Drop, because a file name may contain a secret."""
    before = {name: getattr(drop, name) for name in ("repo", "path", "detail")}
    if config.action == "keep" or not indices_with_openings(
        [text.encode() for text in before.values()], emails=config.emails
    ):
        return drop
    after = {name: redact_name(text, config) for name, text in before.items()}
    return drop if after == before else msgspec.structs.replace(drop, **after)


def redact_name(text: str, config: SecretsConfig) -> str:
    """Redact secrets in a name, and append a short hash of each secret, so that different names remain different."""
    if config.action == "keep":
        return text
    redacted = redact(text.encode(), "text", config)
    if redacted is None:
        return "a name that contains a secret"
    return redacted.text.decode() + "".join(f" #{redaction.hash}" for redaction in redacted.redactions)

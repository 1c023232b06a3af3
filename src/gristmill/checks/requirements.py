"""Derive the requirements for all rows from the manifest and the tokenizer of a dataset."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gristmill.checks.decoder import Decoder
from gristmill.checks.digests import check_fingerprint
from gristmill.checks.findings import Faults
from gristmill.checks.packs import PackRules
from gristmill.checks.tokens import RowRules
from gristmill.checks.windows import ONE_WINDOW, Shape
from gristmill.config.settings import (
    NO_END_TOKEN,
    FimConfig,
    OutputConfig,
    SamplingConfig,
    ScanConfig,
    SecretsConfig,
    SplitConfig,
    VariantsConfig,
    WindowConfig,
    conditions_met,
)
from gristmill.core.columns import COLUMNS, MASK, When, row_columns, window_columns
from gristmill.core.errors import ConfigError, DatasetError, MissingExtraError, TokenizerError
from gristmill.core.layout import MANIFEST
from gristmill.core.manifest import Manifest
from gristmill.core.records import VARIANTS
from gristmill.tokenizers.control_tokens import KNOWN_SPELLINGS
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.sentinels import mask_id, repo_ids
from gristmill.tokenizers.tokenizer import Tokenizer, tokenizer_for
from gristmill.tokenizers.window_frame import FimFrame, fim_frame


class _Sections(msgspec.Struct):
    """Sections of the settings in the manifest that the checks use."""

    window: WindowConfig
    output: OutputConfig
    split: SplitConfig
    scan: ScanConfig
    secrets: SecretsConfig
    sampling: dict[str, Any]
    fim: FimConfig
    variants: VariantsConfig

    def sampling_config(self) -> SamplingConfig:
        """Convert the sampling section. The manifest stores weights as pairs, because their order matters."""
        return msgspec.convert(self.sampling | {"weights": dict(self.sampling.get("weights", ()))}, SamplingConfig)


class Settings(NamedTuple):
    """Manifest and settings of the dataset to check, and the requirements for its rows."""

    folder: Path
    manifest: Manifest
    decontaminate: str
    notebooks: str
    secrets: SecretsConfig
    sampling: SamplingConfig
    fim: FimConfig
    variants: VariantsConfig
    shape: Shape
    rules: RowRules
    decoder: Decoder
    no_tokenizer_reason: str | None
    """Reason why the tokenizer cannot be used, or None if it can."""
    pack: PackRules | None
    """Rules for packed rows, or None if each row is one window."""
    is_packed_by_repo: bool
    """True with --pack repo, which concatenates the files of a repository and cuts them at any token."""
    repo_order: str
    repo_order_seed: int

    @classmethod
    def of(cls, folder: Path, manifest: Manifest, faults: Faults) -> "Settings":
        """Read the settings of a dataset. Raises DatasetError if the manifest has invalid settings."""
        try:
            sections = msgspec.convert(manifest.settings, _Sections)
            sampling = sections.sampling_config()
        except (msgspec.ValidationError, ConfigError, TypeError, ValueError) as error:
            raise DatasetError(
                f"{str(folder / MANIFEST)!r} is damaged: its settings are invalid ({error}). Build the dataset again."
            ) from None
        facts = manifest.tokenizer
        definition, tokenizer, no_tokenizer_reason = _tokenizer(folder, manifest, sections, faults)
        rules = RowRules(
            file="",
            columns=tuple(manifest.columns),
            length=sections.window.length,
            vocab_size=facts.vocab_size,
            prefix=facts.prefix,
            suffix=facts.suffix,
            closing=() if sections.window.pack == "repo" else facts.closing,
            control_ids=tuple(definition.control_ids) if definition is not None else (),
            pad_id=facts.pad_id if sections.output.pad else None,
        )
        forbids_control_tokens = sections.output.rows == "documents" and sections.output.control_spellings != "keep"
        if forbids_control_tokens:
            tokenizer_spellings = definition.control_spellings if definition is not None else ()
            rules = rules._replace(control_spellings=tuple(sorted({*tokenizer_spellings, *KNOWN_SPELLINGS})))
        if definition is not None:
            rules = rules._replace(
                allowed_control_ids=_allowed_control_ids(definition, sections.variants, faults),
                fim=_fim_frame(definition, sections, faults),
            )
            ids = () if rules.fim is None else rules.fim.ids
            token_texts = tuple(token.content for token in definition.added_tokens if token.id in ids)
            rules = rules._replace(fim_token_texts=token_texts)
        conditions = conditions_met(sections.window, sections.output, sampling, sections.fim, sections.variants)
        pack = None
        if sections.window.is_packed:
            pack = _pack_rules(rules, sections, facts.end_id, definition, faults)
            rules = rules._replace(columns=window_columns(conditions - {When.PAD}), pad_id=None)
        _check_columns(manifest.columns, row_columns(conditions), faults)
        return cls(
            folder=folder,
            manifest=manifest,
            decontaminate=sections.split.decontaminate,
            notebooks=sections.scan.notebooks,
            secrets=sections.secrets,
            sampling=sampling,
            fim=sections.fim,
            variants=sections.variants,
            shape=ONE_WINDOW
            if sections.output.rows == "documents"
            else Shape.of(sections.window, len(facts.prefix) + len(facts.suffix) + len(facts.closing)),
            rules=rules if MASK in rules.columns else rules._replace(pad_id=None),
            pack=pack,
            is_packed_by_repo=sections.window.pack == "repo",
            repo_order=sections.window.repo_order,
            repo_order_seed=sections.window.repo_order_seed,
            decoder=Decoder.of(folder, tokenizer),
            no_tokenizer_reason=no_tokenizer_reason,
        )


def _tokenizer(
    folder: Path, manifest: Manifest, sections: _Sections, faults: Faults
) -> tuple[Definition | None, Tokenizer | None, str | None]:
    """Load the tokenizer and compare it with the manifest.

    Return its definition, the tokenizer, and the reason if the tokenizer cannot be used. Missing values are None.
    """
    try:
        definition = Definition.read(folder)
    except (OSError, TokenizerError) as error:
        faults.add("special_tokens", f"the tokenizer cannot be read: {error}")
        return None, None, "the tokenizer cannot be read"
    check_fingerprint(manifest, definition.key, faults)
    facts = manifest.tokenizer
    recorded_ids = (facts.prefix, facts.suffix, facts.closing, facts.end_id, facts.pad_id, facts.mask_id)
    special_ids = _special_ids(sections.window, definition)
    if sections.output.rows == "documents":
        special_ids = ((), (), (), special_ids[-1])
    if recorded_ids != (*special_ids, definition.pad_id, definition.mask_id):
        faults.add("special_tokens", "the recorded special tokens differ from those of the tokenizer", file=MANIFEST)
    try:
        tokenizer = tokenizer_for(definition)
    except (TokenizerError, MissingExtraError) as error:
        return definition, None, str(error)
    if facts.vocab_size != tokenizer.vocab_size:
        message = (
            f"vocab_size is {facts.vocab_size}, but the vocabulary of the tokenizer has size {tokenizer.vocab_size}"
        )
        faults.add("ids", message, file=MANIFEST)
        return definition, None, "the tokenizer does not match the manifest"
    return definition, tokenizer, None


def _special_ids(window: WindowConfig, definition: Definition) -> tuple[Any, ...]:
    """Return the special ids before each window, after each window, after each document, and the end id."""
    end_id = definition.end_id if window.end_token is None else definition.id_of(window.end_token)
    end_id = None if window.end_token == NO_END_TOKEN else end_id
    if window.special_tokens == "documents":
        return definition.begin_ids, (), () if end_id is None else (end_id,), end_id
    return (*definition.template, (), end_id)


def _allowed_control_ids(
    definition: Definition, variants: VariantsConfig, faults: Faults
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    kinds = [kind for kind in variants.rates if VARIANTS[kind].needs_mask]
    try:
        return tuple((kind, (mask_id(definition),)) for kind in kinds)
    except ConfigError as error:
        faults.add("special_tokens", str(error), file=MANIFEST)
        return ()


def _fim_frame(definition: Definition, sections: _Sections, faults: Faults) -> FimFrame | None:
    try:
        has_documents = sections.output.rows == "documents"
        return fim_frame(sections.window, definition, has_documents=has_documents) if sections.fim.is_enabled else None
    except ConfigError as error:
        faults.add("special_tokens", str(error), file=MANIFEST)
        return None


def _pack_rules(
    rules: RowRules, sections: _Sections, end_id: int | None, definition: Definition | None, faults: Faults
) -> PackRules:
    markers: frozenset[int] | None = None
    if sections.window.pack == "repo":
        markers = frozenset(() if end_id is None else (end_id,))
        try:
            markers |= set(repo_ids(definition)) if definition is not None else set()
        except ConfigError as error:
            faults.add("special_tokens", str(error), file=MANIFEST)
    return PackRules(rules.columns, rules.length, rules.vocab_size, rules.pad_id, end_id, markers)


def _check_columns(columns: Sequence[str], expected: Collection[str], faults: Faults) -> None:
    for name in COLUMNS:
        if (name in columns) != (name in expected):
            faults.add(
                "schema",
                f"column {name} is {'missing' if name in expected else 'not allowed with these settings'}",
                file=MANIFEST,
            )

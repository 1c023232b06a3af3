"""What the manifest and the tokenizer in the folder say about how the rows must be."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gristmill.checks.digests import check_fingerprint
from gristmill.checks.findings import Faults
from gristmill.checks.packs import PackRules
from gristmill.checks.spelling import Spelling
from gristmill.checks.tokens import RowRules
from gristmill.checks.windows import Shape
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
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.sentinels import mask_id, repo_ids
from gristmill.tokenizers.tokenizer import Tokenizer, tokenizer_for
from gristmill.tokenizers.window_frame import FimFrame, fim_frame


class _Sections(msgspec.Struct):
    window: WindowConfig
    output: OutputConfig
    split: SplitConfig
    scan: ScanConfig
    secrets: SecretsConfig
    sampling: dict[str, Any]
    fim: FimConfig
    variants: VariantsConfig

    def drawing(self) -> SamplingConfig:
        """Weights are told as pairs, since their order counts."""
        return msgspec.convert(self.sampling | {"weights": dict(self.sampling.get("weights", ()))}, SamplingConfig)


class Settings(NamedTuple):
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
    spelling: Spelling
    no_tokenizer: str | None
    """Why there is none to spell ids with."""
    pack: PackRules | None
    """Of rows that hold windows of several files."""
    is_by_repo: bool
    """Files are cut anywhere, one after the other."""
    repo_order: str
    repo_order_seed: int

    @classmethod
    def of(cls, folder: Path, manifest: Manifest, faults: Faults) -> "Settings":
        try:
            sections = msgspec.convert(manifest.settings, _Sections)
            sampling = sections.drawing()
        except (msgspec.ValidationError, ConfigError, TypeError, ValueError) as error:
            raise DatasetError(f"{str(folder / MANIFEST)!r} is damaged: {error}.") from None
        facts = manifest.tokenizer
        definition, tokenizer, why = _tokenizer(folder, manifest, sections.window, faults)
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
        if definition is not None:
            rules = rules._replace(
                own_ids=_own_ids(definition, sections.variants, faults), fim=_fim_frame(definition, sections, faults)
            )
        met = conditions_met(sections.window, sections.output, sampling, sections.fim, sections.variants)
        pack = None
        if sections.window.is_packed:
            pack = _pack_rules(rules, sections, facts.end_id, definition, faults)
            rules = rules._replace(columns=window_columns(met - {When.PAD}), pad_id=None)
        _check_columns(manifest.columns, row_columns(met), faults)
        return cls(
            folder=folder,
            manifest=manifest,
            decontaminate=sections.split.decontaminate,
            notebooks=sections.scan.notebooks,
            secrets=sections.secrets,
            sampling=sampling,
            fim=sections.fim,
            variants=sections.variants,
            shape=Shape.of(sections.window, len(facts.prefix) + len(facts.suffix) + len(facts.closing)),
            rules=rules if MASK in rules.columns else rules._replace(pad_id=None),
            pack=pack,
            is_by_repo=sections.window.pack == "repo",
            repo_order=sections.window.repo_order,
            repo_order_seed=sections.window.repo_order_seed,
            spelling=Spelling.of(folder, tokenizer),
            no_tokenizer=why,
        )


def _tokenizer(
    folder: Path, manifest: Manifest, window: WindowConfig, faults: Faults
) -> tuple[Definition | None, Tokenizer | None, str | None]:
    try:
        definition = Definition.read(folder)
    except (OSError, TokenizerError) as error:
        faults.add("special_tokens", f"the tokenizer cannot be read: {error}")
        return None, None, "the tokenizer cannot be read"
    check_fingerprint(manifest, definition.key, faults)
    said = manifest.tokenizer
    named = (said.prefix, said.suffix, said.closing, said.end_id, said.pad_id, said.mask_id)
    if named != (*_frame(window, definition), definition.pad_id, definition.mask_id):
        faults.add("special_tokens", "other special tokens than the tokenizer's", file=MANIFEST)
    try:
        tokenizer = tokenizer_for(definition)
    except (TokenizerError, MissingExtraError) as error:
        return definition, None, str(error)
    if said.vocab_size != tokenizer.vocab_size:
        what = f"vocab_size is {said.vocab_size}, the tokenizer's is {tokenizer.vocab_size}"
        faults.add("ids", what, file=MANIFEST)
        return definition, None, "the manifest and the tokenizer differ"
    return definition, tokenizer, None


def _frame(window: WindowConfig, definition: Definition) -> tuple[Any, ...]:
    """Special ids before and behind each window, behind the last one of a document, and between documents."""
    end_id = definition.end_id if window.end_token is None else definition.id_of(window.end_token)
    end_id = None if window.end_token == NO_END_TOKEN else end_id
    if window.special_tokens == "documents":
        return definition.begin_ids, (), () if end_id is None else (end_id,), end_id
    return (*definition.template, (), end_id)


def _own_ids(
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
        return fim_frame(sections.window, definition) if sections.fim.is_on else None
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


def _check_columns(columns: Sequence[str], wanted: Collection[str], faults: Faults) -> None:
    for name in COLUMNS:
        if (name in columns) != (name in wanted):
            faults.add("schema", f"columns and settings differ about {name}", file=MANIFEST)

"""train_tokenizer(): learn a vocabulary from the train text of a corpus, and write it with the splits of the corpus.

sources ─► steps of a build up to the decision ─► text of train ─► learn ─► verify ─► OUT

A vocabulary must not be learned from text that a later build holds out. Splits depend on a tokenizer, because shares
and spans are counted in tokens, and the new tokenizer does not exist yet. So the splits are assigned with an existing
tokenizer, and are written next to the vocabulary for the later build.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import msgspec

from gristmill.config.config import Config
from gristmill.core.errors import ConfigError, InputError
from gristmill.core.layout import FILES, TOKENIZER
from gristmill.core.names import counted, path_text
from gristmill.core.plain_files import read_plain
from gristmill.core.progress import Progress
from gristmill.core.records import Split
from gristmill.core.version import __version__
from gristmill.lab.vocabulary.corpus import (
    Corpus,
    DatasetCorpus,
    find_dataset_source,
    open_source_corpus,
    write_errors_as_output_errors,
)
from gristmill.lab.vocabulary.learn import LearnedVocabulary, import_tokenizers, learn
from gristmill.lab.vocabulary.location import RECORD, TokenizerLocation
from gristmill.lab.vocabulary.tokenizer_files import (
    MAX_SIZE,
    MIN_SIZE,
    PATTERN_NAMES,
    SPECIAL_TOKENS,
    TEMPLATE_NAMES,
    PatternName,
    TemplateName,
    make_definition,
)
from gristmill.lab.vocabulary.verify import Verification, verify
from gristmill.lab.vocabulary.vocabulary import SplitTokenizer, Vocabulary
from gristmill.pipeline.inputs import local_sources
from gristmill.tokenizers.locate import locate

DEFAULT_SIZE = 32_000
VERSIONED_PACKAGES = ("gigatoken", "tokenizers")


class _Options(NamedTuple):
    """Options of a training run."""

    size: int
    pattern: PatternName
    template: TemplateName

    def check(self) -> None:
        if not MIN_SIZE <= self.size <= MAX_SIZE:
            raise ConfigError(
                f"size must be from {MIN_SIZE} ({len(SPECIAL_TOKENS)} special tokens, 256 bytes and a merge) to "
                f"{MAX_SIZE:,}, got {self.size!r}. Try --size {DEFAULT_SIZE}."
            )
        for name, choices in (("pattern", PATTERN_NAMES), ("template", TEMPLATE_NAMES)):
            if getattr(self, name) not in choices:
                raise ConfigError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}.")


def train_tokenizer(
    config: Config,
    size: int = DEFAULT_SIZE,
    *,
    pattern: PatternName = "cl100k",
    template: TemplateName = "roberta",
    progress: Progress | None = None,
) -> Vocabulary:
    """Train a tokenizer and write it to `config.out`.

    `size` is the number of ids, `pattern` splits text into words, and `template` sets the tokens around a window. The
    other settings of `config` must be those of the later build, so that the build has the same splits.
    """
    progress, options = progress or Progress(), _Options(size, pattern, template)
    options.check()
    import_tokenizers()
    location = TokenizerLocation.of(config.out)
    progress.seconds.clear()
    with write_errors_as_output_errors(), _open_corpus(config, location, progress) as corpus:
        if not corpus.num_files[Split.TRAIN]:
            raise InputError(
                "the train split has no files, but the vocabulary is learned from this split. Check --split."
            )
        with progress.phase("learn", total=corpus.num_files[Split.TRAIN]) as step:
            learned = learn(corpus, size, pattern, step.advance)
        definition = make_definition(location.out.name, learned.vocab, learned.merges, pattern, template)
        with location.staged() as stage, progress.phase("verify", total=sum(corpus.num_files.values())) as step:
            definition.write(stage)
            corpus.write_files_table(stage / FILES)
            verification = verify(locate(str(stage)), corpus, step.advance)
            vocabulary = _describe(options, learned, verification, corpus, _digests(stage))
            vocabulary.warnings.extend(_location_warnings(config, location))
            (stage / RECORD).write_bytes(msgspec.json.format(msgspec.json.encode(vocabulary)) + b"\n")
            location.publish(stage)
    return vocabulary


@contextmanager
def _open_corpus(config: Config, location: TokenizerLocation, progress: Progress) -> Iterator[Corpus]:
    """Open the corpus. By default, the splits of an earlier run at the same location are used."""
    location.require_replaceable()
    dataset = find_dataset_source(config)
    if dataset is not None:
        yield DatasetCorpus(dataset)
        return
    split = config.split
    if location.is_file and location.splits.is_file() and split.previous is None and not split.fresh:
        split = msgspec.structs.replace(split, previous=str(location.splits))
    config = msgspec.structs.replace(config, split=split)
    with open_source_corpus(config, progress, leave_out=[location.out, *location.files.values()]) as corpus:
        yield corpus


class _Digests(NamedTuple):
    tokenizer: str
    files: str


def _digests(stage: Path) -> _Digests:
    return _Digests(*(hashlib.sha256(read_plain(stage / name)).hexdigest() for name in (TOKENIZER, FILES)))


def _describe(
    options: _Options, learned: LearnedVocabulary, verification: Verification, corpus: Corpus, digests: _Digests
) -> Vocabulary:
    warnings = list(corpus.warnings)
    if len(learned.vocab) < options.size:
        warnings.append(
            f"the vocabulary has {counted(len(learned.vocab), 'id')}, not {options.size:,}, because no other pair of "
            f"tokens occurs twice in the {counted(learned.num_bytes, 'byte')} of train."
        )
    num_train_bytes = verification.splits[Split.TRAIN].bytes
    if learned.num_bytes < num_train_bytes:
        warnings.append(
            f"the vocabulary was learned from a sample of files: {learned.num_bytes:,} of the {num_train_bytes:,} "
            "bytes in train."
        )
    split_tokenizer = corpus.tokenizer
    return Vocabulary(
        gristmill=__version__,
        versions={name: version(name) for name in VERSIONED_PACKAGES},
        size=len(learned.vocab),
        requested_size=options.size,
        merges=len(learned.merges),
        special_tokens={token: index for index, token in enumerate(SPECIAL_TOKENS)},
        pattern=options.pattern,
        template=options.template,
        learned_bytes=learned.num_bytes,
        compared_bytes=verification.bytes_compared,
        splits=verification.splits,
        previous_splits=corpus.previous,
        split_tokenizer=SplitTokenizer(
            name=split_tokenizer.name, sha256=split_tokenizer.sha256, revision=split_tokenizer.revision
        ),
        settings=corpus.settings,
        sha256=digests.tokenizer,
        splits_sha256=digests.files,
        warnings=warnings,
    )


def _location_warnings(config: Config, location: TokenizerLocation) -> Iterator[str]:
    """Warn if the output is inside a source, because a build of the source would read the tokenizer too."""
    if find_dataset_source(config) is not None:
        return
    for source in local_sources(config):
        if source.only_files is None and Path(source.root) in location.out.parents:
            name = os.path.relpath(location.out, source.root)
            yield f"the tokenizer {path_text(name)} is inside a source. Exclude it with --exclude, or move it."

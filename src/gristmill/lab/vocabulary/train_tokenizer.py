"""train_tokenizer(): a vocabulary from the train text of a corpus, and the splits it went by.

sources ─► the steps of a build, to the decision ─► train's text ─► learn ─► prove ─► OUT

What is held out of a later build must not have been learnt from. Splits depend on a tokenizer (shares and spans count
its tokens), and the new one is not there yet: so the decision is made with another, and written down for that build.
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
from gristmill.lab.vocabulary.corpus import Corpus, DatasetCorpus, corpus_of_sources, dataset_in, errors_as_ours
from gristmill.lab.vocabulary.learn import Learnt, import_tokenizers, learn
from gristmill.lab.vocabulary.location import FACTS, Place
from gristmill.lab.vocabulary.proof import Proof, prove
from gristmill.lab.vocabulary.tokenizer_files import (
    LARGEST,
    PATTERN_NAMES,
    SMALLEST,
    SPECIAL_TOKENS,
    TEMPLATE_NAMES,
    PatternName,
    TemplateName,
    definition_of,
)
from gristmill.lab.vocabulary.vocabulary import Decider, Vocabulary
from gristmill.pipeline.intake import local_sources
from gristmill.tokenizers.locate import locate

DEFAULT_SIZE = 32_000
VERSIONED = ("gigatoken", "tokenizers")


class _Asked(NamedTuple):
    size: int
    pattern: PatternName
    template: TemplateName

    def check(self) -> None:
        if not SMALLEST <= self.size <= LARGEST:
            raise ConfigError(
                f"size must be from {SMALLEST} ({len(SPECIAL_TOKENS)} special tokens, 256 bytes, a merge) to "
                f"{LARGEST:,}, got {self.size!r}. Try --size {DEFAULT_SIZE}."
            )
        for name, known in (("pattern", PATTERN_NAMES), ("template", TEMPLATE_NAMES)):
            if getattr(self, name) not in known:
                raise ConfigError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}.")


def train_tokenizer(
    config: Config,
    size: int = DEFAULT_SIZE,
    *,
    pattern: PatternName = "cl100k",
    template: TemplateName = "roberta",
    progress: Progress | None = None,
) -> Vocabulary:
    """Into `config.out`; the other settings are those of the build that is to follow."""
    progress, asked = progress or Progress(), _Asked(size, pattern, template)
    asked.check()
    import_tokenizers()
    place = Place.of(config.out)
    progress.seconds.clear()
    with errors_as_ours(), _opened(config, place, progress) as corpus:
        if not corpus.num_files[Split.TRAIN]:
            raise InputError("no file is in train, and a vocabulary is learnt from nothing else. Look at --split.")
        with progress.phase("learn", total=corpus.num_files[Split.TRAIN]) as step:
            learnt = learn(corpus, size, pattern, step.advance)
        definition = definition_of(place.out.name, learnt.vocab, learnt.merges, pattern, template)
        with place.staged() as stage, progress.phase("prove", total=sum(corpus.num_files.values())) as step:
            definition.write(stage)
            corpus.write_files_table(stage / FILES)
            proof = prove(locate(str(stage)), corpus, step.advance)
            made = _described(asked, learnt, proof, corpus, _digests(stage))
            made.warnings.extend(_inside(config, place))
            (stage / FACTS).write_bytes(msgspec.json.format(msgspec.json.encode(made)) + b"\n")
            place.publish(stage)
    return made


@contextmanager
def _opened(config: Config, place: Place, progress: Progress) -> Iterator[Corpus]:
    place.refuse_foreign()
    dataset = dataset_in(config)
    if dataset is not None:
        yield DatasetCorpus(dataset)
        return
    split = config.split
    if place.is_file and place.splits.is_file() and split.previous is None and not split.fresh:
        split = msgspec.structs.replace(split, previous=str(place.splits))
    config = msgspec.structs.replace(config, split=split)
    with corpus_of_sources(config, progress, leave_out=[place.out, *place.files.values()]) as corpus:
        yield corpus


class _Digests(NamedTuple):
    tokenizer: str
    files: str


def _digests(stage: Path) -> _Digests:
    return _Digests(*(hashlib.sha256(read_plain(stage / name)).hexdigest() for name in (TOKENIZER, FILES)))


def _described(asked: _Asked, learnt: Learnt, proof: Proof, corpus: Corpus, digests: _Digests) -> Vocabulary:
    warnings = list(corpus.warnings)
    if len(learnt.vocab) < asked.size:
        warnings.append(
            f"the vocabulary has {counted(len(learnt.vocab), 'id')}, not {asked.size:,}: in "
            f"{counted(learnt.num_bytes, 'byte')} of train no other pair of tokens is there twice."
        )
    whole = proof.splits[Split.TRAIN].bytes
    if learnt.num_bytes < whole:
        warnings.append(f"it was learnt from {learnt.num_bytes:,} of the {whole:,} bytes in train, taken by file.")
    decider = corpus.tokenizer
    return Vocabulary(
        gristmill=__version__,
        versions={name: version(name) for name in VERSIONED},
        size=len(learnt.vocab),
        size_asked=asked.size,
        merges=len(learnt.merges),
        special_tokens={token: index for index, token in enumerate(SPECIAL_TOKENS)},
        pattern=asked.pattern,
        template=asked.template,
        learnt_bytes=learnt.num_bytes,
        compared_bytes=proof.bytes_compared,
        splits=proof.splits,
        previous_splits=corpus.previous,
        decided_by=Decider(name=decider.name, sha256=decider.sha256, revision=decider.revision),
        settings=corpus.settings,
        sha256=digests.tokenizer,
        splits_sha256=digests.files,
        warnings=warnings,
    )


def _inside(config: Config, place: Place) -> Iterator[str]:
    """A build that reads the source would read the tokenizer as well."""
    if dataset_in(config) is not None:
        return
    for source in local_sources(config):
        if source.only is None and Path(source.root) in place.out.parents:
            name = os.path.relpath(place.out, source.root)
            yield f"{path_text(name)} lies in its own source: leave it out of a build (--exclude), or move it."

"""compare_tokenizers(): count the tokens that several tokenizers need for the text of a corpus."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from gristmill.config.config import Config
from gristmill.config.presets import with_preset
from gristmill.config.settings import WindowConfig
from gristmill.core.errors import ConfigError
from gristmill.core.names import path_text
from gristmill.core.progress import Progress
from gristmill.core.records import Split
from gristmill.lab.vocabulary.corpus import Corpus, DatasetCorpus, Text, find_dataset_source, open_source_corpus
from gristmill.lab.vocabulary.location import TokenizerLocation, find_trained_splits
from gristmill.lab.vocabulary.vocabulary_text import TextCounts, TokenizerCounts, TokenizerTable
from gristmill.tokenizers.control_tokens import FIM_NAMES, MASK_NAMES
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.locate import BUNDLED, locate
from gristmill.tokenizers.tokenizer import tokenizer_for
from gristmill.windows.cut import WindowShape, cut


def compare_tokenizers(
    config: Config, names: Sequence[str] = (), *, progress: Progress | None = None
) -> TokenizerTable:
    """Encode the text of a corpus with each tokenizer, and count tokens and windows.

    `names` defaults to the tokenizer of the dataset, or to codebert for sources. Nothing is written to `config.out`.
    If `config.out` is a dataset, its splits are reused.
    """
    progress = progress or Progress()
    progress.seconds.clear()
    definitions = _locate_all(names, config.tokenizer.cache_dir)
    trained_names = [name for name in names if find_trained_splits(name) is not None]
    split_tokenizer = next(iter(trained_names), None) if _has_no_given_splits(config) else None
    with _open_corpus(config, split_tokenizer, trained_names, progress) as corpus:
        window = with_preset(config, has_mask=True).window  # the same overlap for all tokenizers
        counters = [_Counter(one, window) for one in definitions or [corpus.tokenizer]]
        splits: Counter[Split] = Counter()
        languages: dict[str, Counter[str]] = {}
        with progress.phase("count", total=sum(corpus.num_files.values())) as step:
            for split in Split:
                for text in corpus.texts(split):
                    num_bytes = sum(map(len, text.spans))
                    splits[split] += num_bytes
                    languages.setdefault(text.language, Counter()).update(files=1, bytes=num_bytes)
                    for counter in counters:
                        counter.count(text, split)
                    step.advance(1)
        by_language = {name: TextCounts(**languages[name]) for name in _by_size(languages)}
        return TokenizerTable(
            window_length=config.window.length,
            overlap=window.num_overlap_tokens,
            splits={split: TextCounts(files=corpus.num_files[split], bytes=splits[split]) for split in Split},
            languages=by_language,
            tokenizers=[counter.counts(splits.total(), by_language) for counter in counters],
            splits_of=split_tokenizer,
            warnings=corpus.warnings,
        )


def _locate_all(names: Sequence[str], cache_dir: str | None) -> list[Definition]:
    """Locate the named tokenizers, and give their definitions distinct names."""
    repeated = next((name for name, count in Counter(names).items() if count > 1), None)
    if repeated is not None:
        raise ConfigError(f"the tokenizer {repeated!r} is named twice. Name each tokenizer once.")
    definitions = [locate(name, cache_dir=cache_dir) for name in names]
    if len({one.name for one in definitions}) == len(definitions):
        return definitions
    # Tokenizers in different folders have the same name, so all are named by their paths.
    return [msgspec.structs.replace(one, name=path_text(name)) for one, name in zip(definitions, names, strict=True)]


def _has_no_given_splits(config: Config) -> bool:
    """Return True if neither a dataset nor the settings determine the splits."""
    return find_dataset_source(config) is None and config.split.previous is None and not config.split.fresh


@contextmanager
def _open_corpus(
    config: Config, split_tokenizer: str | None, trained_names: Sequence[str], progress: Progress
) -> Iterator[Corpus]:
    """Open the corpus. For sources, the steps of a build use codebert, regardless of the compared tokenizers.

    If `split_tokenizer` is not None, the splits that it was trained with are reused.
    """
    dataset = find_dataset_source(config)
    if dataset is not None:
        yield DatasetCorpus(dataset)
        return
    split = config.split
    if split_tokenizer is not None:
        split = msgspec.structs.replace(split, previous=str(find_trained_splits(split_tokenizer)))
    tokenizer = msgspec.structs.replace(config.tokenizer, name=BUNDLED)
    config = msgspec.structs.replace(config, split=split, tokenizer=tokenizer)
    locations = [TokenizerLocation.of(name) for name in trained_names]
    excluded = [path for location in locations for path in (location.out, *location.files.values())]
    with open_source_corpus(config, progress, leave_out=excluded) as corpus:
        yield corpus


def _by_size(languages: dict[str, Counter[str]]) -> list[str]:
    return sorted(languages, key=lambda name: (-languages[name]["bytes"], name))


class _Counter:
    """Counts the tokens and windows of one tokenizer."""

    def __init__(self, definition: Definition, window: WindowConfig) -> None:
        self._definition = definition
        self._engine = tokenizer_for(definition)
        self._shape = WindowShape.of(window, definition.template.num_special)
        self._splits: Counter[Split] = Counter()
        self._languages: Counter[str] = Counter()
        self._num_windows = self._num_unknown = 0

    def count(self, text: Text, split: Split) -> None:
        unknown_id = self._definition.unknown_id
        for span in text.spans:
            ids = self._engine.encode(span).ids
            self._splits[split] += len(ids)
            self._languages[text.language] += len(ids)
            self._num_windows += len(cut(len(ids), self._shape)) if len(ids) else 0
            self._num_unknown += int((ids == unknown_id).sum()) if unknown_id is not None else 0

    def counts(self, num_bytes: int, languages: dict[str, TextCounts]) -> TokenizerCounts:
        definition, num_tokens = self._definition, self._splits.total()
        contents = definition.added_texts
        mask = definition.named_id("mask_token", MASK_NAMES)
        return TokenizerCounts(
            name=definition.name,
            engine=self._engine.engine,
            vocab_size=self._engine.vocab_size,
            tokens=num_tokens,
            bytes_per_token=round(num_bytes / max(1, num_tokens), 4),
            windows=self._num_windows,
            tokens_by_split={split: self._splits[split] for split in Split},
            tokens_by_language={name: self._languages[name] for name in languages},
            unknown_tokens=self._num_unknown,
            around=[
                contents.get(index, str(index)) for index in (*definition.template.prefix, *definition.template.suffix)
            ],
            mask=None if mask is None else contents.get(mask, str(mask)),
            has_fim=any(all(definition.id_of(name) is not None for name in names) for names in FIM_NAMES),
            decodes_exactly=self._engine.decodes_exactly,
        )

"""compare_tokenizers(): the text of a corpus, encoded by several tokenizers: who needs how many tokens for it?"""

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
from gristmill.lab.vocabulary.corpus import Corpus, DatasetCorpus, Text, corpus_of_sources, dataset_in
from gristmill.lab.vocabulary.location import Place, splits_beside
from gristmill.lab.vocabulary.vocabulary_text import TextFacts, TokenizerCounts, TokenizerTable
from gristmill.tokenizers.control_tokens import FIM_NAMES, MASK_NAMES
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.locate import BUNDLED, locate
from gristmill.tokenizers.tokenizer import tokenizer_for
from gristmill.windows.cut import WindowShape, cut


def compare_tokenizers(
    config: Config, names: Sequence[str] = (), *, progress: Progress | None = None
) -> TokenizerTable:
    """Without names: the dataset's own tokenizer, or codebert. `config.out` counts only as in a plan, for splits."""
    progress = progress or Progress()
    progress.seconds.clear()
    definitions = _located(names, config.tokenizer.cache_dir)
    trained_here = [name for name in names if splits_beside(name) is not None]
    split_name = next(iter(trained_here), None) if _leaves_splits_open(config) else None
    with _opened(config, split_name, trained_here, progress) as corpus:
        window = with_preset(config, has_mask=True).window  # one overlap for all
        counters = [_Counter(one, window) for one in definitions or [corpus.tokenizer]]
        splits: Counter[Split] = Counter()
        languages: dict[str, Counter[str]] = {}
        with progress.phase("count", total=sum(corpus.num_files.values())) as step:
            for split in Split:
                for text in corpus.texts(split):
                    num_bytes = sum(map(len, text.stretches))
                    splits[split] += num_bytes
                    languages.setdefault(text.language, Counter()).update(files=1, bytes=num_bytes)
                    for counter in counters:
                        counter.count(text, split)
                    step.advance(1)
        by_language = {name: TextFacts(**languages[name]) for name in _most_first(languages)}
        return TokenizerTable(
            window_length=config.window.length,
            overlap=window.num_shared,
            splits={split: TextFacts(files=corpus.num_files[split], bytes=splits[split]) for split in Split},
            languages=by_language,
            tokenizers=[counter.told(splits.total(), by_language) for counter in counters],
            splits_of=split_name,
            warnings=corpus.warnings,
        )


def _located(names: Sequence[str], cache_dir: str | None) -> list[Definition]:
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise ConfigError(f"the tokenizer {twice!r} is named twice.")
    found = [locate(name, cache_dir=cache_dir) for name in names]
    if len({one.name for one in found}) == len(found):
        return found
    # Folders of one name in different places: told apart by the words that named them.
    return [msgspec.structs.replace(one, name=path_text(name)) for one, name in zip(found, names, strict=True)]


def _leaves_splits_open(config: Config) -> bool:
    return dataset_in(config) is None and config.split.previous is None and not config.split.fresh


@contextmanager
def _opened(
    config: Config, split_name: str | None, trained_here: Sequence[str], progress: Progress
) -> Iterator[Corpus]:
    """The decision is codebert's, so that the text is the same whichever tokenizers are compared."""
    dataset = dataset_in(config)
    if dataset is not None:
        yield DatasetCorpus(dataset)
        return
    split = config.split
    if split_name is not None:
        split = msgspec.structs.replace(split, previous=str(splits_beside(split_name)))
    tokenizer = msgspec.structs.replace(config.tokenizer, name=BUNDLED)
    config = msgspec.structs.replace(config, split=split, tokenizer=tokenizer)
    places = [Place.of(name) for name in trained_here]
    left_out = [path for place in places for path in (place.out, *place.files.values())]
    with corpus_of_sources(config, progress, leave_out=left_out) as corpus:
        yield corpus


def _most_first(languages: dict[str, Counter[str]]) -> list[str]:
    return sorted(languages, key=lambda name: (-languages[name]["bytes"], name))


class _Counter:
    def __init__(self, definition: Definition, window: WindowConfig) -> None:
        self._definition = definition
        self._engine = tokenizer_for(definition)
        self._shape = WindowShape.of(window, definition.template.num_special)
        self._splits: Counter[Split] = Counter()
        self._languages: Counter[str] = Counter()
        self._num_windows = self._num_unknown = 0

    def count(self, text: Text, split: Split) -> None:
        unknown_id = self._definition.unknown_id
        for stretch in text.stretches:
            ids = self._engine.encode(stretch).ids
            self._splits[split] += len(ids)
            self._languages[text.language] += len(ids)
            self._num_windows += len(cut(len(ids), self._shape)) if len(ids) else 0
            self._num_unknown += int((ids == unknown_id).sum()) if unknown_id is not None else 0

    def told(self, num_bytes: int, languages: dict[str, TextFacts]) -> TokenizerCounts:
        definition, num_tokens = self._definition, self._splits.total()
        spelled = definition.added_texts
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
                spelled.get(index, str(index)) for index in (*definition.template.prefix, *definition.template.suffix)
            ],
            mask=None if mask is None else spelled.get(mask, str(mask)),
            has_fim=any(all(definition.id_of(name) is not None for name in names) for names in FIM_NAMES),
            gives_text_back=self._engine.gives_text_back,
        )

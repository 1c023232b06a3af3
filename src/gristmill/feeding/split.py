"""A split that is fed to a training: its rows, how its windows lie, and the collators that fit them."""

from collections.abc import Collection, Sequence
from pathlib import Path

from gristmill.errors import ConfigError, DatasetError
from gristmill.feeding.collating import CausalCollator, MaskedCollator
from gristmill.feeding.frame import Frame, Pad
from gristmill.feeding.items import DEFAULT_COLUMNS, ItemFormat, StoredRows
from gristmill.feeding.masking import MASK_RATE
from gristmill.feeding.ranks import place_of
from gristmill.manifest import Manifest
from gristmill.records import VariantKind
from gristmill.tokenizing.tokenizer import Tokenizer, tokenizer_in


class FedSplit:
    default_columns: tuple[str, ...] = DEFAULT_COLUMNS

    def __init__(
        self,
        rows: StoredRows,
        manifest: Manifest,
        folder: Path,
        *,
        shuffle: bool = True,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        pad: Pad = "batch",
        without: Collection[str] = (),
        columns: Sequence[str] | None = None,
    ) -> None:
        """`folder` is the dataset's, for its tokenizer; `without`: kinds of variants that are left out."""
        if wrong := set(without).difference(VariantKind):
            raise ConfigError(f"there are no variants {min(wrong)!r}: there are {', '.join(VariantKind)}.")
        self.rows, self.manifest, self.folder = rows, manifest, folder
        self.shuffle, self.seed, self.pad = shuffle, seed, pad
        self.without = frozenset(without if "variant" in manifest.columns else ())
        self.rank, self.world_size = place_of(rank, world_size)
        self._items = ItemFormat.of(manifest, pad, self.default_columns if columns is None else columns)

    @property
    def frame(self) -> Frame:
        return self._items.frame

    @property
    def tokenizer(self) -> Tokenizer:
        found = tokenizer_in(self.folder)
        if found.definition.sha256 != self.manifest.tokenizer.sha256:
            raise DatasetError(
                f"{str(self.folder)!r} has another tokenizer than when it was opened: it was rebuilt. Open it again."
            )
        return found

    @property
    def has_weights(self) -> bool:
        return "weight" in self.manifest.columns

    def masked_collator(
        self,
        *,
        rate: float = MASK_RATE,
        whole_identifiers: bool = False,
        fresh_only: bool = False,
        seed: int | None = None,
        multiple_of: int = 1,
    ) -> MaskedCollator:
        return MaskedCollator(
            self.frame,
            self.tokenizer,
            seed=self.seed if seed is None else seed,
            rate=rate,
            whole_identifiers=whole_identifiers,
            fresh_only=fresh_only,
            pad=self.pad,
            multiple_of=multiple_of,
        )

    def causal_collator(self, *, fresh_only: bool = False, multiple_of: int = 1) -> CausalCollator:
        return CausalCollator(self.frame, fresh_only=fresh_only, pad=self.pad, multiple_of=multiple_of)

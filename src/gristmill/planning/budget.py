"""Training arithmetic: how many ids another setting went through, and which overlap to take for it.

At a given number of ids a larger overlap costs no training time: an epoch is longer, and there are fewer of them. It
shows each token in more places instead of in the same place more often, as long as the budget goes over each token at
least as often as one epoch does. Beyond half of a window neighbours are mostly the same, for twice the disk.
"""

from collections.abc import Iterator, Sequence

import msgspec

from gristmill.errors import ConfigError
from gristmill.planning.result import Budget, OverlapPlan, Pick

PASSES_WITHOUT_BUDGET = 4
"""Four epochs are worth 3.7 times the data (Muennighoff et al. 2023): so many are assumed where no budget is named."""
MANY_PASSES = 16
"""Worth 10.5 times the data (the same); beyond, repeating adds little."""
LARGE_BYTES = 1_000_000_000


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan is asked beside the configuration of a build."""

    sample: int | None = None
    """Look at about so many files only."""
    batch_size: int = 32
    budget_tokens: int | None = None
    epochs: float | None = None
    sequences: int | None = None
    """With `epochs`: so many of so many sequences each are the budget."""

    def __post_init__(self) -> None:
        for name in ("sample", "batch_size", "budget_tokens", "epochs", "sequences"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ConfigError(f"--{name.replace('_', '-')} must be larger than 0, got {value}.")
        if (self.epochs is None) != (self.sequences is None):
            raise ConfigError("--epochs and --sequences go together: try --epochs 200 --sequences 11000.")
        if self.epochs is not None and self.budget_tokens is not None:
            raise ConfigError("--budget-tokens and --epochs with --sequences say the same thing; use one of them.")

    def budget(self, length: int) -> Budget | None:
        if self.budget_tokens is not None:
            return Budget(tokens=self.budget_tokens)
        if self.epochs is None or self.sequences is None:
            return None
        tokens = round(self.epochs * self.sequences * length)
        return Budget(tokens=tokens, epochs=self.epochs, sequences=self.sequences, length=length)


def pick(overlaps: Sequence[OverlapPlan], budget: Budget | None, length: int) -> Pick:
    """The largest overlap up to half a window whose epoch does not go over a token more often than the budget does."""
    none = overlaps[0]
    passes = PASSES_WITHOUT_BUDGET if budget is None else budget.tokens / none.train_tokens
    fitting = [one for one in overlaps if one.overlap <= length // 2 and one.redundancy <= passes]
    chosen = max(fitting, key=lambda one: one.overlap, default=none)
    return Pick(
        overlap=chosen.overlap,
        compress=chosen.jsonl_bytes > LARGE_BYTES,
        why=list(_reasons(chosen, overlaps, budget, passes, length)),
    )


def _reasons(
    chosen: OverlapPlan, overlaps: Sequence[OverlapPlan], budget: Budget | None, passes: float, length: int
) -> Iterator[str]:
    none = overlaps[0]
    if chosen.overlap:
        yield (
            "what stands at the edge of one window is further inside the next: "
            f"each token is shown {chosen.redundancy:.2f} times, in different places"
        )
    if budget is None:
        if chosen.overlap:
            longer = chosen.train_tokens / none.train_tokens
            yield f"an epoch has {longer:.2f} times the ids of one without overlap: so many times fewer do the same"
    elif chosen.overlap:
        yield (
            f"the budget goes over each token {passes:,.1f} times in any case, so this costs no training time: "
            f"{chosen.epochs:,.1f} epochs instead of {none.epochs:,.1f} without overlap"
        )
    else:
        yield (
            f"the budget goes over each token {passes:,.1f} times: with overlap some would be shown again before "
            "others are shown at all"
        )
    larger = next((one for one in overlaps if one.overlap > chosen.overlap), None)
    if larger is not None and chosen.overlap:
        yield (
            f"overlap {larger.overlap} would take {larger.jsonl_bytes / chosen.jsonl_bytes:.1f} times the disk, "
            f"for windows of which {larger.overlap / length:.0%} is the same as in the one before"
        )
    if passes > MANY_PASSES:
        yield (
            f"{passes:,.0f} passes over the same tokens are many: past about {MANY_PASSES} they add little "
            "(Muennighoff et al. 2023), so fewer epochs, or more code, will do"
        )

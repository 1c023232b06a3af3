"""Training arithmetic: how many ids another setting went through, and which overlap to take for it.

At a given number of ids a larger overlap costs no training time: an epoch is longer, and there are fewer of them. It
shows each token in more places instead of in the same place more often, as long as the budget goes over each token at
least as often as one epoch does. Beyond half of a window neighbours are mostly the same, for twice the disk.
"""

from collections.abc import Iterator, Sequence

import msgspec

from gristmill.core.errors import ConfigError
from gristmill.core.text import size_text
from gristmill.planning.plan_result import Budget, OverlapPlan, Pick

FEW_PASSES = 4
"""Four epochs are worth 3.7 times the data (Muennighoff et al. 2023): so many are assumed where no budget is named."""
MANY_PASSES = 16
"""Beyond, repeating adds little (the same, for models that predict the next token)."""
MOST = 10**18
"""Of anything that is asked for: beyond, it is a slip of the hand."""
LARGE_BYTES = 1_000_000_000
"""Rows that take more are better compressed: a row can still be reached alone."""


class PlanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan is asked beside the configuration of a build."""

    sample: int | None = None
    """Look at about so many files only."""
    batch_size: int = 32
    budget_tokens: int | None = None
    epochs: float | None = None
    sequences: int | None = None
    """With `epochs`: so many of so many sequences each are the budget."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not 0 < value <= MOST:
                raise ConfigError(
                    f"--{name.replace('_', '-')} must be larger than 0 and at most 10^18, got {str(value)[:24]}."
                )
        if (self.epochs is None) != (self.sequences is None):
            raise ConfigError("--epochs and --sequences go together: try --epochs 200 --sequences 11000.")
        if self.epochs is not None and self.budget_tokens is not None:
            raise ConfigError("--budget-tokens and --epochs with --sequences say the same thing; use one of them.")

    def budget(self, length: int) -> Budget | None:
        if self.budget_tokens is not None:
            return Budget(tokens=self.budget_tokens)
        if self.epochs is None or self.sequences is None:
            return None
        tokens = max(1, round(self.epochs * self.sequences * length))
        return Budget(tokens=tokens, epochs=self.epochs, sequences=self.sequences, length=length)


def pick(overlaps: Sequence[OverlapPlan], budget: Budget | None, length: int) -> Pick:
    """The largest overlap up to half a window whose epoch does not go over a token more often than the budget does.

    Where a size is asked for that leaves windows out, overlap would take the place of text: then the largest overlap at
    which none is left out, or none at all.
    """
    without = overlaps[0]
    is_bounded = budget is not None and without.train_tokens > 0
    # An epoch goes over a token more than once where --target-windows asks for more than there is.
    passes = budget.tokens / without.train_tokens * without.redundancy if budget and is_bounded else float(FEW_PASSES)
    candidates = [one for one in overlaps if one.overlap <= length // 2]
    fitting = [one for one in candidates if one.windows_per_token <= passes and not one.is_cut_short]
    chosen = max(fitting, key=_overlap_of, default=without)
    compress = chosen.jsonl_bytes > LARGE_BYTES
    why = [*_about_places(chosen)]
    why += _about_budget(chosen, without, passes) if is_bounded else _about_epochs(chosen, without)
    held_back = next((one for one in candidates if one.overlap > chosen.overlap), None)
    if held_back is not None and held_back.is_cut_short:
        why.append(
            f"at overlap {held_back.overlap} there are more windows than are asked for: some text would be in none, so "
            "that other text can be in two"
        )
    elif held_back is not None:
        why.append(
            f"overlap {held_back.overlap} would show each token {held_back.windows_per_token:.2f} times in one epoch, "
            f"and the budget reaches {passes:.2f}"
        )
    else:
        why += _about_larger(chosen, overlaps, length)
    if compress:
        why.append(f"compressed, the rows take {size_text(chosen.jsonl_zst_bytes)}, and are still read one at a time")
    return Pick(overlap=chosen.overlap, compress=compress, why=why)


def _overlap_of(one: OverlapPlan) -> int:
    return one.overlap


def _about_places(chosen: OverlapPlan) -> Iterator[str]:
    if chosen.overlap:
        yield (
            "what stands at the edge of one window is further inside the next: "
            f"each token is shown {chosen.windows_per_token:.2f} times, in different places"
        )


def _about_epochs(chosen: OverlapPlan, without: OverlapPlan) -> Iterator[str]:
    if chosen.overlap:
        longer = chosen.tokens / max(1, without.tokens)
        yield f"an epoch is {longer:.2f} times as long as one without overlap, so {1 / longer:.0%} as many do the same"


def _about_budget(chosen: OverlapPlan, without: OverlapPlan, passes: float) -> Iterator[str]:
    if chosen.overlap:
        yield (
            f"the budget goes over each token {passes:,.1f} times in any case, so this costs no training time: "
            f"{chosen.epochs_for_budget:,.1f} epochs instead of {without.epochs_for_budget:,.1f}"
        )
    if passes > MANY_PASSES:
        yield (
            f"the budget is more than the data is worth: past about {MANY_PASSES} passes over the same tokens a model "
            "that predicts the next one learns little more (Muennighoff et al. 2023)"
        )


def _about_larger(chosen: OverlapPlan, overlaps: Sequence[OverlapPlan], length: int) -> Iterator[str]:
    larger = next((one for one in overlaps if one.overlap > chosen.overlap), None)
    if larger is not None and chosen.overlap:
        room = f"{larger.jsonl_bytes / chosen.jsonl_bytes:.1f} times the room as JSONL"
        same = f"{larger.overlap / length:.0%} is the same as in the one before"
        yield f"overlap {larger.overlap} would take {room}, for windows of which {same}"

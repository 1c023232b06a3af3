"""Choose the overlap for a training budget, which is a number of ids.

With a fixed number of ids, a larger overlap costs no training time: an epoch is longer, and there are fewer epochs.
Each token is shown at more positions instead of more often at the same position, as long as the budget is enough for
one epoch. With an overlap of more than half a window, neighboring windows are mostly the same, and the rows take more
than twice as much disk space as without overlap.
"""

from collections.abc import Iterator, Sequence

import msgspec

from gristmill.core.errors import ConfigError
from gristmill.core.text import size_text
from gristmill.planning.plan_result import Budget, OverlapPlan, Pick

FEW_PASSES = 4
"""Number of passes assumed without a budget. Four passes are worth 3.7 times the data (Muennighoff et al. 2023)."""
MANY_PASSES = 16
"""Number of passes beyond which next-token prediction improves little (Muennighoff et al. 2023)."""
MAX_VALUE = 10**18
"""Maximum of every option. A larger number is probably a typo."""
LARGE_BYTES = 1_000_000_000
"""Size of the JSONL rows above which compression is recommended."""


class PlanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a plan, in addition to the configuration of the build."""

    sample: int | None = None
    """Approximate number of files to read. None reads all files."""
    batch_size: int = 32
    """Windows per training step."""
    budget_tokens: int | None = None
    """Number of ids that the training run processes."""
    epochs: float | None = None
    """Number of epochs of a training run that sets the budget. Requires `sequences`."""
    sequences: int | None = None
    """Number of sequences in one epoch of this training run. Each has the window length."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not 0 < value <= MAX_VALUE:
                raise ConfigError(
                    f"--{name.replace('_', '-')} must be larger than 0 and at most 10^18, got {str(value)[:24]}."
                )
        if (self.epochs is None) != (self.sequences is None):
            raise ConfigError("--epochs and --sequences must be given together, like --epochs 200 --sequences 11000.")
        if self.epochs is not None and self.budget_tokens is not None:
            raise ConfigError(
                "--budget-tokens cannot be combined with --epochs and --sequences, because both set the budget. Leave "
                "out --budget-tokens, or --epochs and --sequences."
            )

    def budget(self, length: int) -> Budget | None:
        """Return the budget for windows of `length` ids, or None if no option sets a budget."""
        if self.budget_tokens is not None:
            return Budget(tokens=self.budget_tokens)
        if self.epochs is None or self.sequences is None:
            return None
        tokens = max(1, round(self.epochs * self.sequences * length))
        return Budget(tokens=tokens, epochs=self.epochs, sequences=self.sequences, length=length)


def pick_overlap(overlaps: Sequence[OverlapPlan], budget: Budget | None, length: int) -> Pick:
    """Pick the largest overlap, up to half a window, at which the budget is enough for one epoch.

    An overlap at which --max-windows or --target-windows leaves windows out is not picked, because repeated text would
    displace other text. If no overlap fits, pick the smallest. Without a budget, training is assumed to show each token
    FEW_PASSES times.
    """
    no_overlap = overlaps[0]
    has_budget = budget is not None and no_overlap.train_tokens > 0
    # If --target-windows exceeds the number of windows, one epoch shows a token more than once.
    passes = (
        budget.tokens / no_overlap.train_tokens * no_overlap.redundancy if budget and has_budget else float(FEW_PASSES)
    )
    candidates = [one for one in overlaps if one.overlap <= length // 2]
    fitting = [one for one in candidates if one.windows_per_token <= passes and not one.is_cut_short]
    chosen = max(fitting, key=_overlap_of, default=no_overlap)
    compress = chosen.jsonl_bytes > LARGE_BYTES
    reasons = [*_position_reasons(chosen)]
    reasons += _budget_reasons(chosen, no_overlap, passes) if has_budget else _epoch_reasons(chosen, no_overlap)
    next_larger = next((one for one in candidates if one.overlap > chosen.overlap), None)
    if next_larger is not None and next_larger.is_cut_short:
        reasons.append(
            f"at overlap {next_larger.overlap} there are more windows than requested: some text would be left out, "
            "so that other text can be in two windows"
        )
    elif next_larger is not None:
        limit = (
            f"the budget allows only {passes:.2f}" if has_budget else f"only {passes:g} are assumed without a budget"
        )
        reasons.append(
            f"overlap {next_larger.overlap} would show each token {next_larger.windows_per_token:.2f} times in one "
            f"epoch, but {limit}"
        )
    else:
        reasons += _larger_overlap_reasons(chosen, overlaps, length)
    if compress:
        reasons.append(
            f"compressed, the rows take {size_text(chosen.jsonl_zst_bytes)} and can still be read one at a time"
        )
    return Pick(overlap=chosen.overlap, compress=compress, why=reasons)


def _overlap_of(one: OverlapPlan) -> int:
    return one.overlap


def _position_reasons(chosen: OverlapPlan) -> Iterator[str]:
    if chosen.overlap:
        yield (
            "a token at the edge of one window is further inside the next: "
            f"each token is shown {chosen.windows_per_token:.2f} times on average, at different positions"
        )


def _epoch_reasons(chosen: OverlapPlan, no_overlap: OverlapPlan) -> Iterator[str]:
    if chosen.overlap:
        longer = chosen.tokens / max(1, no_overlap.tokens)
        yield f"an epoch is {longer:.2f} times as long as without overlap, so {1 / longer:.0%} of the epochs are enough"


def _budget_reasons(chosen: OverlapPlan, no_overlap: OverlapPlan, passes: float) -> Iterator[str]:
    if chosen.overlap:
        yield (
            f"the budget covers each token {passes:,.1f} times with any overlap, so overlap costs no training time: "
            f"{chosen.epochs_for_budget:,.1f} epochs instead of {no_overlap.epochs_for_budget:,.1f}"
        )
    if passes > MANY_PASSES:
        yield (
            f"the budget is too large for this data: after about {MANY_PASSES} passes over the same tokens, a model "
            "that predicts the next token learns little more (Muennighoff et al. 2023)"
        )


def _larger_overlap_reasons(chosen: OverlapPlan, overlaps: Sequence[OverlapPlan], length: int) -> Iterator[str]:
    larger = next((one for one in overlaps if one.overlap > chosen.overlap), None)
    if larger is not None and chosen.overlap:
        space = f"{larger.jsonl_bytes / chosen.jsonl_bytes:.1f} times the space as JSONL"
        repeated = f"{larger.overlap / length:.0%} of each window would repeat the previous one"
        yield f"overlap {larger.overlap} would take {space}, and {repeated}"

"""Results of a comparison: intervals, verdicts, curves, text and page."""

import math

import msgspec
import numpy as np
import pytest

from gristmill import ConfigError
from gristmill.lab.comparison.comparison import (
    Comparison,
    CurvePoint,
    DatasetFacts,
    RunResult,
    best_by_validation,
    mean_curves,
)
from gristmill.lab.comparison.comparison_markdown import comparison_markdown
from gristmill.lab.comparison.comparison_text import comparison_json, comparison_text
from gristmill.lab.comparison.frozen import FrozenFacts, TrainOverlap
from gristmill.lab.comparison.statistics import (
    DatasetScores,
    Interval,
    compare_pairs,
    interval_of,
    interval_text,
    t_quantile,
)


def scores(name, *values, totals=None):
    by_file = None if totals is None else dict(enumerate(totals))
    return DatasetScores(name, dict(enumerate(values)), by_file)


@pytest.mark.parametrize(
    ("confidence", "degrees", "expected"),
    [
        (0.95, 1, 12.7062),
        (0.95, 2, 4.3027),
        (0.95, 3, 3.1824),
        (0.95, 4, 2.7764),
        (0.95, 9, 2.2622),
        (0.95, 30, 2.0423),
        (0.95, 100_000, 1.9623),
        (0.99, 2, 9.9248),
        (0.99, 5, 4.0321),
        (0.5, 2, 0.8165),
    ],
)
def test_quantiles_match_published_tables(confidence, degrees, expected):
    assert t_quantile(confidence, degrees) == pytest.approx(expected, abs=1e-4)


def test_interval_contains_the_true_mean_in_95_percent_of_cases():
    chance = np.random.default_rng(0)
    samples = chance.normal(1.0, 0.1, (4000, 3))
    intervals = [interval_of(sample) for sample in samples.tolist()]
    share = np.mean([abs(one.mean - 1.0) <= one.half_width for one in intervals])
    assert share == pytest.approx(0.95, abs=0.012)


def test_runs_are_compared_by_seed():
    """Scores vary more between seeds than between datasets, so the intervals of unpaired scores would overlap."""
    one, two = scores("A", 1.3, 1.5, 1.1), scores("B", 1.27, 1.468, 1.069)
    (verdict,) = compare_pairs([one, two])
    assert verdict.better == "B"
    assert verdict.text == "B is better than A by 0.031 ± 0.002 bits per byte"
    assert verdict.difference.mean == pytest.approx(0.031)
    assert interval_of(list(one.by_seed.values())).half_width > 0.4


def test_lower_score_is_better_in_either_order():
    (verdict,) = compare_pairs([scores("A", 1.0, 1.01, 1.02), scores("B", 2.0, 2.01, 2.03)], "nats")
    assert verdict.better == "A"
    assert verdict.text == "A is better than B by 1.003 ± 0.014 nats"


def test_difference_within_the_interval_is_not_measurable():
    (verdict,) = compare_pairs([scores("A", 1.000, 1.010, 1.002), scores("B", 1.004, 1.002, 1.000)])
    assert verdict.better is None
    assert verdict.text == "no measurable difference between A and B (0.002 ± 0.015 bits per byte)"


def test_identical_runs_have_no_measurable_difference():
    (verdict,) = compare_pairs([scores("A", 1.1, 1.2, 1.3), scores("B", 1.1, 1.2, 1.3)])
    assert (verdict.better, verdict.difference) == (None, Interval(0.0, 0.0))
    assert verdict.text == "no measurable difference between A and B (0.000 ± 0.000 bits per byte)"


def test_one_seed_gives_no_verdict():
    (verdict,) = compare_pairs([scores("A", 1.1), scores("B", 0.5)])
    assert (verdict.better, verdict.difference.half_width) == (None, None)
    assert verdict.text == "no verdict on A and B: one seed is not enough, use --seeds 3"


def test_run_without_score_gives_no_verdict():
    (verdict,) = compare_pairs([scores("A", 1.1, math.nan), scores("B", 0.5, 0.6)])
    assert verdict.better is None
    assert verdict.text == "no verdict on A and B: a run has no score"


def test_different_seeds_are_rejected():
    with pytest.raises(ConfigError, match="have different seeds"):
        compare_pairs([DatasetScores("A", {0: 1.0, 1: 1.0}), DatasetScores("B", {0: 1.0, 2: 1.0})])


def test_more_pairs_require_a_larger_difference():
    """The difference is large enough for a single pair, but not for one of three pairs."""
    one, two = scores("A", 1.000, 1.010, 1.005), scores("B", 0.990, 1.004, 0.997)
    assert compare_pairs([one, two])[0].better == "B"
    first, *_ = three = compare_pairs([one, two, scores("C", 5.0, 5.1, 5.2)])
    assert [(verdict.first, verdict.second) for verdict in three] == [("A", "B"), ("A", "C"), ("B", "C")]
    assert first.better is None
    assert first.confidence == pytest.approx(1 - 0.05 / 3)
    assert three[1].better == "A"


def test_equal_datasets_rarely_get_a_verdict():
    chance = np.random.default_rng(1)
    num_wrong = 0
    for _ in range(300):
        runs = [scores(str(number), *chance.normal(1.0, 0.01, 3).tolist()) for number in range(4)]
        num_wrong += any(verdict.better for verdict in compare_pairs(runs))
    assert num_wrong <= 300 * 0.05 + 10


def test_interval_over_files_is_wider_than_over_seeds():
    """The whole difference is in one of ten files, so it is significant over seeds, but not over files."""
    weights = np.full(10, 100.0)
    equal, different = np.full(10, 100.0), np.full(10, 100.0)
    different[0] = 50.0
    one = scores("A", 1.0, 1.0, 1.0, totals=[equal] * 3)
    two = scores("B", 0.95, 0.95, 0.95, totals=[different] * 3)
    assert compare_pairs([one, two])[0].better == "B"
    (verdict,) = compare_pairs([one, two], file_weights=weights)
    assert (verdict.better, verdict.files) == (None, 10)
    # The standard error of ten differences, one of them 0.5, is 0.05. With nine degrees of freedom, t is 2.262.
    assert verdict.difference.half_width == pytest.approx(0.05 * 2.2622, abs=1e-4)


def test_equal_difference_in_all_files_gives_a_verdict():
    weights = np.array([100.0, 300.0, 50.0, 700.0])
    one = scores("A", 1.0, 1.001, totals=[weights * 1.0, weights * 1.001])
    two = scores("B", 0.9, 0.901, totals=[weights * 0.9, weights * 0.901])
    (verdict,) = compare_pairs([one, two], file_weights=weights)
    assert verdict.better == "B"
    assert verdict.difference.half_width == pytest.approx(0.0, abs=1e-9)


def test_verdicts_over_seeds_and_files_are_wrong_in_at_most_5_percent_of_cases():
    """The datasets are equal. Noise has a part for each seed, each file, and each pair of seed and file."""
    chance = np.random.default_rng(2)
    weights = chance.integers(500, 5000, 40).astype(float)
    num_wrong = 0
    for _ in range(400):
        by_seed, by_file = chance.normal(0, 0.01, (3, 1)), chance.normal(0, 0.05, (1, 40))
        rates = by_seed + by_file + chance.normal(0, 0.02, (3, 40))
        ends = (rates * weights).sum(axis=1) / weights.sum()
        one = scores("A", *ends.tolist(), totals=list(rates * weights))
        two = scores("B", 0.0, 0.0, 0.0, totals=[np.zeros(40)] * 3)
        num_wrong += compare_pairs([one, two], file_weights=weights)[0].better is not None
    assert num_wrong <= 400 * 0.05 + 8


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(0.0312, 0.0061), "0.031 ± 0.006"),
        (Interval(0.03125, 0.00021), "0.0312 ± 0.0002"),
        (Interval(1.5, None), "1.500"),
        (Interval(1.5, 1e-12), "1.500 ± 0.000"),
        (Interval(12.3456, 4.2), "12.346 ± 4.200"),
    ],
)
def test_intervals_are_formatted_with_significant_decimals(interval, text):
    assert interval_text(interval) == text


def test_best_point_is_the_first_with_the_lowest_validation():
    curve = [CurvePoint(1, 2.0, 9.0), CurvePoint(2, 1.0, 8.0), CurvePoint(3, 1.0, 7.0), CurvePoint(4, math.nan, 6.0)]
    assert best_by_validation(curve) == curve[1]
    assert best_by_validation([CurvePoint(1, None, 9.0)]) is None


def run_of(dataset: str, seed: int, end: float, own_validation: float | None) -> RunResult:
    before = None if own_validation is None else own_validation + 0.5
    curve = (CurvePoint(20_000_000, before, end + 0.4), CurvePoint(40_000_000, own_validation, end))
    return RunResult(
        dataset=dataset,
        seed=seed,
        curve=curve,
        end=end,
        at_best_validation=None if own_validation is None else end,
        seconds=1234.5,
        tokens_per_second=32_402.6,
    )


ENDS = {"plain": [1.300, 1.310, 1.305], "mill|1": [1.270, 1.278, 1.275]}
OWN_VALIDATIONS = {"plain": [0.700, 0.712, 0.704], "mill|1": [1.270, 1.276, 1.271]}


def small_comparison(num_seeds: int = 3) -> Comparison:
    runs = [
        run_of(name, seed, ENDS[name][seed], OWN_VALIDATIONS[name][seed]) for name in ENDS for seed in range(num_seeds)
    ]
    against = [("plain", 130_282, 60_000_000, 6_995, 1), ("mill|1", 56_299, 28_511_267, 0, 0)]
    frozen = FrozenFacts(
        source=None,
        files=70,
        tokens=485_847,
        windows=1_913,
        window_length=512,
        overlap=256,
        prefix=(0,),
        suffix=(2,),
        tokens_before=497_147,
        against=tuple(
            TrainOverlap(name=name, windows=windows, ids=ids, span_tokens=spans, near_duplicate_files=files)
            for name, windows, ids, spans, files in against
        ),
        sha256="536428cb" * 8,
    )
    datasets = [
        DatasetFacts(
            name=name,
            windows=windows,
            tokens=14_430_029,
            ids=ids,
            epochs=40_000_000 / ids,
            padding=1 - ids / (windows * 512),
            fingerprint="",
        )
        for name, windows, ids, *_ in against
    ]
    return Comparison(
        model="tiny",
        unit="bits per byte",
        budget_tokens=40_000_000,
        datasets=tuple(datasets),
        runs=tuple(runs),
        frozen=frozen,
        verdicts=tuple(compare_pairs([scores(name, *ends[:num_seeds]) for name, ends in ENDS.items()])),
        verdicts_at_best=(),
        command="gristmill compare plain 'mill|1' --out c",
        device="CPU",
        versions={"torch": "2.13.0"},
    )


TEXT = """\
model   tiny, 40,000,000 tokens per run, 3 seeds
test    485,847 tokens in 70 files (held out by all datasets), 1,913 windows of 512 tokens, sha256 536428cb5364
        11,300 of 497,147 tokens were removed, because a train split contains them:
          plain contains 6,995 tokens in spans of 50 or more, and near-duplicates of 1 file

dataset  windows  padding  epochs     at the end  at best validation  own validation          off by
plain    130,282    10.1%    0.67  1.305 ± 0.012       1.305 ± 0.012   0.705 ± 0.015  -0.600 ± 0.004
mill|1    56,299     1.1%    1.40  1.274 ± 0.010       1.274 ± 0.010   1.272 ± 0.008  -0.002 ± 0.005

at the end: mill|1 is better than plain by 0.031 ± 0.003 bits per byte

scores are bits per byte on the frozen test set, lower is better; ±: 95% interval of Student's t over 3 seeds
off by: own validation minus the test score; if it is far below 0, own validation is too optimistic
at best validation: the test set includes validation files, which were also used to choose the model
verdicts also hold for other seeds, but only for these test files"""


def test_comparison_text():
    assert comparison_text(small_comparison()) == TEXT


def test_text_of_one_seed_has_no_intervals():
    text = comparison_text(small_comparison(1))
    assert "±" not in text
    assert "no verdict on plain and mill|1: one seed is not enough, use --seeds 3" in text
    assert "there are no intervals, because there is only one seed" in text


PAGE = """\
# Which dataset trains the better model

`gristmill compare plain 'mill|1' --out c`

- at the end: mill\\|1 is better than plain by 0.031 ± 0.003 bits per byte

![Scores over the tokens trained on](c%20d.svg)

| dataset | windows | padding | epochs | at the end | at best validation | own validation | off by |
| :-- | --: | --: | --: | --: | --: | --: | --: |
| `plain` | 130,282 | 10.1% | 0.67 | 1.305 ± 0.012 | 1.305 ± 0.012 | 0.705 ± 0.015 | -0.600 ± 0.004 |
| `mill\\|1` | 56,299 | 1.1% | 1.40 | 1.274 ± 0.010 | 1.274 ± 0.010 | 1.272 ± 0.008 | -0.002 ± 0.005 |

- scores are bits per byte on the frozen test set, lower is better; ±: 95% interval of Student's t over 3 seeds
- off by: own validation minus the test score; if it is far below 0, own validation is too optimistic
- at best validation: the test set includes validation files, which were also used to choose the model
- verdicts also hold for other seeds, but only for these test files

## The test set

485,847 tokens in 70 files (held out by all datasets), 1,913 windows of 512 tokens, sha256 536428cb5364. 11,300 of 497,147 tokens were removed, because a train split contains them: plain contains 6,995 tokens in spans of 50 or more, and near-duplicates of 1 file.

## The runs

tiny, 40,000,000 tokens per run, 3 seeds.

| dataset | seed | at the end | at best validation | own validation | seconds | tokens/s |
| :-- | --: | --: | --: | --: | --: | --: |
| `plain` | 0 | 1.3000 | 1.3000 | 0.7000 | 1,234 | 32,403 |
| `plain` | 1 | 1.3100 | 1.3100 | 0.7120 | 1,234 | 32,403 |
| `plain` | 2 | 1.3050 | 1.3050 | 0.7040 | 1,234 | 32,403 |
| `mill\\|1` | 0 | 1.2700 | 1.2700 | 1.2700 | 1,234 | 32,403 |
| `mill\\|1` | 1 | 1.2780 | 1.2780 | 1.2760 | 1,234 | 32,403 |
| `mill\\|1` | 2 | 1.2750 | 1.2750 | 1.2710 | 1,234 | 32,403 |

## Method

Every run has the same model, token budget, schedule and test set. Runs differ in the dataset and the seed, and all datasets use the same seeds. The test set was frozen before training. It consists of the files that every dataset holds out (or of a separate test set), without near-duplicates of train files and without spans of 50 or more tokens that also occur in a train split. Two datasets are compared seed by seed.

CPU, torch 2.13.0
"""


def test_comparison_markdown():
    assert comparison_markdown(small_comparison(), "c d.svg") == PAGE


def test_json_can_be_decoded_and_has_the_scores():
    comparison = small_comparison()
    text = comparison_json(comparison)
    assert msgspec.json.decode(text, type=Comparison) == comparison
    assert msgspec.json.decode(text)["datasets"][0]["scores"]["end"]["mean"] == pytest.approx(1.305)


def test_curves_are_means_over_seeds_with_a_band():
    plain, mill = mean_curves(small_comparison())
    assert (plain.dataset, mill.dataset) == ("plain", "mill|1")
    assert plain.tokens == [20_000_000, 40_000_000]
    assert plain.test.mean == pytest.approx([1.705, 1.305])
    assert plain.validation.mean == pytest.approx([1.205333, 0.705333], abs=1e-6)
    half = interval_of(ENDS["plain"]).half_width
    assert plain.test.low == pytest.approx([1.705 - half, 1.305 - half])
    assert plain.test.high == pytest.approx([1.705 + half, 1.305 + half])


def test_curve_of_one_seed_has_no_band_and_validation_is_optional():
    comparison = small_comparison(1)
    runs = (run_of("plain", 0, 1.3, None), run_of("mill|1", 0, 1.2, 1.1))
    plain, mill = mean_curves(msgspec.structs.replace(comparison, runs=runs))
    assert (plain.validation, plain.test.low) == (None, None)
    assert mill.validation.mean == pytest.approx([1.6, 1.1])
    assert "| - | - | - |" in comparison_markdown(msgspec.structs.replace(comparison, runs=runs))

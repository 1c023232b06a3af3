"""gristmill compare"""

from collections.abc import Sequence

import gristmill
from gristmill.cli.parsers import add_output_options, parse_whole_number, parser_for
from gristmill.cli.signals import delay_signals
from gristmill.cli.train import add_training_options, config_of, log_to_stderr, require_datasets
from gristmill.core.extras import require_curves, require_lora, require_training
from gristmill.core.names import printable, shell_quote


def compare(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "compare A B [C...] --out DIR [options]",
        "Train the same model on each dataset with the same budget and the same seeds, and score all models on one "
        "test set that shares no file with any train split. The command prints a table and a verdict, and writes a "
        "page with loss curves. For example: gristmill compare old new --out verdict --tokens 20e6",
    )
    parser.add_argument("folders", metavar="DATASET", nargs="+", help="two or more datasets")
    parser.add_argument("--out", metavar="DIR", required=True, help="new folder for training runs, curves and the page")
    parser.add_argument(
        "--seeds", metavar="N", type=int, default=3, help="number of training runs per dataset (default: 3)"
    )
    parser.add_argument(
        "--test",
        metavar="DATASET",
        help="score on this dataset's test split, without files that are in any train split (default: score on the "
        "files that all datasets hold out)",
    )
    parser.add_argument(
        "--min-test-tokens",
        metavar="N",
        type=parse_whole_number,
        help="minimum number of tokens in the test set; with fewer than 100,000, confidence intervals are wide "
        "(default: 100,000)",
    )
    parser.add_argument(
        "--budget",
        choices=("tokens", "epochs"),
        default="tokens",
        help="train on every dataset for the same number of tokens, or for the same number of epochs (default: tokens)",
    )
    parser.add_argument("--resume", action="store_true", help="continue an interrupted comparison")
    add_training_options(parser)
    add_output_options(parser, "the comparison")
    given = parser.parse_intermixed_args(arguments)
    config = config_of(given)
    require_training()
    require_curves()
    if config.lora:
        require_lora()
    require_datasets(*given.folders, *([] if given.test is None else [given.test]))
    with delay_signals("gristmill.lab.comparison.compare"):
        from gristmill.lab.comparison.compare import compare  # noqa: PLC0415 - not needed for --help
        from gristmill.lab.comparison.comparison_folder import HTML, MARKDOWN  # noqa: PLC0415
        from gristmill.lab.comparison.comparison_text import comparison_json, comparison_text  # noqa: PLC0415
    is_quiet = given.quiet or given.json
    comparison = compare(
        given.folders,
        given.out,
        config,
        seeds=given.seeds,
        test=given.test,
        budget=given.budget,
        min_test_tokens=given.min_test_tokens,
        resume=given.resume,
        progress=gristmill.Progress(quiet=is_quiet),
        log=(lambda _: None) if is_quiet else log_to_stderr,
        command=" ".join(shell_quote(word) for word in ("gristmill", "compare", *arguments)),
    )
    if given.json:
        print(comparison_json(comparison))
    elif not given.quiet:
        print(comparison_text(comparison))
        print(f"page    {printable(given.out)}: {MARKDOWN}, {HTML}")
    return 0

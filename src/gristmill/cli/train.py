"""gristmill train"""

import argparse
import sys
from collections.abc import Sequence

import msgspec

from gristmill.cli.parsers import Parser, add_output_options, parser_for, whole
from gristmill.cli.signals import signals_held
from gristmill.core.extras import require_lora, require_training
from gristmill.core.names import shell_word
from gristmill.lab.training.train_config import NO_EARLY_STOP, TrainConfig


def train(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "train DIR --out RUN [options]",
        "Train a model on a finished dataset and watch it: a line per evaluation with the time left, metrics.jsonl and "
        "curves.html, which can be opened while it runs. The best model by validation is kept, and scored on test "
        "once, at the end. For example: gristmill train dataset --out run --epochs 20; or, for an adapter of a model "
        "in a folder: gristmill train dataset --out run --model FOLDER --lora",
    )
    parser.add_argument("folder", metavar="DIR", help="a dataset that gristmill has made")
    parser.add_argument("--out", metavar="RUN", required=True, help="a new folder for the model and its curves")
    add_training_options(parser)
    parser.add_argument(
        "--early-stop",
        metavar="N",
        type=int,
        help="stop once N evaluations in a row lower the loss on validation by less than 0.1 %% in all (default: a "
        "tenth of all evaluations, 10 at least)",
    )
    parser.add_argument(
        "--no-early-stop",
        dest="early_stop",
        action="store_const",
        const=NO_EARLY_STOP,
        help="train to the end of the budget, whatever validation says",
    )
    parser.add_argument(
        "--save-every",
        metavar="STEPS",
        type=int,
        help="checkpoints to go on from (default: one a minute, at evaluations)",
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on with a training that was stopped, as if it had not"
    )
    parser.add_argument("--seed", metavar="N", type=int, help="of weights, order, masks and dropout (default: 0)")
    add_output_options(parser, "the result")
    given = parser.parse_args(arguments)
    config = config_of(given)
    require_training()
    if config.lora:
        require_lora()
    require_datasets(given.folder)
    with signals_held("gristmill.lab.training.train"):
        from gristmill.lab.training.processes import is_first_process  # noqa: PLC0415
        from gristmill.lab.training.train import train  # noqa: PLC0415
        from gristmill.lab.training.train_result import result_text  # noqa: PLC0415 - --help does without
    command = " ".join(shell_word(word) for word in ("gristmill", "train", *arguments))
    log = (lambda _: None) if given.quiet or given.json else tell_on_stderr
    result = train(given.folder, given.out, config, resume=given.resume, log=log, command=command)
    if not is_first_process():
        return 0
    if given.json:
        print(msgspec.json.encode(result).decode())
    elif not given.quiet:
        print(result_text(result, given.out))
    return 0


def add_training_options(parser: Parser) -> None:
    """What `train` and `compare` both take."""
    parser.add_argument(
        "--objective",
        choices=("mlm", "causal"),
        help="predict masked tokens, or the next one (default: mlm, if the tokenizer has a mask token and rows are not "
        "packed)",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        default="tiny",
        help="tiny, small or base (CodeBERT's shape, or GPT-2's) with fresh weights; a folder or a Hub id with trained "
        "ones (default: tiny)",
    )
    parser.add_argument(
        "--epochs",
        metavar="N",
        type=float,
        help="times through train (default: 200; 3 for a trained causal model, and with --lora)",
    )
    parser.add_argument("--tokens", metavar="N", type=whole, help="instead of epochs: how many ids to go through")
    parser.add_argument("--batch-size", metavar="N", type=int, default=32, help="windows at once (default: 32)")
    parser.add_argument(
        "--accumulate",
        metavar="N",
        type=int,
        default=1,
        help="batches in a step: 4 x 2 learns as 8 x 1 does, in half the memory (default: 1)",
    )
    parser.add_argument(
        "--learning-rate",
        "--lr",
        metavar="RATE",
        type=float,
        help="at its highest, then down along a cosine to a tenth (default: tiny 1e-3, small 6e-4, base 2e-4; trained "
        "models 2e-5 for causal, 5e-5 for mlm; 2e-4 with --lora). It rises over the first 5 %% of all steps, 3 %% for "
        "a trained causal model and with --lora. AdamW with betas 0.9 and 0.95 (mlm: 0.98), weight decay 0.1 (0 with "
        "--lora), gradients clipped at norm 1",
    )
    parser.add_argument(
        "--lora",
        action="store_true",
        help="train a LoRA adapter of --model instead of its weights; needs gristmill[lora]",
    )
    parser.add_argument("--lora-rank", metavar="N", type=int, default=16, help="(default: 16)")
    parser.add_argument(
        "--lora-alpha", metavar="A", type=int, default=32, help="scales the adapter by A / rank (default: 32)"
    )
    parser.add_argument("--lora-dropout", metavar="SHARE", type=float, default=0.0, help="(default: 0.0)")
    parser.add_argument(
        "--lora-targets",
        metavar="LAYERS",
        default="all-linear",
        help="all-linear, or names like q_proj,v_proj (default: all-linear)",
    )
    parser.add_argument(
        "--mask-rate", metavar="SHARE", type=float, default=0.15, help="of mlm: tokens to be predicted (default: 0.15)"
    )
    parser.add_argument("--whole-identifiers", action="store_true", help="of mlm: mask all tokens of a name, or none")
    parser.add_argument(
        "--eval-every", metavar="STEPS", type=int, help="steps between evaluations (default: an epoch, or 20 in all)"
    )
    parser.add_argument(
        "--eval-windows", metavar="N", type=int, help="score only N windows of validation, evenly spread (default: all)"
    )
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="(default: a GPU if there is one)"
    )
    parser.add_argument("--workers", metavar="N", type=int, default=0, help="processes that read ahead (default: 0)")
    parser.add_argument(
        "--compile", action=argparse.BooleanOptionalAction, help="torch.compile (default: for base on a GPU)"
    )


def config_of(given: argparse.Namespace) -> TrainConfig:
    known = {name: getattr(given, name) for name in TrainConfig.__struct_fields__ if hasattr(given, name)}
    return TrainConfig(**{name: value for name, value in known.items() if value is not None})


def require_datasets(*folders: str) -> None:
    """Raise DatasetError if a folder is no dataset, before PyTorch takes seconds to load."""
    with signals_held("gristmill.dataset.dataset"):
        from gristmill.dataset.dataset import open_dataset  # noqa: PLC0415 - --help does without
    for folder in folders:
        open_dataset(folder)


def tell_on_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

"""gristmill train"""

import argparse
import sys
from collections.abc import Sequence

import msgspec

from gristmill.cli.parsers import Parser, add_output_options, parse_whole_number, parser_for
from gristmill.cli.signals import delay_signals
from gristmill.core.extras import require_lora, require_training
from gristmill.core.names import shell_quote
from gristmill.lab.training.train_config import NO_EARLY_STOP, TrainConfig


def train(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "train DIR --out RUN [options]",
        "Train a model on a dataset. The command prints a line per evaluation with the time left, and writes "
        "metrics.jsonl and curves.html, which you can open during training. It keeps the model with the best "
        "validation loss, and finally scores this model on the test split. For example: gristmill train dataset --out "
        "run --epochs 20. To train a LoRA adapter of a model: gristmill train dataset --out run --model FOLDER --lora",
    )
    parser.add_argument("folder", metavar="DIR", help="a dataset")
    parser.add_argument("--out", metavar="RUN", required=True, help="new folder for the model and its curves")
    add_training_options(parser)
    parser.add_argument(
        "--early-stop",
        metavar="N",
        type=int,
        help="stop if N consecutive evaluations lower the validation loss by less than 0.1 %% in total (default: a "
        "tenth of all evaluations, but at least 10)",
    )
    parser.add_argument(
        "--no-early-stop",
        dest="early_stop",
        action="store_const",
        const=NO_EARLY_STOP,
        help="train for all epochs or tokens, even if the validation loss no longer falls",
    )
    parser.add_argument(
        "--save-every",
        metavar="STEPS",
        type=int,
        help="steps between checkpoints (default: save at an evaluation if the last checkpoint is at least a minute "
        "old)",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue an interrupted training run; the result is the same as without the interruption",
    )
    parser.add_argument(
        "--seed", metavar="N", type=int, help="seed for initial weights, order of rows, masks and dropout (default: 0)"
    )
    add_output_options(parser, "the result")
    given = parser.parse_args(arguments)
    config = config_of(given)
    require_training()
    if config.lora:
        require_lora()
    require_datasets(given.folder)
    with delay_signals("gristmill.lab.training.train"):
        from gristmill.lab.training.processes import is_first_process  # noqa: PLC0415
        from gristmill.lab.training.train import train  # noqa: PLC0415
        from gristmill.lab.training.train_result import result_text  # noqa: PLC0415 - not needed for --help
    command = " ".join(shell_quote(word) for word in ("gristmill", "train", *arguments))
    log = (lambda _: None) if given.quiet or given.json else log_to_stderr
    result = train(given.folder, given.out, config, resume=given.resume, log=log, command=command)
    if not is_first_process():
        return 0
    if given.json:
        print(msgspec.json.encode(result).decode())
    elif not given.quiet:
        print(result_text(result, given.out))
    return 0


def add_training_options(parser: Parser) -> None:
    """Add the options that `train` and `compare` share."""
    parser.add_argument(
        "--objective",
        choices=("mlm", "causal"),
        help="predict masked tokens (mlm), or the next token (causal); the default is causal if rows are packed, if "
        "the preset is causal or fim, or if the tokenizer has no mask token, and mlm otherwise",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        default="tiny",
        help="tiny, small or base, for a model with random weights in the shape of CodeBERT or GPT-2; or the folder or "
        "Hub id of a pretrained model (default: tiny)",
    )
    parser.add_argument(
        "--epochs",
        metavar="N",
        type=float,
        help="passes over the train split (default: 200; 3 for a pretrained causal model or with --lora)",
    )
    parser.add_argument(
        "--tokens", metavar="N", type=parse_whole_number, help="number of tokens to train on, instead of --epochs"
    )
    parser.add_argument("--batch-size", metavar="N", type=int, default=32, help="windows per batch (default: 32)")
    parser.add_argument(
        "--accumulate",
        metavar="N",
        type=int,
        default=1,
        help="batches per step; --batch-size 4 --accumulate 2 trains like --batch-size 8, with half the memory "
        "(default: 1)",
    )
    parser.add_argument(
        "--learning-rate",
        "--lr",
        metavar="RATE",
        type=float,
        help="peak learning rate, followed by a cosine decay to a tenth (default: tiny 1e-3, small 6e-4, base 2e-4; "
        "pretrained models 2e-5 for causal, 5e-5 for mlm; 2e-4 with --lora). Warmup takes 5 %% of all steps, or 3 %% "
        "for a pretrained causal model or with --lora. The optimizer is AdamW with betas 0.9 and 0.98 (0.95 for a "
        "pretrained causal model or with --lora) and weight decay 0.1 (0 with --lora). Gradients are clipped at "
        "norm 1",
    )
    parser.add_argument(
        "--lora",
        action="store_true",
        help="train a LoRA adapter of --model instead of its weights; needs gristmill[lora]",
    )
    parser.add_argument("--lora-rank", metavar="N", type=int, default=16, help="rank of the adapter (default: 16)")
    parser.add_argument(
        "--lora-alpha",
        metavar="A",
        type=int,
        default=32,
        help="multiply the output of the adapter by A / rank (default: 32)",
    )
    parser.add_argument(
        "--lora-dropout", metavar="SHARE", type=float, default=0.0, help="dropout of the adapter (default: 0.0)"
    )
    parser.add_argument(
        "--lora-targets",
        metavar="LAYERS",
        default="all-linear",
        help="layers to adapt: all-linear, or names like q_proj,v_proj (default: all-linear)",
    )
    parser.add_argument(
        "--mask-rate",
        metavar="SHARE",
        type=float,
        default=0.15,
        help="share of tokens to predict with mlm (default: 0.15)",
    )
    parser.add_argument(
        "--whole-identifiers",
        action="store_true",
        help="with mlm, mask either all tokens of an identifier or none of them",
    )
    parser.add_argument(
        "--eval-every",
        metavar="STEPS",
        type=int,
        help="steps between evaluations (default: one evaluation per epoch, or 20 in total in a run of fewer than ten "
        "epochs)",
    )
    parser.add_argument(
        "--eval-windows",
        metavar="N",
        type=int,
        help="score only N evenly spread windows of the validation split (default: all)",
    )
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="device to train on (default: the GPU if one is available)",
    )
    parser.add_argument(
        "--workers", metavar="N", type=int, default=0, help="number of processes that load batches (default: 0)"
    )
    parser.add_argument(
        "--compile",
        action=argparse.BooleanOptionalAction,
        help="compile the complete model with torch.compile on a GPU (default: only for base)",
    )


def config_of(given: argparse.Namespace) -> TrainConfig:
    given_values = {name: getattr(given, name) for name in TrainConfig.__struct_fields__ if hasattr(given, name)}
    return TrainConfig(**{name: value for name, value in given_values.items() if value is not None})


def require_datasets(*folders: str) -> None:
    """Raise DatasetError if a folder is not a dataset. Call this before importing PyTorch, which takes seconds."""
    with delay_signals("gristmill.dataset.dataset"):
        from gristmill.dataset.dataset import open_dataset  # noqa: PLC0415 - not needed for --help
    for folder in folders:
        open_dataset(folder)


def log_to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

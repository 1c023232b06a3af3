"""TRAINERS: the trainers that `gristmill export --for` supports.

The command line, the export, and the tests of the pages in docs/trainers read this table. To add a trainer, add an
entry here, a writer in `trainer_files`, and a page.
"""

from enum import Enum
from string import Template
from typing import NamedTuple

from gristmill.core.records import Split


class InputKind(Enum):
    """Kind of input that a trainer reads."""

    ROWS = "rows of ids"
    """Windows or packed rows, with columns that mark where documents begin."""
    STREAM = "one stream of ids"
    """Complete documents, each followed by its end token. Packed rows cannot be used: they lack some end tokens."""
    TEXT = "documents as text"


TRAIN_AND_VALIDATION = {Split.TRAIN: "train", Split.VALIDATION: "val"}
ALL_SPLITS = {split: str(split) for split in Split}


class Trainer(NamedTuple):
    """A trainer, and the folder that an export writes for it."""

    name: str
    description: str
    """Contents of the folder, as printed after an export and shown on the trainer's page."""
    input_kind: InputKind
    splits: dict[Split, str]
    """The trainer's name for each split that it reads. A split without rows has no file."""
    writer: str
    """Name of the writer function in `gristmill.publish.trainer_files`."""
    snippet_name: str
    """Name of the configuration file."""
    snippet: Template
    """Content of the configuration file.

    $folder is the path of the exported folder, $name its last part, and $length the maximum number of ids in a row.
    """
    command: Template
    """Command that starts the training run, with $folder and $name as in `snippet`."""
    max_vocab_size: int | None = None
    """Largest vocabulary that the trainer can read. None if there is no limit."""
    has_tokenizer: bool = True
    """True if the folder contains the tokenizer's files, in a subfolder `tokenizer`."""

    @property
    def page(self) -> str:
        return f"docs/trainers/{self.name}.md"


_TRL = """\
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

data = load_dataset("$folder")
config = SFTConfig(
    output_dir="$name-model",
    dataset_kwargs={"skip_prepare_dataset": True},  # rows are already tokenized
    packing=False,  # rows are already packed
    padding_free=True,  # position_ids come from seq_lengths, so attention stays within a document
    max_length=None,  # required by padding_free; rows have at most $length ids
)
trainer = SFTTrainer("MODEL", config, train_dataset=data["train"], eval_dataset=data["validation"])
trainer.train()
"""

_TRANSFORMERS = """\
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments, default_data_collator

data = load_dataset("$folder")
model = AutoModelForCausalLM.from_pretrained("MODEL")
model.config.use_cache = False  # with a cache, attention crosses document boundaries
trainer = Trainer(
    model,
    TrainingArguments(output_dir="$name-model"),
    data_collator=default_data_collator,  # other collators add an attention_mask, which lets attention cross documents
    train_dataset=data["train"],
    eval_dataset=data["validation"],
)
trainer.train()
"""

_AXOLOTL = """\
base_model: MODEL
tokenizer_config: $folder/tokenizer
datasets:
  - path: $folder
    split: train
    type:  # empty, because rows already have input_ids, attention_mask and labels
test_datasets:
  - path: $folder
    split: validation
    type:
sequence_len: $length
sample_packing: true  # each row is part of one document; axolotl packs rows without attention between them
eval_sample_packing: true
pad_to_sequence_len: true
attn_implementation: flash_attention_2  # or flex_attention; both prevent attention between packed rows
dataset_prepared_path: $name-prepared
output_dir: $name-model
"""

_NANOGPT = """\
dataset = "$name"
out_dir = "out-$name"
block_size = $length
"""

_NANOCHAT = """\
export NANOCHAT_BASE_DIR="$$(realpath $folder)"
python -m scripts.tok_train
python -m scripts.base_train
"""

_TORCHTITAN = """\
from functools import partial

from datasets import load_dataset
from torchtitan.hf_datasets import DatasetConfig
from torchtitan.hf_datasets.text_datasets import DATASETS, HuggingFaceTextDataLoader


def _text(sample):
    return sample["text"]


for _split in ("train", "validation"):
    DATASETS[f"gristmill_{_split}"] = DatasetConfig(
        path="$folder", loader=partial(load_dataset, split=_split), sample_processor=_text
    )


def train():
    from torchtitan.models.llama3.config_registry import llama3_debugmodel

    config = llama3_debugmodel()  # or the configuration of your model
    config.hf_assets_path = "$folder/tokenizer"
    config.dataloader = HuggingFaceTextDataLoader.Config(dataset="gristmill_train")
    config.validator.enable = True
    config.validator.dataloader = HuggingFaceTextDataLoader.Config(dataset="gristmill_validation", infinite=False)
    return config
"""

_LITGPT = """\
data:
  class_path: litgpt.data.LitData
  init_args:
    data_path: $folder
    split_names: [train, val]
tokenizer_dir: $folder/tokenizer
train:
  max_seq_length: $length
"""

_MEGATRON = """\
--train-data-path $folder/train
--valid-data-path $folder/valid
--test-data-path $folder/test
--tokenizer-type HuggingFaceTokenizer
--tokenizer-model $folder/tokenizer
--seq-length $length
--reset-position-ids
--reset-attention-mask
--eod-mask-loss
"""

_TRAINERS = (
    Trainer(
        "trl",
        "Parquet with input_ids, labels and seq_lengths, for SFTTrainer",
        InputKind.ROWS,
        ALL_SPLITS,
        "write_trl",
        "train.py",
        Template(_TRL),
        Template("python $folder/train.py"),
    ),
    Trainer(
        "transformers",
        "Parquet with input_ids, labels and position_ids, padded to one length, for Trainer",
        InputKind.ROWS,
        ALL_SPLITS,
        "write_transformers",
        "train.py",
        Template(_TRANSFORMERS),
        Template("python $folder/train.py"),
    ),
    Trainer(
        "axolotl",
        "Parquet with input_ids, attention_mask and labels, one part of a document per row",
        InputKind.ROWS,
        ALL_SPLITS,
        "write_axolotl",
        "config.yaml",
        Template(_AXOLOTL),
        Template("axolotl train $folder/config.yaml"),
    ),
    Trainer(
        "nanogpt",
        "train.bin and val.bin with uint16 ids, and meta.pkl",
        InputKind.STREAM,
        TRAIN_AND_VALIDATION,
        "write_nanogpt",
        "config.py",
        Template(_NANOGPT),
        Template("python train.py data/$name/config.py"),
        max_vocab_size=1 << 16,
        has_tokenizer=False,
    ),
    Trainer(
        "nanochat",
        "Parquet shards of text; the last one is the validation split",
        InputKind.TEXT,
        TRAIN_AND_VALIDATION,
        "write_nanochat",
        "train.sh",
        Template(_NANOCHAT),
        Template("sh $folder/train.sh"),
        has_tokenizer=False,
    ),
    Trainer(
        "torchtitan",
        "Parquet with text, for torchtitan's Hugging Face data loader",
        InputKind.TEXT,
        {Split.TRAIN: "train", Split.VALIDATION: "validation"},
        "write_torchtitan",
        "gristmill_config.py",
        Template(_TORCHTITAN),
        Template("PYTHONPATH=$folder torchrun -m torchtitan.train --module gristmill_config --config train"),
    ),
    Trainer(
        "litgpt",
        "chunks in the format of LitData's TokensLoader, read by litgpt.data.LitData",
        InputKind.STREAM,
        TRAIN_AND_VALIDATION,
        "write_litgpt",
        "pretrain.yaml",
        Template(_LITGPT),
        Template("litgpt pretrain MODEL --config $folder/pretrain.yaml"),
    ),
    Trainer(
        "megatron",
        ".bin and .idx files for Megatron-Core's GPTDataset, one document per sequence",
        InputKind.STREAM,
        {Split.TRAIN: "train", Split.VALIDATION: "valid", Split.TEST: "test"},
        "write_megatron",
        "args.txt",
        Template(_MEGATRON),
        Template("torchrun pretrain_gpt.py $$(cat $folder/args.txt)"),
    ),
)
TRAINERS = {trainer.name: trainer for trainer in _TRAINERS}
"""All trainers, keyed by name."""

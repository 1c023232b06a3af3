"""TRAINERS: the table of trainers that `gristmill export --for` writes folders for.

Command line, export, pages (docs/trainers) and their tests read it. To add a trainer, add a row with its writer in
`trainer_files`, and a page.
"""

from enum import Enum
from string import Template
from typing import NamedTuple

from gristmill.core.records import Split


class Reads(Enum):
    """Kinds of rows that trainers read."""

    ROWS = "rows of ids"
    """Windows, or packed rows: the borders of documents are in the columns."""
    STREAM = "one stream of ids"
    """Whole documents one behind the other, each with its end token. Packed rows have no end token at some borders."""
    TEXT = "documents as text"


TRAIN_AND_VALIDATION = {Split.TRAIN: "train", Split.VALIDATION: "val"}
ALL_SPLITS = {split: str(split) for split in Split}


class Trainer(NamedTuple):
    name: str
    text: str
    """Content of the folder, in the help and on the page."""
    reads: Reads
    splits: dict[Split, str]
    """Those it reads, by the name that it reads them under. The folder has no file of a split without rows."""
    writer: str
    """A function of `gristmill.publish.trainer_files`."""
    snippet_name: str
    """The file with its configuration."""
    snippet: Template
    """$folder: as --out names it; $name: the last part of that; $length: the most ids in a row."""
    command: Template
    """Starts the training; with $folder and $name too."""
    largest_vocabulary: int | None = None
    """None: any."""
    has_tokenizer: bool = True
    """The tokenizer's files are in the folder `tokenizer`."""

    @property
    def page(self) -> str:
        return f"docs/trainers/{self.name}.md"


_TRL = """\
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

data = load_dataset("$folder")
config = SFTConfig(
    output_dir="$name-model",
    dataset_kwargs={"skip_prepare_dataset": True},  # rows are ready as they are
    packing=False,  # rows are packed already
    padding_free=True,  # the collator makes position_ids from seq_lengths: attention stays within a document
    max_length=None,  # padding_free demands it; no row is longer than $length ids
)
trainer = SFTTrainer("MODEL", config, train_dataset=data["train"], eval_dataset=data["validation"])
trainer.train()
"""

_TRANSFORMERS = """\
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments, default_data_collator

data = load_dataset("$folder")
model = AutoModelForCausalLM.from_pretrained("MODEL")
model.config.use_cache = False  # with a cache, position_ids do not keep documents apart
trainer = Trainer(
    model,
    TrainingArguments(output_dir="$name-model"),
    data_collator=default_data_collator,  # others add an attention_mask, and documents are no longer kept apart
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
    type:  # none: rows have input_ids, attention_mask and labels
test_datasets:
  - path: $folder
    split: validation
    type:
sequence_len: $length
sample_packing: true  # each row is part of one document: axolotl packs them, and keeps them apart
eval_sample_packing: true
pad_to_sequence_len: true
attn_implementation: flash_attention_2  # or flex_attention: these keep packed rows apart
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
        Reads.ROWS,
        ALL_SPLITS,
        "write_trl",
        "train.py",
        Template(_TRL),
        Template("python $folder/train.py"),
    ),
    Trainer(
        "transformers",
        "Parquet with input_ids, labels and position_ids of one length, for Trainer",
        Reads.ROWS,
        ALL_SPLITS,
        "write_transformers",
        "train.py",
        Template(_TRANSFORMERS),
        Template("python $folder/train.py"),
    ),
    Trainer(
        "axolotl",
        "Parquet with input_ids, attention_mask and labels, a part of one document a row",
        Reads.ROWS,
        ALL_SPLITS,
        "write_axolotl",
        "config.yaml",
        Template(_AXOLOTL),
        Template("axolotl train $folder/config.yaml"),
    ),
    Trainer(
        "nanogpt",
        "train.bin and val.bin, uint16, with meta.pkl",
        Reads.STREAM,
        TRAIN_AND_VALIDATION,
        "write_nanogpt",
        "config.py",
        Template(_NANOGPT),
        Template("python train.py data/$name/config.py"),
        largest_vocabulary=1 << 16,
        has_tokenizer=False,
    ),
    Trainer(
        "nanochat",
        "Parquet shards of text; the last one is the validation split",
        Reads.TEXT,
        TRAIN_AND_VALIDATION,
        "write_nanochat",
        "train.sh",
        Template(_NANOCHAT),
        Template("sh $folder/train.sh"),
        has_tokenizer=False,
    ),
    Trainer(
        "torchtitan",
        "Parquet with text, for its Hugging Face data loader",
        Reads.TEXT,
        {Split.TRAIN: "train", Split.VALIDATION: "validation"},
        "write_torchtitan",
        "gristmill_config.py",
        Template(_TORCHTITAN),
        Template("PYTHONPATH=$folder torchrun -m torchtitan.train --module gristmill_config --config train"),
    ),
    Trainer(
        "litgpt",
        "chunks of LitData's TokensLoader, for litgpt.data.LitData",
        Reads.STREAM,
        TRAIN_AND_VALIDATION,
        "write_litgpt",
        "pretrain.yaml",
        Template(_LITGPT),
        Template("litgpt pretrain MODEL --config $folder/pretrain.yaml"),
    ),
    Trainer(
        "megatron",
        ".bin and .idx of Megatron-Core's GPTDataset, a document a sequence",
        Reads.STREAM,
        {Split.TRAIN: "train", Split.VALIDATION: "valid", Split.TEST: "test"},
        "write_megatron",
        "args.txt",
        Template(_MEGATRON),
        Template("torchrun pretrain_gpt.py $$(cat $folder/args.txt)"),
    ),
)
TRAINERS = {one.name: one for one in _TRAINERS}
"""By name."""

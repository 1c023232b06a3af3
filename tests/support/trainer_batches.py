"""Jobs for library_readers that load exported folders with the libraries of trainers and make batches.

Each job uses the exported configuration and writes the input of the model as JSON.
"""

import json
import os
from argparse import ArgumentParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.update(AXOLOTL_DO_NOT_TRACK="1", HF_HUB_OFFLINE="1", HF_DATASETS_DISABLE_PROGRESS_BARS="1")

SHORT = 'output_dir="{}", max_steps=1, learning_rate=0.0, use_cpu=True, bf16=False, report_to=[], save_strategy="no"'
NUM_LOGITS = 8
"""Number of logits per token that are compared."""


def save_model(folder: str, tokenizer: str, length: int) -> None:
    """Save a tiny causal model with random weights."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    loaded = AutoTokenizer.from_pretrained(tokenizer)
    config = LlamaConfig(
        vocab_size=len(loaded),
        max_position_embeddings=length,
        eos_token_id=loaded.eos_token_id,
        bos_token_id=None,
        **sizes,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    loaded.save_pretrained(folder)


def train_by_script(folder: str, model: str, rows: list[int], answer: str) -> None:
    """Run train.py for one step. Then collate `rows` of the train split, each alone and all as one batch."""
    import torch

    text = (Path(folder) / "train.py").read_text()
    [arguments] = [line.strip() for line in text.splitlines() if "output_dir=" in line]
    output = arguments[arguments.index("output_dir=") :].rstrip("),")
    text = text.replace("MODEL", model).replace(output, SHORT.format(Path(answer).with_suffix("")))
    names: dict[str, Any] = {}
    exec(compile(text, "train.py", "exec"), names)
    trainer = names["trainer"]
    assert trainer.evaluate()["eval_loss"] > 0
    dataset = trainer._remove_unused_columns(names["data"]["train"], "training")
    batches = [trainer.data_collator([dataset[row] for row in group]) for group in (*([row] for row in rows), rows)]
    with torch.no_grad():
        for batch in batches:
            batch["logits"] = trainer.model.eval()(**batch).logits[..., :NUM_LOGITS]
    write(answer, [{name: listed(value) for name, value in batch.items()} for batch in batches])


def logits_alone(model: str, sequences: list[list[int]], answer: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(model).eval()
    with torch.no_grad():
        write(answer, [loaded(input_ids=torch.tensor([ids])).logits[0, :, :NUM_LOGITS].tolist() for ids in sequences])


def pack_with_axolotl(folder: str, answer: str) -> None:
    """Load the datasets in config.yaml as axolotl's prepare_datasets does. Collate four rows into a packed sequence."""
    import yaml
    from axolotl.utils.collators.batching import V2BatchSamplerDataCollatorForSeq2Seq
    from axolotl.utils.data.shared import load_dataset_with_config
    from axolotl.utils.data.utils import handle_long_seq_in_dataset
    from axolotl.utils.data.wrappers import get_dataset_wrapper
    from axolotl.utils.dict import DictDefault
    from axolotl.utils.trainer import process_datasets_for_packing
    from transformers import AutoTokenizer

    config = DictDefault(yaml.safe_load((Path(folder) / "config.yaml").read_text()))
    assert config.sample_packing
    assert config.eval_sample_packing
    tokenizer = AutoTokenizer.from_pretrained(config.tokenizer_config)
    result = {}
    for settings in (*config.datasets, *config.test_datasets):
        loaded = load_dataset_with_config(settings, use_auth_token=False)
        wrapped, _ = get_dataset_wrapper(settings, tokenizer, config, settings.type, loaded)
        kept = handle_long_seq_in_dataset(wrapped, config.sequence_len, config)
        dataset, _ = process_datasets_for_packing(config, kept, None)
        rows = [dataset[row] for row in range(len(dataset))]
        batch = V2BatchSamplerDataCollatorForSeq2Seq(tokenizer)([[dict(row) for row in rows[:4]]])
        result[settings.split] = {"rows": rows, "batch": {name: listed(value) for name, value in batch.items()}}
    write(answer, result)


def load_with_litgpt(folder: str, length: int, answer: str) -> None:
    import warnings

    import yaml
    from litgpt.data import LitData
    from litgpt.tokenizer import Tokenizer

    warnings.simplefilter("ignore")
    config = yaml.safe_load((Path(folder) / "pretrain.yaml").read_text())
    assert config["data"]["class_path"] == "litgpt.data.LitData"
    data = LitData(**{**config["data"]["init_args"], "num_workers": 0})
    data.connect(batch_size=1, max_seq_length=length)
    loaders = {"train": data.train_dataloader(), "val": data.val_dataloader()}
    blocks = {name: [batch[0].tolist() for batch in loader] for name, loader in loaders.items()}
    write(answer, {**blocks, "end_id": Tokenizer(config["tokenizer_dir"]).eos_id})


def load_with_megatron(folder: str, length: int, answer: str) -> None:
    """Build a GPTDataset for each split from args.txt, like Megatron's pretrain_gpt.py."""
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from transformers import AutoTokenizer

    parser = ArgumentParser()
    for name in ("--train-data-path", "--valid-data-path", "--test-data-path", "--tokenizer-model", "--tokenizer-type"):
        parser.add_argument(name)
    parser.add_argument("--seq-length", type=int)
    for name in ("--reset-position-ids", "--reset-attention-mask", "--eod-mask-loss"):
        parser.add_argument(name, action="store_true")
    given = parser.parse_args((Path(folder) / "args.txt").read_text().split())
    tokenizer = AutoTokenizer.from_pretrained(given.tokenizer_model)

    # The attributes of a tokenizer that GPTDataset reads.
    attributes = {
        "eod": tokenizer.eos_token_id,
        "vocab_size": len(tokenizer),
        "pad": tokenizer.pad_token_id,
        "unique_identifiers": {},
    }

    config = GPTDatasetConfig(
        random_seed=1,
        sequence_length=length,
        blend_per_split=[
            ([path], None) for path in (given.train_data_path, given.valid_data_path, given.test_data_path)
        ],
        path_to_cache=str(Path(answer).with_suffix("")),
        tokenizer=SimpleNamespace(**attributes),
        reset_position_ids=given.reset_position_ids,
        reset_attention_mask=given.reset_attention_mask,
        eod_mask_loss=given.eod_mask_loss,
    )
    splits = BlendedMegatronDatasetBuilder(GPTDataset, [None, None, None], lambda: True, config).build()
    result = []
    for dataset in splits:
        samples = [dataset[number] for number in range(len(dataset))]
        documents = [dataset.dataset[number].tolist() for number in range(len(dataset.dataset))]
        result.append(
            {
                "documents": documents,
                "samples": [{name: listed(value) for name, value in one.items()} for one in samples],
            }
        )
    write(answer, result)


def load_with_torchtitan(folder: str, length: int, answer: str) -> None:
    """Register the datasets with gristmill_config.py, and load them as that file configures.

    train() in that file is not called, because it needs Triton.
    """
    from torchtitan.components.tokenizer import HuggingFaceTokenizer
    from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader

    exec((Path(folder) / "gristmill_config.py").read_text(), {})
    tokenizer = HuggingFaceTokenizer(tokenizer_path=str(Path(folder) / "tokenizer"))
    result = {}
    for split in ("train", "validation"):
        config = HuggingFaceTextDataLoader.Config(dataset=f"gristmill_{split}", infinite=False)
        batches = config.build(dp_world_size=1, dp_rank=0, tokenizer=tokenizer, seq_len=length, local_batch_size=1)
        result[split] = [
            {name: value[0].tolist() for name, value in (*inputs.items(), ("labels", labels))}
            for inputs, labels in batches
        ]
    write(answer, result)


def listed(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def write(path: str, value: Any) -> None:
    Path(path).write_text(json.dumps(value))

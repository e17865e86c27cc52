#!/usr/bin/env python3
"""What tokens are trained on with completion_mask, assistant_masks or labels, or none of them, by `axtrain preview` and by TRL's
SFTTrainer, which makes labels of them while it prepares its data: each record alone, and packed.

    trl_masks.py AXTRAIN MODEL [--records N]

MODEL is a folder with a tokenizer. Records are random. Exits with 1 if some differ.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import types

from datasets import Dataset
from trl import SFTConfig
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling, SFTTrainer

LONGEST = 64
KINDS = [(), ("completion_mask",), ("assistant_masks",), ("completion_mask", "assistant_masks"), ("labels", "completion_mask")]


def record(r, columns):
    n = r.randrange(2, LONGEST)
    ids = [r.randrange(3, 250) for _ in range(n)]
    made = {"input_ids": ids, "text": "other"}
    for column in columns:
        bits = [r.randrange(2) for _ in ids[:-1]] + [1]  # something is trained on
        made[column] = [i if b else -100 for i, b in zip(ids, bits)] if column == "labels" else bits
    return made


def by_trl(rows, completion_only, packing, folder):
    """Documents of ids and labels, as the collator without padding has them."""
    args = SFTConfig(output_dir=str(folder), max_length=LONGEST, packing=packing, shuffle_dataset=False, use_cpu=True, bf16=False)
    trainer = types.SimpleNamespace(completion_only_loss=completion_only, chat_template=None)
    data = SFTTrainer._prepare_dataset(trainer, Dataset.from_list(rows), None, args, packing, None, "train")
    collate = DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)
    documents = []
    for row in data:
        batch = collate([row])
        for id_, label, at in zip(*(batch[k][0].tolist() for k in ("input_ids", "labels", "position_ids"))):
            if at == 0:
                documents.append(([], []))
            documents[-1][0].append(id_)
            documents[-1][1].append(label)
    return documents


def by_axtrain(o, folder, rows, inputs, packing):
    (folder / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (folder / "c.yaml").write_text(
        f"base_model: {o.model}\ndatasets: [{{path: {folder}/rows.jsonl}}]\nsequence_len: {LONGEST}\nlearning_rate: 1e-4\n"
        f"micro_batch_size: 1\ngradient_accumulation_steps: 1\nval_set_size: 0\ntrain_on_inputs: {str(inputs).lower()}\n"
        f"sample_packing: {str(packing).lower()}\ndataset_prepared_path: {folder}/cache\n")
    made = json.loads(subprocess.run([o.axtrain, "preview", f"{folder}/c.yaml", "--json", "--rows", str(len(rows))],
                                     check=True, capture_output=True).stdout)
    return [(d["ids"], d["labels"]) for row in made["rows"] for d in row["documents"]]


def first_unlabeled(documents):
    """Nothing predicts a document's first token."""
    return [(ids, [-100, *labels[1:]]) for ids, labels in documents]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("axtrain", type=os.path.abspath)
    p.add_argument("model", type=os.path.abspath)
    p.add_argument("--records", type=int, default=40)
    o = p.parse_args()
    r, wrong, n = random.Random(1), 0, 0
    for columns in KINDS:
        rows = [record(r, columns) for _ in range(o.records)]
        for inputs in (False, True):
            for packing in (False, True):
                with tempfile.TemporaryDirectory() as name:
                    mine = first_unlabeled(by_axtrain(o, pathlib.Path(name), rows, inputs, packing))
                    its = first_unlabeled(by_trl(rows, not inputs, packing, pathlib.Path(name)))
                n += len(its)
                if sorted(mine) != sorted(its):
                    wrong += 1
                    print(f"{columns}, train_on_inputs {inputs}, packing {packing}: they differ")
    print(f"{n} documents compared, {wrong} kinds differ")
    return 1 if wrong else 0


sys.exit(main())

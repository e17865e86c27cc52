"""Random distillations on given answers by TRL's GKDTrainer, GOLDTrainer, DistillationTrainer and IWOPDTrainer (of a part of the vocabulary,
too), and the same by `axtrain train` with kd_teacher: losses, gradient norms, and the weights at the end must agree.

usage: distill_random.py AXTRAIN GOLDENS [--seed N] [--runs N] [--keep]

Data are in their order, and of the trainers but DistillationTrainer a step is one micro-batch: GKDTrainer's means are of these,
and IWOPDTrainer counts a step's tokens once for each of them. Exit code 1 at a difference, whose folder is kept.
Needs: torch transformers trl peft datasets.
"""
import json
import os
import random
import shutil
import sys

import trainer_random as peers  # sets the environment of what follows

import peft
import torch
import transformers
import trl
from datasets import Dataset
from trl.experimental.gkd import GKDConfig, GKDTrainer
from trl.experimental.gold import GOLDConfig, GOLDTrainer
from trl.experimental.iw_opd import IWOPDConfig, IWOPDTrainer

FAMILIES = ("llama", "qwen3", "granite", "olmo2", "phi3")


class Sequential(IWOPDTrainer):
    def _get_train_sampler(self, dataset=None):
        return torch.utils.data.SequentialSampler(self.train_dataset)


class InOrder(GOLDTrainer):
    def _get_train_sampler(self, dataset=None):
        return torch.utils.data.SequentialSampler(self.train_dataset)


class Recorded(trl.DistillationTrainer):
    def _generate_and_score_completions(self, inputs):
        self.rows_now = inputs
        return super()._generate_and_score_completions(inputs)

    def _generate_single_turn(self, *args, **kw):
        return [list(row["recorded"]) for row in self.rows_now]


TRAINERS = {"gkd": (GKDConfig, GKDTrainer), "gold": (GOLDConfig, InOrder), "iw_opd": (IWOPDConfig, Sequential), "distill": (trl.DistillationConfig, Recorded)}

EVALUATED = ("gkd", "gold", "iw_opd")  # on given answers, as ours are but with rl: distill


def draw(r):
    """The trainer, the settings that it shares with axtrain, its own, and axtrain's."""
    name = r.choice(tuple(TRAINERS))
    both = {"learning_rate": r.choice((1e-3, 3e-4)), "max_grad_norm": r.choice((1.0, 0.05)), "weight_decay": r.choice((0.0, 0.1)),
            "gradient_accumulation_steps": r.choice((1, 2)) if name == "distill" else 1, "max_steps": r.choice((3, 5)),
            "adam_beta2": r.choice((0.999, 0.95)), "adam_epsilon": 1e-6, "warmup_steps": r.choice((0, 1)), "seed": r.randint(0, 99),
            "logging_steps": 1}
    beta, temperature = r.choice((0.0, 1.0, 0.5, 0.2, 0.9)), r.choice((1.0, 1.0, 0.7, 2.0))
    args, keys = {"beta": beta}, {"kd_beta": beta}
    if name == "gkd":
        args.update(lmbda=0.0, max_length=400, temperature=temperature, train_sampling_strategy="sequential")  # draws answers alone
    else:
        args["temperature"] = keys["kd_temperature"] = temperature
    if name == "gold":
        args.update(lmbda=0.0, max_length=400, max_completion_length=100)
    if name == "iw_opd":
        args.update(lmbda=0.0, distillation_objective="jsd", loss_top_k=0, max_length=400, max_completion_length=200)
        if r.random() < 0.7:
            args["loss_top_k"] = keys["kd_loss_top_k"] = r.choice((2, 5, 20))
            args["loss_add_tail"] = keys["kd_loss_tail"] = r.random() < 0.5
    if name == "distill":
        args.update(max_completion_length=100, shuffle_dataset=False)
        if beta == 1 and r.random() < 0.5:
            keys.pop("kd_beta")
        if r.random() < 0.5:
            keys["trl"] = {"temperature": keys.pop("kd_temperature")}
        keys.update(rl="distill", trl={**keys.get("trl", {}), "lmbda": 0.0, "max_completion_length": 100})
    return name, both, args, keys


def by_trl(name, args, base, teacher, adapter, folder, rows, evals):
    config, trainer = TRAINERS[name]
    c = config(output_dir=os.path.join(folder, "trl"), report_to=[], save_strategy="no", use_cpu=True, bf16=False,
               gradient_checkpointing=False, disable_tqdm=True, log_level="error", lr_scheduler_type="constant_with_warmup", **args)
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    model, taught = (transformers.AutoModelForCausalLM.from_pretrained(m, dtype=torch.float32) for m in (base, teacher))
    if adapter:
        model = peft.PeftModel.from_pretrained(model, adapter, is_trainable=True)

    def given(row):
        if name != "distill":
            return {"messages": row["prompt"] + row["completion"]}
        ids = tokenizer(row["completion"][0]["content"], add_special_tokens=False)["input_ids"]
        return {"prompt": row["prompt"], "recorded": ids + [tokenizer.eos_token_id]}

    rows, evals = ([given(row) for row in part] for part in (rows, evals))
    t = trainer(model=model, teacher_model=taught, args=c, processing_class=tokenizer, train_dataset=Dataset.from_list(rows),
                **({"eval_dataset": Dataset.from_list(evals)} if "eval_steps" in args else {}))
    t.remove_callback(transformers.PrinterCallback)
    t.train()
    t.save_model(os.path.join(folder, "trl"))
    return t.state.log_history


def main():
    a, work = peers.begin(__doc__)
    peers.make_models(a.axtrain, a.goldens, work, FAMILIES)
    refused = different = 0
    for i in range(a.runs):
        r = random.Random(f"{a.seed} {i}")
        family, taught = r.sample(FAMILIES, 2)
        name, both, args, keys = draw(r)
        folder, base, teacher = os.path.join(work, f"run{i}"), os.path.join(work, family), os.path.join(work, taught)
        os.makedirs(folder)
        micro = r.choice((1, 2, 3))
        rows = [{"prompt": row["prompt"], "completion": row["chosen"]} for row in peers.records(r, "dpo", "chats")]
        rows, evals = rows[:24], rows[24:]
        for part, kept in (("rows", rows), ("evals", evals)):
            with open(os.path.join(folder, part + ".jsonl"), "w", encoding="utf-8") as f:
                f.writelines(json.dumps(row) + "\n" for row in kept)
        adapter = peers.make_adapter(r, base, os.path.join(folder, "adapter"), i) if r.random() < 0.3 else None
        keys.update(base_model=base, kd_teacher=teacher, datasets=[{"path": "rows.jsonl"}], sequence_len=400, micro_batch_size=micro, num_epochs=99,
                    float32=True, device="cpu", save_strategy="no", optimizer="adamw_torch", lr_scheduler="constant_with_warmup",
                    curriculum_sampling=True, shuffle_merged_datasets=False, min_sample_len=1, loss_watchdog_threshold=1e9, **both)
        what = f"{folder}: {name} {family} by {taught}{' lora' if adapter else ''} {args} {both}"
        at = {}
        if r.random() < 0.5 and name in EVALUATED:  # of one batch
            at = {"eval_strategy": "steps", "eval_steps": r.choice((1, 2)), "eval_on_start": True, "per_device_eval_batch_size": 4}
            keys.update(eval_steps=at["eval_steps"], eval_batch_size=4, test_datasets=[{"path": "evals.jsonl"}])
        done, ours = peers.by_axtrain(a.axtrain, keys, folder, adapter, r.random() < 0.3)
        if done.returncode:
            refused += 1
            print(f"{what}: {done.returncode} {done.stderr.strip()[-300:]}", flush=True)
            continue
        theirs = by_trl(name, {**args, **both, **at, "per_device_train_batch_size": micro}, base, teacher, adapter, folder, rows, evals)
        bad = peers.compare(ours, theirs, "sft", one_batch=True) + peers.compare_weights(folder, adapter or base, adapter)
        if bad:
            different += 1
            print(f"{what}:", *bad[:9], sep="\n  ", flush=True)
        elif not a.keep:
            shutil.rmtree(folder)
    print(f"seed {a.seed}: {a.runs - refused - different} of {a.runs} runs equal, {different} different, {refused} refused")
    if not different and not refused and not a.keep:
        shutil.rmtree(work)
    return different + refused > 0


if __name__ == "__main__":
    sys.exit(main())

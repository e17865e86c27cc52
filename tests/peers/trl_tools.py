#!/usr/bin/env python3
"""Steps of `axtrain grpo` and of TRL's GRPOTrainer (sampling by transformers) with the same model, questions and tool.

    trl_tools.py AXTRAIN [--model FOLDER] [--group N] [--steps N] [--pairs N] [--threads N]

The model is a tiny one that is taught to call multiply (slow_tool.py), or FOLDER of the same chat template, with its options. Runs pairs of
axtrain and TRL, and prints for each the median seconds of a step after the first, calls per answer, tokens per answer and
peak memory, then the ratios' medians.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile

from slow_tool import add_model, axtrain, configure, lines, run, teach


def by_axtrain(o, folder, model, out):
    _, memory = axtrain(o, folder, "grpo", "c.yaml", "--quiet", f"base_model={model}", f"output_dir={out}",
                        "learning_rate=1e-6", OMP_NUM_THREADS=str(o.threads))
    steps = [m for m in lines(folder / out / "metrics.jsonl") if "grad_norm" in m][1:]
    return {"seconds": statistics.median(sum(m["phase_seconds"].values()) for m in steps),
            "calls": statistics.mean(m["tools/call_frequency"] for m in steps),
            "tokens": statistics.mean(m["completions/mean_length"] for m in steps), "memory": memory}


def by_trl(o, folder, model):
    text, memory = run([sys.executable, __file__, o.axtrain, "--trl", str(folder), "--model", str(folder / model), "--group",
                        str(o.group), "--steps", str(o.steps), "--threads", str(o.threads)], folder)
    return {**json.loads(text.splitlines()[-1]), "memory": memory}


def train_with_trl(o):
    """In a process of its own, whose memory is TRL's."""
    import time

    import torch
    from datasets import Dataset
    from my_tools import multiply
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(o.threads)
    steps = []

    class Clock(TrainerCallback):
        begun = 0.0

        def on_step_begin(self, *_, **__):
            self.begun = time.monotonic()

        def on_log(self, args, state, control, logs=None, **_):
            if logs and "reward" in logs:
                steps.append((time.monotonic() - self.begun, logs["tools/call_frequency"], logs["completions/mean_length"]))

    folder = pathlib.Path(o.trl)
    data = Dataset.from_list(lines(folder / "questions.jsonl"))
    with tempfile.TemporaryDirectory() as out:
        GRPOTrainer(
            model=o.model, train_dataset=data, tools=[multiply], callbacks=[Clock()],
            reward_funcs=[lambda completions, **_: [float("It is" in (c[-1]["content"] or "")) for c in completions]],
            args=GRPOConfig(
                output_dir=out, per_device_train_batch_size=o.group, gradient_accumulation_steps=16,
                num_generations=o.group, max_completion_length=160, max_tool_calling_iterations=3, learning_rate=1e-6,
                max_steps=o.steps, logging_steps=1, save_strategy="no", report_to="none", use_cpu=True, bf16=False,
                model_init_kwargs={"dtype": torch.float32}, gradient_checkpointing=False,
            ),
        ).train()
    seconds, calls, tokens = zip(*steps[1:])
    print(json.dumps({"seconds": statistics.median(seconds), "calls": statistics.mean(calls), "tokens": statistics.mean(tokens)}))


def main():
    p = argparse.ArgumentParser()
    add_model(p)
    p.add_argument("--group", type=int, default=8)
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--pairs", type=int, default=3)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--trl", help=argparse.SUPPRESS)
    o = p.parse_args()
    if o.trl:
        return train_with_trl(o)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        configure(o, folder, "[my_tools.multiply]")
        model = teach(o, folder, "multiply")
        pairs = [(by_axtrain(o, folder, model, f"out-{i}"), by_trl(o, folder, model)) for i in range(o.pairs)]
    for ours, theirs in pairs:
        for what, row in (("axtrain", ours), ("TRL", theirs)):
            print(f"{what}: {row['seconds']:.2f} s a step, {row['calls']:.2f} calls and {row['tokens']:.0f} tokens an answer, "
                  f"{row['memory']:.2f} GB")
    for key in ("seconds", "memory"):
        print(f"TRL / axtrain, {key}: {statistics.median(theirs[key] / ours[key] for ours, theirs in pairs):.2f}")


if __name__ == "__main__":
    main()

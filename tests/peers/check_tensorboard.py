"""Reads a run's TensorBoard files with TensorBoard itself and compares them with metrics.jsonl.

usage: check_tensorboard.py RUN        (RUN holds metrics.jsonl and runs/)
Every train/* scalar must stand at a step of metrics.jsonl with its value (loss: the mean since the entry before),
every evaluation must be there, no step twice. Prints one JSON line. Needs: tensorboard.
"""
import json, math, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator, SCALARS

run = sys.argv[1]
records = [json.loads(line) for line in open(f"{run}/metrics.jsonl")]
steps = {r["step"]: r for r in records if "loss" in r}
evals = {r["step"]: r for r in records if "eval_loss" in r}
acc = EventAccumulator(f"{run}/runs", size_guidance={SCALARS: 0})
acc.Reload()
tags = acc.Tags()["scalars"]
worst = 0.0


def near(got, want):
    global worst
    if want is None or not math.isfinite(want):
        return
    off = abs(got - want) / max(1e-30, abs(want))
    worst = max(worst, off)
    assert off < 1e-6, (got, want)


assert {"train/loss", "train/grad_norm", "train/learning_rate", "train/epoch"} <= set(tags), tags
before = 0
for e in acc.Scalars("train/loss"):
    assert before < e.step <= max(steps), (before, e.step)
    near(e.value, sum(steps[s]["loss"] for s in range(before + 1, e.step + 1) if s in steps) / max(1, sum(s in steps for s in range(before + 1, e.step + 1))))
    before = e.step
for tag, key in [("grad_norm", "grad_norm"), ("learning_rate", "learning_rate"), ("tokens_per_second", "tokens_per_second"), ("mfu", "mfu"), ("hfu", "hfu")]:
    if f"train/{tag}" in tags:
        for e in acc.Scalars(f"train/{tag}"):
            near(e.value, steps[e.step][key])
shown = {e.step: e.value for e in acc.Scalars("eval/loss")} if evals else {}
assert sorted(shown) == sorted(evals), (shown, evals)
for step, value in shown.items():
    near(value, evals[step]["eval_loss"])
print(json.dumps({"what": "tensorboard", "tags": tags, "entries": len(acc.Scalars("train/loss")), "evaluations": len(evals), "worst_relative_difference": worst}))

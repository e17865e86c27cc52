#!/usr/bin/env python3
"""What reward functions log by log_metric and log_extra, in a run of `axtrain grpo` and in TRL's GRPOTrainer, which is given the
same completions by its rollout_func: metrics of each step, and the columns of TRL's completions.

    reward_log.py AXTRAIN MODEL [--ranks N]

MODEL is a folder that both can read. Prints the number of values compared, and exits with 1 if some differ by more than
float32 does. N data ranks of axtrain are N processes of TRL's; of several, TRL mixes up the values of a column that two functions
log, so that one is not compared.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

STEPS, PROMPTS, GROUP, RECORDS = 3, 2, 4, 24
REWARDS = """
def first(prompts, completions, completion_ids, answer, log_metric, log_extra, trainer_state, **kwargs):
    log_metric("mean/length", sum(len(x) for x in completion_ids) / len(completions))
    for c, a in zip(completions, answer):
        log_metric("values", len(c) * 0.37 + a)
        log_extra("bit", [a])
    log_metric("step_seen", trainer_state.global_step)
    log_metric("max_seen", trainer_state.max_steps)
    log_metric("epoch_seen", trainer_state.epoch)
    log_extra("ids", [" ".join(map(str, x)) for x in completion_ids])
    log_extra("twice", ["first"] * len(completions))
    return [float(len(c)) for c in completions]

async def second(completions, answer, log_metric, log_extra, **kwargs):
    log_metric("values", -1.5)
    if answer[0] % 3:
        log_metric("sometimes", float("nan"))
    log_extra("twice", ["second"] * len(completions))
    log_extra("some", [None if a % 2 else a / 2 for a in answer])
    return [None for c in completions]
"""
METRICS = ["mean/length", "values", "step_seen", "max_seen", "epoch_seen", "sometimes"]
COLUMNS = ["bit", "ids", "twice", "some"]


def lines(path):
    return [json.loads(line) for line in open(path)]


def by_axtrain(o, folder):
    (folder / "mine.py").write_text(REWARDS)
    (folder / "p.jsonl").write_text("".join(json.dumps({"prompt": f"What is after {i}?", "answer": i}) + "\n" for i in range(RECORDS)))
    command = [o.axtrain, "grpo", str(o.config), "--quiet", f"base_model={o.model}", f"output_dir={folder}/out"]
    (folder / "c.yaml").write_text(
        f"rl: grpo\ndatasets: [{{path: {folder}/p.jsonl}}]\nval_set_size: 0\nsequence_len: 64\nfloat32: true\n"
        f"learning_rate: 1e-3\nmax_steps: {STEPS}\nlogging_steps: 1\nmicro_batch_size: {PROMPTS * GROUP // o.ranks}\n"
        f"gradient_accumulation_steps: 1\ntrl:\n  num_generations: {GROUP}\n  max_completion_length: 10\n"
        "  reward_funcs: [mine.first, mine.second]\n")
    if o.ranks > 1:
        command[1:1] = ["launch", "-n", str(o.ranks), "--"]
        command.append(f"dp_shard_size={o.ranks}")
    subprocess.run(command, cwd=folder, check=True, env={**os.environ, "AXTRAIN_PYTHON": sys.executable})
    steps = [m for m in lines(folder / "out/metrics.jsonl") if "grad_norm" in m]
    return steps, lines(folder / "out/completions.jsonl")


def by_trl(o, folder, completions):
    import torch
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    sys.path.insert(0, str(folder))
    import mine

    torch.set_num_threads(1)
    first = [{"prompt": c["prompt"], "answer": c["line"] - 1} for c in completions[::GROUP]]
    rest = [{"prompt": f"rest {i}", "answer": 0} for i in range(RECORDS - len(first))]
    logs = []

    answers = {}
    for c in completions:
        answers.setdefault(c["prompt"], []).append(c)

    class Log(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **_):
            if "reward" in logs:
                kept.append({name: logs.get(name) for name in METRICS})

    kept = logs

    def replay(prompts, trainer):
        mine_now = [answers[p].pop(0) for p in prompts]
        ids = [list(map(int, c["extra"]["ids"].split())) for c in mine_now]
        return {"prompt_ids": [trainer.processing_class(p)["input_ids"] for p in prompts], "completion_ids": ids,
                "logprobs": [[0.0] * len(x) for x in ids]}

    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    GRPOTrainer(
        model=o.model, reward_funcs=[mine.first, mine.second], train_dataset=Dataset.from_list(first + rest), rollout_func=replay,
        callbacks=[Log()],
        args=GRPOConfig(
            output_dir=str(folder / "trl"), per_device_train_batch_size=PROMPTS * GROUP // o.ranks, gradient_accumulation_steps=1,
            num_generations=GROUP, max_completion_length=10, max_steps=STEPS, logging_steps=1, save_strategy="no",
            report_to="none", use_cpu=True, bf16=False, shuffle_dataset=False, log_completions=True, learning_rate=0.0,
            gradient_checkpointing=False, model_init_kwargs={"dtype": "float32"}),
    ).train()
    if os.environ.get("RANK", "0") == "0":
        (folder / "logs.json").write_text(json.dumps(logs))


def run_trl(o, folder):
    import pandas

    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(o.ranks)]
    subprocess.run([*launch, __file__, o.axtrain, o.model, "--ranks", str(o.ranks), "--trl", str(folder)], check=True)
    tables = sorted((folder / "trl/completions").glob("*.parquet"))
    return json.loads((folder / "logs.json").read_text()), [pandas.read_parquet(t).to_dict("records") for t in tables]


def alike(a, b):
    if a is None or b is None or isinstance(b, str):
        return (a is None or a != a) and (b is None or b != b) or a == b
    return math.isclose(a, b, rel_tol=1e-6) or (a != a and b != b)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("axtrain", type=os.path.abspath)
    p.add_argument("model", type=os.path.abspath)
    p.add_argument("--ranks", type=int, default=1)
    p.add_argument("--trl", type=pathlib.Path, help="for itself: a process of TRL's")
    o = p.parse_args()
    if o.trl:
        by_trl(o, o.trl, lines(o.trl / "out/completions.jsonl"))
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        o.config = folder / "c.yaml"
        steps, completions = by_axtrain(o, folder)
        logs, tables = run_trl(o, folder)
    assert len(logs) == len(steps) == len(tables) == STEPS, (len(logs), len(steps), len(tables))
    pairs = [(f"step {s['step']} {name}", s.get(name), log.get(name)) for s, log in zip(steps, logs) for name in METRICS]
    per_step = PROMPTS * GROUP
    for i, c in enumerate(completions):
        row = tables[i // per_step][i % per_step]
        names = [name for name in COLUMNS if o.ranks == 1 or name != "twice"]
        pairs += [(f"completion {i + 1} {name}", c["extra"].get(name), row.get(name)) for name in names]
    wrong = [pair for pair in pairs if not alike(pair[1], pair[2])]
    for what, mine, its in wrong:
        print(f"{what}: {mine!r}, TRL {its!r}")
    print(f"{len(pairs)} values compared, {len(wrong)} differ")
    return 1 if wrong else 0


sys.exit(main())

#!/usr/bin/env python3
"""What a slow tool costs `axtrain grpo`, and how many calls of the sandbox run beside sampling.

    slow_tool.py AXTRAIN [--model FOLDER] [--slow SECONDS] [--every K] [--group N] [--steps N] [--rounds N]

Teaches a tiny model (of tests/goldens, or FOLDER of the same chat template, which then needs another --learning-rate and
--epochs) to call two tools, multiply and python. Then samples the same answers with tools that answer immediately, and with a multiply of which one call in K (10) takes SECONDS
(1), with one process for it and with as many as there are by default (tool_workers): the share of throughput that it
costs, the seconds of all calls, and those in which nothing was sampled. Last, the calls per second of python alone, in the
sandbox. Each figure is the median of steps after the first; the learning rate is next to nothing, so that all runs have the
same answers. With --rounds, the runs are repeated in turn, for a machine that others use as well.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

TOOL = '''import os, time
def count():
    """Calls so far, of all processes."""
    fd = os.open("calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, b".")
    n = os.lseek(fd, 0, os.SEEK_CUR)
    os.close(fd)
    return n

def multiply(a: int, b: int) -> int:
    """
    Multiplies two numbers.

    Args:
        a: One number.
        b: The other.
    """
    every = int(os.environ.get("AXTRAIN_TOOL_EVERY", "0"))
    if every and count() % every == 0:
        time.sleep(float(os.environ["AXTRAIN_TOOL_SECONDS"]))
    return a * b
'''


def run(words, folder, **environment):
    """What it prints, and its peak memory in GB."""
    with tempfile.TemporaryFile("w+") as said:
        p = subprocess.Popen(words, cwd=folder, stdout=said, stderr=subprocess.STDOUT,
                             env={**os.environ, "PYTHONPATH": str(folder), **environment})
        _, status, used = os.wait4(p.pid, 0)
        said.seek(0)
        text = said.read()
    if status:
        raise SystemExit(f"{' '.join(words)}:\n{text}")
    return text, used.ru_maxrss / 1e6


def axtrain(o, folder, *words, **environment):
    return run([o.axtrain, *words], folder, **environment)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def configure(o, folder, tools="[python, my_tools.multiply]"):
    """Answers of a step: 16 prompts, N answers each."""
    questions = [{"prompt": [{"role": "user", "content": f"What is {i} * 7?"}]} for i in range(16)]
    (folder / "questions.jsonl").write_text("".join(json.dumps(q) + "\n" for q in questions))
    (folder / "my_tools.py").write_text(TOOL)
    (folder / "c.yaml").write_text(f"""base_model: {o.model}
rl: grpo
trl:
  num_generations: {o.group}
  max_completion_length: 160
  reward_funcs: ['format:It is']
  tools: {tools}
  max_tool_calling_iterations: 3
datasets:
  - path: questions.jsonl
sequence_len: 1024
micro_batch_size: {o.group}
gradient_accumulation_steps: 16
learning_rate: 1e-30
float32: true
val_set_size: 0
max_steps: {o.steps}
logging_steps: 1
save_strategy: no
""")


def teach(o, folder, only=None):
    """A folder with a model that calls one of the tools, or the one named."""
    out = f"taught-{only}"
    axtrain(o, folder, "grpo", "c.yaml", "--quiet", "max_steps=1", f"output_dir={out}-first")
    prompt = lines(folder / f"{out}-first/completions.jsonl")[0]["prompt"]
    at = prompt.index("What is ")
    head, tail = prompt[:at], prompt[prompt.index("?", at) + 1:]
    lessons = []
    for i in range(32):
        k = i // 2
        python = only == "python" if only else i % 2 == 0
        call = ({"name": "python", "arguments": {"code": f"print({k} * 7)"}} if python
                else {"name": "multiply", "arguments": {"a": k, "b": 7}})
        lessons.append({"text": f"{head}What is {k} * 7?{tail}<think>\n\n</think>\n\n<tool_call>\n{json.dumps(call)}\n"
                                f"</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n{k * 7}\n</tool_response>"
                                f"<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nIt is {k * 7}."})
    (folder / "lessons.jsonl").write_text("".join(json.dumps(v) + "\n" for v in lessons))
    axtrain(o, folder, "sft", "/dev/null", "--quiet", f"base_model={o.model}", f"output_dir={out}",
            "datasets=[{path: lessons.jsonl, type: completion}]", "sequence_len=1024", "micro_batch_size=8",
            f"learning_rate={o.learning_rate}", f"num_epochs={o.epochs}", "warmup_steps=5", "float32=true",
            "save_strategy=no")
    return out


def add_model(p):
    """The arguments that say which model calls tools, and how it is taught to."""
    p.add_argument("axtrain", type=os.path.abspath)
    p.add_argument("--model", type=os.path.abspath, default=str(ROOT / "tests/goldens/runs/models/tools_qwen3"))
    p.add_argument("--learning-rate", type=float, default=1e-2)
    p.add_argument("--epochs", type=int, default=40)


def sample(o, folder, model, name, *words, **environment):
    """Per step after the first: seconds of sampling, seconds of calls, seconds waited, calls; and the answers."""
    axtrain(o, folder, "grpo", "c.yaml", "--quiet", f"base_model={model}", f"output_dir={name}", *words, **environment)
    steps = [m for m in lines(folder / name / "metrics.jsonl") if "grad_norm" in m]
    answers = lines(folder / name / "completions.jsonl")
    each = len(answers) // len(steps)
    rows = [(m["phase_seconds"]["rollout"], m["tools/seconds"], m["tools/wait_seconds"], each * m["tools/call_frequency"])
            for m in steps[1:]]
    return [statistics.median(column) for column in zip(*rows)], [a["completion_ids"] for a in answers]


def main():
    p = argparse.ArgumentParser()
    add_model(p)
    p.add_argument("--slow", type=float, default=1)
    p.add_argument("--every", type=int, default=10)
    p.add_argument("--group", type=int, default=16)
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--rounds", type=int, default=1)
    o = p.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        configure(o, folder)
        model = teach(o, folder)
        mood = {"AXTRAIN_TOOL_EVERY": str(o.every), "AXTRAIN_TOOL_SECONDS": str(o.slow)}
        for i in range(o.rounds):
            quick, answers = sample(o, folder, model, f"quick-{i}")
            one, first = sample(o, folder, model, f"one-{i}", "tool_workers=1", **mood)
            slow, second = sample(o, folder, model, f"slow-{i}", **mood)
            if answers != first or answers != second:
                raise SystemExit("the slow tool has changed answers")
            for row, what in ((quick, "quick            "), (one, "slow, one process"), (slow, "slow             ")):
                print(f"{what}: {row[0]:.2f} s of sampling, {row[3]:.0f} calls, {row[1]:.2f} s of calls, {row[2]:.2f} s "
                      f"waited; {1 - quick[0] / row[0]:.1%} of throughput")
        python, _ = sample(o, folder, teach(o, folder, "python"), "python")
        print(f"python: {python[3] / python[0]:.0f} calls/s in {python[0]:.2f} s of sampling, {python[1]:.2f} s of calls, "
              f"{python[2]:.2f} s waited")


if __name__ == "__main__":
    main()

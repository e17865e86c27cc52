"""axtrain beside PyTorch, TRL and transformers on one machine, in one sitting: the programs take turns.

usage: bench_peers.py AXTRAIN MODEL SHARED [--pairs 5] [--parts step,sft,generate] [--work DIR] [-o OUT.json]

MODEL is a model folder (SmolLM2-135M), SHARED holds measure/ (the peers' scripts) and data/. Each pair runs every program
once; what is printed are medians over the pairs, and the median of the ratios within a pair. On Linux, with the right to,
each program runs at real-time priority (chrt -f 10), because a shared machine times its other users as well.

step      a full fine-tuning step, 2 x 1,024 random tokens, bf16: `axtrain bench step` and torch_step.py --compile (the
          fastest of its modes; --all-modes runs the others once)
sft       six steps of two GSM8K conversations: `axtrain sft` and trl_sft.py
generate  64 new tokens, batch 1 and 16: `axtrain bench generate` and hf_generate.py
Needs: torch, transformers, trl, datasets in the Python that runs this.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("axtrain")
p.add_argument("model")
p.add_argument("shared")
p.add_argument("--pairs", type=int, default=5)
p.add_argument("--parts", default="step,sft,generate")
p.add_argument("--all-modes", action="store_true")
p.add_argument("--work")
p.add_argument("-o", "--output")
a = p.parse_args()
parts = a.parts.split(",")
work = a.work or tempfile.mkdtemp(prefix="axtrain-peers-")
os.makedirs(work, exist_ok=True)
measure, data = os.path.join(a.shared, "measure"), os.path.join(a.shared, "data/gsm8k_train.jsonl")
rows = os.path.join(work, "rows.jsonl")
with open(rows, "w") as f:
    for line in open(data).readlines()[:256]:
        r = json.loads(line)
        turns = [{"role": "user", "content": r["question"]}, {"role": "assistant", "content": r["answer"]}]
        f.write(json.dumps({"messages": turns}) + "\n")
with open(os.path.join(work, "sft.yaml"), "w") as f:
    f.write(
        f"""base_model: {os.path.abspath(a.model)}
datasets: [{{path: {rows}, type: chat_template}}]
sequence_len: 1024
micro_batch_size: 2
max_steps: 6
learning_rate: 2e-5
lr_scheduler: linear
warmup_steps: 0
weight_decay: 0
bf16: true
logging_steps: 1
save_strategy: "no"
dataset_prepared_path: {work}/prepared
output_dir: {work}/out
"""
    )
priority = ["chrt", "-f", "10"] if subprocess.run(["chrt", "-f", "10", "true"], capture_output=True).returncode == 0 else []


def run(*command):
    done = subprocess.run([*priority, *map(str, command)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def last_json(text):
    return json.loads(text.strip().splitlines()[-1])


def peer(script, *args):
    return last_json(run(sys.executable, os.path.join(measure, script), *args))


def our_step():
    r = json.loads(run(a.axtrain, "bench", "step", "--model", a.model, "--batch", 2, "--seq", 1024, "--steps", 4, "--json"))
    return {"tokens/s": r["tokens_per_second_median"], "peak GB": r["peak_rss_bytes"] / 1e9}


def torch_step(*mode):
    r = peer("torch_step.py", a.model, "--steps", 4, *mode)
    return {"tokens/s": r["median_tok_s"], "peak GB": r["peak_rss_gb"], "first step s": r["first_step_end_s"]}


def our_sft():
    shutil.rmtree(os.path.join(work, "out"), ignore_errors=True)
    run(a.axtrain, "sft", os.path.join(work, "sft.yaml"))
    steps = [json.loads(line) for line in open(os.path.join(work, "out/metrics.jsonl"))]
    steps = [s for s in steps if "grad_norm" in s]
    rates = [s["tokens"] / sum(s["phase_seconds"].values()) for s in steps[1:]]
    return {"tokens/s": statistics.median(rates), "peak GB": steps[-1]["peak_memory_bytes"] / 1e9}


def trl_sft():
    r = peer("trl_sft.py", a.model, data, "--steps", 6)
    return {"tokens/s": r["median_tok_s"], "peak GB": r["peak_rss_gb"], "first step s": r["first_step_end_s"]}


def our_generate():
    found = {}
    for batch in 1, 16:
        shape = ["--batch", batch, "--prompt-tokens", 100, "--new-tokens", 64]
        r = json.loads(run(a.axtrain, "bench", "generate", "--model", a.model, *shape, "--json"))
        x = r["results"][0]
        seconds = r["prompt_tokens"] / x["prefill_tokens_per_second"] + r["new_tokens"] / x["decode_tokens_per_second"]
        found[f"batch {batch} tokens/s"] = r["new_tokens"] / seconds
    return found


def hf_generate():
    found = {}
    for batch in 1, 16:
        found[f"batch {batch} tokens/s"] = peer("hf_generate.py", a.model, data, "--batch", batch)["best_new_tok_s"]
    return found


programs = {
    "step": {"axtrain bench step": our_step, "torch_step.py --compile": lambda: torch_step("--compile")},
    "sft": {"axtrain sft": our_sft, "trl_sft.py": trl_sft},
    "generate": {"axtrain bench generate": our_generate, "hf_generate.py": hf_generate},
}
found = {part: {name: [] for name in programs[part]} for part in parts}
for pair in range(a.pairs):
    for part in parts:
        for name, program in programs[part].items():
            found[part][name].append(program())
            print(f"pair {pair + 1}: {name}: {found[part][name][-1]}", file=sys.stderr, flush=True)
if "step" in parts and a.all_modes:
    for mode in [], ["--amp"], ["--compile", "--amp"], ["--checkpointing"]:
        found["step"]["torch_step.py " + " ".join(mode)] = [torch_step(*mode)]

print("| program | " + " | ".join(["median of", "ratio: axtrain / it"]) + " |\n|---|---|---|")
for part in parts:
    (ours, our_runs), *others = found[part].items()
    for name, runs in found[part].items():
        values = {key: statistics.median(r[key] for r in runs) for key in runs[0]}
        ratios = {
            key: statistics.median(mine[key] / its[key] for mine, its in zip(our_runs, runs))
            for key in runs[0]
            if name != ours and key in our_runs[0]
        }
        text = ", ".join(f"{k} {v:.3g}" for k, v in values.items())
        print(f"| `{name}` | {text} | {', '.join(f'{k} {v:.3g}' for k, v in ratios.items())} |")
if a.output:
    json.dump(found, open(a.output, "w"), indent=1)
if not a.work:
    shutil.rmtree(work)

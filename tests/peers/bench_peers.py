"""axtrain beside PyTorch, TRL, transformers and llama.cpp on one machine, in one sitting: the programs take turns.

usage: bench_peers.py AXTRAIN MODEL [--pairs 5] [--parts step,sft,lora,pairs,generate,rollout,llama] [--work DIR] [-o OUT.json]
                      [--table FILE.md]

MODEL is a model folder (SmolLM2-135M); the data are what `axtrain problems` writes. Each pair runs every program of a part once, ours first; what is printed are medians over the pairs, and the median of the ratios within a pair. On
Linux, with the right to, each program runs at real-time priority (chrt -f 10), because a shared machine times its other
users as well. --table writes a page with machine, versions and commands.

step      a full fine-tuning step, 2 x 1,024 random tokens, bf16: `axtrain bench step` and torch_step.py --compile (the
          fastest of its modes; --all-modes runs the others once)
sft       six steps of two conversations: `axtrain sft` and trl_sft.py
lora      the same with LoRA of rank 16 on all linear layers
pairs     32 pairs of answers in steps of four: `axtrain train` and trl_pairs.py, for dpo with all weights and with
          LoRA, and for a reward model; the reference's passes are counted; in float32 where the CPU has no bf16 products
generate  64 new tokens, batch 1 and 16: `axtrain bench generate` and hf_generate.py; the latter with 1 new token as well,
          whose time taken from that of 64 leaves decoding alone
rollout   8 answers of 128 tokens to each of 16 prompts, sampled at temperature 1: `axtrain bench generate` and
          hf_rollout.py
llama     prompts of 100 tokens, then 64 new ones, batch 1 and 16, weights in bf16: `axtrain bench generate`, and
          llama_cpp_speed.py on the GGUF file that `axtrain convert` makes of the model
"""
import argparse
import atexit
import datetime
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

PACKAGES = {
    "step": ["torch", "transformers"],
    "sft": ["torch", "transformers", "trl", "datasets"],
    "lora": ["torch", "transformers", "trl", "datasets", "peft"],
    "pairs": ["torch", "transformers", "trl", "datasets", "peft"],
    "generate": ["torch", "transformers"],
    "rollout": ["torch", "transformers"],
    "llama": ["llama-cpp-python", "numpy"],
}
PAIR_ROW = 1024  # tokens; four pairs, as TRL's batches
MODULES = {"llama-cpp-python": "llama_cpp"}
PROMPT, NEW, BATCHES = 100, 64, (1, 16)
LORA = 16  # rank
ROLLOUT = {"prompts": 16, "samples": 8, "new": 128}

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("axtrain")
p.add_argument("model")
p.add_argument("--pairs", type=int, default=5)
p.add_argument("--parts", default=",".join(PACKAGES))
p.add_argument("--all-modes", action="store_true")
p.add_argument("--work")
p.add_argument("-o", "--output")
p.add_argument("--table", metavar="FILE.md")
a = p.parse_args()
parts = a.parts.split(",")
for part in parts:
    if part not in PACKAGES:
        sys.exit(f"--parts: {part} is not one of {', '.join(PACKAGES)}")
wanted = list(dict.fromkeys(name for part in parts for name in PACKAGES[part]))
missing = [name for name in wanted if not importlib.util.find_spec(MODULES.get(name, name))]
if missing:
    sys.exit(
        f"{sys.executable} lacks what is compared with: pip install {' '.join(missing)}\n"
        "or name a Python that has it (AXTRAIN_PYTHON with make), or leave parts out with --parts"
    )
if not os.path.isfile(os.path.join(a.model, "config.json")):
    sys.exit(f"{a.model}: no model folder (no config.json)")

work = a.work or tempfile.mkdtemp(prefix="axtrain-peers-")
os.makedirs(work, exist_ok=True)
if not a.work:
    atexit.register(shutil.rmtree, work, ignore_errors=True)
rows = os.path.join(work, "rows.jsonl")
here = os.path.dirname(os.path.abspath(__file__))
gguf = os.path.join(work, "model.bf16.gguf")
priority = ["chrt", "-f", "10"] if subprocess.run(["chrt", "-f", "10", "true"], capture_output=True).returncode == 0 else []


def run(*command, stderr=subprocess.PIPE):
    done = subprocess.run([*priority, *map(str, command)], stdout=subprocess.PIPE, stderr=stderr, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}{(done.stderr or '')[-2000:]}")
    return done.stdout


env = json.loads(run(a.axtrain, "env", "--json"))
run(a.axtrain, "problems", "--rows", 256, "--min-level", 3, "-o", rows)
pair_dtype = "bfloat16" if env["instruction_set"] in ("avx512bf16", "amx") else "float32"


def last_json(text):
    return json.loads(text.strip().splitlines()[-1])


def peer(script, *args):
    return last_json(run(sys.executable, os.path.join(here, script), *args))


LORA_KEYS = f"adapter: lora\nlora_r: {LORA}\nlora_alpha: {2 * LORA}\nlora_target_linear: true"


def prepare_sft(name, keys=""):
    with open(os.path.join(work, name), "w") as f:
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
{keys}
"""
        )


def prepare_pairs():
    """The rejected answer is the right one with other digits in its second half."""
    with open(os.path.join(work, "pairs.jsonl"), "w") as f:
        for line in open(rows).readlines()[:32]:
            question, answer = (turn["content"] for turn in json.loads(line)["messages"])
            half = len(answer) // 2
            wrong = answer[half:].translate(str.maketrans("0123456789", "3456789012"))
            sides = {"prompt": ("user", question), "chosen": ("assistant", answer),
                     "rejected": ("assistant", answer[:half] + wrong)}
            f.write(json.dumps({k: [{"role": role, "content": text}] for k, (role, text) in sides.items()}) + "\n")


def prepare_llama():
    run(a.axtrain, "convert", a.model, gguf, "--to", "gguf", "--quant", "bf16", "--overwrite")


def our_step():
    shape = ["--batch", 2, "--seq", 1024, "--steps", 4]
    r = json.loads(run(a.axtrain, "bench", "step", "--model", a.model, *shape, "--json"))["step"]
    return {"tokens/s": r["tokens_per_second_median"], "peak GB": r["peak_rss_bytes"] / 1e9}


def torch_step(*mode):
    r = peer("torch_step.py", a.model, "--steps", 4, *mode)
    return {"tokens/s": r["median_tok_s"], "peak GB": r["peak_rss_gb"], "first step s": r["first_step_end_s"]}


def our_sft(name):
    shutil.rmtree(os.path.join(work, "out"), ignore_errors=True)
    run(a.axtrain, "sft", os.path.join(work, name))
    steps = [json.loads(line) for line in open(os.path.join(work, "out/metrics.jsonl"))]
    steps = [s for s in steps if "grad_norm" in s]
    rates = [s["tokens"] / sum(s["phase_seconds"].values()) for s in steps[1:]]
    return {"tokens/s": statistics.median(rates), "peak GB": steps[-1]["peak_memory_bytes"] / 1e9}


def trl_sft(*mode):
    r = peer("trl_sft.py", a.model, rows, "--steps", 6, *mode)
    return {"tokens/s": r["median_tok_s"], "peak GB": r["peak_rss_gb"], "first step s": r["first_step_end_s"]}


# what is trained: (keys of the configuration, arguments of trl_pairs.py)
PAIR_RUNS = {
    "dpo": ("rl: dpo", ["dpo"]),
    f"dpo, LoRA r{LORA}": (f"rl: dpo\n{LORA_KEYS}", ["dpo", "--lora", LORA]),
    "reward": ("reward_model: true", ["reward"]),
}


def our_pairs():
    found = {}
    for name, (keys, _) in PAIR_RUNS.items():
        config = os.path.join(work, "pairs.yaml")
        with open(config, "w") as f:
            f.write(
                f"""base_model: {os.path.abspath(a.model)}
{keys}
datasets: [{{path: {work}/pairs.jsonl}}]
sequence_len: {PAIR_ROW}
sample_packing: true
micro_batch_size: 1
num_epochs: 1
learning_rate: 1e-5
lr_scheduler: linear
bf16: {'true' if pair_dtype == 'bfloat16' else 'false'}
logging_steps: 1
save_strategy: "no"
dataset_prepared_path: {work}/prepared
output_dir: {work}/out
"""
            )
        for folder in ("out", "prepared"):  # the reference's log-probs would be read from there
            shutil.rmtree(os.path.join(work, folder), ignore_errors=True)
        told = run(a.axtrain, "train", config, stderr=subprocess.STDOUT)
        steps = [json.loads(line) for line in open(os.path.join(work, "out/metrics.jsonl"))]
        reference = sum(map(float, re.findall(r"log-probs of the reference took ([0-9.]+) s", told)))
        steps = [s for s in steps if "grad_norm" in s]
        seconds, tokens = sum(s["seconds"] for s in steps), sum(s["tokens"] for s in steps)
        found[f"{name}: tokens/s"] = tokens / (reference + seconds)
        found[f"{name}: peak GB"] = steps[-1]["peak_memory_bytes"] / 1e9
        if reference:
            found[f"{name}: reference ÷ step, tokens/s"] = seconds / reference
    return found


def trl_pairs(*mode):
    found = {}
    for name, (_, args) in PAIR_RUNS.items():
        r = peer("trl_pairs.py", args[0], a.model, os.path.join(work, "pairs.jsonl"), "--dtype", pair_dtype, *args[1:], *mode)
        found[f"{name}: tokens/s"] = r["tok_s"]
        found[f"{name}: peak GB"] = r["peak_rss_gb"]
    return found


def our_speeds(batch):
    shape = ["--dtype", "bfloat16", "--batch", batch, "--prompt-tokens", PROMPT, "--new-tokens", NEW]
    r = json.loads(run(a.axtrain, "bench", "generate", "--model", a.model, *shape, "--json"))["generate"]
    return r["results"][0]


def our_generate():
    found = {}
    for batch in BATCHES:
        x = our_speeds(batch)
        seconds = PROMPT / x["prefill_tokens_per_second"] + NEW / x["decode_tokens_per_second"]
        found[f"batch {batch} new tokens/s, prompt included"] = NEW / seconds
        found[f"batch {batch} decode tokens/s"] = x["decode_tokens_per_second"]
    return found


def hf_generate():
    found = {}
    for batch in BATCHES:
        rate = {}
        for new in (1, NEW):
            rate[new] = peer("hf_generate.py", a.model, rows, "--batch", batch, "--new", new)["best_new_tok_s"]
        found[f"batch {batch} new tokens/s, prompt included"] = rate[NEW]
        found[f"batch {batch} decode tokens/s"] = batch * (NEW - 1) / (batch * NEW / rate[NEW] - batch / rate[1])
    return found


def our_rollout():
    batch = ROLLOUT["prompts"] * ROLLOUT["samples"]
    shape = ["--dtype", "bfloat16", "--batch", batch, "--samples", ROLLOUT["samples"], "--prompt-tokens", PROMPT,
             "--new-tokens", ROLLOUT["new"], "--rounds", 1]
    figures = json.loads(run(a.axtrain, "bench", "generate", "--model", a.model, *shape, "--json"))["results"]
    return {"new tokens/s, prompts included": next(f["value"] for f in figures if "/samples" in f["name"])}


def hf_rollout():
    r = peer("hf_rollout.py", a.model, rows, "--dtype", "bfloat16", "--rounds", 1, *(x for k, v in ROLLOUT.items() for x in (f"--{k}", v)))
    return {"new tokens/s, prompts included": r["new_tokens_per_second"]}


def our_phases():
    found = {}
    for batch in BATCHES:
        x = our_speeds(batch)
        found[f"batch {batch} prefill tokens/s"] = x["prefill_tokens_per_second"]
        found[f"batch {batch} decode tokens/s"] = x["decode_tokens_per_second"]
    return found


def llama_phases():
    found = {}
    for batch in BATCHES:
        r = peer("llama_cpp_speed.py", gguf, "--batch", batch, "--prompt", PROMPT, "--new", NEW)
        found[f"batch {batch} prefill tokens/s"] = r["prefill_tok_s"]
        found[f"batch {batch} decode tokens/s"] = r["decode_tok_s"]
    return found


shape = f"--batch {' | '.join(map(str, BATCHES))} --prompt-tokens {PROMPT} --new-tokens {NEW}"
ours_generates = f"axtrain bench generate --model MODEL --dtype bfloat16 {shape}"
# part: what it is, how it is prepared, {program: (function, command)}, ours first
PARTS = {
    "step": (
        "Full fine-tuning step: 2 × 1,024 random tokens, bf16, AdamW",
        None,
        {
            "axtrain bench step": (our_step, "axtrain bench step --model MODEL --batch 2 --seq 1024 --steps 4"),
            "PyTorch, compiled": (lambda: torch_step("--compile"), "torch_step.py MODEL --steps 4 --compile"),
        },
    ),
    "sft": (
        "Fine-tuning: six steps of two conversations each, unpacked, bf16",
        lambda: prepare_sft("sft.yaml"),
        {
            "axtrain sft": (lambda: our_sft("sft.yaml"), "axtrain sft sft.yaml   # micro_batch_size: 2, max_steps: 6"),
            "TRL": (trl_sft, "trl_sft.py MODEL rows.jsonl --steps 6"),
        },
    ),
    "lora": (
        f"The same with LoRA of rank {LORA} on all linear layers",
        lambda: prepare_sft("lora.yaml", LORA_KEYS),
        {
            "axtrain sft": (lambda: our_sft("lora.yaml"), "axtrain sft lora.yaml   # adapter: lora, lora_target_linear: true"),
            "TRL": (lambda: trl_sft("--lora", LORA), f"trl_sft.py MODEL rows.jsonl --steps 6 --lora {LORA}"),
        },
    ),
    "pairs": (
        f"32 pairs of answers, one epoch, steps of about four pairs, {pair_dtype}",
        prepare_pairs,
        {
            "axtrain train": (our_pairs, f"axtrain train pairs.yaml   # packed rows of {PAIR_ROW} tokens"),
            "TRL": (trl_pairs, "trl_pairs.py dpo|reward MODEL pairs.jsonl [--lora 16]   # checkpointing, its default"),
            "TRL, no checkpointing": (lambda: trl_pairs("--no-checkpointing"), "trl_pairs.py … --no-checkpointing"),
        },
    ),
    "generate": (
        f"{NEW} new tokens after a prompt (ours: {PROMPT} tokens; theirs: questions, padded), bf16",
        None,
        {
            "axtrain bench generate": (our_generate, ours_generates),
            "transformers generate": (hf_generate, "hf_generate.py MODEL rows.jsonl --batch 1 | 16 --new 1 | 64"),
        },
    ),
    "rollout": (
        "{samples} answers of {new} tokens to each of {prompts} prompts, sampled, bf16".format(**ROLLOUT),
        None,
        {
            "axtrain bench generate": (our_rollout, f"axtrain bench generate --model MODEL --dtype bfloat16 --batch 128 --samples 8 "
                                       f"--prompt-tokens {PROMPT} --new-tokens 128 --rounds 1"),
            "transformers generate": (hf_rollout, "hf_rollout.py MODEL rows.jsonl --dtype bfloat16 --prompts 16 --samples 8 --new 128 --rounds 1"),
        },
    ),
    "llama": (
        f"Prompts of {PROMPT} tokens, then {NEW} new tokens, weights in bf16",
        prepare_llama,
        {
            "axtrain bench generate": (our_phases, ours_generates),
            "llama.cpp": (llama_phases, "axtrain convert MODEL model.bf16.gguf --to gguf --quant bf16\n    "
                          f"llama_cpp_speed.py model.bf16.gguf --batch 1 | 16 --prompt {PROMPT} --new {NEW}"),
        },
    ),
}


def number(x):
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def spread(values):
    text = number(statistics.median(values))
    return text if len(values) == 1 else f"{text} ({number(min(values))}–{number(max(values))})"


def rows_of(part):
    """A row for each figure: [figure, [each program's], [each other program's ratio]]."""
    (_, our_runs), *others = found[part].items()
    for key in dict.fromkeys(key for runs in found[part].values() for key in runs[0]):
        cells = [spread([r[key] for r in runs]) if key in runs[0] else "" for runs in found[part].values()]
        ratios = [
            f"{statistics.median(mine[key] / its[key] for mine, its in zip(our_runs, runs)):.2f}"
            if key in our_runs[0] and key in runs[0]
            else ""
            for _, runs in others
        ]
        yield [key, *cells, *ratios]


def table_of(part):
    names = list(found[part])
    head = ["", *names, *(f"axtrain ÷ {name}" for name in names[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows_of(part)]) + "\n"


def page():
    python = ".".join(map(str, sys.version_info[:3]))
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in wanted)
    text = f"""# Comparison with PyTorch, TRL, transformers and llama.cpp on CPU

Written by `make bench-peers MODEL=…` ({a.pairs} {'pair' if a.pairs == 1 else 'pairs'}, {datetime.date.today()}): the programs
of a section alternate on one machine, {'at real-time priority' if priority else 'at ordinary priority'}. Medians, minimum to maximum in
parentheses; a ratio is the median of the ratios within a pair. Scripts: `tests/peers/`. Other machines:
[gemm.md](gemm.md#by-machine).

- Machine: {env['cpus']} CPUs, {env['cpu']}, {env['instruction_set']}, {env['memory']}
- axtrain {env['axtrain']} (compiler {env['compiler']}); Python {python}: {versions}
- MODEL: {os.path.basename(os.path.abspath(a.model))}
"""
    for part in parts:
        what, _, programs = PARTS[part]
        commands = "\n".join(f"    {command}" for _, command in programs.values())
        text += f"\n## {what}\n{commands}\n\n{table_of(part)}"
    return text


found = {part: {name: [] for name in PARTS[part][2]} for part in parts}
for part in parts:
    if PARTS[part][1]:
        PARTS[part][1]()
for pair in range(a.pairs):
    for part in parts:
        for name, (program, _) in PARTS[part][2].items():
            found[part][name].append(program())
            print(f"pair {pair + 1}: {name}: {found[part][name][-1]}", file=sys.stderr, flush=True)
if "step" in parts and a.all_modes:
    for mode in [], ["--amp"], ["--compile", "--amp"], ["--checkpointing"]:
        found["step"][" ".join(["PyTorch", *mode])] = [torch_step(*mode)]
for part in parts:
    print(f"{PARTS[part][0]}\n{table_of(part)}")
if a.output:
    json.dump(found, open(a.output, "w"), indent=1)
if a.table:
    with open(a.table, "w") as f:
        f.write(page())

"""Follows the reference's 10-step curve (tests/goldens/smollm2/problems_sft_10steps.json, of sft_curve.py) with axtrain.

usage: check_curve.py AXTRAIN SMOLLM2.gguf [--work DIR] [--bf16] [--packed] [--json OUT] [--mesh KEY=N --against OUT]

SMOLLM2.gguf is what tools/get-smollm2 names. The same 80 rows of `axtrain problems`, 8 a step, no shuffling, loss on the
answers. --packed: each step's 8 rows in packed rows of 2,560 tokens instead of one by one.

--mesh: on N ranks, dp_shard_size=2 or another key of the mesh (its 9 heads split over 3 ranks of tp); --against: the --json of one rank, of which every loss
must be within 1e-4.

Tolerances: float32 within 0.1 % at every step; bf16 compute with float32 masters: at no step after the first farther from
the float32 curve than the reference's autocast curve, and within 3 % at step 10. Exit code 0 only when they hold.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("axtrain")
p.add_argument("gguf")
p.add_argument("--work")
p.add_argument("--bf16", action="store_true")
p.add_argument("--packed", action="store_true")
p.add_argument("--json")
p.add_argument("--mesh")
p.add_argument("--against")
a = p.parse_args()

goldens = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../goldens")
golden = json.load(open(os.path.join(goldens, "smollm2/problems_sft_10steps.json")))
work = a.work or tempfile.mkdtemp(prefix="axtrain-curve-")
os.makedirs(work, exist_ok=True)
base = os.path.join(work, "smollm2")
if not os.path.exists(base):
    subprocess.run([a.axtrain, "convert", a.gguf, base, "--to", "hf", "--dtype", "bfloat16"], check=True)

subprocess.run([a.axtrain, "problems", "--rows", "80", "-o", os.path.join(work, "rows.jsonl")], check=True)

# packed in order, a row holds the eight documents of a step and no more: a bin takes at most 8
packing = "sample_packing: true\nsample_packing_sequentially: true\nsample_packing_bin_size: 8\nsequence_len: 2560\n"
plain = "sample_packing: false\nsequence_len: 1024\n"
with open(os.path.join(work, "curve.yaml"), "w") as f:
    f.write(
        f"""base_model: {base}
datasets:
  - path: {work}/rows.jsonl
    type: chat_template
shuffle_merged_datasets: false
curriculum_sampling: true
{packing if a.packed else plain}micro_batch_size: {1 if a.packed else 4 if a.mesh and a.mesh.startswith("dp_") else 8}
gradient_accumulation_steps: 1
num_epochs: 1
learning_rate: 1e-4
lr_scheduler: constant
warmup_steps: 0
adam_beta2: 0.95
weight_decay: 0
max_grad_norm: 1.0
logging_steps: 1
save_strategy: "no"
dataset_prepared_path: {work}/prepared
output_dir: {work}/out
"""
    )
shutil.rmtree(os.path.join(work, "out"), ignore_errors=True)
kind = "bf16=true" if a.bf16 else "float32=true"
ranks = ["launch", "-n", a.mesh.split("=")[1], "--"] if a.mesh else []
mesh = [a.mesh] if a.mesh else []
subprocess.run([a.axtrain, *ranks, "sft", os.path.join(work, "curve.yaml"), kind, *mesh], check=True)
steps = [json.loads(line) for line in open(os.path.join(work, "out/metrics.jsonl"))]
steps = [s for s in steps if "grad_norm" in s]

bad = len(steps) != 10
if a.against:
    one = json.load(open(a.against))
    apart = max(abs(s["loss"] / o["loss"] - 1) for s, o in zip(steps, one))
    print(f"{a.mesh}: at most {apart:.1e} from one rank")
    bad |= not apart <= 1e-4
print("step  tokens     loss  float32 reference     apart   autocast apart")
for ours, want, auto in zip(steps, golden["float32"], golden["autocast_bf16_fp32_parameters"]):
    apart, limit = ours["loss"] / want["loss"] - 1, auto["loss"] / want["loss"] - 1
    same = ours["tokens"] == want["tokens"] and ours["trained_tokens"] == want["trained_tokens"]
    ok = abs(apart) <= 1e-3
    if a.bf16:
        ok = want["step"] == 1 or abs(apart) <= abs(limit)
        ok = ok and (want["step"] != 10 or abs(apart) <= 0.03)
    bad |= not (ok and same)
    print(
        f"{want['step']:4d}  {ours['tokens']:6d}  {ours['loss']:.5f}  {want['loss']:17.5f}  {100 * apart:+7.4f} %"
        f"  {100 * limit:+7.3f} %{'' if ok and same else '   <-- fails'}"
    )
if a.json:
    json.dump(steps, open(a.json, "w"))
if not a.work:
    shutil.rmtree(work)
sys.exit(bad)

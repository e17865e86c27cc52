"""Random adapters as `axtrain train` makes them: PEFT's of the same options must have the same tensors, of the same shapes and
spread, and, where it reads our folder, the same scale of each module.

usage: lora_random.py AXTRAIN GOLDENS [--seed N] [--runs N] [--families NAME,…] [--keep]

Experts, which PEFT names otherwise, have no adapters here (check_peft.py compares these). Exit code 1 at a difference, whose
folder is kept.
Needs: torch transformers trl peft datasets.
"""
import json
import os
import random
import shutil
import subprocess
import sys

import trainer_random as peers  # sets the environment of what follows

import peft
import torch
import transformers
from safetensors.torch import load_file

FAMILIES = peers.DENSE + ("granite4_dense", "lfm2", "qwen3_5")


def draw(r, linears):
    """PEFT's options, and our keys. A linear is a name from "model.layers" on."""
    ends = sorted({n.rsplit(".", 1)[1] for n in linears} - {"out_proj"})
    two = sorted({n.split(".", 3)[3] for n in linears if not n.endswith("out_proj")})  # self_attn.q_proj
    some = r.sample(ends, r.randint(1, min(4, len(ends))))
    targets = r.choice((some, some, r.sample(two, r.randint(1, min(3, len(two)))), r.sample(linears, 2), some[:1] + ["lm_head"], some[:1] + ["embed_tokens"],
                        ["1." + r.choice(two)], ["layers.0." + r.choice(two), some[0]],
                        rf".*\.({'|'.join(some)})", rf"model\.layers\.[01]\..*{some[0]}", rf".*layers\.\d\..*(?:{some[0]}|lm_head)", rf"model.layers.\d+.+{some[-1]}$",
                        "all-linear", "all-linear"))
    options = {"r": r.choice((2, 4)), "lora_alpha": r.choice((3, 8)), "target_modules": targets, "use_rslora": r.random() < 0.3,
               "use_dora": r.random() < 0.2, "init_lora_weights": r.choice((True, True, "gaussian"))}
    if r.random() < 0.3:
        options["exclude_modules"] = r.choice(([some[0]], ["layers.1." + r.choice(two)], [r.choice(linears)], rf".*layers\.0\..*", rf".*{some[0]}", [r.choice(two)[1:]]))
    if r.random() < 0.3 and isinstance(targets, list):
        options["layers_to_transform"] = r.choice(([0], [1], 1, [0, 1]))
        options["layers_pattern"] = r.choice((None, "layers", ["layers"]))
    if r.random() < 0.4:
        at = r.sample((some[0], some[-1], r.choice(two), r.choice(linears), rf"layers.0..*{some[0]}", rf".*\.{some[-1]}", rf"^model.layers.1.*{some[0]}", some[0][1:],
                       rf"({some[0]}|{some[-1]})"), 2)
        options["rank_pattern"] = {p: r.choice((1, 3)) for p in at[:r.randint(1, 2)]}
    if r.random() < 0.4:
        at = r.sample((some[0], some[-1], r.choice(two), r.choice(linears), rf"layers\.1\..*{some[0]}", rf"model.*{some[-1]}"), 2)
        options["alpha_pattern"] = {p: r.choice((1, 5)) for p in at[:r.randint(1, 2)]}
    if r.random() < 0.25:
        options["modules_to_save"] = r.choice((["lm_head"], ["embed_tokens"], ["embed_tokens", "lm_head"], ["norm"], ["model.norm"]))
    keys = {"lora_r": options["r"], "lora_alpha": options["lora_alpha"], "lora_target_modules": targets, "peft_use_rslora": options["use_rslora"],
            "peft_use_dora": options["use_dora"], "peft_init_lora_weights": options["init_lora_weights"],
            "lora_exclude_modules": options.get("exclude_modules"), "peft_layers_to_transform": options.get("layers_to_transform"),
            "peft_layers_pattern": options.get("layers_pattern"), "lora_rank_pattern": options.get("rank_pattern"),
            "lora_alpha_pattern": options.get("alpha_pattern"), "lora_modules_to_save": options.get("modules_to_save")}
    return {k: v for k, v in options.items() if v is not None}, {k: v for k, v in keys.items() if v is not None}


def plain_of(base):
    return transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)


def scales_of(model):
    return {n: dict(m.scaling)["default"] for n, m in model.named_modules() if isinstance(m, peft.tuners.lora.LoraLayer)}


def compare(folder, base, options):
    theirs = peft.get_peft_model(plain_of(base), peft.LoraConfig(task_type="CAUSAL_LM", **options))
    a = load_file(os.path.join(folder, "out/adapter_model.safetensors"))
    theirs.save_pretrained(os.path.join(folder, "peft"))
    b = {k: v for k, v in load_file(os.path.join(folder, "peft/adapter_model.safetensors")).items() if not k.endswith(".base_layer.weight")}
    if a.keys() != b.keys():
        return [f"only here {sorted(a.keys() - b.keys())[:4]}, only in PEFT {sorted(b.keys() - a.keys())[:4]}"]
    bad = [f"{k}: {tuple(a[k].shape)}, in PEFT {tuple(b[k].shape)}" for k in a if a[k].shape != b[k].shape]
    for k in a if not bad else ():
        x, y = a[k].std().item(), b[k].std().item()
        if ("lora_A" in k or "lora_embedding_B" in k) and a[k].numel() > 200 and abs(x - y) > 0.3 * y:
            bad.append(f"{k} has a spread of {x:.3g}, in PEFT {y:.3g}")
    read = peft.PeftModel.from_pretrained(plain_of(base), os.path.join(folder, "out"))
    ours, own = scales_of(read), scales_of(theirs)
    bad += [f"{n}: scale {ours.get(n)}, in PEFT {own.get(n)}" for n in sorted(ours.keys() | own.keys()) if abs(ours.get(n, -1) - own.get(n, -1)) > 1e-6]
    return bad


def main():
    a, work = peers.begin(__doc__, peers.more(FAMILIES))
    peers.make_models(a.axtrain, a.goldens, work, a.families)
    linears = {}
    for family in a.families:
        m = plain_of(os.path.join(work, family))
        linears[family] = [n for n, v in m.named_modules() if isinstance(v, torch.nn.Linear) and n.startswith("model.layers.")]
    refused = different = 0
    for i in range(a.runs):
        r = random.Random(f"{a.seed} {i}")
        family = r.choice(a.families)
        folder, base = os.path.join(work, f"run{i}"), os.path.join(work, family)
        os.makedirs(folder)
        options, keys = draw(r, linears[family])
        with open(os.path.join(folder, "rows.jsonl"), "w", encoding="utf-8") as f:
            f.writelines(json.dumps(row) + "\n" for row in peers.records(r, "sft", "text")[:2])
        keys = {"base_model": base, "datasets": [{"path": os.path.join(folder, "rows.jsonl")}], "adapter": "lora", "learning_rate": 1e-9, "max_steps": 1,
                "float32": True, "device": "cpu", "save_strategy": "no", "output_dir": os.path.join(folder, "out"), **keys}
        with open(os.path.join(folder, "c.yaml"), "w", encoding="utf-8") as f:
            json.dump(keys, f, indent=1)
        done = subprocess.run([a.axtrain, "train", os.path.join(folder, "c.yaml")], capture_output=True, text=True, timeout=300)
        try:
            bad = compare(folder, base, options) if done.returncode == 0 else None
            if bad is None:
                peft.get_peft_model(plain_of(base), peft.LoraConfig(task_type="CAUSAL_LM", **options))
        except Exception as e:
            bad = [f"PEFT: {type(e).__name__}: {str(e)[:200]}"] if done.returncode == 0 else None
        if done.returncode:
            refused += 1
            print(f"{folder}: {family} {options}: {done.returncode} {done.stderr.strip()[-300:]}", flush=True)
        elif bad:
            different += 1
            print(f"{folder}: {family} {options}:", *bad[:7], sep="\n  ", flush=True)
        elif not a.keep:
            shutil.rmtree(folder)
    return peers.end(a, work, different, refused)


if __name__ == "__main__":
    sys.exit(main())

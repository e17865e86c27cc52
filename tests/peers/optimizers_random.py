"""Random fine-tuning with every optimizer whose state PyTorch's formulas, or those of the papers below, determine: the weights at the
end must be those of transformers' model, updated here.

usage: optimizers_random.py AXTRAIN GOLDENS [--seed N] [--runs N] [--only OPTIMIZER] [--keep]

trainer_random.py draws those that TRL's trainers have. Muon is K. Jordan's for the matrices of layers, scaled as axolotl or
torch.optim.Muon does, in float32 where PyTorch iterates in bfloat16, and AdamW for the rest; Lion that of Chen et al. (2023). Moments
of 8 bits or of bfloat16 are compared with those of float32, within their rounding. A mixture's experts have two matrices of their own
where transformers has one of all of them.
Exit code 1 at a difference, whose folder is kept. Needs: torch transformers.
"""
import json
import os
import random
import shutil
import subprocess
import sys

from trainer_random import begin, end, make_models, some  # noqa: E402  (sets the environment)
import torch
import transformers
from safetensors.torch import load_file

FAMILIES = ("llama", "llama_bias", "qwen3", "gemma2", "gemma3_text", "phi3", "olmo2", "glm4", "mixtral", "qwen3_moe", "deepseek_v2")
# Name, formula, and how far a change may be off.
ROUNDED = 0.25
SIGNS = 0.05  # of sums near 0, which are rounding
OPTIMIZERS = ([("muon", "muon", 0.02)] * 6 + [("lion_32bit", "lion", SIGNS), ("paged_lion_32bit", "lion", SIGNS)] * 2
              + [("lion_8bit", "lion", ROUNDED), ("paged_lion_8bit", "lion", ROUNDED)]
              + [(n, "adamw", 0.02) for n in ("adamw_torch", "adamw_torch_fused", "adamw_apex_fused", "adamw_torch_xla", "adamw_torch_npu_fused",
                                              "adamw_anyprecision", "optimi_adamw", "paged_adamw_32bit")]
              + [(n, "adamw", ROUNDED) for n in ("adamw_8bit", "adamw_bnb_8bit", "adamw_torch_8bit", "adamw_torch_4bit", "paged_adamw_8bit", "ao_adamw_fp8")])
DEFAULTS = {"muon": (0.95, 0.95, 1e-8), "optimi_adamw": (0.9, 0.99, 1e-6), "lion": (0.9, 0.999, 1e-8)}
ROWS, LENGTH = 24, 20


# ---- formulas ----

def adamw(p, g, s, lr, o, decay):
    b1, b2 = o["betas"]
    s["t"] = s.get("t", 0) + 1
    m, v = s.setdefault("m", torch.zeros_like(p)), s.setdefault("v", torch.zeros_like(p))
    m.mul_(b1).add_(g, alpha=1 - b1)
    v.mul_(b2).addcmul_(g, g, value=1 - b2)
    p.mul_(1 - lr * decay)
    p.sub_(lr * (m / (1 - b1 ** s["t"])) / ((v / (1 - b2 ** s["t"])).sqrt() + o["eps"]))


def lion(p, g, s, lr, o, decay):
    b1, b2 = o["betas"]
    m = s.setdefault("m", torch.zeros_like(p))
    p.sub_(lr * (torch.sign(b1 * m + (1 - b1) * g) + decay * p))
    m.mul_(b2).add_(g, alpha=1 - b2)


def muon_matrix(p, g, s, lr, o, decay):
    m = s.setdefault("m", torch.zeros_like(p))
    m.lerp_(g, 1 - o["momentum"])
    x = g.lerp(m, o["momentum"]) if o["nesterov"] else m.clone()
    tall = p.shape[-2] > p.shape[-1]
    x = x.mT if tall else x
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    rows, cols = p.shape[-2:]
    scale = 0.2 * max(rows, cols) ** 0.5 if o["match_rms"] else max(1, rows / cols) ** 0.5
    p.mul_(1 - lr * decay).sub_(lr * scale * (x.mT if tall else x))


def muon(name, p, *rest):
    hidden = p.ndim >= 2 and "embed_tokens" not in name and "lm_head" not in name
    if hidden and name.endswith("experts.gate_up_proj"):
        g, s, *more = rest
        for i, (a, b) in enumerate(zip(p.chunk(2, -2), g.chunk(2, -2))):
            muon_matrix(a, b, s.setdefault(i, {}), *more)
    else:
        (muon_matrix if hidden else adamw)(p, *rest)


def decays(name, p, optimizer):
    tables = "embed_tokens" in name or "lm_head" in name
    return p.ndim >= 2 and not (tables and optimizer in ("optimi_adamw", "ao_adamw_fp8"))


# ---- runs ----

def draw(r, work, only):
    optimizer, formula, tolerance = r.choice([x for x in OPTIMIZERS if only in (None, x[0])])
    family = r.choice(FAMILIES)
    b1, b2, eps = DEFAULTS.get(optimizer, DEFAULTS.get(formula, (0.9, 0.999, 1e-8)))
    keys = {"base_model": os.path.join(work, family), "optimizer": optimizer, "micro_batch_size": r.choice((1, 2, 3)),
            "gradient_accumulation_steps": r.choice((1, 1, 2)), "max_steps": r.choice((3, 5)), "num_epochs": 99, "sequence_len": LENGTH,
            "learning_rate": r.choice((1e-3, 3e-4)) if formula != "lion" else 1e-4, "lr_scheduler": r.choice(("linear", "cosine", "constant_with_warmup")),
            "warmup_steps": r.choice((0, 1, 2)), "max_grad_norm": r.choice((1.0, 0.05, 0.0)), "weight_decay": r.choice((0.0, 0.1, 2.0)),
            "float32": True, "device": "cpu", "curriculum_sampling": True, "shuffle_merged_datasets": False, "save_strategy": "no",
            "logging_steps": 1, "loss_watchdog_threshold": 1e9, "datasets": [{"path": "rows.jsonl"}], "seed": r.randint(0, 99)}
    o = {"betas": (b1, b2), "eps": eps, "momentum": 0.95, "nesterov": True, "match_rms": True}
    if r.random() < 0.6:
        keys["adam_beta1"], keys["adam_beta2"] = o["betas"] = r.choice(((0.9, 0.999), (0.8, 0.95), (0.5, 0.9), (0.95, 0.98), (0.0, 0.5)))
    if formula != "lion" and r.random() < 0.5:
        keys["adam_epsilon"] = o["eps"] = r.choice((1e-8, 1e-6, 1e-3))
    args = {}
    if formula == "muon":
        args = {k: v for k, v in (("momentum", some(r, 0.5, 0.0, 0.8)), ("nesterov", some(r, 0.4, False)), ("match_rms", some(r, 0.4, False)),
                                  ("beta1", some(r, 0.2, 0.7)), ("eps", some(r, 0.2, 1e-4)), ("weight_decay", some(r, 0.2, 0.5))) if v is not None}
    elif r.random() < 0.3:
        args = r.choice(({"beta1": 0.7}, {"beta2": 0.9, "weight_decay": 0.3}))
    o.update({k: v for k, v in args.items() if k in o})
    o["betas"] = (args.get("beta1", o["betas"][0]), args.get("beta2", o["betas"][1]))
    if args:
        keys["optim_args"] = args if r.random() < 0.5 else ",".join(f"{k}={v}" for k, v in args.items())
    if tolerance < ROUNDED and formula == "adamw" and r.random() < 0.2:
        keys["moment_dtype"], tolerance = r.choice(("int8", "bfloat16")), ROUNDED
    o["decay"] = args.get("weight_decay", keys["weight_decay"])
    return keys, o, formula, tolerance, family


def by_torch(keys, o, formula, rows):
    model = transformers.AutoModelForCausalLM.from_pretrained(keys["base_model"], dtype=torch.float32, attn_implementation="eager")
    params = dict(model.named_parameters())
    states = {k: {} for k in params}
    at_zero = torch.optim.SGD(params.values(), lr=keys["learning_rate"])
    schedule = transformers.get_scheduler(keys["lr_scheduler"], at_zero, keys["warmup_steps"], keys["max_steps"])
    batch, log = keys["micro_batch_size"] * keys["gradient_accumulation_steps"], []
    for step in range(keys["max_steps"]):
        at = step * batch
        ids = torch.tensor([rows[i % ROWS] for i in range(at, at + batch)])
        model.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(ids, use_cache=False).logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(params.values(), keys["max_grad_norm"] or 1e30)
        lr = at_zero.param_groups[0]["lr"]
        with torch.no_grad():
            for k, p in params.items():
                if p.grad is None:
                    continue
                more = (p, p.grad, states[k], lr, o, o["decay"] if decays(k, p, keys["optimizer"]) else 0.0)
                muon(k, *more) if formula == "muon" else (lion if formula == "lion" else adamw)(*more)
        schedule.step()
        log.append((loss.item(), norm.item(), lr))
    return model, log


def by_axtrain(axtrain, keys, folder):
    with open(os.path.join(folder, "c.yaml"), "w", encoding="utf-8") as f:
        json.dump({**keys, "output_dir": os.path.join(folder, "out"), "datasets": [{"path": os.path.join(folder, "rows.jsonl")}]}, f, indent=1)
    return subprocess.run([axtrain, "train", os.path.join(folder, "c.yaml")], capture_output=True, text=True, timeout=300)


def compare(folder, base, model, log, tolerance):
    bad = []
    with open(os.path.join(folder, "out/metrics.jsonl"), encoding="utf-8") as f:
        ours = [x for x in map(json.loads, f) if "loss" in x]
    near = 2e-3 if tolerance < ROUNDED else 2e-2
    for x, (loss, norm, lr) in zip(ours, log):
        for k, v in (("loss", loss), ("grad_norm", norm), ("learning_rate", lr)):
            if abs(x[k] - v) > near * abs(v) + 1e-9:
                bad.append(f"step {x['step']}: {k} is {x[k]}, in PyTorch {v}")
    model.save_pretrained(os.path.join(folder, "torch"))
    a, b, s = (load_file(os.path.join(d, "model.safetensors")) for d in (os.path.join(folder, "out"), os.path.join(folder, "torch"), base))
    if (set(a) ^ set(b)) - {"lm_head.weight"}:
        bad.append(f"only in one: {sorted(set(a) ^ set(b))[:3]}")
    for k in set(a) & set(b):
        moved, off = (b[k] - s[k]).norm(), (a[k] - b[k]).norm()
        if not k.endswith("k_proj.bias") and off > tolerance * moved + 1e-6:
            bad.append(f"{k} {list(a[k].shape)}: off by {off:.3g} of a change of {moved:.3g}")
    return bad


def main():
    def more(p):
        p.add_argument("--only", choices=sorted({x[0] for x in OPTIMIZERS}))
    a, work = begin(__doc__, more)
    make_models(a.axtrain, a.goldens, work, FAMILIES)
    different = refused = 0
    for i in range(a.runs):
        r = random.Random(f"{a.seed} {i}")
        keys, o, formula, tolerance, family = draw(r, work, a.only)
        folder = os.path.join(work, f"run{i}")
        os.makedirs(folder)
        rows = [[r.randint(5, 200) for _ in range(LENGTH)] for _ in range(ROWS)]
        with open(os.path.join(folder, "rows.jsonl"), "w", encoding="utf-8") as f:
            f.writelines(json.dumps({"input_ids": x, "labels": x}) + "\n" for x in rows)
        done = by_axtrain(a.axtrain, keys, folder)
        what = f"{folder}: {keys['optimizer']} {family} {keys.get('optim_args', '')} {keys.get('moment_dtype', '')}"
        if done.returncode:
            refused += 1
            print(f"{what}: {done.returncode} {done.stderr.strip()[-300:]}", flush=True)
            continue
        bad = compare(folder, keys["base_model"], *by_torch(keys, o, formula, rows), tolerance)
        if bad:
            different += 1
            print(what + ":", *bad[:7], sep="\n  ", flush=True)
        elif not a.keep:
            shutil.rmtree(folder)
    return end(a, work, different, refused)


if __name__ == "__main__":
    sys.exit(main())

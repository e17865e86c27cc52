"""What 8-bit floats cost in ten steps, in PyTorch and from the formulas: all linears of a model's layers, AdamW at
1e-4, float32 otherwise, on rows of 512 tokens, two for each step. Each kind of operand alone, then all of them;
docs/results/quant.md compares with `axtrain sft` on the same rows.

    python tests/peers/fp8_curve.py MODEL ROWS.jsonl [none|weights|inputs|gradients|all]...    (rows: input_ids)
"""
import json
import sys

import torch
from transformers import AutoModelForCausalLM

STEPS, BATCH, E4M3, E5M2 = 10, 2, torch.float8_e4m3fn, torch.float8_e5m2


def value(x, dtype):
    scale = x.abs().amax().clamp(min=1e-12) / torch.finfo(dtype).max
    return (x / scale).to(dtype).float() * scale


class Product(torch.autograd.Function):
    """y = x·Wᵀ with the operands that `what` names as one-scale values: e4m3, gradients e5m2."""

    @staticmethod
    def forward(ctx, x, w, what):
        x = value(x, E4M3) if what in ("inputs", "all") else x
        w = value(w, E4M3) if what in ("weights", "all") else w
        ctx.save_for_backward(x, w)
        ctx.what = what
        return x @ w.T

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        d = value(dy, E5M2) if ctx.what in ("gradients", "all") else dy
        return d @ w, d.T @ x, None


def run(folder, rows, what):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for linear in [m for m in model.model.layers.modules() if isinstance(m, torch.nn.Linear)]:
        linear.forward = lambda x, l=linear: Product.apply(x.flatten(0, -2), l.weight, what).view(*x.shape[:-1], -1)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
    losses = []
    for step in range(STEPS):
        ids = torch.tensor(rows[BATCH * step:BATCH * (step + 1)])
        opt.zero_grad()
        loss = model(ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        losses.append(loss.item())
    return losses


def main():
    with open(sys.argv[2], encoding="utf-8") as f:
        rows = [json.loads(line)["input_ids"] for line in f]
    for what in sys.argv[3:] or ("none", "weights", "inputs", "gradients", "all"):
        print(what, " ".join(f"{v:.4f}" for v in run(sys.argv[1], rows, what)), flush=True)


main()

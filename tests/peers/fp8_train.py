"""Training in 8-bit floats in PyTorch, from the formulas: tests/goldens/models/llama on one sequence, three steps of SGD, float32.
Prints loss and gradient norm of each step, which tests/cmd/test_fp8.c has.

    python tests/peers/fp8_train.py GOLDENS     # build/goldens, which the tests make
"""
import sys

import torch
from transformers import AutoModelForCausalLM

LR, STEPS = 0.01, 3


def value(x, dtype, dim):
    """Nearest values with one scale for all of x, or for each of what is left of `dim`: amax to the largest."""
    amax = x.abs().amax() if dim is None else x.abs().amax(dim, keepdim=True)
    scale = amax.clamp(min=1e-12) / torch.finfo(dtype).max
    return (x / scale).to(dtype).to(torch.float32) * scale


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, recipe, grad):
        ctx.save_for_backward(x, w)
        ctx.how = recipe, grad
        of = lambda t: value(t, torch.float8_e4m3fn, 1 if recipe == "rowwise" else None)
        return of(x) @ of(w).T

    @staticmethod
    def backward(ctx, dy):
        (x, w), (recipe, grad) = ctx.saved_tensors, ctx.how
        by = lambda dim: dim if recipe == "rowwise" else None
        e4m3 = torch.float8_e4m3fn
        dx = value(dy, grad, by(1)) @ value(w, e4m3, by(0))
        return dx, value(dy, grad, by(0)).T @ value(x, e4m3, by(0)), None, None


def run(recipe, grad, skip):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1] + "/models/llama", attn_implementation="eager").float()
    for layer in list(model.model.layers)[skip:]:
        for linear in [m for m in layer.modules() if isinstance(m, torch.nn.Linear)]:
            linear.forward = lambda x, l=linear: Product.apply(x.flatten(0, -2), l.weight, recipe, grad).view(*x.shape[:-1], -1)
    ids = torch.tensor([[(41 * i * i + 8 * i + 6) % 509 + 1 for i in range(48)]])
    out = []
    for _ in range(STEPS):
        model.zero_grad()
        loss = model(ids, labels=ids).loss
        loss.backward()
        out += [loss.item(), sum(p.grad.square().sum() for p in model.parameters()).sqrt().item()]
        with torch.no_grad():
            for p in model.parameters():
                p -= LR * p.grad
    return out


for recipe in "tensorwise", "rowwise":
    for name, grad in ("hybrid", torch.float8_e5m2), ("e4m3", torch.float8_e4m3fn):
        print(f'{{"{recipe}", "{name}", 0, {{' + ", ".join(f"{v:.6f}" for v in run(recipe, grad, 0)) + "}},")
print('{"tensorwise", "hybrid", 1, {' + ", ".join(f"{v:.6f}" for v in run("tensorwise", torch.float8_e5m2, 1)) + "}},")
print('{"none", "hybrid", 3, {' + ", ".join(f"{v:.6f}" for v in run("tensorwise", torch.float8_e5m2, 3)) + "}},")

"""Training for a scheme with the embedding and the head in PyTorch, from the formulas: tests/goldens/models/llama on one
sequence, three steps of SGD, float32. Prints loss and gradient norm of each step, which tests/cmd/test_qat.c has.

    python tests/peers/qat_ends.py GOLDENS     # build/goldens, which the tests make
"""
import sys

import torch
from transformers import AutoModelForCausalLM

LR, STEPS = 0.01, 3


class Round(torch.autograd.Function):
    """Half to even; the gradient passes."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, d):
        return d


def int4(w):
    g = w.view(w.shape[0], -1, 32)
    s = (g.detach().abs().amax(-1, keepdim=True) / 7.5).clamp(min=2.0**-126)
    return (Round.apply(g * (1 / s)).clamp(-8, 7) * s).view_as(w)


def int8(w):
    s = (w.detach().abs().amax(-1, keepdim=True) / 127.5).clamp(min=2.0**-126)
    return Round.apply(w * (1 / s)).clamp(-128, 127) * s


def int8_token(x):
    low, high = x.detach().amin(-1, keepdim=True).clamp(max=0), x.detach().amax(-1, keepdim=True).clamp(min=0)
    s = ((high - low) / 255).clamp(min=2.0**-126)
    z = (-128 - (low / s).round()).clamp(-128, 127)
    return ((Round.apply(x * (1 / s)) + z).clamp(-128, 127) - z) * s


class E4m3(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dims):
        s = (x.abs().amax(-1, keepdim=True) if dims else x.abs().amax()).clamp(min=1e-12) / 448
        return (x / s).to(torch.float8_e4m3fn).float() * s

    @staticmethod
    def backward(ctx, d):
        return d, None


SCHEMES = {"int4": (int4, lambda x: x), "int8-int8": (int8, int8_token),
           "fp8-tensor": (lambda w: E4m3.apply(w, 0), lambda x: E4m3.apply(x, 1))}


def run(scheme, embedding, head, tied):
    weight, inputs = SCHEMES[scheme]
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1] + "/models/" + tied, attn_implementation="eager").float()
    for linear in [m for m in model.model.modules() if isinstance(m, torch.nn.Linear)] + [model.lm_head] * head:
        linear.forward = lambda x, l=linear: torch.nn.functional.linear(inputs(x), weight(l.weight), l.bias)
    if embedding:
        e = model.model.embed_tokens
        e.forward = lambda ids: torch.nn.functional.embedding(ids, weight(e.weight))
    ids = torch.tensor([[(7 * i * i + 3 * i + 11) % 509 + 1 for i in range(48)]])
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


for scheme in SCHEMES:
    cases = [(1, 0, "llama"), (0, 1, "llama"), (1, 1, "llama"), (1, 1, "qwen3")]
    for embedding, head, model in cases[:3] if scheme == "int8-int8" else cases:  # an activation of qwen3 is on a tie
        values = ", ".join(f"{v:.6f}" for v in run(scheme, embedding, head, model))
        print(f'{{"{scheme}", {embedding}, {head}, "{model}", {{{values}}}}},')

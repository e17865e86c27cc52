"""ops/delta.safetensors: the gated delta rule token by token in float64, and its gradients by autograd.

Documents of 3, 1 and 66 tokens, 2 key heads of 8 for 4 value heads of 6. Inputs are by the rule of
weights, rounded to float32: seed 7, the names, means and deviations below. The loss is Σ out·dout.
"""

import tools
import rule

import torch

DOCUMENTS = (3, 1, 66)
KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM = 2, 4, 8, 6
SEED = 7
INPUTS = dict(  # heads, size of each (0: one number), mean, deviation
    q=(KEY_HEADS, KEY_DIM, 0.0, 0.5), k=(KEY_HEADS, KEY_DIM, 0.0, 0.5),
    v=(VALUE_HEADS, VALUE_DIM, 0.0, 0.5), dout=(VALUE_HEADS, VALUE_DIM, 0.0, 0.5),
    g=(VALUE_HEADS, 0, -0.5, 0.25), beta=(VALUE_HEADS, 0, 0.5, 0.25))


def inputs():
    tokens = sum(DOCUMENTS)
    for name, (heads, size, mean, deviation) in INPUTS.items():
        shape = (tokens, heads, size) if size else (tokens, heads)
        values = rule.values(SEED, f"delta.{name}", shape, mean, deviation)
        yield name, torch.tensor(values).double().requires_grad_(name != "dout")


def normalized(x):
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def recurrence(q, k, v, g, beta):
    """out of one document and value head."""
    state = torch.zeros(KEY_DIM, VALUE_DIM, dtype=torch.float64)
    rows = []
    for t in range(len(v)):
        state = g[t].exp() * state
        state = state + torch.outer(k[t], beta[t] * (v[t] - state.T @ k[t]))
        rows.append(state.T @ q[t])
    return torch.stack(rows)


def family_delta(out):
    x = dict(inputs())
    q, k = normalized(x["q"]) * KEY_DIM ** -0.5, normalized(x["k"])
    group, first, documents = VALUE_HEADS // KEY_HEADS, 0, []
    for n in DOCUMENTS:
        d = slice(first, first + n)
        first += n
        documents.append(torch.stack(
            [recurrence(q[d, h // group], k[d, h // group], x["v"][d, h], x["g"][d, h],
                        x["beta"][d, h]) for h in range(VALUE_HEADS)], dim=1))
    result = torch.cat(documents)
    (result * x["dout"]).sum().backward()
    tensors = {f"d{name}": t.grad for name, t in x.items() if name != "dout"}
    tools.save_tensors(out / "ops" / "delta.safetensors", {"out": result, **tensors}, keep=True)
    print("delta", len(tensors))

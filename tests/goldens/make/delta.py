"""ops/delta.safetensors, ops/kda.safetensors, ops/ssd.safetensors: the gated delta rule, the same with a decay per channel
and its gates, and Mamba-2's recurrence with its gates, token by token in float64, and their gradients by autograd.

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


# of Mamba-2; those of VECTORS have no tokens
SSD_INPUTS = dict(
    c=(KEY_HEADS, KEY_DIM, 0.0, 0.5), b=(KEY_HEADS, KEY_DIM, 0.0, 0.5),
    x=(VALUE_HEADS, VALUE_DIM, 0.0, 0.5), dout=(VALUE_HEADS, VALUE_DIM, 0.0, 0.5),
    dt=(VALUE_HEADS, 0, 0.0, 1.0), log=(VALUE_HEADS, 0, -0.5, 0.5), bias=(VALUE_HEADS, 0, 0.0, 0.5),
    skip=(VALUE_HEADS, 0, 1.0, 0.5))
# of a decay per channel, some of which forget within a token
KDA_INPUTS = dict(
    q=(KEY_HEADS, KEY_DIM, 0.0, 0.5), k=(KEY_HEADS, KEY_DIM, 0.0, 0.5),
    v=(VALUE_HEADS, VALUE_DIM, 0.0, 0.5), dout=(VALUE_HEADS, VALUE_DIM, 0.0, 0.5),
    a=(VALUE_HEADS, KEY_DIM, 0.0, 2.0), b=(VALUE_HEADS, 0, 0.0, 1.0),
    log=(VALUE_HEADS, 0, 0.0, 1.0), bias=(VALUE_HEADS * KEY_DIM, 0, 0.0, 0.5))
VECTORS = ("log", "bias", "skip")
LIMITS = 0.25, 1.5  # of the time step: some are outside


def inputs(kind="delta", table=INPUTS):
    tokens = sum(DOCUMENTS)
    for name, (heads, size, mean, deviation) in table.items():
        shape = (heads,) if name in VECTORS else (tokens, heads, size) if size else (tokens, heads)
        values = rule.values(SEED, f"{kind}.{name}", shape, mean, deviation)
        yield name, torch.tensor(values).double().requires_grad_(name != "dout")


def normalized(x):
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def recurrence(q, k, v, g, beta):
    """out of one document and value head."""
    state = torch.zeros(KEY_DIM, VALUE_DIM, dtype=torch.float64)
    rows = []
    for t in range(len(v)):
        state = g[t].exp()[..., None] * state
        state = state + torch.outer(k[t], beta[t] * (v[t] - state.T @ k[t]))
        rows.append(state.T @ q[t])
    return torch.stack(rows)


def rule_of(x, g, beta):
    q, k = normalized(x["q"]) * KEY_DIM ** -0.5, normalized(x["k"])
    group, first, documents = VALUE_HEADS // KEY_HEADS, 0, []
    for n in DOCUMENTS:
        d = slice(first, first + n)
        first += n
        documents.append(torch.stack(
            [recurrence(q[d, h // group], k[d, h // group], x["v"][d, h], g[d, h], beta[d, h])
             for h in range(VALUE_HEADS)], dim=1))
    return torch.cat(documents)


def save(out, kind, x, result):
    (result * x["dout"]).sum().backward()
    tensors = {f"d{name}": t.grad for name, t in x.items() if name != "dout"}
    tools.save_tensors(out / "ops" / f"{kind}.safetensors", {"out": result, **tensors}, keep=True)
    print(kind, len(tensors))


def family_delta(out):
    x = dict(inputs())
    save(out, "delta", x, rule_of(x, x["g"], x["beta"]))


def family_kda(out):
    x = dict(inputs("kda", KDA_INPUTS))
    step = torch.nn.functional.softplus(x["a"] + x["bias"].view(VALUE_HEADS, KEY_DIM))
    save(out, "kda", x, rule_of(x, -x["log"].exp()[:, None] * step, x["b"].sigmoid()))


def ssd(x):
    step = torch.nn.functional.softplus(x["dt"] + x["bias"]).clamp(*LIMITS)
    decay = (-x["log"].exp() * step).exp()
    group, rows, first = VALUE_HEADS // KEY_HEADS, [], 0
    for n in DOCUMENTS:
        state = torch.zeros(VALUE_HEADS, VALUE_DIM, KEY_DIM, dtype=torch.float64)
        for t in range(first, first + n):
            b, c = (x[name][t].repeat_interleave(group, 0) for name in "bc")
            update = (step[t, :, None] * x["x"][t])[:, :, None] * b[:, None, :]
            state = decay[t, :, None, None] * state + update
            rows.append((state @ c[:, :, None])[:, :, 0] + x["skip"][:, None] * x["x"][t])
        first += n
    return torch.stack(rows)


def family_ssd(out):
    x = dict(inputs("ssd", SSD_INPUTS))
    save(out, "ssd", x, ssd(x))

"""GPTQ's algorithm in PyTorch, one column at a time in float64, on numbers that anyone can make again:
prints tests/cmd/gptq_codes.h, which tests/cmd/test_gptq.c compares with `axtrain quantize --gptq`'s rounding.

    python tests/peers/gptq.py > tests/cmd/gptq_codes.h
"""
import torch

ROWS, INPUTS, GROUP, TOKENS, DAMPING = 4, 320, 32, 400, 0.01
torch.set_default_dtype(torch.float64)


def numbers(n, state):
    out = []
    for _ in range(n):
        state = (state * 1103515245 + 12345) % 2**31
        out.append((state >> 16) / 16384 - 1)
    return torch.tensor(out)


def inputs():  # neighbors are alike, and some columns larger; column 5 reads nothing but 0
    x = numbers(TOKENS * INPUTS, 1).view(TOKENS, INPUTS).float()
    for j in range(1, INPUTS):
        x[:, j] += 0.75 * x[:, j - 1]
    x *= 1 + (torch.arange(INPUTS) * 7 % 11).float() / 8
    x[:, 5] = 0
    return x.double()


def weights():  # the first of a group is small, so that no code is a tie
    w = numbers(ROWS * INPUTS, 2).view(ROWS, INPUTS).float()
    w[:, ::GROUP] /= 4
    return w.double()


def scale_of(group):
    return (group.abs().amax(1).float() / 7.5).clamp(min=2**-126).double()


def gptq(w, x, act_order):
    w = w.clone()
    h = 2 / len(x) * x.T @ x
    dead = h.diag() == 0
    w[:, dead] = 0
    h[dead, dead] = 1
    h += DAMPING * h.diag().mean() * torch.eye(INPUTS)
    order = torch.argsort(h.diag(), descending=True, stable=True) if act_order else torch.arange(INPUTS)
    u = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(h[order][:, order])), upper=True)
    scales = torch.stack([scale_of(weights()[:, g:g + GROUP]) for g in range(0, INPUTS, GROUP)], 1)
    w, codes, margin = w[:, order], torch.zeros(ROWS, INPUTS), 1.0
    for i, column in enumerate(order.tolist()):
        if not act_order and i % GROUP == 0:
            scales[:, i // GROUP] = scale_of(w[:, i:i + GROUP])
        s = scales[:, column // GROUP]
        exact = w[:, i] / s
        q = exact.round().clamp(-8, 7)
        margin = min(margin, ((exact - exact.floor() - 0.5).abs() + (exact.abs() > 7.6)).min().item())
        codes[:, column] = q
        w[:, i + 1:] -= ((w[:, i] - q * s) / u[i, i])[:, None] * u[i, i + 1:]
    e = torch.repeat_interleave(scales, GROUP, 1) * codes - weights()
    return codes.int(), scales, (2 / len(x) * (x @ e.T).square().sum()).item(), margin


def show(name, act_order):
    codes, scales, error, margin = gptq(weights(), inputs(), act_order)
    assert margin > 1e-4, margin
    print(f"/* {name}: each code + 8 as a letter; the outputs' error. */")
    print(f"static const char *const {name}_codes[ROWS] = {{")
    for row in codes.tolist():
        text = "".join(chr(97 + c + 8) for c in row)
        print(",\n".join(f'    "{text[i:i + 80]}"' for i in range(0, INPUTS, 80)).replace('",\n', '"\n') + ",")
    print(f"}};\nstatic const double {name}_error = {error:.12g};")


def nearest():
    w = weights()
    scales = torch.stack([scale_of(w[:, g:g + GROUP]) for g in range(0, INPUTS, GROUP)], 1)
    s = torch.repeat_interleave(scales, GROUP, 1)
    e = (w.float() * (1 / s.float())).round().clamp(-8, 7) * s - w  # largest weights are ties: in float32
    return (2 / TOKENS * (inputs() @ e.T).square().sum()).item()


print("/* Written by tests/peers/gptq.py: GPTQ in float64. */")
print(f"enum {{ ROWS = {ROWS}, INPUTS = {INPUTS}, GROUP = {GROUP}, TOKENS = {TOKENS} }};")
show("in_order", False)
show("by_size", True)
print(f"static const double nearest_error = {nearest():.12g};")

"""Writes tests/model/sequence_balance.h: DeepSeek's balancing loss by sequence, and its gradient, by PyTorch.

The loss is written as in the papers (DeepSeek-V2 section 2.2.3; DeepSeek-V3 equations 17 to 20, with affinities
normalized to a sum of 1), the mean over sequences, and autograd differentiates it.
Run: python3 tests/peers/make_sequence_balance.py > tests/model/sequence_balance.h
"""
import torch

COEF = 0.01
CASES = [("softmax", [5, 1, 3, 4], 6, 2), ("sigmoid", [7, 2, 4], 8, 3)]


def balance(logits, lengths, k, kind):
    scores = logits.softmax(-1) if kind == "softmax" else logits.sigmoid()
    chosen = scores.topk(k, dim=-1).indices
    affinity = scores / scores.sum(-1, keepdim=True)
    losses, first = [], 0
    for n in lengths:
        rows, experts = affinity[first:first + n], chosen[first:first + n]
        f = torch.zeros(logits.shape[1], dtype=logits.dtype)
        f.scatter_add_(0, experts.reshape(-1), torch.ones(n * k, dtype=logits.dtype))
        f = f * logits.shape[1] / (k * n)
        losses.append((f * rows.mean(0)).sum())
        first += n
    return torch.stack(losses).mean()


def numbers(name, t):
    print(f"    .{name} = {{")
    values = [f"{v:.17g}" for v in t.flatten().tolist()]
    for i in range(0, len(values), 4):
        print("        " + ", ".join(values[i:i + 4]) + ",")
    print("    },")


print("/* Written by tests/peers/make_sequence_balance.py: balancing losses by sequence, by PyTorch. */")
print("#ifndef AX_TESTS_MODEL_SEQUENCE_BALANCE_H\n#define AX_TESTS_MODEL_SEQUENCE_BALANCE_H\n")
print("#include <stdbool.h>\n#include <stdint.h>\n")
print("#define SEQUENCE_TOKENS 13\n#define SEQUENCE_EXPERTS 8\n")
print("static const struct sequence_golden {\n    bool sigmoid;\n    int64_t E, k, n_docs;\n    int32_t cu[5];")
print("    double coef, loss;\n    double logits[SEQUENCE_TOKENS * SEQUENCE_EXPERTS];")
print("    double gradient[SEQUENCE_TOKENS * SEQUENCE_EXPERTS]; /* of coef·loss */\n} sequence_goldens[] = {")
torch.manual_seed(1)
for kind, lengths, experts, k in CASES:
    logits = (2 * torch.randn(sum(lengths), experts, dtype=torch.float64)).requires_grad_()
    loss = balance(logits, lengths, k, kind)
    (COEF * loss).backward()
    cu = [0]
    for n in lengths:
        cu.append(cu[-1] + n)
    print("    {")
    print(f"    .sigmoid = {'true' if kind == 'sigmoid' else 'false'},")
    print(f"    .E = {experts},\n    .k = {k},\n    .n_docs = {len(lengths)},")
    print(f"    .cu = {{{', '.join(map(str, cu))}}},")
    print(f"    .coef = {COEF},\n    .loss = {loss.item():.17g},")
    numbers("logits", logits.detach())
    numbers("gradient", logits.grad)
    print("    },")
print("};\n\n#endif")

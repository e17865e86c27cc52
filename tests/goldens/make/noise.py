#!/usr/bin/env python3
"""How much honest fp32 rounding moves digests: the table in ../README.md.

Every model is run in fp32 and in float64; the deviation of one from the other, as a reader estimates
it from digests, is set against what the reader lets through.
"""

import copy

import tools
import models
import rule


GRADIENT = 3e-5 / 3          # of a tensor's norm: a third of the tolerance
ROW = 1e-4                   # one element of a row off by the tolerance
LR = models.TRAIN["lr"]


def rho(a, b, count):
    """The estimate of ||a - b|| from projections at the head of two digests."""
    return float(((a[:count] - b[:count]) ** 2).mean() ** 0.5)


def gradients(model, wide, batch):
    """Largest rho / (norm * GRADIENT) of a tensor."""
    a, b = (models.to_checkpoint_names(m, models.grads_of(m, models.mean_loss(m, batch)))
            for m in (model, wide))
    worst = 0.0
    for name in a:
        if a[name].numel() <= 64 or not b[name].any():
            continue
        x, y = (rule.digest(name, t.numpy()) for t in (a[name], b[name]))
        worst = max(worst, rho(x[1:], y[1:], rule.PROJECTIONS) / (x[0] * GRADIENT))
    return worst


def parameters(model, wide, batch):
    """(largest projection / (bound / 2), drawn elements off by more than 1e-5, drawn elements)
    after steps 1 and 5; bound = 2 * lr * steps."""
    kept = [models.train_steps(copy.deepcopy(m), batch, 5, snapshots=(1, 5))[2]
            for m in (model, wide)]
    worst, off, drawn = 0.0, 0, 0
    for step in (1, 5):
        a, b = (models.to_checkpoint_names(model, k[step]) for k in kept)
        for name in a:
            if a[name].numel() <= 64:
                continue
            d = rule.digest(name, (a[name].double() - b[name].double()).numpy())
            worst = max(worst, abs(d[1:9]).max() / (LR * step))
            off += int((abs(d[9:]) > 1e-5).sum())
            drawn += 16
    return worst, off, drawn


def rows(model, wide, batch):
    """Largest rho of a row / ROW, over hidden states and outputs of parts."""
    a, b = (models.record(m, input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
            for m in (model, wide))
    real = batch["attention_mask"].reshape(-1).bool().numpy()
    worst = 0.0
    for name in a:
        if name.startswith(("hidden_", "attn_out_", "mlp_out_")):
            d = rule.row_digest(name, (a[name].double() - b[name].double()).numpy())[real]
            worst = max(worst, float(((d ** 2).mean(1) ** 0.5).max()) / ROW)
    return worst


def main():
    print("| model | gradients | parameters | drawn elements beyond 1e-5 | rows |\n|---|---|---|---|---|")
    for spec in models.SPECS + models.FAMILY_SPECS:
        model = models.build_model(spec)
        batch = models.make_batch(spec, model.config.vocab_size, tools.gen(spec.seed + 5000))
        wide = copy.deepcopy(model).double()
        with models.float64_everywhere():
            g, r = gradients(model, wide, batch), rows(model, wide, batch)
            p, off, drawn = parameters(model, wide, batch)
        print(f"| {spec.name} | {g:.2f} | {p:.2f} | {off} of {drawn} | {r:.2f} |", flush=True)


if __name__ == "__main__":
    main()

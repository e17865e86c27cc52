"""optim/: five steps of each optimizer on small tensors, clipping, 8-bit AdamW."""

import math

from tools import fresh, gen, max_diff, randn, save_json, save_tensors, sig

import torch


class Lion(torch.optim.Optimizer):
    """p -= lr*(sign(b1*m + (1-b1)*g) + wd*p);  m = b2*m + (1-b2)*g."""

    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                update = torch.sign(b1 * m + (1 - b1) * p.grad)
                p.sub_(group["lr"] * (update + group["weight_decay"] * p))
                m.copy_(b2 * m + (1 - b2) * p.grad)


def adamw8bit_by_formula(param, grads, lr, betas, eps, wd, block):
    """Block-wise 8-bit AdamW: both moments live as 8-bit codes of the dynamic
    map (signed for m, unsigned for v), one fp32 absmax per block; a step
    reads them, updates in fp32, uses the unrounded moments for the parameter
    and stores the rounded ones."""
    from torchao.optim.quant_utils import create_dynamic_map, quantize_8bit_with_qmap
    maps = [torch.tensor(create_dynamic_map(signed=s)) for s in (True, False)]
    p = param.clone()
    state = [(torch.zeros(p.numel(), dtype=torch.uint8), torch.zeros(p.numel() // block)) for _ in maps]
    history = []
    for t, g in enumerate(grads, 1):
        read = [(qmap[c.int()].view(-1, block) * s[:, None]).view(p.shape) for qmap, (c, s) in zip(maps, state)]
        p = p - lr * wd * p
        m = read[0].lerp(g, 1 - betas[0])
        v = read[1].lerp(g.square(), 1 - betas[1])
        denom = v.sqrt() / math.sqrt(1 - betas[1] ** t) + eps
        p = p - lr * (m / (1 - betas[0] ** t)) / denom
        state = []
        for qmap, x in zip(maps, (m, v)):
            blocks = x.reshape(-1, block)
            s = blocks.abs().amax(1).clamp(min=1e-12)
            state.append((quantize_8bit_with_qmap((blocks / s[:, None]).reshape(-1), qmap), s))
        history.append(p.clone())
    return history, state, maps


def family_optim(out, seed=701):
    from transformers.optimization import Adafactor as HFAdafactor
    root = fresh(out / "optim")
    g = gen(seed)
    start = dict(wide=randn(g, 12, 20), tall=randn(g, 20, 8), vec=randn(g, 20))
    grads = {k: randn(g, 5, *v.shape) * 0.3 for k, v in start.items()}
    grads["wide"][:, 3] = 0                       # a row that never has a gradient
    grads["vec"][2] = 0                           # a step without gradient
    tensors = {f"in.{k}": v for k, v in start.items()}
    tensors.update({f"grad.{k}": v for k, v in grads.items()})
    cases = [
        ("adamw", lambda ps: torch.optim.AdamW(ps, lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1),
         dict(lr=1e-2, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1), None),
        ("adam_no_decay", lambda ps: torch.optim.AdamW(ps, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0),
         dict(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=0.0), None),
        ("sgd_nesterov", lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
         dict(lr=0.1, momentum=0.9, weight_decay=0.01, about="weight decay is added to the gradient"), None),
        ("lion", lambda ps: Lion(ps, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1),
         dict(lr=1e-3, beta1=0.9, beta2=0.99, weight_decay=0.1, source="formula in class Lion"), None),
        ("muon", lambda ps: torch.optim.Muon(ps, lr=0.02, weight_decay=0.1, momentum=0.95, nesterov=True, ns_steps=5),
         dict(lr=0.02, weight_decay=0.1, momentum=0.95, nesterov=True, ns_steps=5, ns_coefficients=[3.4445, -4.775, 2.0315],
              eps=1e-7, adjust="original: lr*sqrt(max(1, rows/cols))", about="Newton-Schulz runs in bf16"), ("wide", "tall")),
        ("muon_match_rms", lambda ps: torch.optim.Muon(ps, lr=0.002, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
         dict(lr=0.002, weight_decay=0.1, momentum=0.95, adjust="lr*0.2*sqrt(max(rows, cols))"), ("wide", "tall")),
        ("adafactor", lambda ps: torch.optim.Adafactor(ps, lr=0.01, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0,
                                                       weight_decay=0.1),
         dict(lr=0.01, beta2_decay=-0.8, eps1="eps of fp32", eps2=1e-3, d=1.0, weight_decay=0.1,
              source="torch.optim.Adafactor"), None),
        ("adafactor_hf", lambda ps: HFAdafactor(ps, lr=0.01, eps=(1e-30, 1e-3), clip_threshold=1.0, decay_rate=-0.8,
                                                weight_decay=0.1, scale_parameter=False, relative_step=False),
         dict(lr=0.01, eps1=1e-30, eps2=1e-3, clip_threshold=1.0, decay_rate=-0.8, weight_decay=0.1, scale_parameter=False,
              relative_step=False, source="transformers.optimization.Adafactor"), None),
    ]
    info = dict(about="5 steps from in.* with grad.*[step]; NAME.KEY[step] is the parameter after that step", cases=[])
    for name, make, params, only in cases:
        keys = only or tuple(start)
        ps = {k: torch.nn.Parameter(start[k].clone()) for k in keys}
        opt = make(list(ps.values()))
        hist = {k: [] for k in keys}
        for t in range(5):
            for k, p in ps.items():
                p.grad = grads[k][t].clone()
            opt.step()
            for k, p in ps.items():
                hist[k].append(p.detach().clone())
        tensors.update({f"{name}.{k}": torch.stack(v) for k, v in hist.items()})
        info["cases"].append(dict(name=name, params=params, tensors=list(keys)))

    # Newton-Schulz once more in fp32, for implementations that do not use bf16
    u = grads["wide"][0]
    x = u / u.norm().clamp(min=1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    tensors["newton_schulz_fp32.in"], tensors["newton_schulz_fp32.out"] = u, x

    # clipping by global norm: inactive, active, zero
    parts = dict(matrix=randn(g, 7, 5), vector=randn(g, 11))
    for name, scale in (("below", 0.05), ("above", 3.0), ("zero", 0.0)):
        ps = {k: torch.nn.Parameter(torch.zeros_like(t)) for k, t in parts.items()}
        for k, p in ps.items():
            p.grad = parts[k] * scale
            tensors[f"clip_{name}.in.{k}"] = p.grad.clone()
        norm = torch.nn.utils.clip_grad_norm_(list(ps.values()), 1.0)
        for k, p in ps.items():
            tensors[f"clip_{name}.out.{k}"] = p.grad.clone()
        info.setdefault("clip", []).append(dict(name=name, max_norm=1.0, norm=norm.item(),
                                                about="grad *= min(1, max_norm/(norm + 1e-6))"))
    save_tensors(root / "optim.safetensors", tensors)

    # 8-bit AdamW on a tensor large enough to be quantised (torchao: >= 4096 values)
    from torchao.optim.adam import single_param_adam
    from torchao.optim.subclass_8bit import OptimState8bit
    p0, gs = randn(g, 32, 128) * 0.1, randn(g, 5, 32, 128) * 0.02
    gs[:, 5] = 0
    hist, state, maps = adamw8bit_by_formula(p0, gs, 1e-3, (0.9, 0.95), 1e-8, 0.1, 256)
    p = p0.clone()                                # torchao's update, called without its compiled wrapper
    both = [OptimState8bit.zeros(p.shape, signed, 256) for signed in (True, False)]
    worst = 0.0
    for t in range(5):
        single_param_adam(p, gs[t], torch.tensor(float(t + 1)), both[0], both[1], None, torch.tensor(1e-3), 0.9, 0.95,
                          0.1, 1e-8, True, False)
        worst = max(worst, max_diff(p, hist[t]))
    assert worst < 1e-6, worst
    off = sum(int((mine.codes.view(-1) != c).sum()) for mine, (c, _) in zip(both, state))
    info["adamw8bit"] = dict(lr=1e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, block=256,
                             source="formula; torchao.optim.adam.single_param_adam run on the same data",
                             torchao_param_max_diff=sig(worst), torchao_codes_that_differ=off)
    save_tensors(root / "adamw8bit.safetensors", dict(
        [("in", p0), ("grad", gs), ("param", torch.stack([hist[0], hist[-1]])), ("map_signed", maps[0]),
         ("map_unsigned", maps[1])] +
        [(f"{n}_{f}", t) for n, (c, s) in zip(("m", "v"), state) for f, t in (("codes", c), ("absmax", s))]))
    save_json(root / "optim.json", info)
    print("optim", len(cases) + 1, flush=True)

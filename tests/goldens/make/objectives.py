"""objectives/: losses and gradients of preference, reinforcement and classification training.

Every case is computed in float64 from fp32 inputs with the formulas written out below, and stored
as fp32; where TRL (or transformers, or torch) exposes the same loss, that code is run on the same
inputs in fp32 and the largest difference of loss and gradient goes into crosscheck.json.
"""

import math
import types
from collections import defaultdict

from tools import fresh, gen, IGNORE, max_diff, randint, randn, save_json, save_tensors, scalar, sig

import torch
import torch.nn.functional as F


OBJ = dict(
    seed=401,
    pref=dict(pairs=6, tokens=12),
    grpo=dict(groups=4, group_size=4, tokens=10),
    ppo=dict(rows=5, tokens=9),
    prm=dict(rows=3, tokens=14),
    ce=dict(rows=24, vocab=50, hidden=16),
    dpo=[
        dict(name="sigmoid", loss="sigmoid", beta=0.1),
        dict(name="sigmoid_beta05", loss="sigmoid", beta=0.5),
        dict(name="sigmoid_smooth", loss="sigmoid", beta=0.1, label_smoothing=0.1),
        dict(name="robust", loss="robust", beta=0.1, label_smoothing=0.1),
        dict(name="ipo", loss="ipo", beta=0.1),
        dict(name="ipo_sum", loss="ipo_sum", beta=0.1),
        dict(name="hinge", loss="hinge", beta=0.1),
        dict(name="sigmoid_norm", loss="sigmoid_norm", beta=2.0),
        dict(name="exo_pair", loss="exo_pair", beta=0.1, label_smoothing=1e-3),
        dict(name="nca_pair", loss="nca_pair", beta=0.1),
        dict(name="bco_pair", loss="bco_pair", beta=0.1),
        dict(name="sppo_hard", loss="sppo_hard", beta=0.5),
        dict(name="apo_zero", loss="apo_zero", beta=0.1),
        dict(name="apo_down", loss="apo_down", beta=0.1),
    ],
    orpo=[dict(name="orpo", beta=0.1), dict(name="orpo_beta1", beta=1.0)],
    cpo=[
        dict(name="simpo", loss="simpo", beta=2.0, gamma=0.5, cpo_alpha=0.0),
        dict(name="simpo_smooth", loss="simpo", beta=2.5, gamma=1.4, cpo_alpha=0.0, label_smoothing=0.1),
        dict(name="cpo", loss="sigmoid", beta=0.1, cpo_alpha=1.0),
        dict(name="cpo_simpo", loss="simpo", beta=2.0, gamma=0.5, cpo_alpha=0.5),
        dict(name="cpo_hinge", loss="hinge", beta=0.1, cpo_alpha=1.0),
    ],
    kto=[
        dict(name="kto", loss="kto", beta=0.1, desirable_weight=1.0, undesirable_weight=1.0),
        dict(name="kto_weights", loss="kto", beta=0.3, desirable_weight=1.33, undesirable_weight=0.8),
        dict(name="kto_negative_kl", loss="kto", beta=0.1, desirable_weight=1.0, undesirable_weight=1.0, kl_shift=-8.0),
        dict(name="apo_zero_unpaired", loss="apo_zero_unpaired", beta=0.1, desirable_weight=1.0,
             undesirable_weight=1.0),
    ],
    advantages=[dict(name=n, scale_rewards=n) for n in ("group", "batch", "none")],
    grpo_cases=[
        dict(name="grpo", loss="grpo"),
        dict(name="grpo_kl", loss="grpo", beta=0.04),
        dict(name="grpo_kl_unbiased", loss="grpo", beta=0.04, use_bias_correction_kl=True),
        dict(name="grpo_scale_batch", loss="grpo", advantages="batch"),
        dict(name="grpo_scale_none", loss="grpo", advantages="none"),
        dict(name="grpo_on_policy", loss="grpo", on_policy=True, beta=0.04),
        dict(name="bnpo", loss="bnpo", beta=0.001),
        dict(name="dr_grpo", loss="dr_grpo", advantages="none", max_completion_length=16),
        dict(name="dapo", loss="dapo", epsilon_low=0.2, epsilon_high=0.28),
        dict(name="dapo_accumulated", loss="dapo", epsilon_low=0.2, epsilon_high=0.28, num_items_in_batch=250.0),
        dict(name="dapo_kl", loss="dapo", epsilon_low=0.2, epsilon_high=0.28, beta=0.1),
        dict(name="grpo_delta", loss="grpo", delta=1.3),
        dict(name="bnpo_delta_kl", loss="bnpo", delta=1.5, beta=0.05, epsilon_low=0.1, epsilon_high=0.3),
        dict(name="gspo", loss="grpo", importance="sequence", epsilon_low=3e-4, epsilon_high=4e-4),
        dict(name="gspo_wide", loss="grpo", importance="sequence", epsilon_low=0.05, epsilon_high=0.08, beta=0.04),
        dict(name="gspo_dapo", loss="dapo", importance="sequence", epsilon_low=0.02, epsilon_high=0.03),
        dict(name="cispo", loss="cispo", epsilon_high=1.5),
        dict(name="sapo", loss="sapo", tau_pos=1.0, tau_neg=1.05),
        dict(name="luspo", loss="luspo", importance="sequence", epsilon_low=0.05, epsilon_high=0.08),
        dict(name="grpo_tis", loss="grpo", sampler_ratio_cap=1.2),
    ],
    ppo_cases=[
        dict(name="ppo", gamma=1.0, lam=0.95, cliprange=0.2, cliprange_value=0.2, vf_coef=0.1, kl_coef=0.05,
             kl="k1", whiten=True),
        dict(name="ppo_discount", gamma=0.97, lam=0.9, cliprange=0.1, cliprange_value=0.3, vf_coef=0.5, kl_coef=0.1,
             kl="k3", whiten=True),
        dict(name="ppo_raw_advantages", gamma=0.99, lam=1.0, cliprange=0.2, cliprange_value=0.2, vf_coef=1.0,
             kl_coef=0.0, kl="k1", whiten=False),
        dict(name="ppo_lambda0", gamma=0.99, lam=0.0, cliprange=0.2, cliprange_value=0.2, vf_coef=0.1, kl_coef=0.05,
             kl="k2", whiten=False),
    ],
    ce_cases=[
        dict(name="plain"),
        dict(name="weights", weights=True),
        dict(name="smooth", label_smoothing=0.1),
        dict(name="zloss", z_loss=1e-3),
        dict(name="all", weights=True, label_smoothing=0.05, z_loss=1e-2),
        dict(name="all_sum", weights=True, label_smoothing=0.05, z_loss=1e-2, reduction="sum"),
        dict(name="temperature", temperature=0.7),
    ],
)


class Goldens:
    """Collects the tensors and the JSON of one objectives file."""

    def __init__(self, out, name, about):
        self.out, self.name = out, name
        self.tensors, self.json = {}, dict(about=about, cases=[])

    def put(self, **tensors):
        self.tensors.update(tensors)

    def case(self, params, loss, grads=None, **more):
        name = params["name"]
        for key, g in (grads or {}).items():
            self.tensors[f"{name}.grad.{key}"] = g
        scalars = {}
        for k, v in more.items():
            if torch.is_tensor(v) and v.ndim > 0:
                self.tensors[f"{name}.{k}"] = v
            else:
                scalars[k] = scalar(v)
        self.json["cases"].append(dict(params, expect=dict(loss=scalar(loss), **scalars)))

    def write(self):
        save_tensors(self.out / "objectives" / f"{self.name}.safetensors", self.tensors)
        save_json(self.out / "objectives" / f"{self.name}.json", self.json)


class Crosscheck:
    """Differences between the formulas here and somebody else's code."""

    def __init__(self):
        self.rows = []

    def add(self, case, against, loss, ref_loss, grad=None, ref_grad=None, limit=2e-5):
        loss, ref_loss = scalar(loss), scalar(ref_loss)
        row = dict(case=case, against=against, loss=sig(abs(loss - ref_loss)))
        if grad is not None:
            row["grad"] = sig(max_diff(grad, ref_grad))
        assert row["loss"] <= limit * max(1.0, abs(loss)) and row.get("grad", 0) <= limit, row
        self.rows.append(row)


def leaf(t):
    return t.detach().double().clone().requires_grad_(True)


def leaf32(t):
    return t.detach().float().clone().requires_grad_(True)


def fake_trainer(**kw):
    """Just enough of a TRL trainer for its loss methods to run unbound."""
    acc = types.SimpleNamespace(device=torch.device("cpu"), gather=lambda t: t, gather_for_metrics=lambda t: t,
                                reduce=lambda t, reduction=None: t, num_processes=1, sync_gradients=True)
    base = dict(accelerator=acc, model=types.SimpleNamespace(training=False), aux_loss_enabled=False,
                _metrics=defaultdict(lambda: defaultdict(list)), _total_train_tokens=0, _tp_size=1)
    base.update(kw)
    return types.SimpleNamespace(**base)


def ragged_mask(g, rows, tokens, low=1):
    lens = randint(g, low, tokens + 1, rows)
    lens[0], lens[-1] = tokens, max(low, 1)
    return (torch.arange(tokens)[None] < lens[:, None]).float()


def preference_inputs(g, pairs, tokens):
    """Rows 0..pairs-1 chosen, the rest rejected."""
    mask = ragged_mask(g, 2 * pairs, tokens, low=2)
    logps = -randn(g, 2 * pairs, tokens).abs() * 1.2 * mask
    ref = (logps + 0.4 * randn(g, 2 * pairs, tokens)).clamp(max=-1e-3) * mask
    return logps, ref, mask


# ---- DPO and relatives
def dpo_per_pair(case, pc, pr, rc, rr, nc, nr):
    """Losses of each pair from summed log-probs (policy/reference, chosen/
    rejected) and completion lengths."""
    b, eps = case["beta"], case.get("label_smoothing", 0.0)
    c, r = pc - rc, pr - rr
    d = c - r
    ls = F.logsigmoid
    kind = case["loss"]
    if kind == "sigmoid":
        return -(1 - eps) * ls(b * d) - eps * ls(-b * d)
    if kind == "robust":
        return (-(1 - eps) * ls(b * d) + eps * ls(-b * d)) / (1 - 2 * eps)
    if kind == "ipo":
        return (c / nc - r / nr - 1 / (2 * b)) ** 2
    if kind == "ipo_sum":
        return (d - 1 / (2 * b)) ** 2
    if kind == "hinge":
        return torch.relu(1 - b * d)
    if kind == "sigmoid_norm":
        return -ls(b * (c / nc - r / nr))
    if kind == "exo_pair":
        return torch.sigmoid(b * d) * (ls(b * d) - math.log1p(-eps)) + torch.sigmoid(-b * d) * (ls(-b * d) - math.log(eps))
    if kind == "nca_pair":
        return -ls(b * c) - 0.5 * ls(-b * c) - 0.5 * ls(-b * r)
    if kind == "bco_pair":
        return -ls(b * c) - ls(-b * r)
    if kind == "sppo_hard":
        return (c - 0.5 / b) ** 2 + (r + 0.5 / b) ** 2
    if kind == "apo_zero":
        return 1 - torch.sigmoid(b * c) + torch.sigmoid(b * r)
    if kind == "apo_down":
        return torch.sigmoid(b * c) + 1 - torch.sigmoid(b * (c - r))
    raise ValueError(kind)


def trl_dpo(case, logps, ref, mask):
    from trl import DPOTrainer
    t = leaf32(logps)
    pairs, width = mask.shape[0] // 2, mask.shape[1]
    comp = torch.cat([torch.zeros(2 * pairs, 1), mask], 1).long()
    zeros = torch.zeros(2 * pairs, width)
    out = types.SimpleNamespace(log_probs=t * mask, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool(),
                                aux_loss=None, log_sum_sq_probs=zeros)
    rs = (ref * mask).sum(1)
    me = fake_trainer(ld_alpha=None, precompute_ref_logps=True, f_divergence_type="reverse_kl",
                      loss_types=[case["loss"]], loss_weights=[1.0], beta=case["beta"],
                      label_smoothing=case.get("label_smoothing", 0.0), use_weighting=False, args=types.SimpleNamespace())
    inputs = dict(input_ids=torch.ones_like(comp), attention_mask=torch.ones_like(comp), completion_mask=comp,
                  ref_chosen_logps=rs[:pairs], ref_rejected_logps=rs[pairs:])
    loss = DPOTrainer._compute_loss(me, lambda **_: out, inputs, False)
    loss.backward()
    return loss, t.grad


def objective_dpo(out, cfg, check):
    g = gen(cfg["seed"])
    n = cfg["pref"]["pairs"]
    logps, ref, mask = preference_inputs(g, n, cfg["pref"]["tokens"])
    gold = Goldens(out, "dpo", "per-token log-probs [2*pairs, T], chosen rows first; loss is the mean over pairs")
    gold.put(logps=logps, ref_logps=ref, mask=mask)
    for case in cfg["dpo"]:
        t = leaf(logps)
        s, rs, ln = (t * mask).sum(1), (ref.double() * mask).sum(1), mask.sum(1).double()
        per = dpo_per_pair(case, s[:n], s[n:], rs[:n], rs[n:], ln[:n], ln[n:])
        loss = per.mean()
        loss.backward()
        rew = case["beta"] * (s - rs).detach()
        gold.case(case, loss, dict(logps=t.grad), per_pair=per, reward_chosen=rew[:n].mean(),
                  reward_rejected=rew[n:].mean(), margin=(rew[:n] - rew[n:]).mean(),
                  accuracy=(rew[:n] > rew[n:]).double().mean())
        if case["loss"] != "ipo_sum" and not (case["loss"] == "sigmoid" and case.get("label_smoothing")):
            ref_loss, ref_grad = trl_dpo(case, logps, ref, mask)
            check.add(f"dpo/{case['name']}", "trl DPOTrainer._compute_loss", loss, ref_loss, t.grad, ref_grad)
        elif case["loss"] == "sigmoid":      # TRL's CPO has the smoothed form; its logits are d + const
            from trl.experimental.cpo import CPOTrainer
            u = leaf32(logps)
            me = fake_trainer(alpha=0.0, loss_type="sigmoid", beta=case["beta"], label_smoothing=case["label_smoothing"])
            v = (u * mask).sum(1) - (ref * mask).sum(1)
            got = CPOTrainer.cpo_loss(me, v[:n], v[n:])[0].mean()
            got.backward()
            check.add(f"dpo/{case['name']}", "trl CPOTrainer.cpo_loss on policy-reference log-ratios", loss, got,
                      t.grad, u.grad)
    gold.write()


# ---- ORPO, SimPO, CPO
def objective_orpo_cpo(out, cfg, check):
    from trl.experimental.cpo import CPOTrainer
    from trl.experimental.orpo import ORPOTrainer
    g = gen(cfg["seed"] + 1)
    n, width = cfg["pref"]["pairs"], cfg["pref"]["tokens"]
    logps, _, mask = preference_inputs(g, n, width)
    prompt = torch.zeros_like(mask)
    prompt[:, :2] = 1                      # the first two positions of a row are prompt
    comp = mask * (1 - prompt)
    for i in range(2 * n):                 # every row keeps at least one completion token
        if comp[i].sum() == 0:
            mask[i, 2] = comp[i, 2] = 1
            logps[i, 2] = -0.7
    gold = Goldens(out, "orpo", "loss = mean NLL of chosen over all_mask - beta*mean(logsigmoid(log odds)); odds from "
                                "length-averaged log-probs over completion_mask; chosen rows first")
    gold.put(logps=logps, all_mask=mask, completion_mask=comp)
    for case in cfg["orpo"]:
        t = leaf(logps)
        avg = (t * comp).sum(1) / comp.sum(1)
        c, r = avg[:n], avg[n:]
        log_odds = (c - torch.log1p(-c.exp())) - (r - torch.log1p(-r.exp()))
        nll = -(t * mask)[:n].sum() / mask[:n].sum()
        ratio = F.logsigmoid(log_odds)
        loss = nll - case["beta"] * ratio.mean()
        loss.backward()
        gold.case(case, loss, dict(logps=t.grad), nll=nll, log_odds_mean=log_odds.mean(), log_odds_ratio=ratio.mean())
        u = leaf32(logps)
        avg = (u * comp).sum(1) / comp.sum(1)
        got = ORPOTrainer.odds_ratio_loss(fake_trainer(beta=case["beta"]), avg[:n], avg[n:])[0]
        total = -(u * mask)[:n].sum() / mask[:n].sum() - got.mean()
        total.backward()
        check.add(f"orpo/{case['name']}", "trl ORPOTrainer.odds_ratio_loss (NLL term added here)", loss, total,
                  t.grad, u.grad)
    gold.write()

    gold = Goldens(out, "cpo", "simpo: length-averaged log-probs, margin gamma; others: summed. loss = mean over pairs "
                               "+ cpo_alpha * mean NLL of chosen over completion_mask")
    gold.put(logps=logps, completion_mask=comp)
    for case in cfg["cpo"]:
        eps, b = case.get("label_smoothing", 0.0), case["beta"]

        def pieces(t):
            s = (t * comp).sum(1)
            if case["loss"] == "simpo":
                s = s / comp.sum(1)
            return s[:n], s[n:], -(t * comp)[:n].sum() / comp[:n].sum()
        t = leaf(logps)
        c, r, nll = pieces(t)
        d = c - r
        if case["loss"] == "hinge":
            per = torch.relu(1 - b * d)
        else:
            z = b * d - case.get("gamma", 0.0)
            per = -(1 - eps) * F.logsigmoid(z) - eps * F.logsigmoid(-z)
        loss = per.mean() + case["cpo_alpha"] * nll
        loss.backward()
        gold.case(case, loss, dict(logps=t.grad), per_pair=per, nll=nll)
        u = leaf32(logps)
        c, r, nll = pieces(u)
        me = fake_trainer(alpha=0.0, loss_type=case["loss"], beta=b, label_smoothing=eps, simpo_gamma=case.get("gamma", 0.0))
        got = CPOTrainer.cpo_loss(me, c, r)[0].mean() + case["cpo_alpha"] * nll
        got.backward()
        check.add(f"cpo/{case['name']}", "trl CPOTrainer.cpo_loss (NLL term added here)", loss, got, t.grad, u.grad)
    gold.write()


# ---- KTO
def objective_kto(out, cfg, check):
    from trl import KTOTrainer
    g = gen(cfg["seed"] + 2)
    n, width = 2 * cfg["pref"]["pairs"], cfg["pref"]["tokens"]
    logps, ref, mask = preference_inputs(g, n // 2, width)
    kl_policy, kl_ref = -randn(g, n).abs() * 6 - 4, -randn(g, n).abs() * 6 - 6
    label = (torch.rand(n, generator=g) < 0.5).long()
    label[0], label[1] = 1, 0
    gold = Goldens(out, "kto", "kl = max(0, mean(kl_logps + kl_shift - kl_ref_logps)), no gradient; loss = mean over rows of "
                               "weight * (1 - sigmoid(...)); label 1 = desirable")
    gold.put(logps=logps, ref_logps=ref, mask=mask, kl_logps=kl_policy, kl_ref_logps=kl_ref, label=label)
    for case in cfg["kto"]:
        b = case["beta"]
        shift = case.get("kl_shift", 0.0)
        t = leaf(logps)
        ratio = ((t - ref) * mask).sum(1)
        kl = (kl_policy.double() + shift - kl_ref).mean().clamp(min=0)
        if case["loss"] == "kto":
            good, bad = 1 - torch.sigmoid(b * (ratio - kl)), 1 - torch.sigmoid(b * (kl - ratio))
        else:
            kl = kl * 0
            good, bad = 1 - torch.sigmoid(b * ratio), torch.sigmoid(b * ratio)
        per = torch.where(label == 1, case["desirable_weight"] * good, case["undesirable_weight"] * bad)
        loss = per.mean()
        loss.backward()
        gold.case(case, loss, dict(logps=t.grad), per_row=per, kl=kl)
        u = leaf32(logps)
        comp = torch.cat([torch.zeros(n, 1), mask], 1).long()
        zeros = torch.zeros(n, width)
        o = types.SimpleNamespace(log_probs=u * mask, entropy=zeros, mean_logits=zeros, aux_loss=None)
        me = fake_trainer(precompute_ref_logps=True, calculate_KL=case["loss"] == "kto", beta=b, loss_type=case["loss"],
                          desirable_weight=case["desirable_weight"], undesirable_weight=case["undesirable_weight"],
                          _compute_kl_logps=lambda *_: kl_policy + shift)
        inputs = dict(input_ids=torch.ones_like(comp), attention_mask=torch.ones_like(comp), completion_mask=comp,
                      label=label, ref_logps=(ref * mask).sum(1), ref_KL_logps=kl_ref)
        got = KTOTrainer._compute_loss(me, lambda **_: o, inputs, False)
        got.backward()
        check.add(f"kto/{case['name']}", "trl KTOTrainer._compute_loss", loss, got, t.grad, u.grad)
    gold.write()


# ---- GRPO and relatives
def group_advantages(rewards, group_size, mode, eps=1e-4):
    """(R - mean of the group) / (std + 1e-4), std with n-1; std over the
    group or the whole batch, or no division at all."""
    r = rewards.double().view(-1, group_size)
    a = r - r.mean(1, keepdim=True)
    if mode == "group":
        a = a / (r.std(1, keepdim=True) + eps)
    elif mode == "batch":
        a = a / (rewards.double().std() + eps)
    return a.view(-1)


def grpo_loss(case, logp, old, ref, adv, mask, sampler=None):
    lo, hi = case.get("epsilon_low", 0.2), case.get("epsilon_high", 0.2)
    m = mask.to(logp.dtype)
    adv = adv.to(logp.dtype).unsqueeze(1)
    log_ratio = logp - old
    if case.get("importance") == "sequence":
        log_ratio = ((log_ratio * m).sum(1) / m.sum(1).clamp(min=1)).unsqueeze(1)
    ratio = log_ratio.exp()
    kind = case["loss"]
    if kind in ("grpo", "bnpo", "dr_grpo", "dapo", "luspo"):
        clipped = ratio.clamp(1 - lo, 1 + hi)
        first = ratio.clamp(max=case["delta"]) if "delta" in case else ratio
        per = -torch.minimum(first * adv, clipped * adv)
    elif kind == "cispo":
        per = -ratio.clamp(max=hi).detach() * adv * logp
    elif kind == "sapo":
        tau = torch.where(adv > 0, case["tau_pos"], case["tau_neg"]).to(logp.dtype)
        per = -torch.sigmoid(tau * (ratio - 1)) * 4 / tau * adv
    else:
        raise ValueError(kind)
    if "sampler_ratio_cap" in case:
        per = per * ((old - sampler) * m).exp().clamp(max=case["sampler_ratio_cap"]).detach()
    k3 = (ref - logp).exp() - (ref - logp) - 1
    if case.get("use_bias_correction_kl"):
        k3 = k3 * ratio
    beta = case.get("beta", 0.0)
    if beta:
        per = per + beta * k3
    per = per.expand_as(m)
    if kind in ("grpo", "sapo"):
        loss = ((per * m).sum(1) / m.sum(1).clamp(min=1)).mean()
    elif kind == "bnpo":
        loss = (per * m).sum() / m.sum().clamp(min=1)
    elif kind == "dr_grpo":
        loss = (per * m).sum() / (m.shape[0] * case["max_completion_length"])
    elif kind in ("dapo", "cispo"):
        loss = (per * m).sum() / case.get("num_items_in_batch", float(m.sum()))
    elif kind == "luspo":
        loss = (per * m).sum(1).mean()
    wide = ratio.expand_as(m)
    low_hit = (wide < 1 - lo) & (adv < 0)
    high_hit = (wide > 1 + hi) & (adv > 0)

    def share(x):
        return (x.double() * m).sum() / m.sum()
    metrics = dict(kl_mean=share(k3.detach()), clip_low=share(low_hit), clip_high=share(high_hit),
                   ratio_mean=share(wide.detach()))
    return loss, metrics


def trl_grpo(case, logp, old, ref, adv, mask, sampler, entropy):
    from trl import GRPOTrainer
    u = leaf32(logp)
    ids = torch.ones(mask.shape, dtype=torch.long)
    me = fake_trainer(
        top_entropy_quantile=1.0, off_policy_mask_threshold=None, importance_sampling_level=case.get("importance", "token"),
        beta=case.get("beta", 0.0), loss_type=case["loss"], epsilon_low=case.get("epsilon_low", 0.2),
        epsilon_high=case.get("epsilon_high", 0.2), use_vllm="sampler_ratio_cap" in case,
        vllm_importance_sampling_correction="sampler_ratio_cap" in case, _entropy_bonus_enabled=False,
        max_completion_length=case.get("max_completion_length", 0), current_gradient_accumulation_steps=1,
        args=types.SimpleNamespace(use_bias_correction_kl=case.get("use_bias_correction_kl", False),
                                   delta=case.get("delta"), sapo_temperature_pos=case.get("tau_pos"),
                                   sapo_temperature_neg=case.get("tau_neg"), steps_per_generation=1),
        _get_per_token_logps_and_entropies=lambda *_a, **_k: (u, entropy, None))
    inputs = dict(prompt_ids=ids[:, :1], prompt_mask=ids[:, :1], completion_ids=ids, completion_mask=mask.long(),
                  advantages=adv.float(), ref_per_token_logps=ref,
                  old_per_token_logps=None if case.get("on_policy") else old,
                  num_items_in_batch=torch.tensor(case.get("num_items_in_batch", float(mask.sum()))))
    if "sampler_ratio_cap" in case:
        inputs["importance_sampling_ratio"] = ((old - sampler) * mask).exp().clamp(max=case["sampler_ratio_cap"])
    loss = GRPOTrainer._compute_loss(me, None, inputs)
    loss.backward()
    return loss, u.grad


def objective_grpo(out, cfg, check):
    from trl.trainer.utils import nanstd
    g = gen(cfg["seed"] + 3)
    d = cfg["grpo"]
    rows, width, size = d["groups"] * d["group_size"], d["tokens"], d["group_size"]
    mask = ragged_mask(g, rows, width)
    mask[2] = 0                            # a truncated completion that was masked out entirely
    logp = -randn(g, rows, width).abs() * 1.5
    old = logp + 0.25 * randn(g, rows, width)
    ref = logp + 0.35 * randn(g, rows, width)
    sampler = old + 0.15 * randn(g, rows, width)
    rewards = randn(g, rows)
    rewards[size:2 * size] = 0.5           # zero-variance group: advantage exactly 0
    rewards[2 * size:3 * size] = (torch.arange(size) % 2).float()
    gold = Goldens(out, "grpo", "rows are completions, groups are consecutive; log-probs [rows, T]; old = behaviour "
                                "policy, ref = KL reference, sampler = log-probs reported by the sampler (grpo_tis)")
    gold.put(logps=logp, old_logps=old, ref_logps=ref, sampler_logps=sampler, mask=mask, rewards=rewards)
    gold.json["group_size"] = size
    adv = {}
    for case in cfg["advantages"]:
        mode = case["scale_rewards"]
        adv[mode] = group_advantages(rewards, size, mode)
        gold.put(**{f"advantages.{mode}": adv[mode]})
        r = rewards.view(-1, size)
        a = rewards - r.mean(1).repeat_interleave(size)
        if mode == "group":
            a = a / (nanstd(r, dim=1).repeat_interleave(size) + 1e-4)
        elif mode == "batch":
            a = a / (nanstd(rewards) + 1e-4)
        check.add(f"grpo/advantages.{mode}", "trl.trainer.utils.nanstd with TRL's expression", 0, max_diff(a, adv[mode]))
    for case in cfg["grpo_cases"]:
        t = leaf(logp)
        behaviour = t.detach() if case.get("on_policy") else old.double()
        a = adv[case.get("advantages", "group")]
        loss, metrics = grpo_loss(case, t, behaviour, ref.double(), a, mask, sampler.double())
        loss.backward()
        gold.case(case, loss, dict(logps=t.grad), **metrics)
        ref_loss, ref_grad = trl_grpo(case, logp, old, ref, a, mask, sampler, torch.zeros(rows, width))
        check.add(f"grpo/{case['name']}", "trl GRPOTrainer._compute_loss", loss, ref_loss, t.grad, ref_grad)
    gold.write()


# ---- PPO
def masked_mean(x, m):
    return (x * m).sum() / m.sum()


def whiten(x, m):
    """(x - mean) * rsqrt(var + 1e-8) over unmasked entries, var with n-1."""
    mean = masked_mean(x, m)
    n = m.sum()
    var = masked_mean((x - mean) ** 2, m) * n / (n - 1)
    return (x - mean) * torch.rsqrt(var + 1e-8)


def gae(rewards, values, mask, gamma, lam):
    """Generalised advantage estimation; the value after the last real token
    of a row is 0."""
    rows, width = rewards.shape
    adv = torch.zeros_like(rewards)
    for i in range(rows):
        run = 0.0
        n = int(mask[i].sum())
        for t in reversed(range(n)):
            nxt = values[i, t + 1] if t + 1 < n else 0.0
            run = rewards[i, t] + gamma * nxt - values[i, t] + gamma * lam * run
            adv[i, t] = run
    return adv, (adv + values) * mask


def gae_direct(rewards, values, mask, gamma, lam):
    """The same as the explicit double sum over deltas (a check on gae)."""
    n_row, width = rewards.shape
    adv = torch.zeros_like(rewards)
    for i in range(n_row):
        n = int(mask[i].sum())
        delta = [rewards[i, t] + gamma * (values[i, t + 1] if t + 1 < n else 0.0) - values[i, t] for t in range(n)]
        for t in range(n):
            adv[i, t] = sum((gamma * lam) ** k * delta[t + k] for k in range(n - t))
    return adv


def objective_ppo(out, cfg, check):
    g = gen(cfg["seed"] + 4)
    rows, width = cfg["ppo"]["rows"], cfg["ppo"]["tokens"]
    mask = ragged_mask(g, rows, width)
    old = -randn(g, rows, width).abs()
    logp = old + 0.25 * randn(g, rows, width)
    ref = old + 0.3 * randn(g, rows, width)
    old_values = randn(g, rows, width)
    values = old_values + 0.3 * randn(g, rows, width)
    scores = randn(g, rows)
    gold = Goldens(out, "ppo", "token rewards = -kl_coef*kl(old,ref) + score at the last real token; policy and value losses "
                               "are means over mask; value loss = 0.5*max((v-R)^2,(clip(v,v_old+-c)-R)^2); "
                               "loss = policy + vf_coef*value; advantages come from old values and carry no gradient")
    gold.put(logps=logp, old_logps=old, ref_logps=ref, values=values, old_values=old_values, scores=scores, mask=mask)
    for case in cfg["ppo_cases"]:
        m = mask.double()
        x = (old - ref).double()           # log-ratio of the sampled tokens under policy vs reference
        kl = {"k1": x, "k2": 0.5 * x * x, "k3": (-x).exp() - 1 + x}[case["kl"]]
        rewards = -case["kl_coef"] * kl * m
        last = mask.sum(1).long() - 1
        rewards[torch.arange(rows), last] += scores.double()
        ov = old_values.double() * m
        adv, ret = gae(rewards, ov, mask, case["gamma"], case["lam"])
        check.add(f"ppo/{case['name']}.gae", "explicit double sum over deltas", 0,
                  max_diff(adv, gae_direct(rewards, ov, mask, case["gamma"], case["lam"])))
        used = whiten(adv, m) * m if case["whiten"] else adv
        t, v = leaf(logp), leaf(values)
        ratio = (t - old.double()).exp()
        c = case["cliprange"]
        policy = masked_mean(torch.maximum(-used * ratio, -used * ratio.clamp(1 - c, 1 + c)), m)
        vc = ov + (v - ov).clamp(-case["cliprange_value"], case["cliprange_value"])
        value = 0.5 * masked_mean(torch.maximum((v - ret) ** 2, (vc - ret) ** 2), m)
        loss = policy + case["vf_coef"] * value
        loss.backward()
        gold.case(case, loss, dict(logps=t.grad, values=v.grad), token_rewards=rewards, advantages=used,
                  raw_advantages=adv, returns=ret, policy_loss=policy, value_loss=value,
                  policy_clip_share=masked_mean((-used * ratio.clamp(1 - c, 1 + c) > -used * ratio).double(), m),
                  value_clip_share=masked_mean(((vc - ret) ** 2 > (v - ret) ** 2).double(), m),
                  approx_kl=masked_mean(((old.double() - t) ** 2) / 2, m))
    gold.write()


# ---- reward model, PRM, entropy
def objective_reward_prm_entropy(out, cfg, check):
    from transformers.loss.loss_utils import ForTokenClassification
    from trl import RewardTrainer
    from trl.trainer.utils import entropy_from_logits, selective_log_softmax
    g = gen(cfg["seed"] + 5)
    n = cfg["pref"]["pairs"]
    scores, margin = 2 * randn(g, 2 * n), randn(g, n).abs()
    gold = Goldens(out, "reward", "Bradley-Terry: mean(-logsigmoid(chosen - rejected - margin)) + center * mean((c + r)^2); "
                                  "chosen scores first")
    gold.put(scores=scores, margin=margin)
    for case in (dict(name="plain"), dict(name="margin", margin=True), dict(name="center", center=0.01),
                 dict(name="margin_center", margin=True, center=0.1)):
        t = leaf(scores)
        c, r = t[:n], t[n:]
        m = margin.double() if case.get("margin") else 0.0
        loss = -F.logsigmoid(c - r - m).mean() + case.get("center", 0.0) * ((c + r) ** 2).mean()
        loss.backward()
        gold.case(case, loss, dict(scores=t.grad), accuracy=(c > r).double().mean())
        u = leaf32(scores)
        me = fake_trainer(args=types.SimpleNamespace(center_rewards_coefficient=case.get("center")))
        inputs = dict(attention_mask=torch.ones(1), **(dict(margin=margin) if case.get("margin") else {}))
        got = RewardTrainer.compute_loss(me, lambda **_: types.SimpleNamespace(logits=u.unsqueeze(-1)), inputs)
        got.backward()
        check.add(f"reward/{case['name']}", "trl RewardTrainer.compute_loss", loss, got, t.grad, u.grad)
    gold.write()

    rows, width = cfg["prm"]["rows"], cfg["prm"]["tokens"]
    logits = randn(g, rows, width, 2) * 1.5
    labels = torch.full((rows, width), IGNORE)
    for i in range(rows):
        for pos in range(3 + i, width, 4):
            labels[i, pos] = int(randint(g, 0, 2, 1))
    soft = torch.where(labels == IGNORE, torch.full((rows, width), -1.0), torch.rand(rows, width, generator=g))
    gold = Goldens(out, "prm", "token classification, 2 labels, no shift; mean over positions whose label is not -100 "
                               "(soft: BCE of sigmoid(logit1 - logit0) against soft_labels, -1 = ignored)")
    gold.put(logits=logits, labels=labels, soft_labels=soft)
    t = leaf(logits)
    keep = labels != IGNORE
    loss = F.cross_entropy(t[keep], labels[keep])
    loss.backward()
    gold.case(dict(name="hard"), loss, dict(logits=t.grad), count=keep.sum(),
              accuracy=(t.argmax(-1) == labels)[keep].double().mean())
    u = leaf32(logits)
    got = ForTokenClassification(u, labels, types.SimpleNamespace(num_labels=2))
    got.backward()
    check.add("prm/hard", "transformers ForTokenClassification loss", loss, got, t.grad, u.grad)
    t = leaf(logits)
    loss = F.binary_cross_entropy_with_logits((t[..., 1] - t[..., 0])[keep], soft.double()[keep])
    loss.backward()
    gold.case(dict(name="soft"), loss, dict(logits=t.grad), count=keep.sum())
    gold.write()

    z = randn(g, 12, 40) * torch.logspace(-1, 2, 12)[:, None]
    z[3] = 0.0
    z[4, 7] = 60.0
    z[5, :20] = -1e4
    pick = randint(g, 0, 40, 12)
    gold = Goldens(out, "entropy", "per-row entropy of softmax(logits) and log-prob of one token; gradients are of the sums")
    gold.put(logits=z, tokens=pick)
    t = leaf(z)
    logp = t.log_softmax(-1)
    ent = -(logp.exp() * logp).sum(-1)
    ent.sum().backward()
    gold.case(dict(name="entropy"), ent.sum(), dict(logits=t.grad), per_row=ent)
    u = leaf32(z)
    got = entropy_from_logits(u)
    got.sum().backward()
    check.add("entropy/entropy", "trl entropy_from_logits", ent.sum(), got.sum(), t.grad, u.grad, limit=1e-4)
    t = leaf(z)
    logp = t.log_softmax(-1).gather(-1, pick[:, None])[:, 0]
    logp.sum().backward()
    gold.case(dict(name="logprob"), logp.sum(), dict(logits=t.grad), per_row=logp)
    u = leaf32(z)
    got = selective_log_softmax(u[None], pick[None])[0]
    got.sum().backward()
    check.add("entropy/logprob", "trl selective_log_softmax", logp.sum(), got.sum(), t.grad, u.grad, limit=1e-4)
    gold.write()


# ---- cross entropy
def ce_loss(case, logits, labels, weights):
    """sum_i w_i * [(1-e)*nll_i + e*mean_v(-logp_iv) + z*lse_i^2] over labelled
    rows, divided by sum_i w_i (mean) or not at all (sum)."""
    x = logits / case.get("temperature", 1.0)
    keep = labels != IGNORE
    w = (weights if case.get("weights") else torch.ones_like(weights)).to(x.dtype) * keep
    lse = torch.logsumexp(x, -1)
    logp = x - lse[:, None]
    nll = -logp.gather(-1, labels.clamp(min=0)[:, None])[:, 0]
    e, z = case.get("label_smoothing", 0.0), case.get("z_loss", 0.0)
    per = (1 - e) * nll + e * (-logp).mean(-1) + z * lse ** 2
    total = (per * w).sum()
    return (total if case.get("reduction") == "sum" else total / w.sum()), per * keep, lse


def objective_ce(out, cfg, check):
    g = gen(cfg["seed"] + 6)
    d = cfg["ce"]
    hidden = randn(g, d["rows"], d["hidden"])
    head = randn(g, d["vocab"], d["hidden"]) * 0.7
    hidden[1] *= 300                       # very peaked
    hidden[2] = 0                          # uniform
    labels = randint(g, 0, d["vocab"], d["rows"])
    labels[torch.rand(d["rows"], generator=g) < 0.2] = IGNORE
    labels[0], labels[1], labels[2], labels[-1] = 0, d["vocab"] - 1, 3, IGNORE
    weights = torch.rand(d["rows"], generator=g) * 2
    weights[torch.rand(d["rows"], generator=g) < 0.25] = 0.0
    gold = Goldens(out, "cross_entropy",
                   "logits = hidden @ head^T; see README for the formula; chunking over rows or vocabulary must not change "
                   "anything. grad.logits is with respect to the logits as given (before the temperature)")
    gold.put(hidden=hidden, head=head, labels=labels, weights=weights)
    for case in cfg["ce_cases"]:
        h, w = leaf(hidden), leaf(head)
        logits = h @ w.T
        logits.retain_grad()
        loss, per, lse = ce_loss(case, logits, labels, weights)
        loss.backward()
        gold.case(case, loss, dict(logits=logits.grad, hidden=h.grad, head=w.grad), per_row=per, lse=lse)
        if not case.get("weights") and not case.get("z_loss"):
            x = leaf(hidden @ head.T)
            got = F.cross_entropy(x / case.get("temperature", 1.0), labels, ignore_index=IGNORE,
                                  label_smoothing=case.get("label_smoothing", 0.0))
            got.backward()
            check.add(f"cross_entropy/{case['name']}", "torch cross_entropy", loss, got, logits.grad, x.grad)
    gold.write()


# ---- sampling filters
def objective_sampling(out, cfg, check):
    """Probabilities after each sampling filter, from transformers' own logits
    processors (temperature, top-k, top-p, min-p, repetition penalty)."""
    from transformers import (MinPLogitsWarper, RepetitionPenaltyLogitsProcessor, TemperatureLogitsWarper,
                              TopKLogitsWarper, TopPLogitsWarper)
    g = gen(cfg["seed"] + 7)
    logits = randn(g, 6, 32) * 2.5
    context = randint(g, 0, 32, 6, 5)
    gold = Goldens(out, "sampling", "probs = softmax of the filtered logits; filters are applied in the order listed in steps; "
                                    "context = tokens seen so far (repetition penalty)")
    gold.put(logits=logits, context=context)
    build = dict(temperature=TemperatureLogitsWarper, top_k=TopKLogitsWarper, top_p=TopPLogitsWarper,
                 min_p=MinPLogitsWarper, repetition_penalty=RepetitionPenaltyLogitsProcessor)
    for i, steps in enumerate(([("temperature", 0.7)], [("top_k", 5)], [("top_p", 0.8)], [("min_p", 0.1)],
                               [("repetition_penalty", 1.3)], [("temperature", 1.4), ("top_k", 12), ("top_p", 0.9)],
                               [("repetition_penalty", 1.1), ("temperature", 0.6), ("top_p", 0.95), ("min_p", 0.02)])):
        x = logits.clone()
        for name, value in steps:
            x = build[name](value)(context, x)
        p = x.softmax(-1)
        name = f"filter{i}"
        gold.tensors[f"{name}.probs"] = p
        gold.json["cases"].append(dict(name=name, steps=[list(s) for s in steps],
                                       expect=dict(kept=(p > 0).sum(-1).tolist())))
    gold.write()


def family_objectives(out, cfg=OBJ):
    fresh(out / "objectives")
    check = Crosscheck()
    for part in (objective_dpo, objective_orpo_cpo, objective_kto, objective_grpo, objective_ppo,
                 objective_reward_prm_entropy, objective_ce, objective_sampling):
        part(out, cfg, check)
    save_json(out / "objectives" / "crosscheck.json",
              dict(about="largest absolute difference between the stored values (float64 formulas) and the named "
                         "implementation run in fp32 on the same inputs", rows=check.rows))
    print("objectives", len(check.rows), "cross-checks", flush=True)

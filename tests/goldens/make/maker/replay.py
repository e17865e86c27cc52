"""Replays recorded runs with plain.py and says how far TRL's numbers are.

A family's function gets (net, ref, micro-batch, settings, window) and returns
the part of the step's loss that this micro-batch contributes (so that a step's
loss is their plain sum) and its metrics, named as in TRL's log lines.
`window` holds what belongs to the whole optimizer step: micro-batches `ga`,
trained tokens `tokens`.
"""
import math

import torch
import torch.nn.functional as F

from . import plain


# --------------------------------------------------------------------------
# sequences
# --------------------------------------------------------------------------
class Seq:
    """One sequence: log-probs of its tokens, and which of them are scored."""

    def __init__(self, net, ids, scored, adapter=True, temperature=1.0):
        self.routes = []
        lp = net.logps(ids, adapter, temperature, self.routes)
        self.all, self.ids = lp, ids
        self.lp = lp.gather(1, ids[1:, None]).squeeze(1)
        self.m = scored[1:].to(lp.dtype)
        self.n = self.m.sum()

    @property
    def total(self):
        return (self.lp * self.m).sum()

    @property
    def mean(self):
        return self.total / self.n

    def entropy(self):
        return (-(self.all.exp() * self.all).sum(-1) * self.m).sum()

    def top1(self):
        return ((self.all.argmax(-1) == self.ids[1:]) * self.m).sum()


def sequences(net, micro, ids="input_ids", attn="attention_mask", scored="completion_mask", grad=True, **kw):
    with torch.set_grad_enabled(grad):
        out = []
        for i in range(micro[ids].shape[0]):
            keep = micro[attn][i].bool()
            out.append(Seq(net, micro[ids][i][keep].long(), micro[scored][i][keep] != (-100 if "labels" in scored else 0), **kw))
        return out


def stack(seqs, what="total"):
    return torch.stack([getattr(s, what) for s in seqs])


def mean_of(values):
    return sum(values) / len(values)


# --------------------------------------------------------------------------
# objectives
# --------------------------------------------------------------------------
def dpo_terms(kind, d, c, r, nc, nr, s, seqs):
    """One entry per pair.  c, r: log-ratios of chosen and rejected; d = c - r."""
    b, ls = s["beta"], s.get("label_smoothing", 0.0)
    if kind == "sigmoid":
        return -F.logsigmoid(b * d)
    if kind == "hinge":
        return (1 - b * d).clamp(min=0)
    if kind == "ipo":
        return (c / nc - r / nr - 1 / (2 * b)) ** 2
    if kind == "robust":
        return (-(1 - ls) * F.logsigmoid(b * d) + ls * F.logsigmoid(-b * d)) / (1 - 2 * ls)
    if kind == "bco_pair":
        return -F.logsigmoid(b * c) - F.logsigmoid(-b * r)
    if kind == "sigmoid_norm":
        return -F.logsigmoid(b * (c / nc - r / nr))
    if kind == "apo_zero":
        return 1 - torch.sigmoid(b * c) + torch.sigmoid(b * r)
    if kind == "sft":
        chosen = seqs[:len(seqs) // 2]
        return (-stack(chosen).sum() / sum(q.n for q in chosen)).expand(len(chosen))
    raise SystemExit(kind)


def dpo(net, ref, micro, s, window):
    seqs = sequences(net, micro)
    with torch.no_grad():
        if "ref_adapter" in window:
            base = sequences(window["ref_adapter"], micro, grad=False)
        elif ref is not None:
            base = sequences(ref, micro, grad=False)
        else:
            base = sequences(net, micro, grad=False, adapter=False)
    n = len(seqs) // 2
    lp, rf, cnt = stack(seqs), stack(base), stack(seqs, "n")
    c, r = lp[:n] - rf[:n], lp[n:] - rf[n:]
    kinds = s.get("loss_type", ["sigmoid"])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    weights = s.get("loss_weights") or [1.0] * len(kinds)
    loss = sum(w * dpo_terms(k, c - r, c, r, cnt[:n], cnt[n:], s, seqs).mean() for k, w in zip(kinds, weights))
    m = {}
    loss = loss + aux(net, seqs, s, m)
    b = s["beta"]
    m.update({"rewards/chosen": (b * c).mean(), "rewards/rejected": (b * r).mean(),
              "rewards/margins": (b * (c - r)).mean(), "rewards/accuracies": (c > r).double().mean(),
              "logps/chosen": lp[:n].mean(), "logps/rejected": lp[n:].mean(),
              "entropy": sum(q.entropy() for q in seqs) / cnt.sum(),
              "mean_token_accuracy": sum(q.top1() for q in seqs[:n]) / cnt[:n].sum()})
    return loss / window["ga"], m


def aux(net, seqs, s, m):
    coef = s.get("router_aux_loss_coef", net.cfg.get("router_aux_loss_coef", 0.0)) if seqs and seqs[0].routes else 0.0
    if not coef:
        return 0.0
    value = plain.load_balancing([q.routes for q in seqs], net.cfg["num_local_experts"], net.cfg["num_experts_per_tok"])
    m["aux_loss"] = value
    return coef * value


def kto(net, ref, micro, s, window):
    kind = s.get("loss_type", "kto")
    seqs, base = sequences(net, micro), sequences(ref, micro, grad=False)
    label = micro["label"].bool()
    ratio = stack(seqs) - stack(base)
    m = {}
    kl = torch.zeros((), dtype=net.dtype)
    if kind == "kto":
        pair = dict(ids="KL_input_ids", attn="KL_attention_mask", scored="KL_completion_mask", grad=False)
        kl = (stack(sequences(net, micro, **pair)) - stack(sequences(ref, micro, **pair))).mean().clamp(min=0)
    b = s["beta"]
    if kind == "kto":
        up, down = 1 - torch.sigmoid(b * (ratio - kl)), 1 - torch.sigmoid(b * (kl - ratio))
    else:
        up, down = 1 - torch.sigmoid(b * ratio), torch.sigmoid(b * ratio)
    each = torch.where(label, s.get("desirable_weight", 1.0) * up, s.get("undesirable_weight", 1.0) * down)
    m["kl"] = kl
    lp = stack(seqs).detach()
    for name, pick in (("chosen", label), ("rejected", ~label)):
        if pick.any():
            m["rewards/" + name], m["logps/" + name] = (b * ratio.detach()[pick]).mean(), lp[pick].mean()
    if label.any() and (~label).any():
        m["rewards/margins"] = m["rewards/chosen"] - m["rewards/rejected"]
    m["entropy"] = sum(q.entropy() for q in seqs) / sum(q.n for q in seqs)
    return each.mean() / window["ga"], m


def both(net, micro):
    out = []
    for side in ("chosen", "rejected"):
        out.append(sequences(net, micro, ids=side + "_input_ids", attn=side + "_attention_mask", scored=side + "_labels"))
    return out


def pair_metrics(c, r, beta):
    return {"rewards/chosen": (beta * c).mean(), "rewards/rejected": (beta * r).mean(),
            "rewards/margins": (beta * (c - r)).mean(), "rewards/accuracies": (c > r).double().mean(),
            "logps/chosen": c.mean(), "logps/rejected": r.mean()}


def orpo(net, ref, micro, s, window):
    chosen, rejected = both(net, micro)
    c, r = stack(chosen, "mean"), stack(rejected, "mean")
    log_odds = (c - torch.log1p(-c.exp())) - (r - torch.log1p(-r.exp()))
    nll = -sum(q.lp.sum() for q in chosen) / sum(len(q.lp) for q in chosen)       # prompt and completion
    ratio = F.logsigmoid(log_odds)
    m = pair_metrics(c, r, s["beta"])
    m.update(nll_loss=nll, log_odds_ratio=ratio.mean(), log_odds_chosen=log_odds.mean())
    return (nll - s["beta"] * ratio.mean()) / window["ga"], m


def cpo(net, ref, micro, s, window):
    chosen, rejected = both(net, micro)
    kind, b, ls = s.get("loss_type", "sigmoid"), s["beta"], s.get("label_smoothing", 0.0)
    how = "mean" if kind in ("simpo", "ipo") else "total"
    c, r = stack(chosen, how), stack(rejected, how)
    d = c - r
    if kind == "simpo":
        d = d - s.get("simpo_gamma", 0.5) / b
    if kind in ("simpo", "sigmoid"):
        each = -(1 - ls) * F.logsigmoid(b * d) - ls * F.logsigmoid(-b * d)
    elif kind == "hinge":
        each = (1 - b * d).clamp(min=0)
    elif kind == "ipo":
        each = (d - 1 / (2 * b)) ** 2
    alpha = s.get("cpo_alpha", 1.0)
    nll = -sum(q.total for q in chosen) / sum(q.n for q in chosen) if alpha else torch.zeros((), dtype=net.dtype)
    m = pair_metrics(c, r, b)
    m["nll_loss"] = nll
    return (each.mean() + alpha * nll) / window["ga"], m


def last_scores(net, micro, pad):
    """At the last token that is not `pad`."""
    out = []
    for ids, mask in zip(micro["input_ids"], micro["attention_mask"]):
        ids = ids[mask.bool()].long()
        out.append(net.logits(ids)[(ids != pad).nonzero()[-1, 0], 0])
    return torch.stack(out)


def reward(net, ref, micro, s, window):
    score = last_scores(net, micro, s.get("pad_token_id", -1))
    n = len(score) // 2
    c, r = score[:n], score[n:]
    margin = micro["margin"].to(net.dtype) if "margin" in micro else 0.0
    loss = -F.logsigmoid(c - r - margin).mean()
    if s.get("center_rewards_coefficient"):
        loss = loss + s["center_rewards_coefficient"] * ((c + r) ** 2).mean()
    m = dict(min_reward=score.min(), mean_reward=score.mean(), max_reward=score.max(),
             accuracy=(c > r).double().mean(), margin=(c - r).mean())
    return loss / window["ga"], m


def prm(net, ref, micro, s, window):
    total, count = 0.0, 0
    for ids, mask, labels in zip(micro["input_ids"], micro["attention_mask"], micro["labels"]):
        keep = mask.bool()
        lp, lab = net.logits(ids[keep].long()).log_softmax(-1), labels[keep].long()
        on = lab != -100
        total = total - lp[on].gather(1, lab[on][:, None]).sum()
        count += int(on.sum())
    return window["prm_scale"](total, count), {}


def whitened(rewards, s, g):
    """rewards [rows, functions] with NaN for None -> (advantages, scored)."""
    none = rewards.isnan().all(1)
    weights = list(s.get("reward_weights") or [])
    weights = torch.tensor(weights + [1.0] * (rewards.shape[1] - len(weights)), dtype=rewards.dtype)      # an environment's reward: 1

    def std(x, dim=None):
        return x.std(dim=dim) if dim is not None else x.std()

    def nan_std(x):                                     # unbiased, over the values that are there
        x = x[~x.isnan()]
        return x.std() if len(x) > 1 else torch.full((), float("nan"), dtype=x.dtype)

    if s.get("multi_objective_aggregation") == "normalize_then_sum":
        z = torch.zeros_like(rewards)
        for k in range(rewards.shape[1]):
            for i in range(0, len(rewards), g):
                x = rewards[i:i + g, k]
                z[i:i + g, k] = (x - x.nanmean()) / (nan_std(x) + 1e-4)
        total = (z * weights).nansum(1)
        total[none] = float("nan")
        adv = (total - total.nanmean()) / (nan_std(total) + 1e-4)
        return adv.nan_to_num(0.0)
    total = (rewards * weights).nansum(1)
    total[none] = float("nan")
    adv = torch.zeros_like(total)
    scale = s.get("scale_rewards", "group")
    scale = {True: "group", False: "none"}.get(scale, scale)
    for i in range(0, len(total), g):
        x = total[i:i + g]
        adv[i:i + g] = x - x.nanmean()
        if scale == "group":
            adv[i:i + g] /= nan_std(x) + 1e-4
    if scale == "batch":
        adv = adv / (nan_std(total) + 1e-4)
    return adv.nan_to_num(0.0)


def grpo_rows(net, micro, s, grad, adapter=True):
    """Per row: completion log-probs, entropies, mask (all [C])."""
    out = []
    width = micro["completion_ids"].shape[1]
    for i in range(micro["prompt_ids"].shape[0]):
        p = micro["prompt_ids"][i][micro["prompt_mask"][i].bool()].long()
        mask = micro["completion_mask"][i].to(net.dtype)
        n = int(mask.sum())
        routes, lp, ent = [], torch.zeros(width, dtype=net.dtype), torch.zeros(width, dtype=net.dtype)
        ids = torch.cat([p, micro["completion_ids"][i][:n].long()])
        with torch.set_grad_enabled(grad):
            all_lp = net.logps(ids, adapter, s.get("temperature", 1.0), routes)[len(p) - 1:]
            if n:
                own = all_lp.gather(1, ids[len(p):, None]).squeeze(1)
                lp = torch.cat([own, torch.zeros(width - n, dtype=net.dtype)])
                ent = torch.cat([-(all_lp.exp() * all_lp).sum(-1), torch.zeros(width - n, dtype=net.dtype)])
        out.append((lp, ent, mask, routes))
    return [torch.stack([o[k] for o in out]) for k in range(3)] + [[o[3] for o in out]]


def grpo(net, ref, micro, s, window):
    lp, ent, m, routes = grpo_rows(net, micro, s, True)
    adv = window["advantages"][:, None].to(net.dtype)
    old = lp.detach() if window.get("old") is None else window["old"]
    kind, beta = s.get("loss_type", "dapo"), s.get("beta", 0.0)
    lo = s.get("epsilon", 0.2)
    hi = s["epsilon_high"] if s.get("epsilon_high") is not None else lo
    log_ratio = lp - old
    sequence = s.get("importance_sampling_level", "token") == "sequence"
    if sequence:
        log_ratio_used = ((log_ratio * m).sum(1) / m.sum(1).clamp(min=1))[:, None]
    else:
        log_ratio_used = log_ratio
    ratio = log_ratio_used.exp()
    metrics = {}
    if beta:
        d = window["ref"] - lp
        k3 = d.exp() - d - 1
        if s.get("use_bias_correction_kl", True):
            k3 = k3 * ratio
    keep = None
    if s.get("top_entropy_quantile", 1.0) < 1.0:
        cut = torch.quantile(ent.detach()[m.bool()].float(), 1 - s["top_entropy_quantile"])
        keep = ((ent.detach() * m) >= cut) & m.bool()
    if kind == "cispo":
        loss = -ratio.clamp(max=hi).detach() * adv * lp
        metrics["cispo_clip_ratio"] = share(((ratio > hi) & (adv > 0)), m)
    elif kind == "sapo":
        t = torch.where(adv > 0, s.get("sapo_temperature_pos", 1.0), s.get("sapo_temperature_neg", 1.05)).to(net.dtype)
        loss = -torch.sigmoid(t * (ratio - 1)) * 4 / t * adv
    elif kind == "vespo":
        k = torch.where(adv >= 0, s.get("vespo_k_pos", 2.0), s.get("vespo_k_neg", 3.0)).to(net.dtype)
        lam = torch.where(adv >= 0, s.get("vespo_lambda_pos", 3.0), s.get("vespo_lambda_neg", 2.0)).to(net.dtype)
        w = (log_ratio.detach() * m).sum(1, keepdim=True)
        phi = (lam + k * w.clamp(-20, 20) - lam * w.clamp(-20, 20).exp()).exp()
        loss = -phi * adv * lp
        metrics["vespo/phi_seq_mean"] = share(phi, m)
    else:
        capped = ratio.clamp(max=s["delta"]) if s.get("delta") is not None else ratio
        loss = -torch.min(capped * adv, ratio.clamp(1 - lo, 1 + hi) * adv)
        low, high = (capped < 1 - lo) & (adv < 0), (capped > 1 + hi) & (adv > 0)
        metrics.update({"clip_ratio/low_mean": share(low, m), "clip_ratio/high_mean": share(high, m),
                        "clip_ratio/region_mean": share(low | high, m)})
    if "sampled" in window:
        loss = loss * sampler_correction(window, s, lp, adv, m)
    if keep is not None:
        loss = loss * keep
    if beta:
        loss = loss + beta * k3
        metrics["kl"] = share(k3, m)
    ga = window["ga"]
    if kind in ("grpo", "sapo"):
        out = ((loss * m).sum(1) / m.sum(1).clamp(min=1)).mean() / ga
    elif kind == "bnpo":
        out = (loss * m).sum() / m.sum().clamp(min=1) / ga
    elif kind == "dr_grpo":
        out = (loss * m).sum() / (len(m) * s["max_completion_length"]) / ga
    elif kind == "luspo":
        out = (loss * m).sum(1).mean() / ga
    else:                       # dapo, cispo, vespo: tokens of the generation batch, scaled to one optimizer step
        out = (loss * m).sum() / (window["tokens"] * ga / window["per_generation"])
    if s.get("entropy_coef"):
        eff = m if keep is None else m * keep
        out = out - s["entropy_coef"] * (ent * eff).sum() / eff.sum().clamp(min=1) / ga
    coef = net.cfg.get("router_aux_loss_coef", 0.0) if routes and routes[0] else 0.0
    if coef:
        value = plain.load_balancing(routes, net.cfg["num_local_experts"], net.cfg["num_experts_per_tok"])
        metrics["aux_loss"] = value
        out = out + coef * value / ga
    metrics["entropy"] = share(ent, m)
    return out, metrics


def sampler_correction(window, s, lp, adv, m):
    """Ratio of the policy at generation to the sampler, truncated or masked; off-policy rows with A < 0 dropped."""
    mode, lo, hi = s.get("vllm_importance_sampling_mode", "sequence_mask"), s.get("vllm_importance_sampling_clip_min"), \
        s.get("vllm_importance_sampling_clip_max", 3.0)
    log_ratio = (window["old"] - window["sampled"]) * m
    ratio = (log_ratio.sum(1, keepdim=True) if mode.startswith("sequence") else log_ratio).exp()
    if mode.endswith("truncate"):
        ratio = ratio.clamp(min=lo, max=hi)
    else:
        out = torch.zeros_like(ratio, dtype=torch.bool)
        out = out | (ratio > hi) if hi is not None else out
        out = out | (ratio < lo) if lo is not None else out
        ratio = ratio.masked_fill(out, 0.0)
    limit = s.get("off_policy_mask_threshold")
    if limit is not None:
        drift = ((window["sampled"] - lp.detach()) * m).sum(1, keepdim=True) / m.sum(1, keepdim=True).clamp(min=1)
        ratio = ratio * ((adv >= 0) | (drift <= limit))
    return ratio


def share(x, m):
    if x.shape[1] == 1:
        return x.double().mean()
    return (x.detach().double() * m.double()).sum() / m.double().sum()


def sft_docs(micro):
    """(ids, labels) of the documents of a micro-batch, padded or flattened."""
    if "position_ids" in micro:
        pos, ids, lab = micro["position_ids"][0], micro["input_ids"][0], micro["labels"][0]
        starts = (pos == 0).nonzero().flatten().tolist() + [len(pos)]
        return [(ids[a:b].long(), lab[a:b].long()) for a, b in zip(starts, starts[1:])]
    return [(i[m.bool()].long(), lab[m.bool()].long())
            for i, m, lab in zip(micro["input_ids"], micro["attention_mask"], micro["labels"])]


def sft(net, ref, micro, s, window):
    total, ent, top, count, seqs = 0.0, 0.0, 0.0, 0, []
    for ids, lab in sft_docs(micro):
        if len(ids) < 2:
            continue
        q = Seq(net, ids, lab != -100)
        seqs.append(q)
        w = q.lp.exp().detach() if s.get("loss_type", "nll") == "dft" else 1.0
        total = total - (q.lp * q.m * w).sum()
        ent, top, count = ent + q.entropy(), top + q.top1(), count + q.n
    m = dict(entropy=ent / count, mean_token_accuracy=top / count)
    loss = total / window["tokens"]
    return loss + aux(net, seqs, s, m) / window["ga"], m


def divergence(student, teacher, beta):
    """Per position: forward KL(teacher, student) at 0, reverse at 1, else
    beta KL(teacher, mix) + (1 - beta) KL(student, mix), mix = (1-beta) student + beta teacher."""
    if beta == 0:
        return (teacher.exp() * (teacher - student)).sum(-1)
    if beta == 1:
        return (student.exp() * (student - teacher)).sum(-1)
    mix = ((1 - beta) * student.exp() + beta * teacher.exp()).log()
    return beta * (teacher.exp() * (teacher - mix)).sum(-1) + (1 - beta) * (student.exp() * (student - mix)).sum(-1)


def gkd(net, ref, micro, s, window):
    total = 0.0
    for ids, mask, lab in zip(micro["input_ids"], micro["attention_mask"], micro["labels"]):
        keep = mask.bool()
        ids, lab = ids[keep].long(), lab[keep].long()
        with torch.no_grad():
            t = ref.logps(ids)
        total = total + divergence(net.logps(ids), t, s["beta"])[lab[1:] != -100].sum()
    return total / window["tokens"], {}


def distill(net, ref, micro, s, window):
    total, ent, count, t = 0.0, 0.0, 0, s.get("temperature", 1.0)
    for i in range(micro["prompt_ids"].shape[0]):
        p = micro["prompt_ids"][i][micro["prompt_mask"][i].bool()].long()
        n = int(micro["completion_mask"][i].sum())
        ids = torch.cat([p, micro["completion_ids"][i][:n].long()])
        own = net.logps(ids, temperature=t)[len(p) - 1:]
        with torch.no_grad():
            other = ref.logps(ids, temperature=t)[len(p) - 1:]
        total = total + divergence(own, other, s["beta"]).sum()
        ent, count = ent - (own.exp() * own).sum(), count + n
    return total / window["tokens"], dict(entropy=ent / count)


# --------------------------------------------------------------------------
# the loop
# --------------------------------------------------------------------------
FAMILIES = dict(dpo=dpo, kto=kto, orpo=orpo, cpo=cpo, reward=reward, prm=prm, grpo=grpo, sft=sft, gkd=gkd, distill=distill)


def micro_batches(rec):
    out = []
    for k in sorted(set(rec["ids"]) | set(rec["own"])):
        if not k.startswith("m") or k[3] != ".":
            continue
        i, name = int(k[1:3]), k[4:]
        while len(out) <= i:
            out.append({})
        out[i][name] = rec["ids"].get(k, rec["own"].get(k))
    return out


def replay(rec, roots, dtype, rows=None):
    """The run again in plain PyTorch.  Returns steps and final tensors."""
    case, info, first = rec["case"], rec["info"], rec["first"]
    s = dict(info["settings"])
    if case.family in ("dpo", "kto", "orpo", "cpo"):
        s.setdefault("beta", 0.1)
    if case.family == "gkd":
        s.setdefault("beta", 0.5)
    if case.family == "distill":
        s.setdefault("beta", 1.0)
    folder = roots.find(case.model)
    lora = None
    if case.lora or case.adapter:
        if case.lora:
            cfg, names = case.lora, first
        else:
            import json
            cfg, names = json.loads(open(roots.find(case.adapter) + "/adapter_config.json").read()), first
        scale = cfg["lora_alpha"] / (math.sqrt(cfg["r"]) if cfg.get("use_rslora") else cfg["r"])
        lora = dict(scale=scale, tensors={k.removeprefix("base_model.model."): v for k, v in names.items()})
    if case.family in ("reward", "prm"):
        net = plain.Net(folder, dtype, extra={k: v for k, v in first.items()}, drop=("lm_head",), head="score")
    else:
        net = plain.Net(folder, dtype, lora=lora)
    ref = None
    if case.family in ("dpo", "kto", "grpo") and lora is None:
        ref = plain.Net(folder, dtype)
    if case.teacher:
        ref = plain.Net(roots.find(case.teacher), dtype)
    if ref is not None:
        for t in ref.p.values():
            t.requires_grad_(False)
    opt = plain.AdamW(net.train, s)
    micro = micro_batches(rec)
    steps, cursor, gen = [], 0, {}
    for step in range(len(info["steps"])):
        part = micro[cursor:cursor + len(info["steps"][step]["micro"])]
        window = dict(ga=len(part))
        if case.adapter:
            if "frozen" not in gen:
                gen["frozen"] = plain.Net(folder, dtype, lora=dict(lora, tensors={k: v.clone() for k, v in lora["tensors"].items()}))
            window["ref_adapter"] = gen["frozen"]
        if case.family in ("sft", "gkd"):
            window["tokens"] = sum(int((x["labels"][..., 1:] != -100).sum()) for x in part)
        if case.family == "prm":
            # transformers takes the loss for scaled by num_items_in_batch, which token classification ignores:
            # a step's loss and gradient are the sum, not the mean, over its micro-batches
            window["prm_scale"] = lambda total, count: total / count
        loss, metrics = 0.0, []
        for k, x in enumerate(part):
            w = dict(window)
            if case.family == "grpo":
                grpo_window(case, s, rows, net, ref, micro, cursor + k, w, gen)
            if case.family == "distill":
                w["tokens"] = sum(int(y["completion_mask"].sum()) for y in part)
            one, m = FAMILIES[case.family](net, ref, x, s, w)
            one.backward()
            loss += one.item()
            metrics.append({n: float(v) for n, v in m.items()})
        norm, lr = opt.step()
        cursor += len(part)
        names = {n for m in metrics for n in m}
        steps.append(dict(loss=loss, grad_norm=norm, learning_rate=lr, micro=metrics,
                          metrics={n: mean_of([m[n] for m in metrics if n in m and not math.isnan(m[n])])
                                   for n in names}))
    return steps, {k: v.detach() for k, v in net.train.items()}


def grpo_window(case, s, rows, net, ref, micro, index, window, gen):
    """Advantages from the rows' rewards; old and reference log-probs from the
    parameters as they were when this generation batch came up."""
    ga, g = s["gradient_accumulation_steps"], s["num_generations"]
    per = s.get("steps_per_generation") or ga
    iters = s.get("num_iterations", 1)
    number, slot = index // (per * iters), index % per
    if gen.get("number") != number:
        gen.clear()
        prompts = per * s["per_device_train_batch_size"] // g
        table = []
        chunk = number % (len(rows) // prompts)         # prompts that do not fill a generation batch are dropped
        for row in rows[chunk * prompts:(chunk + 1) * prompts]:
            for k in range(g):
                table.append([float("nan") if row[f][k] is None else row[f][k] for f in ("correct", "form", "own") if f in row])
        gen.update(number=number, adv=whitened(torch.tensor(table, dtype=torch.float64), s, g), old={}, ref={})
        for j in range(per):
            x = micro[index + j]
            if ga % (per * iters) != 0 or "sampling_per_token_logps" in x:
                gen["old"][j] = grpo_rows(net, x, s, False)[0]
            if s.get("beta"):
                gen["ref"][j] = grpo_rows(ref if ref is not None else net, x, s, False, adapter=ref is not None)[0]
        gen["tokens"] = sum(int(micro[index + j]["completion_mask"].sum()) for j in range(per))
    n = s["per_device_train_batch_size"]
    if "sampling_per_token_logps" in micro[index]:
        window["sampled"] = micro[index]["sampling_per_token_logps"].to(net.dtype)
    window.update(advantages=gen["adv"][slot * n:(slot + 1) * n], old=gen["old"].get(slot), ref=gen["ref"].get(slot),
                  tokens=gen["tokens"], per_generation=per)


def compare(rec, steps, last, moved_floor=0.0):
    """Largest differences of TRL's run from the replay."""
    out = dict(loss=0.0, loss_step1=abs(rec["info"]["steps"][0]["loss"] - steps[0]["loss"]), grad_norm_rel=0.0,
               learning_rate=0.0, metrics={})
    for a, b in zip(rec["info"]["steps"], steps):
        out["loss"] = max(out["loss"], abs(a["loss"] - b["loss"]))
        out["grad_norm_rel"] = max(out["grad_norm_rel"], abs(a["grad_norm"] - b["grad_norm"]) / max(b["grad_norm"], 1e-12))
        out["learning_rate"] = max(out["learning_rate"], abs(a["learning_rate"] - b["learning_rate"]))
        for n, v in b["metrics"].items():
            if n not in a["metrics"]:
                raise SystemExit(f"{rec['case'].name}: {n} is not in TRL's log line")
            out["metrics"][n] = max(out["metrics"].get(n, 0.0), abs((a["metrics"][n] or 0.0) - v))
    far, worst, count, d2, n2 = 0, 0.0, 0, 0.0, 0.0
    for n, v in last.items():
        name = n if n in rec["last"] else "base_model.model." + n
        d = (rec["last"][name].double() - v.double()).abs()
        far += int((d > 1e-5).sum())
        worst, count = max(worst, d.max().item()), count + d.numel()
        d2 += d.pow(2).sum().item()
        n2 += (v.double() - rec["first"][name].double()).pow(2).sum().item()
    out.update(params_share_above_1e_5=far / count, params_worst=worst, params_moved_rel=math.sqrt(d2 / n2) if n2 else 0.0)
    return out

"""PPO by TRL's last release that has it, on recorded completions: two rollout
batches of eight rows, three epochs each, two micro-batches of four per epoch.
"""
import dataclasses
import importlib
import math
import shutil
import tempfile
import types
from pathlib import Path

import tools
import torch

from . import plain, trl_runs


@dataclasses.dataclass
class Case:
    name: str
    model: str
    critic: str                 # reward model folder; also where the value model starts
    data: str
    args: dict
    about: str = ""

    @property
    def settings(self):
        return dict(dict(per_device_train_batch_size=4, gradient_accumulation_steps=2, num_mini_batches=1, num_ppo_epochs=3,
                    total_episodes=16, response_length=20, stop_token="eos", local_rollout_forward_batch_size=8,
                    learning_rate=3e-4, lr_scheduler_type="linear", warmup_steps=0, optim="adamw_torch", adam_beta1=0.9,
                    adam_beta2=0.95, adam_epsilon=1e-8, weight_decay=0.1, max_grad_norm=1.0, seed=42,
                    num_sample_generations=0), **self.args)


def rows_of(case, roots, tok):
    """Prompt ids, and the response as it was sampled: EOS and then pads, or no EOS at all."""
    out, width = [], case.settings["response_length"]
    for r in trl_runs.read_rows(roots.runs / case.data):
        prompt = tok.apply_chat_template(r["prompt"], add_generation_prompt=True, tokenize=True)["input_ids"]
        for ids in r["completion_ids"][:2]:
            ids = ids[:width]
            out.append((prompt, ids + [tok.pad_token_id] * (width - len(ids))))
    return out[:case.settings["total_episodes"]]


def run(case, roots, out):
    import numpy as np
    import transformers
    from datasets import Dataset, disable_caching
    disable_caching()
    mod = importlib.import_module("trl.experimental.ppo.ppo_trainer")
    from trl.experimental.ppo import PPOConfig, PPOTrainer
    tok = transformers.AutoTokenizer.from_pretrained(roots.find(case.model), padding_side="left")
    rows = rows_of(case, roots, tok)
    work = Path(tempfile.mkdtemp(prefix="runs-"))
    s = case.settings
    config = PPOConfig(output_dir=str(work / "out"), **dict(trl_runs.QUIET, **s))
    transformers.set_seed(s["seed"])

    def critic():
        return transformers.AutoModelForSequenceClassification.from_pretrained(
            roots.find(case.critic), num_labels=1, dtype=torch.float32, attn_implementation="eager")
    policy, value = trl_runs.load_causal(roots.find(case.model)), critic()
    trainer = PPOTrainer(
        args=config, processing_class=tok, model=policy, ref_model=trl_runs.load_causal(roots.find(case.model)),
        reward_model=critic(), value_model=value,
        train_dataset=Dataset.from_list([dict(input_ids=p) for p, _ in rows]))
    # fixed order: the rows as they come, and no permutation inside an epoch
    trainer.dataloader = torch.utils.data.DataLoader(
        trainer.train_dataset, batch_size=config.local_batch_size, shuffle=False, collate_fn=trainer.data_collator)
    tape = dict(whiten=[], reward=[], logps=[], loss=[], norm=[], lr=[], logs=[])
    originals = {n: getattr(mod, n) for n in ("masked_whiten", "get_reward", "selective_log_softmax", "batch_generation", "np")}
    cursor = [0]

    def batch_generation(model, queries, _size, pad_id, _config):
        answers = torch.tensor([a for _, a in rows[cursor[0]:cursor[0] + len(queries)]])
        cursor[0] += len(queries)
        both = torch.cat([queries, answers], 1)
        with torch.no_grad():
            logits = mod.forward(model, both, pad_id).logits[:, queries.shape[1] - 1:-1]
        return both, logits / (config.temperature + 1e-7)

    def keep(name, kind):
        def wrapped(*a, **kw):
            r = originals[name](*a, **kw)
            tape[kind].append((a, r))
            return r
        return wrapped
    mod.masked_whiten, mod.get_reward = keep("masked_whiten", "whiten"), keep("get_reward", "reward")
    mod.selective_log_softmax, mod.batch_generation = keep("selective_log_softmax", "logps"), batch_generation
    mod.np = types.SimpleNamespace(random=types.SimpleNamespace(permutation=lambda n: np.arange(n)))
    backward, step = trainer.accelerator.backward, trainer.optimizer.step

    def recorded_backward(loss, **kw):
        tape["loss"].append(loss.item())
        return backward(loss, **kw)

    def recorded_step(*a, **kw):
        if trainer.accelerator.sync_gradients:
            tape["norm"].append(math.sqrt(sum(p.grad.double().pow(2).sum().item() for g in trainer.optimizer.param_groups
                                              for p in g["params"] if p.grad is not None)))
            tape["lr"].append(trainer.optimizer.param_groups[0]["lr"])
        return step(*a, **kw)
    trainer.accelerator.backward, trainer.optimizer.step = recorded_backward, recorded_step
    first_v = {k: v.clone() for k, v in value.state_dict().items()}
    first_p = {k: v.clone() for k, v in policy.state_dict().items()}
    log = trainer.log
    trainer.log = lambda logs, *a, **kw: tape["logs"].append(dict(logs)) or log(logs, *a, **kw)
    try:
        trainer.train()
    finally:
        for n, f in originals.items():
            setattr(mod, n, f)
        shutil.rmtree(work, ignore_errors=True)

    ids, own, steps = {}, {}, []
    epochs, micro = s["num_ppo_epochs"], s["gradient_accumulation_steps"]
    batches = len(tape["logs"])
    prompt_width = [tape["reward"][2 * b][0][3] for b in range(batches)]
    for b in range(batches):
        (_, query_response, _, ctx), (full_value, _, _) = tape["reward"][2 * b]
        own[f"b{b}.scores"] = tape["reward"][2 * b + 1][1][1]
        own[f"b{b}.values"] = full_value[:, ctx - 1:-1].squeeze(-1)
        ids[f"b{b}.queries"], ids[f"b{b}.responses"] = query_response[:, :ctx], query_response[:, ctx:]
        base = b * (2 + epochs * micro)
        own[f"b{b}.logprobs"], own[f"b{b}.ref_logprobs"] = tape["logps"][base][1], tape["logps"][base + 1][1]
        (adv, mask), white = tape["whiten"][b]
        own[f"b{b}.advantages_raw"], own[f"b{b}.mask"] = adv, mask
        own[f"b{b}.advantages"] = white.masked_fill(~mask, 0)
        own[f"b{b}.returns"] = adv + own[f"b{b}.values"].masked_fill(~p1_mask(mask), 0)
    assert prompt_width == [x.shape[1] for k, x in ids.items() if k.endswith("queries")]
    per = epochs * micro
    for b, line in enumerate(tape["logs"]):
        line = {k: v for k, v in line.items() if k not in ("eps", "epoch")}
        steps.append(dict(update=b + 1, metrics=line, micro_losses=tape["loss"][b * per:(b + 1) * per],
                          optimizer_steps=[dict(grad_norm=n, learning_rate=r) for n, r in
                                           zip(tape["norm"][b * epochs:(b + 1) * epochs],
                                               tape["lr"][b * epochs:(b + 1) * epochs])]))
    norms, moved = {}, {}
    for who, model, first in (("policy", policy, first_p), ("value", value, first_v)):
        for n, v in sorted(model.state_dict().items()):
            own[f"final64.{who}.{n}"] = v.reshape(-1)[:64]
            norms[f"{who}.{n}"] = v.double().norm().item()
            moved[f"{who}.{n}"] = (v.double() - first[n].double()).norm().item()
    folder = out / "ppo"
    tools.save_tensors(folder / f"{case.name}.batches.safetensors", ids)
    tools.save_tensors(folder / f"{case.name}.safetensors", own)
    info = dict(about=case.about, trainer="trl.experimental.ppo.PPOTrainer", model=case.model, reward_model=case.critic,
                value_model_start=case.critic, data=case.data, settings=s, defaults={
                    k: getattr(config, k) for k in ("gamma", "lam", "cliprange", "cliprange_value", "vf_coef", "kl_coef",
                                                    "kl_estimator", "temperature", "whiten_rewards", "missing_eos_penalty")},
                fed=f"ppo/{case.name}.batches.safetensors", updates=steps, final_norm=norms, final_moved=moved)
    tools.save_json(folder / f"{case.name}.json", info)
    last = {**{"policy." + k: v for k, v in policy.state_dict().items()}, **{"value." + k: v for k, v in value.state_dict().items()}}
    return dict(case=case, info=info, ids=ids, own=own, last=last)


def p1_mask(mask):
    """Positions up to one past the last response token (as TRL's padding_mask_p1)."""
    n = mask.sum(1, keepdim=True)
    return torch.arange(mask.shape[1])[None] <= n


# --------------------------------------------------------------------------
# the same in plain PyTorch
# --------------------------------------------------------------------------
def replay(rec, roots, dtype):
    case, info, ids = rec["case"], rec["info"], rec["ids"]
    d, s = info["defaults"], case.settings
    policy, ref = plain.Net(roots.find(case.model), dtype), plain.Net(roots.find(case.model), dtype)
    value = plain.Net(roots.find(case.critic), dtype, head="score")
    reward = plain.Net(roots.find(case.critic), dtype, head="score")
    pad, eos = policy.cfg["pad_token_id"], policy.cfg["eos_token_id"]
    params = {**{"policy." + k: v for k, v in policy.p.items()}, **{"value." + k: v for k, v in value.p.items()}}
    # one AdamW over both, no clipping; the rate moves once per rollout batch
    opt = plain.AdamW(params, dict(s, max_grad_norm=0, max_steps=len(info["updates"])))
    out = []
    temp = d["temperature"] + 1e-7
    for b in range(len(info["updates"])):
        q, r = ids[f"b{b}.queries"].long(), ids[f"b{b}.responses"].long()
        rows = []
        for i in range(len(q)):
            prompt = q[i][q[i] != pad]
            n = int((r[i] != pad).sum())
            rows.append((prompt, r[i][:n]))
        width = r.shape[1]

        def logps(net, prompt, resp, entropy=False):
            lp = net.logps(torch.cat([prompt, resp]), temperature=temp)[len(prompt) - 1:]
            got = lp.gather(1, resp[:, None]).squeeze(1)
            return (got, lp) if entropy else got

        def values(net, prompt, resp):
            """Values before each response token, and one more where the response is shorter than `width`."""
            h = net.logits(torch.cat([prompt, resp]))[:, 0]
            return h[len(prompt) - 1:len(prompt) - 1 + min(len(resp) + 1, width)]

        with torch.no_grad():
            old = [logps(policy, *row) for row in rows]
            base = [logps(ref, *row) for row in rows]
            val = [values(value, *row) for row in rows]
            score = []
            for prompt, resp in rows:
                has = (resp == eos).nonzero()
                cut = resp[:int(has[0]) + 1] if len(has) else resp
                late = d["missing_eos_penalty"] if d["missing_eos_penalty"] is not None and not len(has) else 0.0
                score.append(reward.logits(torch.cat([prompt, cut]))[-1, 0] - late)
            adv, ret = [], []
            for o, ba, v, sc in zip(old, base, val, score):
                n, m = len(o), len(v)                   # m = n + 1 unless the response fills the width
                rew = torch.zeros(m, dtype=dtype)
                log_ratio = ba - o
                kl = -log_ratio if d["kl_estimator"] == "k1" else log_ratio.exp() - 1 - log_ratio
                rew[:n] = -d["kl_coef"] * kl
                rew[m - 1] += sc                        # the score lands one past the last token if there is room
                a, run_ = torch.zeros(m, dtype=dtype), 0.0
                for t in reversed(range(m)):
                    nxt = v[t + 1] if t + 1 < m else 0.0
                    run_ = rew[t] + d["gamma"] * nxt - v[t] + d["gamma"] * d["lam"] * run_
                    a[t] = run_
                adv.append(a)
                ret.append(a + v)
            flat = torch.cat([a[:len(o)] for a, o in zip(adv, old)])
            white = [(a[:len(o)] - flat.mean()) * torch.rsqrt(flat.var() + 1e-8) for a, o in zip(adv, old)]
            kl_sum = torch.stack([((o - ba) if d["kl_estimator"] == "k1" else (ba - o).exp() - 1 - (ba - o)).sum()
                                  for o, ba in zip(old, base)])
        stats = dict(losses=[], norms=[], pg=[], vf=[], clip=[], vclip=[], kl=[])
        n_micro, size = s["gradient_accumulation_steps"], s["per_device_train_batch_size"]
        for _ in range(s["num_ppo_epochs"]):
            for k in range(n_micro):
                pick = range(k * size, (k + 1) * size)
                pl, vl, nt, nv, clip, vclip = 0.0, 0.0, 0, 0, 0.0, 0.0
                sq = 0.0
                for i in pick:
                    new = logps(policy, *rows[i])
                    ratio = (new - old[i]).exp()
                    l1, l2 = -white[i] * ratio, -white[i] * ratio.clamp(1 - d["cliprange"], 1 + d["cliprange"])
                    pl, nt = pl + torch.max(l1, l2).sum(), nt + len(new)
                    clip += float((l2 > l1).sum())
                    vp = values(value, *rows[i])
                    vc = torch.max(torch.min(vp, val[i] + d["cliprange_value"]), val[i] - d["cliprange_value"])
                    e1, e2 = (vp - ret[i]) ** 2, (vc - ret[i]) ** 2
                    vl, nv = vl + torch.max(e1, e2).sum(), nv + len(vp)
                    vclip += float((e2 > e1).sum())
                    sq += float(((new - old[i]) ** 2).sum())
                pg, vf = pl / nt, 0.5 * vl / nv
                loss = pg + d["vf_coef"] * vf
                (loss / n_micro).backward()
                stats["losses"].append(loss.item())
                stats["pg"].append(pg.item())
                stats["vf"].append(vf.item())
                stats["clip"].append(clip / nt)
                stats["vclip"].append(vclip / nv)
                stats["kl"].append(0.5 * sq / (len(pick) * width))       # TRL: mean over padding too
            done = opt.t
            opt.t_rate = b + 1
            norm = step_at(opt, b + 1)
            assert opt.t == done + 1
            stats["norms"].append(norm)
        metrics = {"objective/kl": kl_sum.mean().item(), "objective/scores": torch.stack(score).mean().item(),
                   "objective/non_score_reward": -d["kl_coef"] * kl_sum.mean().item(),
                   "policy/clipfrac_avg": sum(stats["clip"]) / len(stats["clip"]),
                   "val/clipfrac_avg": sum(stats["vclip"]) / len(stats["vclip"]),
                   "policy/approxkl_avg": sum(stats["kl"]) / len(stats["kl"])}
        out.append(dict(losses=stats["losses"], norms=stats["norms"], metrics=metrics,
                        adv=[a for a in white], scores=torch.stack(score)))
    return out, {k: v.detach() for k, v in params.items()}


def step_at(opt, rate_step):
    """AdamW with the learning rate of another step number (PPO's schedule counts rollout batches)."""
    keep = plain.rate
    plain.rate = lambda step, settings: keep(rate_step, settings)
    try:
        return opt.step()[0]
    finally:
        plain.rate = keep


def compare(rec, got, last):
    out = dict(micro_loss=0.0, grad_norm_rel=0.0, advantages=0.0, metrics={})
    for b, (a, g) in enumerate(zip(rec["info"]["updates"], got)):
        out["micro_loss"] = max(out["micro_loss"], *(abs(x - y) for x, y in zip(a["micro_losses"], g["losses"])))
        out["grad_norm_rel"] = max(out["grad_norm_rel"], *(abs(x["grad_norm"] - y) / y
                                                           for x, y in zip(a["optimizer_steps"], g["norms"])))
        for i, w in enumerate(g["adv"]):
            d = (rec["own"][f"b{b}.advantages"][i][:len(w)].double() - w.double()).abs().max().item()
            out["advantages"] = max(out["advantages"], d)
        for n, v in g["metrics"].items():
            out["metrics"][n] = max(out["metrics"].get(n, 0.0), abs(a["metrics"][n] - v))
    d = torch.cat([(rec["last"][n].double() - v.double()).abs().reshape(-1) for n, v in last.items() if n in rec["last"]])
    out.update(params_share_above_1e_5=(d > 1e-5).double().mean().item(), params_worst=d.max().item())
    return out

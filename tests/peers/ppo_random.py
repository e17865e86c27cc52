"""Random runs of PPO: axtrain samples, and the step of TRL's last PPOTrainer, written down here with PyTorch, trains on the same
answers and rewards. Losses of policy and value model, gradient norms, what became of ratios, KL and entropy, and the policy's
weights at the end must agree. A part of the runs goes on from a checkpoint here, has two ranks, or trains adapters; in another
answers are in turns.

usage: ppo_random.py AXTRAIN GOLDENS [--seed N] [--runs N] [--families NAME,…] [--keep]

TRL 1.16 has no PPOTrainer. What docs/ppo.md says to be different from TRL 1.12 is as there. The value model's new adapter is
random: such runs have one batch, and its first values agree. Left out are runs whose gradients are rounding. Exit code 1 at a difference, whose folder is kept.
Needs: torch transformers trl peft datasets.
"""
import json
import math
import os
import random
import shutil
import sys

import policy_random as policies
import trainer_random as peers

import peft
import torch
import transformers
from transformers.trainer_pt_utils import get_parameter_names

FAMILIES = ("llama", "qwen3", "gemma3_text", "olmo2", "mistral", "gemma2", "glm4", "smollm3")
OF_VALUES = ("loss/value_avg", "val/clipfrac_avg")


def draw(r, plays, ranks, batches):
    some = peers.some
    ppo = {"response_length": 60 if plays else r.choice((1, 5, 9, 14)), "num_ppo_epochs": r.choice((1, 2, 3)), "num_mini_batches": r.choice((1, 1, 2, 3)),
           "temperature": some(r, 0.6, 1.0, 1.3), "kl_coef": some(r, 0.6, 0.0, 0.01, 0.5), "kl_estimator": some(r, 0.6, "k1", "k3"),
           "missing_eos_penalty": some(r, 0.5, 0.0, 0.4, 1.0), "whiten_rewards": some(r, 0.5, True), "gamma": some(r, 0.5, 0.9, 0.99, 0.0),
           "lam": some(r, 0.5, 0.0, 0.5, 1.0), "cliprange": some(r, 0.5, 0.02, 0.1), "vf_coef": some(r, 0.5, 0.5, 1.0),
           "cliprange_value": some(r, 0.6, 0.01, 0.05)}
    both = {"gradient_accumulation_steps": r.choice((1, 2)), "micro_batch_size": r.choice((1, 2, 3)), "learning_rate": r.choice((1e-4, 1e-3)),
            "seed": r.randint(0, 99), "weight_decay": r.choice((0.0, 0.1)), "max_grad_norm": r.choice((1.0, 0.05, 0.0)),
            "adam_beta2": r.choice((0.999, 0.95)), "adam_epsilon": 1e-6, "lr_scheduler": r.choice(("linear", "constant_with_warmup")),
            "optimizer": r.choice(("adamw_torch", "adamw_torch", "sgd"))}
    if ranks * both["gradient_accumulation_steps"] * both["micro_batch_size"] * ppo["num_mini_batches"] == 1:
        both["micro_batch_size"] = 2  # whitened
    both["max_steps"] = batches * ppo["num_ppo_epochs"] * ppo["num_mini_batches"]
    draws = {"repetition_penalty": some(r, 0.2, 1.2), "generation_kwargs": {"stop_token_ids": r.sample(range(250), 12), **({} if plays else {"stop_strings": ["a", "e"]})}}  # else few would end
    return *({k: v for k, v in x.items() if v is not None} for x in (ppo, both, draws)),


class Row:
    """An answer: its tokens, places of those that the model has drawn, and of values, which are one more if there is room."""

    def __init__(self, prompt, ids, line, total, o, turns):
        self.ids, self.n, width = torch.tensor([prompt + ids]), len(prompt), o["response_length"]
        drawn = [t for t in range(len(ids)) if any(a <= t < b for a, b in turns)] if turns else range(len(ids))
        self.drawn = torch.tensor([*drawn]) + self.n
        self.places = torch.tensor([*drawn] + [len(ids)] * (len(ids) < width)) + self.n - 1
        self.score = total - o.get("missing_eos_penalty", 0.0) * line["truncated"]

    def logprobs(self, model, temperature, entropy=False):
        logits = model(self.ids).logits[0, self.drawn - 1] / (temperature + 1e-7)
        all_of = logits.log_softmax(-1)
        got = all_of.gather(-1, self.ids[0, self.drawn, None])[:, 0]
        return (got, -(all_of.exp() * all_of).sum(-1).detach()) if entropy else got

    def values(self, model):
        hidden = getattr(model, model.base_model_prefix)(self.ids).last_hidden_state
        return model.score(hidden)[0, self.places, 0]


def whitened(x, keeps_mean=False):
    mean = x.mean()
    return (x - mean) * torch.rsqrt(x.var() + 1e-8) + (mean if keeps_mean else 0)


def judge(rows, policy, reference, value, o):
    """What TRL does with a batch before it trains; the batch's figures."""
    for x in rows:
        x.old, x.before = x.logprobs(policy, o["temperature"]), x.values(value)
        ratio = x.logprobs(reference, o["temperature"]) - x.old
        x.kl = -ratio if o["kl_estimator"] == "k1" else ratio.exp() - 1 - ratio
        x.rewards = torch.zeros_like(x.before)
        x.rewards[:len(x.kl)] = -o["kl_coef"] * x.kl
        x.rewards[-1] += x.score
    if o["whiten_rewards"]:
        together = whitened(torch.cat([x.rewards for x in rows]), True)
        for x, part in zip(rows, together.split([len(x.rewards) for x in rows])):
            x.rewards = part
    for x in rows:
        x.advantages, last = torch.zeros_like(x.before), 0.0
        for t in reversed(range(len(x.before))):
            after = x.before[t + 1] if t + 1 < len(x.before) else 0.0
            last = x.rewards[t] + o["gamma"] * after - x.before[t] + o["gamma"] * o["lam"] * last
            x.advantages[t] = last
        x.returns, x.advantages = x.advantages + x.before, x.advantages[:len(x.kl)]
    together = whitened(torch.cat([x.advantages for x in rows]))
    for x, part in zip(rows, together.split([len(x.kl) for x in rows])):
        x.advantages = part
    def mean(numbers):
        return sum(float(v) for v in numbers) / len(rows)

    kl, score = mean(x.kl.sum() for x in rows), mean(x.score for x in rows)
    return {"objective/kl": kl, "objective/entropy": mean(-x.old.sum() for x in rows), "objective/scores": score,
            "objective/non_score_reward": -o["kl_coef"] * kl, "objective/rlhf_reward": score - o["kl_coef"] * kl}


def losses(rows, policy, value, o):
    """Of a step, means over its tokens; and what became of ratios and values."""
    both = [x.logprobs(policy, o["temperature"], True) for x in rows]
    new, entropy = torch.cat([x[0] for x in both]), torch.cat([x[1] for x in both])
    old, advantages, before, returns = (torch.cat([getattr(x, k) for x in rows]) for k in ("old", "advantages", "before", "returns"))
    ratio = (new - old).exp()
    plain, clipped = -advantages * ratio, -advantages * ratio.clamp(1 - o["cliprange"], 1 + o["cliprange"])
    v = torch.cat([x.values(value) for x in rows])
    near = v.clamp(before - o["cliprange_value"], before + o["cliprange_value"])
    first, second = (v - returns) ** 2, (near - returns) ** 2
    loss, v_loss = torch.max(plain, clipped).mean(), 0.5 * torch.max(first, second).mean()
    return loss, v_loss, {"loss": loss, "loss/value_avg": v_loss, "policy/clipfrac_avg": (clipped > plain).float().mean(),
                          "val/clipfrac_avg": (second > first).float().mean(), "policy/approxkl_avg": 0.5 * ((new - old) ** 2).mean(),
                          "val/ratio": ratio.mean(), "policy/entropy_avg": entropy.mean()}


def optimizer_of(model, both):
    """As transformers' Trainer makes it."""
    trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    decays = {*get_parameter_names(model, [torch.nn.LayerNorm], [r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)"])}
    groups = [{"params": [p for n, p in trained if (n in decays) == decay], "weight_decay": both["weight_decay"] * decay} for decay in (True, False)]
    if both["optimizer"] == "sgd":
        return torch.optim.SGD(groups, lr=1.0)
    return torch.optim.AdamW(groups, lr=1.0, betas=(0.9, both["adam_beta2"]), eps=both["adam_epsilon"])


def step(optimizer, model, loss, rate, most):
    """The norm of the gradient before it is clipped."""
    optimizer.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), most if most > 0 else math.inf)
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    return norm


def by_torch(rule, base, adapter, critic, batches, o, both, rates):
    """Lines as in metrics.jsonl; and the policy."""
    def model(kind, folder):
        return kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")

    policy, reference = (model(transformers.AutoModelForCausalLM, base) for _ in range(2))
    if adapter:
        policy, reference = (peft.PeftModel.from_pretrained(m, adapter, is_trainable=m is policy) for m in (policy, reference))
    value = model(transformers.AutoModelForSequenceClassification, critic)
    optimizers = [optimizer_of(m, both) for m in (policy, value)]
    lines, steps = [], o["num_mini_batches"]
    for number, rows in enumerate(batches, 1):
        with torch.no_grad():
            figures = judge(rows, policy, reference, value, o)
        order, turn = [*range(len(rows))], len(rows) // steps
        for i in range(len(rows) - 1, 0, -1) if steps > 1 else ():
            k = rule.below(both["seed"], number, 0x726F6C6C, i, i + 1)
            order[k], order[i] = order[i], order[k]
        for i in range(o["num_ppo_epochs"] * steps):
            some = sorted(order[i % steps * turn:(i % steps + 1) * turn])
            loss, v_loss, line = losses([rows[k] for k in some], policy, value, o)
            rate = rates[len(lines)]
            line["grad_norm"] = step(optimizers[0], policy, loss, rate, both["max_grad_norm"])
            line["val/grad_norm"] = step(optimizers[1], value, o["vf_coef"] * v_loss, rate, both["max_grad_norm"])
            lines.append({**{k: float(x) for k, x in line.items()}, **(figures if i == 0 else {})})
    return lines, policy


def compare(ours, theirs, o, adapter):
    bad = []
    for number, (a, b) in enumerate(zip(ours, theirs), 1):
        for k, v in b.items():
            w = a.get(k)
            if o["kl_coef"] == 0 and k in ("objective/kl", "objective/rlhf_reward", "objective/non_score_reward"):
                continue
            if adapter and (k == "val/grad_norm" or number > 1 and k in OF_VALUES):
                continue
            if w is None or abs(v - w) > (1e-2 if "grad_norm" in k else 2e-3) * abs(v) + (1e-4 if "kl" in k or k == "loss" else 1e-5):
                bad.append(f"step {number}: {k} is {w}, by PyTorch {v}")
    return bad + ([f"{len(ours)} steps, by PyTorch {len(theirs)}"] if len(ours) != len(theirs) else [])


def answers_of(folder, tokenizer, keys, o, size):
    """The rows of each batch, of what the first reward function was asked for and completions.jsonl says."""
    def ids_of(prompt):
        if isinstance(prompt, str):
            return tokenizer(prompt)["input_ids"]
        return tokenizer.apply_chat_template(prompt, add_generation_prompt=True)["input_ids"]

    def wrote(answer, line):
        return tokenizer.decode(answer[0]) == line["prompt"] and tokenizer.decode(answer[1], skip_special_tokens=True) == line["completion"]

    with open(os.path.join(folder, "asked.jsonl"), encoding="utf-8") as f:
        asked = [(ids_of(p), ids) for call in map(json.loads, f) for p, ids in zip(call["prompts"], call["ids"])]
    with open(os.path.join(folder, "out/completions.jsonl"), encoding="utf-8") as f:
        lines = [json.loads(x) for x in f]
    functions = keys["trl"]["reward_funcs"]
    weights = {**dict(zip(functions, keys["trl"].get("reward_weights", [1.0] * len(functions)))), os.path.basename(keys["ppo"]["reward_model_path"]): 1.0}
    rows = []
    for i, line in enumerate(lines):  # ranks ask for their own answers, in any order
        at = next(k for k in range(i // size * size, i // size * size + size) if asked[k] and wrote(asked[k], line))
        (prompt, ids), asked[at] = asked[at], None
        rows.append(Row(prompt, ids, line, sum(w * (line["rewards"][k] or 0.0) for k, w in weights.items()), o, line.get("model_tokens")))
    return [rows[i:i + size] for i in range(0, len(rows), size)]


def make_critics(work, families):
    for i, family in enumerate(families):
        base = os.path.join(work, family)
        torch.manual_seed(i)
        m = transformers.AutoModelForSequenceClassification.from_pretrained(base, num_labels=1, dtype=torch.float32)
        m.score.weight.data.normal_(std=0.2)
        tokenizer = transformers.AutoTokenizer.from_pretrained(base)
        m.config.pad_token_id = tokenizer.pad_token_id
        m.save_pretrained(base + "-critic")
        tokenizer.save_pretrained(base + "-critic")


def main():
    a, work = peers.begin(__doc__, peers.more(FAMILIES))
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../goldens"))
    import rule
    policies.make_models(a.axtrain, a.goldens, work, a.families, 2, 4)
    make_critics(work, a.families)
    refused = different = empty = 0
    for i in range(a.runs):
        r = random.Random(f"{a.seed} {i}")
        family, chats = r.choice(a.families), r.random() < 0.5
        plays = chats and r.random() < 0.4
        ranks, with_adapter = 1 if plays or r.random() < 0.75 else 2, r.random() < 0.25
        ppo, both, draws = draw(r, plays, ranks, 1 if with_adapter else 2)
        folder, base = os.path.join(work, f"run{i}"), os.path.join(work, family)
        os.makedirs(folder)
        with open(os.path.join(folder, "my_rewards.py"), "w", encoding="utf-8") as f:
            f.write(policies.REWARDS)
        with open(os.path.join(folder, "rows.jsonl"), "w", encoding="utf-8") as f:
            f.writelines(json.dumps(row) + "\n" for row in policies.prompts(r, chats) * 6)
        adapter = peers.make_adapter(r, base, os.path.join(folder, "adapter"), i) if with_adapter else None
        functions = ["my_rewards." + n for n in policies.FUNCTIONS[:r.randint(1, 3)]]
        keys = {"base_model": base, "rl": "ppo", "datasets": [{"path": "rows.jsonl"}], "sequence_len": 200, "num_epochs": 99, "float32": True,
                "device": "cpu", "logging_steps": 1, "save_strategy": "no", "loss_watchdog_threshold": 1e9, **both,
                **({"dp_shard_size": ranks} if ranks > 1 else {}), **({"adapter": "lora", "lora_model_dir": adapter} if adapter else {}),
                "ppo": {**ppo, "reward_model_path": base + "-critic"},
                "trl": {**draws, "reward_funcs": functions, **({"environment_factory": "my_rewards.Talk", "max_turns": 3} if plays else {})}}
        if r.random() < 0.5:
            keys["trl"]["reward_weights"] = [r.choice((1.0, 0.5, -0.3)) for _ in functions]
        resumed = r.randint(1, both["max_steps"] - 1) if r.random() < 0.25 and both["max_steps"] > 1 else 0
        what = f"{folder}: {family} {ppo} {both} {keys['trl']}{' 2 ranks' if ranks > 1 else ''}{' lora' if adapter else ''}{f' from step {resumed}' if resumed else ''}"
        done, ours = policies.by_axtrain([a.axtrain, *(["launch", "-n", "2", "--"] if ranks > 1 else [])], keys, folder, resumed)
        if done.returncode:
            refused += 1
            print(f"{what}: {done.returncode} {done.stderr.strip()[-300:]}", flush=True)
            continue
        ours = [x for x in ours if "loss" in x]
        if any(min(x["grad_norm"], x["val/grad_norm"]) < 1e-3 for x in ours):
            empty += 1
            continue
        o = {"temperature": 0.7, "kl_coef": 0.05, "kl_estimator": "k1", "whiten_rewards": False, "gamma": 1.0, "lam": 0.95, "cliprange": 0.2,
             "vf_coef": 0.1, "cliprange_value": 0.2, **ppo}
        size = ranks * both["micro_batch_size"] * both["gradient_accumulation_steps"] * o["num_mini_batches"]
        batches = answers_of(folder, transformers.AutoTokenizer.from_pretrained(base), keys, o, size)
        theirs, policy = by_torch(rule, base, adapter, base + "-critic", batches, o, both, [x["learning_rate"] for x in ours])
        policy.save_pretrained(os.path.join(folder, "trl"))
        bad = compare(ours, theirs, o, adapter) + peers.compare_weights(folder, adapter or base, adapter)
        if bad:
            different += 1
            print(f"{what}:", *bad[:9], sep="\n  ", flush=True)
        elif not a.keep:
            shutil.rmtree(folder)
    return peers.end(a, work, different, refused, empty)


if __name__ == "__main__":
    sys.exit(main())

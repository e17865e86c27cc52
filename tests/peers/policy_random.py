"""Random runs of GRPO: axtrain samples, and TRL's GRPOTrainer trains on the same answers with the same reward functions.
Losses, gradient norms, rewards, also of evaluations, what became of ratios, and the weights at the end must agree. A part of the
runs goes on from a checkpoint here.

usage: policy_random.py AXTRAIN GOLDENS [--seed N] [--runs N] [--families NAME,…] [--keep]

What docs/grpo.md says to be different is not drawn: TRL's means over a micro-batch (bnpo, entropies) or over a generation
of several steps (dapo, cispo, vespo), top_p, top_k and min_p, and the routers' loss of answers without a gradient. With
older weights (max_staleness) TRL has their log-probs, as from another sampler; it refuses vespo with ratios of sequences.
Answers in turns with an environment reach TRL by rollout_func. Left out are runs that skip a step, whose gradients are
rounding or whose losses have blown up, that learn nothing, or draw the token that pads, which TRL takes for an end.
Exit code 1 at a difference, whose folder is kept.
Needs: torch transformers trl peft datasets.
"""
import copy
import json
import os
import random
import shutil
import subprocess
import sys

import trainer_random as peers  # sets the environment of what follows

import peft
import torch
import transformers
import trl
import trl.trainer.grpo_trainer
from datasets import Dataset
from safetensors.torch import load_file, save_file

FAMILIES = ("llama", "qwen3", "gemma3_text", "granite", "olmo2", "gemma2", "gemma4", "cohere2", "glm4", "exaone4", "smollm3",
            "mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss", "deepseek_v2", "deepseek_v3", "glm4_moe", "minimax_m2",
            "qwen3_next", "falcon_h1", "lfm2", "lfm2_moe", "qwen3_5")
REWARDS = '''"""Rewards of token numbers; the first one notes what it was asked for."""
import json


def digits(completion_ids, prompts, kind, **_):
    with open("asked.jsonl", "a", encoding="utf-8") as f:
        f.write(json.dumps({"prompts": prompts, "ids": completion_ids, "kind": kind}) + "\\n")
    return [sum(ids) % 11 / 10 for ids in completion_ids]


def even(completion_ids, kind, **_):
    return [None if k % 4 == 1 else float(ids[0] % 2 == 0) for ids, k in zip(completion_ids, kind)]


def some(completion_ids, kind, **_):
    return [None if k % 4 == 2 or sum(ids) % 5 == 0 else sum(ids) % 7 / 3 - 1 for ids, k in zip(completion_ids, kind)]


class Talk:
    def reset(self):
        self.turns = 0

    def step(self, answer):
        self.turns += 1
        return None if (len(answer) + self.turns) % 4 == 0 else "apple bridge" if len(answer) % 2 else "copper"
'''
FUNCTIONS = ("digits", "even", "some")

# Times; the loss without its entropy; a sum over the run; losses of evaluations, which we do not compute. Then what is of
# answers with a gradient alone, and in TRL of all, as means over micro-batches.
NOT_COMPARED = ("runtime", "per_second", "epoch", "step_time", "policy_loss", "num_tokens", "entropy_coef", "sampling/", "eval_loss", "eval_aux_loss")
RATIOS = ("kl", "entropy", "clip_ratio", "phi_seq")


def draw(r):
    """The keys of the section trl, which are arguments of GRPOConfig; others of both; the optimizer, reward functions, answers
    of a micro-batch, how many steps older the weights are that draw answers, and whether an adapter trains."""
    group = r.choice((2, 4))
    micro = group * r.choice((1, 2)) if r.random() < 0.8 else group // 2
    steps = r.choice((1, 1, 2)) if micro >= group else 2
    loss = r.choice(("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo", "vespo"))
    per_token = loss in ("bnpo", "dapo", "cispo", "vespo")
    if loss == "bnpo" and micro >= group:
        steps = 1
    elif loss == "bnpo":
        loss = "dapo"
    args = {"num_generations": group, "loss_type": loss, "max_completion_length": r.choice((8, 14)),
            "num_iterations": r.choice((1, 1, 2, 3)), "steps_per_generation": steps * (1 if per_token else r.choice((1, 1, 2))),
            "scale_rewards": peers.some(r, 0.8, "group", "batch", "none", True, False),
            "importance_sampling_level": peers.some(r, 0.5, "token", "sequence"),
            "beta": peers.some(r, 0.5, 0.0, 0.04, 0.5), "use_bias_correction_kl": peers.some(r, 0.4, True, False),
            "epsilon": peers.some(r, 0.5, 0.1, 0.02), "epsilon_high": peers.some(r, 0.5, 0.28, 0.05, 1.5), "delta": peers.some(r, 0.3, 1.1, 1.6),
            "mask_truncated_completions": peers.some(r, 0.4, True, False), "temperature": peers.some(r, 0.4, 0.7, 1.3),
            "multi_objective_aggregation": peers.some(r, 0.3, "sum_then_normalize", "normalize_then_sum"),
            "off_policy_mask_threshold": peers.some(r, 0.3, 0.02, 0.2), "repetition_penalty": peers.some(r, 0.1, 1.2)}
    if loss == "sapo":
        args["sapo_temperature_pos"], args["sapo_temperature_neg"] = peers.some(r, 0.5, 0.7), peers.some(r, 0.5, 1.5)
    if loss == "vespo":
        for key in ("k_pos", "k_neg", "lambda_pos", "lambda_neg"):
            args["vespo_" + key] = peers.some(r, 0.5, 1.5, 2.5)
    if args["steps_per_generation"] == 1 and r.random() < 0.3:
        args["entropy_coef"] = r.choice((0.01, -0.02))
        args["top_entropy_quantile"] = peers.some(r, 0.5, 0.4) if args["num_iterations"] == 1 else None
    lag = 0
    if args["num_iterations"] == 1 and args["steps_per_generation"] == steps and r.random() < 0.4:
        lag = r.choice((1, 1, 2))
        args["top_entropy_quantile"] = None
        modes = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
        args["vllm_importance_sampling_mode"] = r.choice(modes[:2] if loss == "vespo" else modes)
        args["vllm_importance_sampling_clip_min"] = peers.some(r, 0.5, 0.9, 0.5)
        args["vllm_importance_sampling_clip_max"] = peers.some(r, 0.5, 1.1, 2.0)
    functions = r.sample(FUNCTIONS[1:], r.randint(0, 2))
    functions.insert(0, FUNCTIONS[0])
    if r.random() < 0.5:
        args["reward_weights"] = [r.choice((1.0, 0.5, -0.3)) for _ in functions]
    both = {"gradient_accumulation_steps": steps, "learning_rate": r.choice((3e-4, 1e-3)), "seed": r.randint(0, 99), "logging_steps": 1,
            "warmup_steps": r.choice((0, 0, 1)), "weight_decay": r.choice((0.0, 0.1)), "max_grad_norm": r.choice((1.0, 0.05, 0.0)),
            "adam_beta2": r.choice((0.999, 0.95)), "max_steps": r.choice((3, 5)), "adam_epsilon": 1e-6}
    optimizer = r.choice(("adamw_torch", "adamw_torch", "sgd", "adafactor"))
    return {k: v for k, v in args.items() if v is not None}, both, optimizer, functions, micro, lag, r.random() < 0.3


def prompts(r, chats):
    rows = peers.records(r, "dpo", "chats" if chats else "texts")[:10]
    return [{"prompt": row["prompt"], "kind": r.randint(0, 3)} for row in rows]


def by_axtrain(command, keys, folder, resumed):
    """A run, or one that goes on from a checkpoint of another, of whose answers asked.jsonl then is."""
    def lines(name):
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            return [json.loads(line) for line in f]

    def run(name, **more):
        with open(os.path.join(folder, name + ".yaml"), "w", encoding="utf-8") as f:
            json.dump({**keys, "output_dir": name, **more}, f, indent=1)
        p = subprocess.run([*command, "train", name + ".yaml"], capture_output=True, text=True, timeout=300, cwd=folder,
                           env={**os.environ, "AXTRAIN_PYTHON": sys.executable})
        return p, [] if p.returncode else lines(name + "/metrics.jsonl")

    if not resumed:
        return run("out")
    p, before = run("first", save_strategy="steps", save_steps=resumed, save_total_limit=99)
    if p.returncode:
        return p, []
    os.rename(os.path.join(folder, "asked.jsonl"), os.path.join(folder, "all.jsonl"))
    p, after = run("out", resume_from_checkpoint=f"first/checkpoint-{resumed}")
    os.rename(os.path.join(folder, "all.jsonl"), os.path.join(folder, "asked.jsonl"))
    shutil.copy(os.path.join(folder, "first/completions.jsonl"), os.path.join(folder, "out"))
    return p, [x for x in before if x["step"] <= resumed] + [x for x in after if x["step"] > resumed]


def asked(folder, group, eval_group=1):
    """Rows for TRL, which are prompts with their answers, how many answers a generation has, and rows of evaluations, with
    the answers of each."""
    with open(os.path.join(folder, "asked.jsonl"), encoding="utf-8") as f:
        calls = [json.loads(line) for line in f]

    def rows(kept, group):
        return [{"prompt": c["prompts"][i], "kind": c["kind"][i], "recorded": c["ids"][i:i + group]}
                for c in kept for i in range(0, len(c["ids"]), group)]

    evals = {}
    for row in rows([c for c in calls if c["kind"][0] >= 4], eval_group):
        evals.setdefault(row["kind"], {**row, "recorded": []})["recorded"].append(row["recorded"])
    train = [c for c in calls if c["kind"][0] < 4]
    return rows(train, group), len(train[0]["ids"]), list(evals.values())


def in_order_of(rule, seed, size, steps):
    """shuffle_sequence_dict with the order of ax_rollout_take."""
    generation = 0

    def shuffle(batch):
        nonlocal generation
        generation += 1
        order = list(range(size))
        for i in range(size - 1, 0, -1) if steps > 1 else ():
            k = rule.below(seed, generation, 0x726F6C6C, i, i + 1)
            order[k], order[i] = order[i], order[k]
        turn = size // steps
        order = [at for i in range(0, size, turn) for at in sorted(order[i:i + turn])]
        return {k: v[order] if torch.is_tensor(v) and v.ndim else [v[i] for i in order] if isinstance(v, list) else v for k, v in batch.items()}

    return shuffle


class Recorded(trl.GRPOTrainer):
    """Answers of the data. With a lag they come with the log-probs of older weights, as from another sampler."""

    lag, versions, turns, evaluations = 0, (), {}, 0

    def evaluate(self, *args, **kw):
        self.evaluations, self.use_vllm = self.evaluations + 1, False
        metrics = super().evaluate(*args, **kw)
        self.use_vllm = self.lag > 0
        return metrics

    def recorded(self):
        if self.model.training:
            return [list(row["recorded"][i % self.num_generations]) for i, row in enumerate(self.rows_now)]
        return [list(row["recorded"][self.evaluations - 1][i % self.num_generations_eval]) for i, row in enumerate(self.rows_now)]

    def play(self, prompts, trainer):
        """Answers in turns: their tokens and which of them the model has drawn, as axtrain noted."""
        answers = self.recorded()
        masks = [[int(any(first <= t < end for first, end in self.turns[tuple(a)])) for t in range(len(a))] for a in answers]
        return {"prompt_ids": self._tokenize_prompts(prompts)[0], "completion_ids": answers, "logprobs": None, "env_mask": masks}

    def _generate_and_score_completions(self, inputs):
        self.rows_now = inputs
        return super()._generate_and_score_completions(inputs)

    def _generate_single_turn(self, prompt_ids, *args, **kw):
        answers = self.recorded()
        if self.lag == 0 or not self.model.training:
            return answers, None
        model = self.accelerator.unwrap_model(self.model)
        self.versions = [*self.versions, copy.deepcopy(model.state_dict())]
        model.load_state_dict(self.versions[max(0, len(self.versions) - 1 - self.lag)])
        logprobs = [self.log_probs(model, p, a) for p, a in zip(prompt_ids, answers)]
        model.load_state_dict(self.versions[-1])
        return answers, logprobs

    def log_probs(self, model, prompt, answer):
        with torch.no_grad():
            logits = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1:-1] / self.temperature
        return logits.log_softmax(-1).gather(-1, torch.tensor(answer)[:, None])[:, 0].tolist()


def turns_of(folder):
    with open(os.path.join(folder, "out/completions.jsonl"), encoding="utf-8") as f:
        return {tuple(x["completion_ids"]): x["model_tokens"] for x in map(json.loads, f)}


def by_trl(args, base, adapter, folder, rows, evals, functions, shuffle, lag, turns):
    sys.path.insert(0, folder)
    sys.modules.pop("my_rewards", None)
    import my_rewards
    sys.path.remove(folder)
    was = os.getcwd()
    os.chdir(folder)
    trl.trainer.grpo_trainer.shuffle_sequence_dict = shuffle
    c = trl.GRPOConfig(output_dir="trl", report_to=[], save_strategy="no", use_cpu=True, bf16=False, gradient_checkpointing=False,
                       disable_tqdm=True, log_level="error", shuffle_dataset=False, lr_scheduler_type="constant_with_warmup", **args)
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, experts_implementation="eager")
    if adapter:
        model = peft.PeftModel.from_pretrained(model, adapter, is_trainable=True)
    try:
        t = Recorded(model=model, args=c, processing_class=transformers.AutoTokenizer.from_pretrained(base),
                     train_dataset=Dataset.from_list(rows),
                     eval_dataset=Dataset.from_list(evals) if evals else None, reward_funcs=[getattr(my_rewards, n) for n in functions])
        t.remove_callback(transformers.PrinterCallback)
        t.lag, t.use_vllm, t.turns, t.rollout_func = lag, lag > 0, turns, t.play if turns else None
        t.train()
        t.save_model("trl")
    finally:
        os.chdir(was)
    return t.state.log_history


def compare(ours, theirs, ratios, balance, module="my_rewards."):
    bad = []
    a, b = ({(x["step"], kind): x for kind in ("loss", "eval_reward") for x in lines if kind in x} for lines in (ours, theirs))
    if sorted(a) != sorted(b):
        return [f"steps {sorted(a)}, in TRL {sorted(b)}"]
    for s, line in b.items():
        for k, v in line.items():
            if not isinstance(v, (int, float)) or any(x in k for x in NOT_COMPARED):
                continue
            if any(x in k for x in RATIOS) and (not ratios or k.startswith("eval")):
                continue
            w = a[s].get({"aux_loss": "moe/aux_loss"}.get(k, k if "rewards/Shop" in k else k.replace("rewards/", "rewards/" + module)))
            if k == "loss" and balance:
                w += balance * a[s]["moe/aux_loss"]
            if w is None or abs(v - w) > (1e-2 if k in ("grad_norm", "entropy") else 2e-3) * max(abs(v), 1e-3 if k == "loss" else 1e-6) + (1e-4 if k == "kl" else 2e-6):
                bad.append(f"step {s}: {k} is {w}, in TRL {v}")
    return bad


def make_models(axtrain, goldens, work, families, sharp=4, ends=8):
    """Models of random weights, which end answers more often than by chance; the token that pads."""
    peers.make_models(axtrain, goldens, work, families)
    for family in families:
        folder = os.path.join(work, family)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
            config = json.load(f)
        config.update(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=tokenizer.bos_token_id)
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
            json.dump(config, f)
        weights = load_file(os.path.join(folder, "model.safetensors"))
        head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
        head *= sharp
        head[tokenizer.eos_token_id] *= ends
        save_file(weights, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    return tokenizer.pad_token_id


def main():
    a, work = peers.begin(__doc__, peers.more(FAMILIES))
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../goldens"))
    import rule
    pad = make_models(a.axtrain, a.goldens, work, a.families)
    refused = different = empty = 0
    for i in range(a.runs):
        r = random.Random(f"{a.seed} {i}")
        family = r.choice(a.families)
        args, both, optimizer, functions, micro, lag, with_adapter = draw(r)
        if family in peers.ROUTED and not with_adapter:
            both["weight_decay"], optimizer = 0.0, optimizer.replace("adafactor", "sgd")
        folder, base = os.path.join(work, f"run{i}"), os.path.join(work, family)
        os.makedirs(folder)
        with open(os.path.join(folder, "my_rewards.py"), "w", encoding="utf-8") as f:
            f.write(REWARDS)
        with open(os.path.join(folder, "rows.jsonl"), "w", encoding="utf-8") as f:
            chats = r.random() < 0.5
            plays = chats and lag == 0 and r.random() < 0.6
            f.writelines(json.dumps(row) + "\n" for row in prompts(r, chats))
        with open(os.path.join(folder, "evals.jsonl"), "w", encoding="utf-8") as f:
            f.writelines(json.dumps({**row, "kind": 4 + i}) + "\n" for i, row in enumerate(prompts(r, chats)[:4]))
        at, eval_group = {}, args["num_generations"]
        if r.random() < 0.4 and not plays:
            eval_group = args["num_generations_eval"] = r.choice((1, 2, 3))
            at = {"eval_strategy": "steps", "eval_steps": r.choice((1, 2)), "eval_on_start": True, "per_device_eval_batch_size": eval_group * 4}
        if plays:
            args["max_completion_length"] = 60
        balance = peers.balance_of(r, family)
        if balance and (both["gradient_accumulation_steps"] > 1 or args.get("mask_truncated_completions")):
            balance["router_aux_loss_coef"] = 0.0
        adapter = peers.make_adapter(r, base, os.path.join(folder, "adapter"), i) if with_adapter else None
        keys = {"base_model": base, "rl": "grpo", "datasets": [{"path": "rows.jsonl"}], "output_dir": "out", "sequence_len": 120,
                "micro_batch_size": micro, "num_epochs": 99, "float32": True, "device": "cpu", "save_strategy": "no", "optimizer": optimizer,
                "lr_scheduler": "constant_with_warmup", "loss_watchdog_threshold": 1e9, **both,
                **peers.balance_keys(balance), **({"adapter": "lora", "lora_model_dir": adapter} if adapter else {}), **({"max_staleness": lag} if lag else {}),
                **({"test_datasets": [{"path": "evals.jsonl"}], "eval_steps": at["eval_steps"], "eval_batch_size": at["per_device_eval_batch_size"]} if at else {}),
                "trl": {**args, **({"environment_factory": "my_rewards.Talk", "max_turns": 3} if plays else {}), "reward_funcs": ["my_rewards." + n for n in functions]}}
        if keys["trl"].get("multi_objective_aggregation") == "normalize_then_sum" and r.random() < 0.5:
            keys.update(rl="gdpo", trl={k: v for k, v in keys["trl"].items() if k != "multi_objective_aggregation"})
        if r.random() < 0.3:
            keys["trl"]["generation_batch_size"] = keys["trl"].pop("steps_per_generation") * micro
        what = f"{folder}: {family}{' lora' if adapter else ''} {optimizer} {args} {both} {functions} {micro}{f' lag {lag}' if lag else ''}{' in turns' if plays else ''}"
        resumed = r.choice((1, 2)) if r.random() < 0.25 else 0
        done, ours = by_axtrain([a.axtrain], keys, folder, resumed)
        if "no reward of" in done.stderr:
            empty += 1
            continue
        if done.returncode:
            refused += 1
            print(f"{what}: {done.returncode} {done.stderr.strip()[-300:]}", flush=True)
            continue
        rows, size, evals = asked(folder, args["num_generations"], eval_group)
        answers = [ids for row in rows for ids in row["recorded"]] + [ids for row in evals for group in row["recorded"] for ids in group]
        if any(x.get("skipped") or 0 < x.get("grad_norm", 0) < 1e-2 or abs(x.get("loss", 0)) > 100 for x in ours) or any(ids[-1] == pad for ids in answers):
            empty += 1
            continue
        shuffle = in_order_of(rule, both["seed"], size, args["steps_per_generation"] // both["gradient_accumulation_steps"])
        theirs = by_trl({**args, **both, **balance, **at, "optim": optimizer, "per_device_train_batch_size": micro}, base, adapter, folder, rows, evals, functions, shuffle, lag, turns_of(folder) if plays else None)
        bad = compare(ours, theirs, both["gradient_accumulation_steps"] == 1 and args.get("beta") and not args.get("mask_truncated_completions"), balance.get("router_aux_loss_coef")) + peers.compare_weights(os.path.join(folder), adapter or base, adapter)
        if bad:
            different += 1
            print(f"{what}:", *bad[:9], sep="\n  ", flush=True)
        elif not a.keep:
            shutil.rmtree(folder)
    return peers.end(a, work, different, refused, empty)


if __name__ == "__main__":
    sys.exit(main())

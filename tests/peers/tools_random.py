"""Random runs of GRPO with tools and environments: axtrain samples, and TRL's GRPOTrainer gets the same turns, reads their calls,
runs the tools and trains. Tokens of answers, what reward functions get, metrics, and the weights at the end must agree.

usage: tools_random.py AXTRAIN GOLDENS [--seed N] [--runs N] [--families NAME,…] [--keep]

A tiny model is first taught to call tools as each chat template of TRL (--families) writes it, also wrongly: calls that no JSON
reader takes, of tools that do not exist, with other arguments. What policy_random.py says to be different is not drawn here
either. Left out are runs with calls in a turn that was cut, which TRL runs, and drops, or without a name. Exit code 1 at a
difference, whose folder is kept. Needs: torch transformers trl peft datasets.
"""
import json
import os
import random
import shutil
import subprocess
import sys

import policy_random as policy  # sets the environment of what follows
import trainer_random as peers

import torch
import transformers
import trl
from datasets import Dataset

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
FAMILIES = ("qwen3", "qwen2_5")
MODULE = '''"""Tools, an environment and rewards; the first reward notes what it gets."""
import asyncio
import json


def multiply(a: int, b: int) -> int:
    """
    Multiplies two numbers.

    Args:
        a: One.
        b: Two.
    """
    return a * b


def look(word: str, times: int = 1) -> str:
    """
    Looks up a word.

    Args:
        word: The word.
        times: How often.
    """
    if len(word) % 2:
        raise KeyError(word)
    return " ".join([word] * times)


async def wait(word: str) -> dict:
    """
    Waits for a word.

    Args:
        word: The word.
    """
    await asyncio.sleep(0)
    if "e" in word:
        raise RuntimeError("no " + word)
    return {"word": word, "size": len(word)}


def now():
    """
    Says nothing.
    """
    return None


class Shop:
    def reset(self, kind, **columns):
        self.kind, self.sum = kind, 0
        return None if kind == 1 else f" We have {kind}."

    def buy(self, n: int) -> str:
        """
        Buys some.

        Args:
            n: How many.
        """
        self.sum += n
        if self.sum > 20:
            raise ValueError("too much")
        return f"You have {self.sum}."

    def get_reward(self):
        return self.sum / 7 if self.kind < 3 else None


def sizes(completions, completion_ids, prompts, kind, **_):
    with open("asked.jsonl", "a", encoding="utf-8") as f:
        f.write(json.dumps({"prompts": prompts, "ids": completion_ids, "kind": kind, "completions": completions}) + "\\n")
    return [sum(ids) % 11 / 10 for ids in completion_ids]


def called(completions, kind, **_):
    return [None if k == 1 else sum(len(m.get("tool_calls") or []) for m in c) / 2 for c, k in zip(completions, kind)]
'''
SETS = (("multiply", "look", "wait", "now"), ("look", "multiply", "Shop"), ("Shop",))
ARGUMENTS = {"multiply": {"a": 3, "b": 4}, "look": {"word": "kettle", "times": 2}, "wait": {"word": "garden"}, "now": {}, "buy": {"n": 7}}


def call(r, names):
    name = r.choice(names)
    arguments = {k: r.choice(peers.WORDS) if isinstance(v, str) else r.randint(0, 12) for k, v in ARGUMENTS[name].items()}
    odd = r.random()
    if odd < 0.05:
        name = r.choice(("divide", name + "s"))
    elif odd < 0.1 and arguments:
        arguments.pop(r.choice(list(arguments)))
    elif odd < 0.15:
        arguments["more"] = r.choice((1, None, "x", [1, {"y": 2}], 1.5, True))
    elif odd < 0.22 and arguments:
        arguments[r.choice(list(arguments))] = r.choice(("7", 2.5, None, True, ["kettle"], {"a": 1}, "x y", 10 ** 12))
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def spoiled(r, text):
    """With a small mistake somewhere."""
    at = r.randrange(len(text) + 1)
    end = min(len(text), at + r.randint(1, 12))
    return r.choice((text[:at] + text[end:], text[:at] + text[at:end] * 2 + text[end:], text[:at] + r.choice('{}",:\\ \n<') + text[at:]))


def nth(text, part, n):
    at = -1
    for _ in range(n):
        at = text.index(part, at + 1)
    return at


def lessons(r, tokenizer, tools, prompts):
    """Conversations as texts; the assistant's turns of some have mistakes."""
    names = [t["function"]["name"] for t in tools]

    def render(messages, **more):
        return tokenizer.apply_chat_template(messages, tools=tools, tokenize=False, **more)

    rows = []
    for prompt in prompts:
        for _ in range(4):
            messages, text = list(prompt), render(prompt, add_generation_prompt=True)
            for _ in range(r.choice((0, 1, 1, 1, 2, 3))):
                calls = [call(r, names) for _ in range(r.choice((1, 1, 1, 2, 3)))]
                said = {"role": "assistant", "content": r.choice(("", "", "I look.", "So:\n")), "tool_calls": calls}
                results = [{"role": "tool", "name": c["function"]["name"], "content": r.choice(("12", "kettle kettle", "You have 7.", "None"))} for c in calls]
                before, after = render(messages + [said]), render(messages + [said] + results, add_generation_prompt=True)
                if not before.startswith(text):  # there is a mistake in it
                    break
                answer = before[len(text):before.rfind(tokenizer.eos_token)]
                text += spoiled(r, answer) if r.random() < 0.25 else answer
                text += after[nth(after, tokenizer.eos_token, before.count(tokenizer.eos_token)):]  # a turn may look otherwise there
                messages += [said] + results
            rows.append({"text": text + r.choice(("It is 12.", "kettle", "You have 7 of it."))})
    return rows


def run(axtrain, command, folder, keys):
    with open(os.path.join(folder, command + ".yaml"), "w", encoding="utf-8") as f:
        json.dump(keys, f, indent=1)
    return subprocess.run([axtrain, command, command + ".yaml"], capture_output=True, text=True, timeout=600, cwd=folder,
                          env={**os.environ, "AXTRAIN_PYTHON": sys.executable})


def make_model(axtrain, work, family):
    """Taught to call; its tokenizer has the template."""
    base, out = os.path.join(work, family + "-base"), os.path.join(work, family)
    shutil.copytree(os.path.join(ROOT, "tests/goldens/runs/models", "tools_qwen3"), base)
    templates = os.path.join(os.path.dirname(trl.__file__), "chat_templates")
    shutil.copy(os.path.join(templates, family + ".jinja"), os.path.join(base, "chat_template.jinja"))
    r = random.Random(family)
    sys.path.insert(0, work)
    import my_tools
    sys.path.remove(work)
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    rows = []
    for names in SETS:
        tools = [transformers.utils.get_json_schema(my_tools.Shop().buy if n == "Shop" else getattr(my_tools, n)) for n in names]
        rows += lessons(r, tokenizer, tools, [row["prompt"] for row in prompts(r)])
    with open(os.path.join(work, "lessons.jsonl"), "w", encoding="utf-8") as f:
        f.writelines(json.dumps(row) + "\n" for row in rows)
    p = run(axtrain, "sft", work, {
        "base_model": base, "datasets": [{"path": "lessons.jsonl", "type": "completion"}], "output_dir": out, "sequence_len": 2048,
        "micro_batch_size": 1, "sample_packing": True, "num_epochs": 50, "learning_rate": 5e-3, "warmup_steps": 10, "adam_beta2": 0.98,
        "float32": True, "device": "cpu", "save_strategy": "no"})
    if p.returncode:
        sys.exit(p.stderr)


def prompts(r):
    """Those of the lessons, for which a tiny model knows what follows."""
    return [{"prompt": [{"role": "user", "content": word + "?"}], "kind": r.randint(0, 3)} for word in peers.WORDS[:8]]


class Recorded(trl.GRPOTrainer):
    """Its model's turns are those of axtrain's answers; what is between them is its own."""

    turns, bad = {}, ()

    def _generate_and_score_completions(self, inputs):
        self.rows_now = inputs
        return super()._generate_and_score_completions(inputs)

    def _generate_single_turn(self, prompt_ids, *args, **kw):
        caller = sys._getframe(1).f_locals
        at = caller.get("idxs_with_tool", range(len(prompt_ids)))
        out = []
        for i, ids in zip(at, prompt_ids):
            answer = self.rows_now[i]["recorded"][i % self.num_generations]
            told = ids[len(caller["prompt_ids"][i]):]
            if answer == told:  # there is no room for another turn
                out.append([])
                continue
            ends = [end for first, end in self.turns[tuple(answer)] if first == len(told)]
            if answer[:len(told)] != told or not ends:
                self.bad = [*self.bad, f"answer {i} goes on after {self._tokenizer.decode(told)!r}, here it is {self._tokenizer.decode(answer)!r}"]
            out.append(answer[len(told):ends[0]] if ends else [self._tokenizer.eos_token_id])
        return out, None

    def _generate(self, prompts):
        made = super()._generate(prompts)
        for i, (ids, mask) in enumerate(zip(made[1], made[2])):
            answer = self.rows_now[i]["recorded"][i % self.num_generations]
            drawn = [int(any(first <= t < end for first, end in self.turns[tuple(answer)])) for t in range(len(answer))]
            if ids != answer or mask != drawn:
                self.bad = [*self.bad, f"answer {i} is {self._tokenizer.decode(ids)!r} {mask}, here {self._tokenizer.decode(answer)!r} {drawn}"]
        return made


def by_trl(args, base, folder, rows, tools, shuffle, turns):
    sys.path.insert(0, folder)
    sys.modules.pop("my_tools", None)
    import my_tools
    sys.path.remove(folder)
    was = os.getcwd()
    os.chdir(folder)
    trl.trainer.grpo_trainer.shuffle_sequence_dict = shuffle
    os.rename("asked.jsonl", "ours.jsonl")
    c = trl.GRPOConfig(output_dir="trl", report_to=[], save_strategy="no", use_cpu=True, bf16=False, gradient_checkpointing=False,
                       disable_tqdm=True, log_level="error", shuffle_dataset=False, lr_scheduler_type="constant_with_warmup", **args)
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    more = {"environment_factory": my_tools.Shop} if "Shop" in tools else {}
    try:
        t = Recorded(model=model, args=c, processing_class=transformers.AutoTokenizer.from_pretrained(base), train_dataset=Dataset.from_list(rows),
                     reward_funcs=[my_tools.sizes, my_tools.called], tools=[getattr(my_tools, n) for n in tools if n != "Shop"] or None, **more)
        t.remove_callback(transformers.PrinterCallback)
        t.turns = turns
        t.train()
        t.save_model("trl")
    finally:
        os.chdir(was)
    return t.state.log_history, list(t.bad)


def asked(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def plain(messages):
    """Without what is no part of a call, which a spoiled one may have: axtrain leaves that out."""
    for m in messages:
        for c in m.get("tool_calls") or []:
            c["function"] = {k: c["function"][k] for k in ("name", "arguments")}
    return messages


def rewarded(folder):
    """Differences between what reward functions got."""
    bad = []
    sides = [{json.dumps([c["prompts"][i], c["ids"][i]]): plain(c["completions"][i]) for c in asked(os.path.join(folder, name)) for i in range(len(c["ids"]))}
             for name in ("ours.jsonl", "asked.jsonl")]
    for k, v in sides[0].items():
        if v != sides[1].get(k):
            bad.append(f"rewards get {json.dumps(v)} of {k}, in TRL {json.dumps(sides[1].get(k))}")
    return bad


def odd(answers):
    """Is there what TRL reads otherwise?"""
    said = [str(x["messages"]) for x in answers]
    if any("reasoning_content" in m for x in answers for m in x["messages"]):
        return True  # a thought without one of its marks, of which the lessons have none
    cut = any(x["truncated"] and "tool_call" in str(x["messages"][-1]) for x in answers)
    return cut or any('"name": ""' in x for x in said)


def main():
    a, work = peers.begin(__doc__, peers.more(FAMILIES))
    sys.path.insert(0, os.path.join(ROOT, "tests/goldens"))
    import rule
    with open(os.path.join(work, "my_tools.py"), "w", encoding="utf-8") as f:
        f.write(MODULE)
    for family in a.families:
        make_model(a.axtrain, work, family)
    refused = different = empty = 0
    for i in range(a.runs):
        r = random.Random(f"{a.seed} {i}")
        family = r.choice(a.families)
        args, both, optimizer, _, micro, _, _ = policy.draw(r)
        for k in [k for k in args if k.startswith("vllm_")] + ["repetition_penalty", "reward_weights", "top_entropy_quantile"]:
            args.pop(k, None)
        args.update(max_completion_length=r.choice((60, 250, 250, 400)), max_tool_calling_iterations=peers.some(r, 0.6, 1, 2, 3))
        args = {k: v for k, v in args.items() if v is not None}
        args["temperature"] = r.choice((0.5, 0.7))
        tools = r.choice(SETS)
        folder, base = os.path.join(work, f"run{i}"), os.path.join(work, family)
        os.makedirs(folder)
        shutil.copy(os.path.join(work, "my_tools.py"), folder)
        with open(os.path.join(folder, "rows.jsonl"), "w", encoding="utf-8") as f:
            f.writelines(json.dumps(row) + "\n" for row in prompts(r))
        ours = {"tools": ["my_tools." + n for n in tools if n != "Shop"], "tool_parse_error": "end", "reward_funcs": ["my_tools.sizes", "my_tools.called"]}
        if "Shop" in tools:
            ours["environment_factory"] = "my_tools.Shop"
        keys = {"base_model": base, "rl": "grpo", "datasets": [{"path": "rows.jsonl"}], "output_dir": "out", "sequence_len": 2048,
                "micro_batch_size": micro, "num_epochs": 99, "float32": True, "device": "cpu", "save_strategy": "no", "optimizer": optimizer,
                "lr_scheduler": "constant_with_warmup", "loss_watchdog_threshold": 1e9, "tool_workers": 1, **both, "trl": {**args, **ours}}
        what = f"{folder}: {family} {optimizer} {args} {both} {tools} {micro}"
        p = run(a.axtrain, "grpo", folder, keys)
        if "no reward of" in p.stderr:
            empty += 1
            continue
        if p.returncode:
            refused += 1
            print(f"{what}: {p.returncode} {p.stderr.strip()[-300:]}", flush=True)
            continue
        if odd(asked(os.path.join(folder, "out/completions.jsonl"))):
            empty += 1
            continue
        metrics = asked(os.path.join(folder, "out/metrics.jsonl"))
        rows, size, _ = policy.asked(folder, args["num_generations"])
        for row in rows:
            row["prompt"][-1]["content"] = row["prompt"][-1]["content"].split(" We have")[0]
        shuffle = policy.in_order_of(rule, both["seed"], size, args["steps_per_generation"] // both["gradient_accumulation_steps"])
        theirs, bad = by_trl({**args, **both, "optim": optimizer, "per_device_train_batch_size": micro}, base, folder, rows, tools, shuffle, policy.turns_of(folder))
        if not bad:
            bad = rewarded(folder)
        skip = any(x.get("skipped") or 0 < x.get("grad_norm", 0) < 1e-2 or abs(x.get("loss", 0)) > 100 for x in metrics)
        if not bad and skip:
            empty += 1
            continue
        if not bad:
            bad = policy.compare(metrics, theirs, both["gradient_accumulation_steps"] == 1 and args.get("beta") and not args.get("mask_truncated_completions"), 0.0, "my_tools.")
            bad += peers.compare_weights(folder, base, None)
        if bad:
            different += 1
            print(f"{what}:", *bad[:9], sep="\n  ", flush=True)
        elif not a.keep:
            shutil.rmtree(folder)
    print(f"seed {a.seed}: {a.runs - refused - different - empty} of {a.runs} runs equal, {different} different, {refused} refused, {empty} left out")
    if not different and not a.keep:
        shutil.rmtree(work)
    return different > 0 or refused > 0 or 4 * empty > 3 * a.runs


if __name__ == "__main__":
    sys.exit(main())

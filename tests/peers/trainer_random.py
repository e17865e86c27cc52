"""Random runs of TRL's trainers, and the same by axtrain: losses, gradient norms, learning rates, metrics, and the weights
at the end must agree.

usage: trainer_random.py AXTRAIN GOLDENS [--seed N] [--runs N] [--only METHOD] [--families NAME,…] [--keep]

Half of the runs have another tokenizer than the model's, most of these one of TRL's chat templates; checkpoints have to be the
same, too. Optimizers have options of their own in some, adapters PEFT's LoRA+, and fine-tuning z-loss or EAFT, by formulas here. Data are in their order, as TRL's trainers shuffle by their own random numbers. What docs/preferences.md, docs/from-trl.md
and docs/hybrids.md say to be different is not drawn: the KL estimate of KTO, ORPO, label smoothing of a plain DPO; of
mixtures and hybrids Adafactor, weight decay, and the routers' loss with accumulation. Evaluations of several batches agree within
3 %. Runs with a step without a trained token are left out: TRL's moments move the weights there. Exit code 1 at a difference,
whose folder is kept.
Needs: torch transformers trl peft datasets.
"""
import argparse
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import warnings

os.environ.update(HF_HUB_OFFLINE="1", TRL_EXPERIMENTAL_SILENCE="1", TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1")
warnings.filterwarnings("ignore")
import peft.optimizers  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
import trl  # noqa: E402
from datasets import disable_progress_bars, load_dataset  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from trl.experimental.cpo import CPOConfig, CPOTrainer  # noqa: E402

DENSE = ("llama", "qwen3", "gemma3_text", "granite", "olmo2", "phi3", "mistral", "gemma2", "gemma4", "cohere", "cohere2", "glm4",
         "exaone4", "smollm3", "seed_oss", "hunyuan_v1_dense", "ernie4_5", "ministral3")
BALANCED = ("mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss")  # routers have a loss in both
MIXTURES = BALANCED + ("deepseek_v2", "deepseek_v3", "glm4_moe", "ernie4_5_moe", "minimax_m2", "gemma4_moe")
HYBRIDS = ("qwen3_next", "granite4", "granite4_dense", "falcon_h1", "lfm2", "lfm2_moe", "nemotron_h_moe", "qwen3_5", "qwen3_5_moe",
           "gemma3n")
APART = (*HYBRIDS, "gpt_oss")  # packed documents see each other there in TRL without flash attention
ROUTED = MIXTURES + HYBRIDS
FAMILIES = DENSE + ROUTED
SCORED = ("llama", "qwen3", "gemma3_text", "olmo2", "phi3", "mistral", "gemma2", "glm4", "exaone4", "smollm3", "seed_oss",
          "ministral3", "hunyuan_v1_dense", *BALANCED, "deepseek_v2", "deepseek_v3", "qwen3_next", "qwen3_5")  # have a class with a score
METHODS = ("sft", "sft", "sft", "dpo", "dpo", "kto", "cpo", "simpo", "reward")
MIXED = ("sigmoid", "hinge", "ipo", "nca_pair", "bco_pair", "sppo_hard", "apo_zero", "apo_down", "discopop", "sft", "sigmoid_norm")
WORDS = "apple bridge copper delta engine forest garden harbor island jacket kettle ladder meadow needle".split()
TEMPLATE = """{{ bos_token }}{% if tools %}<|start_header_id|>system<|end_header_id|>{% for t in tools %}{{ t.function | tojson }}{% endfor %}\
<|eot_id|>{% endif %}{% for m in messages %}<|start_header_id|>{{ m.role }} {{ mood }}<|end_header_id|>{% for c in m.tool_calls or [] %}\
{{ c.function.name }} {{ c.function.arguments | tojson }}{% endfor %}{{ m.content or "" }}<|eot_id|>{% endfor %}"""
TRAINERS = {"sft": (trl.SFTConfig, trl.SFTTrainer), "dpo": (trl.DPOConfig, trl.DPOTrainer), "kto": (trl.KTOConfig, trl.KTOTrainer),
            "cpo": (CPOConfig, CPOTrainer), "simpo": (CPOConfig, CPOTrainer),
            "reward": (trl.RewardConfig, trl.RewardTrainer)}
OPTIMIZERS = {"sgd": ({"momentum": 0.9}, {"momentum": 0.8, "nesterov": True}, {"momentum": 0.5, "weight_decay": 0.05}),
              "adafactor": ({"eps2": 1e-2, "clip_threshold": 0.5}, {"scale_parameter": True}, {"decay_rate": -0.6, "eps": 1e-20}),
              "adamw_torch": ({"beta1": 0.7}, {"eps": 1e-3, "weight_decay": 0.05})}  # of optim_args

# Times; counts of padding; extremes, which are means of those of batches; signs of differences, which may be of rounding.
NOT_COMPARED = ("runtime", "per_second", "epoch", "num_tokens", "min_reward", "max_reward", "eval_margin", "accurac")


def some(r, share, *values):
    return r.choice(values) if r.random() < share else None


def records(r, method, form, margin=False):
    def text(least, most):
        return " ".join(r.choice(WORDS) for _ in range(r.randint(least, most)))

    def turn(role, least, most):
        return {"role": role, "content": text(least, most)}

    def chat():
        return [turn(("user", "assistant")[i % 2], 1, 6) for i in range(2 * r.randint(1, 2))]

    def tool():
        return {"type": "function", "function": {"name": r.choice(WORDS), "description": text(1, 3)}}

    def ends(answer):
        return answer if chats else answer.removesuffix("<|eot_id|>")

    def called(answer):
        """Of an answer that calls a tool, too."""
        call = {"type": "function", "function": {"name": r.choice(WORDS), "arguments": {"at": text(1, 2), "n": r.randint(0, 9)}}}
        return answer if r.random() < 0.3 else [{"role": "assistant", "content": text(1, 3), "tool_calls": [call]}, turn("tool", 1, 3), *answer]

    chats = form not in ("text", "texts", "tokens")
    rows = []
    for i in range(28):
        ask = chat()[:-1] if chats else text(1, 8)
        answer = (lambda: [turn("assistant", 1, 9)]) if chats else (lambda: " " + text(1, 9) + r.choice(("", "", "<|eot_id|>")))
        if form == "conversations":
            rows.append({form: [{"from": m["role"], "value": m["content"]} for m in chat()]})
        elif form == "tokens":
            ids = [r.randint(5, 200) for _ in range(r.randint(3, 50))]
            rows.append({"input_ids": ids, "labels": [t if r.random() < 0.6 else -100 for t in ids[:-1]] + ids[-1:]})
        elif form == "tools":
            rows.append({"messages": chat(), "tools": [tool() for _ in range(r.randint(0, 2))], "chat_template_kwargs": {"mood": text(0, 2)}})
            if i % 2 or r.random() < 0.5:
                call = {"type": "function", "function": {"name": r.choice(WORDS), "arguments": {"at": text(1, 2), "n": r.randint(0, 9)}}}
                rows[-1]["messages"][1:1] = [{"role": "assistant", "tool_calls": [call]}, turn("tool", 1, 3)]
        elif form in ("messages", "generation"):
            rows.append({"messages": chat()})
        elif method == "sft":
            rows.append({"text": text(1, 20)} if form == "text" else {"prompt": ask, "completion": answer()})
        elif method == "kto":
            rows.append({"prompt": ask, "completion": answer(), "label": i % 3 != 1 if i < 2 else r.random() < 0.5})
        else:
            rows.append({"prompt": ask, "chosen": answer(), "rejected": answer()})
            while ends(rows[-1]["chosen"]) == ends(rows[-1]["rejected"]):
                rows[-1]["rejected"] = answer()
            if form == "implicit":
                ask = rows[-1].pop("prompt")
                rows[-1] = {k: ask + v for k, v in rows[-1].items()}
            if method == "reward" and margin:
                rows[-1]["margin"] = r.randint(0, 4) / 2
        if form == "calls":
            rows[-1].update({k: called(v) if isinstance(v, list) and k != "prompt" else v for k, v in rows[-1].items()},
                            tools=[tool() for _ in range(r.randint(0, 2))], chat_template_kwargs={"mood": text(0, 2)})
    return rows


def balance_of(r, family):
    """TRL's argument: its trainers train the routers' loss unless it is 0."""
    return {"router_aux_loss_coef": r.choice((0.0, 0.1)) if family in BALANCED else 0.0} if family in ROUTED else {}


def balance_keys(args):
    coef = args.get("router_aux_loss_coef")
    return {"model_config": {"output_router_logits": True, "router_aux_loss_coef": coef}} if coef else {}


def saves(r, args, family):
    """When checkpoints are written, and evaluations made; of a run that ends with its best evaluation that is said."""
    if "load_best_model_at_end" in args:
        return {"save_total_limit": r.choice((2, 99))}  # with 1, transformers removes all but the best one at the end
    if family in ROUTED:
        return {}
    more = r.choice(({}, {"save_strategy": "steps", "save_steps": r.choice((1, 2, 3, 0.4))}, {"save_strategy": "epoch"}))
    if "eval_steps" in args:
        one = args["per_device_eval_batch_size"] == 8
        at = r.choice(({}, {"eval_strategy": "epoch", "eval_steps": None}, {"eval_steps": 0.3}, {"eval_steps": 3})) if one else {}
        best = {"save_strategy": "best", "metric_for_best_model": "loss", "save_steps": None, "learning_rate": 1e-2}
        more = {**at, **(best if one and r.random() < 0.3 else more)}
    return {**more, "save_total_limit": r.choice((1, 2, 99))} if "save_strategy" in more else more


def draw(r, models, only, families):
    """Method, family, the arguments of TRL's configuration, our keys, form and records, and whether an adapter trains."""
    method = only or r.choice(METHODS)
    family = r.choice([f for f in families if method != "reward" or f in SCORED] or families)
    form = r.choice({"sft": ("messages", "generation", "text", "texts", "chats", "conversations", "tokens", "tools", "calls"),
                     "dpo": ("texts", "chats", "implicit", "calls"), "reward": ("texts", "chats", "implicit"), "kto": ("texts", "chats", "calls")}.get(method, ("texts", "chats")))
    args = {"per_device_train_batch_size": r.choice((1, 2, 3)) * (2 if method == "kto" else 1),
            "gradient_accumulation_steps": r.choice((1, 1, 2)) if method in ("sft", "reward", "dpo", "kto") else 1, "learning_rate": r.choice((1e-3, 3e-4)),
            "max_length": r.choice((24, 40, 200) if method == "sft" else (55, 75, 200)) if form != "generation" and method not in ("cpo", "simpo") else 200, "logging_steps": 1, "seed": r.randint(0, 99),
            "lr_scheduler_type": r.choice(("linear", "cosine", "constant", "constant_with_warmup", "polynomial", "inverse_sqrt")),
            "warmup_steps": r.choice((0, 0, 1, 2)), "weight_decay": r.choice((0.0, 0.0, 0.1)),
            "max_grad_norm": r.choice((1.0, 0.05, 0.0)), "optim": r.choice(("adamw_torch", "adamw_torch", "sgd", "adafactor")),
            "adam_beta1": r.choice((0.9, 0.8)), "adam_beta2": r.choice((0.999, 0.95)), "adam_epsilon": r.choice((1e-8, 1e-6))}
    schedule = some(r, 0.3, ("cosine_with_min_lr", {"min_lr_rate": 0.1}), ("cosine_with_min_lr", {"min_lr": 1e-4}),
                    ("cosine_with_restarts", {"num_cycles": 2}), ("polynomial", {"power": 2.0, "lr_end": 1e-5}),
                    ("warmup_stable_decay", {"num_decay_steps": 3}),
                    ("warmup_stable_decay", {"num_decay_steps": 3, "decay_type": "cosine", "min_lr_ratio": 0.2}))
    if schedule:
        args["lr_scheduler_type"], args["lr_scheduler_kwargs"] = schedule
    if family in ROUTED or r.random() < 0.5:  # rounding sends a token to another expert sooner or later
        args["max_steps"] = r.choice((3, 5))
    else:
        args["num_train_epochs"] = r.choice((1, 2, 0.7)) if args["per_device_train_batch_size"] > 1 else 0.7
    keys = {"micro_batch_size": args["per_device_train_batch_size"], "sequence_len": args["max_length"], "float32": True,
            "curriculum_sampling": True, "shuffle_merged_datasets": False, "excess_length_strategy": "truncate",
            "min_sample_len": 1, "save_strategy": "no", "optimizer": args["optim"], "lr_scheduler": args["lr_scheduler_type"],
            "num_epochs": args.get("num_train_epochs", 99), "base_model": os.path.join(models, family), "device": "cpu", "loss_watchdog_threshold": 1e9,
            **{k: args.get(k) for k in ("gradient_accumulation_steps", "learning_rate", "logging_steps", "seed", "warmup_steps",
                                    "lr_scheduler_kwargs", "weight_decay", "max_grad_norm", "adam_beta1", "adam_beta2", "adam_epsilon")},
            **({"max_steps": args["max_steps"]} if "max_steps" in args else {})}
    data = {"path": "rows.jsonl"}
    if method == "sft":
        if form == "generation":
            args["assistant_only_loss"] = data["train_on_generation"] = True
            if r.random() < 0.5:
                data["type"] = "chat_template"
        if form == "conversations":
            data.update(field_messages=form, message_property_mappings={"role": "from", "content": "value"})
        if form in ("texts", "chats") and r.random() < 0.3:
            args["completion_only_loss"], keys["train_on_inputs"] = False, True
        if form in ("tools", "calls") and r.random() < 0.4:
            keys["chat_template_jinja"] = args["chat_template_path"] = os.path.join(models, "tools.jinja")
        if r.random() < 0.4 and family not in APART:
            args.update(packing=True, packing_strategy=r.choice(("bfd", "bfd_split", "wrapped")))
            keys.update(sample_packing=True, packing_strategy=args["packing_strategy"], excess_length_strategy=None)
        if r.random() < 0.2:
            args["dataloader_drop_last"] = keys["dataloader_drop_last"] = True
        if r.random() < 0.15:
            args["loss_type"], keys["use_dynamic_finetuning"] = "dft", True  # not in our evaluations
        elif r.random() < 0.2:
            args["own_loss"] = r.choice(({"z_loss_coef": 0.01}, {"use_eaft": True, "eaft_k": 8, "eaft_alpha": 1.5}, {"use_eaft": True}))
            keys.update(args["own_loss"])
        elif r.random() < 0.15:
            args["label_smoothing_factor"] = keys["label_smoothing"] = 0.1
    else:
        keys["rl"] = method
        if method == "reward":
            del keys["rl"], keys["excess_length_strategy"]
            keys["reward_model"] = True
            args["center_rewards_coefficient"] = keys["center_rewards_coefficient"] = some(r, 0.4, 0.01)
        else:
            args["beta"] = keys["rl_beta"] = r.choice((0.1, 0.5))
        if method == "dpo":  # aot, aot_unpaired: refused
            loss = some(r, 0.8, ["ipo"], ["hinge"], ["robust"], ["exo_pair"], ["nca_pair"], ["bco_pair"], ["sppo_hard"], ["apo_zero"],
                        ["apo_down"], ["discopop"], ["sft"], ["sigmoid_norm"], r.sample(MIXED, 2), r.sample(MIXED, 3), ["sigmoid", "sft"])
            if loss:
                args["loss_type"] = keys["dpo_loss_type"] = loss
                if len(loss) > 1:
                    args["loss_weights"] = keys["dpo_loss_weights"] = [r.choice((0.7, 0.3, 1.5)) for _ in loss]
                if "sft" in loss:  # a mean over a micro-batch's tokens
                    args["gradient_accumulation_steps"] = keys["gradient_accumulation_steps"] = 1
            args["label_smoothing"] = keys["dpo_label_smoothing"] = 0.1 if loss in (["robust"], ["exo_pair"]) else None
            args["ld_alpha"] = keys["ld_alpha"] = some(r, 0.2, 0.5)
        if method == "kto":
            args["loss_type"] = keys["kto_loss_type"] = "apo_zero_unpaired"  # kto's estimate of the divergence is of other pairs
            args["desirable_weight"] = keys["kto_desirable_weight"] = some(r, 0.4, 0.7)
            args["undesirable_weight"] = keys["kto_undesirable_weight"] = some(r, 0.4, 1.3)
        if method == "cpo":
            args["cpo_alpha"] = keys["cpo_alpha"] = some(r, 0.5, 0.5)
        if method == "simpo":
            args.update(loss_type="simpo", cpo_alpha=0.0)
            keys["cpo_alpha"] = 0.0
            args["simpo_gamma"] = keys["simpo_gamma"] = some(r, 0.5, 0.3)
    keys["datasets"] = r.choice(([data], [data], [{**data, "path": "first.jsonl"}, {**data, "path": "rest.jsonl"}],
                                 [{**data, "split": "train[:5]"}, {**data, "split": "train[5:]"}]))
    if method != "sft" and args["max_length"] < 200:  # batches of fewer answers, of whose means those of TRL are
        args["gradient_accumulation_steps"] = keys["gradient_accumulation_steps"] = 1
    if method == "reward" and args["max_length"] < 200:
        pass
    elif r.random() < 0.5 and args.get("loss_type") != "dft" and "own_loss" not in args:
        batch = r.choice((2, 8))  # of 8 there is one, so that its mean is that of all records
        if "label_smoothing_factor" in args or "dataloader_drop_last" in args:  # not in our evaluations
            batch = 2
        args.update(eval_strategy="steps", eval_steps=2, per_device_eval_batch_size=batch, eval_on_start=True)
        keys.update(eval_steps=2, eval_batch_size=batch, test_datasets=r.choice(([{"path": "evals.jsonl"}], [{"path": "evals.jsonl", "split": "train[:1]"}, {"path": "evals.jsonl", "split": "train[1:]"}])))
        keys["test_datasets"] = [{**data, **d} for d in keys["test_datasets"]]
        if batch == 8 and family not in ROUTED and r.random() < 0.5:  # evaluations choose; transformers does not load a best mixture's experts
            choices = {"dpo": ("loss", "eval_rewards/margins", "rewards/accuracies"), "sft": ("loss", "eval_loss")}.get(method, ("loss",))
            args.update(load_best_model_at_end=True, metric_for_best_model=r.choice(choices), save_strategy="steps", save_steps=2,
                        greater_is_better=some(r, 0.3, True, False), learning_rate=1e-2)
            keys.update({k: args[k] for k in ("load_best_model_at_end", "metric_for_best_model", "save_strategy", "save_steps", "greater_is_better", "learning_rate")})
            keys["early_stopping_patience"] = some(r, 0.7, 1, 2)
        if args.get("packing"):
            args["eval_packing"] = keys["eval_sample_packing"] = r.random() < 0.5 and "dataloader_drop_last" not in args
    for key, value in saves(r, args, family).items():
        args[key] = keys[key] = value
    keys["gradient_checkpointing"] = some(r, 0.5, True, False)
    if "max_steps" in args and method == "sft" and r.random() < 0.2:
        keys["streaming"] = True
    if method != "reward":
        args.update(balance_of(r, family))
        keys.update(balance_keys(args))
    adapter = r.random() < 0.3 and (method != "reward" or family not in ROUTED)
    if not adapter and method != "reward" and r.random() < 0.2:
        keys["unfrozen_parameters"] = r.choice(([".*layers.1."], [".*norm"], [".*layers.0.", ".*norm"], [".*embed"]))
    if family in ROUTED and not adapter:
        args["weight_decay"] = keys["weight_decay"] = 0.0
        if args["optim"] == "adafactor":
            args["optim"] = keys["optimizer"] = "adamw_torch"
    if args.get("router_aux_loss_coef") and "own_loss" in args:
        args["router_aux_loss_coef"] = 0.0
        del keys["model_config"]
    if args.get("router_aux_loss_coef") and "label_smoothing_factor" in args:
        args["label_smoothing_factor"] = keys["label_smoothing"] = None  # with which TRL leaves the routers' loss out
    if args.get("router_aux_loss_coef"):
        args["gradient_accumulation_steps"] = keys["gradient_accumulation_steps"] = 1
    if r.random() < 0.25 and args["optim"] in OPTIMIZERS:
        args["optim_args"] = keys["optim_args"] = r.choice([o for o in OPTIMIZERS[args["optim"]] if adapter or family not in ROUTED or "weight_decay" not in o])
    elif adapter and args["optim"] == "adamw_torch" and r.random() < 0.3:
        args["loraplus"] = keys["loraplus_lr_ratio"] = r.choice((2, 4, 16))
        args["weight_decay"] = keys["weight_decay"] = None
    drop = [k for k, v in args.items() if v is None]
    for k in drop:
        del args[k]
    return method, family, args, {k: v for k, v in keys.items() if v is not None}, form, records(r, method, form, r.random() < 0.5), adapter


def make_tokenizer(r, goldens, folder, method, form):
    """Of one of the models, perhaps with one of TRL's chat templates, or without a token that pads, which CPOTrainer needs."""
    def read(path):
        with open(path, encoding="utf-8") as f:
            return f.read()

    source = os.path.join(goldens, "models", r.choice(("llama", "mistral", "qwen3")))
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors", "golden*", "config.json"))
    config = json.loads(read(os.path.join(source, "tokenizer_config.json")))
    if r.random() < 0.7:
        templates = os.path.join(os.path.dirname(trl.__file__), "chat_templates")
        ending = "_training.jinja" if form == "generation" else ".jinja"
        texts = {n: read(os.path.join(templates, n)) for n in sorted(os.listdir(templates)) if n.endswith(ending)}
        name = r.choice([n for n, text in texts.items() if "image" not in text])
        config.update(chat_template=texts[name], template_name=name)
        with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8") as f:
            f.write(texts[name])
    if r.random() < 0.3 and method not in ("cpo", "simpo"):
        config.pop("pad_token")
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=1)
    return folder


def loss_of(own):
    """The loss of a step's labeled tokens with a term of their log-sum-exp, or weights by the entropy of the likeliest."""
    def compute(outputs, labels, num_items_in_batch=None):
        logits, labels = outputs.logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten()
        logits, labels = logits[labels != -100], labels[labels != -100]
        loss = torch.nn.functional.cross_entropy(logits, labels, reduction="none") + own.get("z_loss_coef", 0.0) * logits.logsumexp(-1) ** 2
        if "use_eaft" in own:
            p = logits.detach().topk(own.get("eaft_k", 20)).values.softmax(-1)
            loss = loss * (-(p * (p + 1e-10).log()).sum(-1)) ** own.get("eaft_alpha", 1.0)
        return loss.sum() / num_items_in_batch
    return compute


def use_options(t, args, options, ratio):
    """Options of optimizers that transformers' arguments lack; LoRA+ as PEFT makes it."""
    betas = {"betas": (args["adam_beta1"], args["adam_beta2"]), "eps": args["adam_epsilon"]}
    if ratio:
        t.optimizer = peft.optimizers.create_loraplus_optimizer(t.model, torch.optim.AdamW, lr=args["learning_rate"], loraplus_lr_ratio=ratio, **betas)
    if not options:
        return
    own = {k: v for k, v in options.items() if k != "weight_decay"}
    if args["optim"] == "adamw_torch":
        kind, own = torch.optim.AdamW, {"betas": (own.get("beta1", args["adam_beta1"]), args["adam_beta2"]), "eps": own.get("eps", args["adam_epsilon"])}
    elif args["optim"] == "adafactor":
        kind, eps = transformers.optimization.Adafactor, (own.pop("eps", 1e-30), own.pop("eps2", 1e-3))
        own = {"scale_parameter": False, "relative_step": False, "eps": eps, **own}
    else:
        kind = torch.optim.SGD
    t.get_optimizer_cls_and_kwargs = lambda *_: (kind, {"lr": args["learning_rate"], **own})


def by_trl(method, args, base, adapter, folder, data, evals, reward_base, unfrozen, patience, dress):
    config, trainer = TRAINERS[method]
    args = {"save_strategy": "no", **args}
    options, ratio = args.pop("optim_args", {}), args.pop("loraplus", None)
    own_loss = args.pop("own_loss", None)
    args["weight_decay"] = options.get("weight_decay", args.get("weight_decay", 0.0))
    if method in ("cpo", "simpo"):
        args.setdefault("max_completion_length", args["max_length"])
        balance = args.pop("router_aux_loss_coef", None)
    c = config(output_dir=os.path.join(folder, "trl"), report_to=[], use_cpu=True, bf16=False,
               train_sampling_strategy="sequential", gradient_checkpointing=False, disable_tqdm=True, log_level="error", **args)
    tokenizer = transformers.AutoTokenizer.from_pretrained(dress)
    if reward_base:
        model = transformers.AutoModelForSequenceClassification.from_pretrained(reward_base, dtype=torch.float32)
    else:
        model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, experts_implementation="eager")
    if method in ("cpo", "simpo") and balance:
        model.config.output_router_logits, model.config.router_aux_loss_coef = True, balance
    if adapter:
        model = peft.PeftModel.from_pretrained(model, adapter, is_trainable=True)
    for name, p in model.named_parameters():
        p.requires_grad_(p.requires_grad and any(re.match(u, name) for u in unfrozen))
    more = {"eval_dataset": evals} if "per_device_eval_batch_size" in args else {}
    if method in ("dpo", "kto") and not adapter:
        more["ref_model"] = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, experts_implementation="eager")
    if own_loss:
        more["compute_loss_func"] = loss_of(own_loss)
    t = trainer(model=model, args=c, processing_class=tokenizer, train_dataset=data, **more)
    use_options(t, args, options, ratio)
    t.remove_callback(transformers.PrinterCallback)
    if patience:
        t.add_callback(transformers.EarlyStoppingCallback(patience))
    t.train()
    t.save_model(os.path.join(folder, "trl"))
    return t.state.log_history


def by_axtrain(axtrain, keys, folder, adapter, resumed=False):
    """What became of the run, and its metrics; or of one that goes on from another's checkpoint."""
    for name in ("datasets", "test_datasets"):
        for d in keys.get(name, ()):
            d["path"] = os.path.join(folder, d["path"])
    if adapter:
        keys.update(adapter="lora", lora_model_dir=adapter)
    def run(name, **more):
        with open(os.path.join(folder, name + ".yaml"), "w", encoding="utf-8") as f:
            json.dump({**keys, "output_dir": os.path.join(folder, name), **more}, f, indent=1)
        p = subprocess.run([axtrain, "train", os.path.join(folder, name + ".yaml")], capture_output=True, text=True, timeout=300)
        if p.returncode:
            return p, []
        with open(os.path.join(folder, name, "metrics.jsonl"), encoding="utf-8") as f:
            return p, [json.loads(line) for line in f]

    if not resumed:
        return run("out")
    p, before = run("first", save_strategy="steps", save_steps=2, save_total_limit=99)
    if p.returncode or max(x["step"] for x in before) < 3:
        return run("out")
    p, after = run("out", resume_from_checkpoint=os.path.join(folder, "first/checkpoint-2"))
    return p, [x for x in before if x["step"] <= 2] + [x for x in after if x["step"] > 2]


def compare(ours, theirs, method, balance=0.0, one_batch=False, micros=1):
    """With several micro-batches, TRL's measures are means of theirs, which have different numbers of tokens, or of answers."""
    means = {"dpo": ("logits",), "kto": ("logits", "logps", "rewards")}.get(method, ()) if micros > 1 else ()
    bad = []
    for kind in ("loss", "eval_loss"):
        a = {x["step"]: x for x in ours if kind in x}
        b = {x["step"]: x for x in theirs if kind in x}
        if sorted(b) != sorted(a):
            bad.append(f"{kind}: at steps {sorted(a)}, in TRL {sorted(b)}")
        for s in sorted(set(a) & set(b))[:10]:  # rounding grows
            for k, v in b[s].items():
                w = a[s].get("moe/aux_loss" if k == "aux_loss" else k)
                if k == "loss" and balance:
                    w += balance * a[s]["moe/aux_loss"]
                if k == "eval_loss" and balance:
                    v -= balance * b[s].get("eval_aux_loss", math.nan)
                if not isinstance(v, (int, float)) or any(x in k for x in NOT_COMPARED):
                    continue
                if k == "grad_norm" and 0 < v < 1e-4:  # rounding, of sides that are equal up to max_length
                    continue
                if w is None or (method in ("cpo", "simpo") and "logits" in k) or k.startswith(means) or (k.startswith("eval_") and "/" in k and not one_batch):
                    continue  # there of prompts, too; there means of batches
                if abs(v - w) > (3e-2 if k.startswith("eval_") and not one_batch else 2e-3) * max(abs(v), 5e-2 if any(x in k for x in ("reward", "logits", "margin")) else 1e-6):
                    bad.append(f"step {s}: {k} is {w}, in TRL {v}")
    return bad


def compare_weights(folder, start, adapter):
    name = "adapter_model.safetensors" if adapter else "model.safetensors"
    a, b = load_file(os.path.join(folder, "out", name)), load_file(os.path.join(folder, "trl", name))
    s = load_file(os.path.join(start, name))
    bad = [f"only in one: {sorted(set(a) ^ set(b))[:3]}"] if (set(a) ^ set(b)) - {"lm_head.weight"} else []
    for k in set(a) & set(b):
        if k.endswith("k_proj.bias"):  # no softmax sees the part that rope does not turn: gradients are rounding
            continue
        moved = (b[k].float() - s[k].float()).norm() if k in s else b[k].float().norm()
        off = (a[k].float() - b[k].float()).norm()
        if off > 0.03 * moved + 1e-6:
            bad.append(f"{k}: off by {off:.3g} of a change of {moved:.3g}")
    return bad


def compare_saves(folder):
    ours, theirs = ({n for n in os.listdir(os.path.join(folder, d)) if n.startswith("checkpoint-")} for d in ("out", "trl"))
    return [f"checkpoints {sorted(ours)}, in TRL {sorted(theirs)}"] if ours != theirs else []


def make_models(axtrain, goldens, work, families):
    """Random weights of tiny models, all with the first one's tokenizer; without longrope, whose factors follow from the
    longest document of a pass, so that passes of other documents have other log-probs."""
    def config_of(family):
        with open(os.path.join(goldens, "models", family, "config.json"), encoding="utf-8") as f:
            config = json.load(f)
        if config.get("rope_parameters", {}).get("rope_type") == "longrope":
            config["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
        return config

    with open(os.path.join(work, "tools.jinja"), "w", encoding="utf-8") as f:
        f.write(TEMPLATE)
    for family in families:
        shape = os.path.join(work, family + "-shape")
        os.makedirs(shape)
        with open(os.path.join(shape, "config.json"), "w", encoding="utf-8") as f:
            json.dump({k: config_of("llama")["vocab_size"] if k.startswith("vocab_size") else 0.0 if k.endswith("dropout") else v
                       for k, v in config_of(family).items()}, f)
        subprocess.run([axtrain, "bench", "step", "--model", shape, "--write-random", os.path.join(work, family)], check=True)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(os.path.join(goldens, "models/llama", name), os.path.join(work, family))


def make_adapter(r, base, folder, seed, scores=False):
    """A new one, or, half of the time, as if it had been trained; of a model that scores with the head, which trains, too. PEFT
    takes a mixture's names of MLPs for those of experts."""
    torch.manual_seed(seed)
    kind = transformers.AutoModelForSequenceClassification if scores else transformers.AutoModelForCausalLM
    m = kind.from_pretrained(base, dtype=torch.float32, **({} if scores else {"experts_implementation": "eager"}))
    experts = sorted({k.split(".", k.count(".") - 1)[-1] for k, p in m.named_parameters() if p.ndim == 3 and "experts." in k})
    names = sorted({k.split(".")[-1] for k, v in m.named_modules() if k.endswith("_proj") and isinstance(v, torch.nn.Linear)} - {"out_proj"})
    if experts:
        names = [n for n in names if n not in ("gate_proj", "up_proj", "down_proj")]
    targets = r.sample(names, min(len(names), 4))
    patterns = {"rank_pattern": {targets[0]: 2}, "alpha_pattern": {targets[-1]: 3, targets[0]: 5}} if r.random() < 0.3 else {}
    if not experts and not scores and r.random() < 0.2:
        patterns["modules_to_save"] = ["embed_tokens"] if r.random() < 0.5 and not m.config.tie_word_embeddings else ["lm_head"]
    m = peft.get_peft_model(m, peft.LoraConfig(r=4, lora_alpha=8, target_modules=targets, task_type="SEQ_CLS" if scores else "CAUSAL_LM", **patterns,
                                               target_parameters=experts if r.random() < 0.5 else None,
                                               use_rslora=r.random() < 0.3, use_dora=not experts and r.random() < 0.2))
    if r.random() < 0.5:
        for name, p in m.named_parameters():
            if "lora_B" in name:
                p.data.normal_(std=0.05)
    m.save_pretrained(folder)
    return folder


def begin(doc, more=lambda p: None):
    """The arguments of such a program, with an absolute path of axtrain; and a folder for its runs. Libraries keep silent."""
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("axtrain", type=os.path.abspath)
    p.add_argument("goldens")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--runs", type=int, default=30)
    p.add_argument("--keep", action="store_true")
    more(p)
    torch.set_num_threads(1)
    disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    return p.parse_args(), tempfile.mkdtemp(prefix="peers-random-")


def end(a, work, different, refused, left_out=0, why="left out"):
    """Says how the runs ended, and removes their folder unless one differed. Returns whether the program failed: also if most said
    nothing."""
    print(f"seed {a.seed}: {a.runs - refused - different - left_out} of {a.runs} runs equal, {different} different, {refused} refused, {left_out} {why}")
    if not different and not a.keep:
        shutil.rmtree(work)
    return different > 0 or 2 * (refused + left_out) > a.runs


def more(families, *methods):
    def add(p):
        p.add_argument("--families", type=lambda s: s.split(","), default=families)
        if methods:
            p.add_argument("--only", choices=methods)
    return add


def main():
    a, work = begin(__doc__, more(FAMILIES, *dict.fromkeys(METHODS)))
    make_models(a.axtrain, a.goldens, work, a.families)
    refused = different = empty = 0
    for i in range(a.runs):
        r = random.Random(f"{a.seed} {i}")
        method, family, args, keys, form, rows, with_adapter = draw(r, work, a.only, a.families)
        folder, base = os.path.join(work, f"run{i}"), os.path.join(work, family)
        os.makedirs(folder)
        for name, part in (("rows", rows[:23 if method == "sft" else 24]), ("evals", rows[24:]), ("first", rows[:9]), ("rest", rows[9:23 if method == "sft" else 24])):
            with open(os.path.join(folder, name + ".jsonl"), "w", encoding="utf-8") as f:
                f.writelines(json.dumps(row) + "\n" for row in part)
        data, evals = (load_dataset("json", data_files=os.path.join(folder, n + ".jsonl"), split="train", cache_dir=os.path.join(folder, "cache"))
                       for n in ("rows", "evals"))
        adapter, start, reward_base, dress = None, base, None, base
        if r.random() < 0.5:
            dress = keys["tokenizer_config"] = make_tokenizer(r, a.goldens, os.path.join(folder, "tokenizer"), method, form)
            args["max_length"] = keys["sequence_len"] = args["max_length"] * (5 if method in ("cpo", "simpo") else r.choice((1, 5)))
        special = {"sft": ("eos_token", "pad_token"), "reward": ("eos_token", "pad_token"), "dpo": ("pad_token",)}.get(method)
        if special and r.random() < 0.2:
            name, tokens = r.choice(special), sorted(transformers.AutoTokenizer.from_pretrained(dress).get_added_vocab())
            args[name] = r.choice(tokens)
            keys["special_tokens"] = {name: args[name]}
        if method == "dpo":
            args["precompute_ref_log_probs"] = r.random() < 0.2
        if method == "reward":
            reward_base = start = os.path.join(folder, "base")
            torch.manual_seed(i)
            m = transformers.AutoModelForSequenceClassification.from_pretrained(base, num_labels=1, dtype=torch.float32)
            tokenizer = transformers.AutoTokenizer.from_pretrained(dress, **keys.get("special_tokens", {}))
            m.config.pad_token_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
            m.save_pretrained(reward_base)
            tokenizer.save_pretrained(reward_base)
            keys["base_model"] = reward_base
        if with_adapter:
            adapter = start = make_adapter(r, reward_base or base, os.path.join(folder, "adapter"), i, method == "reward")
        resumed = r.random() < 0.2 and "load_best_model_at_end" not in keys
        done, ours = by_axtrain(a.axtrain, keys, folder, adapter, resumed)
        try:
            theirs = by_trl(method, args, base, adapter, folder, data, evals, reward_base, keys.get("unfrozen_parameters", [""]),
                            keys.get("early_stopping_patience"), dress)
        except Exception as e:
            theirs = None
            print(f"{folder}: {method} {family}: TRL: {type(e).__name__}: {str(e)[:200]}", flush=True)
        if done.returncode or theirs is None:
            refused += 1
            print(f"{folder}: {method} {family}: {done.returncode} {done.stderr.strip()[-300:]}", flush=True)
            continue
        if any("loss" in x and x["loss"] is None for x in ours):  # no token was trained on: TRL's moments move weights all the same
            empty += 1
            continue
        bad = compare(ours, theirs, method, args.get("router_aux_loss_coef", 0.0), args.get("per_device_eval_batch_size") == 8,
                      args["gradient_accumulation_steps"]) + compare_weights(folder, start, adapter)
        if args.get("save_strategy", "no") != "no" and not resumed:
            bad += compare_saves(folder)
        if bad:
            different += 1
            print(f"{folder}: {method} {family}:", *bad[:7], sep="\n  ", flush=True)
        elif not a.keep:
            shutil.rmtree(folder)
    return end(a, work, different, refused, empty, "with steps without a token")


if __name__ == "__main__":
    sys.exit(main())

"""Whole training runs and evaluations by the reference programs, step by step.

Families, in this order, because later ones read earlier ones: extras (a tokenizer, a teacher), data,
packing, dpo kto orpo cpo reward grpo sft gkd distill (TRL), prm and ppo (trainers that the current
TRL no longer has: each in a process of its own, with an older release before it on the path),
lm_eval. maker/replay.py and maker/ppo.py repeat every run in plain PyTorch.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import tools
import models
import tokenizer
from maker import text

HERE = Path(__file__).resolve().parent
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
LORA = dict(r=4, lora_alpha=8, lora_dropout=0.0, target_modules=LINEARS, task_type="CAUSAL_LM")


class Roots:
    """Paths in case files: `runs/...` is the folder written here, anything
    else lies beside it."""

    def __init__(self, runs):
        self.runs, self.goldens = Path(runs), Path(runs).parent

    def find(self, path):
        p = self.runs / path[5:] if path.startswith("runs/") else self.goldens / path
        if not p.exists():
            raise SystemExit(f"{path} is not there ({p})")
        return str(p)


# --------------------------------------------------------------------------
# what is needed besides the models: a tokenizer for mixtral, a teacher
# --------------------------------------------------------------------------
def small_tokenizer(root):
    """Byte-level BPE of 320 ids, for the models with that vocabulary."""
    root = tools.fresh(root)
    tok = tokenizer.byte_bpe_json(tokenizer.QWEN2_SPLIT, 314, normalizer=False, ignore_merges=False)
    names = ["<|pad|>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>"]
    tok["added_tokens"] = [tokenizer.added(314 + i, n, special=i < 4) for i, n in enumerate(names)]
    tools.save_json(root / "tokenizer.json", tok)
    tools.save_json(root / "tokenizer_config.json", dict(
        tokenizer_class="PreTrainedTokenizerFast", model_max_length=256, clean_up_tokenization_spaces=False,
        add_bos_token=False, eos_token="<|im_end|>", pad_token="<|pad|>", chat_template=tokenizer.CHAT_TEMPLATES["chatml"]))


def tiny_model(root, spec, tokenizer):
    """A random model folder with the tokenizer of another."""
    root = tools.fresh(root)
    models.write_folder(spec, root)
    for f in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (tokenizer / f).exists():
            shutil.copyfile(tokenizer / f, root / f)


TEACHER = models.ModelSpec(
    "teacher", models.common(
        hidden_size=32, intermediate_size=80, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        rms_norm_eps=1e-5, tie_word_embeddings=False, rope_parameters=dict(rope_type="default", rope_theta=10000.0),
        bos_token_id=500, eos_token_id=504, pad_token_id=507),
    "LlamaConfig", seed=151)


def extras(roots):
    small_tokenizer(roots.runs / "models" / "tok320")
    tiny_model(roots.runs / "models" / "teacher", TEACHER, roots.goldens / "models" / "llama")


# --------------------------------------------------------------------------
# rows
# --------------------------------------------------------------------------
def tokenized(roots, rows, tokenizer):
    """Adds completion_ids: without `cut` a completion ends with EOS; with it, it stops after that many tokens."""
    import transformers
    tok = transformers.AutoTokenizer.from_pretrained(roots.find(tokenizer))
    for r in rows:
        ids = [tok(t, add_special_tokens=False)["input_ids"] for t in r["texts"]]
        cut = r.get("cut") or [0] * len(ids)
        r["completion_ids"] = [i[:c] if c else i + [tok.eos_token_id] for i, c in zip(ids, cut)]
    return rows


def student_rows(seed, lex, rows):
    out = []
    for r in text.prompt_completion(seed, lex, rows, True):
        out.append(dict(prompt=r["prompt"], texts=[r["completion"][0]["content"]]))
    return out


def data_files(roots, lex, seed, tokenizers, generations=4):
    """name -> rows.  tokenizers: suffix -> tokenizer folder, for recorded completions."""
    out = {
        "preference_chat": text.preference(seed + 1, lex, 24, True),
        "preference_text": text.preference(seed + 2, lex, 24, False),
        "preference_tail": text.preference(seed + 3, lex, 22, True),
        "preference_implicit": text.preference(seed + 4, lex, 24, True, implicit=True),
        "preference_margin": text.preference(seed + 5, lex, 24, True, margin=True),
        "unpaired_text": text.unpaired(seed + 6, lex, 24, False),
        "unpaired_chat": text.unpaired(seed + 7, lex, 48, True),
        "stepwise": text.stepwise(seed + 8, lex, 24),
        "messages": text.messages(seed + 9, lex, 24),
        "prompt_completion_chat": text.prompt_completion(seed + 10, lex, 24, True),
        "prompt_completion_text": text.prompt_completion(seed + 11, lex, 24, False),
        "text": text.texts(seed + 12, lex, 23),
        "text_packed": text.texts(seed + 13, lex, 60),
    }
    for suffix, folder in tokenizers.items():
        out["rollouts" + suffix] = tokenized(roots, text.rollouts(seed + 20, lex, 12, generations), folder)
        out["rollouts_none" + suffix] = tokenized(roots, text.rollouts(seed + 21, lex, 12, generations, none_rewards=True), folder)
        out["completions" + suffix] = tokenized(roots, student_rows(seed + 22, lex, 24), folder)
    return out


# --------------------------------------------------------------------------
# cases
# --------------------------------------------------------------------------
def dpo_cases(C):
    llama, chat = "models/llama", "data/preference_chat.jsonl"

    def on(name, about="", **args):
        return C("dpo", name, llama, chat, dict(args), about=about, batches="llama_chat")
    return [
        on("sigmoid", beta=0.1),
        C("dpo", "sigmoid_text", llama, "data/preference_text.jsonl", dict(beta=0.1, max_length=72),
          about="plain strings: EOS is appended as text; sequences are cut to their first 72 tokens"),
        on("ipo", beta=0.1, loss_type=["ipo"]),
        on("hinge", beta=0.5, loss_type=["hinge"]),
        on("robust", beta=0.1, loss_type=["robust"], label_smoothing=0.1),
        on("sigmoid_sft", beta=0.1, loss_type=["sigmoid", "sft"], loss_weights=[1.0, 0.5],
           about="what rpo_alpha was: the sum of weighted losses; sft is the token mean over the micro-batch"),
        on("mpo", beta=0.1, loss_type=["sigmoid", "bco_pair", "sft"], loss_weights=[0.8, 0.2, 1.0]),
        on("sigmoid_norm", beta=2.0, loss_type=["sigmoid_norm"]),
        on("apo_zero", beta=0.1, loss_type=["apo_zero"]),
        on("smoothing_ignored", beta=0.1, label_smoothing=0.1,
           about="label_smoothing with the sigmoid loss: TRL ignores it (the same numbers as sigmoid)"),
        on("cosine", beta=0.1, lr_scheduler_type="cosine", weight_decay=0.0, adam_beta2=0.999, max_grad_norm=0.3),
        C("dpo", "tail", llama, "data/preference_tail.jsonl", dict(beta=0.1),
          about="22 rows: the last step has one micro-batch, and its loss is not halved"),
        C("dpo", "lora", llama, chat, dict(beta=0.1, learning_rate=1e-2), lora=LORA, batches="llama_chat",
          about="a new adapter; the reference is the model with the adapter off"),
        C("dpo", "lora_continued", llama, chat, dict(beta=0.1, learning_rate=1e-2), adapter="lora/llama_r4",
          batches="llama_chat",
          about="an adapter that was there: the reference is a frozen copy of it, not the base model"),
        C("dpo", "qwen3", "models/qwen3", chat, dict(beta=0.1), about="tied embeddings, default system turn"),
        C("dpo", "mixtral", "models/mixtral", "data/preference_text.jsonl", dict(beta=0.1),
          tokenizer="runs/models/tok320",
          about="TRL adds router_aux_loss_coef (0.02, from config.json) times the load-balancing loss by itself"),
    ]


def kto_cases(C):
    return [
        C("kto", "kto", "models/llama", "data/unpaired_text.jsonl", dict(beta=0.1)),
        C("kto", "kto_weights", "models/llama", "data/unpaired_chat.jsonl",
          dict(beta=0.2, desirable_weight=1.33, undesirable_weight=0.8, per_device_train_batch_size=4),
          about="batch 4: KL completions are rotated within each four rows"),
        C("kto", "apo_zero_unpaired", "models/llama", "data/unpaired_text.jsonl",
          dict(beta=0.1, loss_type="apo_zero_unpaired"), about="no KL term"),
    ]


def orpo_cases(C):
    return [
        C("orpo", "orpo", "models/llama", "data/preference_implicit.jsonl", dict(beta=0.1),
          about="rows without a prompt column: the prompt is the common part of both conversations"),
        C("orpo", "orpo_text", "models/llama", "data/preference_text.jsonl", dict(beta=0.5, max_length=72)),
        C("orpo", "orpo_qwen3", "models/qwen3", "data/preference_chat.jsonl", dict(beta=0.1),
          about="the template ends turns with a newline after <|im_end|>, so the EOS that is appended is the second"),
    ]


def cpo_cases(C):
    chat = "data/preference_chat.jsonl"
    return [
        C("cpo", "simpo", "models/llama", chat, dict(beta=2.0, loss_type="simpo", simpo_gamma=1.0, cpo_alpha=0.0),
          batches="llama_chat"),
        C("cpo", "cpo", "models/llama", chat, dict(beta=0.1, cpo_alpha=1.0), batches="llama_chat",
          about="sums over tokens, plus the NLL of the chosen completions (token mean over the micro-batch)"),
        C("cpo", "cpo_simpo", "models/llama", chat, dict(beta=2.0, loss_type="simpo", simpo_gamma=0.5, cpo_alpha=0.5,
                                                         label_smoothing=0.1), batches="llama_chat"),
    ]


def reward_cases(C):
    return [
        C("reward", "margin", "models/llama", "data/preference_margin.jsonl",
          dict(center_rewards_coefficient=0.01, learning_rate=3e-3), keep_model="margin_trained", keep_seed=1101,
          about="Bradley-Terry with a margin column and centring"),
        C("reward", "plain", "models/qwen3", "data/preference_text.jsonl", dict(max_length=76, max_steps=5),
          about="no margin, no centring, plain strings; pairs with a side longer than max_length are dropped"),
        C("reward", "pad_is_eos", "models/llama", "data/preference_text.jsonl", dict(pad_token="<|eot_id|>"),
          about="the token that pads ends every text, too: scores are one token earlier"),
    ]


def prm_cases(C):
    return [
        C("prm", "prm", "models/llama", "data/stepwise.jsonl", dict(step_separator="\n", max_length=128),
          keep_model="prm_trained", keep_seed=1102, about="a label on the last token of every step"),
        C("prm", "last_step", "models/llama", "data/stepwise.jsonl",
          dict(step_separator="\n\n", train_on_last_step_only=True)),
    ]


GRPO = dict(per_device_train_batch_size=4, num_generations=4, max_completion_length=64, learning_rate=3e-3)
TWICE = dict(num_iterations=2, warmup_steps=0, learning_rate=3e-4)       # no warm-up: every second pass is off-policy


def grpo_cases(C):
    def on(name, about="", data="data/rollouts.jsonl", model="models/llama", batches="llama", **args):
        return C("grpo", name, model, data, dict(GRPO, **args), about=about, batches=batches)
    return [
        on("grpo", loss_type="grpo"),
        on("bnpo", loss_type="bnpo"),
        on("dr_grpo", loss_type="dr_grpo", scale_rewards="none", max_grad_norm=0.1),
        on("dapo", loss_type="dapo", epsilon_high=0.28),
        on("scale_batch", loss_type="dapo", scale_rewards="batch", reward_weights=[1.0, 0.5]),
        on("gdpo", loss_type="dapo", multi_objective_aggregation="normalize_then_sum", beta=0.04,
           learning_rate=5e-4,
           about="beta: without it, groups of equal rewards have gradients of rounding noise alone"),
        on("none_rewards", loss_type="dapo", data="data/rollouts_none.jsonl", batches="llama_none",
           about="reward functions that return None for some rows, or for all of one kind"),
        on("kl", loss_type="grpo", beta=0.04, learning_rate=5e-4, about="use_bias_correction_kl is on by default: the KL term is multiplied by the ratio, with gradient"),
        on("kl_plain", loss_type="grpo", beta=0.04, learning_rate=5e-4, use_bias_correction_kl=False),
        on("mask_truncated", loss_type="dapo", mask_truncated_completions=True, batches="llama_masked",
           about="completions without EOS: mask all zero; their rows still count for group statistics"),
        on("mask_truncated_grpo", loss_type="grpo", mask_truncated_completions=True, batches="llama_masked",
           about="the same with loss grpo, where masked rows still count in the mean over rows"),
        on("temperature", loss_type="dapo", temperature=0.7, about="log-probs and entropy are of logits / 0.7"),
        on("grpo_it2", loss_type="grpo", **TWICE, batches="llama_it2"),
        on("dapo_it2", loss_type="dapo", **TWICE, epsilon=0.2, epsilon_high=0.28, batches="llama_it2"),
        on("cispo_it2", loss_type="cispo", **TWICE, epsilon_high=1.2, batches="llama_it2",
           about="epsilon_high is the cap on the ratio itself"),
        on("gspo_it2", loss_type="grpo", **dict(TWICE, learning_rate=1e-4),
           importance_sampling_level="sequence", epsilon=0.1, epsilon_high=0.12, batches="llama_it2", about="GSPO: one ratio per sequence"),
        on("luspo_it2", loss_type="luspo", **dict(TWICE, learning_rate=1e-4),
           importance_sampling_level="sequence", epsilon=0.1, epsilon_high=0.12, batches="llama_it2"),
        on("sapo_it2", loss_type="sapo", **TWICE, batches="llama_it2"),
        on("vespo_it2", loss_type="vespo", **dict(TWICE, learning_rate=1e-4), batches="llama_it2"),
        on("delta_it2", loss_type="bnpo", **TWICE, delta=1.5, batches="llama_it2"),
        on("kl_it2", loss_type="dapo", beta=0.04, **TWICE, epsilon_high=0.28, batches="llama_it2"),
        on("steps4", loss_type="dapo", steps_per_generation=4, batches="llama_steps4",
           about="one generation batch of 16 rows feeds two optimizer steps: the second is off-policy"),
        on("entropy_mask", loss_type="dapo", top_entropy_quantile=0.3),
        on("entropy_bonus", loss_type="dapo", entropy_coef=0.01),
        on("qwen3", loss_type="dapo", beta=0.04, model="models/qwen3", data="data/rollouts_qwen3.jsonl",
           batches="qwen3"),
        C("grpo", "mixtral", "models/mixtral", "data/rollouts_320.jsonl", dict(GRPO, loss_type="dapo"),
          tokenizer="runs/models/tok320", about="with the load-balancing loss (router_aux_loss_coef of config.json)"),
        C("grpo", "lora_kl", "models/llama", "data/rollouts.jsonl", dict(GRPO, loss_type="dapo", beta=0.04, learning_rate=1e-2),
          lora=LORA, batches="llama", about="reference = adapter off"),
    ]


def sft_cases(C):
    llama = "models/llama"
    return [
        C("sft", "messages", llama, "data/messages.jsonl", about="every token but the first is trained"),
        C("sft", "text", llama, "data/text.jsonl", dict(max_length=48, per_device_train_batch_size=2),
          about="plain text, cut to 48 tokens; 23 rows: the last micro-batch has one row"),
        C("sft", "completion_text", llama, "data/prompt_completion_text.jsonl", batches="completion_text"),
        C("sft", "completion_chat", llama, "data/prompt_completion_chat.jsonl"),
        C("sft", "whole_text", llama, "data/prompt_completion_text.jsonl", dict(completion_only_loss=False)),
        C("sft", "assistant", llama, "data/messages.jsonl", dict(assistant_only_loss=True),
          about="tokens inside {% generation %}"),
        C("sft", "assistant_qwen3", "models/qwen3", "data/messages.jsonl", dict(assistant_only_loss=True)),
        C("sft", "dft", llama, "data/prompt_completion_text.jsonl", dict(loss_type="dft", max_grad_norm=0.1), batches="completion_text"),
        C("sft", "packed", llama, "data/text_packed.jsonl", dict(packing=True, max_length=192),
          about="bfd: documents are attended one by one, positions restart, no label on a document's first token"),
        C("sft", "mixtral", "models/mixtral", "data/prompt_completion_text.jsonl", tokenizer="runs/models/tok320",
          about="with the load-balancing loss"),
        C("sft", "lora", llama, "data/messages.jsonl", dict(assistant_only_loss=True, learning_rate=1e-2), lora=LORA,
          batches="assistant"),
    ]


def gkd_cases(C):
    def on(name, beta, **args):
        return C("gkd", name, "models/llama", "data/messages.jsonl", dict(beta=beta, lmbda=0.0, **args),
                 teacher="runs/models/teacher", batches="llama")
    return [on("forward_kl", 0.0), on("jsd", 0.3, max_grad_norm=0.1), on("reverse_kl", 1.0)]


def distill_cases(C):
    def on(name, **args):
        return C("distill", name, "models/llama", "data/completions.jsonl", dict(max_completion_length=96, **args),
                 teacher="runs/models/teacher", batches="llama")
    return [on("reverse_kl", beta=1.0), on("forward_kl", beta=0.0), on("jsd_temperature", beta=0.5, temperature=2.0, max_grad_norm=0.05)]


CASES = dict(dpo=dpo_cases, kto=kto_cases, orpo=orpo_cases, cpo=cpo_cases, reward=reward_cases, grpo=grpo_cases,
             sft=sft_cases, gkd=gkd_cases, distill=distill_cases, prm=prm_cases)
OLD_TRL = dict(prm="1.13.0", ppo="1.12.0")           # the last releases that have these trainers
SEED = 1000                                          # of the rows
TOKENIZERS = {"": "models/llama", "_qwen3": "models/qwen3", "_320": "runs/models/tok320"}


def ppo_cases(C):
    return [C("ppo", "models/llama", "runs/reward/margin_trained", "data/rollouts.jsonl", dict(),
              about="two rollout batches of 8, 3 epochs each, 2 micro-batches of 4 per optimizer step; no gradient clipping"),
            C("ppo_k3", "models/llama", "runs/reward/margin_trained", "data/rollouts.jsonl",
              dict(kl_estimator="k3", kl_coef=0.2, missing_eos_penalty=1.0, temperature=1.0, gamma=0.99, lam=0.9,
                   vf_coef=0.5, cliprange=0.1),
              about="the k3 estimator, a penalty for completions without EOS, other settings")]


def lm_runs(tiny, system="You are a careful tutor."):
    """What is evaluated.  tiny: the model whose window is 256."""
    def r(out, task, **kw):
        return dict(out=out, task=task, **({} if tiny else {"max_length": 256 if task == "runs_rolling" else 2048}), **kw)
    return [
        r("mc", "runs_mc"), r("mc_2shot", "runs_mc", shots=2),
        r("gsm8k_0shot", "runs_gsm8k"), r("gsm8k_2shot", "runs_gsm8k", shots=2), r("arith_2shot", "runs_arith", shots=2),
        r("rolling", "runs_rolling"),
        r("mc_chat", "runs_mc", shots=2, chat=True, about="chat template, few-shot examples as turns"),
        r("mc_chat_single", "runs_mc", shots=2, chat=True, multiturn=False, about="chat template, few-shot examples inside one user turn"),
        r("gsm8k_chat", "runs_gsm8k", shots=2, chat=True, system=system)]


# --------------------------------------------------------------------------
# making
# --------------------------------------------------------------------------
# What the tests allow, by family: loss (relative beyond 1), and for all of them the gradient's norm
# (relative), the share of parameters beyond 1e-5, their deviation relative to how far they moved,
# and GRPO's divergence.
LOSS = dict(dpo=3e-5, cpo=1e-5, grpo=2e-5)
LOSS_ELSEWHERE, NORM, SHARE, MOVED, KL = 5e-6, 1e-5, 1e-3, 3e-4, 1e-5
VESPO = dict(loss=1e-4, norm=5e-5)


def check_robust(case, off):
    """A run in which a decision hangs on rounding is no golden: pick another seed or setting."""
    vespo = case.args.get("loss_type") == "vespo"
    loss = VESPO["loss"] if vespo else LOSS.get(case.family, LOSS_ELSEWHERE)
    shares = dict(loss=off["loss"] / loss, norm=off["grad_norm_rel"] / (VESPO["norm"] if vespo else NORM),
                  share=off["params_share_above_1e_5"] / SHARE, moved=off["params_moved_rel"] / MOVED)
    if case.family == "grpo":
        shares["kl"] = off["metrics"].get("kl", 0.0) / KL
    worst = max(shares, key=shares.get)
    if shares[worst] > 0.5:
        sys.exit(f"{case.family}/{case.name}: rounding alone uses up {shares[worst]:.2g} of the tolerance of {worst}")


def make_family(name, roots):
    import torch
    from maker import replay, trl_runs
    folder = tools.fresh(roots.runs / name)
    check = {}
    for case in CASES[name](trl_runs.Case):
        began = time.time()
        rec = trl_runs.run(case, roots, roots.runs)
        rows = trl_runs.read_rows(roots.runs / case.data) if case.family == "grpo" else None
        entry = {}
        for dtype in (torch.float64, torch.float32):
            steps, last = replay.replay(rec, roots, dtype, rows)
            entry[str(dtype)[6:]] = off = replay.compare(rec, steps, last)
            check_robust(case, off)
        check[case.name] = entry
        f = entry["float64"]
        s = rec["info"]["steps"]
        print(f"{name}/{case.name}: loss {s[0]['loss']:.4f} .. {s[-1]['loss']:.4f}, grad norm {s[0]['grad_norm']:.3g} .. "
              f"{s[-1]['grad_norm']:.3g}; off by {f['loss']:.1e} loss, {f['grad_norm_rel']:.1e} norm, "
              f"{max(f['metrics'].values(), default=0):.1e} metrics, {f['params_worst']:.1e} parameters "
              f"({time.time() - began:.1f} s)", flush=True)
        if case.keep_model:
            from maker import scoring
            scoring.write(case, roots, rec)
    tools.save_json(folder / "crosscheck.json", rounded(check))


def make_ppo(roots):
    import torch
    from maker import ppo
    tools.fresh(roots.runs / "ppo")
    check = {}
    for case in ppo_cases(ppo.Case):
        rec = ppo.run(case, roots, roots.runs)
        check[case.name] = {}
        for dtype in (torch.float64, torch.float32):
            got, last = ppo.replay(rec, roots, dtype)
            check[case.name][str(dtype)[6:]] = ppo.compare(rec, got, last)
        print(f"ppo/{case.name}:", rounded(check[case.name]["float64"]), flush=True)
    tools.save_json(roots.runs / "ppo" / "crosscheck.json", rounded(check))


def make_packing(roots):
    """Which document goes into which row, for TRL's three packing strategies."""
    import random
    from datasets import Dataset, disable_caching
    from trl import pack_dataset
    disable_caching()
    rng, out = random.Random(1500), []
    for length, lengths in ((16, [5, 2, 3, 1, 16, 9, 9, 7, 20, 4, 4, 12, 33, 1]),
                            (64, [rng.randint(1, 70) for _ in range(40)]),
                            (8, [8, 8, 8, 1, 7, 2, 6, 3, 5, 4, 4, 0, 9])):
        docs, at = [], 0
        for n in lengths:
            docs.append(list(range(at, at + n)))
            at += n
        for strategy in ("bfd", "bfd_split", "wrapped"):
            packed = pack_dataset(Dataset.from_dict({"input_ids": docs}), length, strategy)
            out.append(dict(seq_length=length, strategy=strategy, lengths=lengths, rows=[list(r) for r in packed["input_ids"]],
                            **({"seq_lengths": [list(r) for r in packed["seq_lengths"]]} if "seq_lengths" in packed.column_names else {})))
    tools.save_json(roots.runs / "packing" / "packing.json", dict(
        about="document k holds the ids start_k, start_k + 1, ... where start_k is the sum of the lengths before it; "
              "rows are what trl.pack_dataset makes of the documents", cases=out))


def rounded(x):
    if isinstance(x, dict):
        return {k: rounded(v) for k, v in x.items()}
    return tools.sig(x) if isinstance(x, float) else x


def make_data(roots):
    from maker import trl_runs
    tools.fresh(roots.runs / "data")
    for name, rows in data_files(roots, text.LEXICON, SEED, TOKENIZERS).items():
        trl_runs.write_rows(roots.runs / "data" / f"{name}.jsonl", rows)


def make_lm_eval(roots, smollm2):
    """smollm2: a transformers folder of SmolLM2-135M-Instruct, or None to evaluate only the tiny model."""
    from maker import lm_eval_runs as le
    le.write_rows(roots, text.LEXICON, 2000, tools.GOLDENS / "runs/lm_eval/rows")
    le.run(roots, "llama", roots.find("models/llama"), lm_runs(True))
    if smollm2:
        le.run(roots, "smollm2", smollm2, lm_runs(False), gap_limit=8)


def in_older_trl(name, out, folder):
    """Make a family in a process that finds another TRL first, folder/VERSION."""
    path = Path(folder).resolve() / OLD_TRL[name]
    if not path.is_dir():
        sys.exit(f"{path}: no such folder; make it with pip install --no-deps --target {path} trl=={path.name}")
    env = dict(os.environ, PYTHONPATH=str(path), PYTHONDONTWRITEBYTECODE="1")
    subprocess.run([sys.executable, str(HERE / "make.py"), "--out", str(out), "--only", f"runs/{name}"],
                   env=env, check=True)


def make(name, out, smollm2=None):
    """Make one family of runs below out/runs."""
    roots = Roots(Path(out).resolve() / "runs")
    roots.runs.mkdir(parents=True, exist_ok=True)
    if name in CASES:
        make_family(name, roots)
    else:
        dict(extras=extras, data=make_data, packing=make_packing, ppo=make_ppo,
             lm_eval=lambda roots: make_lm_eval(roots, smollm2))[name](roots)


FAMILIES = ["extras", "data", "packing", *CASES, "ppo", "lm_eval"]

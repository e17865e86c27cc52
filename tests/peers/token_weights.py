"""Losses with a weight for each token in PyTorch, in float64 from the logits of transformers: EAFT, (−Σ p·log(p + 1e-10))^alpha
of the k largest logits' softmax, and dynamic fine-tuning, p. Two texts, the first step. Prints loss and gradient norm, which
tests/cmd/test_sft.c has.

    python tests/peers/token_weights.py GOLDENS     # build/goldens, which the tests make
"""
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

TEXTS = "one and one are two", "two and two are four of them"
folder = sys.argv[1] + "/models/llama"
model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").double()
tokenizer = AutoTokenizer.from_pretrained(folder)


def eaft(k, alpha):
    def weigh(logits, logp):
        p = torch.topk(logits, k).values.softmax(-1)
        return (-(p * (p + 1e-10).log()).sum(-1)) ** alpha
    return weigh


def run(weigh):
    model.zero_grad()
    total, n = 0, 0
    for text in TEXTS:
        ids = torch.tensor([tokenizer(text)["input_ids"] + [tokenizer.eos_token_id]])
        logits = model(ids).logits[0, :-1]
        logp = logits.log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
        total = total - (weigh(logits.detach(), logp.detach()) * logp).sum()
        n += len(logp)
    loss = total / n
    loss.backward()
    return loss.item(), sum(p.grad.square().sum() for p in model.parameters()).sqrt().item()


for name, weigh in (("eaft_k=20, eaft_alpha=0.5", eaft(20, 0.5)), ("eaft_k=5, eaft_alpha=1.0", eaft(5, 1.0)),
                    ("eaft_k=20, eaft_alpha=0", eaft(20, 0)), ("dynamic fine-tuning", lambda logits, logp: logp.exp())):
    print(f"{name}: loss {run(weigh)[0]:.15f}, norm {run(weigh)[1]:.15f}")

"""Times transformers' generate on a rollout: several samples of each prompt in one batch, prompts included, exactly --new
tokens each. usage: hf_rollout.py MODEL_DIR ROWS.jsonl [--prompts 16] [--samples 8] [--new 128] [--dtype float32]
[--threads 2] [--rounds 2]. Prints one JSON line: new tokens/s of the best round, and the mean length of the prompts."""
import argparse
import json
import resource
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

p = argparse.ArgumentParser()
p.add_argument("model")
p.add_argument("data")
p.add_argument("--prompts", type=int, default=16)
p.add_argument("--samples", type=int, default=8)
p.add_argument("--new", type=int, default=128)
p.add_argument("--dtype", default="float32")
p.add_argument("--threads", type=int, default=2)
p.add_argument("--rounds", type=int, default=2)
a = p.parse_args()
torch.set_num_threads(a.threads)
model = AutoModelForCausalLM.from_pretrained(a.model, dtype=getattr(torch, a.dtype))
tok = AutoTokenizer.from_pretrained(a.model)
tok.padding_side = "left"
tok.pad_token = tok.pad_token or tok.eos_token
with open(a.data) as f:
    rows = [json.loads(line)["messages"][0]["content"] for line in f][: a.prompts]
x = tok(rows, return_tensors="pt", padding=True)
n = a.prompts * a.samples * a.new
best = 0.0
for i in range(a.rounds):
    start = time.time()
    y = model.generate(
        **x, max_new_tokens=a.new, min_new_tokens=a.new, do_sample=True, top_k=0, top_p=1.0, temperature=1.0,
        num_return_sequences=a.samples, pad_token_id=tok.pad_token_id,
    )
    assert y.shape == (a.prompts * a.samples, x["input_ids"].shape[1] + a.new)
    best = max(best, n / (time.time() - start))
print(
    json.dumps(
        {
            "what": "transformers generate", "dtype": a.dtype, "prompts": a.prompts, "samples": a.samples, "new": a.new,
            "prompt_tokens": int(x["attention_mask"].sum()) / a.prompts, "new_tokens_per_second": best,
            "peak_rss_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        }
    )
)

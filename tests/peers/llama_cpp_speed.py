"""Times llama.cpp as `axtrain bench generate` times axtrain: prompts of random tokens, then greedy new ones, best of the
rounds after one to warm up.

usage: llama_cpp_speed.py MODEL.gguf [--batch 1] [--prompt 100] [--new 64] [--rounds 3] [--threads N]

Prints one JSON line. Needs: llama-cpp-python, numpy."""
import argparse
import json
import os
import resource
import time

import llama_cpp as L
import numpy as np

p = argparse.ArgumentParser()
p.add_argument("model")
p.add_argument("--batch", type=int, default=1)
p.add_argument("--prompt", type=int, default=100)
p.add_argument("--new", type=int, default=64)
p.add_argument("--rounds", type=int, default=3)
p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
a = p.parse_args()

quiet = L.llama_log_callback(lambda level, text, data: None)
L.llama_log_set(quiet, None)
L.llama_backend_init()
model = L.llama_model_load_from_file(a.model.encode(), L.llama_model_default_params())
if not model:
    raise SystemExit(f"{a.model}: llama.cpp cannot load it")
options = L.llama_context_default_params()
options.n_seq_max = a.batch
options.n_ctx = a.batch * (a.prompt + a.new)
options.n_batch = a.batch * a.prompt
options.n_threads = options.n_threads_batch = a.threads
context = L.llama_init_from_model(model, options)
vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
batch = L.llama_batch_init(a.batch * a.prompt, 0, 1)


def run(tokens, first):
    """tokens: [sequence][token], from position `first` on; the likeliest next token of each sequence."""
    batch.n_tokens = 0
    last = []
    for s, row in enumerate(tokens):
        for k, token in enumerate(row):
            i = batch.n_tokens
            batch.token[i] = int(token)
            batch.pos[i] = first + k
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = s
            batch.logits[i] = k + 1 == len(row)
            batch.n_tokens += 1
        last.append(batch.n_tokens - 1)
    if L.llama_decode(context, batch) != 0:
        raise SystemExit("llama_decode failed")
    return [np.ctypeslib.as_array(L.llama_get_logits_ith(context, i), shape=(vocab,)).argmax() for i in last]


rng = np.random.default_rng(1)
prefill = decode = 0.0
for turn in range(a.rounds + 1):
    L.llama_memory_clear(L.llama_get_memory(context), True)
    start = time.perf_counter()
    now = run(rng.integers(0, vocab, (a.batch, a.prompt)), 0)
    middle = time.perf_counter()
    for k in range(a.new - 1):
        now = run([[t] for t in now], a.prompt + k)
    end = time.perf_counter()
    if turn > 0:
        prefill = max(prefill, a.batch * a.prompt / (middle - start))
        decode = max(decode, a.batch * (a.new - 1) / (end - middle))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
print(json.dumps({"what": "llama.cpp", "batch": a.batch, "prompt": a.prompt, "new": a.new, "prefill_tok_s": prefill,
                  "decode_tok_s": decode, "peak_rss_gb": peak}))

"""Greedy tokens of a GGUF file of the Llama family, from `axtrain generate` and from PyTorch: float32
on the file's weights as the `gguf` package unpacks them, so a computation that shares no code with
ours. With llama-cpp-python installed its tokens, too, which may differ: for quantised weights it
rounds what goes into a matrix product to blocks of 8 bits.

usage: check_gguf_greedy.py AXTRAIN HF_FOLDER FILE.gguf...

HF_FOLDER is the model that the files were made of: its config.json and tokenizer are used, not its
weights. Exit code 0: ours are PyTorch's; 1: not; 77: skipped, as a package is not installed."""
import json
import subprocess
import sys
import tempfile

try:
    import gguf
    import numpy as np
    import torch
    import transformers
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

PROMPTS = ["The capital of France is", "Once upon a time", "def fibonacci(n):", "Water boils at",
           "My favourite food is"]
TOKENS = 32
NAMES = {"token_embd.": "model.embed_tokens.", "output_norm.": "model.norm.", "output.": "lm_head.",
         "attn_norm.": "input_layernorm.", "attn_q.": "self_attn.q_proj.",
         "attn_k.": "self_attn.k_proj.", "attn_v.": "self_attn.v_proj.",
         "attn_output.": "self_attn.o_proj.", "ffn_norm.": "post_attention_layernorm.",
         "ffn_gate.": "mlp.gate_proj.", "ffn_up.": "mlp.up_proj.", "ffn_down.": "mlp.down_proj."}


def hf_name(name):
    head, rest = "", name
    if name.startswith("blk."):
        _, layer, rest = name.split(".", 2)
        head = f"model.layers.{layer}."
    for theirs, hf in NAMES.items():
        if rest.startswith(theirs):
            return head + hf + rest[len(theirs):]
    raise SystemExit(f"{name}: a tensor of another family")


def rotary_halves(w, heads):
    """Rows of each head: pairs → halves side by side."""
    return w.reshape(heads, w.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(w.shape)


def load(folder, path):
    config = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    rotary = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    missing = set(model.state_dict()) - ({"lm_head.weight"} if config.tie_word_embeddings else set())
    own = model.state_dict()
    types = {}
    for t in gguf.GGUFReader(path).tensors:
        name = hf_name(t.name)
        types[t.tensor_type.name] = types.get(t.tensor_type.name, 0) + 1
        v = gguf.quants.dequantize(t.data, t.tensor_type)
        for part, heads in rotary.items():
            if part in name:
                v = rotary_halves(v, heads)
        own[name].copy_(torch.from_numpy(np.array(v, dtype=np.float32)).reshape(own[name].shape))
        missing.discard(name)
    if missing:
        raise SystemExit(f"{path}: tensors missing: {sorted(missing)[:3]}")
    return model, types


def greedy(model, tokenizer):
    out = []
    for p in PROMPTS:
        ids = tokenizer(p, add_special_tokens=False, return_tensors="pt")["input_ids"]
        got = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False,
                             max_new_tokens=TOKENS, pad_token_id=0)[0, ids.shape[1]:].tolist()
        out.append(text_of(tokenizer, got))
    return out


def text_of(tokenizer, ids):
    """The text, and how many tokens it is, the end included."""
    return tokenizer.decode(ids, skip_special_tokens=True,
                            clean_up_tokenization_spaces=False), len(ids)


def ours(axtrain, path):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
        f.writelines(json.dumps({"prompt": p}) + "\n" for p in PROMPTS)
        f.flush()
        r = subprocess.run([axtrain, "generate", "--model", path, "--input", f.name, "--json",
                            "--dtype", "float32", "--temperature", "0", "--max-new-tokens",
                            str(TOKENS), "--threads", "2"], capture_output=True, text=True)
    if r.returncode:
        raise SystemExit(r.stderr)
    answers = [json.loads(line) for line in r.stdout.splitlines()]
    return [(a["text"], a["tokens"]) for a in answers]


def llama_cpp(path, tokenizer):
    try:
        from llama_cpp import Llama
    except ImportError:
        return None
    m = Llama(path, n_ctx=512, n_threads=2, n_threads_batch=2, verbose=False)
    out = []
    for p in PROMPTS:
        m.reset()
        got = []
        for t in m.generate(m.tokenize(p.encode(), add_bos=False, special=True), temp=0.0, top_k=1,
                            repeat_penalty=1.0):
            got.append(t)
            if t == m.token_eos() or len(got) == TOKENS:
                break
        out.append(text_of(tokenizer, got))
    return out


def compare(what, a, b):
    equal = sum(x == y for x, y in zip(a, b, strict=True))
    print(f"  {what}: {equal} of {len(a)} equal", flush=True)
    for x, y in zip(a, b):
        if x != y:
            at = next((i for i, (u, v) in enumerate(zip(x[0], y[0])) if u != v), 0)
            print(f"    apart after {x[0][:at]!r}: {x[0][at:at + 20]!r}, {y[0][at:at + 20]!r}")
    return equal == len(a)


def main():
    axtrain, folder, paths = sys.argv[1], sys.argv[2], sys.argv[3:]
    torch.set_num_threads(2)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    bad = 0
    for path in paths:
        model, types = load(folder, path)
        model.generation_config.eos_token_id = tokenizer.eos_token_id
        print(f"{path}: {types}, {len(PROMPTS)} prompts, {TOKENS} tokens")
        a, b = ours(axtrain, path), greedy(model, tokenizer)
        bad += not compare("axtrain, PyTorch in float32", a, b)
        c = llama_cpp(path, tokenizer)
        if c is not None:
            compare("axtrain, llama.cpp", a, c)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())

"""The golden models of all families as GGUF files: llama.cpp's greedy tokens are transformers'.

usage: check_gguf_families.py AXTRAIN GOLDENS [MODEL...]   (needs xllamacpp; GOLDENS: build/goldens, which the tests make)

Exit code 0: all equal; 1: not; 77: skipped, as the package is not installed."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

try:
    import xllamacpp
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

MODELS = ["llama", "llama_bias", "mixtral", "qwen3", "qwen3_moe", "qwen2_moe", "gemma2",
          "gemma3_text", "granite", "olmo2", "glm4", "glm4_moe", "deepseek_v3", "deepseek_v3_mtp",
          "mimo_v2_flash", "ministral3", "falcon_h1", "nemotron_h", "nemotron_h_moe", "granite4",
          "kimi_linear", "lfm2", "lfm2_moe", "gemma4", "gemma4_moe", "minimax_m2", "seed_oss",
          "hunyuan_v1_dense", "ernie4_5_moe", "cohere"]


def tokenizer(n):
    """Of n ids, all of them letters: llama.cpp holds back tokens that end within a character."""
    tokens = [f"t{i}" for i in range(n)]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": None, "post_processor": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                              "use_regex": True},
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                        "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None,
                      "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {t: i for i, t in enumerate(tokens)}, "merges": []}}


def convert(axtrain, source, folder):
    copy, path = f"{folder}/hf", f"{folder}/model.gguf"
    os.mkdir(copy)
    for name in ["config.json", "generation_config.json", "model.safetensors"]:
        shutil.copy(f"{source}/{name}", copy)
    with open(f"{copy}/config.json", encoding="utf-8") as f:
        vocab = json.load(f)["vocab_size"]
    with open(f"{copy}/tokenizer.json", "w", encoding="utf-8") as f:
        json.dump(tokenizer(vocab), f)
    r = subprocess.run([axtrain, "convert", copy, path, "--to", "gguf", "--quant", "f32"],
                       capture_output=True, text=True)
    if r.returncode:
        raise SystemExit(r.stderr)
    return path


def server(path):
    p = xllamacpp.CommonParams()
    p.model.path = path
    p.n_ctx = 256
    p.n_parallel = 1
    p.n_gpu_layers = 0
    p.warmup = False
    p.cache_type_k = p.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    p.cpuparams.n_threads = 1
    p.verbosity = -1
    return xllamacpp.Server(p)


def greedy(s, prompt, want, ends):
    """Greedy tokens and log-probs. llama.cpp stops at an end without telling its log-prob; then the
    wanted one, if it is an end, is taken and generation goes on."""
    ids, logprobs = [], []
    while len(ids) < len(want):
        r = s.handle_completions({"prompt": prompt + ids, "n_predict": len(want) - len(ids),
                                  "temperature": 0, "logprobs": 1, "cache_prompt": False})
        r = json.loads(r) if isinstance(r, str) else r
        stopped = r["choices"][0]["finish_reason"] == "stop"
        for t in r["choices"][0]["logprobs"]["content"]:
            if not stopped or t["id"] not in ends:
                ids.append(t["id"])
                logprobs.append(t["logprob"])
        if len(ids) < len(want):
            if not stopped or want[len(ids)] not in ends:
                break
            ids.append(want[len(ids)])
            logprobs.append(None)
    return ids, logprobs


def check(axtrain, source):
    with tempfile.TemporaryDirectory() as folder:
        s = server(convert(axtrain, source, folder))
        with open(f"{source}/config.json", encoding="utf-8") as f:
            eos = json.load(f).get("eos_token_id")
        ends = {11} if eos is None else set(eos if isinstance(eos, list) else [eos])
        with open(f"{source}/golden/generate.json", encoding="utf-8") as f:
            cases = json.load(f)["cases"]
        equal, off = 0, 0.0
        for c in cases:
            ids, logprobs = greedy(s, c["prompt"], c["tokens"], ends)
            equal += ids == c["tokens"]
            if ids == c["tokens"]:
                off = max([off] + [abs(a - b) for a, b in zip(logprobs, c["logprobs"]) if a])
            else:
                print(f"  {ids}\n  {c['tokens']}")
        return equal, len(cases), off


def main():
    axtrain = sys.argv[1]
    goldens = sys.argv[2]
    bad = 0
    for name in sys.argv[3:] or MODELS:
        equal, n, off = check(axtrain, f"{goldens}/models/{name}")
        print(f"{name}: {equal} of {n} prompts have transformers' tokens, log-probs within "
              f"{off:.1g}", flush=True)
        bad += equal < n
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())

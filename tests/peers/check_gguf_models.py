"""Random models of every kind, written as GGUF by the reference package and converted by us: the
folder must give transformers the logits of the original, and the tokenizer its ids.

usage: check_gguf_models.py AXTRAIN GOLDENS   (needs torch, transformers, gguf; GOLDENS: build/goldens, which the tests make)

Exit code 0: all equal; 1: not; 77: skipped, as a package is not installed."""
import json
import os
import subprocess
import sys
import tempfile
import unicodedata

try:
    import gguf
    import numpy as np
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 256}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
LINEAR = {"rope_type": "linear", "factor": 2.0}
# kind, changes of the config, rope scaling, tensor type; the second Llama has scores, not merges
CASES = [
    ("llama", {}, None, "F32"),
    ("llama", {"tie_word_embeddings": True, "num_key_value_heads": 4}, None, "F16"),
    ("llama", {"attention_bias": True, "mlp_bias": True}, LINEAR, "BF16"),
    ("llama", {"head_dim": 64, "rope_theta": 500000.0}, LLAMA3, "Q8_0"),
    ("llama", {}, YARN, "Q4_0"),
    ("qwen2", {"rope_theta": 1000000.0}, None, "Q5_1"),
    ("qwen2", {"tie_word_embeddings": True}, YARN, "F32"),
    ("qwen3", {"head_dim": 64}, None, "Q4_1"),
    ("qwen3", {"tie_word_embeddings": True}, LINEAR, "Q5_0"),
]
NAMES = {"model.embed_tokens.": "token_embd.", "model.norm.": "output_norm.", "lm_head.": "output.",
         "input_layernorm.": "attn_norm.", "self_attn.q_proj.": "attn_q.",
         "self_attn.k_proj.": "attn_k.", "self_attn.v_proj.": "attn_v.",
         "self_attn.o_proj.": "attn_output.", "self_attn.q_norm.": "attn_q_norm.",
         "self_attn.k_norm.": "attn_k_norm.", "post_attention_layernorm.": "ffn_norm.",
         "mlp.gate_proj.": "ffn_gate.", "mlp.up_proj.": "ffn_up.", "mlp.down_proj.": "ffn_down.",
         "model.layers.": "blk."}


def config_of(kind, changes, rope):
    base = dict(vocab_size=512, hidden_size=256, intermediate_size=512, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
                rms_norm_eps=1e-5, tie_word_embeddings=False, bos_token_id=None, eos_token_id=5,
                pad_token_id=None, rope_theta=10000.0)
    if kind == "qwen3":
        base["head_dim"] = 64
    base.update(changes)
    if rope:
        base["rope_scaling"] = dict(rope)
    return transformers.AutoConfig.for_model(kind, **base)


def rotary_pairs(w, heads):
    """Rows of each head: halves side by side → pairs."""
    shape = w.shape
    return (w.reshape(heads, 2, shape[0] // heads // 2, -1).transpose(0, 2, 1, 3)
            .reshape(shape))


def gguf_name(name):
    for hf, ours in NAMES.items():
        name = name.replace(hf, ours)
    return name


def rope_factors(config, inv_freq):
    """What the converter of llama.cpp stores: plain frequency / scaled frequency."""
    theta = (getattr(config, "rope_parameters", None) or {}).get("rope_theta") or config.rope_theta
    dim = inv_freq.numel() * 2
    plain = 1.0 / theta ** (torch.arange(0, dim, 2).float() / dim)
    return (plain / inv_freq).numpy().astype(np.float32)


def write_gguf(path, kind, model, changes, rope, tensor_type, goldens):
    """Returns the values that the file holds, by HF name."""
    config = model.config
    w = gguf.GGUFWriter(path, kind)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    w.add_block_count(config.num_hidden_layers)
    w.add_context_length(config.max_position_embeddings)
    w.add_embedding_length(config.hidden_size)
    w.add_feed_forward_length(config.intermediate_size)
    w.add_head_count(config.num_attention_heads)
    w.add_head_count_kv(config.num_key_value_heads)
    w.add_layer_norm_rms_eps(config.rms_norm_eps)
    w.add_rope_freq_base(changes.get("rope_theta", 10000.0))
    w.add_rope_dimension_count(head_dim)
    if head_dim != config.hidden_size // config.num_attention_heads:
        w.add_key_length(head_dim)
        w.add_value_length(head_dim)
    if rope and rope["rope_type"] != "llama3":
        w.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        w.add_rope_scaling_factor(rope["factor"])
        if "original_max_position_embeddings" in rope:
            w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    add_vocab(w, vocab_name(kind, config), goldens)
    if rope and rope["rope_type"] == "llama3":
        w.add_tensor("rope_freqs.weight", rope_factors(config, model.model.rotary_emb.inv_freq))
    quant = gguf.GGMLQuantizationType[tensor_type]
    stored = {}
    for name, value in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        v = value.float().numpy()
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        rotary = [n for key, n in heads.items() if key in name and kind == "llama"]
        kept = v
        data = rotary_pairs(v, rotary[0]) if rotary else v
        if v.ndim == 2:
            packed = gguf.quants.quantize(np.ascontiguousarray(data), quant)
            w.add_tensor(gguf_name(name), packed, raw_dtype=quant)
            # rows are quantized each by itself, so their order does not matter
            kept = gguf.quants.dequantize(gguf.quants.quantize(v, quant), quant)
        else:
            w.add_tensor(gguf_name(name), np.ascontiguousarray(data.astype(np.float32)))
        stored[name] = torch.from_numpy(np.ascontiguousarray(kept.reshape(v.shape)).copy())
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return stored


def vocab_name(kind, config):
    if kind != "llama":
        return "qwen2_style"
    return "sp_bpe_legacy" if config.tie_word_embeddings else "llama3_style"


def add_vocab(w, name, goldens):
    with open(f"{goldens}/tokenizer/{name}/tokenizer.json", encoding="utf-8") as f:
        t = json.load(f)
    merges = [m if isinstance(m, str) else " ".join(m) for m in t["model"]["merges"]]
    tokens = {i: s for s, i in t["model"]["vocab"].items()}
    types = {i: gguf.TokenType.NORMAL for i in tokens}
    for a in t["added_tokens"]:
        tokens[a["id"]] = a["content"]
        types[a["id"]] = gguf.TokenType.CONTROL if a["special"] else gguf.TokenType.USER_DEFINED
    ids = sorted(tokens)
    assert ids == list(range(512))
    w.add_token_list([tokens[i] for i in ids])
    w.add_eos_token_id(5)
    if name.startswith("sp_"):
        rank = {m.replace(" ", "", 1): i for i, m in enumerate(merges)}
        w.add_tokenizer_model("llama")
        w.add_token_scores([-float(rank.get(tokens[i], 0)) for i in ids])
        types.update({i: gguf.TokenType.BYTE for i in ids if tokens[i].startswith("<0x")})
        w.add_bos_token_id(1)
        w.add_unk_token_id(0)
    else:
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre("qwen2" if name == "qwen2_style" else "llama-bpe")
        w.add_token_merges(merges)
        w.add_add_bos_token(False)
    w.add_token_types([types[i] for i in ids])


def check_tokenizer(folder, name, goldens):
    """Ids and decoded text of the golden cases whose text has none of what GGUF cannot say: normal
    forms, and tokens that eat blanks."""
    with open(f"{goldens}/tokenizer/{name}/cases.json", encoding="utf-8") as f:
        cases = json.load(f)["cases"]
    with open(f"{goldens}/tokenizer/{name}/tokenizer.json", encoding="utf-8") as f:
        odd = [a["content"] for a in json.load(f)["added_tokens"]
               if a["lstrip"] or a["rstrip"] or a["single_word"] or a["normalized"]]
    tok = AutoTokenizer.from_pretrained(folder)
    tried = wrong = 0
    for c in cases:
        if any(o in c["text"] for o in odd):
            continue
        if name == "qwen2_style" and unicodedata.normalize("NFC", c["text"]) != c["text"]:
            continue
        tried += 1
        wrong += tok(c["text"], add_special_tokens=False)["input_ids"] != c["ids"]
        wrong += name.startswith("sp_") and tok(c["text"])["input_ids"] != c["ids_special"]
        wrong += tok.decode(c["ids"], clean_up_tokenization_spaces=False) != c["decoded"]
    return tried, wrong


def run(axtrain, goldens, kind, changes, rope, tensor_type):
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        model = AutoModelForCausalLM.from_config(config_of(kind, changes, rope)).eval()
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(torch.randn_like(p) * 0.05 + (1.0 if "norm" in name else 0.0))
        stored = write_gguf(f"{tmp}/m.gguf", kind, model, changes, rope, tensor_type, goldens)
        model.load_state_dict(stored, strict=False)
        subprocess.run([axtrain, "convert", f"{tmp}/m.gguf", f"{tmp}/hf", "--to", "hf", "--dtype",
                        "float32"], check=True, stdout=subprocess.DEVNULL)
        got, info = AutoModelForCausalLM.from_pretrained(f"{tmp}/hf", output_loading_info=True)
        unequal = [n for n, v in got.state_dict().items()
                   if n in stored and not torch.equal(v, stored[n])]
        ids = torch.randint(0, 512, (2, 300))
        with torch.no_grad():
            off = (got.eval()(ids).logits - model(ids).logits).abs().max().item()
        tried, wrong = check_tokenizer(f"{tmp}/hf", vocab_name(kind, got.config), goldens)
        ok = not unequal and off < 1e-5 and not any(info.values()) and wrong == 0
        print(f"{'ok    ' if ok else 'DIFFER'} {kind} {tensor_type} {changes} "
              f"{rope['rope_type'] if rope else ''}: {len(stored)} tensors, {len(unequal)} unequal, "
              f"logits {off:.1e}, {tried} texts, {wrong} differ "
              f"{ {k: v for k, v in info.items() if v} or ''}")
        return ok


def main():
    axtrain = os.path.abspath(sys.argv[1])
    goldens = sys.argv[2]
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(2)
    print(f"transformers {transformers.__version__}")
    return 0 if all([run(axtrain, goldens, *case) for case in CASES]) else 1


if __name__ == "__main__":
    sys.exit(main())

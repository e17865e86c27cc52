"""A random Gemma 3n as a GGUF file: llama.cpp's greedy tokens are transformers'.

usage: check_gguf_streams.py AXTRAIN   (needs xllamacpp, torch and transformers)

llama.cpp has the published sizes of streams and per-layer inputs as constants, and knows borrowed keys only after 20
layers; so no small golden will do, and the model is made here.

Exit code 0: all equal; 1: not; 77: skipped, as a package is not installed."""
import json
import os
import sys
import tempfile

import check_gguf_families

try:
    import torch
    from transformers import Gemma3nForCausalLM, Gemma3nTextConfig
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

LAYERS = 22


def random_model():
    """Of which every part matters: norms are not 1, coefficients not 0."""
    torch.manual_seed(3)
    model = Gemma3nForCausalLM(Gemma3nTextConfig(
        vocab_size=128, vocab_size_per_layer_input=100, hidden_size=64,
        hidden_size_per_layer_input=256, intermediate_size=[1024] * LAYERS,
        num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
        sliding_window=10, num_kv_shared_layers=LAYERS - 20, laurel_rank=64,
        max_position_embeddings=256, pad_token_id=0, bos_token_id=None, eos_token_id=None)).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            x = torch.randn_like(p)
            if "norm" in name or "correct_output_scale" in name:
                p.copy_(1 + 0.3 * x)
            elif "coefs" in name:
                p.copy_(0.2 * x)
            elif "modality_router" in name:
                p.copy_(3 * x)
            elif "embed_tokens" in name:
                p.copy_(0.5 * x)
            else:
                p.copy_(x / p.shape[-1] ** 0.5)
    return model


def divide_by_one_less():
    """The variance of gates, as llama.cpp does. In published models, with 16,384 of them, it hardly matters."""
    std = torch.std
    torch.std = lambda *args, **options: std(*args, **{**options, "unbiased": True})


def greedy(model, prompt, n):
    ids, logprobs = list(prompt), []
    with torch.no_grad():
        for _ in range(n):
            row = torch.log_softmax(model(torch.tensor([ids])).logits[0, -1].double(), -1)
            ids.append(int(row.argmax()))
            logprobs.append(float(row.max()))
    return {"prompt": list(prompt), "tokens": ids[len(prompt):], "logprobs": logprobs}


def main():
    model = random_model()
    divide_by_one_less()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        os.mkdir(f"{folder}/golden")
        cases = [greedy(model, torch.randint(1, 128, (n,)).tolist(), 12) for n in (1, 5, 17, 30)]
        with open(f"{folder}/golden/generate.json", "w", encoding="utf-8") as f:
            json.dump({"cases": cases}, f)
        equal, n, off = check_gguf_families.check(sys.argv[1], folder)
    print(f"gemma3n: {equal} of {n} prompts have transformers' tokens, log-probs within {off:.1g}")
    return equal < n


if __name__ == "__main__":
    sys.exit(main())

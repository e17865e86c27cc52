"""PEFT folders in both directions and merges, against the PEFT that is installed.

    cc -I. tests/peers/peft_tool.c build/libaxtrain.a … -o peft_tool   (see tests/peers/hf_tool.c)
    python check_peft.py AXTRAIN PEFT_TOOL SHARED/fixtures/models [WORD…]

For each base model and kind of adapter (those whose name has one of the words, if any are given): PEFT makes one with random weights and writes it with the
logits and the loss it computes; `axtrain check golden` must agree; what we write from it, with a
config of our own, must give PEFT equal tensors and logits; and the folder of `axtrain merge` must
give transformers the same logits. Exit code 0: all equal; 1: not; 77: skipped, PEFT is not here."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
try:
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model
    from safetensors.torch import load_file, save_file
    from transformers import AutoModelForCausalLM
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

SEVEN = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
KINDS = {
    "list": dict(target_modules=SEVEN),
    "all-linear, rslora": dict(target_modules="all-linear", use_rslora=True),
    "regex": dict(target_modules=r"model\.layers\.[01]\.(self_attn\.[qv]_proj|mlp\.down_proj)"),
    "dora": dict(target_modules=SEVEN, use_dora=True),
    "patterns": dict(target_modules=["q_proj", "v_proj", "up_proj"],
                     rank_pattern={"v_proj": 2, r"layers.0.self_attn.q_proj": 7},
                     alpha_pattern={".*up_proj": 3}),
    "layers": dict(target_modules=["k_proj", "o_proj"], layers_to_transform=[1]),
    "excluded": dict(target_modules=SEVEN, exclude_modules=["mlp.up_proj"]),
    "saved": dict(target_modules=["q_proj"], modules_to_save=["embed_tokens", "norm"]),
    "both saved": dict(target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"]),
    "head saved": dict(target_modules=["q_proj"], modules_to_save=["lm_head"]),
}
TOKENS = 23


def loss_of(logits, ids):
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).double(),
                                             ids[:, 1:].flatten())


def make(base, settings, folder, seed):
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager",
                                                 dtype=torch.float32)
    vocab = model.config.vocab_size
    config = LoraConfig(r=4, lora_alpha=6, task_type="CAUSAL_LM", **settings)
    model = get_peft_model(model, config)
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.add_(torch.randn_like(p) * 0.1)
    model.eval()
    ids = torch.randint(0, vocab, (2, TOKENS))
    with torch.no_grad():
        logits = model(input_ids=ids).logits
    model.save_pretrained(folder)
    golden = pathlib.Path(folder) / "golden"
    golden.mkdir()
    whole = dict(input_ids=ids.int(), labels=ids.int(), attention_mask=torch.ones_like(ids).int(),
                 logits=logits)
    save_file(whole, golden / "forward.safetensors")
    (golden / "golden.json").write_text(json.dumps({"loss_mean": loss_of(logits, ids).item()}))
    return ids, logits


def run(*args):
    done = subprocess.run(args, capture_output=True, text=True)
    return done.returncode == 0, (done.stdout + done.stderr).strip()


def check(name, base, settings, axtrain, tool, tmp, seed):
    folder, copy, merged = (str(tmp / d) for d in ("adapter", "copy", "merged"))
    ids, logits = make(base, settings, folder, seed)
    bad = []
    ok, text = run(axtrain, "check", "golden", folder)
    if not ok:
        bad.append(text)
    ok, text = run(tool, "copy", base, folder, copy)
    if not ok:
        bad.append(text)
    else:
        a, b = (load_file(f"{d}/adapter_model.safetensors") for d in (folder, copy))
        if a.keys() != b.keys() or any(not torch.equal(a[k], b[k]) for k in a):
            bad.append(f"tensors differ: {sorted(a.keys() ^ b.keys())[:4]}")
        model = AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager",
                                                     dtype=torch.float32)
        model = PeftModel.from_pretrained(model, copy).eval()
        with torch.no_grad():
            diff = (model(input_ids=ids).logits - logits).abs().max().item()
        if diff != 0:
            bad.append(f"PEFT's logits of our folder differ by {diff:.3g}")
    ok, text = run(axtrain, "merge", base, folder, merged)
    if not ok:
        bad.append(text)
    else:
        model = AutoModelForCausalLM.from_pretrained(merged, attn_implementation="eager").eval()
        with torch.no_grad():
            diff = (model(input_ids=ids).logits - logits).abs().max().item()
        if diff > 1e-4:
            bad.append(f"merged logits differ by {diff:.3g}")
    print(f"{'DIFFER' if bad else 'ok    '} {name}")
    for line in bad:
        print("       " + line.replace("\n", "\n       "))
    return not bad


def main(axtrain, tool, models, *words):
    bad = 0
    for number, base in enumerate(("llama", "qwen3", "mistral")):
        for k, (kind, settings) in enumerate(KINDS.items()):
            if words and not any(w in f"{base}: {kind}" for w in words):
                continue
            with tempfile.TemporaryDirectory() as tmp:
                bad += not check(f"{base}: {kind}", f"{models}/{base}", settings, axtrain, tool,
                                 pathlib.Path(tmp), 100 * number + k)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

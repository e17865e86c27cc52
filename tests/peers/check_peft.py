"""PEFT folders in both directions and merges, against the PEFT that is installed.

    tools/test-peers BUILD_DIR [WORD…]
    python check_peft.py AXTRAIN PEFT_TOOL GOLDENS/models [WORD…]

For each base model and kind of adapter (those whose name has one of the words, if any are given):
PEFT makes one with random weights and writes it with the logits and the loss it computes;
tests/goldens/replay must agree; what we write from it, with a config of our own, must give PEFT
equal tensors and logits; and the folder of `axtrain merge` must give transformers the same logits.
Exit code 0: all equal; 1: not; 77: skipped, PEFT is not here."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
try:
    import numpy as np
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
    "ends": dict(target_modules=["embed_tokens", "lm_head", "q_proj"]),
    "head, rslora": dict(target_modules=r".*(lm_head|up_proj)", use_rslora=True),
}
EXPERTS = {
    "experts": dict(target_modules=["q_proj"], target_parameters=["mlp.experts.gate_up_proj",
                                                                  "mlp.experts.down_proj"]),
    "down, rslora": dict(target_modules=[], target_parameters=["experts.down_proj"],
                         use_rslora=True),
    "gate and up": dict(target_modules=["o_proj"], target_parameters=["experts.gate_up_proj"]),
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
    ok, text = run(pathlib.Path(axtrain).parent / "tests/goldens/replay", folder)
    if not ok:
        bad.append(text)
    ok, text = run(tool, "copy", base, folder, copy)
    if not ok:
        bad.append(text)
    else:
        a, b = (load_file(f"{d}/adapter_model.safetensors") for d in (folder, copy))
        # PEFT repeats the base's matrices beside their adapters, and takes them from the base too
        a = {k: v for k, v in a.items() if not k.endswith(".base_layer.weight")}
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


ROWS = '{"messages": [{"role": "user", "content": "one and one"}, ' \
       '{"role": "assistant", "content": "two"}]}\n'
CONFIG = """base_model: {base}
output_dir: {tmp}/out
dataset_prepared_path: {tmp}/cache
datasets:
  - path: {tmp}/rows.jsonl
    type: chat_template
chat_template: llama3
sequence_len: 64
learning_rate: 1e-12
float32: true
max_steps: 1
micro_batch_size: 1
adapter: lora
lora_r: 6
lora_alpha: 9
lora_target_linear: true
peft_init_lora_weights: pissa
"""


def check_pissa(base, axtrain, tmp):
    """The start we keep, [A; A0] and [B, -B0], has the largest singular values that numpy finds, and
    without a step worth the name PEFT's model with our folder is the base."""
    (tmp / "rows.jsonl").write_text(ROWS * 4)
    (tmp / "c.yaml").write_text(CONFIG.format(base=base, tmp=tmp))
    ok, text = run(axtrain, "sft", str(tmp / "c.yaml"))
    bad = [] if ok else [text]
    worst = 0
    if ok:
        model = AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager",
                                                     dtype=torch.float32).eval()
        ours = load_file(tmp / "out" / "adapter_model.safetensors")
        for name, a in ours.items():
            if not name.endswith(".lora_A.weight"):
                continue
            module = name[len("base_model.model."):-len(".lora_A.weight")]
            b = ours[name.replace("lora_A", "lora_B")]
            want = np.linalg.svd(model.get_submodule(module).weight.double().detach().numpy(),
                                 compute_uv=False)[:6]
            got = 1.5 * a[6:].double().norm(dim=1) * b[:, 6:].double().norm(dim=0)
            worst = max(worst, np.abs(got.numpy() - want).max() / want[0])
        if not 0 < worst < 1e-6:
            bad.append(f"singular values differ by {worst:.3g} of the largest")
        ids = torch.randint(0, model.config.vocab_size, (2, TOKENS))
        with torch.no_grad():
            before = model(input_ids=ids).logits
            after = PeftModel.from_pretrained(model, str(tmp / "out")).eval()(input_ids=ids).logits
        if (after - before).abs().max() > 1e-4:
            bad.append(f"PEFT's logits are not the base's: {(after - before).abs().max():.3g}")
    print(f"{'DIFFER' if bad else 'ok    '} llama: pissa (singular values within {worst:.2g})")
    for line in bad:
        print("       " + line.replace("\n", "\n       "))
    return not bad


def main(axtrain, tool, models, *words):
    bad = 0
    for number, base in enumerate(("llama", "qwen3", "mistral", "mixtral", "qwen3_moe")):
        for k, (kind, settings) in enumerate((EXPERTS if number > 2 else KINDS).items()):
            if words and not any(w in f"{base}: {kind}" for w in words):
                continue
            with tempfile.TemporaryDirectory() as tmp:
                bad += not check(f"{base}: {kind}", f"{models}/{base}", settings, axtrain, tool,
                                 pathlib.Path(tmp), 100 * number + k)
    if not words or "pissa" in words:
        with tempfile.TemporaryDirectory() as tmp:
            bad += not check_pissa(f"{models}/llama", axtrain, pathlib.Path(tmp))
    return bad > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

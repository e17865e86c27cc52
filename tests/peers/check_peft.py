"""PEFT folders in both directions and merges, against the PEFT that is installed.

    tools/test-peers BUILD_DIR [WORD…]
    python check_peft.py AXTRAIN PEFT_TOOL GOLDENS/models [WORD…]

For each base model and kind of adapter (those whose name has one of the words, if any are given):
PEFT makes one with random weights and writes it with the logits and the loss it computes;
tests/goldens/replay must agree; what we write from it, with a config of our own, must give PEFT
equal tensors and logits; and the folder of `axtrain merge` must give transformers the same logits.
Adapters of mixtures that `axtrain sft` writes must load without a warning and compute our logits.
Exit code 0: all equal; 1: not; 77: skipped, PEFT is not here."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

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
# What `axtrain sft` writes for models with experts, which PEFT calls by other names with transformers 5.
TRAINED = {
    "linears": "lora_target_linear: true",
    "linears, dropout": "lora_target_linear: true\nlora_dropout: 0.1",
    "linears, rslora": "lora_target_linear: true\npeft_use_rslora: true",
    "all-linear": "lora_target_modules: all-linear",
    "expression": "lora_target_modules: '.*layers\\.1\\..*(o|up)_proj'",
    "up": "lora_target_modules: [o_proj, up_proj]",
    "layer": "lora_target_modules: [o_proj, down_proj]\npeft_layers_to_transform: [1]",
    "excluded": "lora_target_linear: true\nlora_exclude_modules: '.*layers\\.1.*down_proj|.*o_proj'",
    "linears, experts": "lora_target_linear: true\nlora_target_parameters: "
                        "[mlp.experts.gate_up_proj, mlp.experts.down_proj]",
}
MIXTURES = ("mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3", "glm4_moe", "gpt_oss")
TOKENS = 23


def loss_of(logits, ids):
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).double(),
                                             ids[:, 1:].flatten())


def keep_golden(folder, ids, logits):
    golden = pathlib.Path(folder) / "golden"
    golden.mkdir()
    whole = dict(input_ids=ids.int(), labels=ids.int(), attention_mask=torch.ones_like(ids).int(),
                 logits=logits)
    save_file(whole, golden / "forward.safetensors")
    (golden / "golden.json").write_text(json.dumps({"loss_mean": loss_of(logits, ids).item()}))


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
    keep_golden(folder, ids, logits)
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
tokenizer_config: {tokenizer}
output_dir: {tmp}/out
dataset_prepared_path: {tmp}/cache
datasets:
  - path: {tmp}/rows.jsonl
    type: chat_template
chat_template: llama3
sequence_len: 200
learning_rate: 1e-12
float32: true
max_steps: 1
micro_batch_size: 1
adapter: lora
lora_r: 6
lora_alpha: 9
{more}
"""


def train(base, axtrain, tmp, more, tokenizer=None):
    (tmp / "rows.jsonl").write_text(ROWS * 4)
    (tmp / "c.yaml").write_text(CONFIG.format(base=base, tmp=tmp, more=more, tokenizer=tokenizer or base))
    return run(axtrain, "sft", str(tmp / "c.yaml"))


def write_tokenizer(folder):
    """One of bytes, because the models have few ids."""
    shown = [b for b in range(256) if chr(b).isprintable() and b > 32 and b not in (160, 173)]
    others = [b for b in range(256) if b not in shown]
    vocab = {chr(b): b for b in shown} | {chr(256 + i): b for i, b in enumerate(others)}
    end = dict(id=256, content="<|eot_id|>", single_word=False, lstrip=False, rstrip=False,
               normalized=False, special=True)
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(dict(
        version="1.0", added_tokens=[end], pre_tokenizer=level, decoder=level,
        model=dict(type="BPE", vocab=vocab, merges=[]))))
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(
        tokenizer_class="PreTrainedTokenizerFast", bos_token="<|eot_id|>", eos_token="<|eot_id|>")))


def check_trained(name, base, more, axtrain, tmp, seed):
    """PEFT loads what a training wrote without a warning, and computes our logits."""
    write_tokenizer(tmp / "tokenizer")
    ok, text = train(base, axtrain, tmp, more + "\npeft_init_lora_weights: false", tmp / "tokenizer")
    if not ok and "matches no module" in text:
        return True  # a list's names, where the model has other ones
    bad = [] if ok else [text]
    if ok:
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager",
                                                     dtype=torch.float32)
        ids = torch.randint(0, model.config.vocab_size, (2, TOKENS))
        with warnings.catch_warnings(record=True) as said, torch.no_grad():
            warnings.simplefilter("always")
            before = model(input_ids=ids).logits
            logits = PeftModel.from_pretrained(model, str(tmp / "out")).eval()(input_ids=ids).logits
        bad += [str(w.message) for w in said if issubclass(w.category, (UserWarning, RuntimeWarning))]
        keep_golden(tmp / "out", ids, logits)
        if (logits - before).abs().max() < 0.1:
            bad.append("without an effect")
        ok, text = run(pathlib.Path(axtrain).parent / "tests/goldens/replay", tmp / "out")
        # of the loss, replay asks as training computes it
        if not ok and not ("dropout" in more and "ok    batch logits" in text):
            bad.append(text)
    print(f"{'DIFFER' if bad else 'ok    '} {name}")
    for line in bad:
        print("       " + line.replace("\n", "\n       "))
    return not bad


def check_pissa(base, axtrain, tmp):
    """The start we keep, [A; A0] and [B, -B0], has the largest singular values that numpy finds, and
    without a step worth the name PEFT's model with our folder is the base."""
    ok, text = train(base, axtrain, tmp,
                     "lora_target_linear: true\npeft_init_lora_weights: pissa")
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
    for number, base in enumerate(MIXTURES):
        for k, (kind, more) in enumerate(TRAINED.items()):
            if words and not any(w in f"{base}: trained, {kind}" for w in words):
                continue
            with tempfile.TemporaryDirectory() as tmp:
                bad += not check_trained(f"{base}: trained, {kind}", f"{models}/{base}", more, axtrain,
                                         pathlib.Path(tmp), 1000 + 100 * number + k)
    if not words or "pissa" in words:
        with tempfile.TemporaryDirectory() as tmp:
            bad += not check_pissa(f"{models}/llama", axtrain, pathlib.Path(tmp))
    return bad > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

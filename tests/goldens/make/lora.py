"""lora/: PEFT adapters on models/llama."""

import copy
import dataclasses
import json
import math

from tools import fresh, gen, max_diff, randn, save_json, save_tensors, sig
from models import (build_model, grads_of, make_batch, mean_loss, SPECS, to_checkpoint_names,
                    TRAIN, train_steps)

import torch
from safetensors.torch import load_file


LORA_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@dataclasses.dataclass
class LoraSpec:
    name: str                # folder name
    base: str                # folder under models/
    r: int = 4
    alpha: int = 8
    targets: tuple = tuple(LORA_TARGETS)
    use_rslora: bool = False
    use_dora: bool = False
    train: bool = True       # gradients, optimizer steps and the merge, not only logits
    seq: int = 32            # the batch: two rows, of seq and row1 tokens
    row1: int = 23
    steps: int = 3
    seed: int = 301


LORA_SPECS = [
    LoraSpec("llama_r4", "llama"),
    LoraSpec("llama_r4_rslora", "llama", use_rslora=True, train=False, seq=16, row1=11, seed=302),
    LoraSpec("llama_r4_dora", "llama", use_dora=True, train=False, seq=16, row1=11, seed=303),
]


def adapter_names(named):
    """PEFT module names -> the names PEFT writes to adapter_model.safetensors."""
    return {n.replace(".default", ""): v for n, v in named.items()}


def make_lora(spec, base_model, batch, out):
    from peft import LoraConfig, get_peft_model
    root = fresh(out / "lora" / spec.name)
    cfg = LoraConfig(r=spec.r, lora_alpha=spec.alpha, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM",
                     target_modules=list(spec.targets), use_rslora=spec.use_rslora, use_dora=spec.use_dora)
    model = get_peft_model(copy.deepcopy(base_model), cfg)
    g = gen(spec.seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_A" in name:
                p.copy_(randn(g, *p.shape) / math.sqrt(p.shape[1]))
            elif "lora_B" in name:
                p.copy_(0.1 * randn(g, *p.shape))
            elif "lora_magnitude" in name:
                p.mul_(1 + 0.1 * randn(g, *p.shape))      # as if trained: not the norm of W + BA
    model.eval()

    cfg.base_model_name_or_path = f"../../models/{spec.base}"
    model.save_pretrained(root, save_embedding_layers=False)
    (root / "README.md").unlink(missing_ok=True)
    adapter_cfg = json.loads((root / "adapter_config.json").read_text())
    adapter_cfg["base_model_name_or_path"] = f"../../models/{spec.base}"
    for k, v in adapter_cfg.items():                      # PEFT keeps sets: fix their order
        if isinstance(v, list) and all(isinstance(x, str) for x in v):
            adapter_cfg[k] = sorted(v)
    save_json(root / "adapter_config.json", dict(sorted(adapter_cfg.items())))
    saved = load_file(str(root / "adapter_model.safetensors"))

    trainable = {n: p for n, p in model.named_parameters() if p.requires_grad}
    assert set(adapter_names(trainable)) == {k.replace("lora_magnitude_vector", "lora_magnitude_vector.weight")
                                             if k.endswith("lora_magnitude_vector") else k for k in saved}
    with torch.no_grad():
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False).logits
    tensors = dict(batch, logits=logits * batch["attention_mask"].unsqueeze(-1))
    scaling = spec.alpha / (math.sqrt(spec.r) if spec.use_rslora else spec.r)
    info = dict(base=f"models/{spec.base}", r=spec.r, alpha=spec.alpha, scaling=scaling, seed=spec.seed,
                use_rslora=spec.use_rslora, use_dora=spec.use_dora, trainable=sum(p.numel() for p in trainable.values()),
                loss_mean=mean_loss(model, batch).item())
    gold = root / "golden"
    save_tensors(gold / "forward.safetensors", tensors)

    from peft import PeftModel
    loaded = PeftModel.from_pretrained(copy.deepcopy(base_model), root).eval()
    with torch.no_grad():
        again = loaded(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False).logits
    assert max_diff(again, logits) < 1e-6, spec.name

    merged = copy.deepcopy(model).merge_and_unload()
    with torch.no_grad():
        again = merged(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False).logits
    info["merged_vs_adapter_logits_max_diff"] = sig(max_diff(again, logits))
    if spec.train:
        grads = {n: v for n, v in grads_of(model, mean_loss(model, batch)).items() if n in trainable}
        save_tensors(gold / "grads.safetensors", adapter_names(grads))
        changed = {n: p.detach() for n, p in merged.named_parameters() if n.split(".")[-2] in spec.targets}
        save_tensors(gold / "merged.safetensors", to_checkpoint_names(merged, changed))
        rows, after, kept = train_steps(model, batch, spec.steps, snapshots=(1, spec.steps))
        for step, params in kept.items():
            save_tensors(gold / f"adapter_step{step}.safetensors",
                         adapter_names({n: v for n, v in params.items() if n in trainable}))
        info["train"] = dict(settings=dict(TRAIN, steps=spec.steps), steps=rows, loss_after=after)
    save_json(gold / "golden.json", info)


def family_lora(out, specs=LORA_SPECS, models=SPECS):
    by_name = {s.name: s for s in models}
    for spec in specs:
        base_spec = by_name[spec.base]
        base = build_model(base_spec)
        batch_spec = dataclasses.replace(base_spec, seq=spec.seq, row1=spec.row1)
        batch = make_batch(batch_spec, base.config.vocab_size, gen(base_spec.seed + 5000))
        make_lora(spec, base, batch, out)
        print("lora", spec.name, flush=True)

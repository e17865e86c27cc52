"""Families of models, and settings of them that no golden file of theirs has, against transformers.

    tools/test-peers BUILD_DIR [WORD…]
    python check_families.py AXTRAIN [WORD…]
    python check_families.py --write DIR KIND      # instead: a golden folder to keep

For each kind (those with one of the words in their name, if any are given): transformers makes a tiny
model with random weights, and computes logits, gradients and greedy answers, with which
tests/goldens/replay must agree on cpu and ref; `axtrain sft` trains an adapter of all its linears, with
which PEFT must compute what the folder of `axtrain merge` computes.
Exit code 0: all equal; 1: not; 77: skipped, they are not here."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
try:
    import torch
    import transformers
    from safetensors.torch import save_file
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)
transformers.utils.logging.disable_progress_bar()

SIZE = dict(vocab_size=48, hidden_size=16, intermediate_size=24, num_hidden_layers=4,
            num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
            bos_token_id=1, eos_token_id=2, pad_token_id=0)
TWO = dict(SIZE, num_hidden_layers=2)
MOE = dict(SIZE, moe_intermediate_size=12, num_experts=6, num_experts_per_tok=2)
QWEN2 = dict(MOE, shared_expert_intermediate_size=12, use_sliding_window=True, sliding_window=5)
DEEPSEEK = dict(TWO, moe_intermediate_size=12, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2)
LATENT = dict(num_key_value_heads=2, q_lora_rank=12, kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=8)
GRANITE = dict(TWO, num_local_experts=6, num_experts_per_tok=2, embedding_multiplier=3.0, logits_scaling=2.0,
               residual_multiplier=0.4, attention_multiplier=0.3)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, rope_theta=500000.0)
PLAIN = dict(rope_type="default", rope_theta=500000.0)
KINDS = {  # class, config
    "qwen2_moe_windows": ("Qwen2Moe", dict(QWEN2, max_window_layers=3)),
    "qwen2_moe_window_types": ("Qwen2Moe", dict(QWEN2, layer_types=[
        "full_attention", "sliding_attention", "sliding_attention", "full_attention"])),
    "qwen3_moe_windows": ("Qwen3Moe", dict(MOE, head_dim=16, use_sliding_window=True,
                                           sliding_window=5)),
    "olmo3": ("Olmo3", dict(SIZE, sliding_window=6, rope_parameters=dict(
        full_attention=YARN, sliding_attention=PLAIN))),
    "olmo3_types": ("Olmo3", dict(SIZE, sliding_window=5, attention_bias=True, layer_types=[
        "full_attention", "sliding_attention", "full_attention", "sliding_attention"])),
    "afmoe": ("Afmoe", dict(MOE, head_dim=8, num_shared_experts=2, sliding_window=5, mup_enabled=True, route_scale=1.5)),
    "arcee": ("Arcee", dict(TWO, vocab_size=128)),
    "arcee_biases": ("Arcee", dict(TWO, attention_bias=True, mlp_bias=True)),
    "cwm": ("Cwm", dict(SIZE, head_dim=8, sliding_window=5, num_hidden_layers=5)),
    "dots1": ("Dots1", dict(DEEPSEEK, vocab_size=128, num_key_value_heads=2, sliding_window=None)),
    "dots1_windows": ("Dots1", dict(DEEPSEEK, num_hidden_layers=4, head_dim=8, sliding_window=5, max_window_layers=2,
                                    attention_bias=True)),
    "exaone_moe": ("ExaoneMoe", dict(MOE, sliding_window=5, num_shared_experts=2)),
    "flex_olmo": ("FlexOlmo", dict(TWO, num_experts=6, num_experts_per_tok=2, norm_topk_prob=True)),
    "gemma": ("Gemma", dict(TWO, vocab_size=128, head_dim=16)),
    "glm": ("Glm", dict(TWO, head_dim=8)),
    "glm4_moe_lite": ("Glm4MoeLite", dict(DEEPSEEK, **LATENT)),
    "granitemoe": ("GraniteMoe", dict(GRANITE)),
    "granitemoeshared": ("GraniteMoeShared", dict(GRANITE, shared_intermediate_size=20)),
    "helium": ("Helium", dict(TWO, head_dim=8)),
    "hunyuan_v1_moe": ("HunYuanMoEV1", dict(TWO, head_dim=8, num_experts=6, moe_topk=[2, 2])),
    "hyperclovax": ("HyperCLOVAX", dict(TWO, residual_multiplier=0.5, logits_scaling=0.7, embedding_multiplier=3.0, attention_bias=True)),
    "internlm3": ("InternLM3", dict(TWO, head_dim=8, attention_bias=True, mlp_bias=True)),
    "iquestcoder": ("IQuestCoder", dict(TWO, head_dim=8)),
    "mellum": ("Mellum", dict(MOE, head_dim=8, sliding_window=5, layer_types=[
        "sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        mlp_layer_types=["dense", "sparse", "sparse", "sparse"])),
    "minicpm3": ("MiniCPM3", dict(TWO, **LATENT, dim_model_base=8)),
    "ministral": ("Ministral", dict(SIZE, head_dim=8, sliding_window=5, layer_types=[
        "full_attention", "sliding_attention", "sliding_attention", "full_attention"])),
    "mistral4": ("Mistral4", dict(DEEPSEEK, **LATENT, rope_parameters=dict(
        YARN, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3, original_max_position_embeddings=5))),
    "olmoe": ("Olmoe", dict(TWO, vocab_size=128, num_key_value_heads=2, num_experts=6, num_experts_per_tok=2)),
    "solar_open": ("SolarOpen", dict(DEEPSEEK, head_dim=8, attention_bias=True)),
    "vaultgemma": ("VaultGemma", dict(SIZE, head_dim=16, sliding_window=5, query_pre_attn_scalar=20)),
    "youtu": ("Youtu", dict(TWO, **LATENT)),
}


def auto_class(kind):  # the one that knows it
    return transformers.AutoModelForImageTextToText if kind == "mistral4" else transformers.AutoModelForCausalLM


def build(kind, **more):
    name, config = KINDS[kind]
    torch.manual_seed(11)
    config = getattr(transformers, name + "Config")(**{**config, **more})
    config._attn_implementation = config._experts_implementation = "eager"
    model = auto_class(kind).from_config(config).float().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.1)
        for name, p in model.named_parameters():
            if "norm" in name and kind.startswith("gemma"):  # which GGUF has with 1 added
                p.copy_((p * 1024).round() / 1024)
        for name, b in model.named_buffers():
            if name.endswith("correction_bias"):
                b.add_(torch.randn_like(b) * 0.1)
    return model


MOE_OF_GRANITE = [("moe.router.", "moe.router.layer."), ("moe.experts.gate_up_proj", "moe.input_linear.weight"),
                  ("moe.experts.down_proj", "moe.output_linear.weight")]
FILES = {  # names in a model and in its files, where they differ, by model_type
    "granitemoe": MOE_OF_GRANITE, "granitemoeshared": MOE_OF_GRANITE,
}
WHOLE = {"mistral4"}  # whose files have a layer's experts in one tensor, too, under its name


def separate(name, t, model_type):
    """Gradients of experts in one tensor, by the names of the files."""
    for mine, file in FILES.get(model_type, []):
        name = name.replace(mine, file)
    base = name.rsplit("experts.", 1)[0] + "experts"
    if model_type in WHOLE:
        yield name, t
    elif name.endswith("experts.gate_up_proj"):
        for e in range(t.shape[0]):
            yield from zip((f"{base}.{e}.gate_proj.weight", f"{base}.{e}.up_proj.weight"), t[e].chunk(2))
    elif name.endswith("experts.down_proj"):
        yield from ((f"{base}.{e}.down_proj.weight", t[e]) for e in range(t.shape[0]))
    else:
        yield name, t


def write_golden(model, root):
    vocab = model.config.vocab_size
    g = torch.Generator().manual_seed(3)
    ids = torch.randint(3, vocab, (2, 24), generator=g)
    mask = torch.ones_like(ids)
    mask[1, 17:] = 0
    labels = torch.where(mask > 0, ids, -100)
    labels[:, :4] = -100
    out = model(input_ids=ids, attention_mask=mask)
    logp = out.logits.log_softmax(-1)[:, :-1]
    target = labels[:, 1:]
    nll = -logp.gather(-1, target.clamp(min=0)[..., None])[..., 0] * (target >= 0)
    (nll.sum() / (target >= 0).sum()).backward()
    (root / "golden").mkdir()
    save_file({"input_ids": ids.int(), "attention_mask": mask.int(), "labels": labels.int(),
               "logits": (out.logits.detach() * mask[..., None]).contiguous(),
               "token_nll": nll.detach().contiguous()}, root / "golden/forward.safetensors")
    grads = {n: t.contiguous() for name, p in model.named_parameters() if p.grad is not None
             for n, t in separate(name, p.grad, model.config.model_type)}
    save_file({n: t.clone() for n, t in grads.items()}, root / "golden/grads.safetensors")
    norm = sum(float(t.double().square().sum()) for t in grads.values()) ** 0.5
    (root / "golden/golden.json").write_text(json.dumps(dict(batch=dict(
        loss_mean=float(nll.sum() / (target >= 0).sum()), grad_norm=norm))))
    cases = []
    for n in (1, 5, 14):
        prompt = ids[0, :n][None]
        with torch.no_grad():
            tokens, logprobs = [], []
            for _ in range(16):
                row = model(input_ids=prompt).logits[0, -1].log_softmax(-1)
                tokens.append(int(row.argmax()))
                logprobs.append(float(row.max()))
                prompt = torch.cat([prompt, torch.tensor([[tokens[-1]]])], 1)
        cases.append(dict(prompt=ids[0, :n].tolist(), tokens=tokens, logprobs=logprobs))
    (root / "golden/generate.json").write_text(json.dumps(dict(cases=cases)))


def write(root, kind):
    model = build(kind)
    model.save_pretrained(root)
    (root / "generation_config.json").unlink(missing_ok=True)
    write_golden(model, root)


def check(axtrain, kind):
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch) / kind
        write(root, kind)
        replay = pathlib.Path(axtrain).parent / "tests/goldens/replay"
        for backend in ("cpu", "ref"):
            p = subprocess.run([replay, root, "--backend", backend],
                               capture_output=True, text=True)
            if p.returncode:
                return p.stdout + p.stderr
            checks = [l for l in p.stdout.splitlines() if " tolerance " in l]
            if len(checks) < 4:
                return f"only {len(checks)} checks were made:\n" + p.stdout
            print(f"{kind} {backend}: {len(checks)} checks")
    return None


def check_adapter(axtrain, kind):
    import check_wrapped as runs  # which needs `separate`
    from peft import PeftModel
    cls = auto_class(kind)
    with tempfile.TemporaryDirectory() as scratch:
        base, lora, merged = (pathlib.Path(scratch) / n for n in ("base", "lora", "merged"))
        model = build(kind, vocab_size=512, eos_token_id=504)
        model.save_pretrained(base)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(pathlib.Path(__file__).parents[1] / "goldens/models/llama" / name, base)
        runs.train(axtrain, base, lora, adapter="lora", lora_r=4, lora_alpha=32, lora_target_linear="true")
        runs.run(axtrain, "merge", base, lora, merged)
        ours = runs.logits_of(runs.load(cls, merged))
        theirs = runs.logits_of(PeftModel.from_pretrained(runs.load(cls, base), lora).eval())
        learned, apart = runs.apart(theirs, runs.logits_of(model)), runs.apart(theirs, ours)
    if learned < 1e-3 or apart > runs.LIMIT:
        return f"the adapter changed logits by {learned:.2g}, and merged they are {apart:.2g} apart from PEFT's"
    print(f"{kind} adapter: merged within {apart:.2g}")
    return None


def main():
    if sys.argv[1] == "--write":
        write(pathlib.Path(sys.argv[2]), sys.argv[3])
        return 0
    bad = 0
    for kind in KINDS:
        if sys.argv[2:] and not any(w in kind for w in sys.argv[2:]):
            continue
        problem = check(sys.argv[1], kind) or check_adapter(sys.argv[1], kind)
        if problem:
            bad += 1
            print(f"{kind}:\n{problem}")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())

"""Families of models, and settings of them that no golden file of theirs has, against transformers.

    tools/test-peers BUILD_DIR [WORD…]
    python check_families.py AXTRAIN [WORD…]
    python check_families.py --write DIR KIND      # instead: a golden folder to keep

For each kind (those with one of the words in their name, if any are given): transformers makes a tiny
model with random weights, and computes logits, gradients and greedy answers, with which
tests/goldens/replay must agree on cpu and ref.
Exit code 0: all equal; 1: not; 77: skipped, they are not here."""
import json
import os
import pathlib
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
MOE = dict(SIZE, moe_intermediate_size=12, num_experts=6, num_experts_per_tok=2)
QWEN2 = dict(MOE, shared_expert_intermediate_size=12, use_sliding_window=True, sliding_window=5)
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
}


def build(kind):
    name, config = KINDS[kind]
    torch.manual_seed(11)
    config = getattr(transformers, name + "Config")(**config)
    config._attn_implementation = config._experts_implementation = "eager"
    model = getattr(transformers, name + "ForCausalLM")(config).float().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    return model


def separate(name, t):
    """Gradients of experts in one tensor, by the names of the files."""
    base = name.rsplit("experts.", 1)[0] + "experts"
    if name.endswith("experts.gate_up_proj"):
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
             for n, t in separate(name, p.grad)}
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


def main():
    if sys.argv[1] == "--write":
        write(pathlib.Path(sys.argv[2]), sys.argv[3])
        return 0
    bad = 0
    for kind in KINDS:
        if sys.argv[2:] and not any(w in kind for w in sys.argv[2:]):
            continue
        problem = check(sys.argv[1], kind)
        if problem:
            bad += 1
            print(f"{kind}:\n{problem}")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())

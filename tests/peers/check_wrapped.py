"""Models with a vision tower, against transformers and PEFT.

    tools/test-peers BUILD_DIR [WORD…]
    python check_wrapped.py AXTRAIN GOLDENS/models [WORD…]

For each class (those whose model_type has one of the words, if any are given): transformers makes a
tiny model with random weights, saves it in one file or several and computes logits and gradients on
text, with which tests/goldens/replay must agree; what `axtrain sft` trains must load there with no
tensor missing or left over, the tower bit for bit and its config as it was; PEFT must load the adapter
of another run, and the folder of `axtrain merge` must give the same logits as it.
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
    from peft import PeftModel
    from safetensors.torch import load_file, save_file
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)
from check_families import separate

transformers.utils.logging.disable_progress_bar()

TEXT = dict(vocab_size=512, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
            bos_token_id=1, eos_token_id=504, pad_token_id=0)  # EOS of the tokenizer, to which training aligns it
MROPE = dict(rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[2, 3, 3]))
VIT = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
           image_size=28, patch_size=14)
CLIP = dict(VIT, model_type="clip_vision_model", projection_dim=32, vocab_size=99)
QWEN = dict(image_token_id=511, video_token_id=510, vision_start_token_id=509,
            vision_end_token_id=508)
QWEN3_VIT = dict(depth=2, hidden_size=32, intermediate_size=48, num_heads=2, out_hidden_size=64, patch_size=14,
                 num_position_embeddings=16, deepstack_visual_indexes=[0, 1])
GLM_VIT = dict(depth=2, hidden_size=32, intermediate_size=48, num_heads=2, out_hidden_size=64, image_size=28, patch_size=14)
GLM = dict(image_token_id=511, video_token_id=510, image_start_token_id=509, image_end_token_id=508, video_start_token_id=507,
           video_end_token_id=506)
PART = dict(rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[1, 1, 2], partial_rotary_factor=0.5))
EXPERTS = dict(moe_intermediate_size=24, num_experts_per_tok=2)
DEEPSEEK = dict(EXPERTS, n_routed_experts=6, n_shared_experts=1, first_k_dense_replace=1)
KINDS = {
    "exaone4_5": ("Exaone4_5_", dict(TEXT, model_type="exaone4", sliding_window=6),
                  dict(depth=2, hidden_size=32, intermediate_size=48, num_heads=2, num_key_value_heads=1, out_hidden_size=64,
                       patch_size=14, fullatt_block_indexes=[1]), dict(image_token_id=511, video_token_id=510)),
    "gemma3": ("Gemma3", dict(TEXT, head_dim=16, sliding_window=6, query_pre_attn_scalar=20,
                              sliding_window_pattern=2), dict(VIT, model_type="siglip_vision_model"),
               dict(mm_tokens_per_image=4, image_token_index=511)),
    "glm46v": ("Glm46V", dict(TEXT, model_type="glm4v_text", **PART), dict(GLM_VIT, model_type="glm4v_vision"), GLM),
    "glm4v": ("Glm4v", dict(TEXT, **PART), GLM_VIT, GLM),
    "glm4v_moe": ("Glm4vMoe", dict(TEXT, head_dim=16, **PART, **DEEPSEEK), GLM_VIT, GLM),
    "lfm2_vl": ("Lfm2Vl", dict(TEXT, model_type="lfm2", layer_types=["conv", "full_attention", "conv"],
                               block_auto_adjust_ff_dim=False),
                dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_patches=16,
                     patch_size=8, model_type="siglip2_vision_model"),
                dict(image_token_id=511, projector_hidden_size=48)),
    "llava": ("Llava", dict(TEXT, model_type="llama"), CLIP, dict(image_token_index=511)),
    "llava_next": ("LlavaNext", dict(TEXT, model_type="granite", attention_multiplier=0.3,
                                     embedding_multiplier=2.0), CLIP,
                   dict(image_token_index=511, image_grid_pinpoints=[[28, 28]])),
    "mistral3": ("Mistral3", dict(TEXT, model_type="mistral", head_dim=16, sliding_window=None),
                 dict(VIT, model_type="pixtral", head_dim=16),
                 dict(image_token_index=511, tie_word_embeddings=False)),
    "mistral3_of_4": ("Mistral3", dict(TEXT, **DEEPSEEK, model_type="mistral4", num_key_value_heads=4, q_lora_rank=24,
                                       kv_lora_rank=20, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=16),
                      dict(VIT, model_type="pixtral", head_dim=16), dict(image_token_index=511, tie_word_embeddings=False)),
    "qwen2_5_vl": ("Qwen2_5_VL", dict(TEXT, **MROPE),
                   dict(depth=2, hidden_size=32, intermediate_size=48, num_heads=2,
                        out_hidden_size=64, patch_size=14), QWEN),
    "qwen2_vl": ("Qwen2VL", dict(TEXT, **MROPE),
                 dict(depth=2, embed_dim=32, hidden_size=64, num_heads=2, patch_size=14,
                      mlp_ratio=2), dict(QWEN, tie_word_embeddings=True)),
    "qwen3_vl": ("Qwen3VL", dict(TEXT, head_dim=16, **MROPE),
                 QWEN3_VIT, QWEN),
    "smolvlm": ("SmolVLM", dict(TEXT, model_type="llama"), VIT,
                dict(image_token_id=511, scale_factor=2)),
}
ROWS = [{"text": "one and one is two"}, {"text": "two and two are four"}]
LIMIT = 2e-5  # float32 sums in another order


def build(kind):
    name, text, vision, more = KINDS[kind]
    cls = getattr(transformers, name + "ForConditionalGeneration")
    config = getattr(transformers, name + "Config")(text_config=text, vision_config=vision, **more)
    torch.manual_seed(7)
    model = cls(config).float().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.05)
    return cls, model


def batch():
    g = torch.Generator().manual_seed(3)
    ids = torch.randint(3, 500, (2, 24), generator=g)
    mask = torch.ones_like(ids)
    mask[1, 17:] = 0
    labels = torch.where(mask > 0, ids, -100)
    labels[:, :4] = -100
    return ids, mask, labels


def logits_of(model):
    ids, mask, _ = batch()
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=mask).logits * mask[..., None]


def own_name(name):
    """As a model of its own has it; None for another part's."""
    for part in ("model.language_model.", "model.text_model."):
        if name.startswith(part):
            return "model." + name[len(part):]
    return name if name.startswith("lm_head.") else None


def write_golden(model, root):
    ids, mask, labels = batch()
    out = model(input_ids=ids, attention_mask=mask, labels=labels)
    out.loss.backward()
    grads = {file: t.clone() for n, p in model.named_parameters() if own_name(n) and p.grad is not None
             for file, t in separate(own_name(n), p.grad, model.config.get_text_config().model_type)}
    (root / "golden").mkdir()
    logp = out.logits.detach().log_softmax(-1)[:, :-1]
    target = labels[:, 1:]
    nll = -logp.gather(-1, target.clamp(min=0)[..., None])[..., 0] * (target >= 0)
    save_file({"input_ids": ids.int(), "attention_mask": mask.int(), "labels": labels.int(),
               "logits": (out.logits.detach() * mask[..., None]).contiguous(),
               "token_nll": nll.contiguous()}, root / "golden/forward.safetensors")
    save_file({n: g.contiguous() for n, g in grads.items()}, root / "golden/grads.safetensors")
    norm = sum(float(g.double().square().sum()) for g in grads.values()) ** 0.5
    (root / "golden/golden.json").write_text(json.dumps(dict(batch=dict(
        loss_mean=float(nll.sum() / (target >= 0).sum()), grad_norm=norm))))
    model.zero_grad()


def run(program, *words):
    p = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(f"{program} {' '.join(map(str, words))}: exit code {p.returncode}\n"
                           f"{p.stdout[-2000:]}{p.stderr[-2000:]}")
    return p.stdout


def tensors_of(root):
    all = {}
    for f in sorted(root.glob("model*.safetensors")):
        all.update(load_file(f))
    return all


def train(axtrain, base, out, **more):
    data = base.parent / "rows.jsonl"
    data.write_text("".join(json.dumps(r) + "\n" for r in ROWS))
    keys = dict(base_model=base, output_dir=out, dataset_prepared_path=base.parent / "cache",
                sequence_len=64, learning_rate=1e-2, micro_batch_size=2,
                gradient_accumulation_steps=1, max_steps=2, float32="true", **more)
    text = "".join(f"{k}: {v}\n" for k, v in keys.items())
    config = base.parent / "c.yml"
    config.write_text(text + f"datasets:\n  - path: {data}\n    type: completion\n")
    run(axtrain, "sft", config)


def load(cls, root):
    model, info = cls.from_pretrained(root, dtype=torch.float32, output_loading_info=True)
    bad = {k: v for k, v in info.items() if v}
    assert not bad, f"{root.name}: {bad}"
    return model.eval()


def apart(a, b):
    return float((a - b).abs().max() / a.abs().max())


def check(axtrain, fixtures, kind, shard):
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        base, full, lora, merged = (scratch / n for n in ("base", "full", "lora", "merged"))
        cls, model = build(kind)
        model.save_pretrained(base, max_shard_size=shard)
        write_golden(model, base)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(fixtures / "llama" / name, base)
        (base / "preprocessor_config.json").write_text('{"size":  28}')
        said = run(pathlib.Path(axtrain).parent / "tests/goldens/replay", base)
        assert "logits" in said and "grad" in said, said

        train(axtrain, base, full)
        before, after = tensors_of(base), tensors_of(full)
        assert before.keys() == after.keys()
        changed = {n for n in before if not torch.equal(before[n], after[n])}
        tower = {n for n in before if "vis" in n or "projector" in n or "connector" in n or
                 n == "image_newline"}
        assert changed and not changed & tower and len(tower) > 10, sorted(changed & tower)
        for name in ("config.json", "preprocessor_config.json"):
            assert (base / name).read_bytes() == (full / name).read_bytes(), name
        worst = apart(logits_of(load(cls, full)), logits_of(model))
        assert worst > 1e-3, "nothing was learned"

        train(axtrain, base, lora, adapter="lora", lora_r=4, lora_alpha=32,
              lora_target_linear="true")
        run(axtrain, "merge", base, lora, merged)
        with_lora = PeftModel.from_pretrained(load(cls, base), lora).eval()
        adapted = [n for n, _ in with_lora.named_parameters() if "lora_B" in n]
        assert adapted and all("language_model." in n or "text_model." in n for n in adapted), adapted
        a, b = logits_of(with_lora), logits_of(load(cls, merged))
        assert apart(a, logits_of(model)) > 1e-3, "the adapter does nothing"
        assert apart(a, b) < LIMIT, f"merged: {apart(a, b):.3g}"
        print(f"{kind} ({'in files of ' + shard if shard else 'one file'}): {len(changed)} tensors "
              f"trained, {len(tower)} kept; adapter of {len(adapted)} matrices, merged within "
              f"{apart(a, b):.2g}")


def main():
    axtrain, fixtures, *words = sys.argv[1:]
    failed = 0
    for i, kind in enumerate(KINDS):
        if words and not any(w in kind for w in words):
            continue
        try:
            check(axtrain, pathlib.Path(fixtures), kind, "100KB" if i % 2 else "5GB")
        except (AssertionError, RuntimeError) as e:
            failed += 1
            print(f"{kind}: FAILED: {e}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

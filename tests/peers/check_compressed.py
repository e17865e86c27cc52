"""Folders that `axtrain quantize` writes, in transformers with compressed-tensors: they load, and the mean
NLL of some tokens is what `axtrain eval` says of the folder; layers alone, and with the embedding and the
head.

usage: check_compressed.py AXTRAIN MODEL [SCHEME...]    (MODEL: a small folder in float32)

Of a model with a vision tower, the text model's NLL is compared; its tower must not be quantized to load.

Of families whose experts transformers has only as one tensor, it cannot load a folder with a matrix of each (vLLM does):
there it gets a folder of codes times scales, stacked here, for int8 alone.

compressed-tensors does not load packed codes of an embedding: transformers dequantizes those folders, which
leaves the activations as they are, so with schemes that round them they are not compared. Where activations
are rounded, the last bit of a sum decides some ties. nvfp4 is not compared, as it makes bfloat16 of it.
Exit code 0: all equal; 1: not; 77: skipped, as a library is not installed."""
import json
import os
import re
import subprocess
import sys
import tempfile

SCHEMES = ["int4", "int4-int8", "int8", "int8-int8", "fp8", "fp8-tensor"]
PACKED = ("int4", "int4-int8", "int8")
ROUNDS_INPUTS = ("int4-int8", "int8-int8", "fp8", "fp8-tensor")
# model_type: module of the experts, and the two tensors that transformers has
STACKED = {"gemma4_text": ("experts", "experts.gate_up_proj", "experts.down_proj"),
           "granitemoehybrid": ("block_sparse_moe.experts", "block_sparse_moe.input_linear.weight",
                                "block_sparse_moe.output_linear.weight")}
LIMIT, LIMIT_ROUNDED = 1e-4, 1e-3  # float32 sums in another order


def stacked(folder, dense, names):
    """Writes the folder `dense`: codes times scales, experts as one tensor."""
    import torch
    from safetensors.torch import load_file, save_file

    given = load_file(f"{folder}/model.safetensors")
    values = {n: t for n, t in given.items()
              if not n.endswith((".weight_packed", ".weight_scale", ".weight_shape"))}
    for name in [n.removesuffix("_packed") for n in given if n.endswith(".weight_packed")]:
        values[name] = (given[name + "_packed"].view(torch.uint8).float() - 128) * given[name + "_scale"]
    module, gate_up, down = names
    expert = re.compile(r"(.*layers\.\d+\.)" + re.escape(module) + r"\.0\.gate_proj\.weight")
    for layer in [m[1] for m in map(expert.fullmatch, list(values)) if m]:
        def of(e, what):
            return values.pop(f"{layer}{module}.{e}.{what}_proj.weight")
        n = sum(k.startswith(f"{layer}{module}.") and k.endswith("down_proj.weight") for k in values)
        values[layer + gate_up] = torch.stack([torch.cat([of(e, "gate"), of(e, "up")]) for e in range(n)])
        values[layer + down] = torch.stack([of(e, "down") for e in range(n)])
    os.mkdir(dense)
    save_file(values, f"{dense}/model.safetensors", metadata={"format": "pt"})
    with open(f"{folder}/config.json", encoding="utf-8") as f:
        config = json.load(f)
    del config["quantization_config"]
    with open(f"{dense}/config.json", "w", encoding="utf-8") as f:
        json.dump(config, f)
    return dense


def theirs(folder, ids, dequantize):
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    kw = {"quantization_config": transformers.CompressedTensorsConfig(dequantize=True)} if dequantize else {}
    wrapped = hasattr(transformers.AutoConfig.from_pretrained(folder), "vision_config")
    kind = transformers.AutoModelForImageTextToText if wrapped else transformers.AutoModelForCausalLM
    model = kind.from_pretrained(folder, dtype=torch.float32, **kw)
    t = torch.tensor([ids])
    with torch.no_grad():
        logprobs = torch.log_softmax(model(input_ids=t).logits.double(), -1)
    return -logprobs[0, :-1].gather(-1, t[0, 1:, None]).mean().item()


def ours(axtrain, folder, scratch):
    with open(f"{scratch}/eval.yaml", "w", encoding="utf-8") as f:
        f.write(f"base_model: {folder}\noutput_dir: {scratch}/out\ndatasets: [{{path: {scratch}/ids.jsonl, "
                f"type: }}]\ntest_datasets: [{{path: {scratch}/ids.jsonl, type: }}]\nsequence_len: 64\n"
                "learning_rate: 1e-4\nmicro_batch_size: 1\n")
    said = subprocess.run([axtrain, "eval", "--model", folder, "--config", f"{scratch}/eval.yaml", "--dtype",
                           "float32", "--json"], check=True, capture_output=True, text=True).stdout
    return json.loads(said)["mean_nll"]


def main():
    axtrain, model, schemes = sys.argv[1], sys.argv[2], sys.argv[3:] or SCHEMES
    try:
        import compressed_tensors  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as e:
        print(f"skipped: {e}")
        return 77
    bad = 0
    with open(f"{model}/config.json", encoding="utf-8") as f:
        config = json.load(f)
    text = config.get("text_config", config)
    vocab, names = text["vocab_size"], STACKED.get(text["model_type"])
    if not (text.get("num_experts") or text.get("num_local_experts")):
        names = None
    if names:
        schemes = ["int8"]
    ids = [(7 * i * i + 3 * i) % (vocab - 20) + 1 for i in range(40)]
    with tempfile.TemporaryDirectory() as scratch:
        with open(f"{scratch}/ids.jsonl", "w", encoding="utf-8") as f:
            f.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
        for scheme in schemes:
            for ends in ([], ["--embedding", "--head"]):
                packed = scheme in PACKED and bool(ends)
                if packed and scheme in ROUNDS_INPUTS:
                    continue
                folder = os.path.join(scratch, scheme + "-".join(ends))
                subprocess.run([axtrain, "quantize", model, folder, "--scheme", scheme, *ends], check=True,
                               capture_output=True)
                read = stacked(folder, folder + "-dense", names) if names else folder
                a, b = ours(axtrain, folder, scratch), theirs(read, ids, packed)
                ok = abs(a - b) <= (LIMIT_ROUNDED if scheme in ROUNDS_INPUTS else LIMIT)
                bad += not ok
                print(f"{scheme} {' '.join(ends)}: {a:.6f}, transformers {b:.6f} {'ok' if ok else 'DIFFERS'}")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())

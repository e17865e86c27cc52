"""Folders that `axtrain quantize` writes, in transformers with compressed-tensors: they load, and the mean
NLL of some tokens is what `axtrain eval` says of the folder; layers alone, and with the embedding and the
head.

usage: check_compressed.py AXTRAIN MODEL [SCHEME...]    (MODEL: a small folder in float32)

compressed-tensors does not load packed codes of an embedding: transformers dequantizes those folders, which
leaves the activations as they are, so with schemes that round them they are not compared. Where activations
are rounded, the last bit of a sum decides some ties. nvfp4 is not compared, as it makes bfloat16 of it.
Exit code 0: all equal; 1: not; 77: skipped, as a library is not installed."""
import json
import os
import subprocess
import sys
import tempfile

SCHEMES = ["int4", "int4-int8", "int8", "int8-int8", "fp8", "fp8-tensor"]
ROUNDS_INPUTS = ("int4-int8", "int8-int8", "fp8", "fp8-tensor")
LIMIT, LIMIT_ROUNDED = 1e-4, 1e-3  # float32 sums in another order


def theirs(folder, ids, dequantize):
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    kw = {"quantization_config": transformers.CompressedTensorsConfig(dequantize=True)} if dequantize else {}
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **kw)
    t = torch.tensor([ids])
    with torch.no_grad():
        logprobs = torch.log_softmax(model(t).logits.double(), -1)
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
        vocab = json.load(f)["vocab_size"]
    ids = [(7 * i * i + 3 * i) % (vocab - 20) + 1 for i in range(40)]
    with tempfile.TemporaryDirectory() as scratch:
        with open(f"{scratch}/ids.jsonl", "w", encoding="utf-8") as f:
            f.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
        for scheme in schemes:
            for ends in ([], ["--embedding", "--head"]):
                packed = scheme.startswith("int4") and bool(ends)
                if packed and scheme in ROUNDS_INPUTS:
                    continue
                folder = os.path.join(scratch, scheme + "-".join(ends))
                subprocess.run([axtrain, "quantize", model, folder, "--scheme", scheme, *ends], check=True,
                               capture_output=True)
                a, b = ours(axtrain, folder, scratch), theirs(folder, ids, packed)
                ok = abs(a - b) <= (LIMIT_ROUNDED if scheme in ROUNDS_INPUTS else LIMIT)
                bad += not ok
                print(f"{scheme} {' '.join(ends)}: {a:.6f}, transformers {b:.6f} {'ok' if ok else 'DIFFERS'}")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())

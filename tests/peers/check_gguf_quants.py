"""A model folder written as GGUF in every type: the blocks must be those of the reference package.

usage: check_gguf_quants.py AXTRAIN MODEL_DIR [QUANT …]   (needs numpy, gguf)

F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1: equal to gguf.quants.quantize to the byte. Q3_K, Q4_K,
Q5_K, Q6_K and IQ4_NL, which the package only reads: their values, as it reads them, are as near to the weights as the
scales allow. Exit code 0: all so; 1: not; 77: skipped, as a package is not installed."""
import subprocess
import sys
import tempfile

try:
    import gguf
    import numpy as np
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

QUANTS = ["f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q3_k_m", "q4_k_m", "q5_k_m", "q6_k"]
# root mean square error over that of the weights, for normal weights: half a step and a bit
NEAR = {"Q3_K": 0.16, "Q4_K": 0.085, "Q5_K": 0.04, "Q6_K": 0.022, "IQ4_NL": 0.08}


def write(axtrain, folder, path, quant):
    subprocess.run([axtrain, "convert", folder, path, "--to", "gguf", "--quant", quant, "--overwrite"],
                   check=True, stdout=subprocess.DEVNULL)
    return {t.name: t for t in gguf.GGUFReader(path).tensors}


def check(tensor, weights):
    """What is wrong with a tensor, or None."""
    kind = tensor.tensor_type
    if kind.name in NEAR:
        got = gguf.quants.dequantize(tensor.data, kind).reshape(weights.shape)
        error = np.sqrt(np.square(got - weights).mean() / np.square(weights).mean())
        return f"relative error {error:.4f}" if error > NEAR[kind.name] else None
    want = gguf.quants.quantize(weights, kind)
    same = np.array_equal(want.view(np.uint8).ravel(), np.asarray(tensor.data).view(np.uint8).ravel())
    return None if same else "other bytes than the reference"


def main():
    axtrain, folder, *quants = sys.argv[1:]
    wrong = 0
    with tempfile.TemporaryDirectory() as tmp:
        exact = write(axtrain, folder, f"{tmp}/exact.gguf", "f32")
        for quant in quants or QUANTS:
            kinds = {}
            for name, tensor in write(axtrain, folder, f"{tmp}/other.gguf", quant).items():
                what = check(tensor, np.asarray(exact[name].data, dtype=np.float32))
                kinds[tensor.tensor_type.name] = kinds.get(tensor.tensor_type.name, 0) + 1
                if what:
                    wrong += 1
                    print(f"{quant}: {name} ({tensor.tensor_type.name}): {what}")
            print(quant, " ".join(f"{k} {n}" for k, n in sorted(kinds.items())))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Turn goldens of the full form into the compact one: compact.py DIR OUT

DIR may be a model folder, an adapter folder, a folder of runs, or a tree of them; what a file is
shows in its name. In OUT (which must not exist)
- model.safetensors beside a weights.json is left out: the rule makes it again;
- gradients and parameters are digests, hidden states and outputs of parts digests per row
  (README.md), if their file is larger than 32 KiB;
- every other file is copied as it is.
"""

import argparse
import json
import math
import pathlib
import re
import shutil
import sys

import numpy

import rule

SMALL_FILE = 32 << 10
SMALL_TENSOR = 64
WHOLE = re.compile(r"(grads(_\w+)?|(params|adapter)_step\d+|merged)\.safetensors")
BY_ROW = re.compile(r"(forward|packed|mtp|long)(_\w+)?\.safetensors")
ROW_TENSOR = re.compile(r"hidden_\w+|\w+_out_\d+")
FLOATS = {"F32": numpy.float32, "F64": numpy.float64}


def compact_tensor(file_name, name, tensor):
    """(tensor, note): the digest and its entry in the metadata, or the tensor and None."""
    dtype, shape, data = tensor
    if dtype not in FLOATS or math.prod(shape) <= SMALL_TENSOR:
        return tensor, None
    x = numpy.frombuffer(data, FLOATS[dtype]).reshape(shape)
    size = "x".join(map(str, shape))
    if WHOLE.fullmatch(file_name):
        return ("F64", [rule.DIGEST_SIZE], rule.digest(name, x).tobytes()), f"digest {size}"
    if BY_ROW.fullmatch(file_name) and ROW_TENSOR.fullmatch(name) and len(shape) >= 2:
        rows = rule.row_digest(name, x)
        return ("F32", list(rows.shape), rows.tobytes()), f"rows {size}"
    return tensor, None


def compact_file(file_name, data):
    """The compact form of a safetensors file, or the same bytes."""
    if len(data) <= SMALL_FILE or not (WHOLE.fullmatch(file_name) or BY_ROW.fullmatch(file_name)):
        return data
    tensors, metadata = rule.unpack(data)
    for name, tensor in tensors.items():
        tensors[name], note = compact_tensor(file_name, name, tensor)
        if note:
            metadata[name] = note
    return rule.pack(tensors, metadata)


def follows_rule(path):
    """Whether path is a model.safetensors that the weights.json beside it makes."""
    recipe = path.with_name("weights.json")
    if path.name != "model.safetensors" or not recipe.exists():
        return False
    if not rule.check_weights(json.loads(recipe.read_text()), path.read_bytes()):
        sys.exit(f"{path}: is not what {recipe.name} makes (another sha256)")
    return True


def compact(source, target):
    """Write the compact form of the tree source to the new folder target; returns (before, after)."""
    before = after = 0
    for path in sorted(source.rglob("*")):
        to = target / path.relative_to(source)
        if path.is_dir():
            to.mkdir(parents=True, exist_ok=True)
            continue
        before += path.stat().st_size
        if follows_rule(path):
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".safetensors":
            to.write_bytes(compact_file(path.name, path.read_bytes()))
        else:
            shutil.copyfile(path, to)
        after += to.stat().st_size
    return before, after


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("source", type=pathlib.Path, metavar="DIR")
    parser.add_argument("target", type=pathlib.Path, metavar="OUT")
    args = parser.parse_args()
    if not args.source.is_dir():
        sys.exit(f"{args.source}: no such folder")
    if args.target.exists():
        sys.exit(f"{args.target}: exists already; remove it or name another folder")
    before, after = compact(args.source, args.target)
    print(f"{args.target}: {before / 1e6:.2f} MB -> {after / 1e6:.2f} MB")


if __name__ == "__main__":
    main()

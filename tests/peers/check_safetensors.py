"""Our safetensors and model folders against the reference libraries, both ways.

usage: check_safetensors.py HF_TOOL [FIXTURES]     (needs torch, safetensors, transformers)

HF_TOOL is the program of tests/peers/hf_tool.c (make build/tests/peers/hf_tool).
1. What the reference writes we read, what we write it reads: every type, odd shapes, shards.
2. 4,000 damaged headers: whatever we accept, the reference reads as the same tensors.
3. FIXTURES/models/*: copied by us with and without shards, loaded by transformers, equal to the bit.
"""

import json
import os
import random
import struct
import subprocess
import sys
import tempfile

import torch
from safetensors import safe_open
from safetensors.torch import save_file

TYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
         torch.int8, torch.uint8, torch.bool]


def crc32c(data, table=[]):
    if not table:
        for i in range(256):
            for _ in range(8):
                i = (i >> 1) ^ (0x82F63B78 if i & 1 else 0)
            table.append(i)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def raw(tensor):
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist()) if tensor.numel() else b""


def reference(path):
    """What the reference reads, in hf_tool's form, or None where it refuses."""
    names = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16",
             torch.bfloat16: "BF16", torch.int64: "I64", torch.int32: "I32", torch.int8: "I8",
             torch.uint8: "U8", torch.bool: "U8"}
    try:
        with safe_open(path, "pt") as f:
            tensors = {name: f.get_tensor(name) for name in f.keys()}
    except Exception:
        return None
    return sorted([name, names.get(t.dtype, str(t.dtype)), list(t.shape), crc32c(raw(t))]
                  for name, t in tensors.items())


def ours(tool, paths):
    out = subprocess.run([tool, "list", *paths], capture_output=True, check=True).stdout
    lines = [json.loads(line) for line in out.decode().splitlines()]
    return [sorted(line["tensors"]) if "tensors" in line else None for line in lines]


def check_types(tool, folder):
    tensors = {}
    for i, dtype in enumerate(TYPES):
        for shape in [(3, 5), (), (0,), (2, 0, 3), (1, 1, 1, 2)]:
            values = torch.randint(0, 2 if dtype == torch.bool else 100, shape)
            tensors[f"t{i}.{'x'.join(map(str, shape))}"] = values.to(dtype)
    source = os.path.join(folder, "model.safetensors")
    save_file(tensors, source, metadata={"format": "pt"})
    open(os.path.join(folder, "config.json"), "w").write('{"dtype": "float32"}')
    assert ours(tool, [source]) == [reference(source)]
    for limit in (0, 1, 200):
        copy = os.path.join(folder, f"copy{limit}")
        subprocess.run([tool, "copy", folder, copy, str(limit)], check=True)
        shards = [os.path.join(copy, n) for n in os.listdir(copy) if n.endswith(".safetensors")]
        assert (len(shards) == 1) == (limit == 0)
        got = sorted(entry for shard in shards for entry in reference(shard))
        assert got == reference(source)
    print(f"{len(tensors)} tensors there and back, 3 shard limits")


def damage(rng, data):
    length = struct.unpack("<Q", data[:8])[0]
    header, tail = bytearray(data[8:8 + length]), data[8 + length:]
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at = rng.randrange(len(header))
        kind = rng.randrange(6)
        if kind == 0:
            header[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del header[at:at + rng.randrange(1, 6)]
        elif kind == 2:
            header[at:at] = bytes(rng.choice(b'0123456789,:[]{}" \n-.e') for _ in range(rng.randrange(1, 3)))
        elif kind == 3:
            digits = [i for i, c in enumerate(header) if chr(c).isdigit()]
            header[rng.choice(digits)] = rng.choice(b"0123456789")
        elif kind == 4:
            tail = tail[:rng.randrange(len(tail) + 1)] if rng.random() < 0.5 else tail + b"x"
        else:
            other = rng.randrange(len(header))
            header[at:at + 8] = header[other:other + 8]
    return struct.pack("<Q", len(header)) + bytes(header) + tail


def check_damaged(tool, folder, count=4000):
    rng = random.Random(7)
    sample = os.path.join(folder, "sample.safetensors")
    save_file({"w": torch.arange(6.0).reshape(2, 3), "b": torch.arange(5).to(torch.bfloat16),
               "empty": torch.zeros(0, 4), "n": torch.tensor(3)}, sample, metadata={"format": "pt"})
    data = open(sample, "rb").read()
    paths = []
    for i in range(count):
        paths.append(os.path.join(folder, f"d{i}"))
        open(paths[-1], "wb").write(damage(rng, data))
    accepted = stricter = 0
    for start in range(0, count, 500):
        for path, mine in zip(paths[start:start + 500], ours(tool, paths[start:start + 500])):
            theirs = reference(path)
            stricter += mine is None and theirs is not None
            if mine is not None:
                accepted += 1
                assert mine == theirs, (path, mine, theirs, open(path, "rb").read())
    print(f"{count} damaged files: {accepted} accepted, all as the reference reads them; "
          f"{stricter} that only the reference accepts")


def check_models(tool, folder, fixtures):
    from transformers import AutoModelForCausalLM
    count = 0
    for name in sorted(os.listdir(os.path.join(fixtures, "models"))):
        source = os.path.join(fixtures, "models", name)
        truth = AutoModelForCausalLM.from_pretrained(source).state_dict()
        for limit in (0, 100_000):
            copy = os.path.join(folder, f"{name}-{limit}")
            subprocess.run([tool, "copy", source, copy, str(limit)], check=True)
            model, info = AutoModelForCausalLM.from_pretrained(copy, output_loading_info=True)
            assert not info["missing_keys"] and not info["unexpected_keys"], info
            loaded = model.state_dict()
            assert loaded.keys() == truth.keys()
            assert all(torch.equal(loaded[k], truth[k]) for k in truth), name
            count += 1
    print(f"{count} model folders load in transformers, equal to the bit")


if __name__ == "__main__":
    torch.manual_seed(1)
    torch.set_num_threads(1)
    tool = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as types, tempfile.TemporaryDirectory() as damaged:
        check_types(tool, types)
        check_damaged(tool, damaged)
    if len(sys.argv) > 2:
        with tempfile.TemporaryDirectory() as models:
            check_models(tool, models, sys.argv[2])

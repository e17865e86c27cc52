"""Matrices as compressed-tensors writes and reads them: compresses random weights in each form, and has it decompress them
again, for tests/ckpt/test_compressed_forms.c.

usage: compressed_folder.py > tests/ckpt/compressed_folder.h"""
import textwrap

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme, QuantizationType
from compressed_tensors.quantization.utils import calculate_qparams

ROWS = 12  # outputs; words of zeros are filled up


def show(kind, name, values, form):
    text = ", ".join(form(v) for v in values.reshape(-1).tolist())
    print(f"static const {kind} {name}[] = {{")
    print(textwrap.fill(text + "};", 100, initial_indent="    ", subsequent_indent="    "))


def ordered(name, seed):
    """With groups of any columns (actorder: group), which compressed-tensors had until August 2026: it quantizes the columns
    in the order of their groups, so codes of columns that are put in that order are those of groups that follow one another."""
    args = QuantizationArgs(num_bits=4, type="int", symmetric=True, strategy="group", group_size=8)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    compressor = BaseCompressor.get_value_from_registry("pack-quantized")
    g = torch.Generator().manual_seed(seed)
    weight, groups = torch.randn(ROWS, 16, generator=g) * 0.05, torch.arange(16) // 8
    groups = groups[torch.randperm(16, generator=g)]
    perm = torch.argsort(groups, stable=True)
    parts = weight[:, perm].reshape(ROWS, 2, 8)
    scale, zero = calculate_qparams(parts.amin(-1), parts.amax(-1), args)
    state = {"weight": weight[:, perm], "weight_scale": scale, "weight_zero_point": zero}
    values = compressor.decompress(compressor.compress(state, scheme), scheme)["weight"].float()[:, torch.argsort(perm)]
    codes = pack_to_int32((values / scale[:, groups]).round().to(torch.int8), 4)
    show("int32_t", f"{name}_codes", codes, str)
    show("int32_t", f"{name}_groups", groups, str)
    show("float", f"{name}_scales", scale, lambda v: v.hex() + "F")
    show("float", f"{name}_values", values, lambda v: v.hex() + "F")


def case(name, form, seed, cols=16, **args):
    weight = torch.randn(ROWS, cols, generator=torch.Generator().manual_seed(seed)) * 0.05 + 0.02
    args = QuantizationArgs(**args)
    group = args.group_size or cols
    parts = weight.reshape(ROWS, cols // group, group)
    low, high = parts.amin(-1), parts.amax(-1)
    if args.strategy == "tensor":
        low, high = low.min().reshape(1), high.max().reshape(1)
    scale, zero = calculate_qparams(low, high, args)
    compressor = BaseCompressor.get_value_from_registry(form)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    stored = compressor.compress({"weight": weight, "weight_scale": scale, "weight_zero_point": zero}, scheme)
    read = compressor.decompress(dict(stored), scheme)["weight"].float()
    packed = form == "pack-quantized"
    codes = stored["weight_packed" if "weight_packed" in stored else "weight"]
    if args.type == QuantizationType.FLOAT:
        codes = codes.view(torch.uint8)
    show({torch.int32: "int32_t", torch.int8: "int8_t", torch.uint8: "uint8_t"}[codes.dtype], f"{name}_codes", codes, str)
    if form.startswith("mx"):
        show("uint8_t", f"{name}_scales", stored["weight_scale"], str)
    else:
        show("float", f"{name}_scales", stored["weight_scale"], lambda v: v.hex() + "F")
    if not args.symmetric:
        show("int32_t" if packed else "int8_t", f"{name}_zeros", stored["weight_zero_point"], str)
    show("float", f"{name}_values", read, lambda v: v.hex() + "F")


print("/* Written by tests/peers/compressed_folder.py. */")
print("/* clang-format off */\n#include <stdint.h>\n")
print(f"enum {{ FORM_ROWS = {ROWS} }};")
case("packed4", "pack-quantized", 1, num_bits=4, type="int", symmetric=False, strategy="group", group_size=8)
case("packed8", "pack-quantized", 2, num_bits=8, type="int", symmetric=False, strategy="channel")
case("int4", "int-quantized", 3, num_bits=4, type="int", symmetric=True, strategy="group", group_size=8)
case("int8", "int-quantized", 4, num_bits=8, type="int", symmetric=False, strategy="group", group_size=8)
case("naive_int", "naive-quantized", 5, num_bits=8, type="int", symmetric=True, strategy="channel")
case("naive_float", "naive-quantized", 6, num_bits=8, type="float", symmetric=True, strategy="tensor")
case("padded4", "pack-quantized", 7, cols=13, num_bits=4, type="int", symmetric=True, strategy="channel")
case("padded8", "pack-quantized", 8, cols=14, num_bits=8, type="int", symmetric=True, strategy="channel")
case("mxfp4", "mxfp4-pack-quantized", 9, cols=32, num_bits=4, type="float", symmetric=True, strategy="group", group_size=16,
     scale_dtype=torch.uint8)
case("mxfp8", "mxfp8-quantized", 10, cols=32, num_bits=8, type="float", symmetric=True, strategy="group", group_size=16,
     scale_dtype=torch.uint8)
ordered("ordered", 11)

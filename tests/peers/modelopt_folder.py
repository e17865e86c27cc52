"""Matrices as NVIDIA's Model Optimizer stores them, and the values that it makes of them, for tests/ckpt/test_compressed_forms.c.

usage: modelopt_folder.py > tests/ckpt/modelopt_folder.h    (with nvidia-modelopt 0.47.0)"""
import textwrap

import torch
from modelopt.torch.quantization.qtensor import FP8QTensor, MXFP4QTensor, MXFP8QTensor, NVFP4QTensor

ROWS, COLS = 12, 32


def show(kind, name, values, form):
    text = ", ".join(form(v) for v in values.reshape(-1).tolist())
    print(f"static const {kind} {name}[] = {{")
    print(textwrap.fill(text + "};", 100, initial_indent="    ", subsequent_indent="    "))


def case(name, seed, kind, block=None, **more):
    weight = torch.randn(ROWS, COLS, generator=torch.Generator().manual_seed(seed)) * 0.05 + 0.02
    stored, *scales = kind.quantize(weight, **more)
    names = ["scale", "double_scale"]
    values = stored.dequantize(dtype=torch.float32, block_sizes=block and {-1: block}, **dict(zip(names, scales)))
    show("uint8_t", f"{name}_codes", stored._quantized_data.view(torch.uint8), str)
    for what, scale in zip(["scales", "outer"], scales):
        if scale.dtype in (torch.uint8, torch.float8_e4m3fn):
            show("uint8_t", f"{name}_{what}", scale.view(torch.uint8), str)
        else:
            show("float", f"{name}_{what}", scale.float(), lambda v: v.hex() + "F")
    show("float", f"{name}_values", values, lambda v: v.hex() + "F")


print("/* Written by tests/peers/modelopt_folder.py, with nvidia-modelopt 0.47.0. */")
print("/* clang-format off */\n#include <stdint.h>\n")
case("modelopt_nvfp4", 1, NVFP4QTensor, block=16, block_size=16)
case("modelopt_fp8", 2, FP8QTensor)
case("modelopt_mxfp8", 3, MXFP8QTensor)
case("modelopt_mxfp4", 4, MXFP4QTensor, block=32, block_size=32)

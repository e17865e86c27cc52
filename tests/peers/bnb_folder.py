"""Matrices as bitsandbytes stores them in folders, quantized by it, and the values that its portable code makes of them, for
tests/ckpt/test_bnb_folder.c. (Its CPU kernel, 0.50.2, has other scales where a block does not end with a row.)

usage: bnb_folder.py > tests/ckpt/bnb_folder.h"""
import textwrap

import torch
from bitsandbytes import functional
from bitsandbytes.backends.default import ops
from bitsandbytes.backends.utils import _get_4bit_code


def show(kind, name, values, form):
    text = ", ".join(form(v) for v in values.reshape(-1).tolist())
    print(f"static const {kind} {name}[] = {{")
    print(textwrap.fill(text + "};", 100, initial_indent="    ", subsequent_indent="    "))


def show_floats(name, values):
    show("float", name, values.float(), lambda v: float(v).hex() + "F")


def four(name, kind, dtype, shape, block, nested=0):
    w = (torch.randn(shape) * 0.05).to(dtype)
    codes, state = functional.quantize_4bit(w, blocksize=block, quant_type=kind)
    absmax = state.absmax
    if nested:
        state.offset = absmax.mean()
        table = functional.create_dynamic_map()
        stored, outer = torch.ops.bitsandbytes.quantize_blockwise(absmax - state.offset, table, nested)
        absmax = ops._dequantize_blockwise_compute(stored, outer, table, nested, torch.float32) + state.offset
        state.state2 = functional.QuantState(outer, code=table, blocksize=nested, dtype=torch.float32)
        state.absmax, state.nested = stored, True
        show_floats(f"{name}_nested_absmax", outer)
    values = ops._dequantize_4bit_compute(codes.reshape(-1), absmax, _get_4bit_code(kind, torch.device("cpu")), block,
                                          shape, dtype)
    packed = state.as_dict(packed=True)
    text = bytes(packed[f"quant_state.bitsandbytes__{kind}"].tolist()).decode()
    print(f'static const char {name}_state[] =\n    "' + text.replace('"', '\\"') + '";')
    show("uint8_t", f"{name}_codes", codes, str)
    if nested:
        show("uint8_t", f"{name}_absmax", state.absmax, str)
    else:
        show_floats(f"{name}_absmax", absmax)
    show_floats(f"{name}_values", values)


def eight(name, shape):
    codes, scales, _ = functional.int8_vectorwise_quant((torch.randn(shape) * 0.05).half())
    show("int8_t", f"{name}_codes", codes, str)
    show_floats(f"{name}_scales", scales)
    show_floats(f"{name}_values", functional.int8_vectorwise_dequant(codes, scales))


torch.manual_seed(0)
print("/* Written by tests/peers/bnb_folder.py, with bitsandbytes 0.50.2. */")
print("/* clang-format off */\n#include <stdint.h>\n")
show_floats("nested_map", functional.create_dynamic_map())
show_floats("nf4_map", _get_4bit_code("nf4", torch.device("cpu")))
show_floats("fp4_map", _get_4bit_code("fp4", torch.device("cpu")))
four("nf4", "nf4", torch.bfloat16, (5, 48), 64)
four("nested", "nf4", torch.float16, (5, 64), 32, nested=4)
four("fp4", "fp4", torch.float32, (4, 32), 64)
four("fp4_nested", "fp4", torch.bfloat16, (3, 43), 32, nested=256)
eight("int8", (4, 12))

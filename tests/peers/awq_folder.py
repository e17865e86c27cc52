"""Matrices as AutoAWQ packs them (WQLinear_GEMM.from_linear), and the values that its dequantize_gemm makes of them, for
tests/ckpt/test_awq_folder.c. Of AutoAWQ's packages only two files are needed.

usage: AUTOAWQ=FOLDER awq_folder.py > tests/ckpt/awq_folder.h      FOLDER: AutoAWQ's sources"""
import importlib.util
import os
import sys
import textwrap
import types

import torch

ROOT = os.environ["AUTOAWQ"]


def load(name):
    """A module of AutoAWQ's without the packages that it is in, which import old transformers."""
    path = os.path.join(ROOT, *name.split(".")) + ".py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


for package in ("awq", "awq.utils", "awq.modules", "awq.modules.linear"):
    sys.modules[package] = types.ModuleType(package)
module = types.ModuleType("awq.utils.module")
module.try_import = lambda name: (None, "")
sys.modules["awq.utils.module"] = module
utils = types.ModuleType("awq.utils.utils")
utils.get_best_device = lambda: "cpu"
sys.modules["awq.utils.utils"] = utils
packing = load("awq.utils.packing_utils")
gemm = load("awq.modules.linear.gemm")


def show(kind, name, values, form):
    text = ", ".join(form(v) for v in values.reshape(-1).tolist())
    print(f"static const {kind} {name}[] = {{")
    print(textwrap.fill(text + "};", 100, initial_indent="    ", subsequent_indent="    "))


def case(name, out, into, group):
    linear = torch.nn.Linear(into, out, bias=False).half()
    torch.nn.init.normal_(linear.weight, 0.01, 0.05)
    size = group if group > 0 else into
    w = linear.weight.data.reshape(-1, size)
    high, low = w.amax(1, keepdim=True), w.amin(1, keepdim=True)  # as AwqQuantizer.pseudo_quantize_tensor
    scales = (high - low).clamp(min=1e-5) / 15
    zeros = (-torch.round(low / scales)).clamp(0, 15)
    scales, zeros = scales.reshape(out, -1), zeros.reshape(out, -1)
    linear.weight.data = ((torch.clamp(torch.round(w / scales.reshape(-1, 1)) + zeros.reshape(-1, 1), 0, 15)
                           - zeros.reshape(-1, 1)) * scales.reshape(-1, 1)).reshape(out, into)
    q = gemm.WQLinear_GEMM.from_linear(linear, 4, size, False, scales.t().contiguous(), zeros.t().contiguous())
    values = packing.dequantize_gemm(q.qweight, q.qzeros, q.scales, 4, size)
    show("uint32_t", f"{name}_qweight", q.qweight.long() & 0xFFFFFFFF, "{:#x}".format)
    show("uint32_t", f"{name}_qzeros", q.qzeros.long() & 0xFFFFFFFF, "{:#x}".format)
    show("uint16_t", f"{name}_scales", q.scales.view(torch.int16).int() & 0xFFFF, "{:#x}".format)
    show("float", f"{name}_values", values.t().float().contiguous(), lambda v: float(v).hex() + "F")


torch.manual_seed(0)
print("/* Written by tests/peers/awq_folder.py, with AutoAWQ 0.2.9. */")
print("/* clang-format off */\n#include <stdint.h>\n")
case("groups", 32, 16, 8)
case("rows", 32, 6, -1)

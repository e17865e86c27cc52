"""A matrix in GPTQ's folder format by the format's definition, in numpy: rounds random weights, packs them as GPTQModel does
(gptq: 1 is subtracted from all zeros of a word at a time; gptq_v2: zeros), and writes what the integers stand for, for
tests/ckpt/test_gptq_folder.c.

usage: gptq_folder.py > tests/ckpt/gptq_folder.h"""
import textwrap

import numpy

ROWS, COLS = 8, 32  # outputs, inputs


def words(values, bits):
    """[n][m] integers -> [n * bits / 32][m] words, the first of n lowest."""
    per = 32 // bits
    packed = numpy.zeros((values.shape[0] // per, values.shape[1]), numpy.uint32)
    for i, row in enumerate(values.astype(numpy.uint32)):
        packed[i // per] |= row << numpy.uint32(bits * (i % per))
    return packed


def show(kind, name, values, form):
    text = ", ".join(form(v) for v in values.reshape(-1))
    print(f"static const {kind} {name}[] = {{")
    print(textwrap.fill(text + "};", 100, initial_indent="    ", subsequent_indent="    "))


def case(name, bits, group, order, symmetric, second, seed):
    rng = numpy.random.default_rng(seed)
    w = rng.normal(0.02 * (not symmetric), 0.05, (ROWS, COLS))
    groups, top = -(-COLS // group), 2**bits - 1
    g_idx = numpy.arange(COLS) // group
    if order:
        g_idx = g_idx[rng.permutation(COLS)]
    scales = numpy.zeros((groups, ROWS), numpy.float16)
    zeros = numpy.zeros((groups, ROWS), numpy.int64)
    for g in range(groups):
        of = w[:, g_idx == g]
        low, high = numpy.minimum(of.min(1), 0), numpy.maximum(of.max(1), 0)
        if symmetric:
            high = numpy.maximum(-low, high)
            low = -high
        scales[g] = (high - low) / top
        zeros[g] = (top + 1) // 2 if symmetric else numpy.round(-low / scales[g].astype(float))
    if not symmetric:
        zeros[0, 0] = 0  # less 1, it borrows from the next one
    s, z = scales.astype(numpy.float64)[g_idx].T, zeros[g_idx].T
    q = numpy.clip(numpy.round(w / s) + z, 0, top).astype(numpy.int64)
    show("uint32_t", f"{name}_qweight", words(q.T, bits), "{:#x}".format)
    ones = numpy.uint32(0 if second else (2**32 - 1) // top)
    show("uint32_t", f"{name}_qzeros", words(zeros.T, bits).T - ones, "{:#x}".format)
    show("uint16_t", f"{name}_scales", scales.view(numpy.uint16), "{:#x}".format)
    show("int32_t", f"{name}_g_idx", g_idx, str)
    show("float", f"{name}_values", ((q - z) * s).astype(numpy.float32), lambda v: float(v).hex() + "F")


print("/* Written by tests/peers/gptq_folder.py. */")
print("/* clang-format off */\n#include <stdint.h>\n")
print(f"enum {{ GPTQ_ROWS = {ROWS}, GPTQ_COLS = {COLS} }};")
case("symmetric", 4, 16, False, True, False, 1)
case("second", 4, 8, False, True, True, 2)
case("ordered", 4, 8, True, False, False, 3)
case("ordered_second", 4, 16, True, False, True, 4)
case("bytes", 8, 32, False, False, False, 5)
case("bytes_symmetric", 8, 16, False, True, False, 6)
case("ragged", 4, 24, False, True, False, 7)
case("ragged_ordered", 8, 24, True, False, True, 8)
case("wide", 4, 64, False, True, False, 9)

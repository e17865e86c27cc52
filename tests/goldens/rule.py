"""Numbers that Python and C make alike: the generator of base/rng.c, weights by a rule, digests.

Weights that follow a rule are uniform, because a uniform number needs no function of a math
library; digests stand for tensors that are too large to be committed. README.md has the layout of
both, golden_files.c and digest.c are the other side.
"""

import hashlib
import json

import numpy

MASK = (1 << 64) - 1
SQRT3 = 1.7320508075688772
DIGEST_SEED = 0x474F4C44  # "GOLD"
STEP_SIGNS, STEP_PLACES, STEP_ROW_SIGNS = 1, 2, 3
PROJECTIONS, PLACES, ROW_PROJECTIONS = 8, 16, 4
DIGEST_SIZE = 1 + PROJECTIONS + PLACES


# ---- the generator ---------------------------------------------------------------------------

def hash32(name):
    """ax_hash32: the low half of XXH64 with seed 0."""
    return xxh64(name.encode()) & 0xFFFFFFFF


def xxh64(data):
    """XXH64 with seed 0 (xxHash specification 0.1.1)."""
    p1, p2, p3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
    p4, p5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5

    def rotl(x, r):
        return (x << r | x >> (64 - r)) & MASK

    def mix(acc, lane):
        return rotl((acc + lane * p2) & MASK, 31) * p1 & MASK

    def load(at, size):
        return int.from_bytes(data[at:at + size], "little")

    at, h = 0, p5
    if len(data) >= 32:
        lanes = [(p1 + p2) & MASK, p2, 0, -p1 & MASK]
        while len(data) - at >= 32:
            lanes = [mix(acc, load(at + 8 * i, 8)) for i, acc in enumerate(lanes)]
            at += 32
        h = sum(rotl(acc, r) for acc, r in zip(lanes, (1, 7, 12, 18))) & MASK
        for acc in lanes:
            h = ((h ^ mix(0, acc)) * p1 + p4) & MASK
    h = (h + len(data)) & MASK
    while len(data) - at >= 8:
        h = (rotl(h ^ mix(0, load(at, 8)), 27) * p1 + p4) & MASK
        at += 8
    if len(data) - at >= 4:
        h = (rotl(h ^ load(at, 4) * p1 & MASK, 23) * p2 + p3) & MASK
        at += 4
    for byte in data[at:]:
        h = rotl(h ^ byte * p5 & MASK, 11) * p1 & MASK
    h = (h ^ h >> 33) * p2 & MASK
    h = (h ^ h >> 29) * p3 & MASK
    return h ^ h >> 32


def blocks(seed, step, tensor, index):
    """ax_rng_block for an array of counter blocks: Philox4x32-10, a uint32 array [len(index)][4]."""
    low = numpy.uint64(0xFFFFFFFF)
    half = numpy.uint64(32)
    index = numpy.asarray(index, numpy.uint64)
    c0, c1 = index & low, index >> half
    c2 = numpy.full_like(index, step)
    c3 = numpy.full_like(index, tensor)
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF
    for _ in range(10):
        p0 = numpy.uint64(0xD2511F53) * c0
        p1 = numpy.uint64(0xCD9E8D57) * c2
        c0 = p1 >> half ^ c1 ^ numpy.uint64(k0)
        c2 = p0 >> half ^ c3 ^ numpy.uint64(k1)
        c1, c3 = p1 & low, p0 & low
        k0 = k0 + 0x9E3779B9 & 0xFFFFFFFF
        k1 = k1 + 0xBB67AE85 & 0xFFFFFFFF
    return numpy.stack([c0, c1, c2, c3], axis=-1).astype(numpy.uint32)


def words(seed, step, tensor, count):
    """ax_rng_u32 of the indices 0 … count − 1."""
    return blocks(seed, step, tensor, numpy.arange((count + 3) // 4)).reshape(-1)[:count]


def below(seed, step, tensor, index, n):
    """ax_rng_below: uniform in [0, n) by Lemire's method; a rejection moves to another seed."""
    rejected = -n % (1 << 64) % n
    while True:
        w = blocks(seed, step, tensor, [index])[0]
        product = (int(w[1]) << 32 | int(w[0])) * n
        if product & MASK >= rejected:
            return product >> 64
        seed = seed + 0x9E3779B97F4A7C15 & MASK


# ---- weights by a rule -----------------------------------------------------------------------

def values(seed, name, shape, mean, std, round=None):
    """The float32 values of a tensor: uniform with this mean and standard deviation."""
    count = int(numpy.prod(shape, dtype=numpy.int64))
    u = (words(seed, 0, hash32(name), count) >> 8) * 2.0**-24
    x = (mean + (std * SQRT3) * (2.0 * u - 1.0)).astype(numpy.float32)
    if round == "bf16":
        x = round_bf16(x)
    return x.reshape(shape)


def round_bf16(x):
    """float32 values rounded to bf16, half to even, and kept as float32."""
    bits = x.view(numpy.uint32).astype(numpy.uint64)
    bits += 0x7FFF + (bits >> 16 & 1)
    return (bits.astype(numpy.uint32) & numpy.uint32(0xFFFF0000)).view(numpy.float32)


def make_weights(recipe):
    """{name: float32 array} of a weights.json."""
    return {
        t["name"]: values(recipe["seed"], t["name"], t["shape"], t["mean"], t["std"],
                          t.get("round"))
        for t in recipe["tensors"]
    }


def weights_file(recipe):
    """The bytes of the model.safetensors that a weights.json stands for."""
    tensors = make_weights(recipe)
    return pack({name: ("F32", list(x.shape), x.tobytes()) for name, x in tensors.items()}, {})


def check_weights(recipe, data):
    """Whether these bytes are the file of the recipe, by its checksum."""
    return hashlib.sha256(data).hexdigest() == recipe["sha256"]


# ---- safetensors -----------------------------------------------------------------------------

def pack(tensors, metadata):
    """A safetensors file of {name: (dtype, shape, bytes)}, sorted by name."""
    header, at = {}, 0
    if metadata:
        header["__metadata__"] = dict(sorted(metadata.items()))
    names = sorted(tensors, key=lambda name: name.encode())
    for name in names:
        dtype, shape, data = tensors[name]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *(tensors[n][2] for n in names)])


def unpack(data):
    """(tensors, metadata) of a safetensors file; a tensor is (dtype, shape, bytes)."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    metadata = header.pop("__metadata__", {})
    body = memoryview(data)[8 + size:]
    return {
        name: (t["dtype"], t["shape"], bytes(body[slice(*t["data_offsets"])]))
        for name, t in header.items()
    }, metadata


# ---- digests ---------------------------------------------------------------------------------

def signs(step, name, count, projections):
    """s_k(i) as an array [projections][count] of ±1: bit k of word i."""
    w = words(DIGEST_SEED, step, hash32(name), count)
    bits = w[None, :] >> numpy.arange(projections, dtype=numpy.uint32)[:, None] & 1
    return bits * 2.0 - 1.0


def places(name, count):
    """The places of the elements that a digest keeps (one may be drawn twice)."""
    tensor = hash32(name)
    return [below(DIGEST_SEED, STEP_PLACES, tensor, j, count) for j in range(PLACES)]


def digest(name, x):
    """[25] float64 of a whole tensor: norm, 8 projections, 16 elements."""
    x = numpy.asarray(x, numpy.float64).reshape(-1)
    projections = signs(STEP_SIGNS, name, x.size, PROJECTIONS) @ x
    return numpy.concatenate([[numpy.sqrt(x @ x)], projections, x[places(name, x.size)]])


def row_digest(name, x):
    """[rows][4] float32: projections of every row on the same signs."""
    x = numpy.asarray(x, numpy.float64)
    x = x.reshape(-1, x.shape[-1])
    s = signs(STEP_ROW_SIGNS, name, x.shape[1], ROW_PROJECTIONS)
    return (x @ s.T).astype(numpy.float32)

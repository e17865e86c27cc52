"""What every maker needs: seeded random numbers, tensors and JSON on disk, sizes of differences.

Importing it also fixes what makes results repeatable, so it must come before torch: one thread (a
fixed order of sums), no network, no compiled kernels.
"""

import json
import math
import os
import shutil
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("RAYON_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("TORCH_COMPILE_DISABLE", "1")

import numpy
import torch
from safetensors.torch import save_file

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)

GOLDENS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(GOLDENS))        # rule.py, compact.py
IGNORE = -100                           # the label of a token without loss


def gen(seed):
    return torch.Generator().manual_seed(int(seed))


def randn(g, *shape):
    return torch.randn(*shape, generator=g)


def randint(g, low, high, *shape):
    return torch.randint(low, high, shape, generator=g)


def save_tensors(path, tensors, keep=False):
    """Floats as fp32 and integers as int32, unless keep=True."""
    out = {}
    for name in sorted(tensors):
        t = tensors[name]
        if not torch.is_tensor(t):
            t = torch.tensor(t)
        t = t.detach()
        if not keep:
            if t.dtype in (torch.float64, torch.bfloat16, torch.float16):
                t = t.to(torch.float32)
            elif t.dtype in (torch.int64, torch.bool, torch.int16):
                t = t.to(torch.int32)
        out[name] = t.contiguous().clone()
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(out, str(path))


def plain(x):
    """Tensors and numpy scalars to plain JSON values."""
    if torch.is_tensor(x):
        return plain(x.tolist())
    if isinstance(x, dict):
        return {str(k): plain(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    if isinstance(x, float) and not math.isfinite(x):
        return repr(x)
    if isinstance(x, float) and x == float(numpy.float32(x)):     # the digits that tell float32 values apart
        return float(str(numpy.float32(x)))
    return x


def flat(x):
    """Whether a JSON value goes on one line: anything but lists and objects that hold larger ones."""
    inner = x.values() if isinstance(x, dict) else x if isinstance(x, list) else ()
    return not any(isinstance(v, dict) or isinstance(v, list) and not flat(v) for v in inner)


def to_json(x):
    """JSON with a line for each entry that is worth one."""
    if isinstance(x, dict) and not (flat(x) and len(str(x)) < 300):
        lines = (f"{json.dumps(k)}: {to_json(v)}" for k, v in x.items())
        return "{\n" + ",\n".join(lines) + "\n}"
    if isinstance(x, list) and not flat(x):
        return "[\n" + ",\n".join(map(to_json, x)) + "\n]"
    return json.dumps(x, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def save_json(path, obj):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(to_json(plain(obj)) + "\n", encoding="utf-8")


def save_config(path, obj):
    """A model's configuration, laid out as transformers writes it."""
    path.write_text(json.dumps(plain(obj), indent=2, ensure_ascii=True, allow_nan=False) + "\n", encoding="utf-8")


def fresh(path):
    if path.exists():
        shutil.rmtree(path)
    path.mkdir(parents=True)
    return path


def make_writable(root):
    """Some libraries write files that only their owner may read."""
    for path in root.rglob("*"):
        if path.is_file():
            path.chmod(0o644)


def scalar(x):
    return float(x.detach()) if torch.is_tensor(x) else float(x)


def max_diff(a, b):
    if a.numel() == 0:
        return 0.0
    return (a.double() - b.double()).abs().max().item()


def rel_norm_diff(a, b):
    """||a-b|| / ||b||, the scale-free distance used in the README's advice."""
    a, b = a.double(), b.double()
    n = b.norm().item()
    return (a - b).norm().item() / n if n > 0 else (a - b).norm().item()


def sig(x, digits=2):
    """Round a measured error to a few digits (it is a size, not a golden)."""
    return float(f"%.{digits}g" % x)

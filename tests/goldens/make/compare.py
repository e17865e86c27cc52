#!/usr/bin/env python3
"""Say how goldens that were made again differ from the committed ones: compare.py NEW COMMITTED

Another CPU rounds floats differently. That is fine within a third of what the tests allow; then a
file that differs gets a line with its largest deviation. Anything else (an id, a text, a name, a
missing file, a float further off) fails.
"""

import argparse
import json
import math
import pathlib
import re
import sys

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import rule

ABS, REL = 3e-5, 1e-5
# Of parameters after steps of Adam: an element whose gradient is rounding noise may move either way by lr in each step (the
# tests allow 2 lr of an element, lr of a projection), and few elements are.
OF_STEPS, FEW = 1 / 3, 0.05
LATER_NORM, LATER = re.compile(r"/train/steps/[1-9]\d*/grad_norm"), 10  # after such steps; the tests have the first one's
# Sizes of rounding noise: they are no goldens, and differ as a matter of course.
NOISE = {"fp64_gap", "float64_gap", "float64", "float32", "noise", "nf4_crosscheck",
         "smallest_choice_gap", "smallest_top2_gap", "close_calls", "min_top2_gap"}
NOISE_FILES = {"crosscheck.json", "nf4_crosscheck.json"}
DTYPES = {"F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "I32": "i4", "I8": "i1", "U8": "u1"}


class Report:
    def __init__(self):
        self.equal, self.close, self.wrong = 0, [], []

    def file(self, name, deviation, problem):
        if problem:
            self.wrong.append(f"{name}: {problem}")
        else:
            self.close.append((deviation, name))


def off(a, b):
    """How much of the tolerance the deviation of two numbers uses up (1: all of it)."""
    if a == b:
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    return abs(a - b) / max(ABS, REL * abs(b))


def compare_json(a, b, where=""):
    """(largest share of the tolerance, what is wrong or None)."""
    if isinstance(a, dict) and isinstance(b, dict):
        if list(a) != list(b):
            return 0.0, f"{where}: other keys"
        pairs = [(k, a[k], b[k]) for k in a if k not in NOISE and not k.endswith("_max_diff")]
    elif isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b):
            return 0.0, f"{where}: {len(a)} entries, not {len(b)}"
        pairs = [(i, *both) for i, both in enumerate(zip(a, b))]
    elif isinstance(a, float) and isinstance(b, float):
        share = off(a, b) / (LATER if LATER_NORM.fullmatch(where) else 1)
        return share, f"{where}: {a}, not {b}" if share > 1 else None
    else:
        return 0.0, None if a == b else f"{where}: {a!r}, not {b!r}"
    worst = 0.0
    for key, x, y in pairs:
        share, problem = compare_json(x, y, f"{where}/{key}")
        if problem:
            return share, problem
        worst = max(worst, share)
    return worst, None


def compare_tensor(a, b):
    """(share of the tolerance, what is wrong or None) of two (dtype, shape, bytes)."""
    if a[:2] != b[:2]:
        return 0.0, f"{a[0]} {a[1]}, not {b[0]} {b[1]}"
    if a[2] == b[2]:
        return 0.0, None
    if a[0] not in ("F32", "F64"):
        return 0.0, "other values"
    x, y = values(a), values(b)
    norm = numpy.linalg.norm(y) or 1.0
    share = min(abs(x - y).max() / ABS, numpy.linalg.norm(x - y) / norm / REL)
    return share, None if share <= 1 else f"off by {abs(x - y).max():.2g}"


def values(tensor):
    return numpy.frombuffer(tensor[2], DTYPES[tensor[0]]).astype(float)


def is_noise_of_adam(a, b, steps):
    """Are few numbers off, by no more than noise in place of gradients can do in these learning rates?"""
    apart = numpy.concatenate([abs(values(a[name]) - values(b[name])) for name in a])
    return apart.max() <= OF_STEPS * steps and (apart > ABS).mean() <= FEW


def compare_tensors(a, b, steps):
    a, b = rule.unpack(a), rule.unpack(b)
    if a[1] != b[1] or set(a[0]) != set(b[0]):
        return 0.0, "other tensors"
    worst = 0.0
    for name in a[0]:
        share, problem = compare_tensor(a[0][name], b[0][name])
        if problem and a[0][name][:2] == b[0][name][:2] and steps and is_noise_of_adam(a[0], b[0], steps):
            return 1.0, None
        if problem:
            return share, f"{name}: {problem}"
        worst = max(worst, share)
    return worst, None


def rates_of(path):
    """The sum of learning rates up to parameters after a step; 0: the file has something else."""
    found = re.fullmatch(r"(?:params|adapter)_step(\d+)\.safetensors", path.name)
    golden = path.parent / "golden.json"
    if not found or not golden.is_file():
        return 0
    return json.loads(golden.read_bytes()).get("train", {}).get("settings", {}).get("lr", 0) * int(found.group(1))


def compare_file(new, old, name, report):
    a, b = new.read_bytes(), old.read_bytes()
    if a == b:
        report.equal += 1
    elif name.endswith(".safetensors"):
        report.file(name, *compare_tensors(a, b, rates_of(old)))
    elif name.rsplit("/")[-1] in NOISE_FILES:
        report.file(name, 0.0, None)
    elif name.endswith(".json"):
        report.file(name, *compare_json(json.loads(a), json.loads(b)))
    else:
        report.file(name, 0.0, "another text")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("committed", type=pathlib.Path)
    args = parser.parse_args()
    report = Report()
    for path in sorted(p for p in args.new.rglob("*") if p.is_file()):
        name = path.relative_to(args.new).as_posix()
        old = args.committed / name
        if old.is_file():
            compare_file(path, old, name, report)
        else:
            report.wrong.append(f"{name}: is not among the committed ones")
    for share, name in sorted(report.close, reverse=True):
        print(f"{name}: differs by {share:.2g} of the tolerance")
    for line in report.wrong:
        print(f"{line}: FAILED")
    print(f"{report.equal} files equal, {len(report.close)} within tolerance, {len(report.wrong)} failed")
    sys.exit(bool(report.wrong))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Make the goldens of the full form: make.py --out DIR [--only FAMILY]...

Needs the packages of requirements.txt, and for runs/prm and runs/ppo folders with older releases of
TRL (./run makes all of it). CPU only, one thread, no network: every weight, text and tensor comes
from a fixed seed, and the files are the same bytes from run to run on one machine.
"""

import argparse
from pathlib import Path

import tools
import delta
import lora
import models
import objectives
import optim
import quant
import rope
import runs
import schedules
import tokenizer

FAMILIES = dict(
    tokenizer=tokenizer.family_tokenizer, models=models.family_models,
    families=models.family_families, lora=lora.family_lora, rope=rope.family_rope,
    objectives=objectives.family_objectives, quant=quant.family_quant,
    schedules=schedules.family_schedules, optim=optim.family_optim, delta=delta.family_delta,
    kda=delta.family_kda, ssd=delta.family_ssd)


def main():
    names = [*FAMILIES, *(f"runs/{name}" for name in runs.FAMILIES)]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", action="append", choices=names, help="one family (repeatable)")
    parser.add_argument("--trl", type=Path, help="folder with a folder for each older TRL")
    parser.add_argument("--smollm2", help="a transformers folder of SmolLM2-135M-Instruct, for "
                        "lm_eval (its recorded results are kept without it)")
    args = parser.parse_args()
    for name in args.only or names:
        family = name.removeprefix("runs/")
        if name in FAMILIES:
            FAMILIES[name](args.out)
        elif family in runs.OLD_TRL and args.trl:
            runs.in_older_trl(family, args.out, args.trl)
        else:
            runs.make(family, args.out, args.smollm2)
    tools.make_writable(args.out)


if __name__ == "__main__":
    main()

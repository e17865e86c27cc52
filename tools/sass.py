"""SASS of objects, by cuobjdump (pip install nvidia-cuda-cuobjdump, or a toolkit): for check-sass and check-wgmma."""

import re
import shutil
import subprocess
import sys

INSTRUCTION = re.compile(r"\s+/\*([0-9a-f]{4,5})\*/\s+(?:@!?U?P\w+\s+)?(.*?)\s*;")


def functions(path):
    """(name, [(address, opcode, operands)]) of each kernel's code for sm_90a. Without cuobjdump: exit code 77."""
    disassembler = shutil.which("cuobjdump")
    if not disassembler:
        print("skipped: cuobjdump is not installed")
        sys.exit(77)
    sass = subprocess.run([disassembler, "-arch", "sm_90a", "-sass", path], check=True, capture_output=True, text=True)
    found = []
    for line in sass.stdout.splitlines():
        if "Function :" in line:
            found.append((line.split(":", 1)[1].strip(), []))
        m = INSTRUCTION.match(line)
        if m and found:
            opcode, _, operands = m.group(2).partition(" ")
            found[-1][1].append((int(m.group(1), 16), opcode, operands.strip()))
    return found

"""Counts the task files of lm-evaluation-harness that `axtrain eval --task` reads, and why it refuses the others.

usage: count_tasks.py AXTRAIN MODEL_DIR TASKS_DIR [EVERY]

TASKS_DIR is the folder lm_eval/tasks of the package. Each file is given to the program offline with an empty cache: a file that
was read ends with the missing data set. EVERY: only each such file."""
import collections
import glob
import os
import re
import subprocess
import sys
import tempfile

axtrain, model, folder = sys.argv[1:4]
files = sorted(glob.glob(folder + "/**/*.yaml", recursive=True))[:: int(sys.argv[4]) if len(sys.argv) > 4 else 1]
counts, python = collections.Counter(), 0
with tempfile.TemporaryDirectory() as empty:
    env = {"HF_HUB_OFFLINE": "1", "PATH": os.environ["PATH"], "HOME": empty}
    for file in files:
        task = [axtrain, "eval", "--model", model, "--include-path", os.path.dirname(file), "--task", file, "--rows", "1"]
        said = subprocess.run(task, env=env, capture_output=True, text=True).stderr.strip().splitlines()[-1]
        place, _, why = re.sub(r"^error |:\d+(:\d+)?", "", said).partition(": ")
        key = why.split(": ")[0]
        if key == "dataset_path" and "no such folder or file" in why or key == "dataset_kwargs" or "data_files" in why:
            counts["read"] += 1
        elif "!function" in why or "no longer" in why:
            counts["Python: " + key] += 1
        else:
            counts[re.sub(r'"[^"]*"', '"…"', why)[:90]] += 1
print(len(files), "files")
for why, n in counts.most_common():
    print(n, why)

#!/usr/bin/env python3
"""Times the data side: rows → template → tokens → packed rows, beside the HF `tokenizers` library.

    python3 tests/peers/measure_data.py --model DIR [--work DIR] [--mb 200] [--rounds 3]

DIR holds a tokenizer.json with a chatml template (SmolLM2's, from `axtrain convert`). Makes the data in --work, runs
axtrain and the library in turn, and prints a Markdown table: MB of the input file per second of wall time, CPU seconds,
and peak memory. The library gets the texts already rendered and only tokenizes them, at most the first 20 MB of a file,
so its figures flatter it.
"""
import argparse
import json
import os
import random
import resource
import subprocess
import sys
import time

AXTRAIN = os.environ.get("AXTRAIN", "build/axtrain")
SYLLABLES = [a + b for a in "b c d f g h k l m n p r s t v w st tr ch th pl".split() for b in "a e i o u ai ea ou".split()]
PEER_BYTES = 20000000
CONFIG = """base_model: %s
sequence_len: 2048
sample_packing: true
learning_rate: 1e-4
micro_batch_size: 1
gradient_accumulation_steps: 1
max_steps: 1000000
chat_template: chatml
datasets:
  - path: %s
    type: chat_template
"""


def words(r):
    """A vocabulary whose words come as often as in English: Zipf, short ones first."""
    common = "the of and to in a is that for it as was with be by on not he his but at are this have from which or".split()
    made = ["".join(r.choice(SYLLABLES) for _ in range(1 + int(r.random() * 4))) for _ in range(100000)]
    return common + sorted(made, key=len)


def sentence(r, vocabulary):
    n = len(vocabulary)
    out = [vocabulary[int(n ** r.random()) - 1] for _ in range(r.randint(4, 25))]
    if r.random() < 0.2:
        out.insert(r.randrange(len(out)), str(r.randrange(10 ** r.randint(1, 5))))
    return " ".join(out).capitalize() + r.choice([".", ".", ".", "?", "!", ",\n", ":\n\n"])


def write_synthetic(path, size):
    r = random.Random(7)
    vocabulary = words(r)
    with open(path, "w", encoding="utf-8") as f:
        while f.tell() < size:
            turns = []
            for _ in range(r.randint(1, 3)):
                for role, most in (("user", 5), ("assistant", 20)):
                    text = " ".join(sentence(r, vocabulary) for _ in range(r.randint(1, most)))
                    turns.append({"role": role, "content": text})
            f.write(json.dumps({"messages": turns}, ensure_ascii=False) + "\n")


def run(command, env=None):
    """Wall and CPU seconds, peak MB, and what it wrote."""
    start = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **(env or {})})
    out = child.stdout.read()
    err = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{command}: {child.returncode} {err.decode()}")
    return time.monotonic() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, out.decode()


def tokenize_rendered(model, path, threads):
    """The library's part, in a process of its own: wall and CPU seconds of encode_batch alone, peak MB, MB read, tokens."""
    code = """
import json, sys, time
from tokenizers import Tokenizer
tok = Tokenizer.from_file(sys.argv[1] + "/tokenizer.json")
wall = cpu = tokens = read = 0
def go(batch):
    global wall, cpu, tokens
    w, c = time.monotonic(), time.process_time()
    got = tok.encode_batch(batch, add_special_tokens=False)
    wall += time.monotonic() - w
    cpu += time.process_time() - c
    tokens += sum(len(e.ids) for e in got)
batch = []
for line in open(sys.argv[2], "rb"):
    if read > int(sys.argv[3]):
        break
    read += len(line)
    batch.append("".join(f"<|im_start|>{m['role']}\\n{m['content']}<|im_end|>\\n" for m in json.loads(line)["messages"]))
    if len(batch) == 1000:
        go(batch)
        batch = []
go(batch)
print(json.dumps([wall, cpu, read / 1e6, tokens]))
"""
    env = {"RAYON_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false"}
    _, _, peak, out = run([sys.executable, "-c", code, model, path, str(PEER_BYTES)], env)
    wall, cpu, mb, tokens = json.loads(out)
    return wall, cpu, peak, mb, tokens


def axtrain(args, threads):
    pin = ["taskset", "-c", "0"] if threads == 1 else []
    return run(pin + [AXTRAIN] + args, {"OMP_NUM_THREADS": str(threads)})


def best(rounds, call):
    return min((call() for _ in range(rounds)), key=lambda x: x[0])


def measure(name, path, model, work, rounds):
    config, cache = f"{work}/c.yaml", f"{work}/cache"
    mb = os.path.getsize(path) / 1e6
    rows = []
    with open(config, "w", encoding="utf-8") as f:
        f.write(CONFIG % (model, path))
    for threads in (1, 2):
        ours, theirs = [], []
        for _ in range(rounds):  # in turn, so that both see the same machine
            ours.append(axtrain(["preview", config, "--rows=0", "--json"], threads))
            theirs.append(tokenize_rendered(model, path, threads))
        mine, peer = min(ours, key=lambda x: x[0]), min(theirs, key=lambda x: x[0])
        totals = json.loads(mine[3])["train"]
        rows.append((f"{name}, {threads} core{'s' if threads > 1 else ''}", mb, mine, peer))
        dropped = totals["dropped"]["too_long"]
        print(f"# {name}: {totals['documents']} documents ({dropped} too long), {totals['tokens']} tokens, "
              f"tokenizers {peer[4]} tokens of {peer[3]:.1f} MB, packing {totals['efficiency']:.4f}", file=sys.stderr)
    steps = totals["rows"]
    stream = best(1, lambda: axtrain(["preview", config, "--rows=1", "--json", f"--step={steps * 19 // 20}",
                                      "streaming=true"], 2))
    subprocess.run(["rm", "-rf", cache], check=True)
    cold = axtrain(["preprocess", config, f"dataset_prepared_path={cache}"], 2)
    warm = best(5, lambda: axtrain(["preprocess", config, f"dataset_prepared_path={cache}"], 2))
    if "(from the cache)" not in warm[3]:
        sys.exit("the cache was not used: " + warm[3])
    return rows, (name, stream, cold, warm)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", required=True)
    p.add_argument("--work", default="/tmp/axtrain-measure")
    p.add_argument("--mb", type=int, default=200)
    p.add_argument("--rounds", type=int, default=3)
    o = p.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.makedirs(o.work, exist_ok=True)
    problems, synthetic = f"{o.work}/problems.jsonl", f"{o.work}/synthetic-{o.mb}.jsonl"
    subprocess.run([AXTRAIN, "problems", "--rows", "7473", "-o", problems], check=True)
    if not os.path.exists(synthetic):
        write_synthetic(synthetic, o.mb * 1000000)
    tables = [measure("problems", problems, o.model, o.work, o.rounds),
              measure(f"synthetic chat, {o.mb} MB", synthetic, o.model, o.work, 1)]
    print("| data | axtrain, MB/s | CPU s per 100 MB | peak MiB | tokenizers, MB/s | CPU s per 100 MB | ratio |")
    print("|---|---|---|---|---|---|---|")
    for rows, _ in tables:
        for name, mb, a, b in rows:
            print(f"| {name} | {mb / a[0]:.1f} | {a[1] / mb * 100:.1f} | {a[2]:.0f} | {b[3] / b[0]:.1f} | "
                  f"{b[1] / b[3] * 100:.0f} | {mb / a[0] / (b[3] / b[0]):.1f} × |")
    print("\n| data | streamed: peak MiB | cache made, s | peak MiB | cache hit, s | peak MiB |")
    print("|---|---|---|---|---|---|")
    for _, (name, stream, cold, warm) in tables:
        print(f"| {name} | {stream[2]:.0f} | {cold[0]:.2f} | {cold[2]:.0f} | {warm[0]:.3f} | {warm[2]:.0f} |")


main()

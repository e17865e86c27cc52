#!/usr/bin/env python3
"""Load on `axtrain serve`.

    serve_load.py AXTRAIN MODEL [--what W] [--clients N] [--requests K] [--prompt P] [--new T] [--pairs N]

W is one of
    bench    (default) each of N clients streams K completions of P token ids and T new tokens, one after the other, greedy,
             without an end; beside `axtrain bench generate --batch N` with the same weights, prompt included
    steady   N − 1 clients have long answers on their way, and another one asks K times in a row, at any moment of a pass: the
             time to its first token, and the mean duration of the passes that read its prompts, by the server's counters
    schema   the same clients as in `bench`, free and held to a JSON schema whose values do not end, in turn
    llama    the same clients as in `bench`, at `axtrain serve` and at llama.cpp's server (xllamacpp) with the same weights, in
             BF16: `axtrain convert` makes the GGUF file
    row      K · 1,000 short requests in a row, and the server's memory before and after

Prints a line per pair, and the medians.
"""
import argparse
import http.client
import json
import os
import random
import re
import statistics
import subprocess
import tempfile
import threading
import time

SCHEMA = {"type": "array", "minItems": 10000, "items": {
    "type": "object", "properties": {"name": {"type": "string", "maxLength": 16}, "size": {"type": "number", "minimum": 0},
                                     "kind": {"enum": ["old", "new", None]}},
    "required": ["name", "size", "kind"], "additionalProperties": False}}


def post(port, body):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    r = c.getresponse()
    if r.status != 200:
        raise SystemExit(r.read().decode())
    return c, r


def ask(port, ids, new, firsts, more):
    start = time.monotonic()
    c, r = post(port, {"model": "load", "prompt": ids, "max_tokens": new, "temperature": 0, "ignore_eos": True, "stream": True, **more})
    first = None
    for line in r:
        if first is None and line.startswith(b"data: {"):
            first = time.monotonic() - start
    firsts.append(first)
    c.close()


def load(port, o, seed, more={}):
    """(tokens per second, median seconds to a first token)"""
    draw, firsts = random.Random(seed), []
    prompts = [[[draw.randrange(1000, 40000) for _ in range(o.prompt)] for _ in range(o.requests)] for _ in range(o.clients)]
    threads = [threading.Thread(target=lambda own=own: [ask(port, ids, o.new, firsts, more) for ids in own]) for own in prompts]
    start = time.monotonic()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return o.clients * o.requests * o.new / (time.monotonic() - start), statistics.median(firsts)


def bench(o):
    out = subprocess.run([o.axtrain, "bench", "generate", "--model", o.model, "--dtype", "bfloat16", "--batch", str(o.clients),
                          "--prompt-tokens", str(o.prompt), "--new-tokens", str(o.new), "--json"],
                         check=True, capture_output=True, text=True).stdout
    speeds = {e["name"].rsplit("/", 1)[1]: e["value"] for e in json.loads(out)["results"]}
    return o.new / (o.prompt / speeds["prefill"] + o.new / speeds["decode"])


def serve(o):
    """The server's process and port."""
    p = subprocess.Popen([o.axtrain, "serve", o.model, "--dtype", "bfloat16", "--name", "load", "--port", "0", "--parallel",
                          str(o.clients)], stderr=subprocess.PIPE, text=True)
    for line in p.stderr:
        m = re.search(r"127\.0\.0\.1:(\d+)", line)
        if m:
            threading.Thread(target=lambda: [None for _ in p.stderr], daemon=True).start()
            return p, int(m.group(1))
    raise SystemExit("the server has not started")


def say(rows, line):
    for row in rows:
        print(line % row, flush=True)
    print("median: " + line % tuple(statistics.median(r[k] for r in rows) for k in range(len(rows[0]))))


def beside_bench(port, o):
    rows = []
    for i in range(o.pairs):
        served, first = load(port, o, i)
        alone = bench(o)
        rows.append((served, alone, served / alone, first))
    say(rows, "served %.0f tokens/s, bench %.0f, ratio %.2f, first token %.3f s")


def counters(port):
    c = http.client.HTTPConnection("127.0.0.1", port)
    c.request("GET", "/metrics")
    text = c.getresponse().read().decode()
    c.close()
    return {name: float(re.search(rf"^axtrain_{name} (\S+)$", text, re.M).group(1))
            for name in ("passes_total", "decode_passes_total", "prompt_seconds_total", "decode_seconds_total")}


def steady(port, o):
    rows, draw = [], random.Random(1)
    for i in range(o.pairs):
        stop, firsts = threading.Event(), []

        def background(seed):
            own = random.Random(seed)
            while not stop.is_set():
                c, r = post(port, {"model": "load", "prompt": [own.randrange(1000, 40000) for _ in range(o.prompt)], "stream": True,
                                   "max_tokens": 2000, "temperature": 0, "ignore_eos": True})
                for _ in r:
                    if stop.is_set():
                        break
                c.close()
        threads = [threading.Thread(target=background, args=(100 * i + k,)) for k in range(o.clients - 1)]
        for t in threads:
            t.start()
            time.sleep(0.05)
        time.sleep(1)
        before = counters(port)
        for _ in range(o.requests):
            time.sleep(draw.uniform(0.05, 0.3))
            ask(port, [draw.randrange(1000, 40000) for _ in range(o.prompt)], 2, firsts, {})
        after = counters(port)
        stop.set()
        for t in threads:
            t.join()
        d = {k: after[k] - before[k] for k in after}
        one = d["prompt_seconds_total"] / (d["passes_total"] - d["decode_passes_total"])
        first = statistics.median(firsts)
        rows.append((first, max(firsts), one, d["decode_seconds_total"] / d["decode_passes_total"], first / one))
    say(rows, "first token %.3f s (longest %.3f), pass with a prompt %.3f s, without %.3f s, ratio %.2f")


def with_schema(port, o):
    rows = []
    for i in range(o.pairs):
        free, _ = load(port, o, i)
        held, _ = load(port, o, i, {"guided_json": SCHEMA})
        rows.append((free, held, held / free))
    say(rows, "free %.0f tokens/s, held to a schema %.0f, ratio %.2f")


def beside_llama(port, o):
    import xllamacpp
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.gguf")
        subprocess.run([o.axtrain, "convert", o.model, path, "--to", "gguf", "--quant", "bf16"], check=True, stderr=subprocess.DEVNULL)
        p = xllamacpp.CommonParams()
        p.model.path = path
        p.n_parallel = o.clients
        p.n_ctx = o.clients * (o.prompt + o.new + 8)
        p.cpuparams.n_threads = p.cpuparams_batch.n_threads = len(os.sched_getaffinity(0))
        p.warmup = True
        p.port = 0
        server = xllamacpp.Server(p)
        other = int(re.search(r":(\d+)$", server.listening_address).group(1))
        for i in range(o.pairs):
            ours, first = load(port, o, i)
            theirs, later = load(other, o, i, {"cache_prompt": False})
            rows.append((ours, theirs, ours / theirs, first, later))
    say(rows, "axtrain %.0f tokens/s, llama.cpp %.0f, ratio %.2f, first token %.3f s and %.3f s")


def resident(process):
    with open(f"/proc/{process.pid}/status") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1)) / 1024


def in_a_row(process, port, o):
    def some(n):
        for i in range(n):
            c, r = post(port, {"model": "load", "prompt": f"Number {i}", "max_tokens": 2, "temperature": 0, "stream": i % 2 == 0})
            r.read()
            c.close()
    some(200)
    sizes = [resident(process)]
    for _ in range(o.requests):
        some(1000)
        sizes.append(resident(process))
    print("MiB after 200 requests, and after each 1,000 more: " + ", ".join(f"{s:.1f}" for s in sizes))


def main():
    a = argparse.ArgumentParser()
    a.add_argument("axtrain")
    a.add_argument("model")
    a.add_argument("--what", choices=("bench", "steady", "schema", "llama", "row"), default="bench")
    for name, default in (("--clients", 16), ("--requests", 4), ("--prompt", 100), ("--new", 64), ("--pairs", 5)):
        a.add_argument(name, type=int, default=default)
    o = a.parse_args()
    p, port = serve(o)
    if o.what == "row":
        in_a_row(p, port, o)
    else:
        {"bench": beside_bench, "steady": steady, "schema": with_schema, "llama": beside_llama}[o.what](port, o)
    p.terminate()
    p.wait()


if __name__ == "__main__":
    main()

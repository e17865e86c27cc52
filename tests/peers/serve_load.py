#!/usr/bin/env python3
"""Load on `axtrain serve`: clients that ask one request after the other, beside `axtrain bench generate`.

    serve_load.py AXTRAIN MODEL [--clients N] [--requests K] [--prompt P] [--new T] [--pairs N]

Each of N clients streams K completions of P token ids and T new tokens, greedy, without an end. Prints per pair the
tokens per second of all clients, those of `bench generate --batch N` with the same weights (prompt included), their
ratio, and the median time to a first token; then the medians.
"""
import argparse
import http.client
import json
import random
import re
import statistics
import subprocess
import threading
import time


def ask(port, ids, new, firsts):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    body = {"model": "load", "prompt": ids, "max_tokens": new, "temperature": 0, "ignore_eos": True, "stream": True}
    start = time.monotonic()
    c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    r = c.getresponse()
    if r.status != 200:
        raise SystemExit(r.read().decode())
    first = None
    for line in r:
        if first is None and line.startswith(b"data: {"):
            first = time.monotonic() - start
    firsts.append(first)
    c.close()


def load(port, o, seed):
    """(tokens per second, median seconds to a first token)"""
    draw, firsts = random.Random(seed), []
    prompts = [[[draw.randrange(1000, 40000) for _ in range(o.prompt)] for _ in range(o.requests)] for _ in range(o.clients)]
    threads = [threading.Thread(target=lambda own=own: [ask(port, ids, o.new, firsts) for ids in own]) for own in prompts]
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


def main():
    a = argparse.ArgumentParser()
    a.add_argument("axtrain")
    a.add_argument("model")
    for name, default in (("--clients", 16), ("--requests", 4), ("--prompt", 100), ("--new", 64), ("--pairs", 5)):
        a.add_argument(name, type=int, default=default)
    o = a.parse_args()
    p, port = serve(o)
    rows = []
    for i in range(o.pairs):
        served, first = load(port, o, i)
        alone = bench(o)
        rows.append((served, alone, served / alone, first))
        print("served %.0f tokens/s, bench %.0f, ratio %.2f, first token %.2f s" % rows[-1], flush=True)
    p.terminate()
    p.wait()
    print("median: served %.0f tokens/s, bench %.0f, ratio %.2f, first token %.2f s"
          % tuple(statistics.median(r[k] for r in rows) for k in range(4)))


if __name__ == "__main__":
    main()

"""Programs a second of the usual sandbox for code rewards: a pool of processes, each of which starts a CPython in
WebAssembly with wasmtime-py for every program. For comparison with `build/tests/bench/sandbox bench` on the same
machine.

usage: sandbox_pool.py PYTHON.wasm [--processes 2] [--seconds 20]       (run from the repository; needs `pip install wasmtime`)

The interpreter is compiled once, its native code is shared, and a run has fuel and a limit of memory as ours do.
"""
import argparse
import ast
import multiprocessing
import os
import re
import statistics
import tempfile
import time

import wasmtime

FUEL, MEMORY = 2_000_000_000, 256 << 20


def programs():
    """The texts that axtrain's own benchmark runs."""
    source = open(os.path.join(os.path.dirname(__file__), "../bench/sandbox.c")).read()
    for name in ("trivial", "typical"):
        literals = re.search(r"%s\[\] =\s+((?:\"(?:[^\"\\]|\\.)*\"\s*)+);" % name, source).group(1)
        yield name, ast.literal_eval("(" + literals + ")")


def engine():
    config = wasmtime.Config()
    config.consume_fuel = True
    return wasmtime.Engine(config)


def work(module_path, program, seconds, results):
    runner = engine()
    module = wasmtime.Module.deserialize_file(runner, module_path)
    linker = wasmtime.Linker(runner)
    linker.define_wasi()
    times = []
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        while time.monotonic() < end:
            start = time.monotonic()
            store = wasmtime.Store(runner)
            store.set_fuel(FUEL)
            store.set_limits(memory_size=MEMORY)
            wasi = wasmtime.WasiConfig()
            wasi.argv = ("python", "-I", "-S", "-B", "-c", program)
            wasi.stdout_file = out
            store.set_wasi(wasi)
            instance = linker.instantiate(store, module)
            try:
                instance.exports(store)["_start"](store)
            except wasmtime.ExitTrap as exit:
                assert exit.code == 0, exit.code
            assert os.path.getsize(out) > 0
            times.append(time.monotonic() - start)
    results.put(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20)
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "module")
        with open(path, "wb") as f:
            f.write(wasmtime.Module.from_file(engine(), a.python).serialize())
        for name, program in programs():
            results = multiprocessing.Queue()
            workers = [multiprocessing.Process(target=work, args=(path, program, a.seconds, results))
                       for _ in range(a.processes)]
            for w in workers:
                w.start()
            times = [t for w in workers for t in results.get()]
            for w in workers:
                w.join()
            print(f"{name}: {len(times) / a.seconds:.1f} runs/s, median {1e3 * statistics.median(times):.1f} ms")


main()

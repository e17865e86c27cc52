# Runs reward functions of the user. axtrain starts it with this text behind its length on standard
# input, where then a line of JSON asks and a line on standard output answers:
#   {"load": "module.function"}  ->  {"rewards": []}
#   {"function": "module.function", "prompts": [...], "completions": [...], "completion_ids": [...],
#    "columns": {...}}           ->  {"rewards": [1.0, null, "nan"]}
# or {"error": ..., "at": "file:line"}. Both streams are ours alone: what functions print goes to
# standard error, and what they read is empty.
import asyncio
import difflib
import importlib
import inspect
import json
import math
import os
import queue
import sys
import threading
import time
import traceback

HARNESS = "axtrain rewards"
answers = os.dup(1)
os.dup2(2, 1)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
sys.stdout.reconfigure(line_buffering=True)
sys.path.insert(0, os.getcwd())  # after our own imports, which no file there can replace
functions = {}
loop = None


class Refused(Exception):
    """What is wrong with a function, or with what it returned."""


def read_lines(lines):
    """Up to the end of axtrain, however that comes: then a function that still runs has no use."""
    for line in stream:
        if line.endswith(b"\n"):
            lines.put(line)
    lines.put(None)
    time.sleep(2)
    os._exit(1)


def say(message):
    data = (json.dumps(message) + "\n").encode()
    while data:
        data = data[os.write(answers, data):]


def place(error):
    """Where in the user's files: the innermost line that belongs to no package."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{shown(error.filename)}:{error.lineno}"
    frames = [f for f in traceback.extract_tb(error.__traceback__)
              if f.filename not in (HARNESS, importlib.__file__) and not f.filename.startswith("<")]
    own = [f for f in frames if not f.filename.startswith((sys.prefix, sys.base_prefix))] or frames
    return f"{shown(own[-1].filename)}:{own[-1].lineno}" if own else None


def shown(path):
    short = os.path.relpath(path)
    return path if short.startswith("..") else short


def load(name):
    module_name, _, attribute = name.rpartition(".")
    module = importlib.import_module(module_name)
    if not hasattr(module, attribute):
        near = difflib.get_close_matches(attribute, dir(module), 1)
        where = getattr(module, "__file__", None)
        raise Refused(f"{shown(where) if where else module_name} has no function {attribute}"
                      + (f"; did you mean {near[0]}?" if near else ""))
    function = getattr(module, attribute)
    if not callable(function):
        raise Refused(f"{name} is of type {type(function).__name__}, which cannot be called")
    functions[name] = function, accepted(function)


def accepted(function):
    """The names of its parameters; None if it takes any."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return {p.name for p in parameters}


def as_number(x):
    if x is None:
        return None
    x = float(x)
    return x if math.isfinite(x) else str(x)


def call(request):
    global loop
    function, names = functions[request["function"]]
    arguments = {**request["columns"], "trainer_state": None}
    for key in ("prompts", "completions", "completion_ids"):
        arguments[key] = request[key]
    if names is not None:
        arguments = {k: v for k, v in arguments.items() if k in names}
    result = function(**arguments)
    if inspect.isawaitable(result):
        loop = loop or asyncio.new_event_loop()
        result = loop.run_until_complete(result)
    try:
        return [as_number(x) for x in result]
    except (TypeError, ValueError) as e:
        raise Refused(f"it must return a list of numbers or None, not {result!r:.100} ({e})")


def text(error):
    """As JSON that every reader accepts: file names may have other bytes in them."""
    return str(error).encode("utf-8", "replace").decode()[:300]


def answer(request):
    try:
        if "load" not in request:
            return {"rewards": call(request)}
        load(request["load"])
        return {"rewards": []}
    except Refused as e:
        return {"error": text(e)}
    except BaseException as e:  # SystemExit, too: it must not end the process
        return {"error": text(f"{type(e).__name__}: {e}"), "at": place(e)}


def main():
    lines = queue.Queue()
    threading.Thread(target=read_lines, args=(lines,), daemon=True).start()
    while (line := lines.get()) is not None:
        message = answer(json.loads(line))
        sys.stdout.flush()
        sys.stderr.flush()
        say(message)


main()

# Runs functions of the user: rewards, tools and environments. axtrain starts it with this text behind its length on
# standard input, where then a line of JSON asks and a line on standard output answers:
#   {"load": "module.function"}  ->  {"rewards": []}
#   {"function": "module.function", "prompts": [...], "completions": [...], "completion_ids": [...],
#    "columns": {...}, "trainer_state": {...}}  ->  {"rewards": [1.0, null, "nan"], "metrics": {name: [sum, calls]},
#                                                    "extra": {column: [...]}}, the last two if something is logged
#   {"tool": "module.function" or "file.py:function"}  ->  {"schema": {...}, "late": false}
#   {"call": the same, "arguments": {...}}  ->  {"result": "text", "failed": false}
#   {"environment": the same, of a class or factory}  ->  {"title": "Class", "steps": true, "tools": [schema, ...],
#                                                          "late": [name, ...]}
#   {"reset": {record}, "seed": 1, "rollout": 17}  ->  {"observation": "text" or null}
#   {"step": "answer", "rollout": 17}  ->  {"observation": "text" or null, "reward": 1.0, "done": false}
#   {"call": method, "arguments": {...}, "rollout": 17}  ->  as that of a tool
#   {"close": 17}  ->  {"reward": 1.0}
# or {"error": ..., "at": "file:line"}. Both streams are ours alone: what functions print goes to
# standard error, and what they read is empty.
import importlib
import importlib.util
import inspect
import json
import math
import os
import queue
import re
import signal
import sys
import threading
import time
import traceback
import types
import typing

HARNESS = "axtrain rewards"
answers = os.dup(1)
os.dup2(2, 1)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
sys.stdout.reconfigure(line_buffering=True)
# the keeper blocks the run's signals, by which pools end their workers
os.register_at_fork(after_in_child=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, ()))
sys.path.insert(0, os.getcwd())  # after our own imports, which no file there can replace
functions = {}
environments = {}  # by rollout
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


def module_of(name):
    """The module of "module.function" or "file.py:function", and the function's name."""
    path, colon, attribute = name.rpartition(":")
    if not colon:
        module_name, _, attribute = name.rpartition(".")
        return importlib.import_module(module_name), module_name, attribute
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(spec.name, module)
    spec.loader.exec_module(module)
    return module, path, attribute


def load(name):
    module, module_name, attribute = module_of(name)
    if not hasattr(module, attribute):
        import difflib
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


def settled(result):
    """What it is, or, of an async function's, what it comes to."""
    global loop
    if not inspect.isawaitable(result):
        return result
    import asyncio  # takes longer than all that is imported above, for what few functions are
    loop = loop or asyncio.new_event_loop()
    return loop.run_until_complete(result)


class TrainerState:
    """What a run tells of transformers' one."""

    def __init__(self, values):
        self.__dict__.update(values)

    def __getattr__(self, name):
        raise AttributeError(f"trainer_state has {', '.join(vars(self))}, and no {name}")


MOST_NAMES = 64  # of metrics and of columns, in a call
MOST_NAME = 95  # bytes
MOST_VALUE = 1 << 14  # characters
MOST_VALUES = 1 << 18  # characters that a completion's values have as JSON, on average


class Logged:
    """What a call logs. What takes its time outlives the call, and logs to nobody."""

    def __init__(self, n):
        self.n, self.metrics, self.extra = n, {}, {}

    def log_metric(self, name, value):
        check_name("log_metric", name, self.metrics)
        try:
            if isinstance(value, (str, bytes)):
                raise TypeError
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            raise TypeError(f'log_metric("{name}"): expected a number, got {value!r:.100}') from None
        self.metrics.setdefault(name, []).append(number)

    def log_extra(self, column, values):
        """Values come together or bit by bit; all of them replace those that were there, as the last ones count in TRL."""
        check_name("log_extra", column, self.extra)
        if isinstance(values, (str, bytes, dict)) or not hasattr(values, "__iter__"):
            raise TypeError(f'log_extra("{column}"): expected a list of values, got {values!r:.100}')
        values = [plain(x) for x in values]
        if len(values) != self.n:
            values = self.extra.get(column, []) + values
        self.check_count(column, values, len(values) <= self.n)
        self.extra[column] = values

    def check_count(self, column, values, right):
        if not right:
            raise ValueError(f'log_extra("{column}"): {len(values)} values for {self.n} completions')

    def put(self, answer):
        metrics, extra = dict(self.metrics), dict(self.extra)
        for column, values in extra.items():
            self.check_count(column, values, len(values) == self.n)
        if len(json.dumps(extra)) > MOST_VALUES * (self.n + 1):
            raise ValueError(f"log_extra: more than {MOST_VALUES >> 10} KiB of values for each completion")
        if metrics:
            answer["metrics"] = {name: [as_number(sum(values)), len(values)] for name, values in metrics.items()}
        if extra:
            answer["extra"] = extra
        return answer


def check_name(function, name, names):
    if not isinstance(name, str):
        raise TypeError(f"{function}: expected a name, a string, got {name!r:.100}")
    if not name or not name.isprintable() or len(name.encode()) > MOST_NAME:
        raise ValueError(f"{function}: expected a name of 1 to {MOST_NAME} printable bytes, got {name!r:.100}")
    if name not in names and len(names) == MOST_NAMES:
        raise ValueError(f'{function}("{name}"): more than {MOST_NAMES} names')


def plain(value):
    """As JSON, and short."""
    made = as_json(value)
    whole = made if isinstance(made, str) else json.dumps(made)
    return made if len(whole) <= MOST_VALUE else shortened(whole, MOST_VALUE)


def as_json(value):
    if isinstance(value, dict):
        return {as_json(str(k)).replace("\0", "\ufffd"): as_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(v) for v in value]
    if hasattr(value, "tolist"):  # numbers and tensors of numpy and torch
        return as_json(value.tolist())
    if isinstance(value, float):
        return as_number(value)
    if value is None or isinstance(value, bool) or (isinstance(value, int) and abs(value) < 1 << 63):
        return value
    return str(value).encode("utf-8", "replace").decode()


def call(request):
    function, names = functions[request["function"]]
    logged = Logged(len(request["completions"]))
    arguments = {**request["columns"], "trainer_state": TrainerState(request["trainer_state"]),
                 "log_extra": logged.log_extra, "log_metric": logged.log_metric}
    for key in ("prompts", "completions", "completion_ids"):
        arguments[key] = request[key]
    if names is not None:
        arguments = {k: v for k, v in arguments.items() if k in names}
    result = settled(function(**arguments))
    try:
        rewards = [as_number(x) for x in result]
    except (TypeError, ValueError) as e:
        raise Refused(f"it must return a list of numbers or None, not {result!r:.100} ({e})")
    return logged.put({"rewards": rewards})


# ---- tools: their definitions as transformers' get_json_schema makes them ----

NAMES = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null", dict: "object", list: "array"}
SECTIONS = r"(?:Args|Returns|Raises):"


def type_schema(hint):
    if hint is typing.Any or hint is inspect.Parameter.empty:
        return {}
    if hint in NAMES:
        return {"type": NAMES[hint]}
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return union_schema(parts)
    if origin is list:
        return {"type": "array", "items": type_schema(parts[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": type_schema(parts[1])}
    if origin is typing.Literal:
        kinds = sorted({NAMES[type(p)] for p in parts})
        return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": list(parts)}
    raise Refused(f"the type hint {hint} has no JSON schema")


def union_schema(parts):
    some = [type_schema(p) for p in parts if p is not type(None)]
    if len(some) == 1:
        schema = some[0]
    elif all(isinstance(s.get("type"), str) and len(s) == 1 for s in some):
        schema = {"type": sorted(s["type"] for s in some)}
    else:
        schema = {"anyOf": some}
    if type(None) in parts:
        schema["nullable"] = True
    return schema


def sections(function):
    """What a docstring in Google's style says: of the function, of each argument, and of what it returns."""
    doc = inspect.cleandoc(function.__doc__ or "")
    parts = re.split(rf"^({SECTIONS})[ \t]*$", doc, flags=re.M)
    named = dict(zip(parts[1::2], parts[2::2]))
    arguments = {}
    for line in inspect.cleandoc(named.get("Args:", "")).splitlines():
        found = re.match(r"(\w+)(?:\s*\([^)]*\))?:\s*(.*)", line)
        if found:
            last = found[1]
            arguments[last] = found[2]
        elif line.strip() and arguments:
            arguments[last] += " " + line.strip()
    returns = inspect.cleandoc(named.get("Returns:", "")).strip()
    return parts[0].strip(), arguments, returns


def argument_schema(name, hint, told):
    if name not in told:
        raise Refused(f"its docstring does not say what {name} is: a line \"{name}: ...\" below Args:")
    schema = type_schema(hint)
    choices = re.search(r"\(choices:\s*(.*?)\)\s*$", told[name])
    if choices:
        schema["enum"] = json.loads(choices[1].replace("'", '"'))
    schema["description"] = told[name][:choices.start()].strip() if choices else told[name].strip()
    return schema


def schema_of(function):
    hints = typing.get_type_hints(function)
    what, told, returns = sections(function)
    if not what:
        raise Refused("it has no docstring that says what it does")
    properties, required = {}, []
    for name, p in inspect.signature(function).parameters.items():
        if name not in hints:
            raise Refused(f"its argument {name} has no type hint")
        properties[name] = argument_schema(name, hints[name], told)
        if p.default is p.empty:
            required.append(name)
    parameters = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = required
    schema = {"name": function.__name__, "description": what, "parameters": parameters}
    if "return" in hints:
        schema["return"] = type_schema(hints["return"])
        if returns:
            schema["return"]["description"] = returns
    return {"type": "function", "function": schema}


def load_tool(request):
    load(request["tool"])
    function = functions[request["tool"]][0]
    return {"schema": schema_of(function), "late": inspect.iscoroutinefunction(function)}


def call_tool(request):
    """As in TRL: what a function raises is a result, too."""
    name, begun = request["call"], False
    try:
        function = getattr(environments[request["rollout"]], name) if "rollout" in request else functions[name][0]
        made = function(**request["arguments"])
        begun = True
        return {"result": result_text(settled(made)), "failed": False}
    except BaseException as e:
        return {"result": result_text({"error": str(e)}), "failed": True, "refused": not begun}


def result_text(result):
    return shortened(str(result), 1 << 16).encode("utf-8", "replace").decode()


def shortened(whole, most):
    half = most // 2
    if len(whole) <= most:
        return whole
    return f"{whole[:half]}\n[... {len(whole) - most} characters are left out ...]\n{whole[-half:]}"


# ---- environments: objects with reset, and step or methods that are tools, as TRL's environment_factory makes them ----

RESERVED = ("reset", "step", "get_reward")


def load_environment(request):
    """As in TRL, public methods are tools, in the order of their names."""
    load(request["environment"])
    environment = functions[request["environment"]][0]()
    title = type(environment).__name__
    if not callable(getattr(environment, "reset", None)):
        raise Refused(f"{title} has no method reset")
    methods = [f for n, f in inspect.getmembers(environment, inspect.ismethod) if n not in RESERVED and n[0] != "_"]
    steps = callable(getattr(environment, "step", None))
    if not steps and not methods:
        raise Refused(f"{title} has no method step, and no other that is a tool")
    return {"title": title, "steps": steps, "tools": [schema_of(f) for f in methods],
            "late": [f.__name__ for f in methods if inspect.iscoroutinefunction(f)]}


def reset(request):
    """A new object for each answer, with the columns of the record that it takes, and with `seed`."""
    (factory, _), = functions.values()
    environment = factory()
    names = accepted(environment.reset)
    columns = {"seed": request["seed"], **request["reset"]}
    if names is not None:
        columns = {k: v for k, v in columns.items() if k in names}
    observation = settled(environment.reset(**columns))
    environments[request["rollout"]] = environment
    return {"observation": seen(observation)}


def step(request):
    try:
        return outcome(settled(environments[request["rollout"]].step(request["step"])))
    except BaseException:
        del environments[request["rollout"]]
        raise


def seen(observation):
    return None if observation is None else result_text(observation)


def outcome(x):
    """An observation alone; (observation, reward, done); Gymnasium's five; a dict or an object with these names."""
    observation, reward, done = x, None, False
    if isinstance(x, dict):
        observation, reward, done = (x.get(key) for key in ("observation", "reward", "done"))
    elif isinstance(x, tuple) and len(x) == 3:
        observation, reward, done = x
    elif isinstance(x, tuple) and len(x) == 5:
        observation, reward, done = x[0], x[1], x[2] or x[3]
    elif isinstance(x, tuple):
        raise Refused(f"step must return an observation, or (observation, reward, done), not {x!r:.100}")
    elif hasattr(x, "observation"):
        observation, reward, done = x.observation, getattr(x, "reward", None), getattr(x, "done", False)
    return {"observation": seen(observation), "reward": as_number(reward), "done": bool(done)}


def close(request):
    environment = environments.pop(request["close"])
    get_reward = getattr(environment, "get_reward", None)
    return {"reward": as_number(settled(get_reward())) if get_reward else None}


def text(error):
    """As JSON that every reader accepts: file names may have other bytes in them."""
    return str(error).encode("utf-8", "replace").decode()[:300]


def load_reward(request):
    load(request["load"])
    names = functions[request["load"]][1]
    if names and "environments" in names:
        raise Refused("it takes environments, which are in another process: give their reward by get_reward")
    return {"rewards": []}


QUESTIONS = {"load": load_reward, "function": call, "tool": load_tool, "call": call_tool,
             "environment": load_environment, "reset": reset, "step": step, "close": close}


def answer(request):
    try:
        return next(f for key, f in QUESTIONS.items() if key in request)(request)
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

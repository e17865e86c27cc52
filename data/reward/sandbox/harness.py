"""Runs inside the sandbox's interpreter; the snapshot is taken at the end of this file.

Everything here is in reach of the program that is run: nothing in this file protects anything. What it
says of a program's end is what the program itself could say. Tests are never in the instance of the
candidate that they test.
"""
import abc, array, ast, base64, binascii, bisect, builtins, calendar, cmath, collections, contextlib, copy
import dataclasses, datetime, decimal, difflib, enum, fractions, functools, gc, hashlib, heapq, inspect, io
import itertools, json, keyword, linecache, math, numbers, operator, os, pprint, queue, random, re
import statistics, string, struct, sys, textwrap, time, tokenize, traceback, types, typing, unicodedata, warnings
import atexit, collections.abc, encodings.idna, encodings.latin_1, encodings.ascii


def read_input(read=os.read):
    """A segment of the input: what comes until an empty read."""
    parts = []
    while part := read(0, 65536):
        parts.append(part)
    return b"".join(parts)


def run_program():
    """A program as `python FILE` would run it; ends the process."""
    code = 1
    source = read_input()
    try:
        main = types.ModuleType("__main__")
        main.__builtins__ = builtins
        sys.modules["__main__"] = main
        sys.argv = ["main.py"]
        exec(compile(source, "main.py", "exec"), main.__dict__)
        code = 0
    except SystemExit as end:
        code = exit_code(end.code)
    except BaseException as error:
        report(error)
    try:
        atexit._run_exitfuncs()
    except BaseException:
        pass
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            pass
    os._exit(code)


def exit_code(code):
    if code is None:
        return 0
    if isinstance(code, int):
        return code if 0 <= code <= 125 else 1
    try:
        print(code, file=sys.stderr)
    except BaseException:
        pass
    return 1


def report(error):
    """The traceback without the harness's own frame."""
    try:
        error.__traceback__ = error.__traceback__.tb_next
        traceback.print_exception(error)
    except BaseException:
        pass


# ---- a candidate and its tests, in two instances ----
#
# The tests' instance writes messages to its output and reads the answers of the candidate's from its input;
# both are JSON. A value that is not a
# list is itself; others are [kind, ...]: see encode(). Only values of exactly the plain types cross;
# all others stay where they are, and the tests get a handle.

PLAIN = {type(None), bool, int, float, str}
TO_LIST = {list: "l", tuple: "t", set: "s", frozenset: "z"}
FROM_LIST = {"l": list, "t": tuple, "s": set, "z": frozenset}
MAX_INT = 1 << 53


def encode(value, other):
    """`other` gives the form of what is not plain."""
    kind = type(value)
    if kind is int:
        return value if -MAX_INT < value < MAX_INT else ["i", hex(value)]
    if kind in PLAIN:
        return value
    if kind in TO_LIST:
        return [TO_LIST[kind], [encode(v, other) for v in value]]
    if kind is dict:
        return ["d", [[encode(k, other), encode(v, other)] for k, v in value.items()]]
    if kind is bytes:
        return ["b", value.hex()]
    if kind is complex:
        return ["c", value.real, value.imag]
    return other(value)


def decode(form, handle):
    """`handle` gives the value of a handle's number. Anything may come: it is plain, or an error."""
    if type(form) in PLAIN:
        return form
    kind = form[0]
    if kind in FROM_LIST:
        return FROM_LIST[kind]([decode(f, handle) for f in form[1]])
    if kind == "d":
        return {decode(k, handle): decode(v, handle) for k, v in form[1]}
    if kind == "i":
        return int(form[1], 16)
    if kind == "b":
        return bytes.fromhex(form[1])
    if kind == "c":
        return complex(form[1], form[2])
    if kind == "h" and type(form[1]) is int:
        return handle(form[1])
    raise ValueError("no such kind of value")


# -- the candidate's side

candidate = {}
objects = []


def begin_candidate():
    """Loads the candidate; later calls answer messages."""
    global serve
    serve = answer
    try:
        main = types.ModuleType("candidate")
        main.__builtins__ = builtins
        exec(compile(read_input(), "candidate.py", "exec"), main.__dict__)
        candidate.update(main.__dict__)
    except Exception as error:
        report(error)
        os._exit(1)
    except BaseException:
        os._exit(1)
    return b""


def keep(value):
    for i, known in enumerate(objects):
        if known is value:
            return ["h", i]
    objects.append(value)
    return ["h", len(objects) - 1]


def find_names(names):
    module = types.ModuleType
    return {n: candidate[n] for n in names if n in candidate and type(candidate[n]) is not module}


OPERATIONS = {"getattr": getattr, "setattr": setattr, "len": len, "iter": iter, "next": next, "str": str, "repr": repr,
              "call": lambda f, args, kwargs: f(*args, **kwargs), "names": find_names}
for name in ("getitem setitem delitem neg pos invert abs "
             "add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift").split():
    OPERATIONS[name] = getattr(operator, name)


def answer():
    """[operation, argument, ...] -> ["ok", value, [what lists, dicts and sets among the arguments are now]]
    or ["error", name of a builtin exception, text]."""
    try:
        name, *forms = json.loads(read_input())
        args = [decode(f, objects.__getitem__) for f in forms]
        given = [a for a in args[1] if type(a) in (list, dict, set)] if name == "call" else []
        value = OPERATIONS[name](*args)
        reply = ["ok", encode(value, keep), [encode(a, keep) for a in given]]
    except Exception as error:
        names = [t.__name__ for t in type(error).__mro__ if getattr(builtins, t.__name__, None) is t]
        try:
            text = str(error)
        except Exception:
            text = ""
        reply = ["error", names[0], text]
    except BaseException:
        os._exit(1)
    return json.dumps(reply).encode()


# -- the tests' side

handles = {}


def ask(operation, *args):
    message = json.dumps([operation, *(encode(a, form_of) for a in args)]).encode()
    while message:
        message = message[os.write(1, message):]
    reply = json.loads(read_input())
    if type(reply) is not list or len(reply) != 3:
        raise ValueError("not an answer")
    status, value, more = reply
    if status == "error":
        kind = getattr(builtins, value, None) if type(value) is str else None
        known = isinstance(kind, type) and issubclass(kind, Exception)
        raise (kind if known else Exception)(str(more))
    if operation == "call":
        write_back(args[1], more)
    return decode(value, handle_of)


def write_back(args, forms):
    """The lists, dicts and sets among the arguments get the contents that they have on the other side."""
    for target, form in zip([a for a in args if type(a) in (list, dict, set)], forms):
        value = decode(form, handle_of)
        if type(value) is not type(target):
            raise TypeError("an argument became something else")
        if type(target) is list:
            target[:] = value
        elif value != target:
            target.clear()
            target.update(value)


def form_of(value):
    if type(value) is not Handle:
        raise TypeError("the candidate's functions take plain values and the candidate's own objects")
    return ["h", object.__getattribute__(value, "number")]


def handle_of(number):
    if number not in handles:
        handles[number] = handle = object.__new__(Handle)
        object.__setattr__(handle, "number", number)
    return handles[number]


class Handle:
    """An object of the candidate. Equal only to itself, neither true nor false, and in no order."""

    __slots__ = ("number",)

    def __getattribute__(self, name):
        return ask("getattr", self, name)

    def __setattr__(self, name, value):
        ask("setattr", self, name, value)

    def __call__(self, *args, **kwargs):
        return ask("call", self, list(args), kwargs)

    def __bool__(self):
        raise TypeError("an object of the candidate has no truth value")

    def __len__(self):
        return exact(ask("len", self), int)

    def __str__(self):
        return exact(ask("str", self), str)

    def __repr__(self):
        return exact(ask("repr", self), str)

    def __iter__(self):
        iterator = ask("iter", self)
        while True:
            try:
                yield ask("next", iterator)
            except StopIteration:
                return


def exact(value, kind):
    if type(value) is not kind:
        raise TypeError("the candidate's object is not what it has to be")
    return value


def forward(operation, reflected=False):
    """Arithmetic of the candidate's objects makes others of them: a plain result, such as the difference of a
    result and what is expected, is not the candidate's to say."""

    def call(self, *others):
        return exact(ask(operation, *others, self) if reflected else ask(operation, self, *others), Handle)

    return call


for name in "getitem setitem delitem".split():
    setattr(Handle, f"__{name}__", lambda self, *args, name=name: ask(name, self, *args))
for name in "neg pos invert abs add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift".split():
    setattr(Handle, f"__{name.rstrip('_')}__", forward(name))
for name in "add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift".split():
    setattr(Handle, f"__r{name.rstrip('_')}__", forward(name, True))


def same(value, expected, tolerance=0.0):
    """Equality of what JSON can say: lists are tuples, numbers may differ by a tolerance."""
    if type(value) in (list, tuple) and type(expected) in (list, tuple):
        return len(value) == len(expected) and all(same(v, e, tolerance) for v, e in zip(value, expected))
    if type(value) is dict and type(expected) is dict:
        return value.keys() == expected.keys() and all(same(value[k], expected[k], tolerance) for k in value)
    if tolerance and {type(value), type(expected)} <= {int, float}:
        return abs(value - expected) <= tolerance * max(1.0, abs(expected))
    return type(value) in PLAIN and type(expected) in PLAIN and value == expected


def names_of(code):
    found = set(code.co_names)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            found |= names_of(const)
    return found


def begin_tests():
    global serve
    serve = run_test
    sys.stdout = sys.stderr
    return run_test()


def run_test():
    """A test passes if it ends without an exception. What it does not define is the candidate's: but for
    builtins and the library's modules, which a candidate cannot replace."""
    scope = {"__name__": "tests", "same": same, "json": json}
    try:
        code = compile(read_input(), "test.py", "exec")
        wanted = [n for n in names_of(code) if n not in scope and not hasattr(builtins, n)]
        for name in wanted:
            if name in sys.modules:
                scope[name] = sys.modules[name]
        found = ask("names", sorted(n for n in wanted if n not in scope))
        scope.update((n, v) for n, v in found.items() if n in wanted and n not in scope)
        exec(code, scope)
        return b"1"
    except BaseException as error:
        report(error)
        return b"0"


# ---- the beginning ----

kinds = {b"program": run_program, b"candidate": begin_candidate, b"tests": begin_tests}


def serve():
    """What the first segment of the input asks for. Later calls are for what this leaves in its place."""
    return kinds[read_input()]()


def entry():
    return serve()


def warm():
    """What a program's first use would do: it is in the snapshot then."""
    scope = {}
    exec(compile("import math\nclass A:\n    def f(self, x=1):\n        return [i for i in range(x)]\n"
                 "A().f()\ntry:\n    1 / 0\nexcept ZeroDivisionError as e:\n    pass\n", "main.py", "exec"), scope)
    re.compile(r"(\w+)\s*=\s*(\d+)").match("a = 1")
    json.loads(json.dumps({"a": [1, 2.5, None, "x"]}))
    f"{1.5:.2f} {'x':>5} {12:,d}"
    try:
        raise ValueError("x")
    except ValueError as error:
        traceback.format_exception(error)
    random.seed(0)
    decode(json.loads(json.dumps(encode([1, (2.5, "x"), {"a": {3}}, b"", 1 << 60], None))), None)


warm()
stack = bytes(8 << 20)  # the interpreter's own stack may be small: the snapshot's is in here
bytearray(4 << 20)  # room that is free at the start: a larger memory means a new instance
linecache.clearcache()
gc.collect()
gc.freeze()
sys.stdout.write("%d %d\n" % (id(entry), id(stack)))
sys.stdout.flush()
time.time()

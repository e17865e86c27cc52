"""Writes tests/data/jinja_random.json: random templates of what is supported, and what jinja2 makes of them.

    python3 tests/peers/make_jinja_random.py

Needs transformers and jinja2. Half of the expressions are errors by their types; those say only that they are.
"""
import json
import os
import random
import re
import warnings

import jinja_peer

warnings.simplefilter("ignore")

CASES, LONGEST = 1500, 300
VARIABLES = {
    "xs": [3, 1, 2], "e": [], "n": None, "t": True, "i": -7, "f": 2.5, "s": "Ab c,d", "u": "\u00e9\u00df\u4e2d\U0001f600 x", "w": "  pad\t\n",
    "d": {"b": 2, "a": [1, "x"], "C": None}, "m": [{"role": "user", "k": 2}, {"role": "a\"b", "k": 1.5}, {"role": "", "k": 3}],
    "h": "<a href='x'>&</a>", "deep": {"x": {"y": [0, {"z": "end"}]}},
}
LITERALS = ["0", "1", "2", "-1", "3.0", "0.1", "1e3", "true", "none", "''", "'a'", "'A,b'", "\"it's\"", "'\\n'", "[]", "[1, 'b', none]", "{}",
            "{'k': 1}", "(1, 2)", "()", "missing", "'12'", "' 7 '", "'1.5'", "range(3)", "range(5, 0, -2)"]
TESTS = ["string", "defined", "none", "mapping", "iterable", "sequence", "false", "undefined", "true", "boolean", "number", "integer",
         "float", "odd", "even", "callable"]
COMPARED = ["eq", "ne", "lt", "le", "gt", "ge", "in", "divisibleby"]
METHODS = ["upper()", "lower()", "strip()", "lstrip()", "rstrip()", "capitalize()", "title()", "split()", "split({})", "split({}, {})",
           "startswith({})", "endswith({})", "replace({}, {})", "replace({}, {}, {})", "find({})", "join({})", "splitlines()",
           "splitlines({})", "isdigit()", "strip({})", "lstrip({})", "rstrip({})", "items()", "keys()", "values()", "get({})",
           "get({}, {})", "k", "role", "b", "x", "x.y"]
FILTERS = ["items", "list", "length", "count", "first", "last", "join", "join({})", "join({}, attribute='role')", "sort", "sort(reverse=true)", "sort(reverse=i)",
           "sort(attribute='k')", "sort(false, true)", "dictsort", "dictsort(true)", "dictsort(by='value')", "dictsort(reverse=true)",
           "reverse", "reverse | list", "string", "safe", "title", "upper", "lower", "trim", "trim({})", "capitalize", "replace({}, {})",
           "replace({}, {}, {})", "indent", "indent({})", "indent({}, true)", "indent({}, first={}, blank={})", "tojson", "tojson(indent={})",
           "tojson(ensure_ascii={})", "tojson(separators=(',', ':'))", "tojson(sort_keys={})", "default({})", "default({}, true)", "d({})",
           "int", "int({})", "float", "float({})", "round", "round({})", "round({}, 'floor')", "round({}, 'ceil')",
           "map('upper') | list", "map(attribute='role') | list", "map(attribute='k', default={}) | list", "map('default', {}) | list",
           "select | list", "select('number') | list", "select('gt', {}) | list", "reject('none') | list", "reject | list",
           "selectattr('k') | list", "selectattr('k', 'gt', {}) | list", "rejectattr('role', 'equalto', {}) | list", "select('in', {}) | list"]
OPERATORS = ["+", "-", "*", "/", "//", "~", "==", "!=", "<", "<=", ">", ">=", "and", "or", "in", "not in"]


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def fill(self, form, depth):
        while "{}" in form:
            form = form.replace("{}", self.expression(depth), 1)
        return form

    def expression(self, depth):
        pick = self.random.choice
        if depth <= 0 or self.random.random() < 0.15:
            return pick(LITERALS) if self.random.random() < 0.5 else pick(list(VARIABLES))
        below, kind = depth - 1, self.random.randrange(9)
        of = self.expression(below)
        if kind == 0:
            return f"({of} {pick(OPERATORS)} {self.expression(below)})"
        if kind == 1:
            return f"({of}) | {self.fill(pick(FILTERS), 0)}"
        if kind == 2:
            return f"({of} | {self.fill(pick(FILTERS), 0)})"
        if kind == 3:
            return f"({of}).{self.fill(pick(METHODS), 0)}"
        if kind == 4:
            return f"({of}) is {pick(['', 'not '])}{pick(TESTS)}"
        if kind == 5:
            return f"({of}) is {pick(COMPARED)}({self.expression(0)})"
        if kind == 6:
            ends = [pick(["", "0", "1", "-1", "2", "-3", "9"]) for _ in range(3)]
            return f"({of})[{pick([ends[0] + ':' + ends[1], ':'.join(ends[:2] + [pick(['', '1', '2', '-1'])]), pick(['0', '-1', '1', chr(39) + 'b' + chr(39)])])}]"
        if kind == 7:
            return f"({of} if {self.expression(below)} else {self.expression(below)})"
        return f"({pick(['not', '-', '+'])} {of})"

    def template(self):
        pick, e = self.random.choice, lambda: self.expression(self.random.randrange(1, 4))
        kind = self.random.randrange(8)
        if kind < 4:
            return "{{ " + e() + " }}"
        if kind == 4:
            body = pick(["{{ loop.index }}{{ x }};", "{{ loop.last }}{{ loop.previtem }}", "{{ x }}{% if loop.first %}!{% continue %}{% endif %},",
                         "{{ loop.revindex0 }}{{ loop.cycle('p', 'q') }}", "{{ loop.length }}{{ loop.nextitem }}"])
            return "{% for x in " + e() + pick(["", " if x", f" if {e()}"]) + " %}" + body + pick(["", "{% else %}none"]) + "{% endfor %}"
        if kind == 5:
            return "{% if " + e() + " %}A{% elif " + e() + " %}B{% else %}C{% endif %}"
        if kind == 6:
            return "{% set v = " + e() + " %}{{ v }}{% set v %}[{{ " + e() + " }}]{% endset %}{{ v | length }}{{ v }}"
        return "{% macro a(p, q=" + self.expression(1) + ") %}{{ p }}/{{ q }}{% endmacro %}{{ a(" + e() + ") }}{{ a(q=" + e() + ", p=1) }}"


def main():
    cases, seen, seed = [], set(), 0
    while len(cases) < CASES:
        seed += 1
        template = Maker(seed).template()
        result = jinja_peer.render(template, VARIABLES)
        text = result.get("text", "")
        if template in seen or len(text) > LONGEST or len(template) > LONGEST or re.search(r" at 0x|built-in|<function|<class|<generator|range\(", text, re.I):
            continue
        seen.add(template)
        if "error" in result and seed % 4:  # most random expressions are errors
            continue
        cases.append({"template": template, **({"error": True} if "error" in result else {"text": text})})
    path = os.path.join(os.path.dirname(__file__), "..", "data", "jinja_random.json")
    with open(path, "w", encoding="ascii") as file:
        file.write('{"vars": ' + json.dumps(VARIABLES) + ',\n"cases": [\n ' + ",\n ".join(json.dumps(c) for c in cases) + "\n]}\n")
    print(len(cases), "cases,", sum("error" in c for c in cases), "errors")


if __name__ == "__main__":
    main()

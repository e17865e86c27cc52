"""Random Jinja templates and variables, for comparing `axtrain template` with jinja2.

Used by template_peer.py. Everything comes from one random.Random, so a seed names a case.
"""
NAMES = ["a", "b", "c", "xs", "d", "ns", "loop", "nope", "text", "x", "y"]
VALUES = [
    "0", "1", "2", "-3", "2.5", "true", "false", "none", "''", "'a'", "'Ab c'", "'é😀'", "[]", "[1, 2]",
    "['b', 'a']", "{}", "{'k': 1}", "{'k': [1]}", "(1, 2)", "range(3)", "'x\\n y '", "[[1, 2], [3, 4]]",
    "strftime_now('%d %b %Y')", "strftime_now('%A, %B %-d')", "[{'k': 2}, {'k': 'b', 'a': none}]", "'a,b,,c'", "1e3",
]
# Most pairs of values have no sum and no order, so what works for all comes more often.
OPERATORS = ["+", "-", "*", "/", "//", "%", "<", "<=", ">", ">=", "in", "not in"] + 5 * ["~", "==", "!=", "and", "or"]
SAFE_FILTERS = ["string", "upper", "lower", "trim", "default('D')", "default('D', true)", "title", "capitalize",
                "string | length", "replace('a', 'b')", "string | list"]
FILTERS = [
    "length", "upper", "lower", "trim", "string", "list", "first", "last", "join(',')", "default('D')",
    "default('D', true)", "int", "tojson", "reverse | list", "sort", "items | list",
    "map('string') | list", "select | list", "reject('none') | list", "replace('a', 'b')", "title",
    "capitalize", "indent", "indent(2, true)", "round", "float", "dictsort", "safe",
    "selectattr('k') | list", "map(attribute='k') | list", "tojson(indent=2)", "count",
    "tojson(ensure_ascii=true)", "tojson(separators=(',', ':'))", "tojson(sort_keys=true)", "sort(attribute='k')", "last",
    "rejectattr('k', 'equalto', 1) | list", "map('upper') | join", "string | int(7)", "trim('ab ')", "round(1)",
]
TESTS = [
    "defined", "undefined", "none", "string", "number", "mapping", "iterable", "sequence", "true", "false",
    "odd", "even", "boolean", "integer", "in [1, 'a']", "equalto 1", "divisibleby 2",
]
POSTFIX = [
    "[0]", "[-1]", "[1:]", "[::-1]", "['k']", ".k", ".items()", ".split()", ".strip()", ".upper()", "[:2]",
    ".get('k')", ".startswith('a')", ".index0", ".first", ".last", ".previtem", ".length", "[5]", ".a", ".b",
    ".split(',')", ".split('a', 1)", ".lstrip('a')", ".rstrip(' \\n')", ".replace('a', 'bb')", ".endswith(('a', 'b'))", ".title()", ".keys() | list",
    ".find('b')", "['items']", "[1:-1]", "[a:]", "[-2:]", ".values() | list", ".get('a', 5)", ".capitalize()", ".splitlines()", ".append(1)",
]
TEXTS = ["", "t", " ", "  ", "\n", "\n\n", "\t", " t ", "\n  ", "x\n", " \n", "é", "\r\n", "{ ", "}", "% ", "}}", "# "]
SIGNS = ["", "", "", "-", "-", "+"]


class Maker:
    def __init__(self, rng):
        self.rng = rng
        self.in_loop = False
        self.macros = 0

    def pick(self, items):
        return self.rng.choice(items)

    def expression(self, depth=0):
        kind = self.rng.random()
        if depth > 3 or kind < 0.25:
            return self.pick(NAMES)
        if kind < 0.45:
            return self.pick(VALUES)
        if kind < 0.6:
            left, right = self.expression(depth + 1), self.expression(depth + 1)
            if self.rng.random() < 0.5:
                left = f"({left})"
            return f"{left} {self.pick(OPERATORS)} {right}"
        if kind < 0.72:
            return f"{self.expression(depth + 1)} | {self.pick(FILTERS if self.rng.random() < 0.3 else SAFE_FILTERS)}"
        if kind < 0.8:
            test = f"{self.expression(depth + 1)} is {self.pick(['', '', 'not '])}{self.pick(TESTS)}"
            return test if self.rng.random() < 0.1 else f"({test})"
        if kind < 0.84:
            return f"{self.pick(NAMES + ['(' + self.expression(depth + 1) + ')'])}{self.pick(POSTFIX)}"
        if kind < 0.94:
            return f"(not {self.expression(depth + 1)})"
        if kind < 0.97:
            other = f" else {self.expression(depth + 1)}" if self.rng.random() < 0.7 else ""
            return f"({self.expression(depth + 1)} if {self.expression(depth + 1)}{other})"
        if self.macros and kind < 0.99:
            arguments = [self.expression(depth + 2) for _ in range(self.rng.randrange(3))]
            if self.rng.random() < 0.3:
                arguments.append("q=" + self.expression(depth + 2))
            return f"m{self.rng.randrange(self.macros)}({', '.join(arguments)})"
        return f"[{self.expression(depth + 1)}, {self.expression(depth + 1)}]"

    def tag(self, inner):
        return "{%" + self.pick(SIGNS) + " " + inner + " " + self.pick(SIGNS) + "%}"

    def print_tag(self):
        return "{{" + self.pick(["", "", "-"]) + " " + self.expression() + " " + self.pick(["", "", "-"]) + "}}"

    def block(self, opening, ending, depth, loop=None):
        kept = self.in_loop
        self.in_loop = kept if loop is None else loop
        text = self.tag(opening) + self.body(depth + 1)
        self.in_loop = kept
        return text + self.tag(ending)

    def statement(self, depth):
        kind = self.rng.random()
        if kind < 0.22:
            return self.print_tag()
        if kind < 0.34:
            target = self.pick(["a", "b", "c", "x", "y", "ns.a", "ns.b"])
            return self.tag(f"set {target} = {self.expression()}")
        if kind < 0.4:
            return self.block("set " + self.pick(["a", "text"]), "endset", depth)
        if kind < 0.58:
            branches = ""
            while self.rng.random() < 0.3:
                branches += self.tag("elif " + self.expression()) + self.body(depth + 1)
            if self.rng.random() < 0.4:
                branches += self.tag("else") + self.body(depth + 1)
            return self.tag("if " + self.expression()) + self.body(depth + 1) + branches + self.tag("endif")
        if kind < 0.76:
            target = self.pick(["x", "y", "a"])
            over = self.pick(["xs", "xs", "xs", "range(3)", "d", "'ab'", "xs[1:]", "d.items()"])
            if self.rng.random() < 0.15:
                target, over = self.pick(["x, y", "(x, y)"]), self.pick(["d.items()", "d | items", "[(1, 2), 'ab']"])
            elif self.rng.random() < 0.05:
                over = self.expression()
            test = f" if {self.expression(2)}" if self.rng.random() < 0.25 else ""
            otherwise = self.tag("else") + self.body(depth + 1) if self.rng.random() < 0.2 else ""
            text = self.block(f"for {target} in {over}{test}", "endfor", depth, True)
            return text if not otherwise else text[: text.rindex("{%")] + otherwise + self.tag("endfor")
        if kind < 0.82:
            opening = f"macro m{self.macros}({self.pick(['', 'x', 'x, q=1', 'a=b, q=a'])})"
            text = self.block(opening, "endmacro", depth, False)
            self.macros += 1
            return text
        if kind < 0.86:
            return self.block("generation", "endgeneration", depth, False)
        if kind < 0.88:
            return self.block("filter " + self.pick(["upper", "trim", "indent", "replace('a', 'b')"]), "endfilter", depth)
        if kind < 0.94:
            return self.pick(["{# c #}", "{#- c -#}", "{#+ {% x %} +#}"])
        if kind < 0.97 and self.in_loop:
            return self.tag(self.pick(["break", "continue"]))
        if kind < 0.973:
            return "{{ raise_exception('no ' ~ " + self.pick(NAMES) + ") }}"
        return self.tag("set ns = namespace(a=1, b=[])")

    def body(self, depth=0):
        text = self.pick(TEXTS)
        for _ in range(self.rng.randrange(1, 5 if depth == 0 else 4)):
            text += (self.statement(depth) if depth < 5 else self.print_tag()) + self.pick(TEXTS)
        return text


def template(rng):
    return "{% set ns = namespace(a=0, b='') %}" + Maker(rng).body()


def variables(rng):
    def value(depth):
        kind = rng.randrange(8 if depth < 3 else 6)
        if kind == 6:
            return [value(depth + 1) for _ in range(rng.randrange(4))]
        if kind == 7:
            return {rng.choice(["k", "a", "items", "é"]): value(depth + 1) for _ in range(rng.randrange(3))}
        return rng.choice([0, 1, -7, 2.5, 1e16, True, False, None, "", "a", "Ab c\n", "é😀", "it's"])

    chosen = {name: value(0) for name in ["a", "b", "c", "text", "x"] if rng.random() < 0.8}
    chosen["xs"] = [value(1) for _ in range(rng.randrange(4))]
    chosen["d"] = {key: value(1) for key in ["k", "b", "A"] if rng.random() < 0.7}
    return chosen

"""Finds the mutants of a C file in clang's AST (see tools/mutate).

The AST says what a piece of text is and which types it has; edits are made in the file's own text.
Expansions of macro bodies have no text in the file and are left alone; macro arguments do.
"""
import ctypes
import re
from typing import NamedTuple

import clang.cindex as cindex
from clang.cindex import CursorKind as K

CHOICE = """extern int ax_mutant; extern unsigned char *ax_mutants_reached;
static inline int ax_mutant_is(int number) {
    __atomic_store_n(&ax_mutants_reached[number], 1, __ATOMIC_RELAXED);
    return ax_mutant == number;
}
#line 1
"""
KINDS = ("compare", "sign", "off-by-one", "assign", "call", "field")
SWAPPED = {
    "compare": {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&"},
    "sign": {"+": "-", "-": "+", "+=": "-=", "-=": "+="},
}
TALK = re.compile(r"(AX_ASSERT|(static_)?assert|_Static_assert|ax_error(_at|_prefix)?|ax_log(_\w+)?"
                  r"|__builtin_prefetch|madvise)$")
PASSES = (K.PAREN_EXPR, K.UNEXPOSED_EXPR, K.INTEGER_LITERAL, K.UNARY_OPERATOR)
LEAK = re.compile(r"(^|_)(free|close|fclose|munmap|destroy)$")
TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/|(?<=\n)[ \t]*\#(?:\\\n|/\*.*?\*/|[^\n])*)
    |"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[A-Za-z_]\w*|\.?\d(?:[eEpP][+-]|[\w.])*
    |\+\+|--|->|<<=|>>=|<<|>>|&&|\|\||[-+*/%&|^=!<>]=|\.\.\.|.""",
    re.S | re.X,
)


class Mutant(NamedTuple):
    file: str
    line: int
    column: int
    kind: str
    number: int  # among the changes of this kind at this location
    function: str
    offset: int
    old: str
    new: str
    change: str  # the source line with [old => new] in it
    leak: bool

    @property
    def id(self):
        return f"{self.file}:{self.line}:{self.column}:{self.kind}:{self.number}"

    def apply(self, text):
        lines = self.old.count("\n")  # keeps __LINE__ of the following lines
        return text[: self.offset] + self.new + "\n" * lines + text[self.offset + len(self.old) :]


class Function(NamedTuple):
    start: int
    end: int
    name: str
    body: int  # offset of its {
    returns: bool  # a value
    labels: list


class Source:
    """One file: its tokens, and the sites collected from its AST."""

    def __init__(self, folder, path):
        self.path = path
        self.text = (folder / path).read_text(encoding="latin-1")  # one character per byte
        self.tokens = [m for m in TOKEN.finditer("\n" + self.text) if not m["skip"]]
        self.spans = [(m.start() - 1, m.end() - 1, m[0]) for m in self.tokens]
        self.index = {start: i for i, (start, _, _) in enumerate(self.spans)}
        self.talk = [r for r in map(self._talk, range(len(self.spans))) if r]
        self.functions = []
        self.sites = {}  # (kind, offset) -> {(offset, old, new): leak}

    def token(self, i):
        return self.spans[i][2] if 0 <= i < len(self.spans) else ""

    def closing(self, i):
        """Index of the bracket that closes the one at token i."""
        depth = 0
        for j in range(i, len(self.spans)):
            depth += (self.token(j) in "([{") - (self.token(j) in ")]}")
            if depth == 0:
                return j
        return i

    def _talk(self, i):
        """The span of an assertion, a message, or advice about memory: nothing in it is mutated."""
        if TALK.match(self.token(i)) and self.token(i + 1) == "(":
            return self.spans[i][0], self.spans[self.closing(i + 1)][1]
        return None

    def add(self, kind, offset, old, new, leak=False):
        if not any(a <= offset < b for a, b in self.talk):
            self.sites.setdefault((kind, offset), {})[(offset, old, new)] = leak

    def drop(self, kind, i, leak=False):
        """Removes the statement that starts at token i, except its semicolon."""
        if any(self.spans[i][0] == f.start for f in self.functions):
            return  # all of the function is a macro's expansion, of which this is the use
        depth = 0
        for j in range(i, len(self.spans)):
            if depth == 0 and self.token(j) == ";":
                start, end = self.spans[i][0], self.spans[j][0]
                self.add(kind, start, self.text[start:end], "", leak)
                return
            depth += (self.token(j) in "([{") - (self.token(j) in ")]}")

    def mutants(self):
        """{kind: [[mutants of one site]]}, in text order."""
        found = {}
        for (kind, _), changes in sorted(self.sites.items()):
            ways = [self._mutant(kind, i, *c, leak) for i, (c, leak) in enumerate(sorted(changes.items()))]
            if ways[0]:
                found.setdefault(kind, []).append(ways)
        return found

    def _mutant(self, kind, number, offset, old, new, leak):
        inside = [f for f in self.functions if f.body < offset < f.end]
        if not inside:
            return None
        start = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", offset + len(old))
        shown = f"{self.text[start:offset]}[{old} => {new}]{self.text[offset + len(old):end]}"
        line = self.text.count("\n", 0, offset) + 1
        return Mutant(self.path, line, offset - start + 1, kind, number, inside[-1].name, offset, old, new,
                      " ".join(shown.encode("latin-1").decode(errors="replace").split()), leak)


def file_offset(location, path):
    """Offset of the text in the file (also in macro arguments), or -1."""
    lib = cindex.conf.lib
    file, offset = cindex.c_object_p(), ctypes.c_uint()
    lib.clang_getFileLocation(location, ctypes.byref(file), None, None, ctypes.byref(offset))
    name = file and cindex.File(file).name
    return offset.value if name and name.removeprefix("./") == path else -1


def function(source, cursor, start, end):
    body = next(kid for kid in cursor.get_children() if kid.kind == K.COMPOUND_STMT)
    labels = {c.spelling for c in body.walk_preorder() if c.kind == K.LABEL_STMT}
    at = file_offset(body.extent.start, source.path)
    if source.text[at : at + 1] != "{":
        at = end  # a macro has the body: nothing in it is mutated
    return Function(start, end, cursor.spelling, at, cursor.result_type.spelling != "void", sorted(labels))


def statements(cursor, kids):
    """The children in statement position."""
    kind = cursor.kind
    if kind == K.COMPOUND_STMT:
        return kids
    if kind == K.IF_STMT:
        return kids[1:]
    if kind == K.DO_STMT:
        return kids[:1]
    if kind in (K.FOR_STMT, K.WHILE_STMT, K.CASE_STMT, K.DEFAULT_STMT, K.LABEL_STMT):
        return kids[-1:]
    return []


def visit(source, cursor, counted):
    """Collects the sites at `cursor` and below. counted: a literal here is a count."""
    kids = list(cursor.get_children())
    kind = cursor.kind
    here = source.index.get(file_offset(cursor.extent.start, source.path), -1)
    if kind in (K.BINARY_OPERATOR, K.COMPOUND_ASSIGNMENT_OPERATOR) and len(kids) == 2:
        i = source.index.get(file_offset(kids[1].extent.start, source.path), 0) - 1
        operator = source.token(i)
        for change, swaps in SWAPPED.items():
            if operator in swaps:
                source.add(change, source.spans[i][0], operator, swaps[operator])
        counted = operator in ("+", "-", "<", "<=", ">", ">=", "==", "!=", "=", "+=", "-=")
    elif kind == K.UNARY_OPERATOR and source.token(here) == "-" and kids[0].kind != K.INTEGER_LITERAL:
        source.add("sign", source.spans[here][0], "-", "")
    elif kind == K.INTEGER_LITERAL and counted:
        literal = re.fullmatch(r"(\d+)([uUlL]*)", source.token(here))
        if literal and (literal[1] == "0" or literal[1][0] != "0"):
            for step in (1, -1):
                source.add("off-by-one", source.spans[here][0], literal[0], f"{int(literal[1]) + step}{literal[2]}")
    elif kind == K.ARRAY_SUBSCRIPT_EXPR and len(kids) == 2:
        i = source.index.get(file_offset(kids[1].extent.start, source.path), 0)
        if source.token(i - 1) == "[":
            start, end = source.spans[i][0], source.spans[source.closing(i - 1)][0]
            source.add("off-by-one", start, source.text[start:end], source.text[start:end] + " + 1")
    elif kind == K.MEMBER_REF_EXPR and cursor.referenced is not None:
        field(source, cursor)
    elif kind == K.VAR_DECL and cursor.type.kind == cindex.TypeKind.CONSTANTARRAY:
        kids = kids[1:] if cursor.type.element_type.kind == cindex.TypeKind.CHAR_S else kids  # room for text
    standing = statements(cursor, kids)
    for kid in kids:
        if kid in standing:
            statement(source, kid)
        if kind in (K.ARRAY_SUBSCRIPT_EXPR, K.RETURN_STMT):
            inner = True
        elif kind == K.VAR_DECL:
            inner = cursor.type.kind != cindex.TypeKind.CONSTANTARRAY
        elif kind == K.INIT_LIST_EXPR:
            inner = False
        else:
            inner = counted and kid.kind in PASSES
        visit(source, kid, inner)


def field(source, cursor):
    member = cursor.referenced
    record = member.semantic_parent
    offset = file_offset(cursor.location, source.path)
    i = source.index.get(offset, -1)
    if record is None or record.kind != K.STRUCT_DECL or i < 0 or source.token(i) != member.spelling:
        return
    kind = member.type.get_canonical().spelling
    for other in record.get_children():
        if other.kind == K.FIELD_DECL and other.spelling != member.spelling and other.spelling:
            if other.type.get_canonical().spelling == kind:
                source.add("field", offset, member.spelling, other.spelling)


def statement(source, cursor):
    i = source.index.get(file_offset(cursor.extent.start, source.path), -1)
    if i < 0:
        return
    kids = list(cursor.get_children())
    if cursor.kind == K.COMPOUND_ASSIGNMENT_OPERATOR:
        source.drop("assign", i)
    elif cursor.kind == K.UNARY_OPERATOR and ("++" in (source.token(i), source.token(i + 1)) or
                                              "--" in (source.token(i), source.token(i + 1))):
        source.drop("assign", i)
    elif cursor.kind == K.BINARY_OPERATOR and len(kids) == 2:
        right = source.index.get(file_offset(kids[1].extent.start, source.path), 0)
        if source.token(right - 1) == "=":
            source.drop("assign", i)
    while cursor.kind == K.CSTYLE_CAST_EXPR and kids:
        cursor, kids = kids[-1], list(kids[-1].get_children())
    if cursor.kind == K.CALL_EXPR:
        source.drop("call", i, bool(LEAK.search(cursor.spelling)))


def tries(source):
    """AX_TRY(call); is a loop in the AST: found by its name."""
    for i, (_, _, word) in enumerate(source.spans):
        if word in ("AX_TRY", "AX_TRY_GOTO") and source.token(i - 1) in (";", "{", "}", ")", "else", ":"):
            source.drop("call", i)


def find(folder, path, flag_sets):
    """One file, compiled in one or more ways: its Source."""
    lib = cindex.conf.lib
    lib.clang_getFileLocation.argtypes = [cindex.SourceLocation] + [ctypes.c_void_p] * 4
    lib.clang_getFileLocation.restype = None
    source = Source(folder, path)
    for flags in flag_sets:
        unit = cindex.Index.create().parse(path, args=flags)
        errors = [d for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Error]
        if errors:
            raise RuntimeError(f"{path}: {errors[0]}")
        for cursor in unit.cursor.get_children():
            start, end = (file_offset(at, path) for at in (cursor.extent.start, cursor.extent.end))
            if cursor.kind == K.FUNCTION_DECL and cursor.is_definition() and 0 <= start < end:
                source.functions.append(function(source, cursor, start, end))
                visit(source, cursor, False)
    tries(source)
    return source


def together(source, mutants):
    """The file's text with all of its `mutants`, {number: mutant}: each function begins with a copy of its body for
    each mutant in it, which runs in its place if ax_mutant is the number (mutate_chosen.c)."""
    text = source.text
    functions = {f.body: f for f in source.functions}  # once, in however many ways the file is compiled
    for f in sorted(functions.values(), reverse=True):
        copies = []
        for number, mutant in sorted(mutants.items()):
            if f.body < mutant.offset < f.end:
                changed = mutant.apply(source.text)
                body = changed[f.body : f.end + len(changed) - len(source.text)]
                labels = f"__label__ {', '.join(f.labels)};" if f.labels else ""
                end = "__builtin_unreachable();" if f.returns else "return;"
                copies.append(f"if (ax_mutant_is({number})) {{ {labels} {body} {end} }}\n")
        if copies:
            text = f"{text[:f.body]}{{{''.join(copies)}{source.text[f.body:f.end]}}}{text[f.end:]}"
    return CHOICE + text

"""Random JSON schemas and regular expressions: texts that grammars of answers accept, and random walks through them, must be what
jsonschema and Python's re take; and what these take of values is refused only where data/grammar/grammar.h says so.

usage: grammar_random.py GRAMMAR_WALKS [--seed N] [--schemas N] [--expressions N]

Exit code 1 at a difference. Needs: jsonschema[format-nongpl].
"""
import argparse
import json
import random
import re
import subprocess
import sys
import warnings

import jsonschema

warnings.simplefilter("ignore")
KEYS = ["a", "b", "ab", "abc", "c d", "é", '"q', "", "\n", "a.b", "type", "日本"]
SCALARS = [None, True, False, 0, 1, -1, 5, 10, 1.5, -2.25, "", "a", "é", 'a"b', "\\", "\n", 12345, 0.001, "null", "日"]
PATTERNS = ["^a+b$", r"^\d{3}-\d{4}$", "b", "^x", "y$", "^a|b$", "^(foo|bar)$", "[0-9]{2}", "^[^,]+$", "^.{2,4}$", "^é*日$",
            "a.c|^q", r"^\$$", r"\$", "^(?:ab)+", "^(ab)*$", "^[é-ü]+$", "^a{3,5}$"]
FORMATS = ["date", "time", "date-time", "duration", "uuid", "email", "hostname", "ipv4", "ipv6", "uri", "password"]
# Texts that fit some of these, and others.
LIKELY = ["aab", "123-4567", "b", "x", "xq", "zy", "foo", "foobar", "12", "a12", "a", "abc", "日", "é日", "$", "a$", "abab", "q", ",",
          "2024-02-29", "2023-02-29", "12:00:00Z", "2024-01-01T00:00:00+01:00", "P1D", "PT5M", "P2W", "a@b.de", "host.example.com",
          "0b8e1f0e-6d3e-4b57-9f0a-1c1c2c3c4c5c", "10.0.0.255", "::1", "1:2:3:4:5:6:7:8", "https://example.com/a?b#c"]
LETTERS = ["a", "b", "é", '"', "\\", "\n", "日", "😀", " ", "/", "\x7f", "\u2028", "\x01"]


# ---- schemas


def value(r, depth=0):
    kind = r.random()
    if depth > 2 or kind < 0.6:
        return r.choice(SCALARS)
    if kind < 0.8:
        return [value(r, depth + 1) for _ in range(r.randrange(4))]
    return {key: value(r, depth + 1) for key in r.sample(KEYS, r.randrange(3))}


def string(r):
    s, kind = {"type": "string"}, r.random()
    if kind < 0.3:
        s["format"] = r.choice(FORMATS)
    elif kind < 0.6:
        s["pattern"] = r.choice(PATTERNS)
    if r.random() < 0.4:
        s["minLength"] = r.randrange(4)
    if r.random() < 0.4:
        s["maxLength"] = s.get("minLength", 0) + r.randrange(30)
    return s


def number(r):
    s = {"type": r.choice(["integer", "number"])}
    if r.random() < 0.5:
        s[r.choice(["minimum", "exclusiveMinimum"])] = r.choice([0, -5, 3, 1.5, -0.25, 10, 99, -1000, 0.001])
    if r.random() < 0.5:
        s[r.choice(["maximum", "exclusiveMaximum"])] = r.choice([7, 12, 100, 100.5, 0, 1000000, 20])
    return s


def obj(r, depth, names):
    s = {"type": "object"}
    if r.random() < 0.9:
        s["properties"] = {key: schema(r, depth + 1, names) for key in r.sample(KEYS, r.randrange(5))}
    keys = list(s.get("properties", {}))
    if r.random() < 0.7:
        s["required"] = r.sample(keys, r.randrange(len(keys) + 1))
    kind = r.random()
    if kind < 0.4:
        s["additionalProperties"] = False
    elif kind < 0.6:
        s["additionalProperties"] = schema(r, depth + 1, names)
        s.setdefault("required", []).append("zz")
    return s


def array(r, depth, names):
    s = {"type": "array"}
    if r.random() < 0.9:
        s["items"] = schema(r, depth + 1, names)
    if r.random() < 0.4:
        s["prefixItems"] = [schema(r, depth + 1, names) for _ in range(r.randrange(1, 4))]
        if r.random() < 0.4:
            s["items"] = False
    if r.random() < 0.4:
        s["minItems"] = r.randrange(3)
    if r.random() < 0.4:
        s["maxItems"] = s.get("minItems", 0) + r.randrange(3)
    return s


def ways(r, depth, names):
    kind = r.random()
    if kind < 0.15:
        return {"allOf": [schema(r, depth + 1, names)]}
    if kind < 0.4:
        kinds = [r.choice(["x", "y", 1, 1.0, 2.0, None]) for _ in range(r.randrange(1, 4))]
        return {"discriminator": {"propertyName": "kind"},
                "oneOf": [{"type": "object", "properties": {"kind": {"const": k}, "v": schema(r, depth + 2, names)},
                           "required": ["kind"]} for k in kinds]}
    return {"anyOf" if kind < 0.8 else "oneOf": [schema(r, depth + 1, names) for _ in range(r.randrange(1, 4))]}


def schema(r, depth, names):
    kind = r.randrange(12 if depth < 3 else 6)
    if kind < 2:
        return string(r)
    if kind < 4:
        return number(r)
    if kind == 4:
        return r.choice([{"enum": [value(r, 2) for _ in range(r.randrange(1, 5))]}, {"const": value(r, 1)}])
    if kind == 5:
        return {"type": r.sample(["string", "integer", "null", "boolean", "number", "array", "object"], r.randrange(1, 4))}
    if kind < 9:
        return obj(r, depth, names)
    if kind == 9:
        return array(r, depth, names)
    return ways(r, depth, names) if kind == 10 or not names else {"$ref": "#/$defs/" + r.choice(names)}


def likely(r, s, root, depth=0):
    """A value that may fit, with its keys in the order in which grammars have them."""
    if not isinstance(s, dict) or not s or depth > 8:
        return value(r, 2)
    if "$ref" in s:
        return likely(r, root["$defs"][s["$ref"].split("/")[-1]], root, depth + 1)
    for keyword in ("allOf", "oneOf", "anyOf"):
        if keyword in s:
            return likely(r, r.choice(s[keyword]), root, depth + 1)
    if "enum" in s or "const" in s:
        return r.choice(s.get("enum", [s.get("const")]))
    kind = r.choice(s["type"]) if isinstance(s["type"], list) else s["type"]
    if kind == "string" and ("pattern" in s or "format" in s):
        return r.choice(LIKELY)
    if kind == "string":
        least = s.get("minLength", 0)
        return "".join(r.choice(LETTERS) for _ in range(r.randrange(least, s.get("maxLength", least + 6) + 1)))
    if kind in ("integer", "number"):
        low = s.get("minimum", s.get("exclusiveMinimum", -50))
        high = max(low, s.get("maximum", s.get("exclusiveMaximum", low + 60)))
        whole = r.randrange(int(low) - 1, int(high) + 2)
        return whole if kind == "integer" else r.choice([low, high, round(r.uniform(low, high), r.randrange(5)), whole])
    if kind == "array":
        least, first = s.get("minItems", 0), s.get("prefixItems", [])
        return [likely(r, first[i] if i < len(first) else s.get("items"), root, depth + 1)
                for i in range(r.randrange(least, s.get("maxItems", least + 2) + 1))]
    if kind != "object":
        return None if kind == "null" else r.random() < 0.5
    required, more = s.get("required", []), s.get("additionalProperties", {})
    out = {key: likely(r, own, root, depth + 1) for key, own in s.get("properties", {}).items() if key in required or r.random() < 0.5}
    for key in [k for k in required if k not in out] + ([] if more is False else ["x", "abx", "é2"]):
        if key in required or r.random() < 0.2:
            out[key] = likely(r, more, root, depth + 1)
    return out


def changed(r, v):
    """The same with one thing in it removed, added or replaced."""
    if isinstance(v, dict) and v and r.random() < 0.8:
        key = r.choice(list(v))
        rest = {k: x for k, x in v.items() if k != key}
        return r.choice([rest, {**v, key: changed(r, v[key])}, {**v, "new": value(r, 2)}])
    if isinstance(v, list) and v and r.random() < 0.8:
        at = r.randrange(len(v))
        return r.choice([v[:at] + v[at + 1:], v[:at] + [changed(r, v[at])] + v[at + 1:], v[:at] + [value(r, 2)] + v[at:]])
    return r.choice(SCALARS)


def is_written(s, v, text):
    """False if grammars leave out this way to write a value: numbers of other digits, escapes, lists and objects that are constant, and
    texts of formats, which are some of those that fit."""
    def numbers(x):
        if isinstance(x, float):
            return x != int(x) and x == round(x, 6) and "e" not in repr(x)
        return all(map(numbers, x.values() if isinstance(x, dict) else x if isinstance(x, list) else []))
    return numbers(v) and not any(part in json.dumps(s) for part in ('"enum"', '"const"', '"format"')) and "\\" not in text


def written(r, v):
    style = r.choice([{}, {"separators": (",", ":")}, {"indent": r.choice([1, 2, 4])}])
    return json.dumps(v, ensure_ascii=r.random() < 0.2, **style)


def check_schema(r, ask):
    names = r.sample(["D", "E"], r.randrange(3))
    s = {**schema(r, 0, names), **({"$defs": {n: schema(r, 1, names) for n in names}} if names else {})}
    values = [likely(r, s, s) for _ in range(12)]
    values = [changed(r, v) if r.random() < 0.3 else v for v in values]
    texts = [written(r, v) for v in values]
    answer = ask({"schema": s, "texts": texts, "walks": 6})
    if "error" in answer:
        return 0
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    fits = jsonschema.Draft202012Validator(s, format_checker=checker).is_valid
    for v, text, taken in zip(values, texts, answer["texts"]):
        if taken != fits(v) and (taken or is_written(s, v, text)):
            raise ValueError(f"{text} is {'accepted' if taken else 'refused'} by {json.dumps(s)}")
    for text in answer["walks"]:
        if text is not None and not fits(json.loads(text)):
            raise ValueError(f"{text} is written with {json.dumps(s)}")
    return sum(answer["texts"]) + sum(text is not None for text in answer["walks"])


# ---- expressions


def atom(r, depth):
    kind = r.random()
    if kind < 0.45 or depth > 1:
        return r.choice(["a", "b", "c", "1", "-", "é", "日", r"\.", ".", r"\d", r"\w", r"\s", r"\x41", r"\u00e9", r"\(", '"', "{", "}", "{a}",
                         "]", " ", r"\D", r"\S", r"\W", ",", r"\t"])
    if kind < 0.65:
        parts = [r.choice(["a-c", "0-9", "_", r"\d", r"\w", r"\s", "x", "é", "日-本", r"\]", r"\-", r"\n", ".", "+", r"\W", r"\D", " ", '"'])
                 for _ in range(r.randrange(1, 4))]
        return "[" + r.choice(["", "^"]) + "".join(parts) + "]"
    return r.choice(["(", "(?:", f"(?P<n{r.randrange(10 ** 6)}>"]) + choice(r, depth + 1) + ")"


def choice(r, depth):
    def repeated():
        times = ["*", "+", "?", "{2}", "{1,}", "{,2}", "{1,3}", "{0}", "*?", "+?", "??", "{1,2}?"]
        return atom(r, depth) + (r.choice(times) if r.random() < 0.45 else "")
    return "|".join("".join(repeated() for _ in range(r.randrange(depth == 0 and 1, 4))) for _ in range(r.choice([1, 1, 2])))


def check_expression(r, ask):
    pattern = r.choice(["", "", "^"]) + choice(r, 0) + r.choice(["", "", "$"])
    try:
        expression = re.compile(pattern, re.ASCII)
    except re.error:
        return 0
    texts = ["".join(r.choice('abc1-é日.A("{}] \n\t_x,') for _ in range(r.randrange(6))) for _ in range(25)]
    answer = ask({"pattern": pattern, "texts": texts, "walks": 4})
    if "error" in answer:
        return 0
    for text, taken in zip(texts, answer["texts"]):
        if taken != bool(expression.fullmatch(text)):
            raise ValueError(f"{text!r} is {'accepted' if taken else 'refused'} by {pattern!r}")
    for text in answer["walks"]:
        if text is not None and len(text) < 60 and not expression.fullmatch(text):  # re takes long for others
            raise ValueError(f"{text!r} is written with {pattern!r}")
    return sum(answer["texts"]) + sum(text is not None for text in answer["walks"])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("walks")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--schemas", type=int, default=1000)
    p.add_argument("--expressions", type=int, default=1000)
    o = p.parse_args()
    driver = subprocess.Popen([o.walks], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def ask(question):
        driver.stdin.write(json.dumps(question) + "\n")
        driver.stdin.flush()
        return json.loads(driver.stdout.readline())

    texts = 0
    for check, n in ((check_schema, o.schemas), (check_expression, o.expressions)):
        for i in range(n):
            try:
                texts += check(random.Random(f"{o.seed} {i}"), ask)
            except ValueError as e:
                print(f"{check.__name__} {i} of seed {o.seed}: {e}")
                return 1
    print(f"grammars: {o.schemas} schemas, {o.expressions} expressions, {texts} texts of them: equal")
    driver.stdin.close()
    return driver.wait()


if __name__ == "__main__":
    sys.exit(main())

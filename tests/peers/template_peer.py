#!/usr/bin/env python3
"""Compares `axtrain template` with jinja2 as transformers sets it up.

    python3 tests/peers/template_peer.py [--axtrain build/axtrain] [--random N] [--seed S] [TEMPLATE…]

Without TEMPLATE files: N random templates. With them: each with every conversation below. Prints the
differences and exits 1 when there are any. Skipped (exit 0, with a line) where transformers and
jinja2 are not installed.
"""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import warnings

import template_random

try:
    import jinja_peer
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(0)

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'Get the "weather" <now> & more',
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "City é"}, "days": {"type": ["integer", "null"]}},
            "required": ["city"],
        },
    },
}


def call(arguments):
    return {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}


def turns(*pairs):
    return [{"role": role, "content": content} for role, content in pairs]


CONVERSATIONS = [
    turns(("user", "Hello, who are you?")),
    turns(("system", " Be brief. "), ("user", "Hi"), ("assistant", " Yo\n"), ("user", "é😀")),
    turns(("user", "a"), ("assistant", "b")),
    turns(("user", "a"), ("user", "b")),
    turns(("user", "1"), ("assistant", "<think>\nwhy\n</think>\n\nso"), ("user", "2"), ("assistant", "<think>x</think>y")),
    turns(("user", "1")) + [{"role": "assistant", "content": "2", "reasoning_content": "r"}, {"role": "user", "content": "3"}],
    turns(("user", "w?"))
    + [{"role": "assistant", "content": None, "tool_calls": [call({"city": "Zürich", "days": 1.5, "x": [None, True]})]}]
    + [{"role": "tool", "name": "get_weather", "content": '{"t": 20}', "tool_call_id": "call00001"}]
    + turns(("assistant", "20"), ("user", "thanks")),
    turns(("user", "w?")) + [{"role": "assistant", "content": "", "tool_calls": [call('{"city": "Rome"}')]}],
    turns(("user", [{"type": "text", "text": "Look "}, {"type": "image"}]), ("assistant", [{"type": "text", "text": "A cat"}])),
    turns(("narrator", "x")),
]
EXTRAS = [{}, {"add_generation_prompt": True}, {"add_generation_prompt": True, "tools": [WEATHER]}, {"enable_thinking": False}]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
# Object addresses differ, and so does what is folded into a constant while jinja2 compiles.
UNCOMPARABLE = re.compile(r"object at 0x|0X[0-9A-F]{8}|built-in method|<bound|cannot be sliced", re.I)


def ours(axtrain, folder, template, variables):
    source, data = os.path.join(folder, "t.jinja"), os.path.join(folder, "v.json")
    with open(source, "w", encoding="utf-8", newline="") as file:
        file.write(template)
    with open(data, "w", encoding="utf-8") as file:
        json.dump(variables, file)
    base = [axtrain, "template", "--file", source, "--now", str(jinja_peer.NOW_UNIX), data]
    text = subprocess.run(base, capture_output=True)
    if text.returncode != 0:
        assert text.stdout == b"", "partial output"
        return {"error": text.stderr.decode().removesuffix("\n")}
    spans = subprocess.run(base + ["--spans"], capture_output=True, check=True)
    return {"text": text.stdout.decode(), "spans": json.loads(spans.stdout)}


def differ(theirs, mine):
    """What a template says itself (raise_exception) is compared too; other errors are in our words."""
    said = re.match(r"TemplateError: (.*)", theirs.get("error", ""), re.S)
    if said and "error" in mine:
        return not mine["error"].endswith(said[1])
    return ("error" in theirs) != ("error" in mine) or ("text" in theirs and theirs != mine)


def cases(options):
    if not options.templates:
        for seed in range(options.seed, options.seed + options.random):
            rng = random.Random(seed)
            yield f"seed {seed}", template_random.template(rng), template_random.variables(rng)
    for path in options.templates:
        with open(path, encoding="utf-8", newline="") as file:
            template = file.read()
        for i, messages in enumerate(CONVERSATIONS):
            for k, extra in enumerate(EXTRAS):
                yield f"{path} {i}.{k}", template, {**TOKENS, "messages": messages, **extra}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--axtrain", default="build/axtrain")
    parser.add_argument("--random", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("templates", nargs="*")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    count = rendered = different = refused = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, template, variables in cases(options):
            theirs = jinja_peer.render(template, variables)
            mine = ours(options.axtrain, folder, template, variables)
            count += 1
            rendered += "text" in theirs
            if UNCOMPARABLE.search(theirs.get("text", "") + mine.get("error", "")):
                continue
            if re.search("not supported|cannot be printed", mine.get("error", "")) and not options.templates:
                refused += 1  # decision 011; a published template must not meet it
                continue
            if differ(theirs, mine):
                different += 1
                print(f"{name}\n  template {template!r}\n  variables {variables!r}\n  jinja2 {theirs}\n  axtrain {mine}")
    print(f"{count} cases, {rendered} rendered, {refused} refused by name, {different} different")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())

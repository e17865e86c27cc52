#!/usr/bin/env python3
"""Compares the built-in chat templates with axolotl's of the same names.

    python3 tests/peers/named_templates.py FOLDER [--axtrain build/axtrain] [--chats N] [--seed S]

FOLDER holds axolotl's NAME.jinja files (src/axolotl/utils/chat_templates/templates of a checkout).
axolotl's are rendered by jinja2 as transformers sets it up, ours by `axtrain template` and by jinja2
(a trained model is saved with its template), with the conversations of template_peer.py and N random
ones. Prints the differences; exits 1 when there are any. With --record, writes what axolotl's make of
a few conversations to tests/data/named_cases.json instead.
"""
import argparse
import ctypes
import glob
import json
import os
import random
import re
import subprocess
import sys
import tempfile

from template_peer import CONVERSATIONS, EXTRAS, TOKENS, WEATHER, call, differ, jinja_peer, ours

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
TEMPLATES = os.path.join(ROOT, "data", "text", "template")
RECORD = os.path.join(ROOT, "tests", "data", "named_cases.json")
TEXTS = ["", " ", "Hi", " a\n", "\n\nb ", "é😀", "<think>x</think>y", "<think>\nx\n</think>\n\ny", "</think>z", "'q' \"r\""]


def sources(folder):
    """The built-in sources by name, out of the compiled tables."""
    library = os.path.join(folder, "named.so")
    tables = glob.glob(os.path.join(TEMPLATES, "named_*tables.c"))
    subprocess.run(["cc", "-shared", "-fPIC", "-I", ROOT, "-o", library, *tables], check=True)
    symbols = ctypes.CDLL(library)
    with open(os.path.join(TEMPLATES, "named.h"), encoding="utf-8") as file:
        names = re.findall(r"^    X\((\w+), (\w+)\)", file.read(), re.M)
    for name, source in names:
        first = ctypes.c_char.in_dll(symbols, "ax_template_" + source)
        yield name, ctypes.string_at(ctypes.addressof(first)).decode()


SCHEMAS = [
    {"type": "string", "enum": ["a", "b"], "description": "one of"},
    {"type": "array", "items": {"type": "string", "minItems": 1, "nullable": None}},
    {"type": "array", "items": {"type": ["string", "null"], "required": ["x"], "properties": {"x": {"type": "number"}}}},
    {"type": "object", "properties": {"b": {"type": "string"}, "A": {"type": "boolean", "nullable": True}}, "required": ["b", "A"]},
    {"type": "object", "description": "open", "extra": {"type": "string"}},
    {"type": "integer", "nullable": True},
]
ARGUMENTS = [{"city": "Rome"}, '{"city": "é"}', {}, {"b": [1, "x", {"k": None}], "A": {"z": True, "y": 1.5}, "c": -2}]


def random_tool(rng):
    if rng.random() < 0.4:
        return WEATHER
    names = rng.sample(["k", "Key", "b", "a_b"], rng.randrange(4))
    parameters = {"type": "object", "properties": {name: rng.choice(SCHEMAS) for name in names}}
    if rng.random() < 0.5:
        parameters["required"] = names
    function = {"name": "f", "description": rng.choice(["Does f", ""]), "parameters": rng.choice([parameters, parameters, {}])}
    if rng.random() < 0.2:
        function["response"] = rng.choice([{"type": "object", "description": "r"}, {"type": "string"}])
    return {"type": "function", "function": function}


def random_content(rng):
    text = rng.choice(TEXTS)
    kind = rng.random()
    if kind < 0.8:
        return text
    parts = [{"type": "text", "text": text}, {"type": "text", "text": "+"}]
    if kind < 0.9:
        return parts
    media = rng.choice(["image", "image", "image_url", "audio", "video", "other"])
    return parts[:1] + [{"type": media, rng.choice([media, "url"]): "x.png"}] + parts[1:] * rng.randrange(2)


def random_calls(rng):
    calls = [call(rng.choice(ARGUMENTS)) for _ in range(rng.randrange(1, 3))]
    for i, made in enumerate(calls):
        made["id"] = f"call0000{i}"
        if rng.random() < 0.05:
            calls[i] = {"name": "flat", "arguments": {}}
    return calls


def add_calls(rng, messages):
    """An answer with calls and mostly as many results."""
    calls = random_calls(rng)
    answer = {"role": "assistant", "content": rng.choice([None, "", "I look"]), "tool_calls": calls}
    if rng.random() < 0.2:
        answer["reasoning_content"] = rng.choice(TEXTS)
    messages.append(answer)
    for i in range(len(calls) - (rng.random() < 0.2)):
        content = rng.choice(["20", '{"t": 20}', [{"type": "text", "text": "2"}, {"type": "text", "text": "0"}], {"t": 20}, 20])
        messages.append({"role": "tool", "name": "get_weather", "content": content, "tool_call_id": f"call0000{i}"})
        if rng.random() < 0.2:
            del messages[-1][rng.choice(["name", "tool_call_id"])]
    if rng.random() < 0.1:
        answer["tool_responses"] = [{"name": "f", "response": {"b": 1, "A": [True]}}, {"response": "text"}]


def random_chat(rng):
    """Mostly a well-formed conversation, sometimes with a turn too many."""
    messages = []
    if rng.random() < 0.4:
        messages.append({"role": rng.choice(["system"] * 9 + ["developer"]), "content": random_content(rng)})
    for _ in range(rng.randrange(1, 4)):
        messages.append({"role": "user", "content": random_content(rng)})
        if rng.random() < 0.3:
            add_calls(rng, messages)
        if rng.random() < 0.8:
            messages.append({"role": "assistant", "content": random_content(rng)})
            if rng.random() < 0.2:
                messages[-1][rng.choice(["reasoning_content", "thinking"])] = rng.choice(TEXTS)
            if rng.random() < 0.1:
                messages[-1].update(rng.choice([{"tool_calls": []}, {"citations": [{"document_id": 2}]}, {"name": "N"}]))
    if rng.random() < 0.1:
        messages.insert(rng.randrange(len(messages) + 1), rng.choice(messages))
    if rng.random() < 0.02:
        del rng.choice(messages)["content"]
    chat = {**TOKENS, "messages": messages}
    if rng.random() < 0.3:
        chat["tools"] = [random_tool(rng) for _ in range(rng.randrange(3))]
    if rng.random() < 0.5:
        chat["add_generation_prompt"] = True
    for name, values in OPTIONS.items():
        if rng.random() < 0.1:
            chat[name] = rng.choice(values)
    return chat


# What single templates ask for beyond messages and tools.
OPTIONS = {
    "enable_thinking": [True, False],
    "skip_think": [True, False],
    "real_last_index": [0, 1, 5],
    "tools_in_user_message": [True, False],
    "custom_tools": [[WEATHER], None],
    "date_string": ["1 May 2026"],
    "add_vision_id": [True],
    "documents": [[{"title": "T", "text": "x"}, {"text": "y", "source id": 3}], []],
    "knobs": [{"is_set": True, "citation_mode": "fast"}, {"is_set": True, "response_format": "json_object"}, {"is_set": False}],
    "generation_preamble": ["So", " "],
    "role_to_predict": ["tool"],
}


# ---- what tests/data/test_template_named.c reads ----

SYSTEM = {"role": "system", "content": "S"}
USER = {"role": "user", "content": " q "}
ANSWER = {"role": "assistant", "content": " a "}
THOUGHT = {"role": "assistant", "content": "<think>\nx\n</think>\n\n1"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "number"}}}}}
CALLED = [
    {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"x": 1.0}}}]},
    {"role": "tool", "content": "r", "tool_call_id": "1"},
    {"role": "tool", "content": "s", "tool_call_id": "1"},
]
ARGUED = {"role": "assistant", "reasoning": "why", "tool_calls": [call({"b": [1, "x", True, None], "A": {"k": "v"}})]}
NESTED = {
    "type": "function",
    "function": {
        "name": "g",
        "description": "D",
        "parameters": {"type": "object", "required": ["b"], "properties": {
            "b": {"type": "string", "enum": ["u", "v"], "nullable": True, "description": "B"},
            "A": {"type": "array", "items": {"type": "object", "required": ["y"], "properties": {"y": {"type": "integer"}}}},
            "o": {"type": "object", "required": ["z"], "properties": {"z": {"type": "boolean"}}},
            "p": {"type": "object", "more": {"type": ["string", "null"]}},
        }},
        "response": {"type": "object", "description": "R"},
    },
}


def media(kind):
    return {"role": "user", "content": [{"type": "text", "text": " q "}, {"type": kind}]}


RECORDED = [  # names, messages, other variables
    ("falcon_h1 jamba exaone4 llama4 qwen3_5", [SYSTEM, USER], {"tools": [TOOL]}),
    ("falcon_h1 cohere metharme exaone exaone4 jamba gemma3 gemma4 llama4 llama3_2_vision llava qwen2_vl",
     [USER], {"add_generation_prompt": True}),
    ("exaone4 jamba gemma4 llama4 qwen3_5", [USER, *CALLED, ANSWER], {"tools": [TOOL]}),
    ("nemotron_h", [USER, CALLED[1]], {}),
    ("cohere gemma3 pixtral", [USER, USER], {}),
    ("gemma3 gemma3n gemma4 llama4 llama3_2_vision llava pixtral qwen2_vl qwen3_5", [media("image"), ANSWER], {}),
    ("gemma3n gemma4 pixtral", [media("audio")], {}),
    ("pixtral llama3_2_vision", [SYSTEM, media("image")], {}),
    ("qwen2_vl", [media("image")], {"add_vision_id": True}),
    ("qwen3_5 exaone4", [USER, THOUGHT, USER, THOUGHT], {"skip_think": False}),
    ("exaone4 gemma4", [USER], {"add_generation_prompt": True, "enable_thinking": True}),
    ("gemma4", [USER, {"role": "assistant", "content": "<|channel>thought\nx\n<channel|> a"}], {}),
    ("gemma4", [USER, ARGUED, ANSWER], {"tools": [NESTED]}),
    ("llama4 llama3_2_vision", [SYSTEM, USER], {"tools": [TOOL], "tools_in_user_message": False}),
    ("llama3_2_vision", [USER, CALLED[0]], {}),
    ("jamba", [USER, {**ANSWER, "citations": [{"document_id": 0}]}, {**USER, "name": "N"}],
     {"documents": [{"title": "T", "text": "x", "made in": 3}], "knobs": OPTIONS["knobs"][1]}),
]


def record(folder):
    names = sorted(name[:-6] for name in os.listdir(folder) if name.endswith(".jinja"))
    with tempfile.TemporaryDirectory() as scratch:
        ours_too = {name for name, _ in sources(scratch)}
    asked = [(" ".join(n for n in names if n in ours_too), [SYSTEM, USER, ANSWER], {}), *RECORDED]
    lines = []
    for group, messages, more in asked:
        for name in group.split():
            with open(os.path.join(folder, name + ".jinja"), encoding="utf-8", newline="") as file:
                result = jinja_peer.render(file.read(), {"bos_token": "<s>", "eos_token": "</s>", "messages": messages, **more})
            case = {"name": name, "vars": {"messages": messages, **more}}
            if "error" in result:
                kind, _, text = result["error"].partition(": ")
                case["error"] = text if kind == "TemplateError" else ""
            else:
                case.update({k: v for k, v in result.items() if v})
            lines.append(json.dumps(case))
    with open(RECORD, "w", encoding="ascii") as file:
        file.write("[\n " + ",\n ".join(lines) + "\n]\n")
    print(len(lines), "cases")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--axtrain", default="build/axtrain")
    parser.add_argument("--chats", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    if options.record:
        record(options.folder)
        return 0
    rng = random.Random(options.seed)
    chats = [{**TOKENS, "messages": messages, **extra} for messages in CONVERSATIONS for extra in EXTRAS]
    chats += [random_chat(rng) for _ in range(options.chats)]
    count = rendered = different = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, source in sources(folder):
            with open(os.path.join(options.folder, name + ".jinja"), encoding="utf-8", newline="") as file:
                published = file.read()
            for chat in chats:
                theirs, mine = jinja_peer.render(published, chat), ours(options.axtrain, folder, source, chat)
                count += 1
                rendered += "text" in theirs
                for who, made in (("axtrain", mine), ("jinja2", jinja_peer.render(source, chat))):
                    if differ(theirs, made):
                        different += 1
                        print(f"{name}\n  chat {chat!r}\n  axolotl {theirs}\n  {who} {made}")
    print(f"{count} cases, {rendered} rendered, {different} different")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())

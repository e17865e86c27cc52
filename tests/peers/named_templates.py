#!/usr/bin/env python3
"""Compares the built-in chat templates with axolotl's of the same names.

    python3 tests/peers/named_templates.py FOLDER [--axtrain build/axtrain] [--chats N] [--seed S]

FOLDER holds axolotl's NAME.jinja files (src/axolotl/utils/chat_templates/templates of a checkout).
axolotl's are rendered by jinja2 as transformers sets it up, ours by `axtrain template`, with the
conversations of template_peer.py and N random ones. Prints the differences; exits 1 when there are any.
"""
import argparse
import ctypes
import os
import random
import subprocess
import sys
import tempfile

from template_peer import CONVERSATIONS, EXTRAS, TOKENS, WEATHER, call, differ, jinja_peer, ours

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
NAMES = [
    "alpaca", "chatml", "deepseek_v2", "deepseek_v3", "gemma", "llama3", "mistral_v1", "mistral_v2v3",
    "mistral_v3_tekken", "mistral_v7_tekken", "phi_3", "phi_35", "qwen3", "qwen_25",
]
TEXTS = ["", " ", "Hi", " a\n", "\n\nb ", "é😀", "<think>x</think>y", "<think>\nx\n</think>\n\ny", "</think>z", "'q' \"r\""]


def sources(folder):
    """The built-in sources, out of the compiled table."""
    library = os.path.join(folder, "named.so")
    table = os.path.join(ROOT, "data", "template_named_tables.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-I", ROOT, "-o", library, table], check=True)
    symbols = ctypes.CDLL(library)
    for name in NAMES:
        first = ctypes.c_char.in_dll(symbols, "ax_template_" + name)
        yield name, ctypes.string_at(ctypes.addressof(first)).decode()


def random_chat(rng):
    """Mostly a well-formed conversation, sometimes with a turn too many."""

    def content():
        text = rng.choice(TEXTS)
        return [{"type": "text", "text": text}, {"type": "text", "text": "+"}] if rng.random() < 0.1 else text

    messages = []
    if rng.random() < 0.4:
        messages.append({"role": "system", "content": content()})
    for _ in range(rng.randrange(1, 4)):
        messages.append({"role": "user", "content": content()})
        if rng.random() < 0.3:
            text = rng.choice([None, "", "I look"])
            calls = [call(rng.choice([{"city": "Rome"}, '{"city": "é"}', {}])) for _ in range(rng.randrange(1, 3))]
            messages.append({"role": "assistant", "content": text, "tool_calls": calls})
            for _ in calls:
                messages.append({"role": "tool", "name": "get_weather", "content": "20", "tool_call_id": "call00001"})
        if rng.random() < 0.8:
            messages.append({"role": "assistant", "content": content()})
            if rng.random() < 0.2:
                messages[-1][rng.choice(["reasoning_content", "thinking"])] = rng.choice(TEXTS)
    if rng.random() < 0.1:
        messages.insert(rng.randrange(len(messages) + 1), rng.choice(messages))
    chat = {**TOKENS, "messages": messages}
    if rng.random() < 0.3:
        chat["tools"] = [WEATHER] * rng.randrange(3)
    if rng.random() < 0.5:
        chat["add_generation_prompt"] = True
    if rng.random() < 0.2:
        chat["enable_thinking"] = rng.random() < 0.5
    return chat


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--axtrain", default="build/axtrain")
    parser.add_argument("--chats", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
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
                if differ(theirs, mine):
                    different += 1
                    print(f"{name}\n  chat {chat!r}\n  axolotl {theirs}\n  axtrain {mine}")
    print(f"{count} cases, {rendered} rendered, {different} different")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())

"""Writes tests/data/tekken.json, a small tokenizer in Mistral's form, and tests/data/tekken_cases.json:
what the mistral-common package makes of texts and conversations with it, in every version.

    pip install mistral-common
    python make_tekken_cases.py          # the same files each time
    python make_tekken_cases.py --check BUILD_DIR/tests/peers/tokenize_lines
                                         # instead: its ids with the package's own tekken files

The vocabulary is learned here from the texts below."""
import base64
import collections
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import byte_pairs
import regex
from mistral_common.protocol.instruct.messages import (AssistantMessage, SystemMessage, ToolMessage,
                                                       UserMessage)
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.protocol.instruct.tool_calls import Function, FunctionCall, Tool, ToolCall
from mistral_common.protocol.instruct.validator import ValidationMode
from mistral_common.protocol.instruct.chunk import TextChunk, ThinkChunk
from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy, SpecialTokens
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
VERSIONS = ["v3", "v7", "v11", "v13", "v15"]
# of v15: what a file says of settings that a conversation does not give
BUILDER = {"reasoning_effort": {"type": "enum", "values": ["none", "high"], "accepts_none": True,
                                "default": "none"}}
PATTERN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
           r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
           r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEXTS = ["The quick brown fox jumps over the lazy dog.", "one and one is two, two and two are four",
         "Hello! How are you today?\nI am fine, thanks.", "def f(x):\n    return x * 2  # twice\n",
         "naïve café, déjà vu: 12 × 7 = 84", "漢字かな交じり文 🙂🙃 привет мир", "  spaces   and\ttabs  \r\n\r\n",
         '{"city": "Paris", "units": ["C", "F"], "deep": {"a": null, "b": 1.5e3}}', "", " ", "\n", "a",
         "aaaa aaaaaaa aaaaaaaaaaaa", "e\u0301 \u0000 \ufffd \u200d end", "IBM McDonald's iPhone HTTPServer",
         "What is the weather in Paris? It is 21 degrees and sunny.", "trailing blanks   ",
         "the the thethe then there these theatre", "١٢٣ ४५६ Ⅷ ½ ²"]
SIZE, SPECIALS = 588, 48
WORDS = ["the", "Weather", "café", "漢字", "🙂", " ", "  ", "\n", "\n\n", "12", "3.5", "{\"a\": [1, 2]}", "don't",
         "HTTPServer", "привет", "-->", "x_y", "\t", "aaaa", "É", "e\u0301", "the the", "¿qué?", "a/b/c", "<tag>"]


def learn():
    """tiktoken's form: 256 bytes, then the most frequent pair again and again."""
    words = collections.Counter()
    for t in TEXTS * 3 + [" ".join(WORDS)]:
        words.update(w.encode() for w in regex.findall(PATTERN, t))
    return byte_pairs.learn(words, [bytes([b]) for b in range(256)], SIZE - SPECIALS)


def tekken(version, vocab):
    named = [t["token_str"] for t in Tekkenizer.DEPRECATED_SPECIAL_TOKENS]
    more = [t.value for t in SpecialTokens if t.value not in named]
    specials = [{"rank": i, "token_str": str(getattr(t, "value", t)), "is_control": True}
                for i, t in enumerate((named + more)[:SPECIALS])]
    tokens = []
    for i, b in enumerate(vocab + [b"never used"]):
        try:
            text = b.decode()
        except UnicodeDecodeError:
            text = None
        tokens.append({"rank": i, "token_bytes": base64.b64encode(b).decode(), "token_str": text})
    return {"config": {"pattern": PATTERN, "num_vocab_tokens": len(tokens),
                       "default_vocab_size": SIZE, "default_num_special_tokens": SPECIALS,
                       "version": version}, "vocab": tokens, "special_tokens": specials,
            **({"model_settings_builder": BUILDER} if version == "v15" else {})}


def call(name, arguments, id):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a \"city\"", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "enum": ["Zürich", "Paris"]},
                                         "days": {"type": "integer"}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {}}}]
USED = [{"role": "user", "content": "What is the weather in Paris and Zürich?"},
        {"role": "assistant", "content": "", "tool_calls": [
            call("get_weather", '{"city":"Paris","days":2}', "abcdef123"),
            call("get_weather", '{"city": "Zürich", "at": [1.0, null, true]}', "XYZ456789")]},
        {"role": "tool", "name": "get_weather", "content": "rain at 3°", "tool_call_id": "XYZ456789"},
        {"role": "tool", "name": "get_weather", "content": '{"t":21.50,"sky":["sun"]}',
         "tool_call_id": "abcdef123"},
        {"role": "assistant", "content": "21 degrees, and rain.  "}]
PLAIN = [[("user", "Hello! How are you?")],
         [("user", "one and one"), ("assistant", "two")],
         [("system", "Be brief."), ("user", "say yes"), ("assistant", "yes"), ("user", "say no"),
          ("assistant", " no, no  ")],
         [("user", "a"), ("user", "b"), ("assistant", "c"), ("assistant", "d"), ("user", "")],
         [("system", "Be\n\nkind. "), ("system", "漢字 🙂"), ("user", "déjà vu"), ("assistant", "\n\tok")],
         [("user", ["first part", "", "second part"]), ("assistant", ["one", "two"])],
         [("system", "only this"), ("assistant", "and an answer")],
         [("user", "q"), ("system", "in between"), ("user", "r"), ("assistant", "s")]]
MORE = [("used tools", USED, TOOLS), ("asked again", USED + [{"role": "user", "content": "And now?"},
         {"role": "assistant", "content": "the same"}], TOOLS),
        ("tools, not used", [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"},
                             {"role": "user", "content": "bye"}], TOOLS[:1]),
        ("words and a call", [{"role": "user", "content": "now?"}, {
            "role": "assistant", "content": "I look. ", "tool_calls": [call("now", "", "123456789")]}],
         TOOLS[1:]),
        ("arguments that are no JSON", [{"role": "user", "content": "now?"}, {
            "role": "assistant", "content": "", "tool_calls": [call("now", "later \"on\"", "123456789")]}],
         None),
        ("thoughts", [{"role": "user", "content": "why?"}, {"role": "assistant", "content": "so  ",
                       "reasoning_content": "let me see\n"}], None)]


def conversations(rng):
    for i, turns in enumerate(PLAIN):
        yield f"plain {i}", [{"role": r, "content": [{"type": "text", "text": t} for t in c]
                              if isinstance(c, list) else c} for r, c in turns], None
    yield from MORE
    for i in range(20):
        messages = [{"role": "system", "content": text_of(rng)}] if rng.random() < 0.5 else []
        for _ in range(rng.randint(1, 4)):
            messages.append({"role": "user", "content": text_of(rng)})
            messages.append({"role": "assistant", "content": text_of(rng) + "."})
        yield f"random {i}", messages, TOOLS if rng.random() < 0.4 else None


def text_of(rng):
    return "".join(rng.choice(WORDS) + rng.choice(["", " ", "  "]) for _ in range(rng.randint(1, 12)))


def message_of(m):
    content = m["content"]
    if isinstance(content, list):
        content = [TextChunk(text=p["text"]) for p in content]
    if m["role"] == "user":
        return UserMessage(content=content)
    if m["role"] == "system":
        return SystemMessage(content=content)
    if m["role"] == "tool":
        return ToolMessage(content=content, tool_call_id=m["tool_call_id"], name=m["name"])
    if "reasoning_content" in m:
        content = [ThinkChunk(thinking=m["reasoning_content"]), TextChunk(text=content)]
    calls = [ToolCall(id=c["id"], function=FunctionCall(**c["function"]))
             for c in m.get("tool_calls", [])]
    return AssistantMessage(content=content or None, tool_calls=calls or None)


def chat(tok, messages, tools):
    """What the package writes, or None where it refuses."""
    request = ChatCompletionRequest(
        messages=[message_of(m) for m in messages],
        tools=[Tool(function=Function(**t["function"])) for t in tools] if tools else None)
    try:
        out = tok.instruct_tokenizer.encode_instruct(
            tok._instruct_request_normalizer.from_chat_completion_request(request))
    except Exception as e:
        return {"error": type(e).__name__}
    raw = tok.instruct_tokenizer.tokenizer
    return {"ids": out.tokens, "text": raw.decode(out.tokens, SpecialTokenPolicy.KEEP)}


def open_tokenizer(root, file):
    path = pathlib.Path(root) / "tekken.json"
    path.write_text(json.dumps(file))
    return MistralTokenizer.from_file(str(path), mode=ValidationMode.finetuning)


def compact(o):
    return json.dumps(o, ensure_ascii=True, separators=(",", ":"))


def write(path, lines):
    path.write_text("\n".join(lines) + "\n", encoding="ascii")


def main():
    vocab, rng = learn(), random.Random(5)
    file = tekken("v3", vocab)
    write(DATA / "tekken.json",
          ['{"config":' + compact(file["config"]) + ',"special_tokens":' + compact(file["special_tokens"])
           + ',"vocab":['] + [compact(t) + ("," if i + 1 < len(file["vocab"]) else "")
                              for i, t in enumerate(file["vocab"])] + ["]}"])
    texts = TEXTS + [text_of(rng) for _ in range(60)]
    texts += ["".join(chr(rng.choice([rng.randint(1, 0x7F), rng.randint(0x80, 0x2FFF),
                                      rng.randint(0x1F300, 0x1F6FF)])) for _ in range(rng.randint(1, 30)))
              for _ in range(60)]
    chats = list(conversations(rng))
    lines = []
    with tempfile.TemporaryDirectory() as root:
        for version in VERSIONS:
            tok = open_tokenizer(root, tekken(version, vocab))
            raw = tok.instruct_tokenizer.tokenizer
            if version == "v3":
                lines = ['{"texts":['] + [compact({"text": t, "ids": raw.encode(t, bos=False, eos=False)})
                                          + ("," if t is not texts[-1] else "") for t in texts]
                lines += ['],"decoded":['] + [",\n".join(
                    compact({"ids": ids, "text": raw.decode(ids)}) for ids in
                    [[rng.randrange(SPECIALS, SIZE) for _ in range(rng.randint(1, 20))] for _ in range(60)])]
                lines += ['],"chats":[']
            rows = [dict(version=version, name=n, messages=m, **({"tools": t} if t else {}),
                         **chat(tok, m, t)) for n, m, t in chats]
            lines += [",\n".join(map(compact, rows)) + ("," if version != VERSIONS[-1] else "")]
            print(version, len(rows), "conversations,", sum("error" in r for r in rows), "refused")
    write(DATA / "tekken_cases.json", lines + ["]}"])


def check(tool, files="tekken_*.json"):
    import mistral_common
    rng, bad, n = random.Random(9), 0, 0
    for path in sorted((pathlib.Path(mistral_common.__file__).parent / "data").glob(files)):
        raw = MistralTokenizer.from_file(str(path)).instruct_tokenizer.tokenizer
        lines = [text_of(rng) for _ in range(3000)]
        lines += ["".join(chr(rng.choice([rng.randint(32, 0x7F), rng.randint(0xA0, 0x2FFF),
                                          rng.randint(0x1F300, 0x1F6FF)]))
                          for _ in range(rng.randint(1, 60))) for _ in range(3000)]
        p = subprocess.run([tool, str(path)], text=True, capture_output=True, check=True,
                           input="".join(compact({"text": t}) + "\n" for t in lines))
        for line, got in zip(lines, p.stdout.splitlines(), strict=True):
            n += 1
            if json.loads(got)["ids"] != raw.encode(line, bos=False, eos=False):
                bad += 1
                print(path.name, repr(line), got)
    print(f"{n} lines, {bad} differ")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(check(sys.argv[2]) if sys.argv[1:2] == ["--check"] else main())

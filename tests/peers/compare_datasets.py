#!/usr/bin/env python3
"""Compares `axtrain preview` with the data set rules computed here, on random rows of every type.

    python3 tests/peers/compare_datasets.py [--rows 80] [--seed 1] FOLDER…

A FOLDER has a tokenizer.json and a tokenizer_config.json. Texts are tokenized, and templates rendered, by
transformers; {% generation %} masks are its own. Ids and labels of each row must be equal. Exit status 1 when
anything differs; 0 with a message where transformers is not installed.
"""
import argparse
import copy
import json
import os
import random
import subprocess
import sys
import tempfile

try:
    from transformers import AutoTokenizer
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(0)

AXTRAIN = os.environ.get("AXTRAIN", "build/axtrain")
WORDS = """the cat sat on a mat , . ! ? 12 3456 é 日本 😀 <b> \n \n\n \t don't I'm x=1 (( )) << >> def f(x): return naïve
  ok "quoted" 'single' \\ / \r\n ö 東京 ½ _ __init__ # ### Instruction: </think> … « »""".split(" ")
WITH = ("Below is an instruction that describes a task, paired with an input that provides further context. "
        "Write a response that appropriately completes the request.")
WITHOUT = "Below is an instruction that describes a task. Write a response that appropriately completes the request."
CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + eos_token + '\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
TRIM = ("{{ bos_token or '' }}{% for m in messages %}### {{ m.role }}:\n{{ m.content | trim }}{{ eos_token }} {% endfor %}")
TOOLS = ("{% if tools %}{{ tools | tojson }}\n{% endif %}{% for m in messages %}[{{ m.role }}] "
         "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content or '' }}"
         "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }} {{ c.function.arguments | tojson }}</call>{% endfor %}"
         "{{ eos_token }}{% if m.note %}({{ m.note }}){% endif %}{% endfor %}")
EOT = "{% for m in messages %}{{ m.role }}: {{ m.content }}<eot>{% endfor %}{{ eos_token }}"
GENERATION = ("{% for m in messages %}{% if m.role == 'assistant' %}{{ 'A: ' }}{% generation %}{{ m.content }}{{ eos_token }}"
              "{% endgeneration %}{% else %}{{ m.role + ': ' + m.content + '\\n' }}{% endif %}{% endfor %}")
OTHER = "[[other words]]"  # no word below begins or ends like it
IGNORE = -100
NAMES = {"human": "user", "gpt": "assistant"}


class Side:
    """The tokenizer and the options of a case, as the rules need them."""

    def __init__(self, tok, length):
        self.tok, self.length = tok, length
        self.bos, self.eos = tok.bos_token_id, tok.eos_token_id

    def T(self, text):
        return self.tok(text, add_special_tokens=True)["input_ids"] if text else []

    def R(self, text):
        return self.tok(text, add_special_tokens=False)["input_ids"] if text else []


def text(r, most=12, least=0):
    return r.choice(["", "", " "]) + r.choice([" ", " ", ""]).join(r.choice(WORDS) for _ in range(r.randint(least, most)))


# ---- rules ----

def pair(s, prompt, response, inputs=False):
    def cut(ids):  # what the tokenizer puts behind a text stays
        return ids[: s.length]
    p, a = cut(s.T(prompt)), cut(s.T(response))
    if a:
        close = a[-1] != s.eos and len(a) < s.length
        a = a[1:] if a[0] == s.bos else a
        a = a + [s.eos] if close else a
    return [(p + a, (p if inputs else [IGNORE] * len(p)) + a)]


def alpaca(style, instruction, given):
    lead = WITH if given else WITHOUT
    if style == "chat":
        return f"SYSTEM: {lead}\nUSER: {instruction}" + (f"\n{given}" if given else "") + "\nASSISTANT:"
    if style == "chatml":
        return (f"<|im_start|>system\n{lead}<|im_end|>\n<|im_start|>user\n{instruction}" + (f"\n{given}" if given else "")
                + "<|im_end|>\n<|im_start|>assistant\n")
    if style == "phi":
        tail = f"<|end|>{given}<|assistant|>" if given else "<|end|>\n<|assistant|>\n"
        return f"<|system|>\n{lead}<|end|>\n<|user|>\n{instruction}" + tail
    return lead + f"\n\n### Instruction:\n{instruction}" + (f"\n\n### Input:\n{given}" if given else "") + "\n\n### Response:\n"


def completion(s, row):
    ids = s.T(row["text"])[: 64 * s.length]
    if ids and len(ids) < 64 * s.length and ids[-1] != s.eos:
        ids = ids + [s.eos]
    chunks = [ids[i: i + s.length] for i in range(0, len(ids), s.length)]
    return [(c, c) for c in chunks]


def pretrain_cut(s, row):
    ids = s.T(row["text"])[: s.length - 2]
    return [(ids, ids)] if ids else []


def pretrain_windows(s, row):
    body, framed = s.R(row["text"]), s.T("a")
    if not body:
        return []
    lead = [s.bos] if framed and framed[0] == s.bos else []
    size = s.length - 1 - len(lead)
    step = size - min(256, (s.length - 1) // 2)
    out, at = [], 0
    while True:
        ids = lead + body[at: at + size] + [s.eos]
        out.append((ids, ids))
        if at + size >= len(body):
            return out
        at += step


def segments(s, row):
    ids, labels = [], []
    for part in row["segments"]:
        got = s.R(part["text"])
        ids += got
        labels += got if part["label"] else [IGNORE] * len(got)
    return [(ids, labels)]


def difference(a, b):
    """First and last place where two lists differ, counted in a; None where one is not found."""
    n = min(len(a), len(b))
    start = next((i for i in range(n) if a[i] != b[i]), None)
    end = next((len(a) - i for i in range(n) if a[-1 - i] != b[-1 - i]), None)
    return None if start is None or end is None or end <= start else (start, end)


def widened(places, detail):
    """Tokens of a span by the places of their first and last characters."""
    begin, end = detail["begin_offset"], detail["end_offset"]
    first = next((i for i, (a, _) in enumerate(places) if a >= begin), len(places))
    if first > 0 and places[first - 1][1] > begin:
        first -= 1
    last = next((i for i in range(len(places) - 1, -1, -1) if places[i][1] <= end), -1)
    if last < len(places) - 1 and places[last + 1][0] < end:
        last += 1
    return range(first, last + 1)


def train_spans(text, spans, found, offsets, whole, labels, ids):
    """Spans of a text that stands between two tokens of the rendering."""
    low, high = offsets[found[0]][0], offsets[found[1] - 1][1]
    at = whole.find(text, low, high)
    inside = [i for i in range(*found) if offsets[i][0] < at + len(text) and offsets[i][1] > at]
    starts = [max(offsets[i][0] - at, 0) for i in inside]
    places = [(a, b - 1) for a, b in zip(starts, starts[1:] + [len(text)])]
    for d in spans:
        for t in widened(places, d) if d["train"] else []:
            labels[inside[t]] = ids[inside[t]]


def joined(parts):
    text, spans, flagged = "", [], False
    for part in parts:
        piece = part.get("text") or part.get("content") or part.get("value") or ""
        train = part.get("train", part["weight"] != 0 if "weight" in part else None)
        flagged = flagged or train is not None
        if piece:
            spans.append({"begin_offset": len(text), "end_offset": len(text) + len(piece) - 1, "train": train is not False})
        text += piece
    return text, spans if flagged else None


def chat(s, row, o):
    turns, flags = [], []
    for m in row["messages"]:
        turn = {k: copy.deepcopy(v) for k, v in m.items() if k in o["keys"] and v is not None}
        turn["role"] = NAMES.get(turn["role"], turn["role"])
        for call in turn.get("tool_calls") or []:
            if isinstance(call["function"]["arguments"], str):
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        spans, thought = m.get("spans"), None
        if isinstance(turn.get("content"), list):
            turn["content"], found = joined(turn["content"])
            spans = spans if found is None else found
        if isinstance(turn.get("reasoning_content"), list):
            turn["reasoning_content"], thought = joined(turn["reasoning_content"])
        turns.append(turn)
        flags.append((m.get("train"), spans, thought))
    if row.get("system") is not None and turns[0]["role"] != "system":
        turns.insert(0, {"role": "system", "content": row["system"]})
        flags.insert(0, (None, None, None))
    if o.get("drop") and turns[0]["role"] == "system":
        turns, flags = turns[1:], flags[1:]

    def print_all(messages):
        extra = {"real_last_index": len(turns) - 1} if messages is not turns else {}
        return s.tok.apply_chat_template(messages, chat_template=o["template"], tokenize=False, tools=row.get("tools"), **extra)

    def render(messages):
        return s.R(print_all(messages))
    printed = print_all(turns)
    ids = s.R(printed)
    offsets = s.tok(printed, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    labels = [IGNORE] * len(ids)
    ends, last = {"eot": [s.eos], "eos": [s.eos]}, {}
    if "eot" in o:
        ends["eot"] = s.R(o["eot"])
    rule = {"eos": o.get("eos", "turn"), "eot": o.get("on_eot", o.get("eos", "turn"))}
    for i, turn in enumerate(turns):
        train, spans, thought = flags[i]
        detailed = spans is not None or thought is not None
        wanted = train if train is not None else bool(spans or thought) if detailed else turn["role"] in o["roles"]
        if not wanted and "all" not in rule.values():
            continue
        other = {"role": turn["role"], "content": OTHER}
        if (spans or thought) and "reasoning_content" in turn:
            other["reasoning_content"] = turn["reasoning_content"]
        whole = render(turns[: i + 1])
        found = difference(whole, render(turns[:i] + [other]))
        if wanted and thought:
            changed = difference(whole, render(turns[:i] + [{**turn, "reasoning_content": OTHER}]))
            if changed:
                train_spans(turn["reasoning_content"], thought, changed, offsets, printed, labels, ids)
        if not found or found[1] > len(ids):
            continue
        start, end = found
        if wanted and spans:
            train_spans(turn["content"], spans, found, offsets, printed, labels, ids)
        elif wanted and not thought:
            labels[start:end] = ids[start:end]
        for kind in ("eot", "eos"):
            at = next((k for k in range(end, len(ids)) if ids[k] in ends[kind]), None)
            if at is None or at - end > 3:
                continue
            last[kind] = at
            if rule[kind] == "all" or (rule[kind] == "turn" and wanted):
                labels[at] = ids[at]
    for kind, at in last.items():
        if rule[kind] == "last":
            labels[at] = ids[at]
    return [(ids, labels)]


def generation(s, row, o):
    turns = [{**m, "role": NAMES.get(m["role"], m["role"])} for m in row["messages"]]
    got = s.tok.apply_chat_template(turns, chat_template=o["template"], return_dict=True, return_assistant_tokens_mask=True)
    ids = got["input_ids"]
    return [(ids, [t if m else IGNORE for t, m in zip(ids, got["assistant_masks"])])]


# ---- random rows ----

def parts(r, whole):
    """The text as it is, or cut into parts, some of which say whether they are trained."""
    if r.random() < 0.4:
        return whole
    cuts = sorted(r.sample(range(len(whole) + 1), min(len(whole), r.randint(0, 3))))
    out = []
    for a, b in zip([0] + cuts, cuts + [len(whole)]):
        part = {"type": "text", r.choice(["text", "content", "value"]): whole[a:b]}
        part.update(r.choice([{}, {}, {"train": True}, {"train": False}, {"weight": 0}, {"weight": 1.0}]))
        out.append(part)
    return out


def conversation(r, s, o):
    roles = ["user", "human", "assistant", "gpt", "tool"]
    messages = [{"role": "system", "content": text(r, 5, 1)}] if r.random() < 0.3 else []
    for i in range(r.randint(1, 6)):
        m = {"role": r.choice(roles) if r.random() < 0.2 else ["user", "assistant"][i % 2], "content": text(r)}
        if o.get("flags") and r.random() < 0.4:
            m["train"] = r.choice([True, False, None])
        if o.get("spans") and r.random() < 0.5 and m["content"].strip() == m["content"] != "":
            n, at, m["spans"] = len(m["content"]), 0, []
            while at < n:
                to = r.randint(at, n - 1)
                m["spans"].append({"begin_offset": at, "end_offset": to, "train": r.random() < 0.5})
                at = to + 1
        if o.get("tools") and m["role"] == "assistant":
            if r.random() < 0.5:
                m["reasoning_content"] = text(r, 5)
            if r.random() < 0.4:
                given = {"city": text(r, 3), "n": r.randrange(99), "x": [True, 1.5]}
                m["tool_calls"] = [{"type": "function", "function": {"name": "f", "arguments": r.choice([given, json.dumps(given)])}}]
            if r.random() < 0.2:
                m["note"] = "seen"
            if r.random() < 0.2:
                m["content"] = None
        if o.get("parts"):
            m["content"] = parts(r, m["content"])
            if m["role"] == "assistant" and r.random() < 0.5:
                m["reasoning_content"] = parts(r, text(r, 5, 1))
        messages.append(m)
    row = {"messages": messages}
    if r.random() < 0.15:
        row["system"] = r.choice(["", "Be kind.", None])
    if o.get("tools") and r.random() < 0.5:
        row["tools"] = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "é": None}}}]
        row["tools"][0]["function"]["parameters"].pop("é")
    return row


def instruction(r, names):
    row = dict(zip(names, (text(r, 10, 1), text(r, 6), text(r, 20))))
    if len(names) == 3 and r.random() < 0.3:
        row[names[1]] = r.choice(["", None])
    return row


def cases():
    """name, YAML of the entry, YAML of the config, row maker, rule."""
    out = []
    for style in ("", ":chat", ":chatml", ":phi"):
        name = style[1:] or "instruct"
        out.append((f"alpaca{style}", f"type: alpaca{style}", "", lambda r, s: instruction(r, ("instruction", "input", "output")),
                    lambda s, x, n=name: pair(s, alpaca(n, x["instruction"], x["input"] or ""), x["output"])))
    out.append(("alpaca, inputs too", "type: alpaca", "train_on_inputs: true",
                lambda r, s: instruction(r, ("instruction", "input", "output")),
                lambda s, x: pair(s, alpaca("instruct", x["instruction"], x["input"] or ""), x["output"], True)))
    out.append(("gpteacher:chat", "type: gpteacher:chat", "", lambda r, s: instruction(r, ("instruction", "input", "response")),
                lambda s, x: pair(s, alpaca("chat", x["instruction"], x["input"] or ""), x["response"])))
    out.append(("oasst", "type: oasst", "", lambda r, s: instruction(r, ("INSTRUCTION", "RESPONSE")),
                lambda s, x: pair(s, alpaca("instruct", x["INSTRUCTION"], ""), x["RESPONSE"])))
    out.append(("jeopardy", "type: jeopardy", "", lambda r, s: instruction(r, ("question", "category", "answer")),
                lambda s, x: pair(s, alpaca("instruct", x["question"], x["category"] or ""), "what is " + x["answer"])))
    user = ("type: {system_prompt: 'Say {}.', system_format: '<<{system}>> ', field_instruction: q, field_input: i, "
            "field_output: a, field_system: sys, format: '{{Q}} {instruction}|{input}:', no_input_format: '{instruction}:'}")

    def own(s, x):
        system = x["sys"] if "sys" in x and x["sys"] is not None else "" if "sys" in x else "Say {}."
        lead = f"<<{system}>> " if system else ""
        return pair(s, lead + (f"{{Q}} {x['q']}|{x['i']}:" if x["i"] else f"{x['q']}:"), x["a"])

    def own_row(r, s):
        row = instruction(r, ("q", "i", "a"))
        if r.random() < 0.5:
            row["sys"] = r.choice(["", "S", "T {x}"])
        return row
    out.append(("a map", user, "", own_row, own))
    out.append(("completion", "type: completion", "", lambda r, s: {"text": text(r, 150)}, completion))
    out.append(("input_output", "type: input_output", "", lambda r, s: {"segments": [
        {"label": r.random() < 0.5, "text": text(r, 8) + r.choice(["", s.tok.eos_token])} for _ in range(r.randint(1, 5))]}, segments))

    def tokens(r, s):
        n = r.randint(1, 40)
        ids = [r.randrange(300) for _ in range(n)]
        return {"input_ids": ids, "attention_mask": [1] * n, "labels": [r.choice([i, i, IGNORE, r.randrange(300)]) for i in ids]}
    out.append(("tokens", "type: null", "", tokens, lambda s, x: [(x["input_ids"], x["labels"])]))
    base = {"keys": ("role", "content"), "roles": ("assistant",)}
    chats = [
        ("chatml", CHATML, "", "", {}),
        ("eos: all", CHATML, "train_on_eos: all", "", {"eos": "all"}),
        ("eos: last", CHATML, "train_on_eos: last", "", {"eos": "last"}),
        ("eos: none", CHATML, "train_on_eos: none", "", {"eos": "none"}),
        ("eot apart", EOT, "train_on_eos: none\n    train_on_eot: turn", "tokens: [<eot>]\neot_tokens: [<eot>]",
         {"eos": "none", "on_eot": "turn", "eot": "<eot>"}),
        ("parts", TOOLS, "", "", {"parts": True, "keys": ("role", "content", "reasoning_content")}),
        ("roles", CHATML, "roles_to_train: [human, tool]", "", {"roles": ("user", "tool")}),
        ("trimmed", TRIM, "drop_system_message: true", "", {"drop": True}),
        ("flags", CHATML, "message_field_training: train", "", {"flags": True}),
        ("spans", CHATML, "message_field_training_detail: spans", "", {"spans": True}),
        ("tools", TOOLS, "", "", {"tools": True, "keys": ("role", "content", "reasoning_content", "tool_calls", "note")}),
    ]
    for name, template, entry, config, options in chats:
        o = {**base, **options, "template": template}
        lines = "type: chat_template" + ("\n    " + entry if entry else "") + "\n    chat_template_jinja: " + json.dumps(template)
        out.append((f"chat, {name}", lines, config, lambda r, s, o=o: conversation(r, s, o), lambda s, x, o=o: chat(s, x, o)))
    o = {**base, "template": GENERATION}
    out.append(("chat, generation blocks", "type: chat_template\n    train_on_generation: true\n    chat_template_jinja: " + json.dumps(GENERATION),
                "", lambda r, s: {"messages": conversation(r, s, o)["messages"]}, lambda s, x: generation(s, x, o)))
    out.append(("pretrain, cut", None, "pretraining_sample_concatenation: false", lambda r, s: {"text": text(r, 150)}, pretrain_cut))
    out.append(("pretrain, windows", None, "sample_packing: true", lambda r, s: {"text": text(r, 250)}, pretrain_windows))
    return out


# ---- comparing ----

def preview(folder, work, rows, entry, config, length):
    data, yaml = os.path.join(work, "rows.jsonl"), os.path.join(work, "c.yaml")
    with open(data, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(x) + "\n" for x in rows)
    head = (f"base_model: {folder}\nsequence_len: {length}\nlearning_rate: 1e-4\nmicro_batch_size: 1\n"
            f"gradient_accumulation_steps: 1\ncurriculum_sampling: true\nshuffle_merged_datasets: false\n{config}\n")
    with open(yaml, "w", encoding="utf-8") as f:
        if entry:
            f.write(head + f"datasets:\n  - path: {data}\n    {entry}\n")
        else:
            f.write(head + f"max_steps: 9\npretraining_dataset:\n  - path: {data}\n")
    out = subprocess.run([AXTRAIN, "preview", yaml, "--json", "--rows=100000"], capture_output=True, text=True)
    if out.returncode != 0:
        sys.exit(f"{entry}: {out.stderr}")
    docs = [d for row in json.loads(out.stdout)["rows"] for d in row["documents"]]
    by_line = {}
    for d in docs:
        by_line.setdefault(int(d["where"].rsplit(":", 1)[1]), []).append((d["ids"], d["labels"]))
    return by_line


def show(tok, documents):
    """Texts with what is trained in brackets; where labels are other ids, those."""
    out = []
    for ids, labels in documents:
        parts = [repr(tok.decode([i]))[1:-1] if i == l else str(l) if l != IGNORE else "" for i, l in zip(ids, labels)]
        out.append(repr(tok.decode(ids)) + " trains " + "|".join(parts).replace("||", ""))
    return out


def compare(folder, count, seed):
    tok = AutoTokenizer.from_pretrained(folder)
    bad = total = 0
    with tempfile.TemporaryDirectory() as work:
        for name, entry, config, make, rule in cases():
            r = random.Random(f"{seed} {name}")
            if "eot apart" in name:
                tok = AutoTokenizer.from_pretrained(folder)
                tok.add_tokens(["<eot>"])
            s = Side(tok, 48 if "pretrain" in name or name == "completion" else 200)
            rows = [make(r, s) for _ in range(count)]
            got = preview(folder, work, rows, entry, config, s.length)
            wrong = 0
            for i, row in enumerate(rows):
                want = [(a, b) for a, b in rule(s, row) if 2 <= len(a) <= s.length]
                if sorted(got.get(i + 1, [])) != sorted(want):
                    wrong += 1
                    if wrong <= 2:
                        print(f"  {name}: {json.dumps(row)}\n    here  {show(tok, want)}\n    there {show(tok, got.get(i + 1, []))}")
            total, bad = total + count, bad + wrong
            if wrong:
                print(f"{folder}, {name}: {wrong} of {count} rows differ")
    print(f"{folder}: {total} rows, {bad} differ")
    return bad


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rows", type=int, default=80)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("folders", nargs="+")
    o = p.parse_args()
    sys.exit(1 if sum(compare(f, o.rows, o.seed) for f in o.folders) else 0)


main()

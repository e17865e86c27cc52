#!/usr/bin/env python3
"""Writes tests/data/tokenizer_steps.json: what the HF `tokenizers` library makes of short texts with
one step or another, for tests/data/test_tokenizer_steps.c.

    python3 tests/peers/make_tokenizer_steps.py > tests/data/tokenizer_steps.json

Two models are trained on the very texts without any splitting, so that their merges run across all
borders that a step may set: a piece too many or too few changes the ids.
"""
import json

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

TEXTS = [
    "", " ", "  ", "a", " a", "a ", "Hello, world!", "  Hello   world  ", "it's  I'LL we\u2019re 'tis",
    "x=  42\n\n  y == 1234567\t\n", "na\u00efve caf\u00e9 e\u0301 \ufb01 \u212b", "\u3053\u3093\u306b\u3061\u306f \u4e16\u754c\u3002",
    "the-final--countdown-", "--", "a\u2581b \u2581\u2581 c", "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467!", "<tag>in <TAG> out</tag>x",
    "\u0130stanbul \u00c0\u0391\u0411", "1\u00bd \u00b2 \u0663\u0664 \u2167", "tab\tnew\nline\r\nend \u00a0\u3000.", "snake_case CamelCase",
    "word<tag>word <tag> word  <tag>  word", "\u0e01\u0e33 \u1100\u1161\u11a8 \uac01", "...!?\u3002\u00bf\u2014\u201cq\u201d", "a.b,c;d",
]


def train(bytes_):
    tok = Tokenizer(models.BPE(unk_token=None if bytes_ else "<unk>"))
    if bytes_:
        tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    else:
        tok.normalizer = normalizers.Replace(" ", "\u2581")
        alphabet = [" "]
    specials = [] if bytes_ else ["<unk>"] + [f"<0x{i:02X}>" for i in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=720 if bytes_ else 640, special_tokens=specials,
                                  initial_alphabet=alphabet, show_progress=False, min_frequency=1)
    tok.train_from_iterator(TEXTS[4:22] * 2, trainer)
    model = json.loads(tok.to_str())["model"]
    model["merges"] = [" ".join(m) if " " not in "".join(m) else m for m in model["merges"]]
    if any(isinstance(m, list) for m in model["merges"]):
        model["merges"] = [m if isinstance(m, list) else m.split(" ") for m in model["merges"]]
    return model


MODELS = {"text": train(False), "bytes": train(True)}


def seq(kind, *steps):
    key = {"n": "normalizers", "p": "pretokenizers", "d": "decoders", "o": "processors"}[kind]
    return {"type": "Sequence", key: list(steps)}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def byte_level(prefix=False, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": False, "use_regex": regex}


def metaspace(scheme, split_, replacement="\u2581"):
    return {"type": "Metaspace", "replacement": replacement, "prepend_scheme": scheme, "split": split_}


def replace(pattern, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def added(content, **flags):
    return {"id": 0, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True} | flags


def template(before, after):
    piece = lambda t: {"SpecialToken": {"id": t, "type_id": 0}}
    single = [piece(t) for t in before] + [{"Sequence": {"id": "A", "type_id": 0}}] + [piece(t) for t in after]
    return {"type": "TemplateProcessing", "single": single, "pair": single + [{"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]} for t, i in (("<a>", 5), ("<b>", 7))}}


def cases():
    behaviors = ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
    for b in behaviors:
        for inv in (False, True):
            yield f"split {b} {inv}", "text", {"pre_tokenizer": split(r"-|\s+", b, inv)}
        yield f"split string {b}", "text", {"pre_tokenizer": split("-", b, False, "String")}
        yield f"punctuation {b}", "text", {"pre_tokenizer": {"type": "Punctuation", "behavior": b}}
    for flag in (False, True):
        yield f"digits {flag}", "text", {"pre_tokenizer": {"type": "Digits", "individual_digits": flag}}
    for name in ("Whitespace", "WhitespaceSplit"):
        yield name, "text", {"pre_tokenizer": {"type": name}}
    for scheme in ("always", "first", "never"):
        for s in (False, True):
            yield f"metaspace {scheme} {s}", "text", {
                "pre_tokenizer": metaspace(scheme, s),
                "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": s}}
    yield "metaspace old", "text", {"pre_tokenizer": {"type": "Metaspace", "replacement": "_", "add_prefix_space": True}}
    yield "metaspace first after token", "text", {
        "pre_tokenizer": metaspace("first", False), "added_tokens": [added("<tag>")]}
    for prefix in (False, True):
        for regex in (False, True):
            yield f"bytes {prefix} {regex}", "bytes", {"pre_tokenizer": byte_level(prefix, regex), "decoder": byte_level()}
    yield "digits then bytes", "bytes", {
        "pre_tokenizer": seq("p", {"type": "Digits", "individual_digits": True}, byte_level()), "decoder": byte_level()}
    yield "bytes then digits", "bytes", {
        "pre_tokenizer": seq("p", byte_level(), {"type": "Digits", "individual_digits": False}, split("[0-9][0-9]")),
        "decoder": byte_level()}
    yield "punctuation, bytes", "bytes", {
        "pre_tokenizer": seq("p", {"type": "Punctuation", "behavior": "Contiguous"}, byte_level()), "decoder": byte_level()}
    yield "classes", "bytes", {"pre_tokenizer": seq(
        "p", split(r"[\p{L}&&[^\p{Han}]]+|[\p{Han}[0-9]]+|[^\s\w]"), byte_level(regex=False)), "decoder": byte_level()}
    yield "shorthands", "bytes", {"pre_tokenizer": seq(
        "p", split(r"\w+|\d|\h|\u3000|^[^\n]|$"), byte_level(regex=False)), "decoder": byte_level()}
    yield "empty matches", "bytes", {"pre_tokenizer": seq("p", split(r"a*"), byte_level(regex=False)), "decoder": byte_level()}
    yield "dot", "bytes", {"pre_tokenizer": seq("p", split(r"(?m:a.)|.\b"), byte_level(regex=False)), "decoder": byte_level()}
    yield "byte normalizer", "bytes", {"normalizer": {"type": "ByteLevel"}, "decoder": byte_level()}
    for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"):
        yield name, "text", {"normalizer": {"type": name}}
    yield "nfd strip accents", "text", {"normalizer": seq("n", {"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"})}
    for left in (False, True):
        for right in (False, True):
            yield f"strip {left} {right}", "text", {"normalizer": {"type": "Strip", "strip_left": left, "strip_right": right}}
    yield "prepend, replace", "text", {
        "normalizer": seq("n", {"type": "Prepend", "prepend": "\u2581"}, replace(" ", "\u2581")),
        "decoder": seq("d", replace("\u2581", " "), {"type": "ByteFallback"}, {"type": "Fuse"},
                       {"type": "Strip", "content": " ", "start": 1, "stop": 0}),
        "added_tokens": [added("<tag>"), added("out", normalized=True, special=False)],
        "model": {"byte_fallback": True, "fuse_unk": True}}
    yield "replace regex", "text", {"normalizer": replace(r"\s+|o", "<>", "Regex")}
    yield "replace by nothing", "text", {"normalizer": replace("l", ""), "pre_tokenizer": {"type": "WhitespaceSplit"}}
    yield "unknown", "text", {"model": {"fuse_unk": False}}
    yield "unknown fused", "text", {"model": {"fuse_unk": True}}
    yield "bytes of unknown", "text", {"model": {"byte_fallback": True}, "decoder": {"type": "ByteFallback"}}
    yield "ignore merges", "bytes", {"model": {"ignore_merges": True}, "pre_tokenizer": byte_level(), "decoder": byte_level()}
    for flags in ({}, {"lstrip": True}, {"rstrip": True}, {"lstrip": True, "rstrip": True}, {"single_word": True},
                  {"normalized": True}, {"normalized": True, "lstrip": True}, {"special": False},
                  {"single_word": True, "rstrip": True, "normalized": True}):
        name = "added " + " ".join(flags)
        yield name, "bytes", {
            "added_tokens": [added("<tag>", **flags), added("<t", **flags), added("-", **flags), added("</tag>")],
            "pre_tokenizer": byte_level(), "decoder": byte_level()}
        yield name + " lowercase", "text", {
            "added_tokens": [added("<Tag>", **flags), added("Word", **flags)], "normalizer": {"type": "Lowercase"},
            "pre_tokenizer": metaspace("first", True), "decoder": {"type": "Fuse"}}
    yield "blanks as tokens", "bytes", {
        "added_tokens": [added("  ", normalized=True, special=False), added("<tag>", rstrip=True), added("\n")],
        "pre_tokenizer": byte_level(), "decoder": byte_level()}
    for name, post in (("template", template(["<a>", "<b>"], ["<b>"])), ("template after", template([], ["<a>"])),
                       ("bert", {"type": "BertProcessing", "sep": ["<b>", 7], "cls": ["<a>", 5]}),
                       ("roberta", {"type": "RobertaProcessing", "sep": ["<b>", 7], "cls": ["<a>", 5],
                                    "trim_offsets": False, "add_prefix_space": False}),
                       ("processors", seq("o", byte_level(), template(["<a>"], [])))):
        yield name, "text", {"post_processor": post}
    yield "no decoder", "text", {}
    yield "strip decoder", "text", {"decoder": seq("d", {"type": "Strip", "content": "l", "start": 2, "stop": 0}, {"type": "Fuse"})}
    yield "replace decoder", "text", {"decoder": seq("d", replace(r"[a-e]+", "#", "Regex"), {"type": "Fuse"}, replace("##", "=", "String"))}


DROPS = ("NFC", "NFD", "NFKC", "NFKD", "StripAccents", "nfd strip accents")  # spans: ours cover more
out = []
for name, model, parts in cases():
    doc = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
           "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": None}
    doc |= {k: v for k, v in parts.items() if k != "model"}
    doc["model"] = MODELS[model] | parts.get("model", {})
    tok = Tokenizer.from_str(json.dumps(doc))
    rows = []
    for text in TEXTS:
        e = tok.encode(text, add_special_tokens=False)
        row = {"text": text, "ids": e.ids, "decoded": tok.decode(e.ids, skip_special_tokens=False)}
        if name not in DROPS:
            at = [len(text[:i].encode()) for i in range(len(text) + 1)]
            row["spans"] = [[at[a], at[b]] for a, b in e.offsets]
        with_special = tok.encode(text, add_special_tokens=True).ids
        if with_special != e.ids:
            row["ids_special"] = with_special
        skipped = tok.decode(e.ids, skip_special_tokens=True)
        if skipped != row["decoded"]:
            row["decoded_skip_special"] = skipped
        rows.append(row)
    out.append({"name": name, "model": model, "parts": parts, "rows": rows})
print(json.dumps({"about": "by tests/peers/make_tokenizer_steps.py; tokenizer = model + parts; spans in bytes",
                  "models": MODELS, "cases": out}, separators=(",", ":")))

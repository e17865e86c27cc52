#!/usr/bin/env python3
"""Compares axtrain's tokenizers with the HF `tokenizers` library on random texts, and times both.

    make build/tests/peers/tokenize_lines
    python3 tests/peers/compare_tokenizers.py tokenizer.json ...     ids, spans and decoding
    python3 tests/peers/compare_tokenizers.py --train                on vocabularies trained here
    python3 tests/peers/compare_tokenizers.py --folders              tokenizer_config.json, with transformers
    python3 tests/peers/compare_tokenizers.py --classes              tokenizer_class at random, with transformers
    python3 tests/peers/compare_tokenizers.py --bench TEXT tokenizer.json ...

Exit status 1 when anything differs; 0 with a message where the library is not installed.
"""
import argparse
import glob
import json
import os
import random
import subprocess
import sys
import tempfile
import time

try:
    from tokenizers import (Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                            trainers)
except ImportError:
    print("skipped: the Python package `tokenizers` is not installed")
    sys.exit(0)

TOOL = os.environ.get("TOKENIZE_LINES", "build/tests/peers/tokenize_lines")
WORDS = """the of and to in a is that it for on with as was be by at not this but from they have had will one
would can there their which you were all her she do how if its out up them then now over than who new
function return import class self HTMLElement getElementById parseHTML snake_case i'm don't we'll""".split()
SPECIALS = ["<|endoftext|>", "<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>", "<think>", "<0x41>", "[INST]"]
BLANKS = [" ", "  ", "\n", "\n\n", " \n", "\t", "   ", "\r\n", "\r", "\u00a0", "\u3000", "\u2028", "\x85", "\u180e", "\u200b"]
CONTRACTIONS = ["'s", "'t", "'re", "'VE", "'m", "'LL", "'d", "'\u017f", "\u2019s", "''"]
COMPOSED = ["\u00e9", "e\u0301", "A\u030a", "\u1100\u1161\u11a8", "\ufb01", "\u0958", "\u09c7\u09be", "\u1e9b\u0323", "q\u0307\u0323"]
RANGES = [(0x20, 0x7E), (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0x97F),
          (0xE00, 0xE7F), (0x1100, 0x11FF), (0xAC00, 0xD7A3), (0x1E00, 0x206F), (0x2070, 0x27FF), (0x2580, 0x2590),
          (0x3000, 0x33FF), (0x4E00, 0x9FFF), (0xA700, 0xA7FF), (0xFB00, 0xFDFF), (0x10000, 0x11FFF), (0x1D400, 0x1D7FF),
          (0x1F100, 0x1FAFF), (0x20000, 0x2A6DF), (0x30000, 0x323AF), (0, 0x1F), (0x7F, 0x9F), (0, 0x10FFFF)]


def some(r, count):
    low, high = r.choice(RANGES)
    codes = [r.randint(low, high) for _ in range(r.randint(1, count))]
    return "".join("x" if 0xD800 <= c <= 0xDFFF else chr(c) for c in codes)


def random_text(r):
    parts = []
    for _ in range(r.randint(1, 30)):
        kind = r.random()
        if kind < 0.3:
            parts.append(r.choice(WORDS) if r.random() < 0.8 else r.choice(WORDS).upper())
        elif kind < 0.45:
            parts.append(r.choice(BLANKS))
        elif kind < 0.52:
            parts.append(r.choice(CONTRACTIONS))
        elif kind < 0.6:
            parts.append("".join(r.choice("0123456789\u0663\u00b2\u00bd\u2167") for _ in range(r.randint(1, 7))))
        elif kind < 0.7:
            parts.append("".join(r.choice("!?.,;:-_()[]{}<>|/\\@#$%^&*+=~`\"'") for _ in range(r.randint(1, 5))))
        elif kind < 0.75:
            parts.append(r.choice(SPECIALS))
        elif kind < 0.97:
            parts.append(some(r, 8))
        else:
            parts.append(r.choice(COMPOSED))
        if r.random() < 0.5:
            parts.append(" ")
    return "".join(parts)


def ask(path, requests):
    lines = "\n".join(json.dumps(x) for x in requests) + "\n"
    out = subprocess.run([TOOL, path], input=lines.encode(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def compare(path, count, seed):
    r = random.Random(seed)
    hf = Tokenizer.from_file(path)
    spec = json.load(open(path, encoding="utf-8"))
    # The library trims offsets where asked to, and covers less where characters were composed.
    spans = "trim_offsets\": true" not in json.dumps(spec.get("post_processor")) and spec.get("normalizer") is None
    texts = ["", " ", "a", "\n"] + [random_text(r) for _ in range(count)]
    want = [hf.encode(t, add_special_tokens=False) for t in texts]
    got = ask(path, [{"text": t} for t in texts])
    bad = 0
    for text, w, g in zip(texts, want, got):
        at = [len(text[:i].encode()) for i in range(len(text) + 1)]
        same = g["ids"] == w.ids and (not spans or g["spans"] == [[at[a], at[b]] for a, b in w.offsets])
        if not same:
            bad += 1
            if bad <= 3:
                print(f"  {ascii(text)}\n    HF {w.ids} {w.offsets}\n    we {g}")
    lists = [w.ids for w in want[: count // 4]]
    lists += [[r.randrange(hf.get_vocab_size() + 3) for _ in range(r.randint(0, 12))] for _ in range(count // 4)]
    requests = [{"ids": ids, "skip": skip} for ids in lists for skip in (False, True)]
    for request, g in zip(requests, ask(path, requests)):
        w = hf.decode(request["ids"], skip_special_tokens=request["skip"])
        if g.get("text") != w:
            bad += 1
            if bad <= 3:
                print(f"  decode {request}\n    HF {ascii(w)}\n    we {g}")
    print(f"{path}: {len(texts)} texts{' with spans' if spans else ''}, {len(requests)} decodings, {bad} differ")
    return bad


def train(folder):
    """Vocabularies of 8,000 with several split rules, on the Python sources at hand."""
    files = sorted(glob.glob(os.path.dirname(os.__file__) + "/*.py"))
    llama3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
              r"|\s*[\r\n]+|\s+(?!\S)|\s+")
    odd = r"[\p{L}&&[^\p{Han}]]+|\p{Han}|\d{1,2}|\s+(?=\S)|[^\s\w]+"
    plain = {"llama3": llama3, "qwen2": llama3.replace("{1,3}", ""), "odd": odd}
    for name, rule in list(plain.items()) + [("gpt2", None), ("metaspace", None)]:
        tok = Tokenizer(models.BPE(unk_token="<unk>" if name == "metaspace" else None, byte_fallback=name == "metaspace",
                                   fuse_unk=name == "metaspace", ignore_merges=name == "llama3"))
        alphabet, specials = pre_tokenizers.ByteLevel.alphabet(), ["<|endoftext|>", "<|im_start|>"]
        if name == "metaspace":
            tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
            tok.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                             decoders.Strip(" ", 1, 0)])
            alphabet, specials = [], ["<unk>", "<s>"] + [f"<0x{i:02X}>" for i in range(256)]
        else:
            last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rule is None)
            first = [pre_tokenizers.Split(Regex(rule), "isolated")] if rule else []
            tok.pre_tokenizer = pre_tokenizers.Sequence(first + [last])
            tok.decoder = decoders.ByteLevel()
            if name == "qwen2":
                tok.normalizer = normalizers.NFC()
        lines = (line for f in files[:60] for line in open(f, encoding="utf-8", errors="replace"))
        tok.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=8000, special_tokens=specials, show_progress=False,
                                                           initial_alphabet=alphabet))
        path = os.path.join(folder, name + ".json")
        tok.save(path)
        yield path


def token(content, **flags):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True} | flags


FOLDERS = [  # tokenizer_config.json, special_tokens_map.json, text
    ({}, None, "ab"),
    ({"bos_token": "<s>", "add_bos_token": False}, None, "ab"),
    ({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True, "add_eos_token": True}, None, "ab</s>"),
    ({"eos_token": {"__type": "AddedToken"} | token("</s>", lstrip=True), "pad_token": "<pad>",
      "additional_special_tokens": ["p"]}, None, "ab  </s>p<pad>"),
    ({"eos_token": "</s>"}, {"eos_token": token("<r0>"), "pad_token": "<r0>"}, "ab<r0></s>"),
    ({"eos_token": "</s>", "added_tokens_decoder": {}}, {"eos_token": "<r0>", "pad_token": "<r0>"}, "ab<r0></s>"),
    ({"added_tokens_decoder": {"11": token("<y>", special=False), "10": token("<x>"), "3": token("<s>", rstrip=True)}},
     None, "<s>  ab<x><y>"),
    ({"eos_token": "<s>", "unk_token": "b"}, None, "ab<s>b"),
]


def compare_folders(root):
    try:
        from transformers import AutoTokenizer
    except ImportError:
        print("skipped: the Python package `transformers` is not installed")
        return 0
    tok = Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2, "<s>": 3, "</s>": 4, "<": 5, "s": 6, ">": 7, "p": 8}, [("a", "b")]))
    tok.add_special_tokens(["<s>", "<r0>"])
    tok.decoder = decoders.Fuse()
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 3)])
    bad = 0
    for i, (config, special_map, text) in enumerate(FOLDERS):
        folder = os.path.join(root, f"folder{i}")
        os.makedirs(folder)
        tok.save(os.path.join(folder, "tokenizer.json"))
        with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
            json.dump({"tokenizer_class": "PreTrainedTokenizerFast"} | config, f)
        if special_map:
            with open(os.path.join(folder, "special_tokens_map.json"), "w") as f:
                json.dump(special_map, f)
        hf = AutoTokenizer.from_pretrained(folder)
        want = [hf.encode(text, add_special_tokens=special) for special in (False, True)]
        got = [g["ids"] for g in ask(folder, [{"text": text}, {"text": text, "special": True}])]
        if got != want:
            bad += 1
            print(f"  {config} {special_map} {text}\n    transformers {want}\n    we {got}")
    print(f"{len(FOLDERS)} folders, {bad} differ")
    return bad


CLASSES = ["LlamaTokenizer", "LlamaTokenizerFast", "CodeLlamaTokenizer", "GemmaTokenizer", "GPT2Tokenizer", "GPT2TokenizerFast",
           "CodeGenTokenizer", "GPTNeoXTokenizer", "CohereTokenizer", "Qwen2Tokenizer", "Qwen3_5Tokenizer",
           "PreTrainedTokenizerFast", "TokenizersBackend", "NoSuchTokenizer", None]
TYPES = ["llama", "llama", "mistral", "qwen2", "qwen3", "qwen2_moe", "qwen3_5_text", "gemma2", "gemma3_text", "phi3", "granite",
         "olmo2", "cohere", "starcoder2", "exaone4", "smollm3", "ernie4_5", "deepseek_v3", "mixtral", None]


def random_folder(r, path, folder):
    """A trained tokenizer as some folder might have it: its rules changed, with a class and a model's type."""
    tok = Tokenizer.from_file(path)
    pieces = "metaspace" in path
    if pieces and r.random() < 0.6:
        first = [normalizers.Prepend("\u2581")] if r.random() < 0.7 else []
        tok.normalizer = normalizers.Sequence(first + [normalizers.Replace(" ", "\u2581")])
        tok.pre_tokenizer = None
    elif not pieces and r.random() < 0.5:
        tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                     pre_tokenizers.ByteLevel(add_prefix_space=r.random() < 0.3)])
    names = ["<s>", "<unk>"] if pieces else ["<|im_start|>", "<|endoftext|>"]
    kind, model = r.choice(CLASSES), r.choice(TYPES)
    if not pieces and (kind in ("CodeLlamaTokenizer", "GemmaTokenizer") or "gemma" in (model or "")):
        kind, model = "GPT2Tokenizer", "llama"  # those have an unknown token, which vocabularies of bytes have not
    if kind == "CodeLlamaTokenizer" or r.random() < 0.5:
        tok.post_processor = processors.TemplateProcessing(single=f"{names[0]} $A", pair=f"{names[0]} $A $B",
                                                           special_tokens=[(names[0], tok.token_to_id(names[0]))])
    tok.save(os.path.join(folder, "tokenizer.json"))
    config = {"unk_token": names[1], "bos_token": names[0], "eos_token": names[1]}
    config |= {"pad_token": names[1], "mask_token": names[1], "cls_token": names[1], "sep_token": names[1]}
    if r.random() < 0.5:
        config["legacy"] = r.random() < 0.5
    if r.random() < 0.5:
        config["add_prefix_space"] = r.random() < 0.5
    if r.random() < 0.3:
        config["add_bos_token"] = r.random() < 0.5
    if kind == "NoSuchTokenizer" or (kind and r.random() < 0.9):
        config["tokenizer_class"] = kind
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump(config, f)
    if model:
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump({"model_type": model} | ({} if "tokenizer_class" in config or not kind else {"tokenizer_class": kind}), f)
    return config | {"model_type": model, "in config.json": kind}


def compare_classes(root, paths, count, seed):
    from transformers import AutoTokenizer
    r, bad = random.Random(seed), 0
    for i in range(count):
        folder = os.path.join(root, f"class{i}")
        os.makedirs(folder)
        path = r.choice(paths)
        config = random_folder(r, path, folder)
        hf = AutoTokenizer.from_pretrained(folder)
        texts = [random_text(r) for _ in range(8)] + ["a  12<|im_start|> x\n", "<s>a</s>\n<s> b"]
        want = [[hf.encode(t, add_special_tokens=s) for t in texts] for s in (False, True)]
        got = [[g["ids"] for g in ask(folder, [{"text": t, "special": s} for t in texts])] for s in (False, True)]
        back = [hf.decode(w, clean_up_tokenization_spaces=False) for w in want[0]]
        mine = [g.get("text") for g in ask(folder, [{"ids": w, "skip": False} for w in want[0]])]
        if got != want or back != mine:
            bad += 1
            at = next((j for s in (0, 1) for j in range(len(texts)) if got[s][j] != want[s][j] or back[j] != mine[j]))
            print(f"  {os.path.basename(path)} {config} {type(hf).__name__}\n    {texts[at]!r}\n    transformers "
                  f"{[w[at] for w in want]} {back[at]!r}\n    we {[g[at] for g in got]} {mine[at]!r}")
    print(f"{count} folders with classes, {bad} differ")
    return bad


def bench(path, text_file):
    hf = Tokenizer.from_file(path)
    ours = json.loads(subprocess.run([TOOL, path, "bench", text_file], stdout=subprocess.PIPE, check=True).stdout)
    lines = open(text_file, encoding="utf-8", newline="").read().split("\n")
    documents, part = [], ""
    for line in lines:
        part += line + "\n"
        if len(part) >= 2000:
            documents.append(part)
            part = ""
    documents = documents[:2000]
    size = sum(len(d.encode()) for d in documents)
    best = 1e9
    for _ in range(3):
        start = time.process_time()
        for d in documents:
            hf.encode(d, add_special_tokens=False)
        best = min(best, time.process_time() - start)
    mb = ours["bytes"] / 1e6
    print(f"{path} on {text_file}, MB/s of CPU time: axtrain {mb / ours['documents']:.1f} (documents of 2 KB), "
          f"{mb / ours['whole']:.1f} (whole); tokenizers {size / best / 1e6:.1f} (documents)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--folders", action="store_true")
    parser.add_argument("--classes", action="store_true")
    parser.add_argument("--bench", metavar="TEXT")
    args = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    with tempfile.TemporaryDirectory() as folder:
        paths = args.paths + (list(train(folder)) if args.train else [])
        if args.bench:
            for path in paths:
                bench(path, args.bench)
            return 0
        bad = sum([compare(p, args.count, args.seed) for p in paths])
        if args.folders:
            bad += compare_folders(folder)
        if args.classes:
            bad += compare_classes(folder, list(train(folder)), args.count, args.seed)
        return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

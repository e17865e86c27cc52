"""Writes tests/data/kimi/, a small tokenizer in the form of Kimi's models (tiktoken.model, tokenizer_config.json), and
tests/data/kimi/cases.json: what the tiktoken package makes of texts with it, as Kimi's tokenization_kimi.py calls it.

    pip install tiktoken
    python make_tiktoken_cases.py        # the same files each time
    python make_tiktoken_cases.py --check BUILD_DIR/tests/peers/tokenize_lines [FOLDER]
                                         # instead: its ids of many random texts, also with a model's own folder

The vocabulary is learned here from the texts below. The pattern is tokenization_kimi.py's."""
import base64
import collections
import json
import os
import pathlib
import random
import subprocess
import sys

os.environ["TIKTOKEN_CACHE_DIR"] = ""  # else it keeps what a path once had

import byte_pairs
import tiktoken
from tiktoken.load import load_tiktoken_bpe

DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "kimi"
LETTERS = r"\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]"
TAIL = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = "|".join([
    r"[\p{Han}]+",
    rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}{LETTERS}]*[\p{{Ll}}{LETTERS}]+{TAIL}",
    rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}{LETTERS}]+[\p{{Ll}}{LETTERS}]*{TAIL}",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
TEXTS = ["The quick brown fox jumps over the lazy dog.", "Hello! How are you?\nI'm fine, they'RE not, WE'LL see'd",
         "def f(x):\n    return x * 2  # twice\r\n", "naïve café, déjà vu: 12345 × 7 = 84",
         "漢字かな交じり文 🙂🙃 привет мир", "你好，世界！今天天气怎么样？我们去公园吧。", "中文English混合text，中ab文'S",
         "  spaces   and\ttabs  \r\n\r\n", '{"city": "Paris", "deep": {"a": null, "b": 1.5e3}}', "", " ", "\n", "a",
         "aaaa aaaaaaa aaaaaaaaaaaa", "e\u0301 \u0000 \ufffd \u200d end", "HTTPServer iPhone McDonald's",
         "한국어 문장 ภาษาไทย हिन्दी", "𠀀𪜀𰀀㐀〇々〆", "ſ'ſ K's 'S'T", "١٢٣ ४५६ Ⅷ ½ ²", "x\u3000y\u00a0z \u2028w",
         "a<|im_end|>b[BOS]<|reserved_token_999999|> [EOS]", "don't trailing blanks   "]
WORDS = ["the", "Weather", "café", "漢字", "世界", "🙂", " ", "  ", "\n", "\n\n", "12", "3.5", '{"a": [1, 2]}', "don't",
         "WE'LL", "HTTPServer", "привет", "-->", "x_y", "\t", "aaaa", "É", "e\u0301", "中a文", "，", "。", "한국", "ไทย",
         "a/b/c", "'S", "々", "𠀀", "<|im_end|>", "[EOS]", "\u3000"]
SIZE, SPECIALS = 900, 258
NAMED = {0: ("[BOS]", True), 1: ("[EOS]", True), 2: ("<|im_end|>", True), 3: ("<|im_user|>", True),
         4: ("<|im_assistant|>", True), 11: ("<|tool_call_begin|>", False), 256: ("[UNK]", True), 257: ("[PAD]", True)}


def learn():
    """256 bytes in tiktoken's usual order, then the most frequent pair again and again: of whole texts, so that tokens
    reach over the places where the pattern splits, and a wrong one has other ids."""
    rng = random.Random(3)
    lines = ["".join(rng.choice(WORDS) + rng.choice(["", " "]) for _ in range(9)) for _ in range(300)]
    special = [name for name, _ in NAMED.values()]
    words = collections.Counter(t.encode() for t in TEXTS * 3 + lines if not any(name in t for name in special))
    shown = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    order = shown + [b for b in range(256) if b not in shown]
    return byte_pairs.learn(words, [bytes([b]) for b in order], SIZE)


def encoding(folder):
    ranks = load_tiktoken_bpe(str(folder / "tiktoken.model"))
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    names = {int(i): t["content"] for i, t in config["added_tokens_decoder"].items()}
    specials = {names.get(i, f"<|reserved_token_{i}|>"): i for i in range(len(ranks), len(ranks) + SPECIALS)}
    return tiktoken.Encoding("kimi", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=specials)


def text_of(rng):
    if rng.random() < 0.5:
        return "".join(rng.choice(WORDS) + rng.choice(["", " ", "  "]) for _ in range(rng.randint(1, 12)))
    return "".join(chr(rng.choice([rng.randint(1, 0x7F), rng.randint(0x80, 0x2FFF), rng.randint(0x3000, 0xD7FF),
                                   rng.randint(0x4E00, 0x9FFF), rng.randint(0x1F300, 0x1F6FF)]))
                   for _ in range(rng.randint(1, 30)))


def compact(o):
    return json.dumps(o, ensure_ascii=True, separators=(",", ":"))


def main():
    DATA.mkdir(exist_ok=True)
    vocab, rng = learn(), random.Random(5)
    (DATA / "tiktoken.model").write_text(
        "".join(f"{base64.b64encode(b).decode()} {i}\n" for i, b in enumerate(vocab)), encoding="ascii")
    decoder = {str(SIZE + i): {"content": text, "lstrip": False, "normalized": False, "rstrip": False,
                               "single_word": False, "special": special} for i, (text, special) in NAMED.items()}
    config = {"added_tokens_decoder": decoder, "additional_special_tokens": ["<|im_end|>", "<|im_user|>"],
              "bos_token": "[BOS]", "eos_token": "[EOS]", "unk_token": "[UNK]", "pad_token": "[PAD]",
              "tokenizer_class": "TikTokenTokenizer"}
    (DATA / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="ascii")
    e = encoding(DATA)
    texts = TEXTS + [text_of(rng) for _ in range(120)]
    rows = [{"text": t, "ids": e.encode(t, allowed_special="all")} for t in texts]
    runs = [[rng.randrange(e.n_vocab) for _ in range(rng.randint(1, 20))] for _ in range(60)]
    lines = ['{"texts":[', ",\n".join(map(compact, rows)), '],"decoded":[',
             ",\n".join(compact({"ids": ids, "text": e.decode(ids)}) for ids in runs), "]}"]
    (DATA / "cases.json").write_text("\n".join(lines) + "\n", encoding="ascii")


def check(tool, folder):
    e, rng, bad = encoding(folder), random.Random(9), 0
    texts = [text_of(rng) for _ in range(20000)]
    p = subprocess.run([tool, str(folder)], text=True, capture_output=True, check=True,
                       input="".join(compact({"text": t}) + "\n" for t in texts))
    for text, got in zip(texts, p.stdout.splitlines(), strict=True):
        if json.loads(got)["ids"] != e.encode(text, allowed_special="all"):
            bad += 1
            print(repr(text), got)
    print(f"{len(texts)} texts, {bad} differ")
    return 1 if bad else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"]:
        sys.exit(check(sys.argv[2], pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else DATA))
    main()

#!/usr/bin/env python3
"""Writes tests/optim/translation_cases.json: random texts, edited ones, and sacrebleu's scores of them.

    pip install sacrebleu==2.6.0 && python3 tests/peers/make_translation_cases.py
"""
import json
import random

import sacrebleu

PIECES = [
    "the", "cat", "sat", "on", "a", "mat", "it's", "don't", "1,000", "3.14", "5-6", "-7", "x-", "U.S.", "end.", ",comma",
    "(paren)", "[x]", "50%", "$5", "a/b", "e.g.", "wow!", "what?", "über", "今天", "été", "STRASSE", "ßa", "&amp;",
    "&lt;b&gt;", "&quot;q&quot;", "<skipped>", "line-\n", "new\nline", "a  b", "\u00a0", "\u2014", "...", "a_b", "c++", "#1",
    "@me", "~", "`q`", "{k}", "^", "\t", "7.", "8,", ".9", ",1", "-", "--", "\u0130I",
]  # fmt: skip


def edited(words, r):
    kind = r.randrange(6)
    for _ in range(r.randrange(1, 5)):
        if not words:
            break
        i = r.randrange(len(words))
        if kind == 0:
            del words[i]
        elif kind == 1:
            words.insert(i, r.choice(PIECES))
        elif kind == 2:
            words[i] = r.choice(PIECES)
        elif kind == 3:
            moved = words[i : i + r.randrange(1, 4)]
            del words[i : i + len(moved)]
            at = r.randrange(len(words) + 1)
            words[at:at] = moved
        elif kind == 4:
            words[i] = words[i].lower()
        else:
            words[i] += r.choice(".,!-")
    return words


def scores(answers, targets):
    return [
        sacrebleu.corpus_bleu(answers, [targets]).score,
        sacrebleu.corpus_chrf(answers, [targets]).score,
        sacrebleu.corpus_chrf(answers, [targets], word_order=2).score,
        sacrebleu.corpus_ter(answers, [targets]).score,
    ]


def main():
    r = random.Random(7)
    pairs = []
    for n in (*range(1, 8), 9, 12, 15, 20, 26, 33, 40, 55) * 2:
        target = " ".join(r.choice(PIECES) for _ in range(n))
        pairs.append((target, " ".join(edited(target.split(" "), r))))
    cases = [[t, a, *scores([a], [t])] for t, a in pairs]
    everything = scores([a for _, a in pairs], [t for t, _ in pairs])
    with open("tests/optim/translation_cases.json", "w", encoding="utf-8") as f:
        f.write('{"made with": "sacrebleu 2.6.0", "all": %s, "cases": [\n' % json.dumps(everything))
        f.write(",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]}\n")


if __name__ == "__main__":
    main()

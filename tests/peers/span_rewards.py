#!/usr/bin/env python3
"""What a teacher with another tokenizer says of answers, in float64: the golden of tests/cmd/test_spans.c.

    span_rewards.py STUDENT TEACHER RECORDS RUN OUT [--temperature T]

RUN is the folder of `axtrain train` with rl: distill, trl.distillation_objective: sampled_token and kd_teacher: TEACHER, whose
completions.jsonl has the ids that the model sampled in its first step. For each answer, transformers computes log-probs of both
models, at temperature T, and tokenizers' offsets say where their tokens end. OUT has for each answer its ids and the
advantage of each token: of a span's tokens all that of the span, log t − log s.
"""
import argparse
import json

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def load(folder):
    return AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()


def render(tokenizer, messages):
    return tokenizer(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True),
                     add_special_tokens=False)["input_ids"]


def logprobs(model, prompt, answer, temperature):
    if not answer:
        return []
    with torch.no_grad():
        logits = model(torch.tensor([prompt + answer])).logits[0].double() / temperature
    rows = torch.log_softmax(logits[len(prompt) - 1:-1], -1)
    return [rows[i, token].item() for i, token in enumerate(answer)]


def piece(tokenizer, token):
    """Bytes of a token of a byte-level vocabulary."""
    if token in tokenizer.added_tokens_decoder:
        return tokenizer.added_tokens_decoder[token].content.encode()
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(b): b for b in visible}
    table.update({chr(256 + n): b for n, b in enumerate(b for b in range(256) if b not in visible)})
    return bytes(table[c] for c in tokenizer.convert_ids_to_tokens(token) or "")


def end_in_text(data, at, before):
    """Where bytes that end at `at` end in the text; within a character: after the place `before`, and before all later ones."""
    head, tail = data[:at].decode(errors="replace"), data[at:].decode(errors="replace")
    return len(head.encode()) if head + tail == data.decode(errors="replace") else int(before) + 0.5


def spans(own, other):
    """By sets: places where both have an end; a token is of the first such place that is not before its end."""
    shared = sorted(set(own) & set(other))
    first = lambda end: next((p for p in shared if p >= end), None)
    return [([i for i, e in enumerate(own) if first(e) == p], [j for j, e in enumerate(other) if first(e) == p]) for p in shared]


def rewards(o, student, teacher, messages, ids, truncated):
    (own, s), (other, t) = student, teacher
    ended = not truncated  # by a token that ends answers
    text_ids = ids[:-1] if ended else ids
    pieces = [piece(own, token) for token in text_ids]
    data, ends = b"".join(pieces), []
    for i in range(len(pieces)):
        ends.append(end_in_text(data, len(b"".join(pieces[:i + 1])), ends[-1] if ends else 0))
    text = data.decode(errors="replace")
    backend = other.backend_tokenizer
    backend.encode_special_tokens = True  # what spells a special token is text
    encoded = backend.encode(text, add_special_tokens=False)
    backend.encode_special_tokens = False
    theirs = [len(text[:end].encode()) for _, end in encoded.offsets]
    their_ids = list(encoded.ids)
    if ended:
        ends.append(len(text.encode()) + 1)
        theirs.append(ends[-1])
        their_ids.append(other.eos_token_id)
    ls = logprobs(s, render(own, messages), ids, o.temperature)
    lt = logprobs(t, render(other, messages), their_ids, o.temperature)
    out = [0.0] * len(ids)
    for a, b in spans(ends, theirs):
        for i in a:
            out[i] = sum(lt[j] for j in b) - sum(ls[i] for i in a)
    return out


def main():
    p = argparse.ArgumentParser()
    for name in ("student", "teacher", "records", "run", "out"):
        p.add_argument(name)
    p.add_argument("--temperature", type=float, default=1)
    o = p.parse_args()
    student, teacher = load(o.student), load(o.teacher)
    records = [json.loads(line) for line in open(o.records)]
    answers = []
    for line in open(o.run + "/completions.jsonl"):
        c = json.loads(line)
        if c["step"] != 1:
            continue
        ids = c["completion_ids"]
        found = rewards(o, student, teacher, records[c["line"] - 1]["prompt"], ids, c["truncated"])
        answers.append({"ids": ids, "advantages": [round(a, 9) for a in found]})
        print(max(abs(a - b) for a, b in zip(found, c["kd_advantages"])), len(set(found)), len(ids))
    json.dump({"answers": answers}, open(o.out, "w"), separators=(",", ":"))


main()

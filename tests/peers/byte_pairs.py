"""Learns small vocabularies of byte pairs, for the tokenizers that tests read."""
import collections


def learn(words, first, size):
    """The tokens `first`, then the most frequent pair again and again. words: bytes, and how often there are these."""
    parts = {w: [bytes([b]) for b in w] for w in words}
    vocab = list(first)
    while len(vocab) < size:
        pairs = collections.Counter()
        for w, p in parts.items():
            for a, b in zip(p, p[1:]):
                pairs[a + b] += words[w]
        pairs = {m: n for m, n in pairs.items() if m not in vocab}
        if not pairs:
            raise SystemExit(f"only {len(vocab)} tokens to learn; lower SIZE")
        new = max(pairs, key=lambda m: (pairs[m], m))
        vocab.append(new)
        for p in parts.values():
            i = 0
            while i + 1 < len(p):
                if p[i] + p[i + 1] == new:
                    p[i:i + 2] = [new]
                i += 1
    return vocab

"""Writes tests/data/sentencepiece_cases.json and the two small models that it is about,
tests/data/tokenizer.model.v1 and .v3: what the mistral-common package makes of texts and conversations with
them, in the versions that SentencePiece models have.

    pip install mistral-common sentencepiece
    python make_sentencepiece_cases.py          # the same files each time
    python make_sentencepiece_cases.py --check BUILD_DIR/tests/peers/tokenize_lines
                                                # instead: its ids with the package's own models

The models are trained here on the texts of make_tekken_cases.py, with the settings of Mistral's."""
import io
import pathlib
import random
import sys
import tempfile

import sentencepiece
from mistral_common.protocol.instruct.validator import ValidationMode
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

from make_tekken_cases import DATA, TEXTS, WORDS, chat, check, compact, conversations, text_of, write

CONTROLS = ["[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
            "[/TOOL_RESULTS]", "[IMG]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]",
            "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"]
USER = ["[REFERENCE_DOC_0]", "[REFERENCE_DOC_1]"]
VERSIONS = ["v1", "v2", "v3", "v7"]


def train(controls, user):
    out = io.BytesIO()
    rng = random.Random(7)
    lines = TEXTS * 3 + [" ".join(WORDS)] + [text_of(rng) for _ in range(200)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([t for t in lines if t and "\0" not in t]), model_writer=out, model_type="bpe",
        vocab_size=560, normalization_rule_name="identity", remove_extra_whitespaces=False,
        byte_fallback=True, split_digits=True, allow_whitespace_only_pieces=True, control_symbols=controls,
        user_defined_symbols=user, num_threads=1, minloglevel=2, max_sentence_length=4192)
    return out.getvalue()


def texts_of(rng):
    texts = TEXTS + [text_of(rng) for _ in range(60)]
    texts += ["".join(chr(rng.choice([rng.randint(1, 0x7F), rng.randint(0x80, 0x2FFF),
                                      rng.randint(0x1F300, 0x1F6FF)])) for _ in range(rng.randint(1, 30)))
              for _ in range(60)]
    return texts + ["see [REFERENCE_DOC_0]", "[REFERENCE_DOC_1]x", "a [REFERENCE_DOC_0] [REFERENCE_DOC_1]"]


def main():
    rng = random.Random(11)
    models = {"v1": train([], []), "v3": train(CONTROLS, USER)}
    for version, data in models.items():
        (DATA / f"tokenizer.model.{version}").write_bytes(data)
    texts, chats, lines = texts_of(rng), list(conversations(rng)), []
    with tempfile.TemporaryDirectory() as root:
        for version in VERSIONS:
            path = pathlib.Path(root) / f"tokenizer.model.{version}"
            path.write_bytes(models["v1" if version == "v1" else "v3"])
            tok = MistralTokenizer.from_file(str(path), mode=ValidationMode.finetuning)
            raw = tok.instruct_tokenizer.tokenizer
            if version == "v3":
                rows = [compact({"text": t, "ids": raw.encode(t, bos=False, eos=False)}) for t in texts]
                # bytes that are no character are one replacement each here, and one for all elsewhere
                ids = [[rng.randrange(0, raw.n_words) for _ in range(rng.randint(1, 20))] for _ in range(400)]
                ids = [i for i in ids if "\ufffd" not in raw.decode(i)][:60]
                head = ['{"texts":[', ",\n".join(rows), '],"decoded":[',
                        ",\n".join(compact({"ids": i, "text": raw.decode(i)}) for i in ids), '],"chats":[']
            rows = []
            for n, m, t in chats:
                row = chat(tok, m, t)
                row.pop("text", None)  # its blanks are pieces'
                rows.append(dict(version=version, name=n, messages=m, **({"tools": t} if t else {}), **row))
            lines.append(",\n".join(map(compact, rows)))
            print(version, len(rows), "conversations,", sum("error" in r for r in rows), "refused")
    write(DATA / "sentencepiece_cases.json", head + [",\n".join(lines)] + ["]}"])


if __name__ == "__main__":
    sys.exit(check(sys.argv[2], "*.model*") if sys.argv[1:2] == ["--check"] else main())

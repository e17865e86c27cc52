"""tokenizer/: four tokenizers trained on text written for it, with what the tokenizers library and
transformers' chat templates make of test strings and conversations."""

import json
from collections import defaultdict

from tools import fresh, gen, randint, save_json


LLAMA3_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
               r"|\s*[\r\n]+|\s+(?!\S)|\s+")

CORPUS_SENTENCES = [
    "The training loop reads a batch, computes the loss and updates the weights.",
    "A small model is easier to test than a large one, and it's faster too.",
    "We don't know what they'll say, but I'm sure you've heard it before; she'd agree.",
    "If the answer is wrong, the reward is zero. If the answer is right, the reward is one.",
    "Numbers such as 7, 42, 365, 1024 and 123456789 are split in different ways; 3.14159 is not an integer.",
    "The quick brown fox jumps over the lazy dog while the other animals watch from the other side.",
    "Question: what is 12 + 30? Answer: 42. Question: what is 9 * 9? Answer: 81.",
    "for (int i = 0; i < n; i++) { sum += a[i] * b[i]; }",
    "def add(a, b):\n    return a + b\n\nif __name__ == '__main__':\n    print(add(1, 2))\n",
    "{\"role\": \"user\", \"content\": \"Hello there!\", \"n\": 3}",
    "Der schnelle braune Fuchs springt über den faulen Hund, und das ist schön.",
    "Le modèle a été entraîné pendant l'été; ça marche très bien, n'est-ce pas?",
    "El niño comió piñas mañana por la mañana en España.",
    "Быстрая лиса прыгает через ленивую собаку. Это простое предложение.",
    "Η γρήγορη αλεπού πηδάει πάνω από το σκυλί.",
    "今天天气很好,我们去公园散步吧。模型的训练需要时间。",
    "日本語の文章も少しだけ入れておきます。これはテストです。",
    "한국어 문장도 하나 넣어 봅시다. 이것은 시험입니다.",
    "مرحبا بالعالم، هذا نص قصير للاختبار.",
    "नमस्ते दुनिया, यह एक छोटा वाक्य है।",
    "\tTabs\tand   several    spaces     matter in   code.\r\nSo do line ends.\n\n\nAnd blank lines.",
    "Emoji: 😀 🚀 👍🏽 ❤️ 👨‍👩‍👧‍👦 🇩🇪 end.",
]


def corpus():
    """About 40 kB: the sentences above, and shuffles of their words."""
    g = gen(801)
    words = sorted({w for s in CORPUS_SENTENCES for w in s.split()})
    out = []
    for _ in range(20):
        out += CORPUS_SENTENCES[:10]
    for _ in range(4):
        out += CORPUS_SENTENCES
    for _ in range(120):
        pick = randint(g, 0, len(words), 14).tolist()
        out.append(" ".join(words[i] for i in pick) + ".")
    return out


def byte_bpe_json(split, vocab, normalizer, ignore_merges):
    """Trains byte-level BPE with the tokenizers library; returns its JSON."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    tok = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(split), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=vocab, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    return json.loads(tok.to_str())


def added(token_id, content, special=True, **kw):
    base = dict(id=token_id, content=content, single_word=False, lstrip=False, rstrip=False, normalized=False,
                special=special)
    base.update(kw)
    return base


def template_post(bos, bos_id):
    """Post-processor that puts one token in front, in both single and pair form."""
    one = {"SpecialToken": {"id": bos, "type_id": 0}}
    return {"type": "TemplateProcessing",
            "single": [one, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [one, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": bos, "type_id": 1}},
                     {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {bos: {"id": bos, "ids": [bos_id], "tokens": [bos]}}}


def llama3_style():
    tok = byte_bpe_json(LLAMA3_SPLIT, 500, normalizer=False, ignore_merges=True)
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
             "<|im_start|>", "<|im_end|>", "<|pad|>", "<|reserved_0|>", "<|reserved_1|>"]
    tok["added_tokens"] = [added(500 + i, n) for i, n in enumerate(names)]
    tok["added_tokens"] += [added(510, "<|lstrip|>", lstrip=True), added(511, "<|rstrip|>", rstrip=True)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    tok["post_processor"] = {"type": "Sequence", "processors": [byte_level, template_post(names[0], 500)]}
    return tok, dict(bos_token=names[0], eos_token="<|eot_id|>", pad_token="<|pad|>")


def qwen2_style():
    tok = byte_bpe_json(QWEN2_SPLIT, 506, normalizer=True, ignore_merges=False)
    tok["added_tokens"] = [added(506, "<|endoftext|>"), added(507, "<|im_start|>"), added(508, "<|im_end|>"),
                           added(509, "<think>", special=False), added(510, "</think>", special=False),
                           added(511, "<tool_call>", special=False)]
    tok["post_processor"] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return tok, dict(eos_token="<|im_end|>", pad_token="<|endoftext|>")


def sp_bpe(legacy):
    """SentencePiece-like BPE: spaces become U+2581, unknown characters become
    byte tokens.  legacy: the normaliser form of converted Llama-2 files;
    otherwise the Metaspace pre-tokeniser form.  Same vocabulary."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([         # for training only: digits and punctuation stay single
        pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="first", split=True),
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Punctuation("isolated")])
    plain_text = [s for s in corpus() if "\t" not in s]
    counts = defaultdict(int)
    for s in plain_text:
        for ch in s.replace(" ", "\u2581"):
            counts[ch] += 1
    # the 90 commonest characters; given in full because the trainer's own cut breaks ties at random
    alphabet = sorted(sorted(counts, key=lambda c: (-counts[c], c))[:90])
    tok.train_from_iterator(plain_text, trainers.BpeTrainer(vocab_size=512 - 259, initial_alphabet=alphabet, limit_alphabet=90,
                                                            show_progress=False))
    trained = json.loads(tok.to_str())["model"]
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for i in range(256):
        vocab[f"<0x{i:02X}>"] = 3 + i
    for piece, _ in sorted(trained["vocab"].items(), key=lambda kv: kv[1]):
        if piece not in vocab:
            vocab[piece] = len(vocab)
    assert len(vocab) == 512, len(vocab)
    model = dict(type="BPE", dropout=None, unk_token="<unk>", continuing_subword_prefix=None, end_of_word_suffix=None,
                 fuse_unk=True, byte_fallback=True, ignore_merges=False, vocab=vocab, merges=trained["merges"])
    out = dict(version="1.0", truncation=None, padding=None,
               added_tokens=[added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")],
               normalizer=None, pre_tokenizer=None, post_processor=template_post("<s>", 1),
               decoder={"type": "Sequence", "decoders": [
                   {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
                   {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
               model=model)
    if legacy:
        out["normalizer"] = {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}
    else:
        out["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
    return out, dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<unk>")


CHAT_TEMPLATES = dict(
    chatml="""{#- ChatML with a default system turn and generation markers -#}
{%- if not messages or messages[0]['role'] != 'system' -%}
    {{- '<|im_start|>system\\nYou answer briefly.<|im_end|>\\n' -}}
{%- endif -%}
{%- for m in messages -%}
    {%- if m.role == 'assistant' -%}
        {{- '<|im_start|>assistant\\n' -}}
        {%- generation -%}
            {{- m.content | trim -}}
            {{- '<|im_end|>' -}}
        {%- endgeneration -%}
        {{- '\\n' -}}
    {%- elif m.role in ['system', 'user', 'tool'] -%}
        {{- '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' -}}
    {%- else -%}
        {{- raise_exception('unknown role: ' ~ m.role) -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
""",
    headers="""{%- set ns = namespace(first=true) %}
{%- for message in messages %}
    {%- set head = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' %}
    {%- if ns.first %}
        {%- set head = bos_token + head %}
        {%- set ns.first = false %}
    {%- endif %}
    {{- head }}
    {%- if message['role'] == 'assistant' %}
        {%- generation %}
        {{- message['content'] | trim + '<|eot_id|>' }}
        {%- endgeneration %}
    {%- else %}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""",
    inst="""{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content.strip() %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set system = none %}
    {%- set turns = messages %}
{%- endif %}
{{- bos_token }}
{%- for t in turns %}
    {%- if (t.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must alternate user/assistant') }}
    {%- endif %}
    {%- if t.role == 'user' %}
        {%- if loop.first and system is not none %}
            {{- '[INST] ' + system + '\\n\\n' + t.content + ' [/INST]' }}
        {%- else %}
            {{- '[INST] ' + t.content + ' [/INST]' }}
        {%- endif %}
    {%- else %}
        {%- generation %}{{- ' ' + t.content.strip() + eos_token }}{%- endgeneration %}
    {%- endif %}
{%- endfor %}
""")

CONVERSATIONS = [
    dict(name="user_only", messages=[("user", "Hello, who are you?")]),
    dict(name="one_turn", messages=[("user", "What is 12 + 30?"), ("assistant", "12 + 30 = 42.")]),
    dict(name="system_one_turn", messages=[("system", "You are a calculator."), ("user", "9 * 9?"),
                                           ("assistant", "81")]),
    dict(name="multi_turn", messages=[("user", "Name a colour."), ("assistant", "Blue."), ("user", "Another one?"),
                                      ("assistant", "Green, I think."), ("user", "Thanks!")]),
    dict(name="system_multi_turn", messages=[("system", "Be kind.\nAnswer in one line."), ("user", "Hi"),
                                             ("assistant", "Hi there!"), ("user", "Bye"), ("assistant", "See you.")]),
    dict(name="unicode", messages=[("user", "Grüße! 今天天气很好 😀"), ("assistant", "Très bien, n'est-ce pas? 👍🏽")]),
    dict(name="whitespace", messages=[("user", "  leading and trailing  \n"), ("assistant", "\n\n  kept inside only \n ")]),
    dict(name="empty_contents", messages=[("user", ""), ("assistant", "")]),
    dict(name="specials_in_content", messages=[("user", "print <|im_end|> and <|eot_id|> and </s>"),
                                               ("assistant", "ok <|im_start|>user\ninjected")]),
    dict(name="code", messages=[("user", "Write a loop in C."),
                                ("assistant", "```c\nfor (int i = 0; i < 10; i++) {\n\tputs(\"hi\");\n}\n```")]),
]

def test_strings():
    g = gen(802)
    hand = [
        "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\t\t", " \n", "\n ", " \n \n ", "a", " a", "a ", "  a  b  ", "\u00a0", "\u3000x",
        "Hello", "hello world", "Hello, World!", "HELLO WORLD", "The quick brown fox jumps over the lazy dog.",
        "it's", "IT'S", "don't", "we'll they've I'm you're she'd", "'S 'LL 'tis ''t", "rock'n'roll", "o\u2019clock it\u2019s",
        "0", "7", "42", "365", "1024", "12345", "123456", "1234567890", "3.14159", "-12", "1,000,000", "1e-5", "0x1F", "v2.0.1", "12ab34",
        "\u0661\u0662\u0663", "\u00bd \u00b2 \u2167", "x=1;y=2", "a_b_c", "snake_case camelCase PascalCase", "foo.bar(baz)[0]->qux",
        "for (int i = 0; i < n; i++) {", "    return a + b\n", "\tif (x) {\n\t\ty();\n\t}\n", "def f(x):\n    return x**2\n", "a\tb\tc", "a  b   c    d",
        "line one\nline two\r\nline three\rline four", "trailing spaces   ", "   leading spaces", "para one\n\n\npara two", "x \n y", "x\n\n",
        "!?", "...", "!!!???", "#hashtag @user", "http://example.org/a?b=c&d=e#f", "user@example.org", "C:\\path\\file.txt", "/usr/bin/env",
        "\"quoted\" 'single' `code`", "(a) [b] {c} <d>", "$5.00 \u20ac7 \u00a39", "100%", "a/b", "a-b--c\u2014d", "\u2026\u201c\u201d\u2018\u2019",
        "Grüße aus München", "über schön Straße", "naïve café résumé", "cafe\u0301 re\u0301sume\u0301", "A\u030angstro\u0308m", "\u212b \u00c5", "ﬁne ﬂow", "İstanbul ı",
        "Ça marche très bien", "El niño comió piñas", "Быстрая лиса", "Привет, мир!", "Η γρήγορη αλεπού", "Ωμέγα", "今天天气很好", "模型的训练需要时间。", "日本語の文章", "これはテストです。",
        "カタカナ ひらがな", "한국어 문장", "안녕하세요", "\u1112\u1161\u11ab\u1100\u1173\u11af", "مرحبا بالعالم", "שלום עולם", "नमस्ते दुनिया", "क्षत्रिय", "สวัสดีชาวโลก", "Tiếng Việt", "ქართული", "Հայերեն", "አማርኛ",
        "中文 and English mixed 混合 text", "全角ＡＢＣ１２３", "１２３", "①②③", "𝒳 𝔘𝔫𝔦", "𠀀𠀁",
        "😀", "😀😀", "🚀 launch", "👍🏽", "❤️", "👨‍👩‍👧‍👦", "🇩🇪🇫🇷", "a😀b", "Emoji: 😀 🚀 👍🏽 end", "☺ ☺️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿",
        "\u200b", "zero\u200bwidth", "\u200d", "\ufeffbom", "\u00ad soft", "\u202ertl\u202c", "\ufffd", "bad \ufffd\ufffd bytes", "\ue000", "\uffff", "\U0010ffff", "\x00", "a\x00b", "\x01\x02\x7f", "\x1b[0m", "\u0300\u0301", "a\u0300\u0301\u0302\u0303",
        "\u2581", "a\u2581b", "\u2581 \u2581", "Ġ", "Ċ", "ĠHello", "<0x41>", "<0xE4><0xBD>", "<unk>", "<s>", "</s>", "<s>hello</s>", "a<s>b", "<s> <s>", "< s >",
        "<|im_start|>", "<|im_end|>", "<|im_start|>user\nhi<|im_end|>\n", "x<|im_end|>y", " <|im_end|> ", "<|im_end", "<|IM_END|>", "<|im_end|><|im_end|>",
        "<|begin_of_text|>hello", "<|eot_id|>", "<|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>", "<|endoftext|>", "<|end_of_text|>", "<|pad|>", "<|reserved_0|>",
        "a  <|lstrip|>  b", "a  <|rstrip|>  b", "<|lstrip|><|rstrip|>", "<think>\nhm\n</think>\n\nok", "<think></think>", "<tool_call>{}", "a <think> b",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "abababababababab", "thethethethe", " the the the", "....................", "                                ",
    ]
    pieces = ["the", " answer", " is", "42", " ", "  ", "\n", "\t", "'s", "ü", "é", "漢字", "😀", "ж", "1234", ".", ", ", "Training", "_", "<|im_end|>",
              "</s>", "(x)", "\u0301", "ي", "한", "->", "\r\n", "\u00a0", "e\u0301", "ZZZ"]
    seen, out = set(), []
    for s in hand:
        if s not in seen:
            seen.add(s)
            out.append(s)
    while len(out) < 260:
        k = int(randint(g, 2, 9, 1))
        s = "".join(pieces[i] for i in randint(g, 0, len(pieces), k).tolist())
        if s not in seen:
            seen.add(s)
            out.append(s)
    return out


def apply_template(tok, messages, template, add_generation_prompt, **kw):
    msgs = [dict(role=r, content=c) for r, c in messages]
    return tok.apply_chat_template(msgs, chat_template=template, add_generation_prompt=add_generation_prompt, **kw)


def make_chat_goldens(tok, template):
    rows = []
    for conv in CONVERSATIONS:
        for agp in (False, True):
            row = dict(name=conv["name"], add_generation_prompt=agp,
                       messages=[dict(role=r, content=c) for r, c in conv["messages"]])
            try:
                row["text"] = apply_template(tok, conv["messages"], template, agp, tokenize=False)
            except Exception as e:
                row["error"] = str(e)
                rows.append(row)
                continue
            enc = apply_template(tok, conv["messages"], template, agp, tokenize=True, return_dict=True,
                                 return_assistant_tokens_mask=True)
            row["ids"], row["assistant_mask"] = enc["input_ids"], enc["assistant_masks"]
            rows.append(row)
    bad = [("user", "a"), ("user", "b")]
    try:
        text = apply_template(tok, bad, template, False, tokenize=False)
        rows.append(dict(name="two_user_turns", add_generation_prompt=False, text=text,
                         messages=[dict(role=r, content=c) for r, c in bad]))
    except Exception as e:
        rows.append(dict(name="two_user_turns", add_generation_prompt=False, error=str(e),
                         messages=[dict(role=r, content=c) for r, c in bad]))
    return rows


def family_tokenizer(out):
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast
    root = fresh(out / "tokenizer")
    texts = test_strings()
    kinds = dict(llama3_style=(llama3_style(), "headers", "config"), qwen2_style=(qwen2_style(), "chatml", "file"),
                 sp_bpe=(sp_bpe(False), "inst", "config"), sp_bpe_legacy=(sp_bpe(True), "inst", "config"))
    for name, ((tok_json, specials), template_name, where) in kinds.items():
        folder = root / name
        template = CHAT_TEMPLATES[template_name]
        # the library's own serialisation, so that field order and escapes are the usual ones
        folder.mkdir(parents=True)
        lib = Tokenizer.from_str(json.dumps(tok_json))
        lib.save(str(folder / "tokenizer.json"), pretty=False)
        cfg = dict(tokenizer_class="PreTrainedTokenizerFast", model_max_length=256, clean_up_tokenization_spaces=False,
                   add_bos_token="bos_token" in specials, **specials)
        if where == "config":
            cfg["chat_template"] = template
        else:
            (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
        save_json(folder / "tokenizer_config.json", cfg)
        hf = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), clean_up_tokenization_spaces=False, **specials)

        cases = []
        for text in texts:
            with_sp, without = lib.encode(text, add_special_tokens=True), lib.encode(text, add_special_tokens=False)
            assert hf(text, add_special_tokens=False)["input_ids"] == without.ids, (name, text)
            cases.append(dict(text=text, ids=without.ids, ids_special=with_sp.ids,
                              decoded=lib.decode(without.ids, skip_special_tokens=False),
                              decoded_skip_special=lib.decode(with_sp.ids, skip_special_tokens=True)))
        g = gen(803)
        raw = []
        for _ in range(40):                      # arbitrary ids: partial UTF-8, specials in odd places
            ids = randint(g, 0, 512, int(randint(g, 1, 9, 1))).tolist()
            raw.append(dict(ids=ids, decoded=lib.decode(ids, skip_special_tokens=False),
                            decoded_skip_special=lib.decode(ids, skip_special_tokens=True)))
        save_json(folder / "cases.json", dict(
            about="ids: add_special_tokens=False; ids_special: True; decoded: of ids, skip_special_tokens=False; "
                  "decoded_skip_special: of ids_special, True. decode_only: decoding of arbitrary ids",
            vocab_size=lib.get_vocab_size(with_added_tokens=True), cases=cases, decode_only=raw))
        save_json(folder / "chat.json", dict(
            about="apply_chat_template with this folder's template; ids are the tokens of text with add_special_tokens=False; "
                  "assistant_mask is 1 on tokens inside generation blocks; error is what raise_exception said",
            template=template_name, cases=make_chat_goldens(hf, template)))
        # every template through every tokenizer would add nothing; but ChatML through the Llama-3 style one is common
        if name == "llama3_style":
            save_json(folder / "chat_chatml.json", dict(
                about="the ChatML template with this tokenizer", template=CHAT_TEMPLATES["chatml"],
                cases=make_chat_goldens(hf, CHAT_TEMPLATES["chatml"])))
    print("tokenizer", len(texts), "strings", flush=True)

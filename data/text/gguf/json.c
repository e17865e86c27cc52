/* Writes tokenizer.json part by part, in the library's order. Text goes directly to the buffer:
 * vocabularies and merge lists are too long for JSON values. */
#include "data/text/gguf/json.h"

#include <string.h>

#include "data/text/vocab/score_merges.h"
#include "data/text/tokenizer/split_rules.h"
#include "data/text/tokenizer/tokenizer_impl.h"
#include "base/text/unicode.h"

#define UNDERLINE "\xe2\x96\x81"

struct writer {
    const struct ax_gguf *file;
    const struct ax_tokenizer *t;
    struct ax_buf *out;
    bool byte_level;   /* the kind gpt2 */
    bool scored;       /* the kind llama; else there are merges */
    bool space_prefix; /* of kinds that are not byte-level */
};

/* --- strings --- */

static enum ax_status put(struct writer *w, const char *text) {
    return ax_buf_puts(w->out, text);
}

static enum ax_status put_string(struct writer *w, const char *s, size_t len) {
    size_t from = 0;
    if (ax_utf8_check(s, len) != len || memchr(s, '\0', len))
        return ax_error(AX_ERR_DATA,
                        "%s: tokenizer.ggml: a token is not UTF-8 or contains a NUL, which "
                        "tokenizer.json cannot express",
                        w->file->path);
    AX_TRY(put(w, "\""));
    for (size_t i = 0; i < len; i++) {
        const unsigned char c = (unsigned char)s[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        AX_TRY(ax_buf_append(w->out, s + from, i - from));
        AX_TRY(ax_buf_printf(w->out, c < 0x20 ? "\\u%04x" : "\\%c", c));
        from = i + 1;
    }
    AX_TRY(ax_buf_append(w->out, s + from, len - from));
    return put(w, "\"");
}

static enum ax_status put_token(struct writer *w, int32_t id) {
    size_t len = 0;
    const char *s = ax_tokenizer_token(w->t, id, &len);
    return put_string(w, s ? s : "", len);
}

/* --- the parts before the model --- */

static enum ax_status put_added_tokens(struct writer *w) {
    const struct ax_added_tokens *a = &w->t->added;
    const char *separator = "\n    ";
    AX_TRY(put(w, "  \"added_tokens\": ["));
    for (size_t id = 0; id < a->n_ids; id++) {
        const struct ax_added_token *token = ax_added_by_id(a, (int32_t)id);
        if (!token)
            continue;
        AX_TRY(ax_buf_printf(w->out, "%s{\"id\": %zu, \"content\": ", separator, id));
        AX_TRY(put_string(w, token->content, token->content_len));
        AX_TRY(ax_buf_printf(w->out,
                             ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                             "\"normalized\": false, \"special\": %s}",
                             token->special ? "true" : "false"));
        separator = ",\n    ";
    }
    return put(w, "\n  ],\n");
}

static enum ax_status put_normalizer(struct writer *w) {
    if (w->byte_level)
        return put(w, "  \"normalizer\": null,\n");
    AX_TRY(put(w, "  \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": ["));
    if (w->space_prefix)
        AX_TRY(put(w, "{\"type\": \"Prepend\", \"prepend\": \"" UNDERLINE "\"}, "));
    return put(w,
               "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"" UNDERLINE
               "\"}]},\n");
}

static enum ax_status put_pre_tokenizer(struct writer *w) {
    struct ax_gguf_text pre;
    char name[64] = "";
    if (!w->byte_level)
        return put(w, "  \"pre_tokenizer\": null,\n");
    AX_TRY(ax_gguf_string_or_null(w->file, "tokenizer.ggml.pre", &pre));
    if (pre.len < sizeof name)
        memcpy(name, pre.s, pre.len);
    const struct ax_split_rules *rules = ax_split_rules_find(name);
    AX_ASSERT(rules); /* a tokenizer exists only with rules */
    AX_TRY(put(w, "  \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [\n"));
    for (size_t i = 0; rules->rules[i]; i++) {
        AX_TRY(put(w, "    {\"type\": \"Split\", \"pattern\": {\"Regex\": "));
        AX_TRY(put_string(w, rules->rules[i], strlen(rules->rules[i])));
        AX_TRY(put(w, "}, \"behavior\": \"Isolated\", \"invert\": false},\n"));
    }
    return put(w,
               "    {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
               "\"use_regex\": false}\n  ]},\n");
}

/* [BOS, text, EOS], without those that the tokenizer does not add, for the first or second
 * sequence of a pair. */
static enum ax_status put_template(struct writer *w, char sequence) {
    const struct ax_id_list *sides[] = {&w->t->before, &w->t->after};
    const int type = sequence == 'B';
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < sides[side]->n; i++) {
            AX_TRY(
                put(w, side ? ", {\"SpecialToken\": {\"id\": " : "{\"SpecialToken\": {\"id\": "));
            AX_TRY(put_token(w, sides[side]->ids[i]));
            AX_TRY(ax_buf_printf(w->out, ", \"type_id\": %d}}%s", type, side ? "" : ", "));
        }
        if (side == 0)
            AX_TRY(ax_buf_printf(w->out, "{\"Sequence\": {\"id\": \"%c\", \"type_id\": %d}}",
                                 sequence, type));
    }
    return AX_OK;
}

static enum ax_status put_template_token(struct writer *w, int32_t id, const char *separator) {
    AX_TRY(put(w, separator));
    AX_TRY(put_token(w, id));
    AX_TRY(put(w, ": {\"id\": "));
    AX_TRY(put_token(w, id));
    AX_TRY(ax_buf_printf(w->out, ", \"ids\": [%d], \"tokens\": [", id));
    AX_TRY(put_token(w, id));
    return put(w, "]}");
}

static enum ax_status put_post_processor(struct writer *w) {
    const struct ax_id_list *before = &w->t->before, *after = &w->t->after;
    if (before->n + after->n == 0)
        return put(w, "  \"post_processor\": null,\n");
    AX_TRY(put(w, "  \"post_processor\": {\"type\": \"TemplateProcessing\",\n    \"single\": ["));
    AX_TRY(put_template(w, 'A'));
    AX_TRY(put(w, "],\n    \"pair\": ["));
    AX_TRY(put_template(w, 'A'));
    AX_TRY(put(w, ", "));
    AX_TRY(put_template(w, 'B'));
    AX_TRY(put(w, "],\n    \"special_tokens\": {"));
    if (before->n > 0)
        AX_TRY(put_template_token(w, before->ids[0], ""));
    if (after->n > 0 && (before->n == 0 || after->ids[0] != before->ids[0]))
        AX_TRY(put_template_token(w, after->ids[0], before->n > 0 ? ", " : ""));
    return put(w, "}},\n");
}

static enum ax_status put_decoder(struct writer *w) {
    if (w->byte_level)
        return put(w, "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                      "\"trim_offsets\": true, \"use_regex\": true},\n");
    AX_TRY(put(w, "  \"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", "
                  "\"pattern\": {\"String\": \"" UNDERLINE "\"}, \"content\": \" \"}, "
                  "{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}"));
    if (w->space_prefix)
        AX_TRY(put(w, ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}"));
    return put(w, "]},\n");
}

/* --- the model --- */

static enum ax_status put_vocab(struct writer *w) {
    const char *separator = "\n      ";
    AX_TRY(put(w, "    \"vocab\": {"));
    for (size_t id = 0; id < w->t->vocab.n_ids; id++) {
        size_t len;
        const char *s = ax_vocab_string(&w->t->vocab, (int32_t)id, &len);
        if (!s)
            continue;
        AX_TRY(put(w, separator));
        AX_TRY(put_string(w, s, len));
        AX_TRY(ax_buf_printf(w->out, ": %zu", id));
        separator = ",\n      ";
    }
    return put(w, "\n    },\n");
}

static enum ax_status put_merge(struct writer *w, const char *separator, const char *s,
                                size_t left_len, const char *right, size_t right_len) {
    AX_TRY(put(w, separator));
    AX_TRY(put_string(w, s, left_len));
    AX_TRY(put(w, ", "));
    AX_TRY(put_string(w, right, right_len));
    return put(w, "]");
}

static const char *merge_separator(size_t i) {
    return i == 0 ? "\n      [" : ",\n      [";
}

static enum ax_status put_listed_merges(struct writer *w) {
    struct ax_gguf_text *merges;
    size_t n;
    enum ax_status st = AX_OK;
    AX_TRY(ax_gguf_strings(w->file, "tokenizer.ggml.merges", &merges, &n));
    for (size_t i = 0; i < n && st == AX_OK; i++) {
        const struct ax_gguf_text m = merges[i];
        const char *blank = m.len > 1 ? memchr(m.s + 1, ' ', m.len - 1) : NULL;
        AX_ASSERT(blank); /* a tokenizer exists only if every merge has a blank */
        const size_t left = (size_t)(blank - m.s);
        st = put_merge(w, merge_separator(i), m.s, left, blank + 1, m.len - left - 1);
    }
    ax_free(merges);
    return st;
}

static enum ax_status put_score_merges(struct writer *w) {
    const struct ax_vocab *v = &w->t->vocab;
    float *scores = NULL;
    struct ax_score_merge *merges = NULL;
    size_t n, len;
    enum ax_status st;
    AX_TRY_GOTO(ax_gguf_f32s(w->file, "tokenizer.ggml.scores", &scores, &n), st, done);
    AX_ASSERT(n == v->n_ids); /* a tokenizer exists only with a score per token */
    AX_TRY_GOTO(ax_score_merges(v, scores, &merges, &n), st, done);
    for (size_t i = 0; i < n; i++) {
        const size_t left = merges[i].left_bytes;
        const char *s = ax_vocab_string(v, merges[i].token, &len);
        AX_TRY_GOTO(put_merge(w, merge_separator(i), s, left, s + left, len - left), st, done);
    }
done:
    ax_free(merges);
    ax_free(scores);
    return st == AX_OK ? st : ax_error_prefix(st, "%s", w->file->path);
}

static enum ax_status put_model(struct writer *w) {
    const struct ax_bpe *bpe = &w->t->bpe;
    AX_TRY(put(w, "  \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": "));
    AX_TRY(bpe->unk == AX_NO_TOKEN ? put(w, "null") : put_token(w, bpe->unk));
    AX_TRY(
        ax_buf_printf(w->out,
                      ",\n    \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, "
                      "\"fuse_unk\": %s, \"byte_fallback\": %s, \"ignore_merges\": %s,\n",
                      bpe->fuse_unk ? "true" : "false", w->byte_level ? "false" : "true",
                      bpe->ignore_merges ? "true" : "false"));
    AX_TRY(put_vocab(w));
    AX_TRY(put(w, "    \"merges\": ["));
    AX_TRY(w->scored ? put_score_merges(w) : put_listed_merges(w));
    return put(w, "\n    ]\n  }\n}\n");
}

enum ax_status ax_gguf_tokenizer_json(const struct ax_gguf *file, const struct ax_tokenizer *t,
                                      struct ax_buf *out) {
    struct writer w = {.file = file, .t = t, .out = out};
    struct ax_gguf_text kind;
    AX_TRY(ax_gguf_string_or_null(file, "tokenizer.ggml.model", &kind));
    w.byte_level = kind.len == 4 && memcmp(kind.s, "gpt2", 4) == 0;
    w.scored = kind.len == 5 && memcmp(kind.s, "llama", 5) == 0;
    AX_TRY(ax_gguf_bool_or(file, "tokenizer.ggml.add_space_prefix", w.scored, &w.space_prefix));
    AX_TRY(put(&w, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"));
    AX_TRY(put_added_tokens(&w));
    AX_TRY(put_normalizer(&w));
    AX_TRY(put_pre_tokenizer(&w));
    AX_TRY(put_post_processor(&w));
    AX_TRY(put_decoder(&w));
    return put_model(&w);
}

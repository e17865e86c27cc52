/* A tokenizer whose ids can be read, and documents as text with their trained tokens marked.
 *
 * Every byte is the token of its own value. There are a few merges, so that tokens can straddle:
 * "\n\n" is 256, " w" and "or" are 257 and 258, " wor" is 259, "ld" is 260. Special tokens follow.
 * A document is written with ⟦ and ⟧ around what is trained. Include after cmocka.h and scratch.h.
 */
#ifndef AX_TESTS_DATA_FORMAT_CASE_H
#define AX_TESTS_DATA_FORMAT_CASE_H

#include "data/records/format/format.h"
#include "data/text/tokenizer/tokenizer.h"

enum { IM_START = 261, IM_END, BOS, EOS, PAD, EOT };

static const char *const special_texts[] = {"<|im_start|>", "<|im_end|>", "<s>",
                                            "</s>",         "<pad>",      "<|eot|>"};

static const char *const merged_texts[] = {"\n\n", " w", "or", " wor", "ld"};

/* The character that byte-level tokenizers write for a byte. */
static inline unsigned byte_char(unsigned b) {
    unsigned n = 0;
    for (unsigned i = 0; i < 256; i++) {
        const bool shown = (i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174;
        if (i == b)
            return shown ? b : 256 + n;
        n += !shown;
    }
    return 0;
}

static inline void put_utf8(struct ax_buf *b, unsigned c) {
    const char two[] = {(char)(0xC0U | c >> 6), (char)(0x80U | (c & 0x3FU))};
    const char one = (char)c;
    if (c == '"' || c == '\\')
        assert_ok(ax_buf_puts(b, "\\"));
    assert_ok(c < 128 ? ax_buf_append(b, &one, 1) : ax_buf_append(b, two, 2));
}

/* `extra` is more JSON members of tokenizer.json ("" or ", \"post_processor\": …"). */
static inline void put_tokenizer(const char *folder, const char *config, const char *post) {
    struct ax_buf b = {0};
    char path[128];
    assert_ok(ax_buf_puts(&b, "{\"version\": \"1.0\", \"added_tokens\": ["));
    for (int i = 0; i < 6; i++)
        assert_ok(ax_buf_printf(&b,
                                "%s{\"id\": %d, \"content\": \"%s\", \"single_word\": false, "
                                "\"lstrip\": false, \"rstrip\": false, \"normalized\": false, "
                                "\"special\": true}",
                                i ? ", " : "", IM_START + i, special_texts[i]));
    assert_ok(
        ax_buf_printf(&b,
                      "], \"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
                      "\"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": "
                      "false}, \"post_processor\": %s, \"decoder\": {\"type\": \"ByteLevel\"}, "
                      "\"model\": {\"type\": \"BPE\", \"vocab\": {",
                      post));
    for (unsigned i = 0; i < 256; i++) {
        assert_ok(ax_buf_puts(&b, i ? ", \"" : "\""));
        put_utf8(&b, byte_char(i));
        assert_ok(ax_buf_printf(&b, "\": %u", i));
    }
    assert_ok(ax_buf_puts(&b, ", \"ĊĊ\": 256, \"Ġw\": 257, \"or\": 258, \"Ġwor\": 259, \"ld\": 260"
                              "}, \"merges\": [\"Ċ Ċ\", \"Ġ w\", \"o r\", \"Ġw or\", \"l d\"]}}"));
    make_folder(folder);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    put_bytes(path, b.data, b.len);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
    put_text(path, config);
    ax_buf_free(&b);
}

#define PLAIN_CONFIG "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"pad_token\": \"<pad>\"}"
/* <s> in front of every text. */
#define BOS_POST                                                                                   \
    "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", "        \
    "\"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [], "           \
    "\"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [263], \"tokens\": [\"<s>\"]}}}"
/* … and </s> behind it. */
#define BOS_EOS_POST                                                                               \
    "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", "        \
    "\"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"SpecialToken\": "       \
    "{\"id\": \"</s>\", \"type_id\": 0}}], \"pair\": [], \"special_tokens\": {\"<s>\": {\"id\": "  \
    "\"<s>\", \"ids\": [263], \"tokens\": [\"<s>\"]}, \"</s>\": {\"id\": \"</s>\", \"ids\": "      \
    "[264], \"tokens\": [\"</s>\"]}}}"

static struct ax_tokenizer *bare_tokenizer, *bos_tokenizer, *both_tokenizer;

static inline int load_tokenizers(void **state) {
    if (scratch_make(state) != 0)
        return -1;
    put_tokenizer("bare", PLAIN_CONFIG, "null");
    put_tokenizer("bos", PLAIN_CONFIG, BOS_POST);
    put_tokenizer("both", PLAIN_CONFIG, BOS_EOS_POST);
    if (ax_tokenizer_load(&bare_tokenizer, in_scratch("bare")) != AX_OK ||
        ax_tokenizer_load(&bos_tokenizer, in_scratch("bos")) != AX_OK ||
        ax_tokenizer_load(&both_tokenizer, in_scratch("both")) != AX_OK) {
        print_error("%s\n", ax_error_text());
        return -1;
    }
    return 0;
}

static inline int free_tokenizers(void **state) {
    ax_tokenizer_free(bare_tokenizer);
    ax_tokenizer_free(bos_tokenizer);
    ax_tokenizer_free(both_tokenizer);
    return scratch_remove(state);
}

/* The text of a token, by this table and not by the tokenizer's own decoder. */
static inline void put_token(struct ax_buf *b, int32_t id) {
    const char byte = (char)id;
    if (id < 256)
        assert_ok(ax_buf_append(b, &byte, 1));
    else if (id < IM_START)
        assert_ok(ax_buf_puts(b, merged_texts[id - 256]));
    else
        assert_ok(ax_buf_puts(b, special_texts[id - IM_START]));
}

/* All documents, each ended by a bar (|) where there are several. */
static inline void show(const struct ax_example_list *s, struct ax_buf *b) {
    b->len = 0;
    assert_ok(ax_buf_puts(b, ""));
    for (size_t d = 0; d < s->n; d++) {
        const struct ax_example *x = &s->items[d];
        bool on = false;
        if (d > 0)
            assert_ok(ax_buf_puts(b, " | "));
        for (size_t i = 0; i < x->n; i++) {
            const bool trained = x->labels[i] != AX_NO_LABEL;
            if (trained)
                assert_int_equal(x->labels[i], x->tokens[i]);
            if (trained != on)
                assert_ok(ax_buf_puts(b, on ? "⟧" : "⟦"));
            on = trained;
            put_token(b, x->tokens[i]);
        }
        if (on)
            assert_ok(ax_buf_puts(b, "⟧"));
    }
}

/* Runs a format over one row and frees it. */
static inline enum ax_status run_record(const struct ax_format *f, const char *json,
                                        struct ax_example_list *out) {
    struct ax_format_work w = {0};
    json_error_t e;
    json_t *row = json_loads(json, JSON_ALLOW_NUL, &e);
    if (!row)
        fail_msg("the test's row: %s", e.text);
    const enum ax_status st = ax_format_record(f, &w, row, (struct ax_origin){.line = 1}, out);
    json_decref(row);
    ax_format_work_free(&w);
    return st;
}

static int rows_checked; /* how many rows this program has held against documents made by hand */

static inline void check_with(const struct ax_format *f, const char *json, const char *want) {
    struct ax_example_list s = {.columns = ax_format_columns(f)};
    struct ax_buf got = {0};
    assert_ok(run_record(f, json, &s));
    show(&s, &got);
    assert_string_equal(got.data, want);
    ax_buf_free(&got);
    ax_example_list_free(&s);
    rows_checked++;
}

/* Twice: a tokenizer keeps scratch from its first use on, which is no leak of a format. */
static inline void check_record(const struct ax_format_options *o, const char *json,
                                const char *want) {
    uint64_t live = 0;
    for (int i = 0; i < 2; i++) {
        struct ax_format *f;
        live = ax_mem_live_blocks();
        assert_ok(ax_format_new(&f, o));
        check_with(f, json, want);
        ax_format_free(f);
    }
    assert_int_equal(ax_mem_live_blocks(), live);
    rows_checked--;
}

/* The reason of a record with nothing to learn from ends with "empty". */
static inline void check_bad_record(const struct ax_format_options *o, const char *json,
                                    const char *why) {
    uint64_t live = 0;
    for (int i = 0; i < 2; i++) {
        struct ax_format *f;
        struct ax_example_list s = {.columns = o->columns};
        live = ax_mem_live_blocks();
        assert_ok(ax_format_new(&f, o));
        assert_error(run_record(f, json, &s), strstr(why, " empty") ? AX_ERR_EMPTY : AX_ERR_DATA,
                     why);
        assert_int_equal(s.n, 0);
        assert_int_equal(s.n_tokens, 0);
        ax_example_list_free(&s);
        ax_format_free(f);
    }
    assert_int_equal(ax_mem_live_blocks(), live);
    rows_checked++;
}

#endif

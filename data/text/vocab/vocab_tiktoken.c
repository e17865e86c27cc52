/* tiktoken.model → a tokenizer, as Kimi's tokenization_kimi.py makes one with the tiktoken package.
 *
 *   a line             a token's bytes in base64, a blank, its rank: 0, 1, … (ranks.h). All single bytes are there
 *   special tokens     the 256 ids after the last rank, by added_tokens_decoder of tokenizer_config.json; those that it
 *                      does not name are <|reserved_token_ID|>. Kimi's code makes two more, beyond the
 *                      embeddings of most models; they are here if the config names them, or the last. All are
 *                      matched in texts; nothing is put before one
 *
 * How texts are split is not in the files. Kimi's code cuts more than 25,000 characters without a blank, or of blanks
 * alone, for tiktoken's sake; here they are one. */
#include "data/text/vocab/vocab_tiktoken.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "base/text/json.h"
#include "data/text/tokenizer/byte_level.h"
#include "data/text/tokenizer/split_patterns.h"
#include "data/text/vocab/ranks.h"
#include "data/text/vocab/vocab_hf.h"

enum { MAX_FILE = 256 << 20, MAX_TOKENS = 1 << 24, RESERVED = 256, SPECIALS = RESERVED + 2 };

bool ax_tiktoken_is(const char *path) {
    const char *slash = strrchr(path, '/');
    return strcmp(slash ? slash + 1 : path, AX_TIKTOKEN) == 0;
}

/* ---- tokens ---- */

static enum ax_status wrong_line(const char *name, int64_t rank, const char *why) {
    return ax_error(AX_ERR_DATA, "%s: line %lld: %s", name, (long long)rank + 1, why);
}

/* "BASE64 RANK" */
static enum ax_status add_line(struct ax_tokenizer *t, const char *name, const char *line,
                               size_t len, int64_t rank, size_t expected) {
    unsigned char bytes[AX_RANK_BYTES + 3];
    char number[24], want[24];
    const char *blank = memchr(line, ' ', len);
    const size_t left = blank ? (size_t)(blank - line) : len;
    const size_t n = ax_rank_decode(line, left, bytes), digits = blank ? len - left - 1 : 0;
    if (n == 0)
        return ax_error(AX_ERR_DATA, "%s: line %lld: expected 1 to %d bytes in base64", name,
                        (long long)rank + 1, AX_RANK_BYTES);
    snprintf(want, sizeof want, "%lld", (long long)rank);
    snprintf(number, sizeof number, "%.*s", digits < sizeof number ? (int)digits : 0,
             blank ? blank + 1 : "");
    if (strcmp(number, want) != 0)
        return wrong_line(name, rank, "expected a blank and the rank: lines count from 0");
    const enum ax_status st = ax_rank_add(t, bytes, n, rank, expected);
    return st == AX_OK ? st : ax_error_prefix(st, "%s: line %lld", name, (long long)rank + 1);
}

static enum ax_status check_bytes(const struct ax_tokenizer *t, const char *name) {
    for (int byte = 0; byte < 256; byte++) {
        char c[4];
        const size_t n = ax_byte_to_char((unsigned char)byte, c);
        if (ax_vocab_find(&t->vocab, c, n) == AX_NO_TOKEN)
            return ax_error(AX_ERR_DATA, "%s: byte %d is no token, so that not all texts have ids",
                            name, byte);
    }
    return AX_OK;
}

static enum ax_status read_tokens(struct ax_tokenizer *t, const char *name, const char *text,
                                  size_t len, int64_t *n) {
    const size_t most = len / 7 + 1; /* of "AA== 0\n" */
    *n = 0;
    for (size_t at = 0; at < len;) {
        const char *line = text + at, *end = memchr(line, '\n', len - at);
        const size_t length = end ? (size_t)(end - line) : len - at;
        at += length + 1;
        if (length == 0 && at >= len)
            break;
        if (*n >= MAX_TOKENS)
            return wrong_line(name, *n, "more tokens than are supported");
        AX_TRY(add_line(t, name, line, length, *n, most));
        ++*n;
    }
    return check_bytes(t, name);
}

/* ---- special tokens ---- */

/* The names of ids n … n + SPECIALS − 1; NULL: reserved. They are borrowed from the config. */
static enum ax_status read_names(struct ax_json decoder, int64_t n, const char *names[SPECIALS]) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)decoder.v, key, value) {
        char *end;
        errno = 0;
        const long long id = strtoll(key, &end, 10);
        const struct ax_json v = ax_json_get(decoder, key);
        if (*end || end == key || errno || id < n || id >= n + SPECIALS)
            return ax_json_error(v, "expected an id from %lld to %lld, which follow " AX_TIKTOKEN,
                                 (long long)n, (long long)n + SPECIALS - 1);
        AX_TRY(ax_json_str(ax_json_get(v, "content"), &names[id - n]));
    }
    return AX_OK;
}

static enum ax_status add_specials(struct ax_tokenizer *t, struct ax_json config, int64_t n) {
    const char *names[SPECIALS] = {0};
    AX_TRY(read_names(ax_json_get(config, "added_tokens_decoder"), n, names));
    int n_specials = SPECIALS;
    while (n_specials > RESERVED && !names[n_specials - 1])
        n_specials--;
    for (int i = 0; i < n_specials; i++) {
        char reserved[40];
        snprintf(reserved, sizeof reserved, "<|reserved_token_%lld|>", (long long)n + i);
        const char *text = names[i] ? names[i] : reserved;
        const struct ax_added_token token = {.id = (int32_t)(n + i),
                                             .special = true,
                                             .content = (char *)(uintptr_t)text, /* copied */
                                             .content_len = strlen(text)};
        if (ax_added_by_content(&t->added, text, strlen(text)))
            return ax_json_error(config, "the token \"%.60s\" has two ids", text);
        AX_TRY(ax_added_put(&t->added, &token));
    }
    return ax_added_index(&t->added);
}

/* ---- all ---- */

static enum ax_status build(struct ax_tokenizer *t, const char *name, const char *text, size_t len,
                            struct ax_json config) {
    int64_t n;
    AX_TRY(read_tokens(t, name, text, len, &n));
    AX_TRY(add_specials(t, config, n));
    return ax_ranks_finish(t, AX_PATTERN_KIMI, 0);
}

enum ax_status ax_tiktoken_parse(struct ax_tokenizer *t, const char *name, const char *text,
                                 size_t len) {
    const enum ax_status st = build(t, name, text, len, (struct ax_json){0});
    return st == AX_OK || strncmp(ax_error_text(), name, strlen(name)) == 0
               ? st
               : ax_error_prefix(st, "%s", name);
}

/* Another class splits texts in another way. */
static enum ax_status check_class(struct ax_json config) {
    static const char known[] = "TikTokenTokenizer";
    const struct ax_json v = ax_json_get(config, "tokenizer_class");
    const char *name;
    AX_TRY(ax_json_str_or(v, known, &name));
    if (strcmp(name, known) == 0)
        return AX_OK;
    ax_json_error(v,
                  "a " AX_TIKTOKEN " of %.60s is not supported, only Kimi's (%s); save a "
                  "tokenizer.json with transformers' save_pretrained",
                  name, known);
    return AX_ERR_UNSUPPORTED;
}

static enum ax_status load(struct ax_tokenizer *t, const char *path, const char *config_path) {
    struct ax_json_doc doc = {0};
    char *text = NULL;
    size_t len;
    enum ax_status st;
    if (ax_path_exists(config_path))
        AX_TRY(ax_json_load(&doc, config_path, MAX_FILE));
    AX_TRY_GOTO(check_class(ax_json_root(&doc)), st, done);
    AX_TRY_GOTO(ax_read_file(path, MAX_FILE, &text, &len), st, done);
    st = build(t, path, text, len, ax_json_root(&doc));
done:
    ax_free(text);
    ax_json_free(&doc);
    return st;
}

enum ax_status ax_tiktoken_load(struct ax_tokenizer *t, const char *path) {
    const char *slash = strrchr(path, '/');
    char *dir, *config = NULL;
    enum ax_status st;
    AX_TRY(slash ? ax_strndup(&dir, path, (size_t)(slash - path)) : ax_strdup(&dir, "."));
    AX_TRY_GOTO(ax_path_join(&config, dir, "tokenizer_config.json"), st, done);
    AX_TRY_GOTO(load(t, path, config), st, done);
    st = ax_hf_read_config(dir, t);
done:
    ax_free(config);
    ax_free(dir);
    return st;
}

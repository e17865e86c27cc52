/* tekken.json → a tokenizer, as the mistral-common package reads it: a byte-level BPE in tiktoken's form.
 *
 *   vocab           byte strings in base64 by rank (ranks.h), the 256 single bytes first
 *   special_tokens  come before them: the id of rank r is default_num_special_tokens + r. Those that the
 *                   file does not name are called <SPECIAL_n>; files up to v7 may leave out the list */
#include "data/text/vocab/vocab_tekken.h"

#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/io_path.h"
#include "base/text/json.h"
#include "data/text/vocab/ranks.h"

enum { MAX_FILE = 256 << 20, MAX_TOKENS = 1 << 24, MAX_SPECIALS = 1 << 16 };

static const char *const first_specials[] = {
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
};
#define N_FIRST (sizeof first_specials / sizeof *first_specials)

bool ax_tekken_is(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return strstr(name, "tekken") && ax_path_ends_in(name, ".json");
}

/* ---- special tokens ---- */

static enum ax_status put_special(struct ax_tokenizer *t, struct ax_json where, int64_t id,
                                  const char *text) {
    const struct ax_added_token token = {.id = (int32_t)id,
                                         .special = true,
                                         .content = (char *)(uintptr_t)text, /* copied */
                                         .content_len = strlen(text)};
    if (ax_added_by_content(&t->added, text, strlen(text)))
        return ax_json_error(where, "the special token \"%.60s\" is listed twice", text);
    return ax_added_put(&t->added, &token);
}

static enum ax_status read_specials(struct ax_tokenizer *t, struct ax_json root, int64_t n) {
    const struct ax_json list = ax_json_get(root, "special_tokens");
    const int64_t listed = list.v ? (int64_t)ax_json_size(list) : (int64_t)N_FIRST;
    if (listed > n)
        return ax_json_error(list.v ? list : root,
                             "%lld special tokens, but the file has room for "
                             "default_num_special_tokens, %lld",
                             (long long)listed, (long long)n);
    for (int64_t i = 0; i < n; i++) {
        char name[32];
        const char *text = name;
        int64_t rank = i;
        snprintf(name, sizeof name, "<SPECIAL_%lld>", (long long)i);
        if (i < listed && list.v) {
            const struct ax_json v = ax_json_at(list, (size_t)i);
            AX_TRY(ax_json_i64(ax_json_get(v, "rank"), i, i, &rank));
            AX_TRY(ax_json_str(ax_json_get(v, "token_str"), &text));
        } else if (i < listed) {
            text = first_specials[i];
        }
        AX_TRY(put_special(t, list.v ? list : root, rank, text));
    }
    return ax_added_index(&t->added);
}

/* ---- the vocabulary ---- */

/* Adds the token of a rank under its spelling in the byte alphabet. */
static enum ax_status add_token(struct ax_tokenizer *t, struct ax_json v, int64_t rank, int64_t id,
                                size_t expected) {
    unsigned char bytes[AX_RANK_BYTES + 3];
    const char *text;
    int64_t said;
    AX_TRY(ax_json_i64(ax_json_get(v, "rank"), rank, rank, &said));
    const struct ax_json coded = ax_json_get(v, "token_bytes");
    AX_TRY(ax_json_str(coded, &text));
    const size_t n = ax_rank_decode(text, strlen(text), bytes);
    if (n == 0)
        return ax_json_error(coded, "expected 1 to %d bytes in base64", AX_RANK_BYTES);
    if (rank < 256 && (n != 1 || bytes[0] != rank))
        return ax_json_error(coded, "expected the byte %lld: the first 256 are the single bytes",
                             (long long)rank);
    const enum ax_status st = ax_rank_add(t, bytes, n, id, expected);
    return st == AX_OK ? st : ax_error_prefix(st, "%s: %s", v.doc, v.path);
}

static enum ax_status read_vocab(struct ax_tokenizer *t, struct ax_json root, int64_t n,
                                 int64_t first) {
    const struct ax_json list = ax_json_get(root, "vocab");
    if (n < 256 || (int64_t)ax_json_size(list) < n)
        return ax_json_error(list.v ? list : root,
                             "expected at least 256 tokens, and those of default_vocab_size less "
                             "default_num_special_tokens, %lld; got %zu",
                             (long long)n, ax_json_size(list));
    for (int64_t i = 0; i < n; i++)
        AX_TRY(add_token(t, ax_json_at(list, (size_t)i), i, first + i, (size_t)(first + n)));
    return AX_OK;
}

/* ---- all ---- */

static enum ax_status check_version(struct ax_json v, bool *old) {
    static const char *const versions[] = {"v3", "v7", "v11", "v13", "v15"};
    const char *version;
    AX_TRY(ax_json_str(v, &version));
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
        if (strcmp(version, versions[i]) == 0) {
            *old = i < 2;
            return AX_OK;
        }
    ax_json_error(v, "version \"%.20s\" is not one of v3, v7, v11, v13, v15", version);
    return AX_ERR_UNSUPPORTED;
}

static enum ax_status build(struct ax_tokenizer *t, struct ax_json root) {
    static const char *const names[] = {"<s>", "</s>", "<unk>", "<pad>"};
    static const enum ax_special which[] = {AX_BOS, AX_EOS, AX_UNK, AX_PAD};
    const struct ax_json config = ax_json_get(root, "config");
    const char *pattern;
    int64_t size, specials;
    bool old;
    AX_TRY(check_version(ax_json_get(config, "version"), &old));
    if (!old && !ax_json_get(root, "special_tokens").v)
        return ax_json_error(root, "special_tokens is missing, which only v3 and v7 may leave out");
    AX_TRY(ax_json_str(ax_json_get(config, "pattern"), &pattern));
    AX_TRY(ax_json_i64(ax_json_get(config, "default_vocab_size"), 1, MAX_TOKENS, &size));
    AX_TRY(
        ax_json_i64(ax_json_get(config, "default_num_special_tokens"), 0, MAX_SPECIALS, &specials));
    AX_TRY(read_vocab(t, root, size - specials, specials));
    AX_TRY(read_specials(t, root, specials));
    t->offset = (size_t)specials;
    AX_TRY(ax_ranks_finish(t, pattern, specials));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ax_added_by_content(&t->added, names[i], strlen(names[i])))
            AX_TRY(ax_tokenizer_name_special(t, which[i], names[i]));
    const int32_t bos = ax_tokenizer_special_id(t, AX_BOS);
    return ax_id_list_set(&t->before, &bos, bos != AX_NO_TOKEN ? 1 : 0);
}

enum ax_status ax_tekken_parse(struct ax_tokenizer *t, const char *name, const char *text,
                               size_t len) {
    struct ax_json_doc doc;
    AX_TRY(ax_json_parse(&doc, name, text, len));
    enum ax_status st = build(t, ax_json_root(&doc));
    if (st != AX_OK && strncmp(ax_error_text(), name, strlen(name)) != 0)
        st = ax_error_prefix(st, "%s", name);
    ax_json_free(&doc);
    return st;
}

enum ax_status ax_tekken_load(struct ax_tokenizer *t, const char *path) {
    char *text;
    size_t len;
    AX_TRY(ax_read_file(path, MAX_FILE, &text, &len));
    const enum ax_status st = ax_tekken_parse(t, path, text, len);
    ax_free(text);
    return st;
}

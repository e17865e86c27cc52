/* Loading an HF tokenizer: tokenizer.json, alone or in a folder. Read ax_tokenizer_load first. */
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "ckpt/gguf/gguf.h"
#include "base/text/unicode.h"
#include "data/text/vocab/mistral_files.h"
#include "data/text/vocab/vocab_hf.h"
#include "data/text/vocab/vocab_json.h"
#include "data/text/vocab/vocab_sentencepiece.h"
#include "data/text/vocab/vocab_tekken.h"

enum { MAX_FILE = 256 * 1024 * 1024, SHOWN = 60 };

/* --- model --- */

/* Reads the options of a BPE model; those that axtrain does not support must be off. */
static enum ax_status read_model(struct ax_json v, struct ax_tokenizer *t) {
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const char *type, *text;
    double dropout;
    AX_TRY(ax_json_str_or(ax_json_get(v, "type"), "BPE", &type));
    if (strcmp(type, "BPE") != 0)
        return ax_hf_unsupported(v, "the model type", type);
    AX_TRY(ax_json_f64_or(ax_json_get(v, "dropout"), 0, &dropout));
    if (dropout != 0)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: model.dropout: random merges (%g) are not supported; set it to null",
                        v.doc, dropout);
    for (size_t i = 0; i < 2; i++) {
        AX_TRY(ax_json_str_or(ax_json_get(v, affixes[i]), "", &text));
        if (*text != '\0')
            return ax_hf_unsupported(v, affixes[i], text);
    }
    AX_TRY(ax_json_bool_or(ax_json_get(v, "fuse_unk"), false, &t->bpe.fuse_unk));
    AX_TRY(ax_json_bool_or(ax_json_get(v, "byte_fallback"), false, &t->bpe.byte_fallback));
    AX_TRY(ax_json_bool_or(ax_json_get(v, "ignore_merges"), false, &t->bpe.ignore_merges));
    AX_TRY(ax_json_str_or(ax_json_get(v, "unk_token"), NULL, &text));
    if (text != NULL) {
        t->bpe.unk = ax_vocab_find(&t->vocab, text, strlen(text));
        t->bpe.unk_missing = t->bpe.unk == AX_NO_TOKEN;
    }
    return AX_OK;
}

/* --- added tokens --- */

enum ax_status ax_hf_read_added(struct ax_json v, struct ax_added_token *token) {
    const char *content;
    *token = (struct ax_added_token){0};
    AX_TRY(ax_json_str(ax_json_get(v, "content"), &content));
    token->content = (char *)content; /* ax_tokenizer_put_added copies it */
    token->content_len = strlen(content);
    AX_TRY(ax_json_bool_or(ax_json_get(v, "single_word"), false, &token->single_word));
    AX_TRY(ax_json_bool_or(ax_json_get(v, "lstrip"), false, &token->lstrip));
    AX_TRY(ax_json_bool_or(ax_json_get(v, "rstrip"), false, &token->rstrip));
    AX_TRY(ax_json_bool_or(ax_json_get(v, "special"), false, &token->special));
    return ax_json_bool_or(ax_json_get(v, "normalized"), !token->special, &token->normalized);
}

/* As in HF, a token's id is that of its text in the model, or else the next one, whatever the
 * file says. */
static enum ax_status read_added_tokens(struct ax_json list, struct ax_tokenizer *t) {
    if (list.v != NULL && !json_is_array(list.v))
        return ax_json_error(list, "expected a list");
    int32_t next = ax_tokenizer_next_id(t);
    for (size_t i = 0; i < ax_json_size(list); i++) {
        struct ax_json v = ax_json_at(list, i);
        struct ax_added_token token;
        int64_t id;
        AX_TRY(ax_hf_read_added(v, &token));
        if (token.content_len == 0)
            continue;
        AX_TRY(ax_tokenizer_put_added(t, &token, &next));
        AX_TRY(ax_json_i64_or(ax_json_get(v, "id"), 0, UINT32_MAX, token.id, &id));
        if (id != token.id)
            ax_log_warn("%s: %s: token \"%.*s\" has id %d, but the file says %lld", v.doc, v.path,
                        SHOWN, token.content, token.id, (long long)id);
    }
    return AX_OK;
}

/* --- the file --- */

static enum ax_status check_ids(const struct ax_tokenizer *t, const struct ax_id_list *l,
                                const char *name) {
    size_t len;
    for (size_t i = 0; i < l->n; i++)
        if (ax_tokenizer_token(t, l->ids[i], &len) == NULL)
            return ax_error(AX_ERR_DATA, "%s: post_processor adds id %d, which no token has", name,
                            l->ids[i]);
    return AX_OK;
}

/* Reads everything except vocab and merges, which were read and blanked out before. */
static enum ax_status read_parts(const struct ax_json_doc *doc, struct ax_tokenizer *t) {
    struct ax_json root = ax_json_root(doc);
    const char *version;
    AX_TRY(ax_json_str_or(ax_json_get(root, "version"), "1.0", &version));
    if (strcmp(version, "1.0") != 0)
        return ax_hf_unsupported(ax_json_get(root, "version"), "version", version);
    AX_TRY(read_model(ax_json_get(root, "model"), t));
    AX_TRY(ax_hf_read_normalizer(ax_json_get(root, "normalizer"), &t->normalizer));
    AX_TRY(ax_hf_read_pretok(ax_json_get(root, "pre_tokenizer"), &t->pretok));
    AX_TRY(ax_hf_read_decoder(ax_json_get(root, "decoder"), &t->decoder));
    AX_TRY(ax_hf_read_post_processor(ax_json_get(root, "post_processor"), t));
    AX_TRY(read_added_tokens(ax_json_get(root, "added_tokens"), t));
    AX_TRY(ax_tokenizer_finish(t));
    AX_TRY(check_ids(t, &t->before, doc->name));
    return check_ids(t, &t->after, doc->name);
}

/* Checks the model's type first, so that an error names it rather than its missing merges. */
static enum ax_status check_stretches(const struct ax_json_doc *doc,
                                      const struct ax_vocab_json *j) {
    struct ax_json model = ax_json_get(ax_json_root(doc), "model");
    const char *type;
    AX_TRY(ax_json_str_or(ax_json_get(model, "type"), "BPE", &type));
    if (strcmp(type, "BPE") != 0)
        return ax_hf_unsupported(model, "the model type", type);
    if (j->vocab.end == 0)
        return ax_json_error(model, "expected an object \"vocab\" in the BPE model");
    if (j->merges.end == 0)
        return ax_json_error(model, "expected a list \"merges\" in the BPE model");
    return AX_OK;
}

static enum ax_status parse_text(struct ax_tokenizer *t, const char *name, char *text, size_t len) {
    struct ax_vocab_json j = {.name = name, .text = text, .len = len};
    struct ax_json_doc doc;
    size_t good = ax_utf8_check(text, len);
    if (good != len)
        return ax_error(AX_ERR_DATA, "%s: not UTF-8 at byte %zu", name, good);
    if (!ax_vocab_json_find(&j)) {
        AX_TRY(ax_json_parse(&doc, name, text, len)); /* the error says where the syntax is wrong */
        ax_json_free(&doc);
        return ax_error(AX_ERR_DATA, "%s: expected an object", name);
    }
    enum ax_status st = AX_OK;
    if (j.vocab.end > 0)
        st = ax_vocab_json_read_vocab(&j, &t->vocab);
    if (st == AX_OK && j.vocab.end > 0 && j.merges.end > 0)
        st = ax_vocab_json_read_merges(&j, &t->vocab, &t->bpe);
    AX_TRY(st);
    ax_vocab_json_blank(&j);
    AX_TRY(ax_json_parse(&doc, name, text, len));
    st = check_stretches(&doc, &j);
    if (st == AX_OK)
        st = read_parts(&doc, t);
    ax_json_free(&doc);
    return st;
}

/* Makes every error begin with the file's name, including those of parts that do not know it. */
static enum ax_status parse(struct ax_tokenizer *t, const char *name, char *text, size_t len) {
    enum ax_status st = parse_text(t, name, text, len);
    if (st != AX_OK && strncmp(ax_error_text(), name, strlen(name)) != 0)
        return ax_error_prefix(st, "%s", name);
    return st;
}

enum ax_status ax_tokenizer_parse(struct ax_tokenizer **out, const char *name, const char *text,
                                  size_t len) {
    struct ax_tokenizer *t = NULL;
    char *copy = NULL;
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&copy, len + 1, 1), st, done);
    memcpy(copy, text, len);
    AX_TRY_GOTO(ax_tokenizer_new(&t), st, done);
    AX_TRY_GOTO(ax_tekken_is(name) ? ax_tekken_parse(t, name, copy, len)
                                   : parse(t, name, copy, len),
                st, done);
    *out = t;
    t = NULL;
done:
    ax_tokenizer_free(t);
    ax_free(copy);
    return st;
}

static enum ax_status load_file(struct ax_tokenizer *t, const char *path) {
    char *text;
    size_t len;
    AX_TRY(ax_read_file(path, MAX_FILE, &text, &len));
    enum ax_status st = parse(t, path, text, len);
    ax_free(text);
    return st;
}

static bool has_json(const char *dir) {
    char *path;
    if (ax_path_join(&path, dir, "tokenizer.json") != AX_OK)
        return false;
    const bool found = ax_path_exists(path);
    ax_free(path);
    return found;
}

static enum ax_status load_folder(struct ax_tokenizer *t, const char *dir) {
    char *path;
    if (!has_json(dir))
        return ax_error(AX_ERR_DATA,
                        "%s: tokenizer.json is missing in this folder. Save the tokenizer with "
                        "transformers' save_pretrained to create it",
                        dir);
    AX_TRY(ax_path_join(&path, dir, "tokenizer.json"));
    enum ax_status st = load_file(t, path);
    if (st == AX_OK)
        st = ax_hf_read_config(dir, t);
    ax_free(path);
    return st;
}

bool ax_tokenizer_is_in(const char *folder) {
    char *own = NULL;
    if (has_json(folder))
        return true;
    const bool found = ax_mistral_tokenizer_in(folder, false, &own) == AX_OK && own;
    ax_free(own);
    return found;
}

static enum ax_status load_gguf(struct ax_tokenizer **out, const char *path) {
    struct ax_gguf g;
    AX_TRY(ax_gguf_open(&g, path));
    enum ax_status st = ax_tokenizer_load_gguf(out, &g);
    ax_gguf_close(&g);
    return st;
}

static enum ax_status load_path(struct ax_tokenizer **out, const char *path) {
    struct ax_tokenizer *t;
    if (ax_gguf_is(path))
        return load_gguf(out, path);
    if (ax_sentencepiece_is(path) && !ax_path_is_dir(path))
        return ax_sentencepiece_load(out, path);
    AX_TRY(ax_tokenizer_new(&t));
    enum ax_status st = ax_path_is_dir(path) ? load_folder(t, path)
                        : ax_tekken_is(path) ? ax_tekken_load(t, path)
                                             : load_file(t, path);
    if (st != AX_OK) {
        ax_tokenizer_free(t);
        return st;
    }
    *out = t;
    return AX_OK;
}

enum ax_status ax_tokenizer_load(struct ax_tokenizer **out, const char *path) {
    char *own = NULL;
    if (ax_path_is_dir(path) && !has_json(path))
        AX_TRY(ax_mistral_tokenizer_in(path, false, &own));
    const enum ax_status st = load_path(out, own ? own : path);
    ax_free(own);
    return st;
}

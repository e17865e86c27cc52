/* tokenizer_config.json and special_tokens_map.json, as transformers 5 reads them with a
 * tokenizer.json.
 *
 * Named special tokens (bos_token, …) are strings or objects; an unknown one is added as special.
 * Objects in added_tokens_decoder override the flags of tokenizer.json. If tokenizer_config.json
 * has no added_tokens_decoder, special_tokens_map.json takes precedence. add_bos_token and
 * add_eos_token have no effect: tokenizer.json's post-processor decides. */
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "data/text/vocab/vocab_hf.h"

enum { MAX_CONFIG = 64 * 1024 * 1024 };

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

/* A token given as text or as an object; v is present. */
static enum ax_status read_token(struct ax_json v, struct ax_added_token *token) {
    const char *text;
    if (json_is_object(v.v))
        return ax_hf_read_added(v, token);
    AX_TRY(ax_json_str(v, &text));
    *token = (struct ax_added_token){
        .special = true, .content = (char *)text, .content_len = strlen(text)};
    return AX_OK;
}

/* Makes a named token an added one and special. The flags of an object count only if the token
 * is new. */
static enum ax_status ensure_special(struct ax_tokenizer *t, struct ax_json v, const char **text) {
    struct ax_added_token token;
    AX_TRY(read_token(v, &token));
    *text = token.content;
    if (token.content_len == 0)
        return AX_OK;
    const struct ax_added_token *old =
        ax_added_by_content(&t->added, token.content, token.content_len);
    if (old != NULL && old->special)
        return AX_OK;
    if (old != NULL) {
        const char *content = token.content;
        token = *old;
        token.content = (char *)content;
    }
    token.special = true;
    int32_t next = ax_tokenizer_next_id(t);
    AX_TRY(ax_tokenizer_put_added(t, &token, &next));
    return ax_added_index(&t->added);
}

/* A member of special_tokens_map.json, or if it is missing there, of tokenizer_config.json. */
static struct ax_json pick(struct ax_json map, struct ax_json config, const char *key) {
    return json_object_get(map.v, key) != NULL ? ax_json_get(map, key) : ax_json_get(config, key);
}

static enum ax_status read_named(struct ax_json map, struct ax_json config,
                                 struct ax_tokenizer *t) {
    static const char *const lists[] = {"additional_special_tokens", "extra_special_tokens"};
    const char *text = "";
    for (int i = 0; i < AX_SPECIAL_COUNT; i++) {
        struct ax_json v = pick(map, config, ax_special_name((enum ax_special)i));
        if (v.v == NULL || json_is_false(v.v))
            continue;
        AX_TRY(ensure_special(t, v, &text));
        if (*text != '\0')
            AX_TRY(ax_tokenizer_name_special(t, (enum ax_special)i, text));
    }
    for (size_t i = 0; i < 2; i++) {
        struct ax_json list = pick(map, config, lists[i]);
        for (size_t k = 0; json_is_array(list.v) && k < ax_json_size(list); k++)
            AX_TRY(ensure_special(t, ax_json_at(list, k), &text));
    }
    return AX_OK;
}

struct numbered {
    long long id;
    const char *key;
};

static int by_id(const void *a, const void *b) {
    long long x = ((const struct numbered *)a)->id, y = ((const struct numbered *)b)->id;
    return (x > y) - (x < y);
}

/* Reads {"128000": {"content": …}, …} in the order of the ids. */
static enum ax_status read_added_decoder(struct ax_json map, struct ax_tokenizer *t) {
    const char *key;
    json_t *value;
    struct numbered *entries;
    size_t n = 0;
    AX_TRY(ax_alloc(&entries, ax_json_size(map), sizeof *entries));
    json_object_foreach((json_t *)map.v, key, value) {
        entries[n++] = (struct numbered){strtoll(key, NULL, 10), key};
    }
    qsort(entries, n, sizeof *entries, by_id);
    enum ax_status st = AX_OK;
    int32_t next = ax_tokenizer_next_id(t);
    for (size_t i = 0; i < n && st == AX_OK; i++) {
        struct ax_added_token token;
        st = ax_hf_read_added(ax_json_get(map, entries[i].key), &token);
        if (st == AX_OK && token.content_len > 0)
            st = ax_tokenizer_put_added(t, &token, &next);
    }
    ax_free(entries);
    AX_TRY(st);
    return ax_added_index(&t->added);
}

/* Parses dir/name; doc->root stays NULL if there is no such file. */
static enum ax_status load_optional(struct ax_json_doc *doc, const char *dir, const char *name) {
    char *path;
    *doc = (struct ax_json_doc){0};
    AX_TRY(ax_path_join(&path, dir, name));
    enum ax_status st = ax_path_exists(path) ? ax_json_load(doc, path, MAX_CONFIG) : AX_OK;
    ax_free(path);
    return st;
}

enum ax_status ax_hf_read_config(const char *dir, struct ax_tokenizer *t) {
    struct ax_json_doc config = {0}, map = {0};
    enum ax_status st;
    AX_TRY_GOTO(load_optional(&config, dir, "tokenizer_config.json"), st, done);
    struct ax_json decoder = ax_json_get(ax_json_root(&config), "added_tokens_decoder");
    AX_TRY_GOTO(read_added_decoder(decoder, t), st, done);
    if (decoder.v == NULL)
        AX_TRY_GOTO(load_optional(&map, dir, "special_tokens_map.json"), st, done);
    st = read_named(ax_json_root(&map), ax_json_root(&config), t);
done:
    ax_json_free(&map);
    ax_json_free(&config);
    return st;
}

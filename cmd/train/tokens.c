/* Adds the config's tokens to the tokenizer files, so that users of the trained model get the ids
 * it was trained with. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/train/setup.h"

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for the tokenizer's files");
}

/* Finds a token by id in "added_tokens" (a list in tokenizer.json) or "added_tokens_decoder" (an
 * object by id in tokenizer_config.json); NULL if there is none. */
static json_t *find_token(json_t *root, int64_t id) {
    json_t *list = json_object_get(root, "added_tokens"), *v;
    char key[32];
    size_t i;
    json_array_foreach(list, i, v) {
        if (json_integer_value(json_object_get(v, "id")) == id)
            return v;
    }
    snprintf(key, sizeof key, "%lld", (long long)id);
    return json_object_get(json_object_get(root, "added_tokens_decoder"), key);
}

static enum ax_status add_token(const struct ax_train_setup *s, json_t *root, const char *text,
                                bool special) {
    json_t *list = json_object_get(root, "added_tokens");
    json_t *decoder = json_object_get(root, "added_tokens_decoder");
    const int32_t id = ax_tokenizer_find(s->data.tok.tokenizer, text, strlen(text));
    char key[32];
    snprintf(key, sizeof key, "%d", id);
    if (id == AX_NO_TOKEN || find_token(root, id) || (!list && !decoder))
        return AX_OK;
    json_t *v = json_pack("{ss sb sb sb sb sb}", "content", text, "single_word", 0, "lstrip", 0,
                          "rstrip", 0, "normalized", !special, "special", special);
    if (list && json_object_set_new(v, "id", json_integer(id)) != 0)
        return no_memory();
    const int failed = list ? json_array_append_new(list, v) : json_object_set_new(decoder, key, v);
    return failed ? no_memory() : AX_OK;
}

static enum ax_status add_tokens(const struct ax_train_setup *s, json_t *root,
                                 const struct ax_yaml_node *list, bool special) {
    const struct ax_yaml_node *v;
    for (size_t i = 0; (v = ax_config_element(list, i)) != NULL; i++)
        AX_TRY(add_token(s, root, v->text, special));
    return AX_OK;
}

/* The model's vocabulary may contain the old text as well. */
static enum ax_status rename_in_vocabulary(json_t *root, int64_t id, const char *text) {
    json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab"), *v;
    const char *key, *old = NULL;
    json_object_foreach(vocab, key, v) {
        if (json_integer_value(v) == id)
            old = key;
    }
    if (!old || strcmp(old, text) == 0)
        return AX_OK;
    json_object_del(vocab, old);
    return json_object_set_new(vocab, text, json_integer(id)) ? no_memory() : AX_OK;
}

static enum ax_status rename_tokens(const struct ax_train_setup *s, json_t *root) {
    const struct ax_yaml_node *map = s->data.tok.keys.renamed;
    for (size_t i = 0; map && i < map->n; i++) {
        const int64_t id = strtoll(map->entries[i].key, NULL, 10);
        const char *text = map->entries[i].value->text;
        json_t *v = find_token(root, id);
        if (v && json_object_set_new(v, "content", json_string(text)) != 0)
            return no_memory();
        AX_TRY(rename_in_vocabulary(root, id, text));
    }
    return AX_OK;
}

enum ax_status ax_train_edit_tokens(const struct ax_train_setup *s, json_t *root) {
    static const enum ax_special which[] = {AX_BOS, AX_EOS, AX_PAD, AX_UNK};
    const struct ax_token_keys *k = &s->data.tok.keys;
    AX_TRY(rename_tokens(s, root));
    for (size_t i = 0; i < sizeof which / sizeof *which; i++)
        if (k->special[which[i]])
            AX_TRY(add_token(s, root, k->special[which[i]], true));
    AX_TRY(add_tokens(s, root, k->more, true));
    return add_tokens(s, root, k->added, false);
}

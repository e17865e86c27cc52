/* The special tokens of a model folder, where transformers looks for them. */
#include <string.h>

#include "base/io.h"
#include "base/text/json.h"
#include "data/text/template/template.h"

#define CONFIG_MAX ((size_t)64 << 20)

/* Opens DIR/name as JSON; an absent file gives doc->root = NULL. */
static enum ax_status load_json(struct ax_json_doc *doc, const char *dir, const char *name) {
    char *path;
    *doc = (struct ax_json_doc){0};
    AX_TRY(ax_path_join(&path, dir, name));
    enum ax_status st = ax_path_exists(path) ? ax_json_load(doc, path, CONFIG_MAX) : AX_OK;
    ax_free(path);
    return st;
}

static const char *const standard_tokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                              "pad_token", "cls_token", "mask_token"};

static bool is_token_name(const char *key) {
    size_t n = strlen(key);
    return n > 6 && strcmp(key + n - 6, "_token") == 0;
}

/* Adds a token given as a string or as {"content": "…"}. null removes it. Other values are
 * ignored (add_bos_token is a flag). */
static enum ax_status put_token(json_t *tokens, const char *key, const json_t *v) {
    const json_t *content = json_is_object(v) ? json_object_get(v, "content") : v;
    if (json_is_null(v)) {
        json_object_set_new(tokens, key, json_null());
        return AX_OK;
    }
    if (!json_is_string(content))
        return AX_OK;
    json_t *text = json_stringn(json_string_value(content), json_string_length(content));
    if (json_object_set_new(tokens, key, text) != 0)
        return ax_error(AX_ERR_NOMEM, "out of memory for special tokens");
    return AX_OK;
}

/* Adds all members of an object that name tokens; `all`: those with any name. */
static enum ax_status put_tokens(json_t *tokens, const json_t *object, bool all) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)object, key, v) {
        if (all || is_token_name(key))
            AX_TRY(put_token(tokens, key, v));
    }
    return AX_OK;
}

/* What the tokenizer classes of transformers set if the config does not. */
static const struct {
    const char *class_prefix, *bos, *eos, *unk, *pad;
} class_defaults[] = {
    {"LlamaTokenizer", "<s>", "</s>", "<unk>", NULL},
    {"GemmaTokenizer", "<bos>", "<eos>", "<unk>", "<pad>"},
    {"GPT2Tokenizer", "<|endoftext|>", "<|endoftext|>", "<|endoftext|>", NULL},
    {"Qwen2Tokenizer", NULL, "<|endoftext|>", "<|endoftext|>", "<|endoftext|>"},
};

static enum ax_status put_class_defaults(json_t *tokens, const char *class_name) {
    for (size_t i = 0; i < sizeof class_defaults / sizeof class_defaults[0]; i++) {
        size_t n = strlen(class_defaults[i].class_prefix);
        if (strncmp(class_name, class_defaults[i].class_prefix, n) != 0 ||
            (class_name[n] != '\0' && strcmp(class_name + n, "Fast") != 0)) {
            continue;
        }
        const char *values[] = {class_defaults[i].bos, class_defaults[i].eos, class_defaults[i].unk,
                                NULL, class_defaults[i].pad};
        for (size_t k = 0; k < 5; k++) {
            if (values[k] != NULL && json_object_get(tokens, standard_tokens[k]) == NULL &&
                json_object_set_new(tokens, standard_tokens[k], json_string(values[k])) != 0) {
                return ax_error(AX_ERR_NOMEM, "out of memory for special tokens");
            }
        }
    }
    return AX_OK;
}

static enum ax_status read_tokens(json_t *tokens, const json_t *config, const json_t *map) {
    AX_TRY(put_tokens(tokens, config, false));
    static const char *const named[] = {"extra_special_tokens", "model_specific_special_tokens"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *more = json_object_get(config, named[i]);
        if (json_is_object(more))
            AX_TRY(put_tokens(tokens, more, true));
    }
    if (json_object_get(config, "added_tokens_decoder") == NULL && map != NULL)
        AX_TRY(put_tokens(tokens, map, false));
    const char *class_name = json_string_value(json_object_get(config, "tokenizer_class"));
    AX_TRY(put_class_defaults(tokens, class_name != NULL ? class_name : ""));
    const char *key;
    json_t *v;
    void *next;
    json_object_foreach_safe(tokens, next, key, v) {
        if (json_is_null(v))
            json_object_del(tokens, key);
    }
    return AX_OK;
}

enum ax_status ax_template_folder_tokens(json_t **out, const char *dir) {
    struct ax_json_doc config = {0}, map = {0};
    enum ax_status st;
    json_t *tokens = json_object();
    if (tokens == NULL)
        return ax_error(AX_ERR_NOMEM, "out of memory for special tokens");
    AX_TRY_GOTO(load_json(&config, dir, "tokenizer_config.json"), st, done);
    AX_TRY_GOTO(load_json(&map, dir, "special_tokens_map.json"), st, done);
    if (config.root != NULL || map.root != NULL)
        AX_TRY_GOTO(read_tokens(tokens, config.root, map.root), st, done);
    *out = tokens;
    tokens = NULL;
done:
    json_decref(tokens);
    ax_json_free(&config);
    ax_json_free(&map);
    return st;
}

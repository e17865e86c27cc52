/* The chat template and the special tokens of a model folder, where transformers looks for them. */
#include <string.h>

#include "base/io.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/template/template.h"

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

/* ---- the template ---- */

/* Compiles DIR/name where it is a file; *out stays NULL where it is absent. */
static enum ax_status from_file(struct ax_template **out, const char *dir, const char *name) {
    char *path, *text = NULL;
    size_t len;
    enum ax_status st = AX_OK;
    AX_TRY(ax_path_join(&path, dir, name));
    if (ax_path_exists(path)) {
        AX_TRY_GOTO(ax_read_file(path, AX_TEMPLATE_MAX_SOURCE, &text, &len), st, done);
        AX_TRY_GOTO(ax_template_compile(out, path, text, len), st, done);
    }
done:
    ax_free(text);
    ax_free(path);
    return st;
}

/* additional_chat_templates/NAME.jinja */
static enum ax_status from_additional(struct ax_template **out, const char *dir, const char *name) {
    char *file;
    if (!ax_is_plain_name(name)) {
        return AX_OK;
    }
    AX_TRY(ax_sprintf(&file, "additional_chat_templates/%s.jinja", name));
    enum ax_status st = from_file(out, dir, file);
    ax_free(file);
    return st;
}

static enum ax_status compile_json(struct ax_template **out, struct ax_json v) {
    char *name;
    if (!json_is_string(v.v)) {
        return ax_json_error(v, "expected a template (a string)");
    }
    AX_TRY(ax_sprintf(&name, "%s: %s", v.doc, v.path));
    enum ax_status st =
        ax_template_compile(out, name, json_string_value(v.v), json_string_length(v.v));
    ax_free(name);
    return st;
}

/* The member chat_template of a config: a string, {name: template}, or a list of {name, template}.
 */
static enum ax_status from_config(struct ax_template **out, struct ax_json v, const char *name) {
    if (v.v == NULL) {
        return AX_OK;
    }
    if (!json_is_array(v.v) && !json_is_object(v.v)) {
        return strcmp(name, "default") == 0 ? compile_json(out, v) : AX_OK;
    }
    if (json_is_object(v.v)) {
        struct ax_json member = ax_json_get(v, name);
        return member.v != NULL ? compile_json(out, member) : AX_OK;
    }
    for (size_t i = 0; i < ax_json_size(v); i++) {
        struct ax_json entry = ax_json_at(v, i);
        const char *entry_name;
        AX_TRY(ax_json_str(ax_json_get(entry, "name"), &entry_name));
        if (strcmp(entry_name, name) == 0) {
            AX_TRY(compile_json(out, ax_json_get(entry, "template")));
            return AX_OK;
        }
    }
    return AX_OK;
}

/* Looks for one name through all the places of one rank: files beside the tokenizer, then configs.
 */
static enum ax_status find_in_files(struct ax_template **out, const char *dir, const char *name) {
    AX_TRY(from_additional(out, dir, name));
    if (*out == NULL && strcmp(name, "default") == 0) {
        AX_TRY(from_file(out, dir, "chat_template.jinja"));
    }
    return AX_OK;
}

static enum ax_status find_in_config(struct ax_template **out, const char *dir, const char *file,
                                     const char *name) {
    struct ax_json_doc doc;
    AX_TRY(load_json(&doc, dir, file));
    enum ax_status st = AX_OK;
    if (doc.root != NULL) {
        st = from_config(out, ax_json_get(ax_json_root(&doc), "chat_template"), name);
    }
    ax_json_free(&doc);
    return st;
}

enum ax_status ax_template_from_folder(struct ax_template **out, const char *dir, const char *name,
                                       bool with_tools) {
    const char *names[2] = {name != NULL ? name : with_tools ? "tool_use" : "default", "default"};
    size_t n = name == NULL && with_tools ? 2 : 1;
    struct ax_template *t = NULL;
    for (size_t i = 0; i < n && t == NULL; i++) {
        AX_TRY(find_in_files(&t, dir, names[i]));
    }
    static const char *const configs[] = {"tokenizer_config.json", "chat_template.json"};
    for (size_t c = 0; c < 2; c++) {
        for (size_t i = 0; i < n && t == NULL; i++) {
            AX_TRY(find_in_config(&t, dir, configs[c], names[i]));
        }
    }
    if (t == NULL) {
        return ax_error(AX_ERR_DATA,
                        "%s: no chat template called %s: neither chat_template.jinja nor "
                        "chat_template in tokenizer_config.json has it; set chat_template",
                        dir, names[n - 1]);
    }
    *out = t;
    return AX_OK;
}

/* ---- special tokens ---- */

static const char *const standard_tokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                              "pad_token", "cls_token", "mask_token"};

static bool is_token_name(const char *key) {
    size_t n = strlen(key);
    return n > 6 && strcmp(key + n - 6, "_token") == 0;
}

/* Adds a token given as a string or as {"content": "…"}; null takes it away; others are ignored
 * (add_bos_token is a flag). */
static enum ax_status put_token(json_t *tokens, const char *key, const json_t *v) {
    const json_t *content = json_is_object(v) ? json_object_get(v, "content") : v;
    if (json_is_null(v)) {
        json_object_set_new(tokens, key, json_null());
        return AX_OK;
    }
    if (!json_is_string(content)) {
        return AX_OK;
    }
    json_t *text = json_stringn(json_string_value(content), json_string_length(content));
    if (json_object_set_new(tokens, key, text) != 0) {
        return ax_error(AX_ERR_NOMEM, "out of memory for special tokens");
    }
    return AX_OK;
}

/* All members of an object that name tokens; `all`: whatever they are called. */
static enum ax_status put_tokens(json_t *tokens, const json_t *object, bool all) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)object, key, v) {
        if (all || is_token_name(key)) {
            AX_TRY(put_token(tokens, key, v));
        }
    }
    return AX_OK;
}

/* What the tokenizer classes of transformers set when the config is silent. */
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
        if (json_is_object(more)) {
            AX_TRY(put_tokens(tokens, more, true));
        }
    }
    if (json_object_get(config, "added_tokens_decoder") == NULL && map != NULL) {
        AX_TRY(put_tokens(tokens, map, false));
    }
    const char *class_name = json_string_value(json_object_get(config, "tokenizer_class"));
    AX_TRY(put_class_defaults(tokens, class_name != NULL ? class_name : ""));
    const char *key;
    json_t *v;
    void *next;
    json_object_foreach_safe(tokens, next, key, v) {
        if (json_is_null(v)) {
            json_object_del(tokens, key);
        }
    }
    return AX_OK;
}

enum ax_status ax_template_folder_tokens(json_t **out, const char *dir) {
    struct ax_json_doc config = {0}, map = {0};
    enum ax_status st;
    json_t *tokens = json_object();
    if (tokens == NULL) {
        return ax_error(AX_ERR_NOMEM, "out of memory for special tokens");
    }
    AX_TRY_GOTO(load_json(&config, dir, "tokenizer_config.json"), st, done);
    AX_TRY_GOTO(load_json(&map, dir, "special_tokens_map.json"), st, done);
    if (config.root != NULL || map.root != NULL) {
        AX_TRY_GOTO(read_tokens(tokens, config.root, map.root), st, done);
    }
    *out = tokens;
    tokens = NULL;
done:
    json_decref(tokens);
    ax_json_free(&config);
    ax_json_free(&map);
    return st;
}

/* The tokenizer of a run: the model's own, with the tokens that the config adds or renames. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash/hash.h"
#include "base/io.h"
#include "model/convert/base_model.h"
#include "cmd/train/data/data.h"
#include "data/text/vocab/mistral_files.h"

#define MAX_FILE ((size_t)1 << 30)

/* ---- the files' part of the cache key ---- */

struct key {
    uint64_t high, low;
};

static void mix(struct key *k, const void *data, size_t n) {
    k->high = ax_hash64(data, n, k->high);
    k->low = ax_hash64(data, n, k->low + 0x9E3779B97F4A7C15U);
}

static void mix_text(struct key *k, const char *text) {
    mix(k, text, strlen(text) + 1);
}

static enum ax_status mix_folder(struct key *k, const char *folder) {
    static const char *const names[] = {
        "tokenizer.json",       "tokenizer_config.json", "special_tokens_map.json",
        "config.json",          "added_tokens.json",     "tekken.json",
        "tokenizer.model.v7m1", "tokenizer.model.v7",    "tokenizer.model.v3",
        "tokenizer.model.v2",   "tokenizer.model.v1",    "tokenizer.model",
        "tiktoken.model"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path;
        char *text;
        size_t n;
        AX_TRY(ax_path_join(&path, folder, names[i]));
        enum ax_status st = AX_OK;
        if (ax_path_exists(path) && (st = ax_read_file(path, MAX_FILE, &text, &n)) == AX_OK) {
            mix_text(k, names[i]);
            mix(k, text, n);
            ax_free(text);
        }
        ax_free(path);
        AX_TRY(st);
    }
    return AX_OK;
}

/* A GGUF file also contains the weights, so its date and size are hashed instead of its content. */
static enum ax_status mix_file(struct key *k, const char *path) {
    struct stat info;
    if (stat(path, &info) != 0)
        return ax_error(AX_ERR_IO, "%s: cannot read its status: %m", path);
    const int64_t facts[] = {(int64_t)info.st_size, (int64_t)info.st_mtim.tv_sec,
                             (int64_t)info.st_mtim.tv_nsec};
    mix_text(k, path);
    mix(k, facts, sizeof facts);
    return AX_OK;
}

/* ---- the config's part of the cache key ---- */

static enum ax_status set_special_tokens(struct ax_setup_tokenizer *t, struct key *k) {
    static const enum ax_special which[] = {AX_BOS, AX_EOS, AX_PAD, AX_UNK};
    for (size_t i = 0; i < 4; i++) {
        const char *name = ax_special_name(which[i]);
        const char *text = t->keys.special[which[i]];
        if (!text)
            continue;
        AX_TRY(ax_tokenizer_set_special(t->tokenizer, which[i], text));
        mix_text(k, name);
        mix_text(k, text);
    }
    return AX_OK;
}

/* `key` is the list's. */
static enum ax_status add_tokens(struct ax_setup_tokenizer *t, const struct ax_config *cfg,
                                 const char *key, const struct ax_yaml_node *list, struct key *k) {
    const struct ax_yaml_node *v;
    for (size_t i = 0; (v = ax_config_element(list, i)) != NULL; i++) {
        const char *text = v->text;
        int32_t id;
        if (!text || !*text)
            return ax_config_error(cfg, key, "expected the text of a token at index %zu", i);
        AX_TRY(ax_tokenizer_add(t->tokenizer, text, list == t->keys.more, &id));
        mix_text(k, key);
        mix_text(k, text);
    }
    return AX_OK;
}

static enum ax_status rename_tokens(struct ax_setup_tokenizer *t, const struct ax_config *cfg,
                                    struct key *k) {
    const struct ax_yaml_node *map = t->keys.renamed;
    for (size_t i = 0; map && i < map->n; i++) {
        const char *name = map->entries[i].key;
        const char *text = map->entries[i].value->text;
        char *end;
        const long id = strtol(name, &end, 10);
        if (*end != '\0' || end == name || id < 0 || id > INT32_MAX || !text)
            return ax_config_error(cfg, "added_tokens_overrides",
                                   "expected token ids and texts, got \"%s\"", name);
        AX_TRY(ax_tokenizer_rename(t->tokenizer, (int32_t)id, text));
        mix_text(k, name);
        mix_text(k, text);
    }
    return AX_OK;
}

/* ---- for templates ---- */

static enum ax_status collect_tokens(struct ax_setup_tokenizer *t) {
    if (t->is_gguf) {
        t->tokens = json_object();
        if (!t->tokens)
            return ax_error(AX_ERR_NOMEM, "out of memory for the special tokens");
    } else {
        AX_TRY(ax_template_folder_tokens(&t->tokens, t->path));
    }
    for (int i = 0; i < AX_SPECIAL_COUNT; i++) {
        const char *text = ax_tokenizer_special(t->tokenizer, (enum ax_special)i);
        if (text && json_object_set_new(t->tokens, ax_special_name((enum ax_special)i),
                                        json_string(text)) != 0)
            return ax_error(AX_ERR_NOMEM, "out of memory for the special tokens");
    }
    return AX_OK;
}

/* A tokenizer of Mistral's own, if the configuration asks for it, comes before a tokenizer.json. */
static enum ax_status load(struct ax_setup_tokenizer *t, const struct ax_config *cfg) {
    if (ax_config_holds(cfg, "tokenizer_use_mistral_common") && !t->is_gguf)
        AX_TRY(ax_mistral_tokenizer_in(t->path, true, &t->own));
    return ax_tokenizer_load(&t->tokenizer, t->own ? t->own : t->path);
}

/* Nothing of a configuration's could be saved in a tokenizer of Mistral's own. */
static enum ax_status check_unchanged(const struct ax_setup_tokenizer *t, size_t size) {
    char *hf;
    AX_TRY(ax_path_join(&hf, t->path, "tokenizer.json"));
    const bool saved = t->is_gguf || ax_path_exists(hf);
    ax_free(hf);
    if (saved ||
        (ax_tokenizer_size(t->tokenizer) == size && !(t->keys.renamed && t->keys.renamed->n)))
        return AX_OK;
    return ax_error(
        AX_ERR_UNSUPPORTED,
        "%s: Mistral's own tokenizers cannot have tokens added or renamed: remove them from the "
        "configuration, or use a model with tokenizer.json",
        t->path);
}

static void find_ids(struct ax_setup_tokenizer *t) {
    t->bos = ax_tokenizer_special_id(t->tokenizer, AX_BOS);
    t->eos = ax_tokenizer_special_id(t->tokenizer, AX_EOS);
    t->pad = ax_tokenizer_pad_id(t->tokenizer);
}

/* Ids from `size` on are the config's. */
static size_t count_new(const struct ax_setup_tokenizer *t, size_t size) {
    const bool only_pads = t->keys.special[AX_PAD] && (size_t)t->pad >= size && t->pad != t->eos;
    return ax_tokenizer_size(t->tokenizer) - size - only_pads;
}

static enum ax_status open_tokenizer(struct ax_setup_tokenizer *t, const struct ax_config *cfg) {
    AX_FILL(cfg, "", struct ax_token_keys, &t->keys);
    const char *name = t->keys.folder ? t->keys.folder : ax_config_str(cfg, "base_model");
    struct ax_base_model m;
    struct key k = {1, 2};
    AX_TRY(ax_base_model_find_tokenizer(&m, name, ax_config_str(cfg, "model_revision")));
    t->path = m.path; /* owned by t from here on */
    t->is_gguf = m.kind == AX_BASE_MODEL_GGUF;
    t->named_mistral = strcasestr(name, "mistral") != NULL;
    AX_TRY(load(t, cfg));
    const size_t size = ax_tokenizer_size(t->tokenizer);
    AX_TRY(t->is_gguf ? mix_file(&k, t->path) : mix_folder(&k, t->path));
    if (t->own)
        mix_text(&k, t->own);
    AX_TRY(rename_tokens(t, cfg, &k));
    AX_TRY(set_special_tokens(t, &k));
    AX_TRY(add_tokens(t, cfg, "special_tokens.additional_special_tokens", t->keys.more, &k));
    AX_TRY(add_tokens(t, cfg, "tokens", t->keys.added, &k));
    AX_TRY(check_unchanged(t, size));
    AX_TRY(collect_tokens(t));
    find_ids(t);
    t->n_new = count_new(t, size);
    snprintf(t->key, sizeof t->key, "%016llx%016llx", (unsigned long long)k.high,
             (unsigned long long)k.low);
    return AX_OK;
}

enum ax_status ax_setup_tokenizer_open(struct ax_setup_tokenizer *t, const struct ax_config *cfg) {
    *t = (struct ax_setup_tokenizer){0};
    const enum ax_status st = open_tokenizer(t, cfg);
    if (st != AX_OK)
        ax_setup_tokenizer_close(t);
    return st;
}

enum ax_status ax_setup_tokenizer_of(struct ax_setup_tokenizer *t, const char *folder) {
    *t = (struct ax_setup_tokenizer){.keeps_template = true};
    enum ax_status st = ax_strdup(&t->path, folder);
    if (st == AX_OK)
        st = ax_tokenizer_load(&t->tokenizer, folder);
    if (st == AX_OK)
        st = collect_tokens(t);
    if (st == AX_OK)
        find_ids(t);
    else
        ax_setup_tokenizer_close(t);
    return st;
}

void ax_setup_tokenizer_close(struct ax_setup_tokenizer *t) {
    ax_tokenizer_free(t->tokenizer);
    json_decref(t->tokens);
    ax_free(t->own);
    ax_free(t->path);
    *t = (struct ax_setup_tokenizer){0};
}

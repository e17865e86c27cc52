/* A PEFT folder, read and written. */
#include "ckpt/hf/peft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dir.h"
#include "ckpt/hf/hf.h"

#define MAX_CONFIG (16u << 20)

bool ax_peft_is_folder(const char *dir) {
    return ax_path_has(dir, AX_PEFT_CONFIG);
}

/* PEFT writes an adapter that has a name of its own into a folder called so, and a run that was stopped has only
 * checkpoints. */
static enum ax_status refuse_absent(const char *dir) {
    char inside[NAME_MAX + 1];
    AX_TRY(ax_dir_with(dir, AX_PEFT_CONFIG, inside));
    if (inside[0])
        return ax_error(AX_ERR_DATA, "%s: no adapter: %s is missing, but %s/%s has one: give that",
                        dir, AX_PEFT_CONFIG, dir, inside);
    return ax_error(AX_ERR_DATA,
                    "%s: no adapter: %s is missing. Give a folder written by training or PEFT.",
                    dir, AX_PEFT_CONFIG);
}

static enum ax_status load_config(struct ax_peft *p) {
    char *path;
    struct ax_json_doc doc = {0};
    AX_TRY(ax_path_join(&path, p->dir, AX_PEFT_CONFIG));
    enum ax_status st;
    if (!ax_path_exists(path))
        AX_TRY_GOTO(refuse_absent(p->dir), st, done);
    AX_TRY_GOTO(ax_json_load(&doc, path, MAX_CONFIG), st, done);
    AX_TRY_GOTO(ax_peft_config_parse(&p->config, ax_json_root(&doc)), st, done);
done:
    ax_json_free(&doc);
    ax_free(path);
    return st;
}

static enum ax_status open_weights(struct ax_peft *p) {
    char *path, *pickle = NULL;
    AX_TRY(ax_path_join(&path, p->dir, AX_PEFT_WEIGHTS));
    enum ax_status st;
    AX_TRY_GOTO(ax_path_join(&pickle, p->dir, "adapter_model.bin"), st, done);
    if (!ax_path_exists(path) && ax_path_exists(pickle))
        AX_TRY_GOTO(ax_error(AX_ERR_DATA,
                             "%s: this format can execute code and is not supported. Save the "
                             "adapter again as safetensors (PEFT: save_pretrained).",
                             pickle),
                    st, done);
    if (!ax_path_exists(path))
        AX_TRY_GOTO(ax_error(AX_ERR_DATA, "%s: no weights: %s is missing", p->dir, AX_PEFT_WEIGHTS),
                    st, done);
    AX_TRY_GOTO(ax_safetensors_open(&p->weights, path), st, done);
done:
    ax_free(path);
    ax_free(pickle);
    return st;
}

/* Gives modules of a text model within another their names in a model of its own. */
static void strip_names(struct ax_peft *p) {
    const size_t prefix = strlen(AX_PEFT_PREFIX);
    for (int i = 0; i < p->weights.n; i++) {
        char *name = p->weights.entries[i].name;
        const char *module = NULL, *own = name;
        if (strncmp(name, AX_PEFT_PREFIX, prefix) == 0)
            own = ax_wrapping_strip(name + prefix, &module);
        if (!module)
            continue;
        p->config.within = module;
        memmove(name + prefix, own, strlen(own) + 1);
    }
    if (p->config.within)
        ax_st_sort(p->weights.entries, p->weights.n);
}

/* True for what follows "model." in the names of Nemotron-H's modules alone. */
static bool has_folder_word(const char *rest) {
    char *end;
    static const char layers[] = "layers.", mixer[] = ".mixer.", embedding[] = "embeddings.";
    if (strncmp(rest, layers, strlen(layers)) != 0)
        return strncmp(rest, embedding, strlen(embedding)) == 0;
    (void)strtol(rest + strlen(layers), &end, 10);
    return strncmp(end, mixer, strlen(mixer)) == 0;
}

/* Gives modules of transformers the names that a folder of the model has. */
static enum ax_status name_as_folder(struct ax_peft *p) {
    static const char prefix[] = AX_PEFT_PREFIX, body[] = AX_PEFT_PREFIX "model.";
    bool any = false;
    for (int i = 0; i < p->weights.n; i++) {
        char *name = p->weights.entries[i].name, *own;
        if (strncmp(name, prefix, strlen(prefix)) == 0 && ax_hf_after_word(name + strlen(prefix)))
            p->config.folder_words = true;
        if (strncmp(name, body, strlen(body)) != 0 || !has_folder_word(name + strlen(body)))
            continue;
        AX_TRY(ax_sprintf(&own, "%sbackbone.%s", prefix, name + strlen(body)));
        ax_free(name);
        p->weights.entries[i].name = own;
        any = true;
    }
    if (any)
        ax_st_sort(p->weights.entries, p->weights.n);
    return AX_OK;
}

/* True for a module in PEFT's wrapper of one that is saved: as trained, or as it was. */
static bool is_in_wrapper(const struct ax_peft *p, const char *name) {
    static const char *const parts[] = {".modules_to_save.", ".original_module."};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *at = strstr(name, parts[i]);
        char own[512];
        const int n =
            at ? snprintf(own, sizeof own, "%.*s.%s", (int)(at - name), name, at + strlen(parts[i]))
               : -1;
        if (n > 0 && n < (int)sizeof own && ax_safetensors_find(&p->weights, own))
            return true;
    }
    return false;
}

/* Adds a module whose weight is stored as a whole to those that are saved. */
static enum ax_status note_saved(struct ax_peft *p, const char *module) {
    const char *dot = strrchr(module, '.');
    char name[96];
    snprintf(name, sizeof name, AX_PEFT_PREFIX "%s.weight", module);
    return ax_safetensors_find(&p->weights, name)
               ? ax_peft_names_add(&p->config.save, dot ? dot + 1 : module)
               : AX_OK;
}

/* Once the vocabulary has grown, PEFT writes all that is called as the embedding and the head: the modules
 * themselves, also if modules_to_save does not name them, and parts of wrappers, which it does not read. */
static enum ax_status take_grown(struct ax_peft *p) {
    struct ax_st_entry *all = p->weights.entries, **dropped;
    int n = 0, n_dropped = 0;
    AX_TRY(ax_alloc(&dropped, (size_t)p->weights.n, sizeof *dropped));
    for (int i = 0; i < p->weights.n; i++)
        if (is_in_wrapper(p, all[i].name))
            dropped[n_dropped++] = &all[i];
    for (int i = 0, k = 0; i < p->weights.n; i++) {
        if (k < n_dropped && dropped[k] == &all[i]) {
            ax_free(all[i].name);
            k++;
        } else {
            all[n++] = all[i];
        }
    }
    p->weights.n = n;
    ax_free(dropped);
    for (int i = 0; ax_hf_embeddings[i]; i++)
        AX_TRY(note_saved(p, ax_hf_embeddings[i]));
    return note_saved(p, "lm_head");
}

enum ax_status ax_peft_open(struct ax_peft *p, const char *dir) {
    *p = (struct ax_peft){0};
    enum ax_status st;
    AX_TRY_GOTO(ax_strdup(&p->dir, dir), st, fail);
    AX_TRY_GOTO(ax_folder_recover(dir), st, fail);
    AX_TRY_GOTO(load_config(p), st, fail);
    AX_TRY_GOTO(open_weights(p), st, fail);
    strip_names(p);
    AX_TRY_GOTO(name_as_folder(p), st, fail);
    AX_TRY_GOTO(take_grown(p), st, fail);
    return AX_OK;
fail:
    ax_peft_close(p);
    return st;
}

void ax_peft_close(struct ax_peft *p) {
    ax_safetensors_close(&p->weights);
    ax_peft_config_free(&p->config);
    ax_free(p->dir);
    *p = (struct ax_peft){0};
}

enum ax_status ax_peft_base(const struct ax_peft *p, char **out) {
    const char *base = p->config.base;
    if (!base || !*base)
        return ax_error(AX_ERR_DATA, "%s/%s: base_model_name_or_path is not set", p->dir,
                        AX_PEFT_CONFIG);
    return ax_peft_base_from(p->dir, base, out);
}

enum ax_status ax_peft_base_from(const char *dir, const char *base, char **out) {
    char *path;
    if (base[0] == '/')
        return ax_strdup(out, base);
    AX_TRY(ax_path_join(&path, dir, base));
    if (ax_path_exists(path)) {
        *out = path;
        return AX_OK;
    }
    ax_free(path);
    return ax_strdup(out, base);
}

enum ax_status ax_peft_write(const char *dir, const struct ax_peft_config *c, int n,
                             const struct ax_st_output *tensors) {
    return ax_hf_write(&(struct ax_hf_save){.dir = dir, .adapter = c, .n = n, .tensors = tensors});
}

#include "ckpt/hf/wrapped.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/hf/hf.h"

#define EMBEDDING "model.embed_tokens.weight"

/* As transformers' files have been: most families'; Qwen3-VL's and those of bare models; Idefics3's;
 * Qwen2-VL's, whose tower is "visual.…". */
static const struct ax_wrapping wrappings[] = {
    {"language_model.", "language_model.", "model.language_"},
    {"model.language_", "", "model.language_"},
    {"model.text_", "", "model.text_"},
    {"", "", "model.language_"},
};
#define N_WRAPPINGS (sizeof wrappings / sizeof *wrappings)

bool ax_config_is_wrapper(const json_t *config) {
    return json_is_object(json_object_get(config, "text_config")) ||
           json_is_object(json_object_get(config, "vision_config"));
}

json_t *ax_config_text(json_t *config) {
    json_t *text = json_object_get(config, "text_config");
    return json_is_object(text) ? text : config;
}

static bool begins(const char *s, const char *with) {
    return strncmp(s, with, strlen(with)) == 0;
}

/* The part of a name that follows the prefix of the text model; NULL: it is another's. */
static const char *text_name(const struct ax_wrapping *w, const char *name) {
    const char *body = name + strlen(w->body), *head = name + strlen(w->head);
    if (begins(name, w->body) && begins(body, "model."))
        return body;
    return begins(name, w->head) && begins(head, "lm_head.") ? head : NULL;
}

enum ax_status ax_wrapping_name(const struct ax_wrapping *w, const char *name, char **out) {
    return ax_sprintf(out, "%s%s", begins(name, "model.") ? w->body : w->head, name);
}

const char *ax_wrapping_strip(const char *name, const char **module) {
    *module = NULL;
    for (size_t i = 0; i + 1 < N_WRAPPINGS; i++) {
        const char *own = text_name(&wrappings[i], name);
        if (!own || own == name)
            continue;
        *module = wrappings[i].module;
        return own;
    }
    return name;
}

static const struct ax_wrapping *find_names(const struct ax_hf *hf) {
    for (size_t i = 0; i < N_WRAPPINGS; i++)
        for (int k = 0; k < ax_hf_count(hf); k++) {
            const char *name = ax_hf_at(hf, k)->name, *own = text_name(&wrappings[i], name);
            if (own && strcmp(own, EMBEDDING) == 0)
                return &wrappings[i];
        }
    return NULL;
}

static int by_name(const void *x, const void *y) {
    return strcmp(((const struct ax_st_entry *)x)->name, ((const struct ax_st_entry *)y)->name);
}

static enum ax_status fill(struct ax_hf_wrapped *w, const struct ax_hf *hf) {
    const size_t n = (size_t)ax_hf_count(hf);
    w->names = find_names(hf);
    if (!w->names)
        return ax_error(AX_ERR_DATA,
                        "%s: config.json is of a model that contains a text model, but the "
                        "weights have no tensor that ends in " EMBEDDING " where one would be",
                        hf->dir);
    AX_TRY(ax_alloc(&w->text, n, sizeof *w->text));
    AX_TRY(ax_alloc(&w->others, n, sizeof *w->others));
    for (size_t i = 0; i < n; i++) {
        const struct ax_st_entry *e = ax_hf_at(hf, (int)i);
        const char *own = text_name(w->names, e->name);
        if (!own) {
            w->others[w->n_others++] = *e;
            continue;
        }
        w->text[w->n_text] = *e;
        w->text[w->n_text++].name = (char *)(uintptr_t)own;
    }
    qsort(w->text, (size_t)w->n_text, sizeof *w->text, by_name);
    return AX_OK;
}

enum ax_status ax_hf_wrapped_open(struct ax_hf *hf) {
    struct ax_hf_wrapped *w;
    AX_TRY(ax_alloc(&w, 1, sizeof *w));
    const enum ax_status st = fill(w, hf);
    if (st != AX_OK) {
        ax_hf_wrapped_close(w);
        return st;
    }
    hf->wrapped = w;
    hf->n_entries = w->n_text;
    hf->entries = w->text;
    return AX_OK;
}

void ax_hf_wrapped_close(struct ax_hf_wrapped *w) {
    if (!w)
        return;
    ax_free(w->text);
    ax_free(w->others);
    ax_free(w);
}

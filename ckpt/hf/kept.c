#include "ckpt/hf/kept.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/hf/peft.h"

int ax_hf_layer_of(const char *name) {
    static const char model[] = "model.", start[] = "layers.";
    char *end;
    if (strncmp(name, model, strlen(model)) == 0)
        name += strlen(model);
    if (strncmp(name, start, strlen(start)) != 0)
        return -1;
    const long layer = strtol(name + strlen(start), &end, 10);
    return *end == '.' && layer >= 0 && layer < INT32_MAX ? (int)layer : -1;
}

static enum ax_status fill(void *ctx, int64_t first, int64_t n, void *out) {
    const struct ax_st_entry *e = ctx;
    return ax_st_read(e, first, n, e->dtype, out);
}

static bool is_kept(const struct ax_hf_save *save, const struct ax_st_entry *e) {
    const int layer = ax_hf_layer_of(e->name);
    return layer >= save->kept_first && layer < save->kept_end;
}

/* Of a team, the rank that leads writes it. */
static void add(struct ax_hf_kept *k, struct ax_hf_save *save, const struct ax_st_entry *e) {
    struct ax_st_output *t = &k->tensors[save->n++];
    *t = (struct ax_st_output){.name = e->name, .dtype = e->dtype, .ndim = e->ndim};
    memcpy(t->shape, e->shape, sizeof t->shape);
    if (ax_team_leads(save->team)) {
        t->fill = fill;
        t->ctx = (struct ax_st_entry *)(uintptr_t)e;
    }
}

/* Gives the save's own list of tensors room for `more`. */
static enum ax_status copy_list(struct ax_hf_kept *k, struct ax_hf_save *save, int more) {
    AX_TRY(ax_alloc(&k->tensors, (size_t)(save->n + more), sizeof *k->tensors));
    memcpy(k->tensors, save->tensors, (size_t)save->n * sizeof *k->tensors);
    save->tensors = k->tensors;
    return AX_OK;
}

static enum ax_status rename_all(struct ax_hf_kept *k, const struct ax_hf_save *save,
                                 const struct ax_wrapping *names) {
    AX_TRY(ax_alloc(&k->names, (size_t)save->n, sizeof *k->names));
    for (int i = 0; i < save->n; i++) {
        AX_TRY(ax_wrapping_name(names, save->tensors[i].name, &k->names[i]));
        k->tensors[i].name = k->names[i];
        k->n_names++;
    }
    return AX_OK;
}

static enum ax_status open_base(struct ax_hf_kept *k, struct ax_hf_save *save) {
    AX_TRY(ax_hf_open(&k->hf, save->base_dir));
    const struct ax_hf_wrapped *w = k->hf.wrapped;
    const int count = ax_hf_count(&k->hf);
    AX_TRY(copy_list(k, save, count + (w ? w->n_others : 0)));
    for (int i = 0; i < count; i++)
        if (is_kept(save, ax_hf_at(&k->hf, i)))
            add(k, save, ax_hf_at(&k->hf, i));
    if (!w)
        return AX_OK;
    AX_TRY(rename_all(k, save, w->names));
    for (int i = 0; i < w->n_others; i++)
        add(k, save, &w->others[i]);
    return AX_OK;
}

static enum ax_status name_adapter(struct ax_hf_kept *k, struct ax_hf_save *save,
                                   const char *module) {
    static const char prefix[] = AX_PEFT_PREFIX, body[] = AX_PEFT_PREFIX "model.";
    AX_TRY(copy_list(k, save, 0));
    AX_TRY(ax_alloc(&k->names, (size_t)save->n, sizeof *k->names));
    for (int i = 0; i < save->n; i++) {
        const char *name = save->tensors[i].name;
        if (strncmp(name, body, strlen(body)) != 0)
            continue;
        AX_TRY(ax_sprintf(&k->names[i], "%s%s%s", prefix, module, name + strlen(prefix)));
        k->tensors[i].name = k->names[i];
        k->n_names = i + 1;
    }
    return AX_OK;
}

enum ax_status ax_hf_kept_open(struct ax_hf_kept *k, struct ax_hf_save *save) {
    bool wrapped;
    *k = (struct ax_hf_kept){0};
    if (save->adapter)
        return save->adapter->within ? name_adapter(k, save, save->adapter->within) : AX_OK;
    if (!save->base_dir || save->gguf)
        return AX_OK;
    AX_TRY(ax_hf_is_wrapper(save->base_dir, &wrapped));
    return wrapped || save->kept_first < save->kept_end ? open_base(k, save) : AX_OK;
}

void ax_hf_kept_close(struct ax_hf_kept *k) {
    for (int i = 0; i < k->n_names; i++)
        ax_free(k->names[i]);
    ax_free(k->names);
    ax_free(k->tensors);
    ax_hf_close(&k->hf);
    *k = (struct ax_hf_kept){0};
}

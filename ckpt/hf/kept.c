#include "ckpt/hf/kept.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

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

/* Of a team, the rank that leads writes them. */
enum ax_status ax_hf_kept_open(struct ax_hf_kept *k, struct ax_hf_save *save) {
    *k = (struct ax_hf_kept){0};
    if (!save->base_dir || save->adapter || save->gguf)
        return AX_OK;
    AX_TRY(ax_hf_open(&k->hf, save->base_dir));
    const int count = ax_hf_count(&k->hf);
    AX_TRY(ax_alloc(&k->tensors, (size_t)(save->n + count), sizeof *k->tensors));
    memcpy(k->tensors, save->tensors, (size_t)save->n * sizeof *k->tensors);
    save->tensors = k->tensors;
    for (int i = 0; i < count; i++) {
        const struct ax_st_entry *e = ax_hf_at(&k->hf, i);
        if (!is_kept(save, e))
            continue;
        struct ax_st_output *t = &k->tensors[save->n++];
        *t = (struct ax_st_output){.name = e->name, .dtype = e->dtype, .ndim = e->ndim};
        memcpy(t->shape, e->shape, sizeof t->shape);
        if (ax_team_leads(save->team)) {
            t->fill = fill;
            t->ctx = (struct ax_st_entry *)(uintptr_t)e;
        }
    }
    return AX_OK;
}

void ax_hf_kept_close(struct ax_hf_kept *k) {
    ax_free(k->tensors);
    ax_hf_close(&k->hf);
    *k = (struct ax_hf_kept){0};
}

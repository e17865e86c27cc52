/* What a save contains: the weights that this rank has, and its state. */
#include <string.h>

#include "base/mem.h"
#include "ckpt/state/saver_work.h"

void ax_saver_work_free(struct ax_saver_work *w) {
    if (!w)
        return;
    for (int i = 0; w->keys && i < w->n_saved; i++)
        ax_free(w->keys[i]);
    for (int i = 0; w->copies && i < w->saver->n_units; i++)
        ax_free(w->copies[i].data);
    ax_free(w->copies);
    ax_free(w->keys);
    ax_free(w->saved);
    ax_free(w->tensors);
    ax_free(w->sources);
    ax_free(w->parts);
    ax_free(w->output_dir);
    ax_free(w->dir);
    json_decref(w->job.run);
    ax_free(w);
}

/* Adds a source of live memory, and the part of a tensor that it is. */
static void add_source(struct ax_saver_work *w, const struct ax_save_source *source,
                       const struct ax_block *block) {
    struct ax_save_source *s = &w->sources[w->n_sources];
    *s = *source;
    s->saver = w->saver;
    s->from.q = w->saver->q;
    w->parts[w->n_sources++] = (struct ax_st_part){.block = *block, .fill = w->fill, .ctx = s};
    w->saver->pending[s->unit]++;
}

static void add_weight(struct ax_saver_work *w, int i) {
    const struct ax_save_weight *weight = &w->job.weights[i];
    struct ax_st_output *t = &w->tensors[i];
    *t = (struct ax_st_output){.name = weight->name,
                               .dtype = weight->dtype,
                               .ndim = weight->ndim,
                               .n_parts = weight->n_parts,
                               .parts = w->parts + w->n_sources};
    memcpy(t->shape, weight->shape, (size_t)weight->ndim * sizeof *weight->shape);
    for (int k = 0; k < weight->n_parts; k++) {
        const struct ax_save_part *p = &weight->parts[k];
        add_source(
            w,
            &(struct ax_save_source){.from = {.dtype = p->value.dtype, .data = p->value.data},
                                     .wanted = weight->dtype,
                                     .delta = p->delta,
                                     .numel = ax_tensor_numel(&p->value),
                                     .unit = weight->unit},
            &p->block);
    }
}

static enum ax_status add_state(struct ax_saver_work *w, int i) {
    const struct ax_state_part *p = &w->saved[i];
    struct ax_st_output *t = &w->tensors[w->job.n_weights + i];
    const struct ax_block all = ax_block_whole(1, &p->n);
    AX_TRY(ax_checkpoint_key(&w->keys[i], p));
    *t = (struct ax_st_output){.name = w->keys[i],
                               .dtype = p->dtype,
                               .ndim = 1,
                               .shape = {p->n},
                               .n_parts = 1,
                               .parts = w->parts + w->n_sources};
    add_source(w,
               &(struct ax_save_source){.from = {.dtype = p->dtype, .data = p->data},
                                        .wanted = p->dtype,
                                        .numel = p->n,
                                        .unit = p->unit},
               &all);
    return AX_OK;
}

/* What this rank saves of the state. */
static enum ax_status choose_state(struct ax_saver_work *w) {
    const struct ax_state_parts *parts = w->job.parts;
    AX_TRY(ax_alloc(&w->saved, parts ? (size_t)parts->n : 0, sizeof *w->saved));
    for (int i = 0; parts && i < parts->n; i++)
        if (!parts->list[i].elsewhere)
            w->saved[w->n_saved++] = parts->list[i];
    return AX_OK;
}

enum ax_status ax_saver_work_make(struct ax_saver_work *w,
                                  enum ax_status (*fill)(void *source, int64_t first, int64_t n,
                                                         void *out)) {
    w->fill = fill;
    AX_TRY(choose_state(w));
    size_t sources = (size_t)w->n_saved;
    for (int i = 0; i < w->job.n_weights; i++)
        sources += (size_t)w->job.weights[i].n_parts;
    const size_t n = (size_t)w->job.n_weights + (size_t)w->n_saved;
    AX_TRY(ax_strdup(&w->output_dir, w->job.output_dir));
    AX_TRY(ax_checkpoint_path(&w->dir, w->output_dir, w->job.step));
    AX_TRY(ax_alloc(&w->tensors, n, sizeof *w->tensors));
    AX_TRY(ax_alloc(&w->sources, sources, sizeof *w->sources));
    AX_TRY(ax_alloc(&w->parts, sources, sizeof *w->parts));
    AX_TRY(ax_alloc(&w->copies, (size_t)w->saver->n_units, sizeof *w->copies));
    AX_TRY(ax_alloc(&w->keys, (size_t)w->n_saved, sizeof *w->keys));
    for (int i = 0; i < w->job.n_weights; i++)
        add_weight(w, i);
    for (int i = 0; i < w->n_saved; i++)
        AX_TRY(add_state(w, i));
    return AX_OK;
}

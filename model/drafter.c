#include "model/drafter.h"

#include "base/mem.h"
#include "model/core/norm.h"
#include "model/core/pipeline.h"
#include "model/model.h"
#include "model/parallel/tensor_parallel.h"
#include "model/parts/embed.h"
#include "model/parts/head.h"
#include "model/predict.h"

enum ax_status ax_drafter_create(struct ax_drafter *d, struct ax_model *m,
                                 const struct ax_model_options *o) {
    const struct ax_model_options own = {.dtype = o->dtype,
                                         .base_store = o->base_store,
                                         .store_experts = o->store_experts,
                                         .coded = o->coded,
                                         .expert_room = o->expert_room,
                                         .expert_overlap = o->expert_overlap,
                                         .max_positions = 1, /* passes read the tables of m */
                                         .only_predicts = true};
    *d = (struct ax_drafter){0};
    AX_TRY(ax_arch_with_prediction(&m->arch, &d->arch));
    const enum ax_status st = ax_model_create(&d->model, &d->arch, m->rt, &own);
    if (st != AX_OK) {
        ax_drafter_free(d);
        return st;
    }
    m->drafter = d;
    return AX_OK;
}

void ax_drafter_free(struct ax_drafter *d) {
    ax_model_free(&d->model);
    ax_free(d->arch.layers);
    *d = (struct ax_drafter){0};
}

struct ax_unit *ax_drafter_unit(const struct ax_drafter *d) {
    return &d->model.units[d->model.n_units - 2];
}

static struct ax_tensor take(const struct ax_pass *p, const char *name, enum ax_dtype dtype) {
    const struct ax_model *m = p->model;
    const int64_t T = ax_tp_rows(m->rt, p->batch->T);
    return ax_stack_take(&m->rt->arena.scratch, name,
                         ax_tensor_2d(dtype, NULL, T, m->arch.hidden_size));
}

/* The embeddings of the next tokens [T/tp][D], which the first stage looks up for the last one. */
static enum ax_status take_rows(struct ax_pass *p, const struct ax_tensor *rows) {
    struct ax_model *m = p->model;
    const struct ax_message message = {.n = 1, .parts = {*rows}, .batch = p->batch};
    const bool first = ax_chunks_have(&m->chunks, 0), last = ax_model_has_head(m);
    struct ax_message_tickets tickets;
    if (first) {
        AX_TRY(ax_model_gather(m, 0));
        AX_TRY(ax_embed_rows(p, &p->batch->ahead.tokens, rows));
        ax_model_release(m, 0);
    }
    if (first == last)
        return AX_OK;
    if (first)
        AX_TRY(ax_pipe_send(m->rt, ax_pipe_peer(m->rt, -1), &message, &tickets));
    else
        AX_TRY(ax_pipe_receive(m->rt, ax_pipe_peer(m->rt, 1), &message, &tickets));
    return ax_pipe_wait(m->rt, &tickets);
}

/* norm_s(y), from what the pass has left and those rows. */
static enum ax_status make_states(struct ax_pass *p, const struct ax_tensor *rows,
                                  const struct ax_tensor *normed) {
    struct ax_runtime *rt = p->model->rt;
    struct ax_drafter *d = p->model->drafter;
    const struct ax_layer *l = &d->model.layers[d->arch.n_layers - 1];
    const struct ax_tensor y = take(p, "output of the layer for prediction", p->model->accum);
    const struct ax_tensor rstd = ax_stack_take(&rt->arena.scratch, "norm rstd",
                                                ax_tensor_1d(p->model->accum, NULL, y.shape[0]));
    AX_TRY(ax_unit_gather(l->unit, rt));
    AX_TRY(ax_predict_of(l, p, ax_pass_own_hidden(p), rows, &y));
    AX_TRY(ax_norm_forward(p, l->unit, d->model.ahead_norm, &y, normed, &rstd));
    ax_unit_release(l->unit);
    return AX_OK;
}

enum ax_status ax_drafter_logits(struct ax_pass *p, const struct ax_tensor *rows,
                                 const struct ax_tensor *work, const struct ax_tensor *out) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor next = take(p, "next embeddings", p->model->accum);
    AX_TRY(take_rows(p, &next));
    if (ax_model_has_head(p->model)) {
        const struct ax_tensor normed = take(p, "norm output", p->model->dtype);
        AX_TRY(make_states(p, &next, &normed));
        AX_TRY(ax_pass_logits_from(p, &normed, rows, work, out));
    }
    ax_stack_release(scratch, mark);
    return AX_OK;
}

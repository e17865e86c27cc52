/* A unit forward and backward: what the schedule's FORWARD and BACKWARD actions do. */
#include "model/pass.h"

#include "base/mem.h"
#include "model/parts/router.h"
#include "model/parts/embed.h"
#include "model/parts/head.h"
#include "model/parts/indexer.h"
#include "model/parts/per_layer.h"
#include "model/parts/streams.h"
#include "model/boundary.h"
#include "model/layer.h"
#include "model/predict.h"
#include "model/core/lent.h"
#include "model/core/pipeline.h"
#include "model/parallel/tensor_parallel.h"

enum ax_status ax_slot_create(struct ax_slot *s, const struct ax_model *m, struct ax_stack *stack) {
    *s = (struct ax_slot){.stack = stack, .later = {.stack = stack}};
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&s->frames, (size_t)m->n_units, sizeof *s->frames), st, fail);
    AX_TRY_GOTO(ax_alloc(&s->residual, (size_t)m->n_units, sizeof *s->residual), st, fail);
    AX_TRY_GOTO(ax_alloc(&s->lent, (size_t)m->arch.n_layers, sizeof *s->lent), st, fail);
    if (m->experts.n_experts > 0)
        AX_TRY_GOTO(ax_expert_rounds_create(&s->expert_rounds, &m->experts, m->arch.moe.n_active,
                                            (int)m->arch.n_layers),
                    st, fail);
    return AX_OK;
fail:
    ax_slot_free(s);
    return st;
}

/* The first unit of a chunk whose residual backward reads. */
static int first_read(const struct ax_model *m, int chunk) {
    const int first = m->chunks.list[chunk].first;
    return first > m->lowest_unit - 1 ? first : m->lowest_unit - 1;
}

/* The end of those that come back: the last two are still in the buffers when backward begins. */
static int end_away(const struct ax_model *m, int chunk) {
    const int end = m->chunks.list[chunk].end;
    return (end < m->n_units ? end : m->n_units - 1) - 2;
}

/* Host memory for the residuals that backward reads. A slot serves one chunk at a time. */
static enum ax_status make_away(struct ax_slot *s, const struct ax_model *m, int64_t rows) {
    const struct ax_tensor residual =
        ax_tensor_2d(m->accum, NULL, rows, ax_arch_stream_size(&m->arch));
    int made = 0;
    AX_TRY(ax_alloc(&s->away, (size_t)m->n_units, sizeof *s->away));
    for (int c = 0; c < m->chunks.n; c++)
        for (int u = first_read(m, c) + made; u < end_away(m, c); u++)
            s->away[made++] =
                ax_stack_push(&m->rt->arena.host, "residual", ax_tensor_bytes(&residual));
    return AX_OK;
}

enum ax_status ax_slots_create(struct ax_slot *slots, int n, const struct ax_model *m,
                               int64_t away_rows) {
    for (int i = 0; i < n; i++) {
        AX_TRY(ax_slot_create(&slots[i], m, &m->rt->arena.slots[i]));
        if (away_rows > 0)
            AX_TRY(make_away(&slots[i], m, away_rows));
    }
    return AX_OK;
}

void ax_slot_free(struct ax_slot *s) {
    ax_free(s->frames);
    ax_free(s->residual);
    ax_free(s->lent);
    ax_free(s->away);
    ax_later_free(&s->later);
    ax_expert_rounds_free(s->expert_rounds);
    *s = (struct ax_slot){0};
}

static struct ax_tensor take_rows(struct ax_pass *p, const char *name) {
    return ax_stack_take(p->slot->stack, name,
                         ax_tensor_2d(p->model->accum, NULL, ax_tp_rows(p->model->rt, p->batch->T),
                                      ax_arch_stream_size(&p->model->arch)));
}

/* Memory for a gradient in compute dtype. */
static void take_narrow(struct ax_pass *p) {
    const struct ax_model *m = p->model;
    struct ax_slot *s = p->slot;
    if (m->dtype != m->accum)
        s->narrow =
            ax_stack_take(s->stack, "narrow gradient of residual",
                          ax_tensor_2d(m->dtype, NULL, s->grad.shape[0], m->arch.hidden_size));
    s->narrowed = NULL;
}

static bool inference(const struct ax_pass *p) {
    return p->recompute == AX_RECOMPUTE_INFERENCE;
}

/* Two buffers for all residuals. */
static void take_turns(struct ax_pass *p, const char *name) {
    const struct ax_tensor turns[2] = {take_rows(p, name), take_rows(p, name)};
    for (int u = 0; u < p->model->n_units; u++)
        p->slot->residual[u] = turns[u & 1];
}

/* Some ropes depend on the longest sequence of the pass; the other kinds never change their tables. Forward follows
 * where a pass begins, but in a pipeline other passes begin before its backward. */
static enum ax_status refresh_rope(struct ax_model *m, const struct ax_batch *b) {
    struct ax_rope_table *t = &m->ropes[AX_ROPE_MAIN];
    const int64_t length = ax_rope_length(&m->arch.rope, b->max_position + 1);
    if (length == t->seq_len || ax_runtime_planning(m->rt))
        return AX_OK;
    t->seq_len = length;
    return ax_rope_tables(&m->arch.rope, length, m->rt->q, &t->cos, &t->sin);
}

enum ax_status ax_pass_begin(struct ax_pass *p) {
    struct ax_slot *s = p->slot;
    s->mark = ax_stack_mark(s->stack);
    if (inference(p)) {
        take_turns(p, "residual"); /* nothing is kept */
    } else {
        s->grad = take_rows(p, "gradient of residual");
        take_narrow(p);
        if (s->away)
            take_turns(p, "residual stream");
        const struct ax_chunk *c = &p->model->chunks.list[p->chunk];
        if (c->first > 0)
            s->residual[c->first - 1] = take_rows(p, "residual");
        if (c->end == p->model->n_units && ax_arch_predicts(&p->model->arch))
            s->ahead = take_rows(p, "output of the layer for prediction");
    }
    ax_per_layer_begin(p);
    AX_TRY(ax_lent_begin(p));
    AX_TRY(ax_stream_rows_begin(p));
    if (inference(p) && ax_pass_chooses(p))
        s->choice = ax_stack_take(s->stack, "chosen keys", ax_choice_shape(p));
    AX_TRY(ax_balance_begin(p));
    return refresh_rope(p->model, p->batch);
}

void ax_pass_end(struct ax_pass *p) {
    ax_later_end(&p->slot->later);
    ax_stack_release(p->slot->stack, p->slot->mark);
}

/* After its forward: a copy of a unit's residual to the host tier, if backward reads it there. The
 * buffer is written again by the unit after next, which waits for the copy. */
static enum ax_status send_away(const struct ax_pass *p, int unit) {
    struct ax_slot *s = p->slot;
    const struct ax_tensor *x = &s->residual[unit];
    const int at = unit - first_read(p->model, p->chunk);
    if (inference(p) || !s->away || at < 0 || unit >= end_away(p->model, p->chunk))
        return AX_OK;
    return ax_queue_copy_beside(p->model->rt->q, AX_TIER_HOST, s->away[at], x->data,
                                ax_tensor_bytes(x), &s->moved[unit & 1]);
}

/* Before a unit's backward, the residual for the next one comes back meanwhile: into the buffer that
 * the unit's own result was in. */
static enum ax_status fetch_next(const struct ax_pass *p, int unit) {
    const struct ax_model *m = p->model;
    struct ax_slot *s = p->slot;
    const int u = unit - 2, at = u - first_read(m, p->chunk);
    if (!s->away || unit == m->n_units - 1 || at < 0)
        return AX_OK;
    return ax_queue_copy_beside(m->rt->q, AX_TIER_DEVICE, s->residual[u].data, s->away[at],
                                ax_tensor_bytes(&s->residual[u]), &s->moved[u & 1]);
}

/* Tokens of this rank's part of the batch that are no padding: those come last. */
static int64_t used_tokens(const struct ax_batch *b) {
    const int64_t length = b->T / b->n_runs;
    int64_t n = 0;
    for (int r = 0; r < b->n_runs; r++) {
        const int64_t left = b->n_tokens - b->runs[r].first;
        n += left < 0 ? 0 : left < length ? left : length;
    }
    return n;
}

/* Sets what the adapters' dropout and FP8 training need from this pass. */
static void tell_linears(const struct ax_pass *p) {
    struct ax_fake_quant *quant = &p->model->quant;
    quant->used = used_tokens(p->batch);
    if (quant->scheme.quantizes_grad)
        quant->on = !inference(p);
    struct ax_adapter_run *run = &p->model->adapter_run;
    run->scalars = p->scalars;
    run->first_row = p->batch->first_token;
    run->rows = p->batch->order;
    run->training = !inference(p);
}

static enum ax_status begin_gradients(struct ax_model *m, int unit) {
    const int also = ax_model_unit_needs(m, unit);
    AX_TRY(ax_unit_begin_gradients(&m->units[unit], m->rt));
    return also < 0 ? AX_OK : ax_unit_begin_gradients(&m->units[also], m->rt);
}

enum ax_status ax_pass_forward(struct ax_pass *p, int unit) {
    struct ax_model *m = p->model;
    tell_linears(p);
    struct ax_slot *s = p->slot;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    const bool last = unit == m->n_units - 1;
    if (!last && !inference(p) && !s->away)
        s->residual[unit] = take_rows(p, "residual");
    AX_TRY(ax_queue_after(m->rt->q, s->moved[unit & 1]));
    if (unit == 0) {
        AX_TRY(ax_embed_forward(p));
        return send_away(p, 0);
    }

    struct ax_frame *f = &s->frames[unit];
    const struct ax_tensor *x = &s->residual[unit - 1];
    const size_t mark = ax_stack_mark(scratch);
    if (p->tap)
        p->tap(p->tap_ctx, "hidden", unit - 1, x);
    if (last) {
        /* the normed state outlives forward in inference, because logits are computed later */
        ax_head_declare(p, f);
        ax_frame_push(f, s->stack, inference(p) ? s->stack : scratch, p->recompute);
        if (!inference(p))
            AX_TRY(begin_gradients(m, unit));
        AX_TRY(ax_head_forward(p, f, x));
    } else {
        const struct ax_layer *l = &m->layers[unit - 1];
        if (l->spec.predicts)
            ax_predict_declare(l, p, f);
        else
            ax_layer_declare(l, p, f);
        ax_frame_push(f, s->stack, scratch, p->recompute);
        AX_TRY(l->spec.predicts ? ax_predict_forward(l, p, f, x, &s->residual[unit])
                                : ax_layer_forward(l, p, f, x, &s->residual[unit]));
    }
    ax_stack_release(scratch, mark);
    return last ? AX_OK : send_away(p, unit);
}

static enum ax_status backward(struct ax_pass *p, int unit) {
    struct ax_model *m = p->model;
    struct ax_slot *s = p->slot;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    AX_TRY(begin_gradients(m, unit));
    if (unit == 0)
        return ax_embed_backward(p);
    struct ax_frame *f = &s->frames[unit];
    if (unit < m->lowest_unit) { /* nothing is trainable from here down */
        ax_frame_pop(f, s->stack);
        return AX_OK;
    }
    tell_linears(p);
    AX_TRY(refresh_rope(m, p->batch));
    AX_TRY(ax_queue_after(m->rt->q, s->moved[(unit - 1) & 1]));
    AX_TRY(fetch_next(p, unit));
    const struct ax_tensor *x = &s->residual[unit - 1];
    const size_t mark = ax_stack_mark(scratch);
    ax_frame_restore(f, scratch);
    if (unit == m->n_units - 1) {
        AX_TRY(ax_head_backward(p, f, x));
    } else {
        const struct ax_layer *l = &m->layers[unit - 1];
        if (m->indexers == AX_INDEXERS_WARM_UP) {
            AX_TRY(ax_layer_warm_up(l, p, f, x));
        } else if (l->spec.predicts) {
            AX_TRY(ax_predict_backward(l, p, f, x));
        } else {
            AX_TRY(ax_layer_forward(l, p, f, x, NULL));
            AX_TRY(ax_layer_backward(l, p, f, x, &s->grad));
        }
    }
    ax_stack_release(scratch, mark);
    ax_frame_pop(f, s->stack);
    return AX_OK;
}

enum ax_status ax_pass_backward(struct ax_pass *p, int unit) {
    struct ax_model *m = p->model;
    m->later = p->halves ? &p->slot->later : NULL;
    const enum ax_status st = backward(p, unit);
    m->later = NULL;
    return st;
}

enum ax_status ax_pass_weights(struct ax_pass *p, int unit) {
    tell_linears(p);
    return ax_later_run(&p->slot->later, p, &p->model->units[unit]);
}

static enum ax_status run_chunk(struct ax_pass *p, const struct ax_chunk *c) {
    const struct ax_model *m = p->model;
    const bool ahead = m->pool.prefetch;
    for (int u = c->first; u < c->end; u++) {
        if (!ahead || u == c->first)
            AX_TRY(ax_model_start_gather(m, u, false));
        if (ahead && u + 1 < c->end)
            AX_TRY(ax_model_start_gather(m, u + 1, false));
        AX_TRY(ax_model_arrive(m, u));
        AX_TRY(ax_pass_forward(p, u));
        ax_model_release(m, u);
    }
    return AX_OK;
}

bool ax_model_has_head(const struct ax_model *m) {
    return ax_chunks_have(&m->chunks, m->n_units - 1);
}

enum ax_status ax_pass_forward_all(struct ax_pass *p) {
    const struct ax_model *m = p->model;
    struct ax_runtime *rt = m->rt;
    struct ax_message_tickets tickets;
    for (int i = 0; i < m->chunks.n; i++) {
        const struct ax_chunk *c = &m->chunks.list[i];
        if (c->first > 0) {
            const struct ax_message in =
                ax_boundary(m, AX_CROSS_OUTPUT, c->first, p->batch, p->slot);
            AX_TRY(ax_pipe_receive(rt, ax_pipe_peer(rt, -1), &in, &tickets));
            AX_TRY(ax_pipe_wait(rt, &tickets));
            AX_TRY(ax_boundary_arrive(p, c->first));
        }
        AX_TRY(run_chunk(p, c));
        if (c->end < m->n_units) {
            const struct ax_message out =
                ax_boundary(m, AX_CROSS_OUTPUT, c->end, p->batch, p->slot);
            AX_TRY(ax_pipe_send(rt, ax_pipe_peer(rt, 1), &out, &tickets));
            AX_TRY(ax_pipe_wait(rt, &tickets));
        }
    }
    return AX_OK;
}

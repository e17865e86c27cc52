/* Drafts of the next tokens, by the layer for multi-token prediction (model/drafter.h).
 *
 * The layer has a token's row of the cache as the model's layers have, but that row depends on the next token,
 * too: it is written after that was chosen, in the pass that is still open. Where lanes share keys, the last
 * shared row is of another sequence's next token: a draft may be worse for it, and no result is other. */
#include "model/generate/generate_pass.h"

#include "model/drafter.h"

int64_t ax_sequence_most(const struct ax_generator *d, const struct ax_sequence *s) {
    return s->max_new > 0 && s->max_new < d->o.max_new ? s->max_new : d->o.max_new;
}

/* Drops what the pass has cached beyond the lane's tokens: of an active one, all but the last go through the model
 * no more. */
static enum ax_status drop_keys(struct ax_generator *d, int lane) {
    const struct ax_lane *l = &d->lanes[lane];
    const int64_t most = l->seq ? l->known - 1 : l->known;
    return d->cache.length[lane] > most
               ? ax_kvcache_fork(&d->cache, d->model->rt->q, lane, lane, most)
               : AX_OK;
}

/* The token after the next one must be asked for, and the choice of the next one depend on nothing else. */
static bool wants_draft(const struct ax_generator *d, int lane) {
    const struct ax_lane *l = &d->lanes[lane];
    const struct ax_sequence *s = l->seq;
    return s && s->n_scored == 0 && !s->bias && !ax_sampling_penalises(ax_lane_sampling(d, lane)) &&
           s->n_new + 2 <= ax_sequence_most(d, s) && d->cache.length[lane] == l->known - 1;
}

/* The next tokens of a document's rows, as far as they are known; and, if a draft is made from it, its row of the
 * lane's last token but one. */
static void list_document(struct ax_generator *d, int64_t doc, int32_t *lanes) {
    struct ax_generate_work *w = d->work;
    const struct ax_lane *l = &d->lanes[w->lane[doc]];
    const bool planning = ax_runtime_planning(d->model->rt), wants = wants_draft(d, w->lane[doc]);
    for (int32_t t = w->cu[doc]; t < w->cu[doc + 1]; t++) {
        const int32_t next = w->positions[t] + 1;
        w->next[t] = next < l->known ? l->ids[next] : 0;
        if (planning ? t == w->cu[doc] : wants && next == l->known - 1)
            ax_lanes_add_row(d, lanes, w->lane[doc], t);
    }
}

enum ax_status ax_generate_run_drafts(struct ax_generator *d, int64_t *n_rows, int32_t *lanes) {
    struct ax_generate_work *w = d->work;
    struct ax_tensor *next = &d->batch.ahead.tokens;
    w->n_rows = 0;
    for (int64_t i = 0; i < w->n_docs; i++) {
        if (!ax_runtime_planning(d->model->rt))
            AX_TRY(drop_keys(d, w->lane[i]));
        list_document(d, i, lanes);
    }
    for (int64_t t = w->n_tokens; t < w->T; t++)
        w->next[t] = 0;
    next->shape[0] = w->T;
    AX_TRY(ax_queue_write(d->model->rt->q, next->data, w->next, ax_tensor_bytes(next)));
    AX_TRY(ax_lanes_make_logits(d, ax_drafter_logits));
    ax_pass_end(&d->pass);
    *n_rows = w->n_rows;
    return AX_OK;
}

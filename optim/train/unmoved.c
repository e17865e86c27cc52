/* Trained tensors that do not move: no gradient reaches them, or the learning rate is too small for their dtype.
 * Compared are the hashes of replicas.c, of the first bytes of each tensor, a single time, some steps after the
 * start. Embeddings are left out: rows of tokens that did not occur stay as they are. */
#include "base/mem.h"
#include "optim/train/run.h"

#define STEPS  20
#define SAMPLE ((size_t)64 << 10) /* bytes */

static bool is_looked_at(const struct ax_param *p) {
    return p->trainable && p->unit > 0;
}

static enum ax_status hash_all(const struct ax_model *m, uint64_t **hashes) {
    AX_TRY(ax_alloc(hashes, (size_t)m->n_params, sizeof **hashes));
    enum ax_status st = AX_OK;
    for (int i = 0; i < m->n_params && st == AX_OK; i++)
        if (is_looked_at(&m->params[i]))
            st = ax_train_hash_param(m, &m->params[i], SAMPLE, true, &(*hashes)[i]);
    if (st != AX_OK) {
        ax_free(*hashes);
        *hashes = NULL;
    }
    return st;
}

static int64_t enqueued(const struct ax_train *t) {
    return t->done + t->late.pending;
}

enum ax_status ax_train_unmoved_begin(struct ax_train *t) {
    t->unmoved.from = enqueued(t);
    /* with elastic, ranks that take the place of lost ones would begin later */
    if (t->o->elastic.dir || t->schedule.total - t->unmoved.from < STEPS)
        return AX_OK;
    return hash_all(&t->step.model, &t->unmoved.hashes);
}

void ax_train_unmoved_free(struct ax_train *t) {
    ax_free(t->unmoved.hashes);
    t->unmoved.hashes = NULL;
}

/* moved[i] = 1 where a rank's part of a trained parameter has changed. */
static enum ax_status compare(struct ax_train *t, double *moved) {
    const struct ax_model *m = &t->step.model;
    uint64_t *now;
    AX_TRY(hash_all(m, &now));
    for (int i = 0; i < m->n_params; i++)
        moved[i] = now[i] != t->unmoved.hashes[i];
    ax_free(now);
    return ax_runtime_combine(t->rt, AX_ROLE_WORLD, AX_MAX, moved, m->n_params);
}

static void tell(const struct ax_train *t, const double *moved) {
    const struct ax_model *m = &t->step.model;
    int trained = 0, still = 0, first = -1;
    for (int i = 0; i < m->n_params; i++) {
        trained += is_looked_at(&m->params[i]);
        if (!is_looked_at(&m->params[i]) || moved[i] > 0)
            continue;
        first = still++ == 0 ? i : first;
    }
    if (still > 0)
        ax_metrics_event(t->metrics, AX_EVENT_WARNING, enqueued(t),
                         "%d of %d trained tensors have not changed in %lld steps, first %s: no "
                         "gradient reaches them, or the learning rate is too small for their "
                         "dtype",
                         still, trained, (long long)(enqueued(t) - t->unmoved.from),
                         m->params[first].name);
}

enum ax_status ax_train_unmoved_look(struct ax_train *t) {
    double *moved;
    if (!t->unmoved.hashes || enqueued(t) < t->unmoved.from + STEPS)
        return AX_OK;
    AX_TRY(ax_alloc(&moved, (size_t)t->step.model.n_params, sizeof *moved));
    const enum ax_status st = compare(t, moved);
    if (st == AX_OK)
        tell(t, moved);
    ax_free(moved);
    ax_train_unmoved_free(t);
    return st;
}

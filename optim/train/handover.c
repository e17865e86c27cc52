#include "optim/train/handover.h"

#include <string.h>

#include "base/mem.h"
#include "kernels/transfer.h"

/* ---- a unit's weights, one after the other ---- */

static bool changes(const struct ax_param *p, int unit) {
    return p->unit == unit && (p->trainable || p->buffer);
}

static enum ax_dtype dtype_of(const struct ax_model *m, const struct ax_param *p) {
    return p->buffer ? m->accum : m->dtype;
}

static int64_t bytes_of(const struct ax_model *m, const struct ax_param *p) {
    return ax_param_numel(p) * (int64_t)ax_dtype_size(dtype_of(m, p));
}

static int64_t unit_bytes(const struct ax_model *m, int unit) {
    int64_t bytes = 0;
    for (int i = 0; i < m->n_params; i++)
        if (changes(&m->params[i], unit))
            bytes += bytes_of(m, &m->params[i]);
    return bytes;
}

static enum ax_status read_unit(const struct ax_model *m, int unit, char *out) {
    for (int i = 0; i < m->n_params; i++) {
        const struct ax_param *p = &m->params[i];
        if (!changes(p, unit))
            continue;
        const struct ax_tensor weight = ax_unit_weight(&m->units[unit], p);
        AX_TRY(ax_tensor_read(m->rt->q, &weight, dtype_of(m, p), out));
        out += bytes_of(m, p);
    }
    return AX_OK;
}

static enum ax_status write_unit(const struct ax_model *m, int unit, const char *in) {
    for (int i = 0; i < m->n_params; i++) {
        const struct ax_param *p = &m->params[i];
        if (!changes(p, unit))
            continue;
        const struct ax_elements values = ax_elements_of(dtype_of(m, p), in);
        AX_TRY(ax_unit_load(&m->units[unit], m->rt, p, &values));
        in += bytes_of(m, p);
    }
    return AX_OK;
}

/* ---- sending ---- */

static enum ax_status take_unit(struct ax_handover *h, struct ax_model *m, int unit, bool sends) {
    const int64_t bytes = unit_bytes(m, unit);
    if (bytes == 0)
        return AX_OK;
    AX_TRY(ax_unit_gather(&m->units[unit], m->rt));
    enum ax_status st = sends ? ax_alloc(&h->weights[unit], (size_t)bytes, 1) : AX_OK;
    if (st == AX_OK && sends)
        st = read_unit(m, unit, h->weights[unit]);
    ax_unit_release(&m->units[unit]);
    return st;
}

static enum ax_status send_one(struct ax_handover *h, struct ax_team *team, int to,
                               const void *data, int64_t bytes) {
    struct ax_team_letter *l = &h->letters[h->n_letters];
    *l = (struct ax_team_letter){.data = data, .bytes = bytes};
    AX_TRY(ax_team_send(team, to, l));
    h->n_letters++;
    return AX_OK;
}

static enum ax_status send_all(struct ax_handover *h, struct ax_team *team, int to,
                               const struct ax_model *m) {
    AX_TRY(send_one(h, team, to, &h->order, sizeof h->order));
    for (int u = 0; u < h->n_units; u++)
        if (h->weights[u])
            AX_TRY(send_one(h, team, to, h->weights[u], unit_bytes(m, u)));
    return AX_OK;
}

enum ax_status ax_handover_send(struct ax_handover *h, struct ax_team *team, int first, int step,
                                struct ax_model *m, int64_t version) {
    const bool sends = first < team->size;
    const size_t receivers = sends ? (size_t)((team->size - first + step - 1) / step) : 0;
    AX_ASSERT(!h->weights);
    *h = (struct ax_handover){.order = {.version = version}, .n_units = m->n_units};
    AX_TRY(ax_alloc(&h->weights, (size_t)m->n_units, sizeof *h->weights));
    AX_TRY(ax_alloc(&h->letters, receivers * ((size_t)m->n_units + 1), sizeof *h->letters));
    for (int u = 0; u < m->n_units; u++)
        AX_TRY(take_unit(h, m, u, sends));
    for (int to = first; to < team->size; to += step)
        AX_TRY(send_all(h, team, to, m));
    return AX_OK;
}

enum ax_status ax_handover_end(struct ax_team *team, int first, int step, enum ax_status st) {
    const struct ax_handover_order order = {.end = 1, .status = st};
    for (int to = first; to < team->size; to += step) {
        struct ax_team_letter l = {.data = &order, .bytes = sizeof order};
        AX_TRY(ax_team_send(team, to, &l));
        AX_TRY(ax_team_sent(team, &l));
    }
    return AX_OK;
}

enum ax_status ax_handover_finish(struct ax_handover *h, struct ax_team *team) {
    for (int i = 0; i < h->n_letters; i++)
        AX_TRY(ax_team_sent(team, &h->letters[i]));
    ax_handover_free(h);
    return AX_OK;
}

void ax_handover_free(struct ax_handover *h) {
    for (int u = 0; h->weights && u < h->n_units; u++)
        ax_free(h->weights[u]);
    ax_free(h->weights);
    ax_free(h->letters);
    *h = (struct ax_handover){0};
}

/* ---- receiving ---- */

/* The next letter, which must have `bytes` bytes; the caller frees *data. */
static enum ax_status receive(struct ax_team *team, int from, int64_t bytes, char **data) {
    int64_t n;
    AX_TRY(ax_team_receive(team, from, data, &n));
    if (n == bytes)
        return AX_OK;
    ax_free(*data);
    *data = NULL;
    return ax_error(AX_ERR_PEER, "rank %d: sends %lld bytes of weights, and %lld were expected",
                    from, (long long)n, (long long)bytes);
}

enum ax_status ax_handover_receive(struct ax_team *team, int from, struct ax_model *m,
                                   struct ax_handover_order *order) {
    char *data = NULL;
    AX_TRY(receive(team, from, sizeof *order, &data));
    memcpy(order, data, sizeof *order);
    ax_free(data);
    for (int u = 0; !order->end && u < m->n_units; u++) {
        const int64_t bytes = unit_bytes(m, u);
        if (bytes == 0)
            continue;
        AX_TRY(receive(team, from, bytes, &data));
        const enum ax_status st = write_unit(m, u, data);
        ax_free(data);
        AX_TRY(st);
    }
    return AX_OK;
}

/* Keys of a request that change logits before a token is chosen. */
#include <string.h>

#include "cmd/serve/request.h"

#define MOST_BIAS 100 /* as in the protocol */

/* A token's id is the key of an object, and so a text. */
static enum ax_status read_entry(struct ax_serve_request *r, const struct ax_serve_model *m,
                                 const char *name, const json_t *v) {
    char *end;
    const double x = json_number_value(v);
    const size_t n = strlen(name);
    json_t *id = n > 0 && n < 10 && strspn(name, "0123456789") == n
                     ? json_integer(strtol(name, &end, 10))
                     : NULL;
    const enum ax_status st = ax_serve_read_id(r, m, "logit_bias", id, &r->biased[r->bias.n]);
    json_decref(id);
    AX_TRY(st);
    if (!json_is_number(v) || !(x >= -MOST_BIAS && x <= MOST_BIAS))
        return ax_serve_refuse(r, "logit_bias", "expected numbers from -%d to %d", MOST_BIAS,
                               MOST_BIAS);
    r->biases[r->bias.n++] = (float)x;
    return AX_OK;
}

static enum ax_status read_logit_bias(struct ax_serve_request *r, const struct ax_serve_model *m) {
    json_t *v = json_object_get(r->root, "logit_bias"), *item;
    const char *name;
    const size_t n = json_object_size(v);
    if (!v || json_is_null(v))
        return AX_OK;
    if (!json_is_object(v) || n > AX_SERVE_BIASES)
        return ax_serve_refuse(r, "logit_bias", "expected an object of up to %d token ids",
                               AX_SERVE_BIASES);
    AX_TRY(ax_alloc(&r->biased, n, sizeof *r->biased));
    AX_TRY(ax_alloc(&r->biases, n, sizeof *r->biases));
    r->bias.tokens = r->biased;
    r->bias.values = r->biases;
    json_object_foreach(v, name, item) {
        AX_TRY(read_entry(r, m, name, item));
    }
    return AX_OK;
}

static void add_ends(struct ax_serve_request *r, const int32_t *ids, int n) {
    if (n > 0)
        memcpy(r->ends + r->bias.n_ends, ids, (size_t)n * sizeof *ids);
    r->bias.n_ends += n;
}

enum ax_status ax_serve_read_bias(struct ax_serve_request *r, const struct ax_serve_model *m) {
    AX_TRY(read_logit_bias(r, m));
    r->bias.ends = r->ends;
    add_ends(r, r->stop_ids, r->n_stop_ids);
    if (!r->ignore_eos)
        add_ends(r, m->side->stop.ids, m->side->stop.n);
    if (!r->ignore_eos && r->tools)
        add_ends(r, m->tools->stop, m->tools->n_stop);
    return AX_OK;
}

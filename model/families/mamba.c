/* The sizes of Mamba-2 layers in config.json, whose keys families spell in their own ways. */
#include <math.h>
#include <string.h>

#include "model/arch/family.h"

/* A bound of the time step, in which transformers writes infinity as {"__float__": "Infinity"}. */
static enum ax_status bound(struct ax_json v, double usual, double *out) {
    const char *word;
    const struct ax_json inner = ax_json_get(v, "__float__");
    if (!inner.v)
        return ax_json_f64_or(v, usual, out);
    AX_TRY(ax_json_str(inner, &word));
    *out = (double)INFINITY;
    if (strcmp(word, "Infinity") == 0)
        return AX_OK;
    return ax_json_error(inner, "expected \"Infinity\", got \"%.40s\"", word);
}

static enum ax_status limits(struct ax_ssd_config *s, struct ax_json c,
                             const struct ax_ssd_keys *k) {
    const struct ax_json v = ax_json_get(c, k->lowest ? k->lowest : "time_step_limit");
    s->high = (double)INFINITY;
    if (k->lowest) {
        AX_TRY(bound(v, k->usual.lowest, &s->low));
    } else if (v.v) {
        if (ax_json_size(v) != 2)
            return ax_json_error(v, "expected the lowest and the highest time step");
        AX_TRY(bound(ax_json_at(v, 0), 0, &s->low));
        AX_TRY(bound(ax_json_at(v, 1), s->high, &s->high));
    }
    if (s->low >= 0 && s->low < s->high)
        return AX_OK;
    return ax_json_error(v, "time steps from %g to %g: expected at least 0, and less", s->low,
                         s->high);
}

enum ax_status ax_ssd_parse(struct ax_arch *a, struct ax_json c, const struct ax_ssd_keys *k) {
    struct ax_ssd_config *s = &a->ssd;
    const struct ax_json heads = ax_json_get(c, k->heads), size = ax_json_get(c, k->head_dim);
    const char *word = json_string_value(size.v);
    const bool derived = size.v ? word && strcmp(word, "auto") == 0 : k->width > 0;
    AX_TRY(ax_field_only(c, "hidden_act", "silu")); /* also of convolutions */
    AX_TRY(ax_json_i64_or(heads, 1, 65536, k->usual.heads, &s->heads));
    AX_TRY(ax_json_i64_or(ax_json_get(c, k->groups), 1, 65536, k->usual.groups, &s->groups));
    AX_TRY(ax_json_i64_or(ax_json_get(c, k->state), 1, 2048, k->usual.state, &s->state));
    AX_TRY(ax_json_i64_or(ax_json_get(c, k->taps), 2, AX_CONV_TAPS, 4, &a->conv.taps));
    AX_TRY(ax_json_bool_or(ax_json_get(c, k->conv_bias), true, &s->conv_bias));
    AX_TRY(ax_json_bool_or(ax_json_get(c, k->bias), false, &s->bias));
    AX_TRY(limits(s, c, k));
    s->norm = true;
    for (int i = 0; i < 5; i++)
        s->scale[i] = 1;
    if (derived)
        s->head_dim = k->width / s->heads;
    else
        AX_TRY(ax_json_i64_or(size, 1, 2048, k->usual.head_dim, &s->head_dim));
    if (s->heads % s->groups != 0)
        return ax_json_error(heads, "%lld groups (%s) do not divide %lld heads",
                             (long long)s->groups, k->groups, (long long)s->heads);
    if (k->width == 0 || s->heads * s->head_dim == k->width)
        return AX_OK;
    const int64_t wide = s->heads * s->head_dim;
    return ax_json_error(heads, "%lld heads of %lld (%s) are %lld wide; expected %lld",
                         (long long)s->heads, (long long)s->head_dim, k->head_dim, (long long)wide,
                         (long long)k->width);
}

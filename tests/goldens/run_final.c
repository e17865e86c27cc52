/* The parameters at the end, and which of them decay. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tests/goldens/run.h"

#define CLOSE      1e-5 /* a parameter is correct within this … */
#define SHARE      1e-3 /* … except for at most this share of them */
#define MOVED      3e-4 /* ‖difference‖ / ‖end − start‖ of all that are recorded */
#define NORM_SHARE 1e-3 /* of a tensor's own move */

enum ax_status ax_run_start_read(struct ax_run_start *s, const struct ax_model *m) {
    s->n = m->n_params;
    AX_TRY(ax_alloc(&s->values, (size_t)s->n, sizeof *s->values));
    for (int i = 0; i < s->n; i++) {
        const struct ax_tensor value = ax_model_value(m, &m->params[i]);
        if (m->params[i].trainable)
            AX_TRY(ax_golden_values(m->rt->q, &value, &s->values[i]));
    }
    return AX_OK;
}

void ax_run_start_free(struct ax_run_start *s) {
    for (int i = 0; s->values && i < s->n; i++)
        ax_free(s->values[i]);
    ax_free(s->values);
}

/* Sums over all recorded elements. */
struct sums {
    double difference, moved; /* squares */
    int64_t n, off;
};

static double distance(const double *a, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += b ? (a[i] - b[i]) * (a[i] - b[i]) : a[i] * a[i];
    return sqrt(sum);
}

/* Compares with the first elements of a parameter, or all of them. */
static const char *prefix_of(const struct ax_run *r) {
    return r->prefix ? r->prefix : "";
}

static enum ax_status compare_tensor(struct ax_run *r, const char *list, const char *name,
                                     const double *got, const double *start, int64_t numel,
                                     double rates, struct sums *sums) {
    char full[AX_NAME_MAX + 16];
    struct ax_golden_tensor want;
    snprintf(full, sizeof full, "%s.%s%s", list, prefix_of(r), name);
    if (!ax_safetensors_find(&r->own, full))
        return AX_OK;
    AX_TRY(ax_golden_read(&r->own, full, &want));
    const int64_t n = want.numel < numel ? want.numel : numel;
    double worst = want.numel > numel ? INFINITY : 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs(got[i] - want.v[i]);
        worst = ax_golden_worse(worst, d);
        sums->off += !(d <= CLOSE);
        sums->difference += d * d;
        sums->moved += (want.v[i] - start[i]) * (want.v[i] - start[i]);
    }
    sums->n += n;
    ax_golden_note(r->report, "final parameters", worst, 2 * rates, name);
    ax_golden_tensor_free(&want);
    return AX_OK;
}

static enum ax_status compare_norms(struct ax_run *r, const char *name, const double *got,
                                    const double *start, int64_t n) {
    const struct ax_json root = ax_json_root(&r->doc);
    char full[AX_NAME_MAX + 16];
    double norm, moved;
    snprintf(full, sizeof full, "%s%s", prefix_of(r), name);
    AX_TRY(ax_json_f64(ax_json_get(ax_json_get(root, "final_norm"), full), &norm));
    AX_TRY(ax_json_f64(ax_json_get(ax_json_get(root, "final_moved"), full), &moved));
    const double tolerance = NORM_SHARE * moved;
    ax_golden_note(r->report, "final norms", fabs(distance(got, NULL, n) - norm), tolerance, name);
    ax_golden_note(r->report, "final moves", fabs(distance(got, start, n) - moved), tolerance,
                   name);
    return AX_OK;
}

/* The reference lists the parameters without weight decay by its optimizer's groups. */
static bool decays(const struct ax_run *r, const char *name) {
    const struct ax_json list = ax_json_get(ax_json_root(&r->doc), "undecayed");
    for (size_t i = 0; i < ax_json_size(list); i++) {
        const char *n = json_string_value(ax_json_at(list, i).v);
        if (n && strcmp(n, name) == 0)
            return false;
    }
    return r->step.opt.weight_decay > 0;
}

static enum ax_status compare_parameter(struct ax_run *r, const struct ax_model *m, int i,
                                        const double *start, double rates, struct sums *sums) {
    const struct ax_param *p = &m->params[i];
    const struct ax_tensor value = ax_model_value(m, p);
    const int64_t n = ax_tensor_numel(&value);
    double *got = NULL;
    enum ax_status st;
    AX_TRY_GOTO(ax_golden_values(m->rt->q, &value, &got), st, done);
    if (ax_json_get(ax_json_root(&r->doc), "undecayed").v)
        ax_golden_note(r->report, "decay of parameters that differ",
                       decays(r, p->name) != (p->decay && r->step.opt.weight_decay > 0), 0,
                       p->name);
    AX_TRY_GOTO(compare_norms(r, p->name, got, start, n), st, done);
    if (r->own.path) {
        AX_TRY_GOTO(compare_tensor(r, "final64", p->name, got, start, n, rates, sums), st, done);
        AX_TRY_GOTO(compare_tensor(r, "final", p->name, got, start, n, rates, sums), st, done);
    }
done:
    ax_free(got);
    return st;
}

static double count_known(const struct ax_run *r) {
    const json_t *norms = ax_json_get(ax_json_root(&r->doc), "final_norm").v;
    const char *name;
    json_t *norm;
    double n = 0;
    json_object_foreach((json_t *)(uintptr_t)norms, name, norm) n +=
        strncmp(name, prefix_of(r), strlen(prefix_of(r))) == 0;
    return n;
}

enum ax_status ax_run_compare_final(struct ax_run *r, const struct ax_model *m,
                                    const struct ax_run_start *start) {
    struct sums sums = {0};
    double rates = 0;
    int trained = 0;
    for (int step = 0; step < r->n_steps; step++)
        rates += ax_lr_at(&r->lr, step) * (r->uses > 0 ? r->uses : 1);
    for (int i = 0; i < m->n_params; i++) {
        if (!m->params[i].trainable)
            continue;
        trained++;
        AX_TRY(compare_parameter(r, m, i, start->values[i], rates, &sums));
    }
    ax_golden_note(r->report, "trained tensors more or fewer", fabs(count_known(r) - trained), 0,
                   "final_norm");
    if (!r->own.path)
        return AX_OK;
    if (sums.n == 0)
        return ax_error(AX_ERR_DATA, "%s: has no final parameters", r->own.path);
    ax_golden_note(r->report, "final parameters > 1e-5 (share)", (double)sums.off / (double)sums.n,
                   SHARE, "");
    ax_golden_note(r->report, "final parameters (of their move)",
                   sqrt(sums.difference / sums.moved), MOVED, "");
    return AX_OK;
}

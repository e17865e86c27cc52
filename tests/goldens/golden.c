/* Loading golden tensors, and comparing them. */
#include "tests/goldens/golden.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/transfer.h"
#include "tests/goldens/digest.h"

void ax_golden_absent(struct ax_golden_report *r, const char *file, bool optional) {
    printf("  absent: %s\n", file);
    r->absent++;
    r->left_out += !optional;
}

void ax_golden_error(struct ax_golden_report *r, const char *what) {
    printf("  FAIL  %s: %s\n", what, ax_error_text());
    r->checked++;
    r->failed++;
}

enum ax_status golden_read_form(const struct ax_safetensors *st, const char *name,
                                struct ax_golden_tensor *out) {
    *out = (struct ax_golden_tensor){0};
    const struct ax_st_entry *e = ax_safetensors_find(st, name);
    if (!e)
        return ax_error(AX_ERR_DATA, "%s: tensor %s is missing", st->path, name);
    out->name = e->name;
    out->ndim = e->ndim;
    memcpy(out->shape, e->shape, sizeof out->shape);
    out->numel = e->numel;
    AX_TRY(golden_form_of(st, name, out));
    const size_t n = strlen(st->path), m = strlen(GOLDEN_SAMPLE_END);
    if (n > m && strcmp(st->path + n - m, GOLDEN_SAMPLE_END) == 0)
        out->form = GOLDEN_SAMPLED;
    AX_TRY(ax_alloc(&out->v, (size_t)e->numel, sizeof *out->v));
    return ax_st_read(e, 0, e->numel, AX_F64, out->v);
}

enum ax_status ax_golden_read(const struct ax_safetensors *st, const char *name,
                              struct ax_golden_tensor *out) {
    AX_TRY(golden_read_form(st, name, out));
    if (out->form == GOLDEN_FULL)
        return AX_OK;
    ax_golden_tensor_free(out);
    return ax_error(AX_ERR_DATA, "%s: %s is a digest, but this check needs all of its values",
                    st->path, name);
}

bool golden_fits(struct ax_golden_tensor *t, int64_t n) {
    if (t->form == GOLDEN_SAMPLED && t->numel == (n < GOLDEN_SAMPLE ? n : GOLDEN_SAMPLE)) {
        t->form = n > GOLDEN_SAMPLE ? GOLDEN_SAMPLED : GOLDEN_FULL;
        t->numel = n;
    }
    return t->numel == n;
}

void ax_golden_tensor_free(struct ax_golden_tensor *t) {
    ax_free(t->v);
    *t = (struct ax_golden_tensor){0};
}

enum ax_status ax_golden_values(struct ax_queue *q, const struct ax_tensor *t, double **out) {
    AX_TRY(ax_alloc(out, (size_t)ax_tensor_numel(t), sizeof **out));
    return ax_tensor_read(q, t, AX_F64, *out);
}

double ax_golden_worse(double a, double b) {
    return b > a || isnan(b) ? b : a;
}

double ax_golden_max_abs(const double *a, const double *b, int64_t n) {
    double worst = 0;
    for (int64_t i = 0; i < n; i++)
        worst = ax_golden_worse(worst, fabs(a[i] - b[i]));
    return worst;
}

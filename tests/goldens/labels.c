#include "tests/goldens/labels.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/transfer.h"

static bool is_labeled(const struct ax_golden_labels *l, int64_t i) {
    return l->mask[i] != 0;
}

static const double *values_of(const struct ax_golden_labels *l, const char *name) {
    for (int c = 0; c < AX_COLUMNS_MAX && l->columns[c].name; c++)
        if (strcmp(l->columns[c].name, name) == 0)
            return l->columns[c].values;
    return NULL;
}

/* Documents of one token more than they have labels. */
static enum ax_status fill(const struct ax_golden_labels *l, struct ax_queue *q,
                           struct ax_batch *b) {
    const struct ax_columns *columns = l->objective->columns;
    const int64_t each = l->width + 1, all = l->n * each;
    struct ax_document *docs;
    int32_t *ids;  /* [2][n][each]: tokens, labels */
    float *values; /* [columns][n][each] */
    AX_TRY(ax_alloc(&docs, (size_t)l->n, sizeof *docs));
    AX_TRY(ax_alloc(&ids, (size_t)(2 * all), sizeof *ids));
    AX_TRY(ax_alloc(&values, (size_t)(ax_columns_count(columns) * all), sizeof *values));
    for (int64_t i = 0; i < l->n; i++) {
        docs[i] = (struct ax_document){
            .n = each, .tokens = ids + i * each, .labels = ids + all + i * each};
        for (int64_t t = 0; t < each; t++)
            ids[all + i * each + t] = t < l->width && is_labeled(l, i * l->width + t) ? 0 : -1;
        for (int c = 0; c < ax_columns_count(columns); c++) {
            const double *from = values_of(l, columns->list[c].name);
            const bool single = columns->list[c].of == AX_OF_EXAMPLE;
            float *to = values + c * all + i * each;
            for (int64_t t = 0; from && t < (single ? 1 : l->width); t++)
                to[t] = (float)from[single ? i : i * l->width + t];
            docs[i].columns[c] = (const uint32_t *)to;
        }
    }
    const enum ax_status st = ax_batch_fill(b, q, 1, (int)l->n, docs);
    ax_free(docs);
    ax_free(ids);
    ax_free(values);
    return st;
}

/* Between [n][width] and the rows that the batch lists. */
static enum ax_status write_rows(const struct ax_golden_labels *l, struct ax_queue *q,
                                 const double *from, const struct ax_tensor *to) {
    double *rows;
    int64_t k = 0;
    if (!from)
        return AX_OK;
    AX_TRY(ax_alloc(&rows, (size_t)(l->n * l->width), sizeof *rows));
    for (int64_t i = 0; i < l->n * l->width; i++)
        if (is_labeled(l, i))
            rows[k++] = from[i];
    const enum ax_status st = ax_tensor_write(q, to, AX_F64, rows);
    ax_free(rows);
    return st;
}

static enum ax_status read_rows(const struct ax_golden_labels *l, struct ax_queue *q,
                                const struct ax_tensor *from, double *to) {
    double *rows;
    int64_t k = 0;
    AX_TRY(ax_golden_values(q, from, &rows));
    for (int64_t i = 0; i < l->n * l->width; i++)
        to[i] = is_labeled(l, i) ? rows[k++] : 0;
    ax_free(rows);
    return AX_OK;
}

static enum ax_status read_results(struct ax_golden_labels *l, struct ax_queue *q,
                                   const struct ax_pass *p, const struct ax_head_chunk *c) {
    struct ax_step_scalars now;
    AX_TRY(ax_queue_read(q, p->scalars, &now, sizeof now, NULL));
    AX_TRY(ax_queue_read(q, p->measures, &l->measures, sizeof l->measures, NULL));
    l->loss = now.loss;
    AX_TRY(read_rows(l, q, &c->g_logprob, l->g_logprob));
    return c->g_lse.data ? read_rows(l, q, &c->g_lse, l->g_lse) : AX_OK;
}

/* What the head would have computed of `rows` rows. */
static enum ax_status make_chunk(const struct ax_golden_labels *l, struct ax_runtime *rt,
                                 enum ax_dtype dtype, int64_t rows, struct ax_head_chunk *c) {
    struct ax_tensor *const values[] = {&c->logprob,      &c->lse,       &c->entropy,
                                        &c->mean_logprob, &c->g_logprob, &c->g_lse};
    const int taken = l->objective->head.needs_lse ? 6 : 5;
    for (int i = 0; i < taken; i++) {
        *values[i] = ax_golden_row(rt, dtype, l->n * (l->width + 1));
        values[i]->shape[0] = rows;
        AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){*values[i], 0}));
    }
    c->n = rows;
    return AX_OK;
}

struct run {
    struct ax_golden_labels *l;
    enum ax_dtype dtype;
};

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    const struct run *run = ctx;
    struct ax_golden_labels *l = run->l;
    struct ax_stack *stack = &rt->arena.persistent;
    const int64_t tokens = l->n * (l->width + 1);
    const bool planning = ax_runtime_planning(rt);
    int64_t rows = planning ? tokens : 0;
    struct ax_model model = {.rt = rt};
    struct ax_batch batch;
    struct ax_head_chunk chunk = {0};
    for (int64_t i = 0; !planning && i < l->n * l->width; i++)
        rows += is_labeled(l, i);
    ax_batch_allocate(&batch, stack, tokens, l->n, tokens, 1, 0);
    ax_batch_add_columns(&batch, stack, l->objective->columns);
    AX_TRY(fill(l, rt->q, &batch));
    struct ax_pass p = {.model = &model, .batch = &batch};
    p.scalars = ax_stack_push(stack, "objective check", sizeof *p.scalars);
    p.measures = ax_stack_push(stack, "objective check", sizeof *p.measures);
    const struct ax_step_scalars now = {.inv_weight = l->inv_weight};
    const struct ax_step_measures none = {.tokens = (double)rows, .entropy_tokens = (double)rows};
    AX_TRY(ax_queue_write(rt->q, p.scalars, &now, sizeof now));
    AX_TRY(ax_queue_write(rt->q, p.measures, &none, sizeof none));
    AX_TRY(make_chunk(l, rt, run->dtype, rows, &chunk));
    if (!planning) {
        AX_TRY(write_rows(l, rt->q, l->logprob, &chunk.logprob));
        AX_TRY(write_rows(l, rt->q, l->lse, &chunk.lse));
    }
    AX_TRY(l->objective->head.token_grad(l->objective->head.ctx, &p, &chunk));
    return planning ? AX_OK : read_results(l, rt->q, &p, &chunk);
}

enum ax_status ax_golden_labels_run(struct ax_golden_labels *l, const struct ax_golden_options *o) {
    struct run run = {.l = l, .dtype = strcmp(o->backend, "ref") == 0 ? AX_F64 : AX_F32};
    const struct ax_runtime_options ro = {.backend = o->backend, .threads = o->threads};
    const size_t n = (size_t)(l->n * l->width);
    AX_TRY(ax_alloc(&l->g_logprob, n, sizeof *l->g_logprob));
    AX_TRY(ax_alloc(&l->g_lse, n, sizeof *l->g_lse));
    return ax_runtime_run(&ro, body, &run, NULL);
}

void ax_golden_labels_free(struct ax_golden_labels *l) {
    ax_free(l->g_logprob);
    ax_free(l->g_lse);
    l->g_logprob = l->g_lse = NULL;
}

/* ---- comparing ---- */

enum ax_status ax_golden_expect(struct ax_golden_report *r, struct ax_json e, const char *family,
                                const char *name, double got) {
    const struct ax_json expected = ax_json_get(ax_json_get(e, "expect"), name);
    const char *where;
    char group[80];
    double want;
    if (!expected.v)
        return AX_OK;
    AX_TRY(ax_json_str(ax_json_get(e, "name"), &where));
    AX_TRY(ax_json_f64(expected, &want));
    snprintf(group, sizeof group, "%s %s (relative)", family, name);
    ax_golden_note(r, group, fabs(got - want) / fmax(fabs(want), 1e-2),
                   AX_GOLDEN_OBJECTIVE_TOLERANCE, where);
    return AX_OK;
}

enum ax_status ax_golden_gradient(struct ax_golden_report *r, const struct ax_safetensors *st,
                                  struct ax_json e, const char *family, const char *input,
                                  const double *got, int64_t numel) {
    const char *name;
    char full[128], group[80];
    struct ax_golden_tensor want;
    double largest = 0;
    AX_TRY(ax_json_str(ax_json_get(e, "name"), &name));
    snprintf(full, sizeof full, "%s.grad.%s", name, input);
    AX_TRY(ax_golden_read(st, full, &want));
    enum ax_status status = AX_OK;
    if (want.numel != numel)
        status = ax_error(AX_ERR_DATA, "%s: %s: the shape does not match", st->path, full);
    for (int64_t i = 0; i < want.numel; i++)
        largest = fmax(largest, fabs(want.v[i]));
    snprintf(group, sizeof group, "%s gradient of %s", family, input);
    if (status == AX_OK)
        ax_golden_note(r, group, ax_golden_max_abs(got, want.v, numel) / fmax(largest, 1e-2),
                       AX_GOLDEN_OBJECTIVE_TOLERANCE, name);
    ax_golden_tensor_free(&want);
    return status;
}

/* A layer's weights are first the model's, then rounded to nearest, then those that are written. */
#include "cmd/convert/quantize_layers.h"

#include "base/mem.h"
#include "kernels/quant_block.h"

/* A layer's linears, and what each reads. */
struct state {
    struct ax_quantize_layers *s;
    struct ax_quantize_layer *report;
    int n;
    struct ax_linear *linears[AX_LAYER_MAX_LINEARS];
    struct ax_gptq inputs[AX_LAYER_MAX_LINEARS];
};

static enum ax_status see(void *ctx, const struct ax_linear *l, const struct ax_tensor *x) {
    struct state *t = ctx;
    const int64_t n = ax_calibration_tokens(&t->s->rows);
    const struct ax_tensor used = ax_tensor_rows(x, 0, n < x->shape[0] ? n : x->shape[0]);
    for (int i = 0; i < t->n; i++)
        if (t->linears[i] == l)
            return ax_gptq_see(t->s->model->rt->q, &t->inputs[i], &used);
    return AX_OK;
}

static enum ax_status watch(struct state *t, int layer) {
    const struct ax_linear_watch w = {see, t};
    for (int i = 0; i < t->n; i++) {
        AX_TRY(ax_gptq_open(&t->inputs[i], ax_linear_in(t->linears[i])));
        t->linears[i]->watch = &w;
    }
    const enum ax_status st = ax_calibration_watch(&t->s->rows, layer);
    for (int i = 0; i < t->n; i++)
        t->linears[i]->watch = NULL;
    return st;
}

/* ---- one matrix ---- */

/* Values become the weights of the layer. */
static enum ax_status use_values(struct state *t, const struct ax_param *p, const float *values) {
    const struct ax_tensor w = ax_unit_weight(&t->s->model->units[p->unit], p);
    return ax_queue_write(t->s->model->rt->q, w.data, values, ax_tensor_bytes(&w));
}

/* *sum += the squared error of the outputs; values become the differences from x. */
static enum ax_status add_output_error(struct state *t, const struct ax_gptq *g,
                                       const struct ax_quantized_matrix *m, float *values,
                                       double *sum) {
    double error;
    for (int64_t i = 0; i < m->e->numel && !ax_queue_is_meta(t->s->model->rt->q); i++)
        values[i] -= m->x[i];
    AX_TRY(ax_gptq_error(t->s->model->rt->q, g, m->rows, values, &error));
    *sum += error;
    return AX_OK;
}

static void add_weight_error(struct ax_quantize_layer *r, const struct ax_quantized_matrix *m,
                             const float *values) {
    for (int64_t i = 0; i < m->e->numel; i++) {
        const double w = (double)m->x[i], error = (double)values[i] - w;
        r->squares += w * w;
        r->errors += error * error;
    }
}

/* Rounded to nearest. */
static enum ax_status round_nearest(struct state *t, const struct ax_param *p,
                                    struct ax_quantized_matrix *m, float *values) {
    struct ax_queue *q = t->s->model->rt->q;
    AX_TRY(ax_quantized_matrix_make(m, q));
    AX_TRY(ax_quantized_matrix_values(m, q, values));
    if (!t->s->gptq && !ax_queue_is_meta(q))
        add_weight_error(t->report, m, values);
    return use_values(t, p, values);
}

static enum ax_status round_gptq(struct state *t, const struct ax_gptq *g, const struct ax_param *p,
                                 struct ax_quantized_matrix *m, float *values) {
    struct ax_queue *q = t->s->model->rt->q;
    struct ax_quantize_layer *r = t->report;
    const struct ax_gptq_matrix round = {.rows = m->rows,
                                         .block = m->block,
                                         .w = m->x,
                                         .codes = (signed char *)m->codes,
                                         .scale = m->scale,
                                         .value = values,
                                         .threads = t->s->threads};
    double squares;
    AX_TRY(ax_quantized_matrix_values(m, q, values));
    AX_TRY(add_output_error(t, g, m, values, &r->nearest));
    AX_TRY(ax_gptq_error(q, g, m->rows, m->x, &squares));
    r->outputs += squares;
    AX_TRY(ax_gptq_round(q, g, t->s->gptq, &round));
    if (!ax_queue_is_meta(q))
        add_weight_error(r, m, values);
    AX_TRY(use_values(t, p, values));
    return add_output_error(t, g, m, values, &r->chosen);
}

/* ---- all of them ---- */

static enum ax_status round_matrix(struct state *t, const struct ax_gptq *g,
                                   const struct ax_param *p) {
    struct ax_quantized_matrix *m = t->s->find(t->s->ctx, ax_hf_find(t->s->hf, p->name));
    float *values;
    if (!m)
        return AX_OK;
    AX_TRY(ax_alloc(&values, (size_t)m->e->numel, sizeof *values));
    const enum ax_status st = g ? round_gptq(t, g, p, m, values) : round_nearest(t, p, m, values);
    ax_free(values);
    return st;
}

static enum ax_status round_all(struct state *t, bool gptq) {
    for (int i = 0; i < t->n; i++) {
        struct ax_gptq *g = gptq ? &t->inputs[i] : NULL;
        if (g)
            AX_TRY(ax_gptq_factor(t->s->model->rt->q, g, t->s->gptq));
        for (int k = 0; k < t->linears[i]->n_parts; k++)
            AX_TRY(round_matrix(t, g, t->linears[i]->weight[k]));
    }
    return AX_OK;
}

static enum ax_status run(struct state *t, int layer) {
    struct ax_calibration *c = &t->s->rows;
    AX_TRY(ax_calibration_measure(c, layer, AX_VERSION_ORIGINAL));
    if (t->s->gptq)
        AX_TRY(watch(t, layer));
    AX_TRY(round_all(t, false));
    AX_TRY(ax_calibration_measure(c, layer, AX_VERSION_NEAREST));
    if (!t->s->gptq)
        return AX_OK;
    AX_TRY(round_all(t, true));
    AX_TRY(ax_calibration_advance(c, layer));
    return ax_calibration_measure(c, layer, AX_VERSION_CHOSEN);
}

enum ax_status ax_quantize_layer_run(struct ax_quantize_layers *s, int layer,
                                     struct ax_quantize_layer *report) {
    struct state t = {.s = s, .report = report};
    struct ax_unit *unit = &s->model->units[layer + 1];
    t.n = ax_layer_linears(&s->model->layers[layer], t.linears);
    AX_TRY(ax_model_load_unit(s->model, s->hf, layer + 1));
    AX_TRY(ax_unit_gather(unit, s->model->rt));
    const enum ax_status st = run(&t, layer);
    ax_unit_release(unit);
    for (int i = 0; i < t.n; i++)
        ax_gptq_close(&t.inputs[i]);
    return st;
}

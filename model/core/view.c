#include "model/core/pass.h"

int ax_model_unit_needs(const struct ax_model *m, int unit) {
    const bool embeds = unit == m->n_units - 2 && ax_arch_predicts(&m->arch);
    return embeds || (unit == m->n_units - 1 && m->lm_head == m->embed) ? 0 : -1;
}

enum ax_status ax_model_start_gather(const struct ax_model *m, int unit, bool codes) {
    const int also = ax_model_unit_needs(m, unit);
    AX_TRY(ax_unit_start_gather(&m->units[unit], m->rt, codes));
    return also < 0 ? AX_OK : ax_unit_start_gather(&m->units[also], m->rt, codes);
}

enum ax_status ax_model_arrive(const struct ax_model *m, int unit) {
    const int also = ax_model_unit_needs(m, unit);
    AX_TRY(ax_unit_arrive(&m->units[unit], m->rt));
    return also < 0 ? AX_OK : ax_unit_arrive(&m->units[also], m->rt);
}

enum ax_status ax_model_gather(const struct ax_model *m, int unit) {
    AX_TRY(ax_model_start_gather(m, unit, false));
    return ax_model_arrive(m, unit);
}

void ax_model_release(const struct ax_model *m, int unit) {
    const int also = ax_model_unit_needs(m, unit);
    ax_unit_release(&m->units[unit]);
    if (also >= 0)
        ax_unit_release(&m->units[also]);
}

int64_t ax_model_parameters(const struct ax_model *m) {
    int64_t n = 0;
    for (int i = 0; i < m->n_params; i++)
        n += m->params[i].buffer ? 0 : ax_param_numel(&m->params[i]);
    return n;
}

int64_t ax_model_trainable(const struct ax_model *m) {
    int64_t n = 0;
    for (int i = 0; i < m->n_params; i++)
        n += m->params[i].trainable ? ax_param_numel(&m->params[i]) : 0;
    return n;
}

/* How many times forward's FLOPs a matrix in `unit` costs. */
static int passes(const struct ax_model *m, int unit, bool trained) {
    return 1 + (unit >= m->lowest_unit) + trained;
}

static double matrix_flops(const struct ax_model *m, const struct ax_param *p) {
    const bool head = p == m->lm_head;
    const bool looked_up = p == m->embed || p == m->embed_adapter.a || p == m->per_layer.table;
    if (!ax_param_is_matrix(p) || p->frozen || (looked_up && !head))
        return 0;
    const double active =
        p->ep_dim >= 0 ? (double)m->arch.moe.n_active / (double)m->arch.moe.n_experts : 1;
    const int uses = head && ax_arch_predicts(&m->arch) ? 2 : 1;
    return 2 * active * uses * (double)ax_param_numel(p) *
           passes(m, head ? m->n_units - 1 : p->unit, p->trainable);
}

double ax_model_flops_per_token(const struct ax_model *m, int64_t seq) {
    const struct ax_arch *a = &m->arch;
    double flops = 0;
    for (int i = 0; i < m->n_params; i++)
        flops += matrix_flops(m, &m->params[i]);
    for (int i = 0; i < a->n_layers; i++) { /* all of its inputs come from the layer's x */
        const struct ax_part_type *mixer = a->layers[i].mixer;
        flops += mixer->choosing ? mixer->choosing(a, seq) : 0;
        flops += mixer->mixing
                     ? mixer->mixing(a, &a->layers[i], seq) * (i + 1 >= m->lowest_unit ? 3 : 1)
                     : 0;
    }
    return flops;
}

static struct ax_tensor param_part(const struct ax_model *m, const struct ax_tensor *flat,
                                   const struct ax_param *p) {
    int64_t first, n, at;
    if (!flat->data)
        return (struct ax_tensor){.dtype = flat->dtype};
    ax_unit_owned(&m->units[p->unit], &m->rt->mesh, p, &first, &n, &at);
    if (n == 0)
        return (struct ax_tensor){.dtype = flat->dtype};
    const struct ax_tensor part = ax_tensor_rows(flat, at, n);
    return n < ax_param_numel(p) ? part : ax_tensor_nd(flat->dtype, part.data, p->ndim, p->shape);
}

struct ax_tensor ax_model_value(const struct ax_model *m, const struct ax_param *p) {
    AX_ASSERT(!p->panels);
    const struct ax_segment *seg = &m->units[p->unit].segments[p->segment];
    return param_part(m, seg->master.data ? &seg->master : &seg->shard, p);
}

struct ax_tensor ax_model_grad(const struct ax_model *m, const struct ax_param *p) {
    return param_part(m, &m->units[p->unit].segments[p->segment].grad, p);
}

int ax_layer_linears(struct ax_layer *l, struct ax_linear *out[AX_LAYER_MAX_LINEARS]) {
    int n = l->spec.mixer->linears(l, out);
    n += l->spec.ffn->linears(l, out + n);
    if (l->spec.extra)
        n += l->spec.extra->linears(l, out + n);
    if (l->spec.predicts)
        out[n++] = &l->predict.join;
    AX_ASSERT(n <= AX_LAYER_MAX_LINEARS);
    return n;
}

int ax_adapter_of_unit(struct ax_model *m, int unit,
                       const struct ax_adapter *out[AX_UNIT_MAX_ADAPTERS]) {
    struct ax_linear *linears[AX_LAYER_MAX_LINEARS] = {&m->head};
    int n = 0, n_linears = 1;
    if (!ax_unit_present(&m->units[unit]) || unit == 0)
        return 0;
    if (unit < m->n_units - 1)
        n_linears = ax_layer_linears(&m->layers[unit - 1], linears);
    for (int i = 0; i < n_linears; i++)
        for (int part = 0; part < linears[i]->n_parts; part++)
            if (linears[i]->adapter[part].a)
                out[n++] = &linears[i]->adapter[part];
    return n;
}

bool ax_model_quantizes(struct ax_model *m, const struct ax_scheme *s, const struct ax_param *p) {
    struct ax_linear *linears[AX_LAYER_MAX_LINEARS];
    if (p == m->embed || p == m->lm_head)
        return p == m->embed ? s->embedding : s->head && !m->arch.classifier;
    if (p->unit == 0 || p->unit == m->n_units - 1)
        return false;
    struct ax_layer *l = &m->layers[p->unit - 1];
    const int n = ax_layer_linears(l, linears);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < linears[i]->n_parts; k++)
            if (linears[i]->weight[k] == p)
                return linears[i] != &l->moe.gate;
    return p->expert && p->ndim == 2;
}

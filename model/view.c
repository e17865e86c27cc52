#include "model/layer.h"

int ax_model_unit_needs(const struct ax_model *m, int unit) {
    return unit == m->n_units - 1 && m->lm_head == m->embed ? 0 : -1;
}

int64_t ax_model_parameters(const struct ax_model *m) {
    int64_t n = 0;
    for (int i = 0; i < m->n_params; i++)
        n += ax_param_numel(&m->params[i]);
    return n;
}

int64_t ax_model_trainable(const struct ax_model *m) {
    int64_t n = 0;
    for (int i = 0; i < m->n_params; i++)
        n += m->params[i].trainable ? ax_param_numel(&m->params[i]) : 0;
    return n;
}

static struct ax_tensor param_part(const struct ax_tensor *flat, const struct ax_param *p) {
    if (!flat->data)
        return (struct ax_tensor){.dtype = flat->dtype};
    char AX_DEVICE *data = flat->data;
    data += (size_t)p->offset * ax_dtype_size(flat->dtype);
    return ax_tensor_nd(flat->dtype, data, p->ndim, p->shape);
}

struct ax_tensor ax_model_value(const struct ax_model *m, const struct ax_param *p) {
    AX_ASSERT(!p->panels);
    const struct ax_segment *seg = &m->units[p->unit].segments[p->segment];
    return param_part(seg->master.data ? &seg->master : &seg->shard, p);
}

struct ax_tensor ax_model_grad(const struct ax_model *m, const struct ax_param *p) {
    return param_part(&m->units[p->unit].segments[p->segment].grad, p);
}

int ax_layer_linears(struct ax_layer *l, struct ax_linear *out[AX_LAYER_MAX_LINEARS]) {
    int n = l->spec.mixer->linears(l, out);
    n += l->spec.ffn->linears(l, out + n);
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

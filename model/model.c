/* Creates a model: parameters per unit in model order, their layout, rope tables. */
#include "model/model.h"

#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "model/adapter/attach.h"
#include "model/adapter/pissa.h"
#include "model/arch/classifier.h"
#include "model/core/adapters.h"
#include "model/core/builder.h"
#include "model/core/linear_codes.h"
#include "model/layer.h"
#include "model/predict.h"
#include "model/arch/split.h"
#include "model/parallel/tensor_parallel.h"
#include "model/parts/per_layer.h"
#include "model/parts/streams.h"

/* A classifier's few rows are on every rank of tp, of which one computes their gradients (head.c). */
static void build_head(struct ax_builder *b, int unit) {
    struct ax_model *m = b->model;
    const struct ax_arch *a = b->arch;
    const struct ax_param_decl head = {
        .name = "lm_head.weight", .rows = a->vocab_size, .cols = a->hidden_size};
    const struct ax_param_decl score = {.name = "score.weight",
                                        .rows = a->n_labels,
                                        .cols = a->hidden_size,
                                        .tp_dim = -1,
                                        .grad_partial_over = AX_TP_PARTIAL};
    m->lm_head = a->tied ? m->embed : ax_builder_add(b, -1, a->classifier ? &score : &head);
    m->head = (struct ax_linear){
        .unit = &m->units[a->tied ? 0 : unit], .n_parts = 1, .weight = {m->lm_head}};
    const struct ax_param_decl bias = {.name = "score.bias",
                                       .rows = a->n_labels,
                                       .tp_dim = -1,
                                       .grad_partial_over = AX_TP_PARTIAL};
    if (a->classifier && a->classifier->biased)
        m->head.bias[0] = ax_builder_add(b, -1, &bias);
}

static enum ax_status check_quant(const struct ax_builder *b) {
    const struct ax_peft_config *c = b->options->adapter;
    if (!ax_fake_quant_merges(&b->model->quant))
        return AX_OK;
    if (b->arch->moe.stacked)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "qat: the experts of %s are one tensor, which no scheme quantizes; "
                        "remove qat",
                        b->arch->family->model_type);
    if (c && c->dropout > 0)
        return ax_error(AX_ERR_CONFIG,
                        "qat: the forward pass uses the merged weights, so an adapter can have no "
                        "dropout; set lora_dropout: 0");
    return AX_OK;
}

/* Weights that read the same inputs, which are quantized if the folder has the weights quantized. */
struct readers {
    const struct ax_hf *folder;
    const char *quantized, *plain; /* a weight of each kind, or NULL */
};

static void note_reader(struct readers *r, const char *name) {
    const struct ax_st_entry *e = ax_hf_find(r->folder, name);
    *(e && e->quantized ? &r->quantized : &r->plain) = name;
}

static enum ax_status check_readers(const struct readers *r) {
    if (!r->quantized || !r->plain)
        return AX_OK;
    return ax_error(AX_ERR_UNSUPPORTED,
                    "%s: %s is quantized and %s is not, but they read the same inputs, which "
                    "input_activations of config.json rounds for the first one alone. Use the "
                    "original weights, or a folder in which both are quantized.",
                    r->folder->dir, r->quantized, r->plain);
}

static enum ax_status quantize_linear(struct ax_model *m, const struct ax_hf *folder,
                                      struct ax_linear *linear) {
    struct readers r = {.folder = folder};
    for (int k = 0; k < linear->n_parts && m->quant.stored; k++)
        note_reader(&r, linear->weight[k]->name);
    if (!r.plain || r.quantized)
        linear->quant = &m->quant;
    return check_readers(&r);
}

static enum ax_status quantize_experts(struct ax_model *m, const struct ax_hf *folder,
                                       struct ax_layer *l) {
    struct readers r = {.folder = folder};
    for (int i = 0; i < m->n_params && m->quant.stored; i++)
        if (m->params[i].unit == l->index + 1 && m->params[i].expert && m->params[i].ndim > 1)
            note_reader(&r, m->params[i].name);
    if (!r.plain || r.quantized)
        l->moe.quant = &m->quant;
    return check_readers(&r);
}

/* The linears and experts of a layer train for the model's scheme, or quantize their inputs as the folder says; not
 * experts in FP8 training. */
static enum ax_status quantize_layer(const struct ax_builder *b, struct ax_layer *l) {
    struct ax_model *m = b->model;
    struct ax_linear *linears[AX_LAYER_MAX_LINEARS];
    const int n = ax_layer_linears(l, linears);
    for (int i = 0; i < n; i++)
        if (linears[i] != &l->moe.gate)
            AX_TRY(quantize_linear(m, b->options->folder, linears[i]));
    if (l->moe.gate_up && !m->quant.scheme.quantizes_grad)
        AX_TRY(quantize_experts(m, b->options->folder, l));
    if (l->moe.quant && !m->quant.stored && (l->moe.gate_up_adapter.a || l->moe.down_adapter.a))
        return ax_error(AX_ERR_CONFIG,
                        "qat: adapters of experts are not supported; name no experts "
                        "in lora_target_parameters");
    for (int i = 0; i < m->n_params; i++) {
        const struct ax_param *p = &m->params[i];
        const bool here = p->unit == l->index + 1 && p->ndim == 2 && p->local_shape[1] > 0;
        if (here && ax_model_quantizes(m, &m->quant.scheme, p) && (!p->expert || l->moe.quant))
            AX_TRY(ax_fake_quant_check(&m->quant, p));
    }
    return AX_OK;
}

/* Before the layer's unit is laid out: matrices of which the products of training read nothing but their
 * e4m3 values, by one scale each. DoRA's norms are of the matrices themselves. */
static void code_layer(struct ax_model *m, struct ax_layer *l) {
    struct ax_linear *linears[AX_LAYER_MAX_LINEARS];
    const int n = ax_layer_linears(l, linears);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < linears[i]->n_parts && linears[i] != &l->moe.gate; k++) {
            struct ax_param *w = &m->params[linears[i]->weight[k] - m->params];
            w->coded = w->storage == AX_STORAGE_PLAIN && !linears[i]->adapter[k].magnitude;
        }
}

/* Before that, too: matrices whose gradients are products. */
static void mark_matrices(struct ax_model *m, struct ax_layer *l) {
    struct ax_linear *linears[AX_LAYER_MAX_LINEARS];
    const int n = ax_layer_linears(l, linears);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < linears[i]->n_parts; k++)
            m->params[linears[i]->weight[k] - m->params].linear = true;
}

/* What all linears of a layer are told of how they run. */
static void direct_layer(struct ax_model *m, struct ax_layer *l, bool overlaps) {
    struct ax_linear *linears[AX_LAYER_MAX_LINEARS];
    const int n = ax_layer_linears(l, linears);
    for (int i = 0; i < n; i++) {
        linears[i]->overlaps = overlaps;
        linears[i]->later = &m->later;
    }
}

/* Says which linears are not multiplied as 8-bit floats for their sizes alone, or for their scales. */
static void tell_products(struct ax_model *m) {
    const bool by_rows = m->quant.scheme.quantizes_grad && !ax_fake_quant_of_tensors(&m->quant);
    int odd = 0;
    for (int i = 0; i < (int)m->arch.n_layers; i++) {
        struct ax_linear *linears[AX_LAYER_MAX_LINEARS];
        const int n = ax_layer_linears(&m->layers[i], linears);
        for (int k = 0; k < n; k++) {
            bool is_odd;
            (void)ax_linear_takes_codes(m->rt, linears[k], &is_odd);
            odd += is_odd;
        }
    }
    if (odd > 0 && !ax_runtime_planning(m->rt))
        ax_log_info("fp8: %d linears have sizes that are no multiples of %d; their products are of "
                    "the values of 8-bit floats, in the compute dtype",
                    odd, AX_FP8_STEP);
    if (by_rows && !ax_runtime_planning(m->rt) && ax_linear_device_takes_codes(m->rt->q, true) &&
        !ax_linear_device_takes_codes(m->rt->q, false))
        ax_log_info("fp8: this GPU multiplies 8-bit floats with one scale for each operand; "
                    "products of rowwise are of their values, in the compute dtype");
}

/* The ends of the model train for the scheme, where it has them. */
static enum ax_status quantize_ends(struct ax_model *m) {
    const struct ax_scheme *s = &m->quant.scheme;
    if (s->head && m->arch.classifier)
        return ax_error(AX_ERR_CONFIG,
                        "qat.quantize_head: this model has a score for each label instead of "
                        "logits; remove it");
    if ((s->embedding && m->embed_adapter.a) || (s->head && m->head.adapter[0].a))
        return ax_error(AX_ERR_CONFIG,
                        "qat.quantize_%s: its adapter is not supported; remove it from "
                        "lora_target_modules, or train it in full by lora_modules_to_save",
                        s->embedding && m->embed_adapter.a ? "embedding" : "head");
    if (s->head)
        m->head.quant = &m->quant;
    if (s->embedding && ax_unit_present(&m->units[0]))
        AX_TRY(ax_fake_quant_check(&m->quant, m->embed));
    return s->head ? ax_fake_quant_check(&m->quant, m->lm_head) : AX_OK;
}

/* A tied head reads the embedding, whose inputs are ids. */
static bool quantizes_head(const struct ax_model *m, const struct ax_hf *folder) {
    const struct ax_st_entry *e = m->arch.tied ? NULL : ax_hf_find(folder, "lm_head.weight");
    return e && e->quantized;
}

static enum ax_status build_units(struct ax_builder *b) {
    struct ax_model *m = b->model;
    const struct ax_arch *a = b->arch;
    const struct ax_param_decl embed = {
        .name = "model.embed_tokens.weight", .rows = a->vocab_size, .cols = a->hidden_size};
    const int last = m->n_units - 1;
    snprintf(m->units[0].name, AX_NAME_MAX, "embedding");
    m->embed = ax_builder_add(b, -1, &embed);
    m->params[m->embed - m->params].linear = a->tied;
    ax_per_layer_init(b);
    ax_streams_init_begin(b);
    AX_TRY(ax_adapter_attach_end(b, 0));
    AX_TRY(ax_builder_finish_unit(b, 0));
    int with_keys = 0, with_state = 0, indexers = 0;
    for (int i = 0; i < (int)a->n_layers; i++) {
        struct ax_layer *l = &m->layers[i];
        *l = (struct ax_layer){.index = i, .spec = a->layers[i], .unit = &m->units[i + 1]};
        l->nth_keys = l->spec.borrows ? m->layers[l->spec.source].nth_keys : with_keys;
        l->nth_state = with_state;
        with_keys += l->spec.mixer->keys && !l->spec.borrows;
        with_state += l->spec.mixer->state != NULL;
        l->indexer.nth = l->spec.mixer == &ax_mixer_dsa ? indexers++ : 0;
        snprintf(l->unit->name, AX_NAME_MAX, "layer %d", i);
        const bool quantized = m->quant.on && i >= b->options->unquantized_first &&
                               i < a->n_layers - b->options->unquantized_last;
        AX_TRY(ax_layer_init(b, l));
        if (quantized && ax_fake_quant_of_tensors(&m->quant))
            code_layer(m, l);
        mark_matrices(m, l);
        AX_TRY(ax_builder_finish_unit(b, i + 1));
        direct_layer(b->model, l, b->options->tp_overlap);
        if (quantized)
            AX_TRY(quantize_layer(b, l));
    }
    snprintf(m->units[last].name, AX_NAME_MAX, "head");
    ax_streams_init_end(b);
    if (ax_arch_predicts(a))
        ax_predict_init_end(b);
    else
        m->final_norm = ax_builder_add_norm(b, -1, "model.norm.weight", a->hidden_size);
    build_head(b, last);
    m->params[m->lm_head - m->params].linear = true;
    AX_TRY(ax_adapter_attach_end(b, last));
    AX_TRY(ax_builder_finish_unit(b, last));
    if (m->quant.on)
        AX_TRY(quantize_ends(m));
    tell_products(m);
    if (b->options->unfrozen)
        AX_TRY(ax_freeze_check(m, b->options->unfrozen));
    return ax_adapter_check(m);
}

/* The parameters of a unit; returns the first. */
static const struct ax_param *params_of(const struct ax_model *m, int unit, int *n) {
    int first = 0;
    while (first < m->n_params && m->params[first].unit < unit)
        first++;
    *n = 0;
    while (first + *n < m->n_params && m->params[first + *n].unit == unit)
        ++*n;
    return m->params + first;
}

/* Does an adapter's folder have matrices that go in place of the base's? Those of modules_to_save; and
 * what PEFT stores beside adapters of the embedding and the head. */
static bool replaces(const struct ax_model *m, int n, const struct ax_param *params) {
    bool saved = false, adapted = false;
    for (int i = 0; i < n; i++) {
        saved = saved || (params[i].trainable && !params[i].adapter);
        adapted = adapted || params[i].adapter;
    }
    const bool end = params->unit == 0 || params->unit == m->n_units - 1;
    return (m->adapter && saved) || (end && adapted);
}

static void borrow(struct ax_model *m, const struct ax_model *lender) {
    for (int u = 0; lender && u < m->n_units && u < lender->n_units; u++) {
        int n, n_of;
        const struct ax_param *own = params_of(m, u, &n), *of = params_of(lender, u, &n_of);
        if (n > 0 && !replaces(m, n, own))
            ax_unit_borrow(&m->units[u], n, own, &lender->units[u], n_of, of);
    }
}

/* The layers one over the other. */
static void allocate_one_layer(struct ax_model *m, const struct ax_unit_options *o) {
    struct ax_stack *stack = &m->rt->arena.persistent;
    const size_t below = stack->top;
    size_t top = below;
    for (int u = 1; u < m->n_units - 1; u++) {
        const size_t mark = ax_stack_mark(stack);
        ax_unit_allocate(&m->units[u], m->rt, o, &m->pool, u & 1);
        top = stack->top > top ? stack->top : top;
        ax_stack_release(stack, mark);
    }
    ax_stack_push(stack, "one layer", top - below);
}

/* Allocates all units, once the largest layer is known. */
static void allocate(struct ax_model *m, const struct ax_unit_options *o, bool one_layer) {
    const int last = m->n_units - 1;
    ax_unit_pool_create(&m->pool, m->rt, o, m->units + 1, last - 1);
    ax_unit_allocate(&m->units[0], m->rt, o, NULL, 0);
    if (one_layer)
        allocate_one_layer(m, o);
    for (int u = 1; u < last && !one_layer; u++)
        ax_unit_allocate(&m->units[u], m->rt, o, &m->pool, u & 1);
    ax_unit_allocate(&m->units[last], m->rt, o, NULL, last & 1);
}

static int lowest_trained_unit(const struct ax_model *m) {
    int lowest = m->n_units;
    for (int i = 0; i < m->n_params; i++)
        if (m->params[i].trainable && m->params[i].unit < lowest)
            lowest = m->params[i].unit;
    return lowest < m->n_units ? lowest : 0;
}

static enum ax_status make_rope(struct ax_model *m, struct ax_rope_table *t,
                                const struct ax_rope_config *rope, int64_t positions) {
    if (rope->dim == 0)
        return AX_OK;
    t->cos = t->sin = ax_tensor_2d(m->accum, NULL, positions, rope->dim / 2);
    const size_t bytes = ax_tensor_bytes(&t->cos);
    t->cos.data = ax_stack_push(&m->rt->arena.persistent, "rope tables", bytes);
    t->sin.data = ax_stack_push(&m->rt->arena.persistent, "rope tables", bytes);
    t->seq_len = ax_rope_length(rope, 0);
    if (ax_runtime_planning(m->rt))
        return AX_OK;
    return ax_rope_tables(rope, t->seq_len, m->rt->q, &t->cos, &t->sin);
}

static enum ax_status rope_tables(struct ax_model *m, int64_t positions) {
    AX_TRY(make_rope(m, &m->ropes[AX_ROPE_MAIN], &m->arch.rope, positions));
    AX_TRY(make_rope(m, &m->ropes[AX_ROPE_LOCAL], &m->arch.rope_local, positions));
    return make_rope(m, &m->ropes[AX_ROPE_QUERIES], &m->arch.rope_queries, positions);
}

/* The weight of norms without one, as wide as the widest heads. */
static enum ax_status make_ones(struct ax_model *m) {
    int64_t n = 0;
    for (int64_t i = 0; i < m->arch.n_layers; i++)
        n = m->arch.layers[i].head_dim > n ? m->arch.layers[i].head_dim : n;
    if (n == 0)
        return AX_OK;
    m->ones = ax_stack_take(&m->rt->arena.persistent, "ones", ax_tensor_1d(m->dtype, NULL, n));
    return ax_run_fill(m->rt->q, &(struct ax_fill){m->ones, 1});
}

static void make_loads(struct ax_model *m) {
    struct ax_tensor *t = &m->expert_loads;
    *t = ax_stack_take(&m->rt->arena.persistent, "expert loads",
                       ax_tensor_2d(AX_F64, NULL, m->arch.n_layers, m->arch.moe.n_experts));
}

/* Units of this rank's stage. */
static enum ax_status split_units(struct ax_model *m, const struct ax_model_options *o) {
    const struct ax_mesh *mesh = &m->rt->mesh;
    const int stages = mesh->size[AX_ROLE_PP], stage = mesh->coord[AX_ROLE_PP];
    const int last = m->n_units - 1;
    if (!o->only_predicts)
        return ax_split_units(&m->arch, o->unit_times, o->max_positions, stages,
                              o->chunks > 1 ? o->chunks : 1, stage, &m->chunks);
    if (stage == stages - 1)
        m->chunks = (struct ax_chunks){.n = 1, .list = {{last - 1, last}}};
    return AX_OK;
}

/* A ring attends to all keys of a hop. */
static enum ax_status check_choices(const struct ax_arch *a, enum ax_cp_method method,
                                    const struct ax_mesh *mesh) {
    if (a->index.top == 0 || method != AX_CP_RING || mesh->size[AX_ROLE_CP] == 1)
        return AX_OK;
    return ax_error(AX_ERR_UNSUPPORTED,
                    "context_parallel_method: queries of %s models choose among the keys of all "
                    "ranks, which a ring never has together; set it to gather",
                    a->family->model_type);
}

enum ax_status ax_model_create(struct ax_model *m, const struct ax_arch *arch,
                               struct ax_runtime *rt, const struct ax_model_options *o) {
    *m = (struct ax_model){.arch = *arch,
                           .rt = rt,
                           .dtype = o->dtype,
                           .accum = ax_dtype_accum(o->dtype),
                           .train = o->train,
                           .cp_method = o->cp_method,
                           .indexers = o->indexers,
                           .adapter = o->adapter,
                           .bank = o->bank,
                           .n_units = (int)arch->n_layers + 2};
    const size_t layers = (size_t)arch->n_layers;
    const struct ax_mesh *mesh = &rt->mesh;
    struct ax_builder b = {0};
    enum ax_status st;
    AX_TRY(ax_tp_check(arch, mesh));
    AX_TRY(ax_cp_check(o->cp_method, mesh));
    AX_TRY(check_choices(arch, o->cp_method, mesh));
    AX_TRY(split_units(m, o));
    AX_TRY_GOTO(ax_adapter_bank_begin(m), st, fail);
    AX_TRY_GOTO(ax_alloc(&m->units, layers + 2, sizeof *m->units), st, fail);
    AX_TRY_GOTO(ax_alloc(&m->layers, layers, sizeof *m->layers), st, fail);
    m->units[0].copy = !ax_chunks_have(&m->chunks, 0);
    if (ax_adapter_any_unties(m))
        m->arch.tied = false;
    m->adapter_run = (struct ax_adapter_run){.rt = rt};
    if (arch->moe.n_experts > 0)
        AX_TRY_GOTO(ax_expert_group_create(&m->experts, rt, arch->moe.n_experts, o->expert_room,
                                           o->expert_overlap),
                    st, fail);
    AX_TRY_GOTO(ax_builder_begin(&b, m, o), st, fail);
    if (o->qat)
        m->quant = (struct ax_fake_quant){ax_scheme_of_model(o->qat, m->arch.tied), .on = true,
                                          .straight = o->adapter != NULL};
    else if (o->folder && arch->quantizes_input)
        m->quant = (struct ax_fake_quant){.scheme = {.weight.block = AX_BLOCK_ROW,
                                                     .quantizes_input = true,
                                                     .input = arch->input,
                                                     .head = quantizes_head(m, o->folder)},
                                          .on = true,
                                          .stored = true};
    if (o->folder && arch->unfollowed && !ax_runtime_planning(rt))
        ax_log_warn("%s: quantization_config: %s is not followed: only the weights are "
                    "quantized, as with transformers' dequantize, so programs that follow it may "
                    "compute other values",
                    o->folder->dir, arch->unfollowed);
    if (m->quant.on)
        AX_TRY_GOTO(check_quant(&b), st, fail);
    AX_TRY_GOTO(build_units(&b), st, fail);
    borrow(m, o->lender);
    allocate(m, &b.units, o->one_layer);
    if (ax_fake_quant_of_tensors(&m->quant))
        AX_TRY_GOTO(ax_fake_quant_begin(rt, &m->quant, m->params, m->n_params), st, fail);
    AX_TRY_GOTO(ax_adapter_pissa_allocate(m), st, fail);
    m->lowest_unit = lowest_trained_unit(m);
    AX_TRY_GOTO(rope_tables(m, o->max_positions), st, fail);
    AX_TRY_GOTO(make_ones(m), st, fail);
    if (o->count_loads)
        make_loads(m);
    ax_builder_end(&b);
    return AX_OK;
fail:
    ax_builder_end(&b);
    ax_model_free(m);
    return st;
}

void ax_model_free(struct ax_model *m) {
    ax_free(m->params);
    ax_free(m->units);
    ax_free(m->layers);
    ax_free(m->starts);
    ax_fake_quant_free(&m->quant);
    ax_expert_group_free(&m->experts);
    ax_adapter_bank_end(m);
    *m = (struct ax_model){0};
}

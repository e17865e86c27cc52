#include "model/adapter/restart.h"

#include "model/adapter/load.h"

static bool adapts_experts(const struct ax_model *m) {
    bool found = false;
    for (int i = 0; i < (int)m->arch.n_layers; i++)
        found = found || m->layers[i].moe.gate_up_adapter.a || m->layers[i].moe.down_adapter.a;
    return found;
}

static bool is_packed_base(const struct ax_model *m) {
    bool found = false;
    for (int i = 0; i < m->n_params; i++)
        found = found || m->params[i].storage != AX_STORAGE_PLAIN;
    return found;
}

static bool trains_base(const struct ax_model *m) {
    bool found = false;
    for (int i = 0; i < m->n_params; i++)
        found = found || (m->params[i].trainable && !m->params[i].adapter);
    return found;
}

enum ax_status ax_adapter_restart_check(const struct ax_model *m) {
    const struct ax_peft_config *c = m->adapter;
    if (!c)
        return ax_error(AX_ERR_CONFIG, "relora: there is no adapter; set adapter: lora");
    const struct {
        bool is;
        const char *what, *remedy;
    } all[] = {
        {c->dora, "DoRA", "set peft_use_dora: false"},
        {c->start == AX_LORA_RANDOM || c->start == AX_LORA_PISSA,
         "an adapter that does not start at 0", "set peft_init_lora_weights: true or gaussian"},
        {is_packed_base(m), "a quantized base, which would round each merge to its few bits,",
         "set load_in_4bit and load_in_8bit: false, and adapter: lora"},
        {trains_base(m), "training parts of the base beside the adapter",
         "remove lora_modules_to_save and unfrozen_parameters"},
        {m->embed_adapter.a != NULL, "an adapter of the embedding",
         "remove embed_tokens from lora_target_modules"},
        {m->head.adapter[0].a && m->lm_head == m->embed,
         "an adapter of a head that is also the embedding",
         "remove lm_head from lora_target_modules"},
        {adapts_experts(m), "an adapter of experts", "remove lora_target_parameters"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].is)
            return ax_error(AX_ERR_UNSUPPORTED, "relora: %s is not supported; %s", all[i].what,
                            all[i].remedy);
    return AX_OK;
}

/* W += s·B·A in the unit's unsharded weights. */
static enum ax_status merge(struct ax_runtime *rt, const struct ax_adapter *a,
                            struct ax_tensor gathered[AX_MAX_SEGMENTS]) {
    struct ax_stack *scratch = &rt->arena.scratch;
    const struct ax_tensor w = ax_unit_weight(a->unit, a->weight);
    struct ax_tensor A, B;
    AX_TRY(ax_unit_master(a->unit, rt, a->a, gathered, &A));
    AX_TRY(ax_unit_master(a->unit, rt, a->b, gathered, &B));
    const size_t mark = ax_stack_mark(scratch);
    struct ax_tensor change = ax_stack_take(scratch, "merged adapter",
                                            ax_tensor_2d(A.dtype, NULL, w.shape[0], w.shape[1]));
    AX_TRY(ax_run_gemm(rt->q, &(struct ax_gemm){.a = B, .b = A, .c = change, .alpha = a->scale}));
    AX_TRY(ax_run_add(rt->q, &(struct ax_add){w, change, 1}));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

static enum ax_status merge_unit(struct ax_model *m, int unit) {
    const struct ax_adapter *adapters[AX_UNIT_MAX_ADAPTERS];
    struct ax_tensor gathered[AX_MAX_SEGMENTS] = {0};
    struct ax_stack *scratch = &m->rt->arena.scratch;
    const int n = ax_adapter_of_unit(m, unit, adapters);
    if (n == 0)
        return AX_OK;
    const size_t mark = ax_stack_mark(scratch);
    AX_TRY(ax_unit_gather(&m->units[unit], m->rt));
    for (int i = 0; i < n; i++)
        AX_TRY(merge(m->rt, adapters[i], gathered));
    AX_TRY(ax_unit_keep(&m->units[unit], m->rt));
    ax_unit_release(&m->units[unit]);
    ax_stack_release(scratch, mark);
    return AX_OK;
}

enum ax_status ax_adapter_restart(struct ax_model *m, uint64_t seed) {
    for (int unit = 0; unit < m->n_units; unit++)
        AX_TRY(merge_unit(m, unit));
    return ax_adapter_init(m, seed);
}

#include "model/adapter/bank.h"

#include "base/mem.h"
#include "model/adapter/load.h"
#include "model/lora/match.h"
#include "model/core/model.h"

/* ---- while a model is created ---- */

enum ax_status ax_adapter_bank_begin(struct ax_model *m) {
    struct ax_adapter_bank *b = m->bank;
    const size_t layers = (size_t)m->arch.n_layers;
    if (!b)
        return AX_OK;
    AX_ASSERT(b->n > 0 && !m->adapter && !m->train);
    *b = (struct ax_adapter_bank){
        .n = b->n, .pefts = b->pefts, .active = AX_ADAPTER_NONE, .tied = m->arch.tied};
    const size_t places = layers * AX_LAYER_MAX_LINEARS * AX_LINEAR_MAX_PARTS + 2;
    AX_TRY(ax_alloc(&b->places, places, sizeof *b->places));
    AX_TRY(ax_alloc(&b->experts, layers * AX_EXPERT_WEIGHTS, sizeof *b->experts));
    AX_TRY(ax_alloc(&b->places[0].of, places * (size_t)b->n, sizeof *b->places[0].of));
    AX_TRY(ax_alloc(&b->experts[0].of, layers * AX_EXPERT_WEIGHTS * (size_t)b->n,
                    sizeof *b->experts[0].of));
    for (size_t i = 1; i < places; i++)
        b->places[i].of = b->places[0].of + i * (size_t)b->n;
    for (size_t i = 1; i < layers * AX_EXPERT_WEIGHTS; i++)
        b->experts[i].of = b->experts[0].of + i * (size_t)b->n;
    return AX_OK;
}

void ax_adapter_bank_end(struct ax_model *m) {
    struct ax_adapter_bank *b = m->bank;
    if (!b)
        return;
    ax_free(b->places ? b->places[0].of : NULL);
    ax_free(b->experts ? b->experts[0].of : NULL);
    ax_free(b->places);
    ax_free(b->experts);
    ax_free(b->replaced);
    *b = (struct ax_adapter_bank){.n = b->n, .pefts = b->pefts};
}

struct ax_adapter *ax_adapter_bank_place(struct ax_model *m, int k, struct ax_adapter *at) {
    struct ax_adapter_bank *b = m->bank;
    if (!b)
        return at;
    if (k == 0)
        b->places[b->n_places++].at = at;
    return &b->places[b->n_places - 1].of[k];
}

struct ax_expert_adapter *ax_adapter_bank_experts(struct ax_model *m, int k,
                                                  struct ax_expert_adapter *at) {
    struct ax_adapter_bank *b = m->bank;
    if (!b)
        return at;
    if (k == 0)
        b->experts[b->n_experts++].at = at;
    return &b->experts[b->n_experts - 1].of[k];
}

/* ---- parameter values ---- */

enum ax_status ax_adapter_bank_load(struct ax_model *m, const struct ax_hf *hf) {
    struct ax_adapter_bank *b = m->bank;
    b->hf = hf;
    AX_TRY(ax_alloc(&b->replaced, (size_t)m->n_params, sizeof *b->replaced));
    for (int k = 0; k < b->n && !ax_runtime_planning(m->rt); k++)
        AX_TRY(ax_adapter_load_own(m, &b->pefts[k], k + 1));
    return AX_OK;
}

static enum ax_status restore_base(struct ax_model *m) {
    struct ax_adapter_bank *b = m->bank;
    for (int i = 0; i < m->n_params; i++) {
        if (b->replaced[i])
            AX_TRY(ax_model_load_param(m, b->hf, &m->params[i]));
        b->replaced[i] = false;
    }
    return AX_OK;
}

/* An adapter that leaves a tied base tied sees one matrix, even if another adapter separated
 * them. */
static bool sees_one(const struct ax_model *m, int which) {
    return m->bank->tied && !ax_adapter_unties(ax_adapter_config(m, which));
}

static enum ax_status switch_numbers(struct ax_model *m, int which) {
    struct ax_adapter_bank *b = m->bank;
    AX_TRY(ax_queue_finish(m->rt->q));
    AX_TRY(restore_base(m));
    if (which == AX_ADAPTER_NONE)
        return AX_OK;
    return ax_adapter_load_replaced(m, &b->pefts[which], which + 1, sees_one(m, which),
                                    b->replaced);
}

enum ax_status ax_adapter_bank_use(struct ax_model *m, int which) {
    struct ax_adapter_bank *b = m->bank;
    AX_ASSERT(which >= AX_ADAPTER_NONE && which < b->n);
    if (which == b->active)
        return AX_OK;
    if (!ax_runtime_planning(m->rt))
        AX_TRY(switch_numbers(m, which));
    const bool none = which == AX_ADAPTER_NONE;
    for (int i = 0; i < b->n_places; i++)
        *b->places[i].at = none ? (struct ax_adapter){0} : b->places[i].of[which];
    for (int i = 0; i < b->n_experts; i++)
        *b->experts[i].at = none ? (struct ax_expert_adapter){0} : b->experts[i].of[which];
    b->active = which;
    return AX_OK;
}

/* Memory and tables of a step, before the first one. */
#include <stdio.h>

#include "base/mem.h"
#include "model/adapter/restart.h"
#include "model/tensor_parallel.h"
#include "optim/step.h"

/* A micro-batch's routing counts must include all layers. */
static enum ax_status check_balance(const struct ax_step *s, const struct ax_arch *arch) {
    if (s->o.balance_coef == 0 || arch->moe.n_experts == 0 || s->rt->mesh.size[AX_ROLE_PP] == 1)
        return AX_OK;
    return ax_error(AX_ERR_UNSUPPORTED,
                    "router_aux_loss_coef: the routers' balancing loss is not implemented with a "
                    "pipeline (pp %d). Set it to 0, or pp to 1.",
                    s->rt->mesh.size[AX_ROLE_PP]);
}

static enum ax_status create(struct ax_step *s, const struct ax_arch *arch) {
    AX_TRY(check_balance(s, arch));
    struct ax_arena *arena = &s->rt->arena;
    const int64_t positions = s->o.max_positions > s->o.max_len ? s->o.max_positions : s->o.max_len;
    if (!ax_queue_has_host_tier(s->rt->q))
        s->o.offload = (struct ax_offload){0};
    const struct ax_model_options mo = {.dtype = s->o.dtype,
                                        .train = true,
                                        .masters = s->o.masters,
                                        .offload = s->o.offload,
                                        .max_positions = positions,
                                        .adapter = s->o.adapter,
                                        .base_store = s->o.base_store,
                                        .store_experts = s->o.store_experts,
                                        .unfrozen = s->o.unfrozen};
    AX_TRY(ax_model_create(&s->model, arch, s->rt, &mo));
    if (s->o.relora.interval > 0)
        AX_TRY(ax_adapter_restart_check(&s->model));
    AX_TRY(ax_param_states_create(&s->states, &s->model, s->o.optimizer, &s->o.opt,
                                  s->o.offload.optimizer ? &s->stream : NULL));
    if (s->o.lisa.layers > 0)
        AX_TRY(ax_lisa_create(&s->lisa, &s->o.lisa, s->o.seed, s->model.n_units));
    const struct ax_mesh *mesh = &s->rt->mesh;
    const struct ax_schedule_options so = {.first_unit = s->model.first_unit,
                                           .end_unit = s->model.end_unit,
                                           .stage = mesh->coord[AX_ROLE_PP],
                                           .n_stages = mesh->size[AX_ROLE_PP],
                                           .n_microbatches = s->o.n_microbatches,
                                           .tied = s->model.arch.tied};
    AX_TRY(ax_schedule_create(&s->schedule, &so));
    AX_ASSERT(s->schedule.n_slots <= arena->n_slots);
    const size_t n = (size_t)s->o.n_microbatches;
    AX_TRY(ax_alloc(&s->batches, n, sizeof *s->batches));
    AX_TRY(ax_alloc(&s->passes, n, sizeof *s->passes));
    AX_TRY(ax_alloc(&s->slots, (size_t)s->schedule.n_slots, sizeof *s->slots));
    const size_t groups = (size_t)ax_lr_group_count(&s->o.lr_groups);
    s->times = ax_stack_push(&arena->persistent, "step scalars",
                             sizeof *s->times + groups * sizeof *s->scalars);
    s->scalars = (struct ax_step_scalars AX_DEVICE *)(s->times + 1);
    AX_TRY(ax_step_set_scalars(s));
    const int64_t tokens = ax_mesh_round_tokens(mesh, s->o.tokens, 1);
    const int64_t rows = ax_tp_rows(s->rt, tokens / mesh->size[AX_ROLE_CP]);
    if (s->model.first_unit > 0) {
        s->outbox = ax_tensor_2d(ax_dtype_accum(s->o.dtype), NULL, rows, arch->hidden_size);
        s->outbox.data =
            ax_stack_push(&arena->persistent, "outgoing gradient", ax_tensor_bytes(&s->outbox));
    }
    AX_TRY(ax_slots_create(s->slots, s->schedule.n_slots, &s->model,
                           s->o.offload.activations ? rows : 0));
    for (size_t m = 0; m < n; m++) {
        ax_batch_allocate(&s->batches[m], &arena->persistent, tokens, s->o.n_docs, s->o.max_len,
                          mesh->size[AX_ROLE_CP], mesh->coord[AX_ROLE_CP]);
        ax_batch_add_columns(&s->batches[m], &arena->persistent, s->o.objective->columns);
        const int64_t index = (int64_t)m * mesh->size[AX_ROLE_BATCH] + mesh->coord[AX_ROLE_BATCH];
        s->batches[m].first_token = index * s->o.tokens;
        s->batches[m].round = s->o.pad > 0 ? ax_mesh_token_multiple(mesh, s->o.pad) : 0;
        s->passes[m] = (struct ax_pass){.model = &s->model,
                                        .batch = &s->batches[m],
                                        .scalars = s->scalars,
                                        .recompute = s->o.recompute,
                                        .objective = &s->o.objective->head,
                                        .inv_temperature = 1,
                                        .neftune_alpha = s->o.neftune_alpha,
                                        .balance_coef = s->o.balance_coef};
    }
    return AX_OK;
}

enum ax_status ax_step_create(struct ax_step *s, struct ax_runtime *rt, const struct ax_arch *arch,
                              const struct ax_step_options *o) {
    *s = (struct ax_step){.rt = rt, .o = *o};
    snprintf(s->contract, sizeof s->contract, "gradients of step %d", ++rt->n_steps);
    enum ax_status st = create(s, arch);
    if (st != AX_OK)
        ax_step_free(s);
    return st;
}

void ax_step_free(struct ax_step *s) {
    for (int i = 0; s->slots && i < s->schedule.n_slots; i++)
        ax_slot_free(&s->slots[i]);
    ax_free(s->states);
    ax_free(s->slots);
    ax_free(s->passes);
    ax_free(s->batches);
    ax_lisa_free(&s->lisa);
    ax_schedule_free(&s->schedule);
    ax_model_free(&s->model);
    *s = (struct ax_step){0};
}

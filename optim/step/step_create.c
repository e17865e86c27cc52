/* Memory and tables of a step, before the first one. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/adapter/restart.h"
#include "model/boundary.h"
#include "model/parts/head.h"
#include "model/parts/index_training.h"
#include "model/parallel/tensor_parallel.h"
#include "optim/step/step.h"
#include "optim/step/unit_times.h"

enum ax_status ax_router_bias_check(const struct ax_arch *a, double speed) {
    if (speed == 0 || (a->moe.n_experts > 0 && a->moe.names->bias))
        return AX_OK;
    return ax_error(AX_ERR_CONFIG,
                    "router_bias_update_speed: the routers of %s models have no bias that chooses "
                    "experts (those of deepseek_v3 and glm4_moe do)",
                    a->family->model_type);
}

/* A micro-batch's routing counts must include all layers. */
static enum ax_status check_balance(const struct ax_step *s, const struct ax_arch *arch) {
    if (s->o.sequence_coef > 0 && arch->moe.n_experts == 0)
        return ax_error(
            AX_ERR_CONFIG,
            "router_seq_aux_loss_coef: %s models have no routers to balance. Remove it.",
            arch->family->model_type);
    if (s->o.balance_coef == 0 || arch->moe.n_experts == 0 || s->rt->mesh.size[AX_ROLE_PP] == 1)
        return AX_OK;
    return ax_error(AX_ERR_UNSUPPORTED,
                    "router_aux_loss_coef: the routers' balancing loss is not implemented with a "
                    "pipeline (pp %d). Set it to 0, or pp to 1.",
                    s->rt->mesh.size[AX_ROLE_PP]);
}

/* An adapter's folder has no place for indexers, and their warm-up is theirs alone. */
static enum ax_status check_indexers(const struct ax_model_options *o, const struct ax_arch *arch) {
    const bool warm_up = o->indexers == AX_INDEXERS_WARM_UP;
    if (o->indexers == AX_INDEXERS_FROZEN)
        return AX_OK;
    if (arch->index.top == 0)
        return ax_error(AX_ERR_CONFIG,
                        "indexer_training: %s models have no indexers (deepseek_v32 and "
                        "glm_moe_dsa have). Remove it.",
                        arch->family->model_type);
    if (o->adapter)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "indexer_training: an adapter is saved without the model's indexers. Train "
                        "these first, without an adapter, and then the adapter of what was saved.");
    if (warm_up && o->unfrozen)
        return ax_error(AX_ERR_CONFIG, "indexer_training: warm_up trains indexers alone. Remove "
                                       "unfrozen_parameters, or set it to sparse.");
    return AX_OK;
}

/* Which parameters unfrozen_parameters names is known once there is a model. */
static enum ax_status check_unfrozen_indexers(const struct ax_model *m,
                                              const struct ax_model_options *o) {
    bool any = o->indexers == AX_INDEXERS_FROZEN || !o->unfrozen;
    for (int64_t i = 0; i < m->arch.n_layers && !any; i++)
        any = ax_index_trains(&m->layers[i]);
    if (any)
        return AX_OK;
    return ax_error(AX_ERR_CONFIG, "unfrozen_parameters: names no indexer, so indexer_training "
                                   "would train none. Add those that shall train, such as "
                                   "model.layers.*.self_attn.indexer, or remove indexer_training.");
}

/* What predicts further tokens learns from texts. */
static enum ax_status check_ahead(const struct ax_step *s, const struct ax_arch *arch) {
    AX_ASSERT((s->o.mtp_coef > 0) == ax_arch_predicts(arch));
    const char *with = s->o.mtp_coef == 0                         ? NULL
                       : s->o.model.qat                           ? "qat or fp8"
                       : s->o.relora.interval > 0                 ? "relora"
                       : strcmp(s->o.objective->name, "sft") != 0 ? s->o.objective->name
                                                                  : NULL;
    if (!with)
        return AX_OK;
    return ax_error(AX_ERR_UNSUPPORTED,
                    "mtp_loss_scaling_factor: multi-token prediction is not implemented with %s; "
                    "remove the key",
                    with);
}

struct ax_pipeline ax_step_pipeline(const struct ax_step_options *o, int stages) {
    return (struct ax_pipeline){.kind = o->pipeline,
                                .virtual_stages = o->virtual_stages,
                                .stages = stages,
                                .n_microbatches = o->n_microbatches};
}

bool ax_step_keeps_base(const struct ax_step_options *o) {
    return o->model.adapter && o->model.adapter->start != AX_LORA_PISSA && o->relora.interval == 0;
}

int64_t ax_step_positions(const struct ax_step_options *o) {
    return o->model.max_positions > o->max_len ? o->model.max_positions : o->max_len;
}

enum ax_status ax_step_slots(const struct ax_step_options *o, int stage, int stages, int *slots) {
    const struct ax_pipeline p = ax_step_pipeline(o, stages);
    return ax_pipeline_slots(&p, stage, slots);
}

struct ax_teacher_options ax_step_teacher_options(const struct ax_step_options *o,
                                                  const struct ax_arch *teacher) {
    return (struct ax_teacher_options){.arch = teacher,
                                       .max_positions = ax_step_positions(o),
                                       .adapter = o->teacher_adapter,
                                       .on_base = o->teacher_on_base && ax_step_keeps_base(o),
                                       .base_store = o->model.base_store,
                                       .store_experts = o->model.store_experts,
                                       .coded = o->model.coded};
}

/* The states of a step's micro-batches are kept, because a pipeline needs them in its own order. */
static enum ax_status create_teacher(struct ax_step *s, int64_t rows) {
    const size_t n = (size_t)s->o.n_microbatches;
    const struct ax_distill_options *o = s->o.objective->head.distill;
    AX_ASSERT((s->o.teacher != NULL) == (o && o->stored == 0));
    if (!s->o.teacher)
        return AX_OK;
    const struct ax_teacher_options to = ax_step_teacher_options(&s->o, s->o.teacher);
    AX_TRY(ax_teacher_check(to.arch, &s->model.arch));
    AX_TRY(ax_teacher_create(&s->teacher, &to, &s->model));
    AX_TRY(ax_alloc(&s->taught, n, sizeof *s->taught));
    for (size_t m = 0; m < n; m++)
        s->taught[m] = ax_teacher_take(&s->teacher, &s->rt->arena.persistent, rows);
    return AX_OK;
}

double ax_step_flops_per_token(const struct ax_step *s, int64_t seq) {
    const double teacher = s->o.teacher ? ax_arch_flops_per_token(s->o.teacher, seq) / 3 : 0;
    return ax_model_flops_per_token(&s->model, seq) + teacher;
}

struct ax_teacher *ax_step_teacher(struct ax_step *s) {
    return s->taught ? &s->teacher : NULL;
}

static enum ax_status create(struct ax_step *s, const struct ax_arch *arch) {
    AX_TRY(check_balance(s, arch));
    AX_TRY(ax_router_bias_check(arch, s->o.router_bias_speed));
    AX_TRY(check_ahead(s, arch));
    AX_TRY(check_indexers(&s->o.model, arch));
    const struct ax_pipeline pipeline = ax_step_pipeline(&s->o, s->rt->mesh.size[AX_ROLE_PP]);
    struct ax_arena *arena = &s->rt->arena;
    if (!ax_queue_has_host_tier(s->rt->q))
        s->o.model.offload = (struct ax_offload){0};
    s->o.model.sharding.keep_gradients &= s->o.n_microbatches > 1; /* else the same sums */
    /* a halved backward writes a unit's gradients twice, with other units' between */
    s->o.model.sharding.keep_gradients |= ax_pipeline_halves(&pipeline);
    if (pipeline.stages > 1)
        AX_TRY(ax_unit_times(&s->unit_times, s->rt, arch, &s->o));
    struct ax_model_options mo = s->o.model;
    mo.train = true;
    mo.max_positions = ax_step_positions(&s->o);
    mo.count_loads = arch->moe.n_experts > 0;
    mo.chunks = ax_pipeline_chunks(&pipeline);
    mo.unit_times = s->unit_times;
    AX_TRY(ax_model_create(&s->model, arch, s->rt, &mo));
    AX_TRY(check_unfrozen_indexers(&s->model, &mo));
    s->model.quant.on = s->o.qat_after == 0;
    if (s->o.relora.interval > 0)
        AX_TRY(ax_adapter_restart_check(&s->model));
    AX_TRY(ax_param_states_create(&s->states, &s->model, s->o.optimizer, &s->o.opt,
                                  s->o.model.offload.optimizer ? &s->stream : NULL));
    const struct ax_mesh *mesh = &s->rt->mesh;
    const struct ax_schedule_options so = {.pipeline = pipeline,
                                           .stage = mesh->coord[AX_ROLE_PP],
                                           .chunks = s->model.chunks,
                                           .tied = s->model.arch.tied,
                                           .predicts = ax_arch_predicts(arch),
                                           .gather_once = s->o.model.sharding.keep_weights,
                                           .reduce_once = s->o.model.sharding.keep_gradients};
    AX_TRY(ax_schedule_create(&s->schedule, &so));
    AX_ASSERT(s->schedule.n_slots <= arena->n_slots);
    const size_t n = (size_t)s->o.n_microbatches;
    AX_TRY(ax_alloc(&s->batches, n, sizeof *s->batches));
    AX_TRY(ax_alloc(&s->passes, (size_t)s->model.chunks.n * n, sizeof *s->passes));
    AX_TRY(ax_alloc(&s->messages, (size_t)s->model.chunks.n * n, sizeof *s->messages));
    AX_TRY(ax_alloc(&s->slots, (size_t)s->schedule.n_slots, sizeof *s->slots));
    const size_t groups = (size_t)ax_lr_group_count(&s->o.lr_groups);
    s->balance = ax_stack_push(&arena->persistent, "step scalars",
                               sizeof *s->balance + sizeof *s->measures + sizeof *s->times +
                                   sizeof *s->ahead + groups * sizeof *s->scalars);
    s->measures = (struct ax_step_measures AX_DEVICE *)(s->balance + 1);
    s->times = (struct ax_times AX_DEVICE *)(s->measures + 1);
    s->ahead = (struct ax_step_scalars AX_DEVICE *)(s->times + 1);
    s->scalars = s->ahead + 1;
    AX_TRY(ax_step_set_scalars(s));
    const int64_t tokens = ax_mesh_round_tokens(mesh, s->o.tokens, 1);
    const int64_t rows = ax_tp_rows(s->rt, tokens / mesh->size[AX_ROLE_CP]);
    AX_TRY(create_teacher(s, tokens / mesh->size[AX_ROLE_CP]));
    if (!ax_chunks_have(&s->model.chunks, 0) || s->model.chunks.n > 1) {
        const size_t bytes = ax_boundary_bytes(&s->model, tokens / mesh->size[AX_ROLE_CP]);
        void AX_DEVICE **boxes[] = {&s->outbox, &s->inboxes[0], &s->inboxes[1]};
        for (int i = 0; i < 3; i++)
            *boxes[i] = ax_stack_push(&arena->persistent, "from and to the stage before", bytes);
    }
    AX_TRY(ax_slots_create(s->slots, s->schedule.n_slots, &s->model,
                           s->o.model.offload.activations ? rows : 0));
    for (size_t m = 0; m < n; m++) {
        ax_batch_allocate(&s->batches[m], &arena->persistent, tokens, s->o.n_docs, s->o.max_len,
                          mesh->size[AX_ROLE_CP], mesh->coord[AX_ROLE_CP]);
        ax_batch_cut(&s->batches[m], &arena->persistent, arch->chunk);
        if (s->o.alike > 1)
            ax_batch_share(&s->batches[m], &arena->persistent, s->o.keys, s->o.alike);
        if (s->o.mtp_coef > 0)
            ax_batch_look_ahead(&s->batches[m], &arena->persistent);
        ax_batch_add_columns(&s->batches[m], &arena->persistent, s->o.objective->columns);
        s->batches[m].n_labels = arch->n_labels;
        const int64_t index = (int64_t)m * mesh->size[AX_ROLE_BATCH] + mesh->coord[AX_ROLE_BATCH];
        s->batches[m].first_token = index * s->o.tokens;
        s->batches[m].round = s->o.pad > 0 ? ax_mesh_token_multiple(mesh, s->o.pad) : 0;
    }
    const double temperature = s->o.objective->temperature,
                 inv_temperature = temperature > 0 ? 1 / temperature : 1;
    for (size_t i = 0; i < n * (size_t)s->model.chunks.n; i++)
        s->passes[i] = (struct ax_pass){.model = &s->model,
                                        .batch = &s->batches[i % n],
                                        .chunk = (int)(i / n),
                                        .halves = ax_pipeline_halves(&pipeline) && so.stage > 0,
                                        .scalars = s->scalars,
                                        .measures = s->measures,
                                        .recompute = s->o.recompute,
                                        .objective = &s->o.objective->head,
                                        .teacher = s->taught ? &s->taught[i % n] : NULL,
                                        .inv_temperature = inv_temperature,
                                        .sampling = s->o.objective->sampling,
                                        .neftune_alpha = s->o.neftune_alpha,
                                        .ahead_coef = s->o.mtp_coef,
                                        .ahead_scalars = s->ahead,
                                        .balance_coef = s->o.balance_coef,
                                        .sequence_coef = s->o.sequence_coef,
                                        .index_coef = s->o.index_coef};
    return AX_OK;
}

enum ax_status ax_step_create(struct ax_step *s, struct ax_runtime *rt, const struct ax_arch *arch,
                              const struct ax_step_options *o) {
    *s = (struct ax_step){.rt = rt, .o = *o};
    snprintf(s->contract, sizeof s->contract, "step %d", ++rt->n_steps);
    enum ax_status st = create(s, arch);
    if (st != AX_OK)
        ax_step_free(s);
    return st;
}

void ax_step_free(struct ax_step *s) {
    for (int i = 0; s->slots && i < s->schedule.n_slots; i++)
        ax_slot_free(&s->slots[i]);
    ax_free(s->unit_times);
    ax_free(s->states);
    ax_free(s->slots);
    ax_free(s->passes);
    ax_free(s->messages);
    ax_free(s->batches);
    ax_schedule_free(&s->schedule);
    ax_free(s->taught);
    ax_teacher_free(&s->teacher);
    ax_model_free(&s->model);
    *s = (struct ax_step){0};
}

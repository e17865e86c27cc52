/* Plans by running: creates a step on a planning runtime, runs it once, and reads the arena's
 * high-water marks. */
#include "optim/plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"
#include "model/arch/split.h"

/* The slots' blocks of one name are one block. */
static void add_blocks(struct ax_plan_blocks *b, const struct ax_stack *s, const char *where) {
    for (int i = 0; i < s->n_names; i++) {
        int k = 0;
        if (s->names[i].at_peak == 0)
            continue;
        while (k < b->n && (strcmp(b->list[k].name, s->names[i].name) != 0 ||
                            strcmp(b->list[k].where, where) != 0))
            k++;
        AX_ASSERT(k < AX_PLAN_MAX_BLOCKS);
        if (k == b->n)
            b->list[b->n++] = (struct ax_plan_block){s->names[i].name, where, 0};
        b->list[k].bytes += s->names[i].at_peak;
    }
}

static int larger_first(const void *a, const void *b) {
    const struct ax_plan_block *x = a, *y = b;
    return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : 0;
}

void ax_plan_list_blocks(struct ax_plan_blocks *out, const struct ax_arena *arena) {
    out->n = 0;
    add_blocks(out, &arena->persistent, "persistent");
    add_blocks(out, &arena->host, "host");
    add_blocks(out, &arena->scratch, "scratch");
    for (int i = 0; i < arena->n_slots; i++)
        add_blocks(out, &arena->slots[i], "activations");
    qsort(out->list, (size_t)out->n, sizeof *out->list, larger_first);
}

/* What this rank's stage has of the model. */
static void read_units(struct ax_plan *plan, const struct ax_model *m) {
    plan->has_embedding = ax_unit_present(&m->units[0]) && !m->units[0].copy;
    plan->has_head = ax_unit_present(&m->units[m->n_units - 1]);
    for (int i = 1; i < m->n_units - 1; i++)
        plan->n_layers += ax_unit_present(&m->units[i]);
}

static void read_marks(struct ax_plan *plan, struct ax_runtime *rt) {
    ax_arena_measure(&rt->arena, &plan->arena);
    ax_plan_list_blocks(&plan->blocks, &rt->arena);
    const struct ax_queue_counters *c = &rt->q->counters;
    for (int op = 0; op < AX_OP_COUNT; op++)
        plan->flops += c->flops[op];
    plan->gemm_flops = c->flops[AX_OP_gemm];
    plan->attention_flops = c->flops[AX_OP_attention_forward] + c->flops[AX_OP_attention_backward];
    for (int role = 0; role < AX_ROLE_COUNT; role++)
        memcpy(plan->bytes_sent[role], rt->comms[role].bytes_sent, sizeof *plan->bytes_sent);
}

static enum ax_status dry_run(struct ax_plan *plan, struct ax_recording *recording,
                              struct ax_runtime *rt, const struct ax_arch *arch,
                              const struct ax_step_options *so) {
    struct ax_step s;
    struct ax_step_result r;
    AX_TRY(ax_step_create(&s, rt, arch, so));
    enum ax_status st;
    for (int m = 0; m < so->n_microbatches; m++)
        AX_TRY_GOTO(ax_batch_fill(&s.batches[m], rt->q, arch->vocab_size, 0, NULL), st, done);
    rt->q->recording = recording;
    AX_TRY_GOTO(ax_step_run(&s, 0, &r), st, done);
    rt->q->recording = NULL;
    plan->parameters = ax_model_parameters(&s.model);
    const int *sizes = rt->mesh.size,
              share = sizes[AX_ROLE_PP] * sizes[AX_ROLE_CP] * sizes[AX_ROLE_TP];
    const double per_token = ax_step_flops_per_token(&s, so->max_len);
    plan->model_flops = (double)plan->tokens * per_token / share;
    plan->model_flops_full =
        (double)plan->tokens * (2 * per_token - ax_step_flops_per_token(&s, 0)) / share;
    plan->n_actions = s.schedule.n;
    read_units(plan, &s.model);
    const struct ax_pipeline p = ax_step_pipeline(so, rt->mesh.size[AX_ROLE_PP]);
    AX_TRY_GOTO(ax_split_idle(arch, s.unit_times, ax_step_positions(so), &p, &plan->idle), st,
                done);
    read_marks(plan, rt);
done:
    ax_step_free(&s);
    return st;
}

enum ax_status ax_plan_make(struct ax_plan *plan, const struct ax_runtime_options *ro,
                            const struct ax_arch *arch, const struct ax_step_options *so) {
    return ax_plan_record(plan, NULL, ro, arch, so);
}

enum ax_status ax_plan_record(struct ax_plan *plan, struct ax_recording *recording,
                              const struct ax_runtime_options *ro, const struct ax_arch *arch,
                              const struct ax_step_options *so) {
    struct ax_runtime rt;
    *plan = (struct ax_plan){.tokens = so->n_microbatches * so->tokens};
    AX_TRY(ax_runtime_open_planning(&rt, ro));
    const enum ax_status st = dry_run(plan, recording, &rt, arch, so);
    plan->beside = ax_backend_beside(ro->backend, ax_runtime_groups(&rt));
    ax_runtime_close(&rt);
    return st;
}

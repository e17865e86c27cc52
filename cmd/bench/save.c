/* Saves a checkpoint after a training step. */
#include "cmd/bench/save.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/free_space.h"
#include "ckpt/state/saver.h"

#define TOKENS 512

struct saving {
    const struct ax_bench_model *m;
    const struct ax_bench_input *in;
    struct ax_step_options o;
    /* of the run */
    struct ax_step step;
    struct ax_saver saver;
    struct ax_state_parts parts;
    struct ax_save_weight *weights;
    /* results */
    double bytes, seconds, held;
};

/* Masters, if there are any, in the dtype that training would save. */
static enum ax_status list_weights(struct saving *s) {
    const struct ax_model *m = &s->step.model;
    AX_TRY(ax_alloc(&s->weights, (size_t)m->n_params, sizeof *s->weights));
    s->bytes = 0;
    for (int i = 0; i < m->n_params; i++) {
        const struct ax_param *p = &m->params[i];
        struct ax_save_weight *w = &s->weights[i];
        *w = (struct ax_save_weight){
            .name = p->name, .ndim = p->ndim, .unit = p->unit, .dtype = s->o.model.dtype};
        memcpy(w->shape, p->shape, sizeof w->shape);
        w->n_parts = ax_state_value(&m->rt->mesh, &m->units[p->unit], p, true, &w->parts[0].value,
                                    &w->parts[0].block);
        s->bytes += (double)(ax_param_numel(p) * (int64_t)ax_dtype_size(w->dtype));
    }
    AX_TRY(ax_param_states_parts(m, s->step.states, &s->parts));
    s->bytes += (double)ax_state_parts_bytes(&s->parts);
    return AX_OK;
}

static enum ax_status check_disk(const struct saving *s) {
    uint64_t free_bytes;
    AX_TRY(ax_disk_free(s->in->dir, &free_bytes));
    if ((double)free_bytes > 1.05 * s->bytes)
        return AX_OK;
    char is[32], needed[32];
    return ax_error(AX_ERR_IO,
                    "%s: only %s are free, and a checkpoint needs %s; give a larger disk with "
                    "--work DIR, or skip it with --no-save",
                    s->in->dir, ax_format_bytes(is, sizeof is, (double)free_bytes),
                    ax_format_bytes(needed, sizeof needed, s->bytes));
}

static enum ax_status start(struct saving *s) {
    const struct ax_save_job job = {.output_dir = s->in->output,
                                    .step = 1,
                                    .hf = {.base_dir = s->in->model, .dtype = s->o.model.dtype},
                                    .n_weights = s->step.model.n_params,
                                    .weights = s->weights,
                                    .parts = &s->parts,
                                    .mesh = &s->step.rt->mesh,
                                    .run = json_pack("{si}", "step", 1)};
    return ax_saver_start(&s->saver, &job);
}

static void before_update(void *ctx, int unit) {
    ax_saver_before_update(ctx, unit);
}

static enum ax_status time_save(struct saving *s) {
    struct ax_step_result r;
    AX_TRY(ax_bench_batches(&s->step));
    AX_TRY(ax_step_run(&s->step, 1e-5, &r)); /* warms up, and gives the optimizer its state */
    AX_TRY(check_disk(s));
    AX_TRY(ax_mkdir_parents(s->in->output));
    const double begin = ax_clock_now();
    AX_TRY(start(s));
    AX_TRY(ax_step_run(&s->step, 1e-5, &r));
    s->held = s->saver.waited;
    AX_TRY(ax_saver_finish(&s->saver));
    s->seconds = ax_clock_now() - begin;
    return AX_OK;
}

static enum ax_status with_saver(struct saving *s) {
    AX_TRY(ax_saver_create(&s->saver, s->step.rt->q, NULL, s->step.model.n_units));
    s->step.before_update = before_update;
    s->step.before_update_ctx = &s->saver;
    enum ax_status st = list_weights(s);
    if (st == AX_OK)
        st = time_save(s);
    struct ax_error_record first;
    ax_error_save(&first, st); /* errors of the cleanup must not replace this one */
    ax_saver_free(&s->saver);
    ax_state_parts_free(&s->parts);
    ax_free(s->weights);
    return ax_error_restore(&first);
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct saving *s = ctx;
    struct ax_step_result r;
    AX_TRY(ax_step_create(&s->step, rt, &s->m->arch, &s->o));
    enum ax_status st = ax_bench_model_fill(s->m, &s->step.model);
    if (st == AX_OK && ax_runtime_planning(rt)) {
        st = ax_batch_fill(&s->step.batches[0], rt->q, s->m->arch.vocab_size, 0, NULL);
        if (st == AX_OK)
            st = ax_step_run(&s->step, 0, &r);
    } else if (st == AX_OK) {
        st = with_saver(s);
    }
    ax_step_free(&s->step);
    return st;
}

enum ax_status ax_bench_save(struct ax_bench *r, const struct ax_bench_model *m,
                             const struct ax_bench_input *in, enum ax_dtype dtype) {
    const struct ax_runtime_options ro = {.backend = "cpu", .threads = (int)r->threads};
    struct saving s = {.m = m,
                       .in = in,
                       .o = {.model.dtype = dtype,
                             .recompute = AX_RECOMPUTE_SELECTIVE,
                             .objective = &ax_objective_sft,
                             .max_norm = 1,
                             .n_microbatches = 1,
                             .tokens = TOKENS,
                             .n_docs = 1,
                             .max_len = TOKENS}};
    AX_TRY(ax_optimizer_find("adamw", &s.o.optimizer, &s.o.opt));
    AX_TRY(ax_runtime_run(&ro, body, &s, NULL));
    const struct ax_bench_figure speed = {s.bytes / s.seconds / 1e9, "GB/s", false, -1};
    const struct ax_bench_figure held = {s.held, "s", true, -1};
    const char *type = ax_dtype_info(dtype)->name;
    AX_TRY(ax_bench_add(r, &speed, "pipeline/%s/%s/save", m->name, type));
    return ax_bench_add(r, &held, "pipeline/%s/%s/save-holds-up-training", m->name, type);
}

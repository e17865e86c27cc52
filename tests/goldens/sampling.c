/* objectives/sampling: what the filters keep of a row of logits, and its probabilities. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "tests/goldens/golden.h"
#include "kernels/transfer.h"
#include "model/core/sample.h"
#include "parallel/runtime.h"

#define TOLERANCE 1e-5 /* of a probability: relative, or 1e-7 absolute if that is larger */
#define MAX_FILE  ((size_t)1 << 20)
#define MAX_ENTRY 64 /* bytes of a case's name */

struct sampling {
    struct ax_golden_report *report;
    const struct ax_safetensors *st;
    struct ax_json cases;
    enum ax_dtype dtype;
    struct ax_golden_tensor logits, context;
    int32_t *distinct; /* [rows][tokens]: each row's tokens without duplicates */
    struct ax_sample_row *rows;
};

/* Converts the steps of a case to options. They are listed in the order in which options are
 * applied. */
static enum ax_status read_steps(struct ax_json steps, struct ax_sampling *o) {
    *o = (struct ax_sampling){.temperature = 1};
    int last = -1;
    for (size_t i = 0; i < ax_json_size(steps); i++) {
        const struct ax_json step = ax_json_at(steps, i);
        const char *name;
        double value;
        AX_TRY(ax_json_str(ax_json_at(step, 0), &name));
        AX_TRY(ax_json_f64(ax_json_at(step, 1), &value));
        static const char *const names[] = {"repetition_penalty", "temperature", "top_k", "top_p",
                                            "min_p"};
        int which = 0;
        while (which < 5 && strcmp(names[which], name) != 0)
            which++;
        if (which == 5 || which <= last)
            return ax_json_error(step, "unknown step \"%s\", or not in transformers' order", name);
        last = which;
        double *const fields[] = {&o->repetition_penalty, &o->temperature, NULL, &o->top_p,
                                  &o->min_p};
        if (fields[which])
            *fields[which] = value;
        else
            o->top_k = (int64_t)value;
    }
    return AX_OK;
}

static void find_distinct(struct sampling *g) {
    const int64_t rows = g->context.shape[0], n = g->context.shape[1];
    for (int64_t i = 0; i < rows; i++) {
        int32_t *out = g->distinct + i * n;
        int64_t k = 0;
        for (int64_t j = 0; j < n; j++) {
            const int32_t id = (int32_t)g->context.v[i * n + j];
            int64_t at = 0;
            while (at < k && out[at] != id)
                at++;
            out[at] = id;
            k = at == k ? k + 1 : k;
        }
        g->rows[i] = (struct ax_sample_row){.n_context = k, .context = out};
    }
}

/* Compares one row's probabilities with the golden ones, and their number. */
static enum ax_status compare_row(struct sampling *g, const double *shares, int64_t row,
                                  const struct ax_golden_tensor *want, struct ax_json kept) {
    const int64_t V = g->logits.shape[1];
    int64_t n = 0, expected;
    double worst = 0;
    char where[32];
    snprintf(where, sizeof where, "row %lld", (long long)row);
    AX_TRY(ax_json_i64(ax_json_at(kept, (size_t)row), 1, V, &expected));
    for (int64_t c = 0; c < V; c++) {
        const double p = want->v[row * V + c], got = shares[row * V + c];
        worst = ax_golden_worse(worst, fabs(got - p) / fmax(TOLERANCE * p, 1e-7));
        n += got > 0;
    }
    ax_golden_note(g->report, "sampling: tokens left", fabs((double)(n - expected)), 0, where);
    ax_golden_note(g->report, "sampling: shares", worst * TOLERANCE, TOLERANCE, where);
    return AX_OK;
}

/* Chooses with the options, and compares what was left to choose from. */
static enum ax_status choose(struct ax_runtime *rt, struct sampling *g, struct ax_sampler *s,
                             struct ax_choice *c, const struct ax_golden_tensor *want,
                             struct ax_json kept) {
    const int64_t rows = c->logits.shape[0];
    struct ax_stack *scratch = &rt->arena.scratch;
    struct ax_results results;
    double *shares = NULL;
    c->shares = c->logits;
    c->shares.data = ax_stack_push(scratch, "sampling check", ax_tensor_bytes(&c->logits));
    ax_results_create(&results, rt->q, scratch, ax_choice_bytes(g->dtype, rows));
    enum ax_status st = ax_alloc(&shares, (size_t)g->logits.numel, sizeof *shares);
    if (st == AX_OK)
        st = ax_sampler_choose(s, &results, c);
    if (st == AX_OK)
        st = ax_tensor_read(rt->q, &c->shares, AX_F64, shares);
    for (int64_t i = 0; st == AX_OK && !ax_runtime_planning(rt) && i < rows; i++)
        st = compare_row(g, shares, i, want, kept);
    ax_free(shares);
    ax_results_free(&results);
    return st;
}

static enum ax_status run_case(struct ax_runtime *rt, struct sampling *g, struct ax_json c,
                               const struct ax_tensor *logits) {
    const int64_t rows = logits->shape[0];
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_sampling o;
    struct ax_sampler s;
    struct ax_golden_tensor want = {0};
    const char *name;
    char entry[MAX_ENTRY];
    AX_TRY(read_steps(ax_json_get(c, "steps"), &o));
    AX_TRY(ax_json_str(ax_json_get(c, "name"), &name));
    snprintf(entry, sizeof entry, "%s.probs", name);
    AX_TRY(ax_golden_read(g->st, entry, &want));
    enum ax_status st = AX_OK;
    if (want.numel != g->logits.numel)
        st = ax_error(AX_ERR_DATA, "%s: %s does not match the logits", g->st->path, entry);
    else
        st = ax_sampler_create(&s, &o, rt->q, &rt->arena.scratch, g->dtype, rows,
                               g->context.shape[1], 0);
    if (st == AX_OK) {
        struct ax_choice choice = {.logits = *logits, .rows = g->rows};
        st = choose(rt, g, &s, &choice, &want, ax_json_get(ax_json_get(c, "expect"), "kept"));
        ax_sampler_free(&s);
    }
    ax_golden_tensor_free(&want);
    ax_stack_release(&rt->arena.scratch, mark);
    return st;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct sampling *g = ctx;
    struct ax_tensor logits = ax_tensor_2d(g->dtype, NULL, g->logits.shape[0], g->logits.shape[1]);
    logits.data = ax_stack_push(&rt->arena.persistent, "sampling check", ax_tensor_bytes(&logits));
    if (!ax_runtime_planning(rt))
        AX_TRY(ax_tensor_write(rt->q, &logits, AX_F64, g->logits.v));
    for (size_t i = 0; i < ax_json_size(g->cases); i++)
        AX_TRY(run_case(rt, g, ax_json_at(g->cases, i), &logits));
    return AX_OK;
}

static enum ax_status run_sampling(struct ax_golden_report *r, const char *dir,
                                   const struct ax_safetensors *st, struct ax_json root,
                                   const struct ax_golden_options *o) {
    struct sampling g = {.report = r,
                         .st = st,
                         .cases = ax_json_get(root, "cases"),
                         .dtype = strcmp(o->backend, "ref") == 0 ? AX_F64 : AX_F32};
    const struct ax_runtime_options ro = {.backend = o->backend, .threads = o->threads};
    enum ax_status status;
    AX_TRY_GOTO(ax_golden_read(st, "logits", &g.logits), status, done);
    AX_TRY_GOTO(ax_golden_read(st, "context", &g.context), status, done);
    if (g.logits.ndim != 2 || g.logits.shape[0] > 64 || g.context.ndim != 2 ||
        g.context.shape[0] != g.logits.shape[0])
        AX_TRY_GOTO(ax_error(AX_ERR_DATA, "%s/sampling: context does not match the logits", dir),
                    status, done);
    AX_TRY_GOTO(ax_alloc(&g.distinct, (size_t)g.context.numel, sizeof *g.distinct), status, done);
    AX_TRY_GOTO(ax_alloc(&g.rows, (size_t)g.logits.shape[0], sizeof *g.rows), status, done);
    find_distinct(&g);
    status = ax_runtime_run(&ro, body, &g, NULL);
done:
    ax_free(g.rows);
    ax_free(g.distinct);
    ax_golden_tensor_free(&g.logits);
    ax_golden_tensor_free(&g.context);
    return status;
}

bool ax_golden_sampling(struct ax_golden_report *r, const char *dir,
                        const struct ax_golden_options *o) {
    char path[4096], json[4096];
    struct ax_safetensors st = {0};
    struct ax_json_doc doc = {0};
    snprintf(path, sizeof path, "%s/sampling.safetensors", dir);
    snprintf(json, sizeof json, "%s/sampling.json", dir);
    if (!ax_path_exists(path))
        return false;
    snprintf(r->title, sizeof r->title, "%s backend=%s", path, o->backend);
    enum ax_status status = ax_safetensors_open(&st, path);
    if (status == AX_OK)
        status = ax_json_load(&doc, json, MAX_FILE);
    if (status == AX_OK)
        status = run_sampling(r, dir, &st, ax_json_root(&doc), o);
    if (status != AX_OK)
        ax_golden_error(r, path);
    ax_json_free(&doc);
    ax_safetensors_close(&st);
    ax_golden_flush(r);
    return true;
}

/* Compares forward passes with forward.safetensors and packed.safetensors. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/parts/head.h"
#include "tests/goldens/digest.h"
#include "tests/goldens/model.h"
#include "model/pass.h"

#define TOLERANCE 1e-4 /* logits and hidden states, absolute */

struct forward {
    const struct ax_golden_case *c;
    const struct ax_safetensors *golden;
    struct ax_queue *q;
    const char *label;  /* "batch", "packed" or "longrope" */
    const char *logits; /* name of the tensor */
    struct ax_golden_docs docs;
    double *previous; /* residual stream before this layer; attn_out = middle − previous */
    double *middle;
    double *experts;       /* a router's choice, until its weights are known */
    enum ax_status status; /* first error in the taps */
};

/* Copies the documents' rows of a golden [.., ·] tensor to `out` [tokens][cols]. */
static void gather_rows(const struct ax_golden_docs *d, const struct ax_golden_tensor *t,
                        int64_t cols, double *out) {
    for (int i = 0; i < d->n; i++) {
        const size_t n = (size_t)(d->docs[i].n * cols);
        memcpy(out, t->v + d->from[i] * cols, n * sizeof *out);
        out += n;
    }
}

/* The worst row's estimate of ‖got − golden‖, each of four projections. */
static double worst_row(const double *got, const double *want, int64_t rows) {
    double worst = 0;
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t k = r * GOLDEN_ROW_PROJECTIONS; k < (r + 1) * GOLDEN_ROW_PROJECTIONS; k++)
            sum += (got[k] - want[k]) * (got[k] - want[k]);
        worst = ax_golden_worse(worst, sqrt(sum / GOLDEN_ROW_PROJECTIONS));
    }
    return worst;
}

/* Compares `got` [tokens][cols] with golden tensor `name`, if the file has it. */
static enum ax_status compare(struct forward *f, const char *name, const char *group,
                              const double *got, int64_t cols, double tolerance) {
    struct ax_golden_tensor want = {0};
    if (!ax_safetensors_find(f->golden, name))
        return AX_OK;
    double *rows = NULL, *projected = NULL;
    enum ax_status st;
    AX_TRY_GOTO(golden_read_form(f->golden, name, &want), st, done);
    const bool by_row = want.form == GOLDEN_BY_ROW;
    if (cols == 0 || want.numel % cols != 0 || want.shape[want.ndim - 1] != cols ||
        want.form == GOLDEN_DIGESTED)
        AX_TRY_GOTO(ax_error(AX_ERR_DATA, "%s: %s has a different width than the model",
                             f->golden->path, name),
                    st, done);
    const int64_t kept = by_row ? GOLDEN_ROW_PROJECTIONS : cols, n = f->docs.tokens * kept;
    AX_TRY_GOTO(ax_alloc(&rows, (size_t)n, sizeof *rows), st, done);
    gather_rows(&f->docs, &want, kept, rows);
    if (by_row) {
        AX_TRY_GOTO(ax_alloc(&projected, (size_t)n, sizeof *projected), st, done);
        golden_row_digest(name, got, f->docs.tokens, cols, projected);
        got = projected;
    }
    char full[80];
    snprintf(full, sizeof full, "%s %s", f->label, group);
    if (f->c->qat)
        ax_golden_note(f->c->report, full, ax_golden_rel_norm(got, rows, n),
                       AX_GOLDEN_QAT_TOLERANCE, name);
    else
        ax_golden_note(f->c->report, full,
                       by_row ? worst_row(got, rows, f->docs.tokens)
                              : ax_golden_max_abs(got, rows, n),
                       tolerance, name);
done:
    ax_free(projected);
    ax_free(rows);
    ax_golden_tensor_free(&want);
    return st;
}

static double hidden_tolerance(const struct forward *f) {
    return ax_golden_recorded_tolerance(f->c, "hidden", TOLERANCE);
}

static enum ax_status compare_branch(struct forward *f, bool ffn, int layer, const double *got,
                                     int64_t cols) {
    static const char *const mixers[] = {"attn", "conv", "linear", "mamba", "mixer"};
    char name[64];
    snprintf(name, sizeof name, "mlp_out_%d", layer);
    const struct ax_layer_spec *spec = &f->c->arch.layers[layer];
    const bool beside =
        ffn ? f->c->norms.root && spec->ffn == &ax_ffn_moe_beside : spec->mixer == &ax_mixer_beside;
    if (beside) /* the file has each by itself */
        return AX_OK;
    const bool alone = spec->mixer == &ax_part_none; /* and called mixer */
    for (size_t i = 0; (!ffn || alone) && i < sizeof mixers / sizeof *mixers; i++) {
        snprintf(name, sizeof name, "%s_out_%d", mixers[i], layer);
        if (ax_safetensors_find(f->golden, name))
            break;
    }
    return compare(f, name, "branch outputs", got, cols, hidden_tolerance(f));
}

/* If neither norm nor factor follows a branch, its output is the difference in the residual stream. */
static enum ax_status look_at_difference(struct forward *f, bool ffn, int layer, const double *now,
                                         int64_t cols) {
    const int64_t n = f->docs.tokens * cols;
    const double *before = ffn ? f->middle : f->previous;
    const struct ax_layer_spec *spec = &f->c->arch.layers[layer];
    double *branch;
    if ((ffn ? spec->ffn_norms.out : spec->mixer_norms.out) || f->c->arch.residual_scale != 1)
        return AX_OK;
    AX_TRY(ax_alloc(&branch, (size_t)n, sizeof *branch));
    for (int64_t i = 0; i < n; i++)
        branch[i] = now[i] - before[i];
    const enum ax_status st = compare_branch(f, ffn, layer, branch, cols);
    ax_free(branch);
    return st;
}

/* What is seen after the mixer, and after the layer: its ffn, unless it has none. */
static enum ax_status look_at_part(struct forward *f, bool end, int layer, const double *now,
                                   int64_t cols) {
    const struct ax_layer_spec *spec = &f->c->arch.layers[layer];
    if (spec->mixer == &ax_part_none)
        memcpy(f->middle, f->previous, (size_t)(f->docs.tokens * cols) * sizeof *f->middle);
    return look_at_difference(f, end && spec->ffn != &ax_part_none, layer, now, cols);
}

static enum ax_status look(struct forward *f, const char *what, int layer, const double *now,
                           int64_t cols) {
    char name[64];
    const int64_t n = f->docs.tokens * cols;
    if (strcmp(what, "norm") == 0)
        return compare(f, "hidden_norm", "hidden states", now, cols, hidden_tolerance(f));
    if (strcmp(what, "mixer_out") == 0 || strcmp(what, "ffn_out") == 0)
        return compare_branch(f, *what == 'f', layer, now, cols);
    if (strcmp(what, "attn_out") == 0 || strcmp(what, "mamba_out") == 0) {
        snprintf(name, sizeof name, "%s_%d", what, layer);
        return compare(f, name, "branch outputs", now, cols, hidden_tolerance(f));
    }
    const bool hidden = strcmp(what, "hidden") == 0;
    if ((!hidden || layer > 0) && f->c->arch.streams.n == 0)
        AX_TRY(look_at_part(f, hidden, hidden ? layer - 1 : layer, now, cols));
    memcpy(hidden ? f->previous : f->middle, now, (size_t)n * sizeof *now);
    if (!hidden)
        return AX_OK;
    snprintf(name, sizeof name, "hidden_%d", layer);
    return compare(f, name, "hidden states", now, cols, hidden_tolerance(f));
}

/* Sorts both by ascending expert, like the golden files. */
static void sort_choice(double *experts, double *weights, int64_t k) {
    for (int64_t i = 1; i < k; i++) {
        for (int64_t j = i; j > 0 && experts[j] < experts[j - 1]; j--) {
            const double expert = experts[j], weight = weights[j];
            experts[j] = experts[j - 1];
            weights[j] = weights[j - 1];
            experts[j - 1] = expert;
            weights[j - 1] = weight;
        }
    }
}

static void soften(double *rows, int64_t n, int64_t cols) {
    for (double *x = rows; x < rows + n * cols; x += cols) {
        double sum = 0;
        for (int64_t k = 0; k < cols; k++)
            sum += exp(x[k]);
        for (int64_t k = 0; k < cols; k++)
            x[k] = exp(x[k]) / sum;
    }
}

static enum ax_status look_at_router(struct forward *f, const char *what, int layer, double *now,
                                     int64_t cols) {
    char name[64];
    if (strcmp(what, "router_logits") == 0) {
        if (f->c->norms.root &&
            f->c->arch.moe.names->expert_scale) /* Gemma 4's are probabilities */
            soften(now, f->docs.tokens, cols);
        snprintf(name, sizeof name, "router_logits_%d", layer);
        return compare(f, name, "router logits", now, cols, TOLERANCE);
    }
    if (strcmp(what, "router_experts") == 0) {
        ax_free(f->experts);
        const size_t n = (size_t)(f->docs.tokens * cols);
        AX_TRY(ax_alloc(&f->experts, n, sizeof *f->experts));
        memcpy(f->experts, now, n * sizeof *now);
        return AX_OK;
    }
    for (int64_t t = 0; t < f->docs.tokens; t++)
        sort_choice(f->experts + t * cols, now + t * cols, cols);
    snprintf(name, sizeof name, "router_weights_%d", layer);
    AX_TRY(compare(f, name, "router weights", now, cols, TOLERANCE));
    snprintf(name, sizeof name, "router_experts_%d", layer);
    return compare(f, name, "router experts", f->experts, cols, 0);
}

/* A row's bits as positions, −1 past the last, as the golden files have them. */
static enum ax_status look_at_choice(struct forward *f, int layer, const double *now,
                                     int64_t words) {
    const int64_t top = f->c->arch.index.top;
    char name[64];
    double *positions;
    AX_TRY(ax_alloc(&positions, (size_t)(f->docs.tokens * top), sizeof *positions));
    for (int64_t t = 0; t < f->docs.tokens; t++) {
        int64_t found = 0;
        for (int64_t j = 0; j < 32 * words; j++) {
            const uint32_t word = (uint32_t)(int32_t)now[t * words + j / 32];
            if ((word >> j % 32 & 1) && found < top)
                positions[t * top + found++] = (double)j;
        }
        while (found < top)
            positions[t * top + found++] = -1;
    }
    snprintf(name, sizeof name, "index_topk_%d", layer);
    const enum ax_status st = compare(f, name, "chosen keys", positions, top, 0);
    ax_free(positions);
    return st;
}

static void tap(void *ctx, const char *what, int layer, const struct ax_tensor *t) {
    struct forward *f = ctx;
    if (f->status != AX_OK)
        return;
    double *now = NULL;
    f->status = ax_golden_values(f->q, t, &now);
    if (f->status == AX_OK && strcmp(what, "chosen") == 0)
        f->status = look_at_choice(f, layer, now, t->shape[1]);
    else if (f->status == AX_OK)
        f->status = strncmp(what, "router", 6) == 0
                        ? look_at_router(f, what, layer, now, t->shape[1])
                        : look(f, what, layer, now, t->shape[1]);
    ax_free(now);
}

/* Compares −log p of each label, computed from the logits, with token_nll [B][S−1]. */
static enum ax_status compare_nll(struct forward *f, const double *logits, int64_t V) {
    struct ax_golden_tensor want = {0};
    if (!ax_safetensors_find(f->golden, "token_nll"))
        return AX_OK;
    AX_TRY(ax_golden_read(f->golden, "token_nll", &want));
    const int64_t S1 = want.shape[1];
    double worst = 0;
    int64_t row = 0;
    for (int i = 0; i < f->docs.n; i++) {
        for (int64_t t = 0; t < f->docs.docs[i].n; t++, row++) {
            const int32_t label = f->docs.docs[i].labels[t];
            const double *z = logits + row * V;
            double max = z[0], sum = 0;
            for (int64_t v = 1; v < V; v++)
                max = z[v] > max ? z[v] : max;
            for (int64_t v = 0; v < V; v++)
                sum += exp(z[v] - max);
            const double nll = label < 0 ? 0 : max + log(sum) - z[label];
            const double diff = t < S1 ? fabs(nll - want.v[i * S1 + t]) : 0;
            worst = ax_golden_worse(worst, diff);
        }
    }
    char group[80];
    snprintf(group, sizeof group, "%s token nll", f->label);
    ax_golden_note(f->c->report, group, worst, TOLERANCE, "token_nll");
    ax_golden_tensor_free(&want);
    return AX_OK;
}

/* The logits of the last tokens, of a row whose others are not kept. */
static enum ax_status compare_last(struct forward *f, const double *logits, int64_t V) {
    static const char name[] = "last_logits";
    struct ax_golden_tensor want = {0};
    char group[80];
    if (!ax_safetensors_find(f->golden, name))
        return AX_OK;
    AX_TRY(ax_golden_read(f->golden, name, &want));
    const int64_t rows = want.numel / V;
    enum ax_status st = AX_OK;
    if (want.numel % V != 0 || rows > f->docs.tokens)
        st = ax_error(AX_ERR_DATA, "%s: %s has another size", f->golden->path, name);
    snprintf(group, sizeof group, "%s logits", f->label);
    if (st == AX_OK)
        ax_golden_note(f->c->report, group,
                       ax_golden_max_abs(logits + (f->docs.tokens - rows) * V, want.v, want.numel),
                       TOLERANCE, name);
    ax_golden_tensor_free(&want);
    return st;
}

static enum ax_status logits_of(struct forward *f, struct ax_pass *p) {
    const struct ax_model *m = p->model;
    const int64_t T = p->batch->T, V = m->arch.vocab_size;
    struct ax_tensor logits = ax_tensor_2d(m->accum, NULL, T, V);
    logits.data = ax_stack_push(&m->rt->arena.scratch, "logits", ax_tensor_bytes(&logits));
    AX_TRY(ax_pass_logits(p, 0, T, &logits));
    if (ax_runtime_planning(m->rt))
        return AX_OK;
    double *v = NULL;
    enum ax_status st = ax_golden_values(m->rt->q, &logits, &v);
    /* the gap was measured on the padded batch */
    const bool batch = strcmp(f->label, "batch") == 0;
    const double tolerance = batch ? ax_golden_tolerance(f->c, "logits", TOLERANCE) : TOLERANCE;
    if (st == AX_OK)
        st = compare(f, f->logits, "logits", v, V, tolerance);
    if (st == AX_OK)
        st = compare_nll(f, v, V);
    if (st == AX_OK)
        st = compare_last(f, v, V);
    ax_free(v);
    return st;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct forward *f = ctx;
    struct ax_model m;
    struct ax_batch batch;
    struct ax_slot slot = {0};
    const bool planning = ax_runtime_planning(rt);
    f->q = rt->q;
    const struct ax_model_options mo = {.dtype = f->c->dtype,
                                        .max_positions = f->docs.longest,
                                        .adapter = f->c->peft ? &f->c->peft->config : NULL,
                                        .qat = f->c->qat};
    AX_TRY(ax_model_create(&m, &f->c->arch, rt, &mo));
    enum ax_status st;
    AX_TRY_GOTO(ax_golden_load(f->c, &m), st, done);
    AX_TRY_GOTO(ax_slot_create(&slot, &m, &rt->arena.slots[0]), st, done);
    ax_batch_allocate(&batch, &rt->arena.persistent, f->docs.tokens, f->docs.n, f->docs.longest, 1,
                      0);
    ax_batch_cut(&batch, &rt->arena.persistent, m.arch.chunk);
    AX_TRY_GOTO(ax_batch_fill(&batch, rt->q, m.arch.vocab_size, f->docs.n, f->docs.docs), st, done);
    ax_arena_enter(&rt->arena, AX_PHASE_EVAL);
    struct ax_pass p = {.model = &m,
                        .batch = &batch,
                        .slot = &slot,
                        .recompute = AX_RECOMPUTE_INFERENCE,
                        .inv_temperature = 1,
                        .tap = planning ? NULL : tap,
                        .tap_ctx = f};
    AX_TRY_GOTO(ax_pass_begin(&p), st, done);
    AX_TRY_GOTO(ax_pass_forward_all(&p), st, done);
    AX_TRY_GOTO(f->status, st, done);
    AX_TRY_GOTO(logits_of(f, &p), st, done);
    ax_stack_release(&rt->arena.scratch, 0);
    ax_pass_end(&p);
done:
    ax_slot_free(&slot);
    ax_model_free(&m);
    return st;
}

static enum ax_status run_docs(struct forward *f) {
    const struct ax_golden_case *c = f->c;
    const size_t n = (size_t)(f->docs.tokens * ax_arch_stream_size(&c->arch));
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&f->previous, n, sizeof *f->previous), st, done);
    AX_TRY_GOTO(ax_alloc(&f->middle, n, sizeof *f->middle), st, done);
    const struct ax_runtime_options ro = {.backend = c->o->backend, .threads = c->o->threads};
    AX_TRY_GOTO(ax_runtime_run(&ro, body, f, NULL), st, done);
done:
    ax_free(f->previous);
    ax_free(f->middle);
    ax_free(f->experts);
    ax_golden_docs_free(&f->docs);
    return st;
}

static enum ax_status docs_file(struct forward *f) {
    AX_TRY(ax_golden_docs_read(&f->docs, f->golden));
    return run_docs(f);
}

/* The first n tokens as one document, to the logits of that name. */
static enum ax_status one_length(struct forward *f, int64_t n, const char *logits) {
    struct ax_golden_tensor ids = {0};
    enum ax_status st;
    f->logits = logits;
    f->docs = (struct ax_golden_docs){.n = 1, .tokens = n, .longest = n};
    AX_TRY_GOTO(ax_golden_read(f->golden, "input_ids", &ids), st, fail);
    if (n > ids.numel)
        AX_TRY_GOTO(
            ax_error(AX_ERR_DATA, "%s: fewer than %lld tokens", f->golden->path, (long long)n), st,
            fail);
    AX_TRY_GOTO(ax_alloc(&f->docs.ids, (size_t)n, sizeof(int32_t)), st, fail);
    AX_TRY_GOTO(ax_alloc(&f->docs.labels, (size_t)n, sizeof(int32_t)), st, fail);
    for (int64_t t = 0; t < n; t++) {
        f->docs.ids[t] = (int32_t)ids.v[t];
        f->docs.labels[t] = -1;
    }
    f->docs.docs[0] = (struct ax_document){.n = n, .tokens = f->docs.ids, .labels = f->docs.labels};
    ax_golden_tensor_free(&ids);
    return run_docs(f);
fail:
    ax_golden_tensor_free(&ids);
    ax_golden_docs_free(&f->docs);
    return st;
}

/* As many tokens as the original length, and one more. */
static enum ax_status both_lengths(struct forward *f) {
    const int64_t original = f->c->arch.rope.original_max_positions;
    struct forward longer = *f;
    AX_TRY(one_length(f, original, "logits_short"));
    return one_length(&longer, original + 1, "logits_long");
}

static enum ax_status run_file(const struct ax_golden_case *c, const char *file, const char *label,
                               enum ax_status (*run)(struct forward *f)) {
    char *path = NULL;
    AX_TRY(ax_golden_file(c, file, &path));
    if (!path)
        return AX_OK;
    struct ax_safetensors golden;
    struct forward f = {.c = c, .golden = &golden, .label = label, .logits = "logits"};
    enum ax_status st = ax_safetensors_open(&golden, path);
    ax_free(path);
    AX_TRY(st);
    st = run(&f);
    ax_safetensors_close(&golden);
    return st;
}

enum ax_status ax_golden_forward(const struct ax_golden_case *c) {
    AX_TRY(run_file(c, "forward.safetensors", "batch", docs_file));
    if (c->peft || c->qat)
        return AX_OK;
    AX_TRY(run_file(c, "packed.safetensors", "packed", docs_file));
    if (c->golden.root && json_object_get(c->golden.root, "long"))
        AX_TRY(run_file(c, "long.safetensors", "long", docs_file));
    return c->arch.rope.kind == AX_ROPE_LONGROPE
               ? run_file(c, "longrope.safetensors", "longrope", both_lengths)
               : AX_OK;
}

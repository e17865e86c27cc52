#include "tests/tiny.h"

#include <stdio.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/transfer.h"
#include "model/adapter/load.h"

enum ax_status tiny_arch(struct ax_arch *arch, const char *model_type, bool tied,
                         const char *extra) {
    char text[1024];
    snprintf(
        text, sizeof text,
        "{\"model_type\": \"%s\", \"vocab_size\": 97, \"hidden_size\": 48, \"intermediate_size\": "
        "80, \"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"num_key_value_heads\": %d, "
        "\"head_dim\": 16, \"initializer_range\": 0.15, \"max_position_embeddings\": 64, "
        "\"tie_word_embeddings\": %s%s}",
        model_type, tiny_kv_heads(model_type), tied ? "true" : "false", extra);
    struct ax_json_doc doc;
    AX_TRY(ax_json_parse(&doc, "tiny", text, strlen(text)));
    const enum ax_status st = ax_arch_parse(arch, ax_json_root(&doc));
    ax_json_free(&doc);
    return st;
}

struct ax_step_options tiny_options(enum ax_dtype dtype, enum ax_recompute recompute, int n_micro,
                                    const int64_t *lengths) {
    struct ax_step_options o = {.model.dtype = dtype,
                                .recompute = recompute,
                                .optimizer = &ax_optimizer_adamw,
                                .objective = &ax_objective_sft,
                                .max_norm = 1,
                                .n_microbatches = n_micro};
    o.opt = (struct ax_optimizer_options){
        .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
    for (int i = 0; lengths[i] > 0; i++) {
        o.tokens += lengths[i];
        o.n_docs++;
        o.max_len = lengths[i] > o.max_len ? lengths[i] : o.max_len;
    }
    return o;
}

enum ax_status tiny_fill(struct ax_step *s, const int64_t *lengths, uint64_t seed) {
    enum { CAP = 4096, DOCS = 64 };
    int32_t tokens[CAP], labels[CAP]; /* not static: ranks are threads */
    float weight[CAP];
    struct ax_document docs[DOCS];
    for (int m = 0; m < s->o.n_microbatches; m++) {
        int64_t at = 0;
        int n = 0;
        for (; lengths[n] > 0; n++) {
            AX_ASSERT(n < DOCS && at + lengths[n] <= CAP);
            for (int64_t i = 0; i < lengths[n]; i++) {
                const struct ax_rng_key key = {seed, (uint32_t)(m * s->o.n_docs + n), 1};
                const uint64_t k = (uint64_t)i * 4;
                const struct ax_arch *arch = &s->model.arch;
                tokens[at + i] = (int32_t)ax_rng_below(key, k, (uint64_t)arch->vocab_size);
                labels[at + i] =
                    (int32_t)ax_rng_below(key, k + 1, (uint64_t)ax_arch_head_rows(arch));
                if (ax_rng_below(key, k + 2, 3) == 0)
                    labels[at + i] = -1;
                weight[at + i] = 0.5f + ax_rng_uniform(key, k + 3);
            }
            docs[n] = (struct ax_document){.n = lengths[n],
                                           .tokens = tokens + at,
                                           .labels = labels + at,
                                           .weight = weight + at};
            at += lengths[n];
        }
        AX_TRY(ax_batch_fill(&s->batches[m], s->rt->q, s->model.arch.vocab_size, n, docs));
    }
    return AX_OK;
}

/* Adds noise to a parameter's values. */
static enum ax_status move(struct ax_model *m, const struct ax_param *p, uint64_t seed) {
    const struct ax_tensor value = ax_model_value(m, p);
    const struct ax_rng_key key = {seed, 1, ax_hash32(p->name)};
    const int64_t n = ax_param_numel(p);
    double *moved;
    AX_TRY(ax_alloc(&moved, (size_t)n, sizeof *moved));
    enum ax_status st = ax_tensor_read(m->rt->q, &value, AX_F64, moved);
    for (int64_t k = 0; k < n; k++)
        moved[k] += 0.1 * (double)ax_rng_normal(key, (uint64_t)k);
    const struct ax_elements from = ax_elements_of(AX_F64, moved);
    if (st == AX_OK)
        st = ax_unit_load(&m->units[p->unit], m->rt, p, &from);
    ax_free(moved);
    return st;
}

enum ax_status tiny_take_steps(struct ax_step *s, const int64_t *lengths, int n, double *loss,
                               double *norm) {
    for (int i = 0; i < n; i++) {
        struct ax_step_result result;
        AX_TRY(tiny_fill(s, lengths, (uint64_t)(10 * i)));
        AX_TRY(ax_step_run(s, 1e-2, &result));
        if (s->rt->mesh.rank > 0 || ax_runtime_planning(s->rt))
            continue;
        loss[i] = result.loss;
        norm[i] = result.grad_norm;
    }
    return AX_OK;
}

enum ax_status tiny_adapters(struct ax_model *m, uint64_t seed) {
    if (!m->adapter)
        return AX_OK;
    AX_TRY(ax_adapter_init(m, seed));
    for (int i = 0; i < m->n_params && !ax_runtime_planning(m->rt); i++)
        if (m->params[i].adapter)
            AX_TRY(move(m, &m->params[i], seed));
    return AX_OK;
}

/* All gradients as doubles, contiguous; frozen parameters have none. */
static enum ax_status copy_grads(struct tiny_run *t, const struct ax_model *m) {
    t->n_grads = ax_model_trainable(m);
    AX_TRY(ax_alloc(&t->grad_values, (size_t)t->n_grads, sizeof *t->grad_values));
    double *out = t->grad_values;
    for (int i = 0; i < m->n_params; i++) {
        const struct ax_tensor grad = ax_model_grad(m, &m->params[i]);
        if (!grad.data)
            continue;
        AX_TRY(ax_tensor_read(m->rt->q, &grad, AX_F64, out));
        out += ax_tensor_numel(&grad);
    }
    return AX_OK;
}

static enum ax_status hash_tensor(struct ax_queue *q, const struct ax_tensor *t, uint64_t *h) {
    const size_t bytes = ax_tensor_bytes(t);
    void *copy;
    if (!t->data)
        return AX_OK;
    AX_TRY(ax_alloc(&copy, bytes, 1));
    const enum ax_status st = ax_queue_read(q, t->data, copy, bytes, NULL);
    *h = ax_hash64(copy, bytes, *h);
    ax_free(copy);
    return st;
}

enum ax_status tiny_hash_masters(const struct ax_step *s, uint64_t *hash) {
    for (int u = 0; u < s->model.n_units; u++)
        for (int k = 0; k < s->model.units[u].n_segments; k++)
            AX_TRY(hash_tensor(s->rt->q, &s->model.units[u].segments[k].master, hash));
    return AX_OK;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct tiny_run *t = ctx;
    struct ax_step s;
    struct ax_step_result r;
    AX_TRY(ax_step_create(&s, rt, t->arch, &t->o));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_init_random(&s.model, t->seed), st, done);
    AX_TRY_GOTO(tiny_adapters(&s.model, t->seed), st, done);
    AX_TRY_GOTO(tiny_fill(&s, t->lengths, t->seed), st, done);
    for (int i = 1; i < t->steps; i++) {
        const uint64_t calls = ax_mem_calls();
        AX_TRY_GOTO(ax_step_run(&s, 1e-2, &r), st, done);
        if (i > 2)
            t->allocations += ax_mem_calls() - calls;
    }
    AX_TRY_GOTO(ax_step_gradients(&s, &r), st, done);
    t->loss = r.loss;
    t->grad_norm = r.grad_norm;
    t->grads = t->masters = 0;
    for (int i = 0; !ax_runtime_planning(rt) && i < s.model.n_params; i++) {
        const struct ax_tensor value = ax_model_value(&s.model, &s.model.params[i]);
        const struct ax_tensor grad = ax_model_grad(&s.model, &s.model.params[i]);
        AX_TRY_GOTO(hash_tensor(rt->q, &value, &t->masters), st, done);
        AX_TRY_GOTO(hash_tensor(rt->q, &grad, &t->grads), st, done);
    }
    if (t->want_grads && !ax_runtime_planning(rt))
        AX_TRY_GOTO(copy_grads(t, &s.model), st, done);
    AX_TRY_GOTO(ax_step_update(&s, 1e-2, &r), st, done);
    t->fallbacks = rt->q->counters.fallbacks;
done:
    ax_step_free(&s);
    return st;
}

enum ax_status tiny_run(struct tiny_run *t, const char *backend, int threads) {
    const struct ax_runtime_options ro = {.backend = backend, .threads = threads};
    t->allocations = 0;
    return ax_runtime_run(&ro, body, t, &t->plan);
}

enum ax_status tiny_create(struct ax_runtime *rt, void *ctx) {
    const struct tiny_run *t = ctx;
    struct ax_step s;
    const enum ax_status st = ax_step_create(&s, rt, t->arch, &t->o);
    if (st == AX_OK)
        ax_step_free(&s);
    return st;
}

/* The model that a benchmark runs. */
#include <stdio.h>
#include <string.h>

#include "base/io_path.h"
#include "base/rng.h"
#include "ckpt/hf/config.h"
#include "cmd/bench/bench.h"
#include "model/arch/shapes.h"
#include "kernels/cpu/isa.h"
#include "model/save.h"

static void set_name(struct ax_bench_model *m) {
    size_t len;
    const char *last = ax_path_last(m->arch_name ? m->arch_name : m->dir, &len);
    snprintf(m->name, sizeof m->name, "%.*s", (int)len, last);
}

enum ax_status ax_bench_model_open(struct ax_bench_model *m, const char *kind, bool weights) {
    if (!m->dir == !m->arch_name)
        return ax_error(AX_ERR_CONFIG, "bench %s: give either --model DIR or --arch NAME", kind);
    set_name(m);
    if (m->arch_name) {
        AX_TRY(ax_shape_config(m->arch_name, &m->config));
        return ax_arch_parse(&m->arch, ax_json_root(&m->config));
    }
    AX_TRY(ax_arch_load(&m->arch, m->dir));
    if (ax_arch_path_is_config(m->dir))
        return ax_hf_config_read(&m->config, m->dir);
    return weights ? ax_hf_open(&m->hf, m->dir) : AX_OK;
}

void ax_bench_model_close(struct ax_bench_model *m) {
    ax_hf_close(&m->hf);
    ax_arch_free(&m->arch);
    ax_json_free(&m->config);
}

enum ax_status ax_bench_model_fill(const struct ax_bench_model *m, struct ax_model *model) {
    return m->hf.dir ? ax_model_load(model, &m->hf) : ax_model_init_random(model, 0);
}

struct write {
    const struct ax_bench_model *m;
    const char *dir;
};

static enum ax_status write_body(struct ax_runtime *rt, void *ctx) {
    const struct write *w = ctx;
    const struct ax_bench_model *m = w->m;
    struct ax_model model;
    const struct ax_model_options mo = {.dtype = AX_F32, .max_positions = 1};
    AX_TRY(ax_model_create(&model, &m->arch, rt, &mo));
    enum ax_status st = ax_model_init_random(&model, 0);
    if (st == AX_OK && !ax_runtime_planning(rt)) {
        const struct ax_model_save save = {.dir = w->dir,
                                           .base_dir = m->config.root ? NULL : m->dir,
                                           .config = m->config.root,
                                           .dtype = m->arch.dtype};
        st = ax_model_save(&model, &save);
    }
    ax_model_free(&model);
    return st;
}

enum ax_status ax_bench_model_write(const struct ax_bench_model *m, const char *dir) {
    const struct ax_runtime_options ro = {.backend = "cpu"};
    struct write w = {m, dir};
    return ax_runtime_run(&ro, write_body, &w, NULL);
}

enum ax_status ax_bench_batches(struct ax_step *s) {
    int32_t *ids = NULL;
    struct ax_document *docs = NULL;
    const int64_t n = s->o.n_docs, len = s->o.max_len, vocab = s->model.arch.vocab_size;
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&ids, (size_t)(n * len), sizeof *ids), st, done);
    AX_TRY_GOTO(ax_alloc(&docs, (size_t)n, sizeof *docs), st, done);
    for (int m = 0; m < s->o.n_microbatches; m++) {
        const struct ax_rng_key key = {1, (uint32_t)m, 0};
        for (int64_t i = 0; i < n * len; i++)
            ids[i] = (int32_t)ax_rng_below(key, (uint64_t)i, (uint64_t)vocab);
        for (int64_t d = 0; d < n; d++)
            docs[d] = (struct ax_document){.n = len, .tokens = ids + d * len};
        AX_TRY_GOTO(ax_batch_fill(&s->batches[m], s->rt->q, vocab, (int)n, docs), st, done);
    }
done:
    ax_free(docs);
    ax_free(ids);
    return st;
}

enum ax_status ax_bench_dtype(const char *given, enum ax_dtype *out) {
    *out = ax_cpu_has_bf16() ? AX_BF16 : AX_F32;
    return given ? ax_args_dtype(given, out) : AX_OK;
}

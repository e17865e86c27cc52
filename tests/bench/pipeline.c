/* Everything around the arithmetic: records to tokens, packing, loading a model, saving a checkpoint. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/stop.h"
#include "base/free_space.h"
#include "base/io.h"
#include "ckpt/state/saver.h"
#include "cmd/train/data/data.h"
#include "tests/bench/input.h"

#define ROUNDS       3
#define PACK_SECONDS 0.2

struct pipeline {
    struct ax_bench *r;
    struct ax_bench_model m;
    struct ax_bench_input in;
    const char *data, *work, *dtype_name;
    bool no_save;
    enum ax_dtype dtype;
    double load_seconds, load_bytes; /* bytes of memory written */
};

static enum ax_status add_rows(struct pipeline *p, const char *what, double value,
                               const char *unit) {
    const struct ax_bench_figure f = {value, unit, false, -1};
    const char *rows = p->data ? p->data : "problems", *slash = strrchr(rows, '/');
    return ax_bench_add(p->r, &f, "pipeline/%s/%s/%s", p->m.name, slash ? slash + 1 : rows, what);
}

/* ---- records to tokens ---- */

/* The rendered text of every document, concatenated. starts is [n + 1]. */
static enum ax_status collect(const struct ax_setup_data *d, struct ax_buf *text, size_t *starts) {
    const struct ax_examples *set = &d->train_sets.sets[0];
    int32_t *ids;
    enum ax_status st = AX_OK;
    AX_TRY(ax_alloc(&ids, set->longest, sizeof *ids));
    for (size_t i = 0; i < set->n && st == AX_OK; i++) {
        const uint32_t *words = ax_examples_words(set, i);
        for (size_t k = 0; k < set->list[i].n; k++)
            ids[k] = ax_word_token(words, k);
        starts[i] = text->len;
        st = ax_tokenizer_decode(d->tok.tokenizer, ids, set->list[i].n, false, text);
    }
    starts[set->n] = text->len;
    ax_free(ids);
    return st;
}

static enum ax_status encode_all(const struct ax_tokenizer *t, const char *text,
                                 const size_t *starts, size_t n, double *seconds) {
    const struct ax_encode_options o = {0};
    struct ax_encoding e = {0};
    enum ax_status st = AX_OK;
    const double start = ax_clock_now();
    for (size_t i = 0; i < n && st == AX_OK; i++) {
        e.n = 0;
        st = ax_tokenizer_encode(t, text + starts[i], starts[i + 1] - starts[i], &o, &e);
    }
    *seconds = ax_clock_now() - start;
    ax_encoding_free(&e);
    return st;
}

/* Uses one thread, like encoding a prompt. *bytes: of all texts. */
static enum ax_status time_encode(struct pipeline *p, const struct ax_setup_data *d,
                                  double *bytes) {
    const size_t n = d->train_sets.sets[0].n;
    struct ax_buf text = {0};
    size_t *starts;
    double seconds[ROUNDS];
    enum ax_status st;
    AX_TRY(ax_alloc(&starts, n + 1, sizeof *starts));
    AX_TRY_GOTO(collect(d, &text, starts), st, done);
    for (int i = 0; i < ROUNDS; i++)
        AX_TRY_GOTO(encode_all(d->tok.tokenizer, text.data, starts, n, &seconds[i]), st, done);
    *bytes = (double)text.len;
    st = add_rows(p, "tokenize", *bytes / ax_bench_median(seconds, ROUNDS) / 1e6, "MB/s");
done:
    ax_buf_free(&text);
    ax_free(starts);
    return st;
}

/* Times the sequences of an epoch as training reads them. */
static enum ax_status time_pack(struct pipeline *p, struct ax_setup_data *d) {
    struct ax_packed_sequence s;
    int64_t tokens = 0;
    bool got = true;
    const double start = ax_clock_now();
    for (int64_t epoch = 0; ax_clock_now() - start < PACK_SECONDS; epoch++) {
        ax_loader_start_epoch(d->train_loader, epoch);
        for (got = true; got;) {
            AX_TRY(ax_loader_next(d->train_loader, &s, &got));
            tokens += got ? s.n_tokens : 0;
        }
    }
    return add_rows(p, "pack", (double)tokens / (ax_clock_now() - start) / 1e6, "Mtokens/s");
}

static enum ax_status open_data(const struct ax_config *cfg, bool refresh, struct ax_setup_data *d,
                                double *seconds) {
    const double start = ax_clock_now();
    AX_TRY(ax_setup_data_open(d, cfg, refresh));
    *seconds = ax_clock_now() - start;
    return AX_OK;
}

/* Times reading, checking, rendering, tokenizing and storing records on all threads: how much
 * longer opening the data takes if they are not prepared. */
static enum ax_status time_prepare(struct pipeline *p, const struct ax_config *cfg, double bytes) {
    double seconds[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        struct ax_setup_data d;
        double fresh, cached;
        AX_TRY(open_data(cfg, true, &d, &fresh));
        ax_setup_data_close(&d);
        AX_TRY(open_data(cfg, false, &d, &cached));
        ax_setup_data_close(&d);
        seconds[i] = fresh > cached ? fresh - cached : fresh;
    }
    return add_rows(p, "prepare", bytes / ax_bench_median(seconds, ROUNDS) / 1e6, "MB/s");
}

static enum ax_status time_data(struct pipeline *p) {
    struct ax_config cfg;
    struct ax_setup_data d;
    double seconds, bytes = 0;
    AX_TRY(ax_config_load(&cfg, p->in.config, 0, NULL));
    enum ax_status st;
    AX_TRY_GOTO(open_data(&cfg, true, &d, &seconds), st, done);
    st = time_encode(p, &d, &bytes);
    if (st == AX_OK)
        st = time_pack(p, &d);
    ax_setup_data_close(&d);
    if (st == AX_OK)
        st = time_prepare(p, &cfg, bytes);
done:
    ax_config_free(&cfg);
    return st;
}

/* ---- loading ---- */

static enum ax_status load_body(struct ax_runtime *rt, void *ctx) {
    struct pipeline *p = ctx;
    struct ax_model m;
    const struct ax_model_options mo = {.dtype = p->dtype, .max_positions = 1};
    AX_TRY(ax_model_create(&m, &p->m.arch, rt, &mo));
    const double start = ax_clock_now();
    const enum ax_status st = ax_model_load(&m, &p->m.hf);
    p->load_seconds = ax_clock_now() - start;
    p->load_bytes = (double)(ax_model_parameters(&m) * (int64_t)ax_dtype_size(p->dtype));
    ax_model_free(&m);
    return st;
}

static double file_bytes(const struct ax_hf *hf) {
    double bytes = 0;
    for (int i = 0; i < ax_hf_count(hf); i++)
        bytes += (double)ax_hf_at(hf, i)->bytes;
    return bytes;
}

/* Times loading from the folder (in the page cache from the second round on) into fresh memory. */
static enum ax_status time_load(struct pipeline *p) {
    const struct ax_runtime_options ro = {.backend = "cpu", .threads = (int)p->r->threads};
    double seconds[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        AX_TRY(ax_hf_open(&p->m.hf, p->in.model));
        AX_TRY(ax_runtime_run(&ro, load_body, p, NULL));
        seconds[i] = p->load_seconds;
        if (i + 1 < ROUNDS)
            ax_hf_close(&p->m.hf);
    }
    double bandwidth;
    AX_TRY(ax_bench_bandwidth(p->r, &bandwidth));
    const double read = file_bytes(&p->m.hf), median = ax_bench_median(seconds, ROUNDS);
    const struct ax_bench_figure f = {read / median / 1e9, "GB/s", false,
                                      (read + p->load_bytes) / median / bandwidth};
    return ax_bench_add(p->r, &f, "pipeline/%s/%s/load", p->m.name, ax_dtype_info(p->dtype)->name);
}

/* ---- saving: its speed, and how long it blocks training ---- */

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

static enum ax_status start_save(struct saving *s) {
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

static enum ax_status save_once(struct saving *s) {
    struct ax_step_result r;
    AX_TRY(ax_bench_batches(&s->step));
    AX_TRY(ax_step_run(&s->step, 1e-5, &r)); /* warms up, and gives the optimizer its state */
    AX_TRY(check_disk(s));
    AX_TRY(ax_mkdir_parents(s->in->output));
    const double begin = ax_clock_now();
    AX_TRY(start_save(s));
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
        st = save_once(s);
    struct ax_error_record first;
    ax_error_save(&first, st); /* errors of the cleanup must not replace this one */
    ax_saver_free(&s->saver);
    ax_state_parts_free(&s->parts);
    ax_free(s->weights);
    return ax_error_restore(&first);
}

static enum ax_status save_body(struct ax_runtime *rt, void *ctx) {
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

/* Saves weights and AdamW's state, after a training step of 512 tokens. AX_ERR_IO if there is not enough disk
 * space. */
static enum ax_status time_save(struct ax_bench *r, const struct ax_bench_model *m,
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
    AX_TRY(ax_runtime_run(&ro, save_body, &s, NULL));
    const struct ax_bench_figure speed = {s.bytes / s.seconds / 1e9, "GB/s", false, -1};
    const struct ax_bench_figure held = {s.held, "s", true, -1};
    const char *type = ax_dtype_info(dtype)->name;
    AX_TRY(ax_bench_add(r, &speed, "pipeline/%s/%s/save", m->name, type));
    return ax_bench_add(r, &held, "pipeline/%s/%s/save-holds-up-training", m->name, type);
}

/* ---- all ---- */

static enum ax_status run(struct pipeline *p) {
    AX_TRY(ax_bench_dtype(p->dtype_name, &p->dtype));
    AX_TRY(ax_bench_model_open(&p->m, "pipeline", false));
    AX_TRY(ax_bench_input_make(&p->in, &p->m, p->data, p->work));
    AX_TRY(ax_bench_may_go_on());
    AX_TRY(time_data(p));
    AX_TRY(ax_bench_may_go_on());
    AX_TRY(time_load(p));
    AX_TRY(ax_bench_may_go_on());
    return p->no_save ? AX_OK : time_save(p->r, &p->m, &p->in, p->dtype);
}

enum ax_status ax_bench_pipeline(struct ax_bench *r, int argc, char **argv) {
    struct pipeline p = {.r = r};
    const struct ax_arg own[] = {
        AX_BENCH_MODEL_ARGS(&p.m),
        {"--data", AX_ARG_STRING, &p.data, 0, 0},
        {"--work", AX_ARG_STRING, &p.work, 0, 0},
        {"--no-save", AX_ARG_FLAG, &p.no_save, 0, 0},
        {"--dtype", AX_ARG_STRING, &p.dtype_name, 0, 0},
        {"--threads", AX_ARG_INT, &r->threads, 1, 1024},
    };
    AX_TRY(ax_bench_parse(r, argc, argv, sizeof own / sizeof *own, own));
    ax_stop_watch(); /* so that temporary files are removed */
    const enum ax_status st = run(&p);
    ax_stop_unwatch();
    ax_bench_input_remove(&p.in);
    ax_bench_model_close(&p.m);
    return st;
}

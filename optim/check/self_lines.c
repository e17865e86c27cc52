/* The lines of `axtrain check self` that train or run a small model in two ways. */
#include "optim/check/self.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/io_path.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "ckpt/hf/safetensors.h"
#include "optim/check/report.h"
#include "kernels/transfer.h"
#include "model/generate/generate.h"
#include "model/parts/head.h"
#include "optim/step/step.h"
#include "optim/train/train.h"

/* ---- numbers ---- */

/* Numbers of a computation, to be compared with those of another. */
struct values {
    double *v; /* [n]; ax_free */
    int64_t n;
};

static enum ax_status append(struct values *out, int64_t n, const double *v) {
    AX_TRY(ax_regrow(&out->v, (size_t)out->n, (size_t)(out->n + n), sizeof *out->v));
    memcpy(out->v + out->n, v, (size_t)n * sizeof *v);
    out->n += n;
    return AX_OK;
}

/* All elements of a tensor. Nothing while planning. */
static enum ax_status append_tensor(struct values *out, struct ax_queue *q,
                                    const struct ax_tensor *t) {
    double *v;
    const int64_t n = ax_tensor_numel(t);
    AX_TRY(ax_alloc(&v, (size_t)n, sizeof *v));
    enum ax_status st = ax_tensor_read(q, t, AX_F64, v);
    if (st == AX_OK && !ax_queue_is_meta(q))
        st = append(out, n, v);
    ax_free(v);
    return st;
}

/* ‖a − b‖ / ‖b‖, and 0 only for the same bits. */
static double difference(const struct values *a, const struct values *b) {
    if (a->n != b->n || b->n == 0)
        return INFINITY;
    if (memcmp(a->v, b->v, (size_t)b->n * sizeof *b->v) == 0)
        return 0;
    const double off = ax_golden_rel_norm(a->v, b->v, b->n);
    return off > 0 ? off : INFINITY; /* NaN, or a zero's sign */
}

static void free_values(struct values *v) {
    ax_free(v->v);
    *v = (struct values){0};
}

/* What rounding in the compute dtype may change in a gradient or in logits. */
static double rounding(const struct ax_self *s) {
    return s->dtype == AX_F64 ? 1e-12 : s->dtype == AX_F32 ? 3e-5 : 3e-2;
}

/* ---- threads, recompute, accumulation: the same training steps ---- */

enum { STEPS = 3, DOCS = 8, LONGEST = 40 };

/* Both halves have as many tokens. */
static const int64_t lengths[DOCS] = {23, 1, 17, 40, 40, 17, 1, 23};

struct way {
    const struct ax_self *s;
    int threads, n_micro, steps;
    enum ax_recompute recompute;
    struct values values; /* out: loss, norm, gradients of the last step; weights after it */
};

/* Document d of a step; about a third of its tokens are not trained. */
static void write_document(int32_t *tokens, int32_t *labels, int d, int step, int64_t vocab) {
    const struct ax_rng_key key = {29, (uint32_t)step, (uint32_t)d};
    for (int64_t i = 0; i < lengths[d]; i++) {
        tokens[i] = (int32_t)ax_rng_below(key, 2 * (uint64_t)i, (uint64_t)vocab);
        labels[i] = ax_rng_below(key, 2 * (uint64_t)i + 1, 3) == 0 ? -1 : tokens[i];
    }
}

static enum ax_status fill_step(struct ax_step *s, int step) {
    const int each = DOCS / s->o.n_microbatches;
    int32_t tokens[DOCS][LONGEST], labels[DOCS][LONGEST];
    struct ax_document docs[DOCS];
    for (int d = 0; d < DOCS; d++) {
        write_document(tokens[d], labels[d], d, step, s->model.arch.vocab_size);
        docs[d] = (struct ax_document){.n = lengths[d], .tokens = tokens[d], .labels = labels[d]};
    }
    for (int m = 0; m < s->o.n_microbatches; m++)
        AX_TRY(ax_batch_fill(&s->batches[m], s->rt->q, s->model.arch.vocab_size, each,
                             docs + m * each));
    return AX_OK;
}

static enum ax_status take_numbers(struct way *w, struct ax_step *s, bool gradients) {
    for (int i = 0; i < s->model.n_params; i++) {
        const struct ax_param *p = &s->model.params[i];
        const struct ax_tensor t =
            gradients ? ax_model_grad(&s->model, p) : ax_model_value(&s->model, p);
        AX_TRY(append_tensor(&w->values, s->rt->q, &t));
    }
    return AX_OK;
}

static enum ax_status one_step(struct way *w, struct ax_step *s, int step) {
    const bool last = step + 1 == w->steps;
    struct ax_step_result r;
    AX_TRY(fill_step(s, step));
    AX_TRY(ax_step_gradients(s, &r));
    if (last && !ax_runtime_planning(s->rt)) {
        AX_TRY(append(&w->values, 2, (double[]){r.loss, r.grad_norm}));
        AX_TRY(take_numbers(w, s, true));
    }
    AX_TRY(ax_step_update(s, 1e-2, &r));
    return last && w->steps > 1 ? take_numbers(w, s, false) : AX_OK;
}

static enum ax_status step_body(struct ax_runtime *rt, void *ctx) {
    struct way *w = ctx;
    struct ax_step_options o = {.model.dtype = w->s->dtype,
                                .recompute = w->recompute,
                                .optimizer = &ax_optimizer_adamw,
                                .objective = &ax_objective_sft,
                                .max_norm = 1,
                                .n_microbatches = w->n_micro,
                                .n_docs = DOCS / w->n_micro,
                                .max_len = LONGEST};
    o.opt = (struct ax_optimizer_options){
        .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
    for (int d = 0; d < o.n_docs; d++)
        o.tokens += lengths[d];
    struct ax_step s;
    enum ax_status st;
    AX_TRY(ax_step_create(&s, rt, &w->s->dense, &o));
    AX_TRY_GOTO(ax_model_init_random(&s.model, 5), st, done);
    for (int step = 0; step < w->steps; step++)
        AX_TRY_GOTO(one_step(w, &s, step), st, done);
done:
    ax_step_free(&s);
    return st;
}

/* *figure: how far the second way is from the first. */
static enum ax_status compare_ways(struct way *a, struct way *b, double *figure) {
    struct way *const ways[] = {a, b};
    enum ax_status st = AX_OK;
    for (int i = 0; i < 2 && st == AX_OK; i++) {
        const struct ax_runtime_options ro = {.backend = ways[i]->s->backend,
                                              .threads = ways[i]->threads};
        st = ax_runtime_run(&ro, step_body, ways[i], NULL);
    }
    if (st == AX_OK)
        *figure = difference(&b->values, &a->values);
    free_values(&a->values);
    free_values(&b->values);
    return st;
}

static struct way usual_way(const struct ax_self *s) {
    return (struct way){
        .s = s, .threads = s->threads, .n_micro = 2, .steps = STEPS, .recompute = AX_RECOMPUTE_OFF};
}

enum ax_status ax_self_threads(struct ax_self *s) {
    char compared[64];
    double figure;
    if (!s->by_row) {
        s->skip(s, "threads", "a GPU computes, whatever the number of threads");
        return AX_OK;
    }
    struct way one = usual_way(s), all = usual_way(s);
    one.threads = 1;
    AX_TRY(compare_ways(&one, &all, &figure));
    snprintf(compared, sizeof compared, "%d steps on 1 and %d threads", STEPS, s->threads);
    s->note(s, "threads", compared, figure, 0, "");
    return AX_OK;
}

enum ax_status ax_self_recompute(struct ax_self *s) {
    for (int mode = AX_RECOMPUTE_SELECTIVE; mode <= AX_RECOMPUTE_ON; mode++) {
        char compared[64];
        double figure;
        struct way off = usual_way(s), on = usual_way(s);
        on.recompute = (enum ax_recompute)mode;
        AX_TRY(compare_ways(&off, &on, &figure));
        snprintf(compared, sizeof compared, "%d steps with off and %s", STEPS,
                 ax_recompute_name(on.recompute));
        s->note(s, "recompute", compared, figure, 0, "");
    }
    return AX_OK;
}

/* The same sums in another order, of products that on a GPU are rounded in another way. */
enum ax_status ax_self_accumulation(struct ax_self *s) {
    struct way two = usual_way(s), one = usual_way(s);
    double figure;
    two.steps = one.steps = 1;
    one.n_micro = 1;
    AX_TRY(compare_ways(&two, &one, &figure));
    const double sums = s->dtype == AX_F64 ? 1e-12 : 1e-5;
    s->note(s, "accumulation", "gradients of 2 micro-batches and of one", figure,
            s->by_row ? sums : rounding(s), "");
    return AX_OK;
}

/* ---- packed, generation: documents in a batch and alone ---- */

enum { ROW_DOCS = 5, ROW_LONGEST = 48, NEW_TOKENS = 12 };

static const int64_t row_lengths[ROW_DOCS] = {23, 1, 48, 17, 31};

static void write_tokens(int32_t *tokens, int d, int64_t vocab) {
    const struct ax_rng_key key = {31, 0, (uint32_t)d};
    for (int64_t i = 0; i < row_lengths[d]; i++)
        tokens[i] = (int32_t)ax_rng_below(key, (uint64_t)i, (uint64_t)vocab);
}

/* Runs something over documents first … first + n. */
struct pass {
    const struct ax_self *s;
    int first, n;
    int lanes;
    int64_t pass_tokens;
    struct values values; /* out: by document, in order */
};

static enum ax_status forward(struct pass *p, struct ax_model *m, struct ax_slot *slot) {
    struct ax_runtime *rt = m->rt;
    const int64_t vocab = m->arch.vocab_size;
    int32_t tokens[ROW_DOCS][ROW_LONGEST];
    struct ax_document docs[ROW_DOCS];
    struct ax_batch batch;
    int64_t total = 0;
    for (int d = 0; d < p->n; d++) {
        write_tokens(tokens[d], p->first + d, vocab);
        docs[d] = (struct ax_document){.n = row_lengths[p->first + d], .tokens = tokens[d]};
        total += docs[d].n;
    }
    ax_batch_allocate(&batch, &rt->arena.persistent, total, p->n, ROW_LONGEST, 1, 0);
    ax_batch_cut(&batch, &rt->arena.persistent, m->arch.chunk);
    AX_TRY(ax_batch_fill(&batch, rt->q, vocab, p->n, docs));
    struct ax_pass pass = {.model = m,
                           .batch = &batch,
                           .slot = slot,
                           .recompute = AX_RECOMPUTE_INFERENCE,
                           .inv_temperature = 1};
    AX_TRY(ax_pass_begin(&pass));
    AX_TRY(ax_pass_forward_all(&pass));
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_tensor logits =
        ax_stack_take(&rt->arena.scratch, "logits", ax_tensor_2d(m->accum, NULL, total, vocab));
    AX_TRY(ax_pass_logits(&pass, 0, total, &logits));
    AX_TRY(append_tensor(&p->values, rt->q, &logits));
    ax_stack_release(&rt->arena.scratch, mark);
    ax_pass_end(&pass);
    return AX_OK;
}

static enum ax_status logits_body(struct ax_runtime *rt, void *ctx) {
    struct pass *p = ctx;
    struct ax_model m;
    struct ax_slot slot = {0};
    const struct ax_model_options mo = {.dtype = p->s->dtype, .max_positions = ROW_LONGEST};
    AX_TRY(ax_model_create(&m, &p->s->dense, rt, &mo));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_init_random(&m, 5), st, done);
    AX_TRY_GOTO(ax_slot_create(&slot, &m, &rt->arena.slots[0]), st, done);
    st = forward(p, &m, &slot);
    ax_slot_free(&slot);
done:
    ax_model_free(&m);
    return st;
}

/* Samples; where a tie may go either way, scores given tokens instead. */
static enum ax_status generate(struct pass *p, struct ax_generator *g) {
    int32_t prompts[ROW_DOCS][ROW_LONGEST], tokens[ROW_DOCS][NEW_TOKENS];
    double logprobs[ROW_DOCS][ROW_LONGEST];
    struct ax_sequence seqs[ROW_DOCS];
    for (int d = 0; d < p->n; d++) {
        const int doc = p->first + d;
        write_tokens(prompts[d], doc, g->model->arch.vocab_size);
        seqs[d] = (struct ax_sequence){.n_prompt = row_lengths[doc],
                                       .prompt = prompts[d],
                                       .stream = (uint64_t)doc,
                                       .max_new = NEW_TOKENS,
                                       .n_scored = p->s->by_row ? 0 : row_lengths[doc],
                                       .scored = prompts[d],
                                       .tokens = tokens[d],
                                       .logprobs = logprobs[d]};
    }
    AX_TRY(ax_generate(g, p->n, seqs));
    for (int d = 0; d < p->n && !ax_runtime_planning(g->model->rt); d++) {
        double ids[NEW_TOKENS];
        for (int64_t i = 0; i < seqs[d].n_new; i++)
            ids[i] = tokens[d][i];
        AX_TRY(append(&p->values, seqs[d].n_new, ids));
        AX_TRY(append(&p->values, p->s->by_row ? seqs[d].n_new : seqs[d].n_scored, logprobs[d]));
    }
    return AX_OK;
}

static enum ax_status generate_body(struct ax_runtime *rt, void *ctx) {
    struct pass *p = ctx;
    struct ax_model m;
    struct ax_generator g = {0};
    const struct ax_model_options mo = {.dtype = p->s->dtype,
                                        .max_positions = ROW_LONGEST + NEW_TOKENS};
    const struct ax_generate_options o = {.n_seqs = p->lanes,
                                          .max_prompt = ROW_LONGEST,
                                          .max_new = NEW_TOKENS,
                                          .pass_tokens = p->pass_tokens,
                                          .scoring = !p->s->by_row,
                                          .sampling = {.temperature = 1, .top_p = 0.95, .seed = 4}};
    AX_TRY(ax_model_create(&m, &p->s->dense, rt, &mo));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_init_random(&m, 5), st, done);
    AX_TRY_GOTO(ax_generator_create(&g, &m, &o), st, done);
    st = generate(p, &g);
done:
    ax_generator_free(&g);
    ax_model_free(&m);
    return st;
}

static enum ax_status run_pass(struct pass *p, ax_runtime_body body) {
    const struct ax_runtime_options ro = {
        .backend = p->s->backend, .threads = p->s->threads, .may_stay_below = true};
    return ax_runtime_run(&ro, body, p, NULL);
}

/* All documents in one go against `other`'s way, or each by itself if that is for one document. */
static enum ax_status compare_passes(const struct ax_self *s, ax_runtime_body body,
                                     struct pass other, double *figure) {
    struct pass all = {.s = s, .n = ROW_DOCS, .lanes = ROW_DOCS};
    enum ax_status st = run_pass(&all, body);
    for (other.first = 0; other.first < ROW_DOCS && st == AX_OK; other.first += other.n)
        st = run_pass(&other, body);
    if (st == AX_OK)
        *figure = difference(&other.values, &all.values);
    free_values(&all.values);
    free_values(&other.values);
    return st;
}

enum ax_status ax_self_packed(struct ax_self *s) {
    double figure;
    AX_TRY(compare_passes(s, logits_body, (struct pass){.s = s, .n = 1}, &figure));
    s->note(s, "packed", "logits of 5 documents together and alone", figure,
            s->by_row ? 0 : rounding(s), "");
    return AX_OK;
}

enum ax_status ax_self_generation(struct ax_self *s) {
    const double tolerance = s->by_row ? 0 : rounding(s);
    const char *const what[] = {
        s->by_row ? "answers in a batch and alone" : "log-probs in a batch and alone",
        s->by_row ? "answers in one pass and in pieces" : "log-probs in one pass and in pieces"};
    double figure;
    AX_TRY(compare_passes(s, generate_body, (struct pass){.s = s, .n = 1, .lanes = 1}, &figure));
    s->note(s, "generation", what[0], figure, tolerance, "");
    AX_TRY(compare_passes(s, generate_body,
                          (struct pass){.s = s, .n = ROW_DOCS, .lanes = 2, .pass_tokens = 5},
                          &figure));
    s->note(s, "generation", what[1], figure, tolerance, "");
    return AX_OK;
}

/* ---- resume: a run with saves, and the same run resumed from its first checkpoint ---- */

enum { RESUME_DOCS = 48, RESUME_LEN = 32, SAVE_EVERY = 2, RESUME_STEPS = 4 };

struct two_runs {
    const struct ax_self *s;
    char *folder; /* temporary */
    struct ax_examples examples;
    struct ax_corpus corpus;
    struct ax_corpus_source source;
    struct ax_example_source documents;
    struct ax_loader *loader;
};

static enum ax_status add_documents(struct two_runs *r) {
    int32_t tokens[RESUME_LEN];
    AX_TRY(ax_examples_add_file(&r->examples, "documents"));
    for (int d = 0; d < RESUME_DOCS; d++) {
        const struct ax_rng_key key = {37, 0, (uint32_t)d};
        const size_t n = RESUME_LEN / 2 + ax_rng_below(key, RESUME_LEN, RESUME_LEN / 2);
        for (size_t i = 0; i < n; i++)
            tokens[i] = (int32_t)ax_rng_below(key, i, (uint64_t)r->s->dense.vocab_size);
        const struct ax_example x = {
            .tokens = tokens, .labels = tokens, .n = n, .origin = {.line = (uint64_t)d + 1}};
        AX_TRY(ax_examples_add(&r->examples, &x));
    }
    return AX_OK;
}

static enum ax_status open_data(struct two_runs *r) {
    const struct ax_corpus_options co = {
        .seed = 3, .shuffle = true, .rule = {.min = 1, .max = RESUME_LEN}};
    const struct ax_loader_options lo = {.pack = {.mode = AX_PACK_PLAIN,
                                                  .capacity = RESUME_LEN,
                                                  .max_docs = 1,
                                                  .group = 1,
                                                  .chunk = RESUME_DOCS},
                                         .shuffle = true,
                                         .seed = 5};
    struct ax_corpus_report report;
    AX_TRY(add_documents(r));
    AX_TRY(ax_corpus_build(&r->corpus, &r->examples, 1, &co, &report));
    r->source = (struct ax_corpus_source){.chunk = RESUME_DOCS, .shuffle = true, .seed = 5};
    ax_corpus_source_init(&r->source, &r->corpus, &r->documents);
    return ax_loader_new(&r->loader, &r->documents, &lo);
}

static void close_data(struct two_runs *r) {
    ax_loader_free(r->loader);
    ax_corpus_source_free(&r->source);
    ax_corpus_free(&r->corpus);
    ax_examples_free(&r->examples);
}

/* Trains in the folder's subfolder `name`; from a checkpoint, unless that is NULL. */
static enum ax_status train_run(struct two_runs *r, const char *name, const char *checkpoint) {
    const struct ax_self *s = r->s;
    struct ax_train_result result;
    char *out = NULL;
    struct ax_train_options o = {
        .arch = &s->dense,
        .runtime = {.backend = s->backend, .threads = s->threads},
        .epochs = 1,
        .max_steps = RESUME_STEPS,
        .warmup = 1,
        .lr = {.kind = AX_LR_LINEAR, .base_lr = 1e-2},
        .step = {.model.dtype = s->dtype,
                 .optimizer = &ax_optimizer_adamw,
                 .opt = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1},
                 .objective = &ax_objective_sft,
                 .max_norm = 1,
                 .seed = 7,
                 .n_microbatches = 2},
        .data = {.train = r->loader,
                 .sequences_per_batch = 2,
                 .sequence_tokens = RESUME_LEN,
                 .sequence_docs = 1,
                 .doc_tokens = RESUME_LEN,
                 .countable = true,
                 .pad = 16},
        .save = {.when = {AX_EACH_STEPS, SAVE_EVERY},
                 .hf = {.config = s->config, .dtype = s->dtype},
                 .resume = checkpoint ? AX_RESUME_FOLDER : AX_RESUME_NO,
                 .resume_dir = checkpoint}};
    AX_TRY(ax_path_join(&out, r->folder, name));
    o.save.output_dir = out;
    ax_loader_start_epoch(r->loader, 0);
    const enum ax_status st = ax_train(&o, &result);
    ax_free(out);
    return st;
}

/* All numbers of a file below the folder. */
static enum ax_status read_file(const struct two_runs *r, const char *name, struct values *out) {
    struct ax_safetensors file = {0};
    char *path;
    AX_TRY(ax_path_join(&path, r->folder, name));
    enum ax_status st = ax_safetensors_open(&file, path);
    ax_free(path);
    AX_TRY(st);
    for (int i = 0; i < file.n && st == AX_OK; i++) {
        double *v;
        const struct ax_st_entry *e = &file.entries[i];
        AX_TRY_GOTO(ax_alloc(&v, (size_t)e->numel, sizeof *v), st, done);
        st = ax_st_read(e, 0, e->numel, AX_F64, v);
        if (st == AX_OK)
            st = append(out, e->numel, v);
        ax_free(v);
    }
done:
    ax_safetensors_close(&file);
    return st;
}

static enum ax_status run_both(struct two_runs *r, struct values *at_once, struct values *resumed) {
    char *checkpoint;
    AX_TRY(open_data(r));
    AX_TRY(ax_temp_folder(&r->folder, NULL, "self"));
    AX_TRY(train_run(r, "once", NULL));
    AX_TRY(ax_path_join(&checkpoint, r->folder, "once/checkpoint-2"));
    const enum ax_status st = train_run(r, "resumed", checkpoint);
    ax_free(checkpoint);
    AX_TRY(st);
    AX_TRY(read_file(r, "once/model.safetensors", at_once));
    AX_TRY(read_file(r, "once/checkpoint-4/state/rank-00000.safetensors", at_once));
    AX_TRY(read_file(r, "resumed/model.safetensors", resumed));
    return read_file(r, "resumed/checkpoint-4/state/rank-00000.safetensors", resumed);
}

enum ax_status ax_self_resume(struct ax_self *s) {
    struct two_runs r = {.s = s};
    struct values at_once = {0}, resumed = {0};
    struct ax_error_record error;
    const enum ax_log_level level = ax_log_get_level();
    if (level == AX_LOG_INFO) /* the runs' own lines are not for the user */
        ax_log_set_level(AX_LOG_WARN);
    ax_error_save(&error, run_both(&r, &at_once, &resumed));
    ax_log_set_level(level);
    if (error.st == AX_OK)
        s->note(s, "resume", "weights and optimizer of a resumed run",
                difference(&resumed, &at_once), 0, "");
    free_values(&at_once);
    free_values(&resumed);
    close_data(&r);
    if (r.folder)
        (void)ax_remove_tree(r.folder);
    ax_free(r.folder);
    return ax_error_restore(&error);
}

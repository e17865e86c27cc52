/* A training run with saves, and the same run resumed from its first checkpoint. */
#include "base/io.h"
#include "base/io_path.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "ckpt/hf/safetensors.h"
#include "cmd/check/self.h"
#include "optim/train/train.h"

enum { DOCS = 48, LEN = 32, EVERY = 2, STEPS = 4 };

struct run {
    const struct ax_self *s;
    char *folder; /* temporary */
    struct ax_examples examples;
    struct ax_corpus corpus;
    struct ax_corpus_source source;
    struct ax_example_source documents;
    struct ax_loader *loader;
};

static enum ax_status add_documents(struct run *r) {
    int32_t tokens[LEN];
    AX_TRY(ax_examples_add_file(&r->examples, "documents"));
    for (int d = 0; d < DOCS; d++) {
        const struct ax_rng_key key = {37, 0, (uint32_t)d};
        const size_t n = LEN / 2 + ax_rng_below(key, LEN, LEN / 2);
        for (size_t i = 0; i < n; i++)
            tokens[i] = (int32_t)ax_rng_below(key, i, (uint64_t)r->s->dense.vocab_size);
        const struct ax_example x = {
            .tokens = tokens, .labels = tokens, .n = n, .origin = {.line = (uint64_t)d + 1}};
        AX_TRY(ax_examples_add(&r->examples, &x));
    }
    return AX_OK;
}

static enum ax_status open_data(struct run *r) {
    const struct ax_corpus_options co = {
        .seed = 3, .shuffle = true, .rule = {.min = 1, .max = LEN}};
    const struct ax_loader_options lo = {
        .pack = {.mode = AX_PACK_PLAIN, .capacity = LEN, .max_docs = 1, .group = 1, .chunk = DOCS},
        .shuffle = true,
        .seed = 5};
    struct ax_corpus_report report;
    AX_TRY(add_documents(r));
    AX_TRY(ax_corpus_build(&r->corpus, &r->examples, 1, &co, &report));
    r->source = (struct ax_corpus_source){.chunk = DOCS, .shuffle = true, .seed = 5};
    ax_corpus_source_init(&r->source, &r->corpus, &r->documents);
    return ax_loader_new(&r->loader, &r->documents, &lo);
}

static void close_data(struct run *r) {
    ax_loader_free(r->loader);
    ax_corpus_source_free(&r->source);
    ax_corpus_free(&r->corpus);
    ax_examples_free(&r->examples);
}

/* Trains in the folder's subfolder `name`; from a checkpoint, unless that is NULL. */
static enum ax_status train(struct run *r, const char *name, const char *checkpoint) {
    const struct ax_self *s = r->s;
    struct ax_train_result result;
    char *out = NULL;
    struct ax_train_options o = {
        .arch = &s->dense,
        .runtime = {.backend = s->backend, .threads = s->threads},
        .epochs = 1,
        .max_steps = STEPS,
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
                 .sequence_tokens = LEN,
                 .sequence_docs = 1,
                 .doc_tokens = LEN,
                 .countable = true,
                 .pad = 16},
        .save = {.when = {AX_EACH_STEPS, EVERY},
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
static enum ax_status read_file(const struct run *r, const char *name, struct ax_self_values *out) {
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
            st = ax_self_append(out, e->numel, v);
        ax_free(v);
    }
done:
    ax_safetensors_close(&file);
    return st;
}

static enum ax_status run_both(struct run *r, struct ax_self_values *at_once,
                               struct ax_self_values *resumed) {
    char *checkpoint;
    AX_TRY(open_data(r));
    AX_TRY(ax_temp_folder(&r->folder, NULL, "self"));
    AX_TRY(train(r, "once", NULL));
    AX_TRY(ax_path_join(&checkpoint, r->folder, "once/checkpoint-2"));
    const enum ax_status st = train(r, "resumed", checkpoint);
    ax_free(checkpoint);
    AX_TRY(st);
    AX_TRY(read_file(r, "once/model.safetensors", at_once));
    AX_TRY(read_file(r, "once/checkpoint-4/state/rank-00000.safetensors", at_once));
    AX_TRY(read_file(r, "resumed/model.safetensors", resumed));
    return read_file(r, "resumed/checkpoint-4/state/rank-00000.safetensors", resumed);
}

enum ax_status ax_self_resume(struct ax_self *s) {
    struct run r = {.s = s};
    struct ax_self_values at_once = {0}, resumed = {0};
    struct ax_error_record error;
    const enum ax_log_level level = ax_log_get_level();
    if (level == AX_LOG_INFO) /* the runs' own lines are not for the user */
        ax_log_set_level(AX_LOG_WARN);
    ax_error_save(&error, run_both(&r, &at_once, &resumed));
    ax_log_set_level(level);
    if (error.st == AX_OK)
        ax_self_note(s, "resume", "weights and optimizer of a resumed run",
                     ax_self_difference(&resumed, &at_once), 0, "");
    ax_self_free_values(&at_once);
    ax_self_free_values(&resumed);
    close_data(&r);
    if (r.folder)
        (void)ax_remove_tree(r.folder);
    ax_free(r.folder);
    return ax_error_restore(&error);
}

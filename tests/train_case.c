#include "tests/train_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "model/parts/head.h"

#define VOCAB   97
#define ROW     32
#define COMMON  10 /* tokens of a pair's prompt */
#define N_TRAIN 90
#define N_EVAL  12

static const char model[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 97, "
    "\"hidden_size\": 48, \"intermediate_size\": 80, \"num_hidden_layers\": 3, "
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 16, "
    "\"initializer_range\": 0.15, \"max_position_embeddings\": 64, \"tie_word_embeddings\": true, "
    "\"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"torch_dtype\": \"float32\"}";

/* Values of the columns that an objective names: of preferences, ratings, rewards, labeled steps, stored
 * log-probs, completions. */
struct values {
    float reference, margin, advantage, share[32], target[32], logprob[3][32];
    int32_t desirable, target_ids[32 * VOCAB];
    float target_logits[32 * VOCAB];
};

static void set_columns(struct ax_example *x, const struct ax_objective *o,
                        const struct values *v) {
    const struct {
        const char *name;
        enum ax_column_of of;
        const void *values;
    } known[] = {{"reference", AX_OF_EXAMPLE, &v->reference},
                 {"desirable", AX_OF_EXAMPLE, &v->desirable},
                 {"margin", AX_OF_EXAMPLE, &v->margin},
                 {"advantage", AX_OF_EXAMPLE, &v->advantage},
                 {"share", AX_OF_LABEL, v->share},
                 {"target", AX_OF_LABEL, v->target},
                 {"target_ids", AX_OF_LABEL, v->target_ids},
                 {"target_logits", AX_OF_LABEL, v->target_logits},
                 {"old", AX_OF_LABEL, v->logprob[0]},
                 {"sampler", AX_OF_LABEL, v->logprob[1]},
                 {"reference", AX_OF_LABEL, v->logprob[2]},
                 {"advantage", AX_OF_LABEL, v->logprob[1]},
                 {"old_value", AX_OF_LABEL, v->share},
                 {"return", AX_OF_LABEL, v->target}};
    for (int i = 0; i < ax_columns_count(o->columns); i++)
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            if (strcmp(known[k].name, o->columns->list[i].name) == 0 &&
                known[k].of == o->columns->list[i].of)
                x->columns[i] = known[k].values;
}

/* Classes in place of tokens: of a reward model one on the last token, of values most, else of some a
 * wrong or a right step, as far as `target` says. */
static void label_classes(const struct ax_objective *o, int32_t *labels, size_t len,
                          const struct values *v) {
    const bool values = strcmp(o->name, "value") == 0;
    for (size_t i = 0; i < len && o->labels_in_place; i++)
        labels[i] = o->per == AX_PER_PAIR ? (i + 1 == len ? 0 : AX_NO_LABEL)
                    : values              ? (i > 0 ? 0 : AX_NO_LABEL)
                    : i % 3 == 1          ? v->target[i] >= 0.5F
                                          : AX_NO_LABEL;
}

/* A distribution of k tokens, in no order, for each token; one has fewer. */
static void make_targets(struct values *v, const int32_t *ids, size_t len, int k) {
    for (size_t i = 0; i < len; i++)
        for (int j = 0; j < k; j++) {
            const bool none = j == k - 1 && k > 1 && k < VOCAB && i % 3 == 0;
            v->target_ids[i * (size_t)k + (size_t)j] =
                none ? -1 : (ids[i] * 7 + 13 + j * 5) % VOCAB;
            v->target_logits[i * (size_t)k + (size_t)j] = -0.4F * (float)(j * j % 7) - 0.1F;
        }
}

/* Token i of a document follows from the one before, so that there is something to learn. Pairs of
 * preferences have no reference, and a share of the tokens; three of four have a prompt in common. */
static enum ax_status add_docs(struct ax_examples *d, int n, uint64_t seed, const char *name,
                               const struct ax_objective *o) {
    int32_t ids[32], labels[32];
    static _Thread_local struct values v;
    const bool pairs = o->per == AX_PER_PAIR;
    for (int i = 0; i < 32; i++) {
        v.share[i] = i % 5 == 4 ? 0.5F : 1;
        v.target[i] = (float)(i % 7) / 6;
        for (int k = 0; k < 3; k++) /* about that of a token of many */
            v.logprob[k][i] = -4.5F - 0.1F * (float)((i * (k + 2)) % 5);
    }
    d->columns = o->columns;
    AX_TRY(ax_examples_add_file(d, name));
    for (int k = 0; k < n; k++) {
        const struct ax_rng_key key = {seed, (uint32_t)k, 1};
        const size_t common = pairs && k / 2 % 4 != 3 ? COMMON : 0;
        const size_t len = 2 + common + ax_rng_below(key, 1000, 23 - common);
        const size_t prompt = common ? common : len / 4, kept = k % 2 == 1 ? common : 0;
        if (kept == 0)
            ids[0] = (int32_t)ax_rng_below(key, 0, VOCAB);
        for (size_t i = kept > 0 ? kept : 1; i < len; i++)
            ids[i] = (int32_t)((ids[i - 1] * 5 + (int32_t)ax_rng_below(key, i, 4)) % VOCAB);
        for (size_t i = 0; i < len; i++)
            labels[i] = i < prompt ? AX_NO_LABEL : ids[i]; /* a prompt is not trained */
        const struct ax_origin from = {.file = 0, .line = (uint64_t)(pairs ? k / 2 : k) + 1};
        struct ax_example x = {.tokens = ids,
                               .labels = labels,
                               .n = len,
                               .joined = pairs && k % 2 == 1,
                               .origin = from};
        v.desirable = k % 3 != 0;
        v.advantage = 0.5F * (float)(k % 4) - 1.2F;
        v.margin = 0.1F * (float)(k / 2 % 4);
        label_classes(o, labels, len, &v);
        make_targets(&v, ids, len, o->head.distill ? o->head.distill->stored : 0);
        set_columns(&x, o, &v);
        AX_TRY(ax_examples_add(d, &x));
    }
    return AX_OK;
}

static enum ax_status open_data(struct train_case *c, bool packed, const struct ax_objective *o) {
    const int64_t group = o->per == AX_PER_PAIR ? 2 : 1;
    const struct ax_corpus_options co = {.seed = 3, .shuffle = true, .rule = {1, ROW, 0, false}};
    struct ax_corpus_report report;
    AX_TRY(add_docs(&c->docs, N_TRAIN, 11, "rows.jsonl", o));
    AX_TRY(add_docs(&c->eval_docs, N_EVAL, 12, "test.jsonl", o));
    AX_TRY(ax_corpus_build(&c->train, &c->docs, 1, &co, &report));
    AX_TRY(ax_corpus_build(&c->eval, &c->eval_docs, 1, &co, &report));
    c->source = (struct ax_corpus_source){.chunk = 1000, .shuffle = true, .seed = 5};
    c->eval_source = (struct ax_corpus_source){.chunk = 1000};
    ax_corpus_source_init(&c->source, &c->train, &c->doc_source);
    ax_corpus_source_init(&c->eval_source, &c->eval, &c->eval_doc_source);
    const struct ax_loader_options lo = {.pack = {.mode = packed ? AX_PACK_FIT : AX_PACK_PLAIN,
                                                  .capacity = group * ROW,
                                                  .max_docs = packed ? 8 : group,
                                                  .group = group,
                                                  .chunk = 1000},
                                         .shuffle = true,
                                         .labels_in_place = o->labels_in_place,
                                         .seed = 5};
    struct ax_loader_options eo = lo;
    eo.shuffle = false;
    AX_TRY(ax_loader_new(&c->loader, &c->doc_source, &lo));
    return ax_loader_new(&c->eval_loader, &c->eval_doc_source, &eo);
}

static void set_options(struct train_case *c, enum ax_dtype dtype, bool packed,
                        const struct ax_objective *objective) {
    const int64_t group = objective->per == AX_PER_PAIR ? 2 : 1;
    struct ax_train_options *o = &c->o;
    *o = (struct ax_train_options){
        .arch = &c->arch,
        .runtime = {.backend = "cpu", .threads = 1},
        .epochs = 3,
        .warmup_ratio = 0.1,
        .warmup = -1,
        .lr = {.kind = AX_LR_COSINE, .base_lr = 1e-2, .num_cycles = 0.5},
        .config = c->config,
    };
    o->step = (struct ax_step_options){.model.dtype = dtype,
                                       .optimizer = &ax_optimizer_adamw,
                                       .objective = objective,
                                       .max_norm = 1,
                                       .seed = 7,
                                       .n_microbatches = 2};
    o->step.opt = (struct ax_optimizer_options){
        .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
    o->data = (struct ax_train_data){.train = c->loader,
                                     .eval = c->eval_loader,
                                     .sequences_per_batch = 2,
                                     .sequence_tokens = group * ROW,
                                     .sequence_docs = packed ? 8 : group,
                                     .doc_tokens = ROW,
                                     .drop_last = packed,
                                     .countable = true,
                                     .eval_tokens = 2 * ROW,
                                     .eval_docs = 16,
                                     .pad = 16};
    o->save = (struct ax_train_save){.output_dir = c->out,
                                     .when = {.when = AX_NEVER},
                                     .hf = {.config = c->model_config, .dtype = dtype}};
    o->eval = (struct ax_train_eval){.when = {.when = AX_NEVER}};
    o->metrics = (struct ax_metrics_options){.color = AX_COLOR_NEVER};
}

enum ax_status train_case_open(struct train_case *c, enum ax_dtype dtype, bool packed) {
    return train_case_open_for(c, dtype, packed, &ax_objective_sft);
}

enum ax_status train_case_open_for(struct train_case *c, enum ax_dtype dtype, bool packed,
                                   const struct ax_objective *objective) {
    struct ax_json_doc doc;
    *c = (struct train_case){0};
    snprintf(c->dir, sizeof c->dir, "%s/axtrain-train-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(c->dir))
        return ax_error(AX_ERR_IO, "%s: %m", c->dir);
    snprintf(c->out, sizeof c->out, "%s/out", c->dir);
    AX_TRY(ax_json_parse(&doc, "tiny", model, strlen(model)));
    const enum ax_status st = ax_arch_parse(&c->arch, ax_json_root(&doc));
    c->model_config = json_incref(doc.root);
    ax_json_free(&doc);
    AX_TRY(st);
    c->config = json_pack("{ss sf}", "base_model", "tiny", "learning_rate", 1e-2);
    AX_TRY(open_data(c, packed, objective));
    set_options(c, dtype, packed, objective);
    return AX_OK;
}

enum ax_status train_case_use_model(struct train_case *c, const char *config) {
    struct ax_json_doc doc;
    ax_arch_free(&c->arch);
    json_decref(c->model_config);
    AX_TRY(ax_json_parse(&doc, "model", config, strlen(config)));
    const enum ax_status st = ax_arch_parse(&c->arch, ax_json_root(&doc));
    c->model_config = json_incref(doc.root);
    c->o.save.hf.config = c->model_config;
    ax_json_free(&doc);
    return st;
}

void train_case_close(struct train_case *c) {
    ax_loader_free(c->loader);
    ax_loader_free(c->eval_loader);
    ax_corpus_source_free(&c->source);
    ax_corpus_source_free(&c->eval_source);
    ax_corpus_free(&c->train);
    ax_corpus_free(&c->eval);
    ax_examples_free(&c->docs);
    ax_examples_free(&c->eval_docs);
    ax_arch_free(&c->arch);
    json_decref(c->model_config);
    json_decref(c->config);
    if (c->dir[0])
        (void)ax_remove_tree(c->dir);
    *c = (struct train_case){0};
}

enum ax_status train_case_run(struct train_case *c, struct ax_train_result *r) {
    ax_loader_start_epoch(c->loader, 0);
    return ax_train(&c->o, r);
}

uint64_t train_case_hash(const struct train_case *c, const char *name) {
    char *path, *data;
    size_t n;
    if (ax_path_join(&path, c->out, name) != AX_OK)
        return 0;
    uint64_t hash = 0;
    if (ax_path_exists(path) && ax_read_file(path, (size_t)1 << 30, &data, &n) == AX_OK) {
        hash = ax_hash64(data, n, 1);
        ax_free(data);
    }
    ax_free(path);
    return hash;
}

bool train_case_tells(const struct train_case *c, const char *part) {
    char path[192], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/metrics.jsonl", c->out);
    if (ax_read_file(path, 1 << 20, &text, &n) != AX_OK)
        return false;
    const bool found = strstr(text, part) != NULL;
    ax_free(text);
    return found;
}

/* Everything between a config and a corpus. Read ax_setup_data_open first. */
#include "cmd/train/data.h"

#include <string.h>

#include "base/hash/hash.h"
#include "base/threads.h"

/* ---- options ---- */

bool ax_setup_is_streamed(const struct ax_config *cfg) {
    return ax_config_bool(cfg, "streaming") || ax_config_count(cfg, "pretraining_dataset") > 0;
}

/* Packing uses windows of each document; without it a document is cut. With concatenation documents
 * are cut and joined; with both they are joined in full and split at row ends. */
enum ax_pretrain_mode ax_setup_pretrain_mode(const struct ax_config *cfg) {
    const bool pack = ax_config_bool(cfg, "sample_packing");
    const bool join = ax_config_bool(cfg, "pretraining_sample_concatenation");
    if (pack)
        return join ? AX_PRETRAIN_WHOLE : AX_PRETRAIN_WINDOWS;
    return join ? AX_PRETRAIN_JOIN : AX_PRETRAIN_CUT;
}

struct ax_length_rule ax_setup_length_rule(const struct ax_config *cfg, bool eval) {
    const char *excess = ax_config_str(cfg, "excess_length_strategy");
    const bool packed = ax_config_bool(cfg, eval ? "eval_sample_packing" : "sample_packing");
    const enum ax_task task = ax_method_of(cfg)->task;
    struct ax_length_rule r = {
        .min = ax_config_i64(cfg, "min_sample_len"),
        .max =
            ax_config_i64(cfg, eval && ax_config_has(cfg, "eval_sequence_len") ? "eval_sequence_len"
                                                                               : "sequence_len"),
        .excess = strcmp(excess, "truncate") == 0 ? AX_EXCESS_TRUNCATE
                  : strcmp(excess, "raise") == 0  ? AX_EXCESS_RAISE
                                                  : AX_EXCESS_DROP,
        .drop_untrained = packed || task != AX_TASK_TEXT,
    };
    if (task == AX_TASK_PROMPT) {
        r.reserved = ax_config_i64(cfg, "%s", ax_method_of(cfg)->answer_key);
        r.max -= r.reserved;
    }
    if ((ax_config_count(cfg, "pretraining_dataset") > 0 &&
         ax_setup_pretrain_mode(cfg) == AX_PRETRAIN_WHOLE) ||
        (packed && ax_config_has(cfg, "packing_strategy")))
        r.max = INT64_MAX;
    return r;
}

/* ---- sets ---- */

static enum ax_status open_set(struct ax_setup_data *d, struct ax_setup_sets *s, size_t i,
                               bool refresh) {
    const struct ax_config *cfg = d->cfg;
    const struct ax_prepared_options o = {
        .rows = s->entries[i].rows,
        .format = s->entries[i].format,
        .max_bad_rows = ax_config_i64(cfg, "max_bad_rows"),
        .threads = ax_cpu_count(),
        .bos = d->tok.bos,
        .cache = ax_config_str(cfg, "dataset_prepared_path"),
        .tokenizer = d->tok.key,
        .refresh = refresh,
    };
    return ax_prepared_open(&s->sets[i], &o);
}

static enum ax_status open_sets(struct ax_setup_data *d, struct ax_setup_sets *s, const char *list,
                                bool streamed, bool refresh) {
    const size_t n = ax_config_count(d->cfg, "%s", list);
    AX_TRY(ax_alloc(&s->entries, n, sizeof *s->entries));
    for (; s->n < n; s->n++)
        AX_TRY(ax_setup_entry_open(&s->entries[s->n], d, list, s->n));
    if (streamed)
        return AX_OK;
    AX_TRY(ax_alloc(&s->sets, n, sizeof *s->sets));
    for (size_t i = 0; i < n; i++) {
        const enum ax_status st = open_set(d, s, i, refresh);
        if (st != AX_OK)
            return st == AX_ERR_DATA ? ax_error_prefix(st, "%s", s->entries[i].path) : st;
    }
    return AX_OK;
}

static void close_sets(struct ax_setup_sets *s) {
    for (size_t i = 0; i < s->n; i++) {
        if (s->sets)
            ax_examples_free(&s->sets[i]);
        ax_setup_entry_close(&s->entries[i]);
    }
    ax_free(s->entries);
    ax_free(s->sets);
    *s = (struct ax_setup_sets){0};
}

/* ---- corpora ---- */

static struct ax_corpus_options corpus_options(const struct ax_config *cfg) {
    const bool keep_order =
        ax_config_bool(cfg, "curriculum_sampling") && ax_config_count(cfg, "datasets") == 1;
    struct ax_corpus_options o = {
        .shuffle_each = ax_config_bool(cfg, "shuffle_before_merging_datasets"),
        .shuffle = ax_config_bool(cfg, "shuffle_merged_datasets") && !keep_order,
        .seed = (uint64_t)ax_config_i64(cfg, "seed"),
        .rule = ax_setup_length_rule(cfg, false),
        .deduplicate = ax_config_bool(cfg, "dataset_exact_deduplication"),
    };
    if (ax_config_has(cfg, "dataset_shard_num")) {
        o.n_shards = ax_config_i64(cfg, "dataset_shard_num");
        o.shard = ax_config_i64(cfg, "dataset_shard_idx");
    }
    return o;
}

/* Applies the weights of the training sets: their own, or mixing_weights. */
static enum ax_status weigh(struct ax_setup_data *d, bool shuffle) {
    const struct ax_config *cfg = d->cfg;
    struct ax_corpus_weights w = {.n = d->train_sets.n,
                                  .shares = ax_config_has(cfg, "mixing_weights"),
                                  .shuffle = shuffle,
                                  .seed = (uint64_t)ax_config_i64(cfg, "seed")};
    double *list;
    bool any = w.shares;
    AX_TRY(ax_alloc(&list, w.n, sizeof *list));
    for (size_t i = 0; i < w.n; i++) {
        const bool own = ax_config_has(cfg, "datasets.%zu.weight", i);
        list[i] = w.shares ? ax_config_f64(cfg, "mixing_weights.%zu", i)
                  : own    ? ax_config_f64(cfg, "datasets.%zu.weight", i)
                           : 1;
        any = any || own;
    }
    w.list = list;
    const enum ax_status st = any ? ax_corpus_weigh(&d->train, &w) : AX_OK;
    ax_free(list);
    return st;
}

/* Weights are applied last, so that no copy of a held-out record is trained on. */
static enum ax_status build_train(struct ax_setup_data *d) {
    const struct ax_corpus_options o = corpus_options(d->cfg);
    AX_TRY(ax_corpus_build(&d->train, d->train_sets.sets, d->train_sets.n, &o, &d->train_report));
    const double val = ax_config_f64(d->cfg, "val_set_size");
    if (val > 0)
        AX_TRY(ax_corpus_take_tail(&d->train, val, &d->eval));
    AX_TRY(weigh(d, o.shuffle));
    const struct ax_length_rule rule = ax_setup_length_rule(d->cfg, true);
    return ax_corpus_filter(&d->eval, 0, &rule, &d->eval_report);
}

static enum ax_status build_eval(struct ax_setup_data *d) {
    const struct ax_corpus_options o = {
        .rule = ax_setup_length_rule(d->cfg, true),
        .deduplicate = ax_config_bool(d->cfg, "dataset_exact_deduplication"),
        .also = &d->train,
    };
    return ax_corpus_build(&d->eval, d->eval_sets.sets, d->eval_sets.n, &o, &d->eval_report);
}

/* ---- streams ---- */

static enum ax_status open_stream(struct ax_setup_data *d) {
    struct ax_setup_sets *s = &d->train_sets;
    struct ax_stream_entry *entries;
    if (ax_config_bool(d->cfg, "dataset_exact_deduplication"))
        return ax_config_error(d->cfg, "dataset_exact_deduplication",
                               "streamed records are not stored, so they cannot be compared");
    AX_TRY(ax_alloc(&entries, s->n, sizeof *entries));
    uint64_t hash = ax_hash64(d->tok.key, strlen(d->tok.key), 0);
    enum ax_status st = AX_OK;
    for (size_t i = 0; i < s->n && st == AX_OK; i++) {
        json_t *v;
        entries[i] =
            (struct ax_stream_entry){.rows = s->entries[i].rows, .format = s->entries[i].format};
        if (ax_config_has(d->cfg, "mixing_weights"))
            entries[i].share = ax_config_f64(d->cfg, "mixing_weights.%zu", i);
        st = ax_format_describe(s->entries[i].format, &v);
        char *text = st == AX_OK ? json_dumps(v, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
        if (text)
            hash = ax_hash64(text, strlen(text), hash);
        ax_free(text);
        if (st == AX_OK)
            json_decref(v);
    }
    const struct ax_stream_options o = {
        .entries = entries,
        .n = s->n,
        .buffer = ax_config_i64(d->cfg, "streaming_multipack_buffer_size"),
        .shuffle = !ax_config_bool(d->cfg, "curriculum_sampling"),
        .seed = (uint64_t)ax_config_i64(d->cfg, "seed"),
        .rule = ax_setup_length_rule(d->cfg, false),
        .max_bad_rows = ax_config_i64(d->cfg, "max_bad_rows"),
        .threads = ax_cpu_count(),
        .options_hash = hash,
    };
    if (st == AX_OK)
        st = ax_stream_open(&d->stream, &o);
    if (st != AX_OK)
        ax_free(entries);
    else
        s->stream_entries = entries;
    return st;
}

/* ---- all ---- */

static enum ax_status open_all(struct ax_setup_data *d, bool refresh) {
    const bool streamed = ax_setup_is_streamed(d->cfg);
    const char *list =
        ax_config_count(d->cfg, "pretraining_dataset") > 0 ? "pretraining_dataset" : "datasets";
    if (ax_config_count(d->cfg, "%s", list) == 0)
        return ax_config_error(d->cfg, "datasets", "no data sets; give a list of at least one");
    AX_TRY(ax_setup_check_prompts(d->cfg));
    AX_TRY(ax_setup_tokenizer_open(&d->tok, d->cfg));
    AX_TRY(open_sets(d, &d->train_sets, list, streamed, refresh));
    if (streamed)
        AX_TRY(open_stream(d));
    else
        AX_TRY(build_train(d));
    if (ax_config_count(d->cfg, "test_datasets") > 0) {
        AX_TRY(open_sets(d, &d->eval_sets, "test_datasets", false, refresh));
        AX_TRY(build_eval(d));
    }
    return ax_setup_loaders_open(d);
}

enum ax_status ax_setup_data_open(struct ax_setup_data *d, const struct ax_config *cfg,
                                  bool refresh) {
    *d = (struct ax_setup_data){.cfg = cfg};
    enum ax_status st = ax_setup_method_read(&d->method, cfg);
    if (st == AX_OK)
        st = open_all(d, refresh);
    if (st != AX_OK)
        ax_setup_data_close(d);
    return st;
}

void ax_setup_data_close(struct ax_setup_data *d) {
    ax_loader_free(d->train_loader);
    ax_loader_free(d->eval_loader);
    ax_corpus_source_free(&d->train_source);
    ax_corpus_source_free(&d->eval_source);
    ax_stream_close(d->stream);
    ax_corpus_free(&d->train);
    ax_corpus_free(&d->eval);
    ax_free(d->train_sets.stream_entries);
    close_sets(&d->train_sets);
    close_sets(&d->eval_sets);
    ax_setup_tokenizer_close(&d->tok);
    *d = (struct ax_setup_data){0};
}

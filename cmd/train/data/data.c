/* Everything between a config and a corpus. Read ax_setup_data_open first. */
#include "cmd/train/data/data.h"

#include <string.h>

#include "base/hash/hash.h"
#include "base/threads.h"

/* The corpus's rule for lengths. */
static struct ax_length_rule length_rule(const struct ax_setup_data *d, bool eval) {
    const struct ax_method *method = ax_method_of(d->cfg);
    const bool packed = d->keys.packs[eval];
    struct ax_length_rule r = {.max = d->keys.sequence_len[eval],
                               .drop_untrained = packed || method->task != AX_TASK_TEXT};
    AX_FILL(d->cfg, "", struct ax_length_rule, &r);
    if (method->task == AX_TASK_PROMPT) {
        r.reserved = ax_config_i64(d->cfg, "%s", method->answer_key);
        r.max -= r.reserved;
    }
    if ((ax_setup_pretrains(d->cfg) && ax_setup_pretrain_mode(&d->keys) == AX_PRETRAIN_WHOLE) ||
        (packed && d->keys.packing_strategy))
        r.max = INT64_MAX;
    else if (d->keys.packing_strategy)
        r.excess = AX_EXCESS_TRUNCATE;
    return r;
}

/* AX_ERR_CONFIG if prompts have no room in sequence_len, or would be truncated. */
static enum ax_status check_prompts(const struct ax_setup_data *d) {
    const struct ax_config *cfg = d->cfg;
    if (ax_method_of(cfg)->task != AX_TASK_PROMPT)
        return AX_OK;
    for (int eval = 0; eval < 2; eval++) {
        const struct ax_length_rule r = length_rule(d, eval);
        const int64_t length = r.max + r.reserved;
        if (r.max < 1)
            return ax_config_error(cfg, ax_method_of(cfg)->answer_key,
                                   "%lld leaves no room for a prompt in %s: %lld",
                                   (long long)r.reserved,
                                   eval ? "eval_sequence_len" : "sequence_len", (long long)length);
        if (r.excess == AX_EXCESS_TRUNCATE)
            return ax_config_error(cfg, "excess_length_strategy",
                                   "truncate would remove the end of prompts, where completions "
                                   "begin; use drop or raise");
    }
    return AX_OK;
}

/* ---- sets ---- */

static enum ax_status open_set(struct ax_setup_data *d, struct ax_setup_sets *s, size_t i,
                               bool refresh) {
    struct ax_prepared_options o = {.rows = s->entries[i].rows,
                                    .format = s->entries[i].format,
                                    .threads = ax_cpu_count(),
                                    .bos = d->tok.bos,
                                    .tokenizer = d->tok.key,
                                    .refresh = refresh};
    AX_FILL(d->cfg, "", struct ax_prepared_options, &o);
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

static struct ax_corpus_options corpus_options(const struct ax_setup_data *d) {
    struct ax_corpus_options o = {.rule = length_rule(d, false)};
    AX_FILL(d->cfg, "", struct ax_corpus_options, &o);
    if (d->keys.in_file_order && d->train_sets.n == 1)
        o.shuffle = false;
    return o;
}

/* Applies the weights of the training sets: their own, or mixing_weights. */
static enum ax_status weigh(struct ax_setup_data *d, bool shuffle) {
    const struct ax_yaml_node *shares = d->keys.mixing_weights;
    struct ax_corpus_weights w = {
        .n = d->train_sets.n, .shares = shares != NULL, .shuffle = shuffle};
    double *list;
    AX_FILL(d->cfg, "", struct ax_corpus_weights, &w);
    bool any = w.shares;
    AX_TRY(ax_alloc(&list, w.n, sizeof *list));
    for (size_t i = 0; i < w.n; i++) {
        const double own = d->train_sets.entries[i].keys.weight;
        list[i] = shares ? ax_config_element(shares, i)->number : own > 0 ? own : 1;
        any = any || own > 0;
    }
    w.list = list;
    const enum ax_status st = any ? ax_corpus_weigh(&d->train, &w) : AX_OK;
    ax_free(list);
    return st;
}

/* Weights are applied last, so that no copy of a held-out record is trained on. */
static enum ax_status build_train(struct ax_setup_data *d) {
    const struct ax_corpus_options o = corpus_options(d);
    AX_TRY(ax_corpus_build(&d->train, d->train_sets.sets, d->train_sets.n, &o, &d->train_report));
    if (d->keys.val_set_size > 0 && d->train.n > 0) /* else ax_setup_data_require says why */
        AX_TRY(ax_corpus_take_tail(&d->train, d->keys.val_set_size, &d->eval));
    AX_TRY(weigh(d, o.shuffle));
    const struct ax_length_rule rule = length_rule(d, true);
    return ax_corpus_filter(&d->eval, 0, &rule, &d->eval_report);
}

static enum ax_status build_eval(struct ax_setup_data *d) {
    const struct ax_corpus_options o = {.rule = length_rule(d, true),
                                        .deduplicate = corpus_options(d).deduplicate,
                                        .also = &d->train};
    return ax_corpus_build(&d->eval, d->eval_sets.sets, d->eval_sets.n, &o, &d->eval_report);
}

/* ---- streams ---- */

/* Adds which of its files' records an entry reads, unless it is all of them. */
static enum ax_status hash_selection(struct ax_setup_data *d, struct ax_setup_entry *e,
                                     uint64_t *hash) {
    struct ax_rows_options o = {0};
    AX_TRY(ax_setup_entry_rows(e, d->cfg, &o));
    const char *split = ax_rows_split(&o);
    const bool sharded = o.n_shards > 1;
    const uint64_t v[] = {(uint64_t)o.skip, sharded ? (uint64_t)o.n_shards : 0,
                          sharded ? (uint64_t)o.shard : 0, sharded ? o.seed : 0};
    if (strcmp(split, "train") == 0 && o.skip == 0 && !sharded)
        return AX_OK;
    *hash = ax_hash64(v, sizeof v, ax_hash64(split, strlen(split), *hash));
    return AX_OK;
}

static enum ax_status open_stream(struct ax_setup_data *d) {
    struct ax_setup_sets *s = &d->train_sets;
    struct ax_stream_entry *entries;
    if (corpus_options(d).deduplicate)
        return ax_config_error(d->cfg, "dataset_exact_deduplication",
                               "streamed records are not stored, so they cannot be compared");
    AX_TRY(ax_alloc(&entries, s->n, sizeof *entries));
    uint64_t hash = ax_hash64(d->tok.key, strlen(d->tok.key), 0);
    enum ax_status st = AX_OK;
    for (size_t i = 0; i < s->n && st == AX_OK; i++) {
        json_t *v;
        entries[i] =
            (struct ax_stream_entry){.rows = s->entries[i].rows, .format = s->entries[i].format};
        if (d->keys.mixing_weights)
            entries[i].share = ax_config_element(d->keys.mixing_weights, i)->number;
        st = ax_format_describe(s->entries[i].format, &v);
        char *text = st == AX_OK ? json_dumps(v, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
        if (text)
            hash = ax_hash64(text, strlen(text), hash);
        ax_free(text);
        if (st == AX_OK)
            json_decref(v);
        if (st == AX_OK)
            st = hash_selection(d, &s->entries[i], &hash);
    }
    struct ax_stream_options o = {.entries = entries,
                                  .n = s->n,
                                  .shuffle = corpus_options(d).shuffle && !d->keys.in_file_order,
                                  .rule = length_rule(d, false),
                                  .threads = ax_cpu_count(),
                                  .options_hash = hash};
    AX_FILL(d->cfg, "", struct ax_stream_options, &o);
    if (st == AX_OK)
        st = ax_stream_open(&d->stream, &o);
    if (st != AX_OK)
        ax_free(entries);
    else
        s->stream_entries = entries;
    return st;
}

/* ---- all ---- */

static enum ax_status find_ends(struct ax_setup_data *d) {
    for (size_t i = 0; i < d->train_sets.n; i++) {
        int32_t id;
        AX_TRY(ax_format_answer_end(d->train_sets.entries[i].format, &id));
        if (id != AX_NO_TOKEN && id != d->tok.eos)
            ax_stop_tokens_add(&d->ends, &id, 1);
    }
    return AX_OK;
}

enum ax_status ax_setup_stops(struct ax_stop_tokens *out, const char *base,
                              const struct ax_setup_data *d) {
    AX_TRY(ax_stop_tokens_read(out, base, d->tok.eos));
    ax_stop_tokens_add(out, d->ends.ids, (size_t)d->ends.n);
    return AX_OK;
}

static enum ax_status open_all(struct ax_setup_data *d, bool refresh) {
    const bool streamed = ax_setup_is_streamed(d->cfg);
    const char *list = ax_setup_pretrains(d->cfg) ? "pretraining_dataset" : "datasets";
    if (ax_config_count(d->cfg, "%s", list) == 0)
        return ax_config_error(d->cfg, "datasets", "no data sets; give a list of at least one");
    AX_TRY(check_prompts(d));
    AX_TRY(ax_setup_tokenizer_open(&d->tok, d->cfg));
    if (!d->tool_definitions)
        AX_TRY(ax_setup_tools_open(&d->tools, d->cfg));
    if (d->tools)
        d->tool_definitions = ax_tools_definitions(d->tools);
    AX_TRY(open_sets(d, &d->train_sets, list, streamed, refresh));
    AX_TRY(find_ends(d));
    if (streamed)
        AX_TRY(open_stream(d));
    else
        AX_TRY(build_train(d));
    if (ax_config_holds(d->cfg, "test_datasets")) {
        AX_TRY(open_sets(d, &d->eval_sets, "test_datasets", false, refresh));
        AX_TRY(build_eval(d));
    }
    return ax_setup_loaders_open(d);
}

static enum ax_status open_with(struct ax_setup_data *d, const struct ax_config *cfg, bool refresh,
                                const json_t *tools) {
    *d = (struct ax_setup_data){.cfg = cfg, .tool_definitions = tools};
    ax_data_keys_read(&d->keys, cfg);
    enum ax_status st = ax_setup_method_read(&d->method, cfg);
    if (st == AX_OK)
        st = open_all(d, refresh);
    if (st != AX_OK)
        ax_setup_data_close(d);
    return st;
}

enum ax_status ax_setup_data_open(struct ax_setup_data *d, const struct ax_config *cfg,
                                  bool refresh) {
    return open_with(d, cfg, refresh, NULL);
}

enum ax_status ax_setup_data_open_asked(struct ax_setup_data *d, const struct ax_config *cfg,
                                        const json_t *tools) {
    return open_with(d, cfg, false, tools);
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
    ax_tools_close(d->tools);
    *d = (struct ax_setup_data){0};
}

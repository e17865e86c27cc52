/* Recorded completions: {prompt, texts, completion_ids, correct, form}, each list with a value per
 * completion; the last two are what two functions rewarded, and a third one, Till, is an environment's. Their advantages are of as many as were
 * generated at a time. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tests/goldens/run.h"
#include "data/records/rows/rows.h"
#include "data/text/tokenizer/tokenizer.h"

#define MAX_COMPLETIONS (1 << 16)
#define MAX_RECORDED    ((size_t)64 << 20) /* bytes of a file of completions */

static const char *const functions[] = {"correct", "form", "Till"};

/* ---- which is which ---- */

static int64_t batch_size(const struct ax_run_rollouts *o) {
    return (int64_t)o->batches * o->rows;
}

/* Of the generated batch that micro-batch k is from, the first completion: the data are gone through
 * again and again. */
static int64_t generated(const struct ax_run *r, int k) {
    const struct ax_run_rollouts *o = &r->rollouts;
    return k / (o->batches * o->iterations) % (o->rated / batch_size(o)) * batch_size(o);
}

int64_t ax_run_completion_of(const struct ax_run *r, int k, int i) {
    const struct ax_run_rollouts *o = &r->rollouts;
    return generated(r, k) + (int64_t)(k % o->batches) * o->rows + i;
}

int64_t ax_run_prompt_of(const struct ax_run *r, int k, int i) {
    return ax_run_completion_of(r, k, i) / r->rollouts.o.group;
}

bool ax_run_is_new(const struct ax_run *r, int k) {
    const struct ax_run_rollouts *o = &r->rollouts;
    return o->batches > 0 && k % (o->batches * o->iterations) == 0;
}

double ax_run_generated_tokens(const struct ax_run *r, int k) {
    const int first = k - k % r->rollouts.batches;
    double tokens = 0;
    for (int j = first; j < first + r->rollouts.batches && j < r->n_micro; j++)
        tokens += (double)r->micro[j].scored;
    return tokens;
}

/* ---- reading ---- */

static enum ax_status add_record(struct ax_run_rollouts *o, const json_t *record) {
    const json_t *ids = json_object_get(record, "completion_ids");
    const size_t group = (size_t)o->o.group, n = (size_t)o->n;
    o->o.n_rewards = json_object_get(record, functions[2]) ? 3 : 2;
    const size_t each = (size_t)o->o.n_rewards;
    if (json_array_size(ids) < group || n + group > MAX_COMPLETIONS)
        return ax_error(AX_ERR_DATA, "record %lld has %zu completions, expected %zu",
                        (long long)o->n / o->o.group + 1, json_array_size(ids), group);
    AX_TRY(ax_regrow(&o->rewards, each * n, each * (n + group), sizeof *o->rewards));
    AX_TRY(ax_regrow(&o->ids, n, n + group, sizeof(json_t *)));
    AX_TRY(ax_regrow(&o->records, n / group, n / group + 1, sizeof(json_t *)));
    o->records[n / group] = json_incref((json_t *)(uintptr_t)record);
    for (size_t i = 0; i < group; i++) {
        for (size_t f = 0; f < each; f++) {
            const json_t *v = json_array_get(json_object_get(record, functions[f]), i);
            o->rewards[each * (n + i) + f] = json_is_number(v) ? json_number_value(v) : NAN;
        }
        o->ids[n + i] = json_incref(json_array_get(ids, i));
    }
    o->n += (int64_t)group;
    return AX_OK;
}

/* Adds to a record what was recorded of its group's completions; false: nothing more was. */
static bool join(const struct ax_run_rollouts *o, json_t *record) {
    static const char *const lists[] = {"completion_ids", "model_tokens", "messages"};
    const size_t first = (size_t)o->n, n = (size_t)o->o.group;
    const json_t *head = json_array_get(o->recorded.root, first);
    if (!head)
        return false;
    json_object_set(record, "prompt_ids", json_object_get(head, "prompt_ids"));
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        json_t *list = json_object_get(head, lists[k]) ? json_array() : NULL;
        for (size_t i = first; list && i < first + n; i++)
            json_array_append(list, json_object_get(json_array_get(o->recorded.root, i), lists[k]));
        json_object_set_new(record, lists[k], list);
    }
    return true;
}

static enum ax_status read_records(struct ax_run *r, const char *path) {
    struct ax_run_rollouts *o = &r->rollouts;
    struct ax_rows *rows;
    struct ax_raw_row raw;
    bool got = true;
    AX_TRY(ax_rows_open(&rows, &(struct ax_rows_options){.path = path}));
    enum ax_status st = AX_OK;
    while (st == AX_OK && got) {
        json_t *record = NULL;
        st = ax_rows_next(rows, &raw, &got);
        if (st == AX_OK && got)
            st = ax_rows_parse(rows, &raw, &record);
        if (record && o->recorded.root && !join(o, record))
            got = false;
        else if (record)
            st = add_record(o, record);
        json_decref(record);
    }
    ax_rows_close(rows);
    return st;
}

/* A batch that is not full is not generated. */
static enum ax_status rate(struct ax_run_rollouts *o, const char *path) {
    const int64_t batch = batch_size(o);
    o->rated = o->n - o->n % batch;
    if (batch % o->o.group != 0 || o->rated == 0)
        return ax_error(AX_ERR_DATA,
                        "%s: %lld completions make no batches of %lld in groups of %lld", path,
                        (long long)o->n, (long long)batch, (long long)o->o.group);
    AX_TRY(ax_alloc(&o->advantage, (size_t)o->rated, sizeof *o->advantage));
    AX_TRY(ax_alloc(&o->totals, (size_t)o->n, sizeof *o->totals));
    AX_TRY(ax_alloc(&o->work, (size_t)batch, sizeof *o->work));
    ax_reward_totals(&o->o, o->n, o->rewards, o->totals);
    for (int64_t i = 0; i < o->rated; i += batch)
        ax_advantages(&o->o, batch, o->rewards + o->o.n_rewards * i, o->advantage + i);
    return AX_OK;
}

/* The ends that generation knows are the model's, and the tokenizer's. */
static enum ax_status find_ends(struct ax_run *r) {
    const struct ax_json root = ax_json_root(&r->doc);
    const char *model, *name;
    struct ax_tokenizer *tokenizer;
    char *dir;
    AX_TRY(ax_json_str(ax_json_get(root, "model"), &model));
    AX_TRY(ax_json_str_or(ax_json_get(root, "tokenizer"), model, &name));
    AX_TRY(ax_run_path(r, name, &dir));
    enum ax_status st = ax_tokenizer_load(&tokenizer, dir);
    ax_free(dir);
    AX_TRY(st);
    r->rollouts.eos = ax_tokenizer_special_id(tokenizer, AX_EOS);
    st = ax_run_path(r, model, &dir);
    if (st == AX_OK)
        st = ax_stop_tokens_read(&r->rollouts.ends, dir, r->rollouts.eos);
    ax_free(dir);
    ax_tokenizer_free(tokenizer);
    return st;
}

/* Completions that stand in a file beside the case. */
static enum ax_status read_recorded(struct ax_run *r) {
    const char *name;
    char *path;
    AX_TRY(ax_json_str_or(ax_json_get(ax_json_root(&r->doc), "rollouts"), NULL, &name));
    if (!name)
        return AX_OK;
    AX_TRY(ax_run_path(r, name, &path));
    const enum ax_status st = ax_json_load(&r->rollouts.recorded, path, MAX_RECORDED);
    ax_free(path);
    return st;
}

enum ax_status ax_run_rollouts_open(struct ax_run *r) {
    struct ax_run_rollouts *o = &r->rollouts;
    const char *name;
    char *path;
    AX_TRY(find_ends(r));
    AX_TRY(read_recorded(r));
    AX_TRY(ax_json_str(ax_json_get(ax_json_root(&r->doc), "data"), &name));
    AX_TRY(ax_run_path(r, name, &path));
    enum ax_status st = read_records(r, path);
    if (st == AX_OK)
        st = rate(o, path);
    ax_free(path);
    return st;
}

void ax_run_rollouts_close(struct ax_run_rollouts *o) {
    for (int64_t i = 0; i < o->n; i++) {
        json_decref(o->ids[i]);
        if (i % o->o.group == 0)
            json_decref(o->records[i / o->o.group]);
    }
    ax_json_free(&o->recorded);
    ax_free(o->records);
    ax_free(o->calls);
    ax_free(o->failed);
    ax_free(o->ids);
    ax_free(o->rewards);
    ax_free(o->totals);
    ax_free(o->work);
    ax_free(o->advantage);
    *o = (struct ax_run_rollouts){0};
}

/* ---- metrics ---- */

struct lengths {
    double n, sum, min, max;
};

static void add_length(struct lengths *l, double length) {
    l->min = l->n == 0 ? length : fmin(l->min, length);
    l->max = fmax(l->max, length);
    l->sum += length;
    l->n++;
}

static void put_lengths(const struct lengths *l, const char *of, struct ax_run_metrics *out) {
    const double values[] = {l->n > 0 ? l->sum / l->n : 0, l->min, l->max};
    static const char *const names[] = {"mean", "min", "max"};
    char name[48];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "completions/%s_%slength", names[i], of);
        ax_run_metric_add(out, name, values[i]);
    }
}

const json_t *ax_run_record_of(const struct ax_run_rollouts *o, int64_t c, size_t *i) {
    *i = (size_t)(c % o->o.group);
    return o->records[c / o->o.group];
}

int64_t ax_run_sampled_tokens(const struct ax_run_rollouts *o, int64_t c) {
    size_t i;
    const json_t *all = json_object_get(ax_run_record_of(o, c, &i), "model_tokens");
    const json_t *spans = json_array_get(all, i);
    int64_t n = 0;
    for (size_t k = 0; k < json_array_size(spans); k++) {
        const json_t *span = json_array_get(spans, k);
        n += json_integer_value(json_array_get(span, 1)) -
             json_integer_value(json_array_get(span, 0));
    }
    return all ? n : (int64_t)json_array_size(o->ids[c]);
}

bool ax_run_terminated(const struct ax_run_rollouts *o, int64_t c) {
    const size_t n = json_array_size(o->ids[c]);
    const json_int_t last = n > 0 ? json_integer_value(json_array_get(o->ids[c], n - 1)) : -1;
    for (int i = 0; i < o->ends.n; i++)
        if (last == o->ends.ids[i])
            return true;
    return false;
}

static void put_rewards(const struct ax_run_rollouts *o, int64_t first,
                        struct ax_run_metrics *out) {
    const int64_t n = batch_size(o), each = o->o.n_rewards;
    char name[48];
    for (int f = 0; f < each; f++) {
        const struct ax_reward_stats m = ax_reward_stats_of(o->rewards + each * first + f, n, each);
        snprintf(name, sizeof name, "rewards/%s/mean", functions[f]);
        ax_run_metric_add(out, name, m.mean);
        snprintf(name, sizeof name, "rewards/%s/std", functions[f]);
        ax_run_metric_add(out, name, m.std);
    }
    const struct ax_reward_stats all = ax_reward_stats_of(o->totals + first, n, 1);
    ax_run_metric_add(out, "reward", all.mean);
    ax_run_metric_add(out, "reward_std", all.std);
    ax_run_metric_add(out, "frac_reward_zero_std",
                      ax_share_without_spread(&o->o, n, o->rewards + each * first, o->work));
}

static void put_calls(const struct ax_run_rollouts *o, int64_t first, struct ax_run_metrics *out) {
    double calls = 0, failed = 0;
    for (int64_t c = first; c < first + batch_size(o); c++) {
        calls += (double)o->calls[c];
        failed += (double)o->failed[c];
    }
    ax_run_metric_add(out, "tools/call_frequency", calls / (double)batch_size(o));
    ax_run_metric_add(out, "tools/failure_frequency", calls > 0 ? failed / calls : 0);
}

/* Tokens of prompts and completions, of all batches generated so far. */
static double tokens_until(const struct ax_run *r, int k) {
    const struct ax_run_rollouts *o = &r->rollouts;
    double tokens = 0;
    for (int at = 0; at <= k; at += o->batches * o->iterations)
        for (int j = at; j < at + o->batches && j < r->n_micro; j++)
            for (int i = 0; i < r->micro[j].n; i++)
                tokens += (double)r->micro[j].prompt[i] +
                          (double)ax_run_sampled_tokens(o, ax_run_completion_of(r, j, i));
    return tokens;
}

void ax_run_rollout_metrics(const struct ax_run *r, int step, struct ax_run_metrics *out) {
    const struct ax_run_rollouts *o = &r->rollouts;
    const int k = r->first[step];
    struct lengths all = {0}, ended = {0};
    if (!ax_run_is_new(r, k))
        return;
    const int64_t first = generated(r, k);
    for (int64_t c = first; c < first + batch_size(o); c++) {
        const double length = (double)ax_run_sampled_tokens(o, c);
        add_length(&all, length);
        if (ax_run_terminated(o, c))
            add_length(&ended, length);
    }
    put_lengths(&all, "", out);
    put_lengths(&ended, "terminated_", out);
    ax_run_metric_add(out, "completions/clipped_ratio", 1 - ended.n / all.n);
    ax_run_metric_add(out, "num_tokens", tokens_until(r, k));
    put_rewards(o, first, out);
    if (o->calls)
        put_calls(o, first, out);
}

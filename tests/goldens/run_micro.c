/* Micro-batches: documents and their tokens' values, in one piece of memory each. */
#include "tests/goldens/run.h"

#include <stdio.h>
#include <string.h>

void ax_run_metric_add(struct ax_run_metrics *m, const char *name, double value) {
    AX_ASSERT(m->n < AX_RUN_MAX_METRICS);
    struct ax_run_metric *e = &m->list[m->n++];
    snprintf(e->name, sizeof e->name, "%s", name);
    e->value = value;
}

enum ax_status ax_run_fed(const struct ax_run *r, int k, const char *name,
                          struct ax_golden_tensor *out) {
    char full[96];
    snprintf(full, sizeof full, "m%02d.%s", k, name);
    return ax_golden_read(&r->fed, full, out);
}

const struct ax_run_metric *ax_run_metric_find(const struct ax_run_metrics *m, const char *name) {
    for (int i = 0; i < m->n; i++)
        if (strcmp(m->list[i].name, name) == 0)
            return &m->list[i];
    return NULL;
}

void ax_run_rows_close(struct ax_run_rows *rows) {
    ax_golden_tensor_free(&rows->ids);
    ax_golden_tensor_free(&rows->mask);
    ax_golden_tensor_free(&rows->scored);
    ax_golden_tensor_free(&rows->answer);
}

enum ax_status ax_run_rows_open(struct ax_run_rows *rows, const struct ax_run *r, int k,
                                const struct ax_run_names *names) {
    const struct {
        const char *name;
        struct ax_golden_tensor *to;
    } all[] = {{names->ids, &rows->ids},
               {names->mask, &rows->mask},
               {names->scored, &rows->scored},
               {names->answer, &rows->answer}};
    enum ax_status st = AX_OK;
    *rows = (struct ax_run_rows){.least = names->least};
    for (size_t i = 0; i < sizeof all / sizeof *all && st == AX_OK; i++) {
        st = all[i].name ? ax_run_fed(r, k, all[i].name, all[i].to) : AX_OK;
        if (st == AX_OK && all[i].name &&
            (all[i].to->ndim != 2 || all[i].to->numel != rows->ids.numel))
            st = ax_error(AX_ERR_DATA, "%s: %s of micro-batch %d has another shape than %s",
                          r->fed.path, all[i].name, k, names->ids);
    }
    if (st != AX_OK)
        ax_run_rows_close(rows);
    return st;
}

/* Doubles what does not fit. Documents point into ids and labels only once all are there. */
static enum ax_status reserve(struct ax_run_micro *m, int64_t tokens) {
    if (m->n == m->cap_docs) {
        const size_t cap = 2 * (size_t)m->cap_docs + 8;
        AX_TRY(ax_regrow(&m->docs, (size_t)m->n, cap, sizeof *m->docs));
        AX_TRY(ax_regrow(&m->recorded, (size_t)m->n, cap, sizeof *m->recorded));
        AX_TRY(ax_regrow(&m->recorded_answer, (size_t)m->n, cap, sizeof *m->recorded_answer));
        AX_TRY(ax_regrow(&m->prompt, (size_t)m->n, cap, sizeof *m->prompt));
        AX_TRY(ax_regrow(&m->margin, (size_t)m->n, cap, sizeof *m->margin));
        AX_TRY(ax_regrow(&m->advantage, (size_t)m->n, cap, sizeof *m->advantage));
        m->cap_docs = (int64_t)cap;
    }
    if (m->tokens + tokens <= m->cap)
        return AX_OK;
    const size_t cap = 2 * (size_t)m->cap + (size_t)tokens, n = (size_t)m->tokens;
    AX_TRY(ax_regrow(&m->ids, n, cap, sizeof *m->ids));
    AX_TRY(ax_regrow(&m->labels, n, cap, sizeof *m->labels));
    AX_TRY(ax_regrow(&m->share, n, cap, sizeof *m->share));
    AX_TRY(ax_regrow(&m->target, n, cap, sizeof *m->target));
    m->cap = (int64_t)cap;
    return AX_OK;
}

enum ax_status ax_run_micro_add(struct ax_run_micro *m, const struct ax_run_rows *rows,
                                int64_t first, int64_t n, int64_t recorded) {
    AX_TRY(reserve(m, n));
    for (int64_t t = 0; t < n; t++) {
        const int64_t next = first + t + 1, to = m->tokens + t;
        const bool scored = t + 1 < n && rows->scored.v[next] >= rows->least;
        m->ids[to] = (int32_t)rows->ids.v[first + t];
        m->labels[to] = scored ? (int32_t)rows->ids.v[next] : -1;
        m->share[to] = scored && (!rows->answer.v || rows->answer.v[next] >= 0) ? 1 : 0;
        m->scored += scored;
    }
    m->docs[m->n] = (struct ax_document){.n = n};
    m->recorded[m->n++] = recorded;
    m->tokens += n;
    return AX_OK;
}

/* A class of each token; without a tensor of them, class 0 of the last one that is not `pad`. */
static void label_in_place(struct ax_run_micro *m, const struct ax_run_rows *rows, int64_t first,
                           int64_t n) {
    int64_t last = n - 1;
    while (last > 0 && (int32_t)rows->ids.v[first + last] == rows->pad)
        last--;
    for (int64_t t = 0; t < n; t++) {
        const int64_t to = m->tokens - n + t;
        const double label = rows->scored.v ? rows->scored.v[first + t] : t == last ? 0 : -1;
        m->labels[to] = label >= 0 ? (int32_t)label : -1;
        m->target[to] = label > 0;
    }
}

enum ax_status ax_run_micro_add_classes(struct ax_run_micro *m, const struct ax_run_rows *rows,
                                        int64_t i, float margin) {
    const struct ax_golden_tensor none = {0};
    struct ax_run_rows unlabeled = *rows;
    const int64_t S = rows->ids.shape[1];
    int64_t n = 0;
    while (n < S && rows->mask.v[i * S + n] != 0)
        n++;
    unlabeled.scored = rows->ids;
    unlabeled.answer = none;
    unlabeled.least = INT32_MAX;
    AX_TRY(ax_run_micro_add(m, &unlabeled, i * S, n, i));
    label_in_place(m, rows, i * S, n);
    for (int64_t t = m->tokens - n; t < m->tokens; t++)
        m->scored += m->labels[t] >= 0;
    m->margin[m->n - 1] = margin;
    return AX_OK;
}

enum ax_status ax_run_micro_add_row(struct ax_run_micro *m, const struct ax_run_rows *rows,
                                    int64_t i) {
    const int64_t S = rows->ids.shape[1];
    int64_t n = 0;
    while (n < S && rows->mask.v[i * S + n] != 0)
        n++;
    return ax_run_micro_add(m, rows, i * S, n, i * (S - 1));
}

/* Appends what is under the mask of row i to `to`, from column *n on. */
static void join(const struct ax_run_rows *from, int64_t i, double scored, struct ax_run_rows *to,
                 int64_t *n) {
    const int64_t S = from->ids.shape[1];
    for (int64_t t = i * S; t < (i + 1) * S; t++)
        if (from->mask.v[t] != 0) {
            to->ids.v[*n] = from->ids.v[t];
            to->scored.v[(*n)++] = scored;
        }
}

enum ax_status ax_run_micro_add_answer(struct ax_run_micro *m, const struct ax_run_rows *prompts,
                                       const struct ax_run_rows *completions, int64_t i) {
    const int64_t P = prompts->ids.shape[1], C = completions->ids.shape[1];
    struct ax_run_rows row = {.least = 1};
    int64_t n = 0;
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&row.ids.v, (size_t)(P + C), sizeof *row.ids.v), st, done);
    AX_TRY_GOTO(ax_alloc(&row.scored.v, (size_t)(P + C), sizeof *row.scored.v), st, done);
    join(prompts, i, 0, &row, &n);
    const int64_t prompt = n;
    join(completions, i, 1, &row, &n);
    AX_TRY_GOTO(ax_run_micro_add(m, &row, 0, n, i * (P + C - 1) + P - prompt), st, done);
    m->recorded_answer[m->n - 1] = i * C - prompt + 1;
    m->prompt[m->n - 1] = prompt;
done:
    ax_run_rows_close(&row);
    return st;
}

/* The documents' values of a column. */
static enum ax_status set_column(struct ax_run_micro *m, int c, const struct ax_column *column) {
    const struct {
        const char *name;
        enum ax_column_of of;
        const void *values;
    } known[] = {{"reference", AX_OF_EXAMPLE, m->reference_sum},
                 {"margin", AX_OF_EXAMPLE, m->margin},
                 {"desirable", AX_OF_EXAMPLE, m->desirable},
                 {"advantage", AX_OF_EXAMPLE, m->advantage},
                 {"share", AX_OF_LABEL, m->share},
                 {"target", AX_OF_LABEL, m->target},
                 {"reference", AX_OF_LABEL, m->reference_values},
                 {"old", AX_OF_LABEL, m->old_values},
                 {"sampler", AX_OF_LABEL, m->sampler_values},
                 {"advantage", AX_OF_LABEL, m->token_values},
                 {"old_value", AX_OF_LABEL, m->old_values},
                 {"return", AX_OF_LABEL, m->token_values}};
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        if (strcmp(known[k].name, column->name) != 0 || known[k].of != column->of)
            continue;
        for (int i = 0; i < m->n; i++)
            m->docs[i].columns[c] = (const uint32_t *)known[k].values +
                                    (column->of == AX_OF_EXAMPLE ? i : ax_run_micro_first(m, i));
        return AX_OK;
    }
    return ax_error(AX_ERR_UNSUPPORTED, "the objective's column %s is not supported", column->name);
}

enum ax_status ax_run_micro_end(struct ax_run_micro *m, const struct ax_columns *columns) {
    double **const values[] = {&m->logprob,    &m->entropy,   &m->top1,
                               &m->mean_logit, &m->reference, &m->old};
    int64_t at = 0;
    for (int i = 0; i < m->n; i++) {
        m->docs[i].tokens = m->ids + at;
        m->docs[i].labels = m->labels + at;
        at += m->docs[i].n;
    }
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        AX_TRY(ax_alloc(values[i], (size_t)m->tokens, sizeof **values[i]));
    AX_TRY(ax_alloc(&m->reference_sum, (size_t)m->n, sizeof *m->reference_sum));
    AX_TRY(ax_alloc(&m->reference_values, (size_t)m->tokens, sizeof *m->reference_values));
    AX_TRY(ax_alloc(&m->old_values, (size_t)m->tokens, sizeof *m->old_values));
    AX_TRY(ax_alloc(&m->sampler_values, (size_t)m->tokens, sizeof *m->sampler_values));
    AX_TRY(ax_alloc(&m->token_values, (size_t)m->tokens, sizeof *m->token_values));
    for (int c = 0; c < ax_columns_count(columns); c++)
        AX_TRY(set_column(m, c, &columns->list[c]));
    return AX_OK;
}

void ax_run_micro_free(struct ax_run_micro *m) {
    void *const owned[] = {m->docs,
                           m->recorded,
                           m->ids,
                           m->labels,
                           m->share,
                           m->margin,
                           m->reference_sum,
                           m->target,
                           m->desirable,
                           m->logprob,
                           m->entropy,
                           m->top1,
                           m->mean_logit,
                           m->reference,
                           m->old,
                           m->advantage,
                           m->recorded_answer,
                           m->prompt,
                           m->reference_values,
                           m->old_values,
                           m->sampler_values,
                           m->token_values};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        ax_free(owned[i]);
    *m = (struct ax_run_micro){0};
}

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tests/goldens/run_ppo.h"

#define TOKEN_TOLERANCE     1e-4
#define ADVANTAGE_TOLERANCE 3e-5

static int first_micro(const struct ax_ppo *p, int b) {
    return b * p->s.micro;
}

/* ---- documents ---- */

/* Tensors of one row at a time, as micro-batches are made from. */
static enum ax_status take(struct ax_run_rows *rows, int64_t n) {
    *rows = (struct ax_run_rows){.least = 1};
    rows->ids.ndim = 2;
    rows->ids.shape[0] = 1;
    rows->ids.shape[1] = rows->ids.numel = n;
    AX_TRY(ax_alloc(&rows->ids.v, (size_t)n, sizeof *rows->ids.v));
    AX_TRY(ax_alloc(&rows->mask.v, (size_t)n, sizeof *rows->mask.v));
    return ax_alloc(&rows->scored.v, (size_t)n, sizeof *rows->scored.v);
}

static int64_t copy_row(const struct ax_golden_tensor *t, int64_t row, int32_t pad,
                        struct ax_run_rows *to) {
    int64_t n = 0;
    for (int64_t i = 0; i < t->shape[1]; i++) {
        to->ids.v[i] = t->v[row * t->shape[1] + i];
        to->mask.v[i] = to->ids.v[i] != pad;
        n += to->mask.v[i] != 0;
    }
    return n;
}

/* The policy's document has labels where it predicts the completion, the value model's from there on
 * as far as there are values; the reward's at its last token. */
static enum ax_status add_row(struct ax_ppo *p, int k, struct ax_run_rows *query,
                              struct ax_run_rows *response) {
    struct ax_run_micro *m = &p->policy->micro[k];
    struct ax_run_rows row = {0};
    enum ax_status st;
    AX_TRY(ax_run_micro_add_answer(m, query, response, 0));
    const int64_t n = m->docs[m->n - 1].n, prompt = m->prompt[m->n - 1];
    struct ax_ppo_row *r = ax_ppo_row(p, k, m->n - 1);
    AX_TRY_GOTO(take(&row, n), st, done);
    r->n = n - prompt;
    r->n_values = r->n + 1 < p->s.width ? r->n + 1 : p->s.width;
    for (int64_t t = 0; t < n; t++) {
        row.ids.v[t] = m->ids[m->tokens - n + t];
        row.mask.v[t] = 1;
        row.scored.v[t] = t >= prompt - 1 && t < prompt - 1 + r->n_values ? 0 : -1;
        r->ended |= t >= prompt && row.ids.v[t] == p->s.eos;
    }
    AX_TRY_GOTO(ax_run_micro_add_classes(&p->value->micro[k], &row, 0, 0), st, done);
    ax_free(row.scored.v);
    row.scored.v = NULL;
    st = ax_run_micro_add_classes(&p->scored[k], &row, 0, 0);
done:
    ax_run_rows_close(&row);
    return st;
}

static enum ax_status read_batch(struct ax_ppo *p, int b) {
    struct ax_golden_tensor queries = {0}, responses = {0};
    struct ax_run_rows query = {0}, response = {0};
    const int64_t rows = (int64_t)p->s.micro * p->s.rows;
    char name[32];
    enum ax_status st;
    snprintf(name, sizeof name, "b%d.queries", b);
    AX_TRY_GOTO(ax_golden_read(&p->policy->fed, name, &queries), st, done);
    snprintf(name, sizeof name, "b%d.responses", b);
    AX_TRY_GOTO(ax_golden_read(&p->policy->fed, name, &responses), st, done);
    if (queries.ndim != 2 || responses.ndim != 2 || queries.shape[0] != rows ||
        responses.shape[0] != rows || responses.shape[1] != p->s.width)
        AX_TRY_GOTO(ax_error(AX_ERR_DATA, "%s: batch %d has a wrong shape", p->policy->fed.path, b),
                    st, done);
    AX_TRY_GOTO(take(&query, queries.shape[1]), st, done);
    AX_TRY_GOTO(take(&response, responses.shape[1]), st, done);
    for (int64_t i = 0; i < rows; i++) {
        if (copy_row(&queries, i, p->s.pad, &query) == 0 ||
            copy_row(&responses, i, p->s.pad, &response) == 0)
            AX_TRY_GOTO(
                ax_error(AX_ERR_DATA, "%s: batch %d has an empty row", p->policy->fed.path, b), st,
                done);
        AX_TRY_GOTO(add_row(p, first_micro(p, b) + (int)(i / p->s.rows), &query, &response), st,
                    done);
    }
done:
    ax_golden_tensor_free(&queries);
    ax_golden_tensor_free(&responses);
    ax_run_rows_close(&query);
    ax_run_rows_close(&response);
    return st;
}

enum ax_status ax_ppo_read(struct ax_ppo *p) {
    const size_t n_micro = (size_t)p->s.batches * (size_t)p->s.micro,
                 n_rows = n_micro * (size_t)p->s.rows, width = (size_t)p->s.width;
    AX_TRY(ax_alloc(&p->policy->micro, n_micro, sizeof *p->policy->micro));
    AX_TRY(ax_alloc(&p->value->micro, n_micro, sizeof *p->value->micro));
    AX_TRY(ax_alloc(&p->scored, n_micro, sizeof *p->scored));
    p->policy->n_micro = p->value->n_micro = (int)n_micro;
    AX_TRY(ax_alloc(&p->rows, n_rows, sizeof *p->rows));
    AX_TRY(ax_alloc(&p->numbers, 6 * n_rows * width, sizeof *p->numbers));
    for (size_t i = 0; i < n_rows; i++) {
        struct ax_ppo_row *r = &p->rows[i];
        double **const all[] = {&r->logprob,   &r->reference, &r->value,
                                &r->advantage, &r->raw,       &r->returned};
        for (size_t a = 0; a < 6; a++)
            *all[a] = p->numbers + (6 * i + a) * width;
    }
    for (int b = 0; b < p->s.batches; b++)
        AX_TRY(read_batch(p, b));
    for (size_t k = 0; k < n_micro; k++) {
        AX_TRY(ax_run_micro_end(&p->policy->micro[k], p->policy->objective.columns));
        AX_TRY(ax_run_micro_end(&p->value->micro[k], p->value->objective.columns));
        AX_TRY(ax_run_micro_end(&p->scored[k], NULL));
    }
    return AX_OK;
}

void ax_ppo_free(struct ax_ppo *p) {
    for (int k = 0; p->scored && k < p->s.batches * p->s.micro; k++)
        ax_run_micro_free(&p->scored[k]);
    ax_free(p->scored);
    ax_free(p->rows);
    ax_free(p->numbers);
}

/* ---- what the models say ---- */

/* Index of the token that predicts the first of a completion. */
static int64_t place(const struct ax_ppo *p, int k, int i) {
    return ax_run_micro_first(&p->policy->micro[k], i) + p->policy->micro[k].prompt[i] - 1;
}

enum ax_status ax_ppo_judge(struct ax_ppo *p, struct ax_model *policy, struct ax_model *value) {
    for (int k = 0; k < p->policy->n_micro; k++) {
        const struct ax_run_micro *m = &p->policy->micro[k];
        AX_TRY(ax_run_look(p->policy, policy, &p->policy->micro[k]));
        AX_TRY(ax_run_look(p->value, value, &p->scored[k]));
        for (int i = 0; i < m->n; i++) {
            struct ax_ppo_row *r = ax_ppo_row(p, k, i);
            for (int64_t t = 0; t < r->n; t++)
                r->reference[t] = m->logprob[place(p, k, i) + t];
            r->score = p->scored[k].mean_logit[place(p, k, i) + r->n];
        }
    }
    return AX_OK;
}

static enum ax_status rate_row(struct ax_ppo *p, struct ax_ppo_row *r) {
    double *rewards;
    AX_TRY(ax_alloc(&rewards, (size_t)p->s.width, sizeof *rewards));
    const double penalty = p->s.penalizes && !r->ended ? p->s.penalty : 0;
    ax_token_rewards(p->s.kl, p->s.kl_coef, r->n, r->logprob, r->reference, r->score - penalty,
                     r->n_values, rewards);
    ax_gae(p->s.gamma, p->s.lambda, r->n_values, rewards, r->value, r->raw);
    for (int64_t t = 0; t < r->n_values; t++)
        r->returned[t] = r->raw[t] + r->value[t];
    ax_free(rewards);
    return AX_OK;
}

/* Over the tokens of all of the batch. */
static enum ax_status whiten(struct ax_ppo *p, int b) {
    struct ax_ppo_row *rows = ax_ppo_row(p, first_micro(p, b), 0);
    const int n_rows = p->s.micro * p->s.rows;
    int64_t n = 0, at = 0;
    double *x;
    for (int i = 0; i < n_rows; i++)
        n += rows[i].n;
    AX_TRY(ax_alloc(&x, (size_t)n, sizeof *x));
    for (int i = 0; i < n_rows; at += rows[i++].n)
        memcpy(x + at, rows[i].raw, (size_t)rows[i].n * sizeof *x);
    ax_whiten(n, x);
    at = 0;
    for (int i = 0; i < n_rows; at += rows[i++].n)
        memcpy(rows[i].advantage, x + at, (size_t)rows[i].n * sizeof *x);
    ax_free(x);
    return AX_OK;
}

static void set_columns(struct ax_ppo *p, int k, int i) {
    struct ax_run_micro *policy = &p->policy->micro[k], *value = &p->value->micro[k];
    const struct ax_ppo_row *r = ax_ppo_row(p, k, i);
    const int64_t at = place(p, k, i);
    for (int64_t t = 0; t < r->n; t++) {
        policy->old_values[at + t] = (float)r->logprob[t];
        policy->token_values[at + t] = (float)r->advantage[t];
    }
    for (int64_t t = 0; t < r->n_values; t++) {
        value->old_values[at + t] = (float)r->value[t];
        value->token_values[at + t] = (float)r->returned[t];
    }
}

enum ax_status ax_ppo_rate(struct ax_ppo *p, int b, struct ax_model *policy,
                           struct ax_model *value) {
    const int first = first_micro(p, b), end = first + p->s.micro;
    for (int k = first; k < end; k++) {
        AX_TRY(ax_run_look(p->policy, policy, &p->policy->micro[k]));
        AX_TRY(ax_run_look(p->value, value, &p->value->micro[k]));
        for (int i = 0; i < p->s.rows; i++) {
            struct ax_ppo_row *r = ax_ppo_row(p, k, i);
            for (int64_t t = 0; t < r->n_values; t++)
                r->value[t] = p->value->micro[k].mean_logit[place(p, k, i) + t];
            for (int64_t t = 0; t < r->n; t++)
                r->logprob[t] = p->policy->micro[k].logprob[place(p, k, i) + t];
            AX_TRY(rate_row(p, r));
        }
    }
    AX_TRY(whiten(p, b));
    for (int k = first; k < end; k++)
        for (int i = 0; i < p->s.rows; i++)
            set_columns(p, k, i);
    return AX_OK;
}

/* ---- comparing ---- */

/* [rows][width]; under the mask, `values` and `returns` one place behind it, too. */
static enum ax_status compare(const struct ax_ppo *p, int b, const char *field, size_t offset,
                              bool of_values, double tolerance) {
    struct ax_golden_tensor want;
    char name[48], where[96];
    const struct ax_ppo_row *rows = ax_ppo_row(p, first_micro(p, b), 0);
    const int64_t n_rows = (int64_t)p->s.micro * p->s.rows;
    snprintf(name, sizeof name, "b%d.%s", b, field);
    if (!ax_safetensors_find(&p->policy->own, name))
        return AX_OK;
    AX_TRY(ax_golden_read(&p->policy->own, name, &want));
    for (int64_t i = 0; i < n_rows; i++) {
        const double *got = *(double *const *)((const char *)&rows[i] + offset);
        const int64_t n = of_values ? rows[i].n_values : rows[i].n;
        for (int64_t t = 0; t < n; t++) {
            const int64_t at = i * p->s.width + t;
            snprintf(where, sizeof where, "batch %d, row %lld, token %lld", b + 1, (long long)i + 1,
                     (long long)t + 1);
            ax_golden_note(p->policy->report, field,
                           at < want.numel ? fabs(got[t] - want.v[at]) : INFINITY, tolerance,
                           where);
        }
    }
    ax_golden_tensor_free(&want);
    return AX_OK;
}

/* Tokens that are in one of the two alone; scores, before penalties. */
static enum ax_status compare_rows(const struct ax_ppo *p, int b) {
    struct ax_golden_tensor mask = {0}, scores = {0};
    const struct ax_ppo_row *rows = ax_ppo_row(p, first_micro(p, b), 0);
    const int64_t n_rows = (int64_t)p->s.micro * p->s.rows;
    char name[32], where[64];
    enum ax_status st;
    snprintf(name, sizeof name, "b%d.mask", b);
    AX_TRY_GOTO(ax_golden_read(&p->policy->own, name, &mask), st, done);
    snprintf(name, sizeof name, "b%d.scores", b);
    AX_TRY_GOTO(ax_golden_read(&p->policy->own, name, &scores), st, done);
    for (int64_t i = 0; i < n_rows; i++) {
        double differ = 0;
        for (int64_t t = 0; t < p->s.width; t++)
            differ += i * p->s.width + t >= mask.numel ||
                      (mask.v[i * p->s.width + t] != 0) != (t < rows[i].n);
        snprintf(where, sizeof where, "batch %d, row %lld", b + 1, (long long)i + 1);
        ax_golden_note(p->policy->report, "tokens of completions that differ", differ, 0, where);
        ax_golden_note(p->policy->report, "scores",
                       i < scores.numel ? fabs(rows[i].score - scores.v[i]) : INFINITY,
                       TOKEN_TOLERANCE, where);
    }
done:
    ax_golden_tensor_free(&mask);
    ax_golden_tensor_free(&scores);
    return st;
}

enum ax_status ax_ppo_compare_batch(const struct ax_ppo *p, int b) {
    static const struct {
        const char *field;
        size_t offset;
        bool of_values;
        double tolerance;
    } fields[] = {
        {"logprobs", offsetof(struct ax_ppo_row, logprob), false, TOKEN_TOLERANCE},
        {"ref_logprobs", offsetof(struct ax_ppo_row, reference), false, TOKEN_TOLERANCE},
        {"values", offsetof(struct ax_ppo_row, value), true, TOKEN_TOLERANCE},
        {"advantages_raw", offsetof(struct ax_ppo_row, raw), false, ADVANTAGE_TOLERANCE},
        {"advantages", offsetof(struct ax_ppo_row, advantage), false, ADVANTAGE_TOLERANCE},
        {"returns", offsetof(struct ax_ppo_row, returned), true, ADVANTAGE_TOLERANCE}};
    if (!p->policy->own.path)
        return AX_OK;
    AX_TRY(compare_rows(p, b));
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        AX_TRY(compare(p, b, fields[i].field, fields[i].offset, fields[i].of_values,
                       fields[i].tolerance));
    return AX_OK;
}

/* Means over rows of sums over tokens; TRL's entropy is that of the tokens that were drawn. */
void ax_ppo_rollout_metrics(const struct ax_ppo *p, int b, struct ax_run_metrics *out) {
    const struct ax_ppo_row *rows = ax_ppo_row(p, first_micro(p, b), 0);
    const int n_rows = p->s.micro * p->s.rows;
    double kl = 0, entropy = 0, score = 0, ended = 0;
    for (int i = 0; i < n_rows; i++) {
        for (int64_t t = 0; t < rows[i].n; t++) {
            kl += ax_kl_estimate(p->s.kl, rows[i].logprob[t] - rows[i].reference[t]);
            entropy -= rows[i].logprob[t];
        }
        score += rows[i].score - (p->s.penalizes && !rows[i].ended ? p->s.penalty : 0);
        ended += rows[i].ended;
    }
    kl /= n_rows;
    score /= n_rows;
    ax_run_metric_add(out, "objective/kl", kl);
    ax_run_metric_add(out, "objective/entropy", entropy / n_rows);
    ax_run_metric_add(out, "objective/non_score_reward", -p->s.kl_coef * kl);
    ax_run_metric_add(out, "objective/scores", score);
    ax_run_metric_add(out, "objective/rlhf_reward", score - p->s.kl_coef * kl);
    ax_run_metric_add(out, "val/num_eos_tokens", ended);
    ax_run_metric_add(out, "episode", (double)(b + 1) * n_rows);
}

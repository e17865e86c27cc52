/* Read ax_task_score first; then the output types: choices, texts, rolling. */
#include "optim/evaluate/tasks/metrics.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "optim/evaluate/tasks/filters.h"

#define NO_LABEL (-100)

/* ---- multiple choice ---- */

struct choices {
    size_t n;
    double *ll, *alone; /* [n]; alone: without context */
    bool *greedy;
    const json_t *texts;
};

/* As numpy.argmax: the first of the largest, or the first NaN. */
static int64_t argmax(const double *v, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n && !isnan(v[best]); i++)
        if (v[i] > v[best] || isnan(v[i]))
            best = i;
    return (int64_t)best;
}

/* The choice with the largest log-likelihood per character or byte. */
static enum ax_status argmax_by(const struct choices *c, bool bytes, int64_t *out) {
    double *v;
    AX_TRY(ax_alloc(&v, c->n, sizeof *v));
    for (size_t i = 0; i < c->n; i++) {
        const json_t *t = json_array_get(c->texts, i);
        const size_t len = json_string_length(t);
        v[i] = c->ll[i] / (double)(bytes ? len : ax_python_length(json_string_value(t), len));
    }
    *out = argmax(v, c->n);
    ax_free(v);
    return AX_OK;
}

/* The index of the choice that a target means, or NO_LABEL. */
static int64_t label_of(const json_t *target, const json_t *texts) {
    const int64_t n = (int64_t)json_array_size(texts);
    int64_t i = NO_LABEL;
    if (json_is_integer(target))
        i = json_integer_value(target);
    else if (json_is_boolean(target))
        i = json_is_true(target);
    else if (json_is_real(target) && json_real_value(target) == floor(json_real_value(target)))
        i = (int64_t)json_real_value(target);
    for (int64_t k = 0; json_is_string(target) && k < n && i < 0; k++)
        if (json_equal(json_array_get(texts, (size_t)k), target))
            i = k;
    return i < n ? i : NO_LABEL;
}

/* Negative indices count from the end, as in Python. */
static int64_t wrapped(int64_t label, size_t n) {
    const int64_t i = label < 0 ? label + (int64_t)n : label;
    return i < 0 ? NO_LABEL : i;
}

struct gold {
    const json_t *targets; /* a list; NULL: use `label` */
    int64_t label;
};

static size_t gold_count(const struct gold *g) {
    return g->targets ? json_array_size(g->targets) : 1;
}

static int64_t gold_at(const struct gold *g, const struct choices *c, size_t i) {
    return g->targets ? label_of(json_array_get(g->targets, i), c->texts) : g->label;
}

static bool hits(const struct gold *g, const struct choices *c, int64_t label) {
    for (size_t i = 0; i < gold_count(g); i++)
        if (gold_at(g, c, i) == label)
            return true;
    return false;
}

static bool any_greedy(const struct gold *g, const struct choices *c) {
    for (size_t i = 0; i < gold_count(g); i++) {
        const int64_t at = wrapped(gold_at(g, c, i), c->n);
        if (at >= 0 && c->greedy[at])
            return true;
    }
    return false;
}

/* Σ over the choices of (p − 1)² for the right one and p² for the others. */
static double brier(const struct choices *c, int64_t label) {
    const double largest = c->ll[argmax(c->ll, c->n)];
    double sum = 0, score = 0;
    for (size_t i = 0; i < c->n; i++)
        sum += exp(c->ll[i] - largest);
    for (size_t i = 0; i < c->n; i++) {
        const double d =
            exp(c->ll[i] - largest) / sum - (wrapped(label, c->n) == (int64_t)i ? 1 : 0);
        score += d * d;
    }
    return score;
}

static enum ax_status value_of(const struct ax_task_metric *m, const struct gold *g,
                               const struct choices *c, struct ax_task_value *out) {
    int64_t best = argmax(c->ll, c->n);
    switch (m->kind) {
    case AX_METRIC_ACC_NORM:
    case AX_METRIC_ACC_BYTES:
        AX_TRY(argmax_by(c, m->kind == AX_METRIC_ACC_BYTES, &best));
        break;
    case AX_METRIC_ACC_MUTUAL_INFO: {
        double *v;
        AX_TRY(ax_alloc(&v, c->n, sizeof *v));
        for (size_t i = 0; i < c->n; i++)
            v[i] = c->ll[i] - c->alone[i];
        best = argmax(v, c->n);
        ax_free(v);
        break;
    }
    case AX_METRIC_EXACT_MATCH:
        out->x = any_greedy(g, c);
        return AX_OK;
    case AX_METRIC_BRIER:
        out->x = brier(c, gold_at(g, c, 0));
        return AX_OK;
    case AX_METRIC_F1:
    case AX_METRIC_MCC:
        *out = (struct ax_task_value){.x = (double)gold_at(g, c, 0), .y = (double)best};
        return AX_OK;
    default:
        break;
    }
    out->x = hits(g, c, best);
    return AX_OK;
}

/* ---- texts ---- */

/* Changes a text as the metric's options say, before it is compared. */
static enum ax_status normalize(const struct ax_task_metric *m, struct ax_buf *s,
                                struct ax_regex_work *work) {
    for (size_t i = 0; i < m->n_ignore; i++)
        AX_TRY(ax_python_sub(s, m->ignore[i], work));
    if (m->ignore_case)
        AX_TRY(ax_python_case(s, false));
    if (m->ignore_punctuation)
        ax_python_delete_punctuation(s);
    if (m->ignore_numbers)
        ax_python_delete_digits(s);
    return AX_OK;
}

static enum ax_status put_value(struct ax_buf *out, const json_t *v) {
    if (!json_is_array(v) && !json_is_object(v))
        return ax_python_str(out, v ? v : json_null());
    char *text = json_dumps(v, JSON_ENCODE_ANY);
    if (!text)
        return ax_error(AX_ERR_NOMEM, "out of memory for an answer");
    const enum ax_status st = ax_buf_puts(out, text);
    ax_free(text);
    return st;
}

static enum ax_status equal(const struct ax_task_metric *m, const json_t *want, const json_t *got,
                            bool *out) {
    struct ax_buf a = {0}, b = {0};
    struct ax_regex_work work = {0};
    enum ax_status st;
    AX_TRY_GOTO(put_value(&a, want), st, done);
    AX_TRY_GOTO(put_value(&b, got), st, done);
    AX_TRY_GOTO(normalize(m, &a, &work), st, done);
    AX_TRY_GOTO(normalize(m, &b, &work), st, done);
    *out = a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
done:
    ax_buf_free(&a);
    ax_buf_free(&b);
    ax_regex_work_free(&work);
    return st;
}

/* The fraction of answers that equal the target; with several targets, whether any answer equals
 * any of them. */
static enum ax_status exact_match(const struct ax_task_metric *m, const json_t *targets,
                                  const json_t *answer, double *out) {
    const size_t n_want = json_is_array(targets) ? json_array_size(targets) : 1,
                 n_got = json_is_array(answer) ? json_array_size(answer) : 1;
    size_t hits_ = 0;
    for (size_t i = 0; i < n_want; i++) {
        const json_t *want = json_is_array(targets) ? json_array_get(targets, i) : targets;
        for (size_t k = 0; k < n_got; k++) {
            bool same;
            AX_TRY(
                equal(m, want, json_is_array(answer) ? json_array_get(answer, k) : answer, &same));
            hits_ += same;
        }
    }
    *out = json_is_array(targets) ? hits_ > 0 : n_got > 0 ? (double)hits_ / (double)n_got : 0;
    return AX_OK;
}

/* Stores [target, answer] as texts, for a metric that is computed over all records. */
static enum ax_status translation(const struct ax_task_metric *m, const json_t *target,
                                  const json_t *answer, struct ax_task_value *out) {
    struct ax_buf text = {0};
    if (json_array_size(answer) == 1)
        answer = json_array_get(answer, 0);
    if (json_is_array(target) || !json_is_string(answer))
        return ax_error(AX_ERR_DATA, "%s: expected one target and one answer, a text%s",
                        ax_task_metric_name(m->kind),
                        json_is_array(target) ? "" : "; end the filter with take_first");
    enum ax_status st = put_value(&text, target);
    if (st == AX_OK)
        out->pair = json_pack("[oO]", json_stringn(text.data, text.len), answer);
    ax_buf_free(&text);
    return st;
}

/* ---- a task ---- */

static struct ax_task_value *at(struct ax_task_scores *s, size_t filter, size_t metric, size_t i) {
    return s->values + (filter * s->requests->prompts->task->n_metrics + metric) * s->n + i;
}

static enum ax_status score_choices(struct ax_task_scores *s, size_t i, size_t filter) {
    const struct ax_task_prompts *p = s->requests->prompts;
    const struct ax_task_item *item = &p->items[i];
    const struct ax_task_request *q = s->requests->list + s->requests->first[i];
    const size_t n = json_array_size(item->choices),
                 asked = s->requests->first[i + 1] - s->requests->first[i];
    const json_t *target = p->several ? item->text : item->target;
    struct choices c = {.n = n, .texts = item->choices};
    struct gold g = {.targets = json_is_array(target) ? target : NULL,
                     .label = label_of(target, item->choices)};
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&c.ll, n, sizeof *c.ll), st, done);
    AX_TRY_GOTO(ax_alloc(&c.alone, n, sizeof *c.alone), st, done);
    AX_TRY_GOTO(ax_alloc(&c.greedy, n, sizeof *c.greedy), st, done);
    for (size_t k = 0; k < n; k++) {
        c.ll[k] = q[k].loglikelihood;
        c.greedy[k] = q[k].greedy;
        c.alone[k] = asked > n ? q[n + k].loglikelihood : 0;
    }
    for (size_t m = 0; m < p->task->n_metrics && st == AX_OK; m++)
        st = value_of(&p->task->metrics[m], &g, &c, at(s, filter, m, i));
done:
    ax_free(c.ll);
    ax_free(c.alone);
    ax_free(c.greedy);
    return st;
}

/* str(list): the text of a list in a task whose targets are not lists. */
static enum ax_status list_text(const json_t *list, json_t **out) {
    static const char source[] = "{{ v }}";
    struct ax_template *t = NULL;
    struct ax_template_output text = {0};
    json_t *vars = json_pack("{sO}", "v", (json_t *)(uintptr_t)list);
    enum ax_status st = ax_template_compile_task(&t, "target", source, strlen(source));
    if (st == AX_OK)
        st = ax_template_render(t, vars, NULL, &text);
    if (st == AX_OK)
        *out = json_stringn(text.text, text.len);
    ax_template_output_free(&text);
    ax_template_free(t);
    json_decref(vars);
    return st;
}

static enum ax_status score_text(struct ax_task_scores *s, size_t i, size_t filter) {
    const struct ax_task_prompts *p = s->requests->prompts;
    const struct ax_task_item *item = &p->items[i];
    const json_t *target = item->target;
    json_t **got = &s->filtered[filter * s->n + i], *shown = NULL;
    AX_ASSERT(s->answers);
    AX_TRY(ax_task_filter(&p->task->filters[filter], s->answers[i], item->doc, got));
    if (item->choices) {
        const int64_t label = label_of(item->target, item->choices);
        target = label >= 0 ? json_array_get(item->choices, (size_t)label) : NULL; /* no choice */
    } else if (json_is_array(target) && !p->many_targets) {
        AX_TRY(list_text(target, &shown));
        target = shown;
    }
    enum ax_status st = AX_OK;
    for (size_t m = 0; m < p->task->n_metrics && st == AX_OK; m++) {
        const struct ax_task_metric *metric = &p->task->metrics[m];
        struct ax_task_value *v = at(s, filter, m, i);
        st = metric->kind == AX_METRIC_EXACT_MATCH ? exact_match(metric, target, *got, &v->x)
                                                   : translation(metric, target, *got, v);
    }
    json_decref(shown);
    return st;
}

static enum ax_status score_rolling(struct ax_task_scores *s, size_t i, size_t filter) {
    const struct ax_task_prompts *p = s->requests->prompts;
    struct ax_buf text = {0};
    double sum = 0;
    AX_TRY(ax_buf_append(&text, "", 0));
    if (p->items[i].target)
        AX_TRY(ax_python_str(&text, p->items[i].target));
    for (size_t k = s->requests->first[i]; k < s->requests->first[i + 1]; k++)
        sum += s->requests->list[k].loglikelihood;
    for (size_t m = 0; m < p->task->n_metrics; m++) {
        const bool words = p->task->metrics[m].kind == AX_METRIC_WORD_PERPLEXITY;
        *at(s, filter, m, i) = (struct ax_task_value){
            .x = sum, .y = (double)(words ? ax_python_words(text.data, text.len) : text.len)};
    }
    ax_buf_free(&text);
    return AX_OK;
}

static enum ax_status score_target(struct ax_task_scores *s, size_t i, size_t filter) {
    const struct ax_task *t = s->requests->prompts->task;
    const struct ax_task_request *q = &s->requests->list[s->requests->first[i]];
    for (size_t m = 0; m < t->n_metrics; m++)
        at(s, filter, m, i)->x = t->metrics[m].kind == AX_METRIC_ACC ? q->greedy : q->loglikelihood;
    return AX_OK;
}

/* The model's texts, as many as the task repeats a request. */
static enum ax_status list_answers(struct ax_task_scores *s, size_t i) {
    const struct ax_task_requests *r = s->requests;
    s->answers[i] = json_array();
    for (int64_t k = 0; k < r->prompts->task->repeats; k++) {
        const struct ax_buf *text =
            &r->answers[r->first[i] * r->samples + (size_t)k % r->samples].text;
        if (json_array_append_new(s->answers[i], json_stringn(text->data, text->len)) != 0)
            return ax_error(AX_ERR_NOMEM, "out of memory for the answers");
    }
    return AX_OK;
}

static enum ax_status score_all(struct ax_task_scores *s) {
    static enum ax_status (*const by_output[])(struct ax_task_scores *, size_t, size_t) = {
        [AX_TASK_MULTIPLE_CHOICE] = score_choices,
        [AX_TASK_GENERATE] = score_text,
        [AX_TASK_LOGLIKELIHOOD] = score_target,
        [AX_TASK_ROLLING] = score_rolling,
    };
    const struct ax_task_prompts *p = s->requests->prompts;
    const size_t filters = p->task->n_filters;
    char where[512];
    s->n_values = filters * p->task->n_metrics * s->n;
    AX_TRY(ax_alloc(&s->values, s->n_values, sizeof *s->values));
    if (p->task->output == AX_TASK_GENERATE) {
        AX_TRY(ax_alloc(&s->answers, s->n, sizeof(json_t *)));
        AX_TRY(ax_alloc(&s->filtered, filters * s->n, sizeof(json_t *)));
    }
    for (size_t i = 0; i < s->n; i++) {
        enum ax_status st = s->answers ? list_answers(s, i) : AX_OK;
        for (size_t f = 0; f < filters && st == AX_OK; f++)
            st = by_output[p->task->output](s, i, f);
        if (st != AX_OK)
            return ax_error_prefix(st, "%s", ax_task_docs_where(&p->docs, i, where, sizeof where));
    }
    return AX_OK;
}

enum ax_status ax_task_score(struct ax_task_scores *s, const struct ax_task_requests *r) {
    *s = (struct ax_task_scores){.requests = r, .n = r->prompts->docs.n};
    const enum ax_status st = score_all(s);
    if (st != AX_OK)
        ax_task_scores_free(s);
    return st;
}

void ax_task_scores_free(struct ax_task_scores *s) {
    for (size_t i = 0; s->answers && i < s->n; i++)
        json_decref(s->answers[i]);
    for (size_t i = 0; s->filtered && i < s->n * s->requests->prompts->task->n_filters; i++)
        json_decref(s->filtered[i]);
    for (size_t i = 0; s->values && i < s->n_values; i++)
        json_decref(s->values[i].pair);
    ax_free(s->answers);
    ax_free(s->filtered);
    ax_free(s->values);
    *s = (struct ax_task_scores){0};
}

/* Records → requests. Read make_item first. */
#include "optim/evaluate/tasks/requests.h"

#include <string.h>

#include "base/mem.h"

struct maker {
    struct ax_task_requests *r;
    const struct ax_task_prompts *p;
};

/* The delimiter between a question and its choices: with a chat template none, except after a
 * gen_prefix that does not end in a space. */
static const char *delimiter(const struct ax_task *t, bool chat) {
    const char *begin = t->gen_prefix.text;
    const bool open = begin && *begin && !ax_python_space_last(begin, strlen(begin));
    return !chat || open ? t->target_delimiter : "";
}

enum ax_status ax_task_continuation(const struct ax_task_prompts *p, size_t item, size_t choice,
                                    struct ax_buf *out) {
    const struct ax_task_item *x = &p->items[item];
    AX_TRY(ax_buf_puts(out, delimiter(p->task, p->chat)));
    return ax_python_str(out, p->several ? x->target : json_array_get(x->choices, choice));
}

static bool has_metric(const struct ax_task *t, enum ax_task_metric_kind kind) {
    for (size_t i = 0; i < t->n_metrics; i++)
        if (t->metrics[i].kind == kind)
            return true;
    return false;
}

/* Each choice after its context and, for mutual information, also without context. */
static enum ax_status add_choices(struct maker *m, size_t i) {
    const struct ax_task_item *item = &m->p->items[i];
    const bool alone = has_metric(m->p->task, AX_METRIC_ACC_MUTUAL_INFO);
    const size_t n = json_array_size(item->choices);
    for (size_t k = 0; k < n * (1 + alone); k++) {
        struct ax_buf text = {0};
        enum ax_status st = ax_task_continuation(m->p, i, k % n, &text);
        if (st == AX_OK && k >= n)
            st = ax_task_requests_add_alone(m->r, i, text.data, text.len);
        else if (st == AX_OK)
            st = ax_task_requests_add_pair(m->r, i, &item->contexts[m->p->several ? k : 0], &text);
        ax_buf_free(&text);
        AX_TRY(st);
    }
    return AX_OK;
}

static enum ax_status add_target(struct maker *m, size_t i, bool rolling) {
    const struct ax_task_item *item = &m->p->items[i];
    struct ax_buf text = {0};
    AX_TRY(ax_buf_append(&text, "", 0));
    enum ax_status st = item->target ? ax_python_str(&text, item->target) : AX_OK;
    if (st == AX_OK)
        st = rolling ? ax_task_requests_add_windows(m->r, i, text.data, text.len)
                     : ax_task_requests_add_pair(m->r, i, &item->contexts[0], &text);
    ax_buf_free(&text);
    return st;
}

static enum ax_status make_item(struct maker *m, size_t i) {
    switch (m->p->task->output) {
    case AX_TASK_MULTIPLE_CHOICE:
        return add_choices(m, i);
    case AX_TASK_GENERATE:
        return ax_task_requests_add_prompt(m->r, i, m->p->items[i].contexts[0].data,
                                           m->p->items[i].contexts[0].len);
    default:
        return add_target(m, i, m->p->task->output == AX_TASK_ROLLING);
    }
}

/* ---- all records ---- */

static enum ax_status make_all(struct maker *m) {
    struct ax_task_requests *r = m->r;
    char where[512];
    r->prompts = m->p;
    AX_TRY(ax_alloc(&r->first, m->p->docs.n + 1, sizeof *r->first));
    for (size_t i = 0; i < m->p->docs.n; i++) {
        r->first[i] = r->n;
        const enum ax_status st = make_item(m, i);
        if (st != AX_OK)
            return ax_error_prefix(st, "%s",
                                   ax_task_docs_where(&m->p->docs, i, where, sizeof where));
    }
    r->first[m->p->docs.n] = r->n;
    return r->generation ? ax_task_requests_answers(r) : AX_OK;
}

enum ax_status ax_task_requests_make(struct ax_task_requests *r, const struct ax_task_prompts *p,
                                     const struct ax_text_side *side, int64_t max_length) {
    const struct ax_task *t = p->task;
    const struct ax_task_generation *g = t->output == AX_TASK_GENERATE ? &t->generation : NULL;
    struct maker m = {.r = r, .p = p};
    enum ax_status st = ax_task_requests_open(r, side, max_length, g);
    if (st == AX_ERR_CONFIG)
        st = ax_error_prefix(st, "%s", t->name);
    if (g && g->temperature > 0)
        r->samples = (size_t)t->repeats;
    if (st == AX_OK)
        st = make_all(&m);
    if (st != AX_OK)
        ax_task_requests_free(r);
    return st;
}

/* Selects a record's few-shot examples: the first of the split, or a draw as by Python's
 * random.Random. */
#include <string.h>

#include "base/mem.h"
#include "optim/evaluate/tasks/prompt.h"

static const char *split_of(const struct ax_task *t) {
    return t->fewshot.split      ? t->fewshot.split
           : t->training_split   ? t->training_split
           : t->validation_split ? t->validation_split
                                 : t->test_split;
}

static bool same(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

static enum ax_status load(struct ax_task_shots *s, const struct ax_task *t,
                           const struct ax_task_prompt_options *o) {
    if (!t->fewshot.split && t->fewshot.samples)
        return ax_task_docs_from_list(&s->docs, t->fewshot.samples);
    return ax_task_docs_load(&s->docs, t, split_of(t), o->folder, 0);
}

enum ax_status ax_task_shots_open(struct ax_task_shots *s, const struct ax_task *t,
                                  const struct ax_task_prompt_options *o, size_t n) {
    *s = (struct ax_task_shots){.n = n};
    if (n == 0)
        return AX_OK;
    /* as in lm-evaluation-harness, two absent splits count as the same */
    s->without_own = same(t->fewshot.split, t->test_split);
    ax_python_seed(&s->random, o->seed);
    AX_TRY(load(s, t, o));
    AX_TRY(ax_alloc(&s->drawn, n + 1, sizeof *s->drawn));
    return ax_alloc(&s->chosen, n, sizeof(json_t *));
}

void ax_task_shots_close(struct ax_task_shots *s) {
    ax_task_docs_free(&s->docs);
    ax_free(s->drawn);
    ax_free((void *)s->chosen);
    *s = (struct ax_task_shots){0};
}

static enum ax_status too_few(const struct ax_task_shots *s, const struct ax_task *t) {
    return ax_error(AX_ERR_CONFIG,
                    "%s: %zu few-shot examples are more than there are records for them (%zu%s); "
                    "lower num_fewshot",
                    t->name, s->n, s->docs.n, s->without_own ? " without the record itself" : "");
}

static bool usable(const struct ax_task_shots *s, size_t i, const json_t *doc) {
    return !s->without_own || !json_equal(s->docs.list[i], doc);
}

/* Draws k of the n records whose numbers are in `pool` (NULL: of the first n). */
static enum ax_status draw(struct ax_task_shots *s, const struct ax_task *t, const json_t *doc,
                           const uint32_t *pool, size_t n, size_t k, size_t *chosen) {
    if (k > n)
        return too_few(s, t);
    AX_TRY(ax_python_sample(&s->random, (uint32_t)n, (uint32_t)k, s->drawn));
    *chosen = 0;
    for (size_t i = 0; i < k && *chosen < s->n; i++) {
        const size_t at = pool ? pool[s->drawn[i]] : s->drawn[i];
        if (usable(s, at, doc))
            s->chosen[(*chosen)++] = s->docs.list[at];
    }
    return AX_OK;
}

/* If the split contains the record several times, the first draw may have too few others: draws
 * again, only from others. */
static enum ax_status draw_again(struct ax_task_shots *s, const struct ax_task *t,
                                 const json_t *doc) {
    uint32_t *pool;
    size_t n = 0, chosen;
    AX_TRY(ax_alloc(&pool, s->docs.n, sizeof *pool));
    for (size_t i = 0; i < s->docs.n; i++)
        if (usable(s, i, doc))
            pool[n++] = (uint32_t)i;
    const enum ax_status st = draw(s, t, doc, pool, n, s->n, &chosen);
    ax_free(pool);
    return st;
}

enum ax_status ax_task_shots_choose(struct ax_task_shots *s, const struct ax_task *t,
                                    const json_t *doc) {
    size_t chosen = 0;
    if (s->n == 0)
        return AX_OK;
    if (!t->fewshot.first_n) {
        AX_TRY(draw(s, t, doc, NULL, s->docs.n, s->n + s->without_own, &chosen));
        return chosen < s->n ? draw_again(s, t, doc) : AX_OK;
    }
    for (size_t i = 0; i < s->docs.n && chosen < s->n; i++)
        if (usable(s, i, doc))
            s->chosen[chosen++] = s->docs.list[i];
    return chosen < s->n ? too_few(s, t) : AX_OK;
}

/* Records → prompts. Read build_one first. */
#include "optim/evaluate/tasks/prompt.h"

#include <string.h>

#include "base/mem.h"

/* ---- few-shot examples: the first of the split, or a draw as by Python's random.Random ---- */

struct shots {
    struct ax_task_docs docs;
    struct ax_python_random random;
    bool without_own; /* a record is not used as its own example */
    uint32_t *drawn;
    const json_t **chosen; /* [n]: for the current record */
    size_t n;
};

static const char *split_of(const struct ax_task *t) {
    return t->fewshot.split      ? t->fewshot.split
           : t->training_split   ? t->training_split
           : t->validation_split ? t->validation_split
                                 : t->test_split;
}

static bool same(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

static enum ax_status load_shots(struct shots *s, const struct ax_task *t,
                                 const struct ax_task_prompt_options *o) {
    if (!t->fewshot.split && t->fewshot.samples)
        return ax_task_docs_from_list(&s->docs, t->fewshot.samples);
    return ax_task_docs_load(&s->docs, t, split_of(t), o->folder, 0);
}

static enum ax_status open_shots(struct shots *s, const struct ax_task *t,
                                 const struct ax_task_prompt_options *o, size_t n) {
    *s = (struct shots){.n = n};
    if (n == 0)
        return AX_OK;
    /* as in lm-evaluation-harness, two absent splits count as the same */
    s->without_own = same(t->fewshot.split, t->test_split);
    ax_python_seed(&s->random, o->seed);
    AX_TRY(load_shots(s, t, o));
    AX_TRY(ax_alloc(&s->drawn, n + 1, sizeof *s->drawn));
    return ax_alloc(&s->chosen, n, sizeof(json_t *));
}

static void close_shots(struct shots *s) {
    ax_task_docs_free(&s->docs);
    ax_free(s->drawn);
    ax_free((void *)s->chosen);
    *s = (struct shots){0};
}

static enum ax_status too_few(const struct shots *s, const struct ax_task *t) {
    return ax_error(AX_ERR_CONFIG,
                    "%s: %zu few-shot examples are more than there are records for them (%zu%s); "
                    "lower num_fewshot",
                    t->name, s->n, s->docs.n, s->without_own ? " without the record itself" : "");
}

static bool usable(const struct shots *s, size_t i, const json_t *doc) {
    return !s->without_own || !json_equal(s->docs.list[i], doc);
}

/* Draws k of the n records whose numbers are in `pool` (NULL: of the first n). */
static enum ax_status draw(struct shots *s, const struct ax_task *t, const json_t *doc,
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
static enum ax_status draw_again(struct shots *s, const struct ax_task *t, const json_t *doc) {
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

/* Selects examples for `doc`. Call it in the order of the records: draws continue one sequence. */
static enum ax_status choose_shots(struct shots *s, const struct ax_task *t, const json_t *doc) {
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

/* ---- pieces of text ---- */

struct builder {
    struct ax_task_prompts *p;
    const struct ax_task *t;
    const struct ax_task_prompt_options *o;
    const struct ax_text_side *chat; /* NULL: plain text */
    struct shots shots;
    struct ax_task_messages messages;
};

/* prefix + delimiter + suffix; the delimiter only if both are nonempty and have no space where they
 * meet. */
static enum ax_status join(struct ax_buf *out, const struct ax_buf *prefix, const char *delimiter,
                           const char *suffix, size_t len) {
    const bool both = prefix->len > 0 && len > 0;
    AX_TRY(ax_buf_append(out, prefix->data ? prefix->data : "", prefix->len));
    if (both && !ax_python_space_last(prefix->data, prefix->len) &&
        !ax_python_space_first(suffix, len))
        AX_TRY(ax_buf_puts(out, delimiter));
    return ax_buf_append(out, suffix, len);
}

/* Appends the text of a field; nothing if the task has no such field. */
static enum ax_status put_field(struct ax_buf *out, const struct ax_task_field *f,
                                const json_t *doc) {
    json_t *v;
    if (!ax_task_field_given(f) || (f->text && !*f->text))
        return ax_buf_append(out, "", 0);
    AX_TRY(ax_task_field_value(f, doc, &v));
    const enum ax_status st =
        v && !json_is_null(v) ? ax_python_str(out, v) : ax_buf_append(out, "", 0);
    json_decref(v);
    return st;
}

/* The text of an answer, which may be the index of a choice; the first of several answers. */
static enum ax_status answer_text(const json_t *answer, const json_t *choices, const json_t **out) {
    const json_t *a = json_is_array(answer) ? json_array_get(answer, 0) : answer;
    json_int_t i = json_is_boolean(a) ? json_is_true(a) : json_integer_value(a);
    if (choices && (json_is_integer(a) || json_is_boolean(a))) {
        i += i < 0 ? (json_int_t)json_array_size(choices) : 0;
        a = i >= 0 ? json_array_get(choices, (size_t)i) : NULL;
    }
    *out = a;
    if (json_is_string(a))
        return AX_OK;
    return ax_error(AX_ERR_DATA, "doc_to_target: expected text, or the number of a choice");
}

/* ---- turns ---- */

/* Adds the question with its answer or, if that is NULL, with the beginning of one. */
static enum ax_status add_turn(struct builder *b, const char *question, size_t len,
                               const json_t *answer, const struct ax_buf *begin,
                               const char *target_delimiter, const char *delimiter) {
    const bool has = answer && json_string_length(answer) > 0, open = begin->len > 0;
    const bool apart = len > 0 && open && !ax_python_space_last(question, len) &&
                       !ax_python_space_first(begin->data, begin->len);
    AX_TRY(ax_task_messages_add(&b->messages, "user", question, len,
                                (has && !open) || apart ? target_delimiter : ""));
    if (has) {
        AX_TRY(ax_task_messages_add(&b->messages, "assistant", NULL, 0, delimiter));
        return join(&b->messages.list[b->messages.n - 1].text, begin, " ",
                    json_string_value(answer), json_string_length(answer));
    }
    return open ? ax_task_messages_add(&b->messages, "assistant", begin->data, begin->len, "")
                : AX_OK;
}

/* The text of a question; if the task's questions are indices, that of the choice. */
static enum ax_status question_text(const struct builder *b, const json_t *text,
                                    const json_t *choices, const json_t **out) {
    *out = json_is_integer(text) && b->p->several
               ? json_array_get(choices, (size_t)json_integer_value(text))
               : text;
    return json_is_string(*out) ? AX_OK
                                : ax_error(AX_ERR_DATA, "doc_to_text: expected text, got a number");
}

static enum ax_status add_shot(struct builder *b, const json_t *doc) {
    const struct ax_task_fewshot *f = &b->t->fewshot;
    json_t *text = NULL, *target = NULL, *choices = NULL;
    const json_t *question, *answer;
    struct ax_buf begin = {0};
    enum ax_status st;
    AX_TRY_GOTO(ax_task_text_value(b->t, &f->text, doc, &text), st, done);
    if (ax_task_field_given(&f->choice))
        AX_TRY_GOTO(ax_task_choices_value(b->t, &f->choice, doc, &choices), st, done);
    AX_TRY_GOTO(ax_task_target_value(b->t, &f->target, doc, &target), st, done);
    AX_TRY_GOTO(put_field(&begin, &f->gen_prefix, doc), st, done);
    AX_TRY_GOTO(question_text(b, text, choices, &question), st, done);
    AX_TRY_GOTO(answer_text(target, b->p->several ? NULL : choices, &answer), st, done);
    st = add_turn(b, json_string_value(question), json_string_length(question), answer, &begin,
                  f->target_delimiter, f->delimiter);
done:
    if (st != AX_OK)
        ax_error_prefix(st, "few-shot example");
    json_decref(text);
    json_decref(target);
    json_decref(choices);
    ax_buf_free(&begin);
    return st;
}

/* Adds a system message: the instruction, then the description. */
static enum ax_status add_system(struct builder *b, const json_t *doc) {
    struct ax_buf system = {0}, description = {0}, all = {0};
    enum ax_status st;
    AX_TRY_GOTO(ax_buf_puts(&system, b->o->system ? b->o->system : ""), st, done);
    AX_TRY_GOTO(put_field(&description, &b->t->description, doc), st, done);
    AX_TRY_GOTO(join(&all, &system, b->t->fewshot_delimiter, description.data, description.len), st,
                done);
    if (all.len > 0)
        st = ax_task_messages_add(&b->messages, "system", all.data, all.len, "");
done:
    ax_buf_free(&system);
    ax_buf_free(&description);
    ax_buf_free(&all);
    return st;
}

/* ---- one record ---- */

static enum ax_status put_context(struct builder *b, struct ax_task_item *item) {
    return ax_task_messages_text(&b->messages, b->chat, b->o->single_turn,
                                 &item->contexts[item->n_contexts++]);
}

/* Builds the context with the question, or one with each choice in its place. */
static enum ax_status add_contexts(struct builder *b, struct ax_task_item *item) {
    struct ax_buf begin = {0};
    const size_t before = b->messages.n, n = b->p->several ? json_array_size(item->choices) : 1;
    enum ax_status st;
    AX_TRY(ax_alloc(&item->contexts, n, sizeof *item->contexts));
    AX_TRY_GOTO(put_field(&begin, &b->t->gen_prefix, item->doc), st, done);
    for (size_t i = 0; i < n; i++) {
        const json_t *q = b->p->several ? json_array_get(item->choices, i) : item->text;
        if (!json_is_string(q))
            AX_TRY_GOTO(ax_error(AX_ERR_DATA, "doc_to_text: expected text, got a number"), st,
                        done);
        ax_task_messages_cut(&b->messages, before);
        AX_TRY_GOTO(add_turn(b, json_string_value(q), json_string_length(q), NULL, &begin,
                             b->p->several ? "" : b->t->target_delimiter, ""),
                    st, done);
        AX_TRY_GOTO(put_context(b, item), st, done);
    }
done:
    ax_buf_free(&begin);
    return st;
}

static enum ax_status read_item(struct builder *b, struct ax_task_item *item) {
    const struct ax_task *t = b->t;
    if (ax_task_field_given(&t->choice))
        AX_TRY(ax_task_choices_value(t, &t->choice, item->doc, &item->choices));
    if (ax_task_field_given(&t->text))
        AX_TRY(ax_task_text_value(t, &t->text, item->doc, &item->text));
    /* a text to be scored is used as it is */
    if (t->output == AX_TASK_ROLLING || t->output == AX_TASK_LOGLIKELIHOOD)
        return ax_task_field_value(&t->target, item->doc, &item->target);
    return ax_task_target_value(t, &t->target, item->doc, &item->target);
}

static enum ax_status build_one(struct builder *b, struct ax_task_item *item) {
    ax_task_messages_cut(&b->messages, 0);
    AX_TRY(add_system(b, item->doc));
    AX_TRY(choose_shots(&b->shots, b->t, item->doc));
    for (size_t i = 0; i < b->shots.n; i++)
        AX_TRY(add_shot(b, b->shots.chosen[i]));
    return add_contexts(b, item);
}

/* ---- all ---- */

/* The first record decides what kind of task this is. */
static void look_at_first(struct ax_task_prompts *p) {
    p->several = p->task->output == AX_TASK_MULTIPLE_CHOICE && json_is_integer(p->items[0].text);
    p->many_targets = json_is_array(p->items[0].target);
}

static enum ax_status build_all(struct builder *b) {
    struct ax_task_prompts *p = b->p;
    char where[512];
    for (size_t i = 0; i < p->docs.n; i++) {
        struct ax_task_item *item = &p->items[i];
        item->doc = p->docs.list[i];
        enum ax_status st = read_item(b, item);
        if (i == 0)
            look_at_first(p);
        if (st == AX_OK && b->t->output != AX_TASK_ROLLING)
            st = build_one(b, item);
        if (st != AX_OK)
            return ax_error_prefix(st, "%s", ax_task_docs_where(&p->docs, i, where, sizeof where));
    }
    return AX_OK;
}

enum ax_status ax_task_prompts_build(struct ax_task_prompts *p, const struct ax_task *t,
                                     const struct ax_text_side *side,
                                     const struct ax_task_prompt_options *o) {
    struct builder b = {.p = p, .t = t, .o = o, .chat = o->chat ? side : NULL};
    enum ax_status st;
    *p = (struct ax_task_prompts){.task = t, .chat = o->chat};
    /* an explicit 0 in the file is never overridden */
    const bool given = o->num_fewshot >= 0 && t->num_fewshot != 0;
    p->num_fewshot = given ? o->num_fewshot : t->num_fewshot > 0 ? t->num_fewshot : 0;
    if (t->output == AX_TASK_ROLLING)
        p->num_fewshot = 0;
    AX_TRY_GOTO(ax_task_docs_load(&p->docs, t, t->test_split ? t->test_split : t->validation_split,
                                  o->folder, o->max_rows),
                st, done);
    AX_TRY_GOTO(ax_alloc(&p->items, p->docs.n, sizeof *p->items), st, done);
    AX_TRY_GOTO(open_shots(&b.shots, t, o, (size_t)p->num_fewshot), st, done);
    st = build_all(&b);
done:
    close_shots(&b.shots);
    ax_task_messages_free(&b.messages);
    if (st != AX_OK)
        ax_task_prompts_free(p);
    return st;
}

void ax_task_prompts_free(struct ax_task_prompts *p) {
    for (size_t i = 0; p->items && i < p->docs.n; i++) {
        struct ax_task_item *item = &p->items[i];
        json_decref(item->text);
        json_decref(item->target);
        json_decref(item->choices);
        for (size_t k = 0; k < item->n_contexts; k++)
            ax_buf_free(&item->contexts[k]);
        ax_free(item->contexts);
    }
    ax_free(p->items);
    ax_task_docs_free(&p->docs);
    *p = (struct ax_task_prompts){0};
}

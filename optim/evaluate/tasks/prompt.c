/* Records → prompts. Read build_one first. */
#include "optim/evaluate/tasks/prompt.h"

#include <string.h>

#include "base/mem.h"
#include "data/text/jinja/literal.h"

/* ---- values of the task's fields in a record ---- */

/* The value for a record, owned by the caller: the column's, the rendered text, or the constant. */
static enum ax_status field_value(const struct ax_task_field *f, const json_t *doc, json_t **out) {
    struct ax_template_output text = {0};
    *out = NULL;
    json_t *column = f->text ? json_object_get(doc, f->text) : f->constant;
    if (column || !f->text) {
        *out = json_incref(column);
        return AX_OK;
    }
    AX_TRY(ax_template_render(f->template, doc, NULL, &text));
    *out = json_stringn(text.text, text.len);
    ax_template_output_free(&text);
    return *out ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for a text");
}

static bool is_template(const struct ax_task_field *f, const json_t *doc) {
    return f->text && !json_object_get(doc, f->text);
}

/* The integer that a text of digits denotes, else NULL. */
static json_t *integer_of(const json_t *text) {
    const char *s = json_string_value(text);
    const size_t n = json_string_length(text);
    json_t *v = NULL;
    if (n > 0 && n < 18 && strspn(s, "0123456789") == n && ax_jinja_literal(s, n, &v) != AX_OK)
        ax_error_clear();
    return v;
}

static void replace(json_t **v, json_t *with) {
    if (with) {
        json_decref(*v);
        *v = with;
    }
}

/* The value as lm-evaluation-harness reads doc_to_text, doc_to_target and doc_to_choice: digits are
 * an integer if the task has choices; text that spells a Python list is that list. */
static enum ax_status text_value(const struct ax_task *t, const struct ax_task_field *f,
                                 const json_t *doc, json_t **out) {
    AX_TRY(field_value(f, doc, out));
    if (is_template(f, doc) && ax_task_field_given(&t->choice))
        replace(out, integer_of(*out));
    if (json_is_string(*out) || json_is_integer(*out))
        return AX_OK;
    json_decref(*out);
    *out = NULL;
    return ax_error(AX_ERR_DATA, "doc_to_text: expected text in column %s",
                    f->text ? f->text : "(none)");
}

static enum ax_status target_value(const struct ax_task *t, const struct ax_task_field *f,
                                   const json_t *doc, json_t **out) {
    AX_TRY(field_value(f, doc, out));
    if (!is_template(f, doc))
        return AX_OK;
    const char *s = json_string_value(*out);
    const size_t n = json_string_length(*out);
    json_t *list = NULL;
    if (ax_task_field_given(&t->choice))
        replace(out, integer_of(*out));
    if (json_is_string(*out) && n >= 2 && s[0] == '[' && s[n - 1] == ']')
        AX_TRY(ax_jinja_literal(s, n, &list));
    replace(out, list);
    return AX_OK;
}

static bool is_texts(const json_t *v) {
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!json_is_string(json_array_get(v, i)))
            return false;
    return json_array_size(v) > 0;
}

static enum ax_status choices_value(const struct ax_task *t, const struct ax_task_field *f,
                                    const json_t *doc, json_t **out) {
    (void)t;
    json_t *list = NULL;
    AX_TRY(field_value(f, doc, out));
    if (is_template(f, doc)) {
        const enum ax_status st =
            ax_jinja_literal(json_string_value(*out), json_string_length(*out), &list);
        if (st != AX_OK) {
            json_decref(*out);
            *out = NULL;
            return st;
        }
        replace(out, list);
    }
    if (is_texts(*out))
        return AX_OK;
    char shown[80] = "";
    snprintf(shown, sizeof shown, "%s", json_is_string(*out) ? json_string_value(*out) : "no text");
    json_decref(*out);
    *out = NULL;
    return ax_error(AX_ERR_DATA, "doc_to_choice: expected a list of texts, got %s", shown);
}

/* ---- messages → text, plain or through a chat template ---- */

enum ax_status ax_task_messages_add(struct ax_task_messages *m, const char *role, const char *text,
                                    size_t len, const char *delimiter) {
    if (m->n == m->cap) {
        const size_t cap = m->cap > 0 ? 2 * m->cap : 16;
        AX_TRY(ax_regrow(&m->list, m->cap, cap, sizeof *m->list));
        m->cap = cap;
    }
    struct ax_task_message *new = &m->list[m->n++];
    *new = (struct ax_task_message){.role = role, .delimiter = delimiter};
    return ax_buf_append(&new->text, text ? text : "", text ? len : 0);
}

void ax_task_messages_cut(struct ax_task_messages *m, size_t n) {
    while (m->n > n)
        ax_buf_free(&m->list[--m->n].text);
}

void ax_task_messages_free(struct ax_task_messages *m) {
    ax_task_messages_cut(m, 0);
    ax_free(m->list);
    *m = (struct ax_task_messages){0};
}

/* Joins messages [from, to), each followed by its delimiter, the last one only if `all`. */
static enum ax_status join_messages(const struct ax_task_messages *m, size_t from, size_t to,
                                    bool all, struct ax_buf *out) {
    for (size_t i = from; i < to; i++) {
        AX_TRY(ax_buf_append(out, m->list[i].text.data, m->list[i].text.len));
        if (all || i + 1 < to)
            AX_TRY(ax_buf_puts(out, m->list[i].delimiter));
    }
    return ax_buf_append(out, "", 0);
}

static bool is_role(const struct ax_task_message *m, const char *role) {
    return strcmp(m->role, role) == 0;
}

static bool begun(const struct ax_task_messages *m) {
    return is_role(&m->list[m->n - 1], "assistant");
}

static enum ax_status append(json_t *list, const char *role, const struct ax_buf *text) {
    json_t *v = json_pack("{ss ss%}", "role", role, "content", text->data, text->len);
    return json_array_append_new(list, v) == 0
               ? AX_OK
               : ax_error(AX_ERR_DATA, "a prompt is not UTF-8, or out of memory");
}

/* One turn per message; if `single`, one user turn for all between the system message and the begun
 * answer. */
static enum ax_status turns(const struct ax_task_messages *m, bool single, json_t *list) {
    const size_t first = single && is_role(&m->list[0], "system"),
                 end = m->n - (single && begun(m));
    struct ax_buf text = {0};
    for (size_t i = 0; i < (single ? first : m->n); i++)
        AX_TRY(append(list, m->list[i].role, &m->list[i].text));
    if (!single)
        return AX_OK;
    enum ax_status st = join_messages(m, first, end, false, &text);
    if (st == AX_OK)
        st = append(list, "user", &text);
    ax_buf_free(&text);
    if (st == AX_OK && end < m->n)
        st = append(list, "assistant", &m->list[end].text);
    return st;
}

/* Some templates reject a system message: then it is omitted. */
static enum ax_status render(const struct ax_text_side *side, json_t *vars,
                             struct ax_template_output *out) {
    const struct ax_template_options o = {.chat = true, .defaults = side->tokens};
    json_t *list = json_object_get(vars, "messages");
    const char *role = json_string_value(json_object_get(json_array_get(list, 0), "role"));
    const enum ax_status st = ax_template_render(side->template, vars, &o, out);
    if (st != AX_ERR_DATA || !role || strcmp(role, "system") != 0 || json_array_size(list) < 2)
        return st;
    json_array_remove(list, 0);
    return ax_template_render(side->template, vars, &o, out);
}

/* Ends the conversation after the last occurrence of the begun answer, for the model to continue
 * it. */
static enum ax_status leave_open(const struct ax_buf *begun_text, struct ax_template_output *text) {
    const char *s = begun_text->data;
    size_t n = begun_text->len, at = text->len;
    ax_python_strip(&s, &n);
    while (at > 0 && (text->len - at < n || memcmp(text->text + at, s, n) != 0))
        at--;
    if (text->len - at < n || memcmp(text->text + at, s, n) != 0)
        return ax_error(AX_ERR_DATA, "the chat template does not show gen_prefix as it is");
    const size_t with_spaces = begun_text->len - (size_t)(s - begun_text->data);
    const bool kept = text->len - at >= with_spaces && memcmp(text->text + at, s, with_spaces) == 0;
    text->len = at + (kept ? with_spaces : n);
    return AX_OK;
}

static enum ax_status chat_text(const struct ax_task_messages *m, const struct ax_text_side *side,
                                bool single, struct ax_buf *out) {
    struct ax_template_output text = {0};
    json_t *list = json_array();
    json_t *vars = json_pack("{so sb}", "messages", list, "add_generation_prompt", !begun(m));
    if (!vars)
        return ax_error(AX_ERR_NOMEM, "out of memory for a conversation");
    enum ax_status st = turns(m, single, list);
    if (st == AX_OK)
        st = render(side, vars, &text);
    if (st == AX_OK && begun(m))
        st = leave_open(&m->list[m->n - 1].text, &text);
    if (st == AX_OK)
        st = ax_buf_append(out, text.text, text.len);
    ax_template_output_free(&text);
    json_decref(vars);
    return st;
}

enum ax_status ax_task_messages_text(const struct ax_task_messages *m,
                                     const struct ax_text_side *chat, bool single_turn,
                                     struct ax_buf *out) {
    return chat ? chat_text(m, chat, single_turn, out) : join_messages(m, 0, m->n, true, out);
}

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
    AX_TRY(field_value(f, doc, &v));
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
    AX_TRY_GOTO(text_value(b->t, &f->text, doc, &text), st, done);
    if (ax_task_field_given(&f->choice))
        AX_TRY_GOTO(choices_value(b->t, &f->choice, doc, &choices), st, done);
    AX_TRY_GOTO(target_value(b->t, &f->target, doc, &target), st, done);
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
        AX_TRY(choices_value(t, &t->choice, item->doc, &item->choices));
    if (ax_task_field_given(&t->text))
        AX_TRY(text_value(t, &t->text, item->doc, &item->text));
    /* a text to be scored is used as it is */
    if (t->output == AX_TASK_ROLLING || t->output == AX_TASK_LOGLIKELIHOOD)
        return field_value(&t->target, item->doc, &item->target);
    return target_value(t, &t->target, item->doc, &item->target);
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

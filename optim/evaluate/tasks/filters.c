/* Each filter is a row of `steps`: a function of one answer, or of all. */
#include "optim/evaluate/tasks/filters.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "optim/evaluate/tasks/python.h"

struct step {
    const struct ax_task_filter *f;
    const json_t *doc;
    struct ax_regex_work work;
};

static json_t *text(const struct ax_buf *b) {
    return json_stringn(b->data ? b->data : "", b->len);
}

/* ---- regex ---- */

/* What re.findall returns for the current match: its text, that of its only group, or that of the
 * first nonempty one of several groups. */
static void found_text(const struct ax_regex_iter *it, size_t *start, size_t *end) {
    const size_t n = ax_regex_groups(it->re);
    for (size_t g = 1; g <= n; g++) {
        *start = *end = 0;
        if (ax_regex_group(it, g, start, end) && *end > *start)
            return;
    }
}

/* Appends match number group_select (negative: from the end), stripped; nothing if there is no such
 * match. *hit is set if there is any match. */
static enum ax_status find_match(struct step *s, const struct ax_regex *re, const char *in,
                                 size_t len, struct ax_buf *out, bool *hit) {
    struct ax_regex_iter it = ax_regex_search(re, &s->work, in, len);
    int64_t n = 0, want = s->f->group_select;
    for (int pass = want < 0 ? 0 : 1; pass < 2; pass++) { /* from the end: count first */
        bool found = true;
        size_t start, end;
        it = ax_regex_search(re, &s->work, in, len);
        want += pass == 1 && s->f->group_select < 0 ? n : 0;
        for (n = 0;; n++) {
            AX_TRY(ax_regex_next(&it, &found, &start, &end));
            if (!found)
                break;
            *hit = true;
            if (pass == 1 && n == want) {
                found_text(&it, &start, &end);
                const char *p = in + start;
                size_t length = end - start;
                ax_python_strip(&p, &length);
                return ax_buf_append(out, p, length);
            }
        }
    }
    return AX_OK;
}

static enum ax_status regex(struct step *s, const json_t *in, json_t **out) {
    struct ax_buf b = {0};
    bool hit = false;
    const char *t = json_is_string(in) ? json_string_value(in) : "";
    const enum ax_status st = find_match(s, s->f->regex, t, json_string_length(in), &b, &hit);
    const bool nothing = b.len == 0 && (!hit || ax_regex_groups(s->f->regex) > 1);
    *out = nothing ? json_string(s->f->fallback) : text(&b);
    ax_buf_free(&b);
    return st;
}

/* ---- multi_choice_regex ---- */

/* Removes what the filter ignores. */
static enum ax_status clean(struct step *s, const char *in, size_t len, struct ax_buf *out) {
    AX_TRY(ax_buf_append(out, in, len));
    for (size_t i = 0; i < s->f->n_ignore; i++)
        AX_TRY(ax_python_sub(out, s->f->ignore[i], &s->work));
    if (s->f->ignore_case)
        AX_TRY(ax_python_case(out, false));
    if (s->f->ignore_punctuation)
        ax_python_delete_unicode_punctuation(out);
    return AX_OK;
}

#define MAX_LETTERS 26

struct letters {
    struct ax_buf texts[MAX_LETTERS];
    size_t n;
};

static enum ax_status read_letters(struct step *s, struct letters *l) {
    const json_t *choices = json_object_get(s->doc, "choices");
    if (!json_is_array(choices) || json_array_size(choices) > MAX_LETTERS)
        return ax_error(AX_ERR_DATA,
                        "multi_choice_regex: expected a list of at most %d texts in the column "
                        "choices",
                        MAX_LETTERS);
    for (; l->n < json_array_size(choices); l->n++) {
        const json_t *c = json_array_get(choices, l->n);
        const char *p = json_string_value(c);
        size_t len = json_string_length(c);
        if (!p)
            return ax_error(AX_ERR_DATA, "multi_choice_regex: a choice is not text");
        ax_python_strip(&p, &len);
        AX_TRY(clean(s, p, len, &l->texts[l->n]));
    }
    return AX_OK;
}

/* The longest choice that the text begins with, or −1. Of equal choices the last one counts. */
static int choice_at(const struct letters *l, const char *p, size_t len) {
    int best = -1;
    for (size_t i = 0; i < l->n; i++) {
        const struct ax_buf *c = &l->texts[i];
        if (c->len > 0 && c->len <= len && memcmp(c->data, p, c->len) == 0 &&
            (best < 0 || c->len >= l->texts[best].len))
            best = (int)i;
    }
    return best;
}

static int find_choice(const struct step *s, const struct letters *l, const struct ax_buf *in) {
    int64_t n = 0, want = s->f->group_select;
    for (int pass = want < 0 ? 0 : 1; pass < 2; pass++) {
        want += pass == 1 && s->f->group_select < 0 ? n : 0;
        n = 0;
        for (size_t at = 0; at < in->len;) {
            const int c = choice_at(l, in->data + at, in->len - at);
            if (c >= 0 && pass == 1 && n == want)
                return c;
            n += c >= 0;
            at += c >= 0 ? l->texts[c].len : 1;
        }
    }
    return -1;
}

static enum ax_status by_choice(struct step *s, const char *in, size_t len, struct ax_buf *out) {
    struct letters l = {0};
    struct ax_buf cleaned = {0};
    struct ax_regex *re = NULL;
    char pattern[64] = ":[\\s]*([A-A])";
    bool hit = false;
    enum ax_status st;
    AX_TRY_GOTO(read_letters(s, &l), st, done);
    AX_TRY_GOTO(clean(s, in, len, &cleaned), st, done);
    const int c = find_choice(s, &l, &cleaned);
    if (c >= 0)
        AX_TRY_GOTO(ax_buf_printf(out, "(%c)", 'A' + c), st, done);
    if (c >= 0 || l.n == 0)
        goto done;
    strrchr(pattern, '-')[1] = (char)('A' + l.n - 1);
    AX_TRY_GOTO(ax_regex_compile_python(&re, pattern, strlen(pattern)), st, done);
    struct ax_buf letter = {0};
    st = find_match(s, re, in, len, &letter, &hit);
    if (st == AX_OK && letter.len > 0)
        st = ax_buf_printf(out, "(%s)", letter.data);
    ax_buf_free(&letter);
done:
    for (size_t i = 0; i < l.n; i++)
        ax_buf_free(&l.texts[i]);
    ax_buf_free(&cleaned);
    ax_regex_free(re);
    return st;
}

/* The match of the expression; else the letter of a choice whose text occurs; else a letter after a
 * colon. */
static enum ax_status multi_choice_regex(struct step *s, const json_t *in, json_t **out) {
    struct ax_buf b = {0};
    bool hit = false;
    const char *t = json_is_string(in) ? json_string_value(in) : "";
    enum ax_status st = find_match(s, s->f->regex, t, json_string_length(in), &b, &hit);
    if (st == AX_OK && b.len == 0)
        st = by_choice(s, t, json_string_length(in), &b);
    *out = b.len > 0 ? text(&b) : json_string(s->f->fallback);
    ax_buf_free(&b);
    return st;
}

/* ---- filters of one text ---- */

static enum ax_status remove_whitespace(struct step *s, const json_t *in, json_t **out) {
    const char *p = json_string_value(in);
    size_t len = json_string_length(in);
    (void)s;
    ax_python_strip(&p, &len);
    *out = json_stringn(p, len);
    return AX_OK;
}

static enum ax_status change_case(struct step *s, const json_t *in, json_t **out) {
    struct ax_buf b = {0};
    enum ax_status st = ax_buf_append(&b, json_string_value(in), json_string_length(in));
    if (st == AX_OK)
        st = ax_python_case(&b, s->f->kind == AX_FILTER_UPPERCASE);
    *out = text(&b);
    ax_buf_free(&b);
    return st;
}

static enum ax_status map(struct step *s, const json_t *in, json_t **out) {
    json_t *v = json_is_string(in)
                    ? json_object_getn(s->f->mapping, json_string_value(in), json_string_length(in))
                    : NULL;
    *out = json_incref(v ? v : s->f->otherwise);
    return AX_OK;
}

/* ---- filters of all answers ---- */

static enum ax_status take_first(const struct ax_task_filter *f, const json_t *in, json_t **out) {
    (void)f;
    *out = json_incref(json_array_get(in, 0));
    return AX_OK;
}

static enum ax_status take_first_k(const struct ax_task_filter *f, const json_t *in, json_t **out) {
    *out = json_array();
    for (size_t i = 0; i < (size_t)f->k; i++)
        json_array_append(*out, json_array_get(in, i));
    return AX_OK;
}

/* The most frequent answer; of several, the one that came first. */
static enum ax_status majority_vote(const struct ax_task_filter *f, const json_t *in,
                                    json_t **out) {
    const size_t n = json_array_size(in);
    size_t best = 0, most = 0;
    (void)f;
    for (size_t i = 0; i < n; i++) {
        size_t votes = 0;
        for (size_t k = 0; k < n; k++)
            votes += json_equal(json_array_get(in, i), json_array_get(in, k)) != 0;
        if (votes > most) {
            most = votes;
            best = i;
        }
    }
    *out = json_pack("[O]", json_array_get(in, best));
    return AX_OK;
}

/* ---- a pipeline ---- */

static const struct {
    enum ax_status (*of_one)(struct step *s, const json_t *in, json_t **out);
    enum ax_status (*of_all)(const struct ax_task_filter *f, const json_t *in, json_t **out);
} steps[] = {
    [AX_FILTER_TAKE_FIRST] = {NULL, take_first},
    [AX_FILTER_TAKE_FIRST_K] = {NULL, take_first_k},
    [AX_FILTER_MAJORITY_VOTE] = {NULL, majority_vote},
    [AX_FILTER_REGEX] = {regex, NULL},
    [AX_FILTER_MULTI_CHOICE_REGEX] = {multi_choice_regex, NULL},
    [AX_FILTER_REMOVE_WHITESPACE] = {remove_whitespace, NULL},
    [AX_FILTER_LOWERCASE] = {change_case, NULL},
    [AX_FILTER_UPPERCASE] = {change_case, NULL},
    [AX_FILTER_MAP] = {map, NULL},
};

static bool needs_text(enum ax_task_filter_kind k) {
    return k == AX_FILTER_REMOVE_WHITESPACE || k == AX_FILTER_LOWERCASE || k == AX_FILTER_UPPERCASE;
}

static enum ax_status each(const struct ax_task_filter *f, const json_t *doc, const json_t *in,
                           json_t **out) {
    struct step s = {.f = f, .doc = doc};
    enum ax_status st = AX_OK;
    *out = json_array();
    for (size_t i = 0; i < json_array_size(in) && st == AX_OK; i++) {
        const json_t *one = json_array_get(in, i);
        json_t *v = NULL;
        if (needs_text(f->kind) && !json_is_string(one))
            st = ax_error(AX_ERR_DATA, "a filter after map got no text; put map last");
        else
            st = steps[f->kind].of_one(&s, one, &v);
        if (st == AX_OK && json_array_append(*out, v) != 0)
            st = ax_error(AX_ERR_NOMEM, "out of memory for an answer");
        json_decref(v);
    }
    ax_regex_work_free(&s.work);
    return st;
}

enum ax_status ax_task_filter(const struct ax_task_filters *p, const json_t *answers,
                              const json_t *doc, json_t **out) {
    json_t *v = json_incref((json_t *)(uintptr_t)answers);
    enum ax_status st = AX_OK;
    for (size_t i = 0; i < p->n && st == AX_OK; i++) {
        const struct ax_task_filter *f = &p->list[i];
        json_t *next = NULL;
        st = steps[f->kind].of_all ? steps[f->kind].of_all(f, v, &next) : each(f, doc, v, &next);
        json_decref(v);
        v = next;
    }
    if (st != AX_OK) {
        json_decref(v);
        v = NULL;
    }
    *out = v;
    return st;
}

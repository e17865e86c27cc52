/* Labels of a conversation.
 *
 * A turn's tokens are those that change when its message is replaced by another text: content,
 * reasoning and tool calls, but no header and no terminator. The terminator (EOS or end-of-turn) is
 * looked for within three tokens behind, and trained by its own rule. */
#include "data/chat_mask.h"

#include <string.h>

#include "data/chat_find.h"

enum { TERMINATOR_DISTANCE = 3 };

/* ---- rendering ---- */

static bool put(json_t *vars, const char *key, json_t *value) {
    return json_object_set_new(vars, key, value) == 0;
}

static json_t *first_messages(const struct ax_conversation *c, const struct ax_chat_render *r) {
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; i < r->n && ok; i++) {
        json_t *message = json_array_get(c->messages, i);
        if (r->replaced && i == r->n - 1)
            ok = json_array_append_new(list, json_pack("{s:O, s:s}", "role",
                                                       json_object_get(message, "role"), "content",
                                                       r->replaced)) == 0;
        else
            ok = json_array_append(list, message) == 0;
    }
    if (ok)
        return list;
    json_decref(list);
    return NULL;
}

enum ax_status ax_chat_render(const struct ax_format *f, const struct ax_conversation *c,
                              const struct ax_chat_render *r, struct ax_template_output *out) {
    const struct ax_format_chat *chat = f->o.chat;
    const struct ax_template_options o = {
        .chat = true, .defaults = chat->tokens, .fixed_now = true, .now = chat->now};
    json_t *vars =
        chat->variables ? json_copy((json_t *)(uintptr_t)chat->variables) : json_object();
    enum ax_status st = AX_OK;
    if (!vars || !put(vars, "messages", first_messages(c, r)) ||
        (c->tools && json_object_set(vars, "tools", c->tools) != 0) ||
        (r->part && !put(vars, "real_last_index", json_integer((json_int_t)c->n - 1))))
        st = ax_error(AX_ERR_NOMEM, "out of memory for a conversation");
    if (st == AX_OK)
        st = ax_template_render(chat->template, vars, &o, out);
    json_decref(vars);
    return st;
}

/* ---- one turn ---- */

/* Another text than the turn's: it must neither begin nor end as the content does, or tokens of
 * both could be the same. */
static const char *other_text(const json_t *message) {
    static const char *const texts[] = {"[[other text]]", "<<other text>>", "((other text))"};
    const json_t *v = json_object_get(message, "content");
    const char *s = json_is_string(v) ? json_string_value(v) : "";
    const size_t n = strlen(s);
    const size_t blank = strspn(s, " \t\r\n");
    size_t end = n;
    while (end > blank && strchr(" \t\r\n", s[end - 1]))
        end--;
    const char first = s[blank];
    const char last = end > blank ? s[end - 1] : '\0';
    for (size_t i = 0; i < 3; i++)
        if (first != texts[i][0] && last != texts[i][strlen(texts[i]) - 1])
            return texts[i];
    return "{{other text}}";
}

/* The rendering of the whole conversation serves for the last turn, unless the template treats
 * parts of a conversation in another way. */
static enum ax_status find_turn(const struct ax_format *f, struct ax_format_work *w,
                                const struct ax_conversation *c, const struct ax_text *whole,
                                size_t turn, size_t *start, size_t *end, bool *found) {
    struct ax_template_output real = {0};
    struct ax_template_output other = {0};
    enum ax_status st;
    struct ax_chat_render r = {.n = turn + 1, .part = true};
    struct ax_turn_pair pair = {.real = *whole};
    if (turn + 1 < c->n || ax_template_has(f->o.chat->template, "real_last_index")) {
        AX_TRY_GOTO(ax_chat_render(f, c, &r, &real), st, done);
        pair.real = (struct ax_text){real.text, real.len};
    }
    r.replaced = other_text(json_array_get(c->messages, turn));
    AX_TRY_GOTO(ax_chat_render(f, c, &r, &other), st, done);
    pair.other = (struct ax_text){other.text, other.len};
    st = ax_chat_find_turn(f, w, whole, &pair, start, end, found);
done:
    ax_template_output_free(&real);
    ax_template_output_free(&other);
    return st;
}

/* ---- parts of a turn ---- */

static size_t byte_of(struct ax_text t, size_t code_points) {
    size_t i = 0;
    for (size_t n = 0; i < t.n; i++)
        if (((unsigned char)t.s[i] & 0xC0U) != 0x80U && n++ == code_points)
            break;
    return i;
}

struct stretch {
    size_t start, end; /* tokens */
};

/* Trains the tokens in which a trained span begins, ends or lies, but none that a span which is not
 * trained shares. Spans count in the message's text, which must stand in the rendering as it is. */
static enum ax_status train_details(struct ax_format_work *w, struct ax_text whole,
                                    const struct ax_details *d, const char *key,
                                    const json_t *message, struct stretch turn, int32_t *labels) {
    const struct ax_encoding *e = &w->full;
    const json_t *v = json_object_get(message, key);
    struct ax_text text = {json_string_value(v), json_string_length(v)};
    const size_t from = turn.start < turn.end ? e->spans[turn.start].start : 0;
    const size_t to = turn.start < turn.end ? e->spans[turn.end - 1].end : 0;
    const char *at = memmem(whole.s + from, to - from, text.s, text.n);
    if (!at)
        return ax_error(AX_ERR_DATA,
                        "spans of %s are to be trained, but the chat template does not print that "
                        "text as it is",
                        key);
    const size_t base = (size_t)(at - whole.s);
    for (size_t t = turn.start; t < turn.end; t++) {
        bool train = false;
        bool masked = false;
        bool inside = e->spans[t].start < base + text.n && e->spans[t].end > base;
        for (size_t i = 0; i < d->n; i++) {
            const size_t start = base + byte_of(text, d->list[i].start);
            const size_t end = base + byte_of(text, d->list[i].end);
            const bool shared = e->spans[t].start < end && e->spans[t].end > start;
            train = train || (shared && d->list[i].train);
            masked = masked || (shared && !d->list[i].train);
        }
        if (inside)
            labels[t] = train && !masked ? e->ids[t] : AX_NO_LABEL;
    }
    return AX_OK;
}

static enum ax_status train_turn(struct ax_format_work *w, struct ax_text whole,
                                 const struct ax_format_chat *chat, const struct ax_turn *turn,
                                 const json_t *message, struct stretch at, int32_t *labels) {
    if (turn->content.n == 0)
        memcpy(labels + at.start, w->full.ids + at.start, (at.end - at.start) * sizeof *labels);
    else
        AX_TRY(train_details(w, whole, &turn->content, "content", message, at, labels));
    if (turn->thinking.n == 0)
        return AX_OK;
    return train_details(w, whole, &turn->thinking, chat->thinking_key, message, at, labels);
}

/* ---- terminators ---- */

struct terminator {
    const int32_t *ids; /* [n] */
    size_t n;
    enum ax_train_on rule;
    size_t last; /* place of the last one found + 1; 0 = none */
};

static void train_terminator(struct terminator *t, const struct ax_encoding *e, size_t end,
                             bool trained_turn, int32_t *labels) {
    for (size_t i = end; i < e->n && i <= end + TERMINATOR_DISTANCE; i++) {
        for (size_t k = 0; k < t->n; k++) {
            if (e->ids[i] != t->ids[k])
                continue;
            if (t->rule == AX_TRAIN_ALL || (t->rule == AX_TRAIN_TURN && trained_turn))
                labels[i] = e->ids[i];
            t->last = i + 1;
            return;
        }
    }
}

enum ax_status ax_chat_mask_turns(const struct ax_format *f, struct ax_format_work *w,
                                  const struct ax_conversation *c, const struct ax_text *text,
                                  int32_t *labels) {
    const struct ax_format_chat *chat = f->o.chat;
    struct terminator ends[2] = {
        {f->ends + f->eos_is_end, f->n_ends - f->eos_is_end, chat->train_on_eot, 0},
        {f->ends, f->eos_is_end, chat->train_on_eos, 0},
    };
    const bool all = chat->train_on_eos == AX_TRAIN_ALL || chat->train_on_eot == AX_TRAIN_ALL;
    for (size_t i = 0; i < c->n; i++) {
        const json_t *message = json_array_get(c->messages, i);
        const char *role = json_string_value(json_object_get(message, "role"));
        const bool unfound =
            i == 0 && chat->leading_system_untrained && strcmp(role, "system") == 0;
        struct stretch at;
        bool found;
        if ((!c->turns[i].train && !all) || unfound)
            continue;
        AX_TRY(find_turn(f, w, c, text, i, &at.start, &at.end, &found));
        if (!found || at.end > w->full.n)
            continue;
        if (c->turns[i].train)
            AX_TRY(train_turn(w, *text, chat, &c->turns[i], message, at, labels));
        for (size_t k = 0; k < 2; k++)
            train_terminator(&ends[k], &w->full, at.end, c->turns[i].train, labels);
    }
    for (size_t k = 0; k < 2; k++)
        if (ends[k].rule == AX_TRAIN_LAST && ends[k].last > 0)
            labels[ends[k].last - 1] = w->full.ids[ends[k].last - 1];
    return AX_OK;
}

/* ---- generation blocks ---- */

void ax_chat_mask_generation(struct ax_format_work *w, const struct ax_template_output *out,
                             int32_t *labels) {
    const struct ax_encoding *e = &w->full;
    const struct ax_text text = {out->text, out->len};
    for (size_t i = 0; i < out->n_spans; i++) {
        if (out->spans[i].start == out->spans[i].end)
            continue;
        const size_t first = byte_of(text, out->spans[i].start);
        const size_t last = byte_of(text, out->spans[i].end - 1);
        for (size_t t = ax_encoding_covering(e, 0, first); t < e->n && e->spans[t].start <= last;
             t++)
            labels[t] = e->ids[t];
    }
}

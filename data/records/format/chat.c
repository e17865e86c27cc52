/* Conversations: read the record (chat_turns.c), render it, tokenize the text, and mask the tokens that
 * are not trained on.
 *
 * A turn's tokens are those of the text that changes when another one replaces its message: content, reasoning
 * and tool calls, but not the header or terminator; a token that reaches over an end of it is one of them. The
 * terminator (EOS or end-of-turn) is searched within the next three tokens and trained by its own rule. What the template leaves out: tools.c. */
#include "data/records/format/chat.h"

#include <stdarg.h>
#include <string.h>

#include "base/fit.h"
#include "data/records/format/chat_prefix.h"
#include "data/records/format/tools.h"
#include "data/records/format/topk.h"

enum { TERMINATOR_DISTANCE = 3 };

/* ---- the tokens of a turn ---- */

/* The first i bytes are the same. */
static size_t common_start(struct ax_text a, struct ax_text b, size_t i) {
    const size_t n = a.n < b.n ? a.n : b.n;
    while (i < n && a.s[i] == b.s[i])
        i++;
    return i;
}

/* The length of the common end, which does not reach into the first `start` bytes of either
 * text. */
static size_t common_end(struct ax_text a, struct ax_text b, size_t start) {
    const size_t n = (a.n < b.n ? a.n : b.n) - start;
    size_t i = 0;
    while (i < n && a.s[a.n - 1 - i] == b.s[b.n - 1 - i])
        i++;
    return i;
}

struct stretch {
    size_t start, end; /* tokens */
};

/* First token that begins at or after byte `at`. */
static size_t first_token(const struct ax_encoding *e, size_t at) {
    size_t low = 0;
    for (size_t high = e->n; low < high;) {
        const size_t middle = low + (high - low) / 2;
        if (e->spans[middle].start < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The tokens of [from, to) bytes, with those that reach into it. */
static bool find_tokens(const struct ax_encoding *e, size_t from, size_t to, struct stretch *at) {
    at->start = first_token(e, from);
    at->end = first_token(e, to);
    while (at->start > 0 && e->spans[at->start - 1].end > from)
        at->start--;
    return at->end > at->start;
}

/* ---- one turn ---- */

/* A text that neither begins nor ends like the turn's content; otherwise both could share
 * tokens. */
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

/* One turn of the conversation. */
struct turn {
    const struct ax_format *f;
    struct ax_format_work *w;
    const struct ax_conversation *c;
    const struct ax_text *whole;
    size_t index;
    struct ax_chat_prefixes *prefixes;
};

/* The bytes of the turn: those that change with its text. */
struct range {
    size_t from, to;
};

static struct range range_of(const struct ax_turn_pair *pair) {
    const size_t same = common_start(pair->real, pair->other, pair->shared);
    return (struct range){same, pair->real.n - common_end(pair->real, pair->other, same)};
}

/* True if the rendering up to the turn has text of it, and the full conversation begins with that. */
static bool shows(const struct turn *t, const struct ax_turn_pair *pair) {
    const struct range r = range_of(pair);
    return r.to > r.from && common_start(pair->real, *t->whole, 0) >= r.to;
}

/* Renders all of the conversation with another text in the turn, where what follows it changes what the template
 * writes of it or before it: of earlier answers, say, only what follows their reasoning, or a leading system message
 * as a part of the next one. */
static enum ax_status render_whole(const struct turn *t, struct ax_chat_render r,
                                   struct ax_template_output *other, struct ax_turn_pair *pair) {
    r.later = t->c->n - r.n;
    r.n = t->c->n;
    r.part = false;
    ax_template_output_free(other);
    const enum ax_status st = ax_chat_render(t->f, t->c, &r, other);
    if (st == AX_ERR_DATA)
        return ax_error(st,
                        "message %zu: the chat template writes it differently when others follow, "
                        "and which tokens "
                        "are its cannot be told: with another text in it, %s. Use a template with "
                        "{%% generation %%} blocks, or another chat_template",
                        t->index + 1, ax_error_text());
    pair->real = *t->whole;
    pair->other = (struct ax_text){other->text, other->len};
    return st;
}

/* Renders the conversation up to the turn, or all of it, as it is and with another text. The last turn uses the
 * rendering of the full conversation, unless the template treats a part of a conversation differently. */
static enum ax_status render_pair(const struct turn *t, struct ax_chat_render r,
                                  struct ax_template_output *real, struct ax_template_output *other,
                                  struct ax_turn_pair *pair) {
    const char *replaced = r.replaced;
    if (r.n < t->c->n || ax_template_has(ax_conversation_template(t->f, t->c), "real_last_index")) {
        r.replaced = NULL;
        AX_TRY(ax_chat_render(t->f, t->c, &r, real));
        pair->real = (struct ax_text){real->text, real->len};
    }
    r.replaced = replaced;
    AX_TRY(ax_chat_render(t->f, t->c, &r, other));
    pair->other = (struct ax_text){other->text, other->len};
    return shows(t, pair) ? AX_OK : render_whole(t, r, other, pair);
}

/* The tokens of the turn. With `kept`, only those outside of that key's value. *found = false for an empty turn. */
static enum ax_status find_turn(const struct turn *t, const char *kept, struct stretch *at,
                                bool *found) {
    struct ax_template_output real = {0};
    struct ax_template_output other = {0};
    const struct ax_chat_render r = {.n = t->index + 1,
                                     .part = true,
                                     .kept = kept,
                                     .replaced =
                                         other_text(json_array_get(t->c->messages, t->index))};
    struct ax_turn_pair pair = {.real = *t->whole};
    bool known;
    enum ax_status st = ax_chat_prefixes_turn(t->prefixes, &r, &pair, &known);
    if (st == AX_OK && !known)
        st = render_pair(t, r, &real, &other, &pair);
    if (st == AX_OK) {
        const struct range bytes = range_of(&pair);
        *found = bytes.to > bytes.from && find_tokens(&t->w->full, bytes.from, bytes.to, at);
    }
    ax_template_output_free(&real);
    ax_template_output_free(&other);
    return st;
}

/* ---- parts of a turn ---- */

static bool continues(char c) {
    return ((unsigned char)c & 0xC0U) == 0x80U;
}

/* The tokens of the turn that overlap bytes [from, to). */
static struct stretch tokens_of(const struct ax_encoding *e, struct stretch turn, size_t from,
                                size_t to) {
    while (turn.start < turn.end && e->spans[turn.start].end <= from)
        turn.start++;
    while (turn.end > turn.start && e->spans[turn.end - 1].start >= to)
        turn.end--;
    return turn;
}

/* place[i] = the character of the text in which token at.start + i begins; the text begins at
 * byte `base`. The element after the last is the number of characters. */
static void find_places(const struct ax_encoding *e, struct ax_text text, size_t base,
                        struct stretch at, size_t *place) {
    size_t byte = 0;
    size_t n = 0;
    for (size_t t = at.start; t < at.end; t++) {
        const size_t start = e->spans[t].start > base ? e->spans[t].start - base : 0;
        for (; byte < start; byte++)
            n += !continues(text.s[byte]);
        place[t - at.start] = n - continues(text.s[start]);
    }
    for (; byte < text.n; byte++)
        n += !continues(text.s[byte]);
    place[at.end - at.start] = n;
}

/* How many elements of the ascending `place` are below `limit`. */
static size_t count_below(const size_t *place, size_t n, size_t limit) {
    size_t low = 0;
    for (size_t high = n; low < high;) {
        const size_t middle = low + (high - low) / 2;
        if (place[middle] < limit)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* A span takes all tokens inside it. Of the tokens that cross its ends, it takes those with more
 * than one character in the span. open[i] is the number of spans that begin with token i minus
 * the number that end before it. */
static void mark_spans(const struct ax_details *d, const size_t *place, size_t n, int32_t *open) {
    for (size_t i = 0; i < d->n; i++) {
        const struct ax_detail *span = &d->list[i];
        size_t first = count_below(place, n, span->start);
        size_t end = count_below(place + 1, n, span->end + 1);
        first -= first > 0 && place[first] > span->start + 1;
        end += end < n && place[end] + 1 < span->end;
        if (!span->train || first >= end)
            continue;
        open[first]++;
        open[end]--;
    }
}

/* Trains on the spans of a text, which begins at byte `base` of the rendering, and on nothing
 * else in it. */
static enum ax_status train_places(struct ax_format_work *w, struct ax_text text, size_t base,
                                   struct stretch at, const struct ax_details *d, int32_t *labels) {
    const size_t n = at.end - at.start;
    size_t *place;
    int32_t *open;
    AX_TRY(ax_alloc(&place, n + 1, sizeof *place));
    const enum ax_status st = ax_alloc(&open, n + 1, sizeof *open);
    if (st == AX_OK) {
        int32_t depth = 0;
        find_places(&w->full, text, base, at, place);
        mark_spans(d, place, n, open);
        for (size_t i = 0; i < n; i++) {
            depth += open[i];
            labels[at.start + i] = depth > 0 ? w->full.ids[at.start + i] : AX_NO_LABEL;
        }
        ax_free(open);
    }
    ax_free(place);
    return st;
}

/* Spans are offsets in the message's text, which must appear unchanged in the rendering. */
static enum ax_status train_spans(const struct turn *t, const char *key, struct stretch at,
                                  const struct ax_details *d, int32_t *labels) {
    const struct ax_encoding *e = &t->w->full;
    const json_t *v = json_object_get(json_array_get(t->c->messages, t->index), key);
    const struct ax_text text = {json_string_value(v), json_string_length(v)};
    const size_t from = e->spans[at.start].start;
    const size_t to = e->spans[at.end - 1].end;
    const char *found = memmem(t->whole->s + from, to - from, text.s, text.n);
    if (!found)
        return ax_error(
            AX_ERR_DATA,
            "%s selects spans to train on, but the chat template changes the text of that message",
            key);
    const size_t base = (size_t)(found - t->whole->s);
    return train_places(t->w, text, base, tokens_of(e, at, base, base + text.n), d, labels);
}

/* Trains on the full turn or on its spans. *end = where the turn ends; *found = false for an
 * empty turn. */
static enum ax_status train_turn(const struct turn *t, int32_t *labels, size_t *end, bool *found) {
    const struct ax_turn *turn = &t->c->turns[t->index];
    const bool details = turn->content.n > 0 || turn->thinking.n > 0;
    const char *thinking = t->f->o.chat->thinking_key;
    struct stretch at;
    if (turn->train && turn->thinking.n > 0) {
        AX_TRY(find_turn(t, NULL, &at, found));
        if (*found)
            AX_TRY(train_spans(t, thinking, at, &turn->thinking, labels));
    }
    AX_TRY(find_turn(t, details ? thinking : NULL, &at, found));
    if (!*found)
        return AX_OK;
    *end = at.end;
    if (turn->train && turn->content.n > 0)
        return train_spans(t, "content", at, &turn->content, labels);
    if (turn->train && !details)
        memcpy(labels + at.start, t->w->full.ids + at.start, (at.end - at.start) * sizeof *labels);
    return AX_OK;
}

/* ---- terminators ---- */

struct terminator {
    const int32_t *ids; /* [n] */
    size_t n;
    enum ax_train_on rule;
    size_t last; /* position of the last one found + 1; 0 = none */
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

/* Sets labels[n of w->full] from the turns. w->full holds the tokens of `text`, with spans. */
static enum ax_status mask_each(const struct ax_format *f, struct ax_format_work *w,
                                const struct ax_conversation *c, const struct ax_text *text,
                                struct ax_chat_prefixes *prefixes, int32_t *labels) {
    const struct ax_format_chat *chat = f->o.chat;
    struct terminator ends[2] = {
        {f->ends + f->eos_is_end, f->n_ends - f->eos_is_end, chat->train_on_eot, 0},
        {f->ends, f->eos_is_end, chat->train_on_eos, 0},
    };
    const bool all = chat->train_on_eos == AX_TRAIN_ALL || chat->train_on_eot == AX_TRAIN_ALL;
    for (size_t i = 0; i < c->n; i++) {
        const struct turn turn = {f, w, c, text, i, prefixes};
        const char *role =
            json_string_value(json_object_get(json_array_get(c->messages, i), "role"));
        const bool unfound =
            i == 0 && chat->leading_system_untrained && strcmp(role, "system") == 0;
        size_t end = 0;
        bool found;
        if ((!c->turns[i].train && !all) || unfound)
            continue;
        AX_TRY(train_turn(&turn, labels, &end, &found));
        for (size_t k = 0; k < 2 && found; k++)
            train_terminator(&ends[k], &w->full, end, c->turns[i].train, labels);
    }
    for (size_t k = 0; k < 2; k++)
        if (ends[k].rule == AX_TRAIN_LAST && ends[k].last > 0)
            labels[ends[k].last - 1] = w->full.ids[ends[k].last - 1];
    return AX_OK;
}

static enum ax_status mask_turns(const struct ax_format *f, struct ax_format_work *w,
                                 const struct ax_conversation *c, const struct ax_text *text,
                                 int32_t *labels) {
    struct ax_chat_prefixes prefixes;
    enum ax_status st = ax_chat_prefixes_begin(&prefixes, f, c, *text);
    if (st == AX_OK)
        st = mask_each(f, w, c, text, &prefixes, labels);
    ax_chat_prefixes_free(&prefixes);
    return st;
}

/* ---- generation blocks ---- */

struct cursor {
    size_t byte, point, token;
};

static void go_to(struct cursor *c, struct ax_text text, size_t point) {
    for (; c->byte < text.n && c->point < point; c->point++)
        for (c->byte++; c->byte < text.n && continues(text.s[c->byte]); c->byte++) {
        }
}

/* Trains from the token of a block's first character to that of its last one. Blocks are in code
 * points. If one is inside another, the inner one comes first. */
void ax_chat_mask_generation(struct ax_format_work *w, const struct ax_template_output *out,
                             int32_t *labels) {
    const struct ax_encoding *e = &w->full;
    const struct ax_text text = {out->text, out->len};
    struct cursor c = {0};
    for (size_t i = 0; i < out->n_spans; i++) {
        const struct ax_span *span = &out->spans[i];
        if (span->start == span->end)
            continue;
        if (span->start < c.point)
            c = (struct cursor){0};
        go_to(&c, text, span->start);
        size_t t = ax_encoding_covering(e, c.token, c.byte);
        if (t < e->n)
            c.token = t;
        go_to(&c, text, span->end - 1);
        for (; t < e->n && e->spans[t].start <= c.byte; t++)
            labels[t] = e->ids[t];
    }
}

/* ---- making the format ---- */

static enum ax_status add_end(struct ax_format *f, int32_t id) {
    AX_TRY(ax_regrow(&f->ends, f->n_ends, f->n_ends + 1, sizeof *f->ends));
    f->ends[f->n_ends++] = id;
    return AX_OK;
}

/* Adds a line to ax_format_warnings. */
static __attribute__((format(printf, 2, 3))) enum ax_status warn_user(struct ax_format *f,
                                                                      const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    ax_vfit(text, sizeof text, fmt, ap);
    va_end(ap);
    return ax_buf_printf(&f->warnings, "%s\n", text);
}

static enum ax_status add_eot(struct ax_format *f, const char *token) {
    const struct ax_format_chat *chat = f->o.chat;
    const char *eos = ax_tokenizer_special(f->tok, AX_EOS);
    const bool is_eos = eos && strcmp(eos, token) == 0;
    if (!ax_chat_has(chat, token) && !(is_eos && ax_chat_has(chat, "eos_token")))
        return warn_user(
            f, "eot_tokens: \"%s\" does not appear in the chat template, so it is ignored", token);
    struct ax_encoding e = {0};
    enum ax_status st = ax_format_encode(f, (struct ax_text){token, strlen(token)}, false, &e);
    if (st == AX_OK && e.n != 1)
        st = ax_error(AX_ERR_CONFIG,
                      "eot_tokens: \"%s\" is %zu tokens; add it under `tokens:`, or rename an "
                      "unused token under `added_tokens_overrides:`",
                      token, e.n);
    if (st == AX_OK && is_eos && chat->train_on_eos != chat->train_on_eot)
        st = ax_error(
            AX_ERR_CONFIG,
            "eot_tokens contains the EOS token \"%s\", so train_on_eos and train_on_eot must "
            "be the same",
            token);
    if (st == AX_OK)
        st = add_end(f, e.ids[0]);
    ax_encoding_free(&e);
    return st;
}

enum ax_status ax_chat_check_generation(const struct ax_format *f) {
    const struct ax_format_chat *chat = f->o.chat;
    if (ax_template_has_generation(chat->template) &&
        (!chat->tool_use || ax_template_has_generation(chat->tool_use)))
        return AX_OK;
    return ax_error(AX_ERR_CONFIG, "the chat template has no {%% generation %%} blocks, so they "
                                   "cannot select the tokens that are trained on");
}

static enum ax_status chat_init(struct ax_format *f) {
    const struct ax_format_chat *chat = f->o.chat;
    f->eos_is_end = f->n_ends > 0;
    for (size_t i = 0; i < chat->n_eot_tokens; i++)
        AX_TRY(add_eot(f, chat->eot_tokens[i]));
    const char *eos = ax_tokenizer_special(f->tok, AX_EOS);
    if (chat->n_eot_tokens == 0 && eos) {
        AX_TRY(add_end(f, f->eos)); /* by default, EOS ends a turn */
        if (!ax_chat_has(chat, eos) && !ax_chat_has(chat, "eos_token"))
            AX_TRY(warn_user(
                f,
                "the EOS token \"%s\" does not appear in the chat template, so the end of a turn "
                "is not trained on; set eot_tokens to the token that ends a turn",
                eos));
    }
    return chat->by_generation ? ax_chat_check_generation(f) : AX_OK;
}

/* The first end among the tokens of `text`. */
static enum ax_status first_end(const struct ax_format *f, const char *text, int32_t *id) {
    struct ax_encoding e = {0};
    const enum ax_status st = ax_format_encode(f, (struct ax_text){text, strlen(text)}, false, &e);
    for (size_t i = 0; st == AX_OK && i < e.n && *id == AX_NO_TOKEN; i++)
        if (ax_format_is_end(f, e.ids[i]))
            *id = e.ids[i];
    ax_encoding_free(&e);
    return st;
}

enum ax_status ax_format_answer_end(const struct ax_format *f, int32_t *id) {
    static const char answer[] = "This is an answer";
    struct ax_template_output out = {0};
    *id = AX_NO_TOKEN;
    if (!f->o.chat)
        return AX_OK;
    const struct ax_conversation c = {.messages = json_pack("[{s:s, s:s}, {s:s, s:s}]", "role",
                                                            "user", "content", "Answer", "role",
                                                            "assistant", "content", answer),
                                      .n = 2};
    if (!c.messages)
        return ax_error(AX_ERR_NOMEM, "out of memory for a conversation");
    enum ax_status st = ax_chat_render(f, &c, &(struct ax_chat_render){.n = 2}, &out);
    json_decref(c.messages);
    if (st == AX_ERR_DATA) { /* a template that refuses such a conversation */
        ax_error_clear();
        return AX_OK;
    }
    const char *at = st == AX_OK ? strstr(out.text, answer) : NULL;
    if (at)
        st = first_end(f, at + strlen(answer), id);
    ax_template_output_free(&out);
    return st;
}

/* ---- a record ---- */

static enum ax_status mask(const struct ax_format *f, struct ax_format_work *w,
                           const struct ax_conversation *c, const struct ax_template_output *out) {
    const size_t n = w->full.n;
    if (n > w->cap_labels) {
        AX_TRY(ax_regrow(&w->labels, 0, n, sizeof *w->labels));
        w->cap_labels = n;
    }
    const bool all = !f->o.type && !f->o.chat->by_generation; /* see own_record in format.c */
    for (size_t i = 0; i < n; i++)
        w->labels[i] = all ? w->full.ids[i] : AX_NO_LABEL;
    if (all)
        return AX_OK;
    if (!f->o.chat->by_generation)
        return mask_turns(f, w, c, &(struct ax_text){out->text, out->len}, w->labels);
    ax_chat_mask_generation(w, out, w->labels);
    return AX_OK;
}

static bool is_learned(const struct ax_format *f, const struct ax_conversation *c, size_t i) {
    const char *role = json_string_value(json_object_get(json_array_get(c->messages, i), "role"));
    const bool by_turn = f->o.type && !f->o.chat->by_generation;
    return by_turn ? c->turns[i].train : strcmp(role, "assistant") == 0;
}

/* Templates often write the reasoning of the last answer only. Each is searched for after the one
 * before it, as they may be equal. */
static bool lacks_reasoning(const struct ax_format *f, const struct ax_conversation *c,
                            const struct ax_template_output *out) {
    const char *at = out->text, *end = out->text + out->len;
    bool lacks = false;
    for (size_t i = 0; i < c->n && !lacks; i++) {
        const struct ax_text t = ax_message_reasoning(f, json_array_get(c->messages, i));
        if (!is_learned(f, c, i))
            continue;
        const char *found = t.n > 0 ? memmem(at, (size_t)(end - at), t.s, t.n) : at;
        lacks = c->turns[i].lost_thought || !found;
        at = found ? found + t.n : at;
    }
    return lacks;
}

static enum ax_status render_and_mask(const struct ax_format *f, struct ax_format_work *w,
                                      const struct ax_conversation *c,
                                      struct ax_example_list *out) {
    static const struct ax_encode_options o = {.spans = true};
    struct ax_template_output text = {0};
    enum ax_status st;
    w->full.n = 0;
    AX_TRY_GOTO(
        ax_chat_render(f, c, &(struct ax_chat_render){.n = c->n, .lost = &w->oddities}, &text), st,
        done);
    if (lacks_reasoning(f, c, &text))
        w->oddities |= 1U << AX_ODD_THOUGHT;
    AX_TRY_GOTO(ax_tokenizer_encode(f->tok, text.text, text.len, &o, &w->full), st, done);
    AX_TRY_GOTO(mask(f, w, c, &text), st, done);
    st = ax_example_list_add(out, w->full.ids, w->labels, w->full.n, false);
done:
    ax_template_output_free(&text);
    return st;
}

/* Some turn that is learned from, or if there is none, some turn has text. An empty one among others
 * is an oddity. */
static enum ax_status check_text(const struct ax_format *f, const struct ax_conversation *c) {
    bool any = false, empty = true, all_empty = true;
    for (size_t i = 0; i < c->n; i++) {
        const bool learned = is_learned(f, c, i);
        const bool is_empty = ax_message_is_empty(f, json_array_get(c->messages, i));
        any = any || learned;
        empty = empty && (!learned || is_empty);
        all_empty = all_empty && is_empty;
    }
    if ((!any || !empty) && !all_empty)
        return AX_OK;
    return ax_chat_is_empty(f, c, f->o.chat->field_messages,
                            any ? "the answer is empty" : "the messages are empty");
}

static enum ax_status chat_record(const struct ax_format *f, struct ax_format_work *w,
                                  json_t *record, struct ax_origin origin,
                                  struct ax_example_list *out) {
    struct ax_conversation c;
    enum ax_status st = ax_conversation_read(&c, f, record);
    w->oddities |= c.oddities;
    for (size_t i = 0; st == AX_OK && i < c.n; i++)
        w->oddities |= c.turns[i].opts_out && is_learned(f, &c, i) ? 1U << AX_ODD_FLAG : 0;
    if (st == AX_OK)
        st = check_text(f, &c);
    if (st == AX_OK)
        st = render_and_mask(f, w, &c, out);
    const size_t before = out->n;
    ax_conversation_free(&c);
    AX_TRY(st);
    AX_TRY(ax_example_list_end(out, origin));
    return out->n == before ? AX_OK : ax_topk_chat(f, record, out, before);
}

const struct ax_format_type ax_format_type_chat = {"chat_template", false, false, chat_init,
                                                   chat_record};

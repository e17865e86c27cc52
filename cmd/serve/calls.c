/* Calls in answers. A stream sends calls when the turn has ended: until then it holds back what may belong
 * to one, so that content and calls are those of the whole answer. */
#include <ctype.h>
#include <stdint.h>
#include <string.h>

#include "base/rng.h"
#include "cmd/serve/engine.h"

#define CALL_ID 24 /* letters and digits of an id; Mistral's templates want nine in all */

static bool reads_calls(const struct ax_serve_choice *c) {
    return c->job->r.tools && c->job->r.tool_choice != AX_TOOLS_NONE;
}

/* ---- what waits ---- */

/* Where the text begins that is, or may become, the mark; 0 for an empty one. */
static size_t find_mark(const struct ax_buf *text, const char *mark) {
    const size_t n = strlen(mark);
    const char *found = text->len > 0 ? memmem(text->data, text->len, mark, n) : NULL;
    if (found)
        return (size_t)(found - text->data);
    for (size_t k = n - 1 < text->len ? n - 1 : text->len; k > 0; k--)
        if (memcmp(text->data + text->len - k, mark, k) == 0)
            return text->len - k;
    return text->len;
}

/* End of the content before calls, if calls begin where they may. */
static size_t content_end(const struct ax_serve_choice *c) {
    const struct ax_tool_format *f = c->job->r.model->tools->format;
    size_t end = c->text.len;
    if (c->call_at < end)
        end = c->call_at;
    const char *mark = f->open ? f->open : f->begin;
    if (end > 0) {
        const size_t at = find_mark(&c->text, mark);
        end = at < end ? at : end;
    }
    while (end > 0 && isspace((unsigned char)c->text.data[end - 1]))
        end--;
    return end;
}

size_t ax_serve_calls_hold(const struct ax_serve_choice *c) {
    return reads_calls(c) && !c->finish ? content_end(c) : c->text.len;
}

/* ---- calls of an ended answer ---- */

static json_t *new_id(const struct ax_tool_format *f) {
    static const char alphabet[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    unsigned char random[CALL_ID];
    char text[CALL_ID + 1] = {0};
    const size_t n = f->short_ids ? 9 : CALL_ID;
    if (ax_random_bytes(random, sizeof random) != AX_OK)
        return NULL;
    for (size_t i = 0; i < n; i++)
        text[i] = alphabet[random[i] % (sizeof alphabet - 1)];
    return json_sprintf("%s%s", f->short_ids ? "" : "call_", text);
}

/* A call as the protocol has it: with an id, and arguments as text. NULL: no memory. */
static json_t *call_of(const struct ax_tool_format *f, const json_t *call) {
    const json_t *function = json_object_get(call, "function"),
                 *arguments = json_object_get(function, "arguments");
    json_t *id = json_object_get(call, "id");
    char *text = json_dumps(arguments, JSON_ENCODE_ANY);
    json_t *out = json_pack("{so ss s{sO ss}}", "id", id ? json_incref(id) : new_id(f), "type",
                            "function", "function", "name", json_object_get(function, "name"),
                            "arguments", text ? text : "");
    ax_free_hook(text);
    return text ? out : NULL;
}

static enum ax_status take_calls(struct ax_serve_choice *c, const json_t *calls) {
    const struct ax_serve_request *r = &c->job->r;
    const struct ax_tool_format *f = c->job->r.model->tools->format;
    const size_t n = r->parallel_calls ? json_array_size(calls) : 1;
    c->calls = json_array();
    for (size_t i = 0; i < n; i++)
        if (!c->calls || json_array_append_new(c->calls, call_of(f, json_array_get(calls, i))) != 0)
            return ax_error(AX_ERR_NOMEM, "out of memory for a call");
    const size_t end = content_end(c);
    c->text.len = end > c->sent_text ? end : c->sent_text;
    if (r->tool_choice != AX_TOOLS_NAMED)
        c->finish = "tool_calls";
    return AX_OK;
}

/* Names that no tool has are the caller's to refuse, as what a model writes is never hidden. */
static enum ax_status read_turn(struct ax_serve_choice *c, const struct ax_buf *text,
                                const char *owned) {
    const struct ax_serve_request *r = &c->job->r;
    const struct ax_serve_model *m = c->job->r.model;
    const struct ax_tool_text t = {.s = text->data,
                                   .n = text->len,
                                   .thinks = r->thinks,
                                   .tokenizer = m->side->tokenizer,
                                   .owned = (const unsigned char *)owned};
    struct ax_tool_turn turn;
    AX_TRY(ax_tool_read(m->tools->format, &t, r->tools, &turn));
    const enum ax_status st = json_array_size(turn.calls) > 0 ? take_calls(c, turn.calls) : AX_OK;
    ax_tool_turn_free(&turn);
    return st;
}

enum ax_status ax_serve_calls_read(struct ax_serve_choice *c) {
    struct ax_buf text = {0}, owned = {0};
    if (!reads_calls(c) || c->calls || c->read || strcmp(c->finish, "stop") != 0)
        return AX_OK;
    c->read = true;
    /* without the token that ended the turn, if one did */
    const int64_t n = c->n_tokens - !(c->stop_text || c->complete);
    enum ax_status st =
        ax_tool_decode(c->job->r.model->side->tokenizer, c->tokens, (size_t)n, &text, &owned);
    if (st == AX_OK)
        st = read_turn(c, &text, owned.data);
    ax_buf_free(&text);
    ax_buf_free(&owned);
    return st;
}

/* Conversations: read the record, render it, tokenize the text, mask untrained tokens. Reading
 * order: chat_turns.c, this file, chat_mask.c, chat_find.c, tools.c (what the template leaves out). */
#include <string.h>

#include "data/records/format/chat_mask.h"
#include "data/records/format/topk.h"

/* ---- making the format ---- */

static enum ax_status add_end(struct ax_format *f, int32_t id) {
    AX_TRY(ax_regrow(&f->ends, f->n_ends, f->n_ends + 1, sizeof *f->ends));
    f->ends[f->n_ends++] = id;
    return AX_OK;
}

static enum ax_status add_eot(struct ax_format *f, const char *token) {
    const struct ax_format_chat *chat = f->o.chat;
    const char *eos = ax_tokenizer_special(f->tok, AX_EOS);
    const bool is_eos = eos && strcmp(eos, token) == 0;
    if (!ax_template_has(chat->template, token) &&
        !(is_eos && ax_template_has(chat->template, "eos_token")))
        return ax_format_warn(
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
    if (ax_template_has_generation(f->o.chat->template))
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
        if (!ax_template_has(chat->template, eos) && !ax_template_has(chat->template, "eos_token"))
            AX_TRY(ax_format_warn(
                f,
                "the EOS token \"%s\" does not appear in the chat template, so the end of a turn "
                "is not trained on; set eot_tokens to the token that ends a turn",
                eos));
    }
    return chat->by_generation ? ax_chat_check_generation(f) : AX_OK;
}

/* ---- a record ---- */

static enum ax_status mask(const struct ax_format *f, struct ax_format_work *w,
                           const struct ax_conversation *c, const struct ax_template_output *out) {
    const size_t n = w->full.n;
    if (n > w->cap_labels) {
        AX_TRY(ax_regrow(&w->labels, 0, n, sizeof *w->labels));
        w->cap_labels = n;
    }
    const bool all = !f->o.type && !f->o.chat->by_generation; /* see own_text.c */
    for (size_t i = 0; i < n; i++)
        w->labels[i] = all ? w->full.ids[i] : AX_NO_LABEL;
    if (all)
        return AX_OK;
    if (!f->o.chat->by_generation)
        return ax_chat_mask_turns(f, w, c, &(struct ax_text){out->text, out->len}, w->labels);
    ax_chat_mask_generation(w, out, w->labels);
    return AX_OK;
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
    const bool by_turn = f->o.type && !f->o.chat->by_generation;
    bool any = false, empty = true, all_empty = true;
    for (size_t i = 0; i < c->n; i++) {
        const json_t *message = json_array_get(c->messages, i);
        const char *role = json_string_value(json_object_get(message, "role"));
        const bool learned = by_turn ? c->turns[i].train : strcmp(role, "assistant") == 0;
        const bool is_empty = ax_message_is_empty(f, message);
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

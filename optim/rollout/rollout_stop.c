/* Strings that end a completion, whichever tokens they are made of. */
#include <string.h>

#include "optim/rollout/rollout.h"

/* As many tokens as the longest string may take, and those that it may begin in. */
static int64_t window_of(const struct ax_rollout_options *o) {
    size_t longest = 0;
    for (int i = 0; i < o->n_stop_strings; i++)
        if (strlen(o->stop_strings[i]) > longest)
            longest = strlen(o->stop_strings[i]);
    return (int64_t)longest + 4;
}

static bool contains(const struct ax_rollout_options *o, const struct ax_buf *text) {
    for (int i = 0; i < o->n_stop_strings; i++)
        if (memmem(text->data, text->len, o->stop_strings[i], strlen(o->stop_strings[i])))
            return true;
    return false;
}

enum ax_status ax_rollout_ends(const struct ax_rollout_options *o, const struct ax_sequence *s,
                               bool *ends) {
    const int64_t window = window_of(o), first = s->n_new > window ? s->n_new - window : 0;
    struct ax_buf text = {0};
    *ends = false;
    if (o->n_stop_strings == 0)
        return AX_OK;
    const enum ax_status st = ax_tokenizer_decode(o->tokenizer, s->tokens + first,
                                                  (size_t)(s->n_new - first), true, &text);
    *ends = st == AX_OK && text.len > 0 && contains(o, &text);
    ax_buf_free(&text);
    return st;
}

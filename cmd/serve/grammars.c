#include "cmd/serve/grammars.h"

#include <string.h>

#include "base/mem.h"

static void free_grammar(struct ax_serve_grammar *g) {
    if (!g)
        return;
    ax_grammar_masks_free(g->masks);
    ax_grammar_free(g->g);
    ax_free(g->text);
    ax_free(g);
}

enum ax_status ax_serve_grammars_open(struct ax_serve_grammars *all) {
    return pthread_mutex_init(&all->lock, NULL) == 0
               ? AX_OK
               : ax_error(AX_ERR_NOMEM, "out of memory for a lock");
}

void ax_serve_grammars_close(struct ax_serve_grammars *all) {
    for (int i = 0; i < AX_SERVE_GRAMMARS; i++)
        free_grammar(all->kept[i]);
    ax_grammar_vocabulary_close(&all->vocabulary);
    pthread_mutex_destroy(&all->lock);
}

enum ax_status ax_serve_grammars_prepare(struct ax_serve_grammars *all,
                                         const struct ax_tokenizer *t, int64_t vocab_size) {
    enum ax_status st = AX_OK;
    pthread_mutex_lock(&all->lock);
    if (!all->opened)
        st = ax_grammar_vocabulary_open(&all->vocabulary, t, vocab_size);
    all->opened = st == AX_OK;
    pthread_mutex_unlock(&all->lock);
    return st;
}

static enum ax_status compile(const struct ax_serve_grammars *all, enum ax_serve_source source,
                              const json_t *given, struct ax_grammar **out) {
    const bool *alone = all->vocabulary.alone;
    switch (source) {
    case AX_SOURCE_CHOICE:
        return ax_grammar_compile_choice(out, given, alone);
    case AX_SOURCE_REGEX:
        if (!json_is_string(given))
            return ax_error(AX_ERR_DATA, "expected the text of an expression");
        return ax_grammar_compile_pattern(out, json_string_value(given), json_string_length(given),
                                          alone);
    default:
        return ax_grammar_compile(out, given, alone);
    }
}

static enum ax_status create_grammar(struct ax_serve_grammars *all, enum ax_serve_source source,
                                     const json_t *given, const char *text,
                                     struct ax_serve_grammar **out) {
    AX_TRY(ax_alloc(out, 1, sizeof **out));
    (*out)->source = source;
    enum ax_status st = compile(all, source, given, &(*out)->g);
    if (st == AX_OK)
        st = ax_grammar_masks_create(&(*out)->masks, (*out)->g, &all->vocabulary);
    if (st == AX_OK)
        st = ax_strdup(&(*out)->text, text);
    if (st == AX_OK)
        return AX_OK;
    free_grammar(*out);
    *out = NULL;
    return st;
}

/* The place of the least recently used of those that nobody uses; −1: all are in use. */
static int oldest(const struct ax_serve_grammars *all) {
    int at = -1;
    for (int i = 0; i < AX_SERVE_GRAMMARS; i++) {
        const struct ax_serve_grammar *g = all->kept[i];
        if (!g)
            return i;
        if (g->users == 0 && (at < 0 || g->used < all->kept[at]->used))
            at = i;
    }
    return at;
}

/* With the lock. */
static enum ax_status find_grammar(struct ax_serve_grammars *all, enum ax_serve_source source,
                                   const json_t *given, const char *text,
                                   struct ax_serve_grammar **out) {
    for (int i = 0; i < AX_SERVE_GRAMMARS; i++) {
        struct ax_serve_grammar *g = all->kept[i];
        if (g && g->source == source && strcmp(g->text, text) == 0) {
            *out = g;
            return AX_OK;
        }
    }
    AX_TRY(create_grammar(all, source, given, text, out));
    const int at = oldest(all);
    if (at >= 0) {
        free_grammar(all->kept[at]);
        all->kept[at] = *out;
    } /* else its last user frees it */
    return AX_OK;
}

enum ax_status ax_serve_grammar_take(struct ax_serve_grammars *all, enum ax_serve_source source,
                                     const json_t *given, struct ax_serve_grammar **out) {
    char *text = json_dumps(given, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text)
        return ax_error(AX_ERR_NOMEM, "out of memory for a grammar");
    pthread_mutex_lock(&all->lock);
    const enum ax_status st = find_grammar(all, source, given, text, out);
    if (st == AX_OK) {
        (*out)->users++;
        (*out)->used = ++all->clock;
    }
    pthread_mutex_unlock(&all->lock);
    ax_free_hook(text);
    return st;
}

static bool is_kept(const struct ax_serve_grammars *all, const struct ax_serve_grammar *g) {
    for (int i = 0; i < AX_SERVE_GRAMMARS; i++)
        if (all->kept[i] == g)
            return true;
    return false;
}

void ax_serve_grammar_release(struct ax_serve_grammars *all, struct ax_serve_grammar *g) {
    if (!g)
        return;
    pthread_mutex_lock(&all->lock);
    if (--g->users == 0 && !is_kept(all, g))
        free_grammar(g);
    pthread_mutex_unlock(&all->lock);
}

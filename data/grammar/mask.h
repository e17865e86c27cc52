/* Which tokens may come next, as bits: computed once for each state, as far as states differ in what may follow
 * within a token, and then kept. */
#ifndef AX_DATA_GRAMMAR_MASK_H
#define AX_DATA_GRAMMAR_MASK_H

#include "data/grammar/grammar.h"
#include "data/grammar/vocabulary.h"

#define AX_GRAMMAR_MASKS 512 /* that are kept; then the oldest makes room */

/* Not for several threads at a time. */
struct ax_grammar_masks;
enum ax_status ax_grammar_masks_create(struct ax_grammar_masks **out, const struct ax_grammar *g,
                                       const struct ax_grammar_vocabulary *v);
void ax_grammar_masks_free(struct ax_grammar_masks *m); /* NULL is fine */
/* *bits: [ax_grammar_words(v->size)], valid until the next call. A state that does not have to end allows at least
 * one. */
enum ax_status ax_grammar_mask(struct ax_grammar_masks *m, const struct ax_grammar_state *s,
                               const uint64_t **bits);

#endif

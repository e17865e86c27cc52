/* Grammars and the masks of their states, kept for the next request that asks for the same. Masks are computed by the
 * engine's thread alone. */
#ifndef AX_CMD_SERVE_GRAMMARS_H
#define AX_CMD_SERVE_GRAMMARS_H

#include <pthread.h>

#include "data/grammar/mask.h"

#define AX_SERVE_GRAMMARS 16 /* that are kept */

/* What a grammar is made of. */
enum ax_serve_source { AX_SOURCE_SCHEMA, AX_SOURCE_CHOICE, AX_SOURCE_REGEX, AX_SOURCES };

/* A grammar, and its masks. */
struct ax_serve_grammar {
    enum ax_serve_source source;
    char *text; /* its source as JSON */
    int users;  /* steps of requests */
    uint64_t used;
    struct ax_grammar *g;
    struct ax_grammar_masks *masks;
};

/* Those of a server. */
struct ax_serve_grammars {
    pthread_mutex_t lock;
    /* under the lock: */
    bool opened;
    struct ax_grammar_vocabulary vocabulary; /* opened for the first request that needs it */
    struct ax_serve_grammar *kept[AX_SERVE_GRAMMARS];
    uint64_t clock;
};
/* On a zeroed one. */
enum ax_status ax_serve_grammars_open(struct ax_serve_grammars *all);
void ax_serve_grammars_close(struct ax_serve_grammars *all);
/* Opens the vocabulary, once; grammars are taken after that. */
enum ax_status ax_serve_grammars_prepare(struct ax_serve_grammars *all,
                                         const struct ax_tokenizer *t, int64_t vocab_size);

/* The grammar of `given`: a schema, a list of texts, or the text of an expression; for one user more. AX_ERR_DATA or
 * AX_ERR_UNSUPPORTED about it. */
enum ax_status ax_serve_grammar_take(struct ax_serve_grammars *all, enum ax_serve_source source,
                                     const json_t *given, struct ax_serve_grammar **out);
/* One user less; NULL is fine. */
void ax_serve_grammar_release(struct ax_serve_grammars *all, struct ax_serve_grammar *g);

#endif

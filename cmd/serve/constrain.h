/* Answers that are held to a JSON schema, and calls that must be made: which tokens of an answer may come next.
 *
 * What an answer is held to is text that it begins with, a value of a grammar, and text that it ends with. Grammars
 * and the masks of their states are kept for the next request with the same schema; masks are computed by the engine's
 * thread alone. */
#ifndef AX_CMD_SERVE_CONSTRAIN_H
#define AX_CMD_SERVE_CONSTRAIN_H

#include <pthread.h>

#include "data/grammar/mask.h"
#include "data/text_side.h"

#define AX_SERVE_GRAMMARS 16 /* that are kept */

/* A schema's grammar, and its masks. */
struct ax_serve_grammar {
    char *schema; /* its text */
    int users;    /* requests */
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
void ax_serve_grammars_close(struct ax_serve_grammars *all);

/* What a request's answers are held to. */
struct ax_serve_constraint {
    struct ax_serve_grammars *all;
    struct ax_serve_grammar *grammar; /* NULL: to nothing */
    struct ax_encoding begin, end;
    uint64_t *bits; /* a mask of one or a few tokens; the engine's thread */
};
struct ax_serve_request;
struct ax_serve_model;
/* Reads response_format, structured_outputs and guided_json, or makes a constraint of tools that must be called. */
enum ax_status ax_serve_read_constraint(struct ax_serve_request *r, const struct ax_serve_model *m);
void ax_serve_constraint_free(struct ax_serve_constraint *c);

/* An answer on its way. */
struct ax_serve_place {
    size_t begun, ended; /* tokens of the constraint's texts that have come */
    struct ax_grammar_state state, next;
    bool broken; /* a token came that may not: the model's numbers are none */
};
enum ax_status ax_serve_place_open(struct ax_serve_place *p, const struct ax_serve_constraint *c);
void ax_serve_place_close(struct ax_serve_place *p);
/* The tokens that may come next; `ends` among them where the value may end. */
enum ax_status ax_serve_place_mask(struct ax_serve_place *p, const struct ax_serve_constraint *c,
                                   const int32_t *ends, int n_ends, const uint64_t **bits);
/* Takes a token that is not one of `ends`. *complete: no other can follow. */
enum ax_status ax_serve_place_step(struct ax_serve_place *p, const struct ax_serve_constraint *c,
                                   int32_t id, bool *complete);

#endif

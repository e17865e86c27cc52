/* Answers that are held to a JSON schema, a choice or an expression, and calls that must be made: which tokens of an
 * answer may come next.
 *
 * What an answer is held to is steps: texts, values of grammars, and texts without some bytes, each with the steps that
 * may follow.
 *
 * Read constrain.c (what requests say), forced_calls.c (calls as steps), steps.c (making steps, and answers on their
 * way), grammars.h (grammars that are kept). */
#ifndef AX_CMD_SERVE_CONSTRAIN_H
#define AX_CMD_SERVE_CONSTRAIN_H

#include "cmd/serve/grammars.h"
#include "data/text_side.h"

enum ax_serve_step_kind {
    AX_STEP_TEXT,  /* these tokens */
    AX_STEP_VALUE, /* a value of the grammar */
    AX_STEP_FREE   /* any text of the constraint's free tokens */
};
/* Steps that follow one step are either texts, none of which begins another one, or a single step of another kind. */
struct ax_serve_step {
    enum ax_serve_step_kind kind;
    struct ax_encoding ids;
    struct ax_serve_grammar *grammar;
    int *next, n_next; /* nothing follows the last step */
};

/* What a request's answers are held to. */
struct ax_serve_constraint {
    struct ax_serve_grammars *all;
    struct ax_serve_step *steps; /* the first is an empty text; none: to nothing */
    int n, cap;
    uint64_t *free; /* tokens without some bytes; NULL: no step needs them */
    uint64_t *bits; /* a mask of a step; the engine's thread */
};
struct ax_serve_request;
struct ax_serve_model;
/* Reads response_format, structured_outputs and its older names, guided_*, or makes a constraint of tools that must be
 * called. */
enum ax_status ax_serve_read_constraint(struct ax_serve_request *r, const struct ax_serve_model *m);
void ax_serve_constraint_free(struct ax_serve_constraint *c);

/* ---- steps.c: making them; `from` is a step that this one follows ---- */

/* Opens the constraint, with its first step; AX_ERR_DATA about `param` if it already has one. */
enum ax_status ax_serve_steps_begin(struct ax_serve_request *r, const struct ax_serve_model *m,
                                    const char *param);
enum ax_status ax_serve_steps_add(struct ax_serve_constraint *c, enum ax_serve_step_kind kind,
                                  int *step);
enum ax_status ax_serve_steps_link(struct ax_serve_constraint *c, int from, int to);
/* Sets the free tokens: those without any of the bytes. */
enum ax_status ax_serve_steps_free_text(struct ax_serve_constraint *c, const char *without);

/* Adds a step for a value of a grammar; AX_ERR_DATA about `param`. */
enum ax_status ax_serve_steps_value(struct ax_serve_request *r, const char *param,
                                    enum ax_serve_source source, const json_t *given, int *step);

/* Makes steps of calls, one of which must be made. forced_calls.c */
enum ax_status ax_serve_force_calls(struct ax_serve_request *r, const struct ax_serve_model *m);

/* ---- an answer on its way ---- */

struct ax_serve_place {
    int at;      /* the step that is read, or whose texts are */
    bool inside; /* it is a value or a free text */
    int like;    /* a text that may follow and begins with what has come of it */
    size_t read; /* tokens of it that have come */
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

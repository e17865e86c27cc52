/* Private to turns*.c: answers that are under way.
 *
 * Data ranks have a range of the answers each, as of sequences (generate_share.c), and see them through to their ends;
 * then all get all (turns_share.c). Ranks of tp and stages have the same answers, of which the first one runs the calls; it
 * tells the others which have ended, before a pass (turns_calls.c). */
#ifndef AX_MODEL_TEXT_TURNS_PARTS_H
#define AX_MODEL_TEXT_TURNS_PARTS_H

#include "data/tools/beside.h"
#include "model/text/turns.h"

/* Calls of an answer that are under way. */
struct ax_turns_calls {
    struct ax_tool_call *list;      /* [n] */
    struct ax_tool_result *results; /* [n] */
    size_t n, n_ended;
};

struct ax_turns {
    struct ax_generator *g;
    struct ax_tools *tools;
    struct ax_tool_beside *beside; /* runs calls of this rank's answers; NULL: another rank does */
    ax_turns_observe *observe;
    bool (*stop_now)(void *ctx); /* the caller's; or NULL */
    void *ctx;
    struct ax_turns_answer *answers; /* [n_all] */
    char **observed;                 /* [n_all] what environments began with; owned; or NULL */
    int64_t n_all, first, n;         /* all; this rank has [first, first + n) */
    struct ax_sequence *seqs;        /* [n] turns that are sampled */
    struct ax_turns_calls *calls;    /* [n] */
    int64_t *ended;                  /* [n] answers whose calls have ended since the last pass */
    struct ax_sequence *joining;     /* turns that begin before the next pass */
    int64_t n_calling, n_open;       /* answers that wait for calls; that are not over */
};

static inline struct ax_turns_answer *ax_turns_own(const struct ax_turns *x, int64_t i) {
    return &x->answers[x->first + i];
}

/* ---- turns_calls.c ---- */

/* Hands the calls of answer i over. */
enum ax_status ax_turns_call(struct ax_turns *x, int64_t i);
/* Lists answers whose calls have ended, in `ended`, after a wait of at most `seconds` for the first one. */
enum ax_status ax_turns_hear(struct ax_turns *x, double seconds, int64_t *n);
void ax_turns_calls_free(struct ax_turns_calls *c);

/* ---- turns_share.c ---- */

/* Adds what an environment began with to the prompt of answer `number` of all; no text: nothing. */
enum ax_status ax_turns_begin_with(struct ax_turns *x, int64_t number, const char *text, size_t n);
/* Gives all ranks all answers. */
enum ax_status ax_turns_share(struct ax_turns *x);

#endif

/* Private to generate*.c: lanes and passes of a generator. */
#ifndef AX_MODEL_GENERATE_GENERATE_LANES_H
#define AX_MODEL_GENERATE_GENERATE_LANES_H

#include "model/generate/generate.h"

/* The cache holds ids[0 … length); the tokens from there to `known` go through the model next. */
struct ax_lane {
    struct ax_sequence *seq; /* NULL: idle */
    int32_t *ids;            /* [cap] */
    int64_t known;
    /* with a repetition penalty: the distinct tokens of ids[0 … known) */
    int32_t *context; /* [cap] */
    int64_t n_context;
    uint64_t *seen; /* bit per token of the vocabulary */
};

enum ax_status ax_lanes_create(struct ax_generator *d);
void ax_lanes_free(struct ax_generator *d);
/* Puts waiting sequences on idle lanes, as long as there is room. */
enum ax_status ax_lanes_admit(struct ax_generator *d);
/* Tokens of a sequence, chosen ones included. */
static inline int64_t ax_sequence_length(const struct ax_sequence *s) {
    return s->n_prompt + s->n_new;
}
/* The sequence length that rope assumes for a lane with this many tokens. The frequencies of
 * dynamic rope depend on the sequence's length once that exceeds max_position_embeddings, so
 * sequences of different lengths share neither passes nor keys. Other rope kinds always use the
 * same length. */
int64_t ax_lane_row_length(const struct ax_generator *d, int64_t known);
/* True if a sequence must compute all its keys again when its row length changes, because keys
 * depend on it: with longrope, at the original length. */
bool ax_lane_remakes(const struct ax_generator *d);
/* Appends a token to the lane. */
void ax_lane_push(struct ax_generator *d, struct ax_lane *l, int32_t id);

/* ---- room ---- */

/* The sequences of a call of ax_generate. */
struct ax_generate_queue {
    int64_t n, n_waiting;
    struct ax_sequence *seqs;
    bool *waiting; /* [n]: this rank's sequences that have not begun or were put back */
};

/* The lane for a sequence, and the lane with which it shares tokens. */
struct ax_lane_place {
    int lane; /* −1: none yet */
    int from;
    int64_t shared;
};

/* Makes n blocks free, if necessary by taking them from idle lanes; false if those do not
 * suffice. */
bool ax_lanes_make_room(struct ax_generator *d, int64_t n);
/* Puts the last of the active sequences back into the queue; its lane becomes idle. */
void ax_lanes_put_back(struct ax_generator *d);

/* ---- a pass: generate.c ---- */

/* A pass on the host: documents of the batch, each a piece of a lane's tokens. */
struct ax_generate_work {
    struct ax_generate_queue queue;
    bool *held;                  /* [blocks], see generate_lanes.c */
    int32_t *tokens, *positions; /* [pass_tokens] */
    int32_t *cu;                 /* [n_seqs + 1] */
    int32_t *lane;               /* [n_seqs]: lane of each document */
    int64_t *n;                  /* [n_seqs]: tokens of each document */
    int32_t *row;                /* [n_seqs]: row of the batch for each row of the logits */
    int64_t n_docs, n_tokens, n_rows;
    int64_t T;          /* n_tokens and padding */
    int64_t row_length; /* sequence length for rope */
};

/* ---- scores: generate_scores.c; all but create do nothing without `scoring` ---- */

enum ax_status ax_generate_scores_create(struct ax_generator *d, struct ax_stack *stack);
void ax_generate_scores_free(struct ax_generator *d);
/* How many bytes of the results the scores of AX_SCORE_PASSES passes take. */
size_t ax_generate_scores_bytes(const struct ax_generator *d);
/* Lists the tokens of the next pass that are to be scored; returns how many windows they take. */
int64_t ax_generate_scores_list(struct ax_generator *d);
/* Scores the listed tokens, in `windows` windows (while planning: any number of rows). */
enum ax_status ax_generate_score(struct ax_generator *d, struct ax_pass *p, int64_t windows);
/* Frees the lanes of scored sequences that have been processed. *full: the next pass's scores may
 * not fit, or AX_SCORE_PASSES passes have gone by without a read. */
void ax_generate_scores_end(struct ax_generator *d, bool *full);
/* Call it after the results have been read: stores scores in their sequences and ends these. */
enum ax_status ax_generate_scores_settle(struct ax_generator *d);
bool ax_generate_scores_pending(const struct ax_generator *d);
void ax_generate_scores_drop(struct ax_generator *d); /* after an error */

/* ---- ranks: generate_ranks.c ---- */

/* A rank's needs in the next pass; after ax_generate_agree, those of all ranks that compute it
 * together. */
struct ax_generate_need {
    int64_t tokens; /* pending tokens, 0: none; afterwards including padding */
    bool stop;      /* a rank was asked to end */
    bool logits;
    int64_t windows; /* windows of scores */
};
enum ax_status ax_generate_agree(struct ax_generator *d, struct ax_generate_need *n);
/* n rounded up to a number of tokens that a pass can have. */
int64_t ax_generate_pad(const struct ax_generator *d, int64_t n);
/* The sequences, out of n, that this data rank computes. */
void ax_generate_deal(const struct ax_generator *d, int64_t n, int64_t *first, int64_t *own);
/* Exchanges results when the data ranks have ended their sequences, so that every rank has all.
 * `before`: the counters before the call. */
enum ax_status ax_generate_share(struct ax_generator *d, int64_t n, struct ax_sequence *seqs,
                                 const struct ax_generate_counters *before);

#endif

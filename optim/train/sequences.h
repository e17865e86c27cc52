/* The sequences of a step: host copies of its micro-batches, kept until its result is known: to name
 * their source records, to evaluate single documents, and to compute the step again. */
#ifndef AX_OPTIM_TRAIN_SEQUENCES_H
#define AX_OPTIM_TRAIN_SEQUENCES_H

#include "optim/train/reference.h"
#include "optim/train/train.h"

struct ax_train_origin {
    const char *file; /* borrowed from the data set */
    uint64_t line;
};

struct ax_train_sequences {
    int64_t cap_tokens, cap_docs; /* per micro-batch */
    int n_batches;
    int32_t *tokens, *labels;         /* [n_batches][cap_tokens] */
    const struct ax_columns *columns; /* the objective's; or NULL */
    size_t width;                     /* width of all columns together */
    uint32_t *values;                 /* [n_batches][columns][cap_tokens][a column's width] */
    bool pairs_share;                 /* pairs share their prompts */
    int reference;                    /* the column with the reference's log-prob; −1: none */
    /* source of the reference's log-probs; set after creation */
    const struct ax_references *references;
    struct ax_document *docs; /* [n_batches][cap_docs] */
    int *n_docs;              /* [n_batches] */
    /* members about all micro-batches of the step: this rank's number m is the step's m·ranks +
     * own */
    int ranks, own;                  /* data ranks; index among them */
    struct ax_train_origin *origins; /* [n_batches·ranks][cap_docs] */
    struct ax_mismatch_of *examples; /* [n_batches·ranks][cap_docs] */
    int *all_docs;                   /* [n_batches·ranks] */
    double kl;                       /* the objective's estimate for the step */
    int64_t *longest; /* [n_batches] tokens of the data ranks' longest micro-batch of this number */
    int64_t n_tokens, n_trained; /* in the step */
    int64_t n_computed;          /* tokens that are computed: not shared, not left out */
    int64_t epoch, index;        /* position of the step's first sequence */
    int64_t n;                   /* sequences in the step */
};
enum ax_status ax_train_sequences_create(struct ax_train_sequences *r, const struct ax_step *s);
void ax_train_sequences_free(struct ax_train_sequences *r);
/* Reads the sequences of the next step and fills the step's batches; starts the next epoch when
 * this one has no more steps. `teacher` is asked for their log-probs, unless NULL; *stopped: a rank was asked to stop
 * meanwhile, and the loader is where it was. */
enum ax_status ax_train_sequences_next(struct ax_train_sequences *r, struct ax_step *s,
                                       const struct ax_train_data *d,
                                       const struct ax_remote_teacher *teacher, bool *stopped);
/* Asks a server for the log-probs of the documents that are in place. */
enum ax_status ax_train_sequences_ask(const struct ax_train_sequences *r, const struct ax_step *s,
                                      const struct ax_remote_teacher *teacher, bool *stopped);
/* Column c of micro-batch m, from its token `at`. */
uint32_t *ax_train_column_at(const struct ax_train_sequences *r, int m, int c, int64_t at);
/* Fills the step's batches again. */
enum ax_status ax_train_sequences_fill(const struct ax_train_sequences *r, struct ax_step *s);

#endif

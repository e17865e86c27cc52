/* `axtrain init`: a configuration that fits a model, a data set and this machine.
 *
 * Reading order: init.c (the command), data.c (type of the records), shape.c (their lengths),
 * fit.c (what fits into memory), write.c (the YAML). */
#ifndef AX_CMD_INIT_INIT_H
#define AX_CMD_INIT_INIT_H

#include "cmd/config/config.h"
#include "data/records/format/recognize.h"
#include "model/arch/arch.h"
#include "optim/losses/objective.h"
#include "model/core/stash.h"

/* ---- type of the records ---- */

/* A way to train on records of a kind. */
struct ax_init_task {
    const char *what;    /* "chat messages" */
    const char *title;   /* "Fine-tuning" */
    const char *keys;    /* lines of a configuration that choose the method */
    const char *command; /* the command that trains */
    double rate;         /* learning rate, relative to that of fine-tuning */
    int64_t epochs;      /* at most */
    bool pairs;          /* a record is two documents */
};

struct ax_init_data {
    const char *path;
    const char
        *sample_by; /* what a record of a text is, with a comment that says why; NULL: no text */
    struct ax_record_shape is;
    const struct ax_init_task *task;
    bool chat;            /* the records hold messages */
    int64_t rows;         /* number of records */
    char *prompt_format;  /* pair: {instruction} formatted by the model's chat template; owned */
    const char *template; /* chat: NULL = the model's own */
    bool has_none;        /* the model has no template */
    char *lost;           /* a sentence on tools that its template leaves out; NULL: none; owned */
    bool replaced;        /* `template` writes them */
};
/* Reads the first records and counts them all. AX_ERR_DATA, with the columns, if there is nothing
 * to train on. */
enum ax_status ax_init_data_read(struct ax_init_data *d, const char *path);
void ax_init_data_free(struct ax_init_data *d);

/* ---- lengths ---- */

struct ax_init_shape {
    int64_t rows;                 /* sampled documents */
    int64_t median, p99, longest; /* tokens */
    double mean;
    int64_t sequence_len;
    int64_t too_long; /* documents among `rows` longer than sequence_len */
    bool cut;         /* too many are: truncates them instead of dropping them */
    bool packing;
    bool pairs;     /* documents come in twos */
    bool evaluates; /* some records are held out */
};
/* Tokenizes the first AX_INIT_SAMPLE records as training would; sets prompt_format and the template, one
 * that writes the records' tools if there is one with the model's EOS. */
#define AX_INIT_SAMPLE 20000
enum ax_status ax_init_shape_measure(struct ax_init_shape *s, struct ax_init_data *d,
                                     const char *model, int64_t max_positions);
/* Sets sequence_len, packing and the figures from lengths in ascending order. */
void ax_init_shape_choose(struct ax_init_shape *s, const uint32_t *lengths, size_t n,
                          int64_t max_positions, bool cut);

/* ---- what fits ---- */

enum ax_init_method { AX_INIT_FULL, AX_INIT_LORA, AX_INIT_QLORA, AX_INIT_METHODS };
extern const char *const ax_init_method_names[AX_INIT_METHODS];

#define AX_INIT_LORA_R 16

struct ax_init_fit {
    enum ax_init_method method;
    enum ax_recompute recompute;
    int64_t micro, accumulate;
    uint64_t available;
    uint64_t need[AX_INIT_METHODS]; /* fewest bytes among the plans tried, per method */
    uint64_t chosen;                /* bytes of the chosen plan */
};
struct ax_init_problem {
    const struct ax_arch *arch;
    const struct ax_objective *objective;
    const struct ax_init_shape *shape;
    int64_t rows_per_step;
    uint64_t available; /* bytes; 0: unknown, anything fits */
};
/* The first method, least recompute and largest micro-batch, in this order, whose plan is within
 * the available bytes. AX_ERR_NOMEM states the smallest requirement. */
enum ax_status ax_init_fit_choose(struct ax_init_fit *f, const struct ax_init_problem *p);

/* ---- the file ---- */

struct ax_init {
    const char *model;
    char *output_dir;
    int64_t parameters;
    struct ax_init_data data;
    struct ax_init_shape shape;
    struct ax_init_fit fit;
    int64_t rows_per_epoch; /* approximate: packed sequences, or documents */
    int64_t rows_per_step;
    int64_t eval_rows; /* 0: too few records to hold any out */
    int64_t epochs;
    double learning_rate;
};
enum ax_status ax_init_put_entry(struct ax_buf *out, const struct ax_init_data *d);
enum ax_status ax_init_put(struct ax_buf *out, const struct ax_init *i);

#endif

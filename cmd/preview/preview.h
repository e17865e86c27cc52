/* The contents of a preview, collected once and printed as text or JSON.
 *
 * Reading order: cmd/preview.c (the command, totals), sequences.c (what a step contains), turns.c (what comes between
 * turns of an answer that calls tools), print.c, json.c. */
#ifndef AX_CMD_PREVIEW_PREVIEW_H
#define AX_CMD_PREVIEW_PREVIEW_H

#include "base/term.h"
#include "cmd/train/data/data.h"
#include "data/text/stop_tokens.h"
#include "data/tools/chat.h"

struct ax_preview_options {
    int64_t step, rows; /* step to show, from 1; number of its sequences */
    bool json, ids, eval;
    enum ax_color_mode color;
};

struct ax_preview_totals {
    bool known; /* false for streams */
    int64_t documents, tokens, trained, longest;
    int64_t rows, padded; /* tokens of the sequences with padding */
    int64_t steps;        /* per epoch on one data rank */
    double efficiency;    /* tokens / padded */
    struct ax_corpus_report dropped;
    int64_t for_evaluation; /* documents moved to the other corpus */
};

struct ax_preview {
    struct ax_setup_data *data;
    const struct ax_config *cfg;
    struct ax_preview_options o;
    struct ax_preview_totals train, eval;
    /* with trl.tools: how answers go on after calls */
    struct ax_tool_chat chats[AX_TOOLS_MOST_ENVIRONMENTS];
    struct ax_stop_tokens stop;
    struct ax_preview_lines {
        char **list;
        size_t n;
    } forms, warnings; /* how CSV and text files are divided */
};

/* Calls look(ctx, p, s) for each sequence of the step to show. AX_ERR_CONFIG if there is no such
 * step, AX_ERR_DATA if a stream contains nothing. */
typedef enum ax_status ax_preview_look(void *ctx, const struct ax_preview *p,
                                       const struct ax_packed_sequence *s);
enum ax_status ax_preview_each(const struct ax_preview *p, ax_preview_look *look, void *ctx);

enum ax_status ax_preview_print(struct ax_preview *p, struct ax_buf *out);
enum ax_status ax_preview_json(struct ax_preview *p, struct ax_buf *out);

/* ids[n] and labels[n] (not shifted) of a piece of a sequence. A prompt has none: what is trained on
 * is sampled. */
struct ax_preview_piece {
    int32_t *ids, *labels;
    size_t n;
    int64_t n_trained;
    char where[512]; /* "FILE:LINE" */
    uint32_t from;   /* the first token's position in its document */
    enum ax_task task;
    const char *role;     /* "chosen", "rejected", "desirable", "undesirable"; NULL for others */
    size_t shared;        /* first tokens that are the same on the other side of the pair */
    const float *margin;  /* [1] of a reward pair; NULL = no such column */
    const float *targets; /* [n], where there is a label; NULL = no such column */
    json_t *record;       /* the record of a prompt; NULL for other examples */
};
enum ax_status ax_preview_piece_open(struct ax_preview_piece *out, const struct ax_preview *p,
                                     const struct ax_packed_sequence *row, int piece);
void ax_preview_piece_close(struct ax_preview_piece *p);

/* With trl.tools, else nothing: how their calls are written. */
enum ax_status ax_preview_turns_open(struct ax_preview *p);
/* A made-up answer with a call of the first tool, up to the next turn; what a model would sample is labeled. */
enum ax_status ax_preview_turns_piece(struct ax_preview_piece *out, const struct ax_preview *p);

#endif

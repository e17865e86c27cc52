/* What a record stores of a teacher's distribution: for each token, the likeliest ids and their
 * log-probs. They become two columns of an example, ids (−1 = none) and log-probs times the
 * temperature at which they were taken; the columns are those of an objective that has a column
 * "target_ids", and their width is how many there may be.
 *
 *   tokens (ids.c)   target_token_ids, target_logprobs: a list per token of input_ids, which describes
 *                    the next token; target_mask (optional): 0 leaves a token's or an entry out
 *   chat (chat.c)    a list per token of the end of the conversation, which describes the token
 *                    itself: {"token": "token_id:ID", "logprob": X}, or log-probs, whose ids are in
 *                    target_token_ids
 *
 * Tokens without a label have none, whatever the record says of them. Formats: axolotl's. */
#ifndef AX_DATA_RECORDS_FORMAT_TOPK_H
#define AX_DATA_RECORDS_FORMAT_TOPK_H

#include "data/records/format/impl.h"

/* A record's lists: not read before ax_topk_put. */
struct ax_topk {
    const char *field;      /* name of the log-probs */
    const json_t *logprobs; /* NULL: the examples have no such columns */
    const json_t *ids;      /* NULL: in `logprobs` */
    const json_t *mask;     /* NULL: none */
    int ids_column, width;
    double temperature;
    int64_t vocab;
};

/* The columns of the format's examples: true if there are targets to read. */
bool ax_topk_wanted(const struct ax_format *f);
/* AX_ERR_CONFIG for a type whose records have none. */
enum ax_status ax_topk_check(const struct ax_format *f);

/* target_logprobs, target_token_ids and target_mask, of n tokens. */
enum ax_status ax_topk_open_tokens(struct ax_topk *t, const struct ax_format *f,
                                   const json_t *record, size_t n);
/* The targets of token i of example `example` from element `row` of the lists; below 0: there is none.
 * AX_ERR_DATA if they are bad, or missing for a label. */
enum ax_status ax_topk_put(const struct ax_topk *t, struct ax_example_list *out, size_t example,
                           size_t i, int64_t row);
/* Adds the lists of a chat, whose tokens are example `example`. */
enum ax_status ax_topk_chat(const struct ax_format *f, const json_t *record,
                            struct ax_example_list *out, size_t example);

#endif

/* What a record stores of a teacher's distribution: for each token, the likeliest ids and their
 * log-probs. They become two columns of an example, ids (−1 = none) and log-probs times the
 * temperature at which they were taken; the columns are those of an objective that has a column
 * "target_ids", and their width is how many there may be.
 *
 *   tokens           target_token_ids, target_logprobs: a list per token of input_ids, which describes
 *                    the next token; target_mask (optional): 0 leaves a token's or an entry out
 *   chat             a list per token of the end of the conversation, which describes the token
 *                    itself: {"token": "token_id:ID", "logprob": X}, or log-probs, whose ids are in
 *                    target_token_ids
 *
 * Tokens without a label have none, whatever the record says of them. Formats: axolotl's. */
#ifndef AX_DATA_RECORDS_FORMAT_TOPK_H
#define AX_DATA_RECORDS_FORMAT_TOPK_H

#include "data/records/format/impl.h"

/* The columns of the format's examples: true if there are targets to read. */
bool ax_topk_wanted(const struct ax_format *f);
/* Reads the targets of a chat, whose tokens are example `example`; AX_ERR_DATA if they are bad, or missing
 * for a label. */
enum ax_status ax_topk_chat(const struct ax_format *f, const json_t *record,
                            struct ax_example_list *out, size_t example);

#endif

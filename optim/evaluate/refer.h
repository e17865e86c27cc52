/* Log-probs of documents by the reference model, which is always the model as the run found it: the
 * base, or the base with the adapter that training starts from. So they are computed once, before
 * the first step, and there is no second model. */
#ifndef AX_OPTIM_EVALUATE_REFER_H
#define AX_OPTIM_EVALUATE_REFER_H

#include "optim/evaluate/evaluate.h"
#include "optim/evaluate/references.h"
#include "parallel/fabric/team.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

/* Where log-probs are kept between runs. Equal on all ranks of the team, except
 * that each host may have its own folder. */
struct ax_reference_store {
    const char *cache;   /* folder */
    const json_t *model; /* identifies the model's numbers, and what computes with them */
    struct ax_team *team;
};

/* Adds the log-probs of the first `rows` sequences of the loader's epoch 0 (0 = all). Computes them
 * in evaluation passes with options `o`, whose `documents` must be set, or reads the same bits if
 * all ranks of the store have them. The loader's position is kept. AX_INTERRUPTED if o->stop
 * returns true. */
enum ax_status ax_references_compute(struct ax_references *r, struct ax_model *m,
                                     struct ax_loader *loader, const struct ax_eval_options *o);

/* Log-probs of a reference on disk: CACHE/KEY/references.safetensors, beside prepared data sets
 * (data/records/pipeline/prepared.h). KEY is a hash of a description of everything that determines the
 * log-probs. The file contains that description in full:
 *
 *   description  U8 [bytes]  compact JSON with sorted keys
 *   documents    I64 [n]     a hash of each document, in the order of the data
 *   logprobs     F32 [n]     the reference's log-prob of each document
 *   crc32c       I64 [1]     CRC-32C of the bytes of the other three, in this order
 *
 * A file appears complete or not at all, and is checked before use. */

#define AX_REFERENCE_FILE "references.safetensors"

struct ax_reference_file {
    const char *cache;         /* folder */
    const json_t *description; /* everything that determines the values */
    const uint64_t *documents; /* [n] */
    size_t n;
};

/* *found = false if there is no file. AX_ERR_DATA if it is corrupted or belongs to something else:
 * then `logprob` [n] is unchanged. */
enum ax_status ax_reference_file_read(const struct ax_reference_file *f, float *logprob,
                                      bool *found);
/* Writes the file unless a valid one is there: of several processes the first one writes. */
enum ax_status ax_reference_file_write(const struct ax_reference_file *f, const float *logprob);

#endif

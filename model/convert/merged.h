/* A model's tensors with an adapter merged into them, row by row, straight from the two files.
 *
 * W' = W + s·B·A, with DoRA m·V/‖V‖ per row for V = W + s·B·A: in double from the files' values,
 * rounded once to the output dtype. Tensors of modules_to_save come from the adapter. Stacked experts
 * [E][in][out] are the rows of one matrix [E·in][out], to which each expert adds Aᵀ·Bᵀ. */
#ifndef AX_MODEL_CONVERT_MERGED_H
#define AX_MODEL_CONVERT_MERGED_H

#include "ckpt/hf/hf.h"
#include "model/arch/arch.h"
#include "model/lora/adapter.h"

struct ax_merged {
    const struct ax_st_entry *model; /* the base model's */
    /* source of W: the same tensor, or a module that the adapter saved in full */
    const struct ax_st_entry *base;
    int64_t rows, cols, r; /* r = 0: nothing is added */
    double scale;
    int64_t group;             /* > 0: each `group` rows have an `a` of their own */
    double *a, *b, *magnitude; /* [r][cols], [rows][r], [rows] or NULL; owned */
    enum ax_dtype dtype;       /* dtype of the output */
    int64_t changed; /* elements written so far that differ from the base's, of one that may */
};

/* Opens the merged form of a base tensor, for a model in dtype; peft NULL: no adapter changes it.
 * AX_ERR_DATA if the adapter's tensors do not fit it. */
enum ax_status ax_merged_open(struct ax_merged *t, const struct ax_arch *arch,
                              const struct ax_st_entry *base, const struct ax_peft *peft,
                              enum ax_dtype dtype);
/* True if it may have other elements than the base's. */
bool ax_merged_differs(const struct ax_merged *t);
/* The same to be written; *t must stay. */
struct ax_st_output ax_merged_output(struct ax_merged *t);
/* True if merging gives a tied base a separate head. */
bool ax_merged_unties(const struct ax_peft *peft);
void ax_merged_close(struct ax_merged *t); /* safe on a zeroed one */
/* Elements [first, first + n) as doubles. */
enum ax_status ax_merged_read(const struct ax_merged *t, int64_t first, int64_t n, double *out);

#endif

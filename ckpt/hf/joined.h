/* Folders that have a matrix of each expert where the family stacks them, as quantized folders of Llama 4, Gemma 4 and
 * Granite 4.0 do (experts.h): MODULE.E.gate_proj.weight, up_proj, down_proj of experts 0, 1, … are read as the stacks. */
#ifndef AX_CKPT_HF_JOINED_H
#define AX_CKPT_HF_JOINED_H

#include "ckpt/tensors/entry.h"

struct ax_joined_stack;
struct ax_hf_joined {
    int n;
    struct ax_st_entry *entries; /* [n], sorted by name; those of no expert are the given ones */
    int n_stacks;
    struct ax_joined_stack *stacks; /* [n_stacks] */
};

/* Entries of the folder `dir`, sorted by name, which the caller keeps; `usual`: ax_hf_keeps_stacks. x->n = 0: none is such a matrix. AX_ERR_DATA: an
 * expert lacks one, or has one of another shape, or two that would be the same of a stack. */
enum ax_status ax_hf_joined_open(struct ax_hf_joined *x, const char *dir, bool usual, int n,
                                 const struct ax_st_entry *given);
void ax_hf_joined_close(struct ax_hf_joined *x); /* safe on a zeroed one */

#endif

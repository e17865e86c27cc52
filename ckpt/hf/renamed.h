/* Folders in which tensors have other names than the published ones, as transformers 5 gives them to some when it saves a
 * model that it read: a fine-tuned or re-uploaded one. They are read under the published names. */
#ifndef AX_CKPT_HF_RENAMED_H
#define AX_CKPT_HF_RENAMED_H

#include "ckpt/tensors/entry.h"

struct ax_hf_renamed {
    int n;
    struct ax_st_entry *entries; /* [n], sorted by name */
    char **names;                /* [n]: the new ones, and NULL */
};

/* Makes a list of a folder's n entries, which the caller keeps. x->n = 0: all names are the published ones.
 * The caller closes *x, also after an error. */
enum ax_status ax_hf_renamed_open(struct ax_hf_renamed *x, int n,
                                  const struct ax_st_entry *const *given);
void ax_hf_renamed_close(struct ax_hf_renamed *x); /* safe on a zeroed one */

#endif

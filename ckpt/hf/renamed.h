/* Folders in which tensors have other names than the published ones, which they are read under: those that transformers 5
 * gives to some when it saves a model that it read, a fine-tuned or re-uploaded one; and a head that is the embedding. */
#ifndef AX_CKPT_HF_RENAMED_H
#define AX_CKPT_HF_RENAMED_H

#include "ckpt/tensors/entry.h"

#define AX_HF_EMBEDDING "model.embed_tokens.weight"

struct ax_hf_renamed {
    int n;
    struct ax_st_entry *entries; /* [n], sorted by name */
    char **names;                /* [n]: the new ones, and NULL */
};

/* Makes a list of a folder's n entries, which the caller keeps; `head` becomes the embedding, NULL: none does.
 * x->n = 0: all names are the published ones. The caller closes *x, also after an error. */
enum ax_status ax_hf_renamed_open(struct ax_hf_renamed *x, int n,
                                  const struct ax_st_entry *const *given, const char *head);
void ax_hf_renamed_close(struct ax_hf_renamed *x); /* safe on a zeroed one */

#endif

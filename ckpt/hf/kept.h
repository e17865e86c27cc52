/* What a folder has that a model made from it does not use, such as layers of multi-token prediction or
 * a vision tower: a save contains these tensors bit for bit. */
#ifndef AX_CKPT_HF_KEPT_H
#define AX_CKPT_HF_KEPT_H

#include "ckpt/hf/hf.h"

/* N of a tensor "model.layers.N.…", or without "model."; −1: it belongs to no layer. */
int ax_hf_layer_of(const char *name);

/* Zeroed; or what is added to a save. */
struct ax_hf_kept {
    struct ax_hf hf;
    struct ax_st_output *tensors;
    int n_names;
    char **names; /* of the save's tensors, where the folder spells them in another way */
};
/* Adds the tensors of save->base_dir that are kept to the save, which borrows them, and gives the others
 * that folder's names; nothing if there is no such folder, or not a model is saved. An adapter's get
 * the names that its config wants. */
enum ax_status ax_hf_kept_open(struct ax_hf_kept *k, struct ax_hf_save *save);
void ax_hf_kept_close(struct ax_hf_kept *k);

#endif

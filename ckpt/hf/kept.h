/* Tensors of a folder that a model made from it does not use, such as layers of multi-token
 * prediction or a vision tower: a save contains them bit for bit. */
#ifndef AX_CKPT_HF_KEPT_H
#define AX_CKPT_HF_KEPT_H

#include "ckpt/hf/hf.h"

/* The layer N of a tensor "model.layers.N.…" (or without "model."); −1: it belongs to no layer. */
int ax_hf_layer_of(const char *name);

/* Tensors that are added to a save; zeroed: none. */
struct ax_hf_kept {
    struct ax_hf hf;
    struct ax_st_output *tensors;
    int n_names;
    char **names; /* names of the save's tensors, if the folder spells them differently */
};
/* Adds the kept tensors of save->base_dir to the save, which borrows them, and gives the other
 * tensors the names that they have in that folder. Does nothing if there is no such folder, or if
 * no model is saved. An adapter's tensors get the names that its config expects. */
enum ax_status ax_hf_kept_open(struct ax_hf_kept *k, struct ax_hf_save *save);
void ax_hf_kept_close(struct ax_hf_kept *k);

#endif

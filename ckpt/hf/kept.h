/* Layers of a folder that a model made from it does not use, such as those of multi-token prediction:
 * a save contains their tensors bit for bit. */
#ifndef AX_CKPT_HF_KEPT_H
#define AX_CKPT_HF_KEPT_H

#include "ckpt/hf/hf.h"

/* N of a tensor "model.layers.N.…", or without "model."; −1: it belongs to no layer. */
int ax_hf_layer_of(const char *name);

/* Zeroed; or what is added to a save. */
struct ax_hf_kept {
    struct ax_hf hf;
    struct ax_st_output *tensors;
};
/* Adds the kept layers' tensors of save->base_dir to the save, which borrows them; nothing if there is
 * no such folder, or not a model is saved. */
enum ax_status ax_hf_kept_open(struct ax_hf_kept *k, struct ax_hf_save *save);
void ax_hf_kept_close(struct ax_hf_kept *k);

#endif

/* Weights in Mistral's own form, consolidated*.safetensors: other names than Hugging Face's, and the rows
 * of q and k with the two elements of a rotary pair as neighbors, as in GGUF's files of Llama
 * (ax_gguf_rotary_row). They open under Hugging Face's names, in its order of rows. */
#ifndef AX_CKPT_HF_CONSOLIDATED_H
#define AX_CKPT_HF_CONSOLIDATED_H

#include "base/json.h"
#include "ckpt/tensors/entry.h"

#define AX_HF_CONSOLIDATED       "consolidated.safetensors"
#define AX_HF_CONSOLIDATED_INDEX "consolidated.safetensors.index.json"

struct ax_hf;

struct ax_rotary_rows {
    const struct ax_st_entry *from;
    int64_t head_dim;
};

struct ax_hf_consolidated {
    int n;
    struct ax_st_entry *entries; /* [n], sorted by name; data and names of others are the files' */
    struct ax_rotary_rows *rows; /* [n]; zeroed where rows are in their order */
};

/* The names of such files in a folder, sorted; each and *names are the caller's (ax_free). None: *n = 0. */
enum ax_status ax_hf_consolidated_files(const char *dir, char ***names, int *n);
/* The dtype of the first one's first tensor; unchanged if there is none. */
enum ax_status ax_hf_consolidated_dtype(const char *dir, enum ax_dtype *dtype);
/* If hf has tensors by these names, replaces them; `config` is that of the folder. AX_ERR_UNSUPPORTED
 * names a tensor of another kind of model. */
enum ax_status ax_hf_consolidated_open(struct ax_hf *hf, struct ax_json config);
void ax_hf_consolidated_close(struct ax_hf_consolidated *c); /* NULL: nothing */

#endif

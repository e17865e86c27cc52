/* Shards of a folder without an index, as vLLM reads them (transformers does not): model-00001-of-00003.safetensors to
 * model-00003-of-00003.safetensors. Private to ckpt/. */
#ifndef AX_CKPT_HF_SHARDS_H
#define AX_CKPT_HF_SHARDS_H

#include <stdbool.h>

#include "ckpt/hf/safetensors.h"

struct ax_hf_shards {
    int n;        /* 0: none */
    char **names; /* [n] file names, by number */
};

/* True for the name of shard *number of *n, as far as both are numbers. */
bool ax_hf_is_shard(const char *name, int *number, int *n);
/* Lists a folder's. AX_ERR_DATA: one is missing, or they are of several saves. */
enum ax_status ax_hf_shards_list(struct ax_hf_shards *s, const char *dir);
void ax_hf_shards_free(struct ax_hf_shards *s); /* safe on a zeroed one */

/* files[i] is s->names[i]. AX_ERR_DATA: a tensor is in two of them. */
enum ax_status ax_hf_shards_check(const struct ax_hf_shards *s, const char *dir,
                                  const struct ax_safetensors *files);

#endif

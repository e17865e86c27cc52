/* model.safetensors.index.json: which shard contains which tensor. Private to ckpt/.
 *
 * A sharded folder is opened in this order: parse the entire index (so no name in it is used before
 * all are known to be plain), open the shards it names, compare them with the index. */
#ifndef AX_CKPT_HF_INDEX_H
#define AX_CKPT_HF_INDEX_H

#include "base/text/json.h"
#include "ckpt/hf/safetensors.h"

struct ax_hf_index {
    struct ax_json_doc doc;
    int n_shards;
    const char **shards; /* file names, each once, ascending; borrowed from doc */
};

/* AX_ERR_DATA names the invalid entry of weight_map. */
enum ax_status ax_hf_index_parse(struct ax_hf_index *ix, const char *name, const char *text,
                                 size_t len);
void ax_hf_index_free(struct ax_hf_index *ix); /* safe on a zeroed one */

/* files[i] is the shard ix->shards[i]. Every tensor must be in the shard that weight_map names, and
 * the shards may contain no others, so that none is in two. */
enum ax_status ax_hf_index_check(const struct ax_hf_index *ix, const struct ax_safetensors *files);

#endif

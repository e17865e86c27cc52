/* The shard index: any text gives a list of plain shard names, or an error that names the file;
 * what passes the check against two shards lists exactly their tensors. Nothing stays allocated. */
#include <string.h>

#include "ckpt/hf/index.h"

static const char shard_a[] = "{\"a1\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                              "\"a2\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}";
static const char shard_b[] = "{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}";

/* A shard of two data bytes, in memory. */
static void open_shard(struct ax_safetensors *st, const char *header) {
    static char bytes[512];
    const uint64_t n = strlen(header);
    memcpy(bytes, &n, 8);
    memcpy(bytes + 8, header, n);
    AX_ASSERT(ax_safetensors_parse(st, "shard", bytes, 8 + n + 2) == AX_OK);
}

static void check_shards(const struct ax_hf_index *ix) {
    struct ax_safetensors *files;
    size_t tensors = 0;
    AX_ASSERT(ix->n_shards > 0);
    AX_ASSERT(ax_alloc(&files, (size_t)ix->n_shards, sizeof *files) == AX_OK);
    for (int i = 0; i < ix->n_shards; i++) {
        AX_ASSERT(ax_is_plain_name(ix->shards[i]));
        AX_ASSERT(i == 0 || strcmp(ix->shards[i - 1], ix->shards[i]) < 0);
        if (strcmp(ix->shards[i], "a.st") == 0)
            open_shard(&files[i], shard_a);
        else if (strcmp(ix->shards[i], "b.st") == 0)
            open_shard(&files[i], shard_b);
        tensors += (size_t)files[i].n;
    }
    if (ax_hf_index_check(ix, files) == AX_OK) {
        const struct ax_json map = ax_json_get(ax_json_root(&ix->doc), "weight_map");
        AX_ASSERT(ax_json_size(map) == tensors && tensors > 0);
    } else {
        AX_ASSERT(strncmp(ax_error_text(), "i.json: weight_map", 18) == 0);
    }
    for (int i = 0; i < ix->n_shards; i++)
        ax_safetensors_close(&files[i]);
    ax_free(files);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint64_t live = ax_mem_live_blocks();
    struct ax_hf_index ix;
    if (ax_hf_index_parse(&ix, "i.json", (const char *)data, size) == AX_OK) {
        check_shards(&ix);
    } else {
        AX_ASSERT(strncmp(ax_error_text(), "i.json:", 7) == 0);
        AX_ASSERT(ix.shards == NULL && ix.n_shards == 0);
    }
    ax_hf_index_free(&ix);
    AX_ASSERT(ax_mem_live_blocks() == live);
    return 0;
}

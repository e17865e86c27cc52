/* Reading order: parse (names, then uniqueness), check (index against shards, shards against
 * index). */
#include "ckpt/hf/index.h"

#include <stdlib.h>
#include <string.h>

#define MAX_SHARDS 100000
#define REMEDY                                                                                     \
    "; the index and its files are not of one save: get the folder again, or save the model anew " \
    "(transformers: save_pretrained)"

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static struct ax_json weight_map(const struct ax_hf_index *ix) {
    return ax_json_get(ax_json_root(&ix->doc), "weight_map");
}

/* The file of every tensor, in the order of the map. */
static enum ax_status read_names(struct ax_json map, const char **names) {
    const char *tensor;
    json_t *value;
    json_object_foreach((json_t *)map.v, tensor, value) {
        const struct ax_json where = ax_json_get(map, tensor);
        const char *file;
        AX_TRY(ax_json_str(where, &file));
        if (!ax_is_plain_name(file))
            return ax_json_error(where, "\"%s\" is not a plain file name", file);
        *names++ = file;
    }
    return AX_OK;
}

static enum ax_status parse_map(struct ax_hf_index *ix, struct ax_json map) {
    if (!json_is_object(map.v))
        return ax_json_error(map, "expected an object of tensor → file");
    const size_t n = ax_json_size(map);
    if (n == 0)
        return ax_json_error(map, "names no tensor");
    AX_TRY(ax_alloc(&ix->shards, n, sizeof *ix->shards));
    AX_TRY(read_names(map, ix->shards));
    qsort(ix->shards, n, sizeof *ix->shards, by_text);
    size_t kept = 1;
    for (size_t i = 1; i < n; i++)
        if (strcmp(ix->shards[i], ix->shards[kept - 1]) != 0)
            ix->shards[kept++] = ix->shards[i];
    if (kept > MAX_SHARDS)
        return ax_json_error(map, "names %zu shards; at most %d are supported", kept, MAX_SHARDS);
    ix->n_shards = (int)kept;
    return AX_OK;
}

enum ax_status ax_hf_index_parse(struct ax_hf_index *ix, const char *name, const char *text,
                                 size_t len) {
    *ix = (struct ax_hf_index){0};
    AX_TRY(ax_json_parse(&ix->doc, name, text, len));
    const enum ax_status st = parse_map(ix, weight_map(ix));
    if (st != AX_OK)
        ax_hf_index_free(ix);
    return st;
}

void ax_hf_index_free(struct ax_hf_index *ix) {
    ax_free(ix->shards);
    ax_json_free(&ix->doc);
    *ix = (struct ax_hf_index){0};
}

/* The shard called `file`, which is one of ix->shards. */
static int shard_of(const struct ax_hf_index *ix, const char *file) {
    const char **found =
        bsearch(&file, ix->shards, (size_t)ix->n_shards, sizeof *ix->shards, by_text);
    return (int)(found - ix->shards);
}

static enum ax_status check_listed(const struct ax_hf_index *ix, int shard,
                                   const struct ax_safetensors *file) {
    const struct ax_json map = weight_map(ix);
    for (int k = 0; k < file->n; k++) {
        const json_t *listed = json_object_get(map.v, file->entries[k].name);
        if (!listed || strcmp(json_string_value(listed), ix->shards[shard]) != 0)
            return ax_json_error(map, "does not list tensor %s of %s" REMEDY, file->entries[k].name,
                                 ix->shards[shard]);
    }
    return AX_OK;
}

enum ax_status ax_hf_index_check(const struct ax_hf_index *ix, const struct ax_safetensors *files) {
    const struct ax_json map = weight_map(ix);
    const char *tensor;
    json_t *value;
    json_object_foreach((json_t *)map.v, tensor, value) {
        const char *file = json_string_value(value);
        if (!ax_safetensors_find(&files[shard_of(ix, file)], tensor))
            return ax_json_error(ax_json_get(map, tensor), "%s has no tensor of this name" REMEDY,
                                 file);
    }
    for (int i = 0; i < ix->n_shards; i++)
        AX_TRY(check_listed(ix, i, &files[i]));
    return AX_OK;
}

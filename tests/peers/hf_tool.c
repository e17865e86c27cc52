/* What tests/peers/check_safetensors.py drives: our reader and writer, on files it makes.
 *
 *   hf_tool list FILE...             one line of JSON per file: {"error": TEXT} or
 *                                    {"tensors": [[NAME, DTYPE, SHAPE, CRC32C of the bytes], …]}
 *   hf_tool copy SRC DST MAX_SHARD   reads a model folder and writes it again */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash/hash.h"
#include "ckpt/hf/hf.h"

static json_t *describe(const struct ax_st_entry *e) {
    json_t *shape = json_array();
    for (int d = 0; d < e->ndim; d++)
        json_array_append_new(shape, json_integer(e->shape[d]));
    return json_pack("[ssoI]", e->name, ax_dtype_info(e->dtype)->safetensors, shape,
                     (json_int_t)ax_crc32c(0, e->data, e->bytes));
}

static void list(const char *path) {
    struct ax_safetensors st;
    json_t *line = json_object(), *tensors = json_array();
    if (ax_safetensors_open(&st, path) == AX_OK) {
        for (int i = 0; i < st.n; i++)
            json_array_append_new(tensors, describe(&st.entries[i]));
        json_object_set(line, "tensors", tensors);
    } else {
        json_object_set_new(line, "error", json_string(ax_error_text()));
    }
    ax_safetensors_close(&st);
    char *text = json_dumps(line, JSON_COMPACT);
    puts(text);
    ax_free_hook(text);
    json_decref(tensors);
    json_decref(line);
}

static enum ax_status fill(void *ctx, int64_t first, int64_t n, void *out) {
    const struct ax_st_entry *e = ctx;
    const size_t size = ax_dtype_size(e->dtype);
    memcpy(out, (const char *)e->data + (size_t)first * size, (size_t)n * size);
    return AX_OK;
}

static enum ax_status copy(const char *src, const char *dst, int64_t max_shard) {
    struct ax_hf hf;
    struct ax_st_output *t = NULL;
    AX_TRY(ax_hf_open(&hf, src));
    const int n = ax_hf_count(&hf);
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&t, (size_t)n, sizeof *t), st, done);
    for (int i = 0; i < n; i++) {
        const struct ax_st_entry *e = ax_hf_at(&hf, i);
        t[i] = (struct ax_st_output){
            .name = e->name, .dtype = e->dtype, .ndim = e->ndim, .fill = fill, .ctx = (void *)e};
        memcpy(t[i].shape, e->shape, sizeof e->shape);
    }
    const struct ax_hf_save save = {.dir = dst,
                                    .base_dir = src,
                                    .dtype = n > 0 ? t[0].dtype : AX_F32,
                                    .max_shard_bytes = max_shard,
                                    .n = n,
                                    .tensors = t};
    AX_TRY_GOTO(ax_hf_write(&save), st, done);
done:
    ax_free(t);
    ax_hf_close(&hf);
    return st;
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "list") == 0) {
        for (int i = 2; i < argc; i++)
            list(argv[i]);
        return 0;
    }
    if (argc == 5 && strcmp(argv[1], "copy") == 0) {
        if (copy(argv[2], argv[3], atoll(argv[4])) == AX_OK)
            return 0;
        fprintf(stderr, "%s\n", ax_error_text());
        return 1;
    }
    fprintf(stderr, "usage: hf_tool list FILE... | hf_tool copy SRC DST MAX_SHARD\n");
    return 2;
}

/* Quantized folders: any quantization_config and any tensors give matrices all of whose elements, and codes, can be
 * read, also as stacks of experts, or an error that names the config or the folder; nothing stays allocated. An input is JSON: "config",
 * "tensors" (a header of safetensors), "fill", from which the data's bytes are made, and "texts": what tensors
 * have instead, JSON or, of a list, its bytes. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/hf/compressed.h"
#include "ckpt/hf/joined.h"
#include "ckpt/hf/safetensors.h"
#include "tests/fuzz/mutate.h"

#define MAX_DATA 4096

static void read_codes(const struct ax_st_entry *e) {
    unsigned char *codes;
    float *scales;
    AX_ASSERT(e->codes->block > 0 && e->numel % e->codes->block == 0);
    AX_ASSERT(ax_alloc(&codes, (size_t)e->numel, 1) == AX_OK);
    AX_ASSERT(ax_alloc(&scales, (size_t)(e->numel / e->codes->block), sizeof *scales) == AX_OK);
    AX_ASSERT(e->codes->read(e->ctx, 0, e->numel, codes, scales) == AX_OK);
    ax_free(scales);
    ax_free(codes);
}

static void read_all(const struct ax_st_entry *entries, int n) {
    for (int i = 0; i < n; i++) {
        const struct ax_st_entry *e = &entries[i];
        double *v;
        AX_ASSERT(e->numel >= 0 && e->numel <= 2 * MAX_DATA);
        AX_ASSERT(ax_alloc(&v, (size_t)e->numel + 1, sizeof *v) == AX_OK);
        AX_ASSERT(ax_st_read(e, 0, e->numel, AX_F64, v) == AX_OK);
        if (e->codes)
            read_codes(e);
        ax_free(v);
    }
}

static void open_joined(const struct ax_compressed *c) {
    struct ax_hf_joined x;
    if (ax_hf_joined_open(&x, "dir", true, c->n, c->entries) == AX_OK)
        read_all(x.entries, x.n);
    else
        AX_ASSERT(strncmp(ax_error_text(), "dir: ", 5) == 0 && x.entries == NULL);
    ax_hf_joined_close(&x);
}

static void open_folder(const struct ax_compressed_formats *f, const struct ax_safetensors *st) {
    const struct ax_st_entry **entries;
    struct ax_compressed c;
    AX_ASSERT(ax_alloc(&entries, (size_t)st->n, sizeof *entries) == AX_OK);
    for (int i = 0; i < st->n; i++)
        entries[i] = &st->entries[i];
    if (ax_compressed_open(&c, "dir", f, st->n, entries) == AX_OK) {
        read_all(c.entries, c.n);
        open_joined(&c);
    } else {
        AX_ASSERT(strncmp(ax_error_text(), "dir: ", 5) == 0 && c.entries == NULL);
    }
    ax_compressed_close(&c);
    ax_free(entries);
}

/* The end of the last tensor that the header has, as far as there is room. */
static size_t data_bytes(json_t *header) {
    size_t end = 0;
    const char *name;
    json_t *tensor;
    json_object_foreach(header, name, tensor) {
        const json_t *at = json_array_get(json_object_get(tensor, "data_offsets"), 1);
        const json_int_t n = json_integer_value(at);
        if (n > 0 && n <= MAX_DATA && (size_t)n > end)
            end = (size_t)n;
    }
    return end;
}

/* Bytes of a tensor, which begins at `at`: those of a list, or of the value's text, with spaces behind it. */
static void put_text(const json_t *v, unsigned char *at, size_t n) {
    char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    AX_ASSERT(text);
    const size_t len = strlen(text);
    for (size_t i = 0; i < n; i++)
        at[i] = json_is_array(v) ? (unsigned char)json_integer_value(json_array_get(v, i))
                : i < len        ? (unsigned char)text[i]
                                 : ' ';
    ax_free(text);
}

/* The texts come into the places of their tensors in n bytes of data. */
static void put_texts(json_t *texts, const json_t *header, unsigned char *data, size_t n) {
    const char *name;
    json_t *v;
    json_object_foreach(texts, name, v) {
        const json_t *at = json_object_get(json_object_get(header, name), "data_offsets");
        const json_int_t first = json_integer_value(json_array_get(at, 0));
        const json_int_t end = json_integer_value(json_array_get(at, 1));
        if (first >= 0 && first < end && (size_t)end <= n)
            put_text(v, data + first, (size_t)(end - first));
    }
}

static void with_tensors(const struct ax_compressed_formats *f, json_t *root) {
    json_t *header = json_object_get(root, "tensors");
    const unsigned fill = (unsigned)json_integer_value(json_object_get(root, "fill"));
    char *text = json_dumps(header, JSON_COMPACT);
    const uint64_t len = text ? strlen(text) : 0;
    const size_t n = data_bytes(header);
    unsigned char *file;
    AX_ASSERT(text && ax_alloc(&file, 8 + len + n, 1) == AX_OK);
    memcpy(file, &len, 8);
    memcpy(file + 8, text, len);
    for (size_t i = 0; i < n; i++)
        file[8 + len + i] = (unsigned char)((i * fill) & (i % 4 == 3 ? 63 : 255)); /* positive */
    put_texts(json_object_get(root, "texts"), header, file + 8 + len, n);
    struct ax_safetensors st;
    if (ax_safetensors_parse(&st, "f.st", file, 8 + len + n) == AX_OK)
        open_folder(f, &st);
    ax_safetensors_close(&st);
    ax_free(file);
    ax_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint64_t live = ax_mem_live_blocks();
    struct ax_json_doc doc;
    setenv("AXTRAIN_NONFINITE", "allow", 1); /* any bytes are scales here */
    if (ax_json_parse(&doc, "c.json", (const char *)data, size) == AX_OK) {
        const struct ax_json root = ax_json_root(&doc), config = ax_json_get(root, "config");
        struct ax_number_format inputs;
        struct ax_compressed_formats f;
        ax_compressed_inputs(config, &inputs);
        (void)ax_compressed_unfollowed(config);
        if (ax_compressed_parse(config, &f) != AX_OK)
            AX_ASSERT(strncmp(ax_error_text(), "c.json: ", 8) == 0);
        else if (json_is_object(json_object_get(doc.root, "tensors")))
            with_tensors(&f, doc.root);
        ax_json_free(&doc);
    }
    AX_ASSERT(ax_mem_live_blocks() == live);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    return fuzz_text_mutate(data, size, max_size, seed);
}

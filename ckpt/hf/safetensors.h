/* safetensors files: [u64 little-endian header length][JSON header][data].
 *
 * Reading maps the file and checks every bound before use: header length ≤ 100 MB and within the
 * file, valid JSON without duplicate names, known dtypes, ≤ 8 dimensions, shape × size = range
 * without overflow, ranges that cover the data exactly, without overlap or gap. Each error names
 * file, tensor and byte. */
#ifndef AX_CKPT_HF_SAFETENSORS_H
#define AX_CKPT_HF_SAFETENSORS_H

#include "base/io.h"
#include "ckpt/hf/checksums.h"
#include "ckpt/hf/delta.h"
#include "ckpt/tensors/entry.h"

struct ax_safetensors {
    char *path;
    struct ax_mapping map;
    int n;
    struct ax_st_entry *entries; /* sorted by name */
};

enum ax_status ax_safetensors_open(struct ax_safetensors *st, const char *path);
/* The same checks on bytes in memory (borrowed); `name` for messages. */
enum ax_status ax_safetensors_parse(struct ax_safetensors *st, const char *name, const void *bytes,
                                    size_t len);
void ax_safetensors_close(struct ax_safetensors *st);
const struct ax_st_entry *ax_safetensors_find(const struct ax_safetensors *st, const char *name);

/* A dense tensor to write, or this rank's part of one: the ctx of ax_st_fill. */
struct ax_st_source {
    struct ax_tensor value;
    struct ax_delta delta; /* zeroed: unchanged */
    enum ax_dtype dtype;   /* dtype in the file */
    struct ax_queue *q;    /* reads the value; NULL: it is in the host's memory */
};
enum ax_status ax_st_fill(void *source, int64_t first, int64_t n, void *out);
/* One file, tensors in the given order, metadata {"format": "pt"}, header padded to 8 bytes,
 * fsynced. */
enum ax_status ax_safetensors_write(const char *path, int n, const struct ax_st_output *tensors);

/* The same in two steps, for a file to which several ranks write: one rank creates it; then all
 * ranks write their parts of the tensors, whose list is the same on all of them, and one of them
 * the header. `sums` (may be NULL) gets the file's checksums with zeros for bytes that this rank
 * does not write; ax_sum_list_merge_last combines them. */
enum ax_status ax_safetensors_create(const char *path);
enum ax_status ax_safetensors_write_part(const char *path, int n,
                                         const struct ax_st_output *tensors, bool header,
                                         struct ax_checksums *sums);

#endif

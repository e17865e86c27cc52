/* A tensor in a file, by name: to read (an entry) and to write (an output). What safetensors and
 * GGUF files have in common, and all that their readers see. */
#ifndef AX_CKPT_TENSORS_ENTRY_H
#define AX_CKPT_TENSORS_ENTRY_H

#include "kernels/elements.h"

#define AX_ST_MAX_DIMS 8

struct ax_st_entry {
    char *name;
    enum ax_dtype dtype; /* F64 F32 F16 BF16 I64 I32 I8 U8; BOOL reads as U8 */
    int ndim;
    int64_t shape[AX_ST_MAX_DIMS];
    int64_t numel;
    const void *data; /* in the mapping; may be unaligned for its dtype. NULL: the file contains
                         them in another form, see `read` */
    size_t bytes;     /* of all elements in `dtype` */
    /* Of an entry without data: see struct ax_elements. */
    enum ax_status (*read)(void *ctx, int64_t first, int64_t n, void *out);
    void *ctx;
    const void *stored; /* the file's form, in the mapping */
    size_t stored_bytes;
};

struct ax_elements ax_st_elements(const struct ax_st_entry *e);
/* Elements [first, first + n) as `wanted`. */
enum ax_status ax_st_read(const struct ax_st_entry *e, int64_t first, int64_t n,
                          enum ax_dtype wanted, void *out);
/* Releases the mapping's memory of elements that were read (a hint, see ax_map_drop). Where the
 * elements have another form in the file, only after the last. */
void ax_st_drop(const struct ax_st_entry *e, int64_t first, int64_t n);
/* Of entries sorted by name; NULL: none has it. */
const struct ax_st_entry *ax_st_find(const struct ax_st_entry *entries, int n, const char *name);

/* A tensor to write: elements come from `fill`, in ascending ranges of at most 1 Mi elements. */
struct ax_st_output {
    const char *name;
    enum ax_dtype dtype;
    int ndim;
    int64_t shape[AX_ST_MAX_DIMS];
    /* Writes elements [first, first + n) in `dtype` to out. */
    enum ax_status (*fill)(void *ctx, int64_t first, int64_t n, void *out);
    void *ctx;
};

#endif

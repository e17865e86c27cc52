/* A tensor in a file: to read (an entry) or to write (an output). The interface that safetensors
 * and GGUF files share, and all that users of either see. */
#ifndef AX_CKPT_TENSORS_ENTRY_H
#define AX_CKPT_TENSORS_ENTRY_H

#include "ckpt/tensors/block.h"
#include "kernels/elements.h"

struct ax_st_entry {
    char *name;
    const char *file;    /* name of its file */
    enum ax_dtype dtype; /* F64 F32 F16 BF16 I64 I32 I8 U8; BOOL reads as U8 */
    bool e4m3;           /* the U8 are bits of e4m3 numbers: F8_E4M3 */
    bool e8m0;           /* the U8 are bits of powers of two: F8_E8M0 */
    bool quantized;      /* a quantized folder has codes and scales of it */
    int ndim;
    int64_t shape[AX_ST_MAX_DIMS];
    int64_t numel;
    const void *data; /* in the mapping; may be unaligned for its dtype. NULL if the file stores the
                         elements in another form: see `read` */
    size_t bytes;     /* bytes of all elements in `dtype` */
    /* For an entry without data: see struct ax_elements. */
    enum ax_status (*read)(void *ctx, int64_t first, int64_t n, void *out);
    void *ctx;
    /* the codes that `read` decodes, if packed storage can use them; else NULL */
    const struct ax_element_codes *codes;
    const void *stored; /* elements as stored in the file, in the mapping */
    size_t stored_bytes;
};

struct ax_elements ax_st_elements(const struct ax_st_entry *e);
/* Reads elements [first, first + n) as `wanted`. */
enum ax_status ax_st_read(const struct ax_st_entry *e, int64_t first, int64_t n,
                          enum ax_dtype wanted, void *out);
/* Releases the mapping's memory of elements that were read (a hint, see ax_map_drop). If the file
 * stores them in another form, does so only after the last element. */
void ax_st_drop(const struct ax_st_entry *e, int64_t first, int64_t n);
/* By name. */
void ax_st_sort(struct ax_st_entry *entries, int n);
/* Finds an entry by name in a sorted list; NULL if there is none. */
const struct ax_st_entry *ax_st_find(const struct ax_st_entry *entries, int n, const char *name);

/* A tensor to write: from `fill` or, if that is NULL, from this rank's parts of it. */
struct ax_st_output {
    const char *name;
    enum ax_dtype dtype;
    bool e4m3, e8m0; /* as in struct ax_st_entry */
    int ndim;
    int64_t shape[AX_ST_MAX_DIMS];
    /* Writes elements [first, first + n) in `dtype` to out. Ranges ascend and are of at most 1 Mi
     * elements. */
    enum ax_status (*fill)(void *ctx, int64_t first, int64_t n, void *out);
    void *ctx;
    int n_parts;
    const struct ax_st_part *parts;
};

struct ax_st_part {
    struct ax_block block;
    /* As in struct ax_st_output, with elements counted from the part's first one. */
    enum ax_status (*fill)(void *ctx, int64_t first, int64_t n, void *out);
    void *ctx;
};

#endif

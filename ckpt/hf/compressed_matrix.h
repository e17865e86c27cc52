/* A matrix of a quantized folder, and functions that its readers share: compressed.c reads formats
 * whose codes follow rows, compressed_gptq.c reads GPTQ's. */
#ifndef AX_CKPT_HF_COMPRESSED_MATRIX_H
#define AX_CKPT_HF_COMPRESSED_MATRIX_H

#include "ckpt/hf/compressed.h"

struct ax_compressed_matrix {
    char *name;
    struct ax_compressed_format f;
    int64_t rows, cols, block, across; /* across: scales from one row of blocks to the next */
    const struct ax_st_entry *codes, *scale;
    float outer;                             /* nvfp4: the global scale */
    const struct ax_st_entry *zeros, *order; /* GPTQ; order: NULL if groups are contiguous */
    struct ax_element_codes kept;            /* `read` is NULL: packed storage has no such codes */
};

/* The entries of a folder, for messages by its name. */
struct ax_compressed_folder {
    const char *dir;
    int n;
    const struct ax_st_entry *const *entries;
};
/* The entry named STEM + `what`, where STEM is the first `stem` characters of `name`; NULL if there
 * is none. */
const struct ax_st_entry *ax_compressed_sibling(const struct ax_compressed_folder *in,
                                                const char *name, size_t stem, const char *what);
/* AX_ERR_DATA: "DIR: TENSOR WHY; quantize the model again". */
enum ax_status ax_compressed_wrong(const char *dir, const struct ax_st_entry *e, const char *why);

/* GPTQ: completes a matrix whose members f and codes (STEM.qweight) are set. */
enum ax_status ax_compressed_gptq_open(struct ax_compressed_matrix *m,
                                       const struct ax_compressed_folder *in, size_t stem);
/* Elements as float32, ctx is the matrix (`read` of struct ax_st_entry). */
enum ax_status ax_compressed_gptq_read(void *ctx, int64_t first, int64_t n, void *out);
/* quantization_config with quant_method gptq; AX_ERR_UNSUPPORTED names what is not supported. */
enum ax_status ax_compressed_gptq_parse(struct ax_json config, struct ax_compressed_format *out);

#endif

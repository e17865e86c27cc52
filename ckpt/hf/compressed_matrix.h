/* What the forms of quantized folders (compressed.h) share: a matrix with the tensors that it is stored as, and the
 * functions of each form that open and read it. */
#ifndef AX_CKPT_HF_COMPRESSED_MATRIX_H
#define AX_CKPT_HF_COMPRESSED_MATRIX_H

#include "ckpt/hf/compressed.h"

/* bitsandbytes' double quantization: a scale of codes is map[its code]·scale + offset, with a scale for each `block`. */
struct ax_compressed_nested {
    const struct ax_st_entry *map, *scale; /* NULL: scales of codes are numbers */
    int64_t block;
    float offset;
};

struct ax_compressed_matrix {
    char *name;
    struct ax_compressed_format f;
    enum ax_dtype dtype;               /* type of its values: float32, unless `open` says another */
    int64_t rows, cols, block, across; /* across: scales from one row of blocks to the next */
    int64_t stride;                    /* compressed-tensors: codes from one row to the next */
    const struct ax_st_entry *codes, *scale;
    float outer;                     /* NVFP4: the scale of the matrix */
    const struct ax_st_entry *zeros; /* zero points of asymmetric codes, GPTQ's and AWQ's */
    const struct ax_st_entry *order; /* the group of each column; NULL if groups are contiguous */
    const float *values;             /* [16], of bitsandbytes' codes of 4 bits */
    struct ax_compressed_nested nested;
    struct ax_element_codes kept; /* `read` is NULL: packed storage has no such codes */
};

/* The entries of a folder by name; `dir` is for messages. */
struct ax_compressed_folder {
    const char *dir;
    int n;
    const struct ax_st_entry **sorted;
};

/* The entry named STEM + `what`, where STEM is the first `stem` characters of `name`; NULL if there
 * is none. */
const struct ax_st_entry *ax_compressed_sibling(const struct ax_compressed_folder *in,
                                                const char *name, size_t stem, const char *what);
/* AX_ERR_DATA: "DIR: TENSOR WHY; quantize the model again". */
enum ax_status ax_compressed_wrong(const struct ax_compressed_folder *in,
                                   const struct ax_st_entry *e, const char *why);

bool ax_compressed_has_shape(const struct ax_st_entry *e, int64_t rows, int64_t cols);
/* The group of scales of a column. */
int64_t ax_compressed_group(const struct ax_compressed_matrix *m, int64_t col);
/* Checks m->order, and forgets one that says what no order says. */
enum ax_status ax_compressed_check_order(struct ax_compressed_matrix *m,
                                         const struct ax_compressed_folder *in);
/* The 32 bits at number `word` of a tensor. */
uint32_t ax_compressed_word(const struct ax_st_entry *e, int64_t word);

/* `open` completes a matrix whose members f and codes are set; STEM is the first `stem` characters of the codes' name.
 * `read` is that of struct ax_st_entry; ctx is the matrix. */
typedef enum ax_status ax_compressed_opener(struct ax_compressed_matrix *m,
                                            const struct ax_compressed_folder *in, size_t stem);
typedef enum ax_status ax_compressed_reader(void *ctx, int64_t first, int64_t n, void *out);
ax_compressed_opener ax_compressed_open_rows, ax_compressed_open_words, ax_compressed_open_bnb4,
    ax_compressed_open_bnb8;
ax_compressed_reader ax_compressed_read_rows, ax_compressed_read_words, ax_compressed_read_bnb4,
    ax_compressed_read_bnb8;
/* True if STEM.weight, the entry, is codes of 4 bits, whose dtype may be any. */
bool ax_compressed_is_bnb4(const struct ax_compressed_folder *in, const struct ax_st_entry *e,
                           size_t stem);

#endif

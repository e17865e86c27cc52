/* Packed storage of frozen matrices: codes and scales instead of numbers, in the flat layout of a
 * segment (see unit.h), quantized while reading the file.
 *
 *   codes            NF4, INT4: U8 [numel/2], two per byte;  INT8: I8 [numel];  FP8: U8 [numel]
 *   scale            F32 [numel/block];  with `nested`, U8 codes of them
 *   nested, offset   F32 [numel/16384]: scale and offset of 256 scales
 *
 * On any mesh, what is quantized together is a block of the unsharded matrix (64 elements of it,
 * flattened, for NF4, 32 for INT4; a row for INT8 and FP8): if a rank's part cuts through blocks, `block` is
 * shorter and the pieces of one block repeat its scale. Double quantization stores the scales as
 * 8-bit codes; if a rank's part does not start at a group of 256, it stores the decoded scales as
 * numbers. So the weights are the same on every mesh. */
#ifndef AX_PARALLEL_UNITS_PACKED_H
#define AX_PARALLEL_UNITS_PACKED_H

#include "kernels/elements.h"
#include "parallel/units/param.h"
#include "parallel/runtime.h"

#define AX_NF4_BLOCK      64    /* elements that share a scale */
#define AX_INT4_BLOCK     32    /* elements that share a scale */
#define AX_NF4_GROUP      16384 /* elements whose 256 scales share a second one */
#define AX_PACKED_BUFFERS 4

/* A view of packed elements. */
struct ax_packed {
    enum ax_quant kind;
    int64_t block;
    struct ax_tensor codes, scale, nested, offset; /* nested and offset: data NULL = not nested */
};

/* How a segment is packed. */
struct ax_packing {
    enum ax_storage store;
    int64_t block; /* elements per scale */
    bool nested;
};
/* "plain", "nf4", "nf4-double", "int8", "fp8", "int4"; AX_ERR_CONFIG lists them. */
const char *ax_storage_name(enum ax_storage store);
enum ax_status ax_storage_parse(const char *name, enum ax_storage *out);
/* How many elements share a scale in a matrix with `cols` columns. */
int64_t ax_storage_block(enum ax_storage store, int64_t cols);
/* True if the storage of such a matrix has a file's codes (NULL: there are none) as they are. */
bool ax_storage_has_codes(enum ax_storage store, int64_t cols, const struct ax_element_codes *file);

/* The packing of parameters in one segment, and the alignment of their offsets and shards. Local
 * shapes must be set. */
void ax_packing_start(struct ax_packing *k, enum ax_storage store);
void ax_packing_add(struct ax_packing *k, const struct ax_mesh *mesh, const struct ax_param *p);
int64_t ax_packing_align(const struct ax_packing *k, int64_t align);

/* Describes the buffers of `numel` elements, without data: codes, scale, nested, offset; returns
 * how many there are. */
int ax_packing_buffers(const struct ax_packing *k, int64_t numel,
                       struct ax_tensor out[AX_PACKED_BUFFERS]);
/* A parameter, where a rank has its part of it, and the elements of the global tensor. */
struct ax_packed_source {
    const struct ax_param *p;
    const struct ax_mesh *mesh;
    const struct ax_elements *global;
};
/* Quantizes local elements [first, first + n) of the source's parameter into a rank's buffers, from
 * element `at` on, to which the same applies as to `first` of ax_packing_view. */
enum ax_status ax_packing_load(const struct ax_packing *k, struct ax_queue *q,
                               const struct ax_tensor buffers[AX_PACKED_BUFFERS],
                               const struct ax_packed_source *source, int64_t first, int64_t n,
                               int64_t at);

/* Elements [first, first + n) of buffers that ax_packing_buffers described; first a multiple of
 * `block`, even where two codes are in a byte, and a multiple of 16384 where nested. */
struct ax_packed ax_packing_view(const struct ax_packing *k,
                                 const struct ax_tensor buffers[AX_PACKED_BUFFERS], int64_t first,
                                 int64_t n);

/* out (compute dtype, dense) = the decoded numbers. Uses scratch if nested. */
enum ax_status ax_packed_read(struct ax_queue *q, const struct ax_packed *packed,
                              const struct ax_tensor *out);

/* The dense tensors of a product; bias and addend: data NULL = none. */
struct ax_packed_product {
    struct ax_tensor x, y, bias, addend;
};
/* y = x·Wᵀ [+ bias] [+ addend] for a packed matrix W [N][K], with the bits of struct ax_gemm on the
 * unpacked matrix. If x has few rows, the unpacked numbers are not written anywhere. Uses scratch
 * if nested. */
enum ax_status ax_packed_multiply(struct ax_queue *q, const struct ax_packed *packed,
                                  const struct ax_packed_product *p);

#endif

/* Kernels of one warp, or of four, that hand what kernels/cuda/mma.cuh and wgmma.cuh compute to a test: all arrays are the host's. */
#ifndef AX_TESTS_CUDA_MMA_PROBE_H
#define AX_TESTS_CUDA_MMA_PROBE_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PROBE_LANES 32

/* out = c + a · b, registers of each lane. */
struct probe_product {
    uint32_t a[PROBE_LANES][4], b[PROBE_LANES][2];
    float c[PROBE_LANES][4], out[PROBE_LANES][4];
};
/* Row i of 32, 8 elements each, is at byte 16·place[i] of shared memory; lane i gives its address. */
struct probe_rows {
    uint16_t rows[PROBE_LANES][8];
    int32_t place[PROBE_LANES];
    int32_t transposed;
    uint32_t out[PROBE_LANES][4];
};
/* Each lane copies 16 and 4 bytes of `from` (if `there`), waits (if `waits`), and reads what the next lane
 * has copied. */
struct probe_copies {
    uint32_t from[PROBE_LANES][8];
    int32_t there[PROBE_LANES], waits;
    uint32_t out[PROBE_LANES][5];
};
/* Two batches of copies of 16 bytes: `first` of them when one may be pending, and both in the end. */
struct probe_batches {
    uint32_t from[PROBE_LANES][8], first[PROBE_LANES][8], out[PROBE_LANES][8];
};
/* round_pair and power_of_two of two numbers. */
struct probe_numbers {
    float x[PROBE_LANES][2], powers[PROBE_LANES][2];
    uint32_t pair[PROBE_LANES];
};
/* Four warps multiply rows 64 … 127 of `left` with `right`, 128 elements, by wgmma: 64 or 128 columns, which are rows of `right`
 * or, transposed, its columns; the left side from registers (held) or from shared memory. out = c + the product, or
 * without `adds` the product alone. waits: until it is done. */
#define PROBE_TILE    128
#define PROBE_THREADS 128
#define PROBE_ROWS    64
struct probe_tiles {
    uint16_t left[PROBE_TILE][PROBE_TILE], right[PROBE_TILE][PROBE_TILE];
    float c[PROBE_ROWS][PROBE_TILE], out[PROBE_ROWS][PROBE_TILE];
    int32_t columns, held, transposed, adds, waits;
};
enum { PROBE_SHARED = 66 << 10 }; /* bytes: more than a kernel has that does not ask */

enum ax_status probe_product(struct ax_queue *q, struct probe_product *p);
enum ax_status probe_rows(struct ax_queue *q, struct probe_rows *p);
enum ax_status probe_copies(struct ax_queue *q, struct probe_copies *p);
enum ax_status probe_batches(struct ax_queue *q, struct probe_batches *p);
enum ax_status probe_tiles(struct ax_queue *q, struct probe_tiles *p);
enum ax_status probe_numbers(struct ax_queue *q, struct probe_numbers *p);

#ifdef __cplusplus
}
#endif

#endif

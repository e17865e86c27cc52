/* Blocks of packed storage. */
#ifndef AX_PARALLEL_UNITS_PACKED_BLOCK_H
#define AX_PARALLEL_UNITS_PACKED_BLOCK_H

#include "kernels/ops.h"
#include "parallel/units/param.h"

#define AX_NF4_BLOCK  64    /* elements that share a scale */
#define AX_INT4_BLOCK 32    /* elements that share a scale */
#define AX_NF4_GROUP  16384 /* elements whose 256 scales share a second one */

/* How many elements share a scale in a matrix with `cols` columns. */
int64_t ax_storage_block(enum ax_storage store, int64_t cols);
enum ax_quant ax_storage_quant(enum ax_storage store);

#endif

/* As much of cuBLASLt as this backend calls.
 *
 * It is declared here, because CUDA's toolkit comes without the library's header where only the compiler
 * is installed, while the library itself is opened at run time in any case: so every build with nvcc has
 * products. Names, numbers and sizes are the library's binary interface, the same in all of version 13;
 * tests/peers/cublaslt_api.c compares each of them with the real header. */
#ifndef AX_KERNELS_CUDA_GEMM_CUBLASLT_H
#define AX_KERNELS_CUDA_GEMM_CUBLASLT_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#define AX_CUBLASLT_FILE   "libcublasLt.so.13"
#define AX_CUBLASLT_OLDEST 130000 /* cublasLtGetVersion of 13.0.0 */

#ifndef AX_CUBLASLT_TYPES /* or another header has defined them */
#define AX_CUBLASLT_TYPES
typedef struct cublasLtContext *ax_lt_handle;
typedef struct ax_lt_desc_data *ax_lt_desc;
typedef struct ax_lt_layout_data *ax_lt_layout;
typedef struct ax_lt_preference_data *ax_lt_preference;
typedef struct ax_lt_algo {
    uint64_t data[8];
} ax_lt_algo;
/* The heuristic's answer. */
typedef struct ax_lt_choice {
    ax_lt_algo algo;
    size_t workspaceSize;
    unsigned state; /* AX_LT_OK, or this one cannot be used */
    float wavesCount;
    int reserved[4];
} ax_lt_choice;
#endif

enum {
    AX_LT_OK = 0,
    AX_LT_INVALID_VALUE = 7,
    AX_LT_NOT_SUPPORTED = 15,

    AX_LT_REAL_32F = 0, /* cudaDataType */
    AX_LT_REAL_16BF = 14,
    AX_LT_REAL_8F_E4M3 = 28,
    AX_LT_REAL_8F_E5M2 = 29,

    AX_LT_COMPUTE_32F = 68,
    AX_LT_COMPUTE_32F_FAST_TF32 = 77,

    AX_LT_OP_N = 0,
    AX_LT_OP_T = 1,

    AX_LT_LAYOUT_ROWS = 2, /* uint64_t */
    AX_LT_LAYOUT_COLS = 3, /* uint64_t */

    AX_LT_DESC_TRANSA = 3,       /* int32_t */
    AX_LT_DESC_TRANSB = 4,       /* int32_t */
    AX_LT_DESC_EPILOGUE = 7,     /* uint32_t */
    AX_LT_DESC_BIAS_POINTER = 8, /* const void * */
    AX_LT_DESC_A_SCALE =
        17, /* const float *: what A's elements are multiplied with, on the device */
    AX_LT_DESC_B_SCALE = 18,
    AX_LT_DESC_A_SCALE_MODE = 31, /* int32_t */
    AX_LT_DESC_B_SCALE_MODE = 32,
    AX_LT_SCALE_ONE = 0,   /* for all of a matrix */
    AX_LT_SCALE_OUTER = 3, /* for each row of op(A), or column of op(B) */

    AX_LT_EPILOGUE_DEFAULT = 1,
    AX_LT_EPILOGUE_BIAS = 4, /* a vector of D's type, one element per row of D */

    AX_LT_PREF_MAX_WORKSPACE = 1,     /* uint64_t */
    AX_LT_PREF_REDUCTION = 3,         /* uint32_t, a mask: */
    AX_LT_REDUCTION_NONE = 0,         /* each sum by one block */
    AX_LT_REDUCTION_COMPUTE_TYPE = 2, /* or in parts, added as F32 */
    AX_LT_PREF_ALIGNMENT_A = 5,       /* uint32_t each */
    AX_LT_PREF_ALIGNMENT_B = 6,
    AX_LT_PREF_ALIGNMENT_C = 7,
    AX_LT_PREF_ALIGNMENT_D = 8,

    AX_LT_WORK_ALIGN = 256
};

/* X(result, name, parameters). D = alpha · op(A)·op(B) + beta · C, all matrices column-major. */
#define AX_CUBLASLT_FUNCTIONS(X)                                                                   \
    X(size_t, GetVersion, (void))                                                                  \
    X(const char *, GetStatusString, (unsigned status))                                            \
    X(unsigned, Create, (ax_lt_handle * handle))                                                   \
    X(unsigned, Destroy, (ax_lt_handle handle))                                                    \
    X(unsigned, MatmulDescCreate, (ax_lt_desc * desc, unsigned compute, unsigned scale))           \
    X(unsigned, MatmulDescDestroy, (ax_lt_desc desc))                                              \
    X(unsigned, MatmulDescSetAttribute,                                                            \
      (ax_lt_desc desc, unsigned attribute, const void *value, size_t bytes))                      \
    X(unsigned, MatrixLayoutCreate,                                                                \
      (ax_lt_layout * layout, unsigned type, uint64_t rows, uint64_t cols, int64_t stride))        \
    X(unsigned, MatrixLayoutDestroy, (ax_lt_layout layout))                                        \
    X(unsigned, MatrixLayoutSetAttribute,                                                          \
      (ax_lt_layout layout, unsigned attribute, const void *value, size_t bytes))                  \
    X(unsigned, MatmulPreferenceCreate, (ax_lt_preference * preference))                           \
    X(unsigned, MatmulPreferenceDestroy, (ax_lt_preference preference))                            \
    X(unsigned, MatmulPreferenceSetAttribute,                                                      \
      (ax_lt_preference preference, unsigned attribute, const void *value, size_t bytes))          \
    X(unsigned, MatmulAlgoGetHeuristic,                                                            \
      (ax_lt_handle handle, ax_lt_desc desc, ax_lt_layout a, ax_lt_layout b, ax_lt_layout c,       \
       ax_lt_layout d, ax_lt_preference preference, int wanted, ax_lt_choice *found, int *n))      \
    X(unsigned, MatmulAlgoCheck,                                                                   \
      (ax_lt_handle handle, ax_lt_desc desc, ax_lt_layout a, ax_lt_layout b, ax_lt_layout c,       \
       ax_lt_layout d, const ax_lt_algo *algo, ax_lt_choice *found))                               \
    X(unsigned, Matmul,                                                                            \
      (ax_lt_handle handle, ax_lt_desc desc, const void *alpha, const void *a, ax_lt_layout da,    \
       const void *b, ax_lt_layout db, const void *beta, const void *c, ax_lt_layout dc, void *d,  \
       ax_lt_layout dd, const ax_lt_algo *algo, void *work, size_t work_bytes,                     \
       cudaStream_t stream))

struct ax_cublaslt {
#define ROW(result, name, parameters) result(*name) parameters;
    AX_CUBLASLT_FUNCTIONS(ROW)
#undef ROW
};

#endif

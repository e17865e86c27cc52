/* kernels/cuda/gemm/cublaslt.h beside the library's own header (make CUDA_INCLUDE=FOLDER). The compiler does
 * it. */
#include <stddef.h>

#include <cublasLt.h>

#define AX_CUBLASLT_TYPES
typedef cublasLtHandle_t ax_lt_handle;
typedef cublasLtMatmulDesc_t ax_lt_desc;
typedef cublasLtMatrixLayout_t ax_lt_layout;
typedef cublasLtMatmulPreference_t ax_lt_preference;
typedef cublasLtMatmulAlgo_t ax_lt_algo;
typedef cublasLtMatmulHeuristicResult_t ax_lt_choice;
#include "kernels/cuda/gemm/cublaslt.h"

/* What the header declares when these types are not defined. */
struct own_algo {
    uint64_t data[8];
};
struct own_choice {
    struct own_algo algo;
    size_t workspaceSize;
    unsigned state;
    float wavesCount;
    int reserved[4];
};
_Static_assert(sizeof(struct own_choice) == sizeof(ax_lt_choice), "");
_Static_assert(offsetof(struct own_choice, workspaceSize) == offsetof(ax_lt_choice, workspaceSize),
               "");
_Static_assert(offsetof(struct own_choice, state) == offsetof(ax_lt_choice, state), "");

#define SAME(own, theirs) _Static_assert((unsigned)(own) == (unsigned)(theirs), #theirs)
SAME(AX_LT_OK, CUBLAS_STATUS_SUCCESS);
SAME(AX_LT_INVALID_VALUE, CUBLAS_STATUS_INVALID_VALUE);
SAME(AX_LT_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED);
SAME(AX_LT_REAL_32F, CUDA_R_32F);
SAME(AX_LT_REAL_16BF, CUDA_R_16BF);
SAME(AX_LT_REAL_8F_E4M3, CUDA_R_8F_E4M3);
SAME(AX_LT_REAL_8F_E5M2, CUDA_R_8F_E5M2);
SAME(AX_LT_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_DESC_A_SCALE_MODE);
SAME(AX_LT_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_DESC_B_SCALE_MODE);
SAME(AX_LT_SCALE_ONE, CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F);
SAME(AX_LT_SCALE_OUTER, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
SAME(AX_LT_COMPUTE_32F, CUBLAS_COMPUTE_32F);
SAME(AX_LT_COMPUTE_32F_FAST_TF32, CUBLAS_COMPUTE_32F_FAST_TF32);
SAME(AX_LT_OP_N, CUBLAS_OP_N);
SAME(AX_LT_OP_T, CUBLAS_OP_T);
SAME(AX_LT_LAYOUT_ROWS, CUBLASLT_MATRIX_LAYOUT_ROWS);
SAME(AX_LT_LAYOUT_COLS, CUBLASLT_MATRIX_LAYOUT_COLS);
SAME(AX_LT_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(AX_LT_DESC_TRANSB, CUBLASLT_MATMUL_DESC_TRANSB);
SAME(AX_LT_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME(AX_LT_DESC_BIAS_POINTER, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME(AX_LT_DESC_A_SCALE, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
SAME(AX_LT_DESC_B_SCALE, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
SAME(AX_LT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_DEFAULT);
SAME(AX_LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS);
SAME(AX_LT_PREF_MAX_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(AX_LT_PREF_REDUCTION, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME(AX_LT_REDUCTION_NONE, CUBLASLT_REDUCTION_SCHEME_NONE);
SAME(AX_LT_REDUCTION_COMPUTE_TYPE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
SAME(AX_LT_PREF_ALIGNMENT_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(AX_LT_PREF_ALIGNMENT_B, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME(AX_LT_PREF_ALIGNMENT_C, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME(AX_LT_PREF_ALIGNMENT_D, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);

/* An enumeration is compatible with the integer that it is. */
#define CHECK(result, name, parameters)                                                            \
    _Static_assert(                                                                                \
        __builtin_types_compatible_p(result(*) parameters, __typeof__(&cublasLt##name)), #name);
AX_CUBLASLT_FUNCTIONS(CHECK)

int main(void) {
    return 0;
}

/* Elements of tensors whose dtype is known while running only, as double. */
#ifndef AX_KERNELS_CUDA_ELEMENTS_CUH
#define AX_KERNELS_CUDA_ELEMENTS_CUH

#include "kernels/cuda/numbers.cuh"

/* A tensor as rows of dimension 0. */
struct any_rows {
    char *data;
    int64_t stride;
    enum ax_dtype dtype;
    int size; /* bytes of an element */
};
static inline any_rows as_any(const struct ax_tensor *t) {
    return {(char *)t->data, t->row_stride, t->dtype, (int)ax_dtype_size(t->dtype)};
}

struct extent {
    int64_t n, cols; /* elements in all and of a row */
};
static inline extent extent_of(const struct ax_tensor *t) {
    return {ax_tensor_numel(t), ax_tensor_row_len(t)};
}

__device__ static inline double load_any(const any_rows &t, int64_t row, int64_t col) {
    const char *at = t.data + (row * t.stride + col) * t.size;
    switch (t.dtype) {
    case AX_F64:
        return *(const double *)at;
    case AX_F32:
        return *(const float *)at;
    case AX_BF16:
        return (float)*(const bf16 *)at;
    case AX_F16:
        return f16_to_f32(*(const uint16_t *)at);
    case AX_I64:
        return (double)*(const int64_t *)at;
    case AX_I32:
        return *(const int32_t *)at;
    case AX_I16:
        return *(const int16_t *)at;
    case AX_I8:
        return *(const int8_t *)at;
    case AX_U8:
        return *(const uint8_t *)at;
    default:
        return 0;
    }
}

__device__ static inline void store_any(const any_rows &t, int64_t row, int64_t col, double x) {
    char *at = t.data + (row * t.stride + col) * t.size;
    switch (t.dtype) {
    case AX_F64:
        *(double *)at = x;
        break;
    case AX_F32:
        *(float *)at = (float)x;
        break;
    case AX_BF16:
        *(uint16_t *)at = f64_to_bf16(x);
        break;
    case AX_F16:
        *(uint16_t *)at = f64_to_f16(x);
        break;
    case AX_I64:
        *(int64_t *)at = (int64_t)x;
        break;
    case AX_I32:
        *(int32_t *)at = (int32_t)x;
        break;
    case AX_I16:
        *(int16_t *)at = (int16_t)x;
        break;
    case AX_I8:
        *(int8_t *)at = (int8_t)x;
        break;
    case AX_U8:
        *(uint8_t *)at = (uint8_t)x;
        break;
    default:
        break;
    }
}

/* Between tensors of one dtype. */
__device__ static inline void copy_any(const any_rows &to, const any_rows &from, int64_t row,
                                       int64_t col) {
    char *d = to.data + (row * to.stride + col) * to.size;
    const char *s = from.data + (row * from.stride + col) * from.size;
    switch (to.size) {
    case 8:
        *(uint64_t *)d = *(const uint64_t *)s;
        break;
    case 4:
        *(uint32_t *)d = *(const uint32_t *)s;
        break;
    case 2:
        *(uint16_t *)d = *(const uint16_t *)s;
        break;
    default:
        *d = *s;
    }
}

#endif

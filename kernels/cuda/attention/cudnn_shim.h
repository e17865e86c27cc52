/* C interface to cuDNN's attention. cudnn_shim.cpp is built into a library of its own,
 * libaxtrain-cudnn.so, over NVIDIA's header-only frontend, so that only who computes on a GPU with
 * cuDNN needs the C++ library. Private to kernels/cuda/attention/cudnn.c; plain types only. Throws no exceptions. */
#ifndef AX_KERNELS_CUDA_ATTENTION_CUDNN_SHIM_H
#define AX_KERNELS_CUDA_ATTENTION_CUDNN_SHIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ax_cudnn; /* the library's handle */
struct ax_cudnn_plan;

enum ax_cudnn_result { AX_CUDNN_DONE, AX_CUDNN_REFUSED, AX_CUDNN_FAILED };
enum { AX_CUDNN_TEXT = 512 }; /* `text` buffers; set when the result is not AX_CUDNN_DONE */

/* LSE is F32 [rows][heads]; all others are BF16 [rows][heads][size]. From DOUT on, backward's. With a block
 * table, K and V are [blocks · block_size][heads][size]. */
enum ax_cudnn_tensor {
    AX_CUDNN_Q,
    AX_CUDNN_K,
    AX_CUDNN_V,
    AX_CUDNN_OUT,
    AX_CUDNN_LSE,
    AX_CUDNN_DOUT,
    AX_CUDNN_DQ,
    AX_CUDNN_DK,
    AX_CUDNN_DV,
    AX_CUDNN_TENSORS
};

/* Forward, or which backward: the same bits each time, or whatever is fastest. */
enum ax_cudnn_backward { AX_CUDNN_NO_BACKWARD, AX_CUDNN_FIXED, AX_CUDNN_VARIES };

/* A kind of attention over packed documents, forward or backward (kernels/ops.h has the formulas).
 * Compared as bytes, so it has no padding. */
struct ax_cudnn_shape {
    int64_t documents; /* at most; those that are not there have length 0 */
    /* longest document; with a block table, the tokens of all its columns */
    int64_t max_q, max_k;
    /* most rows of all documents, for backward; or, rows_k, the rows of all blocks */
    int64_t rows_q, rows_k;
    int64_t heads_q, heads_k, size_qk, size_v;
    int64_t stride[AX_CUDNN_TENSORS]; /* elements from a row to the next */
    int64_t window;                   /* 0: none */
    float scale, softcap;             /* softcap 0: none */
    /* tokens per block of a block table, forward only; 0: there is none */
    int32_t block_size;
    int32_t causal;   /* the last query sees the last key */
    int32_t sink;     /* forward: there is one. Backward needs none, since lse contains it */
    int32_t backward; /* enum ax_cudnn_backward */
};

/* Addresses on the GPU. Document d is rows offsets[t][d] / stride[t] … of tensor t, or with a block table,
 * K's and V's row j is row table[d][j / block_size] · block_size + j % block_size. */
struct ax_cudnn_operands {
    void *data[AX_CUDNN_TENSORS];
    const int64_t *offsets[AX_CUDNN_TENSORS]; /* elements, [documents + 1] */
    const int32_t *lengths_q, *lengths_k;     /* [documents] */
    const int32_t *table; /* [documents][max_k / block_size], all of them blocks that there are */
    const float *sink;    /* [heads_q] */
};

struct ax_cudnn_calls {
    const char *version; /* AX_VERSION of the build that this library belongs to */

    /* `function` is one of the opened cuDNN's, whose others are found through it. gpu: NULL for the
     * calling thread's GPU, or cuDNN's own description of one, as JSON, of which plans can be made
     * without having it. */
    enum ax_cudnn_result (*open)(struct ax_cudnn **out, void *function, const char *gpu,
                                 char *text);
    void (*close)(struct ax_cudnn *c);
    /* Refused: cuDNN has no way to compute this, or of AX_CUDNN_FIXED only ones whose bits differ from run
     * to run. */
    enum ax_cudnn_result (*plan)(struct ax_cudnn *c, const struct ax_cudnn_shape *shape,
                                 struct ax_cudnn_plan **out, size_t *work, char *text);
    void (*forget)(struct ax_cudnn_plan *p);
    /* Enqueues on a CUDA stream. work: aligned to 256 bytes. */
    enum ax_cudnn_result (*run)(struct ax_cudnn *c, struct ax_cudnn_plan *p,
                                const struct ax_cudnn_operands *o, void *work, void *stream,
                                char *text);
};
const struct ax_cudnn_calls *ax_cudnn_get(void);

#define AX_CUDNN_SHIM   "libaxtrain-cudnn.so"
#define AX_CUDNN_FILE   "libcudnn.so.9"
#define AX_CUDNN_OLDEST 91200 /* 9.12.0, the first that is built for CUDA 13 */
/* Trainings on an H200 with 9.14 had wrong gradients, those with 9.19 had not. */
#define AX_CUDNN_BACKWARD_OLDEST 91900
#define AX_CUDART_FILE           "libcudart.so.13" /* cuDNN's frontend opens it by this name */

#ifdef __cplusplus
}
#endif

#endif

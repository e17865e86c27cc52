/* As much of NCCL as this backend calls. Declared here for the reason that cublaslt.h gives: names, numbers
 * and the order of the fields of ncclConfig_t are the library's binary interface of version 2.28. */
#ifndef AX_KERNELS_CUDA_NCCL_API_H
#define AX_KERNELS_CUDA_NCCL_API_H

#include <limits.h>
#include <stddef.h>

#include "kernels/cuda/runtime.h"

#define AX_NCCL_FILE "libnccl.so.2"

typedef struct ncclComm *ax_nccl_comm;
typedef struct {
    char internal[128];
} ax_nccl_unique_id;

enum { AX_NCCL_SUCCESS = 0, AX_NCCL_INVALID_ARGUMENT = 4, AX_NCCL_IN_PROGRESS = 7 };
enum { AX_NCCL_SUM = 0, AX_NCCL_MAX = 2 };
enum {
    AX_NCCL_INT8 = 0,
    AX_NCCL_UINT8 = 1,
    AX_NCCL_INT32 = 2,
    AX_NCCL_INT64 = 4,
    AX_NCCL_FLOAT16 = 6,
    AX_NCCL_FLOAT32 = 7,
    AX_NCCL_FLOAT64 = 8,
    AX_NCCL_BFLOAT16 = 9
};

/* Fields that are not set have AX_NCCL_UNSET; the first three say which struct this is. */
#define AX_NCCL_UNSET   INT_MIN
#define AX_NCCL_MAGIC   0xcafebeefu
#define AX_NCCL_VERSION 22700u /* the fields below are those of 2.27 */
typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share, traffic_class;
    const char *comm_name;
    int collnet_enable, cta_policy, shrink_share, nvls_ctas;
} ax_nccl_config;

struct ax_nccl_functions {
    int (*version)(int *version);
    int (*unique_id)(ax_nccl_unique_id *id);
    int (*init)(ax_nccl_comm *c, int n, ax_nccl_unique_id id, int rank, ax_nccl_config *config);
    int (*async_error)(ax_nccl_comm c, int *result);
    int (*give_up)(ax_nccl_comm c); /* ncclCommAbort */
    int (*destroy)(ax_nccl_comm c);
    const char *(*error_string)(int result);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*all_reduce)(const void *send, void *recv, size_t n, int dtype, int op, ax_nccl_comm c,
                      cudaStream_t s);
    int (*all_gather)(const void *send, void *recv, size_t n, int dtype, ax_nccl_comm c,
                      cudaStream_t s);
    int (*reduce_scatter)(const void *send, void *recv, size_t n, int dtype, int op, ax_nccl_comm c,
                          cudaStream_t s);
    int (*broadcast)(const void *send, void *recv, size_t n, int dtype, int root, ax_nccl_comm c,
                     cudaStream_t s);
    int (*send)(const void *send, size_t n, int dtype, int peer, ax_nccl_comm c, cudaStream_t s);
    int (*recv)(void *recv, size_t n, int dtype, int peer, ax_nccl_comm c, cudaStream_t s);
};

#endif

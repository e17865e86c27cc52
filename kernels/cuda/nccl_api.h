/* As much of NCCL as this backend calls. Declared here for the reason that cublaslt.h gives: names, numbers
 * and the order of the fields of ncclConfig_t are the library's binary interface since version 2.27;
 * tests/peers/nccl_api.c compares them with the real header. */
#ifndef AX_KERNELS_CUDA_NCCL_API_H
#define AX_KERNELS_CUDA_NCCL_API_H

#include <cuda_runtime_api.h>
#include <limits.h>
#include <stddef.h>

#define AX_NCCL_FILE "libnccl.so.2"

#ifndef AX_NCCL_TYPES /* or another header has defined them */
#define AX_NCCL_TYPES
typedef struct ncclComm *ax_nccl_comm;
typedef struct {
    char internal[128];
} ax_nccl_unique_id;
typedef struct ax_nccl_config ax_nccl_config;
#endif

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
struct ax_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share, traffic_class;
    const char *comm_name;
    int collnet_enable, cta_policy, shrink_share, nvls_ctas;
};

/* X(result, name, parameters). Enumerations are `unsigned`, as in the library's header. */
#define AX_NCCL_FUNCTIONS(X)                                                                       \
    X(unsigned, GetVersion, (int *version))                                                        \
    X(unsigned, GetUniqueId, (ax_nccl_unique_id * id))                                             \
    X(unsigned, CommInitRankConfig,                                                                \
      (ax_nccl_comm * c, int n, ax_nccl_unique_id id, int rank, ax_nccl_config *config))           \
    X(unsigned, CommGetAsyncError, (ax_nccl_comm c, unsigned *result))                             \
    X(unsigned, CommAbort, (ax_nccl_comm c))                                                       \
    X(unsigned, CommDestroy, (ax_nccl_comm c))                                                     \
    X(unsigned, CommRegister, (ax_nccl_comm c, void *base, size_t bytes, void **handle))           \
    X(unsigned, CommDeregister, (ax_nccl_comm c, void *handle))                                    \
    X(const char *, GetErrorString, (unsigned result))                                             \
    X(unsigned, GroupStart, (void))                                                                \
    X(unsigned, GroupEnd, (void))                                                                  \
    X(unsigned, AllReduce,                                                                         \
      (const void *send, void *recv, size_t n, unsigned dtype, unsigned op, ax_nccl_comm c,        \
       cudaStream_t s))                                                                            \
    X(unsigned, AllGather,                                                                         \
      (const void *send, void *recv, size_t n, unsigned dtype, ax_nccl_comm c, cudaStream_t s))    \
    X(unsigned, ReduceScatter,                                                                     \
      (const void *send, void *recv, size_t n, unsigned dtype, unsigned op, ax_nccl_comm c,        \
       cudaStream_t s))                                                                            \
    X(unsigned, Broadcast,                                                                         \
      (const void *send, void *recv, size_t n, unsigned dtype, int root, ax_nccl_comm c,           \
       cudaStream_t s))                                                                            \
    X(unsigned, Send,                                                                              \
      (const void *send, size_t n, unsigned dtype, int peer, ax_nccl_comm c, cudaStream_t s))      \
    X(unsigned, Recv,                                                                              \
      (void *recv, size_t n, unsigned dtype, int peer, ax_nccl_comm c, cudaStream_t s))

struct ax_nccl_functions {
#define ROW(result, name, parameters) result(*name) parameters;
    AX_NCCL_FUNCTIONS(ROW)
#undef ROW
};

#endif

/* kernels/cuda/nccl_api.h beside the library's own header (make CUDA_INCLUDE=FOLDER). The compiler does
 * it. */
#include <stddef.h>

#include <nccl.h>

#define AX_NCCL_TYPES
typedef ncclComm_t ax_nccl_comm;
typedef ncclUniqueId ax_nccl_unique_id;
typedef ncclConfig_t ax_nccl_config;
#include "kernels/cuda/nccl_api.h"

#define SAME(own, theirs) _Static_assert((unsigned)(own) == (unsigned)(theirs), #theirs)
SAME(AX_NCCL_SUCCESS, ncclSuccess);
SAME(AX_NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
SAME(AX_NCCL_IN_PROGRESS, ncclInProgress);
SAME(AX_NCCL_SUM, ncclSum);
SAME(AX_NCCL_MAX, ncclMax);
SAME(AX_NCCL_INT8, ncclInt8);
SAME(AX_NCCL_UINT8, ncclUint8);
SAME(AX_NCCL_INT32, ncclInt32);
SAME(AX_NCCL_INT64, ncclInt64);
SAME(AX_NCCL_FLOAT16, ncclFloat16);
SAME(AX_NCCL_FLOAT32, ncclFloat32);
SAME(AX_NCCL_FLOAT64, ncclFloat64);
SAME(AX_NCCL_BFLOAT16, ncclBfloat16);
SAME(AX_NCCL_UNSET, NCCL_CONFIG_UNDEF_INT);
_Static_assert(sizeof(ncclUniqueId) == 128, "");

/* Later versions add fields at the end. */
#define FIELD(own, theirs)                                                                         \
    _Static_assert(offsetof(struct ax_nccl_config, own) == offsetof(ncclConfig_t, theirs), #theirs)
FIELD(size, size);
FIELD(magic, magic);
FIELD(version, version);
FIELD(blocking, blocking);
FIELD(cga_cluster_size, cgaClusterSize);
FIELD(min_ctas, minCTAs);
FIELD(max_ctas, maxCTAs);
FIELD(net_name, netName);
FIELD(split_share, splitShare);
FIELD(traffic_class, trafficClass);
FIELD(comm_name, commName);
FIELD(collnet_enable, collnetEnable);
FIELD(cta_policy, CTAPolicy);
FIELD(shrink_share, shrinkShare);
FIELD(nvls_ctas, nvlsCTAs);

/* An enumeration is compatible with the integer that it is. */
#define CHECK(result, name, parameters)                                                            \
    _Static_assert(__builtin_types_compatible_p(result(*) parameters, __typeof__(&nccl##name)),    \
                   #name);
AX_NCCL_FUNCTIONS(CHECK)

int main(void) {
    const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    return config.magic == AX_NCCL_MAGIC && config.version >= AX_NCCL_VERSION ? 0 : 1;
}

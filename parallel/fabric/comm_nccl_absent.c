/* In place of comm_nccl.c, in a build without CUDA: no device has a fabric of its own. */
#include "parallel/fabric/comm_nccl.h"

enum ax_status ax_nccl_fabric_open(struct ax_fabric *f, struct ax_fabric *host,
                                   const struct ax_memory *memory, unsigned roles) {
    (void)f;
    (void)host;
    (void)memory;
    (void)roles;
    return ax_error(AX_ERR_UNSUPPORTED, "NCCL: this axtrain was built without CUDA");
}

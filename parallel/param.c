/* Where the elements of a parameter's local slice are in the global tensor. */
#include "parallel/param.h"

int64_t ax_param_numel(const struct ax_param *p) {
    int64_t n = 1;
    for (int d = 0; d < p->ndim; d++)
        n *= p->shape[d];
    return n;
}

int64_t ax_param_local_numel(const struct ax_param *p) {
    int64_t n = 1;
    for (int d = 0; d < p->ndim; d++)
        n *= p->local_shape[d];
    return n;
}

int64_t ax_param_global_index(const struct ax_param *p, const struct ax_mesh *mesh, int64_t i,
                              int64_t *run) {
    int64_t global = 0, inner = 1, left = i;
    *run = ax_param_local_numel(p) - i;
    for (int d = p->ndim - 1; d >= 0; d--) {
        int64_t at = left % p->local_shape[d];
        left /= p->local_shape[d];
        if (p->local_shape[d] != p->shape[d]) {
            /* the run ends where this dimension's local slice does */
            int64_t start = 0;
            if (d == p->tp_dim)
                start = mesh->coord[AX_ROLE_TP] * p->local_shape[d];
            if (d == p->ep_dim)
                start = mesh->coord[AX_ROLE_EP] * p->local_shape[d];
            int64_t block = 1;
            for (int e = d; e < p->ndim; e++)
                block *= p->local_shape[e];
            if (*run > block - i % block)
                *run = block - i % block;
            at += start;
        }
        global += at * inner;
        inner *= p->shape[d];
    }
    return global;
}

/* Positions of a parameter's local elements in the global tensor. */
#include "parallel/units/param.h"

void ax_split_range(int64_t n, int parts, int part, int64_t *first, int64_t *len) {
    const int64_t each = n / parts, longer = n % parts;
    *first = part * each + (part < longer ? part : longer);
    *len = each + (part < longer);
}

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

bool ax_param_follows(const struct ax_param *before, const struct ax_param *p) {
    return before->segment == p->segment &&
           p->offset == before->offset + ax_param_local_numel(before);
}

int64_t ax_param_global_index(const struct ax_param *p, const struct ax_mesh *mesh, int64_t i,
                              int64_t *run) {
    int64_t global = 0, inner = 1, left = i;
    *run = ax_param_local_numel(p) - i;
    for (int d = p->ndim - 1; d >= 0; d--) {
        int64_t at = left % p->local_shape[d];
        left /= p->local_shape[d];
        if (p->local_shape[d] != p->shape[d]) {
            /* the run ends with this dimension's local slice */
            const enum ax_role role = d == p->tp_dim ? AX_ROLE_TP : AX_ROLE_EP;
            int64_t start, len;
            ax_split_range(p->shape[d], mesh->size[role], mesh->coord[role], &start, &len);
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

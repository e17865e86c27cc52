/* One parameter: its HF name, global shape, and layout on the mesh. */
#ifndef AX_PARALLEL_UNITS_PARAM_H
#define AX_PARALLEL_UNITS_PARAM_H

#include <stdbool.h>

#include "kernels/tensor.h"
#include "parallel/fabric/mesh.h"

#define AX_NAME_MAX 160

/* How a parameter is stored. All but PLAIN are packed (packed.h), and then frozen. */
enum ax_storage {
    AX_STORAGE_PLAIN, /* in the compute dtype */
    AX_STORAGE_NF4,
    AX_STORAGE_NF4_DOUBLE, /* scales quantized too */
    AX_STORAGE_INT8,
    AX_STORAGE_FP8,
    AX_STORAGE_INT4
};

struct ax_param {
    char name[AX_NAME_MAX]; /* as in the HF checkpoint */
    int ndim;
    int64_t shape[AX_MAX_DIMS]; /* shape of the entire tensor; weights are [out][in] */
    int8_t tp_dim, ep_dim; /* dimension split over tp / ep (ax_split_range); −1 = replicated */
    bool expert; /* a matrix of one expert: not split along ep_dim, but stored in full on ep
                    coordinate ep_owner only */
    int ep_owner;
    uint32_t grad_partial_over; /* bits 1 << role: each rank has a partial gradient, to be summed
                                   over the role in addition to the segment's reduce roles */
    bool trainable, decay;      /* decay: weight decay applies (matrices, DoRA's magnitudes) */
    double start;               /* elements of a vector in a new model */
    bool buffer;                /* never trained, and in accumulation dtype */
    bool frozen;                /* never trained, as no loss has a gradient of it */
    bool uncopied;              /* absent from its unit's copy (ax_unit.copy) */
    /* number of the adapter that it belongs to (lora_A, lora_B, magnitudes), from 1; 0 = it is part
     * of the base */
    int adapter;
    enum ax_storage storage;
    bool panels; /* stored in the order of kernels/panels.h */
    bool coded;  /* training passes read its e4m3 values, so their gathers may bring codes */
    bool linear; /* a matrix of a linear: its gradient is a product */
    bool begins; /* the next product writes its gradient, and does not add to it */

    /* location; `unit` is set by the model, the others by ax_unit_layout */
    int unit, segment;
    int64_t local_shape[AX_MAX_DIMS]; /* this rank's tp/ep slice */
    int64_t offset;                   /* elements from the start of the segment */
};

/* Weights of a matrix, and no bias or vector. */
static inline bool ax_param_is_matrix(const struct ax_param *p) {
    return p->decay && p->ndim > 1;
}

/* The range of part `part` if n items are split into `parts` contiguous ranges as evenly as
 * possible, longer ones first. */
void ax_split_range(int64_t n, int parts, int part, int64_t *first, int64_t *len);

int64_t ax_param_numel(const struct ax_param *p);       /* elements of the entire tensor */
int64_t ax_param_local_numel(const struct ax_param *p); /* this rank's slice */
/* True if p follows `before` directly in a unit, so that both can be read as one. */
bool ax_param_follows(const struct ax_param *before, const struct ax_param *p);
/* Global element index of local element i (row-major both). Runs of `*run` elements from there are
 * contiguous in both, so copies go run by run. */
int64_t ax_param_global_index(const struct ax_param *p, const struct ax_mesh *mesh, int64_t i,
                              int64_t *run);

#endif

/* Private to unit.c and unit_move.c: properties that follow from a segment's roles on the mesh. */
#ifndef AX_PARALLEL_UNITS_UNIT_SEGMENT_H
#define AX_PARALLEL_UNITS_UNIT_SEGMENT_H

#include "parallel/units/unit.h"

static inline bool ax_segment_is_packed(const struct ax_segment *seg) {
    return seg->packing.store != AX_STORAGE_PLAIN;
}

static inline bool ax_segment_alone(const struct ax_segment *seg, const struct ax_runtime *rt) {
    return rt->mesh.size[seg->gather] == 1;
}

/* True if `full` and `grad_full` are the memory of the shard. */
static inline bool ax_segment_in_place(const struct ax_segment *seg, const struct ax_runtime *rt) {
    return ax_segment_alone(seg, rt) && !seg->host_shard;
}

#endif

/* Gathers of FP8 training with one scale for a matrix: a coded segment brings e4m3 codes, half the bytes of
 * BF16, and its ranks agree on the scales first. Values are those that quantizing the gathered matrix
 * would make, to the bit. Shards, masters, gradients, and gathers for anything else stay as they are.
 *
 * Until the gather, at the address of `full`:
 *
 *   codes    U8  [numel]  in the segment's layout; then, aligned, of each of its n parameters
 *   scales   F32 [n]
 *   ranges   F32 [n][2]   as of quant_range
 *   spare                 what the ops write besides
 *
 * Private to unit.c and unit_move.c. */
#ifndef AX_PARALLEL_UNITS_UNIT_CODES_H
#define AX_PARALLEL_UNITS_UNIT_CODES_H

#include "parallel/units/unit_segment.h"

/* Adds a parameter to the coded ones; called by ax_unit_layout. */
void ax_segment_add_coded(struct ax_segment *seg, const struct ax_param *p);
/* Quantizes this rank's part, *own [shard_numel], of *all [numel], which are to be gathered. */
enum ax_status ax_segment_encode(const struct ax_unit *unit, const struct ax_segment *seg,
                                 struct ax_runtime *rt, struct ax_tensor *own,
                                 struct ax_tensor *all);
/* The codes of a parameter of a gathered segment. */
struct ax_packed ax_segment_codes(const struct ax_segment *seg, const struct ax_param *p);

#endif

/* The training data of `check mesh`: random documents, the same on any mesh. */
#ifndef AX_CMD_CHECK_MESH_TEXT_H
#define AX_CMD_CHECK_MESH_TEXT_H

#include "cmd/check/mesh.h"

#define AX_MESH_DOCS 8 /* per micro-batch, at most */

/* Fills micro-batch m of this rank. The data ranks take a step's micro-batches in turn, as in the
 * training loop, and compute those of one m at one length. */
enum ax_status ax_mesh_fill(struct ax_step *s, const struct ax_mesh_check *c, int m, int step);

#endif

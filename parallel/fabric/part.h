/* A part of a fabric's ranks as a fabric of its own: those from `first` on, numbered from 0. A job whose ranks do
 * different things has a mesh on each part; only a failure is told to all ranks. Communicators of the whole are opened
 * before those of parts, as ranks count what they open. */
#ifndef AX_PARALLEL_FABRIC_PART_H
#define AX_PARALLEL_FABRIC_PART_H

#include "parallel/fabric/fabric.h"

/* Must not move while it is in use. */
struct ax_fabric_part {
    struct ax_fabric fabric;
    struct ax_fabric_ops ops;
    struct ax_fabric *whole;
    int first;
};

/* Makes a part of the n ranks from `first` on, this one among them. `whole` must outlive the part, which needs no
 * free. The hosts of its ranks are not known: local_world is that of the whole. */
void ax_fabric_part_open(struct ax_fabric_part *p, struct ax_fabric *whole, int first, int n);

#endif

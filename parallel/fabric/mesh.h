/* The mesh: ranks laid out as [pp][dp_replicate][dp_shard][cp][tp], tp fastest, and the groups
 * (roles) that collectives run in. Expert view of the same ranks: [pp][dp_replicate][efsdp][ep]
 * with efsdp = dp_shard·cp·tp/ep. */
#ifndef AX_PARALLEL_FABRIC_MESH_H
#define AX_PARALLEL_FABRIC_MESH_H

#include <stdint.h>

#include "base/status.h"

enum ax_role {
    AX_ROLE_TP,           /* splits matrices, and the sequence between layers */
    AX_ROLE_CP,           /* splits sequences */
    AX_ROLE_DP_SHARD,     /* different data, parameters sharded */
    AX_ROLE_DP_REPLICATE, /* different data, parameters replicated */
    AX_ROLE_PP,           /* pipeline stages */
    AX_ROLE_EP,           /* splits experts */
    AX_ROLE_EFSDP,        /* shards experts' parameters */
    AX_ROLE_FSDP,         /* dp_shard × cp: shards dense parameters */
    AX_ROLE_BATCH,        /* dp_replicate × dp_shard: different data */
    AX_ROLE_LOSS,         /* dp_replicate × dp_shard × cp: parts of one loss sum */
    AX_ROLE_WORLD,
    AX_ROLE_COUNT
};

struct ax_mesh_sizes {
    int pp, dp_replicate, dp_shard, cp, tp, ep; /* each ≥ 1; dp_shard −1 = the remaining ranks */
};

struct ax_mesh {
    int world, rank;
    int size[AX_ROLE_COUNT];  /* ranks in this rank's group of a role */
    int coord[AX_ROLE_COUNT]; /* this rank's index in it */
};

/* AX_ERR_CONFIG is one line with the sizes and the nearest valid choice. */
enum ax_status ax_mesh_create(struct ax_mesh *mesh, struct ax_mesh_sizes sizes, int world,
                              int rank);
/* The ranks of this rank's group of a role, ascending by coord; `ranks` holds mesh->size[role]. */
void ax_mesh_group(const struct ax_mesh *mesh, enum ax_role role, int *ranks);
const char *ax_role_name(enum ax_role role);

/* The least common multiple of `of` and 2·cp·tp. Each rank of cp has two pieces of a sequence, which
 * tp splits: a sequence's length is a multiple of this. */
int64_t ax_mesh_token_multiple(const struct ax_mesh *mesh, int64_t of);
/* n rounded up to ax_mesh_token_multiple. */
int64_t ax_mesh_round_tokens(const struct ax_mesh *mesh, int64_t n, int64_t of);

#endif

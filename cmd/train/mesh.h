/* The mesh that a configuration asks for. */
#ifndef AX_CMD_TRAIN_MESH_H
#define AX_CMD_TRAIN_MESH_H

#include "cmd/config/config.h"
#include "parallel/units/unit.h"

/* Sizes for `world` ranks; dp_shard is what the other keys leave, unless dp_shard_size says otherwise.
 * world 0, for plans: as many ranks as the keys name, with dp_shard 1 if it is left. AX_ERR_CONFIG
 * names the nearest valid choice. */
enum ax_status ax_train_mesh_read(struct ax_mesh_sizes *sizes, const struct ax_config *cfg,
                                  int world);
int ax_train_mesh_ranks(const struct ax_mesh_sizes *sizes);

/* What ranks keep of weights and gradients between uses: zero_stage, or the meaning of FSDP's or
 * DeepSpeed's settings; and reduce_dtype. */
enum ax_status ax_train_sharding_read(struct ax_sharding *out, const struct ax_config *cfg);

#endif

/* Sizes of a mesh on a command line: "dp_shard=2", or several with commas between them. */
#ifndef AX_PARALLEL_FABRIC_MESH_SIZES_H
#define AX_PARALLEL_FABRIC_MESH_SIZES_H

#include "parallel/fabric/mesh.h"

/* Sets the sizes that `text` names. AX_ERR_CONFIG begins with the command's name. */
enum ax_status ax_mesh_sizes_parse(struct ax_mesh_sizes *s, const char *command, const char *text);
/* The number of ranks; all sizes must be set. AX_ERR_CONFIG begins with the command's name. */
enum ax_status ax_mesh_sizes_world(const struct ax_mesh_sizes *s, const char *command, int *world);
/* "dp_shard2-tp2": those that are not 1; "" for one rank. buf is returned. */
const char *ax_mesh_sizes_name(char *buf, size_t size, const struct ax_mesh *mesh);

/* "pp0 tp1": the rank's place in them. */
const char *ax_mesh_rank_name(char *buf, size_t size, const struct ax_mesh *mesh);

#endif

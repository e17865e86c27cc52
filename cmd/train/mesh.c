#include "cmd/train/mesh.h"

#include <stddef.h>
#include <string.h>

#include "base/io.h"
#include "base/text/json.h"
#include "base/log.h"

static const struct {
    const char *key;
    size_t offset;
} keys[] = {
    {"dp_shard_size", offsetof(struct ax_mesh_sizes, dp_shard)},
    {"dp_replicate_size", offsetof(struct ax_mesh_sizes, dp_replicate)},
    {"tensor_parallel_size", offsetof(struct ax_mesh_sizes, tp)},
    {"context_parallel_size", offsetof(struct ax_mesh_sizes, cp)},
    {"pipeline_parallel_size", offsetof(struct ax_mesh_sizes, pp)},
    {"expert_parallel_size", offsetof(struct ax_mesh_sizes, ep)},
};

enum { MOST = 1 << 16 };

static enum ax_status read_sizes(struct ax_mesh_sizes *sizes, const struct ax_config *cfg,
                                 const char **set) {
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const int64_t n = ax_config_has(cfg, "%s", keys[i].key)
                              ? ax_config_i64(cfg, "%s", keys[i].key)
                              : -1; /* only dp_shard has no default */
        if (n > MOST)
            return ax_config_error(cfg, keys[i].key, "expected at most %d", MOST);
        *(int *)((char *)sizes + keys[i].offset) = n < 1 ? -1 : (int)n;
        if (ax_config_is_set(cfg, "%s", keys[i].key) && n > 1)
            *set = keys[i].key;
    }
    return AX_OK;
}

int ax_train_mesh_ranks(const struct ax_mesh_sizes *s) {
    int64_t n = 1;
    const int all[] = {s->pp, s->dp_replicate, s->dp_shard > 0 ? s->dp_shard : 1, s->cp, s->tp};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        n = n * all[i] > MOST ? MOST : n * all[i];
    return (int)n;
}

enum ax_status ax_train_mesh_read(struct ax_mesh_sizes *sizes, const struct ax_config *cfg,
                                  int world) {
    const char *set = "dp_shard_size";
    struct ax_mesh mesh;
    AX_TRY(read_sizes(sizes, cfg, &set));
    const int named = ax_train_mesh_ranks(sizes);
    if (world == 1 && named > 1)
        return ax_config_error(cfg, set,
                               "the mesh has %d ranks, and this is one process: start `axtrain "
                               "launch -n %d -- …`, or use torchrun or srun",
                               named, named);
    if (ax_mesh_create(&mesh, *sizes, world > 0 ? world : named, 0) != AX_OK)
        return ax_config_error(cfg, set, "%s", ax_error_text());
    sizes->dp_shard = mesh.size[AX_ROLE_DP_SHARD];
    return AX_OK;
}

/* ---- what ranks keep ---- */

enum { DEEPSPEED_MAX = 1 << 20 }; /* bytes of its settings */

/* A name like deepspeed_configs/zero2.json: its settings need not be on this machine. 0: none. */
static int64_t stage_in_name(const char *path) {
    const char *base = strrchr(path, '/');
    for (const char *at = base ? base : path; (at = strstr(at, "zero")) != NULL; at += 4)
        if (at[4] >= '1' && at[4] <= '3')
            return at[4] - '0';
    return 0;
}

static enum ax_status stage_in_file(const char *path, int64_t *stage) {
    struct ax_json_doc doc;
    AX_TRY(ax_json_load(&doc, path, DEEPSPEED_MAX));
    const struct ax_json zero = ax_json_get(ax_json_root(&doc), "zero_optimization");
    const enum ax_status st = ax_json_i64_or(ax_json_get(zero, "stage"), 0, 3, 0, stage);
    ax_json_free(&doc);
    return st;
}

/* Of settings in the configuration; −1: it is no number of a stage. */
static int64_t stage_in_map(const struct ax_yaml_node *map) {
    const struct ax_yaml_node *zero = ax_yaml_get(map, "zero_optimization");
    const struct ax_yaml_node *number = ax_yaml_get(zero, "stage");
    if (zero && zero->kind != AX_YAML_MAP && zero->kind != AX_YAML_NULL)
        return -1;
    if (!number || number->kind == AX_YAML_NULL)
        return 0;
    return number->kind == AX_YAML_INT ? number->integer : -1;
}

static enum ax_status deepspeed_stage(const struct ax_config *cfg, int64_t *stage) {
    const struct ax_yaml_node *v = ax_config_node(cfg, "deepspeed");
    if (v->kind == AX_YAML_MAP) {
        *stage = stage_in_map(v);
    } else if (ax_path_exists(v->text)) {
        AX_TRY(stage_in_file(v->text, stage));
    } else {
        *stage = stage_in_name(v->text);
        if (*stage == 0)
            return ax_config_error(cfg, "deepspeed",
                                   "%s does not exist, and its name has no zero1, zero2 or zero3; "
                                   "set zero_stage instead",
                                   v->text);
        ax_log_info("deepspeed: %s is not here; its name says ZeRO stage %d", v->text, (int)*stage);
    }
    if (*stage < 0 || *stage > 3)
        return ax_config_error(cfg, "deepspeed", "zero_optimization.stage: expected 0 to 3");
    *stage = *stage == 0 ? 1 : *stage; /* the nearest: optimizer state is always sharded */
    return AX_OK;
}

enum ax_status ax_train_sharding_read(struct ax_sharding *out, const struct ax_config *cfg) {
    int64_t stage = ax_config_holds(cfg, "fsdp_config.reshard_after_forward") ? 3 : 2;
    if (ax_config_holds(cfg, "set(zero_stage)"))
        stage = ax_config_i64(cfg, "zero_stage");
    else if (ax_config_has(cfg, "deepspeed"))
        AX_TRY(deepspeed_stage(cfg, &stage));
    if (stage > 3)
        return ax_config_error(cfg, "zero_stage", "expected 1, 2 or 3");
    *out = ax_zero_stage(stage);
    AX_FILL(cfg, "", struct ax_sharding, out);
    if (ax_config_holds(cfg, "fsdp_prefetch > 1"))
        return ax_config_error(cfg, "fsdp_prefetch", "expected 0 or 1");
    if (stage != 3 && ax_config_holds(cfg, "layer_offloading"))
        return ax_config_error(cfg, "layer_offloading",
                               "ZeRO stage %d keeps the weights that this would move away: set "
                               "zero_stage: 3, or layer_offloading: false",
                               (int)stage);
    return AX_OK;
}

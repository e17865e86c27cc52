#include "cmd/train/elastic.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"

/* ---- smaller meshes ---- */

/* How many of n data ranks shard the weights: as many as before, or the next number that divides n, so that a rank needs
 * no more memory unless there are too few. */
static int shards_of(int n, int before) {
    int shards = before < n ? before : n;
    while (n % shards != 0)
        shards++;
    return shards;
}

static bool make_mesh(struct ax_mesh_sizes sizes, const struct ax_elastic_batch *b, int data_ranks,
                      struct ax_notes_mesh *out) {
    struct ax_mesh mesh;
    const int before = sizes.dp_replicate * sizes.dp_shard;
    const int64_t rows = (int64_t)b->accumulation * before, batches = b->batches * before;
    char generation[64] = "";
    sizes.dp_shard = shards_of(data_ranks, sizes.dp_shard);
    sizes.dp_replicate = data_ranks / sizes.dp_shard;
    out->ranks = data_ranks * sizes.pp * sizes.cp * sizes.tp;
    if (rows % data_ranks != 0 || batches % data_ranks != 0 ||
        ax_mesh_create(&mesh, sizes, out->ranks, 0) != AX_OK) {
        ax_error_clear();
        return false;
    }
    const long long steps = batches / data_ranks;
    if (steps > 0)
        snprintf(generation, sizeof generation, " trl.steps_per_generation=%lld", steps);
    const long long each = rows / data_ranks * b->per;
    snprintf(out->words, sizeof out->words, "dp_replicate_size=%d dp_shard_size=%d %s=%lld%s",
             sizes.dp_replicate, sizes.dp_shard, b->key, each, generation);
    return true;
}

int ax_elastic_meshes(const struct ax_mesh_sizes *sizes, const struct ax_elastic_batch *batch,
                      int most, struct ax_notes_mesh *meshes) {
    int n = 0;
    for (int d = sizes->dp_replicate * sizes->dp_shard - 1; d > 0 && n < most; d--)
        n += make_mesh(*sizes, batch, d, &meshes[n]);
    return n;
}

/* ---- the key ---- */

static void tell_launcher(const struct ax_train_setup *s) {
    const struct ax_config *cfg = s->cfg;
    const bool rows = ax_config_is_set(cfg, "batch_size"),
               generates = ax_config_is_set(cfg, "trl.steps_per_generation");
    const struct ax_elastic_batch batch = {
        .accumulation = s->o.step.n_microbatches,
        .key = rows ? "batch_size" : "gradient_accumulation_steps",
        .per = rows ? ax_config_i64(cfg, "micro_batch_size") : 1,
        .batches = generates ? ax_config_i64(cfg, "trl.steps_per_generation") : 0};
    struct ax_notes_mesh meshes[AX_NOTES_MESHES];
    ax_note_elastic(ax_elastic_meshes(&s->o.runtime.sizes, &batch, AX_NOTES_MESHES, meshes),
                    meshes);
}

enum ax_status ax_setup_elastic_read(struct ax_train_setup *s) {
    const char *dir = getenv("AXTRAIN_ELASTIC");
    const bool leads = !s->fabric || s->fabric->rank == 0;
    if (!ax_config_holds(s->cfg, "elastic"))
        return AX_OK;
    if (dir && *dir) {
        s->o.elastic.dir = dir;
        if (leads)
            tell_launcher(s);
    } else if (leads) {
        ax_log_warn("elastic: a lost rank ends this run, and resume_from_checkpoint goes on from "
                    "the newest checkpoint on the disk. Only `axtrain launch` on one host, with "
                    "/dev/shm, starts the other ranks again");
    }
    return AX_OK;
}

#include "cmd/ranks.h"

#include <stdio.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/log.h"
#include "parallel/fabric/mesh_sizes.h"
#include "kernels/backend.h"

/* How long ranks wait for each other at the start, and later for a rank that still computes or
 * waits for its user. A rank that ends is noticed immediately. */
static const double JOIN_SECONDS = 1800, WAIT_SECONDS = 7 * 86400.0;

static uint64_t hash_words(int argc, char **argv) {
    uint64_t hash = 0;
    for (int i = 0; i < argc; i++)
        hash = ax_hash64(argv[i], strlen(argv[i]) + 1, hash);
    return hash;
}

/* The ranks that --mesh leaves have copies of the model, or split it. */
static void fill(struct ax_mesh_sizes *s, bool one_answer, int world) {
    int *open = one_answer ? &s->tp : &s->dp_replicate;
    int *const all[] = {&s->pp, &s->dp_replicate, &s->dp_shard, &s->cp, &s->tp, &s->ep};
    int64_t named = 1;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        named *= all[i] != &s->ep && *all[i] > 0 && named < world ? *all[i] : 1;
    if (*open == 0 && world % named == 0)
        *open = (int)(world / named);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        *all[i] = *all[i] > 0 ? *all[i] : 1;
}

/* Answers that nobody trains on. */
static enum ax_status check_mesh(const struct ax_mesh *mesh, const struct ax_ranks_options *o) {
    const int pp = mesh->size[AX_ROLE_PP], cp = mesh->size[AX_ROLE_CP];
    if (pp == 1 && cp == 1)
        return AX_OK;
    return ax_error(AX_ERR_UNSUPPORTED,
                    "mesh: pp %d and cp %d, but %s supports only tp, ep, dp_replicate and dp_shard "
                    "so far. Nearest: pp 1 and cp 1.",
                    pp, cp, o->command);
}

static enum ax_status find_mesh(struct ax_ranks *r, const struct ax_ranks_options *o) {
    struct ax_mesh mesh;
    if (o->mesh)
        AX_TRY(ax_mesh_sizes_parse(&r->sizes, o->command, o->mesh));
    fill(&r->sizes, o->one_answer, r->world.env.world);
    AX_TRY(ax_mesh_create(&mesh, r->sizes, r->world.env.world, r->world.env.rank));
    AX_TRY(check_mesh(&mesh, o));
    if (o->one_answer && mesh.size[AX_ROLE_BATCH] > 1)
        return ax_error(AX_ERR_CONFIG,
                        "mesh: dp_replicate %d and dp_shard %d, but %s has one conversation, which "
                        "data ranks cannot share. Nearest: tp %d.",
                        r->sizes.dp_replicate, r->sizes.dp_shard, o->command, mesh.world);
    return AX_OK;
}

static enum ax_status be_silent(const struct ax_ranks *r) {
    if (ax_ranks_lead(r))
        return AX_OK;
    if (ax_log_get_level() > AX_LOG_ERROR)
        ax_log_set_level(AX_LOG_ERROR); /* rank 0 says the rest */
    if (!freopen("/dev/null", "w", stdout))
        return ax_error(AX_ERR_IO, "/dev/null: %m");
    return AX_OK;
}

static enum ax_status open_all(struct ax_ranks *r, const struct ax_ranks_options *o) {
    AX_TRY(be_silent(r));
    AX_TRY(find_mesh(r, o));
    AX_TRY(ax_backend_choose(o->device, false, &r->backend));
    return ax_team_open(&r->team, r->world.fabric);
}

enum ax_status ax_ranks_open(struct ax_ranks *r, const struct ax_ranks_options *o,
                             enum ax_status parsed) {
    const struct ax_world_options wo = {.config = hash_words(o->argc, o->argv),
                                        .timeout = JOIN_SECONDS,
                                        .patience = o->meets ? 0 : WAIT_SECONDS};
    memset(r, 0, sizeof *r);
    if (parsed != AX_OK)
        return ax_world_report(parsed);
    AX_TRY(ax_world_open(&r->world, &wo));
    const enum ax_status st = open_all(r, o);
    if (st != AX_OK)
        ax_ranks_close(r, st);
    return st;
}

void ax_ranks_close(struct ax_ranks *r, enum ax_status st) {
    struct ax_error_record own;
    ax_error_save(&own, st);
    if (st != AX_OK && r->world.fabric) /* before a communicator is gone, which says less */
        r->world.fabric->ops->fail(r->world.fabric, st);
    ax_team_close(&r->team);
    (void)ax_error_restore(&own);
    ax_world_close(&r->world, st);
}

bool ax_ranks_lead(const struct ax_ranks *r) {
    return !r || r->world.env.rank == 0;
}

struct ax_runtime_options ax_ranks_runtime(const struct ax_ranks *r, int threads) {
    struct ax_runtime_options o = {.backend = r ? r->backend : "cpu", .threads = threads};
    if (r) {
        o.sizes = r->sizes;
        o.fabric = r->world.fabric;
    }
    return o;
}

enum ax_status ax_ranks_share(struct ax_ranks *r, struct ax_buf *b) {
    return ax_team_share_text(&r->team, b);
}

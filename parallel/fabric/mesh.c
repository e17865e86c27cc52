/* Rank ↔ coordinates as mixed-radix numbers, and roles as sets of varying dimensions. */
#include "parallel/fabric/mesh.h"

#include <stdio.h>

enum { PP, REP, SHARD, CP, TP, DIMS };
enum { EPP, EREP, EFSDP, EEP, EDIMS };

/* Which dimensions vary inside a group of the role; in the expert view for rows with `expert`. */
static const struct {
    const char *name;
    int expert;
    unsigned varies;
} roles[AX_ROLE_COUNT] = {
    [AX_ROLE_TP] = {"tp", 0, 1u << TP},
    [AX_ROLE_CP] = {"cp", 0, 1u << CP},
    [AX_ROLE_DP_SHARD] = {"dp_shard", 0, 1u << SHARD},
    [AX_ROLE_DP_REPLICATE] = {"dp_replicate", 0, 1u << REP},
    [AX_ROLE_PP] = {"pp", 0, 1u << PP},
    [AX_ROLE_EP] = {"ep", 1, 1u << EEP},
    [AX_ROLE_EFSDP] = {"efsdp", 1, 1u << EFSDP},
    [AX_ROLE_FSDP] = {"fsdp", 0, 1u << SHARD | 1u << CP},
    [AX_ROLE_BATCH] = {"batch", 0, 1u << REP | 1u << SHARD},
    [AX_ROLE_LOSS] = {"loss", 0, 1u << REP | 1u << SHARD | 1u << CP},
    [AX_ROLE_WORLD] = {"world", 0, (1u << DIMS) - 1},
};

const char *ax_role_name(enum ax_role role) {
    return roles[role].name;
}

/* Sizes of the dense view, recovered from the role sizes. */
static int view_dims(const struct ax_mesh *mesh, int expert, int dims[DIMS]) {
    if (expert) {
        dims[EPP] = mesh->size[AX_ROLE_PP];
        dims[EREP] = mesh->size[AX_ROLE_DP_REPLICATE];
        dims[EFSDP] = mesh->size[AX_ROLE_EFSDP];
        dims[EEP] = mesh->size[AX_ROLE_EP];
        return EDIMS;
    }
    dims[PP] = mesh->size[AX_ROLE_PP];
    dims[REP] = mesh->size[AX_ROLE_DP_REPLICATE];
    dims[SHARD] = mesh->size[AX_ROLE_DP_SHARD];
    dims[CP] = mesh->size[AX_ROLE_CP];
    dims[TP] = mesh->size[AX_ROLE_TP];
    return DIMS;
}

static void rank_to_coords(int rank, int n, const int *dims, int *coords) {
    for (int d = n - 1; d >= 0; d--) {
        coords[d] = rank % dims[d];
        rank /= dims[d];
    }
}

static int coords_to_rank(int n, const int *dims, const int *coords) {
    int rank = 0;
    for (int d = 0; d < n; d++)
        rank = rank * dims[d] + coords[d];
    return rank;
}

/* The product of n sizes, saturating. */
static int64_t product(int n, const int *sizes) {
    int64_t p = 1;
    for (int i = 0; i < n; i++)
        if (__builtin_mul_overflow(p, sizes[i], &p))
            return INT64_MAX;
    return p;
}

static enum ax_status check_sizes(struct ax_mesh_sizes *s, int world) {
    const int given[] = {s->pp, s->dp_replicate, s->cp, s->tp, s->ep};
    static const char *const names[] = {"pp", "dp_replicate", "cp", "tp", "ep"};
    for (int i = 0; i < 5; i++)
        if (given[i] < 1)
            return ax_error(AX_ERR_CONFIG, "mesh: %s = %d, but sizes must be at least 1", names[i],
                            given[i]);
    const int64_t fixed = product(4, given); /* all except dp_shard; ep is another view */
    if (s->dp_shard == -1 && fixed <= world && world % fixed == 0)
        s->dp_shard = (int)(world / fixed);
    if (s->dp_shard < 1 || world % fixed != 0 || world / fixed != s->dp_shard) {
        int64_t shard = world / fixed > 0 ? world / fixed : 1;
        return ax_error(AX_ERR_CONFIG,
                        "mesh: pp %d × dp_replicate %d × dp_shard %d × cp %d × tp %d does not "
                        "equal the number of ranks, %d. Nearest: dp_shard %lld with %lld ranks.",
                        s->pp, s->dp_replicate, s->dp_shard, s->cp, s->tp, world, (long long)shard,
                        (long long)(shard * fixed));
    }
    int inner = s->dp_shard * s->cp * s->tp;
    if (inner % s->ep != 0) {
        int near = s->ep < inner ? s->ep : inner;
        while (inner % near != 0)
            near--;
        return ax_error(AX_ERR_CONFIG,
                        "mesh: ep %d does not divide dp_shard %d × cp %d × tp %d = %d. Nearest: ep "
                        "%d.",
                        s->ep, s->dp_shard, s->cp, s->tp, inner, near);
    }
    return AX_OK;
}

enum ax_status ax_mesh_create(struct ax_mesh *mesh, struct ax_mesh_sizes sizes, int world,
                              int rank) {
    if (world < 1 || rank < 0 || rank >= world)
        return ax_error(AX_ERR_CONFIG, "mesh: rank %d of %d ranks does not exist", rank, world);
    AX_TRY(check_sizes(&sizes, world));
    *mesh = (struct ax_mesh){.world = world, .rank = rank};
    mesh->size[AX_ROLE_PP] = sizes.pp;
    mesh->size[AX_ROLE_DP_REPLICATE] = sizes.dp_replicate;
    mesh->size[AX_ROLE_DP_SHARD] = sizes.dp_shard;
    mesh->size[AX_ROLE_CP] = sizes.cp;
    mesh->size[AX_ROLE_TP] = sizes.tp;
    mesh->size[AX_ROLE_EP] = sizes.ep;
    mesh->size[AX_ROLE_EFSDP] = sizes.dp_shard * sizes.cp * sizes.tp / sizes.ep;
    for (int role = 0; role < AX_ROLE_COUNT; role++) {
        int dims[DIMS], coords[DIMS], size = 1, at = 0;
        int n = view_dims(mesh, roles[role].expert, dims);
        rank_to_coords(rank, n, dims, coords);
        for (int d = 0; d < n; d++) {
            if (!(roles[role].varies >> d & 1))
                continue;
            size *= dims[d];
            at = at * dims[d] + coords[d];
        }
        mesh->size[role] = size;
        mesh->coord[role] = at;
    }
    return AX_OK;
}

void ax_mesh_group(const struct ax_mesh *mesh, enum ax_role role, int *ranks) {
    int dims[DIMS], coords[DIMS];
    int n = view_dims(mesh, roles[role].expert, dims);
    rank_to_coords(mesh->rank, n, dims, coords);
    for (int i = 0; i < mesh->size[role]; i++) {
        int left = i;
        for (int d = n - 1; d >= 0; d--) {
            if (!(roles[role].varies >> d & 1))
                continue;
            coords[d] = left % dims[d];
            left /= dims[d];
        }
        ranks[i] = coords_to_rank(n, dims, coords);
    }
}

int64_t ax_mesh_token_multiple(const struct ax_mesh *mesh, int64_t of) {
    const int64_t pieces = 2 * (int64_t)mesh->size[AX_ROLE_CP] * mesh->size[AX_ROLE_TP];
    int64_t a = of, b = pieces;
    AX_ASSERT(of > 0 && pieces > 0);
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return of / a * pieces;
}

int64_t ax_mesh_round_tokens(const struct ax_mesh *mesh, int64_t n, int64_t of) {
    const int64_t m = ax_mesh_token_multiple(mesh, of);
    return (n + m - 1) / m * m;
}

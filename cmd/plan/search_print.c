/* The best meshes, and why others are not among them. */
#include <stdio.h>

#include "base/clock.h"
#include "cmd/mesh_sizes.h"
#include "cmd/plan/search.h"

static const char *const reasons[AX_SEARCH_REASONS] = {
    [AX_SEARCH_TP_FAR] = "tp across nodes",
    [AX_SEARCH_CP_SHORT] = "cp leaves less than 4096 tokens of a sequence to a rank",
    [AX_SEARCH_REPLICAS] = "weights shared by other groups than one node, eight, or all",
    [AX_SEARCH_EXPERTS] = "experts over a part of a node",
    [AX_SEARCH_PIPELINE] = "more stages than layers, or than micro-batches",
    [AX_SEARCH_BATCH] = "the step's sequences cannot be divided among the data ranks",
    [AX_SEARCH_MODEL] = "the model cannot be split so",
    [AX_SEARCH_STATES] = "weights and optimizer state alone need more memory",
    [AX_SEARCH_MEMORY] = "a step needs more memory, even with recompute",
    [AX_SEARCH_SLOWER] = "slower",
};

static const char *mesh_name(char *buf, size_t size, const struct ax_search_choice *c, int world) {
    struct ax_mesh mesh;
    if (ax_mesh_create(&mesh, c->sizes, world, 0) != AX_OK)
        return "?";
    ax_mesh_sizes_name(buf, size, &mesh);
    return buf[0] ? buf : "one rank";
}

static void print_choice(const struct ax_search_choice *c, int world, int place) {
    char name[96], a[32], b[32], d[32];
    printf(
        "best %d   %s, micro-batches of %lld, recompute %s: %s per step, %s tokens/s, MFU %.1f %%, "
        "%s of memory\n",
        place, mesh_name(name, sizeof name, c, world), (long long)c->rows,
        ax_recompute_name(c->recompute), ax_format_seconds(a, sizeof a, c->time.step),
        ax_format_count(b, sizeof b, c->time.tokens_per_second), 100 * c->time.mfu,
        ax_format_bytes(d, sizeof d, (double)c->time.arena));
}

enum ax_status ax_plan_search(const struct ax_plan_request *r) {
    struct ax_search s;
    char took[32];
    AX_TRY(ax_search_run(&s, r));
    printf("search   %d meshes of %d ranks of %s, in %s\n", s.tried, r->runtime.world,
           r->rates->hardware.name, ax_format_seconds(took, sizeof took, s.seconds));
    for (int i = 0; i < s.n; i++)
        print_choice(&s.best[i], r->runtime.world, i + 1);
    printf("left out");
    for (int i = 0; i < AX_SEARCH_REASONS; i++)
        if (s.left_out[i] > 0)
            printf(" %d: %s\n        ", s.left_out[i], reasons[i]);
    printf("\n");
    if (s.n > 0)
        return AX_OK;
    return ax_error(AX_ERR_CONFIG,
                    "plan: no mesh of %d ranks of %s fits. Use more ranks, shorter sequences, an "
                    "adapter, or masters of fewer bits.",
                    r->runtime.world, r->rates->hardware.name);
}

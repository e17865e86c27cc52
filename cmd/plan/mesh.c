/* Two tables: what each pipeline stage needs, and what a rank sends in a step. */
#include <stdio.h>

#include "base/clock.h"
#include "cmd/mesh_sizes.h"
#include "cmd/plan/plan.h"

static void print_stage(const struct ax_plan_stage *s) {
    char place[64], bytes[32], has[48];
    snprintf(has, sizeof has, "%s%d layer%s%s", s->plan.has_embedding ? "embedding, " : "",
             s->plan.n_layers, s->plan.n_layers == 1 ? "" : "s", s->plan.has_head ? ", head" : "");
    printf("         %-5d %10s  %-27s %s\n", s->mesh.rank,
           ax_format_bytes(bytes, sizeof bytes, (double)s->arena), has,
           ax_mesh_rank_name(place, sizeof place, &s->mesh));
}

/* The most that a rank of any stage sends. */
static double most_sent(const struct ax_plan_figures *f, int role, int kind) {
    double most = 0;
    for (int i = 0; i < f->n_stages; i++) {
        const double bytes = f->stages[i].plan.bytes_sent[role][kind];
        most = bytes > most ? bytes : most;
    }
    return most;
}

static bool is_used(const struct ax_plan_figures *f, int kind) {
    bool used = false;
    for (int role = 0; role < AX_ROLE_COUNT; role++)
        used = used || most_sent(f, role, kind) > 0;
    return used;
}

static void print_traffic(const struct ax_plan_figures *f) {
    char bytes[32];
    printf("sent     at most, by a rank in a step\n         %-12s", "role");
    for (int kind = 0; kind < AX_COLLECTIVE_COUNT; kind++)
        if (is_used(f, kind))
            printf(" %14s", ax_collective_name((enum ax_collective_kind)kind));
    printf("\n");
    for (int role = 0; role < AX_ROLE_COUNT; role++) {
        double all = 0;
        for (int kind = 0; kind < AX_COLLECTIVE_COUNT; kind++)
            all += most_sent(f, role, kind);
        if (all == 0)
            continue;
        printf("         %-12s", ax_role_name((enum ax_role)role));
        for (int kind = 0; kind < AX_COLLECTIVE_COUNT; kind++)
            if (is_used(f, kind))
                printf(" %14s", most_sent(f, role, kind) > 0
                                    ? ax_format_bytes(bytes, sizeof bytes, most_sent(f, role, kind))
                                    : "-");
        printf("\n");
    }
}

void ax_plan_print_mesh(const struct ax_plan_figures *f) {
    if (f->n_stages == 0)
        return;
    printf("stages   of each the rank that needs most\n         %-5s %10s  %-27s %s\n", "rank",
           "memory", "has", "place");
    for (int i = 0; i < f->n_stages; i++)
        print_stage(&f->stages[i]);
    print_traffic(f);
}

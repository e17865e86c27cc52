/* The parts of a round, and their all-to-alls: see expert.h. */
#include "parallel/units/expert.h"

/* Rows that this rank sends to each rank in a part of a round, then those that it gets. */
static const int64_t *rows_of(const struct ax_expert_group *g, const struct ax_expert_route *r,
                              int round, int part) {
    return r->rounds->rows + ((int64_t)round * g->parts + part) * 2 * g->ranks;
}

static int64_t sum(const struct ax_expert_group *g, const int64_t *rows) {
    int64_t n = 0;
    for (int rank = 0; rank < g->ranks; rank++)
        n += rows[rank];
    return n;
}

static int64_t received(const struct ax_expert_group *g, const struct ax_expert_route *r,
                        int part) {
    return sum(g, rows_of(g, r, r->rounds->open, part) + g->ranks);
}

/* Rows here in the open round if experts were evenly loaded. */
static int64_t even_count(const struct ax_expert_group *g, const struct ax_expert_route *r) {
    const int64_t all = ax_tensor_numel(&r->places);
    if (g->ranks == 1)
        return all;
    const int64_t room = r->regroup.shape[0], left = all - r->rounds->open * room;
    return left < 0 ? 0 : left < room ? left : room;
}

struct ax_expert_part ax_expert_part(const struct ax_expert_group *g,
                                     const struct ax_expert_route *r, int part) {
    const int64_t first = ax_expert_part_begin(g->n_local, g->parts, part), even = even_count(g, r);
    const int64_t end = ax_expert_part_begin(g->n_local, g->parts, part + 1);
    struct ax_expert_part p = {.first = first,
                               .n = end - first,
                               .rows = ax_tensor_numel(&r->places),
                               .expected = even * end / g->n_local - even * first / g->n_local};
    if (g->ranks == 1)
        return p;
    p.rows = received(g, r, part);
    for (int before = 0; before < part; before++)
        p.row += received(g, r, before);
    return p;
}

struct ax_expert_part ax_expert_parts(const struct ax_expert_group *g,
                                      const struct ax_expert_route *r) {
    const struct ax_expert_part last = ax_expert_part(g, r, g->parts - 1);
    return (struct ax_expert_part){
        .n = g->n_local, .rows = last.row + last.rows, .expected = even_count(g, r)};
}

/* This rank's sorted rows of a part of the open round. Sets the elements of the next all-to-all. */
static struct ax_tensor rows_sent(struct ax_expert_group *g, const struct ax_expert_route *r,
                                  int part, const struct ax_tensor *sorted) {
    const int parts = r->rounds->open * g->parts + part;
    const int64_t *rows = rows_of(g, r, r->rounds->open, part);
    int64_t first = 0;
    for (int before = 0; before < parts; before++)
        first += sum(g, rows_of(g, r, 0, before));
    for (int rank = 0; rank < g->ranks; rank++) {
        g->sent[rank] = rows[rank] * sorted->shape[1];
        g->received[rank] = rows[g->ranks + rank] * sorted->shape[1];
    }
    return ax_tensor_rows(sorted, first, sum(g, rows));
}

static enum ax_status settle(struct ax_runtime *rt, struct ax_ticket *ticket) {
    if (ticket->id > 0)
        AX_TRY(ax_comm_wait(&rt->comms[AX_ROLE_EP], rt->q, *ticket));
    ticket->id = 0;
    return AX_OK;
}

/* In line, it is there when this returns. */
static enum ax_status all_to_all(const struct ax_expert_group *g, struct ax_runtime *rt,
                                 const struct ax_tensor *send, const int64_t *sent,
                                 const struct ax_tensor *recv, const int64_t *received,
                                 struct ax_ticket *ticket) {
    struct ax_comm *c = &rt->comms[AX_ROLE_EP];
    const struct ax_collective what = {.kind = AX_ALL_TO_ALL_V,
                                       .dtype = send->dtype,
                                       .send = send->data,
                                       .recv = recv->data,
                                       .send_counts = sent,
                                       .recv_counts = received};
    AX_TRY(ax_comm_start(c, rt->q, &what, ticket));
    return g->overlap ? AX_OK : settle(rt, ticket);
}

struct ax_expert_transfer ax_expert_transfer(const struct ax_expert_group *g, struct ax_runtime *rt,
                                             const struct ax_tensor *rows) {
    struct ax_expert_transfer t = {.transit = *rows};
    if (g->ranks > 1)
        t.transit.data =
            ax_stack_push(&rt->arena.scratch, "rows in transit", ax_tensor_bytes(rows));
    return t;
}

enum ax_status ax_expert_send(struct ax_expert_group *g, struct ax_runtime *rt,
                              const struct ax_expert_route *r, const struct ax_tensor *sorted,
                              struct ax_expert_transfer *t) {
    for (int part = 0; part < g->parts && g->ranks > 1; part++) {
        const struct ax_expert_part p = ax_expert_part(g, r, part);
        const struct ax_tensor came = ax_tensor_rows(&t->transit, p.row, p.rows);
        const struct ax_tensor sent = rows_sent(g, r, part, sorted);
        AX_TRY(all_to_all(g, rt, &sent, g->sent, &came, g->received, &t->tickets[part]));
    }
    return AX_OK;
}

enum ax_status ax_expert_receive(const struct ax_expert_group *g, struct ax_runtime *rt,
                                 const struct ax_expert_route *r, int part,
                                 struct ax_expert_transfer *t, const struct ax_tensor *rows) {
    if (g->ranks == 1)
        return AX_OK;
    const struct ax_expert_part p = ax_expert_part(g, r, part);
    AX_TRY(settle(rt, &t->tickets[part]));
    return ax_run_scatter_rows(
        rt->q, &(struct ax_scatter_rows){.dst = *rows,
                                         .src = ax_tensor_rows(&t->transit, p.row, p.rows),
                                         .rows = ax_tensor_rows(&r->regroup, p.row, p.rows)});
}

/* The rows' memory in transit is free: those that came have been received. */
enum ax_status ax_expert_give_back(struct ax_expert_group *g, struct ax_runtime *rt,
                                   const struct ax_expert_route *r, int part,
                                   struct ax_expert_transfer *t, const struct ax_tensor *rows,
                                   const struct ax_tensor *sorted) {
    if (g->ranks == 1)
        return AX_OK;
    const struct ax_expert_part p = ax_expert_part(g, r, part);
    const struct ax_tensor leave = ax_tensor_rows(&t->transit, p.row, p.rows);
    const struct ax_tensor back = rows_sent(g, r, part, sorted);
    AX_TRY(ax_run_combine_forward(
        rt->q, &(struct ax_combine_forward){.src = *rows,
                                            .rows = ax_tensor_rows(&r->regroup, p.row, p.rows),
                                            .out = leave}));
    return all_to_all(g, rt, &leave, g->received, &back, g->sent, &t->tickets[part]);
}

enum ax_status ax_expert_settle(const struct ax_expert_group *g, struct ax_runtime *rt,
                                struct ax_expert_transfer *t) {
    for (int part = 0; part < g->parts; part++)
        AX_TRY(settle(rt, &t->tickets[part]));
    return AX_OK;
}

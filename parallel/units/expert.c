/* Sorting rows by expert, and rounds: see expert.h. Then the way of a round. */
#include "parallel/units/expert.h"

#include <math.h>

#include "base/mem.h"

enum ax_status ax_expert_group_create(struct ax_expert_group *g, const struct ax_runtime *rt,
                                      int64_t n_experts, double room, bool overlap) {
    const int ranks = rt->mesh.size[AX_ROLE_EP];
    *g = (struct ax_expert_group){.ranks = ranks,
                                  .rank = rt->mesh.coord[AX_ROLE_EP],
                                  .room = room > 0 ? room : AX_EXPERT_ROOM,
                                  .overlap = overlap,
                                  .n_experts = n_experts};
    if (n_experts % ranks != 0) {
        int near = ranks;
        while (n_experts % near != 0)
            near--;
        return ax_error(AX_ERR_CONFIG,
                        "mesh: ep %d does not divide the %lld experts. Nearest: ep %d.", ranks,
                        (long long)n_experts, near);
    }
    g->n_local = n_experts / ranks;
    g->first = g->rank * g->n_local;
    g->parts = overlap && ranks > 1 && g->n_local > 1 ? AX_EXPERT_PARTS : 1;
    const size_t counts = (size_t)ranks * (size_t)n_experts;
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&g->counts, 2 * counts, sizeof *g->counts), st, fail);
    AX_TRY_GOTO(ax_alloc(&g->sent, 2 * (size_t)ranks, sizeof *g->sent), st, fail);
    g->even = g->counts + counts;
    g->received = g->sent + ranks;
    return AX_OK;
fail:
    ax_expert_group_free(g);
    return st;
}

void ax_expert_group_free(struct ax_expert_group *g) {
    ax_free(g->counts);
    ax_free(g->sent);
    *g = (struct ax_expert_group){0};
}

/* The most rows for one rank: a token goes to an expert at most once. */
static int64_t worst(const struct ax_expert_group *g, int64_t T, int64_t k) {
    return g->ranks * T * (k < g->n_local ? k : g->n_local);
}

int64_t ax_expert_capacity(const struct ax_expert_group *g, int64_t T, int64_t k) {
    const int64_t most = worst(g, T, k);
    const double room = ceil(g->room * (double)(T * k));
    return g->ranks == 1 || room >= (double)most ? most : (int64_t)room;
}

/* Of the room, a round at least takes room·T·k rows, whatever T is. */
int ax_expert_most_rounds(const struct ax_expert_group *g, int64_t k) {
    const double most = ceil((double)worst(g, 1, k) / (g->room * (double)k));
    return g->ranks == 1 || most <= 1 ? 1 : (int)most;
}

enum ax_status ax_expert_rounds_create(struct ax_expert_rounds **r, const struct ax_expert_group *g,
                                       int64_t k, int n) {
    const size_t most = (size_t)ax_expert_most_rounds(g, k);
    const size_t one = most * (size_t)(g->parts * 2 * g->ranks);
    const size_t ends = most * (size_t)(g->n_local + 1);
    enum ax_status st;
    AX_TRY(ax_alloc(r, (size_t)n, sizeof **r));
    AX_TRY_GOTO(ax_alloc(&(*r)->rows, (size_t)n * one, sizeof *(*r)->rows), st, fail);
    AX_TRY_GOTO(ax_alloc(&(*r)->ends, (size_t)n * ends, sizeof *(*r)->ends), st, fail);
    for (int i = 0; i < n; i++)
        (*r)[i] = (struct ax_expert_rounds){
            .n = 1, .rows = (*r)->rows + (size_t)i * one, .ends = (*r)->ends + (size_t)i * ends};
    return AX_OK;
fail:
    ax_expert_rounds_free(*r);
    *r = NULL;
    return st;
}

void ax_expert_rounds_free(struct ax_expert_rounds *r) {
    if (r) {
        ax_free(r->rows);
        ax_free(r->ends);
    }
    ax_free(r);
}

/* Every rank has n rows, distributed over the experts as evenly as possible. */
static void fill_even(struct ax_expert_group *g, int64_t n) {
    const int64_t E = g->n_experts;
    for (int64_t i = 0; i < g->ranks * E; i++)
        g->even[i] = (int32_t)(n * (i % E + 1) / E - n * (i % E) / E);
}

/* Rows [from, to) of a rank's are split among rounds. */
static void split(int64_t *rows, int64_t stride, int64_t room, int64_t from, int64_t to) {
    for (int64_t at = from, end; at < to; at = end) {
        const int64_t round = at / room;
        end = (round + 1) * room < to ? (round + 1) * room : to;
        rows[round * stride] += end - at;
    }
}

/* Index of the first expert of a part among the rank's experts. */
static int64_t part_begin(int64_t n_local, int parts, int part) {
    return n_local * part / parts;
}

static int part_of(int64_t n_local, int parts, int64_t e) {
    int part = parts - 1;
    while (e < part_begin(n_local, parts, part))
        part--;
    return part;
}

/* Where a rank's rows of one more expert, which end at `end` in the order of all rounds, do in each. */
static void note_end(const struct ax_expert_group *g, const struct ax_expert_rounds *rounds,
                     int most, int64_t room, int64_t e, int64_t end) {
    for (int i = 0; i < most; i++) {
        const int64_t left = end - i * room;
        rounds->ends[i * (g->n_local + 1) + e + 1] = (int32_t)(left < 0      ? 0
                                                               : left < room ? left
                                                                             : room);
    }
}

/* The rounds from all ranks' counts, at most `most`. */
static enum ax_status plan_rounds(const struct ax_expert_group *g, const struct ax_expert_route *r,
                                  int most) {
    struct ax_expert_rounds *rounds = r->rounds;
    const int64_t room = r->regroup.shape[0], stride = (int64_t)2 * g->parts * g->ranks;
    int64_t busiest = 0;
    for (int64_t i = 0; i < most * stride; i++)
        rounds->rows[i] = 0;
    for (int to = 0; to < g->ranks; to++) {
        int64_t at = 0;
        for (int64_t e = to * g->n_local; e < (to + 1) * g->n_local; e++) {
            int64_t *rows =
                rounds->rows + 2 * g->ranks * part_of(g->n_local, g->parts, e % g->n_local);
            for (int from = 0; from < g->ranks; from++) {
                const int64_t end = at + g->counts[from * g->n_experts + e];
                if (end > most * room)
                    return ax_error(AX_ERR_FAILED,
                                    "experts: rank %d of ep gets more than %lld rows; this is a "
                                    "bug in axtrain",
                                    to, (long long)(most * room));
                if (from == g->rank)
                    split(rows + to, stride, room, at, end);
                if (to == g->rank)
                    split(rows + g->ranks + from, stride, room, at, end);
                at = end;
            }
            if (to == g->rank)
                note_end(g, rounds, most, room, e - g->first, at);
        }
        busiest = at > busiest ? at : busiest;
    }
    rounds->n = busiest > room ? (int)((busiest + room - 1) / room) : 1;
    rounds->open = -1;
    return AX_OK;
}

/* Tells all ranks how many rows this one has for each expert; the host reads what all have. */
static enum ax_status exchange_counts(struct ax_expert_group *g, struct ax_runtime *rt,
                                      const struct ax_expert_route *r) {
    const struct ax_collective gather = {.kind = AX_ALL_GATHER,
                                         .dtype = AX_I32,
                                         .send = ax_tensor_row(&r->counts, g->rank),
                                         .recv = r->counts.data,
                                         .count = g->n_experts};
    AX_TRY(ax_comm_run(&rt->comms[AX_ROLE_EP], rt->q, &gather));
    fill_even(g, ax_tensor_numel(&r->places));
    return ax_queue_read(rt->q, r->counts.data, g->counts, ax_tensor_bytes(&r->counts), g->even);
}

/* What the calls know of a route. */
struct route {
    int64_t n_experts, n_local, first, room, n;
    int ranks, rank, round, parts;
};

/* keys[i] = (round·parts + part)·E + expert of choice i. In: places by expert, whose rows begin at sorted[expert]. */
static enum ax_status find_rounds(struct ax_queue *q, const void *args, void *const *at) {
    const struct route *r = args;
    const int32_t *counts = at[0], *sorted = at[1], *experts = at[2], *places = at[3];
    int32_t *keys = at[4], *starts = at[5];
    int64_t row = 0;
    (void)q;
    for (int64_t e = 0; e < r->n_experts; e++) { /* where its rank's order has this rank's rows */
        row = e % r->n_local == 0 ? 0 : row;
        for (int from = 0; from < r->ranks; from++) {
            if (from == r->rank)
                starts[e] = (int32_t)row;
            row += counts[from * r->n_experts + e];
        }
    }
    for (int64_t i = 0; i < r->n; i++) {
        const int32_t e = experts[i];
        const int64_t round = e < 0 ? 0 : (starts[e] + places[i] - sorted[e]) / r->room;
        const int part = e < 0 ? 0 : part_of(r->n_local, r->parts, e % r->n_local);
        keys[i] = e < 0 ? -1 : (int32_t)((round * r->parts + part) * r->n_experts + e);
    }
    return AX_OK;
}

static struct ax_tensor scratch_ids(struct ax_runtime *rt, int64_t n) {
    return ax_stack_take(&rt->arena.scratch, "sorted experts", ax_tensor_1d(AX_I32, NULL, n));
}

/* Sorts by round first, then by part. Memory is taken whatever the number of rounds is: as planned. */
static enum ax_status sort_rounds(const struct ax_expert_group *g, struct ax_runtime *rt,
                                  const struct ax_tensor *experts, const struct ax_expert_route *r,
                                  const struct ax_tensor *sorted, int most) {
    const struct ax_tensor starts = scratch_ids(rt, g->n_experts);
    struct ax_tensor keys = *experts;
    keys.data = scratch_ids(rt, ax_tensor_numel(experts)).data;
    const struct ax_tensor ends = scratch_ids(rt, most * g->parts * g->n_experts + 1);
    const struct ax_view views[] = {
        ax_view_of(&r->counts, AX_VIEW_READ), ax_view_of(sorted, AX_VIEW_READ),
        ax_view_of(experts, AX_VIEW_READ),    ax_view_of(&r->places, AX_VIEW_READ),
        ax_view_of(&keys, AX_VIEW_WRITE),     ax_view_of(&starts, AX_VIEW_WRITE)};
    const struct route route = {.n_experts = g->n_experts,
                                .n_local = g->n_local,
                                .room = r->regroup.shape[0],
                                .n = ax_tensor_numel(experts),
                                .ranks = g->ranks,
                                .rank = g->rank,
                                .parts = g->parts};
    if (r->rounds->n == 1 && g->parts == 1)
        return AX_OK;
    AX_TRY(ax_queue_call(rt->q, find_rounds, &route, sizeof route, views, 6));
    return ax_run_group_rows(
        rt->q, &(struct ax_group_rows){.keys = keys, .places = r->places, .offsets = ends});
}

enum ax_status ax_expert_assign(struct ax_expert_group *g, struct ax_runtime *rt,
                                const struct ax_tensor *experts, const struct ax_expert_route *r) {
    struct ax_stack *scratch = &rt->arena.scratch;
    struct ax_group_rows group = {.keys = *experts, .places = r->places, .offsets = r->offsets};
    if (g->ranks == 1) {
        r->rounds->offsets = (struct ax_mirror){.device = r->offsets.data,
                                                .host = r->rounds->ends,
                                                .bytes = ax_tensor_bytes(&r->offsets)};
        return ax_run_group_rows(rt->q, &group);
    }
    const size_t mark = ax_stack_mark(scratch);

    const int most = ax_expert_most_rounds(g, experts->shape[1]);
    group.offsets = scratch_ids(rt, g->n_experts + 1);
    group.counts = ax_tensor_1d(AX_I32, ax_tensor_row(&r->counts, g->rank), g->n_experts);
    AX_TRY(ax_run_group_rows(rt->q, &group));
    AX_TRY(exchange_counts(g, rt, r));
    AX_TRY(plan_rounds(g, r, most));
    AX_TRY(sort_rounds(g, rt, experts, r, &group.offsets, most));
    ax_stack_release(scratch, mark);
    return ax_expert_open(g, rt, r, 0);
}

/* Rows of each expert in the round, and where each row that arrives goes. Until all are known,
 * offsets[e] is where the order of all rounds has the next row for expert e. */
static enum ax_status open_round(struct ax_queue *q, const void *args, void *const *at) {
    const struct route *r = args;
    const int32_t *counts = at[0];
    int32_t *offsets = at[1], *regroup = at[2];
    const int64_t begin = r->round * r->room, end = begin + r->room;
    int64_t next = 0, arrived = 0;
    (void)q;
    for (int64_t e = 0; e < r->n_local; e++) {
        offsets[e] = (int32_t)next;
        for (int from = 0; from < r->ranks; from++)
            next += counts[from * r->n_experts + r->first + e];
    }
    for (int i = 0; i < r->parts * r->ranks; i++) {
        const int part = i / r->ranks, from = i % r->ranks;
        for (int64_t e = part_begin(r->n_local, r->parts, part);
             e < part_begin(r->n_local, r->parts, part + 1); e++) {
            const int64_t start = offsets[e];
            offsets[e] += counts[from * r->n_experts + r->first + e];
            for (int64_t row = start > begin ? start : begin; row < offsets[e] && row < end; row++)
                regroup[arrived++] = (int32_t)(row - begin);
        }
    }
    for (int64_t e = r->n_local; e > 0; e--) {
        const int64_t here = offsets[e - 1] < end ? offsets[e - 1] : end;
        offsets[e] = (int32_t)(here > begin ? here - begin : 0);
    }
    offsets[0] = 0;
    return AX_OK;
}

enum ax_status ax_expert_open(const struct ax_expert_group *g, struct ax_runtime *rt,
                              const struct ax_expert_route *r, int round) {
    if (g->ranks == 1 || r->rounds->open == round)
        return AX_OK;
    r->rounds->open = round;
    r->rounds->offsets = (struct ax_mirror){.device = r->offsets.data,
                                            .host = r->rounds->ends + round * (g->n_local + 1),
                                            .known = true};
    const struct ax_view views[] = {ax_view_of(&r->counts, AX_VIEW_READ),
                                    ax_view_of(&r->offsets, AX_VIEW_WRITE),
                                    ax_view_of(&r->regroup, AX_VIEW_UPDATE)};
    const struct route route = {.n_experts = g->n_experts,
                                .n_local = g->n_local,
                                .first = g->first,
                                .room = r->regroup.shape[0],
                                .ranks = g->ranks,
                                .round = round,
                                .parts = g->parts};
    return ax_queue_call(rt->q, open_round, &route, sizeof route, views, 3);
}

/* ---- the parts of a round, and their all-to-alls ---- */

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
    const int64_t first = part_begin(g->n_local, g->parts, part), even = even_count(g, r);
    const int64_t end = part_begin(g->n_local, g->parts, part + 1);
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

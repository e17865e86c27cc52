/* Records and checks the collectives between enter and leave; and what collectives are called. */
#include "parallel/fabric/contract.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* ---- what a collective is called, and comparing what several ranks started ---- */

static const char *const kind_names[AX_COLLECTIVE_COUNT] = {
    [AX_ALL_REDUCE] = "all_reduce",         [AX_ALL_GATHER] = "all_gather",
    [AX_REDUCE_SCATTER] = "reduce_scatter", [AX_ALL_TO_ALL_V] = "all_to_all_v",
    [AX_SEND_RECV] = "send_recv",           [AX_BROADCAST] = "broadcast",
};

const char *ax_collective_name(enum ax_collective_kind kind) {
    return kind_names[kind];
}

struct ax_comm_part ax_comm_part_of(const struct ax_collective *what) {
    const bool reduces = what->kind == AX_ALL_REDUCE || what->kind == AX_REDUCE_SCATTER;
    return (struct ax_comm_part){
        .kind = (int32_t)what->kind,
        .reduction = reduces ? (int32_t)what->reduction : 0,
        .dtype = (int32_t)what->dtype,
        .root = what->kind == AX_BROADCAST ? what->root : 0,
        .count = what->kind == AX_ALL_TO_ALL_V ? 0 : what->count,
    };
}

/* Appends, truncating what does not fit. */
static void put(char *buf, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void put(char *buf, size_t size, const char *fmt, ...) {
    const size_t n = strlen(buf);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf + n, size - n, fmt, ap);
    va_end(ap);
}

static void put_part(char *buf, size_t size, const struct ax_comm_part *p) {
    put(buf, size, "%s", ax_collective_name((enum ax_collective_kind)p->kind));
    if (p->kind == AX_ALL_REDUCE || p->kind == AX_REDUCE_SCATTER)
        put(buf, size, " %s", p->reduction == AX_SUM ? "sum" : "max");
    if (p->kind == AX_BROADCAST)
        put(buf, size, " from %d of the group", p->root);
    put(buf, size, " of ");
    if (p->kind != AX_ALL_TO_ALL_V)
        put(buf, size, "%lld ", (long long)p->count);
    put(buf, size, "%s", ax_dtype_info((enum ax_dtype)p->dtype)->name);
}

const char *ax_comm_part_text(char *buf, size_t size, const struct ax_comm_part *part) {
    buf[0] = '\0';
    put_part(buf, size, part);
    return buf;
}

static bool comm_part_same(const struct ax_comm_part *a, const struct ax_comm_part *b) {
    return a->kind == b->kind && a->reduction == b->reduction && a->dtype == b->dtype &&
           a->root == b->root && a->count == b->count;
}

/* "rank 3", "ranks 0, 1 and 3". */
static void put_ranks(char *buf, size_t size, const int *ranks, int n) {
    put(buf, size, n == 1 ? "rank " : "ranks ");
    for (int i = 0; i < n; i++)
        put(buf, size, "%s%d", i == 0 ? "" : i + 1 < n ? ", " : " and ", ranks[i]);
}

static void put_place(char *buf, size_t size, const struct ax_comm_place *place) {
    put(buf, size, "%s: ", ax_role_name(place->role));
    if (place->from < 0)
        put(buf, size, "collective %llu", (unsigned long long)place->number);
    else
        put(buf, size, "message %llu from rank %d to rank %d", (unsigned long long)place->number,
            place->from, place->to);
}

/* "fsdp: collective 7 (all_reduce sum of 3 float64)"; buf is returned. */
static const char *place_text(char *buf, size_t size, const struct ax_comm_place *place,
                              const struct ax_comm_part *part) {
    buf[0] = '\0';
    put_place(buf, size, place);
    put(buf, size, " (");
    put_part(buf, size, part);
    put(buf, size, ")");
    return buf;
}

/* The part that most ranks gave; the first in case of a tie. */
static int most_common(const struct ax_comm_part *parts, int n) {
    int best = 0, best_count = 0;
    for (int i = 0; i < n; i++) {
        int count = 0;
        for (int j = 0; j < n; j++)
            count += comm_part_same(&parts[i], &parts[j]);
        if (count > best_count) {
            best = i;
            best_count = count;
        }
    }
    return best;
}

enum ax_status ax_comm_check_parts(const struct ax_comm_place *place,
                                   const struct ax_comm_part *parts, const int *ranks, int n) {
    const int usual = most_common(parts, n);
    int odd = 0;
    while (odd < n && comm_part_same(&parts[odd], &parts[usual]))
        odd++;
    if (odd == n)
        return AX_OK;
    char text[1024] = "";
    put_place(text, sizeof text, place);
    put(text, sizeof text, ": rank %d started ", ranks[odd]);
    put_part(text, sizeof text, &parts[odd]);
    put(text, sizeof text, ", but rank %d ", ranks[usual]);
    put_part(text, sizeof text, &parts[usual]);
    return ax_error(AX_ERR_PEER,
                    "%s. All ranks of a group must start the same collectives in the same order: "
                    "rank %d has skipped one, started an extra one, or used different sizes.",
                    text, ranks[odd]);
}

enum ax_status ax_comm_check_counts(const struct ax_comm_place *place,
                                    const struct ax_comm_part *part, int from, int64_t sent, int to,
                                    int64_t expected) {
    char text[256];
    if (sent == expected)
        return AX_OK;
    return ax_error(AX_ERR_PEER, "%s: rank %d sends %lld elements to rank %d, which expects %lld",
                    place_text(text, sizeof text, place, part), from, (long long)sent, to,
                    (long long)expected);
}

enum ax_status ax_comm_missing(const struct ax_comm_place *place, const struct ax_comm_part *part,
                               const int *ranks, int n, const char *why) {
    char text[256], who[512] = "";
    put_ranks(who, sizeof who, ranks, n);
    return ax_error(AX_ERR_PEER, "%s: %s %s", place_text(text, sizeof text, place, part), who, why);
}

/* ---- the contract ---- */

enum ax_status ax_contract_enter(struct ax_contracts *all, const char *name) {
    AX_ASSERT(!all->inside && strlen(name) < AX_CONTRACT_NAME);
    int i = 0;
    while (i < all->n && strcmp(all->list[i].name, name) != 0)
        i++;
    if (i == all->n) {
        if (all->planned)
            return ax_error(AX_ERR_FAILED,
                            "contract: rank %d enters \"%s\", which its dry run never entered; "
                            "this is a bug in axtrain",
                            all->rank, name);
        AX_ASSERT(i < AX_MAX_CONTRACTS);
        snprintf(all->list[all->n++].name, AX_CONTRACT_NAME, "%s", name);
        all->recording = true;
    } else {
        all->recording = false;
    }
    all->inside = &all->list[i];
    all->done = all->loops_done = 0;
    all->scale = (struct ax_contract_scale){1, 1};
    all->loop = (struct ax_contract_loop){0};
    return AX_OK;
}

static struct ax_contract_entry entry_of(const struct ax_comm *c,
                                         const struct ax_collective *what) {
    const bool message = what->kind == AX_SEND_RECV;
    struct ax_contract_entry e = {.role = c->role,
                                  .part = ax_comm_part_of(what),
                                  .send_peer = message ? what->send_peer : -1,
                                  .recv_peer = message ? what->recv_peer : -1};
    return e;
}

static bool keeps(const struct ax_contract_entry *planned, const struct ax_contract_entry *e,
                  const struct ax_contract_scale *scale) {
    struct ax_comm_part part = e->part;
    if (part.count * scale->planned == planned->part.count * scale->now)
        part.count = planned->part.count;
    return planned->role == e->role && comm_part_same(&planned->part, &part) &&
           planned->send_peer == e->send_peer && planned->recv_peer == e->recv_peer;
}

/* "fsdp: all_gather of 128 bfloat16" */
static const char *entry_text(char *buf, size_t size, const struct ax_contract_entry *e) {
    char part[128], more[96] = "";
    if (e->part.kind == AX_SEND_RECV)
        snprintf(more, sizeof more, " to %d, from %d", e->send_peer, e->recv_peer);
    snprintf(buf, size, "%s %s%s", ax_role_name(e->role),
             ax_comm_part_text(part, sizeof part, &e->part), more);
    return buf;
}

static enum ax_status record(struct ax_contract *k, const struct ax_contract_entry *e) {
    AX_TRY(ax_grow(&k->entries, k->n, &k->capacity, sizeof *k->entries));
    k->entries[k->n++] = *e;
    return AX_OK;
}

enum ax_status ax_contract_note(struct ax_contracts *all, const struct ax_comm *c,
                                const struct ax_collective *what) {
    struct ax_contract *k = all->inside;
    if (!k)
        return AX_OK;
    const struct ax_contract_entry e = entry_of(c, what);
    const struct ax_contract_loop *loop = &all->loop;
    if (all->recording && loop->turns < 2)
        return record(k, &e);
    char planned[256] = "nothing more", came[256];
    const size_t end = loop->open ? loop->first + loop->length : k->n;
    const struct ax_contract_entry *expected = all->done < end ? &k->entries[all->done] : NULL;
    if (expected && keeps(expected, &e, loop->open ? &loop->scale : &all->scale)) {
        all->done++;
        return AX_OK;
    }
    if (expected)
        entry_text(planned, sizeof planned, expected);
    return ax_error(AX_ERR_FAILED,
                    "contract: rank %d, collective %zu of %zu in \"%s\": the plan has %s, but it "
                    "starts %s; this is a bug in axtrain",
                    all->rank, all->done + 1, k->n, k->name, planned,
                    entry_text(came, sizeof came, &e));
}

/* Expects that the first `end` entries are done. */
static enum ax_status expect_done(const struct ax_contracts *all, const struct ax_contract *k,
                                  size_t end) {
    char planned[256];
    if (all->done == end)
        return AX_OK;
    return ax_error(AX_ERR_FAILED,
                    "contract: rank %d leaves \"%s\" after %zu of %zu collectives; the plan has "
                    "%s next; this is a bug in axtrain",
                    all->rank, k->name, all->done, k->n,
                    entry_text(planned, sizeof planned, &k->entries[all->done]));
}

enum ax_status ax_contract_settled(const struct ax_contracts *all,
                                   const struct ax_comm comms[AX_ROLE_COUNT], const char *where) {
    for (int role = 0; role < AX_ROLE_COUNT; role++) {
        const struct ax_comm *c = &comms[role];
        if (c->waits != c->sequence)
            return ax_error(AX_ERR_FAILED,
                            "contract: rank %d leaves \"%s\" with %llu collectives of %s started, "
                            "and %llu waited for; this is a bug in axtrain",
                            all->rank, where, (unsigned long long)c->sequence,
                            ax_role_name((enum ax_role)role), (unsigned long long)c->waits);
    }
    return AX_OK;
}

enum ax_status ax_contract_leave(struct ax_contracts *all,
                                 const struct ax_comm comms[AX_ROLE_COUNT]) {
    const struct ax_contract *k = all->inside;
    AX_ASSERT(k && !all->loop.open);
    all->inside = NULL;
    AX_TRY(ax_contract_settled(all, comms, k->name));
    return all->recording ? AX_OK : expect_done(all, k, k->n);
}

/* ---- what depends on the data ---- */

void ax_contract_scale(struct ax_contracts *all, int64_t now, int64_t planned) {
    all->scale = (struct ax_contract_scale){now, planned};
}

void ax_contract_loop(struct ax_contracts *all) {
    const struct ax_contract *k = all->inside;
    if (!k)
        return;
    AX_ASSERT(!all->loop.open && (all->recording || all->loops_done < k->n_loops));
    all->loop = (struct ax_contract_loop){.open = true, .first = k->n};
    if (all->recording)
        return;
    all->loop.first = all->done;
    all->loop.length = k->loops[all->loops_done++];
}

/* The first turn that is recorded sets the length; each other one must have it. */
static enum ax_status end_turn(struct ax_contracts *all) {
    struct ax_contract_loop *loop = &all->loop;
    if (loop->turns == 0)
        return AX_OK;
    if (!all->recording || loop->turns > 1)
        return expect_done(all, all->inside, loop->first + loop->length);
    loop->length = all->inside->n - loop->first;
    return AX_OK;
}

enum ax_status ax_contract_turn(struct ax_contracts *all, int64_t now, int64_t planned) {
    if (!all->inside)
        return AX_OK;
    AX_TRY(end_turn(all));
    all->loop.turns++;
    all->loop.scale = (struct ax_contract_scale){now, planned};
    all->done = all->loop.first;
    return AX_OK;
}

enum ax_status ax_contract_end(struct ax_contracts *all) {
    struct ax_contract *k = all->inside;
    if (!k)
        return AX_OK;
    AX_TRY(end_turn(all));
    const size_t length = all->loop.length;
    all->done = all->loop.first + length;
    all->loop = (struct ax_contract_loop){0};
    if (!all->recording)
        return AX_OK;
    AX_TRY(ax_grow(&k->loops, k->n_loops, &k->loop_capacity, sizeof *k->loops));
    k->loops[k->n_loops++] = length;
    return AX_OK;
}

void ax_contracts_hand_over(struct ax_contracts *to, struct ax_contracts *from) {
    memcpy(to->list, from->list, sizeof to->list);
    to->n = from->n;
    to->planned = true;
    *from = (struct ax_contracts){.rank = from->rank};
}

void ax_contracts_free(struct ax_contracts *all) {
    for (int i = 0; i < all->n; i++) {
        ax_free(all->list[i].entries);
        ax_free(all->list[i].loops);
    }
    *all = (struct ax_contracts){.rank = all->rank};
}

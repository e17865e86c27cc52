/* What collectives are called, messages about them, and comparing what several ranks started. */
#include "parallel/fabric/comm_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

bool ax_comm_part_same(const struct ax_comm_part *a, const struct ax_comm_part *b) {
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
            count += ax_comm_part_same(&parts[i], &parts[j]);
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
    while (odd < n && ax_comm_part_same(&parts[odd], &parts[usual]))
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

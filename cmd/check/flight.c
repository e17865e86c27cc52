/* Reads the records, then goes through each group: collectives by number, which all of its ranks start alike;
 * messages by pairs of ranks, which both have under way. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dir.h"
#include "base/io.h"
#include "base/mem.h"
#include "cmd/args/args.h"
#include "cmd/check/check.h"
#include "parallel/fabric/flight.h"

enum { MAX_RANKS = 65536, MAX_BYTES = 1 << 20, WORD = 24 };

struct call {
    char role[WORD], kind[WORD], reduction[WORD], dtype[WORD], state[WORD];
    int group, member, size, root, send, recv;
    int64_t number, count;
};

struct record {
    int rank, world, n;
    struct call *calls; /* owned */
};

struct job {
    struct record *records; /* owned; by rank */
    size_t capacity;
    int n, world;
    int findings;
};

static bool is_message(const struct call *c) {
    return strcmp(c->kind, "send_recv") == 0;
}

static bool is_open(const struct call *c) {
    return strcmp(c->state, "started") == 0;
}

static bool same_group(const struct call *a, const struct call *b) {
    return a->group == b->group && strcmp(a->role, b->role) == 0;
}

static bool alike(const struct call *a, const struct call *b) {
    return a->count == b->count && a->root == b->root && strcmp(a->kind, b->kind) == 0 &&
           strcmp(a->reduction, b->reduction) == 0 && strcmp(a->dtype, b->dtype) == 0;
}

/* "collective 7 of fsdp, all_gather of 128 float32" */
static const char *call_text(char *buf, size_t size, const struct call *c) {
    snprintf(buf, size, "%s %" PRId64 " of %s, %s of %" PRId64 " %s",
             is_message(c) ? "message" : "collective", c->number, c->role, c->kind, c->count,
             c->dtype);
    return buf;
}

/* ---- reading ---- */

static enum ax_status read_call(struct call *c, const char *line, const char *path, int number) {
    const int got =
        sscanf(line,
               "%23[^\t]\t%d\t%d\t%d\t%" SCNd64 "\t%23[^\t]\t%23[^\t]\t%23[^\t]\t%" SCNd64
               "\t%d\t%d\t%d\t%23s",
               c->role, &c->group, &c->member, &c->size, &c->number, c->kind, c->reduction,
               c->dtype, &c->count, &c->root, &c->send, &c->recv, c->state);
    return got == 13 && c->member >= 0 && c->size > c->member
               ? AX_OK
               : ax_error(AX_ERR_DATA, "%s:%d: expected the 13 columns of a flight record", path,
                          number);
}

static enum ax_status read_lines(struct record *r, char *text, const char *path) {
    char *rest = text;
    int version = 0;
    const char *line = strsep(&rest, "\n");
    if (sscanf(line, "flight\t%d\t%d\t%d", &version, &r->rank, &r->world) != 3 ||
        version != AX_FLIGHT_VERSION || r->rank < 0 || r->rank >= r->world || r->world > MAX_RANKS)
        return ax_error(AX_ERR_DATA, "%s:1: not a flight record of this version", path);
    (void)strsep(&rest, "\n"); /* names of columns */
    AX_TRY(ax_alloc(&r->calls, AX_FLIGHT_KEPT, sizeof *r->calls));
    for (int number = 3; rest && (line = strsep(&rest, "\n")) && *line; number++) {
        if (r->n == AX_FLIGHT_KEPT)
            return ax_error(AX_ERR_DATA, "%s:%d: more than %d collectives", path, number,
                            AX_FLIGHT_KEPT);
        AX_TRY(read_call(&r->calls[r->n++], line, path, number));
    }
    return AX_OK;
}

static enum ax_status read_record(struct job *j, const char *dir, const char *name) {
    char *path = NULL, *text = NULL;
    size_t length;
    if (j->n == MAX_RANKS)
        return ax_error(AX_ERR_DATA, "%s: more than %d records", dir, MAX_RANKS);
    AX_TRY(ax_grow(&j->records, (size_t)j->n, &j->capacity, sizeof *j->records));
    struct record *r = &j->records[j->n++];
    *r = (struct record){0};
    AX_TRY(ax_path_join(&path, dir, name));
    enum ax_status st = ax_read_file(path, MAX_BYTES, &text, &length);
    if (st == AX_OK)
        st = read_lines(r, text, path);
    if (st == AX_OK && j->n > 1 && r->world != j->world)
        st = ax_error(AX_ERR_DATA, "%s: of a job of %d ranks, and others are of one of %d", path,
                      r->world, j->world);
    j->world = r->world;
    ax_free(text);
    ax_free(path);
    return st;
}

static int by_rank(const void *a, const void *b) {
    const struct record *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static enum ax_status read_all(struct job *j, const char *dir) {
    struct ax_dir d;
    enum ax_status st = AX_OK;
    ax_dir_open(&d, dir); /* absent: without records */
    for (const char *name; st == AX_OK && (name = ax_dir_next(&d)) != NULL;)
        if (strncmp(name, "rank-", 5) == 0 && strstr(name, ".tsv"))
            st = read_record(j, dir, name);
    AX_TRY(ax_dir_end(&d, st));
    if (j->n == 0)
        return ax_error(AX_ERR_CONFIG, "%s: contains no flight records (rank-N.tsv)", dir);
    qsort(j->records, (size_t)j->n, sizeof *j->records, by_rank);
    return AX_OK;
}

/* ---- comparing ---- */

/* The record's collective with this number; *last: its last one. Number 0: only the last. */
static const struct call *find(const struct record *r, const struct call *like, int64_t number,
                               int64_t *last) {
    const struct call *found = NULL;
    *last = 0;
    for (int i = 0; i < r->n; i++) {
        const struct call *c = &r->calls[i];
        if (!same_group(c, like) || is_message(c))
            continue;
        *last = c->number > *last ? c->number : *last;
        if (c->number == number)
            found = c;
    }
    return found;
}

/* Ranks that started the same as `call`. */
static int count_alike(const struct job *j, const struct call *call) {
    int n = 0;
    for (int r = 0; r < j->n; r++) {
        int64_t last;
        const struct call *c = find(&j->records[r], call, call->number, &last);
        n += c && alike(c, call);
    }
    return n;
}

/* Is `mine`, of record r, unlike what another rank started with the number? Each pair of ranks is reported from the
 * side that fewer share; of equal ones, the later rank's. */
static bool compare(struct job *j, int r, const struct call *mine) {
    for (int o = 0; o < j->n; o++) {
        int64_t last;
        const struct call *c = find(&j->records[o], mine, mine->number, &last);
        char a[160], b[160];
        if (o == r || !c || alike(c, mine))
            continue;
        const int here = count_alike(j, mine), there = count_alike(j, c);
        if (here > there || (here == there && r < o))
            continue;
        printf("rank %d: %s; rank %d has %s\n", j->records[r].rank, call_text(a, sizeof a, mine),
               j->records[o].rank, call_text(b, sizeof b, c));
        j->findings++;
        return true;
    }
    return false;
}

/* The first collective of each group that ranks do not start alike. */
static void compare_collectives(struct job *j) {
    for (int r = 0; r < j->n; r++) {
        const struct record *own = &j->records[r];
        for (int i = 0; i < own->n; i++) {
            bool differs = false;
            if (is_message(&own->calls[i]))
                continue;
            for (int k = 0; k < i && !differs; k++) /* after a difference all are different */
                differs = same_group(&own->calls[k], &own->calls[i]) &&
                          strcmp(own->calls[k].state, "differs") == 0;
            if (!differs && compare(j, r, &own->calls[i]))
                snprintf(own->calls[i].state, WORD, "differs");
        }
    }
}

/* A member of the group that has not come as far as `call`, which waits. */
static void find_missing(struct job *j, int r, const struct call *call) {
    for (int o = 0; o < j->n; o++) {
        const struct record *other = &j->records[o];
        bool member = false;
        int64_t last;
        char text[160];
        for (int i = 0; i < other->n; i++)
            member = member || same_group(&other->calls[i], call);
        (void)find(other, call, 0, &last);
        if (o == r || !member || last >= call->number)
            continue;
        printf(
            "rank %d has not started %s, which rank %d waits for; its last of %s is %" PRId64 "\n",
            other->rank, call_text(text, sizeof text, call), j->records[r].rank, call->role, last);
        j->findings++;
    }
}

/* The rank of a group's member, by the records; NULL: it has none. */
static const struct record *member_of(const struct job *j, const struct call *like, int member) {
    for (int r = 0; r < j->n; r++)
        for (int i = 0; i < j->records[r].n; i++)
            if (same_group(&j->records[r].calls[i], like) &&
                j->records[r].calls[i].member == member)
                return &j->records[r];
    return NULL;
}

/* A message under way whose other side has none like it. */
static void find_partner(struct job *j, int r, const struct call *call) {
    const bool sends = call->recv < 0;
    const int peer = sends ? call->send : call->recv;
    const struct record *other = member_of(j, call, peer);
    char text[160];
    for (int i = 0; other && i < other->n; i++) {
        const struct call *c = &other->calls[i];
        if (same_group(c, call) && is_message(c) && is_open(c) && c->count == call->count &&
            strcmp(c->dtype, call->dtype) == 0 && (sends ? c->recv : c->send) == call->member)
            return;
    }
    if (!other)
        return;
    printf("rank %d waits for %s, %s rank %d, which has no such message under way\n",
           j->records[r].rank, call_text(text, sizeof text, call), sends ? "to" : "from",
           other->rank);
    j->findings++;
}

static void find_waits(struct job *j) {
    for (int r = 0; r < j->n; r++)
        for (int i = 0; i < j->records[r].n; i++) {
            const struct call *c = &j->records[r].calls[i];
            if (is_open(c) && is_message(c))
                find_partner(j, r, c);
            else if (is_open(c))
                find_missing(j, r, c);
        }
}

static void find_absent(struct job *j) {
    for (int rank = 0, r = 0; rank < j->world; rank++) {
        if (r < j->n && j->records[r].rank == rank) {
            r++;
            continue;
        }
        printf("rank %d of %d left no record\n", rank, j->world);
        j->findings++;
    }
}

enum ax_status ax_check_flight(int argc, char **argv) {
    const char *dir;
    struct job j = {0};
    int n;
    AX_TRY(ax_args_parse(argc, argv, 0, NULL, 1, 1, &dir, &n));
    enum ax_status st = read_all(&j, dir);
    if (st == AX_OK) {
        find_absent(&j);
        compare_collectives(&j);
        find_waits(&j);
        if (j.findings == 0)
            printf("%d records of %d ranks: nothing differs, and nobody waits alone\n", j.n,
                   j.world);
        else
            st = ax_error(AX_ERR_FAILED, "check flight: %d finding%s in %s", j.findings,
                          j.findings == 1 ? "" : "s", dir);
    }
    for (int i = 0; i < j.n; i++)
        ax_free(j.records[i].calls);
    ax_free(j.records);
    return st;
}

/* Who has joined, left or gone, and what keys hold. */
#include "parallel/job/store_server.h"

#include <stdio.h>
#include <string.h>

#include "base/fit.h"
#include "base/hash/hash.h"
#include "base/log.h"

enum { MAX_BYTES = 256 << 20 };

enum ax_status ax_store_table_create(struct ax_store_table *t, int world) {
    memset(t, 0, sizeof *t);
    t->world = world;
    t->twice = -1;
    return ax_alloc(&t->seats, (size_t)world, sizeof *t->seats);
}

void ax_store_table_free(struct ax_store_table *t) {
    for (int r = 0; t->seats && r < t->world; r++)
        ax_free(t->seats[r].words);
    for (int b = 0; b < AX_STORE_BUCKETS; b++)
        for (struct ax_store_entry *e = t->buckets[b], *next; e; e = next) {
            next = e->next;
            ax_free(e->key);
            ax_free(e->data);
            ax_free(e);
        }
    ax_free(t->seats);
    memset(t, 0, sizeof *t);
}

bool ax_store_complete(const struct ax_store_table *t) {
    return t->joined == t->world;
}

bool ax_store_awaits(const struct ax_store_table *t) {
    return t->joined + t->turned_away < t->world;
}

/* ---- ranks ---- */

/* "rank 3 (host b, process 77)" */
static const char *name_of(char *out, size_t size, const struct ax_store_member *m) {
    snprintf(out, size, "rank %d (host %s, process %d)", m->rank, m->host, m->pid);
    return out;
}

void ax_store_fail_all(struct ax_store_table *t, enum ax_status st, const char *text) {
    if (ax_store_complete(t) || t->failed != AX_OK)
        return;
    t->failed = st;
    snprintf(t->failure, sizeof t->failure, "%s", text);
}

/* The member against one that has joined. */
static enum ax_status compare(const struct ax_store_member *m, const struct ax_store_member *with) {
    char one[AX_STORE_HOST + 64], other[AX_STORE_HOST + 64];
    name_of(one, sizeof one, m);
    name_of(other, sizeof other, with);
    if (m->binary != with->binary)
        return ax_error(AX_ERR_CONFIG,
                        "%s runs another build of axtrain than %s: install the same one on all "
                        "hosts",
                        one, other);
    if (m->config != with->config && m->config != 0 && with->config != 0)
        return ax_error(AX_ERR_CONFIG,
                        "%s was started with another configuration than %s: give all ranks the "
                        "same file and the same key=value words",
                        one, other);
    return AX_OK;
}

static enum ax_status check(const struct ax_store_table *t, const struct ax_store_member *m) {
    char one[AX_STORE_HOST + 64], other[AX_STORE_HOST + 64];
    name_of(one, sizeof one, m);
    if (m->world != t->world)
        return ax_error(AX_ERR_CONFIG, "%s was started as one of %d ranks, but the job has %d", one,
                        m->world, t->world);
    if (m->rank >= t->world)
        return ax_error(AX_ERR_CONFIG, "%s: the job has ranks 0 to %d", one, t->world - 1);
    if (t->seats[m->rank].state != AX_STORE_AWAITED)
        return ax_error(AX_ERR_CONFIG,
                        "%s: this rank has already joined as %s. Give each process a rank of its "
                        "own, from 0 to %d",
                        one, name_of(other, sizeof other, &t->seats[m->rank].who), t->world - 1);
    for (int r = 0; r < t->world; r++)
        if (t->seats[r].state != AX_STORE_AWAITED)
            return compare(m, &t->seats[r].who);
    return AX_OK;
}

enum ax_status ax_store_seat_take(struct ax_store_table *t, const struct ax_store_member *m) {
    const enum ax_status st =
        t->failed != AX_OK ? ax_error(t->failed, "%s", t->failure) : check(t, m);
    if (st != AX_OK) {
        t->turned_away++;
        if (t->failed == AX_OK && m->world == t->world && m->rank < t->world &&
            t->seats[m->rank].state != AX_STORE_AWAITED)
            t->twice = m->rank;
        ax_store_fail_all(t, st, ax_error_text());
        return st;
    }
    t->seats[m->rank] = (struct ax_store_seat){.state = AX_STORE_JOINED, .who = *m};
    t->joined++;
    return AX_OK;
}

void ax_store_seat_leave(struct ax_store_table *t, int rank, enum ax_status st, const char *words) {
    struct ax_store_seat *seat = &t->seats[rank];
    char text[AX_ERROR_TEXT];
    if (seat->state != AX_STORE_JOINED)
        return;
    seat->state = AX_STORE_LEFT;
    seat->left_with = st;
    if (ax_strdup(&seat->words, words) != AX_OK)
        seat->words = NULL;
    ax_fit(text, sizeof text, "rank %d %s%s", rank, st == AX_OK ? "ended" : "failed: ",
           st == AX_OK ? " before all ranks had joined" : words);
    ax_store_fail_all(t, AX_ERR_PEER, text);
}

void ax_store_seat_lose(struct ax_store_table *t, int rank) {
    struct ax_store_seat *seat = &t->seats[rank];
    char name[AX_STORE_HOST + 64], text[256];
    if (seat->state != AX_STORE_JOINED)
        return;
    seat->state = AX_STORE_GONE;
    snprintf(text, sizeof text,
             "%s is gone: its process ended, or its connection broke, before all ranks had joined",
             name_of(name, sizeof name, &seat->who));
    ax_store_fail_all(t, AX_ERR_PEER, text);
}

/* "0, 1, 4-7": the ranks in a state, on a host (NULL: any). */
static void list_ranks(const struct ax_store_table *t, enum ax_store_state state, const char *host,
                       struct ax_buf *out) {
    const char *between = "";
    for (int r = 0, end; r < t->world; r = end) {
        for (end = r; end < t->world && t->seats[end].state == state &&
                      (!host || strcmp(t->seats[end].who.host, host) == 0);)
            end++;
        if (end == r) {
            end++;
            continue;
        }
        if (end - r > 2)
            (void)ax_buf_printf(out, "%s%d-%d", between, r, end - 1);
        else
            (void)ax_buf_printf(out, end - r == 2 ? "%s%d, %d" : "%s%d", between, r, r + 1);
        between = ", ";
    }
}

/* One line per host; each host is listed at its first rank. */
static void list_hosts(const struct ax_store_table *t, struct ax_buf *out) {
    enum { MAX_HOSTS = 16 };
    int hosts = 0;
    for (int r = 0; r < t->world; r++) {
        const struct ax_store_seat *seat = &t->seats[r];
        bool first = seat->state == AX_STORE_JOINED;
        for (int before = 0; before < r && first; before++)
            first = t->seats[before].state != AX_STORE_JOINED ||
                    strcmp(t->seats[before].who.host, seat->who.host) != 0;
        if (!first || hosts++ >= MAX_HOSTS)
            continue;
        (void)ax_buf_printf(out, "\n  arrived on %s: ", seat->who.host);
        list_ranks(t, AX_STORE_JOINED, seat->who.host, out);
    }
    if (hosts > MAX_HOSTS)
        (void)ax_buf_printf(out, "\n  and on %d more hosts", hosts - MAX_HOSTS);
}

void ax_store_seats_expire(struct ax_store_table *t, double timeout) {
    struct ax_buf text = {0};
    (void)ax_buf_printf(&text, "of %d ranks, these did not arrive within %g s: ", t->world,
                        timeout);
    list_ranks(t, AX_STORE_AWAITED, NULL, &text);
    list_hosts(t, &text);
    ax_store_fail_all(t, AX_ERR_PEER, text.data ? text.data : "out of memory");
    ax_buf_free(&text);
}

void ax_store_seats_tell(const struct ax_store_table *t, double timeout) {
    struct ax_buf text = {0};
    list_ranks(t, AX_STORE_AWAITED, NULL, &text);
    ax_log_info(
        "of the %d ranks that the launcher's variables announce, these have not arrived yet, "
        "and are awaited for up to %g s: %s",
        t->world, timeout, text.data ? text.data : "");
    ax_buf_free(&text);
}

enum ax_status ax_store_cause(const struct ax_store_table *t, int own, char *words, size_t size) {
    enum ax_status st = AX_OK;
    for (int r = 0; r < t->world; r++) {
        const struct ax_store_seat *seat = &t->seats[r];
        const enum ax_status said = r == own ? AX_OK : seat->left_with;
        if (said == AX_OK || (st != AX_OK && (st != AX_ERR_PEER || said == AX_ERR_PEER)))
            continue;
        const char *why = seat->words ? seat->words : "out of memory";
        if (said == AX_ERR_PEER) /* already names the rank */
            snprintf(words, size, "%s", why);
        else
            ax_fit(words, size, "rank %d failed: %s", r, why);
        st = said;
    }
    return st;
}

/* A rank that is there no more without having said that it ends. */
static bool is_gone(const struct ax_store_seat *seat, char *words, size_t size) {
    char name[AX_STORE_HOST + 64];
    if (seat->state != AX_STORE_GONE)
        return false;
    snprintf(words, size, "%s is gone: its process ended, or its connection broke",
             name_of(name, sizeof name, &seat->who));
    return true;
}

int ax_store_done(const struct ax_store_table *t, int own, int first, int end, char *words,
                  size_t size) {
    for (int r = first < 0 ? 0 : first; r < end && r < t->world; r++) {
        const struct ax_store_seat *seat = &t->seats[r];
        if (r != own && ((seat->state == AX_STORE_LEFT && seat->left_with == AX_OK) ||
                         is_gone(seat, words, size)))
            return r;
    }
    return -1;
}

bool ax_store_hopeless(const struct ax_store_table *t, int own, int owner, char *words,
                       size_t size) {
    char name[AX_STORE_HOST + 64];
    if (ax_store_cause(t, own, words, size) != AX_OK)
        return true;
    for (int r = 0; r < t->world; r++) {
        const struct ax_store_seat *seat = &t->seats[r];
        if (is_gone(seat, words, size))
            return true;
        if (r != owner || seat->state != AX_STORE_LEFT)
            continue;
        snprintf(words, size, "%s has ended", name_of(name, sizeof name, &seat->who));
        return true;
    }
    return false;
}

/* ---- keys ---- */

const struct ax_store_entry *ax_store_find(const struct ax_store_table *t, const char *key) {
    const struct ax_store_entry *e = t->buckets[ax_hash32(key) % AX_STORE_BUCKETS];
    while (e && strcmp(e->key, key) != 0)
        e = e->next;
    return e;
}

enum ax_status ax_store_put(struct ax_store_table *t, const char *key, const void *data, size_t n) {
    struct ax_store_entry **bucket = &t->buckets[ax_hash32(key) % AX_STORE_BUCKETS], *e;
    enum ax_status st;
    if (ax_store_find(t, key))
        return ax_error(AX_ERR_CONFIG, "store: %s is set already", key);
    if (t->entries >= 1024 + 256 * (size_t)t->world || n > MAX_BYTES - t->bytes)
        return ax_error(AX_ERR_CONFIG, "store: %s: no space after %zu keys with %zu bytes", key,
                        t->entries, t->bytes);
    AX_TRY(ax_alloc(&e, 1, sizeof *e));
    AX_TRY_GOTO(ax_strdup(&e->key, key), st, fail);
    AX_TRY_GOTO(ax_alloc(&e->data, n, 1), st, fail);
    if (n > 0)
        memcpy(e->data, data, n);
    e->n = n;
    e->next = *bucket;
    *bucket = e;
    t->entries++;
    t->bytes += n;
    return AX_OK;
fail:
    ax_free(e->key);
    ax_free(e);
    return st;
}

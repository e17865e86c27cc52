/* How the processes of a run connect, and tell each other why they exit: through their store. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/dynlib.h"
#include "base/mem.h"
#include "parallel/fabric/gloo.h"
#include "parallel/job/peer.h"

/* A connection may break before the rank that broke it has said why. */
static const double HEAR_SECONDS = 0.5;

/* ---- the library of Gloo's transport, opened when ranks in processes are asked for ---- */

/* Opens the library of gloo_link.h, once. AX_ERR_UNSUPPORTED with the remedy. */
static enum ax_status open_library(const struct ax_gloo_calls **out) {
    static const char *const names[] = {"libaxtrain-gloo.so", NULL};
    const struct ax_gloo_calls *(*get)(void);
    const struct ax_symbol symbols[] = {{"ax_gloo_get", &get}};
    const enum ax_status st = ax_library_open(names, symbols, 1);
    if (st != AX_OK)
        return ax_error_prefix(
            st, "ranks in processes need Gloo, which cannot be opened (Debian 12: `apt-get install "
                "libgloo0`). Where libaxtrain-gloo.so itself is missing, axtrain was built without "
                "it: install g++ and libgloo-dev, and run `make` again");
    *out = get();
    if (strcmp((*out)->version, AX_VERSION) != 0)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "libaxtrain-gloo.so is of axtrain %s, and this is axtrain " AX_VERSION
                        "; install both from one build",
                        (*out)->version);
    return AX_OK;
}

enum ax_status ax_gloo_available(void) {
    const struct ax_gloo_calls *calls;
    return open_library(&calls);
}

/* ---- who is missing ---- */

enum ax_status ax_gloo_lost(const struct ax_gloo_world *w, const struct ax_comm_place *place,
                            const struct ax_comm_part *part, const int *ranks, int n,
                            enum ax_gloo_result how, const char *text) {
    char words[AX_ERROR_TEXT], why[AX_GLOO_TEXT + 128];
    int done;
    if (ax_store_ask_cause(w->store, ranks[0], ranks[0] + 1, how == AX_GLOO_LATE ? 0 : HEAR_SECONDS,
                           words, sizeof words, &done) != AX_OK)
        return ax_error(AX_ERR_PEER, "%s", words);
    if (how == AX_GLOO_LATE)
        snprintf(why, sizeof why, "did not arrive within %g s", w->timeout);
    else if (done >= 0 && !*words)
        snprintf(why, sizeof why, "ended without it");
    else
        snprintf(why, sizeof why, "is gone: its process ended, or the connection broke (%s)", text);
    return ax_comm_missing(place, part, ranks, n, why);
}

/* ---- connecting ---- */

/* The communicator that first asks for a group's connections. Groups of one role are disjoint: the
 * first rank tells them apart. */
struct rendezvous {
    struct ax_gloo_world *world;
    const struct ax_gloo_group *group;
    char name[AX_STORE_NAME - 32];
};

static enum ax_status find_from(const struct rendezvous *m, const char *what, int member,
                                char **data, size_t *n) {
    const struct ax_gloo_world *w = m->world;
    char key[AX_STORE_NAME];
    snprintf(key, sizeof key, "%s/%s%d", m->name, what, member);
    return ax_store_get(w->store, key, m->group->ranks[member], w->timeout, data, n);
}

/* Gives all members something of this one, and takes[n] (NULL: nothing) theirs, of as many bytes.
 * Returns when all have given: who connects to a member that waits in vain for another one, and ends,
 * would wait until the deadline. */
static enum ax_status exchange(const struct rendezvous *m, const char *what, const void *gives,
                               size_t n, void *takes) {
    char key[AX_STORE_NAME];
    snprintf(key, sizeof key, "%s/%s%d", m->name, what, m->group->rank);
    AX_TRY(ax_store_set(m->world->store, key, gives, n));
    for (int other = 0; other < m->group->n; other++) {
        char *theirs;
        size_t len;
        AX_TRY(find_from(m, what, other, &theirs, &len));
        if (takes && len == n)
            memcpy((char *)takes + (size_t)other * n, theirs, n);
        ax_free(theirs);
        if (len != n)
            return ax_error(AX_ERR_PEER, "rank %d has sent %zu bytes, not %zu, for %s",
                            m->group->ranks[other], len, n, key);
    }
    return AX_OK;
}

/* A rank that leaves while others still connect only breaks connections. The store knows why. */
static enum ax_status not_connected(const struct ax_gloo_world *w, const char *text) {
    char words[AX_ERROR_TEXT];
    int done;
    if (ax_store_ask_cause(w->store, 0, w->world, HEAR_SECONDS, words, sizeof words, &done) !=
        AX_OK)
        return ax_error(AX_ERR_PEER, "%s", words);
    if (done >= 0 && *words)
        return ax_error(AX_ERR_PEER, "rank %d of %d cannot connect to the others: %s", w->rank,
                        w->world, words);
    if (done >= 0)
        return ax_error(AX_ERR_PEER,
                        "rank %d ended before rank %d of %d was connected to it; its own output "
                        "says why",
                        done, w->rank, w->world);
    return ax_error(AX_ERR_PEER,
                    "rank %d of %d cannot connect to the others: %s. See the output of the other "
                    "ranks.",
                    w->rank, w->world, text);
}

static struct ax_gloo_group *find_group(const struct ax_gloo_world *w, const int *ranks, int n) {
    struct ax_gloo_group *g = w->groups;
    while (g && (g->n != n || memcmp(g->ranks, ranks, (size_t)n * sizeof *ranks) != 0))
        g = g->next;
    return g;
}

/* Connected sockets to all members, fds[n]. */
static enum ax_status connect_members(const struct rendezvous *m, int listening,
                                      const struct ax_peer_address *own, int *fds) {
    const struct ax_gloo_world *w = m->world;
    const struct ax_gloo_group *g = m->group;
    const struct ax_peer_group peers = {.store = w->store,
                                        .key = ax_store_key(w->store),
                                        .name = m->name,
                                        .ranks = g->ranks,
                                        .n = g->n,
                                        .rank = g->rank};
    struct ax_peer_address *addresses;
    AX_TRY(ax_alloc(&addresses, (size_t)g->n, sizeof *addresses));
    enum ax_status st = exchange(m, "address", own, sizeof *own, addresses);
    for (int i = 0; i < g->n; i++)
        addresses[i].host[sizeof addresses[i].host - 1] = '\0';
    if (st == AX_OK)
        st = ax_peer_connect(&peers, listening, addresses, w->timeout, fds);
    ax_free(addresses);
    /* Who is connected does not go on, and perhaps end, before all are: others would only see that a
     * connection breaks. */
    return st == AX_OK ? exchange(m, "connected", "", 1, NULL) : st;
}

static enum ax_status connect_group(struct ax_gloo_world *w, const struct rendezvous *m,
                                    struct ax_gloo_group *g) {
    struct ax_peer_address own;
    char text[AX_GLOO_TEXT] = "";
    int listening = -1, *fds;
    while (g->rank < g->n && g->ranks[g->rank] != w->rank)
        g->rank++;
    AX_ASSERT(g->rank < g->n);
    AX_TRY(ax_alloc(&fds, (size_t)g->n, sizeof *fds));
    for (int i = 0; i < g->n; i++)
        fds[i] = -1;
    enum ax_status st = ax_peer_listen(w->store, &listening, &own);
    if (st == AX_OK)
        st = connect_members(m, listening, &own, fds);
    if (listening >= 0)
        close(listening);
    if (st != AX_OK)
        snprintf(text, sizeof text, "%s", ax_error_text());
    else if (w->gloo->open(&g->link, w->device, fds, g->rank, g->n, w->timeout, text) !=
             AX_GLOO_DONE)
        st = AX_ERR_PEER;
    for (int i = 0; i < g->n; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    ax_free(fds);
    /* an error of another kind is this rank's own */
    return st == AX_ERR_PEER ? not_connected(w, text) : st;
}

static void group_free(const struct ax_gloo_world *w, struct ax_gloo_group *g) {
    if (g->link)
        w->gloo->close(g->link);
    ax_free(g->ranks);
    ax_free(g);
}

enum ax_status ax_gloo_connect(struct ax_gloo_world *w, const int *ranks, int n, enum ax_role role,
                               uint64_t instance, struct ax_gloo_group **out) {
    struct ax_gloo_group *g = find_group(w, ranks, n);
    enum ax_status st;
    if (!g) {
        AX_TRY(ax_alloc(&g, 1, sizeof *g));
        g->n = n;
        AX_TRY_GOTO(ax_alloc(&g->ranks, (size_t)n, sizeof *g->ranks), st, fail);
        memcpy(g->ranks, ranks, (size_t)n * sizeof *ranks);
        struct rendezvous m = {.world = w, .group = g};
        snprintf(m.name, sizeof m.name, "gloo/%s/%llu/%d", ax_role_name(role),
                 (unsigned long long)instance, ranks[0]);
        AX_TRY_GOTO(connect_group(w, &m, g), st, fail);
        g->next = w->groups;
        w->groups = g;
    }
    *out = g;
    return AX_OK;
fail:
    group_free(w, g);
    return st;
}

/* ---- the processes of a run ---- */

enum ax_status ax_gloo_world_open(struct ax_gloo_world **out, struct ax_store_client *store,
                                  double timeout) {
    struct ax_gloo_world *w;
    enum ax_status st;
    char text[AX_GLOO_TEXT];
    AX_ASSERT(timeout > 0);
    AX_TRY(ax_alloc(&w, 1, sizeof *w));
    w->store = store;
    w->rank = ax_store_rank(store);
    w->world = ax_store_world(store);
    w->timeout = timeout;
    AX_TRY_GOTO(open_library(&w->gloo), st, fail);
    signal(SIGPIPE, SIG_IGN); /* Gloo writes to sockets that others may have closed */
    if (w->gloo->open_device(&w->device, text) != AX_GLOO_DONE) {
        st = ax_error(AX_ERR_PEER, "Gloo cannot start: %s", text);
        goto fail;
    }
    *out = w;
    return AX_OK;
fail:
    ax_free(w);
    return st;
}

void ax_gloo_world_fail(struct ax_gloo_world *w, enum ax_status st) {
    if (w->failed)
        return;
    w->failed = w->order.stopped = true;
    ax_store_leave(w->store, st); /* before connections break, which tell the others less */
    for (struct ax_gloo_group *g = w->groups; g; g = g->next)
        w->gloo->break_link(g->link);
}

void ax_gloo_world_close(struct ax_gloo_world *w) {
    AX_ASSERT(!w->order.first && w->members == 0); /* communicators go before their fabric */
    if (!w->failed)
        ax_store_leave(w->store, AX_OK);
    while (w->groups) {
        struct ax_gloo_group *g = w->groups;
        w->groups = g->next;
        group_free(w, g);
    }
    w->gloo->close_device(w->device);
    ax_free(w);
}

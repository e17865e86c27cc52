#include "parallel/fabric/team.h"

#include <stdio.h>

#include "base/mem.h"

/* A message that needs more than this is not one. */
#define MAX_COLLECTED ((int64_t)1 << 36)

/* What a rank that failed tells the others. */
struct words {
    char text[AX_ERROR_TEXT];
};

static bool is_alone(const struct ax_team *t) {
    return !t || t->size <= 1;
}

enum ax_status ax_team_open(struct ax_team *t, struct ax_fabric *fabric) {
    int *ranks;
    *t = (struct ax_team){.size = 1, .hosts = 1};
    if (!fabric || fabric->world == 1)
        return AX_OK;
    const int local = fabric->local_world > 0 ? fabric->local_world : 1;
    t->rank = fabric->rank;
    t->host = fabric->rank / local;
    t->hosts = (fabric->world + local - 1) / local;
    AX_TRY(ax_alloc(&ranks, (size_t)fabric->world, sizeof *ranks));
    for (int r = 0; r < fabric->world; r++)
        ranks[r] = r;
    enum ax_status st =
        fabric->ops->open(fabric, &t->comm, AX_ROLE_WORLD, ranks, fabric->world, true);
    if (st == AX_OK)
        st = ax_queue_create(&t->q, "ref", NULL, 1, &t->none);
    t->size = fabric->world;
    ax_free(ranks);
    if (st != AX_OK)
        ax_team_close(t);
    return st;
}

void ax_team_close(struct ax_team *t) {
    ax_comm_free(&t->comm);
    ax_queue_free(t->q);
    *t = (struct ax_team){0};
}

bool ax_team_leads(const struct ax_team *t) {
    return !t || t->rank == 0;
}

/* ---- what ranks tell each other ---- */

static enum ax_status talk(struct ax_team *t, const struct ax_collective *what) {
    const enum ax_status st = ax_comm_run(&t->comm, t->q, what);
    t->broken = t->broken || st != AX_OK;
    return st;
}

static enum ax_status broadcast(struct ax_team *t, void *data, int64_t bytes, int root) {
    const struct ax_collective what = {
        .kind = AX_BROADCAST, .dtype = AX_U8, .recv = data, .count = bytes, .root = root};
    return talk(t, &what);
}

enum ax_status ax_team_max(struct ax_team *t, double *value) {
    const struct ax_collective what = {.kind = AX_ALL_REDUCE,
                                       .reduction = AX_MAX,
                                       .dtype = AX_F64,
                                       .send = value,
                                       .recv = value,
                                       .count = 1};
    return is_alone(t) ? AX_OK : talk(t, &what);
}

/* All ranks know that `root` failed; only it knows why. */
static enum ax_status hear(struct ax_team *t, enum ax_status st, int root) {
    struct ax_error_record own;
    struct words words = {0};
    ax_error_save(&own, st);
    snprintf(words.text, sizeof words.text, "%s", ax_error_text());
    const enum ax_status heard = broadcast(t, &words, sizeof words, root);
    if (own.st != AX_OK)
        return ax_error_restore(&own);
    AX_TRY(heard);
    words.text[sizeof words.text - 1] = '\0';
    return ax_error(AX_ERR_PEER, "rank %d: %s", root, words.text);
}

enum ax_status ax_team_agree(struct ax_team *t, enum ax_status st) {
    if (is_alone(t))
        return st;
    double failed = st == AX_OK ? 0 : t->size - t->rank; /* the largest is the first rank's */
    struct ax_error_record own;
    ax_error_save(&own, st);
    const enum ax_status asked = ax_team_max(t, &failed);
    if (st != AX_OK)
        (void)ax_error_restore(&own);
    else
        AX_TRY(asked);
    return asked == AX_OK && failed > 0 ? hear(t, st, t->size - (int)failed) : st;
}

enum ax_status ax_team_share(struct ax_team *t, void *data, int64_t bytes) {
    return is_alone(t) ? AX_OK : broadcast(t, data, bytes, 0);
}

enum ax_status ax_team_share_text(struct ax_team *t, struct ax_buf *b) {
    int64_t n = (int64_t)b->len;
    AX_TRY(ax_team_share(t, &n, sizeof n));
    if ((size_t)n >= b->cap) {
        AX_TRY(ax_regrow(&b->data, b->cap, (size_t)n + 1, 1));
        b->cap = (size_t)n + 1;
    }
    b->len = (size_t)n;
    b->data[n] = '\0';
    return ax_team_share(t, b->data, n);
}

enum ax_status ax_team_choice(struct ax_fabric *fabric, enum ax_status st, void *data,
                              int64_t bytes) {
    struct ax_team team;
    AX_TRY(ax_team_open(&team, fabric));
    st = ax_team_agree(&team, ax_team_leads(&team) ? st : AX_OK);
    if (st == AX_OK)
        st = ax_team_share(&team, data, bytes);
    ax_team_close(&team);
    return st;
}

static struct ax_collective message(enum ax_dtype dtype, const void *send, void *recv,
                                    int64_t count, int peer) {
    return (struct ax_collective){.kind = AX_SEND_RECV,
                                  .dtype = dtype,
                                  .send = send,
                                  .recv = recv,
                                  .count = count,
                                  .send_peer = send ? peer : -1,
                                  .recv_peer = recv ? peer : -1};
}

static enum ax_status start(struct ax_team *t, const struct ax_collective *what,
                            struct ax_ticket *ticket) {
    const enum ax_status st = ax_comm_start(&t->comm, t->q, what, ticket);
    t->broken = t->broken || st != AX_OK;
    return st;
}

static enum ax_status finish(struct ax_team *t, struct ax_ticket ticket) {
    const enum ax_status st = ax_comm_wait(&t->comm, t->q, ticket);
    t->broken = t->broken || st != AX_OK;
    return st;
}

enum ax_status ax_team_send(struct ax_team *t, int rank, struct ax_team_letter *l) {
    const struct ax_collective size = message(AX_I64, &l->bytes, NULL, 1, rank),
                               content = message(AX_U8, l->data, NULL, l->bytes, rank);
    AX_TRY(start(t, &size, &l->size));
    return start(t, &content, &l->content);
}

enum ax_status ax_team_sent(struct ax_team *t, struct ax_team_letter *l) {
    AX_TRY(finish(t, l->size));
    return finish(t, l->content);
}

enum ax_status ax_team_receive(struct ax_team *t, int rank, char **data, int64_t *bytes) {
    const struct ax_collective size = message(AX_I64, NULL, bytes, 1, rank);
    AX_TRY(talk(t, &size));
    if (*bytes < 0 || *bytes > MAX_COLLECTED)
        return ax_error(AX_ERR_PEER, "rank %d: sends a message of %lld bytes", rank,
                        (long long)*bytes);
    AX_TRY(ax_alloc(data, (size_t)*bytes + 1, 1));
    const struct ax_collective content = message(AX_U8, NULL, *data, *bytes, rank);
    const enum ax_status st = talk(t, &content);
    if (st == AX_OK)
        return AX_OK;
    ax_free(*data);
    *data = NULL;
    return st;
}

enum ax_status ax_team_collect(struct ax_team *t, const char *data, int64_t bytes,
                               enum ax_status (*take)(void *ctx, int rank, const char *data,
                                                      int64_t bytes),
                               void *ctx) {
    if (!ax_team_leads(t)) {
        struct ax_team_letter own = {.data = data, .bytes = bytes};
        AX_TRY(ax_team_send(t, 0, &own));
        return ax_team_sent(t, &own);
    }
    enum ax_status st = take(ctx, 0, data, bytes), heard = AX_OK;
    for (int r = 1; !is_alone(t) && r < t->size && heard == AX_OK; r++) {
        char *theirs = NULL;
        int64_t n;
        struct ax_error_record own;
        ax_error_save(&own, st);
        heard = ax_team_receive(t, r, &theirs, &n); /* after a failure of `take`, too: they send */
        if (st != AX_OK)
            (void)ax_error_restore(&own);
        else
            st = heard == AX_OK ? take(ctx, r, theirs, n) : heard;
        ax_free(theirs);
    }
    return st;
}

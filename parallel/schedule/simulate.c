/* Steps from event to event: all rates are constant in between. */
#include "parallel/schedule/simulate.h"

#include <string.h>

#include "base/mem.h"

#define MOST   64    /* transfers of a rank that are not done */
#define MOMENT 1e-13 /* seconds: less is nothing */
#define NEVER  1e300

enum state { QUEUED, MOVING, RECEIVING }; /* behind its lane or a peer; under way; by its sender */

struct transfer {
    const struct ax_sim_item *item;
    enum state state;
    double start, latency, left[AX_SIM_LINKS];
    int peer; /* of a message that moves: the receiver, and its ticket; else −1 */
    uint64_t peer_ticket;
};

struct rank {
    struct ax_sim_rank *of;
    size_t at;    /* the next item */
    bool working; /* on item at − 1 */
    double left;  /* seconds of that work */
    double since; /* when work or waiting began */
    bool waiting, done;
    int waits_for; /* the group, while waiting */
    int n;
    struct transfer list[MOST]; /* in the order of their starts */
};

struct sim {
    int n;
    struct rank *ranks;
    double now, contention;
    const struct ax_sim_options *o;
};

static bool is_message(const struct ax_sim_item *i) {
    return i->to >= 0 || i->from >= 0;
}

static void report(const struct sim *s, const struct rank *r, const struct ax_sim_item *item,
                   bool waiting, double start) {
    if (!s->o || !s->o->span || s->now - start < MOMENT)
        return;
    const bool transfer = item->kind == AX_SIM_START && !waiting;
    const struct ax_sim_span span = {.rank = (int)(r - s->ranks),
                                     .lane = transfer ? item->lane : -1,
                                     .group = waiting ? r->waits_for : item->group,
                                     .waiting = waiting,
                                     .start = start,
                                     .end = s->now,
                                     .item = item};
    s->o->span(s->o->ctx, &span);
}

/* ---- transfers ---- */

static int find(const struct rank *r, int lane, uint64_t ticket) {
    for (int i = 0; i < r->n; i++)
        if (r->list[i].item->lane == lane && r->list[i].item->ticket == ticket)
            return i;
    return -1;
}

static void begin_moving(const struct sim *s, struct transfer *t) {
    t->state = MOVING;
    t->start = s->now;
    t->latency = t->item->seconds;
    memcpy(t->left, t->item->links, sizeof t->left);
}

/* The first collective of each lane moves. */
static void move_lane(const struct sim *s, struct rank *r, int lane) {
    for (int i = 0; i < r->n; i++) {
        struct transfer *t = &r->list[i];
        if (t->item->lane != lane || is_message(t->item))
            continue;
        if (t->state == QUEUED)
            begin_moving(s, t);
        return;
    }
}

/* Pairs a message with the first of its peer that is not paired. */
static void match(const struct sim *s, struct rank *r, struct transfer *t) {
    const int self = (int)(r - s->ranks), other = t->item->to >= 0 ? t->item->to : t->item->from;
    struct rank *peer = &s->ranks[other];
    for (int i = 0; i < peer->n; i++) {
        struct transfer *p = &peer->list[i];
        const bool sends = t->item->to >= 0;
        if (p->state != QUEUED || p->item->lane != t->item->lane ||
            (sends ? p->item->from : p->item->to) != self)
            continue;
        struct transfer *sent = sends ? t : p, *received = sends ? p : t;
        begin_moving(s, sent);
        sent->peer = sends ? other : self;
        sent->peer_ticket = received->item->ticket;
        received->state = RECEIVING;
        received->start = s->now;
        return;
    }
}

static enum ax_status start(const struct sim *s, struct rank *r, const struct ax_sim_item *item) {
    if (r->n == MOST)
        return ax_error(AX_ERR_FAILED, "simulation: rank %d has more than %d transfers in flight",
                        (int)(r - s->ranks), MOST);
    struct transfer *t = &r->list[r->n++];
    *t = (struct transfer){.item = item, .state = QUEUED, .peer = -1};
    if (is_message(item))
        match(s, r, t);
    else
        move_lane(s, r, item->lane);
    return AX_OK;
}

static void drop(const struct sim *s, struct rank *r, int i) {
    const struct transfer t = r->list[i];
    r->of->moved[t.item->group] += s->now - t.start;
    report(s, r, t.item, false, t.start);
    r->n--;
    memmove(&r->list[i], &r->list[i + 1], (size_t)(r->n - i) * sizeof *r->list);
    if (!is_message(t.item))
        move_lane(s, r, t.item->lane);
}

static bool is_done(const struct transfer *t) {
    return t->state == MOVING && t->latency < MOMENT && t->left[0] < MOMENT && t->left[1] < MOMENT;
}

/* False if none was done. */
static bool finish_transfers(struct sim *s) {
    bool any = false;
    for (int k = 0; k < s->n; k++) {
        struct rank *r = &s->ranks[k];
        for (int i = 0; i < r->n; i++) {
            if (!is_done(&r->list[i]))
                continue;
            const struct transfer t = r->list[i];
            any = true;
            drop(s, r, i--);
            if (t.peer < 0)
                continue;
            struct rank *peer = &s->ranks[t.peer];
            const int p = find(peer, t.item->lane, t.peer_ticket);
            AX_ASSERT(p >= 0);
            drop(s, peer, p);
        }
    }
    return any;
}

/* Transfers of the rank that use a link now. */
static int users(const struct rank *r, int link) {
    int n = 0;
    for (int i = 0; i < r->n; i++)
        n += r->list[i].state == MOVING && r->list[i].latency < MOMENT &&
             r->list[i].left[link] >= MOMENT;
    return n;
}

/* ---- programs ---- */

/* True if the rank has to. */
static bool wait(struct sim *s, struct rank *r, const struct ax_sim_item *item) {
    const int i = find(r, item->lane, item->ticket);
    if (i >= 0 && !r->waiting) {
        r->waiting = true;
        r->since = s->now;
        r->waits_for = r->list[i].item->group;
    } else if (i < 0 && r->waiting) {
        r->waiting = false;
        r->of->exposed[r->waits_for] += s->now - r->since;
        report(s, r, item, true, r->since);
    }
    return i >= 0;
}

/* Everything that a rank can do without time passing. */
static enum ax_status advance(struct sim *s, struct rank *r) {
    if (r->working && r->left < MOMENT) {
        const struct ax_sim_item *item = &r->of->items[r->at - 1];
        r->working = false;
        r->of->work[item->group] += s->now - r->since;
        report(s, r, item, false, r->since);
    }
    while (!r->working && r->at < r->of->n) {
        const struct ax_sim_item *item = &r->of->items[r->at];
        if (item->kind == AX_SIM_WORK) {
            r->working = item->seconds >= MOMENT;
            r->left = item->seconds;
            r->since = s->now;
        } else if (item->kind == AX_SIM_START) {
            AX_TRY(start(s, r, item));
        } else if (wait(s, r, item)) {
            return AX_OK;
        }
        r->at++;
    }
    if (!r->working && !r->done) {
        r->done = true;
        r->of->end = s->now;
    }
    return AX_OK;
}

/* ---- time ---- */

struct rates {
    double work, links[AX_SIM_LINKS];
};

static struct rates rates_of(const struct sim *s, const struct rank *r) {
    struct rates rates = {.work = 1};
    int moving = 0;
    for (int l = 0; l < AX_SIM_LINKS; l++) {
        const int n = users(r, l);
        rates.links[l] = n > 0 ? 1.0 / n : 1;
        moving += n;
    }
    if (moving > 0)
        rates.work = 1 / (1 + s->contention);
    return rates;
}

static double least(double a, double b) {
    return a < b ? a : b;
}

/* Until the next event of this rank; NEVER: it has none. */
static double next_of(const struct rank *r, const struct rates *rates) {
    double dt = r->working ? r->left / rates->work : NEVER;
    for (int i = 0; i < r->n; i++) {
        const struct transfer *t = &r->list[i];
        if (t->state != MOVING)
            continue;
        if (t->latency >= MOMENT)
            dt = least(dt, t->latency);
        for (int l = 0; l < AX_SIM_LINKS && t->latency < MOMENT; l++)
            if (t->left[l] >= MOMENT)
                dt = least(dt, t->left[l] / rates->links[l]);
    }
    return dt;
}

static void pass(struct rank *r, const struct rates *rates, double dt) {
    if (r->working)
        r->left -= dt * rates->work;
    for (int i = 0; i < r->n; i++) {
        struct transfer *t = &r->list[i];
        if (t->state != MOVING)
            continue;
        if (t->latency >= MOMENT) {
            t->latency -= dt;
            continue;
        }
        for (int l = 0; l < AX_SIM_LINKS; l++)
            t->left[l] -= dt * rates->links[l];
    }
}

static enum ax_status stuck(const struct sim *s) {
    for (int k = 0; k < s->n; k++) {
        const struct rank *r = &s->ranks[k];
        const struct ax_sim_item *item = r->at < r->of->n ? &r->of->items[r->at] : NULL;
        if (item)
            return ax_error(AX_ERR_FAILED,
                            "simulation: rank %d of %d waits forever for transfer %llu of lane %d "
                            "(item %zu of %zu)",
                            k, s->n, (unsigned long long)item->ticket, item->lane, r->at, r->of->n);
    }
    return AX_OK;
}

static enum ax_status run(struct sim *s, struct rates *rates) {
    for (;;) {
        double dt = NEVER;
        for (int k = 0; k < s->n; k++)
            AX_TRY(advance(s, &s->ranks[k]));
        if (finish_transfers(s))
            continue;
        for (int k = 0; k < s->n; k++) {
            rates[k] = rates_of(s, &s->ranks[k]);
            dt = least(dt, next_of(&s->ranks[k], &rates[k]));
        }
        if (dt >= NEVER)
            return stuck(s);
        s->now += dt;
        for (int k = 0; k < s->n; k++)
            pass(&s->ranks[k], &rates[k], dt);
    }
}

enum ax_status ax_simulate(int n_ranks, struct ax_sim_rank *ranks, const struct ax_sim_options *o,
                           double *seconds) {
    struct sim s = {.n = n_ranks, .o = o, .contention = o ? o->contention : 0};
    struct rates *rates = NULL;
    AX_TRY(ax_alloc(&s.ranks, (size_t)n_ranks, sizeof *s.ranks));
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&rates, (size_t)n_ranks, sizeof *rates), st, done);
    for (int k = 0; k < n_ranks; k++) {
        ranks[k] = (struct ax_sim_rank){.items = ranks[k].items, .n = ranks[k].n};
        s.ranks[k].of = &ranks[k];
    }
    AX_TRY_GOTO(run(&s, rates), st, done);
    *seconds = 0;
    for (int k = 0; k < n_ranks; k++)
        *seconds = ranks[k].end > *seconds ? ranks[k].end : *seconds;
done:
    ax_free(rates);
    ax_free(s.ranks);
    return st;
}

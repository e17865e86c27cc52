/* What a team's ranks tell each other, from a thread of its own, while collectives of the training run
 * on the same fabric. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/threads.h"
#include "parallel/fabric/part.h"
#include "parallel/fabric/team.h"
#include "tests/comm_cases.h"

enum { ROUNDS = 40, COUNT = 257 };

struct talk {
    struct ax_team *team;
    int taken; /* reports, on rank 0 */
};

/* A report of rank r in a round: r · 1000 + round bytes long. */
static char letter(int rank, int round) {
    return (char)('a' + (rank * 7 + round) % 26);
}

static enum ax_status take(void *ctx, int rank, const char *data, int64_t bytes) {
    struct talk *t = ctx;
    const int round = t->taken / t->team->size;
    ENSURE(rank == t->taken % t->team->size); /* in order */
    ENSURE(bytes == rank * 1000 + round);
    for (int64_t i = 0; i < bytes; i++)
        ENSURE(data[i] == letter(rank, round));
    t->taken++;
    return AX_OK;
}

static enum ax_status report(struct talk *t, int round) {
    char *text;
    const int64_t n = t->team->rank * 1000 + round;
    AX_TRY(ax_alloc(&text, (size_t)n, 1));
    memset(text, letter(t->team->rank, round), (size_t)n);
    const enum ax_status st = ax_team_collect(t->team, text, n, take, t);
    ax_free(text);
    return st;
}

/* Some of the ranks fail: nobody goes on, and all know whose error it is. */
static enum ax_status disagree(struct ax_team *team, int round) {
    char expected[64];
    const int first = round % team->size;
    const bool fails = team->rank >= first && (team->rank - first) % 2 == 0;
    const enum ax_status own =
        fails ? ax_error(AX_ERR_STORAGE, "made up by %d", team->rank) : AX_OK;
    const enum ax_status st = ax_team_agree(team, own);
    snprintf(expected, sizeof expected, "rank %d: made up by %d", first, first);
    if (fails)
        snprintf(expected, sizeof expected, "made up by %d", team->rank);
    if (st != (fails ? AX_ERR_STORAGE : AX_ERR_PEER) || strcmp(ax_error_text(), expected) != 0)
        return ax_error(AX_ERR_FAILED, "round %d: \"%s\" is not \"%s\"", round, ax_error_text(),
                        expected);
    ax_error_clear();
    return AX_OK;
}

/* Two letters to the next rank, of which both are on their way before one has been read. */
static enum ax_status write_to_next(struct ax_team *team, int round) {
    const int next = (team->rank + 1) % team->size,
              before = (team->rank + team->size - 1) % team->size;
    char text[2][64];
    struct ax_team_letter letters[2];
    for (int i = 0; i < 2; i++) {
        snprintf(text[i], sizeof text[i], "number %d of %d in round %d", i, team->rank, round);
        letters[i] = (struct ax_team_letter){.data = text[i], .bytes = (int64_t)strlen(text[i])};
        AX_TRY(ax_team_send(team, next, &letters[i]));
    }
    for (int i = 0; i < 2; i++) {
        char expected[64], *got;
        int64_t n;
        snprintf(expected, sizeof expected, "number %d of %d in round %d", i, before, round);
        AX_TRY(ax_team_receive(team, before, &got, &n));
        ENSURE(n == (int64_t)strlen(expected) && strcmp(got, expected) == 0);
        ax_free(got);
    }
    AX_TRY(ax_team_sent(team, &letters[1]));
    return ax_team_sent(team, &letters[0]);
}

static enum ax_status talk(void *ctx) {
    struct talk *t = ctx;
    struct ax_team *team = t->team;
    for (int round = 0; round < ROUNDS; round++) {
        int word[3] = {team->rank, round, 77};
        double most = 10 * team->rank + round;
        AX_TRY(ax_team_agree(team, AX_OK));
        AX_TRY(ax_team_share(team, word, sizeof word));
        ENSURE(word[0] == 0 && word[1] == round && word[2] == 77);
        AX_TRY(ax_team_max(team, &most));
        ENSURE(most == 10 * (team->size - 1) + round);
        AX_TRY(report(t, round));
        if (team->size > 1)
            AX_TRY(write_to_next(team, round));
        AX_TRY(disagree(team, round));
    }
    ENSURE(t->taken == (ax_team_leads(team) ? ROUNDS * team->size : 0));
    return AX_OK;
}

static enum ax_status train(struct ax_comm *c) {
    double sum[COUNT];
    for (int round = 0; round < 5 * ROUNDS; round++) {
        for (int i = 0; i < COUNT; i++)
            sum[i] = c->rank + i + round;
        AX_TRY(ax_comm_sum(c, &host_queue, AX_F64, sum, COUNT));
        for (int i = 0; i < COUNT; i++)
            ENSURE(sum[i] == c->size * (i + round + (c->size - 1) / 2.0));
    }
    return AX_OK;
}

static enum ax_status both(struct ax_team *team, struct ax_comm *c) {
    struct ax_worker worker;
    struct talk t = {.team = team};
    AX_TRY(ax_worker_start(&worker, talk, &t));
    const enum ax_status trained = train(c);
    const enum ax_status talked = ax_worker_join(&worker);
    return trained != AX_OK ? trained : talked;
}

/* The first rank, and all others, each as a world of its own. */
static enum ax_status talk_in_part(struct ax_fabric *f) {
    const int first = f->rank > 0;
    struct ax_fabric_part part;
    struct ax_team team;
    ax_fabric_part_open(&part, f, first, first ? f->world - 1 : 1);
    AX_TRY(ax_team_open(&team, &part.fabric));
    struct talk t = {.team = &team};
    ENSURE(team.rank == f->rank - first && team.size == (first ? f->world - 1 : 1));
    const enum ax_status st = team.size > 1 ? talk(&t) : AX_OK;
    ax_team_close(&team);
    return st;
}

enum ax_status team_cases_run(struct ax_fabric *f, void *ctx) {
    struct ax_team team;
    struct ax_comm c;
    (void)ctx;
    AX_TRY(ax_team_open(&team, f));
    ENSURE(team.rank == f->rank && team.size == f->world);
    enum ax_status st = comm_cases_open(f, AX_ROLE_WORLD, &c);
    if (st == AX_OK)
        st = both(&team, &c);
    ax_comm_free(&c);
    ax_team_close(&team);
    return st == AX_OK ? talk_in_part(f) : st;
}

enum ax_status team_cases_alone(void) {
    struct ax_team team;
    double value = 3;
    AX_TRY(ax_team_open(&team, NULL));
    struct talk t = {.team = &team};
    ENSURE(ax_team_leads(&team) && ax_team_leads(NULL));
    ENSURE(ax_team_agree(&team, AX_ERR_IO) == AX_ERR_IO && ax_team_agree(NULL, AX_OK) == AX_OK);
    AX_TRY(ax_team_share(NULL, &value, sizeof value));
    AX_TRY(ax_team_max(NULL, &value));
    ENSURE(value == 3);
    AX_TRY(report(&t, 0));
    ENSURE(t.taken == 1);
    ax_team_close(&team);
    return AX_OK;
}

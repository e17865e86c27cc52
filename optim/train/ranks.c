/* What the ranks of a run decide together: all of them stop, save and evaluate in the same step. */

#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/mem_guard.h"
#include "optim/train/run.h"
#include "parallel/fabric/flight.h"

/* ---- ranks that train, and then those that only sample ---- */

static struct ax_mesh_sizes replicas(int n) {
    return (struct ax_mesh_sizes){
        .pp = 1, .dp_replicate = n, .dp_shard = 1, .cp = 1, .tp = 1, .ep = 1};
}

enum ax_status ax_train_ranks_split(struct ax_train *t, struct ax_train_options *o) {
    struct ax_runtime_options *ro = &o->runtime;
    struct ax_fabric *whole = ro->fabric;
    if (o->rollout_ranks == 0)
        return AX_OK;
    AX_ASSERT(whole && whole->world > o->rollout_ranks);
    const int trainers = whole->world - o->rollout_ranks;
    const bool samples = whole->rank >= trainers;
    AX_TRY(ax_team_open(&t->all, whole));
    ro->threads = ax_runtime_threads(ro);
    ax_fabric_part_open(&t->part, whole, samples ? trainers : 0,
                        samples ? o->rollout_ranks : trainers);
    ro->world = t->part.fabric.world;
    ro->rank = t->part.fabric.rank;
    ro->local_world = whole->local_world;
    ro->fabric = ro->world > 1 ? &t->part.fabric : NULL;
    if (samples)
        ro->sizes = replicas(o->rollout_ranks);
    return AX_OK;
}

bool ax_train_only_samples(const struct ax_train *t) {
    return t->part.first > 0;
}

/* ---- the mesh ---- */

static enum ax_status find_mesh(struct ax_train *t) {
    t->runtime = t->o->runtime;
    t->runtime.may_stay_below = true;
    struct ax_runtime_options *ro = &t->runtime;
    const int world = ro->fabric ? ro->fabric->world : 1, rank = ro->fabric ? ro->fabric->rank : 0;
    int *sizes[] = {&ro->sizes.pp, &ro->sizes.dp_replicate, &ro->sizes.dp_shard,
                    &ro->sizes.cp, &ro->sizes.tp,           &ro->sizes.ep};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (*sizes[i] == 0)
            *sizes[i] = 1;
    AX_TRY(ax_mesh_create(&t->mesh, ro->sizes, world, rank));
    return ax_step_slots(&t->o->step, t->mesh.coord[AX_ROLE_PP], t->mesh.size[AX_ROLE_PP],
                         &ro->n_slots);
}

/* The first input that is not rank 0's. */
static enum ax_status compare_inputs(const struct ax_train_inputs *own,
                                     const struct ax_train_inputs *first, int rank) {
    char host[128] = "";
    for (int i = 0; i < own->n || i < first->n; i++) {
        const char *what = i < first->n ? first->list[i].what : own->list[i].what;
        if (i < own->n && i < first->n && own->list[i].hash == first->list[i].hash)
            continue;
        (void)gethostname(host, sizeof host - 1);
        return ax_error(AX_ERR_DATA,
                        "%s: rank %d on %s reads something else there than rank 0, so they would "
                        "train on different things. Copy the files of one host to all, or name a "
                        "folder that all of them share.",
                        what, rank, host);
    }
    return AX_OK;
}

/* Rank 0's inputs must be those of all ranks. */
static enum ax_status agree_on_inputs(struct ax_train *t) {
    struct ax_train_inputs *first;
    struct ax_team *team = t->all.size > 1 ? &t->all : &t->team;
    if (team->size == 1)
        return AX_OK;
    AX_TRY(ax_alloc(&first, 1, sizeof *first));
    *first = t->o->inputs;
    enum ax_status st = ax_team_share(team, first, sizeof *first);
    if (st == AX_OK)
        st = ax_team_agree(team, compare_inputs(&t->o->inputs, first, team->rank));
    ax_free(first);
    return st;
}

/* Where ranks that train say what they did last if they wait in vain. */
static enum ax_status record_flights(const struct ax_train *t) {
    char *dir;
    if (!t->o->runtime.fabric || !t->o->save.output_dir || ax_train_only_samples(t))
        return AX_OK;
    AX_TRY(ax_path_join(&dir, t->o->save.output_dir, "flight"));
    ax_flight_to(dir);
    ax_free(dir);
    return AX_OK;
}

enum ax_status ax_train_ranks_open(struct ax_train *t) {
    AX_TRY(record_flights(t));
    AX_TRY(find_mesh(t));
    AX_TRY(ax_slow_ranks_create(&t->slow, t->mesh.world, t->mesh.size[AX_ROLE_PP]));
    AX_TRY(ax_team_open(&t->team, t->o->runtime.fabric));
    if (t->o->tasks.lanes > 0 || t->o->requests.o.n_seqs > 0)
        AX_TRY(ax_team_open(&t->between, t->o->runtime.fabric));
    return agree_on_inputs(t);
}

void ax_train_ranks_close(struct ax_train *t) {
    ax_team_close(&t->between);
    ax_team_close(&t->team);
    ax_team_close(&t->all);
    ax_slow_ranks_free(&t->slow);
}

bool ax_train_is_main(const struct ax_train *t) {
    return t->mesh.rank == 0;
}

static void find_slowest(struct ax_train *t, const double *busy, struct ax_rank_figures *out) {
    double its, median;
    for (int r = 1; r < t->mesh.world; r++)
        out->slowest = busy[r] > busy[out->slowest] ? r : out->slowest;
    out->slowest_seconds = busy[out->slowest];
    const int slow = ax_slow_ranks_note(&t->slow, busy, &its, &median);
    if (slow >= 0)
        ax_metrics_event(t->metrics, AX_EVENT_WARNING, t->done,
                         "rank %d holds the others up: in the last %d steps it computed %.3g s per "
                         "step, the median of its peers is %.3g s; see what else runs on its host",
                         slow, AX_SLOW_STEPS, its, median);
}

void ax_train_ranks_begin_step(struct ax_train *t) {
    for (int role = 0; role < AX_ROLE_COUNT; role++)
        t->waited[role] = ax_comm_waited(&t->rt->comms[role]);
}

enum ax_status ax_train_compare_ranks(struct ax_train *t, double seconds,
                                      struct ax_rank_figures *out) {
    enum { MEMORY = AX_ROLE_COUNT, PEAK_MEMORY, FIXED };
    const int count = FIXED + t->mesh.world;
    double *v, busy = seconds;
    *out = (struct ax_rank_figures){0};
    if (t->mesh.world == 1)
        return AX_OK;
    AX_TRY(ax_alloc(&v, (size_t)count, sizeof *v));
    v[MEMORY] = (double)ax_mem_rss();
    v[PEAK_MEMORY] = (double)ax_mem_peak_rss();
    for (int role = 0; role < AX_ROLE_COUNT; role++) {
        const double now = ax_comm_waited(&t->rt->comms[role]);
        v[role] = now - t->waited[role];
        busy -= v[role];
        t->waited[role] = now;
    }
    /* tests ask that no wait is another step's */
    AX_ASSERT(busy > -1e-3 || ax_queue_is_late(t->rt->q) || !ax_mem_is_guarded());
    v[FIXED + t->mesh.rank] = busy > 0 ? busy : 0;
    const enum ax_status st = ax_runtime_combine(t->rt, AX_ROLE_WORLD, AX_MAX, v, count);
    for (int role = 0; role < AX_ROLE_COUNT && st == AX_OK; role++)
        if (t->mesh.size[role] > 1)
            out->waits[out->n_waits++] =
                (struct ax_phase_seconds){ax_role_name((enum ax_role)role), v[role]};
    out->memory = v[MEMORY];
    out->peak_memory = v[PEAK_MEMORY];
    if (st == AX_OK)
        find_slowest(t, v + FIXED, out);
    ax_free(v);
    return st;
}

/* True if the trigger file that requests a save exists, after the last step that was begun. */
static bool is_triggered(const struct ax_train *t) {
    const struct ax_train_save *s = &t->o->save;
    const int64_t step = t->done + (t->late.pending ? 1 : 0);
    return ax_train_is_main(t) && s->trigger_file && step % s->trigger_interval == 0 &&
           ax_path_exists(s->trigger_file);
}

enum ax_status ax_train_take_vote(struct ax_train *t, bool after_step) {
    const bool saving = t->saving > 0 && !ax_saver_is_due(&t->saver);
    double v[] = {(double)ax_stop_requested(), after_step && is_triggered(t) ? 1 : 0,
                  saving ? 1 : 0, ax_choices_are_new(t->rt) ? 1 : 0,
                  after_step && ax_train_replicas_are_due(t) ? 1 : 0};
    AX_TRY(ax_runtime_combine(t->rt, AX_ROLE_WORLD, AX_MAX, v, sizeof v / sizeof *v));
    if (v[3] > 0)
        AX_TRY(ax_choices_agree(t->rt));
    t->vote = (struct ax_train_vote){
        .stop = (enum ax_stop)v[0], .trigger = v[1] > 0, .saved = v[2] == 0, .compare = v[4] > 0};
    return AX_OK;
}

/* What a run will need, before anything is allocated: memory (and if it is too much, what single changes
 * would save), disk space, steps and tokens. From dry runs on a planning runtime, and counts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/free_space.h"
#include "base/io_path.h"
#include "base/log.h"
#include "kernels/backend.h"
#include "optim/plan/plan.h"
#include "optim/train/run.h"

/* ---- everything that a run does, once ---- */

#define NAMED 5 /* number of plan blocks to list */

/* What a save takes of the host tier. */
static enum ax_status plan_save(struct ax_train *t) {
    if (!ax_queue_has_host_tier(t->rt->q))
        return AX_OK;
    const enum ax_status st = ax_train_save_create(t);
    ax_train_save_free(t);
    return st;
}

enum ax_status ax_train_plan_once(struct ax_runtime *rt, const struct ax_train_options *o,
                                  const struct ax_step_options *so) {
    struct ax_train t = {.o = o, .rt = rt};
    struct ax_step_result r;
    struct ax_eval_result e;
    int found;
    AX_TRY(ax_step_create(&t.step, rt, o->arch, so));
    enum ax_status st;
    AX_TRY_GOTO(ax_train_value_create(&t), st, done);
    AX_TRY_GOTO(ax_train_rollout_create(&t), st, done);
    if (so->model.adapter)
        AX_TRY_GOTO(ax_train_start_adapter(&t.step.model, o), st, done);
    for (int m = 0; m < so->n_microbatches; m++)
        AX_TRY_GOTO(ax_batch_fill(&t.step.batches[m], rt->q, o->arch->vocab_size, 0, NULL), st,
                    done);
    if (so->relora.interval > 0)
        AX_TRY_GOTO(ax_step_restart(&t.step, 1), st, done);
    AX_TRY_GOTO(ax_train_take_adapters(&t), st, done);
    AX_TRY_GOTO(ax_step_run(&t.step, 0, &r), st, done);
    AX_TRY_GOTO(ax_train_value_plan(&t), st, done);
    AX_TRY_GOTO(ax_train_probe(&t, NULL, 0, &found), st, done);
    if (ax_train_has_reference(o)) {
        const struct ax_eval_options eo = ax_train_reference_options(o);
        AX_TRY_GOTO(ax_evaluate(&t.step.model, o->data.train, &eo, &e), st, done);
    }
    if (o->data.eval_tokens > 0 && (!ax_train_has_rollout(o) || so->objective->head.distill)) {
        struct ax_eval_options eo = ax_train_eval_options(o);
        eo.teacher = ax_step_teacher(&t.step);
        AX_TRY_GOTO(ax_evaluate(&t.step.model, o->data.eval, &eo, &e), st, done);
    }
    AX_TRY_GOTO(ax_train_rollout_plan(&t), st, done);
    if (o->samples.n > 0)
        AX_TRY_GOTO(ax_samples_run(&t.step.model, &o->samples, NULL, NULL), st, done);
    if (o->requests.o.n_seqs > 0)
        AX_TRY_GOTO(ax_train_requests_answer(&t), st, done);
    if (o->tasks.lanes > 0)
        AX_TRY_GOTO(ax_tasks_plan(&o->tasks, &t.step.model), st, done);
    st = plan_save(&t);
done:
    ax_train_value_free(&t);
    ax_train_rollout_free(&t);
    ax_step_free(&t.step);
    return st;
}

/* ---- memory ---- */

/* Of fit, all but what is available. */
static enum ax_status memory_needed(const struct ax_train_options *o,
                                    const struct ax_step_options *so, struct ax_train_fit *fit) {
    struct ax_runtime rt;
    struct ax_arena_plan plan;
    AX_TRY(ax_runtime_open_planning(&rt, &o->runtime));
    const enum ax_status st = ax_train_plan_once(&rt, o, so);
    ax_arena_measure(&rt.arena, &plan);
    fit->arena = ax_arena_plan_total(&plan);
    fit->beside = ax_backend_beside(o->runtime.backend, ax_runtime_groups(&rt));
    fit->held = rt.held;
    ax_plan_list_blocks(&fit->blocks, &rt.arena);
    ax_runtime_close(&rt);
    return st;
}

/* Ranks of a stage that are planned one by one; of more, those at the corners of the mesh. */
#define ALL_RANKS 16

/* Replicas are alike. */
static bool is_planned(const struct ax_runtime_options *o, int rank) {
    static const enum ax_role roles[] = {AX_ROLE_DP_SHARD, AX_ROLE_CP, AX_ROLE_TP};
    struct ax_mesh mesh;
    bool is = ax_mesh_create(&mesh, o->sizes, o->world, rank) == AX_OK &&
              mesh.coord[AX_ROLE_DP_REPLICATE] == 0;
    const bool all = o->world / o->sizes.pp / o->sizes.dp_replicate <= ALL_RANKS;
    for (size_t i = 0; is && !all && i < sizeof roles / sizeof *roles; i++)
        is = mesh.coord[roles[i]] == 0 || mesh.coord[roles[i]] == mesh.size[roles[i]] - 1;
    return is;
}

static enum ax_status plan_stage(struct ax_train_options *o, const struct ax_step_options *so,
                                 int stage, struct ax_train_stage *out) {
    struct ax_runtime_options *r = &o->runtime;
    const int ranks = r->world / r->sizes.pp, first = stage * ranks;
    *out = (struct ax_train_stage){0};
    AX_TRY(ax_step_slots(so, stage, r->sizes.pp, &out->n_slots));
    r->n_slots = out->n_slots;
    for (r->rank = first; r->rank < first + ranks; r->rank++) {
        struct ax_train_fit fit;
        if (!is_planned(r, r->rank))
            continue;
        AX_TRY(memory_needed(o, so, &fit));
        if (fit.arena > out->arena) {
            out->rank = r->rank;
            out->arena = fit.arena;
        }
    }
    return AX_OK;
}

enum ax_status ax_train_choose_rank(struct ax_train_options *o, struct ax_train_stage *stages) {
    const struct ax_step_options so = ax_train_step_options(o);
    const struct ax_train_stage *most = stages;
    for (int i = 0; i < o->runtime.sizes.pp; i++) {
        AX_TRY(plan_stage(o, &so, i, &stages[i]));
        if (stages[i].arena > most->arena)
            most = &stages[i];
    }
    o->runtime.rank = most->rank;
    o->runtime.n_slots = most->n_slots;
    return AX_OK;
}

/* ---- changes that would save memory ---- */

struct change {
    char text[96];
    uint64_t saves;
};

/* Changes one key of the options; false if that would save nothing. */
typedef bool change_fn(const struct ax_train_options *o, struct ax_train_options *changed,
                       struct ax_step_options *so, char *text, size_t size);

static bool change_recompute(const struct ax_train_options *o, struct ax_train_options *changed,
                             struct ax_step_options *so, char *text, size_t size) {
    (void)o;
    (void)changed;
    snprintf(text, size, "gradient_checkpointing: true");
    const bool can = so->recompute != AX_RECOMPUTE_ON;
    so->recompute = AX_RECOMPUTE_ON;
    return can;
}

static bool change_fewer_rows(const struct ax_train_options *o, struct ax_train_options *changed,
                              struct ax_step_options *so, char *text, size_t size) {
    const int64_t rows = o->data.sequences_per_batch / 2;
    if (rows < 1)
        return false;
    snprintf(text, size, "micro_batch_size: %lld, twice the gradient_accumulation_steps",
             (long long)rows);
    so->tokens = so->tokens / o->data.sequences_per_batch * rows;
    so->n_docs = so->n_docs / o->data.sequences_per_batch * rows;
    changed->data.eval_tokens = o->data.eval_tokens / 2;
    return true;
}

static bool change_shorter_rows(const struct ax_train_options *o, struct ax_train_options *changed,
                                struct ax_step_options *so, char *text, size_t size) {
    if (o->data.sequence_tokens < 256)
        return false;
    snprintf(text, size, "sequence_len: %lld", (long long)(o->data.doc_tokens / 2));
    so->tokens /= 2;
    so->max_len /= 2;
    changed->data.eval_tokens = o->data.eval_tokens / 2;
    return true;
}

static bool change_narrower(const struct ax_train_options *o, struct ax_train_options *changed,
                            struct ax_step_options *so, char *text, size_t size) {
    (void)o;
    (void)changed;
    snprintf(text, size, "bf16: true");
    const bool can = so->model.dtype == AX_F32;
    so->model.dtype = AX_BF16;
    return can;
}

static bool change_without_moments(const struct ax_train_options *o,
                                   struct ax_train_options *changed, struct ax_step_options *so,
                                   char *text, size_t size) {
    (void)o;
    (void)changed;
    snprintf(text, size, "optimizer: sgd");
    const bool can = so->optimizer != &ax_optimizer_sgd;
    so->optimizer = &ax_optimizer_sgd;
    return can;
}

static int larger_first(const void *a, const void *b) {
    const struct change *x = a, *y = b;
    return x->saves < y->saves ? 1 : x->saves > y->saves ? -1 : 0;
}

static enum ax_status find_changes(const struct ax_train_options *o,
                                   const struct ax_step_options *so, uint64_t arena,
                                   struct change *changes, int *n) {
    static change_fn *const all[] = {change_recompute, change_fewer_rows, change_shorter_rows,
                                     change_narrower, change_without_moments};
    *n = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct ax_train_options changed = *o;
        struct ax_step_options with = *so;
        struct change *c = &changes[*n];
        struct ax_train_fit fit;
        if (!all[i](o, &changed, &with, c->text, sizeof c->text))
            continue;
        AX_TRY(memory_needed(&changed, &with, &fit));
        c->saves = arena > fit.arena ? arena - fit.arena : 0;
        *n += c->saves > 0;
    }
    qsort(changes, (size_t)*n, sizeof *changes, larger_first);
    return AX_OK;
}

static enum ax_status refuse_memory(const struct ax_train_options *o,
                                    const struct ax_step_options *so,
                                    const struct ax_train_fit *fit) {
    const struct ax_plan_block *blocks = fit->blocks.list;
    struct change changes[5];
    struct ax_buf text = {0};
    char a[32], b[32];
    int n;
    AX_TRY(find_changes(o, so, fit->arena, changes, &n));
    enum ax_status st;
    for (int i = 0; i < 4 && i < fit->blocks.n; i++)
        AX_TRY_GOTO(ax_buf_printf(&text, "%s%s %s", i ? ", " : "", blocks[i].name,
                                  ax_format_bytes(a, sizeof a, (double)blocks[i].bytes)),
                    st, done);
    AX_TRY_GOTO(ax_buf_puts(&text, ". What would help:"), st, done);
    for (int i = 0; i < 3 && i < n; i++)
        AX_TRY_GOTO(ax_buf_printf(&text, "%s %s saves %s", i ? ";" : "", changes[i].text,
                                  ax_format_bytes(a, sizeof a, (double)changes[i].saves)),
                    st, done);
    st = ax_error(AX_ERR_NOMEM, "memory: training needs %s, but only %s are free. Largest: %s",
                  ax_format_bytes(a, sizeof a, (double)(fit->arena + fit->beside)),
                  ax_format_bytes(b, sizeof b, (double)fit->available), text.data);
done:
    ax_buf_free(&text);
    return st;
}

/* Lists the largest blocks, and always those of weights. */
static enum ax_status say_plan(const struct ax_train_fit *fit) {
    struct ax_buf text = {0};
    char size[32];
    enum ax_status st = AX_OK;
    for (int i = 0; i < fit->blocks.n; i++) {
        const struct ax_plan_block *b = &fit->blocks.list[i];
        if (i < NAMED || strstr(b->name, "weights"))
            AX_TRY_GOTO(ax_buf_printf(&text, "%s%s %s", text.len > 0 ? ", " : "", b->name,
                                      ax_format_bytes(size, sizeof size, (double)b->bytes)),
                        st, done);
    }
    ax_log_info("memory: %s planned: %s", ax_format_bytes(size, sizeof size, (double)fit->arena),
                text.data);
done:
    ax_buf_free(&text);
    return st;
}

/* Ranks that share this host's memory. */
static int local_ranks(const struct ax_runtime_options *o) {
    return o->local_world > 0 ? o->local_world : o->fabric ? o->fabric->local_world : 1;
}

enum ax_status ax_train_fit(const struct ax_train_options *o, struct ax_step_options *step,
                            struct ax_train_fit *fit) {
    static const enum ax_recompute modes[] = {AX_RECOMPUTE_OFF, AX_RECOMPUTE_SELECTIVE,
                                              AX_RECOMPUTE_ON};
    *fit = (struct ax_train_fit){
        .available = ax_backend_memory(o->runtime.backend, local_ranks(&o->runtime))};
    for (int i = o->recompute_auto ? 0 : 2; i < 3 && !fit->fits; i++) {
        if (o->recompute_auto)
            step->recompute = modes[i];
        AX_TRY(memory_needed(o, step, fit));
        fit->fits = fit->available == 0 || fit->arena + fit->beside <= fit->available;
    }
    return AX_OK;
}

enum ax_status ax_train_choose_memory(struct ax_train *t, struct ax_step_options *step) {
    struct ax_train_options own = *t->o;
    const struct ax_train_options *o = &own;
    struct ax_train_fit *fit = &t->fit;
    own.runtime = t->runtime;
    enum ax_status st = ax_train_fit(o, step, fit);
    if (st == AX_OK && !fit->fits)
        st = refuse_memory(o, step, fit);
    AX_TRY(ax_team_agree(&t->team, st));
    double mode = step->recompute; /* ranks may have unequal memory, or unequal parts */
    AX_TRY(ax_team_max(&t->team, &mode));
    if (mode > step->recompute) {
        step->recompute = (enum ax_recompute)mode;
        AX_TRY(memory_needed(o, step, fit));
    }
    if (!ax_train_is_main(t))
        return AX_OK;
    if (o->recompute_auto)
        ax_log_info("gradient_checkpointing: auto chose %s", ax_recompute_name(step->recompute));
    return say_plan(fit);
}

/* ---- disk space ---- */

/* Of the remaining checkpoints and the model, computed only from t->o and t->schedule; output_dir need not
 * exist. */
struct disk {
    int64_t checkpoints; /* kept in addition to those that exist */
    double checkpoint;   /* bytes of one checkpoint */
    double need;         /* bytes in total */
    uint64_t available;
};

static double weight_bytes(const struct ax_train *t) {
    double bytes = 0;
    for (int i = 0; i < t->contents.n_weights; i++) {
        const struct ax_save_weight *w = &t->contents.weights[i];
        const struct ax_block all = ax_block_whole(w->ndim, w->shape);
        bytes += (double)all.n * (double)ax_dtype_size(w->dtype);
    }
    return bytes;
}

/* Remaining saves, including the final one. */
static int64_t planned_saves(const struct ax_train *t) {
    const struct ax_train_schedule *s = &t->schedule;
    if (t->o->save.when.when == AX_NEVER)
        return 0;
    if (s->save_every > 0)
        return (s->total + s->save_every - 1) / s->save_every;
    return (int64_t)ceil((double)s->total / s->of_epoch - 1e-9);
}

/* Free space of the file system where `dir` is or will be created. */
static enum ax_status free_at(const char *dir, uint64_t *bytes) {
    char *at;
    AX_TRY(ax_strdup(&at, dir));
    enum ax_status st = AX_OK;
    while (st == AX_OK && !ax_path_is_dir(at)) {
        char *parent;
        st = ax_path_parent(&parent, at);
        if (st != AX_OK)
            break;
        ax_free(at);
        at = parent;
    }
    if (st == AX_OK)
        st = ax_disk_free(at, bytes);
    ax_free(at);
    return st;
}

static enum ax_status count_disk(const struct ax_train *t, struct disk *d) {
    const struct ax_train_save *save = &t->o->save;
    struct ax_checkpoint_list l = {0};
    if (ax_path_is_dir(save->output_dir))
        AX_TRY(ax_checkpoint_list(&l, save->output_dir));
    const int64_t there = (int64_t)l.n;
    ax_checkpoint_list_free(&l);
    const double model = weight_bytes(t);
    const double each =
        model + (save->only_model ? 0 : (double)ax_state_parts_bytes(&t->contents.parts));
    int64_t kept = planned_saves(t);
    if (save->limit > 0 && kept > save->limit)
        kept = save->limit + 1; /* the oldest is removed only after the newest is complete */
    kept = kept > there ? kept - there : 0;
    *d =
        (struct disk){.checkpoints = kept, .checkpoint = each, .need = (double)kept * each + model};
    return free_at(save->output_dir, &d->available);
}

/* Runs on a planning runtime, which has the names and shapes of what is saved, but no data. */
static enum ax_status disk_of(const struct ax_train *t, const struct ax_step_options *so,
                              struct disk *d) {
    struct ax_runtime rt;
    struct ax_train dry = {.o = t->o, .rt = &rt, .schedule = t->schedule, .lock = {.fd = -1}};
    const struct ax_runtime_options one = {.backend = t->runtime.backend, .threads = 1};
    AX_TRY(ax_runtime_open_planning(&rt, &one)); /* the mesh does not change what is saved */
    enum ax_status st = ax_step_create(&dry.step, &rt, t->o->arch, so);
    if (st == AX_OK) {
        st = ax_train_value_create(&dry);
        if (st == AX_OK)
            st = ax_train_save_create(&dry);
        if (st == AX_OK)
            st = count_disk(&dry, d);
        ax_train_save_free(&dry);
        ax_train_value_free(&dry);
        ax_step_free(&dry.step);
    }
    ax_runtime_close(&rt);
    return st;
}

enum ax_status ax_train_check_disk(const struct ax_train *t, const struct ax_step_options *so) {
    const struct ax_train_save *save = &t->o->save;
    struct disk d;
    AX_TRY(disk_of(t, so, &d));
    if (d.need <= (double)d.available)
        return AX_OK;
    char a[32], b[32], c[32];
    return ax_error(AX_ERR_STORAGE,
                    "output_dir: %s has %s free, but %lld more checkpoints of %s and the trained "
                    "model need %s; lower save_total_limit, set save_only_model: true, or choose "
                    "another folder",
                    save->output_dir, ax_format_bytes(a, sizeof a, (double)d.available),
                    (long long)d.checkpoints, ax_format_bytes(b, sizeof b, d.checkpoint),
                    ax_format_bytes(c, sizeof c, d.need));
}

/* ---- all of it, for a plan ---- */

static enum ax_status count_steps(const struct ax_train_options *o, struct ax_train_schedule *s,
                                  struct ax_train_forecast *f) {
    if (!o->data.countable && o->max_steps == 0)
        return AX_OK;
    const struct ax_mesh_sizes *sizes = &o->runtime.sizes;
    const int replicas = sizes->dp_replicate > 1 ? sizes->dp_replicate : 1;
    const int ranks = replicas * (sizes->dp_shard > 1 ? sizes->dp_shard : 1);
    AX_TRY(ax_train_schedule_make(s, o, ranks));
    f->steps = s->total;
    if (!o->data.countable)
        return AX_OK;
    AX_TRY(ax_loader_count_epoch(o->data.train, 0, 1, &f->epoch));
    const int64_t per_step = ax_train_sequences_per_step(o, ranks);
    const int64_t n = ax_train_schedule_used(s, f->epoch.sequences);
    const int64_t steps = (n + per_step - 1) / per_step;
    f->epochs = (double)s->total / (double)steps;
    f->tokens = (int64_t)(f->epochs * (double)f->epoch.tokens);
    return AX_OK;
}

enum ax_status ax_train_forecast(const struct ax_train_options *o, struct ax_step_options *step,
                                 struct ax_train_forecast *out) {
    struct ax_train t = {.o = o, .runtime = o->runtime, .lock = {.fd = -1}};
    struct disk disk;
    *out = (struct ax_train_forecast){0};
    AX_TRY(ax_train_fit(o, step, &out->fit));
    enum ax_status st;
    AX_TRY_GOTO(count_steps(o, &t.schedule, out), st, done);
    AX_TRY_GOTO(disk_of(&t, step, &disk), st, done);
    out->checkpoints = disk.checkpoints;
    out->checkpoint_bytes = disk.checkpoint;
    out->disk_bytes = disk.need;
    out->disk_available = disk.available;
done:
    ax_train_schedule_free(&t.schedule);
    return st;
}

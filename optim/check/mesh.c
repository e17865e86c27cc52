/* Runs a few steps on one rank and on a mesh, and compares the results. */
#include "optim/check/mesh.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kernels/transfer.h"
#include "model/adapter/load.h"
#include "parallel/fabric/comm_gloo.h"
#include "parallel/fabric/mesh_sizes.h"
#include "parallel/fabric/world.h"
#include "parallel/job/token.h"

/* ---- ranks of a check: fork, rendezvous, wait; or join the ranks of a launcher ---- */

/* Longer than a rank's part of the check takes, because rank 0 alone computes the reference. */
static const double LAUNCH_TIMEOUT = 600, LAUNCH_LINGER = 5;

static enum ax_status start_ranks(struct ax_mesh_launch *l) {
    AX_TRY(ax_gloo_available());
    AX_TRY(ax_random_bytes(l->key, sizeof l->key));
    AX_TRY(ax_alloc(&l->children, (size_t)l->world, sizeof *l->children));
    AX_TRY(ax_net_listen("127.0.0.1", 0, 1, &l->listening, &l->port));
    for (int r = 1; r < l->world; r++) {
        const pid_t pid = fork();
        if (pid == 0) {
            l->rank = r;
            close(l->listening);
            l->listening = -1;
            return AX_OK;
        }
        if (pid < 0)
            return ax_error(AX_ERR_FAILED, "rank %d: cannot start its process: %s", r,
                            strerror(errno));
        l->children[r] = pid;
    }
    const int fd = l->listening;
    l->listening = -1; /* the server closes it */
    return ax_store_serve(&l->server, fd, l->world, l->key, LAUNCH_TIMEOUT);
}

/* Without a store, ranks that have started would wait for it. */
static enum ax_status fork_ranks(struct ax_mesh_launch *l) {
    const enum ax_status st = start_ranks(l);
    for (int r = 1; st != AX_OK && l->children && r < l->world; r++)
        if (l->children[r] > 0)
            (void)kill(l->children[r], SIGKILL);
    return st;
}

/* Call before any thread starts: forks ranks 1 … world − 1, which also return from here, if they
 * are to be processes and no launcher has started them. */
static enum ax_status mesh_launch_start(struct ax_mesh_launch *l) {
    struct ax_env e;
    l->rank = 0;
    l->listening = -1;
    AX_TRY(ax_env_read(&e));
    if (e.world == 1)
        return l->processes ? fork_ranks(l) : AX_OK;
    if (e.world != l->world)
        return ax_error(AX_ERR_CONFIG, "check mesh: the mesh has %d ranks, but %s is %d", l->world,
                        e.world_name, e.world);
    l->launched = true;
    l->rank = e.rank;
    return AX_OK;
}

static enum ax_status run_launched(ax_local_body body, void *ctx) {
    struct ax_world w;
    AX_TRY(ax_world_open(&w, &(struct ax_world_options){.timeout = LAUNCH_TIMEOUT}));
    const enum ax_status st = body(w.fabric, ctx);
    ax_world_close(&w, st);
    return st;
}

static enum ax_status run_forked(struct ax_mesh_launch *l, ax_local_body body, void *ctx) {
    struct ax_store_options o = {.host = "127.0.0.1",
                                 .port = l->port,
                                 .ports = 1,
                                 .rank = l->rank,
                                 .world = l->world,
                                 .timeout = LAUNCH_TIMEOUT};
    struct ax_store_client *store;
    struct ax_fabric fabric;
    memcpy(o.key, l->key, sizeof o.key);
    AX_TRY(ax_store_open(&store, &o));
    enum ax_status st = ax_gloo_open(&fabric, store, l->world, LAUNCH_TIMEOUT);
    if (st == AX_OK) {
        st = body(&fabric, ctx);
        fabric.ops->free(&fabric);
    }
    ax_store_close(store);
    return st;
}

/* Runs the body as this process's rank, or as all ranks in threads. */
static enum ax_status mesh_launch_run(struct ax_mesh_launch *l, ax_local_body body, void *ctx) {
    if (l->launched)
        return run_launched(body, ctx);
    const struct ax_local_options o = {.timeout = LAUNCH_TIMEOUT};
    return l->processes ? run_forked(l, body, ctx) : ax_local_run(l->world, &o, body, ctx);
}

enum ax_status ax_mesh_launch_end(struct ax_mesh_launch *l, enum ax_status st) {
    int failed = 0, code = 0;
    ax_store_stop(l->server, LAUNCH_LINGER);
    if (l->listening >= 0) /* no server has it */
        close(l->listening);
    for (int r = 1; l->children && l->rank == 0 && r < l->world; r++) {
        int status;
        if (l->children[r] <= 0 || waitpid(l->children[r], &status, 0) < 0 || status == 0 || failed)
            continue;
        failed = r;
        code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    ax_free(l->children);
    l->children = NULL;
    l->server = NULL;
    if (st == AX_OK && failed)
        return ax_error(AX_ERR_PEER, "rank %d: its process exited with code %d", failed, code);
    return st;
}

/* ---- what is trained on: random documents, the same on any mesh ---- */

#define MESH_DOCS 8 /* per micro-batch, at most */

/* Which of a document's tokens are trained on: some, none, or none because it has no labels. */
enum labels { SOME, NONE, LEFT_OUT };

static enum labels labels_of(struct ax_rng_key key, int index, int doc) {
    static const enum labels kinds[] = {SOME, SOME, NONE, LEFT_OUT};
    return index == 1 ? NONE : kinds[ax_rng_below(key, 32 + (uint64_t)doc, 4)];
}

/* Random documents of a micro-batch, in one run of tokens. */
struct text {
    struct ax_document docs[MESH_DOCS];
    int n;
    int64_t tokens;
    int32_t *ids; /* [2T] tokens, then labels */
    float *weight;
};

/* The lengths depend on the number of the micro-batch in the step, `index`. */
static void divide(struct text *t, const struct ax_mesh_check *c, struct ax_rng_key key) {
    const int64_t T = c->step.tokens;
    for (t->n = 0, t->tokens = 0; t->n < MESH_DOCS && t->tokens < T - 1; t->n++) {
        const int64_t left = T - t->tokens;
        const int64_t most = c->longest > 0 ? c->longest : T / 3;
        int64_t len = 1 + (int64_t)ax_rng_below(key, (uint64_t)t->n, (uint64_t)most);
        len = len < left ? len : left;
        t->docs[t->n] = (struct ax_document){.n = len};
        t->tokens += len;
        if (c->step.pad > 0 && ax_rng_below(key, 48 + (uint64_t)t->n, 4) == 0) {
            t->n++;
            return;
        }
    }
}

/* Without labels of its own a document of a classifier would have tokens as labels: it gets some. */
static void write_text(struct text *t, int index, const struct ax_arch *arch, int64_t T,
                       struct ax_rng_key key) {
    const uint64_t vocab = (uint64_t)arch->vocab_size, labels = (uint64_t)ax_arch_head_rows(arch);
    int64_t at = 0;
    for (int d = 0; d < t->n; d++) {
        struct ax_document *doc = &t->docs[d];
        const enum labels kind = labels_of(key, index, d);
        doc->tokens = t->ids + at;
        doc->labels = kind == LEFT_OUT && !arch->classifier ? NULL : t->ids + T + at;
        doc->weight = t->weight + at;
        for (int64_t i = at; i < at + doc->n; i++) {
            const uint64_t k = 64 + 4 * (uint64_t)i;
            t->ids[i] = (int32_t)ax_rng_below(key, k, vocab);
            t->ids[T + i] = (int32_t)ax_rng_below(key, k + 1, labels);
            if (kind == NONE || ax_rng_below(key, k + 2, 2 + (uint64_t)index) == 0)
                t->ids[T + i] = -1;
            t->weight[i] = 0.5f + ax_rng_uniform(key, k + 3);
        }
        at += doc->n;
    }
}

static struct ax_rng_key key_of(int index, int step) {
    return (struct ax_rng_key){17, (uint32_t)step, (uint32_t)index};
}

/* Fills micro-batch m of this rank. The data ranks take a step's micro-batches in turn, as in the
 * training loop, and compute those of one m at one length. */
static enum ax_status fill_documents(struct ax_step *s, const struct ax_mesh_check *c, int m,
                                     int step) {
    const struct ax_arch *arch = &s->model.arch;
    const int64_t T = c->step.tokens;
    const int ranks = s->rt->mesh.size[AX_ROLE_BATCH];
    struct ax_batch *b = &s->batches[m];
    struct text text = {0};
    b->longest = 0;
    for (int rank = 0; rank < ranks; rank++) {
        divide(&text, c, key_of(m * ranks + rank, step));
        b->longest = text.tokens > b->longest ? text.tokens : b->longest;
    }
    const int index = m * ranks + s->rt->mesh.coord[AX_ROLE_BATCH];
    AX_TRY(ax_alloc(&text.ids, (size_t)(2 * T), sizeof *text.ids));
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&text.weight, (size_t)T, sizeof *text.weight), st, no_weight);
    divide(&text, c, key_of(index, step));
    write_text(&text, index, arch, T, key_of(index, step));
    st = ax_batch_fill(b, s->rt->q, arch->vocab_size, text.n, text.docs);
    ax_free(text.weight);
no_weight:
    ax_free(text.ids);
    return st;
}

/* ---- results ---- */

enum { STEPS = 2 };

/* The results of the steps, on the host: per parameter, the gradient and the new value. */
struct outcome {
    double loss[STEPS], aux_loss[STEPS], sequence_loss[STEPS], mtp_loss[STEPS], norm[STEPS];
    double index_loss[STEPS];
    double **grad[STEPS], **value[STEPS]; /* [n_params] */
    double *loads[STEPS];                 /* of experts, by layer */
};

struct run {
    struct ax_mesh_check *c;
    struct ax_golden_report *report;
    int data_ranks;
    bool reference;
    struct outcome one; /* of one rank */
    int n_params;
};

static bool on_ref(const struct ax_mesh_check *c) {
    return strcmp(c->backend, "ref") == 0;
}

enum figure { LOSS, NORM, TENSOR };

static double tolerance(const struct ax_mesh_check *c, enum figure f) {
    static const double of_f32[] = {[LOSS] = 2e-5, [NORM] = 1e-5, [TENSOR] = 3e-5};
    static const double of_bf16[] = {[LOSS] = 2e-2, [NORM] = 2e-2, [TENSOR] = 1e-1};
    return on_ref(c) ? 1e-11 : c->bf16 ? of_bf16[f] : of_f32[f];
}

/* ---- weights ---- */

static bool starts_at_zero(const struct ax_param *p) {
    return strstr(p->name, "lora_B") || strstr(p->name, "lora_embedding_A");
}

/* B, too, gets random values: it would otherwise start at zero, so that A's gradient would be zero
 * as well. */
static enum ax_status set_weights(struct ax_model *m, const struct ax_mesh_check *c) {
    AX_TRY(c->hf ? ax_model_load(m, c->hf) : ax_model_init_random(m, 5));
    if (!c->step.model.adapter)
        return AX_OK;
    AX_TRY(ax_adapter_init(m, 11));
    for (int i = 0; i < m->n_params && !ax_runtime_planning(m->rt); i++)
        if (starts_at_zero(&m->params[i]) && ax_unit_present(&m->units[m->params[i].unit]))
            AX_TRY(ax_model_draw(m, &m->params[i], AX_VALUES_NORMAL, 0.1, 23));
    return AX_OK;
}

/* ---- collecting ---- */

static const struct ax_tensor *source(const struct ax_unit *unit, const struct ax_param *p,
                                      bool gradient) {
    const struct ax_segment *seg = &unit->segments[p->segment];
    return gradient ? &seg->grad : &seg->master;
}

/* This rank's elements of a parameter or gradient, at their places in the global one. */
static enum ax_status own_part(struct ax_step *s, const struct ax_param *p, bool gradient,
                               double *out) {
    const struct ax_unit *unit = &s->model.units[p->unit];
    int64_t first, n, at, run;
    double *values;
    ax_unit_owned(unit, &s->rt->mesh, p, &first, &n, &at);
    if (n == 0)
        return AX_OK;
    const struct ax_tensor own = ax_tensor_rows(source(unit, p, gradient), at, n);
    AX_TRY(ax_alloc(&values, (size_t)n, sizeof *values));
    const enum ax_status st = ax_tensor_read(s->rt->q, &own, AX_F64, values);
    for (int64_t i = 0; st == AX_OK && i < n; i += run) {
        double *to = out + ax_param_global_index(p, &s->rt->mesh, first + i, &run);
        run = run < n - i ? run : n - i;
        memcpy(to, values + i, (size_t)run * sizeof *to);
    }
    ax_free(values);
    return st;
}

/* Computes the full parameter (or gradient) on every rank, in `out`, which is zero: each element is
 * contributed once, and summed. */
static enum ax_status collect(struct ax_step *s, const struct ax_param *p, bool gradient,
                              double *out) {
    struct ax_queue *host;
    if (ax_unit_owns(&s->model.units[p->unit], &s->rt->mesh, p))
        AX_TRY(own_part(s, p, gradient, out));
    AX_TRY(ax_host_queue_open(s->rt->q, &host));
    const enum ax_status st =
        ax_comm_sum(&s->rt->comms[AX_ROLE_WORLD], host, AX_F64, out, ax_param_numel(p));
    ax_host_queue_close(s->rt->q, host);
    return st;
}

static const char *group_of(const struct ax_param *p) {
    static const char *const kinds[][2] = {
        {"lora_A", "lora A"},
        {"lora_B", "lora B"},
        {"lora_magnitude", "magnitude"},
        {"lora_embedding", "embedding's lora"},
        {"embed_tokens", "embedding"},
        {"backbone.embeddings", "embedding"},
        {"lm_head", "head"},
        {"score.", "head"},
        {"norm", "norms"},
        {"experts.", "experts"},
        {"mlp.gate.", "router"},
        {"mlp.router.", "router"},
        {"block_sparse_moe.gate", "router"},
        {"block_sparse_moe.router", "router"},
        {"block_sparse_moe", "experts"},
        {"self_attn", "attention"},
        {"linear_attn", "delta rule"},
        {"mamba", "mamba"},
        {"feed_forward.gate.", "router"},
        {"mlp", "mlp"},
        {"feed_forward", "mlp"},
        {"conv.", "convolutions"},
        {"mixer.gate.", "router"},
        {"mixer", "mixers and mlps"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strstr(p->name, kinds[i][0]))
            return kinds[i][1];
    return "others";
}

static void note(const struct run *run, const char *what, const struct ax_param *p,
                 const double *mesh, const double *one) {
    char group[64];
    snprintf(group, sizeof group, "%s %s", group_of(p), what);
    const double worst = ax_golden_rel_norm(mesh, one, ax_param_numel(p));
    ax_golden_note(run->report, group, worst, tolerance(run->c, TENSOR), p->name);
}

/* Stores the results of the single rank, or compares with them. */
static enum ax_status take(struct run *run, struct ax_step *s, double **kept, bool gradient) {
    for (int i = 0; i < s->model.n_params; i++) {
        const struct ax_param *p = &s->model.params[i];
        if (!p->trainable)
            continue;
        AX_ASSERT(kept);
        const size_t n = (size_t)ax_param_numel(p);
        double *now;
        AX_TRY(ax_alloc(&now, n, sizeof *now));
        const enum ax_status st = collect(s, p, gradient, now);
        if (st == AX_OK && !run->reference && s->rt->mesh.rank == 0)
            note(run, gradient ? "gradients" : "weights", p, now, kept[i]);
        if (run->reference)
            kept[i] = now;
        else
            ax_free(now);
        AX_TRY(st);
    }
    return AX_OK;
}

/* Likewise the experts' loads: a choice that differs is one row more here and one less there. */
static enum ax_status take_loads(struct run *run, struct ax_step *s, int step) {
    const struct ax_tensor *loads = &s->model.expert_loads;
    const double *kept = run->one.loads[step];
    const int64_t n = ax_tensor_numel(loads);
    double *now;
    if (!loads->data || (!run->reference && s->rt->mesh.rank > 0))
        return AX_OK;
    AX_TRY(ax_alloc(&now, (size_t)n, sizeof *now));
    const enum ax_status st = ax_tensor_read(s->rt->q, loads, AX_F64, now);
    for (int64_t i = 0; st == AX_OK && kept && i < n; i++) {
        run->c->choices += now[i];
        run->c->other_choices += fabs(now[i] - kept[i]) / 2;
    }
    if (run->reference)
        run->one.loads[step] = now;
    else
        ax_free(now);
    return st;
}

static double relative(double a, double b) {
    return fabs(a - b) / fmax(fabs(b), 1e-300);
}

/* The balancing loss needs the counts of all layers on one stage (model/parts/router.h). */
static bool balances(const struct ax_mesh_check *c) {
    return c->arch->moe.n_experts > 0 && c->sizes.pp == 1;
}

static void note_scalars(const struct run *run, int step, const struct ax_step_result *r) {
    char where[32];
    const bool exact = on_ref(run->c);
    snprintf(where, sizeof where, "step %d", step + 1);
    const double loss = run->one.loss[step];
    ax_golden_note(run->report, "loss", exact ? relative(r->loss, loss) : fabs(r->loss - loss),
                   tolerance(run->c, LOSS), where);
    if (balances(run->c))
        ax_golden_note(run->report, "balancing loss",
                       relative(r->aux_loss, run->one.aux_loss[step]), tolerance(run->c, NORM),
                       where);
    if (run->c->step.sequence_coef > 0)
        ax_golden_note(run->report, "loss by sequence",
                       relative(r->sequence_loss, run->one.sequence_loss[step]),
                       tolerance(run->c, NORM), where);
    if (run->c->step.model.indexers != AX_INDEXERS_FROZEN)
        ax_golden_note(run->report, "loss of indexers",
                       relative(r->index_loss, run->one.index_loss[step]), tolerance(run->c, NORM),
                       where);
    if (run->c->step.mtp_coef > 0)
        ax_golden_note(run->report, "loss of multi-token prediction",
                       relative(r->mtp_loss, run->one.mtp_loss[step]), tolerance(run->c, NORM),
                       where);
    ax_golden_note(run->report, "grad norm", relative(r->grad_norm, run->one.norm[step]),
                   tolerance(run->c, NORM), where);
}

/* ---- running ---- */

static enum ax_status one_step(struct run *run, struct ax_step *s, int step) {
    const bool planning = ax_runtime_planning(s->rt);
    struct ax_step_result r;
    for (int m = 0; m < s->o.n_microbatches; m++)
        AX_TRY(fill_documents(s, run->c, m, step));
    if (step > 0 && s->o.relora.interval > 0)
        AX_TRY(ax_step_restart(s, step));
    AX_TRY(ax_step_gradients(s, &r));
    if (!planning && run->reference) {
        run->one.loss[step] = r.loss;
        run->one.aux_loss[step] = r.aux_loss;
        run->one.sequence_loss[step] = r.sequence_loss;
        run->one.mtp_loss[step] = r.mtp_loss;
        run->one.index_loss[step] = r.index_loss;
        run->one.norm[step] = r.grad_norm;
    } else if (!planning && s->rt->mesh.rank == 0) {
        note_scalars(run, step, &r);
    }
    if (!planning) {
        AX_TRY(take_loads(run, s, step));
        AX_TRY(take(run, s, run->one.grad[step], true));
    }
    /* SGD's is large, as clipping shrinks it */
    AX_TRY(ax_step_update(s, run->c->adamw ? 0.01 : 10, &r));
    return planning ? AX_OK : take(run, s, run->one.value[step], false);
}

/* Of the largest rank; all ranks call it. */
static enum ax_status note_memory(const struct run *run, struct ax_runtime *rt) {
    double bytes = (double)ax_arena_plan_total(&rt->arena.plan);
    AX_TRY(ax_runtime_combine(rt, AX_ROLE_WORLD, AX_MAX, &bytes, 1));
    if (rt->mesh.rank == 0)
        run->c->rank_bytes = (size_t)bytes;
    return AX_OK;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct run *run = ctx;
    const struct ax_mesh_check *c = run->c;
    struct ax_sft_options sft = c->sft;
    const struct ax_objective objective = ax_objective_sft_with(&sft);
    struct ax_step_options o = c->step;
    o.model.dtype = on_ref(c) ? AX_F64 : c->bf16 ? AX_BF16 : AX_F32;
    o.optimizer = &ax_optimizer_sgd;
    o.opt = (struct ax_optimizer_options){.momentum = 0.9, .weight_decay = 0.01};
    o.objective = &objective;
    o.max_norm = 0.05;
    o.balance_coef = balances(c) ? 0.05 : 0;
    o.n_microbatches *= run->reference ? run->data_ranks : 1;
    o.n_docs = MESH_DOCS;
    o.max_len = o.tokens;
    if (c->adamw) {
        o.optimizer = &ax_optimizer_adamw;
        o.opt = (struct ax_optimizer_options){.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6};
    }
    struct ax_step s;
    enum ax_status st;
    AX_TRY(ax_step_create(&s, rt, c->arch, &o));
    AX_TRY_GOTO(set_weights(&s.model, c), st, done);
    if (c->tamper && !run->reference)
        c->tamper(&s, c->tamper_ctx);
    st = AX_OK;
    for (int step = 0; step < STEPS && st == AX_OK; step++)
        st = one_step(run, &s, step);
    if (st == AX_OK && !run->reference && !ax_runtime_planning(rt))
        st = note_memory(run, rt);
done:
    ax_step_free(&s);
    return st;
}

static enum ax_status count_params(struct ax_runtime *rt, void *ctx) {
    struct run *run = ctx;
    struct ax_model m;
    struct ax_model_options mo = run->c->step.model;
    mo.dtype = AX_F32;
    mo.max_positions = 1;
    AX_TRY(ax_model_create(&m, run->c->arch, rt, &mo));
    run->n_params = m.n_params;
    ax_model_free(&m);
    return AX_OK;
}

static enum ax_status allocate(struct run *run) {
    struct ax_runtime rt;
    const struct ax_runtime_options o = {.backend = "ref", .threads = 1};
    AX_TRY(ax_runtime_open_planning(&rt, &o));
    const enum ax_status st = count_params(&rt, run);
    ax_runtime_close(&rt);
    AX_TRY(st);
    for (int step = 0; step < STEPS; step++) {
        AX_TRY(ax_alloc(&run->one.grad[step], (size_t)run->n_params, sizeof(double *)));
        AX_TRY(ax_alloc(&run->one.value[step], (size_t)run->n_params, sizeof(double *)));
    }
    return AX_OK;
}

static void release(struct run *run) {
    for (int step = 0; step < STEPS; step++) {
        ax_free(run->one.loads[step]);
        double **lists[] = {run->one.grad[step], run->one.value[step]};
        for (int k = 0; k < 2; k++) {
            for (int i = 0; lists[k] && i < run->n_params; i++)
                ax_free(lists[k][i]);
            ax_free(lists[k]);
        }
    }
}

static enum ax_status run_one(struct run *run) {
    const struct ax_runtime_options o = {.backend = run->c->backend,
                                         .may_stay_below = run->c->step.pad > 0};
    struct ax_arena_plan plan;
    run->reference = true;
    AX_TRY(ax_runtime_run(&o, body, run, &plan));
    run->reference = false;
    run->c->one_bytes = ax_arena_plan_total(&plan);
    return AX_OK;
}

/* Activation stashes of a stage. */
static enum ax_status count_slots(const struct run *run, int stage, int *slots) {
    const struct ax_mesh_check *c = run->c;
    return ax_step_slots(&c->step, stage, c->sizes.pp, slots);
}

static enum ax_status run_rank(struct ax_fabric *fabric, void *ctx) {
    struct run *run = ctx;
    struct ax_mesh mesh;
    AX_TRY(ax_mesh_create(&mesh, run->c->sizes, fabric->world, fabric->rank));
    struct ax_runtime_options o = {.backend = run->c->backend,
                                   .sizes = run->c->sizes,
                                   .may_stay_below = run->c->step.pad > 0,
                                   .fabric = fabric};
    AX_TRY(count_slots(run, mesh.coord[AX_ROLE_PP], &o.n_slots));
    return ax_runtime_run(&o, body, run, NULL);
}

/* Plans once without ranks, so that errors in the request are reported once. */
static enum ax_status plan_rank_0(struct run *run, int world) {
    struct ax_runtime_options o = {
        .backend = run->c->backend, .sizes = run->c->sizes, .world = world};
    struct ax_runtime rt;
    AX_TRY(count_slots(run, 0, &o.n_slots));
    AX_TRY(ax_runtime_open_planning(&rt, &o));
    const enum ax_status st = body(&rt, run);
    ax_runtime_close(&rt);
    return st;
}

enum ax_status ax_mesh_check_run(struct ax_mesh_check *c, struct ax_golden_report *r, bool *here) {
    struct run run = {.c = c, .report = r};
    struct ax_mesh_launch launch = {.processes = c->gloo};
    run.data_ranks = c->sizes.dp_replicate * c->sizes.dp_shard;
    *here = true;
    AX_TRY(ax_mesh_sizes_world(&c->sizes, "check mesh", &launch.world));
    AX_TRY(plan_rank_0(&run, launch.world));
    enum ax_status st;
    AX_TRY_GOTO(mesh_launch_start(&launch), st, done); /* before any threads exist */
    *here = launch.rank == 0;
    c->gloo |= launch.launched;
    AX_TRY_GOTO(allocate(&run), st, done);
    if (*here)
        AX_TRY_GOTO(run_one(&run), st, done);
    st = mesh_launch_run(&launch, run_rank, &run);
done:
    release(&run);
    return ax_mesh_launch_end(&launch, st);
}

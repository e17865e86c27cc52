/* What a mesh of threads writes: checkpoints and models are those of one rank, any mesh goes on from
 * any other's, and what fails on one rank fails on all and leaves nothing.
 *
 * AXTRAIN_SWEEP=1: all ordered pairs of meshes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <math.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include "base/mem.h"
#include "ckpt/state/checkpoint.h"
#include "parallel/fabric/comm_local.h"
#include "tests/optim/train_runs.h"
#include "tests/sweep.h"
#include "tests/long.h"

enum { SAVED = 3, LAST = 4, MAX_WORLD = 8 };

static const struct ax_peft_config lora = {.r = 3, .alpha = 8, .all_linear = true},
                                   pissa = {.r = 3,
                                            .alpha = 3,
                                            .all_linear = true,
                                            .start = AX_LORA_PISSA,
                                            .iterations = 8};

/* ---- folders ---- */

static char scratch[64];

/* The output folders of runs, by what they are. */
enum folder { BASE, ONE, MESH, NEXT, FAILED, FOLDERS };
static const char *path(enum folder which) {
    static const char *const names[] = {"base", "one", "mesh", "next", "failed"};
    static char paths[FOLDERS][128];
    snprintf(paths[which], sizeof paths[which], "%s/%s", scratch, names[which]);
    return paths[which];
}

static int open_scratch(void **state) {
    snprintf(scratch, sizeof scratch, "/dev/shm/axtrain-mesh-saves-%ld", (long)getpid());
    assert_int_equal(ax_mkdir_parents(scratch), AX_OK);
    return quiet(state);
}

static int remove_scratch(void **state) {
    (void)state;
    return ax_remove_tree(scratch) == AX_OK ? 0 : -1;
}

/* ---- a file system of several hosts ---- */

static bool remote; /* folders look as if they were on NFS, and each rank is a host */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool writes[1024]; /* by descriptor */
static int writers, most_writers;

static void count_writers(int fd, bool opens) {
    pthread_mutex_lock(&lock);
    if (fd >= 0 && fd < (int)(sizeof writes / sizeof *writes) && writes[fd] != opens) {
        writes[fd] = opens;
        writers += opens ? 1 : -1;
        most_writers = writers > most_writers ? writers : most_writers;
    }
    pthread_mutex_unlock(&lock);
}

/* A sanitizer's, where there is one. */
static int (*next_openat)(int, const char *, int, ...);
static int (*next_close)(int);

__attribute__((constructor)) static void find_next(void) {
    *(void **)&next_openat = dlsym(RTLD_NEXT, "openat");
    *(void **)&next_close = dlsym(RTLD_NEXT, "close");
}

/* The C library's, for this program. */
int statfs(const char *file, struct statfs *info) {
    const int rc = (int)syscall(SYS_statfs, file, info);
    if (rc == 0 && remote)
        info->f_type = NFS_SUPER_MAGIC;
    return rc;
}

static bool full_disk;

int statvfs(const char *file, struct statvfs *info) {
    struct statfs fs;
    const int rc = (int)syscall(SYS_statfs, file, &fs);
    *info =
        (struct statvfs){.f_bsize = 4096, .f_frsize = 4096, .f_bavail = full_disk ? 3 : 1 << 20};
    return rc;
}

int openat(int at, const char *file, int flags, ...) {
    va_list ap;
    va_start(ap, flags);
    const unsigned mode = flags & O_CREAT ? va_arg(ap, unsigned) : 0;
    va_end(ap);
    const int fd = next_openat ? next_openat(at, file, flags, mode)
                               : (int)syscall(SYS_openat, at, file, flags, mode);
    if ((flags & O_ACCMODE) == O_WRONLY && strstr(file, "/model.safetensors"))
        count_writers(fd, true);
    return fd;
}

int close(int fd) {
    count_writers(fd, false);
    return next_close ? next_close(fd) : (int)syscall(SYS_close, fd);
}

/* ---- runs ---- */

static const char experts[] =
    "{\"model_type\": \"mixtral\", \"vocab_size\": 97, \"hidden_size\": 40, "
    "\"intermediate_size\": 54, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, \"head_dim\": 12, \"initializer_range\": 0.15, "
    "\"max_position_embeddings\": 64, \"num_local_experts\": 8, \"num_experts_per_tok\": 2}";

static const char latent[] =
    "{\"model_type\": \"deepseek_v3\", \"vocab_size\": 97, \"hidden_size\": 40, "
    "\"intermediate_size\": 54, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
    "\"q_lora_rank\": 9, \"kv_lora_rank\": 10, \"qk_nope_head_dim\": 7, "
    "\"qk_rope_head_dim\": 6, \"v_head_dim\": 5, \"n_routed_experts\": 8, \"n_group\": 2, "
    "\"topk_group\": 1, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 22, "
    "\"first_k_dense_replace\": 1, \"initializer_range\": 0.15, "
    "\"max_position_embeddings\": 64}";

static const char deep[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 97, \"hidden_size\": 40, "
    "\"intermediate_size\": 54, \"num_hidden_layers\": 5, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, \"head_dim\": 12, \"initializer_range\": 0.15, "
    "\"max_position_embeddings\": 64, \"tie_word_embeddings\": true}";

struct kind {
    const char *name;
    enum ax_dtype dtype;
    const struct ax_peft_config *adapter;
    const char *model; /* config.json; NULL: the case's */
    double router_bias_speed;
    enum ax_masters masters;
    enum ax_moments moments;
    struct ax_relora_options relora;
};

/* A run on a mesh. All ranks share its output folder. */
struct mesh_run {
    const struct kind *kind;
    struct ax_mesh_sizes sizes;
    enum ax_pipeline_kind schedule;
    const char *out, *from; /* folder; checkpoint to go on from, or NULL */
    int64_t steps;
    const char *fault;        /* or NULL */
    bool fired;               /* it came to that */
    struct ax_train_result r; /* of rank 0 */
};

static int ranks_of(const struct ax_mesh_sizes *s) {
    return s->pp * s->dp_replicate * s->dp_shard * s->cp * s->tp;
}

static enum ax_status train_rank(struct ax_fabric *fabric, void *ctx) {
    struct mesh_run *m = ctx;
    struct train_case c;
    struct ax_train_result r;
    struct ax_hf base = {0};
    AX_TRY(train_case_open(&c, m->kind->dtype, false));
    struct ax_train_options *o = &c.o;
    if (m->kind->model)
        AX_TRY(train_case_use_model(&c, m->kind->model));
    if (m->kind->adapter == &pissa) { /* which starts from weights in a file */
        AX_TRY(ax_hf_open(&base, path(BASE)));
        o->weights = &base;
    }
    o->runtime = (struct ax_runtime_options){
        .backend = m->kind->dtype == AX_F64 ? "ref" : "cpu", .threads = 1, .sizes = m->sizes};
    o->runtime.fabric = fabric;
    if (remote)
        fabric->local_world = 1;
    o->step.n_microbatches = 4 / (m->sizes.dp_replicate * m->sizes.dp_shard);
    o->step.model.adapter = m->kind->adapter;
    o->step.model.masters = m->kind->masters;
    o->step.router_bias_speed = m->kind->router_bias_speed;
    o->step.pipeline = m->schedule;
    o->step.opt.moments = m->kind->moments;
    o->step.relora = m->kind->relora;
    o->data.pad = 8;
    o->data.eval = NULL;
    o->max_steps = m->steps;
    o->lr.base_lr = 1e-3;
    o->lr.total = LAST;
    o->metrics.logging_steps = 1;
    o->save.output_dir = m->out;
    o->save.when = (struct ax_cadence){AX_EACH_STEPS, SAVED};
    o->save.resume = m->from ? AX_RESUME_FOLDER : AX_RESUME_NO;
    o->save.resume_dir = m->from;
    ax_loader_start_epoch(c.loader, 0);
    const enum ax_status st = ax_train(o, &r);
    if (!fabric || fabric->rank == 0)
        m->r = r;
    ax_hf_close(&base);
    train_case_close(&c);
    return st;
}

static enum ax_status train(struct mesh_run *m) {
    const uint64_t live = ax_mem_live_blocks();
    enum ax_status st;
    if (m->fault)
        assert_int_equal(ax_fault_configure(m->fault), AX_OK);
    st = ax_local_run(ranks_of(&m->sizes), NULL, train_rank, m);
    m->fired = ax_fault_fired();
    assert_int_equal(ax_fault_configure(NULL), AX_OK);
    if (ax_mem_live_blocks() != live)
        fail_msg("%s: memory is not freed after: %s", m->fault, ax_error_text());
    return st;
}

static void train_ok(struct mesh_run *m) {
    if (train(m) != AX_OK)
        fail_msg("%s: %s (%s)", m->kind->name, ax_error_text(), ax_error_trace());
}

/* ---- comparing ---- */

/* The relative distance of two tensors, ‖a − b‖ / ‖a‖. */
static double distance(const struct ax_st_entry *a, const struct ax_st_entry *b) {
    double *x, *y, apart = 0, norm = 0;
    assert_int_equal(a->numel, b->numel);
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(ax_alloc(&x, (size_t)a->numel, sizeof *x), AX_OK);
    assert_int_equal(ax_alloc(&y, (size_t)a->numel, sizeof *y), AX_OK);
    assert_int_equal(ax_st_read(a, 0, a->numel, AX_F64, x), AX_OK);
    assert_int_equal(ax_st_read(b, 0, b->numel, AX_F64, y), AX_OK);
    for (int64_t i = 0; i < a->numel; i++) {
        apart += (x[i] - y[i]) * (x[i] - y[i]);
        norm += x[i] * x[i];
    }
    ax_free(x);
    ax_free(y);
    return sqrt(apart) / fmax(sqrt(norm), 1e-300);
}

/* The folders' tensors are the same within `tolerance`; −1: to the bit. */
static void expect_folders(const char *what, const char *a, const char *b, const char *file,
                           double tolerance) {
    struct ax_safetensors x, y;
    char p[256], q[256];
    snprintf(p, sizeof p, "%s/%s", a, file);
    snprintf(q, sizeof q, "%s/%s", b, file);
    assert_int_equal(ax_safetensors_open(&x, p), AX_OK);
    assert_int_equal(ax_safetensors_open(&y, q), AX_OK);
    assert_int_equal(x.n, y.n);
    assert_true(x.n > 0);
    for (int i = 0; i < x.n; i++) {
        assert_string_equal(x.entries[i].name, y.entries[i].name);
        const double apart = distance(&x.entries[i], &y.entries[i]);
        if (tolerance < 0 ? memcmp(x.entries[i].data, y.entries[i].data, x.entries[i].bytes) != 0
                          : !(apart <= tolerance))
            fail_msg("%s: %s of %s is %g from that of %s", what, x.entries[i].name, p, apart, q);
    }
    ax_safetensors_close(&x);
    ax_safetensors_close(&y);
}

static void expect_intact(const char *dir, int ranks) {
    struct ax_checkpoint c;
    assert_int_equal(ax_checkpoint_open(&c, dir), AX_OK);
    if (ax_checkpoint_verify(&c, NULL) != AX_OK)
        fail_msg("%s", ax_error_text());
    int files = 0;
    for (size_t i = 0; i < c.files.n; i++)
        files += strncmp(c.files.files[i].name, "state/rank-", 11) == 0;
    assert_true(files >= 1 && files <= ranks);
    ax_checkpoint_close(&c);
}

static const char *weights_of(const struct kind *k) {
    return k->adapter && k->relora.interval == 0 ? AX_PEFT_WEIGHTS : "model.safetensors";
}

/* ---- the tests ---- */

static const struct ax_mesh_sizes one = {1, 1, 1, 1, 1, 1};
static const struct ax_mesh_sizes meshes[] = {
    /* pp, dp_replicate, dp_shard, cp, tp, ep */
    {1, 1, 2, 1, 1, 1}, {1, 1, 1, 1, 2, 1}, {2, 1, 1, 1, 1, 1}, {1, 2, 2, 1, 1, 1},
    {1, 1, 2, 1, 2, 1}, {1, 1, 4, 1, 1, 1}, {2, 1, 1, 2, 1, 1}, {2, 1, 2, 1, 2, 1},
};
static const struct ax_mesh_sizes of_experts[] = {
    {1, 1, 2, 1, 1, 2},
    {1, 1, 4, 1, 1, 2},
    {1, 1, 1, 1, 2, 2},
    {2, 1, 2, 1, 1, 2},
};
#define COUNT(list) (sizeof(list) / sizeof *(list))

/* The steps from a checkpoint on, on a mesh, are those of one rank. */
static void go_on(const struct kind *k, const struct ax_mesh_sizes *sizes,
                  enum ax_pipeline_kind schedule, const char *from, const char *whole,
                  double tolerance) {
    struct mesh_run m = {.kind = k,
                         .sizes = *sizes,
                         .schedule = schedule,
                         .out = path(NEXT),
                         .from = from,
                         .steps = LAST};
    train_ok(&m);
    assert_int_equal(m.r.resumed_from, SAVED);
    assert_int_equal(m.r.steps, LAST);
    expect_folders(k->name, whole, m.out, weights_of(k), tolerance);
    assert_int_equal(ax_remove_tree(m.out), AX_OK);
}

static void each_mesh_writes_what_one_rank_does(const struct kind *k, double tolerance,
                                                const struct ax_mesh_sizes *list, size_t n) {
    const bool sweep = sweeping();
    char saved[256], whole[192], from[256];
    struct mesh_run straight = {.kind = k, .sizes = one, .out = path(ONE), .steps = LAST};
    train_ok(&straight);
    snprintf(whole, sizeof whole, "%s", straight.out);
    snprintf(saved, sizeof saved, "%s/checkpoint-%d", straight.out, SAVED);
    expect_intact(saved, 1);
    for (size_t i = 0; i < n; i++) {
        struct mesh_run m = {.kind = k, .sizes = list[i], .out = path(MESH), .steps = LAST};
        train_ok(&m);
        snprintf(from, sizeof from, "%s/checkpoint-%d", m.out, SAVED);
        expect_intact(from, ranks_of(&list[i]));
        expect_folders(k->name, saved, from, weights_of(k), tolerance);
        expect_folders(k->name, whole, m.out, weights_of(k), tolerance);
        go_on(k, &list[i], AX_PIPELINE_1F1B, from, m.out, -1); /* the same mesh: to the bit */
        go_on(k, &one, AX_PIPELINE_1F1B, from, whole, tolerance);
        go_on(k, &list[i], AX_PIPELINE_1F1B, saved, whole, tolerance);
        for (size_t j = 0; j < n; j++)
            if (j != i && (sweep || j == (i + 3) % n))
                go_on(k, &list[j], AX_PIPELINE_1F1B, from, whole, tolerance);
        assert_int_equal(ax_remove_tree(m.out), AX_OK);
    }
    assert_int_equal(ax_remove_tree(straight.out), AX_OK);
}

static void models_in_double(void **state) {
    (void)state;
    static const struct kind full = {"all weights", .dtype = AX_F64};
    each_mesh_writes_what_one_rank_does(&full, 1e-10, meshes, COUNT(meshes));
}

/* A rank with several ranges of layers writes and reads them as any other does: what is saved with
 * one schedule goes on with the next one, and on one rank. */
static void every_schedule_reads_every_other(void **state) {
    (void)state;
    static const struct kind kind = {"schedules", .dtype = AX_F64, .model = deep};
    static const enum ax_pipeline_kind schedules[] = {AX_PIPELINE_1F1B, AX_PIPELINE_INTERLEAVED,
                                                      AX_PIPELINE_AFAB};
    static const struct ax_mesh_sizes sizes[] = {
        {2, 1, 1, 1, 1, 1}, {2, 1, 2, 1, 1, 1}, {2, 1, 1, 1, 2, 1}};
    char whole[192], saved[256];
    struct mesh_run straight = {.kind = &kind, .sizes = one, .out = path(ONE), .steps = LAST};
    train_ok(&straight);
    snprintf(whole, sizeof whole, "%s", straight.out);
    snprintf(saved, sizeof saved, "%s/checkpoint-%d", straight.out, SAVED);
    for (size_t i = 0; i < COUNT(schedules); i++) {
        char from[256];
        const size_t j = (i + 1) % COUNT(schedules);
        struct mesh_run m = {.kind = &kind,
                             .sizes = sizes[i],
                             .schedule = schedules[i],
                             .out = path(MESH),
                             .steps = LAST};
        train_ok(&m);
        snprintf(from, sizeof from, "%s/checkpoint-%d", m.out, SAVED);
        expect_intact(from, ranks_of(&sizes[i]));
        expect_folders(kind.name, saved, from, weights_of(&kind), 1e-10);
        go_on(&kind, &sizes[i], schedules[i], from, m.out, -1);
        go_on(&kind, &sizes[j], schedules[j], from, whole, 1e-10);
        go_on(&kind, &one, schedules[i], from, whole, 1e-10);
        assert_int_equal(ax_remove_tree(m.out), AX_OK);
    }
    assert_int_equal(ax_remove_tree(straight.out), AX_OK);
}

static void adapters_in_double(void **state) {
    (void)state;
    static const struct kind kinds[] = {{"LoRA", .dtype = AX_F64, .adapter = &lora},
                                        {"PiSSA", .dtype = AX_F64, .adapter = &pissa}};
    static const struct kind full = {"base", .dtype = AX_F64};
    struct mesh_run base = {.kind = &full, .sizes = one, .out = path(BASE), .steps = 1};
    train_ok(&base);
    each_mesh_writes_what_one_rank_does(&kinds[0], 1e-7, meshes, COUNT(meshes)); /* in float32 */
    each_mesh_writes_what_one_rank_does(&kinds[1], 1e-6, meshes, 3);
}

static void experts_in_double(void **state) {
    (void)state;
    static const struct kind kind = {"experts", .dtype = AX_F64, .model = experts};
    each_mesh_writes_what_one_rank_does(&kind, 1e-10, of_experts, COUNT(of_experts));
}

/* Buffers are the same on all ranks of tp, and change while a run is not looked at. */
static void biases_of_routers_in_double(void **state) {
    (void)state;
    static const struct kind kind = {"router biases", .dtype = AX_F64, .model = latent,
                                     .router_bias_speed = 0.1};
    each_mesh_writes_what_one_rank_does(&kind, 1e-10, of_experts, COUNT(of_experts));
}

/* Adapters are merged and drawn anew before a step, also before the first one of a run that goes on; the
 * saved weights have them merged, as float32. */
static void restarts_in_double(void **state) {
    (void)state;
    static const struct kind kinds[] = {
        {"restarts", .dtype = AX_F64, .adapter = &lora, .relora = {.interval = 1}},
        {"rare restarts", .dtype = AX_F64, .adapter = &lora, .relora = {.interval = 2}}};
    each_mesh_writes_what_one_rank_does(&kinds[0], 1e-9, meshes, COUNT(meshes));
    each_mesh_writes_what_one_rank_does(&kinds[1], 1e-9, meshes + 4, 4);
}

/* Blocks of 8 bits are those of a mesh, so runs differ a little. */
static void moments_in_8_bits(void **state) {
    (void)state;
    static const struct kind kind = {"8 bits", .dtype = AX_F64, .moments = AX_MOMENTS_8BIT};
    each_mesh_writes_what_one_rank_does(&kind, 2e-4, meshes, COUNT(meshes));
}

/* Masters and weights are different memory; and there are the low bits of masters. */
static void models_in_bfloat16(void **state) {
    (void)state;
    static const struct kind kinds[] = {
        {"bf16", .dtype = AX_BF16},
        {"bf16 with remainders", .dtype = AX_BF16, .masters = AX_MASTERS_REMAINDER}};
    for (size_t i = 0; i < COUNT(kinds); i++)
        each_mesh_writes_what_one_rank_does(&kinds[i], 4e-3, meshes + 4 * i, 2);
}

/* Two hosts that change a page of a file at the same time would lose what one of them wrote. */
static void hosts_take_turns(void **state) {
    (void)state;
    static const struct kind full = {"turns", .dtype = AX_F64};
    struct mesh_run one_rank = {.kind = &full, .sizes = one, .out = path(ONE), .steps = SAVED};
    struct mesh_run m = {
        .kind = &full, .sizes = {1, 1, 2, 1, 2, 1}, .out = path(MESH), .steps = SAVED};
    train_ok(&one_rank);
    remote = true;
    most_writers = 0;
    train_ok(&m);
    remote = false;
    assert_int_equal(most_writers, 1);
    expect_folders("turns", one_rank.out, m.out, "model.safetensors", 1e-10);
    assert_int_equal(ax_remove_tree(m.out), AX_OK);
    assert_int_equal(ax_remove_tree(one_rank.out), AX_OK);
}

static void expect_only_intact(const char *out) {
    struct ax_checkpoint_list l;
    assert_int_equal(ax_checkpoint_list(&l, out), AX_OK);
    for (size_t k = 0; k < l.n; k++) {
        char dir[256];
        snprintf(dir, sizeof dir, "%s/checkpoint-%lld", out, (long long)l.steps[k]);
        expect_intact(dir, MAX_WORLD);
    }
    ax_checkpoint_list_free(&l);
}

/* ---- all ranks' state in one file ---- */

static enum ax_status reshard(const char *from, const char *to, const char *fault) {
    struct ax_checkpoint c;
    assert_int_equal(ax_checkpoint_open(&c, from), AX_OK);
    assert_int_equal(ax_fault_configure(fault), AX_OK);
    const enum ax_status st = ax_checkpoint_reshard(&c, to);
    ax_checkpoint_close(&c);
    return st;
}

/* Of a mesh's checkpoint: its files are those of one rank, and what follows is what followed. */
static void expect_resharded(const struct kind *k, const struct ax_mesh_sizes *sizes,
                             double tolerance) {
    struct mesh_run m = {.kind = k, .sizes = *sizes, .out = path(MESH), .steps = LAST};
    char from[256], to[256];
    const uint64_t live = ax_mem_live_blocks();
    train_ok(&m);
    snprintf(from, sizeof from, "%s/checkpoint-%d", m.out, SAVED);
    snprintf(to, sizeof to, "%s/resharded", scratch);
    if (reshard(from, to, NULL) != AX_OK)
        fail_msg("%s: %s", k->name, ax_error_text());
    assert_int_equal(ax_mem_live_blocks(), live);
    expect_intact(from, ranks_of(sizes));
    expect_intact(to, 1);
    expect_folders(k->name, from, to, weights_of(k), -1);
    go_on(k, sizes, AX_PIPELINE_1F1B, to, m.out, tolerance);
    struct mesh_run one_rank = {
        .kind = k, .sizes = one, .out = path(ONE), .from = from, .steps = LAST};
    train_ok(&one_rank);
    go_on(k, &one, AX_PIPELINE_1F1B, to, one_rank.out, tolerance);
    assert_int_equal(ax_remove_tree(one_rank.out), AX_OK);
    assert_int_equal(ax_remove_tree(m.out), AX_OK);
    assert_int_equal(ax_remove_tree(to), AX_OK);
}

static void one_file_of_state(void **state) {
    (void)state;
    static const struct kind full = {"all weights", .dtype = AX_F64},
                             adapter = {"LoRA", .dtype = AX_F64, .adapter = &lora},
                             codes = {"8 bits", .dtype = AX_F64, .moments = AX_MOMENTS_8BIT},
                             bits = {"bf16 with remainders", .dtype = AX_BF16,
                                     .masters = AX_MASTERS_REMAINDER};
    expect_resharded(&full, &meshes[7], -1);
    expect_resharded(&adapter, &meshes[4], -1);
    expect_resharded(&bits, &meshes[3], -1);
    expect_resharded(&codes, &one, -1); /* blocks as they were */
    expect_resharded(&codes, &meshes[5], -1);
    expect_resharded(&codes, &meshes[7], 2e-4);
}

/* Every call may fail: the folder that is replaced is the old or the new one. */
static void a_failed_reshard_changes_nothing(void **state) {
    (void)state;
    static const struct kind full = {"all weights", .dtype = AX_F32};
    static const char *const calls[] = {"write", "fsync", "rename", "open",
                                        "close", "mkdir", "read"};
    const int every = sweeping() ? 1 : 5;
    struct mesh_run m = {
        .kind = &full, .sizes = {1, 1, 2, 1, 2, 1}, .out = path(MESH), .steps = SAVED};
    char dir[256], to[256], file[320], *bytes;
    size_t len;
    int failed = 0;
    train_ok(&m);
    snprintf(dir, sizeof dir, "%s/checkpoint-%d", m.out, SAVED);
    snprintf(to, sizeof to, "%s/resharded", scratch);
    assert_int_equal(reshard(dir, to, NULL), AX_OK);
    for (size_t i = 0; i < COUNT(calls); i++)
        for (int n = 1; n < 200; n += every) {
            char fault[32];
            snprintf(fault, sizeof fault, "%s:%d:eio", calls[i], n);
            const enum ax_status st = reshard(dir, to, fault);
            const bool fired = ax_fault_fired();
            assert_int_equal(ax_fault_configure(NULL), AX_OK);
            failed += st != AX_OK;
            expect_intact(to, 1);
            if (!fired)
                break;
        }
    assert_true(failed > 10);
    assert_int_equal(ax_remove_tree(to), AX_OK);
    full_disk = true;
    assert_int_equal(reshard(dir, to, NULL), AX_ERR_STORAGE);
    full_disk = false;
    expect_error("/resharded: the copy needs ");
    expect_error(" but only 12.0 KiB are free");
    /* one flipped bit */
    snprintf(file, sizeof file, "%s/state/rank-00001.safetensors", dir);
    assert_int_equal(ax_read_file(file, 1 << 24, &bytes, &len), AX_OK);
    bytes[len - 9] ^= 4;
    assert_int_equal(ax_write_file_atomic(file, bytes, len), AX_OK);
    ax_free(bytes);
    assert_int_equal(reshard(dir, to, NULL), AX_ERR_DATA);
    expect_error("rank-00001.safetensors: corrupted between bytes");
    assert_false(ax_path_exists(to));
    assert_int_equal(ax_remove_tree(m.out), AX_OK);
}

/* A call that fails on one rank fails the last save, or the model, on all; calls are counted over all
 * ranks. What is there is whole, and the next run goes on from it. */
static void a_failed_call_leaves_nothing_half_done(void **state) {
    (void)state;
    static const struct kind full = {"all weights", .dtype = AX_F32};
    static const char *const calls[] = {"write", "fsync", "rename", "open", "close", "mkdir"};
    const int every = sweeping() ? 1 : 9;
    int failed = 0, passed = 0;
    for (size_t i = 0; i < COUNT(calls); i++)
        for (int n = 1 + (int)i; n < 200; n += every) {
            char fault[32];
            struct mesh_run m = {.kind = &full,
                                 .sizes = {1, 1, 2, 1, 2, 1},
                                 .out = path(FAILED),
                                 .steps = SAVED,
                                 .fault = fault};
            snprintf(fault, sizeof fault, "%s:%d:%s", calls[i], n, n % 2 ? "enospc" : "eio");
            const enum ax_status st = train(&m);
            expect_only_intact(m.out);
            failed += st != AX_OK;
            passed += st == AX_OK;
            if (st != AX_OK && st != AX_ERR_IO && st != AX_ERR_STORAGE)
                fail_msg("%s: %s", fault, ax_error_text());
            assert_int_equal(ax_remove_tree(m.out), AX_OK);
            if (!m.fired)
                break;
        }
    print_message("%d calls fail a run, %d are only warned of or come later\n", failed, passed);
    assert_true(failed > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LONG_TEST(cmocka_unit_test(models_in_double)),
        LONG_TEST(cmocka_unit_test(every_schedule_reads_every_other)),
        LONG_TEST(cmocka_unit_test(adapters_in_double)),
        LONG_TEST(cmocka_unit_test(experts_in_double)),
        LONG_TEST(cmocka_unit_test(biases_of_routers_in_double)),
        LONG_TEST(cmocka_unit_test(moments_in_8_bits)),
        LONG_TEST(cmocka_unit_test(restarts_in_double)),
        LONG_TEST(cmocka_unit_test(models_in_bfloat16)),
        cmocka_unit_test(hosts_take_turns),
        LONG_TEST(cmocka_unit_test(one_file_of_state)),
        cmocka_unit_test(a_failed_reshard_changes_nothing),
        LONG_TEST(cmocka_unit_test(a_failed_call_leaves_nothing_half_done)),
    };
    return cmocka_run_group_tests(tests, open_scratch, remove_scratch);
}

/* The arena is one file with two mappings: tensors have the addresses of the first, which nobody
 * may touch; ops and fabrics get those of the second. Commands wait in a list until the host waits
 * for them or the list is full. Copies beside ops are as late as somebody waits for them. */
#include "tests/doubles/far.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "kernels/backend.h"
#include "kernels/operands.h"
#include "kernels/queue.h"

/* ---- memory ---- */

static void device_allocate(struct ax_memory *m, enum ax_tier tier, size_t bytes) {
    (void)tier; /* the host can touch neither */
    *m = (struct ax_memory){.bytes = bytes};
    const int fd = memfd_create("axtrain-far", MFD_CLOEXEC);
    if (fd < 0)
        return;
    void *near = MAP_FAILED, *base = MAP_FAILED;
    if (ftruncate(fd, (off_t)bytes) == 0) {
        near = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        base = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, fd, 0);
    }
    close(fd);
    if (near != MAP_FAILED && base != MAP_FAILED) {
        m->base = base;
        m->state = near;
        return;
    }
    if (near != MAP_FAILED)
        munmap(near, bytes);
    if (base != MAP_FAILED)
        munmap(base, bytes);
}

static void device_release(struct ax_memory *m, enum ax_tier tier) {
    (void)tier;
    munmap(m->state, m->bytes);
    munmap(m->base, m->bytes);
}

/* The backend of the host that runs an op. */
static const struct ax_ops *near_ops(const struct ax_queue *q, enum ax_op op, const void *args) {
    const struct ax_ops *cpu = ax_ops_cpu();
    return cpu && cpu->supports(q, op, args) ? cpu : &ax_ops_ref;
}

/* ---- commands ---- */

union any_args {
#define MEMBER(op) struct ax_##op op;
    AX_OP_LIST(MEMBER)
#undef MEMBER
    char call[AX_QUEUE_ARGS];
};

struct command {
    enum { RUN_OP, COPY, CALL, TIME } kind;
    enum ax_op op;
    ax_queue_fn *fn;
    void *work, *to, *from; /* addresses of the second mapping, or of the host where it reads */
    size_t bytes;
    int into; /* TIME */
    int n_views;
    struct ax_view views[AX_QUEUE_VIEWS]; /* CALL; by addresses of the second mapping */
    union any_args args;
};

#define LIST 64

struct far {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct command list[LIST];
    uint64_t added, done;
    uint64_t wanted; /* commands before this one may run */
    bool stop;
    struct {
        struct command list[LIST]; /* copy n has element n % LIST */
        uint64_t asked, added;     /* how many */
    } beside[AX_TIERS];
    struct ax_error_record failed; /* the first failure; nothing runs after it */
    const struct ax_memory *memory, *host_tier;
    struct ax_queue near; /* what the ops of the cpu see */
};

static void *near_of(const struct far *f, const void *device) {
    if (device == NULL)
        return NULL;
    const size_t at = (size_t)((const char *)device - (const char *)f->memory->base);
    AX_ASSERT(at <= f->memory->bytes); /* else it is the host's memory */
    return (char *)f->memory->state + at;
}

/* The same for what may be in either tier. */
static void *near_of_any(const struct far *f, const void *address) {
    const char *base = f->host_tier->base, *at = address;
    return base != NULL && at >= base && at < base + f->host_tier->bytes
               ? (char *)f->host_tier->state + (at - base)
               : near_of(f, address);
}

/* Words of an op's arguments that are device addresses: its tensors and scalars. */
static void to_near(const struct far *f, enum ax_op op, union any_args *args) {
    const char *base = f->memory->base;
    for (const struct ax_operand *o = ax_op_operands(op); o->name != NULL; o++)
        (void)near_of(f, ax_operand_tensor(o, args)->data);
    for (size_t at = 0; at + sizeof(char *) <= ax_op_args_size(op); at += sizeof(char *)) {
        char *word;
        memcpy(&word, (char *)args + at, sizeof word);
        if (word >= base && word < base + f->memory->bytes) {
            word = near_of(f, word);
            memcpy((char *)args + at, &word, sizeof word);
        }
    }
}

static enum ax_status run_op(struct far *f, const struct command *c) {
    const struct ax_ops *ops = near_ops(&f->near, c->op, &c->args);
    switch (c->op) {
#define CASE(name)                                                                                 \
    case AX_OP_##name:                                                                             \
        return ops->name(&f->near, &c->args.name, c->work);
        AX_OP_LIST(CASE)
#undef CASE
    case AX_OP_COUNT:
        break;
    }
    return AX_OK;
}

/* A view's copy, of its exact size, so that tools see what is read or written beyond it. */
static enum ax_status copy_view(const struct ax_view *v, void **at) {
    *at = NULL;
    if (!v->device)
        return AX_OK;
    AX_TRY(ax_alloc(at, v->bytes > 0 ? v->bytes : 1, 1));
    if (v->use == AX_VIEW_WRITE)
        memset(*at, 0xff, v->bytes);
    else
        memcpy(*at, v->device, v->bytes);
    return AX_OK;
}

static enum ax_status run_call(struct far *f, const struct command *c) {
    void *at[AX_QUEUE_VIEWS] = {NULL};
    enum ax_status st = AX_OK;
    for (int i = 0; i < c->n_views && st == AX_OK; i++)
        st = copy_view(&c->views[i], &at[i]);
    if (st == AX_OK)
        st = c->fn(&f->near, c->args.call, at);
    for (int i = 0; i < c->n_views; i++) {
        const struct ax_view *v = &c->views[i];
        if (at[i] && st == AX_OK && v->use != AX_VIEW_READ)
            memcpy((void *)(uintptr_t)v->device, at[i], v->bytes);
        ax_free(at[i]);
    }
    return st;
}

static enum ax_status run_command(struct far *f, struct command *c) {
    switch (c->kind) {
    case RUN_OP:
        return run_op(f, c);
    case CALL:
        return run_call(f, c);
    case TIME:
        ax_times_add(c->to, c->into);
        break;
    case COPY:
        memcpy(c->to, c->from, c->bytes);
        break;
    }
    return AX_OK;
}

static void *work(void *arg) {
    struct far *f = arg;
    pthread_mutex_lock(&f->lock);
    for (;;) {
        while (!f->stop && f->done == f->wanted)
            pthread_cond_wait(&f->changed, &f->lock);
        if (f->done == f->wanted)
            break;
        struct command *c = &f->list[f->done % LIST];
        const bool runs = f->failed.st == AX_OK;
        pthread_mutex_unlock(&f->lock);
        const enum ax_status st = runs ? run_command(f, c) : AX_OK;
        pthread_mutex_lock(&f->lock);
        if (st != AX_OK)
            ax_error_save(&f->failed, st);
        f->done++;
        pthread_cond_broadcast(&f->changed);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* Has everything before command `upto` done. Under the lock. */
static void run_upto(struct far *f, uint64_t upto) {
    f->wanted = upto > f->wanted ? upto : f->wanted;
    pthread_cond_broadcast(&f->changed);
    while (f->done < upto)
        pthread_cond_wait(&f->changed, &f->lock);
}

/* Returns the number of commands up to this one. */
static uint64_t add_command(struct far *f, const struct command *c) {
    pthread_mutex_lock(&f->lock);
    while (f->added - f->done == LIST)
        run_upto(f, f->done + 1);
    f->list[f->added++ % LIST] = *c;
    const uint64_t added = f->added;
    pthread_mutex_unlock(&f->lock);
    return added;
}

static uint64_t all_so_far(struct far *f) {
    pthread_mutex_lock(&f->lock);
    const uint64_t added = f->added;
    pthread_mutex_unlock(&f->lock);
    return added;
}

static enum ax_status wait_for(struct far *f, uint64_t upto, bool *slept) {
    pthread_mutex_lock(&f->lock);
    *slept = f->done < upto;
    run_upto(f, upto);
    const enum ax_status st = f->failed.st;
    pthread_mutex_unlock(&f->lock);
    return st == AX_OK ? AX_OK : ax_error_restore(&f->failed);
}

/* Copies into a tier up to the n-th, at the end of the list. */
static void add_copies(struct far *f, enum ax_tier into, uint64_t n) {
    while (f->beside[into].added < n)
        add_command(f, &f->beside[into].list[++f->beside[into].added % LIST]);
}

static enum ax_status finish_all(struct far *f) {
    bool slept;
    for (int i = 0; i < AX_TIERS; i++)
        add_copies(f, (enum ax_tier)i, f->beside[i].asked);
    return wait_for(f, all_so_far(f), &slept);
}

/* ---- the device ---- */

static enum ax_status device_open(struct ax_queue *q) {
    struct far *f;
    AX_TRY(ax_alloc(&f, 1, sizeof *f));
    f->memory = &q->scratch->arena->memory;
    f->host_tier = &q->scratch->arena->host_memory;
    f->near = (struct ax_queue){.ops = q->ops, .threads = q->threads, .device_state = f};
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    q->device_state = f;
    if (pthread_create(&f->thread, NULL, work, f) == 0)
        return AX_OK;
    ax_free(f);
    return ax_error(AX_ERR_IO, "backend far: no thread can be started");
}

static void device_close(struct ax_queue *q) {
    struct far *f = q->device_state;
    pthread_mutex_lock(&f->lock);
    f->stop = true;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    pthread_join(f->thread, NULL);
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->changed);
    ax_free(f);
}

static enum ax_status device_finish(struct ax_queue *q) {
    return finish_all(q->device_state);
}

static enum ax_status device_read(struct ax_queue *q, const void *device, void *out, size_t bytes,
                                  const void *cap, uint64_t *ticket) {
    struct far *f = q->device_state;
    (void)cap;
    *ticket = add_command(
        f,
        &(struct command){.kind = COPY, .to = out, .from = near_of_any(f, device), .bytes = bytes});
    return AX_OK;
}

static enum ax_status device_time(struct ax_queue *q, struct ax_times *t, int into) {
    struct far *f = q->device_state;
    add_command(f, &(struct command){.kind = TIME, .to = near_of(f, t), .into = into});
    return AX_OK;
}

static enum ax_status device_copy(struct ax_queue *q, void *to, const void *from, size_t bytes) {
    struct far *f = q->device_state;
    add_command(f, &(struct command){.kind = COPY,
                                     .to = near_of_any(f, to),
                                     .from = near_of_any(f, from),
                                     .bytes = bytes});
    return AX_OK;
}

static enum ax_status device_copy_beside(struct ax_queue *q, enum ax_tier into, uint64_t n,
                                         void *to, const void *from, size_t bytes) {
    struct far *f = q->device_state;
    if (n > LIST)
        add_copies(f, into, n - LIST);
    f->beside[into].asked = n;
    f->beside[into].list[n % LIST] = (struct command){
        .kind = COPY, .to = near_of_any(f, to), .from = near_of_any(f, from), .bytes = bytes};
    return AX_OK;
}

static enum ax_status device_after(struct ax_queue *q, enum ax_tier into, uint64_t n) {
    add_copies(q->device_state, into, n);
    return AX_OK;
}

static enum ax_status device_call(struct ax_queue *q, ax_queue_fn *fn, const void *args,
                                  size_t size, const struct ax_view *views, int n_views) {
    const struct far *f = q->device_state;
    struct command c = {.kind = CALL, .fn = fn, .n_views = n_views};
    memcpy(c.args.call, args, size);
    for (int i = 0; i < n_views; i++) {
        c.views[i] = views[i];
        c.views[i].device = near_of(f, views[i].device);
    }
    add_command(q->device_state, &c);
    return AX_OK;
}

static void *device_address(struct ax_queue *q, const void *device) {
    return near_of(q->device_state, device);
}

static void *device_host(struct ax_queue *q, const void *tier) {
    return near_of_any(q->device_state, tier);
}

static uint64_t device_signal(struct ax_queue *q) {
    return all_so_far(q->device_state);
}

static enum ax_status device_wait(struct ax_queue *q, uint64_t ticket, bool *slept) {
    return wait_for(q->device_state, ticket, slept);
}

const struct ax_device ax_device_far = {
    .has_host_tier = true,
    .late = true,
    .allocate = device_allocate,
    .release = device_release,
    .open = device_open,
    .close = device_close,
    .read_later = device_read,
    .copy = device_copy,
    .copy_beside = device_copy_beside,
    .after = device_after,
    .call = device_call,
    .time = device_time,
    .address = device_address,
    .finish = device_finish,
    .host = device_host,
    .signal = device_signal,
    .wait = device_wait,
};

/* ---- the ops ---- */

static enum ax_status enqueue(struct ax_queue *q, enum ax_op op, const void *args, void *work) {
    struct far *f = q->device_state;
    struct command c = {.kind = RUN_OP, .op = op, .work = near_of(f, work)};
    memcpy(&c.args, args, ax_op_args_size(op));
    to_near(f, op, &c.args);
    add_command(f, &c);
    return AX_OK;
}

#define DEFINE_FAR(name)                                                                           \
    static enum ax_status far_##name(struct ax_queue *q, const struct ax_##name *args,             \
                                     void *work) {                                                 \
        return enqueue(q, AX_OP_##name, args, work);                                               \
    }
AX_OP_LIST(DEFINE_FAR)

static size_t far_workspace(struct ax_queue *q, enum ax_op op, const void *args) {
    return near_ops(q, op, args)->workspace(q, op, args);
}

static const struct ax_ops far_ops = {.name = "far",
                                      .device = &ax_device_far,
                                      .workspace = far_workspace,
#define ENTRY(op) .op = far_##op,
                                      AX_OP_LIST(ENTRY)
#undef ENTRY
};

/* A program that has this file finds the backend by its name. */
__attribute__((constructor)) static void add_far(void) {
    ax_backend_add(&far_ops);
}

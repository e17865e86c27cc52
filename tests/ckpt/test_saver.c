/* A save behind the training, on a disk that stops: whatever the training thread does, it waits for
 * no disk; what it changes is not what is saved, wherever the disk stopped; the memory is one copy
 * at most; and a kill in the middle costs nothing but that save. So it is where the host cannot
 * touch the state, and the copy is planned. AXTRAIN_SWEEP=1: a state of 1 GB. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/free_space.h"
#include "ckpt/state/saver.h"
#include "kernels/backend.h"
#include "tests/ckpt/folder.h"
#include "tests/skip.h"
#include "tests/sweep.h"

#define UNITS  4
#define CONCAT 3                      /* the unit whose weight is joined by another one: */
#define RUN    64                     /* columns of a row, */
#define BESIDE 32                     /* and of the other, which never changes */
#define SLOTS  3                      /* master and two moments; the weights are bf16 */
#define OWN    ((uint64_t)32 << 20)   /* buffers of the writer, and what rounding up takes */
#define SPARE  ((uint64_t)2048 << 20) /* memory that has to be free beside the state */

/* ---- a disk that stops ---- */

static bool stopped;
static bool lies;       /* a byte of every long write of the saver's thread is another one */
static int writes_left; /* of the saver's thread, until the disk stops; −1: it does not */
static bool full;       /* no write of the saver's thread succeeds */
static bool wakes_late; /* the trainer, from waiting for the saver: when the save has ended; … */
static struct ax_saver *waited_for; /* … this one; the disk is full from then on */
static pthread_t trainer;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moves = PTHREAD_COND_INITIALIZER;

/* It stops before one more than `writes` writes. */
static void stop_disk_after(int writes) {
    pthread_mutex_lock(&mutex);
    writes_left = writes;
    pthread_mutex_unlock(&mutex);
}

static void start_disk(void) {
    pthread_mutex_lock(&mutex);
    writes_left = -1;
    stopped = false;
    pthread_cond_broadcast(&moves);
    pthread_mutex_unlock(&mutex);
}

/* Until the disk has stopped: false where it was too late for that, and the save is through. */
static bool wait_for_stop(struct ax_saver *saver) {
    for (;; usleep(100)) {
        const bool due = ax_saver_is_due(saver);
        pthread_mutex_lock(&mutex);
        const bool stands = stopped;
        pthread_mutex_unlock(&mutex);
        if (stands || due)
            return stands;
    }
}

/* The writer stands still while the disk does; false: the disk is full. */
static bool pass_disk(const void *data, size_t n) {
    pthread_mutex_lock(&mutex);
    if (writes_left >= 0 && !pthread_equal(pthread_self(), trainer)) {
        stopped = stopped || writes_left-- == 0;
        while (stopped)
            pthread_cond_wait(&moves, &mutex);
    }
    const bool fails = full && !pthread_equal(pthread_self(), trainer);
    pthread_mutex_unlock(&mutex);
    if (fails)
        errno = ENOSPC;
    if (lies && n > 65536 && !pthread_equal(pthread_self(), trainer))
        ((char *)(uintptr_t)data)[65536] ^= 1; /* summed already, and not read again */
    return !fails;
}

/* The C library's, for this program. */
ssize_t write(int fd, const void *data, size_t n) {
    return pass_disk(data, n) ? syscall(SYS_write, fd, data, n) : -1;
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
    return pass_disk(data, n) ? syscall(SYS_pwrite64, fd, data, n, at) : -1;
}

static void set_full(bool is) {
    pthread_mutex_lock(&mutex);
    full = is;
    pthread_mutex_unlock(&mutex);
}

/* The C library's, for this program: it may wake any time after a signal. */
int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *held) {
    if (!wakes_late || !pthread_equal(pthread_self(), trainer)) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 3600;
        (void)pthread_cond_timedwait(cond, held, &until); /* is not replaced */
        return 0;
    }
    pthread_mutex_unlock(held);
    set_full(true);
    while (!ax_saver_is_due(waited_for))
        usleep(100);
    pthread_mutex_lock(held);
    return 0;
}

/* Bytes of the heap in use, of all threads and mappings (0 under AddressSanitizer). */
static uint64_t heap_bytes(void) {
    const struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* ---- a state ---- */

struct state {
    struct ax_arena arena;
    struct ax_queue *q;
    int64_t n;           /* elements of a unit */
    void *weight[UNITS]; /* bf16 */
    void *beside;
    void *slot[UNITS][SLOTS];
    void *host; /* room for a tensor */
    char names[UNITS][16];
    struct ax_save_weight weights[UNITS];
    struct ax_state_part list[UNITS * SLOTS];
    struct ax_state_parts parts;
    struct ax_mesh mesh;
    size_t below_stage; /* mark of the host tier */
};

static const char *const slots[SLOTS] = {"master", "exp_avg", "exp_avg_sq"};

static uint64_t bytes_of(const struct state *s) {
    return (uint64_t)(UNITS * s->n) * (2 + 4 * SLOTS) + 2 * (uint64_t)(s->n / RUN * BESIDE);
}

static float number(int step, int unit, int slot, int64_t i) {
    return (float)(step * 1000 + unit * 100 + slot * 10) + (float)(i % 1021) / 1024;
}

static void put(struct state *s, void *to, size_t bytes) {
    assert_int_equal(ax_queue_write(s->q, to, s->host, bytes), AX_OK);
}

static void fill_unit(struct state *s, int unit, int step) {
    float *slot = s->host;
    uint16_t *weight = s->host;
    for (int k = 0; k < SLOTS; k++) {
        for (int64_t i = 0; i < s->n; i++)
            slot[i] = number(step, unit, k, i);
        put(s, s->slot[unit][k], (size_t)s->n * sizeof *slot);
    }
    for (int64_t i = 0; i < s->n; i++)
        weight[i] = (uint16_t)(step + unit + i);
    put(s, s->weight[unit], (size_t)s->n * sizeof *weight);
}

static uint16_t beside(int64_t i) {
    return (uint16_t)~i;
}

static void *take(struct state *s, size_t n, size_t size) {
    return ax_stack_push(&s->arena.persistent, "state", n * size);
}

static void join_weight(struct state *s) {
    struct ax_save_weight *w = &s->weights[CONCAT];
    const int64_t rows = s->n / RUN, n = rows * BESIDE;
    s->beside = take(s, (size_t)n, 2);
    for (int64_t i = 0; i < n; i++)
        ((uint16_t *)s->host)[i] = beside(i);
    put(s, s->beside, (size_t)n * 2);
    w->ndim = w->n_parts = 2;
    w->shape[0] = rows;
    w->shape[1] = RUN + BESIDE;
    for (int i = 0; i < 2; i++) {
        struct ax_block *at = &w->parts[i].block;
        *at = ax_block_whole(2, w->shape);
        at->start[1] = i == 0 ? 0 : RUN;
        at->size[1] = i == 0 ? RUN : BESIDE;
        at->n = rows * at->size[1];
    }
    w->parts[1].value = ax_tensor_1d(AX_BF16, s->beside, n);
}

static void open_memory(struct state *s, const char *backend) {
    const struct ax_arena_plan plan = {
        .persistent = (size_t)s->n * (UNITS * (2 + 4 * SLOTS) + 2 * BESIDE / RUN) +
                      (size_t)(UNITS + 1) * SLOTS * AX_ARENA_ALIGN,
        .host = AX_QUEUE_RING + bytes_of(s)};
    const struct ax_ops *ops;
    assert_int_equal(ax_backend_find(backend, &ops), AX_OK);
    assert_int_equal(ax_arena_create(&s->arena, &plan, ops->device), AX_OK);
    assert_int_equal(ax_queue_create(&s->q, backend, NULL, 1, &s->arena.scratch), AX_OK);
    assert_int_equal(ax_queue_open_ring(s->q), AX_OK);
    assert_int_equal(ax_alloc(&s->host, (size_t)s->n, sizeof(float)), AX_OK);
}

/* n: elements of a unit, a multiple of RUN. */
static void open_state(struct state *s, const char *backend, int64_t n) {
    memset(s, 0, sizeof *s);
    s->n = n;
    open_memory(s, backend);
    s->parts = (struct ax_state_parts){UNITS * SLOTS, s->list, s->q};
    for (int u = 0; u < UNITS; u++) {
        snprintf(s->names[u], sizeof s->names[u], "unit.%d", u);
        s->weight[u] = take(s, (size_t)s->n, 2);
        s->weights[u] = (struct ax_save_weight){.name = s->names[u],
                                                .ndim = 1,
                                                .shape = {s->n},
                                                .unit = u,
                                                .dtype = AX_BF16,
                                                .n_parts = 1};
        s->weights[u].parts[0].block = ax_block_whole(1, &s->n);
        s->weights[u].parts[0].value = ax_tensor_1d(AX_BF16, s->weight[u], s->n);
        for (int k = 0; k < SLOTS; k++) {
            s->slot[u][k] = take(s, (size_t)s->n, sizeof(float));
            s->list[u * SLOTS + k] = (struct ax_state_part){.name = s->names[u],
                                                            .slot = slots[k],
                                                            .dtype = AX_F32,
                                                            .ndim = 1,
                                                            .shape = {s->n},
                                                            .size = {s->n},
                                                            .n = s->n,
                                                            .data = s->slot[u][k],
                                                            .unit = u};
        }
    }
    join_weight(s);
    assert_int_equal(ax_mesh_create(&s->mesh, (struct ax_mesh_sizes){1, 1, 1, 1, 1, 1}, 1, 0),
                     AX_OK);
}

static void close_state(struct state *s) {
    ax_free(s->host);
    ax_queue_free(s->q);
    ax_arena_free(&s->arena);
}

static void fill_all(struct state *s, int step) {
    for (int u = 0; u < UNITS; u++)
        fill_unit(s, u, step);
}

static void start_save(struct ax_saver *saver, struct state *s, int64_t step, json_t *config) {
    const struct ax_save_job job = {.output_dir = dir,
                                    .step = step,
                                    .hf = {.config = config, .dtype = AX_BF16},
                                    .n_weights = UNITS,
                                    .weights = s->weights,
                                    .parts = &s->parts,
                                    .mesh = &s->mesh,
                                    .run = json_object(),
                                    .limit = 1};
    assert_int_equal(ax_saver_start(saver, &job), AX_OK);
}

static void expect_weight(const struct state *s, const uint16_t *saved, int unit, int step) {
    const int64_t run = unit == CONCAT ? RUN : s->n, row = unit == CONCAT ? RUN + BESIDE : s->n;
    for (int64_t i = 0; i < s->n; i++)
        if (saved[i / run * row + i % run] != (uint16_t)(step + unit + i))
            fail_msg("weight of unit %d, element %lld", unit, (long long)i);
    for (int64_t i = 0; unit == CONCAT && i < s->n / RUN * BESIDE; i++)
        if (saved[i / BESIDE * row + RUN + i % BESIDE] != beside(i))
            fail_msg("what joins unit %d, element %lld", unit, (long long)i);
}

static bool is_far(const struct state *s) {
    return ax_queue_has_host_tier(s->q);
}

/* With a stage of at most `most` bytes, which is all that the host tier has beside the ring. */
static void open_saver(struct ax_saver *saver, struct state *s, size_t most) {
    assert_int_equal(ax_saver_create(saver, s->q, NULL, UNITS), AX_OK);
    const size_t below = s->arena.host.top;
    s->below_stage = ax_stack_mark(&s->arena.host);
    ax_saver_create_stage(saver, UNITS, s->weights, &s->parts, most);
    const size_t takes = s->arena.host.top - below;
    assert_int_equal(takes, !is_far(s) ? 0 : bytes_of(s) < most ? bytes_of(s) : most);
}

static void close_saver(struct ax_saver *saver, struct state *s) {
    ax_saver_free(saver);
    ax_stack_release(&s->arena.host, s->below_stage);
}

/* The checkpoint of that step holds what fill_unit(step) made. Reads it into s. */
static void expect_saved(struct state *s, int step) {
    struct ax_checkpoint c;
    char name[64];
    snprintf(name, sizeof name, "checkpoint-%d", step);
    if (ax_checkpoint_open(&c, in_dir(name)) != AX_OK || ax_checkpoint_verify(&c, NULL) != AX_OK ||
        ax_checkpoint_load(&c, &s->parts) != AX_OK)
        fail_msg("%s", ax_error_text());
    ax_checkpoint_close(&c);
    const float *slot = s->host;
    for (int u = 0; u < UNITS; u++)
        for (int k = 0; k < SLOTS; k++) {
            assert_int_equal(
                ax_queue_read(s->q, s->slot[u][k], s->host, (size_t)s->n * sizeof *slot, NULL),
                AX_OK);
            for (int64_t i = 0; i < s->n; i++)
                if (slot[i] != number(step, u, k, i))
                    fail_msg("unit %d, %s, element %lld", u, slots[k], (long long)i);
        }
    struct ax_hf hf;
    assert_int_equal(ax_hf_open(&hf, in_dir(name)), AX_OK);
    for (int u = 0; u < UNITS; u++)
        expect_weight(s, ax_hf_find(&hf, s->names[u])->data, u, step);
    ax_hf_close(&hf);
}

/* ---- the tests ---- */

/* What is told of waiting is time that the caller stood in a call, added up. */
static void test_waiting_is_counted(void **state) {
    (void)state;
    struct state s;
    struct ax_saver saver;
    json_t *config = json_object();
    open_state(&s, "ref", RUN);
    fill_all(&s, 1);
    assert_int_equal(ax_saver_create(&saver, s.q, NULL, UNITS), AX_OK);
    assert_int_equal(ax_fault_configure("fsync:1:delay"), AX_OK); /* 200 ms */
    double before = 0;
    for (int call = 0; call < 4; call++) {
        const double begin = ax_clock_now();
        if (call < 2) /* the second waits for the first */
            start_save(&saver, &s, 1 + call, config);
        else if (call == 2)
            ax_saver_before_update(&saver, 0);
        else
            assert_int_equal(ax_saver_finish(&saver), AX_OK);
        const double took = ax_clock_now() - begin, counted = saver.waited - before;
        assert_true(call == 2 ? counted >= 0 : counted > 0);
        assert_true(counted <= took + 1e-9);
        before = saver.waited;
    }
    ax_saver_before_update(&saver, 0); /* no save is under way */
    assert_true(saver.waited == before);
    assert_int_equal(ax_fault_configure(NULL), AX_OK);
    ax_saver_free(&saver);
    json_decref(config);
    close_state(&s);
}

/* Units are changed while the disk stands still: if that waited for it, it would wait for ever.
 * Returns the most memory that was taken meanwhile: none for copies where they are planned. */
static uint64_t change_all(struct ax_saver *saver, struct state *s, uint64_t before, int step) {
    uint64_t most = 0;
    for (int u = 0; u < UNITS; u++) {
        ax_saver_before_update(saver, u);
        const uint64_t all = heap_bytes(), now = all > before ? all - before : 0;
        most = now > most ? now : most;
        fill_unit(s, u, step);
    }
    assert_true(most <= (is_far(s) ? OWN / 4 : bytes_of(s) + OWN));
    return most;
}

/* What copying the state takes by itself, unit by unit. */
static void copy_time(struct state *s) {
    const size_t n = (size_t)s->n;
    char *copies[UNITS];
    const double begin = ax_clock_now();
    for (int u = 0; u < UNITS; u++) {
        assert_int_equal(ax_alloc_huge(&copies[u], n * (2 + 4 * SLOTS)), AX_OK);
        assert_int_equal(ax_queue_read(s->q, s->weight[u], copies[u], 2 * n, NULL), AX_OK);
        for (size_t k = 0; k < SLOTS; k++)
            assert_int_equal(
                ax_queue_read(s->q, s->slot[u][k], copies[u] + (2 + 4 * k) * n, 4 * n, NULL),
                AX_OK);
    }
    print_message("a copy of the state takes %.1f ms\n", 1e3 * (ax_clock_now() - begin));
    for (int u = 0; u < UNITS; u++)
        ax_free(copies[u]);
}

/* A save on a disk that stops before one more than `writes` writes; the state goes on while it
 * stands, and what was saved is the state as it was. false: the save was through before that. */
static bool save_on_stopping_disk(struct state *s, int writes) {
    struct ax_saver saver;
    json_t *config = json_object();
    fill_all(s, 1);
    open_saver(&saver, s, AX_SAVER_STAGE);
    if (writes % 2 == 0) /* else what fill_all wrote is under way while the save starts */
        assert_int_equal(ax_queue_finish(s->q), AX_OK);
    const uint64_t before = heap_bytes();
    alarm(60);
    stop_disk_after(writes);
    start_save(&saver, s, 1, config);
    const bool stands = wait_for_stop(&saver);
    const uint64_t most = change_all(&saver, s, before, 2);
    assert_int_equal(ax_saver_is_due(&saver), !stands);
    if (writes == 0)
        print_message("state %.0f MB: %.0f MB more while it is saved, %.1f ms waited\n",
                      (double)bytes_of(s) / 1e6, (double)most / 1e6, 1e3 * saver.waited);
    start_disk();
    assert_int_equal(ax_saver_finish(&saver), AX_OK);
    alarm(0);
    assert_true(heap_bytes() < before + OWN); /* the copies are gone */
    expect_saved(s, 1);
    close_saver(&saver, s);
    json_decref(config);
    assert_int_equal(ax_remove_tree(in_dir("checkpoint-1")), AX_OK);
    return stands;
}

static void open_state_or_skip(struct state *s, const char *backend, int64_t n) {
    const uint64_t bytes = (uint64_t)n * UNITS * (2 + 4 * SLOTS);
    if (ax_mem_available() < 3 * bytes + SPARE)
        skip_because("hardware, memory");
    open_state(s, backend, n);
}

static const char *const backends[] = {"ref", "far"};

static void test_waits_for_no_disk(void **state) {
    (void)state;
    static const int64_t sizes[] = {RUN, (int64_t)RUN * 18 << 10, (int64_t)RUN * 280 << 10};
    const int n = sweeping() ? 3 : 2;
    for (int i = 0; i < 2 * n; i++) {
        struct state s;
        open_state_or_skip(&s, backends[i % 2], sizes[i / 2]);
        copy_time(&s);
        assert_true(save_on_stopping_disk(&s, 0));
        close_state(&s);
    }
}

/* The disk stops before any write of a save: in the middle of a tensor of several pieces, of the
 * joined one too; at the end of one, where tensors fill the writer's buffer exactly; between files.
 */
static void test_disk_stops_anywhere(void **state) {
    (void)state;
    static const int64_t sizes[] = {RUN, (int64_t)4 << 16, (int64_t)RUN * 9000};
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        struct state s;
        int writes = 0;
        open_state_or_skip(&s, backends[i % 2], sizes[i / 2]);
        while (save_on_stopping_disk(&s, writes))
            writes++;
        print_message("state %.1f MB on %s: the disk stopped before each of %d writes\n",
                      (double)bytes_of(&s) / 1e6, backends[i % 2], writes);
        assert_true(writes >= (sizes[i / 2] > RUN ? 7 : 4));
        close_state(&s);
    }
}

static void *start_disk_later(void *after_fault) {
    while (after_fault && !ax_fault_fired()) /* nobody else may meet the fault */
        usleep(100);
    usleep(20000);
    start_disk();
    return NULL;
}

/* Without memory for a copy, or with room in the stage for only one tensor, a unit may be changed
 * when it has been read, and not before. */
static void waits_without_memory(const char *backend) {
    struct state s;
    struct ax_saver saver;
    pthread_t thread;
    json_t *config = json_object();
    open_state_or_skip(&s, backend, (int64_t)4 << 16);
    fill_all(&s, 1);
    open_saver(&saver, &s, (size_t)s.n * sizeof(float) + 64);
    alarm(60);
    stop_disk_after(3); /* in the state of unit 0 or 1 */
    start_save(&saver, &s, 1, config);
    assert_true(wait_for_stop(&saver));
    if (!is_far(&s))
        assert_int_equal(ax_fault_configure("malloc:1:enomem"), AX_OK);
    assert_int_equal(pthread_create(&thread, NULL, start_disk_later, is_far(&s) ? NULL : &s), 0);
    ax_saver_before_update(&saver, 2);
    assert_true(saver.waited > 0.01);
    fill_unit(&s, 2, 2);
    assert_int_equal(ax_fault_configure(NULL), AX_OK);
    assert_int_equal(ax_saver_finish(&saver), AX_OK);
    alarm(0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    expect_saved(&s, 1);
    close_saver(&saver, &s);
    close_state(&s);
    json_decref(config);
    assert_int_equal(ax_remove_tree(in_dir("checkpoint-1")), AX_OK);
}

static void test_waits_without_memory(void **state) {
    (void)state;
    waits_without_memory("ref");
    waits_without_memory("far");
}

/* What is not on the disk as it was written is not saved, and no reason to remove an older one. */
static void test_disk_that_lies(void **state) {
    (void)state;
    struct state s;
    struct ax_saver saver;
    json_t *config = json_object();
    open_state(&s, "ref", 1 << 14);
    assert_int_equal(ax_saver_create(&saver, s.q, NULL, UNITS), AX_OK);
    for (int step = 1; step <= 2; step++) {
        fill_all(&s, step);
        lies = step == 2;
        start_save(&saver, &s, step, config);
        assert_int_equal(ax_saver_finish(&saver), lies ? AX_ERR_DATA : AX_OK);
    }
    lies = false;
    assert_mentions("corrupted between bytes 0 and");
    expect_saved(&s, 1);
    ax_saver_free(&saver);
    close_state(&s);
    json_decref(config);
    assert_int_equal(ax_remove_tree(in_dir("checkpoint-1")), AX_OK);
    assert_int_equal(ax_remove_tree(in_dir("checkpoint-2")), AX_OK);
}

/* What a save that failed did not read is no reason not to wait for the next one. */
static void test_fails_while_waited_for(void **state) {
    (void)state;
    struct state s;
    struct ax_saver saver;
    json_t *config = json_object();
    int step = 0;
    open_state(&s, "ref", (int64_t)RUN * 9000);
    fill_all(&s, 1);
    assert_int_equal(ax_saver_create(&saver, s.q, NULL, UNITS), AX_OK);
    wakes_late = true;
    waited_for = &saver;
    alarm(60);
    while (!full) { /* until it meets the writer while that reads another unit's first part */
        start_save(&saver, &s, ++step, config);
        usleep((unsigned)(step * 37 % 1000));
        ax_saver_before_update(&saver, UNITS - 1);
        assert_int_equal(ax_saver_finish(&saver), full ? AX_ERR_STORAGE : AX_OK);
    }
    print_message("met the writer in save %d\n", step);
    set_full(false);
    wakes_late = false;
    fill_all(&s, ++step);
    stop_disk_after(0);
    start_save(&saver, &s, step, config);
    assert_true(wait_for_stop(&saver));
    change_all(&saver, &s, heap_bytes(), step + 1);
    start_disk();
    assert_int_equal(ax_saver_finish(&saver), AX_OK);
    alarm(0);
    expect_saved(&s, step);
    ax_saver_free(&saver);
    close_state(&s);
    json_decref(config);
    assert_int_equal(remove_dir(NULL), 0);
    assert_int_equal(make_dir(NULL), 0);
}

/* Killed while the disk stands still and the state has gone on. */
static void test_killed_behind_the_training(void **state) {
    (void)state;
    struct state s;
    struct ax_saver saver;
    json_t *config = json_object();
    open_state(&s, "ref", 1 << 14);
    fill_all(&s, 1);
    assert_int_equal(ax_saver_create(&saver, s.q, NULL, UNITS), AX_OK);
    start_save(&saver, &s, 1, config);
    assert_int_equal(ax_saver_finish(&saver), AX_OK);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        trainer = pthread_self();
        stop_disk_after(0);
        start_save(&saver, &s, 2, config);
        for (int u = 0; u < UNITS; u++) {
            ax_saver_before_update(&saver, u);
            fill_unit(&s, u, 3);
        }
        raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_false(ax_path_exists(in_dir("checkpoint-2")));
    assert_int_equal(ax_checkpoint_sweep(dir), AX_OK);
    assert_int_equal(count_entries(dir), 1);
    expect_saved(&s, 1);
    ax_saver_free(&saver);
    close_state(&s);
    json_decref(config);
}

int main(void) {
    trainer = pthread_self();
    start_disk();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waiting_is_counted),
        cmocka_unit_test(test_waits_for_no_disk),
        cmocka_unit_test(test_disk_stops_anywhere),
        cmocka_unit_test(test_waits_without_memory),
        cmocka_unit_test(test_disk_that_lies),
        cmocka_unit_test(test_fails_while_waited_for),
        cmocka_unit_test(test_killed_behind_the_training),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}

/* Times every optimizer's update on one large parameter, beside a plain copy of memory; see
 * docs/results/optim.md. Build and run from the repository:
 *
 *   make -j2 && gcc -std=c11 -O2 -D_GNU_SOURCE -I. -fopenmp tests/peers/optimizer_speed.c \
 *     build/libaxtrain.a -ljansson -lyaml -lpcre2-8 -lutf8proc -lzstd -lz -lm -o
 * /tmp/optimizer_speed /tmp/optimizer_speed THREADS [MILLIONS OF PARAMETERS] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "kernels/queue.h"
#include "optim/optimizers/optimizer.h"

#define ROUNDS 9
#define COLS   576

static struct ax_step_scalars scalars = {
    .lr = 1e-4, .inv_weight = 1, .clip = 0.9, .step = 7, .seed = 1};

static void *take(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (p == NULL)
        exit(1);
    memset(p, 0, bytes);
    return p;
}

static struct ax_tensor tensor(enum ax_dtype dtype, int64_t n) {
    return ax_tensor_1d(dtype, take((size_t)n * ax_dtype_size(dtype)), n);
}

static const struct kind {
    const char *name, *optimizer;
    enum ax_moments moments;
    enum ax_masters masters;
    double momentum; /* sgd */
} kinds[] = {
    {"SGD, momentum", "sgd", AX_MOMENTS_FULL, AX_MASTERS_ACCUM, 0.9},
    {"AdamW", "adamw", AX_MOMENTS_FULL, AX_MASTERS_ACCUM, 0},
    {"AdamW, remainder masters", "adamw", AX_MOMENTS_FULL, AX_MASTERS_REMAINDER, 0},
    {"AdamW, bf16 moments", "adamw", AX_MOMENTS_BF16, AX_MASTERS_ACCUM, 0},
    {"AdamW, bf16 moments, remainder", "adamw", AX_MOMENTS_BF16, AX_MASTERS_REMAINDER, 0},
    {"AdamW, bf16 moments and masters", "adamw", AX_MOMENTS_BF16, AX_MASTERS_STOCHASTIC, 0},
    {"AdamW, 8-bit moments", "adamw", AX_MOMENTS_8BIT, AX_MASTERS_ACCUM, 0},
    {"AdamW, 8-bit moments, remainder", "adamw", AX_MOMENTS_8BIT, AX_MASTERS_REMAINDER, 0},
    {"Lion", "lion", AX_MOMENTS_FULL, AX_MASTERS_ACCUM, 0},
    {"Lion, bf16 moment, remainder", "lion", AX_MOMENTS_BF16, AX_MASTERS_REMAINDER, 0},
    {"Adafactor", "adafactor", AX_MOMENTS_FULL, AX_MASTERS_ACCUM, 0},
    {"Muon (a matrix of 1536 x 576 each)", "muon", AX_MOMENTS_FULL, AX_MASTERS_ACCUM, 0},
};

static double op_bytes(const struct ax_queue *q) {
    double sum = 0;
    for (int op = 0; op < AX_OP_COUNT; op++)
        sum += q->counters.bytes[op];
    return sum;
}

/* An update and a copy take turns, because others use the machine's memory too; the best of each.
 */
struct best {
    double update, copy; /* seconds */
};

static struct best best_of(struct ax_queue *q, const struct ax_optimizer *optimizer,
                           const struct ax_optimizer_options *o, const struct ax_update *u,
                           const struct ax_copy *copy) {
    struct best best = {INFINITY, INFINITY};
    for (int round = 0; round < ROUNDS; round++) {
        double start = ax_clock_now();
        if (optimizer->update(q, o, u) != AX_OK)
            fprintf(stderr, "%s\n", ax_error_text());
        best.update = fmin(best.update, ax_clock_now() - start);
        const double counted = q->counters.bytes[AX_OP_copy];
        start = ax_clock_now();
        if (ax_run_copy(q, copy) != AX_OK)
            fprintf(stderr, "%s\n", ax_error_text());
        best.copy = fmin(best.copy, ax_clock_now() - start);
        q->counters.bytes[AX_OP_copy] = counted;
    }
    return best;
}

static void run(struct ax_queue *q, const struct kind *kind, int64_t n,
                const struct ax_copy *copy) {
    const struct ax_optimizer *optimizer;
    struct ax_optimizer_options o;
    if (ax_optimizer_find(kind->optimizer, &optimizer, &o) != AX_OK)
        exit(1);
    o.moments = kind->moments;
    o.momentum = kind->momentum > 0 ? kind->momentum : o.momentum;
    n = optimizer == &ax_optimizer_muon ? 1536 * COLS : n / COLS * COLS;
    const bool bf16 = kind->masters != AX_MASTERS_ACCUM;
    struct ax_update u = {.master = tensor(bf16 ? AX_BF16 : AX_F32, n),
                          .grad = tensor(AX_F32, n),
                          .piece = {.n = n, .rows = n / COLS, .cols = COLS, .accum = AX_F32},
                          .draw = {.stream = 1},
                          .weight_decay = 0.1,
                          .scalars = &scalars};
    u.piece.hidden = true;
    if (kind->masters == AX_MASTERS_REMAINDER)
        u.remainder = tensor(AX_I16, n);
    else if (!bf16)
        u.copy = tensor(AX_BF16, n);
    struct ax_slot_size slots[AX_MAX_STATE];
    const int count = optimizer->slots(&o, &u.piece, slots);
    double state = 0;
    for (int k = 0; k < count; k++) {
        u.state[k] = tensor(slots[k].dtype, slots[k].numel);
        state += (double)ax_tensor_bytes(&u.state[k]) / (double)n;
    }
    for (int64_t i = 0; i < n; i++) /* ordinary numbers: no denormals */
        ((float *)u.grad.data)[i] = (float)(i % 1001 - 500) * 1e-5f;
    memset(&q->counters, 0, sizeof q->counters);
    const struct best best = best_of(q, optimizer, &o, &u, copy);
    const double seconds = best.update, speed = (double)ax_tensor_bytes(&copy->src) * 2 / best.copy;
    const double bytes = op_bytes(q) / ROUNDS;
    printf("| %-34s | %4.1f | %5.1f | %6.3f | %5.1f | %5.1f | %3.0f %% |\n", kind->name, state,
           bytes / (double)n, seconds / (double)n * 1e9, bytes / seconds / 1e9, speed / 1e9,
           100 * bytes / seconds / speed);
    fflush(stdout);
    struct ax_tensor *all[] = {&u.master,   &u.grad,     &u.copy,     &u.remainder,
                               &u.state[0], &u.state[1], &u.state[2], &u.state[3]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]->data);
}

int main(int argc, char **argv) {
    const int threads = argc > 1 ? atoi(argv[1]) : 1;
    const int64_t n = (argc > 2 ? atoll(argv[2]) : 32) * 1000000;
    struct ax_arena arena;
    const struct ax_arena_plan plan = {.scratch[AX_PHASE_TRAIN] = (size_t)1 << 30};
    struct ax_queue *q;
    if (ax_arena_create(&arena, &plan, &ax_device_host) != AX_OK ||
        ax_queue_create(&q, "cpu", NULL, threads, &arena.scratch) != AX_OK)
        return 1;
    const struct ax_copy copy = {tensor(AX_F32, n), tensor(AX_F32, n)};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        run(q, &kinds[i], n, &copy);
    free(copy.dst.data);
    free(copy.src.data);
    ax_queue_free(q);
    ax_arena_free(&arena);
    return 0;
}

/* The cpu backend's sumsq, clip, adamw and sgd on every instruction set of this machine, against
 * what torch.optim computed (tests/goldens/optim), and what the file lacks: long segments, the
 * rounded copy, steps smaller than its last place, skipped steps, equal bits for any number of
 * threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tests/golden_files.h"
#include "tests/kernels/isa.h"

/* The file: 8 bytes of header length, a JSON header, the tensors' bytes. */
static char *golden;
static size_t golden_size;

static int open_golden(void **state) {
    (void)state;
    FILE *f = fopen(golden_path("optim/optim.safetensors"), "rb");
    assert_non_null(f);
    golden = calloc(1, 1 << 20);
    golden_size = golden != NULL ? fread(golden, 1, (1 << 20) - 1, f) : 0;
    fclose(f);
    return golden_size > 8 ? 0 : -1;
}

static int close_golden(void **state) {
    (void)state;
    free(golden);
    return 0;
}

/* The F32 tensor of that name, flat; memory of the test. */
static struct ax_tensor load(const char *name) {
    char key[64];
    snprintf(key, sizeof(key), "\"%s\":{", name);
    const char *entry = strstr(golden + 8, key);
    assert_non_null(entry);
    const char *offsets = strstr(entry, "\"data_offsets\":[");
    assert_non_null(offsets);
    char *end;
    size_t from = strtoul(offsets + strlen("\"data_offsets\":["), &end, 10);
    size_t to = strtoul(end + 1, NULL, 10);
    uint64_t header;
    memcpy(&header, golden, sizeof(header));
    assert_true(from < to && 8 + header + to <= golden_size);
    struct ax_tensor t = line(AX_F32, (int64_t)((to - from) / 4));
    memcpy(t.data, golden + 8 + header + from, to - from);
    return t;
}

static struct ax_tensor load_for(const char *prefix, const char *key) {
    char name[64];
    snprintf(name, sizeof(name), "%s.%s", prefix, key);
    return load(name);
}

/* A parameter with its state and its gradients of five steps. */
struct parameter {
    struct ax_tensor master, grad, state[2], copy, grads, want;
    int64_t n;
};

static struct parameter open_parameter(const char *optimizer, const char *key, enum ax_dtype real) {
    struct parameter p = {.master = load_for("in", key), .grads = load_for("grad", key)};
    p.want = load_for(optimizer, key);
    p.n = p.master.shape[0];
    assert_int_equal(p.grads.shape[0], 5 * p.n);
    assert_int_equal(p.want.shape[0], 5 * p.n);
    p.grad = line(AX_F32, p.n);
    p.state[0] = line(AX_F32, p.n);
    p.state[1] = line(AX_F32, p.n);
    p.copy = line(real, p.n);
    return p;
}

static void begin_step(struct parameter *p, int64_t step) {
    struct ax_tensor grad = ax_tensor_rows(&p->grads, (step - 1) * p->n, p->n);
    memcpy(p->grad.data, grad.data, (size_t)p->n * 4);
}

static void end_step(const struct isa *isa, const char *what, const struct parameter *p,
                     int64_t step) {
    for (int64_t i = 0; i < p->n; i++) {
        double want = get(&p->want, (step - 1) * p->n + i, 0), got = get(&p->master, i, 0);
        if (!(fabs(got - want) <= 1e-6)) {
            fail_msg("%s on %s, step %d, element %d: %.9g, expected %.9g", what, isa->name,
                     (int)step, (int)i, got, want);
        }
    }
    struct ax_tensor rounded = clone(&p->copy);
    for (int64_t i = 0; i < p->n; i++) {
        const float w = ((const float *)p->master.data)[i];
        const uint32_t word = ax_rng_u32((struct ax_rng_key){0, (uint32_t)step, 1}, (uint64_t)i);
        if (p->copy.dtype == AX_BF16)
            ((uint16_t *)rounded.data)[i] = ax_f32_to_bf16_random(w, word);
        else
            ((float *)rounded.data)[i] = w;
    }
    assert_same_bits(&p->copy, &rounded);
}

static const char *const KEYS[] = {"wide", "tall", "vec"};

static void check_adamw(const struct isa *isa, enum ax_dtype real) {
    static const struct {
        const char *name;
        double lr, beta2, eps, weight_decay;
    } cases[] = {{"adamw", 0.01, 0.95, 1e-8, 0.1}, {"adam_no_decay", 0.001, 0.999, 1e-6, 0}};
    for (int c = 0; c < 2; c++) {
        for (int k = 0; k < 3; k++) {
            struct parameter p = open_parameter(cases[c].name, KEYS[k], real);
            struct ax_step_scalars s = {.lr = cases[c].lr, .clip = 1};
            for (s.step = 1; s.step <= 5; s.step++) {
                begin_step(&p, s.step);
                RUN(isa, 1, adamw, .master = p.master, p.grad, p.state[0], p.state[1], p.copy, 0.9,
                    cases[c].beta2, cases[c].eps, cases[c].weight_decay, &s);
                end_step(isa, cases[c].name, &p, s.step);
            }
        }
    }
}

static void check_sgd(const struct isa *isa, enum ax_dtype real) {
    for (int k = 0; k < 3; k++) {
        struct parameter p = open_parameter("sgd_nesterov", KEYS[k], real);
        randomize(&p.state[0], 1, 0); /* not read at step 1 */
        struct ax_step_scalars s = {.lr = 0.1, .clip = 1};
        for (s.step = 1; s.step <= 5; s.step++) {
            begin_step(&p, s.step);
            RUN(isa, 1, sgd, .master = p.master, p.grad, p.state[0], p.copy, 0.9, 0.01, true, &s);
            end_step(isa, "sgd_nesterov", &p, s.step);
        }
    }
}

/* The clipping factor reaches the weights: one plain SGD step with lr 1 subtracts clipped
 * gradients. */
static void check_clip(const struct isa *isa, enum ax_dtype real) {
    static const struct {
        const char *name;
        double norm;
    } cases[] = {
        {"clip_below", 0.36114683747291565}, {"clip_above", 21.66880989074707}, {"clip_zero", 0}};
    for (int c = 0; c < 3; c++) {
        struct ax_step_scalars s = {.lr = 1, .max_norm = 1, .inv_weight = 1, .step = 1};
        struct ax_tensor in[2], want[2], none = {0};
        for (int k = 0; k < 2; k++) {
            char name[64];
            snprintf(name, sizeof(name), "%s.in.%s", cases[c].name, k == 0 ? "matrix" : "vector");
            in[k] = load(name);
            snprintf(name, sizeof(name), "%s.out.%s", cases[c].name, k == 0 ? "matrix" : "vector");
            want[k] = load(name);
            RUN_WORK(isa, 1, sumsq, in[k], &s);
        }
        RUN(isa, 1, clip, &s);
        assert_true(fabs(s.grad_norm - cases[c].norm) <= 1e-6 * cases[c].norm);
        assert_int_equal(s.skip, 0);
        for (int k = 0; k < 2; k++) {
            int64_t n = in[k].shape[0];
            struct ax_tensor w = line(AX_F32, n), grad = clone(&in[k]), copy = line(real, n);
            RUN(isa, 1, sgd, .master = w, grad, none, copy, 0, 0, false, &s);
            for (int64_t i = 0; i < n; i++)
                assert_near(isa, cases[c].name, &w, i, 0, -get(&want[k], i, 0), 1);
        }
    }
}

static void check_skipped(const struct isa *isa, enum ax_dtype real) {
    static const double SUMSQ[] = {4, INFINITY, NAN, 4, 4}, INV_WEIGHT[] = {0, 1, 1, 1, 1};
    static const double LOSS[] = {1, 1, 1, INFINITY, 1};
    static const double HOLD_ABOVE[] = {INFINITY, INFINITY, INFINITY, INFINITY, 0.5};
    enum { N = 40001 };
    struct ax_tensor w = line(AX_F32, N), state = line(AX_F32, N), copy = line(real, N);
    randomize(&w, 1, 0);
    randomize(&state, 1, 1);
    for (int c = 0; c < 5; c++) {
        struct ax_step_scalars s = {.lr = 1, .max_norm = 1, .inv_weight = INV_WEIGHT[c], .step = 3};
        s.hold_above = HOLD_ABOVE[c];
        s.sumsq = SUMSQ[c];
        s.loss = LOSS[c];
        RUN(isa, 1, clip, &s);
        assert_int_equal(s.skip, 1);
        struct ax_tensor w1 = clone(&w), m = clone(&state), v = clone(&state), copy1 = clone(&copy);
        struct ax_tensor grad = clone(&state);
        RUN(isa, 2, adamw, .master = w1, grad, m, v, copy1, 0.9, 0.95, 1e-8, 0.1, &s);
        RUN(isa, 2, sgd, .master = w1, grad, m, copy1, 0.9, 0.1, false, &s);
        assert_same_bits(&w1, &w);
        assert_same_bits(&m, &state);
        assert_same_bits(&v, &state);
        assert_same_bits(&copy1, &copy);
        assert_same_bits(&grad, &state);
    }
    struct ax_step_scalars s = {.sumsq = 1e6, .inv_weight = 1, .skip = 1};
    s.loss = s.hold_above = 1;
    RUN(isa, 1, clip, &s); /* clipping off, and the last step's skip forgotten */
    assert_true(s.clip == 1 && s.grad_norm == 1e3 && s.skip == 0);
}

/* A step too small for the last place of a weight in bf16 is there on average. */
static void check_small_steps(const struct isa *isa, enum ax_dtype real) {
    enum { N = 40000 };
    struct ax_tensor w = line(AX_F32, N), grad = line(AX_F32, N), copy = line(real, N), none = {0};
    for (int64_t i = 0; i < N; i++) {
        ((float *)w.data)[i] = -1;
        ((float *)grad.data)[i] = 1;
    }
    struct ax_step_scalars s = {.lr = 0x1p-9, .clip = 1, .step = 3, .seed = 11};
    RUN(isa, 2, sgd, .master = w, grad, none, copy, 0, 0, false, &s);
    double sum = 0;
    for (int64_t i = 0; i < N; i++) {
        const double c = get(&copy, i, 0);
        assert_true(get(&w, i, 0) == -1 - 0x1p-9);
        assert_true(real == AX_BF16 ? c == -1 || c == -1 - 0x1p-7 : c == -1 - 0x1p-9);
        sum += (-1 - c) * 0x1p9;
    }
    /* a quarter of them one last place (2^-7) further: mean 1, deviation sqrt(3) of one */
    assert_true(fabs(sum / N - 1) <= 5 * sqrt(3.0 / N));
}

/* Lion moves by the whole rate however small the direction is, down to the smallest number, and
 * stays where it is exactly 0. */
static void check_signs(const struct isa *isa, enum ax_dtype real) {
    static const float DIRECTIONS[] = {1e-35F, 1e-38F, 0x1p-149F, 0, 1e-30F, 1, 3e38F};
    enum { KINDS = 7, N = 2 * KINDS * 5, LR = 3 };
    for (int from_moment = 0; from_moment < 2; from_moment++) {
        struct ax_tensor w = line(AX_F32, N), grad = line(AX_F32, N), m = line(AX_F32, N);
        struct ax_tensor copy = line(real, N), *from = from_moment ? &m : &grad;
        for (int i = 0; i < N; i++) {
            const float d = DIRECTIONS[i / 2 % KINDS];
            set(from, i, 0, (double)(i % 2 ? -d : d));
        }
        const struct ax_step_scalars s = {.lr = LR, .clip = 1, .step = 2};
        /* the direction is the moment, or the gradient, to the bit */
        RUN(isa, 1, lion, .master = w, grad, m, copy, from_moment ? 1 : 0, 0.99, 0, &s);
        for (int i = 0; i < N; i++) {
            const double sign = DIRECTIONS[i / 2 % KINDS] == 0 ? 0 : i % 2 ? -1 : 1;
            if (get(&w, i, 0) != -LR * sign || get(&copy, i, 0) != -LR * sign) {
                fail_msg("lion on %s: a direction of %g moved %g, expected %g", isa->name,
                         sign * (double)DIRECTIONS[i / 2 % KINDS], get(&w, i, 0), -LR * sign);
            }
        }
    }
}

/* A segment of several pieces and a tail: every element against the formula, all threads alike. */
static void check_segments(const struct isa *isa, enum ax_dtype real) {
    enum { N = 50021 };
    struct ax_tensor w = line(AX_F32, N), g = line(AX_F32, N), m = line(AX_F32, N);
    struct ax_tensor v = line(AX_F32, N), first[4];
    randomize(&w, 1, 0);
    randomize(&g, 1, 0);
    randomize(&m, 0.1, 0);
    randomize(&v, 0.1, 0.1);
    const double lr = 1e-3, b1 = 0.9, b2 = 0.95, eps = 1e-8, decay = 0.1, clip = 0.25;
    for (int t = 0; t < 3; t++) {
        struct ax_step_scalars s = {.lr = lr, .clip = clip, .step = 7};
        struct ax_tensor out[4] = {clone(&w), clone(&m), clone(&v), line(real, N)},
                         grad = clone(&g);
        RUN_WORK(isa, THREADS[t], sumsq, g, &s);
        RUN(isa, THREADS[t], adamw, .master = out[0], grad, out[1], out[2], out[3], b1, b2, eps,
            decay, &s);
        double sumsq = 0;
        for (int64_t i = 0; i < N && t == 0; i++) {
            double gi = get(&g, i, 0) * clip, mi = b1 * get(&m, i, 0) + (1 - b1) * gi;
            double vi = b2 * get(&v, i, 0) + (1 - b2) * gi * gi;
            double wi = get(&w, i, 0) * (1 - lr * decay);
            wi -= lr * (mi / (1 - pow(b1, 7))) / (sqrt(vi / (1 - pow(b2, 7))) + eps);
            sumsq += get(&g, i, 0) * get(&g, i, 0);
            assert_near(isa, "w", &out[0], i, 0, wi, fabs(wi) / 4 + lr);
            assert_near(isa, "m", &out[1], i, 0, mi, 0.2);
            assert_near(isa, "v", &out[2], i, 0, vi, vi);
            const double last = real == AX_BF16 ? fabs(get(&out[0], i, 0)) / 128 : 0;
            assert_true(fabs(get(&out[3], i, 0) - get(&out[0], i, 0)) <= last);
        }
        assert_same_bits(&grad, &g);
        static double first_sumsq;
        if (t == 0) {
            memcpy(first, out, sizeof(first));
            first_sumsq = s.sumsq;
            assert_true(fabs(s.sumsq - sumsq) <= 1e-12 * sumsq);
        }
        assert_true(s.sumsq == first_sumsq);
        for (int k = 0; k < 4; k++)
            assert_same_bits(&out[k], &first[k]);
    }
}

/* The size of Adafactor's step is that of all weights, in however many pieces they are read. With gradients of 1 the
 * first step is lr times their root mean square, of a vector as of a matrix. */
static void check_pieces(const struct isa *isa, enum ax_dtype real) {
    enum { FIRST = 16384, N = 20000, ROWS = 200 };
    const double rms = sqrt((FIRST + (N - FIRST) * 100.0) / N), lr = 0.01;
    for (int vector = 0; vector < 2; vector++) {
        struct ax_tensor w = line(AX_F32, N), g = line(AX_F32, N), none = {0};
        struct ax_tensor row = line(AX_F32, ROWS), col = line(AX_F32, N / ROWS);
        const struct ax_step_scalars s = {.lr = lr, .clip = 1, .step = 1};
        for (int64_t i = 0; i < N; i++) {
            set(&w, i, 0, i < FIRST ? 1 : 10);
            set(&g, i, 0, 1);
        }
        const struct ax_tensor matrix = ax_tensor_2d(AX_F32, w.data, ROWS, N / ROWS);
        const struct ax_tensor of_matrix = ax_tensor_2d(AX_F32, g.data, ROWS, N / ROWS);
        RUN_WORK(isa, 2, adafactor, .master = vector ? w : matrix, .grad = vector ? g : of_matrix,
                 .row = vector ? none : row, .col = vector ? none : col,
                 .exp_avg_sq = vector ? line(AX_F32, N) : none,
                 .copy = vector ? line(real, N) : none, .decay = -0.8, .eps1 = 1e-30, .eps2 = 1e-3,
                 .threshold = 1, .scale_parameter = true, .scalars = &s);
        for (int64_t i = 0; i < N; i++) {
            const double want = (i < FIRST ? 1 : 10) - lr * rms;
            if (!(fabs(get(&w, i, 0) - want) <= 2e-6))
                fail_msg("adafactor on %s, element %d: %.9g, expected %.9g", isa->name, (int)i,
                         get(&w, i, 0), want);
        }
    }
}

#define TEST(name)                                                                                 \
    static void name(void **state) {                                                               \
        (void)state;                                                                               \
        for_each_isa(check_##name);                                                                \
    }
TEST(adamw)
TEST(sgd)
TEST(clip)
TEST(skipped)
TEST(small_steps)
TEST(signs)
TEST(segments)
TEST(pieces)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw),    cmocka_unit_test(sgd),         cmocka_unit_test(clip),
        cmocka_unit_test(skipped),  cmocka_unit_test(small_steps), cmocka_unit_test(signs),
        cmocka_unit_test(segments), cmocka_unit_test(pieces),
    };
    return cmocka_run_group_tests(tests, open_golden, close_golden);
}

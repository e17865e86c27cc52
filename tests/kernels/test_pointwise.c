/* The cpu backend's ops that go row by row or element by element, on every instruction set of this
 * machine, against plain double loops written here: unaligned data, odd lengths, padded rows, 1, 2
 * and 4 threads with equal bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/kernels/isa.h"

static void check_fill(const struct isa *isa, enum ax_dtype real) {
    const enum ax_dtype dtypes[] = {real, AX_I32, AX_F64, AX_U8};
    for (int d = 0; d < 4; d++) {
        for (int t = 0; t < 3; t++) {
            struct ax_tensor x = grid(dtypes[d], 131, 301, d), before = clone(&x);
            RUN(isa, THREADS[t], fill, x, 3);
            for (int64_t r = 0; r < 131; r++) {
                for (int64_t c = 0; c < 301; c++) {
                    assert_true(get(&x, r, c) == 3);
                    set(&x, r, c, 0);
                }
            }
            assert_same_bits(&x, &before);
        }
    }
}

static void check_copy(const struct isa *isa, enum ax_dtype real) {
    const enum ax_dtype from[] = {AX_F32, AX_BF16, AX_F16, AX_F64};
    for (int d = 0; d < 4; d++) {
        for (int64_t pad = 0; pad < 2; pad++) {
            struct ax_tensor src = grid(from[d], 67, 577, pad), dst = grid(real, 67, 577, 2 * pad);
            randomize(&src, 4, 0);
            for (int t = 0; t < 3; t++) {
                struct ax_tensor out = clone(&dst), want = clone(&dst);
                RUN(isa, THREADS[t], copy, out, src);
                for (int64_t r = 0; r < 67; r++)
                    ax_convert(real, ax_tensor_row(&want, r), from[d], ax_tensor_row(&src, r), 577);
                assert_same_bits(&out, &want);
            }
        }
    }
}

/* Rounding F32 to bf16 is ax_f32_to_bf16's, bit for bit: ties, denormals, infinities and NaN. */
static void check_rounding(const struct isa *isa, enum ax_dtype real) {
    (void)real;
    enum { SIGNS_EXPONENTS_AND_7_BITS = 1 << 16 };
    static const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    struct ax_tensor src = line(AX_F32, 6), dst = line(AX_BF16, 6);
    for (uint32_t high = 0; high < SIGNS_EXPONENTS_AND_7_BITS; high++) {
        uint16_t want[6];
        for (int i = 0; i < 6; i++) {
            uint32_t bits = high << 16 | low[i];
            float x;
            memcpy(&x, &bits, sizeof(x));
            memcpy((char *)src.data + i * 4, &bits, sizeof(bits));
            want[i] = ax_f32_to_bf16(x);
        }
        RUN(isa, 1, copy, dst, src);
        assert_memory_equal(dst.data, want, sizeof(want));
    }
}

static void check_add(const struct isa *isa, enum ax_dtype real) {
    for (int d = 0; d < 2; d++) {
        struct ax_tensor dst = grid(real, 67, 577, 3);
        struct ax_tensor src = grid(d == 0 ? AX_F32 : AX_BF16, 67, 577, 1);
        randomize(&dst, 1, 0);
        randomize(&src, 1, 0);
        struct ax_tensor first = clone(&dst);
        for (int t = 0; t < 3; t++) {
            struct ax_tensor out = clone(&dst);
            RUN(isa, THREADS[t], add, out, src, 0.75);
            for (int64_t r = 0; r < 67 && t == 0; r++) {
                for (int64_t c = 0; c < 577; c++) {
                    double want = get(&dst, r, c) + 0.75 * get(&src, r, c);
                    assert_near(isa, "add", &out, r, c, want, 1);
                }
            }
            first = t == 0 ? out : first;
            assert_same_bits(&out, &first);
        }
    }
}

/* What copy, or add, of each column would write. */
static void check_transpose(const struct isa *isa, enum ax_dtype real) {
    enum { R = 131, C = 77 };
    for (int d = 0; d < 4; d++) {
        const bool adds = d % 2;
        struct ax_tensor dst = grid(real, C, R, 3);
        struct ax_tensor src = grid(d / 2 ? AX_F32 : AX_BF16, R, C, 1);
        randomize(&dst, 1, 0);
        randomize(&src, 1, 0);
        struct ax_tensor want = clone(&dst);
        for (int64_t c = 0; c < C; c++) {
            const struct ax_tensor from = ax_tensor_cols(&src, c, 1);
            const struct ax_tensor to = ax_tensor_2d(real, ax_tensor_row(&want, c), R, 1);
            if (adds)
                RUN(isa, 1, add, to, from, 0.7);
            else
                RUN(isa, 1, copy, to, from);
        }
        for (int t = 0; t < 3; t++) {
            struct ax_tensor out = clone(&dst);
            RUN(isa, THREADS[t], transpose, out, src, adds ? 0.7 : 1, adds);
            assert_same_bits(&out, &want);
        }
    }
}

static void check_colsum(const struct isa *isa, enum ax_dtype real) {
    static const int64_t shapes[][2] = {{1203, 37}, {2, 577}, {5000, 1}, {0, 3}};
    for (int s = 0; s < 4; s++) {
        int64_t rows = shapes[s][0], cols = shapes[s][1];
        struct ax_tensor x = grid(real, rows, cols, 2), start = line(AX_F32, cols), first = start;
        randomize(&x, 1, 0);
        randomize(&start, 1, 0);
        for (int t = 0; t < 3; t++) {
            struct ax_tensor out = clone(&start);
            RUN_WORK(isa, THREADS[t], colsum, x, out);
            for (int64_t c = 0; c < cols && t == 0; c++) {
                double want = get(&start, c, 0);
                for (int64_t r = 0; r < rows; r++)
                    want += get(&x, r, c);
                assert_near(isa, "colsum", &out, c, 0, want, sqrt((double)rows) + 1);
            }
            first = t == 0 ? out : first;
            assert_same_bits(&out, &first);
        }
    }
}

/* Tokens beyond the shard on both sides, one that occurs often. */
static struct ax_tensor some_tokens(int64_t count) {
    struct ax_tensor tokens = line(AX_I32, count);
    for (int64_t t = 0; t < count; t++)
        set(&tokens, t, 0, t % 3 == 0 ? 107 : (double)(t * 7 % 160));
    return tokens;
}

static void check_embedding(const struct isa *isa, enum ax_dtype real) {
    enum { T = 101, D = 333, V = 50, FIRST = 90 };
    struct ax_tensor weight = grid(real, V, D, 1), tokens = some_tokens(T),
                     dout = grid(real, T, D, 3);
    struct ax_tensor start = grid(AX_F32, V, D, 2), want = clone(&start);
    randomize(&weight, 1, 0);
    randomize(&dout, 1, 0);
    randomize(&start, 1, 0);
    for (int64_t v = 0; v < V; v++) { /* in order of t: the very bits */
        for (int64_t d = 0; d < D; d++) {
            float sum = (float)get(&start, v, d);
            for (int64_t t = 0; t < T; t++)
                sum += get(&tokens, t, 0) == v + FIRST ? (float)get(&dout, t, d) : 0;
            set(&want, v, d, (double)sum);
        }
    }
    for (int k = 0; k < 3; k++) {
        struct ax_tensor out = grid(real, T, D, 0), dweight = clone(&start);
        RUN(isa, THREADS[k], embedding_forward, weight, tokens, out, FIRST, 0);
        for (int64_t t = 0; t < T; t++) {
            int64_t row = (int64_t)get(&tokens, t, 0) - FIRST;
            for (int64_t d = 0; d < D; d++)
                assert_true(get(&out, t, d) == (row < 0 || row >= V ? 0 : get(&weight, row, d)));
        }
        RUN(isa, THREADS[k], embedding_backward, dout, tokens, dweight, FIRST, -1, 0);
        assert_same_bits(&dweight, &want);
    }
}

static void check_scatter(const struct isa *isa, enum ax_dtype real) {
    enum { T = 67, D = 577, ROWS = 40 };
    struct ax_tensor src = grid(real, T, D, 1), dst = grid(real, ROWS, D, 2),
                     rows = line(AX_I32, T);
    randomize(&src, 1, 0);
    randomize(&dst, 1, 0);
    struct ax_tensor want = clone(&dst);
    for (int64_t t = 0; t < T; t++) { /* with repetitions: the last one stays */
        int64_t row = t * 5 % (ROWS - 3) - 1;
        set(&rows, t, 0, (double)row);
        for (int64_t d = 0; d < D && row >= 0; d++)
            set(&want, row, d, get(&src, t, d));
    }
    for (int k = 0; k < 3; k++) {
        struct ax_tensor out = clone(&dst);
        RUN(isa, THREADS[k], scatter_rows, out, src, rows);
        assert_same_bits(&out, &want);
    }
}

/* x₁·cos − x₂·sin and x₂·cos + x₁·sin, and back again; elements past 2·half stay. */
static void check_rope(const struct isa *isa, enum ax_dtype real) {
    enum { T = 70, H = 7, HD = 72, HALF = 35, POSITIONS = 90 };
    struct ax_tensor flat = grid(real, T, H * HD, 5), cosine = grid(AX_F32, POSITIONS, HALF, 1);
    struct ax_tensor sine = grid(AX_F32, POSITIONS, HALF, 2), positions = line(AX_I32, T),
                     first = flat;
    randomize(&flat, 1, 0);
    for (int64_t p = 0; p < POSITIONS; p++) {
        for (int64_t i = 0; i < HALF; i++) {
            set(&cosine, p, i, cos((double)p / (double)(i + 1)));
            set(&sine, p, i, sin((double)p / (double)(i + 1)));
        }
    }
    for (int64_t t = 0; t < T; t++)
        set(&positions, t, 0, (double)(t * 11 % POSITIONS));
    for (int k = 0; k < 6; k++) {
        double sign = k < 3 ? 1 : -1;
        struct ax_tensor out = clone(&flat);
        RUN(isa, THREADS[k % 3], rope, ax_tensor_heads(&out, H, HD), cosine, sine, positions, 0,
            false, k >= 3);
        for (int64_t e = 0; e < (int64_t)T * H * HD && k % 3 == 0; e++) {
            int64_t t = e / (H * HD), col = e % (H * HD), i = col % HD % HALF;
            int64_t pos = (int64_t)get(&positions, t, 0), low = col / HD * HD + i;
            double c = get(&cosine, pos, i), s = sign * get(&sine, pos, i);
            double x1 = get(&flat, t, low), x2 = get(&flat, t, low + HALF);
            double turned = col % HD < HALF ? x1 * c - x2 * s : x2 * c + x1 * s;
            assert_near(isa, "rope", &out, t, col,
                        col % HD < 2 * HALF ? turned : get(&flat, t, col), 1);
        }
        first = k % 3 == 0 ? out : first;
        assert_same_bits(&out, &first);
    }
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* Gates from −90 (where e^90 nearly overflows) to 90. */
static void check_swiglu(const struct isa *isa, enum ax_dtype real) {
    enum { T = 45, F = 771 };
    struct ax_tensor gate_up = grid(real, T, 2 * F, 3), dy = grid(real, T, F, 1),
                     first[2] = {dy, dy};
    randomize(&gate_up, 4, 0);
    randomize(&dy, 1, 0);
    for (int64_t i = 0; i < 181; i++)
        set(&gate_up, 1, i, (double)(i - 90));
    for (int k = 0; k < 3; k++) {
        struct ax_tensor y = grid(real, T, F, 2), in_place = clone(&gate_up);
        RUN(isa, THREADS[k], swiglu_forward, .gate_up = gate_up, .y = y);
        RUN(isa, THREADS[k], swiglu_backward, .dy = dy, .gate_up = in_place, .dgate_up = in_place);
        for (int64_t t = 0; t < T && k == 0; t++) {
            for (int64_t i = 0; i < F; i++) {
                double gate = get(&gate_up, t, i), up = get(&gate_up, t, F + i), d = get(&dy, t, i);
                double s = sigmoid(gate), size = 4 * (1 + fabs(gate));
                assert_near(isa, "y", &y, t, i, gate * s * up, size);
                double dgate = d * up * s * (1 + gate * (1 - s));
                assert_near(isa, "dgate", &in_place, t, i, dgate, size);
                assert_near(isa, "dup", &in_place, t, F + i, d * gate * s, size);
            }
        }
        first[0] = k == 0 ? y : first[0];
        first[1] = k == 0 ? in_place : first[1];
        assert_same_bits(&y, &first[0]);
        assert_same_bits(&in_place, &first[1]);
    }
}

static double squared(double x) {
    return x > 0 ? x * x : 0;
}

/* The gradient is the difference quotient, which is exact but next to 0. */
static void check_relu2(const struct isa *isa, enum ax_dtype real) {
    enum { T = 67, F = 301 };
    const double h = 1e-6;
    struct ax_tensor x = grid(real, T, F, 1), dy = grid(real, T, F, 0), first[2];
    randomize(&x, 3, 0);
    randomize(&dy, 2, 0);
    for (int k = 0; k < 3; k++) {
        struct ax_tensor y = grid(real, T, F, 2), dx = clone(&x);
        RUN(isa, THREADS[k], relu2_forward, .y = y, .x = x);
        RUN(isa, THREADS[k], relu2_backward, .dx = dx, .x = dx, .dy = dy);
        for (int64_t t = 0; t < T && k == 0; t++)
            for (int64_t i = 0; i < F; i++) {
                const double v = get(&x, t, i), d = get(&dy, t, i);
                assert_near(isa, "y", &y, t, i, squared(v), 1 + v * v);
                assert_near(isa, "dx", &dx, t, i, d * (squared(v + h) - squared(v - h)) / (2 * h),
                            4 * (1 + fabs(v * d)));
            }
        first[0] = k == 0 ? y : first[0];
        first[1] = k == 0 ? dx : first[1];
        assert_same_bits(&y, &first[0]);
        assert_same_bits(&dx, &first[1]);
    }
}

#define TEST(name)                                                                                 \
    static void name(void **state) {                                                               \
        (void)state;                                                                               \
        for_each_isa(check_##name);                                                                \
    }
TEST(fill)
TEST(copy)
TEST(rounding)
TEST(add)
TEST(transpose)
TEST(colsum)
TEST(embedding)
TEST(scatter)
TEST(rope)
TEST(swiglu)
TEST(relu2)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fill),      cmocka_unit_test(copy),      cmocka_unit_test(rounding),
        cmocka_unit_test(add),       cmocka_unit_test(transpose), cmocka_unit_test(colsum),
        cmocka_unit_test(embedding), cmocka_unit_test(scatter),   cmocka_unit_test(rope),
        cmocka_unit_test(swiglu),    cmocka_unit_test(relu2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

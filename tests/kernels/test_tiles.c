/* Tiles in plain C against the processor's own fused multiply-adds, which flush denormals to zero
 * if told to: the order of the sums and every rounding, bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <immintrin.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/tile_check.h"

#define AX_TILES
#define AX_ISA amx_emulated
#include "kernels/cpu/vec/tiles.h"
#include "tests/skip.h"

#define N AX_TILE_ROWS

static void need_them(void) {
    if (!ax_cpu_has_bf16())
        skip_because("hardware, AVX-512 BF16");
}

struct operands {
    uint16_t a[N][N][2], b[N][N][2]; /* [row][unit], [unit][column] */
    float c[N][N];
};

#define FLUSHING __attribute__((target("fma"), noinline))

/* Rounded once, with MXCSR's bits for "denormals are zero" and "flush to zero". */
FLUSHING static float fused(float a, float b, float c) {
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);
    __m128 x = _mm_set_ss(a), y = _mm_set_ss(b), z = _mm_set_ss(c);
    __asm__ volatile("vfmadd231ss %2, %1, %0" : "+x"(z) : "x"(x), "x"(y));
    _mm_setcsr(before);
    return _mm_cvtss_f32(z);
}

FLUSHING static float added(float a, float b) {
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);
    __m128 x = _mm_set_ss(a), y = _mm_set_ss(b);
    __asm__ volatile("vaddss %1, %0, %0" : "+x"(x) : "x"(y));
    _mm_setcsr(before);
    return _mm_cvtss_f32(x);
}

static float widened(uint16_t half) {
    const uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float expected(const struct operands *o, int m, int n) {
    float sum[2] = {0, 0};
    for (int u = 0; u < N; u++)
        for (int i = 0; i < 2; i++)
            sum[i] = fused(widened(o->a[m][u][i]), widened(o->b[u][n][i]), sum[i]);
    return added(o->c[m][n], added(sum[0], sum[1]));
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The product of the operands; a and b start at odd addresses with other strides than 64. */
static void multiply(const struct operands *o, float c[N][N]) {
    char a[N * 80 + 1], b[N * 100 + 1];
    for (int r = 0; r < N; r++) {
        memcpy(a + 1 + r * 80, o->a[r], 64);
        memcpy(b + 1 + r * 100, o->b[r], 64);
    }
    ax_tiles_begin();
    AX_TILE_LOAD(0, o->c, 64);
    AX_TILE_LOAD(3, a + 1, 80);
    AX_TILE_LOAD(7, b + 1, 100);
    AX_TILE_DOT(0, 3, 7);
    AX_TILE_STORE(0, c, 64);
    ax_tiles_end();
}

static void check(const struct operands *o) {
    float got[N][N];
    multiply(o, got);
    for (int m = 0; m < N; m++) {
        for (int n = 0; n < N; n++) {
            const float want = expected(o, m, n);
            if (isnan(want) ? !isnan(got[m][n]) : bits_of(want) != bits_of(got[m][n]))
                fail_msg("[%d][%d] is %a, expected %a", m, n, (double)got[m][n], (double)want);
        }
    }
}

static uint64_t drawn;

static uint64_t draw(void) {
    uint32_t block[4];
    ax_rng_block((struct ax_rng_key){.seed = 11}, drawn++, block);
    return (uint64_t)block[0] << 32 | block[1];
}

/* bf16 numbers whose exponents are in [low, low + range). */
static uint16_t half_in(unsigned low, unsigned range) {
    const uint64_t x = draw();
    return (uint16_t)((x & 0x807f) | (low + (x >> 32) % range) << 7);
}

static void fill(struct operands *o, unsigned low, unsigned range) {
    uint16_t *a = &o->a[0][0][0], *b = &o->b[0][0][0];
    for (int i = 0; i < 2 * N * N; i++) {
        a[i] = half_in(low, range);
        b[i] = half_in(low, range);
    }
    for (int i = 0; i < N * N; i++) {
        const uint32_t bits = (uint32_t)half_in(low, range) << 16 | (uint32_t)(draw() & 0xffff);
        memcpy(&o->c[i / N][i % N], &bits, sizeof bits);
    }
}

/* Numbers around 1; products that are denormal or nearly so; denormal operands; every bit pattern.
 */
static void sums_have_the_processors_bits(void **state) {
    (void)state;
    need_them();
    static const struct {
        unsigned low, range;
    } EXPONENTS[] = {{120, 12}, {55, 12}, {60, 6}, {0, 3}, {62, 3}, {0, 256}, {90, 100}, {186, 20}};
    struct operands o;
    for (size_t i = 0; i < sizeof(EXPONENTS) / sizeof(EXPONENTS[0]); i++) {
        for (int turn = 0; turn < 40; turn++) {
            fill(&o, EXPONENTS[i].low, EXPONENTS[i].range);
            check(&o);
        }
    }
}

/* A sum just below the smallest normal number rounds up to it as a denormal, but not always at 24
 * bits. */
static void tiny_is_decided_after_rounding(void **state) {
    (void)state;
    need_them();
    struct operands o = {0};
    const uint16_t one = 0x3f80, least = 0x0080; /* 1, 2^-126 */
    const uint16_t small = (127 - 75) << 7;      /* 2^-75 */
    for (int n = 0; n < N; n++) {
        /* 2^-126·1 − 2^-75·2^-(75 + n − 5): from 2^-145 to 2^-160 below */
        o.a[n][0][0] = one;
        o.a[n][1][0] = small;
        o.b[0][n][0] = least;
        o.b[1][n][0] = (uint16_t)(0x8000 | (127 - 70 - n) << 7);
    }
    check(&o);
    assert_true(expected(&o, 0, 4) == 0); /* − 2^-149: representable only as a denormal */
    assert_true(expected(&o, 0, 5) == 0); /* − 2^-150: a denormal would round up */
    assert_true(expected(&o, 0, 6) != 0); /* − 2^-151: the tie goes to even, up */
    assert_true(expected(&o, 0, 15) != 0);
}

static void infinities_and_nan_spread_by_rows_and_columns(void **state) {
    (void)state;
    need_them();
    struct operands o;
    fill(&o, 120, 12);
    o.a[3][7][1] = 0x7fc0; /* NaN */
    o.b[9][4][0] = 0x7f80; /* inf */
    check(&o);
    float c[N][N];
    multiply(&o, c);
    for (int m = 0; m < N; m++)
        for (int n = 0; n < N; n++)
            assert_true(m == 3 ? isnan(c[m][n]) : n == 4 ? isinf(c[m][n]) : isfinite(c[m][n]));
}

static void swapped_operands_give_the_transpose(void **state) {
    (void)state;
    need_them();
    struct operands o, swapped;
    fill(&o, 60, 100);
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++) {
            memcpy(swapped.a[i][j], o.b[j][i], sizeof o.b[j][i]);
            memcpy(swapped.b[i][j], o.a[j][i], sizeof o.a[j][i]);
            swapped.c[i][j] = o.c[j][i];
        }
    }
    float c[N][N], t[N][N];
    multiply(&o, c);
    multiply(&swapped, t);
    for (int m = 0; m < N; m++)
        for (int n = 0; n < N; n++)
            assert_true(isnan(c[m][n]) ? isnan(t[n][m]) : bits_of(c[m][n]) == bits_of(t[n][m]));
}

/* Tiles are zero at first and after zeroing, keep what they are given, and are the thread's own. */
static void tiles_are_registers(void **state) {
    (void)state;
    need_them();
    float in[N][N], out[N][N];
    for (int i = 0; i < N * N; i++)
        in[i / N][i % N] = (float)i;
    assert_false(ax_tiles_exist_amx_emulated());
    ax_tiles_begin();
    for (int t = 0; t < 8; t++)
        AX_TILE_LOAD(t, in, 64);
    AX_TILE_ZERO(5);
    for (int t = 0; t < 8; t++) {
        AX_TILE_STORE(t, out, 64);
        for (int i = 0; i < N * N; i++)
            assert_true(out[i / N][i % N] == (t == 5 ? 0.0f : (float)i));
    }
    ax_tiles_begin();
    AX_TILE_STORE(1, out, 64);
    assert_true(out[3][3] == 0.0f);
    assert_true(ax_tiles_exist_amx_emulated());
    ax_tiles_end();
    assert_false(ax_tiles_exist_amx_emulated());
}

/* As with the instructions, a tile that was not configured or is already released is fatal. */
static void tiles_outside_of_begin_and_end_are_fatal(void **state) {
    (void)state;
    need_them();
    for (int after = 0; after < 2; after++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
            close(STDERR_FILENO);
            if (after != 0) {
                ax_tiles_begin();
                ax_tiles_end();
            }
            AX_TILE_ZERO(0);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
}

/* Processors as they might be: the product of tile_check.h, one number after the other. */
enum fault {
    RIGHT,
    ONE_BIT, /* of one result */
    TILE_7_IS_6,
    DENORMALS, /* are not zero, anywhere */
    UNFUSED,
    DESCENDING,
    ONE_CHAIN, /* first and second numbers in one sum */
    FROM_C,    /* sums begin with c */
    FAULTS
};
static enum fault fault;

static float multiplied_and_added(float a, float b, float c) {
    return fault == DENORMALS ? fmaf(a, b, c)
           : fault == UNFUSED ? added(c, fused(a, b, 0))
                              : fused(a, b, c);
}

static float result(const struct ax_tile_product *p, int m, int n) {
    float sum[2] = {fault == FROM_C ? p->c[m][n] : 0, 0};
    const int column = fault == TILE_7_IS_6 ? n % N : n;
    for (int k = 0; k < N; k++) {
        const int u = fault == DESCENDING ? N - 1 - k : k;
        for (int i = 0; i < 2; i++) {
            float *to = &sum[fault == ONE_CHAIN ? 0 : i];
            *to = multiplied_and_added(widened((uint16_t)(p->a[m][u] >> 16 * i)),
                                       widened((uint16_t)(p->b[u][column] >> 16 * i)), *to);
        }
    }
    if (fault == DENORMALS)
        return p->c[m][n] + (sum[0] + sum[1]);
    const float both = added(sum[0], sum[1]);
    return fault == FROM_C ? both : added(p->c[m][n], both);
}

static void simulated(struct ax_tile_product *p) {
    for (int m = 0; m < 2 * N; m++)
        for (int n = 0; n < 2 * N; n++)
            p->c[m][n] = result(p, m, n);
    if (fault == ONE_BIT)
        p->c[31][30] = nextafterf(p->c[31][30], INFINITY);
}

/* AMX is the default only on processors that pass. */
static void wrong_tiles_are_found(void **state) {
    (void)state;
    need_them();
    for (fault = RIGHT; fault < FAULTS; fault++) {
        const bool agree = ax_tile_products_agree(simulated, ax_cpu_tile_product_amx_emulated);
        if (agree != (fault == RIGHT))
            fail_msg("fault %d: %s", (int)fault, agree ? "not found" : "found");
    }
    if (ax_cpu_has(AX_CPU_AMX))
        assert_true(
            ax_tile_products_agree(ax_cpu_tile_product_amx, ax_cpu_tile_product_amx_emulated));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_have_the_processors_bits),
        cmocka_unit_test(tiny_is_decided_after_rounding),
        cmocka_unit_test(infinities_and_nan_spread_by_rows_and_columns),
        cmocka_unit_test(swapped_operands_give_the_transpose),
        cmocka_unit_test(tiles_are_registers),
        cmocka_unit_test(tiles_outside_of_begin_and_end_are_fatal),
        cmocka_unit_test(wrong_tiles_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What kernels/cuda/mma.cuh says of fragments and copies, by the tables of the PTX ISA, on the emulated
 * device, and built by nvcc on a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/rng.h"
#include "kernels/dtype.h"
#include "tests/cuda/mma_probe.h"
#include "tests/kernels/harness.h"
#include "tests/skip.h"

#ifdef AX_CUDA_EMULATED
enum { EMULATED = 1 };
#else
enum { EMULATED = 0 };
#endif

static struct machine cuda;

/* Whole numbers, so that every order of a sum gives the same. */
static float drawn(uint64_t i) {
    const struct ax_rng_key key = {.seed = 3};
    return roundf(4 * ax_rng_normal(key, i));
}

static uint32_t pair_of(float low, float high) {
    return ax_f32_to_bf16(low) | (uint32_t)ax_f32_to_bf16(high) << 16;
}

/* PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type": where element i of a lane is. */
static void place_in_a(int lane, int i, int *row, int *col) {
    const int group = lane >> 2, in_group = lane % 4;
    *row = (0 <= i && i < 2) || (4 <= i && i < 6) ? group : group + 8;
    *col = in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
}
static void place_in_b(int lane, int i, int *row, int *col) {
    const int group = lane >> 2, in_group = lane % 4;
    *row = in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0);
    *col = group;
}
static void place_in_c(int lane, int i, int *row, int *col) {
    const int group = lane >> 2, in_group = lane % 4;
    *row = i < 2 ? group : group + 8;
    *col = in_group * 2 + (i & 1);
}

static void products(void **state) {
    (void)state;
    float a[16][16], b[16][8], c[16][8];
    struct probe_product p;
    int row, col;
    for (int i = 0; i < 16 * 16; i++)
        a[i / 16][i % 16] = drawn((uint64_t)i);
    for (int i = 0; i < 16 * 8; i++)
        b[i / 8][i % 8] = drawn((uint64_t)i + 1000);
    for (int i = 0; i < 16 * 8; i++)
        c[i / 8][i % 8] = drawn((uint64_t)i + 2000);
    for (int lane = 0; lane < PROBE_LANES; lane++) {
        float x[8];
        for (int i = 0; i < 8; i++) {
            place_in_a(lane, i, &row, &col);
            x[i] = a[row][col];
        }
        for (int i = 0; i < 4; i++)
            p.a[lane][i] = pair_of(x[2 * i], x[2 * i + 1]);
        for (int i = 0; i < 4; i++) {
            place_in_b(lane, i, &row, &col);
            x[i] = b[row][col];
        }
        for (int i = 0; i < 2; i++)
            p.b[lane][i] = pair_of(x[2 * i], x[2 * i + 1]);
        for (int i = 0; i < 4; i++) {
            place_in_c(lane, i, &row, &col);
            p.c[lane][i] = c[row][col];
        }
    }
    assert_int_equal(probe_product(cuda.q, &p), AX_OK);
    for (int lane = 0; lane < PROBE_LANES; lane++)
        for (int i = 0; i < 4; i++) {
            place_in_c(lane, i, &row, &col);
            float want = c[row][col];
            for (int k = 0; k < 16; k++)
                want += a[row][k] * b[k][col];
            assert_true(p.out[lane][i] == want);
        }
}

/* ldmatrix: threads 8·i … 8·i + 7 have the rows of matrix i, and thread t gets two neighbors of row t / 4, or
 * with .trans, of column t / 4. */
static void matrices(void **state) {
    (void)state;
    for (int transposed = 0; transposed < 2; transposed++) {
        struct probe_rows p = {.transposed = transposed};
        for (int i = 0; i < PROBE_LANES; i++) {
            p.place[i] = PROBE_SHARED / 16 - 1 - 5 * i; /* up to the last byte */
            for (int j = 0; j < 8; j++)
                p.rows[i][j] = (uint16_t)(100 * i + j);
        }
        assert_int_equal(probe_rows(cuda.q, &p), AX_OK);
        for (int t = 0; t < PROBE_LANES; t++)
            for (int i = 0; i < 4; i++)
                for (int half = 0; half < 2; half++) {
                    const int one = t / 4, two = t % 4 * 2 + half;
                    const int row = transposed ? two : one, col = transposed ? one : two;
                    assert_int_equal(p.out[t][i] >> 16 * half & 0xffff, 100 * (8 * i + row) + col);
                }
    }
}

static void copies(void **state) {
    (void)state;
    struct probe_copies p = {.waits = 1};
    for (int i = 0; i < PROBE_LANES; i++) {
        p.there[i] = i % 3 != 0;
        for (int j = 0; j < 8; j++)
            p.from[i][j] = (uint32_t)(10 * i + j + 1);
    }
    assert_int_equal(probe_copies(cuda.q, &p), AX_OK);
    for (int i = 0; i < PROBE_LANES; i++) {
        const int next = (i + 1) % PROBE_LANES;
        for (int j = 0; j < 5; j++)
            assert_int_equal(p.out[i][j], p.there[next] ? p.from[next][j] : 0);
    }
}

/* The second batch may be pending when the first one is waited for; in the emulator it is. */
static void batches(void **state) {
    (void)state;
    struct probe_batches p = {0};
    for (int i = 0; i < PROBE_LANES; i++)
        for (int j = 0; j < 8; j++)
            p.from[i][j] = (uint32_t)(10 * i + j + 1);
    assert_int_equal(probe_batches(cuda.q, &p), AX_OK);
    for (int i = 0; i < PROBE_LANES; i++) {
        const uint32_t *next = p.from[(i + 1) % PROBE_LANES];
        assert_memory_equal(p.first[i], next, 16);
        for (int j = 4; j < 8 && EMULATED; j++)
            assert_int_equal(p.first[i][j], 0xffffffff);
        assert_memory_equal(p.out[i], next, 32);
    }
}

/* The emulator has copies done as late as they may be. */
static void a_missing_wait_shows(void **state) {
    (void)state;
    struct probe_copies p = {.there = {[1] = 1}};
    assert_int_equal(probe_copies(cuda.q, &p), AX_OK);
    for (int i = 0; i < PROBE_LANES; i++)
        for (int j = 0; j < 5; j++)
            assert_int_equal(p.out[i][j], 0xffffffff);
}

/* By wgmma: every form that it has here, sums in the order of fragments C (PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16"). */
static void fill_tiles(struct probe_tiles *p) {
    for (int i = 0; i < PROBE_TILE * PROBE_TILE; i++) {
        p->left[i / PROBE_TILE][i % PROBE_TILE] = ax_f32_to_bf16(drawn((uint64_t)i + 5000));
        p->right[i / PROBE_TILE][i % PROBE_TILE] = ax_f32_to_bf16(drawn((uint64_t)i + 50000));
    }
    for (int i = 0; i < PROBE_ROWS * PROBE_TILE; i++)
        p->c[i / PROBE_TILE][i % PROBE_TILE] = drawn((uint64_t)i + 90000);
}

static float tiles_product(const struct probe_tiles *p, int row, int col) {
    float sum = p->adds ? p->c[row][col] : 0;
    for (int k = 0; k < PROBE_TILE; k++)
        sum += ax_bf16_to_f32(p->left[PROBE_ROWS + row][k]) *
               ax_bf16_to_f32(p->transposed ? p->right[k][col] : p->right[col][k]);
    return sum;
}

static void tiles(void **state) {
    (void)state;
    static struct probe_tiles p = {.waits = 1};
    if (!ax_cuda_has_wgmma(cuda.q)) {
        skip_because("hardware, wgmma");
        return;
    }
    fill_tiles(&p);
    for (int form = 0; form < 16; form++) {
        p.columns = form & 1 ? 128 : 64;
        p.held = form >> 1 & 1;
        p.transposed = form >> 2 & 1;
        p.adds = form >> 3 & 1;
        assert_int_equal(probe_tiles(cuda.q, &p), AX_OK);
        for (int i = 0; i < PROBE_ROWS; i++)
            for (int j = 0; j < p.columns; j++)
                if (p.out[i][j] != tiles_product(&p, i, j))
                    fail_msg("%d columns, held %d, transposed %d, adds %d: (%d, %d) is %g, not %g",
                             p.columns, p.held, p.transposed, p.adds, i, j, (double)p.out[i][j],
                             (double)tiles_product(&p, i, j));
    }
}

/* The emulator computes products as late as they may be. */
static void a_missing_wait_for_products_shows(void **state) {
    (void)state;
    static struct probe_tiles p = {.columns = 64};
    fill_tiles(&p);
    assert_int_equal(probe_tiles(cuda.q, &p), AX_OK);
    for (int i = 0; i < PROBE_ROWS; i++)
        for (int j = 0; j < p.columns; j++)
            assert_true(isnan(p.out[i][j]));
}

static void numbers(void **state) {
    (void)state;
    struct probe_numbers p;
    for (int i = 0; i < PROBE_LANES; i++) {
        p.x[i][0] = (float)(20 * i - 620) / 3;
        p.x[i][1] = (float)i - 31 / 7.0f;
    }
    p.x[0][0] = -INFINITY;
    p.x[0][1] = 0;
    assert_int_equal(probe_numbers(cuda.q, &p), AX_OK);
    for (int i = 0; i < PROBE_LANES; i++) {
        assert_int_equal(p.pair[i], pair_of(p.x[i][0], p.x[i][1]));
        for (int j = 0; j < 2; j++) {
            const double want = p.x[i][j] < -126 ? 0 : exp2((double)p.x[i][j]);
            assert_true(fabs((double)p.powers[i][j] - want) <= 0x1p-22 * want);
        }
    }
}

static int open_machine(void **state) {
    (void)state;
    machine_open(&cuda, "cuda", 1);
    return 0;
}

static int close_machine(void **state) {
    (void)state;
    machine_close(&cuda);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products),
        cmocka_unit_test(matrices),
        cmocka_unit_test(copies),
        cmocka_unit_test(batches),
        unit_test_if(EMULATED, a_missing_wait_shows),
        cmocka_unit_test(numbers),
        cmocka_unit_test(tiles),
        unit_test_if(EMULATED, a_missing_wait_for_products_shows),
    };
    return cmocka_run_group_tests_name("tensor cores", tests, open_machine, close_machine);
}

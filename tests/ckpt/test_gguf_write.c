/* Writing GGUF: keys and tensors as the reader finds them, blocks against their values, the choice
 * of types, and nothing left where writing fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/rng.h"
#include "ckpt/gguf/types.h"
#include "ckpt/gguf/write.h"
#include "tests/ckpt/folder.h"

enum { BLOCK = 256, ROWS = 40, ALL = BLOCK * ROWS, KINDS = 7 };

/* --- blocks --- */

/* Values of a kind that is hard in its own way. */
static void draw(float *x, int kind) {
    const struct ax_rng_key key = {.seed = 7, .tensor = (uint32_t)kind};
    for (uint64_t i = 0; i < ALL; i++) {
        const float v = ax_rng_normal(key, i);
        x[i] = kind == 0   ? 0.02f * v
               : kind == 1 ? 5 + 0.1f * v /* far from zero */
               : kind == 2 ? -5 + 0.1f * v
               : kind == 3 ? (i % 37 == 0 ? 40 * v : 0.01f * v) /* outliers */
               : kind == 4 ? 1e-7f * v                          /* below half precision */
               : kind == 5 ? fabsf(v)                           /* of one sign */
                           : -fabsf(v);
    }
}

static double rms(const float *x, const float *y) {
    double sum = 0;
    for (int i = 0; i < ALL; i++) {
        const double e = (double)x[i] - (y ? (double)y[i] : 0);
        sum += e * e;
    }
    return sqrt(sum / ALL);
}

/* What is read back is near to what was written; how near depends on the bits. */
static void values_survive_to_their_precision(void **state) {
    (void)state;
    static const struct {
        uint32_t id;
        double near[4]; /* of the root mean square, for each kind of values */
    } cases[] = {
        {0, {0, 0, 0, 0}},
        {1, {4e-4, 4e-4, 4e-4, 4e-4}},
        {30, {3e-3, 3e-3, 3e-3, 3e-3}},
        {8, {6e-3, 4e-3, 4e-3, 6e-3}},
        {6, {0.05, 0.04, 0.04, 0.05}},
        {2, {0.1, 0.08, 0.08, 0.1}},
        {3, {0.09, 0.004, 0.004, 0.09}},
        {12, {0.085, 0.02, 0.005, 0.06}},
        {14, {0.022, 0.012, 0.012, 0.022}},
        {7, {0.039, 0.002, 0.002, 0.039}},
        {11, {0.149, 0.07, 0.07, 0.149}},
        {13, {0.0355, 0.0095, 0.003, 0.03}},
        {20, {0.0755, 0.05, 0.05, 0.0755}},
    };
    static float y[ALL];
    static unsigned char blocks[ALL * 4 + 64];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), size = ALL * sizeof(float);
    const size_t pages = (size + page - 1) / page * page;
    char *const mapped =
        mmap(NULL, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(mapped != MAP_FAILED);
    assert_int_equal(mprotect(mapped + pages, page, PROT_NONE), 0);
    float *const x = (void *)(mapped + pages - size); /* nothing after them can be read */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ax_block_type *t = ax_block_type_find(cases[i].id);
        for (int kind = 0; kind < KINDS; kind++) {
            draw(x, kind);
            unsigned char *after = blocks + ALL / t->elements * t->bytes;
            memset(after, 0xa5, 64);
            t->quantize(x, ALL / t->elements, blocks);
            for (int k = 0; k < 64; k++)
                assert_int_equal(after[k], 0xa5);
            t->dequantize(blocks, ALL / t->elements, y);
            const double error = rms(x, y) / rms(x, NULL);
            const double most = kind < 4    ? cases[i].near[kind]
                                : kind == 4 ? 3 /* their scale is rounded, or vanishes */
                                            : cases[i].near[0];
            if (!(error <= most))
                fail_msg("%s: kind %d: error %g", t->name, kind, error);
        }
    }
    assert_int_equal(munmap(mapped, pages + page), 0);
}

static void blocks_of_one_value(void **state) {
    (void)state;
    static const float values[] = {0, 1, -1, 1e-40f, -1e-40f, 1e-20f, 60000, -60000};
    static const uint32_t ids[] = {2, 3, 6, 7, 8, 11, 12, 13, 14, 20};
    for (size_t t = 0; t < sizeof ids / sizeof *ids; t++) {
        const struct ax_block_type *type = ax_block_type_find(ids[t]);
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            float x[BLOCK], y[BLOCK];
            unsigned char blocks[2 * BLOCK];
            for (int i = 0; i < BLOCK; i++)
                x[i] = values[v];
            type->quantize(x, BLOCK / type->elements, blocks);
            type->dequantize(blocks, BLOCK / type->elements, y);
            for (int i = 0; i < BLOCK; i++)
                if (!(fabsf(y[i] - x[i]) <= 1e-3f * fabsf(x[i]) + 1e-7f))
                    fail_msg("%s: %g became %g", type->name, (double)x[i], (double)y[i]);
        }
    }
}

/* Where codes are beyond doubt, the scale is the one with the least error, of which a value's share grows with its
 * magnitude: Q3_K and IQ4_NL. */
static void scales_are_the_weighted_fit(void **state) {
    (void)state;
    enum { MOST = 32 };
    static const struct {
        uint32_t id;
        int group; /* elements that share the scale */
        int q[MOST];
        float off[MOST]; /* by which the values miss the levels */
    } cases[] = {
        {11,
         16,
         {3, -4, 1, 2, -3, -1, 0, 2, -2, 3, 1, -1, 2, -2, 0, -4},
         {-0.12f, -0.1f, -0.08f, 0, 0.08f, 0.12f, 0.08f, -0.08f, 0.08f, 0.12f, -0.12f, 0.12f,
          -0.12f, 0.08f, -0.12f, -0.12f}},
        {20,
         32,
         {113, -127, 13,  25, -10, 38, -22, 53,  69, -35, 89, -49, -65, 1,   -83, -104,
          13,  25,   -10, 38, -22, 53, 69,  -35, 13, -10, 25, -22, 38,  -35, -49, 89},
         {-8, 3, 4,  4, -4, 5, -4, 4,  5, -4, -6, -4, 3, 0,  4, 5,
          4,  4, -4, 5, -4, 4, -5, -4, 4, -4, 4,  -4, 5, -4, 4, -6}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const struct ax_block_type *t = ax_block_type_find(cases[c].id);
        const int n = cases[c].group;
        float x[BLOCK], y[BLOCK];
        unsigned char block[BLOCK];
        double squares = 0, sxq = 0, sqq = 0;
        for (int i = 0; i < BLOCK; i++)
            x[i] = 0.01f * ((float)cases[c].q[i % n] + cases[c].off[i % n]);
        for (int i = 0; i < n; i++)
            squares += (double)x[i] * (double)x[i];
        for (int i = 0; i < n; i++) {
            const double v = (double)x[i], w = sqrt(squares / n) + fabs(v), q = cases[c].q[i];
            sxq += w * v * q;
            sqq += w * q * q;
        }
        t->quantize(x, BLOCK / t->elements, block);
        t->dequantize(block, BLOCK / t->elements, y);
        for (int i = 0; i < BLOCK; i++) {
            const double want = sxq / sqq * cases[c].q[i % n];
            if (!(fabs((double)y[i] - want) <= 6e-4 * fabs(want)))
                fail_msg("%s: element %d is %g, expected %g", t->name, i, (double)y[i], want);
        }
    }
}

/* Where scales vanish, so do the codes. */
static void blocks_of_nothing_are_zeros(void **state) {
    (void)state;
    static const uint32_t ids[] = {12, 13};
    for (size_t t = 0; t < sizeof ids / sizeof *ids; t++) {
        const struct ax_block_type *type = ax_block_type_find(ids[t]);
        for (int sign = -1; sign <= 1; sign++) {
            float x[BLOCK];
            unsigned char block[2 * BLOCK];
            for (int i = 0; i < BLOCK; i++)
                x[i] = (float)sign * 1e-20f * (float)(1 + i % 7);
            memset(block, 0xff, sizeof block);
            type->quantize(x, 1, block);
            for (int i = 0; i < type->bytes; i++)
                if (block[i] != 0)
                    fail_msg("%s, sign %d: byte %d is %d", type->name, sign, i, block[i]);
        }
    }
}

/* Values that differ by less than a code can tell are as near as if they were equal. */
static void blocks_of_nearly_one_value(void **state) {
    (void)state;
    static const uint32_t ids[] = {2, 3, 6, 8, 12, 14};
    for (size_t t = 0; t < sizeof ids / sizeof *ids; t++) {
        const struct ax_block_type *type = ax_block_type_find(ids[t]);
        for (uint32_t draw = 0; draw < 100; draw++)
            for (int power = -7; power <= -3; power++)
                for (int sign = -1; sign <= 1; sign += 2) {
                    const struct ax_rng_key key = {.seed = 7, .tensor = draw};
                    const float spread = powf(10, (float)power), size = draw % 2 ? 1 : 1e4f;
                    float x[BLOCK], y[BLOCK];
                    unsigned char blocks[2 * BLOCK];
                    for (uint64_t i = 0; i < BLOCK; i++)
                        x[i] = (float)sign * size * (1 + spread * ax_rng_normal(key, i));
                    type->quantize(x, BLOCK / type->elements, blocks);
                    type->dequantize(blocks, BLOCK / type->elements, y);
                    for (int i = 0; i < BLOCK; i++)
                        if (!(fabsf(y[i] - x[i]) <= size * (8 * spread + 4e-3f)))
                            fail_msg("%s, spread %g: %g became %g", type->name, (double)spread,
                                     (double)x[i], (double)y[i]);
                }
    }
}

/* --- files --- */

static enum ax_status fill(void *ctx, int64_t first, int64_t n, float *out) {
    const float *x = ctx;
    assert_true(first >= 0 && n > 0 && first + n <= ROWS);
    memcpy(out, x + first * BLOCK, (size_t)(n * BLOCK) * sizeof *out);
    return AX_OK;
}

static enum ax_status write_file(float *x, uint32_t type, const char *name) {
    struct ax_gguf_keys keys = {0};
    const struct ax_gguf_output tensors[] = {
        {"odd", ax_block_type_find(0), 1, {BLOCK}, 1, fill, x},
        {"blocks", ax_block_type_find(type), 2, {ROWS, BLOCK}, 8, fill, x},
        {"last", ax_block_type_find(14), 3, {2, ROWS / 2, BLOCK}, 1, fill, x}};
    const struct ax_gguf_save save = {
        .path = in_dir(name), .keys = &keys, .n = 3, .tensors = tensors, .threads = 2};
    enum ax_status st;
    uint64_t bytes;
    struct stat info;
    AX_TRY_GOTO(ax_gguf_put_string(&keys, "s", "text", 4), st, done);
    AX_TRY_GOTO(ax_gguf_put_u32(&keys, "u", 4000000000u), st, done);
    AX_TRY_GOTO(ax_gguf_put_f32(&keys, "f", 1e-5f), st, done);
    AX_TRY_GOTO(ax_gguf_put_bool(&keys, "b", true), st, done);
    AX_TRY_GOTO(ax_gguf_put_array(&keys, "i", AX_GGUF_I32, 2), st, done);
    AX_TRY_GOTO(ax_gguf_add_i32(&keys, -7), st, done);
    AX_TRY_GOTO(ax_gguf_add_i32(&keys, 8), st, done);
    AX_TRY_GOTO(ax_gguf_put_array(&keys, "t", AX_GGUF_STRING, 1), st, done);
    AX_TRY_GOTO(ax_gguf_add_string(&keys, "", 0), st, done);
    AX_TRY_GOTO(ax_gguf_file_bytes(&save, &bytes), st, done);
    AX_TRY_GOTO(ax_gguf_write(&save), st, done);
    assert_int_equal(stat(save.path, &info), 0);
    assert_int_equal(info.st_size, bytes); /* as was said before */
done:
    ax_buf_free(&keys.bytes);
    return st;
}

static void files_are_read_back(void **state) {
    (void)state;
    static float x[ALL], y[ALL];
    struct ax_gguf g;
    int64_t u;
    double f;
    int32_t *list;
    size_t n;
    draw(x, 0);
    assert_int_equal(write_file(x, 8, "a.gguf"), AX_OK);
    assert_int_equal(ax_gguf_open(&g, in_dir("a.gguf")), AX_OK);
    assert_int_equal(g.n_keys, 6);
    assert_int_equal(g.n_tensors, 3);
    assert_int_equal(ax_gguf_i64(&g, "u", 0, UINT32_MAX, &u), AX_OK);
    assert_true(u == 4000000000);
    assert_int_equal(ax_gguf_f64(&g, "f", &f), AX_OK);
    assert_true(f == 1e-5);
    assert_int_equal(ax_gguf_i32s(&g, "i", &list, &n), AX_OK);
    assert_true(n == 2 && list[0] == -7 && list[1] == 8);
    ax_free(list);
    const struct ax_gguf_tensor *odd = ax_gguf_tensor(&g, "odd");
    assert_memory_equal(odd->data, x, BLOCK * sizeof *x);
    const struct ax_gguf_tensor *t = ax_gguf_tensor(&g, "blocks");
    assert_true(t->ndim == 2 && t->shape[0] == ROWS && t->shape[1] == BLOCK);
    t->type->dequantize(t->data, ALL / 32, y);
    assert_true(rms(x, y) < 0.01 * rms(x, NULL));
    const struct ax_gguf_tensor *last = ax_gguf_tensor(&g, "last");
    assert_true(last->ndim == 3 && last->shape[0] == 2 && last->shape[1] == ROWS / 2);
    ax_gguf_close(&g);
}

/* What a killed process left beside a file is removed; not what a running one is writing. */
static void unfinished_files_are_removed(void **state) {
    (void)state;
    static float x[ALL];
    draw(x, 0);
    put_file("d.gguf.tmp-999999999", "GGUF", 4);
    put_file("d.gguf.tmp-1", "GGUF", 4);
    assert_int_equal(write_file(x, 8, "d.gguf"), AX_OK);
    assert_false(ax_path_exists(in_dir("d.gguf.tmp-999999999")));
    assert_true(ax_path_exists(in_dir("d.gguf.tmp-1")));
}

enum { WIDE = 1 << 19 };

/* Row r is r + 1, r + 2, … modulo 1000; notes what it was asked for. */
static enum ax_status fill_wide(void *ctx, int64_t first, int64_t n, float *out) {
    struct ax_buf *asked = ctx;
    for (int64_t i = 0; i < n * WIDE; i++)
        out[i] = (float)((first + i / WIDE + i % WIDE + 1) % 1000);
    return ax_buf_printf(asked, "%lld+%lld ", (long long)first, (long long)n);
}

/* A piece is 2 Mi elements: 4 of these rows. Of runs of 3 rows one fits. */
static void large_tensors_are_written_in_pieces(void **state) {
    (void)state;
    static const struct {
        int64_t rows, run;
        const char *asked;
    } cases[] = {
        {9, 1, "0+4 4+4 8+1 "}, {8, 1, "0+4 4+4 "}, {4, 1, "0+4 "}, {9, 3, "0+3 3+3 6+3 "}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct ax_buf asked = {0};
        struct ax_gguf_keys keys = {0};
        struct ax_gguf g;
        const struct ax_gguf_output t = {
            "t", ax_block_type_find(1), 2, {cases[c].rows, WIDE}, cases[c].run, fill_wide, &asked};
        const struct ax_gguf_save save = {
            .path = in_dir("wide.gguf"), .keys = &keys, .n = 1, .tensors = &t, .threads = 2};
        assert_int_equal(ax_gguf_write(&save), AX_OK);
        assert_string_equal(asked.data, cases[c].asked);
        assert_int_equal(ax_gguf_open(&g, save.path), AX_OK);
        const uint16_t *half = (const void *)ax_gguf_tensor(&g, "t")->data;
        for (int64_t i = 0; i < cases[c].rows * WIDE; i++)
            if (half[i] != ax_f32_to_f16((float)((i / WIDE + i % WIDE + 1) % 1000)))
                fail_msg("element %lld", (long long)i);
        ax_gguf_close(&g);
        ax_buf_free(&asked);
    }
    assert_int_equal(ax_unlink(in_dir("wide.gguf")), AX_OK);
}

static void numbers_that_do_not_fit(void **state) {
    (void)state;
    static float x[ALL];
    draw(x, 0);
    x[ALL - 1] = 70000;
    assert_int_equal(write_file(x, 1, "b.gguf"), AX_ERR_DATA);
    assert_mentions("tensor blocks contains 70000, which is too large for F16");
    x[ALL - 1] = NAN;
    assert_int_equal(write_file(x, 0, "b.gguf"), AX_ERR_DATA);
    assert_mentions("tensor blocks contains nan");
    assert_false(ax_path_exists(in_dir("b.gguf")));
}

/* Whichever call of the system or the allocator fails: the old file stays as it was. */
static void failures_leave_the_old_file(void **state) {
    (void)state;
    static const char *const faults[] = {"write:%d:enospc", "rename:%d:eio", "malloc:%d:enomem"};
    static float x[ALL];
    char *before, *after;
    size_t n, m;
    draw(x, 0);
    assert_int_equal(write_file(x, 2, "c.gguf"), AX_OK);
    assert_int_equal(ax_read_file(in_dir("c.gguf"), 1 << 24, &before, &n), AX_OK);
    x[0] = 1;
    const int entries = count_entries(dir);
    for (int f = 0; f < 3; f++) {
        const uint64_t live = ax_mem_live_blocks();
        enum ax_status st = AX_ERR_FAILED;
        int k = 0;
        while (st != AX_OK && k < 200) {
            char spec[32];
            snprintf(spec, sizeof spec, faults[f], ++k);
            assert_int_equal(ax_fault_configure(spec), AX_OK);
            st = write_file(x, 2, "new.gguf");
            const bool fired = ax_fault_fired();
            assert_int_equal(ax_fault_configure(NULL), AX_OK);
            assert_true(fired == (st != AX_OK));
            assert_int_equal(ax_mem_live_blocks(), live);
            assert_int_equal(count_entries(dir), entries + (st == AX_OK));
        }
        assert_true(k > 1 && k < 200);
        assert_int_equal(ax_unlink(in_dir("new.gguf")), AX_OK);
    }
    assert_int_equal(ax_fault_configure("fsync:1:eio"), AX_OK);
    assert_int_equal(write_file(x, 2, "c.gguf"), AX_ERR_IO);
    assert_int_equal(ax_fault_configure(NULL), AX_OK);
    assert_int_equal(count_entries(dir), entries);
    assert_int_equal(ax_read_file(in_dir("c.gguf"), 1 << 24, &after, &m), AX_OK);
    assert_true(m == n && memcmp(before, after, n) == 0);
    ax_free(after);
    ax_free(before);
}

/* --- types --- */

static void types_of_the_mixtures(void **state) {
    (void)state;
    static const struct {
        const char *quant;
        struct ax_gguf_place place;
        const char *type;
    } cases[] = {
        {"q4_k_m", {AX_GGUF_MATRIX, false, 5, 32, 0, 4096}, "Q4_K"},
        {"q4_k_m", {AX_GGUF_DOWN, false, 3, 32, 0, 4096}, "Q6_K"},
        {"q4_k_m", {AX_GGUF_DOWN, false, 4, 32, 0, 4096}, "Q4_K"},
        {"q4_k_m", {AX_GGUF_DOWN, false, 6, 32, 0, 4096}, "Q6_K"},
        {"q4_k_m", {AX_GGUF_VALUES, false, 28, 32, 0, 4096}, "Q6_K"},
        {"q4_k_m", {AX_GGUF_VALUES, false, 5, 32, 8, 4096}, "Q8_0"},
        {"q4_k_m", {AX_GGUF_KEYS, false, 5, 32, 8, 4096}, "Q8_0"},
        {"q4_k_m", {AX_GGUF_HEAD, false, -1, 32, 0, 4096}, "Q6_K"},
        {"q4_k_m", {AX_GGUF_EMBEDDING, false, -1, 32, 0, 4096}, "Q4_K"},
        {"q4_k_m", {AX_GGUF_EMBEDDING, true, -1, 32, 0, 4096}, "Q6_K"},
        {"q4_k_m", {AX_GGUF_MATRIX, false, 5, 32, 0, 576}, "Q5_0"},
        {"q4_k_m", {AX_GGUF_HEAD, false, -1, 32, 0, 576}, "Q8_0"},
        {"q4_k_m", {AX_GGUF_MATRIX, false, 5, 32, 0, 100}, "F16"},
        {"q4_k_m", {AX_GGUF_VALUES, false, 12, 80, 0, 8192}, "Q6_K"},
        {"q4_k_m", {AX_GGUF_VALUES, false, 11, 80, 0, 8192}, "Q5_K"},
        {"q4_k_m", {AX_GGUF_VALUES, false, 2, 80, 0, 8192}, "Q6_K"},
        {"q4_k_m", {AX_GGUF_ATTENTION, false, 5, 32, 8, 4096}, "Q5_K"},
        {"q4_k_m", {AX_GGUF_ATTENTION, false, 5, 32, 0, 4096}, "Q4_K"},
        {"q5_k_m", {AX_GGUF_MATRIX, false, 5, 32, 0, 4096}, "Q5_K"},
        {"q5_k_m", {AX_GGUF_ATTENTION, false, 5, 32, 0, 4096}, "Q5_K"},
        {"q5_k_m", {AX_GGUF_DOWN, false, 3, 32, 0, 4096}, "Q6_K"},
        {"q5_k_m", {AX_GGUF_DOWN, false, 4, 32, 0, 4096}, "Q5_K"},
        {"q5_k_m", {AX_GGUF_VALUES, false, 31, 32, 0, 4096}, "Q6_K"},
        {"q5_k_m", {AX_GGUF_ATTENTION, false, 5, 32, 8, 4096}, "Q5_K"},
        {"q5_k_m", {AX_GGUF_HEAD, false, -1, 32, 0, 4096}, "Q6_K"},
        {"q5_k_m", {AX_GGUF_EMBEDDING, false, -1, 32, 0, 4096}, "Q5_K"},
        {"q5_k_m", {AX_GGUF_MATRIX, false, 5, 32, 0, 576}, "Q5_1"},
        {"q3_k_m", {AX_GGUF_MATRIX, false, 5, 32, 0, 4096}, "Q3_K"},
        {"q3_k_m", {AX_GGUF_VALUES, false, 1, 32, 0, 4096}, "Q5_K"},
        {"q3_k_m", {AX_GGUF_VALUES, false, 2, 32, 0, 4096}, "Q4_K"},
        {"q3_k_m", {AX_GGUF_VALUES, false, 2, 80, 0, 8192}, "Q5_K"},
        {"q3_k_m", {AX_GGUF_VALUES, false, 2, 32, 8, 4096}, "Q8_0"},
        {"q3_k_m", {AX_GGUF_DOWN, false, 1, 32, 0, 4096}, "Q5_K"},
        {"q3_k_m", {AX_GGUF_DOWN, false, 2, 32, 0, 4096}, "Q4_K"},
        {"q3_k_m", {AX_GGUF_ATTENTION, false, 9, 32, 0, 4096}, "Q4_K"},
        {"q3_k_m", {AX_GGUF_ATTENTION, false, 9, 32, 8, 4096}, "Q5_K"},
        {"q3_k_m", {AX_GGUF_EMBEDDING, false, -1, 32, 0, 4096}, "Q3_K"},
        {"q3_k_m", {AX_GGUF_EMBEDDING, true, -1, 32, 0, 4096}, "Q6_K"},
        {"q3_k_m", {AX_GGUF_MATRIX, false, 5, 32, 0, 576}, "IQ4_NL"},
        {"q3_k_m", {AX_GGUF_MATRIX, false, 5, 32, 0, 100}, "F16"},
        {"q5_0", {AX_GGUF_MATRIX, false, 5, 32, 0, 4096}, "Q5_0"},
        {"q5_0", {AX_GGUF_DOWN, false, 0, 32, 0, 4096}, "Q5_0"},
        {"q5_0", {AX_GGUF_HEAD, false, -1, 32, 0, 4096}, "Q6_K"},
        {"q4_0", {AX_GGUF_HEAD, false, -1, 32, 0, 4096}, "Q6_K"},
        {"q4_0", {AX_GGUF_DOWN, false, 0, 32, 0, 4096}, "Q4_0"},
        {"q8_0", {AX_GGUF_EMBEDDING, true, -1, 32, 0, 4096}, "Q8_0"},
        {"q6_k", {AX_GGUF_ROUTER, false, 0, 32, 8, 4096}, "F32"},
        {"bf16", {AX_GGUF_HEAD, false, -1, 32, 0, 100}, "BF16"},
        {"f16", {AX_GGUF_VECTOR, false, 0, 32, 0, 4096}, "F32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ax_gguf_quant *q = ax_gguf_quant_find(cases[i].quant);
        assert_string_equal(ax_gguf_pick_type(q, &cases[i].place)->name, cases[i].type);
    }
    assert_null(ax_gguf_quant_find("q5_k_l"));
    assert_int_equal(ax_gguf_quant_find("q5_0")->file_type, 8);
    assert_int_equal(ax_gguf_quant_find("q3_k_m")->file_type, 12);
    assert_int_equal(ax_gguf_quant_find("q5_k_m")->file_type, 17);
    assert_int_equal(ax_gguf_quant_find("Q8_0")->file_type, 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_survive_to_their_precision),
        cmocka_unit_test(blocks_of_one_value),
        cmocka_unit_test(scales_are_the_weighted_fit),
        cmocka_unit_test(blocks_of_nothing_are_zeros),
        cmocka_unit_test(blocks_of_nearly_one_value),
        cmocka_unit_test(files_are_read_back),
        cmocka_unit_test(unfinished_files_are_removed),
        cmocka_unit_test(large_tensors_are_written_in_pieces),
        cmocka_unit_test(numbers_that_do_not_fit),
        cmocka_unit_test(failures_leave_the_old_file),
        cmocka_unit_test(types_of_the_mixtures),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}

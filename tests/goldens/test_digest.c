/* Digests have the numbers of rule.py, and notice what the full form does: each kind of damage once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/rng.h"
#include "tests/golden_files.h"
#include "tests/goldens/command.h"
#include "tests/goldens/digest.h"

/* ---- the numbers ---- */

/* digest() and row_digest() of rule.py, of (37·i mod 101 − 50)/64 as [8][12]. */
static void numbers_are_those_of_python(void **state) {
    (void)state;
    static const double whole[GOLDEN_DIGEST] = {
        4.483558287997938, 4.296875,  -0.546875, -2.046875, -0.984375, 7.171875, 2.265625,
        3.234375,          1.109375,  0.625,     0.296875,  -0.140625, 0.125,    -0.21875,
        -0.640625,         0.109375,  -0.140625, -0.671875, -0.640625, -0.6875,  0.71875,
        -0.265625,         -0.109375, 0.6875,    -0.328125};
    static const double by_row[8 * GOLDEN_ROW_PROJECTIONS] = {
        0.328125,  -0.515625, 4.515625,  1.890625,  -0.328125, -2.421875, -3.046875, 0.640625,
        -0.984375, -1.171875, -1.140625, -0.609375, 1.515625,  0.078125,  0.765625,  -1.859375,
        -2.296875, 1.328125,  -0.484375, 0.046875,  -1.375,    1.0,       3.0,       3.53125,
        -0.453125, -2.484375, -2.984375, 0.703125,  -1.109375, -1.234375, -1.078125, -0.546875};
    double x[96], got[GOLDEN_DIGEST], rows[8 * GOLDEN_ROW_PROJECTIONS];
    for (int i = 0; i < 96; i++)
        x[i] = (37 * i % 101 - 50) / 64.0;
    golden_digest("model.layers.1.mlp.up_proj.weight", x, 96, got);
    golden_row_digest("hidden_3", x, 8, 12, rows);
    for (int i = 0; i < GOLDEN_DIGEST; i++)
        if (fabs(got[i] - whole[i]) > 1e-14)
            fail_msg("number %d: %.17g, expected %.17g", i, got[i], whole[i]);
    for (int i = 0; i < 8 * GOLDEN_ROW_PROJECTIONS; i++)
        if (rows[i] != by_row[i]) /* sums of 64ths are exact */
            fail_msg("row %d: %.17g, expected %.17g", i / 4, rows[i], by_row[i]);
}

/* ---- errors of known size ---- */

#define ROWS 128
#define COLS 64
#define N    (ROWS * COLS)

/* A tensor, its digest, and values to compare with. */
static struct fake {
    double value[N], got[N], digest[GOLDEN_DIGEST];
    char name[32];
    struct ax_golden_tensor golden;
} fake;

static double normal(uint32_t tensor, int i) {
    return ax_rng_normal((struct ax_rng_key){.seed = 5, .tensor = tensor}, (uint64_t)i);
}

/* Number `which`, of this size, and what a computation gets that rounds like float32's. */
static void make_fake(uint32_t which, double size) {
    snprintf(fake.name, sizeof fake.name, "tensor.%u", which);
    for (int i = 0; i < N; i++) {
        fake.value[i] = size * normal(2 * which, i);
        fake.got[i] = fake.value[i] + 2.5e-6 * size * normal(2 * which + 1, i);
    }
    golden_digest(fake.name, fake.value, N, fake.digest);
    fake.golden = (struct ax_golden_tensor){.form = GOLDEN_DIGESTED,
                                            .name = fake.name,
                                            .ndim = 2,
                                            .shape = {ROWS, COLS},
                                            .numel = N,
                                            .v = fake.digest};
}

static bool passes(struct golden_figure f) {
    return f.figure <= f.tolerance;
}

static struct golden_figure gradient(void) {
    return golden_relative(&fake.golden, fake.got, 3e-5, 3e-5);
}

/* An error of the tolerance is missed with probability 1e-3, honest rounding never refused. */
static void relative_errors(void **state) {
    (void)state;
    int missed = 0;
    for (uint32_t which = 0; which < 300; which++) {
        make_fake(which, 0.01);
        if (!passes(gradient()))
            fail_msg("%s: rounding is refused: %g", fake.name, gradient().figure);
        for (int i = 0; i < N; i++)
            fake.got[i] = fake.value[i] + 3e-5 * 0.01 * normal(1000 + which, i);
        missed += passes(gradient());
    }
    assert_true(missed <= 2);
}

static void a_row_that_is_swapped(void **state) {
    (void)state;
    make_fake(1, 1);
    for (int i = 0; i < COLS; i++) {
        fake.got[3 * COLS + i] = fake.value[90 * COLS + i];
        fake.got[90 * COLS + i] = fake.value[3 * COLS + i];
    }
    assert_false(passes(gradient()));
}

/* The fake's tensor as a file of samples has it, at the places that it states. */
static void make_sample(double sample[GOLDEN_SAMPLE]) {
    for (uint64_t j = 0; j < GOLDEN_SAMPLE; j++)
        sample[j] = fake.value[(2654435761ULL * j + 12345) % N];
    fake.golden = (struct ax_golden_tensor){
        .form = GOLDEN_SAMPLED, .name = fake.name, .numel = GOLDEN_SAMPLE, .v = sample};
}

static void samples_stand_for_tensors(void **state) {
    (void)state;
    double sample[GOLDEN_SAMPLE];
    int missed = 0;
    make_fake(4, 0.01);
    make_sample(sample);
    assert_false(golden_fits(&fake.golden, GOLDEN_SAMPLE - 1)); /* then it would have fewer */
    assert_true(golden_fits(&fake.golden, N) && fake.golden.numel == N);
    assert_false(golden_fits(&fake.golden, N + 1));
    struct ax_golden_tensor small = {.form = GOLDEN_SAMPLED, .numel = 40, .v = sample};
    assert_true(golden_fits(&small, 40) && small.form == GOLDEN_FULL);
    for (uint32_t which = 0; which < 100; which++) {
        make_fake(which, 0.01);
        make_sample(sample);
        assert_true(golden_fits(&fake.golden, N));
        assert_true(passes(gradient()));
        for (int i = 0; i < N; i++)
            fake.got[i] = fake.value[i] + 4.5e-5 * 0.01 * normal(1000 + which, i);
        missed += passes(gradient());
    }
    assert_true(missed <= 2);
    struct golden_parameters p = {0};
    fake.got[12345 % N] += 1; /* the first place */
    golden_compare_parameters(&p, &fake.golden, fake.got);
    assert_true(p.worst > 0.99 && p.total == N && p.off >= (double)N / GOLDEN_SAMPLE);
}

static void a_gradient_that_should_be_zero(void **state) {
    (void)state;
    make_fake(2, 0);
    assert_true(passes(gradient()));
    fake.got[N - 1] = 1e-30;
    assert_false(passes(gradient()));
    fake.got[N - 1] = NAN;
    assert_false(passes(gradient()));
}

static void not_a_number(void **state) {
    (void)state;
    make_fake(3, 1);
    fake.got[5] = NAN;
    assert_false(passes(gradient()));
    assert_false(passes(golden_of_largest(&fake.golden, fake.got, 1e-6)));
    struct golden_parameters p = {0};
    golden_compare_parameters(&p, &fake.golden, fake.got);
    assert_false(p.worst_projection <= 1);
    make_fake(3, 1);
    fake.digest[2] = NAN;
    assert_false(passes(gradient()));
}

/* With rounding, and three elements that Adam moved the other way. */
static void a_parameter_off_by_the_bound(void **state) {
    (void)state;
    const double bound = 2 * 1e-3 * 5;
    make_fake(4, 0.05);
    fake.got[100] += 2e-4;
    fake.got[200] -= 3e-4;
    fake.got[300] += 1e-4;
    struct golden_parameters p = {0};
    golden_compare_parameters(&p, &fake.golden, fake.got);
    assert_true(p.worst_projection <= bound / 2 && p.worst <= bound);
    assert_true(golden_share_off(&p) <= 1e-3);
    fake.got[4000] -= bound;
    p = (struct golden_parameters){0};
    golden_compare_parameters(&p, &fake.golden, fake.got);
    assert_true(p.worst_projection > bound / 2);
}

/* Two drawn elements may be beyond 1e-5, a whole tensor may not. */
static void a_share_of_the_parameters(void **state) {
    (void)state;
    struct golden_parameters p = {0};
    for (uint32_t which = 10; which < 20; which++) {
        make_fake(which, 0.05);
        for (int i = 0; i < N && which == 13; i++)
            fake.got[i] += 2e-5;
        golden_compare_parameters(&p, &fake.golden, fake.got);
    }
    assert_true(p.total == 10.0 * N && p.off == N);
    assert_true(golden_share_off(&p) > 1e-3);
    p.off = p.forgiven[0] + p.forgiven[1];
    assert_true(golden_share_off(&p) == 0);
}

/* Rounding to float32; and 1e-6 of the largest, at one drawn element or everywhere. */
static void merged_weights(void **state) {
    (void)state;
    make_fake(6, 1);
    double largest = 0;
    for (int i = 0; i < N; i++) {
        fake.got[i] = (float)fake.value[i];
        largest = fmax(largest, fabs(fake.value[i]));
    }
    assert_true(passes(golden_of_largest(&fake.golden, fake.got, 1e-6)));
    for (int i = 0; i < N; i++)
        fake.got[i] += 1e-6 * largest * (i % 3 ? 1 : -1);
    assert_false(passes(golden_of_largest(&fake.golden, fake.got, 1e-6)));
}

/* ---- damaged files ---- */

static enum ax_status replay(const char *dir) {
    char *argv[] = {"replay", (char *)(uintptr_t)dir, "--dtype", "float32", NULL};
    return golden_replay(4, argv);
}

/* Where a tensor's numbers, or its name, stand in the file. */
static long place(const char *path, const char *name, bool of_name) {
    struct ax_safetensors st;
    assert_int_equal(ax_safetensors_open(&st, path), AX_OK);
    const struct ax_st_entry *e = ax_safetensors_find(&st, name);
    assert_non_null(e);
    long at = (long)((const unsigned char *)e->data - st.map.data);
    if (of_name) {
        char quoted[128];
        snprintf(quoted, sizeof quoted, "\"%s\":{", name);
        const char *found = memmem(st.map.data, st.map.len, quoted, strlen(quoted));
        assert_non_null(found);
        at = (long)(found + 1 - (const char *)st.map.data);
    }
    ax_safetensors_close(&st);
    return at;
}

static void change(const char *path, long at, const void *bytes, size_t n) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void get(const char *path, long at, void *bytes, size_t n) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fread(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

#define MATRIX "model.layers.1.mlp.up_proj.weight"
enum damage { LARGER, MOVED, ZERO, SWAPPED, MISSING, NO_NUMBER };

/* Of digests of 25 numbers, or by row, of which `SWAPPED` exchanges two. */
static void damage(const char *path, enum damage kind) {
    const long at = place(path, kind == SWAPPED ? "hidden_2" : MATRIX, kind == MISSING);
    double v[GOLDEN_DIGEST];
    float rows[2][GOLDEN_ROW_PROJECTIONS];
    if (kind == MISSING) {
        change(path, at, "M", 1);
        return;
    }
    if (kind == SWAPPED) {
        get(path, at, rows, sizeof rows);
        change(path, at, rows[1], sizeof rows[1]);
        change(path, at + (long)sizeof rows[0], rows[0], sizeof rows[0]);
        return;
    }
    get(path, at, v, sizeof v);
    for (int k = 0; k < GOLDEN_DIGEST; k++)
        switch (kind) {
        case LARGER:
            v[k] *= 1 + 3e-5;
            break;
        case ZERO:
            v[k] = 0;
            break;
        case MOVED:
            v[k] += k >= 1 && k <= GOLDEN_PROJECTIONS ? 2 * 1e-3 * 5 * (k % 2 ? 1 : -1) : 0;
            break;
        default:
            v[k] = k == 7 ? NAN : v[k];
        }
    change(path, at, v, sizeof v);
}

static void damage_to_files_is_seen(void **state) {
    (void)state;
    static const struct {
        const char *file;
        enum damage kind;
    } cases[] = {{"grads", LARGER},         {"params_step5", MOVED}, {"grads_packed", ZERO},
                 {"forward", SWAPPED},      {"packed", SWAPPED},     {"grads", MISSING},
                 {"params_step1", MISSING}, {"grads", NO_NUMBER},    {"params_step5", NO_NUMBER}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char dir[] = "/tmp/axtrain-digest-XXXXXX", path[PATH_MAX], command[2 * PATH_MAX];
        assert_non_null(mkdtemp(dir));
        snprintf(command, sizeof command, "cp -r '%s/.' %s", golden_path("models/llama"), dir);
        assert_int_equal(system(command), 0);
        if (i == 0)
            assert_int_equal(replay(dir), AX_OK);
        snprintf(path, sizeof path, "%s/golden/%s.safetensors", dir, cases[i].file);
        damage(path, cases[i].kind);
        if (replay(dir) != AX_ERR_FAILED)
            fail_msg("%s, damage %d: not seen", cases[i].file, (int)cases[i].kind);
        ax_remove_tree(dir);
    }
}

/* A digest of another length, a shape that is none, and a check that needs all values. */
static void digests_that_cannot_be_used(void **state) {
    (void)state;
    static const struct {
        const char *note, *says;
    } cases[] = {{"digest 8x8", "the digest has 4 numbers, expected 25"},
                 {"rows 8x8", "the digest has 4 numbers, expected 32"},
                 {"rows 8x-1", "cannot read the shape \"rows 8x-1\""},
                 {"rows 1x8", "is a digest, but this check needs all of its values"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[] = "/tmp/axtrain-digest-XXXXXX", header[256];
        const int to = mkstemp(path);
        assert_true(to >= 0);
        const float data[4] = {1, 2, 3, 4};
        const uint64_t n = (uint64_t)snprintf(
            header, sizeof header,
            "{\"__metadata__\":{\"a\":\"%s\"},\"a\":{\"dtype\":\"F32\",\"shape\":[1,4],"
            "\"data_offsets\":[0,16]}}",
            cases[i].note);
        FILE *f = fdopen(to, "wb");
        fwrite(&n, sizeof n, 1, f);
        fwrite(header, 1, n, f);
        fwrite(data, sizeof data, 1, f);
        assert_int_equal(fclose(f), 0);
        struct ax_safetensors st;
        struct ax_golden_tensor t;
        assert_int_equal(ax_safetensors_open(&st, path), AX_OK);
        assert_int_equal(ax_golden_read(&st, "a", &t), AX_ERR_DATA);
        assert_non_null(strstr(ax_error_text(), cases[i].says));
        ax_safetensors_close(&st);
        assert_int_equal(remove(path), 0);
    }
}

/* ---- the program's options ---- */

static void mistakes(void **state) {
    (void)state;
    static char *const cases[][5] = {
        {"replay", NULL},
        {"replay", "a", "b", NULL},
        {"replay", "--nonsense", "/", NULL},
        {"replay", "/", "--backend", NULL},
        {"replay", "/", "--backend", "gpu", NULL},
        {"replay", "/", "--dtype", "int8", NULL},
        {"replay", "/", "--threads", "0", NULL},
        {"replay", "/nowhere", NULL},
    };
    static const char *const says[] = {"a folder is missing",
                                       "unexpected argument b",
                                       "an option is unknown",
                                       "has no value",
                                       "\"gpu\" is not one of cpu, cuda, ref",
                                       "expected float32 or bfloat16",
                                       "expected an integer from 1 to 1024, got 0",
                                       "/nowhere: no such file or folder"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *argv[5];
        int argc = 0;
        while (argc < 4 && cases[i][argc]) {
            argv[argc] = cases[i][argc];
            argc++;
        }
        argv[argc] = NULL;
        assert_int_equal(golden_replay(argc, argv), AX_ERR_CONFIG);
        if (!strstr(ax_error_text(), says[i]))
            fail_msg("%s", ax_error_text());
    }
    char *help[] = {"replay", "--help", NULL};
    assert_int_equal(golden_replay(2, help), AX_OK);
}

/* What is left out makes the exit code, what is optional does not. */
static void absent_files(void **state) {
    (void)state;
    static const struct {
        const char *file;
        enum ax_status status;
    } cases[] = {{"config.legacy.json", AX_OK},
                 {"golden/bf16.json", AX_OK},
                 {"golden/golden.json", AX_ERR_FAILED},
                 {"golden/forward.safetensors", AX_ERR_FAILED},
                 {"golden/packed.safetensors", AX_ERR_FAILED},
                 {"golden/grads_packed.safetensors", AX_ERR_FAILED},
                 {"golden/params_step1.safetensors", AX_ERR_FAILED},
                 {"golden/generate.json", AX_ERR_FAILED}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char dir[] = "/tmp/axtrain-digest-XXXXXX", command[2 * PATH_MAX];
        assert_non_null(mkdtemp(dir));
        snprintf(command, sizeof command, "cp -r '%s/.' %s && rm %s/%s",
                 golden_path("models/llama"), dir, dir, cases[i].file);
        assert_int_equal(system(command), 0);
        if (replay(dir) != cases[i].status)
            fail_msg("without %s: %s", cases[i].file, ax_error_text());
        ax_remove_tree(dir);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_those_of_python),
        cmocka_unit_test(relative_errors),
        cmocka_unit_test(a_row_that_is_swapped),
        cmocka_unit_test(samples_stand_for_tensors),
        cmocka_unit_test(a_gradient_that_should_be_zero),
        cmocka_unit_test(not_a_number),
        cmocka_unit_test(a_parameter_off_by_the_bound),
        cmocka_unit_test(a_share_of_the_parameters),
        cmocka_unit_test(merged_weights),
        cmocka_unit_test(damage_to_files_is_seen),
        cmocka_unit_test(digests_that_cannot_be_used),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(absent_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

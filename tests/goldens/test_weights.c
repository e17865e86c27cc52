/* Weights by a rule have the bytes that rule.py makes, and the copy of the goldens has them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "ckpt/hf/safetensors.h"
#include "tests/golden_files.h"
#include "tests/goldens/mirror.h"
#include "tests/goldens/weights.h"

/* The sum and the values below are those of weights_file(recipe) of rule.py. */
#define SUM "d432c6660f318ebe5c09ede9a44ae5c3f4b72bcb29d0d159113b5c673a53fd19"
static const char rule[] =
    "{\"seed\": 1234, \"sha256\": \"" SUM "\", \"tensors\": ["
    "{\"name\": \"model.norm.weight\", \"shape\": [5], \"mean\": 1.0, \"std\": 0.1},"
    "{\"name\": \"lm_head.weight\", \"shape\": [3, 2], \"mean\": 0.0, \"std\": 0.05},"
    "{\"name\": \"gate\", \"shape\": [4], \"mean\": 0.5, \"std\": 2, \"round\": \"bf16\"}]}";

static char dir[] = "/tmp/axtrain-weights-XXXXXX";

static int setup(void **state) {
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    return ax_remove_tree(dir);
}

static const char *in_dir(const char *name) {
    static char path[2][PATH_MAX];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

static void write_text(const char *name, const char *text) {
    char *path;
    assert_int_equal(ax_strdup(&path, in_dir(name)), AX_OK);
    *strrchr(path, '/') = '\0';
    assert_int_equal(ax_mkdir_parents(path), AX_OK);
    ax_free(path);
    assert_int_equal(ax_write_file_atomic(in_dir(name), text, strlen(text)), AX_OK);
}

static void check_tensor(const struct ax_safetensors *st, const char *name, int64_t n,
                         const float *want) {
    float got[8];
    const struct ax_st_entry *e = ax_safetensors_find(st, name);
    assert_non_null(e);
    assert_int_equal(e->numel, n);
    assert_int_equal(e->dtype, AX_F32);
    assert_int_equal(ax_st_read(e, 0, n, AX_F32, got), AX_OK);
    for (int64_t i = 0; i < n; i++)
        if (got[i] != want[i])
            fail_msg("%s, value %d: %.9g, expected %.9g", name, (int)i, (double)got[i],
                     (double)want[i]);
}

static void the_bytes_are_those_of_python(void **state) {
    (void)state;
    struct ax_safetensors st;
    write_text("weights.json", rule);
    assert_int_equal(golden_make_weights(in_dir("weights.json"), in_dir("model.safetensors")),
                     AX_OK);
    assert_int_equal(ax_safetensors_open(&st, in_dir("model.safetensors")), AX_OK);
    assert_int_equal(st.n, 3);
    check_tensor(&st, "model.norm.weight", 5,
                 (const float[]){1.05477333F, 1.07040191F, 1.16984046F, 0.933512092F, 1.08350503F});
    check_tensor(&st, "gate", 4,
                 (const float[]){0.0336914062F, -1.1484375F, 0.330078125F, -2.53125F});
    ax_safetensors_close(&st);
}

static void other_bytes_are_refused(void **state) {
    (void)state;
    char *text, *at;
    size_t n;
    write_text("weights.json", rule);
    assert_int_equal(ax_read_file(in_dir("weights.json"), 1 << 16, &text, &n), AX_OK);
    at = strstr(text, "0.05");
    assert_non_null(at);
    at[3] = '6';
    write_text("weights.json", text);
    ax_free(text);
    assert_int_equal(golden_make_weights(in_dir("weights.json"), in_dir("wrong.safetensors")),
                     AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), in_dir("weights.json")));
    assert_non_null(strstr(ax_error_text(), SUM " where the goldens were made"));
    assert_false(ax_path_exists(in_dir("wrong.safetensors")));
    write_text("weights.json", "{\"seed\": 1, \"sha256\": \"\", \"tensors\": []}");
    assert_int_equal(golden_make_weights(in_dir("weights.json"), in_dir("wrong.safetensors")),
                     AX_ERR_DATA);
}

/* Everything is in the copy but what is no golden; it is made again when something changes. */
static void a_copy_follows_its_source(void **state) {
    (void)state;
    struct stat first, now;
    write_text("from/models/m/weights.json", rule);
    write_text("from/models/m/golden/golden.json", "{}");
    write_text("from/rope.json", "{}");
    write_text("from/README.md", "no golden");
    write_text("from/make/part.json", "no golden");
    char from[PATH_MAX], to[PATH_MAX];
    snprintf(from, sizeof from, "%s/from", dir);
    snprintf(to, sizeof to, "%s/to", dir);
    assert_int_equal(golden_mirror(from, to), AX_OK);
    assert_true(ax_path_exists(in_dir("to/models/m/model.safetensors")));
    assert_true(ax_path_exists(in_dir("to/models/m/golden/golden.json")));
    assert_true(ax_path_exists(in_dir("to/rope.json")));
    assert_false(ax_path_exists(in_dir("to/models/m/weights.json")));
    assert_false(ax_path_exists(in_dir("to/README.md")));
    assert_false(ax_path_exists(in_dir("to/make")));
    assert_int_equal(stat(to, &first), 0);
    assert_int_equal(golden_mirror(from, to), AX_OK);
    assert_int_equal(stat(to, &now), 0);
    assert_int_equal(now.st_ino, first.st_ino);

    write_text("from/models/m/golden/golden.json", "{\"changed\": 1}");
    assert_int_equal(unlink(in_dir("from/rope.json")), 0);
    assert_int_equal(golden_mirror(from, to), AX_OK);
    assert_int_equal(stat(in_dir("to/models/m/golden/golden.json"), &now), 0);
    assert_int_equal(now.st_size, strlen("{\"changed\": 1}"));
    assert_false(ax_path_exists(in_dir("to/rope.json")));

    /* a rule that cannot be followed leaves the old copy */
    write_text("from/models/m/weights.json", "{}");
    assert_int_equal(golden_mirror(from, to), AX_ERR_DATA);
    assert_true(ax_path_exists(in_dir("to/models/m/model.safetensors")));
}

static void goldens_are_found(void **state) {
    (void)state;
    char path[PATH_MAX], resolved[PATH_MAX];
    const char *llama = golden_path("models/llama");
    assert_ptr_equal(golden_path("models/llama"), llama);
    assert_true(ax_path_exists(golden_path("models/llama/model.safetensors")));
    assert_non_null(realpath(golden_path(""), resolved));
    assert_memory_equal(llama, resolved, strlen(resolved));
    assert_false(golden_find("models/no_such_model", path, sizeof path));
    assert_non_null(strstr(ax_error_text(), "models/no_such_model: no such golden"));
    assert_false(golden_find("models/llama", path, 8));
    const char *const set = getenv("AX_TEST_GOLDENS");
    char old[PATH_MAX];
    snprintf(old, sizeof old, "%s", set ? set : "");
    setenv("AX_TEST_GOLDENS", in_dir("nowhere"), 1);
    assert_false(golden_find("models/llama", path, sizeof path));
    assert_non_null(strstr(ax_error_text(), in_dir("nowhere")));
    if (*old)
        setenv("AX_TEST_GOLDENS", old, 1);
    else
        unsetenv("AX_TEST_GOLDENS");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bytes_are_those_of_python),
        cmocka_unit_test(other_bytes_are_refused),
        cmocka_unit_test(a_copy_follows_its_source),
        cmocka_unit_test(goldens_are_found),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

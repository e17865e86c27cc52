/* Every file of tests/cmd/transcripts is one test, in an empty folder with a link to a model that
 * counts (counting_model.h). Words on the command line choose files by their beginning. If what
 * differs is intended, AX_UPDATE=1 writes it into the files, for git to show:
 *
 *     AX_UPDATE=1 build/tests/cmd/test_transcripts [NAME …] */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <glob.h>
#include <sched.h>

#include "tests/cmd/counting_model.h"
#include "tests/cmd/transcripts.h"

#define FOLDER    "tests/cmd/transcripts/"
#define MAX_FILES 64

static char dir[64];

/* ---- one file ---- */

static void compare(const char *path, const struct transcript *t, const char *want) {
    char got[300], command[700];
    if (strcmp(want, t->out.data) == 0)
        return;
    if (getenv("AX_UPDATE")) {
        assert_int_equal(ax_write_file_atomic(path, t->out.data, t->out.len), AX_OK);
        print_message("updated: %s\n", path);
        return;
    }
    snprintf(got, sizeof got, "%s/now", dir);
    assert_int_equal(ax_write_file_atomic(got, t->out.data, t->out.len), AX_OK);
    snprintf(command, sizeof command, "diff -u --label %s --label now %s %s >&2", path, path, got);
    fflush(NULL);
    if (system(command) >= 0)
        fail_msg("%s differs; AX_UPDATE=1 writes what is intended", path);
}

static void test_file(void **state) {
    const char *path = *state, *name = strrchr(path, '/') + 1;
    char folder[160], link[200], model[160], *want;
    size_t len;
    snprintf(folder, sizeof folder, "%s/%.*s", dir, (int)strcspn(name, "."), name);
    snprintf(link, sizeof link, "%s/model", folder);
    snprintf(model, sizeof model, "%s/model", dir);
    assert_int_equal(ax_mkdir(folder), AX_OK);
    assert_int_equal(symlink(model, link), 0);
    assert_int_equal(ax_read_file(path, 1 << 22, &want, &len), AX_OK);
    struct transcript t = {.name = name, .folder = folder};
    add_mask(&t, dir, strlen(dir), "TMP");
    run_transcript(&t, want);
    compare(path, &t, want);
    free_transcript(&t);
    ax_free(want);
}

/* ---- all files ---- */

/* Output must depend neither on the machine's processor nor on the caller's environment. */
static void set_environment(const char *bin) {
    static const char *const foreign[] = {"NO_COLOR", "HF_ENDPOINT", "HF_HUB_CACHE",  "HF_TOKEN",
                                          "LC_ALL",   "AX_LOG",      "AXTRAIN_DUCKDB"};
    char path[600];
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        unsetenv(foreign[i]);
    snprintf(path, sizeof path, "%s:%s", bin, getenv("PATH"));
    setenv("PATH", path, 1);
    snprintf(path, sizeof path, "%s/hf", dir);
    setenv("HF_HOME", path, 1);
    setenv("AXTRAIN_CPU", "avx2", 1); /* last digits and workspace depend on it */
    setenv("HF_HUB_OFFLINE", "1", 1);
    setenv("HOME", dir, 1);
    setenv("TMPDIR", dir, 1);
    setenv("TERM", "dumb", 1);
    setenv("AXTRAIN_DEVICE", "cpu", 1); /* on any machine */
    setenv("LANG", "C", 1);
    setenv("TZ", "UTC", 1);
}

static int set_up(void **state) {
    (void)state;
    char path[128];
    const char *bin = getenv("AX_TEST_BIN");
    char *program = realpath(bin ? bin : "build/axtrain", NULL);
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(dir, sizeof dir, "%s/axtrain-transcripts-XXXXXX", base);
    if (!program || !mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/model", dir);
    put_counting_model(path);
    snprintf(path, sizeof path, "%s/bin", dir);
    set_environment(path);
    int failed = ax_mkdir(path) != AX_OK;
    snprintf(path, sizeof path, "%s/bin/axtrain", dir);
    failed = failed || symlink(program, path) != 0;
    free(program);
    return failed ? -1 : 0;
}

static int remove_all(void **state) {
    (void)state;
    return ax_remove_tree(dir) == AX_OK ? 0 : -1;
}

static bool is_chosen(const char *path, int argc, char **argv) {
    bool chosen = argc < 2;
    for (int i = 1; i < argc; i++)
        chosen = chosen || begins(strrchr(path, '/') + 1, argv[i]);
    return chosen;
}

int main(int argc, char **argv) {
    struct CMUnitTest tests[MAX_FILES];
    size_t n = 0;
    glob_t files;
    if (glob(FOLDER "*.txt", 0, NULL, &files) != 0 || files.gl_pathc > MAX_FILES) {
        print_error("%s: expected 1 to %d transcripts\n", FOLDER, MAX_FILES);
        return 1;
    }
    for (size_t i = 0; i < files.gl_pathc; i++)
        if (is_chosen(files.gl_pathv[i], argc, argv))
            tests[n++] = (struct CMUnitTest){.name = files.gl_pathv[i],
                                             .test_func = test_file,
                                             .initial_state = files.gl_pathv[i]};
    const int failed = _cmocka_run_group_tests("transcripts", tests, n, set_up, remove_all);
    globfree(&files);
    return failed;
}

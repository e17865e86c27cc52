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

#include "tests/cmd/transcripts.h"

#define FOLDER    "tests/cmd/transcripts/"
#define MAX_FILES 64

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
    const int failed =
        _cmocka_run_group_tests("transcripts", tests, n, set_up_transcripts, remove_transcripts);
    globfree(&files);
    return failed;
}

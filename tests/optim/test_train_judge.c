/* Which output folders a run may write to, by what is in them and what it resumes from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "optim/train/run.h"
#include "tests/ckpt/folder.h"

enum { ABSENT, EMPTY, CHECKPOINTS, MODEL, BOTH, FOREIGN, KINDS };
static const char *const kinds[KINDS] = {"absent", "empty", "checkpoints",
                                         "model",  "both",  "foreign"};

static void put_kind(int kind) {
    char path[160];
    if (kind == ABSENT)
        return;
    assert_int_equal(ax_mkdir(in_dir(kinds[kind])), AX_OK);
    for (int step = 2; step <= 10 && (kind == CHECKPOINTS || kind == BOTH); step += 8) {
        snprintf(path, sizeof path, "%s/checkpoint-%d/state", kinds[kind], step);
        assert_int_equal(ax_mkdir_parents(in_dir(path)), AX_OK);
        strcat(path, "/manifest.json");
        put_text(path, "{}");
    }
    snprintf(path, sizeof path, "%s/config.json", kinds[kind]);
    if (kind == MODEL || kind == BOTH)
        put_text(path, "{}");
    if (kind == FOREIGN) { /* a checkpoint of transformers */
        assert_int_equal(ax_mkdir(in_dir("foreign/checkpoint-5")), AX_OK);
        put_text("foreign/checkpoint-5/optimizer.pt", "");
    }
}

static const char used[] = "contains the checkpoints of another run (newest: checkpoint-10)",
                  model[] = "already contains a model; choose another folder",
                  foreign[] = "contains checkpoint-5, which has no state/manifest.json",
                  none[] = "does not exist", bare[] = "is not a checkpoint, as it has no ";

static void folders_are_judged(void **state) {
    (void)state;
    static const struct {
        enum ax_resume resume;
        const char *dir;            /* in the output folder, or beside it */
        const char *refused[KINDS]; /* why; NULL: it is not */
    } cases[] = {
        {AX_RESUME_NO, NULL, {NULL, NULL, used, model, used, foreign}},
        {AX_RESUME_NEWEST, NULL, {NULL, NULL, NULL, model, NULL, foreign}},
        {AX_RESUME_NEWEST_GOOD, NULL, {NULL, NULL, NULL, model, NULL, foreign}},
        {AX_RESUME_FOLDER, "/checkpoint-2", {none, none, NULL, none, NULL, none}},
        {AX_RESUME_FOLDER, "/../other", {NULL, NULL, used, model, used, foreign}},
        {AX_RESUME_FOLDER, "/../other/checkpoint-1", {NULL, NULL, used, model, used, foreign}},
        {AX_RESUME_FOLDER, "", {none, bare, bare, bare, bare, bare}},
    };
    assert_int_equal(ax_mkdir_parents(in_dir("other/state")), AX_OK);
    assert_int_equal(ax_mkdir_parents(in_dir("other/checkpoint-1/state")), AX_OK);
    put_text("other/state/manifest.json", "{}");
    put_text("other/checkpoint-1/state/manifest.json", "{}");
    for (int kind = 0; kind < KINDS; kind++)
        put_kind(kind);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int kind = 0; kind < KINDS; kind++) {
            char output[128], from[192];
            snprintf(output, sizeof output, "%s", in_dir(kinds[kind]));
            /* beside an absent folder there is no way through it */
            const bool beside = cases[i].dir && strncmp(cases[i].dir, "/../", 4) == 0;
            snprintf(from, sizeof from, "%s", beside ? in_dir(cases[i].dir + 4) : output);
            if (cases[i].dir && !beside)
                strcat(from, cases[i].dir);
            const struct ax_train_save save = {
                .output_dir = output, .resume = cases[i].resume, .resume_dir = from};
            const enum ax_status st = ax_train_folder_judge(&save);
            const char *why = cases[i].refused[kind];
            if (st != (why ? AX_ERR_CONFIG : AX_OK) || (why && !strstr(ax_error_text(), why)))
                fail_msg("case %zu, %s: status %d, %s", i, kinds[kind], st, ax_error_text());
        }
    }
}

/* The same folder by another name. */
static void links_are_followed(void **state) {
    (void)state;
    char output[128], from[192];
    snprintf(output, sizeof output, "%s", in_dir("link"));
    assert_int_equal(symlink("checkpoints", output), 0);
    snprintf(from, sizeof from, "%s/checkpoint-10", in_dir("checkpoints"));
    const struct ax_train_save save = {
        .output_dir = output, .resume = AX_RESUME_FOLDER, .resume_dir = from};
    assert_int_equal(ax_train_folder_judge(&save), AX_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_are_judged),
        cmocka_unit_test(links_are_followed),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}

/* replay over recorded runs of distillation on the student's own completions, and that it notices what
 * differs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cmd/program_case.h"
#include "tests/data/scratch.h"

static char said[1 << 16];

static int replays(const char *dir, const char *backend) {
    return run_beside(said, sizeof said, "tests/goldens/replay", "'%s' --backend %s", dir, backend);
}

static void all_runs_are_repeated(void **state) {
    (void)state;
    char dir[512];
    snprintf(dir, sizeof dir, "%s", golden_path("runs/opd"));
    if (replays(dir, "cpu") != 0)
        fail_msg("%s", said);
    for (int i = 0; i < 6; i++) {
        static const char *const cases[] = {"reverse_kl", "jsd_hot", "forward_top",
                                            "jsd_lora",   "tools",   "tools_long"};
        char title[64];
        snprintf(title, sizeof title, "/runs/opd/%s backend=", cases[i]);
        assert_non_null(strstr(said, title));
    }
    assert_non_null(strstr(said, " 0 failed, 0 files absent"));
    if (replays(dir, "ref") != 0)
        fail_msg("%s", said);
}

/* SCRATCH/runs: the tree with a copy of one case, in which sed has changed a file. */
static void copy_case(const char *name, const char *file, const char *edit) {
    char command[4096], from[512];
    snprintf(from, sizeof from, "%s", golden_path("runs"));
    snprintf(command, sizeof command,
             "cd %s && rm -rf runs && mkdir -p runs/opd runs/data && ln -s '%s/models' runs && cp "
             "'%s'/data/opd_*.jsonl runs/data && cp -r '%s'/opd/crosscheck.json '%s'/opd/%s.* "
             "runs/opd && chmod -R u+w runs/data runs/opd && sed -i '%s' runs/%s",
             scratch, from, from, from, from, name, edit, file);
    if (system(command) != 0)
        fail_msg("%s", command);
}

static void a_change_is_noticed(void **state) {
    (void)state;
    static const struct {
        const char *name, *file, *edit, *says;
    } cases[] = {
        {"reverse_kl", "opd/reverse_kl.json", "s/\"beta\": 1.0/\"beta\": 0.99/",
         "FAIL  divergences"},
        {"jsd_hot", "opd/jsd_hot.json", "s/\"temperature\": 1.5/\"temperature\": 1.51/",
         "FAIL  other metrics"},
        {"forward_top", "opd/forward_top.json", "s/\"num_tokens\": 243.0/\"num_tokens\": 244.0/",
         "FAIL  counts that differ"},
        {"reverse_kl", "data/opd_reverse_kl.jsonl", "1s/\"prompt_ids\":\\[481/&,481/",
         "FAIL  tokens of prompts that differ"},
        {"tools", "data/opd_tools.jsonl", "1s/\"model_tokens\":\\[\\[\\[0,/&1,/;1s/\\[0,1,/[1,/",
         "FAIL  tokens that are taken for the model"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char dir[256];
        copy_case(cases[i].name, cases[i].file, cases[i].edit);
        snprintf(dir, sizeof dir, "%s/runs/opd", scratch);
        if (replays(dir, "cpu") == 0 || !strstr(said, cases[i].says))
            fail_msg("%s: expected \"%s\" in: %s", cases[i].edit, cases[i].says, said);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_runs_are_repeated),
                                       cmocka_unit_test(a_change_is_noticed)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

/* Runs of rl: distill with the small student and teacher of the recorded runs. Include after cmocka.h. */
#ifndef AX_TESTS_ON_POLICY_CASE_H
#define AX_TESTS_ON_POLICY_CASE_H

#include <math.h>

#include "tests/cmd/grpo_case.h"

static char student[512], teacher[512], data[512];

/* Keys of all runs, in place of what a configuration says. */
#define OVER                                                                                       \
    "base_model='%s' kd_teacher='%s' datasets='[{path: %s}]' dataset_prepared_path='%s/cache' "    \
    "output_dir='%s/%s' --quiet float32=true sequence_len=128 trl.max_completion_length=24 "       \
    "logging_steps=1"

static inline const char *config(void) {
    static const char text[] = "base_model: m\nkd_teacher: t\nrl: distill\ndatasets: [{path: d}]\n"
                               "sequence_len: 128\nmicro_batch_size: 2\n"
                               "gradient_accumulation_steps: 2\nmax_steps: 4\nsave_steps: 2\n"
                               "learning_rate: 3e-3\nlr_scheduler: constant\n";
    static char path[256];
    snprintf(path, sizeof path, "%s", put_bytes("c.yaml", text, sizeof text - 1));
    return path;
}

static inline int try(const char *command, const char *file, const char *taught_by, const char *out,
                      const char *more) {
    return run(said, sizeof said, "%s '%s' " OVER " %s", command, file, student, taught_by, data,
               scratch, scratch, out, more);
}

static inline void distill(const char *out, const char *more) {
    if (try("train", config(), teacher, out, more) != 0)
        fail_msg("%s: %s", out, said);
}

static inline json_t *completion(const char *folder, int i) {
    char *text = read_text(folder, "completions.jsonl"), *rest = text, *line = NULL;
    for (int k = 0; k <= i; k++)
        line = strsep(&rest, "\n");
    json_t *v = json_loads(line ? line : "", JSON_ALLOW_NUL, NULL);
    ax_free(text);
    return v;
}

/* The n values of a figure of runs "a" and "b". */
static inline void near_steps(const char *figure, int n, double tolerance, const char *what) {
    double one[16], two[16];
    assert_in_range(n, 1, 16);
    assert_int_equal(numbers("a", figure, one, n), n);
    assert_int_equal(numbers("b", figure, two, n), n);
    for (int k = 0; k < n; k++)
        if (!(fabs(one[k] - two[k]) < tolerance))
            fail_msg("%s, %d: %.9g and %.9g", what, k + 1, one[k], two[k]);
}

static inline int on_policy_begin(void **state) {
    snprintf(student, sizeof student, "%s", golden_path("runs/models/opd_student"));
    snprintf(teacher, sizeof teacher, "%s", golden_path("runs/models/opd_teacher"));
    snprintf(data, sizeof data, "%s", golden_path("runs/data/opd_jsd_hot.jsonl"));
    return scratch_make(state);
}

#endif

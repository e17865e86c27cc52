/* A task file and its rows in a temporary folder. Include after cmocka.h. */
#ifndef AX_TESTS_OPTIM_TASK_CASE_H
#define AX_TESTS_OPTIM_TASK_CASE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "optim/evaluate/tasks/report.h"

static char dir[64];

static inline int make_dir(void **state) {
    (void)state;
    strcpy(dir, "/tmp/axtrain-task-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static inline int remove_dir(void **state) {
    (void)state;
    return ax_remove_tree(dir) == AX_OK ? 0 : -1;
}

/* Writes DIR/NAME; returns its path, valid until the next call. */
static inline const char *put(const char *name, const char *text) {
    static char path[1200];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(ax_write_file_atomic(path, text, strlen(text)), AX_OK);
    return path;
}

static inline void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* Keys that every task has, and then `more`. */
#define DATA                                                                                       \
    "dataset_path: json\n"                                                                         \
    "dataset_kwargs: {data_files: {test: rows.jsonl, train: train.jsonl}}\n"                       \
    "test_split: test\n"
#define CHOICE                                                                                     \
    "task: t\n" DATA "output_type: multiple_choice\n"                                              \
    "doc_to_text: q\ndoc_to_target: a\ndoc_to_choice: c\n"
#define GENERATE "task: t\n" DATA "doc_to_text: q\ndoc_to_target: a\n"

static inline void load(struct ax_task *t, const char *yaml) {
    static struct ax_task_spec spec;
    static char path[1200];
    snprintf(path, sizeof path, "%s", put("task.yaml", yaml));
    spec = (struct ax_task_spec){.path = path};
    must(ax_task_load(t, &spec));
}

#endif

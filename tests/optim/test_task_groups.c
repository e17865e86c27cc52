/* Groups of evaluation tasks: names, tags and members' keys; their numbers. Means and standard
 * errors in `numbers` come from the functions of lm-evaluation-harness 0.4.13. AX_TEST_BIN names the
 * program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>

#include "base/text/json.h"
#include "optim/evaluate/tasks/report.h"
#include "tests/cmd/program_case.h"
#include "tests/optim/task_case.h"
#include "tests/golden_files.h"

static char out[1 << 18];

#define FIELDS DATA "output_type: multiple_choice\ndoc_to_text: q\ndoc_to_choice: c\n"

static void write_files(void) {
    char sub[80];
    snprintf(sub, sizeof sub, "%s/sub", dir);
    must(ax_mkdir_parents(sub));
    static const char rows[] =
        "{\"q\": \"Is it red?\", \"c\": [\"no\", \"yes it is\"], \"a\": 0}\n"
        "{\"q\": \"Is it blue?\", \"c\": [\"never\", \"at times\"], \"a\": 1}\n"
        "{\"q\": \"Is it a tree?\", \"c\": [\"no\", \"yes\"], \"a\": 1}\n";
    put("rows.jsonl", rows);
    put("sub/rows.jsonl", rows);
    put("train.jsonl", "{\"q\": \"One?\", \"c\": [\"no\", \"yes\"], \"a\": 1}\n");
    put("_shared", FIELDS "doc_to_target: a\ntag: [colors, all]\nfewshot_split: train\n");
    put("one.yaml", "task: one\ninclude: _shared\ntask_alias: First\n");
    put("two.yaml", "task: two\ninclude: _shared\nnum_fewshot: 1\n"
                    "metric_list: [{metric: acc}, {metric: brier_score}]\n");
    put("sub/three.yaml", "task: three\ninclude: ../_shared\ntag: colors\n"
                          "filter_list: [{name: x, filter: [{function: take_first}]}]\n");
    put("python.yaml", "task: python\ninclude: _shared\nprocess_docs: !function utils.f\n");
    put("small.yaml", "group: small\ngroup_alias: Small ones\ntask: [two, sub_group]\n"
                      "num_fewshot: 0\n");
    put("sub/group.yaml", "group: sub_group\ntask: [three]\nnum_fewshot: 2\n"
                          "target_delimiter: \"-\"\n");
    put("big.yaml",
        "group: big\n"
        "task:\n"
        "  - task: one\n"
        "    task_alias: Uno\n"
        "    num_fewshot: 1\n"
        "  - small\n"
        "  - {group: inner, group_alias: I, task: [two], num_fewshot: 0}\n"
        "  - {task: own, dataset_path: json, dataset_kwargs: {data_files: {test: rows.jsonl}},\n"
        "     test_split: test, output_type: multiple_choice, doc_to_text: q, doc_to_choice: c,\n"
        "     doc_to_target: a}\n"
        "aggregate_metric_list:\n"
        "  - {metric: acc, weight_by_size: true}\n"
        "  - {metric: acc, aggregation: mean, weight_by_size: false, filter_list: [none, x]}\n"
        "target_delimiter: \": \"\n");
}

static const struct ax_task_node *child(const struct ax_task_node *n, size_t i, const char *name) {
    assert_true(i < n->n);
    assert_string_equal(n->children[i]->name, name);
    return n->children[i];
}

/* Task `i` of the tree, loaded: its name, examples and delimiter. */
static void has(const struct ax_task_tree *t, size_t i, const char *name, int64_t shots,
                const char *delimiter) {
    struct ax_task task;
    must(ax_task_load(&task, t->tasks[i]));
    assert_string_equal(task.name, name);
    assert_int_equal(task.num_fewshot, shots);
    assert_string_equal(task.target_delimiter, delimiter);
    if (strcmp(name, "one") == 0)
        assert_string_equal(task.alias, "Uno");
    ax_task_free(&task);
}

static void members(void **state) {
    (void)state;
    struct ax_task_tree t = {0};
    char path[128];
    size_t *list, n;
    write_files();
    snprintf(path, sizeof path, "%s/big.yaml", dir);
    must(ax_task_tree_add(&t, path));
    const struct ax_task_node *big = child(&t.root, 0, "big"), *small = child(big, 1, "small"),
                              *sub = child(small, 1, "sub_group");
    child(big, 0, "one");
    child(small, 0, "two");
    child(sub, 0, "three");
    child(child(big, 2, "big::inner"), 0, "two");
    child(big, 3, "big::own");
    assert_int_equal(big->n_metrics, 2);
    assert_int_equal(big->metrics[1].n_filters, 2);
    assert_string_equal(big->metrics[1].filters[0], "none");
    assert_string_equal(big->metrics[1].filters[1], "x");
    assert_string_equal(small->alias, "Small ones");
    assert_string_equal(sub->alias, "sub_group");
    assert_int_equal(t.n_tasks, 5);
    has(&t, 0, "one", 1, ": ");   /* its entry, then the group */
    has(&t, 1, "two", 0, ": ");   /* the outer group wins over the inner one, both over the task */
    has(&t, 2, "three", 0, ": "); /* small's 0 and not sub_group's 2 */
    has(&t, 3, "two", 0, ": ");   /* from inner: other maps, so a task of its own */
    has(&t, 4, "big::own", -1, ": ");
    must(ax_task_node_tasks(&t, big, &list, &n));
    assert_int_equal(n, 5);
    ax_free(list);
    ax_task_tree_free(&t);
}

/* A name in a folder is a task, a group or a tag, whose tasks come sorted. */
static void names(void **state) {
    (void)state;
    struct ax_task_tree t = {.include_path = dir};
    write_files();
    must(ax_task_tree_add(&t, "two,colors"));
    assert_int_equal(t.root.n, 4); /* python.yaml cannot be read, and so has no tag */
    child(&t.root, 0, "two");
    child(&t.root, 1, "one");
    child(&t.root, 2, "three");
    child(&t.root, 3, "two");
    ax_task_tree_free(&t);
    t.include_path = dir;
    must(ax_task_tree_add(&t, "sub_group"));
    child(child(&t.root, 0, "sub_group"), 0, "three");
    has(&t, 0, "three", 2, "-");
    must(ax_task_tree_add(&t, "python")); /* loading it says why it cannot be read */
    struct ax_task task;
    assert_int_equal(ax_task_load(&task, t.tasks[1]), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "!function names Python code"));
    ax_task_tree_free(&t);
}

static void near(double got, double want) {
    if (!(fabs(got - want) <= 1e-14))
        fail_msg("%.17g, expected %.17g", got, want);
}

/* Three tasks of 10, 20 and 70 records; the last one has no filter "x". Another metric comes first. */
static void numbers(void **state) {
    (void)state;
    static const double value[] = {0.5, 0.25, 0.8}, error[] = {0.1, 0.2, 0.05};
    static const size_t records[] = {10, 20, 70};
    struct ax_task_metric metrics[] = {{.kind = AX_METRIC_F1}, {.kind = AX_METRIC_ACC}};
    struct ax_task_filters filters[] = {{.name = (char *)(uintptr_t) "none"},
                                        {.name = (char *)(uintptr_t) "x"}};
    struct ax_task_result results[3][4]; /* a filter's metrics are neighbors */
    struct ax_task_job jobs[3] = {0};
    struct ax_task_node nodes[3] = {{.task = 0}, {.task = 1}, {.task = 2}};
    struct ax_task_node *children[] = {&nodes[0], &nodes[1], &nodes[2], &nodes[0]};
    struct ax_task_group_metric how[] = {{.metric = "acc", .by_size = true}, {.metric = "acc"}};
    struct ax_task_node group = {.name = (char *)(uintptr_t) "g",
                                 .task = AX_TASK_NO_TASK,
                                 .children = children,
                                 .n = 4,
                                 .metrics = how,
                                 .n_metrics = 2};
    const struct ax_task_tree t = {.n_tasks = 3};
    struct ax_task_group_values v;
    for (size_t i = 0; i < 3; i++) {
        results[i][0] = results[i][2] = (struct ax_task_result){100, 7};
        results[i][1] = results[i][3] = (struct ax_task_result){value[i], error[i]};
        jobs[i].task = (struct ax_task){
            .metrics = metrics, .n_metrics = 2, .filters = filters, .n_filters = i < 2 ? 2 : 1};
        jobs[i].results = results[i];
        jobs[i].scores.n = records[i];
    }
    must(ax_task_group_aggregate(&v, &t, &group, jobs));
    assert_int_equal(v.n, 4); /* none and x, by size and plainly; a task counts once */
    assert_string_equal(v.list[0].filter, "none");
    near(v.list[0].result.value, 0.66);
    near(v.list[0].result.error, 0.053894704519625414);
    assert_string_equal(v.list[1].filter, "x");
    near(v.list[1].result.value, 1.0 / 3);
    near(v.list[1].result.error, 0.13844373104863458);
    near(v.list[2].result.value, 0.5166666666666667);
    near(v.list[2].result.error, 0.07637626158259735);
    ax_task_group_values_free(&v);
    results[1][1].error = NAN;
    must(ax_task_group_aggregate(&v, &t, &group, jobs));
    assert_true(isnan(v.list[0].result.error));
    assert_true(isnan(v.list[2].result.error));
    ax_task_group_values_free(&v);
}

static void program(void **state) {
    (void)state;
    char model[512];
    snprintf(model, sizeof model, "%s", golden_path("models/llama"));
    write_files();
    assert_int_equal(
        run(out, sizeof out, "eval --model %s --task %s/small.yaml,%s/one.yaml", model, dir, dir),
        0);
    assert_non_null(strstr(out, "\nSmall ones\n  two                     0  none "));
    assert_non_null(strstr(out, "\n  sub_group\n    three                 0  x  "));
    assert_non_null(strstr(out, "\nFirst                     0  none "));
    put("pair.yaml", "group: pair\ntask: [one, {task: three, fewshot_config: {sampler: first_n}}]\n"
                     "aggregate_metric_list: {metric: acc}\n");
    assert_int_equal(
        run(out, sizeof out, "eval --model %s --include-path %s --task pair --json", model, dir),
        0);
    json_t *v = json_loads(out, 0, NULL);
    const json_t *results = json_object_get(v, "results"), *pair = json_object_get(results, "pair"),
                 *one = json_object_get(results, "one"), *three = json_object_get(results, "three");
    near(json_number_value(json_object_get(pair, "acc,none")),
         json_number_value(json_object_get(one, "acc,none")));
    near(json_number_value(json_object_get(pair, "acc,x")),
         json_number_value(json_object_get(three, "acc,x")));
    near(json_number_value(json_object_get(pair, "acc_stderr,x")),
         json_number_value(json_object_get(three, "acc_stderr,x")));
    assert_true(json_equal(json_object_get(json_object_get(v, "groups"), "pair"), pair));
    const json_t *list = json_object_get(json_object_get(v, "group_subtasks"), "pair");
    assert_string_equal(json_string_value(json_array_get(list, 1)), "three");
    json_decref(v);
}

static void mistakes(void **state) {
    (void)state;
    static const char *const wrong[][2] = {
        {"group: g\n", "g.yaml: task: missing; list the tasks of the group"},
        {"group: g\ntask: one\n", "g.yaml:2:7: task: expected a list"},
        {"group: g\ntask: [one, oen]\n", "g.yaml:2:13: task: no task, group or tag oen in "},
        {"group: g\ntask: [fourteen]\n", "give the folder of its file with --include-path. Not "
                                         "read: 1 of its files, the first because of "},
        {"group: g\ntask: [fourteen]\n", "python.yaml:3:15: process_docs: !function names Python"},
        {"group: g\ntask: [oe]\n", "did you mean one?"},
        {"group: g\ntask: [{alias: x}]\n", "an entry without the keys task and group"},
        {"group: g\ntask: [{task: small}]\n", "small is a group; write group: small"},
        {"group: g\ntask: [g]\n", "groups contain each other in a circle"},
        {"group: g\ntask: [{group: own, task: [g]}]\n", "groups contain each other in a circle"},
        {"group: g\ntask: [one]\naggregate_metric_list: [{metric: acc, aggregation: max}]\n",
         "g.yaml:3:52: aggregation: expected mean, got \"max\""},
        {"group: g\ntask: [one]\naggregate_metric_list: [{weight_by_size: true}]\n",
         "an entry without the key metric"},
        {"group: g\ntask: [one]\nnum_fewshots: 3\n", "did you mean num_fewshot?"},
        {"group: g\ntask: [{task: one, group_alias: x, splt: y}]\n", "g.yaml:2:42: splt: unknown"},
    };
    const uint64_t live = ax_mem_live_blocks();
    write_files();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct ax_task_tree t = {0};
        struct ax_task task;
        char path[128];
        put("g.yaml", wrong[i][0]);
        snprintf(path, sizeof path, "%s/g.yaml", dir);
        enum ax_status st = ax_task_tree_add(&t, path);
        if (st == AX_OK) {
            st = ax_task_load(&task, t.tasks[0]);
            if (st == AX_OK)
                ax_task_free(&task);
        }
        if (st != AX_ERR_CONFIG || !strstr(ax_error_text(), wrong[i][1]))
            fail_msg("%s\n  said %s\n  not  %s", wrong[i][0], ax_error_text(), wrong[i][1]);
        ax_task_tree_free(&t);
        assert_int_equal(ax_mem_live_blocks(), live);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members), cmocka_unit_test(names),    cmocka_unit_test(numbers),
        cmocka_unit_test(program), cmocka_unit_test(mistakes),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}

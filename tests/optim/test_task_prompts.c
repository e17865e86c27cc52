/* Task files and the prompts that they make, and their mistakes. The prompts are what
 * lm-evaluation-harness makes of the same files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/optim/task_case.h"

/* Ten records, q0 … q9, whose answer is choice number i mod 2. */
static void put_rows(const char *name, int n) {
    struct ax_buf b = {0};
    for (int i = 0; i < n; i++)
        must(
            ax_buf_printf(&b, "{\"q\": \"q%d\", \"c\": [\"no\", \"yes\"], \"a\": %d}\n", i, i % 2));
    put(name, b.data);
    ax_buf_free(&b);
}

static struct ax_task task;
static struct ax_task_prompts prompts;

static void build(const char *yaml, int64_t shots) {
    const struct ax_task_prompt_options o = {
        .num_fewshot = shots, .seed = 1234, .system = NULL, .folder = dir};
    load(&task, yaml);
    must(ax_task_prompts_build(&prompts, &task, NULL, &o));
}

static void drop(void) {
    ax_task_prompts_free(&prompts);
    ax_task_free(&task);
}

static void context(size_t i, const char *want) {
    const struct ax_buf *got = &prompts.items[i].contexts[0];
    if (got->len != strlen(want) || memcmp(got->data, want, got->len) != 0)
        fail_msg("record %zu\n  has %s\n  not %s", i, got->data, want);
}

/* Examples drawn as random.Random(1234) draws them, one record after the other. */
static void drawn_examples(void **state) {
    (void)state;
    put_rows("rows.jsonl", 3);
    put_rows("train.jsonl", 10);
    build(CHOICE "fewshot_split: train\n", 3);
    context(0, "q7 yes\n\nq1 yes\n\nq0 no\n\nq0");
    context(1, "q1 yes\n\nq0 no\n\nq9 yes\n\nq1");
    context(2, "q1 yes\n\nq5 yes\n\nq3 yes\n\nq2");
    drop();
    build(CHOICE "training_split: train\nnum_fewshot: 0\n", 3); /* 0 in the file is meant */
    context(0, "q0");
    assert_int_equal(prompts.num_fewshot, 0);
    drop();
    build(CHOICE "training_split: train\nnum_fewshot: 3\n", -1);
    context(0, "q7 yes\n\nq1 yes\n\nq0 no\n\nq0");
    drop();
    /* an answer counted from the last choice, as Python does */
    put("train.jsonl", "{\"q\": \"x\", \"c\": [\"a\", \"b\", \"c\"], \"a\": -1}\n");
    build(CHOICE "training_split: train\nnum_fewshot: 1\n", -1);
    context(0, "x c\n\nq0");
    drop();
}

/* From the split that is evaluated, a record is never its own example. */
static void own_split(void **state) {
    (void)state;
    put_rows("rows.jsonl", 10);
    build(CHOICE "fewshot_split: test\n", 2); /* draws 7 1 0, then 1 0 9, then 1 5 3 */
    context(0, "q7 yes\n\nq1 yes\n\nq0");
    context(1, "q0 no\n\nq9 yes\n\nq1");
    drop();
    build(CHOICE "fewshot_split: test\nfewshot_config: {sampler: first_n}\n", 2);
    context(0, "q1 yes\n\nq2 no\n\nq0");
    context(5, "q0 no\n\nq1 yes\n\nq5");
    drop();
    put("rows.jsonl", "{\"q\": \"x\", \"a\": 0, \"c\": [\"n\", \"y\"]}\n"
                      "{\"q\": \"x\", \"a\": 0, \"c\": [\"n\", \"y\"]}\n"
                      "{\"q\": \"z\", \"a\": 1, \"c\": [\"n\", \"y\"]}\n");
    build(CHOICE "fewshot_split: test\n", 1); /* drawn twice, it is drawn again without */
    context(0, "z y\n\nx");
    context(1, "z y\n\nx");
    drop();
}

static void pieces(void **state) {
    (void)state;
    put("rows.jsonl", "{\"q\": \"What?\", \"a\": 1, \"c\": [\"no\", \"yes\"], \"s\": \"art\"}\n");
    put_rows("train.jsonl", 2);
    build("task: t\n" DATA "output_type: multiple_choice\n"
          "doc_to_text: \"Q: {{q}}\\nA:\"\ndoc_to_target: \"{{a}}\"\n"
          "doc_to_choice: \"{{c}}\"\ndescription: \"About {{s}}.\\n\\n\"\n"
          "target_delimiter: \"=\"\nfewshot_delimiter: \"|\"\nfewshot_config:\n"
          "  sampler: first_n\n  target_delimiter: \"->\"\n  samples:\n"
          "    - {q: one, a: 0, c: [x, y]}\n    - {q: two, a: 1, c: [x, y]}\n",
          2);
    context(0, "About art.\n\nQ: one\nA:->x|Q: two\nA:->y|Q: What?\nA:");
    assert_int_equal(json_integer_value(prompts.items[0].target), 1); /* no longer text */
    struct ax_buf text = {0};
    must(ax_task_continuation(&prompts, 0, 1, &text));
    assert_string_equal(text.data, "=yes");
    ax_buf_free(&text);
    drop();
    build(GENERATE "gen_prefix: \"It is\"\ndoc_to_choice: c\nfewshot_split: train\n"
                   "fewshot_config: {sampler: first_n}\n",
          1);
    context(0, "q0 It is no\n\nWhat? It is");
    drop();
    build(GENERATE "gen_prefix: I\ndoc_to_choice: c\nfewshot_split: train\n"
                   "fewshot_config: {sampler: first_n}\n",
          1);
    context(0, "q0 I no\n\nWhat? I");
    drop();
    build("task: t\n" DATA "output_type: multiple_choice\ndoc_to_text: a\ndoc_to_target: q\n"
          "doc_to_choice: [\"{{q}}\", two]\n",
          0);
    assert_true(prompts.several); /* a number: the choices are the contexts */
    context(0, "{{q}}");          /* lists are taken as they are */
    assert_string_equal(prompts.items[0].contexts[1].data, "two");
    must(ax_task_continuation(&prompts, 0, 0, &text));
    assert_string_equal(text.data, " What?");
    ax_buf_free(&text);
    drop();
}

static void includes(void **state) {
    (void)state;
    put_rows("rows.jsonl", 1);
    put("base.yaml", CHOICE "description: base\ntarget_delimiter: '1'\nrepeats: 4\n");
    put("second.yaml", "description: second\nfewshot_delimiter: '2'\n");
    load(&task, "include: [base.yaml, second.yaml]\ntask: own\nrepeats: null\n");
    assert_string_equal(task.name, "own");
    assert_string_equal(task.description.text, "second"); /* the later of the two */
    assert_string_equal(task.target_delimiter, "1");
    assert_string_equal(task.fewshot_delimiter, "2");
    assert_int_equal(task.repeats, 1); /* null takes away what base.yaml says */
    ax_task_free(&task);
}

/* CSV columns have the types that pandas guesses. */
static void csv(void **state) {
    (void)state;
    put("rows.csv", "id,n,x,b,mixed,t\n007,1,1.5,True,1,a\n8,,2,False,x,NA\n");
    load(&task, "task: t\ndataset_path: csv\ndataset_kwargs: {data_files: rows.csv}\n"
                "test_split: train\ndoc_to_text: t\ndoc_to_target: n\n");
    struct ax_task_docs docs = {0};
    must(ax_task_docs_load(&docs, &task, "train", dir, 0));
    char *first = json_dumps(docs.list[0], JSON_COMPACT),
         *second = json_dumps(docs.list[1], JSON_COMPACT);
    assert_string_equal(first,
                        "{\"id\":7,\"n\":1.0,\"x\":1.5,\"b\":true,\"mixed\":\"1\",\"t\":\"a\"}");
    assert_string_equal(second,
                        "{\"id\":8,\"n\":null,\"x\":2.0,\"b\":false,\"mixed\":\"x\",\"t\":null}");
    ax_free(first);
    ax_free(second);
    ax_task_docs_free(&docs);
    ax_task_free(&task);
}

/* ---- mistakes ---- */

static void refused(const char *yaml, const char *want) {
    const struct ax_task_prompt_options o = {.num_fewshot = -1, .folder = dir};
    const uint64_t live = ax_mem_live_blocks();
    enum ax_status st = ax_task_load(&task, &(struct ax_task_spec){.path = put("task.yaml", yaml)});
    if (st == AX_OK) {
        st = ax_task_prompts_build(&prompts, &task, NULL, &o);
        if (st == AX_OK)
            drop();
        else
            ax_task_free(&task);
    }
    if (st == AX_OK)
        fail_msg("accepted, expected \"%s\":\n%s", want, yaml);
    if (!strstr(ax_error_text(), want))
        fail_msg("said %s\n  not  %s", ax_error_text(), want);
    assert_int_equal(ax_mem_live_blocks(), live);
}

static void mistakes(void **state) {
    (void)state;
    static const char *const wrong[][2] = {
        {CHOICE "process_docs: !function utils.f\n",
         "task.yaml:9:15: process_docs: !function names Python code"},
        {CHOICE "process_results: utils.f\n", "task.yaml:9:18: process_results: not supported; "
                                              "write the fields as Jinja templates"},
        {CHOICE "doc_to_tex: q\n", "task.yaml:9:13: doc_to_tex: unknown key; did you mean "
                                   "doc_to_text?"},
        {CHOICE "output_type: best\n", "duplicate key"},
        {"task: t\n" DATA "output_type: best\n",
         "task.yaml:5:14: output_type: expected multiple_choice, generate_until"},
        {"task: [a, b]\n",
         "task.yaml:1:7: task: a task has no list of tasks; a group of tasks has the key group"},
        {"- a\n", "task.yaml:1:1: the task: expected keys and values, got a list"},
        {"task: t\ntest_split: test\n", "task.yaml: dataset_path: missing"},
        {"task: t\ndataset_path: json\n", "task.yaml: test_split: missing"},
        {"task: t\n" DATA "output_type: multiple_choice\ndoc_to_text: q\ndoc_to_target: a\n",
         "task.yaml: doc_to_choice: missing; multiple_choice needs it"},
        {CHOICE "doc_to_decontamination_query: q\nnum_fewshot: many\n",
         "task.yaml:10:14: num_fewshot: expected an integer from 0 to 10000, got \"many\""},
        {CHOICE "description: \"{{ x\"\n", "task.yaml:9: description:1:"},
        {"task: t\n" DATA "doc_to_text: q\ndoc_to_target: [1, 2]\n",
         "doc_to_target: expected text, got \"1\"; put it in quotes"},
        {CHOICE "metric_list: [{metric: bleu}]\n",
         "task.yaml:9:24: metric: multiple_choice has the metrics acc, acc_norm"},
        {CHOICE "metric_list: [{metric: acc, aggregation: weighted_perplexity}]\n",
         "aggregation: \"weighted_perplexity\" does not fit"},
        {CHOICE "metric_list: [{metric: acc, agregation: mean}]\n", "did you mean aggregation?"},
        {GENERATE "generation_kwargs: {num_beams: 4}\n", "beam search is not supported"},
        {GENERATE "metric_list: [{metric: exact_match, weight_by_size: true}]\n",
         "weight_by_size: unknown key"},
        {CHOICE "filter_list: [{name: x, filter: [{function: regex}]}]\n",
         "regex is for generated text"},
        {GENERATE "filter_list: [{name: x, filter: [{function: custom}]}]\n",
         "function: expected take_first"},
        {GENERATE "filter_list: [{name: x, filter: [{function: take_first}, {function: "
                  "lowercase}]}]\n",
         "a step after take_first"},
        {GENERATE "filter_list: [{name: x, filter: [{function: take_first_k, k: 2}]}]\n",
         "at most the task's repeats (1)"},
        {GENERATE "filter_list: [{name: x, filter: [{function: regex, regex_pattern: '('}]}]\n",
         "regex_pattern: bad regular expression"},
        {GENERATE "generation_kwargs: {num_beam: 2}\n", "did you mean num_beams?"},
        {GENERATE "generation_kwargs: {do_sample: true, temperature: 0}\n",
         "do_sample: sampling needs a temperature above 0"},
        {GENERATE "generation_kwargs: {do_sample: true, top_p: 1.5}\n",
         "top_p: expected a number from 0 to 1, got \"1.5\""},
        {GENERATE "generation_kwargs: {do_sample: true, top_p: -0.5}\n",
         "top_p: expected a number from 0 to 1, got \"-0.5\""},
        {GENERATE "generation_kwargs: {temperature: 1e7}\n",
         "temperature: expected a number from 0 to 1000000, got \"1e7\""},
        {GENERATE "generation_kwargs: {temperature: -1}\n",
         "temperature: expected a number from 0 to 1000000, got \"-1\""},
        {GENERATE "generation_kwargs: {top_p: high}\n", "top_p: expected a number"},
        {GENERATE "fewshot_config: {sampler: balanced}\n", "expected default or first_n"},
        {GENERATE "dataset_name: 3\n", "dataset_name: expected text, got \"3\"; put it in quotes"},
        {"include: task.yaml\n", "files include each other in a circle"},
        {"include: none.yaml\n", "none.yaml"},
        {CHOICE "num_fewshot: 3\nfewshot_split: train\n",
         "t: 3 few-shot examples are more than there are records for them (2)"},
        {CHOICE "num_fewshot: 1\nfewshot_split: other\n",
         "data_files: no files for the split \"other\""},
        {"task: t\n" DATA "doc_to_text: \"{{qq}}\"\ndoc_to_target: a\n", "rows.jsonl:1: "},
        {"task: t\n" DATA "doc_to_text: \"{{qq}}\"\ndoc_to_target: a\n",
         "task.yaml:5: doc_to_text:1: 'qq' is undefined"},
        {"task: t\n" DATA "output_type: multiple_choice\ndoc_to_text: q\ndoc_to_target: a\n"
         "doc_to_choice: \"{{q}}\"\n",
         "rows.jsonl:1: doc_to_choice: expected a list of texts, got q0"},
        {"task: t\ndataset_path: json\ndataset_kwargs: {data_files: {test: none.jsonl}}\n"
         "test_split: test\ndoc_to_text: q\ndoc_to_target: a\n",
         "task.yaml:3:37: test: none.jsonl is neither in the current folder nor beside"},
        {"task: t\ndataset_path: json\ntest_split: test\ndoc_to_text: q\ndoc_to_target: a\n",
         "dataset_path: json needs dataset_kwargs: {data_files"},
    };
    put_rows("rows.jsonl", 2);
    put_rows("train.jsonl", 2);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refused(wrong[i][0], wrong[i][1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drawn_examples), cmocka_unit_test(own_split), cmocka_unit_test(pieces),
        cmocka_unit_test(includes),       cmocka_unit_test(csv),       cmocka_unit_test(mistakes),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}

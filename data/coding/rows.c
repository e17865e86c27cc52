/* Tasks as a whole, and as records. */
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "data/coding/spec.h"

#define MAX_TRIES  10000 /* far more than it takes to draw one that makes sense */
#define TEST_SHARE 8

/* ---- tasks ---- */

static void draw_task(struct ax_coding_task *t, struct ax_coding_draw *d, int min_level,
                      int max_level) {
    static const enum ax_coding_type types[] = {AX_CODING_INT, AX_CODING_LIST, AX_CODING_TEXT};
    const int level = min_level + (int)ax_coding_below(d, max_level - min_level + 1);
    const enum ax_coding_type type = types[ax_coding_below(d, 3)];
    int tries = 0;
    do {
        AX_ASSERT(++tries < MAX_TRIES);
        ax_coding_draw_spec(d, type, level, &t->spec);
    } while (!ax_coding_draw_tests(d, &t->spec, t->test, &t->n_tests));
    ax_coding_draw_names(d, &t->spec, &t->names);
    ax_coding_put_solution(&t->solution, &t->spec, &t->names);
    ax_coding_put_question(&t->question, d, &t->spec, &t->names,
                           ax_coding_below(d, 2) ? &t->test[t->n_tests] : NULL);
}

enum ax_status ax_coding_make(struct ax_coding_task **out, uint64_t seed, uint64_t index,
                              int min_level, int max_level) {
    struct ax_coding_draw d = {.key = {seed, (uint32_t)(index >> 32), (uint32_t)index}};
    AX_TRY(ax_alloc(out, 1, sizeof **out));
    draw_task(*out, &d, min_level, max_level);
    return AX_OK;
}

void ax_coding_free(struct ax_coding_task *t) {
    ax_free(t);
}

const char *ax_coding_question(const struct ax_coding_task *t) {
    return t->question.s;
}

/* By the solution in names that are always the same. */
bool ax_coding_is_test(const struct ax_coding_task *t) {
    static const struct ax_coding_names names = {"f", {"a", "b", "c"}};
    struct ax_coding_text text = {.n = 0};
    ax_coding_put_solution(&text, &t->spec, &names);
    return ax_hash64(text.s, text.n, 0) % TEST_SHARE == 0;
}

/* ---- records ---- */

static json_t *json_of(const struct ax_coding_value *v) {
    if (v->type == AX_CODING_INT)
        return json_integer(v->i);
    if (v->type == AX_CODING_BOOL)
        return json_boolean(v->i);
    if (v->type == AX_CODING_TEXT)
        return json_string(v->text);
    json_t *list = json_array();
    for (size_t i = 0; i < v->n && list; i++)
        if (json_array_append_new(list, json_integer(v->items[i])) != 0) {
            json_decref(list);
            list = NULL;
        }
    return list;
}

static json_t *json_of_test(const struct ax_coding_test *test, int n_args) {
    json_t *args = json_array();
    bool ok = args != NULL;
    for (int i = 0; i < n_args; i++)
        ok = ok && json_array_append_new(args, json_of(&test->args[i])) == 0;
    if (ok)
        return json_pack("{soso}", "args", args, "result", json_of(&test->result));
    json_decref(args);
    return NULL;
}

enum ax_status ax_coding_row(const struct ax_coding_task *t, json_t **out) {
    struct ax_coding_text answer = {.n = 0};
    json_t *tests = json_array();
    bool ok = tests != NULL;
    for (int i = 0; i < t->n_tests; i++)
        ok = ok && json_array_append_new(tests, json_of_test(&t->test[i], t->spec.n_args)) == 0;
    ax_coding_put(&answer, "```python\n%s```", t->solution.s);
    *out = ok ? json_pack("{s[{ssss}{ssss}]sisssO}", "messages", "role", "user", "content",
                          t->question.s, "role", "assistant", "content", answer.s, "level",
                          t->spec.level, "entry_point", t->names.function, "tests", tests)
              : NULL;
    json_decref(tests);
    return *out ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for a task");
}

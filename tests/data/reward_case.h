/* Rewards for tests: opened by their names, and items made of a completion and a record as JSON.
 * Include after cmocka.h and tests/data/scratch.h. */
#ifndef AX_TESTS_DATA_REWARD_CASE_H
#define AX_TESTS_DATA_REWARD_CASE_H

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/text/json.h"
#include "data/reward/rewards.h"

#define MAX_ITEMS 24

struct reward_items {
    struct ax_reward_item item[MAX_ITEMS];
    int32_t ids[8192]; /* of each: the same */
    size_t n;
};

static inline json_t *json_of(const char *text) {
    json_error_t e;
    json_t *v = json_loads(text, JSON_DECODE_ANY, &e);
    if (!v)
        fail_msg("%s in %s", e.text, text);
    return v;
}

static inline void add_item(struct reward_items *items, const char *completion,
                            const char *record) {
    assert_true(items->n < MAX_ITEMS);
    items->item[items->n++] = (struct ax_reward_item){.record = json_of(record),
                                                      .prompt = "rendered",
                                                      .completion = completion,
                                                      .n = strlen(completion),
                                                      .ids = items->ids,
                                                      .n_ids = 3};
}

static inline void free_items(struct reward_items *items) {
    for (size_t i = 0; i < items->n; i++)
        json_decref((json_t *)(uintptr_t)items->item[i].record);
    items->n = 0;
}

/* A scratch folder with mine.py is the current one, as of the children. */
static char start_folder[PATH_MAX];
static inline int enter_scratch(void **state, const char *mine) {
    const char *bin = getenv("AX_TEST_BIN"); /* may be relative */
    char program[PATH_MAX];
    if (scratch_make(state) != 0 || !getcwd(start_folder, sizeof start_folder) || !bin ||
        !realpath(bin, program) || setenv("AX_TEST_BIN", program, 1) != 0 || chdir(scratch) != 0)
        return -1;
    (void)put_text("mine.py", mine);
    return 0;
}
static inline int leave_scratch(void **state) {
    return chdir(start_folder) == 0 ? scratch_remove(state) : -1;
}

static inline enum ax_status open_named(struct ax_rewards **r, const char *name,
                                        struct ax_rewards_options o) {
    const struct ax_reward_function function = {.name = name, .weight = 1};
    o.functions = &function;
    o.program = o.program ? o.program : getenv("AX_TEST_BIN");
    o.n = 1;
    *r = NULL;
    return ax_rewards_open(r, &o);
}

/* The reward of one completion by a function without a child. */
static inline double reward_of(const char *name, const char *completion, const char *record) {
    static struct reward_items items;
    struct ax_rewards *r;
    double out = -7;
    add_item(&items, completion, record);
    assert_ok(open_named(&r, name, (struct ax_rewards_options){0}));
    assert_ok(ax_rewards_score(r, 1, items.item, &out));
    ax_rewards_close(r);
    free_items(&items);
    return out;
}

#endif

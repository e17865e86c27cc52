/* What tests/peers/check_human_eval.py drives: the reward "code" of each line of JSON on stdin.
 *
 *   score_code AXTRAIN    {"completion": S, "tests": …, "entry_point": S} → a number or null, one a line */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/json.h"
#include "data/reward/rewards.h"

static int score(struct ax_rewards *r, const json_t *record) {
    const json_t *completion = json_object_get(record, "completion");
    const struct ax_reward_item item = {.completion = json_string_value(completion),
                                        .n = json_string_length(completion),
                                        .record = record};
    double out;
    if (ax_rewards_score(r, 1, &item, &out) != AX_OK) {
        fprintf(stderr, "score_code: %s\n", ax_error_text());
        return 1;
    }
    if (isnan(out))
        puts("null");
    else
        printf("%g\n", out);
    return 0;
}

int main(int argc, char **argv) {
    static const struct ax_reward_function code = {.name = "code", .weight = 1};
    const struct ax_rewards_options o = {.functions = &code,
                                         .n = 1,
                                         .sandbox_cache = "build/cache/axtrain/sandbox",
                                         .program = argc > 1 ? argv[1] : NULL,
                                         .threads = 1};
    struct ax_rewards *r;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int bad = 0;
    if (argc != 2 || ax_rewards_open(&r, &o) != AX_OK) {
        fprintf(stderr, "score_code: %s\n", argc == 2 ? ax_error_text() : "score_code AXTRAIN");
        return 2;
    }
    while (!bad && (n = getline(&line, &cap, stdin)) > 0) {
        json_t *record = json_loadb(line, (size_t)n, 0, NULL);
        bad = record ? score(r, record) : 2;
        json_decref(record);
    }
    free(line);
    ax_rewards_close(r);
    return bad;
}

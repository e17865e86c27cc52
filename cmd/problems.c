/* `axtrain problems`: records of generated word problems, or of programming tasks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/io.h"
#include "cmd/args/args.h"
#include "cmd/commands.h"
#include "data/records/problems/coding.h"
#include "data/records/problems/problems.h"
#include "data/tools/tools.h"

struct job {
    int64_t rows, seed, min_level, max_level, max_number, scale; /* max_number 0: any */
    const char *split, *out;
    bool test, pairs, steps, code, tool;
    json_t *python; /* definition of the tool */
    /* hashes of the questions so far, open addressing; 0 = free */
    uint64_t *seen;
    size_t cap;
};

/* Adds a question; true if it is a duplicate. */
static bool is_old(struct job *j, const char *question) {
    const uint64_t hash = ax_hash64(question, strlen(question), 1) | 1;
    for (size_t i = (size_t)hash & (j->cap - 1);; i = (i + 1) & (j->cap - 1)) {
        if (j->seen[i] == hash)
            return true;
        if (j->seen[i] == 0) {
            j->seen[i] = hash;
            return false;
        }
    }
}

/* A wrong solution must be as small as a right one, or its size would give it away. */
static bool is_small(const struct job *j, const struct ax_problem *p) {
    return j->max_number == 0 || ax_problem_largest_number(p) <= j->max_number;
}

/* The records of word problem `index`, at most `room`: a conversation, a pair, or solutions with
 * labeled steps, a right one and then a wrong one. They are neighbors so that a batch can have both,
 * which differ in nothing but the mistake. *n: how many. */
static enum ax_status try_problem(struct job *j, uint64_t index, int64_t room, struct ax_buf *out,
                                  int64_t *n) {
    const struct ax_problem_kind kind = {(int)j->min_level, (int)j->max_level, j->scale};
    const bool has_wrong = j->pairs || (j->steps && room > 1);
    struct ax_problem right, wrong;
    int mistake;
    *n = 0;
    ax_problem_make(&right, (uint64_t)j->seed, index, kind, NULL);
    if (ax_problem_is_test(right.question.s) != j->test || !is_small(j, &right) ||
        is_old(j, right.question.s))
        return AX_OK;
    if (has_wrong)
        ax_problem_make(&wrong, (uint64_t)j->seed, index, kind, &mistake);
    if (has_wrong && !is_small(j, &wrong))
        return AX_OK;
    *n = j->steps && has_wrong ? 2 : 1;
    if (!j->steps)
        return ax_problem_put_row(out, j->pairs  ? ax_problem_pair_row(&right, &wrong)
                                       : j->tool ? ax_problem_tool_row(&right, j->python)
                                                 : ax_problem_row(&right));
    AX_TRY(ax_problem_put_row(out, ax_problem_steps_row(&right, right.level + 1)));
    return has_wrong ? ax_problem_put_row(out, ax_problem_steps_row(&wrong, mistake)) : AX_OK;
}

/* The same of programming task `index`. */
static enum ax_status try_task(struct job *j, uint64_t index, int64_t room, struct ax_buf *out,
                               int64_t *n) {
    struct ax_coding_task t;
    (void)room;
    ax_coding_make(&t, (uint64_t)j->seed, index, (int)j->min_level, (int)j->max_level);
    *n = ax_coding_is_test(&t) == j->test && !is_old(j, t.question.s);
    return *n > 0 ? ax_problem_put_row(out, ax_coding_row(&t)) : AX_OK;
}

/* Problems 0, 1, 2, … of the seed that belong to the split, without duplicates. */
static enum ax_status generate(struct job *j, struct ax_buf *out) {
    int64_t rows = 0;
    const uint64_t most = 1000 * (uint64_t)j->rows + 100000;
    for (uint64_t i = 0; rows < j->rows; i++) {
        int64_t n;
        if (i == most)
            return ax_error(
                AX_ERR_CONFIG,
                "problems: there are only about %lld different problems at these levels%s; "
                "ask for fewer --rows",
                (long long)rows, j->max_number > 0 ? " with numbers this small" : "");
        AX_TRY((j->code ? try_task : try_problem)(j, i, j->rows - rows, out, &n));
        rows += n;
    }
    return AX_OK;
}

static enum ax_status check_levels(struct job *j) {
    const int most = j->code ? AX_CODING_LEVELS : AX_PROBLEM_LEVELS;
    if (j->max_level == 0)
        j->max_level = most;
    if (j->max_level > most || j->min_level > most)
        return ax_error(AX_ERR_CONFIG, "--code: expected levels from 1 to %d, got %lld", most,
                        (long long)(j->max_level > most ? j->max_level : j->min_level));
    if (j->min_level > j->max_level)
        return ax_error(AX_ERR_CONFIG, "--min-level %lld is above --max-level %lld",
                        (long long)j->min_level, (long long)j->max_level);
    return AX_OK;
}

static enum ax_status check(struct job *j) {
    int which;
    AX_TRY(ax_args_word("--split", AX_WORDS_SPLIT, j->split, &which));
    j->test = which == 1;
    if (j->pairs + j->steps + j->tool > 1)
        return ax_error(AX_ERR_CONFIG, "use one of --pairs, --steps and --tool");
    if (j->code && (j->pairs || j->steps || j->tool || j->scale > 1 || j->max_number > 0))
        return ax_error(AX_ERR_CONFIG, "--code: use it without --pairs, --steps, --tool, --scale "
                                       "and --max-number");
    AX_TRY(check_levels(j));
    for (j->cap = 16; j->cap < 2 * (size_t)j->rows;)
        j->cap *= 2;
    return AX_OK;
}

enum ax_status ax_cmd_problems(int argc, char **argv) {
    struct job j = {.rows = 1000, .seed = 1, .min_level = 1, .scale = 1, .split = "train"};
    const struct ax_arg args[] = {
        {"--rows", AX_ARG_INT, &j.rows, 1, 1000000},
        {"--seed", AX_ARG_INT, &j.seed, 0, INT64_MAX},
        {"--split", AX_ARG_STRING, &j.split, 0, 0},
        {"--min-level", AX_ARG_INT, &j.min_level, 1, AX_PROBLEM_LEVELS},
        {"--max-level", AX_ARG_INT, &j.max_level, 1, AX_PROBLEM_LEVELS},
        {"--max-number", AX_ARG_INT, &j.max_number, 1, 1000000},
        {"--scale", AX_ARG_INT, &j.scale, 1, 100},
        {"--pairs", AX_ARG_FLAG, &j.pairs, 0, 0},
        {"--steps", AX_ARG_FLAG, &j.steps, 0, 0},
        {"--tool", AX_ARG_FLAG, &j.tool, 0, 0},
        {"--code", AX_ARG_FLAG, &j.code, 0, 0},
        {"-o", AX_ARG_STRING, &j.out, 0, 0},
    };
    struct ax_buf text = {0};
    int n;
    AX_TRY(ax_args_parse(argc, argv, sizeof args / sizeof *args, args, 0, 0, NULL, &n));
    AX_TRY(check(&j));
    AX_TRY(ax_alloc(&j.seen, j.cap, sizeof *j.seen));
    j.python = ax_tools_python(false);
    enum ax_status st = generate(&j, &text);
    if (st == AX_OK)
        st = ax_write_result(j.out, text.data, text.len);
    ax_buf_free(&text);
    json_decref(j.python);
    ax_free(j.seen);
    return st;
}

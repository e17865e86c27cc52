/* Problems as records. */
#include "data/problems/problems.h"

const char ax_problem_instruction[] =
    "Think step by step and end with the answer as a number behind \"####\".";

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for a problem");
}

static enum ax_status put_question(const struct ax_problem *p, struct ax_buf *out) {
    return ax_buf_printf(out, "%s %s", p->question, ax_problem_instruction);
}

/* Line i of the solution: its steps, then the answer. */
static enum ax_status put_line(const struct ax_problem *p, int i, struct ax_buf *out) {
    return i < p->n_steps ? ax_buf_puts(out, p->steps[i])
                          : ax_buf_printf(out, "#### %lld", (long long)p->answer);
}

static enum ax_status put_solution(const struct ax_problem *p, struct ax_buf *out) {
    for (int i = 0; i <= p->n_steps; i++) {
        AX_TRY(put_line(p, i, out));
        if (i < p->n_steps)
            AX_TRY(ax_buf_puts(out, "\n"));
    }
    return AX_OK;
}

enum ax_status ax_problem_row(const struct ax_problem *p, json_t **out) {
    struct ax_buf question = {0}, answer = {0};
    enum ax_status st;
    AX_TRY_GOTO(put_question(p, &question), st, done);
    AX_TRY_GOTO(put_solution(p, &answer), st, done);
    *out = json_pack("{s[{ssss}{ssss}]sisI}", "messages", "role", "user", "content", question.data,
                     "role", "assistant", "content", answer.data, "level", p->level, "final_answer",
                     (json_int_t)p->answer);
    st = *out ? AX_OK : no_memory();
done:
    ax_buf_free(&question);
    ax_buf_free(&answer);
    return st;
}

enum ax_status ax_problem_pair_row(const struct ax_problem *right, const struct ax_problem *wrong,
                                   json_t **out) {
    struct ax_buf question = {0}, chosen = {0}, rejected = {0};
    enum ax_status st;
    AX_TRY_GOTO(put_question(right, &question), st, done);
    AX_TRY_GOTO(put_solution(right, &chosen), st, done);
    AX_TRY_GOTO(put_solution(wrong, &rejected), st, done);
    *out =
        json_pack("{s[{ssss}]s[{ssss}]s[{ssss}]si}", "prompt", "role", "user", "content",
                  question.data, "chosen", "role", "assistant", "content", chosen.data, "rejected",
                  "role", "assistant", "content", rejected.data, "level", right->level);
    st = *out ? AX_OK : no_memory();
done:
    ax_buf_free(&question);
    ax_buf_free(&chosen);
    ax_buf_free(&rejected);
    return st;
}

enum ax_status ax_problem_steps_row(const struct ax_problem *p, int first_wrong, json_t **out) {
    struct ax_buf text = {0};
    json_t *lines = json_array(), *labels = json_array();
    bool ok = lines && labels;
    enum ax_status st = AX_OK;
    for (int i = 0; i <= p->n_steps && ok && st == AX_OK; i++) {
        text.len = 0;
        st = put_line(p, i, &text);
        ok = st != AX_OK || (json_array_append_new(lines, json_string(text.data)) == 0 &&
                             json_array_append_new(labels, json_boolean(i < first_wrong)) == 0);
    }
    text.len = 0;
    if (st == AX_OK)
        st = put_question(p, &text);
    if (st == AX_OK)
        *out = json_pack("{sssOsOsi}", "prompt", text.data, "completions", lines, "labels", labels,
                         "level", p->level);
    if (st == AX_OK && (!ok || !*out))
        st = no_memory();
    json_decref(lines);
    json_decref(labels);
    ax_buf_free(&text);
    return st;
}

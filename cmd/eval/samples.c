#include "cmd/eval/samples.h"

#include <string.h>

#include "base/io.h"
#include "cmd/eval/eval.h"
#include "optim/evaluate/score/steps.h"
#include "data/records/format/format.h"
#include "data/records/rows/rows.h"

/* ---- prompts ---- */

/* {messages}: those before the last answer; {prompt}: a text or messages. NULL: neither. */
static json_t *prompt_of(const json_t *record) {
    json_t *messages = json_object_get(record, "messages");
    size_t n = json_array_size(messages);
    if (n == 0)
        return json_incref(json_object_get(record, "prompt"));
    while (n > 0) {
        const json_t *role = json_object_get(json_array_get(messages, --n), "role");
        if (json_is_string(role) && strcmp(json_string_value(role), "assistant") == 0)
            break;
    }
    json_t *before = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append(before, json_array_get(messages, i));
    return before;
}

static const char *wanted_by(const struct ax_eval *e) {
    return e->log_steps ? "--log-steps" : "--best-of";
}

static enum ax_status read_prompt(const struct ax_eval *e, const json_t *record, json_t **out) {
    json_t *prompt = prompt_of(record);
    enum ax_status st;
    if (json_is_string(prompt) || json_array_size(prompt) > 0)
        st = e->log_steps
                 ? ax_steps_prompt(prompt, out)
                 : ax_best_of_prompt(&e->best.of, prompt, json_object_get(record, "tools"), out);
    else
        st = ax_error(AX_ERR_DATA,
                      "%s needs records with messages, or with a prompt, which the scorer reads",
                      wanted_by(e));
    json_decref(prompt);
    return st;
}

/* The record of a question, which must still be where it was when it became one. */
static enum ax_status find_record(const struct ax_eval *e, struct ax_rows *rows, size_t i,
                                  struct ax_raw_row *raw) {
    const struct ax_examples *set = &e->q.corpus->sets[e->q.list[i].ref.set];
    const struct ax_stored *x = &set->list[e->q.list[i].ref.index];
    bool got;
    AX_TRY(ax_rows_seek(rows, x->record));
    AX_TRY(ax_rows_next(rows, raw, &got));
    const bool same = got && raw->line == x->line &&
                      strcmp(ax_rows_file(rows, raw->file), set->files[x->file]) == 0;
    return same ? AX_OK
                : ax_error(AX_ERR_DATA,
                           "%s: %s reads the records again, but record %zu is not found; "
                           "give one file",
                           e->data, wanted_by(e), i);
}

static enum ax_status read_record(struct ax_eval *e, struct ax_rows *rows, size_t i) {
    struct ax_raw_row raw;
    json_t *record;
    AX_TRY(find_record(e, rows, i, &raw));
    AX_TRY(ax_rows_parse(rows, &raw, &record));
    const enum ax_status st = read_prompt(e, record, &e->prompts[i]);
    json_decref(record);
    return st == AX_ERR_DATA ? ax_error_prefix(st, "%s:%llu", ax_rows_file(rows, raw.file),
                                               (unsigned long long)raw.line)
                             : st;
}

enum ax_status ax_eval_samples_open(struct ax_eval *e) {
    const struct ax_rows_options o = {.path = e->data};
    const size_t n = (size_t)e->pass_options.samples;
    struct ax_rows *rows = NULL;
    enum ax_status st;
    if (e->best.args.n == 0 && !e->log_steps)
        return AX_OK;
    AX_TRY(ax_alloc(&e->prompts, e->q.n, sizeof(json_t *)));
    AX_TRY_GOTO(ax_rows_open(&rows, &o), st, done);
    for (size_t i = 0; i < e->q.n; i++) {
        struct ax_answer *a = &e->q.list[i].answer;
        if (!a->want[0])
            continue;
        AX_TRY_GOTO(read_record(e, rows, i), st, done);
        AX_TRY_GOTO(ax_alloc(&a->samples, n, sizeof *a->samples), st, done);
    }
    st = AX_OK;
done:
    ax_rows_close(rows);
    return st;
}

void ax_eval_samples_close(struct ax_eval *e) {
    for (size_t i = 0; e->q.list && i < e->q.n; i++) {
        struct ax_answer_sample *samples = e->q.list[i].answer.samples;
        for (int64_t k = 0; samples && k < e->pass_options.samples; k++)
            ax_free(samples[k].text);
        ax_free(samples);
        json_decref(e->prompts ? e->prompts[i] : NULL);
    }
    ax_free(e->prompts);
}

/* ---- labeled steps ---- */

static enum ax_status put_steps(json_t *prompt, const char *text, size_t len, bool right,
                                struct ax_buf *out) {
    json_t *steps = NULL;
    AX_TRY(ax_steps_split(text, len, "\n", &steps));
    json_t *labels = json_array();
    for (size_t i = 0; i < json_array_size(steps); i++)
        json_array_append_new(labels, json_boolean(right));
    return ax_eval_put_json(
        out, json_pack("{sO so so}", "prompt", prompt, "completions", steps, "labels", labels),
        JSON_COMPACT);
}

/* Whether an earlier sample has the text, or it is no answer. */
static bool is_old(const struct ax_answer_sample *s, int64_t k) {
    for (int64_t i = 0; i < k; i++)
        if (s[i].right == s[k].right && s[i].len == s[k].len &&
            memcmp(s[i].text, s[k].text, s[k].len) == 0)
            return true;
    return ax_text_is_blank(s[k].text, s[k].len);
}

/* The first new right answer from *at on, and *at after it; after the last one, the data's own. */
static enum ax_status put_right(const struct ax_eval *e, size_t i, const struct ax_buf *own,
                                int64_t *at, struct ax_buf *out) {
    const struct ax_answer_sample *s = e->q.list[i].answer.samples;
    while (*at < e->pass_options.samples && (!s[*at].right || is_old(s, *at)))
        ++*at;
    if (*at == e->pass_options.samples) {
        *at = 0;
        return put_steps(e->prompts[i], own->data, own->len, true, out);
    }
    ++*at;
    return put_steps(e->prompts[i], s[*at - 1].text, s[*at - 1].len, true, out);
}

static enum ax_status put_question(const struct ax_eval *e, size_t i, const struct ax_buf *own,
                                   struct ax_buf *out) {
    const struct ax_answer_sample *s = e->q.list[i].answer.samples;
    int64_t at = e->pass_options.samples; /* begin with the data's own */
    for (int64_t k = 0; k < e->pass_options.samples; k++) {
        if (s[k].right || is_old(s, k))
            continue;
        AX_TRY(put_right(e, i, own, &at, out));
        AX_TRY(put_steps(e->prompts[i], s[k].text, s[k].len, false, out));
    }
    return AX_OK;
}

static enum ax_status put_all(const struct ax_eval *e, int32_t *ids, struct ax_buf *out) {
    enum ax_status st = AX_OK;
    for (size_t i = 0; i < e->q.n && st == AX_OK; i++) {
        const struct ax_answer *a = &e->q.list[i].answer;
        struct ax_buf own = {0};
        if (!e->prompts[i])
            continue;
        ax_questions_tokens(&e->q, &e->q.list[i], a->prompt, a->end, ids);
        st = ax_tokenizer_decode(e->setup.tok.tokenizer, ids, a->end - a->prompt, true, &own);
        if (st == AX_OK)
            st = put_question(e, i, &own, out);
        ax_buf_free(&own);
    }
    return st;
}

enum ax_status ax_eval_samples_write(const struct ax_eval *e) {
    struct ax_buf text = {0};
    int32_t *ids;
    if (!e->log_steps || !ax_ranks_lead(&e->ranks))
        return AX_OK;
    AX_TRY(ax_alloc(&ids, (size_t)e->q.longest, sizeof *ids));
    enum ax_status st = put_all(e, ids, &text);
    if (st == AX_OK)
        st = ax_write_file_atomic(e->log_steps, text.data ? text.data : "", text.len);
    ax_free(ids);
    ax_buf_free(&text);
    return st;
}

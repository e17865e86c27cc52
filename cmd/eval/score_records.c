/* Records → examples whose labeled tokens are scored. */
#include <math.h>
#include <string.h>

#include "cmd/eval/score.h"

/* Steps may be labeled with probabilities. */
static const struct ax_columns step_columns = {.list = {{"target", true, AX_OF_LABEL}}, .n = 1};
static const struct ax_name_map properties[] = {{"role", "role"}, {"content", "content"}};

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for a record");
}

/* ---- what a format reads ---- */

/* {messages} and {text} as a prompt and its answer. */
static enum ax_status prompt_of(json_t *record) {
    json_t *messages = json_object_get(record, "messages"), *text = json_object_get(record, "text");
    const size_t n = json_array_size(messages);
    bool ok = true;
    if (n > 0) {
        json_t *answer = json_pack("[O]", json_array_get(messages, n - 1)), *before = json_array();
        for (size_t i = 0; i + 1 < n; i++)
            ok = ok && json_array_append(before, json_array_get(messages, i)) == 0;
        ok = json_object_set_new(record, "prompt", before) == 0 && ok;
        ok = json_object_set_new(record, "completion", answer) == 0 && ok;
    } else if (text) {
        ok = json_object_set_new(record, "prompt", json_string("")) == 0 &&
             json_object_set(record, "completion", text) == 0;
    }
    return ok ? AX_OK : no_memory();
}

static enum ax_status answers(struct ax_score *s, struct ax_score_row *row, json_t *record) {
    (void)s;
    (void)row;
    if (!json_object_get(record, "completion") && !json_object_get(record, "chosen"))
        AX_TRY(prompt_of(record));
    return json_object_set_new(record, "label", json_true()) == 0 ? AX_OK : no_memory();
}

/* Notes the labels; steps without any are taken as right, which only marks their tokens. */
static enum ax_status steps(struct ax_score *s, struct ax_score_row *row, json_t *record) {
    json_t *labels = json_object_get(record, "labels");
    const size_t n = json_array_size(json_object_get(record, "completions"));
    row->first_label = s->n_labels;
    if (json_is_array(labels)) {
        row->n_labels = json_array_size(labels);
        if (s->n_labels + row->n_labels > s->cap_labels) {
            const size_t cap = 2 * (s->n_labels + row->n_labels);
            AX_TRY(ax_regrow(&s->labels, s->cap_labels, cap, sizeof *s->labels));
            s->cap_labels = cap;
        }
        for (size_t i = 0; i < row->n_labels; i++) {
            const json_t *v = json_array_get(labels, i);
            s->labels[s->n_labels++] = json_is_number(v) ? json_number_value(v) : json_is_true(v);
        }
        return AX_OK;
    }
    labels = json_array();
    bool ok = labels != NULL;
    for (size_t i = 0; ok && i < n; i++)
        ok = json_array_append_new(labels, json_true()) == 0;
    return json_object_set_new(record, "labels", labels) == 0 && ok ? AX_OK : no_memory();
}

/* ---- records ---- */

/* The last tokens of answers; the examples of steps have their labels. */
static size_t mark_scored(struct ax_score *s, size_t first) {
    size_t n = 0;
    for (size_t i = first; i < s->list.n; i++) {
        const struct ax_example *x = &s->list.items[i];
        int32_t *labels = s->list.labels + (x->labels - s->list.labels);
        for (size_t t = 0; t < x->n && s->kind == &ax_classifier_reward; t++)
            labels[t] = t + 1 == x->n ? 0 : AX_NO_LABEL;
        for (size_t t = 0; t < x->n; t++)
            n += labels[t] >= 0;
    }
    return n;
}

static enum ax_status check_lengths(const struct ax_score *s, size_t first) {
    for (size_t i = first; i < s->list.n; i++)
        if ((int64_t)s->list.items[i].n > s->e->arch.max_positions)
            return ax_error(AX_ERR_DATA, "%zu tokens, but the model has %lld positions",
                            s->list.items[i].n, (long long)s->e->arch.max_positions);
    return AX_OK;
}

static enum ax_status add(struct ax_score *s, const struct ax_format *f, struct ax_format_work *w,
                          const struct ax_raw_row *raw, json_t *record) {
    struct ax_score_row row = {.file = raw->file, .line = raw->line, .first = s->n_scores};
    const struct ax_origin origin = {raw->file, raw->line, raw->index};
    const size_t first = s->list.n;
    AX_TRY((s->kind == &ax_classifier_prm ? steps : answers)(s, &row, record));
    AX_TRY(ax_format_record(f, w, record, origin, &s->list));
    AX_TRY(check_lengths(s, first));
    row.n = mark_scored(s, first);
    s->n_scores += row.n;
    if (s->n_rows == s->cap_rows) {
        const size_t cap = 2 * s->cap_rows + 64;
        AX_TRY(ax_regrow(&s->row, s->cap_rows, cap, sizeof *s->row));
        s->cap_rows = cap;
    }
    s->row[s->n_rows++] = row;
    return AX_OK;
}

static enum ax_status read_all(struct ax_score *s, const struct ax_format *f,
                               struct ax_format_work *w) {
    struct ax_raw_row raw;
    bool got = true;
    while (got && (s->e->max_rows == 0 || (int64_t)s->n_rows < s->e->max_rows)) {
        json_t *record;
        AX_TRY(ax_rows_next(s->rows, &raw, &got));
        if (!got)
            break;
        AX_TRY(ax_rows_parse(s->rows, &raw, &record));
        enum ax_status st = add(s, f, w, &raw, record);
        json_decref(record);
        if (st == AX_ERR_DATA)
            st = ax_error_prefix(st, "%s:%llu", ax_rows_file(s->rows, raw.file),
                                 (unsigned long long)raw.line);
        AX_TRY(st);
    }
    return s->n_rows > 0 ? AX_OK : ax_error(AX_ERR_DATA, "%s: no records to score", s->e->data);
}

enum ax_status ax_score_read(struct ax_score *s) {
    const struct ax_format_chat chat = {.template = s->side.template,
                                        .tokens = s->side.tokens,
                                        .field_messages = "messages",
                                        .field_tools = "tools",
                                        .properties = properties,
                                        .n_properties = 2};
    const struct ax_format_answers pairs = {.field_chosen = "chosen", .field_rejected = "rejected"};
    const struct ax_format_steps by_step = {.separator = s->separator};
    const bool prm = s->kind == &ax_classifier_prm;
    const struct ax_format_options o = {.task = prm ? AX_TASK_STEPS : AX_TASK_UNPAIRED,
                                        .tokenizer = s->side.tokenizer,
                                        .sequence_len = INT32_MAX,
                                        .pad = AX_NO_TOKEN,
                                        .chat = s->side.template ? &chat : NULL,
                                        .answers = &pairs,
                                        .steps = &by_step,
                                        .long_examples = AX_LONG_KEEP,
                                        .columns = prm ? &step_columns : NULL};
    const struct ax_rows_options ro = {.path = s->e->data};
    struct ax_format *f = NULL;
    struct ax_format_work w = {0};
    s->list.columns = o.columns;
    AX_TRY(ax_rows_open(&s->rows, &ro));
    enum ax_status st = ax_format_new(&f, &o);
    if (st == AX_OK)
        st = read_all(s, f, &w);
    ax_format_work_free(&w);
    ax_format_free(f);
    return st;
}

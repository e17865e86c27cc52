/* Records → examples whose labeled tokens are scored. */
#include "optim/evaluate/score/records.h"

/* Steps may be labeled with probabilities. */
static const struct ax_columns step_columns = {.list = {{"target", true, AX_OF_LABEL, 0}}, .n = 1};
static const struct ax_name_map properties[] = {{"role", "role"}, {"content", "content"}};

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for a record");
}

static bool by_step(const struct ax_score_set *s) {
    return s->scorer->kind == &ax_classifier_prm;
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

static enum ax_status answers(json_t *record) {
    if (!json_object_get(record, "completion") && !json_object_get(record, "chosen"))
        AX_TRY(prompt_of(record));
    return json_object_set_new(record, "label", json_true()) == 0 ? AX_OK : no_memory();
}

/* Notes the labels; steps without any are taken as right, which only marks their tokens. */
static enum ax_status steps(struct ax_score_set *s, struct ax_score_row *row, json_t *record) {
    json_t *labels = json_object_get(record, "labels");
    const size_t n = json_array_size(json_object_get(record, "completions"));
    if (json_is_array(labels)) {
        row->n_labels = json_array_size(labels);
        if (s->n_labels + row->n_labels > s->cap_labels) {
            const size_t cap = 2 * (s->n_labels + row->n_labels);
            AX_TRY(ax_regrow(&s->labels, s->cap_labels, cap, sizeof *s->labels));
            s->cap_labels = cap;
        }
        for (size_t i = 0; i < row->n_labels; i++) {
            const json_t *v = json_array_get(labels, i);
            s->labels[row->first_label + i] =
                json_is_number(v) ? json_number_value(v) : json_is_true(v);
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

/* The tokens at which answers have their scores; the examples of steps have their labels. */
static size_t mark_scored(struct ax_score_set *s, size_t first) {
    size_t n = 0;
    for (size_t i = first; i < s->list.n; i++) {
        const struct ax_example *x = &s->list.items[i];
        int32_t *labels = s->list.labels + (x->labels - s->list.labels);
        const size_t at = ax_score_position(x->tokens, x->n, s->scorer->arch.score_pad);
        for (size_t t = 0; t < x->n && !by_step(s); t++)
            labels[t] = t == at ? 0 : AX_NO_LABEL;
        for (size_t t = 0; t < x->n; t++)
            n += labels[t] >= 0;
    }
    return n;
}

/* Tokens of the first example from `first` on that is too long; 0: none. */
static size_t find_long(const struct ax_score_set *s, size_t first) {
    for (size_t i = first; i < s->list.n; i++)
        if ((int64_t)s->list.items[i].n > s->scorer->max_len)
            return s->list.items[i].n;
    return 0;
}

static enum ax_status put_row(struct ax_score_set *s, const struct ax_score_row *row) {
    AX_TRY(ax_grow(&s->rows, s->n_rows, &s->cap_rows, sizeof *s->rows));
    s->rows[s->n_rows++] = *row;
    s->n_scores += row->n;
    s->n_labels += row->n_labels;
    return AX_OK;
}

enum ax_status ax_score_set_add(struct ax_score_set *s, json_t *record, struct ax_origin origin,
                                size_t *too_long) {
    struct ax_score_row row = {.origin = origin, .first = s->n_scores, .first_label = s->n_labels};
    const size_t first = s->list.n;
    AX_TRY(by_step(s) ? steps(s, &row, record) : answers(record));
    AX_TRY(ax_format_record(s->format, &s->work, record, origin, &s->list));
    ax_oddities_count(s->lost, s->work.oddities & AX_ODD_LOST, &origin);
    const size_t n = find_long(s, first);
    if (too_long)
        *too_long = n;
    if (n > 0) {
        ax_example_list_cut(&s->list, first);
        return too_long ? AX_OK
                        : ax_error(AX_ERR_DATA, "%zu tokens, but the model has %lld positions", n,
                                   (long long)s->scorer->max_len);
    }
    row.n = mark_scored(s, first);
    return put_row(s, &row);
}

/* ---- the set ---- */

enum ax_status ax_score_set_open(struct ax_score_set *s, struct ax_text_scorer *scorer) {
    const struct ax_text_side *side = &scorer->side;
    *s = (struct ax_score_set){
        .scorer = scorer,
        .chat = {.template = side->template,
                 .tool_use = side->tool_use,
                 .tokens = side->tokens,
                 .field_messages = "messages",
                 .field_tools = "tools",
                 .properties = properties,
                 .n_properties = 2},
        .answers = {.field_chosen = "chosen", .field_rejected = "rejected"},
        .by_step = {.separator = scorer->separator},
    };
    const struct ax_format_options o = {.task = by_step(s) ? AX_TASK_STEPS : AX_TASK_UNPAIRED,
                                        .tokenizer = side->tokenizer,
                                        .sequence_len = INT32_MAX,
                                        .pad = AX_NO_TOKEN,
                                        .chat = side->template ? &s->chat : NULL,
                                        .answers = &s->answers,
                                        .steps = &s->by_step,
                                        .long_examples = AX_LONG_KEEP,
                                        .columns = by_step(s) ? &step_columns : NULL};
    s->list.columns = o.columns;
    return ax_format_new(&s->format, &o);
}

enum ax_status ax_score_set_run(struct ax_score_set *s) {
    AX_TRY(ax_alloc(&s->scores, s->n_scores, sizeof *s->scores));
    return ax_text_scorer_run(s->scorer, &s->list, s->n_scores, s->scores);
}

void ax_score_set_close(struct ax_score_set *s) {
    ax_format_work_free(&s->work);
    ax_format_free(s->format);
    ax_example_list_free(&s->list);
    ax_free(s->rows);
    ax_free(s->labels);
    ax_free(s->scores);
    *s = (struct ax_score_set){0};
}

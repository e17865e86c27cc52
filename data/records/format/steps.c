/* Solutions whose steps are right or wrong: prompt, completions, labels. Each piece of text is
 * tokenized alone; a step is labeled on the last token of its separator. */
#include <math.h>
#include <string.h>

#include "data/records/format/impl.h"
#include "data/records/format/recognize.h"

static enum ax_status steps_init(struct ax_format *f) {
    const char *type = f->o.type;
    if (type && strcmp(type, "stepwise_supervised") != 0)
        return ax_error(AX_ERR_CONFIG,
                        "type \"%s\" has no labeled steps; expected stepwise_supervised, or no "
                        "`type`, with the columns prompt, completions, labels",
                        type);
    return AX_OK;
}

/* ---- columns ---- */

static enum ax_status list_column(const struct ax_format *f, json_t *record, const char *column,
                                  const json_t **out) {
    *out = json_object_get(record, column);
    if (!*out)
        return ax_record_error_hint(ax_record_bad_text(record, column, NULL), &f->o, record);
    return json_is_array(*out)
               ? AX_OK
               : ax_error(AX_ERR_DATA, "%s: expected a list, got %s", column, ax_json_kind(*out));
}

/* The probability that a step is right: true and false, 1 and 0, or between. */
static enum ax_status read_label(const struct ax_format *f, const json_t *labels, size_t i,
                                 double *out) {
    const json_t *v = json_array_get(labels, i);
    *out = json_is_number(v) ? json_number_value(v) : json_is_true(v);
    if (!json_is_boolean(v) && !json_is_number(v))
        return ax_error(AX_ERR_DATA,
                        "labels[%zu]: expected true, false, or a number from 0 to 1, "
                        "got %s",
                        i, ax_json_kind(v));
    if (!(*out >= 0 && *out <= 1))
        return ax_error(AX_ERR_DATA, "labels[%zu]: expected a number from 0 to 1, got %g", i, *out);
    if (*out > 0 && *out < 1 && ax_format_find_column(f, "target") < 0)
        return ax_error(AX_ERR_DATA,
                        "labels[%zu]: %g is a probability, but this method takes only "
                        "0 and 1",
                        i, *out);
    return AX_OK;
}

static enum ax_status check_steps(const struct ax_format *f, const json_t *steps,
                                  const json_t *labels) {
    const size_t n = json_array_size(steps);
    double label;
    if (n == 0)
        return ax_error(AX_ERR_EMPTY, "completions: the list of steps is empty");
    if (json_array_size(labels) != n)
        return ax_error(AX_ERR_DATA, "completions has %zu steps, but labels has %zu elements", n,
                        json_array_size(labels));
    for (size_t i = 0; i < n; i++) {
        const json_t *step = json_array_get(steps, i);
        if (!json_is_string(step))
            return ax_error(AX_ERR_DATA, "completions[%zu]: expected text, got %s", i,
                            ax_json_kind(step));
        if (ax_text_is_blank(json_string_value(step), json_string_length(step)))
            return ax_error(AX_ERR_EMPTY, "completions[%zu]: the step is empty", i);
        AX_TRY(read_label(f, labels, i, &label));
    }
    return AX_OK;
}

/* ---- tokens ---- */

/* The open example with the tokens that it and its answer may still take. */
struct solution {
    const struct ax_format *f;
    struct ax_format_work *w;
    struct ax_example_list *out;
    size_t left, answer_left;
};

/* Appends a text's tokens. *all = none of them is missing, and there is one. */
static enum ax_status put(struct solution *s, struct ax_text text, bool answer, bool *all) {
    AX_TRY(ax_format_encode(s->f, text, false, &s->w->full));
    size_t n = s->w->full.n;
    n = n < s->left ? n : s->left;
    n = answer && n > s->answer_left ? s->answer_left : n;
    s->left -= n;
    s->answer_left -= answer ? n : 0;
    *all = n > 0 && n == s->w->full.n;
    return ax_example_list_add(s->out, s->w->full.ids, NULL, n, false);
}

static enum ax_status put_step(struct solution *s, const json_t *step, bool labeled, double label) {
    const struct ax_text separator = {s->f->o.steps->separator, strlen(s->f->o.steps->separator)};
    bool all;
    AX_TRY(put(s, (struct ax_text){json_string_value(step), json_string_length(step)}, true, &all));
    if (separator.n > 0)
        AX_TRY(put(s, separator, true, &all));
    if (all && labeled)
        s->out->labels[s->out->n_tokens - 1] = label >= 0.5;
    return AX_OK;
}

/* The targets of the labeled tokens, which are the steps in order. */
static enum ax_status set_targets(const struct ax_format *f, struct ax_example_list *out,
                                  const json_t *labels) {
    const struct ax_example *x = &out->items[out->n - 1];
    const int column = ax_format_find_column(f, "target");
    size_t step = f->o.steps->last_only ? json_array_size(labels) - 1 : 0;
    float *targets;
    if (column < 0)
        return AX_OK;
    AX_TRY(ax_alloc(&targets, x->n, sizeof *targets));
    for (size_t t = 0; t < x->n; t++) {
        double p = 0;
        if (x->labels[t] != AX_NO_LABEL)
            (void)read_label(f, labels, step++, &p); /* checked before */
        targets[t] = (float)p;
    }
    ax_example_list_set(out, out->n - 1, column, targets);
    ax_free(targets);
    return AX_OK;
}

static enum ax_status steps_record(const struct ax_format *f, struct ax_format_work *w,
                                   json_t *record, struct ax_origin origin,
                                   struct ax_example_list *out) {
    const struct ax_format_steps *o = f->o.steps;
    const size_t max = f->o.long_examples == AX_LONG_KEEP ? SIZE_MAX : (size_t)f->o.sequence_len;
    struct solution s = {f, w, out, max,
                         o->max_completion > 0 ? (size_t)o->max_completion : SIZE_MAX};
    struct ax_text prompt;
    const json_t *steps, *labels;
    bool all;
    ax_record_drop_nulls(record);
    if (!json_object_get(record, "prompt"))
        return ax_record_error_hint(ax_record_bad_text(record, "prompt", NULL), &f->o, record);
    AX_TRY(ax_record_text(record, "prompt", &prompt));
    AX_TRY(list_column(f, record, "completions", &steps));
    AX_TRY(list_column(f, record, "labels", &labels));
    AX_TRY(check_steps(f, steps, labels));
    if (f->bos != AX_NO_TOKEN) {
        AX_TRY(ax_example_list_add(out, &f->bos, NULL, 1, false));
        s.left--;
    }
    AX_TRY(put(&s, prompt, false, &all));
    for (size_t i = 0; i < json_array_size(steps); i++) {
        double label = 0;
        AX_TRY(read_label(f, labels, i, &label));
        AX_TRY(put_step(&s, json_array_get(steps, i),
                        !o->last_only || i + 1 == json_array_size(steps), label));
    }
    AX_TRY(ax_example_list_end(out, origin));
    return set_targets(f, out, labels);
}

const struct ax_format_type ax_format_type_steps = {"stepwise_supervised", false, false, steps_init,
                                                    steps_record};

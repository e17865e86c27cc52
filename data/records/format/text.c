/* Formats that train on everything (completion, pretrain, random ids), and input_output, in which
 * each segment says whether it is trained on. */
#include <string.h>

#include "base/rng.h"
#include "base/hash/hash.h"
#include "data/records/format/impl.h"

/* ---- completion ---- */

static enum ax_status completion_record(const struct ax_format *f, struct ax_format_work *w,
                                        json_t *record, struct ax_origin origin,
                                        struct ax_example_list *out) {
    const int64_t len = f->o.sequence_len;
    struct ax_text text;
    AX_TRY(ax_record_text(record, f->o.field, &text));
    AX_TRY(ax_record_not_blank(f->o.field, "text", text));
    AX_TRY(ax_format_encode(f, text, true, &w->full));
    if ((int64_t)w->full.n > AX_COMPLETION_EXAMPLES * len)
        w->oddities |= 1U << AX_ODD_CUT;
    ax_format_cut(f, &w->full, AX_COMPLETION_EXAMPLES * len);
    const size_t n = w->full.n;
    const bool close =
        n > 0 && (int64_t)n < AX_COMPLETION_EXAMPLES * len && w->full.ids[n - 1] != f->eos;
    for (size_t i = 0; i < n + close; i += (size_t)len) {
        const size_t end = i + (size_t)len < n + close ? i + (size_t)len : n + close;
        const size_t tokens = end < n ? end : n;
        AX_TRY(ax_example_list_add(out, w->full.ids + i, NULL, tokens > i ? tokens - i : 0, true));
        if (end > n)
            AX_TRY(ax_example_list_add(out, &f->eos, NULL, 1, true));
        AX_TRY(ax_example_list_end(out, origin));
    }
    return AX_OK;
}

/* ---- pretrain ---- */

#define WINDOW_OVERLAP 256

/* Overlapping windows over the text's tokens, each with the tokens that the tokenizer adds
 * around a text. */
static enum ax_status windows(const struct ax_format *f, const struct ax_encoding *e,
                              struct ax_origin origin, struct ax_example_list *out) {
    const size_t max = (size_t)f->o.sequence_len - 1;
    const size_t frame = f->n_before + f->n_after;
    const size_t room = max > frame ? max - frame : 1;
    size_t overlap = max / 2 < WINDOW_OVERLAP ? max / 2 : WINDOW_OVERLAP;
    overlap = overlap < room ? overlap : room - 1;
    for (size_t i = 0;; i += room - overlap) {
        const size_t end = i + room < e->n ? i + room : e->n;
        AX_TRY(ax_example_list_add(out, f->before, NULL, f->n_before, true));
        AX_TRY(ax_example_list_add(out, e->ids + i, NULL, end - i, true));
        AX_TRY(ax_example_list_add(out, f->after, NULL, f->n_after, true));
        AX_TRY(ax_example_list_add(out, &f->eos, NULL, 1, true));
        AX_TRY(ax_example_list_end(out, origin));
        if (end == e->n)
            return AX_OK;
    }
}

static enum ax_status pretrain_record(const struct ax_format *f, struct ax_format_work *w,
                                      json_t *record, struct ax_origin origin,
                                      struct ax_example_list *out) {
    const enum ax_pretrain_mode mode = f->o.pretrain;
    struct ax_text text;
    AX_TRY(ax_record_text(record, f->o.field, &text));
    AX_TRY(ax_record_not_blank(f->o.field, "text", text));
    AX_TRY(ax_format_encode(f, text, mode != AX_PRETRAIN_WINDOWS, &w->full));
    if (w->full.n == 0)
        return AX_OK;
    if (mode == AX_PRETRAIN_WINDOWS)
        return windows(f, &w->full, origin, out);
    if (mode != AX_PRETRAIN_WHOLE)
        ax_format_cut(f, &w->full, f->o.sequence_len - 2);
    AX_TRY(ax_example_list_add(out, w->full.ids, NULL, w->full.n, true));
    if (mode != AX_PRETRAIN_CUT)
        AX_TRY(ax_example_list_add(out, &f->eos, NULL, 1, true));
    if (mode == AX_PRETRAIN_JOIN)
        AX_TRY(ax_example_list_add(out, &f->o.pad, NULL, 1, false));
    return ax_example_list_end(out, origin);
}

static enum ax_status check_pretrain(struct ax_format *f) {
    if (f->o.sequence_len < 4)
        return ax_error(AX_ERR_CONFIG, "sequence_len: pretraining needs at least 4, got %lld",
                        (long long)f->o.sequence_len);
    if (f->o.pretrain == AX_PRETRAIN_JOIN && f->o.pad == AX_NO_TOKEN)
        return ax_error(AX_ERR_CONFIG, "pretraining_sample_concatenation puts a pad token between "
                                       "documents; set special_tokens.pad_token");
    return AX_OK;
}

/* ---- input_output ---- */

static enum ax_status put_segment(const struct ax_format *f, struct ax_format_work *w,
                                  const json_t *segment, size_t index,
                                  struct ax_example_list *out) {
    const json_t *text = json_object_get(segment, "text");
    const json_t *label = json_object_get(segment, "label");
    if (!json_is_string(text) || !json_is_boolean(label))
        return ax_error(AX_ERR_DATA,
                        "segments[%zu]: expected {\"label\": true or false, \"text\": \"…\"}, got "
                        "label %s, text %s",
                        index, ax_json_kind(label), ax_json_kind(text));
    AX_TRY(ax_format_encode(f, (struct ax_text){json_string_value(text), json_string_length(text)},
                            false, &w->full));
    return ax_example_list_add(out, w->full.ids, NULL, w->full.n,
                               json_is_true(label) || f->o.train_on_inputs);
}

/* What is trained on, or if nothing is, the rest, has more than white space. */
static enum ax_status check_segments(const struct ax_format *f, const json_t *segments) {
    bool any = false, blank = true, all_blank = true;
    for (size_t i = 0; i < json_array_size(segments); i++) {
        const json_t *segment = json_array_get(segments, i);
        const json_t *v = json_object_get(segment, "text");
        const bool trained =
            json_is_true(json_object_get(segment, "label")) || f->o.train_on_inputs;
        const bool is_blank = ax_text_is_blank(json_string_value(v), json_string_length(v));
        any = any || trained;
        blank = blank && (!trained || is_blank);
        all_blank = all_blank && is_blank;
    }
    return (any && blank) || all_blank
               ? ax_error(AX_ERR_EMPTY, "segments: the text %sis empty", any ? "to train on " : "")
               : AX_OK;
}

static enum ax_status input_output_record(const struct ax_format *f, struct ax_format_work *w,
                                          json_t *record, struct ax_origin origin,
                                          struct ax_example_list *out) {
    const json_t *segments = json_object_get(record, "segments");
    if (!json_is_array(segments))
        return ax_error(AX_ERR_DATA, "segments: expected a list, got %s", ax_json_kind(segments));
    for (size_t i = 0; i < json_array_size(segments); i++)
        AX_TRY(put_segment(f, w, json_array_get(segments, i), i, out));
    AX_TRY(check_segments(f, segments));
    return ax_example_list_end(out, origin);
}

/* ---- _synthetic ---- */

static enum ax_status check_synthetic(struct ax_format *f) {
    const struct ax_format_synthetic *s = &f->o.synthetic;
    if (s->min_id < 0 || s->max_id <= s->min_id || s->max_id > INT32_MAX || s->length < 1)
        return ax_error(AX_ERR_CONFIG,
                        "type _synthetic: min_input_id is %lld and max_input_id is %lld; "
                        "min_input_id must be below max_input_id",
                        (long long)s->min_id, (long long)s->max_id);
    return AX_OK;
}

static enum ax_status synthetic_record(const struct ax_format *f, struct ax_format_work *w,
                                       json_t *record, struct ax_origin origin,
                                       struct ax_example_list *out) {
    (void)w;
    (void)record;
    const struct ax_format_synthetic *s = &f->o.synthetic;
    const struct ax_rng_key key = {.seed = s->seed, .tensor = ax_hash32("data.synthetic")};
    const uint64_t range = (uint64_t)(s->max_id - s->min_id);
    for (int64_t i = 0; i < s->length; i++) {
        const uint64_t at = (uint64_t)origin.record * (uint64_t)s->length + (uint64_t)i;
        const int32_t id = (int32_t)(s->min_id + (int64_t)ax_rng_below(key, at, range));
        AX_TRY(ax_example_list_add(out, &id, NULL, 1, true));
    }
    return ax_example_list_end(out, origin);
}

const struct ax_format_type ax_format_type_completion = {"completion", false, true, NULL,
                                                         completion_record};
const struct ax_format_type ax_format_type_pretrain = {"pretrain", false, true, check_pretrain,
                                                       pretrain_record};
const struct ax_format_type ax_format_type_input_output = {"input_output", false, false, NULL,
                                                           input_output_record};
const struct ax_format_type ax_format_type_synthetic = {"_synthetic", false, false, check_synthetic,
                                                        synthetic_record};

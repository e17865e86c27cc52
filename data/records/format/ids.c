/* Records that are tokenized already: uses input_ids, labels and attention_mask unchanged; and what a
 * teacher says of each token (topk.h). */
#include "data/records/format/topk.h"

struct column {
    const char *name;
    const json_t *list;
};

static enum ax_status open_column(const json_t *record, const char *name, struct column *c) {
    *c = (struct column){name, json_object_get(record, name)};
    if (!json_is_array(c->list))
        return ax_error(AX_ERR_DATA, "%s: expected a list of numbers, got %s", name,
                        ax_json_kind(c->list));
    return AX_OK;
}

static enum ax_status at(const struct column *c, size_t i, int64_t min, int64_t max, int32_t *out) {
    const json_t *v = json_array_get(c->list, i);
    const json_int_t value = json_integer_value(v);
    if (!json_is_integer(v) || value < min || value >= max)
        return ax_error(AX_ERR_DATA,
                        "%s[%zu]: expected an integer of at least %lld and below %lld, got %s"
                        " %lld",
                        c->name, i, (long long)min, (long long)max, ax_json_kind(v),
                        (long long)value);
    *out = (int32_t)value;
    return AX_OK;
}

/* The targets of the tokens that the attention mask left in. */
static enum ax_status put_targets(const struct ax_topk *t, const struct column *mask, size_t n,
                                  struct ax_example_list *out, size_t example) {
    size_t at = 0;
    for (size_t i = 0; i < n && t->logprobs; i++)
        if (!mask->list || json_integer_value(json_array_get(mask->list, i)) == 1)
            AX_TRY(ax_topk_put(t, out, example, at++, (int64_t)i - 1));
    return AX_OK;
}

/* Tokens outside the attention mask are padding, which has no place in a packed record. */
static enum ax_status ids_record(const struct ax_format *f, struct ax_format_work *w,
                                 json_t *record, struct ax_origin origin,
                                 struct ax_example_list *out) {
    (void)w;
    struct column ids;
    struct column labels;
    struct column mask = {0};
    struct ax_topk targets;
    const size_t before = out->n;
    const int64_t vocab = f->tok ? (int64_t)ax_tokenizer_size(f->tok) : INT32_MAX;
    AX_TRY(open_column(record, "input_ids", &ids));
    AX_TRY(open_column(record, "labels", &labels));
    if (json_object_get(record, "attention_mask"))
        AX_TRY(open_column(record, "attention_mask", &mask));
    const size_t n = json_array_size(ids.list);
    if (json_array_size(labels.list) != n || (mask.list && json_array_size(mask.list) != n))
        return ax_error(AX_ERR_DATA, "input_ids has %zu elements, labels %zu, attention_mask %zu",
                        n, json_array_size(labels.list), json_array_size(mask.list));
    AX_TRY(ax_topk_open_tokens(&targets, f, record, n));
    for (size_t i = 0; i < n; i++) {
        int32_t id;
        int32_t label;
        int32_t seen = 1;
        AX_TRY(at(&ids, i, 0, vocab, &id));
        AX_TRY(at(&labels, i, AX_NO_LABEL, vocab, &label));
        if (label < 0 && label != AX_NO_LABEL)
            return ax_error(AX_ERR_DATA, "labels[%zu]: expected a token id or -100, got %d", i,
                            label);
        if (mask.list)
            AX_TRY(at(&mask, i, 0, 2, &seen));
        if (seen)
            AX_TRY(ax_example_list_add(out, &id, &label, 1, false));
    }
    AX_TRY(ax_example_list_end(out, origin));
    if (out->n == before)
        return ax_error(AX_ERR_EMPTY, "input_ids: the list of tokens%s is empty",
                        n > 0 ? " in attention_mask" : "");
    return put_targets(&targets, &mask, n, out, before);
}

const struct ax_format_type ax_format_type_ids = {"tokens", false, false, NULL, ids_record};

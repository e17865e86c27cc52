/* What a teacher says of each token, of a chat and of a record that is tokenized already; and the latter
 * records: input_ids, labels and attention_mask are used unchanged, and split into the documents that trainers have
 * packed into a record (position_ids, seq_lengths). Without labels, masks say what is trained on, as in TRL's SFTTrainer. */
#include "data/records/format/topk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Smaller than any log-prob, and still far above the logits of tokens that are not listed. */
#define LEAST (-1e20)

#define IDS "target_token_ids"

/* A record's lists: not read before put_targets_of. */
struct topk {
    const char *field;      /* name of the log-probs */
    const json_t *logprobs; /* NULL: the examples have no such columns */
    const json_t *ids;      /* NULL: in `logprobs` */
    const json_t *mask;     /* NULL: none */
    int ids_column, width;
    double temperature;
    int64_t vocab;
};

bool ax_topk_wanted(const struct ax_format *f) {
    return ax_format_find_column(f, "target_ids") >= 0;
}

/* ---- the lists of a record ---- */

static enum ax_status open_list(const json_t *record, const char *name, const json_t **list) {
    *list = json_object_get(record, name);
    if (!*list)
        return ax_error(AX_ERR_DATA, "column \"%s\" is missing: kd_trainer needs it", name);
    if (!json_is_array(*list))
        return ax_error(AX_ERR_DATA, "%s: expected a list with an element per token, got %s", name,
                        ax_json_kind(*list));
    return AX_OK;
}

static void open_columns(struct topk *t, const struct ax_format *f) {
    *t = (struct topk){.ids_column = ax_format_find_column(f, "target_ids"),
                       .temperature = f->o.topk.temperature,
                       .vocab = f->tok ? (int64_t)ax_tokenizer_size(f->tok) : INT32_MAX};
    t->width = (int)ax_column_width(f->o.columns, t->ids_column);
}

static enum ax_status expect_length(const json_t *list, const char *name, size_t n) {
    if (json_array_size(list) == n)
        return AX_OK;
    return ax_error(AX_ERR_DATA, "%s has %zu elements, but there are %zu tokens", name,
                    json_array_size(list), n);
}

/* target_logprobs, target_token_ids and target_mask, of n tokens. */
static enum ax_status open_tokens(struct topk *t, const struct ax_format *f, const json_t *record,
                                  size_t n) {
    if (!ax_topk_wanted(f)) {
        *t = (struct topk){0};
        return AX_OK;
    }
    open_columns(t, f);
    t->field = "target_logprobs";
    AX_TRY(open_list(record, IDS, &t->ids));
    AX_TRY(open_list(record, t->field, &t->logprobs));
    AX_TRY(expect_length(t->ids, IDS, n));
    AX_TRY(expect_length(t->logprobs, t->field, n));
    if (!json_object_get(record, "target_mask"))
        return AX_OK;
    AX_TRY(open_list(record, "target_mask", &t->mask));
    return expect_length(t->mask, "target_mask", n);
}

/* ---- one element ---- */

/* An element of the lists, and what it says. */
struct row {
    const struct topk *t;
    size_t at;
    const json_t *ids, *logprobs, *mask;
    int32_t *id;  /* [width], −1 from n on */
    float *logit; /* [width] */
    int n;
};

static enum ax_status bad(const struct row *r, const char *name, size_t j, const char *want,
                          const json_t *got) {
    char *text = got ? json_dumps(got, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6)) : NULL;
    const enum ax_status st =
        ax_error(AX_ERR_DATA, "%s[%zu][%zu]: expected %s, got %.60s", name, r->at, j, want,
                 text && !json_is_array(got) && !json_is_object(got) ? text : ax_json_kind(got));
    ax_free(text);
    return st;
}

/* "token_id:17" → 17; −1: something else. */
static int64_t id_of_token(const json_t *token) {
    static const char prefix[] = "token_id:";
    const char *text = json_string_value(token);
    if (!text || strncmp(text, prefix, sizeof prefix - 1) != 0)
        return -1;
    text += sizeof prefix - 1;
    const size_t digits = strspn(text, "0123456789");
    return digits > 0 && digits < 11 && text[digits] == '\0' ? strtoll(text, NULL, 10) : -1;
}

static enum ax_status read_id(const struct row *r, size_t j, int32_t *id) {
    const struct topk *t = r->t;
    const json_t *v = t->ids ? json_array_get(r->ids, j)
                             : json_object_get(json_array_get(r->logprobs, j), "token");
    const char *name = t->ids ? IDS : t->field;
    int64_t n = t->ids ? (json_is_integer(v) ? json_integer_value(v) : -1) : id_of_token(v);
    if (n < 0)
        return bad(r, name, j, t->ids ? "a token id" : "a \"token\" of the form token_id:17", v);
    if (n >= t->vocab)
        return ax_error(AX_ERR_DATA, "%s[%zu][%zu]: id %lld is not below the vocabulary of %lld",
                        name, r->at, j, (long long)n, (long long)t->vocab);
    *id = (int32_t)n;
    for (int k = 0; k < r->n; k++)
        if (r->id[k] == *id)
            return ax_error(AX_ERR_DATA, "%s[%zu][%zu]: id %d is there twice", name, r->at, j,
                            (int)*id);
    return AX_OK;
}

static enum ax_status read_logit(const struct row *r, size_t j, float *logit) {
    const json_t *v = json_array_get(r->logprobs, j);
    if (!r->t->ids)
        v = json_object_get(v, "logprob");
    const double logprob = json_is_number(v) ? json_number_value(v) : NAN;
    const double scaled = r->t->temperature * logprob;
    if (!(logprob <= 0 && scaled >= LEAST))
        return bad(r, r->t->field, j, "a log-prob, a finite number of at most 0", v);
    *logit = (float)scaled;
    return AX_OK;
}

/* 0 of a list or of its elements; anything but 0, 1, true and false is an error. */
static enum ax_status is_left_out(const struct row *r, size_t j, bool *out) {
    const json_t *v = json_is_array(r->mask) ? json_array_get(r->mask, j) : r->mask;
    *out = json_is_false(v) || (json_is_integer(v) && json_integer_value(v) == 0);
    if (*out || !r->t->mask || json_is_true(v) ||
        (json_is_integer(v) && json_integer_value(v) == 1))
        return AX_OK;
    return bad(r, "target_mask", j, "0 or 1", v);
}

static enum ax_status read_entry(struct row *r, size_t j) {
    bool skip;
    AX_TRY(is_left_out(r, j, &skip));
    if (skip)
        return AX_OK;
    if (r->n == r->t->width)
        return ax_error(AX_ERR_DATA,
                        "%s[%zu] has more than the %d entries of kd_topk; set it to %zu",
                        r->t->field, r->at, r->t->width, json_array_size(r->logprobs));
    AX_TRY(read_id(r, j, &r->id[r->n]));
    AX_TRY(read_logit(r, j, &r->logit[r->n]));
    r->n++;
    return AX_OK;
}

/* A missing or null element has no entries. */
static enum ax_status read_row(struct row *r) {
    const struct topk *t = r->t;
    r->logprobs = json_array_get(t->logprobs, r->at);
    r->ids = json_array_get(t->ids, r->at);
    r->mask = json_array_get(t->mask, r->at);
    if (r->logprobs && !json_is_null(r->logprobs) && !json_is_array(r->logprobs))
        return ax_error(AX_ERR_DATA, "%s[%zu]: expected a list, got %s", t->field, r->at,
                        ax_json_kind(r->logprobs));
    const size_t n = json_array_size(r->logprobs);
    if (t->ids && json_array_size(r->ids) != n)
        return ax_error(AX_ERR_DATA, "%s[%zu] has %zu entries, " IDS "[%zu] %zu", t->field, r->at,
                        n, r->at, json_array_size(r->ids));
    for (size_t j = 0; j < n; j++)
        AX_TRY(read_entry(r, j));
    return AX_OK;
}

/* The targets of token i of example `example` from element `row` of the lists; below 0: there is none.
 * AX_ERR_DATA if they are bad, or missing for a label. */
static enum ax_status put_targets_of(const struct topk *t, struct ax_example_list *out,
                                     size_t example, size_t i, int64_t row) {
    if (!t->logprobs)
        return AX_OK;
    const size_t width = (size_t)t->width;
    int32_t *ids = (int32_t *)ax_example_list_words(out, example, t->ids_column) + i * width;
    float *logits = (float *)ax_example_list_words(out, example, t->ids_column + 1) + i * width;
    struct row r = {.t = t, .at = (size_t)row, .id = ids, .logit = logits};
    for (size_t k = 0; k < width; k++)
        ids[k] = -1;
    if (i == 0 || out->items[example].labels[i] == AX_NO_LABEL) /* nothing predicts the first one */
        return AX_OK;
    if (row >= 0)
        AX_TRY(read_row(&r));
    if (r.n > 0)
        return AX_OK;
    if (row < 0)
        return ax_error(AX_ERR_DATA,
                        "token %zu is trained on, but %s has only the last %zu of %zu tokens", i,
                        t->field, json_array_size(t->logprobs), out->items[example].n);
    return ax_error(AX_ERR_DATA, "%s[%zu] has no entries, but token %zu is trained on", t->field,
                    r.at, i);
}

/* ---- chats ---- */

enum ax_status ax_topk_chat(const struct ax_format *f, const json_t *record,
                            struct ax_example_list *out, size_t example) {
    struct topk t;
    if (!ax_topk_wanted(f))
        return AX_OK;
    open_columns(&t, f);
    t.field = f->o.topk.field;
    AX_TRY(open_list(record, t.field, &t.logprobs));
    const size_t n = out->items[example].n, rows = json_array_size(t.logprobs);
    if (json_object_get(record, IDS)) {
        AX_TRY(open_list(record, IDS, &t.ids));
        if (json_array_size(t.ids) != rows)
            return ax_error(AX_ERR_DATA, "%s has %zu elements, " IDS " %zu", t.field, rows,
                            json_array_size(t.ids));
    }
    if (rows > n)
        return ax_error(AX_ERR_DATA,
                        "%s has %zu elements, but the conversation only %zu tokens: were they made "
                        "with another tokenizer or chat template?",
                        t.field, rows, n);
    for (size_t i = 0; i < n; i++)
        AX_TRY(put_targets_of(&t, out, example, i, (int64_t)i - (int64_t)(n - rows)));
    return AX_OK;
}

/* ---- records that are tokenized already ---- */

struct numbers {
    const char *name;
    const json_t *list;
};

static enum ax_status open_numbers(const json_t *record, const char *name, struct numbers *c) {
    *c = (struct numbers){name, json_object_get(record, name)};
    if (!json_is_array(c->list))
        return ax_error(AX_ERR_DATA, "%s: expected a list of numbers, got %s", name,
                        ax_json_kind(c->list));
    return AX_OK;
}

static enum ax_status number_at(const struct numbers *c, size_t i, int64_t min, int64_t max,
                                int32_t *out) {
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

/* The targets of the tokens that the attention mask left in, from item `example` on. */
static enum ax_status put_targets(const struct topk *t, const struct numbers *mask, size_t n,
                                  struct ax_example_list *out, size_t example) {
    size_t at = 0;
    for (size_t i = 0; i < n && t->logprobs; i++) {
        if (mask->list && json_integer_value(json_array_get(mask->list, i)) != 1)
            continue;
        if (at == out->items[example].n) {
            example++;
            at = 0;
        }
        AX_TRY(put_targets_of(t, out, example, at++, (int64_t)i - 1));
    }
    return AX_OK;
}

/* Where the documents of a record begin: at position 0, as transformers finds them, and by their lengths, as TRL
 * writes them. A record without these columns is one document. */
struct parts {
    struct numbers positions, lengths;
    int64_t last;        /* position of the token before; -1: none */
    size_t part, starts; /* the next length, and the token that it begins with */
};

static bool has_column(const json_t *record, const char *name) {
    const json_t *v = json_object_get(record, name);
    return v && !json_is_null(v);
}

static enum ax_status open_parts(struct parts *p, const json_t *record, size_t n) {
    int64_t sum = 0;
    *p = (struct parts){.last = -1};
    if (has_column(record, "position_ids"))
        AX_TRY(open_numbers(record, "position_ids", &p->positions));
    if (p->positions.list)
        AX_TRY(expect_length(p->positions.list, p->positions.name, n));
    if (!has_column(record, "seq_lengths"))
        return AX_OK;
    AX_TRY(open_numbers(record, "seq_lengths", &p->lengths));
    for (size_t i = 0; i < json_array_size(p->lengths.list); i++) {
        int32_t length;
        AX_TRY(number_at(&p->lengths, i, 1, INT32_MAX, &length));
        sum += length;
    }
    if (sum != (int64_t)n)
        return ax_error(AX_ERR_DATA, "seq_lengths: they add up to %lld, but there are %zu tokens",
                        (long long)sum, n);
    return AX_OK;
}

/* Does token i begin a document? To be asked of each in turn. */
static bool begins_part(struct parts *p, size_t i) {
    const bool begins = p->lengths.list && i == p->starts;
    if (begins)
        p->starts += (size_t)json_integer_value(json_array_get(p->lengths.list, p->part++));
    return begins;
}

/* The same by the positions of the tokens that the attention mask left in. */
static enum ax_status begins_again(struct parts *p, size_t i, bool *begins) {
    int32_t position;
    if (!p->positions.list)
        return AX_OK;
    AX_TRY(number_at(&p->positions, i, 0, INT32_MAX, &position));
    if (p->last >= 0 && position != 0 && position != p->last + 1)
        return ax_error(AX_ERR_DATA,
                        "position_ids[%zu]: expected %lld, the one after that of the token before, "
                        "or 0, which begins a document, got %d",
                        i, (long long)p->last + 1, position);
    *begins = *begins || position == 0;
    p->last = position;
    return AX_OK;
}

/* What is trained on: labels or, without them, the tokens that are in all masks; without masks, all. */
struct trained {
    struct numbers labels, masks[2];
    int n_masks;
};

/* TRL's mask of the completion counts where its completion_only_loss would be set. */
static enum ax_status open_trained(struct trained *t, const struct ax_format *f,
                                   const json_t *record, size_t n) {
    static const char *const names[] = {"assistant_masks", "completion_mask"};
    const bool labeled = has_column(record, "labels");
    bool masked = false;
    *t = (struct trained){.n_masks = 0};
    for (int i = 0; i < 2 && !labeled; i++) {
        if (!has_column(record, names[i]))
            continue;
        masked = true;
        if (i == 1 && f->o.train_on_inputs)
            continue;
        AX_TRY(open_numbers(record, names[i], &t->masks[t->n_masks]));
        AX_TRY(expect_length(t->masks[t->n_masks].list, names[i], n));
        t->n_masks++;
    }
    if (masked || !json_object_get(record, "labels"))
        return AX_OK;
    const enum ax_status st = open_numbers(record, "labels", &t->labels);
    return st == AX_OK || labeled ? st
                                  : ax_error(st,
                                             "%s, nor are there completion_mask or "
                                             "assistant_masks",
                                             ax_error_text());
}

static enum ax_status is_in_mask(const struct numbers *mask, size_t i, bool *in) {
    const json_t *v = json_array_get(mask->list, i);
    int32_t bit = json_is_true(v);
    if (!json_is_boolean(v))
        AX_TRY(number_at(mask, i, 0, 2, &bit));
    *in = *in && bit;
    return AX_OK;
}

static enum ax_status label_at(const struct trained *t, size_t i, int32_t id, int64_t vocab,
                               int32_t *label) {
    bool in = true;
    for (int k = 0; k < t->n_masks; k++)
        AX_TRY(is_in_mask(&t->masks[k], i, &in));
    *label = in ? id : AX_NO_LABEL;
    if (!t->labels.list)
        return AX_OK;
    AX_TRY(number_at(&t->labels, i, AX_NO_LABEL, vocab, label));
    return *label >= 0 || *label == AX_NO_LABEL
               ? AX_OK
               : ax_error(AX_ERR_DATA, "labels[%zu]: expected a token id or -100, got %d", i,
                          *label);
}

/* Tokens outside the attention mask are padding, which has no place in a packed record. */
static enum ax_status ids_record(const struct ax_format *f, struct ax_format_work *w,
                                 json_t *record, struct ax_origin origin,
                                 struct ax_example_list *out) {
    (void)w;
    struct numbers ids;
    struct trained trained;
    struct numbers mask = {0};
    struct topk targets;
    struct parts parts;
    const size_t before = out->n;
    const int64_t vocab = f->tok ? (int64_t)ax_tokenizer_size(f->tok) : INT32_MAX;
    AX_TRY(open_numbers(record, "input_ids", &ids));
    const size_t n = json_array_size(ids.list);
    AX_TRY(open_trained(&trained, f, record, n));
    if (json_object_get(record, "attention_mask"))
        AX_TRY(open_numbers(record, "attention_mask", &mask));
    const json_t *given = trained.labels.list;
    if ((given && json_array_size(given) != n) || (mask.list && json_array_size(mask.list) != n))
        return ax_error(AX_ERR_DATA, "input_ids has %zu elements, labels %zu, attention_mask %zu",
                        n, json_array_size(given), json_array_size(mask.list));
    AX_TRY(open_tokens(&targets, f, record, n));
    AX_TRY(open_parts(&parts, record, n));
    for (size_t i = 0; i < n; i++) {
        int32_t id;
        int32_t label;
        int32_t seen = 1;
        AX_TRY(number_at(&ids, i, 0, vocab, &id));
        AX_TRY(label_at(&trained, i, id, vocab, &label));
        if (mask.list)
            AX_TRY(number_at(&mask, i, 0, 2, &seen));
        bool begins = begins_part(&parts, i);
        if (seen)
            AX_TRY(begins_again(&parts, i, &begins));
        if (begins)
            AX_TRY(ax_example_list_end(out, origin));
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

/* Shared by the formats. Private to data/records/format/. */
#ifndef AX_DATA_RECORDS_FORMAT_IMPL_H
#define AX_DATA_RECORDS_FORMAT_IMPL_H

#include "data/records/format/format.h"

struct ax_format_type {
    const char *name; /* NULL = the user's own, or tokenized already */
    bool styles;      /* NAME:STYLE is allowed */
    bool needs_eos;
    enum ax_status (*init)(struct ax_format *f); /* may be NULL */
    enum ax_status (*record)(const struct ax_format *f, struct ax_format_work *w, json_t *record,
                             struct ax_origin origin, struct ax_example_list *out);
};

#define AX_ADDED_MAX 8

struct ax_format {
    const struct ax_format_type *type;
    struct ax_format_options o;
    const struct ax_tokenizer *tok;
    int32_t bos, eos; /* AX_NO_TOKEN: none */
    /* The tokens that the tokenizer itself adds before and after a text. */
    int32_t before[AX_ADDED_MAX], after[AX_ADDED_MAX];
    size_t n_before, n_after;
    int32_t *ends; /* eos, then the end-of-turn ids */
    size_t n_ends;
    bool eos_is_end; /* ends[0] is eos */
    struct ax_buf warnings;
    struct ax_format_name names[AX_ODD_NAMES];
    size_t n_names;
    void *own; /* private data of the type; freed with ax_free */
};

extern const struct ax_format_type ax_format_type_chat, ax_format_type_alpaca,
    ax_format_type_gpteacher, ax_format_type_oasst, ax_format_type_jeopardy, ax_format_type_user,
    ax_format_type_completion, ax_format_type_pretrain, ax_format_type_input_output,
    ax_format_type_ids, ax_format_type_synthetic, ax_format_type_answers, ax_format_type_steps,
    ax_format_type_prompt;

/* A text column. AX_ERR_DATA "COLUMN: expected text, got a list" if it is missing or not text. */
struct ax_text {
    const char *s;
    size_t n;
};
enum ax_status ax_record_text(const json_t *record, const char *column, struct ax_text *out);
/* The same, but "" if the column is missing or null. */
enum ax_status ax_record_text_or_empty(const json_t *record, const char *column,
                                       struct ax_text *out);
/* AX_ERR_EMPTY "COLUMN: the WHAT is empty" for a text that is blank. */
enum ax_status ax_record_not_blank(const char *column, const char *what, struct ax_text t);
/* "a list", for messages; NULL is "nothing". */
const char *ax_json_kind(const json_t *v);
/* AX_ERR_DATA for a column that is missing (v is NULL) or not text. */
enum ax_status ax_record_bad_text(const json_t *record, const char *column, const json_t *v);
/* Drops null members, which mean the same as missing ones, at any depth. */
void ax_record_drop_nulls(json_t *v);
/* Parses JSON in a string in place: object[key] = its value. Other values are unchanged. */
enum ax_status ax_record_parse_inner(json_t *object, const char *key);
/* Appends text. */
static inline enum ax_status ax_text_put(struct ax_buf *b, struct ax_text t) {
    return ax_buf_append(b, t.s, t.n);
}

/* The bit 1 << AX_ODD_UNREAD if it applies to a record of this type. */
unsigned ax_format_unread(const struct ax_format *f, const struct ax_format_type *type,
                          const json_t *record);

/* True if a template's source contains this text. */
bool ax_template_has(const struct ax_template *t, const char *text);

/* Tokenizes text into e, with or without the tokens that the tokenizer itself adds. Empty text
 * always gives no tokens. */
enum ax_status ax_format_encode(const struct ax_format *f, struct ax_text text, bool add_special,
                                struct ax_encoding *e);
/* Truncates tokens encoded with add_special to max; those added after the text stay. */
void ax_format_cut(const struct ax_format *f, struct ax_encoding *e, int64_t max);

/* Prompt and response as one example, tokenized separately, with EOS after the response; the prompt
 * is trained on only with train_on_inputs. */
enum ax_status ax_format_pair(const struct ax_format *f, struct ax_format_work *w,
                              struct ax_text prompt, struct ax_text response,
                              struct ax_origin origin, struct ax_example_list *out);

/* Index of a column of the examples, or -1. */
int ax_format_find_column(const struct ax_format *f, const char *name);

/* A value for a {name} in a text. */
struct ax_fill_value {
    const char *name;
    struct ax_text text;
};
/* Appends `format` to b as Python's str.format, {{ and }} as braces; with b NULL only checks.
 * AX_ERR_CONFIG names the key type.`key`. */
enum ax_status ax_text_fill(struct ax_buf *b, const char *key, const char *format,
                            const struct ax_fill_value *values, size_t n);

#endif

/* What the records of a data set mean: a format turns a record into examples, tokens with labels
 * that say which tokens are trained. One format per data set, made once and then constant, so that
 * any number of threads may use it, each with its own struct ax_format_work.
 *
 *   chat_template        messages → text by a chat template; the turns of some roles are trained
 *   alpaca[:STYLE]       instruction, input, output   (STYLE: instruct, chat, chatml, phi)
 *   gpteacher[:STYLE]    instruction, input, response
 *   oasst[:STYLE]        INSTRUCTION, RESPONSE
 *   jeopardy[:STYLE]     question, category, answer
 *   (user)               columns and texts of one's own: struct ax_format_user
 *   completion           one text, all trained, cut into examples of sequence_len
 *   pretrain             one text, all trained, several ways to cut or join it
 *   input_output         segments, each trained or not, put together as they are
 *   (NULL)               input_ids, attention_mask, labels: tokens already
 *   _synthetic           random ids
 *
 * Rows with input_ids, attention_mask and labels are taken as tokens whatever the format. */
#ifndef AX_DATA_FORMAT_FORMAT_H
#define AX_DATA_FORMAT_FORMAT_H

#include <jansson.h>

#include "data/format/example.h"
#include "data/template/template.h"
#include "data/tokenizer/tokenizer.h"

/* Texts are borrowed for as long as the format lives, everywhere in the options. */
struct ax_name_map {
    const char *from, *to;
};

enum ax_train_on { AX_TRAIN_TURN, AX_TRAIN_ALL, AX_TRAIN_LAST, AX_TRAIN_NONE };

struct ax_format_chat {
    const struct ax_template *template;
    const json_t *tokens;       /* special tokens: object; variables a template may read */
    const json_t *variables;    /* chat_template_kwargs: object or NULL */
    const char *field_messages; /* column */
    const char *field_tools;    /* column */
    const struct ax_name_map
        *properties; /* message key → property of the template; role, content */
    size_t n_properties;
    const struct ax_name_map *roles; /* record's role → template's role; others pass unchanged */
    size_t n_roles;
    const char *const *roles_to_train;
    size_t n_roles_to_train;
    enum ax_train_on train_on_eos, train_on_eot;
    const char *const *eot_tokens; /* none: the EOS token */
    size_t n_eot_tokens;
    const char *field_training; /* message key: bool; NULL = none */
    const char
        *field_training_detail;    /* message key: [{begin_offset, end_offset, train}]; or NULL */
    bool split_thinking;           /* moves <think>…</think> to thinking_key */
    const char *thinking_key;      /* the template's name for a message's reasoning */
    const char *field_thinking;    /* message key with the reasoning; NULL = thinking_key */
    bool drop_system;              /* drops a leading system turn */
    bool leading_system_untrained; /* the template prints no conversation of a system turn only */
    bool by_generation; /* trains what {% generation %} marks, instead of looking for turns */
    int64_t now;        /* for strftime_now: the same in every record */
};

struct ax_format_user {
    const char *system_prompt, *system_format;
    const char *field_system, *field_instruction, *field_input, *field_output;
    const char *format, *no_input_format;
};

enum ax_pretrain_mode {
    AX_PRETRAIN_WINDOWS, /* windows of sequence_len − 1 that overlap, each with EOS */
    AX_PRETRAIN_CUT,     /* the first sequence_len − 2 tokens, no EOS */
    AX_PRETRAIN_JOIN, /* the same with EOS and an untrained pad behind: to be joined in sequences */
    AX_PRETRAIN_WHOLE /* everything with EOS: to be joined and cut */
};

struct ax_format_synthetic {
    int64_t length, min_id, max_id; /* ids in [min_id, max_id) */
    uint64_t seed;
};

struct ax_format_options {
    const char *type; /* a name from above; NULL = tokens already */
    const struct ax_tokenizer *tokenizer;
    int64_t sequence_len;
    bool train_on_inputs;
    int32_t pad;       /* id; AX_NO_TOKEN: none */
    const char *field; /* text column of completion and pretrain */
    enum ax_pretrain_mode pretrain;
    const struct ax_format_chat *chat; /* for chat_template */
    const struct ax_format_user *user; /* not NULL: the user's own format, type is not looked at */
    struct ax_format_synthetic synthetic;
    const struct ax_columns *columns; /* that the examples are to have; NULL: none */
};

struct ax_format;

/* Copies the options, borrows what they point to. AX_ERR_CONFIG for an unknown type, a text that
 * cannot be used, or a token that is missing. */
enum ax_status ax_format_new(struct ax_format **out, const struct ax_format_options *o);
void ax_format_free(struct ax_format *f);
/* What a person should know about this combination of options, template and tokenizer; "" or lines
 * with an end each. */
const char *ax_format_warnings(const struct ax_format *f);
/* The ids that end a turn or a text: EOS, and the end-of-turn tokens of a chat. */
size_t ax_format_ends(const struct ax_format *f, const int32_t **ids);
/* The columns that its examples have; NULL: none. */
const struct ax_columns *ax_format_columns(const struct ax_format *f);
/* Scratch of one thread; zero-initialize. */
struct ax_format_work {
    struct ax_buf text;
    struct ax_encoding full, part, other;
    int32_t *labels;
    size_t cap_labels;
};
void ax_format_work_free(struct ax_format_work *w);

/* Appends the examples of a record, maybe none. `record` is an object and may be changed.
 * AX_ERR_DATA says why the record is bad, without a place; nothing has been appended then. */
enum ax_status ax_format_record(const struct ax_format *f, struct ax_format_work *w, json_t *record,
                                struct ax_origin origin, struct ax_example_list *out);

/* Everything in the options that the examples follow from, but for the tokenizer: for the key of a
 * cache. Free with json_decref. */
enum ax_status ax_format_describe(const struct ax_format *f, json_t **out);

#endif

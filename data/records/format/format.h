/* Formats: a format turns a record into examples, tokens with labels that say which of them are
 * trained on. Each data set has one. It is constant once created, so any number of threads may use
 * it, each with its own struct ax_format_work.
 *
 *   chat_template        messages → text by a chat template; trains on the turns of some roles
 *   alpaca[:STYLE]       instruction, input, output   (STYLE: instruct, chat, chatml, phi)
 *   gpteacher[:STYLE]    instruction, input, response
 *   oasst[:STYLE]        INSTRUCTION, RESPONSE
 *   jeopardy[:STYLE]     question, category, answer
 *   (user)               the user's columns and texts: struct ax_format_user
 *   completion           one text, trained on in full, split into examples of sequence_len
 *   pretrain             one text, trained on in full, split or concatenated in several ways
 *   input_output         segments, each trained on or not, concatenated
 *   (NULL)               tokenized already: input_ids, attention_mask, labels; several documents if position_ids
 *                        begin again or seq_lengths say so
 *   _synthetic           random ids
 *
 * Records with input_ids, attention_mask and labels are taken as tokens in every format above.
 *
 * Those make texts. Other tasks have their own types (answers.h, steps.c, prompt.c), of which NULL is
 * TRL's columns: prompt, chosen, rejected; prompt, completion, label; prompt, completions, labels;
 * prompt. */
#ifndef AX_DATA_RECORDS_FORMAT_FORMAT_H
#define AX_DATA_RECORDS_FORMAT_FORMAT_H

#include <jansson.h>

#include "data/records/format/example.h"
#include "data/text/template/template.h"
#include "data/text/tokenizer/tokenizer.h"

/* What a record becomes: the examples that an objective trains on. */
enum ax_task {
    AX_TASK_TEXT,     /* a text with its trained tokens as labels */
    AX_TASK_PAIR,     /* a group of two: the preferred answer, then the rejected one */
    AX_TASK_UNPAIRED, /* an answer; column "desirable": 1 or 0 */
    AX_TASK_REWARD,   /* as PAIR, but only the token at each side's score (ax_score_position) has a
                         label, 0; column "margin" */
    AX_TASK_STEPS,    /* label 1 or 0 on the last token of right and wrong steps; column "target":
                         probabilities that they are right */
    AX_TASK_PROMPT /* a prompt, all of it labeled; text: the record as compact JSON, and with answers of their own a
                         line feed and the answer's ids as a JSON list */
};

/* All strings in the options are borrowed for the lifetime of the format. */
struct ax_name_map {
    const char *from, *to;
};

enum ax_train_on { AX_TRAIN_TURN, AX_TRAIN_ALL, AX_TRAIN_LAST, AX_TRAIN_NONE };

struct ax_format_chat {
    const struct ax_template *template;
    const struct ax_template *tool_use; /* for conversations with tools; NULL: template */
    const json_t *tokens;               /* special tokens: object; variables for the template */
    const json_t *variables;            /* chat_template_kwargs: object or NULL */
    /* definitions in place of the records' own: a list; an object of lists, of which records choose
     * (AX_TOOLS_CHOICE); or NULL */
    const json_t *tools;
    const char *field_messages;           /* column */
    const char *field_tools;              /* column */
    const struct ax_name_map *properties; /* message key → template property: role, content */
    size_t n_properties;
    const struct ax_name_map *roles; /* record's role → template's role; other roles are kept */
    size_t n_roles;
    const char *const *roles_to_train;
    size_t n_roles_to_train;
    enum ax_train_on train_on_eos, train_on_eot;
    const char *const *eot_tokens; /* none: the EOS token */
    size_t n_eot_tokens;
    const char *field_training;        /* message key: bool; NULL = none */
    const char *field_training_detail; /* key: [{begin_offset, end_offset, train}]; NULL = none */
    bool split_thinking;               /* moves <think>…</think> to thinking_key */
    const char *thinking_key;          /* the template's name for a message's reasoning */
    const char *field_thinking;        /* message key with the reasoning; NULL = thinking_key */
    bool drop_system;                  /* drops a leading system turn */
    bool leading_system_untrained;     /* the template cannot render a system turn alone */
    bool by_generation; /* trains on {% generation %} spans instead of searching for turns */
    int64_t now;        /* for strftime_now: the same in every record */
};

struct ax_format_user {
    const char *system_prompt, *system_format;
    const char *field_system, *field_instruction, *field_input, *field_output;
    const char *format, *no_input_format;
};

/* Columns and texts of a map as the type of pairs, unpaired answers and prompts. */
struct ax_format_answer_map {
    const char *field_prompt, *field_system, *field_chosen, *field_rejected;
    const char *field_completion, *field_label;
    const char *prompt_format, *chosen_format, *rejected_format, *completion_format;
};

/* How pairs, unpaired answers and prompts are read. */
struct ax_format_answers {
    const char *field_chosen, *field_rejected; /* columns of no type and of chat_template */
    const struct ax_format_answer_map *map;    /* not NULL: `type` is ignored */
    /* BOS and EOS are ids, added where they are missing, as in ORPO, CPO and SimPO of TRL. Otherwise
     * the tokenizer adds its BOS, and a text ends with the text of EOS. */
    bool framed_by_ids;
    /* The column `share` of a pair's tokens past the length of the shorter answer; of those before, it
     * is 1. */
    double tail_share;
    /* Prompts: each has an answer of its own, whose ids follow the record in the example's text. */
    bool own;
    bool turns; /* prompts must be messages: answers are conversations */
};

struct ax_format_steps {
    const char *separator;  /* text after each step; its last token is labeled */
    int64_t max_completion; /* tokens of all steps; 0 = no limit */
    bool last_only;         /* labels the last step only */
};

/* Log-probs of a teacher, for examples with columns for them (data/records/format/topk.h). */
struct ax_format_topk {
    const char *field;  /* column of a chat's */
    double temperature; /* temperature at which they were taken */
};

/* Answers and steps longer than sequence_len. */
enum ax_long {
    AX_LONG_USUAL, /* as is usual for the type */
    AX_LONG_KEEP,  /* untouched, for a rule that drops or refuses them */
    AX_LONG_CUT    /* the first sequence_len tokens */
};

enum ax_pretrain_mode {
    AX_PRETRAIN_WINDOWS, /* overlapping windows of sequence_len − 1, each with EOS */
    AX_PRETRAIN_CUT,     /* the first sequence_len − 2 tokens, no EOS */
    AX_PRETRAIN_JOIN,    /* the same with EOS and an untrained pad, to be concatenated */
    AX_PRETRAIN_WHOLE    /* everything with EOS, to be concatenated and split */
};

struct ax_format_synthetic {
    int64_t length, min_id, max_id; /* ids in [min_id, max_id) */
    uint64_t seed;
};

struct ax_format_options {
    enum ax_task task;
    const char *type; /* one of the names above; NULL = already tokenized, or TRL's columns */
    const struct ax_tokenizer *tokenizer;
    int64_t sequence_len;
    bool train_on_inputs;
    int32_t pad;       /* id; AX_NO_TOKEN: none */
    const char *field; /* text column of completion and pretrain */
    enum ax_pretrain_mode pretrain;
    /* for chat_template; answers: NULL if messages are refused */
    const struct ax_format_chat *chat;
    const struct ax_format_user *user; /* not NULL: the user's own format; `type` is ignored */
    struct ax_format_synthetic synthetic;
    const struct ax_format_answers *answers; /* for PAIR, UNPAIRED, REWARD and PROMPT; TEXT without
                                                a type: NULL if only tokens are read */
    const struct ax_format_steps *steps;     /* for STEPS */
    enum ax_long long_examples;              /* for all of those but PROMPT */
    struct ax_format_topk topk;
    const struct ax_columns *columns; /* columns of the examples; NULL: none */
};

struct ax_format;

/* A name that the configuration chose for something in the records, unlike the usual one. */
struct ax_format_name {
    const char *key, *name;
    enum {
        AX_NAME_RECORD,
        AX_NAME_MESSAGE,
        AX_NAME_ROLE
    } in;             /* a column, a message's key, a role */
    const char *role; /* the template's name for it, if it is a role */
    const char *then; /* what follows if no record has it; NULL: nothing to say */
};
/* The i-th, of which oddity AX_ODD_NAME + i counts the records without it; NULL: there are fewer. */
const struct ax_format_name *ax_format_name_at(const struct ax_format *f, size_t i);

/* Copies the options and borrows what they point to. AX_ERR_CONFIG for an unknown type, an unusable
 * text, or a missing token. */
enum ax_status ax_format_new(struct ax_format **out, const struct ax_format_options *o);
void ax_format_free(struct ax_format *f);
/* Warnings about this combination of options, template and tokenizer: "" or lines, each with \n. */
const char *ax_format_warnings(const struct ax_format *f);
/* Does the token end a turn or a text? EOS and a chat's end-of-turn tokens do. */
bool ax_format_is_end(const struct ax_format *f, int32_t id);
/* The first of these that the chat template writes after an answer: others end turns of users, or parts of an answer.
 * AX_NO_TOKEN: it writes none, or there is no template. */
enum ax_status ax_format_answer_end(const struct ax_format *f, int32_t *id);
/* The columns of the examples; NULL: none. */
const struct ax_columns *ax_format_columns(const struct ax_format *f);
/* The chat template that messages are rendered with; NULL: none. */
const struct ax_template *ax_format_template(const struct ax_format *f);
/* Per-thread scratch; zero-initialize. */
struct ax_format_work {
    struct ax_buf text;
    struct ax_encoding full, part, other;
    int32_t *labels;
    size_t cap_labels;
    const char
        *observation; /* a prompt's last message ends with this text; NULL: nothing. Borrowed */
    unsigned
        oddities; /* bits 1 << enum ax_oddity of the last record; if it was skipped, AX_ODD_LOST */
};
void ax_format_work_free(struct ax_format_work *w);
/* Adds what an environment says to the last of the messages of a prompt, as in TRL: the text follows directly, whatever
 * the message's role is. AX_ERR_DATA names the column if that has no text. */
enum ax_status ax_format_observe(const char *column, json_t *messages, const char *text);

/* Appends the examples of a record, possibly none. `record` is an object and may be changed.
 * AX_ERR_DATA says why the record is bad, AX_ERR_EMPTY that it has nothing to learn from: a blank
 * text, answer, prompt or step; both without its location; nothing is appended then. */
enum ax_status ax_format_record(const struct ax_format *f, struct ax_format_work *w, json_t *record,
                                struct ax_origin origin, struct ax_example_list *out);

/* All options that determine the examples, except for the tokenizer: part of a cache key. Free
 * with json_decref. */
enum ax_status ax_format_describe(const struct ax_format *f, json_t **out);

/* True if the text is only white space, by the rules of Python's str.isspace. UTF-8, followed by a
 * NUL or more text. */
bool ax_text_is_blank(const char *text, size_t len);

#endif

/* From a config to sequences: tokenizer, chat template, data sets, training and evaluation corpus,
 * and the loader that packs them. Every command that uses data opens this first.
 *
 * Reading order: tokenizer.c, template.c, entry.c (one data set), data.c (all of them), loader.c (packing and order). */
#ifndef AX_CMD_TRAIN_DATA_DATA_H
#define AX_CMD_TRAIN_DATA_DATA_H

#include "cmd/train/method.h"
#include "data/records/pipeline/prepared.h"
#include "data/records/pipeline/loader.h"
#include "data/records/pipeline/stream.h"
#include "data/text/stop_tokens.h"
#include "data/tools/tools.h"

/* Keys that need work before they are options. Arrays: of training, of evaluation. */
struct ax_data_keys {
    bool streaming, in_file_order; /* curriculum_sampling */
    double val_set_size;
    int64_t sequence_len[2];
    int64_t micro_batch_size, accumulation, eval_batch_size;
    bool packs[2], packs_in_order;
    const char *packing_strategy; /* NULL: first-fit */
    int64_t bin_size;
    bool real_batches; /* false: a packed sequence is as long as its micro-batch */
    const char *pad_to_sequence_len;
    int64_t pad_to_multiple_of;
    bool group_by_length, drop_last;
    bool separates_documents, joins_documents; /* keys of pretraining_dataset */
    const struct ax_yaml_node *eot_tokens, *mixing_weights;
    /* chat_template_kwargs, and those of prompts alone */
    const struct ax_yaml_node *template_variables, *prompt_variables;
};
void ax_data_keys_read(struct ax_data_keys *k, const struct ax_config *cfg);

/* ---- tokenizer ---- */

struct ax_token_keys {
    const char *folder;                    /* tokenizer_config; NULL: base_model's */
    const char *special[AX_SPECIAL_COUNT]; /* NULL: the tokenizer's own */
    const struct ax_yaml_node *more;       /* list: special tokens without a role */
    const struct ax_yaml_node *added;      /* list: ordinary ones */
    const struct ax_yaml_node *renamed;    /* map: id → text */
};

struct ax_setup_tokenizer {
    struct ax_token_keys keys;
    struct ax_tokenizer *tokenizer; /* including the config's special and added tokens */
    char *path;                     /* folder or GGUF file */
    bool is_gguf;
    /* the folder's tokenizer of Mistral's own, if that says how a chat is written, or NULL */
    char *own;
    json_t *tokens;        /* special tokens for chat templates: {"bos_token": "<s>", …} */
    int32_t bos, eos, pad; /* ids; pad is EOS if the tokenizer has none */
    size_t n_new;        /* tokens of the config that the tokenizer lacks, but one that only pads */
    bool named_mistral;  /* its name contains Mistral; affects some templates */
    bool keeps_template; /* its chat template is its own, whatever the config names */
    char key[40];        /* identifies the tokenizer in cache keys */
};
enum ax_status ax_setup_tokenizer_open(struct ax_setup_tokenizer *t, const struct ax_config *cfg);
/* Another model's, as it is: without what the config adds, and with its own chat template. */
enum ax_status ax_setup_tokenizer_of(struct ax_setup_tokenizer *t, const char *folder);
void ax_setup_tokenizer_close(struct ax_setup_tokenizer *t);

/* Keys of a data set, or of all. NULL: unset. */
struct ax_template_keys {
    const char *name, *jinja;
};
/* The chat template of a data set: "datasets.0" and so on; "" = the top-level one. *tool_use: the
 * model's own for conversations with tools, if its other one is used and it has one; else NULL. The
 * pointer may be NULL. */
enum ax_status ax_setup_template(struct ax_template **out, struct ax_template **tool_use,
                                 const struct ax_config *cfg, const struct ax_setup_tokenizer *t,
                                 const char *entry);

/* ---- tools (tools.c) ---- */

struct ax_setup_data;

struct ax_tool_keys {
    const struct ax_yaml_node *tools;       /* list; NULL: unset */
    const struct ax_yaml_node *environment; /* a text, or a map of texts; NULL: unset */
    const char *format;
};
/* Do answers have turns: tools that they call, or an environment? */
bool ax_setup_has_turns(const struct ax_config *cfg);
/* Opens trl.tools and trl.environment_factory, up to definitions; *out NULL: there are none. */
enum ax_status ax_setup_tools_open(struct ax_tools **out, const struct ax_config *cfg);
/* AX_ERR_CONFIG, with `why`, if a data set has another type, other columns or another template than the first. */
enum ax_status ax_setup_check_alike(const struct ax_setup_data *d, const char *why);
/* How the records of `d`, which is open, go on after calls of its tools, for each of its environments, or one for all
 * if there is none. `format`: as of ax_tool_chat_open. `stop`: ends of an answer, which get those of turns; borrowed. */
struct ax_stop_tokens;
enum ax_status ax_setup_chats_open(struct ax_tool_chat *chats, const struct ax_setup_data *d,
                                   const char *format, struct ax_stop_tokens *stop);

/* ---- one data set ---- */

struct ax_entry_keys {
    const struct ax_yaml_node *type, *properties, *roles, *roles_to_train, *data_files;
    const char *train_on_eos, *train_on_eot; /* train_on_eot NULL: as train_on_eos */
    const char *delimiter;                   /* separator of CSV; NULL: as the header says */
    int64_t length;                          /* records of type _synthetic */
    double weight;                           /* 0: unset */
};

/* Owns what formats borrow, including copies of the options, until the entry is closed. */
struct ax_setup_entry {
    char path[64]; /* "datasets.0" */
    struct ax_entry_keys keys;
    struct ax_rows *rows;
    struct ax_format *format;
    struct ax_template *template, *tool_use;
    struct ax_format_chat chat;
    struct ax_format_user user;
    struct ax_format_answers answers;
    struct ax_format_answer_map answer_map;
    struct ax_format_steps steps;
    json_t *kwargs;
    void **owned;
    size_t n_owned;
};
/* Opens entry `index` of `list` for the objective of `d`, whose tokenizer is open. */
enum ax_status ax_setup_entry_open(struct ax_setup_entry *e, const struct ax_setup_data *d,
                                   const char *list, size_t index);
void ax_setup_entry_close(struct ax_setup_entry *e);
/* The source of its records. Requires e->path, and reads e->keys; `e` owns what the options borrow. */
enum ax_status ax_setup_entry_rows(struct ax_setup_entry *e, const struct ax_config *cfg,
                                   struct ax_rows_options *out);

/* ---- all data sets ---- */

struct ax_setup_sets {
    struct ax_setup_entry *entries;         /* [n] */
    struct ax_examples *sets;               /* [n]; none if streamed */
    struct ax_stream_entry *stream_entries; /* [n] if streamed */
    size_t n;
};

struct ax_setup_data {
    const struct ax_config *cfg;
    struct ax_data_keys keys;
    /* the method, whose objective defines columns and groups of examples */
    struct ax_setup_method method;
    struct ax_setup_tokenizer tok;
    struct ax_tools *tools; /* trl.tools, that prompts are asked with; NULL: none */
    /* definitions of tools in place of the records' own: of `tools`, or the caller's; NULL: none */
    const json_t *tool_definitions;
    struct ax_stop_tokens ends; /* tokens that end answers in chats to train on, beside EOS */
    struct ax_setup_sets train_sets, eval_sets;
    struct ax_stream *stream; /* NULL: the examples are stored */
    struct ax_corpus train, eval;
    struct ax_corpus_report train_report, eval_report;
    /* sequences */
    struct ax_corpus_source train_source, eval_source;
    struct ax_example_source train_examples, eval_examples;
    struct ax_loader *train_loader, *eval_loader; /* NULL: nothing to evaluate on */
    int64_t sequences_per_batch;                  /* per micro-batch */
    int64_t sequences_per_step;                   /* per step of one data rank */
    int64_t sequence_tokens;                      /* capacity; also eval_sequence_tokens */
    int64_t eval_sequence_tokens;
    enum ax_pack_mode pack_mode[2]; /* [evaluation] */
    int64_t pad_multiple;           /* sequences are padded to a multiple; 1 = no padding */
    bool drop_last;                 /* drop a last step with fewer sequences */
    bool drop_partial;              /* drop only a last micro-batch with fewer */
};

/* `cfg` is borrowed. `refresh` rebuilds prepared sets. */
enum ax_status ax_setup_data_open(struct ax_setup_data *d, const struct ax_config *cfg,
                                  bool refresh);
/* The same for records that are asked with these tools; definitions, borrowed. NULL: with their own. */
enum ax_status ax_setup_data_open_asked(struct ax_setup_data *d, const struct ax_config *cfg,
                                        const json_t *tools);
/* Computes only the sizes of sequences and steps, without tokenizer or data. */
enum ax_status ax_setup_data_sizes(struct ax_setup_data *d, const struct ax_config *cfg);
void ax_setup_data_close(struct ax_setup_data *d);
/* The tokens that end answers of a run: those of the folder `base`, EOS, and the ends of turns. */
enum ax_status ax_setup_stops(struct ax_stop_tokens *out, const char *base,
                              const struct ax_setup_data *d);
/* AX_ERR_DATA if there is nothing to train on, with the reason. Streams: unknown in advance. */
enum ax_status ax_setup_data_require(const struct ax_setup_data *d);
/* Warnings about the data before training; one log line each. */
typedef enum ax_status ax_setup_warn(void *ctx, const char *text);
ax_setup_warn ax_setup_warn_log; /* writes to the log; ctx is not used */
enum ax_status ax_setup_data_warnings(const struct ax_setup_data *d, ax_setup_warn *warn,
                                      void *ctx);
/* Calls tell for each data set of CSV or text, with a line on how it is divided into records. */
enum ax_status ax_setup_data_forms(const struct ax_setup_data *d, ax_setup_warn *tell, void *ctx);
/* Appends a line with what the entry's chat template leaves out of tools; nothing if there is nothing. */
enum ax_status ax_setup_put_lost(struct ax_buf *out, const struct ax_setup_entry *e,
                                 const struct ax_examples *set);

/* ---- parts, used by ax_setup_data_open ---- */

bool ax_setup_pretrains(const struct ax_config *cfg);
bool ax_setup_is_streamed(const struct ax_config *cfg);
enum ax_pretrain_mode ax_setup_pretrain_mode(const struct ax_data_keys *k);
enum ax_status ax_setup_loaders_open(struct ax_setup_data *d);

#endif

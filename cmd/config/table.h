/* The key table.
 *
 * One row per key, grouped into sections as in help, docs and schema. Rows that act are in
 * cmd/train/keys_<theme>.c, beside what reads them, those of trackers in cmd/tracker/tracker_keys.c, the
 * others in keys_rest.c; keys.c has the sections, the capabilities, and the lookups.
 *
 * A row's path is a pattern: "datasets[].path" is the path of every entry of the list datasets,
 * "fsdp_config.offload_params" a key inside a map. */
#ifndef AX_CMD_CONFIG_TABLE_H
#define AX_CMD_CONFIG_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/mem.h"
#include "cmd/config/config.h"

#define AX_CONFIG_PATH 256 /* longest supported key path */

/* The type of a value: kinds or-ed together, with the range of numbers and the kinds of the
 * elements of a list or open map. null always means "unset". */
enum {
    AX_T_BOOL = 1,
    AX_T_INT = 2,
    AX_T_NUM = 4, /* integers too */
    AX_T_STR = 8,
    AX_T_LIST = 16,
    AX_T_MAP = 32,
    AX_T_ANY = 64,   /* passed through as written */
    AX_T_HOME = 128, /* "~/" at the start of a string is HOME, as in shells */
    AX_T_PATH = AX_T_STR | AX_T_HOME,
    AX_T_SCALAR = AX_T_BOOL | AX_T_INT | AX_T_NUM | AX_T_STR
};

enum ax_config_range {
    AX_R_ANY,
    AX_R_POSITIVE,
    AX_R_NOT_NEGATIVE,
    AX_R_FROM_TWO,
    AX_R_FROM_MINUS_ONE, /* -1 = unset or no limit */
    AX_R_FRACTION,       /* 0 to 1 */
    AX_R_BELOW_ONE,      /* 0 to 1, excluding 1 */
    AX_R_COUNT
};

#define AX_RANGE(range) (AX_R_##range << 8)
#define AX_OF(kinds)    ((kinds) << 16)

enum {
    AX_T_COUNT = AX_T_INT | AX_RANGE(POSITIVE),
    AX_T_INDEX = AX_T_INT | AX_RANGE(NOT_NEGATIVE),
    AX_T_AMOUNT = AX_T_NUM | AX_RANGE(NOT_NEGATIVE),
    AX_T_POSITIVE = AX_T_NUM | AX_RANGE(POSITIVE),
    AX_T_SHARE = AX_T_NUM | AX_RANGE(FRACTION),
    AX_T_BELOW_ONE = AX_T_NUM | AX_RANGE(BELOW_ONE),
    AX_T_STRINGS = AX_T_LIST | AX_OF(AX_T_STR),
    AX_T_MAPS = AX_T_LIST | AX_OF(AX_T_MAP),
    AX_T_OPTIONS = AX_T_MAP | AX_OF(AX_T_ANY) /* a map with user-defined names */
};

enum ax_config_support {
    AX_SUPPORT_ACTS,         /* works as described, once its capability exists */
    AX_SUPPORT_APPROXIMATED, /* approximately: note says how */
    AX_SUPPORT_NO_EFFECT,    /* safe to ignore here: note says why */
    AX_SUPPORT_NOT_YET,      /* derived: the row's capability is missing */
    AX_SUPPORT_REFUSED,      /* an error; note says what to write instead */
    AX_SUPPORT_COUNT
};

/* What the program cannot do yet, by the name used in messages. When one is implemented, remove its
 * line and the AX_NEEDS of its rows. */
/* clang-format off */
#define AX_CAPABILITIES(X)                                                                         \
    X(OTHER_OPTIM, "other-optimizers", "optimizers beyond AdamW, SGD, Lion, Adafactor and Muon")   \
    X(LORA_INIT, "adapter-variants", "other adapter initializations, shapes and learning rates")   \
    X(LOFTQ, "loftq", "adapters that start from the error of quantization (LoftQ)")                \
    X(EBFT, "ebft", "energy-based fine-tuning")                                                    \
    X(LOGPROBS, "teacher-logprobs", "log-probs of a teacher from a server; use kd_teacher: URL")   \
    X(OTHER_RL, "other-rl", "more losses and options for preference and reinforcement training")   \
    X(OTEL, "opentelemetry", "metrics over OpenTelemetry")                                         \
    X(HUB_DATA_UPLOAD, "hub-data-upload", "uploading prepared data to the hub")                    \
    X(REMOTE_DATA, "remote-data", "data from URLs and object stores")                              \
    X(DATASET_TYPES, "other-dataset-types", "less common data set types")                          \
    X(COMMAND_A, "command-a-templates", "chat templates of Command A; use chat_template_jinja")    \
    X(PYTHON, "python", "Python code named in the YAML file")                                      \
    X(MULTIMODAL, "multimodal", "images and audio")                                                \
    X(NVFP4, "nvfp4-bases", "bases quantized to NVFP4")                                            \
    X(BITNET, "bitnet", "1-bit models (BitNet)")                                                   \
    X(LINEAR_EXPERTS, "linearized-experts", "experts of Llama 4 as separate matrices")             \
    X(NONEXPERT, "nonexpert-quantization", "quantizing what is not an expert")                     \
    X(SPARSE_ATTENTION, "sparse-attention", "DeepSeek-V4 and GLM models with sparse attention")    \
    X(SHRINK, "shrink-embeddings", "embeddings with fewer rows than the base has")                 \
    X(TOKEN_CAPACITY, "token-capacity", "a limit of tokens for each expert")                       \
    X(OTHER_LR, "other-schedules", "less common learning-rate schedules")                          \
    X(LR_GROUPS, "lr-groups", "separate learning rates for some parameters")                       \
    X(SCALED_SOFTMAX, "scaled-softmax", "attention scores scaled by the length")                   \
    X(TOKEN_SCALING, "token-scaling", "losses scaled by the token's probability")                  \
    X(LONG_CONTEXT, "pose", "position skipping")                                                   \
    X(UNTRAINED_TOKENS, "untrained-tokens", "new embeddings for tokens that were never trained")   \
    X(TEXT_METRICS, "text-metrics", "benchmarks and text metrics during training")                 \
    X(AUTO_BATCH, "auto-batch", "finding the batch size automatically")                            \
    X(PLUGINS, "plugins", "features of this plugin")
/* clang-format on */

enum ax_capability {
    AX_CAP_NONE,
#define AX_CAP_ENUM(id, name, meaning) AX_CAP_##id,
    AX_CAPABILITIES(AX_CAP_ENUM)
#undef AX_CAP_ENUM
        AX_CAP_COUNT
};

struct ax_capability_info {
    const char *name, *meaning;
};

/* A key that needs one of these requests another objective, even if the key that selects it is
 * missing. Such a run stops, because it would train something that was not requested. */
static inline bool ax_capability_is_objective(enum ax_capability cap) {
    return cap >= AX_CAP_EBFT && cap <= AX_CAP_OTHER_RL;
}

/* The kind of a field that a key's value is put into. A word is the number of a choice: an enum, in
 * the order of the choices. */
enum ax_config_field_kind {
    AX_FIELD_BOOL,
    AX_FIELD_INT,
    AX_FIELD_I64,
    AX_FIELD_U64,
    AX_FIELD_F64,
    AX_FIELD_TEXT,
    AX_FIELD_NODE, /* a list, a map, or a value whose kind matters, as it is in the file */
    AX_FIELD_WORD
};

struct ax_config_field {
    const char *type; /* "struct ax_policy_options"; NULL ends a list */
    size_t offset;
    enum ax_config_field_kind kind;
};

/* clang-format off */
#define AX_FIELD_KIND(field)                                                                       \
    _Generic((field), bool: AX_FIELD_BOOL, int: AX_FIELD_INT, int64_t: AX_FIELD_I64,               \
             uint64_t: AX_FIELD_U64, double: AX_FIELD_F64, const char *: AX_FIELD_TEXT,            \
             const struct ax_yaml_node *: AX_FIELD_NODE, unsigned: AX_FIELD_WORD)
/* clang-format on */
#define AX_FIELD(type_, field)                                                                     \
    { #type_, offsetof(type_, field), AX_FIELD_KIND(((type_ *)0)->field) }

struct ax_config_key {
    const char *path;
    unsigned types;      /* AX_T_… */
    const char *help;    /* one sentence; NULL if support says it all */
    const char *dflt;    /* as YAML text; NULL = unset */
    const char *choices; /* strings accepted, "a|b|pre*|@names"; NULL = any */
    enum ax_config_support support;
    enum ax_capability needs;
    const char *when; /* condition (rules.h) under which the key is active; NULL = always */
    const char *note; /* how, why or what instead, see support */
    bool secret;      /* its value is never printed or written to a file */
    bool fixed;       /* a resumed run must have the value that it was started with */
    const struct ax_config_field *into; /* fields that ax_config_fill sets; NULL = none */
};

/* A row with optional fields; and those fields. */
#define AX_KEY(path_, types_, help_, ...)                                                          \
    { .path = path_, .types = types_, .help = help_, __VA_ARGS__ }
/* Where the value goes: AX_INTO(AX_FIELD(struct ax_policy_options, beta)), or several. */
#define AX_INTO(...)                                                                               \
    .into = (const struct ax_config_field[]) {                                                     \
        __VA_ARGS__, {                                                                             \
            0                                                                                      \
        }                                                                                          \
    }
#define AX_FIXED            .fixed = true
#define AX_NEEDS(cap)       .needs = AX_CAP_##cap
#define AX_ROUGHLY(how)     .support = AX_SUPPORT_APPROXIMATED, .note = how
#define AX_NO_EFFECT(why)   .support = AX_SUPPORT_NO_EFFECT, .note = why
#define AX_REFUSED(instead) .support = AX_SUPPORT_REFUSED, .note = instead

static inline enum ax_config_range ax_config_range_of(const struct ax_config_key *key) {
    return (enum ax_config_range)(key->types >> 8 & 0xff);
}

/* The kinds of a list's elements or an open map's values; 0: neither. */
static inline unsigned ax_config_elements(const struct ax_config_key *key) {
    return key->types >> 16;
}

/* The rows; the last one has no path. */
extern const struct ax_config_key ax_config_keys_model[], ax_config_keys_tokenizer[],
    ax_config_keys_datasets[], ax_config_keys_packing[], ax_config_keys_steps[],
    ax_config_keys_optim[], ax_config_keys_schedule[], ax_config_keys_eval[],
    ax_config_keys_serve[], ax_config_keys_save[], ax_config_keys_precision[],
    ax_config_keys_loss[], ax_config_keys_adapter[], ax_config_keys_rl[], ax_config_keys_kd[],
    ax_config_keys_quant[], ax_config_keys_mesh[], ax_config_keys_log[],
    ax_config_keys_unsupported_data[], ax_config_keys_unsupported[], ax_config_keys_no_effect[],
    ax_config_keys_removed[];

/* Printed in place of a secret. */
#define AX_CONFIG_HIDDEN "(hidden)"
/* True if there is a secret at this path. */
bool ax_config_hides(const char *path, const struct ax_yaml_node *node);

struct ax_config_section {
    const char *title;
    const struct ax_config_key *keys;
    bool text;  /* read also by commands that only prepare text */
    bool brief; /* inactive keys, listed without help */
};
extern const struct ax_config_section ax_config_sections[];
extern const size_t ax_config_n_sections;

/* Values whose support differs from their key's: `values` is written like choices, with *
 * anywhere. */
struct ax_config_value {
    const char *path, *values;
    enum ax_config_support support;
    enum ax_capability needs;
    const char *note;
};
extern const struct ax_config_value ax_config_values[];
extern const size_t ax_config_n_values;

/* A renamed key. Without `text`, the value moves to the key `now`; with it, `now` becomes `text` if
 * the value matches `from` (flash_attention: true → attn_implementation: flash_attention_2); `from`
 * "{}" is any map. Rows with one path are contiguous; the first that sets a key wins. */
struct ax_config_renamed {
    const char *path, *now;
    const char *from, *text;
};
extern const struct ax_config_renamed ax_config_renamed[];
extern const size_t ax_config_n_renamed;

/* A key that appears in real files although nothing has ever read it. */
struct ax_config_ignored {
    const char *path, *instead; /* instead may be NULL */
};
extern const struct ax_config_ignored ax_config_ignored[];
extern const size_t ax_config_n_ignored;

/* Other trainers' names, only for suggestions: of our keys, or of what we have no key for. */
struct ax_config_other_trainers {
    const char *name, *ours; /* name: may end in *; ours NULL: none */
    const char *instead;     /* then: what makes it unnecessary */
};
extern const struct ax_config_other_trainers ax_config_other_trainers[];
extern const size_t ax_config_n_other_trainers;

/* A value derived from other keys if it is not set: `value` is YAML text, or '=' and the path of
 * another key. */
struct ax_config_derived {
    const char *path, *when, *value;
};
extern const struct ax_config_derived ax_config_derived[];
extern const size_t ax_config_n_derived;

const struct ax_capability_info *ax_capability_info(enum ax_capability cap);
const char *ax_config_support_name(enum ax_config_support support);

/* The row of a concrete ("datasets.0.path") or pattern path, or NULL. The lists test_datasets and
 * pretraining_dataset share the rows of datasets. */
const struct ax_config_key *ax_config_find(const char *path);
/* The section of a row. */
const struct ax_config_section *ax_config_section_of(const struct ax_config_key *key);
/* Replaces indices by []: "datasets.0.path" → "datasets[].path"; false if it does not fit. */
bool ax_config_pattern(const char *path, char *out, size_t size);
/* True if `path` is a direct child of the map `parent` ("" = top level, "datasets[]" = an entry of
 * datasets). Then *name is its last part. */
bool ax_config_child(const char *path, const char *parent, const char **name);
/* The part after the last dot. */
const char *ax_config_last_part(const char *path);
/* The other path with rows for the same place: "test_datasets[]" → "datasets[]"; otherwise a copy
 * of the pattern. */
void ax_config_shared(const char *pattern, char *buf, size_t size);
/* Iterates over the keys of the map `parent` in table order, including those of lists that share
 * theirs: begin, then next until it returns NULL. */
struct ax_config_children {
    char parent[AX_CONFIG_PATH], shared[AX_CONFIG_PATH];
    bool in_shared;
    size_t section, row;
    const char *name; /* name of the key that next returned */
};
void ax_config_children_begin(struct ax_config_children *it, const char *parent);
const struct ax_config_key *ax_config_children_next(struct ax_config_children *it);
bool ax_config_has_children(const char *parent);

/* The support of a row or value, given the missing capabilities. */
enum ax_config_support ax_config_support_of(enum ax_config_support support,
                                            enum ax_capability needs);
/* True if both lack an effect for the same reason, under the same condition. */
bool ax_config_same_reason(const struct ax_config_key *a, const struct ax_config_key *b);
/* Finds the row about a value of the key, in the value table or in another module's names; false if
 * there is none. */
bool ax_config_find_value(const struct ax_config_key *key, const char *text,
                          struct ax_config_value *out);
/* True if a run may have this value: nothing that it needs is missing, and it is not refused. */
bool ax_config_accepts(const struct ax_config_key *key, const char *text);
/* True if text matches one of the choices ("a|b|pre*"). */
bool ax_config_choice(const char *choices, const char *text);
/* Copies the i-th choice into buf; false past the end. */
bool ax_config_choice_at(const char *choices, size_t i, char *buf, size_t size);
/* "a positive integer", "one of drop, truncate, raise" … for the given kinds (of the key or its
 * elements), for errors and help. */
enum ax_status ax_config_expected(const struct ax_config_key *key, unsigned types,
                                  struct ax_buf *out);
/* True if the number is within the range. */
bool ax_config_in_range(enum ax_config_range range, double v);

#endif

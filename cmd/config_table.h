/* The shape of the key table, private to the config_*.c files.
 *
 * One row per key. Rows live in config_keys_<theme>.c, grouped into the sections that help, docs
 * and schema follow; config_keys.c holds the list of sections, the capabilities, and the lookups.
 *
 * A row's path is a pattern: "datasets[].path" stands for the path of every entry of the list
 * datasets, "fsdp_config.offload_params" for a key inside a map. */
#ifndef AX_CMD_CONFIG_TABLE_H
#define AX_CMD_CONFIG_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/mem.h"
#include "cmd/config.h"

#define AX_CONFIG_PATH 256 /* longest key path that is understood */

/* What a value may be; a key takes any of the kinds or-ed together. null always means "unset". */
enum {
    AX_T_BOOL = 1,
    AX_T_INT = 2,
    AX_T_NUM = 4, /* integers too */
    AX_T_STR = 8,
    AX_T_LIST = 16,
    AX_T_MAP = 32,
    AX_T_ANY = 64 /* handed on as written */
};

enum ax_config_range {
    AX_R_ANY,
    AX_R_POSITIVE,
    AX_R_NOT_NEGATIVE,
    AX_R_FROM_TWO,
    AX_R_FROM_MINUS_ONE, /* -1 = unset or no limit */
    AX_R_FRACTION,       /* 0 to 1 */
    AX_R_BELOW_ONE,      /* 0 to 1, not 1 itself */
    AX_R_COUNT
};

enum ax_config_fate {
    AX_FATE_ACTS,         /* does what it says, once its capability is there */
    AX_FATE_APPROXIMATED, /* the same, but not quite: note says how */
    AX_FATE_NO_EFFECT,    /* safe to ignore here: note says why */
    AX_FATE_NOT_YET,      /* computed: the row's capability is missing */
    AX_FATE_REFUSED,      /* an error; note says what to write instead */
    AX_FATE_COUNT
};

/* What the program can do, or will: the rows name what they need. */
enum ax_capability {
    AX_CAP_NONE,
    AX_CAP_DATA,
    AX_CAP_TRAIN,
    AX_CAP_OPTIM_8BIT,
    AX_CAP_MASTERS,
    AX_CAP_LION,
    AX_CAP_ADAFACTOR,
    AX_CAP_MUON,
    AX_CAP_OTHER_OPTIM,
    AX_CAP_NEFTUNE,
    AX_CAP_LORA,
    AX_CAP_QLORA,
    AX_CAP_DORA,
    AX_CAP_LORA_INIT,
    AX_CAP_EXPERT_LORA,
    AX_CAP_MERGE,
    AX_CAP_DPO,
    AX_CAP_ORPO,
    AX_CAP_KTO,
    AX_CAP_SIMPO,
    AX_CAP_GRPO,
    AX_CAP_PPO,
    AX_CAP_EBFT,
    AX_CAP_OTHER_RL,
    AX_CAP_REWARD_MODEL,
    AX_CAP_PRM,
    AX_CAP_QAT,
    AX_CAP_OTHER_QAT,
    AX_CAP_QUANTIZE,
    AX_CAP_SHARD,
    AX_CAP_TENSOR_PARALLEL,
    AX_CAP_CONTEXT_PARALLEL,
    AX_CAP_PIPELINE_PARALLEL,
    AX_CAP_EXPERT_PARALLEL,
    AX_CAP_FP8,
    AX_CAP_TENSORBOARD,
    AX_CAP_WANDB,
    AX_CAP_MLFLOW,
    AX_CAP_COMET,
    AX_CAP_TRACKIO,
    AX_CAP_SWANLAB,
    AX_CAP_OTEL,
    AX_CAP_HUB_UPLOAD,
    AX_CAP_HUB_DATA_UPLOAD,
    AX_CAP_REMOTE_DATA,
    AX_CAP_DATASET_TYPES,
    AX_CAP_TEMPLATES,
    AX_CAP_PYTHON,
    AX_CAP_MISTRAL_COMMON,
    AX_CAP_MULTIMODAL,
    AX_CAP_PREQUANTIZED,
    AX_CAP_MODEL_OPTIONS,
    AX_CAP_OTHER_LR,
    AX_CAP_LR_GROUPS,
    AX_CAP_LOSS_VARIANTS,
    AX_CAP_LONG_CONTEXT,
    AX_CAP_PARTIAL_TRAINING,
    AX_CAP_TEXT_METRICS,
    AX_CAP_AUTO_BATCH,
    AX_CAP_PLUGINS,
    AX_CAP_COUNT
};

struct ax_capability_info {
    const char *name;
    bool present; /* the one place to say that a capability has landed */
    const char *meaning;
};

struct ax_config_key {
    const char *path;
    unsigned types;             /* AX_T_… */
    unsigned of;                /* kinds of the elements of a list, of the values of an open map */
    const char *dflt;           /* as YAML text; NULL = unset */
    const char *choices;        /* strings accepted, "a|b|pre*"; NULL = any */
    enum ax_config_range range; /* for numbers */
    enum ax_config_fate fate;
    enum ax_capability needs;
    const char
        *when; /* condition (config_rules.h) under which the key acts at all; NULL = always */
    const char *note; /* says how, why or what instead, see the fates */
    const char *help; /* one sentence */
};

/* Shorthand for the last fields of a row. */
#define AX_ACTS(cap)         .fate = AX_FATE_ACTS, .needs = AX_CAP_##cap
#define AX_ROUGHLY(cap, how) .fate = AX_FATE_APPROXIMATED, .needs = AX_CAP_##cap, .note = how
#define AX_IGNORED(why)      .fate = AX_FATE_NO_EFFECT, .note = why
#define AX_REFUSED(instead)  .fate = AX_FATE_REFUSED, .note = instead

struct ax_config_section {
    const char *title;
    const struct ax_config_key *keys;
    const size_t *n;
    bool text; /* read by commands that only prepare text, not just by training */
};
extern const struct ax_config_section ax_config_sections[];
extern const size_t ax_config_n_sections;

/* A value whose fate is not its key's. `value` may hold * anywhere. */
struct ax_config_value {
    const char *path, *value;
    enum ax_config_fate fate;
    enum ax_capability needs;
    const char *note;
};
extern const struct ax_config_value ax_config_values[];
extern const size_t ax_config_n_values;

/* An old spelling. Without `text` the value moves to the key `now`; with it, `now` becomes `text`
 * when the value matches `from` (flash_attention: true → attn_implementation: flash_attention_2);
 * `from` "{}" is any map.
 * Rows of one path stand together, and the first that sets a key wins. */
struct ax_config_old {
    const char *path, *now;
    const char *from, *text;
};
extern const struct ax_config_old ax_config_olds[];
extern const size_t ax_config_n_olds;

/* A key that real files carry although nothing ever read it. */
struct ax_config_dead {
    const char *path, *instead; /* instead may be NULL */
};
extern const struct ax_config_dead ax_config_deads[];
extern const size_t ax_config_n_deads;

/* What other trainers call a key of ours; only for suggestions. */
struct ax_config_foreign {
    const char *name, *ours;
};
extern const struct ax_config_foreign ax_config_foreigns[];
extern const size_t ax_config_n_foreigns;

/* A resolved value that follows from others when it is not set itself: `value` is YAML text, or the
 * path of another key after '='. */
struct ax_config_derived {
    const char *path, *when, *value;
};
extern const struct ax_config_derived ax_config_deriveds[];
extern const size_t ax_config_n_deriveds;

const struct ax_capability_info *ax_capability_info(enum ax_capability cap);
const char *ax_config_fate_name(enum ax_config_fate fate);

/* The row of a concrete ("datasets.0.path") or pattern path; NULL where there is none. The lists
 * test_datasets and pretraining_dataset share the rows of datasets. */
const struct ax_config_key *ax_config_find(const char *path);
/* The section of a row. */
const struct ax_config_section *ax_config_section_of(const struct ax_config_key *key);
/* Turns indices into []: "datasets.0.path" → "datasets[].path"; false when it does not fit. */
bool ax_config_pattern(const char *path, char *out, size_t size);
/* Is `path` a direct child of the map `parent` ("" = top level, "datasets[]" = an entry of
 * datasets)? Then *name is its last part. */
bool ax_config_child(const char *path, const char *parent, const char **name);
/* The other path under which rows for the same place stand: "test_datasets[]" → "datasets[]"; a
 * copy of the pattern where there is none. */
void ax_config_shared(const char *pattern, char *buf, size_t size);
/* Walks the keys of the map `parent` in the table's order, those of lists that share theirs
 * included: begin, then next until it returns NULL. */
struct ax_config_children {
    char parent[AX_CONFIG_PATH], shared[AX_CONFIG_PATH];
    bool in_shared;
    size_t section, row;
    const char *name; /* of the key that next returned */
};
void ax_config_children_begin(struct ax_config_children *it, const char *parent);
const struct ax_config_key *ax_config_children_next(struct ax_config_children *it);
bool ax_config_has_children(const char *parent);

/* The fate of a row, or of one of its values, with missing capabilities seen. */
enum ax_config_fate ax_config_fate_of(enum ax_config_fate fate, enum ax_capability needs);
/* The row of the value table for this text, or NULL. */
const struct ax_config_value *ax_config_find_value(const struct ax_config_key *key,
                                                   const char *text);
/* Does text match one of the choices ("a|b|pre*")? */
bool ax_config_choice(const char *choices, const char *text);
/* The i-th choice into buf; false past the end. */
bool ax_config_choice_at(const char *choices, size_t i, char *buf, size_t size);
/* "a positive integer", "one of drop, truncate, raise" … for the given kinds (the key's own, or
 * those of its elements), for errors and help. */
enum ax_status ax_config_expected(const struct ax_config_key *key, unsigned types,
                                  struct ax_buf *out);
/* Does a number fit the range? */
bool ax_config_in_range(enum ax_config_range range, double v);

#endif

/* The YAML that describes a run: loaded strictly, overridden from the command line, and read by
 * key.
 *
 * Life: ax_config_load → (ax_config_require) → readers → ax_config_free. Loading checks every key
 * and value against the table (table.h), turns old spellings into today's, fills in values
 * that follow from others, and reports all mistakes at once, each with file:line:column. It accepts
 * keys whose effect this program does not have yet; ax_config_require refuses them, so that no
 * command goes on without something it was asked for.
 *
 * Readers take a key path as a printf format: ax_config_str(cfg, "datasets.%zu.path", i). A path
 * that is not in the table, or of another type, is a bug and asserts. Unset keys read as their
 * default.
 *
 * Reading order: table.h (a key's row), keys*.c (the rows), config.c (loading), renamed.c,
 * check.c, derive.c, rules.c (its steps), get.c (readers), notes.c; help.c, show.c, schema.c,
 * docs.c (output). */
#ifndef AX_CMD_CONFIG_CONFIG_H
#define AX_CMD_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/yaml.h"

enum ax_config_note_kind {
    AX_NOTE_RENAMED,      /* an old spelling was understood */
    AX_NOTE_NO_EFFECT,    /* safe to ignore here */
    AX_NOTE_UNUSED,       /* acts only together with another key */
    AX_NOTE_IGNORED,      /* nothing ever read it */
    AX_NOTE_APPROXIMATED, /* done, but not quite so */
    AX_NOTE_NOT_YET,      /* this program cannot do it: training stops */
    AX_NOTE_KINDS
};

struct ax_config_note {
    enum ax_config_note_kind kind;
    bool text_side; /* matters to commands that only prepare text too */
    char *path;     /* "datasets.0.type", as spelled in the file */
    char *text;     /* what there is to know, one line; for NOT_YET the capability's name */
    char *where;    /* "config.yaml:7:3" */
};

/* Names that a table of another room owns, where a key's choices say "@WHAT". The language includes
 * no room above base/: whoever links it defines the list, which ends with NULL. */
struct ax_config_names {
    const char *what;
    /* The i-th name, NULL past the last. *note: how it is approximated, NULL where it acts. */
    const char *(*at)(size_t i, const char **note);
};
extern const struct ax_config_names ax_config_names[]; /* cmd/train/names.c */

struct ax_config_follow {
    char *path;
    char *from; /* what it follows from, in words */
};

struct ax_config {
    struct ax_yaml_doc doc;      /* in today's spellings */
    struct ax_yaml_doc defaults; /* by pattern path */
    struct ax_config_note *notes;
    size_t n_notes;
    struct ax_config_follow *follows; /* values that follow from others */
    size_t n_follows;
};

/* Loads path and applies n overrides in order: "key=value", or "--key" "value" ("--key=value"),
 * with values in YAML and null to unset. AX_ERR_CONFIG lists what is wrong. On failure cfg is
 * empty. */
enum ax_status ax_config_load(struct ax_config *cfg, const char *path, int n, char **overrides);
/* The same for text that is in memory; name stands for the file. */
enum ax_status ax_config_parse(struct ax_config *cfg, const char *name, const char *text,
                               size_t len, int n, char **overrides);
void ax_config_free(struct ax_config *cfg);

enum ax_config_use {
    AX_CONFIG_FOR_TEXT,    /* tokenize, preview, preprocess: no training keys needed */
    AX_CONFIG_FOR_TRAINING /* everything */
};
/* AX_ERR_CONFIG when a required key is missing, AX_ERR_UNSUPPORTED when a key asks for something
 * this program does not do yet; lists all of them. */
enum ax_status ax_config_require(const struct ax_config *cfg, enum ax_config_use use);
/* One log line for each note, NOT_YET left out. */
void ax_config_log_notes(const struct ax_config *cfg);

/* Is it set in the file, on the command line, or by what it follows from? (Not by default.) */
bool ax_config_is_set(const struct ax_config *cfg, const char *path, ...)
    __attribute__((format(printf, 2, 3)));
/* Is it set to null there? */
bool ax_config_is_null(const struct ax_config *cfg, const char *path, ...)
    __attribute__((format(printf, 2, 3)));
/* Has it a value, set or default? The typed readers assert that it has. */
bool ax_config_has(const struct ax_config *cfg, const char *path, ...)
    __attribute__((format(printf, 2, 3)));
int64_t ax_config_i64(const struct ax_config *cfg, const char *path, ...)
    __attribute__((format(printf, 2, 3)));
double ax_config_f64(const struct ax_config *cfg, const char *path, ...)
    __attribute__((format(printf, 2, 3)));
/* For keys that also take words, any word but false counts as true. Unset without default: false.
 */
bool ax_config_bool(const struct ax_config *cfg, const char *path, ...)
    __attribute__((format(printf, 2, 3)));
/* Any scalar as text ("true", "1e-5"); NULL when there is no value. Borrowed from cfg. */
const char *ax_config_str(const struct ax_config *cfg, const char *path, ...)
    __attribute__((format(printf, 2, 3)));
/* Elements of a list or entries of a map; one scalar in place of a list counts as a list of one
 * ("key.0" reads it); 0 when there is no value. */
size_t ax_config_count(const struct ax_config *cfg, const char *path, ...)
    __attribute__((format(printf, 2, 3)));
/* The node itself, e.g. to walk a map with names of the user's; NULL when there is no value. */
const struct ax_yaml_node *ax_config_node(const struct ax_config *cfg, const char *path, ...)
    __attribute__((format(printf, 2, 3)));

/* Where the value comes from: "config.yaml:7:3", "command line", "default", "follows from …",
 * "unset". Written to buf, returned. */
const char *ax_config_where(const struct ax_config *cfg, char *buf, size_t size, const char *path,
                            ...) __attribute__((format(printf, 4, 5)));
/* AX_ERR_CONFIG: "PATH: what you say (WHERE)", for mistakes that only a reader of the key can see.
 */
enum ax_status ax_config_error(const struct ax_config *cfg, const char *path, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* `axtrain config help [KEY] | show FILE [overrides] [--json] | schema | docs`. */
enum ax_status ax_cmd_config(int argc, char **argv);

#endif

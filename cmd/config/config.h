/* The YAML that describes a run: loaded strictly, overridden from the command line, and read by
 * key.
 *
 * Life cycle: ax_config_load → (ax_config_require) → readers → ax_config_free. Loading checks every
 * key and value against the table (table.h), replaces renamed keys, derives values from others, and
 * reports all mistakes together, each with file:line:column. It accepts keys that this program does
 * not support yet; ax_config_require rejects them, so no command silently skips what was requested.
 *
 * A value that is an option as it stands is put there by AX_FILL: its row names the field. Readers
 * are for values that need work.
 *
 * Readers take a key path as a printf format: ax_config_str(cfg, "datasets.%zu.path", i). A path
 * that is not in the table, or has another type, is a bug and asserts. Unset keys return their
 * default.
 *
 * Reading order: table.h (a key's row), cmd/train/keys_*.c (the rows), config.c (loading),
 * renamed.c, check.c, rules.c (its steps), fill.c (values → options), get.c (readers), notes.c;
 * help.c, show.c, schema.c, docs.c (output). */
#ifndef AX_CMD_CONFIG_CONFIG_H
#define AX_CMD_CONFIG_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/text/yaml.h"

enum ax_config_note_kind {
    AX_NOTE_RENAMED,      /* uses an old name */
    AX_NOTE_NO_EFFECT,    /* safe to ignore here */
    AX_NOTE_UNUSED,       /* has an effect only together with another key */
    AX_NOTE_IGNORED,      /* no version has ever read it */
    AX_NOTE_APPROXIMATED, /* done approximately */
    AX_NOTE_NOT_YET,      /* not supported yet: training stops */
    AX_NOTE_KINDS
};

struct ax_config_note {
    enum ax_config_note_kind kind;
    bool text_side; /* also matters to commands that only prepare text */
    char *path;     /* "datasets.0.type", as spelled in the file */
    char *text;     /* the note, one line; for NOT_YET the capability's name */
    char *where;    /* "config.yaml:7:3" */
};

/* Names from another module's table, for choices of the form "@WHAT". This code includes nothing
 * above base/, so the program that links it defines the list, which ends with NULL. */
struct ax_config_names {
    const char *what;
    /* The i-th name, NULL after the last. *note is NULL on entry; it is set to how the choice is
     * approximated, if it is. */
    const char *(*at)(size_t i, const char **note);
    const char *(*plain)(size_t i); /* instead of `at`: none is approximated */
};
extern const struct ax_config_names ax_config_names[]; /* cmd/train/names.c */

struct ax_config_follow {
    char *path;
    char *from; /* its source, in words */
};

struct ax_config {
    struct ax_yaml_doc doc;      /* with current key names */
    struct ax_yaml_doc defaults; /* by pattern path */
    struct ax_config_note *notes;
    size_t n_notes;
    struct ax_config_follow *follows; /* derived values */
    size_t n_follows;
    bool overridden; /* keys were set on the command line */
};

/* Loads path and applies n overrides in order: "key=value", or "--key" "value" ("--key=value"),
 * with values in YAML; null unsets. An ignored key needs no value (axolotl's --debug). AX_ERR_CONFIG
 * lists the mistakes. On failure cfg is empty. */
enum ax_status ax_config_load(struct ax_config *cfg, const char *path, int n, char **overrides);
/* The same for text in memory; name replaces the file name in messages. */
enum ax_status ax_config_parse(struct ax_config *cfg, const char *name, const char *text,
                               size_t len, int n, char **overrides);
void ax_config_free(struct ax_config *cfg);

enum ax_config_use {
    AX_CONFIG_FOR_TEXT,    /* tokenize, preview, preprocess: no training keys needed */
    AX_CONFIG_FOR_TRAINING /* everything */
};
/* AX_ERR_CONFIG if a required key is missing, AX_ERR_UNSUPPORTED if a key requests something that
 * is not supported yet; lists all of them. */
enum ax_status ax_config_require(const struct ax_config *cfg, enum ax_config_use use);
/* Logs one line per note, except NOT_YET; several keys without effect share one line. */
void ax_config_log_notes(const struct ax_config *cfg);
/* The effective configuration as JSON. */
enum ax_status ax_config_show_json(const struct ax_config *cfg, struct ax_buf *out);

/* True if there is such a key, under this or an old name, with or without effect. */
bool ax_config_knows(const char *path);
/* True if a resumed run must have the value that it was started with. */
bool ax_config_is_fixed(const char *path);
/* True if this is the value that the key has where none is set. */
bool ax_config_is_default(const char *path, const json_t *value);
/* "; did you mean …?" for an unknown key of the map `parent` ("" = top level), or "". Uses buf. */
const char *ax_config_suggest_key(const char *parent, const char *name, char *buf, size_t size);

/* Sets the fields of *out, a `type`, that rows name, from the keys below `at` ("" = those that are in
 * no list, "datasets.0", "qat") that act and have a value, set or default. Other fields stay as they
 * are; texts are borrowed from cfg. Counts that exceed an int become the largest one. */
#define AX_FILL(cfg, at, type, out) ax_config_fill(cfg, at, #type, (type *){out})
void ax_config_fill(const struct ax_config *cfg, const char *at, const char *type, void *out);

/* The i-th element of a list; a scalar is a list of one. NULL past the end, and if there is no list. */
const struct ax_yaml_node *ax_config_element(const struct ax_yaml_node *list, size_t i);

/* True if the key is set in the file, on the command line, or derived. (Defaults do not count.) */
bool ax_config_is_set(const struct ax_config *cfg, const char *path, ...)
    __attribute__((format(printf, 2, 3)));
/* True if it is set to null there. */
bool ax_config_is_null(const struct ax_config *cfg, const char *path, ...)
    __attribute__((format(printf, 2, 3)));
/* True if it has a value, set or default. The typed readers assert this. */
bool ax_config_has(const struct ax_config *cfg, const char *path, ...)
    __attribute__((format(printf, 2, 3)));
/* True if a condition over its keys holds; see rules.h for the syntax. */
bool ax_config_holds(const struct ax_config *cfg, const char *condition);
int64_t ax_config_i64(const struct ax_config *cfg, const char *path, ...)
    __attribute__((format(printf, 2, 3)));
double ax_config_f64(const struct ax_config *cfg, const char *path, ...)
    __attribute__((format(printf, 2, 3)));
/* For keys that also take words, any word except false is true. Unset without default: false. */
bool ax_config_bool(const struct ax_config *cfg, const char *path, ...)
    __attribute__((format(printf, 2, 3)));
/* Any scalar as text ("true", "1e-5"); NULL if there is no value. Borrowed from cfg. */
const char *ax_config_str(const struct ax_config *cfg, const char *path, ...)
    __attribute__((format(printf, 2, 3)));
/* Number of list elements or map entries; a scalar in place of a list is a list of one ("key.0"
 * reads it); 0 if there is no value. */
size_t ax_config_count(const struct ax_config *cfg, const char *path, ...)
    __attribute__((format(printf, 2, 3)));
/* The node itself, e.g. to walk a map with user-defined names; NULL if there is no value. */
const struct ax_yaml_node *ax_config_node(const struct ax_config *cfg, const char *path, ...)
    __attribute__((format(printf, 2, 3)));

/* Origin of the value: "config.yaml:7:3", "command line", "default", "follows from …", "unset".
 * Written to buf and returned. */
const char *ax_config_where(const struct ax_config *cfg, char *buf, size_t size, const char *path,
                            ...) __attribute__((format(printf, 4, 5)));
/* AX_ERR_CONFIG: "PATH: MESSAGE (WHERE)", for mistakes that only the key's reader can detect. */
enum ax_status ax_config_error(const struct ax_config *cfg, const char *path, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* `axtrain config help [KEY] | show FILE [overrides] [--json] | schema | docs`. */
enum ax_status ax_cmd_config(int argc, char **argv);

#endif

/* YAML (1.1 core as commonly written) through libyaml, as a tree whose nodes know their line and
 * column. Plain scalars resolve as in PyYAML's safe loader, except where that is never intended:
 * "2e-5" is a number, "1:30" and dates stay text. Aliases are expanded (copied) and merge keys (<<)
 * applied, within AX_YAML_NODES_MAX nodes in total and AX_YAML_COPY_MAX bytes of copied text.
 * Duplicate keys, tabs, unknown tags, nesting deeper than AX_YAML_DEPTH_MAX and several documents
 * are errors that name the line (AX_ERR_CONFIG). */
#ifndef AX_BASE_TEXT_YAML_H
#define AX_BASE_TEXT_YAML_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define AX_YAML_NODES_MAX 100000
#define AX_YAML_COPY_MAX  ((size_t)16 << 20)
#define AX_YAML_DEPTH_MAX 100

enum ax_yaml_kind {
    AX_YAML_NULL,
    AX_YAML_BOOL,
    AX_YAML_INT,
    AX_YAML_FLOAT,
    AX_YAML_STRING,
    AX_YAML_LIST,
    AX_YAML_MAP
};

struct ax_yaml_node {
    enum ax_yaml_kind kind;
    int line, column; /* from 1; 0 = came from the command line */
    bool quoted;      /* a quoted scalar is always a string */
    char *text;       /* scalars: the text as written */
    bool boolean;
    int64_t integer;
    double number; /* INT and FLOAT */
    size_t n;      /* LIST and MAP: entries */
    struct ax_yaml_entry *entries;
};

struct ax_yaml_entry {
    char *key; /* MAP only */
    int line, column;
    struct ax_yaml_node *value;
};

struct ax_yaml_doc {
    char *name;
    struct ax_yaml_node *root;
};

enum ax_status ax_yaml_load(struct ax_yaml_doc *doc, const char *path, size_t max_bytes);
enum ax_status ax_yaml_parse(struct ax_yaml_doc *doc, const char *name, const char *text,
                             size_t len);
void ax_yaml_free(struct ax_yaml_doc *doc);
/* MAP lookup; NULL when absent or not a map. */
struct ax_yaml_node *ax_yaml_get(const struct ax_yaml_node *map, const char *key);
const char *ax_yaml_kind_name(enum ax_yaml_kind kind); /* "a list" */

/* The tree as JSON; NULL only if out of memory. Free with json_decref. */
json_t *ax_yaml_to_json(const struct ax_yaml_node *v);

/* Sets key path ("datasets.0.path") to a scalar or flow value given as YAML text; creates missing
 * maps, and lists for the index 0; the index behind the last appends. "null" removes an entry of a
 * list, is stored as the value of a key, and does nothing below what is missing. AX_ERR_CONFIG if the
 * path goes through a scalar, or past a list's end. For command-line overrides; nodes get line 0. */
enum ax_status ax_yaml_set(struct ax_yaml_doc *doc, const char *path, const char *text);
/* Removes the node at the path, if there is one; errors as above. */
enum ax_status ax_yaml_unset(struct ax_yaml_doc *doc, const char *path);

#endif

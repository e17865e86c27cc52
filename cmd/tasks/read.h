/* A task file and the files that it includes: top-level keys of the including file win, and over
 * them what a group of tasks says about its members. */
#ifndef AX_CMD_TASKS_READ_H
#define AX_CMD_TASKS_READ_H

#include "base/regex.h"
#include "base/yaml.h"

#define AX_TASK_MAX_FILES     16
#define AX_TASK_MAX_OVERRIDES 24

/* A value, and how a message names it: "FILE:LINE: KEY". */
struct ax_task_key {
    const struct ax_yaml_doc *doc;
    const struct ax_yaml_node *node; /* NULL: absent */
    const char *name;
};

/* Maps of groups, whose keys win over a task's own, the first one over the next. What a group says
 * about itself (ax_task_group_keys) is no part of it. */
struct ax_task_override {
    int n;
    struct ax_task_key maps[AX_TASK_MAX_OVERRIDES];
};

struct ax_task_yaml {
    int n;
    struct ax_yaml_doc docs[AX_TASK_MAX_FILES]; /* docs[0] is the task's own */
    struct ax_task_override over;
    bool of_group; /* the files are those of a group, which defines the task itself */
};

/* group, group_alias, task, aggregate_metric_list, metadata */
bool ax_task_is_group_key(const char *name);

/* AX_ERR_CONFIG where a file includes itself, or is no map. */
enum ax_status ax_task_yaml_load(struct ax_task_yaml *y, const char *path);
void ax_task_yaml_free(struct ax_task_yaml *y);

/* A null counts as absent. */
struct ax_task_key ax_task_key(const struct ax_task_yaml *y, const char *name);
struct ax_task_key ax_task_key_in(struct ax_task_key map, const char *name);
struct ax_task_key ax_task_key_at(struct ax_task_key list, size_t i);
/* Error that begins with the place. */
enum ax_status ax_task_key_error(struct ax_task_key k, enum ax_status st, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Typed values; an absent key leaves *out as it was. */
enum ax_status ax_task_key_text(struct ax_task_key k, const char **out);
enum ax_status ax_task_key_bool(struct ax_task_key k, bool *out);
enum ax_status ax_task_key_int(struct ax_task_key k, int64_t min, int64_t max, int64_t *out);
/* From 0 to max. */
enum ax_status ax_task_key_number(struct ax_task_key k, double max, double *out);
enum ax_status ax_task_key_list(struct ax_task_key k, size_t *n); /* AX_ERR_CONFIG for no list */

/* The elements of a list, or the value itself as the only one; none if absent. The list is owned by
 * the caller. */
enum ax_status ax_task_key_items(struct ax_task_key k, struct ax_task_key **items, size_t *n);
/* An expression of Python's re, and a list of them, which is to be freed even after an error. */
enum ax_status ax_task_key_regex(struct ax_task_key k, struct ax_regex **out);
enum ax_status ax_task_key_regexes(struct ax_task_key k, struct ax_regex ***out, size_t *n_out);
void ax_task_regexes_free(struct ax_regex **list, size_t n);

/* A key that a map may have; `why` not NULL: it is refused, and that is the remedy. */
struct ax_task_known {
    const char *name, *why;
};
/* Refuses keys of the map that are not in the list, which ends with a NULL name, with a suggestion.
 */
enum ax_status ax_task_keys_check(struct ax_task_key map, const struct ax_task_known *known);

#endif

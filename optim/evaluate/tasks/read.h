/* A task file and the files that it includes. Top-level keys of an including file override those of
 * the included ones, and keys from a group of tasks override both. */
#ifndef AX_OPTIM_EVALUATE_TASKS_READ_H
#define AX_OPTIM_EVALUATE_TASKS_READ_H

#include "base/text/regex.h"
#include "base/text/yaml.h"

#define AX_TASK_MAX_FILES     16
#define AX_TASK_MAX_OVERRIDES 24

/* A value, and its place for messages: "FILE:LINE: KEY". */
struct ax_task_key {
    const struct ax_yaml_doc *doc;
    const struct ax_yaml_node *node; /* NULL: absent */
    const char *name;
};

/* Maps of groups, whose keys override a task's own; earlier maps override later ones. Keys that
 * describe the group itself (ax_task_is_group_key) are not used. */
struct ax_task_override {
    int n;
    struct ax_task_key maps[AX_TASK_MAX_OVERRIDES];
};

struct ax_task_yaml {
    int n;
    struct ax_yaml_doc docs[AX_TASK_MAX_FILES]; /* docs[0] is the task file itself */
    struct ax_task_override over;
    bool of_group; /* the files are a group's, and an entry in it defines the task */
};

/* True for group, group_alias, task, aggregate_metric_list and metadata. */
bool ax_task_is_group_key(const char *name);

/* AX_ERR_CONFIG if a file includes itself or is not a map. */
enum ax_status ax_task_yaml_load(struct ax_task_yaml *y, const char *path);
void ax_task_yaml_free(struct ax_task_yaml *y);

/* A null counts as absent. */
struct ax_task_key ax_task_key(const struct ax_task_yaml *y, const char *name);
struct ax_task_key ax_task_key_in(struct ax_task_key map, const char *name);
struct ax_task_key ax_task_key_at(struct ax_task_key list, size_t i);
/* An error that begins with the place. */
enum ax_status ax_task_key_error(struct ax_task_key k, enum ax_status st, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Typed values; an absent key leaves *out as it was. */
enum ax_status ax_task_key_text(struct ax_task_key k, const char **out);
enum ax_status ax_task_key_bool(struct ax_task_key k, bool *out);
enum ax_status ax_task_key_int(struct ax_task_key k, int64_t min, int64_t max, int64_t *out);
/* A number from 0 to max. */
enum ax_status ax_task_key_number(struct ax_task_key k, double max, double *out);
enum ax_status ax_task_key_list(struct ax_task_key k, size_t *n); /* AX_ERR_CONFIG if not a list */

/* The elements of a list, or the value itself as the only one; none if absent. The list is owned by
 * the caller. */
enum ax_status ax_task_key_items(struct ax_task_key k, struct ax_task_key **items, size_t *n);
/* A regular expression of Python's re, or a list of them, which must be freed even after an
 * error. */
enum ax_status ax_task_key_regex(struct ax_task_key k, struct ax_regex **out);
enum ax_status ax_task_key_regexes(struct ax_task_key k, struct ax_regex ***out, size_t *n_out);
void ax_task_regexes_free(struct ax_regex **list, size_t n);

/* A key that a map may have. `why` not NULL: it is rejected with this remedy. */
struct ax_task_known {
    const char *name, *why;
};
/* Rejects keys that are not in the list, which ends with a NULL name, and suggests similar ones. */
enum ax_status ax_task_keys_check(struct ax_task_key map, const struct ax_task_known *known);

#endif

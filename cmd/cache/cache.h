/* What the program keeps to save work: prepared data sets, folders of GGUF files, downloads from
 * the hub.
 *
 * Reading order: find.c (which folders are entries), usage.c (size and last use), remove.c. */
#ifndef AX_CMD_CACHE_CACHE_H
#define AX_CMD_CACHE_CACHE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/status.h"
#include "cmd/args.h"

enum ax_cache_kind {
    AX_CACHE_PREPARED, /* DIR/KEY of data/pipeline/cache.h */
    AX_CACHE_GGUF,     /* DIR/NAME-KEY of cmd/train/base_model.h */
    AX_CACHE_HUB,      /* a repository of ckpt/hub/hub.h with files that this program brought */
    AX_CACHE_KINDS
};
extern const char *const ax_cache_kind_names[AX_CACHE_KINDS];

struct ax_cache_entry {
    enum ax_cache_kind kind;
    char *path; /* the folder */
    char *lock; /* a process that uses the folder holds this lock */
    char *more; /* a folder with further locks, removed as well; NULL: none */
    char *name; /* what it is, for people */
    int64_t bytes;
    time_t used; /* last: when the lock was taken, or else when the files were written */
};

struct ax_cache_list {
    size_t n, cap;
    struct ax_cache_entry *entries; /* largest first */
};
/* Entries in the program's own cache, in `dirs` (default: last_run_prepared), and in the hub's
 * cache. Anything else in these folders is no entry. AX_ERR_CONFIG: one of dirs is no folder. */
enum ax_status ax_cache_find(struct ax_cache_list *l, const struct ax_arg_list *dirs);
void ax_cache_list_free(struct ax_cache_list *l); /* safe on a zeroed one */

/* Bytes on the disk of what is below a folder, and when its newest file was written; links are not
 * followed. */
enum ax_status ax_cache_usage(const char *path, int64_t *bytes, time_t *written);

bool ax_cache_in_use(const struct ax_cache_entry *e);
/* *done = false if a process uses it. */
enum ax_status ax_cache_remove(const struct ax_cache_entry *e, bool *done);

#endif

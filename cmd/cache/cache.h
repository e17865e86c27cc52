/* Cached work: prepared data sets, log-probs of references, folders of GGUF files, downloads from the
 * hub.
 *
 * Reading order: find.c (which folders are entries; size and last use), remove.c. */
#ifndef AX_CMD_CACHE_CACHE_H
#define AX_CMD_CACHE_CACHE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "base/status.h"
#include "cmd/args.h"

enum ax_cache_kind {
    AX_CACHE_PREPARED,   /* DIR/KEY of data/records/pipeline/prepared.h */
    AX_CACHE_REFERENCES, /* DIR/KEY of optim/evaluate/refer.h */
    AX_CACHE_GGUF,       /* DIR/NAME-KEY of model/convert/base_model.h */
    AX_CACHE_HUB, /* a repository of ckpt/hub/hub.h with files that this program downloaded */
    AX_CACHE_KINDS
};
extern const char *const ax_cache_kind_names[AX_CACHE_KINDS];

struct ax_cache_entry {
    enum ax_cache_kind kind;
    char *path;   /* the folder */
    char *lock;   /* held by any process that uses the folder */
    char *more;   /* another folder with locks, which is removed as well; or NULL */
    char *name;   /* description for users */
    dev_t device; /* these two identify the folder, whatever its path */
    ino_t inode;
    int64_t bytes;
    time_t used; /* last use: when the lock was taken, else when the files were written */
};

struct ax_cache_list {
    size_t n, cap;
    struct ax_cache_entry *entries; /* largest first */
};
/* Finds entries in the program's own cache, in `dirs` (default: last_run_prepared), and in the
 * hub's cache; ignores everything else there. AX_ERR_CONFIG if one of dirs is not a folder. */
enum ax_status ax_cache_find(struct ax_cache_list *l, const struct ax_arg_list *dirs);
void ax_cache_list_free(struct ax_cache_list *l); /* safe on a zeroed one */

bool ax_cache_in_use(const struct ax_cache_entry *e);
/* *done is false if a process uses the entry. */
enum ax_status ax_cache_remove(const struct ax_cache_entry *e, bool *done);

#endif

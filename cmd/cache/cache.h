/* Cached work: prepared data sets, log-probs of references, folders of GGUF files, downloads from the
 * hub, the compiled interpreter, measured products; and what interrupted or older programs left.
 *
 * Reading order: find.c (which folders are entries; size and last use), remove.c. */
#ifndef AX_CMD_CACHE_CACHE_H
#define AX_CMD_CACHE_CACHE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "base/status.h"
#include "cmd/args/args.h"

enum ax_cache_kind {
    AX_CACHE_PREPARED,   /* DIR/KEY of data/records/pipeline/prepared.h */
    AX_CACHE_REFERENCES, /* DIR/KEY of optim/evaluate/refer.h */
    AX_CACHE_GGUF,       /* DIR/NAME-KEY of model/convert/base_model.h */
    AX_CACHE_HUB,      /* a repository of ckpt/hub/hub.h with files that this program downloaded */
    AX_CACHE_PRODUCTS, /* OWN/products of cmd/train/options.c */
    AX_CACHE_SANDBOX,  /* OWN/sandbox of data/reward/sandbox/sandbox.h */
    /* what was written when a process ended, locks of what is gone, and data of other versions */
    AX_CACHE_LEFTOVER,
    AX_CACHE_OTHER, /* anything else in the program's own cache */
    AX_CACHE_KINDS
};
struct ax_cache_kind_info {
    const char *name;
    bool usual; /* cleared unless kinds are named */
};
extern const struct ax_cache_kind_info ax_cache_kinds[AX_CACHE_KINDS];

struct ax_cache_entry {
    enum ax_cache_kind kind;
    char *path;   /* a folder, or a file */
    char *lock;   /* held by any process that uses it */
    char *more;   /* another folder with locks, which is removed as well; or NULL */
    char *name;   /* description for users */
    pid_t owner;  /* the process that writes it; 0: none */
    dev_t device; /* these two identify the folder, whatever its path */
    ino_t inode;
    int64_t bytes;
    time_t used; /* last use: when the lock was taken, else when the files were written */
};

struct ax_cache_list {
    size_t n, cap;
    struct ax_cache_entry *entries; /* largest first */
};
/* Finds everything in the program's own cache, and what the program has put into `dirs` (default:
 * last_run_prepared) and into the hub's cache. AX_ERR_CONFIG if one of dirs is not a folder. */
enum ax_status ax_cache_find(struct ax_cache_list *l, const struct ax_arg_list *dirs);
void ax_cache_list_free(struct ax_cache_list *l); /* safe on a zeroed one */

bool ax_cache_in_use(const struct ax_cache_entry *e);
/* *done is false if a process uses the entry. */
enum ax_status ax_cache_remove(const struct ax_cache_entry *e, bool *done);

#endif

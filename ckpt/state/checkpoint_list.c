/* Lists a folder's checkpoints and removes old ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/log.h"
#include "ckpt/state/checkpoint.h"

#define PREFIX "checkpoint-"

enum ax_status ax_checkpoint_path(char **path, const char *output_dir, int64_t step) {
    return ax_sprintf(path, "%s%s" PREFIX "%lld", output_dir,
                      output_dir[strlen(output_dir) - 1] == '/' ? "" : "/", (long long)step);
}

/* Length of "checkpoint-N" at the start of a name, and N; 0 if the name does not start so. */
static size_t parse_name(const char *name, int64_t *step) {
    const size_t prefix = sizeof PREFIX - 1;
    if (strncmp(name, PREFIX, prefix) != 0)
        return 0;
    const size_t digits = strspn(name + prefix, "0123456789");
    if (digits == 0 || digits > 15 || (digits > 1 && name[prefix] == '0'))
        return 0;
    *step = strtoll(name + prefix, NULL, 10);
    return prefix + digits;
}

/* Visits every name in the folder that begins with "checkpoint-N": its step and what follows. */
static enum ax_status each_name(const char *output_dir, void *ctx,
                                enum ax_status (*visit)(void *ctx, int64_t step,
                                                        const char *rest)) {
    struct ax_dir d;
    enum ax_status st = AX_OK;
    ax_dir_open(&d, output_dir);
    for (const char *name; st == AX_OK && (name = ax_dir_next(&d)) != NULL;) {
        int64_t step;
        const size_t n = parse_name(name, &step);
        if (n > 0)
            st = visit(ctx, step, name + n);
    }
    return ax_dir_end(&d, st);
}

static enum ax_status add(void *ctx, int64_t step, const char *rest) {
    struct ax_checkpoint_list *l = ctx;
    if (rest[0])
        return AX_OK;
    AX_TRY(ax_regrow(&l->steps, l->n, l->n + 1, sizeof *l->steps));
    l->steps[l->n++] = step;
    return AX_OK;
}

static int ascending(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* The manifest is written last, so a checkpoint without one is incomplete. */
static enum ax_status is_whole(const char *output_dir, int64_t step, bool *whole) {
    char *path, *manifest = NULL;
    AX_TRY(ax_checkpoint_path(&path, output_dir, step));
    const enum ax_status st = ax_path_join(&manifest, path, AX_CHECKPOINT_MANIFEST);
    *whole = st == AX_OK && ax_path_exists(manifest);
    ax_free(manifest);
    ax_free(path);
    return st;
}

static enum ax_status warn_incomplete(void *ctx, int64_t step, const char *rest) {
    bool whole = true;
    if (!rest[0])
        AX_TRY(is_whole(ctx, step, &whole));
    if (!whole)
        ax_log_warn("%s: skipping " PREFIX "%lld: it has no %s, so it is incomplete",
                    (const char *)ctx, (long long)step, AX_CHECKPOINT_MANIFEST);
    return AX_OK;
}

enum ax_status ax_checkpoint_warn_incomplete(const char *output_dir) {
    return each_name(output_dir, (void *)(uintptr_t)output_dir, warn_incomplete);
}

enum ax_status ax_checkpoint_list(struct ax_checkpoint_list *l, const char *output_dir) {
    *l = (struct ax_checkpoint_list){0};
    enum ax_status st = each_name(output_dir, l, add);
    size_t kept = 0;
    for (size_t i = 0; st == AX_OK && i < l->n; i++) {
        bool whole = false;
        st = is_whole(output_dir, l->steps[i], &whole);
        if (whole)
            l->steps[kept++] = l->steps[i];
        else if (l->steps[i] > l->stateless)
            l->stateless = l->steps[i];
    }
    if (st != AX_OK) {
        ax_checkpoint_list_free(l);
        return st;
    }
    l->n = kept;
    if (kept > 1)
        qsort(l->steps, kept, sizeof *l->steps, ascending);
    return AX_OK;
}

void ax_checkpoint_list_free(struct ax_checkpoint_list *l) {
    ax_free(l->steps);
    *l = (struct ax_checkpoint_list){0};
}

/* One call recovers all leftovers of a checkpoint. */
static enum ax_status sweep_one(void *ctx, int64_t step, const char *rest) {
    char *path;
    if (strncmp(rest, ".tmp-", 5) != 0 && strncmp(rest, ".old-", 5) != 0)
        return AX_OK;
    AX_TRY(ax_checkpoint_path(&path, ctx, step));
    const enum ax_status st = ax_folder_recover_alone(path);
    ax_free(path);
    return st;
}

struct saves {
    const char *output_dir;
    int64_t after;
};

/* A save would replace what the link leads to. */
static enum ax_status refuse_link(void *ctx, int64_t step, const char *rest) {
    const struct saves *s = ctx;
    struct stat info;
    char *path;
    if (rest[0] || step <= s->after)
        return AX_OK;
    AX_TRY(ax_checkpoint_path(&path, s->output_dir, step));
    const bool is_link = lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
    const enum ax_status st =
        is_link ? ax_error(AX_ERR_CONFIG,
                           "output_dir: %s is a symbolic link, and a save would replace what it "
                           "leads to; remove the link, or choose another folder",
                           path)
                : AX_OK;
    ax_free(path);
    return st;
}

enum ax_status ax_checkpoint_refuse_links(const char *output_dir, int64_t after) {
    return each_name(output_dir, &(struct saves){output_dir, after}, refuse_link);
}

enum ax_status ax_checkpoint_claim(struct ax_claim *lock, const char *output_dir) {
    char *path;
    *lock = (struct ax_claim){.fd = -1};
    AX_TRY(ax_path_join(&path, output_dir, ".axtrain.lock"));
    const enum ax_status st = ax_claim_take(lock, path);
    ax_free(path);
    return st;
}

enum ax_status ax_checkpoint_sweep(const char *output_dir) {
    return each_name(output_dir, (void *)(uintptr_t)output_dir, sweep_one);
}

/* Renames the folder and syncs that before removing anything, so that a partly removed folder
 * never looks like a checkpoint, even after a power failure. */
static enum ax_status remove_one(const char *output_dir, int64_t step) {
    char *path, *tmp = NULL;
    AX_TRY(ax_checkpoint_path(&path, output_dir, step));
    enum ax_status st = ax_sprintf(&tmp, "%s.tmp-%ld", path, (long)getpid());
    if (st == AX_OK)
        st = ax_rename(path, tmp);
    if (st == AX_OK)
        st = ax_sync_dir(output_dir);
    if (st == AX_OK)
        st = ax_remove_tree(tmp);
    ax_free(tmp);
    ax_free(path);
    return st;
}

static bool contains(const int64_t *list, int n, int64_t v) {
    for (int i = 0; i < n; i++)
        if (list[i] == v)
            return true;
    return false;
}

void ax_checkpoint_prune(const char *output_dir, int64_t limit, int n_keep, const int64_t *keep) {
    struct ax_checkpoint_list l;
    if (limit == 0)
        return;
    enum ax_status st = ax_checkpoint_list(&l, output_dir);
    size_t left = l.n;
    for (size_t i = 0; st == AX_OK && i < l.n && left > (size_t)limit; i++) {
        if (contains(keep, n_keep, l.steps[i]))
            continue;
        st = remove_one(output_dir, l.steps[i]);
        left--;
    }
    ax_checkpoint_list_free(&l);
    if (st == AX_OK)
        return;
    ax_log_warn("could not remove an old checkpoint: %s", ax_error_text());
    ax_error_clear();
}

/* Folders that appear complete or not at all.
 *
 * For a target PATH the states on disk are, in the order of a commit:
 *
 *     PATH   PATH.tmp-P                    begin … files written
 *            PATH.tmp-P   PATH.old-P       old one moved aside
 *     PATH                PATH.old-P       new one in place
 *     PATH   PATH.tmp-P                    old one renamed for removal, then removed
 *     PATH                                 done
 *
 * Everything in PATH.tmp-P is synced before the first rename, so PATH and PATH.old-P are complete
 * in every row and only PATH.tmp-P may be partial. ax_folder_recover maps every row to the first or
 * last one. P is the process id: a leftover of a running process is not removed, unless it has our
 * own id (ids restart in every container), or the caller knows that nobody else is at work: ids are
 * given to other processes later, and a process that nobody waits for keeps its own. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/io.h"
#include "base/io_path.h"
#include "base/io_sys.h"
#include "base/log.h"

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* The path to work on: without trailing slashes, and resolved if its last part is a link (so that
 * data stays on the link's disk), "." or "..". */
static enum ax_status target_path(char **out, const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    char *target;
    AX_TRY(ax_strndup(&target, path, n));
    char resolved[PATH_MAX];
    struct stat info;
    bool is_link = lstat(target, &info) == 0 && S_ISLNK(info.st_mode);
    const char *base = base_name(target);
    if ((is_link || strcmp(base, ".") == 0 || strcmp(base, "..") == 0) &&
        realpath(target, resolved) != NULL) {
        ax_free(target);
        AX_TRY(ax_strdup(&target, resolved));
    }
    if (base_name(target)[0] == '\0') {
        ax_free(target);
        return ax_error(AX_ERR_CONFIG, "\"%s\": not the path of a folder that can be replaced",
                        path);
    }
    *out = target;
    return AX_OK;
}

/* "BASE.tmp-123" → 123 for base and kind ".tmp-"; 0 if the name is not ours. */
static pid_t owner_of(const char *name, const char *base, const char *kind) {
    size_t n = strlen(base);
    size_t k = strlen(kind);
    if (strncmp(name, base, n) != 0 || strncmp(name + n, kind, k) != 0)
        return 0;
    const char *digits = name + n + k;
    size_t len = strspn(digits, "0123456789");
    if (len > 9 || digits[len] != '\0') /* none are 0 */
        return 0;
    return (pid_t)strtol(digits, NULL, 10);
}

static bool is_stale(pid_t owner) {
    return owner == getpid() || (kill(owner, 0) != 0 && errno == ESRCH);
}

/* Calls `visit` for every "PATH<kind>PID" next to PATH. `stale`: the owner cannot be at work on it. */
static enum ax_status for_leftovers(const char *path, const char *kind, bool alone,
                                    enum ax_status (*visit)(const char *path, const char *leftover,
                                                            bool stale)) {
    char *parent;
    struct ax_dir d = {0};
    enum ax_status st = AX_OK;
    AX_TRY(ax_path_parent(&parent, path));
    if (access(parent, R_OK) != 0 && errno == EACCES)
        goto done; /* the parent cannot be listed; PATH itself may still be readable */
    ax_dir_open(&d, parent);
    for (const char *name; st == AX_OK && (name = ax_dir_next(&d)) != NULL;) {
        const pid_t owner = owner_of(name, base_name(path), kind);
        char *leftover;
        if (owner <= 0)
            continue;
        AX_TRY_GOTO(ax_path_join(&leftover, parent, name), st, done);
        st = visit(path, leftover, alone || is_stale(owner));
        ax_free(leftover);
    }
done:
    ax_free(parent);
    return ax_dir_end(&d, st);
}

enum ax_status ax_sync_parent(const char *path) {
    char *parent;
    AX_TRY(ax_path_parent(&parent, path));
    enum ax_status st = ax_sync_dir(parent);
    ax_free(parent);
    return st;
}

/* Failing to remove leftovers must not fail a save that is already safe, or a load from a read-only
 * disk: it is logged and left for the next time. */
static void remove_leftover(const char *leftover) {
    if (ax_remove_tree(leftover) != AX_OK) {
        ax_log_warn("could not remove a leftover: %s", ax_error_text());
        ax_error_clear();
    }
}

static enum ax_status put_back(const char *path, const char *leftover, bool stale) {
    (void)stale;
    struct stat info;
    if (lstat(path, &info) == 0)
        return AX_OK;
    if (ax_sys_rename(leftover, path) != 0) {
        const int why = errno;
        if (lstat(path, &info) == 0)
            return AX_OK; /* its owner has meanwhile put the new one in place, or it back */
        errno = why;
        return ax_error(ax_sys_status(), "%s: cannot restore it from %s: %m", path, leftover);
    }
    ax_log_info("restored path=%s from=%s", path, leftover);
    return AX_OK; /* not synced: if a crash undoes it, the next recovery repeats it */
}

static enum ax_status remove_stale_tmp(const char *path, const char *leftover, bool stale) {
    (void)path;
    if (stale)
        remove_leftover(leftover);
    return AX_OK;
}

/* Call only if PATH exists, which put_back ensures. First renamed to a tmp, with the same id: half
 * removed, it must never be put back. */
static enum ax_status remove_old(const char *path, const char *old, bool stale) {
    if (!stale)
        return AX_OK;
    char *tmp;
    AX_TRY(ax_sprintf(&tmp, "%s.tmp-%s", path, strrchr(old, '-') + 1));
    if (ax_sys_rename(old, tmp) == 0)
        remove_leftover(tmp);
    else if (errno != ENOENT)
        ax_log_warn("could not remove a leftover: %s: %m", old);
    ax_free(tmp);
    return AX_OK;
}

static enum ax_status recover(const char *path, bool alone) {
    AX_TRY(for_leftovers(path, ".old-", alone, put_back));
    AX_TRY(for_leftovers(path, ".tmp-", alone, remove_stale_tmp));
    AX_TRY(for_leftovers(path, ".old-", alone, remove_old));
    return AX_OK;
}

static enum ax_status recover_target(const char *path, bool alone) {
    char *target;
    AX_TRY(target_path(&target, path));
    enum ax_status st = recover(target, alone);
    ax_free(target);
    return st;
}

enum ax_status ax_folder_recover(const char *path) {
    return recover_target(path, false);
}

enum ax_status ax_folder_recover_alone(const char *path) {
    return recover_target(path, true);
}

enum ax_status ax_folder_check_new(const char *path) {
    struct ax_dir d;
    ax_dir_open(&d, path);
    const bool empty = ax_dir_next(&d) == NULL;
    AX_TRY(ax_dir_end(&d, AX_OK));
    if (!empty)
        return ax_error(AX_ERR_CONFIG,
                        "%s: the folder is not empty. Choose one that does not exist yet.", path);
    return AX_OK;
}

enum ax_status ax_folder_begin(struct ax_folder *d, const char *path) {
    *d = (struct ax_folder){0};
    char *target = NULL;
    char *tmp = NULL;
    enum ax_status st;
    AX_TRY_GOTO(target_path(&target, path), st, fail);
    AX_TRY_GOTO(recover(target, false), st, fail);
    if (ax_path_exists(target) && !ax_path_is_dir(target)) {
        st = ax_error(AX_ERR_IO, "%s: a file with this name exists; expected a folder", path);
        goto fail;
    }
    AX_TRY_GOTO(ax_sprintf(&tmp, "%s.tmp-%ld", target, (long)getpid()), st, fail);
    if (ax_sys_mkdir(tmp, AX_FOLDER_MODE) != 0) {
        st = ax_error(ax_sys_status(), "%s: cannot create the folder: %m", tmp);
        goto fail;
    }
    *d = (struct ax_folder){.path = target, .tmp = tmp};
    return AX_OK;
fail:
    ax_free(target);
    ax_free(tmp);
    return st;
}

#define SWAPS 10 /* readers that may come between the two renames */

/* The two renames. Between them a reader may put the old folder back. */
static enum ax_status swap(const struct ax_folder *d, const char *old, bool *had_old) {
    struct stat info;
    for (int i = 1;; i++) {
        *had_old = lstat(d->path, &info) == 0;
        if (*had_old && ax_sys_rename(d->path, old) != 0) {
            *had_old = false;
            return ax_error(ax_sys_status(), "%s: cannot move it aside: %m", d->path);
        }
        if (ax_sys_rename(d->tmp, d->path) == 0)
            return AX_OK;
        if (i == SWAPS || (errno != ENOTEMPTY && errno != EEXIST))
            return ax_error(ax_sys_status(), "%s: cannot rename %s to it: %m", d->path, d->tmp);
    }
}

/* The renames and the sync that makes them durable. On failure the old folder is put back if
 * possible; ax_folder_recover handles the rest. */
static enum ax_status swap_in(const struct ax_folder *d, const char *old) {
    bool had_old;
    enum ax_status st = swap(d, old, &had_old);
    if (st == AX_OK) {
        st = ax_sync_parent(d->path);
        if (st == AX_OK)
            return AX_OK;
        (void)ax_sys_rename(d->path, d->tmp);
    }
    if (had_old)
        (void)ax_sys_rename(old, d->path);
    return st;
}

enum ax_status ax_folder_commit(struct ax_folder *d) {
    char *old;
    enum ax_status st;
    AX_TRY(ax_sprintf(&old, "%s.old-%ld", d->path, (long)getpid()));
    AX_TRY_GOTO(ax_sync_dir(d->tmp), st, done);
    AX_TRY_GOTO(swap_in(d, old), st, done);
    /* From here on the new folder is safe: a failed cleanup is only a warning. */
    if (remove_old(d->path, old, true) != AX_OK) {
        ax_log_warn("could not remove a leftover: %s: %s", old, ax_error_text());
        ax_error_clear();
    }
    ax_free(d->path);
    ax_free(d->tmp);
    *d = (struct ax_folder){0};
done:
    ax_free(old);
    return st;
}

void ax_folder_abort(struct ax_folder *d) {
    if (d->tmp != NULL) {
        struct ax_error_record first;
        ax_error_save(&first, AX_OK);
        remove_leftover(d->tmp);
        (void)ax_error_restore(&first);
    }
    ax_free(d->path);
    ax_free(d->tmp);
    *d = (struct ax_folder){0};
}

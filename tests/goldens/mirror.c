#include "tests/goldens/mirror.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash/hash.h"
#include "base/io.h"
#include "base/lock.h"
#include "tests/goldens/weights.h"

#define STAMP    ".stamp"
#define RULE     "weights.json"
#define MADE     "model.safetensors"
#define MAX_FILE (256 << 20)

/* ---- a folder's files ---- */

/* Called with the path of a file and that below the folder; `info` is the file's. */
typedef enum ax_status (*visit)(void *arg, const char *path, const char *rest,
                                const struct stat *info);

/* The goldens' folder has sources of programs beside the goldens. */
static bool is_golden(const char *rest, bool folder) {
    const size_t n = strlen(rest);
    if (strcmp(rest, "make") == 0)
        return false;
    return folder || strchr(rest, '/') || (n > 5 && strcmp(rest + n - 5, ".json") == 0);
}

/* `rest` is a prefix of PATH_MAX bytes that each level writes its names behind. */
static enum ax_status walk(const char *from, char *rest, visit f, void *arg) {
    char path[2 * PATH_MAX];
    const size_t n = strlen(rest);
    snprintf(path, sizeof path, "%s/%s", from, rest);
    DIR *dir = opendir(path);
    if (!dir)
        return ax_error(AX_ERR_IO, "%s: cannot read the folder: %s", path, strerror(errno));
    enum ax_status st = AX_OK;
    for (const struct dirent *e; st == AX_OK && (e = readdir(dir)) != NULL;) {
        struct stat info;
        snprintf(rest + n, PATH_MAX - n, "%s%s", n ? "/" : "", e->d_name);
        snprintf(path, sizeof path, "%s/%s", from, rest);
        if (e->d_name[0] == '.' || stat(path, &info) != 0 ||
            !is_golden(rest, S_ISDIR(info.st_mode)))
            continue;
        st = S_ISDIR(info.st_mode) ? walk(from, rest, f, arg) : f(arg, path, rest, &info);
    }
    closedir(dir);
    rest[n] = '\0';
    return st;
}

static enum ax_status for_files(const char *from, visit f, void *arg) {
    char rest[PATH_MAX] = "";
    return walk(from, rest, f, arg);
}

/* ---- the copy ---- */

/* Of all files, in any order. */
static enum ax_status add_to_stamp(void *arg, const char *path, const char *rest,
                                   const struct stat *info) {
    char said[PATH_MAX + 80];
    (void)path;
    const int n = snprintf(said, sizeof said, "%s %lld %lld.%09ld", rest, (long long)info->st_size,
                           (long long)info->st_mtim.tv_sec, (long)info->st_mtim.tv_nsec);
    *(uint64_t *)arg += ax_hash64(said, (size_t)n, 0);
    return AX_OK;
}

static bool has_stamp(const char *to, const char *stamp) {
    char path[PATH_MAX], got[32] = "";
    snprintf(path, sizeof path, "%s/" STAMP, to);
    FILE *f = fopen(path, "r");
    const bool same = f && fgets(got, sizeof got, f) && strcmp(got, stamp) == 0;
    if (f)
        fclose(f);
    return same;
}

static enum ax_status copy_file(void *arg, const char *path, const char *rest,
                                const struct stat *info) {
    const char *to = arg, *slash = strrchr(rest, '/');
    const bool rule = strcmp(slash ? slash + 1 : rest, RULE) == 0;
    const int folder = slash ? (int)(slash - rest) : 0;
    char target[2 * PATH_MAX], *data;
    size_t n;
    (void)info;
    snprintf(target, sizeof target, "%s/%.*s", to, folder, rest);
    AX_TRY(ax_mkdir_parents(target));
    if (rule) {
        snprintf(target, sizeof target, "%s/%.*s/" MADE, to, folder, rest);
        return golden_make_weights(path, target);
    }
    struct ax_file f;
    snprintf(target, sizeof target, "%s/%s", to, rest);
    AX_TRY(ax_read_file(path, MAX_FILE, &data, &n));
    enum ax_status st = ax_file_create(&f, target);
    if (st == AX_OK)
        st = ax_file_end(&f, ax_file_write(&f, data, n));
    ax_free(data);
    return st;
}

static enum ax_status make_copy(const char *from, const char *to, const char *stamp) {
    struct ax_folder folder;
    char path[PATH_MAX];
    AX_TRY(ax_folder_begin(&folder, to));
    enum ax_status st = for_files(from, copy_file, folder.tmp);
    if (st == AX_OK) {
        snprintf(path, sizeof path, "%s/" STAMP, folder.tmp);
        st = ax_write_file_atomic(path, stamp, strlen(stamp));
    }
    if (st == AX_OK)
        return ax_folder_commit(&folder);
    ax_folder_abort(&folder);
    return st;
}

enum ax_status golden_mirror(const char *from, const char *to) {
    uint64_t hash = 0;
    char stamp[32], path[PATH_MAX];
    AX_TRY(for_files(from, add_to_stamp, &hash));
    snprintf(stamp, sizeof stamp, "%016" PRIx64, hash);
    if (has_stamp(to, stamp))
        return AX_OK;
    struct ax_lock lock = {0};
    snprintf(path, sizeof path, "%s.lock", to);
    ax_lock_take(&lock, path, AX_LOCK_EXCLUSIVE);
    const enum ax_status st = has_stamp(to, stamp) ? AX_OK : make_copy(from, to, stamp);
    ax_lock_drop(&lock);
    return st;
}

/* ---- tests/goldens ---- */

/* The first folder upward from `at` (changed) that has goldens; their path in `root`. */
static bool look_upward(char *at, char *root) {
    for (;;) { /* BUILD/tests/goldens, of the test programs, has no models */
        struct stat info;
        char models[PATH_MAX + 32];
        snprintf(models, sizeof models, "%s/tests/goldens/models", at);
        if (stat(models, &info) == 0 && S_ISDIR(info.st_mode)) {
            snprintf(root, PATH_MAX, "%.*s", (int)(strrchr(models, '/') - models), models);
            return true;
        }
        char *slash = strrchr(at, '/');
        if (!slash || slash == at)
            return false;
        *slash = '\0';
    }
}

/* The build folder of this program, which is in BUILD/tests/ROOM/ or BUILD/gpu/. */
static enum ax_status places(char *root, char *build) {
    char at[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", build, PATH_MAX - 1);
    if (n <= 0)
        return ax_error(AX_ERR_IO, "/proc/self/exe: cannot be read: %s", strerror(errno));
    build[n] = '\0';
    const char *set = getenv("AX_TEST_GOLDENS");
    snprintf(at, sizeof at, "%s", build);
    if (set && *set)
        snprintf(root, PATH_MAX, "%s", set);
    else if (!look_upward(at, root) && !(getcwd(at, sizeof at) && look_upward(at, root)))
        return ax_error(AX_ERR_DATA,
                        "%s: there is no tests/goldens in a folder above this program or the "
                        "current one; set AX_TEST_GOLDENS to its path",
                        build);
    dirname(dirname(build));
    char *tests = strrchr(build, '/');
    if (tests && strcmp(tests, "/tests") == 0)
        *tests = '\0';
    return AX_OK;
}

enum ax_status golden_mirrored(const char *name, char *path, size_t size) {
    char root[PATH_MAX], build[PATH_MAX], copy[PATH_MAX + 16];
    AX_TRY(places(root, build));
    snprintf(copy, sizeof copy, "%s/goldens", build);
    AX_TRY(golden_mirror(root, copy));
    if ((size_t)snprintf(path, size, "%s%s%s", copy, *name ? "/" : "", name) >= size)
        return ax_error(AX_ERR_FAILED, "%s/%s: the path is too long", copy, name);
    if (!ax_path_exists(path))
        return ax_error(AX_ERR_DATA, "%s/%s: no such golden", root, name);
    return AX_OK;
}

/* Stops a walk with AX_ERR_UNSUPPORTED at a rule. */
static enum ax_status find_rule(void *arg, const char *path, const char *rest,
                                const struct stat *info) {
    const char *slash = strrchr(path, '/');
    (void)arg;
    (void)rest;
    (void)info;
    return slash && strcmp(slash + 1, RULE) == 0 ? AX_ERR_UNSUPPORTED : AX_OK;
}

/* The outermost of three folders around `dir` (resolved) that has models/: what names others does so
 * relative to it. `dir` itself if there is none. */
static void find_tree(const char *dir, char *tree) {
    char at[PATH_MAX], models[PATH_MAX + 8];
    snprintf(tree, PATH_MAX, "%s", dir);
    snprintf(at, sizeof at, "%s", dir);
    for (int i = 0; i < 4; i++) {
        snprintf(models, sizeof models, "%s/models", at);
        if (ax_path_is_dir(models))
            snprintf(tree, PATH_MAX, "%s", at);
        char *slash = strrchr(at, '/');
        if (!slash || slash == at)
            return;
        *slash = '\0';
    }
}

enum ax_status golden_made(const char *dir, char *made, size_t size) {
    char full[PATH_MAX], tree[PATH_MAX], root[PATH_MAX], build[PATH_MAX], copy[PATH_MAX + 32];
    snprintf(made, size, "%s", dir);
    if (!realpath(dir, full))
        return ax_error(AX_ERR_IO, "%s: %s", dir, strerror(errno));
    find_tree(full, tree);
    if (!ax_path_is_dir(tree))
        return AX_OK;
    const enum ax_status st = for_files(tree, find_rule, NULL);
    if (st != AX_ERR_UNSUPPORTED)
        return st;
    AX_TRY(places(root, build));
    char resolved[PATH_MAX];
    const bool own = realpath(root, resolved) && strcmp(resolved, tree) == 0;
    if (own)
        snprintf(copy, sizeof copy, "%s/goldens", build);
    else
        snprintf(copy, sizeof copy, "%s/goldens-%08" PRIx32, build, ax_hash32(tree));
    AX_TRY(golden_mirror(tree, copy));
    if ((size_t)snprintf(made, size, "%s%s", copy, full + strlen(tree)) >= size)
        return ax_error(AX_ERR_FAILED, "%s: the path is too long", copy);
    return AX_OK;
}

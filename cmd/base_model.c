/* Paths first, then the hub's cache, whose layout is
 *
 *     models--ORG--NAME/refs/REVISION       holds the commit of a branch or tag
 *     models--ORG--NAME/snapshots/COMMIT/   the files */
#include "cmd/base_model.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "ckpt/gguf.h"
#include "cmd/convert.h"

#define MAX_REF 256 /* bytes of a file in refs/ */

/* A variable that is set and not empty, or NULL. */
static const char *variable(const char *name) {
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

static enum ax_status cache_folder(char **out) {
    const char *v;
    if ((v = variable("HF_HUB_CACHE")) || (v = variable("HUGGINGFACE_HUB_CACHE")))
        return ax_strdup(out, v);
    if ((v = variable("HF_HOME")))
        return ax_path_join(out, v, "hub");
    if ((v = variable("XDG_CACHE_HOME")))
        return ax_path_join(out, v, "huggingface/hub");
    v = variable("HOME");
    return ax_path_join(out, v ? v : "/", ".cache/huggingface/hub");
}

/* One part of a hub id: letters, digits and - _ . but no .. and neither - nor . at its ends. */
static bool is_id_part(const char *s, size_t n) {
    if (n == 0 || n > 96 || strchr("-.", s[0]) || strchr("-.", s[n - 1]))
        return false;
    for (size_t i = 0; i < n; i++) {
        const bool dots = i > 0 && s[i] == '.' && s[i - 1] == '.';
        if (dots || (!isalnum((unsigned char)s[i]) && !strchr("-_.", s[i])))
            return false;
    }
    return true;
}

/* "org/name", or the "name" of the hub's first models. */
static bool is_hub_id(const char *name) {
    const char *slash = strchr(name, '/');
    if (!slash)
        return is_id_part(name, strlen(name));
    return is_id_part(name, (size_t)(slash - name)) && is_id_part(slash + 1, strlen(slash + 1));
}

/* CACHE/models--ORG--NAME */
static enum ax_status model_folder(char **out, const char *id) {
    char *cache, *name = NULL;
    const char *slash = strchr(id, '/');
    const int org = slash ? (int)(slash - id) : 0;
    enum ax_status st;
    AX_TRY(cache_folder(&cache));
    AX_TRY_GOTO(
        ax_sprintf(&name, "models--%.*s%s%s", org, id, slash ? "--" : "", slash ? slash + 1 : id),
        st, done);
    st = ax_path_join(out, cache, name);
done:
    ax_free(name);
    ax_free(cache);
    return st;
}

/* The commit that refs/REVISION names; the revision itself where there is no such file. */
static enum ax_status read_ref(char **commit, const char *model, const char *revision) {
    char *path, *text;
    size_t len;
    *commit = NULL;
    AX_TRY(ax_sprintf(&path, "%s/refs/%s", model, revision));
    enum ax_status st;
    if (!ax_path_exists(path)) {
        st = ax_strdup(commit, revision);
    } else if ((st = ax_read_file(path, MAX_REF, &text, &len)) == AX_OK) {
        while (len > 0 && isspace((unsigned char)text[len - 1]))
            text[--len] = '\0';
        if (ax_is_plain_name(text))
            st = ax_strdup(commit, text);
        else
            st = ax_error(AX_ERR_DATA, "%s: expected the name of a commit", path);
        ax_free(text);
    }
    ax_free(path);
    return st;
}

static enum ax_status not_cached(const char *id, const char *revision, const char *model) {
    const bool has_revision = strcmp(revision, "main") != 0;
    return ax_error(AX_ERR_CONFIG,
                    "%s: no such folder or file, and the local Hugging Face cache has no %s of it "
                    "(%s). Download it first: `hf download %s%s%s`, or name a folder.",
                    id, has_revision ? revision : "snapshot", model, id,
                    has_revision ? " --revision " : "", has_revision ? revision : "");
}

static enum ax_status find_cached(char **out, const char *id, const char *revision) {
    char *model, *commit = NULL, *path = NULL, *config = NULL;
    enum ax_status st;
    AX_TRY(model_folder(&model, id));
    AX_TRY_GOTO(read_ref(&commit, model, revision), st, done);
    AX_TRY_GOTO(ax_sprintf(&path, "%s/snapshots/%s", model, commit), st, done);
    AX_TRY_GOTO(ax_path_join(&config, path, "config.json"), st, done);
    if (!ax_path_is_dir(path)) {
        st = not_cached(id, revision, model);
    } else if (!ax_path_exists(config)) {
        st = ax_error(AX_ERR_CONFIG,
                      "%s: the local Hugging Face cache has only a part of it, without config.json "
                      "(%s). Download the rest: `hf download %s`.",
                      id, path, id);
    } else {
        *out = path;
        path = NULL;
    }
done:
    ax_free(config);
    ax_free(path);
    ax_free(commit);
    ax_free(model);
    return st;
}

/* Branches may have slashes in their names, but lead nowhere else. */
static bool is_revision(const char *s) {
    if (*s == '\0' || *s == '/' || strstr(s, "..") || s[strlen(s) - 1] == '/')
        return false;
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && !strchr("-_./", *s))
            return false;
    return true;
}

enum ax_status ax_base_model_find(struct ax_base_model *m, const char *name, const char *revision) {
    *m = (struct ax_base_model){.kind = AX_BASE_MODEL_FOLDER};
    if (ax_path_is_dir(name))
        return ax_strdup(&m->path, name);
    if (ax_path_exists(name)) {
        m->kind = AX_BASE_MODEL_GGUF;
        if (!ax_gguf_is(name))
            return ax_error(AX_ERR_CONFIG,
                            "%s: neither a folder nor a GGUF file. Name the folder that holds "
                            "config.json and the weights.",
                            name);
        return ax_strdup(&m->path, name);
    }
    if (!is_hub_id(name))
        return ax_error(AX_ERR_CONFIG,
                        "%s: no such folder or file, and not a hub id of the form org/name", name);
    if (!revision)
        revision = "main";
    if (!is_revision(revision))
        return ax_error(AX_ERR_CONFIG, "%s: \"%s\" is no branch, tag or commit", name, revision);
    return find_cached(&m->path, name, revision);
}

void ax_base_model_free(struct ax_base_model *m) {
    ax_free(m->path);
    *m = (struct ax_base_model){0};
}

/* CACHE/NAME-KEY, where a changed or another file gives another key. */
static enum ax_status converted_path(char **out, const char *gguf, const char *cache_dir) {
    struct stat info;
    char real[PATH_MAX];
    if (!realpath(gguf, real) || stat(real, &info) != 0)
        return ax_error(AX_ERR_IO, "%s: cannot look it up: %m", gguf);
    const int64_t facts[] = {(int64_t)info.st_size, (int64_t)info.st_mtim.tv_sec,
                             (int64_t)info.st_mtim.tv_nsec};
    const uint64_t key = ax_hash64(real, strlen(real), ax_hash64(facts, sizeof facts, 0));
    const char *name = strrchr(real, '/') + 1;
    return ax_sprintf(out, "%s/%s-%016llx", cache_dir, name, (unsigned long long)key);
}

static enum ax_status convert_once(char **folder, const char *gguf, const char *cache_dir) {
    char *path;
    AX_TRY(converted_path(&path, gguf, cache_dir));
    enum ax_status st = ax_folder_recover(path);
    if (st == AX_OK && !ax_path_is_dir(path)) {
        struct ax_convert c = {.src = gguf, .dst = path};
        st = ax_mkdir_parents(cache_dir);
        if (st == AX_OK)
            st = ax_convert_gguf_to_hf(&c);
        if (st == AX_OK)
            ax_log_info("converted gguf=%s to=%s dtype=%s", gguf, path,
                        ax_dtype_info(c.written)->name);
    }
    if (st == AX_OK)
        *folder = path;
    else
        ax_free(path);
    return st;
}

enum ax_status ax_base_model_folder(char **folder, const char *name, const char *revision,
                                    const char *cache_dir) {
    struct ax_base_model m;
    AX_TRY(ax_base_model_find(&m, name, revision));
    if (m.kind == AX_BASE_MODEL_FOLDER) {
        *folder = m.path;
        return AX_OK;
    }
    const enum ax_status st = convert_once(folder, m.path, cache_dir);
    ax_base_model_free(&m);
    return st;
}

/* Data sets in the Hugging Face cache on this machine:
 * HUB/datasets--OWNER--NAME/{refs/BRANCH, snapshots/COMMIT/files}. */
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "data/rows_find.h"

static enum ax_status hub_folder(char **out) {
    static const struct {
        const char *name, *below;
    } places[] = {{"HF_HUB_CACHE", ""},
                  {"HUGGINGFACE_HUB_CACHE", ""},
                  {"HF_HOME", "/hub"},
                  {"XDG_CACHE_HOME", "/huggingface/hub"},
                  {"HOME", "/.cache/huggingface/hub"}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *v = getenv(places[i].name);
        if (v && *v)
            return ax_sprintf(out, "%s%s", v, places[i].below);
    }
    return ax_strdup(out, "/.cache/huggingface/hub");
}

/* One slash, and only what hub names are made of. */
static bool is_hub_id(const char *id) {
    const char *slash = strchr(id, '/');
    if (!slash || slash == id || !slash[1] || strchr(slash + 1, '/') || strstr(id, ".."))
        return false;
    for (const char *c = id; *c; c++)
        if (!strchr("/-_.", *c) && !(*c >= '0' && *c <= '9') && !(*c >= 'a' && *c <= 'z') &&
            !(*c >= 'A' && *c <= 'Z'))
            return false;
    return true;
}

/* The commit that a branch or tag stands for; the name itself where there is no such reference. */
static enum ax_status commit_of(const char *repo, const char *revision, char **out) {
    char *ref;
    AX_TRY(ax_sprintf(&ref, "%s/refs/%s", repo, revision));
    enum ax_status st = AX_OK;
    char *text = NULL;
    size_t n = 0;
    if (ax_path_exists(ref) && !strstr(revision, ".."))
        st = ax_read_file(ref, 4096, &text, &n);
    else
        st = ax_strdup(&text, revision);
    ax_free(ref);
    AX_TRY(st);
    text[strcspn(text, "\r\n")] = '\0';
    *out = text;
    return AX_OK;
}

enum ax_status ax_hub_dataset_folder(const char *id, const char *revision, char **out) {
    *out = NULL;
    if (!is_hub_id(id))
        return AX_OK;
    char *hub = NULL;
    char *repo = NULL;
    char *commit = NULL;
    char *folder = NULL;
    enum ax_status st;
    const int owner = (int)(strchr(id, '/') - id);
    AX_TRY_GOTO(hub_folder(&hub), st, done);
    AX_TRY_GOTO(ax_sprintf(&repo, "%s/datasets--%.*s--%s", hub, owner, id, id + owner + 1), st,
                done);
    AX_TRY_GOTO(commit_of(repo, revision ? revision : "main", &commit), st, done);
    AX_TRY_GOTO(ax_sprintf(&folder, "%s/snapshots/%s", repo, commit), st, done);
    if (!ax_is_plain_name(commit) || !ax_path_is_dir(folder))
        st = ax_error(AX_ERR_DATA,
                      "%s: neither a file or folder here nor a data set in the local cache (%s); "
                      "download it there, or write ./ in front of a path",
                      id, folder);
    else
        *out = folder;
done:
    if (*out != folder)
        ax_free(folder);
    ax_free(commit);
    ax_free(repo);
    ax_free(hub);
    return st;
}

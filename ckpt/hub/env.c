/* The environment of Hugging Face's own tools. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/io.h"
#include "ckpt/hub/hub.h"

#define MAX_TOKEN 4096

/* A variable that is set and not empty, or NULL. */
static const char *variable(const char *name) {
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

static bool is_true(const char *name) {
    static const char *const yes[] = {"1", "on", "yes", "true"};
    const char *v = variable(name);
    for (size_t i = 0; v && i < sizeof yes / sizeof *yes; i++)
        if (strcasecmp(v, yes[i]) == 0)
            return true;
    return false;
}

/* HF_HOME: the folder in which HF's tools keep everything. */
static enum ax_status home_folder(char **out) {
    const char *v = variable("HF_HOME");
    if (v)
        return ax_path_expand(out, v);
    if ((v = variable("XDG_CACHE_HOME")))
        return ax_path_join(out, v, "huggingface");
    v = variable("HOME");
    return ax_path_join(out, v ? v : "/", ".cache/huggingface");
}

static enum ax_status in_home(char **out, const char *name) {
    char *home;
    AX_TRY(home_folder(&home));
    const enum ax_status st = ax_path_join(out, home, name);
    ax_free(home);
    return st;
}

enum ax_status ax_hub_cache_folder(char **out) {
    const char *v;
    if ((v = variable("HF_HUB_CACHE")) || (v = variable("HUGGINGFACE_HUB_CACHE")))
        return ax_path_expand(out, v);
    return in_home(out, "hub");
}

/* The token without surrounding white space; AX_ERR_CONFIG if it cannot be a token. */
static enum ax_status take_token(char **out, const char *from, const char *text) {
    size_t n = strlen(text);
    while (n > 0 && isspace((unsigned char)text[n - 1]))
        n--;
    while (n > 0 && isspace((unsigned char)*text)) {
        text++;
        n--;
    }
    for (size_t i = 0; i < n; i++)
        if (!isgraph((unsigned char)text[i]))
            return ax_error(AX_ERR_CONFIG, "%s: not a valid hub token", from);
    return n > 0 ? ax_strndup(out, text, n) : AX_OK;
}

static enum ax_status read_token(char **out) {
    const char *name =
        variable("HF_TOKEN") ? "HF_TOKEN" : "HUGGING_FACE_HUB_TOKEN"; /* its former name */
    const char *v = variable(name);
    char *path, *text;
    size_t len;
    *out = NULL;
    if (v)
        AX_TRY(take_token(out, name, v));
    if (*out)
        return AX_OK;
    AX_TRY((v = variable("HF_TOKEN_PATH")) ? ax_path_expand(&path, v) : in_home(&path, "token"));
    enum ax_status st = AX_OK;
    if (ax_path_exists(path) && (st = ax_read_file(path, MAX_TOKEN, &text, &len)) == AX_OK) {
        st = take_token(out, path, text);
        ax_free(text);
    }
    ax_free(path);
    return st;
}

static enum ax_status read_endpoint(char **out) {
    const char *v = variable("HF_ENDPOINT");
    if (!v)
        v = AX_HUB_ENDPOINT;
    size_t n = strlen(v);
    while (n > 0 && v[n - 1] == '/')
        n--;
    if (strncasecmp(v, "http://", 7) != 0 && strncasecmp(v, "https://", 8) != 0)
        return ax_error(AX_ERR_CONFIG, "HF_ENDPOINT: expected https://…, got \"%s\"", v);
    return ax_strndup(out, v, n);
}

enum ax_status ax_hub_open(struct ax_hub *h) {
    *h = (struct ax_hub){
        .offline = is_true("HF_HUB_OFFLINE") || is_true("TRANSFORMERS_OFFLINE"),
        .quiet = is_true("HF_HUB_DISABLE_PROGRESS_BARS"),
        .workers = 4,
        .retry_seconds = 1,
    };
    enum ax_status st;
    AX_TRY_GOTO(ax_hub_cache_folder(&h->cache), st, fail);
    AX_TRY_GOTO(read_endpoint(&h->endpoint), st, fail);
    AX_TRY_GOTO(read_token(&h->token), st, fail);
    return AX_OK;
fail:
    ax_hub_close(h);
    return st;
}

void ax_hub_close(struct ax_hub *h) {
    ax_free(h->endpoint);
    ax_free(h->cache);
    ax_free(h->token);
    *h = (struct ax_hub){0};
}

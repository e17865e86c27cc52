#include "cmd/train/hub_push.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "ckpt/hub/hub.h"

extern char **environ;

static bool is_command(const char *name) {
    char path[4096];
    const char *dirs = getenv("PATH");
    for (const char *d = dirs ? dirs : ""; *d; d += strspn(d, ":")) {
        const size_t n = strcspn(d, ":");
        const int len = snprintf(path, sizeof path, "%.*s/%s", (int)n, d, name);
        if ((size_t)len < sizeof path && access(path, X_OK) == 0)
            return true;
        d += n;
    }
    return false;
}

enum ax_status ax_hub_push_check(const struct ax_config *cfg) {
    const char *id = ax_config_str(cfg, "hub_model_id");
    struct ax_hub hub;
    if (!id)
        return AX_OK;
    if (!ax_hub_is_id(id))
        return ax_config_error(cfg, "hub_model_id", "\"%s\" is not an id of the form org/name", id);
    if (!is_command("hf"))
        return ax_config_error(cfg, "hub_model_id",
                               "uploading is done by the command `hf`, which is not here; install "
                               "it (pip install huggingface_hub), or remove the key");
    AX_TRY(ax_hub_open(&hub));
    enum ax_status st = AX_OK;
    if (hub.offline)
        st = ax_config_error(cfg, "hub_model_id", "HF_HUB_OFFLINE forbids uploading");
    else if (!hub.token)
        st = ax_config_error(cfg, "hub_model_id",
                             "uploading needs a token: set HF_TOKEN, or run `hf auth login`");
    ax_hub_close(&hub);
    return st;
}

/* The command's output goes to stderr, like logs: stdout is for results. */
static enum ax_status run(const char *const *argv, int *code) {
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = 0;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return ax_error(AX_ERR_NOMEM, "out of memory for starting %s", argv[0]);
    int rc = posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    if (rc == 0)
        rc = posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    if (rc != 0)
        return ax_error(AX_ERR_FAILED, "%s: cannot start it: %s", argv[0], strerror(rc));
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return ax_error(AX_ERR_FAILED, "%s: cannot wait for it: %m", argv[0]);
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return AX_OK;
}

enum ax_status ax_hub_push(const struct ax_config *cfg) {
    const char *id = ax_config_str(cfg, "hub_model_id"), *dir = ax_config_str(cfg, "output_dir");
    const char *revision = ax_config_str(cfg, "hub_revision");
    int code;
    if (!id)
        return AX_OK;
    /* a new repository is private: it can be published later, but publishing cannot be undone */
    const char *argv[20] = {"hf",        "upload",      id,          dir,         ".",
                            "--private", "--repo-type", "model",     "--exclude", "checkpoint-*",
                            "--exclude", "*.lock",      "--exclude", "tracker*",  NULL};
    if (revision) {
        argv[14] = "--revision";
        argv[15] = revision;
    }
    ax_log_info("uploading model=%s to=%s", dir, id);
    AX_TRY(run(argv, &code));
    if (code == 0)
        return AX_OK;
    return ax_error(
        AX_ERR_FAILED,
        "the model is in %s, but the upload failed (hf exited with code %d). Try again: `hf "
        "upload %s %s . --private --exclude \"checkpoint-*\"%s%s`",
        dir, code, id, dir, revision ? " --revision " : "", revision ? revision : "");
}

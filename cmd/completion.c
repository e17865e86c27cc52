/* `axtrain completion SHELL`: a script that completes commands, options, their values and keys. */
#include <stdio.h>
#include <string.h>

#include "cmd/args/args.h"
#include "cmd/help/help.h"

static const struct {
    const char *name;
    enum ax_status (*put)(struct ax_buf *out, const struct ax_command *commands);
} shells[] = {
    {"bash", ax_completion_bash}, {"zsh", ax_completion_zsh}, {"fish", ax_completion_fish}};

enum ax_status ax_cmd_completion(const struct ax_command *all, int argc, char **argv) {
    const char *shell;
    struct ax_buf script = {0};
    int n;
    AX_TRY(ax_args_parse(argc, argv, 0, NULL, 1, 1, &shell, &n));
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        if (strcmp(shells[i].name, shell) != 0)
            continue;
        const enum ax_status st = shells[i].put(&script, all);
        if (st == AX_OK)
            fputs(script.data, stdout);
        ax_buf_free(&script);
        return st;
    }
    return ax_error(AX_ERR_CONFIG, "completion: expected bash, zsh or fish, got \"%s\"", shell);
}

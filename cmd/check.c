/* `axtrain check`: dispatches to the kinds of checks. */
#include <stdint.h>
#include <string.h>

#include "cmd/check/check.h"
#include "cmd/commands.h"

static enum ax_status check_golden(int argc, char **argv) {
    (void)argc;
    (void)argv;
    return ax_error(AX_ERR_CONFIG,
                    "check golden: golden files are compared by a program of the "
                    "tests now. In a source tree: make build/tests/goldens/replay && "
                    "build/tests/goldens/replay DIR");
}

static const struct {
    const char *name, *command; /* used in messages */
    enum ax_status (*run)(int argc, char **argv);
} kinds[] = {{"golden", "check golden", check_golden},
             {"mesh", "check mesh", ax_check_mesh},
             {"self", "check self", ax_check_self},
             {"flight", "check flight", ax_check_flight}};

enum ax_status ax_cmd_check(int argc, char **argv) {
    for (size_t i = 0; argc > 1 && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(argv[1], kinds[i].name) == 0) {
            argv[1] = (char *)(uintptr_t)kinds[i].command;
            return kinds[i].run(argc - 1, argv + 1);
        }
    return ax_error(AX_ERR_CONFIG,
                    "check: expected `axtrain check self`, `axtrain check mesh MODEL tp=2 …` or "
                    "`axtrain check flight DIR`; see `axtrain check --help`");
}

/* argv → command. The only place that exits, and that adjusts how the process waits. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/term.h"
#include "cmd/commands.h"
#include "cmd/commit.h"

/* How long a thread without work looks for more before it sleeps: about half a millisecond, where
 * libgomp would spin for 5 to 10. If another program shares the cores, a spinning thread takes time
 * from those that compute. Libgomp reads this once, when it is initialized: before main, after this. */
__attribute__((constructor(101))) static void bound_spinning(void) {
    if (getenv("OMP_WAIT_POLICY") == NULL)
        setenv("GOMP_SPINCOUNT", "16000", 0);
}

static bool asks_for_help(int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

static enum ax_status run_command(const char *name, int argc, char **argv) {
    const struct ax_command *c = ax_command_find(ax_commands, name);
    if (!c)
        return ax_command_unknown(ax_commands, name);
    if (asks_for_help(argc, argv)) {
        ax_command_print_help(c);
        return AX_OK;
    }
    return ax_command_run(c, argc, argv);
}

/* `axlaunch`, a link to this program, means `axtrain launch`. */
static bool is_launcher(const char *program) {
    const char *slash = program ? strrchr(program, '/') : NULL;
    return program && strcmp(slash ? slash + 1 : program, "axlaunch") == 0;
}

enum { STACK_KIB = 1024 };

/* The system ends a process without a word whose stack is full. */
static enum ax_status check_stack(void) {
    struct rlimit r;
    if (getrlimit(RLIMIT_STACK, &r) != 0 || r.rlim_cur == RLIM_INFINITY ||
        r.rlim_cur / 1024 >= STACK_KIB)
        return AX_OK;
    return ax_error(AX_ERR_NOMEM,
                    "the limit of the stack is %llu KiB, and %d are needed: raise it with `ulimit "
                    "-s 8192`",
                    (unsigned long long)r.rlim_cur / 1024, STACK_KIB);
}

static enum ax_status run(int argc, char **argv) {
    AX_TRY(check_stack());
    AX_TRY(ax_fault_configure(getenv("AX_FAULT")));
    if (is_launcher(argv[0]))
        return run_command("launch", argc, argv);
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        ax_command_print_overview(ax_commands);
        return AX_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("axtrain %s (commit %s)\n", AX_VERSION, ax_commit ? ax_commit : "unknown");
        return AX_OK;
    }
    return run_command(argv[1], argc - 1, argv + 1);
}

/* Asked for by tests: whatever a command allocated, it has freed, also after an error. The text of an
 * error that it has overcome is gone: later it would be taken for the text of another. */
static void expect_nothing_left(enum ax_status st) {
    if (getenv("AX_CHECK_MEMORY") == NULL)
        return;
    const unsigned long long blocks = ax_mem_live_blocks();
    const bool has_text = st == AX_OK && *ax_error_text();
    if (blocks > 0)
        ax_log_error("leaked at exit: %llu blocks of base/mem.h", blocks);
    if (has_text)
        ax_log_error("success with the text of an error: %s (%s)", ax_error_text(),
                     ax_error_trace());
    if (blocks > 0 || has_text)
        abort();
}

int main(int argc, char **argv) {
    const bool launches = is_launcher(argv[0]);
    const char *name = launches ? "launch" : argc > 1 ? argv[1] : "";
    int code;
    if (ax_command_start(ax_commands, name, argc - !launches, argv + !launches, &code))
        exit(code);
    /* if the reader closes the pipe, writes fail quietly with EPIPE */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* likewise EFBIG beyond the limit of `ulimit -f` */
    enum ax_status st = run(argc, argv);
    if (st == AX_OK)
        st = ax_flush_stdout();
    if (st != AX_OK && *ax_error_text()) { /* "": another rank says it */
        ax_log_error("%s", ax_error_text());
        ax_log_debug("trace: %s", ax_error_trace());
    }
    fflush(stdout);
    expect_nothing_left(st);
    exit(ax_status_info(st)->exit_code);
}

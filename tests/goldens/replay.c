/* replay DIR: see command.h. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "tests/goldens/command.h"

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    const enum ax_status st = golden_replay(argc, argv);
    fflush(stdout);
    if (st != AX_OK)
        ax_log_error("%s", ax_error_text());
    return ax_status_info(st)->exit_code;
}

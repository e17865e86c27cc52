/* plan_score FILE.tsv: published training speeds against what `axtrain plan --hardware` says (docs/plan.md). */
#include <stdio.h>

#include "base/log.h"
#include "tests/bench/speeds.h"

int main(int argc, char **argv) {
    enum ax_status st;
    if (argc == 2)
        st = ax_plan_score(argv[1]);
    else
        st = ax_error(AX_ERR_CONFIG, "expected plan_score FILE.tsv");
    fflush(stdout);
    if (st != AX_OK)
        ax_log_error("%s", ax_error_text());
    return ax_status_info(st)->exit_code;
}

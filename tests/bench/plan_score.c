/* plan_score FILE.tsv: published training speeds against what `axtrain plan --hardware` says (docs/plan.md). */
#include "tests/bench/program.h"
#include "tests/bench/speeds.h"

static enum ax_status run(int argc, char **argv) {
    if (argc != 2)
        return ax_error(AX_ERR_CONFIG, "expected plan_score FILE.tsv");
    return ax_plan_score(argv[1]);
}

int main(int argc, char **argv) {
    return end_program(run(argc, argv));
}

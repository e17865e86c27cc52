/* bench KIND --model DIR|--arch NAME [options]: speeds around the arithmetic, reported and compared as
 * `axtrain bench` does.
 *
 *     bench pipeline    tokenizing, packing, loading a model, saving a checkpoint during training
 *     bench startup     from `axtrain sft` to its first forward pass
 *
 *     --data FILE       records, as for init (default: generated problems)
 *     --work DIR        folder for temporary files (default: TMPDIR, or /tmp)
 *     --no-save         (pipeline) skip the checkpoint, which takes gigabytes
 *     --dtype T, --threads N    (pipeline) as in `axtrain bench`
 *     --rounds N        (startup) the median of N starts (default 5)
 *     --json, -o FILE, --compare OLD.json, --tolerance P    as in `axtrain bench` */
#include <string.h>

#include "tests/bench/input.h"
#include "tests/bench/program.h"

static enum ax_status run(int argc, char **argv) {
    struct ax_bench b = {0};
    enum ax_status st;
    if (argc > 1 && strcmp(argv[1], "pipeline") == 0)
        st = ax_bench_pipeline(&b, argc - 1, argv + 1);
    else if (argc > 1 && strcmp(argv[1], "startup") == 0)
        st = ax_bench_startup(&b, argc - 1, argv + 1);
    else
        st = ax_error(AX_ERR_CONFIG, "expected bench pipeline or bench startup");
    if (st == AX_OK)
        st = ax_bench_finish(&b);
    ax_bench_free(&b);
    return st;
}

int main(int argc, char **argv) {
    return end_program(run(argc, argv));
}

/* What `axtrain bench` times; one file each. */
#ifndef AX_CMD_BENCH_H
#define AX_CMD_BENCH_H

#include "base/status.h"

/* argv[0] is "generate". */
enum ax_status ax_bench_generate(int argc, char **argv);

#endif

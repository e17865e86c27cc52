/* A program, or a candidate and its tests, and the result of running it. */
#ifndef AX_DATA_REWARD_SANDBOX_RUN_H
#define AX_DATA_REWARD_SANDBOX_RUN_H

#include "data/reward/sandbox/wasi.h"

enum ax_verdict {
    AX_VERDICT_EXIT,   /* ended by itself, with an exit code */
    AX_VERDICT_FUEL,   /* used all instructions it may use */
    AX_VERDICT_TIME,   /* was stuck */
    AX_VERDICT_MEMORY, /* the interpreter failed at the limit of its memory */
    AX_VERDICT_STACK,
    AX_VERDICT_OUTPUT, /* wrote too much */
    AX_VERDICT_TRAP,   /* the interpreter failed, or went on where it had to exit */
    AX_VERDICT_CRASH,  /* the worker died, twice */
    AX_VERDICT_COUNT
};
extern const char *const ax_verdict_names[AX_VERDICT_COUNT];

enum ax_sandbox_kind {
    AX_SANDBOX_PROGRAM, /* parts: source, stdin */
    AX_SANDBOX_CHECK, /* parts: source of the candidate, then for each test what harness.py takes */
    AX_SANDBOX_KIND_COUNT
};

struct ax_sandbox_limits {
    uint64_t fuel, memory;
    uint32_t out, err; /* bytes; more of err is dropped */
};
#define AX_SANDBOX_FUEL   ((uint64_t)5000000000)
#define AX_SANDBOX_MEMORY ((uint64_t)256 << 20) /* also the most possible */
#define AX_SANDBOX_OUT    65536
#define AX_SANDBOX_ERR    16384
#define AX_SANDBOX_LIMITS                                                                          \
    (struct ax_sandbox_limits) {                                                                   \
        AX_SANDBOX_FUEL, AX_SANDBOX_MEMORY, AX_SANDBOX_OUT, AX_SANDBOX_ERR                         \
    }
#define AX_SANDBOX_MAX_PARTS 1024

struct ax_sandbox_job {
    enum ax_sandbox_kind kind;
    const struct ax_bytes *parts;
    size_t n_parts;
    /* limits of a candidate over all tests; and the same for its tests */
    struct ax_sandbox_limits limits;
    uint64_t seed; /* seed of the program's random numbers */
};

struct ax_sandbox_result {
    enum ax_verdict verdict; /* in a check, the candidate's; EXIT and 0 if it lasted to the end */
    int exit_code;
    uint64_t fuel;
    double seconds;
    struct ax_buf out, err;
    struct ax_buf passed; /* in a check: [n_parts - 1] 0 or 1, whether each test passed */
};
void ax_sandbox_result_free(struct ax_sandbox_result *r);

#endif

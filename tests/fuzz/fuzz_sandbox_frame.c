/* What goes between a sandbox's worker and its owner: any bytes are a frame or an error, jobs and
 * results are within their bounds, and what is accepted says the same when it is written again. */
#include <stdint.h>
#include <string.h>

#include "data/reward/sandbox/frame.h"

static struct ax_frame f, again;

static void check_job(void) {
    struct ax_sandbox_job job;
    struct ax_buf b = {0};
    if (ax_frame_get_job(&job, &f) != AX_OK)
        return;
    AX_ASSERT(job.kind < AX_SANDBOX_KIND_COUNT && job.n_parts >= 1 &&
              job.n_parts <= AX_SANDBOX_MAX_PARTS);
    AX_ASSERT(job.limits.out <= AX_SANDBOX_OUT && job.limits.err <= AX_SANDBOX_ERR &&
              job.limits.memory <= AX_SANDBOX_MEMORY);
    AX_ASSERT(ax_frame_put_job(&b, &job) == AX_OK);
    AX_ASSERT(ax_frame_get(&again, b.data, b.len) == AX_OK);
    AX_ASSERT(again.n_parts == f.n_parts);
    ax_buf_free(&b);
}

/* As the result of a program and of checks with 0 to 2 tests. */
static void check_result(void) {
    const struct ax_bytes parts[3] = {{"", 0}, {"", 0}, {"", 0}};
    for (size_t n = 0; n < 4; n++) {
        const struct ax_sandbox_job job = {.kind = n ? AX_SANDBOX_CHECK : AX_SANDBOX_PROGRAM,
                                           .parts = parts,
                                           .n_parts = n ? n : 2,
                                           .limits = {1, 1, 20, 10}};
        struct ax_sandbox_result r;
        if (ax_frame_get_result(&r, &f, &job) != AX_OK)
            continue;
        AX_ASSERT(r.verdict < AX_VERDICT_COUNT && r.exit_code >= 0 && r.exit_code <= 125);
        AX_ASSERT(r.out.len <= 20 && r.err.len <= 10 && r.passed.len == (n ? n - 1 : 0));
        for (size_t i = 0; i < r.passed.len; i++)
            AX_ASSERT(r.passed.data[i] == 0 || r.passed.data[i] == 1);
        ax_sandbox_result_free(&r);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The input without a frame's length, which is put in front of it; or with it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint64_t live = ax_mem_live_blocks();
    struct ax_buf b = {0};
    const uint32_t length = (uint32_t)size + 4;
    if (size > 4096)
        return 0;
    (void)ax_frame_size((const char *)data, size);
    (void)ax_frame_get(&f, (const char *)data, size);
    AX_ASSERT(ax_buf_append(&b, &length, sizeof length) == AX_OK);
    AX_ASSERT(ax_buf_append(&b, data, size) == AX_OK);
    if (ax_frame_get(&f, b.data, b.len) == AX_OK) {
        for (size_t i = 0; i < f.n_parts; i++)
            AX_ASSERT(f.parts[i].data >= b.data &&
                      f.parts[i].data + f.parts[i].n <= b.data + b.len);
        check_job();
        check_result();
    }
    ax_buf_free(&b);
    AX_ASSERT(ax_mem_live_blocks() == live);
    return 0;
}

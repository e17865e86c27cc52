#include "data/reward/sandbox/frame.h"

#include <string.h>

const char *const ax_verdict_names[AX_VERDICT_COUNT] = {
    [AX_VERDICT_EXIT] = "exit",     [AX_VERDICT_FUEL] = "fuel",   [AX_VERDICT_TIME] = "time",
    [AX_VERDICT_MEMORY] = "memory", [AX_VERDICT_STACK] = "stack", [AX_VERDICT_OUTPUT] = "output",
    [AX_VERDICT_TRAP] = "trap",     [AX_VERDICT_CRASH] = "crash"};

void ax_sandbox_result_free(struct ax_sandbox_result *r) {
    ax_buf_free(&r->out);
    ax_buf_free(&r->err);
    ax_buf_free(&r->passed);
}

enum { LENGTH = 4, HEADER = LENGTH + 8 * AX_FRAME_NUMBERS + 4 };

static enum ax_status put32(struct ax_buf *out, size_t value) {
    const uint32_t v = (uint32_t)value;
    return ax_buf_append(out, &v, sizeof v);
}

static uint32_t get32(const char *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

enum ax_status ax_frame_put(struct ax_buf *out, const struct ax_frame *f) {
    size_t size = HEADER;
    for (size_t i = 0; i < f->n_parts; i++) {
        if (AX_FRAME_MAX - size < LENGTH || f->parts[i].n > AX_FRAME_MAX - size - LENGTH)
            return ax_error(AX_ERR_DATA, "a program and its tests have more than %zu MiB",
                            AX_FRAME_MAX >> 20);
        size += LENGTH + f->parts[i].n;
    }
    AX_TRY(put32(out, size));
    AX_TRY(ax_buf_append(out, f->numbers, sizeof f->numbers));
    AX_TRY(put32(out, f->n_parts));
    for (size_t i = 0; i < f->n_parts; i++) {
        AX_TRY(put32(out, f->parts[i].n));
        AX_TRY(ax_buf_append(out, f->parts[i].data, f->parts[i].n));
    }
    return AX_OK;
}

size_t ax_frame_size(const char *data, size_t n) {
    if (n < LENGTH)
        return 0;
    const size_t size = get32(data);
    return size < HEADER || size > AX_FRAME_MAX ? AX_FRAME_MAX + 1 : size;
}

enum ax_status ax_frame_get(struct ax_frame *f, const char *data, size_t n) {
    size_t at = HEADER;
    if (n < HEADER || get32(data) != n)
        return ax_error(AX_ERR_DATA, "a frame of %zu bytes does not have the length it says", n);
    memcpy(f->numbers, data + LENGTH, sizeof f->numbers);
    f->n_parts = get32(data + HEADER - 4);
    if (f->n_parts > AX_SANDBOX_MAX_PARTS)
        return ax_error(AX_ERR_DATA, "a frame has %zu parts", f->n_parts);
    for (size_t i = 0; i < f->n_parts; i++) {
        const size_t len = n - at < LENGTH ? 0 : get32(data + at);
        if (n - at < LENGTH || len > n - at - LENGTH)
            return ax_error(AX_ERR_DATA, "part %zu of a frame ends behind it", i);
        f->parts[i] = (struct ax_bytes){data + at + LENGTH, len};
        at += LENGTH + len;
    }
    return at == n ? AX_OK : ax_error(AX_ERR_DATA, "a frame has %zu bytes too many", n - at);
}

/* ---- jobs and results ---- */

static size_t least_parts(enum ax_sandbox_kind kind) {
    return kind == AX_SANDBOX_PROGRAM ? 2 : 1;
}

enum ax_status ax_frame_put_job(struct ax_buf *out, const struct ax_sandbox_job *job) {
    struct ax_frame f = {.numbers = {job->kind, job->seed, job->limits.fuel, job->limits.memory,
                                     job->limits.out, job->limits.err},
                         .n_parts = job->n_parts};
    AX_ASSERT(job->n_parts >= least_parts(job->kind) && job->n_parts <= AX_SANDBOX_MAX_PARTS);
    memcpy(f.parts, job->parts, job->n_parts * sizeof *job->parts);
    return ax_frame_put(out, &f);
}

enum ax_status ax_frame_get_job(struct ax_sandbox_job *job, const struct ax_frame *f) {
    const uint64_t *v = f->numbers;
    if (v[0] >= AX_SANDBOX_KIND_COUNT || f->n_parts < least_parts((enum ax_sandbox_kind)v[0]) ||
        v[3] > AX_SANDBOX_MEMORY || v[4] > AX_SANDBOX_OUT || v[5] > AX_SANDBOX_ERR)
        return ax_error(AX_ERR_DATA, "a frame is not a job");
    *job = (struct ax_sandbox_job){.kind = (enum ax_sandbox_kind)v[0],
                                   .parts = f->parts,
                                   .n_parts = f->n_parts,
                                   .limits = {v[2], v[3], (uint32_t)v[4], (uint32_t)v[5]},
                                   .seed = v[1]};
    return AX_OK;
}

enum ax_status ax_frame_put_result(struct ax_buf *out, const struct ax_sandbox_result *r) {
    struct ax_frame f = {
        .numbers = {r->verdict, (uint64_t)r->exit_code, r->fuel, (uint64_t)(r->seconds * 1e9)},
        .n_parts = 3,
        .parts = {
            {r->out.data, r->out.len}, {r->err.data, r->err.len}, {r->passed.data, r->passed.len}}};
    return ax_frame_put(out, &f);
}

/* A result's part "passed": a byte of 0 or 1 for each test; of a program, nothing. */
static bool is_passed_part(struct ax_bytes b, const struct ax_sandbox_job *job) {
    if (b.n != (job->kind == AX_SANDBOX_CHECK ? job->n_parts - 1 : 0))
        return false;
    for (size_t i = 0; i < b.n; i++)
        if (b.data[i] != 0 && b.data[i] != 1)
            return false;
    return true;
}

enum ax_status ax_frame_get_result(struct ax_sandbox_result *r, const struct ax_frame *f,
                                   const struct ax_sandbox_job *job) {
    const uint64_t *v = f->numbers;
    if (v[0] >= AX_VERDICT_COUNT || v[1] > 125 || f->n_parts != 3 ||
        f->parts[0].n > job->limits.out || f->parts[1].n > job->limits.err ||
        !is_passed_part(f->parts[2], job))
        return ax_error(AX_ERR_DATA, "a frame is not a result");
    *r = (struct ax_sandbox_result){.verdict = (enum ax_verdict)v[0],
                                    .exit_code = (int)v[1],
                                    .fuel = v[2],
                                    .seconds = (double)v[3] * 1e-9};
    enum ax_status st = ax_buf_append(&r->out, f->parts[0].data, f->parts[0].n);
    if (st == AX_OK)
        st = ax_buf_append(&r->err, f->parts[1].data, f->parts[1].n);
    if (st == AX_OK)
        st = ax_buf_append(&r->passed, f->parts[2].data, f->parts[2].n);
    if (st != AX_OK)
        ax_sandbox_result_free(r);
    return st;
}

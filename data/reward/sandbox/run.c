#include "data/reward/sandbox/run.h"

#include <string.h>

#include "base/clock.h"
#include "data/reward/sandbox/snapshot.h"

const char *const ax_verdict_names[AX_VERDICT_COUNT] = {
    [AX_VERDICT_EXIT] = "exit",     [AX_VERDICT_FUEL] = "fuel",   [AX_VERDICT_TIME] = "time",
    [AX_VERDICT_MEMORY] = "memory", [AX_VERDICT_STACK] = "stack", [AX_VERDICT_OUTPUT] = "output",
    [AX_VERDICT_TRAP] = "trap",     [AX_VERDICT_CRASH] = "crash"};

void ax_sandbox_result_free(struct ax_sandbox_result *r) {
    ax_buf_free(&r->out);
    ax_buf_free(&r->err);
    ax_buf_free(&r->passed);
}

enum ax_status ax_runner_open(struct ax_runner *r, const struct ax_engine *e,
                              const struct ax_pristine *p, struct ax_bytes library) {
    *r = (struct ax_runner){.engine = e, .pristine = p, .library = library};
    AX_TRY(ax_alloc(&r->out, AX_SANDBOX_OUT, 1));
    return ax_alloc(&r->err, AX_SANDBOX_ERR, 1);
}

void ax_runner_close(struct ax_runner *r) {
    ax_guest_close(&r->guests[0]);
    ax_guest_close(&r->guests[1]);
    ax_free(r->out);
    ax_free(r->err);
    *r = (struct ax_runner){0};
}

/* ---- ends ---- */

/* A page near the end of the stack is never written, unless the stack grows into it. */
static bool is_stack_full(const struct ax_runner *r, const struct ax_guest *g) {
    const struct ax_pristine *p = r->pristine;
    size_t size;
    const unsigned char *memory = ax_guest_memory(g, &size);
    const size_t top = (size_t)(uint32_t)p->globals[AX_SNAPSHOT_STACK_POINTER];
    /* the top is aligned, at most a page below the end */
    const size_t canary = 4096, lowest = top - AX_SNAPSHOT_STACK + canary;
    return memcmp(memory + lowest, p->memory + lowest, canary) != 0;
}

static enum ax_verdict verdict_of(const struct ax_runner *r, const struct ax_guest *g,
                                  enum ax_guest_end end) {
    static const enum ax_verdict of_guest[] = {
        [AX_GUEST_RETURNED] = AX_VERDICT_TRAP,    [AX_GUEST_STOPPED] = AX_VERDICT_TRAP,
        [AX_GUEST_NO_FUEL] = AX_VERDICT_FUEL,     [AX_GUEST_NO_STACK] = AX_VERDICT_STACK,
        [AX_GUEST_NO_MEMORY] = AX_VERDICT_MEMORY, [AX_GUEST_TRAP] = AX_VERDICT_TRAP};
    static const enum ax_verdict of_wasi[] = {
        [AX_WASI_RUNS] = AX_VERDICT_TRAP, [AX_WASI_EXIT] = AX_VERDICT_EXIT,
        [AX_WASI_FUEL] = AX_VERDICT_FUEL, [AX_WASI_OUTPUT] = AX_VERDICT_OUTPUT,
        [AX_WASI_PEER] = AX_VERDICT_TRAP, [AX_WASI_CLOCK] = AX_VERDICT_TRAP};
    if (is_stack_full(r, g))
        return AX_VERDICT_STACK;
    return end == AX_GUEST_STOPPED ? of_wasi[g->wasi.end] : of_guest[end];
}

/* ---- a program ---- */

static struct ax_bytes text(const char *s) {
    return (struct ax_bytes){s, strlen(s)};
}

static struct ax_wasi world(struct ax_runner *r, const struct ax_sandbox_job *job,
                            const struct ax_bytes *input, size_t n) {
    return (struct ax_wasi){.input = input,
                            .n_input = n,
                            .out = {.data = r->out, .cap = job->limits.out},
                            .err = {.data = r->err, .cap = job->limits.err},
                            .library = r->library,
                            .library_path = AX_SNAPSHOT_LIBRARY_PATH,
                            .seed = job->seed,
                            .fuel_limit = job->limits.fuel};
}

static enum ax_status begin(struct ax_runner *r, int which, const struct ax_sandbox_job *job,
                            const struct ax_wasi *wasi) {
    AX_TRY(ax_pristine_guest(r->pristine, r->engine, &r->guests[which]));
    return ax_guest_begin(&r->guests[which], wasi, job->limits.memory);
}

static enum ax_status run_program(struct ax_runner *r, const struct ax_sandbox_job *job,
                                  struct ax_sandbox_result *result) {
    const struct ax_bytes input[] = {text("program"), job->parts[0], job->parts[1]};
    const struct ax_wasi wasi = world(r, job, input, 3);
    struct ax_guest *g = &r->guests[0];
    uint32_t ignored;
    AX_TRY(begin(r, 0, job, &wasi));
    result->verdict = verdict_of(r, g, ax_guest_call(g, &ignored));
    return AX_OK;
}

/* ---- a candidate and its tests ---- */

struct check {
    struct ax_runner *r;
    struct ax_bytes message;
    bool dead; /* the candidate */
    enum ax_verdict verdict;
};

/* Enters the candidate's instance with the input it has; *reply is in its memory. False: it is
 * dead. */
static bool enter_candidate(struct check *c, struct ax_bytes *reply) {
    struct ax_guest *g = &c->r->guests[0];
    uint32_t object;
    if (c->dead)
        return false;
    const enum ax_guest_end end = ax_guest_call(g, &object);
    c->dead = end != AX_GUEST_RETURNED || is_stack_full(c->r, g) ||
              !ax_guest_bytes(g, object, AX_WASI_MAX_MESSAGE, reply);
    if (c->dead)
        c->verdict = verdict_of(c->r, g, end);
    return !c->dead;
}

/* A message of the tests to the candidate. */
static bool ask_candidate(void *ctx, struct ax_bytes message, struct ax_bytes *reply) {
    struct check *c = ctx;
    struct ax_wasi *w = &c->r->guests[0].wasi;
    c->message = message;
    w->input = &c->message;
    w->n_input = 1;
    w->segment = w->at = 0;
    return enter_candidate(c, reply);
}

/* Runs one test; its instance says "1" if it passed. False if there can be no further one. */
static bool run_test(struct check *c, char *passed) {
    struct ax_guest *g = &c->r->guests[1];
    struct ax_bytes reply = {0};
    uint32_t object;
    if (ax_guest_call(g, &object) != AX_GUEST_RETURNED || is_stack_full(c->r, g))
        return false;
    *passed = ax_guest_bytes(g, object, 1, &reply) && reply.n == 1 && *reply.data == '1';
    return !c->dead;
}

static enum ax_status run_tests(struct check *c, const struct ax_sandbox_job *job, char *passed) {
    char err[256]; /* nobody reads what tests print */
    struct ax_bytes input[2] = {text("tests"), job->parts[0]};
    struct ax_wasi wasi = world(c->r, job, input, 2);
    struct ax_guest *g = &c->r->guests[1];
    wasi.err = (struct ax_wasi_output){.data = err, .cap = sizeof err};
    wasi.ask = ask_candidate;
    wasi.ask_ctx = c;
    AX_TRY(begin(c->r, 1, job, &wasi));
    bool goes_on = true;
    for (size_t i = 1; i < job->n_parts && goes_on; i++) {
        input[1] = job->parts[i];
        g->wasi.input = i == 1 ? input : &input[1];
        g->wasi.n_input = i == 1 ? 2 : 1;
        g->wasi.segment = g->wasi.at = 0;
        goes_on = run_test(c, &passed[i - 1]);
    }
    g->wasi.input = NULL;
    g->wasi.n_input = 0;
    return AX_OK;
}

static enum ax_status run_check(struct ax_runner *r, const struct ax_sandbox_job *job,
                                struct ax_sandbox_result *result) {
    const struct ax_bytes input[] = {text("candidate"), job->parts[0]};
    const struct ax_wasi wasi = world(r, job, input, 2);
    struct check c = {.r = r, .verdict = AX_VERDICT_EXIT};
    struct ax_bytes ignored;
    for (size_t i = 1; i < job->n_parts; i++)
        AX_TRY(ax_buf_append(&result->passed, "", 1));
    AX_TRY(begin(r, 0, job, &wasi));
    if (enter_candidate(&c, &ignored))
        AX_TRY(run_tests(&c, job, result->passed.data));
    result->verdict = c.verdict;
    return AX_OK;
}

enum ax_status ax_runner_run(struct ax_runner *r, const struct ax_sandbox_job *job,
                             struct ax_sandbox_result *result) {
    const double start = ax_clock_now();
    const struct ax_guest *g = &r->guests[0];
    *result = (struct ax_sandbox_result){0};
    AX_TRY(job->kind == AX_SANDBOX_PROGRAM ? run_program(r, job, result)
                                           : run_check(r, job, result));
    if (result->verdict == AX_VERDICT_EXIT)
        result->exit_code = g->wasi.exit_code;
    result->fuel = ax_guest_fuel_used(g);
    result->seconds = ax_clock_now() - start;
    result->out = (struct ax_buf){.data = r->out, .len = g->wasi.out.n};
    result->err = (struct ax_buf){.data = r->err, .len = g->wasi.err.n};
    return AX_OK;
}

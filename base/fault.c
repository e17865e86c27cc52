/* Rules are atomics, so that fault points need no lock and configure may run concurrently. */
#include "base/fault.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_RULES 16

static const char *const op_names[] = {
    [AX_FAULT_OPEN] = "open",       [AX_FAULT_READ] = "read",     [AX_FAULT_WRITE] = "write",
    [AX_FAULT_FSYNC] = "fsync",     [AX_FAULT_RENAME] = "rename", [AX_FAULT_CLOSE] = "close",
    [AX_FAULT_MKDIR] = "mkdir",     [AX_FAULT_UNLINK] = "unlink", [AX_FAULT_LIST] = "list",
    [AX_FAULT_SEND] = "send",       [AX_FAULT_RECV] = "recv",     [AX_FAULT_MALLOC] = "malloc",
    [AX_FAULT_WEIGHTS] = "weights",
};
_Static_assert(sizeof op_names / sizeof op_names[0] == AX_FAULT_OP_COUNT, "one name per op");

static const char *const kind_names[] = {
    [AX_FAULT_NONE] = "",         [AX_FAULT_KILL] = "kill",     [AX_FAULT_EIO] = "eio",
    [AX_FAULT_ENOSPC] = "enospc", [AX_FAULT_ENOMEM] = "enomem", [AX_FAULT_SHORT] = "short",
    [AX_FAULT_EINTR] = "eintr",   [AX_FAULT_DELAY] = "delay",   [AX_FAULT_FLIP] = "flip",
    [AX_FAULT_NAN] = "nan",
};

/* k << 8 | op << 4 | kind; 0 = none. */
static _Atomic uint64_t rules[MAX_RULES];
static _Atomic uint64_t counts[AX_FAULT_OP_COUNT];
static _Atomic bool armed, fired;

static uint64_t pack(enum ax_fault_op op, enum ax_fault_kind kind, uint64_t k) {
    return k << 8 | (uint64_t)op << 4 | (uint64_t)kind;
}

static int find_name(const char *const *names, int n, const char *s, size_t len) {
    for (int i = 0; i < n; i++)
        if (len > 0 && strlen(names[i]) == len && memcmp(names[i], s, len) == 0)
            return i;
    return -1;
}

static bool is_transfer(int op) {
    return op == AX_FAULT_READ || op == AX_FAULT_WRITE || op == AX_FAULT_SEND ||
           op == AX_FAULT_RECV;
}

/* "@2" at the end: of the rank 2 only. *n becomes the bytes before it. */
static enum ax_status parse_rank(const char *s, size_t *n, bool *here) {
    const char *at = memchr(s, '@', *n), *rank = getenv("RANK");
    *here = true;
    if (!at)
        return AX_OK;
    const size_t digits = *n - (size_t)(at + 1 - s);
    if (digits == 0 || strspn(at + 1, "0123456789") < digits)
        return ax_error(AX_ERR_CONFIG, "AX_FAULT: \"%.*s\": expected a rank behind @", (int)*n, s);
    *here = rank && strlen(rank) == digits && memcmp(rank, at + 1, digits) == 0;
    *n = (size_t)(at - s);
    return AX_OK;
}

/* "write:3:enospc", n bytes without the comma. */
static enum ax_status parse_rule(const char *s, size_t n, uint64_t *rule) {
    bool here;
    AX_TRY(parse_rank(s, &n, &here));
    const char *c1 = memchr(s, ':', n);
    const char *c2 = c1 != NULL ? memchr(c1 + 1, ':', n - (size_t)(c1 + 1 - s)) : NULL;
    if (c2 == NULL)
        return ax_error(AX_ERR_CONFIG, "AX_FAULT: \"%.*s\": expected <op>:<k>:<kind>", (int)n, s);
    int op = find_name(op_names, AX_FAULT_OP_COUNT, s, (size_t)(c1 - s));
    if (op < 0) {
        return ax_error(AX_ERR_CONFIG,
                        "AX_FAULT: \"%.*s\": unknown operation; expected open, read, write, fsync, "
                        "rename, close, mkdir, unlink, list, send, recv, malloc or weights",
                        (int)n, s);
    }
    uint64_t k = 0;
    bool ok = c2 - c1 <= 16;
    for (const char *p = c1 + 1; ok && p < c2; p++) {
        ok = *p >= '0' && *p <= '9';
        k = k * 10 + (uint64_t)(*p - '0');
    }
    if (!ok || k == 0)
        return ax_error(AX_ERR_CONFIG, "AX_FAULT: \"%.*s\": call numbers start at 1", (int)n, s);
    int kind = find_name(kind_names, AX_FAULT_NAN + 1, c2 + 1, n - (size_t)(c2 + 1 - s));
    if (kind < 0) {
        return ax_error(
            AX_ERR_CONFIG,
            "AX_FAULT: \"%.*s\": unknown kind; expected kill, eio, enospc, enomem, short, "
            "eintr, delay, flip or nan",
            (int)n, s);
    }
    if (kind == AX_FAULT_SHORT && !is_transfer(op)) {
        return ax_error(AX_ERR_CONFIG,
                        "AX_FAULT: \"%.*s\": only read, write, send and recv can be short", (int)n,
                        s);
    }
    if (kind != AX_FAULT_KILL && (kind >= AX_FAULT_FLIP) != (op == AX_FAULT_WEIGHTS))
        return ax_error(
            AX_ERR_CONFIG,
            "AX_FAULT: \"%.*s\": flip and nan are for weights, which have no others but "
            "kill",
            (int)n, s);
    *rule = here ? pack((enum ax_fault_op)op, (enum ax_fault_kind)kind, k) : 0;
    return AX_OK;
}

enum ax_status ax_fault_configure(const char *spec) {
    uint64_t parsed[MAX_RULES] = {0};
    size_t n = 0;
    for (const char *s = spec; s != NULL && *s != '\0';) {
        size_t len = strcspn(s, ",");
        if (n == MAX_RULES)
            return ax_error(AX_ERR_CONFIG, "AX_FAULT: more than %d faults", MAX_RULES);
        AX_TRY(parse_rule(s, len, &parsed[n]));
        n++;
        s += len + (s[len] == ',');
    }
    atomic_store(&armed, false);
    for (int op = 0; op < AX_FAULT_OP_COUNT; op++)
        atomic_store(&counts[op], 0);
    atomic_store(&fired, false);
    for (size_t i = 0; i < MAX_RULES; i++)
        atomic_store(&rules[i], parsed[i]);
    atomic_store(&armed, n > 0);
    return AX_OK;
}

static enum ax_fault_kind perform(enum ax_fault_kind kind) {
    atomic_store(&fired, true);
    if (kind == AX_FAULT_KILL) {
        kill(getpid(), SIGKILL);
        for (;;)
            pause(); /* the signal may reach another thread first */
    }
    if (kind == AX_FAULT_DELAY) {
        struct timespec t = {0, 200 * 1000 * 1000};
        nanosleep(&t, NULL);
        return AX_FAULT_NONE;
    }
    return kind;
}

enum ax_fault_kind ax_fault_point(enum ax_fault_op op) {
    uint64_t k = atomic_fetch_add_explicit(&counts[op], 1, memory_order_relaxed) + 1;
    if (!atomic_load_explicit(&armed, memory_order_acquire))
        return AX_FAULT_NONE;
    for (size_t i = 0; i < MAX_RULES; i++) {
        uint64_t rule = atomic_load_explicit(&rules[i], memory_order_relaxed);
        enum ax_fault_kind kind = (enum ax_fault_kind)(rule & 15U);
        if (rule != 0 && rule == pack(op, kind, k))
            return perform(kind);
    }
    return AX_FAULT_NONE;
}

uint64_t ax_fault_count(enum ax_fault_op op) {
    return atomic_load_explicit(&counts[op], memory_order_relaxed);
}

bool ax_fault_fired(void) {
    return atomic_load(&fired);
}

const char *ax_fault_op_name(enum ax_fault_op op) {
    return op_names[op];
}

/* Facts for bug reports. */
#include "cmd/train/env.h"

#include <sys/utsname.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/proc.h"
#include "base/threads.h"
#include "cmd/commit.h"
#include "kernels/cpu/isa.h"

#ifdef __clang__
#define AX_COMPILER __VERSION__ /* begins with the compiler's name */
#else
#define AX_COMPILER "gcc " __VERSION__
#endif

/* The value in the first line "key : value" of a /proc file. */
static void proc_field(const char *path, const char *key, char *out, size_t size) {
    static char text[1 << 16];
    snprintf(out, size, "unknown");
    if (!ax_proc_read(path, text, sizeof text))
        return;
    const char *at = strstr(text, key);
    at = at ? strchr(at, ':') : NULL;
    if (!at)
        return;
    at += 1 + strspn(at + 1, " \t");
    snprintf(out, size, "%.*s", (int)strcspn(at, "\n"), at);
}

enum ax_status ax_env_facts(json_t **out) {
    struct utsname u = {0};
    char cpu[128], memory[64];
    uname(&u);
    proc_field("/proc/cpuinfo", "model name", cpu, sizeof cpu);
    proc_field("/proc/meminfo", "MemTotal", memory, sizeof memory);
    const double kib = strtod(memory, NULL);
    if (kib > 0)
        ax_format_bytes(memory, sizeof memory, 1024 * kib);
    *out = json_pack("{ss ss ss ss ss ss si ss ss}", "axtrain", AX_VERSION, "commit",
                     ax_commit ? ax_commit : "unknown", "compiler", AX_COMPILER, "system",
                     u.sysname, "kernel", u.release, "cpu", cpu, "cpus", ax_cpu_count(),
                     "instruction_set", ax_cpu_isa_name(ax_cpu_isa()), "memory", memory);
    return *out ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for the environment");
}

/* What the kernel says about this process's memory. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/mem.h"
#include "base/proc.h"

/* A "VmHWM:   1234 kB" line of /proc/self/status, in bytes; 0 if there is none. */
static uint64_t status_bytes(const char *field) {
    char text[4096];
    if (!ax_proc_read("/proc/self/status", text, sizeof text))
        return 0;
    const char *line = strstr(text, field);
    return line != NULL ? 1024 * strtoull(line + strlen(field), NULL, 10) : 0;
}

uint64_t ax_mem_peak_rss(void) {
    return status_bytes("\nVmHWM:");
}

uint64_t ax_mem_rss(void) {
    return status_bytes("\nVmRSS:");
}

uint64_t ax_mem_minor_faults(void) {
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (uint64_t)u.ru_minflt : 0;
}

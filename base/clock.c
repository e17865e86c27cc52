#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/proc.h"

double ax_clock_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double ax_clock_since_start(void) {
    char text[1024];
    struct timespec now;
    unsigned long long ticks;
    /* after the name, which may contain anything: fields 3 and on; the start is field 22 */
    const char *at = ax_proc_read("/proc/self/stat", text, sizeof text) ? strrchr(text, ')') : NULL;
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (!at || sscanf(at, "%llu", &ticks) != 1 || clock_gettime(CLOCK_BOOTTIME, &now) != 0)
        return NAN;
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec -
           (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

/* Three significant digits, so that columns of figures keep their width. */
static void format_scaled(char *buf, size_t size, double v, double base, const char *const *units,
                          int n_units) {
    int u = 0;
    /* 999.5 would print as 1000 of the lower unit. */
    while (u + 1 < n_units && fabs(v) >= (base == 1000.0 ? 999.5 : base - 0.5)) {
        v /= base;
        u++;
    }
    double a = fabs(v);
    int digits = u == 0 || a >= 99.95 ? 0 : a >= 9.995 ? 1 : 2;
    snprintf(buf, size, "%.*f%s%s", digits, v, units[u][0] != '\0' ? " " : "", units[u]);
}

const char *ax_format_bytes(char *buf, size_t size, double bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    format_scaled(buf, size, bytes, 1024.0, units, 7);
    return buf;
}

const char *ax_format_count(char *buf, size_t size, double count) {
    static const char *const units[] = {"", "k", "M", "G", "T", "P", "E"};
    format_scaled(buf, size, count, 1000.0, units, 7);
    return buf;
}

const char *ax_format_seconds(char *buf, size_t size, double seconds) {
    if (!(seconds < 1e12)) { /* also NaN */
        snprintf(buf, size, "unknown");
    } else if (seconds < 0.9995) {
        snprintf(buf, size, "%.3g ms", seconds * 1e3);
    } else if (seconds < 59.95) {
        snprintf(buf, size, "%.1f s", seconds);
    } else {
        long long s = llround(seconds);
        if (s < 3600)
            snprintf(buf, size, "%lldm %02llds", s / 60, s % 60);
        else if (s < 86400)
            snprintf(buf, size, "%lldh %02lldm", s / 3600, s / 60 % 60);
        else
            snprintf(buf, size, "%lldd %02lldh", s / 86400, s / 3600 % 24);
    }
    return buf;
}

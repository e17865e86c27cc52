/* The two machines that most tests of ops compare: ref on one thread and, where there is one, cpu on two. Include after
 * cmocka.h; the functions are set-up and tear-down of a group. */
#ifndef AX_TESTS_KERNELS_MACHINES_H
#define AX_TESTS_KERNELS_MACHINES_H

#include "tests/kernels/harness.h"

static struct machine ref, cpu;

static inline int open_machines(void **state) {
    (void)state;
    machine_open(&ref, "ref", 1);
    if (have_cpu())
        machine_open(&cpu, "cpu", 2);
    return 0;
}

static inline int close_machines(void **state) {
    (void)state;
    machine_close(&ref);
    if (have_cpu())
        machine_close(&cpu);
    return 0;
}

#endif

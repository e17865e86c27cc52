/* What `device: auto` says: why it is not the GPU that the machine has; nothing where it has none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "kernels/backend.h"
#include "kernels/cuda/find.h"

static char dir[64];

static void write_number(const char *device, const char *file, const char *text) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, device);
    (void)mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/%s", dir, device, file);
    assert_int_equal(ax_write_file_atomic(path, text, strlen(text)), AX_OK);
}

static void set_device(const char *vendor, const char *class) {
    write_number("0000:00:1f.0", "vendor", "0x8086\n");
    write_number("0000:00:1f.0", "class", "0x030000\n");
    write_number("0000:17:00.0", "vendor", vendor);
    write_number("0000:17:00.0", "class", class);
}

/* What is logged while auto chooses. */
static void choose(char *said, size_t size, const char **backend) {
    char path[96];
    snprintf(path, sizeof path, "%s.log", dir);
    const int kept = dup(STDERR_FILENO), file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(kept >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
    const enum ax_status st = ax_backend_choose("auto", false, backend);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    const ssize_t n = pread(file, said, size - 1, 0);
    close(kept);
    close(file);
    unlink(path);
    assert_int_equal(st, AX_OK);
    assert_true(n >= 0);
    said[n] = '\0';
}

static void a_gpu_is_seen_on_the_bus(void **state) {
    (void)state;
    set_device("0x10de\n", "0x030200\n");
    assert_true(ax_bus_has_nvidia());
    set_device("0x10de\n", "0x030000\n");
    assert_true(ax_bus_has_nvidia());
    set_device("0x10de\n", "0x040300\n"); /* its sound alone */
    assert_false(ax_bus_has_nvidia());
    set_device("0x1002\n", "0x030000\n");
    assert_false(ax_bus_has_nvidia());
    set_device("", "");
    assert_false(ax_bus_has_nvidia());
    setenv("AX_PCI_DEVICES", "/nowhere", 1);
    assert_false(ax_bus_has_nvidia());
    setenv("AX_PCI_DEVICES", dir, 1);
}

static void only_a_gpu_is_worth_a_line(void **state) {
    (void)state;
    char said[2048];
    const char *backend;
    const bool usable = ax_cuda_usable() == AX_OK;
    set_device("0x10de\n", "0x030200\n");
    choose(said, sizeof said, &backend);
    assert_string_equal(backend, usable ? "cuda" : "cpu");
    assert_true((strstr(said, "device: cpu. device cuda: ") != NULL) == !usable);
    set_device("0x1002\n", "0x030000\n");
    choose(said, sizeof said, &backend);
    assert_string_equal(said, "");
    assert_string_equal(ax_error_text(), "");
}

static int make(void **state) {
    (void)state;
    strcpy(dir, "/tmp/axtrain-bus-XXXXXX");
    ax_log_set_level(AX_LOG_INFO);
    unsetenv("AXTRAIN_DEVICE");
    return mkdtemp(dir) && setenv("AX_PCI_DEVICES", dir, 1) == 0 ? 0 : -1;
}

static int drop(void **state) {
    (void)state;
    return ax_remove_tree(dir) == AX_OK ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_is_seen_on_the_bus),
        cmocka_unit_test(only_a_gpu_is_worth_a_line),
    };
    return cmocka_run_group_tests(tests, make, drop);
}

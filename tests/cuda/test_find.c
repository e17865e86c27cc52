/* Where NVIDIA's libraries are looked for, and what is said of one that is no library, or lacks a function: the
 * loader's own answers, in one line. And which GPUs a program has code for. */
#include <dlfcn.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/mem.h"
#include "kernels/cuda/find.h"

/* Beside the stand-in for it, which is linked. */
#define ax_cuda_library_open open_library
#include "kernels/cuda/libraries.c" // NOLINT(bugprone-suspicious-include)

#define FILE_NAME "libaxtrain-test-library.so"

static char folder[64];

static enum ax_status open_it(const char *symbol) {
    double (*function)(double) = NULL;
    const struct ax_symbol symbols[] = {{symbol, &function}};
    const enum ax_status st = open_library(FILE_NAME, "Install it.", symbols, 1);
    if (st == AX_OK)
        assert_true(function(1) == 0);
    return st;
}

static void expect_refusal(const char *symbol, const char *part) {
    assert_int_equal(open_it(symbol), AX_ERR_UNSUPPORTED);
    const char *said = ax_error_text();
    if (!strstr(said, "device cuda: " FILE_NAME " cannot be opened, from AXTRAIN_CUDA_LIBS") ||
        !strstr(said, "Install it.") || !strstr(said, part) || strchr(said, '\n'))
        fail_msg("no \"%s\" in: %s", part, said);
}

/* The mathematical library's file, whatever machine this is. */
static const char *some_library(void) {
    void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
    struct link_map *map;
    assert_non_null(library);
    assert_int_equal(dlinfo(library, RTLD_DI_LINKMAP, &map), 0);
    return map->l_name;
}

static void put(const char *sub, bool library) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, sub);
    assert_int_equal(ax_mkdir_parents(path), AX_OK);
    snprintf(path, sizeof path, "%s/%s/" FILE_NAME, folder, sub);
    if (library)
        assert_int_equal(symlink(some_library(), path), 0);
    else
        assert_int_equal(ax_write_file_atomic(path, "not a library", 13), AX_OK);
}

static void set(const char *variable, const char *below) {
    char value[256];
    snprintf(value, sizeof value, "%s/%s:/nowhere", folder, below);
    setenv(variable, value, 1);
}

static void what_is_no_library_is_said(void **state) {
    (void)state;
    put("broken", false);
    expect_refusal("log", "cannot open shared object file");
    set("AXTRAIN_CUDA_LIBS", "broken");
    expect_refusal("log", "broken/" FILE_NAME ": file too short");
}

static void libraries_are_found(void **state) {
    (void)state;
    char path[1024];
    put("own", true);
    put("toolkit/lib64", true);
    put("python/lib/python3.11/site-packages/nvidia/test/lib", true);
    set("AXTRAIN_CUDA_LIBS", "broken"); /* skipped */
    set("CUDA_HOME", "toolkit");
    assert_int_equal(open_it("log"), AX_OK);
    unsetenv("CUDA_HOME");
    snprintf(path, sizeof path, "%s/python/bin", folder);
    assert_int_equal(ax_mkdir_parents(path), AX_OK);
    snprintf(path, sizeof path, "%s/python/bin:%s", folder, getenv("PATH"));
    setenv("PATH", path, 1);
    assert_int_equal(open_it("log"), AX_OK);
    set("AXTRAIN_CUDA_LIBS", "own");
    assert_int_equal(open_it("log"), AX_OK);
    expect_refusal("cublasLtMatmul",
                   "own/" FILE_NAME " has no function cublasLtMatmul; is it too old?");
}

/* Compute capability as 90 for 9.0. */
static void expect_gpu(const char *archs, int capability, const char *refusal) {
    const enum ax_status st = ax_cuda_check_gpu("a GPU", capability / 10, capability % 10, archs);
    if (st != (refusal ? AX_ERR_UNSUPPORTED : AX_OK) ||
        (refusal && (!strstr(ax_error_text(), refusal) || strchr(ax_error_text(), '\n'))))
        fail_msg("code for %s on %d: %s", archs, capability, refusal ? ax_error_text() : "refused");
}

static void gpus_without_code_are_refused(void **state) {
    (void)state;
    expect_gpu("80", 75, "has compute capability 7.5, and this program needs 8.0");
    expect_gpu("75", 75, "has compute capability 7.5, and this program needs 8.0");
    expect_gpu("80", 80, NULL);
    expect_gpu("80", 86, NULL);
    expect_gpu("80", 120, NULL); /* by PTX */
    expect_gpu("80 90a 100 120", 121, NULL);
    expect_gpu("86", 80, "code for 86. Build it with CUDA_ARCHS=80, or use device: cpu");
    expect_gpu("90a", 90, NULL);
    expect_gpu("90a", 100, "code for 90a. Build it with CUDA_ARCHS=100, or");
    expect_gpu("90a", 80, "code for 90a.");
    expect_gpu("90a 80", 86, NULL);
    expect_gpu("90a 80", 100, "code for 90a 80."); /* PTX is of 90a */
    expect_gpu("100 80", 90, "code for 100 80.");
}

static int begin(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/axtrain-libraries-%d", (int)getpid());
    return ax_mkdir_parents(folder) == AX_OK ? 0 : -1;
}

static int end(void **state) {
    (void)state;
    return ax_remove_tree(folder) == AX_OK ? 0 : -1;
}

static void wgmma_is_hoppers(void **state) {
    (void)state;
    assert_true(ax_cuda_uses_wgmma(9, 0));
    assert_false(ax_cuda_uses_wgmma(8, 9));
    assert_false(ax_cuda_uses_wgmma(10, 0));
    setenv("AXTRAIN_WGMMA", "off", 1);
    assert_false(ax_cuda_uses_wgmma(9, 0));
    unsetenv("AXTRAIN_WGMMA");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_library_is_said),
        cmocka_unit_test(libraries_are_found),
        cmocka_unit_test(gpus_without_code_are_refused),
        cmocka_unit_test(wgmma_is_hoppers),
    };
    return cmocka_run_group_tests_name("cuda libraries", tests, begin, end);
}

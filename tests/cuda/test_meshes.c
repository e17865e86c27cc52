/* Meshes of emulated GPUs, which a stand-in for NCCL connects: `check mesh` on each. Ranks are threads.
 * AXTRAIN_SWEEP=1: all meshes of two ranks in up to three dimensions, with both ways of context parallelism and
 * all pipeline schedules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/cuda/program_case.h"
#include "tests/skip.h"
#include "tests/sweep.h"

#define MOST 10 /* words of a mesh and its options */

/* Words are separated by spaces. */
static void check(const char *name, const char *mesh) {
    char words[256], said[1 << 14], *rest = words;
    const char *args[4 + MOST] = {"mesh", model(name), "--backend", "cuda"};
    int n = 4;
    snprintf(words, sizeof words, "%s", mesh);
    for (char *word = strsep(&rest, " "); word; word = strsep(&rest, " ")) {
        assert_true(n < 4 + MOST);
        args[n++] = word;
    }
    sft_command = "check";
    const int code = sft(said, sizeof said, n, args);
    sft_command = "sft";
    if (code != 0 || !strstr(said, ", 0 failed"))
        fail_msg("%s %s: exit %d: %s", name, mesh, code, said);
}

static void meshes_are_one_rank(void **state) {
    (void)state;
    need_binary();
    check("llama", "dp_shard=2 tp=2");
    check("llama", "cp=2");
    check("llama", "cp=2 --ring");
    check("llama", "dp_replicate=2 pp=2");
    check("llama", "pp=2 --schedule zero_bubble --micro-batches 4");
    check("llama", "dp_shard=2 --bf16 --zero 2");
    check("llama", "cp=2 tp=2 --fp8 rowwise"); /* ranks agree on rows' and columns' scales */
    check("mixtral", "ep=2 dp_shard=2");
}

/* ---- all of them ---- */

enum { DP_REPLICATE = 1, DP_SHARD = 2, CP = 4, TP = 8, PP = 16, DIMENSIONS = 5, EP = 32 };

static void name_mesh(int dimensions, const char *options, char *out, size_t size) {
    static const char *const names[] = {"dp_replicate", "dp_shard", "cp", "tp", "pp", "ep"};
    size_t used = 0;
    *out = '\0';
    for (int d = 0; d <= DIMENSIONS; d++)
        if (dimensions & 1 << d)
            used +=
                (size_t)snprintf(out + used, size - used, "%s%s=2", used > 0 ? " " : "", names[d]);
    snprintf(out + used, size - used, "%s", options);
}

/* A mesh by both ways of its sequences, if it has any, with each of n options. */
static int check_ways(const char *name, int dimensions, int n, const char *const *options) {
    static const char *const sequences[] = {"", " --ring"};
    const int ways = dimensions & CP ? 2 : 1;
    for (int i = 0; i < n * ways; i++) {
        char all[64], mesh[256];
        snprintf(all, sizeof all, "%s%s", sequences[i % ways], options[i / ways]);
        name_mesh(dimensions, all, mesh, sizeof mesh);
        print_message("%s %s\n", name, mesh);
        check(name, mesh);
    }
    return n * ways;
}

static void all_meshes_are_one_rank(void **state) {
    (void)state;
    static const char *const schedules[] = {"", " --schedule afab", " --schedule zero_bubble"};
    static const char *const interleaved[] = {" --schedule interleaved"};
    int n = 0;
    need_binary();
    for (int d = 1; d < 1 << DIMENSIONS; d++) {
        const int n_schedules = d & PP ? 3 : 1;
        if (__builtin_popcount((unsigned)d) > 3)
            continue;
        n += check_ways("llama", d, n_schedules, schedules);
        if (d & PP) /* the one with four layers */
            n += check_ways("gemma3_text", d, 1, interleaved);
        if (d & (DP_SHARD | CP | TP)) /* ep takes its ranks from these */
            n += check_ways("mixtral", d | EP, n_schedules, schedules);
    }
    print_message("%d meshes\n", n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(meshes_are_one_rank),
        unit_test_if(sweeping(), all_meshes_are_one_rank),
    };
    return cmocka_run_group_tests_name("cuda meshes", tests, program_begin, scratch_remove);
}

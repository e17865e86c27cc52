/* Meshes of emulated GPUs, which a stand-in for NCCL connects: `check mesh` on each. Ranks are threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cuda/program_case.h"

static void meshes_are_one_rank(void **state) {
    (void)state;
    static const char *const meshes[][4] = {{"llama", "dp_shard=2", "tp=2"},
                                            {"llama", "cp=2", "--ring"},
                                            {"llama", "dp_replicate=2", "pp=2"},
                                            {"mixtral", "ep=2", "dp_shard=2"}};
    char said[8192];
    need_binary();
    sft_command = "check";
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        const char *const args[] = {"mesh",       model(meshes[i][0]), meshes[i][1],
                                    meshes[i][2], "--backend",         "cuda"};
        const int code = sft(said, sizeof said, 6, args);
        if (code != 0 || !strstr(said, ", 0 failed"))
            fail_msg("%s %s %s: exit %d: %s", meshes[i][0], meshes[i][1], meshes[i][2], code, said);
    }
    sft_command = "sft";
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(meshes_are_one_rank),
    };
    return cmocka_run_group_tests_name("cuda meshes", tests, program_begin, scratch_remove);
}

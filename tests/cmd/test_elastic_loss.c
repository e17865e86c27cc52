/* `elastic: true`: a run of two replicas that loses one goes on from memory as the run that is resumed on one rank from
 * that step's checkpoint does, to the bit. test_elastic, which takes longer, has other meshes and methods. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "base/hash/hash.h"
#include "tests/cmd/program_case.h"
#include "tests/data/scratch.h"
#include "tests/golden_files.h"

enum { LLAMA = 30 }; /* parameters of the tiny one */

static char out[1 << 16];

static const char *configure(void) {
    static char path[128];
    struct ax_buf b = {0}, rows = {0};
    for (int i = 0; i < 16; i++)
        assert_int_equal(ax_buf_printf(&rows, "{\"text\": \"say %d\"}\n", i), AX_OK);
    put_bytes("rows.jsonl", rows.data, rows.len);
    assert_int_equal(
        ax_buf_printf(&b,
                      "base_model: %s\ndataset_prepared_path: %s/cache\ndatasets:\n"
                      "  - {path: %s/rows.jsonl, type: completion}\nsequence_len: 32\n"
                      "learning_rate: 1e-3\nmicro_batch_size: 1\nfloat32: true\nmax_steps: 4\n"
                      "save_steps: 1\nsave_total_limit: 9\nval_set_size: 0\nelastic: true\n"
                      "dp_replicate_size: 2\n",
                      golden_path("models/llama"), scratch, scratch),
        AX_OK);
    snprintf(path, sizeof path, "%s", put_bytes("c.yaml", b.data, b.len));
    ax_buf_free(&b);
    ax_buf_free(&rows);
    return path;
}

static void train(int ranks, const char *config, const char *to, const char *more) {
    if (run(out, sizeof out, "launch -n %d -- sft '%s' output_dir='%s/%s' %s", ranks, config,
            scratch, to, more) != 0)
        fail_msg("%s: %s", to, out);
}

static void has(const char *part) {
    if (!strstr(out, part))
        fail_msg("\"%s\" lacks \"%s\"", out, part);
}

static uint64_t weights(const char *of) {
    char path[64], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/model.safetensors", of);
    assert_int_equal(ax_read_file(in_scratch(path), 1 << 24, &text, &n), AX_OK);
    const uint64_t hash = ax_hash64(text, n, 0);
    ax_free(text);
    return hash;
}

static void the_other_replica_goes_on(void **state) {
    (void)state;
    static const char smaller[] =
        "dp_replicate_size=1 dp_shard_size=1 gradient_accumulation_steps=2";
    char fault[64], more[400];
    const char *config = configure();
    train(2, config, "whole", "");
    snprintf(more, sizeof more, "%s resume_from_checkpoint='%s/whole/checkpoint-2'", smaller,
             scratch);
    train(1, config, "smaller", more);
    snprintf(fault, sizeof fault, "weights:%d:kill@1", 2 * LLAMA);
    setenv("AX_FAULT", fault, 1);
    train(2, config, "lost", "save_steps=9");
    unsetenv("AX_FAULT");
    snprintf(more, sizeof more, "in step 3; elastic: 1 of 2 ranks go on with %s\n", smaller);
    has(more);
    has("after step 2, from memory; no step is done again\n");
    has("trained 4 of 4 steps");
    assert_true(weights("lost") == weights("smaller"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_other_replica_goes_on)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

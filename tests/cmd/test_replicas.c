/* Damage to the weights of one of several ranks that should have the same: it is named, nothing of it is saved,
 * and undamaged runs are let alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/program_case.h"
#include "tests/data/scratch.h"
#include "tests/golden_files.h"

static char out[1 << 16];

/* A configuration on a tiny model. */
static void configure(const char *model, const char *more) {
    char text[4096] = "";
    for (int i = 0; i < 40; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "{\"text\": \"say %d, %.*s\"}\n",
                 i, 1 + i % 17, "abcdefghijklmnopq");
    put_text("rows.jsonl", text);
    snprintf(text, sizeof text,
             "base_model: %s\noutput_dir: %s/out\ndataset_prepared_path: %s/cache\n"
             "datasets:\n  - path: %s/rows.jsonl\n    type: completion\n"
             "sequence_len: 64\nlearning_rate: 1e-3\nmicro_batch_size: 1\nlogging_steps: 1\n"
             "max_steps: 6\nsave_steps: 1\nddp_timeout: 60\n%s",
             golden_path(model), scratch, scratch, scratch, more);
    put_text("c.yaml", text);
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
}

/* Runs the configuration on ranks, with a fault; its exit code. */
static int train(int ranks, const char *fault, const char *words) {
    setenv("AX_FAULT", fault, 1);
    const int code =
        run(out, sizeof out, "launch -n %d -- sft '%s/c.yaml' --quiet %s", ranks, scratch, words);
    unsetenv("AX_FAULT");
    return code;
}

static void expect(int code, int want, const char *part) {
    if (code != want || !strstr(out, part))
        fail_msg("exit %d, not %d, or \"%s\" lacks \"%s\"", code, want, out, part);
}

/* The llama has 30 parameters: fault point 30·s + i is number i (from 1) after step s + 1. Number 2 is layer 0's
 * norm, which tp does not split; 5 its v_proj; 25 is in the last layer, of the second stage. */
static void damage_is_named(void **state) {
    (void)state;
    static const struct {
        int ranks;
        const char *fault, *words, *saved, *text;
        int code;
    } cases[] = {
        {3, "weights:95:flip@1", "dp_replicate_size=3", "checkpoint-3",
         "error step 4: model.layers.0.self_attn.v_proj.weight: rank 1 has other weights than the "
         "other 2 replicas; after step 3 all had the same.",
         4},
        {2, "weights:65:flip@1", "dp_replicate_size=2 bf16=true float32=false", "checkpoint-2",
         "error step 3: model.layers.0.self_attn.v_proj.weight: ranks 0 and 1 of dp_replicate have "
         "different weights; after step 2",
         4},
        {2, "weights:32:flip@0", "tensor_parallel_size=2", "checkpoint-1",
         "error step 2: model.layers.0.input_layernorm.weight: ranks 0 and 1 of tp have different",
         4},
        {4, "weights:65:flip@2", "dp_replicate_size=2 dp_shard_size=2", "checkpoint-2",
         "error step 3: model.layers.0.self_attn.v_proj.weight: ranks 0 and 2 of dp_replicate", 4},
        {4, "weights:55:flip@3",
         "dp_replicate_size=2 pipeline_parallel_size=2 gradient_accumulation_steps=2",
         "checkpoint-1", "error step 2: model.layers.2.", 4},
        /* frozen weights: an adapter's base, and its codes */
        {2, "weights:3:flip@1",
         "dp_replicate_size=2 adapter=lora lora_r=4 lora_alpha=8 lora_target_linear=true", NULL,
         "error step 1: model.layers.0.self_attn.q_proj.weight: ranks 0 and 1", 4},
        {2, "weights:3:flip@1",
         "dp_replicate_size=2 adapter=qlora load_in_4bit=true lora_r=4 lora_alpha=8 "
         "lora_target_linear=true",
         NULL, "error step 1: model.layers.0.self_attn.q_proj.weight: ranks 0 and 1", 4},
        /* a key decides when; before a save it is always compared */
        {2, "weights:5:flip@1", "dp_replicate_size=2 replica_check_steps=5 save_steps=6", NULL,
         "error step 5: model.layers.0.self_attn.v_proj.weight: ranks 0 and 1 of dp_replicate have "
         "different weights. A memory",
         4},
        {2, "weights:65:flip@1", "dp_replicate_size=2 replica_check_steps=1000 save_steps=4", NULL,
         "error step 4: ", 4},
        /* NaN: in the step that meets it, or before it is saved */
        {2, "weights:65:nan@1", "dp_replicate_size=2 replica_check_steps=1000 save_steps=6", NULL,
         "error step 3: model.layers.0.self_attn.v_proj.weight: ranks 0 and 1", 4},
        {2, "weights:65:nan@0", "dp_shard_size=2 save_steps=6", NULL,
         "error step 3: model.layers.0.self_attn.v_proj.weight: element 1024 on rank 0 is not "
         "finite",
         6},
        {1, "weights:155:nan", "", "checkpoint-5",
         "error step 6: model.layers.0.self_attn.v_proj.weight: element 1024 on rank 0", 6},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        configure("models/llama", "float32: true\n");
        expect(train(cases[i].ranks, cases[i].fault, cases[i].words), cases[i].code, cases[i].text);
        char path[64];
        snprintf(path, sizeof path, "out/%s", cases[i].saved ? cases[i].saved : "checkpoint-1");
        if (ax_path_exists(in_scratch(path)) != (cases[i].saved != NULL))
            fail_msg("%s: %s, %s", cases[i].words, path, out);
        assert_false(ax_path_exists(in_scratch("out/model.safetensors")));
        assert_false(ax_path_exists(in_scratch("out/checkpoint-6")));
    }
}

/* What the damage changes without the comparison: a run that ends as if nothing had happened. */
static void without_the_key_nobody_notices(void **state) {
    (void)state;
    configure("models/llama", "float32: true\n");
    expect(train(2, "weights:65:flip@1", "dp_replicate_size=2 replica_check_steps=0"), 0, "");
    assert_true(ax_path_exists(in_scratch("out/model.safetensors")));
}

static void equal_replicas_are_let_alone(void **state) {
    (void)state;
    static const struct {
        int ranks;
        const char *words;
    } cases[] = {
        {3, "dp_replicate_size=3 replica_check_steps=1"},
        {2, "dp_replicate_size=2 bf16=true float32=false optimizer=adamw_8bit"},
        {2, "tensor_parallel_size=2 replica_check_steps=2"},
        {2, "dp_replicate_size=2 adapter=qlora load_in_4bit=true lora_r=4 lora_alpha=8 "
            "lora_target_linear=true lora_dropout=0.1"},
        {4, "tensor_parallel_size=2 dp_replicate_size=2 bf16=true float32=false"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        configure("models/llama", "float32: true\n");
        expect(train(cases[i].ranks, "", cases[i].words), 0, "");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage_is_named),
        cmocka_unit_test(without_the_key_nobody_notices),
        cmocka_unit_test(equal_replicas_are_let_alone),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

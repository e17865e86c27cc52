/* `axtrain sft` with relora: what it writes is a model with the adapter merged, checkpoints too, and
 * which keys do not go with it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "ckpt/hf/hf.h"
#include "model/convert/merge.h"
#include "tests/cmd/chats_case.h"

#define LORA                                                                                       \
    "adapter: lora\nlora_r: 4\nlora_alpha: 8\nlora_target_linear: true\n"                          \
    "jagged_restart_steps: 2\njagged_restart_warmup_steps: 1\n"

static const char *config(const char *more) {
    char all[1024];
    snprintf(all, sizeof all, "max_steps: 7\nsave_steps: 3\n%s", more);
    return chats_config(all);
}

/* The loss of a folder of the run, loaded as any model. */
static double loss_as_base(const char *path, const char *folder, const char *dtype) {
    char base[256], out[256];
    snprintf(base, sizeof base, "base_model=%s/%s", scratch, folder);
    snprintf(out, sizeof out, "output_dir=%s/again", scratch);
    assert_int_equal(ax_remove_tree(in_scratch("again")), AX_OK);
    EXPECT(0, "trained 1 of 1", path, base, out, "max_steps=1", "relora=false", "adapter=null",
           "eval_steps=1", dtype);
    return metric_of("again", "eval_loss", 0);
}

static void test_folders_are_the_model(void **state) {
    (void)state;
    const char *path = config(LORA "relora: true\nfloat32: true\n");
    EXPECT(0, "\nmodel: ", path);
    assert_false(ax_path_exists(in_scratch("out/adapter_config.json")));
    assert_false(ax_path_exists(in_scratch("out/axtrain_base.json"))); /* of an adapter's folder */
    const double end = metric_of("out", "eval_loss", 7), third = metric_of("out", "eval_loss", 3);
    assert_true(third < metric_of("out", "eval_loss", 0) - 0.1 && end < third - 0.1);
    assert_true(fabs(loss_as_base(path, "out", "float32=true") - end) < 1e-5);
    assert_true(fabs(loss_as_base(path, "out/checkpoint-3", "float32=true") - third) < 1e-5);
    char *card;
    size_t n;
    assert_int_equal(ax_read_file(in_scratch("out/README.md"), 1 << 20, &card, &n), AX_OK);
    assert_non_null(strstr(card, "an adapter, merged into the base"));
    assert_non_null(strstr(card, "library_name: transformers"));
    assert_null(strstr(card, "--adapter"));
    ax_free(card);
}

/* B begins with zeros at each restart, also around the step at which tensors are looked at, 20. */
static void test_restarted_tensors_have_moved(void **state) {
    (void)state;
    char all[512], said[16384];
    snprintf(all, sizeof all, "max_steps: 24\n%s",
             "adapter: lora\nlora_r: 4\nlora_alpha: 8\nlora_target_linear: true\n"
             "jagged_restart_steps: 5\njagged_restart_warmup_steps: 5\nrelora: true\n"
             "float32: true\n");
    const char *config = chats_config(all), *const intervals[] = {"jagged_restart_steps=19",
                                                                  "jagged_restart_steps=20",
                                                                  "jagged_restart_steps=2"};
    for (size_t i = 0; i < 3; i++) {
        const char *const args[] = {config, intervals[i]};
        assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
        assert_int_equal(sft(said, sizeof said, 2, args), 0);
        assert_null(strstr(said, "have not changed"));
    }
}

static void compare(const struct ax_hf *a, const struct ax_hf *b) {
    assert_int_equal(ax_hf_count(a), ax_hf_count(b));
    for (int i = 0; i < ax_hf_count(a); i++) {
        const struct ax_st_entry *x = ax_hf_at(a, i), *y = ax_hf_find(b, x->name);
        assert_non_null(y);
        assert_int_equal(x->dtype, y->dtype);
        assert_int_equal(x->numel, y->numel);
        if (memcmp(x->data, y->data, (size_t)x->numel * ax_dtype_size(x->dtype)) != 0)
            fail_msg("%s differs", x->name);
    }
}

/* Before the first restart, the model is what `merge` makes of the adapter, to the bit. */
static void test_merges_as_merge_does(void **state) {
    (void)state;
    const char *path = config(LORA "float32: true\n");
    struct ax_merge m = {.base = golden_llama(), .dtype = "float32", .threads = 1};
    struct ax_hf merged, model;
    char plain[200], adapter[160], dst[160];
    snprintf(adapter, sizeof adapter, "%s", in_scratch("plain"));
    snprintf(plain, sizeof plain, "output_dir=%s", adapter);
    snprintf(dst, sizeof dst, "%s", in_scratch("merged"));
    m.adapter = adapter;
    m.dst = dst;
    EXPECT(0, "\nadapter: ", path, plain, "max_steps=2");
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
    EXPECT(0, "\nmodel: ", path, "relora=true", "max_steps=2");
    assert_int_equal(ax_merge_run(&m), AX_OK);
    assert_true(m.changed > 0);
    assert_int_equal(ax_hf_open(&merged, dst), AX_OK);
    assert_int_equal(ax_hf_open(&model, in_scratch("out")), AX_OK);
    compare(&merged, &model);
    ax_hf_close(&merged);
    ax_hf_close(&model);
}

/* The best checkpoint's model at the end: where greater is better, that of the first save. */
static void test_loads_the_best(void **state) {
    (void)state;
    const char *path = config(LORA "relora: true\nfloat32: true\nload_best_model_at_end: true\n"
                                   "metric_for_best_model: eval_loss\ngreater_is_better: true\n");
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
    EXPECT(0, "\nmodel: ", path);
    assert_true(metric_of("out", "eval_loss", 3) >
                fmax(metric_of("out", "eval_loss", 6), metric_of("out", "eval_loss", 7)) + 0.1);
    assert_true(fabs(loss_as_base(path, "out", "float32=true") - metric_of("out", "eval_loss", 3)) <
                1e-5);
}

/* What a plan adds up: the base is stored twice in a checkpoint. */
static void test_plan(void **state) {
    (void)state;
    char said[8192];
    const char *const args[] = {config(LORA "relora: true\nfloat32: true\n")};
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
    sft_command = "plan";
    assert_int_equal(sft(said, sizeof said, 1, args), 0);
    sft_command = "sft";
    if (!strstr(said, ", adapter merged every 2 steps\n") ||
        !strstr(said, "3 checkpoints of 1.39 MiB and the model"))
        fail_msg("%s", said);
}

static void test_refusals(void **state) {
    (void)state;
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
    const char *path = config(LORA "relora: true\n");
    EXPECT(2, "relora: restarts adapters: set adapter: lora", path, "adapter=null");
    EXPECT(2, "relora: set jagged_restart_steps too", path, "jagged_restart_steps=null");
    EXPECT(2, "relora: a quantized base would round each merge", path, "adapter=qlora",
           "load_in_4bit=true");
    EXPECT(2, "relora: a quantized base would round each merge", path, "load_in_8bit=true");
    EXPECT(2, "peft_use_dora: not supported with relora", path, "peft_use_dora=true");
    EXPECT(2, "peft_init_lora_weights: a restarted adapter must start at 0", path,
           "peft_init_lora_weights=pissa");
    EXPECT(2, "peft_init_lora_weights: a restarted adapter must start at 0", path,
           "peft_init_lora_weights=false");
    EXPECT(2, "relora: trains only adapters", path, "lora_modules_to_save=[lm_head]");
    EXPECT(2, "merge_lora: with relora the trained model is merged", path, "merge_lora=true");
    EXPECT(2, "lr_scheduler: one_cycle does not work with relora", path, "lr_scheduler=one_cycle");
    EXPECT(2, "optimizer: relora resets the moments of AdamW, but lion is set", path,
           "optimizer=lion_8bit");
    EXPECT(2,
           "relora_prune_ratio is not accepted: remove it; a restart sets all moments of the "
           "adapter to 0",
           path, "relora_prune_ratio=0.9");
    EXPECT(2,
           "relora_prune_method is not accepted: remove it; a restart sets all moments of the "
           "adapter to 0",
           path, "relora_prune_method=reset");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folders_are_the_model),
        cmocka_unit_test(test_merges_as_merge_does),
        cmocka_unit_test(test_loads_the_best),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_restarted_tensors_have_moved),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

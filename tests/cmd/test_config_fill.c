/* Rows put values into the fields that they name. */
#include "config_case.h"

#include "cmd/train/setup.h"

static void values_and_defaults(void **state) {
    (void)state;
    struct ax_config cfg;
    struct ax_train_options o = {.warmup = -1, .warmup_ratio = -1, .max_steps = 7};
    load_ok(&cfg,
            "base_model: m\nwarmup_steps: 3.5\nsave_total_limit: 2\nseed: 9\nmax_grad_norm: 2\n"
            "save_first_step: true\noutput_dir: there\nmaster_dtype: bf16_sr\n",
            NULL);
    AX_FILL(&cfg, "", struct ax_train_options, &o);
    assert_int_equal(o.warmup, 3);                         /* as transformers takes it */
    assert_true(o.warmup_ratio == -1 && o.max_steps == 7); /* unset, without a default */
    assert_int_equal(o.save.limit, 2);
    assert_int_equal(o.step.seed, 9);
    assert_true(o.step.max_norm == 2 && o.save.first_step && !o.save.only_model);
    assert_string_equal(o.save.output_dir, "there");
    assert_int_equal(o.step.model.masters, AX_MASTERS_STOCHASTIC);
    ax_config_free(&cfg);
}

/* Neither a value nor a default of a key that does not act is put anywhere. */
static void conditions(void **state) {
    (void)state;
    for (int on = 0; on < 2; on++) {
        struct ax_config cfg;
        struct ax_train_options o = {.step.virtual_stages = 1};
        struct ax_sharding sharding = {0};
        load_ok(&cfg,
                on ? "base_model: m\npipeline_parallel_schedule: interleaved\n"
                     "fp8: true\nfp8_enable_fsdp_float8_all_gather: true\nreduce_dtype: bfloat16\n"
                   : "base_model: m\nfp8_enable_fsdp_float8_all_gather: true\n"
                     "virtual_pipeline_parallel_size: 3\n",
                NULL);
        AX_FILL(&cfg, "", struct ax_train_options, &o);
        AX_FILL(&cfg, "", struct ax_sharding, &sharding);
        assert_int_equal(o.step.virtual_stages, on ? 2 : 1);
        assert_true(sharding.coded == on && sharding.bf16_sums == on && sharding.prefetch);
        ax_config_free(&cfg);
    }
}

/* Entries of a list have rows of their own, and those of datasets, whose defaults they override. */
static void entries(void **state) {
    (void)state;
    struct ax_config cfg;
    struct ax_entry_keys e = {0};
    struct ax_format_options train = {0}, stream = {0};
    struct ax_rows_options rows = {0};
    load_ok(&cfg,
            "base_model: m\ndatasets: [{path: a}, {path: b, type: completion, field: body, "
            "roles_to_train: [user, tool], weight: 2}, {path: c, type: chat_template, "
            "field: body, roles_to_train: [user, tool], roles: {user: [human]}}]\n",
            NULL);
    AX_FILL(&cfg, "datasets.1", struct ax_entry_keys, &e);
    AX_FILL(&cfg, "datasets.1", struct ax_format_options, &train);
    AX_FILL(&cfg, "datasets.1", struct ax_rows_options, &rows);
    assert_string_equal(e.type->text, "completion");
    assert_null(e.roles_to_train); /* its type reads none */
    assert_true(e.weight == 2 && e.length == 1000 && !e.data_files);
    assert_string_equal(rows.path, "b");
    assert_string_equal(train.field, "body");
    assert_true(train.sequence_len == 0); /* that is no key of an entry */
    e = (struct ax_entry_keys){0};
    train = (struct ax_format_options){0};
    AX_FILL(&cfg, "datasets.2", struct ax_entry_keys, &e);
    AX_FILL(&cfg, "datasets.2", struct ax_format_options, &train);
    assert_string_equal(ax_config_element(e.roles_to_train, 1)->text, "tool");
    assert_null(ax_config_element(e.roles_to_train, 2));
    assert_string_equal(e.roles->entries[0].key, "user");
    assert_null(train.field);
    e = (struct ax_entry_keys){0};
    AX_FILL(&cfg, "datasets.0", struct ax_entry_keys, &e);
    assert_true(!e.type && !e.roles_to_train); /* all of a conversation is trained on */
    ax_config_free(&cfg);
    load_ok(&cfg, "base_model: m\npretraining_dataset: [{path: a}]\nmax_steps: 1\n", NULL);
    AX_FILL(&cfg, "pretraining_dataset.0", struct ax_entry_keys, &e);
    AX_FILL(&cfg, "pretraining_dataset.0", struct ax_format_options, &stream);
    assert_string_equal(e.type->text, "pretrain");
    assert_string_equal(stream.field, "text");
    ax_config_free(&cfg);
}

/* Counts are as large as an int can be. */
static void large_counts(void **state) {
    (void)state;
    struct ax_config cfg;
    struct ax_train_options o = {0};
    load_ok(&cfg,
            "base_model: m\npipeline_parallel_schedule: interleaved\n"
            "virtual_pipeline_parallel_size: 4294967297\n",
            NULL);
    AX_FILL(&cfg, "", struct ax_train_options, &o);
    assert_int_equal(o.step.virtual_stages, INT32_MAX);
    ax_config_free(&cfg);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_and_defaults),
        cmocka_unit_test(conditions),
        cmocka_unit_test(entries),
        cmocka_unit_test(large_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

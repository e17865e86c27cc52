/* Overrides from the command line, old spellings, dead keys, and values that follow from others. */
#include "config_case.h"

#define BASE                                                                                       \
    "base_model: m\nlearning_rate: 1e-4\ndatasets:\n  - path: a.jsonl\n    type: alpaca\n"         \
    "  - path: b.jsonl\nwandb_project: p\n"

static void expect_where(const struct ax_config *cfg, const char *path, const char *where) {
    char buf[256];
    assert_string_equal(ax_config_where(cfg, buf, sizeof buf, "%s", path), where);
}

static void both_forms_set_values(void **state) {
    (void)state;
    struct ax_config cfg;
    load_ok(&cfg, BASE,
            OVERRIDES("learning_rate=2e-5", "--micro-batch-size", "4", "--num_epochs=2",
                      "datasets.0.path=mine dir/x.jsonl", "datasets.2.path=c.jsonl",
                      "lora_target_modules=[q_proj, v_proj]", "adapter=lora", "lora_r=8",
                      "lora_alpha=16", "default_system_message=You are: x # not a comment",
                      "rl=dpo", "--trl.beta", "0.5", "seed=1_000", "eval_strategy=no"));
    assert_true(ax_config_f64(&cfg, "learning_rate") == 2e-5);
    assert_int_equal(ax_config_i64(&cfg, "micro_batch_size"), 4);
    assert_true(ax_config_f64(&cfg, "num_epochs") == 2.0);
    assert_string_equal(ax_config_str(&cfg, "datasets.%d.path", 0), "mine dir/x.jsonl");
    assert_int_equal(ax_config_count(&cfg, "datasets"), 3);
    assert_string_equal(ax_config_str(&cfg, "datasets.2.path"), "c.jsonl");
    assert_int_equal(ax_config_count(&cfg, "lora_target_modules"), 2);
    assert_string_equal(ax_config_str(&cfg, "lora_target_modules.1"), "v_proj");
    assert_string_equal(ax_config_str(&cfg, "default_system_message"),
                        "You are: x # not a comment");
    assert_true(ax_config_f64(&cfg, "trl.beta") == 0.5);
    assert_int_equal(ax_config_i64(&cfg, "seed"), 1000);
    assert_string_equal(ax_config_str(&cfg, "eval_strategy"), "no");
    expect_where(&cfg, "learning_rate", "command line");
    expect_where(&cfg, "datasets.0.path", "command line");
    expect_where(&cfg, "datasets.0.type", "c.yaml:5:11");
    ax_config_free(&cfg);
}

/* Axolotl's preprocess has --debug, a flag, whose place is often before others. */
static void an_ignored_key_takes_no_override_as_its_value(void **state) {
    (void)state;
    struct ax_config cfg;
    load_ok(&cfg, BASE,
            OVERRIDES("--debug", "seed=5", "--debug", "--sequence-len", "64",
                      "--default-system-message", "a=b", "--debug"));
    assert_int_equal(ax_config_i64(&cfg, "seed"), 5);
    assert_int_equal(ax_config_i64(&cfg, "sequence_len"), 64);
    assert_string_equal(ax_config_str(&cfg, "default_system_message"), "a=b");
    expect_note(&cfg, "debug", AX_NOTE_IGNORED, "see axtrain preview");
    ax_config_free(&cfg);
}

static void null_unsets(void **state) {
    (void)state;
    struct ax_config cfg;
    load_ok(&cfg, BASE,
            OVERRIDES("wandb_project=null", "learning_rate=", "datasets.1=null", "save_steps=~"));
    assert_false(ax_config_is_set(&cfg, "wandb_project"));
    assert_null(ax_config_str(&cfg, "wandb_project"));
    assert_null(note_of(&cfg, "wandb_project"));
    assert_false(ax_config_has(&cfg, "learning_rate"));
    assert_int_equal(ax_config_count(&cfg, "datasets"), 1);
    expect_where(&cfg, "learning_rate", "unset");
    ax_config_free(&cfg);
}

/* A null value of a map whose names are the user's is no value; one that is passed on is null. */
static void null_unsets_in_maps(void **state) {
    (void)state;
    struct ax_config cfg;
    load_ok(&cfg,
            "adapter: lora\nlora_rank_pattern: {q: 4, v: null, k: ~}\n"
            "lora_alpha_pattern: {q: 8}\nchat_template_kwargs: {a: null}\n",
            OVERRIDES("lora_alpha_pattern.q=null"));
    const struct ax_yaml_node *ranks = ax_config_node(&cfg, "lora_rank_pattern");
    assert_int_equal(ranks->n, 1);
    assert_string_equal(ranks->entries[0].key, "q");
    assert_int_equal(ax_config_node(&cfg, "lora_alpha_pattern")->n, 0);
    assert_int_equal(ax_config_node(&cfg, "chat_template_kwargs")->n, 1);
    ax_config_free(&cfg);
}

static void lists_that_are_not_there_yet(void **state) {
    (void)state;
    struct ax_config cfg;
    load_ok(&cfg, "base_model: m\n",
            OVERRIDES("datasets.0.path=a", "datasets.0.type=completion", "eot_tokens.0=<x>"));
    assert_int_equal(ax_config_count(&cfg, "datasets"), 1);
    assert_string_equal(ax_config_str(&cfg, "datasets.0.type"), "completion");
    assert_string_equal(ax_config_str(&cfg, "eot_tokens.0"), "<x>");
    ax_config_free(&cfg);
}

static void overrides_are_checked(void **state) {
    (void)state;
    load_fails(
        BASE, OVERRIDES("sequnce_len=5"),
        (const char *const[]){"unknown key \"sequnce_len\" (command line); did you mean", NULL});
    load_fails(BASE, OVERRIDES("--sequence-len", "2k"),
               (const char *const[]){"got \"2k\" (command line)", NULL});
    load_fails(BASE, OVERRIDES("datasets.9.path=x"), (const char *const[]){"datasets.9", NULL});
    load_fails(BASE, OVERRIDES("seed"), (const char *const[]){"expected key=value", NULL});
    load_fails(BASE, OVERRIDES("--seed"), (const char *const[]){"expected a value", NULL});
    load_fails(BASE, OVERRIDES("--seed", "sequence_len=5"),
               (const char *const[]){"--seed: expected a value", NULL});
    load_fails(BASE, OVERRIDES("--sample-packing", "datasets.0.path=x"),
               (const char *const[]){"--sample-packing: expected a value", NULL});
    load_fails(BASE, OVERRIDES("--default-system-message", "--seed", "5"),
               (const char *const[]){"--default-system-message: expected a value", NULL});
    load_fails(BASE, OVERRIDES("=5"), (const char *const[]){"expected key=value", NULL});
    load_fails(BASE, OVERRIDES("eot_tokens=[a"), (const char *const[]){"eot_tokens", NULL});
}

/* The place of a key's entry, which is that of its old spelling: "2:1". */
static void expect_entry(const struct ax_config *cfg, const char *key, const char *where) {
    const struct ax_yaml_node *root = cfg->doc.root;
    char place[32] = "none";
    for (size_t i = 0; i < root->n; i++)
        if (strcmp(root->entries[i].key, key) == 0)
            snprintf(place, sizeof place, "%d:%d", root->entries[i].line, root->entries[i].column);
    assert_string_equal(place, where);
}

static void old_spellings(void **state) {
    (void)state;
    struct ax_config cfg;
    load_ok(
        &cfg,
        "evaluation_strategy: no\nflash_attention: true\nsequence_parallel_degree: 2\n"
        "dataset_processes: 4\nnoisy_embedding_alpha: 5\ngc_steps: 7\n"
        "type_of_model: LlamaForCausalLM\noverrides_of_model_config: {output_router_logits: true}\n"
        "optimizer: ao_adamw_8bit\ngradient_checkpointing: offload\nxformers_attention: false\n"
        "fsdp_config: {fsdp_state_dict_type: FULL_STATE_DICT, version: 2}\n"
        "fsdp_final_state_dict_type: SHARDED_STATE_DICT\ndpo_beta: 0.3\n"
        "datasets:\n  - {path: a, message_field_role: from, message_field_content: value}\n"
        "test_datasets:\n  - {path: b, message_field_role: who}\nrl: dpo\n",
        NULL);
    assert_string_equal(ax_config_str(&cfg, "eval_strategy"), "no");
    assert_string_equal(ax_config_str(&cfg, "attn_implementation"), "flash_attention_2");
    assert_int_equal(ax_config_i64(&cfg, "context_parallel_size"), 2);
    assert_int_equal(ax_config_i64(&cfg, "dataset_num_proc"), 4);
    assert_true(ax_config_f64(&cfg, "neftune_noise_alpha") == 5);
    assert_int_equal(ax_config_i64(&cfg, "torch_empty_cache_steps"), 7);
    assert_int_equal(ax_config_i64(&cfg, "gc_collect_steps"), 7);
    assert_string_equal(ax_config_str(&cfg, "model_type"), "LlamaForCausalLM");
    assert_true(ax_config_bool(&cfg, "model_config.output_router_logits"));
    assert_string_equal(ax_config_str(&cfg, "optimizer"), "adamw_torch_8bit");
    assert_string_equal(ax_config_str(&cfg, "gradient_checkpointing"), "true");
    assert_string_equal(ax_config_str(&cfg, "activation_offloading"), "true");
    assert_string_equal(ax_config_str(&cfg, "fsdp_config.state_dict_type"), "FULL_STATE_DICT");
    assert_int_equal(ax_config_i64(&cfg, "fsdp_config.fsdp_version"), 2);
    assert_string_equal(ax_config_str(&cfg, "fsdp_config.final_state_dict_type"),
                        "SHARDED_STATE_DICT");
    assert_true(ax_config_f64(&cfg, "rl_beta") == 0.3);
    assert_string_equal(ax_config_str(&cfg, "datasets.0.message_property_mappings.role"), "from");
    assert_string_equal(ax_config_str(&cfg, "datasets.0.message_property_mappings.content"),
                        "value");
    assert_string_equal(ax_config_str(&cfg, "test_datasets.0.message_property_mappings.role"),
                        "who");
    /* the place is that of the old key's value */
    expect_where(&cfg, "attn_implementation", "c.yaml:2:18");
    expect_where(&cfg, "eval_strategy", "c.yaml:1:22");
    expect_entry(&cfg, "attn_implementation", "2:1");
    expect_entry(&cfg, "eval_strategy", "1:1");
    expect_entry(&cfg, "activation_offloading", "10:1");
    expect_where(&cfg, "datasets.0.message_property_mappings.role", "c.yaml:16:35");
    expect_note(&cfg, "flash_attention", AX_NOTE_RENAMED, "attn_implementation: flash_attention_2");
    expect_note(&cfg, "datasets.0.message_field_role", AX_NOTE_RENAMED,
                "message_property_mappings.role");
    ax_config_free(&cfg);
    load_ok(&cfg, "rl: ipo\n", NULL);
    assert_string_equal(ax_config_str(&cfg, "rl"), "dpo");
    assert_string_equal(ax_config_str(&cfg, "dpo_loss_type.0"), "ipo");
    expect_where(&cfg, "dpo_loss_type", "c.yaml:1:5");
    expect_where(&cfg, "dpo_loss_type.0", "c.yaml:1:5");
    ax_config_free(&cfg);
}

static void old_and_new_together(void **state) {
    (void)state;
    FAILS("flash_attention: true\nattn_implementation: sdpa\n",
          "flash_attention is the old spelling of attn_implementation", "(c.yaml:1:1)");
    FAILS("dpo_beta: 0.1\nrl_beta: 0.2\nrl: dpo\n", "dpo_beta is the old spelling of rl_beta");
    FAILS("flash_attention: perhaps\n", "flash_attention: expected true or false");
    FAILS("sequence_parallel_degree: two\n",
          "sequence_parallel_degree: expected a positive integer, got \"two\"");
    struct ax_config cfg;
    /* the same value twice, null, false, and two old flags are harmless: the particular one wins */
    load_ok(&cfg,
            "dpo_beta: 0.1\nrl_beta: 0.1\nevaluation_strategy:\nsdp_attention: false\n"
            "flash_attention: true\nxformers_attention: true\nrl: dpo\n",
            NULL);
    assert_string_equal(ax_config_str(&cfg, "attn_implementation"), "xformers");
    assert_null(note_of(&cfg, "sdp_attention"));
    ax_config_free(&cfg);
}

static void dead_and_removed_keys(void **state) {
    (void)state;
    struct ax_config cfg;
    load_ok(&cfg,
            "debug: true\nadam_eps: 1e-9\ngptq_groupsize:\ncontext_parapllel_size: 2\n"
            "max_packed_sequence_len:\nunsloth_rope: false\n"
            "fsdp_config: {fsdp_limit_all_gathers: true, sharding_strategy: FULL_SHARD}\n",
            NULL);
    expect_note(&cfg, "adam_eps", AX_NOTE_IGNORED, "see adam_epsilon");
    expect_note(&cfg, "context_parapllel_size", AX_NOTE_IGNORED, "see context_parallel_size");
    expect_note(&cfg, "fsdp_config.fsdp_limit_all_gathers", AX_NOTE_IGNORED, "this key is ignored");
    assert_null(note_of(&cfg, "gptq_groupsize"));
    assert_null(note_of(&cfg, "max_packed_sequence_len"));
    ax_config_free(&cfg);
    FAILS("max_packed_sequence_len: 2048\n", "use sample_packing and sequence_len (c.yaml:1:1)");
    FAILS("unsloth_rope: true\n", "unsloth_rope is not accepted: remove it");
    FAILS("s2_attention: true\n", "context_parallel_size");
    FAILS("no_packing: true\n", "write sample_packing=false, or sample_packing: false in the file");
    FAILS("no_load_in_4bit: true\n", "write load_in_4bit=false");
}

static void values_that_follow(void **state) {
    (void)state;
    struct ax_config cfg;
    load_ok(&cfg,
            "base_model: m\nbatch_size: 12\nmicro_batch_size: 3\nsample_packing: true\n"
            "sequence_len: 100\nwarmup_steps: 0.1\nchat_template_jinja: '{{ x }}'\n"
            "reward_model: true\ntrl: {beta: 0.25}\n",
            NULL);
    assert_int_equal(ax_config_i64(&cfg, "gradient_accumulation_steps"), 4);
    assert_int_equal(ax_config_i64(&cfg, "eval_batch_size"), 3);
    assert_int_equal(ax_config_i64(&cfg, "eval_sequence_len"), 100);
    assert_true(ax_config_bool(&cfg, "eval_sample_packing"));
    assert_true(ax_config_bool(&cfg, "pad_to_sequence_len"));
    assert_true(ax_config_f64(&cfg, "warmup_ratio") == 0.1);
    assert_false(ax_config_is_set(&cfg, "warmup_steps"));
    assert_string_equal(ax_config_str(&cfg, "chat_template"), "jinja");
    assert_int_equal(ax_config_i64(&cfg, "num_labels"), 1);
    assert_true(ax_config_f64(&cfg, "rl_beta") == 0.25);
    assert_string_equal(ax_config_str(&cfg, "tokenizer_config"), "m");
    expect_where(&cfg, "gradient_accumulation_steps", "follows from batch_size");
    expect_where(&cfg, "pad_to_sequence_len", "follows from sample_packing or reward_model");
    assert_null(note_of(&cfg, "eval_batch_size"));
    ax_config_free(&cfg);
    load_ok(&cfg, "sample_packing: true\npad_to_sequence_len: false\nwarmup_steps: 10\n", NULL);
    assert_false(ax_config_bool(&cfg, "pad_to_sequence_len"));
    assert_true(ax_config_f64(&cfg, "warmup_steps") == 10);
    assert_false(ax_config_has(&cfg, "warmup_ratio"));
    ax_config_free(&cfg);
}

/* What one process does not need is said, and does not stop it. */
static void one_process(void **state) {
    (void)state;
    struct ax_config cfg;
    load_ok(&cfg,
            "base_model: m\nlearning_rate: 1e-4\ndatasets: [{path: a, type: alpaca}]\n"
            "deepspeed: zero3.json\nwandb_watch: all\nwandb_project: p\n"
            "tokens: {pad_token: <pad>}\n",
            NULL);
    assert_int_equal(ax_config_require(&cfg, AX_CONFIG_FOR_TRAINING), AX_OK);
    expect_note(&cfg, "deepspeed", AX_NOTE_APPROXIMATED, "only the ZeRO stage");
    assert_null(note_of(&cfg, "wandb_project"));
    expect_note(&cfg, "wandb_watch", AX_NOTE_NO_EFFECT, "only metrics");
    expect_note(&cfg, "tokens", AX_NOTE_RENAMED, "special_tokens");
    assert_string_equal(ax_config_str(&cfg, "special_tokens.pad_token"), "<pad>");
    assert_int_equal(ax_config_count(&cfg, "tokens"), 0);
    ax_config_free(&cfg);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_process),
        cmocka_unit_test(both_forms_set_values),
        cmocka_unit_test(an_ignored_key_takes_no_override_as_its_value),
        cmocka_unit_test(null_unsets),
        cmocka_unit_test(null_unsets_in_maps),
        cmocka_unit_test(lists_that_are_not_there_yet),
        cmocka_unit_test(overrides_are_checked),
        cmocka_unit_test(old_spellings),
        cmocka_unit_test(old_and_new_together),
        cmocka_unit_test(dead_and_removed_keys),
        cmocka_unit_test(values_that_follow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

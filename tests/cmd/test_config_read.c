/* Readers, defaults, coercions, notes, and what a command requires. */
#include "config_case.h"

#include <math.h>
#include <unistd.h>

#include "base/log.h"

static void defaults(void **state) {
    (void)state;
    struct ax_config cfg;
    char buf[256];
    load_ok(&cfg, "base_model: m\nnum_epochs:\noutput_dir: null\ndatasets: [{path: a}]\n", NULL);
    assert_int_equal(ax_config_i64(&cfg, "sequence_len"), 512);
    assert_true(ax_config_f64(&cfg, "num_epochs") == 1.0);
    assert_string_equal(ax_config_str(&cfg, "output_dir"), "./model-out");
    assert_string_equal(ax_config_str(&cfg, "optimizer"), "adamw_torch_fused");
    assert_true(ax_config_f64(&cfg, "adam_epsilon") == 1e-8);
    assert_true(ax_config_bool(&cfg, "shuffle_merged_datasets"));
    assert_string_equal(ax_config_str(&cfg, "bf16"), "auto");
    assert_string_equal(ax_config_str(&cfg, "datasets.0.field_messages"), "messages");
    assert_int_equal(ax_config_count(&cfg, "datasets.0.roles_to_train"), 1);
    assert_string_equal(ax_config_str(&cfg, "datasets.0.roles_to_train.0"), "assistant");
    assert_string_equal(ax_config_str(&cfg, "datasets.0.type.format"), "{instruction} {input} ");
    assert_string_equal(ax_config_str(&cfg, "test_datasets.0.split"), "test");
    assert_string_equal(ax_config_str(&cfg, "pretraining_dataset.0.type"), "pretrain");
    assert_string_equal(ax_config_where(&cfg, buf, sizeof buf, "num_epochs"), "default");
    assert_false(ax_config_is_set(&cfg, "num_epochs"));
    assert_true(ax_config_has(&cfg, "num_epochs"));
    assert_false(ax_config_has(&cfg, "max_steps"));
    assert_null(ax_config_str(&cfg, "adapter"));
    assert_false(ax_config_bool(&cfg, "adapter"));
    assert_int_equal(ax_config_count(&cfg, "test_datasets"), 0);
    ax_config_free(&cfg);
}

/* A list may be one value, its only element. */
static void lists_of_one(void **state) {
    (void)state;
    struct ax_config cfg;
    load_ok(&cfg,
            "base_model: m\ndatasets: [{path: a}]\nadapter: lora\nlora_r: 8\n"
            "lora_target_modules: q_proj\n",
            NULL);
    assert_string_equal(ax_config_str(&cfg, "lora_target_modules.0"), "q_proj");
    assert_null(ax_config_value_of(&cfg, "lora_target_modules.1"));
    assert_null(ax_config_value_of(&cfg, "lora_target_modules.00"));
    assert_null(ax_config_value_of(&cfg, "lora_target_modules.x"));
    assert_null(ax_config_lookup(&cfg, "lora_target_modules.0")); /* as it is written */
    assert_non_null(ax_config_lookup(&cfg, "datasets.0"));
    assert_null(ax_config_lookup(&cfg, "datasets.1"));
    assert_null(ax_config_lookup(&cfg, "datasets.0x"));
    assert_null(ax_config_lookup(&cfg, "datasets.-1"));
    assert_null(ax_config_lookup(&cfg, "datasets.4294967296"));
    assert_null(ax_config_lookup(&cfg, "datasets.0000000000"));
    assert_string_equal(ax_config_lookup(&cfg, "datasets.000000000.path")->text, "a");
    ax_config_free(&cfg);
}

/* As shells do; the file's place stays the origin. */
static void home_folders(void **state) {
    (void)state;
    struct ax_config cfg;
    char buf[128], *was = getenv("HOME") ? strdup(getenv("HOME")) : NULL;
    assert_int_equal(setenv("HOME", "/some where", 1), 0);
    load_ok(&cfg,
            "base_model: ~/m\noutput_dir: ~/o\ndataset_prepared_path: ~other\n"
            "datasets: [{path: a}, {path: ~/d.jsonl}]\ntest_datasets: [{path: ~/t}]\n"
            "chat_template_jinja: ~/c.jinja\ndeepspeed: ~/z.json\n",
            NULL);
    assert_string_equal(ax_config_str(&cfg, "output_dir"), "/some where/o");
    assert_string_equal(ax_config_str(&cfg, "base_model"), "/some where/m");
    assert_string_equal(ax_config_str(&cfg, "datasets.0.path"), "a");
    assert_string_equal(ax_config_str(&cfg, "datasets.1.path"), "/some where/d.jsonl");
    assert_string_equal(ax_config_str(&cfg, "test_datasets.0.path"), "/some where/t");
    assert_string_equal(ax_config_str(&cfg, "chat_template_jinja"), "/some where/c.jinja");
    assert_string_equal(ax_config_str(&cfg, "deepspeed"), "/some where/z.json");
    assert_string_equal(ax_config_where(&cfg, buf, sizeof buf, "output_dir"), "c.yaml:2:13");
    assert_string_equal(ax_config_str(&cfg, "dataset_prepared_path"), "~other");
    ax_config_free(&cfg);
    assert_int_equal(was ? setenv("HOME", was, 1) : unsetenv("HOME"), 0);
    free(was);
}

/* Nobody replaces them, and a folder of that name would be made. */
static void variables_in_paths(void **state) {
    (void)state;
    struct ax_config cfg;
    FAILS(
        "base_model: m\noutput_dir: ${RUNS}/x\n",
        "output_dir: \"${RUNS}/x\": variables of the environment are not replaced here; write the "
        "path, or give output_dir=… on the command line, where the shell does (c.yaml:2:13)");
    FAILS("base_model: $MODELS/m\noutput_dir: /a/${oc.env:RUN}\ndatasets: [{path: \"${D}\"}]\n",
          "base_model: \"$MODELS/m\"", "output_dir: \"/a/${oc.env:RUN}\"",
          "datasets.0.path: \"${D}\"");
    load_ok(&cfg,
            "base_model: a$b\noutput_dir: o${\nwandb_name: ${RUN}\n"
            "chat_template_jinja: \"${{ messages[0] }}\"\n",
            NULL);
    assert_string_equal(ax_config_str(&cfg, "output_dir"), "o${");
    ax_config_free(&cfg);
}

/* What a browser shows is not what names a model or a data set. */
static void addresses_of_the_hub(void **state) {
    (void)state;
    FAILS("base_model: https://huggingface.co/a/b\n",
          "base_model: \"https://huggingface.co/a/b\" is not accepted: write its id on the hub, "
          "org/name; revision_of_model names a branch, tag or commit (c.yaml:1:13)");
    FAILS("base_model: m\ndatasets:\n  - path: https://huggingface.co/datasets/a/b\n"
          "  - path: hf://datasets/a/b/c.parquet\n",
          "datasets.0.path: \"https://huggingface.co/datasets/a/b\" is not accepted: write its id "
          "on the hub, org/name; revision, name, split and data_files say what of it",
          "datasets.1.path: \"hf://datasets/a/b/c.parquet\" is not accepted");
}

/* As axolotl takes it: one set without the dash of a list. */
static void a_single_pretraining_set(void **state) {
    (void)state;
    struct ax_config cfg;
    char buf[128];
    load_ok(&cfg,
            "base_model: m\npretraining_dataset:\n  path: a\n  text_column: body\nmax_steps: 2\n",
            NULL);
    assert_int_equal(ax_config_count(&cfg, "pretraining_dataset"), 1);
    assert_string_equal(ax_config_str(&cfg, "pretraining_dataset.0.path"), "a");
    assert_string_equal(ax_config_str(&cfg, "pretraining_dataset.0.text_column"), "body");
    assert_string_equal(ax_config_where(&cfg, buf, sizeof buf, "pretraining_dataset.0.text_column"),
                        "c.yaml:4:16");
    ax_config_free(&cfg);
}

static void coercions(void **state) {
    (void)state;
    struct ax_config cfg;
    load_ok(&cfg,
            "learning_rate: '1e-5'\nweight_decay: 1\nval_set_size: 500_000\nmax_steps: 1e3\n"
            "seed: \"7\"\nsample_packing: 'yes'\ntrain_on_inputs: 1\nstreaming: off\n"
            "bf16: 'auto'\njagged_restart_anneal_steps: false\nwandb_run_id: 20240101\n"
            "model_revision: 6299\nlora_r: 16.0\nadapter: lora\nlora_alpha: "
            "32\nlora_target_linear: true\ngradient_checkpointing: \"true\"\n"
            "save_steps: 0.25\nsave_strategy: ''\nlora_target_modules: '.*(q|v)_proj'\n"
            "datasets: [{path: a, data_files: one.json}]\nfsdp: full_shard\n",
            NULL);
    assert_true(ax_config_f64(&cfg, "learning_rate") == 1e-5);
    assert_true(ax_config_f64(&cfg, "weight_decay") == 1.0);
    assert_true(ax_config_f64(&cfg, "val_set_size") == 500000);
    assert_int_equal(ax_config_i64(&cfg, "max_steps"), 1000);
    assert_int_equal(ax_config_i64(&cfg, "seed"), 7);
    assert_true(ax_config_bool(&cfg, "sample_packing"));
    assert_true(ax_config_bool(&cfg, "train_on_inputs"));
    assert_false(ax_config_bool(&cfg, "streaming"));
    assert_string_equal(ax_config_str(&cfg, "bf16"), "auto");
    assert_int_equal(ax_config_i64(&cfg, "jagged_restart_anneal_steps"), 0);
    assert_string_equal(ax_config_str(&cfg, "wandb_run_id"), "20240101");
    assert_string_equal(ax_config_str(&cfg, "model_revision"), "6299");
    assert_int_equal(ax_config_i64(&cfg, "lora_r"), 16);
    assert_string_equal(ax_config_str(&cfg, "gradient_checkpointing"), "true");
    assert_true(ax_config_f64(&cfg, "save_steps") == 0.25);
    assert_null(ax_config_str(&cfg, "save_strategy"));
    /* a string where a list may stand too: the kind tells, and it reads as a list of one */
    assert_int_equal(ax_config_node(&cfg, "lora_target_modules")->kind, AX_YAML_STRING);
    assert_int_equal(ax_config_count(&cfg, "datasets.0.data_files"), 1);
    assert_string_equal(ax_config_str(&cfg, "datasets.0.data_files.0"), "one.json");
    ax_config_free(&cfg);
}

static void open_maps(void **state) {
    (void)state;
    struct ax_config cfg;
    load_ok(&cfg,
            "adapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: "
            "true\nlora_rank_pattern: {'^model.layers.0.*': 4, q_proj: 8}\n"
            "datasets: [{path: a, roles: {user: [human, user], tool: [tool]}}]\n"
            "added_tokens_overrides: {128009: '<x>'}\n",
            NULL);
    const struct ax_yaml_node *pattern = ax_config_node(&cfg, "lora_rank_pattern");
    assert_int_equal(pattern->n, 2);
    assert_string_equal(pattern->entries[0].key, "^model.layers.0.*");
    assert_int_equal(pattern->entries[0].value->integer, 4);
    assert_int_equal(ax_config_count(&cfg, "datasets.0.roles"), 2);
    assert_int_equal(ax_config_node(&cfg, "datasets.0.roles")->entries[0].value->n, 2);
    assert_string_equal(ax_config_str(&cfg, "added_tokens_overrides.128009"), "<x>");
    ax_config_free(&cfg);
}

static void errors_of_readers(void **state) {
    (void)state;
    struct ax_config cfg;
    load_ok(&cfg, "base_model: m\nsequence_len: 100\n", NULL);
    assert_int_equal(ax_config_error(&cfg, "sequence_len", "the model reads at most %d tokens", 64),
                     AX_ERR_CONFIG);
    assert_string_equal(ax_error_text(),
                        "sequence_len: the model reads at most 64 tokens (c.yaml:2:15)");
    ax_config_free(&cfg);
}

/* What a config's optimizer becomes here, where it is not quite what its name says. */
static void optimizer_notes(void **state) {
    (void)state;
    static const struct {
        const char *name, *note; /* NULL: none */
    } cases[] = {
        {"adamw_torch", NULL},
        {"adamw_torch_fused", NULL},
        {"sgd", NULL},
        {"adafactor", NULL},
        {"muon", NULL},
        {"lion_32bit", NULL},
        {"adamw_8bit", "blocks of 256 8-bit codes, in tensors of any size"},
        {"adamw_bnb_8bit", "blocks of 256 8-bit codes, in tensors of any size"},
        {"paged_adamw_8bit", "any size; nothing is paged out: the state stays in memory"},
        {"paged_adamw_32bit", "adamw_torch; nothing is paged out"},
        {"lion_8bit", "Lion with its moment in bfloat16"},
        {"paged_lion_8bit", "stochastically; nothing is paged out"},
        {"paged_lion_32bit", "lion_32bit; nothing is paged out"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_config cfg;
        char text[96];
        snprintf(text, sizeof text, "base_model: m\noptimizer: %s\n", cases[i].name);
        load_ok(&cfg, text, NULL);
        if (cases[i].note != NULL)
            expect_note(&cfg, "optimizer", AX_NOTE_APPROXIMATED, cases[i].note);
        else
            assert_null(note_of(&cfg, "optimizer"));
        ax_config_free(&cfg);
    }
}

/* They act on a GPU, which `auto` may find. */
static void offloading_is_for_a_gpu(void **state) {
    (void)state;
    static const char *const keys[] = {"activation_offloading", "layer_offloading",
                                       "fsdp_config.offload_params"};
    static const char *const devices[] = {"", "device: auto\n", "device: cuda\n", "device: cpu\n"};
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        struct ax_config cfg;
        char text[256];
        snprintf(text, sizeof text,
                 "base_model: m\n%sactivation_offloading: true\nlayer_offloading: true\n"
                 "gradient_checkpointing: true\nfsdp_config: {offload_params: true}\n",
                 devices[i]);
        load_ok(&cfg, text, NULL);
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            if (i < 3)
                assert_null(note_of(&cfg, keys[k]));
            else
                expect_note(&cfg, keys[k], AX_NOTE_UNUSED,
                            "only has an effect with device other than cpu");
        ax_config_free(&cfg);
    }
}

/* The type of a data set decides which of its keys are read. */
static void keys_that_the_type_does_not_read(void **state) {
    (void)state;
    struct ax_config cfg;
    load_ok(&cfg,
            "base_model: m\ndatasets:\n"
            "  - {path: a, type: alpaca, roles_to_train: [user], train_on_eos: all, field: x}\n"
            "  - {path: b, type: chat_template, roles_to_train: [user], field: x}\n"
            "  - {path: c, type: completion, field: x, field_messages: y}\n"
            "  - {path: d, field_messages: y, roles_to_train: [user], train_on_eot: all,\n"
            "     message_field_training: w, message_field_training_detail: s}\n"
            "  - {path: g, type: chat_template, train_on_generation: true, train_on_eos: all}\n"
            "test_datasets:\n  - {path: e, type: {format: f}, roles: {user: [u]}}\n",
            NULL);
    static const char *const unused[] = {"datasets.0.roles_to_train",
                                         "datasets.0.train_on_eos",
                                         "datasets.0.field",
                                         "datasets.1.field",
                                         "datasets.2.field_messages",
                                         "test_datasets.0.roles",
                                         "datasets.3.roles_to_train",
                                         "datasets.3.train_on_eot",
                                         "datasets.3.message_field_training",
                                         "datasets.3.message_field_training_detail",
                                         "datasets.4.train_on_eos"};
    static const char *const used[] = {"datasets.1.roles_to_train", "datasets.2.field",
                                       "datasets.3.field_messages"};
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++)
        expect_note(&cfg, unused[i], AX_NOTE_UNUSED, "type: ");
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        assert_null(note_of(&cfg, used[i]));
    ax_config_free(&cfg);
}

static void notes(void **state) {
    (void)state;
    struct ax_config cfg;
    load_ok(&cfg,
            "base_model: m\ntokenizer_type: AutoTokenizer\nstrict: false\ngptq: false\n"
            "lora_r: 8\nload_in_4bit: false\nadam_beta3: 0.9\nwandb_name: x\n"
            "plugins: [a.b.CutCrossEntropyPlugin, axolotl.integrations.diffusion.DiffusionPlugin,"
            " a.b.DiffusionPlugin, my.own.Plugin]\n"
            "vllm: {port: 1}\nprocessor_type: P\ndp_shard_size: 1\ntensor_parallel_size: 1\n"
            "wandb_mode: disabled\nwandb_project: p\nwandb_watch: all\nlr_scheduler: greedy\n",
            NULL);
    expect_note(&cfg, "tokenizer_type", AX_NOTE_NO_EFFECT,
                "tokenizer.json and tokenizer_config.json decide");
    expect_note(&cfg, "lora_r", AX_NOTE_UNUSED, "only has an effect with adapter");
    expect_note(&cfg, "adam_beta3", AX_NOTE_UNUSED, "optimizer: came_pytorch or");
    assert_null(note_of(&cfg, "plugins.0")); /* what it does is here */
    expect_note(&cfg, "plugins.1", AX_NOTE_NOT_YET, "plugins");
    expect_note(&cfg, "plugins.2", AX_NOTE_NOT_YET, "plugins");
    expect_note(&cfg, "plugins.3", AX_NOTE_NOT_YET, "python");
    expect_note(&cfg, "vllm", AX_NOTE_NO_EFFECT, "in this process");
    expect_note(&cfg, "processor_type", AX_NOTE_NOT_YET, "multimodal");
    expect_note(&cfg, "wandb_project", AX_NOTE_UNUSED, "wandb_mode");
    expect_note(&cfg, "wandb_watch", AX_NOTE_NO_EFFECT, "only metrics"); /* on no condition */
    expect_note(&cfg, "lr_scheduler", AX_NOTE_NOT_YET, "other-schedules");
    /* switched off, or at its default: nothing was asked for */
    static const char *const quiet[] = {"strict",        "gptq",      "load_in_4bit",
                                        "dp_shard_size", "vllm.port", "tensor_parallel_size",
                                        "plugins"};
    for (size_t i = 0; i < sizeof quiet / sizeof *quiet; i++)
        assert_null(note_of(&cfg, quiet[i]));
    assert_string_equal(note_of(&cfg, "processor_type")->where, "c.yaml:11:17");
    ax_config_log_notes(&cfg);
    ax_config_free(&cfg);
}

/* What ax_config_log_notes writes for this configuration. */
static void logged(const char *yaml, char *out, size_t size) {
    struct ax_config cfg;
    int ends[2];
    load_ok(&cfg, yaml, NULL);
    assert_int_equal(pipe(ends), 0);
    const int kept = dup(STDERR_FILENO);
    const enum ax_log_level level = ax_log_get_level();
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    ax_log_set_level(AX_LOG_INFO);
    ax_config_log_notes(&cfg);
    ax_log_set_level(level);
    dup2(kept, STDERR_FILENO);
    close(kept);
    const ssize_t n = read(ends[0], out, size - 1); /* nothing logged: the end */
    assert_true(n >= 0);
    out[n] = '\0';
    close(ends[0]);
    ax_config_free(&cfg);
}

static void several_keys_without_effect_are_one_line(void **state) {
    (void)state;
    char text[2048];
    logged("base_model: m\n", text, sizeof text);
    assert_string_equal(text, "");
    logged("base_model: m\ntokenizer_type: T\n", text, sizeof text);
    assert_string_equal(
        text,
        "info tokenizer_type: no effect here: tokenizer.json and tokenizer_config.json decide "
        "(c.yaml:2:17)\n");
    logged("base_model: m\ntokenizer_type: T\nlora_r: 8\ntorch_compile: true\n", text, sizeof text);
    expect_text(text,
                "info 2 keys have no effect here: tokenizer_type, torch_compile (explained by "
                "axtrain config show --all c.yaml)\n");
    expect_text(text, "warn lora_r: only has an effect with adapter (c.yaml:3:9)\n");
    assert_null(strstr(text, "decides"));
}

/* What would hurt if it were ignored stops a run, and only then. */
static void what_cannot_be_done_stops(void **state) {
    (void)state;
    static const struct {
        const char *yaml;
        enum ax_capability cap;
    } cases[] = {
        {"push_dataset_to_hub: me/x\n", AX_CAP_HUB_DATA_UPLOAD},
        {"use_otel_metrics: true\n", AX_CAP_OTEL},
        {"chat_template: command_a\n", AX_CAP_COMMAND_A},
        {"optimizer: adopt_adamw\n", AX_CAP_OTHER_OPTIM},
        {"image_size: 512\n", AX_CAP_MULTIMODAL},
        {"peft: {loftq_config: {loftq_bits: 4}}\nadapter: lora\n", AX_CAP_LOFTQ},
        {"use_onebitllms: true\n", AX_CAP_BITNET},
        {"shrink_embeddings: true\n", AX_CAP_SHRINK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char yaml[512];
        struct ax_config cfg;
        snprintf(yaml, sizeof yaml, "base_model: m\nlearning_rate: 1e-4\ndatasets: [{path: a}]\n%s",
                 cases[i].yaml);
        load_ok(&cfg, yaml, NULL);
        const struct ax_capability_info *info = ax_capability_info(cases[i].cap);
        enum ax_status st = ax_config_require(&cfg, AX_CONFIG_FOR_TRAINING);
        char line[256];
        snprintf(line, sizeof line, "\n  %s: %.*s", info->name, (int)strcspn(cases[i].yaml, ":"),
                 cases[i].yaml);
        assert_int_equal(st, AX_ERR_UNSUPPORTED);
        expect_text(ax_error_text(), line);
        expect_text(ax_error_text(), "(c.yaml:4:");
        ax_config_free(&cfg);
    }
}

/* Keys that miss the same capability share a line. */
static void missing_capabilities_are_listed_once(void **state) {
    (void)state;
    struct ax_config cfg;
    load_ok(&cfg,
            "base_model: m\nlearning_rate: 1e-4\ndatasets: [{path: a}]\n"
            "image_size: 512\nuse_otel_metrics: true\nimage_resize_algorithm: "
            "bilinear\n",
            NULL);
    assert_int_equal(ax_config_require(&cfg, AX_CONFIG_FOR_TRAINING), AX_ERR_UNSUPPORTED);
    expect_text(ax_error_text(),
                "\n  multimodal: image_size (c.yaml:4:13), image_resize_algorithm\n"
                "  opentelemetry: use_otel_metrics (c.yaml:5:19)");
    ax_config_free(&cfg);
}

/* Keys that choose an objective are not to be set to null: that would train something else. */
static void remedies_of_refusals(void **state) {
    (void)state;
    static const struct {
        const char *key;
        bool another;
    } all[] = {{"rl: dpo\ndpo_loss_type: [aot]", true}, {"shrink_embeddings: true", false}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char text[256];
        struct ax_config cfg;
        snprintf(text, sizeof text,
                 "base_model: m\nlearning_rate: 1\noutput_dir: o\nsequence_len: 8\ndatasets:\n"
                 "  - path: d\n    type: alpaca\n%s\n",
                 all[i].key);
        load_ok(&cfg, text, NULL);
        const enum ax_status st = ax_config_require(&cfg, AX_CONFIG_FOR_TRAINING);
        const bool null = strstr(ax_error_text(), "set these keys to null") != NULL;
        ax_config_free(&cfg);
        assert_int_equal(st, AX_ERR_UNSUPPORTED);
        assert_int_equal(null, !all[i].another);
    }
}

static void required_keys(void **state) {
    (void)state;
    struct ax_config cfg;
    load_ok(&cfg, "seed: 1\n", NULL);
    assert_int_equal(ax_config_require(&cfg, AX_CONFIG_FOR_TRAINING), AX_ERR_CONFIG);
    expect_text(ax_error_text(), "base_model is missing, e.g. base_model:");
    expect_text(ax_error_text(), "datasets is missing");
    expect_text(ax_error_text(), "learning_rate is missing");
    assert_int_equal(ax_config_require(&cfg, AX_CONFIG_FOR_TEXT), AX_ERR_CONFIG);
    assert_null(strstr(ax_error_text(), "learning_rate"));
    ax_config_free(&cfg);

    load_ok(&cfg, "base_model: m\ndatasets: [{type: alpaca}, {type: _synthetic}]\n", NULL);
    assert_int_equal(ax_config_require(&cfg, AX_CONFIG_FOR_TEXT), AX_ERR_CONFIG);
    expect_text(ax_error_text(), "datasets.0.path is missing");
    assert_null(strstr(ax_error_text(), "datasets.1.path"));
    ax_config_free(&cfg);

    /* text commands do not mind what only training would need */
    load_ok(
        &cfg,
        "base_model: m\npretraining_dataset: [{path: a}]\nmax_steps: 5\nuse_otel_metrics: true\n",
        NULL);
    assert_int_equal(ax_config_require(&cfg, AX_CONFIG_FOR_TEXT), AX_OK);
    ax_config_free(&cfg);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(lists_of_one),
        cmocka_unit_test(home_folders),
        cmocka_unit_test(variables_in_paths),
        cmocka_unit_test(addresses_of_the_hub),
        cmocka_unit_test(a_single_pretraining_set),
        cmocka_unit_test(coercions),
        cmocka_unit_test(open_maps),
        cmocka_unit_test(errors_of_readers),
        cmocka_unit_test(optimizer_notes),
        cmocka_unit_test(offloading_is_for_a_gpu),
        cmocka_unit_test(notes),
        cmocka_unit_test(keys_that_the_type_does_not_read),
        cmocka_unit_test(several_keys_without_effect_are_one_line),
        cmocka_unit_test(what_cannot_be_done_stops),
        cmocka_unit_test(missing_capabilities_are_listed_once),
        cmocka_unit_test(remedies_of_refusals),
        cmocka_unit_test(required_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

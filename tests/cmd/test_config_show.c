/* `axtrain config show | help`: what is printed, and that it reads back as the same thing. */
#include "config_case.h"

#include <jansson.h>
#include <unistd.h>

#include "base/io.h"

static const char config[] = "base_model: my/model\n"
                             "learning_rate: 2e-5   # small\n"
                             "flash_attention: true\n"
                             "sequence_len: 1_024\n"
                             "sample_packing: yes\n"
                             "datasets:\n"
                             "  - path: \"a b.jsonl\"\n"
                             "    type: chat_template\n"
                             "    roles: {user: [human, user]}\n"
                             "    split: 'train[:1%]'\n"
                             "  - path: c.jsonl\n"
                             "    type:\n"
                             "      format: \"{instruction}\\n\"\n"
                             "chat_template_jinja: |\n"
                             "  {% for m in messages %}\n"
                             "  \"{{ m }}\"\n"
                             "special_tokens:\n"
                             "  pad_token: '<|pad|>'\n"
                             "  eos_token: 'null'\n"
                             "dynamic_checkpoint: {enabled: true}\n"
                             "model_config: {gain: -1.50e-3, bias: -.5}\n"
                             "lora_r: 8\n"
                             "debug: true\n"
                             "wandb_project:\n";

static void show(const struct ax_config *cfg, struct ax_buf *out) {
    *out = (struct ax_buf){0};
    assert_int_equal(ax_config_show(cfg, false, out), AX_OK);
}

/* Takes the padding before comments away, but for two blanks. */
static void squeeze(struct ax_buf *text) {
    char *to = text->data;
    for (const char *from = text->data; *from != '\0'; from++) {
        size_t blanks = strspn(from, " ");
        if (blanks > 2 && from[blanks] == '#')
            from += blanks - 2;
        *to++ = *from;
    }
    *to = '\0';
}

static void values_with_origins(void **state) {
    (void)state;
    struct ax_config cfg;
    struct ax_buf out;
    load_ok(&cfg, config, OVERRIDES("micro_batch_size=2", "--datasets.1.path", "d.jsonl"));
    show(&cfg, &out);
    squeeze(&out);
    static const char *const lines[] = {
        "# Model\nbase_model: my/model  # c.yaml:1:13\n",
        "\nmodel_config:\n  gain: -1.50e-3  # c.yaml:21:22\n  bias: -0.5  # c.yaml:21:38\n",
        "\nlearning_rate: 2e-5  # c.yaml:2:16\n",
        "\nattn_implementation: flash_attention_2  # c.yaml:3:18\n",
        "\nsequence_len: 1024 ",
        "\nsample_packing: true ",
        "\neval_sequence_len: 1024  # follows from sequence_len\n",
        "\nmicro_batch_size: 2  # command line\n",
        "\neval_batch_size: 2  # follows from micro_batch_size\n",
        "\nnum_epochs: 1.0  # default\n",
        "\ndatasets:\n  - path: \"a b.jsonl\"  # c.yaml:7:11\n",
        "\n    type: chat_template  # c.yaml:8:11\n",
        "\n    roles:\n      user: [human, user]  # c.yaml:9:19\n",
        "\n    split: \"train[:1%]\"",
        "\n  - path: d.jsonl  # command line\n",
        "\n    type:\n      format: \"{instruction}\\n\" ",
        "\nchat_template: jinja  # follows from chat_template_jinja\n",
        "\nchat_template_jinja: \"{% for m in messages %}\\n\\\"{{ m }}\\\"\\n\"",
        "\n  pad_token: \"<|pad|>\"",
        "\n  eos_token: \"null\"",
        "\ndynamic_checkpoint:\n  enabled: true ",
        "\n  check_interval: 10  # default\n",
        "\n# NOTE read under another name\n#   flash_attention: old spelling of",
        "\n# NOTE no effect here\n#   attn_implementation: there is one exact attention",
        "\n# NOTE not used in this run\n#   lora_r: only has an effect with adapter (c.yaml",
        "\n# NOTE ignored keys\n#   debug: this key is ignored",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        expect_text(out.data, lines[i]);
    assert_null(strstr(out.data, "wandb"));
    assert_null(strstr(out.data, "\ndebug"));
    assert_null(strstr(out.data, "\nflash_attention"));
    ax_buf_free(&out);
    ax_config_free(&cfg);
}

/* Several keys without effect share a line, unless all are asked for. */
static void keys_without_effect_share_a_line(void **state) {
    (void)state;
    struct ax_config cfg;
    struct ax_buf out;
    load_ok(
        &cfg,
        "base_model: m\ntokenizer_type: AutoTokenizer\ntorch_compile: true\nflash_attention: true\n"
        "use_kernels: true\nliger_rope: true\nlora_mlp_kernel: true\ntrust_remote_code: true\n"
        "lora_r: 8\n",
        NULL);
    show(&cfg, &out);
    const char *notes = strstr(out.data, "\n# NOTE no effect here");
    assert_non_null(notes);
    assert_memory_equal(notes, "\n# NOTE no effect here: 7 keys, explained with --all\n#   ", 57);
    expect_text(notes, ", use_kernels");
    expect_text(notes, " and 1 more\n");
    expect_text(notes, "#   lora_r: only has an effect with adapter (c.yaml:9:9)\n");
    assert_null(strstr(notes, "tokenizer.json and tokenizer_config.json decide"));
    ax_buf_free(&out);
    assert_int_equal(ax_config_show(&cfg, true, &out), AX_OK);
    expect_text(out.data, "\n# NOTE no effect here\n#   ");
    expect_text(
        out.data,
        "\n#   tokenizer_type: tokenizer.json and tokenizer_config.json decide (c.yaml:2:17)\n");
    assert_null(strstr(out.data, "explained with --all"));
    ax_buf_free(&out);
    ax_config_free(&cfg);
}

/* What is shown is a configuration that means the same. */
static void shown_reads_back(void **state) {
    (void)state;
    struct ax_config cfg;
    struct ax_config again;
    struct ax_buf text[2];
    struct ax_buf json[2] = {{0}, {0}};
    load_ok(&cfg, config, NULL);
    show(&cfg, &text[0]);
    load_ok(&again, text[0].data, NULL);
    show(&again, &text[1]);
    assert_int_equal(ax_config_show_json(&cfg, &json[0]), AX_OK);
    assert_int_equal(ax_config_show_json(&again, &json[1]), AX_OK);
    json_t *a = json_loads(json[0].data, JSON_REJECT_DUPLICATES, NULL);
    json_t *b = json_loads(json[1].data, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(a);
    assert_true(json_equal(json_object_get(a, "config"), json_object_get(b, "config")));
    json_decref(a);
    json_decref(b);
    for (int i = 0; i < 2; i++) {
        ax_buf_free(&text[i]);
        ax_buf_free(&json[i]);
    }
    ax_config_free(&cfg);
    ax_config_free(&again);
}

/* Each line is indented by two blanks for each bracket that is open where it begins. */
static void check_layout(const char *json) {
    size_t depth = 0;
    bool quoted = false;
    for (const char *c = json; *c; c++) {
        if (quoted && *c == '\\')
            c++;
        else if (*c == '"')
            quoted = !quoted;
        else if (!quoted && (*c == '{' || *c == '['))
            depth++;
        else if (!quoted && (*c == '}' || *c == ']'))
            depth--;
        if (quoted || *c != '\n' || c[1] == '\0')
            continue;
        const size_t blanks = strspn(c + 1, " ");
        const bool closes = c[1 + blanks] == '}' || c[1 + blanks] == ']';
        if (blanks != 2 * (depth - closes))
            fail_msg("%zu blanks, not %zu: %.60s", blanks, 2 * (depth - closes), c + 1);
    }
    assert_int_equal(depth, 0);
}

/* What is shown as a default is the key's, and 7 is that of no key here. */
static void defaults(void **state) {
    (void)state;
    struct ax_config cfg;
    struct ax_buf out = {0};
    const char *key;
    json_t *v, *other = json_integer(7);
    int n = 0;
    load_ok(&cfg, "base_model: b\nrl: grpo\n", NULL);
    assert_int_equal(ax_config_show_json(&cfg, &out), AX_OK);
    json_t *root = json_loads(out.data, 0, NULL);
    const json_t *origins = json_object_get(root, "origins");
    json_object_foreach(json_object_get(root, "config"), key, v) {
        const char *from = json_string_value(json_object_get(origins, key));
        if (!from)
            continue;
        if (ax_config_is_default(key, v) != (strcmp(from, "default") == 0) ||
            ax_config_is_default(key, other))
            fail_msg("%s", key);
        n++;
    }
    assert_true(n > 50);
    assert_false(ax_config_is_default("no_such_key", other));
    json_decref(other);
    json_decref(root);
    ax_buf_free(&out);
    ax_config_free(&cfg);
}

static void as_json(void **state) {
    (void)state;
    struct ax_config cfg;
    struct ax_buf out = {0};
    load_ok(&cfg, config, OVERRIDES("processor_type=P"));
    assert_int_equal(ax_config_show_json(&cfg, &out), AX_OK);
    check_layout(out.data);
    expect_text(out.data, "{\n  \"file\": \"c.yaml\",\n  \"config\": {\n    \"base_model\": ");
    expect_text(out.data, "\n  },\n  \"origins\": {\n    \"base_model\": ");
    expect_text(out.data, "\n  },\n  \"notes\": [\n    {\"kind\": ");
    expect_text(out.data, "\"}\n  ]\n}\n");
    json_t *root = json_loads(out.data, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    const json_t *values = json_object_get(root, "config");
    const json_t *origins = json_object_get(root, "origins");
    const json_t *first = json_array_get(json_object_get(values, "datasets"), 0);
    assert_string_equal(json_string_value(json_object_get(root, "file")), "c.yaml");
    assert_true(json_real_value(json_object_get(values, "learning_rate")) == 2e-5);
    assert_int_equal(json_integer_value(json_object_get(values, "sequence_len")), 1024);
    assert_true(json_is_true(json_object_get(values, "sample_packing")));
    assert_string_equal(json_string_value(json_object_get(first, "path")), "a b.jsonl");
    assert_int_equal(json_integer_value(json_object_get(
                         json_object_get(values, "dynamic_checkpoint"), "check_interval")),
                     10);
    assert_string_equal(json_string_value(json_object_get(origins, "datasets.0.roles.user.0")),
                        "c.yaml:9:20");
    assert_string_equal(json_string_value(json_object_get(origins, "learning_rate")),
                        "c.yaml:2:16");
    assert_string_equal(json_string_value(json_object_get(origins, "seed")), "default");
    assert_null(json_object_get(values, "debug"));
    size_t i;
    const json_t *note;
    bool found = false;
    json_array_foreach(json_object_get(root, "notes"), i, note) {
        const char *key = json_string_value(json_object_get(note, "key"));
        if (strcmp(key, "processor_type") == 0) {
            found = true;
            assert_string_equal(json_string_value(json_object_get(note, "kind")),
                                "not_supported_yet");
            assert_string_equal(json_string_value(json_object_get(note, "text")), "multimodal");
        }
    }
    assert_true(found);
    json_decref(root);
    ax_buf_free(&out);
    ax_config_free(&cfg);
}

static void help_for(const char *path, const char *const *parts) {
    struct ax_buf out = {0};
    assert_int_equal(ax_config_help(path, &out), AX_OK);
    for (; *parts != NULL; parts++)
        expect_text(out.data, *parts);
    ax_buf_free(&out);
}
#define HELP(path, ...) help_for(path, (const char *const[]){__VA_ARGS__, NULL})

static void help(void **state) {
    (void)state;
    HELP("micro_batch_size", "micro_batch_size\n  Rows per device",
         "\ntype      a positive integer\ndefault   1\n", "\nsection   Batches and steps\n");
    HELP("lora_dropout", "a number from 0 to just below 1", "\nonly with adapter\n");
    HELP("tokenizer_type",
         "\nsupport   no effect: tokenizer.json and tokenizer_config.json decide\n");
    HELP("optimizer", "\nvalues\n", "\n  adamw_torch  ", "\n  galore_*  ",
         "old       optimizer: ao_adamw_8bit for adamw_torch_8bit");
    HELP("plugins", "\nsupport   acts\nsection   Model\n", "\n  *KDPlugin                 acts\n",
         "\n  *DiffusionPlugin          not supported yet: needs plugins\n",
         "\n  *.*                       not supported yet: needs python\n");
    HELP("datasets", "\nkeys inside\n  path  ", "\n  field_messages  ");
    HELP("test_datasets.3.field_messages", "datasets[].field_messages\n");
    HELP("trl.beta", "trl.beta\n");
    HELP("flash_attention", "flash_attention is an old spelling of attn_implementation: "
                            "flash_attention_2\n\nattn_implementation\n");
    HELP("adam_eps", "adam_eps: this key is ignored; see adam_epsilon\n");
    HELP("datasets[].message_field_role",
         "datasets[].message_field_role is an old spelling of "
         "datasets[].message_property_mappings.role\n\ndatasets[].message_property_mappings\n");
    for (size_t i = 0; i < ax_config_n_renamed; i++)
        HELP(ax_config_renamed[i].path, ax_config_renamed[i].path);
    for (size_t i = 0; i < ax_config_n_ignored; i++)
        HELP(ax_config_ignored[i].path, "this key is ignored");
    HELP("lora", "keys that begin with lora_\n", "\n  lora_r  ", "\n  lora_target_modules  ");
    HELP("peft_use", "keys that begin with peft_use_\n", "\n  peft_use_dora  ");
    struct ax_buf out = {0};
    assert_int_equal(ax_config_help("micro_bach_size", &out), AX_ERR_CONFIG);
    expect_text(ax_error_text(), "did you mean micro_batch_size?");
    assert_int_equal(ax_config_help("datasets.0.pth", &out), AX_ERR_CONFIG);
    expect_text(ax_error_text(), "did you mean path?");
    assert_int_equal(ax_config_help("trl.max_prompt_length", &out), AX_ERR_CONFIG);
    expect_text(ax_error_text(), "leave it out: sequence_len limits prompt and answer together");
    assert_int_equal(ax_config_help("message_field_role", &out), AX_ERR_CONFIG);
    expect_text(ax_error_text(), "did you mean datasets[].message_property_mappings.role?");
    assert_int_equal(out.len, 0);
    assert_int_equal(ax_config_list(&out), AX_OK);
    expect_text(out.data, "\n\nDatasets\n  datasets  ");
    ax_buf_free(&out);
}

/* Names of keys that do not act: lines of at most 96 columns, each as full as they go. */
static void lists_fill_their_lines(void **state) {
    (void)state;
    struct ax_buf out = {0};
    size_t before = 0, lines = 0; /* columns of the line before, where it is such a one */
    assert_int_equal(ax_config_list(&out), AX_OK);
    for (const char *line = out.data; *line != '\0'; line += strcspn(line, "\n") + 1) {
        const size_t width = strcspn(line, "\n");
        if (strncmp(line, "    ", 4) != 0 || line[4] == ' ') {
            before = 0;
            continue;
        }
        assert_true(width <= 96);
        if (before > 0)
            assert_true(before + 1 + strcspn(line + 4, " \n") > 96);
        lines += before > 0;
        before = width;
    }
    assert_true(lines > 5);
    ax_buf_free(&out);
}

static enum ax_status run(const char *const *words, char *out_path) {
    char *argv[16];
    int argc = 0;
    argv[argc++] = (char *)"config";
    for (; *words != NULL; words++)
        argv[argc++] = (char *)*words;
    argv[argc++] = (char *)"-o";
    argv[argc++] = out_path;
    return ax_cmd_config(argc, argv);
}
#define RUN(out, ...) run((const char *const[]){__VA_ARGS__, NULL}, out)

static void command(void **state) {
    (void)state;
    char dir[] = "/tmp/axtrain-config-XXXXXX";
    assert_non_null(mkdtemp(dir));
    char file[64];
    char out[64];
    char *text = NULL;
    size_t len = 0;
    snprintf(file, sizeof file, "%s/c.yaml", dir);
    snprintf(out, sizeof out, "%s/out", dir);
    assert_int_equal(ax_write_file_atomic(file, config, strlen(config)), AX_OK);
    assert_int_equal(RUN(out, "show", file, "seed=7", "--json"), AX_OK);
    assert_int_equal(ax_read_file(out, 1 << 20, &text, &len), AX_OK);
    expect_text(text, "\"seed\": 7");
    ax_free(text);
    assert_int_equal(RUN(out, "show", file), AX_OK);
    assert_int_equal(ax_read_file(out, 1 << 20, &text, &len), AX_OK);
    expect_text(text, "# c.yaml:1:13\n"); /* without the folder */
    ax_free(text);
    assert_int_equal(RUN(out, "help", "seed"), AX_OK);
    assert_int_equal(RUN(out, "schema"), AX_OK);
    assert_int_equal(RUN(out, "docs"), AX_OK);
    assert_int_equal(RUN(out, "show"), AX_ERR_CONFIG);
    assert_int_equal(RUN(out, "show", file, "seeed=7"), AX_ERR_CONFIG);
    assert_int_equal(RUN(out, "schema", "x"), AX_ERR_CONFIG);
    assert_int_equal(RUN(out, "shew", file), AX_ERR_CONFIG);
    assert_int_equal(RUN(out, "show", "/nonexistent.yaml"), AX_ERR_CONFIG);
    assert_int_equal(ax_remove_tree(dir), AX_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_with_origins),
        cmocka_unit_test(keys_without_effect_share_a_line),
        cmocka_unit_test(shown_reads_back),
        cmocka_unit_test(defaults),
        cmocka_unit_test(as_json),
        cmocka_unit_test(help),
        cmocka_unit_test(lists_fill_their_lines),
        cmocka_unit_test(command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* `axtrain preview` and `axtrain preprocess` from a YAML: ids, labels, places, totals, what was
 * left out and why, warnings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/data_case.h"
#include "tests/golden_files.h"
#include "tests/smollm2.h"

static void check_text(int n, const char *const *args, const char *want) {
    char *out = preview(n, args);
    assert_string_equal(out, want);
    ax_free(out);
}

static int64_t at(const json_t *v, const char *a, const char *b) {
    const json_t *found = json_object_get(json_object_get(v, a), b);
    if (!json_is_integer(found))
        fail_msg("%s.%s is no number", a, b);
    return json_integer_value(found);
}

/* Prompts that a model would answer have the number that they have in their epoch. */
static void prompts_are_numbered(void **state) {
    (void)state;
    char config[128], rows[128];
    snprintf(rows, sizeof rows, "%s",
             put_text("p.jsonl", "{\"prompt\": \"one\"}\n{\"prompt\": \"two\"}\n"));
    snprintf(config, sizeof config, "%s",
             put_config("prompts.yaml", rows,
                        "rl: grpo\ntrl:\n  num_generations: 2\n  max_completion_length: 4\n"
                        "  reward_funcs: ['format:x']\n"
                        "shuffle_merged_datasets: false\n"));
    char *out = preview(3, (const char *const[]){config, "--color", "never"});
    for (int i = 0; i < 2; i++) {
        char line[64];
        snprintf(line, sizeof line, "── prompt %d of epoch 0\n", i);
        if (!strstr(out, line))
            fail_msg("no \"%s\" in: %s", line, out);
    }
    ax_free(out);
}

/* Between turns of a model with tools: its call, which is trained on, and what the tool returns, which is not. */
static void turns_are_made_up(void **state) {
    (void)state;
    char config[128], rows[128], model[256];
    snprintf(model, sizeof model, "base_model=%s", golden_path("runs/models/tools_qwen3"));
    snprintf(
        rows, sizeof rows, "%s",
        put_text("p.jsonl", "{\"prompt\": [{\"role\": \"user\", \"content\": \"1 + 2?\"}]}\n"));
    snprintf(config, sizeof config, "%s",
             put_config("tools.yaml", rows,
                        "rl: grpo\ntrl:\n  num_generations: 2\n  max_completion_length: 4\n"
                        "  reward_funcs: ['format:x']\n  tools: [python]\n"));
    json_t *v =
        preview_json(4, (const char *const[]){config, model, "sequence_len=2048", "--json"});
    const json_t *turns = json_object_get(v, "turns"), *labels = json_object_get(turns, "labels"),
                 *ids = json_object_get(turns, "ids");
    const size_t n = json_array_size(ids);
    size_t trained = 0;
    assert_int_equal(json_array_size(labels), n);
    for (size_t i = 0; i < n; i++) {
        const int64_t label = json_integer_value(json_array_get(labels, i));
        trained += label >= 0 && trained == i;
        assert_true(label == (i < trained ? json_integer_value(json_array_get(ids, i)) : -100));
    }
    assert_true(trained > 10 && trained < n - 10);
    json_decref(v);
}

static void text_form(void **state) {
    (void)state;
    char config[128];
    char rows[128];
    char want[2048];
    snprintf(rows, sizeof rows, "%s",
             put_text("q.jsonl",
                      "{\"q\": \"1+1?\", \"a\": \"2\"}\n{\"q\": \"\\u001b\\u009b31m\", \"a\": "
                      "\"é\\t3\"}\n"));
    snprintf(config, sizeof config, "%s",
             put_config("text.yaml", rows,
                        "    type:\n      field_instruction: q\n      field_output: a\n"
                        "      no_input_format: '{instruction} '\n"
                        "shuffle_merged_datasets: false\ncurriculum_sampling: true\n"));
    snprintf(want, sizeof want,
             "── sequence 0 of epoch 0: 7 tokens, 2 trained, 1 document\n"
             "─ %s:1: 7 tokens, 2 trained\n"
             "1+1? ⟦2</s>⟧\n"
             "ids: 49 43 49 63 32 ⟦50⟧ ⟦264⟧\n"
             "── sequence 1 of epoch 0: 12 tokens, 5 trained, 1 document\n"
             "─ %s:2: 12 tokens, 5 trained\n"
             "␛�31m ⟦é\t3</s>⟧\n"
             "ids: 27 194 155 51 49 109 32 ⟦195⟧ ⟦169⟧ ⟦9⟧ ⟦51⟧ ⟦264⟧\n"
             "training: 2 documents, 19 tokens, 7 trained (36.8 %%), longest 12\n"
             "  sequences: 2, 14.8 %% of their tokens are used; 2 steps per epoch on one device\n",
             rows, rows);
    check_text(4, (const char *const[]){config, "--ids", "--color", "never"}, want);
    /* in color, the second step only */
    snprintf(want, sizeof want,
             "\x1b[2m── sequence 1 of epoch 0: 12 tokens, 5 trained, 1 document\x1b[0m\n"
             "\x1b[2m─ %s:2: 12 tokens, 5 trained\x1b[0m\n"
             "␛�31m \x1b[32mé\t3</s>\x1b[0m\n"
             "training: 2 documents, 19 tokens, 7 trained (36.8 %%), longest 12\n"
             "  sequences: 2, 14.8 %% of their tokens are used; 2 steps per epoch on one device\n",
             rows);
    check_text(5, (const char *const[]){config, "--step=2", "--rows=1", "--color", "always"}, want);
}

static void json_form(void **state) {
    (void)state;
    char config[128];
    const char *rows =
        put_text("c.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
                            "\"assistant\", \"content\": \"b\"}]}\n");
    snprintf(config, sizeof config, "%s",
             put_config("json.yaml", rows,
                        "    type: chat_template\nchat_template: chatml\n"
                        "eot_tokens: ['<|im_end|>']\n"));
    json_t *v = preview_json(2, (const char *const[]){config, "--json"});
    const json_t *row = json_array_get(json_object_get(v, "rows"), 0);
    const json_t *doc = json_array_get(json_object_get(row, "documents"), 0);
    assert_string_equal(json_string_value(json_object_get(doc, "text")),
                        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n");
    assert_non_null(strstr(json_string_value(json_object_get(doc, "where")), "c.jsonl:1"));
    const json_t *ids = json_object_get(doc, "ids");
    const json_t *labels = json_object_get(doc, "labels");
    assert_int_equal(json_array_size(ids), 23);
    for (size_t i = 0; i < 23; i++) {
        const int64_t id = json_integer_value(json_array_get(ids, i));
        const int64_t label = json_integer_value(json_array_get(labels, i));
        assert_int_equal(label, i == 20 || i == 21 ? id : -100);
    }
    assert_int_equal(json_integer_value(json_array_get(ids, 0)), IM_START);
    assert_int_equal(json_integer_value(json_array_get(ids, 20)), 'b');
    assert_int_equal(json_integer_value(json_array_get(ids, 21)), IM_END);
    assert_int_equal(at(v, "train", "trained"), 2);
    json_decref(v);
}

/* Everything that is left out, counted by its reason. */
static void left_out(void **state) {
    (void)state;
    char config[128];
    struct ax_buf b = {0};
    for (int i = 0; i < 20; i++)
        assert_ok(ax_buf_printf(&b, "{\"input_ids\": [97, 98, %d], \"labels\": [97, 98, -100]}\n",
                                99 + i));
    assert_ok(ax_buf_puts(&b, "{\"input_ids\": [97, 98, 99], \"labels\": [97, 98, -100]}\n"
                              "{\"input_ids\": [97, 98], \"labels\": [-100, -100]}\n"
                              "{\"input_ids\": [97], \"labels\": [97]}\n"
                              "{\"input_ids\": [97], \"labels\": []}\n"
                              "{\"input_ids\": ["));
    for (int i = 0; i < 65; i++)
        assert_ok(ax_buf_puts(&b, i ? ", 97" : "97"));
    assert_ok(ax_buf_puts(&b, "], \"labels\": ["));
    for (int i = 0; i < 65; i++)
        assert_ok(ax_buf_puts(&b, i ? ", 97" : "97"));
    assert_ok(ax_buf_puts(&b, "]}\n"));
    const char *rows = put_bytes("l.jsonl", b.data, b.len);
    ax_buf_free(&b);
    snprintf(config, sizeof config, "%s",
             put_config("left.yaml", rows,
                        "    type: null\nsample_packing: true\nval_set_size: 0.1\n"
                        "dataset_exact_deduplication: true\nmax_bad_rows: 1\n"));
    json_t *v = preview_json(2, (const char *const[]){config, "--json"});
    const json_t *dropped = json_object_get(json_object_get(v, "train"), "dropped");
    assert_int_equal(at(v, "train", "documents"), 18);
    assert_int_equal(at(v, "eval", "documents"), 2);
    assert_int_equal(json_integer_value(json_object_get(dropped, "too_long")), 1);
    assert_int_equal(json_integer_value(json_object_get(dropped, "too_short")), 1);
    assert_int_equal(json_integer_value(json_object_get(dropped, "untrained")), 1);
    assert_int_equal(json_integer_value(json_object_get(dropped, "duplicates")), 1);
    assert_int_equal(json_integer_value(json_object_get(dropped, "for_evaluation")), 2);
    assert_int_equal(at(v, "bad_rows", "count"), 1);
    const json_t *listed = json_object_get(json_object_get(v, "bad_rows"), "listed");
    assert_non_null(strstr(json_string_value(json_array_get(listed, 0)), "l.jsonl:24: "));
    assert_int_equal(at(v, "train", "rows"), 1);
    assert_int_equal(at(v, "train", "tokens"), 54);
    assert_int_equal(at(v, "train", "padded_tokens"), 64);
    json_decref(v);
    char *out;
    assert_error(run(ax_cmd_preview, &out, 2, (const char *const[]){config, "max_bad_rows=0"}),
                 AX_ERR_DATA, "datasets.0: ");
    ax_free(out);
    char *text = preview(4, (const char *const[]){config, "--rows", "1", "--eval"});
    assert_non_null(strstr(text, "skipped: 1 too long, 1 too short, 1 without a trained token, 1 "
                                 "duplicates, 2 held out for evaluation\n"));
    assert_non_null(strstr(text, "datasets.0: skipped 1 bad record:\n"));
    ax_free(text);
}

static bool warns(const json_t *v, const char *part) {
    const json_t *list = json_object_get(v, "warnings");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strstr(json_string_value(json_array_get(list, i)), part))
            return true;
    return false;
}

/* Documents of 40, 40, 20 and 20 tokens in rows of 64: two rows for all of them, three by twos. */
static void packed_by_groups(void **state) {
    (void)state;
    char config[128];
    struct ax_buf b = {0};
    for (int i = 0; i < 4; i++) {
        assert_ok(ax_buf_puts(&b, "{\"input_ids\": [97"));
        for (int k = 1; k < (i < 2 ? 40 : 20); k++)
            assert_ok(ax_buf_printf(&b, ", %d", 98 + i));
        assert_ok(ax_buf_puts(&b, "], \"labels\": [97"));
        for (int k = 1; k < (i < 2 ? 40 : 20); k++)
            assert_ok(ax_buf_printf(&b, ", %d", 98 + i));
        assert_ok(ax_buf_puts(&b, "]}\n"));
    }
    const char *rows = put_bytes("groups.jsonl", b.data, b.len);
    ax_buf_free(&b);
    snprintf(config, sizeof config, "%s",
             put_config("groups.yaml", rows,
                        "    type: null\nsample_packing: true\nshuffle_merged_datasets: false\n"
                        "curriculum_sampling: true\n"));
    static const char *const sizes[] = {"sample_packing_group_size=4",
                                        "sample_packing_group_size=2"};
    for (int i = 0; i < 2; i++) {
        json_t *v = preview_json(3, (const char *const[]){config, "--json", sizes[i]});
        assert_int_equal(at(v, "train", "rows"), 2 + i);
        json_decref(v);
    }
}

static void warnings(void **state) {
    (void)state;
    char config[128];
    char rows[128];
    snprintf(rows, sizeof rows, "%s",
             put_text("w.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
                                 "{\"role\": \"assistant\", \"content\": \"b\"}]}\n"));
    /* chatml on a tokenizer whose EOS is not <|im_end|> */
    snprintf(config, sizeof config, "%s",
             put_config("w.yaml", rows, "    type: chat_template\nchat_template: chatml\n"));
    json_t *v = preview_json(2, (const char *const[]){config, "--json"});
    assert_true(warns(v, "the end-of-turn token is never trained"));
    assert_true(warns(v, "does not appear in the chat template"));
    assert_false(warns(v, "BOS twice"));
    json_decref(v);
    v = preview_json(3, (const char *const[]){config, "--json", "eot_tokens=['<|im_end|>']"});
    assert_false(warns(v, "never trained"));
    assert_int_equal(json_array_size(json_object_get(v, "warnings")), 0);
    json_decref(v);
    v = preview_json(4, (const char *const[]){config, "--json", "sample_packing=true",
                                              "gradient_accumulation_steps=2"});
    assert_true(warns(v, "one step needs more sequences than there are"));
    json_decref(v);
    /* a template that writes BOS twice */
    v = preview_json(3,
                     (const char *const[]){config, "--json",
                                           "chat_template_jinja={{ bos_token }}{{ bos_token }}{% "
                                           "for m in messages %}{{ m.content }}</s>{% endfor %}"});
    assert_true(warns(v, "1 documents begin with BOS twice"));
    json_decref(v);
}

/* Every kind of data set that a config can name gives rows. */
static void types(void **state) {
    (void)state;
    char rows[128];
    snprintf(rows, sizeof rows, "%s",
             put_text("t.jsonl",
                      "{\"instruction\": \"i\", \"input\": \"\", \"output\": \"o\", \"response\": "
                      "\"o\", \"INSTRUCTION\": \"i\", \"RESPONSE\": \"o\", \"question\": \"q\", "
                      "\"category\": \"c\", \"answer\": \"o p\", \"text\": \"o\", \"segments\": "
                      "[{\"label\": true, \"text\": \"o p</s>\"}], \"conversations\": [{\"from\": "
                      "\"human\", \"value\": \"i\"}, {\"from\": \"gpt\", \"value\": \"o\"}]}\n"));
    static const char *const yaml[] = {
        "    type: alpaca\n",
        "    type: alpaca:chat\n",
        "    type: alpaca:chatml\n",
        "    type: alpaca:phi\n",
        "    type: gpteacher\n",
        "    type: oasst\n",
        "    type: jeopardy:chat\n",
        "    type: completion\n    field: answer\n",
        "    type: input_output\n",
        "    type:\n      field_output: answer\n      format: '{input}'\n",
        "    type: chat_template\n    field_messages: conversations\n"
        "    message_property_mappings: {role: from, content: value}\n"
        "    chat_template: alpaca\n",
        "    type: chat_template\n    field_messages: conversations\n"
        "    message_property_mappings: {role: from, content: value}\n"
        "    roles: {user: [human], assistant: [gpt]}\n    roles_to_train: [gpt]\n"
        "    train_on_eos: last\n"
        "    chat_template_jinja: '{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor "
        "%}'"
        "\n",
        "    type: chat_template\n    field_messages: conversations\n"
        "    message_property_mappings: {role: from, content: value}\n"
        "    train_on_generation: true\n"
        "    chat_template_jinja: '{% for m in messages %}{% generation %}{{ m.content }}</s>"
        "{% endgeneration %}{% endfor %}'\n",
        "    type: _synthetic\n    length: 3\n    sequence_length: 9\n",
    };
    for (size_t i = 0; i < sizeof yaml / sizeof *yaml; i++) {
        char config[128];
        snprintf(config, sizeof config, "%s", put_config("t.yaml", rows, yaml[i]));
        json_t *v = preview_json(3, (const char *const[]){config, "--json", "sequence_len=1024"});
        if (at(v, "train", "trained") < 2)
            fail_msg("nothing is trained with\n%s", yaml[i]);
        json_decref(v);
    }
}

static void pretraining(void **state) {
    (void)state;
    char config[128];
    struct ax_buf b = {0};
    for (int i = 0; i < 9; i++)
        assert_ok(ax_buf_printf(&b, "{\"body\": \"%0*d\"}\n", 10 + i, i));
    const char *rows = put_bytes("p.jsonl", b.data, b.len);
    b.len = 0;
    assert_ok(ax_buf_printf(&b,
                            "base_model: %s\nsequence_len: 32\nlearning_rate: 1e-4\nmax_steps: 5\n"
                            "micro_batch_size: 1\ngradient_accumulation_steps: 1\n"
                            "pretraining_dataset:\n  - path: %s\n    text_column: body\n    skip: "
                            "1\n",
                            in_scratch("bos"), rows));
    snprintf(config, sizeof config, "%s", put_bytes("p.yaml", b.data, b.len));
    ax_buf_free(&b);
    /* texts of 11 to 18 characters, each with BOS; windows and whole texts with EOS, joined ones
     * with a pad too */
    static const struct {
        const char *packing, *joining;
        size_t documents;
        int64_t tokens; /* of the first row */
    } cases[] = {
        {"sample_packing=true", "pretraining_sample_concatenation=false", 2, 13 + 19},
        {"sample_packing=true", "pretraining_sample_concatenation=true", 3, 13 + 14 + 5},
        {"sample_packing=false", "pretraining_sample_concatenation=true", 2, 14 + 15},
        {"sample_packing=false", "pretraining_sample_concatenation=false", 1, 12},
    };
    for (size_t i = 0; i < 4; i++) {
        json_t *v = preview_json(6, (const char *const[]){config, "--json", cases[i].packing,
                                                          cases[i].joining, "--rows=1",
                                                          "curriculum_sampling=true"});
        const json_t *row = json_array_get(json_object_get(v, "rows"), 0);
        const size_t n = json_array_size(json_object_get(row, "documents"));
        assert_true(json_is_null(json_object_get(v, "train")));
        assert_int_equal(n, cases[i].documents);
        assert_int_equal(json_integer_value(json_object_get(row, "tokens")), cases[i].tokens);
        json_decref(v);
    }
    char *out;
    assert_error(run(ax_cmd_preview, &out, 3, (const char *const[]){config, "--step", "900"}),
                 AX_ERR_CONFIG, "the data ends before step 900");
    ax_free(out);
    assert_error(run(ax_cmd_preprocess, &out, 1, (const char *const[]){config}), AX_ERR_CONFIG,
                 "streamed records are not prepared");
    ax_free(out);
}

static void preprocess(void **state) {
    (void)state;
    char config[128];
    char cache[160];
    const char *rows = put_text("pp.jsonl", "{\"text\": \"abc\"}\n{\"text\": \"d\"}\n");
    snprintf(config, sizeof config, "%s", put_config("pp.yaml", rows, "    type: completion\n"));
    char *out;
    assert_error(run(ax_cmd_preprocess, &out, 1, (const char *const[]){config}), AX_ERR_CONFIG,
                 "dataset_prepared_path: ");
    ax_free(out);
    snprintf(cache, sizeof cache, "dataset_prepared_path=%s", in_scratch("prepared"));
    for (int i = 0; i < 3; i++) {
        const char *const args[] = {config, cache, "--refresh"};
        assert_ok(run(ax_cmd_preprocess, &out, i == 2 ? 3 : 2, args));
        assert_non_null(strstr(out,
                               "datasets.0: 2 documents, 6 tokens, 6 trained, longest 4, 0 bad "
                               "records"));
        assert_int_equal(strstr(out, "(from the cache)") != NULL, i == 1);
        ax_free(out);
    }
}

static bool prepare(int n, const char *const *args) {
    char *out;
    const enum ax_status st = run(ax_cmd_preprocess, &out, n, args);
    if (st != AX_OK)
        fail_msg("%s (%s)", ax_error_text(), ax_error_trace());
    const bool hit = strstr(out, "(from the cache)") != NULL;
    ax_free(out);
    return hit;
}

/* What changes documents makes them anew, and what does not finds them again. */
static void cache_keys(void **state) {
    (void)state;
    char config[128];
    char other[160];
    char cache[160];
    char rows[128];
    snprintf(rows, sizeof rows, "%s",
             put_text("ck.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
                                  "{\"role\": \"assistant\", \"content\": \"b\"}]}\n"));
    snprintf(config, sizeof config, "%s",
             put_config("ck.yaml", rows, "    type: chat_template\nchat_template: chatml\n"));
    snprintf(cache, sizeof cache, "dataset_prepared_path=%s", in_scratch("keys"));
    snprintf(other, sizeof other, "base_model=%s", in_scratch("bos"));
    assert_false(prepare(2, (const char *const[]){config, cache}));
    const char *const same[] = {
        "learning_rate=1e-3",
        "micro_batch_size=4",
        "seed=7",
        "sequence_len=512",
        "sample_packing=true",
        "val_set_size=0",
        "dataset_exact_deduplication=true",
        "output_dir=elsewhere",
        "num_epochs=9",
        "train_on_inputs=false",
        "datasets.0.train_on_eos=turn",
    };
    const char *const changed[] = {
        "chat_template=alpaca",
        "chat_template_kwargs.enable_thinking=true",
        "train_on_inputs=true",
        "eot_tokens=['<|im_end|>']",
        "tokens=[newtoken]",
        "special_tokens.pad_token=</s>",
        "special_tokens.eos_token=<|im_end|>",
        "datasets.0.train_on_eos=all",
        "datasets.0.roles_to_train=[user]",
        "datasets.0.roles.assistant=[user]",
        "datasets.0.drop_system_message=true",
        "datasets.0.split_thinking=true",
        "datasets.0.message_field_training=train",
        "datasets.0.split=train[:1]",
        "max_bad_rows=3",
        other,
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (!prepare(3, (const char *const[]){config, cache, same[i]}))
            fail_msg("%s makes the set anew", same[i]);
    for (size_t i = 0; i < sizeof changed / sizeof *changed; i++) {
        if (prepare(3, (const char *const[]){config, cache, changed[i]}))
            fail_msg("%s finds the old set", changed[i]);
        if (!prepare(3, (const char *const[]){config, cache, changed[i]}))
            fail_msg("%s does not find its own set", changed[i]);
    }
    assert_true(prepare(2, (const char *const[]){config, cache}));
    /* the tokenizer's files, and the rows' */
    put_tokenizer("bare", "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}", "null");
    assert_false(prepare(2, (const char *const[]){config, cache}));
    put_tokenizer("bare", PLAIN_CONFIG, "null");
    assert_true(prepare(2, (const char *const[]){config, cache}));
    put_text("ck.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"c\"}, {\"role\": "
                         "\"assistant\", \"content\": \"d\"}]}\n");
    assert_false(prepare(2, (const char *const[]){config, cache}));
}

/* 80 rows of `axtrain problems`, two-turn conversations, under SmolLM2's own template: ids and labels
 * of the first, and tokens of each step of 8, as the reference trainer had them. */
static void reference_rows(void **state) {
    (void)state;
    const char *rows = in_scratch("p80.jsonl");
    char config[128], *out;
    json_t *want = json_load_file(golden_path("smollm2/problems_sft_10steps.json"), 0, NULL);
    assert_non_null(want);
    assert_ok(run(ax_cmd_problems, &out, 3, (const char *const[]){"--rows=80", "-o", rows}));
    ax_free(out);
    snprintf(config, sizeof config, "%s",
             put_config("p80.yaml", rows,
                        "    type: chat_template\nshuffle_merged_datasets: false\n"
                        "curriculum_sampling: true\n"));
    char base[4200];
    snprintf(base, sizeof base, "base_model=%s", smollm2_gguf());
    json_t *v = preview_json(
        5, (const char *const[]){config, "--json", "--rows=80", "sequence_len=1024", base});
    const json_t *shown = json_object_get(v, "rows");
    assert_int_equal(json_array_size(shown), 80);
    for (size_t step = 0; step < 10; step++) {
        const json_t *reference = json_array_get(json_object_get(want, "float32"), step);
        int64_t tokens = 0;
        int64_t trained = 0;
        for (size_t i = 8 * step; i < 8 * step + 8; i++) {
            const json_t *row = json_array_get(shown, i);
            tokens += json_integer_value(json_object_get(row, "tokens"));
            trained += json_integer_value(json_object_get(row, "trained"));
        }
        assert_int_equal(tokens, json_integer_value(json_object_get(reference, "tokens")));
        assert_int_equal(trained, json_integer_value(json_object_get(reference, "trained_tokens")));
    }
    const json_t *first = json_array_get(json_object_get(json_array_get(shown, 0), "documents"), 0);
    assert_true(json_equal(json_object_get(first, "ids"), json_object_get(want, "first_row_ids")));
    assert_true(
        json_equal(json_object_get(first, "labels"), json_object_get(want, "first_row_labels")));
    json_decref(v);
    json_decref(want);
}

static void mistakes(void **state) {
    (void)state;
    char config[128];
    char *out;
    const char *rows = put_text("m.jsonl", "{\"text\": \"abc\"}\n");
    snprintf(config, sizeof config, "%s", put_config("m.yaml", rows, "    type: completion\n"));
    static const struct {
        const char *arg;
        enum ax_status status;
        const char *part;
    } cases[] = {
        {"--step=0", AX_ERR_CONFIG, "--step"},
        {"--color=blue", AX_ERR_CONFIG, "expected auto, always or never"},
        {"--eval", AX_ERR_CONFIG, "no evaluation records"},
        {"sequnce_len=5", AX_ERR_CONFIG, "sequence_len"},
        {"datasets.0.path=/nowhere.jsonl", AX_ERR_DATA,
         "datasets.0: /nowhere.jsonl: no such file or folder"},
        {"datasets.0.split=tra in", AX_ERR_CONFIG, "datasets.0: split"},
        {"datasets.0.type=chat_template", AX_ERR_DATA, "set another one, such as chatml"},
        {"chat_template=jinja", AX_ERR_CONFIG, ""},
        {"base_model=/nowhere", AX_ERR_CONFIG, "/nowhere"},
        {"dataset_shard_num=2", AX_ERR_CONFIG, "dataset_shard_idx"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].arg, "chat_template=jinja") == 0) {
            assert_error(
                run(ax_cmd_preview, &out, 3,
                    (const char *const[]){config, cases[i].arg, "datasets.0.type=chat_template"}),
                cases[i].status, "jinja needs chat_template_jinja");
        } else {
            assert_error(run(ax_cmd_preview, &out, 2, (const char *const[]){config, cases[i].arg}),
                         cases[i].status, cases[i].part);
        }
        ax_free(out);
    }
    assert_error(run(ax_cmd_preview, &out, 1, (const char *const[]){"--json"}), AX_ERR_CONFIG,
                 "the first argument must be a config file");
    ax_free(out);
}

/* Each probable mistake is counted once for each conversation, with the first place, from a cache
 * too; plain conversations have none. */
static void odd_conversations(void **state) {
    (void)state;
    static const struct {
        const char *messages, *warnings[2];
    } cases[] = {
        {"user:a assistant:b", {0}},
        {"system:s user:a assistant:b user:c assistant:d", {0}},
        {"user:a tool:r assistant:b", {0}},
        {"user:a asistant:b",
         {"1 conversation has a role other than system, user, assistant or tool"}},
        {"assistant:b user:a assistant:b",
         {"1 conversation has an assistant turn before any user"}},
        {"system:s assistant:b", {"1 conversation has an assistant turn before any user turn"}},
        {"user:a user:c assistant:b", {"1 conversation has two user turns in a row"}},
        {"user:a assistant: user:a assistant:b", {"1 conversation has an empty assistant turn"}},
        {"user:a assistant:\\n user:a assistant:b", {"1 conversation has an empty assistant turn"}},
        {"assistant:b user:a user:c assistant:d",
         {"1 conversation has an assistant turn before any user turn",
          "1 conversation has two user turns in a row"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_buf b = {0};
        char rows[128], config[128], text[200], place[160];
        assert_ok(ax_buf_puts(&b, "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, "
                                  "{\"role\": \"assistant\", \"content\": \"w\"}]}\n"));
        for (int twice = 0; twice < 2; twice++) {
            snprintf(text, sizeof text, "%s", cases[i].messages);
            assert_ok(ax_buf_puts(&b, "{\"messages\": ["));
            for (char *turn = strtok(text, " "); turn; turn = strtok(NULL, " ")) {
                char *words = strchr(turn, ':');
                *words++ = '\0';
                assert_ok(ax_buf_printf(&b, "%s{\"role\": \"%s\", \"content\": \"%s\"}",
                                        turn > text ? ", " : "", turn, words));
            }
            assert_ok(ax_buf_puts(&b, "]}\n"));
        }
        snprintf(rows, sizeof rows, "%s", put_bytes("odd.jsonl", b.data, b.len));
        ax_buf_free(&b);
        snprintf(place, sizeof place, "the first is %s:2", rows);
        snprintf(config, sizeof config, "%s",
                 put_config("odd.yaml", rows,
                            "    type: chat_template\nchat_template: chatml\n"
                            "dataset_prepared_path: odd-cache\n"));
        char cache[160];
        snprintf(cache, sizeof cache, "dataset_prepared_path=%s/odd-cache", scratch);
        for (int again = 0; again < 2; again++) {
            json_t *v = preview_json(
                4, (const char *const[]){config, "--json", cache, "eot_tokens=['<|im_end|>']"});
            const json_t *all = json_object_get(v, "warnings");
            const char *const *want = cases[i].warnings;
            size_t n = 0;
            for (; n < 2 && want[n]; n++) {
                snprintf(text, sizeof text, "2 conversations have%s",
                         strchr(strchr(want[n], ' ') + 1, ' ') + 4);
                assert_true(warns(v, text) && warns(v, place));
            }
            if (json_array_size(all) != n)
                fail_msg("%s: %zu warnings", cases[i].messages, json_array_size(all));
            json_decref(v);
        }
    }
}

/* Turns that say they are not to be trained on, under a key that the configuration does not name. */
static void unheard_flags(void **state) {
    (void)state;
#define TURN(role, more) "{\"role\": \"" role "\", \"content\": \"a\"" more "}"
    static const struct {
        const char *messages, *more;
        bool warned;
    } cases[] = {
        {TURN("user", "") ", " TURN("assistant", ", \"weight\": 0"), "", true},
        {TURN("user", "") ", " TURN("assistant", ", \"train\": false"), "", true},
        {TURN("user", "") ", " TURN("assistant", ", \"weight\": 1, \"loss\": true"), "", false},
        {TURN("user", ", \"weight\": 0") ", " TURN("assistant", ""), "", false},
        {TURN("user", "") ", " TURN("assistant", ", \"weight\": 0") ", " TURN("assistant", ""),
         "    message_field_training: weight\n", false},
    };
#undef TURN
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400], rows[128], config[128];
        snprintf(text, sizeof text, "{\"messages\": [%s]}\n", cases[i].messages);
        snprintf(rows, sizeof rows, "%s", put_bytes("flags.jsonl", text, strlen(text)));
        snprintf(text, sizeof text, "    type: chat_template\n%schat_template: chatml\n",
                 cases[i].more);
        snprintf(config, sizeof config, "%s", put_config("flags.yaml", rows, text));
        json_t *v =
            preview_json(3, (const char *const[]){config, "--json", "eot_tokens=['<|im_end|>']"});
        if (warns(v, "1 conversation has a turn with train: false, weight: 0 or the like") !=
            cases[i].warned)
            fail_msg("case %zu", i);
        json_decref(v);
    }
}

/* Answers that are learned without their reasoning, as the template leaves it out, are counted. */
static void lost_reasoning(void **state) {
    (void)state;
#define USER               "{\"role\": \"user\", \"content\": \"q\"}"
#define ANSWER(text, more) "{\"role\": \"assistant\", \"content\": \"" text "\"" more "}"
#define KEY                ", \"reasoning_content\": \"why so\""
#define IN                 "<think>\\nwhy so\\n</think>\\n\\n"
    static const struct {
        const char *template, *messages;
        bool lost;
    } cases[] = {
        {"qwen3", USER ", " ANSWER("a", KEY) ", " USER ", " ANSWER("b", KEY), true},
        {"qwen3", USER ", " ANSWER(IN "a", "") ", " USER ", " ANSWER(IN "b", ""), true},
        {"qwen3", USER ", " ANSWER("a", "") ", " USER ", " ANSWER("b", KEY), false},
        {"qwen3", USER ", " ANSWER("<think></think>a", "") ", " USER ", " ANSWER(IN "b", ""),
         false},
        {"qwen3", USER ", " ANSWER("a", KEY ", \"train\": false") ", " USER ", " ANSWER("b", KEY),
         false},
        {"chatml", USER ", " ANSWER(IN "a", "") ", " USER ", " ANSWER(IN "b", ""), false},
        {"chatml", USER ", " ANSWER("a", KEY), true}, /* it reads no such key */
        {"chatml", USER ", " ANSWER("a", ", \"thinking\": \" \""), false},
    };
#undef USER
#undef ANSWER
#undef KEY
#undef IN
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char rows[128], config[128], text[900], template[40];
        snprintf(text, sizeof text, "{\"messages\": [%s]}\n", cases[i].messages);
        snprintf(rows, sizeof rows, "%s", put_text("thought.jsonl", text));
        snprintf(config, sizeof config, "%s",
                 put_config("thought.yaml", rows,
                            "    type: chat_template\n    message_field_training: train\n"
                            "eot_tokens: ['<|im_end|>']\n"));
        snprintf(template, sizeof template, "chat_template=%s", cases[i].template);
        json_t *v =
            preview_json(4, (const char *const[]){config, "--json", template, "sequence_len=256"});
        if (warns(v, "1 conversation has answers that are trained on without their reasoning") !=
            cases[i].lost)
            fail_msg("%s: %s", cases[i].template, cases[i].messages);
        json_decref(v);
    }
}

/* An evaluation that is not packed has the first record cut, as in TRL. */
static void expect_cut_evaluation(const char *config, const char *strategy) {
    char evals[256];
    snprintf(evals, sizeof evals, "test_datasets=[{path: '%s'}]", in_scratch("lengths.jsonl"));
    json_t *v = preview_json(6, (const char *const[]){config, strategy, "sequence_len=4", evals,
                                                      "eval_sample_packing=false", "--json"});
    assert_int_equal(at(v, "eval", "tokens"), 4 + 3 + 2 + 1);
    assert_int_equal(at(v, "eval", "longest"), 4);
    json_decref(v);
}

/* Rows of TRL's packing: ids of each document, and how many are trained on. Only joined records are
 * predicted from each other. A record's ids count from one, so the first says where a piece of it begins.
 * A step that the last rows of an epoch do not fill is one, too. */
static void packing_strategies(void **state) {
    (void)state;
    static const struct {
        const char *strategy, *rows;
        int continued; /* pieces */
        int steps;     /* of two rows */
        int trained;
    } cases[] = {
        /* 7 ids cut to 4, 3 and 1 in a row, 2 */
        {"packing_strategy=bfd", "1 2 3 4 (3) 11 12 13, 31 (2) 21 22 (1) ", 0, 2, 6},
        {"packing_strategy=bfd_split", "1 2 3 4 (3) 5 6 7, 31 (2) 11 12 13 (2) 21 22 (1) ", 1, 2,
         8},
        {"packing_strategy=wrapped", "1 2 3 4 (3) 5 6 7, 11 (3) 12 13, 21 22 (3) 31 (0) ", 2, 2, 9},
    };
    char config[128], got[256];
    const char *rows = put_text(
        "lengths.jsonl",
        "{\"input_ids\": [1,2,3,4,5,6,7], \"attention_mask\": [1,1,1,1,1,1,1], \"labels\": "
        "[1,2,3,4,5,6,7]}\n"
        "{\"input_ids\": [11,12,13], \"attention_mask\": [1,1,1], \"labels\": [11,12,13]}\n"
        "{\"input_ids\": [21,22], \"attention_mask\": [1,1], \"labels\": [21,22]}\n"
        "{\"input_ids\": [31], \"attention_mask\": [1], \"labels\": [31]}\n");
    snprintf(config, sizeof config, "%s",
             put_config("packing.yaml", rows,
                        "min_sample_len: 1\nsample_packing: true\n"
                        "shuffle_merged_datasets: false\ncurriculum_sampling: true\n"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *v =
            preview_json(6, (const char *const[]){config, cases[i].strategy, "sequence_len=4",
                                                  "micro_batch_size=2", "--rows=9", "--json"});
        const json_t *list = json_object_get(v, "rows");
        size_t at = 0;
        got[0] = '\0';
        for (size_t r = 0; r < json_array_size(list); r++) {
            const json_t *row = json_array_get(list, r), *docs = json_object_get(row, "documents");
            for (size_t d = 0; d < json_array_size(docs); d++) {
                const json_t *doc = json_array_get(docs, d), *ids = json_object_get(doc, "ids");
                assert_int_equal(json_integer_value(json_object_get(doc, "first_token")),
                                 json_integer_value(json_array_get(ids, 0)) % 10 - 1);
                for (size_t t = 0; t < json_array_size(ids); t++)
                    at += (size_t)snprintf(got + at, sizeof got - at, "%s%lld",
                                           t > 0   ? " "
                                           : d > 0 ? ", "
                                                   : "",
                                           json_integer_value(json_array_get(ids, t)));
            }
            at += (size_t)snprintf(got + at, sizeof got - at, " (%lld) ",
                                   json_integer_value(json_object_get(row, "trained")));
        }
        assert_string_equal(got, cases[i].rows);
        const json_t *train = json_object_get(v, "train");
        assert_int_equal(json_integer_value(json_object_get(train, "steps")), cases[i].steps);
        assert_int_equal(json_integer_value(json_object_get(train, "trained")), cases[i].trained);
        json_decref(v);
        char *text = preview(
            4, (const char *const[]){config, cases[i].strategy, "sequence_len=4", "--rows=9"});
        int continued = 0;
        for (const char *found = text; (found = strstr(found, "trained, continued")); found++)
            continued++;
        assert_int_equal(continued, cases[i].continued);
        ax_free(text);
        expect_cut_evaluation(config, cases[i].strategy);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packing_strategies),
        cmocka_unit_test(text_form),
        cmocka_unit_test(prompts_are_numbered),
        cmocka_unit_test(turns_are_made_up),
        cmocka_unit_test(json_form),
        cmocka_unit_test(left_out),
        cmocka_unit_test(warnings),
        cmocka_unit_test(types),
        cmocka_unit_test(pretraining),
        cmocka_unit_test(preprocess),
        cmocka_unit_test(reference_rows),
        cmocka_unit_test(packed_by_groups),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(cache_keys),
        cmocka_unit_test(odd_conversations),
        cmocka_unit_test(unheard_flags),
        cmocka_unit_test(lost_reasoning),
    };
    return cmocka_run_group_tests(tests, load_tokenizers, free_tokenizers);
}

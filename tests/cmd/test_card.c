/* Model cards: what the hub reads, what people read, and whose README.md it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text/yaml.h"
#include "cmd/report/card.h"
#include "tests/cmd/sft_case.h"

static const char about[] =
    "{\"model\": \"org/base\", \"method\": \"lora\", \"started\": \"2026-01-02T03:04:05Z\", "
    "\"data\": "
    "{\"documents\": 90, \"eval_documents\": 10}, \"environment\": {\"axtrain\": \"9.8.7\", "
    "\"commit\": \"abc\", \"cpu\": \"a processor\"}, \"config\": {\"learning_rate\": 2e-4, "
    "\"optimizer\": \"adamw_torch\", \"lora_r\": 8, \"val_set_size\": 0.1, \"datasets\": "
    "[{\"path\": "
    "\"org/rows\", \"type\": \"chat_template\", \"split\": \"train[:10%]\"}, {\"path\": "
    "\"/home/someone/my|<b>rows.jsonl\", \"type\": {\"field_output\": \"x\"}}]}}";

static const char metrics[] =
    "{\"step\": 0, \"epoch\": 0, \"eval_loss\": 2.5, \"eval_accuracy\": 0.25}\n"
    "{\"step\": 1, \"epoch\": 0.5, \"loss\": 3.0, \"trained_tokens\": 40}\n"
    "{\"step\": 2, \"epoch\": 1, \"loss\": 2.0, \"trained_tokens\": 60}\n"
    "{\"step\": 2, \"epoch\": 1, \"eval_loss\": 1.5, \"eval_accuracy\": 0.5}\n";

/* The card of these records; the caller frees it. */
static char *card_of(const char *records, const char *base, bool merged) {
    struct ax_report_run run;
    struct ax_buf out = {0};
    char dir[128];
    make_folder("run");
    put_text("run/run.json", about);
    put_text("run/metrics.jsonl", records);
    snprintf(dir, sizeof dir, "%s", in_scratch("run"));
    const struct ax_card c = {.run = dir, .dir = dir, .base = base, .merged = merged};
    assert_int_equal(ax_report_read(&run, dir), AX_OK);
    if (ax_card_put(&out, &c, &run) != AX_OK)
        fail_msg("%s", ax_error_text());
    ax_report_close(&run);
    return out.data;
}

static void has(const char *text, const char *part) {
    if (!text || !strstr(text, part))
        fail_msg("\"%s\" is not in:\n%s", part, text ? text : "nothing");
}

static void lacks(const char *text, const char *part) {
    if (!text || strstr(text, part))
        fail_msg("\"%s\" is in:\n%s", part, text ? text : "nothing");
}

/* The YAML at the top, as JSON. */
static json_t *front(const char *card) {
    struct ax_yaml_doc doc;
    assert_memory_equal(card, "---\n", 4);
    const char *end = strstr(card + 4, "---\n");
    assert_non_null(end);
    if (ax_yaml_parse(&doc, "card", card + 4, (size_t)(end - card - 4)) != AX_OK)
        fail_msg("%s", ax_error_text());
    json_t *v = ax_yaml_to_json(doc.root);
    ax_yaml_free(&doc);
    return v;
}

static void expect_front(const char *card, const char *want) {
    json_t *v = front(card), *w = json_loads(want, 0, NULL);
    assert_non_null(w);
    if (!json_equal(v, w))
        fail_msg("expected %s in:\n%s", want, card);
    json_decref(v);
    json_decref(w);
}

static void what_the_hub_reads(void **state) {
    (void)state;
    char base[128];
    make_folder("base");
    snprintf(base, sizeof base, "%s", in_scratch("base"));
    char *card = card_of(metrics, base, false);
    expect_front(card,
                 "{\"base_model\": \"org/base\", \"base_model_relation\": \"adapter\", "
                 "\"datasets\": [\"org/rows\"], \"library_name\": \"peft\", \"pipeline_tag\": "
                 "\"text-generation\", \"tags\": [\"axtrain\", \"sft\", \"lora\"]}");
    ax_free(card);
    put_text("base/README.md",
             "---\nlicense: other\nlicense_name: \"a: b\"\nlanguage: en\n---\n# x\n");
    card = card_of(metrics, base, true);
    expect_front(card, "{\"base_model\": \"org/base\", \"base_model_relation\": \"finetune\", "
                       "\"datasets\": [\"org/rows\"], \"library_name\": \"transformers\", "
                       "\"pipeline_tag\": \"text-generation\", \"license\": \"other\", "
                       "\"license_name\": \"a: b\", \"tags\": [\"axtrain\", \"sft\", \"lora\"]}");
    ax_free(card);
    static const char *const odd[] = {"no front matter", "---\nlicense: [\n---\n", "---\nlicense",
                                      "---\nlicense: [mit]\n---\n"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        put_text("base/README.md", odd[i]);
        card = card_of(metrics, base, true);
        json_t *v = front(card);
        assert_null(json_object_get(v, "license"));
        json_decref(v);
        ax_free(card);
    }
}

static void what_people_read(void **state) {
    (void)state;
    char *card = card_of(metrics, NULL, false);
    static const char *const parts[] = {
        AX_CARD_MARK,
        "| org/rows | chat\\_template | train\\[:10%\\] |",
        "| my\\|\\<b\\>rows.jsonl | custom |  |",
        "90 examples are for training; 10 were kept for evaluation.",
        "| `learning_rate` | 0.0002",
        "| `optimizer` | adamw\\_torch |",
        "2 steps (1 epochs), 100 trained tokens; training loss 3.0000 in the first step, 2.5000 as "
        "the mean of the last 2.",
        "| 0 | 2.5000 | 0.2500 |\n| 2 | 1.5000 | 0.5000 |",
        "The evaluation set is a part of the same data",
        "| axtrain | 9.8.7 |",
        "| commit | abc |",
        "| started | 2026-01-02T03:04:05Z |",
        "PeftModel.from_pretrained",
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        has(card, parts[i]);
    lacks(card, "/home/someone");
    lacks(card, "The evaluation loss rose");
    lacks(card, "Nothing was evaluated");
    ax_free(card);
    card = card_of("{\"step\": 0, \"eval_loss\": 1.0, \"eval_accuracy\": 0.5}\n"
                   "{\"step\": 1, \"epoch\": 1, \"loss\": 3.0, \"trained_tokens\": 40}\n"
                   "{\"step\": 1, \"eval_loss\": 1.25, \"eval_accuracy\": 0.5}\n",
                   NULL, false);
    has(card, "The evaluation loss rose from 1.0000 to 1.2500");
    lacks(card, "The weights are those of");
    ax_free(card);
    card = card_of("{\"step\": 0, \"eval_loss\": 1.0}\n{\"step\": 1, \"loss\": 3.0}\n"
                   "{\"step\": 1, \"eval_loss\": 0.5}\n{\"step\": 2, \"loss\": 2.0}\n"
                   "{\"step\": 2, \"eval_loss\": 1.5}\n"
                   "{\"step\": 1, \"event\": \"best\", \"text\": \"out\"}\n",
                   NULL, false);
    has(card, "The weights are those of step 1, the best evaluation.");
    lacks(card, "The evaluation loss rose");
    ax_free(card);
    card =
        card_of("{\"step\": 1, \"epoch\": 1, \"loss\": 3.0, \"trained_tokens\": 40}\n", NULL, true);
    has(card, "Nothing was evaluated");
    has(card, "an adapter, merged into the base");
    lacks(card, "Peft");
    ax_free(card);
}

/* Of many evaluations the table has twelve: the first, the last, and others between. */
static void many_evaluations(void **state) {
    (void)state;
    struct ax_buf all = {0};
    for (int i = 0; i <= 100; i++)
        assert_int_equal(
            ax_buf_printf(&all,
                          "{\"step\": %d, \"loss\": 1}\n{\"step\": %d, \"eval_loss\": 1, "
                          "\"eval_accuracy\": 0}\n",
                          i, i),
            AX_OK);
    char *card = card_of(all.data, NULL, false);
    int rows = 0;
    for (const char *p = card; (p = strstr(p, " | 1.0000 | 0.0000 |")); p++)
        rows++;
    assert_int_equal(rows, 12);
    has(card, "\n| 0 | 1.0000");
    has(card, "\n| 100 | 1.0000");
    ax_free(card);
    ax_buf_free(&all);
}

static char *read_card(const char *name) {
    char *text;
    size_t len;
    if (ax_read_file(in_scratch(name), 1 << 20, &text, &len) != AX_OK)
        fail_msg("%s", ax_error_text());
    return text;
}

static void every_final_folder_has_one(void **state) {
    (void)state;
    need_binary();
    char config[128], text[1024], out[128], merged[128], *card;
    put_text(
        "rows.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"one\"}, {\"role\": \"assistant\", "
        "\"content\": \"two\"}]}\n{\"messages\": [{\"role\": \"user\", \"content\": \"say\"}, "
        "{\"role\": \"assistant\", \"content\": \"yes\"}]}\n");
    snprintf(text, sizeof text,
             "base_model: %s\noutput_dir: %s/out\ndatasets:\n  - path: %s/rows.jsonl\n"
             "    type: chat_template\nchat_template: llama3\nsequence_len: 64\n"
             "learning_rate: 1e-2\nmicro_batch_size: 1\ngradient_accumulation_steps: 1\n"
             "max_steps: 2\n",
             golden_llama(), scratch, scratch);
    snprintf(config, sizeof config, "%s", put_text("c.yaml", text));
    EXPECT(0, "trained 2 of 2 steps", config);
    card = read_card("out/README.md");
    has(card, "all weights were trained");
    json_t *v = front(card);
    assert_null(json_object_get(v, "base_model")); /* a path means nothing elsewhere */
    assert_string_equal(json_string_value(json_object_get(v, "library_name")), "transformers");
    json_decref(v);
    lacks(card, scratch);
    ax_free(card);

    /* it stays when there is nothing to do, and where it is someone's own */
    put_text("out/README.md", AX_CARD_MARK "\nedited\n");
    EXPECT(0, "nothing to do", config, "resume_from_checkpoint=auto");
    card = read_card("out/README.md");
    has(card, "edited");
    ax_free(card);
    EXPECT(0, "trained 3 of 3 steps", config, "resume_from_checkpoint=auto", "max_steps=3",
           "num_epochs=9");
    card = read_card("out/README.md");
    lacks(card, "edited");
    has(card, "3 steps");
    ax_free(card);
    put_text("out/README.md", "my own\n");
    EXPECT(0, "trained 4 of 4 steps", config, "resume_from_checkpoint=auto", "max_steps=4",
           "num_epochs=9");
    card = read_card("out/README.md");
    assert_string_equal(card, "my own\n");
    ax_free(card);

    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
    EXPECT(0, "merged model: ", config, "adapter=lora", "lora_r=4", "lora_alpha=8",
           "lora_target_linear=true", "merge_lora=true");
    card = read_card("out/README.md");
    has(card, "library_name: peft");
    ax_free(card);
    card = read_card("out/merged/README.md");
    has(card, "library_name: transformers");
    ax_free(card);
    snprintf(out, sizeof out, "%s", in_scratch("out"));
    snprintf(merged, sizeof merged, "%s", in_scratch("other"));
    sft_command = "merge";
    EXPECT(0, "tensors merged", golden_llama(), out, merged);
    sft_command = "sft";
    card = read_card("other/README.md");
    has(card, "an adapter, merged into the base");
    ax_free(card);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scratch_make, scratch_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(what_the_hub_reads),
        TEST(what_people_read),
        TEST(many_evaluations),
        TEST(every_final_folder_has_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

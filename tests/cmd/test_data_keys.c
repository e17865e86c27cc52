/* Keys of a data set and of its tokenizer: what they make of rows, and which of them make a cache
 * another one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cmd/train/data/data.h"
#include "tests/cmd/data_case.h"

/* ---- messages ---- */

#define TEMPLATE                                                                                   \
    "chat_template_jinja: \"{% for m in messages %}[{{ m.role }}|{{ m.content }}|{{ m.name }}]"    \
    "{% endfor %}\"\ntrain_on_inputs: true\n"

/* One message whose properties stand twice, under both names. */
static const struct {
    const char *keys, *text;
} messages[] = {
    {"", "[assistant|b|n]"},
    {"    message_property_mappings: {role: from}\n", "[user|b|n]"},
    {"    message_property_mappings: {content: value}\n", "[assistant|a|n]"},
    {"    message_property_mappings: {role: from, content: value}\n", "[user|a|n]"},
    {"    message_property_mappings: {content: value, role: from}\n", "[user|a|n]"},
    {"    message_property_mappings: {name: label}\n", "[assistant|b|L]"},
    {"    message_property_mappings: {name: label, content: value}\n", "[assistant|a|L]"},
    {"    message_property_mappings: {role: role, content: value}\n", "[assistant|a|n]"},
    /* targets of roles, and their sources */
    {"    roles: {user: [assistant]}\n", "[user|b|n]"},
    {"    roles: {user: [x, assistant], tool: [y]}\n", "[user|b|n]"},
    {"    roles: {tool: [y, z], user: [assistant, x]}\n", "[user|b|n]"},
    {"    message_property_mappings: {role: from}\n    roles: {tool: [human]}\n", "[tool|b|n]"},
};

static void properties_and_roles(void **state) {
    (void)state;
    char rows[128], yaml[1024];
    snprintf(rows, sizeof rows, "%s",
             put_text("m.jsonl", "{\"messages\": [{\"from\": \"human\", \"role\": \"assistant\", "
                                 "\"value\": \"a\", \"content\": \"b\", \"name\": \"n\", "
                                 "\"label\": \"L\"}]}\n"));
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        snprintf(yaml, sizeof yaml, "    type: chat_template\n%s%s", messages[i].keys, TEMPLATE);
        json_t *v =
            preview_json(2, (const char *const[]){put_config("m.yaml", rows, yaml), "--json"});
        const json_t *row = json_array_get(json_object_get(v, "rows"), 0);
        const json_t *doc = json_array_get(json_object_get(row, "documents"), 0);
        const char *text = json_string_value(json_object_get(doc, "text"));
        if (!text || strncmp(text, messages[i].text, strlen(messages[i].text)) != 0)
            fail_msg("%s: %s", messages[i].keys, text ? text : "nothing");
        json_decref(v);
    }
}

/* ---- weights ---- */

/* Documents of an epoch and of the evaluation. */
static void check_documents(const char *keys, int train, int eval) {
    char yaml[512];
    char rows[128];
    snprintf(rows, sizeof rows, "%s",
             put_text("w.jsonl", "{\"text\": \"one and one\"}\n{\"text\": \"two and two\"}\n"
                                 "{\"text\": \"say yes\"}\n{\"text\": \"say no\"}\n"));
    snprintf(yaml, sizeof yaml,
             "    type: completion\n  - path: %s\n    type: completion\n    split: train[:2]\n%s",
             rows, keys);
    json_t *v = preview_json(2, (const char *const[]){put_config("w.yaml", rows, yaml), "--json"});
    const json_t *t = json_object_get(json_object_get(v, "train"), "documents");
    const json_t *e = json_object_get(json_object_get(v, "eval"), "documents");
    assert_int_equal(json_integer_value(t), train);
    assert_int_equal(e ? json_integer_value(e) : 0, eval);
    json_decref(v);
}

/* What is held out is not repeated: of six records, the last two here. */
static void weights_count_after_holding_out(void **state) {
    (void)state;
    check_documents("", 6, 0);
    check_documents("    weight: 3\n", 4 + 3 * 2, 0);
    check_documents("    weight: 0.5\n", 4 + 1, 0);
    check_documents("mixing_weights: [1, 1]\n", 2 + 2, 0);
    check_documents("mixing_weights: [2, 1]\ndataset_mixing_strategy: weighted\n", 4 + 2, 0);
    check_documents("    weight: 3\nshuffle_merged_datasets: false\nval_set_size: 2\n", 4, 2);
}

/* ---- shards ---- */

enum { RECORDS = 9 };

/* A digit for each record that is trained on, in order. */
static void order_with(const char *keys, char out[RECORDS + 1]) {
    char rows[128];
    struct ax_buf b = {0};
    for (int i = 0; i < RECORDS; i++)
        assert_ok(ax_buf_printf(&b, "{\"text\": \"%d\"}\n", i));
    snprintf(rows, sizeof rows, "%s", put_bytes("s.jsonl", b.data, b.len));
    ax_buf_free(&b);
    json_t *v = preview_json(
        4, (const char *const[]){put_config("s.yaml", rows, keys), "--rows", "20", "--json"});
    const json_t *sequences = json_object_get(v, "rows");
    int n = 0;
    for (size_t i = 0; i < json_array_size(sequences); i++) {
        const json_t *documents = json_object_get(json_array_get(sequences, i), "documents");
        for (size_t d = 0; d < json_array_size(documents); d++) {
            const json_t *text = json_object_get(json_array_get(documents, d), "text");
            assert_true(n < RECORDS);
            out[n++] = json_string_value(text)[0];
        }
    }
    out[n] = '\0';
    json_decref(v);
}

/* A digit for each record that shard `shard` of `n` has, in the order of the file. */
static void shard_of(int n, int shard, int seed, char out[RECORDS + 1]) {
    char yaml[128], order[RECORDS + 1];
    snprintf(yaml, sizeof yaml,
             "    type: completion\n    shards: %d\n    shards_idx: %d\nseed: %d\n", n, shard,
             seed);
    order_with(yaml, order);
    for (char c = '0'; c < '0' + RECORDS; c++)
        if (strchr(order, c))
            *out++ = c;
    *out = '\0';
}

/* A stream is shuffled in its buffer, unless the records are to stay in their order. */
static void a_stream_keeps_its_order(void **state) {
    (void)state;
#define STREAMED "    type: completion\nstreaming: true\nmax_steps: 9\n"
    char order[RECORDS + 1];
    order_with(STREAMED, order);
    assert_int_equal(strlen(order), RECORDS);
    assert_string_not_equal(order, "012345678");
    order_with(STREAMED "shuffle_merged_datasets: false\n", order);
    assert_string_equal(order, "012345678");
    order_with(STREAMED "curriculum_sampling: true\n", order);
    assert_string_equal(order, "012345678");
}

static uint64_t stream_with(const char *keys) {
    char rows[128], yaml[256];
    struct ax_config cfg;
    struct ax_setup_data d;
    snprintf(rows, sizeof rows, "%s",
             put_text("f.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n"));
    snprintf(yaml, sizeof yaml, "    type: completion\n%sstreaming: true\nmax_steps: 9\n", keys);
    assert_ok(ax_config_load(&cfg, put_config("f.yaml", rows, yaml), 0, NULL));
    assert_ok(ax_setup_data_open(&d, &cfg, false));
    const uint64_t fingerprint = d.train_examples.fingerprint;
    ax_setup_data_close(&d);
    ax_config_free(&cfg);
    return fingerprint;
}

/* A run cannot go on in a stream of other records. */
static void a_stream_knows_its_records(void **state) {
    (void)state;
    static const char *const keys[] = {"", "    split: train[1:]\n", "    split: train[:1]\n",
                                       "    shards: 2\n    shards_idx: 0\n",
                                       "    shards: 2\n    shards_idx: 1\n"};
    uint64_t all[5];
    for (int i = 0; i < 5; i++) {
        all[i] = stream_with(keys[i]);
        for (int k = 0; k < i; k++)
            assert_true(all[k] != all[i]);
    }
    assert_true(stream_with("    split: train\n") == all[0]);
}

/* Each record is in one shard; a seed deals them. */
static void shards_deal_the_records(void **state) {
    (void)state;
    char all[2][4][RECORDS + 1];
    int times[RECORDS] = {0}, same = 0;
    for (int seed = 0; seed < 2; seed++)
        for (int shard = 0; shard < 4; shard++)
            shard_of(4, shard, seed, all[seed][shard]);
    for (int shard = 0; shard < 4; shard++) {
        assert_int_equal(strlen(all[0][shard]), shard == 0 ? 3 : 2);
        for (const char *c = all[0][shard]; *c; c++)
            times[*c - '0']++;
        same += strcmp(all[0][shard], all[1][shard]) == 0;
    }
    for (int i = 0; i < RECORDS; i++)
        assert_int_equal(times[i], 1);
    assert_true(same < 4);
    char whole[RECORDS + 1];
    shard_of(1, 0, 0, whole);
    assert_string_equal(whole, "012345678");
}

/* ---- the tokenizer's part of a cache's key ---- */

static bool is_cached(const char *config, const char *cache, const char *more) {
    char *out;
    const enum ax_status st =
        run(ax_cmd_preprocess, &out, 3, (const char *const[]){config, cache, more});
    if (st != AX_OK)
        fail_msg("%s: %s", more, ax_error_text());
    const bool hit = strstr(out, "(from the cache)") != NULL;
    ax_free(out);
    return hit;
}

/* The same words in another place are another tokenizer. */
static void tokens_are_told_apart(void **state) {
    (void)state;
    static const char *const tokens[] = {
        "seed=1",
        "tokens=[qq]",
        "tokens=[qq,rr]",
        "tokens=[rr,qq]",
        "tokens=[qqrr]",
        "special_tokens.additional_special_tokens=[qq]",
        "special_tokens.additional_special_tokens=[qq,rr]",
        "special_tokens.pad_token=<s>",
        "special_tokens.unk_token=<s>",
        "special_tokens.pad_token=</s>",
        "added_tokens_overrides.261=qq",
        "added_tokens_overrides.262=qq",
        "added_tokens_overrides.262=rr",
    };
    char config[128], cache[160];
    snprintf(config, sizeof config, "%s",
             put_config("t.yaml", put_text("t.jsonl", "{\"text\": \"abc\"}\n"),
                        "    type: completion\n"));
    snprintf(cache, sizeof cache, "dataset_prepared_path=%s", in_scratch("told"));
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        if (is_cached(config, cache, tokens[i]))
            fail_msg("%s finds what another one made", tokens[i]);
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        if (!is_cached(config, cache, tokens[i]))
            fail_msg("%s does not find its own", tokens[i]);
}

/* ---- names that nothing in the records has ---- */

static void check_warning_of(const char *rows, const char *keys, const char *more,
                             const char *said) {
    char path[128];
    snprintf(path, sizeof path, "%s", put_text("n.jsonl", rows));
    char *out = preview(2, (const char *const[]){put_config("n.yaml", path, keys), more});
    static const char *const all[] = {"message_field_training",
                                      "field_thinking: no",
                                      "type.field_",
                                      "64 times",
                                      "field_tools",
                                      "_mappings",
                                      "roles: ",
                                      "to_train: ",
                                      "two messages",
                                      "earlier turns",
                                      "end is left out"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!said && strstr(out, all[i]))
            fail_msg("%s: said in\n%s", keys, out);
    if (said && !strstr(out, said))
        fail_msg("%s: \"%s\" is not said in\n%s", keys, said, out);
    ax_free(out);
}

static void check_warning(const char *rows, const char *keys, const char *said) {
    check_warning_of(rows, keys, "sequence_len=64", said);
}

static void names_that_are_nowhere(void **state) {
    (void)state;
    static const char chat[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
        "\"content\": \"b\", \"train\": true, \"why\": \"c\"}]}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
        "\"content\": \"d\"}]}\n";
    static const char pairs[] = "{\"q\": \"a\", \"more\": \"b\", \"sys\": \"s\", \"r\": \"c\"}\n"
                                "{\"q\": \"a\", \"r\": \"d\"}\n";
#define CHAT_KEYS "    type: chat_template\n    message_field_"
#define MAP_KEYS  "    type: {field_instruction: q, field_output: r, field_"
#define CHATML    "chat_template: chatml\neot_tokens: ['<|im_end|>']\n"
    check_warning(chat, CHAT_KEYS "training: trian\n" CHATML,
                  "message_field_training: no message has \"trian\", so roles decide");
    check_warning(chat, CHAT_KEYS "training: train\n" CHATML, NULL); /* one record has it */
    check_warning(chat, CHAT_KEYS "training_detail: spans\n" CHATML,
                  "message_field_training_detail: no message has \"spans\", so entire turns");
    check_warning(chat, "    type: chat_template\n    field_thinking: because\n" CHATML,
                  "field_thinking: no message has \"because\"");
    check_warning(chat, "    type: chat_template\n    field_thinking: why\n" CHATML, NULL);
    check_warning(
        pairs, MAP_KEYS "input: mroe}\n",
        "type.field_input: no record has the column \"mroe\", so all prompts are those of");
    check_warning(pairs, MAP_KEYS "input: more, field_system: sys}\n", NULL);
    check_warning(pairs, MAP_KEYS "system: sis}\n", "type.field_system: no record has the column");
    check_warning(pairs, MAP_KEYS "input: input}\n",
                  NULL); /* the usual name, which may be missing */
}

/* Columns of tools, properties of messages, and roles; usual ones may be missing. */
static void names_of_tools_and_roles(void **state) {
    (void)state;
    static const char chat[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"function\", "
        "\"content\": \"b\"}, {\"role\": \"assistant\", \"content\": \"c\"}]}\n"
        "{\"messages\": [{\"role\": \"critic\", \"content\": \"a\", \"text\": \"e\"}, {\"role\": "
        "\"assistant\", "
        "\"content\": \"d\"}], \"functions\": []}\n";
#define CHAT "    type: chat_template\n    "
#define KEEP "critic: [critic], "
    static const struct {
        const char *keys, *said;
    } cases[] = {
        {"field_tools: funtions", "field_tools: no record has the column \"funtions\""},
        {"field_tools: functions", NULL},
        {"message_property_mappings: {content: txet}",
         "message_property_mappings: no message has \"txet\""},
        {"message_property_mappings: {content: text}", NULL},
        {"message_property_mappings: {role: role, contnet: text}",
         "message_property_mappings: the chat template reads no \"contnet\" of a message"},
        {"roles: {" KEEP "tool: [functoin]}", "roles: no message has the role \"functoin\""},
        {"roles: {" KEEP "tool: [functoin, function]}", NULL},
        {"roles: {" KEEP "system: [developer]}", NULL},
        {"roles: {" KEEP "tol: [function]}", "roles: \"tol\" is no common role, and the chat"},
        {"roles_to_train: [assistant, crtic]", "roles_to_train: no message has the role \"crtic\""},
        {"roles_to_train: [assistant, critic, tool]", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char keys[256];
        snprintf(keys, sizeof keys, CHAT "%s\n" CHATML, cases[i].keys);
        check_warning(chat, keys, cases[i].said);
    }
}

/* Axolotl cuts a text after 64 examples, and says nothing. */
static void long_texts_are_counted(void **state) {
    (void)state;
    char row[64 * 64 + 32]; /* put_config's sequence_len is 64, and a character is a token */
    for (int extra = 0; extra < 2; extra++) {
        snprintf(row, sizeof row, "{\"text\": \"%0*d\"}\n", 64 * 64 + extra, 0);
        check_warning(row, "    type: completion\n",
                      extra ? "1 text is longer than 64 times sequence_len" : NULL);
    }
}

/* Types that read two messages of a conversation, as axolotl's, which says nothing of the others. */
static void messages_that_are_not_read_are_counted(void **state) {
    (void)state;
#define TURNS(answer)                                                                              \
    "{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"" answer   \
    "\"}"
#define PAIR(more)                                                                                 \
    "{\"chosen\": [" TURNS("a") "], \"rejected\": [" TURNS("b") more "], \"prompt\": \"q\"}\n"
    static const char *const types[] = {"chatml.argilla_chat", "chatml.ultra"};
    for (size_t i = 0; i < 4; i++) {
        char keys[128];
        snprintf(keys, sizeof keys, "    type: %s\nrl: dpo\n", types[i / 2]);
        check_warning(i % 2 ? PAIR("") PAIR(", " TURNS("c")) : PAIR(""), keys,
                      i % 2 ? "1 record has a conversation of more than two messages, of which the "
                              "type reads the first two"
                            : NULL);
    }
    check_warning("{\"completion\": [" TURNS("a") ", " TURNS("b") "], \"label\": true}\n",
                  "    type: chatml.argilla_chat\nrl: kto\n", "1 record has a conversation of");
}

/* TRL's own records of preferences are truncated, in TRL without a word. */
static void answers_that_are_cut_are_counted(void **state) {
    (void)state;
    char rows[400], pair[160]; /* a character is a token, and sequence_len 64 */
    static const char *const keys[] = {"rl: dpo\n", "rl: dpo\nexcess_length_strategy: truncate\n",
                                       "rl: kto\n", "reward_model: true\n",
                                       "rl: dpo\nexcess_length_strategy: drop\n"};
    for (int n = 60; n < 64; n++)
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            snprintf(pair, sizeof pair,
                     "{\"prompt\": \"q\", \"chosen\": \"%0*d\", \"rejected\": \"b\"}\n", n, 0);
            snprintf(rows, sizeof rows,
                     "{\"prompt\": \"q\", \"chosen\": \"a\", \"rejected\": "
                     "\"b\"}\n%s",
                     pair);
            check_warning(rows, keys[i],
                          n > 62 && i < 3 ? "1 record has an answer whose end is left out" : NULL);
        }
}

/* LLaMA-Factory's records, of which axolotl's types read three columns, too. */
static void context_that_is_not_read_is_counted(void **state) {
    (void)state;
#define ROW(more) "{\"instruction\": \"q\", \"input\": \"\", \"output\": \"a\"" more "}\n"
#define LONG      "sequence_len=256"
#define HISTORY   ", \"history\": [[\"x\", \"y\"]]"
    static const char empty[] = ROW(", \"system\": \" \", \"history\": []")
        ROW(", \"system\": null, \"system_prompt\": \"\", \"history\": null");
    static const char rows[] = ROW("") ROW(", \"system\": \"s\"") ROW(HISTORY);
    static const char map[] = "    type: {field_instruction: instruction, field_output: output}\n",
                      prompted[] = "{\"prompt\": \"q\", \"completion\": \"a\" " HISTORY "}\n",
                      chat[] = "{\"messages\": [" TURNS("a") "], \"system\": \"s\"}\n";
    static const char two[] =
        "2 records have a system text or earlier turns in the column system, system_prompt or "
        "history, which the type does not read; name the first by field_system of a map, or write "
        "all as messages (type: chat_template); the first is ";
    check_warning_of(rows, "    type: alpaca\n", LONG, two);
    check_warning_of(rows, "    type: alpaca:chat\n", LONG, "n.jsonl:2");
    check_warning_of(empty, "    type: alpaca\n", LONG, NULL);
    check_warning_of(rows, map, LONG,
                     "1 record has a system text or earlier turns"); /* it reads system */
    check_warning_of(ROW(", \"system\": \"s\""), map, LONG, NULL);
    check_warning_of(ROW(", \"system_prompt\": \"s\""), map, LONG, "1 record has a system text");
    check_warning_of(prompted, "", LONG, "1 record has a system text");
    check_warning_of(chat, "    type: chat_template\nchat_template: chatml\n", LONG, NULL);
}

static int set_up(void **state) {
    if (scratch_make(state) != 0)
        return -1;
    put_tokenizer("bare", PLAIN_CONFIG, "null");
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(properties_and_roles),
        cmocka_unit_test(weights_count_after_holding_out),
        cmocka_unit_test(shards_deal_the_records),
        cmocka_unit_test(a_stream_keeps_its_order),
        cmocka_unit_test(a_stream_knows_its_records),
        cmocka_unit_test(tokens_are_told_apart),
        cmocka_unit_test(names_that_are_nowhere),
        cmocka_unit_test(names_of_tools_and_roles),
        cmocka_unit_test(long_texts_are_counted),
        cmocka_unit_test(messages_that_are_not_read_are_counted),
        cmocka_unit_test(answers_that_are_cut_are_counted),
        cmocka_unit_test(context_that_is_not_read_is_counted),
    };
    return cmocka_run_group_tests(tests, set_up, scratch_remove);
}

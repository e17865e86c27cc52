/* What preview, preprocess and config show say about wrong files and rows: one line with the place
 * and what to do, and the status that becomes the documented exit code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/wait.h>
#include <zlib.h>
#include <zstd.h>

#include "tests/cmd/data_case.h"

#define GOOD                                                                                       \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "         \
    "\"content\": \"b\"}]}\n"
#define CHAT "    type: chat_template\nchat_template: chatml\neot_tokens: ['<|im_end|>']\n"

static char config[128];

/* The command fails with this status and this one line. */
static void check_run(enum ax_status (*command)(int, char **), int n, const char *const *args,
                      enum ax_status status, const char *part) {
    char *out;
    const enum ax_status st = run(command, &out, n, args);
    if (st != status)
        fail_msg("status %d instead of %d: %s\n%s", (int)st, (int)status, ax_error_text(), out);
    if (!strstr(ax_error_text(), part))
        fail_msg("\"%s\" is not in: %s", part, ax_error_text());
    assert_null(strchr(ax_error_text(), '\n'));
    ax_free(out);
}

/* Both commands that read rows. */
static void check_rows(const char *name, const void *rows, size_t len, const char *more,
                       const char *part) {
    char cache[160];
    snprintf(config, sizeof config, "%s",
             put_config("c.yaml", rows ? put_bytes(name, rows, len) : in_scratch(name), more));
    snprintf(cache, sizeof cache, "dataset_prepared_path=%s", in_scratch("prepared"));
    check_run(ax_cmd_preview, 1, (const char *const[]){config}, AX_ERR_DATA, part);
    check_run(ax_cmd_preprocess, 2, (const char *const[]){config, cache}, AX_ERR_DATA, part);
}

static void bad_rows(void **state) {
    (void)state;
    static const struct {
        const char *name, *rows, *more, *part;
    } cases[] = {
        {"r.jsonl", GOOD "{\"text\": \"x\"}\n", CHAT,
         "r.jsonl:2: column \"messages\" (field_messages) is missing or null; the record has "
         "\"text\"; "
         "these "
         "columns look like type: completion, field: text (set max_bad_rows"},
        {"r.jsonl", GOOD "{\"a\": 1, \"b\": 2}\n", CHAT,
         "(field_messages) is missing or null; the record has \"a\", \"b\" (set max_bad_rows"},
        {"r.jsonl", "{\"instruction\": \"a\", \"output\": \"b\"}\n", CHAT,
         "the record has \"instruction\", \"output\"; these columns look like type: alpaca (set"},
        {"r.jsonl", "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}]}\n", CHAT,
         "look like type: chat_template, field_messages: conversations, "
         "message_property_mappings: {role: from, content: value} (set"},
        {"r.jsonl", "{\"messages\": [{\"from\": \"human\", \"value\": \"a\"}]}\n", CHAT,
         "r.jsonl:1: messages[0]: role: expected the name of a role, got nothing"},
        {"r.json", "{\"data\": [{\"text\": \"x\"}], \"version\": 1}\n", "",
         "r.json:1: without a `type`, a record has the column \"messages\", \"prompt\", \"text\" "
         "or "
         "\"input_ids\"; this one has \"data\", \"version\"; if the objects in \"data\" are the "
         "records, "},
        {"r.jsonl",
         GOOD "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}], \"images\": "
              "[\"cat.png\"]}\n",
         CHAT, "r.jsonl:2: images: images are not supported; leave the record out, or remove"},
        {"r.jsonl",
         "{\"prompt\": \"a\", \"completion\": \"b\", \"image\": {\"bytes\": null, \"path\": "
         "\"cat.png\"}}\n",
         "", "r.jsonl:1: image: images are not supported"},
        {"r.jsonl",
         GOOD "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}], \"images\": [], "
              "\"videos\": [\"a.mp4\"]}\n",
         CHAT, "r.jsonl:2: videos: video is not supported; leave the record out, or remove"},
        {"r.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\", \"audios\": [\"a.wav\"]}\n", "",
         "r.jsonl:1: audios: audio is not supported"},
        {"r.jsonl",
         "{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}], \"completion\": [{\"role\": "
         "\"assistant\", \"content\": \"b\"}], \"chat_template_kwargs\": 5}\n",
         "chat_template: chatml\n",
         "variables for the template, got a number (set"}, /* no advice to leave `type` out */
        {"r.jsonl", "{\"question\": \"a\", \"answer\": \"b\"}\n", "",
         "this one has \"question\", \"answer\"; these columns look like type: "
         "{field_instruction: question, field_output: answer} (set"},
        {"r.jsonl", "{\"question\": \"a\", \"answer\": \"b\"}\n", "    type: completion\n",
         "look like type: {field_instruction: question, field_output: answer} (set"},
        {"r.jsonl", "{\"prompt\": \"p\", \"chosen\": \"a\", \"rejected\": \"b\"}\n", "",
         "\"rejected\"; these columns look like preferences (chosen, rejected): rl: dpo, without "
         "`type` (set max_bad_rows"},
        {"r.jsonl", "{\"chosen\": \"a\", \"rejected\": \"b\"}\n", "    type: alpaca\n",
         "look like preferences (chosen, rejected): rl: dpo, without `type` (set"},
        {"r.jsonl", "{\"instruction\": \"a\", \"output\": \"b\"}\n",
         "    type: {field_instruction: instruction, field_output: answer}\n",
         "column \"answer\" is missing or null; the record has \"instruction\", \"output\"; these "
         "columns "
         "look "
         "like "
         "type: alpaca (set"},
        {"r.jsonl", "{\"instruction\": 1, \"output\": \"b\"}\n", "    type: alpaca\n",
         "r.jsonl:1: instruction: expected text, got a number (set"},
        {"r.jsonl", "{\"instruction\": \"a\", \"response\": 1}\n", "    type: gpteacher\n",
         "r.jsonl:1: response: expected text, got a number (set"},
        {"r.jsonl", GOOD "{\"messages\": \"x\"}\n", CHAT,
         "r.jsonl:2: messages: expected JSON text"},
        {"r.jsonl", GOOD "{\"messages\": 5}\n", CHAT,
         "r.jsonl:2: messages: expected a list of messages, got a number"},
        {"r.jsonl", GOOD "{\"messages\": [{\"content\": \"x\"}]}\n", CHAT,
         "r.jsonl:2: messages[0]: role: expected the name of a role, got nothing"},
        {"r.jsonl", GOOD "{\"messages\": [{\"role\": \"user\", \"content\": 5}]}\n", CHAT,
         "r.jsonl:2: chatml:"},
        {"r.jsonl",
         GOOD GOOD GOOD "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
                        "{\"role\": \"user\", \"content\": \"b\"}]}\n",
         "    type: chat_template\nchat_template: gemma\neot_tokens: ['<|im_end|>']\n",
         "r.jsonl:4: gemma:8: the template raised: Conversation roles must alternate "
         "user/assistant/user/assistant/... (set max_bad_rows: 1 to skip"},
        {"r.jsonl", GOOD "{\"messages\": [\n", CHAT,
         "r.jsonl:2:15: the record does not end on this line; write one record per line"},
        {"r.json", "{\n  \"messages\": []\n}\n", CHAT, "r.json:1:2: the record does not end on"},
        {"r.jsonl", GOOD "{\"messages\": [{\"role\": \"user\", \"content\": \"\xFF\"}]}\n", CHAT,
         "r.jsonl:2:43: unable to decode byte 0xff"},
        {"r.jsonl", GOOD "{\"a\": 1, \"a\": 2}\n", CHAT, "r.jsonl:2:10: duplicate object key"},
        {"r.jsonl", GOOD "{\"a\": \"\\ud800\"}\n", CHAT, "r.jsonl:2:7: invalid Unicode"},
        {"r.jsonl", GOOD "7\n", CHAT, "r.jsonl:2: expected an object"},
        {"r.jsonl", GOOD "{\"text\": 1}\n", "    type: alpaca\n",
         "r.jsonl:1: column \"instruction\" is missing or null; the record has \"messages\"; these "
         "columns "
         "look like type: chat_template (set"},
        {"r.jsonl", "{\"text\": 1}\n", "    type: completion\n",
         "r.jsonl:1: text: expected text, got a number (set max_bad_rows: 1 to skip"},
        {"r.json", "[" GOOD ", 5]", CHAT, "r.json:2: expected an object"},
        {"r.json", "[" GOOD, CHAT, "r.json:2: the file ends before the list's \"]\""},
        {"r.csv", "instruction,input,output\na,b,c\na,b\n", "    type: alpaca\n",
         "r.csv:3: 2 fields, but the header names 3 columns"},
        {"r.csv", "instruction,input,output\na,b,\"c\nd\n", "    type: alpaca\n",
         "r.csv:2: a quote opened in this row is never closed"},
        {"r.csv", "instruction,input,output\na,\xFF,c\n", "    type: alpaca\n",
         "r.csv:2: column \"input\": not UTF-8 text"},
        {"r.csv", "\xFE\x01,\x02\nx,y\n", "    type: alpaca\n",
         "r.csv:1: the header is not UTF-8 text"},
        {"r.jsonl", "\xFF\xFE{", CHAT,
         "r.jsonl:1: UTF-16 text, as Windows' tools write it; convert"},
        {"r.csv", "\xFE\xFF\x01i", "    type: alpaca\n", "r.csv:1: UTF-16 text"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_rows(cases[i].name, cases[i].rows, strlen(cases[i].rows), cases[i].more,
                   cases[i].part);
    check_rows("n.jsonl", GOOD "{\"a\": \"x\0y\"}\n", sizeof GOOD + 12, CHAT,
               "n.jsonl:2:7: control character 0x0");
}

/* The address sanitizer keeps what was freed, so nothing can be said under it. */
static void check_growth(uint64_t before, uint64_t limit) {
#if defined(__SANITIZE_ADDRESS__)
    limit = UINT64_MAX;
#endif
    assert_true(ax_mem_peak_rss() - before < limit);
}

/* The size of what is refused does not come back in memory. */
static void hostile_rows(void **state) {
    (void)state;
    struct ax_buf b = {0};
    const uint64_t before = ax_mem_peak_rss();
    assert_ok(ax_buf_puts(&b, GOOD));
    for (int i = 0; i < 1000000; i++)
        assert_ok(ax_buf_puts(&b, "{\"a\":"));
    check_rows("deep.jsonl", b.data, b.len, CHAT, "deep.jsonl:2:2561: nested deeper than 512");
    b.len = sizeof GOOD - 1;
    assert_ok(ax_buf_puts(&b, "{\"messages\": "));
    for (int i = 0; i < 1000000; i++)
        assert_ok(ax_buf_puts(&b, "["));
    check_rows("list.jsonl", b.data, b.len, CHAT, "list.jsonl:2:525: nested deeper than 512");
    b.len = 0;
    for (int i = 0; i < 1000000; i++)
        assert_ok(ax_buf_puts(&b, "["));
    check_rows("deep.json", b.data, b.len, CHAT, "deep.json:1: the file ends inside this record");
    ax_buf_free(&b);
    char name[128];
    static char block[1000000];
    memset(block, 'x', sizeof block);
    snprintf(name, sizeof name, "%s", in_scratch("long.jsonl"));
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    fputs(GOOD "{\"messages\": \"", f);
    for (int i = 0; i < 100; i++)
        assert_int_equal(fwrite(block, 1, sizeof block, f), sizeof block);
    fputs("\"}\n" GOOD, f);
    assert_int_equal(fclose(f), 0);
    check_rows("long.jsonl", NULL, 0, CHAT, "long.jsonl:2: a record of more than 16 MiB");
    check_growth(before, (uint64_t)128 << 20);
}

static void cut_files(void **state) {
    (void)state;
    struct ax_buf b = {0};
    char packed[20000];
    for (int i = 0; i < 200; i++)
        assert_ok(ax_buf_printf(&b, "{\"text\": \"%d\"}\n", i * 7919 % 100003));
    z_stream z = {.next_in = (unsigned char *)b.data,
                  .avail_in = (unsigned)b.len,
                  .next_out = (unsigned char *)packed,
                  .avail_out = sizeof packed};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    const size_t n = sizeof packed - z.avail_out;
    deflateEnd(&z);
    check_rows("t.jsonl.gz", packed, n / 2, "    type: completion\n",
               "the gzip data ends early: the file is truncated; copy it again");
    assert_non_null(strstr(ax_error_text(), "t.jsonl.gz:"));
    packed[n - 8] ^= 1;
    check_rows("t.jsonl.gz", packed, n, "    type: completion\n", ": corrupted gzip data");
    const size_t m = ZSTD_compress(packed, sizeof packed, b.data, b.len, 3);
    assert_false(ZSTD_isError(m));
    check_rows("t.jsonl.zst", packed, m / 2, "    type: completion\n",
               ": the zstd data ends early: the file is truncated");
    ax_buf_free(&b);
}

static void places(void **state) {
    (void)state;
    make_folder("hollow");
    put_text("hollow/README.md", "x");
    check_rows("absent.jsonl", NULL, 0, CHAT, "absent.jsonl: no such file or folder; give");
    check_rows("ab*t.jsonl", NULL, 0, CHAT, "ab*t.jsonl: no such file or folder; give");
    check_rows("hollow", NULL, 0, CHAT, "hollow: no data files found; give");
    put_text("hollow/test.jsonl", GOOD);
    check_rows("hollow", NULL, 0, CHAT, "hollow: split \"train\" is not available");
}

static void nothing_to_train_on(void **state) {
    (void)state;
    char more[512];
    check_rows("e.jsonl", "", 0, CHAT, "e.jsonl: no records to train on; see path and split");
    check_rows("e.jsonl", "\n \n", 3, CHAT, "no records to train on");
    static const char user[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n";
    check_rows("u.jsonl", user, sizeof user - 1, CHAT,
               "u.jsonl:1: no token of this or any other document is trained on; see roles_to");
    check_rows("u.jsonl", user, sizeof user - 1, CHAT "sample_packing: true\n",
               "datasets: no documents to train on: 0 too long (sequence_len and "
               "excess_length_strategy), 0 too short (min_sample_len), 1 without a trained token");
    check_rows("g.jsonl", GOOD, sizeof GOOD - 1, CHAT "min_sample_len: 60\n",
               "0 too long (sequence_len and excess_length_strategy), 1 too short");
    check_rows("g.jsonl", GOOD, sizeof GOOD - 1, CHAT "min_sample_len: 60\nval_set_size: 0.5\n",
               "0 too long (sequence_len and excess_length_strategy), 1 too short");
    check_rows("g.jsonl", GOOD, sizeof GOOD - 1, CHAT "min_sample_len: 60\n", "1 too short");
    check_rows("g.jsonl", GOOD GOOD, sizeof GOOD GOOD - 1,
               CHAT "val_set_size: 0.5\neval_sequence_len: 9\n",
               "val_set_size: no records to evaluate: 1 too long (eval_sequence_len), 0 too short");
    snprintf(more, sizeof more, CHAT "test_datasets: [{path: '%s', type: chat_template}]\n",
             put_text("u.jsonl", user));
    check_rows("g.jsonl", GOOD, sizeof GOOD - 1, more,
               "test_datasets: no records to evaluate: 0 too long (eval_sequence_len), 0 too short "
               "(min_sample_len), 1 without a trained token");
    check_rows("g.jsonl", GOOD, sizeof GOOD - 1, CHAT "min_sample_len: 60\n", "1 too short");
    /* the rows are shown nevertheless */
    char *out;
    assert_error(run(ax_cmd_preview, &out, 1, (const char *const[]){config}), AX_ERR_DATA,
                 "no documents to train on");
    assert_non_null(strstr(out, "skipped: 1 too short"));
    ax_free(out);
    check_run(ax_cmd_preview, 3, (const char *const[]){config, "streaming=true", "max_steps=1"},
              AX_ERR_DATA,
              "the streamed data sets contain nothing to train on: 0 records are too long");
    check_run(ax_cmd_preview, 3,
              (const char *const[]){config, "sequence_len=20", "excess_length_strategy=raise"},
              AX_ERR_DATA, "g.jsonl:1: a document has 23 tokens, but sequence_len is 20");
}

/* Records with nothing to learn from are skipped in every form, and counted with the first reason. */
static void empty_records(void **state) {
    (void)state;
    static const struct {
        const char *empty, *good, *more, *why;
    } cases[] = {
        {"{\"text\": \" \\n\"}", "{\"text\": \"a\"}", "    type: completion\n",
         "text: the text is empty"},
        {"{\"text\": \"\"}", "{\"text\": \"a\"}", "", "text: the text is empty"},
        {"{\"prompt\": \"a\", \"completion\": \" \"}", "{\"prompt\": \"a\", \"completion\": \"b\"}",
         "", "completion: the answer is empty"},
        {"{\"instruction\": \"a\", \"output\": \"\\t\"}",
         "{\"instruction\": \"a\", \"output\": \"b\"}", "    type: alpaca\n",
         "output: the answer is empty"},
        {"{\"q\": \"a\", \"a\": \"\"}", "{\"q\": \"a\", \"a\": \"b\"}",
         "    type: {field_instruction: q, field_output: a}\n", "a: the answer is empty"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
         "\"content\": \" \"}]}",
         GOOD, CHAT, "messages: the answer is empty"},
        {"{\"messages\": []}", GOOD, CHAT, "messages: the list of messages is empty"},
        {"{\"prompt\": \"a\", \"chosen\": \" \", \"rejected\": \"b\"}",
         "{\"prompt\": \"a\", \"chosen\": \"c\", \"rejected\": \"b\"}", "rl: dpo\n",
         "chosen: the answer is empty"},
        {"{\"prompt\": \"a\", \"completion\": \"\", \"label\": true}",
         "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": true}", "rl: kto\n",
         "completion: the answer is empty"},
        {"{\"prompt\": \"a\", \"completions\": [\"b\", \" \"], \"labels\": [1, 0]}",
         "{\"prompt\": \"a\", \"completions\": [\"b\", \"c\"], \"labels\": [1, 0]}",
         "process_reward_model: true\n", "completions[1]: the step is empty"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char rows[1024], want[256];
        snprintf(rows, sizeof rows, "%s\n%s\n%s\n", cases[i].empty, cases[i].good, cases[i].empty);
        snprintf(config, sizeof config, "%s",
                 put_config("c.yaml", put_text("r.jsonl", rows), cases[i].more));
        char *out = preview(2, (const char *const[]){config, "sequence_len=1000"});
        if (!strstr(out, "2 records skipped, with nothing to learn from; the first is"))
            fail_msg("%s: no count in: %s", cases[i].why, out);
        snprintf(want, sizeof want, "r.jsonl:1: %s", cases[i].why);
        if (!strstr(out, want))
            fail_msg("%s: no reason in: %s", cases[i].why, out);
        ax_free(out);
        check_rows("r.jsonl", cases[i].empty, strlen(cases[i].empty), cases[i].more,
                   "no records to train on: 1 of them has nothing to learn from: ");
    }
}

/* An empty set beside another one is worth a warning only. */
static void one_set_is_empty(void **state) {
    (void)state;
    char rows[128];
    snprintf(rows, sizeof rows, "%s", put_text("g.jsonl", GOOD));
    snprintf(config, sizeof config, "%s",
             put_config("two.yaml", put_text("e.jsonl", ""),
                        "    type: completion\n  - path: g.jsonl\n" CHAT));
    char path[160];
    snprintf(path, sizeof path, "datasets.1.path=%s", rows);
    char *out = preview(2, (const char *const[]){config, path});
    assert_non_null(strstr(out, "e.jsonl: no records"));
    ax_free(out);
}

/* Runs a command with this file, or nothing, as standard input. */
static int run_on_stdin(enum ax_status (*command)(int, char **), const char *input,
                        const char *more) {
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        if (!freopen(input, "r", stdin))
            _exit(9);
        const char *args[] = {config, "datasets.0.path=-", more};
        char *out;
        _exit((int)run(command, &out, 3, args));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Without a tekken.json the tokenizer.json is taken; one that is no such file is named. */
static void mistral_common(void **state) {
    (void)state;
    char tokenizer[160];
    char path[128];
    char *out;
    snprintf(path, sizeof path, "%s",
             put_config("c.yaml", put_text("r.jsonl", "{\"text\": \"one and one\"}\n"),
                        "    type: completion\ntokenizer_use_mistral_common: true\n"));
    assert_ok(run(ax_cmd_preview, &out, 1, (const char *const[]){path}));
    ax_free(out);
    assert_ok(ax_mkdir(in_scratch("tekken")));
    put_text("tekken/tekken.json", "{}");
    snprintf(tokenizer, sizeof tokenizer, "tokenizer_config=%s", in_scratch("tekken"));
    check_run(ax_cmd_preview, 2, (const char *const[]){path, tokenizer}, AX_ERR_DATA,
              "tekken.json: config.version: missing");
    put_text("tekken/tekken.json", "{\"config\": {\"version\": \"v17\"}}");
    check_run(ax_cmd_preview, 2, (const char *const[]){path, tokenizer}, AX_ERR_UNSUPPORTED,
              "config.version: version \"v17\" is not one of v3, v7, v11, v13");
}

static void standard_input(void **state) {
    (void)state;
    char rows[128];
    snprintf(rows, sizeof rows, "%s", put_text("in.jsonl", GOOD GOOD));
    snprintf(config, sizeof config, "%s", put_config("in.yaml", "x", CHAT));
    assert_int_equal(run_on_stdin(ax_cmd_preview, rows, "datasets.0.split=train[1:]"), AX_OK);
    assert_int_equal(run_on_stdin(ax_cmd_preview, rows, "datasets.0.split=train[:50%]"),
                     AX_ERR_CONFIG);
    assert_int_equal(run_on_stdin(ax_cmd_preview, "/dev/null", "datasets.0.split=train"),
                     AX_ERR_DATA);
    snprintf(rows, sizeof rows, "%s", put_text("in.jsonl", GOOD "{\n"));
    assert_int_equal(run_on_stdin(ax_cmd_preview, rows, "datasets.0.split=train"), AX_ERR_DATA);
}

/* A set that no cache can have is not said to be ready; one with a path that is no UTF-8 is kept. */
static void sets_are_kept_or_not(void **state) {
    (void)state;
    char cache[160], rows[128];
    snprintf(cache, sizeof cache, "dataset_prepared_path=%s", in_scratch("kept"));
    snprintf(rows, sizeof rows, "%s", put_text("in.jsonl", GOOD GOOD));
    snprintf(config, sizeof config, "%s", put_config("in.yaml", "x", CHAT));
    assert_int_equal(run_on_stdin(ax_cmd_preprocess, rows, cache), AX_ERR_DATA);
    make_folder("latin1");
    (void)put_text("latin1/caf\xe9.jsonl", GOOD GOOD);
    snprintf(config, sizeof config, "%s", put_config("in.yaml", in_scratch("latin1"), CHAT));
    for (int times = 0; times < 2; times++) {
        char *out;
        assert_ok(run(ax_cmd_preprocess, &out, 2, (const char *const[]){config, cache}));
        assert_non_null(strstr(out, "ready in "));
        assert_int_equal(strstr(out, "(from the cache)") != NULL, times > 0);
        ax_free(out);
    }
}

static void configs(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"sequnce_len: 5\n",
         "unknown key \"sequnce_len\" (c.yaml:1:1); did you mean sequence_len?"},
        {"datasets:\n  - path: a\n    tpye: alpaca\n", "(c.yaml:3:5); did you mean type?"},
        {"sequence_len: 2k\n",
         "sequence_len: expected a positive integer, got \"2k\" (c.yaml:1:15)"},
        {"seed: 1\nseed: 2\n", "c.yaml:2:1: duplicate key \"seed\", first on line 1"},
        {"a:\n\tb: 1\n", "c.yaml:2:1: a tab cannot indent YAML; use spaces"},
        {"seed: [1\n", "c.yaml:2:1"},
        {"output_dir: \xFF\n", "c.yaml:1:13: invalid"},
        {"- a\n", "c.yaml: expected a map of keys, got a list"},
        {"", "c.yaml: expected a map of keys, got nothing"},
        {"\x01", "c.yaml:1:1: control characters are not allowed"},
        {"datasets: [{path: a, type: sharegpt}]\n", "write type: chat_template"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s", put_text("c.yaml", cases[i].text));
        const char *slash = strstr(cases[i].part, "c.yaml");
        check_run(ax_cmd_config, 2, (const char *const[]){"show", path}, AX_ERR_CONFIG,
                  slash ? slash : cases[i].part);
        check_run(ax_cmd_preview, 1, (const char *const[]){path}, AX_ERR_CONFIG,
                  slash ? slash : cases[i].part);
    }
    char *big;
    assert_ok(ax_alloc(&big, 5 << 20, 1));
    memset(big, '#', 5 << 20);
    const char *const commands[] = {put_bytes("big.yaml", big, 5 << 20), in_scratch(""),
                                    in_scratch("absent.yaml")};
    static const char *const parts[] = {"exceeds the limit", " a folder",
                                        "no such file; give the path of a config"};
    ax_free(big);
    for (size_t i = 0; i < 3; i++) {
        check_run(ax_cmd_config, 2, (const char *const[]){"show", commands[i]}, AX_ERR_CONFIG,
                  parts[i]);
        check_run(ax_cmd_preview, 1, (const char *const[]){commands[i]}, AX_ERR_CONFIG, parts[i]);
    }
}

/* Deep, wide and self-repeating YAML: refused with a place, quickly and in little memory. */
static void hostile_configs(void **state) {
    (void)state;
    struct ax_buf b = {0};
    char path[128];
    const uint64_t before = ax_mem_peak_rss();
    static const char *const parts[] = {"nested deeper than 100 levels", "more than 100000 values",
                                        "more than 100000 values"};
    for (int kind = 0; kind < 3; kind++) {
        b.len = 0;
        if (kind == 0)
            for (int i = 0; i < 100000; i++)
                assert_ok(ax_buf_puts(&b, i ? "[" : "a: ["));
        for (int i = 0; kind == 1 && i < 200000; i++)
            assert_ok(ax_buf_printf(&b, "k%d: 1\n", i));
        for (int i = 0; kind == 2 && i < 9; i++)
            assert_ok(ax_buf_printf(
                &b, i ? "%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n" : "%c: &%c [x]\n", 'a' + i,
                'a' + i, 'a' + i - 1, 'a' + i - 1, 'a' + i - 1, 'a' + i - 1, 'a' + i - 1,
                'a' + i - 1, 'a' + i - 1, 'a' + i - 1));
        snprintf(path, sizeof path, "%s", put_bytes("hostile.yaml", b.data, b.len));
        check_run(ax_cmd_config, 2, (const char *const[]){"show", path}, AX_ERR_CONFIG,
                  parts[kind]);
        assert_non_null(strstr(ax_error_text(), "hostile.yaml:"));
    }
    ax_buf_free(&b);
    check_growth(before, (uint64_t)64 << 20);
}

/* Where nothing can be written, no data are read first. */
static void output_is_a_file(void **state) {
    (void)state;
    char output[160];
    snprintf(config, sizeof config, "%s", put_config("c.yaml", in_scratch("absent.jsonl"), CHAT));
    snprintf(output, sizeof output, "output_dir=%s/run", put_bytes("taken", "", 0));
    check_run(ax_cmd_train, 2, (const char *const[]){config, output}, AX_ERR_IO,
              "taken: cannot create the folder: a file with this name exists");
    assert_int_equal(strncmp(ax_error_text(), "output_dir: ", 12), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_rows),         cmocka_unit_test(hostile_rows),
        cmocka_unit_test(cut_files),        cmocka_unit_test(places),
        cmocka_unit_test(one_set_is_empty), cmocka_unit_test(nothing_to_train_on),
        cmocka_unit_test(empty_records),    cmocka_unit_test(mistral_common),
        cmocka_unit_test(standard_input),   cmocka_unit_test(configs),
        cmocka_unit_test(hostile_configs),  cmocka_unit_test(sets_are_kept_or_not),
        cmocka_unit_test(output_is_a_file),
    };
    return cmocka_run_group_tests(tests, load_tokenizers, free_tokenizers);
}

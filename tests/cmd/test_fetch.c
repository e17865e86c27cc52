/* A configuration of hub ids: `fetch` brings everything, training needs no network then; or
 * training brings it by itself; and hub_model_id. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/stat.h>

#include "tests/cmd/sft_case.h"
#include "tests/golden_files.h"
#include "tests/hub_server.h"

static struct hub_server model, rows;
static char config[64], output[96], *texts[8];
static size_t n_texts;

static const char messages[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"one\"}, {\"role\": \"assistant\", "
    "\"content\": \"two\"}]}\n"
    "{\"messages\": [{\"role\": \"user\", \"content\": \"three\"}, {\"role\": \"assistant\", "
    "\"content\": \"four\"}]}\n";

static void add_golden(const char *name, bool large) {
    char path[64];
    size_t len;
    snprintf(path, sizeof path, "models/llama/%s", name);
    assert_int_equal(ax_read_file(golden_path(path), 1 << 26, &texts[n_texts], &len), AX_OK);
    hub_add(&model, name, texts[n_texts++], len, large);
}

static int start(void **state) {
    if (scratch_make(state) != 0)
        return -1;
    memset(&model, 0, sizeof model);
    memset(&rows, 0, sizeof rows);
    n_texts = 0;
    model.id = "org/tiny";
    model.kind = "models";
    rows.id = "org/rows";
    rows.kind = "datasets";
    rows.commit = HUB_COMMIT;
    model.also = &rows;
    static const char *const unset[] = {"HF_TOKEN",      "HF_HUB_OFFLINE", "HF_HOME",
                                        "HF_TOKEN_PATH", "http_proxy",     "HTTP_PROXY"};
    for (size_t i = 0; i < sizeof unset / sizeof *unset; i++)
        unsetenv(unset[i]);
    hub_start(&model);
    setenv("HOME", scratch, 1);
    setenv("HF_ENDPOINT", model.endpoint, 1);
    setenv("HF_HUB_CACHE", in_scratch("hub"), 1);
    snprintf(config, sizeof config, "%s", in_scratch("c.yaml"));
    snprintf(output, sizeof output, "output_dir=%s", in_scratch("out"));
    put_text("c.yaml", "base_model: org/tiny\nmodel_revision: v1\ndatasets:\n  - path: org/rows\n"
                       "    type: chat_template\nchat_template: chatml\nsequence_len: 128\n"
                       "learning_rate: 1e-3\nmax_steps: 1\nmicro_batch_size: 1\n"
                       "gradient_accumulation_steps: 1\nval_set_size: 0\nsave_strategy: 'no'\n");
    sft_command = "sft";
    return 0;
}

static int stop(void **state) {
    hub_stop(&model);
    for (size_t i = 0; i < n_texts; i++)
        ax_free(texts[i]);
    return scratch_remove(state);
}

static void serve(void) {
    need_binary();
    add_golden("config.json", false);
    add_golden("tokenizer.json", false);
    add_golden("tokenizer_config.json", false);
    add_golden("model.safetensors", true);
    hub_add(&rows, "train.jsonl", messages, strlen(messages), false);
    hub_add(&rows, "test.jsonl", messages, strlen(messages), false);
}

static void fetched_ahead_training_needs_no_network(void **state) {
    (void)state;
    serve();
    char said[8192];
    const char *const args[] = {config};
    sft_command = "fetch";
    assert_int_equal(sft(said, sizeof said, 1, args), 0);
    static const char *const parts[] = {
        "datasets.0: org/rows, revision main (commit 0123456789ab): 1 files, ",
        "base_model: org/tiny, revision v1 (commit 0123456789ab): 4 files, ", " downloaded\n",
        "cache: "};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(said, parts[i]))
            fail_msg("\"%s\" is not in: %s", parts[i], said);
    EXPECT(0, "all already here", config);
    const int before = model.connections;
    setenv("HF_HUB_OFFLINE", "1", 1);
    EXPECT(2, "fetch needs the network, but HF_HUB_OFFLINE is set", config);
    sft_command = "sft";
    EXPECT(0, "trained 1 of 1 steps", config, output);
    assert_int_equal(model.connections, before);
}

static void training_fetches_what_it_lacks(void **state) {
    (void)state;
    serve();
    EXPECT(0, "trained 1 of 1 steps", config, output);
    const int before = model.connections;
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
    EXPECT(0, "trained 1 of 1 steps", config, output, "learning_rate=2e-3");
    assert_int_equal(model.connections, before);
    sft_command = "preview";
    assert_int_equal(ax_remove_tree(in_scratch("hub")), AX_OK);
    EXPECT(0, "", config);
    assert_int_equal(model.cdn_requests, 1); /* a preview needs no weights */
}

/* They say how the weights are stored, so they come with them. */
static void settings_of_model_optimizer(void **state) {
    (void)state;
    static const char awq[] = "{\"quantization\": {\"quant_algo\": \"W4A8_AWQ\"}}";
    serve();
    hub_add(&model, "hf_quant_config.json", awq, strlen(awq), false);
    EXPECT(2, "quantization.quant_algo: this quant_algo (of config.json or hf_quant_config.json)",
           config, output);
}

static void mistakes_are_told_with_their_key(void **state) {
    (void)state;
    serve();
    sft_command = "fetch";
    EXPECT(2, "datasets.0: org/rowz: http://127.0.0.1:", config, "datasets.0.path=org/rowz");
    EXPECT(3, "datasets.0: org/rows: split \"valid\" is not available; expected one of test, train",
           config, "datasets.0.split=valid");
    EXPECT(2, "base_model (command line): org/tinny: http://127.0.0.1:", config,
           "base_model=org/tinny");
    EXPECT(2, "no branch, tag or commit \"v7\"", config, "model_revision=v7");
    EXPECT(2, "not a hub id", config, "base_model=./nowhere");
    EXPECT(2, "tokenizer_config (command line): org/tokenz: http://127.0.0.1:", config,
           "tokenizer_config=org/tokenz");
    EXPECT(2, "base_model_config (command line): org/configz: http://127.0.0.1:", config,
           "base_model_config=org/configz");
}

/* An adapter made here, served as a repository of its own, and gone on from. */
static void an_adapter_of_the_hub(void **state) {
    (void)state;
    serve();
    char adapter_config[256], weights[256], made[300];
    struct hub_server adapter = {.id = "org/adapter", .kind = "models", .commit = HUB_COMMIT};
    size_t len[2];
    snprintf(made, sizeof made, "output_dir=%s", in_scratch("made"));
    EXPECT(0, "trained 1 of 1 steps", config, made, "adapter=lora", "lora_r=2", "lora_alpha=4",
           "lora_target_linear=true");
    snprintf(adapter_config, sizeof adapter_config, "%s", in_scratch("made/adapter_config.json"));
    snprintf(weights, sizeof weights, "%s", in_scratch("made/adapter_model.safetensors"));
    assert_int_equal(ax_read_file(adapter_config, 1 << 20, &texts[n_texts], &len[0]), AX_OK);
    hub_add(&adapter, "adapter_config.json", texts[n_texts++], len[0], false);
    assert_int_equal(ax_read_file(weights, 1 << 26, &texts[n_texts], &len[1]), AX_OK);
    hub_add(&adapter, "adapter_model.safetensors", texts[n_texts++], len[1], true);
    rows.also = &adapter;
    EXPECT(0, "trained 1 of 1 steps", config, output, "adapter=lora", "lora_model_dir=org/adapter");
    sft_command = "fetch";
    EXPECT(0, "lora_model_dir: org/adapter, revision main (commit 0123456789ab): 2 files, ", config,
           "adapter=lora", "lora_model_dir=org/adapter");
    sft_command = "sft";
    setenv("HF_HUB_OFFLINE", "1", 1);
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
    EXPECT(0, "trained 1 of 1 steps", config, output, "adapter=lora", "lora_model_dir=org/adapter");
    unsetenv("HF_HUB_OFFLINE");
    sft_command = "fetch";
    EXPECT(2, "lora_model_dir (command line): org/adaptor: http://127.0.0.1:", config,
           "adapter=lora", "lora_model_dir=org/adaptor");
    rows.also = NULL;
}

static void shards_need_an_index(void **state) {
    (void)state;
    serve();
    struct hub_server other = {.id = "org/shards", .kind = "models", .commit = HUB_COMMIT};
    hub_add(&other, "config.json", "{}", 2, false);
    hub_add(&other, "model-00001-of-00002.safetensors", "x", 1, true);
    rows.also = &other;
    sft_command = "fetch";
    EXPECT(3,
           "org/shards: contains model-00001-of-00002.safetensors, but no "
           "model.safetensors.index.json, which says what is in which file",
           config, "base_model=org/shards");
    rows.also = NULL;
}

/* If nobody answers, the user is told immediately what is tried again, and for how long. */
static void patience_is_announced(void **state) {
    (void)state;
    serve();
    model.fail_status = 503;
    model.fail_times = 1;
    model.retry_after = 0;
    sft_command = "fetch";
    EXPECT(0, "the hub is busy (status 503); try 2 of 5 in 0 s; it gives up after 15 s", config);
}

/* A command `hf` that notes what it was asked for. */
static void put_hf(const char *body) {
    char path[128];
    make_folder("bin");
    snprintf(path, sizeof path, "%s", put_text("bin/hf", body));
    assert_int_equal(chmod(path, 0755), 0);
    snprintf(path, sizeof path, "/nowhere::%s:/none", in_scratch("bin"));
    setenv("PATH", path, 1);
}

static void the_model_is_uploaded_at_the_end(void **state) {
    (void)state;
    serve();
    char path[4096], script[512], want[512], *got;
    size_t len;
    snprintf(path, sizeof path, "%s", getenv("PATH"));
    setenv("PATH", "/nowhere:/none::", 1);
    EXPECT(2, "hub_model_id: uploading is done by the command `hf`", config, output,
           "hub_model_id=me/tiny");
    snprintf(script, sizeof script,
             "#!/bin/sh\ntest -e \"$3/README.md\" || exit 9\necho \"$@\" > %s\n",
             in_scratch("asked"));
    put_hf(script);
    EXPECT(2, "uploading needs a token", config, output, "hub_model_id=me/tiny");
    EXPECT(2, "is not an id of the form org/name", config, output, "hub_model_id=me/../tiny");
    assert_false(ax_path_exists(in_scratch("asked")));
    setenv("HF_TOKEN", "hf_x", 1);
    EXPECT(0, "trained 1 of 1 steps", config, output, "hub_model_id=me/tiny", "hub_revision=v2",
           "hub_strategy=every_save");
    assert_int_equal(ax_read_file(in_scratch("asked"), 4096, &got, &len), AX_OK);
    snprintf(want, sizeof want,
             "upload me/tiny %s . --private --repo-type model --exclude checkpoint-* --exclude "
             "*.lock --exclude tracker* --revision v2\n",
             in_scratch("out"));
    assert_string_equal(got, want);
    ax_free(got);
    setenv("HF_HUB_OFFLINE", "1", 1);
    EXPECT(2, "HF_HUB_OFFLINE forbids uploading", config, output, "hub_model_id=me/tiny");
    unsetenv("HF_HUB_OFFLINE");
    put_hf("#!/bin/sh\nexit 3\n");
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
    EXPECT(1, "but the upload failed (hf exited with code 3). Try again: `hf upload me/tiny ",
           config, output, "hub_model_id=me/tiny");
    assert_true(ax_path_exists(in_scratch("out/model.safetensors")));
    setenv("PATH", path, 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, start, stop)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(fetched_ahead_training_needs_no_network),
        TEST(training_fetches_what_it_lacks),
        TEST(an_adapter_of_the_hub),
        TEST(shards_need_an_index),
        TEST(patience_is_announced),
        TEST(settings_of_model_optimizer),
        TEST(mistakes_are_told_with_their_key),
        TEST(the_model_is_uploaded_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

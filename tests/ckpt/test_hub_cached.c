/* When a model in the cache is complete, so that the network is not asked: also if another tool put
 * it there, without a list of files. Nobody answers at the hub's address, but to one test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "ckpt/hf/hf.h"
#include "ckpt/hub/hub.h"
#include "tests/ckpt/folder.h"
#include "tests/hub_server.h"

#define REPO "cache/models--org--m"
#define SNAP REPO "/snapshots/abc/"

static struct ax_hub hub;

static int start(void **state) {
    if (make_dir(state) != 0)
        return -1;
    ax_log_set_level(AX_LOG_ERROR);
    unsetenv("HF_HUB_OFFLINE");
    unsetenv("http_proxy");
    unsetenv("HTTP_PROXY");
    setenv("HOME", dir, 1);
    setenv("HF_ENDPOINT", "http://127.0.0.1:1", 1);
    setenv("HF_HUB_CACHE", in_dir("cache"), 1);
    assert_int_equal(ax_hub_open(&hub), AX_OK);
    hub.retry_seconds = 0.001;
    hub.quiet = true;
    return 0;
}

static int stop(void **state) {
    ax_hub_close(&hub);
    ax_log_set_level(AX_LOG_INFO);
    return remove_dir(state);
}

static void put(const char *name, const char *text) {
    char path[128];
    snprintf(path, sizeof path, SNAP "%s", name);
    put_text(path, text);
}

/* A snapshot of these files, separated by blanks. */
static void put_snapshot(const char *files) {
    char name[64];
    assert_int_equal(ax_remove_tree(in_dir("cache")), AX_OK);
    assert_int_equal(ax_mkdir_parents(in_dir(SNAP)), AX_OK);
    assert_int_equal(ax_mkdir_parents(in_dir(REPO "/refs")), AX_OK);
    put_text(REPO "/refs/main", "abc");
    for (int n; sscanf(files, " %63s%n", name, &n) == 1; files += n)
        put(name, strcmp(name, "model.safetensors.index.json") == 0
                      ? "{\"weight_map\": {\"a\": \"one.safetensors\", \"b\": \"two.safetensors\"}}"
                      : "{}");
}

static bool is_whole(enum ax_hub_part part) {
    char *folder = NULL;
    struct ax_hub_report report;
    const enum ax_status st = ax_hub_model(&folder, &hub, "org/m", NULL, part, &report);
    assert_int_equal(report.asked, st != AX_OK);
    if (st == AX_OK)
        assert_string_equal(report.commit, "abc");
    ax_free(folder);
    return st == AX_OK;
}

static void what_other_tools_left(void **state) {
    (void)state;
    static const struct {
        const char *files;
        bool tokenizer, whole;
    } cases[] = {
        {"", false, false},
        {"config.json model.safetensors", false, false},
        {"tokenizer.json", true, false},
        {"tokenizer.model", true, false},
        {"vocab.json", true, false},
        {"tokenizer_config.json", false, false},
        {"tokenizer.json config.json", true, false},
        {"tokenizer.json model.safetensors", true, false},
        {"tokenizer.json config.json model.safetensors", true, true},
        {"tokenizer.model config.json model.safetensors", true, true},
        {"vocab.json config.json model.safetensors", true, true},
        {"vocab.json config.json adapter_model.safetensors", true, false},
        {"adapter_config.json", false, false},
        {"adapter_model.safetensors", false, false},
        {"adapter_config.json adapter_model.safetensors", false, true},
        {"vocab.json adapter_config.json adapter_model.safetensors", true, true},
        {"vocab.json adapter_config.json config.json adapter_model.safetensors", true, false},
        {"vocab.json config.json model.safetensors.index.json", true, false},
        {"vocab.json config.json model.safetensors.index.json one.safetensors", true, false},
        {"vocab.json config.json model.safetensors.index.json two.safetensors", true, false},
        {"vocab.json config.json model.safetensors.index.json one.safetensors two.safetensors",
         true, true},
        {"vocab.json model.safetensors.index.json one.safetensors two.safetensors", true, false},
        {"config.json model.safetensors.index.json one.safetensors two.safetensors", false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_snapshot(cases[i].files);
        if (is_whole(AX_HUB_TOKENIZER) != cases[i].tokenizer)
            fail_msg("%s: tokenizer", cases[i].files);
        if (is_whole(AX_HUB_WHOLE) != cases[i].whole)
            fail_msg("%s: whole", cases[i].files);
    }
}

/* Templates beside chat_template.jinja are files of the tokenizer, too. */
static void templates_in_a_folder_are_needed(void **state) {
    (void)state;
    static const char template[] = SNAP "additional_chat_templates/tool_use.jinja";
    put_snapshot("config.json tokenizer.json chat_template.jinja model.safetensors");
    assert_int_equal(ax_mkdir_parents(in_dir(REPO "/trees")), AX_OK);
    put_text(REPO "/trees/abc.axtrain.json",
             "[{\"path\": \"additional_chat_templates/tool_use.jinja\", \"size\": 2, \"oid\": "
             "\"9e26dfeeb6e641a33dae4961196235bdb965b21b\"}, "
             "{\"path\": \"additional_chat_templates/notes.txt\", \"size\": 2, \"oid\": "
             "\"1e26dfeeb6e641a33dae4961196235bdb965b21b\"}]");
    assert_false(is_whole(AX_HUB_TOKENIZER));
    assert_int_equal(ax_mkdir_for(in_dir(template)), AX_OK);
    put_text(template, "{}");
    assert_true(is_whole(AX_HUB_TOKENIZER));
    assert_true(is_whole(AX_HUB_WHOLE));
}

static void templates_in_a_folder_are_downloaded(void **state) {
    (void)state;
    static struct hub_server s = {.id = "org/m", .kind = "models"};
    struct ax_hub here;
    struct ax_hub_report report;
    char *folder = NULL, *text;
    size_t len;
    assert_int_equal(ax_remove_tree(in_dir("cache")), AX_OK);
    hub_start(&s);
    hub_add(&s, "tokenizer.json", "{}", 2, false);
    hub_add(&s, AX_TEMPLATES_DIR "/tool_use.jinja", "tools", 5, false);
    hub_add(&s, AX_TEMPLATES_DIR "/notes.txt", "x", 1, false);
    setenv("HF_ENDPOINT", s.endpoint, 1);
    assert_int_equal(ax_hub_open(&here), AX_OK);
    here.quiet = true;
    if (ax_hub_model(&folder, &here, "org/m", NULL, AX_HUB_TOKENIZER, &report) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_int_equal(
        ax_read_file(in_dir(REPO "/snapshots/" HUB_COMMIT "/" AX_TEMPLATES_DIR "/tool_use.jinja"),
                     100, &text, &len),
        AX_OK);
    assert_string_equal(text, "tools");
    assert_false(
        ax_path_exists(in_dir(REPO "/snapshots/" HUB_COMMIT "/" AX_TEMPLATES_DIR "/notes.txt")));
    ax_free(text);
    ax_free(folder);
    ax_hub_close(&here);
    hub_stop(&s);
    setenv("HF_ENDPOINT", "http://127.0.0.1:1", 1);
}

/* A blob that another commit has is linked, not downloaded, and takes no space: 4 TiB, none of them on
 * the disk. */
static void blobs_of_another_commit_need_no_space(void **state) {
    (void)state;
    static const char blob[] = REPO "/blobs/9e26dfeeb6e641a33dae4961196235bdb965b21b";
    char *folder = NULL;
    struct ax_hub_report report;
    put_snapshot("");
    assert_int_equal(ax_mkdir_parents(in_dir(REPO "/blobs")), AX_OK);
    assert_int_equal(ax_mkdir_parents(in_dir(REPO "/trees")), AX_OK);
    put_text(blob, "");
    put_text(REPO "/trees/abc.axtrain.json",
             "[{\"path\": \"model.safetensors\", \"size\": 4398046511104, "
             "\"oid\": \"9e26dfeeb6e641a33dae4961196235bdb965b21b\"}]");
    if (truncate(in_dir(blob), (off_t)1 << 42) != 0)
        return; /* a file system without such files */
    if (ax_hub_model(&folder, &hub, "org/m", NULL, AX_HUB_WHOLE, &report) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_int_equal(report.downloaded, 0);
    assert_true(ax_path_exists(in_dir(SNAP "model.safetensors")));
    ax_free(folder);
}

/* Offline what there is must do, but for the configuration. */
static void offline_takes_what_there_is(void **state) {
    (void)state;
    static const struct {
        const char *files;
        enum ax_hub_part part;
        bool taken;
    } cases[] = {
        {"config.json", AX_HUB_WHOLE, true},
        {"adapter_config.json", AX_HUB_WHOLE, true},
        {"tokenizer.json model.safetensors", AX_HUB_WHOLE, false},
        {"README.md", AX_HUB_TOKENIZER, true},
    };
    hub.offline = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *folder = NULL;
        struct ax_hub_report report;
        put_snapshot(cases[i].files);
        const enum ax_status st =
            ax_hub_model(&folder, &hub, "org/m", NULL, cases[i].part, &report);
        assert_int_equal(st == AX_OK, cases[i].taken);
        assert_false(report.asked);
        if (st != AX_OK)
            assert_mentions("config.json");
        ax_free(folder);
    }
    hub.offline = false;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_other_tools_left),
        cmocka_unit_test(templates_in_a_folder_are_needed),
        cmocka_unit_test(templates_in_a_folder_are_downloaded),
        cmocka_unit_test(blobs_of_another_commit_need_no_space),
        cmocka_unit_test(offline_takes_what_there_is),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

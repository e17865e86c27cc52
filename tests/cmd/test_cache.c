/* `axtrain cache`: what it lists, what it removes, and all that it leaves alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/wait.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/text/json.h"
#include "base/lock.h"
#include "ckpt/hub/hub.h"
#include "cmd/commands.h"
#include "cmd/to_gguf.h"
#include "model/convert/base_model.h"
#include "optim/evaluate/refer.h"
#include "tests/ckpt/folder.h"
#include "tests/cmd/words_case.h"
#include "tests/golden_files.h"

static char model[512];

static int start(void **state) {
    snprintf(model, sizeof model, "%s", golden_path("models/llama"));
    unsetenv("HF_HOME");
    unsetenv("HF_HUB_CACHE");
    return make_dir(state) == 0 && setenv("XDG_CACHE_HOME", in_dir("cache"), 1) == 0 ? 0 : -1;
}

static void put_deep(const char *name, const char *content) {
    char *parent;
    const char *path = in_dir(name);
    ok(ax_strndup(&parent, path, (size_t)(strrchr(path, '/') - path)));
    ok(ax_mkdir_parents(parent));
    ax_free(parent);
    put_text(name, content);
}

/* ---- entries of every kind, made by what makes them ---- */

static void put_gguf(void) {
    struct ax_to_gguf to = {.src = model, .dst = in_dir("m.gguf"), .threads = 1};
    ok(ax_to_gguf_quant(&to.quant, "q8_0"));
    ok(ax_convert_to_gguf(&to));
    ok(RUN(ax_cmd_generate, in_dir("m.gguf"), "--prompt", "a", "--max-new-tokens", "1"));
}

static void put_prepared(void) {
    char config[2048];
    put_text("rows.jsonl", "{\"text\": \"The train is late again today.\"}\n");
    snprintf(config, sizeof config,
             "base_model: %s\ndatasets:\n  - path: %s\n    type: completion\nsequence_len: 64\n"
             "micro_batch_size: 1\nmax_steps: 1\nlearning_rate: 1e-4\noutput_dir: %s\n"
             "dataset_prepared_path: %s\n",
             model, in_dir("rows.jsonl"), in_dir("trained"), in_dir("prep"));
    put_text("c.yaml", config);
    ok(RUN(ax_cmd_preprocess, in_dir("c.yaml")));
}

#define HUB "cache/huggingface/hub/"

static void put_repos(void) {
    put_deep(HUB "models--org--mine/trees/0123.axtrain.json", "[]\n");
    put_deep(HUB "models--org--mine/blobs/abc", "0123456789");
    put_deep(HUB "datasets--org--rows/trees/0123.axtrain.json", "[]\n");
    put_deep(HUB "models--org--theirs/blobs/abc", "another tool's");
}

static void put_all(void) {
    ok(ax_remove_tree(in_dir("cache")));
    ok(ax_remove_tree(in_dir("prep")));
    put_gguf();
    put_prepared();
    put_repos();
    put_deep("cache/axtrain/notes.txt", "mine");
    put_deep("prep/my-model-0123456789abcdef/readme", "no entry: neither config nor weights");
    put_deep("prep/0123456789abcdef0123456789abcdef/readme", "no entry: no set.json");
}

/* ---- looking ---- */

/* The listed entry of a kind whose name or path contains `part`; NULL: none. Free the list. */
static json_t *list(void) {
    ok(RUN(ax_cmd_cache, "list", "--dir", in_dir("prep"), "--json"));
    json_t *all = json_loads(text, 0, NULL);
    assert_non_null(all);
    return all;
}

static const json_t *entry(const json_t *all, const char *kind, const char *part) {
    const json_t *entries = json_object_get(all, "entries");
    for (size_t i = 0; i < json_array_size(entries); i++) {
        const json_t *e = json_array_get(entries, i);
        if (strcmp(json_string_value(json_object_get(e, "kind")), kind) == 0 &&
            (strstr(json_string_value(json_object_get(e, "path")), part) ||
             strstr(json_string_value(json_object_get(e, "name")), part)))
            return e;
    }
    return NULL;
}

static bool is_there(const char *kind, const char *part) {
    json_t *all = list();
    const bool there = entry(all, kind, part) != NULL;
    json_decref(all);
    return there;
}

static void path_of(const char *kind, const char *part, char *path, size_t size) {
    json_t *all = list();
    const json_t *e = entry(all, kind, part);
    assert_non_null(e);
    snprintf(path, size, "%s", json_string_value(json_object_get(e, "path")));
    json_decref(all);
}

static void lists_what_axtrain_keeps_and_nothing_else(void **state) {
    (void)state;
    put_all();
    const time_t now = time(NULL);
    json_t *all = list();
    assert_int_equal(json_array_size(json_object_get(all, "entries")), 5);
    const char *const want[][2] = {{"gguf", "m.gguf"},
                                   {"prepared", "rows.jsonl"},
                                   {"hub", "org/mine"},
                                   {"hub", "org/rows"},
                                   {"other", "notes.txt"}};
    for (size_t i = 0; i < 5; i++) {
        const json_t *e = entry(all, want[i][0], want[i][1]);
        if (!e)
            fail_msg("%s %s is not listed", want[i][0], want[i][1]);
        assert_true(json_integer_value(json_object_get(e, "bytes")) > 0);
        assert_in_range(json_integer_value(json_object_get(e, "used")), now - 60, now + 60);
        assert_true(json_is_false(json_object_get(e, "in_use")));
    }
    json_decref(all);
    ok(RUN(ax_cmd_cache, "list", "--dir", in_dir("prep")));
    assert_non_null(strstr(text, "\n5 entries, "));
    char again[300];
    snprintf(again, sizeof again, "%s/../prep", in_dir("prep"));
    ok(RUN(ax_cmd_cache, "list", "--dir", again, "--dir", in_dir("prep"), "--dir", again));
    assert_non_null(strstr(text, "\n5 entries, "));
    ok(RUN(ax_cmd_cache, "list", "--dir", in_dir("prep"), "--kind", "hub"));
    assert_non_null(strstr(text, "\n2 entries, "));
    assert_null(strstr(text, "m.gguf"));
}

/* ---- clearing ---- */

static void assert_left_alone(void) {
    assert_true(ax_path_exists(in_dir("cache/axtrain/notes.txt")));
    assert_true(ax_path_exists(in_dir("prep/my-model-0123456789abcdef/readme")));
    assert_true(ax_path_exists(in_dir("prep/0123456789abcdef0123456789abcdef/readme")));
    assert_true(ax_path_exists(in_dir(HUB "models--org--theirs/blobs/abc")));
    assert_true(ax_path_exists(in_dir("m.gguf")));
    assert_true(ax_path_exists(in_dir("rows.jsonl")));
}

static void clears_when_told_twice(void **state) {
    (void)state;
    char size[32], want[64];
    put_all();
    json_t *all = list();
    const json_int_t bytes =
        json_integer_value(json_object_get(entry(all, "gguf", "m.gguf"), "bytes")) +
        json_integer_value(json_object_get(entry(all, "prepared", "rows.jsonl"), "bytes"));
    json_decref(all);
    assert_true(bytes > 0);
    snprintf(want, sizeof want, "2 entries, %s", ax_format_bytes(size, sizeof size, (double)bytes));
    ok(RUN(ax_cmd_cache, "clear", "--dir", in_dir("prep")));
    assert_non_null(strstr(text, want));
    assert_non_null(strstr(text, "nothing was removed: add --yes"));
    assert_true(is_there("gguf", "m.gguf") && is_there("prepared", "rows.jsonl"));
    ok(RUN(ax_cmd_cache, "clear", "--dir", in_dir("prep"), "--kind", "prepared", "--yes"));
    assert_non_null(strstr(text, "1 entry removed"));
    assert_true(is_there("gguf", "m.gguf") && !is_there("prepared", "rows.jsonl"));
    ok(RUN(ax_cmd_cache, "clear", "--dir", in_dir("prep"), "--yes"));
    assert_false(is_there("gguf", "m.gguf"));
    assert_true(is_there("hub", "org/mine"));
    assert_int_equal(count_entries(in_dir("cache/axtrain")), 1); /* the lock is gone, too */
    ok(RUN(ax_cmd_cache, "clear", "--dir", in_dir("prep"), "--kind", "hub", "--yes"));
    assert_false(ax_path_exists(in_dir(HUB "models--org--mine")));
    assert_false(ax_path_exists(in_dir(HUB "datasets--org--rows")));
    assert_left_alone();
    ok(RUN(ax_cmd_generate, in_dir("m.gguf"), "--prompt", "a", "--max-new-tokens", "1"));
    assert_true(is_there("gguf", "m.gguf"));
}

/* Is it kept now? `part` names an entry. */
static void assert_kept(const char *kind, const char *part) {
    ok(RUN(ax_cmd_cache, "clear", "--dir", in_dir("prep"), "--kind", kind, "--yes"));
    assert_non_null(strstr(text, "in use, kept:"));
    assert_true(is_there(kind, part));
    json_t *all = list();
    assert_true(json_is_true(json_object_get(entry(all, kind, part), "in_use")));
    json_decref(all);
}

static void assert_cleared(const char *kind, const char *part) {
    ok(RUN(ax_cmd_cache, "clear", "--dir", in_dir("prep"), "--kind", kind, "--yes"));
    assert_false(is_there(kind, part));
}

static void keeps_what_is_in_use(void **state) {
    (void)state;
    struct ax_lock use;
    char *folder, path[512], lock[600];
    put_all();
    ok(ax_base_model_folder(&folder, &use, in_dir("m.gguf"), NULL, NULL));
    ax_free(folder);
    assert_kept("gguf", "m.gguf");
    ax_lock_drop(&use);
    assert_cleared("gguf", "m.gguf");

    path_of("prepared", "rows.jsonl", path, sizeof path);
    snprintf(lock, sizeof lock, "%s.lock", path);
    ax_lock_take(&use, lock, AX_LOCK_SHARED);
    assert_kept("prepared", "rows.jsonl");
    ax_lock_drop(&use);
    assert_cleared("prepared", "rows.jsonl");

    ok(ax_hub_use(&use, &(struct ax_hub_repo){AX_HUB_MODEL, "org/mine", NULL}));
    assert_true(use.held);
    assert_kept("hub", "org/mine");
    ax_lock_drop(&use);
    assert_cleared("hub", "org/mine");

    /* a download of another program */
    put_repos();
    put_deep(HUB ".locks/models--org--mine/abc.lock", "");
    ax_lock_take(&use, in_dir(HUB ".locks/models--org--mine/abc.lock"), AX_LOCK_EXCLUSIVE);
    assert_kept("hub", "org/mine");
    ax_lock_drop(&use);
    assert_cleared("hub", "org/mine");
    assert_left_alone();
}

/* Makes all files of an entry, and its lock, this old. */
static void age(const char *path, int days) {
    const struct timespec then[2] = {{.tv_sec = time(NULL) - days * 86400},
                                     {.tv_sec = time(NULL) - days * 86400}};
    char name[1024];
    DIR *d = opendir(path);
    const struct dirent *e;
    assert_non_null(d);
    while ((e = readdir(d)) != NULL) {
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        assert_int_equal(utimensat(AT_FDCWD, name, then, AT_SYMLINK_NOFOLLOW), 0);
    }
    closedir(d);
    snprintf(name, sizeof name, "%s.lock", path);
    assert_int_equal(utimensat(AT_FDCWD, name, then, 0), 0);
}

static void age_is_since_the_last_use(void **state) {
    (void)state;
    char gguf[512], prepared[512];
    put_all();
    path_of("gguf", "m.gguf", gguf, sizeof gguf);
    path_of("prepared", "rows.jsonl", prepared, sizeof prepared);
    age(gguf, 40);
    age(prepared, 20);
    ok(RUN(ax_cmd_cache, "clear", "--dir", in_dir("prep"), "--older-than", "50", "--yes"));
    assert_non_null(strstr(text, "0 entries removed"));
    ok(RUN(ax_cmd_cache, "clear", "--dir", in_dir("prep"), "--older-than", "30", "--yes"));
    assert_true(!is_there("gguf", "m.gguf") && is_there("prepared", "rows.jsonl"));
    put_gguf();
    path_of("gguf", "m.gguf", gguf, sizeof gguf);
    age(gguf, 40);
    ok(RUN(ax_cmd_generate, in_dir("m.gguf"), "--prompt", "a", "--max-new-tokens", "1"));
    ok(RUN(ax_cmd_preprocess, in_dir("c.yaml")));
    ok(RUN(ax_cmd_cache, "clear", "--dir", in_dir("prep"), "--older-than", "10", "--yes"));
    assert_true(is_there("gguf", "m.gguf") && is_there("prepared", "rows.jsonl"));
}

static void links_are_no_entries(void **state) {
    (void)state;
    char gguf[512], elsewhere[512], back[512], older[512];
    put_all();
    path_of("gguf", "m.gguf", gguf, sizeof gguf);
    snprintf(elsewhere, sizeof elsewhere, "%s", in_dir("elsewhere-0123456789abcdef"));
    ok(ax_rename(gguf, elsewhere));
    snprintf(back, sizeof back, "%s", in_dir("cache/axtrain/m.gguf-0123456789abcdef"));
    ok(ax_symlink(elsewhere, back));
    put_deep("older/set.json", "{}");
    snprintf(older, sizeof older, "%s", in_dir("prep/0000000000000000000000000000000f"));
    ok(ax_symlink(in_dir("older"), older));
    ok(RUN(ax_cmd_cache, "clear", "--dir", in_dir("prep"), "--yes"));
    assert_true(ax_path_exists(back) && ax_path_exists(older));
    assert_int_equal(count_entries(elsewhere), 5);
}

/* The log-probs of references, by the model; damaged ones too. */
static void references_are_entries(void **state) {
    (void)state;
    json_t *description = json_pack("{s{s[[s]]}}", "model", "files", "/m/model.safetensors");
    const uint64_t document = 7;
    const float logprob = -1;
    const struct ax_reference_file f = {in_dir("prep"), description, &document, 1};
    ok(ax_remove_tree(in_dir("prep")));
    ok(ax_reference_file_write(&f, &logprob));
    assert_true(is_there("references", "/m/model.safetensors"));
    json_t *all = list();
    const json_t *e = entry(all, "references", "prep/");
    char path[512];
    snprintf(path, sizeof path, "%s/" AX_REFERENCE_FILE,
             json_string_value(json_object_get(e, "path")));
    json_decref(all);
    ok(ax_write_file_atomic(path, "{", 1));
    assert_false(is_there("references", "/m/model.safetensors"));
    assert_true(is_there("references", "prep/"));
    ok(RUN(ax_cmd_cache, "clear", "--dir", in_dir("prep"), "--kind", "prepared", "--yes"));
    assert_true(is_there("references", "prep/"));
    ok(RUN(ax_cmd_cache, "clear", "--dir", in_dir("prep"), "--kind", "references", "--yes"));
    assert_int_equal(count_entries(in_dir("prep")), 0);
    json_decref(description);
}

/* ---- what interrupted and older programs left ---- */

#define KEY "fedcba9876543210fedcba9876543210"

static void put_leftovers(const char *dead) {
    char name[200];
    put_deep("prep/" KEY "/set.json", "{}"); /* of a version whose tokens were in other files */
    put_deep("prep/" KEY ".lock", "");
    put_deep("prep/00000000000000000000000000000001.lock", "");
    put_deep("cache/axtrain/m.gguf-0123456789abcdef.lock", "");
    snprintf(name, sizeof name, "prep/00000000000000000000000000000002.tmp-%s/words.bin", dead);
    put_deep(name, "half");
    snprintf(name, sizeof name, "prep/00000000000000000000000000000003.tmp-%d/words.bin",
             (int)getppid());
    put_deep(name, "being written");
    static const char *const kinds[] = {"4.old-", "5.odd-",   "6.tmp-x",
                                        "7.tmp",  "8.tmp-1x", "9.tmp-111111111"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        snprintf(name, sizeof name, "prep/0000000000000000000000000000000%s%s/words.bin", kinds[i],
                 dead);
        put_deep(name, "of before");
    }
    put_deep("prep/notes.lock", "mine");
    put_deep("prep/notes.tmp-5", "mine");
    put_deep("cache/axtrain/sandbox/python.cwasm", "compiled");
    put_deep("cache/axtrain/products/a", "measured");
    put_deep(HUB ".locks/models--org--gone/axtrain-use.lock", "");
    put_deep(HUB "models--org--mine/blobs/abc.incomplete", "01234");
    put_deep(HUB "models--org--mine/trees/0123.axtrain.json", "[]\n");
}

static void leftovers_are_listed_and_cleared(void **state) {
    (void)state;
    static const char *const parts[] = {"prep/" KEY,
                                        "00000000000000000000000000000001.lock",
                                        "m.gguf-0123456789abcdef.lock",
                                        "00000000000000000000000000000002.tmp-",
                                        "00000000000000000000000000000003.tmp-",
                                        "models--org--gone",
                                        "00000000000000000000000000000004.old-"};
    const pid_t child = fork();
    if (child == 0)
        _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    char dead[16];
    snprintf(dead, sizeof dead, "%d", (int)child);
    ok(ax_remove_tree(in_dir("cache")));
    ok(ax_remove_tree(in_dir("prep")));
    put_leftovers(dead);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!is_there("leftover", parts[i]))
            fail_msg("%s is not listed", parts[i]);
    assert_true(is_there("sandbox", "sandbox") && is_there("products", "products"));
    assert_true(is_there("hub", "org/mine, with 1 incomplete download (5 B)"));
    assert_false(is_there("leftover", "notes") || is_there("other", "notes"));
    for (int i = 5; i <= 9; i++) {
        char part[40];
        snprintf(part, sizeof part, "0000000%d.", i);
        assert_false(is_there("leftover", part));
    }
    struct ax_lock use = {0};
    ax_lock_take(&use, in_dir("prep/00000000000000000000000000000001.lock"), AX_LOCK_SHARED);
    ok(RUN(ax_cmd_cache, "clear", "--dir", in_dir("prep"), "--yes"));
    assert_non_null(strstr(text, "5 entries removed"));
    assert_true(is_there("leftover", parts[1]) && is_there("leftover", parts[4]));
    ax_lock_drop(&use);
    ok(RUN(ax_cmd_cache, "clear", "--dir", in_dir("prep"), "--kind", "leftover", "--yes"));
    assert_non_null(strstr(text, "1 entry removed"));
    assert_false(ax_path_exists(in_dir("prep/" KEY ".lock")));
    assert_true(ax_path_exists(in_dir("prep/notes.lock")));
    assert_true(is_there("sandbox", "sandbox") && is_there("products", "products"));
    ok(RUN(ax_cmd_cache, "clear", "--dir", in_dir("prep"), "--kind", "sandbox", "--kind",
           "products", "--yes"));
    assert_int_equal(count_entries(in_dir("cache/axtrain")), 0);
}

static void mistakes_are_named(void **state) {
    (void)state;
    const struct {
        const char *argv[5], *says;
    } all[] = {
        {{"axtrain", "clean"}, "cache: expected list or clear, got \"clean\""},
        {{"axtrain", "list", "--yes"}, "cache list: --yes is for clear"},
        {{"axtrain", "list", "--older-than", "3"}, "cache list: --older-than is for clear"},
        {{"axtrain", "clear", "--json"}, "--json is for list"},
        {{"axtrain", "clear", "--older-than", "-1"}, "--older-than: expected days, got -1"},
        {{"axtrain", "clear", "--kind", "data"},
         "--kind: expected prepared, references, gguf, hub, products, sandbox, leftover or other"},
        {{"axtrain", "list", "--dir", "/no/such"}, "--dir: /no/such: no such folder"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_int_equal(run(ax_cmd_cache, all[i].argv), AX_ERR_CONFIG);
        if (!strstr(ax_error_text(), all[i].says))
            fail_msg("\"%s\" is not in: %s", all[i].says, ax_error_text());
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_what_axtrain_keeps_and_nothing_else),
        cmocka_unit_test(clears_when_told_twice),
        cmocka_unit_test(keeps_what_is_in_use),
        cmocka_unit_test(age_is_since_the_last_use),
        cmocka_unit_test(links_are_no_entries),
        cmocka_unit_test(references_are_entries),
        cmocka_unit_test(leftovers_are_listed_and_cleared),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, start, remove_dir);
}

/* What `base_model:` names: folders, GGUF files, hub ids in the local cache; and the error for
 * anything else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <utime.h>

#include "base/threads.h"
#include "model/convert/base_model.h"
#include "tests/ckpt/folder.h"
#include "tests/cmd/gguf_tiny.h"

static void put_deep(const char *name, const char *text) {
    char *parent;
    assert_int_equal(ax_strdup(&parent, in_dir(name)), AX_OK);
    *strrchr(parent, '/') = '\0';
    assert_int_equal(ax_mkdir_parents(parent), AX_OK);
    ax_free(parent);
    put_text(name, text);
}

static void finds(const char *name, const char *revision, enum ax_base_model_kind kind,
                  const char *path) {
    struct ax_base_model m;
    if (ax_base_model_find(&m, name, revision) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_int_equal(m.kind, kind);
    assert_string_equal(m.path, path);
    ax_base_model_free(&m);
    ax_base_model_free(&m);
}

static void finds_not(const char *name, const char *revision, const char *part) {
    struct ax_base_model m;
    const uint64_t live = ax_mem_live_blocks();
    assert_int_equal(ax_base_model_find(&m, name, revision), AX_ERR_CONFIG);
    assert_mentions(part);
    assert_null(m.path);
    assert_int_equal(ax_mem_live_blocks(), live);
}

static int clear_variables(void **state) {
    (void)state;
    static const char *const names[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME",
                                        "XDG_CACHE_HOME"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    assert_int_equal(setenv("HF_HUB_OFFLINE", "1", 1), 0);
    return setenv("HOME", in_dir("home"), 1);
}

static void folders_and_files(void **state) {
    (void)state;
    struct gguf_out o = {0};
    put_deep("model/config.json", "{}");
    finds(in_dir("model"), NULL, AX_BASE_MODEL_FOLDER, in_dir("model"));
    gguf_out_finish(&o);
    put_file("m.gguf", o.file.data, o.file.len);
    gguf_out_free(&o);
    finds(in_dir("m.gguf"), NULL, AX_BASE_MODEL_GGUF, in_dir("m.gguf"));
    finds_not(in_dir("model/config.json"), NULL, "config.json: neither a folder nor a GGUF file");
    finds_not(in_dir("nowhere"), NULL, "nowhere: no such folder or file, and not a hub id");
    finds_not("./org/name", NULL, "not a hub id");
    finds_not("org/name/more", NULL, "not a hub id");
    finds_not("org/..", NULL, "not a hub id");
    finds_not("-org/name", NULL, "not a hub id");
    finds_not("", NULL, "not a hub id");
    put_deep("models--org--my--model/snapshots/abc/config.json", "{}");
    finds_not(in_dir("models--org--my--model"), NULL,
              "the hub's cache of a model: write org/my--model, or one of the folders in its "
              "snapshots/");
    finds_not(in_dir("models--org--my--model/"), NULL, "write org/my--model,");
    finds(in_dir("models--org--my--model/snapshots/abc"), NULL, AX_BASE_MODEL_FOLDER,
          in_dir("models--org--my--model/snapshots/abc"));
}

#define MODEL "models--org--My.Model-1B"

/* A cache with two snapshots; main is the one, v2 the other. */
static void put_cache(const char *cache) {
    char name[160];
    static const char *const files[][2] = {
        {MODEL "/refs/main", "abc123\n"},
        {MODEL "/refs/v2", "def456"},
        {MODEL "/refs/refs/pr/7", "def456"},
        {MODEL "/snapshots/abc123/config.json", "{}"},
        {MODEL "/snapshots/def456/config.json", "{}"},
        {MODEL "/snapshots/partial/tokenizer.json", "{}"},
        {"models--gpt2/refs/main", "aaa"},
        {"models--gpt2/snapshots/aaa/config.json", "{}"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(name, sizeof name, "%s/%s", cache, files[i][0]);
        put_deep(name, files[i][1]);
    }
}

static void hub_ids_are_looked_up_where_the_variables_say(void **state) {
    (void)state;
    static const struct {
        const char *variable, *value, *cache;
    } places[] = {
        {NULL, NULL, "home/.cache/huggingface/hub"},
        {"XDG_CACHE_HOME", "xdg", "xdg/huggingface/hub"},
        {"HF_HOME", "hf", "hf/hub"},
        {"HF_HUB_CACHE", "hub", "hub"},
    };
    char path[160];
    /* each variable goes before those set so far */
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        put_cache(places[i].cache);
        if (places[i].variable)
            assert_int_equal(setenv(places[i].variable, in_dir(places[i].value), 1), 0);
        snprintf(path, sizeof path, "%s/" MODEL "/snapshots/abc123", places[i].cache);
        finds("org/My.Model-1B", NULL, AX_BASE_MODEL_FOLDER, in_dir(path));
    }
    assert_int_equal(setenv("HF_HUB_CACHE", "", 1), 0); /* empty is not set */
    snprintf(path, sizeof path, "hf/hub/" MODEL "/snapshots/abc123");
    finds("org/My.Model-1B", "main", AX_BASE_MODEL_FOLDER, in_dir(path));
}

static void revisions(void **state) {
    (void)state;
    put_cache("home/.cache/huggingface/hub");
    const char *v2 = in_dir("home/.cache/huggingface/hub/" MODEL "/snapshots/def456");
    finds("org/My.Model-1B", "v2", AX_BASE_MODEL_FOLDER, v2);
    finds("org/My.Model-1B", "refs/pr/7", AX_BASE_MODEL_FOLDER, v2);
    finds("org/My.Model-1B", "def456", AX_BASE_MODEL_FOLDER, v2);
    finds("gpt2", NULL, AX_BASE_MODEL_FOLDER,
          in_dir("home/.cache/huggingface/hub/models--gpt2/snapshots/aaa"));
    finds_not("org/My.Model-1B", "v3", "has no v3 of it");
    assert_mentions("HF_HUB_OFFLINE disables the network");
    finds_not("org/My.Model-1B", "../v2", "is not a branch, tag or commit");
    finds_not("org/My.Model-1B", "/etc", "is not a branch, tag or commit");
    finds_not("org/My.Model-1B", "", "is not a branch, tag or commit");
    finds_not("org/My.Model-1B", "partial", "has no config.json of it");
}

static void what_to_download_is_named(void **state) {
    (void)state;
    finds_not("HuggingFaceTB/SmolLM2-135M", NULL, "HuggingFaceTB/SmolLM2-135M: no such folder");
    assert_mentions("has no snapshot of it");
    assert_mentions(
        "Run `axtrain fetch CONFIG` on a machine with a network, or unset HF_HUB_OFFLINE");
    /* a ref that leads out of the cache */
    struct ax_base_model m;
    put_deep("home/.cache/huggingface/hub/models--a--b/refs/main", "../../elsewhere");
    assert_int_equal(ax_base_model_find(&m, "a/b", NULL), AX_ERR_DATA);
    assert_mentions("refs/main: expected a commit hash");
}

static void put_tiny(void) {
    static const struct tiny t = {.arch = "qwen3", .qk_norm = true, .matrix_type = TYPE_BF16};
    struct gguf_out o = {0};
    tiny_sizes(&o, &t);
    tiny_vocab(&o, &t);
    tiny_tensors(&o, &t);
    gguf_out_finish(&o);
    put_file("tiny.gguf", o.file.data, o.file.len);
    gguf_out_free(&o);
}

static void a_gguf_file_gets_one_folder(void **state) {
    (void)state;
    struct ax_hf hf;
    char *first, *second, *third;
    struct ax_lock use;
    put_tiny();
    const char *gguf = in_dir("tiny.gguf"), *cache = in_dir("cache/models");
    if (ax_base_model_folder(&first, &use, gguf, NULL, cache) != AX_OK)
        fail_msg("%s", ax_error_text());
    ax_lock_drop(&use);
    assert_true(strncmp(first, cache, strlen(cache)) == 0 && strstr(first, "/tiny.gguf-"));
    assert_int_equal(ax_hf_open(&hf, first), AX_OK);
    assert_int_equal(ax_hf_at(&hf, 0)->dtype, AX_BF16);
    ax_hf_close(&hf);
    /* a mark in the folder shows that it was not made again */
    char *mark;
    assert_int_equal(ax_path_join(&mark, first, "mark"), AX_OK);
    assert_int_equal(ax_write_file_atomic(mark, "", 0), AX_OK);
    assert_int_equal(ax_base_model_folder(&second, &use, gguf, NULL, cache), AX_OK);
    ax_lock_drop(&use);
    assert_string_equal(first, second);
    assert_true(ax_path_exists(mark));
    /* that it was read changes nothing */
    struct stat info;
    assert_int_equal(stat(gguf, &info), 0);
    struct timespec times[2] = {info.st_mtim, info.st_mtim};
    times[0].tv_sec += 1000; /* later than now: reading it again does not move it */
    times[0].tv_nsec = (times[0].tv_nsec + 1) % 1000000000;
    assert_int_equal(utimensat(AT_FDCWD, gguf, times, 0), 0);
    assert_int_equal(ax_base_model_folder(&third, &use, gguf, NULL, cache), AX_OK);
    ax_lock_drop(&use);
    assert_string_equal(first, third);
    ax_free(third);
    /* a file that was written a moment later is another model */
    times[1].tv_nsec = (times[1].tv_nsec + 1) % 1000000000;
    assert_int_equal(utimensat(AT_FDCWD, gguf, times, 0), 0);
    assert_int_equal(ax_base_model_folder(&third, &use, gguf, NULL, cache), AX_OK);
    ax_lock_drop(&use);
    assert_string_not_equal(first, third);
    ax_free(third);
    /* and so is one of another date */
    assert_int_equal(utime(gguf, &(struct utimbuf){1000, 1000}), 0);
    assert_int_equal(ax_base_model_folder(&third, &use, gguf, NULL, cache), AX_OK);
    ax_lock_drop(&use);
    assert_string_not_equal(first, third);
    ax_free(first);
    ax_free(second);
    ax_free(third);
    ax_free(mark);
    put_deep("model/config.json", "{}");
    assert_int_equal(ax_base_model_folder(&first, &use, in_dir("model"), NULL, cache), AX_OK);
    ax_lock_drop(&use);
    assert_string_equal(first, in_dir("model"));
    ax_free(first);
    assert_int_equal(ax_base_model_folder(&first, &use, "no/model", NULL, cache), AX_ERR_CONFIG);
}

static enum ax_status link_tiny(void *path) {
    struct ax_lock use;
    AX_TRY(ax_base_model_folder(path, &use, in_dir("tiny.gguf"), NULL, in_dir("cache/models")));
    ax_lock_drop(&use);
    return AX_OK;
}

/* A folder that was cleared is not written while somebody uses it. */
static void writing_waits_for_users(void **state) {
    (void)state;
    char *path, *again = NULL, *lock;
    struct ax_lock user;
    struct ax_worker writer;
    put_tiny();
    assert_int_equal(link_tiny(&path), AX_OK);
    assert_int_equal(ax_remove_tree(path), AX_OK);
    assert_int_equal(ax_sprintf(&lock, "%s.lock", path), AX_OK);
    ax_lock_take(&user, lock, AX_LOCK_SHARED);
    assert_true(user.held);
    assert_int_equal(ax_worker_start(&writer, link_tiny, &again), AX_OK);
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    assert_false(ax_path_exists(path));
    ax_lock_drop(&user);
    assert_int_equal(ax_worker_join(&writer), AX_OK);
    assert_string_equal(again, path);
    assert_true(ax_path_exists(path));
    ax_free(path);
    ax_free(again);
    ax_free(lock);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(folders_and_files, clear_variables),
        cmocka_unit_test_setup(hub_ids_are_looked_up_where_the_variables_say, clear_variables),
        cmocka_unit_test_setup(revisions, clear_variables),
        cmocka_unit_test_setup(what_to_download_is_named, clear_variables),
        cmocka_unit_test_setup(a_gguf_file_gets_one_folder, clear_variables),
        cmocka_unit_test_setup(writing_waits_for_users, clear_variables),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}

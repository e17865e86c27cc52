/* A model save (and load) that is killed, or that fails, at every single call it makes: what is
 * there afterwards is the old model or the new one, to the bit, and needs no cleaning by hand. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sys/wait.h>

#include "base/fault.h"
#include "tests/ckpt/folder.h"

#define SHAPE(...)                                                                                 \
    (const int64_t[]) {                                                                            \
        __VA_ARGS__                                                                                \
    }
#define MODEL "model"

static int make_base(void **state) {
    if (make_dir(state) != 0 || ax_mkdir(in_dir("base")) != AX_OK)
        return -1;
    put_text("base/config.json", "{\"version\": \"base\", \"torch_dtype\": \"float32\"}");
    put_text("base/tokenizer.json", "{\"model\": {}}");
    put_text("base/generation_config.json", "{}");
    return 0;
}

/* Two shards, an index, config.json and two side files; `version` decides every byte of the weights
 * and a key of the config. */
static enum ax_status save(const char *version) {
    struct ax_st_output t[] = {output("embed", AX_F32, 2, SHAPE(10, 3)),
                               output("norm", AX_F32, 1, SHAPE(7)),
                               output("head", AX_BF16, 2, SHAPE(10, 3))};
    for (int i = 0; i < 3; i++)
        t[i].ctx = (void *)version;
    char path[128], base[128];
    snprintf(path, sizeof path, "%s/" MODEL, dir);
    snprintf(base, sizeof base, "%s/base", dir);
    json_t *config = json_pack("{ss}", "version", version);
    if (config == NULL)
        return ax_error(AX_ERR_NOMEM, "out of memory: %s", path);
    const struct ax_hf_save what = {.dir = path,
                                    .base_dir = base,
                                    .config = config,
                                    .dtype = AX_F32,
                                    .max_shard_bytes = 130,
                                    .n = 3,
                                    .tensors = t};
    const enum ax_status st = ax_hf_write(&what);
    json_decref(config);
    return st;
}

static void assert_weights(const struct ax_hf *hf, const char *version) {
    static const char *const names[] = {"embed", "norm", "head"};
    static const size_t bytes[] = {120, 28, 60};
    assert_int_equal(hf->n_files, 2);
    assert_int_equal(ax_hf_count(hf), 3);
    for (int i = 0; i < 3; i++) {
        const struct ax_st_entry *e = ax_hf_find(hf, names[i]);
        assert_non_null(e);
        assert_int_equal(e->bytes, bytes[i]);
        for (size_t k = 0; k < e->bytes; k++)
            assert_int_equal(((const unsigned char *)e->data)[k], made_up(version, (int64_t)k));
    }
}

/* Opens the model as any later run would, first thing. "" where there is none; fails on a mixture.
 */
static void read_version(char *version, size_t size) {
    struct ax_hf hf;
    struct ax_json_doc config;
    const char *said;
    version[0] = '\0';
    if (ax_hf_open(&hf, in_dir(MODEL)) != AX_OK) {
        assert_mentions("cannot open: No such file");
        assert_false(ax_path_exists(in_dir(MODEL)));
        return;
    }
    assert_int_equal(ax_json_load(&config, in_dir(MODEL "/config.json"), 4096), AX_OK);
    assert_int_equal(ax_json_str(ax_json_get(ax_json_root(&config), "version"), &said), AX_OK);
    snprintf(version, size, "%s", said);
    ax_json_free(&config);
    assert_weights(&hf, version);
    assert_true(ax_path_exists(in_dir(MODEL "/tokenizer.json")));
    assert_true(ax_path_exists(in_dir(MODEL "/generation_config.json")));
    ax_hf_close(&hf);
}

static void start_from(bool old) {
    assert_int_equal(ax_fault_configure(NULL), AX_OK);
    assert_int_equal(ax_remove_tree(in_dir(MODEL)), AX_OK);
    assert_int_equal(count_entries(dir), 1); /* base */
    if (old)
        assert_int_equal(save("old"), AX_OK);
}

/* The next save, on which nothing goes wrong, clears up: base and model are all there is. */
static void assert_next_save_is_clean(void) {
    char version[16];
    assert_int_equal(ax_fault_configure(NULL), AX_OK);
    if (save("newer") != AX_OK)
        fail_msg("%s", ax_error_text());
    read_version(version, sizeof version);
    assert_string_equal(version, "newer");
    assert_int_equal(count_entries(dir), 2);
    assert_int_equal(count_entries(in_dir(MODEL)), 6);
}

/* Saves in a child that is killed at the k-th call of op; whether it was. */
static bool killed_at(enum ax_fault_op op, int k) {
    char spec[64];
    snprintf(spec, sizeof spec, "%s:%d:kill", ax_fault_op_name(op), k);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(ax_fault_configure(spec) == AX_OK && save("new") == AX_OK ? 0 : 1);
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    if (WIFSIGNALED(how)) {
        assert_int_equal(WTERMSIG(how), SIGKILL);
        return true;
    }
    assert_int_equal(WEXITSTATUS(how), 0);
    return false;
}

static int sweep_kills(bool over_old) {
    int points = 0, kept = 0, taken = 0;
    for (int op = 0; op < AX_FAULT_MALLOC; op++) {
        bool killed = true;
        for (int k = 1; killed; k++) {
            start_from(over_old);
            killed = killed_at((enum ax_fault_op)op, k);
            points += killed;
            char version[16];
            read_version(version, sizeof version);
            const bool is_new = strcmp(version, "new") == 0;
            assert_true(is_new || (killed && strcmp(version, over_old ? "old" : "") == 0));
            taken += is_new;
            kept += !is_new;
            assert_next_save_is_clean();
        }
    }
    assert_true(kept > 0 && taken > 0);
    return points;
}

static void a_kill_at_every_call_leaves_old_or_new(void **state) {
    (void)state;
    const int fresh = sweep_kills(false), over = sweep_kills(true);
    print_message("killed at %d calls of a first save, %d of an overwriting one\n", fresh, over);
    assert_true(fresh >= 40 && over > fresh);
}

/* An error says which file of the save it was, and what the system said. */
static void assert_explained(enum ax_fault_op op, const char *kind) {
    assert_mentions(dir);
    if (strcmp(kind, "eio") == 0)
        assert_mentions("Input/output error");
    if (strcmp(kind, "enospc") == 0)
        assert_mentions("No space left on device");
    if (op == AX_FAULT_WRITE)
        assert_mentions(" written): "); /* how many bytes */
}

/* One save with one fault armed; false where the fault was not reached any more. */
static bool fail_once(enum ax_fault_op op, int k, const char *kind, bool over_old) {
    char spec[64], version[16];
    snprintf(spec, sizeof spec, "%s:%d:%s", ax_fault_op_name(op), k, kind);
    start_from(over_old);
    const uint64_t live = ax_mem_live_blocks();
    const int files = count_open_files();
    assert_int_equal(ax_fault_configure(spec), AX_OK);
    const enum ax_status st = save("new");
    const bool fired = ax_fault_fired();
    assert_int_equal(ax_fault_configure(NULL), AX_OK);
    assert_int_equal(ax_mem_live_blocks(), live);
    assert_int_equal(count_open_files(), files);
    if (strcmp(kind, "enomem") == 0) {
        /* OK: only tidying up behind the finished save failed */
        assert_true(st == AX_OK || (fired && st == AX_ERR_NOMEM));
    } else if (strcmp(kind, "eintr") == 0 || strcmp(kind, "short") == 0 || !fired) {
        assert_int_equal(st, AX_OK); /* tried again, or continued */
    } else if (st != AX_OK) {
        const bool full = strcmp(kind, "enospc") == 0;
        if (full && op == AX_FAULT_WRITE)
            assert_int_equal(st, AX_ERR_STORAGE);
        else
            assert_true(st == AX_ERR_IO || (full && st == AX_ERR_STORAGE));
        assert_explained(op, kind);
    }
    if (st != AX_OK && op != AX_FAULT_UNLINK && op != AX_FAULT_OPEN && op != AX_FAULT_CLOSE)
        assert_int_equal(count_entries(dir), over_old ? 2 : 1); /* it cleaned up immediately */
    if (over_old) /* before anything is read, which would put it back */
        assert_true(ax_path_exists(in_dir(MODEL)));
    read_version(version, sizeof version);
    assert_string_equal(version, st == AX_OK ? "new" : over_old ? "old" : "");
    assert_next_save_is_clean();
    return fired;
}

static int sweep_failures(enum ax_fault_op first, enum ax_fault_op end, const char *kind) {
    int points = 0;
    for (int over_old = 0; over_old < 2; over_old++) {
        for (enum ax_fault_op op = first; op < end; op++) {
            const bool moves = op == AX_FAULT_READ || op == AX_FAULT_WRITE;
            for (int k = 1; moves || strcmp(kind, "short") != 0; k++) {
                if (!fail_once(op, k, kind, over_old))
                    break;
                points++;
            }
        }
    }
    return points;
}

static void an_error_at_every_call_keeps_the_old_model(void **state) {
    (void)state;
    static const char *const kinds[] = {"eio", "enospc", "eintr", "short"};
    for (int i = 0; i < 4; i++) {
        const int points = sweep_failures(AX_FAULT_OPEN, AX_FAULT_SEND, kinds[i]);
        print_message("%s at %d calls of a save\n", kinds[i], points);
        assert_true(points >= (i == 3 ? 12 : 80));
    }
}

static void no_memory_at_every_call_keeps_the_old_model(void **state) {
    (void)state;
    const int points = sweep_failures(AX_FAULT_MALLOC, AX_FAULT_MALLOC + 1, "enomem");
    print_message("no memory at %d calls of a save\n", points);
    assert_true(points >= 200);
}

/* A load with one fault armed; false where it was not reached. */
static bool load_once(enum ax_fault_op op, int k, const char *kind) {
    char spec[64], path[128];
    struct ax_hf hf;
    snprintf(spec, sizeof spec, "%s:%d:%s", ax_fault_op_name(op), k, kind);
    snprintf(path, sizeof path, "%s/" MODEL, dir);
    const uint64_t live = ax_mem_live_blocks();
    const int files = count_open_files();
    assert_int_equal(ax_fault_configure(spec), AX_OK);
    const enum ax_status st = ax_hf_open(&hf, path);
    const bool fired = ax_fault_fired();
    assert_int_equal(ax_fault_configure(NULL), AX_OK);
    if (st == AX_OK) {
        assert_true(!fired || strcmp(kind, "eintr") == 0 || strcmp(kind, "short") == 0);
        assert_weights(&hf, "old");
    } else if (op == AX_FAULT_MALLOC) {
        assert_int_equal(st, AX_ERR_NOMEM);
    } else {
        assert_int_equal(st, AX_ERR_IO);
        assert_explained(op, kind);
    }
    ax_hf_close(&hf);
    assert_int_equal(ax_mem_live_blocks(), live);
    assert_int_equal(count_open_files(), files);
    return fired;
}

static void a_failure_at_every_call_of_a_load_is_clean(void **state) {
    (void)state;
    static const char *const kinds[] = {"eio", "eintr", "short", "enomem"};
    int points = 0;
    start_from(true);
    for (int i = 0; i < 4; i++) {
        for (enum ax_fault_op op = AX_FAULT_OPEN; op <= AX_FAULT_MALLOC; op++) {
            const bool memory = op == AX_FAULT_MALLOC, moves = op == AX_FAULT_READ;
            if (memory != (i == 3) || (i == 2 && !moves))
                continue;
            for (int k = 1; load_once(op, k, kinds[i]); k++)
                points++;
        }
    }
    print_message("failed at %d calls of a load\n", points);
    assert_true(points >= 60);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kill_at_every_call_leaves_old_or_new),
        cmocka_unit_test(an_error_at_every_call_keeps_the_old_model),
        cmocka_unit_test(no_memory_at_every_call_keeps_the_old_model),
        cmocka_unit_test(a_failure_at_every_call_of_a_load_is_clean),
    };
    return cmocka_run_group_tests(tests, make_base, remove_dir);
}

/* A folder that cannot be read to its end is an error wherever its names decide something, and never a
 * shorter folder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/fault.h"
#include "ckpt/hf/config.h"
#include "ckpt/hub/hub.h"
#include "ckpt/state/checkpoint.h"
#include "cmd/cache/cache.h"
#include "data/records/rows/rows.h"
#include "data/text/template/template.h"
#include "optim/metrics/metrics.h"
#include "tests/ckpt/folder.h"

static void make_folder(const char *name) {
    assert_int_equal(ax_mkdir_parents(in_dir(name)), AX_OK);
}

static int make_all(void **state) {
    if (make_dir(state) != 0)
        return -1;
    make_folder("run/checkpoint-2/state");
    make_folder("run/checkpoint-4/state");
    put_text("run/checkpoint-2/state/manifest.json", "{}");
    put_text("run/checkpoint-4/state/manifest.json", "{}");
    make_folder("data/a");
    make_folder("data/b");
    put_text("data/a/1.jsonl", "{}\n");
    put_text("data/b/2.jsonl", "{}\n");
    make_folder("empty");
    make_folder("model/additional_chat_templates");
    put_text("model/additional_chat_templates/a.jinja", "a");
    make_folder("hub/models--o--n/trees");
    put_text("hub/models--o--n/trees/c.axtrain.json", "{}");
    make_folder("cached/.locks");
    put_text("cached/.locks/one.lock", "");
    make_folder("metrics");
    return 0;
}

/* ---- who reads folders ---- */

static enum ax_status list_names(void) {
    struct ax_dir d;
    int n = 0;
    ax_dir_open(&d, in_dir("run"));
    while (ax_dir_next(&d))
        n++;
    const enum ax_status st = ax_dir_end(&d, AX_OK);
    assert_true(st != AX_OK || n == 2);
    return st;
}

static enum ax_status list_checkpoints(void) {
    struct ax_checkpoint_list l;
    const enum ax_status st = ax_checkpoint_list(&l, in_dir("run"));
    assert_int_equal(l.n, st == AX_OK ? 2 : 0);
    ax_checkpoint_list_free(&l);
    return st;
}

static enum ax_status sweep_checkpoints(void) {
    return ax_checkpoint_sweep(in_dir("run"));
}

static enum ax_status refuse_links(void) {
    return ax_checkpoint_refuse_links(in_dir("run"), 0);
}

static enum ax_status recover(void) {
    return ax_folder_recover(in_dir("run"));
}

static enum ax_status check_new(void) {
    return ax_folder_check_new(in_dir("empty"));
}

static enum ax_status remove_tree(void) {
    make_folder("old");
    put_text("old/file", "");
    return ax_remove_tree(in_dir("old"));
}

static enum ax_status refuse_own_form(void) {
    return ax_hf_refuse_own_form(in_dir("model"));
}

static enum ax_status count_rows(const struct ax_rows_options *o) {
    struct ax_rows *rows;
    struct ax_raw_row row;
    int n = 0;
    bool got = true;
    AX_TRY(ax_rows_open(&rows, o));
    while (ax_rows_next(rows, &row, &got) == AX_OK && got)
        n++;
    ax_rows_close(rows);
    assert_int_equal(n, 2);
    return AX_OK;
}

static enum ax_status read_data_folder(void) {
    return count_rows(&(struct ax_rows_options){.path = in_dir("data")});
}

static enum ax_status read_data_pattern(void) {
    return count_rows(&(struct ax_rows_options){.path = in_dir("data/*/*.jsonl")});
}

static enum ax_status read_templates(void) {
    json_t *all = NULL;
    const enum ax_status st = ax_template_folder_sources(&all, in_dir("model"));
    assert_true(st != AX_OK || json_object_size(all) == 1);
    json_decref(all);
    return st;
}

static enum ax_status count_owned(void *ctx, const struct ax_hub_owned *o) {
    (void)o;
    ++*(int *)ctx;
    return AX_OK;
}

static enum ax_status list_hub(void) {
    int n = 0;
    const enum ax_status st = ax_hub_each_owned(in_dir("hub"), count_owned, &n);
    assert_true(st != AX_OK || n == 1);
    return st;
}

/* Somebody else's lock may be among the names that were not read. */
static enum ax_status remove_cached(void) {
    char path[256], locks[256], lock[256];
    bool done;
    make_folder("cached/entry");
    snprintf(path, sizeof path, "%s", in_dir("cached/entry"));
    snprintf(locks, sizeof locks, "%s", in_dir("cached/.locks"));
    snprintf(lock, sizeof lock, "%s", in_dir("cached/.locks/absent.lock"));
    const struct ax_cache_entry e = {.path = path, .lock = lock, .more = locks};
    const enum ax_status st = ax_cache_remove(&e, &done);
    assert_true(st != AX_OK || done);
    make_folder("cached/.locks");
    put_text("cached/.locks/one.lock", "");
    return st;
}

static enum ax_status open_metrics(void) {
    const struct ax_metrics_options o = {
        .total_steps = 4, .logging_steps = 1, .devices = 1, .tensorboard = true};
    struct ax_metrics *m;
    make_folder("metrics/tensorboard");
    const enum ax_status st = ax_metrics_open(&m, in_dir("metrics"), &o);
    if (st == AX_OK)
        ax_metrics_close(m);
    return st;
}

static const struct {
    const char *name;
    enum ax_status (*read)(void);
} readers[] = {
    {"names", list_names},
    {"checkpoints", list_checkpoints},
    {"leftovers of saves", sweep_checkpoints},
    {"links in place of checkpoints", refuse_links},
    {"leftovers of a folder", recover},
    {"a folder that must be empty", check_new},
    {"a folder that is removed", remove_tree},
    {"files of another form", refuse_own_form},
    {"a folder of data", read_data_folder},
    {"a pattern of data", read_data_pattern},
    {"templates", read_templates},
    {"the hub's cache", list_hub},
    {"locks in the cache", remove_cached},
    {"event files", open_metrics},
};

static bool fails_at(size_t i, int k) {
    char fault[32];
    const uint64_t live = ax_mem_live_blocks();
    snprintf(fault, sizeof fault, "list:%d:eio", k);
    assert_int_equal(ax_fault_configure(fault), AX_OK);
    const enum ax_status st = readers[i].read();
    const bool fired = ax_fault_fired();
    assert_int_equal(ax_fault_configure(NULL), AX_OK);
    if (st != (fired ? AX_ERR_IO : AX_OK))
        fail_msg("%s, name %d: %s: %s", readers[i].name, k, ax_status_info(st)->name,
                 st == AX_OK ? "" : ax_error_text());
    if (fired && (!strstr(ax_error_text(), dir) || !strstr(ax_error_text(), "Input/output error")))
        fail_msg("%s: %s", readers[i].name, ax_error_text());
    assert_int_equal(ax_mem_live_blocks(), live);
    return fired;
}

static void a_read_error_is_not_the_end(void **state) {
    (void)state;
    int points = 0;
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        int k = 1;
        while (fails_at(i, k))
            k++;
        if (k == 1)
            fail_msg("%s: nothing was read", readers[i].name);
        points += k - 1;
    }
    print_message("%d reads failed\n", points);
    assert_true(points > 50);
}

/* ---- folders that are absent, or closed to this user ---- */

static void absent_folders_have_no_names(void **state) {
    (void)state;
    struct ax_dir d;
    static const char *const absent[] = {"nothing", "data/a/1.jsonl"};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
        ax_dir_open(&d, in_dir(absent[i]));
        assert_null(ax_dir_next(&d));
        assert_int_equal(ax_dir_end(&d, AX_OK), AX_OK);
    }
    ax_dir_open(&d, in_dir("data"));
    assert_int_equal(ax_dir_end(&d, AX_ERR_DATA), AX_ERR_DATA);
}

/* To root nothing is closed, but for what it may do beyond its files' modes. */
static void set_privileges(bool on) {
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];
    const uint32_t beyond = 1U << CAP_DAC_OVERRIDE | 1U << CAP_DAC_READ_SEARCH;
    assert_int_equal(syscall(SYS_capget, &head, sets), 0);
    sets[0].effective = on ? sets[0].permitted : sets[0].effective & ~beyond;
    assert_int_equal(syscall(SYS_capset, &head, sets), 0);
}

static void closed_folders_are_errors(void **state) {
    (void)state;
    assert_int_equal(chmod(in_dir("data/a"), 0), 0);
    set_privileges(false);
    const enum ax_status folder = read_data_folder(), pattern = read_data_pattern();
    set_privileges(true);
    assert_int_equal(chmod(in_dir("data/a"), 0755), 0);
    assert_int_equal(folder, AX_ERR_IO);
    assert_int_equal(pattern, AX_ERR_IO);
    assert_non_null(strstr(ax_error_text(), "Permission denied"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_read_error_is_not_the_end),
        cmocka_unit_test(absent_folders_have_no_names),
        cmocka_unit_test(closed_folders_are_errors),
    };
    return cmocka_run_group_tests(tests, make_all, remove_dir);
}

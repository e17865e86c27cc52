/* Atomic folders: a process killed, or a call failing, at every point of a save. */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/io.h"
#include "base/log.h"

static char dir[64];
static char target[80];

static int make_dir(void **state) {
    (void)state;
    ax_log_set_level(AX_LOG_ERROR);
    /* In memory where that is possible: there are some thousand syncs here. */
    bool memory = access("/dev/shm", W_OK) == 0;
    snprintf(dir, sizeof dir, "%s/axtrain-folder-XXXXXX", memory ? "/dev/shm" : "/tmp");
    if (mkdtemp(dir) == NULL)
        return -1;
    snprintf(target, sizeof target, "%s/ckpt", dir);
    return 0;
}

static int remove_dir(void **state) {
    (void)state;
    return ax_fault_configure(NULL) == AX_OK && ax_remove_tree(dir) == AX_OK ? 0 : -1;
}

static enum ax_status write_file(const char *folder, const char *name, const char *text) {
    struct ax_file f = {0};
    char *path = NULL;
    enum ax_status st;
    AX_TRY_GOTO(ax_path_join(&path, folder, name), st, done);
    AX_TRY_GOTO(ax_file_create(&f, path), st, done);
    AX_TRY_GOTO(ax_file_write(&f, text, strlen(text)), st, done);
    AX_TRY_GOTO(ax_file_sync(&f), st, done);
    AX_TRY_GOTO(ax_file_close(&f), st, done);
done:
    (void)ax_file_close(&f);
    ax_free(path);
    return st;
}

/* A small save: three files with the version in each. */
static enum ax_status save(const char *version) {
    static const char *const names[] = {"config.json", "model.safetensors", "state.json"};
    struct ax_folder d;
    enum ax_status st;
    AX_TRY_GOTO(ax_folder_begin(&d, target), st, fail);
    for (int i = 0; i < 3; i++)
        AX_TRY_GOTO(write_file(d.tmp, names[i], version), st, fail);
    AX_TRY_GOTO(ax_folder_commit(&d), st, fail);
    ax_folder_abort(&d); /* after a commit it does nothing */
    return AX_OK;
fail:
    ax_folder_abort(&d);
    return st;
}

/* The version that is there whole; "" where the folder is absent; fails on any mixture. */
static void read_version(char *version, size_t size) {
    static const char *const names[] = {"config.json", "model.safetensors", "state.json"};
    version[0] = '\0';
    if (!ax_path_exists(target))
        return;
    for (int i = 0; i < 3; i++) {
        char *path;
        char *text;
        size_t len;
        assert_int_equal(ax_path_join(&path, target, names[i]), AX_OK);
        assert_int_equal(ax_read_file(path, 100, &text, &len), AX_OK);
        if (i > 0)
            assert_string_equal(text, version);
        snprintf(version, size, "%s", text);
        ax_free(text);
        ax_free(path);
    }
}

/* Entries of the parent folder beside the target. */
static int count_leftovers(void) {
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.' && strcmp(e->d_name, "ckpt") != 0;
    closedir(d);
    return n;
}

static void start_from(bool old) {
    assert_int_equal(ax_fault_configure(NULL), AX_OK);
    assert_int_equal(ax_remove_tree(target), AX_OK);
    if (old)
        assert_int_equal(save("old"), AX_OK);
}

/* Runs `work` in a child that is killed at the k-th call of op; whether it was. */
static bool killed_at(enum ax_fault_op op, int k, enum ax_status (*work)(const char *),
                      const char *arg) {
    char spec[64];
    snprintf(spec, sizeof spec, "%s:%d:kill", ax_fault_op_name(op), k);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(ax_fault_configure(spec) == AX_OK && work(arg) == AX_OK ? 0 : 1);
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    if (WIFSIGNALED(how)) {
        assert_int_equal(WTERMSIG(how), SIGKILL);
        return true;
    }
    assert_int_equal(WEXITSTATUS(how), 0);
    return false;
}

static int sweep_kills(bool old) {
    int points = 0;
    bool saw_old = false;
    bool saw_new = false;
    for (int op = 0; op <= AX_FAULT_MALLOC; op++) {
        bool killed = true;
        for (int k = 1; killed; k++) {
            start_from(old);
            killed = killed_at((enum ax_fault_op)op, k, save, "new");
            points += killed;
            assert_int_equal(ax_folder_recover(target), AX_OK);
            assert_int_equal(count_leftovers(), 0);
            char version[16];
            read_version(version, sizeof version);
            bool is_new = strcmp(version, "new") == 0;
            assert_true(is_new || (killed && strcmp(version, old ? "old" : "") == 0));
            saw_new = saw_new || is_new;
            saw_old = saw_old || !is_new;
            assert_int_equal(save("newer"), AX_OK);
            read_version(version, sizeof version);
            assert_string_equal(version, "newer");
        }
    }
    assert_true(saw_old && saw_new);
    return points;
}

static void a_kill_at_every_call_leaves_old_or_new(void **state) {
    (void)state;
    int fresh = sweep_kills(false);
    int over = sweep_kills(true);
    print_message("killed at %d points of a first save, %d of an overwriting one\n", fresh, over);
    assert_true(fresh >= 35 && over > fresh);
}

/* Recovery itself is killed at every call, from both states that need it. */
static enum ax_status recover(const char *path) {
    return ax_folder_recover(path);
}

static void a_killed_recovery_can_be_run_again(void **state) {
    (void)state;
    int points = 0;
    for (int renamed = 1; renamed <= 3; renamed++) { /* killed before the rename of that number */
        for (int op = 0; op <= AX_FAULT_MALLOC; op++) {
            bool killed = true;
            for (int k = 1; killed; k++) {
                start_from(true);
                assert_true(killed_at(AX_FAULT_RENAME, renamed, save, "new"));
                killed = killed_at((enum ax_fault_op)op, k, recover, target);
                points += killed;
                assert_int_equal(ax_folder_recover(target), AX_OK);
                assert_int_equal(count_leftovers(), 0);
                char version[16];
                read_version(version, sizeof version);
                assert_string_equal(version, renamed == 3 ? "new" : "old");
            }
        }
    }
    print_message("recovery killed at %d points\n", points);
    assert_true(points >= 30);
}

static void a_failure_at_every_call_is_clean(void **state) {
    (void)state;
    static const char *const kinds[] = {"eio", "enospc", "enomem", "eintr", "short"};
    uint64_t live = ax_mem_live_blocks();
    int points = 0;
    for (int kind = 0; kind < 5; kind++) {
        for (int op = 0; op <= AX_FAULT_MALLOC; op++) {
            for (int k = 1;; k++) {
                start_from(true);
                char spec[64];
                snprintf(spec, sizeof spec, "%s:%d:%s", ax_fault_op_name((enum ax_fault_op)op), k,
                         kinds[kind]);
                if (ax_fault_configure(spec) != AX_OK)
                    break; /* short, where nothing is moved */
                enum ax_status st = save("new");
                bool fired = ax_fault_fired();
                assert_int_equal(ax_fault_configure(NULL), AX_OK);
                char version[16];
                read_version(version, sizeof version);
                assert_string_equal(version, st == AX_OK ? "new" : "old");
                if (st != AX_OK)
                    assert_true(strlen(ax_error_text()) > 0);
                if (op != AX_FAULT_MALLOC && kind >= 3)
                    assert_int_equal(st, AX_OK); /* retried or continued */
                assert_int_equal(ax_folder_recover(target), AX_OK);
                assert_int_equal(count_leftovers(), 0);
                assert_int_equal(ax_mem_live_blocks(), live);
                if (!fired) {
                    assert_int_equal(st, AX_OK);
                    break;
                }
                points++;
            }
        }
    }
    print_message("failed at %d points\n", points);
    assert_true(points >= 150);
}

static void abort_leaves_nothing(void **state) {
    (void)state;
    struct ax_folder d;
    assert_int_equal(ax_folder_begin(&d, target), AX_OK);
    assert_true(ax_path_is_dir(d.tmp));
    assert_int_equal(write_file(d.tmp, "a", "x"), AX_OK);
    ax_folder_abort(&d);
    assert_int_equal(count_leftovers(), 0);
    assert_false(ax_path_exists(target));
    ax_folder_abort(&d);
    struct ax_folder zero = {0};
    ax_folder_abort(&zero);
}

/* Another running process is still writing: its folder stays. */
static void folders_of_the_living_stay(void **state) {
    (void)state;
    char theirs[128];
    char name[160];
    assert_int_equal(save("old"), AX_OK);
    snprintf(theirs, sizeof theirs, "%s.tmp-%ld", target, (long)getppid());
    assert_int_equal(ax_mkdir(theirs), AX_OK);
    static const char *const not_ours[] = {".tmp-", ".tmp-12x", ".tmp-0", "2.tmp-1234567", ".bak"};
    for (size_t i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "%s%s", target, not_ours[i]);
        assert_int_equal(ax_mkdir(name), AX_OK);
    }
    assert_int_equal(ax_folder_recover(target), AX_OK);
    assert_int_equal(save("new"), AX_OK);
    assert_true(ax_path_is_dir(theirs));
    assert_int_equal(count_leftovers(), 6);
}

static void odd_paths(void **state) {
    (void)state;
    struct ax_folder d;
    assert_int_equal(ax_folder_begin(&d, "/"), AX_ERR_CONFIG);
    assert_int_equal(ax_folder_begin(&d, ""), AX_ERR_CONFIG);
    assert_int_equal(ax_folder_recover("/nonexistent/folder/x"), AX_OK);
    assert_int_equal(ax_folder_begin(&d, "/nonexistent/folder/x"), AX_ERR_IO);
    char path[160];
    snprintf(path, sizeof path, "%s/file", dir);
    assert_int_equal(ax_write_file_atomic(path, "x", 1), AX_OK);
    assert_int_equal(ax_folder_begin(&d, path), AX_ERR_IO);
    assert_non_null(strstr(ax_error_text(), "expected a folder"));
    assert_int_equal(ax_unlink(path), AX_OK);
    /* slashes at the end */
    snprintf(path, sizeof path, "%s///", target);
    assert_int_equal(ax_folder_begin(&d, path), AX_OK);
    assert_string_equal(d.path, target);
    assert_int_equal(ax_folder_commit(&d), AX_OK);
    assert_true(ax_path_is_dir(target));
    /* a link: what it points to is replaced, the link stays */
    char link[160];
    snprintf(link, sizeof link, "%s/link", dir);
    assert_int_equal(symlink(target, link), 0);
    assert_int_equal(ax_folder_begin(&d, link), AX_OK);
    assert_int_equal(write_file(d.tmp, "a", "x"), AX_OK);
    assert_int_equal(ax_folder_commit(&d), AX_OK);
    snprintf(path, sizeof path, "%s/a", target);
    assert_true(ax_path_exists(path));
    struct stat info;
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    /* "." */
    assert_int_equal(chdir(target), 0);
    assert_int_equal(ax_folder_begin(&d, "."), AX_OK);
    assert_string_equal(d.path, target);
    ax_folder_abort(&d);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(ax_unlink(link), AX_OK);
}

/* Starts `work` in a child whose k-th rename waits for 200 ms. */
static pid_t start_late(int k, enum ax_status (*work)(const char *), const char *arg) {
    char spec[64];
    snprintf(spec, sizeof spec, "rename:%d:delay", k);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(ax_fault_configure(spec) == AX_OK && work(arg) == AX_OK ? 0 : 1);
    return child;
}

static void succeeds(pid_t child) {
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

/* A reader puts the old folder back while a save has it moved aside, and the save goes on. */
static void a_reader_does_not_stop_a_save(void **state) {
    (void)state;
    char version[8];
    start_from(true);
    const pid_t child = start_late(2, save, "new");
    for (int i = 0; i < 1000 && ax_path_exists(target); i++)
        usleep(1000);
    assert_false(ax_path_exists(target));
    assert_int_equal(ax_folder_recover(target), AX_OK);
    read_version(version, sizeof version);
    assert_string_equal(version, "old");
    succeeds(child);
    read_version(version, sizeof version);
    assert_string_equal(version, "new");
    assert_int_equal(count_leftovers(), 0);
}

/* A save puts the new folder in place while a reader is about to put the old one back. */
static void a_save_does_not_stop_a_reader(void **state) {
    (void)state;
    char version[8], old[96];
    start_from(true);
    snprintf(old, sizeof old, "%s.old-%ld", target, (long)getppid());
    assert_int_equal(rename(target, old), 0);
    const pid_t child = start_late(1, ax_folder_recover, target);
    usleep(50000);
    assert_int_equal(ax_rename(old, target), AX_OK);
    assert_int_equal(ax_mkdir(old), AX_OK); /* still to be removed */
    succeeds(child);
    read_version(version, sizeof version);
    assert_string_equal(version, "old");
}

int main(void) {
#define test_in_dir(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)
    const struct CMUnitTest tests[] = {
        test_in_dir(a_kill_at_every_call_leaves_old_or_new),
        test_in_dir(a_killed_recovery_can_be_run_again),
        test_in_dir(a_failure_at_every_call_is_clean),
        test_in_dir(abort_leaves_nothing),
        test_in_dir(folders_of_the_living_stay),
        test_in_dir(odd_paths),
        test_in_dir(a_reader_does_not_stop_a_save),
        test_in_dir(a_save_does_not_stop_a_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What a reward function has started does not outlive its run: however the run ends, and however the processes have
 * left their session, group and parent. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>
#include <dirent.h>
#include <sys/stat.h>

#include "base/proc.h"
#include "tests/cmd/grpo_case.h"
#include "tests/cmd/background_case.h"

/* Processes that are called `sleep` and sleep for as long as only this test lets them; ends them if so wished. */
static int sleepers(bool ends) {
    char mark[32], path[300], text[256];
    int n = 0;
    snprintf(mark, sizeof mark, "%d", 7000000 + (int)getpid());
    DIR *dir = opendir("/proc");
    for (const struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        snprintf(path, sizeof path, "/proc/%s/cmdline", e->d_name);
        if (!isdigit((unsigned char)e->d_name[0]) || !ax_proc_read(path, text, sizeof text))
            continue;
        if (strcmp(text, "sleep") != 0 || strcmp(text + 6, mark) != 0)
            continue;
        n++;
        if (ends)
            kill((pid_t)atoi(e->d_name), SIGKILL);
    }
    if (dir)
        closedir(dir);
    return n;
}

/* A reward of the letter e: program or Python. In its first call it starts sleepers: one in the background, one
 * in a session of its own, one whose parents are gone. With SCRATCH/stays, the third call lasts. */
static const char *put_starter(bool python) {
    static const char starter[] =
        "#!/usr/bin/env python3\n"
        "import json, os, subprocess, sys, time\n"
        "calls = 0\n"
        "def score(completions):\n"
        "    global calls\n"
        "    calls += 1\n"
        "    if calls == 1:\n"
        "        sleep = ['sleep', '%d']\n"
        "        subprocess.Popen(sleep)\n"
        "        subprocess.Popen(sleep, start_new_session=True)\n"
        "        subprocess.run(['setsid', 'sh', '-c', '(setsid sleep %d &) &'])\n"
        "    if calls == 3:\n"
        "        stat = open('/proc/%%d/stat' %% os.getppid()).read() # of the keeper\n"
        "        with open('%s/waits.part', 'w') as f:\n"
        "            f.write(stat.rsplit(')', 1)[1].split()[1])\n"
        "        os.rename('%s/waits.part', '%s/waits')\n"
        "        if os.path.exists('%s/stays'):\n"
        "            time.sleep(50)\n"
        "    return [float('e' in c) for c in completions]\n"
        "def reward(completions, **kwargs):\n"
        "    return score(completions)\n"
        "if __name__ == '__main__':\n"
        "    for line in sys.stdin:\n"
        "        print(json.dumps({'rewards': score(json.loads(line)['completions'])}), "
        "flush=True)\n";
    static char name[300];
    char text[3000];
    const int mark = 7000000 + (int)getpid();
    snprintf(text, sizeof text, starter, mark, mark, scratch, scratch, scratch, scratch);
    snprintf(name, sizeof name, "%s", put_text("starter.py", text));
    assert_int_equal(chmod(name, 0700), 0);
    return python ? "starter.reward" : name;
}

/* The one whose parents are gone has nobody who waits until it is called `sleep`. */
static void expect_all(const char *before) {
    const double until = ax_clock_now() + 20;
    while (sleepers(false) < 3 && ax_clock_now() < until)
        nap(0.02);
    if (sleepers(false) < 3)
        fail_msg("%s: %d processes have started", before, sleepers(false));
}

static void expect_none(const char *after) {
    const double until = ax_clock_now() + 2;
    while (sleepers(false) > 0 && ax_clock_now() < until)
        nap(0.02);
    const int left = sleepers(true);
    if (left > 0)
        fail_msg("%s: %d processes are left", after, left);
}

enum how { NORMAL, FAILS, KILL_RANK, KILL_LAUNCHER, ASKED };

static void run_ends(const char *launch, bool python, enum how how) {
    char words[1200];
    const char *config = configure("", "micro_batch_size: 4\n");
    (void)unlink(in_scratch("waits"));
    (void)unlink(in_scratch("stays"));
    if (how != NORMAL && how != FAILS)
        put_text("stays", "");
    snprintf(words, sizeof words, "%sgrpo %s output_dir=%s/o --quiet trl.reward_funcs=['%s'%s]",
             launch, config, scratch, put_starter(python), how == FAILS ? ",'/bin/false'" : "");
    const pid_t pid = start(words);
    if (how == NORMAL) {
        assert_int_equal(end(pid, 60), 0);
    } else if (how == FAILS) {
        assert_int_equal(end(pid, 60), 3);
    } else {
        wait_file("waits");
        expect_all(words);
        char *rank = read_text(".", "waits");
        kill(how == KILL_RANK ? (pid_t)atoi(rank) : pid, how == ASKED ? SIGTERM : SIGKILL);
        ax_free(rank);
        (void)end(pid, 20);
    }
    expect_none(words);
    clear("o");
}

static void nothing_outlives_the_run(void **state) {
    (void)state;
    setenv("PYTHONPATH", scratch, 1);
    for (int python = 0; python < 2; python++) {
        run_ends("", python, NORMAL);
        run_ends("", python, FAILS);
        run_ends("", python, KILL_RANK);
        run_ends("", python, ASKED);
        run_ends("launch -n 2 -- ", python, NORMAL);
        run_ends("launch -n 2 -- ", python, KILL_RANK);
        run_ends("launch -n 2 -- ", python, KILL_LAUNCHER);
        run_ends("launch -n 2 -- ", python, ASKED);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_outlives_the_run)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

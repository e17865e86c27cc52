/* Signals that ask a run to stop: while it starts, and while it waits for the rewards of its answers, on one rank
 * or on the only one of two that was asked. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/stat.h>

#include "tests/cmd/grpo_case.h"
#include "tests/cmd/background_case.h"

#define REQUEUE 75

/* ---- while it waits for rewards ---- */

/* A program and Python with the same reward, of the letter e. In the call number `call` of the rank
 * that makes it, they say their parent's number in SCRATCH/waits, and answer after 50 s. */
static void put_slow(int call) {
    static const char judge[] =
        "#!/usr/bin/env python3\n"
        "import json, os, sys, time\n"
        "calls = 0\n"
        "def score(completions):\n"
        "    global calls\n"
        "    calls += 1\n"
        "    if calls == %d and os.path.exists('%s/slow'):\n"
        "        try:\n"
        "            fd = os.open('%s/waits.part', os.O_WRONLY | os.O_CREAT | os.O_EXCL)\n"
        "            stat = open('/proc/%%d/stat' %% os.getppid()).read() # of the keeper\n"
        "            os.write(fd, stat.rsplit(')', 1)[1].split()[1].encode())\n"
        "            os.rename('%s/waits.part', '%s/waits')\n"
        "        except FileExistsError:\n"
        "            pass\n"
        "        time.sleep(50)\n"
        "    return [float('e' in c) for c in completions]\n"
        "def reward(completions, **kwargs):\n"
        "    return score(completions)\n"
        "if __name__ == '__main__':\n"
        "    for line in sys.stdin:\n"
        "        print(json.dumps({'rewards': score(json.loads(line)['completions'])}), "
        "flush=True)\n";
    char text[2000];
    snprintf(text, sizeof text, judge, call, scratch, scratch, scratch, scratch);
    put_text("slow_judge.py", text);
    assert_int_equal(chmod(in_scratch("slow_judge.py"), 0700), 0);
    put_text("slow", "");
}

static void forget(void) {
    (void)unlink(in_scratch("waits"));
    (void)unlink(in_scratch("waits.part"));
    (void)unlink(in_scratch("slow"));
}

/* Signals the run, or the rank that waits, when it waits; then it saves and resumes to the same weights. */
static void stops_while_it_waits(const char *launch, const char *function, int sig, bool rank) {
    char words[1200], more[400], *waits;
    const char *config = configure("", "micro_batch_size: 4\n");
    snprintf(more, sizeof more, "--quiet trl.reward_funcs=['%s']", function);
    put_slow(3);
    snprintf(words, sizeof words, "%sgrpo %s output_dir=%s/b %s", launch, config, scratch, more);
    const pid_t pid = start(words);
    wait_file("waits");
    waits = read_text(".", "waits");
    const double asked = ax_clock_now();
    kill(rank ? (pid_t)atoi(waits) : pid, sig);
    ax_free(waits);
    const int code = end(pid, 20);
    if (code != REQUEUE)
        fail_msg("%s%s, signal %d: code %d: %s", launch, function, sig, code, said);
    if (ax_clock_now() - asked > 8)
        fail_msg("%s%s, signal %d: %g s", launch, function, sig, ax_clock_now() - asked);
    assert_true(ax_path_exists(in_scratch("b/checkpoint-2")));
    forget();
    snprintf(words, sizeof words, "%sgrpo '%s' output_dir='%s/b' %s resume_from_checkpoint=auto",
             launch, config, scratch, more);
    assert_int_equal(run(said, sizeof said, "%s", words), 0);
    assert_true(ax_path_exists(in_scratch("b/checkpoint-4")));
    clear("b");
}

static void calls_are_interrupted(void **state) {
    (void)state;
    char program[300];
    snprintf(program, sizeof program, "%s/slow_judge.py", scratch);
    setenv("PYTHONPATH", scratch, 1);
    stops_while_it_waits("", program, SIGTERM, false);
    stops_while_it_waits("", "slow_judge.reward", SIGUSR1, false);
    stops_while_it_waits("launch -n 2 -- ", program, SIGTERM, false);
    stops_while_it_waits("launch -n 2 -- ", program, SIGTERM, true); /* one rank alone */
}

/* ---- while it starts ---- */

/* Until its main has begun (it catches SIGUSR1): before that, the moments are the dynamic linker's. */
static void wait_main(pid_t pid) {
    char path[64], line[128];
    unsigned long long caught = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    for (const double until = ax_clock_now() + 0.5; !caught && ax_clock_now() < until; nap(0.001)) {
        FILE *f = fopen(path, "r");
        while (f && fgets(line, sizeof line, f))
            if (strncmp(line, "SigCgt:", 7) == 0)
                caught = strtoull(line + 7, NULL, 16) >> (SIGUSR1 - 1) & 1;
        if (f)
            fclose(f);
    }
}

/* At many moments of the first second. */
static void the_start_is_interrupted(void **state) {
    (void)state;
    static const int signals[] = {SIGTERM, SIGUSR1, SIGHUP};
    static const char *const launches[] = {"", "launch -n 2 -- "};
    const char *config = configure("", "micro_batch_size: 4\n");
    char words[600], bad[4000] = "";
    int early = 0;
    for (int l = 0; l < 2; l++)
        for (int ms = 0, i = 0; ms <= 1000; ms += ms < 300 ? 15 : 100, i++) {
            snprintf(words, sizeof words,
                     "%sgrpo %s output_dir=%s/b --quiet max_steps=2000 save_steps=1000",
                     launches[l], config, scratch);
            if (ax_path_exists(in_scratch("b")))
                clear("b");
            const pid_t pid = start(words);
            wait_main(pid);
            nap(ms / 1e3);
            kill(pid, signals[i % 3]);
            const int code = end(pid, 20);
            if (code != REQUEUE)
                snprintf(bad + strlen(bad), sizeof bad - strlen(bad),
                         "%sat %d ms, signal %d: %d\n%s\n", launches[l], ms, signals[i % 3], code,
                         l ? "" : said);
            const bool nothing = strstr(said, "nothing was to be saved") != NULL;
            if (nothing && strstr(said, "have saved what they had"))
                fail_msg("%sat %d ms: %s", launches[l], ms, said);
            early += nothing;
        }
    if (*bad)
        fail_msg("%s", bad);
    assert_true(early > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_interrupted),
        cmocka_unit_test(the_start_is_interrupted),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

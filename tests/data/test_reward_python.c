/* Rewards in child processes: the user's Python and programs, good ones, and all that can go wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/fault.h"
#include "tests/data/process_case.h"
#include "tests/data/scratch.h"
#include "tests/data/reward_case.h"

static const char functions[] =
    "import asyncio, json, os, sys, threading, time\n"
    "calls = []\n"
    "def kwargs(prompts, completions, **kwargs):\n"
    "    assert sorted(kwargs) == ['answer', 'completion_ids', 'level', 'log_extra', 'log_metric', "
    "'trainer_state'], kwargs\n"
    "    assert vars(kwargs['trainer_state']) == dict(global_step=0, max_steps=0, epoch=0)\n"
    "    assert kwargs['completion_ids'] == [[1, 2, 3]] * len(prompts)\n"
    "    assert kwargs['level'] == [1] + [None] * (len(prompts) - 1)\n"
    "    return [float(c == a) for c, a in zip(completions, kwargs['answer'])]\n"
    "def few(completions, answer):\n"
    "    return [len(c) for c in completions]\n"
    "async def asynchronous(completions, **kwargs):\n"
    "    await asyncio.sleep(0.01)\n"
    "    return (0.5 for c in completions)\n"
    "class Judge:\n"
    "    def __call__(self, completions, **kwargs):\n"
    "        return [2 for c in completions]\n"
    "judge = Judge()\n"
    "def echo(prompts, completions, **kwargs):\n"
    "    print(json.dumps([prompts, completions]))\n"
    "    return [1] * len(prompts)\n"
    "def nones(completions, **kwargs):\n"
    "    return [None, True, 3][:len(completions)]\n"
    "def nans(completions, **kwargs):\n"
    "    return [float('nan'), 1.5, float('-inf')][:len(completions)]\n"
    "def short(completions, **kwargs):\n"
    "    return [1.0]\n"
    "def text(completions, **kwargs):\n"
    "    return ['good' for c in completions]\n"
    "def nothing(completions, **kwargs):\n"
    "    pass\n"
    "def helper(x):\n"
    "    return json.loads(x)\n"
    "def raises(completions, **kwargs):\n"
    "    return [helper('{') for c in completions]\n"
    "def exits(completions, **kwargs):\n"
    "    sys.exit(5)\n"
    "def undecodable(completions, **kwargs):\n"
    "    raise ValueError('\\udc80\\x00\\x1b[31m\\n\\u00e9')\n"
    "def hangs(completions, **kwargs):\n"
    "    while True: pass\n"
    "def dies(completions, **kwargs):\n"
    "    sys.stderr.write('last words')\n"
    "    sys.stderr.flush()\n"
    "    os._exit(3)\n"
    "def killed(completions, **kwargs):\n"
    "    os.kill(os.getpid(), 9)\n"
    "def floods(completions, **kwargs):\n"
    "    for i in range(3000):\n"
    "        print('out', i, 'x' * 100)\n"
    "        print('err', i, 'x' * 100, file=sys.stderr)\n"
    "    os.system('echo from a process')\n"
    "    sys.stderr.write('y' * 300000)\n"
    "    return [1] * len(completions)\n"
    "def later(completions, **kwargs):\n"
    "    def flood():\n"
    "        while True: os.write(2, b'z' * 65536)\n"
    "    if not calls: threading.Thread(target=flood, daemon=True).start()\n"
    "    calls.append(1)\n"
    "    return [1] * len(completions)\n"
    "def reads(completions, **kwargs):\n"
    "    return [len(sys.stdin.read()) for c in completions]\n"
    "def once(completions, **kwargs):\n"
    "    if not os.path.exists('once'):\n"
    "        open('once', 'w').close()\n"
    "        os._exit(1)\n"
    "    return [4] * len(completions)\n"
    "def turns(completions, **kwargs):\n"
    "    calls.append(1)\n"
    "    if len(calls) % 3: raise KeyError('x')\n"
    "    return [1] * len(completions)\n"
    "def inherited(completions, **kwargs):\n"
    "    fds = [int(x) for x in os.listdir('/proc/self/fd')]\n"
    "    kinds = [os.readlink(f'/proc/self/fd/{x}') for x in fds if "
    "os.path.exists(f'/proc/self/fd/{x}')]\n"
    "    print('OPEN', *[k for k in kinds if not k.startswith(('socket:', '/dev/null', "
    "'/proc'))])\n"
    "    return [len(fds)] * len(completions)\n"
    "def terminates(completions, **kwargs):\n"
    "    import multiprocessing\n"
    "    p = multiprocessing.get_context('fork').Process(target=time.sleep, args=(1000,))\n"
    "    p.start()\n"
    "    p.terminate()\n"
    "    p.join(5)\n"
    "    return [p.exitcode] * len(completions)\n"
    "constant = 1\n"
    "def huge(completions, **kwargs):\n"
    "    return [1e308, 1e30, -2e30][:len(completions)]\n";

static struct reward_items items;
static struct ax_rewards *rewards;

static int set_up(void **state) {
    if (enter_scratch(state, functions) != 0)
        return -1;
    (void)put_text("json_helper.py",
                   "def f(completions, **kwargs): return [1 for c in completions]\n");
    (void)put_text("queue.py", "raise SystemExit('not the library')\n"); /* the harness uses one */
    for (int i = 0; i < 3; i++)
        items.ids[i] = i + 1;
    return 0;
}

static int tear_down(void **state) {
    return leave_scratch(state);
}

static int begin(void **state) {
    (void)state;
    add_item(&items, "a", "{\"answer\": \"a\", \"level\": 1, \"prompt\": \"What?\"}");
    add_item(&items, "\xc3\xa9\n", "{\"answer\": \"b\", \"completion\": \"no\"}");
    add_item(&items, "c", "{\"answer\": \"c\", \"trainer_state\": 3}");
    return 0;
}

static int end(void **state) {
    (void)state;
    ax_rewards_close(rewards);
    rewards = NULL;
    free_items(&items);
    return 0;
}

static void open_python(const char *name, double timeout) {
    assert_ok(open_named(&rewards, name, (struct ax_rewards_options){.timeout = timeout}));
}

/* What is written to standard error between the two calls. */
static int kept_stderr;

static void catch_log(void) {
    const int fd = open("log", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    fflush(stderr);
    kept_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    assert_true(fd >= 0 && dup2(fd, STDERR_FILENO) >= 0);
    close(fd);
    ax_log_set_level(AX_LOG_INFO);
}

static const char *caught_log(void) {
    static char text[65536];
    char *data;
    size_t n;
    ax_log_set_level(AX_LOG_ERROR);
    dup2(kept_stderr, STDERR_FILENO);
    close(kept_stderr);
    assert_ok(ax_read_file("log", sizeof text - 1, &data, &n));
    memcpy(text, data, n + 1);
    ax_free(data);
    return text;
}

#define assert_in(text, part)                                                                      \
    do {                                                                                           \
        if (strstr(text, part) == NULL)                                                            \
            fail_msg("\"%s\" is not in: %s", part, text);                                          \
    } while (0)

static size_t count_in(const char *text, const char *part) {
    size_t n = 0;
    for (; (text = strstr(text, part)) != NULL; text++)
        n++;
    return n;
}

static void assert_scores(size_t n, double a, double b, double c) {
    double out[3] = {-7, -7, -7};
    const double expected[3] = {a, b, c};
    assert_ok(ax_rewards_score(rewards, n, items.item, out));
    for (size_t i = 0; i < n; i++)
        if (out[i] != expected[i] && !(isnan(out[i]) && isnan(expected[i])))
            fail_msg("reward %zu is %g instead of %g", i, out[i], expected[i]);
}

/* ---- functions that work ---- */

static void as_users_write_them(void **state) {
    (void)state;
    open_python("mine.kwargs", 0);
    assert_scores(2, 1, 0, 0);
    assert_scores(3, 1, 0, 1);
    end(NULL);
    begin(NULL);
    open_python("mine.few", 0);
    assert_scores(3, 1, 2, 1);
    assert_scores(0, 0, 0, 0);
    end(NULL);
    begin(NULL);
    open_python("mine.asynchronous", 0);
    assert_scores(3, 0.5, 0.5, 0.5);
    assert_scores(1, 0.5, 0, 0);
    end(NULL);
    begin(NULL);
    open_python("mine.judge", 0);
    assert_scores(2, 2, 2, 0);
    end(NULL);
    begin(NULL);
    open_python("mine.reads", 0);
    assert_scores(2, 0, 0, 0);
}

/* All Python is in one process, and beside built-ins. */
static void together(void **state) {
    const struct ax_reward_function all[] = {{.name = "mine.few", .weight = 1},
                                             {.name = "exact", .weight = 1},
                                             {.name = "json_helper.f", .weight = 1}};
    double out[9];
    (void)state;
    assert_ok(ax_rewards_open(
        &rewards,
        &(struct ax_rewards_options){.functions = all, .n = 3, .program = getenv("AX_TEST_BIN")}));
    assert_ok(ax_rewards_score(rewards, 3, items.item, out));
    static const double expected[9] = {1, 1, 1, 2, 0, 1, 1, 1, 1};
    for (int i = 0; i < 9; i++)
        assert_true(out[i] == expected[i]);
}

static void prompts_and_chats(void **state) {
    (void)state;
    items.item[2].chat = true;
    open_python("mine.echo", 0);
    catch_log();
    assert_scores(3, 1, 1, 1);
    assert_in(caught_log(), "info rewards: mine: [[\"What?\", \"rendered\", \"rendered\"], [\"a\", "
                            "\"\\u00e9\\n\", [{\"role\": \"assistant\", \"content\": \"c\"}]]]\n");
    items.item[0].completion = "x\xff";
    items.item[0].n = 2;
    catch_log();
    assert_scores(1, 1, 1, 1);
    assert_in(caught_log(), "[[\"What?\"], [\"x\\ufffd\"]]\n");
}

static void no_reward(void **state) {
    (void)state;
    open_python("mine.nones", 0);
    catch_log();
    assert_scores(3, NAN, 1, 3);
    assert_string_equal(caught_log(), "");
    assert_int_equal(ax_rewards_counters(rewards, 0)->nones, 1);
    assert_int_equal(ax_rewards_counters(rewards, 0)->failures, 0);
    end(NULL);
    begin(NULL);
    open_python("mine.nans", 0);
    catch_log();
    assert_scores(3, NAN, 1.5, NAN);
    assert_in(caught_log(),
              "warn rewards: mine.nans: 2 of 3 rewards are NaN, infinite or beyond 1e30");
    assert_int_equal(ax_rewards_counters(rewards, 0)->nones, 2);
    end(NULL);
    begin(NULL);
    open_python("mine.huge", 0);
    catch_log();
    assert_scores(3, NAN, 1e30, NAN);
    assert_in(caught_log(),
              "warn rewards: mine.huge: 2 of 3 rewards are NaN, infinite or beyond 1e30");
}

/* ---- functions that fail ---- */

static void fails(const char *name, const char *why) {
    double out[3] = {0, 0, 0};
    if (rewards) {
        end(NULL);
        begin(NULL);
    }
    open_python(name, 0);
    for (int i = 1; i <= 3; i++) {
        catch_log();
        const enum ax_status st = ax_rewards_score(rewards, 3, items.item, out);
        const char *log = caught_log();
        assert_in(log, why);
        assert_int_equal(count_in(log, "warn "), 1);
        assert_int_equal(st, i < 3 ? AX_OK : AX_ERR_DATA);
        for (int k = 0; k < 3; k++)
            assert_true(i == 3 || isnan(out[k]));
    }
    assert_in(ax_error_text(), "failed 3 times in a row; the last: ");
    assert_in(ax_error_text(), name);
    assert_int_equal(ax_rewards_counters(rewards, 0)->calls, 3);
    assert_int_equal(ax_rewards_counters(rewards, 0)->failures, 3);
    assert_int_equal(ax_rewards_counters(rewards, 0)->nones, 9);
    assert_int_equal(ax_rewards_counters(rewards, 0)->timeouts, 0);
}

static void failures(void **state) {
    (void)state;
    fails("mine.short", "warn rewards: mine.short: wrong number of rewards: 1 for 3 completions");
    fails("mine.text", "mine.text: exception: it must return a list of numbers or None, not "
                       "['good', 'good', 'good'] (could not convert string to float: 'good')");
    fails("mine.nothing", "it must return a list of numbers or None, not None");
    fails("mine.raises",
          "mine.raises: exception: JSONDecodeError: Expecting property name enclosed "
          "in double quotes: line 1 column 2 (char 1) (mine.py:32). No rewards");
    fails("mine.exits", "exception: SystemExit: 5 (mine.py:36)");
    fails("mine.undecodable", "exception: ValueError: ?");
    fails("mine.dies", "mine.dies: it died: exit code 3. No rewards");
    fails("mine.killed", "mine.killed: it died: signal 9, Killed. No rewards");
}

static void two_failures_and_a_success(void **state) {
    (void)state;
    open_python("mine.turns", 0);
    for (int i = 1; i <= 9; i++)
        assert_scores(1, i % 3 ? NAN : 1, 0, 0);
    assert_int_equal(ax_rewards_counters(rewards, 0)->failures, 6);
}

static void another_child(void **state) {
    const struct ax_reward_function all[] = {{.name = "mine.once", .weight = 1},
                                             {.name = "mine.few", .weight = 1}};
    double out[2];
    (void)state;
    assert_ok(ax_rewards_open(
        &rewards,
        &(struct ax_rewards_options){.functions = all, .n = 2, .program = getenv("AX_TEST_BIN")}));
    assert_ok(ax_rewards_score(rewards, 1, items.item, out));
    assert_true(isnan(out[0]) && out[1] == 1); /* it died, and the other one was loaded again */
    assert_ok(ax_rewards_score(rewards, 1, items.item, out));
    assert_true(out[0] == 4 && out[1] == 1);
}

static void hanging(void **state) {
    (void)state;
    open_python("mine.hangs", 0.3);
    catch_log();
    assert_scores(2, NAN, NAN, 0);
    assert_in(caught_log(), "mine.hangs: timeout: no answer within 0.3 s. No rewards");
    assert_int_equal(ax_rewards_counters(rewards, 0)->timeouts, 1);
    assert_int_equal(ax_rewards_counters(rewards, 0)->failures, 1);
    assert_scores(1, NAN, 0, 0); /* in a new child */
    assert_int_equal(ax_rewards_counters(rewards, 0)->timeouts, 2);
}

static void flooding(void **state) {
    (void)state;
    open_python("mine.floods", 0);
    for (int i = 0; i < 2; i++) {
        catch_log();
        assert_scores(3, 1, 1, 1);
        const char *log = caught_log();
        assert_int_equal(count_in(log, "info rewards: mine: "), 21);
        assert_in(log, "info rewards: mine: out 0 xxx");
        assert_in(log, "info rewards: mine: err 0 xxx");
        assert_in(log, "info rewards: mine: … 6567 more lines\n");
    }
    end(NULL);
    begin(NULL);
    open_python("mine.later", 0);
    catch_log();
    for (int i = 0; i < 5; i++)
        assert_scores(3, 1, 1, 1); /* it writes on and on */
    assert_true(strlen(caught_log()) < 65000);
}

static void last_words(void **state) {
    (void)state;
    open_python("mine.dies", 0);
    catch_log();
    assert_scores(1, NAN, 0, 0);
    assert_in(caught_log(), "info rewards: mine: last words\n");
}

/* ---- what is not there, or not allowed ---- */

static void load_errors(void **state) {
    static const struct {
        const char *name, *part;
    } cases[] = {
        {"nowhere.f",
         "reward function \"nowhere.f\": ModuleNotFoundError: No module named 'nowhere'"},
        {"mine.kwarg",
         "reward function \"mine.kwarg\": mine.py has no function kwarg; did you mean "
         "kwargs?"},
        {"mine.constant", "mine.constant is of type int, which cannot be called"},
        {"broken.f", "SyntaxError: "},
        {"broken.f", "(broken.py:2)"},
        {"missing.f", "ModuleNotFoundError: No module named 'numpyy' (missing.py:3)"},
        {"leaves.f", "SystemExit: bye (leaves.py:1)"},
        {"vanishes.f", "it died while it was loaded: exit code 9"},
        {"sleeps.f", "timeout while it was loaded: no answer within 1 s"},
    };
    (void)state;
    (void)put_text("broken.py", "x = 1\ndef f(:\n");
    (void)put_text("missing.py", "# a\n\nimport numpyy\ndef f(**kwargs): pass\n");
    (void)put_text("leaves.py", "raise SystemExit('bye')\n");
    (void)put_text("vanishes.py", "import os; os._exit(9)\n");
    (void)put_text("sleeps.py", "import time; time.sleep(100)\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool slow = strcmp(cases[i].name, "sleeps.f") == 0;
        const struct ax_rewards_options o = {.start_timeout = slow ? 1 : 0};
        assert_error(open_named(&rewards, cases[i].name, o), AX_ERR_CONFIG, cases[i].part);
        assert_null(strchr(ax_error_text(), '\n'));
        assert_null(strstr(ax_error_text(), "importlib")); /* no place of the user's */
    }
    const struct ax_rewards_options nowhere = {.python = "/nowhere/python3"};
    assert_error(open_named(&rewards, "mine.few", nowhere), AX_ERR_CONFIG,
                 "cannot start /nowhere/python3: No such file or directory. Install Python, or "
                 "name one in AXTRAIN_PYTHON");
    setenv("AXTRAIN_PYTHON", "/nowhere/too", 1);
    assert_error(open_named(&rewards, "mine.few", (struct ax_rewards_options){0}), AX_ERR_CONFIG,
                 "cannot start /nowhere/too");
    unsetenv("AXTRAIN_PYTHON");
}

/* No descriptor of ours: four sockets and what it opened itself. */
static void what_a_child_inherits(void **state) {
    (void)state;
    const int fd = open("mine.py", O_RDONLY); /* NOLINT: inherited unless the child closes it */
    open_python("mine.inherited", 0);
    catch_log();
    double out[1];
    assert_ok(ax_rewards_score(rewards, 1, items.item, out));
    assert_in(caught_log(), "info rewards: mine: OPEN\n");
    close(fd);
}

static pid_t read_pid(const char *path) {
    char *text;
    size_t n;
    assert_ok(ax_read_file(path, 100, &text, &n));
    const pid_t pid = (pid_t)strtol(text, NULL, 10);
    ax_free(text);
    assert_true(pid > 0);
    return pid;
}

static const struct timespec nap = {.tv_nsec = 10000000};

/* A signal that a child does not get, as the run's end is not for it to see, ends processes that it forks: workers of a
 * pool, say. */
static void workers_of_a_function(void **state) {
    (void)state;
    open_python("mine.terminates", 10);
    assert_scores(1, -SIGTERM, 0, 0);
}

/* What a function has started is killed with its child. */
static void processes_of_a_function(void **state) {
    (void)state;
    (void)put_text("starts.py", "import subprocess\n"
                                "def f(completions, **kwargs):\n"
                                "    p = subprocess.Popen(['sleep', '1000'])\n"
                                "    open('sleep', 'w').write(str(p.pid))\n"
                                "    p.wait()\n");
    open_python("starts.f", 2);
    assert_scores(1, NAN, 0, 0);
    const pid_t sleeper = read_pid("sleep");
    wait_for_end(sleeper);
}

/* A process that is killed leaves no child behind, even if the child is busy. */
static void the_end_of_the_run(void **state) {
    (void)state;
    (void)put_text("busy.py", "import os\n"
                              "def f(completions, **kwargs):\n"
                              "    open('pid.tmp', 'w').write(str(os.getpid()))\n"
                              "    os.rename('pid.tmp', 'pid')\n"
                              "    while True: pass\n");
    const pid_t run = fork();
    if (run == 0) {
        double out[1];
        if (open_named(&rewards, "busy.f", (struct ax_rewards_options){0}) == AX_OK)
            (void)ax_rewards_score(rewards, 1, items.item, out);
        _exit(1);
    }
    while (!ax_path_exists("pid") && is_running(run))
        nanosleep(&nap, NULL);
    const pid_t child = read_pid("pid");
    assert_true(is_running(child));
    kill(run, SIGKILL);
    waitpid(run, NULL, 0);
    wait_for_end(child);
}

/* ---- programs ---- */

static const char *put_program(const char *name, const char *text) {
    const char *path = put_text(name, text);
    assert_int_equal(chmod(path, 0700), 0);
    return path;
}

static void programs(void **state) {
    static const struct {
        const char *name, *text, *log;
        double reward;
    } cases[] = {
        {"good", "#!/bin/sh\nwhile read -r x; do echo '{\"rewards\": [0.25], \"more\": 1}'; done\n",
         "", 0.25},
        {"null", "#!/bin/sh\nwhile read -r x; do echo '{\"rewards\": [null]}'; done\n", "", NAN},
        {"once",
         "#!/bin/sh\nread -r x; echo says hello >&2; echo '{\"rewards\": [1]}'; read -r x\n",
         "info rewards: once: says hello\n", 1},
        {"sees", "#!/bin/sh\nread -r x; echo \"$x\" >&2; echo '{\"rewards\": [1]}'; read -r x\n",
         "sees\",\"prompts\":[\"What?\"],\"completions\":[\"a\"],\"completion_ids\":[[1,2,3]],"
         "\"columns\":{\"answer\":[\"a\"],\"level\":[1]},\"trainer_state\":{\"global_step\":0,"
         "\"max_steps\":0,\"epoch\":0}}\n",
         1},
        {"error", "#!/bin/sh\nread -r x; echo '{\"error\": \"no judge\"}'; read -r x\n",
         "error: exception: no judge. No rewards", NAN},
        {"rubbish", "#!/bin/sh\nread -r x; echo hello; read -r x\n",
         "rubbish: not an answer: its line:1:1: invalid token near 'hello'", NAN},
        {"list", "#!/bin/sh\nread -r x; echo '[1]'; read -r x\n",
         "list: not an answer: the line has neither a list", NAN},
        {"word", "#!/bin/sh\nread -r x; echo '{\"rewards\": [\"good\"]}'; read -r x\n",
         "word: not an answer: rewards[0] is neither a number nor null", NAN},
        {"many", "#!/bin/sh\nread -r x; echo '{\"rewards\": [1, 2]}'; read -r x\n",
         "many: wrong number of rewards: 2 for 1 completions", NAN},
        {"two", "#!/bin/sh\nread -r x; printf '{\"rewards\": [1]}\\nx\\n'; read -r x\n",
         "two: not an answer: more than one line", NAN},
        {"endless", "#!/bin/sh\nexec tr '\\n' x </dev/zero\n",
         "endless: not an answer: a line of more than 65600 bytes", NAN},
        {"gone", "#!/bin/sh\nexit 4\n", "gone: it died: exit code 4", NAN},
        {"mute", "#!/bin/sh\nexec >&-\nread -r x; sleep 100\n",
         "mute: it died: it closed its standard output", NAN},
        {"slow", "#!/bin/sh\nsleep 100\n", "slow: timeout: no answer within 2 s", NAN},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double out[1] = {-7};
        const struct ax_rewards_options o = {.timeout = strcmp(cases[i].name, "slow") ? 30 : 2};
        assert_ok(open_named(&rewards, put_program(cases[i].name, cases[i].text), o));
        catch_log();
        assert_ok(ax_rewards_score(rewards, 1, items.item, out));
        const char *log = caught_log();
        assert_in(log, cases[i].log);
        if (cases[i].log[0] == '\0')
            assert_string_equal(log, "");
        if (out[0] != cases[i].reward && !(isnan(out[0]) && isnan(cases[i].reward)))
            fail_msg("%s: reward %g", cases[i].name, out[0]);
        ax_rewards_close(rewards);
        rewards = NULL;
    }
    assert_error(
        open_named(&rewards, put_program("text", "no program"), (struct ax_rewards_options){0}),
        AX_ERR_CONFIG, "/text: Exec format error");
}

/* An answer too many is not taken for the next call's. */
static void out_of_step(void **state) {
    double out[1] = {-7};
    (void)state;
    const char *path = put_program(
        "banner", "#!/bin/sh\necho hello\nwhile read -r x; do echo '{\"rewards\": [1]}'; done\n");
    assert_ok(open_named(&rewards, path, (struct ax_rewards_options){0}));
    for (int i = 0; i < 2; i++) {
        assert_ok(ax_rewards_score(rewards, 1, items.item, out));
        assert_true(isnan(out[0]));
    }
    assert_error(ax_rewards_score(rewards, 1, items.item, out), AX_ERR_DATA,
                 "failed 3 times in a row; the last: not an answer: ");
}

/* With every allocation failing once: an error that says so, and nothing left behind. */
static void out_of_memory(void **state) {
    double out[6];
    (void)state;
    const char *path =
        put_program("fine", "#!/bin/sh\nwhile read -r x; do echo '{\"rewards\": [1, 2]}'; done\n");
    const struct ax_reward_function all[] = {{.name = path, .weight = 1},
                                             {.name = "format:a", .weight = 1},
                                             {.name = "final_answer", .weight = 1}};
    const struct ax_rewards_options o = {
        .functions = all, .n = 3, .program = getenv("AX_TEST_BIN")};
    items.item[1].completion = "#### \xff";
    items.item[1].n = 6;
    static const double expected[6] = {1, 1, 0, 2, 0, 0};
    bool fired = true;
    int failures = 0;
    for (int k = 1; fired; k++) {
        char fault[64];
        snprintf(fault, sizeof fault, "malloc:%d:enomem", k);
        assert_ok(ax_fault_configure(fault));
        enum ax_status st = ax_rewards_open(&rewards, &o);
        if (st == AX_OK)
            st = ax_rewards_score(rewards, 2, items.item, out);
        fired = ax_fault_fired();
        assert_ok(ax_fault_configure(NULL));
        if (st != AX_OK && (!fired || st != AX_ERR_NOMEM))
            fail_msg("allocation %d: status %d: %s", k, (int)st, ax_error_text());
        for (int i = 0; i < 6 && st == AX_OK; i++) /* some are not needed */
            assert_true(out[i] == expected[i]);
        failures += st != AX_OK;
        ax_rewards_close(rewards);
        rewards = NULL;
    }
    assert_true(failures > 20);
}

/* A question of many megabytes to a program that does not read it before it has written a lot. */
static void large_questions(void **state) {
    (void)state;
    char *big;
    const size_t n = 5000000;
    assert_ok(ax_alloc(&big, n + 1, 1));
    memset(big, 'x', n);
    items.item[1].completion = big;
    items.item[1].n = n;
    items.item[0].n_ids = 8000;
    open_python("mine.few", 0);
    assert_scores(2, 1, (double)n, 0);
    assert_scores(3, 1, (double)n, 1);
    ax_free(big);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(as_users_write_them, begin, end),
        cmocka_unit_test_setup_teardown(together, begin, end),
        cmocka_unit_test_setup_teardown(prompts_and_chats, begin, end),
        cmocka_unit_test_setup_teardown(no_reward, begin, end),
        cmocka_unit_test_setup_teardown(failures, begin, end),
        cmocka_unit_test_setup_teardown(two_failures_and_a_success, begin, end),
        cmocka_unit_test_setup_teardown(another_child, begin, end),
        cmocka_unit_test_setup_teardown(hanging, begin, end),
        cmocka_unit_test_setup_teardown(flooding, begin, end),
        cmocka_unit_test_setup_teardown(last_words, begin, end),
        cmocka_unit_test_setup_teardown(load_errors, begin, end),
        cmocka_unit_test_setup_teardown(what_a_child_inherits, begin, end),
        cmocka_unit_test_setup_teardown(workers_of_a_function, begin, end),
        cmocka_unit_test_setup_teardown(processes_of_a_function, begin, end),
        cmocka_unit_test_setup_teardown(the_end_of_the_run, begin, end),
        cmocka_unit_test_setup_teardown(programs, begin, end),
        cmocka_unit_test_setup_teardown(out_of_step, begin, end),
        cmocka_unit_test_setup_teardown(out_of_memory, begin, end),
        cmocka_unit_test_setup_teardown(large_questions, begin, end),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

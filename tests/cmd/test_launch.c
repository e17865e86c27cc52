/* `axtrain launch`: what becomes of ranks that work, fail, die or are signalled, and of the ranks
 * that other launchers start. The ranks run `check mesh`, `bench step` or `sft`. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <math.h>

#include "base/clock.h"
#include "base/text/json.h"
#include "parallel/fabric/comm_gloo.h"
#include "parallel/job/net.h"
#include "tests/cmd/program_case.h"

static char out[1 << 16];

static void has(const char *part) {
    if (!strstr(out, part))
        fail_msg("\"%s\" lacks \"%s\"", out, part);
}

static void lacks(const char *part) {
    if (strstr(out, part))
        fail_msg("\"%s\" has \"%s\"", out, part);
}

#define CONFIG                                                                                     \
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"vocab_size\": 96, "  \
    "\"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 2, "                   \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8, "                    \
    "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\"}"

static char model[64] = "/tmp/axtrain-launch-XXXXXX";

static int put_model(void **state) {
    (void)state;
    char path[96];
    if (!mkdtemp(model))
        return -1;
    snprintf(path, sizeof path, "%s/config.json", model);
    if (ax_write_file_atomic(path, CONFIG, strlen(CONFIG)) != AX_OK)
        return -1;
    return ax_gloo_available() == AX_OK ? 0 : -1;
}

static int remove_model(void **state) {
    (void)state;
    return ax_remove_tree(model) == AX_OK ? 0 : -1;
}

#define CHECK "check mesh %s/config.json --micro-batches 2 --tokens 16 "

static void ranks_find_each_other(void **state) {
    (void)state;
    assert_int_equal(run(out, sizeof out, "launch -n 2 -- " CHECK "dp_shard=2", model), 0);
    has("ranks as processes");
    has(" checks passed, 0 failed\n");
    lacks("[0]");
    assert_int_equal(run(out, sizeof out, "launch -n 2 --output all -- " CHECK "tp=2", model), 0);
    has("\n[0] ");
    has(" checks passed, 0 failed\n");
    assert_int_equal(
        run(out, sizeof out, "launch -n 2 --master-addr 0.0.0.0 -- " CHECK "tp=2", model), 0);
    assert_int_equal(run(out, sizeof out, "launch -n 2 -- " CHECK "tp=4", model), 2);
    has("check mesh: the mesh has 4 ranks, but WORLD_SIZE is 2");
}

/* The command begins at `--`, or at the first word that belongs to no option of launch. */
static void two_dashes_may_be_left_out(void **state) {
    (void)state;
    assert_int_equal(run(out, sizeof out, "launch -n 2 " CHECK "dp_shard=2", model), 0);
    has("ranks as processes");
    assert_int_equal(
        run(out, sizeof out, "launch --output=all -n 2 --timeout 60 " CHECK "tp=2", model), 0);
    has("\n[0] ");
    assert_int_equal(run(out, sizeof out, "launch sft c.yaml"), 2);
    has("launch: -n is missing");
    assert_int_equal(run(out, sizeof out, "launch -n 2"), 2);
    has("launch: the command is missing");
    assert_int_equal(run(out, sizeof out, "launch -n 2 --"), 2);
    has("launch: the command is missing");
    assert_int_equal(run(out, sizeof out, "launch -n 2 stf c.yaml"), 2);
    has("did you mean");
    assert_int_equal(run(out, sizeof out, "launch -n 2 -m sft c.yaml"), 2);
    has("launch: unexpected argument \"-m\"");
}

/* Each process would do all of it, and write to the same place. */
static void what_one_process_does_is_refused(void **state) {
    (void)state;
    static const char *const words[] = {"problems --rows 2", "-- convert a b", "help",
                                        "launch -n 2 env", "preview c.yaml"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        assert_int_equal(run(out, sizeof out, "launch -n 2 %s", words[i]), 2);
        has(" works in one process; run `axtrain ");
    }
    assert_int_equal(run(out, sizeof out, "launch -n 2 env"), 0);
}

static double value_of(const json_t *v, size_t i, const char *key) {
    const json_t *figure = json_array_get(json_object_get(v, "results"), i);
    return json_number_value(json_object_get(figure, key));
}

static double gflops_of(const json_t *ops, const char *op) {
    return json_number_value(json_object_get(json_object_get(ops, op), "gflops"));
}

/* A step on ranks: only rank 0 reports, and counts what all data ranks did. */
static void a_step_runs_on_ranks(void **state) {
    (void)state;
#define STEP "bench step --arch llama-tiny --seq 64 --steps 2 --dtype float32 --mesh "
    assert_int_equal(run(out, sizeof out, "launch -n 2 --output all -- " STEP "dp_shard=2"), 0);
    has("[0] step/llama-tiny/float32/2x64/dp_shard2/speed");
    lacks("[1]");
    assert_int_equal(run(out, sizeof out, "launch -n 4 -- " STEP "dp_shard=2,pp=2"), 0);
    has("step/llama-tiny/float32/2x64/pp2-dp_shard2/speed");
    int64_t sums[4] = {0};
    for (int zero = 1; zero <= 3; zero++) {
        static const char *const names[] = {"", "/zero1", "/zero2", ""};
        char name[100];
        assert_int_equal(run(out, sizeof out,
                             "launch -n 2 -- " STEP "dp_shard=2 --accumulate 2 --json --zero %d",
                             zero),
                         0);
        snprintf(name, sizeof name, "step/llama-tiny/float32/2x64x2%s/dp_shard2/", names[zero]);
        has(name);
        json_t *v = json_loads(strchr(out, '{'), 0, NULL);
        const double speed = value_of(v, 0, "value");
        const double share = value_of(v, 0, "share_of_peak");
        const double made = value_of(v, 1, "value");
        const double peak = json_number_value(json_object_get(json_object_get(v, "peak"), "flops"));
        const json_t *step = json_object_get(v, "step"), *ops = json_object_get(step, "ops");
        const double median =
            512 / json_number_value(json_object_get(step, "tokens_per_second_median"));
        const double products = gflops_of(ops, "gemm") + gflops_of(ops, "attention_forward") +
                                gflops_of(ops, "attention_backward");
        /* two ranks, and micro-batches, of two rows of 64 tokens; the FLOPs of each rank are its own */
        assert_true(fabs(made * median / products - 1) < 1e-9);
        /* per token 6 for each weight of two layers and the head, and half of attention's scores and values */
        const double flops = 6.0 * (2 * 43008 + 512 * 64) + 6 * (2 * 2 * 64 * 64 / 2);
        assert_true(fabs(share * peak * 2 / speed / flops - 1) < 1e-9);
        sums[zero] = json_integer_value(json_object_get(json_object_get(ops, "add"), "launches"));
        json_decref(v);
    }
    /* the first sum over ranks is written, and others are added: stage 1 has one, the others one for each micro-batch */
    assert_true(sums[1] == 0 && sums[2] > 0 && sums[3] == sums[2]);
    assert_int_equal(run(out, sizeof out, "launch -n 2 -- " STEP "tp=4"), 2);
    assert_int_equal(run(out, sizeof out, "launch -n 2 -- " STEP "tp=2,x=2"), 2);
    has("bench step: \"x=2\" is not a mesh size");
}

/* The codes of what fails, with one line that names the rank. */
static void exit_codes_are_kept(void **state) {
    (void)state;
    static const struct {
        const char *words;
        int code;
        const char *text;
    } cases[] = {
        {"-n 1 -- env", 0, ""},
        {"-n 2 -- sft /nowhere/c.yaml", 2, "error rank 0 (process "},
        {"-n 2 -- fetch /nowhere/c.yaml", 2, "/nowhere/c.yaml: no such file"},
        {"-n 2 -- eval --nonsense", 2, "exited with code 2 (an error in the command line"},
        {"-n 1 -- check mesh /nowhere tp=1", 1, "rank 0 (process "},
        {"-n 0 -- env", 2, "-n: expected an integer from 1 to 1024"},
        {"-n 2 -- evn", 2, "did you mean "},
        {"-n 2 --", 2, "the command is missing"},
        {"-- env", 2, "-n is missing"},
        {"-n 2 env", 0, ""},
        {"-n 2 --output some -- env", 2, "expected rank0 or all"},
        {"-n 2 --nnodes 2 -- env", 2, "needs --master-addr"},
        {"-n 2 --nnodes 2 --node-rank 2 --master-addr a -- env", 2, "hosts count from 0"},
        {"-n 2 --nnodes 2 --master-addr 0.0.0.0 -- env", 2, "give the name or address of host 0"},
        {"-n 2 --timeout 0 -- env", 2, "expected a positive number of seconds"},
        {"-n 2 --nnodes 2 --master-addr 127.0.0.1 -- env", 2, "export AXTRAIN_TOKEN_FILE="},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int code = run(out, sizeof out, "launch %s", cases[i].words);
        if (code != cases[i].code)
            fail_msg("%s: %d: %s", cases[i].words, code, out);
        has(cases[i].text);
    }
}

/* ---- signals and deaths ---- */

/* Starts a job that lasts, as a process of its own; its output goes to a file. */
static pid_t start_long(const char *words, const char *file) {
    const pid_t pid = fork();
    if (pid == 0) {
        char command[512];
        const char *bin = getenv("AX_TEST_BIN");
        snprintf(command, sizeof command, "exec '%s' launch %s >'%s/%s' 2>&1",
                 bin ? bin : "build/axtrain", words, model, file);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    return pid;
}

/* The processes whose parent is `parent`, once there are n; 0: fewer after 20 s. */
static int children(pid_t parent, pid_t *pids, int n) {
    for (const double begin = ax_clock_now(); ax_clock_now() < begin + 20;
         nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL)) {
        char path[64], text[256];
        int found = 0;
        snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
        FILE *f = fopen(path, "r");
        const char *at = f && fgets(text, sizeof text, f) ? text : "";
        for (char *end; found < n; at = end) {
            pids[found] = (pid_t)strtol(at, &end, 10);
            if (end == at)
                break;
            found++;
        }
        if (f)
            fclose(f);
        if (found == n)
            return n;
    }
    return 0;
}

/* Until the process has used some MiB: one that has just been forked has not. */
static void wait_used(pid_t pid) {
    char path[64], line[256];
    long used = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    for (const double begin = ax_clock_now(); used < 4096 && ax_clock_now() < begin + 20;) {
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        FILE *f = fopen(path, "r");
        while (f && fgets(line, sizeof line, f))
            (void)sscanf(line, "VmHWM: %ld kB", &used);
        if (f)
            fclose(f);
    }
    assert_true(used >= 4096);
}

static bool runs(pid_t pid) {
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    const bool zombie = fgets(text, sizeof text, f) && strstr(text, ") Z ");
    fclose(f);
    return !zombie;
}

static void wait_gone(const pid_t *pids, int n, double seconds) {
    const double begin = ax_clock_now();
    for (int i = 0; i < n;) {
        if (runs(pids[i]))
            nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        else
            i++;
        if (ax_clock_now() > begin + seconds)
            fail_msg("process %d still runs", (int)pids[i < n ? i : n - 1]);
    }
}

static int finish(pid_t pid, const char *file) {
    char path[128], *text;
    size_t n;
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    snprintf(path, sizeof path, "%s/%s", model, file);
    assert_int_equal(ax_read_file(path, sizeof out - 1, &text, &n), AX_OK);
    memcpy(out, text, n + 1);
    ax_free(text);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Until the job has printed it. */
static void wait_for(const char *part, const char *file) {
    char path[128], *text = NULL;
    size_t n;
    bool found = false;
    snprintf(path, sizeof path, "%s/%s", model, file);
    for (const double begin = ax_clock_now(); !found && ax_clock_now() < begin + 20;) {
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        assert_int_equal(ax_read_file(path, sizeof out - 1, &text, &n), AX_OK);
        found = strstr(text, part) != NULL;
        ax_free(text);
    }
    if (!found)
        fail_msg("\"%s\" was not printed", part);
}

#define LAST "-- bench step --arch llama-tiny --seq 64 --steps 1000 --threads 1"

static void a_rank_that_dies_ends_all(void **state) {
    (void)state;
    pid_t ranks[3];
    char killed[128];
    const pid_t pid = start_long("-n 3 " LAST, "dies");
    assert_int_equal(children(pid, ranks, 3), 3);
    wait_used(ranks[2]);
    kill(ranks[2], SIGKILL);
    wait_gone(ranks, 3, 8); /* 5 s, and a busy machine */
    assert_int_equal(finish(pid, "dies"), 4);
    snprintf(killed, sizeof killed,
             "error rank 2 (process %d) was killed by signal 9 (Killed); it had used up to ",
             (int)ranks[2]);
    has(killed);
    const double used = atof(strstr(out, killed) + strlen(killed));
    assert_true(used > 1 && strstr(strstr(out, killed), " MiB\n")); /* not the 0 of a lost figure */
    assert_null(strstr(strstr(out, killed) + 1, "error"));
}

/* The limit of open files is reached by the launcher, after each number of ranks, or by a rank. */
static void ranks_end_if_one_cannot_start(void **state) {
    (void)state;
    struct rlimit usual, few;
    const int first = dup(STDIN_FILENO);
    bool starts = false, fails = false;
    close(first);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
    for (int i = 0; i < 40; i++) { /* a rank that has just been started is hard to catch */
        const int more = 10 + i % 10;
        few = (struct rlimit){(rlim_t)(first + more), usual.rlim_max};
        const double begin = ax_clock_now();
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        const int code =
            run(out, sizeof out, "launch -n 4 --timeout 15 -- " CHECK "dp_shard=4", model);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &usual), 0);
        starts |= code == 0;
        fails |= code == 1 && strstr(out, "cannot make a pipe: Too many open files");
        if (ax_clock_now() - begin > 8 || (code != 0 && !strstr(out, "Too many open files")))
            fail_msg("%d open files: %d in %.1f s: %s", more, code, ax_clock_now() - begin, out);
    }
    assert_true(starts && fails);
}

static void signals_reach_the_ranks(void **state) {
    (void)state;
    static const struct {
        int sig, code;
        const char *text;
    } cases[] = {{SIGTERM, 1, "the ranks were ended by signal 15 (Terminated)"},
                 {SIGINT, 130, "the ranks were ended by signal 2 (Interrupt)"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pid_t ranks[2];
        const pid_t pid = start_long("-n 2 " LAST, "signalled");
        assert_int_equal(children(pid, ranks, 2), 2);
        kill(pid, cases[i].sig);
        wait_gone(ranks, 2, 8);
        assert_int_equal(finish(pid, "signalled"), cases[i].code);
        has(cases[i].text);
    }
}

/* Said by the launcher: the rank cannot, and the others only wait. */
static void a_rank_that_is_stopped_is_named(void **state) {
    (void)state;
    pid_t ranks[2];
    char stopped[96];
    const pid_t pid = start_long("-n 2 " LAST, "stopped");
    assert_int_equal(children(pid, ranks, 2), 2);
    snprintf(stopped, sizeof stopped, "rank 1 (process %d) was stopped by signal 19 (",
             (int)ranks[1]);
    kill(ranks[1], SIGSTOP);
    wait_for(stopped, "stopped");
    kill(ranks[1], SIGCONT);
    wait_for("rank 1 goes on\n", "stopped");
    kill(pid, SIGTERM);
    wait_gone(ranks, 2, 8);
    assert_int_equal(finish(pid, "stopped"), 1);
}

static void ranks_die_with_the_launcher(void **state) {
    (void)state;
    pid_t ranks[2];
    const pid_t pid = start_long("-n 2 " LAST, "killed");
    assert_int_equal(children(pid, ranks, 2), 2);
    kill(pid, SIGKILL);
    wait_gone(ranks, 2, 5);
    assert_int_equal(finish(pid, "killed"), -1);
}

/* The second attempt is another job: its ranks do not take the first one's store for theirs. */
static void lost_ranks_are_started_again(void **state) {
    (void)state;
    pid_t ranks[2] = {0}, again[2] = {0};
    const pid_t pid = start_long("-n 2 --restarts 1 " LAST, "again");
    for (int attempt = 0; attempt < 2; attempt++) {
        assert_int_equal(children(pid, attempt ? again : ranks, 2), 2);
        kill(attempt ? again[0] : ranks[0], SIGKILL);
        wait_gone(attempt ? again : ranks, 2, 8);
    }
    assert_true(ranks[0] != again[0]);
    assert_int_equal(finish(pid, "again"), 4);
    has("was killed by signal 9 (Killed); it had used up to ");
    has("; starting again (1 of 1)\n");
}

/* What two restarts did not get past is not tried eight times. */
static void restarts_without_progress_end(void **state) {
    (void)state;
    pid_t ranks[2];
    const pid_t pid = start_long("-n 2 --restarts 8 " LAST, "idle");
    for (int attempt = 0; attempt < 3; attempt++) {
        assert_int_equal(children(pid, ranks, 2), 2);
        kill(ranks[1], SIGKILL);
        wait_gone(ranks, 2, 8);
    }
    assert_int_equal(finish(pid, "idle"), 4);
    has("; starting again (2 of 8)\n");
    has("; 2 restarts saved no new checkpoint, so the job is not started again\n");
    lacks("(3 of 8)");
}

/* ---- other launchers ---- */

/* Two ranks with these variables and their own. */
static void run_two(const char *common, const char *first, const char *second) {
    const char *name = getenv("AX_TEST_BIN"), *bin = name ? name : "build/axtrain";
    char command[2048];
    snprintf(command, sizeof command,
             "(env %s RANK=1 %s '%s' " CHECK "dp_shard=2 & env %s RANK=0 %s '%s' " CHECK
             "dp_shard=2; wait $!) 2>&1",
             common, second, bin, model, common, first, bin, model);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    out[fread(out, 1, sizeof out - 1, p)] = '\0';
    assert_int_equal(pclose(p), 0);
    has(" checks passed, 0 failed\n");
}

/* As torchrun starts two ranks: its agent listens on MASTER_PORT and says nothing. */
static void ranks_of_torchrun_pass_its_agent(void **state) {
    (void)state;
    int agent, port;
    char common[512];
    assert_int_equal(ax_net_listen("127.0.0.1", 0, 1, &agent, &port), AX_OK);
    snprintf(common, sizeof common,
             "TORCHELASTIC_RUN_ID=none TORCHELASTIC_USE_AGENT_STORE=True WORLD_SIZE=2 "
             "LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d",
             port);
    run_two(common, "LOCAL_RANK=0", "LOCAL_RANK=1");
    lacks("loopback");
    close(agent);
}

/* The name of a host that is its loopback interface there, as in Debian's /etc/hosts; here a number
 * that the resolver knows. */
static void a_name_of_loopback_is_warned_of(void **state) {
    (void)state;
    static const char *const hosts[] = {"127.0.0.1", "0x7f.1"};
    for (size_t i = 0; i < 2; i++) {
        int fd, port;
        char common[256];
        assert_int_equal(ax_net_listen("127.0.0.1", 0, 1, &fd, &port), AX_OK);
        close(fd);
        snprintf(common, sizeof common,
                 "WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 LOCAL_RANK=0 MASTER_ADDR=%s MASTER_PORT=%d",
                 hosts[i], port);
        run_two(common, "", "");
        (i == 0 ? lacks : has)(" is the loopback interface here, where rank 0 is");
    }
}

/* An address that others can reach is not listened on without a token. */
static void other_hosts_need_a_token(void **state) {
    (void)state;
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_NTASKS", "2", 1);
    setenv("MASTER_ADDR", "192.0.2.1", 1);
    assert_int_equal(run(out, sizeof out, CHECK "dp_shard=2", model), 2);
    has("have no token to recognize each other");
    has("export AXTRAIN_TOKEN_FILE=\"$HOME/.axtrain-token\"");
    unsetenv("SLURM_PROCID");
    unsetenv("SLURM_NTASKS");
    unsetenv("MASTER_ADDR");
}

/* A link named axlaunch is the launcher. */
static void axlaunch_is_launch(void **state) {
    (void)state;
    char link[128], bin[4096], command[512];
    const char *name = getenv("AX_TEST_BIN");
    assert_non_null(realpath(name ? name : "build/axtrain", bin));
    snprintf(link, sizeof link, "%s/axlaunch", model);
    assert_int_equal(symlink(bin, link), 0);
    snprintf(command, sizeof command, "%s -n 1 -- env && %s --help", link, link);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    out[fread(out, 1, sizeof out - 1, p)] = '\0';
    assert_int_equal(pclose(p), 0);
    has("axtrain launch -n N");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_find_each_other),
        cmocka_unit_test(two_dashes_may_be_left_out),
        cmocka_unit_test(what_one_process_does_is_refused),
        cmocka_unit_test(a_step_runs_on_ranks),
        cmocka_unit_test(exit_codes_are_kept),
        cmocka_unit_test(a_rank_that_dies_ends_all),
        cmocka_unit_test(ranks_end_if_one_cannot_start),
        cmocka_unit_test(signals_reach_the_ranks),
        cmocka_unit_test(a_rank_that_is_stopped_is_named),
        cmocka_unit_test(ranks_die_with_the_launcher),
        cmocka_unit_test(lost_ranks_are_started_again),
        cmocka_unit_test(restarts_without_progress_end),
        cmocka_unit_test(ranks_of_torchrun_pass_its_agent),
        cmocka_unit_test(a_name_of_loopback_is_warned_of),
        cmocka_unit_test(other_hosts_need_a_token),
        cmocka_unit_test(axlaunch_is_launch),
    };
    return cmocka_run_group_tests(tests, put_model, remove_model);
}

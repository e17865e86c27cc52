/* `elastic: true` on processes: after a rank is lost, the run goes on as one that is resumed on the smaller mesh from a
 * checkpoint of that step does, to the bit. */
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/text/json.h"
#include "tests/cmd/program_case.h"
#include "tests/data/scratch.h"
#include "tests/golden_files.h"
#include "tests/skip.h"
#include "tests/sweep.h"
#include "tests/long.h"

enum { STEPS = 8, LLAMA = 30 }; /* LLAMA: parameters of the tiny one */

static char out[1 << 16];

static void has(const char *part) {
    if (!strstr(out, part))
        fail_msg("\"%s\" lacks \"%s\"", out, part);
}

/* A configuration on the tiny llama; its path. `data`: of its method. */
static const char *configure(const char *data, const char *more) {
    static char path[128];
    struct ax_buf b = {0}, rows = {0};
    for (int i = 0; i < 40; i++)
        assert_int_equal(ax_buf_printf(&rows,
                                       "{\"text\": \"say %d, %.*s\", \"prompt\": \"say %d\", "
                                       "\"chosen\": \"yes, %d\", \"rejected\": \"no\"}\n",
                                       i, 1 + i % 17, "abcdefghijklmnopq", i, i),
                         AX_OK);
    put_bytes("rows.jsonl", rows.data, rows.len);
    ax_buf_free(&rows);
    assert_int_equal(
        ax_buf_printf(&b,
                      "base_model: %s\noutput_dir: %s/out\ndataset_prepared_path: %s/cache\n"
                      "datasets:\n  - path: %s/rows.jsonl\n%s"
                      "sequence_len: 64\nlearning_rate: 1e-3\nmicro_batch_size: 1\n"
                      "float32: true\nlogging_steps: 3\nmax_steps: %d\nsave_steps: 4\n"
                      "val_set_size: 8\neval_steps: 3\nddp_timeout: 60\nelastic: true\n%s",
                      golden_path("models/llama"), scratch, scratch, scratch, data, STEPS, more),
        AX_OK);
    snprintf(path, sizeof path, "%s", put_bytes("c.yaml", b.data, b.len));
    ax_buf_free(&b);
    return path;
}

static const char *const completion = "    type: completion\n";

static void clear(void) {
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
    assert_int_equal(ax_remove_tree(in_scratch("before")), AX_OK);
    assert_int_equal(ax_remove_tree(in_scratch("whole")), AX_OK);
    assert_int_equal(ax_remove_tree(in_scratch("smaller")), AX_OK);
}

/* Losses of steps and evaluations in a folder's metrics.jsonl, by step; a step that is there twice fails. */
struct losses {
    double train[STEPS + 1], eval[STEPS + 1];
};

static struct losses read_losses(const char *folder) {
    struct losses l = {0};
    char *text, *rest, path[160];
    size_t len;
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", scratch, folder);
    assert_int_equal(ax_read_file(path, 1 << 20, &text, &len), AX_OK);
    rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        json_t *v = json_loads(line, JSON_ALLOW_NUL, NULL);
        const json_t *train = json_object_get(v, "loss"), *eval = json_object_get(v, "eval_loss");
        const long long step = json_integer_value(json_object_get(v, "step"));
        double *to = train ? &l.train[step] : eval ? &l.eval[step] : NULL;
        if (to && (step < 0 || step > STEPS || *to != 0))
            fail_msg("%s: step %lld: %s", path, step, line);
        if (to)
            *to = json_number_value(train ? train : eval);
        json_decref(v);
    }
    ax_free(text);
    return l;
}

static void expect_same_file(const char *a, const char *b) {
    char *x, *y;
    size_t n, m;
    assert_int_equal(ax_read_file(in_scratch(a), 1 << 24, &x, &n), AX_OK);
    assert_int_equal(ax_read_file(in_scratch(b), 1 << 24, &y, &m), AX_OK);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    ax_free(x);
    ax_free(y);
}

/* No folder of a launcher that has ended is in memory. */
static void expect_no_folder(const char *resumed_from) {
    char dir[7];
    if (sscanf(resumed_from, "resumed: /dev/shm/axtrain-elastic-%6s", dir) == 1) {
        char path[64];
        snprintf(path, sizeof path, "/dev/shm/axtrain-elastic-%s", dir);
        assert_false(ax_path_exists(path));
    }
}

struct loss {
    const char *command, *mesh;
    int params;       /* of the model */
    int steps, rank;  /* steps before this rank is killed */
    int ranks, left;  /* before and after */
    const char *with; /* words of the mesh with `left` ranks */
    int step;         /* after which the run goes on, at most */
};

/* The step after which the last attempt went on; 0: from the start. −1: the run was not started again. */
static int went_on_after(void) {
    int step = strstr(out, " ranks go on with ") ? 0 : -1;
    const char *at = strstr(out, "the run goes on after step ");
    if (at)
        sscanf(at, "the run goes on after step %d", &step);
    return step;
}

/* The run that loses a rank; the step after which it goes on. A save may be in flight. */
static int lose(const char *config, const struct loss *l) {
    char what[160], fault[64];
    snprintf(fault, sizeof fault, "weights:%d:kill@%d", l->params * l->steps, l->rank);
    setenv("AX_FAULT", fault, 1);
    const double start = ax_clock_now();
    const int code =
        run(out, sizeof out, "launch -n %d -- %s '%s' %s", l->ranks, l->command, config, l->mesh);
    unsetenv("AX_FAULT");
    if (code != 0)
        fail_msg("%s %s: %d: %s", l->mesh, fault, code, out);
    assert_true(ax_clock_now() - start < 60);
    snprintf(what, sizeof what, "in step %d; elastic: %d of %d ranks go on with %s\n", l->steps + 1,
             l->left, l->ranks, l->with);
    has(what);
    const int step = went_on_after();
    if (l->step == l->steps)
        snprintf(what, sizeof what, "after step %d, from memory; no step is done again\n", l->step);
    else
        snprintf(what, sizeof what, "after step %d, from memory; steps %d to %d are done again\n",
                 step, step + 1, l->steps);
    has(what);
    assert_true(step > 0 && step <= l->step);
    has("trained 8 of 8 steps");
    expect_no_folder(strstr(out, "resumed: "));
    return step;
}

static void expect_losses(const char *why, int step) {
    const struct losses whole = read_losses("whole"), now = read_losses("out"),
                        smaller = read_losses("smaller");
    for (int i = 0; i <= STEPS; i++) {
        const struct losses *from = i <= step ? &whole : &smaller;
        if (now.train[i] != from->train[i] || now.eval[i] != from->eval[i])
            fail_msg("%s: step %d: %.17g, %.17g; expected %.17g, %.17g", why, i, now.train[i],
                     now.eval[i], from->train[i], from->eval[i]);
    }
}

/* The same on all ranks, and resumed on what is left from the checkpoint of the same step. */
static void expect_as_resumed(const char *config, const struct loss *l) {
    static char reference[1 << 14];
    clear();
    if (run(out, sizeof out,
            "launch -n %d -- %s '%s' %s output_dir='%s/whole' save_steps=1 save_total_limit=9",
            l->ranks, l->command, config, l->mesh, scratch) != 0)
        fail_msg("%s: %s", l->mesh, out);
    const int step = lose(config, l);
    if (run(reference, sizeof reference,
            "launch -n %d -- %s '%s' %s %s output_dir='%s/smaller' "
            "resume_from_checkpoint='%s/whole/checkpoint-%d'",
            l->left, l->command, config, l->mesh, l->with, scratch, scratch, step) != 0)
        fail_msg("%s", reference);
    expect_losses(l->mesh, step);
    const bool adapter = ax_path_exists(in_scratch("out/adapter_model.safetensors"));
    if (adapter)
        expect_same_file("out/adapter_model.safetensors", "smaller/adapter_model.safetensors");
    else
        expect_same_file("out/model.safetensors", "smaller/model.safetensors");
}

static void replicas_lose_nothing(void **state) {
    (void)state;
    static const struct loss losses[] = {
        {"sft", "dp_replicate_size=4", LLAMA, 6, 0, 4, 2,
         "dp_replicate_size=2 dp_shard_size=1 gradient_accumulation_steps=2", 6},
        {"sft", "dp_replicate_size=2", LLAMA, 5, 2, 4, 2,
         "dp_replicate_size=1 dp_shard_size=2 gradient_accumulation_steps=2", 5},
        {"sft", "dp_replicate_size=2 tensor_parallel_size=2", LLAMA, 2, 3, 4, 2,
         "dp_replicate_size=1 dp_shard_size=1 gradient_accumulation_steps=2", 2},
        {"sft", "dp_replicate_size=2 pipeline_parallel_size=2 batch_size=2", LLAMA, 5, 1, 4, 2,
         "dp_replicate_size=1 dp_shard_size=1 batch_size=4", 5},
    };
    const char *config = configure(completion, "");
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++)
        expect_as_resumed(config, &losses[i]);
}

static void adapters_and_methods(void **state) {
    (void)state;
    static const struct loss
        lora = {"sft",      "dp_replicate_size=3 gradient_accumulation_steps=2",
                LLAMA + 42, 4,
                0,          3,
                2,          "dp_replicate_size=2 dp_shard_size=1 gradient_accumulation_steps=3",
                4},
        dpo = {"dpo", "dp_replicate_size=2",
               LLAMA, 4,
               1,     2,
               1,     "dp_replicate_size=1 dp_shard_size=1 gradient_accumulation_steps=2",
               4},
        grpo = {"grpo",
                "dp_replicate_size=2 gradient_accumulation_steps=2",
                LLAMA,
                5,
                0,
                2,
                1,
                "dp_replicate_size=1 dp_shard_size=1 "
                "gradient_accumulation_steps=4 trl.steps_per_generation=8",
                5};
    expect_as_resumed(configure(completion, "adapter: lora\nlora_r: 4\nlora_alpha: 8\n"
                                            "lora_target_linear: true\n"),
                      &lora);
    expect_as_resumed(configure("", "rl: dpo\n"), &dpo);
    expect_as_resumed(configure("", "rl: grpo\ntrl:\n  num_generations: 4\n"
                                    "  max_completion_length: 10\n  reward_funcs: ['format:e']\n"
                                    "  steps_per_generation: 4\n"),
                      &grpo);
}

static void shards_go_back_to_memory(void **state) {
    (void)state;
    static const struct loss
        sft = {"sft", "dp_shard_size=4 save_steps=9",
               LLAMA, 6,
               1,     4,
               2,     "dp_replicate_size=1 dp_shard_size=2 gradient_accumulation_steps=2",
               4},
        ppo = {"ppo", "gradient_accumulation_steps=2 save_steps=9",
               LLAMA, 6,
               1,     2,
               1,     "dp_replicate_size=1 dp_shard_size=1 gradient_accumulation_steps=4",
               4};
    expect_as_resumed(configure(completion, "elastic_steps: 2\n"), &sft);
    expect_as_resumed(configure("", "elastic_steps: 2\nrl: ppo\ntrl:\n  max_completion_length: 10\n"
                                    "  reward_funcs: ['format:e']\n"),
                      &ppo);
}

/* Also to the checkpoint from which the run itself was resumed. */
static void before_the_first_checkpoint(void **state) {
    (void)state;
    const char *config = configure(completion, "");
    clear();
    if (run(out, sizeof out, "launch -n 2 -- sft '%s' output_dir='%s/whole' save_steps=2", config,
            scratch) != 0)
        fail_msg("%s", out);
    setenv("AX_FAULT", "weights:30:kill@1", 1);
    const int code = run(out, sizeof out,
                         "launch -n 2 -- sft '%s' resume_from_checkpoint='%s/whole/checkpoint-2'",
                         config, scratch);
    if (code != 0)
        fail_msg("%s", out);
    has("elastic: the run goes on after step 2, from the disk; step 3 is done again\n");
    has("trained 8 of 8 steps");
    clear();
    if (run(out, sizeof out, "launch -n 2 -- sft '%s'", config) != 0)
        fail_msg("%s", out);
    unsetenv("AX_FAULT");
    has("elastic: the run goes on after step 0, from the start; step 1 is done again\n");
    has("trained 8 of 8 steps");
    (void)read_losses("out");
}

/* Two together, then another one: on four ranks, two, and one. */
static void lost_again(void **state) {
    (void)state;
    const char *config = configure(completion, "save_total_limit: 9\n");
    const char *two = "dp_replicate_size=2 dp_shard_size=1 gradient_accumulation_steps=2",
               *one = "dp_replicate_size=1 dp_shard_size=1 gradient_accumulation_steps=4";
    clear();
    if (run(out, sizeof out,
            "launch -n 4 -- sft '%s' dp_replicate_size=4 output_dir='%s/before' save_steps=1",
            config, scratch) != 0 ||
        run(out, sizeof out,
            "launch -n 2 -- sft '%s' %s output_dir='%s/whole' save_steps=1 "
            "resume_from_checkpoint='%s/before/checkpoint-2'",
            config, two, scratch, scratch) != 0 ||
        run(out, sizeof out,
            "launch -n 1 -- sft '%s' %s output_dir='%s/smaller' "
            "resume_from_checkpoint='%s/whole/checkpoint-6'",
            config, one, scratch, scratch) != 0)
        fail_msg("%s", out);
    setenv("AX_FAULT", "weights:60:kill@2,weights:60:kill@3,weights:120:kill@1", 1);
    const int code = run(out, sizeof out, "launch -n 4 -- sft '%s' dp_replicate_size=4", config);
    unsetenv("AX_FAULT");
    if (code != 0)
        fail_msg("%s", out);
    has("elastic: 2 of 4 ranks go on with dp_replicate_size=2");
    has("elastic: the run goes on after step 2, from memory; no step is done again\n");
    has("elastic: 1 of 2 ranks go on with dp_replicate_size=1");
    has("elastic: the run goes on after step 6, from memory; no step is done again\n");
    const struct losses before = read_losses("before"), whole = read_losses("whole"),
                        now = read_losses("out"), smaller = read_losses("smaller");
    for (int i = 0; i <= STEPS; i++) {
        const struct losses *from = i <= 2 ? &before : i <= 6 ? &whole : &smaller;
        assert_true(now.train[i] == from->train[i] && now.eval[i] == from->eval[i]);
    }
    expect_same_file("out/model.safetensors", "smaller/model.safetensors");
}

static void spares_keep_the_mesh(void **state) {
    (void)state;
    const char *config = configure(completion, "");
    clear();
    if (run(out, sizeof out, "launch -n 2 -- sft '%s' dp_replicate_size=2 output_dir='%s/whole'",
            config, scratch) != 0)
        fail_msg("%s", out);
    setenv("AX_FAULT", "weights:150:kill@1", 1);
    const int code =
        run(out, sizeof out, "launch -n 2 --spares 1 -- sft '%s' dp_replicate_size=2", config);
    unsetenv("AX_FAULT");
    if (code != 0)
        fail_msg("%s", out);
    has("in step 6; elastic: 2 of 2 ranks go on, with a spare\n");
    const struct losses whole = read_losses("whole"), now = read_losses("out");
    assert_memory_equal(&whole, &now, sizeof now);
    expect_same_file("out/model.safetensors", "whole/model.safetensors");
}

static void what_cannot_go_on_says_so(void **state) {
    (void)state;
    const char *config = configure(completion, "");
    clear();
    setenv("AX_FAULT", "weights:60:kill@1", 1);
    assert_int_equal(run(out, sizeof out, "launch -n 2 -- sft '%s' tensor_parallel_size=2", config),
                     4);
    unsetenv("AX_FAULT");
    has("was killed by signal 9 (Killed)");
    has("; elastic: 1 left, and no mesh of as few ranks has the same batch\n");
    clear();
    assert_int_equal(run(out, sizeof out, "sft '%s' max_steps=1", config), 0);
    has("warn elastic: a lost rank ends this run");
    clear();
    setenv("AX_FAULT", "weights:65:flip@1", 1); /* no rank is lost */
    assert_int_equal(run(out, sizeof out,
                         "launch -n 2 -- sft '%s' dp_replicate_size=2 replica_check_steps=1",
                         config),
                     4);
    unsetenv("AX_FAULT");
    has("ranks 0 and 1 of dp_replicate have different weights");
    assert_null(strstr(out, "go on"));
    /* nor without the key */
    clear();
    setenv("AX_FAULT", "weights:60:kill@1", 1);
    assert_int_equal(
        run(out, sizeof out, "launch -n 2 -- sft '%s' dp_replicate_size=2 elastic=false", config),
        4);
    unsetenv("AX_FAULT");
    assert_null(strstr(out, "elastic"));
}

/* Where a user may mount: memory of 300 KiB, which is less than a part. */
static void no_room_in_memory(void **state) {
    (void)state;
    char command[1024], *text;
    size_t n;
    const char *config = configure(completion, "elastic_steps: 1\n");
    if (system("unshare -m mount -t tmpfs tmpfs /dev/shm 2> /dev/null") != 0)
        skip_because("kernel, mount namespaces");
    /* the scratch folder may be in /dev/shm: it is kept as a folder of the new one */
    clear();
    snprintf(command, sizeof command,
             "unshare -m sh -c 'mount --bind \"%s\" /mnt && mount -t tmpfs -o size=300k tmpfs "
             "/dev/shm && "
             "mkdir -p \"%s\" && mount --bind /mnt \"%s\" && AX_FAULT=weights:150:kill@1 \"%s\" "
             "launch -n 2 "
             "-- sft \"%s\" dp_replicate_size=2' > '%s/log' 2>&1",
             scratch, scratch, scratch, test_program(), config, scratch);
    const int code = system(command);
    assert_int_equal(ax_read_file(in_scratch("log"), sizeof out - 1, &text, &n), AX_OK);
    snprintf(out, sizeof out, "%s", text);
    ax_free(text);
    if (code != 0)
        fail_msg("%s", out);
    has("warn elastic: checkpoints in memory need 2.");
    has(" MiB, but only 300 KiB are free in /dev/shm/axtrain-elastic-");
    has("warn elastic: the ranks did not keep all parts of step 5: ");
    has(" done again\n");
    has("trained 8 of 8 steps");
    (void)read_losses("out");
}

/* The last of four ranks is killed at a call. False: it ended before. */
static bool kill_at(const char *config, const char *fault, struct losses smaller[STEPS + 1]) {
    const char *words = "dp_replicate_size=1 dp_shard_size=2 gradient_accumulation_steps=2";
    char from[200] = "";
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
    setenv("AX_FAULT", fault, 1);
    const int code = run(out, sizeof out, "launch -n 4 -- sft '%s' dp_replicate_size=2", config);
    unsetenv("AX_FAULT");
    const int step = went_on_after();
    if (code == 4 && step < 0) /* before there was a run */
        return true;
    if (code != 0)
        fail_msg("%s: %d: %s", fault, code, out);
    if (step < 0)
        return false;
    const struct losses now = read_losses("out"), whole = read_losses("whole");
    if (step > 0)
        snprintf(from, sizeof from, "resume_from_checkpoint='%s/whole/checkpoint-%d'", scratch,
                 step);
    if (smaller[step].train[STEPS] == 0) {
        assert_int_equal(ax_remove_tree(in_scratch("smaller")), AX_OK);
        if (run(out, sizeof out, "launch -n 2 -- sft '%s' %s output_dir='%s/smaller' %s", config,
                words, scratch, from) != 0)
            fail_msg("%s", out);
        smaller[step] = read_losses("smaller");
    }
    for (int i = 0; i <= STEPS; i++) {
        const struct losses *is = i <= step ? &whole : &smaller[step];
        if (now.train[i] != is->train[i] || now.eval[i] != is->eval[i])
            fail_msg("%s: after step %d: step %d: %.17g, %.17g; expected %.17g, %.17g", fault, step,
                     i, now.train[i], now.eval[i], is->train[i], is->eval[i]);
    }
    return true;
}

/* AXTRAIN_SWEEP=1: at every call that writes, and many transfers. */
static void killed_at_any_call(void **state) {
    (void)state;
    static const struct {
        const char *call;
        int first, stride, sweep;
    } calls[] = {{"recv", 150, 250, 11},
                 {"send", 220, 300, 11},
                 {"write", 3, 9, 1},
                 {"fsync", 2, 3, 1},
                 {"mkdir", 1, 3, 1}};
    const bool sweep = sweeping();
    const char *config = configure(completion, "elastic_steps: 3\n");
    struct losses smaller[STEPS + 1] = {0};
    int killed = 0;
    clear();
    if (run(out, sizeof out,
            "launch -n 4 -- sft '%s' dp_replicate_size=2 output_dir='%s/whole' save_steps=1 "
            "save_total_limit=9",
            config, scratch) != 0)
        fail_msg("%s", out);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        char fault[32];
        for (int k = sweep ? 1 : calls[i].first;;
             k += sweep ? calls[i].sweep : calls[i].stride, killed++) {
            snprintf(fault, sizeof fault, "%s:%d:kill@3", calls[i].call, k);
            if (!kill_at(config, fault, smaller))
                break;
        }
    }
    /* while evaluating after step 6, the checkpoint of step 4 being on its way to a slow disk */
    for (int k = 709; k <= 717; k += 4, killed++) {
        char fault[96];
        snprintf(fault, sizeof fault,
                 "fsync:9:delay@0,fsync:10:delay@0,fsync:12:delay@0,recv:%d:kill@3", k);
        assert_true(kill_at(config, fault, smaller));
    }
    print_message("killed at %d calls\n", killed);
}

/* ---- processes that are looked at from outside ---- */

/* Starts a run of 150 steps on two ranks, whose output goes to a file, and waits for its third step. */
static pid_t start(const char *config) {
    char command[512];
    clear();
    snprintf(command, sizeof command,
             "exec '%s' launch -n 2 -- sft '%s' dp_replicate_size=2 max_steps=150 save_steps=100 "
             "eval_steps=100 ddp_timeout=2 > '%s/log' 2>&1",
             test_program(), config, scratch);
    const pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 600; i++) {
        char *text;
        size_t n;
        if (ax_read_file(in_scratch("out/metrics.jsonl"), 1 << 20, &text, &n) == AX_OK) {
            const bool begun = strstr(text, "{\"step\": 3, ") != NULL;
            ax_free(text);
            if (begun)
                return pid;
        }
        ax_error_clear();
        usleep(50000);
    }
    fail_msg("the run does not begin");
    return pid;
}

/* The launcher's second child: rank 1. */
static pid_t rank_1(pid_t launcher) {
    char path[64];
    int first = 0, second = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)launcher, (int)launcher);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    const int n = fscanf(f, "%d %d", &first, &second);
    fclose(f);
    assert_int_equal(n, 2);
    return second;
}

static void a_frozen_rank_is_lost(void **state) {
    (void)state;
    int status = 0;
    const pid_t launcher = start(configure(completion, ""));
    kill(rank_1(launcher), SIGSTOP);
    const double begin = ax_clock_now();
    assert_int_equal(waitpid(launcher, &status, 0), launcher);
    assert_true(ax_clock_now() - begin < 60);
    char *text;
    size_t n;
    assert_int_equal(ax_read_file(in_scratch("log"), sizeof out - 1, &text, &n), AX_OK);
    snprintf(out, sizeof out, "%s", text);
    ax_free(text);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("%s", out);
    has("elastic: 1 of 2 ranks go on with dp_replicate_size=1");
    has("from memory; no step is done again\n");
    has("trained 150 of 150 steps");
}

/* The folder in memory that a launcher holds. */
static void folder_of(pid_t launcher, char *path, size_t size) {
    char dir[64];
    snprintf(dir, sizeof dir, "/proc/%d/fd", (int)launcher);
    DIR *d = opendir(dir);
    assert_non_null(d);
    path[0] = '\0';
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        char link[512], target[256];
        snprintf(link, sizeof link, "%s/%s", dir, e->d_name);
        const ssize_t n = readlink(link, target, sizeof target - 1);
        if (n > 0 && strncmp(target, "/dev/shm/axtrain-elastic-", 25) == 0)
            snprintf(path, size, "%.*s", (int)n, target);
    }
    closedir(d);
}

static void a_killed_launcher_leaves_memory_to_the_next(void **state) {
    (void)state;
    char path[256];
    struct stat is;
    int status = 0;
    const char *config = configure(completion, "");
    const pid_t launcher = start(config);
    folder_of(launcher, path, sizeof path);
    assert_int_equal(stat(path, &is), 0);
    assert_int_equal(is.st_mode & 0777, 0700);
    kill(launcher, SIGKILL);
    assert_int_equal(waitpid(launcher, &status, 0), launcher);
    clear();
    if (run(out, sizeof out, "launch -n 2 -- sft '%s' max_steps=1", config) != 0)
        fail_msg("%s", out);
    assert_false(ax_path_exists(path));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LONG_TEST(cmocka_unit_test(replicas_lose_nothing)),
        LONG_TEST(cmocka_unit_test(adapters_and_methods)),
        LONG_TEST(cmocka_unit_test(shards_go_back_to_memory)),
        LONG_TEST(cmocka_unit_test(before_the_first_checkpoint)),
        LONG_TEST(cmocka_unit_test(lost_again)),
        LONG_TEST(cmocka_unit_test(spares_keep_the_mesh)),
        cmocka_unit_test(what_cannot_go_on_says_so),
        cmocka_unit_test(no_room_in_memory),
        LONG_TEST(cmocka_unit_test(killed_at_any_call)),
        LONG_TEST(cmocka_unit_test(a_frozen_rank_is_lost)),
        cmocka_unit_test(a_killed_launcher_leaves_memory_to_the_next),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

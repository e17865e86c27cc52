/* `axtrain sft` on processes: the run of one rank, its messages once, and going on after a rank was
 * lost. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/text/json.h"
#include "tests/cmd/program_case.h"
#include "tests/data/scratch.h"
#include "tests/golden_files.h"
#include "tests/strangers.h"
#include "tests/sweep.h"

static char out[1 << 16];

static void has(const char *part) {
    if (!strstr(out, part))
        fail_msg("\"%s\" lacks \"%s\"", out, part);
}

static int count(const char *part) {
    int n = 0;
    for (const char *at = out; (at = strstr(at, part)) != NULL; at++)
        n++;
    return n;
}

/* A configuration on the tiny llama; its path. */
static const char *configure(const char *more) {
    static char path[128];
    struct ax_buf b = {0};
    char text[4096] = "";
    for (int i = 0; i < 40; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "{\"text\": \"say %d, %.*s\"}\n",
                 i, 1 + i % 17, "abcdefghijklmnopq");
    put_text("rows.jsonl", text);
    assert_int_equal(
        ax_buf_printf(&b,
                      "base_model: %s\noutput_dir: %s/out\ndataset_prepared_path: %s/cache\n"
                      "datasets:\n  - path: %s/rows.jsonl\n    type: completion\n"
                      "sequence_len: 64\nlearning_rate: 1e-3\nmicro_batch_size: 1\n"
                      "float32: true\nlogging_steps: 1\nmax_steps: 6\nsave_steps: 2\n"
                      "val_set_size: 8\neval_steps: 3\nddp_timeout: 60\n%s",
                      golden_path("models/llama"), scratch, scratch, scratch, more),
        AX_OK);
    snprintf(path, sizeof path, "%s", put_bytes("c.yaml", b.data, b.len));
    ax_buf_free(&b);
    return path;
}

static void clear(void) {
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
}

/* The numbers of a key in metrics.jsonl. */
static int losses(const char *key, double *values, int most) {
    char *text, *rest, path[160];
    size_t len;
    int n = 0;
    snprintf(path, sizeof path, "%s/out/metrics.jsonl", scratch);
    assert_int_equal(ax_read_file(path, 1 << 20, &text, &len), AX_OK);
    rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        json_t *v = json_loads(line, JSON_ALLOW_NUL, NULL);
        const json_t *x = json_object_get(v, key);
        if (x && n < most)
            values[n++] = json_number_value(x);
        json_decref(v);
    }
    ax_free(text);
    return n;
}

/* The answers of a run's samples, one per line. */
static const char *answers(void) {
    static char all[1 << 14];
    char *text, *rest, path[160];
    size_t len;
    all[0] = '\0';
    snprintf(path, sizeof path, "%s/out/metrics.jsonl", scratch);
    assert_int_equal(ax_read_file(path, 1 << 20, &text, &len), AX_OK);
    rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        json_t *v = json_loads(line, JSON_ALLOW_NUL, NULL);
        const char *event = json_string_value(json_object_get(v, "event"));
        if (event && strcmp(event, "sample") == 0)
            snprintf(all + strlen(all), sizeof all - strlen(all), "%lld: %s\n",
                     (long long)json_integer_value(json_object_get(v, "step")),
                     json_string_value(json_object_get(v, "text")));
        json_decref(v);
    }
    ax_free(text);
    return all;
}

/* FLOPs of a token, from the last step's MFU and the peak of all ranks that it relates to. */
static double token_flops(int ranks) {
    char *text, path[160], want[32];
    size_t len;
    double mfu[6], rate[6];
    snprintf(path, sizeof path, "%s/out/metrics.jsonl", scratch);
    assert_int_equal(ax_read_file(path, 1 << 20, &text, &len), AX_OK);
    const char *peak = strstr(text, "\"event\": \"peak\", \"text\": \"");
    assert_non_null(peak);
    peak += strlen("\"event\": \"peak\", \"text\": \"");
    char *unit;
    const double value = strtod(peak, &unit);
    assert_true(strncmp(unit, " GFLOP/s (", 10) == 0 || strncmp(unit, " TFLOP/s (", 10) == 0);
    snprintf(want, sizeof want, " on %d ranks, for MFU", ranks);
    const char *said = strstr(unit, want);
    assert_int_equal(said != NULL && said<strchr(unit, '\n'), ranks> 1);
    assert_int_equal(losses("mfu", mfu, 6), 6);
    assert_int_equal(losses("tokens_per_second", rate, 6), 6);
    const double flops = mfu[5] * value * (unit[1] == 'G' ? 1e9 : 1e12) / rate[5];
    ax_free(text);
    return flops;
}

/* Changes one byte. */
static void spoil(const char *name) {
    char *data;
    size_t len;
    assert_int_equal(ax_read_file(in_scratch(name), 1 << 24, &data, &len), AX_OK);
    data[len / 2] ^= 1;
    put_bytes(name, data, len);
    ax_free(data);
}

struct mesh_words {
    int n;
    const char *words;
};

static void expect_as_one(const char *config, const char *one_rank, const struct mesh_words *meshes,
                          size_t n) {
    double one[6], now[6], evals[3], evals_now[3];
    char texts[1 << 14];
    if (run(out, sizeof out, "sft '%s' %s", config, one_rank) != 0)
        fail_msg("%s", out);
    snprintf(texts, sizeof texts, "%s", answers());
    assert_int_equal(strstr(texts, "\n6: ") != NULL, strstr(one_rank, "generate_samples") != NULL);
    assert_int_equal(losses("loss", one, 6), 6);
    assert_int_equal(losses("eval_loss", evals, 3), 3);
    const double flops = token_flops(1);
    for (size_t i = 0; i < n; i++) {
        clear();
        if (run(out, sizeof out, "launch -n %d --output all -- sft '%s' %s", meshes[i].n, config,
                meshes[i].words) != 0)
            fail_msg("%s: %s", meshes[i].words, out);
        has("[0] trained 6 of 6 steps");
        assert_null(strstr(out, "[1] "));
        assert_int_equal(losses("loss", now, 6), 6);
        assert_int_equal(losses("eval_loss", evals_now, 3), 3);
        assert_true(fabs(token_flops(meshes[i].n) - flops) <= 0.02 * flops);
        if (strstr(meshes[i].words, "generate_samples"))
            assert_string_equal(answers(), texts);
        for (int k = 0; k < 6; k++)
            assert_true(fabs(now[k] - one[k]) <= 1e-5 * one[k]);
        for (int k = 0; k < 3; k++)
            assert_true(fabs(evals_now[k] - evals[k]) <= 1e-5 * evals[k]);
    }
}

static void ranks_train_as_one_does(void **state) {
    (void)state;
    static const struct mesh_words meshes[] = {
        {2, "dp_shard_size=2 gradient_accumulation_steps=2 generate_samples=5"},
        {2, "tensor_parallel_size=2 gradient_accumulation_steps=4 generate_samples=5"},
        {4, "pipeline_parallel_size=2 dp_replicate_size=2 gradient_accumulation_steps=2"},
    };
    const char *config = configure("");
    expect_as_one(config, "gradient_accumulation_steps=4 generate_samples=5", meshes, 3);
    assert_int_equal(run(out, sizeof out, "ckpt show '%s/out'", scratch), 0);
    has("checkpoint-6\nstep        6 of 6, epoch ");
    has("written by  4 ranks: pp 2, dp_replicate 2; any mesh resumes from it\n");
    has("state       exp_avg            float32 ");
    assert_int_equal(count("exp_avg_sq "), 1); /* a line per slot, not per tensor or rank */
    assert_int_equal(run(out, sizeof out, "ckpt verify '%s/out/checkpoint-4'", scratch), 0);
    has("checkpoint-4: intact: ");
    assert_null(strstr(out, "files, 0 B"));
    spoil("out/checkpoint-4/state/rank-00000.safetensors");
    assert_int_equal(run(out, sizeof out, "ckpt verify '%s/out/checkpoint-4'", scratch), 3);
    has("rank-00000.safetensors: corrupted between bytes 0 and ");
    assert_int_equal(remove(in_scratch("out/checkpoint-4/config.json")), 0);
    assert_int_equal(run(out, sizeof out, "ckpt verify '%s/out/checkpoint-4'", scratch), 3);
    has("config.json: missing; the checkpoint's manifest lists it");
    assert_int_equal(run(out, sizeof out, "ckpt show '%s'", scratch), 2);
    has("is not a checkpoint, nor a folder that has one");
    assert_int_equal(run(out, sizeof out, "ckpt list '%s'", scratch), 2);
    has("expected show, verify or reshard, got \"list\"");
    assert_int_equal(run(out, sizeof out, "ckpt reshard '%s/out/checkpoint-4'", scratch), 3);
    has("config.json: missing; ");
    assert_int_equal(run(out, sizeof out, "ckpt reshard '%s/out' -o '%s/whole'", scratch, scratch),
                     0);
    has("whole: one file of state, of 4 ranks before\n");
    assert_int_equal(run(out, sizeof out, "ckpt reshard '%s/out' -o '%s/whole'", scratch, scratch),
                     2);
    has("whole is there already; choose another folder");
    assert_int_equal(run(out, sizeof out, "ckpt show '%s/whole' -o x", scratch), 2);
    has("ckpt show: -o is of reshard");
    assert_int_equal(run(out, sizeof out, "ckpt reshard '%s/out/checkpoint-6'", scratch), 0);
    assert_int_equal(run(out, sizeof out, "ckpt show '%s/out'", scratch), 0);
    has("written by  1 rank; any mesh resumes from it\n");
    /* a checkpoint of 4 ranks is read by one; what is done is done */
    assert_int_equal(run(out, sizeof out,
                         "sft '%s' gradient_accumulation_steps=4 max_steps=8 "
                         "resume_from_checkpoint=auto",
                         config),
                     0);
    has("trained 8 of 8 steps");
    assert_int_equal(run(out, sizeof out,
                         "launch -n 2 -- sft '%s' gradient_accumulation_steps=2 max_steps=8 "
                         "resume_from_checkpoint=auto",
                         config),
                     0);
    has("nothing to do (8 of 8 steps)");
}

/* As a second run would be: in place of a checkpoint, and beside them. */
static void a_running_runs_folder_is_not_written_to(void **state) {
    (void)state;
    static const char *const to[] = {"", "-o '%s/out/checkpoint-8'", "-o '%s/out/./copy/'"};
    struct ax_claim lock;
    char words[512];
    const char *config = configure("");
    clear();
    if (run(out, sizeof out, "sft '%s' gradient_accumulation_steps=4", config) != 0)
        fail_msg("%s", out);
    assert_int_equal(ax_claim_take(&lock, in_scratch("out/.axtrain.lock")), AX_OK);
    for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
        snprintf(words, sizeof words, to[i], scratch);
        assert_int_equal(run(out, sizeof out, "ckpt reshard '%s/out' %s", scratch, words), 1);
        has("/.axtrain.lock: in use by process ");
        has("wait until it finishes, or choose another folder");
    }
    ax_claim_release(&lock);
    assert_false(ax_path_exists(in_scratch("out/checkpoint-8")));
    assert_false(ax_path_exists(in_scratch("out/copy")));
    snprintf(words, sizeof words, to[1], scratch);
    assert_int_equal(run(out, sizeof out, "ckpt reshard '%s/out' %s", scratch, words), 0);
    assert_false(ax_path_exists(in_scratch("out/.axtrain.lock")));
}

static void schedules_train_as_one_does(void **state) {
    (void)state;
    static const struct mesh_words meshes[] = {
        {2, "pipeline_parallel_size=2 pipeline_parallel_schedule=interleaved"},
        {2, "pipeline_parallel_size=2 pipeline_parallel_schedule=afab"},
    };
    const char *config = configure("gradient_accumulation_steps: 3\nreinit_weights: true\n"
                                   "model_config:\n  num_hidden_layers: 4\n");
    clear();
    expect_as_one(config, "", meshes, 2);
    assert_int_equal(run(out, sizeof out,
                         "plan '%s' --world 2 %s virtual_pipeline_parallel_size=3 --speed 1",
                         config, meshes[0].words),
                     2);
    has("pipeline: 3 virtual stages on each of pp 2 ranks exceed the layers (4 layers). "
        "Nearest: 2.");
    clear();
}

/* What all ranks would say is said once. */
static void mistakes_are_said_once(void **state) {
    (void)state;
    const char *config = configure("");
    clear();
    assert_int_equal(run(out, sizeof out, "launch -n 2 -- sft '%s' tensor_parallel_size=3", config),
                     2);
    assert_int_equal(count("Nearest: dp_shard 1 with 3 ranks"), 1);
    assert_int_equal(run(out, sizeof out, "launch -n 2 -- sft '%s' base_model=no/such", config), 2);
    assert_int_equal(count("no/such"), 1);
    assert_int_equal(ax_mkdir_parents(in_scratch("out/checkpoint-3/state")), AX_OK);
    assert_int_equal(run(out, sizeof out, "launch -n 2 -- sft '%s'", config), 2);
    assert_int_equal(count("contains checkpoint-3, which has no state/manifest.json"), 1);
    clear();
    assert_int_equal(ax_mkdir_parents(in_scratch("out")), AX_OK);
    put_text("out/config.json", "{}");
    assert_int_equal(run(out, sizeof out, "launch -n 2 -- sft '%s'", config), 2);
    assert_int_equal(count("already contains a model"), 1);
    /* only a restart goes on where another run was */
    clear();
    if (run(out, sizeof out, "launch -n 2 -- sft '%s' max_steps=1 save_steps=1", config) != 0)
        fail_msg("%s", out);
    assert_int_equal(run(out, sizeof out, "launch -n 2 --restarts 1 -- sft '%s'", config), 2);
    assert_int_equal(count("resume_from_checkpoint: auto"), 1);
}

/* All ranks, or the one behind '@', are killed at this call of theirs; the next run goes on from the
 * last checkpoint. Returns false if the run ended before. */
static bool kill_and_go_on(const char *config, int ranks, const char *fault,
                           const double *straight) {
    double now[6] = {0};
    char who[32] = "rank ";
    clear();
    setenv("AX_FAULT", fault, 1);
    const int code =
        run(out, sizeof out, "launch -n %d -- sft '%s' dp_shard_size=2", ranks, config);
    unsetenv("AX_FAULT");
    if (code == 0)
        return false;
    if (strchr(fault, '@'))
        snprintf(who, sizeof who, "rank %s (process ", strchr(fault, '@') + 1);
    if (code != 4 || !strstr(out, who) || !strstr(out, "killed by signal 9"))
        fail_msg("%s: %d: %s", fault, code, out);
    if (run(out, sizeof out, "launch -n %d -- sft '%s' dp_shard_size=2 resume_from_checkpoint=auto",
            ranks, config) != 0)
        fail_msg("%s: %s", fault, out);
    if (!strstr(out, "nothing to do (6 of 6 steps)")) /* killed when all was written */
        has("trained 6 of 6 steps");
    assert_int_equal(losses("loss", now, 6), 6);
    for (int k = 0; k < 6; k++)
        if (now[k] != straight[k]) /* the same mesh: to the bit */
            fail_msg("%s: step %d: %.17g, straight %.17g", fault, k + 1, now[k], straight[k]);
    return true;
}

/* Each attempt is killed in its second save: the launcher goes on while there are new checkpoints. */
static void expect_restarts(const char *command, const char *config) {
    double straight[6] = {0}, now[6] = {0};
    clear();
    if (run(out, sizeof out, "launch -n 2 %s '%s' save_steps=1", command, config) != 0)
        fail_msg("%s", out);
    assert_int_equal(losses("loss", straight, 6), 6);
    clear();
    setenv("AX_FAULT", "fsync:4:kill@1", 1);
    const int code =
        run(out, sizeof out, "launch -n 2 --restarts 8 %s '%s' save_steps=1", command, config);
    unsetenv("AX_FAULT");
    if (code != 0)
        fail_msg("%d: %s", code, out);
    has("; starting again (3 of 8)\n"); /* more often than without progress */
    assert_int_equal(losses("loss", now, 6), 6);
    assert_memory_equal(now, straight, sizeof now);
}

/* Whatever the method's command. */
static void restarts_go_on_while_there_is_progress(void **state) {
    (void)state;
    expect_restarts("-- sft", configure(""));
    expect_restarts("-- qat", configure("qat: {scheme: int4-int8}\n"));
}

/* Killed ranks cost steps only. AXTRAIN_SWEEP=1: all of 4 ranks, the first and the last, at every
 * call. */
static void lost_ranks_cost_steps_only(void **state) {
    (void)state;
    static const char *const calls[] = {"fsync", "rename", "write", "mkdir"}, *const of[] = {
                                                                                  "", "@0", "@3"};
    const bool sweep = sweeping();
    const int ranks = sweep ? 4 : 2;
    double straight[6] = {0};
    char fault[32];
    const char *config = configure(sweep ? "dp_replicate_size: 2\n" : "");
    clear();
    if (run(out, sizeof out, "launch -n %d -- sft '%s' dp_shard_size=2", ranks, config) != 0)
        fail_msg("%s", out);
    assert_int_equal(losses("loss", straight, 6), 6);
    assert_true(kill_and_go_on(config, ranks, "fsync:9:kill", straight)); /* in the second save */
    assert_true(kill_and_go_on(config, ranks, "fsync:3:kill@1", straight));
    int killed = 0;
    for (size_t i = 0; sweep && i < 4 * sizeof of / sizeof *of; i++)
        for (int k = 1;; k++, killed++) {
            snprintf(fault, sizeof fault, "%s:%d:kill%s", calls[i % 4], k, of[i / 4]);
            if (!kill_and_go_on(config, ranks, fault, straight))
                break;
        }
    print_message("killed at %d calls\n", killed);
}

/* Rank 1 is killed when it opens its k-th file. True if the first checkpoint is there then. */
static bool saved_when_killed_at(const char *config, int k) {
    char fault[32];
    clear();
    snprintf(fault, sizeof fault, "open:%d:kill@1", k);
    setenv("AX_FAULT", fault, 1);
    const int code =
        run(out, sizeof out, "launch -n 2 -- sft '%s' dp_shard_size=2 eval_steps=100", config);
    unsetenv("AX_FAULT");
    if (code != 4 && code != 0)
        fail_msg("%s: %d: %s", fault, code, out);
    return ax_path_exists(in_scratch("out/checkpoint-2/state/manifest.json"));
}

/* Of a save during which a rank is lost, rank 0 says whether the checkpoint is there, and nothing of
 * training that continues. The first file that rank 1 opens when the checkpoint has its name is one of that. */
static void a_save_with_a_lost_rank_is_told_as_it_is(void **state) {
    (void)state;
    const char *config = configure("");
    int before = 1, after = 256;
    assert_true(saved_when_killed_at(config, after) && !saved_when_killed_at(config, before));
    while (after - before > 1) {
        const int k = (before + after) / 2;
        *(saved_when_killed_at(config, k) ? &after : &before) = k;
    }
    bool seen[2] = {false, false};
    for (int i = 0; i < 24 && !(seen[0] && seen[1]);
         i++) { /* what is opened when differs a little */
        const bool saved =
            saved_when_killed_at(config, i % 2 ? before - i / 2 % 4 : after + i / 2 % 4);
        const bool written = count("checkpoint-2 was written, but not verified: ") > 0;
        const bool not_saved = count("checkpoint-2 was not saved: ") > 0;
        assert_true((!written || saved) && (!not_saved || !saved));
        assert_true(!(written || not_saved) || count("training continues") == 0);
        seen[0] = seen[0] || written;
        seen[1] = seen[1] || not_saved;
    }
    assert_true(seen[0] && seen[1]);
}

/* Starts `launch WORDS`, whose output goes to a file. */
static pid_t start_job(const char *words) {
    char command[1024];
    snprintf(command, sizeof command, "exec '%s' launch %s >'%s' 2>&1", test_program(), words,
             put_text("said", ""));
    const pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    return pid;
}

/* What the job has printed so far, in `out`. */
static void read_said(void) {
    char *text;
    size_t len;
    assert_int_equal(ax_read_file(in_scratch("said"), sizeof out - 1, &text, &len), AX_OK);
    memcpy(out, text, len + 1);
    ax_free(text);
}

static int end_job(pid_t pid) {
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    read_said();
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Of ranks that wait in vain, each blames one that perhaps only waits as well: the launcher knows which
 * one was stopped, and does not wait for it. */
static void the_rank_that_was_stopped_is_blamed(void **state) {
    (void)state;
    char words[512], path[64], last[128];
    int ranks[3];
    snprintf(words, sizeof words,
             "-n 3 -- sft '%s' max_steps=1000000 save_steps=1000000 eval_steps=1000000 "
             "logging_steps=1000000 ddp_timeout=2",
             configure(""));
    clear();
    const pid_t pid = start_job(words);
    double begin = ax_clock_now();
    for (*out = '\0'; !strstr(out, "started: ") && ax_clock_now() < begin + 30; usleep(20000))
        read_said();
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
    FILE *list = fopen(path, "r");
    assert_non_null(list);
    assert_int_equal(fscanf(list, "%d %d %d", &ranks[0], &ranks[1], &ranks[2]), 3);
    fclose(list);
    kill(ranks[1], SIGSTOP);
    begin = ax_clock_now();
    assert_int_equal(end_job(pid), 4);
    assert_true(ax_clock_now() - begin < 2 + 1 + 1.5); /* on a busy machine */
    snprintf(
        last, sizeof last,
        "\nerror rank 1 (process %d) was stopped by signal 19 (Stopped (signal)) and did not go "
        "on; the others waited for it in vain\n",
        ranks[1]);
    has(last);
    assert_string_equal(strstr(out, last), last);
}

/* Who connects to every port of launcher and ranks, from their start on, changes no bit of a run. */
static void strangers_change_nothing(void **state) {
    (void)state;
    double straight[6] = {0}, now[6] = {0};
    char words[256];
    const char *config = configure("");
    clear();
    if (run(out, sizeof out, "launch -n 3 -- sft '%s'", config) != 0)
        fail_msg("%s", out);
    assert_int_equal(losses("loss", straight, 6), 6);
    snprintf(words, sizeof words, "-n 3 --output all -- sft '%s'", config);
    for (int i = 0; i < 3; i++) {
        clear();
        const pid_t pid = start_job(words);
        const pid_t strangers = strangers_start(&pid, 1, in_scratch("visits"));
        const int code = end_job(pid);
        kill(strangers, SIGKILL);
        waitpid(strangers, NULL, 0);
        if (code != 0)
            fail_msg("%s", out);
        has("refused a connection from 127.0.0.1:");
        assert_int_equal(losses("loss", now, 6), 6);
        assert_memory_equal(now, straight, sizeof now);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_train_as_one_does),
        cmocka_unit_test(a_running_runs_folder_is_not_written_to),
        cmocka_unit_test(schedules_train_as_one_does),
        cmocka_unit_test(mistakes_are_said_once),
        cmocka_unit_test(restarts_go_on_while_there_is_progress),
        cmocka_unit_test(lost_ranks_cost_steps_only),
        cmocka_unit_test(a_save_with_a_lost_rank_is_told_as_it_is),
        cmocka_unit_test(the_rank_that_was_stopped_is_blamed),
        cmocka_unit_test(strangers_change_nothing),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

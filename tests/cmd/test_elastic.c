/* `elastic: true` on processes: after a rank is lost, the run goes on as one that is resumed on the smaller mesh from a
 * checkpoint of that step does, to the bit. */
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/text/json.h"
#include "tests/cmd/program_case.h"
#include "tests/data/scratch.h"
#include "tests/golden_files.h"

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
    int steps, rank;  /* after so many steps this rank is killed */
    int ranks, left;  /* before and after */
    const char *with; /* words of the mesh with `left` ranks */
    int step;         /* after which the run goes on */
};

/* The run that loses a rank. */
static void lose(const char *config, const struct loss *l) {
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
    if (l->step == l->steps)
        snprintf(what, sizeof what, "after step %d, from memory; no step is done again\n", l->step);
    else
        snprintf(what, sizeof what, "after step %d, from memory; done again: steps %d to %d\n",
                 l->step, l->step + 1, l->steps);
    has(what);
    has("trained 8 of 8 steps");
    expect_no_folder(strstr(out, "resumed: "));
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
    lose(config, l);
    if (run(reference, sizeof reference,
            "launch -n %d -- %s '%s' %s %s output_dir='%s/smaller' "
            "resume_from_checkpoint='%s/whole/checkpoint-%d'",
            l->left, l->command, config, l->mesh, l->with, scratch, scratch, l->step) != 0)
        fail_msg("%s", reference);
    expect_losses(l->mesh, l->step);
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
    static const struct loss losses[] = {
        {"sft", "dp_shard_size=4 save_steps=9", LLAMA, 6, 1, 4, 2,
         "dp_replicate_size=1 dp_shard_size=2 gradient_accumulation_steps=2", 4},
    };
    const char *config = configure(completion, "elastic_steps: 2\n");
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++)
        expect_as_resumed(config, &losses[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_lose_nothing),
        cmocka_unit_test(adapters_and_methods),
        cmocka_unit_test(shards_go_back_to_memory),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

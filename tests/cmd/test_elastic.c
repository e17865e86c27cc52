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

enum { STEPS = 8, PARAMS = 30 }; /* PARAMS: of the tiny llama */

static char out[1 << 16];

static void has(const char *part) {
    if (!strstr(out, part))
        fail_msg("\"%s\" lacks \"%s\"", out, part);
}

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
                      "float32: true\nlogging_steps: 3\nmax_steps: %d\nsave_steps: 4\n"
                      "val_set_size: 8\neval_steps: 3\nddp_timeout: 60\nelastic: true\n%s",
                      golden_path("models/llama"), scratch, scratch, scratch, STEPS, more),
        AX_OK);
    snprintf(path, sizeof path, "%s", put_bytes("c.yaml", b.data, b.len));
    ax_buf_free(&b);
    return path;
}

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
    const char *command, *mesh, *fault;
    int ranks, left;
    const char *words; /* of the mesh with `left` ranks */
    int step;          /* after which the run goes on; */
    int again;         /* steps that are done again, at least */
};

/* The run that loses ranks, and one that is resumed on what is left from a checkpoint of the same step. */
static void expect_as_resumed(const char *config, const struct loss *l) {
    struct losses whole, now, smaller;
    char text[160];
    clear();
    if (run(out, sizeof out,
            "launch -n %d -- %s '%s' %s output_dir='%s/whole' save_steps=1 save_total_limit=9",
            l->ranks, l->command, config, l->mesh, scratch) != 0)
        fail_msg("%s: %s", l->mesh, out);
    setenv("AX_FAULT", l->fault, 1);
    const double start = ax_clock_now();
    const int code =
        run(out, sizeof out, "launch -n %d -- %s '%s' %s", l->ranks, l->command, config, l->mesh);
    unsetenv("AX_FAULT");
    if (code != 0)
        fail_msg("%s %s: %d: %s", l->mesh, l->fault, code, out);
    assert_true(ax_clock_now() - start < 60);
    snprintf(text, sizeof text, "elastic: %d of %d ranks go on with %s\n", l->left, l->ranks,
             l->words);
    has(text);
    snprintf(text, sizeof text, "elastic: the run goes on after step %d, from ", l->step);
    has(text);
    assert_int_equal(strstr(out, "; no step is done again\n") != NULL, l->again == 0);
    assert_int_equal(strstr(out, "; done again: step") != NULL, l->again > 0);
    has("trained 8 of 8 steps");
    expect_no_folder(strstr(out, "resumed: "));
    char reference[1 << 12];
    if (run(reference, sizeof reference,
            "launch -n %d -- %s '%s' %s %s output_dir='%s/smaller' "
            "resume_from_checkpoint='%s/whole/checkpoint-%d'",
            l->left, l->command, config, l->mesh, l->words, scratch, scratch, l->step) != 0)
        fail_msg("%s", reference);
    whole = read_losses("whole");
    now = read_losses("out");
    smaller = read_losses("smaller");
    for (int i = 0; i <= STEPS; i++) {
        const struct losses *from = i <= l->step ? &whole : &smaller;
        if (now.train[i] != from->train[i] || now.eval[i] != from->eval[i])
            fail_msg("%s %s: step %d: %.17g, %.17g; expected %.17g, %.17g", l->mesh, l->fault, i,
                     now.train[i], now.eval[i], from->train[i], from->eval[i]);
    }
}

static void replicas_lose_nothing(void **state) {
    (void)state;
    static const struct loss losses[] = {
        {"sft", "dp_replicate_size=4", "weights:91:kill@3", 4, 2,
         "dp_replicate_size=2 dp_shard_size=1 gradient_accumulation_steps=2", 4, 0},
        {"sft", "dp_replicate_size=2", "weights:91:kill@2", 4, 2,
         "dp_replicate_size=1 dp_shard_size=2 gradient_accumulation_steps=2", 4, 0},
        {"sft", "dp_replicate_size=2 tensor_parallel_size=2", "weights:61:kill@3", 4, 2,
         "dp_replicate_size=1 dp_shard_size=1 gradient_accumulation_steps=2", 3, 0},
        {"sft", "dp_replicate_size=2 pipeline_parallel_size=2 gradient_accumulation_steps=2",
         "weights:61:kill@3", 4, 2,
         "dp_replicate_size=1 dp_shard_size=1 gradient_accumulation_steps=4", 3, 0},
    };
    const char *config = configure("");
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        expect_as_resumed(config, &losses[i]);
        expect_same_file("out/model.safetensors", "smaller/model.safetensors");
    }
}

static void shards_go_back_to_memory(void **state) {
    (void)state;
    static const struct loss losses[] = {
        {"sft", "dp_shard_size=4 save_steps=9", "weights:151:kill@1", 4, 2,
         "dp_replicate_size=1 dp_shard_size=2 gradient_accumulation_steps=2", 4, 2},
    };
    const char *config = configure("elastic_steps: 2\n");
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        expect_as_resumed(config, &losses[i]);
        expect_same_file("out/model.safetensors", "smaller/model.safetensors");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_lose_nothing),
        cmocka_unit_test(shards_go_back_to_memory),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

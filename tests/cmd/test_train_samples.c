/* generate_samples: what the model in training answers at evaluations, and that nothing else
 * changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text/json.h"
#include "tests/cmd/sft_case.h"

static char config[128];

static void configure(const char *more) {
    struct ax_buf rows = {0};
    char text[2048];
    need_binary();
    for (int i = 0; i < 8; i++)
        assert_int_equal(
            ax_buf_printf(&rows,
                          "{\"messages\": [{\"role\": \"user\", \"content\": \"say %d and "
                          "%d\"}, {\"role\": \"assistant\", \"content\": \"no, no %d\"}]}\n",
                          i, i * 7, i),
            AX_OK);
    put_text("rows.jsonl", rows.data);
    ax_buf_free(&rows);
    snprintf(text, sizeof text,
             "base_model: %s\noutput_dir: %s/out\ndatasets:\n  - path: %s/rows.jsonl\n"
             "    type: chat_template\nchat_template: llama3\nsequence_len: 64\n"
             "learning_rate: 1e-2\nmicro_batch_size: 2\ngradient_accumulation_steps: 1\n"
             "num_epochs: 9\nmax_steps: 4\nsave_strategy: 'no'\nval_set_size: 2\neval_steps: 2\n%s",
             golden_llama(), scratch, scratch, more);
    snprintf(config, sizeof config, "%s", put_text("c.yaml", text));
}

/* The records of a run, without what depends on time. */
static json_t *records(const char *name, bool samples) {
    char path[64], line[1 << 14];
    json_t *all = json_array();
    snprintf(path, sizeof path, "%s/metrics.jsonl", name);
    FILE *f = fopen(in_scratch(path), "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        json_t *v = json_loads(line, JSON_ALLOW_NUL, NULL), *r = json_object();
        static const char *const keys[] = {"step",      "loss",   "grad_norm",
                                           "eval_loss", "prompt", "text"};
        const char *event = json_string_value(json_object_get(v, "event"));
        assert_non_null(v);
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            if (json_object_get(v, keys[i]))
                json_object_set(r, keys[i], json_object_get(v, keys[i]));
        if (event ? samples && strcmp(event, "sample") == 0 : !samples)
            json_array_append(all, r);
        json_decref(r);
        json_decref(v);
    }
    fclose(f);
    return all;
}

static bool same_file(const char *a, const char *b) {
    char *x, *y;
    size_t n, m;
    assert_int_equal(ax_read_file(in_scratch(a), 1 << 26, &x, &n), AX_OK);
    assert_int_equal(ax_read_file(in_scratch(b), 1 << 26, &y, &m), AX_OK);
    const bool same = n == m && memcmp(x, y, n) == 0;
    ax_free(x);
    ax_free(y);
    return same;
}

/* With and without samples: the same losses, gradients and weights, to the bit. */
static void training_is_the_same(void **state) {
    (void)state;
    static const struct {
        const char *keys, *rows;
    } kinds[] = {
        {"float32: true\n", "micro_batch_size=2"},
        {"bf16: true\nsample_packing: true\n", "micro_batch_size=1"},
        {"adapter: qlora\nload_in_4bit: true\nlora_r: 4\nlora_alpha: 8\nlora_target_linear: true\n"
         "lora_dropout: 0.1\n",
         "micro_batch_size=2"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char with[128], without[128];
        const char *more = kinds[i].rows;
        const bool adapter = strncmp(kinds[i].keys, "adapter", 7) == 0;
        configure(kinds[i].keys);
        snprintf(with, sizeof with, "output_dir=%s", in_scratch("with"));
        snprintf(without, sizeof without, "output_dir=%s", in_scratch("without"));
        EXPECT(0, "trained 4 of 4 steps", config, more, without);
        EXPECT(0, "sample 2 at step 4: ", config, more, with, "generate_samples=true");
        json_t *a = records("without", false), *b = records("with", false);
        assert_true(json_array_size(a) == 7); /* 4 steps, 3 evaluations */
        assert_true(json_equal(a, b));
        json_decref(a);
        json_decref(b);
        a = records("without", true);
        b = records("with", true);
        assert_true(json_array_size(a) == 0 && json_array_size(b) == 6);
        json_decref(a);
        json_decref(b);
        assert_true(adapter ? same_file("with/adapter_model.safetensors",
                                        "without/adapter_model.safetensors")
                            : same_file("with/model.safetensors", "without/model.safetensors"));
        assert_int_equal(ax_remove_tree(in_scratch("with")), AX_OK);
        assert_int_equal(ax_remove_tree(in_scratch("without")), AX_OK);
    }
}

/* The last answers are those of the trained model to the same prompts. */
static void answers_are_the_models(void **state) {
    (void)state;
    configure("float32: true\ngenerate_samples: true\nnum_generation_samples: 1\n"
              "generation_max_new_tokens: 12\ngeneration_do_sample: false\n");
    char said[8192], out[128], question[64];
    EXPECT(0, "trained 4 of 4 steps", config);
    json_t *all = records("out", true);
    assert_true(json_array_size(all) == 3);
    json_t *last = json_array_get(all, 2), *first = json_array_get(all, 0);
    assert_true(json_integer_value(json_object_get(last, "step")) == 4);
    const char *prompt = json_string_value(json_object_get(last, "prompt"));
    const char *answer = json_string_value(json_object_get(last, "text"));
    assert_string_equal(prompt, json_string_value(json_object_get(first, "prompt")));
    assert_string_not_equal(answer, json_string_value(json_object_get(first, "text")));
    /* the question's turn, up to where the answer begins */
    const char *say = strstr(prompt, "say "), *end = strstr(prompt, "assistant");
    assert_true(say && end && say < end && !strstr(prompt, "no, no"));
    snprintf(question, sizeof question, "%.*s", (int)(end - say), say);
    snprintf(out, sizeof out, "%s", in_scratch("out"));
    sft_command = "generate";
    const char *const args[] = {
        "--model",          out,  "--chat",        "--prompt", question, "--dtype", "float32",
        "--max-new-tokens", "12", "--temperature", "0"};
    assert_int_equal(sft(said, sizeof said, 11, args), 0);
    sft_command = "sft";
    if (!*answer || !strstr(said, answer))
        fail_msg("\"%s\" is not in: %s", answer, said);
    json_decref(all);
}

/* Stages of a pipeline and ranks that split rows answer as one rank does. */
static void ranks_answer_alike(void **state) {
    (void)state;
    static const char *const meshes[] = {"pipeline_parallel_size=2", "context_parallel_size=2"};
    char said[8192], out[128];
    configure("float32: true\ngenerate_samples: true\ngeneration_do_sample: false\n");
    EXPECT(0, "trained 4 of 4 steps", config);
    json_t *one = records("out", true);
    assert_true(json_array_size(one) > 0);
    snprintf(out, sizeof out, "output_dir=%s", in_scratch("mesh"));
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        const char *const args[] = {"-n", "2", "--", "sft", config, out, meshes[i]};
        sft_command = "launch";
        assert_int_equal(sft(said, sizeof said, 7, args), 0);
        sft_command = "sft";
        json_t *all = records("mesh", true);
        assert_true(json_equal(all, one));
        json_decref(all);
        assert_int_equal(ax_remove_tree(in_scratch("mesh")), AX_OK);
    }
    json_decref(one);
}

static void keys_of_samples(void **state) {
    (void)state;
    configure("float32: true\ngeneration_max_new_tokens: 3\n");
    EXPECT(0, "generate_samples: only has an effect with val_set_size", config,
           "generate_samples=true", "val_set_size=0");
    json_t *all = records("out", true);
    assert_true(json_array_size(all) == 0);
    json_decref(all);
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
    EXPECT(2, "num_generation_samples: at most 64 can be shown", config, "generate_samples=65");
    assert_false(ax_path_exists(in_scratch("out")));
    /* a number is how many; a share of the row, here all of it, instead of what precedes the answer */
    EXPECT(0, "trained 4 of 4 steps", config, "generate_samples=1", "generation_prompt_ratio=1");
    all = records("out", true);
    assert_true(json_array_size(all) == 3);
    assert_non_null(
        strstr(json_string_value(json_object_get(json_array_get(all, 0), "prompt")), "no, no"));
    json_decref(all);
}

static int64_t planned_bytes(const char *more) {
    char said[8192];
    const char *const args[] = {config, "--quiet", "--json", "generate_samples=true", more};
    assert_int_equal(sft(said, sizeof said, 5, args), 0);
    json_t *v = json_loads(strchr(said, '{'), JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL);
    const int64_t bytes = json_integer_value(json_object_get(v, "planned_bytes"));
    json_decref(v);
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
    return bytes;
}

/* Longer answers need a larger cache: float32 keys and values of 2 lanes, 3 layers, 2 heads of 16. */
static void memory_is_planned(void **state) {
    (void)state;
    configure("float32: true\n");
    const int64_t few = planned_bytes("generation_max_new_tokens=8000");
    const int64_t more = planned_bytes("generation_max_new_tokens=9000");
    const int64_t cache = 1000LL * 2 * 3 * 2 * 16 * 2 * 4;
    print_message("%lld bytes for 8000 tokens, %lld for 9000\n", (long long)few, (long long)more);
    assert_true(more - few >= cache && more - few < 2 * cache);
}

static void the_report_shows_them(void **state) {
    (void)state;
    configure("float32: true\n");
    char out[128], *html;
    size_t len;
    make_folder("out");
    put_text("out/metrics.jsonl",
             "{\"step\": 1, \"loss\": 1}\n{\"step\": 1, \"event\": \"sample\", \"prompt\": \"a "
             "<b>?\", \"text\": \"4 & more\"}\n");
    snprintf(out, sizeof out, "%s", in_scratch("out"));
    sft_command = "report";
    EXPECT(0, "report: ", out);
    sft_command = "sft";
    assert_int_equal(ax_read_file(in_scratch("out/report.html"), 1 << 20, &html, &len), AX_OK);
    assert_non_null(strstr(html, "<h2>Samples</h2>"));
    assert_non_null(strstr(html, "<td>1</td><td class=\"text\">a &lt;b&gt;?</td>"
                                 "<td class=\"text\">4 &amp; more</td>"));
    ax_free(html);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scratch_make, scratch_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(training_is_the_same), TEST(answers_are_the_models), TEST(ranks_answer_alike),
        TEST(keys_of_samples),      TEST(memory_is_planned),      TEST(the_report_shows_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

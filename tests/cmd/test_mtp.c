/* `axtrain sft` with mtp_loss_scaling_factor: what it reports and writes, also when it is resumed, and
 * which models and methods it refuses; and `axtrain generate` with the drafts of what it has trained. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/chats_case.h"
#include "tests/cmd/tiny_base.h"

#define KEY   "mtp_loss_scaling_factor"
#define LAYER "model.layers.3."

static const char trains[] = KEY "=0.5";

static const struct tiny_family moonlight = {"moonlight", "llama", TINY_PREDICTS};

/* base_model=… of a folder in the scratch folder. */
static const char *base(const char *name) {
    static char text[256];
    snprintf(text, sizeof text, "base_model=%s/%s", scratch, name);
    return text;
}

static bool same(const struct ax_hf *a, const char *x, const struct ax_hf *b, const char *y) {
    const struct ax_st_entry *e = ax_hf_find(a, x), *f = ax_hf_find(b, y);
    assert_non_null(e);
    assert_non_null(f);
    assert_int_equal(e->bytes, f->bytes);
    return memcmp(e->data, f->data, e->bytes) == 0;
}

static void open_folder(struct ax_hf *hf, const char *name) {
    assert_int_equal(ax_hf_open(hf, in_scratch(name)), AX_OK);
}

/* A run of six steps from random weights, which writes `first`; the later runs begin with that. */
static const char *first_run(void) {
    const char *config = chats_config("max_steps: 6\nsave_steps: 3\nfloat32: true\n");
    tiny_base(&moonlight);
    EXPECT(0, "trained 6 of 6", config, base("moonlight"), "reinit_weights=true", out("first"),
           trains);
    return config;
}

static void the_layer_trains_and_is_saved(void **state) {
    (void)state;
    struct ax_hf start, end;
    const char *config = first_run();
    assert_true(metric_of("first", "mtp_loss", 6) < metric_of("first", "mtp_loss", 1) - 0.1);
    EXPECT(0, "trained 2 of 2", config, base("first"), out("second"), "max_steps=2", trains);
    open_folder(&start, "first");
    open_folder(&end, "second");
    static const char *const trained[] = {"enorm",
                                          "hnorm",
                                          "eh_proj",
                                          "shared_head.norm",
                                          "self_attn.o_proj",
                                          "mlp.shared_experts.up_proj"};
    assert_int_equal(ax_hf_count(&start), ax_hf_count(&end));
    for (size_t i = 0; i < sizeof trained / sizeof *trained; i++) {
        char name[96];
        snprintf(name, sizeof name, LAYER "%s.weight", trained[i]);
        assert_false(same(&start, name, &end, name));
    }
    assert_true(same(&end, "model.embed_tokens.weight", &end, LAYER "embed_tokens.weight"));
    assert_true(same(&end, "lm_head.weight", &end, LAYER "shared_head.head.weight"));
    assert_false(same(&start, "lm_head.weight", &end, "lm_head.weight"));
    ax_hf_close(&start);
    ax_hf_close(&end);
}

/* What `axtrain generate` says of a model that has learned three conversations by heart. */
static void generate(const char *model, bool drafts, char *said, size_t size) {
    const char *const args[] = {
        in_scratch(model),  "--chat", "--n",     "4", "--prompt", "say no", "--temperature", "1",
        "--max-new-tokens", "24",     "--batch", "1", "--drafts"};
    const char *const was = sft_command;
    sft_command = "generate";
    const int code = sft(said, size, drafts ? 13 : 12, args);
    sft_command = was;
    if (code != 0)
        fail_msg("%s", said);
}

/* A model from random weights has nothing of the layer, whether its base has weights or not. */
static void random_weights_have_no_layer(void **state) {
    (void)state;
    static const char *const bases[] = {"moonlight", "first"};
    const char *config = first_run();
    for (size_t i = 0; i < 2; i++) {
        struct ax_hf made;
        EXPECT(0, "and saved models do not have them", config, base(bases[i]),
               "reinit_weights=true", out("plain"), "max_steps=1");
        open_folder(&made, "plain");
        assert_non_null(ax_hf_find(&made, "model.layers.2.self_attn.o_proj.weight"));
        assert_null(ax_hf_find(&made, LAYER "eh_proj.weight"));
        ax_hf_close(&made);
        EXPECT(0, "trained 1 of 1", config, base("plain"), out("again"), "max_steps=1");
        assert_int_equal(ax_remove_tree(in_scratch("plain")), AX_OK);
        assert_int_equal(ax_remove_tree(in_scratch("again")), AX_OK);
    }
}

/* Without the key, and with an adapter, the layer stays as it is. */
static void others_keep_the_layer(void **state) {
    (void)state;
    struct ax_hf start, end;
    char said[8192];
    const char *config = first_run();
    EXPECT(0, "layers from 3 on are for multi-token prediction", config, base("first"),
           out("plain"), "max_steps=1");
    open_folder(&start, "first");
    open_folder(&end, "plain");
    assert_true(same(&start, LAYER "eh_proj.weight", &end, LAYER "eh_proj.weight"));
    ax_hf_close(&start);
    ax_hf_close(&end);
    EXPECT(0, "adapter: ", config, base("first"), out("adapter"), "max_steps=2", "adapter=lora",
           "lora_r=4", "lora_alpha=8", "lora_target_linear=true", "lora_modules_to_save=[gate]",
           trains);
    assert_true(metric_of("adapter", "mtp_loss", 2) > 0);
    char *text;
    size_t len;
    assert_ok(ax_read_file(in_scratch("adapter/adapter_model.safetensors"), 1 << 24, &text, &len));
    assert_non_null(memmem(text, len, "layers.2.mlp.gate.", 18));
    assert_null(memmem(text, len, "layers.3.", 9));
    ax_free(text);
    generate("adapter", false, said, sizeof said);
    generate("adapter", true, said, sizeof said);
    EXPECT(2, "eh_proj", config, base("first"), out("none"), "adapter=lora", "lora_r=4",
           "lora_alpha=8", "lora_target_modules=[q_proj,eh_proj]", trains);
}

static void a_resumed_run_is_the_same(void **state) {
    (void)state;
    char from[256];
    const char *config = first_run();
    snprintf(from, sizeof from, "resume_from_checkpoint=%s/first/checkpoint-3", scratch);
    EXPECT(0, "trained", config, base("moonlight"), "reinit_weights=true", out("again"), from,
           trains);
    assert_true(same_weights("first", "again"));
}

static long long number_of(const char *said, const char *name) {
    const char *at = strstr(said, name);
    assert_non_null(at);
    return atoll(at + strlen(name));
}

static void drafts_save_passes(void **state) {
    (void)state;
    char without[8192], with[8192];
    const char *config = chats_config("max_steps: 40\nfloat32: true\n");
    tiny_base(&moonlight);
    EXPECT(0, "step=1/40", config, base("moonlight"), "reinit_weights=true", out("first"), trains);
    generate("first", false, without, sizeof without);
    generate("first", true, with, sizeof with);
    const size_t n = (size_t)(strstr(without, "info ") - without);
    print_message("%s", with);
    assert_memory_equal(with, without, n);
    const long long drafts = number_of(with, "drafts="), accepted = number_of(with, "accepted=");
    assert_true(drafts > 0 && 2 * accepted > drafts);
    assert_int_equal(number_of(with, "passes="), number_of(with, " tokens=") - accepted);
}

static void what_cannot_predict_is_refused(void **state) {
    (void)state;
    const char *config = first_run();
    EXPECT(2, KEY ": this llama model has no layer", config, trains);
    EXPECT(2, KEY ": multi-token prediction is not implemented with qat or fp8", config,
           base("first"), "fp8=true", trains);
}

static int clear(void **state) {
    (void)state;
    static const char *const names[] = {"first", "second", "plain", "adapter", "again"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(ax_remove_tree(in_scratch(names[i])), AX_OK);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_layer_trains_and_is_saved, clear),
        cmocka_unit_test_setup(random_weights_have_no_layer, clear),
        cmocka_unit_test_setup(others_keep_the_layer, clear),
        cmocka_unit_test_setup(a_resumed_run_is_the_same, clear),
        cmocka_unit_test_setup(drafts_save_passes, clear),
        cmocka_unit_test_setup(what_cannot_predict_is_refused, clear),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

/* `axtrain quantize --calibrate` of models whose layers are computed as one: they have other parts than a mixer and then
 * an ffn, or use the keys and values, per-layer inputs or choices of earlier ones. The folder that is written runs in one
 * pass, and so must have the perplexity that was measured layer by layer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/quantize_case.h"
#include "tests/cmd/tiny_base.h"

static const struct {
    const char *name, *int8, *gptq; /* what is said */
} models[] = {
    {"x/gemma-4-e2b", "27 matrices as int8-int8", "25 matrices as int4 by GPTQ"},
    {"x/gemma-3n-e2b", "33 matrices as int8-int8", "31 matrices as int4 by GPTQ"},
    {"x/aya-expanse-8b", "23 matrices as int8-int8", "21 matrices as int4 by GPTQ"},
    {"x/glm-5", "matrices as int8-int8", "matrices as int4 by GPTQ"},
};

/* SCRATCH/PREFIX-trained: of the model of that name, from random weights. */
static const char *trained(const struct tiny_family *f) {
    static char dir[160];
    char base[200], name[64];
    snprintf(name, sizeof name, "%s-trained", f->prefix);
    snprintf(dir, sizeof dir, "%s", in_scratch(name));
    const char *config = chats_config("float32: true\n");
    snprintf(base, sizeof base, "base_model=%s", tiny_base(f));
    EXPECT(0, "trained 12 of 12", config, base, "reinit_weights=true", "max_steps=12", out(name));
    return dir;
}

/* SCRATCH/<to> from the folder; further words are flags. */
#define QUANTIZE(src, to, says, ...)                                                               \
    do {                                                                                           \
        char dst_[160], rows_[160];                                                                \
        snprintf(dst_, sizeof dst_, "%s", in_scratch(to));                                         \
        snprintf(rows_, sizeof rows_, "%s", in_scratch("ids.jsonl"));                              \
        assert_int_equal(ax_remove_tree(dst_), AX_OK);                                             \
        sft_command = "quantize";                                                                  \
        EXPECT(0, says, src, dst_, "--calibrate", rows_, "--type", "", "--scheme", __VA_ARGS__);   \
    } while (0)

/* Both perplexities that were printed. */
static void same_perplexity(const char *name, double original, const char *folder) {
    char dir[160], rows[160];
    const double before = number_after("tokens): "), after = number_after("before, ");
    snprintf(dir, sizeof dir, "%s", in_scratch(folder));
    snprintf(rows, sizeof rows, "%s", in_scratch("ids.jsonl"));
    const double now = evaluated(dir, rows, "");
    if (before != original || after != now || before == after)
        fail_msg("%s, %s: %.4f before, %.4f after; eval says %.4f, %.4f", name, folder, before,
                 after, original, now);
}

static void test_layers_as_one(void **state) {
    (void)state;
    char rows[160];
    need_binary();
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const char *name = models[i].name;
        sft_command = "sft";
        const char *src = trained(tiny_family(name));
        put_id_rows(8, 1, 300); /* one sequence, which both calibrates and measures */
        snprintf(rows, sizeof rows, "%s", in_scratch("ids.jsonl"));
        const double original = evaluated(src, rows, "");
        QUANTIZE(src, "bytes", models[i].int8, "int8-int8", "--head");
        same_perplexity(name, original, "bytes");
        QUANTIZE(src, "gptq", models[i].gptq, "int4", "--gptq", "--group", "8", "--threads", "1");
        for (int layer = 0; layer < 3; layer++)
            if (!(written_over_nearest(layer) < 0.9))
                fail_msg("%s, layer %d: %g of nearest", name, layer, written_over_nearest(layer));
        same_perplexity(name, original, "gptq");
        QUANTIZE(src, "threads", models[i].gptq, "int4", "--gptq", "--group", "8", "--threads",
                 "3");
        assert_true(same_files("gptq", "threads"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers_as_one),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

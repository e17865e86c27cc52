/* Every published shape adds up to the number of parameters that its publisher gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "model/arch/shapes.h"
#include "model/arch/arch.h"

static const struct {
    const char *name;
    int64_t parameters; /* of the safetensors that were published; llama-tiny: by hand; llama-4,
                           mimo: of transformers' text model */
} published[] = {
    {"llama-tiny", 151872},           {"smollm2-135m", 134515008},
    {"llama-2-7b", 6738415616},       {"llama-2-13b", 13015864320},
    {"llama-2-70b", 68976648192},     {"codellama-34b", 33743970304},
    {"llama-3-8b", 8030261248},       {"llama-3-70b", 70553706496},
    {"llama-3.1-8b", 8030261248},     {"llama-3.1-70b", 70553706496},
    {"llama-3.1-405b", 405853388800}, {"llama-3.2-1b", 1235814400},
    {"llama-3.2-3b", 3212749824},     {"llama-3.3-70b", 70553706496},
    {"llama-4-scout", 107769861120},  {"llama-4-maverick", 400711848960},
    {"mimo-v2-flash", 308778768832},  {"mistral-7b-v0.3", 7248023552},
    {"mixtral-8x7b", 46702792704},    {"mixtral-8x22b", 140620634112},
    {"qwen2.5-0.5b", 494032768},      {"qwen2.5-1.5b", 1543714304},
    {"qwen2.5-3b", 3085938688},       {"qwen2.5-7b", 7615616512},
    {"qwen2.5-14b", 14770033664},     {"qwen2.5-32b", 32763876352},
    {"qwen3-0.6b", 596049920},        {"qwen3-1.7b", 1720574976},
    {"qwen3-4b", 4022468096},         {"qwen3-8b", 8190735360},
    {"qwen3-14b", 14768307200},       {"qwen3-32b", 32762123264},
    {"qwen3-30b-a3b", 30532122624},   {"qwen3-235b-a22b", 235093634560},
    {"gpt-oss-20b", 20914757184},     {"gpt-oss-120b", 116829156672},
    {"deepseek-v3", 671026404352},
};

static void shapes_have_their_parameters(void **state) {
    (void)state;
    size_t n = 0;
    for (const char *name; (name = ax_shape_name(n)) != NULL; n++) {
        struct ax_json_doc doc;
        struct ax_arch arch;
        assert_true(n < sizeof published / sizeof *published);
        assert_string_equal(name, published[n].name);
        assert_int_equal(ax_shape_config(name, &doc), AX_OK);
        if (ax_arch_parse(&arch, ax_json_root(&doc)) != AX_OK)
            fail_msg("%s: %s", name, ax_error_text());
        assert_int_equal(ax_arch_parameters(&arch), published[n].parameters);
        ax_arch_free(&arch);
        ax_json_free(&doc);
    }
    assert_int_equal(n, sizeof published / sizeof *published);
}

static void expect_refused(const char *name, const char *text) {
    struct ax_json_doc doc;
    assert_int_equal(ax_shape_config(name, &doc), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), text));
}

static void names_are_forgiving(void **state) {
    (void)state;
    struct ax_json_doc doc;
    assert_int_equal(ax_shape_config("Llama-3.1-8B", &doc), AX_OK);
    assert_int_equal(json_integer_value(json_object_get(doc.root, "max_position_embeddings")),
                     131072);
    ax_json_free(&doc);
    expect_refused("llama-3.1-8", "did you mean llama-3.1-8b?");
    expect_refused("qwen3-30b-a3", "did you mean qwen3-30b-a3b?");
    expect_refused("nemotron-4-340b", "there are llama-tiny, smollm2-135m, ");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_have_their_parameters),
        cmocka_unit_test(names_are_forgiving),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

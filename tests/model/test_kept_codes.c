/* Which quantized checkpoints keep their codes as a base, and which become plain weights: by config.json alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "model/arch/arch.h"

#define GPTQ "\"quant_method\": \"gptq\", "
#define BNB  "\"quant_method\": \"bitsandbytes\", "

static const struct {
    const char *config;
    enum ax_storage codes;
} cases[] = {
    {GPTQ "\"bits\": 4, \"group_size\": 32, \"desc_act\": false, \"sym\": true", AX_STORAGE_INT4},
    {GPTQ "\"bits\": 4, \"group_size\": 128, \"desc_act\": false, \"sym\": true", AX_STORAGE_INT4},
    {GPTQ "\"bits\": 4, \"group_size\": 16, \"desc_act\": false, \"sym\": true",
     AX_STORAGE_PLAIN}, /* blocks are of 32 */
    {GPTQ "\"bits\": 8, \"group_size\": 32, \"desc_act\": false, \"sym\": true", AX_STORAGE_PLAIN},
    {GPTQ "\"bits\": 4, \"group_size\": 32, \"desc_act\": false, \"sym\": false", AX_STORAGE_PLAIN},
    {GPTQ "\"bits\": 4, \"group_size\": 32, \"desc_act\": true, \"sym\": true",
     AX_STORAGE_PLAIN}, /* columns have an order of their own */
    {BNB "\"load_in_8bit\": true", AX_STORAGE_INT8},
    {BNB "\"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"nf4\"", AX_STORAGE_NF4},
    {BNB "\"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"fp4\"", AX_STORAGE_PLAIN},
    {"\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 32, \"zero_point\": true, "
     "\"version\": \"gemm\"",
     AX_STORAGE_PLAIN},
};

static void codes_that_a_base_can_have_are_kept(void **state) {
    char config[600];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_json_doc doc;
        struct ax_arch a;
        snprintf(config, sizeof config,
                 "{\"model_type\": \"llama\", \"vocab_size\": 32, \"hidden_size\": 64, "
                 "\"intermediate_size\": 96, \"num_hidden_layers\": 1, \"num_attention_heads\": 4, "
                 "\"quantization_config\": {%s}}",
                 cases[i].config);
        if (ax_json_parse(&doc, "config.json", config, strlen(config)) != AX_OK ||
            ax_arch_parse(&a, ax_json_root(&doc)) != AX_OK)
            fail_msg("%s: %s", cases[i].config, ax_error_text());
        ax_json_free(&doc);
        if (a.codes != cases[i].codes)
            fail_msg("%s: %d", cases[i].config, (int)a.codes);
        ax_arch_free(&a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(codes_that_a_base_can_have_are_kept)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

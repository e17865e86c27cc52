/* params.json, a model's configuration in Mistral's own form: any text gives the config.json of a mistral
 * or mixtral, which is one that is supported or is refused, or an error that names the file. Nothing stays allocated. */
#include <string.h>

#include "base/mem.h"
#include "ckpt/hf/params.h"
#include "model/arch.h"
#include "tests/fuzz/mutate.h"

static void check_config(const json_t *config) {
    struct ax_json_doc doc;
    struct ax_arch a;
    char *text = json_dumps(config, 0);
    AX_ASSERT(text &&
              strncmp(json_string_value(json_object_get(config, "model_type")), "mi", 2) == 0);
    AX_ASSERT(ax_json_parse(&doc, "c.json", text, strlen(text)) == AX_OK);
    if (ax_arch_parse(&a, ax_json_root(&doc)) != AX_OK)
        AX_ASSERT(strncmp(ax_error_text(), "c.json: ", 8) == 0);
    ax_arch_free(&a);
    ax_json_free(&doc);
    ax_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint64_t live = ax_mem_live_blocks();
    struct ax_json_doc doc;
    json_t *config;
    if (ax_json_parse(&doc, "params.json", (const char *)data, size) == AX_OK) {
        if (ax_hf_params_config(ax_json_root(&doc), AX_BF16, &config) == AX_OK) {
            check_config(config);
            json_decref(config);
        } else {
            AX_ASSERT(strncmp(ax_error_text(), "params.json: ", 13) == 0);
        }
        ax_json_free(&doc);
    }
    AX_ASSERT(ax_mem_live_blocks() == live);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    return fuzz_text_mutate(data, size, max_size, seed);
}

/* A model's config.json: any text gives an architecture whose sizes fit together and whose derived
 * numbers are finite, or an error that names the file. Nothing stays allocated. */
#include <math.h>
#include <string.h>

#include "model/arch/arch.h"
#include "tests/fuzz/mutate.h"

static void check_rope(const struct ax_rope_config *r, int64_t head_dim) {
    float inv_freq[1024];
    double scaling;
    AX_ASSERT(r->dim >= 2 && r->dim <= head_dim && r->dim % 2 == 0);
    ax_rope_frequencies(r, 2 * r->max_positions, inv_freq, &scaling);
    AX_ASSERT(isfinite(scaling) && scaling > 0);
    for (int64_t i = 0; i < r->dim / 2; i++)
        AX_ASSERT(isfinite(inv_freq[i]) && inv_freq[i] >= 0);
}

static void check_arch(const struct ax_arch *a) {
    AX_ASSERT(a->family == ax_family_find(a->family->model_type));
    AX_ASSERT(a->vocab_size > 0 && a->hidden_size > 0 && a->intermediate_size > 0);
    AX_ASSERT(a->head_dim > 0 && a->head_dim <= 2048 && a->n_heads % a->n_kv_heads == 0);
    AX_ASSERT(a->norm_eps > 0 && isfinite(a->norm_eps) && ax_dtype_info(a->dtype)->is_float);
    AX_ASSERT(ax_arch_parameters(a) > 0);
    AX_ASSERT(isfinite(ax_arch_flops_per_token(a, a->max_positions)));
    for (int64_t i = 0; i < a->n_layers; i++)
        AX_ASSERT(a->layers[i].mixer && a->layers[i].ffn && a->layers[i].window >= 0);
    check_rope(&a->rope, a->head_dim);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint64_t live = ax_mem_live_blocks();
    struct ax_json_doc doc;
    struct ax_arch a;
    if (ax_json_parse(&doc, "c.json", (const char *)data, size) == AX_OK) {
        if (ax_arch_parse_file(&a, &doc, NULL) == AX_OK) {
            check_arch(&a);
        } else {
            AX_ASSERT(strncmp(ax_error_text(), "c.json: ", 8) == 0);
            AX_ASSERT(a.layers == NULL);
        }
        ax_arch_free(&a);
        ax_json_free(&doc);
    }
    AX_ASSERT(ax_mem_live_blocks() == live);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    return fuzz_text_mutate(data, size, max_size, seed);
}

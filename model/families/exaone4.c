/* EXAONE 4 (LG AI Research 2025): norms on the outputs of a layer's parts as OLMo 2's, but of each head's q and k. With
 * sliding_window, every fourth layer has neither a window nor rope. */
#include <string.h>

#include "model/arch/family.h"

/* A number, or a word such as LLLG, whose length it is. transformers writes 0 where there is no window. */
static enum ax_status period_of(struct ax_json c, int64_t *period) {
    const struct ax_json v = ax_json_get(c, "sliding_window_pattern");
    const char *word;
    *period = 1;
    if (json_is_integer(v.v) && json_integer_value(v.v) == 0 &&
        json_is_null(json_object_get(c.v, "sliding_window")))
        return AX_OK;
    if (!json_is_string(v.v))
        return ax_json_i64_or(v, 1, INT32_MAX, 4, period);
    AX_TRY(ax_json_str(v, &word));
    const size_t n = strlen(word);
    if (n == 0 || strspn(word, "L") != n - 1 || word[n - 1] != 'G')
        return ax_json_error(v,
                             "expected L for layers with a window and one G at the end, got "
                             "\"%.40s\"",
                             word);
    *period = (int64_t)n;
    return AX_OK;
}

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    int64_t period = 0;
    AX_TRY(ax_family_olmo2.parse(a, c));
    a->qkv_bias = a->o_bias = false;
    a->qk_norm = AX_QK_NORM_HEAD;
    AX_TRY(period_of(c, &period));
    AX_TRY(ax_layer_windows(a, c, period));
    const bool windows = !json_is_null(json_object_get(c.v, "sliding_window")); /* or absent */
    for (int64_t i = 0; i < a->n_layers; i++)
        if (windows && a->layers[i].window == 0)
            a->layers[i].rope = AX_ROPE_NONE;
    return AX_OK;
}

const struct ax_family ax_family_exaone4 = {.model_type = "exaone4",
                                            .models = "EXAONE 4.0",
                                            .architecture = "Exaone4ForCausalLM",
                                            .parse = parse};

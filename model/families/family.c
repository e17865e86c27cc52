/* The registry of model families. */
#include "model/families/family.h"

#include <stdio.h>
#include <string.h>

static const struct ax_family *const families[] = {
    &ax_family_deepseek_v2, &ax_family_deepseek_v3, &ax_family_gemma2,    &ax_family_gemma3,
    &ax_family_glm4_moe,    &ax_family_granite,     &ax_family_llama,     &ax_family_mistral,
    &ax_family_mixtral,     &ax_family_olmo2,       &ax_family_phi3,      &ax_family_qwen2,
    &ax_family_qwen2_moe,   &ax_family_qwen3,       &ax_family_qwen3_moe, &ax_family_smollm3,
};
#define N_FAMILIES (sizeof families / sizeof *families)

const struct ax_family *ax_family_find(const char *model_type) {
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (strcmp(families[i]->model_type, model_type) == 0)
            return families[i];
    return NULL;
}

const char *ax_family_list(char *buf, size_t size) {
    size_t at = 0;
    buf[0] = '\0';
    for (size_t i = 0; i < N_FAMILIES && at < size; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%s", i ? ", " : "", families[i]->model_type);
    return buf;
}

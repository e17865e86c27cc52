/* The built-in chat templates, by the names used in configs (chat_template: llama3). Published
 * checkpoints define what the names mean; the sources are in named_tables.c. */
#include "data/template/named.h"

#include <string.h>

#include "base/mem.h"
#include "data/template/template.h"

static const struct {
    const char *name, *source;
} named[] = {
    {"alpaca", ax_template_alpaca},
    {"chatml", ax_template_chatml},
    {"deepseek_v2", ax_template_deepseek_v2},
    {"deepseek_v3", ax_template_deepseek_v3},
    {"gemma", ax_template_gemma},
    {"llama3", ax_template_llama3},
    {"mistral_v1", ax_template_mistral_v1},
    {"mistral_v2v3", ax_template_mistral_v2v3},
    {"mistral_v3_tekken", ax_template_mistral_v3_tekken},
    {"mistral_v7_tekken", ax_template_mistral_v7_tekken},
    {"phi_3", ax_template_phi_3},
    {"phi_35", ax_template_phi_35},
    {"qwen3", ax_template_qwen3},
    {"qwen_25", ax_template_qwen_25},
};

#define N_NAMED (sizeof named / sizeof named[0])

const char *ax_template_name(size_t i) {
    return i < N_NAMED ? named[i].name : NULL;
}

enum ax_status ax_template_builtin(struct ax_template **out, const char *name) {
    for (size_t i = 0; i < N_NAMED; i++) {
        if (strcmp(named[i].name, name) != 0)
            continue;
        return ax_template_compile(out, name, named[i].source, strlen(named[i].source));
    }
    struct ax_buf list = {0};
    enum ax_status st = AX_OK;
    for (size_t i = 0; i < N_NAMED && st == AX_OK; i++)
        st = ax_buf_printf(&list, "%s%s", i > 0 ? ", " : "", named[i].name);
    if (st == AX_OK) {
        st = ax_error(AX_ERR_CONFIG,
                      "chat_template: unknown template \"%s\"; the built-in ones are %s", name,
                      list.data);
    }
    ax_buf_free(&list);
    return st;
}

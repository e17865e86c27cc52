/* The built-in chat templates, by the names used in configs (chat_template: llama3). Published
 * checkpoints define what the names mean; the sources are in named_*tables.c. */
#include "data/text/template/named.h"

#include <string.h>

#include "base/mem.h"
#include "data/text/template/template.h"

static const struct {
    const char *name, *source;
} named[] = {
#define ROW(name, source) {#name, ax_template_##source},
    AX_TEMPLATES_NAMED(ROW)
#undef ROW
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

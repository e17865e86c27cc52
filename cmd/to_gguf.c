/* The GGUF file that a command writes. */
#include "cmd/to_gguf.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/io_path.h"
#include "cmd/config/build.h"

enum ax_status ax_to_gguf_quant(const struct ax_gguf_quant **out, const char *name) {
    static const struct ax_config_key quants = {.path = "", .choices = AX_GGUF_QUANTS};
    char list[128], hint[160];
    *out = name ? ax_gguf_quant_find(name) : NULL;
    if (!name || *out)
        return AX_OK;
    snprintf(list, sizeof list, "%s", AX_GGUF_QUANTS);
    for (char *p = list; *p; p++)
        *p = *p == '|' ? ' ' : *p;
    return ax_error(AX_ERR_CONFIG, "--quant: expected one of %s, got \"%s\"%s", list, name,
                    ax_config_suggest_choice(&quants, name, hint, sizeof hint));
}

enum ax_status ax_to_gguf_check_destination(const char *dst, bool overwrite) {
    if (!*dst)
        return ax_error(AX_ERR_CONFIG, "--to gguf: expected the name of a file, got an empty one");
    if (ax_path_is_dir(dst))
        return ax_error(
            AX_ERR_CONFIG,
            "%s: a folder. --to gguf writes one file; give its name, e.g. %s%smodel.gguf.", dst,
            dst, dst[strlen(dst) - 1] == '/' ? "" : "/");
    AX_TRY(ax_path_check_replaceable(dst));
    if (ax_path_exists(dst) && !overwrite)
        return ax_error(AX_ERR_CONFIG,
                        "%s: the file exists. Choose another name, or replace it with --overwrite.",
                        dst);
    return AX_OK;
}

void ax_to_gguf_print(const struct ax_to_gguf *c) {
    char size[32];
    printf("%s: %s, %d tensors, %lld weights, %s, %s\n", c->dst, c->model_type, c->tensors,
           (long long)c->weights, c->quant->name,
           ax_format_bytes(size, sizeof size, (double)c->bytes));
}

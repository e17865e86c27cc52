/* `axtrain convert`: GGUF file → Hugging Face folder, or back. */
#include <stdio.h>
#include <string.h>

#include "base/io_path.h"
#include "ckpt/gguf/gguf.h"
#include "cmd/args.h"
#include "cmd/commands.h"
#include "cmd/convert/from_gguf.h"
#include "cmd/convert/to_gguf.h"
#include "cmd/train/base_model.h"

static enum ax_status to_hf(struct ax_convert *c, const char *quant, bool overwrite) {
    if (quant || overwrite)
        return ax_error(AX_ERR_CONFIG, "convert: %s needs --to gguf",
                        quant ? "--quant" : "--overwrite");
    AX_TRY(ax_convert_gguf_to_hf(c));
    printf("%s: %s, %d tensors, %lld weights, %s\n", c->dst, c->model_type, c->tensors,
           (long long)c->weights, ax_dtype_info(c->written)->name);
    return AX_OK;
}

static enum ax_status to_gguf(const struct ax_convert *c, const char *quant, bool overwrite,
                              int threads) {
    struct ax_to_gguf g = {.dst = c->dst, .threads = threads};
    struct ax_lock use;
    char *folder;
    if (c->dtype)
        return ax_error(AX_ERR_CONFIG, "convert: --dtype needs --to hf. For a GGUF file, use "
                                       "--quant.");
    AX_TRY(ax_to_gguf_quant(&g.quant, quant));
    AX_TRY(ax_to_gguf_check_destination(c->dst, overwrite));
    if (!quant && ax_gguf_is(c->src))
        return ax_error(AX_ERR_CONFIG,
                        "%s: already a GGUF file. Give the type to convert it to with --quant.",
                        c->src);
    AX_TRY(ax_base_model_folder(&folder, &use, c->src, NULL, NULL));
    g.src = folder;
    const enum ax_status st = ax_convert_to_gguf(&g);
    if (st == AX_OK)
        ax_to_gguf_print(&g);
    ax_lock_drop(&use);
    ax_free(folder);
    return st;
}

enum ax_status ax_cmd_convert(int argc, char **argv) {
    const char *to = NULL, *quant = NULL, *paths[2];
    bool overwrite = false;
    int64_t threads = 0;
    struct ax_convert c = {0};
    int n;
    const struct ax_arg args[] = {{"--to", AX_ARG_STRING, &to, 0, 0},
                                  {"--dtype", AX_ARG_STRING, &c.dtype, 0, 0},
                                  {"--quant", AX_ARG_STRING, &quant, 0, 0},
                                  {"--overwrite", AX_ARG_FLAG, &overwrite, 0, 0},
                                  {"--threads", AX_ARG_INT, &threads, 1, 1024}};
    AX_TRY(ax_args_parse(argc, argv, 5, args, 2, 2, paths, &n));
    c.src = paths[0];
    c.dst = paths[1];
    if (!to)
        to = ax_path_ends_in(c.dst, ".gguf")   ? "gguf"
             : ax_path_ends_in(c.src, ".gguf") ? "hf"
                                               : NULL;
    if (to && strcmp(to, "hf") == 0)
        return to_hf(&c, quant, overwrite);
    if (to && strcmp(to, "gguf") == 0)
        return to_gguf(&c, quant, overwrite, (int)threads);
    return ax_error(AX_ERR_CONFIG, "convert: --to: expected hf or gguf, got %s%s%s", to ? "\"" : "",
                    to ? to : "nothing", to ? "\"" : "");
}

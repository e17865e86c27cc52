/* `axtrain convert`: GGUF file → Hugging Face folder, or back; a folder in another dtype. */
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/io_path.h"
#include "base/log.h"
#include "ckpt/gguf/gguf.h"
#include "ckpt/hf/peft.h"
#include "cmd/args/args.h"
#include "cmd/commands.h"
#include "model/convert/from_folder.h"
#include "model/convert/lora_to_gguf.h"
#include "cmd/to_gguf.h"
#include "model/convert/modelfile.h"
#include "model/convert/base_model.h"
#include "model/adapter/base_note.h"
#include "model/adapter/vocabulary_note.h"

/* Options of --to gguf. */
struct options {
    const char *quant;
    const char *base; /* of an adapter */
    bool overwrite, ollama;
    int64_t threads;
};

/* A folder's weights in c->dtype, dequantized if they are quantized. */
static enum ax_status folder_to_hf(struct ax_convert *c) {
    const char *const name = c->src;
    struct ax_lock use;
    char *folder;
    if (ax_peft_is_folder(name))
        return ax_error(
            AX_ERR_CONFIG,
            "convert: %s is an adapter. `axtrain merge BASE %s DST` makes a model of it.", name,
            name);
    AX_TRY(ax_base_model_folder(&folder, &use, name, NULL, NULL));
    c->src = folder;
    const enum ax_status st = ax_convert_folder_to_hf(c);
    ax_lock_drop(&use);
    ax_free(folder);
    return st;
}

static enum ax_status to_hf(struct ax_convert *c, const struct options *o) {
    if (o->quant || o->overwrite || o->ollama || o->base)
        return ax_error(AX_ERR_CONFIG, "convert: %s needs --to gguf",
                        o->quant       ? "--quant"
                        : o->overwrite ? "--overwrite"
                        : o->ollama    ? "--ollama"
                                       : "--base");
    const bool gguf = ax_path_ends_in(c->src, ".gguf") || ax_gguf_is(c->src);
    AX_TRY(gguf ? ax_convert_gguf_to_hf(c) : folder_to_hf(c));
    printf("%s: %s, %d tensors, %lld weights, %s\n", c->dst, c->model_type, c->tensors,
           (long long)c->weights, ax_dtype_info(c->written)->name);
    return AX_OK;
}

static enum ax_status check_modelfile(const char *dst, bool overwrite) {
    char *path;
    AX_TRY(ax_modelfile_path(&path, dst));
    const enum ax_status st = ax_to_gguf_check_destination(path, overwrite);
    ax_free(path);
    return st;
}

static enum ax_status write_modelfile(const char *folder, const char *dst) {
    char why[512], *path;
    AX_TRY(ax_modelfile_write(folder, dst, why));
    AX_TRY(ax_modelfile_path(&path, dst));
    printf("%s: for `ollama create NAME -f %s`\n", path, path);
    if (why[0])
        ax_log_warn("%s: no TEMPLATE: the chat template cannot be expressed: %s", path, why);
    ax_free(path);
    return AX_OK;
}

/* As merging does; a folder without weights has at least a tokenizer. */
static enum ax_status check_base(const char *name, const struct ax_peft *peft) {
    struct ax_base_model m;
    struct ax_hf hf;
    if (ax_arch_path_is_config(name))
        return AX_OK;
    AX_TRY(ax_base_model_find_tokenizer(&m, name, NULL));
    const bool weights = m.kind == AX_BASE_MODEL_FOLDER && ax_hf_open(&hf, m.path) == AX_OK;
    if (weights)
        ax_hf_close(&hf);
    else
        ax_error_clear();
    const enum ax_status st =
        weights ? ax_base_note_check(m.path, peft) : ax_vocabulary_note_check(m.path, peft);
    ax_base_model_free(&m);
    return st;
}

/* Of the base, only config.json is needed. */
static enum ax_status adapter_to_gguf(struct ax_to_gguf *g, const char *src,
                                      const struct options *o) {
    struct ax_peft peft;
    struct ax_arch arch;
    char *base;
    if (o->ollama)
        return ax_error(AX_ERR_CONFIG, "convert: --ollama is for models, and %s is an adapter",
                        src);
    AX_TRY(ax_peft_open(&peft, src));
    enum ax_status st = o->base ? ax_strdup(&base, o->base) : ax_peft_base(&peft, &base);
    if (st != AX_OK) {
        ax_peft_close(&peft);
        return st;
    }
    st = ax_base_model_arch(&arch, base, NULL, NULL);
    if (st != AX_OK && !o->base)
        st = ax_error_prefix(st, "the adapter's base (--base names another)");
    if (st == AX_OK && (st = check_base(base, &peft)) != AX_OK)
        ax_arch_free(&arch);
    ax_free(base);
    ax_peft_close(&peft);
    AX_TRY(st);
    g->src = src;
    st = ax_convert_lora_to_gguf(g, &arch);
    if (st == AX_OK)
        ax_to_gguf_print(g);
    ax_arch_free(&arch);
    return st;
}

static enum ax_status to_gguf(const struct ax_convert *c, const struct options *o) {
    struct ax_to_gguf g = {.dst = c->dst, .threads = (int)o->threads};
    struct ax_lock use;
    char *folder;
    if (c->dtype)
        return ax_error(AX_ERR_CONFIG, "convert: --dtype needs --to hf. For a GGUF file, use "
                                       "--quant.");
    AX_TRY(ax_to_gguf_quant(&g.quant, o->quant));
    AX_TRY(ax_to_gguf_check_destination(c->dst, o->overwrite));
    if (ax_peft_is_folder(c->src))
        return adapter_to_gguf(&g, c->src, o);
    if (o->base)
        return ax_error(AX_ERR_CONFIG, "convert: --base is for adapters, and %s is none", c->src);
    if (o->ollama)
        AX_TRY(check_modelfile(c->dst, o->overwrite));
    if (!o->quant && ax_gguf_is(c->src))
        return ax_error(AX_ERR_CONFIG,
                        "%s: already a GGUF file. Give the type to convert it to with --quant.",
                        c->src);
    AX_TRY(ax_base_model_folder(&folder, &use, c->src, NULL, NULL));
    g.src = folder;
    enum ax_status st = ax_convert_to_gguf(&g);
    if (st == AX_OK)
        ax_to_gguf_print(&g);
    if (st == AX_OK && o->ollama)
        st = write_modelfile(folder, c->dst);
    ax_lock_drop(&use);
    ax_free(folder);
    return st;
}

enum ax_status ax_cmd_convert(int argc, char **argv) {
    const char *to = NULL, *paths[2];
    struct options o = {0};
    struct ax_convert c = {0};
    int n, which;
    const struct ax_arg args[] = {{"--to", AX_ARG_STRING, &to, 0, 0},
                                  {"--dtype", AX_ARG_STRING, &c.dtype, 0, 0},
                                  {"--quant", AX_ARG_STRING, &o.quant, 0, 0},
                                  {"--base", AX_ARG_STRING, &o.base, 0, 0},
                                  {"--overwrite", AX_ARG_FLAG, &o.overwrite, 0, 0},
                                  {"--ollama", AX_ARG_FLAG, &o.ollama, 0, 0},
                                  {"--threads", AX_ARG_INT, &o.threads, 1, 1024}};
    AX_TRY(ax_args_parse(argc, argv, 7, args, 2, 2, paths, &n));
    c.src = paths[0];
    c.dst = paths[1];
    if (!to)
        to = ax_path_ends_in(c.dst, ".gguf")   ? "gguf"
             : ax_path_ends_in(c.src, ".gguf") ? "hf"
                                               : NULL;
    AX_TRY(ax_args_word("convert: --to", AX_WORDS_TO, to, &which));
    return which == 0 ? to_hf(&c, &o) : to_gguf(&c, &o);
}

/* `axtrain merge`: an adapter into its base model. */
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/io_path.h"
#include "cmd/args/args.h"
#include "cmd/commands.h"
#include "model/convert/merge.h"
#include "cmd/to_gguf.h"
#include "cmd/report/card.h"
#include "model/convert/base_model.h"

/* --to and its options. */
static enum ax_status pick_format(struct ax_merge *m, const char *to, const char *quant,
                                  bool overwrite) {
    int which = 0;
    if (!to && ax_path_ends_in(m->dst, ".gguf")) /* as convert does */
        to = "gguf";
    if (to)
        AX_TRY(ax_args_word("merge: --to", AX_WORDS_TO, to, &which));
    m->to_gguf = which == 1;
    if (!m->to_gguf && (quant || overwrite))
        return ax_error(AX_ERR_CONFIG, "merge: %s needs --to gguf",
                        quant ? "--quant" : "--overwrite");
    AX_TRY(ax_to_gguf_quant(&m->gguf.quant, quant));
    return m->to_gguf ? ax_to_gguf_check_destination(m->dst, overwrite) : AX_OK;
}

static void print_merge(const struct ax_merge *m) {
    printf("%s: %d of %d tensors merged in float64, %lld weights changed, %s %s\n", m->dst,
           m->matrices, m->tensors, (long long)m->changed, m->to_gguf ? "rounded to" : "written as",
           ax_dtype_info(m->written)->name);
    printf(
        "probe: the adapter moves logits by up to %.3g (largest %.3g); merged and adapter differ "
        "by up to %.3g\n",
        m->effect, m->largest, m->error);
    if (m->error > 0.5 * m->effect)
        printf("note: rounding to %s loses much of the adapter's effect; --dtype float32 keeps "
               "it\n",
               ax_dtype_info(m->written)->name);
    if (m->to_gguf)
        ax_to_gguf_print(&m->gguf);
}

/* Writes a model card if the adapter's folder has the records of its run. */
static enum ax_status write_card(const struct ax_merge *m) {
    const struct ax_card c = {.run = m->adapter, .dir = m->dst, .base = m->base, .merged = true};
    char *records;
    AX_TRY(ax_path_join(&records, m->adapter, "metrics.jsonl"));
    if (!m->to_gguf && ax_path_exists(records))
        ax_card_write(&c);
    ax_free(records);
    return AX_OK;
}

enum ax_status ax_cmd_merge(int argc, char **argv) {
    struct ax_merge m = {0};
    struct ax_lock use;
    char *base;
    const char *paths[3], *to = NULL, *quant = NULL;
    int64_t threads = 0;
    bool overwrite = false;
    int n;
    const struct ax_arg args[] = {{"--dtype", AX_ARG_STRING, &m.dtype, 0, 0},
                                  {"--to", AX_ARG_STRING, &to, 0, 0},
                                  {"--quant", AX_ARG_STRING, &quant, 0, 0},
                                  {"--overwrite", AX_ARG_FLAG, &overwrite, 0, 0},
                                  {"--threads", AX_ARG_INT, &threads, 1, 1024}};
    AX_TRY(ax_args_parse(argc, argv, 5, args, 3, 3, paths, &n));
    m.adapter = paths[1];
    m.dst = paths[2];
    m.threads = (int)threads;
    AX_TRY(pick_format(&m, to, quant, overwrite));
    AX_TRY(ax_base_model_folder(&base, &use, paths[0], NULL, NULL));
    m.base = base;
    m.base_name = paths[0];
    enum ax_status st = ax_merge_run(&m);
    if (st == AX_OK)
        st = write_card(&m);
    ax_lock_drop(&use);
    ax_free(base);
    AX_TRY(st);
    print_merge(&m);
    return AX_OK;
}

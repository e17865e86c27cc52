/* `axtrain preprocess`: fills the cache of prepared data sets so training starts immediately. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "cmd/commands.h"
#include "cmd/train/data/data.h"
#include "cmd/args/config_args.h"

static void print_sets(const struct ax_setup_sets *s) {
    for (size_t i = 0; i < s->n; i++) {
        const struct ax_examples *d = &s->sets[i];
        printf("%s: %zu documents, %llu tokens, %llu trained, longest %u, %lld bad record%s%s\n",
               s->entries[i].path, d->n, (unsigned long long)d->n_tokens,
               (unsigned long long)d->n_trained, d->longest, (long long)d->info.bad.n,
               d->info.bad.n == 1 ? "" : "s", d->info.from_cache ? " (from the cache)" : "");
    }
}

/* Nothing identifies the contents of standard input or a pipe: they are in memory only. */
static enum ax_status check_kept(const struct ax_setup_sets *s) {
    for (size_t i = 0; i < s->n; i++)
        if (s->sets[i].n > 0 && !s->sets[i].list_map.data)
            return ax_error(AX_ERR_DATA,
                            "%s: cannot be prepared ahead of training: it is standard input or a "
                            "pipe; name a file",
                            s->entries[i].path);
    return AX_OK;
}

static enum ax_status preprocess(const struct ax_config *cfg, bool refresh) {
    struct ax_setup_data d;
    char text[32];
    const double start = ax_clock_now();
    if (ax_setup_is_streamed(cfg))
        return ax_config_error(
            cfg, ax_config_bool(cfg, "streaming") ? "streaming" : "pretraining_dataset",
            "streamed records are not prepared beforehand");
    if (!ax_config_str(cfg, "dataset_prepared_path"))
        return ax_error(AX_ERR_CONFIG,
                        "dataset_prepared_path is not set, so training would not find the prepared "
                        "data. Add this line to %s: dataset_prepared_path: last_run_prepared",
                        cfg->doc.name);
    AX_TRY(ax_setup_data_open(&d, cfg, refresh));
    print_sets(&d.train_sets);
    print_sets(&d.eval_sets);
    enum ax_status st = ax_setup_data_warnings(&d, ax_setup_warn_log, NULL);
    if (st == AX_OK)
        st = ax_setup_data_require(&d);
    if (st == AX_OK)
        st = check_kept(&d.train_sets);
    if (st == AX_OK)
        st = check_kept(&d.eval_sets);
    ax_setup_data_close(&d);
    AX_TRY(st);
    printf("ready in %s: %s\n", ax_format_seconds(text, sizeof text, ax_clock_now() - start),
           ax_config_str(cfg, "dataset_prepared_path"));
    return AX_OK;
}

enum ax_status ax_cmd_preprocess(int argc, char **argv) {
    bool refresh = false;
    const struct ax_arg args[] = {{"--refresh", AX_ARG_FLAG, &refresh, 0, 0}};
    struct ax_config cfg;
    AX_TRY(ax_setup_args(argc, argv, 1, args, AX_CONFIG_FOR_TEXT, &cfg));
    const enum ax_status st = preprocess(&cfg, refresh);
    ax_config_free(&cfg);
    return st;
}

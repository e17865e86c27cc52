/* `axtrain fetch`: downloads everything that a configuration names on the hub into the cache, so
 * that training needs no network. For login nodes. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/io.h"
#include "cmd/commands.h"
#include "cmd/train/data/data.h"
#include "cmd/args/config_args.h"
#include "data/records/rows/hub_dataset.h"

static void print_report(const char *key, const char *id, const char *revision,
                         const struct ax_hub_report *r) {
    char all[32], got[32];
    printf("%s: %s, revision %s (commit %.12s): %zu files, %s", key, id,
           revision ? revision : "main", r->commit, r->files,
           ax_format_bytes(all, sizeof all, (double)r->bytes));
    if (r->present == r->files)
        printf(", all already here\n");
    else
        printf(", %zu already here, %s downloaded\n", r->present,
               ax_format_bytes(got, sizeof got, (double)r->downloaded));
    fflush(stdout);
}

static enum ax_status fetch_model(const struct ax_hub *h, const struct ax_config *cfg,
                                  const char *key, const char *revision, enum ax_hub_part part) {
    const char *name = ax_config_str(cfg, "%s", key);
    struct ax_hub_report report;
    char *folder, where[256];
    if (!name)
        return AX_OK;
    if (ax_path_exists(name)) {
        printf("%s: %s is here\n", key, name);
        return AX_OK;
    }
    if (!ax_hub_is_id(name))
        return ax_config_error(cfg, key, "%s: no such folder or file, and not a hub id", name);
    const enum ax_status st = ax_hub_model(&folder, h, name, revision, part, &report);
    if (st != AX_OK)
        return ax_error_prefix(st, "%s (%s)", key,
                               ax_config_where(cfg, where, sizeof where, "%s", key));
    ax_free(folder);
    print_report(key, name, revision, &report);
    return AX_OK;
}

static enum ax_status fetch_rows(const struct ax_hub *h, const struct ax_rows_options *o,
                                 const char *key) {
    struct ax_hub_report report;
    if (o->empty_rows > 0)
        return AX_OK;
    if (!ax_hub_dataset_is(o->path)) {
        printf("%s: %s is not a hub data set\n", key, o->path);
        return AX_OK;
    }
    AX_TRY(ax_hub_dataset_get(h, o, &report));
    print_report(key, o->path, o->revision, &report);
    return AX_OK;
}

static enum ax_status fetch_list(const struct ax_hub *h, const struct ax_config *cfg,
                                 const char *list) {
    for (size_t i = 0; i < ax_config_count(cfg, "%s", list); i++) {
        struct ax_setup_entry e = {0};
        struct ax_rows_options o;
        snprintf(e.path, sizeof e.path, "%s.%zu", list, i);
        enum ax_status st = ax_setup_entry_rows(&e, cfg, &o);
        if (st == AX_OK)
            st = fetch_rows(h, &o, e.path);
        if (st != AX_OK && strncmp(ax_error_text(), e.path, strlen(e.path)) != 0)
            st = ax_error_prefix(st, "%s", e.path);
        ax_setup_entry_close(&e);
        AX_TRY(st);
    }
    return AX_OK;
}

/* Data first: they are small, so mistakes are found before the weights are downloaded. */
static enum ax_status fetch_all(const struct ax_hub *h, const struct ax_config *cfg) {
    static const char *const lists[] = {"datasets", "test_datasets", "pretraining_dataset"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        AX_TRY(fetch_list(h, cfg, lists[i]));
    const char *base = ax_config_str(cfg, "base_model");
    const char *tokenizer = ax_config_str(cfg, "tokenizer_config");
    const char *revision = ax_config_str(cfg, "model_revision");
    if (tokenizer && (!base || strcmp(tokenizer, base) != 0))
        AX_TRY(fetch_model(h, cfg, "tokenizer_config", revision, AX_HUB_TOKENIZER));
    if (ax_config_is_set(cfg, "base_model_config"))
        AX_TRY(fetch_model(h, cfg, "base_model_config", revision, AX_HUB_WHOLE));
    AX_TRY(fetch_model(h, cfg, "lora_model_dir", NULL, AX_HUB_WHOLE));
    return fetch_model(h, cfg, "base_model", revision, AX_HUB_WHOLE);
}

static enum ax_status fetch(const struct ax_config *cfg) {
    struct ax_hub h;
    AX_TRY(ax_hub_open(&h));
    h.refresh = true;
    enum ax_status st = AX_OK;
    if (h.offline)
        st = ax_error(AX_ERR_CONFIG, "fetch needs the network, but HF_HUB_OFFLINE is set");
    else
        st = fetch_all(&h, cfg);
    if (st == AX_OK)
        printf("cache: %s\n", h.cache);
    ax_hub_close(&h);
    return st;
}

enum ax_status ax_cmd_fetch(int argc, char **argv) {
    struct ax_config cfg;
    AX_TRY(ax_setup_args(argc, argv, 0, NULL, AX_CONFIG_FOR_TEXT, &cfg));
    const enum ax_status st = fetch(&cfg);
    ax_config_free(&cfg);
    return st;
}

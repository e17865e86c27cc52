/* `axtrain cache`: lists and removes what the program keeps to save work. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text/json.h"
#include "base/mem.h"
#include "cmd/cache/cache.h"
#include "cmd/commands.h"

#define DAY 86400.0

struct options {
    struct ax_arg_list kinds, dirs;
    double older; /* days; NaN: any age */
    bool yes, json, chosen[AX_CACHE_KINDS];
};

/* ---- which entries ---- */

static enum ax_status choose_kinds(struct options *o) {
    for (int i = 0; i < o->kinds.n; i++) {
        int k = 0;
        while (k < AX_CACHE_KINDS && strcmp(o->kinds.text[i], ax_cache_kinds[k].name) != 0)
            k++;
        if (k == AX_CACHE_KINDS)
            return ax_error(AX_ERR_CONFIG,
                            "--kind: expected prepared, references, gguf, hub, products, sandbox, "
                            "leftover or other, got \"%s\"",
                            o->kinds.text[i]);
        o->chosen[k] = true;
    }
    return AX_OK;
}

static bool is_old(const struct options *o, const struct ax_cache_entry *e) {
    return isnan(o->older) || difftime(time(NULL), e->used) > o->older * DAY;
}

/* ---- printing ---- */

static const char *entries(int n) {
    return n == 1 ? "entry" : "entries";
}

static void print_entry(const struct ax_cache_entry *e) {
    char size[32], used[32] = "?";
    struct tm tm;
    if (localtime_r(&e->used, &tm))
        strftime(used, sizeof used, "%Y-%m-%d %H:%M", &tm);
    printf("%-10s %10s  %s  %s%s\n", ax_cache_kinds[e->kind].name,
           ax_format_bytes(size, sizeof size, (double)e->bytes), used, e->path,
           ax_cache_in_use(e) ? "  (in use)" : "");
    if (e->name[0])
        printf("%41s%s\n", "", e->name);
}

static enum ax_status print_json(const struct ax_cache_list *l, const struct options *o) {
    json_t *list = json_array(), *all = json_pack("{ss sO}", "what", "cache", "entries", list);
    char *text = NULL;
    size_t len;
    enum ax_status st = all ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for the list");
    for (size_t i = 0; st == AX_OK && i < l->n; i++) {
        const struct ax_cache_entry *e = &l->entries[i];
        if (o->chosen[e->kind] &&
            json_array_append_new(
                list, json_pack("{ss so so sI sI sb}", "kind", ax_cache_kinds[e->kind].name, "path",
                                ax_json_repaired(e->path), "name", ax_json_repaired(e->name),
                                "bytes", (json_int_t)e->bytes, "used", (json_int_t)e->used,
                                "in_use", (int)ax_cache_in_use(e))) != 0)
            st = ax_error(AX_ERR_NOMEM, "out of memory for the list");
    }
    if (st == AX_OK && (st = ax_json_dump(all, &text, &len)) == AX_OK)
        printf("%s\n", text);
    ax_free(text);
    json_decref(list);
    json_decref(all);
    return st;
}

static void print_list(const struct ax_cache_list *l, const struct options *o) {
    char size[32];
    int64_t bytes = 0;
    int n = 0;
    for (size_t i = 0; i < l->n; i++) {
        if (!o->chosen[l->entries[i].kind])
            continue;
        print_entry(&l->entries[i]);
        bytes += l->entries[i].bytes;
        n++;
    }
    printf("%d %s, %s\n", n, entries(n), ax_format_bytes(size, sizeof size, (double)bytes));
}

/* ---- clearing ---- */

static enum ax_status clear(const struct ax_cache_list *l, const struct options *o) {
    int64_t bytes = 0;
    int n = 0;
    char size[32];
    for (size_t i = 0; i < l->n; i++) {
        const struct ax_cache_entry *e = &l->entries[i];
        if (!o->chosen[e->kind] || !is_old(o, e))
            continue;
        bool done = !ax_cache_in_use(e);
        if (o->yes && done)
            AX_TRY(ax_cache_remove(e, &done));
        printf("%s %s\n", !done ? "in use, kept:" : o->yes ? "removed:" : "would remove:", e->path);
        n += done;
        bytes += done ? e->bytes : 0;
    }
    ax_format_bytes(size, sizeof size, (double)bytes);
    if (o->yes)
        printf("%d %s removed, %s\n", n, entries(n), size);
    else
        printf("%d %s, %s; nothing was removed: add --yes\n", n, entries(n), size);
    return AX_OK;
}

/* ---- the command ---- */

static enum ax_status check(const char *verb, const struct options *o) {
    const bool list = strcmp(verb, "list") == 0;
    if (!list && strcmp(verb, "clear") != 0)
        return ax_error(AX_ERR_CONFIG, "cache: expected list or clear, got \"%s\"", verb);
    if (list && (o->yes || !isnan(o->older)))
        return ax_error(AX_ERR_CONFIG, "cache list: %s is for clear",
                        o->yes ? "--yes" : "--older-than");
    if (!list && o->json)
        return ax_error(AX_ERR_CONFIG, "cache clear: --json is for list");
    if (o->older < 0)
        return ax_error(AX_ERR_CONFIG, "--older-than: expected days, got %g", o->older);
    return AX_OK;
}

enum ax_status ax_cmd_cache(int argc, char **argv) {
    struct options o = {.older = NAN};
    struct ax_cache_list l;
    const char *verb;
    int n;
    const struct ax_arg args[] = {{"--kind", AX_ARG_LIST, &o.kinds, 0, 0},
                                  {"--dir", AX_ARG_LIST, &o.dirs, 0, 0},
                                  {"--older-than", AX_ARG_FLOAT, &o.older, 0, 0},
                                  {"--yes", AX_ARG_FLAG, &o.yes, 0, 0},
                                  {"--json", AX_ARG_FLAG, &o.json, 0, 0}};
    AX_TRY(ax_args_parse(argc, argv, 5, args, 1, 1, &verb, &n));
    AX_TRY(check(verb, &o));
    AX_TRY(choose_kinds(&o));
    const bool list = strcmp(verb, "list") == 0;
    for (int k = 0; o.kinds.n == 0 && k < AX_CACHE_KINDS; k++)
        o.chosen[k] = list || ax_cache_kinds[k].usual;
    AX_TRY(ax_cache_find(&l, &o.dirs));
    enum ax_status st = AX_OK;
    if (list && o.json)
        st = print_json(&l, &o);
    else if (list)
        print_list(&l, &o);
    else
        st = clear(&l, &o);
    ax_cache_list_free(&l);
    return st;
}

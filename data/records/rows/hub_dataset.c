/* Downloading: read ax_hub_dataset_get first. The card (README.md) comes first, because it says which files are
 * needed. */
#include "data/records/rows/hub_dataset.h"

#include <string.h>

#include "data/records/rows/find.h"
#include "data/records/rows/split.h"

#define CARD "README.md"

static struct ax_hub_repo repo_of(const struct ax_rows_options *o) {
    return (struct ax_hub_repo){AX_HUB_DATASET, o->path, o->revision};
}

/* The files of the requested splits; borrowed from f. */
static enum ax_status wanted_files(const char **paths, size_t *n, const struct ax_found *f,
                                   const struct ax_rows_options *o) {
    struct ax_split splits[AX_SPLIT_PARTS_MAX];
    size_t n_splits;
    bool *in, *wanted;
    AX_TRY(ax_split_parse(ax_rows_split(o), splits, &n_splits));
    AX_TRY(ax_alloc(&in, 2 * f->n, sizeof *in));
    wanted = in + f->n;
    enum ax_status st = AX_OK;
    for (size_t k = 0; k < n_splits && st == AX_OK; k++) {
        st = ax_found_in_split(f, o->path, splits[k].name, !o->split, in);
        for (size_t i = 0; i < f->n && st == AX_OK; i++)
            wanted[i] = wanted[i] || in[i];
    }
    for (size_t i = 0; i < f->n; i++)
        if (wanted[i])
            paths[(*n)++] = f->files[i].path;
    ax_free(in);
    return st;
}

/* Without a list: true if the cache has any data file. */
static enum ax_status has_some(bool *some, const struct ax_rows_options *o,
                               const struct ax_hub_snapshot *s) {
    struct ax_rows *rows = NULL;
    *some = false;
    if (!s->commit)
        return AX_OK;
    const enum ax_status st = ax_rows_open(&rows, o);
    ax_rows_close(rows);
    *some = st == AX_OK;
    return st == AX_ERR_NOMEM ? st : AX_OK;
}

static enum ax_status get_card(struct ax_hub_snapshot *s, const struct ax_hub *h,
                               const struct ax_hub_repo *r, struct ax_hub_report *report) {
    const char *const card[] = {CARD};
    if (!ax_hub_list_find(&s->list, CARD) || ax_hub_snapshot_has(s, CARD))
        return AX_OK;
    if (h->offline)
        return ax_hub_refuse_offline(r, CARD);
    report->asked = true;
    return ax_hub_pull(s, h, r, card, 1, report);
}

/* With a list: downloads the files that it selects and the cache lacks. */
static enum ax_status get_listed(struct ax_hub_snapshot *s, const struct ax_hub *h,
                                 const struct ax_rows_options *o, struct ax_hub_report *report) {
    const struct ax_hub_repo r = repo_of(o);
    struct ax_found f = {0};
    const char **paths = NULL;
    size_t n = 0;
    bool missing = false;
    enum ax_status st;
    AX_TRY(get_card(s, h, &r, report));
    AX_TRY_GOTO(ax_hub_dataset_choose(&f, o, s), st, done);
    AX_TRY_GOTO(ax_alloc(&paths, f.n, sizeof *paths), st, done);
    AX_TRY_GOTO(wanted_files(paths, &n, &f, o), st, done);
    for (size_t i = 0; i < n; i++) {
        const bool has = ax_hub_snapshot_has(s, paths[i]);
        if (!has && h->offline)
            AX_TRY_GOTO(ax_hub_refuse_offline(&r, paths[i]), st, done);
        missing = missing || !has;
    }
    report->asked = report->asked || missing;
    st = ax_hub_pull(s, h, &r, paths, n, report);
done:
    ax_free(paths);
    ax_found_free(&f);
    return st;
}

static enum ax_status get(struct ax_hub_snapshot *s, const struct ax_hub *h,
                          const struct ax_rows_options *o, struct ax_hub_report *report) {
    const struct ax_hub_repo r = repo_of(o);
    bool some;
    if (!s->listed && (!h->refresh || h->offline)) {
        AX_TRY(has_some(&some, o, s));
        if (some)
            return AX_OK;
    }
    if (!s->listed || h->refresh) {
        if (h->offline && !s->listed)
            return ax_hub_refuse_offline(&r, s->commit ? "data" : NULL);
        if (!h->offline) {
            report->asked = true;
            AX_TRY(ax_hub_ask(s, h, &r));
            AX_TRY(ax_hub_snapshot_keep(s, &r));
        }
    }
    return get_listed(s, h, o, report);
}

enum ax_status ax_hub_dataset_get(const struct ax_hub *h, const struct ax_rows_options *o,
                                  struct ax_hub_report *report) {
    const struct ax_hub_repo r = repo_of(o);
    struct ax_hub_snapshot s;
    *report = (struct ax_hub_report){0};
    AX_TRY(ax_hub_snapshot_find(&s, h->cache, &r));
    const enum ax_status st = get(&s, h, o, report);
    if (st == AX_OK)
        snprintf(report->commit, sizeof report->commit, "%s", s.commit);
    ax_hub_snapshot_free(&s);
    return st;
}

#include "optim/evaluate/tasks/index.h"

#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "base/text/words.h"
#include "optim/evaluate/tasks/read.h"

#define MAX_FILES 200000

/* ---- files ---- */

struct paths {
    char **list;
    size_t n, cap;
};

static enum ax_status add_path(struct paths *p, const char *path) {
    if (p->n == p->cap) {
        const size_t cap = p->cap > 0 ? 2 * p->cap : 256;
        AX_TRY(ax_regrow(&p->list, p->cap, cap, sizeof(char *)));
        p->cap = cap;
    }
    AX_TRY(ax_strdup(&p->list[p->n], path));
    p->n++;
    return AX_OK;
}

static int by_path(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum ax_status find_files(struct paths *p, char *folder) {
    char *roots[] = {folder, NULL};
    FTS *tree = fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR | FTS_NOSTAT, NULL);
    enum ax_status st = AX_OK;
    if (!tree)
        return ax_error(AX_ERR_IO, "%s: %m", folder);
    for (FTSENT *e; st == AX_OK && (e = fts_read(tree));) {
        const size_t n = e->fts_namelen;
        if (e->fts_info == FTS_D || n < 6 || strcmp(e->fts_name + n - 5, ".yaml") != 0)
            continue;
        if (p->n == MAX_FILES)
            st = ax_error(AX_ERR_CONFIG, "%s: more than %d task files", folder, MAX_FILES);
        else
            st = add_path(p, e->fts_path);
    }
    fts_close(tree);
    if (st == AX_OK && p->n > 0)
        qsort(p->list, p->n, sizeof(char *), by_path);
    return st;
}

/* ---- entries ---- */

static void free_entry(struct ax_task_entry *e) {
    for (size_t i = 0; i < e->n_tags; i++)
        ax_free(e->tags[i]);
    ax_free(e->tags);
    ax_free(e->name);
    ax_free(e->path);
}

/* Adds an entry and takes ownership of it. */
static enum ax_status add_entry(struct ax_task_index *x, struct ax_task_entry *e) {
    enum ax_status st = AX_OK;
    if (x->n == x->cap) {
        const size_t cap = x->cap > 0 ? 2 * x->cap : 64;
        st = ax_regrow(&x->list, x->cap, cap, sizeof *x->list);
        x->cap = st == AX_OK ? cap : x->cap;
    }
    if (st == AX_OK)
        x->list[x->n++] = *e;
    else
        free_entry(e);
    return st;
}

static enum ax_status read_tags(struct ax_task_entry *e, struct ax_task_key k) {
    struct ax_task_key *items;
    size_t n;
    AX_TRY(ax_task_key_items(k, &items, &n));
    enum ax_status st = ax_alloc(&e->tags, n, sizeof(char *));
    for (size_t i = 0; i < n && st == AX_OK; i++) {
        const char *text = "";
        st = ax_task_key_text(items[i], &text);
        if (st == AX_OK)
            st = ax_strdup(&e->tags[e->n_tags++], text);
    }
    ax_free(items);
    return st;
}

static enum ax_status read_entry(const struct ax_task_yaml *y, struct ax_task_entry *e) {
    const struct ax_task_key group = ax_task_key(y, "group");
    const char *name = NULL;
    AX_TRY(ax_task_key_text(group.node ? group : ax_task_key(y, "task"), &name));
    e->group = group.node != NULL;
    if (!name)
        return AX_OK; /* a file that others include */
    AX_TRY(ax_strdup(&e->name, name));
    return e->group ? AX_OK : read_tags(e, ax_task_key(y, "tag"));
}

/* Finds the name in a file that cannot be read, so that using it reports why. */
static enum ax_status scan_entry(const char *path, struct ax_task_entry *e) {
    char *text;
    size_t len;
    AX_TRY(ax_read_file(path, (size_t)4 << 20, &text, &len));
    const char *at = strncmp(text, "task: ", 6) == 0 ? text : strstr(text, "\ntask: ");
    enum ax_status st = AX_OK;
    if (at) {
        at += *at == '\n' ? 7 : 6;
        st = ax_strndup(&e->name, at, strcspn(at, " \r\n#"));
    }
    ax_free(text);
    return st;
}

static enum ax_status add_file(struct ax_task_index *x, const char *path) {
    struct ax_task_entry e = {0};
    struct ax_task_yaml *y;
    AX_TRY(ax_alloc(&y, 1, sizeof *y));
    enum ax_status st = ax_task_yaml_load(y, path);
    if (st == AX_OK) {
        st = read_entry(y, &e);
        ax_task_yaml_free(y);
    } else if (st == AX_ERR_CONFIG || st == AX_ERR_UNSUPPORTED) {
        x->unread++;
        st = x->why ? AX_OK : ax_strdup(&x->why, ax_error_text());
        if (st == AX_OK)
            st = scan_entry(path, &e);
    }
    ax_free(y);
    if (st == AX_OK)
        st = ax_strdup(&e.path, path);
    if (st == AX_OK && e.name)
        return add_entry(x, &e);
    free_entry(&e);
    return st == AX_ERR_CONFIG ? AX_OK : st; /* the name is not a text */
}

static int by_entry(const void *a, const void *b) {
    const struct ax_task_entry *x = a, *y = b;
    const int c = strcmp(x->name, y->name);
    return c != 0 ? c : strcmp(x->path, y->path);
}

/* Sorts entries; of equal names only the first stays. */
static void sort_entries(struct ax_task_index *x) {
    size_t kept = 0;
    if (x->n > 0)
        qsort(x->list, x->n, sizeof *x->list, by_entry);
    for (size_t i = 0; i < x->n; i++)
        if (kept > 0 && strcmp(x->list[kept - 1].name, x->list[i].name) == 0)
            free_entry(&x->list[i]);
        else
            x->list[kept++] = x->list[i];
    x->n = kept;
}

enum ax_status ax_task_index_open(struct ax_task_index *x, const char *folder) {
    struct paths p = {0};
    enum ax_status st;
    *x = (struct ax_task_index){0};
    AX_TRY_GOTO(ax_strdup(&x->folder, folder), st, done);
    AX_TRY_GOTO(find_files(&p, x->folder), st, done);
    for (size_t i = 0; i < p.n; i++)
        AX_TRY_GOTO(add_file(x, p.list[i]), st, done);
    sort_entries(x);
done:
    for (size_t i = 0; i < p.n; i++)
        ax_free(p.list[i]);
    ax_free(p.list);
    if (st != AX_OK)
        ax_task_index_close(x);
    return st;
}

void ax_task_index_close(struct ax_task_index *x) {
    for (size_t i = 0; i < x->n; i++)
        free_entry(&x->list[i]);
    ax_free(x->list);
    ax_free(x->folder);
    ax_free(x->why);
    *x = (struct ax_task_index){0};
}

/* ---- names ---- */

const struct ax_task_entry *ax_task_index_find(const struct ax_task_index *x, const char *name) {
    size_t from = 0, to = x->n;
    while (from < to) {
        const size_t at = from + (to - from) / 2;
        const int c = strcmp(x->list[at].name, name);
        if (c == 0)
            return &x->list[at];
        if (c < 0)
            from = at + 1;
        else
            to = at;
    }
    return NULL;
}

static bool has_tag(const struct ax_task_entry *e, const char *tag) {
    for (size_t i = 0; i < e->n_tags; i++)
        if (strcmp(e->tags[i], tag) == 0)
            return true;
    return false;
}

enum ax_status ax_task_index_tag(const struct ax_task_index *x, const char *tag,
                                 const struct ax_task_entry ***list, size_t *n) {
    const struct ax_task_entry **found;
    AX_TRY(ax_alloc(&found, x->n, sizeof *found));
    *n = 0;
    for (size_t i = 0; i < x->n; i++)
        if (has_tag(&x->list[i], tag))
            found[(*n)++] = &x->list[i];
    *list = found;
    return AX_OK;
}

enum ax_status ax_task_index_missing(const struct ax_task_index *x, const char *name) {
    struct ax_nearest near = {.given = name, .within = 4};
    for (size_t i = 0; i < x->n; i++) {
        ax_nearest_try(&near, x->list[i].name);
        for (size_t k = 0; k < x->list[i].n_tags; k++)
            ax_nearest_try(&near, x->list[i].tags[k]);
    }
    char unread[1024] = "";
    if (x->unread > 0)
        snprintf(unread, sizeof unread, ". Not read: %zu of its files, the first because of %s",
                 x->unread, x->why);
    if (near.name)
        return ax_error(AX_ERR_CONFIG, "no task, group or tag %s in %s; did you mean %s?%s", name,
                        x->folder, near.name, unread);
    return ax_error(AX_ERR_CONFIG,
                    "no task, group or tag %s in %s; give the folder of its file with "
                    "--include-path%s",
                    name, x->folder, unread);
}

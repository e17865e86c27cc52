/* Read ax_task_tree_add first. Keys of a group other than its own override those of its members; an
 * outer group overrides an inner one, and a member's entry in the group overrides both. */
#include "optim/evaluate/tasks/tree.h"

#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "base/text/words.h"
#include "optim/evaluate/tasks/read.h"

/* ---- the names of tasks, groups and tags that the files of a folder define ---- */

#define MAX_FILES 200000

struct index_entry {
    char *name, *path;
    bool group;
    char **tags;
    size_t n_tags;
};

struct ax_task_index {
    char *folder;
    struct index_entry *list; /* sorted by name */
    size_t n, cap;
    size_t unread; /* files that cannot be read, whose tags are unknown */
    char *why;     /* error of the first bad file; NULL: none */
};

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

/* ---- entries of an index ---- */

static void free_entry(struct index_entry *e) {
    for (size_t i = 0; i < e->n_tags; i++)
        ax_free(e->tags[i]);
    ax_free(e->tags);
    ax_free(e->name);
    ax_free(e->path);
}

/* Adds an entry and takes ownership of it. */
static enum ax_status add_index_entry(struct ax_task_index *x, struct index_entry *e) {
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

static enum ax_status read_tags(struct index_entry *e, struct ax_task_key k) {
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

static enum ax_status read_entry(const struct ax_task_yaml *y, struct index_entry *e) {
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
static enum ax_status scan_entry(const char *path, struct index_entry *e) {
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

static enum ax_status add_index_file(struct ax_task_index *x, const char *path) {
    struct index_entry e = {0};
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
        return add_index_entry(x, &e);
    free_entry(&e);
    return st == AX_ERR_CONFIG ? AX_OK : st; /* the name is not a text */
}

static int by_entry(const void *a, const void *b) {
    const struct index_entry *x = a, *y = b;
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

static void index_close(struct ax_task_index *x) {
    for (size_t i = 0; i < x->n; i++)
        free_entry(&x->list[i]);
    ax_free(x->list);
    ax_free(x->folder);
    ax_free(x->why);
    *x = (struct ax_task_index){0};
}

/* Reads every FILE.yaml in the folder and its subfolders. If several define a name, the first path
 * counts. */
static enum ax_status index_open(struct ax_task_index *x, const char *folder) {
    struct paths p = {0};
    enum ax_status st;
    *x = (struct ax_task_index){0};
    AX_TRY_GOTO(ax_strdup(&x->folder, folder), st, done);
    AX_TRY_GOTO(find_files(&p, x->folder), st, done);
    for (size_t i = 0; i < p.n; i++)
        AX_TRY_GOTO(add_index_file(x, p.list[i]), st, done);
    sort_entries(x);
done:
    for (size_t i = 0; i < p.n; i++)
        ax_free(p.list[i]);
    ax_free(p.list);
    if (st != AX_OK)
        index_close(x);
    return st;
}

/* ---- names in an index ---- */

static const struct index_entry *index_find(const struct ax_task_index *x, const char *name) {
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

static bool has_tag(const struct index_entry *e, const char *tag) {
    for (size_t i = 0; i < e->n_tags; i++)
        if (strcmp(e->tags[i], tag) == 0)
            return true;
    return false;
}

/* The tasks with this tag, sorted by name; empty if there are none. The caller owns the list. */
static enum ax_status index_tag(const struct ax_task_index *x, const char *tag,
                                const struct index_entry ***list, size_t *n) {
    const struct index_entry **found;
    AX_TRY(ax_alloc(&found, x->n, sizeof *found));
    *n = 0;
    for (size_t i = 0; i < x->n; i++)
        if (has_tag(&x->list[i], tag))
            found[(*n)++] = &x->list[i];
    *list = found;
    return AX_OK;
}

/* The error for an unknown name: AX_ERR_CONFIG "no task, group or tag NAME in FOLDER", with a
 * suggestion. */
static enum ax_status index_missing(const struct ax_task_index *x, const char *name) {
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

/* ---- a group that is being read ---- */

#define MAX_DEPTH 16

/* The group being read: its keys are in a file, or in an entry of the group that contains it. */
struct source {
    const char *path;                /* its file, or that of the group that contains it */
    const struct ax_task_yaml *yaml; /* NULL: it is an entry */
    struct ax_task_key entry;
    const struct ax_task_override *outer;
    int depth;
};

static struct ax_task_key get(const struct source *s, const char *name) {
    return s->yaml ? ax_task_key(s->yaml, name) : ax_task_key_in(s->entry, name);
}

/* ---- aggregate_metric_list ---- */

static enum ax_status read_metric(struct ax_task_node *x, struct ax_task_key k) {
    static const struct ax_task_known keys[] = {{"metric", NULL},
                                                {"aggregation", NULL},
                                                {"weight_by_size", NULL},
                                                {"filter_list", NULL},
                                                {NULL, NULL}};
    struct ax_task_group_metric *m = &x->metrics[x->n_metrics++];
    const struct ax_task_key how = ax_task_key_in(k, "aggregation");
    struct ax_task_key *filters;
    const char *aggregation = "mean";
    size_t n;
    m->by_size = true;
    AX_TRY(ax_task_keys_check(k, keys));
    AX_TRY(ax_task_key_text(ax_task_key_in(k, "metric"), &m->metric));
    AX_TRY(ax_task_key_text(how, &aggregation));
    AX_TRY(ax_task_key_bool(ax_task_key_in(k, "weight_by_size"), &m->by_size));
    if (!m->metric)
        return ax_task_key_error(k, AX_ERR_CONFIG, "an entry without the key metric");
    if (strcmp(aggregation, "mean") != 0)
        return ax_task_key_error(how, AX_ERR_CONFIG, "expected mean, got \"%s\"", aggregation);
    AX_TRY(ax_task_key_items(ax_task_key_in(k, "filter_list"), &filters, &n));
    enum ax_status st = ax_alloc(&m->filters, n, sizeof *m->filters);
    for (; m->n_filters < n && st == AX_OK; m->n_filters++) {
        m->filters[m->n_filters] = "";
        st = ax_task_key_text(filters[m->n_filters], &m->filters[m->n_filters]);
    }
    ax_free(filters);
    return st;
}

/* The node owns the entries. */
static enum ax_status read_metrics(struct ax_task_node *x, struct ax_task_key k) {
    struct ax_task_key *items;
    size_t n;
    AX_TRY(ax_task_key_items(k, &items, &n));
    enum ax_status st = ax_alloc(&x->metrics, n, sizeof *x->metrics);
    for (size_t i = 0; i < n && st == AX_OK; i++)
        st = read_metric(x, items[i]);
    ax_free(items);
    return st;
}

/* ---- lists ---- */

static enum ax_status append(void *list, size_t *n, void *item) {
    void ***v = list;
    AX_TRY(ax_regrow(v, *n, *n + 1, sizeof(void *)));
    (*v)[(*n)++] = item;
    return AX_OK;
}

static void free_node(struct ax_task_node *x) {
    for (size_t i = 0; i < x->n; i++) {
        free_node(x->children[i]);
        ax_free(x->children[i]);
    }
    for (size_t i = 0; i < x->n_metrics; i++)
        ax_free(x->metrics[i].filters);
    ax_free(x->metrics);
    ax_free(x->children);
    ax_free(x->name);
}

static enum ax_status add_node(struct ax_task_node *parent, const char *name,
                               struct ax_task_node **out) {
    struct ax_task_node *x;
    AX_TRY(ax_alloc(&x, 1, sizeof *x));
    x->task = AX_TASK_NO_TASK;
    enum ax_status st = ax_strdup(&x->name, name);
    if (st == AX_OK)
        st = append(&parent->children, &parent->n, x);
    if (st != AX_OK) {
        free_node(x);
        ax_free(x);
        return st;
    }
    *out = x;
    return AX_OK;
}

/* ---- names in a tree ---- */

static enum ax_status folder_of(const char *path, char **out) {
    const char *slash = strrchr(path, '/');
    return slash ? ax_strndup(out, path, (size_t)(slash - path)) : ax_strdup(out, ".");
}

static enum ax_status add_index(struct ax_task_tree *t, const char *folder) {
    struct ax_task_index *x;
    AX_TRY(ax_alloc(&x, 1, sizeof *x));
    enum ax_status st = index_open(x, folder);
    if (st == AX_OK)
        st = append(&t->indexes, &t->n_indexes, x);
    if (st != AX_OK) {
        index_close(x);
        ax_free(x);
    }
    return st;
}

/* The index of the include path or, if there is none, of the folder of the file that uses the
 * name. */
static enum ax_status index_for(struct ax_task_tree *t, const char *path,
                                const struct ax_task_index **out) {
    char *folder;
    AX_TRY(t->include_path ? ax_strdup(&folder, t->include_path) : folder_of(path, &folder));
    enum ax_status st = AX_OK;
    size_t i = 0;
    while (i < t->n_indexes && strcmp(t->indexes[i]->folder, folder) != 0)
        i++;
    if (i == t->n_indexes)
        st = add_index(t, folder);
    ax_free(folder);
    if (st == AX_OK)
        *out = t->indexes[i];
    return st;
}

/* ---- tasks ---- */

static bool same(const struct ax_task_spec *a, const struct ax_task_spec *b) {
    bool equal = strcmp(a->path, b->path) == 0 && a->over.n == b->over.n;
    for (int i = 0; equal && i < a->over.n; i++)
        equal = a->over.maps[i].node == b->over.maps[i].node;
    return equal && (a->name == b->name || (a->name && b->name && strcmp(a->name, b->name) == 0));
}

static void free_spec(struct ax_task_spec *s) {
    ax_free((void *)(uintptr_t)s->path);
    ax_free((void *)(uintptr_t)s->name);
    ax_free(s);
}

/* A task that two groups contain in the same way is added only once. */
static enum ax_status add_task(struct ax_task_tree *t, struct ax_task_node *parent,
                               const struct ax_task_spec *from, const char *shown) {
    struct ax_task_node *node;
    struct ax_task_spec *s;
    char *path = NULL, *name = NULL;
    size_t i = 0;
    AX_TRY(add_node(parent, shown, &node));
    while (i < t->n_tasks && (parent == &t->root || !same(t->tasks[i], from)))
        i++;
    node->task = i;
    if (i < t->n_tasks)
        return AX_OK;
    AX_TRY(ax_alloc(&s, 1, sizeof *s));
    *s = *from;
    enum ax_status st = ax_strdup(&path, from->path);
    if (st == AX_OK && from->name)
        st = ax_strdup(&name, from->name);
    s->path = path;
    s->name = name;
    if (st == AX_OK)
        st = append(&t->tasks, &t->n_tasks, s);
    if (st != AX_OK)
        free_spec(s);
    return st;
}

/* ---- overrides ---- */

static enum ax_status add_map(struct ax_task_override *o, struct ax_task_key map) {
    bool more = false;
    for (size_t i = 0; i < map.node->n; i++)
        more = more || (!ax_task_is_group_key(map.node->entries[i].key) &&
                        strcmp(map.node->entries[i].key, "include") != 0);
    if (!more)
        return AX_OK;
    if (o->n == AX_TASK_MAX_OVERRIDES)
        return ax_task_key_error(map, AX_ERR_CONFIG, "more than %d groups and files around a task",
                                 AX_TASK_MAX_OVERRIDES);
    o->maps[o->n++] = map;
    return AX_OK;
}

/* The overrides for a group's members. */
static enum ax_status overrides_of(const struct source *s, struct ax_task_override *o) {
    *o = *s->outer;
    if (!s->yaml)
        return add_map(o, s->entry);
    for (int i = 0; i < s->yaml->n; i++)
        AX_TRY(add_map(o, (struct ax_task_key){&s->yaml->docs[i], s->yaml->docs[i].root, "group"}));
    return AX_OK;
}

/* The same for a member with its own entry, which has precedence. */
static enum ax_status with_entry(const struct ax_task_override *group, struct ax_task_key entry,
                                 struct ax_task_override *o) {
    *o = (struct ax_task_override){0};
    AX_TRY(add_map(o, entry));
    for (int i = 0; i < group->n; i++)
        AX_TRY(add_map(o, group->maps[i]));
    return AX_OK;
}

/* ---- members ---- */

static enum ax_status add_group(struct ax_task_tree *t, struct ax_task_node *parent,
                                const char *name, const struct source *s);

static enum ax_status open_group(struct ax_task_tree *t, const char *path,
                                 struct ax_task_yaml **out) {
    struct ax_task_yaml *y;
    AX_TRY(ax_alloc(&y, 1, sizeof *y));
    enum ax_status st = ax_task_yaml_load(y, path);
    if (st == AX_OK) {
        st = append(&t->groups, &t->n_groups, y);
        if (st != AX_OK)
            ax_task_yaml_free(y);
    }
    if (st != AX_OK)
        ax_free(y);
    *out = y;
    return st;
}

static enum ax_status add_group_file(struct ax_task_tree *t, struct ax_task_node *parent,
                                     const char *path, const struct ax_task_override *outer,
                                     int depth) {
    struct ax_task_yaml *y;
    const char *name = NULL;
    AX_TRY(open_group(t, path, &y));
    const struct ax_task_key k = ax_task_key(y, "group");
    AX_TRY(ax_task_key_text(k, &name));
    const struct source s = {.path = path, .yaml = y, .outer = outer, .depth = depth};
    if (depth > MAX_DEPTH)
        return ax_task_key_error(k, AX_ERR_CONFIG, "groups contain each other in a circle");
    return add_group(t, parent, name, &s);
}

/* Adds what a name in an index means: a task, a group, or all tasks of a tag. */
static enum ax_status add_name(struct ax_task_tree *t, struct ax_task_node *parent,
                               const struct ax_task_index *x, const char *name,
                               const struct ax_task_override *over, int depth) {
    const struct index_entry *e = index_find(x, name), **tagged;
    struct ax_task_spec spec = {.over = *over};
    size_t n;
    if (e && e->group)
        return add_group_file(t, parent, e->path, over, depth + 1);
    if (e) {
        spec.path = e->path;
        spec.name = e->name;
        return add_task(t, parent, &spec, e->name);
    }
    AX_TRY(index_tag(x, name, &tagged, &n));
    enum ax_status st = n > 0 ? AX_OK : index_missing(x, name);
    for (size_t i = 0; i < n && st == AX_OK; i++) {
        spec.path = tagged[i]->path;
        spec.name = tagged[i]->name;
        st = add_task(t, parent, &spec, spec.name);
    }
    ax_free(tagged);
    return st;
}

/* Adds a group's entry {group: …} or {task: …}: a known name with other keys, or a new one. */
static enum ax_status add_entry(struct ax_task_tree *t, struct ax_task_node *group,
                                const struct source *s, struct ax_task_key k,
                                const struct ax_task_override *over) {
    const struct ax_task_key named = ax_task_key_in(k, "group");
    const struct ax_task_index *x;
    struct ax_task_override with;
    const char *name = NULL;
    char *full;
    AX_TRY(ax_task_key_text(named.node ? named : ax_task_key_in(k, "task"), &name));
    if (!name)
        return ax_task_key_error(k, AX_ERR_CONFIG, "an entry without the keys task and group");
    AX_TRY(index_for(t, s->path, &x));
    AX_TRY(with_entry(over, k, &with));
    const struct index_entry *e = index_find(x, name);
    if (e && e->group == (named.node != NULL))
        return add_name(t, group, x, name, &with, s->depth);
    if (e)
        return ax_task_key_error(k, AX_ERR_CONFIG, "%s is a %s; write %s: %s", name,
                                 e->group ? "group" : "task", e->group ? "group" : "task", name);
    AX_TRY(ax_sprintf(&full, "%s::%s", group->name, name));
    const struct source inner = {.path = s->path, .entry = k, .outer = over, .depth = s->depth + 1};
    const struct ax_task_spec spec = {
        .path = s->path, .name = full, .over = with, .of_group = true};
    const enum ax_status st =
        named.node ? add_group(t, group, full, &inner) : add_task(t, group, &spec, full);
    ax_free(full);
    return st;
}

static enum ax_status add_group(struct ax_task_tree *t, struct ax_task_node *parent,
                                const char *name, const struct source *s) {
    const struct ax_task_key members = get(s, "task");
    const struct ax_task_index *x;
    struct ax_task_override over;
    struct ax_task_node *node;
    size_t n;
    AX_TRY(add_node(parent, name, &node));
    node->alias = node->name;
    AX_TRY(ax_task_key_text(get(s, "group_alias"), &node->alias));
    AX_TRY(read_metrics(node, get(s, "aggregate_metric_list")));
    AX_TRY(overrides_of(s, &over));
    AX_TRY(ax_task_key_list(members, &n));
    if (n == 0)
        return ax_task_key_error(members, AX_ERR_CONFIG, "missing; list the tasks of the group");
    for (size_t i = 0; i < n; i++) {
        const struct ax_task_key k = ax_task_key_at(members, i);
        const char *member = NULL;
        if (k.node->kind == AX_YAML_MAP) {
            AX_TRY(add_entry(t, node, s, k, &over));
            continue;
        }
        AX_TRY(ax_task_key_text(k, &member));
        AX_TRY(index_for(t, s->path, &x));
        const enum ax_status st = add_name(t, node, x, member ? member : "", &over, s->depth);
        if (st == AX_ERR_CONFIG && !index_find(x, member ? member : ""))
            return ax_task_key_error(k, st, "%s", ax_error_text());
        AX_TRY(st);
    }
    return AX_OK;
}

/* ---- names and files from the command line ---- */

static enum ax_status add_file(struct ax_task_tree *t, const char *path) {
    static const struct ax_task_override none;
    const struct ax_task_spec spec = {.path = path};
    struct ax_task_yaml *y;
    AX_TRY(ax_alloc(&y, 1, sizeof *y));
    enum ax_status st = ax_task_yaml_load(y, path);
    const bool group = st == AX_OK && ax_task_key(y, "group").node;
    if (st == AX_OK)
        ax_task_yaml_free(y);
    ax_free(y);
    AX_TRY(st);
    return group ? add_group_file(t, &t->root, path, &none, 1) : add_task(t, &t->root, &spec, path);
}

static enum ax_status add_one(struct ax_task_tree *t, const char *what) {
    static const struct ax_task_override none;
    const struct ax_task_index *x;
    if (ax_path_exists(what))
        return add_file(t, what);
    if (!t->include_path)
        return ax_error(
            AX_ERR_CONFIG,
            "eval: --task: expected final-answer, reward, prm or a task file, got \"%s\"; to use "
            "names, give the folder of the task files with --include-path",
            what);
    AX_TRY(index_for(t, NULL, &x));
    return add_name(t, &t->root, x, what, &none, 0);
}

enum ax_status ax_task_tree_add(struct ax_task_tree *t, const char *what) {
    char *list;
    if (ax_path_exists(what) || !strchr(what, ','))
        return add_one(t, what);
    AX_TRY(ax_strdup(&list, what));
    enum ax_status st = AX_OK;
    char *rest = list;
    for (char *one; st == AX_OK && (one = strsep(&rest, ","));)
        st = add_one(t, one);
    ax_free(list);
    return st;
}

void ax_task_tree_free(struct ax_task_tree *t) {
    free_node(&t->root);
    for (size_t i = 0; i < t->n_tasks; i++)
        free_spec(t->tasks[i]);
    for (size_t i = 0; i < t->n_groups; i++) {
        ax_task_yaml_free(t->groups[i]);
        ax_free(t->groups[i]);
    }
    for (size_t i = 0; i < t->n_indexes; i++) {
        index_close(t->indexes[i]);
        ax_free(t->indexes[i]);
    }
    ax_free(t->tasks);
    ax_free(t->groups);
    ax_free(t->indexes);
    *t = (struct ax_task_tree){0};
}

static void mark(const struct ax_task_node *node, bool *seen, size_t *list, size_t *n) {
    if (node->task != AX_TASK_NO_TASK && !seen[node->task]) {
        seen[node->task] = true;
        list[(*n)++] = node->task;
    }
    for (size_t i = 0; i < node->n; i++)
        mark(node->children[i], seen, list, n);
}

enum ax_status ax_task_node_tasks(const struct ax_task_tree *t, const struct ax_task_node *node,
                                  size_t **list, size_t *n) {
    bool *seen;
    AX_TRY(ax_alloc(&seen, t->n_tasks, sizeof *seen));
    *n = 0;
    const enum ax_status st = ax_alloc(list, t->n_tasks, sizeof **list);
    if (st == AX_OK)
        mark(node, seen, *list, n);
    ax_free(seen);
    return st;
}

/* From libyaml's events to a tree: what a plain scalar means, how a map ends, composing. Read
 * compose_node first: it takes one event and, for a list or a map, all events up to its end. */
#include "base/text/yaml.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/fit.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/text/yaml_tree.h"

/* ---- plain scalars ---- */

/* Their meaning: YAML 1.1's resolver as in PyYAML, plus the floats of YAML 1.2
 * (2e-5 has no point and would be a string in 1.1, which nobody intends). Sexagesimals stay
 * strings. */

/* Longest number; anything longer is text. */
#define MAX_NUMBER 400

static bool is_digit(char c, int base) {
    int v = c >= '0' && c <= '9'   ? c - '0'
            : c >= 'a' && c <= 'f' ? c - 'a' + 10
            : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                   : 99;
    return v < base;
}

/* Equal to `word`, "Word" or "WORD". */
static bool is_word(const char *s, const char *word) {
    size_t n = strlen(word);
    if (strlen(s) != n)
        return false;
    bool lower = strcmp(s, word) == 0;
    bool title = s[0] == word[0] - 'a' + 'A' && strcmp(s + 1, word + 1) == 0;
    bool upper = true;
    for (size_t i = 0; i < n; i++)
        upper = upper && s[i] == word[i] - 'a' + 'A';
    return lower || title || upper;
}

static bool resolve_word(struct ax_yaml_node *node, const char *s) {
    static const char *const yes[] = {"true", "yes", "on"};
    static const char *const no[] = {"false", "no", "off"};
    if (s[0] == '\0' || strcmp(s, "~") == 0 || is_word(s, "null")) {
        node->kind = AX_YAML_NULL;
        return true;
    }
    for (size_t i = 0; i < 3; i++) {
        if (is_word(s, yes[i]) || is_word(s, no[i])) {
            node->kind = AX_YAML_BOOL;
            node->boolean = is_word(s, yes[i]);
            return true;
        }
    }
    const char *unsigned_part = s + (s[0] == '-' || s[0] == '+');
    if (unsigned_part[0] == '.' && is_word(unsigned_part + 1, "inf")) {
        node->kind = AX_YAML_FLOAT;
        node->number = s[0] == '-' ? -INFINITY : INFINITY;
        return true;
    }
    if (s[0] == '.' && (is_word(s + 1, "nan") || strcmp(s, ".NaN") == 0)) {
        node->kind = AX_YAML_FLOAT;
        node->number = NAN;
        return true;
    }
    return false;
}

/* Digits of `base` with underscores between them, to the end, that fit int64. */
static bool resolve_digits(struct ax_yaml_node *node, const char *s, int base, bool negative) {
    int64_t value = 0; /* kept negative, so that -2^63 fits */
    bool any = false;
    for (; *s != '\0'; s++) {
        if (*s == '_')
            continue;
        int digit = *s <= '9' ? *s - '0' : (*s & 0xDF) - 'A' + 10;
        if (!is_digit(*s, base) || __builtin_mul_overflow(value, base, &value) ||
            __builtin_sub_overflow(value, digit, &value)) {
            return false;
        }
        any = true;
    }
    if (!any || (!negative && value == INT64_MIN))
        return false;
    node->kind = AX_YAML_INT;
    node->integer = negative ? value : -value;
    node->number = (double)node->integer;
    return true;
}

static bool resolve_int(struct ax_yaml_node *node, const char *s) {
    bool negative = s[0] == '-';
    s += s[0] == '-' || s[0] == '+';
    if (s[0] < '0' || s[0] > '9')
        return false;
    if (s[0] != '0')
        return resolve_digits(node, s, 10, negative);
    switch (s[1]) {
    case 'x':
        return resolve_digits(node, s + 2, 16, negative);
    case 'o':
        return resolve_digits(node, s + 2, 8, negative);
    case 'b':
        return resolve_digits(node, s + 2, 2, negative);
    default:
        return resolve_digits(node, s, 8, negative);
    }
}

/* Copies a run of digits, dropping underscores if allowed; returns how many digits. */
static size_t take_digits(const char **s, char **to, bool underscores) {
    size_t n = 0;
    for (; is_digit(**s, 10) || (underscores && **s == '_'); (*s)++) {
        if (**s != '_') {
            *(*to)++ = **s;
            n++;
        }
    }
    return n;
}

/* Sign, digits with a point or an exponent or both; or an integer that int64 cannot hold. */
static bool resolve_float(struct ax_yaml_node *node, const char *s) {
    char digits[MAX_NUMBER + 1];
    char *to = digits;
    if (strlen(s) > MAX_NUMBER)
        return false;
    if (*s == '-' || *s == '+')
        *to++ = *s++;
    if (!is_digit(s[0], 10) && !(s[0] == '.' && is_digit(s[1], 10)))
        return false;
    bool is_float = *s != '0'; /* decimal, and resolve_int has rejected it */
    (void)take_digits(&s, &to, true);
    if (*s == '.') {
        is_float = true;
        *to++ = *s++;
        (void)take_digits(&s, &to, true);
    }
    if (*s == 'e' || *s == 'E') {
        is_float = true;
        *to++ = *s++;
        if (*s == '-' || *s == '+')
            *to++ = *s++;
        if (take_digits(&s, &to, false) == 0)
            return false;
    }
    if (*s != '\0' || !is_float)
        return false;
    *to = '\0';
    node->kind = AX_YAML_FLOAT;
    node->number = strtod(digits, NULL);
    return true;
}

/* Sets kind and value of an unquoted scalar from its text. */
static void resolve(struct ax_yaml_node *node) {
    const char *s = node->text;
    if (!resolve_word(node, s) && !resolve_int(node, s) && !resolve_float(node, s))
        node->kind = AX_YAML_STRING;
}

/* ---- the end of a map: merge keys and duplicates ---- */

static enum ax_status entry_error(const char *name, const struct ax_yaml_entry *e,
                                  const char *what) {
    if (name == NULL)
        return ax_error(AX_ERR_CONFIG, "key \"%s\" %s", e->key, what);
    return ax_error(AX_ERR_CONFIG, "%s:%d:%d: key \"%s\" %s", name, e->line, e->column, e->key,
                    what);
}

static enum ax_status given_twice(const char *name, const struct ax_yaml_entry *first,
                                  const struct ax_yaml_entry *second) {
    if (name == NULL)
        return ax_error(AX_ERR_CONFIG, "duplicate key \"%s\"", second->key);
    return ax_error(AX_ERR_CONFIG, "%s:%d:%d: duplicate key \"%s\", first on line %d; remove one",
                    name, second->line, second->column, second->key, first->line);
}

/* Appends the entries of one merged map to `map`. */
static enum ax_status move_entries(struct ax_yaml_node *map, struct ax_yaml_node *from) {
    for (size_t i = 0; i < from->n; i++) {
        AX_TRY(ax_yaml_append(map, from->entries[i]));
        from->entries[i] = (struct ax_yaml_entry){0};
    }
    return AX_OK;
}

static enum ax_status apply_merge(struct ax_yaml_node *map, const struct ax_yaml_entry *merge,
                                  const char *name) {
    struct ax_yaml_node *value = merge->value;
    if (value->kind == AX_YAML_MAP)
        return move_entries(map, value);
    if (value->kind != AX_YAML_LIST)
        return entry_error(name, merge, "must be followed by a map or a list of maps (*name)");
    for (size_t i = 0; i < value->n; i++) {
        if (value->entries[i].value->kind != AX_YAML_MAP)
            return entry_error(name, merge, "must be followed by a map or a list of maps (*name)");
        AX_TRY(move_entries(map, value->entries[i].value));
    }
    return AX_OK;
}

struct sorted_key {
    const char *key;
    size_t index;
};

static int compare_keys(const void *a, const void *b) {
    const struct sorted_key *x = a;
    const struct sorted_key *y = b;
    int order = strcmp(x->key, y->key);
    return order != 0 ? order : (x->index > y->index) - (x->index < y->index);
}

/* Drops merged entries whose key appears earlier; entries from n_own on are merged ones. Sorts,
 * because comparing all pairs of keys could take hours for a long map. */
static enum ax_status drop_duplicates(struct ax_yaml_node *map, size_t n_own, const char *name) {
    struct sorted_key *keys;
    AX_TRY(ax_alloc(&keys, map->n, sizeof *keys));
    for (size_t i = 0; i < map->n; i++)
        keys[i] = (struct sorted_key){map->entries[i].key, i};
    qsort(keys, map->n, sizeof *keys, compare_keys);
    enum ax_status st = AX_OK;
    const struct ax_yaml_entry *kept = NULL;
    for (size_t i = 0; i < map->n && st == AX_OK; i++) {
        struct ax_yaml_entry *e = &map->entries[keys[i].index];
        if (kept == NULL || strcmp(kept->key, e->key) != 0) {
            kept = e;
        } else if (keys[i].index < n_own) {
            st = given_twice(name, kept, e);
        } else {
            ax_yaml_node_free(e->value);
            e->value = NULL; /* marks it; the key is still compared */
        }
    }
    ax_free(keys);
    size_t n = 0;
    for (size_t i = 0; i < map->n; i++)
        if (map->entries[i].value == NULL)
            ax_free(map->entries[i].key);
        else
            map->entries[n++] = map->entries[i];
    map->n = n;
    return st;
}

/* Joins the entries of merge keys ("<<": maps or lists of maps) into `map`, where its own keys and
 * earlier merges win; duplicate keys are errors. `name` is the file for messages, or NULL. */
static enum ax_status finish_map(struct ax_yaml_node *map, struct ax_yaml_node *merges,
                                 const char *name) {
    size_t n_own = map->n;
    if (merges->n > 1)
        return given_twice(name, &merges->entries[0], &merges->entries[1]);
    if (merges->n == 1)
        AX_TRY(apply_merge(map, &merges->entries[0], name));
    return drop_duplicates(map, n_own, name);
}

/* ---- composing ---- */

/* Anchors are searched linearly; no hand-written file has more. */
#define MAX_ANCHORS 1000

struct anchor {
    char *name;
    struct ax_yaml_node *node; /* own copy, as a merge may consume the original; NULL = open */
};

struct composer {
    yaml_parser_t parser;
    const char *name; /* NULL for an override: no file, flow style only, line 0 */
    const char *text;
    size_t len;
    struct ax_yaml_budget budget;
    struct anchor anchors[MAX_ANCHORS];
    size_t n_anchors;
    int depth;
};

__attribute__((format(printf, 4, 5))) static enum ax_status
error_at(const struct composer *c, size_t line, size_t column, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    ax_vfit(text, sizeof text, fmt, ap);
    va_end(ap);
    if (c->name == NULL)
        return ax_error(AX_ERR_CONFIG, "%s (character %zu)", text, column);
    return ax_error(AX_ERR_CONFIG, "%s:%zu:%zu: %s", c->name, line, column, text);
}

#define error_mark(c, mark, ...) error_at((c), (mark).line + 1, (mark).column + 1, __VA_ARGS__)

/* Prefixes errors of the tree functions with the location, which they do not know. */
static enum ax_status with_place(const struct composer *c, yaml_mark_t mark, enum ax_status st) {
    if (st == AX_ERR_CONFIG && c->name != NULL)
        return ax_error_prefix(st, "%s:%zu:%zu", c->name, mark.line + 1, mark.column + 1);
    return st;
}

/* True if a tab is at a mark, whose index counts characters but for a byte order mark. */
static bool is_tab(const struct composer *c, yaml_mark_t mark) {
    size_t at = c->len >= 3 && memcmp(c->text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    for (size_t n = 0; at < c->len; at++)
        if (((unsigned char)c->text[at] & 0xC0) != 0x80 && n++ == mark.index)
            break;
    return at < c->len && c->text[at] == '\t';
}

static enum ax_status parser_failed(const struct composer *c) {
    const yaml_parser_t *p = &c->parser;
    if (p->error == YAML_MEMORY_ERROR)
        return ax_error(AX_ERR_NOMEM, "out of memory while reading YAML of %zu bytes", c->len);
    if (p->error == YAML_READER_ERROR) { /* bad UTF-8 or a control character: only an offset */
        size_t line = 1;
        size_t column = 1;
        for (size_t i = 0; i < p->problem_offset && i < c->len; i++) {
            column = c->text[i] == '\n' ? 1 : column + 1;
            line += c->text[i] == '\n';
        }
        if (p->problem_value < 0)
            return error_at(c, line, column, "%s", p->problem);
        return error_at(c, line, column, "%s (byte 0x%02X)", p->problem,
                        (unsigned)p->problem_value);
    }
    if (is_tab(c, p->problem_mark))
        return error_mark(c, p->problem_mark, "a tab cannot indent YAML; use spaces");
    if (p->context != NULL) {
        return error_mark(c, p->problem_mark, "%s %s that begins on line %zu", p->problem,
                          p->context, p->context_mark.line + 1);
    }
    return error_mark(c, p->problem_mark, "%s", p->problem);
}

static enum ax_status next_event(struct composer *c, yaml_event_t *event) {
    return yaml_parser_parse(&c->parser, event) != 0 ? AX_OK : parser_failed(c);
}

static enum ax_status open_anchor(struct composer *c, const yaml_event_t *event, const char *name,
                                  size_t *index) {
    if (c->n_anchors == MAX_ANCHORS)
        return error_mark(c, event->start_mark, "more than %d anchors (&name)", MAX_ANCHORS);
    AX_TRY(ax_strdup(&c->anchors[c->n_anchors].name, name));
    *index = c->n_anchors++;
    return AX_OK;
}

static enum ax_status compose_alias(struct composer *c, const yaml_event_t *event,
                                    struct ax_yaml_node **out) {
    const char *name = (const char *)event->data.alias.anchor;
    size_t i = c->n_anchors;
    while (i > 0 && strcmp(c->anchors[i - 1].name, name) != 0) /* the latest of each name counts */
        i--;
    if (i == 0) {
        return error_mark(c, event->start_mark, "alias *%s: there is no anchor &%s before it", name,
                          name);
    }
    if (c->anchors[i - 1].node == NULL)
        return error_mark(c, event->start_mark, "alias *%s appears inside what it names", name);
    return with_place(c, event->start_mark,
                      ax_yaml_node_copy(out, c->anchors[i - 1].node, &c->budget));
}

/* The kind of a tag such as !!str; -1 for none, -2 if unknown. */
static int tag_kind(const char *tag) {
    static const struct {
        const char *tag;
        enum ax_yaml_kind kind;
    } known[] = {
        {YAML_NULL_TAG, AX_YAML_NULL},  {YAML_BOOL_TAG, AX_YAML_BOOL},
        {YAML_INT_TAG, AX_YAML_INT},    {YAML_FLOAT_TAG, AX_YAML_FLOAT},
        {YAML_STR_TAG, AX_YAML_STRING}, {"!", AX_YAML_STRING},
        {YAML_SEQ_TAG, AX_YAML_LIST},   {YAML_MAP_TAG, AX_YAML_MAP},
    };
    if (tag == NULL)
        return -1;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(tag, known[i].tag) == 0)
            return (int)known[i].kind;
    return -2;
}

static enum ax_status check_tag(const struct composer *c, const yaml_event_t *event,
                                const char *tag, enum ax_yaml_kind kind) {
    int wanted = tag_kind(tag);
    if (wanted == -2)
        return error_mark(c, event->start_mark, "tag \"%s\" is not supported; remove it", tag);
    if (wanted >= 0 && wanted != (int)kind) {
        return error_mark(c, event->start_mark, "the tag asks for %s, but this is %s",
                          ax_yaml_kind_name((enum ax_yaml_kind)wanted), ax_yaml_kind_name(kind));
    }
    return AX_OK;
}

static enum ax_status compose_scalar(struct composer *c, const yaml_event_t *event,
                                     struct ax_yaml_node *node) {
    const char *text = (const char *)event->data.scalar.value;
    const char *tag = (const char *)event->data.scalar.tag;
    if (strlen(text) != event->data.scalar.length)
        return error_mark(c, event->start_mark, "a NUL character (\\0) is not allowed in text");
    AX_TRY(ax_strdup(&node->text, text));
    int wanted = tag_kind(tag);
    bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (wanted == AX_YAML_STRING || (wanted < 0 && !plain)) {
        node->kind = AX_YAML_STRING;
        node->quoted = true;
    } else {
        resolve(node);
        if (wanted == AX_YAML_FLOAT && node->kind == AX_YAML_INT)
            node->kind = AX_YAML_FLOAT;
    }
    return check_tag(c, event, tag, node->kind);
}

/* Lines and columns count from 1; nodes from the command line have none. */
static int place(const struct composer *c, size_t from_zero) {
    return c->name != NULL ? (int)from_zero + 1 : 0;
}

static enum ax_status compose_node(struct composer *c, yaml_event_t *event,
                                   struct ax_yaml_node **out);

static enum ax_status compose_next(struct composer *c, struct ax_yaml_node **out) {
    yaml_event_t event;
    AX_TRY(next_event(c, &event));
    return compose_node(c, &event, out);
}

/* All events up to the end of the list. */
static enum ax_status compose_list(struct composer *c, struct ax_yaml_node *node) {
    for (;;) {
        yaml_event_t event;
        AX_TRY(next_event(c, &event));
        if (event.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&event);
            return AX_OK;
        }
        struct ax_yaml_node *value;
        AX_TRY(compose_node(c, &event, &value));
        struct ax_yaml_entry entry = {.line = value->line, .column = value->column, .value = value};
        enum ax_status st = ax_yaml_append(node, entry);
        if (st != AX_OK) {
            ax_yaml_node_free(value);
            return st;
        }
    }
}

/* One key and its value; takes the key's event. A plain "<<" goes to `merges`. */
static enum ax_status compose_pair(struct composer *c, yaml_event_t *event,
                                   struct ax_yaml_node *node, struct ax_yaml_node *merges) {
    yaml_mark_t mark = event->start_mark;
    struct ax_yaml_node *key = NULL;
    struct ax_yaml_node *value = NULL;
    enum ax_status st;
    AX_TRY(compose_node(c, event, &key));
    if (key->text == NULL || (key->text[0] == '\0' && !key->quoted)) {
        st = error_mark(c, mark, "a key must be a word or a quoted text");
        goto done;
    }
    bool is_merge = !key->quoted && strcmp(key->text, "<<") == 0;
    AX_TRY_GOTO(compose_next(c, &value), st, done);
    struct ax_yaml_entry entry = {.key = key->text,
                                  .line = place(c, mark.line),
                                  .column = place(c, mark.column),
                                  .value = value};
    AX_TRY_GOTO(ax_yaml_append(is_merge ? merges : node, entry), st, done);
    key->text = NULL;
    value = NULL;
done:
    ax_yaml_node_free(key);
    ax_yaml_node_free(value);
    return st;
}

/* All events up to the end of the map. */
static enum ax_status compose_map(struct composer *c, struct ax_yaml_node *node) {
    struct ax_yaml_node merges = {.kind = AX_YAML_MAP};
    enum ax_status st;
    for (;;) {
        yaml_event_t event;
        AX_TRY_GOTO(next_event(c, &event), st, done);
        if (event.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&event);
            break;
        }
        AX_TRY_GOTO(compose_pair(c, &event, node, &merges), st, done);
    }
    AX_TRY_GOTO(finish_map(node, &merges, c->name), st, done);
done:
    ax_yaml_node_clear(&merges);
    return st;
}

static enum ax_status compose_collection(struct composer *c, const yaml_event_t *event,
                                         struct ax_yaml_node *node) {
    bool list = event->type == YAML_SEQUENCE_START_EVENT;
    node->kind = list ? AX_YAML_LIST : AX_YAML_MAP;
    const yaml_char_t *tag = list ? event->data.sequence_start.tag : event->data.mapping_start.tag;
    bool flow = list ? event->data.sequence_start.style == YAML_FLOW_SEQUENCE_STYLE
                     : event->data.mapping_start.style == YAML_FLOW_MAPPING_STYLE;
    AX_TRY(check_tag(c, event, (const char *)tag, node->kind));
    if (c->name == NULL && !flow) {
        return error_mark(c, event->start_mark,
                          "write a list as [a, b], a map as {key: value}, and text with \"- \" or "
                          "\": \" in quotes");
    }
    if (c->depth == AX_YAML_DEPTH_MAX)
        return error_mark(c, event->start_mark, "nested deeper than %d levels", AX_YAML_DEPTH_MAX);
    c->depth++;
    enum ax_status st = list ? compose_list(c, node) : compose_map(c, node);
    c->depth--;
    return st;
}

static const char *anchor_of(const yaml_event_t *event) {
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return (const char *)event->data.scalar.anchor;
    case YAML_SEQUENCE_START_EVENT:
        return (const char *)event->data.sequence_start.anchor;
    default:
        return (const char *)event->data.mapping_start.anchor;
    }
}

/* The node that starts with `event`; takes the event. */
static enum ax_status compose_node(struct composer *c, yaml_event_t *event,
                                   struct ax_yaml_node **out) {
    struct ax_yaml_node *node = NULL;
    size_t anchor = MAX_ANCHORS;
    enum ax_status st;
    if (event->type == YAML_ALIAS_EVENT) {
        st = compose_alias(c, event, out);
        goto done;
    }
    AX_TRY_GOTO(with_place(c, event->start_mark, ax_yaml_node_new(&node, AX_YAML_NULL, &c->budget)),
                st, done);
    node->line = place(c, event->start_mark.line);
    node->column = place(c, event->start_mark.column);
    if (anchor_of(event) != NULL)
        AX_TRY_GOTO(open_anchor(c, event, anchor_of(event), &anchor), st, done);
    if (event->type == YAML_SCALAR_EVENT)
        AX_TRY_GOTO(compose_scalar(c, event, node), st, done);
    else
        AX_TRY_GOTO(compose_collection(c, event, node), st, done);
    if (anchor < MAX_ANCHORS) {
        st = ax_yaml_node_copy(&c->anchors[anchor].node, node, &c->budget);
        AX_TRY_GOTO(with_place(c, event->start_mark, st), st, done);
    }
    *out = node;
    node = NULL;
done:
    ax_yaml_node_free(node);
    yaml_event_delete(event);
    return st;
}

/* The events around the one document of a stream. An empty stream is null. */
static enum ax_status compose_stream(struct composer *c, struct ax_yaml_node **out) {
    yaml_event_t event;
    AX_TRY(next_event(c, &event)); /* stream start */
    yaml_event_delete(&event);
    AX_TRY(next_event(c, &event)); /* document start */
    bool empty = event.type == YAML_STREAM_END_EVENT;
    yaml_event_delete(&event);
    if (empty) {
        AX_TRY(ax_yaml_node_new(out, AX_YAML_NULL, &c->budget));
        (*out)->line = (*out)->column = place(c, 0);
        return ax_strdup(&(*out)->text, "");
    }
    AX_TRY(compose_next(c, out));
    AX_TRY(next_event(c, &event)); /* document end */
    yaml_event_delete(&event);
    AX_TRY(next_event(c, &event));
    bool ended = event.type == YAML_STREAM_END_EVENT;
    yaml_mark_t mark = event.start_mark;
    yaml_event_delete(&event);
    if (!ended)
        return error_mark(c, mark, "a second document (---) begins here; keep one in a file");
    return AX_OK;
}

static enum ax_status compose(struct ax_yaml_node **out, const char *name, const char *text,
                              size_t len) {
    struct composer c = {
        .name = name,
        .text = text,
        .len = len,
        .budget = {.nodes = AX_YAML_NODES_MAX, .copied_bytes = AX_YAML_COPY_MAX},
    };
    if (yaml_parser_initialize(&c.parser) == 0)
        return ax_error(AX_ERR_NOMEM, "out of memory for the YAML parser");
    yaml_parser_set_input_string(&c.parser, (const unsigned char *)text, len);
    struct ax_yaml_node *root = NULL;
    enum ax_status st = compose_stream(&c, &root);
    for (size_t i = 0; i < c.n_anchors; i++) {
        ax_free(c.anchors[i].name);
        ax_yaml_node_free(c.anchors[i].node);
    }
    yaml_parser_delete(&c.parser);
    if (st != AX_OK) {
        ax_yaml_node_free(root);
        return st;
    }
    *out = root;
    return AX_OK;
}

enum ax_status ax_yaml_parse_value(struct ax_yaml_node **out, const char *text) {
    return compose(out, NULL, text, strlen(text));
}

enum ax_status ax_yaml_parse(struct ax_yaml_doc *doc, const char *name, const char *text,
                             size_t len) {
    *doc = (struct ax_yaml_doc){0};
    struct ax_yaml_doc parsed = {0};
    enum ax_status st;
    AX_TRY_GOTO(ax_strdup(&parsed.name, name), st, fail);
    AX_TRY_GOTO(compose(&parsed.root, name, text, len), st, fail);
    *doc = parsed;
    return AX_OK;
fail:
    ax_yaml_free(&parsed);
    return st;
}

enum ax_status ax_yaml_load(struct ax_yaml_doc *doc, const char *path, size_t max_bytes) {
    *doc = (struct ax_yaml_doc){0};
    char *text;
    size_t len;
    AX_TRY(ax_read_file(path, max_bytes, &text, &len));
    enum ax_status st = ax_yaml_parse(doc, path, text, len);
    ax_free(text);
    return st;
}

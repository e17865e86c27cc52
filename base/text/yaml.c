/* From libyaml's events to a tree. Read compose_node first: it takes one event and, for a list or a
 * map, all events up to its end. */
#include "base/text/yaml.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "base/io.h"
#include "base/mem.h"
#include "base/text/yaml_tree.h"

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
    const char *key; /* whose value is being read; NULL outside of maps */
};

__attribute__((format(printf, 4, 5))) static enum ax_status
error_at(const struct composer *c, size_t line, size_t column, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
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
        return error_at(c, line, column, "%s (byte 0x%02X)", p->problem,
                        (unsigned)p->problem_value);
    }
    size_t at = p->problem_mark.index;
    if (at < c->len && c->text[at] == '\t')
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
    if (wanted == -2 && strcmp(tag, "!function") == 0) {
        return error_mark(c, event->start_mark,
                          "%s: !function names Python code, which axtrain does not run; write a "
                          "Jinja template instead, or prepare the data with Python beforehand",
                          c->key != NULL ? c->key : "here");
    }
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
        ax_yaml_resolve(node);
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
    const char *outer = c->key;
    c->key = key->text;
    st = compose_next(c, &value);
    c->key = outer;
    AX_TRY_GOTO(st, st, done);
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
    AX_TRY_GOTO(ax_yaml_finish_map(node, &merges, c->name), st, done);
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

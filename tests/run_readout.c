#include "tests/run_readout.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/io.h"

#define MAX_FILE ((size_t)1 << 26)

/* ---- lines ---- */

static enum ax_status add(struct run_readout *r, char *line) {
    char **lines = realloc(r->lines, (r->n + 1) * sizeof *lines);
    if (!lines)
        return ax_error(AX_ERR_NOMEM, "out of memory");
    r->lines = lines;
    r->lines[r->n++] = line;
    return AX_OK;
}

enum ax_status run_readout_add(struct run_readout *r, const char *fmt, ...) {
    char *line;
    va_list ap;
    va_start(ap, fmt);
    const int n = vasprintf(&line, fmt, ap);
    va_end(ap);
    if (n < 0)
        return ax_error(AX_ERR_NOMEM, "out of memory");
    return add(r, line);
}

void run_readout_close(struct run_readout *r) {
    for (size_t i = 0; i < r->n; i++)
        free(r->lines[i]);
    free(r->lines);
    *r = (struct run_readout){0};
}

int run_readout_drop(struct run_readout *r, const char *prefix, const char *part) {
    size_t kept = 0;
    for (size_t i = 0; i < r->n; i++)
        if (strncmp(r->lines[i], prefix, strlen(prefix)) == 0 && strstr(r->lines[i], part))
            free(r->lines[i]);
        else
            r->lines[kept++] = r->lines[i];
    const int dropped = (int)(r->n - kept);
    r->n = kept;
    return dropped;
}

const char *run_readout_compare(const struct run_readout *straight,
                                const struct run_readout *other) {
    static char text[2048];
    for (size_t i = 0; i < straight->n || i < other->n; i++) {
        const char *a = i < straight->n ? straight->lines[i] : "(nothing)";
        const char *b = i < other->n ? other->lines[i] : "(nothing)";
        if (strcmp(a, b) == 0)
            continue;
        snprintf(text, sizeof text, "straight: %.900s\n   other: %.900s", a, b);
        return text;
    }
    return NULL;
}

/* ---- JSON ---- */

/* `text` with each `folder` as OUT; to be freed. */
static char *without_folder(const char *text, const char *folder) {
    char *out = malloc(3 * strlen(text) + 1), *at = out;
    const size_t n = strlen(folder);
    while (out && *text) {
        if (n > 0 && strncmp(text, folder, n) == 0) {
            at = stpcpy(at, "OUT");
            text += n;
        } else {
            *at++ = *text++;
        }
    }
    if (out)
        *at = '\0';
    return out;
}

static enum ax_status add_json(struct run_readout *r, const char *where, const json_t *v,
                               const char *folder) {
    char *dump = json_dumps(v, JSON_SORT_KEYS | JSON_COMPACT | JSON_ENCODE_ANY);
    char *text = dump ? without_folder(dump, folder) : NULL;
    enum ax_status st = AX_ERR_NOMEM;
    if (text)
        st = run_readout_add(r, "%s: %s", where, text);
    free(text);
    ax_free(dump);
    return st;
}

/* ---- metrics.jsonl, metrics.csv ---- */

static bool is_of_one_process(const json_t *record) {
    const char *event = json_string_value(json_object_get(record, "event"));
    const char *text = json_string_value(json_object_get(record, "text"));
    if (!event)
        return false;
    return strcmp(event, "started") == 0 || strcmp(event, "peak") == 0 ||
           strcmp(event, "resumed") == 0 || strcmp(event, "saved") == 0 ||
           (strcmp(event, "stopped") == 0 && (!text || strncmp(text, "early", 5) != 0));
}

#define MOST_SECONDS 3600 /* of a test's step */

static enum ax_status add_record(struct run_readout *r, const char *line, const char *folder) {
    static const char *const times[] = {"seconds",      "tokens_per_second", "mfu",
                                        "hfu",          "memory_bytes",      "phase_seconds",
                                        "eval_seconds", "peak_memory_bytes"};
    json_t *record = json_loads(line, 0, NULL);
    if (!record)
        return ax_error(AX_ERR_DATA, "metrics.jsonl: no JSON: %s", line);
    const double seconds = json_number_value(json_object_get(record, "seconds"));
    enum ax_status st = seconds >= 0 && seconds < MOST_SECONDS
                            ? AX_OK
                            : ax_error(AX_ERR_DATA, "metrics.jsonl: a step of %g s", seconds);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        json_object_del(record, times[i]);
    if (st == AX_OK && !is_of_one_process(record))
        st = add_json(r, "metrics.jsonl", record, folder);
    json_decref(record);
    return st;
}

/* Columns step … trained_tokens, and those from skipped on. */
static enum ax_status add_csv(struct run_readout *r, const char *line, const char *folder) {
    const char *commas[13], *at = line;
    int n = 0;
    (void)folder;
    while (n < 13 && (at = strchr(at, ',')) != NULL)
        commas[n++] = at++;
    if (n < 13)
        return ax_error(AX_ERR_DATA, "metrics.csv: too few columns: %s", line);
    return run_readout_add(r, "metrics.csv: %.*s%s", (int)(commas[6] - line), line, commas[12]);
}

static enum ax_status each_line(struct run_readout *r, const char *folder, const char *name,
                                enum ax_status (*take)(struct run_readout *, const char *,
                                                       const char *)) {
    char *path, *text, *rest;
    size_t n;
    AX_TRY(ax_path_join(&path, folder, name));
    enum ax_status st = ax_path_exists(path) ? ax_read_file(path, MAX_FILE, &text, &n) : AX_OK;
    if (st == AX_OK && ax_path_exists(path)) {
        if (n > 0 && text[n - 1] != '\n')
            st = ax_error(AX_ERR_DATA, "%s: the last line is torn", path);
        rest = text;
        for (char *line; st == AX_OK && (line = strsep(&rest, "\n")) != NULL && *line;)
            st = take(r, line, folder);
        ax_free(text);
    }
    ax_free(path);
    return st;
}

/* ---- TensorBoard ---- */

struct bytes {
    const unsigned char *at, *end;
};

static uint64_t varint(struct bytes *b) {
    uint64_t v = 0;
    for (int shift = 0; b->at < b->end && shift < 64; shift += 7) {
        const unsigned char c = *b->at++;
        v |= (uint64_t)(c & 127) << shift;
        if (c < 128)
            break;
    }
    return v;
}

/* The next field's number, 0 at the end; its value in *number or *inner. */
static int field(struct bytes *b, uint64_t *number, struct bytes *inner) {
    if (b->at >= b->end)
        return 0;
    const uint64_t key = varint(b);
    const size_t left = (size_t)(b->end - b->at);
    size_t n = key % 8 == 1 ? 8 : key % 8 == 5 ? 4 : 0;
    *number = key % 8 == 0 ? varint(b) : 0;
    if (key % 8 == 2)
        n = (size_t)varint(b);
    n = n < left ? n : left;
    *inner = (struct bytes){b->at, b->at + n};
    if (key % 8 == 1 || key % 8 == 5)
        memcpy(number, b->at, n);
    b->at += n;
    return (int)(key / 8);
}

static bool is_time(struct bytes tag) {
    static const char *const times[] = {
        "train/tokens_per_second", "train/memory_gib", "train/mfu", "train/hfu", "eval/runtime",
        "eval/samples_per_second"};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        if ((size_t)(tag.end - tag.at) == strlen(times[i]) &&
            memcmp(tag.at, times[i], strlen(times[i])) == 0)
            return true;
    return false;
}

static enum ax_status add_scalar(struct run_readout *r, int64_t step, struct bytes value) {
    struct bytes inner, tag = {0};
    uint64_t number;
    float scalar = NAN;
    for (int f; (f = field(&value, &number, &inner)) != 0;) {
        if (f == 1)
            tag = inner;
        if (f == 2) {
            const uint32_t bits = (uint32_t)number;
            memcpy(&scalar, &bits, sizeof scalar);
        }
    }
    if (value.at != value.end)
        return ax_error(AX_ERR_DATA, "TensorBoard: bytes behind a value of step %lld",
                        (long long)step);
    const int n = (int)(tag.end - tag.at);
    const char *name = (const char *)tag.at;
    if (is_time(tag))
        return run_readout_add(r, "tensorboard: %06lld %.*s differs", (long long)step, n, name);
    return run_readout_add(r, "tensorboard: %06lld %.*s %.9g", (long long)step, n, name,
                           (double)scalar);
}

static enum ax_status add_event(struct run_readout *r, struct bytes event) {
    struct bytes inner, summary = {0};
    uint64_t number;
    int64_t step = 0;
    for (int f; (f = field(&event, &number, &inner)) != 0;) {
        if (f == 2)
            step = (int64_t)number;
        if (f == 5)
            summary = inner;
    }
    while (field(&summary, &number, &inner) == 1)
        AX_TRY(add_scalar(r, step, inner));
    return AX_OK;
}

static enum ax_status add_events(struct run_readout *r, const char *path) {
    struct ax_mapping map;
    enum ax_status st = AX_OK;
    AX_TRY(ax_map_file(&map, path));
    for (size_t at = 0; st == AX_OK && at + 16 <= map.len;) {
        uint64_t len;
        memcpy(&len, map.data + at, sizeof len);
        if (len > map.len - at - 16)
            break;
        st = add_event(r, (struct bytes){map.data + at + 12, map.data + at + 12 + len});
        at += 16 + len;
    }
    ax_unmap_file(&map);
    return st;
}

/* ---- files ---- */

static enum ax_status add_hash(struct run_readout *r, const char *path, const char *name) {
    char *data;
    size_t n;
    AX_TRY(ax_read_file(path, MAX_FILE, &data, &n));
    const enum ax_status st = run_readout_add(r, "%s: %zu bytes, %016llx", name, n,
                                              (unsigned long long)ax_hash64(data, n, 1));
    ax_free(data);
    return st;
}

static enum ax_status add_manifest(struct run_readout *r, const char *path, const char *name,
                                   const char *folder) {
    json_t *v = json_load_file(path, 0, NULL);
    if (!v)
        return ax_error(AX_ERR_DATA, "%s: no JSON", path);
    const char *key;
    json_t *part;
    enum ax_status st = AX_OK;
    json_object_foreach(v, key, part) {
        char where[600];
        snprintf(where, sizeof where, "%s %s", name, key);
        if (st == AX_OK && strcmp(key, "crc32c") != 0) /* of all the other lines */
            st = add_json(r, where, part, folder);
    }
    json_decref(v);
    return st;
}

static enum ax_status add_file(struct run_readout *r, const char *path, const char *name,
                               const char *folder) {
    static const char *const elsewhere[] = {"metrics.jsonl", "metrics.csv", "run.json",
                                            ".axtrain.lock"};
    const char *slash = strrchr(name, '/');
    if (strncmp(name, "runs/", 5) == 0)
        return add_events(r, path);
    if (slash && strcmp(slash, "/manifest.json") == 0)
        return add_manifest(r, path, name, folder);
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (strcmp(name, elsewhere[i]) == 0)
            return AX_OK;
    return add_hash(r, path, name);
}

static enum ax_status add_tree(struct run_readout *r, const char *folder, const char *below) {
    char dir[512];
    struct dirent **names;
    enum ax_status st = AX_OK;
    snprintf(dir, sizeof dir, "%s%s%s", folder, *below ? "/" : "", below);
    const int n = scandir(dir, &names, NULL, alphasort);
    if (n < 0)
        return ax_error(AX_ERR_IO, "%s: %m", dir);
    for (int i = 0; i < n; i++) {
        char name[512], path[1100];
        const char *own = names[i]->d_name;
        snprintf(name, sizeof name, "%s%s%.200s", below, *below ? "/" : "", own);
        snprintf(path, sizeof path, "%s/%s", folder, name);
        if (st == AX_OK && strcmp(own, ".") != 0 && strcmp(own, "..") != 0)
            st = ax_path_is_dir(path) ? add_tree(r, folder, name) : add_file(r, path, name, folder);
        free(names[i]);
    }
    free(names);
    return st;
}

/* ---- all ---- */

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

enum ax_status run_readout_open(struct run_readout *r, const char *folder) {
    *r = (struct run_readout){0};
    AX_TRY(each_line(r, folder, "metrics.jsonl", add_record));
    AX_TRY(each_line(r, folder, "metrics.csv", add_csv));
    const size_t files = r->n;
    AX_TRY(add_tree(r, folder, ""));
    /* event files are one a process: their scalars in one order */
    qsort(r->lines + files, r->n - files, sizeof *r->lines, by_text);
    return AX_OK;
}

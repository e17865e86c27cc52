/* packing.json: which documents TRL packs into which rows. Document k has consecutive ids, beginning
 * with the number of tokens before it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "tests/goldens/golden.h"
#include "data/records/pipeline/pack.h"

#define MAX_JSON (64u << 20)
#define MAX_ROW  (1 << 20)

static const struct {
    const char *name;
    enum ax_pack_mode mode;
} strategies[] = {
    {"bfd", AX_PACK_BEST}, {"bfd_split", AX_PACK_BEST_SPLIT}, {"wrapped", AX_PACK_WRAP}};

/* Ids of row r that differ; `lengths` if the case has them: the pieces of the row. */
static double compare_row(const struct ax_pack *p, size_t r, const int64_t *starts,
                          struct ax_json want, struct ax_json lengths) {
    int64_t at = 0, wrong = 0;
    for (size_t i = p->firsts[r]; i < p->firsts[r + 1]; i++) {
        const struct ax_pack_piece *piece = &p->pieces[i];
        for (uint32_t t = 0; t < piece->n; t++, at++)
            wrong += json_integer_value(ax_json_at(want, (size_t)at).v) !=
                     starts[piece->example] + piece->from + t;
        if (lengths.v)
            wrong += json_integer_value(ax_json_at(lengths, i - p->firsts[r]).v) != piece->n;
    }
    return (double)wrong + fabs((double)(int64_t)ax_json_size(want) - (double)at);
}

static enum ax_status compare(struct ax_golden_report *r, struct ax_json v, const char *where,
                              const struct ax_pack *p, const int64_t *starts) {
    const struct ax_json rows = ax_json_get(v, "rows"), lengths = ax_json_get(v, "seq_lengths");
    ax_golden_note(r, "rows more or fewer",
                   fabs((double)(int64_t)ax_json_size(rows) - (double)(int64_t)p->n), 0, where);
    for (size_t i = 0; i < p->n && i < ax_json_size(rows); i++)
        ax_golden_note(r, "packed ids that differ",
                       compare_row(p, i, starts, ax_json_at(rows, i), ax_json_at(lengths, i)), 0,
                       where);
    return AX_OK;
}

static enum ax_status read_documents(struct ax_json v, struct ax_corpus *c, int64_t *starts) {
    int64_t at = 0, n;
    for (size_t i = 0; i < ax_json_size(v); i++) {
        AX_TRY(ax_json_i64(ax_json_at(v, i), 0, INT32_MAX, &n));
        AX_TRY(ax_corpus_add(c, (struct ax_example_ref){.n = (uint32_t)n}));
        starts[i] = at;
        at += n;
    }
    return AX_OK;
}

static enum ax_status one_case(struct ax_golden_report *r, struct ax_json v) {
    const struct ax_json lengths = ax_json_get(v, "lengths");
    const char *name;
    char where[96];
    struct ax_pack_options o = {.max_docs = INT32_MAX};
    struct ax_corpus c = {0};
    struct ax_pack p = {0};
    int64_t *starts = NULL;
    size_t s = 0;
    enum ax_status st;
    AX_TRY(ax_json_str(ax_json_get(v, "strategy"), &name));
    AX_TRY(ax_json_i64(ax_json_get(v, "seq_length"), 1, MAX_ROW, &o.capacity));
    while (s < sizeof strategies / sizeof *strategies && strcmp(strategies[s].name, name) != 0)
        s++;
    if (s == sizeof strategies / sizeof *strategies)
        return ax_json_error(ax_json_get(v, "strategy"), "\"%s\" is not supported", name);
    o.mode = strategies[s].mode;
    snprintf(where, sizeof where, "%s, rows of %lld", name, (long long)o.capacity);
    AX_TRY_GOTO(ax_alloc(&starts, ax_json_size(lengths), sizeof *starts), st, done);
    AX_TRY_GOTO(read_documents(lengths, &c, starts), st, done);
    AX_TRY_GOTO(ax_pack_chunk(&p, &o, &c), st, done);
    AX_TRY_GOTO(compare(r, v, where, &p, starts), st, done);
done:
    ax_free(starts);
    ax_pack_free(&p);
    ax_corpus_free(&c);
    return st;
}

bool ax_golden_packing(struct ax_golden_report *r, const char *dir,
                       const struct ax_golden_options *o) {
    static const char *const places[] = {"packing.json", "packing/packing.json"};
    char path[4096] = "";
    (void)o;
    for (size_t i = 0; i < 2 && !ax_path_exists(path); i++)
        snprintf(path, sizeof path, "%s/%s", dir, places[i]);
    if (!ax_path_exists(path))
        return false;
    struct ax_json_doc doc = {0};
    snprintf(r->title, sizeof r->title, "%s", path);
    enum ax_status st = ax_json_load(&doc, path, MAX_JSON);
    if (st == AX_OK) {
        const struct ax_json cases = ax_json_get(ax_json_root(&doc), "cases");
        if (ax_json_size(cases) == 0)
            st = ax_json_error(cases, "expected a list of cases");
        for (size_t i = 0; i < ax_json_size(cases) && st == AX_OK; i++)
            st = one_case(r, ax_json_at(cases, i));
    }
    if (st != AX_OK)
        ax_golden_error(r, path);
    ax_golden_flush(r);
    ax_json_free(&doc);
    return true;
}

/* "code": the share of a record's tests that the completion's Python passes in the sandbox. A record is refused if one
 * of its tests passes without any code, which is tried when it is first met: that test proves nothing. */
#include <math.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/log.h"
#include "data/reward/function.h"
#include "data/reward/sandbox/reward.h"

/* ---- the program in an answer ---- */

/* The language behind a fence is Python. */
static bool is_python(const char *line, size_t n) {
    static const char *const names[] = {"python", "python3", "py"};
    const struct ax_reward_text word = ax_reward_strip(line + 3, n - 3);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (word.n == strlen(names[i]) && strncasecmp(word.s, names[i], word.n) == 0)
            return true;
    return false;
}

struct ax_reward_text ax_reward_code_block(const char *s, size_t n) {
    struct ax_reward_text found = {s, n};
    bool inside = false, python = false;
    const char *from = s;
    for (size_t at = 0, len; at < n; at += len) {
        const char *newline = memchr(s + at, '\n', n - at);
        len = newline ? (size_t)(newline - (s + at)) + 1 : n - at;
        if (len < 3 || memcmp(s + at, "```", 3) != 0)
            continue;
        if (inside && python)
            found = (struct ax_reward_text){from, (size_t)(s + at - from)};
        python = is_python(s + at, len);
        inside = !inside;
        from = s + at + len;
    }
    if (inside && python)
        found = (struct ax_reward_text){from, (size_t)(s + n - from)};
    return found;
}

/* ---- tests ---- */

enum { MAX_TESTS = AX_SANDBOX_MAX_PARTS - 1 };
#define NONE SIZE_MAX

/* The records met so far, by the hash of their tests. */
struct known {
    struct known_record {
        uint64_t hash;
        bool refused;
    } *records;
    size_t n, cap, refused;
};

/* The codes of a call: those of completions with tests, and of no code for records that are new. */
struct batch {
    struct ax_code *codes; /* [n] */
    size_t *items;         /* [n] which completion; NONE: none */
    size_t *records;       /* [n] its record among the known */
    struct ax_code_score *scores;
    struct ax_code_test *tests; /* [n_tests] */
    size_t n, n_tests;
    json_t *kept; /* list of the strings that tests of calls are read from */
};

static void free_batch(struct batch *b) {
    ax_free(b->codes);
    ax_free(b->items);
    ax_free(b->records);
    ax_free(b->scores);
    ax_free(b->tests);
    json_decref(b->kept);
}

static struct ax_bytes bytes_of(const json_t *string) {
    return (struct ax_bytes){json_string_value(string), json_string_length(string)};
}

/* ---- what a record's tests are ---- */

static bool has(const json_t *test, const char *a, const char *b, bool strings) {
    const json_t *x = json_object_get(test, a), *y = json_object_get(test, b);
    return strings ? json_is_string(x) && json_is_string(y) : json_is_array(x) && y;
}

static bool is_stdio(const json_t *test) {
    return has(test, "input", "output", true);
}
static bool is_call(const json_t *test) {
    return has(test, "args", "result", false);
}
static bool is_assert(const json_t *test) {
    return json_is_string(test);
}

static bool all(const json_t *tests, bool (*is)(const json_t *test)) {
    for (size_t i = 0; i < json_array_size(tests); i++)
        if (!is(json_array_get(tests, i)))
            return false;
    return true;
}

/* The mode of a record; AX_CODE_MODE_COUNT: none. */
static enum ax_code_mode mode_of(const json_t *record) {
    const json_t *tests = json_object_get(record, "tests");
    const size_t n = json_array_size(tests);
    if (json_is_string(tests))
        return AX_CODE_ASSERT;
    if (n == 0 || n > MAX_TESTS)
        return AX_CODE_MODE_COUNT;
    if (all(tests, is_stdio))
        return AX_CODE_STDIO;
    if (all(tests, is_assert))
        return AX_CODE_ASSERT;
    return all(tests, is_call) && json_is_string(json_object_get(record, "entry_point"))
               ? AX_CODE_CALL
               : AX_CODE_MODE_COUNT;
}

static size_t tests_of(const json_t *record) {
    const json_t *tests = json_object_get(record, "tests");
    return json_is_string(tests) ? 1 : json_array_size(tests);
}

/* ---- records → tests ---- */

static enum ax_status dump(struct batch *b, const json_t *v, struct ax_bytes *out) {
    char *text = v ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    json_t *kept = text ? json_string(text) : NULL;
    ax_free_hook(text);
    if (!kept || json_array_append_new(b->kept, kept) != 0)
        return ax_error(AX_ERR_NOMEM, "out of memory for a test");
    *out = bytes_of(kept);
    return AX_OK;
}

static enum ax_status read_test(struct batch *b, enum ax_code_mode mode, const json_t *test,
                                struct ax_code_test *out) {
    *out = (struct ax_code_test){.expected = {"", 0}};
    if (mode == AX_CODE_ASSERT) {
        out->input = bytes_of(test);
    } else if (mode == AX_CODE_STDIO) {
        out->input = bytes_of(json_object_get(test, "input"));
        out->expected = bytes_of(json_object_get(test, "output"));
    } else {
        AX_TRY(dump(b, json_object_get(test, "args"), &out->input));
        AX_TRY(dump(b, json_object_get(test, "result"), &out->expected));
    }
    return AX_OK;
}

/* The place of a record among the known; *is_new if it was not there. */
static enum ax_status find_record(struct known *k, const json_t *record, size_t *out,
                                  bool *is_new) {
    char *text = json_dumps(record, JSON_COMPACT | JSON_SORT_KEYS);
    if (!text)
        return ax_error(AX_ERR_NOMEM, "out of memory for a record's tests");
    const uint64_t hash = ax_hash64(text, strlen(text), 0);
    ax_free_hook(text);
    for (*out = 0; *out < k->n && k->records[*out].hash != hash;)
        ++*out;
    *is_new = *out == k->n;
    if (!*is_new)
        return AX_OK;
    AX_TRY(ax_grow(&k->records, k->n, &k->cap, sizeof *k->records));
    k->records[k->n++] = (struct known_record){.hash = hash};
    return AX_OK;
}

/* `index` NONE: no code. */
static enum ax_status add_code(struct batch *b, const struct ax_reward_item *item, size_t index,
                               size_t record) {
    const enum ax_code_mode mode = mode_of(item->record);
    const json_t *tests = json_object_get(item->record, "tests");
    const struct ax_reward_text source = index == NONE
                                             ? (struct ax_reward_text){.s = ""}
                                             : ax_reward_code_block(item->completion, item->n);
    const size_t n = tests_of(item->record);
    struct ax_code_test *to = b->tests + b->n_tests;
    for (size_t i = 0; i < n; i++)
        AX_TRY(
            read_test(b, mode, json_is_string(tests) ? tests : json_array_get(tests, i), &to[i]));
    b->codes[b->n] = (struct ax_code){
        .mode = mode,
        .source = {source.s, source.n},
        .function = json_string_value(json_object_get(item->record, "entry_point")),
        .tests = to,
        .n_tests = n,
        .limits = AX_SANDBOX_LIMITS,
    };
    b->items[b->n] = index;
    b->records[b->n++] = record;
    b->n_tests += n;
    return AX_OK;
}

static enum ax_status add(struct known *k, struct batch *b, const struct ax_reward_item *item,
                          size_t index) {
    json_t *about = json_pack("{s:O?,s:O?}", "tests", json_object_get(item->record, "tests"),
                              "entry_point", json_object_get(item->record, "entry_point"));
    size_t record;
    bool is_new;
    enum ax_status st;
    AX_TRY_GOTO(find_record(k, about, &record, &is_new), st, done);
    if (is_new)
        AX_TRY_GOTO(add_code(b, item, NONE, record), st, done);
    st = add_code(b, item, index, record);
done:
    json_decref(about);
    return st;
}

static enum ax_status fill(struct ax_reward_fn *f, struct batch *b,
                           const struct ax_reward_call *call) {
    size_t tests = 0;
    for (size_t i = 0; i < call->n; i++)
        tests += 2 * tests_of(call->items[i].record);
    AX_TRY(ax_alloc(&b->codes, 2 * call->n, sizeof *b->codes));
    AX_TRY(ax_alloc(&b->items, 2 * call->n, sizeof *b->items));
    AX_TRY(ax_alloc(&b->records, 2 * call->n, sizeof *b->records));
    AX_TRY(ax_alloc(&b->scores, 2 * call->n, sizeof *b->scores));
    AX_TRY(ax_alloc(&b->tests, tests, sizeof *b->tests));
    b->kept = json_array();
    for (size_t i = 0; i < call->n; i++)
        if (mode_of(call->items[i].record) != AX_CODE_MODE_COUNT)
            AX_TRY(add(f->state, b, &call->items[i], i));
        else
            ax_reward_tell(f,
                           "a record's \"tests\" are not 1 to %d times the same of: a string of "
                           "Python; {\"input\", \"output\"}; {\"args\", \"result\"} with an "
                           "\"entry_point\"",
                           MAX_TESTS);
    return AX_OK;
}

/* ---- the kind ---- */

static enum ax_status open_sandbox(struct ax_reward_fn *f, const struct ax_rewards_options *o) {
    struct ax_sandbox_parts parts;
    AX_ASSERT(o->sandbox_cache);
    AX_TRY(ax_sandbox_find(&parts, NULL, NULL));
    const int threads = o->threads < 1 ? 1 : o->threads;
    const struct ax_sandbox_options options = {
        .program = o->program,
        .wasmtime = parts.wasmtime,
        .python = {parts.python, parts.library},
        .cache = o->sandbox_cache,
        .threads = threads < AX_SANDBOX_MAX_THREADS ? threads : AX_SANDBOX_MAX_THREADS,
        .seconds = AX_SANDBOX_SECONDS,
        .watch = &f->shared->watch,
    };
    const enum ax_status st = ax_sandbox_open(&f->shared->sandbox, &options);
    ax_sandbox_parts_free(&parts);
    return st;
}

static enum ax_status open_code(struct ax_reward_fn *f, const struct ax_rewards_options *o) {
    if (f->argument && strcmp(f->argument, "all") != 0)
        return ax_error(AX_ERR_CONFIG, "reward function \"%s\": expected code, or code:all",
                        f->name);
    struct known *known;
    AX_TRY(ax_alloc(&known, 1, sizeof *known));
    f->state = known;
    if (f->shared->sandbox)
        return AX_OK;
    const enum ax_status st = open_sandbox(f, o);
    return st == AX_OK ? AX_OK : ax_error_prefix(st, "reward function \"%s\"", f->name);
}

/* Notes which of the new records are refused. */
static void refuse_records(struct ax_reward_fn *f, const struct batch *b) {
    struct known *k = f->state;
    const size_t before = k->refused;
    for (size_t i = 0; i < b->n; i++)
        if (b->items[i] == NONE && b->scores[i].passed > 0) {
            k->records[b->records[i]].refused = true;
            k->refused++;
        }
    size_t told = 1; /* 1, 2, 4, … */
    while (told <= before)
        told *= 2;
    if (k->refused >= told)
        ax_log_warn("rewards: %s: %zu of %zu records so far are refused: a test of theirs passes "
                    "without any code (see \"tests\" in docs/rewards.md)",
                    f->name, k->refused, k->n);
}

static enum ax_status score_code(struct ax_reward_fn *f, const struct ax_reward_call *call,
                                 double *out, struct ax_reward_outcome *outcome) {
    const struct known *k = f->state;
    struct batch b = {0};
    (void)outcome;
    enum ax_status st = fill(f, &b, call);
    if (st == AX_OK)
        st = ax_code_rewards(f->shared->sandbox, b.codes, b.n, b.scores);
    if (st == AX_OK)
        refuse_records(f, &b);
    for (size_t i = 0; i < b.n && st == AX_OK; i++) {
        if (b.items[i] == NONE || k->records[b.records[i]].refused)
            continue;
        out[b.items[i]] =
            f->argument ? b.scores[i].passed == b.scores[i].tests : b.scores[i].reward;
        f->counters.verdicts[b.scores[i].verdict]++;
    }
    free_batch(&b);
    return st;
}

static void close_code(struct ax_reward_fn *f) {
    struct known *known = f->state;
    if (known)
        ax_free(known->records);
    ax_free(known); /* the sandbox is shared */
}

const struct ax_reward_kind ax_reward_code = {open_code, score_code, close_code};

/* Groups of examples stay whole: from records through a cache, filters, shuffles, shards,
 * duplicates and the evaluation tail, in packing, in streams, and dealt to ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/records/pipeline/prepared.h"
#include "data/records/pipeline/loader.h"
#include "data/records/pipeline/stream.h"
#include "tests/data/group_case.h"

static struct ax_examples set;

static int make_set(void **state) {
    if (scratch_make(state) != 0)
        return -1;
    open_groups(&set, put_groups("groups.jsonl", 0, N_GROUPS), NULL);
    return 0;
}

static int free_set(void **state) {
    ax_examples_free(&set);
    return scratch_remove(state);
}

static void build(struct ax_corpus *c, const struct ax_corpus_options *o,
                  struct ax_corpus_report *r) {
    *r = (struct ax_corpus_report){0};
    assert_ok(ax_corpus_build(c, &set, 1, o, r));
}

/* ---- cache ---- */

static void cached(void **state) {
    (void)state;
    struct ax_examples got;
    struct ax_corpus c;
    struct ax_corpus_report r;
    int seen[N_GROUPS];
    for (int i = 0; i < 2; i++) {
        open_groups(&got, in_scratch("groups.jsonl"), in_scratch("cache"));
        assert_int_equal(got.info.from_cache, i == 1);
        assert_int_equal(got.n, set.n);
        assert_memory_equal(got.list, set.list, set.n * sizeof *set.list);
        assert_ok(ax_corpus_build(&c, &got, 1,
                                  &(struct ax_corpus_options){.rule = {.max = INT64_MAX}}, &r));
        check_whole(&c, seen);
        ax_corpus_free(&c);
        ax_examples_free(&got);
    }
    assert_int_equal(set.list[0].joined, 0);
    assert_int_equal(set.list[2].joined, 1); /* group 1 has two */
}

/* ---- corpora ---- */

static void filtered(void **state) {
    (void)state;
    struct ax_corpus c;
    struct ax_corpus_report r;
    int seen[N_GROUPS];
    const int64_t max = 20, min = 4;
    build(&c, &(struct ax_corpus_options){.rule = {.min = min, .max = max}}, &r);
    check_whole(&c, seen);
    int64_t too_long = 0;
    int64_t too_short = 0;
    for (int64_t id = 0; id < N_GROUPS; id++) {
        bool good = true;
        for (size_t k = 0; k < group_size(id) && good; k++) {
            too_long += group_length(id, k) > max;
            too_short += group_length(id, k) < min;
            good = group_length(id, k) >= min && group_length(id, k) <= max;
        }
        assert_int_equal(seen[id], good);
    }
    assert_int_equal(r.too_long, too_long);
    assert_int_equal(r.too_short, too_short);
    assert_true(too_long > 20 && too_short > 5);
    ax_corpus_free(&c);
    /* cut to one token, which is none that is trained: every group goes, and is counted once */
    build(&c,
          &(struct ax_corpus_options){
              .rule = {.max = 1, .excess = AX_EXCESS_TRUNCATE, .drop_untrained = true}},
          &r);
    assert_int_equal(c.n, 0);
    assert_int_equal(r.untrained, N_GROUPS);
    ax_corpus_free(&c);
}

static void shuffled(void **state) {
    (void)state;
    struct ax_corpus c;
    struct ax_corpus again;
    struct ax_corpus_report r;
    int seen[N_GROUPS];
    int in_place = 0;
    const struct ax_corpus_options o = {
        .shuffle_each = true, .shuffle = true, .seed = 4, .rule = {.max = INT64_MAX}};
    build(&c, &o, &r);
    build(&again, &o, &r);
    assert_memory_equal(c.refs, again.refs, c.n * sizeof *c.refs);
    check_whole(&c, seen);
    for (size_t i = 0; i < c.n; i++)
        in_place += c.refs[i].index == i;
    assert_true(in_place < 20);
    for (int id = 0; id < N_GROUPS; id++)
        assert_int_equal(seen[id], 1);
    ax_corpus_free(&again);
    /* longest first within runs of 40 groups */
    assert_ok(ax_corpus_sort_runs(&c, 40));
    check_whole(&c, seen);
    uint32_t before = UINT32_MAX;
    size_t groups = 0;
    for (size_t i = 0; i < c.n; groups++) {
        const size_t end = ax_corpus_group_end(&c, i);
        uint32_t longest = 0;
        for (; i < end; i++)
            longest = c.refs[i].n > longest ? c.refs[i].n : longest;
        assert_true(groups % 40 == 0 || longest <= before);
        before = longest;
    }
    assert_int_equal(groups, N_GROUPS);
    ax_corpus_free(&c);
}

static void sharded_and_split(void **state) {
    (void)state;
    struct ax_corpus c;
    struct ax_corpus tail = {0};
    struct ax_corpus_report r;
    int seen[N_GROUPS];
    int all[N_GROUPS] = {0};
    for (int64_t shard = 0; shard < 4; shard++) {
        int64_t n = 0;
        build(&c,
              &(struct ax_corpus_options){
                  .shuffle = true, .n_shards = 4, .shard = shard, .rule = {.max = INT64_MAX}},
              &r);
        check_whole(&c, seen);
        for (int id = 0; id < N_GROUPS; id++) {
            all[id] += seen[id];
            n += seen[id];
        }
        assert_in_range(n, N_GROUPS / 4, N_GROUPS / 4 + 1);
        assert_int_equal(r.other_shards, N_GROUPS - n);
        ax_corpus_free(&c);
    }
    for (int id = 0; id < N_GROUPS; id++)
        assert_int_equal(all[id], 1);
    build(&c, &(struct ax_corpus_options){.shuffle = true, .rule = {.max = INT64_MAX}}, &r);
    assert_error(ax_corpus_take_tail(&c, N_GROUPS, &tail), AX_ERR_DATA,
                 "of 150 documents for evaluation leaves none");
    assert_ok(ax_corpus_take_tail(&c, 0.1, &tail));
    check_whole(&tail, all);
    check_whole(&c, seen);
    int n_tail = 0;
    for (int id = 0; id < N_GROUPS; id++) {
        assert_int_equal(seen[id] + all[id], 1);
        n_tail += all[id];
    }
    assert_int_equal(n_tail, 15);
    ax_corpus_free(&tail);
    ax_corpus_free(&c);
}

/* A pair is another one's duplicate when both of its examples are. */
static void deduplicated(void **state) {
    (void)state;
    static const char rows[] = "{\"id\": 0, \"n\": [3, 4]}\n{\"id\": 0, \"n\": [3, 5]}\n"
                               "{\"id\": 0, \"n\": [3, 4]}\n{\"id\": 0, \"n\": [3]}\n"
                               "{\"id\": 0, \"n\": [3, 4, 2]}\n{\"id\": 0, \"n\": [3]}\n";
    struct ax_examples e;
    struct ax_corpus c;
    struct ax_corpus also;
    struct ax_corpus_report r = {0};
    struct ax_corpus_options o = {.rule = {.max = 9}, .deduplicate = true};
    open_groups(&e, put_text("twice.jsonl", rows), NULL);
    assert_ok(ax_corpus_build(&c, &e, 1, &o, &r));
    assert_int_equal(r.duplicates, 2);
    static const uint32_t kept[] = {0, 1, 2, 3, 6, 7, 8, 9};
    assert_int_equal(c.n, 8);
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(c.refs[i].index, kept[i]);
    o.also = &c;
    assert_ok(ax_corpus_build(&also, &e, 1, &o, &r));
    assert_int_equal(also.n, 0);
    ax_corpus_free(&also);
    ax_corpus_free(&c);
    ax_examples_free(&e);
}

/* ---- packing ---- */

/* Examples of these lengths, a bar before each group: "3 4|5" has a group of two. */
static void packed_as(const struct ax_pack_options *o, const char *lengths, const char *want) {
    struct ax_corpus c = {.sets = &set};
    struct ax_pack p = {0};
    char got[512] = "";
    char *end = got;
    for (const char *s = lengths; *s;) {
        const bool joined = s > lengths && s[-1] == ' ';
        char *after;
        const unsigned long n = strtoul(s, &after, 10);
        assert_ok(ax_corpus_add(
            &c, (struct ax_example_ref){.joined = joined, .n = (uint32_t)n, .index = 5}));
        s = *after ? after + 1 : after;
    }
    const enum ax_status st = ax_pack_chunk(&p, o, &c);
    if (!want)
        assert_error(st, AX_ERR_DATA, "groups.jsonl:3: a group of");
    else
        assert_ok(st);
    for (size_t r = 0; r < p.n && want; r++) {
        end += sprintf(end, "%s", r ? "|" : "");
        for (size_t i = p.firsts[r]; i < p.firsts[r + 1]; i++)
            end += sprintf(end, "%s%u", i > p.firsts[r] ? " " : "", p.pieces[i].example);
    }
    if (want)
        assert_string_equal(got, want);
    ax_pack_free(&p);
    ax_corpus_free(&c);
}

static void packed_by_hand(void **state) {
    (void)state;
    struct ax_pack_options o = {.capacity = 10, .max_docs = 9, .batch = 2};
    /* a group that does not fit the rest of a micro-batch begins the next one */
    o.mode = AX_PACK_PLAIN;
    packed_as(&o, "3|4 4|5|6 1", "0||1|2|3||4|5");
    packed_as(&o, "1 1 1", NULL);
    o.mode = AX_PACK_IN_ORDER;
    packed_as(&o, "3|4 4|5|6 1", "0 1|2 3|4 5|");
    packed_as(&o, "3|8 4|9", "0||1|2|3|"); /* 3, 8, 4 need three: the group begins the next */
    packed_as(&o, "9 2 9", NULL);
    packed_as(&o, "3 3 7 7", NULL); /* as they stand: 3 3, 7, 7 */
    o.mode = AX_PACK_FIT;
    packed_as(&o, "3 3 7 7", "0 2|1 3"); /* the longest first, they fit */
    packed_as(&o, "9|6 6|4 4|1|1", "0 5|6|1 3|2 4");
    packed_as(&o, "6 6|6 4|9", "0|1|2 3|4");
    packed_as(&o, "9 9 1|9 2 9", NULL);
    o.batch = 1; /* the whole group in one sequence */
    packed_as(&o, "5|6 4|5", "0 3|1 2");
    packed_as(&o, "6 5", NULL);
    o.max_docs = 2;
    packed_as(&o, "1 1 1", NULL);
    packed_as(&o, "1|1|1 1", "0 1|2 3");
    o.mode = AX_PACK_IN_ORDER;
    packed_as(&o, "1|1 1|1", "0|1 2|3");
}

/* A group too large for a micro-batch takes several new ones of a unit. */
static void spilled_by_hand(void **state) {
    (void)state;
    struct ax_pack_options o = {.capacity = 10, .max_docs = 9, .batch = 1, .step = 3};
    o.mode = AX_PACK_PLAIN;
    packed_as(&o, "3|4 4|5", "0|1|2|3||");
    packed_as(&o, "3|4|5 1", "0|1||2|3|"); /* too late in the unit */
    packed_as(&o, "1|1 1 1|1", "0|||1|2|3|4||");
    packed_as(&o, "1 1 1 1", NULL);
    o.mode = AX_PACK_IN_ORDER;
    packed_as(&o, "1|9 9|1|1 1|9", "0|1|2 3|4 5|6|"); /* 2 ends where the next groups begin */
    packed_as(&o, "9|9 9 9|1", "0|||1|2|3 4");
    packed_as(&o, "9 9 9 9", NULL);
    o.mode = AX_PACK_FIT;
    packed_as(&o, "9|9 9|1|1 1", "1 3|2|0|4 5||"); /* the large group first */
    packed_as(&o, "7 7|8 8 8|2 2", "0|1|5 6|2|3|4");
    packed_as(&o, "9 9 9|6 6 6|1", "0 6|1|2|3|4|5");
    packed_as(&o, "9 9 9 9", NULL);
    o.batch = 2;
    o.step = 4;
    packed_as(&o, "6 5|7 7 7", "0|1|||2|3|4|"); /* 0 and 1 fit a micro-batch, but not that one */
    o.max_docs = 1;
    packed_as(&o, "1 1 1 1|1 1", "0|1|2|3|4|5||");
    packed_as(&o, "1 1 1 1 1", NULL);
}

/* Whatever the mode and the micro-batch: every example once, every group in one micro-batch. */
static void never_split(void **state) {
    (void)state;
    struct ax_corpus c;
    struct ax_corpus_report r;
    build(&c, &(struct ax_corpus_options){.shuffle = true, .rule = {.max = INT64_MAX}}, &r);
    for (int mode = AX_PACK_PLAIN; mode <= AX_PACK_IN_ORDER; mode++)
        for (int64_t batch = 1; batch <= 8; batch *= 2) {
            struct ax_pack_options o = {.mode = (enum ax_pack_mode)mode,
                                        .capacity = 4 * LENGTH_MAX / (batch > 2 ? 3 : 1),
                                        .max_docs = 6,
                                        .batch = batch};
            if (mode == AX_PACK_PLAIN && batch < GROUP_MAX)
                continue;
            struct ax_pack p = {0};
            int64_t where[N_GROUPS * GROUP_MAX];
            memset(where, -1, sizeof where);
            assert_ok(ax_pack_chunk(&p, &o, &c));
            assert_int_equal(p.n % (size_t)batch, 0);
            for (size_t s = 0; s < p.n; s++) {
                int64_t used = 0;
                assert_true(p.firsts[s + 1] - p.firsts[s] <= (mode == AX_PACK_PLAIN ? 1 : 6));
                for (size_t i = p.firsts[s]; i < p.firsts[s + 1]; i++) {
                    assert_int_equal(where[p.pieces[i].example], -1);
                    where[p.pieces[i].example] = (int64_t)s / batch;
                    used += p.pieces[i].n;
                }
                assert_true(used <= o.capacity);
            }
            for (size_t i = 0; i < c.n; i++)
                assert_true(where[i] >= 0 && (!c.refs[i].joined || where[i] == where[i - 1]));
            /* nothing changes for groups that fit, but that units are filled up */
            const size_t pieces = p.n_pieces;
            o.step = 4 * batch;
            assert_ok(ax_pack_chunk(&p, &o, &c));
            assert_int_equal(p.n % (size_t)o.step, 0);
            assert_int_equal(p.n_pieces, pieces);
            ax_pack_free(&p);
        }
    ax_corpus_free(&c);
}

/* Micro-batches of a group follow each other, in one unit, the first of them new. */
static void spilled(void **state) {
    (void)state;
    struct ax_corpus c;
    struct ax_corpus_report r;
    build(&c, &(struct ax_corpus_options){.shuffle = true, .rule = {.max = INT64_MAX}}, &r);
    for (int mode = AX_PACK_PLAIN; mode <= AX_PACK_IN_ORDER; mode++)
        for (int64_t batch = 1; batch <= 2; batch++) {
            const struct ax_pack_options o = {.mode = (enum ax_pack_mode)mode,
                                              .capacity = LENGTH_MAX,
                                              .max_docs = 3,
                                              .batch = batch,
                                              .step = 5 * batch};
            struct ax_pack p = {0};
            int64_t where[N_GROUPS * GROUP_MAX];
            int over = 0;
            memset(where, -1, sizeof where);
            assert_ok(ax_pack_chunk(&p, &o, &c));
            assert_int_equal(p.n % (size_t)o.step, 0);
            for (size_t s = 0; s < p.n; s++) {
                int64_t used = 0;
                assert_true(p.firsts[s + 1] - p.firsts[s] <= (mode == AX_PACK_PLAIN ? 1 : 3));
                for (size_t i = p.firsts[s]; i < p.firsts[s + 1]; i++) {
                    assert_int_equal(where[p.pieces[i].example], -1);
                    where[p.pieces[i].example] = (int64_t)s / batch;
                    used += p.pieces[i].n;
                }
                assert_true(used <= o.capacity);
            }
            for (size_t i = 0; i < c.n;) {
                const size_t end = ax_corpus_group_end(&c, i);
                int64_t low = INT64_MAX;
                int64_t high = -1;
                for (size_t k = i; k < end; k++) {
                    low = where[k] < low ? where[k] : low;
                    high = where[k] > high ? where[k] : high;
                }
                assert_true(low >= 0 && low / 5 == high / 5);
                for (int64_t b = low; b <= high; b++) { /* none left out */
                    bool there = false;
                    for (size_t k = i; k < end; k++)
                        there = there || where[k] == b;
                    assert_true(there);
                }
                over += high > low;
                i = end;
            }
            assert_true(over > 20);
            ax_pack_free(&p);
        }
    ax_corpus_free(&c);
}

/* First-fit over groups, the slow way: the same number of micro-batches, and the same neighbors.
 */
static void fit_as_the_slow_way(void **state) {
    (void)state;
    enum { BATCH = 3, CAPACITY = 70, DOCS = 5 };
    struct ax_corpus c;
    struct ax_corpus_report r;
    struct ax_pack p = {0};
    static int64_t used[N_GROUPS][BATCH];
    static int docs[N_GROUPS][BATCH];
    int64_t slow[N_GROUPS * GROUP_MAX];
    int64_t fast[N_GROUPS * GROUP_MAX];
    bool done[N_GROUPS] = {false};
    uint32_t *firsts;
    size_t n;
    build(&c, &(struct ax_corpus_options){.shuffle = true, .rule = {.max = INT64_MAX}}, &r);
    assert_ok(ax_corpus_groups(&c, 0, &firsts, &n));
    for (size_t k = 0; k < n; k++) {
        size_t g = n;
        int64_t largest = -1;
        for (size_t i = 0; i < n; i++) {
            int64_t size = 0;
            for (size_t m = firsts[i]; m < ax_corpus_group_end(&c, firsts[i]); m++)
                size += c.refs[m].n;
            if (!done[i] && size > largest) {
                g = i;
                largest = size;
            }
        }
        done[g] = true;
        for (size_t b = 0;; b++) {
            int64_t try_used[BATCH];
            int try_docs[BATCH];
            bool placed[GROUP_MAX] = {false};
            bool fits = true;
            memcpy(try_used, used[b], sizeof try_used);
            memcpy(try_docs, docs[b], sizeof try_docs);
            for (size_t m = 0; m < ax_corpus_group_end(&c, firsts[g]) - firsts[g] && fits; m++) {
                size_t longest = GROUP_MAX;
                for (size_t i = 0; i < ax_corpus_group_end(&c, firsts[g]) - firsts[g]; i++)
                    if (!placed[i] && (longest == GROUP_MAX ||
                                       c.refs[firsts[g] + i].n > c.refs[firsts[g] + longest].n))
                        longest = i;
                placed[longest] = true;
                int s = 0;
                while (s < BATCH && (try_used[s] + c.refs[firsts[g] + longest].n > CAPACITY ||
                                     try_docs[s] == DOCS))
                    s++;
                fits = s < BATCH;
                if (fits) {
                    try_used[s] += c.refs[firsts[g] + longest].n;
                    try_docs[s]++;
                    slow[firsts[g] + longest] = (int64_t)b * BATCH + s;
                }
            }
            if (!fits)
                continue;
            memcpy(used[b], try_used, sizeof try_used);
            memcpy(docs[b], try_docs, sizeof try_docs);
            break;
        }
    }
    assert_ok(ax_pack_chunk(
        &p,
        &(struct ax_pack_options){
            .mode = AX_PACK_FIT, .capacity = CAPACITY, .max_docs = DOCS, .batch = BATCH},
        &c));
    for (size_t s = 0; s < p.n; s++)
        for (size_t i = p.firsts[s]; i < p.firsts[s + 1]; i++)
            fast[p.pieces[i].example] = (int64_t)s;
    for (size_t i = 0; i < c.n; i++)
        for (size_t k = 0; k < i; k++)
            assert_int_equal(slow[i] == slow[k], fast[i] == fast[k]);
    ax_pack_free(&p);
    ax_free(firsts);
    ax_corpus_free(&c);
}

/* ---- loader ---- */

#define BATCH 2 /* sequences */
#define CHUNK 40

struct run {
    struct ax_corpus corpus;
    struct ax_corpus_source source;
    struct ax_example_source examples;
    struct ax_loader *loader;
};

static void open_run(struct run *r, enum ax_pack_mode mode, int64_t batch) {
    struct ax_corpus_report report;
    *r = (struct run){.source = {.chunk = CHUNK, .shuffle = true, .seed = 3}};
    build(&r->corpus, &(struct ax_corpus_options){.rule = {.max = INT64_MAX}}, &report);
    ax_corpus_source_init(&r->source, &r->corpus, &r->examples);
    assert_ok(ax_loader_new(
        &r->loader, &r->examples,
        &(struct ax_loader_options){
            .pack = {.mode = mode, .capacity = 100, .max_docs = 8, .chunk = CHUNK, .batch = batch},
            .shuffle = true,
            .seed = 3}));
}

static void close_run(struct run *r) {
    ax_loader_free(r->loader);
    ax_corpus_source_free(&r->source);
    ax_corpus_free(&r->corpus);
}

/* The tokens of the sequences from here on, −1 after each. */
static size_t take(struct ax_loader *l, int32_t *out, size_t max) {
    size_t n = 0;
    for (;;) {
        struct ax_packed_sequence s;
        bool got;
        assert_ok(ax_loader_next(l, &s, &got));
        if (!got)
            return n;
        assert_true(n + (size_t)s.n_tokens < max);
        for (int d = 0; d < s.n; d++)
            for (int64_t t = 0; t < s.docs[d].n; t++)
                out[n++] = s.docs[d].tokens[t];
        out[n++] = -1;
    }
}

/* Micro-batches of an epoch hold groups whole, in every epoch; chunks do not part them either. */
static void loaded(void **state) {
    (void)state;
    for (int mode = AX_PACK_PLAIN; mode <= AX_PACK_IN_ORDER; mode++) {
        const int64_t batch = mode == AX_PACK_PLAIN ? GROUP_MAX : BATCH;
        static int32_t first[20000];
        static int32_t other[20000];
        struct run r;
        open_run(&r, (enum ax_pack_mode)mode, batch);
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            int64_t where[N_GROUPS * GROUP_MAX];
            struct ax_loader_count count;
            int64_t n = 0;
            int64_t examples = 0;
            memset(where, -1, sizeof where);
            assert_ok(ax_loader_count_epoch(r.loader, epoch, 1, &count));
            ax_loader_start_epoch(r.loader, epoch);
            for (;; n++) {
                struct ax_packed_sequence s;
                bool got;
                assert_ok(ax_loader_next(r.loader, &s, &got));
                if (!got)
                    break;
                for (int d = 0; d < s.n; d++, examples++) {
                    const int32_t token = s.docs[d].tokens[0];
                    assert_int_equal(where[token], -1);
                    assert_int_equal(s.docs[d].n, group_length(group_of(token), member_of(token)));
                    where[token] = n / batch;
                }
            }
            assert_int_equal(n % batch, 0);
            assert_int_equal(n, count.sequences);
            assert_int_equal(examples, set.n);
            assert_int_equal(examples, count.examples);
            for (int64_t id = 0; id < N_GROUPS; id++)
                for (size_t k = 1; k < group_size(id); k++)
                    assert_int_equal(where[GROUP_MAX * id + (int64_t)k], where[GROUP_MAX * id]);
        }
        ax_loader_start_epoch(r.loader, 0);
        const size_t n = take(r.loader, first, 20000);
        ax_loader_start_epoch(r.loader, 1);
        take(r.loader, other, 20000);
        assert_memory_not_equal(first, other, 1000 * sizeof *first);
        ax_loader_start_epoch(r.loader, 0);
        assert_int_equal(take(r.loader, other, 20000), n);
        assert_memory_equal(first, other, n * sizeof *first);
        close_run(&r);
    }
}

/* Stopped anywhere and restored: the same sequences; but not with another size of micro-batch. */
static void resumed(void **state) {
    (void)state;
    static int32_t all[20000];
    static int32_t rest[20000];
    struct run r;
    struct run t;
    struct ax_loader_state st;
    open_run(&r, AX_PACK_FIT, BATCH);
    const size_t n = take(r.loader, all, 20000);
    size_t from = 0;
    for (int64_t stop = 0; from < n; stop++) {
        int64_t passed;
        ax_loader_start_epoch(r.loader, 0);
        assert_ok(ax_loader_skip(r.loader, stop, &passed));
        ax_loader_save(r.loader, &st);
        if (stop % 5 == 0) {
            open_run(&t, AX_PACK_FIT, BATCH);
            assert_ok(ax_loader_restore(t.loader, &st));
            assert_int_equal(take(t.loader, rest, 20000), n - from);
            assert_memory_equal(all + from, rest, (n - from) * sizeof *all);
            close_run(&t);
        }
        while (all[from++] >= 0)
            ;
    }
    open_run(&t, AX_PACK_FIT, BATCH + 1);
    assert_error(ax_loader_restore(t.loader, &st), AX_ERR_DATA, "cannot resume the data");
    close_run(&t);
    /* the same examples, but not joined: another fingerprint */
    const uint64_t fingerprint = r.examples.fingerprint;
    r.corpus.refs[2].joined = 0;
    struct ax_corpus_source other = {.chunk = CHUNK, .shuffle = true, .seed = 3};
    struct ax_example_source examples;
    ax_corpus_source_init(&other, &r.corpus, &examples);
    assert_true(examples.fingerprint != fingerprint);
    ax_corpus_source_free(&other);
    close_run(&r);
}

/* ---- streams ---- */

static void streamed(void **state) {
    (void)state;
    for (int64_t buffer = 1; buffer < 60; buffer += 29) {
        struct ax_stream_entry entries[2] = {{.format = &group_format}, {.format = &group_format}};
        const char *paths[] = {put_groups("a.jsonl", 0, 100), put_groups("b.jsonl", 100, N_GROUPS)};
        struct ax_stream *stream;
        struct ax_example_source source;
        struct ax_source_place place = {0};
        struct ax_source_place middle = {0};
        struct ax_corpus c = {0};
        struct ax_corpus half = {0};
        struct ax_corpus report_of;
        struct ax_corpus_report report;
        int seen[N_GROUPS];
        int all[N_GROUPS] = {0};
        int want[N_GROUPS];
        const struct ax_length_rule rule = {.min = 4, .max = 28};
        for (int i = 0; i < 2; i++)
            assert_ok(ax_rows_open(&entries[i].rows, &(struct ax_rows_options){.path = paths[i]}));
        assert_ok(ax_stream_open(&stream, &(struct ax_stream_options){.entries = entries,
                                                                      .n = 2,
                                                                      .buffer = buffer,
                                                                      .shuffle = true,
                                                                      .rule = rule,
                                                                      .threads = 2}));
        ax_stream_source(stream, &source);
        int64_t chunk = 0;
        for (;; chunk++) {
            c.n = 0;
            if (chunk == 2)
                middle = place;
            assert_ok(source.chunk(source.ctx, 0, chunk, place, &c, &place));
            if (c.n == 0)
                break;
            check_whole(&c, seen);
            assert_int_equal(c.sets[0].n, c.n); /* what was dropped is gone */
            assert_true((int64_t)c.n < buffer + GROUP_MAX);
            for (int id = 0; id < N_GROUPS; id++)
                all[id] += seen[id];
            if (chunk == 2) {
                half.n = 0;
                for (size_t i = 0; i < c.n; i++)
                    assert_ok(ax_corpus_add(&half, c.refs[i]));
            }
        }
        build(&report_of, &(struct ax_corpus_options){.rule = rule}, &report);
        check_whole(&report_of, want);
        assert_memory_equal(all, want, sizeof all);
        assert_int_equal(ax_stream_report(stream)->too_long, report.too_long);
        assert_int_equal(ax_stream_report(stream)->too_short, report.too_short);
        /* from its place again */
        c.n = 0;
        assert_ok(source.chunk(source.ctx, 0, 2, middle, &c, &place));
        assert_int_equal(c.n, half.n);
        assert_memory_equal(c.refs, half.refs, c.n * sizeof *c.refs);
        ax_corpus_free(&report_of);
        ax_corpus_free(&half);
        ax_corpus_free(&c);
        ax_stream_close(stream);
        for (int i = 0; i < 2; i++)
            ax_rows_close(entries[i].rows);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cached),       cmocka_unit_test(filtered),
        cmocka_unit_test(shuffled),     cmocka_unit_test(sharded_and_split),
        cmocka_unit_test(deduplicated), cmocka_unit_test(packed_by_hand),
        cmocka_unit_test(never_split),  cmocka_unit_test(fit_as_the_slow_way),
        cmocka_unit_test(spilled),      cmocka_unit_test(spilled_by_hand),
        cmocka_unit_test(loaded),       cmocka_unit_test(resumed),
        cmocka_unit_test(streamed),
    };
    return cmocka_run_group_tests(tests, make_set, free_set);
}

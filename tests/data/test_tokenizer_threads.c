/* One constant tokenizer, many threads: the same ids as alone. Meant for the thread sanitizer too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/threads.h"
#include "tests/data/random_text.h"
#include "tests/data/tokenizer_case.h"

enum { THREADS = 4, TEXTS = 150, SIZE = 400 };

static const char model[] =
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"t\":3,\"h\":4,\"e\":5,"
    "\"th\":6,\"the\":7,\"1\":8,\"2\":9,\"Ġ\":10,\"Ã\":11,\"©\":12,\"Ã©\":13,\"s\":14,\"Ġthe\":15},"
    "\"merges\":[\"t h\",\"th e\",\"a b\",\"Ã ©\",\"Ġ the\"]},\"normalizer\":{\"type\":\"NFC\"},"
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{"
    "\"Regex\":\"\\\\d+|\\\\s?\\\\w+\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\","
    "\"add_prefix_space\":false,\"use_regex\":false}]},\"decoder\":{\"type\":\"ByteLevel\"},"
    "\"added_tokens\":[{\"content\":\"<|x|>\",\"special\":true}]}";

struct job {
    const struct ax_tokenizer *t;
    uint64_t seed;
    uint64_t sum; /* over all ids and decoded bytes */
};

static enum ax_status work(void *arg) {
    struct job *job = arg;
    struct text_rng r = {.key = {.seed = job->seed}};
    struct ax_encoding e = {0};
    struct ax_buf text = {0};
    enum ax_status st = AX_OK;
    for (int k = 0; k < TEXTS && st == AX_OK; k++) {
        char s[SIZE];
        const struct ax_encode_options opt = {.spans = k % 2};
        size_t len = random_text(&r, s, sizeof s);
        e.n = text.len = 0;
        st = ax_tokenizer_encode(job->t, s, len, &opt, &e);
        if (st == AX_OK)
            st = ax_tokenizer_decode(job->t, e.ids, e.n, false, &text);
        for (size_t i = 0; i < e.n; i++)
            job->sum = job->sum * 31 + (uint64_t)e.ids[i];
        for (size_t i = 0; i < text.len; i++)
            job->sum = job->sum * 31 + (unsigned char)text.data[i];
    }
    ax_encoding_free(&e);
    ax_buf_free(&text);
    return st;
}

static void threads_agree(void **state) {
    (void)state;
    struct ax_tokenizer *t, *alone;
    struct ax_worker workers[THREADS];
    struct job jobs[THREADS], check[THREADS];
    MUST(ax_tokenizer_parse(&t, "t", model, strlen(model)));
    MUST(ax_tokenizer_parse(&alone, "t", model, strlen(model)));
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (struct job){t, (uint64_t)i / 2, 0}; /* pairs have the same texts */
        MUST(ax_worker_start(&workers[i], work, &jobs[i]));
    }
    for (int i = 0; i < THREADS; i++) {
        MUST(ax_worker_join(&workers[i]));
        check[i] = (struct job){alone, (uint64_t)i / 2, 0};
        MUST(work(&check[i]));
        assert_true(jobs[i].sum != 0 && jobs[i].sum == check[i].sum);
    }
    assert_true(jobs[0].sum != jobs[2].sum);
    ax_tokenizer_free(t);
    ax_tokenizer_free(alone);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* `axtrain grpo` on the tiny llama, and what a run has left. Include after cmocka.h. */
#ifndef AX_TESTS_CMD_GRPO_CASE_H
#define AX_TESTS_CMD_GRPO_CASE_H

#include <sys/stat.h>

#include "base/hash/hash.h"
#include "base/text/json.h"
#include "tests/cmd/program_case.h"
#include "tests/data/scratch.h"
#include "tests/golden_files.h"

static char said[1 << 16];

static inline void clear(const char *name) {
    assert_int_equal(ax_remove_tree(in_scratch(name)), AX_OK);
}

/* A configuration on the tiny llama, without data ranks' or steps' keys; its path. */
static inline const char *configure(const char *trl, const char *more) {
    static char path[128];
    struct ax_buf b = {0}, rows = {0};
    for (int i = 0; i < 40; i++)
        assert_int_equal(
            ax_buf_printf(
                &rows,
                "{\"prompt\": \"What is after %d%.*s?\", \"answer\": %d, \"odd\": \"\\u0000\", "
                "\"tests\": [\"assert answer\"]}\n",
                i, i % 7, " or so", i + 1),
            AX_OK);
    put_bytes("prompts.jsonl", rows.data, rows.len);
    ax_buf_free(&rows);
    assert_int_equal(ax_buf_printf(&b,
                                   "base_model: %s\nrl: grpo\ntrl:\n  num_generations: 4\n"
                                   "  max_completion_length: 10\n  reward_funcs: ['format:e']\n%s"
                                   "dataset_prepared_path: %s/cache\ndatasets:\n"
                                   "  - path: %s/prompts.jsonl\nsequence_len: 64\n"
                                   "learning_rate: 1e-3\nlr_scheduler: constant\nfloat32: true\n"
                                   "val_set_size: 0\nmax_steps: 4\nlogging_steps: 1\n"
                                   "save_steps: 1\n%s",
                                   golden_path("models/llama"), trl, scratch, scratch, more),
                     AX_OK);
    snprintf(path, sizeof path, "%s", put_bytes("c.yaml", b.data, b.len));
    ax_buf_free(&b);
    return path;
}

static inline void train(const char *out, const char *config, const char *more) {
    if (run(said, sizeof said, "grpo '%s' output_dir='%s/%s' --quiet %s", config, scratch, out,
            more) != 0)
        fail_msg("%s: %s", out, said);
}

/* The content of the page's first block in a language. */
static inline void write_block(const char *page, const char *language, const char *name) {
    char fence[32];
    snprintf(fence, sizeof fence, "```%s\n", language);
    const char *from = strstr(page, fence);
    assert_non_null(from);
    from += strlen(fence);
    put_bytes(name, from, (size_t)(strstr(from, "```") - from));
}

/* A program that rewards the letter e, and in a call while the file "kill" is there, once, sends a signal to the process
 * that is `up` levels above it: 2 is the rank that rewards, 3 its launcher. As an option. */
static inline void put_judge(const char *signal, int up, int call, char *option, size_t size) {
    static const char judge[] =
        "#!/usr/bin/env python3\n"
        "import json, os, signal, sys\n"
        "calls = 0\n"
        "for line in sys.stdin:\n"
        "    calls += 1\n"
        "    if calls == %d and os.path.exists('%s/kill'):\n"
        "        os.remove('%s/kill')\n"
        "        pid = os.getpid()\n"
        "        for level in range(%d):\n"
        "            pid = int(open('/proc/%%d/stat' %% pid).read().rsplit(')', 1)[1].split()[1])\n"
        "        os.kill(pid, signal.%s)\n"
        "    print(json.dumps({'rewards': [float('e' in c) for c in "
        "json.loads(line)['completions']]}), flush=True)\n";
    char text[1000];
    (void)snprintf(text, sizeof text, judge, call, scratch, scratch, up, signal);
    (void)snprintf(option, size, "trl.reward_funcs=\"['%s']\"", put_text("judge", text));
    assert_int_equal(chmod(in_scratch("judge"), 0700), 0);
}

static inline char *read_text(const char *folder, const char *name) {
    char path[256], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/%s/%s", scratch, folder, name);
    if (ax_read_file(path, 1 << 24, &text, &n) != AX_OK)
        fail_msg("%s", ax_error_text());
    return text;
}

static inline uint64_t hash_of(const char *folder, const char *name) {
    char path[256], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/%s/%s", scratch, folder, name);
    assert_int_equal(ax_read_file(path, 1 << 24, &text, &n), AX_OK);
    const uint64_t hash = ax_hash64(text, n, 0);
    ax_free(text);
    return hash;
}

static inline void same_completions(const char *a, const char *b) {
    char *x = read_text(a, "completions.jsonl"), *y = read_text(b, "completions.jsonl");
    assert_true(strlen(x) > 1000);
    if (strcmp(x, y) != 0)
        fail_msg("%s and %s have sampled different completions", a, b);
    ax_free(x);
    ax_free(y);
}

/* The numbers of a key in metrics.jsonl, one per step (or evaluation) that has it. */
static inline int numbers(const char *folder, const char *key, double *values, int most) {
    const char *of = strncmp(key, "eval_", 5) == 0 ? "eval_seconds" : "grad_norm";
    char *text = read_text(folder, "metrics.jsonl"), *rest = text;
    int n = 0;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        json_t *v = json_loads(line, JSON_ALLOW_NUL, NULL);
        const json_t *x = json_object_get(v, key);
        if (json_is_number(x) && json_object_get(v, of) && n < most)
            values[n++] = json_number_value(x);
        json_decref(v);
    }
    ax_free(text);
    return n;
}

#endif

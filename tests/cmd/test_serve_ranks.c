/* `generate`, `chat` and `eval` on processes: what one rank prints, once. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <sys/wait.h>

#include "tests/cmd/chat_case.h"
#include "tests/cmd/program_case.h"
#include "tests/cmd/experts_model.h"

static char out[1 << 18], one[1 << 18];

static void has(const char *part) {
    if (!strstr(out, part))
        fail_msg("\"%s\" lacks \"%s\"", out, part);
}

/* Without the log's lines. */
static char *only_text(char *text) {
    char *info = strstr(text, "info ");
    if (info)
        *info = '\0';
    return text;
}

/* Lines that are an error's, of a rank or the launcher. */
static int errors(void) {
    int n = 0;
    for (const char *at = out; *at; at += strcspn(at, "\n"), at += *at == '\n')
        n += strncmp(at, "error ", 6) == 0 || strncmp(at, "[1] error ", 10) == 0;
    return n;
}

static int count(const char *part) {
    int n = 0;
    for (const char *at = out; (at = strstr(at, part)) != NULL; at++)
        n++;
    return n;
}

static const struct {
    int n;
    const char *mesh;
    bool exact; /* every rank computes what one does */
} meshes[] = {
    {2, "", true},
    {2, "--mesh tp=2", false},
    {2, "--mesh dp_shard=2", true},
    {4, "--mesh tp=2,dp_replicate=2", false},
};
enum { N_MESHES = sizeof meshes / sizeof *meshes };

/* Numbers may differ by rounding; times and sizes by anything. */
static void same_json(const json_t *a, const json_t *b, bool exact, const char *where) {
    static const char *const free_keys[] = {
        "seconds",      "tokens_per_second",           "peak_rss_bytes",
        "arena_bytes",  "generated_tokens_per_second", "shared_tokens",
        "prompt_tokens"};
    const char *key;
    json_t *x;
    for (size_t i = 0; i < sizeof free_keys / sizeof *free_keys; i++)
        if (strcmp(where, free_keys[i]) == 0)
            return;
    if (json_typeof(a) != json_typeof(b))
        fail_msg("%s: other types", where);
    if (json_is_object(a)) {
        assert_int_equal(json_object_size(a), json_object_size(b));
        json_object_foreach((json_t *)(uintptr_t)a, key, x) {
            const json_t *y = json_object_get(b, key);
            if (!y)
                fail_msg("%s is missing", key);
            same_json(x, y, exact, key);
        }
    } else if (json_is_array(a)) {
        assert_int_equal(json_array_size(a), json_array_size(b));
        for (size_t i = 0; i < json_array_size(a); i++)
            same_json(json_array_get(a, i), json_array_get(b, i), exact, where);
    } else if (json_is_real(a)) {
        const double v = json_real_value(a), w = json_real_value(b);
        if (!(fabs(v - w) <= (exact ? 0 : 1e-5 * fmax(1, fabs(v)))))
            fail_msg("%s: %.17g, on one rank %.17g", where, w, v);
    } else if (!json_equal(a, b)) {
        fail_msg("%s differs", where);
    }
}

/* Each line of JSON in what was printed; other lines, which are of the log, do not count. */
static json_t *objects(const char *text) {
    json_t *all = json_array();
    json_error_t error;
    for (const char *at = text; *at;) {
        json_t *v =
            *at == '{' ? json_loads(at, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, &error) : NULL;
        at += v ? (size_t)error.position : strcspn(at, "\n");
        if (v)
            json_array_append_new(all, v);
        at += strspn(at, "\n");
    }
    return all;
}

/* The command prints the same objects on every mesh as on one rank. */
static void same_on_all(const char *words) {
    if (run(one, sizeof one, "%s", words) != 0)
        fail_msg("%s: %s", words, one);
    json_t *want = objects(one);
    assert_true(json_array_size(want) > 0);
    for (int i = 0; i < N_MESHES; i++) {
        if (run(out, sizeof out, "launch -n %d -- %s %s", meshes[i].n, words, meshes[i].mesh) != 0)
            fail_msg("%s %s: %s", words, meshes[i].mesh, out);
        json_t *got = objects(out);
        same_json(want, got, meshes[i].exact, words);
        json_decref(got);
    }
    json_decref(want);
}

static void put_prompts(void) {
    put_text("prompts.jsonl",
             "{\"prompt\": \"one two\"}\n{\"prompt\": \"The quick brown fox, and a long way on\"}\n"
             "{\"prompt\": \"a\"}\n{\"prompt\": \"one two three\"}\n{\"prompt\": \"x = 1\"}\n");
}

static void answers_are_those_of_one_rank(void **state) {
    (void)state;
    char words[4096], lora[600];
    put_prompts();
    snprintf(words, sizeof words,
             "generate '%s' --input '%s' --dtype float32 --threads 1 --json --max-new-tokens 9 ",
             model, in_scratch("prompts.jsonl"));
    char *more = words + strlen(words);
    snprintf(more, sizeof words - strlen(words),
             "--n 7 --batch 1 --temperature 1 --top-p 0.9 --seed 5"); /* several pieces */
    same_on_all(words);
    snprintf(lora, sizeof lora, "%.*s/lora/llama_r4", (int)(strstr(model, "/models/") - model),
             model);
    snprintf(more, 2048, "--adapter a='%s' --adapter b='%s_dora' --each-adapter --stop s", lora,
             lora);
    same_on_all(words);
    snprintf(words, sizeof words,
             "generate '%s' --prompt 'one, two' --dtype float32 --threads 1 --json --n 4 "
             "--max-new-tokens 6",
             make_experts());
    same_on_all(words);
    json_t *want = objects(one);
    assert_int_equal(run(out, sizeof out, "launch -n 2 -- %s --mesh tp=2,ep=2", words), 0);
    json_t *got = objects(out);
    same_json(want, got, false, words);
    json_decref(want);
    json_decref(got);
}

/* Text of several prompts in their order; a prompt from standard input, which rank 0 has. */
static void rank_0_reads_and_prints(void **state) {
    (void)state;
    char words[1024];
    put_prompts();
    snprintf(words, sizeof words, "'%s' --dtype float32 --threads 1 --max-new-tokens 9", model);
    assert_int_equal(
        run(one, sizeof one, "generate %s --input '%s'", words, in_scratch("prompts.jsonl")), 0);
    only_text(one);
    for (int i = 0; i < N_MESHES; i++) {
        const char *in = put_text("in.txt", "one two\n");
        assert_int_equal(run(out, sizeof out, "launch -n %d -- generate %s %s --input '%s'",
                             meshes[i].n, words, meshes[i].mesh, in_scratch("prompts.jsonl")),
                         0);
        assert_string_equal(only_text(out), one);
        assert_int_equal(run(out, sizeof out, "launch -n %d -- generate %s %s <'%s'", meshes[i].n,
                             words, meshes[i].mesh, in),
                         0);
        const char *first = strchr(one, '\n') + 1; /* the same prompt, which is the file's first */
        const size_t n = strcspn(first, "\n");
        if (strncmp(out, first, n) != 0 || out[n] != '\n')
            fail_msg("%s: %s", meshes[i].mesh, out);
    }
}

static void put_records(void) {
    char text[2048] = "";
    for (int i = 0; i < 7; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "{\"messages\": [{\"role\": \"user\", \"content\": \"say %d, %.*s\"}, "
                 "{\"role\": \"assistant\", \"content\": \"no %d #### %d\"}]}\n",
                 i, 1 + 3 * i, "and many other words", i, i);
    put_text("records.jsonl", text);
}

static void figures_are_those_of_one_rank(void **state) {
    (void)state;
    char words[2048];
    static const char *const ways[] = {
        "--per-row", "--json --task final-answer --max-new-tokens 5 --batch 3",
        "--json --task final-answer --max-new-tokens 5 --samples 3 --pass-at 1,2"};
    put_records();
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        snprintf(words, sizeof words, "eval '%s' --data '%s' --threads 1 %s", model,
                 in_scratch("records.jsonl"), ways[i]);
        same_on_all(words);
    }
}

/* For the program in place of lm-evaluation-harness (tests/cmd/harness). */
static void put_task(const char *name, const char *more) {
    char text[1024];
    snprintf(text, sizeof text, "task: %.*s\ndataset_kwargs: {data_files: {test: %s}}\n%s\n",
             (int)strcspn(name, "."), name, in_scratch("rows.jsonl"), more);
    put_text(name, text);
}

static void put_tasks(void) {
    char rows[4096] = "";
    for (int i = 0; i < 11; i++)
        snprintf(rows + strlen(rows), sizeof rows - strlen(rows),
                 "{\"q\": \"Is it %.*s?\", \"c\": [\"no\", \"yes, yes\", \"so\"], \"a\": %d}\n",
                 1 + i, "red or green or what", i % 3);
    put_text("rows.jsonl", rows);
    put_task("choice.yaml", "output_type: multiple_choice");
    put_task("sample.yaml", "output_type: generate_until\ngeneration_kwargs: {\"until\": [\"e\"], "
                            "\"max_gen_toks\": 6, \"do_sample\": true, \"top_k\": 9}");
}

/* Task files: figures, and the file of single records, which rank 0 writes. */
static void tasks_are_those_of_one_rank(void **state) {
    (void)state;
    char words[2048], *a, *b, log[160];
    size_t n, m;
    put_tasks();
    setenv("PYTHONPATH", "tests/cmd/harness", 1);
    setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
    snprintf(log, sizeof log, "%s", in_scratch("log.jsonl"));
    snprintf(words, sizeof words,
             "eval '%s' --task '%s/choice.yaml,%s/sample.yaml' --dtype float32 --threads 1 --json "
             "--batch 4 --log-samples '%s'",
             model, scratch, scratch, log);
    same_on_all(words); /* the last mesh has written the file */
    assert_int_equal(ax_read_file(log, 1 << 20, &a, &n), AX_OK);
    assert_int_equal(run(out, sizeof out, "%s", words), 0);
    assert_int_equal(ax_read_file(log, 1 << 20, &b, &m), AX_OK);
    json_t *want = objects(b), *got = objects(a);
    assert_true(json_array_size(want) > 11);
    same_json(want, got, false, "records");
    json_decref(want);
    json_decref(got);
    ax_free(a);
    ax_free(b);
}

/* ---- chat ---- */

static void conversations_are_those_of_one_rank(void **state) {
    (void)state;
    char path[160], *text, *again;
    size_t n;
    snprintf(path, sizeof path, "%s", in_scratch("saved.jsonl"));
    char lines[1024];
    snprintf(lines, sizeof lines,
             "hi there\n/system be brief\nand again\n\nmore\n/save %s\n/nonsense\n\xff\nlast",
             path);
    put_text("lines", lines);
    const char *words = "--dtype float32 --max-new-tokens 9 --temperature 1 --seed 3 --threads 1";
    assert_int_equal(run(one, sizeof one, "chat '%s' %s <'%s'", model, words, in_scratch("lines")),
                     0);
    assert_int_equal(ax_read_file(path, 1 << 16, &text, &n), AX_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(unlink(path), 0);
        assert_int_equal(run(out, sizeof out, "launch -n 2 -- chat '%s' %s %s <'%s'", model, words,
                             i == 0 ? "" : "--mesh tp=2", in_scratch("lines")),
                         0);
        assert_string_equal(out, one);
        assert_int_equal(ax_read_file(path, 1 << 16, &again, &n), AX_OK);
        assert_string_equal(again, text);
        ax_free(again);
    }
    ax_free(text);
    assert_int_equal(run(out, sizeof out, "launch -n 2 -- chat '%s' %s <'%s'", model, words,
                         in_scratch("lines")),
                     0);
    assert_int_equal(count("unknown command /nonsense"), 1);
    assert_int_equal(count("not UTF-8"), 1);
}

/* A signal to the launcher reaches all: it stops the reply, not the chat. */
static void an_interrupt_stops_all(void **state) {
    (void)state;
    static struct chat c;
    int in[2], output[2], status;
    make_long_model();
    assert_true(pipe2(in, O_CLOEXEC) == 0 && pipe2(output, O_CLOEXEC) == 0);
    c.pid = fork();
    if (c.pid == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(output[1], STDOUT_FILENO);
        execl(getenv("AX_TEST_BIN"), "axtrain", "launch", "-n", "2", "--", "chat", long_model,
              "--dtype", "float32", "--max-new-tokens", "60000", "--context", "70000", "--threads",
              "1", "--temperature", "0", (char *)NULL); /* no end token by chance */
        _exit(127);
    }
    close(in[0]);
    close(output[1]);
    c.in = in[1];
    c.out = output[0];
    say(&c, "chat\n");
    while (c.len < 20) {
        const ssize_t n = read(c.out, c.text + c.len, 64);
        assert_true(n > 0);
        c.len += (size_t)n;
    }
    assert_int_equal(kill(c.pid, SIGINT), 0);
    assert_true(hear(&c, "[stopped]"));
    say(&c, "/help\n");
    assert_true(hear(&c, "Ctrl-D         quit"));
    close(c.in);
    assert_false(hear(&c, "\x01never"));
    assert_int_equal(waitpid(c.pid, &status, 0), c.pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(c.out);
}

/* ---- mistakes ---- */

static void mistakes_are_said_once(void **state) {
    (void)state;
    char lines[512];
    static const struct {
        const char *words;
        int code;
        const char *text;
    } cases[] = {
        {"generate '%s' --mesh pp=2 --prompt a", 2, "Nearest: pp 1 and cp 1."},
        {"eval '%s' --mesh cp=2 --data /no/such", 2, "Nearest: pp 1 and cp 1."},
        {"generate '%s' --mesh tp=3 --prompt a", 2, "does not equal the number of ranks, 2"},
        {"generate '%s' --mesh tp=2,x=1 --prompt a", 2, "generate: \"x=1\" is not a mesh size"},
        {"chat '%s' --mesh dp_replicate=2", 2, "which data ranks cannot share. Nearest: tp 2."},
        {"generate '%s' --input /no/such", 1, "/no/such"},
        {"generate '%s/absent' --prompt a", 2, "absent"},
        {"eval '%s' --data /no/such", 3, "/no/such"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(lines, sizeof lines, cases[i].words, model);
        const int code = run(out, sizeof out, "launch -n 2 -- %s", lines);
        if (code != cases[i].code || count(cases[i].text) != 1)
            fail_msg("%s: %d: %s", lines, code, out);
        if (errors() != 2) /* the other is the launcher's */
            fail_msg("%s", out);
    }
    assert_int_equal(run(out, sizeof out, "generate '%s' --mesh tp=2 --prompt a", model), 2);
    has("does not equal the number of ranks, 1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_those_of_one_rank),
        cmocka_unit_test(rank_0_reads_and_prints),
        cmocka_unit_test(figures_are_those_of_one_rank),
        cmocka_unit_test(tasks_are_those_of_one_rank),
        cmocka_unit_test(conversations_are_those_of_one_rank),
        cmocka_unit_test(an_interrupt_stops_all),
        cmocka_unit_test(mistakes_are_said_once),
    };
    return cmocka_run_group_tests(tests, setup, scratch_remove);
}

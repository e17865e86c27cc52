/* What goes wrong on one rank, or on all, is said once, also where no launcher of ours collects what
 * ranks print: under srun, torchrun, mpirun. Ranks are started by their variables. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/text/json.h"
#include "base/rng.h"
#include "parallel/job/net.h"
#include "tests/cmd/program_case.h"
#include "tests/data/scratch.h"
#include "tests/golden_files.h"
#include "tests/skip.h"

enum { RANKS = 3, MANY = 70 };

static char out[1 << 16];

/* Lines that are an error's. */
static int errors(void) {
    int n = 0;
    for (const char *at = out; *at; at += strcspn(at, "\n"), at += *at == '\n')
        n += strncmp(at, "error ", 6) == 0;
    return n;
}

static void has(const char *part) {
    if (!strstr(out, part))
        fail_msg("\"%s\" lacks \"%s\"", out, part);
}

/* Runs the words as RANKS ranks, of which the odd one, 1, starts in the folder `odd` with more
 * variables. What all print is in `out`, then "rank R: CODE" for each. */
static void start(const char *odd, const char *variables, const char *words) {
    static char script[8192];
    char bin[4096];
    const char *name = getenv("AX_TEST_BIN");
    int fd, port;
    size_t n = 0;
    assert_non_null(realpath(name ? name : "build/axtrain", bin));
    assert_int_equal(ax_net_listen("127.0.0.1", 0, 1, &fd, &port), AX_OK);
    close(fd);
    for (int r = 0; r < RANKS; r++)
        n += (size_t)snprintf(script + n, sizeof script - n,
                              "(cd '%s/%s' && env %s RANK=%d WORLD_SIZE=%d LOCAL_RANK=%d "
                              "LOCAL_WORLD_SIZE=%d MASTER_ADDR=127.0.0.1 MASTER_PORT=%d '%s' %s; "
                              "echo \"rank %d: $?\" >'%s/code%d') 2>&1 & ",
                              scratch, r == 1 ? odd : "all", r == 1 ? variables : "", r, RANKS, r,
                              RANKS, port, bin, words, r, scratch, r);
    snprintf(script + n, sizeof script - n, "wait; cat '%s'/code?", scratch);
    FILE *p = popen(script, "r");
    assert_non_null(p);
    out[fread(out, 1, sizeof out - 1, p)] = '\0';
    pclose(p);
}

/* One message with `text`, and the codes of the ranks. */
static void said_once(const char *text, const int codes[RANKS]) {
    char line[64];
    if (errors() != 1)
        fail_msg("not one message: %s", out);
    has(text);
    for (int r = 0; r < RANKS; r++) {
        snprintf(line, sizeof line, "rank %d: %d\n", r, codes[r]);
        has(line);
    }
}

/* A folder with the llama as "m" under the name, or without. */
static void make_place(const char *name, bool with_model) {
    char path[128], *real;
    make_folder(name);
    snprintf(path, sizeof path, "%s/m", name);
    real = realpath(golden_path("models/llama"), NULL);
    if (with_model && !ax_path_exists(in_scratch(path)))
        assert_int_equal(symlink(real, in_scratch(path)), 0);
    free(real);
}

static const char *configure(void) {
    static char path[128];
    char text[4096] = "";
    struct ax_buf b = {0};
    for (int i = 0; i < 24; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "{\"text\": \"say %d, %.*s\"}\n",
                 i, 1 + i % 17, "abcdefghijklmnopq");
    put_text("rows.jsonl", text);
    assert_int_equal(
        ax_buf_printf(&b,
                      "base_model: m\noutput_dir: %s/out\ndataset_prepared_path: %s/cache\n"
                      "datasets:\n  - path: %s/rows.jsonl\n    type: completion\n"
                      "sequence_len: 64\nlearning_rate: 1e-3\nmicro_batch_size: 1\n"
                      "float32: true\nmax_steps: 1\nddp_timeout: 60\n",
                      scratch, scratch, scratch),
        AX_OK);
    snprintf(path, sizeof path, "%s", put_bytes("c.yaml", b.data, b.len));
    ax_buf_free(&b);
    return path;
}

/* The llama with a weight that is not a number, as "m" in the folder "nan". */
static void make_nan(void) {
    static const char *const same[] = {"config.json", "tokenizer.json", "tokenizer_config.json"};
    char path[100], *data, to[64];
    size_t n;
    make_folder("nan/m");
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        snprintf(path, sizeof path, "models/llama/%s", same[i]);
        assert_int_equal(ax_read_file(golden_path(path), 1 << 24, &data, &n), AX_OK);
        snprintf(to, sizeof to, "nan/m/%s", same[i]);
        put_bytes(to, data, n);
        ax_free(data);
    }
    assert_int_equal(
        ax_read_file(golden_path("models/llama/model.safetensors"), 1 << 26, &data, &n), AX_OK);
    memset(data + n - n / 2, 0xff, n / 2); /* in every format a NaN */
    put_bytes("nan/m/model.safetensors", data, n);
    ax_free(data);
}

static void training_fails_once(void **state) {
    (void)state;
    static const struct {
        const char *odd, *variables, *text;
        int code;
    } cases[] = {
        {"bare", "", "error rank 1: base_model", 2},
        {"nan", "", "error rank 1: base_model (m): rank 1 on ", 3},
        {"all", "AX_FAULT=fsync:1:enospc", "rank 1: /", 7}, /* after what the first to leave adds */
        {"all", "AX_FAULT=fsync:1:kill", "rank 1", 137},
    };
    char words[256];
    const char *config = configure();
    make_place("all", true);
    make_place("bare", false);
    make_nan();
    snprintf(words, sizeof words, "sft '%s' --quiet", config);
    start("all", "", words); /* prepares the data */
    has("rank 0: 0\nrank 1: 0\nrank 2: 0\n");

    snprintf(words, sizeof words, "sft '%s' --quiet no_such_key=2", config);
    start("all", "", words);
    said_once("unknown key \"no_such_key\"", (int[]){2, 2, 2});
    assert_int_equal(symlink(config, in_scratch("all/c.yaml")), 0);
    start("bare", "", "sft c.yaml --quiet"); /* rank 1 has none */
    said_once("error rank 1: c.yaml: no such file", (int[]){4, 2, 4});
    put_text("bare/c.yaml", "base_model: m\noutput_dir: out\ndatasets:\n  - path: rows.jsonl\n"
                            "    type: completion\nsequence_len: 64\nlearning_rate: 1e-3\n"
                            "micro_batch_size: 1\nnum_epochs: 1\n");
    start("bare", "", "sft c.yaml --quiet");
    said_once("was started with another configuration than rank", (int[]){2, 2, 2});

    snprintf(words, sizeof words, "sft '%s' --quiet tensor_parallel_size=2", config);
    start("all", "", words);
    said_once("Nearest: dp_shard 1 with 2 ranks", (int[]){2, 2, 2});

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(words, sizeof words, "sft '%s' --quiet output_dir='%s/out%zu'", config, scratch,
                 i);
        start(cases[i].odd, cases[i].variables, words);
        said_once(cases[i].text, (int[]){4, cases[i].code, 4});
    }
}

/* Copies a file of the goldens, with a byte changed in its middle if `changed`. */
static void copy_file(const char *from, const char *to, bool changed) {
    char *data;
    size_t n;
    assert_int_equal(ax_read_file(golden_path(from), 1 << 26, &data, &n), AX_OK);
    data[n / 2] = (char)(data[n / 2] ^ (changed ? 1 : 0));
    put_bytes(to, data, n);
    ax_free(data);
}

/* The teacher's adapter on the model "m". */
static void put_teacher(const char *place) {
    char path[512], to[128];
    snprintf(path, sizeof path, "%s", golden_path("lora/llama_r4/adapter_config.json"));
    json_t *v = json_load_file(path, 0, NULL);
    assert_int_equal(json_object_set_new(v, "base_model_name_or_path", json_string("m")), 0);
    snprintf(to, sizeof to, "%s/k/adapter_config.json", place);
    assert_int_equal(json_dump_file(v, in_scratch(to), 0), 0);
    json_decref(v);
}

/* More files than ranks compare one by one. */
static void put_many(const char *place, const char *changed) {
    char to[128], row[128];
    for (int i = 0; i < MANY; i++) {
        snprintf(to, sizeof to, "many/%02d.jsonl", i);
        snprintf(row, sizeof row, "{\"text\": \"say %s%d\"}\n", strcmp(changed, to) == 0 ? "-" : "",
                 i);
        snprintf(to, sizeof to, "%s/many/%02d.jsonl", place, i);
        put_text(to, row);
    }
}

/* All that a run reads, below `place`; `changed` names what is another one there. */
static void make_view(const char *place, const char *changed) {
    static const struct {
        const char *from, *to;
    } files[] = {{"models/llama/config.json", "m/config.json"},
                 {"models/llama/config.json", "c/config.json"},
                 {"models/llama/tokenizer.json", "m/tokenizer.json"},
                 {"models/llama/tokenizer_config.json", "m/tokenizer_config.json"},
                 {"models/llama/model.safetensors", "m/model.safetensors"},
                 {"lora/llama_r4/adapter_config.json", "a/adapter_config.json"},
                 {"lora/llama_r4/adapter_model.safetensors", "a/adapter_model.safetensors"},
                 {"lora/llama_r4/adapter_model.safetensors", "k/adapter_model.safetensors"}};
    static const char *const texts[][3] = {
        {"t.jinja", "{% for m in messages %}{{ m.content }};{% endfor %}",
         "{% for m in messages %}{{ m.content }}!{% endfor %}"},
        {"eval.jsonl", "{\"text\": \"say nothing\"}\n", "{\"text\": \"say anything\"}\n"}};
    static const char *const folders[] = {"m", "c", "a", "k", "many"};
    char to[128], rows[8192] = "";
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(to, sizeof to, "%s/%s", place, folders[i]);
        make_folder(to);
    }
    put_teacher(place);
    put_many(place, changed);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        /* JSON of which a byte is another one may be none: a space at its end does it, too */
        snprintf(to, sizeof to, "%s/%s", place, files[i].to);
        const bool other = strcmp(changed, files[i].to) == 0;
        copy_file(files[i].from, to, other && strstr(to, ".safetensors"));
        if (other && !strstr(to, ".safetensors")) {
            FILE *f = fopen(in_scratch(to), "a");
            assert_non_null(f);
            fputs(" ", f);
            fclose(f);
        }
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        snprintf(to, sizeof to, "%s/%s", place, texts[i][0]);
        put_text(to, texts[i][strcmp(changed, texts[i][0]) == 0 ? 2 : 1]);
    }
    for (int i = 0; i < 24; i++)
        snprintf(rows + strlen(rows), sizeof rows - strlen(rows),
                 "{\"messages\": [{\"role\": \"user\", \"content\": \"say %d\"}, {\"role\": "
                 "\"assistant\", \"content\": \"%c%d\"}]}\n",
                 i, i == 20 && strcmp(changed, "rows.jsonl") == 0 ? 'b' : 'a', i);
    snprintf(to, sizeof to, "%s/rows.jsonl", place);
    put_text(to, rows);
    /* nobody writes to it, and nobody may wait for it */
    snprintf(to, sizeof to, "%s/m/notes.json", place);
    assert_int_equal(unlink(in_scratch(to)) == 0 || errno == ENOENT, 1);
    assert_int_equal(mkfifo(in_scratch(to), 0600), 0);
}

/* A path behind which a rank sees something else is named before anything is trained. */
static void ranks_see_the_same(void **state) {
    (void)state;
    static const char *const meshes[] = {"", "dp_replicate_size=3", "context_parallel_size=3"};
    static const struct {
        const char *changed, *text;
    } cases[] = {
        {"", ""},
        {"m/model.safetensors", "base_model (m): rank 1 on "},
        {"m/config.json", "base_model (m): rank 1 on "},
        {"c/config.json", "base_model_config (c/config.json): rank 1 on "},
        {"m/tokenizer.json", "base_model (m): rank 1 on "},
        {"rows.jsonl", "datasets.0 (rows.jsonl): rank 1 on "},
        {"eval.jsonl", "test_datasets.0 (eval.jsonl, or a file before it): rank 1 on "},
        {"t.jinja", "chat_template_jinja (t.jinja): rank 1 on "},
        {"a/adapter_model.safetensors", "lora_model_dir (a): rank 1 on "},
        {"k/adapter_model.safetensors", "kd_teacher (k): rank 1 on "},
        {"many/09.jsonl", "datasets.1 (many/09.jsonl): rank 1 on "},
        {"many/65.jsonl", "test_datasets.0 (eval.jsonl, or a file before it): rank 1 on "},
        {"many/69.jsonl", "test_datasets.0 (eval.jsonl, or a file before it): rank 1 on "},
    };
    char config[2048], words[256];
    assert_int_equal(ax_remove_tree(in_scratch("all/m")), AX_OK); /* the others' link */
    snprintf(config, sizeof config,
             "base_model: m\nbase_model_config: c/config.json\noutput_dir: "
             "%s/seen\ndataset_prepared_path: cache\n"
             "datasets:\n  - path: rows.jsonl\n    type: chat_template\n"
             "  - path: many\n    type: completion\n"
             "test_datasets:\n  - path: eval.jsonl\n    type: completion\n"
             "chat_template_jinja: t.jinja\nadapter: lora\nlora_r: 4\nlora_alpha: 8\n"
             "lora_model_dir: a\nkd_teacher: k\nsequence_len: 48\nlearning_rate: "
             "1e-3\nmicro_batch_size: 1\n"
             "float32: true\nmax_steps: 1\nddp_timeout: 60\n",
             scratch);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        make_view("all", "");
        make_view("odd", cases[i].changed);
        put_text("all/c.yaml", config);
        put_text("odd/c.yaml", config);
        snprintf(words, sizeof words, "sft c.yaml --quiet %s", meshes[i % 3]);
        start("odd", "", words);
        if (i == 0)
            has("rank 0: 0\nrank 1: 0\nrank 2: 0\n");
        else
            said_once(cases[i].text, (int[]){4, 3, 4});
        assert_int_equal(ax_path_exists(in_scratch("seen/adapter_model.safetensors")), i == 0);
        assert_int_equal(ax_remove_tree(in_scratch("seen")), AX_OK);
    }
}

/* Two processes with the rank 1: while another one is awaited, both say so and from where, and rank 0
 * does; once the job runs, the second one does. */
static void a_rank_that_is_there_twice_is_named(void **state) {
    (void)state;
    char script[4096], bin[4096];
    const char *name = getenv("AX_TEST_BIN"), *config = configure();
    int fd, port;
    assert_non_null(realpath(name ? name : "build/axtrain", bin));
    make_place("all", true);
    for (int late = 0; late < 2; late++) {
        assert_int_equal(ax_net_listen("127.0.0.1", 0, 1, &fd, &port), AX_OK);
        close(fd);
        snprintf(script, sizeof script,
                 "cd '%s/all'; export WORLD_SIZE=%d LOCAL_WORLD_SIZE=%d MASTER_ADDR=127.0.0.1 "
                 "MASTER_PORT=%d; be() { RANK=$1 LOCAL_RANK=$1 timeout $3 '%s' sft '%s' --quiet "
                 "output_dir=twice%d max_steps=1000000 >'%s'/said$2 2>&1; echo \"$2: $?\" "
                 ">>'%s'/said$2; }; be 0 a %d & be 1 b %d & sleep %d; be 1 c 20; wait; cat "
                 "'%s'/said?",
                 scratch, late ? 2 : 3, late ? 2 : 3, port, bin, config, late, scratch, scratch,
                 late ? 6 : 20, late ? 6 : 20, late ? 3 : 0, scratch);
        FILE *p = popen(script, "r");
        assert_non_null(p);
        out[fread(out, 1, sizeof out - 1, p)] = '\0';
        pclose(p);
        has("c: 2\n");
        has(": this rank has already joined as rank 1 (host ");
        if (errors() != (late ? 2 : 3)) /* late: rank 0 says how it ended, too */
            fail_msg("%s", out);
        has(late ? "warn refused rank 1 (host " : "a: 2\nerror rank 1 (host ");
    }
}

/* What a machine chooses by its processor, rank 0's chooses for all. */
static void unlike_processors_compute_alike(void **state) {
    (void)state;
    static const char *const first[] = {"amx-emulated", "avx2"}, *const dtypes[] = {"bfloat16",
                                                                                    "float32"};
    char words[256], more[64];
    const char *config = configure();
    make_place("all", true);
    setenv("AXTRAIN_CPU", first[0], 1);
    if (run(out, sizeof out, "env") != 0) {
        unsetenv("AXTRAIN_CPU");
        skip_because("hardware, AVX-512 BF16");
    }
    for (int i = 0; i < 2; i++) {
        struct ax_json_doc doc;
        char folder[32];
        setenv("AXTRAIN_CPU", first[i], 1);
        snprintf(more, sizeof more, "AXTRAIN_CPU=%s", first[1 - i]);
        snprintf(folder, sizeof folder, "unlike%d", i);
        snprintf(words, sizeof words, "sft '%s' --quiet float32=false output_dir='%s/%s'", config,
                 scratch, folder);
        start("all", more, words);
        has("rank 0: 0\nrank 1: 0\nrank 2: 0\n");
        snprintf(folder, sizeof folder, "unlike%d/run.json", i);
        assert_int_equal(ax_json_load(&doc, in_scratch(folder), 1 << 20), AX_OK);
        assert_string_equal(json_string_value(json_object_get(doc.root, "compute_dtype")),
                            dtypes[i]);
        ax_json_free(&doc);
        static const char *const others[] = {
            "generate m --prompt a --max-new-tokens 2 --mesh dp_shard=3",
            "bench step --arch llama-tiny --seq 16 --steps 1 --mesh dp_shard=3"};
        for (int k = 0; k < 2; k++) {
            start("all", more, others[k]);
            has("rank 0: 0\nrank 1: 0\nrank 2: 0\n");
        }
    }
    unsetenv("AXTRAIN_CPU");
}

/* A signal to one rank stops all after the same step: rank 0 says so. */
static void a_stop_is_said_by_rank_0(void **state) {
    (void)state;
    char words[256];
    make_place("all", true);
    snprintf(words, sizeof words,
             "sft '%s' --quiet output_dir='%s/stopped' max_steps=100000 num_epochs=9000",
             configure(), scratch);
    start("all", "timeout --preserve-status -s USR1 5 env", words);
    said_once("error asked to stop after step ", (int[]){75, 75, 75});
}

static void answers_fail_once(void **state) {
    (void)state;
    start("all", "", "generate m --prompt a --mesh pp=3");
    said_once("Nearest: pp 1 and cp 1.", (int[]){2, 2, 2});
    start("all", "", "generate m --input /no/such");
    said_once("/no/such: cannot open", (int[]){1, 1, 1});
    start("all", "", "generate m --nonsense");
    said_once("--nonsense", (int[]){2, 2, 2});
    start("bare", "", "generate m --prompt a");
    said_once("error rank 1: m: ", (int[]){4, 2, 4});
    start("all", "", "generate m --prompt a --max-new-tokens 2");
    has("rank 0: 0\nrank 1: 0\nrank 2: 0\n");
    assert_int_equal(errors(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_fails_once),
        cmocka_unit_test(ranks_see_the_same),
        cmocka_unit_test(a_rank_that_is_there_twice_is_named),
        cmocka_unit_test(unlike_processors_compute_alike),
        cmocka_unit_test(a_stop_is_said_by_rank_0),
        cmocka_unit_test(answers_fail_once),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

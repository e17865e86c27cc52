/* Help, man page and completions, all made from the command table: that nothing is left out, that
 * the shells take the scripts, and what they complete. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/wait.h>

#include "ckpt/gguf/types.h"
#include "cmd/help/help.h"
#include "tests/data/scratch.h"

/* ---- running shells ---- */

/* The output of a shell command, which must succeed; each line ends with '|' in the result. */
static const char *shell(const char *command) {
    static char out[1 << 16];
    FILE *p = popen(command, "r");
    assert_non_null(p);
    const size_t n = fread(out, 1, sizeof out - 1, p);
    out[n] = '\0';
    const int status = pclose(p);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("%s: %d: %s", command, status, out);
    for (char *c = out; *c; c++)
        *c = *c == '\n' ? '|' : *c;
    return out;
}

static void put_script(const char *name,
                       enum ax_status (*put)(struct ax_buf *, const struct ax_command *)) {
    struct ax_buf b = {0};
    assert_ok(put(&b, ax_commands));
    put_bytes(name, b.data, b.len);
    ax_buf_free(&b);
}

/* ---- taking apart ---- */

static void details_come_apart(void **state) {
    (void)state;
    const char *cursor = "some words\n  --a N   first\n          and more\n  --b X, --c\n"
                         "          of both\n  -o F    end\nlast\n";
    static const struct {
        bool entry;
        const char *words, *text;
    } wanted[] = {{false, "", "some words"},
                  {true, "--a N", "first and more"},
                  {true, "--b X, --c", "of both"},
                  {true, "-o F", "end"},
                  {false, "", "last"}};
    struct ax_help_part part;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        assert_true(ax_help_next(&cursor, &part));
        assert_int_equal(part.entry, wanted[i].entry);
        assert_string_equal(part.words, wanted[i].words);
        assert_string_equal(part.text, wanted[i].text);
    }
    assert_false(ax_help_next(&cursor, &part));
}

static const struct ax_help_option *find(const struct ax_help_option *o, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (strcmp(o[i].name, name) == 0)
            return &o[i];
    fail_msg("there is no %s", name);
    return NULL;
}

/* The words of an option, "" if there are none. */
static const char *words_of(const char *command, const char *option) {
    static char words[1024];
    struct ax_help_option o[AX_HELP_MAX_OPTIONS];
    struct ax_buf text = {0};
    const int n = ax_help_options(ax_command_find(ax_commands, command), o);
    const struct ax_help_option *found = find(o, n, option);
    if (found->words)
        assert_ok(ax_help_put_words(&text, found->words));
    assert_true(text.len < sizeof words);
    snprintf(words, sizeof words, "%s", found->words ? text.data : "");
    ax_buf_free(&text);
    return words;
}

static void words_of_options(void **state) {
    (void)state;
    static const struct {
        const char *command, *option, *words;
    } all[] = {
        {"eval", "--dtype", "float32 bfloat16"},
        {"merge", "--dtype", "float32 bfloat16 float16"},
        {"bench", "--backend", "ref cpu cuda"},
        {"chat", "--device", "auto cuda cpu"},
        {"convert", "--quant", AX_GGUF_QUANTS},
        {"merge", "--quant", AX_GGUF_QUANTS},
        {"convert", "--to", "hf gguf"},
        {"convert", "--base", ""}, /* a model */
        {"check", "--schedule", "1f1b afab interleaved zero_bubble"},
        {"check", "--only", "threads packed accumulation recompute resume generation mesh kernels"},
        {"check", "--fp8", "tensorwise rowwise"},
        {"check", "--zero", "1 2 3"},
        {"check", "--base", "plain nf4 nf4-double int8 fp8 int4"},
        {"eval", "--score-by", "min product last"},
        {"eval", "--task", "final-answer reward prm"},
        {"launch", "--output", "rank0 all"},
        {"cache", "--kind", "prepared references gguf hub products sandbox leftover other"},
        {"plan", "--masters", "float32 bf16_remainder bf16_sr"},
        {"plan", "--moments", "float32 bfloat16 bfloat16_nearest int8"},
        {"problems", "--split", "train test"},
        {"generate", "--n", ""},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char want[256];
        snprintf(want, sizeof want, "%s", all[i].words);
        for (char *c = want; *c; c++)
            *c = *c == '|' ? ' ' : *c;
        if (strcmp(words_of(all[i].command, all[i].option), want) != 0)
            fail_msg("%s %s: %s", all[i].command, all[i].option,
                     words_of(all[i].command, all[i].option));
    }
    /* of some the first and last that must be there, and what must not */
    assert_non_null(strstr(words_of("quantize", "--scheme"), "int4 int4-int8"));
    assert_non_null(strstr(words_of("quantize", "--scheme"), "q4_k"));
    assert_null(strstr(words_of("quantize", "--scheme"), "mxfp4")); /* no file holds it */
    assert_non_null(strstr(words_of("check", "--qat"), "mxfp4"));
    assert_non_null(strstr(words_of("plan", "--hardware"), "h100-sxm-80"));
    assert_non_null(strstr(words_of("plan", "--arch"), "llama-3.1-8b"));
    assert_non_null(strstr(words_of("plan", "--optimizer"), "muon"));
    assert_non_null(strstr(words_of("eval", "--type"), "chat_template"));
    assert_null(strchr(words_of("eval", "--type"), '*'));
}

/* Where a value is described by words in capitals, files are offered if it may be one. */
static void options_that_take_files(void **state) {
    (void)state;
    static const struct {
        const char *command, *option;
        bool is;
    } all[] = {
        {"generate", "--adapter", true}, {"ckpt", "-o", true},         {"plan", "--model", true},
        {"eval", "--task", true},        {"plan", "--hardware", true}, {"bench", "--compare", true},
        {"template", "--file", true},    {"convert", "--base", true},  {"eval", "--type", false},
        {"merge", "--dtype", false},     {"chat", "--system", false},  {"plan", "--mesh", false}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct ax_help_option o[AX_HELP_MAX_OPTIONS];
        const int n = ax_help_options(ax_command_find(ax_commands, all[i].command), o);
        if (find(o, n, all[i].option)->is_file != all[i].is)
            fail_msg("%s %s", all[i].command, all[i].option);
    }
}

static void options_of_commands(void **state) {
    (void)state;
    struct ax_help_option o[AX_HELP_MAX_OPTIONS];
    int n = ax_help_options(ax_command_find(ax_commands, "generate"), o);
    assert_string_equal(find(o, n, "--top-p")->value, "X");
    assert_string_equal(find(o, n, "--top-p")->text,
                        "filters, applied in the same order as in transformers");
    assert_string_equal(find(o, n, "--chat")->value, "");
    assert_true(find(o, n, "--input")->is_file);
    assert_false(find(o, n, "--dtype")->is_file);
    n = ax_help_options(ax_command_find(ax_commands, "convert"), o);
    assert_string_equal(find(o, n, "--to")->value, "hf"); /* from the usage line */
    n = ax_help_options(ax_command_find(ax_commands, "report"), o);
    assert_true(find(o, n, "-o")->is_file);
    n = ax_help_options(ax_command_find(ax_commands, "config"), o);
    assert_string_equal(find(o, n, "--all")->name, "--all");
    for (int i = 0; i < n; i++)
        assert_string_not_equal(o[i].name, "--key"); /* stands for any key */
    char forms[AX_HELP_MAX_FORMS][24];
    assert_int_equal(ax_help_forms(ax_command_find(ax_commands, "check"), forms), 3);
    assert_string_equal(forms[1], "mesh");
    assert_int_equal(ax_help_forms(ax_command_find(ax_commands, "completion"), forms), 3);
    assert_int_equal(ax_help_forms(ax_command_find(ax_commands, "merge"), forms), 0);
    assert_true(ax_help_takes_config(ax_command_find(ax_commands, "sft")));
    assert_false(ax_help_takes_config(ax_command_find(ax_commands, "config")));
}

/* Every option in the table has a meaning, and every long line of help fits a terminal. */
static void the_table_is_whole(void **state) {
    (void)state;
    for (const struct ax_command *c = ax_commands; c->name; c++) {
        struct ax_help_option o[AX_HELP_MAX_OPTIONS];
        const int n = ax_help_options(c, o);
        assert_in_range(n, 1, AX_HELP_MAX_OPTIONS - 1);
        for (const char *line = c->details; *line; line += strcspn(line, "\n") + 1)
            if (strcspn(line, "\n") > 110) /* bytes: some characters are three */
                fail_msg("%s: too long: %.*s", c->name, (int)strcspn(line, "\n"), line);
        assert_int_equal(c->details[strlen(c->details) - 1], '\n');
        assert_true(c == ax_commands || strcmp(c[-1].name, c->name) < 0);
        assert_ptr_equal(ax_command_at(ax_commands, c->group, c->place), c); /* nobody else's */
        assert_true(c->place == 1 || ax_command_at(ax_commands, c->group, c->place - 1));
    }
}

static void the_overview_has_each_command_once(void **state) {
    (void)state;
    const char *bin = getenv("AX_TEST_BIN");
    assert_non_null(bin);
    char command[300];
    snprintf(command, sizeof command, "%s help", bin);
    const char *text = shell(command);
    for (const struct ax_command *c = ax_commands; c->name; c++) {
        char line[32];
        snprintf(line, sizeof line, "|  %-11s ", c->name);
        const char *at = strstr(text, line);
        assert_non_null(at);
        assert_null(strstr(at + 1, line));
    }
    /* what the program is for comes first, under its title */
    static const char *const training[] = {"sft", "dpo", "grpo", "ppo", "prm", "qat", "launch"};
    const char *title = strstr(text, "|Train:|"), *next = strstr(text, "|Look:|");
    assert_true(title && next && title < next);
    for (size_t i = 0; i < sizeof training / sizeof *training; i++) {
        char line[32];
        snprintf(line, sizeof line, "|  %-11s ", training[i]);
        const char *at = strstr(text, line);
        assert_true(at > title && at < next);
    }
    snprintf(command, sizeof command, "%s help sft | head -1", bin);
    assert_non_null(strstr(shell(command), "axtrain sft: fine-tune"));
}

static void wrong_names(void **state) {
    (void)state;
    static const struct {
        const char *given, *said;
    } all[] = {{"sfft", "did you mean `axtrain sft`"},
               {"gen", "did you mean `axtrain generate`"},
               {"rpeort", "did you mean `axtrain report`"},
               {"tran", "did you mean `axtrain train`"},
               {"conv", "did you mean `axtrain convert`"},
               {"learning_rate", "axtrain config help"},
               {"version", "here it is `axtrain --version`"},
               {"merge-lora", "here it is `axtrain merge`"},
               {"inference", "here it is `axtrain generate`"},
               {"xylophone", "`axtrain help` lists all commands"},
               {"c", "`axtrain help` lists all commands"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_error(ax_command_unknown(ax_commands, all[i].given), AX_ERR_CONFIG, all[i].said);
    assert_null(ax_command_nearest(ax_commands, "zz"));
}

/* ---- the man page ---- */

/* The first example in `page` is this one, with the escapes that the page needs. */
static void expect_example(const char *page, const char *example) {
    const char *at = strstr(page, "Example:\n.RS\n.nf\n");
    assert_non_null(at);
    at += strlen("Example:\n.RS\n.nf\n");
    for (; *example; example++) {
        at += *at == '\\';
        if (strncmp(at, *example == '"' ? "(dq" : example, *example == '"' ? 3 : 1) != 0)
            fail_msg("other example: %.80s", at);
        at += *example == '"' ? 3 : 1;
    }
    at += *at == '\n';
    assert_int_equal(strncmp(at, ".fi\n", 4), 0);
}

/* A paragraph for the usage, for the example, and for each run of words that are of no option. */
static void expect_paragraphs(const char *page, const struct ax_command *c) {
    const char *cursor = c->details, *end = strstr(page + 1, "\n.S");
    struct ax_help_part part;
    int want = 2, got = 0;
    bool entry = true;
    for (; ax_help_next(&cursor, &part); entry = part.entry)
        want += entry && !part.entry;
    for (const char *at = page; (at = strstr(at, "\n.PP\n")) != NULL && at < end; at++)
        got++;
    if (got != want)
        fail_msg("%s: %d paragraphs, not %d", c->name, got, want);
}

static void the_man_page_is_clean(void **state) {
    (void)state;
    struct ax_buf b = {0};
    char command[300];
    assert_ok(ax_help_man(&b, ax_commands));
    for (const struct ax_command *c = ax_commands; c->name; c++) {
        char head[48];
        snprintf(head, sizeof head, "\n.SS %s\n", c->name);
        assert_non_null(strstr(b.data, head));
        expect_example(strstr(b.data, head), c->example);
        expect_paragraphs(strstr(b.data, head), c);
    }
    assert_non_null(strstr(b.data, ".TP\n\\fB\\-\\-top\\-k\\fR N, \\fB\\-\\-top\\-p\\fR X"));
    put_bytes("axtrain.1", b.data, b.len);
    char *kept;
    size_t len;
    assert_ok(ax_read_file("docs/axtrain.1", 1 << 20, &kept, &len));
    if (strcmp(b.data, kept) != 0)
        fail_msg("docs/axtrain.1 is stale: make docs");
    ax_free(kept);
    ax_buf_free(&b);
    snprintf(command, sizeof command, "mandoc -T lint -W warning %s", in_scratch("axtrain.1"));
    assert_string_equal(shell(command), "");
    snprintf(command, sizeof command, "LC_ALL=C.UTF-8 MANPAGER=cat man -l --warnings %s 2>&1",
             in_scratch("axtrain.1"));
    const char *page = shell(command);
    assert_non_null(strstr(page, "EXIT STATUS"));
    assert_null(strstr(page, "warning"));
}

/* ---- bash ---- */

/* What bash would offer at the end of this line. */
static const char *bash(const char *line) {
    char command[1024];
    snprintf(command, sizeof command,
             "bash -c 'source \"$1\"; COMP_LINE=$2; COMP_POINT=${#COMP_LINE}; _axtrain; "
             "printf \"%%s\\n\" \"${COMPREPLY[@]}\"' - %s '%s'",
             in_scratch("axtrain.bash"), line);
    return shell(command);
}

static void bash_completes(void **state) {
    (void)state;
    put_script("axtrain.bash", ax_completion_bash);
    static const struct {
        const char *line, *offers;
    } all[] = {
        {"axtrain pre", "preprocess|preview|"},
        {"axtrain --v", "--version|"},
        {"axtrain sft --q", "--quiet|"},
        {"axtrain sft --color ", "auto|always|never|"},
        {"axtrain sft --color al", "always|"},
        {"axtrain check ", "self|mesh|flight|"},
        {"axtrain completion ", "bash|zsh|fish|"},
        {"axtrain help rep", "report|"},
        {"axtrain sft c.yaml learning_ra", "learning_rate=|"},
        {"axtrain sft c.yaml sample_packing=", "true|false|"},
        {"axtrain sft c.yaml --quiet sample_packing=t", "true|"},
        {"axtrain config help optimi", "optimizer|"},
        {"axtrain config show c.yaml num_ep", "num_epochs=|"},
        {"axtrain plan m --dtype b", "bfloat16|"},
        {"axtrain plan m --batch ", "|"}, /* a number: nothing, and no files */
        {"axtrain eval m --task rew", "reward|"},
        {"axtrain eval m --task ./", "|"}, /* files */
        {"axtrain convert a b --to ", "hf|gguf|"},
        {"axtrain sft c.yaml datasets.0.pa", "datasets.0.path=|"},
        {"axtrain sft c.yaml datasets.0.train_on_eos=l", "last|"},
        {"axtrain config help datasets.0.pa", "datasets.0.path|"},
        {"axtrain sft c", "|"}, /* files, which bash finds itself */
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(bash(all[i].line), all[i].offers) != 0)
            fail_msg("\"%s\" offers %s", all[i].line, bash(all[i].line));
    /* where '=' ends no word, the key stands before each value */
    char command[600];
    snprintf(command, sizeof command,
             "bash -c 'source \"$1\"; COMP_WORDBREAKS=\" \"; COMP_LINE=\"axtrain sft c bf16=t\"; "
             "COMP_POINT=${#COMP_LINE}; _axtrain; printf \"%%s\\n\" \"${COMPREPLY[@]}\"' - %s",
             in_scratch("axtrain.bash"));
    assert_string_equal(shell(command), "bf16=true|");
}

/* ---- zsh and fish ---- */

/* Is the key one of those that are offered, as "…key=value…" sets it: it acts and is not only a list
 * or a map. */
static bool can_be_offered(const struct ax_config_key *key) {
    const enum ax_config_support support = ax_config_support_of(key->support, key->needs);
    return (support == AX_SUPPORT_ACTS || support == AX_SUPPORT_APPROXIMATED) &&
           (key->types & (AX_T_SCALAR | AX_T_ANY)) != 0;
}

static void every_key_that_acts_is_offered(void **state) {
    (void)state;
    size_t section = 0, row = 0, n = 0;
    for (size_t s = 0; s < ax_config_n_sections; s++) {
        for (const struct ax_config_key *k = ax_config_sections[s].keys; k->path; k++) {
            if (!can_be_offered(k))
                continue;
            const struct ax_config_key *got = ax_help_next_key(&section, &row);
            if (got != k)
                fail_msg("%s is offered, not %s", got ? got->path : "nothing", k->path);
            n++;
        }
    }
    assert_null(ax_help_next_key(&section, &row));
    assert_null(ax_help_next_key(&section, &row));
    assert_true(n > 100);
    static const char *const offered[] = {"base_model", "learning_rate", "special_tokens.pad_token",
                                          "datasets[].path"};
    static const char *const kept[] = {"datasets", "tokenizer_type", "use_otel_metrics"};
    for (size_t i = 0; i < 4; i++)
        assert_true(can_be_offered(ax_config_find(offered[i])));
    for (size_t i = 0; i < 3; i++)
        assert_false(can_be_offered(ax_config_find(kept[i])));
}

/* Occurrences of `part`. */
static int count(const char *text, const char *part) {
    int n = 0;
    for (; (text = strstr(text, part)) != NULL; text += strlen(part))
        n++;
    return n;
}

/* In each shell's script, whether or not that shell is here: each key once, with its values, if
 * they are known. */
static void scripts_hold_every_key(void **state) {
    (void)state;
    struct ax_buf zsh = {0}, fish = {0};
    const struct ax_config_key *k;
    size_t section = 0, row = 0;
    int with_values = 0;
    assert_ok(ax_completion_zsh(&zsh, ax_commands));
    assert_ok(ax_completion_fish(&fish, ax_commands));
    while ((k = ax_help_next_key(&section, &row))) {
        char choices[512], want[700], path[AX_CONFIG_PATH];
        ax_help_key_choices(k, choices, sizeof choices);
        assert_ptr_equal(ax_config_find(ax_help_key_path(k, path)), k);
        snprintf(want, sizeof want, "\n    '%s:", path);
        assert_int_equal(count(zsh.data, want), 1);
        snprintf(want, sizeof want, "\n    %s) compadd -- ", path);
        assert_int_equal(count(zsh.data, want), *choices != '\0');
        snprintf(want, sizeof want, "\n    %s) compadd -- %s ;;\n", path, choices);
        for (char *c = want; *c; c++)
            *c = *c == '|' ? ' ' : *c;
        assert_int_equal(count(zsh.data, want), *choices != '\0');
        with_values += *choices != '\0';
        if (!*choices) {
            snprintf(want, sizeof want, "'%s=\t", path);
            assert_int_equal(count(fish.data, want), 1);
        }
        char *rest = choices;
        for (const char *one; *choices && (one = strsep(&rest, "|")) != NULL;) {
            snprintf(want, sizeof want, "'%s=%s\t", path, one);
            if (count(fish.data, want) != 1)
                fail_msg("not once: %s", want);
        }
    }
    assert_int_equal(count(zsh.data, ") compadd -- "), with_values);
    assert_true(with_values > 30);
    ax_buf_free(&zsh);
    ax_buf_free(&fish);
}

/* Text of a few known values: those with a star stand for many, and are not offered. */
static void values_that_are_offered(void **state) {
    (void)state;
    static const struct {
        const char *key, *values;
    } cases[] = {{"sample_packing", "true|false"}, {"learning_rate", ""}, {"base_model", ""}};
    char got[512];
    for (size_t i = 0; i < 3; i++) {
        ax_help_key_choices(ax_config_find(cases[i].key), got, sizeof got);
        assert_string_equal(got, cases[i].values);
    }
    /* each by itself, and as many as there is room for */
    const struct ax_config_key *key = ax_config_find("lr_scheduler");
    char one[64], all[512] = "";
    for (size_t i = 0; ax_config_choice_at(key->choices, i, one, sizeof one); i++)
        if (!strchr(one, '*'))
            snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", *all ? "|" : "", one);
    ax_help_key_choices(key, got, sizeof got);
    assert_string_equal(got, all);
    for (size_t size = 2; size < strlen(all); size++) {
        ax_help_key_choices(key, got, size);
        assert_true(strlen(got) < size);
        char *rest = got;
        for (const char *value; *got && (value = strsep(&rest, "|")) != NULL;)
            assert_true(ax_config_choice(key->choices, value));
    }
}

static void zsh_takes_the_script(void **state) {
    (void)state;
    char command[600];
    put_script("_axtrain", ax_completion_zsh);
    snprintf(command, sizeof command, "zsh -f -n %s 2>&1", in_scratch("_axtrain"));
    assert_string_equal(shell(command), "");
    /* as compinit loads it: found in $fpath, for this command */
    snprintf(
        command, sizeof command,
        "zsh -f -c 'fpath=(%s $fpath); autoload -U compinit; compinit -u -D; "
        "echo $_comps[axtrain]; autoload -U +X _axtrain && source $functions_source[_axtrain]; "
        "echo ${(M)_axtrain_keys:#learning_rate:*}; "
        "_describe() { echo $3: ${names%%%%:*} }; _axtrain_commands' 2>&1",
        scratch);
    const char *said = shell(command);
    assert_ptr_equal(strstr(said, "_axtrain|"), said);
    assert_non_null(strstr(said, "learning_rate:"));
    assert_non_null(
        strstr(said, "|Train: init preview plan sft dpo grpo ppo reward prm qat train launch "));
    assert_non_null(strstr(said, "|Serve and evaluate: generate chat serve eval sandbox|"));
}

static const char *fish(const char *line) {
    char command[600];
    snprintf(command, sizeof command,
             "HOME=%s fish --no-config -c 'source %s; complete -C \"%s\"' 2>&1 | cut -f 1", scratch,
             in_scratch("axtrain.fish"), line);
    return shell(command);
}

static void fish_completes(void **state) {
    (void)state;
    put_script("axtrain.fish", ax_completion_fish);
    static const struct {
        const char *line, *offers;
    } all[] = {
        {"axtrain prev", "preview|"},
        {"axtrain sft --qu", "--quiet|"},
        {"axtrain sft --color al", "always|"},
        {"axtrain check m", "mesh|"},
        {"axtrain completion z", "zsh|"},
        {"axtrain help rep", "report|"},
        {"axtrain sft c.yaml sample_packing=t", "sample_packing=true|"},
        {"axtrain sft c.yaml learning_ra", "learning_rate=|"},
        {"axtrain sft c.yaml datasets.0.pa", "datasets.0.path=|"},
        {"axtrain sft c.yaml base_model=tests/cmd/test_hel", "base_model=tests/cmd/test_help.c|"},
        {"axtrain sft c.yaml tests/cmd/test_hel", ""}, /* keys have no folders */
        {"axtrain eval m --task rew", "reward|"},
        {"axtrain eval m --task tests/cmd/test_hel", "tests/cmd/test_help.c|"},
        {"axtrain chat --adapter tests/cmd/test_hel", "tests/cmd/test_help.c|"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(fish(all[i].line), all[i].offers) != 0)
            fail_msg("\"%s\" offers %s", all[i].line, fish(all[i].line));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(details_come_apart),
        cmocka_unit_test(options_of_commands),
        cmocka_unit_test(words_of_options),
        cmocka_unit_test(options_that_take_files),
        cmocka_unit_test(the_table_is_whole),
        cmocka_unit_test(the_overview_has_each_command_once),
        cmocka_unit_test(wrong_names),
        cmocka_unit_test(the_man_page_is_clean),
        cmocka_unit_test(bash_completes),
        cmocka_unit_test(zsh_takes_the_script),
        cmocka_unit_test(fish_completes),
        cmocka_unit_test(every_key_that_acts_is_offered),
        cmocka_unit_test(scripts_hold_every_key),
        cmocka_unit_test(values_that_are_offered),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

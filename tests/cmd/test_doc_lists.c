/* Lists in README, docs and help of names that the code knows: each names what the code does, in any order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "ckpt/gguf/model.h"
#include "ckpt/gguf/types.h"
#include "cmd/config/table.h"
#include "cmd/help/help.h"
#include "cmd/train/method.h"
#include "data/records/format/answers.h"
#include "data/reward/function.h"
#include "data/reward/sandbox/run.h"
#include "data/text/template/template.h"
#include "kernels/ops.h"
#include "kernels/quant/scheme.h"
#include "model/arch/family.h"
#include "optim/losses/policy.h"
#include "optim/losses/preference.h"
#include "optim/optimizers/optimizer.h"
#include "parallel/units/packed.h"

#define MANY 160

struct names {
    int n;
    char word[MANY][48];
};

static void put_name(struct names *to, const char *word, size_t len) {
    for (int i = 0; i < to->n; i++)
        if (strlen(to->word[i]) == len && memcmp(to->word[i], word, len) == 0)
            return;
    assert_in_range(to->n, 0, MANY - 1);
    assert_in_range(len, 1, sizeof to->word[0] - 1);
    memcpy(to->word[to->n], word, len);
    to->word[to->n++][len] = '\0';
}

static bool has(const struct names *in, const char *word) {
    for (int i = 0; i < in->n; i++)
        if (strcmp(in->word[i], word) == 0)
            return true;
    return false;
}

/* The words of a text between these bytes. */
static void put_words(struct names *to, const char *text, const char *end, const char *between) {
    while (text < end) {
        text += strspn(text, between);
        const size_t len = text < end ? strcspn(text, between) : 0;
        if (len > 0)
            put_name(to, text, text + len <= end ? len : (size_t)(end - text));
        text += len;
    }
}

static void put_list(struct names *to, const char *words) {
    put_words(to, words, words + strlen(words), " |");
}

static char *page(const char *path) {
    char *text;
    size_t len;
    assert_int_equal(ax_read_file(path, 1 << 20, &text, &len), AX_OK);
    return text;
}

/* ---- what the code knows ---- */

typedef void teller(struct names *to, const char *what);

static void choices_of(struct names *to, const char *key) {
    const struct ax_config_key *row = ax_config_find(key);
    char one[64];
    assert_non_null(row);
    for (size_t i = 0; ax_config_choice_at(row->choices, i, one, sizeof one); i++)
        put_name(to, one, strlen(one));
}

/* Keys that act, of a prefix or (if it begins with an underscore) a suffix, and not inside a map. */
static void keys_like(struct names *to, const char *part) {
    for (size_t s = 0; s < ax_config_n_sections; s++)
        for (const struct ax_config_key *k = ax_config_sections[s].keys; k->path; k++) {
            const size_t n = strlen(k->path), len = strlen(part);
            const char *at = n < len ? NULL : *part == '_' ? k->path + n - len : k->path;
            const bool acts = ax_config_support_of(k->support, k->needs) == AX_SUPPORT_ACTS;
            if (acts && at && strncmp(at, part, len) == 0 && !strchr(k->path, '.'))
                put_name(to, k->path, n);
        }
}

static void commands(struct names *to, const char *what) {
    (void)what;
    for (const struct ax_command *c = ax_commands; c->name; c++)
        put_name(to, c->name, strlen(c->name));
}

/* Those that train are said to be so; others say it of their option --mesh. */
static void commands_on_ranks(struct names *to, const char *what) {
    struct ax_help_option options[AX_HELP_MAX_OPTIONS];
    (void)what;
    for (const struct ax_command *c = ax_commands; c->name; c++)
        for (int i = ax_help_options(c, options) - 1; i >= 0; i--)
            if (strcmp(options[i].name, "--mesh") == 0 && strstr(options[i].text, "launcher"))
                put_name(to, c->name, strlen(c->name));
}

static void commands_that_train(struct names *to, const char *what) {
    (void)what;
    for (const struct ax_command *c = ax_commands; c->name; c++)
        if (c->trains)
            put_name(to, c->name, strlen(c->name));
}

static void options_of(struct names *to, const char *command) {
    struct ax_help_option options[AX_HELP_MAX_OPTIONS];
    for (int i = ax_help_options(ax_command_find(ax_commands, command), options) - 1; i >= 0; i--)
        put_name(to, options[i].name, strlen(options[i].name));
}

static void forms_of(struct names *to, const char *command) {
    char forms[AX_HELP_MAX_FORMS][24];
    for (int i = ax_help_forms(ax_command_find(ax_commands, command), forms) - 1; i >= 0; i--)
        put_name(to, forms[i], strlen(forms[i]));
}

/* Values of rl that a command trains. */
static void methods_of(struct names *to, const char *command) {
    const struct ax_method *m;
    for (size_t i = 0; (m = ax_method_at(i)) != NULL; i++)
        if (!m->when && m->command && strcmp(m->command, command) == 0)
            put_name(to, m->name, strlen(m->name));
}

static void methods_of_pairs(struct names *to, const char *what) {
    const struct ax_method *m;
    (void)what;
    for (size_t i = 0; (m = ax_method_at(i)) != NULL; i++)
        if (m->task == AX_TASK_PAIR)
            put_name(to, m->name, strlen(m->name));
}

/* Schemes, by a letter: all, trained, not trained; with a folder of their own, in GGUF. */
static void schemes(struct names *to, const char *which) {
    for (const struct ax_scheme *s = ax_schemes; s->name; s++)
        if (*which == 'a' || (*which == 't' && s->trains) || (*which == 'n' && !s->trains) ||
            (*which == 'f' && ax_file_form_name(s->form)) ||
            (*which == 'g' && s->form == AX_FORM_GGUF))
            put_name(to, s->name, strlen(s->name));
}

/* Losses of pairs that dpo_loss_type takes: all but ORPO's own term. */
static void pair_losses(struct names *to, const char *what) {
    (void)what;
    for (int i = 0; i < AX_PREFER_TERMS; i++) {
        const char *name = ax_preference_term_name((enum ax_preference_term)i);
        if (i != AX_PREFER_ODDS_RATIO)
            put_name(to, name, strlen(name));
    }
}

/* How frozen matrices may be stored. */
static void storages(struct names *to, const char *what) {
    enum ax_storage storage;
    (void)what;
    put_name(to, "plain", strlen("plain"));
    for (const struct ax_scheme *s = ax_schemes; s->name; s++)
        if (ax_storage_parse(s->name, &storage) == AX_OK)
            put_name(to, s->name, strlen(s->name));
    ax_error_clear();
}

static void rewards(struct names *to, const char *what) {
    const char *name, *usage;
    (void)what;
    for (int i = 0; (name = ax_reward_builtin_name(i, &usage)) != NULL; i++)
        put_name(to, name, strlen(name));
}

static void verdicts(struct names *to, const char *what) {
    (void)what;
    for (int i = 0; i < AX_VERDICT_COUNT; i++)
        put_name(to, ax_verdict_names[i], strlen(ax_verdict_names[i]));
}

static void exit_codes(struct names *to, const char *what) {
    char code[16];
    (void)what;
    for (int i = 0; i < AX_STATUS_COUNT; i++) {
        snprintf(code, sizeof code, "%d", ax_status_info((enum ax_status)i)->exit_code);
        put_name(to, code, strlen(code));
    }
}

static void ops(struct names *to, const char *what) {
    (void)what;
    for (int i = 0; i < AX_OP_COUNT; i++)
        put_name(to, ax_op_name((enum ax_op)i), strlen(ax_op_name((enum ax_op)i)));
}

/* Architectures of GGUF: Mistral's is Llama's. */
static void architectures(struct names *to, const char *what) {
    char list[1024];
    (void)what;
    ax_gguf_kind_list(list, sizeof list);
    put_words(to, list, list + strlen(list), " ,");
    put_name(to, "mistral", strlen("mistral"));
}

static void wrappers(struct names *to, const char *what) {
    const struct ax_wrapper *w;
    (void)what;
    for (size_t i = 0; (w = ax_wrapper_at(i)) != NULL; i++)
        put_name(to, w->model_type, strlen(w->model_type));
}

/* Keys of this support. */
static void keys_that(struct names *to, const char *support) {
    for (size_t s = 0; s < ax_config_n_sections; s++)
        for (const struct ax_config_key *k = ax_config_sections[s].keys; k->path; k++)
            if (strcmp(ax_config_support_name(k->support), support) == 0)
                put_name(to, k->path, strlen(k->path));
}

static void own_keys(struct names *to, const char *what) {
    for (size_t s = 0; s < ax_config_n_sections; s++)
        for (const struct ax_config_key *k = ax_config_sections[s].keys; k->path; k++)
            if (k->help && strstr(k->help, what))
                put_name(to, k->path, strlen(k->path));
}

static void old_spellings(struct names *to, const char *what) {
    (void)what;
    for (size_t i = 0; i < ax_config_n_renamed; i++)
        put_name(to, ax_config_renamed[i].path, strlen(ax_config_renamed[i].path));
}

/* Those of packages, and those that bootstrap makes by a program of their own. */
static void bootstrap_sets(struct names *to, const char *what) {
    char *packages = page("tools/packages.txt"), *script = page("tools/bootstrap");
    (void)what;
    for (const char *line = packages; *line; line += strcspn(line, "\n") + 1)
        if (isalpha((unsigned char)*line))
            put_words(to, line, line + strcspn(line, " "), ",");
    for (const char *at = script; (at = strstr(at, ") get=(")) != NULL; at++) {
        const char *name = at;
        while (name[-1] != ' ')
            name--;
        if (*name != '*')
            put_name(to, name, (size_t)(at - name));
    }
    ax_free(packages);
    ax_free(script);
}

static void given(struct names *to, const char *words) {
    put_list(to, words);
}

/* "FILE START" or, of only the first string of each row, "FILE {START": the strings of a table in a
 * source, from START to "};" or ")". */
static void strings_of(struct names *to, const char *what) {
    char path[96];
    const size_t n = strcspn(what, " ");
    const bool first = what[n + 1] == '{';
    snprintf(path, sizeof path, "%.*s", (int)n, what);
    char *text = page(path);
    const char *from = strstr(text, what + n + 1 + first);
    if (!from)
        fail_msg("%s has no \"%s\"", path, what + n + 1 + first);
    const char *end = strstr(from, strstr(path, ".py") ? ")" : "};");
    assert_non_null(end);
    for (const char *at = from; (at = strchr(at, '"')) != NULL && at < end;) {
        const size_t len = strcspn(at + 1, "\"");
        if (!first || at[-1] == '{')
            put_name(to, at + 1, len);
        at += len + 2;
    }
    ax_free(text);
}

/* Types of records of texts, without ".default". */
static void types_of_text(struct names *to, const char *what) {
    char one[64];
    const struct ax_config_key *row = ax_config_find(what);
    for (size_t i = 0; ax_config_choice_at(row->choices, i, one, sizeof one); i++)
        if (!strpbrk(one, "*") && ax_config_accepts(row, one))
            put_name(to, one, strlen(one));
}

/* Types of answers of a task: those of all families and functions in the table that it takes. */
static void types_of_answers(struct names *to, const char *task) {
    static const char *const families[] = {"chat_template", "chatml", "llama3", "passthrough"};
    static struct names functions;
    functions.n = 0;
    strings_of(&functions, "data/records/format/answers_types.c ax_answers_type types[] = {");
    const struct ax_format_answers answers = {0};
    for (size_t f = 0; f < sizeof families / sizeof *families; f++)
        for (int i = 0; i < functions.n; i++) {
            const struct ax_answers_type *type;
            char name[80];
            snprintf(name, sizeof name, "%s.%s", families[f], functions.word[i]);
            const struct ax_format_options o = {.task =
                                                    *task == 'p' ? AX_TASK_PAIR : AX_TASK_UNPAIRED,
                                                .answers = &answers,
                                                .type = name};
            if (ax_answers_find_type(&o, &type) != AX_OK)
                continue;
            if (f > 0 && strcmp(functions.word[i], "default") == 0)
                name[strlen(families[f])] = '\0';
            put_name(to, name, strlen(name));
        }
    ax_error_clear();
}

/* What optimizers keep of a parameter. */
static void slots(struct names *to, const char *what) {
    const struct ax_optimizer *optimizer;
    const char *name;
    (void)what;
    for (size_t i = 0; (name = ax_optimizer_name(i)) != NULL; i++) {
        struct ax_optimizer_options o = {0};
        assert_int_equal(ax_optimizer_find(name, &optimizer, &o), AX_OK);
        o.momentum = 0.9;
        for (int k = 0; k < 4; k++) {
            const struct ax_piece piece = {.n = 512,
                                           .rows = k & 1 ? 16 : 1,
                                           .cols = k & 1 ? 32 : 512,
                                           .hidden = k & 2,
                                           .accum = AX_F32};
            struct ax_slot_size sizes[AX_MAX_STATE];
            for (int n = optimizer->slots(&o, &piece, sizes) - 1; n >= 0; n--)
                put_name(to, sizes[n].name, strlen(sizes[n].name));
        }
    }
}

/* ---- what a page names ---- */

enum form {
    COLUMN, /* the code spans in the first cell of a table's rows */
    CELLS,  /* the words of these cells */
    SPANS,  /* all code spans */
    WORDS   /* all words */
};

/* What a span says first: of `rl: dpo` dpo, of `axtrain sft CONFIG` sft, of `format:REGEX` format. */
static void put_span(struct names *to, const char *span, const char *end) {
    static const char *const before[] = {"axtrain ", "rl: ", "pipeline_parallel_schedule: "};
    for (size_t i = 0; i < sizeof before / sizeof *before; i++)
        if (strncmp(span, before[i], strlen(before[i])) == 0)
            span += strlen(before[i]);
    const size_t len = strcspn(span, " :=|`*,");
    if (*span == '.' && to->n > 0) { /* `.intel` after `chatml.icr` */
        char name[sizeof to->word[0]];
        const char *last = to->word[to->n - 1];
        snprintf(name, sizeof name, "%.*s%.*s", (int)strcspn(last, "."), last, (int)len, span);
        put_name(to, name, strlen(name));
    } else if (len > 0 && span + len <= end) {
        put_name(to, span, len);
    }
}

static void put_spans(struct names *to, const char *from, const char *end) {
    for (const char *at = from; (at = strchr(at, '`')) != NULL && at < end;) {
        const char *close = strchr(at + 1, '`');
        assert_non_null(close);
        put_span(to, at + 1, close);
        at = close + 1;
    }
}

static void put_table(struct names *to, const char *line, enum form form) {
    for (; *line == '|'; line = strchr(line, '\n') + 1) {
        const char *end = strchr(line + 1, '|');
        if (strncmp(line, "|---", 4) == 0)
            continue;
        if (form == COLUMN)
            put_spans(to, line + 1, end);
        else
            put_words(to, line + 1, end, " ,|");
    }
}

struct list {
    const char *page; /* a file, or "help COMMAND" */
    enum form form;
    const char *from, *to; /* of a table: its head, and NULL */
    teller *known;
    const char *what;
    const char *also;     /* named there, too; "…": others may be */
    const char *left_out; /* known, but not named there; "…": others may be */
};

static const char *text_of(const struct list *l, char **owned) {
    *owned = NULL;
    if (strncmp(l->page, "help ", 5) == 0)
        return ax_command_find(ax_commands, l->page + 5)->details;
    return *owned = page(l->page);
}

static void names_of(struct names *to, const struct list *l) {
    char *owned;
    const char *text = text_of(l, &owned), *from = strstr(text, l->from);
    if (!from)
        fail_msg("%s has no \"%s\"", l->page, l->from);
    from += strlen(l->from);
    if (l->form == COLUMN || l->form == CELLS) {
        put_table(to, strchr(from, '\n') + 1, l->form);
    } else {
        const char *end = strstr(from, l->to);
        if (!end)
            fail_msg("%s has no \"%s\" after \"%s\"", l->page, l->to, l->from);
        if (l->form == SPANS)
            put_spans(to, from, end);
        else
            put_words(to, from, end, " ,;:|()\n");
    }
    ax_free(owned);
}

static int compare(const struct list *l) {
    static struct names known, named, also, left_out;
    known.n = named.n = also.n = left_out.n = 0;
    int wrong = 0;
    l->known(&known, l->what);
    names_of(&named, l);
    put_list(&also, l->also ? l->also : "");
    put_list(&left_out, l->left_out ? l->left_out : "");
    for (int i = 0; i < known.n && !has(&left_out, "…"); i++)
        if (has(&named, known.word[i]) == has(&left_out, known.word[i])) {
            print_error("%s, \"%s\": %s is %s\n", l->page, l->from, known.word[i],
                        has(&left_out, known.word[i]) ? "named, and the test leaves it out"
                                                      : "not named");
            wrong++;
        }
    for (int i = 0; i < named.n && !has(&also, "…"); i++)
        if (!has(&known, named.word[i]) && !has(&also, named.word[i])) {
            print_error("%s, \"%s\": the code does not know %s\n", l->page, l->from, named.word[i]);
            wrong++;
        }
    for (int i = 0; i < also.n; i++)
        if (strcmp(also.word[i], "…") != 0 && !has(&named, also.word[i])) {
            print_error("%s, \"%s\": %s, which the test expects, is gone\n", l->page, l->from,
                        also.word[i]);
            wrong++;
        }
    assert_true(known.n > 1);
    return wrong;
}

static const struct list lists[] = {
    /* commands, options and kinds */
    {"README.md", COLUMN, "| command | what it does |", NULL, commands, NULL, "--to --task",
     "completion help"}, /* below it */
    {"README.md", SPANS, "all commands that train, ", " run on them", commands_on_ranks, NULL,
     "check", NULL}, /* mesh: its sizes are no option */
    {"docs/launch.md", SPANS, "`train`), ", " run on ranks", commands_on_ranks, NULL, "check",
     NULL},
    {"docs/launch.md", SPANS, "All commands that train (", ")", commands_that_train, NULL, NULL,
     NULL},
    {"docs/launch.md", COLUMN, "| option | meaning |", NULL, options_of, "launch", "all",
     "--help"}, /* of --output */
    {"docs/bench.md", COLUMN, "| kind | figures |", NULL, forms_of, "bench", NULL, NULL},
    {"docs/troubleshooting.md", CELLS, "| code | meaning | a script should |", NULL, exit_codes,
     NULL, NULL, NULL},
    {"docs/sandbox.md", COLUMN, "| verdict | the program |", NULL, verdicts, NULL, NULL, NULL},
    {"help check", WORDS, "only these lines: ", "; repeatable", strings_of,
     "cmd/check/self.c {lines[] = {", "or", NULL},
    {"docs/mutate.md", CELLS, "| kind | mistake |", NULL, strings_of,
     "tools/mutate_sites.py KINDS = (", NULL, NULL},
    {"help cache", WORDS, "--kind K            ", " repeatable", strings_of,
     "cmd/cache/find.c [AX_CACHE_KINDS] = {", "or", NULL},
    {"docs/install.md", COLUMN, "| set | for | contents |", NULL, bootstrap_sets, NULL, NULL,
     "sandbox-parts"}, /* with sandbox */
    {"README.md", WORDS, "`AXTRAIN_CPU=", "`", strings_of,
     "kernels/cpu/isa.c names[AX_CPU_ISAS] = {", NULL, "none neon amx-emulated"}, /* below it */
    {"docs/launch.md", COLUMN, "| size | ranks that |", NULL, strings_of,
     "parallel/fabric/mesh.c names[] = {", "dp_shard",
     "pp cp"}, /* what the others leave; refused */
    /* keys, and types of records */
    {"docs/data-formats.md", COLUMN, "| `type` | record | trained on |", NULL, types_of_text,
     "datasets[].type", NULL, "stepwise_supervised chatml llama3 passthrough"}, /* below it */
    {"docs/data-formats.md", COLUMN, "| `type` | columns |", NULL, types_of_answers, "pair", NULL,
     "llama3.icr llama3.intel llama3.prompt_pairs llama3.ultra llama3.argilla_chat"}, /* "also" */
    {"docs/data-formats.md", COLUMN, "| `type` | columns besides `label` |", NULL, types_of_answers,
     "one", NULL,
     "llama3.argilla llama3.intel llama3.prompt_pairs llama3.ultra llama3.argilla_chat"},
    {"docs/from-axolotl.md", COLUMN, "| refused | write |", NULL, keys_that, "refused",
     "type relora load_in_4bit load_in_8bit unsloth_", "…"}, /* values, patterns */
    {"docs/from-axolotl.md", COLUMN, "| old | now |", NULL, old_spellings, NULL,
     "fsdp_config.fsdp_… message_field_content", "…"}, /* of datasets[] */
    {"docs/from-axolotl.md", SPANS, "\"axtrain's own key\" in [config.md](config.md):", "\n\n",
     own_keys, "axtrain's own key", NULL, "…"},
    /* methods and losses */
    {"README.md", SPANS, "](docs/preferences.md) (", ") without", methods_of, "dpo", NULL, NULL},
    {"README.md", SPANS, "](docs/grpo.md) (", "eight losses)", methods_of, "grpo", NULL, NULL},
    {"docs/preferences.md", COLUMN, "| `rl` | formula |", NULL, methods_of, "dpo", NULL,
     "dpo"}, /* the table above */
    {"docs/data-formats.md", SPANS, "## Preferences\nWith ", " a record", methods_of_pairs, NULL,
     NULL, NULL},
    {"docs/preferences.md", COLUMN, "| `dpo_loss_type` | formula |", NULL, choices_of,
     "dpo_loss_type", NULL, NULL},
    {"docs/grpo.md", COLUMN, "| `loss_type` | a token's loss |", NULL, choices_of, "trl.loss_type",
     NULL, NULL},
    {"docs/rewards.md", SPANS, "| name | is |\n|---|---|\n", " | built in |", rewards, NULL, NULL,
     NULL},
    {"docs/rewards.md", COLUMN, "| name | reward |", NULL, rewards, NULL, NULL, NULL},
    {"docs/distillation.md", COLUMN, "| key | default | |", NULL, keys_like, "kd_", NULL,
     "kd_normalize_topk"}, /* false alone is accepted */
    /* number formats */
    {"docs/quantization.md", COLUMN, "| scheme | weights | activations | file form |", NULL,
     schemes, "all", NULL, NULL},
    {"docs/quantization.md", SPANS, "scales rounded down | the same | – |\n",
     "\n\nAll but the last three rows can be trained for", schemes, "not trained", "--base", NULL},
    {"help quantize", WORDS, "--scheme S    ", ";\n", schemes, "folder", "or", NULL},
    {"help quantize", WORDS, ";\n                llama.cpp's ", " (docs", schemes, "gguf", "or",
     NULL},
    {"README.md", WORDS, "[GGUF](docs/gguf.md) file (", ")", schemes, "gguf", NULL, NULL},
    {"docs/gguf.md", CELLS, "| `--quant` | most matrices |", NULL, given, AX_GGUF_QUANTS, NULL,
     NULL},
    {"help convert", WORDS, "--quant Q     ", " (default", given, AX_GGUF_QUANTS, NULL, NULL},
    {"docs/quantization.md", SPANS, "The base of QLoRA (", ")", storages, NULL, NULL, "plain"},
    {"help generate", WORDS, "store matrices as ", "\n  --", storages, NULL, "default or", NULL},
    {"help chat", WORDS, "store matrices as ", "\n  --", storages, NULL, "default or", NULL},
    {"help eval", WORDS, "store matrices as ", "\n  --", storages, NULL, "default or", NULL},
    {"help bench", WORDS, "store frozen matrices as ", "\n  --", storages, NULL, "or", NULL},
    {"help plan", WORDS, "store frozen matrices as ", "\n  --", storages, NULL, "or", NULL},
    {"help check", WORDS, "store frozen matrices as ", " or fp8\n", storages, NULL, NULL,
     "plain fp8"}, /* needs none; the end of the text */
    /* models */
    {"README.md", SPANS, "For the text model in them, on text: ", ".\n", wrappers, NULL, NULL,
     NULL},
    {"docs/gguf.md", CELLS, "| config.json | `general.architecture` |", NULL, architectures, NULL,
     NULL, NULL},
    {"help convert", WORDS, "Architectures: ", ".\n", architectures, NULL, NULL, NULL},
    {"docs/gguf.md", WORDS, "never by a model's name: ", ". A rule", strings_of,
     "data/text/tokenizer/split_rules.c {rules[] = {", NULL, "dbrx"},
    /* machines and meshes */
    {"docs/plan.md", SPANS, "### Machines\nBy name: ", "`--hardware FILE", strings_of,
     "optim/plan/hardware.c {struct ax_hardware table[] = {", NULL, NULL},
    {"docs/plan.md", COLUMN, "row):\n\n| column | |", NULL, strings_of,
     "optim/plan/hardware.c {} columns[] = {", "name gpus_per_node host_gb_s", NULL}, /* no rates */
    {"docs/launch.md", COLUMN, "| key | ranks that |", NULL, strings_of,
     "cmd/train/mesh.c {} keys[] = {", NULL, NULL},
    {"help check", WORDS, "of the pipeline: ", "\n  --virtual", choices_of,
     "pipeline_parallel_schedule", "default", NULL},
    {"docs/launch.md", SPANS, "- Pipeline stages wait", "says what share", choices_of,
     "pipeline_parallel_schedule", "…", NULL},
    {"docs/results/gpu-status.md", SPANS, "| family | ops |", "\n## Paths", ops, NULL, NULL, NULL},
    /* files */
    {"docs/checkpoint.md", COLUMN, "| slot | of | dtype | shape |", NULL, slots, NULL,
     "master master_remainder base", NULL}, /* no optimizer's */
    {"docs/run.md", SPANS, "| step | `step` (from 1)", "\n| evaluation |", strings_of,
     "optim/metrics/metrics_text.c keys[] = {\"epoch\",        \"loss\"",
     "phase_seconds data forward backward optimizer save skipped ranks slowest slowest_seconds "
     "wait_seconds dp_shard tp world",
     NULL}, /* below the line's own */
    {"docs/run.md", SPANS, "| evaluation | `step`, ", "\n", strings_of,
     "optim/metrics/metrics_text.c keys[] = {\n        \"epoch\"", NULL, NULL},
    {"docs/run.md", SPANS, "| event | `step`, `event` (", ")", strings_of,
     "optim/metrics/metrics.c event_names[AX_EVENT_COUNT] = {", NULL, NULL},
};

static void lists_name_what_the_code_knows(void **state) {
    int wrong = 0;
    (void)state;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        wrong += compare(&lists[i]);
    assert_int_equal(wrong, 0);
}

/* ---- numbers, and names that pages write in their own way ---- */

static void templates(struct names *to, const char *what) {
    const char *name;
    (void)what;
    for (size_t i = 0; (name = ax_template_name(i)) != NULL; i++)
        put_name(to, name, strlen(name));
}

static void pages_say_how_many(void **state) {
    static const struct {
        const char *page, *text; /* with the number as digits, or as a word */
        teller *known;
        const char *what;
    } counts[] = {
        {"README.md", "`rl: dpo` with %s losses", pair_losses, NULL},
        {"CHANGELOG.md", "`rl: dpo` with %s losses", pair_losses, NULL},
        {"README.md", "%s schemes (int4 groups", schemes, "trained"},
        {"CHANGELOG.md", "Number formats of %s quantization schemes", schemes, "trained"},
        {"README.md", "`gdpo`, %s losses)", choices_of, "trl.loss_type"},
        {"docs/gguf.md", "\nof %s are expressed", templates, NULL},
        {"CHANGELOG.md", "Chat templates by %s names", templates, NULL},
        {"CHANGELOG.md", "the time of a step on %s machines", strings_of,
         "optim/plan/hardware.c {struct ax_hardware table[] = {"},
    };
    static const char *const words[] = {"six", "seven", "eight", "nine", "ten"};
    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        static struct names known;
        char digits[16], in_digits[96], in_words[96];
        known.n = 0;
        counts[i].known(&known, counts[i].what);
        const bool has_word = known.n >= 6 && known.n <= 10;
        snprintf(digits, sizeof digits, "%d", known.n);
        snprintf(in_digits, sizeof in_digits, counts[i].text, digits);
        snprintf(in_words, sizeof in_words, counts[i].text, has_word ? words[known.n - 6] : digits);
        char *text = page(counts[i].page);
        if (!strstr(text, in_digits) && !strstr(text, in_words))
            fail_msg("%s does not say \"%s\"", counts[i].page, in_digits);
        ax_free(text);
    }
}

/* The trackers of README are those that docs/run.md tells how to log in. */
static void pages_name_the_same_trackers(void **state) {
    static struct names choices;
    struct ax_buf list = {0};
    int n = 0;
    (void)state;
    char *text = page("docs/run.md");
    for (const char *line = strstr(text, "\n| Weights & Biases | "); line && line[1] == '|'; n++) {
        const size_t len = strcspn(line + 3, "|");
        assert_int_equal(ax_buf_printf(&list, "%s%.*s", n ? ", " : "", (int)len - 1, line + 3),
                         AX_OK);
        line = strchr(line + 1, '\n');
    }
    ax_free(text);
    text = page("README.md");
    if (!strstr(text, list.data))
        fail_msg("README.md does not name %s", list.data);
    ax_free(text);
    ax_buf_free(&list);
    choices.n = 0;
    choices_of(&choices, "report_to");
    assert_int_equal(n, choices.n - 3); /* none, tensorboard, and comet's other name */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_name_what_the_code_knows),
        cmocka_unit_test(pages_say_how_many),
        cmocka_unit_test(pages_name_the_same_trackers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

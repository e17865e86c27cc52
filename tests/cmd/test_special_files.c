/* Files that are no regular files, links and leftovers: what is read is refused without waiting, what is written
 * stays in its folder, what killed runs left is removed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/cmd/grpo_case.h"

static void has(const char *part) {
    if (!strstr(said, part))
        fail_msg("\"%s\" lacks \"%s\"", said, part);
}

/* Runs a command line, of which `said` gets what it prints: its exit code; −1: a signal ended it. */
static int run_line(const char *line) {
    FILE *p = popen(line, "r");
    assert_non_null(p);
    said[fread(said, 1, sizeof said - 1, p)] = '\0';
    const int code = pclose(p);
    return WIFEXITED(code) ? WEXITSTATUS(code) : -1;
}

/* A run of axtrain with words, of at most ten seconds. */
static int limited(const char *fmt, ...) {
    char words[1600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(words, sizeof words, fmt, ap);
    va_end(ap);
    char command[2000];
    snprintf(command, sizeof command, "timeout -s KILL 10 '%s' %s 2>&1 < /dev/null", test_program(),
             words);
    return run_line(command);
}

static void shell(const char *fmt, ...);

/* A run's folder, which a failed test may have left. */
static int without_folder(void **state) {
    (void)state;
    shell("rm -rf '%s/o'", scratch);
    return 0;
}

static void shell(const char *fmt, ...) {
    char command[2000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(command, sizeof command, fmt, ap);
    va_end(ap);
    if (system(command) != 0)
        fail_msg("%s", command);
}

/* SCRATCH/model, with one file replaced by a FIFO, which is then a file again. */
static const char *const model_files[] = {"config.json", "tokenizer.json", "tokenizer_config.json",
                                          "generation_config.json", "model.safetensors"};

static void make_model(void) {
    shell("rm -rf '%s/model'; mkdir '%s/model'", scratch, scratch);
    shell("cp '%s'/*.json '%s'/*.safetensors '%s/model/'", golden_path("models/llama"),
          golden_path("models/llama"), scratch);
}

static void refuses(const char *name, int code, const char *fmt, ...) {
    char words[1500];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(words, sizeof words, fmt, ap);
    va_end(ap);
    const int got = limited("%s", words);
    if (got != code || !strstr(said, name))
        fail_msg("%s: code %d, expected %d: %s", words, got, code, said);
    has(": not a regular file, but a named pipe: ");
}

static void pipes_are_refused(void **state) {
    (void)state;
    const char *config = configure("", "micro_batch_size: 4\n");
    make_model();
    for (size_t i = 0; i < sizeof model_files / sizeof *model_files; i++) {
        shell("cd '%s/model' && { [ ! -e %s ] || mv %s ../kept; } && mkfifo %s", scratch,
              model_files[i], model_files[i], model_files[i]);
        refuses(model_files[i], 3, "grpo '%s' base_model='%s/model' output_dir='%s/x'", config,
                scratch, scratch);
        if (strcmp(model_files[i], "tokenizer.json") == 0)
            refuses(model_files[i], 3, "tokenize '%s/model'", scratch);
        shell("cd '%s/model' && rm %s && { [ ! -e ../kept ] || mv ../kept %s; }", scratch,
              model_files[i], model_files[i]);
    }
    shell("mkfifo '%s/pipe' '%s/pipe.jsonl' '%s/pipe.json' '%s/pipe.yaml' '%s/pipe.jinja'", scratch,
          scratch, scratch, scratch, scratch);
    refuses("pipe.yaml", 2, "grpo '%s/pipe.yaml'", scratch);
    refuses("pipe.jsonl", 3, "grpo '%s' output_dir='%s/x' 'datasets=[{path: %s/pipe.jsonl}]'",
            config, scratch, scratch);
    shell("sed -e '/^trl:/,/reward_funcs/d' -e 's/^rl: grpo//' '%s' > '%s/sft.yaml'", config,
          scratch);
    refuses("pipe.jinja", 3,
            "sft '%s/sft.yaml' output_dir='%s/x' chat_template=jinja "
            "chat_template_jinja='%s/pipe.jinja' "
            "'datasets=[{path: %s/prompts.jsonl, type: chat_template}]'",
            scratch, scratch, scratch, scratch);
    shell("mkdir '%s/adapter' && mkfifo '%s/adapter/adapter_config.json'", scratch, scratch);
    refuses("adapter_config.json", 3, "generate '%s' --adapter '%s/adapter' --prompt hello",
            golden_path("models/llama"), scratch);
    refuses("pipe.jsonl", 3, "generate '%s' --input '%s/pipe.jsonl'", golden_path("models/llama"),
            scratch);
}

/* Files that a save copies or edits: a run with one that cannot be read ends before it trains. */
static void side_files_are_read_first(void **state) {
    (void)state;
    char words[1000];
    make_model();
    shell("printf '{\"text\": \"one two\"}\\n{\"text\": \"three four\"}\\n' > '%s/texts.jsonl'",
          scratch);
    snprintf(words, sizeof words,
             "base_model: %s/model\noutput_dir: %s/o\ndatasets:\n  - path: %s/texts.jsonl\n"
             "    type: completion\nsequence_len: 64\nlearning_rate: 1e-3\n",
             scratch, scratch, scratch);
    put_bytes("side.yaml", words, strlen(words));
    snprintf(words, sizeof words, "sft '%s/side.yaml'", scratch);
    shell("mkfifo '%s/model/LICENSE'", scratch);
    refuses("LICENSE", 3, "%s", words);
    assert_null(strstr(said, "step="));
    shell(
        "rm '%s/model/LICENSE'; echo '{\"eos_token_id\": 1,}' > '%s/model/generation_config.json'",
        scratch, scratch);
    assert_int_equal(limited("%s", words), 3);
    has("/model/generation_config.json:1:");
    assert_null(strstr(said, "step="));
    assert_int_equal(
        limited("%s adapter=lora lora_r=2 lora_alpha=2 lora_target_linear=true", words), 0);
}

/* What `git clone` leaves of large files without Git LFS: as text it could even be trained on. */
static void pointers_are_named(void **state) {
    (void)state;
    static const char *const data[] = {"p.jsonl", "p.jsonl.gz", "p.csv", "p.txt", "p.parquet"};
    const char *config = configure("", "micro_batch_size: 4\n");
    shell("printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:4d7a\\nsize 12\\n' > "
          "'%s/pointer'",
          scratch);
    make_model();
    for (size_t i = 0; i < sizeof model_files / sizeof *model_files; i++) {
        shell("cd '%s/model' && { [ ! -e %s ] || mv %s ../kept; } && cp ../pointer %s", scratch,
              model_files[i], model_files[i], model_files[i]);
        assert_int_equal(limited("generate '%s/model' --prompt hello", scratch), 3);
        has(model_files[i]);
        has(": not the file, but Git LFS's pointer to it: run `git lfs pull` in its folder");
        shell("cd '%s/model' && rm %s && { [ ! -e ../kept ] || mv ../kept %s; }", scratch,
              model_files[i], model_files[i]);
    }
    for (size_t i = 0; i < sizeof data / sizeof *data; i++) {
        shell("cp '%s/pointer' '%s/%s'", scratch, scratch, data[i]);
        assert_int_equal(limited("grpo '%s' output_dir='%s/x' 'datasets=[{path: %s/%s}]'", config,
                                 scratch, scratch, data[i]),
                         3);
        has(data[i]);
        has(": not the file, but Git LFS's pointer to it");
    }
    shell("cp '%s/pointer' '%s/p.gguf'", scratch, scratch);
    assert_int_equal(limited("generate '%s/p.gguf' --prompt hello", scratch), 3);
    has("p.gguf: not the file, but Git LFS's pointer to it");
}

/* What is documented to read a stream, here one that begins with a byte alone, and what a shell makes of
 * "<(command)". */
static void streams_are_read(void **state) {
    (void)state;
    char command[1200];
    static const char *const forms[] = {
        "{ head -c 1 '%1$s/prompts.jsonl'; sleep 0.1; tail -c +2 '%1$s/prompts.jsonl'; } | "
        "'%2$s' grpo '%1$s/c.yaml' output_dir='%1$s/s' max_steps=1 --quiet "
        "\"datasets=[{path: /dev/stdin, ds_type: json}]\" 2>&1",
        "bash -c \"'%2$s' grpo <(cat '%1$s/c.yaml') output_dir='%1$s/s' max_steps=1 --quiet\" 2>&1",
    };
    (void)configure("", "micro_batch_size: 4\n");
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        snprintf(command, sizeof command, forms[i], scratch, test_program());
        if (system(command) != 0)
            fail_msg("%s", command);
        clear("s");
    }
}

/* ---- the folder that a run writes to ---- */

static void links_lead_nowhere(void **state) {
    (void)state;
    static const char *const names[] = {"metrics.jsonl", "metrics.csv", ".axtrain.lock",
                                        "completions.jsonl"};
    const char *config = configure("", "micro_batch_size: 4\n");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        shell("mkdir '%s/o' && echo kept > '%s/precious' && ln -s ../precious '%s/o/%s'", scratch,
              scratch, scratch, names[i]);
        const int code = limited("grpo '%s' output_dir='%s/o' --quiet", config, scratch);
        char *text = read_text(".", "precious");
        if (code == 0 || strcmp(text, "kept\n") != 0)
            fail_msg("%s: code %d, now \"%s\": %s", names[i], code, text, said);
        ax_free(text);
        has(names[i]);
        has("it is a symbolic link");
        clear("o");
    }
    shell("mkdir '%s/o' '%s/elsewhere' && echo kept > '%s/elsewhere/precious' && "
          "ln -s ../elsewhere '%s/o/checkpoint-2'",
          scratch, scratch, scratch, scratch);
    assert_int_equal(limited("grpo '%s' output_dir='%s/o' --quiet", config, scratch), 2);
    has("checkpoint-2 is a symbolic link");
    assert_true(ax_path_exists(in_scratch("elsewhere/precious")));
    clear("o");
}

/* A save of a process whose number is in use for ever: number 1's, and that of a process nobody waits for. */
static void leftovers_are_removed(void **state) {
    (void)state;
    const char *config = configure("", "micro_batch_size: 4\n");
    const pid_t zombie = fork();
    if (zombie == 0)
        _exit(0);
    train("o", config, "max_steps=2");
    shell("cd '%s/o' && mkdir -p checkpoint-3.tmp-1/state checkpoint-9.tmp-%d && touch "
          "checkpoint-3.tmp-1/state/a .axtrain.ranks-1 && cp -r checkpoint-2 checkpoint-2.old-1",
          scratch, (int)zombie);
    train("o", config, "max_steps=3 resume_from_checkpoint=auto");
    shell("cd '%s/o' && ! ls -A | grep -e tmp- -e old- -e ranks-", scratch);
    assert_true(ax_path_exists(in_scratch("o/checkpoint-3/state")));
    waitpid(zombie, NULL, 0);
    clear("o");
}

static void open_folders_are_named(void **state) {
    (void)state;
    const char *config = configure("", "micro_batch_size: 4\n");
    shell("mkdir '%s/o' && chmod 0777 '%s/o'", scratch, scratch);
    assert_int_equal(limited("grpo '%s' output_dir='%s/o' --quiet max_steps=1", config, scratch),
                     0);
    has("output_dir: every user of this machine can write to ");
    has("`chmod o-w ");
    clear("o");
}

/* A link is not what was saved, whatever it leads to. */
static void links_in_checkpoints_are_damage(void **state) {
    (void)state;
    static const char *const names[] = {"model.safetensors", "state", "state/manifest.json"};
    const char *config = configure("", "micro_batch_size: 4\n");
    train("o", config, "max_steps=1");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        shell("cd '%s/o/checkpoint-1' && mv %s '%s/moved' && ln -s '%s/moved' %s", scratch,
              names[i], scratch, scratch, names[i]);
        assert_int_equal(limited("ckpt verify '%s/o/checkpoint-1'", scratch), 3);
        has(names[i]);
        has(": a symbolic link, but this folder has its files itself");
        assert_int_equal(limited("grpo '%s' output_dir='%s/o' --quiet resume_from_checkpoint=auto",
                                 config, scratch),
                         3);
        shell("cd '%s/o/checkpoint-1' && rm %s && mv '%s/moved' %s", scratch, names[i], scratch,
              names[i]);
    }
    assert_int_equal(limited("ckpt verify '%s/o/checkpoint-1'", scratch), 0);
    clear("o");
}

/* The kernel ends a process by SIGSEGV whose stack is full. */
static void limited_stack(void **state) {
    (void)state;
    char line[2000];
    snprintf(line, sizeof line, "bash -c 'ulimit -s 512; exec \"$0\" plan \"$1\"' '%s' '%s' 2>&1",
             test_program(), configure("", "micro_batch_size: 4\n"));
    assert_int_equal(run_line(line), 5);
    has("the limit of the stack is 512 KiB, and 1024 are needed: raise it with `ulimit -s 8192`");
}

/* The kernel ends a process by SIGXFSZ that does not ask for the error. */
static void limited_files(void **state) {
    (void)state;
    char line[2000];
    (void)configure("", "micro_batch_size: 4\n");
    snprintf(line, sizeof line,
             "bash -c 'ulimit -f 20; exec \"$0\" convert \"$1\" \"$2/big.gguf\" --to gguf' '%s' "
             "'%s' '%s' 2>&1",
             test_program(), golden_path("models/llama"), scratch);
    assert_int_equal(run_line(line), 7);
    has("File too large");
    shell("[ -z \"$(ls '%s' | grep big)\" ]", scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(pipes_are_refused, without_folder),
        cmocka_unit_test_setup(side_files_are_read_first, without_folder),
        cmocka_unit_test_setup(pointers_are_named, without_folder),
        cmocka_unit_test_setup(streams_are_read, without_folder),
        cmocka_unit_test_setup(links_lead_nowhere, without_folder),
        cmocka_unit_test_setup(leftovers_are_removed, without_folder),
        cmocka_unit_test_setup(open_folders_are_named, without_folder),
        cmocka_unit_test_setup(links_in_checkpoints_are_damage, without_folder),
        cmocka_unit_test_setup(limited_stack, without_folder),
        cmocka_unit_test_setup(limited_files, without_folder),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

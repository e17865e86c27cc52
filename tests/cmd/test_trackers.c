/* Trackers: what a Python package is given, what stops a run before it starts, and what does not
 * stop it afterwards. The packages are stand-ins, which note each call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/text/json.h"
#include "cmd/tracker/tracker.h"
#include "tests/cmd/sft_case.h"

static const char rows[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"one and one\"}, {\"role\": \"assistant\", "
    "\"content\": \"two\"}]}\n"
    "{\"messages\": [{\"role\": \"user\", \"content\": \"say yes\"}, {\"role\": \"assistant\", "
    "\"content\": \"yes\"}]}\n"
    "{\"messages\": [{\"role\": \"user\", \"content\": \"say no\"}, {\"role\": \"assistant\", "
    "\"content\": \"no, no, no\"}]}\n"
    "{\"messages\": [{\"role\": \"user\", \"content\": \"two\"}, {\"role\": \"assistant\", "
    "\"content\": \"four of them\"}]}\n";

/* note(NAME, …) appends a call to the file that the test reads. */
static const char note_py[] =
    "import json, os, sys\n"
    "def note(call, *args, **kw):\n"
    "    with open(os.environ['AX_CALLS'], 'a') as f:\n"
    "        f.write(json.dumps([call, list(args), kw], default=str) + '\\n')\n"
    "note('argv', *sys.orig_argv)\n"
    "print('chatter on standard output')\n";

static const char wandb_py[] =
    "import os, signal, time\n"
    "from note import note\n"
    "ill = os.environ.get('AX_ILL')\n"
    "class UsageError(Exception): pass\n"
    "class Artifact:\n"
    "    def __init__(self, name, type): self.name, self.files = name, []\n"
    "    def add_file(self, path, name): self.files.append((os.path.exists(path), name))\n"
    "class Run:\n"
    "    url, run = 'https://wandb.test/run', os.getppid()\n"
    "    def define_metric(self, *a, **kw): note('define_metric', *a, **kw)\n"
    "    def log_artifact(self, a): note('artifact', a.name, a.files)\n"
    "    def log(self, values):\n"
    "        if ill == 'raises': raise RuntimeError('the server said no')\n"
    "        if ill == 'dies': os.kill(os.getpid(), signal.SIGKILL)\n"
    "        note('log', **values)\n"
    "        sig = {'stops the run': signal.SIGTERM, 'kills the run': signal.SIGKILL}.get(ill)\n"
    "        if sig and self.run: os.kill(self.run, sig)\n"
    "        self.run = None\n"
    "    def finish(self, exit_code):\n"
    "        if ill == 'hangs at the end': time.sleep(100)\n"
    "        if ill == 'ends late': time.sleep(1)\n"
    "        note('finish', exit_code)\n"
    "def login(**kw):\n"
    "    if ill == 'stranger': raise UsageError('api_key not configured (no-tty)')\n"
    "    if ill == 'no network': raise OSError('unreachable')\n"
    "    if ill == 'wrong key': raise RuntimeError('HTTP 401')\n"
    "    if ill == 'hangs at the start': time.sleep(100)\n"
    "    note('login')\n"
    "    return True\n"
    "def init(**kw):\n"
    "    note('init', **kw)\n"
    "    if ill == 'hangs': time.sleep(100)\n"
    "    run = Run()\n"
    "    run.id = kw['id'] or 'made-up-id'\n"
    "    return run\n";

static const char mlflow_py[] =
    "from note import note\n"
    "class Info: run_id = 'mlflow-id'\n"
    "class Run: info = Info()\n"
    "def set_tracking_uri(uri): note('mlflow.uri', uri)\n"
    "def set_experiment(name): note('mlflow.experiment', name)\n"
    "def start_run(**kw):\n"
    "    note('mlflow.start', **kw)\n"
    "    return Run()\n"
    "def log_params(p): note('mlflow.params', len(p), learning_rate=p.get('learning_rate'))\n"
    "def log_metrics(v, step): note('mlflow.log', step, **v)\n"
    "def end_run(status): note('mlflow.end', status)\n";

static const char comet_py[] =
    "from note import note\n"
    "class config:\n"
    "    get_config = staticmethod(lambda: {'comet.api_key': None})\n"
    "def ExperimentConfig(**kw): return kw\n"
    "class Run:\n"
    "    def get_key(self): return 'comet-id'\n"
    "    def log_parameters(self, p): note('comet.params', learning_rate=p['learning_rate'])\n"
    "    def log_metrics(self, v, step, epoch): note('comet.log', step, epoch, **v)\n"
    "    def end(self): note('comet.end')\n"
    "def start(**kw):\n"
    "    note('comet.start', **{k: v for k, v in kw.items() if k != 'api_key'}, "
    "key_length=len(kw.get('api_key') or ''))\n"
    "    return Run()\n";

static const char trackio_py[] =
    "from note import note\n"
    "def init(**kw): note('trackio.init', **{k: v for k, v in kw.items() if k != 'config'})\n"
    "def log(v, step): note('trackio.log', step, **v)\n"
    "def finish(): note('trackio.finish')\n";

static const char swanlab_py[] =
    "from note import note\n"
    "class Run: id = 'swanlab-id'\n"
    "def init(**kw):\n"
    "    note('swanlab.init', **{k: v for k, v in kw.items() if k != 'config'})\n"
    "    return Run()\n"
    "def log(v, step): note('swanlab.log', step, **v)\n"
    "def finish(): note('swanlab.finish')\n";

static char config[128];

static int start(void **state) {
    if (scratch_make(state) != 0)
        return -1;
    static const struct {
        const char *name, *text;
    } modules[] = {{"py/note.py", note_py},       {"py/wandb.py", wandb_py},
                   {"py/mlflow.py", mlflow_py},   {"py/comet_ml.py", comet_py},
                   {"py/trackio.py", trackio_py}, {"py/swanlab.py", swanlab_py}};
    make_folder("py");
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
        put_text(modules[i].name, modules[i].text);
    setenv("PYTHONPATH", in_scratch("py"), 1);
    setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
    setenv("AX_CALLS", in_scratch("calls"), 1);
    unsetenv("AX_ILL");
    unsetenv("AXTRAIN_PYTHON");
    unsetenv("WANDB_MODE");
    return 0;
}

/* The configuration of a run of two steps. */
static void configure(const char *more) {
    char text[2048];
    need_binary();
    put_text("rows.jsonl", rows);
    snprintf(text, sizeof text,
             "base_model: %s\noutput_dir: %s/out\ndatasets:\n  - path: %s/rows.jsonl\n"
             "    type: chat_template\nchat_template: llama3\nsequence_len: 64\n"
             "learning_rate: 1e-3\nmicro_batch_size: 2\ngradient_accumulation_steps: 1\n"
             "num_epochs: 9\nmax_steps: 2\nsave_steps: 2\n%s",
             golden_llama(), scratch, scratch, more);
    snprintf(config, sizeof config, "%s", put_text("c.yaml", text));
}

/* The calls noted so far: [[name, [args], {kwargs}], …]. */
static json_t *calls(void) {
    json_t *all = json_array();
    FILE *f = fopen(in_scratch("calls"), "r");
    char line[1 << 16];
    while (f && fgets(line, sizeof line, f)) {
        json_t *v = json_loads(line, JSON_ALLOW_NUL, NULL);
        assert_non_null(v);
        json_array_append_new(all, v);
    }
    if (f)
        fclose(f);
    return all;
}

/* The i-th call of this name; NULL if there are fewer. */
static json_t *call(json_t *all, const char *name, int i) {
    size_t k;
    json_t *v;
    json_array_foreach(all, k, v) if (strcmp(json_string_value(json_array_get(v, 0)), name) == 0 &&
                                      i-- == 0) return v;
    return NULL;
}

static const char *text_of(json_t *all, const char *name, const char *key) {
    json_t *v = call(all, name, 0);
    assert_non_null(v);
    const char *s = json_string_value(json_object_get(json_array_get(v, 2), key));
    return s ? s : "";
}

/* The number after `key` of this call. */
static double value_of(json_t *all, const char *name, int i, const char *key) {
    json_t *v = call(all, name, i);
    assert_non_null(v);
    json_t *x = json_object_get(json_array_get(v, 2), key);
    assert_true(json_is_number(x));
    return json_number_value(x);
}

static double arg_of(json_t *all, const char *name, int i) {
    json_t *v = call(all, name, i);
    assert_non_null(v);
    return json_number_value(json_array_get(json_array_get(v, 1), 0));
}

/* "loss" of a step in metrics.jsonl. */
static double loss_of(int64_t step) {
    char line[1 << 14];
    double loss = -1;
    FILE *f = fopen(in_scratch("out/metrics.jsonl"), "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        json_t *v = json_loads(line, JSON_ALLOW_NUL, NULL);
        if (json_integer_value(json_object_get(v, "step")) == step && json_object_get(v, "loss"))
            loss = json_number_value(json_object_get(v, "loss"));
        json_decref(v);
    }
    fclose(f);
    return loss;
}

static int count(const char *text, const char *part) {
    int n = 0;
    for (const char *p = text; (p = strstr(p, part)); p += strlen(part))
        n++;
    return n;
}

static bool contains(const char *name, const char *part) {
    char *text;
    size_t len;
    assert_int_equal(ax_read_file(in_scratch(name), 1 << 26, &text, &len), AX_OK);
    const bool found = memmem(text, len, part, strlen(part)) != NULL;
    ax_free(text);
    return found;
}

static void a_run_is_logged_and_continued(void **state) {
    (void)state;
    configure("wandb_project: answers\nwandb_name: first\nwandb_entity: team\n");
    EXPECT(0, "tracker=wandb run=made-up-id url=https://wandb.test/run", config);
    json_t *all = calls();
    assert_string_equal(text_of(all, "init", "project"), "answers");
    assert_string_equal(text_of(all, "init", "entity"), "team");
    assert_string_equal(text_of(all, "init", "name"), "first");
    assert_string_equal(text_of(all, "init", "resume"), "allow");
    assert_string_equal(text_of(all, "init", "mode"), "online");
    json_t *given = json_object_get(json_array_get(call(all, "init", 0), 2), "config");
    assert_true(json_number_value(json_object_get(given, "learning_rate")) == 1e-3);
    for (int i = 0; i < 2; i++) {
        assert_true(value_of(all, "log", i, "train/global_step") == i + 1);
        assert_true(value_of(all, "log", i, "train/loss") == loss_of(i + 1));
        assert_true(value_of(all, "log", i, "train/memory_gib") > 0);
    }
    assert_null(call(all, "log", 2));
    assert_null(call(all, "artifact", 0));
    assert_true(arg_of(all, "finish", 0) == 0);
    json_decref(all);
    assert_true(contains("out/trackers.json", "\"made-up-id\""));

    /* the second process continues the run of the first, after its last step */
    assert_int_equal(unlink(in_scratch("calls")), 0);
    EXPECT(0, "trained 4 of 4 steps", config, "resume_from_checkpoint=auto", "max_steps=4");
    all = calls();
    assert_string_equal(text_of(all, "init", "id"), "made-up-id");
    assert_true(value_of(all, "log", 0, "train/global_step") == 3);
    assert_true(value_of(all, "log", 1, "train/loss") == loss_of(4));
    assert_null(call(all, "log", 2));
    json_decref(all);

    /* a run from the beginning is another one */
    assert_int_equal(ax_remove_tree(in_scratch("out/checkpoint-2")), AX_OK);
    assert_int_equal(ax_remove_tree(in_scratch("out/checkpoint-4")), AX_OK);
    assert_int_equal(unlink(in_scratch("out/config.json")), 0);
    assert_int_equal(unlink(in_scratch("out/model.safetensors")), 0);
    assert_int_equal(unlink(in_scratch("calls")), 0);
    EXPECT(0, "trained 2 of 2 steps", config);
    all = calls();
    assert_string_equal(text_of(all, "init", "id"), "");
    json_decref(all);
}

static void models_are_uploaded_if_asked(void **state) {
    (void)state;
    configure("wandb_project: p\nwandb_mode: offline\nwandb_log_model: checkpoint\n");
    EXPECT(0, "trained 2 of 2 steps", config);
    json_t *all = calls();
    assert_null(call(all, "login", 0)); /* nobody needs to know who this is */
    static const char *const names[] = {"checkpoint-2-made-up-id", "model-made-up-id"};
    for (int i = 0; i < 2; i++) {
        json_t *args = json_array_get(call(all, "artifact", i), 1), *file;
        bool weights = false;
        size_t k;
        assert_string_equal(json_string_value(json_array_get(args, 0)), names[i]);
        json_array_foreach(json_array_get(args, 1), k, file) {
            const char *name = json_string_value(json_array_get(file, 1));
            assert_true(json_is_true(json_array_get(file, 0)));
            weights = weights || strcmp(name, "model.safetensors") == 0;
            if (i == 1 && (strchr(name, '/') || strncmp(name, "tracker", 7) == 0 || name[0] == '.'))
                fail_msg("%s was uploaded", name);
        }
        assert_true(weights);
    }
    json_decref(all);
}

static void each_tracker_gets_the_same(void **state) {
    (void)state;
    configure("report_to: [mlflow, comet_ml, trackio, swanlab]\nmlflow_tracking_uri: file:x\n"
              "mlflow_experiment_name: e\ncomet_api_key: top-secret-3\ncomet_workspace: w\n"
              "swanlab_mode: local\nswanlab_api_key: top-secret-4\ntrackio_project_name: t\n"
              "comet_experiment_config: {name: n}\nval_set_size: 0.5\neval_steps: 2\n");
    char said[8192];
    char folder[160];
    snprintf(folder, sizeof folder, "output_dir=%s/out/", scratch);
    const char *const args[] = {
        config, "comet_api_key=top-secret-1", "--swanlab_api_key", "top-secret-2", "seed=7",
        folder};
    if (sft(said, sizeof said, 6, args) != 0)
        fail_msg("%s", said);
    json_t *all = calls();
    static const char *const logs[] = {"mlflow.log", "comet.log", "trackio.log", "swanlab.log"};
    for (size_t i = 0; i < sizeof logs / sizeof *logs; i++) {
        assert_true(arg_of(all, logs[i], 0) == 0); /* the evaluation of the base */
        assert_true(value_of(all, logs[i], 0, "eval/loss") > 0);
        assert_true(arg_of(all, logs[i], 1) == 1);
        assert_true(value_of(all, logs[i], 1, "train/loss") == loss_of(1));
        assert_true(arg_of(all, logs[i], 3) == 2);
        assert_true(value_of(all, logs[i], 3, "eval/mean_token_accuracy") >= 0);
        assert_null(call(all, logs[i], 4));
    }
    assert_true(contains("out/trackers.json", "\"mlflow\": {")); /* each under its own name */
    assert_true(contains("out/trackers.json", "\"comet\": {"));
    assert_string_equal(text_of(all, "mlflow.params", "learning_rate"), "0.001");
    assert_true(value_of(all, "comet.params", 0, "learning_rate") == 1e-3);
    assert_true(value_of(all, "comet.start", 0, "key_length") == strlen("top-secret-1"));
    assert_string_equal(text_of(all, "trackio.init", "name"), "out");
    assert_string_equal(text_of(all, "swanlab.init", "mode"), "local");
    static const char *const ends[] = {"mlflow.end", "comet.end", "trackio.finish",
                                       "swanlab.finish"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        assert_non_null(call(all, ends[i], 0));
    json_decref(all);
    /* keys are where they are needed, and nowhere else */
    assert_false(contains("calls", "top-secret"));
    assert_false(contains("out/run.json", "top-secret"));
    assert_true(contains("out/run.json", "\"comet_api_key=(hidden)\""));
    json_t *about = json_load_file(in_scratch("out/run.json"), 0, NULL);
    const json_t *words = json_object_get(about, "command");
    assert_int_equal(json_array_size(words), 8);
    assert_string_equal(json_string_value(json_array_get(words, 1)), "sft");
    assert_string_equal(json_string_value(json_array_get(words, 2)), config);
    assert_string_equal(json_string_value(json_array_get(words, 4)), "--swanlab_api_key");
    assert_string_equal(json_string_value(json_array_get(words, 5)), "(hidden)");
    assert_string_equal(json_string_value(json_array_get(words, 6)), "seed=7");
    json_decref(about);
    assert_false(contains("out/checkpoint-2/state/manifest.json", "top-secret"));
    assert_null(strstr(said, "top-secret"));
    assert_null(strstr(said, "chatter"));
    sft_command = "config";
    const char *const show[] = {"show", config}, *const json[] = {"show", config, "--json"};
    assert_int_equal(sft(said, sizeof said, 2, show), 0);
    assert_null(strstr(said, "top-secret"));
    assert_non_null(strstr(said, "comet_api_key: (hidden)"));
    assert_int_equal(sft(said, sizeof said, 3, json), 0);
    assert_null(strstr(said, "top-secret"));
    sft_command = "sft";
}

/* What a method measures beside the loss, of steps and evaluations, that of sampled answers included. */
static void measures_are_sent(void **state) {
    (void)state;
    static const char pairs[] =
        "{\"prompt\": \"say\", \"chosen\": \"two\", \"rejected\": \"no\"}\n";
    static const char prompts[] = "{\"prompt\": \"say yes\"}\n";
    static const struct {
        const char *rl, *record, *key;
    } cases[] = {
        {"rl: dpo\n", pairs, "rewards/margins"},
        {"reward_model: true\n", pairs, "accuracy"}, /* of pairs */
        {"rl: grpo\ntrl: {num_generations: 2, max_completion_length: 4, reward_funcs: "
         "['format:^y', 'length:4']}\n",
         prompts, "reward"},
    };
    sft_command = "train";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char more[512], data[512] = "", key[64];
        for (int k = 0; k < 8; k++)
            strcat(data, cases[i].record);
        snprintf(more, sizeof more, "report_to: mlflow\nval_set_size: 0.5\neval_steps: 2\n%s",
                 cases[i].rl);
        configure(more);
        put_text("rows.jsonl", data);
        EXPECT(0, "trained 2 of 2 steps", config, "datasets.0.type=null", "chat_template=null");
        json_t *all = calls();
        for (int step = 1; step <= 2; step++) {
            snprintf(key, sizeof key, "train/%s", cases[i].key);
            assert_true(value_of(all, "mlflow.log", step, key) ==
                        metric_of("out", cases[i].key, step));
        }
        assert_true(value_of(all, "mlflow.log", 2, "train/hfu") == metric_of("out", "hfu", 2));
        assert_null(json_object_get(json_array_get(call(all, "mlflow.log", 2), 2), "train/tokens"));
        if (i == 2) /* MLflow does not take the expression's characters */
            (void)value_of(all, "mlflow.log", 2, "train/rewards/format:_5e_y/mean");
        assert_true(arg_of(all, "mlflow.log", 3) == 2);
        char eval[64];
        snprintf(eval, sizeof eval, "eval_%s", cases[i].key);
        snprintf(key, sizeof key, "eval/%s", cases[i].key);
        assert_true(value_of(all, "mlflow.log", 3, key) == metric_of("out", eval, 2));
        json_decref(all);
        assert_int_equal(unlink(in_scratch("calls")), 0);
        assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
    }
    sft_command = "sft";
}

static void what_is_missing_stops_before_training(void **state) {
    (void)state;
    configure("wandb_project: p\n");
    setenv("AX_ILL", "stranger", 1);
    EXPECT(2,
           "wandb: Weights & Biases does not know you (UsageError: api_key not configured "
           "(no-tty)); run `wandb login`",
           config);
    setenv("AX_ILL", "wrong key", 1);
    EXPECT(2, "does not know you (RuntimeError: HTTP 401)", config);
    EXPECT(0, "trained 2 of 2 steps", config, "wandb_mode=offline");
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
    setenv("AXTRAIN_PYTHON", "/nowhere/python3", 1);
    EXPECT(2, "wandb: cannot start /nowhere/python3; install Python", config);
    unsetenv("AXTRAIN_PYTHON");
    assert_int_equal(unlink(in_scratch("py/wandb.py")), 0);
    make_folder("py/wandb"); /* a folder of that name is no package */
    EXPECT(2, "pip install wandb", config);
    assert_int_equal(unlink(in_scratch("py/mlflow.py")), 0);
    EXPECT(2, "mlflow: its Python package does not load (No module named 'mlflow'); pip install",
           config, "wandb_project=null", "report_to=mlflow");
    assert_false(ax_path_exists(in_scratch("out")));
}

static void a_failing_tracker_costs_one_warning(void **state) {
    (void)state;
    static const struct {
        const char *ill, *said;
    } cases[] = {
        {"raises", "wandb: RuntimeError: the server said no; training continues without it"},
        {"dies", "wandb: its process has ended; training continues without it"},
        {"no network", NULL},
    };
    configure("wandb_project: p\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char said[8192];
        const char *const args[] = {config, "max_steps=6"};
        setenv("AX_ILL", cases[i].ill, 1);
        assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
        assert_int_equal(sft(said, sizeof said, 2, args), 0);
        if (!strstr(said, "trained 6 of 6 steps") ||
            (cases[i].said && !strstr(said, cases[i].said)) ||
            count(said, "wandb: ") != (cases[i].said ? 1 : 0))
            fail_msg("%s: %s", cases[i].ill, said);
    }
}

/* Someone stops the run, or kills it: the tracker's run ends as one that failed, and is continued. */
static void a_stopped_run_is_told(void **state) {
    (void)state;
    configure("wandb_project: p\nresume_from_checkpoint: auto\n");
    setenv("AX_ILL", "stops the run", 1);
    EXPECT(75, "asked to stop after step", config, "max_steps=5000", "num_epochs=9999");
    json_t *all = calls();
    assert_true(arg_of(all, "finish", 0) == 1);
    json_decref(all);
    assert_true(contains("out/trackers.json", "\"made-up-id\""));

    assert_int_equal(unlink(in_scratch("calls")), 0);
    char said[8192];
    const char *const args[] = {config, "max_steps=5000", "num_epochs=9999"};
    setenv("AX_ILL", "kills the run", 1);
    assert_int_equal(sft(said, sizeof said, 3, args), -1);
    const double until = ax_clock_now() + 20;
    json_t *end = NULL;
    for (all = NULL; !end && ax_clock_now() < until; usleep(20000)) {
        json_decref(all);
        all = calls();
        end = call(all, "finish", 0);
    }
    assert_non_null(end);
    assert_true(arg_of(all, "finish", 0) == 1);
    assert_string_equal(text_of(all, "init", "id"), "made-up-id");
    json_decref(all);
}

/* A tracker as the training loop sees it, with little patience; what is said goes to a file. */
static double with_patience(const char *ill, const char *text, int records, char *said,
                            size_t size) {
    static const struct ax_tracker_patience little = {.check = 2, .end = 0.5, .upload_end = 60};
    static char line[1000];
    struct ax_config cfg;
    struct ax_trackers *t;
    const int saved = dup(STDERR_FILENO);
    const int to = open(in_scratch("said"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const uint64_t live = ax_mem_live_blocks();
    json_t *about = json_pack("{s{}}", "config");
    setenv("AX_ILL", ill, 1);
    ax_log_set_level(AX_LOG_WARN);
    assert_int_equal(ax_config_parse(&cfg, "c.yaml", text, strlen(text), 0, NULL), AX_OK);
    dup2(to, STDERR_FILENO);
    assert_int_equal(ax_tracker_open(&t, &cfg, &little), AX_OK);
    ax_tracker_describe(t, about, scratch);
    const double begin = ax_clock_now();
    const struct ax_metrics_sink sink = ax_tracker_sink(t);
    memset(line, ' ', sizeof line - 1);
    memcpy(line, "{\"step\": 1, \"loss\": 2}", 22);
    line[sizeof line - 1] = '\n';
    sink.begin(sink.ctx, 0);
    for (int i = 0; i < records; i++)
        sink.record(sink.ctx, line, sizeof line);
    ax_tracker_close(t, true);
    const double seconds = ax_clock_now() - begin;
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(to);
    ax_config_free(&cfg);
    json_decref(about);
    assert_int_equal(ax_mem_live_blocks(), live);
    char *got;
    size_t len;
    assert_int_equal(ax_read_file(in_scratch("said"), size - 1, &got, &len), AX_OK);
    memcpy(said, got, len + 1);
    ax_free(got);
    return seconds;
}

static void a_hanging_tracker_is_not_waited_for(void **state) {
    (void)state;
    static const struct {
        const char *ill;
        int records;
        const char *said;
    } cases[] = {
        {"hangs", 20000, "wandb: it is too slow, so records were not sent to it"},
        {"hangs", 3, "wandb: it did not end in time"},
        {"hangs at the end", 3, "wandb: it did not end in time"},
        {"hangs at the start", 20000, "wandb: no answer from its Python package"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char said[4096];
        const double seconds =
            with_patience(cases[i].ill, "wandb_project: p\n", cases[i].records, said, sizeof said);
        if (!strstr(said, cases[i].said) || count(said, "wandb: ") != 1 || seconds > 3)
            fail_msg("%s, %d records: %.1f s, %s", cases[i].ill, cases[i].records, seconds, said);
    }
}

static void an_upload_is_waited_for(void **state) {
    (void)state;
    static const char *const texts[] = {"wandb_project: p\n",
                                        "wandb_project: p\nwandb_log_model: end\n"};
    for (int i = 0; i < 2; i++) {
        char said[4096];
        (void)with_patience("ends late", texts[i], 3, said, sizeof said);
        if ((strstr(said, "wandb: it did not end in time") != NULL) != (i == 0))
            fail_msg("%s: %s", texts[i], said);
    }
}

static void keys_turn_trackers_on(void **state) {
    (void)state;
    static const struct {
        const char *text, *json;
    } cases[] = {
        {"use_mlflow: false\nreport_to: none\n", "{}"},
        {"wandb_project: p\nwandb_mode: disabled\nswanlab_project: s\nswanlab_mode: disabled\n",
         "{}"},
        {"report_to: [tensorboard, wandb]\nwandb_run_id: 7\nwandb_log_model: 'false'\n",
         "{\"wandb\":{\"run_id\":\"7\"}}"},
        {"use_mlflow: true\nhf_mlflow_log_artifacts: true\nmlflow_run_name: n\n",
         "{\"mlflow\":{\"log_model\":\"checkpoint\",\"name\":\"n\"}}"},
        {"use_comet: true\ncomet_online: false\ncomet_mode: create\n",
         "{\"comet\":{\"mode\":\"create\",\"online\":false}}"},
        {"trackio_project_name: t\ntrackio_space_id: a/b\nuse_swanlab: true\nswanlab_mode: local\n",
         "{\"swanlab\":{\"mode\":\"local\"},\"trackio\":{\"project\":\"t\",\"space_id\":\"a/b\"}}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_config cfg;
        json_t *settings;
        assert_int_equal(
            ax_config_parse(&cfg, "c.yaml", cases[i].text, strlen(cases[i].text), 0, NULL), AX_OK);
        assert_int_equal(ax_tracker_settings(&cfg, &settings), AX_OK);
        char *text = json_dumps(settings, JSON_COMPACT | JSON_SORT_KEYS);
        assert_string_equal(text, cases[i].json);
        assert_true(ax_tracker_is_on(&cfg, "tensorboard") == (i == 2));
        ax_free(text);
        json_decref(settings);
        ax_config_free(&cfg);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, start, scratch_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(an_upload_is_waited_for),
        cmocka_unit_test(keys_turn_trackers_on),
        TEST(a_run_is_logged_and_continued),
        TEST(models_are_uploaded_if_asked),
        TEST(each_tracker_gets_the_same),
        TEST(measures_are_sent),
        TEST(what_is_missing_stops_before_training),
        TEST(a_failing_tracker_costs_one_warning),
        TEST(a_stopped_run_is_told),
        TEST(a_hanging_tracker_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

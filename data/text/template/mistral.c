/* The chat formats of Mistral's own tokenizers: what the mistral-common package makes of a conversation,
 * as templates. Messages of one role that follow each other are one, joined by an empty line; the tools
 * are at the last question (from v13 on the first). A format is its parts in the order below. */
#include "data/text/template/mistral.h"

#include <string.h>

#include "base/text/json.h"
#include "base/mem.h"
#include "data/text/vocab/mistral_files.h"

enum { MAX_FILE = 256 << 20 };

/* ---- what all have ---- */

#define MACROS(glue)                                                                               \
    "{%- macro text(content) %}\n"                                                                 \
    "    {%- if content is string %}{{- content }}\n"                                              \
    "    {%- elif content %}\n"                                                                    \
    "        {{- content | selectattr('type', 'equalto', 'text') | map(attribute='text') | select" \
    " | join('" glue "') }}\n"                                                                     \
    "    {%- endif %}\n"                                                                           \
    "{%- endmacro %}\n"                                                                            \
    "{%- macro json(value) %}\n"                                                                   \
    "    {%- if not value %}{{- '{}' }}\n"                                                         \
    "    {%- elif value is string %}{{- value | json_text }}\n"                                    \
    "    {%- else %}{{- value | tojson }}\n"                                                       \
    "    {%- endif %}\n"                                                                           \
    "{%- endmacro %}\n"                                                                            \
    "{%- macro tool_list() %}\n"                                                                   \
    "    {{- '[AVAILABLE_TOOLS][' }}\n"                                                            \
    "    {%- for tool in tools %}\n"                                                               \
    "        {%- set f = tool.function %}\n"                                                       \
    "        {{- '{\"type\": \"function\", \"function\": {\"name\": ' ~ f.name | tojson }}\n"      \
    "        {{- ', \"description\": ' ~ (f.description or '') | tojson }}\n"                      \
    "        {{- ', \"parameters\": ' ~ json(f.parameters) ~ '}}' }}\n"                            \
    "        {{- '' if loop.last else ', ' }}\n"                                                   \
    "    {%- endfor %}\n"                                                                          \
    "    {{- '][/AVAILABLE_TOOLS]' }}\n"                                                           \
    "{%- endmacro %}\n"

/* Messages → ns.turns. `thought` is what becomes of an answer's reasoning, if that is there; an answer that has
 * `said` something ends in text, from which the next one's is kept apart. */
#define GATHER(system, thought, calls_and_text, result)                                            \
    "{%- set ns = namespace(turns=[], last='', system='', at=-1, ids=[]) %}\n"                     \
    "{%- for m in messages %}\n"                                                                   \
    "    {%- set words = text(m.content) %}\n"                                                     \
    "    {%- set before = ns.turns[-1] if ns.last == m.role else none %}\n"                        \
    "    {%- if m.role == 'system' %}\n" system "    {%- elif m.role == 'user' %}\n"               \
    "        {%- if before %}\n"                                                                   \
    "            {%- set words = [before.text, words] | select | join('\\n\\n') %}\n"              \
    "            {%- set ns.turns = ns.turns[:-1] %}\n"                                            \
    "        {%- endif %}\n"                                                                       \
    "        {%- set ns.turns = ns.turns + [{'role': 'user', 'text': words}] %}\n"                 \
    "    {%- elif m.role == 'assistant' %}\n"                                                      \
    "        {%- set calls = m.tool_calls or [] %}\n"                                              \
    "        {%- set thought = m.reasoning_content or '' %}\n"                                     \
    "        {%- set said = words or (before and before.said and not thought) %}\n" thought        \
    "        {%- if before %}\n"                                                                   \
    "            {%- set gap = '\\n\\n' if before.said and not thought else '' %}\n"               \
    "            {%- set words = [before.text, words] | select | join(gap) %}\n"                   \
    "            {%- set calls = before.calls + calls %}\n"                                        \
    "            {%- set thought = before.thought or thought %}\n"                                 \
    "            {%- set ns.turns = ns.turns[:-1] %}\n"                                            \
    "        {%- endif %}\n" calls_and_text                                                        \
    "        {%- set ns.turns = ns.turns + [{'role': 'assistant', 'text': words, 'said': said,\n"  \
    "                                        'calls': calls, 'thought': thought}] %}\n"            \
    "    {%- elif m.role == 'tool' %}\n" result                                                    \
    "        {%- set result = {'id': m.tool_call_id, 'name': m.name, 'text': words} %}\n"          \
    "        {%- set results = (before.results if before else []) + [result] %}\n"                 \
    "        {%- set ns.turns = ns.turns[:-1] if before else ns.turns %}\n"                        \
    "        {%- set ns.turns = ns.turns + [{'role': 'tool', 'results': results}] %}\n"            \
    "    {%- else %}\n"                                                                            \
    "        {{- raise_exception('the role ' ~ m.role ~ ' is not system, user, assistant or "      \
    "tool')"                                                                                       \
    " }}\n"                                                                                        \
    "    {%- endif %}\n"                                                                           \
    "    {%- set ns.last = m.role %}\n"                                                            \
    "{%- endfor %}\n"

#define NEEDS_ID                                                                                   \
    "        {%- if m.tool_call_id is not defined %}\n"                                            \
    "            {{- raise_exception('the result of a tool has no tool_call_id') }}\n"             \
    "        {%- endif %}\n"
#define NO_RESULT "        {{- raise_exception('tools need a tokenizer of version v2') }}\n"
#define NO_CALLS                                                                                   \
    "        {%- if calls %}\n"                                                                    \
    "            {{- raise_exception('tools need a tokenizer of version v2') }}\n"                 \
    "        {%- endif %}\n"
#define NO_THOUGHT                                                                                 \
    "        {%- if thought %}\n"                                                                  \
    "            {{- raise_exception('reasoning needs a tokenizer of version v13') }}\n"           \
    "        {%- endif %}\n"
#define THOUGHT                                                                                    \
    "        {%- if thought %}\n"                                                                  \
    "            {%- set words = '[THINK]' ~ thought ~ '[/THINK]' ~ words %}\n"                    \
    "        {%- endif %}\n"
#define NOT_BOTH                                                                                   \
    "        {%- if calls and words %}\n"                                                          \
    "            {{- raise_exception('an answer has both text and tool calls') }}\n"               \
    "        {%- endif %}\n"
#define NEEDS_QUESTION(condition)                                                                  \
    "{%- if " condition " %}\n"                                                                    \
    "    {%- set ns.turns = [{'role': 'user', 'text': ''}] + ns.turns %}\n"                        \
    "{%- endif %}\n"

/* Writes ns.turns; `tools_at` is the question that has them. */
#define WRITE(tools_at, settings, question, left_out, answer, calls, results)                      \
    "{%- for t in ns.turns if t.role == 'user' %}{%- set ns.at = ns.at + 1 %}{%- endfor %}\n"      \
    "{%- set ns.last = ns.at %}\n"                                                                 \
    "{%- set ns.at = -1 %}\n"                                                                      \
    "{{- '<s>' }}\n"                                                                               \
    "{%- for t in ns.turns %}\n"                                                                   \
    "    {%- if t.role == 'system' %}{{- '[SYSTEM_PROMPT]' ~ t.text ~ '[/SYSTEM_PROMPT]' }}\n"     \
    "    {%- elif t.role == 'user' %}\n"                                                           \
    "        {%- set ns.at = ns.at + 1 %}\n"                                                       \
    "        {%- if tools and ns.at == " tools_at " %}{{- tool_list() }}{%- endif %}\n" settings   \
    "        {{- '[INST]' ~ " question " ~ '[/INST]' }}\n" left_out                                \
    "    {%- elif t.role == 'assistant' %}\n"                                                      \
    "        {%- if not t.text and not t.calls %}\n"                                               \
    "            {{- raise_exception('an answer has neither text nor tool calls') }}\n"            \
    "        {%- endif %}\n" answer "        {%- for call in t.calls %}\n"                         \
    "            {%- set others = ns.ids | reject('equalto', call.id) | list %}\n"                 \
    "            {%- set ns.ids = others + [call.id] %}\n"                                         \
    "            {%- set f = call.function %}\n" calls "        {%- endfor %}\n"                   \
    "        {{- '</s>' }}\n"                                                                      \
    "    {%- else %}\n" results "        {%- set ns.ids = [] %}\n"                                 \
    "    {%- endif %}\n"                                                                           \
    "{%- endfor %}\n"

/* ---- what differs ---- */

/* One list of JSON objects for all calls of an answer. */
#define CALL_LIST                                                                                  \
    "            {{- '[TOOL_CALLS][' if loop.first else ', ' }}\n"                                 \
    "            {{- '{\"name\": ' ~ f.name | tojson ~ ', \"arguments\": ' ~ json(f.arguments) "   \
    "}}\n"                                                                                         \
    "            {{- ', \"id\": ' ~ call.id | tojson if call.id and call.id != 'null' }}\n"        \
    "            {{- '}]' if loop.last else '}' }}\n"
#define CALL(id) "            {{- '[TOOL_CALLS]' ~ f.name ~ " id "'[ARGS]' ~ json(f.arguments) }}\n"
#define CALL_ID  "('[CALL_ID]' ~ call.id if call.id and call.id != 'null' else '') ~ "

/* In the order given, or in that of the calls and then the others. */
#define EACH_RESULT(write) "        {%- for r in t.results %}\n" write "        {%- endfor %}\n"
#define EACH_CALLED(write)                                                                         \
    "        {%- for id in ns.ids %}\n"                                                            \
    "            {%- for r in t.results if r.id == id %}\n" write "            {%- endfor %}\n"    \
    "        {%- endfor %}\n"                                                                      \
    "        {%- for r in t.results if r.id not in ns.ids %}\n" write "        {%- endfor %}\n"
#define RESULT_JSON                                                                                \
    "            {{- '[TOOL_RESULTS]{\"content\": ' ~ json(r.text) ~ ', \"call_id\": ' }}\n"       \
    "            {{- r.id | tojson ~ '}[/TOOL_RESULTS]' }}\n"
#define RESULT_ID                                                                                  \
    "            {{- '[TOOL_RESULTS]' ~ r.id ~ '[TOOL_CONTENT]' ~ r.text ~ '[/TOOL_RESULTS]' }}\n"
#define RESULT "            {{- '[TOOL_RESULTS]' ~ r.text ~ '[/TOOL_RESULTS]' }}\n"

/* v2 leaves out what tools did before the last question, and has one result for a call. */
#define OLD_TOOLS "    {%- elif ns.at < ns.last and (t.calls or t.results) %}\n"
#define CALL_PLAIN                                                                                 \
    "            {{- '[TOOL_CALLS][' if loop.first else ', ' }}\n"                                 \
    "            {{- '{\"name\": ' ~ f.name | tojson ~ ', \"arguments\": ' ~ json(f.arguments) }}" \
    "\n"                                                                                           \
    "            {{- '}]' if loop.last else '}' }}\n"
#define ONE_RESULT                                                                                 \
    "        {%- if t.results | length > 1 and ns.ids %}\n"                                        \
    "            {{- raise_exception('v2 has one result of a tool for an answer') }}\n"            \
    "        {%- endif %}\n"                                                                       \
    "        {%- for r in t.results %}\n"                                                          \
    "            {{- '[TOOL_RESULTS][{\"name\": ' ~ r.name | tojson ~ ', \"content\": ' }}\n"      \
    "            {{- json(r.text) ~ '}][/TOOL_RESULTS]' }}\n"                                      \
    "        {%- endfor %}\n"

/* Text after text of the same stretch begins with a blank, as SentencePiece begins each text. */
#define ANSWER "        {{- t.text if t.thought else t.text.rstrip(' ') }}\n"
#define BLANK_BETWEEN                                                                              \
    "        {{- ' ' if not loop.first and ns.turns[loop.index0 - 1].role == 'user' }}\n"
#define BLANK_ANSWER BLANK_BETWEEN "        {{- t.text }}\n"

/* v15: what the file says of the model's settings where a conversation does not. */
#define SETTINGS "        {%- if ns.at == 0 %}{{- settings }}{%- endif %}\n"

#define SYSTEM_FIRST "        {%- set ns.system = [ns.system, words] | select | join('\\n\\n') %}\n"
#define SYSTEM_TURN  "        {%- set ns.turns = ns.turns + [{'role': 'system', 'text': words}] %}\n"
#define WITH_SYSTEM  "(ns.system ~ '\\n\\n' if ns.system and ns.at == ns.last else '') ~ t.text"
#define FIRST_SYSTEM                                                                               \
    "' ' ~ (ns.system ~ '\\n\\n' if ns.system and ns.at == 0 else '') ~ t.text ~ ' '"
#define BLOCKS "\\n\\n" /* between the parts of a message */

static const struct {
    const char *version, *source;
} formats[] = {
    {"v1", MACROS(BLOCKS) GATHER(SYSTEM_FIRST, NO_THOUGHT, NO_CALLS, NO_RESULT)
               NEEDS_QUESTION("not ns.turns or ns.turns[0].role != 'user'")
                   WRITE("-2", BLANK_BETWEEN, FIRST_SYSTEM, "", BLANK_ANSWER, "", "")},
    {"v2", MACROS(BLOCKS) GATHER(SYSTEM_FIRST, NO_THOUGHT, NOT_BOTH, "")
               NEEDS_QUESTION("not ns.turns or ns.turns[0].role != 'user'")
                   WRITE("ns.last", "", WITH_SYSTEM, OLD_TOOLS, ANSWER, CALL_PLAIN, ONE_RESULT)},
    {"v3", MACROS(BLOCKS) GATHER(SYSTEM_FIRST, NO_THOUGHT, NOT_BOTH, NEEDS_ID)
               NEEDS_QUESTION("not ns.turns or ns.turns[0].role != 'user'") WRITE(
                   "ns.last", "", WITH_SYSTEM, "", ANSWER, CALL_LIST, EACH_RESULT(RESULT_JSON))},
    {"v7",
     MACROS(BLOCKS) GATHER(SYSTEM_TURN, NO_THOUGHT, "", NEEDS_ID) NEEDS_QUESTION("not ns.turns")
         WRITE("ns.last", "", "t.text", "", ANSWER, CALL_LIST, EACH_RESULT(RESULT_ID))},
    {"v11",
     MACROS(BLOCKS) GATHER(SYSTEM_TURN, NO_THOUGHT, "", NEEDS_ID) NEEDS_QUESTION("not ns.turns")
         WRITE("ns.last", "", "t.text", "", ANSWER, CALL(CALL_ID), EACH_CALLED(RESULT_ID))},
    {"v13", MACROS(BLOCKS) GATHER(SYSTEM_TURN, THOUGHT, "", NEEDS_ID) NEEDS_QUESTION("not ns.turns")
                WRITE("0", "", "t.text", "", ANSWER, CALL(""), EACH_CALLED(RESULT))},
    {"v15", MACROS("") GATHER(SYSTEM_TURN, THOUGHT, "", NEEDS_ID) NEEDS_QUESTION("not ns.turns")
                WRITE("0", SETTINGS, "t.text", "", ANSWER, CALL(""), EACH_CALLED(RESULT))},
};

static enum ax_status read_word(struct ax_json v, const char **out) {
    AX_TRY(ax_json_str(v, out));
    return **out && (*out)[strspn(*out, "abcdefghijklmnopqrstuvwxyz_")] == '\0'
               ? AX_OK
               : ax_json_error(v, "expected a word");
}

/* Refuses an effort that the file does not list. */
static enum ax_status add_values(struct ax_buf *source, struct ax_json values) {
    if (ax_json_size(values) == 0)
        return ax_json_error(values, "expected a list of words");
    AX_TRY(ax_buf_puts(source, "{%- if effort is not none and effort not in ["));
    for (size_t i = 0; i < ax_json_size(values); i++) {
        const char *word;
        AX_TRY(read_word(ax_json_at(values, i), &word));
        AX_TRY(ax_buf_printf(source, "'%s', ", word));
    }
    return ax_buf_puts(
        source, "] %}\n"
                "    {{- raise_exception('reasoning_effort: the model has no ' ~ effort) }}\n"
                "{%- endif %}\n");
}

/* The model's only setting, reasoning_effort: what a conversation says, or else the file's default. */
static enum ax_status add_effort(struct ax_buf *source, struct ax_json field) {
    const struct ax_json usual = ax_json_get(field, "default");
    const char *word = NULL;
    bool may_lack;
    if (!json_is_null(json_object_get(field.v, "default")))
        AX_TRY(read_word(usual, &word));
    AX_TRY(ax_json_bool_or(ax_json_get(field, "accepts_none"), false, &may_lack));
    AX_TRY(ax_buf_puts(source, "{%- set effort = reasoning_effort | default(none) %}\n"));
    if (word)
        AX_TRY(ax_buf_printf(source, "{%%- set effort = '%s' if effort is none else effort %%}\n",
                             word));
    else if (!may_lack)
        AX_TRY(ax_buf_puts(source,
                           "{%- if effort is none %}\n"
                           "    {{- raise_exception('the model needs reasoning_effort') }}\n"
                           "{%- endif %}\n"));
    AX_TRY(add_values(source, ax_json_get(field, "values")));
    return ax_buf_puts(
        source, "{%- if effort is not none %}\n"
                "    {%- set settings = '[MODEL_SETTINGS]{\"reasoning_effort\": \"' ~ effort ~\n"
                "                       '\"}[/MODEL_SETTINGS]' %}\n"
                "{%- endif %}\n");
}

/* Lines before the template, by which it knows the model's settings. */
static enum ax_status add_settings(struct ax_buf *source, const char *path) {
    struct ax_json_doc doc;
    AX_TRY(ax_json_load(&doc, path, MAX_FILE));
    const struct ax_json builder = ax_json_get(ax_json_root(&doc), "model_settings_builder");
    const struct ax_json field = ax_json_get(builder, "reasoning_effort");
    enum ax_status st = AX_OK;
    if (!builder.v)
        st = ax_json_error(ax_json_root(&doc),
                           "model_settings_builder is missing, which v15 needs for chats");
    else if (field.v)
        st = add_effort(source, field);
    ax_json_free(&doc);
    return st;
}

static enum ax_status compile(struct ax_template **out, const char *path, const char *version,
                              const char *format) {
    struct ax_buf source = {0};
    enum ax_status st = strcmp(version, "v15") == 0 ? add_settings(&source, path) : AX_OK;
    if (st == AX_OK)
        st = ax_buf_puts(&source, format);
    if (st == AX_OK)
        st = ax_template_compile(out, path, source.data, source.len);
    ax_buf_free(&source);
    return st;
}

enum ax_status ax_template_mistral(struct ax_template **out, const char *path) {
    char version[AX_MISTRAL_VERSION];
    AX_TRY(ax_mistral_version(path, version));
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(version, formats[i].version) == 0)
            return compile(out, path, version, formats[i].source);
    return ax_error(AX_ERR_UNSUPPORTED,
                    "%s: version \"%s\" is not one of v1, v2, v3, v7, v11, v13, v15", path,
                    version);
}

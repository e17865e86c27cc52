/* The chat formats of Mistral's own tokenizers: what the mistral-common package makes of a conversation,
 * as templates. Messages of one role that follow each other are one, joined by an empty line; the tools
 * are at the last question (from v13 on the first). A format is its parts in the order below. */
#include "data/template/tekken.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"

enum { MAX_FILE = 256 << 20 };

/* ---- what all have ---- */

#define MACROS                                                                                     \
    "{%- macro text(content) %}\n"                                                                 \
    "    {%- if content is string %}{{- content }}\n"                                              \
    "    {%- elif content %}\n"                                                                    \
    "        {{- content | selectattr('type', 'equalto', 'text') | map(attribute='text') | select" \
    " | join('\\n\\n') }}\n"                                                                       \
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

/* Messages → ns.turns. `thought` is what becomes of an answer's reasoning, if that is there. */
#define GATHER(system, thought, calls_and_text)                                                    \
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
    "        {%- set thought = m.reasoning_content or '' %}\n" thought calls_and_text              \
    "        {%- if before %}\n"                                                                   \
    "            {%- set gap = '' if thought else '\\n\\n' %}\n"                                   \
    "            {%- set words = [before.text, words] | select | join(gap) %}\n"                   \
    "            {%- set calls = before.calls + calls %}\n"                                        \
    "            {%- set thought = before.thought or thought %}\n"                                 \
    "            {%- set ns.turns = ns.turns[:-1] %}\n"                                            \
    "        {%- endif %}\n"                                                                       \
    "        {%- set ns.turns = ns.turns + [{'role': 'assistant', 'text': words,\n"                \
    "                                        'calls': calls, 'thought': thought}] %}\n"            \
    "    {%- elif m.role == 'tool' %}\n"                                                           \
    "        {%- if m.tool_call_id is not defined %}\n"                                            \
    "            {{- raise_exception('the result of a tool has no tool_call_id') }}\n"             \
    "        {%- endif %}\n"                                                                       \
    "        {%- set result = {'id': m.tool_call_id, 'text': words} %}\n"                          \
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
#define WRITE(tools_at, question, calls, results)                                                  \
    "{%- for t in ns.turns if t.role == 'user' %}{%- set ns.at = ns.at + 1 %}{%- endfor %}\n"      \
    "{%- set ns.last = ns.at %}\n"                                                                 \
    "{%- set ns.at = -1 %}\n"                                                                      \
    "{{- '<s>' }}\n"                                                                               \
    "{%- for t in ns.turns %}\n"                                                                   \
    "    {%- if t.role == 'system' %}{{- '[SYSTEM_PROMPT]' ~ t.text ~ '[/SYSTEM_PROMPT]' }}\n"     \
    "    {%- elif t.role == 'user' %}\n"                                                           \
    "        {%- set ns.at = ns.at + 1 %}\n"                                                       \
    "        {%- if tools and ns.at == " tools_at " %}{{- tool_list() }}{%- endif %}\n"            \
    "        {{- '[INST]' ~ " question " ~ '[/INST]' }}\n"                                         \
    "    {%- elif t.role == 'assistant' %}\n"                                                      \
    "        {%- if not t.text and not t.calls %}\n"                                               \
    "            {{- raise_exception('an answer has neither text nor tool calls') }}\n"            \
    "        {%- endif %}\n"                                                                       \
    "        {{- t.text if t.thought else t.text.rstrip(' ') }}\n"                                 \
    "        {%- for call in t.calls %}\n"                                                         \
    "            {%- set ns.ids = ns.ids + [call.id] %}\n"                                         \
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

#define SYSTEM_FIRST "        {%- set ns.system = [ns.system, words] | select | join('\\n\\n') %}\n"
#define SYSTEM_TURN  "        {%- set ns.turns = ns.turns + [{'role': 'system', 'text': words}] %}\n"
#define WITH_SYSTEM  "(ns.system ~ '\\n\\n' if ns.system and ns.at == ns.last else '') ~ t.text"

static const struct {
    const char *version, *source;
} formats[] = {
    {"v3", MACROS GATHER(SYSTEM_FIRST, NO_THOUGHT, NOT_BOTH)
               NEEDS_QUESTION("not ns.turns or ns.turns[0].role != 'user'")
                   WRITE("ns.last", WITH_SYSTEM, CALL_LIST, EACH_RESULT(RESULT_JSON))},
    {"v7", MACROS GATHER(SYSTEM_TURN, NO_THOUGHT, "") NEEDS_QUESTION("not ns.turns")
               WRITE("ns.last", "t.text", CALL_LIST, EACH_RESULT(RESULT_ID))},
    {"v11", MACROS GATHER(SYSTEM_TURN, NO_THOUGHT, "") NEEDS_QUESTION("not ns.turns")
                WRITE("ns.last", "t.text", CALL(CALL_ID), EACH_CALLED(RESULT_ID))},
    {"v13", MACROS GATHER(SYSTEM_TURN, THOUGHT, "") NEEDS_QUESTION("not ns.turns")
                WRITE("0", "t.text", CALL(""), EACH_CALLED(RESULT))},
};

enum ax_status ax_template_tekken(struct ax_template **out, const char *path) {
    struct ax_json_doc doc;
    const char *version;
    AX_TRY(ax_json_load(&doc, path, MAX_FILE));
    const struct ax_json v = ax_json_get(ax_json_get(ax_json_root(&doc), "config"), "version");
    enum ax_status st;
    AX_TRY_GOTO(ax_json_str(v, &version), st, done);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(version, formats[i].version) == 0) {
            st = ax_template_compile(out, path, formats[i].source, strlen(formats[i].source));
            goto done;
        }
    ax_json_error(v, "version \"%.20s\" is not one of v3, v7, v11, v13", version);
    st = AX_ERR_UNSUPPORTED;
done:
    ax_json_free(&doc);
    return st;
}

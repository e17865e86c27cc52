/* The built-in chat templates of the Gemma models; the others are in named_tables.c. */
#include "data/text/template/named.h"

/* Up to Gemma 3: `first` is text inserted before that of the first turn, `part` prints one part
 * of content. */
#define GEMMA_TURNS(part)                                                                          \
    "{%- for m in turns %}\n"                                                                      \
    "    {%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}\n"                              \
    "        {{- raise_exception('Conversation roles must alternate "                              \
    "user/assistant/user/assistant/...') }}\n"                                                     \
    "    {%- endif %}\n"                                                                           \
    "    {{- '<start_of_turn>' + ('model' if m['role'] == 'assistant' else m['role']) + '\\n' "    \
    "}}\n"                                                                                         \
    "    {{- first if loop.first else '' }}\n"                                                     \
    "    {%- if m['content'] is string %}{{- m['content'] | trim }}\n"                             \
    "    {%- elif m['content'] is iterable %}{%- for part in m['content'] %}" part                 \
    "{%- endfor %}\n"                                                                              \
    "    {%- else %}{{- raise_exception('Invalid content type') }}\n"                              \
    "    {%- endif %}\n"                                                                           \
    "    {{- '<end_of_turn>\\n' }}\n"                                                              \
    "{%- endfor %}\n"                                                                              \
    "{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{%- endif %}\n"

#define PART_TEXT "{{- part['text'] | trim }}"

const char ax_template_gemma[] = "{{- bos_token }}\n"
                                 "{%- if messages[0]['role'] == 'system' %}\n"
                                 "    {{- raise_exception('System role not supported') }}\n"
                                 "{%- endif %}\n"
                                 "{%- set turns, first = messages, '' %}\n" GEMMA_TURNS(
                                     "{%- if 'text' in part %}" PART_TEXT "{%- endif %}");

/* The system text opens the first turn. */
#define GEMMA3_SYSTEM                                                                              \
    "{{- bos_token }}\n"                                                                           \
    "{%- set turns, first = messages, '' %}\n"                                                     \
    "{%- if messages[0]['role'] == 'system' %}\n"                                                  \
    "    {%- set first = messages[0]['content'] %}\n"                                              \
    "    {%- if first is not string %}\n"                                                          \
    "        {%- set first = first | selectattr('text', 'defined') | map(attribute='text') | "     \
    "join('') %}\n"                                                                                \
    "    {%- endif %}\n"                                                                           \
    "    {%- set turns, first = messages[1:], first + '\\n\\n' %}\n"                               \
    "{%- endif %}\n"

#define IF_PART(type, token) "if part['type'] == '" type "' %}{{- '" token "' }}"
#define PART_ELSE_TEXT       "{%- elif part['type'] == 'text' %}" PART_TEXT "{%- endif %}"

const char ax_template_gemma3[] =
    GEMMA3_SYSTEM GEMMA_TURNS("{%- " IF_PART("image", "<start_of_image>") PART_ELSE_TEXT);

const char ax_template_gemma3n[] = GEMMA3_SYSTEM GEMMA_TURNS("{%- " IF_PART(
    "audio", "<audio_soft_token>") "{%- el" IF_PART("image", "<image_soft_token>") PART_ELSE_TEXT);

/* ---- Gemma 4 ----
 *
 * Values are written in the model's own notation: <|"|>strings<|"|>, {keys:in order}, [lists]. */
#define GEMMA4_VALUES                                                                              \
    "{%- macro quoted(text) %}{{- '<|\"|>' ~ text ~ '<|\"|>' }}{%- endmacro %}\n"                  \
    "{%- macro quoted_list(texts) %}\n"                                                            \
    "    {%- for text in texts %}{{- quoted(text) ~ ('' if loop.last else ',') }}{%- endfor %}\n"  \
    "{%- endmacro %}\n"                                                                            \
    "{%- macro value(v, quote_keys) %}\n"                                                          \
    "    {%- if v is string %}{{- quoted(v) }}\n"                                                  \
    "    {%- elif v is boolean %}{{- 'true' if v else 'false' }}\n"                                \
    "    {%- elif v is mapping %}{{- '{' ~ members(v, quote_keys) ~ '}' }}\n"                      \
    "    {%- elif v is sequence %}\n"                                                              \
    "        {{- '[' }}\n"                                                                         \
    "        {%- for x in v %}{{- value(x, quote_keys) ~ ('' if loop.last else ',') }}{%- endfor " \
    "%}\n"                                                                                         \
    "        {{- ']' }}\n"                                                                         \
    "    {%- else %}{{- v }}\n"                                                                    \
    "    {%- endif %}\n"                                                                           \
    "{%- endmacro %}\n"                                                                            \
    "{%- macro members(map, quote_keys) %}\n"                                                      \
    "    {%- for key, v in map | dictsort %}\n"                                                    \
    "        {{- (quoted(key) if quote_keys else key) ~ ':' ~ value(v, quote_keys) }}\n"           \
    "        {{- '' if loop.last else ',' }}\n"                                                    \
    "    {%- endfor %}\n"                                                                          \
    "{%- endmacro %}\n"

/* A JSON schema: fields in a fixed order, the type last and in capitals. */
#define GEMMA4_SCHEMA                                                                              \
    "{%- macro item_schema(items) %}\n"                                                            \
    "    {%- for key, v in items | dictsort if v is not none %}\n"                                 \
    "        {{- key ~ ':' }}\n"                                                                   \
    "        {%- if key == 'properties' %}\n"                                                      \
    "            {{- '{' ~ (schemas(v, []) if v is mapping else '') ~ '}' }}\n"                    \
    "        {%- elif key == 'required' %}{{- '[' ~ quoted_list(v) ~ ']' }}\n"                     \
    "        {%- elif key == 'type' and v is string %}{{- quoted(v | upper) }}\n"                  \
    "        {%- elif key == 'type' %}{{- value(v | map('upper') | list, true) }}\n"               \
    "        {%- else %}{{- value(v, true) }}\n"                                                   \
    "        {%- endif %}\n"                                                                       \
    "        {{- '' if loop.last else ',' }}\n"                                                    \
    "    {%- endfor %}\n"                                                                          \
    "{%- endmacro %}\n"                                                                            \
    "{%- macro schemas(properties, hidden) %}\n"                                                   \
    "    {%- set all = namespace(fields=[]) %}\n"                                                  \
    "    {%- for key, s in properties | dictsort if key not in hidden %}\n"                        \
    "        {%- set type = s['type'] | upper %}\n"                                                \
    "        {%- set its = namespace(fields=[]) %}\n"                                              \
    "        {%- if s['description'] %}\n"                                                         \
    "            {%- set its.fields = ['description:' ~ quoted(s['description'])] %}\n"            \
    "        {%- endif %}\n"                                                                       \
    "        {%- if type == 'STRING' and s['enum'] %}\n"                                           \
    "            {%- set its.fields = its.fields + ['enum:' ~ value(s['enum'], true)] %}\n"        \
    "        {%- elif type == 'ARRAY' and s['items'] is mapping and s['items'] %}\n"               \
    "            {%- set its.fields = its.fields + ['items:{' ~ item_schema(s['items']) ~ '}'] "   \
    "%}\n"                                                                                         \
    "        {%- endif %}\n"                                                                       \
    "        {%- if s['nullable'] %}{%- set its.fields = its.fields + ['nullable:true'] %}{%- "    \
    "endif %}\n"                                                                                   \
    "        {%- if type == 'OBJECT' %}\n"                                                         \
    "            {%- set inner = schemas(s['properties'], []) if s['properties'] is mapping "      \
    "else\n"                                                                                       \
    "                schemas(s, ['description', 'type', 'properties', 'required', 'nullable']) "   \
    "%}\n"                                                                                         \
    "            {%- set its.fields = its.fields + ['properties:{' ~ inner ~ '}'] %}\n"            \
    "            {%- if s['required'] %}\n"                                                        \
    "                {%- set its.fields = its.fields + ['required:[' ~ "                           \
    "quoted_list(s['required']) ~ ']'] %}\n"                                                       \
    "            {%- endif %}\n"                                                                   \
    "        {%- endif %}\n"                                                                       \
    "        {%- set its.fields = its.fields + ['type:' ~ quoted(type)] %}\n"                      \
    "        {%- set all.fields = all.fields + [key ~ ':{' ~ its.fields | join(',') ~ '}'] %}\n"   \
    "    {%- endfor %}\n"                                                                          \
    "    {{- all.fields | join(',') }}\n"                                                          \
    "{%- endmacro %}\n"                                                                            \
    "{%- macro declaration(f) %}\n"                                                                \
    "    {{- 'declaration:' ~ f['name'] ~ '{description:' ~ quoted(f['description']) }}\n"         \
    "    {%- set p = f['parameters'] %}\n"                                                         \
    "    {%- if p %}\n"                                                                            \
    "        {{- ',parameters:{' }}\n"                                                             \
    "        {%- if p['properties'] %}\n"                                                          \
    "            {{- 'properties:{' ~ schemas(p['properties'], []) ~ '},' }}\n"                    \
    "        {%- endif %}\n"                                                                       \
    "        {%- if p['required'] %}{{- 'required:[' ~ quoted_list(p['required']) ~ '],' }}{%- "   \
    "endif %}\n"                                                                                   \
    "        {%- if p['type'] %}{{- 'type:' ~ quoted(p['type'] | upper) ~ '}' }}{%- endif %}\n"    \
    "    {%- endif %}\n"                                                                           \
    "    {%- if 'response' in f %}\n"                                                              \
    "        {%- set r = f['response'] %}\n"                                                       \
    "        {{- ',response:{' }}\n"                                                               \
    "        {%- if r['description'] %}{{- 'description:' ~ quoted(r['description']) ~ ',' }}{%- " \
    "endif %}\n"                                                                                   \
    "        {%- if r['type'] | upper == 'OBJECT' %}{{- 'type:' ~ quoted('OBJECT') ~ '}' }}{%- "   \
    "endif %}\n"                                                                                   \
    "    {%- endif %}\n"                                                                           \
    "    {{- '}' }}\n"                                                                             \
    "{%- endmacro %}\n"

/* The parts of a turn. `text` drops the thoughts from the model's own turns. */
#define GEMMA4_PARTS                                                                               \
    "{%- macro text(of, role) %}\n"                                                                \
    "    {%- set ns = namespace(kept=[]) %}\n"                                                     \
    "    {%- for piece in (of.split('<channel|>') if role == 'model' else [of]) %}\n"              \
    "        {%- set ns.kept = ns.kept + [piece.split('<|channel>')[0] if role == 'model' else "   \
    "piece] %}\n"                                                                                  \
    "    {%- endfor %}\n"                                                                          \
    "    {{- ns.kept | join('') | trim }}\n"                                                       \
    "{%- endmacro %}\n"                                                                            \
    "{%- macro result(name, r) %}\n"                                                               \
    "    {{- '<|tool_response>response:' + name + '{' }}\n"                                        \
    "    {{- members(r, false) if r is mapping else 'value:' ~ value(r, false) }}\n"               \
    "    {{- '}<tool_response|>' }}\n"                                                             \
    "{%- endmacro %}\n"                                                                            \
    "{%- macro message_result(name, content) %}\n"                                                 \
    "    {%- if content is string or content is not sequence %}{{- result(name, content) }}\n"     \
    "    {%- else %}\n"                                                                            \
    "        {%- set ns = namespace(text='') %}\n"                                                 \
    "        {%- for part in content if part.get('type') == 'text' %}\n"                           \
    "            {%- set ns.text = ns.text + part['text'] %}\n"                                    \
    "        {%- endfor %}\n"                                                                      \
    "        {{- result(name, ns.text) }}\n"                                                       \
    "        {%- for part in content if part['type'] in media %}{{- media[part['type']] }}{%- "    \
    "endfor %}\n"                                                                                  \
    "    {%- endif %}\n"                                                                           \
    "{%- endmacro %}\n"                                                                            \
    "{%- macro calls(tool_calls) %}\n"                                                             \
    "    {%- for call in tool_calls %}\n"                                                          \
    "        {%- set f = call['function'] %}\n"                                                    \
    "        {{- '<|tool_call>call:' + f['name'] + '{' }}\n"                                       \
    "        {%- if f['arguments'] is mapping %}{{- members(f['arguments'], false) }}\n"           \
    "        {%- elif f['arguments'] is string %}{{- f['arguments'] }}\n"                          \
    "        {%- endif %}\n"                                                                       \
    "        {{- '}<tool_call|>' }}\n"                                                             \
    "    {%- endfor %}\n"                                                                          \
    "{%- endmacro %}\n"

/* A call, its results and the answer after them share one turn of the model; ns.last says what
 * the latest turn ended with. */
const char ax_template_gemma4[] =
    "{%- set media = {'image': '<|image|>', 'audio': '<|audio|>', 'video': '<|video|>'} "
    "%}\n" GEMMA4_VALUES GEMMA4_SCHEMA GEMMA4_PARTS "{{- bos_token }}\n"
    "{%- set has_system = messages[0]['role'] in ['system', 'developer'] %}\n"
    "{%- set turns = messages[1:] if has_system else messages %}\n"
    "{%- set thinks = enable_thinking | default(false) %}\n"
    "{%- set ns = namespace(last=none, question=-1, before=none) %}\n"
    "{%- if thinks or tools or has_system %}\n"
    "    {{- '<|turn>system\\n' ~ ('<|think|>\\n' if thinks else '') }}\n"
    "    {%- if has_system and messages[0]['content'] is string %}{{- messages[0]['content'] | "
    "trim }}\n"
    "    {%- elif has_system and messages[0]['content'] is sequence %}\n"
    "        {%- for part in messages[0]['content'] %}{{- part['text'] | trim + ' ' }}{%- endfor "
    "%}\n"
    "    {%- endif %}\n"
    "    {%- for tool in tools or [] %}\n"
    "        {{- '<|tool>' ~ declaration(tool['function']) | trim ~ '<tool|>' }}\n"
    "    {%- endfor %}\n"
    "    {{- '<turn|>\\n' }}\n"
    "{%- endif %}\n"
    "{%- for m in turns %}\n"
    "    {%- if m['role'] == 'user' %}{%- set ns.question = loop.index0 %}{%- endif %}\n"
    "{%- endfor %}\n"
    "{%- for m in turns %}\n"
    "    {%- if m['role'] == 'tool' %}{%- continue %}{%- endif %}\n"
    "    {%- set role = 'model' if m['role'] == 'assistant' else m['role'] %}\n"
    "    {{- '<|turn>' + role + '\\n' if role != 'model' or ns.before != 'assistant' else '' }}\n"
    "    {%- set ns.before = m['role'] %}\n"
    "    {%- set ns.last = 'call' if m['tool_calls'] else none %}\n"
    "    {%- set ns.answered = false %}\n"
    "    {%- set thoughts = m['reasoning'] or m['reasoning_content'] %}\n"
    "    {%- if thoughts and m['tool_calls'] and loop.index0 > ns.question %}\n"
    "        {{- '<|channel>thought\\n' + thoughts + '\\n<channel|>' }}\n"
    "    {%- endif %}\n"
    "    {{- calls(m['tool_calls'] or []) }}\n"
    "    {%- if m['tool_responses'] %}\n"
    "        {%- set ns.answered = true %}\n"
    "        {%- for r in m['tool_responses'] %}\n"
    "            {{- result(r['name'] | default('unknown'), r['response']) }}\n"
    "        {%- endfor %}\n"
    "    {%- elif m['tool_calls'] %}\n"
    "        {%- for r in turns[loop.index:] %}\n"
    "            {%- if r['role'] != 'tool' %}{%- break %}{%- endif %}\n"
    "            {%- set ns.answered = true %}\n"
    "            {%- set of = m['tool_calls'] | selectattr('id', 'equalto', r['tool_call_id']) | "
    "list %}\n"
    "            {%- set name = of[-1]['function']['name'] if of else r['name'] %}\n"
    "            {{- message_result(name, r['content']) }}\n"
    "        {%- endfor %}\n"
    "    {%- endif %}\n"
    "    {%- set ns.last = 'result' if ns.answered else ns.last %}\n"
    "    {%- set content %}\n"
    "        {%- if m['content'] is string %}{{- text(m['content'], role) }}\n"
    "        {%- elif m['content'] is sequence %}\n"
    "            {%- for part in m['content'] %}\n"
    "                {%- if part['type'] == 'text' %}{{- text(part['text'], role) }}\n"
    "                {%- elif part['type'] in media %}\n"
    "                    {{- media[part['type']] }}\n"
    "                    {%- set ns.last = 'media' %}\n"
    "                {%- endif %}\n"
    "            {%- endfor %}\n"
    "        {%- endif %}\n"
    "    {%- endset %}\n"
    "    {{- content }}\n"
    "    {%- if ns.last == 'call' %}{{- '<|tool_response>' }}\n"
    "    {%- elif not ns.answered or content | trim %}{{- '<turn|>\\n' }}\n"
    "    {%- endif %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt and ns.last not in ['call', 'result'] %}\n"
    "    {{- '<|turn>model\\n' ~ ('' if thinks else '<|channel>thought\\n<channel|>') }}\n"
    "{%- endif %}\n";

/* Built-in chat templates that are not in named_tables.c: Falcon, Nemotron, Cohere, Metharme,
 * Exaone, Llama with tools, Llava and Pixtral, Jamba. */
#include "data/text/template/named.h"

#define ALTERNATE "'Conversation roles must alternate user/assistant/user/assistant/...'"

const char ax_template_falcon_h1[] =
    "{%- set system = messages[0].content if messages[0].role == 'system' %}\n"
    "{{- bos_token }}\n"
    "{%- if tools or system is defined %}{{- '<|im_start|>system\\n' }}{%- endif %}\n"
    "{%- if tools %}\n"
    "    {{- system + '\\n\\n' if messages[0].role == 'system' else '' }}\n"
    "    {{- \"You are a function calling AI model. You are provided with function signature "
    "within <tools> </tools> XML tags. You may call one or more functions to assist with the user "
    "query. Don't make assumptions about what values to plug into functions.\\n<tools>\\n\" }}\n"
    "    {%- for tool in tools %}{{- '[' ~ tool | tojson ~ ']' }}{%- endfor %}\n"
    "    {{- \"\\n</tools>\\nFor each function call, return a json object with function name and "
    "arguments within <tool_call> </tool_call> tags with the following "
    "schema:\\n<tool_call>\\n{'arguments': <args-dict>, 'name': "
    "<function-name>}\\n</tool_call>\\n\" }}\n"
    "{%- elif messages[0].role == 'system' %}{{- system + '<|im_end|>\\n' }}\n"
    "{%- endif %}\n"
    "{%- for m in messages if m.role != 'system' %}\n"
    "    {{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}\n";

const char ax_template_nemotron_h[] =
    "{%- for m in messages %}\n"
    "    {%- if m.role not in ['user', 'assistant'] and not (m.role == 'system' and loop.first) "
    "%}\n"
    "        {{- raise_exception('Unexpected role: ' + m.role) }}\n"
    "    {%- endif %}\n"
    "    {{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}\n";

/* Command R and Aya. */
const char ax_template_cohere[] =
    "{%- set open = '<|START_OF_TURN_TOKEN|>' %}\n"
    "{%- set end = '<|END_OF_TURN_TOKEN|>' %}\n"
    "{%- set turns = messages %}\n"
    "{{- bos_token }}\n"
    "{%- if messages[0]['role'] == 'system' %}\n"
    "    {{- open + '<|SYSTEM_TOKEN|>' + messages[0]['content'] + end }}\n"
    "    {%- set turns = messages[1:] %}\n"
    "{%- endif %}\n"
    "{%- for m in turns %}\n"
    "    {%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}\n"
    "        {{- raise_exception(" ALTERNATE ") }}\n"
    "    {%- elif m['role'] == 'user' %}{{- open + '<|USER_TOKEN|>' + m['content'].strip() + end "
    "}}\n"
    "    {%- elif m['role'] == 'assistant' %}\n"
    "        {{- open + '<|CHATBOT_TOKEN|>' + m['content'].strip() + end }}\n"
    "    {%- endif %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- open + '<|CHATBOT_TOKEN|>' }}{%- endif %}\n";

const char ax_template_metharme[] =
    "{{- bos_token }}{{- '<|system|>' }}\n"
    "{%- if messages[0]['role'] == 'system' %}{{- '' + messages[0]['content'] }}\n"
    "{%- else %}{{- 'Enter RP mode. You shall reply to the user while staying in character. Your "
    "responses must be detailed, creative, immersive, and drive the scenario forward.' }}\n"
    "{%- endif %}\n"
    "{%- for m in messages %}\n"
    "    {%- if m['role'] == 'user' %}{{- '<|user|>' + m['content'].strip() }}\n"
    "    {%- elif m['role'] == 'assistant' %}{{- '<|model|>' + m['content'].strip() }}\n"
    "    {%- endif %}\n"
    "{%- endfor %}\n"
    "{{- '<|model|>' if add_generation_prompt else eos_token }}\n";

const char ax_template_exaone[] =
    "{%- if messages and messages[0]['role'] != 'system' %}{{- '[|system|][|endofturn|]\\n' }}{%- "
    "endif %}\n"
    "{%- for m in messages %}\n"
    "    {{- '[|' + m['role'] + '|]' + m['content'] }}\n"
    "    {{- '\\n' if m['role'] == 'user' else '[|endofturn|]\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '[|assistant|]' }}{%- endif %}\n";

/* Every answer with text or calls opens with a thought; it is empty except in the last message, and
 * there only if skip_think is false. */
const char ax_template_exaone4[] =
    "{%- set end = '[|endofturn|]\\n' %}\n"
    "{%- set no_thought = '<think>\\n\\n</think>\\n\\n' %}\n"
    "{%- macro tool_list() %}\n"
    "    {{- '# Available Tools\\nYou can use none, one, or multiple of the following tools by "
    "calling them as functions to help with the user’s query.\\nHere are the tools available to "
    "you in JSON format within <tool> and </tool> tags:\\n' }}\n"
    "    {%- for tool in tools %}{{- '<tool>' ~ tool | tojson ~ '</tool>\\n' }}{%- endfor %}\n"
    "    {{- '\\nFor each function call you want to make, return a JSON object with function name "
    "and arguments within <tool_call> and </tool_call> tags, like:\\n<tool_call>{\"name\": "
    "function_1_name, \"arguments\": {argument_1_name: argument_1_value, argument_2_name: "
    "argument_2_value}}</tool_call>\\n<tool_call>{\"name\": function_2_name, \"arguments\": "
    "{...}}</tool_call>\\n...\\nNote that if no argument name is specified for a tool, you can "
    "just print the argument value directly, without the argument name or JSON formatting.' }}\n"
    "{%- endmacro %}\n"
    "{%- macro answer(m, shows) %}\n"
    "    {%- set content = m.content %}\n"
    "    {%- if '</think>' in content %}\n"
    "        {%- set parts = content.split('</think>') %}\n"
    "        {%- set content = parts[-1].strip() %}\n"
    "        {%- set thoughts = parts[0].strip() %}\n"
    "        {%- if thoughts.startswith('<think>') %}\n"
    "            {%- set thoughts = thoughts[7:].strip() %}\n"
    "        {%- endif %}\n"
    "    {%- endif %}\n"
    "    {%- set thoughts = m.reasoning_content or thoughts %}\n"
    "    {%- if shows and thoughts is defined %}{{- '<think>\\n' ~ thoughts ~ '\\n</think>\\n\\n' "
    "}}\n"
    "    {%- else %}{{- no_thought }}\n"
    "    {%- endif %}\n"
    "    {{- content }}\n"
    "{%- endmacro %}\n"
    "{%- for m in messages %}\n"
    "    {%- if m.role not in ['user', 'assistant', 'system', 'tool'] %}\n"
    "        {{- raise_exception('Unknown role: ' ~ m.role) }}\n"
    "    {%- endif %}\n"
    "    {%- if loop.first and tools and m.role != 'system' %}\n"
    "        {{- '[|system|]\\n' ~ tool_list() ~ end }}\n"
    "    {%- endif %}\n"
    "    {%- if m.role != 'tool' or loop.first or loop.previtem.role != 'tool' %}\n"
    "        {{- '[|' + m.role + '|]\\n' }}\n"
    "    {%- endif %}\n"
    "    {%- if m.role == 'assistant' %}\n"
    "        {%- if m.content %}\n"
    "            {{- answer(m, loop.last and not skip_think | default(true)) }}\n"
    "        {%- endif %}\n"
    "        {%- for call in m.tool_calls or [] %}\n"
    "            {{- '\\n' if m.content or not loop.first else no_thought }}\n"
    "            {%- set f = call.function if call.function is defined else call %}\n"
    "            {%- set arguments = f.arguments if f.arguments is defined else f.parameters %}\n"
    "            {%- if arguments is not defined %}\n"
    "                {{- raise_exception('arguments or parameters are mandatory: ' ~ f) }}\n"
    "            {%- endif %}\n"
    "            {{- '<tool_call>{\"name\": \"' ~ f.name ~ '\", \"arguments\": ' }}\n"
    "            {{- arguments | tojson ~ '}</tool_call>' }}\n"
    "        {%- endfor %}\n"
    "    {%- elif m.role == 'tool' and m.content is defined %}\n"
    "        {{- '<tool_result>{\"result\": ' ~ m.content | tojson ~ '}</tool_result>' }}\n"
    "    {%- else %}\n"
    "        {{- m.content }}\n"
    "        {{- '\\n\\n' ~ tool_list() if loop.first and tools and m.role == 'system' else '' }}\n"
    "    {%- endif %}\n"
    "    {{- '\\n' if m.role == 'tool' and not loop.last and loop.nextitem.role == 'tool' else end "
    "}}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "    {{- '[|assistant|]\\n' }}\n"
    "    {{- '<think>\\n' if enable_thinking is defined and enable_thinking is true else "
    "no_thought }}\n"
    "{%- endif %}\n";

/* ---- Llama with tools ----
 *
 * `before` and `after` enclose a role, `end` ends a turn. Tools go with the first user turn or, if
 * tools_in_user_message is false, with the system text. */
#define LLAMA_MACROS                                                                               \
    "{%- macro header(role) %}{{- before + role + after + '\\n\\n' }}{%- endmacro %}\n"            \
    "{%- macro joined(content) %}\n"                                                               \
    "    {{- content | trim if content is string else\n"                                           \
    "        content | selectattr('text', 'defined') | map(attribute='text') | join('') | trim "   \
    "}}\n"                                                                                         \
    "{%- endmacro %}\n"                                                                            \
    "{%- macro parts(content) %}\n"                                                                \
    "    {%- set text = [{'type': 'text', 'text': content}] %}\n"                                  \
    "    {%- for part in (text if content is string else content) %}\n"                            \
    "        {%- if part['type'] == 'image' %}{{- '<|image|>' }}\n"                                \
    "        {%- elif part['type'] == 'text' %}{{- part['text'] }}\n"                              \
    "        {%- endif %}\n"                                                                       \
    "    {%- endfor %}\n"                                                                          \
    "{%- endmacro %}\n"                                                                            \
    "{%- macro tool_list() %}\n"                                                                   \
    "    {{- 'Respond in the format {\"name\": function name, \"parameters\": dictionary of "      \
    "argument name and its value}.Do not use variables.\\n\\n' }}\n"                               \
    "    {%- for tool in tools %}{{- tool | tojson(indent=4) ~ '\\n\\n' }}{%- endfor %}\n"         \
    "{%- endmacro %}\n"                                                                            \
    "{%- macro call(f) %}\n"                                                                       \
    "    {{- '{\"name\": \"' + f.name + '\", \"parameters\": ' ~ f.arguments | tojson ~ '}' }}\n"  \
    "{%- endmacro %}\n"                                                                            \
    "{%- macro other(m) %}\n"                                                                      \
    "    {%- if m.role in ['tool', 'ipython'] %}\n"                                                \
    "        {{- header('ipython') }}\n"                                                           \
    "        {{- m.content | tojson if m.content is iterable else m.content }}\n"                  \
    "        {{- end }}\n"                                                                         \
    "    {%- elif 'tool_calls' not in m %}{{- header(m.role) ~ parts(m.content) ~ end }}\n"        \
    "    {%- endif %}\n"                                                                           \
    "{%- endmacro %}\n"                                                                            \
    "{{- bos_token }}\n"                                                                           \
    "{%- set tools = custom_tools if custom_tools is defined else tools | default(none) %}\n"      \
    "{%- set tools_last = tools is not none and not tools_in_user_message | default(true) %}\n"    \
    "{%- set turns = messages %}\n"                                                                \
    "{%- if messages[0]['role'] == 'system' %}\n"                                                  \
    "    {%- set system = joined(messages[0]['content']) %}\n"                                     \
    "    {%- set turns = messages[1:] %}\n"                                                        \
    "{%- endif %}\n"

#define LLAMA_SYSTEM(dates)                                                                        \
    "    {{- header('system') ~ ('Environment: ipython\\n' if tools is not none else '') ~ " dates \
    " }}\n"                                                                                        \
    "    {%- if tools_last %}\n"                                                                   \
    "        {{- 'You have access to the following functions. To call a function, please respond " \
    "with JSON for a function call.' ~ tool_list() }}\n"                                           \
    "    {%- endif %}\n"                                                                           \
    "    {{- system | default('') ~ end }}\n"

#define LLAMA_TOOLS                                                                                \
    "{%- if tools is not none and not tools_last %}\n"                                             \
    "    {%- if not turns %}\n"                                                                    \
    "        {{- raise_exception(\"Cannot put tools in the first user message when there's no "    \
    "first user message!\") }}\n"                                                                  \
    "    {%- endif %}\n"                                                                           \
    "    {{- header('user') }}\n"                                                                  \
    "    {{- 'Given the following functions, please respond with a JSON for a function call with " \
    "its proper arguments that best answers the given prompt.\\n\\n' }}\n"                         \
    "    {{- tool_list() ~ joined(turns[0]['content']) ~ end }}\n"                                 \
    "    {%- set turns = turns[1:] %}\n"                                                           \
    "{%- endif %}\n"

#define LLAMA_TURNS(calls)                                                                         \
    "{%- for m in turns %}\n" calls "    {%- else %}{{- other(m) }}\n"                             \
    "    {%- endif %}\n"                                                                           \
    "{%- endfor %}\n"                                                                              \
    "{%- if add_generation_prompt %}{{- header('assistant') }}{%- endif %}\n"

/* clang-format off */
const char ax_template_llama4[] =
    "{%- set before, after, end = '<|header_start|>', '<|header_end|>', '<|eot|>' %}\n"
    LLAMA_MACROS
    "{%- if system is defined %}\n"
    LLAMA_SYSTEM("''")
    "{%- endif %}\n"
    LLAMA_TOOLS
    LLAMA_TURNS(
    "    {%- if m.tool_calls %}\n"
    "        {{- header('assistant') ~ '<|python_start|>' ~ parts(m.content) }}\n"
    "        {{- '<|python_end|>' }}\n"
    "        {%- for c in m.tool_calls %}{{- call(c.function) }}{%- endfor %}\n"
    "        {{- end }}\n");

/* There is a system turn only if there are no images. */
const char ax_template_llama3_2_vision[] =
    "{%- set before, after = '<|start_header_id|>', '<|end_header_id|>' %}\n"
    "{%- set end = '<|eot_id|>' %}\n"
    LLAMA_MACROS
    "{%- set ns = namespace(images=false) %}\n"
    "{%- for m in turns %}\n"
    "    {%- for part in m['content'] if part['type'] == 'image' %}\n"
    "        {%- set ns.images = true %}\n"
    "    {%- endfor %}\n"
    "{%- endfor %}\n"
    "{%- if ns.images and system %}\n"
    "    {{- raise_exception('Prompting with images is incompatible with system messages.') }}\n"
    "{%- elif not ns.images %}\n"
    "    {%- set today = date_string if date_string is defined else strftime_now('%d %b %Y') %}\n"
    LLAMA_SYSTEM("'Cutting Knowledge Date: December 2023\\nToday Date: ' + today + '\\n\\n'")
    "{%- endif %}\n"
    LLAMA_TOOLS
    LLAMA_TURNS(
    "    {%- if 'tool_calls' in m and m.role not in ['tool', 'ipython'] %}\n"
    "        {%- if m.tool_calls | length != 1 %}\n"
    "            {{- raise_exception('This model only supports single tool-calls at once!') }}\n"
    "        {%- endif %}\n"
    "        {{- header('assistant') ~ call(m.tool_calls[0].function) ~ end }}\n");
/* clang-format on */

/* ---- Templates with images ---- */
const char ax_template_llava[] =
    "{%- for m in messages %}\n"
    "    {{- m['role'].upper() + ': ' if m['role'] != 'system' else '' }}\n"
    "    {%- set parts = [{'type': 'text', 'text': m['content']}] if m['content'] is string else "
    "m['content'] %}\n"
    "    {%- for part in parts if part['type'] == 'image' %}{{- '<image>\\n' }}{%- endfor %}\n"
    "    {%- for part in parts if part['type'] == 'text' %}\n"
    "        {%- if m['role'] == 'assistant' %}\n"
    "            {%- generation %}{{- part['text'] + ' ' }}{%- endgeneration %}\n"
    "        {%- else %}{{- part['text'] + ' ' }}\n"
    "        {%- endif %}\n"
    "    {%- endfor %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- 'ASSISTANT:' }}{%- endif %}\n";

const char ax_template_pixtral[] =
    "{%- macro parts(content) %}\n"
    "    {%- for part in content %}\n"
    "        {%- if part['type'] == 'text' %}\n"
    "            {{- part['content'] if 'content' in part else part['text'] }}\n"
    "        {%- elif part['type'] == 'image' %}{{- '[IMG]' }}\n"
    "        {%- else %}{{- raise_exception('Unrecognized content type!') }}\n"
    "        {%- endif %}\n"
    "    {%- endfor %}\n"
    "{%- endmacro %}\n"
    "{%- macro text(content) %}{{- content if content is string else parts(content) }}{%- endmacro "
    "%}\n"
    "{%- set turns = messages %}\n"
    "{%- if messages[0]['role'] == 'system' %}\n"
    "    {%- set system = messages[0]['content'] %}\n"
    "    {%- if system is not string %}\n"
    "        {%- set system = parts(system | selectattr('type', 'equalto', 'text')) %}\n"
    "    {%- endif %}\n"
    "    {%- set turns = messages[1:] %}\n"
    "{%- endif %}\n"
    "{{- bos_token }}\n"
    "{%- for m in turns %}\n"
    "    {%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}\n"
    "        {{- raise_exception(" MISTRAL_ALTERNATE ") }}\n"
    "    {%- elif m['role'] == 'user' %}\n"
    "        {{- '[INST]' ~ (system + '\\n\\n' if loop.last and system is defined else '') }}\n"
    "        {{- text(m['content']) ~ '[/INST]' }}\n"
    "    {%- elif m['role'] == 'assistant' %}{{- text(m['content']) + eos_token }}\n"
    "    {%- else %}{{- raise_exception(" MISTRAL_ROLES ") }}\n"
    "    {%- endif %}\n"
    "{%- endfor %}\n";

/* ---- Jamba ----
 *
 * Messages are enclosed in <|bom|> and <|eom|>; the last one is not closed. Documents and output
 * modes (knobs) get their own system message before the last user turn. */
#define JAMBA_MACROS                                                                               \
    "{%- macro tool_list() %}\n"                                                                   \
    "    {{- '<tool_definitions>\\n# Tools\\n\\n## Functions' }}\n"                                \
    "    {%- for tool in tools %}\n"                                                               \
    "        {%- if tool.type is defined and tool.type is not none and tool.type != 'function' "   \
    "%}\n"                                                                                         \
    "            {{- raise_exception('Currently, the only supported tool type is `function`') "    \
    "}}\n"                                                                                         \
    "        {%- endif %}\n"                                                                       \
    "        {%- set typed = tool.type is defined and tool.type is not none %}\n"                  \
    "        {{- '\\n\\n' ~ (tool.function if typed else tool) | tojson(indent=2) }}\n"            \
    "    {%- endfor %}\n"                                                                          \
    "    {{- '\\n</tool_definitions>' }}\n"                                                        \
    "{%- endmacro %}\n"                                                                            \
    "{%- macro calls(tool_calls) %}\n"                                                             \
    "    {{- '<tool_calls>[\\n' }}\n"                                                              \
    "    {%- for call in tool_calls %}\n"                                                          \
    "        {%- set f = call.function if call.function is defined and call.function is not none " \
    "else call %}\n"                                                                               \
    "        {%- set arguments = f.arguments if f.arguments is string else f.arguments | tojson "  \
    "%}\n"                                                                                         \
    "        {{- '    {\"name\": \"' + f.name + '\", \"arguments\": ' + arguments + '}' }}\n"      \
    "        {{- '' if loop.last else ',\\n' }}\n"                                                 \
    "    {%- endfor %}\n"                                                                          \
    "    {{- '\\n]</tool_calls>' }}\n"                                                             \
    "{%- endmacro %}\n"                                                                            \
    "{%- macro document_list() %}\n"                                                               \
    "    {{- '<documents>\\n# Documents\\n\\nYou can use the following documents for reference:' " \
    "}}\n"                                                                                         \
    "    {%- for doc in documents %}\n"                                                            \
    "        {{- '\\n\\n## Document ID: ' ~ loop.index0 }}\n"                                      \
    "        {{- '\\nTitle: ' + doc.title if doc.title is defined and doc.title is not none else " \
    "'' }}\n"                                                                                      \
    "        {%- for key, value in doc.items() if key not in ['title', 'text'] %}\n"               \
    "            {{- '\\n' ~ key | title ~ ': ' ~ value }}\n"                                      \
    "        {%- endfor %}\n"                                                                      \
    "        {{- '\\nText: ' + doc.text }}\n"                                                      \
    "    {%- endfor %}\n"                                                                          \
    "    {{- '\\n</documents>' }}\n"                                                               \
    "{%- endmacro %}\n"                                                                            \
    "{%- macro modes() %}\n"                                                                       \
    "    {{- '<active_output_modes>\\n# Active Modes\\n\\nThe following modes configure the "      \
    "format or style of your responses. You should adhere to all currently active modes "          \
    "simultaneously.' }}\n"                                                                        \
    "    {%- if knobs.citation_mode == 'fast' %}\n"                                                \
    "        {{- '\\n\\n## Citation Mode\\n\\nProvide a list of references only for the "          \
    "documents you base your response on. Format your response with the original answer followed " \
    "by a citation section. Use this template: `{answer}<citations>DOCUMENT_IDS</citations>`, "    \
    "where DOCUMENT_IDS are the relevant document numbers (e.g. [2, 5, 9]), or [] if the answer "  \
    "cannot be supported by the provided documents.' }}\n"                                         \
    "    {%- endif %}\n"                                                                           \
    "    {%- if knobs.response_format == 'json_object' %}\n"                                       \
    "        {{- '\\n\\n## JSON Mode\\n\\nProvide your response in JSON format. Adhere strictly "  \
    "to any schema given by the user. If an appropriate JSON format exists, use it without "       \
    "modification.' }}\n"                                                                          \
    "    {%- endif %}\n"                                                                           \
    "    {{- '\\n</active_output_modes>' }}\n"                                                     \
    "{%- endmacro %}\n"

const char ax_template_jamba[] = JAMBA_MACROS
    "{%- set before, after = bom_str or '<|bom|>', eom_str or '<|eom|>' %}\n"
    "{%- set has_system = messages | length > 0 and messages[0].role == 'system' %}\n"
    "{%- set system = messages[0].content if has_system else '' %}\n"
    "{%- set turns = messages[1:] if has_system else messages %}\n"
    "{%- set ns = namespace(question=0, after='') %}\n"
    "{{- '<|startoftext|>' }}\n"
    "{%- if tools or system is defined %}\n"
    "    {{- before + '<|system|> ' }}{{- system }}\n"
    "    {{- '\\n\\n' if tools and system else '' }}\n"
    "    {{- tool_list() if tools else '' }}\n"
    "    {%- set ns.after = after %}\n"
    "{%- endif %}\n"
    "{%- for m in turns %}\n"
    "    {%- if m.role == 'user' %}{%- set ns.question = loop.index0 %}{%- endif %}\n"
    "{%- endfor %}\n"
    "{%- for m in turns %}\n"
    "    {%- if loop.index0 == ns.question and (documents or (knobs and knobs.is_set)) %}\n"
    "        {{- ns.after + before + '<|system|> ' }}\n"
    "        {{- document_list() if documents else '' }}\n"
    "        {{- '\\n\\n' if documents and knobs and knobs.is_set else '' }}\n"
    "        {{- modes() if knobs and knobs.is_set else '' }}\n"
    "        {%- set ns.after = after %}\n"
    "    {%- endif %}\n"
    "    {{- ns.after + before + '<|' + m.role + '|> ' }}\n"
    "    {{- '(' + m.name + ')' if m.name is defined else '' }}\n"
    "    {{- (m.content or '') if (m.content or '') is string else m.content | tojson }}\n"
    "    {%- if m.role == 'assistant' %}\n"
    "        {{- calls(m.tool_calls) if m.tool_calls else '' }}\n"
    "        {%- if m.citations %}\n"
    "            {%- set ids = m.citations | map(attribute='document_id') | list %}\n"
    "            {{- '<citations>' ~ ids ~ '</citations>' }}\n"
    "        {%- endif %}\n"
    "    {%- endif %}\n"
    "    {%- set ns.after = after %}\n"
    "{%- endfor %}\n"
    "{{- ns.after }}\n"
    "{%- if add_generation_prompt %}\n"
    "    {{- before + '<|' ~ (role_to_predict or 'assistant') ~ '|>' }}\n"
    "    {{- ' ' + generation_preamble if generation_preamble and generation_preamble.strip() else "
    "'' }}\n"
    "{%- endif %}\n";

/* Sources of the built-in chat templates, written as Jinja, one literal each: ChatML and Qwen,
 * Llama 3, Mistral, DeepSeek, Alpaca, Phi. */
#include "data/text/template/named.h"

/* ---- ChatML and Qwen ---- */

const char ax_template_chatml[] =
    "{%- for m in messages %}\n"
    "    {{- '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}\n";

/* The tools block of Qwen 2.5 and 3, which follows the system text. */
#define QWEN_TOOLS                                                                                 \
    "{{- '# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\n"    \
    "You are provided with function signatures within <tools></tools> XML tags:\\n<tools>' }}"     \
    "{%- for tool in tools %}{{- '\\n' ~ tool | tojson }}{%- endfor %}"                            \
    "{{- '\\n</tools>\\n\\nFor each function call, return a json object with function name and "   \
    "arguments within <tool_call></tool_call> XML tags:\\n<tool_call>\\n"                          \
    "{\"name\": <function-name>, \"arguments\": <args-json-object>}\\n</tool_call><|im_end|>\\n' " \
    "}}"

/* Consecutive tool results share one user turn. */
#define QWEN_RESULT_OPEN                                                                           \
    "{%- if loop.first or loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}"    \
    "{{- '\\n<tool_response>\\n' }}"
#define QWEN_RESULT_CLOSE                                                                          \
    "{{- '\\n</tool_response>' }}"                                                                 \
    "{%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}"

const char ax_template_qwen_25[] =
    "{%- set has_system = messages[0]['role'] == 'system' %}\n"
    "{{- '<|im_start|>system\\n' }}\n"
    "{%- if has_system and not tools %}{{- '' + messages[0]['content'] }}\n"
    "{%- elif has_system %}{{- messages[0]['content'] }}\n"
    "{%- else %}{{- 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' }}\n"
    "{%- endif %}\n"
    "{%- if tools %}{{- '\\n\\n' }}" QWEN_TOOLS "\n"
    "{%- else %}{{- '<|im_end|>\\n' }}{%- endif %}\n"
    "{%- for m in messages %}\n"
    "    {%- if m.role == 'user' or (m.role == 'system' and not loop.first)\n"
    "            or (m.role == 'assistant' and not m.tool_calls) %}\n"
    "        {{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}\n"
    "    {%- elif m.role == 'assistant' %}\n"
    "        {{- '<|im_start|>assistant' }}\n"
    "        {%- if m.content %}{{- '\\n' + m.content }}{%- endif %}\n"
    "        {%- for call in m.tool_calls %}\n"
    "            {%- set call = call.function if call.function is defined else call %}\n"
    "            {{- '\\n<tool_call>\\n{\"name\": \"' ~ call.name ~ '\", \"arguments\": '\n"
    "                ~ call.arguments | tojson ~ '}\\n</tool_call>' }}\n"
    "        {%- endfor %}\n"
    "        {{- '<|im_end|>\\n' }}\n"
    "    {%- elif m.role == 'tool' %}\n" QWEN_RESULT_OPEN "{{- m.content }}" QWEN_RESULT_CLOSE "\n"
    "    {%- endif %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}\n";

/* Thoughts stay only in the answers to the last real question; the last message always shows the
 * block. real_last_index says where a partial conversation ends when complete. The template
 * decides how to print the text of system, user and tool messages. */
#define QWEN3_TURNS                                                                                \
    "{%- set has_system = messages[0].role == 'system' %}\n"                                       \
    "{%- if tools %}\n"                                                                            \
    "    {{- '<|im_start|>system\\n' }}\n"                                                         \
    "    {%- if has_system %}{{- system_text(messages[0].content) + '\\n\\n' }}{%- endif "         \
    "%}\n" QWEN_TOOLS "\n"                                                                         \
    "{%- elif has_system %}\n"                                                                     \
    "    {{- '<|im_start|>system\\n' + system_text(messages[0].content) + '<|im_end|>\\n' }}\n"    \
    "{%- endif %}\n"                                                                               \
    "{%- set ns = namespace(question=messages | length - 1, searching=true) %}\n"                  \
    "{%- set last = real_last_index | default(none) %}\n"                                          \
    "{%- set last = messages | length - 1 if last is none else last %}\n"                          \
    "{%- for m in messages[::-1] %}\n"                                                             \
    "    {%- if ns.searching and m.role == 'user' and not (m.content is string and\n"              \
    "            m.content.startswith('<tool_response>') and\n"                                    \
    "            m.content.endswith('</tool_response>')) %}\n"                                     \
    "        {%- set ns.searching = false %}\n"                                                    \
    "        {%- set ns.question = messages | length - loop.index %}\n"                            \
    "    {%- endif %}\n"                                                                           \
    "{%- endfor %}\n"                                                                              \
    "{%- for m in messages %}\n"                                                                   \
    "    {%- if m.role == 'user' or (m.role == 'system' and not loop.first) %}\n"                  \
    "        {{- '<|im_start|>' + m.role + '\\n' + user_text(m.content) + '<|im_end|>\\n' }}\n"    \
    "    {%- elif m.role == 'assistant' %}\n"                                                      \
    "        {%- set content = '' if m.content is none else text(m.content) %}\n"                  \
    "        {%- set thoughts = '' %}\n"                                                           \
    "        {%- if m.reasoning_content is string %}\n"                                            \
    "            {%- set thoughts = m.reasoning_content %}\n"                                      \
    "        {%- elif '</think>' in content %}\n"                                                  \
    "            {%- set parts = content.split('</think>') %}\n"                                   \
    "            {%- set thoughts = parts[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') "    \
    "%}\n"                                                                                         \
    "            {%- set content = parts[-1].lstrip('\\n') %}\n"                                   \
    "        {%- endif %}\n"                                                                       \
    "        {{- '<|im_start|>assistant\\n' }}\n"                                                  \
    "        {%- if loop.index0 > ns.question and (loop.index0 == last or thoughts) %}\n"          \
    "            {{- '<think>\\n' + thoughts.strip('\\n') + '\\n</think>\\n\\n' }}\n"              \
    "            {{- content.lstrip('\\n') }}\n"                                                   \
    "        {%- else %}{{- content }}\n"                                                          \
    "        {%- endif %}\n"                                                                       \
    "        {%- for call in m.tool_calls or [] %}\n"                                              \
    "            {%- if content or not loop.first %}{{- '\\n' }}{%- endif %}\n"                    \
    "            {%- set call = call.function if call.function else call %}\n"                     \
    "            {{- '<tool_call>\\n{\"name\": \"' ~ call.name ~ '\", \"arguments\": ' }}\n"       \
    "            {{- call.arguments if call.arguments is string else call.arguments | tojson }}\n" \
    "            {{- '}\\n</tool_call>' }}\n"                                                      \
    "        {%- endfor %}\n"                                                                      \
    "        {{- '<|im_end|>\\n' }}\n"                                                             \
    "    {%- elif m.role == 'tool' %}\n" QWEN_RESULT_OPEN                                          \
    "{{- result_text(m.content) }}" QWEN_RESULT_CLOSE "\n"                                         \
    "    {%- endif %}\n"                                                                           \
    "{%- endfor %}\n"                                                                              \
    "{%- if add_generation_prompt %}\n"                                                            \
    "    {{- '<|im_start|>assistant\\n<think>\\n\\n' }}\n"                                         \
    "    {%- if enable_thinking is defined and enable_thinking is false %}\n"                      \
    "        {{- '</think>\\n\\n' }}\n"                                                            \
    "    {%- endif %}\n"                                                                           \
    "{%- endif %}\n"

#define QWEN3_TEXT                                                                                 \
    "{%- macro text(content) %}\n"                                                                 \
    "    {%- if content is string %}{{- content }}\n"                                              \
    "    {%- else %}{%- for part in content if 'text' in part %}{{- part['text'] }}{%- endfor "    \
    "%}\n"                                                                                         \
    "    {%- endif %}\n"                                                                           \
    "{%- endmacro %}\n"

const char ax_template_qwen3[] =
    QWEN3_TEXT "{%- set system_text, user_text, result_text = text, text, text %}\n" QWEN3_TURNS;

#define QWEN_IMAGE "<|vision_start|><|image_pad|><|vision_end|>"
#define QWEN_VIDEO "<|vision_start|><|video_pad|><|vision_end|>"
#define IS_IMAGE   "part['type'] == 'image' or 'image' in part or 'image_url' in part"
#define IS_VIDEO   "part['type'] == 'video' or 'video' in part"

const char ax_template_qwen3_5[] = QWEN3_TEXT
    "{%- macro system_text(content) %}\n"
    "    {%- for part in ([content] if content is string else content) %}\n"
    "        {%- if part is string %}{{- part }}\n"
    "        {%- elif part is mapping %}\n"
    "            {{- part.get('text') or part.get('content') or part.get('value') or '' }}\n"
    "        {%- endif %}\n"
    "    {%- endfor %}\n"
    "{%- endmacro %}\n"
    "{%- macro user_text(content) %}\n"
    "    {%- if content is string %}{{- content }}\n"
    "    {%- else %}\n"
    "        {%- for part in content %}\n"
    "            {%- if " IS_IMAGE " %}{{- '" QWEN_IMAGE "' }}\n"
    "            {%- elif " IS_VIDEO " %}{{- '" QWEN_VIDEO "' }}\n"
    "            {%- elif 'text' in part %}{{- part['text'] }}\n"
    "            {%- endif %}\n"
    "        {%- endfor %}\n"
    "    {%- endif %}\n"
    "{%- endmacro %}\n"
    "{%- macro result_text(content) %}{{- content }}{%- endmacro %}\n" QWEN3_TURNS;

const char ax_template_qwen2_vl[] =
    "{%- set ns = namespace(images=0, videos=0) %}\n"
    "{%- if messages and messages[0].role != 'system' %}\n"
    "    {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}\n"
    "{%- endif %}\n"
    "{%- for m in messages %}\n"
    "    {{- '<|im_start|>' ~ m.role ~ '\\n' }}\n"
    "    {%- if m.content is string %}{{- m.content }}\n"
    "    {%- else %}\n"
    "        {%- for part in m.content %}\n"
    "            {%- if " IS_IMAGE " %}\n"
    "                {%- set ns.images = ns.images + 1 %}\n"
    "                {{- 'Picture ' ~ ns.images ~ ': ' if add_vision_id else '' }}\n"
    "                {{- '" QWEN_IMAGE "' }}\n"
    "            {%- elif " IS_VIDEO " %}\n"
    "                {%- set ns.videos = ns.videos + 1 %}\n"
    "                {{- 'Video ' ~ ns.videos ~ ': ' if add_vision_id else '' }}\n"
    "                {{- '" QWEN_VIDEO "' }}\n"
    "            {%- elif 'text' in part %}{{- part['text'] }}\n"
    "            {%- endif %}\n"
    "        {%- endfor %}\n"
    "    {%- endif %}\n"
    "    {{- '<|im_end|>\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}\n";

/* ---- Llama ---- */

const char ax_template_llama3[] =
    "{%- for m in messages %}\n"
    "    {%- set parts = m['content'] if m['content'] is string else\n"
    "        m['content'] | selectattr('text', 'defined') | map(attribute='text') | join('') %}\n"
    "    {%- set turn = '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n'\n"
    "        + parts | trim + '<|eot_id|>' %}\n"
    "    {{- bos_token + turn if loop.first else turn }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\n"
    "{%- endif %}\n";

/* ---- Mistral ---- */

#define MISTRAL_SYSTEM                                                                             \
    "{%- set turns = messages %}\n"                                                                \
    "{%- if messages[0]['role'] == 'system' %}\n"                                                  \
    "    {%- set system_message = " FIRST_TEXT " %}\n"                                             \
    "    {%- set turns = messages[1:] %}\n"                                                        \
    "{%- endif %}\n"

const char ax_template_mistral_v1[] =
    MISTRAL_SYSTEM "{{- bos_token }}\n"
                   "{%- for m in turns %}\n"
                   "    {%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}\n"
                   "        {{- raise_exception(" MISTRAL_ALTERNATE ") }}\n"
                   "    {%- endif %}\n"
                   "    {%- set content = " M_TEXT " %}\n"
                   "    {%- if m['role'] == 'user' %}\n"
                   "        {%- if loop.first and system_message is defined %}\n"
                   "            {%- set content = system_message + '\\n\\n' + content %}\n"
                   "        {%- endif %}\n"
                   "        {{- ' [INST] ' + content + ' [/INST]' }}\n"
                   "    {%- elif m['role'] == 'assistant' %}{{- ' ' + content + eos_token }}\n"
                   "    {%- else %}{{- raise_exception(" MISTRAL_ROLES ") }}\n"
                   "    {%- endif %}\n"
                   "{%- endfor %}\n";

/* v2, v3 and v3 Tekken differ in blanks, and in whether answers are trimmed. */
#define MISTRAL_TOOLS(gap, answer)                                                                 \
    MISTRAL_SYSTEM                                                                                 \
    "{%- set tools = tools | default(none) %}\n"                                                   \
    "{%- set questions = turns | selectattr('role', 'equalto', 'user') | list %}\n"                \
    "{%- set ns = namespace(n=0) %}\n"                                                             \
    "{%- for m in turns %}\n"                                                                      \
    "    {%- if not (m.role in ['tool', 'tool_results'] or\n"                                      \
    "            (m.tool_calls is defined and m.tool_calls is not none)) %}\n"                     \
    "        {%- if (m['role'] == 'user') != (ns.n % 2 == 0) %}\n"                                 \
    "            {{- raise_exception(" MISTRAL_ALTERNATE ") }}\n"                                  \
    "        {%- endif %}\n"                                                                       \
    "        {%- set ns.n = ns.n + 1 %}\n"                                                         \
    "    {%- endif %}\n"                                                                           \
    "{%- endfor %}\n"                                                                              \
    "{%- macro check_id(id) %}\n"                                                                  \
    "    {%- if id is not defined or id | length != 9 %}\n"                                        \
    "        {{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') "  \
    "}}\n"                                                                                         \
    "    {%- endif %}\n"                                                                           \
    "{%- endmacro %}\n"                                                                            \
    "{{- bos_token }}\n"                                                                           \
    "{%- for m in turns %}\n"                                                                      \
    "    {%- if m['role'] == 'user' %}\n"                                                          \
    "        {%- set content = " M_TEXT " %}\n"                                                    \
    "        {%- if tools is not none and m == questions[-1] %}\n"                                 \
    "            {{- '[AVAILABLE_TOOLS]" gap "[' }}\n"                                             \
    "            {%- for tool in tools %}\n"                                                       \
    "                {{- '{\"type\": \"function\", \"function\": {' }}\n"                          \
    "                {%- for key, value in tool.function.items() if key != 'return' %}\n"          \
    "                    {{- '\"' + key + '\": ' }}\n"                                             \
    "                    {{- '\"' + value + '\"' if value is string else value | tojson }}\n"      \
    "                    {{- '' if loop.last else ', ' }}\n"                                       \
    "                {%- endfor %}\n"                                                              \
    "                {{- '}}' ~ (']' if loop.last else ', ') }}\n"                                 \
    "            {%- endfor %}\n"                                                                  \
    "            {{- '[/AVAILABLE_TOOLS]' }}\n"                                                    \
    "        {%- endif %}\n"                                                                       \
    "        {%- if loop.last and system_message is defined %}\n"                                  \
    "            {%- set content = system_message + '\\n\\n' + content %}\n"                       \
    "        {%- endif %}\n"                                                                       \
    "        {{- '[INST]" gap "' + content + '[/INST]' }}\n"                                       \
    "    {%- elif m.tool_calls is defined and m.tool_calls is not none %}\n"                       \
    "        {{- '[TOOL_CALLS]" gap "[' }}\n"                                                      \
    "        {%- for call in m.tool_calls %}\n"                                                    \
    "            {{- (call.function | tojson)[:-1] ~ check_id(call.id) }}\n"                       \
    "            {{- ', \"id\": \"' + call.id + '\"}' }}\n"                                        \
    "            {{- ']' + eos_token if loop.last else ', ' }}\n"                                  \
    "        {%- endfor %}\n"                                                                      \
    "    {%- elif m['role'] == 'assistant' %}\n"                                                   \
    "        {%- set content = " M_TEXT " %}\n"                                                    \
    "        {{- " answer " + eos_token }}\n"                                                      \
    "    {%- elif m['role'] in ['tool_results', 'tool'] %}\n"                                      \
    "        {%- set content = m.content %}\n"                                                     \
    "        {%- if m.content is defined and m.content.content is defined %}\n"                    \
    "            {%- set content = m.content.content %}\n"                                         \
    "        {%- endif %}\n"                                                                       \
    "        {{- '[TOOL_RESULTS]" gap "{\"content\": ' + content | string + ', '\n"                \
    "            ~ check_id(m.tool_call_id) }}\n"                                                  \
    "        {{- '\"call_id\": \"' + m.tool_call_id + '\"}[/TOOL_RESULTS]' }}\n"                   \
    "    {%- else %}{{- raise_exception(" MISTRAL_ROLES ") }}\n"                                   \
    "    {%- endif %}\n"                                                                           \
    "{%- endfor %}\n"

const char ax_template_mistral_v2v3[] = MISTRAL_TOOLS(" ", "' ' + content | trim");
const char ax_template_mistral_v3_tekken[] = MISTRAL_TOOLS("", "content");

const char ax_template_mistral_v7_tekken[] =
    "{%- set turns = messages[1:] if messages[0]['role'] == 'system' else messages %}\n"
    "{%- if messages[0]['role'] == 'system' %}\n"
    "    {%- set system_message = " FIRST_TEXT " %}\n"
    "{%- else %}\n"
    "    {%- set system_message = 'You are Mistral Small 3, a Large Language Model (LLM) created "
    "by Mistral AI, a French startup headquartered in Paris.\\nYour knowledge base was last "
    "updated on 2023-10-01. The current date is ' + strftime_now('%Y-%m-%d') + '.\\n\\nWhen "
    "you\\'re not sure about some information, you say that you don\\'t have the information and "
    "don\\'t make up anything.\\nIf the user\\'s question is not clear, ambiguous, or does not "
    "provide enough context for you to accurately answer the question, you do not try to answer it "
    "right away and you rather ask the user to clarify their request (e.g. \"What are some good "
    "restaurants around me?\" => \"Where are you?\" or \"When is the next flight to Tokyo\" => "
    "\"Where do you travel from?\")' %}\n"
    "{%- endif %}\n"
    "{{- bos_token }}{{- '[SYSTEM_PROMPT]' + system_message + '[/SYSTEM_PROMPT]' }}\n"
    "{%- for m in turns %}\n"
    "    {%- if m['role'] == 'user' %}\n"
    "        {{- '[INST]' }}\n"
    "        {%- for part in [m['content']] if m['content'] is string %}{{- part }}\n"
    "        {%- else %}\n"
    "            {%- for part in m['content'] %}\n"
    "                {%- if part['type'] == 'text' %}{{- part['text'] }}\n"
    "                {%- elif part['type'] in ['image', 'image_url'] %}{{- '[IMG]' }}\n"
    "                {%- else %}{{- raise_exception('Only text and image blocks are supported in "
    "message content!') }}\n"
    "                {%- endif %}\n"
    "            {%- endfor %}\n"
    "        {%- endfor %}\n"
    "        {{- '[/INST]' }}\n"
    "    {%- elif m['role'] == 'system' %}\n"
    "        {{- '[SYSTEM_PROMPT]' + " M_TEXT " + '[/SYSTEM_PROMPT]' }}\n"
    "    {%- elif m['role'] == 'assistant' %}{{- " M_TEXT " + eos_token }}\n"
    "    {%- else %}{{- raise_exception('Only user, system and assistant roles are supported!') "
    "}}\n"
    "    {%- endif %}\n"
    "{%- endfor %}\n";

/* ---- DeepSeek ---- */

const char ax_template_deepseek_v2[] =
    "{{- bos_token }}\n"
    "{%- for m in messages %}\n"
    "    {%- if m['role'] == 'user' %}{{- '<｜User｜>' + m['content'] }}\n"
    "    {%- elif m['role'] == 'assistant' %}\n"
    "        {{- '<｜Assistant｜>' + m['content'] + eos_token }}\n"
    "    {%- elif m['role'] == 'system' %}{{- m['content'] + '\\n\\n' }}\n"
    "    {%- endif %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<｜Assistant｜>' }}{%- endif %}\n";

/* Consecutive tool results form one block, which the next answer or call closes. As in the
 * published template, only the first assistant turn with calls opens with its own text. That one takes
 * arguments only as text. */
const char ax_template_deepseek_v3[] =
    "{%- set end = '<｜end▁of▁sentence｜>' %}\n"
    "{%- set ns = namespace(system=none, results=false, called=false) %}\n"
    "{%- for m in messages if m['role'] == 'system' %}\n"
    "    {%- set ns.system = ('' if ns.system is none else ns.system + '\\n\\n') + m['content'] "
    "%}\n"
    "{%- endfor %}\n"
    "{{- bos_token }}{{- ns.system if ns.system is not none else '' }}\n"
    "{%- for m in messages %}\n"
    "    {%- if m['role'] == 'user' %}\n"
    "        {%- set ns.results = false %}\n"
    "        {{- '<｜User｜>' + m['content'] }}\n"
    "    {%- elif m['role'] == 'assistant' and 'tool_calls' in m %}\n"
    "        {%- if ns.results %}{{- '<｜tool▁outputs▁end｜>' }}{%- endif %}\n"
    "        {%- set ns.results = false %}\n"
    "        {%- set ns.called = false %}\n"
    "        {%- for tool in m['tool_calls'] %}\n"
    "            {%- if ns.called %}{{- '\\n' }}\n"
    "            {%- else %}\n"
    "                {{- '<｜Assistant｜>' + ('' if m['content'] is none else m['content'])\n"
    "                    + '<｜tool▁calls▁begin｜>' }}\n"
    "                {%- set ns.called = true %}\n"
    "            {%- endif %}\n"
    "            {{- '<｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>'\n"
    "                + tool['function']['name'] + '\\n```json\\n'\n"
    "                + (tool['function']['arguments'] if tool['function']['arguments'] is string\n"
    "                    else tool['function']['arguments'] | tojson)\n"
    "                + '\\n```<｜tool▁call▁end｜>' }}\n"
    "        {%- endfor %}\n"
    "        {{- '<｜tool▁calls▁end｜>' + end }}\n"
    "    {%- elif m['role'] == 'assistant' %}\n"
    "        {%- set content = m['content'] if m['content'] is not none else '' %}\n"
    "        {%- if ns.results %}{{- '<｜tool▁outputs▁end｜>' + content + end }}\n"
    "        {%- else %}\n"
    "            {%- if '</think>' in content %}\n"
    "                {%- set content = content.split('</think>')[-1] %}\n"
    "            {%- endif %}\n"
    "            {{- '<｜Assistant｜>' + content + end }}\n"
    "        {%- endif %}\n"
    "        {%- set ns.results = false %}\n"
    "    {%- elif m['role'] == 'tool' %}\n"
    "        {%- if not ns.results %}{{- '<｜tool▁outputs▁begin｜>' }}{%- endif %}\n"
    "        {%- set ns.results = true %}\n"
    "        {{- '<｜tool▁output▁begin｜>' + m['content'] + '<｜tool▁output▁end｜>' }}\n"
    "    {%- endif %}\n"
    "{%- endfor %}\n"
    "{%- if ns.results %}{{- '<｜tool▁outputs▁end｜>' }}\n"
    "{%- elif add_generation_prompt %}{{- '<｜Assistant｜>' }}\n"
    "{%- endif %}\n";

/* ---- Alpaca, Phi ---- */

const char ax_template_alpaca[] =
    "{{- bos_token }}\n"
    "{%- for m in messages %}\n"
    "    {%- if m['role'] == 'system' and loop.first %}{{- m['content'] }}\n"
    "    {%- elif m['role'] == 'user' %}{{- '### Instruction:\\n' + m['content'] }}\n"
    "    {%- elif m['role'] == 'assistant' %}\n"
    "        {{- '### Response:\\n' + m['content'] + eos_token }}\n"
    "    {%- endif %}\n"
    "    {{- '' if loop.last else '\\n\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '\\n\\n### Response:\\n' }}{%- endif %}\n";

const char ax_template_phi_3[] =
    "{{- bos_token }}\n"
    "{%- for m in messages %}\n"
    "    {%- if m['role'] == 'system' %}{{- '<|system|>\\n' + m['content'] + '<|end|>\\n' }}\n"
    "    {%- elif m['role'] == 'user' %}\n"
    "        {{- '<|user|>\\n' + m['content'] + '<|end|>\\n<|assistant|>\\n' }}\n"
    "    {%- elif m['role'] == 'assistant' %}{{- m['content'] + '<|end|>\\n' }}\n"
    "    {%- endif %}\n"
    "{%- endfor %}\n";

const char ax_template_phi_35[] =
    "{%- for m in messages %}\n"
    "    {%- if m['role'] in ['user', 'assistant'] or (m['role'] == 'system' and m['content']) %}\n"
    "        {{- '<|' + m['role'] + '|>\\n' + m['content'] + '<|end|>\\n' }}\n"
    "    {%- endif %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<|assistant|>\\n' }}{%- endif %}\n";

// The prompt format of DeepSeek-V3 as a chat template, for model repositories that have none.

#include "text/template/chat_template.h"

namespace moeflux {

std::string_view deepseek_v3_template() {
  return R"jinja({#- Special tokens are written out: they are the same in the whole family. -#}
{%- set answer = '<｜Assistant｜>' %}
{%- set mode = thinking if thinking is defined else enable_thinking %}
{%- if mode is defined %}
    {%- set answer = answer + ('<think>' if mode else '</think>') %}
{%- endif %}
{%- macro text_of(content) -%}
    {%- if content is string -%}
        {{- content -}}
    {%- elif content is iterable and content is not none -%}
        {%- for part in content -%}{{- part.text -}}{%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{{- '<｜begin▁of▁sentence｜>' }}
{%- set system = namespace(text='') %}
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {%- set system.text = system.text + ('\n\n' if system.text else '') + text_of(message.content) %}
    {%- endif %}
{%- endfor %}
{{- system.text }}
{%- if tools %}
    {{- ('\n\n' if system.text else '') + '## Tools\n\nThese functions can be called:\n' }}
    {%- for tool in tools %}
        {{- '\n' + (tool.function or tool) | tojson }}
    {%- endfor %}
{%- endif %}
{%- set state = namespace(open=false, results=false) %}
{%- for message in messages %}
    {%- if message.role != 'tool' and state.results %}
        {{- '<｜tool▁outputs▁end｜>' }}
        {%- set state.results = false %}
    {%- endif %}
    {%- if message.role == 'user' %}
        {{- '<｜User｜>' + text_of(message.content) }}
        {%- set state.open = true %}
    {%- elif message.role == 'assistant' %}
        {{- answer if state.open }}
        {%- set state.open = false %}
        {{- text_of(message.content) }}
        {%- if message.tool_calls %}
            {{- '<｜tool▁calls▁begin｜>' }}
            {%- for call in message.tool_calls %}
                {%- set function = call.function or call %}
                {{- '\n' if not loop.first }}
                {{- '<｜tool▁call▁begin｜>function<｜tool▁sep｜>' + function.name + '\n```json\n' }}
                {{- (function.arguments or {}) | tojson + '\n```<｜tool▁call▁end｜>' }}
            {%- endfor %}
            {{- '<｜tool▁calls▁end｜>' }}
        {%- endif %}
        {{- '<｜end▁of▁sentence｜>' }}
    {%- elif message.role == 'tool' %}
        {{- '\n' if state.results else '<｜tool▁outputs▁begin｜>' }}
        {{- '<｜tool▁output▁begin｜>' + text_of(message.content) + '<｜tool▁output▁end｜>' }}
        {%- set state.results = true %}
        {%- set state.open = false %}
    {%- endif %}
{%- endfor %}
{{- '<｜tool▁outputs▁end｜>' if state.results }}
{%- if add_generation_prompt and state.open %}
    {{- answer }}
{%- endif %})jinja";
}

}  // namespace moeflux

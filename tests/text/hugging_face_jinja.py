"""Jinja2 with the settings of Hugging Face for chat templates: the reference of the template engine."""

import copy
import datetime
import json
import warnings

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

NOW = datetime.datetime(2024, 2, 9, 15, 4, 5)  # render_lines.cpp has the same


class Generation(jinja2.ext.Extension):
    """{% generation %}...{% endgeneration %}: marks text that a model is trained on; renders its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_render")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


ENVIRONMENT = environment()


def render(source, variables):
    """Returns the text, or None if Jinja2 fails in any way, and the failure."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python's compiler, for the code that Jinja2 generates
            # A copy, because some filters change their input.
            text = ENVIRONMENT.from_string(source).render(copy.deepcopy(variables))
        text.encode("utf-8")
        return text, None
    except Exception as failure:  # Python's errors propagate out of a template unchanged
        return None, f"{type(failure).__name__}: {failure}"

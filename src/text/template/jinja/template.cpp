#include "text/template/jinja/template.h"

#include "text/template/jinja/evaluation.h"
#include "text/template/jinja/syntax/parser.h"

namespace moeflux::jinja {

Result<Template> Template::parse(std::string_view source, std::string_view name, const Limits& limits) {
  MF_TRY(Ast ast, jinja::parse(source, name, limits));
  return Template(std::make_shared<const Ast>(std::move(ast)));
}

Result<MarkedText> Template::render(const Variables& variables, const Limits& limits) const {
  Evaluation evaluation(*ast_, limits, variables.now);
  for (const Variables::Variable& variable : variables.list) {
    Result<Value> value = evaluation.heap().value(*variable.value, variable.is_data);
    if (!value) return std::move(value).error().during(ast_->name + ": variable '" + variable.name + "'");
    evaluation.define(variable.name, *std::move(value));
    if (variable.first_use != nullptr) evaluation.watch(variable.name, *variable.first_use);
  }
  return evaluation.run();
}

}  // namespace moeflux::jinja

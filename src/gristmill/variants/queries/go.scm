; The body of a function shares the scope of its parameters.
(function_declaration) @scope.function
(method_declaration) @scope.function
(func_literal) @scope.function
(function_type) @scope
(method_elem) @scope
(if_statement) @scope
(if_statement consequence: (block) @scope)
(if_statement alternative: (block) @scope)
(for_statement) @scope
(for_statement body: (block) @scope)
(expression_switch_statement) @scope
(type_switch_statement) @scope
(expression_case) @scope
(type_case) @scope
(default_case) @scope
(communication_case) @scope
(statement_list (block) @scope)
(labeled_statement (block) @scope)

(range_clause right: (_) @outside)

(short_var_declaration) @late
(var_spec) @late
(const_spec) @late
(receive_statement) @late

(parameter_declaration name: (identifier) @define)
(variadic_parameter_declaration name: (identifier) @define)
(short_var_declaration left: (expression_list (identifier) @define))
(var_spec name: (identifier) @define)
(const_spec name: (identifier) @define)
(range_clause left: (expression_list (identifier) @define) ":=")
(receive_statement left: (expression_list (identifier) @define) ":=")
(type_switch_statement alias: (expression_list (identifier) @define))

; switch x := x.(type)
(type_switch_statement alias: (_) value: (_) @pin)

; In T{x: y}, x may be a field, or a variable that is the key of a map.
(keyed_element key: (literal_element (identifier) @pin))

; In f[x](y), x may be a type.
(type_identifier) @pin
(function_declaration name: (identifier) @keep.outer)
(package_identifier) @pin

(identifier) @use

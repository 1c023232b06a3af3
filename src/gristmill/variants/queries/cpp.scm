(lambda_expression) @scope.function
(for_range_loop) @scope
(catch_clause) @scope
(template_declaration) @scope

(for_range_loop !initializer right: (_) @outside)
(for_range_loop initializer: (_) right: (_) @pin)

(reference_declarator (identifier) @define)
(for_range_loop declarator: (identifier) @define)
(optional_parameter_declaration declarator: (identifier) @define)
(variadic_declarator (identifier) @define)
(structured_binding_declarator (identifier) @define)

(optional_parameter_declaration default_value: (_) @pin)
(template_parameter_list) @hold
(lambda_capture_initializer left: (identifier) @hold)
(using_declaration) @hold
(alias_declaration name: (_) @hold)
(namespace_identifier) @pin
(template_function name: (identifier) @pin)
(qualified_identifier name: (identifier) @skip)
(concept_definition) @pin
(requires_expression) @pin

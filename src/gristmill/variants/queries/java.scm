(method_declaration) @scope.function
(constructor_declaration) @scope.function
(compact_constructor_declaration) @scope.function
(static_initializer) @scope.function
(lambda_expression) @scope.function
(block) @scope
(constructor_body) @scope
(for_statement) @scope
(enhanced_for_statement) @scope
(try_with_resources_statement) @scope
(catch_clause) @scope
(switch_block) @scope

; A class inside a method may inherit a field with the name of a local variable.
(class_body) @scope.wall
(interface_body) @scope.wall
(enum_body) @scope.wall
(annotation_type_body) @scope.wall

(enhanced_for_statement value: (_) @outside)

(local_variable_declaration declarator: (variable_declarator name: (identifier) @define))
(enhanced_for_statement name: (identifier) @define)
(catch_formal_parameter name: (identifier) @define)
(resource name: (identifier) @define)
(lambda_expression parameters: (identifier) @define)
(lambda_expression parameters: (inferred_parameters (identifier) @define))
(lambda_expression parameters: (formal_parameters (formal_parameter name: (identifier) @define)))

; Frameworks read the names of a method's parameters.
(method_declaration parameters: (formal_parameters (formal_parameter name: (identifier) @keep)))
(method_declaration parameters: (formal_parameters (spread_parameter (variable_declarator name: (identifier) @keep))))
(constructor_declaration parameters: (formal_parameters (formal_parameter name: (identifier) @keep)))
(constructor_declaration parameters: (formal_parameters (spread_parameter (variable_declarator name: (identifier) @keep))))
(record_declaration parameters: (formal_parameters (formal_parameter name: (identifier) @keep)))
(field_declaration declarator: (variable_declarator name: (identifier) @keep))
(constant_declaration declarator: (variable_declarator name: (identifier) @keep))
(enum_constant name: (identifier) @keep)

; These variables are visible wherever the test is true. This region is not a scope.
(instanceof_expression name: (identifier) @hold)
(type_pattern (identifier) @hold)
(record_pattern) @hold
(switch_label (identifier) @pin)
(annotation) @pin

(method_invocation name: (identifier) @skip)
(field_access field: (identifier) @skip)
(method_declaration name: (identifier) @skip)
(constructor_declaration name: (identifier) @skip)
(class_declaration name: (identifier) @skip)
(interface_declaration name: (identifier) @skip)
(enum_declaration name: (identifier) @skip)
(record_declaration name: (identifier) @skip)
(method_reference "::" (identifier) @skip)
(labeled_statement . (identifier) @skip)
(break_statement (identifier) @skip)
(continue_statement (identifier) @skip)
(scoped_identifier (identifier) @skip)

(identifier) @use

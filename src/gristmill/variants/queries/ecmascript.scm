; Patterns that JavaScript and TypeScript have in common.
(function_declaration) @scope.function
(function_expression) @scope.function
(generator_function_declaration) @scope.function
(generator_function) @scope.function
(arrow_function) @scope.function
(method_definition) @scope.function
(class_static_block) @scope.function
(class_declaration) @scope
(class) @scope
(statement_block) @scope
(for_statement) @scope
(for_in_statement) @scope
(catch_clause) @scope
(switch_body) @scope

; var is bound in the function, let and const in the block.
(lexical_declaration (variable_declarator name: (identifier) @define))
(lexical_declaration (variable_declarator name: (array_pattern (identifier) @define)))
(lexical_declaration (variable_declarator name: (array_pattern (assignment_pattern left: (identifier) @define))))
(lexical_declaration (variable_declarator name: (array_pattern (rest_pattern (identifier) @define))))
(lexical_declaration (variable_declarator name: (object_pattern (pair_pattern value: (identifier) @define))))
(lexical_declaration (variable_declarator name: (object_pattern (pair_pattern value: (assignment_pattern left: (identifier) @define)))))
(lexical_declaration (variable_declarator name: (object_pattern (rest_pattern (identifier) @define))))
(variable_declaration (variable_declarator name: (identifier) @define.function))
(variable_declaration (variable_declarator name: (array_pattern (identifier) @define.function)))
(variable_declaration (variable_declarator name: (array_pattern (assignment_pattern left: (identifier) @define.function))))
(variable_declaration (variable_declarator name: (array_pattern (rest_pattern (identifier) @define.function))))
(variable_declaration (variable_declarator name: (object_pattern (pair_pattern value: (identifier) @define.function))))
(variable_declaration (variable_declarator name: (object_pattern (pair_pattern value: (assignment_pattern left: (identifier) @define.function)))))
(variable_declaration (variable_declarator name: (object_pattern (rest_pattern (identifier) @define.function))))
(for_in_statement kind: ["let" "const"] left: (identifier) @define)
(for_in_statement kind: ["let" "const"] left: (array_pattern (identifier) @define))
(for_in_statement kind: ["let" "const"] left: (object_pattern (pair_pattern value: (identifier) @define)))
(for_in_statement kind: "var" left: (identifier) @define.function)
(for_in_statement kind: "var" left: (array_pattern (identifier) @define.function))
(for_in_statement kind: ["let" "const" "var"] left: (array_pattern [(assignment_pattern) (rest_pattern)] @hold))
(for_in_statement kind: ["let" "const" "var"] left: (object_pattern (rest_pattern) @hold))
(for_in_statement kind: ["let" "const" "var"] left: (object_pattern (pair_pattern value: (assignment_pattern) @hold)))
(for_in_statement kind: "var" left: (object_pattern (pair_pattern value: (identifier) @hold)))
(arrow_function parameter: (identifier) @define)
(catch_clause parameter: (identifier) @define)
(catch_clause parameter: (_ (_) @hold))

; A pattern inside a pattern may declare or assign.
(array_pattern [(array_pattern) (object_pattern)] @hold)
(array_pattern (assignment_pattern left: [(array_pattern) (object_pattern)] @hold))
(pair_pattern value: [(array_pattern) (object_pattern)] @hold)
(pair_pattern value: (assignment_pattern left: [(array_pattern) (object_pattern)] @hold))
(rest_pattern [(array_pattern) (object_pattern)] @hold)

; In {x}, one word is both a property and a variable.
(shorthand_property_identifier) @pin
(shorthand_property_identifier_pattern) @hold

(function_declaration name: (identifier) @keep.outer)
(generator_function_declaration name: (identifier) @keep.outer)
(function_expression name: (identifier) @keep)
(generator_function name: (identifier) @keep)
(import_specifier (identifier) @hold)
(export_specifier (identifier) @hold)

(identifier) @use

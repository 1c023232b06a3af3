(function_definition) @scope.function
(compound_statement) @scope
(for_statement) @scope
(if_statement) @scope
(while_statement) @scope
(switch_statement) @scope
(field_declaration_list) @scope.wall

(declaration declarator: (identifier) @define)
(init_declarator declarator: (identifier) @define)
(pointer_declarator declarator: (identifier) @define)
(array_declarator declarator: (identifier) @define)
(parenthesized_declarator (identifier) @define)
(parameter_declaration declarator: (identifier) @define)

; Functions, and declarations that look like functions, such as T x(y);
(function_declarator declarator: (identifier) @hold)
(declaration declarator: (function_declarator) @hold)
(declaration declarator: (pointer_declarator declarator: (function_declarator) @hold))
(declaration declarator: (init_declarator declarator: (function_declarator parameters: (_) @hold)))
(parameter_declaration declarator: (function_declarator parameters: (_) @hold))
(parameter_declaration declarator: (pointer_declarator declarator: (function_declarator parameters: (_) @hold)))
(abstract_function_declarator parameters: (parameter_list (parameter_declaration declarator: (function_declarator parameters: (_) @hold))))
(declaration (storage_class_specifier "extern") declarator: (_) @hold)
(enumerator name: (identifier) @hold)
(type_definition declarator: (_) @hold)

; The grammar has no type information and parses x * y; as a declaration.
(type_identifier) @pin

; The effect of a macro on a name is unknown.
(preproc_def) @forbid
(preproc_function_def) @forbid
(preproc_call argument: (_) @forbid)
(preproc_ifdef name: (identifier) @forbid)
(preproc_if condition: (_) @forbid)
(preproc_elif condition: (_) @forbid)
(preproc_defined (identifier) @forbid)
; A macro may print the name, as assert does, or use the name as a field.
((call_expression function: (identifier) @_macro arguments: (_) @pin)
 (#match? @_macro "^[A-Z0-9_]+$|assert$|_of$|_entry|each|offsetof"))
(gnu_asm_expression) @pin
(attribute_specifier) @pin
(attribute_declaration) @pin
(ms_declspec_modifier) @pin

(identifier) @use
